"""Learn, in tuning and never after, what guides the moves of `algorithms.proposals.leaps`."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from pymc_privacy.algorithms.adaptation import tuning
from pymc_privacy.algorithms.adaptation.tuning import Tuning
from pymc_privacy.algorithms.proposals.frames import Reference

# Slopes of the statistic are taken over this many standard deviations.
LENGTH_OF_SLOPES = 0.2
# Leaps that are accepted more seldom gain less than the steps of a walk in their place.
LEAST_LEAPS = 0.02
# The number of accepted leaps that an iteration aims at.
ACCEPTED_LEAPS = 5.0
FEWEST_STEPS = 20
# In units of 1 / sqrt(dimensions): a longer drift is a fresh draw, however much longer it is.
SCALES = (1e-6, 30.0)
_MEMORY = 0.05


class LocalProposal(NamedTuple):
    """What is known of the parameters given the base variates, beyond slopes and misfit."""

    residual: Tuning
    """Mean and factor of L⁻¹ (theta - c), and what they are being learnt from."""
    accept: float
    """A running mean of the acceptance of leaps."""


def init(size: int) -> LocalProposal:
    """Start with what would hold if the statistic were linear and its noise Normal."""
    residual = tuning.init(size)._replace(factor=np.eye(size), centre=np.zeros(size))
    return LocalProposal(residual, 0.0)


def leaps(proposal: LocalProposal) -> bool:
    """Tell whether leaps are worth their cost."""
    return proposal.accept >= LEAST_LEAPS


def tries(proposal: LocalProposal, walk: Tuning, tune_steps: int) -> bool:
    """Try leaps until the last part of tuning, and keep them where they are accepted."""
    return walk.iteration < 7 * tune_steps // 8 or leaps(proposal)


def number_of_steps(proposal: LocalProposal, planned: int) -> int:
    """Return how many steps an iteration needs, every other of which is a leap."""
    if not leaps(proposal):
        return planned
    return min(max(math.ceil(2 * ACCEPTED_LEAPS / proposal.accept), FEWEST_STEPS), planned)


def reference(
    walk: Tuning, proposal: LocalProposal, noise_precision: np.ndarray, leap: bool
) -> Reference:
    """Return what frames are made of, and whether to leap.

    ``walk`` has learnt the law of the parameters; without a centre, nothing is known yet.
    """
    if not len(walk.centre):
        return unguided()
    lengths, precision = slopes(walk)
    return Reference(
        walk.centre[None],
        lengths,
        precision,
        noise_precision,
        scores=np.zeros(1),
        mean=proposal.residual.centre,
        spread=proposal.residual.factor,
        leaps=leap,
    )


def slopes(walk: Tuning) -> tuple[np.ndarray, np.ndarray]:
    """Return over which lengths slopes are taken, and the precision of the parameters' law."""
    lengths = LENGTH_OF_SLOPES * np.linalg.norm(walk.factor, axis=1)
    return lengths, np.linalg.inv(walk.factor @ walk.factor.T)


def unguided() -> Reference:
    """Return a reference without points."""
    nothing, square = np.empty(0), np.empty((0, 0))
    return Reference(square, nothing, square, nothing, nothing, nothing, square, leaps=False)


def learn(
    walk: Tuning, proposal: LocalProposal, t: np.ndarray, leap_accept: float, tune_steps: int
) -> tuple[Tuning, LocalProposal]:
    """Learn the parameters' law in the first half of tuning, and what it leaves in the second.

    ``walk`` has seen the last draw already; ``t`` are the coordinates of that draw, and
    ``leap_accept`` is the acceptance of leaps before it.
    """
    if len(walk.centre):
        walk = tuning.bounded(walk, *SCALES)
        proposal = follow(proposal, t, leap_accept, tune_steps // 2)
    if walk.iteration > tune_steps // 2:
        return walk, proposal
    learnt = tuning.learn_factor_in_time(walk, tune_steps)
    if learnt.centre is not walk.centre:
        proposal = afresh(proposal)
    return learnt, proposal


def follow(
    proposal: LocalProposal, t: np.ndarray, leap_accept: float, tune_steps: int
) -> LocalProposal:
    """Learn what is left of the parameters' law from the t of one draw.

    ``leap_accept`` is the acceptance of leaps before it.
    """
    return LocalProposal(
        _learn_residual(proposal.residual, t, tune_steps),
        proposal.accept + _MEMORY * (leap_accept - proposal.accept),
    )


def afresh(proposal: LocalProposal) -> LocalProposal:
    """Forget the residuals: of another law they would be others."""
    return init(len(proposal.residual.factor))._replace(accept=proposal.accept)


def _learn_residual(residual: Tuning, t: np.ndarray, tune_steps: int) -> Tuning:
    residual = tuning.observe(residual, residual.centre + residual.factor @ t)
    residual = residual._replace(iteration=residual.iteration + 1)
    if not tuning.at_milestone(residual, tune_steps):
        return residual
    return tuning.learn_factor(residual, forget=False)
