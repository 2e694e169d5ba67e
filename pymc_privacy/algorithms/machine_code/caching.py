"""Compile for good: machine code is found again on disk for as long as it would be the same.

The compiler's own disk cache looks at the date of the file that a function is written in. What the
function calls may be written elsewhere, and is compiled into it all the same: an edited callee
would go on running in its old form. Here code is found by a `fingerprint` of all it is made of.
"""

from __future__ import annotations

import builtins
import dis
import sys
from collections.abc import Callable, Iterable, Iterator
from hashlib import sha256
from types import BuiltinFunctionType, CodeType, FunctionType, ModuleType
from typing import Any, cast

import numpy as np
from numba import njit
from numba.core import types
from numba.core.caching import CompileResultCacheImpl, FunctionCache, IndexDataCacheFile
from numba.core.extending import _Intrinsic
from numba.core.registry import cpu_target
from numba.extending import is_jitted

_NAMED_ONLY = {"numba", "numpy", "scipy", "llvmlite", *sys.stdlib_module_names} - {"__main__"}
"""Packages whose functions are told apart by their names."""

Known = Callable[[Any], str | None]


class OpaqueError(TypeError):
    """Something that code refers to cannot be told from others of its kind."""


def fingerprint(function: Any, known: Known = lambda function: None) -> str:
    """Return what changes if and only if a function's code does, or any code that it calls.

    Code is instructions, constants and names: neither comments nor docstrings nor line numbers. The
    module is part of it, because code on disk names the modules that it needs.
    It is followed through globals and closures, and so are the values found there. The same code
    has the same fingerprint in every process of one version of Python.

    Parameters
    ----------
    function
        A function, jitted or not.
    known
        Returns the key of a function whose code need not be looked at, else None.

    Raises
    ------
    OpaqueError
        Where code refers to an object that is neither code nor a plain value.
    """
    digest = sha256()
    for part in _Walk(known).of(function):
        digest.update(part.encode())
        digest.update(b"\0")
    return digest.hexdigest()


class _Walk:
    """One visit to all that a function is made of; what was seen before is named by its number."""

    def __init__(self, known: Known):
        self._known = known
        self._seen: dict[int, int] = {}
        self._kept: list[Any] = []

    def of(self, value: Any) -> Iterator[str]:
        """Describe a value."""
        if is_jitted(value):
            key = self._known(value)
            options = sorted(value.targetoptions.items())
            yield f"jitted {options!r} {key}"
            if key is None:
                yield from self.of(value.py_func)
        elif isinstance(value, FunctionType):
            yield from self._function(value)
        elif isinstance(value, _Intrinsic):
            yield "intrinsic"
            yield from self._function(value._defn)
        elif isinstance(value, CodeType):
            yield from self._code(value)
        elif isinstance(value, ModuleType):
            yield f"module {value.__name__}"
        elif isinstance(value, np.ndarray | np.generic):
            array = np.ascontiguousarray(value)
            if array.dtype.hasobject:
                raise OpaqueError(f"An array of objects cannot be told from others: {value!r}.")
            yield f"{type(value).__name__} {array.dtype} {np.shape(value)}"
            yield sha256(array.tobytes()).hexdigest()
        elif isinstance(value, type):
            yield f"type {value.__module__}.{value.__qualname__} {getattr(value, '_fields', None)}"
        elif isinstance(value, tuple | list):
            yield f"{type(value).__qualname__} {len(value)}"
            yield from self._each(value)
        elif isinstance(value, set | frozenset):
            # The order of a set is another one in every process.
            yield f"set {sorted(' '.join(self.of(part)) for part in value)}"
        elif isinstance(value, dict):
            yield f"dict {len(value)}"
            yield from self._each(part for item in value.items() for part in item)
        else:
            yield self._plain(value)

    def _each(self, values: Iterable[Any]) -> Iterator[str]:
        for value in values:
            yield from self.of(value)

    @staticmethod
    def _plain(value: Any) -> str:
        if value is None or value is ... or isinstance(value, int | float | complex | str | bytes):
            return f"{type(value).__name__} {value!r}"
        if isinstance(value, BuiltinFunctionType | np.ufunc):
            return f"function {getattr(value, '__module__', None)}.{value.__name__}"
        if isinstance(value, types.Type | np.dtype):
            return f"type {value}"
        if _package(value) in _NAMED_ONLY and hasattr(value, "__qualname__"):
            return f"{value.__module__}.{value.__qualname__}"
        raise OpaqueError(f"Code that refers to {value!r} cannot be told from other code.")

    def _function(self, function: FunctionType) -> Iterator[str]:
        key = self._known(function)
        if key is not None or _package(function) in _NAMED_ONLY:
            yield f"function {key} {function.__module__}.{function.__qualname__}"
            return
        if id(function) in self._seen:
            yield f"function {self._seen[id(function)]}"
            return
        self._seen[id(function)] = len(self._seen)
        self._kept.append(function)
        stand_ins = [other for other in _overloads_of(function) if other is not function]
        if stand_ins:
            yield from self._each(stand_ins)
            return
        yield f"in {function.__module__}"
        yield from _tuples_of(function)
        yield from self._code(function.__code__)
        yield from self.of(function.__defaults__)
        yield from self._each(cell.cell_contents for cell in function.__closure__ or ())
        yield from self._each(_globals_of(function))

    def _code(self, code: CodeType) -> Iterator[str]:
        yield f"code {code.co_argcount} {code.co_kwonlyargcount} {code.co_flags}"
        for step in dis.get_instructions(code):
            if step.opcode in dis.hasconst:
                yield step.opname
                yield from self.of(step.argval)
            else:
                yield f"{step.opname} {step.argval!r}"
        yield repr(code.co_exceptiontable)


def _package(value: Any) -> str:
    return (getattr(value, "__module__", None) or "").partition(".")[0]


def _globals_of(function: FunctionType) -> Iterator[Any]:
    """Return what the global names of a function stand for, and what it reads of our modules."""
    scope = function.__globals__
    for name, attributes in _names_of(function.__code__).items():
        value = scope.get(name, getattr(builtins, name, None))
        yield value
        if isinstance(value, ModuleType) and value.__name__.partition(".")[0] not in _NAMED_ONLY:
            for attribute in attributes:
                yield getattr(value, attribute, None)


def _tuples_of(function: FunctionType) -> list[str]:
    """Describe the named tuples that a function's module knows: its arguments may be such.

    Code on disk names the classes of its arguments, and one that is gone could not be loaded.
    """
    known = [v for v in function.__globals__.values() if isinstance(v, type) and v is not tuple]
    named = [v for v in known if issubclass(v, tuple) and hasattr(v, "_fields")]
    return sorted({f"tuple {v.__module__}.{v.__qualname__} {v._fields}" for v in named})


def _names_of(code: CodeType) -> dict[str, list[str]]:
    """Return global names, those of functions inside too, each with all names of attributes."""
    steps = list(dis.get_instructions(code))
    attributes = [step.argval for step in steps if step.opname in ("LOAD_ATTR", "LOAD_METHOD")]
    found = {s.argval: attributes for s in steps if s.opname in ("LOAD_GLOBAL", "LOAD_NAME")}
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            found |= _names_of(constant)
    return found


def _overloads_of(function: FunctionType) -> Iterator[Any]:
    """Return what jitted code runs in place of a function, if that is registered."""
    context = cpu_target.typing_context
    context.refresh()
    registered = context._lookup_global(function)
    for template in getattr(registered, "templates", ()):
        stand_in = getattr(template, "_overload_func", None)
        if stand_in is not None and _package(stand_in) in _NAMED_ONLY:
            # The compiler's own wrapper around the function, if jitted code runs that as it is.
            inside = [cell.cell_contents for cell in stand_in.__closure__ or ()]
            yield from (value for value in inside if isinstance(value, FunctionType))
        elif stand_in is not None:
            yield stand_in


def compiled(function: Any = None, **options: Any) -> Any:
    """Jit a function as `numba.njit` does; machine code is found again on disk by fingerprint.

    Dividing by zero gives what it gives for arrays, and no error. Code with an `OpaqueError` is
    compiled anew in every process.
    """
    if function is None:
        return lambda function: compiled(function, **options)
    jitted: Any = njit(**{"error_model": "numpy"} | options)(function)
    if hasattr(jitted, "py_func"):  # and is not switched off, for a debugger
        # Not before the first call: what is called may be written further down.
        cast(Any, jitted)._cache = _CacheByCode(jitted)
    return jitted


class _Index(IndexDataCacheFile):
    """An index of what is on disk; one that names what is gone from this package is empty."""

    def _load_index(self) -> dict:
        try:
            return super()._load_index()
        except (AttributeError, ImportError):
            return {}


class _CacheByCode(FunctionCache):
    """The compiler's disk cache with a fingerprint in place of line numbers and dates."""

    def __init__(self, jitted: Any):
        self._jitted = jitted
        self._py_func = jitted.py_func
        self._name = repr(self._py_func)
        self._is_open = False
        self.enable()

    def _open(self) -> None:
        if self._is_open:
            return
        self._is_open = True
        try:
            edition = fingerprint(self._jitted)
        except OpaqueError:
            self.disable()
            return
        self._impl = CompileResultCacheImpl(self._py_func)
        self._cache_path = self._impl.locator.get_cache_path()
        name = f"{self._py_func.__module__}.{self._py_func.__name__}-{edition[:32]}"
        version = "".join(map(str, sys.version_info[:2]))
        self._cache_file = _Index(self._cache_path, f"{name}.py{version}", edition)

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        self._open()
        return super().load_overload(sig, target_context)

    def save_overload(self, sig: Any, data: Any) -> None:
        self._open()
        super().save_overload(sig, data)

    def flush(self) -> None:
        self._open()
        super().flush()

    def _index_key(self, sig: Any, codegen: Any) -> tuple[Any, ...]:
        # The code and what it closes over are in the name of the file.
        return (sig, codegen.magic_tuple())
