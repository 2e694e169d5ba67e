"""Totals of latent counts: the variables that hold them, and what of them is known exactly."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha256
from typing import Any, NamedTuple

import numpy as np
import pytensor.tensor as pt
from scipy import sparse

from pymc_privacy._compat import (
    INTERPRETED,
    Model,
    Reshape,
    TensorVariable,
    Variable,
    _logprob,
    _support_point,
)
from pymc_privacy.algorithms.numerics.integer_kernel import Bounded
from pymc_privacy.mechanisms.exact import Bound, Exact
from pymc_privacy.model.marks import Mark
from pymc_privacy.model.releases import PrivatizedRV
from pymc_privacy.model.support import possible

# Up to so many entries a matrix is multiplied as it is.
_SMALL = 10_000


class LatticeCounts(Mark):
    """The operation draws latent counts, of which totals are known, some of them exactly."""

    table: tuple[int, ...] | None = None
    """Counts that have the exact totals and are within the bounds, to start from."""


class Matrix:
    """A matrix of integers that can be compared and hashed, as properties of operations are."""

    def __init__(self, values: sparse.csr_array):
        self.values = values
        parts = (values.indptr.astype(np.int64), values.indices.astype(np.int64), values.data)
        self._digest = sha256(b"".join(part.tobytes() for part in parts)).hexdigest()

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Matrix):
            return False
        return (self.values.shape, self._digest) == (other.values.shape, other._digest)

    def __hash__(self) -> int:
        return hash((self.values.shape, self._digest))

    def __repr__(self) -> str:
        rows, columns = self.values.shape
        return f"Matrix({rows} x {columns}, {self._digest[:16]})"

    def times(self, counts: TensorVariable) -> TensorVariable:
        """Return the matrix times the counts, at a cost in proportion to its entries."""
        rows, columns = self.values.shape
        if rows * columns <= _SMALL:
            return pt.as_tensor(self.values.toarray()) @ counts
        entries = self.values.tocoo()
        if rows == columns == entries.nnz and np.array_equal(entries.coords[0], entries.coords[1]):
            return entries.data * counts if np.any(entries.data != 1) else counts
        where, which = (place.astype(np.int64) for place in entries.coords)
        return pt.inc_subtensor(pt.zeros(rows, dtype="int64")[where], entries.data * counts[which])


class LinearMeasurementsRV(PrivatizedRV):
    """Noisy totals, drawn by the mechanism from a matrix times the counts."""

    name = "linear_measurements"
    _print_name = ("LinearMeasurements", "\\operatorname{LinearMeasurements}")
    __props__ = (*PrivatizedRV.__props__, "matrix", "shape")

    def __init__(self, *, matrix: Matrix, shape: tuple[int, ...], **props: Any):
        self.matrix, self.shape = matrix, shape
        super().__init__(**props)

    def rng_fn(
        self, rng: np.random.Generator, *parameters: np.ndarray, size: Any = None
    ) -> np.ndarray:
        """Draw a release; seedable, and so for simulation only."""
        totals = self.matrix.values @ parameters[0]
        drawn = np.asarray(self.mechanism.simulate(rng, totals)).astype(self.dtype)
        return drawn.reshape(self.shape)

    def statistic(self, contributions: TensorVariable, *group: TensorVariable) -> TensorVariable:
        """Return the totals, one after the other."""
        return self.matrix.times(contributions)


@_logprob.register(LinearMeasurementsRV)
def _linear_measurements_logprob(
    op: LinearMeasurementsRV,
    values: Sequence[TensorVariable],
    rng: Variable,
    size: Variable,
    counts: TensorVariable,
    **kwargs: Any,
) -> TensorVariable:
    [release] = values
    log_density = op.mechanism.log_density(release.ravel(), op.statistic(counts))
    return log_density if len(op.shape) == 1 else log_density.reshape(op.shape)


@_support_point.register(LinearMeasurementsRV)
def _linear_measurements_support_point(
    op: LinearMeasurementsRV,
    rv: TensorVariable,
    rng: Variable,
    size: Variable,
    counts: TensorVariable,
) -> TensorVariable:
    return op.statistic(counts).reshape(op.shape).astype(rv.dtype)


@_support_point.register(LatticeCounts)
def _lattice_counts_support_point(
    op: LatticeCounts, rv: TensorVariable, *inputs: Variable
) -> TensorVariable:
    if op.table is None:
        # A draw given where the parameters start, which has a density there.
        return rv
    return pt.as_tensor(np.array(op.table)).astype(rv.dtype).reshape(rv.shape)


class KnownTotals(NamedTuple):
    """What is known of some counts without noise."""

    exact: sparse.csr_array
    """The matrix of the exact totals."""
    totals: np.ndarray
    bounded: Bounded
    """Totals with bounds."""


def flat(counts: TensorVariable) -> TensorVariable:
    """Return counts as one vector."""
    return counts if counts.ndim == 1 else counts.ravel()


def shape_of(model: Model, counts: TensorVariable) -> tuple[int, ...]:
    """Return the lengths of a table of counts, of dims too."""
    if None not in counts.type.shape:
        return counts.type.shape
    return tuple(int(n) for n in counts.shape.eval(mode=INTERPRETED))


def measurements_of(model: Model, counts: TensorVariable) -> list[TensorVariable]:
    """Return all measurements of some counts, exact ones and bounds included."""
    return [
        rv
        for rv in model.observed_RVs
        if isinstance(rv.owner.op, LinearMeasurementsRV) and _measured(rv) is counts
    ]


def _measured(measurement: TensorVariable) -> TensorVariable:
    """Return the table of counts behind a measurement, which sees it as a vector."""
    [counts] = measurement.owner.op.dist_params(measurement.owner)
    return counts.owner.inputs[0] if isinstance(counts.owner.op, Reshape) else counts


def is_exact(measurement: TensorVariable) -> bool:
    """Tell whether totals are known exactly."""
    return isinstance(measurement.owner.op.mechanism, Exact)


def is_bound(measurement: TensorVariable) -> bool:
    """Tell whether totals are known to be at least or at most something."""
    return isinstance(measurement.owner.op.mechanism, Bound)


def known_totals(model: Model, counts: TensorVariable) -> KnownTotals:
    """Return the exact totals of some counts and those with bounds.

    A bound that leaves cells one value only is an exact total of each of them.
    """
    shape = shape_of(model, counts)
    cells, measurements = int(np.prod(shape)), measurements_of(model, counts)
    exact = [(rv, _values(model, rv)) for rv in measurements if is_exact(rv)]
    bounds = [(rv, _values(model, rv)) for rv in measurements if is_bound(rv)]
    least, most = [np.empty(0)], [np.empty(0)]
    for rv, values in bounds:
        from_below = rv.owner.op.mechanism.side == "at_least"
        least.append(values if from_below else np.full(values.size, -np.inf))
        most.append(np.full(values.size, np.inf) if from_below else values)
    matrix = under_each_other(cells, [rv.owner.op.matrix.values for rv, _ in bounds])
    bounded = Bounded(matrix, np.concatenate(least), np.concatenate(most))
    ends = [np.broadcast_to(end, shape).ravel() for end in possible(counts)]
    pinned, value = _pinned(bounded, *ends)
    return KnownTotals(
        under_each_other(
            cells,
            [*(rv.owner.op.matrix.values for rv, _ in exact), _single_cells(pinned, cells)],
        ),
        np.concatenate([np.empty(0, dtype=np.int64), *(v for _, v in exact), value]),
        bounded,
    )


def _values(model: Model, measurement: TensorVariable) -> np.ndarray:
    return model.rvs_to_values[measurement].eval(mode=INTERPRETED).ravel()


def _single_cells(cells: np.ndarray, size: int) -> sparse.csr_array:
    places = (np.arange(cells.size), cells)
    return sparse.csr_array((np.ones(cells.size, dtype=np.int64), places), (cells.size, size))


def _pinned(
    bounded: Bounded, smallest: np.ndarray, largest: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return the cells of which bounds leave one value, and those values.

    A total of cells that are at least a each, and together at most the sum of these, has all its
    cells at a: structural zeros, of a cell or of several.
    """
    matrix, least, most = bounded
    counted = (matrix > 0).sum(axis=1) == np.diff(matrix.indptr)
    pins: dict[int, int] = {}
    for ends, bound in ((smallest, most), (largest, least)):
        for row in np.flatnonzero(counted & np.isfinite(bound) & (matrix @ ends == bound)):
            cells = matrix.indices[matrix.indptr[row] : matrix.indptr[row + 1]]
            pins |= {int(cell): int(ends[cell]) for cell in cells}
    return np.array(list(pins), dtype=np.int64), np.array(list(pins.values()), dtype=np.int64)


def under_each_other(cells: int, matrices: Sequence[sparse.csr_array]) -> sparse.csr_array:
    """Return the rows of several matrices, perhaps of none."""
    none = sparse.csr_array((0, cells), dtype=np.int64)
    return sparse.csr_array(sparse.vstack([none, *matrices], format="csr"))
