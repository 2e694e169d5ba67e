"""What the moves of `pymc_privacy.algorithms.interweave` need to know of a model, compiled."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytensor.tensor as pt

from pymc_privacy._compat import Model, TensorVariable, Variable, ancestors
from pymc_privacy.densities.carrying import CarriedRecords, carry_records
from pymc_privacy.densities.clipped_records import answered_records
from pymc_privacy.densities.conditional_draws import conditional_draws
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
from pymc_privacy.densities.summed_out import summed_out
from pymc_privacy.functions.numbers import BY_STRUCTURE
from pymc_privacy.mechanisms import AdditiveMechanism, PostProcessed
from pymc_privacy.model.database import Database
from pymc_privacy.model.start import start_of
from pymc_privacy.targets.base import (
    Graph,
    ParameterProgram,
    compile_program,
    gradient_of,
)

# Above this many parameters, Hamiltonian trajectories beat a random walk, whose steps cost a third.
FEW_PARAMETERS = 20
# What has a scale that says how far a release is from its statistic.
_ADDITIVE = (AdditiveMechanism, PostProcessed)


def compile_parameters(
    model: Model,
    parameters: Sequence[Variable],
    databases: Sequence[Database],
    compile_kwargs: dict | None = None,
    *,
    detail: Detail = Detail.STATISTICS,
    carry: bool = True,
    mode: Any = BY_STRUCTURE,
) -> ParameterProgram:
    """Compile the densities of some parameters of a model, given as value variables.

    ``statistics(q, *held, *records)`` returns one vector, of sums over the records that no
    parameter enters;
    ``centred(q, *held, *records, statistics)`` is log p(parameters, records, …) without the
    releases, and its gradient if it has one;
    ``base(rng, q, *held, *records)`` returns the u of the records, by columns;
    ``noncentred(q, *held, *u)`` is log p(parameters, releases, …, u);
    ``forward(q, *held, *u)`` returns the records (value coordinates) that u stands for;
    ``released(q, *held, *u)`` returns the statistic behind all releases less what was published,
    if their noise is additive, and else an empty vector.
    Instead of the last four, where some record has no known form x = T(parameters, u):
    ``others(q, *held, *records)`` is the log density of all but the records;
    ``refresh(rng, q, *held)`` draws all records given q, and returns that density and them.
    The same functions, where records of few values have no central release and can be summed out;
    then all densities are those of the parameters alone, and ``refresh`` draws the records given
    all that is known of each. The records are right again when the sweep has drawn them.

    Without parameters there is nothing to move, and nothing is compiled. ``detail`` says how far
    densities are taken apart, and without ``carry`` records are drawn afresh whatever their form.
    """
    if not parameters:
        return ParameterProgram((), (), (), (), {}, {})
    records = [rv for database in databases for rv in database.records]
    values = [model.rvs_to_values[rv] for rv in records]
    marginal = summed_out(model, databases, integrals=detail is not Detail.WHOLE)
    if marginal is None:
        given_records = density_given_records(model, databases, parameters, detail=detail)
    else:
        given_records = CentredDensity(pt.zeros(0), pt.vector("totals"), marginal)
    gradient = gradient_of(given_records.density, parameters)
    graphs = {
        "statistics": Graph([given_records.statistics], values),
        "centred": Graph([given_records.density, *gradient], [*values, given_records.totals]),
    }
    noise_precision = np.empty(0)
    if marginal is not None:
        draws = [conditional_draws(database) for database in databases]
        fresh = [draw for group in draws for draw in group or ()]
        graphs["others"] = Graph([marginal], values)
        graphs["refresh"] = Graph([marginal, *fresh])
    elif carry and (carried := carry_records(model, records)):
        point = start_of(model)
        size = sum(np.size(point[value.name]) for value in parameters)
        more, noise_precision, _ = graphs_given_base(
            model,
            parameters,
            databases,
            carried,
            values,
            detail,
            slopes=size > FEW_PARAMETERS and _is_smooth(list(carried.natural)),
        )
        graphs |= more
    else:
        graphs["others"] = Graph([density_of_others(model, databases)], values)
        graphs["refresh"] = Graph(fresh_records(model, databases))
    program = compile_program(
        model,
        parameters,
        values,
        graphs,
        compile_kwargs,
        point=start_of(model),
        drawing=("base", "refresh"),
        mode=mode,
    )
    reads = set(ancestors([given_records.density])) & set(values)
    cheap = not reads and marginal is None
    return replace(
        program,
        noise_precision=noise_precision,
        has_statistics=cheap,
        sums_out=marginal is not None,
        integrates=marginal is not None and any(map(answered_records, databases)),
    )


def graphs_given_base(
    model: Model,
    parameters: Sequence[Variable],
    databases: Sequence[Database],
    carried: CarriedRecords,
    values: Sequence[Variable],
    detail: Detail,
    *,
    slopes: bool,
    weighted: bool = True,
) -> tuple[dict[str, Graph], np.ndarray, dict[TensorVariable, TensorVariable]]:
    """Return the functions of base variates, the precision of the noise, and all statistics.

    With ``slopes`` the density has its gradient too, if there is one; unless ``weighted``, the log
    density of the base variates is left out of it.
    """
    statistics = statistics_given_base(model, databases, parameters, carried, detail=detail)
    density = density_given_base(model, databases, parameters, carried, statistics, detail=detail)
    if weighted:
        density += weight_of_base(parameters, carried, detail=detail)
    gradient = gradient_of(density, parameters) if slopes else []
    misfit, noise_precision = misfit_of_releases(model, statistics)
    graphs = {
        "base": Graph(carried.base, values),
        "noncentred": Graph([density, *gradient], carried.columns),
        "forward": Graph(carried.values, carried.columns),
        "released": Graph([misfit], carried.columns),
    }
    return graphs, noise_precision, statistics


def misfit_of_releases(
    model: Model, statistics: Mapping[TensorVariable, TensorVariable]
) -> tuple[TensorVariable, np.ndarray]:
    """Return the statistics of all releases less what was published, and 1 / scale² of the noise.

    Both are empty where some noise is not additive.
    """
    mechanisms = [release.owner.op.mechanism for release in statistics]
    if not statistics or not all(isinstance(m, _ADDITIVE) for m in mechanisms):
        return pt.zeros(0), np.empty(0)
    scales = [
        np.broadcast_to(m.scale, statistic.type.shape).ravel()
        for m, statistic in zip(mechanisms, statistics.values(), strict=True)
    ]
    # By group there is a matrix of them.
    parts = [statistic.ravel() for statistic in statistics.values()]
    published = [model.rvs_to_values[release].ravel() for release in statistics]
    misfit = pt.concatenate(parts) - pt.concatenate(published).astype("float64")
    return misfit, 1 / np.concatenate(scales) ** 2


def _is_smooth(records: Sequence[TensorVariable]) -> bool:
    """Tell whether records that are carried along move smoothly: integers do not."""
    return all(np.dtype(rv.dtype).kind == "f" for rv in records)
