"""Intervals are as good as their evidence: edits that contradict nothing are refused as well.

Whoever edits a card computes its checksums again, here in every test.
"""

import copy
import dataclasses
import warnings

import numpy as np
import pytest

import pymc_privacy as pmp
from pymc_privacy.errors import GuaranteeError, ReleaseError
from pymc_privacy.sanitize import summary_plan
from pymc_privacy.sanitize.budget import covers, together
from pymc_privacy.sanitize.exact_noise import ExactNoise
from pymc_privacy.sanitize.families import SummaryBounds
from pymc_privacy.sanitize.methods import APPROXIMATE, METHODS, OF_CHAINS, PRIOR_AVERAGE
from tests.sanitize.test_cards import (
    ANSWERS,
    REPLACE,
    Lazy,
    posterior_of,
    published_things,
    sealed_again,
)

RANDOM = ["noise-aware", "moments", "slope", "posterior", "public"]
FIXED = ["multiple", "summary", "stated", "foreign summary", "ends"]
GUARANTEED = [*RANDOM, *FIXED, "foreign"]
STRONG = {"measure": "pure", "epsilon": 1e-6, **REPLACE, "unit": "one record"}


@pytest.fixture(scope="module")
def things():
    return published_things()


@pytest.fixture
def plain(things):
    return lambda kind: copy.deepcopy(pmp.release_card(things[kind]))


def refuse(plain, sentence):
    with pytest.raises(ReleaseError, match=sentence):
        pmp.read_card(sealed_again(plain))


# ---------------------------------------------------------------- no evidence, no guarantee


@pytest.mark.parametrize("kind", GUARANTEED)
@pytest.mark.parametrize("label", ["proven", "conditional"])
def test_without_releases_there_is_no_guarantee(kind, label, plain):
    edited = plain(kind)
    edited |= {"releases": [], "label": label, "guarantee": STRONG, "publishers_word": []}
    edited["assumptions"].insert(0, "Trust me.")
    refuse(edited, "must come with the releases")


@pytest.mark.parametrize("kind", GUARANTEED)
def test_a_promise_is_not_better_than_that_of_the_releases(kind, plain):
    edited = plain(kind)
    edited["guarantee"] = {**edited["guarantee"], "epsilon": edited["guarantee"]["epsilon"] * 0.999}
    refuse(edited, "that of its releases together")


@pytest.mark.parametrize("kind", ["multiple", "summary", "ends", "stated"])
def test_a_release_that_is_left_out_is_missed(kind, plain):
    edited = plain(kind)
    count = len(edited["releases"])
    edited["releases"].pop()
    edited["guarantee"]["epsilon"] *= (count - 1) / count or 1
    refuse(edited, r"must be those that follow|must come with")


def test_assumptions_of_the_releases_stay(plain):
    for kind in ("stated", "foreign", "foreign summary"):
        for label in ("proven", "conditional"):
            edited = plain(kind)
            edited |= {"assumptions": [edited["assumptions"][-1]], "label": label}
            refuse(edited, r"assumptions of an interval must|all of them proven")


@pytest.mark.parametrize("kind", [*GUARANTEED, "nominal", "rehearsal"])
def test_what_is_known_of_the_coverage_stays(kind, plain):
    for words in ([], ["Coverage is exactly 95%, always."]):
        edited = plain(kind)
        edited["assumptions"] = [*edited["assumptions"][:-1], *words]
        if edited["label"] == "proven" and words:
            edited["label"] = "conditional"
        refuse(edited, r"coverage of its method|also has assumptions")


def test_labels_are_borne_out_by_assumptions(plain):
    edited = plain("multiple")
    refuse({**edited, "label": "conditional"}, "an assumption that its guarantee rests on")
    edited["assumptions"].insert(0, "Trust me.")
    refuse(edited, "no assumptions but on its coverage")
    edited = plain("public")
    refuse({**edited, "label": "proven"}, "no assumptions but on its coverage")


@pytest.mark.parametrize("kind", [*GUARANTEED, "nominal", "rehearsal"])
def test_methods_are_those_of_the_package(kind, plain):
    for method in ("magic", "", "noise-aware posterior ", None, *METHODS):
        edited = plain(kind)
        # What takes the same releases still says something else of its coverage.
        if method != edited["method"] and not (kind == "nominal" and str(method)[:7] == "PRECISE"):
            refuse({**edited, "method": method}, r"card|interval|text")


@pytest.mark.parametrize("kind", GUARANTEED)
def test_a_guarantee_stands_alone(kind, plain):
    for field, value in (("claimed", STRONG), ("supported", STRONG), ("why", ["Because."])):
        refuse({**plain(kind), field: value}, "no other claims")


def test_a_rehearsal_claims_what_its_releases_do(plain):
    for field, value in (("claimed", STRONG), ("supported", STRONG), ("why", ["Because."])):
        refuse({**plain("rehearsal"), field: value}, "claim what its releases do")
    # What is not simulated is not called so to claim something else.
    edited = {**plain("noise-aware"), "label": "nominal", "guarantee": None, "claimed": STRONG}
    refuse({**edited, "why": ["Because."]}, "come with a simulated release")
    refuse({**plain("nominal"), "claimed": None}, "must say what its method claims")


def test_releases_that_add_up_are_of_one_unit(plain):
    for kind in ("posterior", "multiple", "ends"):
        edited = plain(kind)
        edited["releases"][0]["guarantee"]["unit"] = "one household"
        refuse(edited, "neighbours and the unit")
    edited = plain("rehearsal")
    edited["releases"].append(copy.deepcopy(edited["releases"][0]))
    edited["releases"][0]["guarantee"]["unit"] = "one household"
    refuse(edited, "same unit")


def test_promises_are_added_up_as_decimals_and_rounded_up(things):
    options = {"bounds": (0, 1), "integers": True, **REPLACE}
    parts = tuple(pmp.release(ANSWERS, epsilon=epsilon, **options) for epsilon in (0.1, 0.7))
    guarantees = [part.guarantee for part in parts]
    # The nearest float to the sum of the two floats is below 0.8.
    below = pmp.compose(*guarantees)
    assert below.epsilon < 0.8
    with pytest.raises(GuaranteeError, match="that of its releases together"):
        posterior_of(parts, label="proven", guarantee=below)
    whole = together(guarantees)
    assert whole.epsilon == 0.8
    assert posterior_of(parts, label="proven", guarantee=whole).label == "proven"
    for kind in (pmp.ZeroConcentratedDP, pmp.GaussianDP, lambda x: pmp.ApproximateDP(x, x / 10)):
        for first in np.arange(1, 10) / 10:
            several = [kind(first), kind(0.7), kind(0.1)]
            assert covers(together(several), several)


# ---------------------------------------------------------------- ends


@pytest.mark.parametrize("kind", FIXED)
def test_ends_that_can_be_are_computed_again(kind, plain, things):
    assert things[kind].unchecked == ()
    assert plain(kind)["publishers_word"] == []
    for field in ("lower", "upper"):
        for change in (1e-6, -0.3, 5.0):
            edited = plain(kind)
            edited[field] += change
            refuse(edited, "must be those that follow from its releases")
    edited = plain(kind)
    edited["lower"], edited["upper"] = edited["upper"], edited["lower"]
    refuse(edited, "must be those that follow from its releases")
    refuse({**plain(kind), "prob": 0.5}, r"must be those that follow|half of 1 - prob")


def test_a_number_that_another_library_rounds_otherwise_is_read(plain):
    for kind in ("multiple", "summary"):
        edited = plain(kind)
        edited["upper"] = np.nextafter(edited["upper"], 0.0).item()
        assert pmp.read_card(sealed_again(edited)).upper == edited["upper"]


@pytest.mark.parametrize("kind", [*RANDOM, "foreign"])
def test_other_ends_are_the_publishers_word_and_the_card_says_so(kind, plain, things):
    assert plain(kind)["publishers_word"] == ["lower", "upper", "prob"]
    assert "On the publisher's word: lower, upper, prob." in things[kind].statement()
    refuse({**plain(kind), "publishers_word": []}, "altered at 'publishers_word'")
    read = pmp.read_card(sealed_again({**plain(kind), "lower": -17.0}))
    assert read.lower == -17.0
    assert read.unchecked == ("lower", "upper", "prob")


def test_what_a_nominal_method_claims_is_the_publishers_word(plain):
    words = ["lower", "upper", "prob", "claimed", "supported", "why"]
    assert plain("nominal")["publishers_word"] == words
    read = pmp.read_card(sealed_again({**plain("nominal"), "supported": STRONG}))
    assert (read.label, read.guarantee, "supported" in read.unchecked) == ("nominal", None, True)


def test_a_family_is_that_of_the_releases(plain, things):
    assert plain("moments")["family"] == {"kind": "NormalMean", "bounds": [-4.0, 4.0]}
    assert plain("foreign")["family"] is None
    assert things["slope"].family == pmp.Slope((-4, 4), (-4, 4), bounds=(-5, 5))
    for kind, family in (
        ("multiple", {"kind": "Rate", "upper": 4, "prior": [1.0, 0.0]}),
        ("multiple", {"kind": "NormalMean", "bounds": [0.0, 3.0]}),
        ("slope", {"kind": "NormalMean", "bounds": [0.0, 3.0]}),
        ("summary", {"kind": "NormalVariance", "bounds": [-4.0, 4.0]}),
        ("ends", {"kind": "Proportion", "prior": [1.0, 1.0]}),
        ("nominal", {"kind": "Lazy", "prior": [1.0, 1.0]}),
    ):
        refuse({**plain(kind), "family": family}, r"family of an interval must|lacks")
    for kind in ("multiple", "moments"):
        refuse({**plain(kind), "family": None}, "must say for which family")


# ---------------------------------------------------------------- what an interval is made of


def test_nothing_but_what_was_published_is_evidence(things):
    class Duck:
        label, assumptions, guarantee = "proven", (), pmp.PureDP(1e-9, **REPLACE)

    class Derived(pmp.Release):
        label = "proven"

    asserted = things["asserted"]
    boast = Derived(**{f.name: getattr(asserted, f.name) for f in dataclasses.fields(asserted)})
    assert boast.label == "proven"
    for release in (Duck(), boast, things["noise-aware"], None, "release"):
        with pytest.raises(GuaranteeError, match="A release of an interval must be a Release"):
            pmp.PrivateInterval(
                *(0.2, 0.3, 0.95, "noise-aware posterior", "proven", (OF_CHAINS,)),
                guarantee=pmp.PureDP(1.0, **REPLACE),
                releases=(release,),
            )


def test_totals_that_are_combined_are_of_one_plan(things):
    multiple = things["multiple"]
    other = dataclasses.replace(multiple.releases[0], size=7)
    with pytest.raises(GuaranteeError, match="of the same records by one plan"):
        dataclasses.replace(multiple, releases=(other, *multiple.releases[1:]))
    first, second = things["ends"].releases
    swapped = dataclasses.replace(first.plan, of="records")
    other = type(first)(swapped, first.cell, first.published)
    with pytest.raises(GuaranteeError, match="must be of the same draws"):
        dataclasses.replace(things["ends"], releases=(other, second))


# ---------------------------------------------------------------- summaries


@pytest.mark.parametrize("kind", ["stated", "foreign summary"])
def test_what_a_summary_rests_on_is_derived_and_not_told(kind, plain):
    for words in ([], ["Nothing to see here."]):
        edited = plain(kind)
        edited["releases"][0]["assumptions"] = words
        edited["assumptions"] = [*words, edited["assumptions"][-1]]
        refuse(edited, r"altered at 'assumptions'|assumptions of an interval")
        edited["releases"][0]["label"] = edited["label"] = "proven"
        refuse(edited, r"altered at|all of them proven")


def test_a_summary_of_nobodys_family_is_conditional():
    guarantee, bounds = pmp.PureDP(1.0, **REPLACE), SummaryBounds(0.1, 0.1, 1.0, 0.5)
    stated = summary_plan.SummaryPlan("p", guarantee, (0, 1), bounds)
    assert stated.label == "conditional"
    assert "stated by the curator, and not checked" in stated.assumptions[0]
    foreign = summary_plan.SummaryPlan("p", guarantee, (0, 1), bounds, author="Lazy")
    assert foreign.label == "conditional"
    assert "the word of the author of Lazy" in foreign.assumptions[0]
    for more in (
        {"size": 40},
        {"family": pmp.Proportion(), "size": 40},
        {"family": Lazy(), "size": 40},
        {"family": "Proportion", "size": 40},
        {"author": ""},
        {"author": 3},
    ):
        with pytest.raises(ReleaseError):
            summary_plan.SummaryPlan("p", guarantee, (0, 1), bounds, **more)
    known = summary_plan.plan_summary(pmp.Proportion(), 40, guarantee, "p")
    assert known.label == "proven"
    with pytest.raises(ReleaseError, match="bounds of its family"):
        dataclasses.replace(known, author="Lazy")


# ---------------------------------------------------------------- numbers


def test_hardly_any_difference_between_totals_is_no_overflow(monkeypatch):
    # Three releases that differ by next to nothing: degrees of freedom beyond all floats.
    drawn = iter([0, 0, 1])
    monkeypatch.setattr(ExactNoise, "laplace", lambda self, scale, count: [next(drawn)] * count)
    family = pmp.NormalVariance((-1, 1))
    with warnings.catch_warnings(action="error"):
        interval = pmp.multiple_sanitization_interval(np.zeros(9), family, epsilon=1e90)
    assert 0 <= interval.lower < interval.upper < 1


@pytest.mark.parametrize("scale", [1e-30, 1.0, 1e30])
def test_an_interval_is_as_wide_on_every_scale(scale):
    bounds = SummaryBounds(0.1 * scale, 0.1 * scale, scale, 0.5 * scale)
    guarantee = pmp.PureDP(1000.0, **REPLACE)
    plan = summary_plan.SummaryPlan("p", guarantee, (0, scale), bounds)
    lower, upper = plan.ends(plan.cells(0.5 * scale, 0.02 * scale), 0.95)
    assert lower / scale == pytest.approx(0.458, abs=0.002)
    assert upper / scale == pytest.approx(0.542, abs=0.002)


def test_coverage_is_spoken_of_in_the_words_of_the_method():
    interval = pmp.noise_aware_interval(ANSWERS, pmp.Proportion(), epsilon=1.0)
    assert interval.assumptions == (PRIOR_AVERAGE,)
    with pytest.raises(GuaranteeError, match="coverage of its method"):
        dataclasses.replace(interval, assumptions=(OF_CHAINS,))
    with pytest.raises(GuaranteeError, match="coverage of its method"):
        dataclasses.replace(interval, assumptions=(APPROXIMATE,))
