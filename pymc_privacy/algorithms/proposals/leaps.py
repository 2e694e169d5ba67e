"""Leap to where the parameters are likely to be, given the base variates.

Given u the parameters are tied together by the statistic S(theta, u), in a way that differs from
one u to the next. Near a reference that tuning has fixed S is nearly linear, and where the
noise is additive, of scales b, the law of theta nearly a Normal one. With J the slopes of S and
r = S - s its misfit at the reference, W = diag(1 / b²), and P a precision that tuning has fixed,

    (L Lᵀ)⁻¹ = P + J W Jᵀ,    c = reference - L Lᵀ J W r.

Moves are made in coordinates t of `algorithms.proposals.frames`, with theta = c + L (m + F t),
where tuning has fixed the mean m and the factor F of what is left, L⁻¹ (theta - c). All of this
depends on u alone, which the moves hold. A *leap* draws t* from Student's law g, whatever t; a
*drift* draws w given t, where g is a mixture of Normal(0, 1 / w), and t* = sqrt(1 - a²) t + a e /
sqrt(w) with e standard normal; a *single* draws one coordinate of t* from a Student law g with
heavier tails, and keeps the others. All are reversible for their g (the second by Kamatani, 2018),
so that they are accepted by the ratio of densities of t times g(t) / g(t*). An accepted leap
forgets where the parameters were; drifts move them where leaps seldom lead; singles bring them
back from tails that are heavy in a few directions only, as those of coefficients whose own scale is
unknown, or of a size. Where leaps are hardly ever accepted, t walks at random instead.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping
from typing import Any

import numpy as np

from pymc_privacy.algorithms.interweave import (
    Info,
    Move,
    State,
    acceptance,
    base,
    bind_moves,
    bind_settled,
    came_back,
    centred_move,
    forward,
    length_of_step,
    log_density,
    noncentred_move,
    number_or_never,
    settle,
    statistics,
)
from pymc_privacy.algorithms.machine_code.binding import Remember, bind
from pymc_privacy.algorithms.machine_code.caching import compiled
from pymc_privacy.algorithms.numerics.small_algebra import (
    add,
    are_finite,
    copied,
    factor_of_inverse,
    lower_times,
    multiply,
    sum_of_squares,
    times_lower,
)
from pymc_privacy.algorithms.proposals.frames import (
    Frame,
    coordinates,
    has_size,
    place,
    single_frame,
)

DEGREES_OF_FREEDOM = 5.0
SINGLE_DEGREES_OF_FREEDOM = 2.0
DRIFT, LEAP, SINGLE = 0, 1, 2
_TURNS = (LEAP, DRIFT, LEAP, SINGLE)


def misfit(q, *arguments):
    """Stand for the jitted function from parameters and base variates to S - s."""
    raise NotImplementedError


def frame_given_base(reference, arguments):
    """Stand for a bound `local_frame`."""
    raise NotImplementedError


def guided_move(rng, q, frame, scale, steps, leaps, arguments):
    """Stand for a bound `guided_walk` or `guided_trajectory`."""
    raise NotImplementedError


@compiled
def log_student(t, degrees):
    """Return the log density of Student's law in several dimensions, up to a constant."""
    return -0.5 * (degrees + t.size) * math.log1p(sum_of_squares(t) / degrees)


@compiled
def student_weight(rng, t, degrees):
    """Draw w given t, or given nothing if t is empty, where t is Normal(0, 1 / w) for this w."""
    return 2 * rng.standard_gamma(0.5 * (degrees + t.size)) / (degrees + sum_of_squares(t))


@compiled
def draw_student(rng, size):
    """Draw from Student's law."""
    t = rng.standard_normal(size)
    multiply(t, 1 / math.sqrt(student_weight(rng, t[:0], DEGREES_OF_FREEDOM)))
    return t


# Each proposal returns t* and log g(t) - log g(t*), for the law g that it leaves invariant.


@compiled
def propose_leap(rng, t):
    """Draw t* from Student's law, whatever t."""
    there = draw_student(rng, t.size)
    return there, log_student(t, DEGREES_OF_FREEDOM) - log_student(there, DEGREES_OF_FREEDOM)


@compiled
def propose_drift(rng, t, length):
    """Draw t* near t, and nearer to the middle of Student's law."""
    there = rng.standard_normal(t.size)
    share = length / math.sqrt(1 + length * length)
    multiply(there, share / math.sqrt(student_weight(rng, t, DEGREES_OF_FREEDOM)))
    add(there, math.sqrt(1 - share * share), t)
    return there, log_student(t, DEGREES_OF_FREEDOM) - log_student(there, DEGREES_OF_FREEDOM)


@compiled
def propose_single(rng, t, last):
    """Draw one coordinate of t* from Student's law: any of them, or the last one."""
    fresh = rng.standard_normal(t.size)
    k = rng.integers(0, t.size)
    if last:
        k = t.size - 1
    weight = student_weight(rng, t[:0], SINGLE_DEGREES_OF_FREEDOM)
    there = copied(t)
    there[k] = fresh[k] / math.sqrt(weight)
    before = log_student(t[k : k + 1], SINGLE_DEGREES_OF_FREEDOM)
    return there, before - log_student(there[k : k + 1], SINGLE_DEGREES_OF_FREEDOM)


@compiled
def propose_step(rng, t, length):
    """Draw t* near t; a walk at random leaves a flat law invariant."""
    there = rng.standard_normal(t.size)
    multiply(there, length)
    add(there, 1.0, t)
    return there, 0.0


@compiled
def curvature(slopes, noise_precision, precision, here):
    """Return P + J W Jᵀ and J W r, from slopes J and misfit r."""
    free = len(slopes)
    curved, pull = np.empty((free, free)), np.empty(free)
    for i in range(free):
        pull[i] = 0.0
        for k in range(here.size):
            pull[i] += slopes[i, k] * noise_precision[k] * here[k]
        for j in range(free):
            curved[i, j] = precision[i, j]
            for k in range(here.size):
                curved[i, j] += slopes[i, k] * noise_precision[k] * slopes[j, k]
    return curved, pull


def local_frame(reference, arguments):
    """Return the frame of t for these base variates, with an origin and a factor at each point.

    The slopes of the statistic are differences over lengths that are wide enough to see a slope
    where records are counts. Coordinates beyond the precision are those of the point.
    """
    points, lengths, precision = reference.points, reference.lengths, reference.precision
    count, free = len(points), len(precision)
    knots = np.empty(count)
    origins, factors = np.empty((count, free)), np.empty((count, free, free))
    slopes = np.empty((free, reference.noise_precision.size))
    for k in range(count):
        point = points[k]
        knots[k] = point[-1]
        here = misfit(point, *arguments)[0]
        for i in range(free):
            beside = copied(point)
            beside[i] += lengths[i]
            there = misfit(beside, *arguments)[0]
            for j in range(here.size):
                slopes[i, j] = (there[j] - here[j]) / lengths[i]
        curved, pull = curvature(slopes, reference.noise_precision, precision, here)
        factor = factor_of_inverse(curved)
        # A slope that is no number, or one beyond all measure, is no guide.
        if not (are_finite(factor.ravel()) and are_finite(pull)):
            factor, pull = factor_of_inverse(precision), np.zeros(free)
        shift = lower_times(factor, times_lower(pull, factor))
        for i in range(free):
            origins[k, i] = point[i] - shift[i]
            for j in range(free):
                factors[k, i, j] = factor[i, j]
    return Frame(reference.scores, knots, origins, factors, reference.mean, reference.spread)


def guided_walk(rng, q, frame, scale, steps, leaps, arguments):
    """Make leaps, drifts and singles in turn if ``leaps``, and else walk at random.

    Returns the parameters, their t, and the mean acceptances of drifts or walk, and of leaps.
    """
    here = coordinates(q, frame)
    now = number_or_never(log_density(q, *arguments)[0].item() + place(here, frame)[1])
    accepted, offered = np.zeros(3), np.zeros(3)
    for step in range(steps):
        kind = _TURNS[step % 4] if leaps else DRIFT
        length = length_of_step(scale, offered[DRIFT])
        if not leaps:
            there, log_ratio = propose_step(rng, here, length)
        elif kind == LEAP:
            there, log_ratio = propose_leap(rng, here)
        elif kind == DRIFT:
            there, log_ratio = propose_drift(rng, here, length)
        else:
            # A size has the heaviest tail: every other one is its turn.
            last = has_size(frame) and offered[SINGLE] % 2 == 0
            there, log_ratio = propose_single(rng, here, last)
        proposal, volume = place(there, frame)
        then = log_density(proposal, *arguments)[0].item() + volume
        offered[kind] += 1
        accepted[kind] += acceptance(then + log_ratio - now)
        # Not a number, outside the support, is never accepted.
        if then + log_ratio + rng.standard_exponential() >= now:
            q, here, now = proposal, there, then
    drifts, jumps = max(offered[DRIFT], 1.0), max(offered[LEAP], 1.0)
    return q, here, accepted[DRIFT] / drifts, accepted[LEAP] / jumps


def guided_trajectory(rng, q, frame, scale, steps, leaps, arguments):
    """Run trajectories shaped by the frame's factor; as `guided_walk`, without leaps."""
    factor = frame.factors[0] @ frame.spread
    q, accept = noncentred_move(rng, q, Move(factor, scale, steps), arguments)
    return q, coordinates(q, frame), accept, 0.0


def guided_moves(rng, state, held, settings, data):
    """Move the parameters given the records, then with them, guided by the base variates.

    As `interweave.interwoven_moves`; with a reference that has no points the walk is not guided.
    """
    records, (factor, scale, steps) = state.records, settings.noncentred
    totals = statistics(state.q, *(held + records + data.statistics))
    given = held + records + totals + data.centred
    q, centred_accept = centred_move(rng, state.q, settings.centred, given)
    u = base(rng, q, *(held + records + data.base))
    # The density given u is that of these records only if u stands for them.
    if not came_back(records, forward(q, *(held + u + data.forward))):
        steps = 0
    frame, leaps = single_frame(q, factor), False
    if settings.reference.points.size > 0 and steps > 0:
        frame = frame_given_base(settings.reference, held + u + data.released)
        leaps = settings.reference.leaps
    given = held + u + data.noncentred
    moved, t, accept, leap_accept = guided_move(rng, q, frame, scale, steps, leaps, given)
    q, records = settle(q, moved, held, records, u, data.forward)
    return State(q, records), Info(centred_accept, accept, leap_accept, t)


def bind_guided(
    functions: Mapping[str, Any], *, gradients: Collection[str], remember: Remember | None
) -> dict[str, Any]:
    """Return all that `guided_moves` calls, by name."""
    names = bind_moves(functions, gradients=gradients, remember=remember)
    unguided = names.pop("noncentred_move")
    template, known = guided_walk, {"log_density": functions["noncentred"]}
    if "noncentred" in gradients:
        template, known = guided_trajectory, {"noncentred_move": unguided}
    names["guided_move"] = bind(template, known, label="guided", remember=remember)
    known = {"misfit": functions["released"]}
    names["frame_given_base"] = bind(local_frame, known, label="frame", remember=remember)
    return names


def compile_moves(
    functions: Mapping[str, Any],
    *,
    gradients: Collection[str],
    remember: Remember | None = None,
) -> Callable[..., Any]:
    """Compile one iteration of all parameter moves into a single call.

    As `interweave.compile_moves`, for a model with noncentred, base, forward and released.
    """
    names = bind_guided(functions, gradients=gradients, remember=remember)
    names["settle"] = bind_settled(functions, remember)
    return bind(guided_moves, names, label="guided moves", remember=remember)
