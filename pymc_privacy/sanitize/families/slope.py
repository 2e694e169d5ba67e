"""The slope of a simple linear regression, from five totals; both columns are confidential.

With v and t the covariate and the response on [-1, 1], each record adds (v, v^2, t, v t, t^2). The
prior is flat in mean and variance of the covariate, in intercept, slope (within its bounds) and
residual variance. Then the marginal of the totals is ∝ 1 / Svv, from the change of variables
between the two least-squares estimates and the totals; the bounds of the slope make it proper.
Given the totals the slope is Student's t with n - 4 degrees of freedom about the least-squares
estimate. It has no summary that could be released: where the covariate hardly varies, one record
moves the slope at will.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from pymc_privacy.sanitize.families.base import LEAST, Family, checked_pair, numbers
from pymc_privacy.sanitize.moments import REGRESSION


@dataclass(frozen=True)
class Slope(Family):
    """The slope of a response on one covariate, both Normal, clipped to public bounds.

    Parameters
    ----------
    covariate_bounds, response_bounds : (float, float)
        Wide enough that hardly a record is clipped. Records have two columns, in this order.
    bounds : (float, float)
        Of the slope.

    Raises
    ------
    ReleaseError
        By the constructor, if bounds are not pairs of finite numbers in order.

    See Also
    --------
    NormalMean : A mean instead of a slope.
    noise_aware_interval : An interval from a noisy total.

    Examples
    --------
    >>> import numpy as np
    >>> import pymc_privacy as pmp
    >>> rng = np.random.default_rng(1)
    >>> z = rng.normal(size=10_000)
    >>> records = np.stack([z, 1 + 0.5 * z + 0.25 * rng.normal(size=10_000)], axis=1)
    >>> family = pmp.Slope((-4, 4), (-2, 4), bounds=(-5, 5))
    >>> interval = pmp.noise_aware_interval(records, family, epsilon=5.0)
    >>> 0.4 < interval.lower < interval.upper < 0.6
    True
    """

    covariate_bounds: tuple[float, float]
    response_bounds: tuple[float, float]
    bounds: tuple[float, float]
    name = "slope"
    moments = REGRESSION
    least = LEAST

    def __post_init__(self) -> None:
        for field in ("covariate_bounds", "response_bounds", "bounds"):
            object.__setattr__(self, field, checked_pair(field, getattr(self, field)))

    @property
    def ratio(self) -> float:
        """Return the slope of the records when that of v and t is 1."""
        low, high = self.covariate_bounds
        return (self.response_bounds[1] - self.response_bounds[0]) / (high - low)

    @property
    def contribution_bounds(self) -> tuple[tuple[float, float], ...]:
        """Return those of (v, v^2, t, v t, t^2)."""
        return REGRESSION.bounds

    @property
    def sensitivity(self) -> tuple[float, str]:
        """Return 9/4 + 9/4 + 2."""
        return float(REGRESSION.l1), REGRESSION.proof

    @property
    def support(self) -> tuple[float, float]:
        """Return the bounds of the slope."""
        return self.bounds

    def contributions(self, records: Any) -> np.ndarray:
        """Return five numbers for each record."""
        array = numbers(records, columns=2, least=self.least)
        scaled = [
            np.clip(2 * ((np.clip(column, low, high) - low) / (high - low)) - 1, -1.0, 1.0)
            for column, (low, high) in zip(
                array.T, (self.covariate_bounds, self.response_bounds), strict=True
            )
        ]
        return REGRESSION.of(np.stack(scaled, axis=1))

    def posterior(
        self, rng: np.random.Generator, totals: np.ndarray, size: int
    ) -> tuple[np.ndarray, np.ndarray]:
        """Draw the slope given the sufficient statistics; none was clipped (not checked)."""
        svv, svt, stt = _centred(totals, size)
        possible = (svv > 0) & (stt > 0) & (svt**2 < svv * stt) & (svv <= size) & (stt <= size)
        svv = np.where(possible, svv, 1.0)
        residual = np.where(possible, stt - svt**2 / svv, 1.0)
        error = np.sqrt(residual / (svv * (size - 4)))
        slope = self.ratio * (svt / svv + error * rng.standard_t(size - 4, len(svv)))
        possible &= (slope >= self.bounds[0]) & (slope <= self.bounds[1])
        return slope, np.where(possible, -np.log(svv), -np.inf)

    def estimate(self, totals: np.ndarray, size: int) -> tuple[np.ndarray, np.ndarray]:
        """Return the least-squares slope and its variance."""
        svv, slope, variance = self._fit(totals, size)
        return self.ratio * slope, self.ratio**2 * variance / svv

    def resample(
        self, rng: np.random.Generator, total: np.ndarray, size: int, repeats: int
    ) -> np.ndarray:
        """Draw totals of Normal covariates and responses; the five determine the fit."""
        [svv], [slope], [variance] = self._fit(total[None, :], size)
        slope = np.clip(slope, *(np.array(self.bounds) / self.ratio))
        mean_v, mean_t = (np.clip(total[k] / size, -1, 1) for k in (0, 2))
        v_mean = rng.normal(mean_v, np.sqrt(svv) / size, repeats)
        s_vv = svv / size * rng.chisquare(size - 1, repeats)
        fitted = slope + rng.normal(0, np.sqrt(variance / s_vv))
        residual = variance * rng.chisquare(size - 2, repeats)
        t_mean = (
            mean_t + slope * (v_mean - mean_v) + rng.normal(0, np.sqrt(variance / size), repeats)
        )
        s_vt, s_tt = fitted * s_vv, residual + fitted**2 * s_vv
        columns = [
            size * v_mean,
            s_vv + size * v_mean**2,
            size * t_mean,
            s_vt + size * v_mean * t_mean,
            s_tt + size * t_mean**2,
        ]
        return np.stack(columns, axis=1)

    def _fit(self, totals: np.ndarray, size: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return Svv, slope and residual variance of v and t, made possible where noise was not."""
        svv, svt, stt = _centred(totals, size)
        svv = np.clip(svv, 1.0 / size, size)
        slope = svt / svv
        variance = np.clip((stt - slope**2 * svv) / (size - 2), 1.0 / size**2, 1.0)
        return svv, slope, variance


def _centred(totals: np.ndarray, size: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return sums of squares and products about the means."""
    v, vv, t, vt, tt = totals.T
    return vv - v * v / size, vt - v * t / size, tt - t * t / size
