"""A search over neighbouring data sets: no release or interval tells more than it states.

Everything that a reader sees of two neighbours must be the same but for the noisy integers; and
these must be as close as the noise hides. The noise is taken out to see what it is added to, losses
are computed in fractions, and what records should become is computed here from nothing but Python.
"""

import itertools
import json
import math
import random
from contextlib import contextmanager
from decimal import Decimal, localcontext
from fractions import Fraction

import numpy as np
import pandas as pd
import pytest

import pymc_privacy as pmp
from pymc_privacy.errors import PrivacyError
from pymc_privacy.sanitize import exponential_choice
from pymc_privacy.sanitize.exact_noise import ExactNoise
from tests.stochastic import seed_of

RELATIONS = ("replace_one", "add_remove")
# Beyond 2^53 and beyond all floats, of every type, at the edges of rounding.
VALUES = [
    *(0, 1, 2, -1, 7, 100, True, False, 0.5, 1.5, 2.5, -0.3, 0.1, 1.7, -0.0, 1e-9, 5e-324),
    *(2**53 + 1, 2**53 + 3, 2**63 - 1, 2**64 - 1, -(2**63), 2**70, 10**400, -(10**400)),
    *(1e308, -1e308, 1e16, np.float32(0.1), np.int8(3), np.uint64(2**63 + 1), Fraction(1, 3)),
    *(Decimal("0.1"), Decimal("1e400")),
]
PUBLIC_BOUNDS = [
    *((0, 1), (-1, 1), (0, 100), (-0.3, 1.7), (0, 2**54), (-1e100, 1e100), (1e6, 1e6 + 1)),
    *((0, 1e-200), (-7, -3)),
]


# ---------------------------------------------------------------- what a reader sees


@contextmanager
def without_noise(monkeypatch):
    """Publish totals as they are, and remember what noise would have been added."""
    asked = []

    def none(kind):
        def draw(self, scale, count):
            asked.append((kind, scale, count))
            return [0] * count

        return draw

    with monkeypatch.context() as patch:
        patch.setattr(ExactNoise, "laplace", none("laplace"))
        patch.setattr(ExactNoise, "gaussian", none("gaussian"))
        yield asked


def blind(card):
    """Return a card without its noisy numbers."""
    noisy = {"integers", "value", "checksum", "lower", "upper", "cell"}
    if isinstance(card, dict):
        return {key: blind(value) for key, value in card.items() if key not in noisy}
    return [blind(value) for value in card] if isinstance(card, list) else card


def seen(monkeypatch, publish, records):
    """Return everything that is published but noisy numbers, and the totals; or the refusal."""
    with without_noise(monkeypatch) as asked:
        try:
            published = publish(records)
        except PrivacyError as error:
            return ("refused", type(error).__name__), []
    parts = getattr(published, "releases", (published,))
    said = json.dumps(blind(pmp.release_card(published)), sort_keys=True)
    return (said, asked, published.label), [part.integers for part in parts]


def loss(asked, one, other):
    """Return the sum of |difference| / scale, or of squares / (2 scale^2), exactly."""
    total = Fraction(0)
    for (kind, scale, count), a, b in zip(asked, one, other, strict=True):
        assert count == len(a) == len(b)
        apart = [abs(x - y) for x, y in zip(a, b, strict=True)]
        if kind == "laplace":
            total += sum(apart) / Fraction(scale)
        else:
            total += sum(d * d for d in apart) / (2 * Fraction(scale) ** 2)
    return total


def assert_alike(monkeypatch, publish, pair, stated):
    """Fail when two neighbours can be told apart beyond the stated loss; return the loss."""
    (first, one), (second, other) = (seen(monkeypatch, publish, records) for records in pair)
    assert first == second, f"{pair!r} are told apart by what is said"
    if first[0] == "refused":
        return None
    found = loss(first[1], one, other)
    assert found <= stated, f"{pair!r}: loss {float(found)!r} above {float(stated)!r}"
    return found / stated


# ---------------------------------------------------------------- neighbours


def neighbours_of(rng, relation, values, width=None, sizes=(1, 1, 2, 3, 8)):
    """Return two lists of records that are neighbours."""

    def record():
        return rng.choice(values) if width is None else [rng.choice(values) for _ in range(width)]

    records = [record() for _ in range(rng.choice(sizes))]
    where = rng.randrange(len(records))
    if relation == "add_remove":
        return records, records[:where] + records[where + 1 :]
    return records, [*records[:where], record(), *records[where + 1 :]]


def as_array(records):
    try:
        return np.asarray(records)
    except OverflowError:
        return np.asarray(records, dtype=object)


def as_floats(records):
    try:
        floats = np.asarray(records, dtype=np.float64)
    except (OverflowError, TypeError):
        return records
    return floats if np.all(np.isfinite(floats)) else records


SHAPES = [list, tuple, as_array, as_floats, lambda r: np.asarray(r, dtype=object)]
COLUMNS = [*SHAPES, pd.Series, lambda r: pd.Series([*r, None], dtype=object).dropna()]


def expected(records, bounds, cell):
    """Return the totals in cells, in fractions; records become floats, as everything does."""
    totals = [0] * len(bounds)
    for row in records:
        entries = row if isinstance(row, list | tuple) else [row]
        for k, (value, (low, high)) in enumerate(zip(entries, bounds, strict=True)):
            try:
                number = Fraction(float(value))
            except OverflowError:
                number = Fraction(value)
            inside = min(max(number, Fraction(low)), Fraction(high))
            totals[k] += round(inside / cell)
    return tuple(totals)


# ---------------------------------------------------------------- releases


def promises(rng):
    choice = rng.randrange(3)
    epsilon = rng.choice([0.001, 0.1, 0.3, 1.0, 50.0])
    if choice == 0:
        return {"epsilon": epsilon}, Fraction(repr(epsilon))
    if choice == 1:
        return {"rho": epsilon}, Fraction(repr(epsilon))
    rho = pmp.accounting.zero_concentrated_rho(epsilon, 1e-6)
    return {"epsilon": epsilon, "delta": 1e-6}, Fraction(repr(rho))


def lattices(rng, bounds):
    whole = all(float(end).is_integer() for pair in bounds for end in pair)
    options = [{}, {}, {"granularity": 2.0**-10}, {"granularity": 2.0**-100}]
    options += [{"integers": True}, {"granularity": 1.0}, {"granularity": 4.0}] if whole else []
    return rng.choice(options)


@pytest.mark.parametrize("relation", RELATIONS)
def test_no_two_neighbours_are_told_apart_by_a_release(relation, request, monkeypatch):
    rng = random.Random(seed_of(request))
    closest, found = [], 0
    for _ in range(600):
        width = rng.choice([None, None, 1, 3])
        bounds = [rng.choice(PUBLIC_BOUNDS) for _ in range(width or 1)]
        promise, stated = promises(rng)
        lattice = lattices(rng, bounds)
        pair = neighbours_of(rng, relation, VALUES, width)
        kinds = COLUMNS if width is None else SHAPES
        shaped = [rng.choice(kinds)(records) for records in pair]

        def publish(records, bounds=bounds, width=width, promise=promise, lattice=lattice):
            given = bounds[0] if width is None else bounds
            return pmp.release(records, bounds=given, neighbours=relation, **promise, **lattice)

        share = assert_alike(monkeypatch, publish, shaped, stated)
        if share is None:
            continue
        found += 1
        closest.append(share)
        with without_noise(monkeypatch):
            published = publish(shaped[0])
        cell = Fraction(published.lattice.granularity)
        assert published.integers == expected(pair[0], bounds, cell)
    assert found > 400
    # The search comes near what is stated, or it would not find anything above it.
    assert max(closest) > Fraction(99, 100)


@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize("width", [None, 2])
def test_an_empty_table_looks_like_any_other(relation, width, monkeypatch):
    row = 1 if width is None else [1, 0]
    bounds = (0, 1) if width is None else [(0, 1)] * width
    empties = [[], (), np.empty(0), np.empty((0, 2)), np.empty(0, dtype=np.int64)]
    empties = [e for e in empties if width or np.ndim(e) == 1]

    def publish(records):
        return pmp.release(records, bounds=bounds, epsilon=1.0, neighbours=relation)

    for empty in empties:
        if relation == "replace_one":
            with pytest.raises(PrivacyError, match="a row or more"):
                publish(empty)
        else:
            assert_alike(monkeypatch, publish, ([row], empty), Fraction(1))


def test_one_release_of_many_columns_and_one_of_many_rows(monkeypatch):
    rng = np.random.default_rng(7)
    wide = rng.normal(size=(3, 500)), [(-1, 1)] * 500
    long = rng.normal(size=(200_000, 1)), [(-1, 1)]
    for rows, bounds in (wide, long):
        other = rows.copy()
        other[1] = -np.sign(other[1]) * 1e300

        def publish(records, bounds=bounds):
            return pmp.release(records, bounds=bounds, epsilon=0.1, neighbours="replace_one")

        share = assert_alike(monkeypatch, publish, (rows, other), Fraction(1, 10))
        assert share > 0


def test_what_is_missing_never_changes_the_plan(monkeypatch):
    # One answer missing or not: a column of floats, or of integers.
    full, missing = pd.Series([0, 1, 1, 1]), pd.Series([0, 1, None, 1])

    def publish(records):
        return pmp.release(records, bounds=(0, 1), epsilon=1.0, neighbours="add_remove")

    assert_alike(monkeypatch, publish, (full, missing.dropna()), Fraction(1))
    assert str(full.dtype) != str(missing.dropna().dtype)
    masked = np.ma.masked_array([0, 1, 1], mask=[0, 0, 1])
    for records in (missing, masked, np.ma.masked_array([0, 1, 1]), [0, None], [0, math.nan]):
        with pytest.raises(PrivacyError):
            publish(records)


# ---------------------------------------------------------------- intervals

FAMILIES = [
    (pmp.Proportion(), [0, 1, True, False, 1.0, np.int8(1)], None),
    (pmp.Proportion(prior=(0.5, 3.0)), [0, 1, 1.0], None),
    (pmp.Rate(25), [0, 1, 5.0, 25, 26, 10**400, 2**64 - 1, np.uint8(7)], None),
    (pmp.NormalMean((-4, 4)), [v for v in VALUES if not isinstance(v, bool)], None),
    (pmp.NormalMean((1e6, 1e6 + 1)), [0, 1e6, 1e6 + 0.25, 1e6 + 1, 1e308], None),
    (pmp.NormalVariance((-4, 4)), [v for v in VALUES if not isinstance(v, bool)], None),
    (pmp.Slope((-4, 4), (-2, 4), bounds=(-5, 5)), [-5, -4, -2.0, 0, 1.5, 4, 1e300], 2),
]
METHODS = [
    pmp.noise_aware_interval,
    pmp.bootstrap_interval,
    pmp.repro_interval,
    pmp.multiple_sanitization_interval,
    pmp.centre_scale_interval,
]
QUICK = {
    pmp.noise_aware_interval: {"draws": 200},
    pmp.bootstrap_interval: {"repeats": 20},
    pmp.repro_interval: {"draws": 20},
}


PAIRS = [
    (method, *family)
    for method in METHODS
    for family in FAMILIES
    if method is not pmp.centre_scale_interval or family[2] is None  # a slope has no summary
    if method is not pmp.repro_interval or isinstance(family[0], pmp.Proportion)
]


@pytest.mark.parametrize(("method", "family", "values", "width"), PAIRS, ids=range(len(PAIRS)))
def test_no_two_neighbours_are_told_apart_by_an_interval(
    method, family, values, width, request, monkeypatch
):
    rng = random.Random(seed_of(request))
    shares = []
    for _ in range(60):
        epsilon = rng.choice([0.01, 0.3, 1.0, 20.0])
        sizes = (family.least, family.least + 1, 20)
        pair = neighbours_of(rng, "replace_one", values, width, sizes)
        if rng.random() < 0.5:  # all equal but one: where the moments move most
            pair = [[records[0]] * (len(records) - 1) + [records[-1]] for records in pair]
            pair[1][:-1] = pair[0][:-1]
        shaped = [rng.choice(SHAPES)(records) for records in pair]

        def publish(records, epsilon=epsilon):
            options = {"rng": np.random.default_rng(1)} if method in QUICK else {}
            return method(records, family, epsilon=epsilon, **QUICK.get(method, {}), **options)

        share = assert_alike(monkeypatch, publish, shaped, Fraction(repr(epsilon)))
        assert share is not None
        shares.append(share)
    assert max(shares) > Fraction(1, 10)


def test_a_summary_of_draws_moves_as_far_as_was_stated(request, monkeypatch):
    rng = np.random.default_rng(seed_of(request))
    for low, high in ((0.0, 1.0), (1e9, 1e9 + 1), (-1e-150, 1e-150)):
        width = high - low
        one = low + width * rng.beta(3, 5, size=50)
        other = np.clip(one + width / 64, low, high)
        options = {
            "centre_sensitivity": 1.01 * abs(other.mean() - one.mean()) + width * 1e-6,
            "spread_sensitivity": 1.01 * abs(other.std() - one.std()) + width * 1e-6,
            "largest_spread": width,
            "bounds": (low, high),
        }

        def publish(draws, options=options):
            return pmp.summary_interval(draws, epsilon=0.3, **options)

        share = assert_alike(monkeypatch, publish, (one, other), Fraction(3, 10))
        assert Fraction(1, 3) < share


# ---------------------------------------------------------------- quantiles


def law_of(monkeypatch, publish, records):
    """Return the log probability of each cell, by its gap, in decimals of our own."""
    asked = []

    class Seen(Exception):
        pass

    def choose(randbelow, lengths, exponents):
        asked.append((lengths, exponents))
        raise Seen

    starts = []
    real = np.unique

    with monkeypatch.context() as patch:
        patch.setattr(exponential_choice, "choose", choose)
        patch.setattr(np, "unique", lambda c, **k: starts.append(c) or real(c, **k))
        with pytest.raises(Seen):
            publish(records)
    [(lengths, exponents)] = asked
    ends = sorted(set(starts[0].tolist()))
    edges = [0, *[end + 1 for end in ends], exponential_choice.CELLS]
    pieces = [(a, b) for a, b in itertools.pairwise(edges) if b > a]
    assert [b - a for a, b in pieces] == lengths
    with localcontext(prec=60):
        weights = [Decimal(-x.numerator) / x.denominator for x in exponents]
        peak = max(weights)
        mass = sum(n * (w - peak).exp() for n, w in zip(lengths, weights, strict=True))
        return [(b, w - peak - mass.ln()) for (_, b), w in zip(pieces, weights, strict=True)]


def furthest(one, other):
    """Return the largest difference of two log laws over all cells."""
    most, a, b = Decimal(0), list(one), list(other)
    while a and b:
        most = max(most, abs(a[0][1] - b[0][1]))
        end = min(a[0][0], b[0][0])
        a, b = [p for p in a if p[0] > end], [p for p in b if p[0] > end]
    return most


@pytest.mark.parametrize("relation", RELATIONS)
def test_no_two_neighbours_are_told_apart_by_a_quantile(relation, request, monkeypatch):
    rng = random.Random(seed_of(request))
    most = Decimal(0)
    for _ in range(120):
        epsilon, q = rng.choice([0.1, 0.3, 1.0, 10.0]), rng.choice([0.01, 0.25, 0.5, 0.9])
        bounds = rng.choice([b for b in PUBLIC_BOUNDS if b[1] - b[0] > 1e-9])
        pair = neighbours_of(rng, relation, VALUES)
        shaped = [rng.choice(COLUMNS)(records) for records in pair]

        def publish(records, q=q, bounds=bounds, epsilon=epsilon):
            return pmp.private_quantile(
                records, q, bounds=bounds, epsilon=epsilon, neighbours=relation
            )

        laws = [law_of(monkeypatch, publish, records) for records in shaped]
        with localcontext(prec=60):
            found = furthest(*laws) / Decimal(repr(epsilon))
        assert found <= 1 + Decimal(10) ** -50
        most = max(most, found)
        cards = [blind(pmp.release_card(publish(records))) for records in shaped]
        assert cards[0] == cards[1]
    assert most > Decimal("0.4")


def test_a_posterior_quantile_hides_the_posterior_altogether(request, monkeypatch):
    rng = random.Random(seed_of(request))
    for _ in range(60):
        draws = [[rng.choice([0.0, 0.3, 1.0, 5.0, -1e300]) for _ in range(9)] for _ in range(2)]
        epsilon = rng.choice([0.1, 1.0, 30.0])

        def publish(values, epsilon=epsilon):
            return pmp.pp_quantile(values, 0.9, bounds=(0, 1), epsilon=epsilon)

        laws = [law_of(monkeypatch, publish, values) for values in draws]
        with localcontext(prec=60):
            assert furthest(*laws) <= Decimal(repr(epsilon)) + Decimal(10) ** -50
    ends = pmp.pp_interval(draws[0], bounds=(0, 1), epsilon=1.0).releases
    shares = [Fraction(repr(end.guarantee.epsilon)) for end in ends]
    assert sum(shares) <= 1


# ---------------------------------------------------------------- the search itself


def test_a_release_whose_lattice_follows_the_records_is_found(monkeypatch):
    # The mutant: whole records, whole lattice.
    def publish(records):
        whole = all(float(value).is_integer() for value in records)
        return pmp.release(
            records, bounds=(0, 1), epsilon=1.0, neighbours="replace_one", integers=whole
        )

    with pytest.raises(AssertionError, match="told apart by what is said"):
        assert_alike(monkeypatch, publish, ([0, 1, 1], [0, 1, 0.5]), Fraction(1))


def test_a_scale_that_is_one_part_in_a_million_short_is_found(monkeypatch):
    def publish(records):
        return pmp.release(
            records, bounds=(0, 1), epsilon=1 + 1e-6, neighbours="replace_one", integers=True
        )

    with pytest.raises(AssertionError, match="above 1"):
        assert_alike(monkeypatch, publish, ([0, 1, 1], [0, 1, 0]), Fraction(1))
