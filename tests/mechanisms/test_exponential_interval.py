"""The exponential mechanism over an interval: exact integrals, and a bound where u is smooth."""

import itertools
import math

import numpy as np
import pytest
from scipy import integrate, special, stats

import pymc_privacy as pmp
from pymc_privacy.errors import MechanismError
from tests.stochastic import FALSE_ALARM, seed_of

EDGES = np.array([-1.0, -0.2, 0.5, 0.6, 2.0])
TOTALS = {"constant": np.array([3.0, -40.0, 5.5, 4.0]), "linear": np.array([1.0, 9, 9, -30, 2])}
LAWS = {
    kind: pmp.ExponentialInterval(edges=EDGES, epsilon=0.9, sensitivity=1.5, between=kind)
    for kind in TOTALS
}


def utility(kind, s):
    """Write u(s) anew."""
    if kind == "linear":
        return np.interp(s, EDGES, TOTALS[kind])
    return TOTALS[kind][np.clip(np.searchsorted(EDGES, s, side="right") - 1, 0, 3)]


def normaliser(kind, scale):
    def density(s):
        return math.exp(float(utility(kind, s)) / scale)

    return sum(integrate.quad(density, a, b, epsabs=1e-13)[0] for a, b in itertools.pairwise(EDGES))


@pytest.mark.parametrize("kind", LAWS)
def test_the_density_over_an_interval_is_exact(kind):
    law = LAWS[kind]
    assert law.scale == pytest.approx(2 * 1.5 / 0.9)
    s = np.array([-1.0, -0.7, -0.1, 0.499, 0.55, 0.61, 1.99, 2.0])
    exact = utility(kind, s) / law.scale - math.log(normaliser(kind, law.scale))
    np.testing.assert_allclose(law.log_density(s, TOTALS[kind]), exact, rtol=1e-9)
    assert np.all(np.isneginf(law.log_density([-1.001, 2.1], TOTALS[kind])))
    rows = np.array([TOTALS[kind], TOTALS[kind][::-1]])
    np.testing.assert_allclose(law.log_density([s[1], s[1]], rows)[0], exact[1], rtol=1e-9)


@pytest.mark.parametrize("kind", LAWS)
def test_numbers_are_drawn_from_their_density(kind, request):
    law = LAWS[kind]
    rng = np.random.default_rng(seed_of(request))
    drawn = law.simulate(rng, np.broadcast_to(TOTALS[kind], (40_000, TOTALS[kind].size)))
    grid = np.linspace(-1, 2, 60_001)
    middle = (grid[1:] + grid[:-1]) / 2
    mass = np.exp(utility(kind, middle) / law.scale) / normaliser(kind, law.scale) * 3 / 60_000
    cdf = np.concatenate([[0], np.cumsum(mass)])
    assert stats.kstest(drawn, lambda x: np.interp(x, grid, cdf)).pvalue > FALSE_ALARM


def test_steep_lines_neither_overflow_nor_vanish():
    law = pmp.ExponentialInterval(edges=[0.0, 1.0, 2.0], scale=1.0, between="linear")
    total = np.array([0.0, 1e6, 0.0])
    assert law.log_density(1.0, total) == pytest.approx(math.log(1e6 / 2), rel=1e-9)
    drawn = law.simulate(np.random.default_rng(0), np.broadcast_to(total, (100, 3)))
    assert np.all(np.abs(drawn - 1) < 1e-4)


# The utility -(x - s)² has second derivative -2, and slope at most 2 on [0, 1].
RECORDS = np.random.default_rng(3).uniform(size=40)


@pytest.mark.parametrize("kind", ["constant", "linear"])
@pytest.mark.parametrize("cells", [8, 64])
def test_the_distance_from_a_smooth_utility_is_within_its_bound(kind, cells):
    law = pmp.ExponentialInterval(
        edges=np.linspace(0, 1, cells + 1), epsilon=1.0, sensitivity=1.0, between=kind
    )
    total = law.contributions(RECORDS, lambda x, s: -((x - s) ** 2)).sum(axis=0)
    s = np.linspace(0, 1, 1001)
    sd = math.sqrt(law.scale / 2 / RECORDS.size)
    smooth = stats.truncnorm.logpdf(
        s, -RECORDS.mean() / sd, (1 - RECORDS.mean()) / sd, RECORDS.mean(), sd
    )
    error = np.abs(law.log_density(s, total) - smooth).max()
    given = {"curvature": 2.0} if kind == "linear" else {"slope": 2.0}
    bound = law.log_density_error(RECORDS.size, **given)
    assert error <= bound
    # The bound is of the right order: its argument is about a cell, and no cell is spared.
    assert error > bound / 8


def test_the_privacy_loss_over_an_interval_is_at_most_epsilon():
    law = LAWS["linear"]
    s = np.linspace(-1, 2, 301)
    worst, widest = 0.0, 0.0
    for signs in np.ndindex(*[2] * 5):
        moved = TOTALS["linear"] + 1.5 * (2 * np.array(signs) - 1)
        loss = law.log_density(s, moved) - law.log_density(s, TOTALS["linear"])
        worst, widest = max(worst, np.abs(loss).max()), max(widest, np.ptp(loss))
    assert 0.5 * 0.9 < worst <= 0.9 * (1 + 1e-12)
    assert widest <= 0.9 * (1 + 1e-12)
    assert law.guarantee == pmp.PureDP(0.9)
    assert law.concentrated_guarantee == pmp.ZeroConcentratedDP(0.9**2 / 8)


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 3.0, 7.9, 9.0])
def test_a_loss_of_bounded_range_is_concentrated(epsilon):
    """Two-point losses with the range epsilon: their Renyi divergences are known, for any odds."""
    promise = pmp.ZeroConcentratedDP.from_bounded_range(epsilon)
    worst = 0.0
    for odds in np.linspace(-epsilon, 0, 41)[1:-1]:
        # Losses odds and odds + epsilon; their probabilities q make E exp(loss) = 1.
        losses = np.array([odds, odds + epsilon])
        high = -math.expm1(odds) / (math.exp(odds + epsilon) - math.exp(odds))
        q = np.array([1 - high, high])
        for alpha in (1.001, 1.2, 2.0, 5.0, 40.0):
            divergence = special.logsumexp(alpha * losses, b=q) / (alpha - 1)
            worst = max(worst, divergence / alpha)
    assert worst <= promise.rho * (1 + 1e-9)
    if epsilon <= 1:
        assert worst > 0.9 * promise.rho


BAD = [
    ({"edges": [0.0], "scale": 1.0}, "edges must be two or more finite numbers"),
    ({"edges": [0.0, 0.0], "scale": 1.0}, "edges must increase"),
    ({"edges": [0.0, 1.0]}, "needs scale=, or epsilon="),
    ({"edges": [0.0, 1.0], "epsilon": 1.0}, "needs sensitivity="),
    ({"edges": [0.0, 1.0], "scale": [1.0, 2.0]}, "scale must be one number"),
    ({"edges": [0.0, 1.0], "scale": 1.0, "between": "spline"}, "between must be"),
]


@pytest.mark.parametrize(("given", "must_hold"), BAD)
def test_what_is_no_law_over_an_interval_is_refused(given, must_hold):
    with pytest.raises(MechanismError, match=rf"(?s){must_hold}.*got"):
        pmp.ExponentialInterval(**given)


def test_a_statistic_of_another_width_is_refused():
    law = LAWS["constant"]
    with pytest.raises(MechanismError, match=r"4 cells.*\(n, 4\).*got.*\(5,\)"):
        law.log_density(0.0, np.zeros(5))
    with pytest.raises(MechanismError, match=r"slope must be.*got None"):
        law.log_density_error(10, curvature=1.0)
