"""Leave the posterior of parameters and records invariant, by moves of the parameters.

Two coordinates of one law are used in turn (Yu and Meng, 2011). Given the records x, a
*centred* move targets p(theta) f(x | theta). Given the base variates u, where
x = T(theta, u), a *non-centred* move targets p(theta) eta(s | S(theta, u)) and carries the
records along: no f(x | theta) and no Jacobian appear, since u has the same law for every
theta. Between the two, u is recomputed from x, which changes nothing else.

The centred law is smooth and, given many records, close to a Normal one: its move is a
Hamiltonian trajectory of about a quarter of a period, whitened by a factor L. The
non-centred law has kinks where records are clamped: its move is a random walk
theta* = theta + c L e, with e standard normal. With many parameters a walk is slow, and
both moves are trajectories.

Records that have no form x = T(theta, u) are drawn afresh with the parameters: theta* by a
random walk, x* from f(x | theta*), accepted by p(theta*) eta(s | S(x*)) over
p(theta) eta(s | S(x)), since f cancels.

Records are written only where a move was accepted, and where all that is written are numbers.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping
from typing import Any, NamedTuple

import numpy as np
from numba import literal_unroll

from pymc_privacy.algorithms.machine_code.binding import Remember, bind
from pymc_privacy.algorithms.machine_code.caching import compiled
from pymc_privacy.algorithms.numerics.small_algebra import (
    add,
    are_equal,
    are_finite,
    copied,
    lower_times,
    sum_of_squares,
    times_lower,
)

SHORT_STEP = 0.25
# About 0.27 for the three long steps of four, which is best for a random walk in several
# dimensions, and 0.7 for the short one.
WALK_ACCEPT = 0.38
TRAJECTORY_ACCEPT = 0.85
LONGEST_TRAJECTORY = 12
# In units of the largest record: what comes back no closer has not come back. Real records may be
# held in coordinates of a higher resolution than their own, near a bound.
CLOSE, CLOSE_WHOLE = 1e-3, 1e-9


class State(NamedTuple):
    """The parameters, as one vector, and the records."""

    q: Any
    records: Any


class Move(NamedTuple):
    """How a move of the parameters is made: in which shape, how far, and how often."""

    factor: Any
    scale: Any
    steps: Any


class Settings(NamedTuple):
    """What tuning has learnt of all moves."""

    centred: Any
    noncentred: Any
    reference: Any
    """For moves that follow u: a `proposals.frames.Reference`."""


class Info(NamedTuple):
    """What happened in one iteration."""

    centred_accept: Any
    noncentred_accept: Any
    leap_accept: Any
    shift: Any
    """By how much the parameters moved with the records; where moves follow u, their t."""


class CarriedData(NamedTuple):
    """What each function of a model reads besides its arguments, if records are carried along."""

    statistics: Any
    centred: Any
    base: Any
    noncentred: Any
    forward: Any
    released: Any


class RefreshedData(NamedTuple):
    """What each function of a model reads besides its arguments, if records are drawn afresh."""

    statistics: Any
    centred: Any
    others: Any
    refresh: Any


# Names of functions that a model provides; see `bind`.
def log_density(q, *arguments):
    """Stand for a jitted log density that returns a tuple: value (0-d) and maybe gradient."""
    raise NotImplementedError


def centred_move(rng, q, move, arguments):
    """Stand for a bound `walk` or `trajectory` given the records."""
    raise NotImplementedError


def noncentred_move(rng, q, move, arguments):
    """Stand for a bound `walk` given the base variates."""
    raise NotImplementedError


def statistics(q, *arguments):
    """Stand for the jitted function from records to sums that the centred density reads."""
    raise NotImplementedError


def others(q, *arguments):
    """Stand for the jitted log density of all but the records, at the current records."""
    raise NotImplementedError


def refresh(rng, q, *arguments):
    """Stand for a jitted draw of all records given q; returns `others` there, and the records."""
    raise NotImplementedError


def base(rng, q, *arguments):
    """Stand for the jitted function from parameters and records to base variates."""
    raise NotImplementedError


def forward(q, *arguments):
    """Stand for the jitted function from parameters and base variates to records."""
    raise NotImplementedError


def settle(q, moved, held, records, u, data):
    """Stand for a bound `settled`."""
    raise NotImplementedError


@compiled
def acceptance(log_ratio):
    """Return min(1, exp(log_ratio)), and 0 for what is not a number."""
    if log_ratio >= 0:
        return 1.0
    return math.exp(log_ratio) if log_ratio > -700 else 0.0


@compiled
def flattened(parts):
    """Return the numbers of several arrays as one vector."""
    size = 0
    for part in literal_unroll(parts):
        size += part.size
    vector = np.empty(size)
    k = 0
    for part in literal_unroll(parts):
        for value in part.flat:
            vector[k] = value
            k += 1
    return vector


@compiled
def came_back(records, again):
    """Tell whether records are those that their base variates stand for."""
    here, there = flattened(records), flattened(again)
    largest = 0.0
    for i in range(here.size):
        # What is not a number is the largest of all.
        if not abs(here[i]) <= largest:
            largest = abs(here[i])
    for i in range(here.size):
        whole = here[i] == math.floor(here[i]) and there[i] == math.floor(there[i])
        # What is not a number is not close either.
        if not abs(there[i] - here[i]) <= (CLOSE_WHOLE if whole else CLOSE) * largest:
            return False
    return True


@compiled
def are_numbers(parts):
    """Tell whether all numbers of several arrays are finite."""
    return are_finite(flattened(parts))


@compiled
def number_or_never(log_density):
    """Return a log density, -inf where it is not a number: anything else is better."""
    return -math.inf if math.isnan(log_density) else log_density


@compiled
def length_of_step(scale, step):
    """Return how far a walk goes: every fourth step is short, for where the length does not fit."""
    return scale * SHORT_STEP if step % 4 == 3 else scale


@compiled
def stepped(rng, q, factor, length):
    """Return q + length L e, with e standard normal."""
    proposal = copied(q)
    add(proposal, length, lower_times(factor, rng.standard_normal(q.size)))
    return proposal


def walk(rng, q, move, arguments):
    """Take random-walk steps; return the parameters and the mean acceptance.

    Every fourth step is short, so that the walk also moves where its length does not fit.
    """
    factor, scale, steps = move
    now = number_or_never(log_density(q, *arguments)[0].item())
    accept = 0.0
    for step in range(steps):
        proposal = stepped(rng, q, factor, length_of_step(scale, step))
        then = log_density(proposal, *arguments)[0].item()
        accept += acceptance(then - now)
        # Not a number, outside the support, is never accepted.
        if then + rng.standard_exponential() >= now:
            q, now = proposal, then
    return q, accept / max(steps, 1)


def trajectory(rng, q, move, arguments):
    """Run Hamiltonian trajectories; return the parameters and the mean acceptance.

    Leapfrogs as long as the scale run in coordinates where the factor is the identity. Their
    number is drawn beforehand, so that each trajectory can be run backwards.
    """
    factor, scale, steps = move
    value, gradient = log_density(q, *arguments)
    now, slope = number_or_never(value.item()), times_lower(gradient, factor)
    accept = 0.0
    for _ in range(steps):
        quarter = 0.5 * math.pi / scale * (0.75 + 0.5 * rng.random())
        leapfrogs = min(max(1, int(quarter + 0.5)), LONGEST_TRAJECTORY)
        momentum = rng.standard_normal(q.size)
        energy = now - 0.5 * sum_of_squares(momentum)
        there, at, tilt = copied(q), now, slope
        for _ in range(leapfrogs):
            add(momentum, 0.5 * scale, tilt)
            add(there, scale, lower_times(factor, momentum))
            value, gradient = log_density(there, *arguments)
            at, tilt = value.item(), times_lower(gradient, factor)
            add(momentum, 0.5 * scale, tilt)
        change = at - 0.5 * sum_of_squares(momentum) - energy
        accept += acceptance(change)
        if change + rng.standard_exponential() >= 0:
            q, now, slope = there, at, tilt
    return q, accept / max(steps, 1)


def settled(q, moved, held, records, u, data):
    """Return parameters and records after a move given u, or as they were before it.

    What was not accepted is not written: the same records again would be rounded, or worse. And a
    density need not see a record that is no number.
    """
    if are_equal(moved, q):
        return q, records
    carried = forward(moved, *(held + u + data))
    if not are_numbers(carried):
        return q, records
    return moved, carried


def interwoven_moves(rng, state, held, settings, data):
    """Move the parameters given the records, then with them.

    ``held`` are values that stay as they are; ``data`` is a `CarriedData`. There are no leaps.
    """
    records, move = state.records, settings.noncentred
    totals = statistics(state.q, *(held + records + data.statistics))
    given = held + records + totals + data.centred
    q, centred_accept = centred_move(rng, state.q, settings.centred, given)
    u = base(rng, q, *(held + records + data.base))
    # The density given u is that of these records only if u stands for them.
    if not came_back(records, forward(q, *(held + u + data.forward))):
        move = Move(move.factor, move.scale, 0)
    moved, noncentred_accept = noncentred_move(rng, q, move, held + u + data.noncentred)
    moved, records = settle(q, moved, held, records, u, data.forward)
    shift = copied(moved)
    add(shift, -1.0, q)
    return State(moved, records), Info(centred_accept, noncentred_accept, 0.0, shift)


def refreshed_moves(rng, state, held, settings, data):
    """Move the parameters given the records, then draw records afresh with them.

    As `interwoven_moves`, for records without a form x = T(theta, u); ``data`` is a
    `RefreshedData`.
    """
    records, (factor, scale, steps) = state.records, settings.noncentred
    totals = statistics(state.q, *(held + records + data.statistics))
    given = held + records + totals + data.centred
    start, centred_accept = centred_move(rng, state.q, settings.centred, given)
    q, accept = start, 0.0
    now = 0.0
    if steps:
        now = number_or_never(others(q, *(held + records + data.others))[0].item())
    for step in range(steps):
        proposal = stepped(rng, q, factor, length_of_step(scale, step))
        fresh = refresh(rng, proposal, *(held + data.refresh))
        then = fresh[0].item()
        accept += acceptance(then - now)
        if then + rng.standard_exponential() >= now and are_numbers(fresh[1:]):
            q, now, records = proposal, then, fresh[1:]
    shift = copied(q)
    add(shift, -1.0, start)
    return State(q, records), Info(centred_accept, accept / max(steps, 1), 0.0, shift)


def compile_moves(
    functions: Mapping[str, Any],
    *,
    gradients: Collection[str],
    remember: Remember | None = None,
) -> Callable[..., Any]:
    """Compile one iteration of all parameter moves into a single call.

    Parameters
    ----------
    functions
        The jitted functions of a model by name: statistics and centred; then base,
        noncentred, forward and released, or others and refresh.
    gradients
        Which densities return their gradient too.
    remember
        As for `bind`.
    """
    names = bind_moves(functions, gradients=gradients, remember=remember)
    template = refreshed_moves
    if "noncentred" in functions:
        template, names["settle"] = interwoven_moves, bind_settled(functions, remember)
    return bind(template, names, label=template.__name__, remember=remember)


def data_of(by_name: Mapping[str, Any]) -> CarriedData | RefreshedData:
    """Return what the functions of a model read, under their names."""
    return (CarriedData if "noncentred" in by_name else RefreshedData)(**by_name)


def bind_moves(
    functions: Mapping[str, Any], *, gradients: Collection[str], remember: Remember | None
) -> dict[str, Any]:
    """Return all that `interwoven_moves` or `refreshed_moves` calls, by name."""

    def move(name: str) -> Any:
        template = trajectory if name in gradients else walk
        return bind(template, {"log_density": functions[name]}, label=name, remember=remember)

    names = {"statistics": functions["statistics"], "centred_move": move("centred")}
    if "noncentred" not in functions:
        return names | {name: functions[name] for name in ("others", "refresh")}
    names |= {name: functions[name] for name in ("base", "forward")}
    names["noncentred_move"] = move("noncentred")
    return names


def bind_settled(functions: Mapping[str, Any], remember: Remember | None) -> Callable[..., Any]:
    """Return `settled` for a model."""
    known = {"forward": functions["forward"]}
    return bind(settled, known, label="settled", remember=remember)
