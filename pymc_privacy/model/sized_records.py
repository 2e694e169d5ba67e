"""Rows of which only the first n exist: the operation behind `Records`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytensor.tensor as pt

from pymc_privacy._compat import (
    Model,
    OpFromGraph,
    SymbolicRandomVariable,
    TensorVariable,
    _default_transform,
    _logprob,
    _logprob_helper,
)


class RecordsRV(SymbolicRandomVariable):
    """Rows of a law, of which only the first ``size`` exist.

    A draw fills all rows, so that whatever is computed from them can be; the log density
    counts the rows that exist.
    """

    inline_logprob = False
    _print_name = ("Records", "\\operatorname{Records}")

    @classmethod
    def rv_op(cls, dist: TensorVariable, size: TensorVariable) -> TensorVariable:
        """Wrap a law with one row per possible record."""
        rows, number = dist.type(), size.type()
        op = cls(inputs=[rows, number], outputs=[rows.copy()], ndim_supp=dist.owner.op.ndim_supp)
        return op(dist, size)


class OpenRecordsRV(RecordsRV):
    """The same where nobody has said how many there are at most.

    The arrays of the model hold a number that draws from the prior hardly exceed. A step that
    keeps records by itself is not bound by it.
    """


@_logprob.register(RecordsRV)
def _records_logprob(
    op: RecordsRV,
    values: Sequence[TensorVariable],
    dist: TensorVariable,
    size: TensorVariable,
    **kwargs: Any,
) -> TensorVariable:
    [value] = values
    density = _logprob_helper(dist, value)
    return pt.where(_exist(density, size), density, 0.0)


@_default_transform.register(RecordsRV)
def _records_are_not_transformed(op: RecordsRV, rv: TensorVariable) -> None:
    # A transform would count its Jacobian in rows that do not exist.
    return None


class ExistingRows(OpFromGraph):
    """Contributions of the records that exist, and zeros below them."""

    def pullback(self, inputs: Any, outputs: Any, cotangents: Any) -> list[TensorVariable]:
        """Return no slope where contributions are whole numbers, which do not move smoothly."""
        rows, number = inputs
        if np.dtype(rows.dtype).kind == "f":
            return super().pullback(inputs, outputs, cotangents)
        return [pt.zeros_like(rows, dtype="floatX"), pt.zeros_like(number, dtype="floatX")]


def existing_rows(contributions: TensorVariable, size: TensorVariable) -> TensorVariable:
    """Set to zero what rows contribute that do not exist."""
    rows, number = contributions.type(), size.type()
    masked = pt.where(_exist(rows, number), rows, np.zeros((), dtype=rows.dtype))
    return ExistingRows([rows, number], [masked], inline=True)(contributions, size)


def _exist(rows: TensorVariable, size: TensorVariable) -> TensorVariable:
    """Return which rows exist, in a shape that broadcasts against them."""
    return (pt.arange(rows.shape[0]) < size).reshape((-1, *(1,) * (rows.ndim - 1)))


def is_sized(variable: TensorVariable) -> bool:
    """Tell whether a variable was made by `Records`."""
    return variable.owner is not None and isinstance(variable.owner.op, RecordsRV)


def is_open(variable: TensorVariable) -> bool:
    """Tell whether records have no capacity, but arrays of some length."""
    return is_sized(variable) and isinstance(variable.owner.op, OpenRecordsRV)


def law_of(records: TensorVariable) -> TensorVariable:
    """Return the law of all rows, existing or not."""
    return records.owner.inputs[0]


def size_of(records: TensorVariable) -> TensorVariable:
    """Return the random variable that says how many rows exist."""
    return records.owner.inputs[1]


def sizes_of(model: Model) -> dict[TensorVariable, int]:
    """Return the random sizes of a model's records, and the capacity of each."""
    return {size_of(rv): rv.type.shape[0] for rv in model.free_RVs if is_sized(rv)}
