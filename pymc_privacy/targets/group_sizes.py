"""What the draws of `pymc_privacy.algorithms.group_sizes` need to know of a model, compiled."""

from __future__ import annotations

from collections.abc import Sequence
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
from pymc_privacy.algorithms import group_sizes as algorithm
from pymc_privacy.errors import RecordError
from pymc_privacy.functions.calls import CompiledCall
from pymc_privacy.functions.numbers import BY_STRUCTURE
from pymc_privacy.model.alignment import Aligned, alignment
from pymc_privacy.model.database import Database
from pymc_privacy.model.factors import by_row, densities_that_see
from pymc_privacy.model.group_sizes import GroupSizes, existence, group_sizes
from pymc_privacy.model.points import Point
from pymc_privacy.model.releases import contributions_of
from pymc_privacy.targets.base import never_infinite


def sizes_that_move(
    model: Model, databases: Sequence[Database], parameters: Sequence[Variable]
) -> tuple[list[GroupSizes], list[Variable]]:
    """Return vectors of numbers of records among parameters, checked, and the other parameters.

    Parameters are given, and returned, as value variables.
    """
    found = group_sizes(model)
    for sizes in found:
        for database in databases:
            _check(sizes, database)
    # By pm.do a number becomes one that is known.
    known = {model.rvs_to_values[s.size]: s for s in found if s.size in model.free_RVs}
    moving = [known[value] for value in parameters if value in known]
    return moving, [value for value in parameters if value not in known]


def _check(sizes: GroupSizes, database: Database) -> None:
    """Refuse rows that are seen by more than releases of those that exist."""
    numbers = [_numbers_behind(release) for release in database.releases]
    if sizes.size not in {n for found in numbers for n in found}:
        return
    names = ", ".join(repr(rv.name) for rv in database.records)
    seen = [r.name for r, n in zip(database.releases, numbers, strict=True) if n != {sizes.size}]
    seen += [factor.name for factor in database.record_factors]
    if seen:
        raise RecordError(
            f"Of records whose numbers are unknown only sums over those that exist may be known, "
            f"by releases of the same groups; {', '.join(map(repr, seen))} also depends on "
            f"{names}, and would count rows that do not exist."
        )
    above = set(ancestors(list(database.records)))
    if sizes.size in above:
        raise RecordError(
            f"The law of a record must not depend on how many there are; that of {names} depends "
            f"on {sizes.size.name!r}."
        )


def _numbers_behind(release: TensorVariable) -> set[TensorVariable]:
    return {exist.owner.inputs[0] for exist in existence([contributions_of(release)])}


def compile_sizes(
    model: Model,
    sizes: GroupSizes,
    databases: Sequence[Database],
    compile_kwargs: dict | None = None,
) -> SizesProgram:
    """Compile the log density of each number of records of each group, given all rows.

    It has shape (numbers from 0 on, groups), up to a constant of each group.
    """
    value = model.rvs_to_values[sizes.size]
    releases = [
        release
        for database in databases
        for release in database.releases
        if sizes.size in _numbers_behind(release)
    ]
    candidates = pt.constant(
        np.broadcast_to(
            np.arange(sizes.capacity.max() + 1)[:, None],
            (sizes.capacity.max() + 1, sizes.capacity.size),
        ).astype(value.dtype)
    )
    total: Any = pt.zeros(candidates.shape)
    for factor, term in densities_that_see(model, value, without=set(releases)).items():
        _check_factor(sizes, factor, term, value)
        total += vectorize_graph(never_infinite(by_row(term)), {value: candidates})
    for release in releases:
        total += _released(model, sizes, release)
    room = np.arange(len(candidates.data))[:, None] <= sizes.capacity
    total = pt.where(pt.constant(room), total, -np.inf)
    inputs = [v for v in model.value_vars if v in set(ancestors([total])) and v is not value]
    function = compile_graph(
        inputs, [total.astype("float64")], **({"mode": BY_STRUCTURE} | (compile_kwargs or {}))
    )
    function.trust_input = True
    return SizesProgram(CompiledCall(function), tuple(v.name for v in inputs), value.name)


def _check_factor(
    sizes: GroupSizes, factor: TensorVariable, term: TensorVariable, value: TensorVariable
) -> None:
    """Refuse what ties the numbers of groups to each other."""
    state = alignment(term, [value])
    if not (isinstance(state, Aligned) and state.axis == 0 and term.ndim > 0):
        raise RecordError(
            f"Numbers of records of groups must be independent given all else, so that each can be "
            f"drawn from its own law; but several entries of {sizes.size.name!r} enter "
            f"{factor.name!r}. Release each number with local=True, and give each a prior of its "
            "own."
        )


def _released(model: Model, sizes: GroupSizes, release: TensorVariable) -> TensorVariable:
    """Return what a release says of each number of records of each group."""
    [rows] = model.replace_rvs_by_values([contributions_of(release)])
    every = {exist: pt.ones(sizes.group.size, dtype="bool") for exist in existence([rows])}
    [rows] = graph_replace([rows], every, strict=False)
    rows = rows.astype("int64") if rows.dtype == "bool" else rows
    shape = (sizes.capacity.max() + 1, sizes.capacity.size, *rows.type.shape[1:])
    place = pt.constant(sizes.rank + 1), pt.constant(sizes.group)
    # Row k of the sums has the first k records of each group.
    sums = pt.zeros(shape, dtype=rows.dtype)[place].set(rows).cumsum(axis=0)
    value = model.rvs_to_values[release]
    density = pt.as_tensor(release.owner.op.mechanism.log_density(value, sums))
    return never_infinite(density if rows.ndim == 1 else density.sum(axis=2))


class SizesProgram:
    """A compiled table of log densities, and what it reads from a point."""

    def __init__(self, table: Any, inputs: tuple[str, ...], size: str):
        self._table, self._inputs, self.size = table, inputs, size

    def log_weights(self, point: Point) -> np.ndarray:
        """Return the log density of each number of records of each group."""
        return np.array(self._table(*(point[name] for name in self._inputs))[0])

    def move(self, rng: np.random.Generator, point: Point) -> None:
        """Draw all numbers given the rows of a point, which is changed."""
        state = algorithm.State(point[self.size])
        point[self.size] = algorithm.step(rng, state, self.log_weights(point))[0].sizes
