"""What a user publishes: its law, its promise, and nothing that depends on the record but it."""

import json
import math
import random
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

import pymc_privacy as pmp
from pymc_privacy.errors import MechanismError, ReleaseError
from pymc_privacy.sanitize.queries import Query, respond
from tests.sanitize.test_exact_noise import seeded_below
from tests.stochastic import FALSE_ALARM, assert_mean, seed_of, z_of_mean

QUERIES = {
    "clipped": pmp.ClippedQuery(lower=-1, upper=3, epsilon=2),
    "gaussian": pmp.ClippedQuery(
        lower=0, upper=2.5, mechanism=pmp.Gaussian(rho=0.3, sensitivity=2.5)
    ),
    "scale": pmp.ClippedQuery(lower=0, upper=2, mechanism=pmp.Laplace(scale=3.0)),
    "whole": pmp.ClippedQuery(
        lower=0, upper=5, mechanism=pmp.DiscreteLaplace(epsilon=1.0, sensitivity=5.0)
    ),
    "binned": pmp.BinnedQuery(edges=(-1, 0.5, 1), epsilon=1.5),
    "entry": pmp.BinnedQuery(edges=[0], epsilon=1, coordinate=1, covariates={"z": [1.0, 2.5]}),
}
each = pytest.mark.parametrize("query", QUERIES.values(), ids=QUERIES)


@each
def test_a_query_travels_as_json(query):
    line = query.to_json()
    assert "\n" not in line
    assert pmp.Query.from_json(line) == query == type(query).from_json(line)
    assert hash(pmp.Query.from_json(line)) == hash(query)
    assert replace(query, coordinate=query.coordinate) == query


@each
def test_nothing_can_be_changed(query):
    with pytest.raises(AttributeError):
        query.epsilon = 7.0


def test_what_can_be_said_in_several_ways_is_the_same():
    clipped = pmp.ClippedQuery(lower=0, upper=4, epsilon=2)
    laplace = pmp.Laplace(epsilon=2.0, sensitivity=4.0)
    assert clipped == pmp.ClippedQuery(lower=0.0, upper=np.float64(4), mechanism=laplace)
    assert pmp.BinnedQuery(edges=np.array([0, 1]), epsilon=1) == pmp.BinnedQuery(
        edges=(0.0, 1.0), epsilon=1.0
    )
    assert pmp.BinnedQuery(edges=0.5, epsilon=1).edges == (0.5,)


def test_the_bin_is_the_number_of_edges_that_are_not_above():
    query = pmp.BinnedQuery(edges=[0.0, 1.0], epsilon=1.0)
    records = [-5.0, -1e-300, 0.0, 0.5, 1.0, 1e300]
    assert [query.contribution(x) for x in records] == [0, 0, 1, 1, 2, 2]
    assert query.contribution(np.array(records)).tolist() == [0, 0, 1, 1, 2, 2]
    assert query.categories == 3


def test_contributions_of_entries():
    query = pmp.ClippedQuery(lower=0, upper=1, epsilon=1, coordinate=1)
    assert query.contribution([5.0, 0.25]) == 0.25
    assert query.contribution([[5.0, 0.25], [0.0, 9.0]]).tolist() == [0.25, 1.0]
    with pytest.raises(ReleaseError, match="entry 1"):
        query.contribution([5.0])


GUARANTEES = {
    "clipped": pmp.PureDP(2.0, neighbours="replace_one"),
    "scale": pmp.PureDP(2 / 3, neighbours="replace_one"),
    "whole": pmp.PureDP(1.0, neighbours="replace_one"),
    "binned": pmp.PureDP(1.5, neighbours="replace_one"),
}


@pytest.mark.parametrize("name", GUARANTEES)
def test_what_is_promised(name):
    assert QUERIES[name].guarantee == GUARANTEES[name]


def test_gaussian_noise_on_a_lattice_promises_what_is_proved_of_it():
    """Analytic calibration is of noise on the reals; what is drawn is on a lattice."""
    noise = pmp.Gaussian(epsilon=1.0, delta=1e-5, sensitivity=2.0)
    query = pmp.ClippedQuery(lower=-1, upper=1, mechanism=noise)
    assert query.guarantee.rho == pytest.approx(2.0 / noise.scale**2)
    assert query.epsilon is None
    released = [query.release(0.0) for _ in range(1500)]
    assert_mean(np.square(released), noise.scale**2)


@pytest.mark.parametrize("record", [-50.0, 0.4, 3.0])
def test_the_noise_of_releases_has_the_stated_size(record):
    """The mean of |Laplace(b)| is b: a scale short of it by the square root of two is seen."""
    query = pmp.ClippedQuery(lower=-1, upper=3, epsilon=2)
    noise = np.array([query.release(record) for _ in range(1500)]) - query.contribution(record)
    assert_mean(np.abs(noise), 2.0)
    assert abs(z_of_mean(np.abs(noise) / math.sqrt(2), 2.0)) > 10
    tail = stats.kstest(noise, stats.laplace(scale=2.0).cdf).pvalue
    assert tail > FALSE_ALARM


@each
def test_simulated_and_published_answers_have_one_law(query, request):
    rng = np.random.default_rng(seed_of(request))
    record = [0.7, 2.0] if query.coordinate is not None else 2.0
    many = np.repeat([record], 2000, axis=0)
    simulated, published = query.simulate(rng, many), query.release(many)
    assert simulated.shape == published.shape == (2000,)
    if isinstance(query, pmp.BinnedQuery):
        counts = [np.bincount(x, minlength=query.categories) for x in (simulated, published)]
        tail = stats.chi2_contingency(counts).pvalue
    else:
        tail = stats.ks_2samp(simulated, published).pvalue
    assert tail > FALSE_ALARM


@pytest.mark.parametrize("truth", [0, 2])
def test_randomized_response_is_exact(truth, request):
    below, draws = seeded_below(request), 20_000
    answers = [respond(below, truth, 4, 1.2) for _ in range(draws)]
    wanted = np.full(4, 1.0 / (math.exp(1.2) + 3))
    wanted[truth] *= math.exp(1.2)
    tail = stats.chisquare(np.bincount(answers, minlength=4), wanted * draws).pvalue
    assert tail > FALSE_ALARM


def test_how_long_an_answer_takes_does_not_depend_on_the_record():
    """The same random bits are asked for the same number of times, but for who is answered."""

    def proposals(truth):
        asked = []

        def below(n):
            asked.append(n)
            return rng.randrange(n)

        rng = random.Random(5)
        for _ in range(3000):
            respond(below, truth, 3, 1.0)
        return np.sum(np.array(asked) == 3)

    # Rounds of 3000 answers, each kept with probability (1 + 2 / e) / 3.
    chance = (1 + 2 * math.exp(-1.0)) / 3
    error = math.sqrt(3000 * (1 - chance)) / chance
    assert abs(proposals(0) - proposals(2)) < 6 * error


@pytest.mark.parametrize("query", [QUERIES["clipped"], QUERIES["binned"]], ids=["clip", "bins"])
def test_an_audit_of_releases_never_exceeds_the_promise(query, request):
    """The two records that are told apart best, by what is really published."""
    rng = np.random.default_rng(seed_of(request))

    def published(rng, record, draws):
        return query.release(np.full(draws, record))

    found = pmp.audit(rng, published, -9.0, 9.0, draws=5000)
    assert found.epsilon <= query.guarantee.epsilon
    assert found.epsilon > 0.5 * query.guarantee.epsilon, "an audit that sees nothing says nothing"


def test_an_audit_sees_noise_that_is_too_small(request):
    rng = np.random.default_rng(seed_of(request))
    query = QUERIES["clipped"]

    def mutant(rng, record, draws):
        x = query.contribution(np.full(draws, record))
        return x + rng.laplace(scale=query.mechanism.scale / math.sqrt(2), size=draws)

    found = pmp.audit(rng, mutant, -9.0, 9.0, draws=60_000, low_bits=False)
    assert found.epsilon > query.guarantee.epsilon


def test_an_interval_as_narrow_as_floats_allow_is_published_exactly():
    """Noise added in floating point would show the record in its lowest bits."""
    query = pmp.ClippedQuery(lower=1e16, upper=1e16 + 4, epsilon=1.0)
    noise = np.array([query.release(1e16 + 2) for _ in range(2000)]) - 1e16
    assert abs(noise.mean() - 2) < 6 * 4 * math.sqrt(2 / 2000)


BAD_CLIPS = [
    {"lower": 1, "upper": 1, "epsilon": 1},
    {"lower": 2, "upper": 1, "epsilon": 1},
    {"lower": math.nan, "upper": 1, "epsilon": 1},
    {"lower": -math.inf, "upper": 1, "epsilon": 1},
    {"lower": -1e308, "upper": 1e308, "epsilon": 1},
    {"lower": 0, "upper": 1},
    {"lower": 0, "upper": 1, "epsilon": 0},
    {"lower": 0, "upper": 1, "epsilon": "1"},
    {"lower": 0, "upper": 1, "epsilon": True},
    {"lower": 0, "upper": 1, "epsilon": 1, "mechanism": pmp.Laplace(scale=7.0)},
    {"lower": 0, "upper": 1, "mechanism": pmp.Laplace(epsilon=1.0, sensitivity=0.5)},
    {"lower": 0, "upper": 1, "mechanism": pmp.Laplace(scale=[1.0, 2.0])},
    {
        "lower": 0,
        "upper": 1,
        "mechanism": pmp.Laplace(epsilon=1.0, sensitivity=1.0, neighbours="add_remove"),
    },
    {"lower": 0, "upper": 1, "mechanism": pmp.RandomizedResponse(epsilon=1.0)},
    {"lower": 0, "upper": 1.5, "mechanism": pmp.DiscreteLaplace(scale=1.0)},
    {"lower": 0, "upper": 1, "epsilon": 1, "coordinate": -1},
    {"lower": 0, "upper": 1, "epsilon": 1, "coordinate": 0.5},
    {"lower": 0, "upper": 1, "epsilon": 1, "covariates": {"z": math.nan}},
    {"lower": 0, "upper": 1, "epsilon": 1, "covariates": 3},
]
BAD_BINS = [
    {"edges": [], "epsilon": 1},
    {"edges": [1, 1], "epsilon": 1},
    {"edges": [2, 1], "epsilon": 1},
    {"edges": [0, math.nan], "epsilon": 1},
    {"edges": [0, math.inf], "epsilon": 1},
    {"edges": [[0, 1]], "epsilon": 1},
    {"edges": ["a"], "epsilon": 1},
    {"edges": None, "epsilon": 1},
]


@pytest.mark.parametrize("given", BAD_CLIPS, ids=str)
def test_a_clipped_query_that_is_none_is_refused(given):
    with pytest.raises(pmp.sanitize.queries.PrivacyError, match=r"must|needs"):
        pmp.ClippedQuery(**given)


@pytest.mark.parametrize("given", BAD_BINS, ids=str)
def test_a_binned_query_that_is_none_is_refused(given):
    with pytest.raises(ReleaseError, match="edges must be"):
        pmp.BinnedQuery(**given)


@pytest.mark.parametrize("epsilon", [0, -1, math.inf, "1", 5000.0])
def test_a_promise_that_is_none_is_refused(epsilon):
    with pytest.raises(MechanismError):
        pmp.BinnedQuery(edges=[0], epsilon=epsilon)


@each
@pytest.mark.parametrize("record", [math.nan, math.inf, "a", None, [math.nan, math.nan]])
def test_what_is_no_record_is_refused_and_not_shown(query, record):
    with pytest.raises(ReleaseError, match="record") as caught:
        query.release(record)
    assert "'a'" not in str(caught.value)


LINES = [
    "",
    "{}",
    "[]",
    "null",
    '{"query": "binned"}',
    '{"query": "else", "edges": [0]}',
    '{"query": "binned", "edges": [0], "epsilon": 1, "more": 2}',
    '{"query": "clipped", "lower": 0, "upper": 1, "mechanism": {"name": "eval"}}',
    "[" * 5000,
    7,
]


@pytest.mark.parametrize("line", LINES, ids=range(len(LINES)))
def test_what_is_no_query_is_refused(line):
    with pytest.raises(ReleaseError, match="line must be"):
        Query.from_json(line)


def test_a_query_of_another_kind_is_refused():
    with pytest.raises(ReleaseError, match="reads every kind"):
        pmp.ClippedQuery.from_json(QUERIES["binned"].to_json())


def test_a_line_holds_no_more_than_the_query():
    assert json.loads(QUERIES["binned"].to_json()) == {
        "query": "binned",
        "edges": [-1.0, 0.5, 1.0],
        "epsilon": 1.5,
    }
