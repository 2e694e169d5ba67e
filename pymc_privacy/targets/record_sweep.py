"""The compiled programs of a sweep: fresh records, their contributions, their factors."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from pymc_privacy._compat import (
    AS_WRITTEN,
    In,
    Model,
    Out,
    RandomGeneratorType,
    TensorVariable,
    Variable,
    ancestors,
    change_dist_size,
    compile_graph,
    graph_replace,
    rvs_in_graph,
)
from pymc_privacy.algorithms import record_sweep
from pymc_privacy.algorithms.noise import Noise
from pymc_privacy.densities.conditional_draws import conditional_draws
from pymc_privacy.densities.noise import noise_of, with_current_values
from pymc_privacy.functions.calls import CompiledCall
from pymc_privacy.functions.generators import given_others, in_value_coordinates, with_generator
from pymc_privacy.functions.numbers import BY_STRUCTURE
from pymc_privacy.model.columns import float_columns
from pymc_privacy.model.database import Database
from pymc_privacy.model.factors import by_row, log_densities
from pymc_privacy.model.other_lengths import with_rows
from pymc_privacy.model.points import Point, probing_point
from pymc_privacy.targets.base import never_infinite


@dataclass(frozen=True)
class RecordProgram:
    """Two compiled functions, and the names of the values they read from a point.

    ``draw(rng, *values)`` returns the fresh records (value coordinates), their contribution
    columns and, if these were drawn without looking at the record factors w of the database,
    log w(fresh) - log w(current) per record.
    ``current(*values)`` returns the columns of the records as they are.
    """

    draw: Any
    draw_inputs: tuple[str, ...]
    current: Any
    current_inputs: tuple[str, ...]
    records: tuple[str, ...]
    width: int
    """The number of contribution columns, over all releases."""
    is_conditional: bool = False
    """Whether records are drawn given all that is known of each but central releases."""

    def draw_from(
        self, rng: np.random.Generator, point: Point, contributions: np.ndarray
    ) -> tuple[Sequence[np.ndarray], np.ndarray | None]:
        """Return fresh records and log weight ratios (or None); fill in contributions (d, n)."""
        outputs = self.draw(rng, *(point[name] for name in self.draw_inputs))
        first, last = len(self.records), len(self.records) + self.width
        # Into memory that is there already: at many records, new pages cost more than the draws.
        for row, column in zip(contributions, outputs[first:last], strict=True):
            row[:] = column
        return outputs[:first], [*outputs[last:], None][0]

    def contributions_at(self, point: Point) -> np.ndarray:
        """Return the contributions (d, n) of the records of a point."""
        shape = (self.width, len(point[self.records[0]]))
        if not self.width:
            return np.empty(shape)
        found = self.current(*(point[name] for name in self.current_inputs))
        return np.reshape(found, shape)

    @property
    def contributions_are_kept(self) -> bool:
        """Whether contributions change only when records do, and so can be remembered.

        False when a record's transform depends on a parameter: then the parameter
        moves the record.
        """
        return set(self.current_inputs) <= set(self.records)


def rows_of(database: Database, fraction: float) -> int | None:
    """Return how many records a sweep updates, or None for all of them.

    A part can be drawn alone only where the records have one law, and no other factor of the
    model tells them apart.
    """
    if fraction >= 1 or not database.exchangeable or database.record_factors:
        return None
    rows = max(1, math.ceil(fraction * database.size))
    return rows if _can_draw(database, rows) else None


def compile_records(
    database: Database,
    compile_kwargs: dict | None = None,
    *,
    rows: int | None = None,
    plain: bool = False,
) -> RecordProgram:
    """Compile the programs of one database.

    ``rows`` is the number of records to draw, by default all: those of an exchangeable database
    without record factors have the same law. With ``plain``, records are drawn as PyTensor draws
    them, and without looking at their factors.
    """
    model, records = database.model, database.records
    coordinates = float_columns(database.contributions)
    fresh = conditional_draws(database) if rows is None and not plain else None
    is_conditional = fresh is not None
    if fresh is None:
        fresh = given_others(model, _fresh(database, rows), records)
    rng, fresh = with_generator(fresh, write_out=not plain)
    current = model.replace_rvs_by_values(coordinates)
    # A random variable left here would be redrawn at every call, and these would
    # not be the contributions of the current records.
    if rvs_in_graph(current):
        raise AssertionError("the current contributions still contain random variables")
    draw_inputs, current_inputs = _value_inputs(model, fresh), _value_inputs(model, current)
    return RecordProgram(
        draw=CompiledCall(_compile([rng, *draw_inputs], fresh, compile_kwargs)),
        draw_inputs=tuple(v.name for v in draw_inputs),
        current=CompiledCall(_compile(current_inputs, current, compile_kwargs)),
        current_inputs=tuple(v.name for v in current_inputs),
        records=tuple(model.rvs_to_values[rv].name for rv in records),
        width=len(coordinates),
        is_conditional=is_conditional,
    )


def _can_draw(database: Database, rows: int) -> bool:
    """Tell whether so many records can be drawn instead of all.

    Not where something is written out for each record, even if it is the same for all of them.
    """
    model = database.model
    try:
        fresh = given_others(model, _fewer(database, rows), database.records)
        rng, fresh = with_generator(fresh, write_out=False)
        draw = compile_graph(
            [rng, *model.value_vars], fresh, on_unused_input="ignore", mode=AS_WRITTEN
        )
        drawn = draw(np.random.default_rng(0), *probing_point(model).values())
    except (TypeError, ValueError, IndexError, AssertionError):
        return False
    return all(np.shape(part)[:1] == (rows,) for part in drawn)


def _fresh(database: Database, rows: int | None) -> list[TensorVariable]:
    """Return fresh records, their contribution columns, and log weight ratios if there are any."""
    if rows is not None:
        return _fewer(database, rows)
    records = [in_value_coordinates(database.model, rv) for rv in database.records]
    coordinates = float_columns(database.contributions)
    return [*records, *coordinates, *_weight_ratio(database, records)]


def _fewer(database: Database, rows: int) -> list[TensorVariable]:
    """Return fresh records and their contribution columns, of another number of records."""
    # Rebuilding a graph for another length copies all of it, draws included: variables stand
    # for parameters meanwhile, whose copies would be drawn from their prior, and for records,
    # so that each is drawn once.
    parameters = _random_parents(database)
    stand_ins: dict[Variable, Variable] = {rv: rv.type() for rv in parameters}
    draws = []
    for rv in database.records:
        [same] = with_rows([rv], stand_ins)
        batch = same.ndim - same.owner.op.ndim_supp
        draws.append(change_dist_size(same, (rows, *(same.shape[k] for k in range(1, batch)))))
        stand_ins[rv] = draws[-1].type()
    transforms = [database.model.rvs_to_transforms[rv] for rv in database.records]
    outputs = [
        draw if transform is None else transform.forward(draw, *draw.owner.inputs)
        for draw, transform in zip(draws, transforms, strict=True)
    ]
    outputs += float_columns(with_rows(database.contributions, stand_ins))
    originals = zip(stand_ins.values(), [*parameters, *draws], strict=True)
    for stand_in, original in reversed(list(originals)):
        outputs = graph_replace(outputs, {stand_in: original}, strict=False)
    return outputs


def _random_parents(database: Database) -> list[TensorVariable]:
    """Return the random variables that records or contributions are computed from."""
    above = set(ancestors([*database.records, *database.contributions]))
    return [rv for rv in database.model.basic_RVs if rv in above - set(database.records)]


def _weight_ratio(
    database: Database, fresh_records: Sequence[TensorVariable]
) -> list[TensorVariable]:
    """Return log w(fresh) - log w(current), one number per record, or nothing."""
    if not database.record_factors:
        return []
    model = database.model
    terms = log_densities(model, database.record_factors)
    now = sum(by_row(term) for term in terms)
    values = [model.rvs_to_values[rv] for rv in database.records]
    fresh = {
        value: value.type.filter_variable(draw)
        for value, draw in zip(values, fresh_records, strict=True)
    }
    return [never_infinite(graph_replace(now, fresh, strict=False)) - now]


def _value_inputs(model: Model, outputs: Sequence[TensorVariable]) -> list[Variable]:
    above = set(ancestors(outputs))
    return [value for value in model.value_vars if value in above]


def _compile(
    inputs: Sequence[Variable], outputs: Sequence[Variable], compile_kwargs: dict | None
) -> Any:
    function = compile_graph(
        [In(v, borrow=True, mutable=isinstance(v.type, RandomGeneratorType)) for v in inputs],
        [Out(o, borrow=True) for o in outputs],
        on_unused_input="ignore",
        accept_inplace=True,
        **({"mode": BY_STRUCTURE} | (compile_kwargs or {})),
    )
    # Inputs come from PyMC's own points, which are of the right type already.
    function.trust_input = True
    return function


class RecordTarget:
    """One database: its programs, its noise, and the contributions of the records last written.

    Parameters
    ----------
    database : Database
    program : RecordProgram
    noise : Noise
        Its releases and their laws.
    rows : int, optional
        How many records are drawn; by default all of them.
    """

    def __init__(
        self, database: Database, program: RecordProgram, noise: Noise, rows: int | None = None
    ):
        self.database, self.program, self.rows = database, program, rows
        self.records = program.records
        self._noise: Noise | None = noise
        drawn = database.size if rows is None else rows
        self.proposed = np.empty((program.width, drawn))
        """The contributions of the records drawn last."""
        self.forget()

    def __getstate__(self) -> dict:
        # Compiled laws belong to one process; another makes its own.
        return self.__dict__ | {"_noise": None}

    def forget(self) -> None:
        """Drop what is remembered of the last point and its releases, as when a chain starts."""
        self._seen: Point | None = None
        self._state = record_sweep.State(np.empty((self.program.width, 0)))

    @property
    def noise(self) -> Noise:
        """Return the releases and their laws."""
        if self._noise is None:
            self._noise = noise_of(self.database)
        elif self._seen is None:
            # Laws are compiled once, but a release can be set anew between two chains.
            self._noise = with_current_values(self._noise, self.database)
        return self._noise

    def state_at(self, point: Point) -> record_sweep.State:
        """Return the contributions of the records of a point."""
        if not self._remembers(point):
            self._state = record_sweep.init(self.program.contributions_at(point))
        return self._state

    def _remembers(self, point: Point) -> bool:
        """Compare by value: workers hand over their own copies of what was returned."""
        if not self.program.width:
            return True
        return (
            self.program.contributions_are_kept
            and self._seen is not None
            and all(np.array_equal(point[name], value) for name, value in self._seen.items())
        )

    def draw(
        self, rng: np.random.Generator, point: Point
    ) -> tuple[slice, Sequence[np.ndarray], np.ndarray | None]:
        """Draw records given all else; return their rows, the records and log weight ratios."""
        rows = slice(None)
        if self.rows is not None:
            rows = record_sweep.block(rng, self.rows, self.database.size)
        fresh, ratio = self.program.draw_from(rng, point, self.proposed)
        return (
            rows,
            fresh,
            record_sweep.never_without_numbers(ratio, record_sweep.finite_rows(fresh)),
        )

    def write(
        self,
        point: Point,
        state: record_sweep.State,
        info: record_sweep.Info,
        fresh: Sequence[np.ndarray],
        rows: slice,
    ) -> None:
        """Put records that were accepted into new arrays of a point."""
        for name, proposal in zip(self.records, fresh, strict=True):
            point[name] = record_sweep.updated(info, proposal, point[name], rows)
        self._state, self._seen = state, {name: point[name] for name in self.records}
