"""Leave the posterior of parameters and of counts of equal records invariant, in O(cells).

Records of finite support that are identically distributed are known, up to their order, by
the number c_k of them in each cell k. Given theta these counts are Multinomial(n, f(theta)),
so with contributions t_k of a record in cell k the posterior is

    p(theta) Multinomial(c; n, f(theta)) eta(s | S),    S = sum_k c_k t_k.

Three moves leave it invariant, none of which looks at a single record.

*Centred.* theta moves given c, by a trajectory for p(theta) prod_k f_k(theta)^{c_k}.

*With the counts.* theta* comes from a random walk, p = f(theta), p* = f(theta*). Each record
moves on its own from its cell j to a cell k, so that (j, k) has the maximal coupling

    m(j, k) = 1{j = k} min(p_j, p*_j) + (p_j - p*_j)_+ (p*_k - p_k)_+ / sum_l (p*_l - p_l)_+ :

it stays with probability min(1, p*_j / p_j), else it falls into a cell k in proportion to
(p*_k - p_k)_+. The margins of m are p and p*, and exchanging p and p* transposes it. Hence
the counts (c, c*) of n independent pairs drawn from m have a joint law

    Multinomial(c; n, p) K(c -> c* | p, p*) = Multinomial(c*; n, p*) K(c* -> c | p*, p),

both sides being the probability of the same tables of pairs. So the move is accepted with
probability min(1, p(theta*) eta(s | S*) / [p(theta) eta(s | S)]), where p(theta) is the
density in the coordinates that walk; the law of the counts cancels.

*Blocks.* Every record is chosen with the same probability, whatever its value, and the chosen
ones are drawn afresh from f(theta): accepted by eta(s | S*) / eta(s | S) alone.

Several databases stand one after the other in the same arrays; ``starts`` says where.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from pymc_privacy.algorithms.interweave import (
    Move,
    acceptance,
    length_of_step,
    number_or_never,
    stepped,
    trajectory,
    walk,
)
from pymc_privacy.algorithms.machine_code.binding import Remember, bind
from pymc_privacy.algorithms.machine_code.caching import compiled

# Every fourth block is small, so that some are accepted where the large ones do not fit.
SMALL_BLOCK = 0.125
# About 0.5 for the large blocks, and 0.8 for the small ones.
BLOCK_ACCEPT = 0.58


class State(NamedTuple):
    """The parameters, and the number of records in each cell."""

    q: np.ndarray
    counts: np.ndarray


class Info(NamedTuple):
    """What happened in one iteration."""

    centred_accept: float
    noncentred_accept: float
    block_accept: float
    shift: np.ndarray
    """By how much the parameters moved with the counts."""


class Block(NamedTuple):
    """Which fraction of the records is drawn afresh at once, and how often."""

    fraction: float
    blocks: int


class Settings(NamedTuple):
    """What tuning has learnt of all moves."""

    centred: Move
    noncentred: Move
    block: Block


class Data(NamedTuple):
    """What each function of a model reads besides its arguments."""

    centred: tuple
    law: tuple
    noise: tuple


class CellTable(NamedTuple):
    """What never changes: contributions (cells, d) and the first cell of each database."""

    contributions: np.ndarray
    starts: np.ndarray


# Names of functions that a model provides; see `bind`.
def centred_move(rng, q, move, arguments):
    """Stand for a bound `trajectory` or `walk` given the counts."""
    raise NotImplementedError


def law(q, *arguments):
    """Stand for a jitted function: log p(theta) (0-d) and the probabilities of all cells."""
    raise NotImplementedError


def log_noise(totals, *arguments):
    """Stand for a jitted function: a tuple of log eta(s | S) (0-d)."""
    raise NotImplementedError


@compiled
def totals_of(counts, contributions):
    """Return S = sum_k c_k t_k."""
    totals = np.zeros(contributions.shape[1])
    for k in range(counts.size):
        if counts[k] > 0:
            for j in range(totals.size):
                totals[j] += counts[k] * contributions[k, j]
    return totals


@compiled
def scatter(rng, records, weights, counts):
    """Throw records into cells in proportion to weights, adding them to the counts.

    Cell after cell, the number is Binomial among those that are left. The weights must not
    all be zero.
    """
    rest = np.empty(weights.size)
    total = 0.0
    # Summed from the end, the last cell of any weight has exactly all that is left.
    for k in range(weights.size - 1, -1, -1):
        total += weights[k]
        rest[k] = total
    for k in range(weights.size):
        if records == 0:
            break
        if weights[k] > 0.0:
            here = rng.binomial(records, weights[k] / rest[k])
            counts[k] += here
            records -= here


@compiled
def couple(rng, counts, here, there, starts):
    """Move counts of law Multinomial(n, here) to Multinomial(n, there), as few as can be."""
    moved = counts.copy()
    gains = np.maximum(there - here, 0.0)
    for s in range(starts.size - 1):
        first, last = starts[s], starts[s + 1]
        # Equal up to rounding, or no numbers: a record that left would have nowhere to go.
        if not gains[first:last].sum() > 0.0:
            continue
        leaving = 0
        for k in range(first, last):
            if counts[k] > 0 and there[k] < here[k]:
                moved[k] = rng.binomial(counts[k], there[k] / here[k])
                leaving += counts[k] - moved[k]
        scatter(rng, leaving, gains[first:last], moved[first:last])
    return moved


@compiled
def redraw(rng, counts, probabilities, starts, fraction):
    """Draw afresh each record with probability ``fraction``."""
    moved = counts.copy()
    for s in range(starts.size - 1):
        first, last = starts[s], starts[s + 1]
        # Outside the support there is nothing to draw from.
        if not probabilities[first:last].sum() > 0.0:
            continue
        chosen = 0
        for k in range(first, last):
            if counts[k] > 0:
                moved[k] -= rng.binomial(counts[k], fraction)
                chosen += counts[k] - moved[k]
        scatter(rng, chosen, probabilities[first:last], moved[first:last])
    return moved


@compiled
def arrange(rng, counts):
    """Return the cells of all records in uniformly random order.

    Given the counts, every order of exchangeable records is equally likely.
    """
    order = np.empty(counts.sum(), dtype=np.int64)
    size = 0
    for k in range(counts.size):
        for _ in range(counts[k]):
            # Uniform up to n / 2^53, as every real number of the generator is.
            place = int(rng.random() * (size + 1))
            order[size] = order[place]
            order[place] = k
            size += 1
    return order


def counted_walk(rng, q, counts, cells, move, given, noise):
    """Take random-walk steps that carry the counts along.

    Returns the parameters, the counts, the mean acceptance and the probabilities of the cells.
    """
    contributions, starts = cells
    factor, scale, steps = move
    density, here = law(q, *given)
    now = density.item() + log_noise(totals_of(counts, contributions), *noise)[0].item()
    now = number_or_never(now)
    accept = 0.0
    for step in range(steps):
        proposal = stepped(rng, q, factor, length_of_step(scale, step))
        density, there = law(proposal, *given)
        # Outside the support there are no probabilities to couple.
        if not density.item() > -np.inf:
            continue
        moved = couple(rng, counts, here, there, starts)
        then = density.item() + log_noise(totals_of(moved, contributions), *noise)[0].item()
        accept += acceptance(then - now)
        if then + rng.standard_exponential() >= now:
            q, counts, here, now = proposal, moved, there, then
    return q, counts, accept / max(steps, 1), here


def redrawn_blocks(rng, counts, cells, probabilities, block, noise):
    """Offer blocks of fresh records; return the counts and the mean acceptance."""
    contributions, starts = cells
    now = number_or_never(log_noise(totals_of(counts, contributions), *noise)[0].item())
    accept = 0.0
    for number in range(block.blocks):
        share = block.fraction * SMALL_BLOCK if number % 4 == 3 else block.fraction
        moved = redraw(rng, counts, probabilities, starts, share)
        then = log_noise(totals_of(moved, contributions), *noise)[0].item()
        accept += acceptance(then - now)
        if then + rng.standard_exponential() >= now:
            counts, now = moved, then
    return counts, accept / max(block.blocks, 1)


def step(rng, state, cells, held, settings, data):
    """Move the parameters given the counts, then with them, then blocks of records.

    ``held`` are values that stay as they are.
    """
    start, counts = state
    q, centred_accept = centred_move(rng, start, settings.centred, held + (counts,) + data.centred)
    moved, counts, accept, probabilities = counted_walk(
        rng, q, counts, cells, settings.noncentred, held + data.law, data.noise
    )
    counts, block_accept = redrawn_blocks(
        rng, counts, cells, probabilities, settings.block, data.noise
    )
    return State(moved, counts), Info(centred_accept, accept, block_accept, moved - q)


def compile_step(
    *,
    centred: Any,
    law: Any,
    noise: Any,
    has_gradient: bool,
    remember: Remember | None = None,
) -> Callable[..., tuple[State, Info]]:
    """Compile one iteration of all moves into a single call.

    Parameters
    ----------
    centred, law, noise
        The jitted functions of a model.
    has_gradient
        Whether ``centred`` returns its gradient too.
    remember
        As for `bind`.
    """

    def made(template: Callable[..., Any], label: str, **functions: Any) -> Any:
        return bind(template, functions, label=f"counted {label}", remember=remember)

    return made(
        step,
        "step",
        centred_move=made(trajectory if has_gradient else walk, "centred", log_density=centred),
        counted_walk=made(counted_walk, "walk", law=law, log_noise=noise),
        redrawn_blocks=made(redrawn_blocks, "blocks", log_noise=noise),
    )
