"""Move parameters and carry Poisson counts along, so that their law cancels from the ratio.

Some groups of cells are chosen, whose sums are to be held. When rates move from m to m', a cell
outside them keeps each of its people with probability m' / m if that is below 1, and else gets
Poisson(m' - m) more. In a group, people move by the maximal coupling of `algorithms.count_states`,
of the shares of the rates before and after. Either way the joint law of counts before and after is
the same in both directions, rates of 0 included: a cell is emptied on the way there and filled on
the way back. So for parameters that are proposed symmetrically

    alpha = min(1, g(theta', c') eta(y | A c') h(theta') / [g(theta, c) eta(y | A c) h(theta)]),

g everything in the model but the law of the counts and the noise, and h the Poisson probability of
the sums that are held. Those must hold all exact totals. Sums that are known well are better held
too; both are done in turn. Moves have the length of the posterior given the releases and these
sums, and not given the counts, which is shorter by far where there is much noise.

Of many parameters some are moved at a time, a *block*: random moves of all at once would be too
short. The first block has the parameters that most cells share; it has every other turn.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from pymc_privacy.algorithms.count_states import couple
from pymc_privacy.algorithms.interweave import number_or_never
from pymc_privacy.algorithms.lattice_walk import Measurements, log_noise
from pymc_privacy.algorithms.machine_code.caching import compiled

_LARGEST = 1e15
Program = Callable[[np.ndarray, np.ndarray], tuple[float, np.ndarray]]


class Held(NamedTuple):
    """Groups of cells whose sums are held, and the cells in none of them."""

    cells: np.ndarray
    """Group k is ``cells[starts[k]:starts[k + 1]]``."""
    starts: np.ndarray
    alone: np.ndarray


class Block(NamedTuple):
    """Parameters that move together."""

    places: np.ndarray
    factor: np.ndarray
    """A move of them is this times standard Normal variates."""


class State(NamedTuple):
    """The parameters as one vector, the counts, and their totals."""

    parameters: np.ndarray
    counts: np.ndarray
    totals: np.ndarray


class Settings(NamedTuple):
    """How moves are made."""

    blocks: tuple[Block, ...]
    moves: int


class Info(NamedTuple):
    """What happened in one step."""

    offered: np.ndarray
    """How often each block was offered a move."""
    accepted: np.ndarray

    @property
    def accept(self) -> float:
        """Return the fraction of moves that were accepted."""
        return float(self.accepted.sum() / self.offered.sum())


def held(groups: Sequence[np.ndarray], cells: int) -> Held:
    """Return groups of some of the cells, written one after the other."""
    starts = np.cumsum([0, *(group.size for group in groups)], dtype=np.int64)
    joined = np.concatenate([np.empty(0, dtype=np.int64), *groups])
    return Held(joined, starts, np.setdiff1d(np.arange(cells), joined))


def init(parameters: np.ndarray, counts: np.ndarray, measurements: Measurements) -> State:
    """Compute what belongs to the counts."""
    counts = np.array(counts, dtype=np.int64)
    return State(parameters, counts, measurements.totals(counts))


def step(
    rng: np.random.Generator,
    state: State,
    settings: Settings,
    *,
    measurements: Measurements,
    groupings: Sequence[Held],
    program: Program,
    sees_counts: bool = True,
) -> tuple[State, Info]:
    """Offer the parameters some moves, with the counts carried along.

    ``groupings`` are groups of cells to hold the sums of, one after the other, and
    ``program(parameters, counts)`` returns log g, which may not see the counts, and the rates.
    """
    parameters, counts, totals = state
    log_g, rates = program(parameters, counts)
    log_g = number_or_never(log_g)
    noise = log_noise(totals, measurements)
    offered, accepted = np.zeros((2, len(settings.blocks)), dtype=np.int64)
    for k in range(settings.moves):
        groups = groupings[k % len(groupings)]
        turn = _turn(rng, k // len(groupings), len(settings.blocks))
        places, factor = settings.blocks[turn]
        offered[turn] += 1
        there = parameters.copy()
        there[places] += factor @ rng.standard_normal(places.size)
        there_g, there_rates = program(there, counts)
        # Rates that no count could be drawn from are outside of any posterior. Of these bounds a
        # rate of 0 is inside: what may be left must be entered.
        if not np.all((there_rates >= 0) & (there_rates < _LARGEST) & (rates < _LARGEST)):
            continue
        carried = carry(rng, counts, rates, there_rates, groups)
        if sees_counts:
            there_g, _ = program(there, carried)
        there_totals = measurements.totals(carried)
        there_noise = log_noise(there_totals, measurements)
        ratio = there_g - log_g + there_noise - noise
        ratio += log_sums(carried, there_rates, groups) - log_sums(carried, rates, groups)
        if ratio + rng.standard_exponential() >= 0:
            accepted[turn] += 1
            parameters, rates, log_g, noise = there, there_rates, there_g, there_noise
            counts, totals = carried, there_totals
    return State(parameters, counts, totals), Info(offered, accepted)


def _turn(rng: np.random.Generator, k: int, blocks: int) -> int:
    """Return whose turn it is: the first block's, in every other turn that of another."""
    return 0 if blocks == 1 or k % 2 == 0 else int(rng.integers(1, blocks))


@compiled
def _carry(rng, counts, rates, moved, cells, starts, alone):
    """Turn counts of some rates into counts of others, with the same sums of groups."""
    carried = np.empty_like(counts)
    here, there = rates[cells], moved[cells]
    for k in range(starts.size - 1):
        first, last = starts[k], starts[k + 1]
        before, after = here[first:last].sum(), there[first:last].sum()
        # Nobody is in a group without a rate, and nobody could be in it there: `log_sums` refuses.
        if before > 0.0 and after > 0.0:
            here[first:last] /= before
            there[first:last] /= after
        else:
            here[first:last] = 0.0
            there[first:last] = 0.0
    joined = couple(rng, counts[cells], here, there, starts)
    for k in range(cells.size):
        carried[cells[k]] = joined[k]
    for i in alone:
        before, after = rates[i], moved[i]
        carried[i] = counts[i]
        if after < before and counts[i] > 0:
            carried[i] = rng.binomial(counts[i], after / before)
        elif after > before:
            carried[i] += rng.poisson(after - before)
    return carried


def carry(
    rng: np.random.Generator,
    counts: np.ndarray,
    rates: np.ndarray,
    moved: np.ndarray,
    groups: Held,
) -> np.ndarray:
    """Turn counts of some rates into counts of others, with the same sums of groups."""
    return _carry(rng, counts, np.asarray(rates, dtype=np.float64), moved, *groups)


@compiled
def _log_sums(counts, rates, cells, starts):
    value = 0.0
    for k in range(starts.size - 1):
        mean, total = 0.0, 0
        for i in cells[starts[k] : starts[k + 1]]:
            mean += rates[i]
            total += counts[i]
        if total > 0:
            if not mean > 0.0:
                return -np.inf
            value += total * math.log(mean)
        value -= mean
    return value


def log_sums(counts: np.ndarray, rates: np.ndarray, groups: Held) -> float:
    """Return the log probability of the sums of groups, up to a constant."""
    return float(_log_sums(counts, rates, groups.cells, groups.starts))
