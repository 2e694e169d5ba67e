"""Learn, in tuning and never after, how parameters and sizes move together along a ridge."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.special import ndtr

from pymc_privacy.algorithms.adaptation import local_proposal, ridge, tuning
from pymc_privacy.algorithms.adaptation.local_proposal import LocalProposal
from pymc_privacy.algorithms.adaptation.ridge import Ridge
from pymc_privacy.algorithms.adaptation.tuning import Tuning
from pymc_privacy.algorithms.proposals.frames import Reference

# Frames are learnt where the last size has these standard normal scores.
SCORES = np.array([-1.5, 0.0, 1.3, 2.3])


class RidgeAdaptation(NamedTuple):
    """What has been learnt of a ridge, of the law around it, and of leaps there."""

    walk: Tuning
    """Where the ridge is straight."""
    ridge: Ridge
    knots: np.ndarray
    """Logs of the last size with the scores of `SCORES`; empty before any is known."""
    proposal: LocalProposal
    seen: np.ndarray
    """All draws, with the logs of the sizes at the end."""


def init(parameters: int, sizes: int) -> RidgeAdaptation:
    """Start with a straight ridge."""
    size = parameters + sizes
    return RidgeAdaptation(
        tuning.init(size),
        ridge.straight(parameters, sizes),
        np.empty(0),
        local_proposal.init(size),
        np.empty((0, size)),
    )


def shape_is_learnt(known: RidgeAdaptation, tune_steps: int) -> bool:
    """Tell whether the last quarter of tuning has begun, in which ridge and law are kept."""
    return known.walk.iteration > 3 * tune_steps // 4


def learn(
    known: RidgeAdaptation,
    q: np.ndarray | None,
    t: np.ndarray | None,
    leap_accept: float,
    tune_steps: int,
    *,
    has_ridge: bool,
) -> RidgeAdaptation:
    """Learn ridge and law, and in the last quarter of tuning what they leave.

    Parameters
    ----------
    known
        Its walk has been rescaled already.
    q
        Parameters and logs of the sizes; None where there are no records.
    t, leap_accept
        The coordinates of `algorithms.proposals.leaps` before, and the acceptance of leaps;
        None where nothing was moved by them.
    tune_steps
    has_ridge
        Whether a ridge may be curved.
    """
    if q is not None:
        known = known._replace(seen=np.concatenate([known.seen, q[None]]))
    if t is not None and len(known.knots):
        walk = tuning.bounded(known.walk, *local_proposal.SCALES)
        proposal = local_proposal.follow(known.proposal, t, leap_accept, tune_steps // 4)
        known = known._replace(walk=walk, proposal=proposal)
    if shape_is_learnt(known, tune_steps) or not tuning.at_milestone(known.walk, tune_steps):
        return known
    return _learn_shape(known, has_ridge)


def _learn_shape(known: RidgeAdaptation, has_ridge: bool) -> RidgeAdaptation:
    """Take ridge and covariance from the later half of what was seen."""
    later = known.seen[len(known.seen) // 2 :]
    sizes = known.ridge.curves.shape[1]
    curve = known.ridge
    if has_ridge:
        curve = ridge.learn(later, sizes)
        later = ridge.straightened(later, curve)
    walk = tuning.learn_factor(tuning.observed(known.walk, later), forget=True)
    if not len(walk.centre):
        return known._replace(walk=walk, ridge=curve)
    knots = _knots(later[:, -1], walk)
    return known._replace(
        walk=walk, ridge=curve, knots=knots, proposal=local_proposal.afresh(known.proposal)
    )


def _knots(logs: np.ndarray, walk: Tuning) -> np.ndarray:
    """Return the quantiles of some draws, apart from each other wherever they were drawn."""
    spread = np.linalg.norm(walk.factor[-1])
    return 0.9 * np.quantile(logs, ndtr(SCORES)) + 0.1 * (walk.centre[-1] + spread * SCORES)


def held(known: RidgeAdaptation) -> Tuning:
    """Return a walk of the parameters that moves sizes by less than a record."""
    sizes = known.ridge.curves.shape[1]
    factor = known.walk.factor.copy()
    factor[-sizes:] = 0.0
    np.fill_diagonal(factor[-sizes:, -sizes:], 1e-12)
    return known.walk._replace(factor=factor)


def reference(known: RidgeAdaptation, noise_precision: np.ndarray, leap: bool) -> Reference:
    """Return what frames are made of, and whether to leap.

    Without any precision of the noise nothing guides.
    """
    walk, residual = known.walk, known.proposal.residual
    if not (len(noise_precision) and len(known.knots)):
        return local_proposal.unguided()
    lengths, precision = local_proposal.slopes(walk)
    # Along the straight ridge, given the size.
    covariance = walk.factor @ walk.factor.T
    away = (known.knots - walk.centre[-1]) / covariance[-1, -1]
    return Reference(
        walk.centre + np.outer(away, covariance[-1]),
        lengths,
        np.ascontiguousarray(precision[:-1, :-1]),
        noise_precision,
        SCORES,
        mean=residual.centre,
        spread=residual.factor,
        leaps=leap,
    )
