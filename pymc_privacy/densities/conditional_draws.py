"""Records of few values, drawn given all that is known of each alone: nothing is left to reject.

Given the parameters, a record in cell v has log weight l_v = log f(v) + log w(v), with w all that
the model says of this record besides (a local release, another observed variable). The cells are
few, so the law e^{l_v} / sum_u e^{l_u} is drawn from directly. A central release is all that a
proposal from it has still to be accepted by, since f w cancels from the ratio.
"""

from __future__ import annotations

from functools import reduce

import numpy as np
import pytensor.tensor as pt

from pymc_privacy._compat import CategoricalRV, Model, TensorVariable, graph_replace
from pymc_privacy.densities.clipped_records import answered_draws, answered_records
from pymc_privacy.model.cells import Cells, NotCounted, find_cells
from pymc_privacy.model.columns import float_columns
from pymc_privacy.model.database import Database
from pymc_privacy.model.factors import by_row, log_densities

# Every cell costs about as much as a proposal does.
MOST_CELLS = 32


def conditional_draws(database: Database) -> list[TensorVariable] | None:
    """Return fresh records given their factors, and their contribution columns, by values.

    None where records have too many values, or no factors of their own. Normal records that are
    known by a clipped, noised value alone are drawn from what is a few pieces of Normal laws.
    """
    model = database.model
    if (answered := answered_records(database)) is not None:
        return [answered_draws(answered)]
    if (cells := few_cells(database)) is None:
        return None
    drawn = _draw(log_weights(database, cells), database.size)
    fresh = {}
    for rv, table in zip(cells.records, cells.values(), strict=True):
        value = model.rvs_to_values[rv]
        fresh[value] = value.type.filter_variable(_look_up(table, drawn).astype(value.dtype))
    contributions = model.replace_rvs_by_values(float_columns(database.contributions))
    columns = graph_replace(contributions, fresh, strict=False) if contributions else []
    return [*fresh.values(), *columns]


def few_cells(database: Database) -> Cells | None:
    """Return the values that records with factors of their own can take, if these are few."""
    transforms = [database.model.rvs_to_transforms[rv] for rv in database.records]
    if not database.record_factors or any(transform is not None for transform in transforms):
        return None
    try:
        cells = find_cells(database.records)
    except NotCounted:
        return None
    return cells if cells.size <= MOST_CELLS else None


def log_weights(database: Database, cells: Cells) -> list[TensorVariable]:
    """Return log f(v) + log w(v) of each record, a vector for every cell v."""
    model = database.model
    plain = [rv for rv in cells.records if not _is_looked_up(rv)]
    terms = log_densities(model, [*plain, *database.record_factors])
    density = reduce(pt.add, [by_row(term) for term in terms])
    logs = []
    for values in zip(*cells.values(), strict=True):
        pairs = list(zip(cells.records, values, strict=True))
        looked_up = [
            pt.log(_probabilities(model, rv)[..., value])
            for rv, value in pairs
            if _is_looked_up(rv)
        ]
        everywhere = {}
        for rv, value in pairs:
            symbol = model.rvs_to_values[rv]
            rows = pt.full((database.size, *np.shape(value)), value, dtype=symbol.dtype)
            everywhere[symbol] = symbol.type.filter_variable(rows)
        here = reduce(pt.add, [density, *looked_up])
        logs.append(graph_replace(here, everywhere, strict=False))
    return logs


def _is_looked_up(rv: TensorVariable) -> bool:
    """Tell whether the probability of a known value needs no look at every record."""
    return isinstance(rv.owner.op, CategoricalRV) and rv.ndim == 1


def _probabilities(model: Model, rv: TensorVariable) -> TensorVariable:
    return model.replace_rvs_by_values(rv.owner.op.dist_params(rv.owner))[0]


def _draw(logs: list[TensorVariable], size: int) -> TensorVariable:
    """Draw a cell for each record, by one uniform number each."""
    rng = pt.random.shared_rng(seed=None)
    _, uniform = pt.random.uniform(size=(size,), rng=rng, return_next_rng=True)
    if len(logs) == 2:
        # U < 1 / (1 + e^{l_0 - l_1}) for the second cell.
        return (uniform * (1 + pt.exp(logs[0] - logs[1])) < 1).astype("int64")
    # Stacked, since an expression of all cells at once would have too many operands.
    stacked = pt.stack([pt.broadcast_to(log, (size,)) for log in logs])
    ends = pt.exp(stacked - stacked.max(axis=0)).cumsum(axis=0)
    return pt.ge(uniform * ends[-1], ends[:-1]).sum(axis=0).astype("int64")


def _look_up(table: np.ndarray, drawn: TensorVariable) -> TensorVariable:
    """Return the values of the drawn cells."""
    if table.ndim == 1 and (table == table[0] + range(len(table))).all():
        return drawn + table[0]
    return pt.constant(table)[drawn]
