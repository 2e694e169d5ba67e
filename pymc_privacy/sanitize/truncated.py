"""Laplace laws between two bounds: what a total may have been, given its release.

For t in [low, high], |s - t| is |s' - t| plus a constant, s' being s moved to the nearest bound. So
the law of the total given a release outside the bounds is that given the bound, and nothing has to
be drawn far out in a tail.
"""

from __future__ import annotations

import numpy as np
from scipy.stats import laplace

_REACH = 40  # scales; exp(-40) is below the resolution of the uniform numbers


def laplace_between(
    rng: np.random.Generator, middle: float, scale: float, low: float, high: float, draws: int
) -> np.ndarray:
    """Draw from the density ∝ exp(-|t - middle| / scale) on [low, high].

    Examples
    --------
    >>> values = laplace_between(np.random.default_rng(1), 9.0, 1.0, 0.0, 2.0, 1000)
    >>> bool(values.min() >= 0), bool(values.max() <= 2)
    (True, True)
    """
    law = laplace(np.clip(middle, low, high), scale)
    values = law.ppf(rng.uniform(law.cdf(low), law.cdf(high), draws))
    return np.clip(values, low, high)


def discrete_laplace_between(
    rng: np.random.Generator, middle: int, scale: float, low: int, high: int, draws: int
) -> np.ndarray:
    """Draw integers with probability ∝ exp(-|t - middle| / scale) on {low, ..., high}.

    Examples
    --------
    >>> values = discrete_laplace_between(np.random.default_rng(1), -50, 2.0, 0, 10, 1000)
    >>> int(values.min()), int(values.max()) <= 10
    (0, True)
    """
    middle = int(np.clip(middle, low, high))
    reach = int(_REACH * scale) + 1
    values = np.arange(max(low, middle - reach), min(high, middle + reach) + 1)
    cumulated = np.cumsum(np.exp(-np.abs(values - middle) / scale))
    return values[np.searchsorted(cumulated, rng.uniform(0, cumulated[-1], draws), side="right")]
