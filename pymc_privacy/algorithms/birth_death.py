"""Leave the posterior of a random number of records invariant, and of all that goes with it.

Think of an endless sequence of records x_1, x_2, …, independent draws from f given the
parameters, of which the first n are the database. The rest is drawn when it is needed, and
forgotten: that is a Gibbs step. On this space a change of n changes nothing else.

*Jumps* propose n ± k, with k drawn beforehand. With S_n the sum of the first n contributions,
they are accepted by p(n') eta(s | S_n') over p(n) eta(s | S_n), where p(n) stands for every
factor that sees the size: its prior, a release of its own. What would leave the support is
refused; no further factor appears at its ends, since the proposal is symmetric everywhere.

*Joint moves* take n along with the parameters. A real nu, uniform on (n - 1, n] given n, makes
log nu one more coordinate of the random walk that holds base variates u_1, u_2, …; the
density of log nu has the factor nu.

*Single* moves are those of Algorithm 1 of Awan et al., kept for comparison: one record is
born or dies, at n = 1 always the former, so that the proposal is not symmetric there.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from functools import cache
from typing import Any, NamedTuple

import numpy as np
from numba import njit

from pymc_privacy.algorithms import noise as noises
from pymc_privacy.algorithms.binding import Remember, bind
from pymc_privacy.algorithms.interweave import (
    SHORT_STEP,
    acceptance,
    bind_moves,
    lower_times,
)
from pymc_privacy.algorithms.noise import JointLaw, Law, Noise
from pymc_privacy.algorithms.ridge import bend

JUMP_ACCEPT = 0.4


class Info(NamedTuple):
    """What happened in a few jumps."""

    births: int
    """Accepted jumps upwards."""
    deaths: int
    """Accepted jumps downwards."""
    accept: float
    """The fraction of jumps that was accepted."""
    hits: int
    """Jumps beyond the capacity."""


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
) -> tuple[int, Info]:
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

    Returns
    -------
    size, Info
    """
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
    )
    return size, Info(births, deaths, (births + deaths) / max(len(jumps), 1), hits)


@njit(cache=True)
def _no_release(offsets, release, total, parameters):
    return 0.0


@cache
def _compile_jumps(laws: tuple[Law | JointLaw, ...]) -> Callable[..., Any]:
    log_eta = noises.log_density(laws) if laws else _no_release

    # Code compiled elsewhere cannot be found again by the disk cache.
    @njit(cache=not any(isinstance(law, JointLaw) for law in laws))
    def scan(
        offsets, release, parameters, contributions, size, jumps, slack, log_size, first, capacity
    ):
        width = contributions.shape[0]
        total, moved = np.zeros(width), np.empty(width)
        for j in range(width):
            total[j] = contributions[j, :size].sum()
        now = log_eta(offsets, release, total, parameters) + log_size[size - first]
        births, deaths, hits = 0, 0, 0
        for k in range(jumps.size):
            new = size + jumps[k]
            if new > capacity:
                hits += 1
                continue
            if new < 0 or log_size[new - first] == -np.inf:
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


def single(
    rng: np.random.Generator,
    contributions: np.ndarray,
    size: int,
    *,
    noise: Noise,
    log_size: np.ndarray,
    first: int,
    capacity: int,
) -> tuple[int, int, Info]:
    """Propose one birth or one death, as Algorithm 1 of Awan et al. does.

    The arguments are those of `jump`; ``contributions`` has one fresh record at the end.

    Returns
    -------
    size, gone, Info
        ``gone`` is the record that died, whose place the last one takes, or -1.
    """
    least = 1
    birth = size <= least or rng.random() < 0.5
    new = size + 1 if birth else size - 1
    if new > capacity:
        return size, -1, Info(0, 0, 0.0, 1)
    gone = -1 if birth else int(rng.integers(size))
    total = contributions[:, :size].sum(axis=1)
    moved = total + contributions[:, size] if birth else total - contributions[:, gone]
    # Which way is certain at the least size, and a coin's toss elsewhere.
    log_ratio = log_of_way_back(size, new, least)
    log_ratio += log_size[new - first] - log_size[size - first]
    if noise.laws:
        given = (noise.offsets, noise.release)
        density = _compile_density(noise.laws)
        log_ratio += density(*given, moved, noise.parameters)
        log_ratio -= density(*given, total, noise.parameters)
    if not log_ratio + rng.standard_exponential() >= 0:
        return size, -1, Info(0, 0, 0.0, 0)
    return new, gone, Info(int(birth), int(not birth), 1.0, 0)


def log_of_way_back(size: int, new: int, least: int) -> float:
    """Return log q(size | new) / q(new | size) of single moves."""
    there = 0.0 if size <= least else np.log(0.5)
    back = 0.0 if new <= least else np.log(0.5)
    return float(back - there)


@cache
def _compile_density(laws: tuple[Law | JointLaw, ...]) -> Callable[..., float]:
    log_eta = noises.log_density(laws)

    @njit(cache=not any(isinstance(law, JointLaw) for law in laws))
    def density(offsets, release, total, parameters):
        return log_eta(offsets, release, total, parameters)

    return density


# Names of functions that a model provides; see `bind`.
def centred_move(rng, q, factor, scale, steps, arguments):
    """Stand for a move of the parameters given the records that exist."""
    raise NotImplementedError


def noncentred_move(rng, q, factors, scale, steps, ridge, arguments):
    """Stand for a bound `walk_along`, of parameters and sizes given the base variates."""
    raise NotImplementedError


def log_density(q, *arguments):
    """Stand for a jitted log density that returns a tuple with its value (0-d)."""
    raise NotImplementedError


def factors_given_base(references, lengths, precision, weights, ridge, arguments):
    """Stand for bound `local_factors`."""
    raise NotImplementedError


def released(q, *arguments):
    """Stand for the jitted function from parameters, sizes and base variates to the statistic."""
    raise NotImplementedError


def statistics(q, *arguments):
    """Stand for the function from records to sums that the centred density reads."""
    raise NotImplementedError


def base(rng, q, *arguments):
    """Stand for the function from parameters and records to base variates."""
    raise NotImplementedError


def forward(q, *arguments):
    """Stand for the function from parameters and base variates to records."""
    raise NotImplementedError


def others(q, *arguments):
    """Stand for the log density of all but the records, at the current records."""
    raise NotImplementedError


def refresh(rng, q, *arguments):
    """Stand for a draw of all records given q; returns `others` there, and the records."""
    raise NotImplementedError


def local_factors(references, lengths, precision, weights, ridge, arguments):
    """Return the factor of a walk for these base variates, at each of several references.

    As `pymc_privacy.algorithms.interweave.local_factor`, in coordinates where the ridge is
    straight, in which the references are given.
    """
    count, size = references.shape
    factors = np.empty((count, size, size))
    for r in range(count):
        slopes = np.empty((size, weights.size))
        for i in range(size):
            there = references[r].copy()
            there[i] += lengths[i]
            bend(there, ridge, 1.0)
            slopes[i] = released(there, *arguments)[0]
            there = references[r].copy()
            there[i] -= lengths[i]
            bend(there, ridge, 1.0)
            slopes[i] -= released(there, *arguments)[0]
            slopes[i] /= 2 * lengths[i]
        information = precision + (slopes * weights) @ slopes.T
        # A slope that is no number, or one beyond all measure, is no guide.
        if not np.isfinite(information).all():
            information = precision
        inverse = np.linalg.inv(information)
        factors[r] = np.linalg.cholesky((inverse + inverse.T) / 2)
    return factors


def walk_along(rng, q, factors, scale, steps, ridge, arguments):
    """Take random-walk steps along a ridge; return where they end and the mean acceptance.

    As `pymc_privacy.algorithms.interweave.walk`, in coordinates where the ridge is straight. Of
    four steps one is short, and one has the last of the factors: that of the ridge's far end,
    where the first does not fit.
    """
    now = log_density(q, *arguments)[0].item()
    accept = 0.0
    q, proposal = q.copy(), np.empty(q.size)
    for step in range(steps):
        length = scale * SHORT_STEP if step % 4 == 3 else scale
        factor = factors[len(factors) - 1] if step % 4 == 1 else factors[0]
        proposal[:] = q
        bend(proposal, ridge, -1.0)
        proposal += length * lower_times(factor, rng.standard_normal(q.size))
        bend(proposal, ridge, 1.0)
        then = log_density(proposal, *arguments)[0].item()
        accept += acceptance(then - now)
        # Not a number, outside the support, is never accepted.
        if then + rng.standard_exponential() >= now:
            q, proposal = proposal, q
            now = then
    return q, accept / max(steps, 1)


def sized_moves(rng, q, held, records, bounds, data, centred, wide, local):
    """Move parameters and sizes with the records, then the parameters given them.

    As `pymc_privacy.algorithms.interweave.interwoven_moves`, but for the order: ``records`` end
    with fresh ones, which are draws given the parameters at the start only. ``bounds`` are
    the least and the largest value of each size; ``wide`` ends with the ridge.
    """
    u = base(rng, q, *(held + records + data[2]))
    factors, scale, steps, ridge = wide
    if local[0].size > 0 and steps > 0:
        factors = factors_given_base(*local, ridge, held + u + data[5])
    given = held + u + bounds + data[3]
    moved, there = noncentred_move(rng, q, factors, scale, steps, ridge, given)
    records = forward(moved, *(held + u + data[4]))
    totals = statistics(moved, *(held + records + data[0]))
    q, here = centred_move(rng, moved, *centred, held + records + totals + data[1])
    return q, records, here, there


def sized_refreshes(rng, q, held, records, bounds, data, centred, wide, local):
    """Draw records afresh with parameters and sizes, then move the parameters given them.

    As `sized_moves`, for records without a form x = T(theta, u); no fresh ones are needed.
    """
    factors, scale, steps, _ = wide
    there = 0.0
    now = others(q, *(held + records + bounds + data[2]))[0].item() if steps else 0.0
    for step in range(steps):
        length = scale * SHORT_STEP if step % 4 == 3 else scale
        proposal = q + length * lower_times(factors[0], rng.standard_normal(q.size))
        fresh = refresh(rng, proposal, *(held + bounds + data[3]))
        then = fresh[0].item()
        there += acceptance(then - now)
        if then + rng.standard_exponential() >= now:
            q, now, records = proposal, then, fresh[1:]
    totals = statistics(q, *(held + records + data[0]))
    q, here = centred_move(rng, q, *centred, held + records + totals + data[1])
    return q, records, here, there / max(steps, 1)


def compile_moves(
    functions: Mapping[str, Any],
    *,
    gradients: Collection[str],
    remember: Remember | None = None,
) -> Callable[..., Any]:
    """Compile one iteration of the moves of parameters and sizes into a single call.

    The arguments are those of `pymc_privacy.algorithms.interweave.compile_moves`.
    """
    names = bind_moves(functions, gradients=gradients, remember=remember)
    if "noncentred" in functions:
        known = {"log_density": functions["noncentred"]}
        names["noncentred_move"] = bind(walk_along, known, label="walk along", remember=remember)
        known = {"released": functions["released"]}
        names["factors_given_base"] = bind(
            local_factors, known, label="local factors", remember=remember
        )
        del names["factor_given_base"]
    template = sized_moves if "noncentred" in functions else sized_refreshes
    return bind(template, names, label=template.__name__, remember=remember)
