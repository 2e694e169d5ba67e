"""The identities between the programs of counts, lattices and sizes, and the plain model.

With L the log density of the model, q and q' parameters, c and c' counts:

*lattice*. For every kind of move, the change of the moved cells' densities and of the noise is
L(q, c') - L(q, c), and no exact total changes; carried counts have the rates' Poisson
probabilities, and keep the exact totals.

*counts*. centred(q', c') and law(q', c') change as all terms of L(q', x') but the releases' do, x'
any records with these counts, and noise(S'), S' their totals, as those of the releases.

*sized*. centred is that of the records that exist. noncentred, or others and refresh, change as
all terms but the records' do when the size changes too, plus log nu and the log weight of
all base variates. Contributions, factors of the size and the noise are those of the model with
arrays of full capacity.

A gradient steers trajectories, which are exact with any; one that is wrong is slow, and is compared
with differences of L.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Collection, Iterator, Sequence

import numpy as np
from scipy import special

from pymc_privacy._compat import Model, Variable
from pymc_privacy.algorithms import birth_death, lattice_walk
from pymc_privacy.algorithms.adaptation.tuning import Tuning
from pymc_privacy.algorithms.proposals import poisson_carry, tree_draws
from pymc_privacy.certificate.base import (
    Comparison,
    Pair,
    Reference,
    Terms,
    certified,
    disagreements,
    first_number,
    log_density_change,
    rounded,
)
from pymc_privacy.certificate.certifier import Certifier, a_step_away, after_tuning
from pymc_privacy.certificate.parameters import (
    MOST_SLOPES,
    LogWeight,
    base_of,
    best,
    log_weight,
    same_records,
    slopes_at,
)
from pymc_privacy.densities.carrying import carry_records
from pymc_privacy.model.cells import NotCounted
from pymc_privacy.model.database import check_locality
from pymc_privacy.model.points import Point
from pymc_privacy.targets.base import ParameterProgram
from pymc_privacy.targets.birth_death import SizedDatabase, SizedTarget, SizeTarget, log_name
from pymc_privacy.targets.count_states import CountedDatabase, CountTarget, count_target
from pymc_privacy.targets.lattice_walk import LatticeTarget

# Moves of each kind that are looked at, and how far they go.
_MOST_MOVES = 6
_LENGTHS = (1, -3)


# Counts of which totals are known.
def compare_lattice(
    lattice: LatticeTarget, reference: Reference, pairs: Sequence[Pair]
) -> Iterator[Comparison]:
    """Compare the moves of counts, and of parameters that carry them, with the model."""
    # A draw from the prior seldom has the exact totals; what counts is that moves keep them.
    apart = {*lattice.exact_names, *lattice.bound_names}
    names = [name for name in reference.factors if name not in apart]
    for label, here, there in pairs:
        before = reference.terms(here)
        yield from _moves(lattice, reference, names, before, here, label)
        if lattice.draws is not None:
            rates = lattice.draws.rates_at(here)
            yield _poisson(lattice, before, here, rates, label)
            yield from _drawn(lattice, here, rates, label)
        if lattice.carry is not None:
            yield from _carried(lattice, reference, (here, there), label)


def _moves(
    lattice: LatticeTarget,
    reference: Reference,
    names: Collection[str],
    before: Terms,
    here: Point,
    label: str,
) -> Iterator[Comparison]:
    rng = np.random.default_rng(3)
    fibre = lattice.fibre
    ways = [fibre.draw_pairs(rng, way) for way in range(1 + len(fibre.finer))]
    moves = [("alone", fibre.singles, [1]), *(("in pairs", pairs, [1, -1]) for pairs in ways)]
    moves.append(("in fours", fibre.draw_fours(rng), [1, -1, -1, 1]))
    for kind, moved, signs in moves:
        for cells in rng.permutation(moved)[:_MOST_MOVES]:
            for length in _LENGTHS:
                vector = np.zeros(lattice.cells, dtype=np.int64)
                vector[cells] = length * np.array(signs)
                what = f"the change of the log density when cells move {kind} ({label})"
                yield from _move(lattice, reference, names, before, here, vector, cells, what)
    for vector in lattice.fibre.draw_directions(rng)[:_MOST_MOVES]:
        what = f"the change of the log density along a direction ({label})"
        cells = np.arange(vector.size)
        yield from _move(lattice, reference, names, before, here, vector, cells, what)


def _move(
    lattice: LatticeTarget,
    reference: Reference,
    names: Collection[str],
    before: Terms,
    here: Point,
    vector: np.ndarray,
    cells: np.ndarray,
    what: str,
) -> Iterator[Comparison]:
    counts = lattice.read(here)
    moved = dict(here)
    lattice.write(moved, counts + vector)
    totals = lattice.noisy.totals(counts)
    with np.errstate(invalid="ignore"):
        change = lattice.density(here, counts + vector) - lattice.density(here, counts)
        found = float(np.sum(change[cells]))
    # The running totals of the moves themselves.
    for cell in np.flatnonzero(vector):
        found += lattice_walk.shift(cell, vector[cell], totals, *lattice.noisy.noise)
    after = reference.terms(moved)
    # Where a cell cannot be what it was drawn as, others may still move.
    if not math.isnan(found):
        expected = _difference(before, after, names)
        yield rounded(Comparison(what, expected, found), before, after, names)
    exact = np.zeros(lattice.exact.shape[0])
    yield Comparison(f"{what}, exact totals", exact, lattice.exact @ vector)
    inside = [bool(np.all(after.by_name[name] == 0.0)) for name in lattice.bound_names]
    kept = np.all((totals >= lattice.noisy.least) & (totals <= lattice.noisy.most))
    yield Comparison(f"{what}, within bounds", all(inside), kept)


def _difference(before: Terms, after: Terms, names: Collection[str]) -> float:
    """Return the change of the log density; what is impossible before and after has not changed."""
    total = 0.0
    for name in names:
        here, there = before.by_name[name], after.by_name[name]
        with np.errstate(invalid="ignore"):
            total += float(np.where(here == there, 0.0, there - here).sum())
    return total


def _carried(
    lattice: LatticeTarget, reference: Reference, points: tuple[Point, Point], label: str
) -> Iterator[Comparison]:
    """Compare what a move of the parameters with the counts computes, and that it keeps totals."""
    carry = lattice.carry
    assert carry is not None  # or there is nothing to compare
    here, there = points
    others = [n for n in reference.factors if n not in {carry.counts, *carry.measurements}]
    counts, more = (lattice.read(p) for p in points)
    more = np.roll(more, 1) + 1
    program = carry.at(here)
    log_g, rates = program(carry.layout.flatten(here), counts)
    before = reference.terms(here)
    yield _poisson(lattice, before, here, rates, label)
    moved = here | carry.layout.unflatten(carry.layout.flatten(there))
    seen = more if carry.sees_counts else counts
    there_g, _ = program(carry.layout.flatten(there), seen)
    lattice.write(moved, more)
    after = reference.terms(moved)
    what = f"the change of the log density of all but the counts ({label})"
    yield log_density_change(what, before, after, others, there_g - log_g)
    # Whatever the rates are, and wherever people are.
    rng = np.random.default_rng(5)
    some, other = rng.lognormal(size=(2, counts.size))
    people = rng.poisson(9.0, counts.size)
    for groups in carry.groupings:
        found = poisson_carry.carry(rng, people, some, other, groups)
        what = f"exact totals of carried counts ({label})"
        yield Comparison(what, lattice.exact @ people, lattice.exact @ found)


def _poisson(
    lattice: LatticeTarget, before: Terms, here: Point, rates: np.ndarray, label: str
) -> Comparison:
    """Compare the law of counts with the rates that are computed for them."""
    counts = lattice.read(here)
    own = special.xlogy(counts, rates) - rates - special.gammaln(counts + 1.0)
    what = f"the log probability of each Poisson count ({label})"
    return Comparison(what, before.by_name[lattice.name].ravel(), own, before.scale)


def _drawn(
    lattice: LatticeTarget, here: Point, rates: np.ndarray, label: str
) -> Iterator[Comparison]:
    """Compare exact totals before and after counts are drawn at once."""
    assert lattice.draws is not None  # or there is nothing to compare
    counts, rng = lattice.read(here), np.random.default_rng(7)
    for trees in lattice.draws.ways:
        found, _ = tree_draws.step(rng, counts, trees, measurements=lattice.noisy, rates=rates)
        what = f"exact totals of counts that are drawn at once ({label})"
        yield Comparison(what, lattice.exact @ counts, lattice.exact @ found)


# Records that are known by counts.
def certified_counts(
    model: Model, values: Sequence[Variable], compile_kwargs: dict | None = None
) -> tuple[CountTarget, Certifier]:
    """Write the databases of some values by counts, or raise `NotCounted`.

    Where that disagrees with the model, it is not done either.
    """
    target = count_target(model, values, compile_kwargs)
    certifier = Certifier(model, target.program.parameters)
    if wrong := disagreements(compare_counts(target, certifier.reference, certifier.pairs)):
        logging.getLogger("pymc").warning(
            "Counts instead of records disagree with the model and are not used: %s.", wrong[0]
        )
        raise NotCounted(str(wrong[0]))
    return target, certifier


def compare_counts(
    target: CountTarget, reference: Reference, pairs: Sequence[Pair]
) -> Iterator[Comparison]:
    """Compare densities by counts with the model, at other parameters and other records."""
    program, counted = target.program, target.counted
    releases = [rv.name for c in counted for rv in c.database.releases]
    others = [name for name in reference.factors if name not in set(releases)]
    slopes: list[Comparison] = []
    for label, here, there in pairs:
        start = _by_counts(target, here)
        before = reference.terms(here)
        if math.isfinite(before.total(others)) and len(slopes) < MOST_SLOPES:
            found = _given_counts(target, here)
            slopes += slopes_at(program, reference, others, here, found, before)
        moved = {f"other parameters, {label}": there}
        moved |= {f"every cell occupied, {label}": here | _cycled(counted, 0)}
        moved |= {f"other counts, {label}": there | _cycled(counted, 1)}
        for place, point in moved.items():
            after = reference.terms(point)
            moved_to = _by_counts(target, point)
            for name, seen in (("given", others), ("with", others), ("noise of", releases)):
                what = f"the change of the log density {name} counts ({place})"
                if math.isfinite(before.total(seen)):
                    change = moved_to[name] - start[name]
                    yield log_density_change(what, before, after, seen, change)
    yield from best(slopes)


def _by_counts(target: CountTarget, point: Point) -> dict[str, float]:
    """Return the log density at a point, by each of two ways to compute it, and of the noise."""
    program, counts = target.program, target.counts_at(point)
    q, held = program.flatten(point), program.held_at(point)
    noise = first_number(program.functions["noise"](counts @ target.cells.contributions))
    centred = first_number(_given_counts(target, point))
    prior, probabilities = program.functions["law"](q, *held)
    with np.errstate(divide="ignore"):
        law = float(np.asarray(prior)) + float(special.xlogy(counts, probabilities).sum())
    return {"given": centred, "with": law, "noise of": noise}


def _given_counts(target: CountTarget, point: Point) -> Sequence[np.ndarray]:
    program, counts = target.program, target.counts_at(point)
    return program.functions["centred"](program.flatten(point), *program.held_at(point), counts)


def _cycled(counted: Sequence[CountedDatabase], skip: int) -> Point:
    """Let the records run through all cells but the first few, which then have fewer."""
    found: Point = {}
    for database in counted:
        order = np.arange(database.database.size) % database.cells.size
        if skip and database.cells.size > 1:
            order = np.where(order < skip, database.cells.size - 1, order)
        for name, values in zip(database.records, database.cells.values(), strict=True):
            found[name] = np.ascontiguousarray(values[order])
    return found


# Records of unknown number.
def compare_sized(
    program: ParameterProgram,
    databases: Sequence[SizedDatabase],
    reference: Reference,
    pairs: Sequence[Pair],
    numbers: Sequence[tuple[int, int]] | None = None,
) -> Iterator[Comparison]:
    """Compare the densities of parameters and sizes with the model of full capacity.

    ``numbers`` are two sizes >= 1 for each database, by default the ends of what is possible.
    """
    names = {rv.name for d in databases for rv in d.database.records}
    releases = {rv.name for d in databases for rv in d.database.releases}
    others = [name for name in reference.factors if name not in names]
    given = [name for name in reference.factors if name not in releases]
    weight = _weight_of(databases) if program.interweaves else None
    slopes: list[Comparison] = []
    for turn, (label, here, there) in enumerate(pairs):
        sizes_of = numbers or [_numbers(d.capacity, turn) for d in databases]
        now, then = ([pair[k] for pair in sizes_of] for k in (0, 1))
        here, there = (_with_sizes(p, databases, now) for p in (here, there))
        before = reference.terms(here)
        if not math.isfinite(before.total(given)):
            continue
        moved = _with_sizes(there, databases, then)
        q, r = (_coordinates(program, databases, p, n) for p, n in ((here, now), (there, now)))
        held, rows = (
            tuple(here[name] for name in program.held),
            _rows(program, databases, here, now),
        )
        density = program.given_records(q, held, rows)
        what = f"the change of the log density of parameters given records that exist ({label})"
        found = first_number(density(r)) - first_number(density(q))
        yield log_density_change(what, before, reference.terms(there), given, found)
        if len(slopes) < MOST_SLOPES:
            at = here | program.unflatten(q)
            slopes += slopes_at(program, reference, given, at, density(q), before)
        end = _coordinates(program, databases, moved, then)
        bounds = tuple(np.asarray(b) for d in databases for b in (1, d.capacity))
        sizes = sum(math.log(n - 0.5) for n in then) - sum(math.log(n - 0.5) for n in now)
        functions = program.functions
        if weight is not None:
            full = tuple(np.ascontiguousarray(here[name]) for name in program.records)
            u = base_of(program, np.random.default_rng(7), q, held, full)
            yield from same_records(program, q, held, u, full, label)
            fresh = functions["forward"](end, *held, *u)
            start, last = (
                first_number(functions["noncentred"](v, *held, *u, *bounds)) for v in (q, end)
            )
            sizes += weight(there, u) - weight(here, u)
            moved |= dict(zip(program.records, fresh, strict=True))
        else:
            start = first_number(functions["others"](q, *held, *rows, *bounds))
            drawn = functions["refresh"](np.random.default_rng(3), end, *held, *bounds)
            last = first_number(drawn)
            for name, values in zip(program.records, drawn[1:], strict=True):
                moved[name] = np.array(moved[name])
                moved[name][: len(values)] = values
        what = f"the change of the log density when sizes change too ({label})"
        if math.isfinite(before.total(others)):
            yield log_density_change(
                what, before, reference.terms(moved), others, last - start, sizes
            )
    yield from best(slopes)


def _numbers(capacity: int, turn: int) -> tuple[int, int]:
    """Return two sizes, at the ends of what is possible in turn."""
    middle = max(1, capacity // 2)
    return [(middle, min(middle + 1, capacity)), (capacity, middle), (1, capacity)][turn % 3]


def _with_sizes(point: Point, databases: Sequence[SizedDatabase], numbers: Sequence[int]) -> Point:
    return point | {
        d.size: np.asarray(n, dtype=point[d.size].dtype)
        for d, n in zip(databases, numbers, strict=True)
    }


def _coordinates(
    program: ParameterProgram,
    databases: Sequence[SizedDatabase],
    point: Point,
    numbers: Sequence[int],
) -> np.ndarray:
    logs = {
        log_name(d.size): np.asarray(math.log(n - 0.5))
        for d, n in zip(databases, numbers, strict=True)
    }
    return program.flatten(point | logs)


def _rows(
    program: ParameterProgram,
    databases: Sequence[SizedDatabase],
    point: Point,
    numbers: Sequence[int],
) -> tuple[np.ndarray, ...]:
    """Return the records that exist."""
    lengths = {
        d.database.model.rvs_to_values[rv].name: n
        for d, n in zip(databases, numbers, strict=True)
        for rv in d.database.records
    }
    return tuple(np.ascontiguousarray(point[name][: lengths[name]]) for name in program.records)


def _weight_of(databases: Sequence[SizedDatabase]) -> LogWeight:
    """Return the log density of all base variates, as a function of a point and of them."""
    twin = databases[0].database.model
    carried = carry_records(twin, [rv for d in databases for rv in d.database.records])
    assert carried is not None
    return log_weight(twin, carried)


def compare_jumps(
    sized: SizeTarget,
    reference: Reference,
    pairs: Sequence[Pair],
    numbers: tuple[int, int] | None = None,
) -> Iterator[Comparison]:
    """Compare contributions, factors of the size, and the noise, with the model.

    ``numbers`` are two sizes >= 1, by default the ends of what is possible.
    """
    size, capacity = sized.size, sized.rows
    releases = [rv.name for rv in sized.database.database.releases]
    own = {*releases, *(rv.name for rv in sized.database.database.records)}
    others = [name for name in reference.factors if name not in own]
    for turn, (label, here, _) in enumerate(pairs):
        both = numbers or _numbers(capacity, turn)
        points = [_with_sizes(here, [sized.database], [n]) for n in both]
        before, after = (reference.terms(point) for point in points)
        yield from _contributions(sized, reference, points[0], both[0], releases, label)
        sizes = np.array(both, dtype=here[size].dtype)
        with np.errstate(invalid="ignore"):
            first, last = sized.log_size(sizes, *(here[name] for name in sized.inputs))[0]
        if math.isfinite(before.total(others)):
            what = f"the change of all factors of the size alone ({label})"
            yield log_density_change(what, before, after, others, last - first)
        if releases and math.isfinite(before.total(releases)):
            noises = [
                birth_death.log_noise(
                    sized.noise, reference.contributions(point, releases)[:, :n].sum(axis=1)
                )
                for point, n in zip(points, both, strict=True)
            ]
            what = f"the change of the noise when records come and go ({label})"
            yield log_density_change(what, before, after, releases, noises[1] - noises[0])


def _contributions(
    sized: SizeTarget,
    reference: Reference,
    point: Point,
    number: int,
    releases: Collection[str],
    label: str,
) -> Iterator[Comparison]:
    program = sized.program
    drawn = np.empty((program.width, number))
    fresh, _ = program.draw_from(np.random.default_rng(2), point, drawn)
    moved = dict(point)
    for name, rows in zip(program.records, fresh, strict=True):
        moved[name] = np.array(point[name])
        moved[name][:number] = rows
    if not program.width:
        return
    expected = reference.contributions(moved, releases)[:, :number]
    what = f"the contributions of fresh records ({label})"
    yield Comparison(what, expected, drawn, float(np.abs(expected).sum()))
    existing = point | {name: point[name][:number] for name in program.records}
    expected = reference.contributions(point, releases)[:, :number]
    what = f"the contributions of records ({label})"
    found = program.contributions_at(existing)
    yield Comparison(what, expected, found, float(np.abs(expected).sum()))


def certified_size(size: SizeTarget, certifier: Certifier) -> SizeTarget:
    """Compare sweep and jumps with the model, and refuse to go on where they disagree."""
    reference, pairs = certifier.reference, certifier.pairs
    what = f"the size {size.size!r}"
    return certified([lambda: size], lambda made: compare_jumps(made, reference, pairs), what=what)


def compare_tuned(
    target: SizedTarget,
    databases: Sequence[SizedDatabase],
    reference: Reference,
    point: Point,
    jump: float,
    centred: Tuning,
) -> Iterator[Comparison]:
    """Compare parameters, sizes and jumps where a chain has come to, by the lengths it learnt."""
    numbers = [size.two_sizes(point, jump) for size in target.sizes]
    # What is left in rows that do not exist need not be possible any more.
    point = target.with_all_rows(np.random.default_rng(17), point)
    check_locality([whole for d in databases for whole in d.whole], point)
    pairs = after_tuning(point, a_step_away(target.program, point, centred))
    yield from compare_sized(target.program, databases, reference, pairs, numbers)
    for size, both in zip(target.sizes, numbers, strict=True):
        yield from compare_jumps(size, reference, pairs, both)
