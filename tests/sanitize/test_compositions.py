"""Compositions: sensitivities, the private choice of a threshold, and what is told of a person."""

import itertools
import json
import math
import random
from fractions import Fraction

import numpy as np
import pandas as pd
import pytest
from scipy import stats

import pymc_privacy as pmp
from pymc_privacy.errors import (
    ArgumentError,
    BudgetError,
    GuaranteeError,
    InsecureNoiseWarning,
    LedgerError,
    PrivacyError,
    ReleaseError,
)
from pymc_privacy.sanitize import CompositionPlan
from pymc_privacy.sanitize.composition_plan import MEMBERSHIP
from pymc_privacy.sanitize.exact_noise import ExactNoise
from pymc_privacy.sanitize.known import known_total
from tests.nonsense import NOTHING
from tests.sanitize.test_neighbours import assert_alike, loss, without_noise
from tests.stochastic import FALSE_ALARM, seed_of

REPLACE = {"neighbours": "replace_one"}
EDGES = (1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1)
TABLE = [[0.4, 0.05, 0.55], [0.35, 0.0, 0.65], [0.5, 0.1, 0.4], [1.0, 0.0, 0.0]]


def uniform(parts, members):
    """Return a record that is uniform on some of its parts and has nothing of the others."""
    return [1 / len(members) if j in members else 0.0 for j in range(parts)]


def logs(record, a):
    return [math.log(max(x, a)) for x in record]


def distance(one, other):
    return math.fsum(abs(a - b) for a, b in zip(one, other, strict=True))


# ---------------------------------------------------------------- sensitivities


@pytest.mark.parametrize("a", [0.9, 0.4, 0.3, 0.1, 0.01, 1e-3, 1e-6, 1e-300])
@pytest.mark.parametrize("d", [2, 3, 4, 5, 9, 40])
def test_the_sensitivity_is_that_of_the_formula_and_is_attained(d, a):
    found = pmp.log_share_sensitivity(d, a)
    pairs = [(k, m) for k in range(d + 1) for m in range(d + 1 - k)]
    formula = max(sum(j * math.log(1 / (j * a)) for j in pair if j) for pair in pairs)
    assert found == pytest.approx(formula, rel=1e-12)
    # Records that are uniform on k parts, and on m others.
    attained = max(
        distance(
            logs(uniform(d, range(k)), a) if k else logs(uniform(d, range(m)), a),
            logs(uniform(d, range(k, k + m)), a) if m else logs(uniform(d, range(k)), a),
        )
        for k, m in pairs
        if k + m
    )
    assert found == pytest.approx(max(attained, 0), rel=1e-12)
    assert found <= -d * math.log(a) * (1 + 1e-12)


@pytest.mark.parametrize(
    ("d", "a", "ratio"),
    [
        *((2, 0.1, 1), (2, 1e-6, 1), (3, 0.1, 0.80), (3, 0.01, 0.90), (3, 1e-6, 0.97)),
        *((5, 0.1, 0.59), (5, 0.01, 0.80), (5, 1e-3, 0.86)),
    ],
)
def test_the_noise_is_less_than_that_of_the_paper(d, a, ratio):
    assert pmp.log_share_sensitivity(d, a) / (-d * math.log(a)) == pytest.approx(ratio, abs=0.005)


def extreme(rng, d):
    """Return a record from where sensitivities are large: sparse, uniform on a few, or any."""
    kind = rng.integers(3)
    if kind == 0:
        return rng.dirichlet(np.full(d, rng.choice([0.01, 0.1, 1.0, 10.0])))
    weights = rng.random(d) < rng.random()
    weights[rng.integers(d)] = True
    weights = weights * (1 + 0.1 * rng.standard_normal(d) ** 2 * (kind == 2))
    return weights / weights.sum()


@pytest.mark.parametrize("neighbours", ["replace_one", "add_remove"])
def test_no_random_search_exceeds_a_sensitivity(neighbours, request):
    rng = np.random.default_rng(seed_of(request))
    closest = 0.0
    for _ in range(4000):
        d, a = int(rng.integers(2, 8)), float(rng.choice([0.6, 0.3, 0.1, 0.01, 1e-6]))
        one, other = extreme(rng, d), extreme(rng, d)
        moved = distance(logs(one, a), [0.0] * d if neighbours == "add_remove" else logs(other, a))
        bound = pmp.log_share_sensitivity(d, a, neighbours=neighbours)
        assert moved <= bound * (1 + 1e-12), (one, other, a)
        closest = max(closest, moved / bound)
    assert closest > 0.99


def test_records_that_are_added_move_most_with_all_shares_but_one_censored():
    for d, a in itertools.product([2, 3, 7], [0.5, 0.2, 0.1, 0.01]):
        bound = pmp.log_share_sensitivity(d, a, neighbours="add_remove")
        least = max(1 - (d - 1) * a, 1 / d)
        record = [least, *[(1 - least) / (d - 1)] * (d - 1)]
        assert distance(logs(record, a), [0.0] * d) == pytest.approx(bound, rel=1e-12)


# ---------------------------------------------------------------- helpers


def test_helpers_return_what_their_definitions_say(request):
    rng = np.random.default_rng(seed_of(request))
    x = np.vstack([rng.dirichlet([0.2, 1, 3], 200), [[1, 0, 0], [0.1, 0.1, 0.8], [0.5, 0.5, 0]]])
    assert pmp.log_shares(x, 0.1).tolist() == np.log(np.maximum(x, 0.1)).tolist()
    bins = pmp.smallest_share_bins(x, EDGES)
    assert bins.shape == (203, 7)
    assert bins.dtype.kind == "i"
    assert bins.argmax(axis=1).tolist() == [sum(e <= row.min() for e in EDGES) for row in x]
    assert set(bins.sum(axis=1)) == {1}
    assert pmp.smallest_share_bins(x[:0], [0.5]).shape == (0, 2)
    assert pmp.log_shares(x.tolist(), np.float32(0.5)).min() == math.log(0.5)


@pytest.mark.parametrize("value", [*NOTHING, 0, 1, -0.1, 1.5, math.nan, "0.1"])
def test_what_is_no_threshold_is_refused_everywhere(value):
    for call in (
        lambda: pmp.log_share_sensitivity(3, value),
        lambda: pmp.log_shares(TABLE, value),
        lambda: pmp.smallest_share_bins(TABLE, [value]),
        lambda: pmp.select_threshold([1, 2], [value]),
        lambda: pmp.select_threshold([1, 2], [0.1], censored=value),
        lambda: pmp.release_composition(TABLE, epsilon=1, thresholds=[value], **REPLACE),
        lambda: pmp.release_composition(TABLE, epsilon=1, threshold=value, **REPLACE),
    ):
        with pytest.raises(PrivacyError, match=r"must .*\."):
            call()


@pytest.mark.parametrize("edges", [[], [0.1, 0.1], [0.2, 0.1], [[0.1, 0.2]], 0.1, "0.1", {}, None])
def test_thresholds_must_increase(edges):
    with pytest.raises(ArgumentError, match="thresholds must be numbers"):
        pmp.smallest_share_bins(TABLE, edges)
    with pytest.raises(ArgumentError, match="thresholds must be numbers"):
        pmp.select_threshold([1, 2, 3], edges)
    if edges is not None:
        with pytest.raises(ReleaseError, match="thresholds must be numbers"):
            pmp.release_composition(TABLE, epsilon=1, thresholds=edges, **REPLACE)


def test_the_choice_is_that_of_the_paper():
    choose = pmp.select_threshold
    assert choose([0, 0, 0, 0, 2, 200, 798], EDGES) == 0.01
    # At the target itself, exactly, though a float of it is larger than the fraction.
    assert choose([10, 90, 900], [0.1, 0.2]) == 0.1
    assert choose([11, 89, 900], [0.1, 0.2]) == 0.1
    assert choose([0, 10, 990], [0.1, 0.2]) == 0.2
    assert choose([0, 30, 70], [0.1, 0.2], censored=0.3) == 0.2
    # Negative counts are nothing, and where there is nothing, nothing is known to be censored.
    assert choose([-5, 10, 990], [0.1, 0.2]) == 0.2
    assert choose([-5, -3, 0], [0.1, 0.2]) == 0.2
    assert choose(np.array([5, 0, 0]), (0.1, 0.2)) == 0.1
    for counts in ([1, 2], [1, 2, 3, 4], [1, np.nan, 2], "abc", [[1, 2, 3]]):
        with pytest.raises(ArgumentError, match=r"noisy_counts must be .* \(3,\)"):
            choose(counts, [0.1, 0.2])


def test_the_choice_has_its_exact_law(request):
    """Counts (3, 20, 77) under noise of scale 8: the law by summing over all noises."""
    edges, target, scale, reach = (0.01, 0.1), 0.05, 8.0, 120
    table = [[0.001, 0.999]] * 3 + [[0.05, 0.95]] * 20 + [[0.3, 0.7]] * 77
    k = np.arange(-reach, reach + 1)
    law = np.exp(-abs(k) / scale)
    law /= law.sum()
    first, second, third = (np.maximum(count + k, 0) for count in (3, 20, 77))
    total = first[:, None, None] + second[None, :, None] + third[None, None, :]
    weight = law[:, None, None] * law[None, :, None] * law[None, None, :]
    # In integers, as 20 * count <= total.
    large = 20 * (first[:, None, None] + second[None, :, None]) <= total
    probability = float(weight[large].sum())
    assert 0.01 < probability < 0.99
    draws = 3000
    chosen = [
        pmp.release_composition(
            table, epsilon=1.0, thresholds=edges, censored=target, **REPLACE
        ).threshold
        for _ in range(draws)
    ]
    seen = np.array([chosen.count(edge) for edge in edges])
    expected = draws * np.array([1 - probability, probability])
    assert stats.chisquare(seen, expected).pvalue > FALSE_ALARM
    # A choice that takes noisy counts as they are, negative ones too, would be told apart.
    raw = np.add.outer(np.add.outer(3 + k, 20 + k), 77 + k)
    mutant = float(weight[20 * np.add.outer(3 + k, 20 + k)[:, :, None] <= raw].sum())
    wrong = draws * np.array([1 - mutant, mutant])
    assert stats.chisquare(seen, wrong).pvalue < FALSE_ALARM


# ---------------------------------------------------------------- the budget


def test_parts_of_the_budget_add_up_to_it_and_never_to_more(request):
    rng = random.Random(seed_of(request))
    for _ in range(500):
        epsilon = rng.choice([0.1, 0.25, 0.5, 1.0, 1 / 3, 10.0**10, 1e-3, rng.random()])
        plan = CompositionPlan(
            "x",
            3,
            pmp.PureDP(epsilon, **REPLACE),
            thresholds=(0.01, 0.1),
            selection=rng.choice([0.25, 0.1, rng.uniform(0.01, 0.99)]),
            means=rng.choice([0.0, 0.5, rng.uniform(0.01, 0.99)]),
        )
        spent = plan.budget
        exact = sum(Fraction(repr(e)) for e in (spent.counts, spent.logs, spent.means))
        assert exact <= Fraction(repr(epsilon))
        assert exact >= Fraction(repr(epsilon)) * (1 - Fraction(1, 2**48))
    plan = CompositionPlan("x", 3, pmp.PureDP(0.1, **REPLACE), thresholds=(0.01, 0.1))
    assert (plan.budget.counts, plan.budget.logs) == (0.025, 0.075)


def test_there_is_one_charge_for_all_of_it_before_any_noise(tmp_path, monkeypatch):
    ledger = pmp.Ledger(tmp_path / "ledger", pmp.PureDP(1.0, **REPLACE))
    options = {"thresholds": [0.01, 0.1], "means": 0.2, "ledger": ledger, **REPLACE}
    groups = ["a", "b", "a", "b"]
    pmp.release_composition(TABLE, epsilon=0.3, name="time", **options)
    pmp.release_composition(TABLE, epsilon=0.4, name="by", by=groups, **options)
    assert [(c.what, c.guarantee.epsilon) for c in ledger.charges] == [("time", 0.3), ("by", 0.4)]
    monkeypatch.setattr(ExactNoise, "laplace", None)  # would raise
    with pytest.raises(BudgetError, match="Nothing was drawn"):
        pmp.release_composition(TABLE, epsilon=0.31, name="more", **options)
    with pytest.raises(LedgerError, match="different names"):
        pmp.release_composition(TABLE, epsilon=0.1, name="time", **options)
    # What is refused of the records has cost nothing.
    with pytest.raises(ReleaseError, match="negative"):
        pmp.release_composition([[-0.1, 1.1]], epsilon=0.1, name="new", **options)
    assert len(ledger.charges) == 2


# ---------------------------------------------------------------- what is published


@pytest.mark.parametrize("neighbours", ["replace_one", "add_remove"])
def test_totals_are_those_of_the_definitions(neighbours, monkeypatch):
    with without_noise(monkeypatch) as asked:
        published = pmp.release_composition(
            TABLE, epsilon=2.0, thresholds=EDGES, means=0.5, neighbours=neighbours
        )
    assert published.counts.value.tolist() == [2, 0, 0, 0, 0, 1, 1]
    assert published.threshold == 1e-6
    expected = np.log(np.maximum(TABLE, 1e-6)).sum(axis=0)
    assert np.asarray(published.logs) == pytest.approx(expected, abs=1e-6)
    assert published.shares.value == pytest.approx(np.sum(TABLE, axis=0), abs=1e-6)
    assert published.size == (4 if neighbours == "replace_one" else None)
    assert [release.guarantee.epsilon for release in published.releases] == [0.25, 0.75, 1.0]
    replaced = neighbours == "replace_one"
    for (kind, scale, _), release, l1 in zip(
        asked,
        published.releases,
        (
            2 if replaced else 1,
            pmp.log_share_sensitivity(3, 1e-6, neighbours=neighbours),
            2 if replaced else 1,
        ),
        strict=True,
    ):
        assert kind == "laplace"
        in_units = float(scale) * release.lattice.granularity
        assert in_units == pytest.approx(l1 / release.guarantee.epsilon, rel=1e-7)
        assert in_units >= l1 / release.guarantee.epsilon


VALUES = [
    *([1, 0, 0], [0.5, 0.5, 0], [0.1, 0.2, 0.7], [1 / 3, 1 / 3, 1 / 3], [0.01, 0.01, 0.98]),
    *([0.99, 1e-7, 0.01], [True, False, False], [Fraction(1, 3), Fraction(1, 3), Fraction(1, 3)]),
    *([np.float32(0.5), 0.25, 0.25], [0.5 + 4e-7, 0.5, 0], [0.5 - 4e-7, 0.5, -0.0]),
    *([5e-324, 1.0, 0], [-0.1, 0.5, 0.6], [0.3, 0.3, 0.3], [0.5, 0.5, 2e-6]),
]


@pytest.mark.parametrize("neighbours", ["replace_one", "add_remove"])
@pytest.mark.parametrize("options", [{"threshold": 0.1}, {"threshold": 0.4}, {"means": 1}])
def test_no_two_neighbours_are_told_apart(options, neighbours, request, monkeypatch):
    rng = random.Random(seed_of(request))
    shares = []
    for _ in range(150):
        epsilon = rng.choice([0.1, 1.0, 30.0])
        records = [rng.choice(VALUES) for _ in range(rng.choice([1, 2, 5]))]
        where = rng.randrange(len(records))
        other = [*records[:where], rng.choice(VALUES), *records[where + 1 :]]
        if neighbours == "add_remove":
            other = records[:where] + records[where + 1 :]
        valid = [row for row in (*records, *other) if abs(sum(row) - 1) < 1e-6 and min(row) >= 0]
        if len(valid) < len(records) + len(other):
            continue  # what is refused depends on the records, as it does in any release
        as_one = rng.choice([list, lambda r: np.array(r, dtype=object).reshape(-1, 3)])

        def publish(rows, epsilon=epsilon):
            return pmp.release_composition(
                rows, epsilon=epsilon, neighbours=neighbours, parts=3, **options
            )

        pair = as_one(records), as_one(other)
        shares.append(assert_alike(monkeypatch, publish, pair, Fraction(repr(epsilon))))
    assert max(shares) > 0.9


@pytest.mark.parametrize("neighbours", ["replace_one", "add_remove"])
def test_with_a_chosen_threshold_losses_add_up_to_epsilon_at_most(neighbours, request):
    """Given any threshold that the noisy counts may choose, which both neighbours then share."""
    rng = np.random.default_rng(seed_of(request))
    plan = CompositionPlan(
        "x", 4, pmp.PureDP(0.7, neighbours=neighbours), thresholds=EDGES, means=0.3
    )
    losses = []
    for _ in range(200):
        pair = [[extreme(rng, 4)], [extreme(rng, 4)]]
        if neighbours == "add_remove":
            pair[1] = []
        parts = [plan.counts, plan.logs(float(rng.choice(EDGES))), plan.shares]
        lost = Fraction(0)
        for part in parts:
            asked = [("laplace", part.calibration.scale, len(part.lattice.bounds))]
            one, other = (
                [part.totals(part.known.of(np.reshape(rows, (-1, 4)))).integers] for rows in pair
            )
            lost += loss(asked, one, other)
        assert lost <= Fraction("0.7")
        losses.append(float(lost / Fraction("0.7")))
    assert max(losses) > 0.9


def worst_pair():
    """Return two records that move counts, logarithms and shares as far as one can."""
    return np.array([[0.5, 0.5, 0.0, 0.0]]), np.array([[0.0, 0.0, 0.5, 0.5]])


def composed(thresholds, epsilon, factor=1.0):
    """Return a mechanism that an audit can run: counts, choice and logarithms, in one row."""
    plan = CompositionPlan("x", 4, pmp.PureDP(epsilon, **REPLACE), thresholds=thresholds)
    first = plan.counts

    def run(rng, table, draws):
        counts = first.known.of(table).sum(axis=0)
        noisy = counts + pmp.DiscreteLaplace(scale=first.scale).simulate(
            rng, np.zeros((draws, len(counts)), dtype=int)
        )
        cumulated = np.cumsum(np.maximum(noisy, 0), axis=1)
        fits = cumulated[:, :-1] <= 0.01 * cumulated[:, -1:]
        chosen = np.maximum(fits.sum(axis=1) - 1, 0)
        released = np.empty((draws, table.shape[1]))
        for m, threshold in enumerate(thresholds):
            part = plan.logs(threshold)
            units = np.array(part.totals(part.known.of(table)).integers)
            noise = pmp.DiscreteLaplace(scale=factor * part.calibration.scale).simulate(
                rng, np.zeros((int((chosen == m).sum()), len(units)), dtype=int)
            )
            released[chosen == m] = (units + noise) * part.lattice.granularity
        return np.hstack([noisy, released])

    return run


@pytest.mark.slow
def test_an_audit_finds_nearly_all_of_epsilon_and_not_more(request):
    rng = np.random.default_rng(seed_of(request))
    one, other = worst_pair()
    fixed = CompositionPlan("x", 4, pmp.PureDP(1.0, **REPLACE), threshold=0.01).logs(0.01)
    totals = [part.sum(axis=0) for part in map(fixed.known.of, (one, other))]
    found = pmp.audit(rng, fixed.mechanism, *totals)
    assert 0.8 < found.epsilon <= 1.0
    # Counts and logarithms together, with the threshold chosen in between.
    both = pmp.audit(rng, composed((0.01, 0.1), 2.0), one, np.array([[0.25] * 4]), draws=400_000)
    assert 0.6 < both.epsilon <= 2.0
    # Noise that is a third short is caught.
    short = pmp.Laplace(scale=fixed.scale / 1.5)
    assert pmp.audit(rng, short, *totals).epsilon > 1.0


def test_nothing_is_told_before_the_records_are_seen():
    plan = CompositionPlan("composition", 3, pmp.PureDP(1.0, **REPLACE), thresholds=EDGES)
    for table in (TABLE, [[1, 0, 0]], np.array([[0.5, 0.5, 0.0]], dtype=np.float32)):
        published = pmp.release_composition(table, epsilon=1.0, thresholds=EDGES, **REPLACE)
        assert published.plan == plan
        assert published.label == "proven"
    frame = pd.DataFrame(TABLE)
    assert pmp.release_composition(frame, epsilon=1, threshold=0.1, **REPLACE).size == 4


# ---------------------------------------------------------------- groups


def test_groups_are_published_each_by_itself_and_conditionally(monkeypatch):
    labels = ["m", "f", "m", "f"]
    options = {"epsilon": 0.5, "threshold": 0.1, "name": "time", **REPLACE}
    for by in (labels, np.array(labels), pd.Series(labels), tuple(labels)):
        with without_noise(monkeypatch):
            published = pmp.release_composition(TABLE, by=by, **options)
        assert tuple(published) == ("f", "m")
        assert len(published) == 2
        expected = np.log(np.maximum(np.array(TABLE)[1::2], 0.1)).sum(axis=0)
        assert published["f"].logs.value == pytest.approx(expected, abs=1e-6)
    assert published.label == published["m"].label == "conditional"
    assert published.assumptions == (MEMBERSHIP,)
    assert "Membership in the groups is public" in published.statement()
    assert published.guarantee.epsilon == 0.5
    assert [release.label for release in published.releases] == ["conditional"] * 2
    with pytest.raises(ReleaseError, match="must be one of 'f', 'm'; got 'x'"):
        published["x"]
    for by in (
        ["m"],
        "mfmf",
        3,
        ["m", "f", "m", "two\nlines"],
        ["", "f", "m", "f"],
        [1, "1", 2, 2],
        [np.nan] * 4,
    ):
        with pytest.raises(ReleaseError, match=r"by must .*\."):
            pmp.release_composition(TABLE, by=by, **options)


# ---------------------------------------------------------------- what is refused


@pytest.mark.parametrize(
    ("shares", "match"),
    [
        ([[0.5, 0.4]], "add up to 1"),
        ([[50, 50]], "add up to 1"),
        ([[0.5, 0.5], [0.5, 0.5 + 1e-5]], "add up to 1"),
        ([[1.2, -0.2]], "not be negative"),
        ([[0.5, math.nan]], "finite"),
        ([[math.inf, 0.5]], "finite"),
        ([[0.5, None]], "array of numbers"),
        ([["a", "b"]], "array of numbers"),
        ([[0.5, 0.5], [1.0]], "of shape"),
        ([0.5, 0.5], "of shape"),
        ([[1.0]], "of shape"),
        ([], "of shape"),
        (np.empty((0, 3)), "a row or more"),
        (np.ma.masked_array([[0.5, 0.5]], mask=[[True, False]]), "without a mask"),
        ("shares", "of shape"),
        (None, "of shape"),
    ],
)
def test_what_are_no_shares_is_refused_without_saying_what_is_in_them(shares, match):
    with pytest.raises(ReleaseError, match=rf"must .*{match}|{match}") as caught:
        pmp.release_composition(shares, epsilon=1, threshold=0.1, **REPLACE)
    assert "1.2" not in str(caught.value)


@pytest.mark.parametrize(
    ("options", "kind", "match"),
    [
        ({}, ReleaseError, "One of threshold="),
        ({"threshold": 0.1, "thresholds": [0.1]}, ReleaseError, "One of threshold="),
        ({"threshold": 0.1, "means": 1}, ReleaseError, "neither where means=1"),
        ({"threshold": 0.1, "means": 1.5}, ReleaseError, "means must be"),
        ({"threshold": 0.1, "epsilon": 0}, GuaranteeError, "epsilon must be"),
        ({"threshold": 0.1, "epsilon": math.nan}, GuaranteeError, "epsilon must be"),
        ({"threshold": 0.1, "epsilon": None}, GuaranteeError, "epsilon="),
        ({"threshold": 0.1, "neighbours": None}, GuaranteeError, "neighbours must be"),
        ({"thresholds": [0.1], "selection": 1}, ReleaseError, "selection must be"),
        ({"thresholds": [0.1], "censored": 0}, ReleaseError, "censored must be"),
        ({"threshold": 0.1, "name": " x"}, ReleaseError, "name must be"),
        ({"threshold": 0.1, "ledger": "file"}, ReleaseError, "ledger must be"),
        ({"threshold": 0.1, "parts": 4}, ReleaseError, "of shape"),
        ({"threshold": 0.1, "parts": 1}, ReleaseError, "parts must be"),
        ({"threshold": 0.1, "parts": 2**16 + 1}, ReleaseError, "parts must be .* <= 65536"),
        (
            {"thresholds": np.linspace(0.01, 0.9, 101)},
            ReleaseError,
            "thresholds must be .* 1 to 100",
        ),
        ({"threshold": 0.1, "unit": ""}, GuaranteeError, "unit must be"),
        ({"threshold": 0.1, "epsilon": 1e-300}, ReleaseError, "must be"),
        ({"threshold": 0.1, "epsilon": 1e300}, ReleaseError, "must be"),
    ],
)
def test_arguments_that_mean_nothing_are_refused(options, kind, match):
    with pytest.raises(kind, match=match):
        pmp.release_composition(TABLE, **{"epsilon": 1, **REPLACE, **options})


def test_a_rehearsal_is_seedable_and_says_so(request):
    seed = seed_of(request)
    made = []
    for _ in range(2):
        with pytest.warns(InsecureNoiseWarning):
            made.append(
                pmp.simulate_composition(
                    np.random.default_rng(seed), TABLE, epsilon=1, thresholds=EDGES, **REPLACE
                )
            )
    assert made[0] == made[1]
    assert made[0].label == "nominal"
    assert made[0].statement().startswith("SIMULATION ONLY")
    with pytest.raises(ReleaseError, match="rng must be"):
        pmp.simulate_composition(1, TABLE, epsilon=1, threshold=0.1, **REPLACE)


def test_a_total_is_found_by_its_name_alone():
    for name in ("log max(x, 0.1) of 3 shares", "3 shares", "(v, v^2)"):
        assert known_total(name, "replace_one").name == name
    for name in (
        *("log max(x, 0.10) of 3 shares", "log max(x, 1e9) of 3 shares", "1 shares", "03 shares"),
        *("log max(x, 0.1) of 1 shares", "log max(x, e) of 3 shares", "x", "", None, 3),
        "smallest of 3 shares in bins that end at 0.2, 0.1, 1",
    ):
        assert known_total(name, "replace_one") is None
    assert known_total("3 shares", None) is None


def test_contributions_that_are_none_of_shares_have_no_such_sensitivity():
    plan = CompositionPlan(
        "x", 3, pmp.PureDP(1.0, neighbours="add_remove"), thresholds=(0.1, 0.2), means=0.5
    )
    for part, rows in (
        (plan.counts, [[1, 1, 0]]),
        (plan.counts, [[0, 0, 0]]),
        (plan.logs(0.1), [[0.0, 0.0, math.log(0.1)]]),
        (plan.logs(0.1), [[math.log(0.1)] * 3]),
        (plan.shares, [[0.6, 0.6, 0.0]]),
    ):
        with pytest.raises(ReleaseError, match="for which the sensitivity of this plan was proved"):
            part.totals(np.array(rows))


def test_a_composition_has_one_card(tmp_path):
    published = pmp.release_composition(
        TABLE, epsilon=0.5, thresholds=EDGES, by=["a", "b", "b", "b"], name="time", **REPLACE
    )
    path = tmp_path / "card.json"
    pmp.write_card(published, path)
    assert pmp.read_card(path) == published
    plain = json.loads(path.read_text())
    # The threshold is the one that the counts choose, whatever a card says.
    plain["groups"][0]["threshold"] = 0.5
    with pytest.raises(ReleaseError, match="altered"):
        pmp.read_card(plain)
