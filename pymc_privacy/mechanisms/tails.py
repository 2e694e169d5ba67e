"""How far additive noise can reach.

Let f be the density of the noise (or its probabilities, on the integers). Laplace and Gaussian
noise is log-concave and symmetric: f and the ratio f(x + 1) / f(x) do not increase away from 0.
With q = f(h) / f(h - 1) < 1,

    P(noise >= h) <= sum_{k >= 0} f(h + k) <= f(h) / (1 - q),        h >= 1,

an equality for discrete Laplace noise. Other noise has to bring its own tail.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from pymc_privacy.errors import MechanismError
from pymc_privacy.mechanisms.base import UNBOUNDED, AdditiveMechanism
from pymc_privacy.mechanisms.gaussian import DiscreteGaussian, Gaussian
from pymc_privacy.mechanisms.laplace import DiscreteLaplace, Laplace

LOG_CONCAVE = (Laplace, DiscreteLaplace, Gaussian, DiscreteGaussian)

FURTHEST = 2**52
"""Beyond this a count is no longer known to the last unit in floating point."""


def log_tail_bound(mechanism: AdditiveMechanism, distance: Any) -> np.ndarray:
    """Bound log P(noise >= distance) in each coordinate, for a distance >= 1.

    Parameters
    ----------
    mechanism : AdditiveMechanism
        Its noise must be symmetric, which is not checked.
    distance : array_like
        An integer where the noise is. Broadcasts against a vector of scales.

    Returns
    -------
    ndarray

    Examples
    --------
    >>> import pymc_privacy as pmp
    >>> from pymc_privacy.mechanisms.tails import log_tail_bound
    >>> log_tail_bound(pmp.DiscreteLaplace(scale=1.0), 20).round(6).item()
    -20.313262
    """
    distance = np.asarray(distance, dtype=np.float64)
    if not isinstance(mechanism, LOG_CONCAVE):
        return np.asarray(_own_tail(mechanism, distance))
    here = mechanism.log_density(distance, 0.0)
    fall = here - mechanism.log_density(distance - 1, 0.0)
    with np.errstate(divide="ignore", invalid="ignore"):
        bound = np.where(np.isneginf(here), -np.inf, here - np.log(-np.expm1(fall)))
    return np.minimum(bound, 0.0)


def _own_tail(mechanism: AdditiveMechanism, distance: np.ndarray) -> Any:
    if not hasattr(mechanism, "interval"):
        raise MechanismError(
            "The mechanism must know the probability of an interval (AdditiveMechanism.interval), "
            f"because the tail of its noise is needed; got {mechanism!r}."
        )
    return mechanism.interval(distance, UNBOUNDED, 0.0, *mechanism.parameters)


def reach(mechanism: AdditiveMechanism, tail: float) -> np.ndarray:
    """Return the smallest integer h for which P(``|noise|`` > h) is proven to be at most tail.

    Examples
    --------
    >>> import pymc_privacy as pmp
    >>> from pymc_privacy.mechanisms.tails import reach
    >>> reach(pmp.Gaussian(scale=(1.0, 10.0)), 1e-12).tolist()
    [8, 72]
    """
    shape = np.shape(mechanism.scale)
    # Noise on the integers is above h only where it is at least h + 1.
    beyond = 1 if mechanism.discrete else 0
    return smallest_integer(
        lambda h: log_tail_bound(mechanism, h + beyond) <= np.log(tail) - np.log(2), np.ones(shape)
    )


def smallest_integer(holds: Any, first: np.ndarray) -> np.ndarray:
    """Return the smallest integer from first on at which a condition holds, by bisection.

    From the first place where it holds, it must hold everywhere.
    """
    low = np.asarray(first, dtype=np.float64) - 1
    step = np.ones_like(low)
    while not np.all(enough := holds(low + step)):
        step = np.where(enough, step, 2 * step)
        if np.any(step > FURTHEST):
            raise MechanismError(
                "The noise must be narrow enough that a count can be told from its neighbour in "
                f"floating point (its reach at most {FURTHEST}); got a wider one."
            )
    high = low + step
    while np.any(high - low > 1):
        middle = np.floor((low + high) / 2)
        enough = holds(middle)
        low, high = np.where(enough, low, middle), np.where(enough, middle, high)
    return high.astype(np.int64)
