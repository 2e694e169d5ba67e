"""Maximum likelihood from releases: exact maxima, values, boundaries, bad input, and mutants."""

from concurrent.futures import ProcessPoolExecutor
from functools import cache
from multiprocessing import get_context

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
from scipy import special, stats

import pymc_privacy as pmp
from pymc_privacy import errors as pmp_errors
from pymc_privacy.algorithms import record_sweep
from pymc_privacy.errors import ArgumentError, CertificateError, RecordError, ReleaseError
from pymc_privacy.inference import climbing
from pymc_privacy.inference.climbing import ImputedProblem as Problem
from pymc_privacy.inference.imputation import Imputation
from pymc_privacy.inference.resampling import percentiles
from pymc_privacy.inference.sweeping import Records
from tests import references
from tests.references import Release, gaussian, laplace
from tests.stochastic import Z_LIMIT, seed_of

NEAR = 0.05  # standard errors


def fitted(model, seed, **kwargs):
    return pmp.maximum_likelihood(model, random_seed=seed, progressbar=False, **kwargs)


def coins(release=63.7, scale=4.0, size=200, beta=(2, 5)):
    with pm.Model() as model:
        p = pm.Beta("p", *beta)
        x = pm.Bernoulli("x", p, shape=size)
        pmp.Privatized("s", x, pmp.Laplace(scale=scale), observed=release)
    return model


def coins_of_unknown_number(scale=10.0):
    with pm.Model() as model:
        p = pm.Beta("p", 2, 5)
        n = pm.Poisson("n", 150.0)
        x = pmp.Records("x", pm.Bernoulli.dist(p), size=n, capacity=400)
        pmp.Privatized("s", x, pmp.Laplace(scale=2.0), observed=63.7)
        pmp.Privatized("n_dp", n, pmp.Laplace(scale=scale), observed=188.3)
    return model


def clamped_mean():
    with pm.Model() as model:
        mu = pm.Normal("mu", 0, 3)
        x = pm.Normal("x", mu, 1.5, shape=300)
        pmp.Privatized("s", x.clip(-2, 2), pmp.Laplace(scale=10.0), observed=312.7)
    return model


def clamped_moments(mechanism):
    with pm.Model() as model:
        mu = pm.Normal("mu", 0, 3)
        sd = pm.HalfNormal("sd", 3)
        x = pm.Normal("x", mu, sd, shape=100).clip(-3, 3)
        pmp.Privatized("s", pt.stack([x, x**2], axis=1), mechanism, observed=[41.0, 132.0])
    return model


def waiting_times():
    with pm.Model() as model:
        rate = pm.Gamma("rate", 2, 1)
        x = pm.Exponential("x", rate, shape=150)
        pmp.Privatized("s", x.clip(0, 4), pmp.Laplace(scale=6.0), observed=70.0)
    return model


def mean_of_unknown_number():
    with pm.Model() as model:
        mu = pm.Normal("mu", 0, 3)
        n = pm.DiscreteUniform("n", 1, 600)
        x = pmp.Records("x", pm.Normal.dist(mu, 1.5), size=n)
        pmp.Privatized("s", x.clip(-5, 5), pmp.Laplace(scale=10.0), observed=412.7)
        pmp.Privatized("n_dp", n, pmp.Laplace(scale=20.0), observed=280.0)
    return model


def of_coins(scale):
    return lambda q: references.bernoulli_log_likelihood(
        special.expit(q), 200, Release(laplace, scale, 63.7)
    )


def of_coins_of_unknown_number(q):
    n = np.arange(401)
    known = stats.poisson.logpmf(n, 150.0) + laplace(188.3 - n, 10.0)
    # What is so unlikely does not matter, and takes long.
    some = known > known.max() - 45
    one = Release(laplace, 2.0, 63.7)
    return references.over_sizes(
        known[some],
        n[some],
        lambda k: references.bernoulli_log_likelihood(special.expit(q), k, one),
    )


def of_moments(noise):
    release = Release(noise, 8.0, [41.0, 132.0])
    return lambda mu, log_sd: references.moments_log_likelihood(
        stats.norm(mu, np.exp(log_sd)), (-3, 3), 100, release
    )


def of_mean_of_unknown_number(mu):
    """Sums of clamped records for many sizes share one characteristic function."""
    n = np.arange(100, 601)
    known = laplace(280.0 - n, 20.0) - np.log(600)
    points, masses = references.law_on_nodes(stats.norm(mu, 1.5), -5, 5)
    t = np.linspace(-0.9, 0.9, 6001)
    log_one = np.log(np.exp(1j * np.outer(t, points)) @ masses)
    weights = np.exp(known - known.max())
    total = sum(w * np.exp(k * log_one) for w, k in zip(weights, n, strict=True))
    value = total * references.noise_characteristic(laplace, 10.0, t)
    density = np.trapezoid((value * np.exp(-1j * t * 412.7)).real, t) / (2 * np.pi)
    return float(np.log(density) + known.max())


CASES = {
    "coins": (lambda: coins(), of_coins(4.0), [-0.7]),
    "coins, wide noise": (lambda: coins(scale=40.0, beta=(8, 3)), of_coins(40.0), [-0.7]),
    "coins, unknown number": (coins_of_unknown_number, of_coins_of_unknown_number, [-0.5]),
    "clamped mean": (
        clamped_mean,
        lambda mu: references.sum_log_likelihood(
            stats.norm(mu, 1.5), (-2, 2), 300, Release(laplace, 10.0, 312.7)
        ),
        [1.4],
    ),
    "clamped moments": (
        lambda: clamped_moments(pmp.Laplace(scale=8.0)), of_moments(laplace), [0.4, 0.1]
    ),
    "clamped moments, Gaussian noise": (
        lambda: clamped_moments(pmp.Gaussian(scale=8.0)), of_moments(gaussian), [0.4, 0.1]
    ),
    "waiting times": (
        waiting_times,
        lambda log_rate: references.sum_log_likelihood(
            stats.expon(scale=np.exp(-log_rate)), (0, 4), 150, Release(laplace, 6.0, 70.0)
        ),
        [0.7],
    ),
    "mean, unknown number": (mean_of_unknown_number, of_mean_of_unknown_number, [1.4]),
}  # fmt: skip
UNBOUNDED = {"p": special.logit, "mu": float, "sd": np.log, "rate": np.log}


@cache
def exact(name):
    _, log_likelihood, start = CASES[name]
    at, error = references.maximum(log_likelihood, start)
    return at, error, log_likelihood(*at)


def found(fit):
    return np.array([UNBOUNDED[name](float(fit.estimate[name])) for name in fit.estimate])


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_exact_maxima_are_met(name, request):
    fit = fitted(CASES[name][0](), seed_of(request))
    at, error, value = exact(name)
    assert fit.converged
    assert np.abs(found(fit) - at).max() < NEAR * error.min(), (found(fit), at, error)
    z = (fit.log_likelihood - value) / fit.log_likelihood_error
    assert abs(z) < Z_LIMIT, f"log likelihood {fit.log_likelihood} instead of {value}, z = {z:.1f}"
    assert not fit.at_boundary
    assert len(fit.maxima) == 1
    assert len(fit.starts) == 4


def test_a_maximum_at_the_boundary_is_named(request):
    fit = fitted(coins(release=-3.2, size=50), seed_of(request))
    assert fit.at_boundary == ("p",)
    assert float(fit.estimate["p"]) == 0.0
    assert fit.log_likelihood == pytest.approx(float(laplace(3.2, 4.0)), abs=0.01)
    assert "boundary" in repr(fit)
    assert "boundary" in fit._repr_html_()
    fit.bootstrap(2)
    with pytest.warns(pmp_errors.ComparisonWarning, match="says nothing about p"):
        assert np.isnan(fit.interval()["p"]).all()


@pytest.mark.slow
def test_what_a_release_does_not_identify_is_said(request):
    with pm.Model() as model:
        mu = pm.Normal("mu", 0, 3)
        sd = pm.HalfNormal("sd", 1)
        x = pm.Normal("x", mu, sd, shape=4)
        pmp.Privatized("s", x, pmp.Laplace(scale=1e6), observed=2e5)
    fit = fitted(model, seed_of(request), starts=2)
    assert "sd" in fit.unidentified
    assert "do not identify" in repr(fit)


def test_there_may_be_no_record_at_all(request):
    with pm.Model() as model:
        p = pm.Beta("p", 1, 1)
        n = pm.Poisson("n", 3.0)
        x = pmp.Records("x", pm.Bernoulli.dist(p), size=n, capacity=40)
        pmp.Privatized("s", x, pmp.Laplace(scale=1.0), observed=-4.0)
    fit = fitted(model, seed_of(request), starts=2)
    assert fit.at_boundary == ("p",)
    assert fit.log_likelihood == pytest.approx(float(laplace(4.0, 1.0)), abs=0.01)


def test_a_size_that_is_all_but_known_is_as_good_as_known(request):
    with pm.Model() as model:
        mu = pm.Normal("mu", 0, 3)
        n = pm.DiscreteUniform("n", 1, 600)
        x = pmp.Records("x", pm.Normal.dist(mu, 1.5), size=n)
        pmp.Privatized("s", x.clip(-5, 5), pmp.Laplace(scale=10.0), observed=412.7)
        pmp.Privatized("n_dp", n, pmp.Laplace(scale=0.1), observed=280.0)
    fit = fitted(model, seed_of(request), starts=2)
    release = Release(laplace, 10.0, 412.7)
    at, error = references.maximum(
        lambda mu: references.sum_log_likelihood(stats.norm(mu, 1.5), (-5, 5), 280, release), [1.4]
    )
    assert np.abs(found(fit) - at).max() < NEAR * error.min()


def test_a_scale_that_is_known_to_be_small_is_at_the_boundary(request):
    with pm.Model() as model:
        sd = pm.HalfNormal("sd", 1)
        x = pm.Normal("x", 0, sd, shape=4000)
        pmp.Privatized("s", (x**2).clip(0, 9), pmp.Laplace(scale=20.0), observed=-5.0)
    fit = fitted(model, seed_of(request), starts=2)
    assert fit.at_boundary == ("sd",)
    assert not fit.unidentified
    assert float(fit.estimate["sd"]) == 0.0


def test_a_start_where_all_records_are_clamped_is_no_maximum(request):
    ends = [{"mu": -40.0}, {"mu": 60.0}]
    fit = fitted(clamped_mean(), seed_of(request), initvals=ends)
    at, error, _ = exact("clamped mean")
    assert len(fit.maxima) == 1
    assert np.abs(found(fit) - at).max() < NEAR * error.min()


def test_a_release_may_be_impossible_with_the_records_of_a_start(request):
    law = pmp.TruncatedLaplace(epsilon=0.5, delta=0.02, sensitivity=1.0)
    with pm.Model() as model:
        p = pm.Beta("p", 1, 1)
        x = pm.Bernoulli("x", p, shape=100)
        pmp.Privatized("s", x, law, observed=30.5)
    fit = fitted(model, seed_of(request), initvals=[{"p": 0.95}, {"p": 0.05}])
    heads = np.arange(101)
    distance = np.abs(30.5 - heads)
    known = np.where(distance <= law.bound, -distance / law.scale, -np.inf)
    at, error = references.maximum(
        lambda q: float(
            special.logsumexp(stats.binom.logpmf(heads, 100, special.expit(q)) + known)
        ),
        [-0.8],
    )
    assert np.abs(found(fit) - at).max() < NEAR * error.min()
    assert len(fit.maxima) == 1


def test_the_mode_of_the_posterior_is_that_of_the_natural_scale(request):
    with pm.Model() as model:
        p = pm.Beta("p", 8, 3)
        x = pm.Bernoulli("x", p, shape=200)
        pmp.Privatized("s", x, pmp.Laplace(scale=40.0), observed=63.7)
    fit = fitted(model, seed_of(request), penalty="prior")
    grid = np.linspace(0.01, 0.99, 981)
    heights = [of_coins(40.0)(special.logit(p)) + stats.beta.logpdf(p, 8, 3) for p in grid]
    assert float(fit.estimate["p"]) == pytest.approx(grid[np.argmax(heights)], abs=0.01)


def test_local_releases_are_summed_out(request):
    rng = np.random.default_rng(3)
    answers = rng.random(400) < 0.45
    with pm.Model() as model:
        p = pm.Beta("p", 1, 1)
        x = pm.Bernoulli("x", p, shape=400)
        pmp.Privatized(
            "y", x, pmp.RandomizedResponse(epsilon=1.0), local=True, observed=answers.astype(int)
        )
    fit = fitted(model, seed_of(request))
    keep = np.e / (1 + np.e)
    expected = (answers.mean() - (1 - keep)) / (2 * keep - 1)
    assert float(fit.estimate["p"]) == pytest.approx(expected, abs=1e-5)
    assert fit.log_likelihood_error == 0
    share = answers.mean()
    log_likelihood = 400 * (share * np.log(share) + (1 - share) * np.log(1 - share))
    assert fit.log_likelihood == pytest.approx(log_likelihood, abs=1e-6)


@pytest.mark.parametrize("method", ["em", "saem"])
def test_the_published_methods_come_to_the_same_place_where_they_can(method, request):
    # Little noise: little is missing, and EM is fast.
    fit = fitted(coins(), seed_of(request), method=method, starts=1, max_sweeps=6000)
    at, error, _ = exact("coins")
    assert abs(found(fit) - at)[0] < 0.3 * error[0]
    assert fit.method == method


def test_em_is_told_that_it_has_not_arrived(request):
    start = {"p": 0.9}
    fit = fitted(
        coins(scale=40.0), seed_of(request), method="em", initvals=[start], max_sweeps=1500
    )
    assert not fit.converged
    assert "not reached" in repr(fit)


# Starts that end in different places.
def told_apart(mean):
    with pm.Model() as model:
        mu = pm.Normal("mu", 0, 2)
        x = pm.Normal("x", mean(mu), 1.0, shape=60)
        pmp.Privatized("s", x.clip(-4, 4), pmp.Laplace(scale=5.0), observed=48.0)
    return model


def test_two_maxima_are_two_and_no_point_between_them(request):
    ends = [{"mu": 0.5}, {"mu": -0.5}]
    fit = fitted(told_apart(abs), seed_of(request), initvals=ends)
    assert sorted(round(float(m.estimate["mu"]), 1) for m in fit.maxima) == [-0.8, 0.8]
    assert [start.maximum for start in fit.starts] in ([0, 1], [1, 0])
    assert abs(float(fit.estimate["mu"])) == pytest.approx(0.8, abs=0.02)
    assert "2 places" in repr(fit)
    assert not fit.level


def test_a_level_stretch_is_said_and_not_averaged(request):
    def between(mu):
        # All of [-1, 1] makes the same records.
        return 0.8 + (mu - 1).clip(0, np.inf) + (mu + 1).clip(-np.inf, 0)

    ends = [{"mu": -0.7}, {"mu": 0.8}]
    fit = fitted(told_apart(between), seed_of(request), initvals=ends)
    assert fit.level == ("mu",)
    assert "level" in repr(fit)
    assert float(fit.estimate["mu"]) in (
        pytest.approx(-0.7, abs=0.05),
        pytest.approx(0.8, abs=0.05),
    )


# Bad input.
def test_models_without_a_likelihood_are_refused_before_compiling():
    with pm.Model() as without:
        pm.Normal("mu", observed=1.0)
    with pytest.raises(ReleaseError, match="without any"):
        fitted(without, 1)
    with pm.Model() as no_records:
        mu = pm.Normal("mu")
        pmp.Privatized("s", mu, pmp.Laplace(scale=1.0), observed=1.0)
    with pytest.raises(RecordError, match="has none"):
        fitted(no_records, 1)
    with pm.Model() as integers:
        k = pm.Poisson("k", 3.0)
        x = pm.Normal("x", k, 1, shape=10)
        pmp.Privatized("s", x, pmp.Laplace(scale=1.0), observed=1.0)
    with pytest.raises(RecordError, match="integers"):
        fitted(integers, 1)
    with pm.Model() as idle:
        tau = pm.HalfNormal("tau")
        mu = pm.Normal("mu", 0, tau)
        x = pm.Normal("x", mu, 1, shape=10)
        pmp.Privatized("s", x, pmp.Laplace(scale=1.0), observed=1.0)
    with pytest.raises(RecordError, match="does not depend on 'tau'"):
        fitted(idle, 1)
    with pm.Model() as unseen:
        mu = pm.Normal("mu")
        x = pm.Normal("x", mu, 1, shape=10)
        pmp.Privatized("s", x, pmp.Laplace(scale=1.0))
    with pytest.raises(ReleaseError, match="observed"):
        fitted(unseen, 1)


@pytest.mark.parametrize(
    "bad",
    [
        {"method": "newton"},
        {"starts": 0},
        {"tolerance": -1.0},
        {"max_sweeps": 10},
        {"penalty": "ridge"},
        {"progressbar": "yes"},
    ],
)
def test_bad_arguments_get_a_sentence(bad):
    with pytest.raises(ArgumentError):
        pmp.maximum_likelihood(coins(), **({"progressbar": False} | bad))


# Mutants: what the exact tests would notice.
def climbed(problem, seed):
    rng = np.random.default_rng(seed)
    start = problem.target.program.flatten(problem.point)
    return problem.climb([start], rng, tolerance=0.05, max_sweeps=20_000).ends[0]


def gap(end, name):
    at, error, _ = exact(name)
    return abs(end.q[0] - at[0]) / error[0]


@cache
def problem_of(name):
    return Problem(CASES[name][0]())


def test_a_prior_or_a_jacobian_left_in_is_noticed(monkeypatch, request):
    problem = problem_of("coins, wide noise")
    assert gap(climbed(problem, seed_of(request)), "coins, wide noise") < NEAR
    make = Imputation.__init__

    def left_in(part):
        def init(self, *args, **kwargs):
            make(self, *args, **kwargs)
            if part == "prior":
                self._call["prior"] = lambda q, *held: [np.zeros(len(q))]
            else:
                penalty = self._call["penalty"]
                self._call["prior"] = lambda q, *held: [penalty(q, *held)[1]]

        monkeypatch.setattr(Imputation, "__init__", init)
        return gap(climbed(problem, seed_of(request)), "coins, wide noise")

    assert left_in("prior") > 2 * NEAR
    assert left_in("Jacobian") > 2 * NEAR


def test_a_size_without_its_law_is_noticed(monkeypatch, request):
    name = "coins, unknown number"
    plain = Records.log_sizes

    def without_law(self, point):
        logs = plain(self, point)
        n = np.arange(len(logs))
        return np.where(np.isfinite(logs), logs - stats.poisson.logpmf(n, 150.0), -np.inf)

    monkeypatch.setattr(Records, "log_sizes", without_law)
    assert gap(climbed(problem_of(name), seed_of(request)), name) > 2 * NEAR


def two_clamps():
    """Two releases that disagree: how much each weighs depends on how many records it clamps."""
    with pm.Model() as model:
        mu = pm.Normal("mu", 0, 3)
        x = pm.Normal("x", mu, 1.5, shape=300)
        both = pt.stack([x.clip(-1, 1), x.clip(-4, 4)], axis=1)
        pmp.Privatized("s", both, pmp.Laplace(scale=10.0), observed=[190.0, 200.0])
    return model


@pytest.mark.slow
def test_a_score_without_the_indicator_of_the_clamp_is_noticed(monkeypatch, request):
    problem = Problem(two_clamps())
    assert climbed(problem, seed_of(request)).disagreement < 5
    make = Imputation.__init__

    def init(self, *args, **kwargs):
        make(self, *args, **kwargs)
        noncentred = self._call["noncentred"]

        def every_record_moves(q, u):
            value, _ = noncentred(q, u)
            x = q[0] + 1.5 * u
            misfit = [190.0 - x.clip(-1, 1).sum(), 200.0 - x.clip(-4, 4).sum()]
            return value, self._call["prior"](q)[0] + 300 * np.sign(misfit).sum() / 10.0

        self._call["noncentred"] = every_record_moves

    monkeypatch.setattr(Imputation, "__init__", init)
    with pytest.raises(CertificateError, match="same mean"):
        climbed(problem, seed_of(request))


def test_an_order_of_records_that_depends_on_them_is_noticed(monkeypatch, request):
    name = "coins"
    plain = record_sweep.step

    def ones_first(rng, state, proposed, *, noise, log_weight_ratio=None, rows=slice(None)):
        # Only every other record is offered a draw, and those that are 1 come first.
        order = np.argsort(-state.contributions[0], kind="stable")
        half = len(order) // 2
        some = order[:half]
        current = np.ascontiguousarray(state.contributions[:, order])
        sorted_state, info = plain(
            rng, record_sweep.State(current), np.ascontiguousarray(proposed[:, some]),
            noise=noise, log_weight_ratio=None, rows=slice(0, half),
        )  # fmt: skip
        state.contributions[:, order] = sorted_state.contributions
        accepted = np.zeros(len(order), dtype=bool)
        accepted[some] = info.accepted
        return state, info._replace(accepted=accepted)

    monkeypatch.setattr(record_sweep, "step", ones_first)
    # Both scores of Bernoulli records are wrong in the same way, or they disagree.
    monkeypatch.setattr(climbing, "DISAGREEMENT", np.inf)
    end = climbed(problem_of(name), seed_of(request))
    assert end.disagreement > 7 or gap(end, name) > 2 * NEAR


# What follows from a fit.
@cache
def moments_fit():
    return fitted(CASES["clamped moments"][0](), 5)


@pytest.mark.slow
def test_a_bootstrap_in_another_process_gives_the_same():
    fit = coins_fit()
    here = fit.bootstrap(4, random_seed=3)
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as executor:
        there = fit.bootstrap(4, random_seed=3, executor=executor)
    assert np.array_equal(here["p"].values, there["p"].values)


@cache
def coins_fit():
    return fitted(coins(), 5, starts=1)


def test_intervals_are_order_statistics_of_the_replicates():
    fit = coins_fit()
    logits = np.random.default_rng(1).permutation(np.linspace(-3, 3, 199))
    ends = percentiles(fit, logits[:, None], 0.95)["p"]
    # The fifth of 199 is the one that another replicate is below with probability 5 / 200.
    assert np.allclose(special.logit(ends), np.sort(logits)[[4, 194]])


@pytest.mark.slow
def test_a_bootstrap_simulates_releases_and_leaves_the_own_ones_alone():
    fit = moments_fit()
    before = fit.fitting.problem.observed()["s"]
    replicates = fit.bootstrap(60, random_seed=1)
    assert replicates.sizes == {"replicate": 60}
    assert np.array_equal(before, fit.fitting.problem.observed()["s"])
    # The deviation of the estimate over releases, by many of them: 0.158 and 0.122.
    assert float(replicates["mu"].std()) == pytest.approx(0.158, rel=0.4)
    interval = fit.interval(0.9)
    assert float(interval["mu"].sel(bound="lower")) < float(fit.estimate["mu"])
    assert float(interval["sd"].sel(bound="upper")) > float(fit.estimate["sd"])
    again = fit.bootstrap(5, random_seed=1)
    assert np.array_equal(again["mu"].values, replicates["mu"].values[:5])


def test_a_profile_is_that_of_the_exact_likelihood():
    fit = moments_fit()
    grid = [0.95, 1.05, 1.2]
    profile = fit.profile("sd", grid)
    exact_log_likelihood = of_moments(laplace)
    heights = []
    for sd in grid:
        means = [exact_log_likelihood(mu, np.log(sd)) for mu in np.linspace(0.2, 0.6, 17)]
        heights.append(max(means) - exact("clamped moments")[2])
    assert np.allclose(profile.log_likelihood - profile.maximum, heights, atol=0.08)
    assert np.allclose(profile.grid, grid)
    with pytest.raises(ArgumentError, match="possible values"):
        fit.profile("sd", [-1.0])
    with pytest.raises(ArgumentError, match="one of"):
        fit.profile("nobody")


def test_wald_intervals_come_with_a_warning():
    with pytest.warns(pmp_errors.ComparisonWarning, match="one observation"):
        moments_fit().interval(0.9, method="wald")
    with pytest.raises(ArgumentError, match="var_names"):
        moments_fit().interval(0.9, var_names="nobody")


def test_fits_of_other_releases_are_not_compared(request):
    other = fitted(coins(), seed_of(request), starts=1)
    with pytest.raises(ArgumentError, match="same releases"):
        pmp.likelihood_ratio(moments_fit(), other)


def few_heads(lower):
    with pm.Model() as model:
        p = pm.Uniform("p", lower, 1)
        x = pm.Bernoulli("x", p, shape=40)
        pmp.Privatized("s", x, pmp.Laplace(scale=3.0), observed=-2.0)
    return model


@pytest.mark.slow
def test_a_ratio_of_two_fits_at_the_boundary_has_its_exact_law(request):
    fits = [fitted(few_heads(lower), seed_of(request), starts=1) for lower in (0.0, 0.2)]
    assert [fit.at_boundary for fit in fits] == [("p",), ("p",)]
    test = pmp.likelihood_ratio(*fits, replicates=19)
    # log L of each p on a grid, for releases on another one.
    chances, releases = np.linspace(0, 1, 201), np.linspace(-40, 70, 1101)
    heads = np.arange(41)
    known = laplace(releases[:, None] - heads, 3.0)
    masses = stats.binom.pmf(heads, 40, chances[:, None])
    logs = np.log(np.exp(known) @ masses.T)
    ratios = 2 * (logs.max(axis=1) - logs[:, 40:].max(axis=1))
    seen = np.interp(-2.0, releases, ratios)
    assert test.statistic == pytest.approx(seen, abs=5 * test.statistic_error + 0.02)
    # Under the special case: no ratio is below 0, and large ones are as frequent as they are.
    assert test.replicates.min() > -0.5
    law = np.exp(logs[:, 40]) * (releases[1] - releases[0])
    share = law[ratios >= 1].sum()
    error = np.sqrt(share * (1 - share) / 19)
    assert abs(np.mean(test.replicates >= 1) - share) < Z_LIMIT * error


# Models of other kinds, each with an answer that is known roughly.
def shares(release):
    with pm.Model() as model:
        w = pm.Dirichlet("w", np.ones(3))
        x = pm.Categorical("x", w, shape=300)
        cells = pt.stack([pt.eq(x, k) for k in range(3)], axis=1).astype("float64")
        pmp.Privatized("s", cells, pmp.Laplace(scale=4.0), observed=release)
    return model


@pytest.mark.slow
def test_shares_sum_to_one_and_may_be_zero(request):
    fit = fitted(shares([100.0, 150.0, 52.0]), seed_of(request))
    assert np.allclose(fit.estimate["w"], [0.331, 0.497, 0.172], atol=0.01)
    fit = fitted(shares([130.0, 180.0, -12.0]), seed_of(request), starts=2)
    assert fit.at_boundary == ("w",)
    assert np.allclose(fit.estimate["w"], [0.417, 0.583, 0.0], atol=0.01)


@pytest.mark.slow
def test_the_parameter_of_a_size_is_estimated_with_the_others(request):
    with pm.Model() as model:
        rate = pm.Gamma("rate", 2, 0.01)
        mu = pm.Normal("mu", 0, 3)
        n = pm.Poisson("n", rate)
        x = pmp.Records("x", pm.Normal.dist(mu, 1.0), size=n, capacity=800)
        pmp.Privatized("s", x.clip(-5, 5), pmp.Laplace(scale=5.0), observed=210.0)
        pmp.Privatized("n_dp", n, pmp.Laplace(scale=5.0), observed=203.0)
    fit = fitted(model, seed_of(request), starts=2)
    # A tenth of the standard errors, which are about 16 and 0.09.
    assert float(fit.estimate["rate"]) == pytest.approx(203.0, abs=1.6)
    assert float(fit.estimate["mu"]) == pytest.approx(210 / 203, abs=0.01)


@pytest.mark.slow
def test_mixtures_have_no_slope_at_fixed_base_variates(request):
    with pm.Model() as model:
        w = pm.Beta("w", 1, 1)
        parts = [pm.Normal.dist(-2, 1), pm.Normal.dist(2, 1)]
        x = pm.Mixture("x", pt.stack([w, 1 - w]), parts, shape=200)
        pmp.Privatized("s", x.clip(-5, 5), pmp.Laplace(scale=10.0), observed=100.0)
    fit = fitted(model, seed_of(request), starts=2)
    assert float(fit.estimate["w"]) == pytest.approx(0.375, abs=0.01)


@pytest.mark.slow
def test_initial_values_of_a_model_are_left_alone(request):
    ordered = pm.distributions.transforms.ordered
    with pm.Model() as model:
        mu = pm.Normal("mu", [-1.0, 1.0], 2, transform=ordered, initval=[-1.0, 1.0])
        x = pm.Normal("x", mu, 1.0, shape=(200, 2))
        pmp.Privatized("s", x.clip(-5, 5), pmp.Laplace(scale=5.0), observed=[-150.0, 220.0])
    fit = fitted(model, seed_of(request), starts=2)
    assert np.allclose(fit.estimate["mu"], [-0.75, 1.1], atol=0.01)
    assert model.rvs_to_initial_values[model["mu"]] is not None
