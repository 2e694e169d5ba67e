"""Releases: exact sums, scales that are large enough, sentences for bad input, and cards."""

import importlib.util
import inspect
import json
import math
import os
import sys
from fractions import Fraction

import numpy as np
import pymc as pm
import pytest

import pymc_privacy as pmp
from pymc_privacy.errors import (
    GuaranteeError,
    InsecureNoiseWarning,
    PrivacyError,
    ReleaseError,
)
from pymc_privacy.sanitize import plan_release, releases, to_yaml
from pymc_privacy.sanitize.calibrate import exactly, gaussian_scale, laplace_scale
from pymc_privacy.sanitize.lattice import Lattice
from pymc_privacy.sanitize.opendp_noise import WIDEST, OpenDPNoise
from tests.stochastic import assert_mean, seed_of

REPLACE = {"neighbours": "replace_one"}


class NoNoise:
    """Noise that shows what it is added to."""

    def laplace(self, scale, count):
        return [0] * count

    gaussian = laplace


def bare(contributions, bounds, **options):
    """Return the release without its noise."""
    plan = plan_release(bounds=bounds, name="total", **options)
    return releases.with_noise(NoNoise(), plan, plan.totals(contributions), "simulated")


def refused(error, must_hold, came=""):
    assert issubclass(error, PrivacyError)
    return pytest.raises(error, match=rf"(?s){must_hold}.*got {came}")


# ---------------------------------------------------------------- sums and sensitivities


def test_sums_are_exact_where_floats_are_not():
    # In floats the ones vanish beside 2^53, in either order of addition.
    values = np.array([2.0**53, 1.0, 1.0, 1.0, -(2.0**53)])
    assert values.sum() != 3
    total = bare(values, (-(2.0**53), 2.0**53), epsilon=1.0, granularity=1.0, **REPLACE)
    assert total.integers == (3,)


def test_integers_beyond_the_reach_of_floats_become_floats_one_by_one():
    # In an array of integers as beside a float: what a record becomes is its own affair.
    values = np.array([2**60 + 129, 1, -(2**60)], dtype=np.int64)
    options = {"epsilon": 1.0, "integers": True, **REPLACE}
    assert bare(values, (-(2**61), 2**61), **options).integers == (257,)
    assert bare([2**60 + 129, 1.0, -(2**60)], (-(2**61), 2**61), **options).integers == (257,)


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.uint64, bool, float])
def test_records_of_any_numeric_type_are_clipped_and_added(dtype):
    values = np.array([0, 1, 1, 100], dtype=dtype)
    expected = {bool: 3}.get(dtype, 2 + 7)
    assert bare(values, (-3, 7), epsilon=1.0, granularity=1.0, **REPLACE).integers == (expected,)


def test_clipping_comes_before_summing():
    values = np.array([[1e300, -1e300], [0.25, 0.5]])
    total = bare(values, [(0, 1), (-2, 2)], rho=1.0, granularity=0.25, **REPLACE)
    np.testing.assert_array_equal(total.value, [1.25, -1.5])


@pytest.mark.parametrize("neighbours", ["replace_one", "add_remove"])
def test_no_neighbour_moves_the_totals_by_more_than_the_proven_sensitivity(neighbours, request):
    rng = np.random.default_rng(seed_of(request))
    lattice = Lattice(bounds=((-0.3, 1.1), (2.0, 2.7)), granularity=2.0**-4, scalar=False)
    furthest = 0
    corners = [(low, high) for low in (-9.0, 9.0) for high in (-9.0, 9.0)]
    for _ in range(50):
        records = rng.normal(1, 2, size=(5, 2))
        before = np.array(lattice.totals(records))
        for corner in corners:
            moved = np.vstack([records[:-1], corner])
            if neighbours == "add_remove":
                moved = np.vstack([records, corner])
            furthest = max(furthest, np.abs(lattice.totals(moved) - before).sum())
    assert furthest <= lattice.l1(neighbours)
    if neighbours == "add_remove":
        assert furthest == lattice.l1(neighbours)


def test_the_proven_sensitivity_is_attained():
    lattice = Lattice(bounds=((-0.3, 1.1), (2.0, 2.7)), granularity=2.0**-4, scalar=False)
    low, high = lattice.totals([[-9.0, -9.0]]), lattice.totals([[9.0, 9.0]])
    moved = np.array(high) - np.array(low)
    assert np.abs(moved).sum() == lattice.l1("replace_one")
    assert (moved**2).sum() == lattice.l2_squared("replace_one")


# ---------------------------------------------------------------- scales


@pytest.mark.parametrize("epsilon", [0.1, 1 / 3, 0.7, 3.0])
@pytest.mark.parametrize("size", [1, 3, 10**9 + 7])
def test_scales_are_rounded_up_and_only_just(epsilon, size):
    scale = laplace_scale(Fraction(size), epsilon)
    assert Fraction(size) / Fraction(scale) <= exactly(epsilon)
    assert Fraction(size) / Fraction(math.nextafter(scale, 0)) > exactly(epsilon)
    sigma = gaussian_scale(Fraction(size), epsilon)
    assert Fraction(size) / (2 * Fraction(sigma) ** 2) <= exactly(epsilon)
    below = math.nextafter(math.nextafter(sigma, 0), 0)
    assert Fraction(size) / (2 * Fraction(below) ** 2) > exactly(epsilon)


def test_the_guarantee_is_what_was_asked_for():
    laplace = pmp.release([0, 1], bounds=(0, 1), epsilon=0.3, integers=True, **REPLACE)
    assert laplace.guarantee == pmp.PureDP(0.3, neighbours="replace_one")
    assert laplace.mechanism == pmp.DiscreteLaplace(
        scale=laplace.scale, epsilon=0.3, sensitivity=1.0, neighbours="replace_one"
    )
    gaussian = pmp.release([0, 1], bounds=(0, 1), rho=0.5, integers=True, **REPLACE)
    assert isinstance(gaussian.mechanism, pmp.DiscreteGaussian)
    assert gaussian.mechanism.guarantee == pmp.ZeroConcentratedDP(0.5, neighbours="replace_one")
    both = pmp.release([0.2, 1], bounds=(0, 1), epsilon=1.0, delta=1e-6, **REPLACE)
    assert both.guarantee == pmp.ApproximateDP(1.0, 1e-6, neighbours="replace_one")
    # A continuous law on the lattice promises what was proved for integers, and no more.
    assert isinstance(both.mechanism.guarantee, pmp.ZeroConcentratedDP)
    assert both.mechanism.guarantee.to_approximate(1e-6).epsilon <= 1.0


def test_a_sensitivity_is_proved_or_asserted():
    options = {"bounds": [(0, 1), (0, 1)], "epsilon": 1.0, "integers": True, **REPLACE}
    rows = np.array([[0, 1], [1, 0]])
    proved = bare(rows, **options)
    assert (proved.sensitivity.status, proved.sensitivity.value) == ("proved", 2.0)
    asserted = bare(rows, sensitivity=1.0, **options)
    assert (asserted.sensitivity.status, asserted.scale) == ("asserted", 1.0)
    assert "not checked" in asserted.statement()
    # No trust is needed for a number that is at least the one that follows from the bounds.
    assert bare(rows, sensitivity=3.0, **options).sensitivity.status == "proved"


def test_a_stated_sensitivity_grows_by_the_rounding():
    options = {"bounds": [(0, 1)] * 3, "granularity": 0.25, "sensitivity": 1.0, **REPLACE}
    rows = np.array([[0.1, 0.2, 0.3]])
    assert bare(rows, epsilon=1.0, **options).scale == 1.0 + 3 * 0.25
    options["neighbours"] = "add_remove"
    assert bare(rows, epsilon=1.0, **options).scale == 1.0 + 3 * 0.125
    squared = bare(rows, rho=0.5, **options).scale
    assert squared >= 1.0 + math.sqrt(3) * 0.125


def test_the_size_is_published_only_where_it_is_public():
    assert pmp.release([0, 1, 1], bounds=(0, 1), epsilon=1.0, **REPLACE).size == 3
    unknown = pmp.release([0, 1, 1], bounds=(0, 1), epsilon=1.0, neighbours="add_remove")
    assert unknown.size is None
    assert pmp.release_card(unknown)["size"] is None
    empty = pmp.release(np.empty(0), bounds=(0, 1), epsilon=1.0, neighbours="add_remove")
    assert np.isfinite(empty.value)


def test_the_release_is_unbiased_and_as_noisy_as_stated(request):
    # Unseeded on purpose: this is the path that is published.
    values = np.array([0.25, 0.5, 7.0])
    draws = np.array(
        [pmp.release(values, bounds=(0, 1), epsilon=2.0, **REPLACE).value for _ in range(4000)]
    )
    assert_mean(draws, 1.75)
    assert_mean(np.abs(draws - 1.75), 0.5, what="mean of |noise|")


def test_published_values_lie_on_the_lattice():
    published = pmp.release([0.3, 0.4], bounds=(0, 1), epsilon=1.0, **REPLACE)
    cell = published.lattice.granularity
    assert (published.value / cell) == published.integers[0]
    assert 2**-33 <= cell / published.scale <= 2**-31


# ---------------------------------------------------------------- no seed


def test_release_takes_no_seed():
    names = set(inspect.signature(pmp.release).parameters)
    assert not names & {"seed", "rng", "random_seed", "random_state", "noise"}
    with pytest.raises(TypeError, match="seed"):
        pmp.release([0, 1], bounds=(0, 1), epsilon=1.0, seed=1, **REPLACE)


def test_simulation_warns_in_so_many_words_and_is_reproducible():
    options = {"bounds": (0, 1), "epsilon": 1.0, "integers": True, **REPLACE}
    with pytest.warns(InsecureNoiseWarning, match="Do not publish it"):
        first = pmp.simulate_release(np.random.default_rng(3), [0, 1, 1], **options)
    with pytest.warns(InsecureNoiseWarning):
        second = pmp.simulate_release(np.random.default_rng(3), [0, 1, 1], **options)
    assert first == second
    assert first.simulated
    assert "SIMULATION ONLY" in first.statement()
    assert "SIMULATION ONLY" in pmp.release_card(first)["warning"]
    with pytest.raises(ReleaseError, match=r"A registry lists what is published.*Do not publish"):
        pmp.registry_entry(first, curators=["a"], description="", intended_use="", region="")


def test_children_of_a_fork_draw_their_own_noise():
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            value = pmp.release([0.5], bounds=(0, 1), epsilon=1.0, **REPLACE).integers[0]
            os.write(write, str(value).encode())
        finally:
            os._exit(0)
    here = pmp.release([0.5], bounds=(0, 1), epsilon=1.0, **REPLACE).integers[0]
    os.waitpid(child, 0)
    os.close(write)
    # Equal integers of ten digits have a probability of about 1e-10.
    with os.fdopen(read) as pipe:
        assert int(pipe.read()) != here


# ---------------------------------------------------------------- bad input

GOOD = {"bounds": (0, 1), "epsilon": 1.0, **REPLACE}


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_what_is_not_finite_is_refused(value):
    with refused(ReleaseError, "contributions must be finite", "NaN or infinity"):
        pmp.release([0.0, value], **GOOD)


@pytest.mark.parametrize(
    ("change", "error", "must_hold", "came"),
    [
        ({"bounds": (1, 0)}, ReleaseError, "low < high", r"\(1, 0\)"),
        ({"bounds": (0, math.inf)}, ReleaseError, "finite numbers", r"\(0, inf\)"),
        ({"bounds": "wide"}, ReleaseError, "bounds must be a pair", "'wide'"),
        ({"bounds": [(0, 1), (0, 1)]}, ReleaseError, r"shape \(n, 2\)", r"shape \(2,\)"),
        ({"epsilon": -1.0}, GuaranteeError, "epsilon must be a finite number > 0", "-1"),
        ({"epsilon": None}, GuaranteeError, "A release promises epsilon=", "none of them"),
        ({"rho": 1.0}, GuaranteeError, "A release promises epsilon=", "epsilon and rho"),
        ({"neighbours": None}, GuaranteeError, "neighbours must be", "None"),
        ({"granularity": 0.3}, ReleaseError, "power of two", "0.3"),
        ({"granularity": 2.0**-1070, "bounds": (0, 1e9)}, ReleaseError, "too fine", "granularity"),
        ({"granularity": 8.0}, ReleaseError, "granularity must be finer", "granularity 8.0"),
        ({"sensitivity": 0}, ReleaseError, "sensitivity must be a finite number > 0", "0"),
        ({"sampler": "numpy"}, ReleaseError, "sampler must be", "'numpy'"),
    ],
)
def test_bad_arguments_get_a_sentence(change, error, must_hold, came):
    with refused(error, must_hold, came):
        pmp.release([0.0, 1.0], **{**GOOD, **change})


def test_records_that_are_not_numbers_are_refused():
    with refused(ReleaseError, "contributions must be an array of numbers", "<U1 values"):
        pmp.release(["a", "b"], **GOOD)
    with refused(ReleaseError, "contributions must have a row or more", "no records"):
        pmp.release(np.empty(0), **GOOD)


# ---------------------------------------------------------------- cards


@pytest.mark.parametrize(
    "options",
    [
        {"bounds": (0, 1), "epsilon": 0.1, **REPLACE},
        {"bounds": (-0.3, 1.7), "rho": 0.3, "neighbours": "add_remove"},
        {"bounds": (0, 1), "epsilon": 1.0, "delta": 1e-6, "unit": "one household", **REPLACE},
    ],
)
def test_a_card_gives_the_release_back(options, tmp_path):
    published = pmp.release(np.array([0.2, 0.9, 0.4]), name="total", **options)
    path = tmp_path / "card.json"
    pmp.write_card(published, path)
    assert pmp.read_card(path) == published
    assert pmp.read_card(pmp.release_card(published)) == published
    assert json.loads(path.read_text())["sensitivity"]["status"] == "proved"


def test_a_card_never_has_what_is_confidential():
    # The total without noise appears nowhere, and neither do records.
    values = np.array([0.123456789, 0.987654321])
    published = pmp.release(values, bounds=(0, 1), epsilon=0.01, **REPLACE)
    text = json.dumps(pmp.release_card(published)) + repr(published) + published.statement()
    assert "123456789" not in text
    assert str(bare(values, (0, 1), epsilon=0.01, **REPLACE).integers[0]) not in text


@pytest.mark.parametrize(
    ("content", "must_hold"),
    [("{", "must be a JSON object"), ("{}", "must have the format"), ("[1]", "JSON object")],
)
def test_a_broken_card_is_refused(content, must_hold, tmp_path):
    path = tmp_path / "card.json"
    path.write_text(content)
    with pytest.raises(ReleaseError, match=must_hold):
        pmp.read_card(path)


def test_a_card_with_a_field_missing_is_refused():
    plain = pmp.release_card(pmp.release([0, 1], **GOOD))
    del plain["noise"]
    with pytest.raises(ReleaseError, match=r"all its fields.*noise"):
        pmp.read_card(plain)


def test_the_registry_entry_is_yaml_with_the_fields_of_the_registry():
    yaml = pytest.importorskip("yaml", reason="PyYAML is not installed: YAML is not read back")
    published = pmp.release([0, 1, 1], name="Yes: a 'total'", delta=1e-6, **GOOD)
    entry = pmp.registry_entry(
        published, curators=["Office: A"], description="d", intended_use="u", region="r"
    )
    assert yaml.safe_load(to_yaml(entry)) == entry
    odd = {"a: b": [1, [2, {"#": "\u2028\x85 \n'\""}]], "no": {}, "1": 1e-6, "": [[]], "ü": None}
    assert yaml.safe_load(to_yaml(odd)) == odd
    assert yaml.safe_load(to_yaml(odd, 4)) == odd
    deployment = entry["deployment"]
    assert deployment["privacy_loss"]["privacy_parameters"] == {"epsilon": 1.0, "delta": 1e-6}
    assert deployment["dp_variant"]["unprotected_quantities"] == "The number of records, 3."
    assert "proved" in deployment["implementation"]["mechanisms"]


def test_what_is_no_entry_of_a_registry_is_refused_in_a_sentence():
    endless: list = []
    endless += [endless, endless]
    wide = [0]
    for _ in range(20):
        wide = [wide, wide]
    for value in (object(), 1j, b"x", math.nan, math.inf, 10**5000, {1, 2}, (1, 2), np.ones(2)):
        for entry in ([value], {"a": value}, {"a": [{"b": value}]}):
            with pytest.raises(ReleaseError, match="of entry must be"):
                to_yaml(entry)
    for entry in (*(None, 3, "text", (1, 2)), {1: 2}, {None: 1}, endless, wide):
        with pytest.raises(ReleaseError, match="entry must"):
            to_yaml(entry)
    for indent in (-1, 2.0, "2", None, 10**9):
        with pytest.raises(ReleaseError, match="indent must be"):
            to_yaml({}, indent)


# ---------------------------------------------------------------- back into a model


def test_a_card_becomes_an_observed_release(tmp_path):
    published = pmp.release(
        np.array([0, 1, 1, 1]), bounds=(0, 1), epsilon=1.0, integers=True, **REPLACE
    )
    pmp.write_card(published, tmp_path / "card.json")
    for source in (published, pmp.release_card(published), tmp_path / "card.json"):
        with pm.Model() as model:
            p = pm.Beta("p", 1, 1)
            x = pm.Bernoulli("x", p, shape=4)
            yes = pmp.Privatized.from_card("yes", x, source)
        assert yes.owner.op.mechanism == published.mechanism
        assert model.rvs_to_values[yes].eval() == published.value


def test_a_card_of_real_totals_carries_their_scale():
    published = pmp.release(
        np.ones((6, 2)), bounds=[(-1, 1), (0, 1)], epsilon=0.5, **REPLACE, name="moments"
    )
    with pm.Model():
        x = pm.Normal("x", 0, 1, shape=6)
        contributions = pm.math.stack([pm.math.clip(x, -1, 1), pm.math.clip(x, -1, 1) ** 2], axis=1)
        release = pmp.Privatized.from_card("moments", contributions, published)
    assert release.owner.op.mechanism.scale == pytest.approx(6.0, rel=1e-9)
    assert release.owner.op.mechanism.guarantee == published.guarantee


def test_a_model_with_another_number_of_records_is_refused():
    published = pmp.release(np.array([0, 1, 1, 1]), bounds=(0, 1), epsilon=1.0, **REPLACE)
    with (
        pm.Model(),
        refused(ReleaseError, "as many records as were released, 4", "5"),
    ):
        x = pm.Bernoulli("x", 0.5, shape=5)
        pmp.Privatized.from_card("yes", x, published)


# ---------------------------------------------------------------- OpenDP


def test_without_opendp_a_sentence_says_what_to_do(monkeypatch):
    monkeypatch.setitem(sys.modules, "opendp", None)
    monkeypatch.setitem(sys.modules, "opendp.prelude", None)
    with pytest.raises(ReleaseError, match=r"install pymc-privacy\[opendp\]"):
        pmp.release([0, 1], sampler="opendp", **GOOD)


needs_opendp = pytest.mark.skipif(
    importlib.util.find_spec("opendp") is None,
    reason="NOT TESTED: noise of OpenDP, since the extra pymc-privacy[opendp] is not installed",
)
TOO_WIDE = [
    {"bounds": (0, 1), "granularity": 2.0**-100, "epsilon": 1.0},
    {"bounds": (0, 1), "granularity": 2.0**-60, "rho": 1.0},
    # Time stamps in nanoseconds.
    {"bounds": (1_500_000_000 * 10**9, 1_800_000_000 * 10**9), "integers": True, "epsilon": 0.1},
]


@pytest.mark.parametrize("options", TOO_WIDE, ids=str)
def test_noise_that_opendp_would_saturate_is_refused(options):
    with refused(ReleaseError, "at most 2\\^53 cells", ".* cells"):
        pmp.release([1], sampler="opendp", **REPLACE, **options)
    assert pmp.release([1], **REPLACE, **options).label == "proven"


@needs_opendp
@pytest.mark.parametrize("promise", [{"epsilon": 0.5}, {"rho": 0.125}])
def test_noise_drawn_by_opendp_has_the_same_law(promise):
    options = {"bounds": (0, 1), "integers": True, "sampler": "opendp", **REPLACE, **promise}
    draws = np.array([pmp.release([0, 1, 1], **options).value for _ in range(3000)])
    scale = 2.0
    assert_mean(draws, 2.0)
    k = np.arange(-200, 201)
    law = pmp.DiscreteLaplace if "epsilon" in promise else pmp.DiscreteGaussian
    p = np.exp(law(scale=scale).log_density(k, 0))
    assert_mean(np.abs(draws - 2), float(p @ np.abs(k)), what="mean of |noise|")


@needs_opendp
@pytest.mark.parametrize("kind", ["laplace", "gaussian"])
def test_the_widest_noise_of_opendp_does_not_saturate(kind):
    draws = np.array(getattr(OpenDPNoise(WIDEST), kind)(Fraction(WIDEST), 2000), dtype=float)
    assert np.abs(draws).max() < 2**62
    expected = 1.0 if kind == "laplace" else math.sqrt(2 / math.pi)
    assert_mean(np.abs(draws) / WIDEST, expected, what="mean of |noise| / scale")


@needs_opendp
def test_what_opendp_refuses_costs_nothing(tmp_path, monkeypatch):
    ledger = pmp.Ledger(tmp_path / "ledger", pmp.PureDP(1.0, **REPLACE))

    def broken(*args, **kwargs):
        raise RuntimeError("no")

    monkeypatch.setattr("opendp.prelude.m.make_laplace", broken)
    with pytest.raises(ReleaseError, match="OpenDP must be able to draw"):
        pmp.release([1], bounds=(0, 1), epsilon=0.5, sampler="opendp", ledger=ledger, **REPLACE)
    assert ledger.spent is None
