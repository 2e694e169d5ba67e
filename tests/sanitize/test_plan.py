"""Plans: made before the records, charged only when all is checked, and never paid for in vain."""

import dataclasses
import inspect
import itertools
import math
import random
from fractions import Fraction

import numpy as np
import pandas as pd
import pytest

import pymc_privacy as pmp
from pymc_privacy.errors import PrivacyError, ReleaseError
from pymc_privacy.sanitize import (
    ReleasePlan,
    intervals,
    plan,
    plan_release,
    quantiles,
    releases,
    summary_plan,
)
from tests.stochastic import seed_of

REPLACE = {"neighbours": "replace_one"}


class Purse(pmp.Ledger):
    """A ledger in memory, which remembers what it was charged."""

    def __init__(self):
        self.paid = []

    def charge(self, guarantee, *, what="release", unique=False):
        self.paid.append((guarantee, what))


# ---------------------------------------------------------------- the plan and the records


@pytest.mark.parametrize(
    "options",
    [
        {"bounds": (0, 1), "epsilon": 1.0},
        {"bounds": (0, 1), "epsilon": 0.3, "integers": True, "name": "yes", "unit": "a household"},
        {"bounds": (-3, 100), "rho": 0.5, "granularity": 2.0**-20},
        {"bounds": (-3, 100), "epsilon": 1.0, "delta": 1e-6, "sensitivity": 4.0},
    ],
)
@pytest.mark.parametrize("neighbours", ["replace_one", "add_remove"])
def test_a_plan_made_before_the_records_is_the_plan_that_is_used(options, neighbours):
    before = plan_release(neighbours=neighbours, **options)
    tables = [
        *([0, 1, 1], [0.0, 0.5, 1.0], np.array([True, False]), [10**400], pd.Series([1, 2])),
        *(np.array([3], dtype=np.uint8), np.array([0.1], dtype=np.float32)),
        *([[], np.empty(0)] if neighbours == "add_remove" else []),
    ]
    for records in tables:
        assert pmp.release(records, neighbours=neighbours, **options).plan == before
    assert before.label == ("conditional" if "sensitivity" in options else "proven")


def test_no_function_that_plans_takes_records():
    planners = [
        plan_release,
        plan.plan_moments,
        intervals.plan_total,
        summary_plan.plan_summary,
        quantiles.QuantilePlan,
        summary_plan.SummaryPlan,
        ReleasePlan,
    ]
    confidential = {"records", "contributions", "draws", "values", "rows"}
    for planner in planners:
        assert not confidential & set(inspect.signature(planner).parameters)
    for kind in (ReleasePlan, quantiles.QuantilePlan, summary_plan.SummaryPlan):
        assert kind.__dataclass_params__.frozen
        assert not confidential & {field.name for field in dataclasses.fields(kind)}


def test_what_leaves_a_plan_is_integers():
    plan = plan_release(bounds=[(0, 1), (-1, 1)], epsilon=1.0, **REPLACE)
    totals = plan.totals(np.array([[0.3, 0.1], [0.4, -7.0]]))
    assert all(type(total) is int for total in (*totals.integers, totals.size))
    cells = quantiles.QuantilePlan("records", 0.5, (0, 1), pmp.PureDP(1.0, **REPLACE), "x")
    assert cells.cells([0.2, 0.7]).dtype.kind == "i"
    for family in (pmp.Proportion(), pmp.Rate(3), pmp.NormalMean((0, 1))):
        assert all(type(total) is int for total in family.summary_totals([0, 1] * 4))


def test_plans_of_intervals_depend_on_the_number_of_records_at_most():
    for family in (pmp.Proportion(), pmp.Rate(9), pmp.NormalMean((-4, 4))):
        before = intervals.plan_total(family, 0.5)
        interval = pmp.noise_aware_interval([0, 1] * 10, family, epsilon=0.5)
        assert interval.release.plan == before
        guarantee = pmp.PureDP(0.5, **REPLACE)
        summary = summary_plan.plan_summary(family, 20, guarantee, family.name)
        for records in ([0, 1] * 10, [1] * 20):
            assert pmp.centre_scale_interval(records, family, epsilon=0.5).release.plan == summary


def test_a_declared_size_is_held_against_the_records():
    options = {"bounds": (0, 1), "epsilon": 1.0}
    assert pmp.release([0, 1], size=2, **options, **REPLACE).size == 2
    purse = Purse()
    with pytest.raises(ReleaseError, match=r"each of the 3 records.*got 2"):
        pmp.release([0, 1], size=3, ledger=purse, **options, **REPLACE)
    with pytest.raises(ReleaseError, match="is confidential"):
        pmp.release([0, 1], size=2, neighbours="add_remove", ledger=purse, **options)
    for method in INTERVALS:
        with pytest.raises(ReleaseError, match=r"got 20"):
            method([0, 1] * 10, pmp.Proportion(), epsilon=1.0, size=21, ledger=purse)
        assert method([0, 1] * 10, pmp.Proportion(), epsilon=1.0, size=20).label == "proven"
    assert not purse.paid


# ---------------------------------------------------------------- sensitivities that are stated


def test_a_sensitivity_below_the_lattice_is_refused():
    purse = Purse()
    for options in ({"integers": True}, {"granularity": 1.0}):
        with pytest.raises(ReleaseError, match="one step of the lattice or more"):
            pmp.release(
                np.arange(100),
                bounds=(0, 100),
                epsilon=1.0,
                sensitivity=1e-3,
                ledger=purse,
                **options,
                **REPLACE,
            )
    assert not purse.paid
    fine = pmp.release(np.arange(100), bounds=(0, 100), epsilon=1.0, sensitivity=1e-3, **REPLACE)
    assert fine.label == "conditional"
    # The noise is that of the stated sensitivity, on a lattice far finer than it.
    assert fine.scale == pytest.approx(1e-3, rel=1e-6)
    assert fine.lattice.granularity < 1e-11


def test_a_foreign_family_is_conditional_on_its_author(tmp_path):
    class Lazy(pmp.Proportion):
        """Somebody's own family."""

        @property
        def sensitivity(self):
            return 1.0, "because I say so"

    interval = pmp.noise_aware_interval([0, 1] * 10, Lazy(), epsilon=1.0)
    assert interval.label == "conditional"
    assert "the author of Lazy" in interval.statement()
    assert interval.release.label == "conditional"
    pmp.write_card(interval, tmp_path / "card.json")
    assert pmp.read_card(tmp_path / "card.json") == interval
    summary = pmp.centre_scale_interval([0, 1] * 10, Lazy(), epsilon=1.0)
    assert summary.label == "conditional"


# ---------------------------------------------------------------- moments


@pytest.mark.parametrize(
    "family",
    [pmp.NormalMean((0, 10)), pmp.NormalVariance((0, 10)), pmp.Slope((0, 3), (-7, 5), (-5, 5))],
)
def test_a_sensitivity_of_moments_is_for_moments_alone(family):
    plan = intervals.plan_total(family, 1.0)
    assert plan.calibration.sensitivity.value < sum(
        high - low for low, high in plan.lattice.bounds
    )  # so that it matters
    columns = 2 if isinstance(family, pmp.Slope) else 1
    records = np.random.default_rng(1).uniform(-9, 12, (50, columns))
    good = family.contributions(records if columns == 2 else records[:, 0])
    assert plan.totals(good).size == 50
    low, high = np.array(plan.lattice.bounds).T
    # From one end of all bounds to the other: further than any moments of a record can move.
    for rows in (np.stack([low, high]), good + 1e-12, good * [1, *[0.5] * (good.shape[1] - 1)]):
        with pytest.raises(ReleaseError, match=r"contributions must be \(v, v\^2"):
            plan.totals(rows)
    with pytest.raises(ReleaseError, match=r"contributions must be \(v, v\^2"):
        plan.totals(np.vstack([good, 3 * good[:1]]))


# ---------------------------------------------------------------- very little privacy loss


@pytest.mark.parametrize("neighbours", ["replace_one", "add_remove"])
@pytest.mark.parametrize(
    ("measure", "more"), [("epsilon", {}), ("rho", {}), ("epsilon", {"delta": 1e-9})]
)
def test_a_lattice_is_found_for_every_epsilon(measure, more, neighbours):
    for tiny in (1e-5, 1e-9, 1e-10, 1e-14, 1e-40):
        given = {measure: tiny, **more}
        for bounds in ((0, 1), (0.3, 0.9), [(0, 1), (-5, 5)]):
            plan = plan_release(bounds=bounds, neighbours=neighbours, **given)
            assert plan.label == "proven"
            # Rounding is no matter, beside what a record can add.
            spans = np.array(plan.lattice.bounds) @ [-1, 1]
            assert plan.lattice.granularity <= spans.sum() * 2.0**-18
    published = pmp.release([0, 1], bounds=(0, 1), neighbours=neighbours, epsilon=1e-12)
    assert published.scale == pytest.approx(1e12, rel=1e-5)
    with pytest.raises(ReleaseError, match="epsilon"):
        plan_release(bounds=(0, 1), neighbours=neighbours, epsilon=1e-160)


# ---------------------------------------------------------------- contradictions


NAMES = ("noise", "bootstrap", "repro", "multiple", "centre")


@pytest.mark.parametrize("method", NAMES)
def test_records_that_a_family_is_not_of_are_refused(method):
    function = dict(zip(NAMES, INTERVALS, strict=True))
    purse = Purse()
    coded = [1, 2, 1, 1] * 5
    for family, records in (
        (pmp.Proportion(), coded),
        (pmp.Proportion(), [34, 51, 47] * 7),
        (pmp.Proportion(), [0.5] * 20),
        (pmp.Proportion(), np.ma.masked_array([0, 1] * 10, mask=[1, 0] * 10)),
        (pmp.Proportion(), ["0", "1"] * 10),
        (pmp.Proportion(), np.array(["2020-01-01"] * 20, dtype="datetime64[D]")),
        (pmp.Rate(9), [1.5] * 20),
        (pmp.Rate(9), [-1] * 20),
        (pmp.NormalMean((0, 1)), [[0, 1]] * 20),
        (pmp.NormalMean((0, 1)), [0.0] * 7),
        (pmp.NormalMean((0, 1)), [None] * 20),
    ):
        if method == "repro" and isinstance(family, pmp.NormalMean):
            continue  # it is for families of one parameter
        with pytest.raises(ReleaseError, match="records"):
            function[method](records, family, epsilon=1.0, ledger=purse)
    assert not purse.paid


@pytest.mark.parametrize(
    "records",
    [
        np.zeros((5, 2)),
        ["3", "4"],
        np.array(["2020-01-01"], dtype="datetime64[D]"),
        np.array([3], dtype="timedelta64[s]"),
        np.ma.masked_array([0.0, 1.0], mask=[0, 1]),
        [1 + 2j],
        [None, 1.0],
        [[1.0], [2.0, 3.0]],
        3.0,
        "34",
        {"a": 1},
        [math.nan],
    ],
    ids=str,
)
def test_a_quantile_is_of_one_number_per_record(records):
    purse = Purse()
    for relation in ("replace_one", "add_remove"):
        with pytest.raises(ReleaseError, match="records must be"):
            pmp.private_quantile(
                records, 0.5, bounds=(0, 1), epsilon=1.0, neighbours=relation, ledger=purse
            )
    with pytest.raises(ReleaseError, match="contributions must be"):
        pmp.release(records, bounds=(0, 1), epsilon=1.0, ledger=purse, **REPLACE)
    assert not purse.paid


def test_a_refusal_says_nothing_of_what_is_in_the_records():
    for records in ([12345.678, math.nan], ["12345.678"], [12345.678, None]):
        for publish in (
            lambda r: pmp.release(r, bounds=(0, 1), epsilon=1.0, **REPLACE),
            lambda r: pmp.private_quantile(r, 0.5, bounds=(0, 1), epsilon=1.0, **REPLACE),
            lambda r: pmp.noise_aware_interval(r, pmp.Proportion(), epsilon=1.0),
            lambda r: pmp.pp_quantile(r, 0.5, bounds=(0, 1), epsilon=1.0),
        ):
            with pytest.raises(PrivacyError) as refusal:
                publish(records)
            assert "12345" not in str(refusal.value)


# ---------------------------------------------------------------- nothing is paid for in vain

INTERVALS = [
    pmp.noise_aware_interval,
    pmp.bootstrap_interval,
    pmp.repro_interval,
    pmp.multiple_sanitization_interval,
    pmp.centre_scale_interval,
]
BAD = {
    "epsilon": [0, -1, math.nan, math.inf, "1", True, 1j, None, [1], np.datetime64("2020-01-01")],
    "prob": [0, 1, 95, -0.5, math.nan, "0.95", True, None],
    "name": [3, "", "two\nlines", b"x", "a ", " a"],
    "rng": ["seed", 2.5, object()],
    "draws": [0, -1, 2.5, "many", True, None, 10**12],
    "repeats": [0, 1, -1, 2.5, "many", True],
    "releases": [0, 1, 2.5, "3", True, None, 10**9],
    "size": [0, -1, 2.5, "20", True],
    "bounds": [(1, 0), (0, 0), (0, math.nan), (0, math.inf), "wide", 3, (0,), ("a", "b"), None],
    "quantile": [0, 1, -1, 2, math.nan, "0.5", None, True],
    "neighbours": ["replace", None, 3, "REPLACE_ONE"],
    "family": [None, "proportion", pmp.Proportion, 3],
    "ledger": ["file", 3, {}],
    "granularity": [0, -1, 0.3, math.nan, "1", True],
    "integers": [1, "yes", None],
    "sensitivity": [0, -1, math.nan, math.inf, "1", True, 1j],
    "unit": [3, "", None],
    "sampler": ["magic", None, 3],
    "delta": [0, -1, 1.5, "0", True],
    "rho": [0, -1, math.nan, "1", True],
    "centre_sensitivity": [0, -1, math.nan, "1", None, True],
    "spread_sensitivity": [0, math.inf, "1", None],
    "largest_spread": [0, -1, "1", None],
}
ANSWERS = [0, 1, 1, 0] * 5
CALLS = {
    pmp.release: {"contributions": ANSWERS, "bounds": (0, 1), "epsilon": 1.0, **REPLACE},
    pmp.private_quantile: {
        "records": ANSWERS,
        "quantile": 0.5,
        "bounds": (0, 1),
        "epsilon": 1.0,
        **REPLACE,
    },
    pmp.pp_quantile: {"draws": ANSWERS, "quantile": 0.5, "bounds": (0, 1), "epsilon": 1.0},
    pmp.pp_interval: {"draws": ANSWERS, "bounds": (0, 1), "epsilon": 1.0},
    pmp.summary_interval: {
        "draws": [0.2, 0.3, 0.4],
        "centre_sensitivity": 0.1,
        "spread_sensitivity": 0.1,
        "largest_spread": 0.5,
        "bounds": (0, 1),
        "epsilon": 1.0,
    },
    **{
        method: {"records": ANSWERS, "family": pmp.Proportion(), "epsilon": 1.0}
        for method in INTERVALS
    },
}


def called(function, arguments, purse):
    positional = ("contributions", "records", "draws", "quantile", "family")
    names = list(inspect.signature(function).parameters)
    given = {"ledger": purse, **arguments}
    first = [
        given.pop(name)
        for name in names
        if name in positional
        and name in given
        and inspect.signature(function).parameters[name].kind.name == "POSITIONAL_OR_KEYWORD"
    ]
    return function(*first, **given)


@pytest.mark.parametrize("function", CALLS, ids=lambda f: f.__name__)
def test_bad_arguments_cost_nothing(function):
    tried = 0
    for name, values in BAD.items():
        if name not in inspect.signature(function).parameters:
            continue
        if name == "draws" and function not in (pmp.noise_aware_interval,):
            continue
        for value in values:
            if value is None and name in ("size", "rng", "granularity", "sensitivity"):
                continue
            purse = Purse()
            with pytest.raises(PrivacyError):
                called(function, {**CALLS[function], name: value}, purse)
            assert not purse.paid, (name, value)
            tried += 1
    assert tried > 20


EXTREMES = {
    "epsilon": [1e-300, 1e-17, 1e-9, 0.1, 1e3, 1e17, 1e300, 1.7e308, 5e-324],
    "prob": [1e-300, 1e-9, 0.5, 1 - 1e-16, 0.9999999],
    "bounds": [(0, 1), (1e15, 1e15 + 1), (-1e300, 1e300), (0, 5e-324), (-1e-300, 1e-300), (0, 1e9)],
    "quantile": [5e-324, 1e-17, 0.5, 1 - 1e-16],
    "family": [
        *(pmp.Proportion((1e-300, 1.0)), pmp.Proportion((1e15, 1e15)), pmp.Rate(2**53)),
        *(pmp.Rate(1), pmp.Rate(10**6, prior=(1e-300, 1e15)), pmp.NormalMean((1e12, 1e12 + 1))),
        *(pmp.NormalVariance((-1e50, 1e50)), pmp.NormalMean((-1e-50, 1e-50)), pmp.Proportion()),
    ],
    "records": [[0], [1], [0, 1], [1] * 8, [0] * 20, [0, 1] * 500],
    "contributions": [[0], [1], [1e308, -1e308], [0, 1] * 500],
    "draws": [[0.0, 0.0], [0.0, 1e308], [1.0] * 5],
    "releases": [2, 50],
    "granularity": [2.0**-500, 2.0**-40, 1.0, 2.0**499],
    "sensitivity": [1e-300, 1e-9, 1.0, 1e300],
    "centre_sensitivity": [1e-300, 0.1, 1e300],
    "spread_sensitivity": [1e-300, 0.1, 1e300],
    "largest_spread": [1e-300, 0.1, 1e300],
}


@pytest.mark.parametrize("function", CALLS, ids=lambda f: f.__name__)
def test_who_has_paid_gets_something(function, request):
    # At the ends of what floats hold: refused before the charge, or published after it.
    rng = random.Random(seed_of(request))
    parameters = inspect.signature(function).parameters
    quick = {
        pmp.noise_aware_interval: {"draws": 200},
        pmp.bootstrap_interval: {"repeats": 20},
        pmp.repro_interval: {"draws": 30},
    }
    got = 0
    for _ in range(150):
        arguments = {**CALLS[function], **quick.get(function, {})}
        for name in rng.sample(sorted(set(EXTREMES) & set(parameters)), 2):
            if name in quick.get(function, {}):
                continue
            arguments[name] = rng.choice(EXTREMES[name])
        purse = Purse()
        try:
            published = called(function, arguments, purse)
        except PrivacyError:
            assert not purse.paid, arguments
            continue
        assert len(purse.paid) == 1
        assert purse.paid[0][0] == published.guarantee
        card = pmp.release_card(published)
        assert card["label"] in ("proven", "conditional")
        assert pmp.read_card(card) == published
        got += 1
    assert got > 20


def test_a_name_is_charged_for_once(tmp_path):
    ledger = pmp.Ledger(tmp_path / "ledger", pmp.PureDP(50.0, **REPLACE))
    for number, (function, arguments) in enumerate(CALLS.items()):
        called(function, {**arguments, "name": f"number {number}"}, ledger)
        with pytest.raises(PrivacyError, match=f"number {number}"):
            called(function, {**arguments, "name": f"number {number}"}, ledger)
        for _ in range(2):  # the name that stands where none was given
            called(function, arguments, ledger)
    assert len(ledger.charges) == 3 * len(CALLS)


def test_the_charge_comes_after_the_records_and_before_the_noise(monkeypatch):
    seen = []

    class Book(Purse):
        def charge(self, guarantee, *, what="release", unique=False):
            seen.append("charge")

    for kind, name in ((releases.ExactNoise, "laplace"), (ReleasePlan, "totals")):
        real = getattr(kind, name)

        def spied(self, *args, real=real, name=name, **kwargs):
            seen.append(name)
            return real(self, *args, **kwargs)

        monkeypatch.setattr(kind, name, spied)
    pmp.release([0, 1], bounds=(0, 1), epsilon=1.0, ledger=Book(), **REPLACE)
    assert seen == ["totals", "charge", "laplace"]
    seen.clear()
    pmp.multiple_sanitization_interval([0, 1] * 9, pmp.Proportion(), epsilon=1.0, ledger=Book())
    assert seen == ["totals", "charge", *["laplace"] * 3]


def test_what_coverage_is_an_average_of_is_said():
    average = "an average over parameters drawn from the prior"
    words = (average, "approximate", "at least prob at each parameter", "approximate", average)
    for method, word in zip(INTERVALS, words, strict=True):
        text = method(ANSWERS, pmp.Proportion(), epsilon=1.0).statement()
        assert f"Coverage is {word}" in text
        # What holds at each parameter holds near the ends, too.
        assert ("near the ends of the range" in text) == (word != words[2])


def test_shares_of_a_budget_never_add_up_to_more():
    for epsilon, parts in itertools.product([0.1, 0.3, 0.7, 1.0, 1e-9, 3.3], [2, 3, 7, 49]):
        one = intervals.share_of(pmp.PureDP(epsilon, **REPLACE), parts)
        total, whole = parts * Fraction(repr(one.epsilon)), Fraction(repr(epsilon))
        assert whole * (1 - Fraction(1, 2**50)) < total <= whole
