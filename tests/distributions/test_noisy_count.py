"""Noisy counts: laws and noise by enumeration, NUTS, predictive draws, the window's bound."""

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
from arviz import from_dict
from pytensor.compile.mode import Mode
from scipy import special, stats

import pymc_privacy as pmp
from pymc_privacy.distributions import count_sums, noisy_count
from pymc_privacy.distributions.count_recurrence import log_density_by_recurrence
from pymc_privacy.distributions.count_sums import log_density_by_window
from pymc_privacy.errors import MechanismError, RecordError, ReleaseError
from tests import references
from tests.short_runs import SHORT
from tests.stochastic import assert_law, assert_mean, seed_of

COUNTS = np.arange(600)
PLAIN = Mode(linker="py", optimizer="fast_compile")
QUICK = {"mode": PLAIN}
NOISE = pmp.DiscreteLaplace(scale=2.0)
RELEASE = np.array([17, 22, -1, 4])


def exact(law, release, mechanism):
    """Log of sum_c p(c) eta(y | c) in each cell, the law given as probabilities of 0, 1, …"""
    with np.errstate(divide="ignore", invalid="ignore"):
        terms = np.log(law) + mechanism.log_density(np.asarray(release)[:, None], COUNTS)
    return special.logsumexp(terms, axis=1)


def table(probabilities):
    law = np.zeros(COUNTS.size)
    law[: len(probabilities)] = probabilities
    return law


LAWS = {
    "Poisson": (pm.Poisson.dist, lambda t: stats.poisson.pmf(COUNTS, 10 * t), 10.0),
    "NegativeBinomial": (
        lambda m: pm.NegativeBinomial.dist(mu=m, alpha=0.7),
        lambda t: stats.nbinom.pmf(COUNTS, 0.7, 0.7 / (0.7 + 10 * t)),
        10.0,
    ),
    "Binomial": (
        lambda p: pm.Binomial.dist(np.array([20, 30, 3, 5]), p),
        None,
        0.3,
    ),
    "BetaBinomial": (
        lambda a: pm.BetaBinomial.dist(alpha=a, beta=2.0, n=25),
        lambda t: stats.betabinom.pmf(COUNTS, 25, t, 2.0),
        1.0,
    ),
    "DiscreteUniform": (
        lambda t: pm.DiscreteUniform.dist(0, pt.cast(pt.floor(t), "int64")),
        lambda t: stats.randint.pmf(COUNTS, 0, int(30 * t) + 1),
        30.0,
    ),
    "Categorical": (
        lambda t: pm.Categorical.dist(pm.math.softmax(t * np.arange(12.0))),
        lambda t: table(special.softmax(0.2 * t * np.arange(12))),
        0.2,
    ),
    "ZeroInflatedPoisson": (
        lambda m: pm.ZeroInflatedPoisson.dist(0.7, m),
        lambda t: 0.7 * stats.poisson.pmf(COUNTS, 10 * t) + 0.3 * (COUNTS == 0),
        10.0,
    ),
    "Geometric": (pm.Geometric.dist, lambda t: stats.geom.pmf(COUNTS, 0.1 * t), 0.1),
    "Bernoulli": (pm.Bernoulli.dist, lambda t: table([1 - 0.4 * t, 0.4 * t]), 0.4),
    "Truncated": (
        lambda m: pm.Truncated.dist(pm.Poisson.dist(m), lower=3),
        lambda t: (
            np.where(COUNTS < 3, 0.0, stats.poisson.pmf(COUNTS, 10 * t))
            / stats.poisson.sf(2, 10 * t)
        ),
        10.0,
    ),
}


@pytest.mark.parametrize("name", LAWS)
def test_any_law_of_the_count_is_summed_exactly(name):
    make, law, factor = LAWS[name]
    with pm.Model() as model:
        t = pm.Uniform("t", 0.2, 2.0, default_transform=None)
        pmp.NoisyCount("y", make(factor * t), NOISE, observed=RELEASE)
    density = model.compile_logp(vars=model.observed_RVs, sum=False, **QUICK)
    [value] = density({"t": np.array(1.3)})
    if name == "Binomial":
        rows = [stats.binom.pmf(COUNTS, n, 0.39) for n in (20, 30, 3, 5)]
        expected = [exact(r, [y], NOISE)[0] for r, y in zip(rows, RELEASE, strict=True)]
    else:
        expected = exact(law(1.3), RELEASE, NOISE)
    np.testing.assert_allclose(value, expected, rtol=1e-10)


MECHANISMS = {
    "Laplace": (pmp.Laplace(scale=(1.0, 2.0, 8.0, 0.5)), [17.2, 22.9, -1.5, 4.4]),
    "Gaussian": (pmp.Gaussian(scale=(1.0, 2.0, 8.0, 0.5)), [17.2, 22.9, -1.5, 4.4]),
    "DiscreteGaussian": (pmp.DiscreteGaussian(scale=3.0), RELEASE),
    "Tulap": (pmp.Tulap(epsilon=0.5, sensitivity=1.0), [17.2, 22.9, -1.5, 4.4]),
    "TruncatedLaplace": (
        pmp.TruncatedLaplace(epsilon=0.5, delta=1e-3, sensitivity=1.0),
        [17.2, 22.9, -1.5, 4.4],
    ),
    "Clamped": (pmp.Clamped(mechanism=NOISE, lower=0), [17, 22, 0, 4]),
    "Rounded": (pmp.Rounded(mechanism=pmp.Laplace(scale=2.0), to=5), [15.0, 20.0, -5.0, 5.0]),
    "Suppressed": (pmp.Suppressed(mechanism=NOISE, below=12), [17, np.nan, np.nan, 40]),
}


@pytest.mark.parametrize("name", MECHANISMS)
def test_any_noise_can_be_on_the_counts(name):
    mechanism, release = MECHANISMS[name]
    with pm.Model() as model:
        t = pm.Uniform("t", 0.2, 2.0, default_transform=None)
        pmp.NoisyCount("y", pm.Poisson.dist(10.0 * t), mechanism, observed=release)
    density = model.compile_logp(vars=model.observed_RVs, sum=False, **QUICK)
    [value] = density({"t": np.array(1.3)})
    release = np.asarray(release, dtype=float)
    law = stats.poisson.pmf(COUNTS, 13.0)
    with np.errstate(divide="ignore", invalid="ignore"):
        noise = mechanism.log_density(
            np.where(np.isnan(release), -np.inf, release), COUNTS[:, None]
        )
        expected = special.logsumexp(np.log(law)[:, None] + noise, axis=0)
    np.testing.assert_allclose(value, expected, rtol=1e-9)


@pytest.mark.parametrize("name", ["Poisson", "NegativeBinomial", "Binomial", "ZeroInflatedPoisson"])
def test_the_gradient_is_that_of_the_density(name):
    make, _, factor = LAWS[name]
    with pm.Model() as model:
        t = pm.Uniform("t", 0.2, 2.0, default_transform=None)
        pmp.NoisyCount("y", make(factor * t), NOISE, observed=RELEASE)
    density = model.compile_logp(**QUICK)
    slope = model.compile_dlogp(**QUICK)
    h = 1e-6
    low, high = (density({"t": np.array(1.1 + step)}) for step in (-h, h))
    assert slope({"t": np.array(1.1)}) == pytest.approx((high - low) / (2 * h), rel=1e-6)


def test_two_ways_to_sum_agree_in_any_shape():
    release = pt.matrix("y", dtype="int64", shape=(2, 3))
    y = np.array([[4, 0, -3], [12, 7, 30]])
    count = pm.NegativeBinomial.dist(mu=np.array([3.0, 9.0, 11.0]), alpha=2.5, shape=(2, 3))
    mechanism = pmp.DiscreteGaussian(scale=(1.0, 4.0, 9.0))
    both = [
        by(release, count, mechanism, 1e-13).eval({release: y}, mode=PLAIN)
        for by in (log_density_by_recurrence, log_density_by_window)
    ]
    assert both[0].shape == (2, 3)
    np.testing.assert_allclose(*both, rtol=1e-11)


def test_a_second_derivative_is_refused_and_not_taken_for_zero():
    with pm.Model() as model:
        t = pm.Uniform("t", 0.2, 2.0, default_transform=None)
        pmp.NoisyCount("y", pm.Poisson.dist(10.0 * t), NOISE, observed=RELEASE)
    with pytest.raises(Exception, match="second derivative"):
        model.compile_d2logp(**QUICK)


# The window's bound.
@pytest.mark.parametrize("tail", [0.3, 0.02, 1e-6])
@pytest.mark.parametrize(
    "mechanism",
    [
        pmp.DiscreteLaplace(scale=3.0),
        pmp.DiscreteGaussian(scale=4.0),
        pmp.Rounded(mechanism=pmp.DiscreteLaplace(scale=3.0), to=5),
    ],
    ids=["laplace", "gaussian", "rounded"],
)
def test_what_the_window_leaves_out_is_as_little_as_proven(mechanism, tail):
    """For every release, however far from all counts, at most the share ``tail``."""
    step = 5 if isinstance(mechanism, pmp.Rounded) else 1
    releases = np.arange(-200, 300, step)
    whole = exact(stats.poisson.pmf(COUNTS, 6.0), releases, mechanism)
    count = pm.Poisson.dist(np.full(len(releases), 6.0))
    y = pt.as_tensor(releases.astype(float) if step > 1 else releases)
    part = log_density_by_window(y, count, mechanism, tail).eval(mode=PLAIN)
    left_out = -np.expm1(part - whole)
    assert left_out.min() > -1e-10
    assert left_out.max() <= tail + 1e-10


def test_a_window_of_a_quarter_of_the_width_breaks_the_bound(monkeypatch):
    """The mutant."""
    mechanism, tail, releases = pmp.DiscreteLaplace(scale=3.0), 0.02, np.arange(-20, 40)
    reaches = count_sums.count_reaches(mechanism)
    monkeypatch.setattr(
        count_sums, "count_reaches", lambda *_: reaches._replace(half=reaches.half // 4)
    )
    count = pm.Poisson.dist(np.full(len(releases), 6.0))
    part = log_density_by_window(pt.as_tensor(releases), count, mechanism, tail).eval(mode=PLAIN)
    whole = exact(stats.poisson.pmf(COUNTS, 6.0), releases, mechanism)
    left_out = -np.expm1(part - whole)
    assert left_out.max() > tail


# Releases far from every plausible count, in units of the noise's standard deviation.
def far_laws():
    """Laws with a free parameter t = 1, and their log probabilities of 0, 1, …"""
    counts = np.arange(40_000)

    def probabilities(p):
        with np.errstate(divide="ignore"):
            return np.log(np.append(p, np.zeros(counts.size - len(p))))

    zero_inflated = np.logaddexp(
        np.log(0.7) + stats.poisson.logpmf(counts, 20.0),
        np.where(counts == 0, np.log(0.3), -np.inf),
    )
    return {
        "Poisson": (lambda t: pm.Poisson.dist(20.0 * t), stats.poisson.logpmf(counts, 20.0)),
        "Binomial": (
            lambda t: pm.Binomial.dist(30, 0.9 * t),
            stats.binom.logpmf(counts, 30, 0.9),
        ),
        "NegativeBinomial": (
            lambda t: pm.NegativeBinomial.dist(mu=20.0 * t, alpha=0.3),
            stats.nbinom.logpmf(counts, 0.3, 0.3 / 20.3),
        ),
        "ZeroInflatedPoisson": (
            lambda t: pm.ZeroInflatedPoisson.dist(0.7, 20.0 * t),
            zero_inflated,
        ),
        "BetaBinomial": (
            lambda t: pm.BetaBinomial.dist(alpha=2.0 * t, beta=2.0, n=25),
            stats.betabinom.logpmf(counts, 25, 2.0, 2.0),
        ),
        "Geometric": (lambda t: pm.Geometric.dist(0.1 * t), stats.geom.logpmf(counts, 0.1)),
        "DiscreteUniform": (
            lambda t: pm.DiscreteUniform.dist(500, pt.cast(600 * t, "int64")),
            stats.randint.logpmf(counts, 500, 601),
        ),
        "Categorical": (
            lambda t: pm.Categorical.dist(pm.math.softmax(t * np.arange(5.0))),
            probabilities(special.softmax(np.arange(5.0))),
        ),
    }


FAR_NOISE = {
    "laplace": (pmp.Laplace, references.laplace),
    "gaussian": (pmp.Gaussian, references.gaussian),
}
FAR = np.array([-700.5, -90.25, -8.5, 3.5, 60.5, 180.75, 700.5, 1400.25])


@pytest.mark.parametrize("noise", FAR_NOISE)
@pytest.mark.parametrize("name", far_laws())
def test_a_release_far_from_all_plausible_counts_has_its_density(name, noise):
    make, log_law = far_laws()[name]
    mechanism, log_noise = FAR_NOISE[noise]
    counts = np.arange(log_law.size)
    for scale in (0.5, 3.0):
        with pm.Model() as model:
            t = pm.Uniform("t", 0.2, 2.0, default_transform=None)
            pmp.NoisyCount("y", make(t), mechanism(scale=scale), observed=FAR)
        density = model.compile_logp(vars=model.observed_RVs, sum=False, **QUICK)
        [value] = density({"t": np.array(1.0)})
        terms = log_law + log_noise(FAR[:, None] - counts, scale)
        np.testing.assert_allclose(value, special.logsumexp(terms, axis=1), rtol=1e-9)


@pytest.mark.parametrize("log_rate", [0.0, 10.0, 30.0, 270.0, 690.0])
def test_huge_rates_have_a_density_and_a_slope(log_rate):
    """Exponential noise: log E exp(-|y - c| / s), which is z^-y exp(mu (z - 1)) from afar."""
    release, scale, rate = np.array([-3.5, 10.25]), 2.0, np.exp(log_rate)
    for mechanism in (pmp.Laplace(scale=scale), pmp.Gaussian(scale=scale)):
        with pm.Model() as model:
            log_mu = pm.Normal("log_mu", 0.0, 100.0)
            pmp.NoisyCount("y", pm.Poisson.dist(pt.exp(log_mu)), mechanism, observed=release)
        point = {"log_mu": np.array(log_rate)}
        value = model.compile_logp(vars=model.observed_RVs, sum=False, **QUICK)(point)[0]
        slope = model.compile_dlogp(**QUICK)(point)[0] + log_rate / 1e4
        assert np.all(np.isfinite(value))
        if log_rate < 20:
            counts = np.arange(int(rate + 10 * np.sqrt(rate) + 80))
            is_laplace = isinstance(mechanism, pmp.Laplace)
            noise = references.laplace if is_laplace else references.gaussian
            terms = stats.poisson.logpmf(counts, rate) + noise(release[:, None] - counts, scale)
            np.testing.assert_allclose(value, special.logsumexp(terms, axis=1), rtol=1e-9)
        elif isinstance(mechanism, pmp.Laplace):
            expected = release / scale + rate * np.expm1(-1 / scale) - np.log(2 * scale)
            np.testing.assert_allclose(value, expected, rtol=1e-12)
            assert slope == pytest.approx(2 * rate * np.expm1(-1 / scale))
        else:
            # Gaussian noise keeps the count near: the law is that of its lower tail, about e^-mu.
            np.testing.assert_allclose(value, -rate, rtol=1e-6)
            assert slope == pytest.approx(-2 * rate, rel=1e-6)


@pytest.mark.parametrize(
    ("law", "counts"),
    [
        (lambda: pm.Poisson.dist(np.zeros(3)), 0),
        (lambda: pm.Binomial.dist(30, np.zeros(3)), 0),
        (lambda: pm.Binomial.dist(30, np.ones(3)), 30),
        (lambda: pm.NegativeBinomial.dist(n=0.5, p=np.ones(3)), 0),
    ],
    ids=["no rate", "no chance", "certainty", "no failure"],
)
def test_a_law_that_is_certain_leaves_the_noise_alone(law, counts):
    release = np.array([-40.5, 12.25, 70.5])
    for mechanism, noise in FAR_NOISE.values():
        with pm.Model() as model:
            pmp.NoisyCount("y", law(), mechanism(scale=0.25), observed=release)
        [value] = model.compile_logp(vars=model.observed_RVs, sum=False, **QUICK)({})
        np.testing.assert_allclose(value, noise(release - counts, 0.25), rtol=1e-12)


def test_any_law_may_stand_in_a_model_with_other_parameters():
    with pm.Model() as model:
        other = pm.Normal("other", shape=2)
        level = pm.Normal("level")
        pm.Normal("seen", other, 1.0, observed=[0.1, 0.2])
        noisy(pm.ZeroInflatedPoisson.dist(0.5, pt.exp(level)), observed=[3, 0])
        pmp.NoisyCount("z", pm.DiscreteWeibull.dist(0.6, 1.2), NOISE, observed=[1, 4])
    assert np.isfinite(model.compile_logp(**QUICK)(model.initial_point()))


@pytest.mark.parametrize("name", LAWS)
def test_every_law_has_a_slope_that_is_a_number(name):
    make, _, factor = LAWS[name]
    with pm.Model() as model:
        t = pm.Uniform("t", 0.2, 2.0, default_transform=None)
        pmp.NoisyCount("y", make(factor * t), NOISE, observed=RELEASE)
    density, slope = model.compile_logp(**QUICK), model.compile_dlogp(**QUICK)
    h = 1e-6
    low, high = (density({"t": np.array(1.13 + step)}) for step in (-h, h))
    expected = (high - low) / (2 * h)
    assert slope({"t": np.array(1.13)}) == pytest.approx(expected, rel=1e-5, abs=1e-7)


# Sampling: one model, compiled once.
MU_PRIOR, CELLS = (3.0, 0.25), np.array([14.3, 9.1, 22.8, -3.0, 11.6])
SAMPLED = pmp.Laplace(scale=3.0)


def rate_posterior(mechanism=SAMPLED):
    """p(rate | releases) on a grid."""
    grid = np.linspace(0.02, 60.0, 6001)
    law = stats.poisson.pmf(COUNTS[:200], grid[:, None])
    noise = np.exp(mechanism.log_density(CELLS[:, None], COUNTS[:200]))
    log_weight = stats.gamma.logpdf(grid, MU_PRIOR[0], scale=1 / MU_PRIOR[1])
    log_weight = log_weight + np.log(law @ noise.T).sum(axis=1)
    weight = np.exp(log_weight - log_weight.max())
    return references.GridPosterior((grid,), weight / weight.sum())


def rate_model(mechanism=SAMPLED, tail=1e-12):
    with pm.Model(coords={"cell": list("abcde")}) as model:
        rate = pm.Gamma("rate", *MU_PRIOR)
        pmp.NoisyCount(
            "y", pm.Poisson.dist(rate), mechanism, observed=CELLS, dims="cell", tail=tail
        )
    return model


@pytest.fixture(scope="module")
def sampled():
    with rate_model() as model:
        idata = pm.sample(
            2500, tune=600, chains=2, cores=1, random_seed=5, progressbar=False, quiet=True
        )
    return model, idata


def test_plain_pm_sample_draws_from_the_exact_posterior(sampled):
    assert_law(sampled[1]["posterior"]["rate"].values, rate_posterior())


def test_the_exact_test_fails_for_other_noise(sampled):
    """The mutant: what a wrong scale would look like."""
    with pytest.raises(AssertionError, match="z ="):
        assert_law(sampled[1]["posterior"]["rate"].values, rate_posterior(pmp.Laplace(scale=9.0)))


@pytest.mark.slow
def test_the_counts_are_drawn_from_their_posterior(sampled):
    model, idata = sampled
    counts = pmp.posterior_counts(idata, model=model, random_seed=8)["y"]
    assert counts.dims == ("chain", "draw", "cell")
    posterior = rate_posterior()
    grid, counts_held = posterior.grids[0], COUNTS[:200]
    law = stats.poisson.pmf(counts_held, grid[:, None])
    for j, y in enumerate(CELLS):
        terms = law * np.exp(SAMPLED.log_density(y, counts_held))
        given_rate = terms / terms.sum(axis=1, keepdims=True)
        p = posterior.weights @ given_rate
        draws = counts.values[..., j]
        assert_mean(draws, float(p @ counts_held), what=f"E c of cell {j}")
        assert_mean(draws**2, float(p @ counts_held**2), what=f"E c² of cell {j}")


def test_the_window_leaves_out_next_to_nothing_by_default(sampled):
    model, idata = sampled
    assert 0 < pmp.window_error(idata, model=model) < 1e-9


def test_the_error_of_windows_adds_up_over_cells():
    with pm.Model() as model:
        pmp.NoisyCount("y", pm.Geometric.dist(0.3), NOISE, observed=np.zeros(5), tail=1e-3)
        pmp.NoisyCount("z", pm.Geometric.dist(0.3), NOISE, observed=np.zeros(2), tail=1e-2)
    expected = (1 - 1e-3) ** -5 * (1 - 1e-2) ** -2 - 1
    assert pmp.window_error(model=model) == pytest.approx(expected)


# Counts that depend on records.
def records_model():
    with pm.Model() as model:
        x = pm.Bernoulli("x", 0.3, shape=3)
        pmp.Privatized("s", x, pmp.Laplace(scale=1.0), observed=2.0)
        pmp.NoisyCount("y", pm.Poisson.dist(2.0 + 8.0 * x), NOISE, observed=[11, 1, 5])
    return model


@pytest.mark.slow
def test_counts_of_records_that_were_not_kept_are_asked_for(request):
    rng = np.random.default_rng(seed_of(request))
    values = rng.integers(0, 2, size=(1, 3000, 3))
    model = records_model()
    kept = from_dict({"posterior": {"x": values}})
    lost = from_dict({"posterior": {"other": values}})
    with pytest.raises(RecordError, match=r"x is missing.*keep_records=True"):
        pmp.posterior_counts(lost, model=model)
    drawn = pmp.posterior_counts(kept, model=model, random_seed=3)["y"].values
    counts = np.arange(200)
    for j, y in enumerate([11, 1, 5]):
        for record in (0, 1):
            log_p = stats.poisson.logpmf(counts, 2.0 + 8.0 * record) - abs(y - counts) / 2.0
            p = np.exp(log_p - special.logsumexp(log_p))
            mine = drawn[0, values[0, :, j] == record, j]
            assert_mean(mine, float(p @ counts), what=f"E c{j} given x = {record}")


@pytest.mark.slow
def test_parameters_are_never_drawn_again_though_data_were_set_anew(request):
    with pm.Model() as model:
        centre = pm.Data("centre", 0.0)
        level = pm.Normal("level", centre, 1.0)
        pmp.NoisyCount("y", pm.Poisson.dist(pt.exp(level)), NOISE, observed=[3])
    drawn = from_dict({"posterior": {"level": np.full((1, 2000), 2.0)}})
    pm.set_data({"centre": -50.0}, model=model)
    counts = pmp.posterior_counts(drawn, model=model, random_seed=seed_of(request))["y"].values
    every = np.arange(200)
    log_p = stats.poisson.logpmf(every, np.exp(2.0)) - abs(3 - every) / 2.0
    p = np.exp(log_p - special.logsumexp(log_p))
    assert_mean(counts[0, :, 0], float(p @ every), what="E c")


def test_counts_far_from_their_release_are_drawn_where_they_are(request):
    """The release is more than a hundred standard deviations below the rate."""
    with pm.Model() as model:
        level = pm.Normal("level", 6.0, 1.0)
        pmp.NoisyCount("y", pm.Poisson.dist(pt.exp(level)), pmp.Laplace(scale=2.0), observed=[10.0])
    drawn = from_dict({"posterior": {"level": np.full((1, 3000), np.log(1000.0))}})
    counts = pmp.posterior_counts(drawn, model=model, random_seed=seed_of(request))["y"].values
    # Exponential noise tilts the law: Poisson with the rate 1000 exp(-1 / 2).
    assert_mean(counts[0, :, 0], 1000 * np.exp(-0.5), what="E c")


def test_a_model_with_noisy_counts_says_what_was_promised():
    with rate_model(pmp.Laplace(epsilon=0.5, sensitivity=1.0)):
        idata = pmp.sample(**SHORT)
    assert idata["privacy"]["release"].values.tolist() == ["y"]
    assert "0.5-DP" in idata["privacy"]["guarantee"].item()


# Predictive draws.
def test_prior_predictive_draws_are_counts_plus_noise(request):
    scales = np.array([0.5, 3.0, 10.0])
    with pm.Model():
        pmp.NoisyCount("y", pm.Poisson.dist(7.0), pmp.Laplace(scale=scales), observed=[1.0, 2, 3])
        prior = pm.sample_prior_predictive(6000, random_seed=seed_of(request))
    draws = prior["prior_predictive"]["y"].values[0]
    for j, scale in enumerate(scales):
        assert_mean(draws[:, j], 7.0, what="mean")
        assert_mean((draws[:, j] - 7.0) ** 2, 7.0 + 2 * scale**2, what="variance")
    # One law for all cells is one count for each.
    product = (draws[:, 0] - 7.0) * (draws[:, 1] - 7.0)
    assert_mean(product, 0.0, what="covariance of two cells")


def test_discrete_noise_gives_integers_and_observing_data_is_possible():
    with pm.Model() as model:
        rate = pm.Gamma("rate", 2.0, 0.2)
        published = pm.Data("published", [3, 5])
        y = pmp.NoisyCount("y", pm.Poisson.dist(rate), NOISE, observed=published)
        prior = pm.sample_prior_predictive(3, random_seed=1)
    assert y.dtype == "int64"
    assert prior["prior_predictive"]["y"].dtype.kind == "i"
    density = model.compile_logp(vars=[y], **QUICK)
    point = {"rate_log__": np.array(1.0)}
    law = stats.poisson.pmf(COUNTS, np.e)
    assert density(point) == pytest.approx(exact(law, [3, 5], NOISE).sum())
    with model:
        pm.set_data({"published": [30, -5]})
    assert density(point) == pytest.approx(exact(law, [30, -5], NOISE).sum())


def test_a_release_that_is_not_observed_can_be_drawn_and_observed():
    with pm.Model() as model:
        rate = pm.Gamma("rate", 2.0, 0.2)
        y = pmp.NoisyCount("y", pm.Poisson.dist(rate, shape=2), pmp.Gaussian(scale=2.0))
    assert np.isfinite(model.compile_logp(**QUICK)(model.initial_point()))
    assert model.compile_dlogp(**QUICK)(model.initial_point()).shape == (3,)
    seen = pm.observe(model, {y: [3.0, 5.0]})
    density = seen.compile_logp(vars=seen.observed_RVs, **QUICK)
    law = stats.poisson.pmf(COUNTS, np.e)
    expected = exact(law, [3.0, 5.0], pmp.Gaussian(scale=2.0)).sum()
    assert density({"rate_log__": np.array(1.0)}) == pytest.approx(expected)


# Appendix B of Awan et al.: the cells of a table whose total is Poisson.
def test_a_table_with_a_poisson_total_is_independent_poisson_cells():
    """Model 1 (a total, then cells given it) against model 2, both given noisy cells alone."""
    total, shares, release = 5.0, np.array([0.2, 0.5, 0.3]), np.array([2, 4, -1])
    with pm.Model() as model:
        pmp.NoisyCount("y", pm.Poisson.dist(total * shares), NOISE, observed=release)
    [cells] = model.compile_logp(vars=model.observed_RVs, sum=False, **QUICK)({})
    tables = np.indices((26,) * 3).reshape(3, -1).T
    tables = tables[tables.sum(axis=1) <= 25]
    size = tables.sum(axis=1)
    log_weight = stats.poisson.logpmf(size, total)
    log_weight += stats.multinomial.logpmf(tables, size, shares)
    log_weight += references.discrete_laplace(release - tables, 2.0).sum(axis=1)
    assert cells.sum() == pytest.approx(special.logsumexp(log_weight), abs=1e-9)


# Bad inputs.
def noisy(dist=None, mechanism=NOISE, **kwargs):
    return pmp.NoisyCount("y", pm.Poisson.dist(3.0) if dist is None else dist, mechanism, **kwargs)


def test_counts_must_be_given_by_their_law():
    with pm.Model():
        named = pm.Poisson("c", 3.0)
        for wrong in (named, 3.0, named + 1, np.arange(3)):
            with pytest.raises(RecordError, match=r"must be given by their law.*got"):
                noisy(wrong, observed=3)


def test_counts_must_be_integers_of_their_own_and_not_negative():
    with pm.Model():
        with pytest.raises(RecordError, match="must be integers; got a law of float64"):
            noisy(pm.Normal.dist(), observed=3)
        with pytest.raises(RecordError, match=r"independent given the parameters.*LinearMeas"):
            noisy(pm.Multinomial.dist(5, [0.2, 0.8]), observed=[3, 2])
        with pytest.raises(RecordError, match="must be >= 0; got a law that gives -1"):
            noisy(pm.DiscreteUniform.dist(-2, 5), observed=3)


@pytest.mark.parametrize(
    ("dist", "mechanism", "observed", "error", "message"),
    [
        (pm.Poisson.dist([3.0, 4.0]), NOISE, [1, 2, 3], ReleaseError, "one value per cell"),
        (None, pmp.Laplace(scale=(1.0, 2.0)), [1.0, 2.0, 3.0], ReleaseError, "one value per cell"),
        (pm.Poisson.dist([3.0, 4.0]), NOISE, 1, ReleaseError, "one value per cell"),
        (None, NOISE, [1.5], ReleaseError, "be integers"),
        (None, NOISE, [np.nan], ReleaseError, "be finite"),
        (None, NOISE, [1, [2]], ReleaseError, "must be a number, or an array"),
        (None, "noise", [1], MechanismError, "adds noise.*got 'noise'"),
        (
            None,
            pmp.Clamped(mechanism=NOISE, lower=0, upper=9),
            [1],
            MechanismError,
            "clamped from below.*got Clamped",
        ),
        (
            None,
            pmp.CustomMechanism(log_density_function=lambda s, t: -abs(s - t)),
            [1.0],
            MechanismError,
            "adds noise.*got CustomMechanism",
        ),
    ],
)
def test_what_is_not_a_noisy_count_is_refused(dist, mechanism, observed, error, message):
    with pm.Model(), pytest.raises(error, match=f"(?s){message}"):
        noisy(dist, mechanism, observed=observed)


@pytest.mark.parametrize("tail", [0.0, 1.0, -1e-9, "none"])
def test_a_tail_is_a_probability(tail):
    with pm.Model(), pytest.raises(MechanismError, match=r"tail must be a number in .*got"):
        noisy(observed=3, tail=tail)


def test_windows_that_need_too_much_memory_are_refused_and_recurrences_need_none(monkeypatch):
    wide = pmp.Laplace(scale=1e6)
    with pm.Model():
        noisy(mechanism=wide, observed=np.zeros(1000))
    with pm.Model(), pytest.raises(MechanismError, match=r"got 1000 cells and .* counts within"):
        noisy(pm.ZeroInflatedPoisson.dist(0.5, 3.0), wide, observed=np.zeros(1000))
    monkeypatch.setattr(noisy_count, "LARGEST_WINDOWS", 10)
    with pm.Model(), pytest.raises(MechanismError, match="at most 10 counts"):
        noisy(pm.Geometric.dist(0.5), NOISE, observed=0)


def test_counts_behind_nothing_cannot_be_drawn():
    with pm.Model(), pytest.raises(RecordError, match="got a model without any"):
        pmp.posterior_counts(None)


def test_a_law_whose_parameters_have_no_proper_prior_can_be_checked():
    with pm.Model() as model:
        level = pm.Flat("level")
        noisy(pm.ZeroInflatedPoisson.dist(0.5, pt.exp(level)), observed=[3, 0])
    assert np.isfinite(model.compile_logp(**QUICK)({"level": np.array(0.3)}))
