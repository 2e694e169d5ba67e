"""The identities between the programs of a record sweep and the plain model.

contributions of fresh and of current records = the model's, at these records
log weight ratios                             = the change of the other factors, by record
the scan's ratio for one record               = the change of the releases' log density
fresh records                                 have the law of the records given the
                                              parameters, or given their factors too
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from pymc_privacy.algorithms.noise import Noise
from pymc_privacy.algorithms.record_sweep import scan
from pymc_privacy.certificate.base import Comparison, Pair, Reference, parameters_of, toward
from pymc_privacy.certificate.clipped_records import panels_of
from pymc_privacy.certificate.laws import law_gap
from pymc_privacy.certificate.parameters import everywhere
from pymc_privacy.model.cells import find_cells
from pymc_privacy.model.database import Database
from pymc_privacy.model.points import Point
from pymc_privacy.targets.record_sweep import RecordProgram

_CONDITIONAL_ROWS, _MOST_DRAWS, _ERRORS = 8000, 64, 6.5


def compare_records(
    program: RecordProgram,
    database: Database,
    noise: Noise,
    reference: Reference,
    pairs: Sequence[Pair],
    *,
    rows: int | None = None,
    laws: bool = True,
) -> Iterator[Comparison]:
    """Compare the programs of one database with the model.

    ``rows`` is the number of records drawn, if not all; ``laws`` asks for the law of draws too.
    """
    drawn = database.size if rows is None else rows
    sweep = _Sweep(program, database, reference, drawn)
    for point in (pairs[0].here, pairs[0].there):
        yield from sweep.compare(point)
    if program.width:
        yield from _ratio(database, noise, reference, pairs[0].here, sweep.fresh(pairs[0].here))
    if not laws:
        return
    if sweep.is_conditional:
        yield from sweep.conditional_law(pairs[0].here)
    elif drawn == database.size:
        here = pairs[0].here
        there = toward(here, pairs[1].here, parameters_of(reference.model), 0.3)
        yield law_gap(
            "the law of fresh records",
            reference,
            database,
            (here, there),
            (lambda rng: sweep.draw(rng, here), lambda rng: sweep.draw(rng, there)),
        )


class _Sweep:
    """One database's programs, called outside of a step."""

    def __init__(
        self, program: RecordProgram, database: Database, reference: Reference, drawn: int
    ):
        self._program, self._database = program, database
        self._reference, self._drawn = reference, drawn
        self._releases = [release.name for release in database.releases]
        self._factors = [factor.name for factor in database.record_factors]
        self.is_conditional = bool(self._factors)

    def draw(self, rng: np.random.Generator, point: Point) -> Point:
        return self._drawn_from(rng, point)[0]

    def fresh(self, point: Point) -> Point:
        return point | self.draw(np.random.default_rng(21), point)

    def _drawn_from(
        self, rng: np.random.Generator, point: Point
    ) -> tuple[Point, np.ndarray, np.ndarray | None]:
        contributions = np.empty((self._program.width, self._drawn))
        fresh, ratio = self._program.draw_from(rng, point, contributions)
        moved = {}
        for name, proposal in zip(self._program.records, fresh, strict=True):
            moved[name] = np.array(point[name])
            moved[name][: self._drawn] = proposal
        return moved, contributions, ratio

    def compare(self, point: Point) -> Iterator[Comparison]:
        moved, contributions, ratio = self._drawn_from(np.random.default_rng(21), point)
        if self._program.width:
            of = self._reference.contributions
            expected = of(point | moved, self._releases)[:, : self._drawn]
            yield _columns("the contributions of fresh records", expected, contributions)
            current = self._program.contributions_at(point)
            expected = of(point, self._releases)
            yield _columns("the contributions of current records", expected, current)
        if ratio is None:
            return
        self.is_conditional = False
        size = self._database.size
        before, after = (
            self._reference.terms(at).rows(self._factors, size) for at in (point, point | moved)
        )
        known = np.isfinite(before)
        with np.errstate(invalid="ignore"):
            expected = np.nan_to_num(after - before, nan=-np.inf, neginf=-np.inf)[known]
        tolerance = 1e-6 + 1e-7 * np.abs(before[known])
        found = np.nan_to_num(ratio, nan=-np.inf, neginf=-np.inf)[known]
        yield Comparison("log weight ratios of records", expected, found, tolerance=tolerance)

    def conditional_law(self, point: Point) -> Iterator[Comparison]:
        """Compare how often records fall into each cell with f w / sum f w, in two groups.

        Cells are the values of records of few values, and panels of real ones.
        """
        database, reference = self._database, self._reference
        logs, cells_of = self._cells(point)
        with np.errstate(all="ignore"):
            shares = np.exp(logs - np.logaddexp.reduce(logs, axis=0))
        if not np.isfinite(shares).all():
            return
        number = min(_MOST_DRAWS, math.ceil(_CONDITIONAL_ROWS / database.size))
        values = [reference.model.rvs_to_values[rv].name for rv in database.records]
        group = np.arange(database.size) % 2
        counts = np.zeros((2, len(logs)))
        for rng in np.random.default_rng(51).spawn(number):
            fresh = self.draw(rng, point)
            found = cells_of([fresh[name] for name in values])
            for k in (0, 1):
                counts[k] += np.bincount(found[group == k], minlength=len(logs))
        for k in (0, 1):
            ours = shares[:, group == k]
            mean, variance = number * ours.sum(axis=1), number * (ours * (1 - ours)).sum(axis=1)
            error = np.sqrt(variance) + 0.1
            what = "the number of records drawn in each cell given their factors"
            yield Comparison(what, mean, counts[k], tolerance=_ERRORS * error)

    def _cells(self, point: Point) -> tuple[np.ndarray, Callable[[list[np.ndarray]], np.ndarray]]:
        """Return the log weight of each record in each cell, and what finds the cell of values."""
        database, reference = self._database, self._reference
        if (panels := panels_of(reference, database, point)) is not None:
            return panels.logs, lambda values: panels.of(values[0])
        cells = find_cells(database.records)
        names = [rv.name for rv in (*database.records, *database.record_factors)]
        logs = [
            reference.terms(at).rows(names, database.size)
            for at in everywhere(reference, database, point)
        ]
        by_record = {rv: k for k, rv in enumerate(database.records)}
        order = [by_record[rv] for rv in cells.records]
        return np.array(logs), lambda values: cells.cells_of([values[k] for k in order])


def _columns(what: str, expected: np.ndarray, found: np.ndarray) -> Comparison:
    size = np.abs(np.where(np.isfinite(expected), expected, 0.0))
    tolerance = 1e-9 + 1e-8 * (1 + size) + 1e-12 * size.max(initial=0.0)
    return Comparison(what, expected, found, tolerance=tolerance)


def _ratio(
    database: Database, noise: Noise, reference: Reference, here: Point, fresh: Point
) -> Iterator[Comparison]:
    """Compare the compiled scan's own ratio for one record with the model's, both ways."""
    names = [release.name for release in database.releases]
    current, proposed = (reference.contributions(p, names) for p in (here, fresh))
    row = int(np.argmax(np.abs(current - proposed).sum(axis=0)))
    moved = dict(here)
    for rv in database.records:
        name = reference.model.rvs_to_values[rv].name
        moved[name] = np.array(here[name])
        moved[name][row] = fresh[name][row]
    there = current.copy()
    there[:, row] = proposed[:, row]
    before, after = reference.terms(here), reference.terms(moved)
    expected = after.total(names) - before.total(names)
    if not math.isfinite(before.total(names)):
        return
    found, one = 0.0, slice(row, row + 1)
    for sign, a, b in ((1, current, there), (-1, there, current)):
        # A slack of -inf accepts nothing; what is looked for is the smallest log ratio met.
        _, least = scan(
            noise.of_rows(one),
            np.ascontiguousarray(a[:, one]),
            noise.totals(a),
            np.ascontiguousarray(b[:, one]),
            np.zeros(1),
            np.full(1, -np.inf),
            np.empty(1, dtype=np.bool_),
        )
        if least < 0:
            found = sign * least
    scale = before.scale + after.scale + float(np.abs(current).sum())
    what = "the log ratio of the releases' density when one record moves"
    yield Comparison(what, expected, found, scale)
