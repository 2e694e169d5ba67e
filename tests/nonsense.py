"""Values that no argument of a kind may have, and odd ones that may pass but must do no harm."""

import datetime
import decimal
import fractions
import math

import numpy as np

import pymc_privacy as pmp


class Rude:
    """Whatever is asked of it raises."""

    def __repr__(self):
        raise RuntimeError("no repr")

    def __float__(self):
        raise RuntimeError("no float")

    def __array__(self, *_, **__):
        raise RuntimeError("no array")

    def __len__(self):
        raise RuntimeError("no length")

    def __eq__(self, other):
        raise RuntimeError("no equality")

    __hash__ = None

    def __iter__(self):
        raise RuntimeError("no items")


ENDLESS: list = []
ENDLESS.append(ENDLESS)

# What is no number, no name, no path, no generator, no mechanism, and no function.
NOTHING = [
    1j,
    np.complex128(2),
    datetime.date(2020, 1, 1),
    datetime.datetime(2020, 1, 1),
    datetime.timedelta(3),
    np.datetime64("2020-01-01"),
    np.timedelta64(3, "D"),
    np.timedelta64("NaT"),
    object(),
    Rude(),
    b"1",
    np.ma.masked,
    np.ma.array([1.0, 2.0], mask=[True, False]),
    np.array([1.0, None], dtype=object),
    np.array(["1", "2"]),
    np.array([1j, 2]),
    np.array(["2020-01-01"], dtype="datetime64[D]"),
    {"a": object()},
    {1.0, 2.0},
    ENDLESS,
    [[1.0, 2.0], [3.0]],
    ["1", 2.0],
    decimal.Decimal(1),
    float,
]
NO_NUMBER = [
    *NOTHING,
    True,
    np.False_,
    "1",
    "",
    "nan",
    np.str_("1"),
    math.nan,
    math.inf,
    -math.inf,
    np.float64("nan"),
    10**400,
    [],
    (),
    {},
    [1.0, 2.0, 3.0],
    np.ones((2, 2)),
    np.array(True),
    np.array(math.nan),
    np.ma.array(1.0),
]
NO_NAME = [*NOTHING, 1, 1.5, True, "", " ", "two\nlines", "nul\0", "\ud800", [], {}, ["a"]]
NO_TITLE = [*NO_NAME, "a ", " a", "a\t", "a\u00a0"]
NO_ROWS = [*NOTHING, True, "1", "", math.nan, math.inf, [math.nan], [math.inf, 1.0], {}]
NO_TABLE = [*NO_ROWS, [True, 2]]


def hashable(values):
    """Return those values that can be the key of a mapping."""
    return [value for value in values if type(value).__hash__ and value is not np.ma.masked]


WRONG = {
    "positive": [*NO_NUMBER, 0, -1, -0.0, -1e-300],
    "real": NO_NUMBER,
    # An interval may be open at an end.
    "end": [n for n in NO_NUMBER if not (type(n) is float and math.isinf(n))],
    "least_zero": [*NO_NUMBER, -1, -1e-300],
    "probability": [*NO_NUMBER, 0, 1, 95, -0.5],
    "delta": [*NO_NUMBER, 1, 1.5, -1e-9],
    "count": [*NO_NUMBER, 0, -1, 2.5, 3.0, np.float64(4), 2**70],
    "share": [*NO_NUMBER, -0.1, 1.1],
    "seed": [*(n for n in NOTHING if n is not ENDLESS), "seed", 2.5, -1],
    "natural": [*NO_NUMBER, -1, 2.5, 3.0, 2**70],
    "name": NO_NAME,
    "title": NO_TITLE,
    "path": NO_NAME,
    "neighbours": [*NO_NAME, "bounded", "REPLACE_ONE", "add_remove ", ["replace_one"]],
    "flag": [*NOTHING, 0, 1, 1.0, "True", "", [], np.array([True, False])],
    "generator": [*NOTHING, 0, 1, "seed", True, [], np.random.RandomState, np.random],
    "function": [*(n for n in NOTHING if not callable(n)), 0, 1.0, "abs", True, []],
    "features": [*NOTHING, 0, 1.0, "abs", True, [], type, abs, len, dict, list, sorted],
    "mechanism": [*NOTHING, 1.0, "laplace", True, [], pmp.Laplace, pmp.PureDP(1.0)],
    "guarantee": [*NOTHING, 1.0, "pure", True, [], pmp.PureDP, pmp.Laplace(scale=1.0)],
    "release": [*NOTHING, 1.0, "release", True, [], {}, pmp.Release, pmp.PureDP(1.0)],
    "pair": [*NO_TABLE, 1.0, [], (1,), (0, 1, 2), (1, 0), (0, 0), (0, math.inf), ("0", "1")],
    "bounds": [*NO_TABLE, 1.0, [], (1,), (0, 1, 2), (1, 0), (0, 0), (0, math.inf), ("0", "1")],
    "prior": [*NO_TABLE, 1.0, [], (1,), (0, 1, 2), (-1, 1), (1, math.inf), ("1", "1")],
    "scale": [*NO_TABLE, [], 0, -1, [1.0, 0.0], [[1.0]], [1.0, -2.0], 10**400],
    "positives": [*NO_TABLE, 0, -1, [1.0, 0.0], [1.0, -2.0], 10**400],
    "vector": [*NO_TABLE, [], 1.0, [[1.0, 2.0]]],
    # A record is read by itself: a True, or an integer beyond floats, is one among others.
    "rows": [*NO_ROWS, 1.0, np.zeros((2, 2, 2))],
    "records": [*NO_TABLE, 1.0, np.zeros((2, 2, 2)), [10**400]],
    "table": [*NO_TABLE, 1.0, np.zeros((2, 2, 2)), [10**400]],
    "tree": [*NOTHING, 1.0, "posterior", True, [], {}, np.ones(3)],
    "frame": [*NOTHING, 1.0, "x", True, ["a"], [1.0], [{}]],
    "names": [*(n for n in NOTHING), 1.0, True, [1.0], "stranger", ["stranger"], "two\nlines"],
    "contributions": [*NOTHING, "x", True, {}, np.zeros((2, 2, 2))],
    "observed": [*NO_TABLE, [10**400]],
    "mapping": [*NOTHING, 1.0, "x", True, []],
    "object": [*NOTHING, 1.0, "x", True, [], {}],
}

_SMALL_AND_LARGE = [
    math.ulp(0.0),
    1e-300,
    1e-160,
    1e-12,
    0.1,
    1,
    3.7,
    800.0,
    1e9,
    1e100,
    1e154,
    1e300,
    1e308,
    1.7976931348623157e308,
    np.float32(2.5),
    np.int8(2),
    np.array(2.0),
    fractions.Fraction(1, 3),
]
ODD = {
    "positive": _SMALL_AND_LARGE,
    "real": [*_SMALL_AND_LARGE, 0, -1, -1e300, -1e308],
    "least_zero": [*_SMALL_AND_LARGE, 0],
    "probability": [math.ulp(0.0), 1e-300, 1e-12, 0.3, 0.5, 1 - 2**-53, np.float32(0.25)],
    "delta": [0, math.ulp(0.0), 1e-300, 1e-12, 0.3, 0.5, 1 - 2**-53],
    "count": [1, 2, 3, np.int64(5), np.uint8(7)],
    "natural": [0, 1, 2, np.int64(5)],
    "name": ["y0", "Größe", "a" * 300, "with 'quotes' and \\"],
    "title": ["y0", "Größe", "a" * 300, "with 'quotes' and \\", "a b"],
    "neighbours": ["replace_one", "add_remove"],
    "flag": [True, False, np.True_],
    "pair": [(0, 1), [-1, 2.5], np.array([0.0, 1e-300]), (-1e308, 1e307), (1e300, 1e301)],
    "bounds": [(0, 1), [-1, 2.5], np.array([0.0, 1e-300]), (-1e308, 1e307), (5, 5 + 1e-9)],
    "prior": [(1, 1), (0.5, 0.5), (1e-300, 1e-300), (1e300, 1e300), (1e9, 1)],
    "scale": [*_SMALL_AND_LARGE, [1.0, 2.0], (1e-300, 1e300), np.array([1, 2])],
    "positives": [*_SMALL_AND_LARGE, [], [1.0, 2.0], np.ones((2, 2))],
    "vector": [[0.0, 1.0], (0, 1, 2), np.array([-1e300, 1e300]), [0.0, 1e-300]],
    "records": [[0, 1, 1, 0] * 5, [], [1], [True, False], [1e308, -1e308], np.zeros(3, np.int8)],
    "rows": [[0, 1, 1, 0] * 5, [], [1], [True, 2], [1e308, -1e308], [10**400, 0], [-(10**400)]],
    "table": [np.zeros((4, 2)), np.zeros((0, 2)), [[1, 2], [3, 4]]],
}

WRONG["key"], ODD["key"] = hashable(WRONG["positive"]), hashable(ODD["positive"])
WRONG["statistic"] = [value for value in NO_TABLE if value is not True]
ODD["statistic"] = [0, 1.5, np.array(2), -3, True]
WRONG["posterior"], ODD["posterior"] = [*NO_TABLE, [], [10**400]], ODD["records"]
# Of a density, values that are not finite are impossible or suppressed releases.
WRONG["value"] = [*NOTHING, "1", {}, [True, 2], [10**400, "a"]]
ODD["value"] = [0, 1.5, -1e300, 1e308, math.nan, math.inf, [], [1.0], np.ones((2, 3)), True]
WRONG["drawn"] = WRONG["statistic"]
ODD["drawn"] = [0, 1.5, -1e300, 1e308, 2**62, [], [1.0], np.ones((2, 3)), True]
WRONG["edges"] = [*NO_TABLE, [], [1.0, 0.0], [0.0, 0.0], [[1.0, 2.0]], [10**400]]
ODD["edges"] = [0, [0.0, 1.0], (0, 1, 2), np.array([-1e300, 1e300]), [0.0, math.ulp(0.0)]]
# One record is read like one entry of a table: True and decimals are numbers there.
WRONG["record"] = [v for v in NO_ROWS if v is not True and not isinstance(v, decimal.Decimal)]
ODD["record"] = [0, 1.5, -1e300, 1e308, 2**62, 10**400, [], [1.0, -2.0], True, decimal.Decimal(1)]
WRONG["line"] = [*NOTHING, 1, True, "", "{}", "null", "[]", '{"query": "binned"}', "{" * 10**5]
ODD["line"] = [
    '{"query": "binned", "edges": [0, 1], "epsilon": 1}',
    '{"query": "binned", "edges": [NaN], "epsilon": 1}',
    '{"query": "clipped", "lower": 0, "upper": 1e400, "epsilon": 1}',
    '{"query": "clipped", "lower": 0, "upper": 1, "mechanism": {"name": "Tulap"}}',
]
WRONG["answer"] = [*NO_NUMBER, -1, 2.5, 3, 2**70]
ODD["answer"] = [0, 2, np.int64(1), 1.0, [0, 1], np.zeros(3, int)]

# Thresholds, four records of three shares, and the group of each.
_FLAT = [[0.2, 0.3, 0.5]] * 4
WRONG["thresholds"] = [
    *(*NO_TABLE, 0.1, [], [0.1, 0.1], [0.2, 0.1], [0.0, 0.1], [0.1, 1.0], [[0.1]]),
    np.linspace(0.001, 0.9, 101),
]
ODD["thresholds"] = [
    *([0.1], (0.1, 0.2), [math.ulp(0.0), 1e-300], [1e-12, 1 - 2**-53], np.float32([0.1, 0.25])),
    *([0.1, math.nextafter(0.1, 1)], np.linspace(0.001, 0.9, 100)),
]
WRONG["shares"] = [
    *NO_TABLE,
    *(1.0, [1.0], np.ones((2, 2, 1)), np.zeros((4, 3)), np.empty((4, 0)), [[1.0]] * 4),
    *([[0.5, 0.6, -0.1]] * 4, [[50, 30, 20]] * 4, [[1e308, 1e308, 1e308]] * 4),
    *([[10**400, 0, 0]] * 4, [[1, None, 0]] * 4, [[math.nan, 0.5, 0.5]] * 4, [[Rude()] * 3] * 4),
    *([[0.5, 0.5, 0.0], [1.0]], [["0.5", "0.5", "0"]] * 4, np.ma.array(_FLAT)),
]
ODD["shares"] = [
    *([[1, 0, 0]] * 4, [[True, False, False]] * 4, np.eye(3, dtype=np.int8), np.empty((0, 3))),
    *([[math.ulp(0.0), 1.0, 0.0]] * 4, [[-0.0, 1 + 1e-7, 0]] * 4, np.full((4, 3), 1 / 3)),
    *(np.float32(_FLAT), [[fractions.Fraction(1, 3)] * 3] * 4, np.full((4, 2**10), 2.0**-10)),
    *([[decimal.Decimal("0.5")] * 2] * 4, np.eye(4, 100_000), np.empty((4, 2**40, 0))),
]
WRONG["groups"] = [
    *NOTHING,
    *(1.0, "mfmf", True, [], {}, ["m"], ["m"] * 5, np.array("m"), np.array([["m"]] * 4)),
    *(["", "f", "m", "f"], ["m", "f", "m", "two\nlines"], ["m", "f", "m", " f"], ["\ud800"] * 4),
    *([None] * 4, [object()] * 4, [Rude()] * 4, [math.nan] * 4, [1.5] * 4, [["m"]] * 4),
    *(
        [1, "1", 1, "1"],
        [1, True, 1, True],
        [1j] * 4,
        [10**5000] * 4,
        [b"m"] * 4,
        [np.ma.masked] * 4,
    ),
]
ODD["groups"] = [
    *(("b", "a", "b", "a"), [1, 2, 1, 2], np.array([1, 2, 3, 4]), [True, False, True, True]),
    *(np.array(["m", "f", "m", "f"]), ["a" * 300] * 4, ["Größe", "with '", "\\", "nan"]),
    *([10**400] * 4, [np.str_("m"), "m", "f", "f"], [np.int64(1), 1, -1, 0]),
]

# Draws of parameters of shares, and what a cloud of them may be called.
WRONG["positive_table"] = [
    *(*NO_TABLE, 1.0, [], [1.0, 2.0], np.empty((0, 3)), np.zeros((2, 3)), np.ones((2, 1))),
    *([[1.0, -1.0]], [[1.0, math.inf]], np.ones((2, 2, 2)), [[10**400, 1]]),
]
ODD["positive_table"] = [
    *([[1, 2]], np.ones((1, 3)), np.full((3, 3), 1e308), np.full((3, 3), math.ulp(0.0))),
    *([[1e308, 1e-308, 1.0]], np.ones((2500, 3), np.int8), np.ones((3, 4)), np.float16([[1, 2]])),
]
WRONG["label"], ODD["label"] = hashable(NO_NAME), [*ODD["title"], "_hidden", "$", "$x^$"]
