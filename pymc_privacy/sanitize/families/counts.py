"""Proportions of yes answers and rates of counts: one total of integers is all there is to know."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import betaln, gammaln
from scipy.stats import beta as beta_law

from pymc_privacy.errors import ReleaseError
from pymc_privacy.sanitize.families.base import Family, Summary, numbers


@dataclass(frozen=True)
class Proportion(Family):
    """The share of ones among records that are 0 or 1, with a Beta prior.

    Parameters
    ----------
    prior : (float, float)
        Of the Beta law.

    Examples
    --------
    >>> import pymc_privacy as pmp
    >>> answers = [0, 1, 1, 0, 1] * 100
    >>> interval = pmp.noise_aware_interval(answers, pmp.Proportion(), epsilon=1.0)
    >>> 0.5 < interval.lower < interval.upper < 0.7
    True
    """

    prior: tuple[float, float] = (1.0, 1.0)
    name = "proportion"

    @property
    def contribution_bounds(self) -> tuple[float, float]:
        """Return 0 and 1."""
        return 0.0, 1.0

    @property
    def sensitivity(self) -> None:
        """Return None: the bounds say it."""
        return

    @property
    def support(self) -> tuple[float, float]:
        """Return 0 and 1."""
        return 0.0, 1.0

    def contributions(self, records: Any) -> np.ndarray:
        """Return zeros and ones."""
        return (numbers(records) >= 0.5).astype(np.int64)

    def posterior(
        self, rng: np.random.Generator, totals: np.ndarray, size: int
    ) -> tuple[np.ndarray, np.ndarray]:
        """Draw from Beta(a + k, b + n - k); the total is beta-binomial."""
        a, b = self.prior
        k = totals[:, 0]
        possible = (k >= 0) & (k <= size)
        k = np.clip(k, 0, size)
        log_marginal = betaln(a + k, b + size - k) - gammaln(k + 1) - gammaln(size - k + 1)
        return rng.beta(a + k, b + size - k), np.where(possible, log_marginal, -np.inf)

    def estimate(self, totals: np.ndarray, size: int) -> tuple[np.ndarray, np.ndarray]:
        """Return the share of ones, unbiased, and p (1 - p) / n, p half a record inside [0, 1]."""
        share = totals[:, 0] / size
        inside = np.clip(share, 0.5 / size, 1 - 0.5 / size)
        return share, inside * (1 - inside) / size

    def resample(
        self, rng: np.random.Generator, total: np.ndarray, size: int, repeats: int
    ) -> np.ndarray:
        """Draw binomial totals."""
        share = float(np.clip(total[0] / size, 0.0, 1.0))
        return rng.binomial(size, share, (repeats, 1)).astype(float)

    def summary(self, records: Any) -> Summary:
        """Return the moments of the Beta posterior; the suprema are over all n + 1 totals."""
        size, k = len(records), int(self.contributions(records).sum())
        a, b = self.prior
        spreads = beta_law.std(a + np.arange(size + 1), b + size - np.arange(size + 1))
        return Summary(
            centre=(a + k) / (a + b + size),
            spread=float(spreads[k]),
            centre_sensitivity=1 / (a + b + size),
            spread_sensitivity=float(np.abs(np.diff(spreads)).max()),
            largest_spread=float(spreads.max()),
        )


@dataclass(frozen=True)
class Rate(Family):
    """The mean of counts, Poisson, with a Gamma prior; counts are clipped to a public bound.

    Parameters
    ----------
    upper : int
        The largest count that is told apart.
    prior : (float, float)
        Shape and rate of the Gamma law; (1, 0) is flat.

    Examples
    --------
    >>> import numpy as np
    >>> import pymc_privacy as pmp
    >>> visits = np.random.default_rng(1).poisson(10, size=2000)
    >>> interval = pmp.noise_aware_interval(visits, pmp.Rate(upper=25), epsilon=1.0)
    >>> 9 < interval.lower < interval.upper < 11
    True
    """

    upper: int
    prior: tuple[float, float] = (1.0, 0.0)
    name = "rate"

    def __post_init__(self) -> None:
        if not isinstance(self.upper, int | np.integer) or self.upper < 1:
            raise ReleaseError(
                "upper must be an integer > 0 (the largest count that is told apart); got "
                f"{self.upper!r}."
            )

    @property
    def contribution_bounds(self) -> tuple[float, float]:
        """Return 0 and the largest count."""
        return 0.0, float(self.upper)

    @property
    def sensitivity(self) -> None:
        """Return None: the bounds say it."""
        return

    @property
    def support(self) -> tuple[float, float]:
        """Return 0 and the largest count."""
        return 0.0, float(self.upper)

    def contributions(self, records: Any) -> np.ndarray:
        """Return counts, clipped."""
        return np.rint(np.clip(numbers(records), 0, self.upper)).astype(np.int64)

    def posterior(
        self, rng: np.random.Generator, totals: np.ndarray, size: int
    ) -> tuple[np.ndarray, np.ndarray]:
        """Draw from Gamma(a + S, b + n); the total is negative binomial."""
        shape, rate = self.prior
        s = totals[:, 0]
        possible = (s >= 0) & (s <= size * self.upper)
        s = np.maximum(s, 0.0)
        log_marginal = gammaln(shape + s) - gammaln(s + 1) - s * math.log1p(rate / size)
        draws = rng.gamma(shape + s) / (rate + size)
        return draws, np.where(possible, log_marginal, -np.inf)

    def estimate(self, totals: np.ndarray, size: int) -> tuple[np.ndarray, np.ndarray]:
        """Return the mean count, unbiased, and mean / n, the mean half a count inside its range."""
        mean = totals[:, 0] / size
        return mean, np.clip(mean, 0.5 / size, self.upper) / size

    def resample(
        self, rng: np.random.Generator, total: np.ndarray, size: int, repeats: int
    ) -> np.ndarray:
        """Draw Poisson totals."""
        mean = float(np.clip(total[0] / size, 0.0, self.upper))
        return rng.poisson(size * mean, (repeats, 1)).astype(float)

    def summary(self, records: Any) -> Summary:
        """Return the moments of the Gamma posterior, Gamma(a + S, b + n).

        The standard deviation sqrt(a + S) / (b + n) is concave in S, so that one record moves it
        most at S = 0.
        """
        shape, rate = self.prior
        size, total = len(records), int(self.contributions(records).sum())
        scale = rate + size
        return Summary(
            centre=(shape + total) / scale,
            spread=math.sqrt(shape + total) / scale,
            centre_sensitivity=self.upper / scale,
            spread_sensitivity=(math.sqrt(shape + self.upper) - math.sqrt(shape)) / scale,
            largest_spread=math.sqrt(shape + size * self.upper) / scale,
        )
