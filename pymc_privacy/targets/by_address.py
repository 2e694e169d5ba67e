"""Wrap the compiled functions of a model in one form, and let moves call them by address.

Moves are compiled once for all models (`algorithms.machine_code.by_address`); what is compiled for
a model is its own functions. These find their arguments, but for the parameters, in memory that is
laid out once: records are copied there before each iteration, and out of it where they moved.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from hashlib import sha256
from itertools import batched
from typing import Any

import numpy as np
from numba import carray, cfunc, typeof, types

from pymc_privacy._compat import CACHED_SRC_FUNCTIONS
from pymc_privacy.algorithms import birth_death, count_states, importance, interweave
from pymc_privacy.algorithms.machine_code import by_address
from pymc_privacy.algorithms.machine_code.binding import Remember
from pymc_privacy.algorithms.machine_code.by_address import FREE, pointer
from pymc_privacy.algorithms.machine_code.caching import compiled, fingerprint
from pymc_privacy.algorithms.proposals import leaps
from pymc_privacy.errors import CertificateError
from pymc_privacy.functions.calls import DirectCall, shared_values
from pymc_privacy.functions.numbers import LONGEST_TUPLE
from pymc_privacy.targets.base import ParameterProgram

_VECTOR, _INTEGERS = types.float64[::1], types.int64[::1]
_PLAIN = types.float64(_VECTOR, _VECTOR, _INTEGERS)
_DRAWING = types.float64(typeof(np.random.default_rng(0)), _VECTOR, _VECTOR, _INTEGERS)
_DRAWS = ("base", "refresh", "fresh")
_FILL_BASE = ("base", "fresh")
_VECTORS = ("statistics", "forward", "released")
# What each function reads besides its first argument, as far as it is there.
_READS = {
    "statistics": ("held", "records"),
    "centred": ("held", "records", "totals", "counts"),
    "base": ("held", "records"),
    "noncentred": ("held", "u", "bounds"),
    "forward": ("held", "u"),
    "released": ("held", "u"),
    "others": ("held", "records"),
    "refresh": ("held",),
    "fresh": ("held",),
    "weight": ("held", "u"),
    "unweighted": ("held", "u"),
    "law": ("held",),
    "noise": (),
}
_compiled: dict[tuple[str, ...], DirectCall] = {}


@compiled
def put(out, first, part):  # type: ignore[no-untyped-def]
    """Write the numbers of an array into a vector; return where the next ones go."""
    for number in part.flat:
        out[first] = number
        first += 1
    return first


@compiled
def take(record, first, vector):  # type: ignore[no-untyped-def]
    """Fill an array from the numbers of a vector; return where the next ones stand."""
    for i in range(record.size):
        record[i] = vector[first + i]
    return first + record.size


class MovesByAddress:
    """The moves of `interweave`, `leaps` or `birth_death` for the functions of one model.

    Parameters
    ----------
    program : ParameterProgram
    template : module, optional
        By default one of the first two, according to the program.
    """

    def __init__(self, program: ParameterProgram, template: Any = None):
        self._program = program
        template = template or (leaps if program.is_guided else interweave)
        functions = {name: by_address.FUNCTIONS[name] for name in program.functions}
        self._moves_records_first = template is birth_death
        if self._moves_records_first:
            functions["statistics"] = by_address.statistics_where_they_are
        self._moves = once_for_all(
            lambda remember: template.compile_moves(
                functions, gradients=program.gradients, remember=remember
            )
        )
        self._records: _Records | None = None
        self._wrappers: dict[str, Any] = {}

    def forget(self) -> None:
        """Read all data again: they may have been changed in place."""
        if self._records is not None:
            self._memory.forget()

    def _lay_out(self, q: np.ndarray, held: tuple, records: tuple, bounds: tuple) -> None:
        is_first = self._records is None
        self._records = _Records(records)
        results = _results(self._program, q, held, records)
        lengths = dict.fromkeys(self._program.gradients, q.size)
        lengths |= dict.fromkeys(("forward", "refresh"), self._records.flat.size)
        lengths["released"] = len(self._program.noise_precision)
        outs = {name: np.empty(size) for name, size in lengths.items()}
        [outs["statistics"]] = results["totals"]
        arrays = {"records": self._records.typed, "bounds": list(map(np.array, bounds)), **results}
        self._memory = _Memory(
            self._program,
            q,
            held,
            arrays,
            outs,
            wrappers=self._wrappers,
            keeps_records=self._moves_records_first,
        )
        if is_first:
            self._records.copy_in(records)
            self._memory.certify(held, dict.fromkeys(self._program.functions, q))

    def __call__(
        self,
        rng: np.random.Generator,
        state: interweave.State,
        held: tuple[np.ndarray, ...],
        settings: interweave.Settings | birth_death.Settings,
        bounds: tuple[np.ndarray, ...] = (),
    ) -> tuple[interweave.State, interweave.Info]:
        """Move the parameters, and the records with them; arguments are those of the templates.

        Records may have other lengths than before; ``bounds`` are those of their random numbers.
        """
        q, records = state
        if self._records is None or not self._records.fit(records):
            self._lay_out(q, held, records, bounds)
        memory, own = self._memory, self._records
        assert own is not None  # laid out above
        own.copy_in(records)
        data = interweave.data_of(memory.addresses(held, bounds))
        state, info = self._moves(rng, interweave.State(q, (own.flat,)), (), settings, data)
        memory.raise_error(rng)
        [flat] = state.records
        return state._replace(records=records if flat is own.flat else own.unflatten(flat)), info


class StepByAddress:
    """One iteration of `count_states` for the functions of one model.

    Parameters
    ----------
    program : ParameterProgram
    cells : count_states.CellTable
    """

    def __init__(self, program: ParameterProgram, cells: count_states.CellTable):
        self._program, self._cells = program, cells
        self._step = once_for_all(
            lambda remember: count_states.compile_step(
                centred=by_address.given_counts,
                law=by_address.law,
                noise=by_address.noise,
                has_gradient="centred" in program.gradients,
                remember=remember,
            )
        )
        self._counts = np.empty(len(cells.contributions), dtype=np.int64)
        self._memory: _Memory | None = None

    def forget(self) -> None:
        """Read all data again: they may have been changed in place."""
        if self._memory is not None:
            self._memory.forget()

    def __call__(
        self,
        rng: np.random.Generator,
        state: count_states.State,
        held: tuple[np.ndarray, ...],
        settings: count_states.Settings,
    ) -> tuple[count_states.State, count_states.Info]:
        """Move the parameters and the counts; arguments are those of the template."""
        if self._memory is None:
            outs = {"law": np.empty(self._counts.size)}
            outs |= {name: np.empty(state.q.size) for name in self._program.gradients}
            totals = np.empty(self._cells.contributions.shape[1])
            arrays = {"counts": [self._counts]}
            self._memory = _Memory(
                self._program, state.q, held, arrays, outs, first={"noise": totals}
            )
            self._counts[...] = state.counts
            totals = state.counts @ self._cells.contributions
            self._memory.certify(held, {"centred": state.q, "law": state.q, "noise": totals})
        self._counts[...] = state.counts
        data = count_states.Data(**self._memory.addresses(held))
        found = self._step(rng, state, self._cells, (), settings, data)
        self._memory.raise_error(rng)
        return found


class ProposalsByAddress:
    """The draws of `importance` for the functions of one model.

    Parameters
    ----------
    program : ParameterProgram
    q, held
        Any parameters of the model, and values that are held.
    """

    def __init__(self, program: ParameterProgram, q: np.ndarray, held: tuple[np.ndarray, ...]):
        functions = {name: by_address.FUNCTIONS[name] for name in importance.Data._fields}
        self._propose = once_for_all(
            lambda remember: importance.compile_proposals(functions, remember=remember)
        )
        u = program.functions["fresh"](np.random.default_rng(0), q, *held)
        outs = {"released": np.empty(len(program.noise_precision))}
        self._held = held
        used = {name: program.functions[name] for name in importance.Data._fields}
        self._memory = _Memory(
            replace(program, functions=used), q, held, {"u": [np.array(part) for part in u]}, outs
        )
        self._memory.certify(held, dict.fromkeys(used, q))

    @property
    def base(self) -> tuple[np.ndarray, ...]:
        """Return the base variates of the last draw."""
        return tuple(self._memory.array("u"))

    def __call__(
        self, rng: np.random.Generator, proposal: importance.Proposal, draws: int
    ) -> importance.Batch:
        """Make some draws."""
        data = importance.Data(**self._memory.addresses(self._held))
        found = self._propose(rng, proposal, draws, data)
        self._memory.raise_error(rng)
        return importance.Batch(*found)


def once_for_all(build: Callable[[Remember], Any]) -> DirectCall:
    """Return what is compiled for addresses, the same for all models that need the same."""
    editions: list[str] = []

    def remember(function: Callable[..., Any], label: str) -> bool:
        CACHED_SRC_FUNCTIONS[function] = fingerprint(function)
        editions.append(CACHED_SRC_FUNCTIONS[function])
        return True

    made = build(remember)
    # An edited move is another one.
    return _compiled.setdefault(tuple(editions), DirectCall(made))


class _Records:
    """Records as one vector of numbers, and as arrays of their own kinds."""

    def __init__(self, records: tuple[np.ndarray, ...]):
        ends = np.cumsum([0, *(record.size for record in records)])
        self._places = [
            (slice(first, last), record.shape, record.dtype)
            for first, last, record in zip(ends, ends[1:], records, strict=False)
        ]
        self.flat = np.empty(ends[-1])
        self._views = [self.flat[place].reshape(shape) for place, shape, _ in self._places]
        self.typed = [
            view if kind == np.float64 else np.empty(shape, kind)
            for view, (_, shape, kind) in zip(self._views, self._places, strict=True)
        ]

    def fit(self, records: tuple[np.ndarray, ...]) -> bool:
        """Tell whether records have the shapes that memory was laid out for."""
        return all(
            record.shape == view.shape for record, view in zip(records, self._views, strict=True)
        )

    def copy_in(self, records: tuple[np.ndarray, ...]) -> None:
        """Write records into both forms."""
        for typed, view, record in zip(self.typed, self._views, records, strict=True):
            view[...] = record
            if typed is not view:
                typed[...] = record

    def unflatten(self, flat: np.ndarray) -> tuple[np.ndarray, ...]:
        """Return the records of one vector."""
        return tuple(
            [
                flat[place].reshape(shape).astype(kind, copy=False)
                for place, shape, kind in self._places
            ]
        )


class _Memory:
    """Where the functions of a program find their arguments, and leave what they return.

    Parameters
    ----------
    program : ParameterProgram
    q, held
        Parameters, and values that are held.
    arrays
        What functions read and write, by the names in `_READS`.
    outs
        What functions fill, where that is not empty.
    first
        The first argument of functions for which it is not q.
    wrappers
        What was compiled for arrays of the same kinds, if of other lengths; it is added to.
    keeps_records
        Whether records that moved are kept before sums over them are asked for.
    """

    def __init__(
        self,
        program: ParameterProgram,
        q: np.ndarray,
        held: tuple[np.ndarray, ...],
        arrays: Mapping[str, list[np.ndarray]],
        outs: Mapping[str, np.ndarray],
        *,
        first: Mapping[str, np.ndarray] | None = None,
        wrappers: dict[str, Any] | None = None,
        keeps_records: bool = False,
    ):
        self._program, self._names = program, list(program.functions)
        self._arrays = {"held": [np.array(value) for value in held], **arrays}
        self._outs = {name: outs.get(name, np.empty(0)) for name in self._names}
        # Which function has failed, counted from 1, and at which first argument.
        self._failure = np.zeros(1, dtype=np.int64)
        self._failed = {name: np.empty_like((first or {}).get(name, q)) for name in self._names}
        self._wrappers = {} if wrappers is None else wrappers
        self._keeps_records = keeps_records
        # Of data that can be set anew; numbers stay what they are.
        self._containers = [
            container
            for name in self._names
            for container in program.functions[name].input_storage[program.given[name] :]
        ]
        self._data: list[np.ndarray] = []
        self._laid_out: list[tuple[np.ndarray, list[np.ndarray]]] = []
        self._addresses: dict[str, tuple[int, ...]] = {}

    def addresses(
        self, held: tuple[np.ndarray, ...], bounds: tuple[np.ndarray, ...] = ()
    ) -> dict[str, tuple[int, ...]]:
        """Return where the contexts of all functions begin; data may have been set anew.

        Before that of the statistics, where records move first, stands that of what keeps these.
        """
        for name, values in (("held", held), ("bounds", bounds)):
            for own, value in zip(self._arrays.get(name, ()), values, strict=True):
                own[...] = value
        data = [container.storage[0] for container in self._containers]
        if not self._addresses or any(a is not b for a, b in zip(data, self._data, strict=True)):
            self._data = data
            self._laid_out = [self._lay_out(k, name) for k, name in enumerate(self._names, 1)]
            contexts = [(context.ctypes.data,) for context, _ in self._laid_out]
            self._addresses = dict(zip(self._names, contexts, strict=True))
            if self._keeps_records:
                self._keep = self._lay_out_keeping()
                self._addresses["statistics"] = (
                    self._keep.ctypes.data,
                    *self._addresses["statistics"],
                )
        return self._addresses

    def forget(self) -> None:
        """Lay all data out anew at the next call."""
        self._addresses = {}

    def array(self, name: str) -> list[np.ndarray]:
        """Return what functions read and write under a name, as it is."""
        return self._arrays[name]

    def _lay_out_keeping(self) -> np.ndarray:
        """Return the context of what writes records into their arrays."""
        records = self._arrays["records"]
        if "keep" not in self._wrappers:
            self._wrappers["keep"] = _keeping(records)
        numbers = [n for array in records for n in (array.ctypes.data, *array.shape)]
        first = [self._wrappers["keep"].address, 0, 0, FREE + len(numbers)]
        return np.array([*first, *numbers], dtype=np.int64)

    def _lay_out(self, number: int, name: str) -> tuple[np.ndarray, list[np.ndarray]]:
        """Return the context of a function, and data that it points to."""
        function = self._program.functions[name]
        data = [_in_rows(a) for a in shared_values(function, self._program.given[name])]
        given = [*self._given(name), *data]
        found = self._arrays["u"] if name in _FILL_BASE else []
        if name not in self._wrappers:
            self._wrappers[name] = _wrapped(self._program, name, number, given, found)
        arrays = [self._failure, self._failed[name], *given, *found]
        numbers = [n for array in arrays for n in (array.ctypes.data, *array.shape)]
        out, wrapper = self._outs[name], self._wrappers[name]
        first = [wrapper.address, out.ctypes.data, out.size, FREE + len(numbers)]
        return np.array([*first, *numbers], dtype=np.int64), data

    def _given(self, name: str) -> list[np.ndarray]:
        return [a for kind in _READS[name] for a in self._arrays.get(kind, ())]

    def certify(self, held: tuple[np.ndarray, ...], first: Mapping[str, np.ndarray]) -> None:
        """Compare what is called by address with the functions themselves, once.

        ``first`` are their first arguments. Draws are left out.
        """
        bounds = tuple(self._arrays.get("bounds", ()))
        for name, (*_, address) in self.addresses(held, bounds).items():
            if name in _DRAWS:
                continue
            value, out = by_address.call(first[name], address)
            self.raise_error(np.random.default_rng(0))
            expected = self._program.functions[name](first[name], *self._given(name))
            parts = [np.ravel(part) for part in expected]
            found = [out] if name in _VECTORS else [np.atleast_1d(value), out]
            if not np.allclose(
                np.concatenate(parts), np.concatenate(found), rtol=1e-9, equal_nan=True
            ):
                raise CertificateError(
                    f"What is called by address must agree with the model; {name!r} does not."
                )

    def raise_error(self, rng: np.random.Generator) -> None:
        """Raise the error that a function has raised inside a move, if one has."""
        if not self._failure[0]:
            return
        name = self._names[self._failure[0] - 1]
        self._failure[0] = 0
        draws = [rng] if name in _DRAWS else []
        self._program.functions[name](*draws, self._failed[name], *self._given(name))
        raise RuntimeError(
            f"Compiled code must not fail; {name!r} of a model did, at {self._failed[name]}."
        )


def _in_rows(array: np.ndarray) -> np.ndarray:
    """Return an array as it is if it lies row by row: machine code does not look at strides."""
    return array if array.flags.c_contiguous else np.array(array, order="C")


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
    lines.append(f"arguments0 = ({rng}q,)")
    groups = list(batched([f"given{k}" for k in range(len(given))], LONGEST_TUPLE))
    for k, group in enumerate(groups):
        lines.append(f"arguments{k + 1} = arguments{k} + ({', '.join(group)},)")
    body = [f"result = f(*arguments{len(groups)})", *_writing(program, name, len(found))]
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
    key = CACHED_SRC_FUNCTIONS.get(jitted.py_func)
    return _made(source, key, _DRAWING if name in _DRAWS else _PLAIN, f=jitted, put=put)


def _keeping(records: Sequence[np.ndarray]) -> Any:
    """Return a C function of the same form that writes the numbers of q into arrays of records."""
    lines, at = ["first = 0"], FREE
    for k, array in enumerate(records):
        lines.append(_reading(f"record{k}", at, array.ndim, array.dtype))
        lines.append(f"first = take(record{k}.ravel(), first, q)")
        at += 1 + array.ndim
    body = [f"    {line}" for line in [*lines, "return 0.0"]]
    source = "\n".join(["def wrapped(q, out, context):", *body, ""])
    return _made(source, "", _PLAIN, take=take)


def _made(source: str, key: str | None, form: Any, **scope: Any) -> Any:
    """Compile code for ``wrapped``; it is kept on disk if there is a key of what else it calls."""
    scope |= {"carray": carray, "np": np, "pointer": pointer, "__name__": __name__}
    made: dict[str, Any] = {}
    exec(compile(source, "<wrapped>", "exec"), scope, made)
    if key is not None:
        edition = repr((__name__, source, key, fingerprint(put), fingerprint(take)))
        CACHED_SRC_FUNCTIONS[made["wrapped"]] = sha256(edition.encode()).hexdigest()
    return cfunc(form, cache=key is not None, error_model="numpy")(made["wrapped"])


def _reading(name: str, at: int, dimensions: int, kind: np.dtype) -> str:
    """Return code that reads an array by its address and shape."""
    shape = "".join(f"context[{at + 1 + k}], " for k in range(dimensions))
    number = f"np.{'bool_' if kind == np.bool_ else kind.name}"
    return f"{name} = carray(pointer(context[{at}]), ({shape}), {number})"


def _writing(program: ParameterProgram, name: str, found: int) -> list[str]:
    """Return code that fills ``out`` and the value from what a function returns."""
    if name in _FILL_BASE:
        return ["value = 0.0", *(f"put(found{k}.ravel(), 0, result[{k}])" for k in range(found))]
    lines, records = ["value = 0.0"], len(program.records)
    written = {"statistics": range(1), "released": range(1), "forward": range(records)}.get(name)
    if written is None:
        lines = ["value = result[0].item()"]
        written = range(1, 2) if name in {"law", *program.gradients} else range(0)
        written = range(1, records + 1) if name == "refresh" else written
    lines.append("first = 0")
    return lines + [f"first = put(out, first, result[{k}])" for k in written]
