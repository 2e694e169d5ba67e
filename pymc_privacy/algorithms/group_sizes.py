"""Leave the posterior of numbers of records of groups invariant, by draws from their exact law.

Given rows x_1, x_2, … of each group, in order, of which the first n_g are its records,

    p(n_g | x, releases)  is proportional to  p(n_g) eta_g(s_g | S_g(n_g)),

with S_g(k) the sum of the first k contributions, and p for every factor that sees the number: its
prior, a release of its own. Groups are independent given their rows, and the sums of all k cost as
much as one sweep of the rows, so that all numbers are drawn afresh: a Gibbs step.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np


class State(NamedTuple):
    """The number of records of each group."""

    sizes: np.ndarray


class Info(NamedTuple):
    """The fraction of groups whose number changed."""

    changed: float


def step(rng: np.random.Generator, state: State, log_weights: np.ndarray) -> tuple[State, Info]:
    """Draw the number of each group from its weights.

    Parameters
    ----------
    rng
    state
    log_weights
        Shape (numbers from 0 on, groups), up to a constant of each group. They must not depend on
        the present numbers. What is not a number has no weight; a group without any weight, at a
        start outside the support of the noise, keeps its number.
    """
    weights = np.where(np.isnan(log_weights), -np.inf, log_weights)
    drawn = np.argmax(weights + rng.gumbel(size=weights.shape), axis=0)
    movable = np.isfinite(weights.max(axis=0))
    sizes = np.where(movable, drawn, state.sizes).astype(state.sizes.dtype)
    return State(sizes), Info(float(np.mean(sizes != state.sizes)))
