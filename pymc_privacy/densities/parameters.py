"""Log densities of the parameters: given the records, and given what those are made of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import Enum
from functools import reduce
from typing import Any, NamedTuple

import numpy as np
import pytensor.tensor as pt

from pymc_privacy._compat import Model, TensorVariable, Variable, graph_replace
from pymc_privacy.densities.carrying import CarriedRecords
from pymc_privacy.functions.generators import given_others, in_value_coordinates
from pymc_privacy.model.columns import float_columns, group_sums
from pymc_privacy.model.database import Database, factors_given_records
from pymc_privacy.model.domains import cheap_conditions
from pymc_privacy.model.factors import factors_of, joint_log_density, log_densities
from pymc_privacy.model.marks import is_record
from pymc_privacy.model.releases import contributions_of, groups_of, release_density
from pymc_privacy.model.rows.densities import row_density
from pymc_privacy.model.rows.expressions import NotByRows, RowExpressions, simplified
from pymc_privacy.model.rows.sufficient import NotSufficient, sufficient
from pymc_privacy.model.rows.sums import row_sums


class Detail(Enum):
    """How far a density is taken apart: the further, the faster."""

    STATISTICS = "by sums over the records that no parameter enters"
    ROWS = "by one loop over the records"
    WHOLE = "as PyMC has it"


class CentredDensity(NamedTuple):
    """The density of parameters given the records, in two stages."""

    statistics: TensorVariable
    """A vector of sums over the records, perhaps empty, that no parameter enters."""
    totals: TensorVariable
    """Stands for the values of these sums."""
    density: TensorVariable
    """A function of the parameters, of the totals, and of the records if these do not do."""


def density_given_records(
    model: Model,
    databases: Sequence[Database],
    parameters: Sequence[Variable],
    *,
    detail: Detail = Detail.STATISTICS,
) -> CentredDensity:
    """Return the log density of parameters given all else, without the constant releases."""
    terms = _terms(model, factors_given_records(model, databases, parameters), detail)
    totals = pt.vector("totals")
    density = pt.constant(0.0)
    statistics: list[TensorVariable] = []
    # Effects of groups are carried as records are; but what sees both belongs to the records.
    for database in sorted(databases, key=lambda d: not any(map(is_record, d.records))):
        leaves = [model.rvs_to_values[rv] for rv in database.records]
        rows = RowExpressions(leaves, parameters)
        ours = [term for term in terms if rows.depends_on_records(term)]
        terms = [term for term in terms if term not in set(ours)]
        written, whole = _written_out(rows, ours, detail)
        try:
            if detail is not Detail.STATISTICS:
                raise NotSufficient
            split = sufficient(written.values(), rows)
            density += split.density(totals[len(statistics) :])
            statistics += split.statistics
        except NotSufficient:
            density += _loop(written, rows)
        density = reduce(pt.add, [term.sum() for term in whole], density)
    density = reduce(pt.add, [term.sum() for term in terms], density)
    vector = pt.stack(statistics) if statistics else pt.zeros(0)
    return CentredDensity(vector.astype("float64"), totals, density)


def density_given_base(
    model: Model,
    databases: Sequence[Database],
    parameters: Sequence[Variable],
    carried: CarriedRecords,
    statistics: Mapping[TensorVariable, TensorVariable],
    *,
    detail: Detail = Detail.STATISTICS,
) -> TensorVariable:
    """Return the log density of parameters given base variates, records following from both.

    ``statistics`` are those of `statistics_given_base`. The density of the base variates
    themselves is left to `weight_of_base`.
    """
    records = {rv for database in databases for rv in database.records}
    releases = {r for database in databases for r in database.releases}
    factors = [f for f in factors_of(model) if f not in records | releases]
    density = pt.constant(0.0)
    for term in _terms(model, factors, detail):
        rows = RowExpressions(carried.columns, parameters)
        density += _summed(graph_replace(term, carried.by_value, strict=False), rows, detail)
    for release, statistic in statistics.items():
        density += release_density(model, release, statistic)
    return _within_domain(model, databases, density, carried.by_value)


def _within_domain(
    model: Model,
    databases: Sequence[Database],
    density: TensorVariable,
    replaced: Mapping[Variable, TensorVariable],
) -> TensorVariable:
    """Return a density without the records' own that is zero where these have none."""
    records = [rv for database in databases for rv in database.records]
    conditions = cheap_conditions(model, records)
    if not conditions:
        return density
    holds = [pt.all(pt.as_tensor(condition)) for condition in conditions]
    if replaced:
        holds = graph_replace(holds, dict(replaced), strict=False)
    return pt.switch(reduce(pt.and_, holds), density, -np.inf)


def weight_of_base(
    parameters: Sequence[Variable],
    carried: CarriedRecords,
    *,
    detail: Detail = Detail.STATISTICS,
) -> TensorVariable:
    """Return the log density of the base variates, as far as parameters enter it."""
    rows = RowExpressions(carried.columns, parameters)
    sums = [_column_sums(weight, rows, detail).sum() for weight in carried.base_log_weights]
    return reduce(pt.add, sums, pt.constant(0.0))


def statistics_given_base(
    model: Model,
    databases: Sequence[Database],
    parameters: Sequence[Variable],
    carried: CarriedRecords,
    *,
    detail: Detail = Detail.STATISTICS,
) -> dict[TensorVariable, TensorVariable]:
    """Return the statistic behind each central release, as a function of base variates."""
    found = {}
    for database in databases:
        rows = RowExpressions(carried.columns, parameters)
        for release in database.releases:
            moved = graph_replace(contributions_of(release), carried.natural, strict=False)
            [moved] = given_others(model, [moved], [])
            if (group := groups_of(release)) is None:
                found[release] = _column_sums(moved, rows, detail)
            else:
                parts = [moved] if detail is Detail.WHOLE else simplified([moved])
                number = release.owner.op.groups
                found[release] = group_sums(parts[0], pt.constant(group), number)
    return found


def density_of_others(model: Model, databases: Sequence[Database]) -> TensorVariable:
    """Return the log density of all factors but the records themselves, by values."""
    records = {rv for database in databases for rv in database.records}
    density = joint_log_density(
        model, [factor for factor in factors_of(model) if factor not in records]
    )
    return _within_domain(model, databases, density, {})


def fresh_records(model: Model, databases: Sequence[Database]) -> list[TensorVariable]:
    """Return the density of all others at a draw of all records, and the draw (random graphs)."""
    records = [rv for database in databases for rv in database.records]
    fresh = [in_value_coordinates(model, rv) for rv in records]
    drawn = {
        (value := model.rvs_to_values[rv]): value.type.filter_variable(draw)
        for rv, draw in zip(records, fresh, strict=True)
    }
    density = graph_replace(density_of_others(model, databases), drawn, strict=False)
    return given_others(model, [density, *drawn.values()], records)


def _column_sums(
    contributions: TensorVariable, rows: RowExpressions, detail: Detail
) -> TensorVariable:
    """Return the total over records, shape () or (d,)."""
    parts = float_columns([contributions])
    try:
        if detail is Detail.WHOLE:
            raise NotByRows
        parts = simplified(parts)
        written = [rows.of(part) for part in parts]
        sums = row_sums(written, rows.columns, rows.constants)
    except NotByRows:
        sums = [part.sum() for part in parts]
    return sums[0] if contributions.ndim == 1 else pt.stack(sums)


Written = dict[TensorVariable, Any]


def _written_out(
    rows: RowExpressions, terms: Sequence[TensorVariable], detail: Detail
) -> tuple[Written, list[TensorVariable]]:
    """Return one record's expression of each term, and the terms that have none."""
    if detail is Detail.WHOLE:
        return {}, list(terms)
    written, whole = {}, []
    for term in simplified(terms):
        try:
            written[term] = rows.of(term)
        except NotByRows:
            whole.append(term)
    return written, whole


def _loop(written: Written, rows: RowExpressions) -> TensorVariable:
    """Return the sum of all terms over all records."""
    if not written:
        return pt.constant(0.0)
    try:
        whole = reduce(lambda a, b: a + b, written.values())
        [total] = row_sums([whole], rows.columns, rows.constants)
    except NotByRows:
        return reduce(pt.add, [term.sum() for term in written])
    return total


def _summed(term: TensorVariable, rows: RowExpressions, detail: Detail) -> TensorVariable:
    if not rows.depends_on_records(term):
        return term.sum()
    written, whole = _written_out(rows, [term], detail)
    return reduce(pt.add, [part.sum() for part in whole], _loop(written, rows))


def _terms(model: Model, factors: Sequence[TensorVariable], detail: Detail) -> list[TensorVariable]:
    """Return the log density of each factor, one number per record where it has records."""
    terms = log_densities(model, factors)
    if detail is Detail.WHOLE:
        return terms
    return [
        term if (written := row_density(model, factor)) is None else written
        for factor, term in zip(factors, terms, strict=True)
    ]
