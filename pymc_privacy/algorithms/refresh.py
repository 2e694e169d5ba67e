"""Offer whole databases drawn afresh, with parameters from a learnt mixture, by Metropolis' rule.

Parameters q* come from a mixture m of Student laws, whatever q, and records x* from f(x | q*). The
ratio is that of weights in the space of both,

    [p(q*) eta(s | S(x*)) / m(q*)] / [p(q) eta(s | S(x)) / m(q)],

since f cancels. Where a posterior has several modes, or one that is narrow beside a broad one,
local moves stay where they are; these go anywhere that m reaches.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from pymc_privacy.algorithms.interweave import acceptance, number_or_never
from pymc_privacy.algorithms.proposals import students
from pymc_privacy.algorithms.proposals.students import Mixture


class State(NamedTuple):
    """Parameters, the log density of all but the records there, and the records."""

    q: np.ndarray
    log_density: float
    records: Any


class Info(NamedTuple):
    """What was offered, and how often it was taken."""

    points: np.ndarray
    log_weights: np.ndarray
    accept: float


def step(
    rng: np.random.Generator,
    state: State,
    *,
    mixture: Mixture,
    offers: int,
    offer: Callable[[np.ndarray], State],
) -> tuple[State, Info]:
    """Make some offers; ``offer(q)`` draws records given q."""
    weight = number_or_never(state.log_density - students.log_density(state.q, mixture))
    points, log_weights, accept = [], [], 0.0
    for _ in range(offers):
        q = students.draw(rng, mixture)
        there = offer(q)
        then = there.log_density - students.log_density(q, mixture)
        points.append(q)
        log_weights.append(number_or_never(then))
        accept += acceptance(then - weight)
        # Not a number, outside the support, is never accepted.
        if then + rng.standard_exponential() >= weight:
            state, weight = there, then
    return state, Info(np.array(points), np.array(log_weights), accept / max(offers, 1))
