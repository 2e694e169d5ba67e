"""Learn, in tuning and never after, how parameters and sizes move together along a ridge."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from pymc_privacy.algorithms import guidance, ridge, tuning
from pymc_privacy.algorithms.guidance import Guide
from pymc_privacy.algorithms.ridge import Ridge
from pymc_privacy.algorithms.tuning import Tuning

# The far end of a ridge: where the sizes are above this quantile.
FAR_END = 0.95

Local = tuple[
    np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray, bool, np.ndarray
]


class Trail(NamedTuple):
    """What has been learnt of a ridge, of the law around it, and of leaps there."""

    walk: Tuning
    """Where the ridge is straight."""
    ridge: Ridge
    far: np.ndarray
    """A point at the far end of the straight ridge; empty before one is known."""
    guide: Guide
    seen: np.ndarray
    """All draws, with the logs of the sizes at the end."""


def init(parameters: int, sizes: int) -> Trail:
    """Start with a straight ridge."""
    size = parameters + sizes
    return Trail(
        tuning.init(size),
        ridge.straight(parameters, sizes),
        np.empty(0),
        guidance.init(size),
        np.empty((0, size)),
    )


def shape_is_learnt(trail: Trail, tune_steps: int) -> bool:
    """Tell whether the last quarter of tuning has begun, in which ridge and law are kept."""
    return trail.walk.iteration > 3 * tune_steps // 4


def learn(
    trail: Trail,
    q: np.ndarray | None,
    t: np.ndarray | None,
    leapt: float,
    tune_steps: int,
    *,
    bends: bool,
) -> Trail:
    """Learn ridge and law, and in the last quarter of tuning what they leave.

    Parameters
    ----------
    trail
        Its walk has been rescaled already.
    q
        Parameters and logs of the sizes; None where there are no records.
    t, leapt
        The coordinates of `pymc_privacy.algorithms.leaps` before, and the acceptance of leaps;
        None where nothing was moved by them.
    tune_steps
    bends
        Whether a ridge may be curved.
    """
    if q is not None:
        trail = trail._replace(seen=np.concatenate([trail.seen, q[None]]))
    if t is not None and len(trail.far):
        trail = trail._replace(guide=guidance.follow(trail.guide, t, leapt, tune_steps // 4))
    if shape_is_learnt(trail, tune_steps) or not tuning.at_milestone(trail.walk, tune_steps):
        return trail
    return _learn_shape(trail, bends)


def _learn_shape(trail: Trail, bends: bool) -> Trail:
    """Take ridge and covariance from the later half of what was seen."""
    later = trail.seen[len(trail.seen) // 2 :]
    parameters, sizes, _ = trail.ridge.curves.shape
    curve = trail.ridge
    if bends:
        curve = ridge.learn(later, sizes)
        later = ridge.straightened(later, curve)
    walk = tuning.learn_factor(tuning.observed(trail.walk, later), forget=True)
    if not len(walk.centre):
        return trail._replace(walk=walk, ridge=curve)
    logs = later[:, parameters:].sum(axis=1)
    far = later[logs >= np.quantile(logs, FAR_END)].mean(axis=0)
    return trail._replace(walk=walk, ridge=curve, far=far, guide=guidance.afresh(trail.guide))


def local(trail: Trail, weights: np.ndarray, *, leap: bool) -> Local:
    """Return the arguments of `leaps.local_frame`, whether to leap, and the far end.

    Without weights nothing guides.
    """
    if not len(weights):
        return (*guidance.unguided(), np.empty(0))
    return (*guidance.local(trail.walk, trail.guide, weights, leap=leap), trail.far)
