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
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from pymc_privacy.algorithms.count_states import couple
from pymc_privacy.algorithms.interweave import number_or_never
from pymc_privacy.algorithms.lattice_walk import Measurements, log_noise

_LARGEST = 1e15
Groups = tuple[np.ndarray, ...]
Program = Callable[[np.ndarray, np.ndarray], tuple[float, np.ndarray]]


class State(NamedTuple):
    """The parameters as one vector, the counts, and their totals."""

    parameters: np.ndarray
    counts: np.ndarray
    totals: np.ndarray


class Settings(NamedTuple):
    """How moves are made."""

    factor: np.ndarray
    """A move is this times standard Normal variates."""
    moves: int


class Info(NamedTuple):
    """What happened in one step."""

    accept: float
    """The fraction of moves that were accepted."""


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
    groupings: Sequence[Groups],
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
    accepted = 0
    for k in range(settings.moves):
        held = groupings[k % len(groupings)]
        there = parameters + settings.factor @ rng.standard_normal(parameters.size)
        there_g, there_rates = program(there, counts)
        # Rates that no count could be drawn from are outside of any posterior. Of these bounds a
        # rate of 0 is inside: what may be left must be entered.
        if not np.all((there_rates >= 0) & (there_rates < _LARGEST) & (rates < _LARGEST)):
            continue
        carried = carry(rng, counts, rates, there_rates, held)
        if sees_counts:
            there_g, _ = program(there, carried)
        there_totals = measurements.totals(carried)
        there_noise = log_noise(there_totals, measurements)
        ratio = there_g - log_g + there_noise - noise
        ratio += log_sums(carried, there_rates, held) - log_sums(carried, rates, held)
        if ratio + rng.standard_exponential() >= 0:
            accepted += 1
            parameters, rates, log_g, noise = there, there_rates, there_g, there_noise
            counts, totals = carried, there_totals
    return State(parameters, counts, totals), Info(accepted / settings.moves)


def carry(
    rng: np.random.Generator,
    counts: np.ndarray,
    rates: np.ndarray,
    moved: np.ndarray,
    held: Groups,
) -> np.ndarray:
    """Turn counts of some rates into counts of others, with the same sums of groups."""
    carried = np.empty_like(counts)
    alone = np.ones(counts.size, dtype=np.bool_)
    for cells in held:
        alone[cells] = False
        carried[cells] = _within(rng, counts[cells], rates[cells], moved[cells])
    before, after = rates[alone], moved[alone]
    # Where nobody is, all stay.
    ratio = np.divide(after, before, out=np.ones_like(before), where=before > 0)
    stay = rng.binomial(counts[alone], np.minimum(1.0, ratio))
    carried[alone] = stay + rng.poisson(np.maximum(0.0, after - before))
    return carried


def _within(
    rng: np.random.Generator, counts: np.ndarray, rates: np.ndarray, moved: np.ndarray
) -> np.ndarray:
    """Turn the counts of one group into counts of other rates with the same sum."""
    before, after = rates.sum(), moved.sum()
    # Nobody is in a group without a rate, and nobody could be in it there: `log_sums` refuses.
    if before == 0.0 or after == 0.0:
        return counts
    return couple(rng, counts, rates / before, moved / after, np.array([0, counts.size]))


def log_sums(counts: np.ndarray, rates: np.ndarray, held: Groups) -> float:
    """Return the log probability of the sums of groups, up to a constant."""
    value = 0.0
    for cells in held:
        mean, total = rates[cells].sum(), counts[cells].sum()
        if total:
            value += total * math.log(mean) if mean > 0.0 else -math.inf
        value -= mean
    return value
