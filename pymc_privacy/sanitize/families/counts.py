"""Proportions of yes answers and rates of counts: one total of integers is all there is to know."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import betaln, gammaln
from scipy.stats import poisson

from pymc_privacy.arguments import integer
from pymc_privacy.errors import ReleaseError
from pymc_privacy.sanitize.families.base import (
    MOST,
    SimulatedFamily,
    SummaryBounds,
    checked_prior,
    numbers,
)

_MOST_TOTALS = 2**26
_MOST_COUNTS = 10_000


@dataclass(frozen=True)
class Proportion(SimulatedFamily):
    """The share of ones among records that are 0 or 1, with a Beta prior.

    Parameters
    ----------
    prior : (float, float)
        Of the Beta law.

    Raises
    ------
    ReleaseError
        By the constructor, if the prior is not two finite numbers > 0.

    See Also
    --------
    Rate : Counts instead of zeros and ones.
    noise_aware_interval : An interval from a noisy total.
    centre_scale_interval : An interval from a noisy mean and deviation.

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
    whole = True

    def __post_init__(self) -> None:
        object.__setattr__(self, "prior", checked_prior(self.prior, "of the Beta law"))

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
        values = numbers(records)
        if not np.all((values == 0) | (values == 1)):
            raise ReleaseError(
                "records of a proportion must be 0 or 1 (False or True), because their share of "
                "ones is asked for; got other values. Code the answers as 0 and 1."
            )
        return values.astype(np.int64)

    def posterior(
        self, rng: np.random.Generator, totals: np.ndarray, size: int
    ) -> tuple[np.ndarray, np.ndarray]:
        """Draw from Beta(a + k, b + (n - k)); the total is beta-binomial.

        In this order a small b is not lost beside n.
        """
        a, b = self.prior
        k = totals[:, 0]
        possible = (k >= 0) & (k <= size)
        k = np.clip(k, 0, size)
        log_marginal = betaln(a + k, b + (size - k)) - gammaln(k + 1) - gammaln(size - k + 1)
        return rng.beta(a + k, b + (size - k)), np.where(possible, log_marginal, -np.inf)

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

    def totals_at(
        self, rng: np.random.Generator, parameter: float, size: int, draws: int
    ) -> np.ndarray:
        """Draw binomial totals."""
        return rng.binomial(size, parameter, (draws, 1)).astype(float)

    def summary_bounds(self, size: int) -> SummaryBounds:
        """Return the suprema over all n + 1 totals."""
        if size > _MOST_TOTALS:
            raise ReleaseError(
                f"A share is summarised for at most {_MOST_TOTALS} records, because all totals are "
                f"looked at; got {size}."
            )
        a, b = self.prior
        spreads = self._spread(np.arange(size + 1.0), size)
        largest = float(spreads.max())
        # Where no record moves the spread, as with one record, floats still might.
        moved = float(np.abs(np.diff(spreads)).max()) + largest * 2.0**-40
        return SummaryBounds(1 / (a + b + size), moved, 1.0, largest)

    def summary_totals(self, records: Any) -> tuple[int, ...]:
        """Return the number of ones."""
        return (int(self.contributions(records).sum()),)

    def summary(self, totals: tuple[int, ...], size: int) -> tuple[float, float]:
        """Return the moments of the Beta posterior."""
        [ones], (a, b) = totals, self.prior
        return (a + ones) / (a + b + size), float(self._spread(np.asarray(float(ones)), size))

    def _spread(self, ones: np.ndarray, size: int) -> np.ndarray:
        a, b = self.prior[0] + ones, self.prior[1] + size - ones
        return np.sqrt(a / (a + b) * (b / (a + b)) / (a + b + 1))


@dataclass(frozen=True)
class Rate(SimulatedFamily):
    """The mean of counts, Poisson, with a Gamma prior; counts are clipped to a public bound.

    Parameters
    ----------
    upper : int
        The largest count that is told apart.
    prior : (float, float)
        Shape and rate of the Gamma law; (1, 0) is flat.

    Raises
    ------
    ReleaseError
        By the constructor, if upper is not an integer >= 1, or the prior not a shape > 0 and a rate
        >= 0.

    See Also
    --------
    Proportion : Zeros and ones instead of counts.
    noise_aware_interval : An interval from a noisy total.
    centre_scale_interval : An interval from a noisy mean and deviation.

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
    whole = True

    def __post_init__(self) -> None:
        meaning = "the largest count that is told apart"
        upper = integer(
            "upper", self.upper, least=1, most=MOST, meaning=meaning, error=ReleaseError
        )
        object.__setattr__(self, "upper", upper)
        prior = checked_prior(self.prior, "shape and rate of the Gamma law", zero_rate=True)
        object.__setattr__(self, "prior", prior)

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
        values = numbers(records)
        if not np.all((values >= 0) & (values == np.rint(values))):
            raise ReleaseError(
                "records of a rate must be counts, whole numbers >= 0, because they are taken for "
                "Poisson; got other values."
            )
        return np.minimum(values, float(self.upper)).astype(np.int64)

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

    def totals_at(
        self, rng: np.random.Generator, parameter: float, size: int, draws: int
    ) -> np.ndarray:
        """Draw totals of Poisson counts that are clipped one by one."""
        if self.upper > _MOST_COUNTS:
            raise ReleaseError(
                f"Clipped counts are simulated up to upper={_MOST_COUNTS}, because each value is "
                f"counted; got {self.upper}."
            )
        counts = np.arange(self.upper + 1)
        chances = poisson.pmf(counts, parameter)
        chances[-1] = poisson.sf(self.upper - 1, parameter)
        return (rng.multinomial(size, chances / chances.sum(), draws) @ counts)[:, None].astype(
            float
        )

    def summary_bounds(self, size: int) -> SummaryBounds:
        """Return the suprema for the posterior Gamma(a + S, b + n).

        The standard deviation sqrt(a + S) / (b + n) is concave in S, so that one record moves it
        most at S = 0.
        """
        shape, rate = self.prior
        scale = rate + size
        return SummaryBounds(
            centre_sensitivity=self.upper / scale,
            spread_sensitivity=self.upper
            / (math.sqrt(shape + self.upper) + math.sqrt(shape))
            / scale,
            largest_centre=(shape + size * self.upper) / scale,
            largest_spread=math.sqrt(shape + size * self.upper) / scale,
        )

    def summary_totals(self, records: Any) -> tuple[int, ...]:
        """Return the total of the counts."""
        return (sum(self.contributions(records).tolist()),)

    def summary(self, totals: tuple[int, ...], size: int) -> tuple[float, float]:
        """Return the moments of the Gamma posterior."""
        [total], (shape, rate) = totals, self.prior
        return (shape + total) / (rate + size), math.sqrt(shape + total) / (rate + size)
