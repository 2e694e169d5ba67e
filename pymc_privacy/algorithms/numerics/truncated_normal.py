"""Carry a Normal variate between two bounds to and from a coordinate u, at any distance from mu.

With F the distribution function of the truncated law,

    u = log 2 F(x) where F(x) < 1/2, and otherwise u = -log 2 (1 - F(x)),

which follows a standard Laplace law whatever the parameters are. Masses underflow beyond 38
standard deviations, and differences of them cancel long before, so all is written by

    g(m, d) = log Q(m) - log Q(m + d),    Q(z) = P(Z > z),    m, d >= 0,

with d the distance from a bound, which a float knows to its last digit however far off mu is. Its
derivative in d is the hazard 1 / R(m + d), where R(z) = Q(z) / phi(z) is Mills' ratio; the hazard
is convex (Sampford, 1953), which bounds d from above by a quadratic, close to where it is.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from scipy.special import erfinv, ndtri_exp

from pymc_privacy.algorithms.numerics.counts import compiled

FARTHEST = np.float64(1e300)
"""What stands for an infinite u: that of a record which rounding has put on a bound."""
_NEAR = 6.0  # up to here Mills' ratio is a product, beyond it a continued fraction
_SMALL = 0.1  # up to here g is an integral of the hazard: a difference of logarithms would cancel
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(4)
_ROOT_2 = math.sqrt(2.0)
_ROOT_2_PI = math.sqrt(2.0 * math.pi)
_LOG_2 = math.log(2.0)
_MOST_STEPS = 50
_LEAST = 1e-280  # smaller masses have lost digits, or are zero
_PIECES, _DEGREE, _LONGEST = 32, 11, 8.0  # of polynomials in sqrt(g), for distances from the mean


def _distances_from_the_mean() -> np.ndarray:
    """Return d / g where g(0, d) = g, as polynomials in r on pieces of equal length in sqrt(g)."""
    width = 0.5 * _LONGEST / _PIECES

    def ratio(r: np.ndarray, piece: int) -> np.ndarray:
        g = (width * (2 * piece + 1 + r)) ** 2
        return np.where(g < 0.5, _ROOT_2 * erfinv(-np.expm1(-g)), -ndtri_exp(-g - _LOG_2)) / g

    chebyshev: Any = np.polynomial.chebyshev
    fits = [chebyshev.chebinterpolate(ratio, _DEGREE, (k,)) for k in range(_PIECES)]
    table = np.zeros((_PIECES, _DEGREE + 1))
    for row, fit in zip(table, fits, strict=True):
        powers = chebyshev.cheb2poly(fit)
        row[: len(powers)] = powers
    return np.ascontiguousarray(table[:, ::-1])


_FROM_THE_MEAN = _distances_from_the_mean()


@compiled
def mills(z):
    """Return Q(z) / phi(z) for z >= 0, by Laplace's continued fraction where z is large."""
    if z < _NEAR:
        return 0.5 * _ROOT_2_PI * math.erfc(z / _ROOT_2) * math.exp(0.5 * z * z)
    fraction = z
    for k in range(int(5.0 + 90.0 / z), 0, -1):
        fraction = z + k / fraction
    return 1.0 / fraction


@compiled
def log_upper(z):
    """Return log Q(z) for z >= 0."""
    return math.log(mills(z) / _ROOT_2_PI) - 0.5 * z * z if z < math.inf else -math.inf


@compiled
def log_complement(g):
    """Return log(1 - exp(-g)) for g >= 0."""
    return math.log(-math.expm1(-g)) if g < _LOG_2 else math.log1p(-math.exp(-g))


@compiled
def fall(m, d):
    """Return g(m, d)."""
    return fall_between(m, d, mills(m), mills(m + d)) if d < math.inf else math.inf


@compiled
def fall_between(m, d, here, there):
    """Return g(m, d), given Mills' ratios at m and m + d."""
    if d > _SMALL * here:
        return 0.5 * d * (d + 2 * m) + math.log(here / there)
    total = 0.0
    for j in range(_NODES.size):
        total += _WEIGHTS[j] / mills(m + 0.5 * d * (1.0 + _NODES[j]))
    return 0.5 * d * total


@compiled
def distance_from_mean(g):
    """Return d with g(0, d) = g."""
    place = math.sqrt(g) * (_PIECES / _LONGEST)
    if not place < _PIECES:
        return distance(0.0, g)
    piece = int(place)
    r, ratio = 2 * (place - piece) - 1, 0.0
    for k in range(_DEGREE + 1):
        ratio = ratio * r + _FROM_THE_MEAN[piece, k]
    return g * ratio


@compiled
def distance(m, g):
    """Return d with g(m, d) = g, for a finite g >= 0, by Halley's steps."""
    here = mills(m)
    hazard = 1.0 / here
    # The slope of the hazard lies between 0 and 1; rounding may not keep it there.
    slope = min(max(hazard * (hazard - m), 0.0), 1.0)
    d = 2 * g / (hazard + math.sqrt(hazard * hazard + 2 * slope * g))
    for _ in range(_MOST_STEPS):
        there = mills(m + d)
        step = (fall_between(m, d, here, there) - g) * there
        step /= max(1.0 - 0.5 * step * (1.0 / there - m - d), 0.5)
        d = max(d - step, 0.0)
        # What is left is of the order of the third power.
        if not abs(step) > 1e-5 * d:
            break
    return d


@compiled
def to_base(x, mu, sigma, lower, upper):
    """Return u, finite for every x from bound to bound."""
    if not (sigma > 0.0 and lower <= x <= upper):
        return math.nan
    a, b = (lower - mu) / sigma, (upper - mu) / sigma
    below, above = (x - lower) / sigma, (upper - x) / sigma
    if a >= 0.0:
        log_below, log_above = log_parts(a, below, above)
    elif b <= 0.0:
        log_above, log_below = log_parts(-b, above, below)
    elif x <= mu:
        log_below, log_above = log_parts_around(a, b, (x - mu) / sigma, below)
    else:
        log_above, log_below = log_parts_around(-b, -a, (mu - x) / sigma, above)
    if log_below < log_above:
        return max(log_below + _LOG_2, -FARTHEST)
    return min(-log_above - _LOG_2, FARTHEST)


@compiled
def log_parts(m, near, far):
    """Return the logs of both parts of an interval that begins m beyond the mean.

    ``near`` and ``far`` are the distances of x from its beginning and its end.
    """
    fallen = fall(m, near)
    whole = log_complement(fallen + fall(m + near, far))
    return (
        log_complement(fallen) - whole,
        log_complement(fall(m + near, far)) - fallen - whole,
    )


@compiled
def log_parts_around(a, b, z, below):
    """Return the same where a < 0 < b and z <= 0: the parts below and above z."""
    whole = 0.5 * (math.erf(b / _ROOT_2) - math.erf(a / _ROOT_2))
    part = log_upper(-z) + log_complement(fall(-z, below))
    rest = 0.5 * (math.erf(b / _ROOT_2) - math.erf(z / _ROOT_2))
    return part - math.log(whole), math.log(rest / whole)


@compiled
def from_base(u, mu, sigma, lower, upper):
    """Return x, strictly between the bounds: coordinates that reach to infinity end there."""
    if not (sigma > 0.0 and lower < upper):
        return math.nan
    a, b = (lower - mu) / sigma, (upper - mu) / sigma
    if a >= 0.0:
        x = lower + sigma * beyond(u, a, (upper - lower) / sigma)
    elif b <= 0.0:
        x = upper - sigma * beyond(-u, -b, (upper - lower) / sigma)
    elif u < 0.0:
        x = mu + sigma * around(u, a, b)
    else:
        x = mu - sigma * around(-u, -b, -a)
    return strictly_between(x, lower, upper)


@compiled
def strictly_between(x, lower, upper):
    """Return x, or the number next to a bound that rounding has put x on."""
    return min(max(x, np.nextafter(lower, math.inf)), np.nextafter(upper, -math.inf))


@compiled
def beyond(u, m, length):
    """Return how far x is from the beginning of an interval that begins m beyond the mean.

    A negative u tells of the part near its beginning.
    """
    whole, part = fall(m, length), 0.5 * math.exp(-abs(u))
    if u < 0.0 or whole < 1.0:
        near = part if u < 0.0 else 1.0 - part
        return distance(m, -math.log1p(near * math.expm1(-whole)))
    rest = -u - _LOG_2 + log_complement(whole)
    return min(distance(m, -log_sum(-whole, rest)), length)


@compiled
def around(u, a, b):
    """Return z where a < 0 < b, for u < 0."""
    left, right = 0.5 * math.erfc(-a / _ROOT_2), 0.5 * math.erfc(b / _ROOT_2)
    whole = 1.0 - left - right
    if whole < 0.5:
        whole = 0.5 * (math.erf(b / _ROOT_2) - math.erf(a / _ROOT_2))
    part = 0.5 * math.exp(u) * whole
    tail = left + part
    if tail < 0.25:
        if tail > _LEAST:
            return -distance_from_mean(-math.log(2 * tail))
        return -distance_from_mean(-log_sum(log_upper(-a), u + math.log(0.5 * whole)) - _LOG_2)
    # The mass between z and zero.
    between = -0.5 * math.erf(a / _ROOT_2) - part
    z = distance_from_mean(-math.log1p(-2 * abs(between)))
    return -z if between > 0.0 else z


@compiled
def log_sum(p, q):
    """Return log(exp(p) + exp(q)); not both may be -inf."""
    larger, smaller = max(p, q), min(p, q)
    return larger + math.log1p(math.exp(smaller - larger))
