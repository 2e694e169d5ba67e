"""Profiles of a likelihood: the maximum over all other parameters at each value of one.

By the envelope theorem the slope of a profile is the score of its parameter where all others are at
their maximum. It is integrated from the estimate outward, so that no value of the likelihood is
needed, and the errors of neighbouring points go together.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from scipy.stats import chi2

from pymc_privacy.algorithms import ascent
from pymc_privacy.algorithms.ascent import Settings
from pymc_privacy.arguments import reals
from pymc_privacy.errors import ArgumentError

POINTS = 11
# How far a default grid reaches, in standard errors.
REACH = 3.0
# The slope of a profile is nearly a line over this part of a standard error.
LONGEST_STEP = 0.4
NEAR_STEPS, CHECK_SWEEPS, MOST_SWEEPS = 40, 400, 4000


class Profile(NamedTuple):
    """The log likelihood, maximised over all parameters but one."""

    name: str
    grid: np.ndarray
    """Values of the parameter, on the natural scale."""
    log_likelihood: np.ndarray
    error: np.ndarray
    """Of the difference to the log likelihood of the fit."""
    others: list[dict[str, np.ndarray]]
    """All parameters at each point."""
    estimate: float
    maximum: float
    """The log likelihood of the fit."""


class _Point(NamedTuple):
    q: np.ndarray
    slope: float
    variance: float


def coordinate(fit: Any, name: str) -> int:
    """Return the coordinate of a parameter, which must have one of its own."""
    problem = fit.fitting.problem
    known = [c for k, c in enumerate(problem.coordinates) if fit.fitting._name(k) == c]
    if name not in known:
        raise ArgumentError(
            "A profile is that of a number, or of one coordinate of a vector without a common "
            f"constraint: one of {', '.join(known)}; got {name!r}."
        )
    return problem.coordinates.index(name)


def profile(fit: Any, name: str, grid: Any = None, *, seed: int = 0) -> Profile:
    """Return the profile of one parameter; see `LikelihoodFit.profile`."""
    k = coordinate(fit, name)
    values = _default(fit, k) if grid is None else _values(fit, k, grid)
    order = np.argsort(values)
    walk = _Walk(fit, k, seed)
    upward = walk.along([v for v in values[order] if v >= fit.q[k]])
    downward = walk.along([v for v in values[order][::-1] if v < fit.q[k]])
    found = [*downward[::-1], *upward]
    problem = fit.fitting.problem
    parts = [problem.natural(point.q) for point, _, _ in found]
    return Profile(
        name,
        np.array([_natural(fit, k, point.q) for point, _, _ in found]),
        fit.log_likelihood + np.array([height for _, height, _ in found]),
        np.sqrt([variance for _, _, variance in found]),
        parts,
        _natural(fit, k, fit.q),
        fit.log_likelihood,
    )


class _Walk:
    """Steps along a profile, from the estimate outward."""

    def __init__(self, fit: Any, k: int, seed: int):
        self._fit, self._k = fit, k
        self._rng, self._deviation = np.random.default_rng(seed), _deviation(fit, k)
        settings: Settings = fit.settings
        self._others = ascent.without(settings, np.array([k]))

    def along(self, values: list[float]) -> list[tuple[_Point, float, float]]:
        """Return each point, its height over the estimate, and the variance of that."""
        found = []
        last = self.at(self._fit.q, float(self._fit.q[self._k]))
        height = variance = 0.0
        for value in values:
            here = float(last.q[self._k])
            steps = max(1, math.ceil(abs(value - here) / (LONGEST_STEP * self._deviation)))
            for there in np.linspace(here, float(value), steps + 1)[1:]:
                point = self.at(last.q, float(there))
                step = there - last.q[self._k]
                height += step * (point.slope + last.slope) / 2
                variance += (step / 2) ** 2 * (point.variance + last.variance)
                last = point
            found.append((last, height, variance))
        return found

    def at(self, q: np.ndarray, value: float) -> _Point:
        """Maximise over the others, and return the score of the one."""
        fitting, k = self._fit.fitting, self._k
        there = np.array(q)
        there[k] = value
        if len(self._others.free):
            quick = replace(self._others, near_steps=NEAR_STEPS, check_sweeps=CHECK_SWEEPS // 2)
            climbed = fitting.problem.climb(
                [there],
                self._rng,
                settings=quick,
                tolerance=0.3,
                max_sweeps=MOST_SWEEPS,
                penalised=fitting.penalised,
            )
            there = climbed.ends[0].q
        one = replace(self._fit.settings, free=np.array([k]))
        slope, variance = fitting.problem.slope(there, one, self._rng, fitting.penalised)
        return _Point(there, slope, variance)


def _natural(fit: Any, k: int, q: np.ndarray) -> float:
    problem = fit.fitting.problem
    owner = problem.owners[k]
    place = problem.owners[:k].count(owner)
    return float(np.ravel(problem.natural(q)[owner])[place])


def _default(fit: Any, k: int) -> np.ndarray:
    deviation = _deviation(fit, k)
    return fit.q[k] + np.linspace(-REACH, REACH, POINTS) * deviation


def _deviation(fit: Any, k: int) -> float:
    here = ascent.metric(ascent.Information(fit.information, fit.information), fit.settings)
    covariance = np.linalg.pinv(here.sampling, hermitian=True)
    places = list(fit.settings.free)
    if k not in places:
        return float(fit.settings.scale[k])
    variance = covariance[places.index(k), places.index(k)]
    return min(math.sqrt(max(float(variance), 1e-12)), 5 * float(fit.settings.scale[k]))


def _values(fit: Any, k: int, grid: Any) -> np.ndarray:
    """Return the coordinates of values on the natural scale."""
    problem = fit.fitting.problem
    natural = reals("grid", grid, shapes=[("points",)], error=ArgumentError)
    owner = problem.owners[k]
    place = problem.owners[:k].count(owner)
    found = []
    for value in natural:
        inside = problem.natural(fit.q)
        changed = np.array(inside[owner], dtype=float)
        changed.ravel()[place] = value
        with np.errstate(all="ignore"):
            q = problem.values(inside | {owner: changed})
        if not np.isfinite(q[k]):
            raise ArgumentError(f"grid must be possible values of {owner!r}; got {value:g}.")
        found.append(q[k])
    return np.array(found)


def intervals(fit: Any, prob: float, names: Any) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Return the values of each parameter that are not far below the maximum."""
    problem = fit.fitting.problem
    fall = float(chi2.ppf(prob, 1)) / 2
    found = {}
    for name in names:
        shape = np.shape(problem.natural(fit.q)[name])
        ends = np.empty((2, math.prod(shape)))
        mine = [k for k, owner in enumerate(problem.owners) if owner == name]
        if len(mine) != math.prod(shape):
            raise ArgumentError(
                f"{name!r} has a constraint that its coordinates share, and so no profile of each; "
                'use method="bootstrap".'
            )
        for place, k in enumerate(mine):
            for side in (0, 1):
                ends[side, place] = _end(fit, k, side, fall)
        found[name] = (ends[0].reshape(shape), ends[1].reshape(shape))
    return found


def _end(fit: Any, k: int, side: int, fall: float) -> float:
    """Walk outward until the profile has fallen so far."""
    walk, deviation = _Walk(fit, k, seed=1), _deviation(fit, k)
    sign = 1 if side else -1
    last = walk.at(fit.q, float(fit.q[k]))
    height = 0.0
    for _ in range(24):
        value = float(last.q[k]) + sign * deviation / 2
        if not fit.settings.bounds[0][k] <= value <= fit.settings.bounds[1][k]:
            break
        point = walk.at(last.q, value)
        lower = height + sign * (deviation / 2) * (point.slope + last.slope) / 2
        if lower < -fall:
            share = (height + fall) / (height - lower)
            q = last.q + share * (point.q - last.q)
            return _natural(fit, k, q)
        height, last = lower, point
    there = np.array(last.q)
    there[k] = sign * 1000.0 if fit.fitting.problem.is_transformed[k] else sign * np.inf
    return _natural(fit, k, there)
