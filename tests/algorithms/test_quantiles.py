"""Counts and their cells: tails against SciPy, and no count that comes back as another."""

import numpy as np
import pytest
from numba import njit
from scipy import special, stats

from pymc_privacy.algorithms.numerics import counts, quantiles
from tests.stochastic import FALSE_ALARM, seed_of

EDGES = np.array([0.0, 1e-12, 1e-6, 0.3, 0.5, 0.9, 1 - 1e-6, 1 - 1e-12, 1 - 2.0**-53])


def poisson_tails(k, rate):
    return special.gammaincc(k + 1, rate), special.gammainc(k + 1, rate)


def binomial_tails(k, size, p):
    below = np.minimum(k, size - 1)
    upper = np.where(k < size, special.betainc(below + 1, size - below, p), 0.0)
    lower = np.where(k < size, special.betaincc(below + 1, size - below, p), 1.0)
    return lower, upper


def negative_binomial_tails(k, size, p):
    return special.betainc(size, k + 1, p), special.betaincc(size, k + 1, p)


def with_mean(size, mean):
    return size, size / (size + mean)


POISSON = [(rate,) for rate in (1e-3, 0.3, 5.0, 99.0, 101.0, 900.0, 9900.0, 10100.0, 1e5)]
BINOMIAL = [(1.0, 0.3), (10.0, 0.5), (10.0, 0.01), (900.0, 0.3), (5e4, 0.5), (1e7, 0.01)]
NEGATIVE_BINOMIAL = [
    with_mean(size, mean)
    for size, mean in [
        (3.0, 1e-3),
        (0.5, 0.5),
        (5.0, 90.0),
        (0.3, 50.0),
        (50.0, 110.0),
        (0.1, 1e5),
        (100.0, 1e5),
        (1001.0, 1e4),
        (1e6, 1e5),
    ]
]
LAWS = [
    *((counts.poisson, poisson_tails, given) for given in POISSON),
    *((counts.binomial, binomial_tails, given) for given in BINOMIAL),
    *((counts.negative_binomial, negative_binomial_tails, given) for given in NEGATIVE_BINOMIAL),
]
every_law = pytest.mark.parametrize(
    ("make", "exact", "given"), LAWS, ids=lambda v: getattr(v, "__name__", None) or str(v)
)


def around(law, most):
    """Return counts within 12 standard deviations of the mean: all of them, or enough."""
    lowest = max(0.0, np.floor(law.mean - 12 * law.spread))
    highest = np.ceil(law.mean + 12 * law.spread)
    highest = min(highest, law.size) if law.slope < 0 else highest
    return np.unique(np.floor(np.linspace(lowest, highest, most)))


@njit
def tails_of(x, law):
    found = np.empty((x.size, 2))
    for i in range(x.size):
        found[i] = counts.tails(x[i], law)
    return found[:, 0], found[:, 1]


@njit
def there_and_back(x, places, law):
    found = np.empty((x.size, places.size))
    for i in range(x.size):
        for j in range(places.size):
            u = quantiles.from_cell(x[i], places[j], law)
            found[i, j] = quantiles.to_count(u, law)
    return found


@every_law
def test_both_tails_are_accurate(make, exact, given):
    law = make(*given)
    x = around(law, 200)
    for found, expected in zip(tails_of(x, law), exact(x, *given), strict=True):
        smaller = (expected < 0.6) & (expected > 1e-300)
        bound = counts.precision(law)
        np.testing.assert_allclose(found[smaller], expected[smaller], rtol=bound)


@every_law
def test_a_count_comes_back_from_every_place_of_its_cell(make, exact, given):
    law = make(*given)
    x = around(law, 600)
    back = there_and_back(x, EDGES, law)
    np.testing.assert_array_equal(back, np.repeat(x[:, None], EDGES.size, axis=1))


@pytest.mark.parametrize("p", [0.0, 1e-9, 0.5, 0.7, 1 - 1e-9, 1.0])
def test_binomial_counts_of_any_probability_come_back(p):
    size = 30.0
    law = stats.binom(30, p)
    for x in np.flatnonzero(law.pmf(np.arange(31)) > 1e-200):
        for w in EDGES:
            assert quantiles.binomial_count(quantiles.binomial_cell(x, w, size, p), size, p) == x


def test_equally_probable_integers_come_back():
    for lower, upper in [(0, 0), (-3, 4), (7, 100_006)]:
        for x in {lower, lower + 1, (lower + upper) // 2, upper} & set(range(lower, upper + 1)):
            for w in EDGES:
                u = quantiles.uniform_cell(x, w, lower, upper)
                assert quantiles.uniform_count(u, lower, upper) == x


@pytest.mark.parametrize("rate", [0.0, -1.0, np.nan, np.inf, 1e300])
def test_no_search_runs_forever(rate):
    assert quantiles.uniform_count(0.5, 3.0, -1.0) == 3
    for u in (-0.3, 0.0, 0.2, np.nan):
        quantiles.poisson_cell(3, u, rate)
        quantiles.negative_binomial_cell(3, u, rate, 0.3)
        quantiles.binomial_cell(3, u, 10.0, rate)
        assert quantiles.poisson_count(u, rate) >= 0
        assert quantiles.negative_binomial_count(u, rate, 0.3) >= 0
        assert quantiles.binomial_count(u, 10.0, rate) >= 0


@pytest.mark.parametrize("u", [1e-320, -1e-320, 1e-200, -1e-200, 0.0])
def test_the_furthest_tails_are_found(u):
    for rate in (0.01, 30.0, 2000.0, 1e9):
        assert quantiles.poisson_count(u, rate) >= 0
    assert quantiles.negative_binomial_count(u, 0.02, 1e-6) >= 0


def test_a_huge_law_is_searched_in_a_moment(request):
    """Where sums have millions of terms they are not added up."""
    rng = np.random.default_rng(seed_of(request))
    for rate in (1e8, 1e12):
        u = rng.uniform(-0.5, 0.5, size=2000)
        x = np.array([quantiles.poisson_count(value, rate) for value in u])
        z = (x + 0.5 - rate) / np.sqrt(rate)
        assert stats.kstest(z, "norm").pvalue > FALSE_ALARM


FAMILIES = {
    "poisson": (quantiles.poisson_cell, quantiles.poisson_count),
    "binomial": (quantiles.binomial_cell, quantiles.binomial_count),
    "negative binomial": (quantiles.negative_binomial_cell, quantiles.negative_binomial_count),
    "geometric": (quantiles.geometric_cell, quantiles.geometric_count),
}


def extreme_counts(name, rng):
    """Return a count and parameters that may make it as improbable as e^-1e6."""
    wide = [10.0 ** rng.uniform(-4, 5) for _ in range(4)]
    chances = 1 / (1 + np.exp(12 * rng.normal(size=2)))
    match name:
        case "poisson":
            return rng.poisson(wide[0]), (wide[1] * 1e-9 if rng.random() < 0.3 else wide[1],)
        case "binomial":
            size = 1 + int(wide[0])
            return rng.binomial(size, chances[0]), (float(size), min(chances[1], 1 - 1e-12))
        case "negative binomial":
            return rng.poisson(rng.gamma(wide[0], wide[1] / wide[0])), (
                wide[2],
                wide[2] / (wide[2] + wide[3]),
            )
    return rng.geometric(max(chances[0], 1e-6)), (min(max(chances[1], 1e-6), 1 - 1e-12),)


@pytest.mark.parametrize("name", FAMILIES)
def test_counts_come_back_however_improbable_they_are(name, request):
    cell, count = FAMILIES[name]
    rng, far = np.random.default_rng(seed_of(request)), 0
    for _ in range(3000):
        x, parameters = extreme_counts(name, rng)
        u = cell(float(x), rng.random(), *parameters)
        assert np.isfinite(u)
        assert count(u, *parameters) == x, (x, parameters, u)
        far += abs(u) > 600
    assert far > 100, "some tails are no floats"


def test_a_faint_tail_has_the_law_of_a_tail():
    """Of a count 2 where P(X <= 2) underflows: u is -log of a uniform on its cell."""
    rate, rng = 3000.0, np.random.default_rng(1)
    u = np.array([quantiles.poisson_cell(2.0, w, rate) for w in rng.random(4000)])
    logs = np.array([stats.poisson.logpmf(range(k + 1), rate).max() for k in (1, 2)])
    edges = [np.logaddexp.reduce(stats.poisson.logpmf(range(k + 1), rate)) for k in (1, 2)]
    assert logs[1] < -2900
    assert np.all((-u > edges[0]) & (-u <= edges[1] + 1e-9))
    share = (np.exp(-u - edges[1]) - np.exp(edges[0] - edges[1])) / -np.expm1(edges[0] - edges[1])
    assert stats.kstest(share, "uniform").pvalue > FALSE_ALARM


def test_sums_of_the_smallest_floats_end():
    """The least float times 0.7 is itself."""
    law = counts.negative_binomial(0.4165, 0.2935)
    lower, upper = counts.tails(2048.0, law)
    assert lower == 1.0
    assert 0 < upper < 1e-300
