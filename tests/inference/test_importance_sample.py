"""Independent draws and evidence: exact references, mutants, executors, bad input."""

import math
import warnings
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from functools import cache

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
from scipy import integrate, special, stats

import pymc_privacy as pmp
from pymc_privacy import errors as pmp_errors
from pymc_privacy.algorithms import importance
from pymc_privacy.errors import CertificateError, RecordError, ReleaseError, SamplingError
from pymc_privacy.inference import importance_sample as module
from pymc_privacy.inference import weighing
from pymc_privacy.targets import importance as target
from tests.references import discrete_gaussian, discrete_laplace, gaussian, laplace
from tests.stochastic import Z_LIMIT, assert_mean, seed_of


def weighed(model, seed, draws=2000, **kwargs):
    return pmp.importance_sample(draws, model=model, random_seed=seed, progressbar=False, **kwargs)


def assert_evidence(result, exact):
    """Fail when the evidence is further from the exact one than its own error allows."""
    error = result.attrs["log_evidence_error"]
    z = (result.attrs["log_evidence"] - exact) / error
    assert 0 < error < 0.1
    assert abs(z) < Z_LIMIT, f"{result.attrs['log_evidence']:.4f}, not {exact:.4f}, z = {z:.1f}"


def assert_posterior_mean(result, name, exact, sd):
    """Fail when a mean is further from the exact one than its effective draws allow."""
    error = sd / math.sqrt(result.attrs["effective_draws"])
    z = (float(result.posterior[name].mean()) - exact) / error
    assert abs(z) < Z_LIMIT, f"{name}: {float(result.posterior[name].mean()):.4f}, z = {z:.1f}"


def coins(mechanism, observed, size=60, prior=(2, 5)):
    with pm.Model() as model:
        p = pm.Beta("p", *prior)
        x = pm.Bernoulli("x", p, shape=size)
        pmp.Privatized("s", x, mechanism, observed=observed)
    return model


def exact_coins(noises, size=60, prior=(2, 5)):
    """Log evidence, posterior mean and sd, by summing over the total."""
    k = np.arange(size + 1)
    logs = stats.betabinom.logpmf(k, size, *prior) + sum(noise(k) for noise in noises)
    weights = np.exp(logs - special.logsumexp(logs))
    a, b = prior[0] + k, prior[1] + size - k
    mean = weights @ (a / (a + b))
    square = weights @ (a * (a + 1) / ((a + b) * (a + b + 1)))
    return special.logsumexp(logs), mean, math.sqrt(square - mean**2)


def a_total_of_normals(scale=6.0, observed=71.3):
    with pm.Model() as model:
        mu = pm.Normal("mu", 1.0, 2.0)
        x = pm.Normal("x", mu, 1.5, shape=40)
        pmp.Privatized("s", x, pmp.Gaussian(scale=scale), observed=observed)
    return model


def waits(scale=30.0, observed=31.0, size=150):
    """Records whose base variates keep some of what the shape says of them."""
    with pm.Model() as model:
        shape = pm.Gamma("shape", 2.0, 8.0)
        x = pm.Gamma("x", shape, 1.0, shape=size)
        pmp.Privatized("s", x, pmp.Laplace(scale=scale), observed=observed)
    return model


@cache
def density_of_waits(scale=30.0, observed=31.0, size=150, nodes=2000):
    """Shapes, and the density of each with the release, whose total is summed over quantiles."""
    shapes = np.linspace(1e-4, 4.0, 801)
    levels = (np.arange(nodes) + 0.5) / nodes
    totals = stats.gamma.ppf(levels, size * shapes[:, None])
    density = np.exp(laplace(observed - totals, scale)).mean(axis=1)
    return shapes, density * stats.gamma.pdf(shapes, 2.0, scale=1 / 8)


def given_shape(function):
    """The integral of a function of the shape and the density of the release."""
    shapes, density = density_of_waits()
    return integrate.simpson(function(shapes) * density, x=shapes)


def squares(observed=400.0):
    """Two modes, mu and -mu."""
    with pm.Model() as model:
        mu = pm.Normal("mu", 0, 5)
        x = pm.Normal("x", mu, 1, shape=50)
        pmp.Privatized("s", pt.clip(x**2, 0, 40), pmp.Laplace(scale=20.0), observed=observed)
    return model


@cache
def waits_weighed(seed=4):
    return weighed(waits(), seed)


@pytest.mark.parametrize(
    ("mechanism", "noise", "observed"),
    [
        (pmp.Laplace(scale=2.0), lambda d: laplace(d, 2.0), 17.3),
        (pmp.Gaussian(scale=0.5), lambda d: gaussian(d, 0.5), 17.3),
        (pmp.DiscreteLaplace(scale=3.0), lambda d: discrete_laplace(d, 3.0), 17),
        (pmp.DiscreteGaussian(scale=3.0), lambda d: discrete_gaussian(d, 3.0), 17),
    ],
    ids=["Laplace", "Gaussian", "DiscreteLaplace", "DiscreteGaussian"],
)
def test_evidence_and_posterior_of_coins_are_exact(mechanism, noise, observed, request):
    result = weighed(coins(mechanism, observed), seed_of(request))
    evidence, mean, sd = exact_coins([lambda k: noise(observed - k)])
    assert_evidence(result, evidence)
    assert_posterior_mean(result, "p", mean, sd)


def test_several_releases_of_the_same_records(request):
    with coins(pmp.Laplace(scale=4.0), 17.3) as model:
        pmp.Privatized("again", model["x"], pmp.Gaussian(scale=3.0), observed=21.0)
    result = weighed(model, seed_of(request))
    noises = [lambda k: laplace(17.3 - k, 4.0), lambda k: gaussian(21.0 - k, 3.0)]
    evidence, mean, sd = exact_coins(noises)
    assert_evidence(result, evidence)
    assert_posterior_mean(result, "p", mean, sd)


@pytest.mark.parametrize("scale", [0.5, 60.0])
def test_evidence_of_normals_is_that_in_closed_form(scale, request):
    result = weighed(a_total_of_normals(scale), seed_of(request))
    variance = 40**2 * 2.0**2 + 40 * 1.5**2 + scale**2
    assert_evidence(result, stats.norm.logpdf(71.3, 40 * 1.0, math.sqrt(variance)))
    gain = 2.0**2 * 40 / variance
    sd = math.sqrt(2.0**2 - gain * 40 * 2.0**2)
    assert_posterior_mean(result, "mu", 1.0 + gain * (71.3 - 40), sd)


def test_base_variates_that_keep_some_of_the_parameters_are_weighed():
    result = waits_weighed()
    whole = given_shape(np.ones_like)
    mean = given_shape(lambda a: a) / whole
    sd = math.sqrt(given_shape(lambda a: a * a) / whole - mean**2)
    assert_evidence(result, math.log(whole))
    assert_posterior_mean(result, "shape", mean, sd)


def test_a_component_without_its_share_gives_a_wrong_evidence(monkeypatch):
    """Mutant: fresh databases are weighed as if all draws were of them."""
    real = weighing.Weighing.draw

    def draw(self, rng, proposal, number):
        batch = real(self, rng, proposal, number)
        targets = batch.log_weights + special.logsumexp(batch.logs, axis=1)
        batch.logs[:, 0] -= math.log(proposal.shares[0])
        return batch._replace(log_weights=targets - special.logsumexp(batch.logs, axis=1))

    monkeypatch.setattr(weighing.Weighing, "draw", draw)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", pmp_errors.WeightWarning)
        result = weighed(waits(), 4)
    with pytest.raises(AssertionError, match="z ="):
        assert_evidence(result, math.log(given_shape(np.ones_like)))


def test_a_program_without_their_weight_is_refused(monkeypatch):
    monkeypatch.setattr(target, "weight_of_base", lambda *args, **kwargs: pt.constant(0.0))
    with pytest.raises(CertificateError, match="log density of"):
        weighed(waits(observed=30.0), 4)


def test_both_modes_are_found(request):
    result = weighed(squares(), seed_of(request))
    mu = result.posterior["mu"].values.ravel()
    assert_mean(mu > 0, 0.5, what="P(mu > 0)")
    grid = np.linspace(-8, 8, 801)
    nodes, weights = np.polynomial.hermite_e.hermegauss(150)
    clipped = np.clip((grid[:, None] + nodes) ** 2, 0, 40)
    weights = weights / weights.sum()
    mean = clipped @ weights
    sd = np.sqrt((clipped**2) @ weights - mean**2) * math.sqrt(50)
    # The total is nearly Normal; Laplace noise on top of it by quadrature.
    totals = 50 * mean[:, None] + sd[:, None] * nodes
    density = np.exp(laplace(400.0 - totals, 20.0)) @ weights * stats.norm.pdf(grid, 0, 5)
    evidence = math.log(integrate.simpson(density, x=grid))
    assert abs(result.attrs["log_evidence"] - evidence) < 0.1


def test_a_small_mode_of_the_prior_is_found(request):
    """What is released is the same for mu and -mu, so that the posterior has the prior's share."""
    with pm.Model() as model:
        mu = pm.NormalMixture("mu", w=[0.9, 0.1], mu=[-4.0, 4.0], sigma=[0.3, 0.3])
        x = pm.Normal("x", mu, 1, shape=20)
        pmp.Privatized("s", pt.clip(x**2, 0, 60), pmp.Laplace(scale=30.0), observed=340.0)
    result = weighed(model, seed_of(request))
    above = float((result.posterior["mu"] > 0).mean())
    error = 0.3 / math.sqrt(result.attrs["effective_draws"])
    assert abs(above - 0.1) < Z_LIMIT * error, f"P(mu > 0): {above:.3f}"


def test_a_part_that_only_a_second_look_finds_is_told(monkeypatch):
    """Let the search see one side only: then the other one is missed, and said to be."""
    real = importance.descents

    def one_sided(rng, landscape, starts, calls=[]):  # noqa: B006
        calls.append(1)
        points = real(rng, landscape, starts)
        return points[points[:, 0] > 0] if len(calls) == 1 else points

    monkeypatch.setattr(importance, "descents", one_sided)
    monkeypatch.setattr(importance, "WIDE", 1e-12)
    with pytest.warns(pmp_errors.WeightWarning, match="second mode"):
        weighed(squares(observed=430.0), 8)


def test_the_result_is_that_of_a_sampled_model():
    result = waits_weighed()
    assert dict(result.posterior.sizes) == {"chain": 1, "draw": 2000}
    assert set(result.posterior.data_vars) == {"shape"}
    assert float(result.observed_data["s"]) == 31.0
    assert result["privacy"]["mechanism"].item().startswith("Laplace")
    assert set(result.children) >= {"posterior", "sample_stats", "observed_data", "privacy"}
    assert np.isfinite(result.sample_stats["importance_log_weight"]).all()
    for name in ("log_evidence", "log_evidence_error", "pareto_k", "effective_draws"):
        assert result.attrs[name] == float(result["importance"][name])
        assert result.posterior.attrs[name] == result.attrs[name]
    assert result.attrs["pareto_k"] < 0.7
    assert 1000 < result.attrs["effective_draws"] <= 2000


def test_draws_are_independent_and_in_random_order():
    draws = waits_weighed().posterior["shape"].values.ravel()
    centred = draws - draws.mean()
    assert_mean(centred[1:] * centred[:-1], 0.0, what="covariance of neighbours")


def test_a_seed_gives_the_same_draws_on_every_executor():
    model = waits()
    ours = waits_weighed().posterior["shape"].values
    with ThreadPoolExecutor(3) as threads:
        there = weighed(model, 4, executor=threads).posterior["shape"].values
    np.testing.assert_array_equal(ours, there)
    assert not np.array_equal(ours, weighed(model, 5).posterior["shape"].values)


@pytest.mark.slow
def test_processes_compile_their_own(tmp_path):
    ours = waits_weighed()
    with ProcessPoolExecutor(1) as processes:
        there = weighed(waits(), 4, executor=processes)
    np.testing.assert_allclose(ours.posterior["shape"], there.posterior["shape"], rtol=1e-9)


def test_records_behind_the_draws_are_kept_on_demand(request):
    with pm.Model() as model:
        mu = pm.Normal("mu", 0, 3)
        x = pm.Normal("x", mu, 1.0, shape=12)
        pm.Deterministic("total", x.sum())
        pmp.Privatized("s", x, pmp.Gaussian(scale=0.5), observed=8.0)
    seed = seed_of(request)
    plain, kept = (weighed(model, seed, 500, keep_records=k) for k in (False, True))
    assert set(plain.posterior.data_vars) == {"mu"}
    assert set(kept.posterior.data_vars) == {"mu", "x", "total"}
    np.testing.assert_array_equal(plain.posterior["mu"], kept.posterior["mu"])
    np.testing.assert_allclose(kept.posterior["x"].sum("x_dim_0"), kept.posterior["total"])
    # Given the release the total is known to half a unit or so.
    assert_mean(kept.posterior["total"].values.ravel(), 8.0 - 0.25 / (12 + 144 * 9) * 8.0)


def test_dims_and_other_data_are_carried_along(request):
    with pm.Model(coords={"group": ["a", "b"]}) as model:
        mu = pm.Normal("mu", 0, 2, dims="group")
        pm.Deterministic("difference", mu[1] - mu[0])
        pm.Normal("seen", mu[1], 1.0, observed=1.5)
        x = pm.Normal("x", mu[0], 1.0, shape=30)
        pmp.Privatized("s", x, pmp.Gaussian(scale=5.0), observed=12.0)
    result = weighed(model, seed_of(request))
    assert list(result.posterior.coords["group"].values) == ["a", "b"]
    variance = 30**2 * 4 + 30 + 25
    evidence = stats.norm.logpdf(12.0, 0, math.sqrt(variance))
    assert_evidence(result, evidence + stats.norm.logpdf(1.5, 0, math.sqrt(5)))
    mean = 1.5 * 4 / 5 - 4 * 30 * 12 / variance
    sd = math.sqrt(4 / 5 + 4 - 16 * 900 / variance)
    assert_posterior_mean(result, "difference", mean, sd)


@pytest.mark.parametrize("order", [False, True])
def test_a_density_without_a_constant_has_no_evidence(order, request):
    with pm.Model() as model:
        ordered = {"transform": pm.distributions.transforms.ordered, "initval": [-1, 1]}
        mu = pm.Normal("mu", 0, 2, shape=2, **(ordered if order else {}))
        if not order:
            pm.Potential("apart", pt.log(abs(mu[1] - mu[0])))
        x = pm.Normal("x", mu[0], 1.0, shape=10)
        pmp.Privatized("s", x, pmp.Gaussian(scale=5.0), observed=3.0)
    with pytest.warns(pmp_errors.WeightWarning, match="not defined"):
        result = weighed(model, seed_of(request), 500)
    assert math.isnan(result.attrs["log_evidence"])


@pytest.mark.filterwarnings("ignore::pymc_privacy.errors.WeightWarning")  # so few draws
def test_stopped_early_it_returns_what_it_has(monkeypatch):
    model, real, calls = waits(), module.chunk_of, []

    def stopped(*args):
        calls.append(1)
        if len(calls) > stop:
            raise KeyboardInterrupt
        return real(*args)

    monkeypatch.setattr(module, "chunk_of", stopped)
    stop = 3
    result = weighed(model, 1)
    assert result.attrs["proposals"] == 3 * module.CHUNK
    assert result.attrs["effective_draws"] <= result.attrs["effective_proposals"]
    stop, calls = 0, []
    with pytest.raises(SamplingError, match="stopped"):
        weighed(model, 1)


def unobserved():
    with pm.Model() as model:
        x = pm.Normal("x", pm.Normal("mu", 0, 1), 1, shape=5)
        pmp.Privatized("s", x, pmp.Laplace(scale=1.0))
    return model


def without_a_release():
    with pm.Model() as model:
        pm.Normal("mu", 0, 1)
    return model


def local():
    with pm.Model() as model:
        x = pm.Bernoulli("x", pm.Beta("p", 1, 1), shape=5)
        pmp.Privatized("y", x, pmp.RandomizedResponse(epsilon=1.0), local=True, observed=[1] * 5)
    return model


def of_unknown_number():
    with pm.Model() as model:
        n = pm.DiscreteUniform("n", 1, 20)
        x = pmp.Records("x", pm.Normal.dist(pm.Normal("mu", 0, 1), 1), size=n)
        pmp.Privatized("s", x, pmp.Laplace(scale=1.0), observed=3.0)
    return model


def with_an_outcome_of_each():
    with pm.Model() as model:
        x = pm.Normal("x", pm.Normal("mu", 0, 1), 1, shape=3)
        pm.Normal("y", x, 1, observed=[0.0, 1.0, 2.0])
        pmp.Privatized("s", x, pmp.Laplace(scale=1.0), observed=3.0)
    return model


def not_carried():
    with pm.Model() as model:
        x = pm.VonMises("x", 0.0, pm.HalfNormal("kappa", 2), shape=5)
        pmp.Privatized("s", x, pmp.Laplace(scale=1.0), observed=1.0)
    return model


def with_prior(prior):
    with pm.Model() as model:
        x = pm.Normal("x", prior(), 1, shape=5)
        pmp.Privatized("s", x, pmp.Laplace(scale=1.0), observed=1.0)
    return model


def not_additive():
    with pm.Model() as model:
        x = pm.Bernoulli("x", pm.Beta("p", 1, 1), shape=8)
        mechanism = pmp.CustomMechanism(
            log_density_function=lambda release, total: -abs(release - total) - math.log(2)
        )
        pmp.Privatized("s", x, mechanism, observed=3.0)
    return model


@pytest.mark.parametrize(
    ("write", "error", "match"),
    [
        (without_a_release, ReleaseError, "without any"),
        (unobserved, ReleaseError, "observed="),
        (of_unknown_number, RecordError, "known number"),
        (local, RecordError, "single ones"),
        (with_an_outcome_of_each, RecordError, "single ones"),
        (not_carried, RecordError, "not known for 'x'"),
        (not_additive, ReleaseError, "added"),
        (lambda: with_prior(lambda: pm.Flat("mu")), RecordError, "proper"),
        (lambda: with_prior(lambda: pm.Poisson("k", 2)), RecordError, "integers"),
        (lambda: with_prior(lambda: 0.5), RecordError, "between 1 and 60"),
        (
            lambda: with_prior(lambda: pm.Normal("mu", 0, 1, shape=61).sum()),
            RecordError,
            "between 1 and 60",
        ),
    ],
)
def test_what_it_does_not_apply_to_is_refused_in_a_sentence(write, error, match):
    with pytest.raises(error, match=match):
        weighed(write(), 1)


@pytest.mark.parametrize(
    "wrong", [{"draws": 0}, {"draws": 2.5}, {"max_proposals": 10}, {"executor": 3}]
)
def test_nonsense_is_refused(wrong):
    with pytest.raises(pmp_errors.ArgumentError):
        pmp.importance_sample(**{"model": waits(), "draws": 100} | wrong)
