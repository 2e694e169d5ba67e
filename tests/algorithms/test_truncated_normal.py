"""Truncated Normal variates and their coordinate, at any distance from the mean."""

import numpy as np
import pytest
from scipy import stats

from pymc_privacy.algorithms.numerics import truncated_normal
from pymc_privacy.algorithms.numerics.truncated_normal import FARTHEST, from_base, to_base
from tests.stochastic import FALSE_ALARM, seed_of

BOUNDS = [(0.0, 10.0), (-1.0, 1.0), (2.0, np.inf), (-np.inf, 3.0), (-np.inf, np.inf), (5.0, 5.001)]


def drawn(rng):
    """Return parameters, bounds, and a record between them, at any distance from the mean."""
    mu, sigma = rng.normal() * 10 ** rng.uniform(-1, 4), 10 ** rng.uniform(-4, 4)
    lower, upper = BOUNDS[rng.integers(len(BOUNDS))]
    nearest = min(max(mu, lower), upper)
    low = nearest - 20 * sigma if np.isinf(lower) else lower
    high = nearest + 20 * sigma if np.isinf(upper) else upper
    share = rng.choice([rng.uniform(), 10 ** rng.uniform(-9, 0), 1 - 10 ** rng.uniform(-9, 0)])
    return low + (high - low) * share, (mu, sigma, lower, upper)


def test_records_come_back_from_hundreds_of_standard_deviations(request):
    rng, far = np.random.default_rng(seed_of(request)), 0
    for _ in range(20_000):
        x, (mu, sigma, lower, upper) = drawn(rng)
        u = to_base(x, mu, sigma, lower, upper)
        assert np.isfinite(u)
        back = from_base(u, mu, sigma, lower, upper)
        assert lower < back < upper
        scale = abs(x) + min(upper - lower, abs(x - mu) + sigma)
        assert abs(back - x) <= 1e-10 * scale, (x, back, u, mu, sigma, lower, upper)
        far += abs(x - mu) > 100 * sigma
    assert far > 2000


def exact_base(mpmath, x, mu, sigma, lower, upper):
    """Return u by masses of 500 digits."""
    with mpmath.workdps(500):
        x, mu, sigma, lower, upper = map(mpmath.mpf, (x, mu, sigma, lower, upper))

        def below(point):
            return mpmath.erfc((mu - point) / sigma / mpmath.sqrt(2)) / 2

        whole = below(upper) - below(lower)
        left, right = (below(x) - below(lower)) / whole, (below(upper) - below(x)) / whole
        return float(mpmath.log(2 * left) if left < right else -mpmath.log(2 * right))


def test_the_coordinate_is_the_log_of_the_smaller_tail(request):
    mpmath = pytest.importorskip("mpmath")
    rng = np.random.default_rng(seed_of(request))
    for _ in range(200):
        x, (mu, sigma, lower, upper) = drawn(rng)
        # Masses above 1 - 1e-500 cannot be told from 1, whatever the digits.
        if max(lower - mu, mu - upper, abs(x - mu)) < 40 * sigma and lower < x < upper:
            exact = exact_base(mpmath, x, mu, sigma, lower, upper)
            assert to_base(x, mu, sigma, lower, upper) == pytest.approx(exact, rel=1e-9, abs=1e-9)


@pytest.mark.parametrize("mu", [-1e6, -40.0, 5.0, 60.0, 1e6])
@pytest.mark.parametrize("sigma", [1e-6, 1.0, 1e6])
def test_records_on_a_bound_stay_there(mu, sigma):
    for bound in (0.0, 10.0):
        u = to_base(bound, mu, sigma, 0.0, 10.0)
        assert abs(u) <= FARTHEST
        assert from_base(u, mu, sigma, 0.0, 10.0) == pytest.approx(bound, abs=1e-14)


@pytest.mark.parametrize(
    ("mu", "sigma", "lower", "upper"),
    [
        (5.0, 2.0, 0.0, 10.0),
        (-300.0, 1.0, 0.0, 10.0),
        (310.0, 1.0, 0.0, 10.0),
        (0.0, 1e4, 0.0, 1.0),
        (0.0, 1.0, 8.0, np.inf),
        (1.0, 2.0, -np.inf, 3.0),
    ],
)
def test_laplace_variates_become_records(mu, sigma, lower, upper, request):
    rng = np.random.default_rng(seed_of(request))
    x = np.array([from_base(u, mu, sigma, lower, upper) for u in rng.laplace(size=20_000)])
    exact = stats.truncnorm((lower - mu) / sigma, (upper - mu) / sigma, mu, sigma)
    # Far out SciPy's cdf is a ratio of what is no number, its log is not.
    tail = exact.logsf(x) if mu < lower else exact.logcdf(x)
    uniform = np.exp(tail) if mu < lower or mu > upper else exact.cdf(x)
    assert stats.kstest(uniform, "uniform").pvalue > FALSE_ALARM


def test_what_is_no_law_has_no_records():
    assert np.isnan(from_base(0.3, 0.0, -1.0, 0.0, 1.0))
    assert np.isnan(from_base(0.3, np.nan, 1.0, 0.0, 1.0))
    assert np.isnan(to_base(2.0, 0.0, 1.0, 0.0, 1.0))


def test_distances_from_the_mean_are_those_of_the_search():
    for g in (1e-12, 1e-3, 0.5, 7.0, 63.0, 65.0):
        fast, slow = truncated_normal.distance_from_mean(g), truncated_normal.distance(0.0, g)
        assert fast == pytest.approx(slow, rel=1e-13)
