"""One formula, three engines: against SciPy, on tensors, inside jitted code; and the simulators."""

import dataclasses
import math
import pickle

import numpy as np
import pytensor.tensor as pt
import pytest
from numba import njit
from pytensor import function
from scipy import stats

import pymc_privacy as pmp
from tests import references
from tests.stochastic import assert_mean, seed_of

KINDS = {
    pmp.Laplace: references.laplace,
    pmp.Gaussian: references.gaussian,
    pmp.DiscreteLaplace: references.discrete_laplace,
    pmp.DiscreteGaussian: references.discrete_gaussian,
}
SCALES = [0.05, 0.4, 0.99, 1.0, 1.01, 3.0, 250.0]
DISCRETE = [pmp.DiscreteLaplace, pmp.DiscreteGaussian]


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("kind", KINDS)
def test_log_density_matches_an_independent_formula(kind, scale):
    offsets = np.arange(-4, 5) * max(1, round(scale))
    value = kind(scale=scale).log_density(offsets + 7, 7)
    np.testing.assert_allclose(value, KINDS[kind](offsets, scale), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("kind", [pmp.Laplace, pmp.Gaussian])
def test_continuous_densities_are_scipys(kind):
    law = {pmp.Laplace: stats.laplace, pmp.Gaussian: stats.norm}[kind]
    release = np.linspace(-5, 9, 31)
    value = kind(scale=1.7).log_density(release, 2.0)
    np.testing.assert_allclose(value, law(2.0, 1.7).logpdf(release), rtol=1e-12)


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("kind", DISCRETE)
def test_integer_probabilities_add_up_to_one(kind, scale):
    k = np.arange(-(math.ceil(45 * scale) + 2), math.ceil(45 * scale) + 3)
    assert np.exp(kind(scale=scale).log_density(k, 0)).sum() == pytest.approx(1, abs=1e-12)


@pytest.mark.parametrize("kind", DISCRETE)
def test_an_integer_law_gives_nothing_to_what_is_not_an_integer(kind):
    value = kind(scale=2.0).log_density(np.array([1.0, 1.5]), 0)
    assert np.isfinite(value[0])
    assert value[1] == -np.inf
    symbolic = kind(scale=2.0).log_density(pt.as_tensor(np.array([1.0, 1.5])), pt.as_tensor(0))
    np.testing.assert_array_equal(symbolic.eval(), value)


@pytest.mark.parametrize("scale", [1.5, [1.5, 0.5, 8.0]])
@pytest.mark.parametrize("kind", KINDS)
def test_three_engines_agree(kind, scale):
    mechanism = kind(scale=scale)
    release, statistic = np.array([3.0, -1.0, 0.0]), np.array([1.0, 4.0, 0.0])
    on_arrays = mechanism.log_density(release, statistic)
    # As inputs: what is constant is computed before a graph is rewritten, and rewrites can err.
    symbols = pt.dvector("release"), pt.dvector("statistic")
    on_tensors = function(symbols, mechanism.log_density(*symbols))(release, statistic)
    jitted = njit(kind.formula)
    parameters = np.broadcast_arrays(*mechanism.parameters, release)[:2]
    in_a_loop = [jitted(*row) for row in zip(release, statistic, *parameters, strict=True)]
    np.testing.assert_allclose(on_tensors, on_arrays, rtol=1e-13)
    np.testing.assert_allclose(in_a_loop, on_arrays, rtol=1e-13)


@pytest.mark.parametrize("scale", [0.3, 1.0, 12.5])
@pytest.mark.parametrize("kind", KINDS)
def test_simulated_noise_has_the_stated_law(kind, scale, request):
    rng = np.random.default_rng(seed_of(request))
    mechanism = kind(scale=scale)
    noise = mechanism.simulate(rng, np.full(200_000, 5, dtype=np.int64)) - 5
    if mechanism.discrete:
        k = np.arange(-math.ceil(45 * scale) - 1, math.ceil(45 * scale) + 2)
        p = np.exp(mechanism.log_density(k, 0))
        variance, middle = float(p @ k**2), float(p[np.abs(k) <= scale].sum())
        assert noise.dtype == np.int64
    else:
        law = {pmp.Laplace: stats.laplace, pmp.Gaussian: stats.norm}[kind](0, scale)
        variance, middle = law.var(), law.cdf(scale) - law.cdf(-scale)
    assert_mean(noise, 0.0, what="mean")
    assert_mean(noise**2, variance, what="variance")
    assert_mean(np.abs(noise) <= scale, middle, what="P(|noise| <= scale)")


@pytest.mark.parametrize("kind", KINDS)
def test_simulate_is_reproducible_and_broadcasts(kind):
    mechanism = kind(scale=[1.0, 50.0])
    draws = [mechanism.simulate(np.random.default_rng(3), np.array([10, 20])) for _ in range(2)]
    np.testing.assert_array_equal(*draws)
    assert draws[0].shape == (2,)
    assert np.shape(kind(scale=2.0).simulate(np.random.default_rng(3), 4)) == ()


@pytest.mark.parametrize("kind", DISCRETE)
def test_an_integer_mechanism_refuses_a_fractional_statistic(kind):
    with pytest.raises(pmp.errors.MechanismError, match=r"statistic must be integers.*got 0\.5"):
        kind(scale=1.0).simulate(np.random.default_rng(0), 0.5)


def test_calibration_by_epsilon():
    for kind in (pmp.Laplace, pmp.DiscreteLaplace):
        mechanism = kind(epsilon=0.25, sensitivity=3.0, neighbours="replace_one")
        assert mechanism.scale == 12.0
        assert mechanism.guarantee == pmp.PureDP(0.25, neighbours="replace_one")


def test_calibration_of_gaussian_noise():
    assert pmp.Gaussian(rho=0.5, sensitivity=3.0).scale == pytest.approx(3.0)
    assert pmp.Gaussian(rho=0.5, sensitivity=3.0).guarantee == pmp.ZeroConcentratedDP(0.5)
    assert pmp.Gaussian(mu=0.5, sensitivity=3.0).scale == pytest.approx(6.0)
    assert pmp.Gaussian(mu=0.5, sensitivity=3.0).guarantee == pmp.GaussianDP(0.5)
    approximate = pmp.Gaussian(epsilon=1.0, delta=1e-5, sensitivity=2.0)
    assert approximate.guarantee == pmp.ApproximateDP(1.0, 1e-5)
    profile = pmp.GaussianDP(2.0 / approximate.scale).delta(1.0)
    assert profile <= 1e-5
    assert profile == pytest.approx(1e-5, rel=1e-6)


def test_calibration_of_discrete_gaussian_noise():
    assert pmp.DiscreteGaussian(rho=0.5, sensitivity=3.0).scale == pytest.approx(3.0)
    by_mu = pmp.DiscreteGaussian(mu=0.5, sensitivity=3.0)
    assert by_mu.scale == pytest.approx(6.0)
    assert by_mu.guarantee == pmp.ZeroConcentratedDP(0.125)
    approximate = pmp.DiscreteGaussian(epsilon=1.0, delta=1e-5, sensitivity=2.0)
    rho = (2.0 / approximate.scale) ** 2 / 2
    assert pmp.ZeroConcentratedDP(rho).to_approximate(1e-5).epsilon <= 1.0 + 1e-9
    assert approximate.guarantee == pmp.ApproximateDP(1.0, 1e-5)


@pytest.mark.parametrize("kind", DISCRETE)
def test_the_privacy_loss_of_integer_noise_is_what_is_promised(kind):
    """The worst case over all integer releases and all shifts up to the sensitivity."""
    k = np.arange(-400, 401)
    mechanism = kind(scale=4.0, sensitivity=2)
    here, there = mechanism.log_density(k, 0), mechanism.log_density(k, 2)
    if kind is pmp.DiscreteLaplace:
        assert np.max(np.abs(here - there)) == pytest.approx(mechanism.guarantee.epsilon)
    else:
        for order in (1.5, 2.0, 8.0, 40.0):
            renyi = np.log(np.exp(order * here + (1 - order) * there).sum()) / (order - 1)
            assert renyi <= order * mechanism.guarantee.rho * (1 + 1e-9)


def test_the_smallest_of_several_scales_decides_the_guarantee():
    assert pmp.Laplace(scale=[2.0, 8.0], sensitivity=4.0).guarantee == pmp.PureDP(2.0)
    assert pmp.Gaussian(scale=[2.0, 8.0], sensitivity=4.0).guarantee == pmp.GaussianDP(2.0)


@pytest.mark.parametrize("kind", KINDS)
def test_a_scale_alone_promises_nothing(kind):
    assert kind(scale=3.0).guarantee is None


@pytest.mark.parametrize("kind", KINDS)
def test_mechanisms_are_values(kind):
    mechanism = kind(scale=[1.0, 2.0], sensitivity=1.0)
    assert mechanism == kind(scale=np.array([1.0, 2.0]), sensitivity=1.0)
    assert hash(mechanism) == hash(pickle.loads(pickle.dumps(mechanism)))
    assert dataclasses.replace(mechanism, neighbours="add_remove").scale == (1.0, 2.0)
    with pytest.raises(dataclasses.FrozenInstanceError):
        mechanism.scale = 3.0
