"""One database of unknown size inside a step method: its sweep, its births and deaths."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from pymc_privacy._compat import SamplerWarning, WarningType
from pymc_privacy.algorithms import birth_death, record_sweep
from pymc_privacy.algorithms.noise import Noise
from pymc_privacy.certificate.base import Comparison, Pair, Reference, certified
from pymc_privacy.certificate.certifier import Certifier
from pymc_privacy.certificate.counts import Sized, compare_jumps
from pymc_privacy.densities.noise import noise_of
from pymc_privacy.errors import RecordError
from pymc_privacy.step_methods.sweep import finite_rows, never_without_numbers
from pymc_privacy.targets.birth_death import SizedDatabase, compile_log_size
from pymc_privacy.targets.record_sweep import Point, compile_records

# Beyond the largest number of records met in tuning, so that a walk seldom meets an end.
ROOM = 1.5
# And so much further now and then, for a way back from sizes that tuning has not met.
MORE_ROOM = 8


class Resized(NamedTuple):
    """What happened to one database."""

    swept: record_sweep.Info | None
    """None where there was no record."""
    jumped: birth_death.JumpInfo


class Resizing:
    """The compiled programs of one database, fed with as many rows as there are records."""

    def __init__(self, database: SizedDatabase, compile_kwargs: dict | None):
        self.size, self.capacity = database.size, database.capacity
        self._sized, self._database = database, database.database
        self._program = compile_records(self._database, compile_kwargs)
        self._log_size, self._inputs = compile_log_size(
            self._database.model, database, compile_kwargs
        )
        self.records = self._program.records
        self.forget()

    def __getstate__(self):
        # Compiled laws belong to one process; another makes its own.
        return self.__dict__ | {"_noise": None}

    def certify(self, certifier: Certifier) -> None:
        """Compare sweep and jumps with the model, and refuse to go on where they disagree."""
        certified(
            [lambda: self],
            lambda made: made.compared(certifier.reference, certifier.pairs),
            what=f"the size {self.size!r}",
        )
        self.forget()

    def compared(
        self,
        reference: Reference,
        pairs: Sequence[Pair],
        numbers: tuple[int, int] | None = None,
    ) -> Iterator[Comparison]:
        """Compare sweep and jumps with the model, at two sizes."""
        noise = self._current_noise()
        made = Sized(self._sized, self._program, self._log_size, self._inputs, noise)
        return compare_jumps(made, reference, pairs, numbers)

    def with_all_rows(self, rng: np.random.Generator, point: Point) -> Point:
        """Return a point with fresh records in all rows beyond those that exist."""
        number = self.number(point)
        fresh, _ = self.draw(rng, point, self.capacity - number)
        rows = zip(self.records, fresh, strict=True)
        return point | {name: np.concatenate([point[name][:number], new]) for name, new in rows}

    def two_sizes(self, point: Point, length: float) -> tuple[int, int]:
        """Return the size of a point, at least 1, and one that a jump may lead to."""
        number, jump = max(self.number(point), 1), max(1, round(length))
        there = number + jump if number + jump <= self.capacity else max(number - jump, 1)
        return number, there

    def forget(self) -> None:
        """Drop what was read from the data, as at the start of a chain."""
        self._noise: Noise | None = None
        self._table: np.ndarray | None = None
        self._open_ended: bool | None = None

    def _current_noise(self) -> Noise:
        if self._noise is None:
            self._noise = noise_of(self._database)
        return self._noise

    def number(self, point: Point) -> int:
        """Return how many records a point has."""
        return min(int(point[self.size]), self.capacity)

    def draw(self, rng: np.random.Generator, point: Point, rows: int) -> tuple[list, np.ndarray]:
        """Draw records given the parameters of a point, and their contributions (d, rows)."""
        contributions = np.empty((self._program.width, rows))
        if rows == 0:
            return [point[name][:0] for name in self.records], contributions
        given = point | {self.size: np.asarray(rows, dtype=point[self.size].dtype)}
        fresh, _ = self._program.draw_from(rng, given, contributions)
        return list(fresh), contributions

    def step(
        self, rng: np.random.Generator, point: Point, records: list, scale: float, jumps: int
    ) -> Resized:
        """Sweep records, then let some be born or die; write all into a point.

        ``records`` are those that exist; ``jumps`` of 0 turns them off, and a negative number
        stands for so many single moves.
        """
        noise = self._current_noise()
        number = len(records[0])
        lengths = birth_death.draw_jumps(rng, max(jumps, 0), scale)
        rows = min(number + int(lengths.clip(min=0).sum()) + (jumps < 0), self.capacity)
        fresh, contributions = self.draw(rng, point, rows)
        finite, swept = finite_rows(fresh), None
        if number:
            given = dict(zip(self.records, records, strict=True))
            current = record_sweep.init(self._program.contributions_at(point | given))
            proposed = np.ascontiguousarray(contributions[:, :number])
            ratio = never_without_numbers(None, finite[:number])
            state, swept = record_sweep.step(
                rng, current, proposed, noise=noise, log_weight_ratio=ratio
            )
            contributions[:, :number] = state.contributions
            for new, old in zip(fresh, records, strict=True):
                taken = swept.accepted.reshape(-1, *(1,) * (old.ndim - 1))
                new[:number] = np.where(taken, new[:number], old)
            # What was refused is gone: these rows hold records, which may die and come back.
            finite[:number] = True
        if jumps < 0:
            number, info = self._single_move(rng, point, fresh, contributions, number, finite)
        else:
            reach = int(lengths.clip(max=0).sum())
            first = max(0, number + reach)
            number, info = birth_death.jump(
                rng,
                contributions,
                number,
                lengths,
                noise=noise,
                log_size=self._log_sizes(point, first, rows),
                first=first,
                capacity=self.capacity,
                finite=finite,
            )
        self._write(point, fresh, number)
        return Resized(swept, info if self._is_open_ended(point) else info._replace(hits=0))

    def _single_move(self, rng, point, fresh, contributions, number, finite):
        if not self._is_connected(point):
            raise RecordError(
                f"Single births and deaths need a prior of {self.size!r} without gaps, because "
                "they cannot cross one; got sizes in between that have no probability. Use jumps, "
                "which do."
            )
        # The next fresh record, or any at all when there is no room for it.
        first = max(0, number - 2)
        last = min(number + 1, self.capacity)
        new, gone, info = birth_death.single(
            rng,
            contributions,
            number,
            noise=self._current_noise(),
            log_size=self._log_sizes(point, first, last),
            first=first,
            capacity=self.capacity,
            finite=finite,
        )
        if gone >= 0:
            for array in fresh:
                array[gone] = array[number - 1]
        return new, info

    def _write(self, point: Point, records: list, number: int) -> None:
        """Put records into new arrays of a point, whose other rows are left as they are."""
        for name, array in zip(self.records, records, strict=True):
            point[name] = point[name].copy()
            point[name][:number] = array[:number]
        point[self.size] = np.asarray(number, dtype=point[self.size].dtype)

    def _log_sizes(self, point: Point, first: int, last: int) -> np.ndarray:
        """Return the log of all factors of the sizes from first to last."""
        if self._inputs:
            return self._factors(point, first, last)
        if self._table is None:
            self._table = self._factors(point, 0, self.capacity)
        return self._table[first : last + 1]

    def _factors(self, point: Point, first: int, last: int) -> np.ndarray:
        sizes = np.arange(first, last + 1, dtype=point[self.size].dtype)
        [found] = self._log_size(sizes, *(point[name] for name in self._inputs))
        return np.where(np.isnan(found), -np.inf, found)

    def _is_connected(self, point: Point) -> bool:
        """Tell whether all sizes between two possible ones are possible."""
        possible = np.flatnonzero(np.isfinite(self._log_sizes(point, 0, self.capacity)))
        return len(possible) < 2 or bool(np.all(np.diff(possible) == 1))

    def _is_open_ended(self, point: Point) -> Any:
        """Tell whether the prior allows more records than there is room for."""
        if self._open_ended is None:
            beyond = self._factors(point, self.capacity + 1, self.capacity + 1)
            self._open_ended = bool(np.isfinite(beyond[0]))
        return self._open_ended


def with_reserve(
    rng: np.random.Generator,
    point: Point,
    resizings: Sequence[Resizing],
    numbers: Sequence[int],
    largest: Sequence[int],
    *,
    draw: bool,
) -> tuple[tuple[np.ndarray, ...], tuple[np.ndarray, ...]]:
    """Return all arrays of records, fresh ones behind if ``draw``, and how far each size may move.

    Sizes above some bound are not reached from below by the move that these are for, nor the other
    way round: the two parts of the space have their own lengths of arrays, which a reversible
    move must not change. The bound is a little above what tuning has met, and far above it as
    often as that costs as much.
    """
    arrays: list[np.ndarray] = []
    bounds: list[np.ndarray] = []
    for resizing, number, met in zip(resizings, numbers, largest, strict=True):
        usual = min(resizing.capacity, math.ceil(ROOM * met) + 50)
        far = min(resizing.capacity, MORE_ROOM * usual)
        bound = far if rng.random() * far < usual else usual
        least, most = (1, bound) if number <= bound else (bound + 1, resizing.capacity)
        existing = [point[name][:number] for name in resizing.records]
        if draw:
            fresh, _ = resizing.draw(rng, point, most - number)
            existing = [np.concatenate(pair) for pair in zip(existing, fresh, strict=True)]
        arrays += existing
        bounds += [np.asarray(least), np.asarray(most)]
    return tuple(arrays), tuple(bounds)


def no_room(resizings: Sequence[Resizing]) -> SamplerWarning:
    """Say that there was no room for as many records as were proposed."""
    sizes = ", ".join(f"{r.size!r} beyond {r.capacity}" for r in resizings)
    return SamplerWarning(
        WarningType.BAD_PARAMS,
        f"A proposal was refused for want of room: capacity= does not allow {sizes}, though the "
        "prior does. See the statistic birth_death_capacity_hits.",
        "warn",
    )
