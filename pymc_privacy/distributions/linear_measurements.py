"""`LinearMeasurements`: noisy totals of latent counts, and totals that are known exactly."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha256
from typing import Any

import numpy as np
import pytensor.tensor as pt
from scipy import sparse

from pymc_privacy._compat import (
    INTERPRETED,
    Distribution,
    Model,
    TensorVariable,
    Variable,
    _logprob,
    _support_point,
    check_new_name,
    modelcontext,
)
from pymc_privacy.algorithms.numerics.integer_kernel import some_table
from pymc_privacy.arguments import integers, refusal, shown
from pymc_privacy.errors import ArgumentError, MechanismError, RecordError, ReleaseError
from pymc_privacy.mechanisms import Mechanism
from pymc_privacy.mechanisms.exact import Exact
from pymc_privacy.mechanisms.tails import LOG_CONCAVE
from pymc_privacy.model.marks import Mark, is_record, mark
from pymc_privacy.model.releases import PrivatizedRV, check_release
from pymc_privacy.model.support import support

# Up to so many entries a matrix is multiplied as it is.
_SMALL = 10_000


class LatticeCounts(Mark):
    """The operation draws latent counts, of which totals are known, some of them exactly."""

    table: tuple[int, ...] | None = None
    """Counts that have the exact totals, to start from."""


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
    __props__ = (*PrivatizedRV.__props__, "matrix")

    def __init__(self, *, matrix: Matrix, **props: Any):
        self.matrix = matrix
        super().__init__(**props)

    def rng_fn(
        self, rng: np.random.Generator, *parameters: np.ndarray, size: Any = None
    ) -> np.ndarray:
        """Draw a release; seedable, and so for simulation only."""
        totals = self.matrix.values @ parameters[0]
        return np.asarray(self.mechanism.simulate(rng, totals)).astype(self.dtype)

    def statistic(self, contributions: TensorVariable, *group: TensorVariable) -> TensorVariable:
        """Return the totals."""
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
    return op.mechanism.log_density(release, op.statistic(counts))


@_support_point.register(LinearMeasurementsRV)
def _linear_measurements_support_point(
    op: LinearMeasurementsRV,
    rv: TensorVariable,
    rng: Variable,
    size: Variable,
    counts: TensorVariable,
) -> TensorVariable:
    return op.statistic(counts).astype(rv.dtype)


@_support_point.register(LatticeCounts)
def _lattice_counts_support_point(
    op: LatticeCounts, rv: TensorVariable, *inputs: Variable
) -> TensorVariable:
    if op.table is None:
        # A draw given where the parameters start, which has a density there.
        return rv
    return pt.as_tensor(np.array(op.table)).astype(rv.dtype)


class LinearMeasurements(Distribution):
    r"""Noisy totals of latent counts are observed, and some totals exactly.

    With counts c, the release is :math:`y = A c + \text{noise}`, a row of A for each
    total. Totals may overlap: blocks, the tracts they add up to, the county. Totals that are
    known exactly (invariants) are kept by every draw. The counts stay in the model;
    `pm.sample` updates them with :class:`~pymc_privacy.LatticeWalk`.

    Where every count is released once, on its own, :class:`~pymc_privacy.NoisyCount` is
    faster.

    Parameters
    ----------
    name : str
    counts : TensorVariable
        A vector of counts of the model, independent given their parameters, such as
        ``pm.Poisson("c", mu, shape=n)``.
    matrix : array_like or sparse array
        Integers, of shape (totals, counts). For more than a few hundred counts give one of SciPy's
        sparse arrays, such as ``scipy.sparse.eye_array(n, dtype=int)``.
    mechanism : Laplace, DiscreteLaplace, Gaussian or DiscreteGaussian
        With one scale, or one for each total. What the census publishes is the variance:
        see :func:`~pymc_privacy.discrete_gaussian_scale`.
    observed : array_like
        The release, one number per row of the matrix.
    invariants : (array_like, array_like), optional
        A matrix and the exact totals that belong to its rows. They become an observed variable
        of their own, ``name + "_invariants"``. A table with a multinomial law is one of Poisson
        counts whose total is such an invariant.
    dims : str, optional

    Raises
    ------
    RecordError
        If the counts are not a vector of independent integers of the model, of known length.
    MechanismError
        If the noise is another, or there are neither one scale nor one for each total.
    ReleaseError
        If matrix, release or invariants do not fit the counts, or no counts have the exact totals.

    See Also
    --------
    NoisyCount : Counts that are each released on their own.
    LatticeWalk : The step that moves the counts.
    discrete_gaussian_scale : Sigma from a published variance.

    Examples
    --------
    Three blocks, their sum, and nothing exact:

    >>> import pymc as pm
    >>> import pymc_privacy as pmp
    >>> with pm.Model() as model:
    ...     rate = pm.Gamma("rate", 2.0, 0.1)
    ...     block = pm.Poisson("block", rate, shape=3)
    ...     y = pmp.LinearMeasurements(
    ...         "y",
    ...         block,
    ...         [[1, 0, 0], [0, 1, 0], [0, 0, 1], [1, 1, 1]],
    ...         pmp.DiscreteGaussian(scale=(5.0, 5.0, 5.0, 2.0)),
    ...         observed=[14, 31, -2, 40],
    ...     )
    >>> pmp.LatticeWalk(model=model).vars
    [block]
    """

    rv_type = LinearMeasurementsRV

    def __new__(
        cls,
        name: str,
        counts: TensorVariable,
        matrix: Any,
        mechanism: Mechanism,
        *,
        observed: Any,
        invariants: tuple[Any, Any] | None = None,
        dims: Any = None,
    ) -> TensorVariable:
        """Add the release to the model on the context stack, and mark its counts."""
        model = modelcontext(None)
        check_new_name(name, model, ReleaseError)
        _check_counts(name, counts, model)
        _check_mechanism(mechanism)
        checked = _as_matrix(name, matrix, counts)
        observed = _checked(name, observed, checked, mechanism)
        release = super().__new__(
            cls, name, counts, checked, mechanism, observed=observed, dims=dims
        )
        mark(counts, LatticeCounts, "lattice_walk")
        if invariants is not None:
            if not isinstance(invariants, list | tuple) or len(invariants) != 2:
                wanted = "a pair: a matrix and the exact totals of its rows"
                raise refusal("invariants", wanted, invariants, error=ReleaseError)
            fixed = _as_matrix(f"{name}_invariants", invariants[0], counts)
            totals = _checked(f"{name}_invariants", invariants[1], fixed, Exact())
            super().__new__(
                cls, f"{name}_invariants", counts, fixed, Exact(), observed=totals.astype(np.int64)
            )
            _start_within(counts, model)
        return release

    @classmethod
    def dist(
        cls, counts: TensorVariable, matrix: sparse.csr_array, mechanism: Mechanism, **kwargs: Any
    ) -> TensorVariable:
        """Make an unnamed release of totals."""
        kwargs.pop("shape", None)
        op = LinearMeasurementsRV(
            matrix=Matrix(matrix),
            mechanism=mechanism,
            local=True,
            signature=f"(cells)->({matrix.shape[0]})",
            dtype=mechanism.release_dtype,
        )
        rng = kwargs.pop("rng", None) or pt.random.shared_rng(seed=None)
        _, release = op(counts, rng=rng, return_next_rng=True, **kwargs)
        return release


def measurements_of(model: Model, counts: TensorVariable) -> list[TensorVariable]:
    """Return all measurements of some counts, exact ones included."""
    return [
        rv
        for rv in model.observed_RVs
        if isinstance(rv.owner.op, LinearMeasurementsRV)
        and rv.owner.op.dist_params(rv.owner)[0] is counts
    ]


def is_exact(measurement: TensorVariable) -> bool:
    """Tell whether totals are known exactly."""
    return isinstance(measurement.owner.op.mechanism, Exact)


def exact_totals(model: Model, counts: TensorVariable) -> tuple[sparse.csr_array, np.ndarray]:
    """Return the matrix and the values of all exact totals of some counts."""
    exact = [rv for rv in measurements_of(model, counts) if is_exact(rv)]
    cells = counts.type.shape[0]
    matrices = [rv.owner.op.matrix.values for rv in exact]
    values = [model.rvs_to_values[rv].eval(mode=INTERPRETED) for rv in exact]
    return (
        under_each_other(cells, matrices),
        np.concatenate([np.empty(0, dtype=np.int64), *values]),
    )


def under_each_other(cells: int, matrices: Sequence[sparse.csr_array]) -> sparse.csr_array:
    """Return the rows of several matrices, perhaps of none."""
    none = sparse.csr_array((0, cells), dtype=np.int64)
    return sparse.csr_array(sparse.vstack([none, *matrices], format="csr"))


def _check_counts(name: str, counts: Any, model: Model) -> None:
    own = isinstance(counts, TensorVariable) and counts in model.free_RVs
    if not own or counts.ndim != 1 or counts.type.shape[0] is None:
        raise RecordError(
            f"The counts behind {name!r} must be a vector variable of the model of known length, "
            f"such as pm.Poisson('c', mu, shape=n); got {counts!r}."
        )
    if not counts.dtype.startswith("int"):
        raise RecordError(
            f"The counts behind {name!r} must be integers; got {counts.dtype} values."
        )
    if counts.owner.op.ndim_supp > 0:
        raise RecordError(
            f"The counts behind {name!r} must be independent given their parameters, because "
            f"they are moved one by one; got {counts.owner.op}. A multinomial table is one of "
            "Poisson counts whose total is known exactly: give it as an invariant."
        )
    if is_record(counts):
        raise RecordError(
            f"The counts behind {name!r} must not be records of a Privatized release, whose "
            f"sampler does not know their totals; got {counts.name!r}."
        )


def _check_mechanism(mechanism: Any) -> None:
    if not isinstance(mechanism, LOG_CONCAVE):
        raise MechanismError(
            "Noisy totals need Laplace, DiscreteLaplace, Gaussian or DiscreteGaussian noise; "
            f"got {shown(mechanism)}."
        )


def _as_matrix(name: str, matrix: Any, counts: TensorVariable) -> sparse.csr_array:
    cells = counts.type.shape[0]
    try:
        if not sparse.issparse(matrix):
            return sparse.csr_array(integers("matrix", matrix, shapes=[("n", cells)], flags=True))
        if matrix.ndim != 2 or matrix.shape[1] != cells:
            raise ArgumentError
        found = sparse.csr_array(matrix, copy=True)
        entries = integers("matrix", found.data, flags=True)
        found = sparse.csr_array((entries, found.indices, found.indptr), shape=found.shape)
        found.sum_duplicates()
        found.eliminate_zeros()
        return found
    except ArgumentError:
        array = isinstance(matrix, np.ndarray) or sparse.issparse(matrix)
        shape = matrix.shape if array else "unknown"
        raise ReleaseError(
            f"The matrix of {name!r} must be integers, a row for each total and a column for each "
            f"of the {cells} counts; got shape {shape} from {type(matrix).__name__}."
        ) from None


def _checked(name: str, observed: Any, matrix: sparse.csr_array, mechanism: Mechanism) -> Any:
    if isinstance(observed, Variable):
        raise ReleaseError(
            f"The release {name!r} must be plain numbers, because moves are chosen for them before "
            f"sampling; got {observed!r}."
        )
    scales = np.shape(getattr(mechanism, "scale", 0.0))
    rows = matrix.shape[0]
    if scales not in ((), (rows,)):
        raise MechanismError(
            f"There must be one scale, or one for each of the {rows} totals; got "
            f"{scales[0]} scales."
        )
    expected = pt.tensor(shape=(rows,), dtype="int64")
    return check_release(name, observed, expected, mechanism, local=True)


def _start_within(counts: TensorVariable, model: Model) -> None:
    """Let chains start at counts that have all exact totals."""
    matrix, totals = exact_totals(model, counts)
    least, most = (np.broadcast_to(end, counts.type.shape) for end in support(counts))
    table = some_table(matrix, totals, least, most)
    counts.owner.op.table = tuple(table.tolist())
