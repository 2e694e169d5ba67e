"""The values that records of finite support can take together, and what is known of each."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import singledispatch
from typing import Any

import numpy as np
import pytensor.tensor as pt

from pymc_privacy._compat import (
    CategoricalRV,
    Model,
    TensorVariable,
    TruncatedRV,
    _logprob,
)
from pymc_privacy.model.other_lengths import with_rows
from pymc_privacy.model.support import finite_support

LEAST_RECORDS = 500


class NotCounted(Exception):
    """Records are better, or only, known one by one; the message says why."""


def _support(rv: TensorVariable) -> tuple[int, int] | None:
    """Return both ends of a law whose probabilities can be written for any values."""
    return None if isinstance(rv.owner.op, TruncatedRV) else finite_support(rv)


def may_be_counted(rv: TensorVariable) -> bool:
    """Tell whether records have finite support, and are perhaps enough for counts to pay.

    Whether counts do for the whole model is seen when it is finished.
    """
    size = rv.type.shape[0]
    return _support(rv) is not None and (size is None or size >= LEAST_RECORDS)


@dataclass(frozen=True)
class Cells:
    """All joint values of some record variables, in the order of their digits."""

    records: tuple[TensorVariable, ...]
    lows: tuple[int, ...]
    """The least value of each record variable."""
    widths: tuple[int, ...]
    """The number of values of each of its coordinates."""
    shapes: tuple[tuple[int, ...], ...]
    """The shape of one record of each."""

    @property
    def _radices(self) -> list[int]:
        return [w for w, s in zip(self.widths, self.shapes, strict=True) for _ in range(_size(s))]

    @property
    def size(self) -> int:
        """Return the number of cells."""
        return math.prod(self._radices)

    def values(self) -> list[np.ndarray]:
        """Return the value of each record variable in each cell, cells on axis 0."""
        digits = np.indices(self._radices).reshape(len(self._radices), -1).T
        found, first = [], 0
        for rv, low, shape in zip(self.records, self.lows, self.shapes, strict=True):
            last = first + _size(shape)
            ours = digits[:, first:last].reshape(-1, *shape) + low
            found.append(np.ascontiguousarray(ours, dtype=rv.dtype))
            first = last
        return found

    def cells_of(self, values: Sequence[np.ndarray]) -> np.ndarray:
        """Return the cell of each record."""
        cells = np.zeros(len(values[0]), dtype=np.int64)
        for value, low, width in zip(values, self.lows, self.widths, strict=True):
            for column in value.reshape(len(value), math.prod(value.shape[1:])).T:
                cells *= width
                cells += column.astype(np.int64) - low
        return cells


def _size(shape: tuple[int, ...]) -> int:
    return math.prod(shape)


def find_cells(records: Sequence[TensorVariable]) -> Cells:
    """Return all joint values of the records, or raise `NotCounted`."""
    supports = [_support(rv) for rv in records]
    shapes = [rv.type.shape[1:] for rv in records]
    for rv, support, shape in zip(records, supports, shapes, strict=True):
        if support is None:
            raise NotCounted(f"the values that {rv.name!r} can take are not known or not finite")
        if None in shape or rv.owner.op.ndim_supp:
            raise NotCounted(f"a record of {rv.name!r} has no known number of coordinates")
    bounds = [support for support in supports if support is not None]
    return Cells(
        records=tuple(records),
        lows=tuple(low for low, _ in bounds),
        widths=tuple(high - low + 1 for low, high in bounds),
        shapes=tuple(shapes),
    )


def log_probabilities(model: Model, cells: Cells) -> TensorVariable:
    """Return the log probability of each cell as a function of the parameters' values."""
    constants = [pt.constant(value) for value in cells.values()]
    by_value = {
        model.rvs_to_values[rv]: constant
        for rv, constant in zip(cells.records, constants, strict=True)
    }
    total: Any = pt.zeros(cells.size)
    for rv, constant in zip(cells.records, constants, strict=True):
        op = rv.owner.op
        parameters = on_cells(model, op.dist_params(rv.owner), by_value)
        try:
            density = _log_probability(op, constant, *parameters)
        except ValueError as error:
            raise NotCounted(f"the law of {rv.name!r} is written for each record") from error
        total += density.reshape((cells.size, -1)).sum(axis=1)
    return total


def on_cells(
    model: Model, graphs: Sequence[TensorVariable], by_value: dict
) -> list[TensorVariable]:
    """Write graphs of records for one record per cell, or raise `NotCounted`."""
    graphs = model.replace_rvs_by_values(list(graphs))
    try:
        return with_rows(graphs, by_value)
    except (TypeError, ValueError, AssertionError) as error:
        raise NotCounted("the number of records is written into the model") from error


@singledispatch
def _log_probability(op: Any, value: TensorVariable, *parameters: TensorVariable) -> TensorVariable:
    return _logprob(op, (value,), None, None, *parameters)


@_log_probability.register(CategoricalRV)
def _category(op: Any, value: TensorVariable, p: TensorVariable) -> TensorVariable:
    """Look up log p at the value; axes of p stand behind the same axes of the value."""
    p = pt.as_tensor(p)
    places: list[Any] = []
    for axis, length in enumerate(p.type.shape[:-1], start=value.ndim - p.ndim + 1):
        if length == 1:
            places.append(0)
        elif length == value.type.shape[axis]:
            places.append(np.arange(length).reshape(-1, *(1,) * (value.ndim - axis - 1)))
        else:
            raise NotCounted("the categories of a record depend on its number")
    return pt.log(p)[(*places, value)]
