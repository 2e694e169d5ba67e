"""What `pymc_privacy.algorithms.ascent` needs to know of a model, compiled: two scores.

The likelihood of the releases alone is L(q) = ∫ eta(s | S(x)) f(x | q) dx, over databases x. By
Fisher's identity its score is the mean, given the releases, of either of

    g = d log f(x | q),                                 records held (centred),
    h = d [log eta(s | S(T(q, u))) + log weight of u],  base variates held (non-centred),

each with whatever else the model says of the parameters: other observed variables, the law of a
random size. Priors of continuous parameters are left out, and with them the Jacobians of their
transforms. Discrete records have no slope at fixed u; where their values are few, each of them is
summed out in its turn instead (`pymc_privacy.algorithms.exchange`).

A size is held by both scores. All graphs are those of a model with arrays of exact length.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any

import numpy as np
import pytensor.tensor as pt

from pymc_privacy._compat import (
    INTERPRETED,
    MixtureRV,
    Model,
    TensorVariable,
    Variable,
    ancestors,
    compile_graph,
)
from pymc_privacy.densities.carrying import CarriedRecords, carry_records
from pymc_privacy.densities.parameters import (
    Detail,
    density_given_records,
)
from pymc_privacy.functions.calls import CompiledCall
from pymc_privacy.functions.numbers import BY_STRUCTURE
from pymc_privacy.model.cells import Cells, NotCounted, find_cells, log_probabilities, on_cells
from pymc_privacy.model.columns import float_columns
from pymc_privacy.model.database import Database, find_databases
from pymc_privacy.model.factors import by_row, factors_of, joint_log_density, log_densities
from pymc_privacy.model.marks import is_record
from pymc_privacy.model.sized_records import is_sized
from pymc_privacy.model.start import start_of
from pymc_privacy.targets.base import Graph, ParameterProgram, compile_program, gradient_of
from pymc_privacy.targets.birth_death import SizedDatabase, compile_log_size, find_sized_databases
from pymc_privacy.targets.interweave import graphs_given_base
from pymc_privacy.targets.record_sweep import RecordProgram, compile_records

# Every value of a record costs a derivative of its probability.
MOST_VALUES = 24


@dataclass(frozen=True)
class FewValues:
    """The values that records of a database can take, and what each of them contributes."""

    cells: Cells
    contributions: np.ndarray
    """Shape (values, d)."""


@dataclass(frozen=True)
class ScoredDatabase:
    """A database, the program that draws its records, and what is known of its size."""

    database: Database
    program: RecordProgram
    sized: SizedDatabase | None = None
    log_size: CompiledCall | None = None
    log_size_inputs: tuple[str, ...] = ()
    few_values: FewValues | None = None
    log_weight: CompiledCall | None = None
    """What the model says of each record besides its law and its central releases."""
    log_weight_inputs: tuple[str, ...] = ()


@dataclass(frozen=True)
class AscentTarget:
    """All that is compiled from a model to climb its likelihood."""

    model: Model
    program: ParameterProgram
    """``statistics``, ``centred``, ``base``, ``noncentred``, ``forward`` and ``released`` as in
    `pymc_privacy.targets.interweave.compile_parameters`, each density with its gradient;
    ``prior(q, *held)``, the gradient of the log prior with the Jacobian of the transforms;
    ``penalty(q, *held)``, the log prior without it and its gradient; ``apart(q, *held)``, the log
    density of all factors that see neither records nor a size; ``totals(q, *held, *u)``,
    all statistics; ``values_k(q, *held)``, the log probabilities of the
    values of records of database k and their derivatives."""
    databases: tuple[ScoredDatabase, ...]
    natural: Callable[..., list[np.ndarray]]
    """The parameters as the user has them, of their values by name."""

    @property
    def has_base(self) -> bool:
        """Whether there is a score at fixed base variates."""
        return "noncentred" in self.program.functions


def records_of(model: Model) -> list[TensorVariable]:
    """Return the record variables of a model."""
    return [rv for rv in model.free_RVs if is_record(rv)]


def parameters_of(model: Model) -> list[TensorVariable]:
    """Return the continuous variables of a model that are not records."""
    return [rv for rv in model.free_RVs if not is_record(rv) and np.dtype(rv.dtype).kind == "f"]


def find_scored_databases(model: Model) -> tuple[Model, list[tuple[Database, Any]]]:
    """Return a model with arrays of exact length, its databases, and their random sizes if any."""
    records = records_of(model)
    sized = [rv for rv in records if is_sized(rv)]
    found: list[tuple[Database, Any]] = []
    if sized:
        model, databases = find_sized_databases(model, sized)
        found += [(d.database, d) for d in databases]
    plain = [model[rv.name] for rv in records if rv not in sized]
    found += [(database, None) for database in (find_databases(model, plain) if plain else [])]
    return model, found


def compile_ascent(
    model: Model,
    found: Sequence[tuple[Database, SizedDatabase | None]],
    *,
    detail: Detail = Detail.STATISTICS,
    carry: bool = True,
) -> AscentTarget:
    """Compile the scores of a model's parameters, as `find_scored_databases` has it."""
    databases = [database for database, _ in found]
    scored = [_scored(database, sized) for database, sized in found]
    variables = parameters_of(model)
    parameters = [model.rvs_to_values[rv] for rv in variables]
    program = _compile_scores(model, parameters, databases, scored, detail, carry)
    return AscentTarget(model, program, tuple(scored), _natural(model, variables))


def compile_direct(model: Model, density: TensorVariable) -> AscentTarget:
    """Compile a likelihood that is a function of the parameters alone, and its gradient.

    ``density`` is the log of it and of the prior. Its function is named ``direct``.
    """
    variables = parameters_of(model)
    parameters = [model.rvs_to_values[rv] for rv in variables]
    value = (density - _log_prior(model, jacobian=True)).astype("float64")
    penalty = _log_prior(model, jacobian=False)
    graphs = {
        "direct": Graph([value, *_slope(value, parameters)]),
        "penalty": Graph([penalty, *_slope(penalty, parameters)]),
    }
    program = compile_program(model, parameters, [], graphs, point=start_of(model))
    return AscentTarget(model, program, (), _natural(model, variables))


def _compile_scores(
    model: Model,
    parameters: Sequence[Variable],
    databases: Sequence[Database],
    scored: Sequence[ScoredDatabase],
    detail: Detail,
    carry: bool,
) -> ParameterProgram:
    records = [rv for database in databases for rv in database.records]
    values = [model.rvs_to_values[rv] for rv in records]
    given = density_given_records(model, databases, parameters, detail=detail)
    penalty = _log_prior(model, jacobian=False)
    graphs = {
        "statistics": Graph([given.statistics], values),
        "centred": Graph(
            [given.density, *_slope(given.density, parameters)], [*values, given.totals]
        ),
        "prior": Graph(_slope(_log_prior(model, jacobian=True), parameters)),
        "apart": Graph([joint_log_density(model, factors_apart(model)).astype("float64")]),
        "penalty": Graph([penalty, *_slope(penalty, parameters)]),
    }
    # Of a mixture, the component that base variates choose jumps as its weights move.
    smooth = all(
        np.dtype(rv.dtype).kind == "f" and not isinstance(rv.owner.op, MixtureRV) for rv in records
    )
    precision = np.empty(0)
    if carry and smooth and (carried := carry_records(model, records)) is not None:
        more, precision = _graphs_given_base(model, parameters, databases, carried, values, detail)
        graphs |= more
    if "noncentred" not in graphs:
        for k, one in enumerate(scored):
            if one.few_values is not None:
                logs = log_probabilities(model, one.few_values.cells)
                rows = [_slope(logs[v], parameters)[0] for v in range(one.few_values.cells.size)]
                graphs[f"values_{k}"] = Graph([logs, pt.stack(rows)])
    program = compile_program(
        model, parameters, values, graphs, point=start_of(model), drawing=("base",)
    )
    reads = set(ancestors([given.density])) & set(values)
    return replace(program, noise_precision=precision, has_statistics=not reads)


def _graphs_given_base(
    model: Model,
    parameters: Sequence[Variable],
    databases: Sequence[Database],
    carried: CarriedRecords,
    values: Sequence[Variable],
    detail: Detail,
) -> tuple[dict[str, Graph], np.ndarray]:
    """Return the functions of base variates, none where these have no slopes."""
    graphs, precision, statistics = graphs_given_base(
        model, parameters, databases, carried, values, detail, slopes=True
    )
    if len(graphs["noncentred"].outputs) == 1:
        return {}, np.empty(0)
    parts = [pt.atleast_1d(statistic) for statistic in statistics.values()]
    totals = pt.concatenate(parts).astype("float64") if parts else pt.zeros(0)
    graphs["totals"] = Graph([totals], carried.columns)
    return graphs, precision


def _slope(density: TensorVariable, parameters: Sequence[Variable]) -> list[TensorVariable]:
    """Return a gradient as one vector; zeros where nothing depends on the parameters."""
    if not set(ancestors([density])) & set(parameters):
        return [pt.concatenate([pt.zeros_like(value).ravel() for value in parameters])]
    return gradient_of(density, parameters)


def _log_prior(model: Model, *, jacobian: bool) -> TensorVariable:
    """Return the log density of the continuous parameters, and potentials of these alone."""
    terms = log_densities(model, priors_of(model), jacobian=jacobian)
    return reduce(pt.add, [term.sum() for term in terms], pt.constant(0.0)).astype("float64")


def factors_apart(model: Model) -> list[TensorVariable]:
    """Return all factors but priors that see neither a record nor a size."""
    values = [
        model.rvs_to_values[rv]
        for rv in model.free_RVs
        if is_record(rv) or np.dtype(rv.dtype).kind != "f"
    ]
    priors = set(priors_of(model))
    others = [factor for factor in factors_of(model) if factor not in priors]
    terms = zip(others, log_densities(model, others), strict=True)
    return [factor for factor, term in terms if not set(ancestors([term])) & set(values)]


def priors_of(model: Model) -> list[TensorVariable]:
    """Return the factors that maximum likelihood leaves out: priors of continuous parameters."""
    return parameters_of(model)


def without_likelihood(model: Model) -> list[TensorVariable]:
    """Return the parameters that only priors depend on."""
    priors = set(priors_of(model))
    others = [factor for factor in factors_of(model) if factor not in priors]
    above = set(ancestors(log_densities(model, others)))
    return [rv for rv in parameters_of(model) if model.rvs_to_values[rv] not in above]


def _scored(database: Database, sized: SizedDatabase | None) -> ScoredDatabase:
    program = compile_records(database)
    log_size: CompiledCall | None = None
    inputs: tuple[str, ...] = ()
    if sized is not None:
        log_size, inputs = compile_log_size(database.model, sized, {"mode": BY_STRUCTURE})
    weight, weight_inputs = _log_weight(database)
    return ScoredDatabase(
        database, program, sized, log_size, inputs, _few_values(database), weight, weight_inputs
    )


def _log_weight(database: Database) -> tuple[CompiledCall | None, tuple[str, ...]]:
    """Compile the log of all factors but releases that see a record, one number for each."""
    if not database.record_factors:
        return None, ()
    model = database.model
    total = reduce(pt.add, [by_row(term) for term in log_densities(model, database.record_factors)])
    inputs = [value for value in model.value_vars if value in set(ancestors([total]))]
    function = compile_graph(inputs, [total.astype("float64")], mode=BY_STRUCTURE)
    function.trust_input = True
    return CompiledCall(function), tuple(value.name for value in inputs)


def _few_values(database: Database) -> FewValues | None:
    """Return the values of records that are alike, and known by central releases only."""
    if database.record_factors or not database.exchangeable or not database.releases:
        return None
    try:
        cells = find_cells(database.records)
        if cells.size > MOST_VALUES:
            return None
        log_probabilities(database.model, cells)
        by_value = {
            database.model.rvs_to_values[rv]: pt.constant(value)
            for rv, value in zip(cells.records, cells.values(), strict=True)
        }
        graphs = float_columns(on_cells(database.model, database.contributions, by_value))
        columns = compile_graph([], graphs, mode=INTERPRETED)()
    except (NotCounted, TypeError, ValueError, IndexError):
        return None
    return FewValues(cells, np.stack([np.asarray(c, float) for c in columns], axis=1))


def _natural(model: Model, variables: Sequence[TensorVariable]) -> Callable[..., list[np.ndarray]]:
    """Return a function of the values of parameters that returns these as they were written."""
    values = [model.rvs_to_values[rv] for rv in variables]
    graphs = model.replace_rvs_by_values(list(variables))
    return compile_graph(values, graphs, on_unused_input="ignore", mode=INTERPRETED)


__all__ = [
    "AscentTarget",
    "FewValues",
    "ScoredDatabase",
    "compile_ascent",
    "compile_direct",
    "factors_apart",
    "find_scored_databases",
    "parameters_of",
    "priors_of",
    "records_of",
    "without_likelihood",
]
