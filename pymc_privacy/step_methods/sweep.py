"""One database inside a step method: its programs, and the contributions it has seen last."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from pymc_privacy.algorithms import record_sweep
from pymc_privacy.algorithms.noise import Noise
from pymc_privacy.certificate.certifier import Certifier
from pymc_privacy.densities.noise import noise_of
from pymc_privacy.model.database import Database
from pymc_privacy.model.points import Point
from pymc_privacy.targets.record_sweep import RecordProgram, compile_records


def sweep_statistics(infos: Sequence[record_sweep.Info]) -> dict[str, float]:
    """Summarise the sweeps of several databases, or of none."""
    if not infos:
        return {"record_sweep_accept": math.nan, "record_sweep_accept_min": math.nan}
    records = sum(info.accepted.size for info in infos)
    accepted = sum(info.accept * info.accepted.size for info in infos)
    return {
        "record_sweep_accept": accepted / records,
        "record_sweep_accept_min": min(info.accept_min for info in infos),
    }


class Sweep:
    """The compiled programs of one database, and the contributions of its current records."""

    def __init__(
        self,
        database: Database,
        compile_kwargs: dict | None,
        certifier: Certifier,
        fraction: float = 1.0,
    ):
        self._database = database
        self._rows = rows_of(database, fraction)
        self._noise: Noise | None = noise_of(database)
        self._program = certifier.record_program(
            lambda plain: compile_records(database, compile_kwargs, rows=self._rows, plain=plain),
            database,
            self._noise,
            self._rows,
        )
        drawn = database.size if self._rows is None else self._rows
        self._proposed = np.empty((self._program.width, drawn))
        self.forget()

    @property
    def compiled(self) -> tuple[RecordProgram, Database, Noise, int | None]:
        """Return the program, its database, the noise and how many records are drawn."""
        return self._program, self._database, self._current_noise(), self._rows

    def forget(self) -> None:
        """Drop what is remembered of the last point and its releases, as when a chain starts."""
        self._seen: Point | None = None
        self._state = record_sweep.State(np.empty((self._program.width, 0)))

    def __getstate__(self):
        # Compiled laws belong to one process; another makes its own.
        return self.__dict__ | {"_noise": None}

    def step(self, rng: np.random.Generator, point: Point) -> record_sweep.Info:
        """Sweep the records of a point, writing new arrays into its entries."""
        program, noise = self._program, self._current_noise()
        if not self._remembers(point):
            self._state = record_sweep.init(program.contributions_at(point))
        rows = slice(None) if self._rows is None else _block(rng, self._rows, self._database.size)
        fresh, ratio = program.draw_from(rng, point, self._proposed)
        ratio = never_without_numbers(ratio, finite_rows(fresh))
        self._state, info = record_sweep.step(
            rng, self._state, self._proposed, noise=noise, log_weight_ratio=ratio, rows=rows
        )
        for name, proposal in zip(program.records, fresh, strict=True):
            if info.accept == 1.0 and rows == slice(None):
                point[name] = proposal.copy()
            else:
                point[name] = _where(info.accepted, proposal, point[name], rows)
        self._seen = {name: point[name] for name in program.records}
        return info

    def _current_noise(self) -> Noise:
        if self._noise is None:
            self._noise = noise_of(self._database)
        elif self._seen is None and self._noise.laws:
            # Laws are compiled once, but a release can be set anew between two chains.
            values = [np.ravel(value) for value in self._database.observed]
            self._noise = self._noise._replace(release=np.concatenate(values, dtype=np.float64))
        return self._noise

    def _remembers(self, point: Point) -> bool:
        """Compare by value: workers hand over their own copies of what was returned."""
        if not self._program.width:
            return True
        return (
            self._program.contributions_are_kept
            and self._seen is not None
            and all(np.array_equal(point[name], value) for name, value in self._seen.items())
        )


def finite_rows(records: Sequence[np.ndarray]) -> np.ndarray:
    """Tell which records are finite numbers in all of their variables."""
    finite = [np.isfinite(variable) for variable in records]
    if all(variable.all() for variable in finite):
        return np.ones(len(records[0]), dtype=np.bool_)
    return np.logical_and.reduce([v.reshape(len(v), -1).all(axis=1) for v in finite])


def never_without_numbers(ratio: np.ndarray | None, finite: np.ndarray) -> np.ndarray | None:
    """Return the log weight ratios, -inf for a proposal that is not all finite numbers.

    Contributions and weights need not show it: a comparison with what is no number has a result.
    """
    if finite.all():
        return ratio
    return np.where(finite, 0.0 if ratio is None else ratio, -np.inf)


def rows_of(database: Database, fraction: float) -> int | None:
    """Return how many records a sweep updates, or None for all of them.

    A part can be drawn alone only where the records have one law, and no other factor of the
    model tells them apart.
    """
    if fraction >= 1 or not database.exchangeable or database.weights:
        return None
    return max(1, math.ceil(fraction * database.size))


def _block(rng: np.random.Generator, rows: int, size: int) -> slice:
    """Choose a block of neighbouring records, each of these as likely as the others."""
    first = min(int(rng.integers(math.ceil(size / rows))) * rows, size - rows)
    return slice(first, first + rows)


def _where(accepted, proposal: np.ndarray, current: np.ndarray, rows: slice) -> np.ndarray:
    taken = accepted.reshape(-1, *(1,) * (current.ndim - 1))
    if len(proposal) == len(current):
        return np.where(taken, proposal, current)
    updated = current.copy()
    updated[rows] = np.where(taken, proposal, current[rows])
    return updated
