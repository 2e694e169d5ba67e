"""Machine code is found again if and only if it would be the same."""

import os
import subprocess
import sys
from collections import namedtuple
from types import FunctionType, ModuleType

import numpy as np
import pytest
from numba.core import config
from numba.extending import is_jitted

import pymc_privacy as pmp
from pymc_privacy.algorithms import interweave
from pymc_privacy.algorithms.machine_code.caching import OpaqueError, compiled, fingerprint
from pymc_privacy.algorithms.noise import noise
from pymc_privacy.algorithms.numerics import counts, quantiles
from pymc_privacy.algorithms.proposals import frames, leaps
from pymc_privacy.algorithms.record_sweep import compile_scan

SOURCE = '''
from numba.extending import overload, register_jitable
from pymc_privacy.algorithms.machine_code.caching import compiled

CONSTANT = {constant}
TABLE = {{"a": [1.0, {table}]}}

@compiled
def outer(x):
    """{words}"""
    # {words}
    return later(x) + beside(x) + named(x) + within(x) + CONSTANT

def build(shift):
    @compiled
    def within(x):
        return x + shift
    return within

within = build({closed_over})

@compiled
def later(x):
    return further(x) * len(TABLE)

@compiled(error_model="{error_model}")
def further(x):
    return x + {further}

@register_jitable
def beside(x):
    return x - {beside}

def named(x):
    raise NotImplementedError

@overload(named)
def _named(x):
    return lambda x: x * {named}
'''
PLAIN = {
    "constant": 1,
    "table": 2.0,
    "words": "some",
    "closed_over": 3,
    "error_model": "numpy",
    "further": 4,
    "beside": 5,
    "named": 6,
}


def edition(**changes):
    scope = {"__name__": "written_by_a_user"}
    exec(compile(SOURCE.format(**PLAIN | changes), "written.py", "exec"), scope)
    return fingerprint(scope["outer"])


@pytest.mark.parametrize(
    ("part", "other"),
    [
        ("constant", 2),
        ("constant", 1.0),
        ("table", 3.0),
        ("closed_over", 4),
        ("error_model", "python"),
        ("further", 5),
        ("beside", 6),
        ("named", 7),
    ],
)
def test_whatever_is_called_or_read_changes_the_fingerprint(part, other):
    assert edition(**{part: other}) != edition()


def test_words_and_lines_do_not():
    assert edition(words="others\n\n    # on more lines") == edition()


def copy_of(function, **names):
    """Return a function whose global names stand for other things."""
    plain = function.py_func if is_jitted(function) else function
    return FunctionType(plain.__code__, plain.__globals__ | names, plain.__name__)


def test_code_that_moved_to_another_module_is_noticed():
    # What is on disk names its modules, and could not be read where one is gone.
    def written_in(name):
        scope = {"__name__": name}
        exec("def f(x):\n    return x + 1", scope)
        return compiled(scope["f"])

    assert fingerprint(written_in("here")) == fingerprint(written_in("here"))
    assert fingerprint(written_in("here")) != fingerprint(written_in("there"))


CALLS = [
    (leaps.guided_moves, "single_frame"),
    (leaps.guided_walk, "place"),
    (frames.place, "lower_times"),
    (interweave.walk, "acceptance"),
    (quantiles.to_count, "mass"),
    (counts.tails, "at_most"),
]


@pytest.mark.parametrize(
    ("caller", "callee"), CALLS, ids=lambda part: getattr(part, "__name__", part)
)
def test_an_edited_callee_is_noticed(caller, callee):
    scope = getattr(caller, "__globals__", None) or caller.py_func.__globals__

    def edited(*arguments):
        return 3 * arguments[0]

    assert fingerprint(copy_of(caller)) != fingerprint(copy_of(caller, **{callee: edited}))
    assert fingerprint(copy_of(caller)) == fingerprint(copy_of(caller, **{callee: scope[callee]}))


def test_a_callee_of_a_callee_is_noticed(monkeypatch):
    before = fingerprint(leaps.guided_walk)
    monkeypatch.setattr(frames, "between", compiled(lambda here, there, w: here))
    assert fingerprint(leaps.guided_walk) != before


def test_a_value_of_a_module_is_noticed(monkeypatch):
    before = fingerprint(leaps.guided_walk)
    monkeypatch.setattr(interweave, "SHORT_STEP", 0.3)
    assert fingerprint(leaps.guided_walk) != before
    table = fingerprint(counts.tails)
    monkeypatch.setattr(counts, "_NODES", counts._NODES * (1 + 1e-15))
    assert fingerprint(counts.tails) != table


def test_what_has_no_code_is_refused():
    thing = object()

    def refers():
        return thing

    with pytest.raises(OpaqueError, match="cannot be told from other code"):
        fingerprint(refers)
    with pytest.raises(OpaqueError, match="array of objects"):
        fingerprint(copy_of(frames.place, lower_times=np.array([thing])))


ANOTHER_PROCESS = """
from pymc_privacy.algorithms.proposals import (leaps)
from pymc_privacy.algorithms.numerics import (quantiles)
from pymc_privacy.algorithms.machine_code.caching import fingerprint
print(fingerprint(leaps.guided_moves), fingerprint(quantiles.to_count))
"""


def test_fingerprints_are_the_same_in_another_process():
    run = subprocess.run(
        [sys.executable, "-c", ANOTHER_PROCESS],
        capture_output=True,
        text=True,
        check=True,
        env=os.environ | {"PYTHONHASHSEED": "7"},
    )
    assert run.stdout.split() == [
        fingerprint(leaps.guided_moves),
        fingerprint(quantiles.to_count),
    ]


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """Keep what is compiled in a directory of its own."""
    monkeypatch.setattr(config, "CACHE_DIR", str(tmp_path))
    return tmp_path


def test_machine_code_is_found_again_by_its_fingerprint(cache):
    def twice(x):
        return 2.0 * x

    once, again = compiled(twice), compiled(twice)
    assert once(1.5) == again(1.5) == 3.0
    assert sum(once.stats.cache_misses.values()) == 1
    assert sum(again.stats.cache_hits.values()) == 1
    assert len(list(cache.rglob("*.nbi"))) == 1


def test_machine_code_with_an_edited_callee_is_not_used(cache):
    """The compiler's own cache would find the first one, whose file has not changed."""

    def build(callee):
        def call(x):
            return callee(x)

        return compiled(call)

    one = build(compiled(lambda x: x + 1.0))
    two = build(compiled(lambda x: x + 2.0))
    assert (one(1.0), two(1.0)) == (2.0, 3.0)
    again = build(compiled(lambda x: x + 1.0))
    assert again(1.0) == 2.0
    assert sum(again.stats.cache_hits.values()) == 1


MECHANISMS = [
    pmp.Laplace(scale=1.0),
    pmp.Gaussian(scale=1.0),
    pmp.DiscreteLaplace(scale=1.0),
    pmp.DiscreteGaussian(scale=1.0),
    pmp.Tulap(epsilon=1.0, delta=0.01, sensitivity=1),
]


@pytest.mark.parametrize("mechanism", MECHANISMS, ids=lambda m: type(m).__name__)
def test_every_law_of_noise_is_found_again(mechanism):
    laws = noise([mechanism.formula], [0.0], [mechanism.parameters]).laws
    editions = {fingerprint(compile_scan(laws))}
    others = [m for m in MECHANISMS if type(m) is not type(mechanism)]
    editions |= {
        fingerprint(compile_scan(noise([m.formula], [0.0], [m.parameters]).laws)) for m in others
    }
    # Laws that differ in their numbers alone share a formula, and so their code.
    assert len(editions) == len({m.formula for m in MECHANISMS})


WITH_A_TUPLE = """
from typing import NamedTuple
from pymc_privacy.algorithms.machine_code.caching import compiled

class {name}(NamedTuple):
    number: float

@compiled
def doubled(pair):
    return 2 * pair.number
"""


def with_a_tuple(name):
    scope = {"__name__": "a_module_with_a_tuple"}
    exec(WITH_A_TUPLE.format(name=name), scope)
    return scope


def test_a_named_tuple_by_another_name_is_noticed():
    """Machine code on disk names the classes of its arguments."""
    one, same, other = (with_a_tuple(name)["doubled"] for name in ("Pair", "Pair", "Twins"))
    assert fingerprint(one) == fingerprint(same) != fingerprint(other)


def test_an_index_that_names_what_is_gone_is_empty(cache, monkeypatch):
    module = ModuleType("a_module_with_a_tuple")
    module.Pair = namedtuple("Pair", ["number"], module=module.__name__)
    monkeypatch.setitem(sys.modules, module.__name__, module)

    def doubled(pair):
        return 2 * pair.number

    doubled = compiled(doubled)
    assert doubled(module.Pair(2.0)) == 4.0
    index = doubled._cache._cache_file
    assert len(index._load_index()) == 1
    del module.Pair
    assert index._load_index() == {}
