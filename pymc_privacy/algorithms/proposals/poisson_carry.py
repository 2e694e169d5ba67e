"""Move parameters and carry Poisson counts along, so that their law cancels from the ratio.

Some groups of cells are chosen, whose sums are to be held. When rates move from m to m', a cell
outside them keeps each of its people with probability m' / m if that is below 1, and else gets
Poisson(m' - m) more. In a group, each person stays with probability min(1, p'_i / p_i), p the
shares of the rates, and else goes to a cell j with probability proportional to
max(0, p'_j - p_j). Either way the joint law of counts before and after is the same in both
directions, rates of 0 included: a cell is emptied on the way there and filled on the way back. So
for parameters that are proposed symmetrically

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

from pymc_privacy.algorithms.adaptation.tuning import safe_cholesky
from pymc_privacy.algorithms.interweave import number_or_never
from pymc_privacy.algorithms.lattice_walk import Measurements, State, log_noise

TARGET = 0.25
# A shape is learnt from so many draws for each parameter, at least.
_ENOUGH = 10
# What was learnt on the way to the posterior is forgotten after so many steps.
_FORGET = (64, 256, 1024)
_LARGEST = 1e15
Groups = tuple[np.ndarray, ...]
Program = Callable[[np.ndarray, np.ndarray], tuple[float, np.ndarray]]


class Shape(NamedTuple):
    """The length and shape of moves, learnt while tuning."""

    log_length: float
    root: np.ndarray
    """A move is this times standard Normal variates, times its length."""
    steps: int
    seen: int
    mean: np.ndarray
    scatter: np.ndarray

    def learn(self, parameters: np.ndarray, accepted: float) -> Shape:
        """Take in one more draw, and how often moves were accepted."""
        width, steps, seen = parameters.size, self.steps + 1, self.seen + 1
        before = parameters - self.mean
        mean = self.mean + before / seen
        scatter = self.scatter + np.outer(before, parameters - mean)
        length = self.log_length + (accepted - TARGET) / math.sqrt(seen)
        root = self.root
        if seen >= _ENOUGH * width:
            root = safe_cholesky(scatter / seen + 1e-10 * np.eye(width))
            # A shape that is used for the first time has the length that suits a Normal law.
            length = _usual_length(width) if self.seen + 1 == _ENOUGH * width else length
        if steps in _FORGET:
            return Shape(length, root, steps, 0, np.zeros(width), np.zeros((width, width)))
        return Shape(length, root, steps, seen, mean, scatter)


def first_shape(width: int) -> Shape:
    """Return the shape of moves before anything is known: a ball."""
    ball, nothing = 0.1 * np.eye(width), np.zeros((width, width))
    return Shape(_usual_length(width), ball, 0, 0, np.zeros(width), nothing)


def _usual_length(width: int) -> float:
    return math.log(2.4 / math.sqrt(max(width, 1)))


def step(
    rng: np.random.Generator,
    state: State,
    parameters: np.ndarray,
    *,
    measurements: Measurements,
    groupings: Sequence[Groups],
    program: Program,
    shape: Shape,
    moves: int,
    sees_counts: bool = True,
) -> tuple[State, np.ndarray, float]:
    """Offer the parameters some moves, with the counts carried along.

    ``groupings`` are groups of cells to hold the sums of, one after the other, and
    ``program(parameters, counts)`` returns log g, which may not see the counts, and the rates. Log
    densities in the state are left as they were, and have to be computed again. Returns state,
    parameters and the fraction accepted.
    """
    log_g, rates = program(parameters, state.counts)
    log_g = number_or_never(log_g)
    noise = log_noise(state.totals, measurements)
    factor = math.exp(shape.log_length) * shape.root
    accepted = 0
    for k in range(moves):
        held = groupings[k % len(groupings)]
        there = parameters + factor @ rng.standard_normal(parameters.size)
        there_g, there_rates = program(there, state.counts)
        # Rates that no count could be drawn from are outside of any posterior. Of these bounds a
        # rate of 0 is inside: what may be left must be entered.
        if not np.all((there_rates >= 0) & (there_rates < _LARGEST) & (rates < _LARGEST)):
            continue
        counts = carry(rng, state.counts, rates, there_rates, held)
        if sees_counts:
            there_g, _ = program(there, counts)
        totals = measurements.totals(counts)
        there_noise = log_noise(totals, measurements)
        ratio = there_g - log_g + there_noise - noise
        ratio += log_sums(counts, there_rates, held) - log_sums(counts, rates, held)
        if ratio + rng.standard_exponential() >= 0:
            accepted += 1
            parameters, rates, log_g, noise = there, there_rates, there_g, there_noise
            state.counts[:], state.totals[:] = counts, totals
    return state, parameters, accepted / moves


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
    stay = rng.binomial(counts[alone], _staying(before, after))
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
    share, there = rates / before, moved / after
    stay = rng.binomial(counts, _staying(share, there))
    room = np.maximum(0.0, there - share)
    # Shares that differ by rounding alone may have no room for those who leave.
    if not (leaving := counts.sum() - stay.sum()) or not room.sum() > 0.0:
        return counts
    return stay + rng.multinomial(leaving, room / room.sum())


def _staying(before: np.ndarray, after: np.ndarray) -> np.ndarray:
    """Return the probability to stay; where nobody is, 1."""
    ratio = np.divide(after, before, out=np.ones_like(before), where=before > 0)
    return np.minimum(1.0, ratio)


def log_sums(counts: np.ndarray, rates: np.ndarray, held: Groups) -> float:
    """Return the log probability of the sums of groups, up to a constant."""
    value = 0.0
    for cells in held:
        mean, total = rates[cells].sum(), counts[cells].sum()
        if total:
            value += total * math.log(mean) if mean > 0.0 else -math.inf
        value -= mean
    return value
