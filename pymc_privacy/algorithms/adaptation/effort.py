"""Find by trying how many moves with the records pay, where leaps are not accepted.

At the end of tuning every other iteration makes few of them. From one iteration to the next a
coordinate changes by J = E (change)² / (2 variance), and a chain that forgets at that rate has one
independent draw in (2 - J) / J iterations. The number that makes an independent draw cheaper, on
average over coordinates, is kept. What costs how much is counted in evaluations of a density, and
not in seconds, so that the same seed makes the same chain.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

FEW = 4
# A sweep of the records, and all that is done once in an iteration.
ONCE = 20.0
SHORT_TUNING = 200


class Effort(NamedTuple):
    """What is known of iterations with as many moves as planned, and with few."""

    last: np.ndarray
    """The parameters after the last iteration; empty before."""
    squares: np.ndarray
    """Sums of squared changes, one row for each kind of iteration."""
    counts: np.ndarray


def init(size: int) -> Effort:
    """Return what is known before anything was tried."""
    return Effort(np.empty(0), np.zeros((2, size)), np.zeros(2))


def is_tried(iteration: int, tune_steps: int, planned: int) -> bool:
    """Tell whether to try: at the end of tuning, when no leaps are made any more."""
    late = iteration >= 7 * tune_steps // 8
    return tune_steps >= SHORT_TUNING and late and planned > FEW


def observe(effort: Effort, q: np.ndarray, steps: int) -> Effort:
    """Learn from an iteration with so many moves, which ended at q."""
    if not effort.last.size:
        return effort._replace(last=q)
    kind = int(steps == FEW)
    squares, counts = effort.squares.copy(), effort.counts.copy()
    squares[kind] += (q - effort.last) ** 2
    counts[kind] += 1
    return Effort(q, squares, counts)


def number(effort: Effort, variance: np.ndarray, planned: int, others: float) -> int:
    """Return the number of moves that is worth its cost.

    Parameters
    ----------
    effort
    variance
        Of each coordinate.
    planned
        The larger number.
    others
        What an iteration costs besides these moves, in evaluations of a density.
    """
    if effort.counts.min() < 2:
        return planned
    with np.errstate(divide="ignore", invalid="ignore"):
        change = effort.squares / effort.counts[:, None] / (2 * variance)
        waits = (2 - np.minimum(change, 1.0)) / np.minimum(change, 1.0)
    waits = waits.mean(axis=1)
    # What is not a number, as where nothing moved, is no reason to make fewer.
    fewer = waits[1] * (FEW + others) < waits[0] * (planned + others)
    return FEW if fewer else planned
