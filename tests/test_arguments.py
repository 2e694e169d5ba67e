"""What is no number does not pass the door, in whatever form it comes."""

import datetime
import decimal
import fractions
import math
import pathlib

import numpy as np
import pytest

from pymc_privacy import arguments
from pymc_privacy.errors import ArgumentError, MechanismError


class Rude:
    """Whatever is asked of it raises."""

    def __repr__(self):
        raise RuntimeError("no")

    def __float__(self):
        raise RuntimeError("no")

    def __array__(self, *_, **__):
        raise RuntimeError("no")


NO_NUMBERS = {
    "true": True,
    "numpy true": np.True_,
    "string": "1",
    "bytes": b"1",
    "numpy string": np.str_("1"),
    "complex": 1 + 0j,
    "numpy complex": np.complex128(1),
    "date": datetime.date(2020, 1, 1),
    "duration": datetime.timedelta(1),
    "numpy date": np.datetime64("2020-01-01"),
    "numpy duration": np.timedelta64(1, "D"),
    "nat": np.timedelta64("NaT"),
    "none": None,
    "object": object(),
    "rude": Rude(),
    "nan": math.nan,
    "infinity": math.inf,
    "huge integer": 10**400,
    "masked": np.ma.masked,
    "masked array": np.ma.array(1.0, mask=False),
    "bool array": np.array(True),
    "object array": np.array(1.0, dtype=object),
    "decimal": decimal.Decimal(1),
    "dict": {},
    "set": {1.0},
    "function": abs,
    "class": float,
    "text array": np.array("1"),
}
no_number = pytest.mark.parametrize("value", NO_NUMBERS.values(), ids=NO_NUMBERS)


@no_number
def test_what_is_no_number_is_no_real_probability_or_integer(value):
    for door in (arguments.real, arguments.probability, arguments.integer, arguments.positive):
        with pytest.raises(ArgumentError, match=r"^scale must be an? .*; got .*\.$"):
            door("scale", value)


@no_number
@pytest.mark.parametrize("where", ["alone", "in a list", "among numbers", "in a table"])
def test_what_is_no_number_is_none_in_company(value, where):
    given = {
        "alone": value,
        "in a list": [value],
        "among numbers": (1.0, value, 2),
        "in a table": [[1.0, 2.0], [value, 3.0]],
    }[where]
    for door in (arguments.reals, arguments.integers):
        with pytest.raises(ArgumentError, match=r"^scale must be .*; got .*\.$"):
            door("scale", given)


@pytest.mark.parametrize(
    "value",
    [2, 2.0, np.float32(2), np.int8(2), np.uint64(2), np.array(2), fractions.Fraction(2), 2 + 0.0],
)
def test_every_kind_of_number_passes_as_a_float(value):
    for passed in (arguments.real("scale", value), arguments.reals("scale", value).item()):
        assert type(passed) is float
        assert passed == 2.0


@pytest.mark.parametrize("value", [3, np.int8(3), np.uint64(3), np.array(3)])
def test_every_kind_of_integer_passes_as_an_int(value):
    assert type(arguments.integer("draws", value)) is int
    assert arguments.integer("draws", value, least=3, most=3) == 3


@pytest.mark.parametrize("value", [3.0, np.float64(3), "3", [3], np.array([3])])
def test_a_float_or_a_list_is_no_integer(value):
    with pytest.raises(ArgumentError, match="draws must be an integer >= 1"):
        arguments.integer("draws", value, least=1)


@pytest.mark.parametrize(
    ("limits", "inside", "outside"),
    [
        ({"above": 0}, [1e-300, 1e300], [0, -1]),
        ({"least": 0}, [0, 1], [-1e-300]),
        ({"below": 1}, [-5, 0.999], [1, 2]),
        ({"most": 1}, [1], [1.0001]),
        ({"above": 0, "below": 1}, [0.5], [0, 1]),
    ],
)
def test_ranges_have_the_ends_they_say(limits, inside, outside):
    for value in inside:
        assert arguments.real("x", value, **limits) == value
        assert arguments.reals("x", [value, value], **limits).tolist() == [value] * 2
    for value in outside:
        with pytest.raises(ArgumentError):
            arguments.real("x", value, **limits)
        with pytest.raises(ArgumentError):
            arguments.reals("x", [inside[0], value], **limits)


def test_probabilities_are_strictly_between_zero_and_one():
    assert arguments.probability("prob", 0.5) == 0.5
    assert arguments.probability("delta", 0, zero=True) == 0.0
    for value in (0, 1, 95, -0.1):
        with pytest.raises(ArgumentError, match=r"prob must be a number in \(0, 1\)"):
            arguments.probability("prob", value)


def test_shapes_are_those_allowed():
    assert arguments.reals("x", np.ones((3, 2)), shapes=[("n", 2)]).shape == (3, 2)
    assert arguments.reals("x", 1.0, shapes=[(), ("d",)]).shape == ()
    for wrong in (np.ones((3, 3)), np.ones(2), 1.0, np.ones((1, 1, 2))):
        with pytest.raises(ArgumentError, match=r"of shape \(n, 2\) or \(4,\)"):
            arguments.reals("x", wrong, shapes=[("n", 2), (4,)])


def test_ragged_endless_and_deep_lists_are_refused():
    endless = []
    endless.append(endless)
    deep = [1.0]
    for _ in range(2000):
        deep = [deep]
    for value in ([[1.0, 2.0], [3.0]], endless, deep):
        with pytest.raises(ArgumentError):
            arguments.reals("x", value, shapes=[("n",)])


def test_masks_hidden_in_lists_are_seen():
    column = np.ma.array([1.0, 2.0], mask=[True, False])
    for value in (column, [column, column], ([column],), [1.0, np.ma.masked]):
        with pytest.raises(ArgumentError):
            arguments.reals("records", value)


def test_confidential_entries_are_not_in_the_message():
    with pytest.raises(ArgumentError) as caught:
        arguments.reals("records", np.array([123456.0, np.nan]), confidential=True)
    assert str(caught.value) == "records must be finite numbers; got float64 of shape (2,)."


def test_integers_keep_all_their_digits():
    large = [2**62 + 1, -(2**62) - 1]
    for value in (large, np.array(large), tuple(large)):
        assert arguments.integers("counts", value).tolist() == large
    for value in ([2**63], np.array([2**63], dtype=np.uint64), [1e300], [np.nan], [np.inf]):
        with pytest.raises(ArgumentError):
            arguments.integers("counts", value)


def test_flags_are_numbers_where_that_is_asked_for():
    assert arguments.reals("answers", [True, False], flags=True).tolist() == [1.0, 0.0]
    assert arguments.reals("answers", np.array([True]), flags=True).tolist() == [1.0]
    with pytest.raises(ArgumentError):
        arguments.reals("answers", [True, 2.0], flags=True)


def test_an_empty_list_is_an_empty_array():
    assert arguments.reals("records", [], shapes=[("n",)]).shape == (0,)
    assert arguments.integers("records", [], shapes=[("n",)]).dtype == np.int64


@pytest.mark.parametrize(
    "value", [(1, 0), (0, 0), (0, math.inf), (0, 1, 2), "01", 1, (True, 2), None, (-1e308, 1e308)]
)
def test_a_pair_has_two_ends_in_order(value):
    with pytest.raises(ArgumentError, match="must be a pair"):
        arguments.pair("bounds", value)
    assert arguments.pair("bounds", [0, np.float32(2)]) == (0.0, 2.0)


@pytest.mark.parametrize(
    "value", [None, 1, "", "  ", "two\nlines", "nul\0", "\ud800", b"name", ["a"]]
)
def test_names_are_a_line_of_text(value):
    with pytest.raises(ArgumentError, match="must be a line of text"):
        arguments.text("name", value)
    with pytest.raises(ArgumentError, match="must be a path"):
        arguments.path("path", value)
    assert arguments.text("name", "Größe der Stichprobe") == "Größe der Stichprobe"
    assert arguments.path("path", "a/b") == pathlib.Path("a/b")


@pytest.mark.parametrize(
    "value", ["bounded", 1, True, ["replace_one"], np.array(["add_remove"]), Rude()]
)
def test_neighbours_are_one_of_two_words(value):
    with pytest.raises(MechanismError, match='neighbours must be "replace_one" or "add_remove"'):
        arguments.neighbours(value, error=MechanismError)
    with pytest.raises(ArgumentError):
        arguments.neighbours(None)
    assert arguments.neighbours(None, optional=True) is None
    assert arguments.neighbours("add_remove") == "add_remove"


@pytest.mark.parametrize("value", [None, 1, "seed", np.random.RandomState, Rude()])
def test_a_seed_is_no_generator(value):
    with pytest.raises(ArgumentError, match=r"rng must be a np\.random\.Generator"):
        arguments.generator("rng", value)


@pytest.mark.parametrize("value", [0, 1, "True", None, np.array([True])])
def test_flags_are_true_or_false(value):
    with pytest.raises(ArgumentError, match="local must be True or False"):
        arguments.flag("local", value)
    assert arguments.flag("local", np.True_) is True


def test_other_objects_are_of_their_class():
    assert arguments.function("features", abs) is abs
    with pytest.raises(ArgumentError, match="features must be a function; got 3"):
        arguments.function("features", 3)
    assert arguments.instance("year", 3, int, "a year") == 3
    with pytest.raises(ArgumentError, match="year must be a year; got 'x'"):
        arguments.instance("year", "x", int, "a year")


def test_messages_are_one_line_of_bounded_length():
    for value in ("x" * 10**6, list(range(10**5)), np.zeros((100, 100)).astype(str), Rude()):
        with pytest.raises(ArgumentError) as caught:
            arguments.real("scale", value)
        assert len(str(caught.value)) < 600
        assert "\n" not in str(caught.value)
