"""What the moves of `pymc_privacy.algorithms.birth_death` need to know of a model, compiled.

Each random size n is a real coordinate here, log nu with n = ceil(nu), which moves like a
parameter. All graphs are those of `graph/exact_length.py`; they are given arrays that may be
longer than n, and read the first n rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytensor.tensor as pt

from pymc_privacy._compat import (
    TensorVariable,
    Variable,
    ancestors,
    compile_graph,
    graph_replace,
    vectorize_graph,
)
from pymc_privacy.algorithms import birth_death, interweave, leaps
from pymc_privacy.distributions.records import is_sized, size_of
from pymc_privacy.errors import RecordError
from pymc_privacy.graph.calls import CompiledCall
from pymc_privacy.graph.carrying import CarriedRecords, carry_records
from pymc_privacy.graph.database import Database, factors_of, find_databases
from pymc_privacy.graph.densities import (
    density_given_base,
    density_given_records,
    density_of_others,
    fresh_records,
    statistics_given_base,
    weight_of_base,
)
from pymc_privacy.graph.exact_length import with_exact_length
from pymc_privacy.graph.interweaving import misfit_of_releases
from pymc_privacy.graph.locality import parents
from pymc_privacy.graph.parameter_program import (
    ParameterProgram,
    compile_program,
    gradient_of,
    jitted_functions,
)

# exp of it is more records than anybody has; no record at all is written as its negative.
_LARGEST_LOG = 40.0


@dataclass(frozen=True)
class SizedDatabase:
    """Records of one random number, in the model where arrays have that length."""

    database: Database
    size: str
    """The name of the random number."""
    capacity: int


def find_sized_databases(
    model, records: Sequence[TensorVariable]
) -> tuple[Any, list[SizedDatabase]]:
    """Group records by their random number, and check every factor that sees them.

    Returns
    -------
    model, databases
        The model with arrays of exact length, and its databases.
    """
    twin = with_exact_length(model)
    groups: dict[TensorVariable, list[Database]] = {}
    for database in find_databases(model, records):
        _check(database)
        groups.setdefault(size_of(database.records[0]), []).append(database)
    return twin, [_joined(twin, size, group) for size, group in groups.items()]


def _check(database: Database) -> None:
    names = ", ".join(repr(rv.name) for rv in database.records)
    if not all(map(is_sized, database.records)):
        raise RecordError(
            f"Records that are seen together must all have a random size, or none; got {names}."
        )
    if database.weights:
        seen = ", ".join(repr(w.name) for w in database.weights)
        raise RecordError(
            f"Of records of unknown number only sums may be known, by releases; {seen} also "
            f"depends on {names}, row by row, and would count rows that do not exist."
        )
    if not database.exchangeable:
        raise RecordError(
            f"Records of unknown number must be alike, because any of them may be absent; the "
            f"rows of {names} have different laws or contribute differently."
        )


def _joined(twin, size: TensorVariable, group: Sequence[Database]) -> SizedDatabase:
    """Return all records of one number as one database, by the variables of the twin."""
    capacity = group[0].size
    database = Database(
        model=twin,
        records=tuple(twin[rv.name] for database in group for rv in database.records),
        releases=tuple(twin[rv.name] for database in group for rv in database.releases),
        weights=(),
        size=capacity,
        exchangeable=True,
    )
    return SizedDatabase(database, twin.rvs_to_values[twin[size.name]].name, capacity)


def log_name(size: str) -> str:
    """Name the real coordinate of a size."""
    return f"{size}_log_nu"


def log_nu(rng: np.random.Generator, size: int) -> float:
    """Draw the real coordinate of a size, given the size."""
    # Away from both ends, where rounding could make it another size.
    return float(np.log(size - rng.uniform(1e-9, 1 - 1e-9))) if size else -_LARGEST_LOG


def size_at(log_nu: float) -> int:
    """Return the size of a real coordinate, as the compiled graphs do."""
    return int(np.ceil(np.exp(log_nu))) if log_nu > -_LARGEST_LOG else 0


class Sizing:
    """The real coordinates of the sizes, and what graphs of sizes become in them."""

    def __init__(self, model, databases: Sequence[SizedDatabase]):
        self._values = [model[d.size] for d in databases]
        self._values = [model.rvs_to_values[size] for size in self._values]
        self.coordinates = [pt.scalar(log_name(d.size)) for d in databases]
        self.numbers = [_number(c).astype(v.dtype) for c, v in self._pairs()]
        self.bounds = [pt.lscalar() for _ in range(2 * len(databases))]
        """The least and the largest value of each size, one after the other."""

    def _pairs(self):
        return zip(self.coordinates, self._values, strict=True)

    def first_rows(self, array: TensorVariable, k: int) -> TensorVariable:
        """Return the rows of an array that exist, of the records of size k."""
        return array[: self.numbers[k]]

    def written(
        self, graphs: Sequence[TensorVariable], others: dict, *, limited: bool = False
    ) -> list[TensorVariable]:
        """Return graphs with sizes, and other variables, replaced.

        With ``limited``, a size beyond its largest value counts as that.
        """
        numbers = self.numbers
        if limited:
            most = self.bounds[1::2]
            numbers = [pt.minimum(n, m).astype(n.dtype) for n, m in zip(numbers, most, strict=True)]
        return graph_replace(
            list(graphs), others | dict(zip(self._values, numbers, strict=True)), strict=False
        )

    def density(self, density: TensorVariable) -> TensorVariable:
        """Return the density of the real coordinates, within the bounds."""
        least, most = self.bounds[::2], self.bounds[1::2]
        inside = [
            pt.ge(n, low) & pt.le(n, high)
            for n, low, high in zip(self.numbers, least, most, strict=True)
        ]
        # d nu = nu d log nu.
        return pt.switch(pt.all(inside), density + sum(self.coordinates), -np.inf)


def _number(coordinate: TensorVariable) -> TensorVariable:
    largest = pt.exp(pt.minimum(coordinate, _LARGEST_LOG))
    return pt.switch(coordinate > -_LARGEST_LOG, pt.ceil(largest), 0.0)


def compile_sized_parameters(
    model,
    parameters: Sequence[Variable],
    databases: Sequence[SizedDatabase],
    compile_kwargs: dict | None = None,
) -> ParameterProgram:
    """Compile the densities of parameters, given as value variables, and of random sizes.

    The functions are those of `pymc_privacy.graph.interweaving.compile_parameters`, of a vector
    q of parameters and then real coordinates of the sizes. ``noncentred``, ``others`` and
    ``refresh`` have more arguments at the end, the least and the largest value of each size,
    and are densities of the real coordinates.
    """
    point = model.initial_point(random_seed=0)
    sizing = Sizing(model, databases)
    plain = [d.database for d in databases]
    records = [rv for database in plain for rv in database.records]
    values = [model.rvs_to_values[rv] for rv in records]
    arrays = [value.type(value.name) for value in values]
    number_of = {rv: k for k, database in enumerate(plain) for rv in database.records}
    existing = {
        value: sizing.first_rows(array, number_of[rv])
        for rv, value, array in zip(records, values, arrays, strict=True)
    }
    given_records = density_given_records(model, plain, parameters)
    centred = [given_records.density]
    if parameters and (gradient := gradient_of(given_records.density, parameters)):
        # Given its records, a size does not move.
        centred.append(pt.concatenate([*gradient, pt.zeros(len(databases))]))
    graphs = {
        "statistics": sizing.written([given_records.statistics], existing),
        "centred": sizing.written(centred, existing),
    }
    arguments: dict[str, list] = {
        "statistics": arrays,
        "centred": [*arrays, given_records.totals],
    }
    weights = np.empty(0)
    if carried := carry_records(model, records):
        statistics = statistics_given_base(model, plain, parameters, carried)
        density = density_given_base(model, plain, parameters, carried, statistics)
        misfit, weights = misfit_of_releases(model, statistics)
        columns = [column.type(column.name) for column in carried.columns]
        owners = _owners(carried, number_of)
        shorter = {
            old: sizing.first_rows(new, owners[old])
            for old, new in zip(carried.columns, columns, strict=True)
        }
        longer = dict(zip(carried.columns, columns, strict=True))
        [density] = sizing.written([density], shorter)
        # The move holds the base variates of all rows, also of those that do not exist.
        [weight] = sizing.written([weight_of_base(parameters, carried)], longer)
        density += weight
        graphs["base"] = sizing.written(carried.base, dict(zip(values, arrays, strict=True)))
        graphs["noncentred"] = [sizing.density(density)]
        graphs["forward"] = sizing.written(carried.values, longer)
        graphs["released"] = sizing.written([misfit], shorter)
        arguments |= dict.fromkeys(("forward", "released"), columns)
        arguments["base"] = arrays
        arguments["noncentred"] = [*columns, *sizing.bounds]
    else:
        [density] = sizing.written([density_of_others(model, plain)], existing)
        graphs["others"] = [sizing.density(density)]
        density, *fresh = sizing.written(fresh_records(model, plain), {}, limited=True)
        graphs["refresh"] = [sizing.density(density), *fresh]
        arguments["others"] = [*arrays, *sizing.bounds]
        arguments["refresh"] = list(sizing.bounds)
    program = compile_program(
        model,
        [*parameters, *sizing.coordinates],
        arrays,
        graphs,
        arguments,
        compile_kwargs,
        point=point | {v.name: np.zeros(()) for v in sizing.coordinates},
        drawing=("base", "refresh"),
    )
    reads = set(ancestors([given_records.density])) & set(values)
    return replace(program, weights=weights, has_statistics=not reads)


def _owners(carried: CarriedRecords, number_of: dict[TensorVariable, int]) -> dict[Any, int]:
    """Return, for each column of base variates, which database it belongs to."""
    return {
        column: number_of[rv]
        for rv, made in carried.natural.items()
        for column in carried.columns
        if column in set(ancestors([made]))
    }


def compile_log_size(
    model, database: SizedDatabase, compile_kwargs: dict | None = None
) -> tuple[CompiledCall, tuple[str, ...]]:
    """Compile the log of all factors that see a size and no record, for a vector of sizes.

    Returns
    -------
    function, inputs
        Of the sizes, and of the values with these names.
    """
    size = model[database.size]
    records = set(database.database.records)
    factors = [
        factor
        for factor in factors_of(model)
        if factor not in records
        and (factor is size or size in _seen(model, factor))
        and not records & _seen(model, factor)
    ]
    value = model.rvs_to_values[size]
    sizes = pt.vector("sizes", dtype=value.dtype)
    total = sum(term.sum() for term in model.logp(vars=factors, sum=False))
    # A density that is flat beyond its argument would come out as a single number.
    log_size = pt.zeros(sizes.shape) + vectorize_graph(total, {value: sizes})
    inputs = [v for v in model.value_vars if v in set(ancestors([log_size])) and v is not value]
    function = compile_graph(
        [sizes, *inputs], [log_size.astype("float64")], **(compile_kwargs or {})
    )
    function.trust_input = True
    return CompiledCall(function), tuple(v.name for v in inputs)


def _seen(model, factor: TensorVariable) -> set[TensorVariable]:
    if factor in model.potentials:
        return set(parents(factor, model))
    return set().union(*(parents(graph, model) for graph in factor.owner.inputs))


def jitted_sized_moves(program: ParameterProgram) -> Any:
    """Compile the moves of parameters and sizes into a single jitted call."""
    jitted, remember = jitted_functions(program, [interweave, leaps, birth_death])
    return birth_death.compile_moves(jitted, gradients=program.gradients, remember=remember)
