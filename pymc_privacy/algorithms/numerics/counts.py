"""Tail probabilities of Poisson, Binomial and negative Binomial counts, accurate in both tails.

In all three laws (Katz, 1965) the ratio of neighbouring probabilities is

    p(k + 1) / p(k) = (first + slope k) / (k + 1),

with slope 0, negative and positive. So one sum serves all of them: a tail divided by its
largest probability, term by term where it is short. Where the spread is large and the law
nearly Normal the sum is an integral with the corrections of Euler and Maclaurin; where it is
large and the law is skewed, Gauss's continued fraction of 2F1(a, 1; c + 1; z) converges fast.
Every result is a function of the count and the parameters alone, to the last bit.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from pymc_privacy.algorithms.machine_code.caching import compiled

# A tail may be integrated where the law is this wide, and no further from its mean than a
# fraction of its width squared: the first correction left out is then below 1e-14.
WIDE = 100.0
CLOSE = 1 / 60
SKEWED = 1000.0  # sizes below which a negative Binomial law is far from Normal
FAINT = 1e-280  # tails below have lost digits, or are zero
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(32)


class CountLaw(NamedTuple):
    """A law of counts, and what its recurrence needs; all fields are floats."""

    size: float
    p: float
    q: float
    first: float
    slope: float
    mean: float
    spread: float


@compiled
def poisson(rate):
    """Return the law of Poisson counts."""
    return CountLaw(math.inf, 0.0, 1.0, rate, 0.0, rate, math.sqrt(rate))


@compiled
def binomial(size, p):
    """Return the law of the number of successes; p must be at most 1/2."""
    q = 1.0 - p
    return CountLaw(size, p, q, size * p / q, -p / q, size * p, math.sqrt(size * p * q))


@compiled
def negative_binomial(size, p):
    """Return the law of the number of failures before ``size`` (real) successes."""
    q = 1.0 - p
    mean = size * q / p
    return CountLaw(size, p, q, size * q, q, mean, math.sqrt(mean / p))


@compiled
def stirling_error(x):
    """Return log x! minus Stirling's x log x - x + log(2 pi x) / 2, for x > 0."""
    if x < 10.0:
        return math.lgamma(x + 1) - (x + 0.5) * math.log(x) + x - 0.5 * math.log(2 * math.pi)
    y = 1 / (x * x)
    later = 1 / 1260 - y * (1 / 1680 - y * (1 / 1188 - y * 691 / 360360))
    return (1 / 12 - y * (1 / 360 - y * later)) / x


@compiled
def deviance(x, mean):
    """Return x log(x / mean) + mean - x without cancellation (Loader, 2000), for x > 0."""
    v = (x - mean) / (x + mean)
    if not abs(v) <= 0.1:
        return x * math.log(x / mean) + mean - x
    square, power, series, j = v * v, v, 0.0, 1
    while True:
        power *= square
        j += 2
        longer = series + power / j
        if longer == series:
            return (x - mean) * v + 2 * x * series
        series = longer


@compiled
def poisson_parts(x, rate):
    """Return e and f with e^e f the Poisson probability, interpolated smoothly between integers."""
    if x <= 0.0:
        return -rate, 1.0
    return -stirling_error(x) - deviance(x, rate), 1 / math.sqrt(2 * math.pi * x)


@compiled
def binomial_parts(x, size, p, q):
    """Return the same of the Binomial probability of x out of a real size, for x in [0, size]."""
    if x <= 0.0:
        return size * math.log1p(-p), 1.0
    rest = size - x
    if rest <= 0.0:
        return size * math.log(p), 1.0
    errors = stirling_error(size) - stirling_error(x) - stirling_error(rest)
    exponent = errors - deviance(x, size * p) - deviance(rest, size * q)
    return exponent, math.sqrt(size / (2 * math.pi * x * rest))


@compiled
def mass_parts(x, law):
    """Return the same of the probability of a count."""
    if x < 0 or law.first == 0.0:
        return (0.0, 1.0) if x == 0 else (-math.inf, 1.0)
    if law.slope == 0.0:
        return poisson_parts(x, law.first)
    if law.slope < 0.0:
        if x > law.size:
            return -math.inf, 1.0
        return binomial_parts(x, law.size, law.p, law.q)
    if x == 0:
        return law.size * math.log(law.p), 1.0
    # The last trial is a success; those before it are Binomial.
    total = law.size + x
    exponent, factor = binomial_parts(law.size, total, law.p, law.q)
    return exponent, factor * law.size / total


@compiled
def mass(x, law):
    """Return the probability of a count."""
    exponent, factor = mass_parts(x, law)
    return math.exp(exponent) * factor


@compiled
def log_mass(x, law):
    """Return the log probability of a count, however improbable."""
    exponent, factor = mass_parts(x, law)
    return exponent + math.log(factor)


@compiled
def gauss_fraction(numerator, z, c):
    """Return 2F1(a, 1; c + 1; z) = sum_j prod_{i<j} (a z + i z) / (c + 1 + i), given a z.

    Gauss's continued fraction, from its head on (Lentz). It converges when the terms of the
    sum fall from the first one on.
    """
    before, after = _not_zero(1.0 - numerator / (c + 1)), 1.0
    value = before
    for m in range(1, 100_000):
        even = m * (numerator - (c + m) * z) / ((c + 2 * m - 1) * (c + 2 * m))
        odd = -(c + m) * (numerator + m * z) / ((c + 2 * m) * (c + 2 * m + 1))
        last = value
        for coefficient in (even, odd):
            after = 1.0 / _not_zero(1.0 + coefficient * after)
            before = _not_zero(1.0 + coefficient / before)
            value *= before * after
        if abs(value - last) <= 2e-16 * abs(value):
            break
    return 1.0 / value


@compiled
def _not_zero(x):
    return x if x != 0.0 else 1e-300


@compiled
def outward_sum(k, law, direction):
    """Return the sum of p(k), p(k + direction), … by their ratios; these must fall."""
    first = mass(k, law)
    return first * outward_ratios(k, law, direction) if first > 0.0 else 0.0


@compiled
def outward_ratios(k, law, direction):
    """Return the same in units of p(k): the last of floats would not fall any further."""
    term = total = 1.0
    while k >= 0:
        if direction > 0:
            term *= max(law.first + law.slope * k, 0.0) / (k + 1)
        else:
            term *= k / (law.first + law.slope * (k - 1))
        k += direction
        longer = total + term
        if longer == total:
            break
        total = longer
    return total


@compiled
def outward_integral(k, law, direction):
    """Return the same sum for a nearly Normal law, from 32 of its terms.

    With c = k - direction / 2 it is the integral from c outward, plus p'(c) / 24 and
    -7 p'''(c) / 5760, where p' and p''' are differences of neighbouring probabilities.
    """
    away = abs(k - law.mean) / law.spread
    length = (math.sqrt(away * away + 100.0) - away) * law.spread
    start = k - 0.5 * direction
    room = start if direction < 0 else law.size - start if law.slope < 0 else math.inf
    half = 0.5 * min(length, room)
    total = 0.0
    for j in range(_NODES.size):
        total += _WEIGHTS[j] * mass(start + direction * half * (1.0 + _NODES[j]), law)
    total *= half
    outer, inner = mass(k, law), mass(k - direction, law)
    third = mass(k + direction, law) - 3 * outer + 3 * inner - mass(k - 2 * direction, law)
    return total + (outer - inner) / 24 - 17 / 5760 * third


@compiled
def is_smooth(k, law):
    """Tell whether p changes so slowly from k to k + 1 that its sum is an integral."""
    return law.spread > WIDE and abs(k - law.mean) < CLOSE * law.spread * law.spread


@compiled
def at_least(k, law):
    """Return P(X >= k) without cancellation, for k above the mean."""
    if law.slope < 0.0 and k > law.size:
        return 0.0
    if law.slope > 0.0 and law.size < SKEWED and law.spread > 10.0:
        return mass(k, law) * gauss_fraction(law.first + law.slope * k, law.slope, k)
    return outward_integral(k, law, 1) if is_smooth(k, law) else outward_sum(k, law, 1)


@compiled
def beta_ratios(k, law):
    """Return P(X <= k) / p(k) of a negative Binomial law.

    The incomplete beta function: its own series is short where the count's is not.
    """
    ahead = law.q * (law.size + k) / law.size
    return ahead * gauss_fraction((law.size + k + 1) * law.p, law.p, law.size)


@compiled
def at_most(k, law):
    """Return P(X <= k) without cancellation, for k below the mean."""
    if k < 0:
        return 0.0
    if law.slope > 0.0 and law.size < SKEWED:
        return mass(k, law) * beta_ratios(k, law)
    return outward_integral(k, law, -1) if is_smooth(k, law) else outward_sum(k, law, -1)


@compiled
def tails(k, law):
    """Return P(X <= k) and P(X > k), the smaller one accurate to `precision` of itself."""
    # A skewed law has its median far below its mean; there both tails are large, and the
    # lower one is the easier to compute.
    skewed = law.slope > 0.0 and law.size < 1.0
    middle = law.mean + law.spread if skewed else law.mean
    if k + 1 < middle:
        lower = min(at_most(k, law), 1.0)
        return lower, 1.0 - lower
    upper = min(at_least(k + 1, law), 1.0)
    return 1.0 - upper, upper


@compiled
def precision(law):
    """Return a bound on the relative error of the smaller tail, with a margin.

    That of a negative Binomial law feels the rounding of q = 1 - p.
    """
    return 1e-11 + 4e-15 / law.p if law.slope > 0.0 else 1e-11


@compiled
def log_at_most(k, law):
    """Return log P(X <= k), however small, for k below the mean."""
    if k < 0:
        return -math.inf
    lower = tails(k, law)[0]
    if lower > FAINT:
        return math.log(lower)
    ratios = beta_ratios(k, law) if law.slope > 0.0 else outward_ratios(k, law, -1)
    return log_mass(k, law) + math.log(ratios)


@compiled
def log_at_least(k, law):
    """Return log P(X >= k), however small, for k above the mean."""
    upper = tails(k - 1, law)[1]
    if upper > FAINT:
        return math.log(upper)
    if law.slope < 0.0 and k > law.size:
        return -math.inf
    if law.slope > 0.0:
        ratios = gauss_fraction(law.first + law.slope * k, law.slope, k)
    else:
        ratios = outward_ratios(k, law, 1)
    return log_mass(k, law) + math.log(ratios)
