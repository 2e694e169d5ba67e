"""Contributions as columns: one vector over the records for each coordinate of the release."""

from __future__ import annotations

from collections.abc import Sequence

import pytensor.tensor as pt

from pymc_privacy._compat import DimShuffle, Join, TensorVariable
from pymc_privacy.errors import RecordError


def columns(contributions: TensorVariable) -> list[TensorVariable]:
    """Split contributions into vectors, one per coordinate, without building the matrix.

    A stack of columns is taken apart again, so that each can be computed, or summed, on
    its own: several times faster than filling an (n, d) array first.
    """
    if contributions.ndim == 1:
        return [contributions]
    node = contributions.owner
    if node is not None and isinstance(node.op, Join) and node.op.axis == 1:
        return [column for part in node.inputs for column in columns(part)]
    if node is not None and isinstance(node.op, DimShuffle) and node.op.new_order == (0, "x"):
        return [node.inputs[0]]
    width = contributions.type.shape[1]
    if width is None:
        raise RecordError(
            "The number of columns of the contributions must be known when the model is "
            "written, because the release has one coordinate for each; got contributions of "
            f"shape {contributions.type.shape}. Use pt.specify_shape if you know it."
        )
    return [contributions[:, j] for j in range(width)]


def float_columns(contributions: Sequence[TensorVariable]) -> list[TensorVariable]:
    """Return the columns of several contributions side by side, as real numbers."""
    return [column.astype("float64") for part in contributions for column in columns(part)]


def group_sums(contributions: TensorVariable, group: TensorVariable, groups: int) -> TensorVariable:
    """Return the totals over the records of each group, shape (groups,) or (groups, d)."""
    # Column by column, as for a total.
    sums = [
        pt.zeros(groups, dtype=column.dtype)[group].inc(column)
        for column in (
            c if c.dtype != "bool" else c.astype("int64") for c in columns(contributions)
        )
    ]
    return sums[0] if contributions.ndim == 1 else pt.stack(sums, axis=1)


def column_sums(contributions: TensorVariable) -> TensorVariable:
    """Return the total over records, shape () or (d,)."""
    if contributions.ndim == 1:
        return contributions.sum()
    return pt.stack([column.sum() for column in columns(contributions)])
