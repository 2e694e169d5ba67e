"""Mixtures of Student laws: drawn from, evaluated, and learnt from weighted draws.

Component k is the law of mu_k + L_k t with t from Student's law of `algorithms.proposals.leaps`.
Its tails are heavier than those of most posteriors, so that weights with such a law below the
line are bounded more often than not. It is learnt by expectation and maximisation, where a draw x
of weight w counts for component k as w r_k(x), r_k its probability to have come from there.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from pymc_privacy.algorithms.adaptation.tuning import safe_cholesky
from pymc_privacy.algorithms.machine_code.caching import compiled
from pymc_privacy.algorithms.numerics.small_algebra import (
    add,
    copied,
    lower_times,
    solve_lower,
)
from pymc_privacy.algorithms.proposals.leaps import (
    DEGREES_OF_FREEDOM,
    draw_student,
    log_student,
)

MOST_COMPONENTS = 4
_ROUNDS = 40
_LEAST_SHARE = 0.02


class Mixture(NamedTuple):
    """A mixture of Student laws in one space."""

    shares: Any
    """Shape (components,); they add to one."""
    means: Any
    """Shape (components, coordinates)."""
    factors: Any
    """Lower-triangular L of each, shape (components, coordinates, coordinates)."""


@compiled
def log_student_density(t):
    """Return the log density of Student's law, with its constant."""
    half = 0.5 * DEGREES_OF_FREEDOM
    constant = math.lgamma(half + 0.5 * t.size) - math.lgamma(half)
    return (
        constant - 0.5 * t.size * math.log(2 * half * math.pi) + log_student(t, DEGREES_OF_FREEDOM)
    )


@compiled
def log_diagonal(factor):
    """Return log det L."""
    total = 0.0
    for i in range(len(factor)):
        total += math.log(factor[i, i])
    return total


@compiled
def log_sum(logs):
    """Return log sum exp of a vector; what is not a number counts for nothing."""
    largest = -math.inf
    for log in logs:
        # A comparison with what is no number is false.
        largest = log if log > largest else largest
    if largest == -math.inf:
        return largest
    total = 0.0
    for log in logs:
        if log > -math.inf:
            total += math.exp(log - largest)
    return largest + math.log(total)


@compiled
def choose(rng, shares):
    """Draw the number of a component."""
    left = rng.random()
    for k in range(shares.size - 1):
        left -= shares[k]
        if left < 0:
            return k
    return shares.size - 1


@compiled
def draw(rng, mixture):
    """Draw one point."""
    k = choose(rng, mixture.shares)
    point = lower_times(mixture.factors[k], draw_student(rng, mixture.means.shape[1]))
    add(point, 1.0, mixture.means[k])
    return point


@compiled
def log_density(point, mixture):
    """Return the log density at one point."""
    count = mixture.shares.size
    logs = np.empty(count)
    for k in range(count):
        t = copied(point)
        add(t, -1.0, mixture.means[k])
        solve_lower(mixture.factors[k], t)
        volume = math.log(mixture.shares[k]) - log_diagonal(mixture.factors[k])
        logs[k] = volume + log_student_density(t)
    return log_sum(logs)


def joined(mixture: Mixture, other: Mixture, share: float) -> Mixture:
    """Return a mixture of two mixtures, in which the second has a share.

    Examples
    --------
    >>> one = Mixture(np.ones(1), np.zeros((1, 1)), np.ones((1, 1, 1)))
    >>> joined(one, one, 0.25).shares
    array([0.75, 0.25])
    """
    return Mixture(
        np.concatenate([(1 - share) * mixture.shares, share * other.shares]),
        np.concatenate([mixture.means, other.means]),
        np.concatenate([mixture.factors, other.factors]),
    )


def learn(points: np.ndarray, weights: np.ndarray, *, most: int = MOST_COMPONENTS) -> Mixture:
    """Return a mixture near weighted points, with as many components as they speak for.

    Components are counted by Schwarz's criterion, for as many points as the weights are worth.

    Examples
    --------
    >>> rng = np.random.default_rng(1)
    >>> points = rng.standard_normal((400, 1)) + np.repeat([-9.0, 9.0], 200)[:, None]
    >>> len(learn(points, np.ones(400)).shares)
    2
    """
    shares = weights / weights.sum()
    worth = 1 / np.sum(shares**2)
    size = points.shape[1]
    of_one = 1 + size + size * (size + 1) / 2
    best, best_score = None, -math.inf
    for count in range(1, most + 1):
        if count > 1 and worth < 3 * count * of_one:
            break
        mixture, fit = _fitted(points, shares, count, worth)
        score = worth * fit - 0.5 * count * of_one * math.log(worth)
        if best is not None and score <= best_score:
            break
        best, best_score = mixture, score
    assert best is not None
    return best


def _fitted(
    points: np.ndarray, weights: np.ndarray, count: int, worth: float
) -> tuple[Mixture, float]:
    """Return a mixture of some components, and the mean log density that it gives the points."""
    whole = _covariance(points, weights, weights @ points)
    whole = _shrunk(whole, worth)
    # Start where the points are spread most: at even shares of them along that line.
    _, vectors = np.linalg.eigh(whole)
    order = np.argsort(points @ vectors[:, -1])
    passed = np.cumsum(weights[order])
    starts = [order[np.searchsorted(passed, (k + 0.5) / count)] for k in range(count)]
    means = points[starts] if count > 1 else (weights @ points)[None]
    factors = np.stack([_factor(whole / count)] * count)
    mixture = Mixture(np.full(count, 1 / count), means, factors)
    fit = -math.inf
    for _ in range(_ROUNDS):
        logs, distances = _by_component(points, mixture)
        totals = np.logaddexp.reduce(logs, axis=0)
        now = float(weights @ totals)
        if now < fit + 1e-4:
            break
        fit = now
        mixture = _maximised(points, weights * np.exp(logs - totals), distances, whole, worth)
    return mixture, fit


def _by_component(points: np.ndarray, mixture: Mixture) -> tuple[np.ndarray, np.ndarray]:
    """Return log (share x density) and squared distance of each point from each component."""
    size = points.shape[1]
    half = 0.5 * DEGREES_OF_FREEDOM
    constant = math.lgamma(half + 0.5 * size) - math.lgamma(half)
    constant -= 0.5 * size * math.log(2 * half * math.pi)
    logs, distances = [], []
    for share, mean, factor in zip(*mixture, strict=True):
        squared = np.sum(np.linalg.solve(factor, (points - mean).T) ** 2, axis=0)
        tail = -(half + 0.5 * size) * np.log1p(squared / DEGREES_OF_FREEDOM)
        logs.append(math.log(share) + constant + tail - log_diagonal(factor))
        distances.append(squared)
    return np.array(logs), np.array(distances)


def _maximised(
    points: np.ndarray,
    counts: np.ndarray,
    distances: np.ndarray,
    whole: np.ndarray,
    worth: float,
) -> Mixture:
    """Return the mixture that fits best where each point counts for components as given."""
    size = points.shape[1]
    shares, means, factors = [], [], []
    for ours, squared in zip(counts, distances, strict=True):
        share = ours.sum()
        pull = ours * (DEGREES_OF_FREEDOM + size) / (DEGREES_OF_FREEDOM + squared)
        mean = pull @ points / pull.sum()
        covariance = (pull[:, None] * (points - mean)).T @ (points - mean) / share
        # So few points as count here say little about a whole matrix.
        trust = share * worth / (share * worth + size)
        shares.append(max(share, _LEAST_SHARE))
        means.append(mean)
        factors.append(_factor(trust * covariance + (1 - trust) * np.diag(np.diag(whole))))
    return Mixture(np.array(shares) / sum(shares), np.array(means), np.array(factors))


def _covariance(points: np.ndarray, weights: np.ndarray, mean: np.ndarray) -> np.ndarray:
    return (weights[:, None] * (points - mean)).T @ (points - mean)


def _shrunk(covariance: np.ndarray, worth: float) -> np.ndarray:
    trust = worth / (worth + len(covariance))
    return trust * covariance + (1 - trust) * np.diag(np.diag(covariance))


def _factor(matrix: np.ndarray) -> np.ndarray:
    """Return a lower factor with a positive diagonal."""
    factor = safe_cholesky(matrix)
    return np.ascontiguousarray(factor * np.where(np.diag(factor) < 0, -1.0, 1.0))
