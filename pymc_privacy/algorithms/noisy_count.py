"""Sum a latent count out of its noisy release, by a recurrence over the counts.

For a count whose probabilities obey p(k) = (a + b / k) p(k - 1), that is Poisson, binomial and
negative binomial counts (Katz, 1965), and for additive noise eta,

    F = sum_{c = low}^{high} [p(c) / p(pivot)] eta(release - c)

is summed outwards from the pivot, each term from its neighbour. Where b >= 0 and eta is
log-concave, ratios of neighbouring terms do not increase away from the pivot, so that once
a ratio r is below 1 what follows a term t is at most t r / (1 - r); the sum ends when that is
below a negligible share of it. Otherwise every term is added.

The noise's own ratio needs an exponential, but where log eta is quadratic on each side of the
release (Laplace and Gaussian noise), it changes by one factor from each count to the next.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

from pymc_privacy.algorithms.caching import compiled

_LARGE = 1e200
# Rounding grows with each factor; this often the ratio is computed afresh.
_REFRESH = 32


@cache
def compile_count_sum(
    formula: Callable[..., Any], *, quadratic: bool, negligible: float = 1e-16
) -> Callable[..., Any]:
    """Compile the sum for one scalar formula of the noise.

    Parameters
    ----------
    formula
        ``formula(release, statistic, scale, log_normalizer)``, jitable.
    quadratic
        Whether the formula is concave, and quadratic or linear in the statistic on each side of
        the release; this is not checked.
    negligible
        The share of the sum that may be left out on each side.

    Returns
    -------
    callable
        ``function(release, pivot, low, high, a, b, scale, log_normalizer)`` of eight vectors of
        one length, with low <= pivot <= high and no count between release and pivot but
        the pivot. Returns log F and its derivatives by a and by b.
    """

    @compiled
    def side(release, pivot, last, a, b, scale, log_normalizer):
        """Sum the terms beyond the pivot, in units of the pivot's own.

        Returns the log of the units of the other three: the sum and its derivatives.
        """
        direction = 1 if last > pivot else -1
        stops = quadratic and b >= 0.0
        term, total, by_a, by_b = 1.0, 0.0, 0.0, 0.0
        slope_a, slope_b, units = 0.0, 0.0, 0.0
        inverse, noise_ratio, change = 1.0 / b, 1.0, 1.0
        for step in range(abs(last - pivot)):
            here = pivot + direction * step
            there = here + direction
            # The ratio p(k) / p(k - 1) is crossed upwards into k, or downwards from k.
            k = there if direction == 1 else here
            rise = a * k + b
            if rise <= 0.0:
                break
            if a != 0.0:
                inverse = 1.0 / rise
            # The first step upwards may cross the release, where the formula has its kink.
            if step < 3 or step % _REFRESH == 0 or not quadratic:
                before = noise_ratio
                noise_ratio = math.exp(
                    formula(release, there, scale, log_normalizer)
                    - formula(release, here, scale, log_normalizer)
                )
                if step == 2:
                    change = noise_ratio / before
            else:
                noise_ratio *= change
            ratio = noise_ratio * (rise / k if direction == 1 else k * inverse)
            term *= ratio
            slope_a += direction * k * inverse
            slope_b += direction * inverse
            total += term
            by_a += term * slope_a
            by_b += term * slope_b
            if total > _LARGE:
                units += math.log(_LARGE)
                term, total = term / _LARGE, total / _LARGE
                by_a, by_b = by_a / _LARGE, by_b / _LARGE
            if term == 0.0:
                break
            if stops and ratio < 1.0 and term * ratio < negligible * (1.0 - ratio) * total:
                break
        return units, total, by_a, by_b

    @compiled
    def count_sum(release, pivot, low, high, a, b, scale, log_normalizer):
        size = release.shape[0]
        value, by_a, by_b = np.empty(size), np.empty(size), np.empty(size)
        for i in range(size):
            y, start, s, z = release[i], pivot[i], scale[i], log_normalizer[i]
            log_start = formula(y, start, s, z)
            if math.isnan(a[i] + b[i]) or log_start == -math.inf:
                value[i] = log_start if log_start == -math.inf else math.nan
                by_a[i], by_b[i] = math.nan, math.nan
                continue
            up, up_total, up_a, up_b = side(y, start, high[i], a[i], b[i], s, z)
            down, down_total, down_a, down_b = side(y, start, low[i], a[i], b[i], s, z)
            units = max(up, down)
            up, down = math.exp(up - units), math.exp(down - units)
            total = math.exp(-units) + up_total * up + down_total * down
            value[i] = log_start + units + math.log(total)
            by_a[i] = (up_a * up + down_a * down) / total
            by_b[i] = (up_b * up + down_b * down) / total
        return value, by_a, by_b

    return count_sum
