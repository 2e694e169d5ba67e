"""The count whose cell of the distribution function holds u, and a u inside a count's cell.

With F the distribution function of a count X and w uniform on (0, 1),
U = F(x - 1) + w (F(x) - F(x - 1)) is uniform whatever the parameters are, and x is the only
count with F(x - 1) <= U < F(x). Near 1 a float cannot tell one U from the next, so what is
kept is the tail that U cuts off, with a sign that tells which:

    u = U if U < 1/2, otherwise u = -(1 - U).

This u is uniform on (-1/2, 1/2); it costs no logarithm, and its relative accuracy is that
of a float in both tails. A tail so faint that it is no float is kept as minus its logarithm, with
the same sign: then u lies outside of that interval. Both directions call the same function for
the edges of cells, so that a count which went into u comes out again, whatever w was.
"""

from __future__ import annotations

import math

import numpy as np

from pymc_privacy.algorithms.numerics.counts import (
    FAINT,
    CountLaw,
    binomial,
    compiled,
    log_at_least,
    log_at_most,
    log_mass,
    mass,
    negative_binomial,
    poisson,
    precision,
    tails,
)

MOST = 2.0**53
FEW = 100.0  # mean counts up to which a search from zero is the fastest
NEAR = 16  # steps that are walked rather than jumped
STEPS_FROM_ZERO = 400
MOST_FAINT = 1e300  # stands for infinity


@compiled
def from_cell(x: float, w: float, law: CountLaw) -> float:
    """Return u at the fraction w of the cell of the count x."""
    if not 0.0 <= law.mean < MOST:
        return math.nan
    below, above = tails(x - 1, law), tails(x, law)
    probability = mass(x, law)
    u = below[0] + w * probability
    if u < FAINT and x < law.mean:
        return from_faint_cell(log_at_most(x - 1, law), log_at_most(x, law), w, x, law)
    if u < 0.5:
        return min(u, np.nextafter(above[0], 0.0))
    t = above[1] + (1.0 - w) * probability
    if t < FAINT:
        return -from_faint_cell(log_at_least(x + 1, law), log_at_least(x, law), 1.0 - w, x, law)
    return -max(min(t, below[1]), np.nextafter(above[1], 1.0))


@compiled
def from_faint_cell(inner, outer, w, x, law):
    """Return -log(e^inner + w p(x)) where inner and outer are the logs of the cell's edges."""
    larger = max(inner, math.log(w) + log_mass(x, law))
    smaller = min(inner, math.log(w) + log_mass(x, law))
    u = -larger - math.log1p(math.exp(smaller - larger)) if larger > -math.inf else MOST_FAINT
    return min(max(u, np.nextafter(-outer, math.inf)), -inner, MOST_FAINT)


@compiled
def to_count(u: float, law: CountLaw) -> float:
    """Return the count whose cell holds u: the smallest k with `gap` > 0."""
    # Outside of its parameters' support a law has no quantiles; a prior density of zero
    # says so, and all that is asked of the count is that there be one.
    if law.first == 0.0 or math.isnan(u) or not law.mean >= 0.0:
        return 0.0
    if law.mean >= MOST:
        return MOST
    if abs(u) > 0.5:
        return faint_count_below(u, law) if u > 0.0 else faint_count_above(u, law)
    if law.mean >= FEW:
        return search(guess(u, law), u, law)
    least, margin = mass(0.0, law), precision(law)
    beyond = least - u if u >= 0.0 else (least - 1.0) - u
    if abs(beyond) <= margin:
        return search(0.0, u, law)
    found, k = walk(0.0, beyond, least, margin, STEPS_FROM_ZERO, law)
    return k if found else search(k, u, law)


@compiled
def faint_count_below(u, law):
    """Return the smallest k with log P(X <= k) > -u."""
    low, high = -1.0, np.ceil(law.mean)
    while high - low > 1.0:
        k = np.floor(0.5 * (low + high))
        if -log_at_most(k, law) < u:
            high = k
        else:
            low = k
    return high


@compiled
def faint_count_above(u, law):
    """Return the largest k with log P(X >= k) >= u, for a negative u."""
    low, step = np.floor(law.mean), 1.0
    while low + step < MOST and log_at_least(low + step, law) >= u:
        low, step = low + step, 2.0 * step
    high = low + step
    while high - low > 1.0:
        k = np.floor(0.5 * (low + high))
        if log_at_least(k, law) >= u:
            low = k
        else:
            high = k
    return low


@compiled
def search(k: float, u: float, law: CountLaw) -> float:
    """Find the cell by Newton steps for the logarithm of the tail, kept between two bounds."""
    low, high = -1.0, law.size if law.slope < 0.0 else math.inf
    margin = precision(law)
    while True:
        if not low < k < high:
            k = np.floor(0.5 * (low + high)) if high < math.inf else 2 * low + 2
        beyond, tail = gap(k, u, law)
        low, high = (low, k) if beyond > 0.0 else (k, high)
        if high - low <= 1.0:
            return high
        probability = mass(k, law)
        jump = np.log(abs(u) / tail) * tail / probability
        if abs(jump) <= NEAR:
            scale = margin * max(tail, abs(u))
            found, k = walk(k, beyond, probability, scale, 2 * NEAR, law)
            if found:
                return k
        else:
            k += np.floor(jump) if u >= 0.0 else -np.floor(jump)


@compiled
def guess(u: float, law: CountLaw) -> float:
    """Return a count close to the quantile: of a Normal law, corrected, or of a Gamma one.

    The Normal quantile is Abramowitz and Stegun's (26.2.23), the correction that of Cornish
    and Fisher for the skewness, the Gamma quantile Wilson and Hilferty's.
    """
    s = math.sqrt(-2.0 * math.log(max(abs(u), 1e-300)))
    top = 2.515517 + s * (0.802853 + s * 0.010328)
    z = s - top / (1 + s * (1.432788 + s * (0.189269 + s * 0.001308)))
    z = -z if u >= 0.0 else z
    if law.slope > 0.0 and law.size < 30.0:
        root = 1 - 1 / (9 * law.size) + z / (3 * math.sqrt(law.size))
        return np.floor(law.first / law.p * max(root, 0.0) ** 3)
    # In all three laws the skewness is 2 * spread / mean - 1 / spread.
    skewness = 2 * law.spread / law.mean - 1 / law.spread
    return np.floor(law.mean + law.spread * (z + skewness * (z * z - 1) / 6))


@compiled
def gap(k, u, law):
    """Return how far the upper edge of the cell of k is beyond u, and the tail there."""
    lower, upper = tails(k, law)
    return (lower - u, lower) if u >= 0.0 else (-u - upper, upper)


@compiled
def walk(k, beyond, probability, margin, steps, law):
    """Go from k towards the cell of u by the recurrence of probabilities.

    Returns whether a cell was reached for certain, and that count; otherwise a count whose
    edge is too close to u for a sum that began elsewhere, or where the walk was given up.
    """
    # The smallest k with a gap > 0: below k the gaps shrink, above they grow, by p each.
    if beyond > 0.0:
        for _ in range(steps):
            beyond -= probability
            if abs(beyond) <= margin:
                return False, k - 1
            if beyond < 0.0 or k == 0.0:
                return True, k
            probability *= k / (law.first + law.slope * (k - 1))
            k -= 1
        return False, k
    for _ in range(steps):
        probability *= max(law.first + law.slope * k, 0.0) / (k + 1)
        k += 1
        beyond += probability
        if abs(beyond) <= margin:
            return False, k
        if beyond > 0.0:
            return True, k
    return False, k


@compiled
def poisson_count(u, rate):
    """Return the Poisson count at u."""
    return int(to_count(u, poisson(rate))) if rate >= 0.0 else 0


@compiled
def poisson_cell(x, w, rate):
    """Return u in the cell of a Poisson count."""
    return from_cell(float(x), w, poisson(rate))


@compiled
def binomial_count(u, size, p):
    """Return the Binomial count at u: that of the failures where these are fewer."""
    if not 0.0 <= p <= 1.0:
        return 0
    # The tails change places: U becomes 1 - U.
    if p > 0.5:
        return int(size - to_count(-u, binomial(size, 1 - p)))
    return int(to_count(u, binomial(size, p)))


@compiled
def binomial_cell(x, w, size, p):
    """Return u in the cell of a Binomial count."""
    if p <= 0.5:
        return from_cell(float(x), w, binomial(size, p))
    return -from_cell(float(size - x), 1.0 - w, binomial(size, 1 - p))


@compiled
def negative_binomial_count(u, size, p):
    """Return the negative Binomial count at u."""
    return int(to_count(u, negative_binomial(size, p))) if size > 0.0 and 0.0 < p <= 1.0 else 0


@compiled
def negative_binomial_cell(x, w, size, p):
    """Return u in the cell of a negative Binomial count."""
    return from_cell(float(x), w, negative_binomial(size, p))


@compiled
def geometric_edge(k, p):
    """Return -log P(X > k) of the number of trials up to the first success."""
    return -k * math.log1p(-p) if k > 0.0 else 0.0


@compiled
def geometric_count(u, p):
    """Return the number of trials at u = -log U, which is exponential."""
    if not 0.0 < p < 1.0:
        return 1
    k = max(np.ceil(u / geometric_edge(1.0, p)), 1.0)
    if not k < MOST:
        return int(MOST)
    while geometric_edge(k, p) < u:
        k += 1.0
    while k > 1.0 and geometric_edge(k - 1.0, p) >= u:
        k -= 1.0
    return int(k)


@compiled
def geometric_cell(x, w, p):
    """Return u in the cell of a number of trials."""
    low, high = geometric_edge(x - 1.0, p), geometric_edge(x, p)
    return min(max(low - math.log1p(-w * p), np.nextafter(low, math.inf)), high, MOST_FAINT)


@compiled
def uniform_count(u, lower, upper):
    """Return the integer at u, the fraction of those from ``lower`` to ``upper`` below it."""
    number = upper - lower + 1
    if not number > 0:
        return int(lower)
    k = np.floor(u * number)
    while (k + 1) / number <= u:
        k += 1
    while k / number > u:
        k -= 1
    return int(lower + k)


@compiled
def uniform_cell(x, w, lower, upper):
    """Return u in the cell of one of equally probable integers."""
    number = upper - lower + 1
    return min((x - lower + w) / number, np.nextafter((x - lower + 1) / number, 0.0))
