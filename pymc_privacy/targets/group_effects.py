"""What the moves of `pymc_privacy.algorithms.group_effects` need to know of a model, compiled."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import reduce
from typing import Any

import numpy as np
import pytensor.tensor as pt

from pymc_privacy._compat import (
    Model,
    TensorVariable,
    ancestors,
    graph_replace,
    law_parameters,
)
from pymc_privacy.algorithms import group_effects as algorithm
from pymc_privacy.algorithms.group_effects import Law
from pymc_privacy.algorithms.interweave import CLOSE, CLOSE_WHOLE
from pymc_privacy.densities.carrying import CarriedRecords, carry_records
from pymc_privacy.functions.calls import CompiledCall
from pymc_privacy.functions.generators import given_others
from pymc_privacy.model.columns import group_sums
from pymc_privacy.model.database import Database
from pymc_privacy.model.factors import by_row, factors_of, log_densities
from pymc_privacy.model.group_effects import GroupEffects
from pymc_privacy.model.points import Point
from pymc_privacy.model.releases import contributions_of
from pymc_privacy.model.start import start_of
from pymc_privacy.targets.base import Graph, ParameterProgram, compile_program, never_infinite

# Given the base variates there are as many leaps as steps, of these lengths.
LEAPS_GIVEN_RECORDS = 2
STEPS = (2.0, 1.0, 0.5, 0.25)


def as_databases(model: Model, effects: GroupEffects | None) -> list[Database]:
    """Return effects, if there are any, as what other parameters carry along as they do records."""
    if effects is None:
        return []
    return [Database(model, effects.effects, (), (), effects.number, exchangeable=False)]


def compile_effects(
    model: Model,
    effects: GroupEffects,
    databases: Sequence[Database],
    compile_kwargs: dict | None = None,
) -> ParameterProgram:
    """Compile functions of the effects q, of what is held, and of records or base variates.

    ``given_records(q, *held, *records)`` is the log density of each group, without the releases;
    ``given_base(q, *held, *u)`` the same without the records, but with releases, and ``released``
    the statistics less what was published, by group; ``base`` and ``forward`` are as for
    `targets.interweave`. ``prior`` returns a row of means and one of deviations for each effect.
    Where records have no form x = T(parameters, u), there is ``given_records`` alone.
    """
    records = [rv for database in databases for rv in database.records]
    values = [model.rvs_to_values[rv] for rv in records]
    parameters = [model.rvs_to_values[rv] for rv in effects.effects]
    releases = [release for database in databases for release in database.releases]
    moving = {*parameters, *values}
    others = [f for f in factors_of(model) if f not in {*releases, *records}]
    graphs = {
        "given_records": Graph(
            [_by_group(model, [*others, *records], effects, set(parameters))], values
        ),
        "prior": Graph([_prior(model, effects)]),
    }
    carried = carry_records(model, records)
    if carried is not None:
        density, misfit = _given_base(model, effects, databases, carried)
        density += _by_group(model, others, effects, moving, carried)
        graphs |= {
            "base": Graph(carried.base, values),
            "forward": Graph(carried.values, carried.columns),
            "given_base": Graph([density], carried.columns),
            "released": Graph([misfit], carried.columns),
        }
    program = compile_program(
        model,
        parameters,
        values,
        graphs,
        compile_kwargs,
        point=start_of(model),
        drawing=("base",),
    )
    return program


def _by_group(
    model: Model,
    factors: Sequence[TensorVariable],
    effects: GroupEffects,
    moving: set[Any],
    carried: CarriedRecords | None = None,
) -> TensorVariable:
    """Return what factors that see something moving say of each group."""
    total: Any = pt.zeros(effects.number)
    own = {model.rvs_to_values[rv] for rv in effects.effects}
    for factor, term in zip(factors, log_densities(model, factors), strict=True):
        above = set(ancestors([term]))
        if not above & moving:
            continue
        # What sees records has a row for each of them.
        of_records = factor in effects.by_record or not above & own
        if carried is not None:
            [term] = graph_replace([term], carried.by_value, strict=False)
        rows = by_row(never_infinite(term))
        total += _grouped(rows, effects) if of_records else rows
    return total


def _grouped(rows: TensorVariable, effects: GroupEffects) -> TensorVariable:
    return group_sums(rows, pt.constant(effects.group), effects.number)


def _given_base(
    model: Model,
    effects: GroupEffects,
    databases: Sequence[Database],
    carried: CarriedRecords,
) -> tuple[TensorVariable, TensorVariable]:
    """Return the log density of the releases and of u by group, and the misfit (g, d)."""
    density: Any = pt.zeros(effects.number)
    misfits = []
    for release in (r for database in databases for r in database.releases):
        moved = graph_replace(contributions_of(release), carried.natural, strict=False)
        [moved] = given_others(model, [moved], [])
        statistic = _grouped(moved.astype("float64"), effects)
        value = model.rvs_to_values[release]
        density += by_row(never_infinite(release.owner.op.mechanism.log_density(value, statistic)))
        misfits.append((statistic - value).reshape((effects.number, -1)))
    for weight in carried.base_log_weights:
        density += _grouped(by_row(weight), effects)
    return density, pt.concatenate(misfits, axis=1).astype("float64")


def _prior(model: Model, effects: GroupEffects) -> TensorVariable:
    parts = [p for rv in effects.effects for p in law_parameters(rv)]
    parts = model.replace_rvs_by_values([pt.as_tensor(p) for p in parts])
    shape = (effects.number,)
    return pt.stack([pt.broadcast_to(p.astype("float64"), shape) for p in parts])


def noise_precision_of(effects: GroupEffects, databases: Sequence[Database]) -> np.ndarray:
    """Return 1 / scale² of the noise on each number of ``released``, (g, d)."""
    parts = []
    for release in (r for database in databases for r in database.releases):
        scale = np.broadcast_to(release.owner.op.mechanism.scale, release.type.shape)
        parts.append(np.reshape(scale, (effects.number, -1)).astype(np.float64) ** -2)
    return np.concatenate(parts, axis=1)


class NoEffects:
    """Stands for an `EffectTarget` where there are none."""

    def move(self, rng: np.random.Generator, point: Point) -> float:
        """Leave the point as it is."""
        return math.nan


class EffectTarget:
    """Moves of the effects of groups, and of their records with them, at a point.

    Parameters
    ----------
    effects : GroupEffects
    program : ParameterProgram
        Of `compile_effects`.
    noise_precision : ndarray
        Of `noise_precision_of`.
    """

    def __init__(
        self, effects: GroupEffects, program: ParameterProgram, noise_precision: np.ndarray
    ):
        self.effects, self.program = effects, program
        self._noise_precision = noise_precision
        self._functions = {name: CompiledCall(f) for name, f in program.functions.items()}

    def move(self, rng: np.random.Generator, point: Point) -> float:
        """Move each effect in turn, given the records and then with them; the point is changed.

        Returns the fraction of leaps that were accepted.
        """
        held, accepts = self.program.held_at(point), []
        q = self.program.flatten(point).reshape(-1, self.effects.number)
        for k in range(len(q)):
            # Of the other effects as they are: as they were tells of the one that moves.
            prior = np.array(self._functions["prior"](q.ravel(), *held)[0])
            law = Law(prior[2 * k], prior[2 * k + 1])
            accepts.append(self._move_one(rng, point, q, k, law, held))
            point |= self.program.unflatten(q.ravel().copy())
        return float(np.mean(accepts))

    def _function(self, name: str, q: np.ndarray, k: int, *arguments: np.ndarray) -> Any:
        def evaluate(effects: np.ndarray) -> np.ndarray:
            moved = q.copy()
            moved[k] = effects
            # What was returned last may be overwritten.
            return np.array(self._functions[name](moved.ravel(), *arguments)[0])

        return evaluate

    def _move_one(
        self, rng: np.random.Generator, point: Point, q: np.ndarray, k: int, prior: Law, held: tuple
    ) -> float:
        records = [point[name] for name in self.program.records]
        density = self._function("given_records", q, k, *held, *records)
        law = algorithm.parabolas(density, prior)
        state, info = algorithm.step(
            rng, algorithm.State(q[k]), log_density=density, law=law, leaps=LEAPS_GIVEN_RECORDS
        )
        q[k], centred = state.effects, info.accept
        if "given_base" not in self._functions:
            return centred
        u = [np.array(p) for p in self._functions["base"](rng, q.ravel(), *held, *records)]
        misfit = self._function("released", q, k, *held, *u)
        density = self._function("given_base", q, k, *held, *u)
        again = self._functions["forward"](q.ravel(), *held, *u)
        # The density given u is that of these records only if u stands for them.
        movable = self._groups_where(_came_back(records, again))
        state, noncentred = algorithm.State(q[k]), 0.0
        offer = {"log_density": density, "movable": movable}
        for heavy, steps in ((False, STEPS[:2]), (True, STEPS[2:])):
            law = algorithm.linear(misfit, self._noise_precision, prior, heavy=heavy)
            state, info = algorithm.step(
                rng, state, law=law, leaps=len(steps), steps=steps, **offer
            )
            noncentred += 0.5 * info.accept
        before, q[k] = q[k].copy(), state.effects
        carried = [np.array(part) for part in self._functions["forward"](q.ravel(), *held, *u)]
        # A density need not see a record that is no number.
        taken = (q[k] != before) & self._groups_where(_are_numbers(carried))
        q[k] = np.where(taken, q[k], before)
        rows = taken[self.effects.group]
        for name, record, new in zip(self.program.records, records, carried, strict=True):
            chosen = rows.reshape(-1, *(1,) * (record.ndim - 1))
            point[name] = np.where(chosen, new, record).astype(record.dtype, copy=False)
        return 0.5 * (centred + noncentred)

    def _groups_where(self, good: np.ndarray) -> np.ndarray:
        """Return the groups of which all records are good."""
        found = np.ones(self.effects.number, dtype=np.bool_)
        found[self.effects.group[~good]] = False
        return found


def _came_back(records: Sequence[np.ndarray], again: Sequence[np.ndarray]) -> np.ndarray:
    """Tell which records are those that their base variates stand for."""
    good = []
    for here, there in zip(records, again, strict=True):
        largest = np.abs(here).max(initial=0.0)
        whole = (here == np.floor(here)) & (there == np.floor(there))
        with np.errstate(invalid="ignore"):
            close = np.abs(there - here) <= np.where(whole, CLOSE_WHOLE, CLOSE) * largest
        good.append(close.reshape(len(here), -1).all(axis=1))
    return np.logical_and.reduce(good)


def _are_numbers(records: Sequence[np.ndarray]) -> np.ndarray:
    finite = [np.isfinite(part).reshape(len(part), -1).all(axis=1) for part in records]
    return reduce(np.logical_and, finite)
