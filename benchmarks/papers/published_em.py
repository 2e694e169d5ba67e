"""Monte Carlo EM of Awan et al., section 5.2, as the published code runs it on their regression.

A third of the rounds are Gibbs sweeps under the prior of their Table 1; the others are EM: in each
round databases are drawn given the release by record sweeps, with one jump of the size up or down
by one after each, and the parameters become those of complete records. The precision tau uses the
coefficients of the round before, the covariance of the covariates is held at the identity, and the
last round is the estimate. ``leak`` evaluates the density of the published code, in which the exact
number of records enters through a Laplace term and the ninth statistic does not enter.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numba import njit

ROUNDS, SWEEPS, BURN_IN = 100, 100, 33
CLAMP, SENSITIVITY, LEAST = 5.0, 9.0, 3
STATISTICS = 9


class Parameters(NamedTuple):
    """Of the regression: coefficients, precision, means and factor of the covariates."""

    beta: np.ndarray
    tau: float
    mean: np.ndarray
    factor: np.ndarray


class Release(NamedTuple):
    """What was published, and what the published density reads besides."""

    sums: np.ndarray
    size: float
    epsilon_s: float
    epsilon_n: float
    exact_size: float
    leak: bool


@njit
def contribution(record, out):  # type: ignore[no-untyped-def]
    """Write the nine statistics of one record; the last one is the square of x2."""
    a = min(max(record[0], -CLAMP), CLAMP) / CLAMP
    b = min(max(record[1], -CLAMP), CLAMP) / CLAMP
    c = min(max(record[2], -CLAMP), CLAMP) / CLAMP
    out[0], out[1], out[2], out[3], out[4] = c, a * c, b * c, c * c, a
    out[5], out[6], out[7], out[8] = b, a * a, a * b, b * b


@njit
def fresh(rng, theta, record):  # type: ignore[no-untyped-def]
    """Draw one record."""
    z, w = rng.standard_normal(), rng.standard_normal()
    record[0] = theta.mean[0] + theta.factor[0, 0] * z
    record[1] = theta.mean[1] + theta.factor[1, 0] * z + theta.factor[1, 1] * w
    mean = theta.beta[0] + theta.beta[1] * record[0] + theta.beta[2] * record[1]
    record[2] = mean + rng.standard_normal() / math.sqrt(theta.tau)


@njit
def log_density(release, total, size):  # type: ignore[no-untyped-def]
    """Return the log density of the release, or what the published code takes for it."""
    last = STATISTICS - 1 if release.leak else STATISTICS
    distance = 0.0
    for k in range(last):
        distance += abs(release.sums[k] - total[k])
    if release.leak:
        distance += abs(release.exact_size - size)
    found = -distance * release.epsilon_s / SENSITIVITY
    if math.isfinite(release.epsilon_n):
        found -= release.epsilon_n * abs(release.size - size)
    return found


@njit
def sweep(rng, theta, records, size, total, release, jumps):  # type: ignore[no-untyped-def]
    """Offer every record a fresh draw; then let one be born or die. Return the size."""
    old, new, moved = np.empty(STATISTICS), np.empty(STATISTICS), np.empty(STATISTICS)
    proposal = np.empty(3)
    now = log_density(release, total, size)
    for i in range(size):
        fresh(rng, theta, proposal)
        contribution(records[i], old)
        contribution(proposal, new)
        moved[:] = total - old + new
        then = log_density(release, moved, size)
        if math.log(rng.random()) < then - now:
            total[:], records[i], now = moved, proposal, then
    if not jumps:
        return size
    if rng.random() < 0.5:
        if size + 1 < len(records):
            fresh(rng, theta, records[size])
            contribution(records[size], new)
            if math.log(rng.random()) < log_density(release, total + new, size + 1) - now:
                total += new
                return size + 1
    elif size > LEAST:
        i = rng.integers(0, size)
        contribution(records[i], old)
        if math.log(rng.random()) < log_density(release, total - old, size - 1) - now:
            total -= old
            records[i] = records[size - 1]
            return size - 1
    return size


def _sums(records: np.ndarray) -> tuple[np.ndarray, np.ndarray, float]:
    """Return X'X, X'y and y'y."""
    x = np.column_stack([np.ones(len(records)), records[:, :2]])
    y = records[:, 2]
    return x.T @ x, x.T @ y, float(y @ y)


def _gibbs(rng: np.random.Generator, records: np.ndarray, theta: Parameters) -> Parameters:
    """Draw the parameters given records, under the prior of Table 1."""
    n = len(records)
    squares, cross, own = _sums(records)
    precision = squares + np.eye(3)
    beta = np.linalg.solve(precision, cross)
    tau = rng.gamma((2 + n) / 2, 2 / (2 + own - beta @ precision @ beta))
    beta = rng.multivariate_normal(beta, np.linalg.inv(precision) / tau)
    inverse = np.linalg.inv(theta.factor @ theta.factor.T)
    spread = np.linalg.inv(np.eye(2) + n * inverse)
    covariates = records[:, :2]
    mean = rng.multivariate_normal(spread @ inverse @ covariates.sum(axis=0), spread)
    apart = covariates - mean
    root = np.linalg.cholesky(np.linalg.inv(apart.T @ apart + np.eye(2)))
    corner = np.diag(np.sqrt(rng.chisquare([n + 2, n + 1])))
    corner[1, 0] = rng.standard_normal()
    wishart = root @ corner @ corner.T @ root.T
    return Parameters(beta, tau, mean, np.linalg.cholesky(np.linalg.inv(wishart)))


def estimate(
    rng: np.random.Generator, release: Release, *, rounds: int = ROUNDS, jumps: bool = True
) -> Parameters:
    """Return the last iterate of the published algorithm."""
    size = max(LEAST, round(release.size))
    theta = Parameters(np.zeros(3), 1.0, np.zeros(2), np.eye(2))
    records = np.empty((4 * size + 2000, 3))
    total, one = np.zeros(STATISTICS), np.empty(STATISTICS)
    for i in range(size):
        fresh(rng, theta, records[i])
        contribution(records[i], one)
        total += one
    burn_in = rounds * BURN_IN // ROUNDS
    for _ in range(burn_in * SWEEPS):
        size = sweep(rng, theta, records, size, total, release, jumps)
        theta = _gibbs(rng, records[:size], theta)
    theta = theta._replace(factor=np.eye(2))
    for _ in range(rounds - burn_in):
        squares, cross, own = np.zeros((3, 3)), np.zeros(3), 0.0
        for _ in range(SWEEPS):
            size = sweep(rng, theta, records, size, total, release, jumps)
            parts = _sums(records[:size])
            squares, cross, own = squares + parts[0], cross + parts[1], own + parts[2]
        residual = own - 2 * theta.beta @ cross + theta.beta @ squares @ theta.beta
        theta = theta._replace(
            beta=np.linalg.pinv(squares) @ cross,
            tau=float(squares[0, 0] / residual),
            mean=squares[0, 1:] / squares[0, 0],
        )
    return theta
