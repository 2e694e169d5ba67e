"""Climb a likelihood of which only noisy scores are known.

Fisher's identity gives the score of the likelihood twice, as the mean given the releases of the
centred score g and of the non-centred one, h (`pymc_privacy.targets.ascent`). Given the
parameters both are draws of a chain over databases, and any combination

    c = h - A' (h - g)

has the same mean. A is the regression of h on h - g, which leaves the least variance; it is taken
from earlier draws. Whatever else is known to have mean zero given the releases enters beside h - g:
for an unknown number of records, the balance of births and deaths
(`pymc_privacy.algorithms.birth_death.balance`). Three phases follow each other.

*Far*: some sweeps a step, theta += M c, with M the inverse of an information, cut to a length.
*Near*: few sweeps a step, gains (k + 2)^-0.7, and the average of the path (Polyak and Juditsky,
1992), whose error does not depend on M. *Check*: many sweeps at the average. The distance that is
left is that of the step M c, in standard errors.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Protocol

import numpy as np
from scipy.special import log_ndtr

FAR_SWEEPS, FAR_STEPS, NEAR_SWEEPS = 40, 60, 10
NEAR_STEPS, CHECK_SWEEPS = 150, 600
# Information hardly changes between so many steps.
INFORMED_EVERY = 5
GAIN = -0.7
# Draws behind the regression of one score on the other.
MEMORY = 400
# What is further away than this in standard errors is not near, nor is a step longer.
NEAR, LONGEST = 1.5, 2.0
# A parameter that is known no better than to so many times its scale is not known.
UNKNOWN = 30.0
# Combinations of controls that vary less than this share of the others, times the number of draws,
# do not enter a regression.
LEAST_VARIATION = 1.0
# A difference of scores that moves the estimate by less than this, in standard errors, is small.
MATTERS = 0.1
# Of fewer draws than this that differ from the others, the variance is not known.
RARE = 20
# After so many steps a path has forgotten where it began.
REMEMBERED = 50
# What is further apart than this, in the scale of a parameter, does not go on together.
APART = 3.0
# The same along a stretch where next to nothing is known of it.
APART_WHERE_LEVEL = 10.0
# Walks that have come to one place are nearer than this, in standard errors or, where these are
# long, in the scale of a parameter.
TOGETHER, TOGETHER_IN_SCALE = 0.3, 0.25
# A parameter that is known no better than this many times its scale may be anywhere.
WEAK = 1.5
# A spread of so many scales of Laplace noise makes it all but Normal.
WIDE = 30.0


class Scores(NamedTuple):
    """Two scores of each of several databases, shape (draws, parameters), and more."""

    centred: np.ndarray
    noncentred: np.ndarray
    balances: np.ndarray
    """Numbers of each database that have mean zero given the releases, shape (draws, any)."""

    @property
    def controls(self) -> np.ndarray:
        """All that has mean zero."""
        return np.concatenate([self.noncentred - self.centred, self.balances], axis=1)


class Information(NamedTuple):
    """What the releases say about the parameters, as two matrices."""

    curvature: np.ndarray
    """Of a function that touches the log likelihood from below: its inverse makes safe steps."""
    sampling: np.ndarray
    """The inverse of the variance of estimates, over releases, to first order."""


class Source(Protocol):
    """Where scores come from: a chain over databases given parameters."""

    def scores(self, q: np.ndarray, sweeps: int) -> Scores:
        """Take the databases along to q, sweep them, and return the scores of each."""

    def information(self) -> Information:
        """Return the information where scores were asked for last."""


class Combination(NamedTuple):
    """The mean of the best combination of two scores, and its covariance."""

    score: np.ndarray
    covariance: np.ndarray
    weights: np.ndarray
    """A, by which h - g and balances enter."""


def combine(scores: Scores) -> Combination:
    """Return the combination of two scores that has the least variance.

    Examples
    --------
    Where both are linear in the same noise, nothing of it is left:

    >>> import numpy as np
    >>> noise = np.random.default_rng(1).standard_normal((50, 1))
    >>> found = combine(Scores(1 + noise, 1 - 3 * noise, np.empty((50, 0))))
    >>> found.score.round(9), found.covariance.round(9)
    (array([1.]), array([[0.]]))
    """
    left = 1 - min(scores.controls.shape[1] / len(scores.centred), 0.5)
    return _combined(scores, regression(scores), left)


def _combined(scores: Scores, weights: np.ndarray, left: float = 1.0) -> Combination:
    """Combine scores by weights; ``left`` is the share of the draws that these have not used up."""
    combined = scores.noncentred - scores.controls @ weights
    draws = len(combined)
    covariance = np.atleast_2d(np.cov(combined.T)) / (draws * left)
    return Combination(combined.mean(axis=0), covariance, weights)


def regression(scores: Scores) -> np.ndarray:
    """Return A, the regression of h on all that has mean zero."""
    controls = scores.controls - scores.controls.mean(axis=0)
    if not controls.any():
        return np.zeros((controls.shape[1], scores.noncentred.shape[1]))
    scale = controls.std(axis=0)
    scale[scale == 0] = 1.0
    centred = scores.noncentred - scores.noncentred.mean(axis=0)
    # What hardly varied in a few draws says nothing of the draws elsewhere.
    least = LEAST_VARIATION / len(controls)
    return np.linalg.lstsq(controls / scale, centred, rcond=least)[0] / scale[:, None]


def laplace_weight(distance: np.ndarray, spread: np.ndarray, scale: np.ndarray) -> np.ndarray:
    """Return -l'(d) / d for the log density l of Laplace(b) + N(0, v²); its curvature at 0.

    A parabola of this curvature that touches l at d lies below it everywhere.

    Examples
    --------
    Without spread it is 1 / (b |d|), and far out too:

    >>> laplace_weight(np.array([8.0]), np.array([0.01]), np.array([2.0])).round(6)
    array([0.0625])
    """
    spread = np.maximum(spread, 1e-6 * scale)
    normal = 1 / (spread**2 + 2 * scale**2)
    distance = np.maximum(np.abs(distance), 1e-3 * spread)
    lower = log_ndtr((distance - spread**2 / scale) / spread) - distance / scale
    upper = log_ndtr(-(distance + spread**2 / scale) / spread) + distance / scale
    # Noise that is much narrower than the spread hardly shows, and is lost in rounding.
    return np.where(
        spread > WIDE * scale, normal, np.tanh((lower - upper) / 2) / (scale * distance)
    )


@dataclass(frozen=True)
class Settings:
    """Which coordinates move, how far, and for how long."""

    free: np.ndarray
    """Which coordinates of q move, by index."""
    scale: np.ndarray
    """What counts as far in each coordinate: a step is no longer, and no better is known."""
    bounds: tuple[np.ndarray, np.ndarray]
    """Where each coordinate stops: numbers that can be computed with."""
    near_steps: int = NEAR_STEPS
    check_sweeps: int = CHECK_SWEEPS


@dataclass(frozen=True)
class Step:
    """Where an ascent was, and how far it had to go."""

    q: np.ndarray
    sweeps: int
    distance: float
    phase: str


@dataclass(frozen=True)
class Ending:
    """Where an ascent has come to."""

    q: np.ndarray
    distance: float
    distance_error: float
    score: np.ndarray
    covariance: np.ndarray
    information: Information
    sweeps: int
    error: float
    """The Monte Carlo error of q, in standard errors and per parameter."""
    disagreement: float = 0.0
    is_rough: bool = False
    """Whether it was left before it was as near as asked for."""


class Metric(NamedTuple):
    """How far a score says to go, and how far that is in standard errors."""

    inverse: np.ndarray
    sampling: np.ndarray

    def step(self, score: np.ndarray) -> np.ndarray:
        """Return M c."""
        return self.inverse @ score

    def length(self, step: np.ndarray) -> float:
        """Return a length in standard errors."""
        return math.sqrt(max(float(step @ self.sampling @ step), 0.0))


def metric(information: Information, settings: Settings) -> Metric:
    """Return the metric of the coordinates that move, where what is unknown counts as far."""
    free = settings.free
    ridge = np.diag((UNKNOWN * settings.scale[free]) ** -2.0)
    curvature = information.curvature[np.ix_(free, free)] + ridge
    sampling = information.sampling[np.ix_(free, free)] + ridge
    return Metric(np.linalg.pinv(curvature, hermitian=True), sampling)


def moved(q: np.ndarray, step: np.ndarray, metric: Metric, settings: Settings) -> np.ndarray:
    """Return q after a step, shortened where it is longer than it may be, within the bounds."""
    free = settings.free
    length = metric.length(step)
    furthest = float(np.max(np.abs(step) / settings.scale[free], initial=0.0))
    step = step / max(1.0, length / LONGEST, furthest)
    there = q.copy()
    there[free] += step
    return np.clip(there, *settings.bounds)


def far(source: Source, q: np.ndarray, settings: Settings, most: int) -> Iterator[Step]:
    """Walk toward a maximum until the steps are as short as their noise; yield each step.

    The last one yielded is the mean of the last few.
    """
    path: list[np.ndarray] = []
    sweeps = close = 0
    free = settings.free
    memory: Scores | None = None
    while sweeps + FAR_SWEEPS <= most and len(path) < FAR_STEPS:
        scores = _of(source.scores(q, FAR_SWEEPS), free)
        sweeps += FAR_SWEEPS
        here = metric(source.information(), settings)
        memory = scores if memory is None else _remembered(memory, scores)
        found = _combined(scores, regression(memory))
        step = here.step(found.score)
        distance = here.length(step)
        noise = math.sqrt(max(float(np.trace(here.inverse @ found.covariance)), 0.0))
        q = moved(q, step, here, settings)
        path.append(q)
        yield Step(q, sweeps, distance, "far")
        close += distance < max(NEAR, 1.5 * noise)
        if close >= 4:
            break
    if path:
        yield Step(np.mean(path[-3:], axis=0), sweeps, distance, "far")


def near(
    source: Source, q: np.ndarray, settings: Settings, first: int = 0
) -> Iterator[tuple[Step, np.ndarray]]:
    """Walk with gains that decrease; yield each step, and the score behind it."""
    free = settings.free
    memory = _of(source.scores(q, 6 * NEAR_SWEEPS), free)
    information = source.information()
    here = metric(information, settings)
    sweeps, weights = 6 * NEAR_SWEEPS, regression(memory)
    for k in range(first, first + settings.near_steps):
        if k % 10 == 0:
            weights = regression(memory)
        scores = _of(source.scores(q, NEAR_SWEEPS), free)
        sweeps += NEAR_SWEEPS
        if k % INFORMED_EVERY == 0:
            information = _blended(information, source.information())
            here = metric(information, settings)
        # The regression must not have seen these draws, or their mean would be biased.
        score = (scores.noncentred - scores.controls @ weights).mean(axis=0)
        memory = _remembered(memory, scores)
        step = (k + 2) ** GAIN * here.step(score)
        q = moved(q, step, here, settings)
        yield Step(q, sweeps, here.length(here.step(score)), "near"), score


def check(source: Source, q: np.ndarray, settings: Settings) -> Ending:
    """Look at many databases where the path has come to, and say how far the maximum is."""
    source.scores(q, NEAR_SWEEPS)
    scores = _of(source.scores(q, settings.check_sweeps), settings.free)
    information = source.information()
    here = metric(information, settings)
    found = combine(scores)
    step = here.step(found.score)
    noise = float(np.trace(here.sampling @ here.inverse @ found.covariance @ here.inverse))
    squared = here.length(step) ** 2
    return Ending(
        q=q,
        # The noise of a score is expected to add to the square of its length.
        distance=math.sqrt(max(squared - noise, 0.0)),
        distance_error=math.sqrt(max(noise, 0.0)),
        score=found.score,
        covariance=found.covariance,
        information=information,
        sweeps=settings.check_sweeps + NEAR_SWEEPS,
        error=math.nan,
        disagreement=_disagreement(scores, here),
    )


def _disagreement(scores: Scores, here: Metric) -> float:
    """Return by how many standard errors two scores differ, if that matters for the estimate.

    It does not where what makes the difference is too rare to be seen, as at a boundary: a sample
    that misses it has no variance.
    """
    difference = scores.noncentred - scores.centred
    mean, error = difference.mean(axis=0), difference.std(axis=0) / math.sqrt(len(difference))
    if here.length(here.step(mean)) < MATTERS:
        return 0.0
    usual = np.median(difference, axis=0)
    seen = np.sum(difference != usual, axis=0) >= RARE
    return float(np.max(np.abs(mean[seen]) / error[seen], initial=0.0))


class Average(NamedTuple):
    """The average of several paths, and its Monte Carlo error per parameter."""

    q: np.ndarray
    error: float


def average(
    paths: list[list[tuple[Step, np.ndarray]]], information: Information, settings: Settings
) -> Average:
    """Return the mean of the later parts of some paths, and its error.

    The error of such an average is that of M times the mean score over as many draws.
    """
    kept = [pair for path in paths for pair in path[forgotten(path) :]]
    q = np.mean([step.q for step, _ in kept], axis=0)
    scores = np.array([score for _, score in kept])
    here = metric(information, settings)
    covariance = np.atleast_2d(np.cov(scores.T)) / len(scores)
    noise = float(np.trace(here.sampling @ here.inverse @ covariance @ here.inverse))
    return Average(q, math.sqrt(max(noise, 0.0) / max(len(settings.free), 1)))


def forgotten(path: Sequence[Any]) -> int:
    """Return how many steps at the beginning of a path remember where it came from."""
    return min(len(path) // 3, REMEMBERED)


def agree(a: np.ndarray, b: np.ndarray, information: Information, settings: Settings) -> bool:
    """Tell whether two ends are nearer to each other than two standard errors or so.

    Along a level stretch they may be far from each other: they are not averaged there.
    """
    here = metric(information, settings)
    near = here.length((a - b)[settings.free]) < 1.0 + 0.5 * math.sqrt(len(settings.free))
    most = np.full(len(a), APART)
    most[weak(information, settings)] = APART_WHERE_LEVEL
    return near and _are_close(a, b, settings, most)


def are_one(a: Average, b: Average, information: Information, settings: Settings) -> bool:
    """Tell whether two averages are of one place, as far as their errors say."""
    here = metric(information, settings)
    error = math.hypot(a.error, b.error) * math.sqrt(len(settings.free))
    near = here.length((a.q - b.q)[settings.free]) < TOGETHER + 4 * error
    return near and _are_close(a.q, b.q, settings, TOGETHER_IN_SCALE)


def _are_close(a: np.ndarray, b: np.ndarray, settings: Settings, most: float | np.ndarray) -> bool:
    """Tell whether two points are close on the scale of the parameters.

    Where the likelihood is level, standard errors say that everything is near.
    """
    return bool(np.all(np.abs(a - b) < most * settings.scale))


def together[T](items: Sequence[T], are_one: Callable[[T, T], bool]) -> list[int]:
    """Return the number of the place of each item: that of the first one which it is one with.

    Examples
    --------
    >>> together([1.0, 5.0, 1.2], lambda a, b: abs(a - b) < 0.5)
    [0, 1, 0]
    """
    firsts: list[T] = []
    places = []
    for item in items:
        found = next((k for k, first in enumerate(firsts) if are_one(item, first)), len(firsts))
        if found == len(firsts):
            firsts.append(item)
        places.append(found)
    return places


def nearest(ends: Sequence[Ending], places: Sequence[int]) -> list[Ending]:
    """Return the end of each place that is the nearest to its maximum."""
    return [
        min(
            (end for end, own in zip(ends, places, strict=True) if own == place),
            key=lambda end: end.distance,
        )
        for place in range(1 + max(places, default=-1))
    ]


def weak(information: Information, settings: Settings) -> np.ndarray:
    """Return the coordinates, among those that move, of which next to nothing is known."""
    here = metric(information, settings)
    deviation = np.sqrt(np.diag(np.linalg.pinv(here.sampling, hermitian=True)))
    return settings.free[deviation > WEAK * settings.scale[settings.free]]


def _remembered(memory: Scores, scores: Scores) -> Scores:
    """Return the last draws of two."""
    return Scores(*(np.concatenate(pair)[-MEMORY:] for pair in zip(memory, scores, strict=True)))


def _of(scores: Scores, free: np.ndarray) -> Scores:
    return Scores(scores.centred[:, free], scores.noncentred[:, free], scores.balances)


def _blended(old: Information, new: Information) -> Information:
    return Information(*(0.7 * a + 0.3 * b for a, b in zip(old, new, strict=True)))


def information_of(
    slopes: np.ndarray,
    noise: np.ndarray,
    spread: np.ndarray,
) -> np.ndarray:
    """Return J' (diag(noise) + V)^-1 J, for a statistic with slopes J and covariance V.

    Examples
    --------
    >>> float(information_of(np.array([[10.0]]), np.array([2.0]), np.array([[3.0]])).item())
    20.0
    """
    if not len(slopes):
        return np.zeros((slopes.shape[1],) * 2)
    covariance = np.diag(noise) + spread
    return slopes.T @ np.linalg.pinv(covariance, hermitian=True) @ slopes


def without(settings: Settings, fixed: np.ndarray) -> Settings:
    """Return settings in which some coordinates stay where they are."""
    return replace(settings, free=np.setdiff1d(settings.free, fixed))
