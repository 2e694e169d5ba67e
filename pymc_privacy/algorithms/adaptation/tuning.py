"""Learn the constants of a random walk during tuning, and never after.

A kernel that kept adapting to its own past would not leave the posterior invariant, so
everything here is a function of draws that are discarded.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np


class Moments(NamedTuple):
    """Running mean and scatter of the parameters."""

    draws: int
    mean: np.ndarray
    scatter: np.ndarray


class Tuning(NamedTuple):
    """A random walk that is being learnt: its factor, its scale, and what it has seen."""

    factor: np.ndarray
    log_scale: float
    moments: Moments
    iteration: int
    centre: np.ndarray
    """The mean of what the factor was learnt from; empty before."""

    @property
    def scale(self) -> float:
        """Return the length of a step in units of the factor."""
        return math.exp(self.log_scale)


def no_moments(size: int) -> Moments:
    """Return moments of nothing."""
    return Moments(0, np.zeros(size), np.zeros((size, size)))


def init(size: int, scale: float | None = None) -> Tuning:
    """Start with small steps of equal length in every direction."""
    log_scale = math.log(2.4 / math.sqrt(max(size, 1)) if scale is None else scale)
    return Tuning(0.1 * np.eye(size), log_scale, no_moments(size), 0, np.empty(0))


def rescale(tuning: Tuning, accept: float, target: float) -> Tuning:
    """Move the scale towards the target acceptance."""
    log_scale = tuning.log_scale + gain(tuning.iteration) * (accept - target)
    return tuning._replace(log_scale=log_scale, iteration=tuning.iteration + 1)


def gain(iteration: int) -> float:
    """Return the length of a step of Robbins and Monro, which vanishes slowly.

    Acceptance is an average over a few moves: one bad batch must not change a scale much.
    """
    return 2 * (1 + iteration) ** -0.6


def slow_gain(iteration: int) -> float:
    """Return the length of a step of Robbins and Monro for an acceptance of many moves."""
    return 1 / math.sqrt(1 + iteration)


def bounded(tuning: Tuning, least: float, most: float) -> Tuning:
    """Keep the scale between bounds, in units of 1 / sqrt(dimensions)."""
    unit = -0.5 * math.log(max(len(tuning.factor), 1))
    log_scale = min(max(tuning.log_scale, math.log(least) + unit), math.log(most) + unit)
    return tuning._replace(log_scale=log_scale)


def observe(tuning: Tuning, q: np.ndarray) -> Tuning:
    """Add one draw to the running moments."""
    return tuning._replace(moments=with_draw(tuning.moments, q))


def with_draw(moments: Moments, q: np.ndarray) -> Moments:
    """Return the moments of one draw more."""
    draws, mean, scatter = moments
    difference = q - mean
    mean = mean + difference / (draws + 1)
    return Moments(draws + 1, mean, scatter + np.outer(difference, q - mean))


def observed(tuning: Tuning, draws: np.ndarray) -> Tuning:
    """Take the moments of many draws, instead of what was seen before."""
    mean = draws.mean(axis=0) if len(draws) else np.zeros(draws.shape[1])
    scatter = (draws - mean).T @ (draws - mean)
    return tuning._replace(moments=Moments(len(draws), mean, scatter))


def learn_factor(tuning: Tuning, *, forget: bool) -> Tuning:
    """Take the factor from the moments seen so far, shrunk towards its diagonal."""
    draws, mean, scatter = tuning.moments
    size = len(scatter)
    if draws <= size + 1:
        return tuning
    covariance = scatter / (draws - 1)
    # Of what stood still nothing can be learnt.
    if not np.all(np.diag(covariance) > 0):
        return tuning
    trust = draws / (draws + 5 * size)
    shrunk = trust * covariance + (1 - trust) * np.diag(np.diag(covariance))
    tuning = tuning._replace(factor=safe_cholesky(shrunk), centre=mean)
    return tuning._replace(moments=no_moments(size)) if forget else tuning


def padded(factor: np.ndarray, size: int) -> np.ndarray:
    """Return a factor of ``size`` coordinates that moves only the first of them."""
    wider = np.zeros((size, size))
    wider[: len(factor), : len(factor)] = factor
    return wider


def at_milestone(tuning: Tuning, tune_steps: int) -> bool:
    """Tell whether shapes are to be learnt afresh at this iteration of tuning."""
    early = {k for k in (0, 10, 25, 50, 100) if k < tune_steps // 4}
    late = {tune_steps // 4, tune_steps // 2, 3 * tune_steps // 4, tune_steps - 1}
    return tuning.iteration in early | late


def learn_factor_in_time(tuning: Tuning, tune_steps: int) -> Tuning:
    """Learn the factor at every milestone, and forget what was seen before the middle."""
    if not at_milestone(tuning, tune_steps):
        return tuning
    return learn_factor(tuning, forget=tuning.iteration <= tune_steps // 2)


def safe_cholesky(matrix: np.ndarray) -> np.ndarray:
    """Return a lower factor of a matrix that may be a little short of positive definite."""
    values, vectors = np.linalg.eigh((matrix + matrix.T) / 2)
    floor = max(values.max() * 1e-10, np.finfo(float).tiny)
    root = vectors * np.sqrt(np.clip(values, floor, None))
    return np.ascontiguousarray(np.linalg.qr(root.T, mode="r").T)


def numerical_gradient(
    log_density: Callable[[np.ndarray], float], lengths: np.ndarray
) -> Callable[[np.ndarray], np.ndarray]:
    """Return the gradient of a log density by central differences."""
    steps = np.diag(lengths)
    return lambda q: np.array(
        [
            (log_density(q + s) - log_density(q - s)) / (2 * h)
            for s, h in zip(steps, lengths, strict=True)
        ]
    )


def curvature_factor(
    gradient: Callable[[np.ndarray], np.ndarray], q: np.ndarray, lengths: np.ndarray
) -> np.ndarray | None:
    """Return L with L Lᵀ = (-Hessian)⁻¹ at q by central differences, or None if it is not concave.

    Parameters
    ----------
    gradient
        The gradient of a log density.
    q
    lengths
        Steps of the differences, one per coordinate.
    """
    steps = np.diag(lengths)
    rows = [
        (gradient(q + s) - gradient(q - s)) / (2 * h) for s, h in zip(steps, lengths, strict=True)
    ]
    hessian = np.array(rows)
    if not np.all(np.isfinite(hessian)):
        return None
    values, vectors = np.linalg.eigh(-(hessian + hessian.T) / 2)
    if values.min() <= 1e-9 * values.max() or values.max() <= 0:
        return None
    return np.ascontiguousarray(np.linalg.qr((vectors / np.sqrt(values)).T, mode="r").T)


def learn_curvature(
    tuning: Tuning,
    density: Callable[[np.ndarray], Sequence[np.ndarray]],
    q: np.ndarray,
    *,
    has_gradient: bool,
) -> Tuning:
    """Take the factor from the curvature of a log density at q, where that is defined.

    ``density`` returns the value, and the gradient behind it if ``has_gradient``. Coordinates of
    q beyond those of the factor stay as they are.
    """
    lengths = 0.5 * np.linalg.norm(tuning.factor, axis=1)
    first, others = np.split(q, [len(lengths)])

    def at(first: np.ndarray) -> Sequence[np.ndarray]:
        return density(np.concatenate([first, others]))

    if has_gradient:
        factor = curvature_factor(lambda q: at(q)[1][: len(lengths)], first, lengths)
    else:
        slope = numerical_gradient(lambda q: float(at(q)[0]), lengths)
        factor = curvature_factor(slope, first, lengths)
    return tuning if factor is None else tuning._replace(factor=factor)
