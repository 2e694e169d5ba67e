"""Wrap the compiled functions of a model in one form, and let moves call them by address.

Moves are compiled once for all models (`pymc_privacy.algorithms.by_address`); what is compiled for
a model is its own functions. These find their arguments, but for the parameters, in memory that is
laid out once: records are copied there before each iteration, and out of it where they moved.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha256
from typing import Any

import numpy as np
from numba import carray, cfunc, typeof, types

from pymc_privacy._compat import CACHED_SRC_FUNCTIONS
from pymc_privacy.algorithms import by_address, interweave, leaps
from pymc_privacy.algorithms.by_address import FREE, pointer
from pymc_privacy.algorithms.caching import compiled, fingerprint
from pymc_privacy.graph.calls import DirectCall, shared_values
from pymc_privacy.graph.parameter_program import ParameterProgram

_VECTOR, _INTEGERS = types.float64[::1], types.int64[::1]
_PLAIN = types.float64(_VECTOR, _VECTOR, _INTEGERS)
_DRAWING = types.float64(typeof(np.random.default_rng(0)), _VECTOR, _VECTOR, _INTEGERS)
_DRAWS = ("base", "refresh")
# What each function reads besides q and the values that are held.
_READS = {
    "statistics": ("records",),
    "centred": ("records", "totals"),
    "base": ("records",),
    "noncentred": ("u",),
    "forward": ("u",),
    "released": ("u",),
    "others": ("records",),
    "refresh": (),
}
_compiled_moves: dict[tuple[str, ...], DirectCall] = {}


@compiled
def put(out, first, part):
    """Write the numbers of an array into a vector; return where the next ones go."""
    for number in part.flat:
        out[first] = number
        first += 1
    return first


class MovesByAddress:
    """The moves of `interweave` or `leaps` for the functions of one model.

    Parameters
    ----------
    program : ParameterProgram
    """

    def __init__(self, program: ParameterProgram):
        self._program = program
        self._moves = _moves(program)
        self._memory: _Memory | None = None

    def __call__(self, rng, q, held, records, centred, wide, local):
        """Move the parameters, and the records with them; arguments are those of the templates."""
        if self._memory is None:
            self._memory = _Memory(self._program, q, held, records)
        memory = self._memory
        memory.copy_in(held, records)
        given, addresses = (memory.flat,), memory.addresses()
        q, (flat,), *rest = self._moves(rng, q, (), given, addresses, centred, wide, local)
        memory.raise_error(rng)
        return q, records if flat is memory.flat else memory.unflatten(flat), *rest


def _moves(program: ParameterProgram) -> DirectCall:
    """Return the moves that a program needs, the same for all models that need the same."""
    template = leaps if program.follows else interweave
    editions: list[str] = []

    def remember(function, label: str) -> bool:
        CACHED_SRC_FUNCTIONS[function] = fingerprint(function)
        editions.append(CACHED_SRC_FUNCTIONS[function])
        return True

    functions = {name: by_address.FUNCTIONS[name] for name in program.functions}
    moves = template.compile_moves(functions, gradients=program.gradients, remember=remember)
    return _compiled_moves.setdefault(tuple(editions), DirectCall(moves))


class _Memory:
    """Where the functions of a program find their arguments, and leave what they return."""

    def __init__(self, program: ParameterProgram, q: np.ndarray, held: tuple, records: tuple):
        self._program, self._names = program, list(program.functions)
        ends = np.cumsum([0, *(record.size for record in records)])
        self._places = [
            (slice(first, last), record.shape, record.dtype)
            for first, last, record in zip(ends, ends[1:], records, strict=False)
        ]
        self.flat = np.empty(ends[-1])
        self._views = [self.flat[place].reshape(shape) for place, shape, _ in self._places]
        self._arrays = {
            "held": [np.array(value) for value in held],
            "records": [
                view if kind == np.float64 else np.empty(shape, kind)
                for view, (_, shape, kind) in zip(self._views, self._places, strict=True)
            ],
            **_results(program, q, held, records),
        }
        lengths = dict.fromkeys(program.gradients, q.size)
        lengths |= dict.fromkeys(("forward", "refresh"), self.flat.size)
        lengths["released"] = len(program.weights)
        self._outs = {name: np.empty(lengths.get(name, 0)) for name in self._names}
        [self._outs["statistics"]] = self._arrays["totals"]
        # Which function has failed, counted from 1, and at which parameters.
        self._failure, self._failed = np.zeros(1, dtype=np.int64), np.empty(q.size)
        self._wrappers: dict[str, Any] = {}
        self._containers = [
            container
            for name in self._names
            for container in program.functions[name].input_storage[program.given[name] :]
        ]
        self._data: list[np.ndarray] = []
        self._laid_out: list[tuple[np.ndarray, list[np.ndarray]]] = []
        self._addresses: tuple[tuple[int], ...] = ()

    def copy_in(self, held: tuple, records: tuple) -> None:
        """Write the arguments of one iteration."""
        for own, value in zip(self._arrays["held"], held, strict=True):
            own[...] = value
        for own, view, record in zip(self._arrays["records"], self._views, records, strict=True):
            view[...] = record
            if own is not view:
                own[...] = record

    def addresses(self) -> tuple[tuple[int], ...]:
        """Return where the contexts of all functions begin; data may have been set anew."""
        data = [container.storage[0] for container in self._containers]
        if not self._addresses or any(a is not b for a, b in zip(data, self._data, strict=True)):
            self._data = data
            self._laid_out = [self._lay_out(k, name) for k, name in enumerate(self._names, 1)]
            self._addresses = tuple((context.ctypes.data,) for context, _ in self._laid_out)
        return self._addresses

    def _lay_out(self, number: int, name: str) -> tuple[np.ndarray, list[np.ndarray]]:
        """Return the context of a function, and data that it points to."""
        function = self._program.functions[name]
        # Machine code does not look at strides.
        data = [np.array(a, order="C") for a in shared_values(function, self._program.given[name])]
        given = [*self._given(name), *data]
        found = self._arrays["u"] if name == "base" else []
        if name not in self._wrappers:
            self._wrappers[name] = _wrapped(self._program, name, number, given, found)
        arrays = [self._failure, self._failed, *given, *found]
        numbers = [n for array in arrays for n in (array.ctypes.data, *array.shape)]
        out, wrapper = self._outs[name], self._wrappers[name]
        first = [wrapper.address, out.ctypes.data, out.size, FREE + len(numbers)]
        return np.array([*first, *numbers], dtype=np.int64), data

    def _given(self, name: str) -> list[np.ndarray]:
        return [array for kind in ("held", *_READS[name]) for array in self._arrays[kind]]

    def unflatten(self, flat: np.ndarray) -> tuple[np.ndarray, ...]:
        """Return the records of one vector."""
        return tuple(
            [
                flat[place].reshape(shape).astype(kind, copy=False)
                for place, shape, kind in self._places
            ]
        )

    def raise_error(self, rng: np.random.Generator) -> None:
        """Raise the error that a function has raised inside a move, if one has."""
        if not self._failure[0]:
            return
        name = self._names[self._failure[0] - 1]
        self._failure[0] = 0
        first = [rng] if name in _DRAWS else []
        self._program.functions[name](*first, self._failed, *self._given(name))
        raise RuntimeError(
            f"Compiled code must not fail; {name!r} of a model did, at {self._failed}."
        )


def _results(
    program: ParameterProgram, q: np.ndarray, held: tuple, records: tuple
) -> dict[str, list[np.ndarray]]:
    """Return memory for the sums over the records, and for their base variates."""
    [totals] = program.functions["statistics"](q, *held, *records)
    u: Sequence[np.ndarray] = ()
    if "base" in program.functions:
        # For the shapes alone: no number of the chain's generator is spent.
        u = program.functions["base"](np.random.default_rng(0), q, *held, *records)
    return {"totals": [np.array(totals)], "u": [np.array(part) for part in u]}


def _wrapped(
    program: ParameterProgram,
    name: str,
    number: int,
    given: Sequence[np.ndarray],
    found: Sequence[np.ndarray],
) -> Any:
    """Return a C function (q, out, context), with a generator first where it draws.

    Its context goes on with a cell for the number of a function that has failed, a vector for the
    parameters at which it did, and with ``given`` and ``found``: addresses and shapes.
    """
    jitted = program.functions[name].vm.jit_fn
    whole, real = np.dtype(np.int64), np.dtype(np.float64)
    names = ["failure", "failed", *(f"given{k}" for k in range(len(given)))]
    names += [f"found{k}" for k in range(len(found))]
    kinds = [(1, whole), (1, real), *((array.ndim, array.dtype) for array in [*given, *found])]
    lines, at = [], FREE
    for each, (dimensions, kind) in zip(names, kinds, strict=True):
        lines.append(_reading(each, at, dimensions, kind))
        at += 1 + dimensions
    rng = "rng, " if name in _DRAWS else ""
    arguments = "".join(f", given{k}" for k in range(len(given)))
    body = [f"result = f({rng}q{arguments})", *_writing(program, name, len(found))]
    source = "\n".join(
        [
            f"def wrapped({rng}q, out, context):",
            *(f"    {line}" for line in lines),
            "    try:",
            *(f"        {line}" for line in body),
            # An error would be printed here, and then forgotten.
            "    except Exception:",
            f"        failure[0] = {number}",
            "        put(failed, 0, q)",
            "        value = np.nan",
            "    return value",
            "",
        ]
    )
    scope = {"carray": carray, "f": jitted, "np": np, "pointer": pointer, "put": put}
    made: dict[str, Any] = {}
    exec(compile(source, "<wrapped>", "exec"), scope | {"__name__": __name__}, made)
    key = CACHED_SRC_FUNCTIONS.get(jitted.py_func)
    if key is not None:
        edition = repr((source, key, fingerprint(put)))
        CACHED_SRC_FUNCTIONS[made["wrapped"]] = sha256(edition.encode()).hexdigest()
    form = _DRAWING if name in _DRAWS else _PLAIN
    return cfunc(form, cache=key is not None, error_model="numpy")(made["wrapped"])


def _reading(name: str, at: int, dimensions: int, kind: np.dtype) -> str:
    """Return code that reads an array by its address and shape."""
    shape = "".join(f"context[{at + 1 + k}], " for k in range(dimensions))
    number = f"np.{'bool_' if kind == np.bool_ else kind.name}"
    return f"{name} = carray(pointer(context[{at}]), ({shape}), {number})"


def _writing(program: ParameterProgram, name: str, found: int) -> list[str]:
    """Return code that fills ``out`` and the value from what a function returns."""
    if name == "base":
        return ["value = 0.0", *(f"found{k}[...] = result[{k}]" for k in range(found))]
    lines, records = ["value = 0.0"], len(program.records)
    written = {"statistics": range(1), "released": range(1), "forward": range(records)}.get(name)
    if written is None:
        lines = ["value = result[0].item()"]
        written = range(1, 2) if name in program.gradients else range(0)
        written = range(1, records + 1) if name == "refresh" else written
    lines.append("first = 0")
    return lines + [f"first = put(out, first, result[{k}])" for k in written]
