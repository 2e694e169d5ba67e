"""From a model to the target of a `LatticeWalk`: noisy and exact totals, the law of a count."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import pytensor.tensor as pt
from scipy import sparse

from pymc_privacy._compat import (
    INTERPRETED,
    Model,
    PoissonRV,
    TensorVariable,
    ancestors,
    compile_graph,
)
from pymc_privacy.algorithms import lattice_walk
from pymc_privacy.algorithms.numerics.integer_kernel import Fibre, equal_columns, fibre_of
from pymc_privacy.algorithms.proposals import tree_draws
from pymc_privacy.algorithms.proposals.poisson_carry import Held, held
from pymc_privacy.algorithms.proposals.tree_draws import Trees, trees_of
from pymc_privacy.distributions.measured_totals import (
    is_bound,
    is_exact,
    known_totals,
    measurements_of,
    shape_of,
    under_each_other,
)
from pymc_privacy.errors import RecordError
from pymc_privacy.mechanisms import DiscreteGaussian, Gaussian
from pymc_privacy.model.factors import (
    densities_that_see,
    factors_of,
    joint_log_density,
    log_densities,
)
from pymc_privacy.model.locality import Probe
from pymc_privacy.model.mixed_cells import mixed_cells
from pymc_privacy.model.points import Point, layout_of, probing_point
from pymc_privacy.model.start import start_of
from pymc_privacy.targets.base import never_infinite

MOST_TOGETHER = 50
"""Of more parameters, random moves of all at once would be too short to be of use."""
_CHUNK = 10


def noisy_totals(model: Model, counts: TensorVariable) -> lattice_walk.Measurements:
    """Return all noisy totals of some counts, and those with bounds."""
    noisy = _noisy(model, counts)
    mechanisms = [rv.owner.op.mechanism for rv in noisy]
    known = known_totals(model, counts)
    return lattice_walk.stack(
        [rv.owner.op.matrix.values for rv in noisy],
        [model.rvs_to_values[rv].eval(mode=INTERPRETED).ravel() for rv in noisy],
        [np.asarray(mechanism.scale, dtype=np.float64) for mechanism in mechanisms],
        [isinstance(mechanism, Gaussian | DiscreteGaussian) for mechanism in mechanisms],
        [known.bounded],
    )


def _noisy(model: Model, counts: TensorVariable) -> list[TensorVariable]:
    return [rv for rv in measurements_of(model, counts) if not (is_exact(rv) or is_bound(rv))]


def fibre(model: Model, counts: TensorVariable) -> Fibre:
    """Return the moves that keep all exact totals of some counts."""
    known = known_totals(model, counts)
    several = _of_several(model, counts)
    # Each release divides the cells in its own way, and all together in the finest.
    ways = [*several, under_each_other(known.exact.shape[1], several)] if several else []
    return fibre_of(known.exact, ways, bounded=known.bounded)


def _of_several(model: Model, counts: TensorVariable) -> list[sparse.csr_array]:
    """Return the rows with several cells of each noisy release that has some."""
    matrices = [rv.owner.op.matrix.values for rv in _noisy(model, counts)]
    rows = [matrix[np.flatnonzero(np.diff(matrix.indptr) > 1)] for matrix in matrices]
    return [matrix for matrix in rows if matrix.shape[0]]


CellDensity = Callable[[Point, np.ndarray], np.ndarray]


def compile_cell_density(
    model: Model, counts: TensorVariable, compile_kwargs: dict | None
) -> CellDensity:
    """Compile the log density of each count, with every other factor that sees it alone.

    Counts and densities are written as one vector, whatever their shape is.
    """
    weights = _weights(model, counts)
    point = probing_point(model)
    _refuse_mixed_cells(model, counts, weights, point)
    shape = shape_of(model, counts)
    # A term may have several numbers for each count.
    terms = [*log_densities(model, [counts]), *weights.values()]
    by_cell = [term.reshape((math.prod(shape), -1)).sum(axis=1) for term in terms]
    value = model.rvs_to_values[counts]
    above = set(ancestors(by_cell))
    others = [v for v in model.value_vars if v in above and v is not value]
    density = never_infinite(pt.as_tensor(sum(by_cell)))
    function = compile_graph([value, *others], density, **(compile_kwargs or {}))
    function.trust_input = True
    names = [v.name for v in others]
    dtype = value.dtype

    def evaluate(point: Point, at: np.ndarray) -> np.ndarray:
        cells = at.reshape(shape).astype(dtype, copy=False)
        return function(cells, *(point[name] for name in names))

    return evaluate


class CarryProgram:
    """The parameters of Poisson counts as one vector, and what a move of them needs to know."""

    def __init__(
        self, model: Model, counts: TensorVariable, moves: Fibre, compile_kwargs: dict | None
    ):
        shape = shape_of(model, counts)
        [rates] = model.replace_rvs_by_values([_rates(model, counts)])
        above = set(ancestors([rates]))
        own = [v for v in model.continuous_value_vars if v in above]
        known = {counts, *measurements_of(model, counts)}
        log_g = joint_log_density(model, [f for f in factors_of(model) if f not in known])
        value = model.rvs_to_values[counts]
        above |= set(ancestors([log_g]))
        others = [v for v in model.value_vars if v in above and v not in {value, *own}]
        self.counts = counts.name
        self.measurements = [rv.name for rv in measurements_of(model, counts)]
        cells = math.prod(shape)
        sums = (moves.held, _known_sums(model, counts))
        self.groupings: tuple[Held, ...] = tuple(held(groups, cells) for groups in sums)
        self.sees_counts = value in set(ancestors([log_g]))
        self._others = [v.name for v in others]
        self._shape, self._dtype = shape, value.dtype
        self._function = compile_graph(
            [value, *own, *others],
            [never_infinite(log_g), rates],
            on_unused_input="ignore",
            **(compile_kwargs or {}),
        )
        self._function.trust_input = True
        self.layout = layout_of(start_of(model), [v.name for v in own])
        self.blocks = blocks_of([math.prod(shape) for shape in self.layout.shapes])

    def at(self, point: Point) -> Callable[[np.ndarray, np.ndarray], tuple[float, np.ndarray]]:
        """Return log g and the rates as a function of parameters and counts."""
        held = [point[name] for name in self._others]

        def program(vector: np.ndarray, counts: np.ndarray) -> tuple[float, np.ndarray]:
            own = self.layout.unflatten(vector).values()
            cells = counts.reshape(self._shape).astype(self._dtype, copy=False)
            log_g, rates = self._function(cells, *own, *held)
            return float(log_g), rates

        return program

    def rates_at(self, point: Point) -> np.ndarray:
        """Return the rate of each count at a point."""
        counts = np.zeros(math.prod(self._shape), dtype=np.int64)
        return self.at(point)(self.layout.flatten(point), counts)[1]


def carry_program(
    model: Model, counts: TensorVariable, moves: Fibre, compile_kwargs: dict | None
) -> CarryProgram | None:
    """Compile what is needed to carry counts along, where they are Poisson and sums are nested."""
    if not isinstance(counts.owner.op, PoissonRV) or len(moves.basis):
        return None
    program = CarryProgram(model, counts, moves, compile_kwargs)
    return program if program.layout.size else None


class TreeDraws(NamedTuple):
    """Cells that are drawn at once, and their rates."""

    ways: tuple[tuple[Trees, ...], ...]
    """All cells, or those of each total of a release, one release after the other."""
    rates_at: Callable[[Point], np.ndarray]


def draws_of(
    model: Model,
    counts: TensorVariable,
    noisy: lattice_walk.Measurements,
    carry: CarryProgram | None,
    compile_kwargs: dict | None,
) -> TreeDraws | None:
    """Find the cells within which totals are nested, where counts are Poisson and nothing more."""
    if not isinstance(counts.owner.op, PoissonRV) or _weights(model, counts):
        return None
    exact = known_totals(model, counts).exact
    cells = np.arange(exact.shape[1])
    ways: tuple[tuple[Trees, ...], ...] = (trees_of(noisy, exact, [cells]),)
    if not ways[0]:
        several = (equal_columns(matrix) for matrix in _of_several(model, counts))
        ways = tuple(trees_of(noisy, exact, [g for g in way if g.size > 1]) for way in several)
    ways = tuple(way for way in ways if way)
    if not ways:
        return None
    if carry is not None:
        return TreeDraws(ways, carry.rates_at)
    [rates] = model.replace_rvs_by_values([_rates(model, counts)])
    above = set(ancestors([rates]))
    held = [v for v in model.value_vars if v in above]
    function = compile_graph(held, rates, **(compile_kwargs or {}))
    names = [v.name for v in held]
    return TreeDraws(ways, lambda point: function(*(point[name] for name in names)))


def _rates(model: Model, counts: TensorVariable) -> TensorVariable:
    """Return the rates of Poisson counts as one vector."""
    rate = counts.owner.op.dist_params(counts.owner)[0]
    return pt.broadcast_to(rate, shape_of(model, counts)).ravel().astype("float64")


def blocks_of(sizes: Sequence[int]) -> tuple[np.ndarray, ...]:
    """Return which coordinates move together, of variables of some sizes one after the other.

    The variables of fewest coordinates come first: they are those of most cells.

    Examples
    --------
    >>> [block.tolist() for block in blocks_of([1, 60, 2])]  # doctest: +ELLIPSIS
    [[0, 61, 62], [1, 2, ..., 10], [11, ...], ...]
    """
    ends = np.cumsum([0, *sizes])
    first: list[np.ndarray] = []
    chunks: list[np.ndarray] = []
    for k in np.argsort(sizes, kind="stable"):
        places = np.arange(ends[k], ends[k + 1])
        if sum(map(len, first)) + places.size <= MOST_TOGETHER:
            first.append(places)
        else:
            chunks += [places[i : i + _CHUNK] for i in range(0, places.size, _CHUNK)]
    return (*([np.concatenate(first)] if first else []), *chunks)


def _known_sums(model: Model, counts: TensorVariable) -> tuple[np.ndarray, ...]:
    """Return the groups of cells that exact totals, and noisy ones of several, hold together."""
    # An exact total must be held though it be that of a single cell.
    exact = known_totals(model, counts).exact
    return equal_columns(under_each_other(exact.shape[1], [exact, *_of_several(model, counts)]))


def _weights(model: Model, counts: TensorVariable) -> dict[TensorVariable, TensorVariable]:
    """Return the factors other than measurements that the counts enter, with their densities."""
    known = {counts, *measurements_of(model, counts)}
    return densities_that_see(model, model.rvs_to_values[counts], without=known)


def check_cells(model: Model, counts: TensorVariable, point: Point) -> None:
    """Look once more, at a point, whether cells are mixed where the graph does not say."""
    _refuse_mixed_cells(model, counts, _weights(model, counts), point)


def _refuse_mixed_cells(
    model: Model,
    counts: TensorVariable,
    weights: dict[TensorVariable, TensorVariable],
    point: Point,
) -> None:
    """Refuse counts whose densities, or other factors of them, have not one term for each."""
    graphs = {repr(factor.name): term for factor, term in weights.items()}
    [mixed] = Probe(model, point, [counts], graphs).mixed().values()
    mixed += mixed_cells(model, point, counts, graphs) if counts.ndim > 1 and not mixed else []
    if mixed:
        raise RecordError(
            f"Whatever depends on the counts {counts.name!r} must have one term for each, "
            f"because they are moved one by one; got {', '.join(mixed)}, which mixes them. Write "
            "it elementwise, or as a total in LinearMeasurements."
        )


class LatticeTarget(NamedTuple):
    """What a walk of one vector of counts computes with."""

    name: str
    """The value of the counts."""
    noisy: lattice_walk.Measurements
    fibre: Fibre
    density: CellDensity
    carry: CarryProgram | None
    draws: TreeDraws | None
    exact: sparse.csr_array
    """The matrix of the exact totals."""
    exact_names: Sequence[str]
    """The factors that hold the exact totals."""
    bound_names: Sequence[str]
    """Those that keep totals within bounds."""

    def density_at(self, point: Point) -> lattice_walk.Density:
        """Return the log density of each count, with all else held at a point."""
        return lambda counts: self.density(point, counts)

    @property
    def cells(self) -> int:
        """Return the number of counts."""
        return self.noisy.starts.size - 1

    @property
    def sizes(self) -> tuple[int, int, list[int]]:
        """Return how many counts, kinds of moves, and parameters in each block there are."""
        blocks = self.carry.blocks if self.carry else ()
        return self.cells, self.fibre.kinds, [block.size for block in blocks]

    def read(self, point: Point) -> np.ndarray:
        """Return the counts of a point as one vector."""
        return np.array(point[self.name], dtype=np.int64).ravel()

    def draw(self, rng: np.random.Generator, point: Point) -> float:
        """Draw the counts of one way at once, in the point; return the fraction that was."""
        if self.draws is None:
            return math.nan
        ways, rates_at = self.draws
        trees = ways[int(rng.integers(len(ways)))] if len(ways) > 1 else ways[0]
        counts, info = tree_draws.step(
            rng, self.read(point), trees, measurements=self.noisy, rates=rates_at(point)
        )
        self.write(point, counts)
        return info.fraction

    def write(self, point: Point, counts: np.ndarray) -> None:
        """Put counts into a point."""
        here = point[self.name]
        point[self.name] = counts.astype(here.dtype).reshape(here.shape)


def lattice_target(
    model: Model, counts: TensorVariable, compile_kwargs: dict | None = None, *, carries: bool
) -> LatticeTarget:
    """Compile the moves of some counts; with ``carries`` also those of their parameters."""
    moves, noisy = fibre(model, counts), noisy_totals(model, counts)
    carry = carry_program(model, counts, moves, compile_kwargs) if carries else None
    return LatticeTarget(
        model.rvs_to_values[counts].name,
        noisy,
        moves,
        compile_cell_density(model, counts, compile_kwargs),
        carry,
        draws_of(model, counts, noisy, carry, compile_kwargs),
        known_totals(model, counts).exact,
        [m.name for m in measurements_of(model, counts) if is_exact(m)],
        [m.name for m in measurements_of(model, counts) if is_bound(m)],
    )
