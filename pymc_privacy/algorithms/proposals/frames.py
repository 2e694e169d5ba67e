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

from pymc_privacy.algorithms.interweave import lower_times
from pymc_privacy.algorithms.machine_code.caching import compiled


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
def solve_lower(factor, vector):
    """Return L⁻¹ v for a lower-triangular L."""
    solution = vector.copy()
    for i in range(vector.size):
        for j in range(i):
            solution[i] -= factor[i, j] * solution[j]
        solution[i] /= factor[i, i]
    return solution


@compiled
def factor_of_inverse(matrix):
    """Return the lower-triangular L with L Lᵀ = A⁻¹; no numbers where there is none.

    With A = R Rᵀ and R upper-triangular, L is the inverse of Rᵀ. Nor are there numbers where A is
    positive, but beyond all floats.
    """
    size = len(matrix)
    lower = np.zeros((size, size))
    for j in range(size - 1, -1, -1):
        for i in range(j, -1, -1):
            rest = matrix[i, j]
            for k in range(j + 1, size):
                rest -= lower[k, i] * lower[k, j]
            if i < j:
                lower[j, i] = rest / lower[j, j]
            elif 0.0 < rest < math.inf:
                lower[j, j] = math.sqrt(rest)
            else:
                return np.full((size, size), np.nan)
    factor = np.empty((size, size))
    for j in range(size):
        unit = np.zeros(size)
        unit[j] = 1.0
        factor[:, j] = solve_lower(lower, unit)
    return factor


@compiled
def single_frame(origin, factor):
    """Return the frame with q = origin + factor t."""
    size = origin.size
    origins, factors = np.empty((1, size)), np.empty((1, size, size))
    origins[0], factors[0] = origin, factor
    return Frame(np.zeros(1), np.zeros(1), origins, factors, np.zeros(size), np.eye(size))


@compiled
def has_size(frame):
    """Tell whether the last coordinate is the log of a size."""
    return frame.scores.size > 1


@compiled
def piece_at(knots, value):
    """Return the piece between two knots that a value belongs to, and where in it."""
    k = min(max(np.searchsorted(knots, value) - 1, 0), knots.size - 2)
    return k, (value - knots[k]) / (knots[k + 1] - knots[k])


@compiled
def between(parts, k, w):
    """Return what is between two parts, or beyond them."""
    return parts[k] + w * (parts[k + 1] - parts[k])


@compiled
def place(t, frame):
    """Return q, and the log of the volume of the map there, up to a constant."""
    scores, knots, origins, factors, mean, spread = frame
    y = mean + lower_times(spread, t)
    if not has_size(frame):
        return origins[0] + lower_times(factors[0], y), 0.0
    k, w = piece_at(scores, y[-1])
    factor = between(factors, k, min(max(w, 0.0), 1.0))
    q = np.empty(t.size)
    q[:-1] = between(origins, k, w) + lower_times(factor, y[:-1])
    q[-1] = between(knots, k, w)
    volume = math.log((knots[k + 1] - knots[k]) / (scores[k + 1] - scores[k]))
    for i in range(t.size - 1):
        volume += math.log(factor[i, i])
    return q, volume


@compiled
def coordinates(q, frame):
    """Return t: the inverse of `place`."""
    scores, knots, origins, factors, mean, spread = frame
    if not has_size(frame):
        return solve_lower(spread, solve_lower(factors[0], q - origins[0]) - mean)
    k, w = piece_at(knots, q[-1])
    factor = between(factors, k, min(max(w, 0.0), 1.0))
    y = np.empty(q.size)
    y[:-1] = solve_lower(factor, q[:-1] - between(origins, k, w))
    y[-1] = between(scores, k, w)
    return solve_lower(spread, y - mean)
