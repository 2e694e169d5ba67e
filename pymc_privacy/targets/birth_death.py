"""What the moves of `pymc_privacy.algorithms.birth_death` need to know of a model, compiled.

Each random size n is a real coordinate here, log nu with n = ceil(nu), which moves like a
parameter. All graphs are those of `model/exact_length.py`; they are given arrays that may be
longer than n, and read the first n rows.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytensor.tensor as pt

from pymc_privacy._compat import (
    Model,
    TensorVariable,
    Variable,
    ancestors,
    compile_graph,
    graph_replace,
    vectorize_graph,
)
from pymc_privacy.algorithms import birth_death
from pymc_privacy.algorithms.birth_death import LARGEST_LOG
from pymc_privacy.algorithms.interweave import Info, State, data_of
from pymc_privacy.algorithms.noise import Noise
from pymc_privacy.densities.carrying import CarriedRecords, carry_records
from pymc_privacy.densities.noise import noise_of
from pymc_privacy.densities.parameters import (
    CentredDensity,
    Detail,
    density_given_base,
    density_given_records,
    density_of_others,
    fresh_records,
    statistics_given_base,
    weight_of_base,
)
from pymc_privacy.errors import RecordError
from pymc_privacy.functions.calls import CompiledCall, DirectCall
from pymc_privacy.functions.numbers import BY_STRUCTURE
from pymc_privacy.model.database import Database, find_databases
from pymc_privacy.model.exact_length import with_exact_length
from pymc_privacy.model.factors import densities_that_see
from pymc_privacy.model.points import Point
from pymc_privacy.model.sized_records import is_sized, law_of, size_of, sizes_of
from pymc_privacy.model.start import start_of
from pymc_privacy.targets.base import (
    Graph,
    ParameterProgram,
    compile_program,
    gradient_of,
    jitted_functions,
)
from pymc_privacy.targets.by_address import MovesByAddress
from pymc_privacy.targets.interweave import misfit_of_releases
from pymc_privacy.targets.record_sweep import compile_records


@dataclass(frozen=True)
class SizedDatabase:
    """Records of one random number, in the model where arrays have that length."""

    database: Database
    size: str
    """The name of the random number."""
    capacity: int
    whole: tuple[Database, ...]
    """The same records in the model that was written, with arrays of full length."""


def find_sized_databases(
    model: Model, records: Sequence[TensorVariable]
) -> tuple[Model, list[SizedDatabase]]:
    """Group records by their random number, and check every factor that sees them.

    Returns
    -------
    model, databases
        The model with arrays of exact length, and its databases.
    """
    left_out = [rv.name for rv in model.free_RVs if is_sized(rv) and rv not in set(records)]
    if left_out:
        raise RecordError(
            "Records of unknown number must all be moved by one step method, because each computes "
            f"with as many rows as exist; {', '.join(map(repr, left_out))} is left out."
        )
    twin = with_exact_length(model)
    groups: dict[TensorVariable, list[Database]] = {}
    for database in find_databases(model, records):
        _check(database)
        _check_laws(model, database)
        groups.setdefault(size_of(database.records[0]), []).append(database)
    return twin, [_joined(twin, size, group) for size, group in groups.items()]


def _check(database: Database) -> None:
    names = ", ".join(repr(rv.name) for rv in database.records)
    if not all(map(is_sized, database.records)):
        raise RecordError(
            f"Records that are seen together must all have a random size, or none; got {names}."
        )
    if database.record_factors:
        seen = ", ".join(repr(w.name) for w in database.record_factors)
        raise RecordError(
            f"Of records of unknown number only sums may be known, by releases; {seen} also "
            f"depends on {names}, row by row, and would count rows that do not exist."
        )
    if not database.exchangeable:
        raise RecordError(
            f"Records of unknown number must be alike, because any of them may be absent; the "
            f"rows of {names} have different laws or contribute differently."
        )


def _check_laws(model: Model, database: Database) -> None:
    """Refuse laws that depend on a size, if only by a transform: records would move with it."""
    sizes = {model.rvs_to_values[size] for size in sizes_of(model)}
    for rv in database.records:
        seen = sizes & set(ancestors(model.replace_rvs_by_values([law_of(rv)])))
        if seen:
            raise RecordError(
                f"The law of a record of {rv.name!r} must not depend on how many records there "
                f"are; it depends on {', '.join(repr(size.name) for size in seen)}, perhaps by the "
                "transform of a parameter whose bounds do: give that default_transform=None."
            )


def _joined(twin: Model, size: TensorVariable, group: Sequence[Database]) -> SizedDatabase:
    """Return all records of one number as one database, by the variables of the twin."""
    capacity = group[0].size
    database = Database(
        model=twin,
        records=tuple(twin[rv.name] for database in group for rv in database.records),
        releases=tuple(twin[rv.name] for database in group for rv in database.releases),
        record_factors=(),
        size=capacity,
        exchangeable=True,
    )
    name = twin.rvs_to_values[twin[size.name]].name
    return SizedDatabase(database, name, capacity, tuple(group))


# More records than arrays can hold.
UNLIMITED = 2**40


def log_name(size: str) -> str:
    """Name the real coordinate of a size."""
    return f"{size}_log_nu"


class SizeCoordinates:
    """The real coordinates of the sizes, arrays with room for records, and graphs of both."""

    def __init__(self, model: Model, databases: Sequence[SizedDatabase]):
        self.databases = [d.database for d in databases]
        self.number_of = {rv: k for k, d in enumerate(self.databases) for rv in d.records}
        """Which database a record belongs to."""
        self._values = [model[d.size] for d in databases]
        self._values = [model.rvs_to_values[size] for size in self._values]
        self.coordinates = [pt.scalar(log_name(d.size)) for d in databases]
        self.numbers = [_number(c).astype(v.dtype) for c, v in self._pairs()]
        self.bounds = [pt.lscalar() for _ in range(2 * len(databases))]
        """The least and the largest value of each size, one after the other."""
        records = [model.rvs_to_values[rv] for rv in self.number_of]
        self.arrays = {value: value.type(value.name) for value in records}
        """For the value of each record, of any length."""
        self.existing = {
            value: self.first_rows(array, k)
            for (value, array), k in zip(self.arrays.items(), self.number_of.values(), strict=True)
        }

    def _pairs(self) -> Iterator[tuple[TensorVariable, Variable]]:
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
    largest = pt.exp(pt.minimum(coordinate, LARGEST_LOG))
    return pt.switch(coordinate > -LARGEST_LOG, pt.ceil(largest), 0.0)


def compile_sized_parameters(
    model: Model,
    parameters: Sequence[Variable],
    databases: Sequence[SizedDatabase],
    compile_kwargs: dict | None = None,
    *,
    detail: Detail = Detail.STATISTICS,
    carry: bool = True,
) -> ParameterProgram:
    """Compile the densities of parameters, given as value variables, and of random sizes.

    The functions are those of `pymc_privacy.targets.interweave.compile_parameters`, of a vector
    q of parameters and then real coordinates of the sizes. ``noncentred``, ``others`` and
    ``refresh`` have more arguments at the end, the least and the largest value of each size,
    and are densities of the real coordinates. ``detail`` and ``carry`` are as there.
    """
    sizes = SizeCoordinates(model, databases)
    given_records = density_given_records(model, sizes.databases, parameters, detail=detail)
    graphs = _graphs_given_records(sizes, parameters, given_records)
    noise_precision = np.empty(0)
    if carry and (carried := carry_records(model, list(sizes.number_of))):
        more, noise_precision = _graphs_given_base(model, sizes, parameters, carried, detail)
        graphs |= more
    else:
        graphs |= _graphs_of_fresh_records(model, sizes)
    point = start_of(model)
    program = compile_program(
        model,
        [*parameters, *sizes.coordinates],
        list(sizes.arrays.values()),
        graphs,
        compile_kwargs,
        point=point | {v.name: np.zeros(()) for v in sizes.coordinates},
        drawing=("base", "refresh"),
    )
    reads = set(ancestors([given_records.density])) & set(sizes.arrays)
    return replace(program, noise_precision=noise_precision, has_statistics=not reads)


def _graphs_given_records(
    sizes: SizeCoordinates, parameters: Sequence[Variable], given: CentredDensity
) -> dict[str, Graph]:
    centred = [given.density]
    if parameters and (gradient := gradient_of(given.density, parameters)):
        # Given its records, a size does not move.
        centred.append(pt.concatenate([*gradient, pt.zeros(len(sizes.databases))]))
    arrays = list(sizes.arrays.values())
    return {
        "statistics": Graph(sizes.written([given.statistics], sizes.existing), arrays),
        "centred": Graph(sizes.written(centred, sizes.existing), [*arrays, given.totals]),
    }


def _graphs_given_base(
    model: Model,
    sizes: SizeCoordinates,
    parameters: Sequence[Variable],
    carried: CarriedRecords,
    detail: Detail,
) -> tuple[dict[str, Graph], np.ndarray]:
    """Return the functions of base variates, and the precision of the releases' noise."""
    records = sizes.databases
    statistics = statistics_given_base(model, records, parameters, carried, detail=detail)
    density = density_given_base(model, records, parameters, carried, statistics, detail=detail)
    misfit, noise_precision = misfit_of_releases(model, statistics)
    longer = {column: column.type(column.name) for column in carried.columns}
    owners = _owners(carried, sizes.number_of)
    shorter = {old: sizes.first_rows(new, owners[old]) for old, new in longer.items()}
    [density] = sizes.written([density], shorter)
    # The move holds the base variates of all rows, also of those that do not exist.
    [weight] = sizes.written([weight_of_base(parameters, carried, detail=detail)], longer)
    columns = list(longer.values())
    base = sizes.written(carried.base, sizes.arrays)
    graphs = {
        "base": Graph(base, list(sizes.arrays.values())),
        "noncentred": Graph([sizes.density(density + weight)], [*columns, *sizes.bounds]),
        "forward": Graph(sizes.written(carried.values, longer), columns),
        "released": Graph(sizes.written([misfit], shorter), columns),
    }
    return graphs, noise_precision


def _owners(carried: CarriedRecords, number_of: dict[TensorVariable, int]) -> dict[Any, int]:
    """Return, for each column of base variates, which database it belongs to."""
    return {
        column: number_of[rv]
        for rv, made in carried.natural.items()
        for column in carried.columns
        if column in set(ancestors([made]))
    }


def _graphs_of_fresh_records(model: Model, sizes: SizeCoordinates) -> dict[str, Graph]:
    [others] = sizes.written([density_of_others(model, sizes.databases)], sizes.existing)
    density, *fresh = sizes.written(fresh_records(model, sizes.databases), {}, limited=True)
    arrays = list(sizes.arrays.values())
    return {
        "others": Graph([sizes.density(others)], [*arrays, *sizes.bounds]),
        "refresh": Graph([sizes.density(density), *fresh], sizes.bounds),
    }


def compile_log_size(
    model: Model, database: SizedDatabase, compile_kwargs: dict | None = None
) -> tuple[CompiledCall, tuple[str, ...]]:
    """Compile the log of all factors that see a size and no record, for a vector of sizes.

    Returns
    -------
    function, inputs
        Of the sizes, and of the values with these names.
    """
    value = model.rvs_to_values[model[database.size]]
    records = {*database.database.records, *database.database.releases}
    terms = densities_that_see(model, value, without=records)
    sizes = pt.vector("sizes", dtype=value.dtype)
    total = sum(term.sum() for term in terms.values())
    # A density that is flat beyond its argument would come out as a single number.
    log_size = pt.zeros(sizes.shape) + vectorize_graph(total, {value: sizes})
    inputs = [v for v in model.value_vars if v in set(ancestors([log_size])) and v is not value]
    function = compile_graph(
        [sizes, *inputs],
        [log_size.astype("float64")],
        **({"mode": BY_STRUCTURE} | (compile_kwargs or {})),
    )
    function.trust_input = True
    return CompiledCall(function), tuple(v.name for v in inputs)


class SizeTarget:
    """The compiled programs of one database, fed with as many rows as there are records.

    Parameters
    ----------
    database : SizedDatabase
    compile_kwargs : dict, optional
    """

    def __init__(self, database: SizedDatabase, compile_kwargs: dict | None = None):
        self.database = database
        self.size, self.rows = database.size, database.capacity
        self.grows = False
        """Whether there may be more records than the arrays of a point have rows."""
        self.beyond: list[np.ndarray] | None = None
        """The records for which a point has no rows."""
        self.program = compile_records(database.database, compile_kwargs)
        model = database.database.model
        self.log_size, self.inputs = compile_log_size(model, database, compile_kwargs)
        self.records = self.program.records
        self.forget()

    def __getstate__(self) -> dict:
        # Compiled laws belong to one process; another makes its own.
        return self.__dict__ | {"_noise": None}

    @property
    def capacity(self) -> int:
        """Return the largest number of records considered."""
        return UNLIMITED if self.grows else self.rows

    def forget(self) -> None:
        """Drop what was read from the data, as at the start of a chain."""
        self.beyond = None
        self._noise: Noise | None = None
        self._table: np.ndarray | None = None
        self._open_ended: bool | None = None

    @property
    def noise(self) -> Noise:
        """Return the releases and their laws."""
        if self._noise is None:
            self._noise = noise_of(self.database.database)
        return self._noise

    def number(self, point: Point) -> int:
        """Return how many records a point has."""
        kept = len(self.beyond[0]) if self.beyond else 0
        return min(int(point[self.size]), self.rows + kept)

    def records_of(self, point: Point) -> list[np.ndarray]:
        """Return the records of a point, and those for which it has no rows."""
        number = self.number(point)
        arrays = [point[name][:number] for name in self.records]
        if self.beyond and number > self.rows:
            arrays = [np.concatenate(both) for both in zip(arrays, self.beyond, strict=True)]
        return [array[:number] for array in arrays]

    def existing(self, point: Point, arrays: Sequence[np.ndarray]) -> birth_death.Records:
        """Return records with their contributions, given the parameters of a point."""
        if not len(arrays[0]):
            return birth_death.Records(arrays, np.empty((self.program.width, 0)))
        given = point | dict(zip(self.records, arrays, strict=True))
        return birth_death.Records(arrays, self.program.contributions_at(given))

    def draw(self, rng: np.random.Generator, point: Point, rows: int) -> birth_death.Records:
        """Draw records given the parameters of a point, with their contributions."""
        contributions = np.empty((self.program.width, rows))
        if rows == 0:
            return birth_death.Records([point[name][:0] for name in self.records], contributions)
        given = point | {self.size: np.asarray(rows, dtype=point[self.size].dtype)}
        fresh, _ = self.program.draw_from(rng, given, contributions)
        return birth_death.Records(list(fresh), contributions)

    def filled_up(self, rng: np.random.Generator, point: Point, rows: int) -> list[np.ndarray]:
        """Return the records of a point, with fresh ones behind, ``rows`` in all."""
        number = self.number(point)
        fresh = self.draw(rng, point, rows - number).arrays
        return [np.concatenate(both) for both in zip(self.records_of(point), fresh, strict=True)]

    def write(self, point: Point, records: Sequence[np.ndarray]) -> None:
        """Put records into new arrays of a point, whose other rows are left as they are.

        Records for which there are no rows are kept here.
        """
        number = len(records[0])
        for name, array in zip(self.records, records, strict=True):
            point[name] = point[name].copy()
            point[name][: min(number, self.rows)] = array[: self.rows]
        self.beyond = [array[self.rows :].copy() for array in records] if self.grows else None
        self.write_number(point, number)

    def write_number(self, point: Point, number: int) -> None:
        """Say in a point how many records there are."""
        point[self.size] = np.asarray(number, dtype=point[self.size].dtype)

    def two_sizes(self, point: Point, length: float) -> tuple[int, int]:
        """Return the size of a point, at least 1, and one that a jump may lead to."""
        number = min(max(self.number(point), 1), self.rows)
        jump = max(1, round(length))
        there = number + jump if number + jump <= self.rows else max(number - jump, 1)
        return number, there

    def log_sizes(self, point: Point, first: int, last: int) -> np.ndarray:
        """Return the log of all factors of the sizes from first to last."""
        if self.inputs:
            return self._factors(point, first, last)
        if self._table is None or last >= len(self._table):
            self._table = self._factors(point, 0, 2 * last + 1 if self.grows else self.rows)
        return self._table[first : last + 1]

    def _factors(self, point: Point, first: int, last: int) -> np.ndarray:
        sizes = np.arange(first, last + 1, dtype=point[self.size].dtype)
        [found] = self.log_size(sizes, *(point[name] for name in self.inputs))
        return np.where(np.isnan(found), -np.inf, found)

    def refuse_gaps(self, point: Point) -> None:
        """Refuse sizes that single births and deaths could not reach from each other."""
        possible = np.flatnonzero(np.isfinite(self.log_sizes(point, 0, self.rows)))
        if len(possible) > 1 and np.any(np.diff(possible) != 1):
            raise RecordError(
                f"Single births and deaths need a prior of {self.size!r} without gaps, because "
                "they cannot cross one; got sizes in between that have no probability. Use jumps, "
                "which do."
            )

    def is_open_ended(self, point: Point) -> bool:
        """Tell whether the prior allows more records than there is room for."""
        if self.grows:
            return False
        if self._open_ended is None:
            next_ = self._factors(point, self.rows + 1, self.rows + 1)
            self._open_ended = bool(np.isfinite(next_[0]))
        return self._open_ended


@dataclass(frozen=True)
class SizedTarget:
    """Parameters and sizes as one vector, and the records of all databases behind each other."""

    program: ParameterProgram
    sizes: tuple[SizeTarget, ...]

    def make_room(self, names: Collection[str]) -> None:
        """Let records without an end be more than a point has rows for, if all are named."""
        for size in self.sizes:
            size.grows = set(names) >= {rv.name for rv in size.database.database.records}

    @property
    def beyond(self) -> list[list[np.ndarray] | None]:
        """Return the records of each size for which a point has no rows."""
        return [size.beyond for size in self.sizes]

    def recall(self, beyond: Sequence[list[np.ndarray] | None] | None) -> None:
        """Put back what `beyond` returned at the same point."""
        for size, records in zip(self.sizes, beyond or [None] * len(self.sizes), strict=True):
            size.beyond = records

    def numbers(self, point: Point) -> list[int]:
        """Return how many records each database of a point has."""
        return [size.number(point) for size in self.sizes]

    def flatten(self, rng: np.random.Generator, point: Point) -> np.ndarray:
        """Return the parameters of a point, and real coordinates drawn for its sizes."""
        logs = {
            log_name(size.size): np.asarray(birth_death.log_nu(rng, size.number(point)))
            for size in self.sizes
        }
        return self.program.flatten(point | logs)

    def reserve(
        self, rng: np.random.Generator, point: Point, largest: Sequence[int], *, draw: bool
    ) -> tuple[tuple[np.ndarray, ...], tuple[np.ndarray, ...]]:
        """Return all records, fresh ones behind if ``draw``, and how far each size may move.

        ``largest`` are the largest sizes that tuning has met.
        """
        arrays: list[np.ndarray] = []
        bounds: list[np.ndarray] = []
        for size, met in zip(self.sizes, largest, strict=True):
            number = size.number(point)
            least, most = birth_death.bounds_of_size(rng, number, met, size.capacity)
            arrays += size.filled_up(rng, point, most if draw else number)
            bounds += [np.asarray(least), np.asarray(most)]
        return tuple(arrays), tuple(bounds)

    def write(
        self, point: Point, q: np.ndarray, arrays: Sequence[np.ndarray]
    ) -> list[list[np.ndarray]]:
        """Put parameters and sizes into a point; return the records of each that then exist."""
        moved, found, rest = self.program.unflatten(q), [], list(arrays)
        point |= {name: moved[name] for name in self.program.parameters if name in point}
        for size in self.sizes:
            number = birth_death.size_at(float(moved[log_name(size.size)]))
            size.write_number(point, number)
            found.append([array[:number] for array in rest[: len(size.records)]])
            rest = rest[len(size.records) :]
        return found

    def with_all_rows(self, rng: np.random.Generator, point: Point) -> Point:
        """Return a point with fresh records in all rows, and coordinates of 0 for the sizes."""
        for size in self.sizes:
            number = min(size.number(point), size.rows)
            full = size.filled_up(rng, point, max(size.number(point), size.rows))
            point = point | dict(zip(size.records, (a[: size.rows] for a in full), strict=True))
            size.write_number(point, number)
        return point | {log_name(size.size): np.zeros(()) for size in self.sizes}


class MovesOfFreshRecords:
    """Moves of parameters and sizes with records that are drawn afresh, for one model.

    These have as many rows as are proposed, another number each time, so that functions which draw
    them are not called by address but compiled into the moves.
    """

    def __init__(self, program: ParameterProgram):
        self._program = program
        jitted, remember = jitted_functions(program)
        self._moves = DirectCall(
            birth_death.compile_moves(jitted, gradients=program.gradients, remember=remember)
        )

    def forget(self) -> None:
        """Do nothing: data are read at every call."""

    def __call__(
        self,
        rng: np.random.Generator,
        state: State,
        held: tuple[np.ndarray, ...],
        settings: birth_death.Settings,
        bounds: tuple[np.ndarray, ...],
    ) -> tuple[State, Info]:
        """Move as `by_address.MovesByAddress` does."""
        data = data_of(self._program.data())
        return self._moves(rng, state, held, settings._replace(bounds=bounds), data)


def moves_of(program: ParameterProgram) -> MovesByAddress | MovesOfFreshRecords:
    """Return the compiled moves of parameters and sizes."""
    if program.interweaves:
        return MovesByAddress(program, birth_death)
    return MovesOfFreshRecords(program)
