"""Noisy counts: laws and noise by enumeration, NUTS, predictive draws, the window's bound."""

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
from pytensor.compile.mode import Mode
from scipy import special, stats

import pymc_privacy as pmp
from pymc_privacy.distributions import noisy_count
from pymc_privacy.distributions.count_sums import log_density_by_recurrence, log_density_by_window
from pymc_privacy.errors import MechanismError, RecordError, ReleaseError
from pymc_privacy.mechanisms.count_windows import count_window
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
def windowed(mechanism, tail, releases, mu=6.0):
    count = pm.Poisson.dist(np.full(len(releases), mu))
    y = pt.as_tensor(releases)
    return np.exp(log_density_by_window(y, count, mechanism, tail).eval(mode=PLAIN))


@pytest.mark.parametrize("tail", [0.3, 0.02])
@pytest.mark.parametrize(
    "mechanism", [pmp.DiscreteLaplace(scale=3.0), pmp.DiscreteGaussian(scale=4.0)]
)
def test_what_the_window_leaves_out_is_as_little_as_proven(mechanism, tail):
    releases = np.arange(-120, 140)
    law = stats.poisson.pmf(COUNTS, 6.0)
    left_out = np.exp(exact(law, releases, mechanism)) - windowed(mechanism, tail, releases)
    assert left_out.min() > -1e-15
    # For each release: at most the density of noise at the edge, and the exact share of noise
    # beyond it, which is what is left out when no window is cut at zero.
    half, _, log_edge = count_window(mechanism, tail)
    assert left_out.max() <= np.exp(log_edge)
    beyond = abs(releases[:, None] - COUNTS) > half
    share = (law * np.exp(mechanism.log_density(releases[:, None], COUNTS)) * beyond).sum(axis=1)
    assert np.all(left_out <= share + 1e-15)
    # On average over releases: at most the tail.
    assert 0 < left_out.sum() <= tail


def test_a_window_of_half_the_width_breaks_the_bound(monkeypatch):
    """The mutant."""
    mechanism, tail, releases = pmp.DiscreteLaplace(scale=3.0), 0.02, np.arange(-120, 140)
    window = count_window(mechanism, tail)
    monkeypatch.setattr(
        "pymc_privacy.distributions.count_sums.count_window",
        lambda *_: window._replace(half=window.half // 2),
    )
    law = stats.poisson.pmf(COUNTS, 6.0)
    left_out = np.exp(exact(law, releases, mechanism)) - windowed(mechanism, tail, releases)
    assert left_out.sum() > tail


# Sampling: one model, compiled once.
MU_PRIOR, CELLS = (3.0, 0.25), np.array([14.3, 9.1, 22.8, -3.0, 11.6])
SAMPLED = pmp.Laplace(scale=3.0)


def rate_posterior(mechanism=SAMPLED, tail_half=None):
    """p(rate | releases) on a grid; the counts within tail_half of their release, if given."""
    grid = np.linspace(0.02, 60.0, 6001)
    law = stats.poisson.pmf(COUNTS[:200], grid[:, None])
    noise = np.exp(mechanism.log_density(CELLS[:, None], COUNTS[:200]))
    if tail_half is not None:
        noise = noise * (abs(CELLS[:, None] - COUNTS[:200]) <= tail_half)
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


def test_the_error_of_a_small_window_is_bounded_from_the_draws(sampled):
    """Total variation by quadrature, for a window that leaves out more than it should."""
    _, idata = sampled
    tail = 1e-3
    model = rate_model(tail=tail)
    half = int(count_window(SAMPLED, tail).half)
    small, whole = rate_posterior(tail_half=half), rate_posterior()
    distance = 0.5 * abs(small.weights - whole.weights).sum()
    bound = pmp.window_error(idata, model=model)
    assert 1e-7 < distance < bound < 0.1


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
    with pm.Model(), pytest.raises(MechanismError, match=r"tail must be a number between.*got"):
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
