"""Databases given parameters and releases, sweep by sweep, and the scores of each.

With the parameters fixed a sweep of the records is nearly an independent draw. Parameters move
between sweeps, and take the records along by their base variates where these are known.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from pymc_privacy.algorithms.ascent import (
    Information,
    Scores,
    information_of,
    laplace_weight,
)
from pymc_privacy.algorithms.exchange import exchange
from pymc_privacy.algorithms.numerics.differences import curvature, derivatives
from pymc_privacy.functions.calls import CompiledCall
from pymc_privacy.inference.sweeping import Records
from pymc_privacy.mechanisms import (
    DiscreteLaplace,
    Laplace,
    PostProcessed,
    TruncatedLaplace,
    Tulap,
)
from pymc_privacy.model.points import Point
from pymc_privacy.targets.ascent import AscentTarget

# How often a sweep also looks at the slopes of the statistic, which cost more than a score.
SLOPES_EVERY = 10
# How fast earlier databases are forgotten, for what is only needed roughly.
FORGETTING = 0.02
_LAPLACE = (Laplace, DiscreteLaplace, TruncatedLaplace, Tulap)
# Of the information in complete records, at least this share is taken to be known.
_LEAST_SHARE = 0.02


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
        self._target, self.rng, self.penalised = target, rng, penalised
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
            records.start(self.rng, self.point)
        for records in self.records:
            records.look(self.point)
        self._base, self._started = None, True
        self.forget()

    def _set(self, q: np.ndarray) -> None:
        self._q = np.array(q, dtype=float)
        self.point |= self.program.unflatten(self._q)

    @property
    def has_base(self) -> bool:
        """Whether base variates of the records are known."""
        return self._target.has_base

    @property
    def knows_totals(self) -> bool:
        """Whether each total has noise added to it, and a slope in the parameters."""
        if any(r.scored.database.record_factors for r in self.records):
            return False
        return all(r.has_additive_noise for r in self.records) and (
            self.has_base or all(r.scored.few_values is not None for r in self.records)
        )

    def held(self) -> tuple[np.ndarray, ...]:
        """Return the values that functions read and no ascent moves."""
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
        if self.has_base:
            self.carry(q, self.base() if self._base is None else self._base)
            return
        self._look_at(q)

    def carry(self, q: np.ndarray, u: tuple[np.ndarray, ...]) -> None:
        """Take the records that base variates stand for elsewhere, if these are numbers."""
        carried = self._call["forward"](np.asarray(q, float), *self.held(), *u)
        fresh = dict(zip(self.program.records, map(np.array, carried), strict=True))
        if all(np.isfinite(array).all() for array in fresh.values()):
            self.point |= fresh
        self._look_at(q)

    def _look_at(self, q: np.ndarray) -> None:
        self._base = None
        self._set(q)
        for records in self.records:
            records.look(self.point)

    def base(self) -> tuple[np.ndarray, ...]:
        """Return base variates of the present records, drawn where records do not say them."""
        if not self.has_base:
            return ()
        found = self._call["base"](self.rng, self._q, *self.held(), *self._rows())
        return tuple(np.array(column) for column in found)

    def scores(self, q: np.ndarray, sweeps: int) -> Scores:
        """Take the databases along to q, sweep them, and return the scores of each."""
        self.move(q)
        prior = np.array(self._call["prior"](self._q, *self.held())[0])
        if self.penalised:
            prior -= self._call["penalty"](self._q, *self.held())[1]
        g, h = np.empty((sweeps, q.size)), np.empty((sweeps, q.size))
        sized = [records for records in self.records if records.size is not None]
        balances = np.empty((sweeps, sum(2 + records.program.width for records in sized)))
        laws = self._laws_of_values(q)
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
            records.sweep(self.rng, self.point)
        self._base = None

    @property
    def has_sizes(self) -> bool:
        """Whether some number of records is unknown."""
        return any(records.size is not None for records in self.records)

    def arguments(self) -> tuple[np.ndarray, ...]:
        """Return what the density of the present databases reads besides the parameters."""
        held, rows = self.held(), self._rows()
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
        self._base = self.base()
        arguments = (self._q, *self.held(), *self._base)
        score = self._call["noncentred"](*arguments)[1] - prior
        if self._count % SLOPES_EVERY == 1 or self._slopes is None:
            slopes = self._slopes_at(arguments[1:])
            self._slopes = _mixed(self._slopes, slopes, SLOPES_EVERY * FORGETTING)
        return score

    def _slopes_at(self, given: tuple[np.ndarray, ...]) -> np.ndarray:
        """Return the derivatives of all totals at fixed base variates, by differences."""
        return derivatives(lambda q: self.totals(q, given), self._q)

    def totals(self, q: np.ndarray, given: tuple[np.ndarray, ...]) -> np.ndarray:
        """Return all totals of the records that base variates stand for."""
        return np.array(self._call["totals"](q, *given)[0])

    def _laws_of_values(self, q: np.ndarray) -> list[tuple[Records, tuple[np.ndarray, np.ndarray]]]:
        """Return the databases of few values, their log probabilities and slopes at q."""
        found = []
        for k, records in enumerate(self.records):
            if f"values_{k}" in self._call:
                logs, slopes = self._call[f"values_{k}"](q, *self.held())
                found.append((records, (np.array(logs), np.array(slopes))))
        return found

    def _exchanged(self, records: Records, law: tuple[np.ndarray, np.ndarray]) -> np.ndarray:
        few = records.scored.few_values
        assert few is not None
        values = [self.point[name] for name in records.program.records]
        counts = np.bincount(few.cells.cells_of(values), minlength=few.cells.size)
        return exchange(counts, few.contributions, *law, noise=records.noise)

    def moments_of_values(self, q: np.ndarray) -> list[tuple[np.ndarray, np.ndarray]]:
        """Return mean and covariance of the totals of each database of few values."""
        found = []
        for records, (logs, _) in self._laws_of_values(q):
            few = records.scored.few_values
            assert few is not None
            weights, number = np.exp(logs), records.contributions.shape[1]
            mean = weights @ few.contributions
            squares = few.contributions.T @ (weights[:, None] * few.contributions)
            found.append((number * mean, number * (squares - np.outer(mean, mean))))
        return found

    def _watch(self) -> None:
        """Remember, roughly, the totals that the model makes at these parameters."""
        totals = np.concatenate([records.totals for records in self.records])
        self._totals = _mixed(self._totals, totals, FORGETTING * 2)
        if self._count % SLOPES_EVERY == 0:
            spread = blocks_of([self._own_spread(records) for records in self.records])
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
        release = np.concatenate([self.published(records) for records in self.records])
        spread = self._spread + self.size_spread()
        columns = [pair for records in self.records for pair in records.mechanisms]
        found = []
        deviation = np.sqrt(np.maximum(np.diag(spread), 0.0))
        for touching in (True, False):
            noise = [
                noise_variance(pair, d, v, touching)
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

    def published(self, records: Records) -> np.ndarray:
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
        for records, (logs, slopes) in self._laws_of_values(self._q):
            few = records.scored.few_values
            assert few is not None
            number = records.contributions.shape[1]
            rows.append(number * few.contributions.T @ (np.exp(logs)[:, None] * slopes))
        width = sum(records.program.width for records in self.records)
        if sum(map(len, rows)) != width:
            return np.zeros((0, size))
        return np.concatenate(rows) if rows else np.zeros((0, size))

    def size_spread(self) -> np.ndarray:
        """Return what an unknown number of records adds to the covariance of the totals."""
        blocks = []
        for records in self.records:
            mean = records.totals / max(records.contributions.shape[1], 1)
            blocks.append(records.size_variance(self.point) * np.outer(mean, mean))
        return blocks_of(blocks)

    def complete_information(self) -> np.ndarray:
        """Return the information that the records would have if they were known."""
        arguments = self.arguments()
        return curvature(lambda q: self.complete_score(q, arguments), self._q)

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
        held = self.held()
        return curvature(lambda q: self._call["penalty"](q, *held)[1], self._q)


def noise_variance(
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


def blocks_of(blocks: Sequence[np.ndarray]) -> np.ndarray:
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
