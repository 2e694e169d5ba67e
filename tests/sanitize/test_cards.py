"""Cards: what is read was computed again; what was edited in any way is refused or harmless."""

import copy
import hashlib
import json
import math
import os
import random
import re
from fractions import Fraction

import numpy as np
import pytest

import pymc_privacy as pmp
from pymc_privacy.errors import (
    GuaranteeError,
    InsecureNoiseWarning,
    PrivacyError,
    ReleaseError,
)
from pymc_privacy.sanitize import PrivateQuantile, plan_release
from pymc_privacy.sanitize import card as cards
from pymc_privacy.sanitize.methods import OF_CHAINS
from pymc_privacy.sanitize.publication import SIMULATED
from tests.stochastic import seed_of

REPLACE = {"neighbours": "replace_one"}
RECORDS = [0.2, 0.9, 0.4]
DAYS = [[0.3, 0.7, 0.0], [0.5, 0.4, 0.1], [0.3, 0.3, 0.4]]
ANSWERS = [0, 1, 1, 0] * 10


class Lazy(pmp.Proportion):
    """Somebody's own family."""


def posterior_of(releases, assumptions=(), **more):
    """Return an interval as `posterior_interval` makes it, without a sampler."""
    return pmp.PrivateInterval(
        0.2,
        0.3,
        0.95,
        "noise-aware posterior",
        assumptions=(*assumptions, OF_CHAINS),
        releases=releases,
        name="p",
        **more,
    )


def compositions():
    """Return one of every kind that is published of shares."""
    numbers = {"epsilon": 1.0, **REPLACE}
    with pytest.warns(InsecureNoiseWarning):
        rehearsed = pmp.simulate_composition(
            np.random.default_rng(2), DAYS, threshold=0.2, **numbers
        )
    return {
        "composition": pmp.release_composition(
            DAYS, thresholds=(0.001, 0.05), means=0.1, name="days", **numbers
        ),
        "means": pmp.release_composition(
            DAYS, means=1, epsilon=0.3, neighbours="add_remove", unit="one household"
        ),
        "groups": pmp.release_composition(DAYS, threshold=0.1, by=["a", "b", "b"], **numbers),
        "rehearsed composition": rehearsed,
    }


def published_things():
    """Return one of every kind that has a card."""
    numbers = {"bounds": (0, 1), "epsilon": 1.0, **REPLACE}
    rng = np.random.default_rng(1)
    yes = pmp.release(ANSWERS, integers=True, name="yes", **numbers)
    with pytest.warns(InsecureNoiseWarning):
        simulated = pmp.simulate_release(rng, RECORDS, **numbers)
    # Noise is not of a seed: of many records, or it could hide what another probability gives.
    summary = pmp.centre_scale_interval(
        rng.normal(size=2000), pmp.NormalVariance((-4, 4)), epsilon=5.0
    )
    return {
        "laplace": pmp.release(RECORDS, **numbers),
        "integers": yes,
        "simulated": simulated,
        "gaussian": pmp.release(RECORDS, bounds=(-0.3, 1.7), rho=0.3, neighbours="add_remove"),
        "approximate": pmp.release(
            RECORDS, bounds=(0, 1), epsilon=1.0, delta=1e-6, unit="one household", **REPLACE
        ),
        "columns": pmp.release(
            [[0.1, 5.0]], bounds=[(0, 1), (-9, 9)], epsilon=0.3, size=1, **REPLACE
        ),
        "asserted": pmp.release(RECORDS, sensitivity=0.25, **numbers),
        "quantile": pmp.private_quantile(RECORDS, 0.5, **numbers),
        "noise-aware": pmp.noise_aware_interval(ANSWERS, pmp.Proportion(), epsilon=0.5),
        "moments": pmp.bootstrap_interval(
            rng.normal(size=20), pmp.NormalMean((-4, 4)), epsilon=0.5, rng=rng
        ),
        "multiple": pmp.multiple_sanitization_interval(ANSWERS * 50, pmp.Rate(3), epsilon=0.1),
        "slope": pmp.noise_aware_interval(
            rng.normal(size=(20, 2)), pmp.Slope((-4, 4), (-4, 4), bounds=(-5, 5)), epsilon=5.0
        ),
        "foreign": pmp.multiple_sanitization_interval(ANSWERS, Lazy(), epsilon=0.7),
        "foreign summary": pmp.centre_scale_interval(ANSWERS * 50, Lazy(), epsilon=5.0),
        "posterior": posterior_of(
            (yes, yes), label="proven", guarantee=pmp.compose(yes.guarantee, yes.guarantee)
        ),
        "public": posterior_of(
            (yes,),
            ("Public, as stated by the curator: z.",),
            label="conditional",
            guarantee=yes.guarantee,
        ),
        "rehearsal": posterior_of(
            (simulated,),
            label="nominal",
            guarantee=None,
            claimed=simulated.guarantee,
            why=(SIMULATED,),
        ),
        "summary": summary,
        "centre and spread": summary.release,
        "stated": pmp.summary_interval(
            rng.beta(3, 5, 50),
            centre_sensitivity=0.1,
            spread_sensitivity=0.1,
            largest_spread=0.5,
            bounds=(0, 1),
            epsilon=40.0,
        ),
        "ends": pmp.pp_interval(rng.beta(3, 5, 50), bounds=(0, 1), epsilon=40.0),
        **compositions(),
        "nominal": pmp.precise(
            rng.beta(3, 5, 50), bounds=(0, 1), density_bound=8.0, samples=50, epsilon=1.0, rng=rng
        ),
    }


@pytest.fixture(scope="module")
def things():
    return published_things()


KINDS = [
    *("laplace", "integers", "gaussian", "approximate", "columns", "asserted", "quantile"),
    *("noise-aware", "moments", "multiple", "summary", "stated", "ends", "nominal", "simulated"),
    *("slope", "foreign", "foreign summary", "posterior", "public", "rehearsal"),
    *("centre and spread", "composition", "means", "groups", "rehearsed composition"),
]


@pytest.mark.parametrize("kind", KINDS)
def test_everything_published_has_a_card_that_gives_it_back(kind, things, tmp_path):
    published = things[kind]
    path = tmp_path / "card.json"
    pmp.write_card(published, path)
    for source in (path, str(path), pmp.release_card(published), json.loads(path.read_text())):
        read = pmp.read_card(source)
        assert read == published
        assert read.label == published.label
        assert pmp.release_card(read) == pmp.release_card(published)


def test_labels_follow_evidence(things):
    labels = {kind: things[kind].label for kind in KINDS}
    conditional = {"asserted", "stated", "foreign", "foreign summary", "public", "groups"}
    assert {kind for kind in KINDS if labels[kind] == "conditional"} == conditional
    nominal = {"nominal", "simulated", "rehearsal", "rehearsed composition"}
    assert {kind for kind in KINDS if labels[kind] == "nominal"} == nominal
    asserted = things["asserted"]
    assert any("stated by the curator, and not checked" in a for a in asserted.assumptions)
    assert "0.25" in asserted.statement()
    with pytest.raises(GuaranteeError, match="must come with the releases"):
        pmp.PrivateInterval(
            lower=0.0,
            upper=1.0,
            prob=0.95,
            method="by hand",
            label="proven",
            assumptions=(),
            guarantee=pmp.PureDP(0.1, **REPLACE),
        )
    with pytest.raises(GuaranteeError, match="that of its releases together"):
        pmp.PrivateInterval(
            lower=0.0,
            upper=1.0,
            prob=0.95,
            method="by hand",
            label="proven",
            assumptions=(),
            guarantee=pmp.PureDP(0.1, **REPLACE),
            releases=(things["laplace"],),
        )


# ---------------------------------------------------------------- a reference of our own


def spans(bounds, cell, neighbours):
    """Return how far a record moves each column, in cells, from the bounds alone."""
    ends = [[round(Fraction(end) / cell) for end in pair] for pair in bounds]
    if neighbours == "replace_one":
        return [high - low for low, high in ends]
    return [max(abs(low), abs(high)) for low, high in ends]


def is_borne_out(interval):
    """Return whether releases keep the promise of an interval, and lend it their assumptions."""
    total = sum(Fraction(repr(part.guarantee.epsilon)) for part in interval.releases)
    said = {words for part in interval.releases for words in part.assumptions}
    labels = {part.label for part in interval.releases}
    return (
        total > 0
        and total <= Fraction(repr(interval.guarantee.epsilon))
        and all(map(is_true_or_conditional, interval.releases))
        and said <= set(interval.assumptions)
        and labels <= {"proven", interval.label}
    )


def proved_l1(name, neighbours):
    """Return the L1 sensitivity of a total that has a name, from the words of the name."""
    known = {"(v, v^2)": 9 / 4, "(v, v^2, t, v t, t^2)": 13 / 2}
    if name in known:
        return known[name]
    if name.startswith("smallest of"):
        return 2.0 if neighbours == "replace_one" else 1.0
    if match := re.fullmatch(r"log max\(x, (.*)\) of (.*) shares", name):
        # Between records that are uniform on k parts and on m others, of all k and m.
        a, d = float(match[1]), int(match[2])
        records = [[1 / k] * k + [0.0] * (d - k) for k in range(1, d + 1)]
        if neighbours == "add_remove":
            records = [[max(1 - (d - 1) * a, 1 / d)] + [min(a, 1 / d)] * (d - 1)]
            return max(sum(-math.log(max(x, a)) for x in r) for r in records)
        pairs = [(r, list(reversed(s))) for r in records for s in records]
        moved = [[math.log(max(x, a) / max(y, a)) for x, y in zip(*p, strict=True)] for p in pairs]
        return max(sum(map(abs, differences)) for differences in moved)
    assert re.fullmatch("[0-9]+ shares", name)
    return 2.0 if neighbours == "replace_one" else 1.0


def is_sum_of_parts(composition):
    """Return whether the parts of a composition are true, and their budgets add up to it."""
    total = sum(Fraction(repr(part.guarantee.epsilon)) for part in composition.releases)
    whole = Fraction(repr(composition.guarantee.epsilon))
    assert composition.label == "proven"
    return total <= whole and all(map(is_true_or_conditional, composition.releases))


def is_true_or_conditional(made):
    """Return whether what is stated holds, by arithmetic that the package has no part in."""
    if isinstance(made, pmp.GroupedComposition):
        # Each person is in one group: what is promised must hold in each.
        return made.label == "nominal" or bool(made.assumptions)
    if isinstance(made, pmp.CompositionRelease) and made.label == "proven":
        return is_sum_of_parts(made)
    if isinstance(made, pmp.PrivateInterval):
        return made.guarantee is None or is_borne_out(made)
    if made.label != "proven":
        return bool(made.assumptions) or made.label == "nominal"
    if isinstance(made, PrivateQuantile):
        return made.guarantee.epsilon > 0  # the law that is drawn from follows from epsilon
    if not isinstance(made, pmp.Release):
        return made.plan.bounds == made.plan.family.summary_bounds(made.plan.size)
    plain = pmp.release_card(made)
    cell, scale = Fraction(plain["granularity"]), Fraction(plain["noise"]["scale"])
    moved = spans(plain["bounds"], cell, plain["guarantee"]["neighbours"])
    if plain["moments"] is not None:
        # Each column of both records may be rounded by half a cell; floats have 52 bits.
        neighbours = plain["guarantee"]["neighbours"]
        known = Fraction(proved_l1(plain["moments"], neighbours) * (1 - 2**-50)) / cell
        known += 0 if cell == 1 else Fraction(len(moved), 1 + (neighbours == "add_remove"))
        moved = [min(sum(moved), known)]
    if plain["guarantee"]["measure"] == "pure":
        return sum(moved) / scale <= Fraction(repr(plain["guarantee"]["epsilon"]))
    if plain["guarantee"]["measure"] == "zero_concentrated":
        return sum(m * m for m in moved) / (2 * scale**2) <= Fraction(
            repr(plain["guarantee"]["rho"])
        )
    rho = float(sum(m * m for m in moved) / (2 * scale**2))
    # Bun & Steinke (2016), which no better conversion exceeds.
    delta, epsilon = plain["guarantee"]["delta"], plain["guarantee"]["epsilon"]
    return rho < epsilon and epsilon <= rho + 2 * math.sqrt(rho * math.log(1 / delta))


def test_the_reference_agrees_with_what_was_published(things):
    for kind in KINDS:
        assert is_true_or_conditional(things[kind]), kind


# ---------------------------------------------------------------- edits

NONSENSE = [
    *(None, True, False, "", "magic", "cauchy", "1/0", "1e4000000", "proven", "conditional"),
    *("replace_one", "add_remove", "pure", "one household", "exact", "(v, v^2)", "Proportion"),
    *(0, -1, -5, 1, 2, 3, 10**30, 10**400, 1e-6, 0.5, 1e300, -1e300, math.nan, math.inf),
    *([], {}, [1], [[0, 1]], {"a": 1}),
]


def places(plain, at=()):
    """Return the way to every value of a card."""
    found = [at] if at else []
    if isinstance(plain, dict):
        for key, value in plain.items():
            found += places(value, (*at, key))
    if isinstance(plain, list):
        for k, value in enumerate(plain):
            found += places(value, (*at, k))
    return found


def parent_of(plain, at):
    for key in at[:-1]:
        plain = plain[key]
    return plain


def edited(rng, plain, others):
    """Change a card in one to three places: numbers, nonsense, parts of other cards, and gaps."""
    plain = copy.deepcopy(plain)
    for _ in range(rng.choice([1, 1, 2, 2, 3])):
        at = rng.choice(places(plain))
        parent, key = parent_of(plain, at), at[-1]
        value = parent[key]
        action = rng.randrange(7)
        number = isinstance(value, int | float) and not isinstance(value, bool)
        if action == 0 or (action < 4 and not number):
            parent[key] = copy.deepcopy(rng.choice(NONSENSE))
        elif action == 1:
            parent[key] = rng.choice([0.5, 2, 1 + 1e-9, -1, 0, 1e-6, 1e6]) * min(value, 1e300)
        elif action == 2:
            parent[key] = math.nextafter(min(value, 1e300), rng.choice([-math.inf, math.inf]))
        elif action == 3:
            parent[key] = str(value)
        elif action in (4, 5):
            same = [other for other in others if is_there(other, at)]
            parent[key] = copy.deepcopy(parent_of(rng.choice(same), at)[key]) if same else None
        elif rng.random() < 0.5 or not isinstance(parent, dict):
            del parent[key]
        else:
            parent[rng.choice(["extra", "epsilon", "format", ""])] = rng.choice(NONSENSE)
    return plain


def is_there(plain, at):
    try:
        parent_of(plain, at)[at[-1]]
    except (KeyError, IndexError, TypeError):
        return False
    return True


def sealed_again(plain):
    """Return the card with the checksums of a forger, who can compute them as well."""
    try:
        fields = {key: value for key, value in plain.items() if key != "checksum"}
        for several in ("releases", "groups"):
            if isinstance(fields.get(several), list):
                fields[several] = [sealed_again(part) for part in fields[several]]
        return {**fields, "checksum": cards._checksum(fields)}
    except (TypeError, AttributeError):
        return plain


def read_after_edits(rng, originals, edits=1000):
    """Yield the edited cards that were read, and whether that is harmful."""
    for _ in range(edits):
        plain = edited(rng, rng.choice(originals), originals)
        forged = rng.random() < 0.8
        plain = sealed_again(plain) if forged else plain
        try:
            made = pmp.read_card(plain)
        except ReleaseError:
            continue
        # What was read is what the card says, in every field, and true.
        honest = cards.same(pmp.release_card(made), plain) and is_true_or_conditional(made)
        yield plain, not honest or not (forged or plain in originals)


def test_a_card_edited_in_any_of_a_thousand_ways_is_refused_or_harmless(things, request):
    originals = [pmp.release_card(things[kind]) for kind in KINDS]
    found = list(read_after_edits(random.Random(seed_of(request)), originals))
    assert not [plain for plain, harmful in found if harmful]
    # Some edits are of names, dates and noisy numbers, or they would show nothing.
    assert 10 < len(found) < 500


@pytest.mark.parametrize(
    ("where", "mutant"),
    [
        ("pymc_privacy.sanitize.card_reading.same", lambda ours, theirs: True),
        ("pymc_privacy.sanitize.PrivateInterval._check_evidence", lambda self, guarantee: None),
        ("pymc_privacy.sanitize.PrivateInterval._check_assumptions", lambda self, coverage: None),
    ],
    ids=["believes numbers", "needs no evidence", "forgets assumptions"],
)
def test_a_reader_that_checks_less_is_found_out(where, mutant, things, request, monkeypatch):
    monkeypatch.setattr(where, mutant)
    originals = [pmp.release_card(things[kind]) for kind in KINDS]
    found = read_after_edits(random.Random(seed_of(request)), originals)
    assert any(harmful for _, harmful in found)


def test_a_file_with_any_byte_changed_is_refused_or_the_same(things, request, tmp_path):
    rng = random.Random(seed_of(request))
    for kind in ("laplace", "summary", "quantile"):
        path = tmp_path / f"{kind}.json"
        pmp.write_card(things[kind], path)
        content = path.read_bytes()
        for _ in range(300):
            broken = bytearray(content)
            where = rng.randrange(len(broken))
            action = rng.randrange(3)
            if action == 0:
                broken[where] ^= 1 << rng.randrange(8)
            elif action == 1:
                del broken[where : where + rng.choice([1, 1, 5, 10**6])]
            else:
                broken[where:where] = bytes([rng.randrange(256)])
            path.write_bytes(broken)
            try:
                assert pmp.read_card(path) == things[kind]
            except ReleaseError:
                continue


@pytest.mark.parametrize(
    "edit",
    [
        {"guarantee": {"epsilon": 1e-6}},
        {"guarantee": {"epsilon": 1e-6}, "sensitivity": {"value": 1e-6}},
        {"noise": {"sampler": "magic"}},
        {"noise": {"family": "discrete cauchy"}},
        {"bounds": [[1, 0]]},
        {"bounds": [[0, 0.5]]},
        {"size": -5},
        {"size": None},
        {"size": True},
        {"granularity": "1/0"},
        {"granularity": "1e4000000"},
        {"granularity": "1/3"},
        {"granularity": "2"},
        {"guarantee": {"neighbours": "add_remove"}},
        {"guarantee": {"neighbours": None}},
        {"guarantee": {"measure": "gaussian"}},
        {"sensitivity": {"status": "asserted"}},
        {"label": "nominal"},
        {"moments": "(v, v^2)"},
        {"version": 1},
        {"version": True},
        {"integers": [1.0]},
        {"integers": [2**2000]},
        {"integers": []},
        {"published": "yesterday"},
        {"name": "two\nlines"},
        {"extra": 1},
    ],
    ids=str,
)
def test_each_contradiction_on_a_card_is_refused(edit, things):
    plain = copy.deepcopy(pmp.release_card(things["integers"]))
    for key, value in edit.items():
        plain[key] = {**plain[key], **value} if isinstance(value, dict) else value
    with pytest.raises(ReleaseError, match=r"must"):
        pmp.read_card(sealed_again(plain))


def test_a_card_that_says_another_truth_is_refused_by_its_checksum(things):
    # Consistent in itself, but of another release; whoever computes the checksum too can write
    # a card of a release that never was, and no card can tell.
    plain = copy.deepcopy(pmp.release_card(things["integers"]))
    plain["guarantee"]["epsilon"], plain["noise"]["scale"] = 0.5, 2.0
    with pytest.raises(ReleaseError, match="altered at 'checksum'"):
        pmp.read_card(plain)
    plain = pmp.release_card(things["integers"])
    another = [plain["integers"][0] + 1]
    for key, value in (("integers", another), ("name", "no"), ("published", "2020-01-01")):
        with pytest.raises(ReleaseError, match="altered at"):
            pmp.read_card({**plain, key: value})


def test_a_conditional_card_does_not_become_proven(things):
    for kind in ("asserted", "stated"):
        plain = copy.deepcopy(pmp.release_card(things[kind]))
        plain["label"] = "proven"
        with pytest.raises(ReleaseError):
            pmp.read_card(sealed_again(plain))
    plain = copy.deepcopy(pmp.release_card(things["asserted"]))
    plain["stated_sensitivity"] = None
    with pytest.raises(ReleaseError, match="altered at"):
        pmp.read_card(sealed_again(plain))


@pytest.mark.parametrize(
    "content",
    [
        "[" * 100_000,
        '{"a":' * 50_000,
        '{"format": "pymc-privacy release card", "version": 2, "size": ' + "9" * 5000 + "}",
        '{"format": "pymc-privacy release card", "version": 2e999}',
        '{"format": NaN}',
        '{"format": "pymc-privacy release card", "format": "pymc-privacy release card"}',
        '{"format": {"deep": [[[[[[[[[[[[[[[[[[[[[[[[[]]]]]]]]]]]]]]]]]]]]]]]]]}}',
        '{"format": ["pymc-privacy release card"], "version": 2}',
        "null",
        "",
        "\ud800".encode("utf-16", "surrogatepass").decode("latin-1"),
        " " * (2**24 + 1),
    ],
    ids=range(12),
)
def test_malformed_files_are_one_error_and_take_no_time(content, tmp_path):
    path = tmp_path / "card.json"
    path.write_bytes(content.encode("latin-1"))
    with pytest.raises(ReleaseError, match="A card must"):
        pmp.read_card(path)


@pytest.mark.parametrize(
    "source", [None, 3, b"card.json", [], "", {1: 2}, {"format": {1}}, object()]
)
def test_what_is_no_card_is_one_error(source):
    with pytest.raises(ReleaseError):
        pmp.read_card(source)


def test_parts_that_are_shared_are_looked_at_a_bounded_number_of_times():
    nested = [0]
    for _ in range(14):
        nested = [nested] * 10
    with pytest.raises(ReleaseError, match="A card must have at most 2097152 values; got more"):
        pmp.read_card({"format": nested})
    # Cards within cards, of which each would take a while to check.
    whole = pmp.centre_scale_interval([0, 1] * 50_000, pmp.Proportion(), epsilon=1.0)
    plain = pmp.release_card(whole)
    plain["releases"] *= 10_000
    with pytest.raises(ReleaseError, match="what its method takes"):
        pmp.read_card(plain)


def test_places_that_cannot_be_read_or_written_are_named_for_what_they_are(things, tmp_path):
    published = things["laplace"]
    with pytest.raises(ReleaseError, match=r"can be read.*cannot be"):
        pmp.read_card(tmp_path / "none.json")
    with pytest.raises(ReleaseError, match=r"can be read.*cannot be"):
        pmp.read_card(tmp_path)
    with pytest.raises(ReleaseError, match="The folder of a card must exist"):
        pmp.write_card(published, tmp_path / "no" / "card.json")
    with pytest.raises(ReleaseError, match="may write"):
        pmp.write_card(published, tmp_path, overwrite=True)
    for release in (None, "x", 3.0, {}):
        with pytest.raises(ReleaseError, match="release must be a Release"):
            pmp.write_card(release, tmp_path / "card.json")
    assert not (tmp_path / "card.json").exists()


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_that_is_read_only_is_called_so(things, tmp_path):
    folder = tmp_path / "shut"
    folder.mkdir(mode=0o500)
    with pytest.raises(ReleaseError, match=r"may write.*Permission denied"):
        pmp.write_card(things["laplace"], folder / "card.json")


def test_a_refused_file_system_is_called_so(things, tmp_path, monkeypatch):
    def shut(self, *args, **kwargs):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("pathlib.Path.open", shut)
    with pytest.raises(ReleaseError, match=r"may write.*Permission denied"):
        pmp.write_card(things["laplace"], tmp_path / "card.json")


def test_a_card_is_not_overwritten_without_a_word(things, tmp_path):
    path = tmp_path / "card.json"
    pmp.write_card(things["laplace"], path)
    with pytest.raises(ReleaseError, match="overwrite=True"):
        pmp.write_card(things["quantile"], path)
    assert pmp.read_card(path) == things["laplace"]
    pmp.write_card(things["quantile"], path, overwrite=True)
    assert pmp.read_card(path) == things["quantile"]


def test_a_plan_cannot_contradict_itself():
    good = plan_release(bounds=(0, 1), epsilon=1.0, integers=True, **REPLACE)
    for change in (
        {"moments": "(v, v^2)"},
        {"moments": "magic"},
        {"guarantee": pmp.GaussianDP(1.0, **REPLACE)},
        {"guarantee": pmp.PureDP(1.0)},
        {"stated": -1.0},
        {"stated": 1e-3},
        {"name": ""},
        {"name": "yes "},
        {"words": None},
        {"words": "abc"},
        {"words": ["abc"]},
        {"words": ("",)},
        {"words": (3,)},
        {"whole": "no"},
        {"whole": 1},
        {"lattice": None},
        {"guarantee": None},
        {"moments": []},
    ):
        with pytest.raises(PrivacyError):
            type(good)(**{**vars_of(good), **change})
    with pytest.raises(ReleaseError, match="lattice must be a Lattice; got None"):
        type(good)("x", None, None)
    with pytest.raises(ReleaseError, match="plan must be a QuantilePlan; got 'x'"):
        PrivateQuantile("x", 1, "2020-01-01")


def vars_of(plan):
    return {name: getattr(plan, name) for name in plan.__dataclass_fields__}


def test_a_quantile_does_not_promise_what_it_was_not_chosen_with():
    median = pmp.private_quantile(
        [1.0, 2.0], 0.5, bounds=(0, 3), epsilon=5.0, neighbours="replace_one"
    )
    card = pmp.release_card(median)
    card["guarantee"]["epsilon"] = 1e-6
    del card["checksum"]
    text = json.dumps(card, sort_keys=True)
    card["checksum"] = hashlib.sha256(text.encode()).hexdigest()
    with pytest.raises(ReleaseError, match="card"):
        pmp.read_card(card)


def test_masks_within_lists_are_refused():
    rows = [np.ma.array([1.0, 100.0], mask=[False, True])] * 5
    with pytest.raises(ReleaseError, match="without a mask"):
        pmp.release(rows, bounds=[(0, 1), (0, 100)], epsilon=1.0, neighbours="add_remove")
    with pytest.raises(ReleaseError):
        pmp.release(
            [np.ma.array(1, mask=True), 1], bounds=(0, 1), epsilon=1.0, neighbours="replace_one"
        )
