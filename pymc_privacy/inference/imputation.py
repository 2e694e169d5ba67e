"""Databases given parameters and releases, sweep by sweep, and the scores of each.

With the parameters fixed a sweep of the records is nearly an independent draw. Parameters move
between sweeps, and take the records along by their base variates where these are known.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from pymc_privacy.algorithms import birth_death, record_sweep
from pymc_privacy.algorithms.ascent import (
    Information,
    Scores,
    information_of,
    laplace_weight,
)
from pymc_privacy.algorithms.exchange import exchange
from pymc_privacy.algorithms.noise import Noise
from pymc_privacy.algorithms.record_sweep import finite_rows, never_without_numbers
from pymc_privacy.densities.noise import noise_of
from pymc_privacy.functions.calls import CompiledCall
from pymc_privacy.mechanisms import (
    AdditiveMechanism,
    DiscreteLaplace,
    Laplace,
    Mechanism,
    PostProcessed,
    TruncatedLaplace,
    Tulap,
)
from pymc_privacy.model.points import Point
from pymc_privacy.targets.ascent import AscentTarget, ScoredDatabase

JUMPS = 8
# Fresh records that births and deaths are held in balance with.
RESERVE = 100
# How often a sweep also looks at the slopes of the statistic, which cost more than a score.
SLOPES_EVERY = 10
# How fast earlier databases are forgotten, for what is only needed roughly.
FORGETTING = 0.02
_LAPLACE = (Laplace, DiscreteLaplace, TruncatedLaplace, Tulap)
_STEP = 1e-4
# Of the information in complete records, at least this share is taken to be known.
_LEAST_SHARE = 0.02


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
        self._jumped = 0
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
            rows = int(np.clip(round(self.mean_size(point)), 1, self.capacity))
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
            point[name] = _where(info.accepted, new, point[name])

    def _sweep_sized(self, rng: np.random.Generator, point: Point) -> None:
        assert self.size is not None
        number = int(point[self.size])
        lengths = birth_death.draw_jumps(rng, JUMPS, math.exp(self.log_scale))
        rows = min(number + int(lengths.clip(min=0).sum()), self.capacity)
        fresh, drawn = self.draw(rng, point, rows + RESERVE)
        contributions, reserve = np.ascontiguousarray(drawn[:, :rows]), drawn[:, rows:]
        fresh = [array[:rows] for array in fresh]
        self.proposed = contributions
        mean = contributions.mean(axis=1) if rows else np.zeros(self.program.width)
        self.totals = mean * number
        finite = finite_rows(fresh) if rows else np.ones(0, dtype=np.bool_)
        if number:
            state, info = record_sweep.step(
                rng,
                record_sweep.init(self.contributions),
                np.ascontiguousarray(contributions[:, :number]),
                noise=self.noise,
                log_weight_ratio=never_without_numbers(None, finite[:number]),
            )
            contributions[:, :number] = state.contributions
            for new, name in zip(fresh, self.program.records, strict=True):
                new[:number] = _where(info.accepted, new[:number], point[name])
            finite[:number] = True
        reach = int(lengths.clip(max=0).sum())
        first = max(0, number + reach)
        number, jumped = birth_death.jump(
            rng,
            contributions,
            number,
            lengths,
            noise=self.noise,
            log_size=self.log_sizes(point)[first : rows + 1],
            first=first,
            capacity=self.capacity,
            finite=finite,
        )
        self._jumped += 1
        gain = max(self._jumped**-0.6, 0.01)
        self.log_scale += gain * (jumped.accept - birth_death.JUMP_ACCEPT)
        self.log_scale = float(np.clip(self.log_scale, 0.0, math.log(max(self.capacity, 2))))
        for name, array in zip(self.program.records, fresh, strict=True):
            point[name] = np.array(array[:number])
        self.contributions = np.ascontiguousarray(contributions[:, :number])
        point[self.size] = np.asarray(number, dtype=point[self.size].dtype)
        self.balances = birth_death.balance(
            self.contributions, reserve, noise=self.noise, log_size=self.log_sizes(point)
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


class Imputation:
    """All databases of a model given its parameters, and their scores: a `Source`.

    Parameters
    ----------
    target
        What was compiled.
    rng
        Decides everything.
    point
        Any point of the model, for values that do not move.
    penalised
        Whether the log prior belongs to what is climbed.
    """

    def __init__(
        self,
        target: AscentTarget,
        rng: np.random.Generator,
        point: Point,
        *,
        penalised: bool = False,
    ):
        self._target, self._rng, self.penalised = target, rng, penalised
        self.point: Point = dict(point)
        self.program = target.program
        self.records = [Records(scored) for scored in target.databases]
        self._call = {name: CompiledCall(f) for name, f in self.program.functions.items()}
        self._base: tuple[np.ndarray, ...] | None = None
        self._q = self.program.flatten(self.point)
        self._started = False
        self.forget()

    def forget(self) -> None:
        """Forget what was learnt of slopes and spreads."""
        self._slopes: np.ndarray | None = None
        self._totals: np.ndarray | None = None
        self._spread: np.ndarray | None = None
        self._centred: list[np.ndarray] = []
        self._count = 0

    def read_releases(self) -> None:
        """Read the releases again, which may have been set anew."""
        for records in self.records:
            records.read_releases()

    def start(self, q: np.ndarray) -> None:
        """Draw all databases given the parameters."""
        self._set(q)
        for records in self.records:
            records.start(self._rng, self.point)
        for records in self.records:
            records.look(self.point)
        self._base, self._started = None, True
        self.forget()

    def _set(self, q: np.ndarray) -> None:
        self._q = np.array(q, dtype=float)
        self.point |= self.program.unflatten(self._q)

    def _held(self) -> tuple[np.ndarray, ...]:
        return tuple(self.point[name] for name in self.program.held)

    def _rows(self) -> tuple[np.ndarray, ...]:
        return tuple(self.point[name] for name in self.program.records)

    def move(self, q: np.ndarray) -> None:
        """Take the records along to other parameters, where their base variates are known."""
        if not self._started:
            self.start(q)
            return
        if np.array_equal(q, self._q):
            return
        if self._target.has_base:
            u = self._base
            if u is None:
                u = self._columns()
            carried = self._call["forward"](np.asarray(q, float), *self._held(), *u)
            fresh = dict(zip(self.program.records, map(np.array, carried), strict=True))
            if all(np.isfinite(array).all() for array in fresh.values()):
                self.point |= fresh
        self._base = None
        self._set(q)
        for records in self.records:
            records.look(self.point)

    def _columns(self) -> tuple[np.ndarray, ...]:
        found = self._call["base"](self._rng, self._q, *self._held(), *self._rows())
        return tuple(np.array(column) for column in found)

    def scores(self, q: np.ndarray, sweeps: int) -> Scores:
        """Take the databases along to q, sweep them, and return the scores of each."""
        self.move(q)
        prior = np.array(self._call["prior"](self._q, *self._held())[0])
        if self.penalised:
            prior -= self._call["penalty"](self._q, *self._held())[1]
        g, h = np.empty((sweeps, q.size)), np.empty((sweeps, q.size))
        sized = [records for records in self.records if records.size is not None]
        balances = np.empty((sweeps, sum(2 + records.program.width for records in sized)))
        laws = self._laws_of_values()
        for k in range(sweeps):
            self.sweep()
            self._watch()
            balances[k] = np.concatenate([records.balances for records in self.records])
            g[k] = self._centred_score() - prior
            h[k] = self._noncentred_score(prior) if self._target.has_base else g[k]
            for records, law in laws:
                h[k] += self._exchanged(records, law)
        self._centred.append(g)
        self._centred = self._centred[-4:]
        return Scores(g, h, balances)

    def sweep(self) -> None:
        """Sweep all databases once."""
        for records in self.records:
            records.sweep(self._rng, self.point)
        self._base = None

    @property
    def has_sizes(self) -> bool:
        """Whether some number of records is unknown."""
        return any(records.size is not None for records in self.records)

    def arguments(self) -> tuple[np.ndarray, ...]:
        """Return what the density of the present databases reads besides the parameters."""
        held, rows = self._held(), self._rows()
        [statistics] = self._call["statistics"](self._q, *held, *rows)
        return (*held, *rows, np.array(statistics))

    def complete_score(self, q: np.ndarray, arguments: tuple[np.ndarray, ...]) -> np.ndarray:
        """Return the centred score of databases that were seen before, at any parameters."""
        score = np.array(self._call["centred"](q, *arguments)[1])
        held = arguments[: len(self.program.held)]
        score -= self._call["prior"](q, *held)[0]
        if self.penalised:
            score += self._call["penalty"](q, *held)[1]
        return score

    def _centred_score(self) -> np.ndarray:
        return self._call["centred"](self._q, *self.arguments())[1]

    def _noncentred_score(self, prior: np.ndarray) -> np.ndarray:
        self._base = self._columns()
        arguments = (self._q, *self._held(), *self._base)
        score = self._call["noncentred"](*arguments)[1] - prior
        if self._count % SLOPES_EVERY == 1 or self._slopes is None:
            slopes = self._slopes_at(arguments[1:])
            self._slopes = _mixed(self._slopes, slopes, SLOPES_EVERY * FORGETTING)
        return score

    def _slopes_at(self, given: tuple[np.ndarray, ...]) -> np.ndarray:
        """Return the derivatives of all totals at fixed base variates, by differences."""
        columns = []
        for step in _steps(self._q):
            up, down = (
                np.array(self._call["totals"](self._q + side * step, *given)[0]) for side in (1, -1)
            )
            columns.append((up - down) / (2 * step.sum()))
        return np.array(columns).T

    def _laws_of_values(self) -> list[tuple[Records, tuple[np.ndarray, np.ndarray]]]:
        """Return the databases of few values, their log probabilities and slopes at q."""
        found = []
        for k, records in enumerate(self.records):
            if f"values_{k}" in self._call:
                logs, slopes = self._call[f"values_{k}"](self._q, *self._held())
                found.append((records, (np.array(logs), np.array(slopes))))
        return found

    def _exchanged(self, records: Records, law: tuple[np.ndarray, np.ndarray]) -> np.ndarray:
        few = records.scored.few_values
        assert few is not None
        values = [self.point[name] for name in records.program.records]
        counts = np.bincount(few.cells.cells_of(values), minlength=few.cells.size)
        return exchange(counts, few.contributions, *law, noise=records.noise)

    def _watch(self) -> None:
        """Remember, roughly, the totals that the model makes at these parameters."""
        totals = np.concatenate([records.totals for records in self.records])
        self._totals = _mixed(self._totals, totals, FORGETTING * 2)
        if self._count % SLOPES_EVERY == 0:
            spread = _block([self._own_spread(records) for records in self.records])
            self._spread = _mixed(self._spread, spread, SLOPES_EVERY * FORGETTING)
        self._count += 1

    def _own_spread(self, records: Records) -> np.ndarray:
        """Return the covariance of the totals of one database, given the parameters."""
        rows = records.proposed.shape[1]
        number = rows if records.size is None else int(self.point[records.size])
        if not records.program.width or rows < 2:
            return np.zeros((records.program.width,) * 2)
        return number * np.atleast_2d(np.cov(records.proposed))

    def information(self) -> Information:
        """Return the information at the parameters, as far as it is known by now."""
        assert self._totals is not None
        assert self._spread is not None
        slopes = self._known_slopes()
        release = np.concatenate([self._published(records) for records in self.records])
        spread = self._spread + self._size_spread()
        columns = [pair for records in self.records for pair in records.mechanisms]
        found = []
        deviation = np.sqrt(np.maximum(np.diag(spread), 0.0))
        for touching in (True, False):
            noise = [
                _noise_variance(pair, d, v, touching)
                for pair, d, v in zip(columns, release - self._totals, deviation, strict=True)
            ]
            found.append(information_of(slopes, np.array(noise), spread))
        if not len(slopes) or any(r.scored.database.record_factors for r in self.records):
            own = self._observed_information(np.arange(self._q.size))
            found = [one + own for one in found]
        elif len(places := self._of_sizes()):
            own = self._observed_information(places)
            found = [one + own for one in found]
        if self.penalised:
            found = [one + self._curvature_of_prior() for one in found]
        return Information(*found)

    def _published(self, records: Records) -> np.ndarray:
        """Return the releases, one for each total; of other mechanisms the totals themselves."""
        if records.has_additive_noise:
            return records.noise.release[: records.program.width]
        return records.totals

    def _known_slopes(self) -> np.ndarray:
        """Return the slopes of all totals, by base variates or by the values of records."""
        size = self._q.size
        if self._slopes is not None:
            return self._slopes
        rows = []
        for records, (logs, slopes) in self._laws_of_values():
            few = records.scored.few_values
            assert few is not None
            number = records.contributions.shape[1]
            rows.append(number * few.contributions.T @ (np.exp(logs)[:, None] * slopes))
        width = sum(records.program.width for records in self.records)
        if sum(map(len, rows)) != width:
            return np.zeros((0, size))
        return np.concatenate(rows) if rows else np.zeros((0, size))

    def _size_spread(self) -> np.ndarray:
        """Return what an unknown number of records adds to the covariance of the totals."""
        blocks = []
        for records in self.records:
            mean = records.totals / max(records.contributions.shape[1], 1)
            blocks.append(records.size_variance(self.point) * np.outer(mean, mean))
        return _block(blocks)

    def complete_information(self) -> np.ndarray:
        """Return the information that the records would have if they were known."""
        arguments = self.arguments()
        columns = []
        for step in _steps(self._q):
            up, down = (self.complete_score(self._q + side * step, arguments) for side in (1, -1))
            columns.append((down - up) / (2 * step.sum()))
        return _definite(np.array(columns))

    def _of_sizes(self) -> np.ndarray:
        """Return the coordinates of parameters of the laws of sizes."""
        names = {name for records in self.records for name in records.scored.log_size_inputs}
        program = self.program
        owners = [
            name
            for name, shape in zip(program.parameters, program.shapes, strict=True)
            for _ in range(math.prod(shape))
        ]
        return np.flatnonzero([name in names for name in owners])

    def _observed_information(self, places: np.ndarray) -> np.ndarray:
        """Return the complete information less what is missing, and never much too little.

        Of some coordinates, given the others; that of the others is left at zero.
        """
        whole = np.zeros((self._q.size,) * 2)
        among = np.ix_(places, places)
        complete = self.complete_information()[among]
        missing = np.atleast_2d(np.cov(np.concatenate(self._centred).T))[among]
        root = np.linalg.cholesky(complete + 1e-12 * np.eye(len(complete)))
        half = np.linalg.solve(root, np.linalg.solve(root, missing).T)
        share, axes = np.linalg.eigh((half + half.T) / 2)
        known = np.maximum(1 - share, _LEAST_SHARE)
        whole[among] = root @ (axes * known) @ axes.T @ root.T
        return whole

    def _curvature_of_prior(self) -> np.ndarray:
        held, q = self._held(), self._q
        columns = []
        for step in _steps(q):
            up, down = (
                np.array(self._call["penalty"](q + side * step, *held)[1]) for side in (1, -1)
            )
            columns.append((down - up) / (2 * step.sum()))
        return _definite(np.array(columns))


def _noise_variance(
    pair: tuple[Any, float], distance: float, deviation: float, touching: bool
) -> float:
    """Return how much noise adds to the variance of a total, or to what touches its density."""
    mechanism, scale = pair
    if isinstance(mechanism, PostProcessed):
        mechanism = mechanism.mechanism
    if not math.isfinite(scale):
        return deviation**2
    if not isinstance(mechanism, _LAPLACE):
        return scale**2
    if not touching:
        return 2 * scale**2
    one = [np.array([number]) for number in (distance, max(deviation, 1e-9 * scale), scale)]
    weight = float(laplace_weight(*one)[0])
    return max(1 / weight - deviation**2, 1e-6 * scale**2)


def _steps(q: np.ndarray) -> np.ndarray:
    """Return a small step along each coordinate, one per row."""
    return np.diag(_STEP * (1 + np.abs(q)))


def _definite(matrix: np.ndarray) -> np.ndarray:
    """Return the nearest symmetric matrix without negative eigenvalues, and hardly any zeros."""
    values, axes = np.linalg.eigh(np.nan_to_num((matrix + matrix.T) / 2))
    least = 1e-9 * max(float(np.abs(values).max(initial=0.0)), 1e-12)
    return (axes * np.maximum(values, least)) @ axes.T


def _block(blocks: Sequence[np.ndarray]) -> np.ndarray:
    """Put matrices along a diagonal."""
    size = sum(len(block) for block in blocks)
    whole, first = np.zeros((size, size)), 0
    for block in blocks:
        last = first + len(block)
        whole[first:last, first:last] = block
        first = last
    return whole


def _mixed(old: np.ndarray | None, new: np.ndarray, share: float) -> np.ndarray:
    return np.array(new) if old is None else (1 - share) * old + share * new


def _where(accepted: np.ndarray, new: np.ndarray, old: np.ndarray) -> np.ndarray:
    return np.where(accepted.reshape(-1, *(1,) * (old.ndim - 1)), new, old)
