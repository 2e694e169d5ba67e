"""Streams of private answers: exact posteriors, calibration of the loop, and what is refused."""

import math

import numpy as np
import pymc as pm
import pytest
from scipy import special, stats

import pymc_privacy as pmp
from pymc_privacy.errors import ArgumentError, PrivacyError, RecordError, StreamError
from tests.stochastic import FALSE_ALARM, seed_of

CHAINS = 8
# "Within 4 Monte Carlo errors", as rare for the t of so many clouds.
T_LIMIT = stats.t.isf(stats.norm.sf(4.0), CHAINS - 1)


def normal_model():
    with pm.Model() as model:
        mu = pm.Normal("mu", 0, 5)
        sigma = pm.HalfNormal("sigma", 3)
        pm.Deterministic("variance", sigma**2)
        pm.Normal("x", mu, sigma)
    return model


def exponential_model():
    with pm.Model() as model:
        pm.Exponential("x", pm.LogNormal("rate", 0, 1))
    return model


def poisson_model():
    with pm.Model() as model:
        pm.Poisson("x", pm.Gamma("rate", 3, 1))
    return model


MODELS = {"normal": normal_model(), "exponential": exponential_model(), "poisson": poisson_model()}


def opened(name, **kwargs):
    return pmp.online(MODELS[name]["x"], **({"epsilon": 1.0, "random_seed": 1} | kwargs))


# -- references, which share nothing with the library ----------------------------------------------


def kernel(query):
    law = stats.laplace if isinstance(query.mechanism, pmp.Laplace) else stats.norm
    return law(scale=query.mechanism.scale).pdf


def clipped(law, query, y):
    """P of a clipped answer by Gauss's rule on many panels, for arrays of parameters."""
    x, w = np.polynomial.legendre.leggauss(12)
    cuts = np.unique(
        [*np.linspace(query.lower, query.upper, 25), np.clip(y, query.lower, query.upper)]
    )
    middle, half = (cuts[1:] + cuts[:-1]) / 2, np.diff(cuts) / 2
    at = (middle[:, None] + half[:, None] * x).ravel()
    weight = (half[:, None] * w).ravel()
    inside = law.pdf(at) @ (weight * kernel(query)(y - at))
    low, high = query.lower, query.upper
    return (
        inside
        + law.cdf(low)[..., 0] * kernel(query)(y - low)
        + law.sf(high)[..., 0] * kernel(query)(y - high)
    )


def clipped_count(law, query, y):
    counts = np.arange(80)
    where = np.clip(counts, query.lower, query.upper)
    return law.pmf(counts) @ np.exp(query.mechanism.log_density(y, where))


def binned(law, query, answer):
    """The same for bins of integers or reals, from P(x < edge)."""
    whole = hasattr(law.dist, "pmf")
    edges = np.ceil(query.edges) - 1 if whole else np.array(query.edges)
    cdf = law.cdf(edges)
    cdf = np.concatenate([0 * cdf[..., :1], cdf, 0 * cdf[..., :1] + 1], axis=-1)
    inside = np.diff(cdf, axis=-1)[..., answer]
    keep = math.exp(query.epsilon) / (math.exp(query.epsilon) + len(query.edges))
    return keep * inside + (1 - keep) / len(query.edges) * (1 - inside)


def probability(law, query, release):
    if isinstance(query, pmp.BinnedQuery):
        return binned(law, query, release)
    return (clipped_count if hasattr(law.dist, "pmf") else clipped)(law, query, release)


def reference(grid, log_prior, law_at, answers):
    """Return weights on a grid, and the log evidence, by the trapezoid rule."""
    logs = log_prior + sum(np.log(probability(law_at, q, y)) for q, y in answers)
    steps = [np.gradient(g) for g in grid]
    volume = steps[0] if len(grid) == 1 else np.outer(*steps).ravel()
    logs = logs + np.log(volume)
    evidence = special.logsumexp(logs)
    return np.exp(logs - evidence), evidence


def normal_reference(answers):
    mu, log_sd = np.linspace(-20, 20, 241), np.linspace(-4, 3, 141)
    m, s = (one.ravel() for one in np.meshgrid(mu, np.exp(log_sd), indexing="ij"))
    prior = stats.norm(0, 5).logpdf(m) + stats.halfnorm(0, 3).logpdf(s) + np.log(s)
    law = stats.norm(m[:, None], s[:, None])
    weights, evidence = reference((mu, log_sd), prior, law, answers)
    return {"mu": m, "sigma": s}, weights, evidence


def exponential_reference(answers):
    log_rate = np.linspace(-6, 6, 1501)
    law = stats.expon(scale=np.exp(-log_rate)[:, None])
    weights, evidence = reference((log_rate,), stats.norm(0, 1).logpdf(log_rate), law, answers)
    return {"rate": np.exp(log_rate)}, weights, evidence


def poisson_reference(answers):
    log_rate = np.linspace(-6, 4, 1501)
    rate = np.exp(log_rate)
    prior = stats.gamma(3, scale=1).logpdf(rate) + log_rate
    weights, evidence = reference((log_rate,), prior, stats.poisson(rate[:, None]), answers)
    return {"rate": rate}, weights, evidence


def clip(**kwargs):
    return pmp.ClippedQuery(lower=0, upper=4, **kwargs)


CASES = {
    "normal, laplace": ("normal", normal_reference, clip(epsilon=2.0)),
    "normal, gaussian": ("normal", normal_reference, clip(mechanism=pmp.Gaussian(scale=2.0))),
    "normal, bins": ("normal", normal_reference, pmp.BinnedQuery(edges=[0, 1.5, 4], epsilon=2.0)),
    "exponential, laplace": ("exponential", exponential_reference, clip(epsilon=2.0)),
    "exponential, gaussian": (
        "exponential",
        exponential_reference,
        clip(mechanism=pmp.Gaussian(scale=2.0)),
    ),
    "poisson, laplace": ("poisson", poisson_reference, clip(epsilon=2.0)),
    "poisson, whole": (
        "poisson",
        poisson_reference,
        clip(mechanism=pmp.DiscreteLaplace(epsilon=2.0, sensitivity=4.0)),
    ),
    "poisson, bins": (
        "poisson",
        poisson_reference,
        pmp.BinnedQuery(edges=[1, 2.5, 6], epsilon=2.0),
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_posterior_and_evidence_of_given_answers(case, request):
    """Mean, sd and log evidence against quadrature, for the answers in both orders."""
    name, exactly, query = CASES[case]
    rng = np.random.default_rng(seed_of(request))
    other = pmp.BinnedQuery(edges=[2.0], epsilon=1.0)
    queries = [query] * 8 + [other] * 3
    answers = [(q, q.simulate(rng, int(rng.integers(0, 6)))) for q in queries]
    grids, weights, evidence = exactly(answers)
    for given in (answers, answers[::-1]):
        stream = opened(name, draws=200, chains=CHAINS, random_seed=seed_of(request))
        stream.update(*zip(*given, strict=True))
        posterior = stream.result().posterior
        for parameter, grid in grids.items():
            draws = posterior[parameter].values
            mean = weights @ grid
            sd = math.sqrt(weights @ (grid - mean) ** 2)
            for found, wanted in (
                (draws.mean(axis=1), mean),
                (np.sqrt(np.mean((draws - mean) ** 2, axis=1)), sd),
            ):
                assert_t(found, wanted, f"{parameter} of {case}")
        each = [cloud.log_evidence for cloud in stream._clouds]
        assert_t(np.exp(np.array(each) - evidence), 1.0, f"evidence of {case}")
        assert stream.log_evidence == pytest.approx(special.logsumexp(each) - math.log(CHAINS))


def assert_t(found, wanted, what):
    t = (np.mean(found) - wanted) / (np.std(found, ddof=1) / math.sqrt(len(found)))
    assert abs(t) < T_LIMIT, f"{what}: {np.mean(found):.4f} instead of {wanted:.4f}, t = {t:.1f}"


# -- the whole loop is calibrated --------------------------------------------------------------


RUNS = 120


def ranks_of(rng, runs, *, noise=1.0, peek=False, users=40):
    """Return ranks of the true parameters among 19 draws: queries are chosen by answers.

    The interval is wide, so that what is learned of the scale depends on the size of the noise.
    """

    def rule(rng, drawn):
        if peek:
            return pmp.BinnedQuery(edges=[rule.record], epsilon=5.0)
        middle, c = float(drawn["mu"]), 3 * float(drawn["sigma"])
        return pmp.ClippedQuery(lower=middle - c, upper=middle + c, epsilon=5.0)

    ranks = []
    for _ in range(runs):
        truth = {"mu": rng.normal(0, 5), "sigma": abs(rng.normal(0, 3))}
        seed = int(rng.integers(2**31))
        stream = opened("normal", epsilon=5.0, draws=160, queries=rule, random_seed=seed)
        for record in rng.normal(truth["mu"], truth["sigma"], users):
            rule.record = record
            query = stream.query()
            contribution = query.contribution(record)
            y = contribution + noise * (query.simulate(rng, record) - contribution)
            stream.update(query, y)
        posterior = stream.result().posterior
        chosen = rng.choice(160, 19, replace=False)
        ranks.append([int((posterior[k].values[0, chosen] < v).sum()) for k, v in truth.items()])
    return np.array(ranks)


def uniform_tail(ranks):
    """Return the smallest tail of chi-square over four bins, of both parameters, corrected."""
    tails = [stats.chisquare(np.bincount(r // 5, minlength=4)).pvalue for r in ranks.T]
    return 2 * min(tails)


@pytest.mark.slow
def test_the_adaptive_loop_is_calibrated(request):
    rng = np.random.default_rng(seed_of(request))
    assert uniform_tail(ranks_of(rng, RUNS)) > FALSE_ALARM


@pytest.mark.slow
def test_noise_that_is_too_small_is_noticed(request):
    """Users who draw noise of scale b / sqrt(2), as in the published code."""
    rng = np.random.default_rng(seed_of(request))
    assert uniform_tail(ranks_of(rng, RUNS, noise=1 / math.sqrt(2))) < FALSE_ALARM


@pytest.mark.slow
def test_a_query_that_has_seen_the_record_is_noticed(request):
    rng = np.random.default_rng(seed_of(request))
    assert uniform_tail(ranks_of(rng, RUNS // 3, peek=True)) < FALSE_ALARM


# -- adaptation pays ---------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["binned", "clipped"])
def test_adaptive_queries_beat_a_fixed_interval(kind, request):
    """At epsilon 1 and 1000 users the posterior sd of the mean is a fourth or less."""
    rng = np.random.default_rng(seed_of(request))
    with pm.Model():
        mu = pm.Normal("mu", 0, 100)
        x = pm.Normal("x", mu, pm.math.sqrt(pm.InverseGamma("variance", 1, 1)))
    sd = math.sqrt(10)
    fixed = pmp.ClippedQuery(lower=50 - 10 * sd, upper=50 + 10 * sd, epsilon=1.0)
    records = rng.normal(50, sd, 1000)
    adaptive = pmp.online(x, epsilon=1.0, draws=300, queries=kind, random_seed=1)
    for record in records:
        query = adaptive.query()
        adaptive.update(query, query.simulate(rng, record))
    plain = pmp.online(x, epsilon=1.0, draws=300, random_seed=1)
    plain.update(fixed, fixed.simulate(rng, records))
    spread = [float(s.result().posterior["mu"].std()) for s in (adaptive, plain)]
    assert spread[0] < spread[1] / 4
    assert abs(float(adaptive.result().posterior["mu"].mean()) - 50) < 6 * spread[0]


# -- what a stream is ---------------------------------------------------------------------------


def test_the_same_seed_gives_the_same_stream_and_another_does_not():
    def draws(seed):
        stream = opened("normal", draws=50, random_seed=seed)
        rng = np.random.default_rng(1)
        for _ in range(10):
            query = stream.query()
            stream.update(query, query.simulate(rng, 1.0))
        return stream.result().posterior["mu"].values

    assert np.array_equal(draws(3), draws(3))
    assert not np.array_equal(draws(3), draws(4))


def test_looking_changes_nothing():
    quiet, curious = (opened("normal", draws=50) for _ in range(2))
    query = pmp.BinnedQuery(edges=[0.0], epsilon=1.0)
    for answer in (0, 1, 1):
        quiet.update(query, answer)
        curious.query()
        curious.result()
        curious.update(query, answer)
    assert np.array_equal(quiet.result().posterior["mu"], curious.result().posterior["mu"])


def test_one_query_to_many_and_many_to_one_call():
    query = pmp.BinnedQuery(edges=[0.0, 1.0], epsilon=1.0)
    streams = [opened("normal", draws=50) for _ in range(3)]
    for answer in (0, 2, 1):
        streams[0].update(query, answer)
    streams[1].update(query, np.array([0, 2, 1]))
    streams[2].update([query] * 3, [0, 2.0, np.int64(1)])
    first, *others = (s.result().posterior["sigma"].values for s in streams)
    assert all(np.array_equal(first, other) for other in others)


def test_several_queries_may_be_outstanding():
    stream = opened("normal", draws=50)
    asked = [stream.query() for _ in range(5)]
    assert len(set(asked)) > 1
    rng = np.random.default_rng(1)
    for query in asked[::-1]:
        stream.update(query, query.simulate(rng, 2.0))
    assert stream.size == 5


def test_a_stream_is_iterated_over():
    stream = opened("poisson", draws=50, queries="clipped")
    rng = np.random.default_rng(1)
    for record, query in zip(rng.poisson(3.0, 8), stream, strict=False):
        info = stream.update(query, query.simulate(rng, record))
        assert math.isfinite(info.log_increment)
    assert stream.size == 8


def test_the_result_is_read_by_arviz():
    stream = opened("normal", draws=50, chains=4)
    query = pmp.ClippedQuery(lower=-2, upper=2, epsilon=0.5)
    stream.update(query, [0.3, -4.0])
    result = stream.result()
    assert dict(result.posterior.sizes) == {"chain": 4, "draw": 50}
    assert set(result.posterior.data_vars) == {"mu", "sigma", "variance"}
    np.testing.assert_allclose(result.posterior.variance, result.posterior.sigma**2)
    assert dict(result.sample_stats.sizes) == {"chain": 4, "release": 2}
    assert set(result.sample_stats.data_vars) == {
        "ess",
        "log_increment",
        "parts",
        "moves",
        "accept",
    }
    assert result.observed_data.released.values.tolist() == [0.3, -4.0]
    assert pmp.Query.from_json(str(result.constant_data["query"].values[0])) == query
    assert str(result.privacy.guarantee.values).startswith("0.5-DP")
    np.testing.assert_allclose(
        result.sample_stats.log_increment.sum("release"),
        [cloud.log_evidence for cloud in stream._clouds],
    )
    assert result.posterior.attrs["log_evidence"] == stream.log_evidence
    assert result.posterior.attrs["log_evidence_error"] > 0


def test_clouds_tell_how_well_they_agree():
    az = pytest.importorskip("arviz_stats")
    stream = opened("normal", draws=400, chains=4, epsilon=3.0)
    rng = np.random.default_rng(3)
    for record in rng.normal(2.0, 1.0, 60):
        query = stream.query()
        stream.update(query, query.simulate(rng, record))
    assert float(az.rhat(stream.result().posterior)["mu"]) < 1.03


def test_the_guarantee_is_that_of_the_weakest_answer():
    stream = opened("normal", draws=50)
    stream.update(pmp.BinnedQuery(edges=[0.0], epsilon=1.0), 1)
    stream.update(pmp.BinnedQuery(edges=[0.0], epsilon=2.5), 1)
    assert str(stream.result().privacy.guarantee.values).startswith("2.5-DP")
    stream.update(pmp.ClippedQuery(lower=0, upper=1, mechanism=pmp.Gaussian(scale=1.0)), 0.2)
    assert "zCDP" in str(stream.result().privacy.guarantee.values)


def test_nothing_released_is_the_prior():
    stream = opened("normal", draws=400)
    assert stream.log_evidence == pytest.approx(0.0)
    assert stream.result().posterior["mu"].std() == pytest.approx(5.0, rel=0.3)
    assert str(stream.result().privacy.guarantee.values) == "nothing was released"


@pytest.mark.parametrize("score", ["first", "trace", "d_optimal", "harmonic"])
@pytest.mark.parametrize("name", ["normal", "exponential", "poisson"])
@pytest.mark.filterwarnings("ignore::pymc_privacy.errors.DesignWarning")
def test_every_score_has_queries_for_every_law(name, score):
    rng = np.random.default_rng(1)
    for kind in ("binned", "clipped"):
        stream = opened(name, draws=60, queries=kind, score=score, thompson=kind == "binned")
        for _ in range(4):
            query = stream.query()
            stream.update(query, query.simulate(rng, 2))
        assert query.epsilon == pytest.approx(1.0)


# -- public covariates, and vectors --------------------------------------------------------------


@pytest.fixture(scope="module")
def regression():
    with pm.Model() as model:
        z = pm.Data("z", 0.0)
        slope = pm.Normal("slope", 0, 3)
        pm.Normal("x", 1.0 + slope * z, 0.5)
    return model


def test_public_covariates_differ_from_user_to_user(regression, request):
    """The posterior of a slope against a grid."""
    rng = np.random.default_rng(seed_of(request))
    stream = pmp.online(regression["x"], epsilon=3.0, draws=300, chains=CHAINS, random_seed=2)
    slopes = np.linspace(-15, 15, 4001)
    logs = stats.norm(0, 3).logpdf(slopes)
    for known in rng.normal(size=25):
        query = stream.query(z=known)
        assert query.covariates == (("z", known),)
        answer = query.simulate(rng, 1.0 + 2.0 * known + 0.5 * rng.normal())
        stream.update(query, answer)
        law = stats.norm(1.0 + slopes[:, None] * known, 0.5)
        logs += np.log(probability(law, query, answer))
    weights = np.exp(logs - special.logsumexp(logs))
    found = stream.result().posterior["slope"].values
    assert_t(found.mean(axis=1), weights @ slopes, "slope")


def test_covariates_that_the_model_has_not_are_refused(regression):
    stream = pmp.online(regression["x"], epsilon=3.0, draws=50)
    with pytest.raises(RecordError, match="named after data of the model"):
        stream.query(w=1.0)
    with pytest.raises(RecordError, match="shape"):
        stream.query(z=[1.0, 2.0])
    with pytest.raises(RecordError, match="named after data"):
        stream.update(pmp.BinnedQuery(edges=[0], epsilon=1, covariates={"w": 1.0}), 0)


@pytest.mark.parametrize("kind", ["independent", "multivariate"])
def test_vectors_are_asked_one_entry_at_a_time(kind, request):
    rng = np.random.default_rng(seed_of(request))
    with pm.Model():
        mu = pm.Normal("mu", 0, 3, shape=2)
        independent = kind == "independent"
        x = pm.Normal("x", mu, 1.0) if independent else pm.MvNormal("x", mu, np.eye(2))
    stream = pmp.online(x, epsilon=4.0, draws=200, random_seed=1)
    for k in range(120):
        query = stream.query()
        assert query.coordinate == k % 2
        stream.update(query, query.simulate(rng, rng.normal([-2.0, 3.0], 1.0)))
    mean = stream.result().posterior["mu"].mean(("chain", "draw")).values
    np.testing.assert_allclose(mean, [-2.0, 3.0], atol=1.2)
    assert stream.query(coordinate=1).coordinate == 1
    with pytest.raises(RecordError, match="coordinate must be one of 0"):
        stream.query(coordinate=2)
    with pytest.raises(RecordError, match="coordinate must be"):
        stream.update(pmp.BinnedQuery(edges=[0], epsilon=1), 0)


# -- refusals -------------------------------------------------------------------------------------

ANSWERS = {
    "a bin too many": (pmp.BinnedQuery(edges=[0.0], epsilon=1.0), 2),
    "a negative bin": (pmp.BinnedQuery(edges=[0.0], epsilon=1.0), -1),
    "half a bin": (pmp.BinnedQuery(edges=[0.0], epsilon=1.0), 0.5),
    "nan": (pmp.ClippedQuery(lower=0, upper=1, epsilon=1), math.nan),
    "infinity": (pmp.ClippedQuery(lower=0, upper=1, epsilon=1), math.inf),
    "far beyond Laplace noise": (pmp.ClippedQuery(lower=0, upper=1, epsilon=1), 1002.0),
    "far below it": (pmp.ClippedQuery(lower=0, upper=1, epsilon=1), -1e308),
    "far beyond Gaussian noise": (
        pmp.ClippedQuery(lower=0, upper=1, mechanism=pmp.Gaussian(scale=1.0)),
        52.0,
    ),
    "a word": (pmp.ClippedQuery(lower=0, upper=1, epsilon=1), "1"),
    "none": (pmp.ClippedQuery(lower=0, upper=1, epsilon=1), None),
    "an empty list": (pmp.ClippedQuery(lower=0, upper=1, epsilon=1), []),
    "no query": (3, 1),
    "two queries, one answer": ([pmp.ClippedQuery(lower=0, upper=1, epsilon=1)] * 2, [1.0]),
    "whole noise": (
        pmp.ClippedQuery(lower=0, upper=1, mechanism=pmp.DiscreteLaplace(scale=1.0)),
        1,
    ),
}


@pytest.mark.parametrize("name", ANSWERS)
def test_answers_that_are_none_are_refused(name):
    stream = opened("normal", draws=50)
    with pytest.raises(StreamError, match=r"must|takes|is for"):
        stream.update(*ANSWERS[name])
    assert stream.size == 0


def test_the_most_absurd_answer_that_is_taken_drowns_no_other():
    """The posterior of the other answers stays as it was, and the evidence is a number."""
    rng = np.random.default_rng(1)
    query = pmp.ClippedQuery(lower=0, upper=4, epsilon=2.0)
    answers = query.simulate(rng, rng.normal(2.0, 1.0, 40))
    stream, other = (opened("normal", epsilon=2.0, draws=300) for _ in range(2))
    stream.update(query, [2000.0, *answers])
    other.update(query, [4.0, *answers])
    for name in ("mu", "sigma"):
        found, wanted = (s.result().posterior[name].values for s in (stream, other))
        np.testing.assert_allclose(found, wanted, rtol=1e-6)
    assert stream.log_evidence == pytest.approx(other.log_evidence - 1996 / 2)


@pytest.mark.parametrize("kind", ["binned", "clipped"])
@pytest.mark.parametrize("epsilon", [1e-6, 36.0])
def test_every_epsilon_has_queries(kind, epsilon):
    rng = np.random.default_rng(1)
    stream = opened("normal", epsilon=epsilon, draws=60, queries=kind)
    for record in (1.0, 2.0, 3.0):
        query = stream.query()
        assert query.epsilon == pytest.approx(epsilon)
        stream.update(query, query.simulate(rng, record))
    assert math.isfinite(stream.log_evidence)


def test_a_batch_with_one_bad_answer_is_refused_as_a_whole():
    stream = opened("normal", draws=50)
    with pytest.raises(StreamError):
        stream.update(pmp.BinnedQuery(edges=[0.0], epsilon=1.0), [0, 1, 7])
    assert stream.size == 0


def test_integer_noise_needs_whole_answers():
    stream = opened("poisson", draws=50)
    query = pmp.ClippedQuery(lower=0, upper=3, mechanism=pmp.DiscreteLaplace(scale=2.0))
    with pytest.raises(StreamError, match="whole number"):
        stream.update(query, 1.5)
    with pytest.raises(StreamError, match="at most"):
        stream.update(pmp.ClippedQuery(lower=0, upper=1e6, epsilon=1.0), 3.0)


ARGUMENTS = [
    {"epsilon": 0},
    {"epsilon": math.nan},
    {"epsilon": "1"},
    {"epsilon": 37.0},
    {"draws": 5},
    {"draws": 10.5},
    {"chains": 0},
    {"queries": "both"},
    {"queries": None},
    {"score": "best"},
    {"memory": 1},
    {"thompson": "yes"},
    {"random_seed": -1},
    {"random_seed": "one"},
    {"path": 7},
]


@pytest.mark.parametrize("given", ARGUMENTS, ids=str)
def test_arguments_that_are_none_are_refused(given):
    with pytest.raises(ArgumentError, match="must be"):
        opened("normal", **given)


def test_a_rule_that_returns_no_query_is_refused():
    with pytest.raises(StreamError, match="returned 7"):
        opened("normal", draws=50, queries=lambda rng, drawn: 7).query()


def observed():
    return pm.Normal("x", pm.Normal("mu"), 1, observed=[1.0])


def with_data():
    mu = pm.Normal("mu")
    pm.Normal("y", mu, 1, observed=[1.0])
    return pm.Normal("x", mu, 1)


def with_a_potential():
    mu = pm.Normal("mu")
    pm.Potential("p", -(mu**2))
    return pm.Normal("x", mu, 1)


def without_priors():
    return pm.Normal("x", 0, 1)


def flat():
    return pm.Normal("x", pm.Flat("mu"), 1)


def without_a_cdf():
    return pm.SkewNormal("x", mu=pm.Normal("mu"), sigma=1, alpha=1)


def several_records():
    mu = pm.Normal("mu")
    x = pm.Normal("x", mu, 1)
    pm.Normal("y", x, 1)
    return x


def discrete_parameter():
    return pm.Normal("x", pm.Poisson("k", 3), 1)


def a_table():
    return pm.Normal("x", pm.Normal("mu"), 1, shape=(3, 2))


def dependent_entries():
    return pm.Dirichlet("x", pm.HalfNormal("a", shape=3))


def drawn_in_its_law():
    """A law that PyMC derives from a copy, in which the parameter would be drawn."""
    return pm.Censored("x", pm.Normal.dist(pm.Normal("mu"), 1), lower=0, upper=5)


def an_expression():
    return pm.Normal("x", pm.Normal("mu"), 1) + 1.0


def a_number():
    return 3.0


@pytest.mark.parametrize(
    ("write", "sentence"),
    [
        (observed, "must not be observed"),
        (with_data, "nothing observed"),
        (with_a_potential, "nothing observed"),
        (without_priors, "unknown parameters with priors"),
        (flat, "proper prior"),
        (without_a_cdf, "log cdf"),
        (several_records, "depend on the record"),
        (discrete_parameter, "continuous"),
        (a_table, "one number, or a vector"),
        (dependent_entries, "one number, or a vector"),
        (an_expression, "random variable"),
        (a_number, "random variable"),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_models_that_are_none_of_one_record_are_refused(write, sentence):
    with pm.Model():
        record = write()
        with pytest.raises(PrivacyError, match=sentence):
            pmp.online(record, epsilon=1.0)


def test_a_law_of_a_copy_has_the_parameters_of_the_model():
    """The evidence of one answer about a censored record, against SciPy's; and again."""
    with pm.Model():
        x = drawn_in_its_law()
    query, y = pmp.ClippedQuery(lower=-1, upper=3, epsilon=1.0), 1.3
    stream = pmp.online(x, epsilon=1.0, draws=100, random_seed=1)
    stream.update(query, y)
    particles = stream._target.draw_prior(stream._generator(0, 0), 100)[:, 0]
    cuts = np.linspace(0, 3, 31)
    at = ((cuts[1:] + cuts[:-1]) / 2)[:, None] + 0.05 * np.polynomial.legendre.leggauss(8)[0]
    weights = 0.05 * np.tile(np.polynomial.legendre.leggauss(8)[1], 30)
    law, noise = stats.norm(particles[:, None], 1), kernel(query)
    inside = law.pdf(at.ravel()) @ (weights * noise(y - at.ravel()))
    ends = law.cdf(0)[:, 0] * noise(y) + law.sf(3)[:, 0] * noise(y - 3)
    assert stream.log_evidence == pytest.approx(math.log(np.mean(inside + ends)), abs=1e-3)


def test_a_density_and_a_cdf_that_disagree_are_refused():
    with pm.Model():
        x = pm.CustomDist(
            "x",
            pm.Normal("mu"),
            logp=lambda value, mu: pm.logp(pm.Normal.dist(mu, 1), value),
            logcdf=lambda value, mu: pm.logcdf(pm.Normal.dist(mu, 2), value),
            dist=lambda mu, size: pm.Normal.dist(mu, 1, size=size),
        )
    stream = pmp.online(x, epsilon=1.0, draws=50, random_seed=1)
    with pytest.raises(RecordError, match="logp and logcdf do not agree"):
        stream.update(pmp.ClippedQuery(lower=-1, upper=3, epsilon=1.0), 1.3)


def test_the_model_is_found_outside_of_its_block():
    with pm.Model() as model:
        x = pm.Normal("x", pm.Normal("mu"), 1)
    with pm.Model():
        assert pmp.online(x, epsilon=1.0, draws=50).size == 0
    assert pmp.online(x, epsilon=1.0, draws=50, model=model).size == 0
