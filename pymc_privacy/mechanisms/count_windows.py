"""Which counts can be behind a noisy count, but for noise beyond its reach."""

from __future__ import annotations

import math
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from pymc_privacy.arguments import shown
from pymc_privacy.errors import MechanismError
from pymc_privacy.mechanisms.base import AdditiveMechanism
from pymc_privacy.mechanisms.post_processed import Clamped, PostProcessed, Rounded, Suppressed
from pymc_privacy.mechanisms.table import TableMechanism
from pymc_privacy.mechanisms.tails import log_reach, log_tail_bound

# The log tails of ever wider windows: -8, and each this factor further than the one before.
_FIRST, _FACTOR, _LEVELS = 8.0, 1.4, (80, 60, 40, 20, 4)


class CountWindow(NamedTuple):
    """With a release y, the count is within ``half`` of it; if y <= ``threshold``, of 0 to there.

    That is, between max(0, y - half) and y + half, or between 0 and threshold + half, unless
    some noise was beyond its reach.
    """

    half: np.ndarray
    threshold: float
    log_left_out: np.ndarray
    """Bounds the log density of a release whose noise was beyond its reach."""

    @property
    def length(self) -> int:
        """Return how many neighbouring counts hold the window of every release."""
        half = int(np.max(self.half))
        return max(2 * half + 1, math.ceil(max(self.threshold, 0.0)) + half + 1)


@cache
def count_reaches(mechanism: Any) -> CountWindow:
    """Return ever wider windows along a leading axis, as far as counts can be told apart.

    Examples
    --------
    >>> import pymc_privacy as pmp
    >>> from pymc_privacy.mechanisms.count_windows import count_reaches
    >>> count_reaches(pmp.Laplace(scale=1.0)).half[:4].tolist()
    [9, 12, 17, 23]
    """
    for levels in _LEVELS:
        log_tails = -_FIRST * _FACTOR ** np.arange(levels)
        try:
            return count_window(
                mechanism, log_tails.reshape(-1, *(1,) * len(cells_of_noise(mechanism)))
            )
        except MechanismError:
            if levels == _LEVELS[-1]:
                raise
    raise AssertionError("the last number of levels returns or raises")


def count_window(mechanism: Any, log_tail: Any) -> CountWindow:
    """Return the window outside which the noise is with probability at most exp(``log_tail``).

    Parameters
    ----------
    mechanism : AdditiveMechanism or PostProcessed
        A release that was clamped from above says nothing about how large a count can be, and
        is refused.
    log_tail : float or array_like
        An array has a leading axis, as the fields that are returned do.

    Examples
    --------
    >>> import math
    >>> import pymc_privacy as pmp
    >>> from pymc_privacy.mechanisms.count_windows import count_window
    >>> noise = pmp.DiscreteLaplace(scale=2.0)
    >>> count_window(noise, math.log(1e-12)).length
    111
    >>> count_window(pmp.Suppressed(mechanism=noise, below=90), math.log(1e-12)).length
    146
    """
    match mechanism:
        case AdditiveMechanism():
            half = log_reach(mechanism, log_tail)
            # Densities do not increase away from the statistic.
            edge = mechanism.log_density(half.astype(np.float64), 0.0)
            return CountWindow(half, -math.inf, np.asarray(edge))
        case TableMechanism():
            # A table has no noise beyond its reach.
            shape = np.shape(log_tail)
            half = np.full(shape, _reach_of_table(mechanism))
            return CountWindow(half, -math.inf, np.full(shape, -math.inf))
        case Rounded():
            half, threshold, left_out = count_window(mechanism.mechanism, log_tail)
            slack = mechanism.to / 2
            window = CountWindow(half + math.ceil(slack), threshold + slack, left_out)
        case Clamped(upper=None):
            half, threshold, left_out = count_window(mechanism.mechanism, log_tail)
            window = CountWindow(half, max(threshold, float(mechanism.lower or 0.0)), left_out)
        case Suppressed():
            half, threshold, left_out = count_window(mechanism.mechanism, log_tail)
            window = CountWindow(half, max(threshold, mechanism.below), left_out)
        case _:
            raise MechanismError(
                "A noisy count needs a mechanism that adds noise, such as "
                "DiscreteLaplace(epsilon=1.0, sensitivity=1.0), or one that was rounded, "
                "suppressed or clamped from below afterwards, or a TableMechanism, because counts "
                f"are summed within its reach; got {shown(mechanism)}."
            )
    # What is published may be an interval, whose probability is at most that of all such noise.
    noise = noise_inside(mechanism)
    beyond = math.log(2) + log_tail_bound(noise, log_reach(noise, log_tail) + float(noise.discrete))
    return window._replace(log_left_out=np.maximum(window.log_left_out, beyond))


def cells_of_noise(mechanism: Any) -> tuple[int, ...]:
    """Return the shape of the scales of the noise, () where one law is that of every cell."""
    return np.shape(getattr(noise_inside(mechanism), "scale", 1.0))


def _reach_of_table(mechanism: TableMechanism) -> int:
    """Return how far a release can be from its count."""
    truth, release = np.nonzero(mechanism.table)
    return int(np.abs(release - truth).max())


def noise_inside(mechanism: Any) -> AdditiveMechanism:
    """Return the mechanism before any post-processing."""
    return noise_inside(mechanism.mechanism) if isinstance(mechanism, PostProcessed) else mechanism
