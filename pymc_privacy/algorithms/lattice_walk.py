"""Leave the posterior of counts invariant, given noisy totals of them and exact ones.

Counts c, integers that are independent given the parameters, have the target

    prod_i p_i(c_i) prod_r eta_r(y_r - (A c)_r)   on   { c : B c = t }.

Moves of several kinds keep B c. A *single* moves a cell that no exact total holds, a *pair* moves
k from one cell to another that the same totals hold, *four* cells are two such pairs at the corners
of a table, whose margins they keep; where these do not connect all tables with
the same totals, a *direction* adds a vector of the integer kernel of B. All are proposed
symmetrically, whatever the counts are, so that the acceptance ratio is that of the target. Which
counts are possible, such as those >= 0, is for p_i to say. Totals with bounds are rows without
noise: a move that leaves its bounds is refused.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse

from pymc_privacy.algorithms.machine_code.caching import compiled
from pymc_privacy.algorithms.numerics.integer_kernel import Fibre


class Measurements(NamedTuple):
    """Noisy totals: the matrix by columns (cells), and for each row release, scale and law."""

    starts: np.ndarray
    """Cell i has its entries at ``starts[i]:starts[i + 1]`` of the next two."""
    rows: np.ndarray
    entries: np.ndarray
    release: np.ndarray
    scale: np.ndarray
    gaussian: np.ndarray
    """Whether log eta is -d² / (2 scale²), rather than -|d| / scale, up to a constant."""
    least: np.ndarray
    """What totals are not less than; minus infinity where nothing is known of it."""
    most: np.ndarray

    @property
    def noise(self) -> tuple[np.ndarray, ...]:
        """Return what the noise of a total is computed from: all but the bounds."""
        return tuple(self[: len(self) - 2])

    def totals(self, counts: np.ndarray) -> np.ndarray:
        """Return A c."""
        weights = self.entries * np.repeat(counts, np.diff(self.starts))
        return np.bincount(self.rows, weights, minlength=self.release.size)


class State(NamedTuple):
    """The counts, their totals, and the log density of each count."""

    counts: np.ndarray
    totals: np.ndarray
    log_density: np.ndarray


class Settings(NamedTuple):
    """How far moves go."""

    scales: np.ndarray
    """Shape (kinds, cells): the mean length of moves of each kind."""


class Offers(NamedTuple):
    """Moves of one kind that were offered, one per row of cells, and which were accepted."""

    kind: int
    """0 alone, 1 in pairs, then in pairs that other totals hold too, and at last in fours."""
    cells: np.ndarray
    """Shape (moves, cells that move together)."""
    accepted: np.ndarray


class Info(NamedTuple):
    """What happened to moves of cells alone and together, and along directions."""

    offers: tuple[Offers, ...]
    directions: np.ndarray
    """Which directions were accepted."""


# What the cells of a move gain.
_ALONE, _PAIR, _FOUR = np.array([1]), np.array([1, -1]), np.array([1, -1, -1, 1])

Density = Callable[[np.ndarray], np.ndarray]


def init(counts: np.ndarray, measurements: Measurements, density: Density) -> State:
    """Compute what belongs to the counts; ``density`` returns log p_i(c_i) for each cell."""
    counts = np.array(counts, dtype=np.int64)
    here = np.array(density(counts))
    # Anything else is better than what is no number.
    return State(counts, measurements.totals(counts), np.where(np.isnan(here), -np.inf, here))


def step(
    rng: np.random.Generator,
    state: State,
    settings: Settings,
    *,
    measurements: Measurements,
    fibre: Fibre,
    density: Density,
) -> tuple[State, Info]:
    """Offer every cell a move alone and in pairs, and the table some directions.

    Parameters
    ----------
    rng
    state
        Its arrays are overwritten.
    settings
    measurements, fibre, density
        The target: noisy totals, exact totals, and the law of each count.

    Returns
    -------
    State, Info
    """
    # Which other totals hold a pair does not depend on the counts either.
    ways = [0, *([] if not fibre.finer else [1 + int(rng.integers(len(fibre.finer)))])]
    moved = [
        (0, fibre.singles, _ALONE),
        *((1 + way, fibre.draw_pairs(rng, way), _PAIR) for way in ways),
        (fibre.kinds - 1, fibre.draw_fours(rng), _FOUR),
    ]
    offers = []
    for kind, cells, signs in moved:
        if len(cells):
            lengths = _symmetric(rng, settings.scales[kind][cells].min(axis=1))
            steps = lengths[:, None] * signs
            accepted = _offer(rng, state, cells, steps, measurements, density)
            offers.append(Offers(kind, cells, accepted))
    directions = [
        _offer_direction(rng, state, vector, measurements, density)
        for vector in fibre.draw_directions(rng)
    ]
    return state, Info(tuple(offers), np.array(directions, dtype=np.bool_))


def accepted(infos: Sequence[Info]) -> tuple[float, float, float]:
    """Return the fraction of accepted moves alone, of several cells, and along directions.

    It is nan where there were none.
    """
    offers = [offer for info in infos for offer in info.offers]
    kinds = (
        [offer.accepted for offer in offers if offer.kind == 0],
        [offer.accepted for offer in offers if offer.kind > 0],
        [info.directions for info in infos],
    )
    found = []
    for kind in kinds:
        moves = np.concatenate([np.empty(0), *kind])
        found.append(float(moves.mean()) if moves.size else math.nan)
    return found[0], found[1], found[2]


def _symmetric(rng: np.random.Generator, length: np.ndarray) -> np.ndarray:
    """Draw integers != 0, as often k as -k, of about a given size."""
    size = np.ceil(rng.standard_exponential(length.size) * length).astype(np.int64)
    return np.where(rng.random(length.size) < 0.5, size, -size)


def _offer(
    rng: np.random.Generator,
    state: State,
    cells: np.ndarray,
    steps: np.ndarray,
    measurements: Measurements,
    density: Density,
) -> np.ndarray:
    """Offer moves of cells that have no cell in common, one after the other."""
    proposed = state.counts.copy()
    proposed[cells] += steps
    accepted = np.empty(len(cells), dtype=np.bool_)
    slack = rng.standard_exponential(len(cells))
    there = np.asarray(density(proposed))
    _scan(cells, steps, slack, there, *state, *measurements, accepted)
    return accepted


def _offer_direction(
    rng: np.random.Generator,
    state: State,
    vector: np.ndarray,
    measurements: Measurements,
    density: Density,
) -> bool:
    """Offer one vector of the integer kernel."""
    proposed = state.counts + vector
    there = np.asarray(density(proposed))
    totals = measurements.totals(proposed)
    ratio = there.sum() - state.log_density.sum()
    ratio += log_noise(totals, measurements) - log_noise(state.totals, measurements)
    if not ratio + rng.standard_exponential() >= 0:
        return False
    state.counts[:], state.totals[:], state.log_density[:] = proposed, totals, there
    return True


def log_noise(totals: np.ndarray, measurements: Measurements) -> float:
    """Return the log density of the noisy totals, up to a constant."""
    if np.any((totals < measurements.least) | (totals > measurements.most)):
        return -math.inf
    distance = abs(measurements.release - totals) / measurements.scale
    return float(-np.where(measurements.gaussian, 0.5 * distance**2, distance).sum())


@compiled
def _scan(
    cells, steps, slack, there, counts, totals, here, starts, rows, entries, release, scale,
    gaussian, least, most, accepted,
):  # fmt: skip
    """Accept or reject each move in turn; ``totals`` is kept running."""
    for j in range(cells.shape[0]):
        ratio = slack[j]
        # A row that holds several cells moves several times; the changes add up.
        for k in range(cells.shape[1]):
            i, move = cells[j, k], steps[j, k]
            ratio += there[i] - here[i]
            ratio += shift(i, move, totals, starts, rows, entries, release, scale, gaussian)
        accepted[j] = ratio >= 0.0
        # Bounds hold for what all cells together come to.
        for i in cells[j]:
            if accepted[j] and not is_inside(i, totals, starts, rows, least, most):
                accepted[j] = False
        for k in range(cells.shape[1]):
            i = cells[j, k]
            if accepted[j]:
                counts[i] += steps[j, k]
                here[i] = there[i]
            else:
                _restore(i, steps[j, k], totals, starts, rows, entries)


@compiled
def shift(cell, move, totals, starts, rows, entries, release, scale, gaussian):
    """Move the totals, and return the change in their log density."""
    change = 0.0
    for e in range(starts[cell], starts[cell + 1]):
        r = rows[e]
        before = log_eta(r, totals[r], release, scale, gaussian)
        totals[r] += entries[e] * move
        change += log_eta(r, totals[r], release, scale, gaussian) - before
    return change


@compiled
def log_eta(row, total, release, scale, gaussian):
    """Return the log density of one release given its total, up to a constant."""
    distance = abs(release[row] - total) / scale[row]
    return -0.5 * distance * distance if gaussian[row] else -distance


@compiled
def is_inside(cell, totals, starts, rows, least, most):
    """Tell whether all totals with a cell are within their bounds."""
    for e in range(starts[cell], starts[cell + 1]):
        r = rows[e]
        if totals[r] < least[r] or totals[r] > most[r]:
            return False
    return True


@compiled
def _restore(cell, move, totals, starts, rows, entries):
    for e in range(starts[cell], starts[cell + 1]):
        totals[rows[e]] -= entries[e] * move


def stack(
    matrices: Sequence[Any],
    releases: Sequence[Any],
    scales: Sequence[Any],
    gaussian: Sequence[bool],
    bounds: Sequence[tuple[Any, Any, Any]] = (),
) -> Measurements:
    """Put the rows of several measurements under each other, and below them totals with bounds.

    ``bounds`` are matrices with the least and the most of each of their rows.
    """
    rows = [
        (a, y, s, g, -math.inf, math.inf)
        for a, y, s, g in zip(matrices, releases, scales, gaussian, strict=True)
    ]
    # On an infinite scale every total is as likely.
    rows += [(a, 0.0, math.inf, True, least, most) for a, least, most in bounds]
    parts = [sparse.csr_array(a).astype(np.float64) for a, *_ in rows]
    matrix = sparse.csc_array(sparse.vstack(parts, format="csc"))
    matrix.sort_indices()

    def column(place: int, dtype: Any = np.float64) -> np.ndarray:
        values = [np.asarray(row[place], dtype=dtype) for row in rows]
        return np.concatenate(
            [np.broadcast_to(v, a.shape[0]) for v, a in zip(values, parts, strict=True)]
        )

    return Measurements(
        matrix.indptr.astype(np.int64),
        matrix.indices.astype(np.int64),
        matrix.data,
        column(1),
        column(2),
        column(3, np.bool_),
        column(4),
        column(5),
    )
