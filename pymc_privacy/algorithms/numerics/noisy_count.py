"""Sum a latent count out of its noisy release, by a recurrence over the counts.

For a count whose probabilities obey p(k) = (a + b / k) p(k - 1), that is Poisson, binomial and
negative binomial counts (Katz, 1965), and for additive noise eta,

    F = sum_{c = low}^{high} [p(c) / p(pivot)] eta(release - c)

is summed outwards from the pivot, each term from its neighbour. It ends where what follows is
proven to be a negligible share of it.

*b >= 0.* Law and noise are log-concave, so that ratios of neighbouring terms do not increase. The
pivot is the largest term, found by bisection wherever the release is. Once a ratio r is below 1,
what follows a term t is at most t r / (1 - r).

*b < 0* (negative binomial counts more spread than geometric ones). The law is log-convex, and
terms can be large both at the release, which is the pivot, and at 0. Ratios upwards are at most
a times that of the noise, which does not increase. Downwards, the noise decreases and all
probabilities together are at most 1, so that counts below c add up to at most eta(release - c).

The noise's own ratio needs an exponential, but where log eta is quadratic on each side of the
release (Laplace and Gaussian noise), it changes by one factor from each count to the next.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

from pymc_privacy.algorithms.machine_code.caching import compiled

# Rounding grows with each factor; this often the ratio is computed afresh.
_REFRESH = 32


@cache
def compile_pivot(formula: Callable[..., Any]) -> Callable[..., Any]:
    """Compile the search for the count to sum from.

    Parameters
    ----------
    formula
        As for `compile_count_sum`; it must be log-concave, which is not checked.

    Returns
    -------
    callable
        ``function(release, low, high, a, b, scale, log_normalizer)`` of seven vectors of one
        length, the largest term's count where b >= 0, else the count nearest to the release.
    """

    @compiled
    def rises(release, k, a, b, scale, log_normalizer):
        """Tell whether the term of k is at least that of k - 1."""
        rise = a * k + b
        if not rise > 0.0:
            return False
        noise = formula(release, k, scale, log_normalizer)
        noise -= formula(release, k - 1, scale, log_normalizer)
        return math.log(rise / k) + noise >= 0.0

    @compiled
    def pivots(release, low, high, a, b, scale, log_normalizer):
        found = np.empty(release.shape[0], dtype=np.int64)
        for i in range(release.shape[0]):
            y, first, last = release[i], low[i], high[i]
            if b[i] < 0.0:
                found[i] = int(min(max(math.floor(y), first), last))
                continue
            # Terms rise up to the largest one, and nowhere beyond it.
            while first < last:
                middle = first + (last - first + 1) // 2
                if rises(y, middle, a[i], b[i], scale[i], log_normalizer[i]):
                    first = middle
                else:
                    last = middle - 1
            found[i] = first
        return found

    return pivots


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
        the release; this is not checked. Without it every term up to the ends is added.
    negligible
        The share of the sum that may be left out on each side.

    Returns
    -------
    callable
        ``function(release, pivot, log_pivot, low, high, a, b, scale, log_normalizer)`` of nine
        vectors of one length, with low <= pivot <= high as `compile_pivot` finds it and log_pivot
        the log probability of the pivot. Returns log F and its derivatives by a and by b.
    """
    log_negligible = math.log(negligible)

    @compiled
    def outwards(release, pivot, last, a, b, scale, log_normalizer):
        """Sum the terms from the pivot to one end, in units of the pivot's own."""
        direction = 1 if last > pivot else -1
        term, total, by_a, by_b, slope_a, slope_b = 1.0, 0.0, 0.0, 0.0, 0.0, 0.0
        noise_ratio, change, since = 1.0, 1.0, 0
        for step in range(abs(last - pivot)):
            here = pivot + direction * step
            there = here + direction
            # The ratio p(k) / p(k - 1) is crossed upwards into k, or downwards from k.
            k = there if direction == 1 else here
            rise = a * k + b
            # The formula has its kink at the release: what was learnt of it ends there.
            if (release - here) * (release - there) <= 0.0:
                since = 0
            if since < 3 or since % _REFRESH == 0 or not quadratic:
                before = noise_ratio
                noise_ratio = math.exp(
                    formula(release, there, scale, log_normalizer)
                    - formula(release, here, scale, log_normalizer)
                )
                if since == 2:
                    change = noise_ratio / before
            else:
                noise_ratio *= change
            since += 1
            if rise <= 0.0:
                # Without a rate nothing follows, but a rate would change that.
                by_a += term * noise_ratio * (rise == 0.0)
                by_b += term * noise_ratio / k * (rise == 0.0)
                break
            ratio = noise_ratio * (rise / k if direction == 1 else k / rise)
            term *= ratio
            slope_a += direction * k / rise
            slope_b += direction / rise
            total += term
            by_a += term * slope_a
            by_b += term * slope_b
            if term == 0.0:
                break
            bound = ratio if b >= 0.0 else a * noise_ratio
            holds = quadratic and bound < 1.0 and (b >= 0.0 or there > release)
            if holds and term * bound < negligible * (1.0 - bound) * (1.0 + total):
                break
        return total, by_a, by_b

    @compiled
    def down_to_many(release, pivot, log_pivot, last, a, b, scale, log_normalizer):
        """Sum the terms below the pivot where these may rise again; returns the log of the unit."""
        start = formula(release, pivot, scale, log_normalizer)
        log_term, unit, slope_a, slope_b = 0.0, 0.0, 0.0, 0.0
        total, by_a, by_b = 0.0, 0.0, 0.0
        noise = start
        for k in range(pivot, last, -1):
            rise = a * k + b
            below = formula(release, k - 1, scale, log_normalizer)
            log_term += math.log(k / rise) + below - noise
            noise = below
            slope_a -= k / rise
            slope_b -= 1.0 / rise
            if log_term > unit:
                factor = math.exp(unit - log_term)
                total, by_a, by_b, unit = total * factor, by_a * factor, by_b * factor, log_term
            term = math.exp(log_term - unit)
            total += term
            by_a += term * slope_a
            by_b += term * slope_b
            if quadratic and noise - start - log_pivot < log_negligible + max(unit, 0.0):
                break
        return unit, total, by_a, by_b

    @compiled
    def count_sum(release, pivot, log_pivot, low, high, a, b, scale, log_normalizer):
        size = release.shape[0]
        value, by_a, by_b = np.empty(size), np.empty(size), np.empty(size)
        for i in range(size):
            y, start, s, z = release[i], pivot[i], scale[i], log_normalizer[i]
            log_start = formula(y, start, s, z)
            if not math.isfinite(a[i] + b[i]) or log_start == -math.inf:
                value[i] = math.nan if math.isnan(a[i] + b[i]) else -math.inf
                by_a[i], by_b[i] = math.nan, math.nan
                continue
            up, up_a, up_b = outwards(y, start, high[i], a[i], b[i], s, z)
            unit, down, down_a, down_b = 0.0, 0.0, 0.0, 0.0
            if b[i] >= 0.0:
                down, down_a, down_b = outwards(y, start, low[i], a[i], b[i], s, z)
            else:
                unit, down, down_a, down_b = down_to_many(
                    y, start, log_pivot[i], low[i], a[i], b[i], s, z
                )
            one = math.exp(-unit)
            total = one * (1.0 + up) + down
            value[i] = log_start + unit + math.log(total)
            by_a[i] = (one * up_a + down_a) / total
            by_b[i] = (one * up_b + down_b) / total
        return value, by_a, by_b

    return count_sum
