"""Mean and variance of Normal records, from the totals of v and v^2, v being records on [-1, 1].

The prior is flat in the mean and in the variance. Then the marginal of mean and sum of squares SS
of the records is flat as well; given them the variance is inverse-gamma((n - 3) / 2, SS / 2), and
the mean is Student's t with n - 3 degrees of freedom about the mean of the records.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from pymc_privacy.sanitize.families.base import (
    LEAST,
    SummarisedFamily,
    SummaryBounds,
    checked_pair,
    numbers,
)
from pymc_privacy.sanitize.moments import NORMAL

_CELL = 2**32  # of [0, 1], to which records are rounded for the moments of the posterior


@dataclass(frozen=True)
class _Normal(SummarisedFamily):
    """What the mean and the variance have in common."""

    bounds: tuple[float, float]
    moments = NORMAL
    least = LEAST

    def __post_init__(self) -> None:
        object.__setattr__(self, "bounds", checked_pair("bounds", self.bounds))

    @property
    def middle(self) -> float:
        """Return the middle of the bounds, which becomes 0."""
        return self.bounds[0] + self.half

    @property
    def half(self) -> float:
        """Return half the distance of the bounds, which becomes 1."""
        return (self.bounds[1] - self.bounds[0]) / 2

    @property
    def contribution_bounds(self) -> tuple[tuple[float, float], ...]:
        """Return those of v and of v^2."""
        return NORMAL.bounds

    @property
    def sensitivity(self) -> tuple[float, str]:
        """Return 9/4, which is attained from v = 1 to v = -1/2."""
        return float(NORMAL.l1), NORMAL.proof

    def contributions(self, records: Any) -> np.ndarray:
        """Return (v, v^2) for each record."""
        return NORMAL.of(self._scaled(records)[:, None])

    def summary_totals(self, records: Any) -> tuple[int, ...]:
        """Return the totals of v and of v^2 in cells of 2^-32 and 2^-64, exactly."""
        cells = [int(cell) for cell in np.rint(self._scaled(records) * _CELL).tolist()]
        return sum(cells), sum(cell * cell for cell in cells)

    def _scaled(self, records: Any) -> np.ndarray:
        """Return v: the records on [-1, 1], each by itself."""
        inside = np.clip(numbers(records, least=self.least), *self.bounds)
        return np.clip((inside - self.middle) / self.half, -1.0, 1.0)

    def resample(
        self, rng: np.random.Generator, total: np.ndarray, size: int, repeats: int
    ) -> np.ndarray:
        """Draw mean and sum of squares of Normal records, which are independent."""
        mean, squares = _moments(total[None, :], size)
        mean, variance = np.clip(mean[0], -1, 1), _floored(squares / (size - 1), size)[0]
        means = rng.normal(mean, math.sqrt(variance / size), repeats)
        about = variance * rng.chisquare(size - 1, repeats)
        return np.stack([size * means, about + size * means**2], axis=1)

    @abstractmethod
    def _parameter(
        self, rng: np.random.Generator, mean: np.ndarray, squares: np.ndarray, size: int
    ) -> np.ndarray: ...

    def posterior(
        self, rng: np.random.Generator, totals: np.ndarray, size: int
    ) -> tuple[np.ndarray, np.ndarray]:
        """Draw the parameter given the sufficient statistics; none was clipped (not checked)."""
        mean, squares = _moments(totals, size)
        possible = (squares > 0) & (np.abs(mean) <= 1) & (squares <= size)
        draws = self._parameter(rng, mean, np.where(possible, squares, 1.0), size)
        return draws, np.where(possible, 0.0, -np.inf)


@dataclass(frozen=True)
class NormalMean(_Normal):
    """The mean of Normal records of unknown variance, clipped to public bounds.

    Parameters
    ----------
    bounds : (float, float)
        Wide enough that hardly a record is clipped.

    Raises
    ------
    ReleaseError
        By the constructor, if the bounds are not a pair of finite numbers in order.

    See Also
    --------
    NormalVariance : The variance of such records.
    noise_aware_interval : An interval from a noisy total.
    centre_scale_interval : An interval from a noisy mean and deviation.

    Examples
    --------
    >>> import numpy as np
    >>> import pymc_privacy as pmp
    >>> heights = np.random.default_rng(1).normal(170, 10, size=2000)
    >>> interval = pmp.noise_aware_interval(heights, pmp.NormalMean((120, 220)), epsilon=1.0)
    >>> 165 < interval.lower < interval.upper < 175
    True
    """

    name = "mean"

    @property
    def support(self) -> tuple[float, float]:
        """Return the bounds of the records."""
        return self.bounds

    def _parameter(
        self, rng: np.random.Generator, mean: np.ndarray, squares: np.ndarray, size: int
    ) -> np.ndarray:
        error = np.sqrt(squares / (size * (size - 3)))
        return self.middle + self.half * (mean + error * rng.standard_t(size - 3, len(mean)))

    def estimate(self, totals: np.ndarray, size: int) -> tuple[np.ndarray, np.ndarray]:
        """Return the mean and s^2 / n."""
        mean, squares = _moments(totals, size)
        variance = _floored(squares / (size - 1), size)
        return self.middle + self.half * mean, self.half**2 * variance / size

    def summary_bounds(self, size: int) -> SummaryBounds:
        """Return the suprema for the t posterior; one record moves s by at most range / sqrt(n).

        s sqrt(n - 1) is the norm of the centred records, and centring shrinks: replacing a record
        moves it by at most range sqrt(1 - 1/n).
        """
        factor = _student_factor(size)
        return SummaryBounds(
            centre_sensitivity=2 * self.half / size,
            spread_sensitivity=2 * self.half * factor / math.sqrt(size),
            largest_centre=2 * self.half,
            largest_spread=self.half * factor * math.sqrt(size / (size - 1)),
        )

    def summary(self, totals: tuple[int, ...], size: int) -> tuple[float, float]:
        """Return the moments of the t posterior."""
        mean = float(1 + Fraction(totals[0], size * _CELL))
        s = math.sqrt(_squares(totals, size) / (size - 1))
        return self.half * mean, self.half * _student_factor(size) * s


@dataclass(frozen=True)
class NormalVariance(_Normal):
    """The variance of Normal records of unknown mean, clipped to public bounds.

    Parameters
    ----------
    bounds : (float, float)
        Wide enough that hardly a record is clipped.

    Raises
    ------
    ReleaseError
        By the constructor, if the bounds are not a pair of finite numbers in order.

    See Also
    --------
    NormalMean : The mean of such records.
    noise_aware_interval : An interval from a noisy total.
    centre_scale_interval : An interval from a noisy mean and deviation.

    Examples
    --------
    >>> import numpy as np
    >>> import pymc_privacy as pmp
    >>> heights = np.random.default_rng(1).normal(170, 10, size=5000)
    >>> interval = pmp.noise_aware_interval(heights, pmp.NormalVariance((120, 220)), epsilon=1.0)
    >>> 70 < interval.lower < interval.upper < 130
    True
    """

    name = "variance"

    @property
    def support(self) -> tuple[float, float]:
        """Return 0 and the largest variance within the bounds."""
        return 0.0, self.half**2

    def _parameter(
        self, rng: np.random.Generator, mean: np.ndarray, squares: np.ndarray, size: int
    ) -> np.ndarray:
        return self.half**2 * squares / rng.chisquare(size - 3, len(squares))

    def estimate(self, totals: np.ndarray, size: int) -> tuple[np.ndarray, np.ndarray]:
        """Return s^2, which noise may have made negative, and 2 s^4 / (n - 1)."""
        _, squares = _moments(totals, size)
        variance = squares / (size - 1)
        inside = _floored(variance, size)
        return self.half**2 * variance, self.half**4 * 2 * inside**2 / (size - 1)

    def summary_bounds(self, size: int) -> SummaryBounds:
        """Return the suprema for the inverse-gamma posterior; its moments are multiples of s^2.

        The sum of squares is that of n - 1 records plus (1 - 1/n) times the squared distance of
        the last from their mean: one record moves it by at most (1 - 1/n) range^2.
        """
        mean, spread = self._factors(size)
        moved = 4 * (1 - 1 / size)
        return SummaryBounds(mean * moved, spread * moved, mean * size, spread * size)

    def summary(self, totals: tuple[int, ...], size: int) -> tuple[float, float]:
        """Return the moments of the inverse-gamma posterior."""
        mean, spread = self._factors(size)
        squares = _squares(totals, size)
        return mean * squares, spread * squares

    def _factors(self, size: int) -> tuple[float, float]:
        """Return mean and standard deviation of the posterior over the sum of squares of v."""
        mean = self.half**2 / (size - 5)
        return mean, mean * math.sqrt(2 / (size - 7))


def _student_factor(size: int) -> float:
    """Return the standard deviation of the t posterior of the mean over that of the records."""
    return math.sqrt((size - 1) / (size * (size - 5)))


def _squares(totals: tuple[int, ...], size: int) -> float:
    """Return the sum of squares of v about its mean, from exact totals."""
    first, second = totals
    return float(Fraction(size * second - first * first, size * _CELL**2))


def _moments(totals: np.ndarray, size: int) -> tuple[np.ndarray, np.ndarray]:
    """Return mean, and sum of squares about the mean, of v."""
    mean = totals[:, 0] / size
    return mean, totals[:, 1] - size * mean**2


def _floored(variance: np.ndarray, size: int) -> np.ndarray:
    """Keep a variance positive that noise has made negative, and below that of any records."""
    return np.clip(variance, 1.0 / size**2, 1.0)
