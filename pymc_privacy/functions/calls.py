"""Calling compiled code without paying for the types of its arguments every time."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any

import numpy as np


class CompiledCall:
    """A compiled function of arrays and perhaps a generator, entered directly after one call.

    Numba looks up the types of all arguments anew whenever one of them is a generator,
    which at a thousand records takes twice as long as the draws themselves. The types of
    a model's values never change, so the machine code found by the first call is kept.
    """

    def __init__(self, function: Any):
        self._function = function
        self._entry: Any = None
        self._packed = False

    def __getstate__(self) -> dict:
        # Machine code belongs to one process.
        return {"_function": self._function, "_entry": None, "_packed": False}

    def __call__(self, *values: Any) -> Sequence[np.ndarray]:
        """Evaluate the function; a generator moves on."""
        if self._entry is not None:
            arguments = _contiguous((*values, *shared_values(self._function, len(values))))
            return self._entry(arguments) if self._packed else self._entry(*arguments)
        outputs = self._function(*_contiguous(values))
        jitted = getattr(self._function.vm, "jit_fn", None)
        self._entry, self._packed = _single_entry(jitted), _is_packed(jitted)
        return outputs


def shared_values(function: Any, given: int) -> tuple[np.ndarray, ...]:
    """Return what a compiled graph reads besides the arguments it is given.

    Data, the lengths of dimensions and numbers are inputs too, behind those that are given.
    """
    inputs = getattr(function.vm, "inputs", None)
    if inputs is None:
        # What is interpreted has its numbers in its graph.
        inputs = [container.storage for container in function.input_storage]
    return tuple([storage[0] for storage in inputs[given:]])


def _single_entry(jitted: Any) -> Any:
    """Return the entry point when Numba has compiled the function for one set of types."""
    overloads = getattr(jitted, "overloads", {})
    return next(iter(overloads.values())).entry_point if len(overloads) == 1 else None


def _is_packed(jitted: Any) -> bool:
    """Tell whether machine code takes its arguments as one tuple, as that of ``f(*args)`` does.

    What PyTensor keeps on disk is of this kind; what calls back into Python is not.
    """
    python = getattr(jitted, "py_func", None)
    return python is not None and bool(python.__code__.co_flags & inspect.CO_VARARGS)


class DirectCall:
    """A jitted function that is entered directly after its first call; types must not change."""

    def __init__(self, function: Any):
        self._function = function
        self._entry: Any = None

    def __call__(self, *arguments: Any) -> Any:
        """Evaluate the function."""
        arguments = _contiguous(arguments)
        if self._entry is not None:
            return self._entry(*arguments)
        result = self._function(*arguments)
        self._entry = _single_entry(self._function)
        return result


def _contiguous(argument: Any) -> Any:
    """Lay arrays out as machine code expects them, which does not look at strides."""
    if type(argument) is np.ndarray:
        return argument if argument.flags.c_contiguous else np.ascontiguousarray(argument)
    if not isinstance(argument, tuple) or all(map(_is_laid_out, argument)):
        return argument
    parts = [_contiguous(part) for part in argument]
    return argument._make(parts) if hasattr(argument, "_make") else tuple(parts)


def _is_laid_out(argument: Any) -> bool:
    if type(argument) is np.ndarray:
        return argument.flags.c_contiguous
    return not isinstance(argument, tuple) or all(map(_is_laid_out, argument))
