"""Leave the posterior of the records invariant, one record at a time.

Ju, Awan, Gong and Rao (2022), Algorithm 1, step 2: each record is proposed from
the data model, which cancels from the acceptance ratio. What is left is

    alpha_i = min(1, eta(s | S - t_i + t_i*) w_i(x_i*) / [eta(s | S) w_i(x_i)]),

the noise ratio of their equation (5), times the ratio of whatever else the model
says about record i alone (w_i: another observed variable of that record, a potential,
a local release; 1 when there is none).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import cache
from typing import NamedTuple

import numpy as np

from pymc_privacy.algorithms.interweave import number_or_never
from pymc_privacy.algorithms.noise import JointLaw, Noise, ReleaseLaw, jit_with, log_density


class State(NamedTuple):
    """The contributions of the current records, shape (d, n): a row per coordinate."""

    contributions: np.ndarray


class Info(NamedTuple):
    """What happened in one sweep."""

    accepted: np.ndarray
    """Which records took their proposal."""
    accept: float
    """The fraction of them."""
    accept_min: float
    """The smallest acceptance probability met; at least exp(-epsilon) under epsilon-DP."""


def init(contributions: np.ndarray) -> State:
    """Take the contributions into a state that owns its memory, since a step writes into it."""
    return State(np.array(contributions, dtype=np.float64, order="C"))


def step(
    rng: np.random.Generator,
    state: State,
    proposed: np.ndarray,
    *,
    noise: Noise,
    log_weight_ratio: np.ndarray | None = None,
    rows: slice = slice(None),
) -> tuple[State, Info]:
    """Offer every record its proposal in turn, or those of some rows.

    Parameters
    ----------
    rng
        Decides the acceptances.
    state
        The contributions of the current records. Its array is overwritten.
    proposed
        The contributions, shape (d, n), of one fresh draw of each record from the data
        model given the current parameters; n counts the records of these rows. That they are
        such draws is not checked.
    noise
        The releases and their laws; d = 0 when no release is central.
    log_weight_ratio
        log w_i(x_i*) - log w_i(x_i), one number per record; none if there are no weights, or if
        proposals were drawn from f(x_i | theta) w_i(x_i).
    rows
        Which records are offered one. Must have been chosen without looking at any record.

    Returns
    -------
    State, Info
    """
    width, size = proposed.shape
    if not noise.width == width == len(state.contributions):
        # The scan reads these arrays side by side, without looking at their lengths.
        raise ValueError(
            f"The releases are made from {noise.width} coordinates, so contributions need as many "
            f"rows; got {len(state.contributions)} current and {width} proposed."
        )
    if not noise.laws and log_weight_ratio is None:
        # Nothing is known of the records that their proposals did not know.
        return state, Info(np.ones(size, dtype=np.bool_), 1.0, 1.0)
    # A Metropolis test accepts when log U < log ratio; -log U is standard exponential.
    slack = np.asarray(rng.standard_exponential(size))
    ratio = np.zeros(size) if log_weight_ratio is None else log_weight_ratio
    if not noise.laws:
        # Without a central release nothing ties the records to each other.
        accepted = ratio + slack >= 0
        return state, Info(accepted, accepted.mean(), math.exp(min(0.0, ratio.min())))
    accepted = np.empty(size, dtype=np.bool_)
    current = np.ascontiguousarray(state.contributions[:, rows])
    total = noise.totals(state.contributions)
    count, smallest = scan(noise.of_rows(rows), current, total, proposed, ratio, slack, accepted)
    if current.shape != state.contributions.shape:
        state.contributions[:, rows] = current
    return state, Info(accepted, count / size, math.exp(smallest))


def scan(
    noise: Noise,
    current: np.ndarray,
    total: np.ndarray,
    proposed: np.ndarray,
    ratio: np.ndarray,
    slack: np.ndarray,
    accepted: np.ndarray,
) -> tuple[int, float]:
    """Accept or reject each proposal in turn; ``current``, ``total``, ``accepted`` are written.

    Returns how many were accepted, and the smallest log ratio that was met, if it was below 0.
    """
    laws = noise.offsets, noise.release, noise.parameters
    records = current, total, proposed, ratio, slack, accepted
    if noise.is_grouped:
        return compile_scan_by_group(noise.laws)(*laws, noise.groups, noise.nearby, *records)
    return compile_scan(noise.laws)(*laws, *records)


@cache
def compile_scan(laws: tuple[ReleaseLaw | JointLaw, ...]) -> Callable[..., tuple[int, float]]:
    """Compile the accept-or-reject scan for these laws; ``total`` is kept running."""
    log_eta = log_density(laws)

    @jit_with(laws)
    def scan(offsets, release, parameters, current, total, proposed, ratio, slack, accepted):
        width, size = current.shape
        moved = np.empty(width)
        now = number_or_never(log_eta(offsets, release, total, parameters))
        count, smallest = 0, 0.0
        for i in range(size):
            for j in range(width):
                moved[j] = total[j] - current[j, i] + proposed[j, i]
            then = log_eta(offsets, release, moved, parameters)
            # Both sides may be -inf at a start outside the noise's support: then move.
            accepted[i] = then + ratio[i] + slack[i] >= now
            if then + ratio[i] - now < smallest:
                smallest = then + ratio[i] - now
            if accepted[i]:
                count += 1
                now = then
                for j in range(width):
                    total[j] = moved[j]
                    current[j, i] = proposed[j, i]
        return count, smallest

    return scan


@cache
def compile_scan_by_group(
    laws: tuple[ReleaseLaw | JointLaw, ...],
) -> Callable[..., tuple[int, float]]:
    """Compile the same for releases by group: of all totals, a record looks at those of its own.

    What it cannot change cancels from its ratio. That this is -inf on both sides, at a start
    outside the noise's support, is seen group by group.
    """
    log_eta = log_density(laws)

    @jit_with(laws)
    def scan(
        offsets,
        release,
        parameters,
        groups,
        nearby,
        current,
        total,
        proposed,
        ratio,
        slack,
        accepted,
    ):
        width, size = current.shape
        moved, before, place = np.empty(width), np.empty(width), np.empty(width, dtype=np.int64)
        near = np.empty(nearby[-1, 0])
        rows = np.empty((nearby[-1, 0], parameters.shape[1]))
        count, smallest = 0, 0.0
        for i in range(size):
            for k in range(len(nearby) - 1):
                group = groups[k, i]
                first, last = nearby[k, 0], nearby[k + 1, 0]
                for j in range(first, last):
                    at = offsets[k, 0] + group * (last - first) + j - first
                    near[j] = release[at]
                    rows[j] = parameters[at]
                first, last = nearby[k, 1], nearby[k + 1, 1]
                for j in range(first, last):
                    place[j] = offsets[k, 1] + group * (last - first) + j - first
            for j in range(width):
                before[j] = total[place[j]]
                moved[j] = before[j] - current[j, i] + proposed[j, i]
            now = number_or_never(log_eta(nearby, near, before, rows))
            then = log_eta(nearby, near, moved, rows)
            accepted[i] = then + ratio[i] + slack[i] >= now
            if then + ratio[i] - now < smallest:
                smallest = then + ratio[i] - now
            if accepted[i]:
                count += 1
                for j in range(width):
                    total[place[j]] = moved[j]
                    current[j, i] = proposed[j, i]
        return count, smallest

    return scan


def block(rng: np.random.Generator, rows: int, size: int) -> slice:
    """Choose a block of neighbouring records, each of these as likely as the others."""
    first = min(int(rng.integers(math.ceil(size / rows))) * rows, size - rows)
    return slice(first, first + rows)


def finite_rows(records: Sequence[np.ndarray]) -> np.ndarray:
    """Tell which records are finite numbers in all of their variables."""
    finite = [np.isfinite(variable) for variable in records]
    if all(variable.all() for variable in finite):
        return np.ones(len(records[0]), dtype=np.bool_)
    return np.logical_and.reduce(
        [v.reshape(len(v), math.prod(v.shape[1:])).all(axis=1) for v in finite]
    )


def never_without_numbers(ratio: np.ndarray | None, finite: np.ndarray) -> np.ndarray | None:
    """Return the log weight ratios, -inf for a proposal that is not all finite numbers.

    Contributions and weights need not show it: a comparison with what is no number has a result.
    """
    if finite.all():
        return ratio
    return np.where(finite, 0.0 if ratio is None else ratio, -np.inf)


def where(accepted: np.ndarray, proposed: np.ndarray, current: np.ndarray) -> np.ndarray:
    """Return the proposed records that were accepted, and the current ones elsewhere."""
    return np.where(accepted.reshape(-1, *(1,) * (current.ndim - 1)), proposed, current)


def updated(info: Info, proposed: np.ndarray, current: np.ndarray, rows: slice) -> np.ndarray:
    """Return one variable of all records in a new array, after some rows were offered others."""
    if info.accept == 1.0 and rows == slice(None):
        return proposed.copy()
    if len(proposed) == len(current):
        return where(info.accepted, proposed, current)
    new = current.copy()
    new[rows] = where(info.accepted, proposed, current[rows])
    return new


def summary(infos: Sequence[Info]) -> tuple[float, float]:
    """Return acceptance and its smallest probability over several databases, nan for none."""
    if not infos:
        return math.nan, math.nan
    records = sum(info.accepted.size for info in infos)
    accepted = sum(info.accept * info.accepted.size for info in infos)
    return accepted / records, min(info.accept_min for info in infos)
