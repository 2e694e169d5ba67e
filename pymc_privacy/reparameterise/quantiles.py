"""Functions of numbers that the pure half wrote for numba, as operations on tensors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytensor.tensor as pt

from pymc_privacy._compat import (
    Elemwise,
    ScalarOp,
    TensorVariable,
    get_scalar_type,
    register_funcify_and_cache_key,
)
from pymc_privacy.algorithms.machine_code.caching import fingerprint

Slopes = Callable[[Sequence[Any], Any], Sequence[Any]]
"""From the arguments and the result of a function to its derivatives by each argument."""


class JittedScalar(ScalarOp):
    """Apply a jitted function of floats; one and the same code runs in every mode."""

    def __init__(self, function: Any, dtype: str, slopes: Slopes | None = None):
        self.function = function
        self.dtype = dtype
        self.slopes = slopes
        super().__init__(name=function.__name__)

    def output_types(self, types: Sequence[Any]) -> list[Any]:
        """Return the type of the result, whatever those of the arguments are."""
        return [get_scalar_type(self.dtype)]

    def impl(self, *inputs: Any) -> Any:
        """Call the function outside of other jitted code."""
        return self.function(*(float(value) for value in inputs))

    def pullback(
        self, inputs: Sequence[Any], outputs: Sequence[Any], output_gradients: Sequence[Any]
    ) -> list[Any]:
        """Return slopes, or zeros: a count does not change when its arguments do, a little."""
        if self.slopes is not None:
            [gradient] = output_gradients
            return [gradient * slope for slope in self.slopes(inputs, outputs[0])]
        if self.dtype != "int64":
            raise NotImplementedError(f"{self.name} has no gradient.")
        return [value.zeros_like(dtype="float64") for value in inputs]

    def __eq__(self, other: Any) -> bool:
        return type(self) is type(other) and self.name == other.name

    def __hash__(self) -> int:
        return hash((type(self), self.name))


@register_funcify_and_cache_key(JittedScalar)
def _jitted(op: JittedScalar, node: Any = None, **kwargs: Any) -> tuple[Any, str]:
    return op.function, fingerprint(op.function)


def elementwise(
    function: Any, dtype: str, slopes: Slopes | None = None
) -> Callable[..., TensorVariable]:
    """Return a function of tensors from a jitted function of floats."""
    operation = Elemwise(JittedScalar(function, dtype, slopes))

    def apply(*arguments: TensorVariable) -> TensorVariable:
        return operation(*(pt.as_tensor(value).astype("float64") for value in arguments))

    return apply
