"""G0 of PRECISE: how far a posterior density moves with one record, in the limit of many records.

Theorem 2: G0 = C I / sqrt(2 e pi), where C / n is how far the estimate moves and I the Fisher
information of one record. Each bound here is the largest G0 over the parameter and record values
that it is given. None is a supremum over data sets of finite size, which for a Bernoulli proportion
with a flat prior is n + 1, and for a Gaussian mean is infinite; so none gives a guarantee.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from pymc_privacy.arguments import pair, positive, reals, refusal
from pymc_privacy.errors import GuaranteeError

_PEAK = 1 / math.sqrt(2 * math.e * math.pi)  # of the derivative of the standard Normal density


def limit(change: float, information: float) -> float:
    """Return G0 = C I / sqrt(2 e pi) of Theorem 2.

    Parameters
    ----------
    change : float
        C: n times the distance of the estimates of two neighbours.
    information : float
        Fisher information of one record about the parameter.

    Examples
    --------
    >>> round(limit(1.0, 1 / (0.3 * 0.7)), 4)
    1.1522
    """
    bound = _checked("change", change) * _checked("information", information) * _PEAK
    return _checked("G0", bound)


def bernoulli(bounds: tuple[float, float]) -> float:
    """Return the largest G0 = 1 / (sqrt(2 e pi) p (1 - p)) of a proportion within bounds.

    Examples
    --------
    >>> round(bernoulli((0.03, 0.97)), 3)
    8.315
    """
    low, high = reals("bounds of a proportion", bounds, shapes=[(2,)], error=GuaranteeError)
    if not 0 < low < high < 1:
        raise GuaranteeError(
            "bounds of a proportion must satisfy 0 < low < high < 1 (at 0 and 1 the information is "
            f"infinite); got {bounds!r}."
        )
    # p (1 - p) is smallest at one of the two ends.
    return limit(1.0, 1 / float(min(low * (1 - low), high * (1 - high))))


def poisson(bounds: tuple[float, float], record_bounds: tuple[float, float]) -> float:
    """Return the largest ``G0 = |x' - x| / (sqrt(2 e pi) lambda)`` of a rate within bounds.

    Examples
    --------
    >>> round(poisson((3, 35), record_bounds=(0, 35)), 3)
    2.823
    """
    low, _ = pair("bounds", bounds, error=GuaranteeError)
    least, most = pair("record_bounds", record_bounds, error=GuaranteeError)
    return limit(most - least, 1 / _checked("the lower bound", low))


def normal_mean(deviations: float, smallest_sd: float) -> float:
    """Return the largest G0 of a Normal mean for records within that many sd of it.

    ``|x' - x| <= 2 k sigma`` and I = 1 / sigma^2, hence 2 k / (sqrt(2 e pi) sigma).

    Examples
    --------
    >>> round(normal_mean(5, smallest_sd=0.25), 3)
    9.679
    """
    return limit(2 * _checked("deviations", deviations), 1 / _checked("smallest_sd", smallest_sd))


def normal_variance(deviations: float, smallest_variance: float) -> float:
    """Return the largest G0 of a Normal variance for records within that many sd of the mean.

    C <= k^2 sigma^2 and I = 1 / (2 sigma^4), hence k^2 / (2 sqrt(2 e pi) sigma^2).

    Examples
    --------
    >>> round(normal_variance(5, smallest_variance=0.25), 2)
    12.1
    """
    deviations = _checked("deviations", deviations)
    return limit(deviations * deviations / 2, 1 / _checked("smallest_variance", smallest_variance))


def slope(largest_change: float, sd: float) -> float:
    """Return the largest G0 = C / (sqrt(2 e pi) sigma^2) of a slope in simple linear regression.

    C bounds ``|(z' - zbar) r' - (z - zbar) r|``, r being residuals; the spread of the covariate
    cancels. The line of the paper is illegible; this is our own derivation from its Theorem 2.

    Examples
    --------
    >>> round(slope(10.0, sd=0.25), 1)
    38.7
    """
    precision = 1 / _checked("sd", sd)
    return limit(largest_change, precision * precision)


def numerical(
    log_density: Callable[[np.ndarray, Any], Any], pairs: Iterable[tuple[Any, Any]], grid: Any
) -> float:
    """Return the largest distance of posterior densities of these pairs of neighbours: G(n).

    Definition 4 for a posterior of one's own, to hold beside the limit G0 (their Figure 5). It is
    the largest over the pairs and over the grid alone, and no bound for other records.

    Parameters
    ----------
    log_density : callable
        ``log_density(theta, records)``, of all values of a grid, up to a constant of the records.
    pairs : iterable of pair
        Data sets that differ in one record.
    grid : array_like
        Increasing values over which densities are normalised by the trapezoid rule; they should
        hold all of the posterior.

    Examples
    --------
    Of a share with a flat prior G is n + 1, where no answer is yes and then one is:

    >>> import numpy as np
    >>> from scipy import stats
    >>> def posterior(p, records):
    ...     return stats.beta.logpdf(p, 1 + sum(records), 1 + len(records) - sum(records))
    >>> pair = [0] * 20, [0] * 19 + [1]
    >>> round(numerical(posterior, [pair], np.linspace(0, 1, 20_001)), 3)
    21.0
    """
    points = reals("grid", grid, shapes=[("k",)], error=GuaranteeError)
    if points.size < 3 or not np.all(np.diff(points) > 0):
        raise refusal("grid", "three or more increasing numbers", grid, error=GuaranteeError)

    def density(records: Any) -> np.ndarray:
        values = np.asarray(log_density(points, records), dtype=np.float64)
        if values.shape != points.shape or not np.max(values) < np.inf:
            wanted = "a log density of each value of the grid, below infinity"
            raise refusal("log_density", wanted, values, error=GuaranteeError)
        weights = np.exp(values - values.max())
        return weights / np.trapezoid(weights, points)

    distances = [float(np.abs(density(a) - density(b)).max()) for a, b in pairs]
    if not distances:
        raise GuaranteeError("pairs must be one pair of neighbours or more; got none.")
    return max(distances)


def _checked(name: str, value: float) -> float:
    return positive(name, value, error=GuaranteeError)
