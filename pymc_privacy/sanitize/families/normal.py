"""Mean and variance of Normal records, from the totals of v and v^2, v being records on [-1, 1].

The prior is flat in the mean and in the variance. Then the marginal of mean and sum of squares SS
of the records is flat as well; given them the variance is inverse-gamma((n - 3) / 2, SS / 2), and
the mean is Student's t with n - 3 degrees of freedom about the mean of the records.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass
from typing import Any

import numpy as np

from pymc_privacy.errors import ReleaseError
from pymc_privacy.sanitize.families.base import (
    LEAST,
    ROUNDING,
    Family,
    Summary,
    checked_pair,
    numbers,
)


@dataclass(frozen=True)
class _Normal(Family):
    """What the mean and the variance have in common."""

    bounds: tuple[float, float]

    def __post_init__(self) -> None:
        object.__setattr__(self, "bounds", checked_pair("bounds", self.bounds))

    @property
    def middle(self) -> float:
        """Return the middle of the bounds, which becomes 0."""
        return (self.bounds[0] + self.bounds[1]) / 2

    @property
    def half(self) -> float:
        """Return half the distance of the bounds, which becomes 1."""
        return (self.bounds[1] - self.bounds[0]) / 2

    @property
    def contribution_bounds(self) -> tuple[tuple[float, float], ...]:
        """Return those of v and of v^2."""
        return (-1.0, 1.0), (0.0, 1.0)

    @property
    def sensitivity(self) -> tuple[float, str]:
        """Return 9/4, which is attained from v = 1 to v = -1/2."""
        proof = (
            "|v - v'| + |v^2 - v'^2| = d (1 + |v + v'|) with d = |v - v'| and |v + v'| <= 2 - d, "
            "hence at most d (3 - d) <= 9/4."
        )
        return 2.25 * (1 + ROUNDING), proof

    def contributions(self, records: Any) -> np.ndarray:
        """Return (v, v^2) for each record."""
        v = np.clip((numbers(records) - self.middle) / self.half, -1.0, 1.0)
        if len(v) < LEAST:
            raise ReleaseError(
                f"records must be {LEAST} or more, for their variance to say anything; got "
                f"{len(v)}."
            )
        return np.stack([v, v * v], axis=1)

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

    def summary(self, records: Any) -> Summary:
        """Return the moments of the t posterior; one record moves s by at most range / sqrt(n).

        s sqrt(n - 1) is the norm of the centred records, and centring shrinks: replacing a record
        moves it by at most range sqrt(1 - 1/n).
        """
        v = self.contributions(records)[:, 0]
        size = len(v)
        factor = math.sqrt((size - 1) / (size * (size - 5)))
        return Summary(
            centre=self.middle + self.half * float(v.mean()),
            spread=self.half * factor * float(v.std(ddof=1)),
            centre_sensitivity=2 * self.half / size,
            spread_sensitivity=2 * self.half * factor / math.sqrt(size),
            largest_spread=self.half * factor * math.sqrt(size / (size - 1)),
        )


@dataclass(frozen=True)
class NormalVariance(_Normal):
    """The variance of Normal records of unknown mean, clipped to public bounds.

    Parameters
    ----------
    bounds : (float, float)
        Wide enough that hardly a record is clipped.

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

    def summary(self, records: Any) -> Summary:
        """Return the moments of the inverse-gamma posterior; both are multiples of s^2.

        The sum of squares is that of n - 1 records plus (1 - 1/n) times the squared distance of
        the last from their mean: one record moves it by at most (1 - 1/n) range^2.
        """
        v = self.contributions(records)[:, 0]
        size = len(v)
        mean = self.half**2 / (size - 5)
        spread = mean * math.sqrt(2 / (size - 7))
        squares, moved = size * float(v.var()), 4 * (1 - 1 / size)
        return Summary(
            centre=mean * squares,
            spread=spread * squares,
            centre_sensitivity=mean * moved,
            spread_sensitivity=spread * moved,
            largest_spread=spread * size,
        )


def _moments(totals: np.ndarray, size: int) -> tuple[np.ndarray, np.ndarray]:
    """Return mean, and sum of squares about the mean, of v."""
    mean = totals[:, 0] / size
    return mean, totals[:, 1] - size * mean**2


def _floored(variance: np.ndarray, size: int) -> np.ndarray:
    """Keep a variance positive that noise has made negative, and below that of any records."""
    return np.clip(variance, 1.0 / size**2, 1.0)
