"""Databases known by counts: when that is possible, and the compiled functions of their moves."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import pairwise

import numpy as np
import pytensor.tensor as pt

from pymc_privacy._compat import (
    INTERPRETED,
    Model,
    SharedVariable,
    TensorVariable,
    Variable,
    ancestors,
    compile_graph,
)
from pymc_privacy.algorithms import count_states
from pymc_privacy.model.cells import (
    LEAST_RECORDS,
    Cells,
    NotCounted,
    find_cells,
    log_probabilities,
    on_cells,
)
from pymc_privacy.model.columns import columns, float_columns
from pymc_privacy.model.database import Database, find_databases
from pymc_privacy.model.factors import by_row, factors_of, log_densities
from pymc_privacy.model.marks import is_record
from pymc_privacy.model.points import Point, probing_point
from pymc_privacy.model.releases import contributions_of, release_density
from pymc_privacy.model.start import start_of
from pymc_privacy.targets.base import (
    Graph,
    ParameterProgram,
    compile_program,
    gradient_of,
)

# A cell costs as much as three records.
MOST_CELLS = 2048
RECORDS_PER_CELL = 4
# Probabilities that add up to anything else belong to parameters outside their support.
_ROUNDING = 1e-6


@dataclass(frozen=True)
class CountedDatabase:
    """A database, its cells, and what each of them contributes to the releases."""

    database: Database
    cells: Cells
    contributions: np.ndarray
    """Shape (cells, d)."""
    log_probabilities: TensorVariable
    """A function of the parameters' values."""

    @property
    def records(self) -> list[str]:
        """Return the names of the records' values."""
        return [self.database.model.rvs_to_values[rv].name for rv in self.cells.records]

    def cells_at(self, point: Point) -> np.ndarray:
        """Return the cell of each record of a point."""
        return self.cells.cells_of([point[name] for name in self.records])


def counts_at(counted: Sequence[CountedDatabase], point: Point) -> np.ndarray:
    """Return how many records of a point are in each cell, databases one behind the other."""
    found = [np.bincount(one.cells_at(point), minlength=one.cells.size) for one in counted]
    return np.concatenate(found).astype(np.int64)


def count_databases(model: Model, records: Sequence[TensorVariable]) -> list[CountedDatabase]:
    """Write the databases of some records by counts, or raise `NotCounted`."""
    return [_counted(database) for database in find_databases(model, records)]


def _counted(database: Database) -> CountedDatabase:
    if database.record_factors:
        raise NotCounted("something else than a central release depends on single records")
    if not database.exchangeable:
        raise NotCounted("the records are not identically distributed")
    cells = find_cells(database.records)
    if cells.size > MOST_CELLS:
        raise NotCounted(f"there are {cells.size} cells, which is more than {MOST_CELLS}")
    if database.size < max(LEAST_RECORDS, RECORDS_PER_CELL * cells.size):
        raise NotCounted(f"there are {database.size} records in {cells.size} cells, too few")
    counted = CountedDatabase(
        database, cells, _contributions(database, cells), log_probabilities(database.model, cells)
    )
    _verify(counted)
    return counted


def _contributions(database: Database, cells: Cells) -> np.ndarray:
    """Return what a record in each cell contributes, all releases side by side."""
    by_value = {
        database.model.rvs_to_values[rv]: pt.constant(value)
        for rv, value in zip(cells.records, cells.values(), strict=True)
    }
    graphs = on_cells(database.model, database.contributions, by_value)
    if any(isinstance(v, SharedVariable) for v in ancestors(graphs)):
        raise NotCounted("contributions depend on data that can be set anew")
    return np.stack(_evaluate([], float_columns(graphs), {}), axis=1)


def _verify(counted: CountedDatabase) -> None:
    """Compare, at one point, what the cells say with what the model says of each record."""
    model, point = counted.database.model, probing_point(counted.database.model)
    whole = float_columns(counted.database.contributions)
    densities = log_densities(model, counted.cells.records)
    rows = [by_row(term) for term in densities]
    graphs = [*model.replace_rvs_by_values(whole), reduce(pt.add, rows), counted.log_probabilities]
    *contributions, by_record, by_cell = _evaluate(model.value_vars, graphs, point)
    where = counted.cells_at(point)
    agree = [
        np.allclose(np.transpose(contributions), counted.contributions[where]),
        np.allclose(by_record, by_cell[where]),
        np.isclose(np.exp(by_cell).sum(), 1.0),
    ]
    if not all(agree):
        raise NotCounted("the model says of single records what it does not say of cells")


def _evaluate(
    inputs: Sequence[Variable], graphs: Sequence[TensorVariable], point: Point
) -> list[np.ndarray]:
    try:
        function = compile_graph(inputs, list(graphs), on_unused_input="ignore", mode=INTERPRETED)
        return function(*(point[value.name] for value in inputs))
    except (TypeError, ValueError, AssertionError, IndexError) as error:
        raise NotCounted("the number of records is written into the model") from error


def compile_counts(
    model: Model,
    parameters: Sequence[Variable],
    counted: Sequence[CountedDatabase],
    compile_kwargs: dict | None = None,
) -> ParameterProgram:
    """Compile the densities of parameters, given as value variables, and of counts.

    ``centred(q, *held, counts)`` is log p(parameters, …) + sum_k c_k log f_k and its gradient;
    ``law(q, *held)`` is log p(parameters, …), and the probabilities f_k;
    ``noise(totals)`` is the log density of the releases.
    """
    counts, totals = pt.lvector("counts"), pt.vector("totals")
    prior = _prior(model, parameters, counted)
    logs = [database.log_probabilities for database in counted]
    inside = reduce(pt.and_, [abs(pt.exp(log).sum() - 1.0) < _ROUNDING for log in logs])
    log = pt.concatenate(logs)
    likelihood = pt.switch(pt.eq(counts, 0), 0.0, counts * log).sum()
    density = pt.switch(inside, prior + likelihood, -np.inf)
    graphs = {
        "centred": Graph([density, *gradient_of(density, parameters)], [counts]),
        "law": Graph([pt.switch(inside, prior, -np.inf), pt.exp(log)]),
        "noise": Graph([_log_noise(model, counted, totals)], [totals]),
    }
    records = [model.rvs_to_values[rv] for database in counted for rv in database.cells.records]
    return compile_program(
        model,
        parameters,
        records,
        graphs,
        compile_kwargs,
        point=start_of(model),
        alone=("noise",),
    )


def _prior(
    model: Model, parameters: Sequence[Variable], counted: Sequence[CountedDatabase]
) -> TensorVariable:
    """Return the log density of whatever depends on the parameters, but for records."""
    ours = {f for c in counted for f in (*c.database.records, *c.database.releases)}
    terms = log_densities(model, [f for f in factors_of(model) if f not in ours])
    moving = [term.sum() for term in terms if set(ancestors([term])) & set(parameters)]
    return reduce(pt.add, moving, pt.constant(0.0))


def _log_noise(
    model: Model, counted: Sequence[CountedDatabase], totals: TensorVariable
) -> TensorVariable:
    """Return the log density of all releases as a function of the totals, one vector."""
    density, first = pt.constant(0.0), 0
    for release in (r for c in counted for r in c.database.releases):
        contributions = contributions_of(release)
        width = len(columns(contributions))
        parts = [totals[first + k] for k in range(width)]
        statistic = pt.stack(parts) if contributions.ndim == 2 else parts[0]
        density += release_density(model, release, statistic)
        first += width
    return density


def moves_of(counted: Sequence[CountedDatabase]) -> count_states.CellTable:
    """Put the cells of several databases one after the other."""
    sizes = [database.cells.size for database in counted]
    widths = [database.contributions.shape[1] for database in counted]
    contributions = np.zeros((sum(sizes), sum(widths)))
    row = column = 0
    for database, size, width in zip(counted, sizes, widths, strict=True):
        contributions[row : row + size, column : column + width] = database.contributions
        row, column = row + size, column + width
    return count_states.CellTable(contributions, np.cumsum([0, *sizes]))


class CountTarget:
    """Databases written by counts, what was compiled for them, and the counts last written.

    Parameters
    ----------
    counted : sequence of CountedDatabase
    program : ParameterProgram
    """

    def __init__(self, counted: Sequence[CountedDatabase], program: ParameterProgram):
        self.counted, self.program, self.cells = counted, program, moves_of(counted)
        self._values = [database.cells.values() for database in counted]
        self.forget()

    def forget(self) -> None:
        """Count the records of the next point again."""
        self._seen: Point | None = None
        self._counts = np.empty(0, dtype=np.int64)

    def counts_at(self, point: Point) -> np.ndarray:
        """Return how many records of a point are in each cell.

        Points are compared by value: workers hand over their own copies of what was returned.
        """
        seen = self._seen
        if seen is not None and all(
            point[name] is value or np.array_equal(point[name], value)
            for name, value in seen.items()
        ):
            return self._counts
        return counts_at(self.counted, point)

    def write(
        self, point: Point, counts: np.ndarray, arrange: Callable[[np.ndarray], np.ndarray]
    ) -> None:
        """Put records with some counts into a point, the variables of each database in one order.

        ``arrange`` returns the cells of all records of one database in that order.
        """
        each = zip(self.counted, self._values, _by_database(counts, self.cells.starts), strict=True)
        for database, values, own in each:
            order = arrange(own)
            for name, value in zip(database.records, values, strict=True):
                point[name] = value[order]
        self._seen = {name: point[name] for name in self.program.records}
        self._counts = counts


def _by_database(counts: np.ndarray, starts: np.ndarray) -> list[np.ndarray]:
    """Return the counts of each database."""
    return [counts[first:last] for first, last in pairwise(starts)]


def count_target(
    model: Model, values: Sequence[Variable], compile_kwargs: dict | None = None
) -> CountTarget:
    """Write the databases of some values by counts, or raise `NotCounted`."""
    rvs = [model.values_to_rvs[value] for value in values]
    records = [rv for rv in rvs if is_record(rv)]
    if not records:
        raise NotCounted("none of these variables are records")
    if len(records) == len(rvs):
        raise NotCounted("none of these variables are parameters")
    counted = count_databases(model, records)
    parameters = [v for v, rv in zip(values, rvs, strict=True) if not is_record(rv)]
    program = compile_counts(model, parameters, counted, compile_kwargs)
    return CountTarget(counted, program)
