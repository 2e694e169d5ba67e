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
        values = _contiguous(values)
        if self._entry is not None:
            data = _contiguous(shared_values(self._function, 1 + len(values)))
            return self._entry((rng, *values, *data))
        outputs = self._function(rng, *values)
        self._entry = _single_entry(getattr(self._function.vm, "jit_fn", None))
        return outputs


def shared_values(function: Any, given: int) -> tuple[np.ndarray, ...]:
    """Return what a compiled graph reads besides the arguments it is given.

    Data and the lengths of dimensions are inputs too, behind those that are given.
    """
    return tuple(container.storage[0] for container in function.input_storage[given:])


def _single_entry(jitted: Any) -> Any:
    """Return the entry point when Numba has compiled the function for one set of types."""
    overloads = getattr(jitted, "overloads", {})
    return next(iter(overloads.values())).entry_point if len(overloads) == 1 else None


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
    if isinstance(argument, tuple):
        return tuple(map(_contiguous, argument))
    return np.asarray(argument, order="C") if isinstance(argument, np.ndarray) else argument
