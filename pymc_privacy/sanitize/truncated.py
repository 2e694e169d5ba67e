"""Laplace laws between two bounds: what a total may have been, given its release.

For t in [low, high], |s - t| is |s' - t| plus a constant, s' being s moved to the nearest bound. So
the law of the total given a release outside the bounds is that given the bound, and nothing has to
be drawn far out in a tail.
"""

from __future__ import annotations

import numpy as np

_NARROWEST = 2.0**-100  # of a scale; what is narrower is one point as well


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
    middle = float(min(max(middle, low), high))
    # Both bounds are not on the same side of the middle: P(t < low) and P(t > high) say all.
    below, above = 0.5 * np.exp((low - middle) / scale), 0.5 * np.exp((middle - high) / scale)
    points = rng.uniform(below, 1 - above, draws)
    tail = np.maximum(2 * np.minimum(points, 1 - points), np.finfo(float).tiny)
    values = middle + np.copysign(scale * np.log(tail), points - 0.5)
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
    middle = min(max(middle, low), high)
    rate = min(1 / max(scale, _NARROWEST), 1 / _NARROWEST)
    # The middle itself belongs to what is not below it.
    above = _geometric_mass(rate, high - middle + 1)
    below = np.exp(-rate) * _geometric_mass(rate, middle - low)
    right = rng.uniform(0, above + below, draws) < above
    counts = np.where(right, high - middle + 1, middle - low).astype(float)
    steps = _truncated_geometric(rng, rate, counts)
    return np.where(right, middle + steps, middle - 1 - steps).astype(np.int64)


def _geometric_mass(rate: float, count: int) -> float:
    """Return the sum of exp(-rate j) over j < count."""
    return float(np.expm1(-count * rate) / np.expm1(-rate))


def _truncated_geometric(rng: np.random.Generator, rate: float, counts: np.ndarray) -> np.ndarray:
    """Draw integers j in [0, count) with probability ∝ exp(-rate j), by inversion."""
    points = rng.uniform(size=len(counts)) * -np.expm1(-counts * rate)
    steps = np.floor(-np.log1p(-points) / rate)
    return np.clip(steps, 0, np.maximum(counts - 1, 0)).astype(np.int64)
