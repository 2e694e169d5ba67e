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
    SHORT_STEP,
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
    log_density,
    lower_times,
    noncentred_move,
    number_or_never,
    settle,
    statistics,
    times_lower,
)
from pymc_privacy.algorithms.machine_code.binding import Remember, bind
from pymc_privacy.algorithms.machine_code.caching import compiled
from pymc_privacy.algorithms.proposals.frames import (
    Frame,
    coordinates,
    factor_of_inverse,
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
    return -0.5 * (degrees + t.size) * math.log1p((t * t).sum() / degrees)


@compiled
def student_weight(rng, t, degrees):
    """Draw w given t, or given nothing if t is empty, where t is Normal(0, 1 / w) for this w."""
    return 2 * rng.standard_gamma(0.5 * (degrees + t.size)) / (degrees + (t * t).sum())


def local_frame(reference, arguments):
    """Return the frame of t for these base variates, with an origin and a factor at each point.

    The slopes of the statistic are differences over lengths that are wide enough to see a slope
    where records are counts. Coordinates beyond the precision are those of the point.
    """
    points, lengths, precision = reference.points, reference.lengths, reference.precision
    count, free = len(points), len(precision)
    origins, factors = np.empty((count, free)), np.empty((count, free, free))
    slopes = np.empty((free, reference.noise_precision.size))
    for k in range(count):
        here = misfit(points[k], *arguments)[0]
        for i in range(free):
            there = points[k].copy()
            there[i] += lengths[i]
            slopes[i] = (misfit(there, *arguments)[0] - here) / lengths[i]
        weighted = slopes * reference.noise_precision
        pull = weighted @ here
        factor = factor_of_inverse(precision + weighted @ slopes.T)
        # A slope that is no number, or one beyond all measure, is no guide.
        if not (np.isfinite(factor).all() and np.isfinite(pull).all()):
            factor, pull = factor_of_inverse(precision), np.zeros(free)
        factors[k] = factor
        origins[k] = points[k, :free] - lower_times(factor, times_lower(pull, factor))
    knots = points[:, -1].copy()
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
        there = rng.standard_normal(q.size)
        degrees, part = DEGREES_OF_FREEDOM, slice(0, q.size)
        if kind == LEAP:
            there /= math.sqrt(student_weight(rng, here[:0], degrees))
        elif kind == SINGLE:
            degrees, chosen = SINGLE_DEGREES_OF_FREEDOM, rng.integers(0, q.size)
            # A size has the heaviest tail: every other one is its turn.
            if has_size(frame) and offered[SINGLE] % 2 == 0:
                chosen = q.size - 1
            part = slice(chosen, chosen + 1)
            fresh = there[chosen] / math.sqrt(student_weight(rng, here[:0], degrees))
            there[:] = here
            there[chosen] = fresh
        else:
            length = scale * SHORT_STEP if offered[DRIFT] % 4 == 3 else scale
            if leaps:
                share = length / math.sqrt(1 + length * length)
                there *= share / math.sqrt(student_weight(rng, here, degrees))
                there += math.sqrt(1 - share * share) * here
            else:
                there = here + length * there
        proposal, volume = place(there, frame)
        then = log_density(proposal, *arguments)[0].item() + volume
        # A walk at random leaves a flat law invariant, all other steps a Student law.
        if leaps:
            then_ratio = then + log_student(here[part], degrees) - log_student(there[part], degrees)
        else:
            then_ratio = then
        offered[kind] += 1
        accepted[kind] += acceptance(then_ratio - now)
        # Not a number, outside the support, is never accepted.
        if then_ratio + rng.standard_exponential() >= now:
            q, here, now = proposal, there, then
    rates = accepted / np.maximum(offered, 1)
    return q, here, rates[DRIFT], rates[LEAP]


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
