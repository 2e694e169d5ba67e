"""Iterated batch importance sampling: a posterior that takes in one release at a time.

Chopin (2002). Particles are draws of the parameters, with weights. A release multiplies the weight
of each by its probability; where weights would become too uneven, the release is taken in by parts,
and in between particles are drawn again and moved by a kernel that leaves the posterior so far as
it is. Epsilon-local privacy bounds the log probabilities of one release to a range epsilon, so that
moves become rare, at geometric times. The estimate of the evidence is consistent; moves that learn
from the particles make it not exactly unbiased.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

Density = Callable[[np.ndarray], np.ndarray]
"""A function of rows of parameters, which returns one number for each."""

_LEAST_SHARE = 0.5  # of the particles that may be left effective
_HALVINGS = 30
_FEWEST_MOVES, _MOST_MOVES = 4, 24
_FORGOTTEN = 0.3  # correlation with where particles were before they moved
_DEGREES = 6.0  # of freedom, of independent proposals
_WALK, _SHORT_WALK = 1.7, 0.4  # lengths, in standard deviations over root of dimension


class State(NamedTuple):
    """Particles that stand for the posterior given ``size`` releases."""

    particles: np.ndarray
    log_weights: np.ndarray
    log_posterior: np.ndarray  # prior times probability of all releases, of each particle
    log_evidence: float
    size: int


class Info(NamedTuple):
    """What happened when a release was taken in."""

    ess: float
    log_increment: float  # by which the log evidence grew
    parts: int
    moves: int
    accept: float  # of moves; nan without any


class Target(NamedTuple):
    """Log densities of the parameters: before a release, and of it."""

    before: Density
    release: Density


def init(particles: np.ndarray, log_prior: np.ndarray) -> State:
    """Return the state before any release, of draws from the prior."""
    return State(particles, np.zeros(len(particles)), log_prior, 0.0, 0)


def weights_of(state: State) -> np.ndarray:
    """Return weights that add up to one."""
    weights = np.exp(state.log_weights - state.log_weights.max())
    return weights / weights.sum()


def mean_of(state: State) -> np.ndarray:
    """Return the posterior mean of the parameters, in the coordinates of the particles."""
    return weights_of(state) @ state.particles


def covariance_of(state: State) -> np.ndarray:
    """Return their posterior covariance."""
    return _moments(state.particles, weights_of(state))[1]


def resample(rng: np.random.Generator, weights: np.ndarray, draws: int) -> np.ndarray:
    """Return indices, each about draws times its weight: systematic resampling."""
    places = (np.arange(draws) + rng.random()) / draws
    return np.minimum(np.searchsorted(np.cumsum(weights), places), len(weights) - 1)


def step(rng: np.random.Generator, state: State, target: Target) -> tuple[State, Info]:
    """Take in one release."""
    increment = target.release(state.particles)
    taken, parts, moves = 0.0, 0, 0
    accepted: list[float] = []
    before = state.log_evidence
    while taken < 1.0:
        part = _next_part(state.log_weights, increment, 1.0 - taken)
        taken, parts = (1.0 if part == 1.0 - taken else taken + part), parts + 1
        state = _weighed(state, part * increment)
        if taken < 1.0:
            state, made, accept = rejuvenate(rng, state, _so_far(target, taken))
            increment = target.release(state.particles)
            moves, accepted = moves + made, [*accepted, accept]
    weights = weights_of(state)
    info = Info(
        ess=float(1.0 / np.sum(weights**2)),
        log_increment=state.log_evidence - before,
        parts=parts,
        moves=moves,
        accept=float(np.mean(accepted)) if accepted else np.nan,
    )
    return state._replace(size=state.size + 1), info


def _so_far(target: Target, taken: float) -> Density:
    return lambda q: target.before(q) + taken * target.release(q)


def rejuvenate(
    rng: np.random.Generator, state: State, density: Density
) -> tuple[State, int, float]:
    """Draw particles again by their weights, and move them until they have forgotten where from.

    Proposals are Student's law with the particles' mean and covariance, and random walks of two
    lengths, in turn: each leaves the density invariant. Returns the state, the number of moves and
    the rate of acceptance.
    """
    weights = weights_of(state)
    mean, covariance = _moments(state.particles, weights)
    root = _root(covariance)
    chosen = resample(rng, weights, len(weights))
    here, log_here = state.particles[chosen], state.log_posterior[chosen]
    start, accepts = here, []
    for k in range(_MOST_MOVES):
        there, log_ratio = _propose(rng, k, here, mean, root)
        log_there = density(there)
        with np.errstate(invalid="ignore"):
            accept = np.log(rng.random(len(here))) < log_there - log_here + log_ratio
        here = np.where(accept[:, None], there, here)
        log_here = np.where(accept, log_there, log_here)
        accepts.append(accept.mean())
        if k + 1 >= _FEWEST_MOVES and (k + 1) % 2 == 0 and _correlation(start, here) < _FORGOTTEN:
            break
    moved = state._replace(particles=here, log_posterior=log_here, log_weights=np.zeros(len(here)))
    return moved, len(accepts), float(np.mean(accepts))


def _propose(
    rng: np.random.Generator, k: int, here: np.ndarray, mean: np.ndarray, root: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return proposals, and the log ratio of proposing the way back to proposing the way there."""
    n, d = here.shape
    z = rng.standard_normal((n, d))
    if k % 2:
        length = (_WALK if k % 4 == 1 else _SHORT_WALK) / np.sqrt(d)
        return here + length * z @ root.T, np.zeros(n)
    z *= np.sqrt(_DEGREES / rng.chisquare(_DEGREES, n))[:, None]
    back = np.linalg.solve(root, (here - mean).T).T
    return mean + z @ root.T, _log_student(back) - _log_student(z)


def _log_student(z: np.ndarray) -> np.ndarray:
    return -0.5 * (_DEGREES + z.shape[1]) * np.log1p(np.sum(z**2, axis=1) / _DEGREES)


def _next_part(log_weights: np.ndarray, increment: np.ndarray, rest: float) -> float:
    """Return how much of the release leaves enough particles effective: the rest, or less."""
    least = _LEAST_SHARE * len(log_weights)
    if _effective(log_weights + rest * increment) >= least:
        return rest
    low, high = 0.0, rest
    for _ in range(_HALVINGS):
        middle = 0.5 * (low + high)
        if _effective(log_weights + middle * increment) >= least:
            low = middle
        else:
            high = middle
    # However little is left effective, something is taken in.
    return low or high


def _effective(log_weights: np.ndarray) -> float:
    weights = np.exp(log_weights - log_weights.max())
    return float(weights.sum() ** 2 / np.sum(weights**2))


def _weighed(state: State, increment: np.ndarray) -> State:
    before, after = state.log_weights, state.log_weights + increment
    return state._replace(
        log_weights=after,
        log_posterior=state.log_posterior + increment,
        log_evidence=state.log_evidence + _log_sum(after) - _log_sum(before),
    )


def _log_sum(logs: np.ndarray) -> float:
    largest = logs.max()
    return float(largest + np.log(np.exp(logs - largest).sum()))


def _moments(particles: np.ndarray, weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    mean = weights @ particles
    off = particles - mean
    return mean, (off * weights[:, None]).T @ off


def _root(covariance: np.ndarray) -> np.ndarray:
    """Return a lower root of a covariance, with a ridge where it has none."""
    scale = np.diag(covariance).copy()
    ridge = np.diag(scale * 1e-12 + 1e-300)
    while True:
        try:
            return np.linalg.cholesky(covariance + ridge)
        except np.linalg.LinAlgError:
            ridge = 100.0 * ridge


def _correlation(before: np.ndarray, after: np.ndarray) -> float:
    """Return the largest correlation of a coordinate with itself before the moves."""
    a, b = before - before.mean(axis=0), after - after.mean(axis=0)
    norms = np.sqrt(np.sum(a**2, axis=0) * np.sum(b**2, axis=0))
    return float(np.max(np.sum(a * b, axis=0) / np.where(norms > 0, norms, 1.0)))
