"""What `pymc_privacy.algorithms.importance` needs to know of a model, compiled."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from pymc_privacy._compat import Model
from pymc_privacy.densities.carrying import carry_records
from pymc_privacy.densities.parameters import Detail, weight_of_base
from pymc_privacy.errors import RecordError
from pymc_privacy.model.database import Database
from pymc_privacy.model.start import start_of
from pymc_privacy.targets.ascent import parameters_of
from pymc_privacy.targets.base import Graph, ParameterProgram, compile_program
from pymc_privacy.targets.interweave import graphs_given_base


def compile_importance(
    model: Model, databases: Sequence[Database], *, detail: Detail = Detail.STATISTICS
) -> ParameterProgram:
    """Compile what weights are made of, for all continuous parameters of a model.

    ``base``, ``forward`` and ``released`` as in
    `pymc_privacy.targets.interweave.compile_parameters`;
    ``unweighted(q, *held, *u)`` is log p(parameters, releases, … | u), without that of u;
    ``fresh(rng, q, *held)`` returns the u of fresh records, by columns;
    ``weight(q, *held, *u)`` is log p(u | q), up to a function of u alone.
    """
    records = [rv for database in databases for rv in database.records]
    carried = carry_records(model, records)
    if carried is None:
        raise RecordError("All records must have a form x = T(parameters, u); these have none.")
    parameters = [model.rvs_to_values[rv] for rv in parameters_of(model)]
    values = [model.rvs_to_values[rv] for rv in records]
    graphs, noise_precision, _ = graphs_given_base(
        model, parameters, databases, carried, values, detail, slopes=False, weighted=False
    )
    graphs["unweighted"] = graphs.pop("noncentred")
    graphs["fresh"] = Graph(carried.fresh)
    weight = weight_of_base(parameters, carried, detail=detail).astype("float64")
    graphs["weight"] = Graph([weight], carried.columns)
    program = compile_program(
        model,
        parameters,
        values,
        graphs,
        point=start_of(model),
        drawing=("base", "fresh"),
    )
    return replace(program, noise_precision=noise_precision)
