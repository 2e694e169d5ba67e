"""Functions of numbers that the pure half wrote for numba, as operations on tensors."""

from __future__ import annotations

import inspect
from hashlib import sha256
from typing import Any

import pytensor.tensor as pt

from pymc_privacy._compat import (
    Elemwise,
    ScalarOp,
    TensorVariable,
    get_scalar_type,
    register_funcify_and_cache_key,
)
from pymc_privacy.algorithms import counts, quantiles

# What is compiled from these sources is found again on disk for as long as they do not change.
_EDITION = inspect.getsource(counts) + inspect.getsource(quantiles)


class JittedScalar(ScalarOp):
    """Apply a jitted function of floats; one and the same code runs in every mode."""

    def __init__(self, function: Any, dtype: str):
        self.function = function
        self.dtype = dtype
        super().__init__(name=function.__name__)

    def output_types(self, types):
        """Return the type of the result, whatever those of the arguments are."""
        return [get_scalar_type(self.dtype)]

    def impl(self, *inputs):
        """Call the function outside of other jitted code."""
        return self.function(*(float(value) for value in inputs))

    def pullback(self, inputs, outputs, output_gradients):
        """Return zeros: a count does not change when what it is computed from does, a little."""
        if self.dtype != "int64":
            raise NotImplementedError(f"{self.name} has no gradient.")
        return [value.zeros_like(dtype="float64") for value in inputs]

    def __eq__(self, other):
        return type(self) is type(other) and self.name == other.name

    def __hash__(self):
        return hash((type(self), self.name))


@register_funcify_and_cache_key(JittedScalar)
def _jitted(op, node=None, **kwargs):
    return op.function, sha256(repr((op.name, _EDITION)).encode()).hexdigest()


def elementwise(function: Any, dtype: str):
    """Return a function of tensors from a jitted function of floats."""
    operation = Elemwise(JittedScalar(function, dtype))

    def apply(*arguments: TensorVariable) -> TensorVariable:
        return operation(*(pt.as_tensor(value).astype("float64") for value in arguments))

    return apply
