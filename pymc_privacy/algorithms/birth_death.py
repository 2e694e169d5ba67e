"""Leave the posterior of a random number of records invariant, and of all that goes with it.

Think of an endless sequence of records x_1, x_2, …, independent draws from f given the
parameters, of which the first n are the database. The rest is drawn when it is needed, and
forgotten: that is a Gibbs step. On this space a change of n changes nothing else.

*Jumps* propose n ± k, with k drawn beforehand. With S_n the sum of the first n contributions,
they are accepted by p(n') eta(s | S_n') over p(n) eta(s | S_n), where p(n) stands for every
factor that sees the size: its prior, a release of its own. What would leave the support is
refused; no further factor appears at its ends, since the proposal is symmetric everywhere.

*Joint moves* take n along with the parameters. A real nu, uniform on (n - 1, n] given n, makes
log nu one more coordinate of the moves that hold base variates u_1, u_2, …; the density of
log nu has the factor nu. They are those of `algorithms.proposals.leaps`, in coordinates where
the ridge of `algorithms.adaptation.ridge` is straight, with a frame for each part of it.

*Single* moves are those of Algorithm 1 of Awan et al., kept for comparison: one record is
born or dies, at the least size always the former, so that the proposal is not symmetric there. The
published algorithm has no empty database; where the prior allows one, the least size is 0.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from pymc_privacy.algorithms import noise as noises
from pymc_privacy.algorithms import record_sweep
from pymc_privacy.algorithms.adaptation.ridge import bend
from pymc_privacy.algorithms.interweave import (
    Info,
    State,
    acceptance,
    are_numbers,
    base,
    bind_moves,
    bind_settled,
    came_back,
    centred_move,
    forward,
    length_of_step,
    number_or_never,
    others,
    refresh,
    settle,
    statistics,
    stepped,
)
from pymc_privacy.algorithms.machine_code.binding import Remember, bind
from pymc_privacy.algorithms.machine_code.caching import compiled
from pymc_privacy.algorithms.noise import JointLaw, Noise, ReleaseLaw, jit_with
from pymc_privacy.algorithms.numerics.small_algebra import are_equal
from pymc_privacy.algorithms.proposals.frames import single_frame
from pymc_privacy.algorithms.proposals.leaps import bind_guided, frame_given_base, guided_move

JUMP_ACCEPT = 0.4
# exp of it is more records than anybody has; no record at all is written as its negative.
LARGEST_LOG = 40.0
# Above the largest number of records met in tuning, so that a walk seldom meets an end.
ROOM = 1.5
# And so much further now and then, for a way back from sizes that tuning has not met.
MORE_ROOM = 8


class Settings(NamedTuple):
    """What tuning has learnt of the moves of parameters and sizes, and what bounds the sizes."""

    centred: Any
    noncentred: Any
    ridge: Any
    bounds: Any
    """The least and the largest value of each size."""
    reference: Any


class JumpInfo(NamedTuple):
    """What happened in a few jumps."""

    births: int
    """Accepted jumps upwards."""
    deaths: int
    """Accepted jumps downwards."""
    accept: float
    """The fraction of jumps that was accepted."""
    hits: int
    """Jumps beyond the capacity."""
    accept_min: float = math.nan
    """The smallest acceptance probability of a single move, but for births at the least size."""
    least_accept_min: float = math.nan
    """That of births at the least size, for which the proposal is not symmetric."""


class Records(NamedTuple):
    """The records that exist, one array per variable, and their contributions (d, n)."""

    arrays: Sequence[np.ndarray]
    contributions: np.ndarray


class SizeInfo(NamedTuple):
    """What happened to one database."""

    swept: record_sweep.Info | None
    """None where there was no record."""
    jumped: JumpInfo


def smallest_met(infos: Sequence[SizeInfo]) -> dict[str, float]:
    """Return the smallest acceptances of single moves of all databases, nan where none was met."""
    return {
        f"birth_death_{name}": min(
            (met for i in infos if not math.isnan(met := getattr(i.jumped, name))), default=math.nan
        )
        for name in ("accept_min", "least_accept_min")
    }


def log_nu(rng: np.random.Generator, size: int) -> float:
    """Draw the real coordinate of a size, given the size."""
    # Away from both ends, where rounding could make it another size.
    return float(np.log(size - rng.uniform(1e-9, 1 - 1e-9))) if size else -LARGEST_LOG


def size_at(log_nu: float) -> int:
    """Return the size of a real coordinate, as the compiled graphs do."""
    return int(np.ceil(np.exp(log_nu))) if log_nu > -LARGEST_LOG else 0


def bounds_of_size(
    rng: np.random.Generator, size: int, largest: int, capacity: int
) -> tuple[int, int]:
    """Draw how far a size may move together with the parameters.

    Sizes above some bound are not reached from below by such a move, nor the other way round: the
    two parts of the space have their own lengths of arrays, which a reversible move must not
    change. The bound is a little above what tuning has met (``largest``), and far above it as
    often as that costs as much. Above it there are parts of the same kind, each some times as long
    as all below it, so that there need be no end.
    """
    usual = min(capacity, math.ceil(ROOM * largest) + 50)
    far = min(capacity, MORE_ROOM * usual)
    bound = far if rng.random() * far < usual else usual
    least = 1
    while size > bound:
        least, bound = bound + 1, min(capacity, MORE_ROOM * bound)
    return least, bound


def step(
    rng: np.random.Generator,
    state: Records,
    *,
    draw: Callable[[np.random.Generator, int], Records],
    noise: Noise,
    log_size: Callable[[int, int], np.ndarray],
    capacity: int,
    scale: float,
    jumps: int,
) -> tuple[Records, SizeInfo]:
    """Sweep the records of one database, then let some be born or die.

    Parameters
    ----------
    rng
    state
    draw
        From a generator and a number of records to fresh ones, given the parameters.
    noise
        The releases and their laws.
    log_size
        The log of all factors of the sizes from the first to the last of two.
    capacity
        The largest number of records considered.
    scale
        The mean length of jumps.
    jumps
        Their number; 0 turns them off, and a negative one stands for a single move.

    Returns
    -------
    Records, SizeInfo
    """
    size = len(state.arrays[0])
    lengths = draw_jumps(rng, max(jumps, 0), scale)
    rows = min(size + int(lengths.clip(min=0).sum()) + (jumps < 0), capacity)
    fresh = draw(rng, rows)
    finite, swept = record_sweep.finite_rows(fresh.arrays), None
    if size:
        swept = _sweep(rng, state, fresh, finite, noise)
    if jumps < 0:
        # The next fresh record, or any at all when there is no room for it.
        first, last = max(0, size - 2), min(size + 1, capacity)
        new, gone, jumped = single(
            rng,
            fresh.contributions,
            size,
            noise=noise,
            log_size=log_size(first, last),
            first=first,
            capacity=capacity,
            finite=finite,
        )
        if gone >= 0:
            for array in fresh.arrays:
                array[gone] = array[size - 1]
    else:
        first = max(0, size + int(lengths.clip(max=0).sum()))
        new, jumped = jump(
            rng,
            fresh.contributions,
            size,
            lengths,
            noise=noise,
            log_size=log_size(first, rows),
            first=first,
            capacity=capacity,
            finite=finite,
        )
    arrays = [array[:new] for array in fresh.arrays]
    return Records(arrays, fresh.contributions[:, :new]), SizeInfo(swept, jumped)


def _sweep(
    rng: np.random.Generator, state: Records, fresh: Records, finite: np.ndarray, noise: Noise
) -> record_sweep.Info:
    """Offer each record a fresh one; those that are refused are overwritten by what there was."""
    size = len(state.arrays[0])
    swept, info = record_sweep.step(
        rng,
        record_sweep.init(state.contributions),
        np.ascontiguousarray(fresh.contributions[:, :size]),
        noise=noise,
        log_weight_ratio=record_sweep.never_without_numbers(None, finite[:size]),
    )
    fresh.contributions[:, :size] = swept.contributions
    for new, old in zip(fresh.arrays, state.arrays, strict=True):
        new[:size] = record_sweep.where(info.accepted, new[:size], old)
    # What was refused is gone: these rows hold records, which may die and come back.
    finite[:size] = True
    return info


def draw_jumps(rng: np.random.Generator, jumps: int, scale: float) -> np.ndarray:
    """Draw how far each jump goes, and which way: lengths are exponential, rounded up."""
    lengths = np.ceil(rng.exponential(scale, jumps)).astype(np.int64)
    return np.where(rng.random(jumps) < 0.5, lengths, -lengths)


def jump(
    rng: np.random.Generator,
    contributions: np.ndarray,
    size: int,
    jumps: np.ndarray,
    *,
    noise: Noise,
    log_size: np.ndarray,
    first: int,
    capacity: int,
    finite: np.ndarray | None = None,
) -> tuple[int, JumpInfo]:
    """Propose to let many records be born or die at once, several times.

    Parameters
    ----------
    rng
        Decides the acceptances.
    contributions
        Shape (d, rows): of the current records, and behind them of fresh ones, at least as
        many as all jumps upwards together, up to the capacity.
    size
        The current number of records.
    jumps
        From `draw_jumps`.
    noise
        The releases and their laws.
    log_size
        The log of all factors of the size, for the sizes ``first``, ``first + 1``, …: at least
        those that these jumps can reach; -inf outside the prior's support.
    first
    capacity
        The largest number of records considered.
    finite
        Which of the records are finite numbers, all by default; others are never born.

    Returns
    -------
    size, JumpInfo
    """
    if finite is None:
        finite = np.ones(contributions.shape[1], dtype=np.bool_)
    slack = rng.standard_exponential(len(jumps))
    size, births, deaths, hits = _compile_jumps(noise.laws)(
        noise.offsets,
        noise.release,
        noise.parameters,
        contributions,
        size,
        jumps,
        slack,
        log_size,
        first,
        capacity,
        finite,
    )
    return size, JumpInfo(births, deaths, (births + deaths) / max(len(jumps), 1), hits)


@compiled
def _no_release(offsets, release, total, parameters):
    return 0.0


@cache
def _compile_jumps(laws: tuple[ReleaseLaw | JointLaw, ...]) -> Callable[..., Any]:
    log_eta = noises.log_density(laws) if laws else _no_release

    @jit_with(laws)
    def scan(
        offsets, release, parameters, contributions, size, jumps, slack, log_size, first, capacity,
        finite,
    ):  # fmt: skip
        width = contributions.shape[0]
        total, moved = np.zeros(width), np.empty(width)
        for j in range(width):
            total[j] = contributions[j, :size].sum()
        now = log_eta(offsets, release, total, parameters) + log_size[size - first]
        now = number_or_never(now)
        births, deaths, hits = 0, 0, 0
        for k in range(jumps.size):
            new = size + jumps[k]
            if new > capacity:
                hits += 1
                continue
            if new < 0 or log_size[new - first] == -np.inf:
                continue
            if new > size and not finite[size:new].all():
                continue
            for j in range(width):
                if new > size:
                    moved[j] = total[j] + contributions[j, size:new].sum()
                else:
                    moved[j] = total[j] - contributions[j, new:size].sum()
            then = log_eta(offsets, release, moved, parameters) + log_size[new - first]
            # Both sides may be -inf at a start outside the noise's support: then move.
            if then + slack[k] >= now:
                births += new > size
                deaths += new < size
                size, now = new, then
                for j in range(width):
                    total[j] = moved[j]
        return size, births, deaths, hits

    return scan


def balance(
    contributions: np.ndarray,
    fresh: np.ndarray,
    *,
    dying: np.ndarray,
    noise: Noise,
    log_size: np.ndarray,
) -> np.ndarray:
    """Return what one birth or death is expected to add to some functions of the database.

    Born is any of the fresh records, and any of those that may dies, with chances r / (1 + r) of
    the ratio r of the two densities. Both ways are then in balance, so that the mean of what is
    added, given the releases, is zero. The functions are n, n² / 2, and each total.

    Parameters
    ----------
    contributions
        Of the current records, shape (d, n).
    fresh
        Of draws that nobody has looked at, shape (d, any number).
    dying
        Of some of the current records, chosen without looking at any, or of all of them.
    noise
        The releases and their laws.
    log_size
        The log of all factors of each size, from 0 up to the capacity.
    """
    added = np.zeros(2 + len(contributions))
    _compile_balance(noise.laws)(
        noise.offsets,
        noise.release,
        noise.parameters,
        contributions.sum(axis=1),
        contributions.shape[1],
        np.ascontiguousarray(dying),
        np.ascontiguousarray(fresh),
        log_size,
        added,
    )
    return added


@cache
def _compile_balance(laws: tuple[ReleaseLaw | JointLaw, ...]) -> Callable[..., Any]:
    log_eta = noises.log_density(laws) if laws else _no_release

    @jit_with(laws)
    def scan(offsets, release, parameters, total, size, dying, fresh, log_size, added):
        width = total.size
        moved = np.empty(width)
        now = number_or_never(log_eta(offsets, release, total, parameters) + log_size[size])
        for sign in (1.0, -1.0):
            others = fresh if sign > 0 else dying
            new = size + int(sign)
            if new < 0 or new >= log_size.size or others.shape[1] == 0:
                continue
            for i in range(others.shape[1]):
                for j in range(width):
                    moved[j] = total[j] + sign * others[j, i]
                then = log_eta(offsets, release, moved, parameters) + log_size[new]
                if not then > -np.inf:
                    continue
                chance = 1.0 / (1.0 + math.exp(min(now - then, 700.0))) / others.shape[1]
                added[0] += sign * chance
                added[1] += (sign * size + 0.5) * chance
                for j in range(width):
                    added[2 + j] += sign * others[j, i] * chance

    return scan


def single(
    rng: np.random.Generator,
    contributions: np.ndarray,
    size: int,
    *,
    noise: Noise,
    log_size: np.ndarray,
    first: int,
    capacity: int,
    finite: np.ndarray | None = None,
) -> tuple[int, int, JumpInfo]:
    """Propose one birth or one death, as Algorithm 1 of Awan et al. does.

    The arguments are those of `jump`; ``contributions`` has one fresh record at the end, and
    ``log_size`` begins two sizes below the current one, or at 0.

    Returns
    -------
    size, gone, JumpInfo
        ``gone`` is the record that died, whose place the last one takes, or -1.
    """
    least = _least(size, log_size, first)
    birth = size <= least or rng.random() < 0.5
    new = size + 1 if birth else size - 1
    if new > capacity:
        return size, -1, JumpInfo(0, 0, 0.0, 1)
    if birth and finite is not None and not finite[size]:
        return size, -1, JumpInfo(0, 0, 0.0, 0)
    gone = -1 if birth else int(rng.integers(size))
    total = contributions[:, :size].sum(axis=1)
    moved = total + contributions[:, size] if birth else total - contributions[:, gone]
    # Which way is certain at the least size, and a coin's toss elsewhere.
    log_ratio = log_of_way_back(size, new, least) + log_size[new - first] + log_noise(noise, moved)
    log_ratio -= number_or_never(log_size[size - first] + log_noise(noise, total))
    # What the prior rules out is no proposal whose acceptance says anything.
    met = math.exp(min(log_ratio, 0.0)) if log_size[new - first] > -np.inf else math.nan
    ratios = (math.nan, met) if size <= least else (met, math.nan)
    if not log_ratio + rng.standard_exponential() >= 0:
        return size, -1, JumpInfo(0, 0, 0.0, 0, *ratios)
    return new, gone, JumpInfo(int(birth), int(not birth), 1.0, 0, *ratios)


def _least(size: int, log_size: np.ndarray, first: int) -> int:
    """Return the least size that is possible, of those at most two below the current one."""
    while size > first and log_size[size - 1 - first] > -np.inf:
        size -= 1
    return size


def log_of_way_back(size: int, new: int, least: int) -> float:
    """Return log q(size | new) / q(new | size) of single moves."""
    there = 0.0 if size <= least else np.log(0.5)
    back = 0.0 if new <= least else np.log(0.5)
    return float(back - there)


def log_noise(noise: Noise, total: np.ndarray) -> float:
    """Return the log density of the releases, given the total of all contributions."""
    if not noise.laws:
        return 0.0
    density = _compile_density(noise.laws)
    return density(noise.offsets, noise.release, total, noise.parameters)


@cache
def _compile_density(laws: tuple[ReleaseLaw | JointLaw, ...]) -> Callable[..., float]:
    log_eta = noises.log_density(laws)

    @jit_with(laws)
    def density(offsets, release, total, parameters):
        return log_eta(offsets, release, total, parameters)

    return density


# A function that a model provides; see `bind`. The others are those of `interweave` and `leaps`.
def bent(q, *arguments):
    """Stand for a jitted function of parameters and sizes as they are."""
    raise NotImplementedError


def along(q, ridge, *arguments):
    """Evaluate a function in coordinates where the ridge is straight."""
    there = q.copy()
    bend(there, ridge, 1.0)
    return bent(there, *arguments)


def sized_moves(rng, state, held, settings, data):
    """Move parameters and sizes with the records, then the parameters given them.

    As `algorithms.proposals.leaps.guided_moves`, but for the order: the records end with
    fresh ones, which are draws given the parameters at the start only.
    """
    start, records = state
    u = base(rng, start, *(held + records + data.base))
    (factor, scale, steps), ridge = settings.noncentred, settings.ridge
    # The density given u is that of these records only if u stands for them.
    if not came_back(records, forward(start, *(held + u + data.forward))):
        steps = 0
    straight = start.copy()
    bend(straight, ridge, -1.0)
    frame, leaps = single_frame(straight, factor), False
    if settings.reference.points.size > 0 and steps > 0:
        frame = frame_given_base(settings.reference, (ridge,) + held + u + data.released)
        leaps = settings.reference.leaps
    given = (ridge,) + held + u + settings.bounds + data.noncentred
    end, t, accept, leap_accept = guided_move(rng, straight, frame, scale, steps, leaps, given)
    moved = start
    # There and back along the ridge, even what did not move would be rounded.
    if not are_equal(end, straight):
        moved = end.copy()
        bend(moved, ridge, 1.0)
    q, records = settle(start, moved, held, records, u, data.forward)
    totals = statistics(q, *(held + records + data.statistics))
    given_records = held + records + totals + data.centred
    q, centred_accept = centred_move(rng, q, settings.centred, given_records)
    return State(q, records), Info(centred_accept, accept, leap_accept, t)


def sized_refreshes(rng, state, held, settings, data):
    """Draw records afresh with parameters and sizes, then move the parameters given them.

    As `sized_moves`, for records without a form x = T(theta, u); no fresh ones are needed.
    """
    q, records = state
    factor, scale, steps = settings.noncentred
    accept = 0.0
    now = 0.0
    if steps:
        given = held + records + settings.bounds + data.others
        now = number_or_never(others(q, *given)[0].item())
    for step in range(steps):
        proposal = stepped(rng, q, factor, length_of_step(scale, step))
        fresh = refresh(rng, proposal, *(held + settings.bounds + data.refresh))
        then = fresh[0].item()
        accept += acceptance(then - now)
        if then + rng.standard_exponential() >= now and are_numbers(fresh[1:]):
            q, now, records = proposal, then, fresh[1:]
    totals = statistics(q, *(held + records + data.statistics))
    given_records = held + records + totals + data.centred
    q, centred_accept = centred_move(rng, q, settings.centred, given_records)
    return State(q, records), Info(centred_accept, accept / max(steps, 1), 0.0, q)


def compile_moves(
    functions: Mapping[str, Any],
    *,
    gradients: Collection[str],
    remember: Remember | None = None,
) -> Callable[..., Any]:
    """Compile one iteration of the moves of parameters and sizes into a single call.

    The arguments are those of `algorithms.interweave.compile_moves`.
    """
    if "noncentred" not in functions:
        names = bind_moves(functions, gradients=gradients, remember=remember)
        return bind(sized_refreshes, names, label="sized refreshes", remember=remember)
    straight = {
        name: bind(along, {"bent": functions[name]}, label=f"{name} along", remember=remember)
        for name in ("noncentred", "released")
    }
    names = bind_guided({**functions, **straight}, gradients=gradients, remember=remember)
    names["settle"] = bind_settled(functions, remember)
    return bind(sized_moves, names, label="sized moves", remember=remember)
