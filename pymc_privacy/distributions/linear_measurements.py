"""`LinearMeasurements`: noisy totals of latent counts, and totals of which more is known."""

from __future__ import annotations

import math
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
    check_new_name,
    modelcontext,
)
from pymc_privacy.algorithms.numerics.integer_kernel import fibre_of, some_table
from pymc_privacy.arguments import integers, reals, refusal, shown
from pymc_privacy.distributions.measured_totals import (
    LatticeCounts,
    LinearMeasurementsRV,
    Matrix,
    flat,
    known_totals,
    shape_of,
)
from pymc_privacy.distributions.sums import Rows, Sum
from pymc_privacy.errors import ArgumentError, MechanismError, RecordError, ReleaseError
from pymc_privacy.mechanisms import Mechanism
from pymc_privacy.mechanisms.exact import Bound, Exact
from pymc_privacy.mechanisms.tails import LOG_CONCAVE
from pymc_privacy.model.marks import is_record, mark
from pymc_privacy.model.releases import check_release, release_numbers
from pymc_privacy.model.support import support

# Beyond it, not every total is a number that linear programs know.
_LARGEST = 2**53


class LinearMeasurements(Distribution):
    r"""Noisy totals of latent counts are observed, and some totals exactly.

    With counts c, the release is :math:`y = A c + \text{noise}`, a row of A for each
    total. Totals may overlap: blocks, the tracts they add up to, the county. Totals that are
    known exactly (invariants) are kept by every draw, and so are bounds. The counts stay in the
    model; `pm.sample` updates them with :class:`~pymc_privacy.LatticeWalk`.

    Where every count is released once, on its own, :class:`~pymc_privacy.NoisyCount` is
    faster.

    Parameters
    ----------
    name : str
    counts : TensorVariable
        Counts of the model, independent given their parameters: a table with any number of dims,
        such as ``pm.Poisson("people", mu, dims=("tract", "race"))``.
    matrix : Sum, array_like or sparse array
        Which totals: a :class:`~pymc_privacy.Sum` over dims of the table; or integers, of shape
        (totals, counts), with the counts in the order of C. For more than a few hundred counts give
        one of SciPy's sparse arrays, such as ``scipy.sparse.eye_array(n, dtype=int)``.
    mechanism : Laplace, DiscreteLaplace, Gaussian or DiscreteGaussian
        With one scale, or one for each total. What the census publishes is the variance:
        see :func:`~pymc_privacy.discrete_gaussian_scale`.
    observed : array_like
        The release: one number per row of the matrix, or a table of the totals of a ``Sum``. Such a
        table may also be given as one vector, in the order of C.
    invariants : (Sum or array_like, array_like), optional
        Other totals, as ``matrix`` is given, and their exact values. They become an observed
        variable of their own, ``name + "_invariants"``. A table with a multinomial law is one of
        Poisson counts whose total is such an invariant.
    at_least, at_most : (Sum or array_like, array_like), optional
        Totals and what they do not fall below, or do not exceed; infinite for those without
        a bound. Observed variables ``name + "_at_least"`` and ``name + "_at_most"``. A count, or a
        total of counts, that is at most 0 is a structural zero. Bounds must be nested with each
        other and with all exact totals: each pair disjoint, or one within the other.
    dims : str or sequence of str, optional
        Of the release; those of the counts that a ``Sum`` leaves as they are, by default.

    Raises
    ------
    RecordError
        If the counts are not a table of independent integers of the model.
    MechanismError
        If the noise is another, or there are neither one scale nor one for each total.
    ReleaseError
        If matrix, release, invariants or bounds do not fit the counts, no counts have the exact
        totals within the bounds, or bounds cross.

    See Also
    --------
    Sum : Totals by the names of dims.
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
        at_least: tuple[Any, Any] | None = None,
        at_most: tuple[Any, Any] | None = None,
        dims: Any = None,
    ) -> TensorVariable:
        """Add the release to the model on the context stack, and mark its counts."""
        model = modelcontext(None)
        check_new_name(name, model, ReleaseError)
        _check_counts(name, counts, model)
        _check_mechanism(mechanism)
        table = _Table(model, counts)
        rows = table.rows(name, matrix, dims)
        _check_dims(name, dims, rows.shape, model)
        values = _checked(name, observed, rows, mechanism)
        known = [
            _known(f"{name}_{what}", what, given, table, law)
            for what, given, law in (
                ("invariants", invariants, Exact()),
                ("at_least", at_least, Bound(side="at_least")),
                ("at_most", at_most, Bound(side="at_most")),
            )
            if given is not None
        ]
        for own, *_ in known:
            check_new_name(own, model, ReleaseError)
        release = super().__new__(
            cls,
            name,
            flat(counts),
            rows,
            mechanism,
            observed=values,
            dims=rows.dims if dims is None else dims,
        )
        mark(counts, LatticeCounts, "lattice_walk")
        for own, totals, bound, law in known:
            super().__new__(cls, own, flat(counts), totals, law, observed=bound)
        if known:
            _start_within(counts, model)
        return release

    @classmethod
    def dist(
        cls, counts: TensorVariable, rows: Rows, mechanism: Mechanism, **kwargs: Any
    ) -> TensorVariable:
        """Make an unnamed release of totals."""
        kwargs.pop("shape", None)
        op = LinearMeasurementsRV(
            matrix=Matrix(rows.matrix),
            shape=rows.shape,
            mechanism=mechanism,
            local=True,
            signature=f"(cells)->({','.join(map(str, rows.shape))})",
            dtype=mechanism.release_dtype,
        )
        rng = kwargs.pop("rng", None) or pt.random.shared_rng(seed=None)
        _, release = op(counts, rng=rng, return_next_rng=True, **kwargs)
        return release


class _Table:
    """A table of counts of a model: its lengths and the names of its dims."""

    def __init__(self, model: Model, counts: TensorVariable):
        self.model, self.counts = model, counts
        self.shape = shape_of(model, counts)
        self.names = list(model.named_vars_to_dims.get(counts.name) or [None] * counts.ndim)

    def rows(self, name: str, matrix: Any, dims: Any = None) -> Rows:
        """Return the totals that a user means."""
        if isinstance(matrix, Sum):
            coords = [self.model.coords.get(dim) for dim in _named(dims)]
            return matrix.rows(self.shape, self.names, coords)
        found = _as_matrix(name, matrix, math.prod(self.shape))
        return Rows(found, (found.shape[0],))


def _check_counts(name: str, counts: Any, model: Model) -> None:
    own = isinstance(counts, TensorVariable) and counts in model.free_RVs
    if not own or counts.ndim == 0:
        raise RecordError(
            f"The counts behind {name!r} must be a table of the model, of one dim or more, such as "
            f"pm.Poisson('c', mu, shape=n); got {counts!r}."
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


def _named(dims: Any) -> list[Any]:
    """Return the names of the dims of a release."""
    several = [dims] if isinstance(dims, str) else dims or ()
    if not isinstance(several, list | tuple) or not all(
        isinstance(dim, str | None) for dim in several
    ):
        raise refusal("dims", "the names of dims", dims, error=ReleaseError)
    return list(several)


def _check_dims(name: str, dims: Any, shape: tuple[int, ...], model: Model) -> None:
    """Refuse dims that the totals do not have, which PyMC would find out after sampling."""
    if dims is None:
        return
    named = _named(dims)
    known = [dim is None or dim in model.dim_lengths for dim in named]
    if len(named) != len(shape) or not all(known):
        raise ReleaseError(
            f"The dims of {name!r} must be dims of the model, one for each axis of its totals, "
            f"which have shape {shape}; got {shown(dims)}."
        )
    for dim, length in zip(named, shape, strict=True):
        own = length if dim is None else int(model.dim_lengths[dim].eval(mode=INTERPRETED))
        if own != length:
            raise ReleaseError(
                f"The dims of {name!r} must have the lengths of its totals, which have shape "
                f"{shape}; got {dim!r} of length {own}."
            )


def _check_mechanism(mechanism: Any) -> None:
    if not isinstance(mechanism, LOG_CONCAVE):
        raise MechanismError(
            "Noisy totals need Laplace, DiscreteLaplace, Gaussian or DiscreteGaussian noise; "
            f"got {shown(mechanism)}."
        )


def _known(
    name: str, what: str, given: Any, table: _Table, law: Mechanism
) -> tuple[str, Rows, np.ndarray, Mechanism]:
    """Return totals that are known without noise, one after the other, and what is known."""
    if not isinstance(given, list | tuple) or len(given) != 2:
        wanted = "a pair: a Sum or a matrix, and a number for each of its totals"
        raise refusal(what, wanted, given, error=ReleaseError)
    rows = table.rows(name, given[0])
    values = given[1]
    if isinstance(law, Bound):
        wanted = "numbers, or infinite where there is no bound"
        values = reals(
            f"The bounds {name!r}", values, finite=False, wanted=wanted, error=ReleaseError
        )
        if values.shape == () and rows.shape:
            values = np.full(rows.shape, values)
        there = np.isfinite(values).ravel()
        no_bound = np.inf if law.side == "at_most" else -np.inf
        if values.size != there.size or np.any(values.ravel()[~there] != no_bound):
            raise refusal(f"The bounds {name!r}", wanted, given[1], error=ReleaseError)
        if values.size == rows.matrix.shape[0]:
            matrix = rows.matrix[np.flatnonzero(there)]
            rows, values = Rows(matrix, (matrix.shape[0],)), values.ravel()[there]
    checked = _checked(name, values, rows, law).ravel()
    if np.any(abs(checked) > _LARGEST):
        wanted = f"integers of at most {_LARGEST} in size"
        raise refusal(f"What is known in {name!r}", wanted, given[1], error=ReleaseError)
    rows = Rows(rows.matrix, (rows.matrix.shape[0],))
    return name, rows, checked.astype(np.int64), law


def _as_matrix(name: str, matrix: Any, cells: int) -> sparse.csr_array:
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


def _checked(name: str, observed: Any, rows: Rows, mechanism: Mechanism) -> np.ndarray:
    if isinstance(observed, Variable):
        raise ReleaseError(
            f"The release {name!r} must be plain numbers, because moves are chosen for them before "
            f"sampling; got {observed!r}."
        )
    scales, total = np.shape(getattr(mechanism, "scale", 0.0)), rows.matrix.shape[0]
    if scales not in ((), (total,)):
        raise MechanismError(
            f"There must be one scale, or one for each of the {total} totals; got "
            f"{scales[0]} scales."
        )
    value = release_numbers(name, observed)
    if value.shape == rows.shape:
        value = value.ravel()
    expected = pt.tensor(shape=(total,), dtype="int64")
    if len(rows.shape) != 1 and value.shape != (total,):
        raise ReleaseError(
            f"The release {name!r} must have shape {rows.shape}, a number for each total, or be a "
            f"vector of {total} numbers; got observed of shape {value.shape}."
        )
    return check_release(name, value, expected, mechanism, local=True).reshape(rows.shape)


def _start_within(counts: TensorVariable, model: Model) -> None:
    """Let chains start at counts that have all exact totals, within all bounds."""
    known = known_totals(model, counts)
    if known.bounded.least.size:
        # Refuses bounds that no moves are known for.
        fibre_of(known.exact, bounded=known.bounded)
    shape = shape_of(model, counts)
    least, most = (np.broadcast_to(end, shape).ravel() for end in support(counts))
    table = some_table(known.exact, known.totals, least, most, known.bounded)
    counts.owner.op.table = tuple(table.tolist())
