"""The published sampler: particles of (theta, x_1, ..., x_t), rejuvenated at every release.

Algorithm 2 of Yıldırım (2024) with the rejuvenation of Algorithm 4, in the form of the author's
code: propagate, weight, resample; then for each past record two Metropolis moves (a random walk of
three standard deviations, and a draw from the model), and a Gibbs step of mu and sigma^2. O(t) work
for each particle and release, where integrating the record out takes O(1). Noise has the stated
scale, which that of the author's code has not.

Also the MCMC that it is compared with, for all releases at once: averaged acceptance ratios
(Andrieu, Yıldırım, Doucet and Chopin, 2020), mu and sigma^2 by random walks.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numba import njit

PRIOR_VARIANCE, SHAPE, RATE = 1e4, 1.0, 1.0


class Cloud(NamedTuple):
    """Particles of parameters, and of one record for each release so far."""

    mu: np.ndarray
    variance: np.ndarray
    records: np.ndarray  # (particles, users)


def start(rng: np.random.Generator, particles: int, users: int) -> Cloud:
    """Draw from the prior; the author's code puts all particles at the first release instead."""
    return Cloud(
        rng.normal(0, math.sqrt(PRIOR_VARIANCE), particles),
        RATE / rng.gamma(SHAPE, size=particles),
        np.empty((particles, users)),
    )


@njit
def step(rng, cloud, t, releases, lower, upper, scale):  # type: ignore[no-untyped-def]
    """Take in release t."""
    n = cloud.mu.size
    logs = np.empty(n)
    for i in range(n):
        x = cloud.mu[i] + math.sqrt(cloud.variance[i]) * rng.standard_normal()
        cloud.records[i, t] = x
        logs[i] = -abs(releases[t] - min(max(x, lower[t]), upper[t])) / scale[t]
    weights = np.exp(logs - logs.max())
    weights /= weights.sum()
    chosen = np.empty(n, np.int64)
    total, j, u = weights[0], 0, rng.random()
    for i in range(n):
        while total < (i + u) / n and j < n - 1:
            j += 1
            total += weights[j]
        chosen[i] = j
    mu, variance = cloud.mu[chosen], cloud.variance[chosen]
    records = cloud.records[chosen, : t + 1]
    for i in range(n):
        _rejuvenate(rng, i, t, mu, variance, records, releases, lower, upper, scale)
    cloud.mu[:], cloud.variance[:] = mu, variance
    cloud.records[:, : t + 1] = records


@njit
def _rejuvenate(rng, i, t, mu, variance, records, releases, lower, upper, scale):  # type: ignore[no-untyped-def]
    m, v = mu[i], variance[i]
    sd = math.sqrt(v)
    for k in range(t + 1):
        x = records[i, k]
        noise = -abs(releases[k] - min(max(x, lower[k]), upper[k])) / scale[k]
        for walk in range(2):
            if walk == 0:
                other = x + 3 * sd * rng.standard_normal()
                prior = 0.5 * ((x - m) ** 2 - (other - m) ** 2) / v
            else:
                other, prior = m + sd * rng.standard_normal(), 0.0
            there = -abs(releases[k] - min(max(other, lower[k]), upper[k])) / scale[k]
            if math.log(rng.random()) < prior + there - noise:
                x, noise = other, there
        records[i, k] = x
    size = t + 1
    precision = 1 / PRIOR_VARIANCE + size / v
    mean = records[i, :size].sum() / v / precision
    m = mean + rng.standard_normal() / math.sqrt(precision)
    squares = ((records[i, :size] - m) ** 2).sum()
    mu[i] = m
    variance[i] = (RATE + 0.5 * squares) / rng.standard_gamma(SHAPE + 0.5 * size)


@njit
def averaged_acceptance(rng, releases, lower, upper, scale, draws, copies=20):  # type: ignore[no-untyped-def]
    """Return draws of mu and sigma^2 given all releases; the interval is the same for all."""
    n = releases.size
    z = rng.standard_normal(n)
    m, v = releases.mean(), 1.0
    kept = np.empty((draws, 2))
    walk_m, walk_v = 10 / math.sqrt(n), 20 / math.sqrt(n)
    fresh, weights = np.empty((n, copies)), np.empty((n, copies))
    rate = 0.0
    for draw in range(draws):
        m2, v2 = m + walk_m * rng.standard_normal(), v + walk_v * rng.standard_normal()
        accepted = False
        if v2 > 0:
            log_ratio = 0.5 * (m * m - m2 * m2) / PRIOR_VARIANCE
            log_ratio += (SHAPE + 1) * math.log(v / v2) + RATE / v - RATE / v2
            sd, sd2 = math.sqrt(v), math.sqrt(v2)
            for k in range(n):
                here = 0.0
                for c in range(copies):
                    fresh[k, c] = z[k] if c == 0 else rng.standard_normal()
                    x = min(max(m + sd * fresh[k, c], lower), upper)
                    here += math.exp(-abs(releases[k] - x) / scale)
                    x = min(max(m2 + sd2 * fresh[k, c], lower), upper)
                    weights[k, c] = math.exp(-abs(releases[k] - x) / scale)
                log_ratio += math.log(weights[k].sum() / here)
            accepted = math.log(rng.random()) < log_ratio
        if accepted:
            m, v = m2, v2
            for k in range(n):
                u, c = rng.random() * weights[k].sum(), 0
                while c < copies - 1 and u > weights[k, c]:
                    u -= weights[k, c]
                    c += 1
                z[k] = fresh[k, c]
        # Lengths that accept one proposal of ten, learned ever more slowly.
        rate = (draw + 1.0) ** -0.6
        factor = math.exp(rate * ((1.0 if accepted else 0.0) - 0.1))
        walk_m, walk_v = walk_m * factor, walk_v * factor
        kept[draw] = m, v
    return kept
