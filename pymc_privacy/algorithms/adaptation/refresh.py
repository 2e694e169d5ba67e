"""Learn, in tuning and never after, whether to offer fresh databases, and from which mixture.

Offers are made where leaps are seldom accepted. They are learnt from themselves: each has a weight,
and the mixture becomes one that fits the weighted offers so far (population Monte Carlo).
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from pymc_privacy.algorithms.importance import centre_and_scale, flattened
from pymc_privacy.algorithms.proposals import students
from pymc_privacy.algorithms.proposals.students import Mixture
from pymc_privacy.algorithms.refresh import Info

# Leaps that are accepted more often than this do well alone.
ENOUGH_LEAPS = 0.4
# The number of accepted offers that an iteration aims at, and how many it makes for that.
ACCEPTED_OFFERS, FEWEST, MOST = 4.0, 6, 32
# The mixture is learnt afresh so many times, from the offers of the last few rounds: each has the
# weight that the mixture it came from gives it.
ROUNDS, REMEMBERED = 8, 3
# The share of the mixture that is the prior's, and the acceptance that is worth its cost.
WIDE, LEAST_ACCEPT = 0.08, 0.01
# Offers that a round must be worth: its weights are flattened until it is.
LEAST_WORTH = 60
# The covariance of more cannot be learnt from offers worth so little: each component of a mixture
# needs a few times as many as there are coordinates.
MOST_PARAMETERS = 20
SHORT_TUNING = 200
_MEMORY = 0.02


class Refreshing(NamedTuple):
    """What is known of fresh databases."""

    mixture: Mixture | None = None
    """None where none is offered."""
    wide: Mixture | None = None
    points: tuple[np.ndarray, ...] = ()
    log_weights: tuple[np.ndarray, ...] = ()
    """Of the offers of the last rounds, one array for each iteration."""
    accept: float = 0.0
    """A running mean."""


def begins(iteration: int, tune_steps: int, leap_accept: float) -> bool:
    """Tell whether to begin with offers: after a quarter of tuning, if leaps do not do."""
    return (
        tune_steps >= SHORT_TUNING and iteration == tune_steps // 4 and leap_accept < ENOUGH_LEAPS
    )


def number_of_offers(known: Refreshing) -> int:
    """Return how many offers an iteration makes: fewer where they are accepted often."""
    return math.ceil(min(max(ACCEPTED_OFFERS / max(known.accept, 1e-9), FEWEST), MOST))


def begin(prior: np.ndarray) -> Refreshing:
    """Start from draws of the prior."""
    mean, scale = centre_and_scale(prior)
    wide = Mixture(np.ones(1), mean[None], np.diag(scale)[None])
    return Refreshing(wide, wide)


def learn(known: Refreshing, info: Info, iteration: int, tune_steps: int) -> Refreshing:
    """Learn from the offers of one iteration of tuning."""
    known = known._replace(
        points=(*known.points, info.points),
        log_weights=(*known.log_weights, info.log_weights),
        accept=known.accept + _MEMORY * (info.accept - known.accept),
    )
    length = max((tune_steps - tune_steps // 4) // (ROUNDS + 1), 1)
    if (iteration - tune_steps // 4) % length or iteration > tune_steps - length:
        return known
    return _learnt(known, REMEMBERED * length)


def _learnt(known: Refreshing, remembered: int) -> Refreshing:
    """Fit the mixture to the weighted offers of the last iterations, and forget earlier ones."""
    points, log_weights = known.points[-remembered:], known.log_weights[-remembered:]
    known = known._replace(points=points, log_weights=log_weights)
    logs = np.concatenate(log_weights)
    if np.isfinite(logs).sum() < 2 * LEAST_WORTH:
        return known
    weights = flattened(logs, LEAST_WORTH)
    kept = weights > 0
    assert known.wide is not None
    found = students.learn(np.concatenate(points)[kept], weights[kept])
    return known._replace(mixture=students.joined(found, known.wide, WIDE))


def settle(known: Refreshing) -> Refreshing:
    """Keep the mixture as it is, or give up offers that were hardly ever accepted."""
    if known.accept < LEAST_ACCEPT:
        return Refreshing()
    return known._replace(points=(), log_weights=())
