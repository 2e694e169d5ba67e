"""The sweep on its own: exact law of the records given the parameters, invariance, mutants."""

import math

import numpy as np
import pytest
from numba import njit
from numba.extending import register_jitable
from scipy import stats

import pymc_privacy as pmp
from pymc_privacy.algorithms import record_sweep
from pymc_privacy.algorithms.noise import JointLaw, log_density, noise
from tests import references
from tests.stochastic import Z_LIMIT, assert_mean, seed_of, z_of_mean

SIZE, CHANCE = 9, 0.35

MECHANISMS = {
    "laplace": (pmp.Laplace(scale=1.5), references.laplace, 5.3),
    "gaussian": (pmp.Gaussian(scale=1.2), references.gaussian, 5.3),
    "discrete_laplace": (pmp.DiscreteLaplace(scale=1.5), references.discrete_laplace, 6),
    "discrete_gaussian": (pmp.DiscreteGaussian(scale=1.2), references.discrete_gaussian, 6),
}


@pytest.fixture
def rng(request):
    return np.random.default_rng(seed_of(request))


def noise_of(*pairs):
    """Flatten (mechanism, release) pairs, as the couriers do."""
    return noise(
        [type(mechanism).formula for mechanism, _ in pairs],
        [release for _, release in pairs],
        [mechanism.parameters for mechanism, _ in pairs],
    )


def propose(rng, width=1):
    """Draw Bernoulli records; each contributes itself to every release."""
    return np.repeat((rng.random((1, SIZE)) < CHANCE).astype(float), width, axis=0)


def totals_under(rng, given, *, sweeps=12_000, weight=0.0):
    """Return the statistic after each of many sweeps; weight is log w(1) - log w(0)."""
    width = given.release.size
    state = record_sweep.init(propose(rng, width))
    totals = np.empty(sweeps)
    for k in range(sweeps):
        proposed = propose(rng, width)
        ratio = weight * (proposed[0] - state.contributions[0]) if weight else None
        state, _ = record_sweep.step(rng, state, proposed, noise=given, log_weight_ratio=ratio)
        totals[k] = state.contributions[0].sum()
    return totals[None]


def exact_totals(log_eta, *, weight=0.0):
    """Return P(S = k | release) by enumeration of k, with the records' weights if any."""
    k = np.arange(SIZE + 1)
    odds = CHANCE * np.exp(weight) / (CHANCE * np.exp(weight) + 1 - CHANCE)
    log_p = stats.binom.logpmf(k, SIZE, odds) + log_eta(k)
    p = np.exp(log_p - log_p.max())
    return p / p.sum()


def assert_totals(totals, exact):
    k = np.arange(SIZE + 1)
    assert_mean(totals, float(exact @ k), what="E S")
    below = exact.cumsum()
    for j in np.flatnonzero((below > 0.05) & (below < 0.95)):
        assert_mean(totals <= j, float(below[j]), what=f"P(S <= {j})")


@register_jitable
def ignore_the_release(release, statistic, scale, log_normalizer):
    return 0.0 * release


@register_jitable
def square_the_ratio(release, statistic, scale, log_normalizer):
    return 2 * (-abs(release - statistic) / scale - log_normalizer)


@pytest.mark.parametrize("kind", MECHANISMS)
def test_records_given_parameters_follow_the_enumerated_law(kind, rng):
    mechanism, reference, release = MECHANISMS[kind]
    totals = totals_under(rng, noise_of((mechanism, release)))
    assert_totals(totals, exact_totals(lambda k: reference(release - k, mechanism.scale)))


def test_several_releases_of_different_laws_multiply(rng):
    pairs = ((pmp.Laplace(scale=2.0), 4.4), (pmp.DiscreteGaussian(scale=1.5), 6))
    totals = totals_under(rng, noise_of(*pairs))
    exact = exact_totals(
        lambda k: references.laplace(4.4 - k, 2.0) + references.discrete_gaussian(6 - k, 1.5)
    )
    assert_totals(totals, exact)


def test_weights_of_single_records_enter_the_ratio(rng):
    mechanism, reference, release = MECHANISMS["laplace"]
    totals = totals_under(rng, noise_of((mechanism, release)), weight=0.8)
    exact = exact_totals(lambda k: reference(release - k, mechanism.scale), weight=0.8)
    assert_totals(totals, exact)


def test_a_joint_law_compiled_elsewhere_runs_through_the_same_scan(rng):
    @njit
    def log_density_of_vector(release, statistic):
        return -abs(release[0] - statistic[0]) / 1.5

    given = noise([JointLaw(log_density_of_vector)], [5.3], [(0.0, 0.0)])
    totals = totals_under(rng, given)
    assert_totals(totals, exact_totals(lambda k: references.laplace(5.3 - k, 1.5)))


@pytest.mark.parametrize("law", [ignore_the_release, square_the_ratio])
def test_a_broken_ratio_fails_the_exact_test(law, rng):
    mechanism, reference, release = MECHANISMS["laplace"]
    broken = noise([law], [release], [mechanism.parameters])
    totals = totals_under(rng, broken)
    with pytest.raises(AssertionError, match="z ="):
        assert_totals(totals, exact_totals(lambda k: reference(release - k, mechanism.scale)))


def test_a_dropped_release_fails_the_exact_test(rng):
    totals = totals_under(rng, noise_of((pmp.Laplace(scale=2.0), 1.4)))
    exact = exact_totals(lambda k: references.laplace(1.4 - k, 2.0) + references.laplace(8 - k, 2))
    with pytest.raises(AssertionError, match="z ="):
        assert_totals(totals, exact)


def test_dropped_weights_fail_the_exact_test(rng):
    mechanism, reference, release = MECHANISMS["laplace"]
    totals = totals_under(rng, noise_of((mechanism, release)))
    exact = exact_totals(lambda k: reference(release - k, mechanism.scale), weight=0.8)
    with pytest.raises(AssertionError, match="z ="):
        assert_totals(totals, exact)


def geweke(rng, mechanism, *, law=None, rounds=12_000, prior=(2.0, 3.0)):
    """Alternate release | records, the sweep, and parameter | records; return the parameters.

    Every conditional but the sweep is exact, so the parameters follow their prior if the
    sweep leaves the law of the records given parameters and release invariant.
    """
    law = law or type(mechanism).formula
    chance = rng.beta(*prior)
    state = record_sweep.init((rng.random((1, SIZE)) < chance).astype(float))
    chances = np.empty(rounds)
    for k in range(rounds):
        release = mechanism.simulate(rng, state.contributions.sum().astype(np.int64))
        given = noise([law], [release], [mechanism.parameters])
        proposed = (rng.random((1, SIZE)) < chance).astype(float)
        state, _ = record_sweep.step(rng, state, proposed, noise=given)
        ones = state.contributions.sum()
        chance = rng.beta(prior[0] + ones, prior[1] + SIZE - ones)
        chances[k] = chance
    return chances[None]


def largest_z_from_prior(chances, prior=(2.0, 3.0)):
    law = stats.beta(*prior)
    scores = [z_of_mean(chances, law.mean()), z_of_mean(chances**2, law.moment(2))]
    scores += [z_of_mean(chances <= q, law.cdf(q)) for q in (0.2, 0.4, 0.6)]
    return max(abs(z) for z in scores)


@pytest.mark.parametrize("kind", MECHANISMS)
def test_geweke_the_parameters_follow_their_prior(kind, rng):
    mechanism, _, _ = MECHANISMS[kind]
    z = largest_z_from_prior(geweke(rng, mechanism))
    assert z < Z_LIMIT, f"z = {z:.1f}"


@register_jitable
def laplace_of_one_more(release, statistic, scale, log_normalizer):
    return -abs(release - statistic - 1) / scale - log_normalizer


@register_jitable
def gaussian_of_one_more(release, statistic, scale, log_normalizer):
    return -0.5 * ((release - statistic - 1) / scale) ** 2 - log_normalizer


@pytest.mark.parametrize(
    ("kind", "law"),
    [
        ("laplace", laplace_of_one_more),
        ("gaussian", gaussian_of_one_more),
        ("discrete_laplace", laplace_of_one_more),
        ("discrete_gaussian", gaussian_of_one_more),
    ],
)
def test_geweke_notices_a_broken_law(kind, law, rng):
    z = largest_z_from_prior(geweke(rng, MECHANISMS[kind][0], law=law, rounds=6_000))
    assert z > Z_LIMIT, f"z = {z:.1f}"


def test_without_a_central_release_records_are_accepted_on_their_weights_alone(rng):
    size = 200_000
    nothing = noise([], [], [])
    state = record_sweep.init(np.empty((0, size)))
    ratio = np.where(np.arange(size) < size // 2, np.log(0.3), 1.0)
    _, info = record_sweep.step(
        rng, state, np.empty((0, size)), noise=nothing, log_weight_ratio=ratio
    )
    assert_mean(info.accepted[: size // 2], 0.3)
    assert info.accepted[size // 2 :].all()
    assert info.accept_min == pytest.approx(0.3)


def test_contributions_must_match_the_releases(rng):
    given = noise_of((pmp.Laplace(scale=1.0), 3.0), (pmp.Laplace(scale=1.0), 3.0))
    with pytest.raises(ValueError, match=r"2 coordinates.*1"):
        record_sweep.step(rng, record_sweep.init(propose(rng)), propose(rng), noise=given)


def test_info_reports_what_happened(rng):
    given = noise_of((pmp.Laplace(scale=0.5), 3.0))
    state = record_sweep.init(propose(rng))
    before = state.contributions.copy()
    proposed = propose(rng)
    state, info = record_sweep.step(rng, state, proposed, noise=given)
    expected = np.where(info.accepted, proposed, before)
    np.testing.assert_array_equal(state.contributions, expected)
    assert info.accept == info.accepted.mean()
    assert 0 <= info.accept_min <= 1


def test_acceptance_is_at_least_exp_minus_epsilon(rng):
    """Ju et al. (2022), Proposition 3.1: one record moves the sum by at most 1."""
    epsilon = 0.7
    given = noise_of((pmp.Laplace(epsilon=epsilon, sensitivity=1.0), 30.0))
    state = record_sweep.init(propose(rng))
    smallest = 1.0
    for _ in range(500):
        state, info = record_sweep.step(rng, state, propose(rng), noise=given)
        smallest = min(smallest, info.accept_min)
    assert smallest == pytest.approx(np.exp(-epsilon)), "the bound is reached far from the release"


def test_a_start_outside_the_support_is_left(rng):
    @njit
    def within_one(release, statistic):
        return 0.0 if abs(release[0] - statistic[0]) <= 1 else -np.inf

    given = noise([JointLaw(within_one)], [0.0], [(0.0, 0.0)])
    state = record_sweep.init(np.ones((1, SIZE)))
    for _ in range(200):
        state, info = record_sweep.step(rng, state, propose(rng), noise=given)
        assert np.isfinite(info.accept_min)
    assert state.contributions.sum() <= 1


def test_the_joint_log_density_is_the_sum_over_coordinates():
    pairs = ((pmp.Laplace(scale=[1.0, 2.0]), [3.0, 4.0]), (pmp.Gaussian(scale=2.0), 1.0))
    given = noise_of(*pairs)
    total = np.array([2.5, 5.0, 0.0])
    function = njit(log_density(given.laws))
    value = function(given.offsets, given.release, total, given.parameters)
    expected = pairs[0][0].log_density([3.0, 4.0], total[:2]).sum() + pairs[1][0].log_density(
        1.0, 0.0
    )
    assert value == pytest.approx(float(expected))


@register_jitable
def no_number_above_four(release, statistic, scale, log_normalizer):
    return math.nan if statistic > 4 else -abs(release - statistic) / scale


def test_records_without_a_log_density_are_left(rng):
    given = noise([no_number_above_four], [2.0], [pmp.Laplace(scale=1.0).parameters])
    state = record_sweep.init(np.ones((1, SIZE)) * (np.arange(SIZE) < 5))
    for _ in range(20):
        state, _ = record_sweep.step(rng, state, propose(rng), noise=given)
    assert state.contributions.sum() <= 4
