"""Calling compiled code without paying for the types of its arguments every time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np


class GeneratorCall:
    """A compiled function of a generator and arrays, entered directly after its first call.

    Numba looks up the types of all arguments anew whenever one of them is a generator,
    which at a thousand records takes twice as long as the draws themselves. The types of
    a model's values never change, so the machine code found by the first call is kept.
    """

    def __init__(self, function: Any):
        self._function = function
        self._entry: Any = None

    def __getstate__(self) -> dict:
        # Machine code belongs to one process.
        return {"_function": self._function, "_entry": None}

    def __call__(self, rng: np.random.Generator, *values: np.ndarray) -> Sequence[np.ndarray]:
        """Evaluate the function; the generator moves on."""
        # The machine code does not look at strides: what it was compiled for must hold.
        values = tuple(np.asarray(value, order="C") for value in values)
        if self._entry is not None:
            # Data and the lengths of dimensions are inputs too, behind those that are given.
            shared = self._function.input_storage[1 + len(values) :]
            data = (np.asarray(container.storage[0], order="C") for container in shared)
            return self._entry((rng, *values, *data))
        outputs = self._function(rng, *values)
        self._entry = _single_entry(self._function)
        return outputs


def _single_entry(function: Any) -> Any:
    """Return the entry point when the function was compiled by Numba for one set of types."""
    overloads = getattr(getattr(function.vm, "jit_fn", None), "overloads", {})
    return next(iter(overloads.values())).entry_point if len(overloads) == 1 else None


class DirectCall:
    """A jitted function that is entered directly after its first call; types must not change."""

    def __init__(self, function: Any):
        self._function = function
        self._entry: Any = None

    def __call__(self, *arguments: Any) -> Any:
        """Evaluate the function."""
        arguments = tuple(_contiguous(argument) for argument in arguments)
        if self._entry is not None:
            return self._entry(*arguments)
        result = self._function(*arguments)
        overloads = self._function.overloads
        self._entry = next(iter(overloads.values())).entry_point if len(overloads) == 1 else None
        return result


def _contiguous(argument: Any) -> Any:
    if isinstance(argument, np.ndarray):
        return np.asarray(argument, order="C")
    return tuple(map(_contiguous, argument)) if isinstance(argument, tuple) else argument
