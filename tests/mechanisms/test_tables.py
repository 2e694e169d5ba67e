"""Mechanisms that are tables, or release sets: their laws, promises, designs and files."""

import itertools

import numpy as np
import pymc as pm
import pytest
from scipy import special, stats

import pymc_privacy as pmp
from pymc_privacy.densities.summed_out import summed_out
from pymc_privacy.errors import MechanismError, RecordError, ReleaseError
from pymc_privacy.model.database import find_databases
from tests import references
from tests.stochastic import assert_law, assert_mean, seed_of

Table, Sets = pmp.TableMechanism, pmp.SetResponse
THREE = Table(probabilities=[[0.8, 0.1, 0.1], [0.1, 0.8, 0.1], [0.2, 0.2, 0.6]])
CELL_KEYS = Table(
    probabilities=[[1, 0, 0, 0], [0.2, 0.6, 0.2, 0], [0.1, 0.2, 0.4, 0.3]],
    neighbours="add_remove",
    continues=True,
)
DESIGNS = {
    "warner": Table(probabilities=[[0.7, 0.3], [0.3, 0.7]]),
    "forced response": Table.forced_response(forced=[3 / 36, 6 / 36]),
    "unrelated question": Table.unrelated_question(p=0.7, prevalence=0.25),
    "triangular": Table.triangular(p=0.25),
    "kuk": Table.kuk(p_yes=0.8, p_no=0.2, cards=5),
}
PROTOCOLS = {
    "symmetric unary": Sets.symmetric_unary_encoding,
    "optimised unary": Sets.optimised_unary_encoding,
    "subset": Sets.subset_selection,
    "hashing": Sets.local_hashing,
}


# The laws.
def test_a_table_is_looked_up():
    found = np.exp(THREE.log_density(np.arange(-1, 4), np.arange(-1, 4)[:, None]))
    np.testing.assert_allclose(found[1:4, 1:4], THREE.table)
    assert not found[[0, 4]].any()
    assert not found[:, [0, 4]].any()
    assert np.isneginf(THREE.log_density(0.5, 0))


def test_a_table_that_continues_shifts_its_last_row():
    law = np.exp(CELL_KEYS.log_density(np.arange(8), np.arange(5)[:, None]))
    np.testing.assert_allclose(law.sum(axis=1), 1)
    np.testing.assert_allclose(law[4], [0, 0, 0.1, 0.2, 0.4, 0.3, 0, 0])


@pytest.mark.parametrize("mechanism", [THREE, CELL_KEYS], ids=["ends", "continues"])
def test_a_table_is_simulated(mechanism, request):
    rng = np.random.default_rng(seed_of(request))
    truth = 2 if mechanism is THREE else 5
    drawn = mechanism.simulate(rng, np.full(60_000, truth))
    assert drawn.dtype == np.int64
    for k in range(9):
        expected = float(np.exp(mechanism.log_density(k, truth)))
        assert_mean(drawn == k, expected, what=f"P({k})")


def test_what_a_table_promises_and_identifies():
    assert pytest.approx(np.log(8)) == THREE.epsilon
    assert THREE.guarantee == pmp.PureDP(THREE.epsilon, neighbours="replace_one")
    assert THREE.rank == 3
    assert THREE.condition_number == pytest.approx(np.linalg.cond(THREE.table))
    singular = Table(probabilities=[[0.5, 0.5], [0.2, 0.8], [0.35, 0.65]])
    assert (singular.rank, singular.condition_number) == (2, np.inf)
    for none in (Table.triangular(p=0.3), Table.mangat(p=0.3), CELL_KEYS):
        assert none.epsilon == np.inf
        assert none.guarantee is None


def test_counts_that_differ_by_one_person_are_nearer_than_any_two():
    k = np.arange(6)
    rows = np.exp(-0.5 * np.abs(k - k[:, None]))
    rows /= rows.sum(axis=1, keepdims=True)
    one = Table(probabilities=rows, neighbours="add_remove")
    any_two = Table(probabilities=rows)
    steps = np.abs(np.diff(np.log(rows), axis=0)).max()
    assert one.epsilon == pytest.approx(steps)
    assert any_two.epsilon > 2 * one.epsilon


def test_designs_are_the_tables_of_their_definitions():
    q = 0.25
    np.testing.assert_allclose(Table.crosswise(p=q).table, [[q, 1 - q], [1 - q, q]])
    np.testing.assert_allclose(Table.triangular(p=q).table, [[1 - q, q], [0, 1]])
    np.testing.assert_allclose(Table.mangat(p=q).table, [[q, 1 - q], [0, 1]])
    forced = [[1 - 6 / 36, 6 / 36], [3 / 36, 1 - 3 / 36]]
    np.testing.assert_allclose(DESIGNS["forced response"].table, forced)
    unrelated = [[0.7 + 0.3 * 0.75, 0.3 * 0.25], [0.3 * 0.75, 0.7 + 0.3 * 0.25]]
    np.testing.assert_allclose(DESIGNS["unrelated question"].table, unrelated)
    cards = [stats.binom.pmf(np.arange(6), 5, share) for share in (0.2, 0.8)]
    np.testing.assert_allclose(DESIGNS["kuk"].table, cards)


# Sets of categories.
def by_definition(name, epsilon, k):
    """Return P(set | truth), sets as integers, by adding up what each protocol does."""
    law = np.zeros((k, 2**k))
    e = np.exp(epsilon)
    masks = 1 << np.arange(k)
    for v in range(k):
        if name in ("symmetric unary", "optimised unary"):
            p, q = (0.5, 1 / (e + 1)) if "opt" in name else (special.expit(epsilon / 2), None)
            q = 1 - p if q is None else q
            for bits in itertools.product([0, 1], repeat=k):
                ones = np.where(np.arange(k) == v, p, q)
                law[v, bits @ masks] += np.prod(np.where(bits, ones, 1 - ones))
        elif name == "subset":
            s = max(1, round(k / (e + 1)))
            sets = [list(c) for c in itertools.combinations(range(k), s)]
            weights = np.array([e if v in c else 1.0 for c in sets])
            for c, w in zip(sets, weights / weights.sum(), strict=True):
                law[v, masks[c].sum()] += w
        else:
            g = max(2, round(e + 1))
            for hashes in itertools.product(range(g), repeat=k):
                for value in range(g):
                    p = (e if value == hashes[v] else 1.0) / (e + g - 1)
                    law[v, (np.array(hashes) == value) @ masks] += p / g**k
    return law


@pytest.mark.parametrize("name", PROTOCOLS)
def test_protocols_are_those_of_their_definitions(name, request):
    mechanism = PROTOCOLS[name](epsilon=1.1, categories=4)
    law = np.exp(mechanism.log_density(np.arange(16), np.arange(4)[:, None]))
    np.testing.assert_allclose(law, by_definition(name, 1.1, 4), atol=1e-14)
    assert mechanism.epsilon == pytest.approx(1.1)
    drawn = mechanism.simulate(np.random.default_rng(seed_of(request)), np.full(40_000, 2))
    for k in range(16):
        assert_mean(drawn == k, float(law[2, k]), what=f"P({k})")


def test_wide_sets_are_computed_without_loss():
    mechanism = Sets.symmetric_unary_encoding(epsilon=2.0, categories=52)
    bits = np.random.default_rng(1).integers(0, 2, (5, 52))
    found = mechanism.log_density(mechanism.encode(bits), np.arange(5))
    p = special.expit(1.0)
    truth = np.eye(52)[:5]
    expected = np.where(bits == truth, np.log(p), np.log(1 - p)).sum(axis=1)
    np.testing.assert_allclose(found, expected, rtol=1e-12)


# Inside models.
def share_model(mechanism, answers):
    with pm.Model() as model:
        share = pm.Beta("share", 1, 1)
        x = pm.Bernoulli("x", share, shape=answers.size)
        pmp.Privatized("y", x, mechanism, observed=answers, local=True)
    return model


def log_likelihood(mechanism, answers, share):
    law = (1 - share) * mechanism.table[0][:, None] + share * mechanism.table[1][:, None]
    return np.bincount(answers, minlength=len(law)) @ np.log(law)


@pytest.mark.parametrize("name", DESIGNS)
def test_the_truth_is_summed_out(name):
    mechanism = DESIGNS[name]
    answers = mechanism.simulate(np.random.default_rng(3), np.arange(80) % 2)
    model = share_model(mechanism, answers)
    graph = summed_out(model, find_databases(model))
    density = pm.compile(model.value_vars, graph, on_unused_input="ignore", mode="FAST_COMPILE")
    point, found = model.initial_point(0), []
    for z in (-1.0, 0.4):
        value = density(*(point | {"share_logodds__": z}).values())
        found.append(value - np.log(special.expit(z) * special.expit(-z)))
    shares = special.expit(np.array([-1.0, 0.4]))
    np.testing.assert_allclose(found, log_likelihood(mechanism, answers, shares))


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    [
        "triangular",
        *(pytest.param(n, marks=pytest.mark.exhaustive) for n in DESIGNS if n != "triangular"),
    ],
)
def test_the_share_follows_its_posterior(name, request):
    mechanism = DESIGNS[name]
    rng = np.random.default_rng(seed_of(request))
    answers = mechanism.simulate(rng, (rng.random(2000) < 0.2).astype(int))
    with share_model(mechanism, answers):
        idata = pmp.sample(500, tune=300, chains=2, cores=1, random_seed=1, progressbar=False)
    grid = np.linspace(1e-4, 1 - 1e-4, 4001)
    log_weight = log_likelihood(mechanism, answers, grid)
    density = np.exp(log_weight - log_weight.max())
    law = references.GridPosterior((grid,), density / density.sum())
    assert_law(idata["posterior"]["share"].values, law)


def test_sets_are_summed_out():
    mechanism = Sets.subset_selection(epsilon=1.0, categories=5)
    answers = mechanism.simulate(np.random.default_rng(3), np.arange(40) % 5)
    with pm.Model() as model:
        t = pm.Normal("t")
        p = pm.math.softmax(t * np.arange(5.0))
        x = pm.Categorical("x", p, shape=40)
        pmp.Privatized("y", x, mechanism, observed=answers, local=True)
    graph = summed_out(model, find_databases(model))
    density = pm.compile(model.value_vars, graph, on_unused_input="ignore", mode="FAST_COMPILE")
    values = [{"t": np.array(0.3)}.get(v.name, np.zeros(40, int)) for v in model.value_vars]
    law = by_definition("subset", 1.0, 5)[:, answers].T @ special.softmax(0.3 * np.arange(5))
    assert density(*values) == pytest.approx(stats.norm.logpdf(0.3) + np.log(law).sum())


@pytest.mark.parametrize("count", ["poisson", "binomial"])
def test_counts_behind_a_table_are_summed_out(count):
    releases = np.array([0, 3, 5, 2, 9]) if count == "poisson" else np.array([0, 1, 2, 2, 1])
    mechanism = CELL_KEYS if count == "poisson" else THREE
    with pm.Model() as model:
        rate = pm.Beta("rate", 1, 1)
        law = pm.Poisson.dist(5 * rate) if count == "poisson" else pm.Binomial.dist(2, rate)
        pmp.NoisyCount("y", law, mechanism, observed=releases)
        error = pmp.window_error()
    found = model.compile_logp(vars=model.observed_RVs, mode="FAST_COMPILE")(
        {"rate_logodds__": 0.0}
    )
    counts = np.arange(60) if count == "poisson" else np.arange(3)
    prior = (
        stats.poisson.pmf(counts, 2.5) if count == "poisson" else stats.binom.pmf(counts, 2, 0.5)
    )
    table = np.exp(mechanism.log_density(releases[:, None], counts))
    assert found == pytest.approx(np.log(table @ prior).sum(), rel=1e-12)
    assert error < 1e-9


def test_counts_beyond_a_table_have_no_release():
    with pm.Model() as model:
        pmp.NoisyCount("y", pm.Poisson.dist(1.0), THREE, observed=[0, 2])
    prior = stats.poisson.pmf(np.arange(3), 1.0)
    expected = np.log(prior @ THREE.table[:, [0, 2]]).sum()
    assert model.compile_logp(mode="FAST_COMPILE")({}) == pytest.approx(expected)


# Files.
LINES = "i{0}j{0}p{0}v\n0{0}0{0}1{0}0\n1{0}0{0}0.5{0}-1\n1{0}2{0}0.5{0}1\n2{0}1{0}0.25{0}-1\n"
LINES += "2{0}2{0}0.5{0}0\n2{0}3{0}0.25{0}1\n"


@pytest.mark.parametrize("mark", [",", ";", "\t", " "])
def test_a_ptable_is_read(mark, tmp_path):
    file = tmp_path / "table.csv"
    text = LINES.format(mark)
    file.write_text(text.replace("0.", "0,") if mark == ";" else text)
    table = pmp.read_ptable(file)
    np.testing.assert_array_equal(
        table.table, [[1, 0, 0, 0], [0.5, 0, 0.5, 0], [0, 0.25, 0.5, 0.25]]
    )
    assert table.continues
    assert np.exp(table.log_density(10, 11)) == pytest.approx(0.25)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "columns i, p, and j or v"),
        ("a,b\n1,2\n", "columns i, p, and j or v"),
        ("i,j,p\n0,0,1\n2,2,1\n", "every count i from 0 to its largest"),
        ("i,j,p\n0,0,1\n1,1,.6\n", "must add up to 1"),
        ("i,j,p,v\n0,1,1,0\n", "v = j - i"),
        ("i,j,p\n0,x,1\n", "v = j - i"),
        ("i,j,p\n0,0\n", "as many entries as its header"),
        ("i,p,v\n0,1,-1\n", "j >= 0"),
    ],
)
def test_what_is_no_ptable_is_refused(text, message, tmp_path):
    file = tmp_path / "table.csv"
    file.write_text(text)
    with pytest.raises(MechanismError, match=message):
        pmp.read_ptable(file)


def test_a_file_that_is_not_there_is_refused(tmp_path):
    with pytest.raises(MechanismError, match="got FileNotFoundError"):
        pmp.read_ptable(tmp_path / "none.csv")


# Bad input.
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"probabilities": "much"}, "a table of probabilities, a row for each truth"),
        ({"probabilities": [0.5, 0.5]}, "a table of probabilities"),
        ({"probabilities": [[1.0, 0.0]]}, "two rows and two columns at least"),
        ({"probabilities": [[0.5, 0.4], [0.1, 0.9]]}, "must add up to 1.*row 0"),
        ({"probabilities": [[0.9, 0.3], [0.1, 0.7]]}, "give its transpose"),
        ({"probabilities": [[1.5, -0.5], [0.1, 0.9]]}, "a table of probabilities"),
        ({"probabilities": [[0.5, 0.5], [0.5, 0.5]]}, "a release tells nothing"),
        ({"probabilities": THREE.table, "neighbours": "all"}, "neighbours must be"),
    ],
)
def test_tables_that_are_no_laws_are_refused(arguments, message):
    with pytest.raises(MechanismError, match=f"(?s){message}"):
        Table(**arguments)


def test_bad_designs_are_refused():
    for call, message in (
        (lambda: Table.forced_response(forced=[0.5, 0.5]), "add up to less than 1"),
        (lambda: Table.unrelated_question(p=0.5, prevalence=[0.5, 0.4]), "add up to 1"),
        (lambda: Table.crosswise(p=0.5), "tells nothing"),
        (lambda: Table.crosswise(p=1.0), r"p must be a number in \(0, 1\)"),
        (lambda: Table.kuk(p_yes=0.5, p_no=0.5), "tells nothing"),
        (lambda: Sets.subset_selection(epsilon=1.0, categories=1), "categories must be"),
        (lambda: Sets.local_hashing(epsilon=-1.0, categories=3), "epsilon must be"),
        (lambda: Sets(log_inside=[0, 0, 0], log_outside=[0, 0, 0]), "the probability 1"),
        (lambda: Sets(log_inside=[0.0], log_outside=[0.0]), "a number for each size"),
    ):
        with pytest.raises(MechanismError, match=message):
            call()


def test_releases_that_no_truth_gives_are_refused():
    holes = Table(probabilities=[[0.5, 0.5, 0], [0.2, 0.8, 0]])
    wide = Sets.subset_selection(epsilon=1.0, categories=4)
    for mechanism, release, message in (
        (THREE, [0, 3], "from 0 to 2, columns"),
        (THREE, [0, -1], "integers >= 0"),
        (holes, [0, 2], "that some truth gives"),
        (wide, [1, 3], "of a size that the protocol sends"),
        (wide, [1, 16], "be sets as integers"),
    ):
        with pm.Model():
            x = pm.Bernoulli("x", 0.5, shape=2)
            with pytest.raises(ReleaseError, match=message):
                pmp.Privatized("y", x, mechanism, observed=release, local=True)
    with pm.Model():
        x = pm.Binomial("x", 3, 0.5, shape=2)
        with pytest.raises(RecordError, match=r"from 0 to 2.*Give a row for each"):
            pmp.Privatized("y", x, THREE, observed=[0, 1], local=True)
        with pytest.raises(MechanismError, match="Say local=True"):
            pmp.Privatized("z", x, wide, observed=1)
