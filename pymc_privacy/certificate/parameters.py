"""The identities between the programs of `targets.interweave` and the plain model.

With L the log density of the model, q and q' two values of the parameters, x records and
x = T(q, u):

    centred(q', x) - centred(q, x)          = L(q', x) - L(q, x)
    forward(q, base(q, x))                  = x
    noncentred(q', u) - noncentred(q, u)    = the same change of all terms but the records'
                                              at x' = T(q', u), and of the log weight of u
    log f(x_i | q) + log |det dx_i / du_i|  = the same at q', for real records: the law of u
                                              knows no parameter
    released(q, u)                          = the statistic of x less the release
    refresh(q')                             = all terms but the records', at what it drew
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from pymc_privacy._compat import BernoulliRV, CategoricalRV, Model, TensorVariable, ancestors
from pymc_privacy.certificate.base import (
    MANY_VALUES,
    Comparison,
    Pair,
    Reference,
    Terms,
    beyond,
    first_number,
    log_density_change,
    plain_function,
)
from pymc_privacy.certificate.clipped_records import panels_of
from pymc_privacy.certificate.laws import law_gap, mean_log_range
from pymc_privacy.densities.carrying import CarriedRecords, carry_records
from pymc_privacy.model.cells import find_cells
from pymc_privacy.model.database import Database, factors_given_records
from pymc_privacy.model.domains import cheap_conditions
from pymc_privacy.model.points import Point, conditional_sampler
from pymc_privacy.model.releases import groups_of, observed_value
from pymc_privacy.targets.base import ParameterProgram

# Draws at which records are taken apart and put together again, and how many where they are many.
_ROUND_TRIPS, _FEW_ROUND_TRIPS = 16, 4
_STEPS = (1e-5, 1e-8)
# At two points.
MOST_SLOPES = 2 * len(_STEPS)
_MOST_COORDINATES = 6

LogWeight = Callable[[Point, Sequence[np.ndarray]], float]
"""The log density of base variates, as a function of a point and of them."""


def compare_parameters(
    program: ParameterProgram,
    databases: Sequence[Database],
    reference: Reference,
    pairs: Sequence[Pair],
    draws: Iterator[Point] | None = None,
) -> Iterator[Comparison]:
    """Compare all functions of a program with the model, at pairs of points.

    ``draws`` from the prior are for the laws of base variates, and for the edges of the support.
    """
    if not program.size:
        return
    if program.sums_out:
        yield from _summed_out(program, databases, reference, pairs)
        return
    yield from compare_centred(program, databases, reference, pairs)
    if not program.interweaves:
        yield from _refreshed(program, databases, reference, pairs)
        return
    yield from compare_given_base(program, databases, reference, pairs, draws)


def compare_given_base(
    program: ParameterProgram,
    databases: Sequence[Database],
    reference: Reference,
    pairs: Sequence[Pair],
    draws: Iterator[Point] | None = None,
) -> Iterator[Comparison]:
    """Compare what a program makes of base variates with the model."""
    carried = carry_records(reference.model, _records(databases))
    assert carried is not None
    yield from _noncentred(program, databases, reference, pairs, carried)
    if draws is not None:
        yield from _domain(program, databases, reference, beyond(pairs, program.parameters))
        yield from _round_trips(program, databases, reference, draws)
        for database in databases:
            yield from _carried_law(program, database, reference, pairs[0], carried)
            yield from _widths_of_cells(program, database, reference, pairs)


def _records(databases: Iterable[Database]) -> list[TensorVariable]:
    return [rv for database in databases for rv in database.records]


def _names(variables: Iterable[TensorVariable]) -> list[str]:
    return [variable.name for variable in variables]


def _others(reference: Reference, databases: Sequence[Database]) -> list[str]:
    records = set(_names(_records(databases)))
    return [name for name in reference.factors if name not in records]


def _held(program: ParameterProgram, point: Point) -> tuple[np.ndarray, ...]:
    return tuple(point[name] for name in program.held)


def _at(program: ParameterProgram, point: Point) -> tuple[np.ndarray, ...]:
    return tuple(point[name] for name in program.records)


def compare_centred(
    program: ParameterProgram,
    databases: Sequence[Database],
    reference: Reference,
    pairs: Sequence[Pair],
) -> Iterator[Comparison]:
    """Compare the density of parameters given records, and its gradient, with the model."""
    model = reference.model
    parameters = [v for v in model.value_vars if v.name in program.parameters]
    names = _names(factors_given_records(model, databases, parameters))
    slopes: list[Comparison] = []
    for label, here, there in pairs:
        before, after = reference.terms(here), reference.terms(there)
        if not math.isfinite(before.total(names)):
            continue
        q, held, x = program.flatten(here), _held(program, here), _at(program, here)
        density = program.given_records(q, held, x)
        found = first_number(density(program.flatten(there))) - first_number(density(q))
        what = f"the change of the log density of parameters given records ({label})"
        yield log_density_change(what, before, after, names, found)
        if len(slopes) < MOST_SLOPES:
            slopes += slopes_at(program, reference, names, here, density(q), before)
    yield from best(slopes)


def slopes_at(
    program: ParameterProgram,
    reference: Reference,
    names: Collection[str],
    point: Point,
    found: Sequence[np.ndarray],
    terms: Terms,
) -> list[Comparison]:
    """Compare the gradient behind a centred density, if there is any, with differences."""
    if "centred" not in program.gradients:
        return []
    gradient = np.asarray(found[1])
    # Where an exponential overflows there is no slope to compare.
    if not np.isfinite(gradient).all():
        return []
    slopes = [
        _slope(program, reference, names, point, gradient, terms.scale, step) for step in _STEPS
    ]
    if any(slope.agrees for slope in slopes):
        return slopes
    lost = terms.rounding(names)
    return [
        slope._replace(rounding=lost / step) for slope, step in zip(slopes, _STEPS, strict=True)
    ]


def _slope(
    program: ParameterProgram,
    reference: Reference,
    names: Collection[str],
    point: Point,
    gradient: np.ndarray,
    scale: float,
    step: float,
) -> Comparison:
    """Compare a gradient, along one direction, with a difference of the model's log density."""
    q = program.flatten(point)
    direction = np.random.default_rng(5).standard_normal(q.size)
    up, down = (
        reference.terms(point | program.unflatten(q + side * direction)).total(names)
        for side in (step, -step)
    )
    parts = gradient * direction
    # Neither a step nor a sum of terms is more exact than its last digit.
    lost = 1e-15 * np.abs(q).max() / step
    tolerance = (1e-4 + lost) * (1 + np.abs(parts).sum()) + 1e-12 * scale / step
    what = "the slope of the log density of parameters given records"
    with np.errstate(invalid="ignore"):
        return Comparison(what, (up - down) / (2 * step), parts.sum(), tolerance=tolerance)


def best(comparisons: Sequence[Comparison]) -> list[Comparison]:
    """Return one that agrees if there is any: at a kink, or by too long a step, none does."""
    return sorted(comparisons, key=lambda c: not (c.agrees and c.is_informative))[:1]


def _noncentred(
    program: ParameterProgram,
    databases: Sequence[Database],
    reference: Reference,
    pairs: Sequence[Pair],
    carried: CarriedRecords,
) -> Iterator[Comparison]:
    names = _others(reference, databases)
    weight = log_weight(reference.model, carried)
    is_weighted = bool(carried.base_log_weights)
    for label, here, there in pairs:
        before = reference.terms(here)
        if not math.isfinite(before.total(reference.factors)):
            continue
        held, x = _held(program, here), _at(program, here)
        q, r = program.flatten(here), program.flatten(there)
        u = base_of(program, np.random.default_rng(7), q, held, x)
        moved = dict(zip(program.records, program.functions["forward"](r, *held, *u), strict=True))
        after = reference.terms(there | moved)
        found = [first_number(program.functions["noncentred"](v, *held, *u)) for v in (q, r)]
        moved_weight = weight(there, u)
        more = moved_weight - weight(here, u)
        what = f"the change of the log density of parameters given base variates ({label})"
        yield log_density_change(what, before, after, names, found[1] - found[0], more)
        yield from same_records(program, q, held, u, x, label)
        # Where base variates have no density, records are no numbers, and no move may go.
        to, at = (there | moved, r) if math.isfinite(moved_weight) else (here, q)
        yield from _misfit(program, databases, reference, to, (at, *held, *u), label)
        if not is_weighted and sum(a.size for a in x) <= MANY_VALUES:
            for database in databases:
                moves = _moves_of(program, database, carried, held, u)
                yield from _law_of_base(moves, (q, r), (before, after), database, label)


def _domain(
    program: ParameterProgram,
    databases: Sequence[Database],
    reference: Reference,
    pairs: Sequence[Pair],
) -> Iterator[Comparison]:
    """Compare densities where a law of the records has no such parameters, and no move may go."""
    values = reference.model.value_vars
    holds = plain_function(values, cheap_conditions(reference.model, _records(databases)))
    for label, here, there in pairs:
        if all(np.all(value) for value in holds(*(there[v.name] for v in values))):
            continue
        held, x = _held(program, here), _at(program, here)
        q, r = program.flatten(here), program.flatten(there)
        u = base_of(program, np.random.default_rng(7), q, held, x)
        known = [("given base variates", program.functions["noncentred"](r, *held, *u))]
        if "centred" in program.functions:
            known.append(("given records", program.given_records(q, held, x)(r)))
        for what, found in known:
            what = f"the log density of parameters {what}, outside of the domain of a law ({label})"
            yield Comparison(what, -math.inf, first_number(found))


def base_of(
    program: ParameterProgram,
    rng: np.random.Generator,
    q: np.ndarray,
    held: tuple[np.ndarray, ...],
    x: tuple[np.ndarray, ...],
) -> tuple[np.ndarray, ...]:
    """Return the base variates of records."""
    return tuple(np.ascontiguousarray(c) for c in program.functions["base"](rng, q, *held, *x))


def log_weight(model: Model, carried: CarriedRecords) -> LogWeight:
    """Return the log density of base variates as a function of a point and of them."""
    if not carried.base_log_weights:
        return lambda point, u: 0.0
    values = model.value_vars
    function = plain_function([*values, *carried.columns], carried.base_log_weights)

    def weight(point: Point, u: Sequence[np.ndarray]) -> float:
        with np.errstate(all="ignore"):
            parts = function(*(point[v.name] for v in values), *u)
        return math.fsum(float(np.sum(part)) for part in parts)

    return weight


def same_records(
    program: ParameterProgram,
    q: np.ndarray,
    held: tuple[np.ndarray, ...],
    u: tuple[np.ndarray, ...],
    x: tuple[np.ndarray, ...],
    label: str,
) -> Iterator[Comparison]:
    """Compare records with what their base variates stand for."""
    back = program.functions["forward"](q, *held, *u)
    for name, record, again in zip(program.records, x, back, strict=True):
        size = np.abs(np.asarray(record, float))
        # Far out, single records may be rounded by more than others.
        tolerance = 1e-6 * (1 + size) + 1e-12 * size.max(initial=0.0)
        what = f"{name!r} put together again from its base variates ({label})"
        yield Comparison(what, record, again, tolerance=tolerance)


def _misfit(
    program: ParameterProgram,
    databases: Sequence[Database],
    reference: Reference,
    point: Point,
    arguments: tuple[np.ndarray, ...],
    label: str,
) -> Iterator[Comparison]:
    misfit = np.asarray(program.functions["released"](*arguments)[0])
    # Where noise is not added to a statistic, the release need not be of its shape.
    if not misfit.size:
        return
    expected, scale = statistics_less_releases(databases, reference, point)
    if not expected:
        return
    what = f"the distance of a statistic from its release ({label})"
    yield Comparison(what, np.concatenate(expected), misfit, tolerance=1e-8 * (1 + scale))


def statistics_less_releases(
    databases: Sequence[Database], reference: Reference, point: Point
) -> tuple[list[np.ndarray], float]:
    """Return the distance of each statistic from its release, and the size of what was added up."""
    expected, scale = [], 0.0
    for release in (release for database in databases for release in database.releases):
        contributions = reference.contributions(point, [release.name])
        published = np.ravel(np.asarray(observed_value(reference.model, release), float))
        op, parameters = release.owner.op, [contributions.T]
        if (group := groups_of(release)) is not None:
            parameters.append(group)
        # A single column has been a vector.
        expected.append(np.ravel(op.total(*parameters)) - published)
        scale += float(np.abs(contributions).sum())
    return expected, scale


class _Moves(NamedTuple):
    """The base variates of one database, and its records as a function of them."""

    u: list[np.ndarray]
    forward: Callable[[np.ndarray, Sequence[np.ndarray]], list[np.ndarray]]


def _moves_of(
    program: ParameterProgram,
    database: Database,
    carried: CarriedRecords,
    held: tuple[np.ndarray, ...],
    u: tuple[np.ndarray, ...],
) -> _Moves:
    above = set(ancestors([carried.natural[rv] for rv in database.records]))
    places = [k for k, column in enumerate(carried.columns) if column in above]
    names = {database.model.rvs_to_values[rv].name for rv in database.records}

    def forward(q: np.ndarray, ours: Sequence[np.ndarray]) -> list[np.ndarray]:
        columns = list(u)
        for k, column in zip(places, ours, strict=True):
            columns[k] = column
        made = program.functions["forward"](q, *held, *columns)
        return [part for name, part in zip(program.records, made, strict=True) if name in names]

    return _Moves([u[k] for k in places], forward)


def _law_of_base(
    moves: _Moves,
    parameters: Sequence[np.ndarray],
    terms: Sequence[Terms],
    database: Database,
    label: str,
) -> Iterator[Comparison]:
    """Compare log f(x_i) + log |det dx_i/du_i| at two parameters, record by record."""
    found = [_log_jacobian(moves, q, database.size) for q in parameters]
    logs = [log for log in found if log is not None]
    if len(logs) < len(found):
        return
    names = _names(database.records)
    rows = [t.rows(names, database.size) + log[0] for t, log in zip(terms, logs, strict=True)]
    with np.errstate(invalid="ignore"):
        change = rows[1] - rows[0]
        # What a difference quotient loses where the record is large beside its own change.
        lost = logs[0][1] + logs[1][1]
        allowed = 1e-4 * (1 + np.abs(rows[0])) + 8 * lost
        known = np.isfinite(change) & np.isfinite(allowed) & (lost < 0.1)
    if not known.any():
        return
    # Some rows may sit at a kink of T.
    worst = np.quantile(np.abs(change[known]) / allowed[known], 0.98)
    what = f"the change of the law of base variates with the parameters ({label}), in tolerances"
    yield Comparison(what, 0.0, worst, tolerance=1.0)


def _log_jacobian(moves: _Moves, q: np.ndarray, size: int) -> tuple[np.ndarray, np.ndarray] | None:
    """Return log |det dx_i/du_i| by differences, and how much of it rounding may be."""
    u, width = moves.u, len(moves.u)
    if width > _MOST_COORDINATES or any(column.ndim != 1 for column in u):
        return None
    jacobian = np.empty((size, width, width))
    lost = np.zeros(size)
    for k in range(width):
        step = 1e-4 * np.maximum(np.abs(u[k]), 1e-3)
        sides = []
        for sign in (1, -1):
            moved = [*u[:k], np.ascontiguousarray(u[k] + sign * step), *u[k + 1 :]]
            made = moves.forward(q, moved)
            if any(np.asarray(part).dtype.kind != "f" for part in made):
                return None
            sides.append(np.concatenate([np.reshape(part, (size, -1)) for part in made], axis=1))
        if sides[0].shape[1] != width:
            return None
        with np.errstate(all="ignore"):
            jacobian[:, :, k] = (sides[0] - sides[1]) / (2 * step)[:, None]
            change = np.abs(sides[0] - sides[1]).max(axis=1)
            lost += 1e-15 * np.abs(sides[0]).max(axis=1) / change
    with np.errstate(all="ignore"):
        return np.linalg.slogdet(jacobian)[1], lost


def _round_trips(
    program: ParameterProgram,
    databases: Sequence[Database],
    reference: Reference,
    draws: Iterable[Point],
) -> Iterator[Comparison]:
    names = _names(_records(databases))
    for number, point in enumerate(draws, start=1):
        if math.isfinite(reference.terms(point).total(names)):
            q, held, x = program.flatten(point), _held(program, point), _at(program, point)
            u = base_of(program, np.random.default_rng(7), q, held, x)
            yield from same_records(program, q, held, u, x, "at a draw from the prior")
        many = sum(point[name].size for name in program.records) > MANY_VALUES
        if number >= (_FEW_ROUND_TRIPS if many else _ROUND_TRIPS):
            return


def _carried_law(
    program: ParameterProgram,
    database: Database,
    reference: Reference,
    pair: Pair,
    carried: CarriedRecords,
) -> Iterator[Comparison]:
    """Compare the law of records that were drawn at one point and carried to another."""
    if carried.base_log_weights:
        return
    records = [rv for rv in reference.model.free_RVs if _value(reference, rv) in program.records]
    draw = conditional_sampler(reference.model, records)
    names = [_value(reference, rv) for rv in records]
    ours = [_value(reference, rv) for rv in database.records]

    def fresh(rng: np.random.Generator) -> Point:
        return dict(zip(names, draw(rng, pair.here), strict=True))

    q, r, held = program.flatten(pair.here), program.flatten(pair.there), _held(program, pair.here)

    def carry(rng: np.random.Generator) -> Point:
        x = fresh(rng)
        u = base_of(program, rng.spawn(1)[0], q, held, tuple(x[name] for name in program.records))
        moved = program.functions["forward"](r, *held, *u)
        return dict(zip(program.records, moved, strict=True))

    def kept(draws: Point) -> Point:
        return {name: draws[name] for name in ours}

    yield law_gap(
        "the law of records carried along",
        reference,
        database,
        (pair.here, pair.there),
        (lambda rng: kept(fresh(rng)), lambda rng: kept(carry(rng))),
    )


def _value(reference: Reference, rv: TensorVariable) -> str:
    return reference.model.rvs_to_values[rv].name


def _widths_of_cells(
    program: ParameterProgram, database: Database, reference: Reference, pairs: Sequence[Pair]
) -> Iterator[Comparison]:
    """Given a count, u fills a cell as wide as the count is probable."""
    [rv, *more] = database.records
    if more or len(program.records) != 1 or rv.ndim != 1:
        return
    # Other counts keep logs of faint tails instead of u.
    if not isinstance(rv.owner.op, BernoulliRV | CategoricalRV):
        return
    draws = 32
    for label, here, _ in pairs[:2]:
        q, held, x = program.flatten(here), _held(program, here), _at(program, here)
        rng = np.random.default_rng(61)
        columns = [base_of(program, child, q, held, x) for child in rng.spawn(draws)]
        if len(columns[0]) != 1:
            return
        # What is kept of u may be its distance from either end.
        u = np.mod([column[0] for column in columns], 1.0)
        with np.errstate(all="ignore"):
            gaps = np.log(np.maximum(np.ptp(u, axis=0), 1e-300)) - mean_log_range(draws)
            gaps = gaps - reference.terms(here).by_name[rv.name]
        gaps = gaps[np.isfinite(gaps)]
        if gaps.size:
            what = f"the log width of a count's cell of u, less its log probability ({label})"
            tolerance = 6 * 0.05 / math.sqrt(gaps.size) + 1e-3
            yield Comparison(what, 0.0, gaps.mean(), tolerance=tolerance)


def _refreshed(
    program: ParameterProgram,
    databases: Sequence[Database],
    reference: Reference,
    pairs: Sequence[Pair],
) -> Iterator[Comparison]:
    names = _others(reference, databases)
    for label, here, there in pairs:
        before = reference.terms(here)
        if not math.isfinite(before.total(names)):
            continue
        held = _held(program, here)
        others = program.functions["others"](program.flatten(here), *held, *_at(program, here))
        rng = np.random.default_rng(3)
        density, *fresh = program.functions["refresh"](rng, program.flatten(there), *held)
        after = reference.terms(there | dict(zip(program.records, fresh, strict=True)))
        found = float(np.asarray(density)) - first_number(others)
        what = f"the change of the log density of all but the records ({label})"
        yield log_density_change(what, before, after, names, found)


def _summed_out(
    program: ParameterProgram,
    databases: Sequence[Database],
    reference: Reference,
    pairs: Sequence[Pair],
) -> Iterator[Comparison]:
    for label, here, there in pairs:
        (before, scale), (after, more) = (
            _marginal(reference, databases, point) for point in (here, there)
        )
        if not math.isfinite(before):
            continue
        q, held, x = program.flatten(here), _held(program, here), _at(program, here)
        density = program.given_records(q, held, x)
        r = program.flatten(there)
        rng = np.random.default_rng(3)
        refreshed = program.functions["refresh"](rng, r, *held)
        others = program.functions["others"](q, *held, *x)
        what = f"the change of the log density of parameters, records summed out ({label})"
        for found in (
            first_number(density(r)) - first_number(density(q)),
            first_number(refreshed) - first_number(others),
        ):
            yield Comparison(what, after - before, found, scale + more)


def _marginal(
    reference: Reference, databases: Sequence[Database], point: Point
) -> tuple[float, float]:
    """Return the log density with every record summed or integrated out, and its scale."""
    total, scale, ours = 0.0, 0.0, set()
    for database in databases:
        names = _names([*database.records, *database.record_factors])
        ours |= set(names)
        logs = _summed(reference, database, point, names)
        total, scale = total + float(logs.sum()), scale + float(np.abs(logs).sum())
    terms = reference.terms(point)
    rest = terms.total([name for name in reference.factors if name not in ours])
    return total + rest, scale + terms.scale


def _summed(
    reference: Reference, database: Database, point: Point, names: Collection[str]
) -> np.ndarray:
    """Return the log of what is left of each record, summed over its values or integrated."""
    if (panels := panels_of(reference, database, point)) is not None:
        return panels.whole
    rows = [
        reference.terms(at).rows(names, database.size)
        for at in everywhere(reference, database, point)
    ]
    with np.errstate(all="ignore"):
        return np.logaddexp.reduce(np.array(rows), axis=0)


def everywhere(reference: Reference, database: Database, point: Point) -> Iterator[Point]:
    """Yield a point for each joint value that records can have, with all records there."""
    cells = find_cells(database.records)
    for values in zip(*cells.values(), strict=True):
        at = dict(point)
        for rv, value in zip(cells.records, values, strict=True):
            name = _value(reference, rv)
            at[name] = np.broadcast_to(value, point[name].shape).astype(point[name].dtype)
        yield at
