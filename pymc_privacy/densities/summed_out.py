"""The density of parameters alone, where records of few values can be summed out.

Or Normal ones integrated out, which are known by a clipped, noised value alone.

Without a central release records do not know of each other. Given the parameters, all that the
model says of record i has density sum_v f(v) w_i(v), a sum over its few values. Records of which
the same is known have the same sum: of a million randomized responses there are as many different
ones as categories.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

import numpy as np
import pytensor.tensor as pt

from pymc_privacy._compat import (
    INTERPRETED,
    Constant,
    Model,
    TensorVariable,
    Variable,
    compile_graph,
    disconnected_grad,
)
from pymc_privacy.densities.clipped_records import answered_density, answered_records
from pymc_privacy.densities.conditional_draws import few_cells, log_weights
from pymc_privacy.model.cells import Cells, NotCounted, log_probabilities
from pymc_privacy.model.database import Database
from pymc_privacy.model.factors import by_row, factors_of, joint_log_density, log_densities
from pymc_privacy.model.other_lengths import with_rows
from pymc_privacy.model.points import probing_point

# Sums of fewer different records than this part of all are worth the search for them.
MOST_GROUPS = 0.1


def summed_out(
    model: Model, databases: Sequence[Database], *, integrals: bool = True
) -> TensorVariable | None:
    """Return the log density of everything but the records, which are summed out, by values.

    None where some record has too many values, no factor of its own, or a central release; and,
    without ``integrals``, where it is real.
    """
    parts = [_of_one(database, integrals) for database in databases]
    known = [part for part in parts if part is not None]
    if not databases or len(known) < len(parts):
        return None
    ours = {f for database in databases for f in (*database.records, *database.record_factors)}
    others = [factor for factor in factors_of(model) if factor not in ours]
    return reduce(pt.add, known, joint_log_density(model, others))


def _of_one(database: Database, integrals: bool) -> TensorVariable | None:
    if database.releases:
        return None
    if (answered := answered_records(database)) is not None:
        return answered_density(answered) if integrals else None
    cells = few_cells(database)
    return None if cells is None else _of_database(database, cells)


def _of_database(database: Database, cells: Cells) -> TensorVariable:
    """Return the sum over records of log sum_v f(v) w_i(v), over different ones if they are few."""
    whole = _log_sum(log_weights(database, cells)).sum()
    if (groups := _groups(database)) is None:
        return whole
    rows, counts = groups
    try:
        logs = _group_weights(database, cells, rows)
        grouped = (counts * _log_sum(logs)).sum()
        here, there = _evaluate(database.model, [whole, grouped])
        agree = np.isclose(here, there, rtol=1e-9)
    except (NotCounted, TypeError, ValueError, AssertionError, IndexError):
        # Something else tells the records apart, or knows how many there are.
        return whole
    return grouped if agree else whole


def _group_weights(
    database: Database, cells: Cells, rows: dict[Variable, np.ndarray]
) -> list[TensorVariable]:
    """Return log f(v) + log w(v) for one record of each group, a vector for every cell v."""
    model, size = database.model, len(next(iter(rows.values())))
    data = {symbol: pt.constant(values) for symbol, values in rows.items()}
    law = log_probabilities(model, cells)
    terms = log_densities(model, database.record_factors)
    density = reduce(pt.add, [by_row(term) for term in terms])
    logs = []
    for k, values in enumerate(zip(*cells.values(), strict=True)):
        everywhere = {}
        for rv, value in zip(cells.records, values, strict=True):
            symbol = model.rvs_to_values[rv]
            everywhere[symbol] = pt.full((size, *np.shape(value)), value, dtype=symbol.dtype)
        [here] = with_rows([density], everywhere | data)
        logs.append(law[k] + here)
    return logs


def _log_sum(logs: Sequence[TensorVariable]) -> TensorVariable:
    # Stacked, since an expression of all cells at once would have too many operands.
    stacked = pt.stack(pt.broadcast_arrays(*logs))
    largest = stacked.max(axis=0)
    # A record that nothing allows makes the whole impossible, and not undefined.
    largest = disconnected_grad(pt.switch(pt.isinf(largest), 0.0, largest))
    return largest + pt.log(pt.exp(stacked - largest).sum(axis=0))


def _groups(database: Database) -> tuple[dict[Variable, np.ndarray], np.ndarray] | None:
    """Return the different rows of the factors' data, by symbol, and how many records have each."""
    symbols = [database.model.rvs_to_values.get(weight) for weight in database.record_factors]
    data = [s.data for s in symbols if isinstance(s, Constant)]
    if len(data) < len(symbols) or any(len(d) != database.size for d in map(np.atleast_1d, data)):
        return None
    table = np.column_stack([d.reshape(database.size, -1).astype(np.float64) for d in data])
    _, first, counts = np.unique(table, axis=0, return_index=True, return_counts=True)
    if len(first) > MOST_GROUPS * database.size:
        return None
    return {s: d[first] for s, d in zip(symbols, data, strict=True)}, counts


def _evaluate(model: Model, graphs: Sequence[TensorVariable]) -> list[np.ndarray]:
    function = compile_graph(
        model.value_vars, list(graphs), on_unused_input="ignore", mode=INTERPRETED
    )
    return function(*probing_point(model).values())
