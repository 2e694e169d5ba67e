"""The records of one database, drawn given parameters and releases, sweep by sweep."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from pymc_privacy.algorithms import birth_death, record_sweep
from pymc_privacy.algorithms.noise import Noise
from pymc_privacy.algorithms.record_sweep import finite_rows, never_without_numbers, where
from pymc_privacy.densities.noise import noise_of
from pymc_privacy.mechanisms import AdditiveMechanism, Mechanism, PostProcessed
from pymc_privacy.model.points import Point
from pymc_privacy.targets.ascent import ScoredDatabase

JUMPS = 8
# Fresh records that births and deaths are held in balance with.
RESERVE = 100
# A size of which so few jumps are accepted is as good as known.
SELDOM = 0.1


class Records:
    """The records of one database, of known or of unknown number."""

    def __init__(self, scored: ScoredDatabase):
        self.scored = scored
        self.program = scored.program
        self.noise: Noise = noise_of(scored.database)
        self.mechanisms = _by_column(scored.database.mechanisms, scored)
        self.contributions = np.empty((self.program.width, 0))
        self.totals = np.zeros(self.program.width)
        self.log_scale = math.log(10.0)
        self.point: Point = {}
        self.weight = scored.log_weight
        self.balances = np.empty(0)
        """What has mean zero; see `pymc_privacy.algorithms.birth_death.balance`."""
        self._jumped, self._accept = 0, birth_death.JUMP_ACCEPT
        self._table: np.ndarray | None = None

    @property
    def size(self) -> str | None:
        """The name of a random number of records."""
        return None if self.scored.sized is None else self.scored.sized.size

    @property
    def capacity(self) -> int:
        """The largest number of records considered."""
        sized = self.scored.sized
        return self.scored.database.size if sized is None else sized.capacity

    @property
    def has_additive_noise(self) -> bool:
        """Whether each total has a release of its own, and noise of a known scale."""
        kinds = (AdditiveMechanism, PostProcessed)
        return all(isinstance(mechanism, kinds) for mechanism, _ in self.mechanisms)

    def log_weights(self, fresh: Sequence[np.ndarray]) -> np.ndarray:
        """Return the log weight of each record of a draw, by all but its law and its releases."""
        assert self.weight is not None
        given = self.point | dict(zip(self.program.records, fresh, strict=True))
        return np.array(self.weight(*(given[name] for name in self.scored.log_weight_inputs))[0])

    def read_releases(self) -> None:
        """Read the releases again, which may have been set anew."""
        if self.noise.laws:
            values = [np.ravel(value) for value in self.scored.database.observed]
            self.noise = self.noise._replace(release=np.concatenate(values, dtype=np.float64))
        self._table = None

    def start(self, rng: np.random.Generator, point: Point) -> None:
        """Draw records given the parameters of a point."""
        rows = self.capacity
        if self.size is not None:
            self._table = None
            rows = min(max(round(self.mean_size(point)), 1), self.capacity)
            point[self.size] = np.asarray(rows, dtype=point[self.size].dtype)
        fresh, _ = self.draw(rng, point, rows)
        for name, array in zip(self.program.records, fresh, strict=True):
            point[name] = np.array(array)
        self.contributions = self.program.contributions_at(point)

    def draw(
        self, rng: np.random.Generator, point: Point, rows: int
    ) -> tuple[Sequence[np.ndarray], np.ndarray]:
        """Draw records and their contributions (d, rows)."""
        contributions = np.empty((self.program.width, rows))
        if self.size is None:
            fresh, self.ratio = self.program.draw_from(rng, point, contributions)
            return fresh, contributions
        if rows == 0:
            return [point[name][:0] for name in self.program.records], contributions
        given = point | {self.size: np.asarray(rows, dtype=point[self.size].dtype)}
        fresh, self.ratio = self.program.draw_from(rng, given, contributions)
        return list(fresh), contributions

    def look(self, point: Point) -> None:
        """See the contributions of the records of a point."""
        self.contributions = record_sweep.init(self.program.contributions_at(point)).contributions
        self._table = None

    def sweep(self, rng: np.random.Generator, point: Point) -> None:
        """Offer every record a fresh draw, and let some be born or die."""
        if self.size is not None:
            self._sweep_sized(rng, point)
            return
        fresh, proposed = self.draw(rng, point, self.capacity)
        self.totals = proposed.sum(axis=1)
        self.proposed = proposed
        ratio = never_without_numbers(self.ratio, finite_rows(fresh))
        state, info = record_sweep.step(
            rng,
            record_sweep.State(self.contributions),
            proposed,
            noise=self.noise,
            log_weight_ratio=ratio,
        )
        self.contributions = state.contributions
        for name, new in zip(self.program.records, fresh, strict=True):
            point[name] = where(info.accepted, new, point[name])

    def _sweep_sized(self, rng: np.random.Generator, point: Point) -> None:
        assert self.size is not None
        names = self.program.records
        state = birth_death.Records([point[name] for name in names], self.contributions)
        reserve = np.empty((self.program.width, 0))

        def draw(rng: np.random.Generator, rows: int) -> birth_death.Records:
            nonlocal reserve
            fresh, self.proposed = self.draw(rng, point, rows + RESERVE)
            reserve = self.proposed[:, rows:]
            # What is offered is overwritten by what there is.
            contributions = np.ascontiguousarray(self.proposed[:, :rows])
            return birth_death.Records([array[:rows] for array in fresh], contributions)

        found, info = birth_death.step(
            rng,
            state,
            draw=draw,
            noise=self.noise,
            log_size=lambda first, last: self.log_sizes(point)[first : last + 1],
            capacity=self.capacity,
            scale=math.exp(self.log_scale),
            jumps=JUMPS,
        )
        self._learn(info.jumped.accept)
        self.contributions, number = found.contributions, found.contributions.shape[1]
        self.totals = number * self.proposed.mean(axis=1)
        point |= dict(zip(names, found.arrays, strict=True))
        point[self.size] = np.asarray(number, dtype=point[self.size].dtype)
        self._balance(reserve, point)

    def _learn(self, accept: float) -> None:
        """Make jumps as long as they should be."""
        self._jumped += 1
        gain = max(self._jumped**-0.6, 0.01)
        self.log_scale += gain * (accept - birth_death.JUMP_ACCEPT)
        self.log_scale = min(max(self.log_scale, 0.0), math.log(max(self.capacity, 2)))
        self._accept += gain * (accept - self._accept)

    def _balance(self, reserve: np.ndarray, point: Point) -> None:
        """Hold births and deaths in balance, where the size moves often enough.

        Elsewhere a mean of zero is made by sizes that are hardly ever met: without them it is not.
        """
        if self._accept < SELDOM:
            self.balances = np.zeros(2 + self.program.width)
            return
        self.balances = birth_death.balance(
            self.contributions,
            reserve,
            # Records are exchangeable: some of them are as good as all.
            dying=self.contributions[:, :RESERVE],
            noise=self.noise,
            log_size=self.log_sizes(point),
        )

    def log_sizes(self, point: Point) -> np.ndarray:
        """Return the log of all factors of each size, up to the capacity."""
        if self._table is None:
            assert self.scored.log_size is not None
            assert self.size is not None
            sizes = np.arange(self.capacity + 1, dtype=point[self.size].dtype)
            given = (point[name] for name in self.scored.log_size_inputs)
            [found] = self.scored.log_size(sizes, *given)
            self._table = np.where(np.isnan(found), -np.inf, found)
        return self._table

    def _size_law(self, point: Point) -> tuple[np.ndarray, np.ndarray]:
        logs = self.log_sizes(point)
        mass = np.exp(logs - logs.max())
        return np.arange(len(mass)), mass / mass.sum()

    def mean_size(self, point: Point) -> float:
        """Return the mean of the size, by all but the records."""
        sizes, mass = self._size_law(point)
        return float(sizes @ mass)

    def size_variance(self, point: Point) -> float:
        """Return how uncertain the size is, by all but the records."""
        if self.size is None:
            return 0.0
        sizes, mass = self._size_law(point)
        mean = sizes @ mass
        return float(min((sizes - mean) ** 2 @ mass, (mean / 2) ** 2))


def _by_column(mechanisms: Sequence[Mechanism], scored: ScoredDatabase) -> list[tuple[Any, float]]:
    """Return the mechanism of each total, and the scale of its noise."""
    found = []
    for mechanism, contributions in zip(mechanisms, scored.database.contributions, strict=True):
        width = 1 if contributions.ndim == 1 else int(contributions.type.shape[1])
        scale = getattr(mechanism, "scale", np.nan)
        found += [(mechanism, float(b)) for b in np.broadcast_to(scale, width)]
    return found
