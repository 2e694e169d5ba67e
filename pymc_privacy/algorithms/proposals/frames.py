"""Coordinates t of parameters q in which their law, given the base variates, is nearly standard.

With one origin c and factor L, q = c + L y and y = m + F t. Where a size moves along a ridge, what
suits its middle does not suit its ends: then the last coordinate z of q, the log of a size,
belongs to y alone, through a monotone function z(y_z) that is linear between a few knots, and the
others are c(y_z) + L(y_z) y, with c and L between their values at the same knots. Beyond the
last knots z and c go on as before, and L stays as it is. The map is one to one, and its volume,
which is constant where there is one origin only, is det L(y_z) dz/dy_z times a constant.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from pymc_privacy.algorithms.machine_code.caching import compiled
from pymc_privacy.algorithms.numerics.small_algebra import add, copied, lower_times, solve_lower


class Frame(NamedTuple):
    """One map from t to q, or one at each knot where the last coordinate is a size."""

    scores: Any
    """Knots of y_z."""
    knots: Any
    """Knots of z."""
    origins: Any
    """c at the knots."""
    factors: Any
    """L at the knots."""
    mean: Any
    """m"""
    spread: Any
    """F"""


class Reference(NamedTuple):
    """What tuning has learnt of the parameters, from which a frame follows for each u."""

    points: Any
    """Parameters near which the law is expanded, one at each knot; none if nothing is known."""
    lengths: Any
    """Over which slopes of the statistic are taken."""
    precision: Any
    """P"""
    noise_precision: Any
    """The diagonal of W."""
    scores: Any
    mean: Any
    spread: Any
    leaps: Any
    """Whether to leap."""


@compiled
def single_frame(origin, factor):
    """Return the frame with q = origin + factor t."""
    size = origin.size
    origins, factors = np.empty((1, size)), np.empty((1, size, size))
    mean, spread = np.empty(size), np.empty((size, size))
    for i in range(size):
        origins[0, i], mean[i] = origin[i], 0.0
        for j in range(size):
            factors[0, i, j] = factor[i, j]
            spread[i, j] = 1.0 if i == j else 0.0
    scores = np.empty(1)
    scores[0] = 0.0
    return Frame(scores, copied(scores), origins, factors, mean, spread)


@compiled
def has_size(frame):
    """Tell whether the last coordinate is the log of a size."""
    return frame.scores.size > 1


@compiled
def piece_at(knots, value):
    """Return the piece between two knots that a value belongs to, and where in it.

    With a single knot there is one place only.
    """
    if knots.size == 1:
        return 0, 0.0
    k = 0
    while k < knots.size - 2 and knots[k + 1] < value:
        k += 1
    return k, (value - knots[k]) / (knots[k + 1] - knots[k])


@compiled
def between(here, there, w):
    """Return what is between two numbers, or beyond them."""
    return here + w * (there - here)


@compiled
def frame_at(frame, k, w):
    """Return origin and factor between two knots; beyond the last, factors stay as they are."""
    if not has_size(frame):
        return frame.origins[0], frame.factors[0]
    inside = min(max(w, 0.0), 1.0)
    origins, factors = frame.origins, frame.factors
    free = origins.shape[1]
    origin, factor = np.empty(free), np.empty((free, free))
    for i in range(free):
        origin[i] = between(origins[k, i], origins[k + 1, i], w)
        for j in range(free):
            factor[i, j] = between(factors[k, i, j], factors[k + 1, i, j], inside)
    return origin, factor


@compiled
def place(t, frame):
    """Return q, and the log of the volume of the map there, up to a constant."""
    y = lower_times(frame.spread, t)
    add(y, 1.0, frame.mean)
    k, w = piece_at(frame.scores, y[-1])
    origin, factor = frame_at(frame, k, w)
    q = np.empty(t.size)
    for i in range(origin.size):
        q[i] = origin[i]
    add(q[: origin.size], 1.0, lower_times(factor, y))
    if not has_size(frame):
        return q, 0.0
    scores, knots = frame.scores, frame.knots
    q[-1] = between(knots[k], knots[k + 1], w)
    volume = math.log((knots[k + 1] - knots[k]) / (scores[k + 1] - scores[k]))
    for i in range(origin.size):
        volume += math.log(factor[i, i])
    return q, volume


@compiled
def coordinates(q, frame):
    """Return t: the inverse of `place`."""
    k, w = piece_at(frame.knots, q[-1])
    origin, factor = frame_at(frame, k, w)
    y = copied(q)
    add(y[: origin.size], -1.0, origin)
    solve_lower(factor, y)
    if has_size(frame):
        y[-1] = between(frame.scores[k], frame.scores[k + 1], w)
    add(y, -1.0, frame.mean)
    solve_lower(frame.spread, y)
    return y
