"""The design of the paper: parameters, sizes, thresholds; databases by the thousand; Algorithm 1.

Statistics are sums here; the paper divides them by the number of records.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numba import njit
from scipy import stats

import pymc_privacy as pmp

ALPHAS: dict[int, tuple[float, ...]] = {
    1: (3.3, 4.4),
    2: (0.5, 0.5, 0.5),
    3: (2.2, 3.3, 4.4),
    4: (2.0, 20.0, 2.0),
    5: (2.2, 3.3, 4.4, 5.5, 6.6),
}
SIZES = (1000, 5000)
EPSILONS = (0.25, 0.5, 1.5)
THRESHOLDS = (1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1)
CENSORED = 0.01
SELECTION = 0.25
RATE = 0.1  # of the exponential prior p1


class Databases(NamedTuple):
    """What may be published of databases, one row for each, and what may not.

    Parameters
    ----------
    logs : ndarray
        Sums of logarithms, censored at each threshold; shape (m, thresholds, d).
    counts : ndarray
        Of smallest shares between thresholds; shape (m, thresholds + 1).
    exact : ndarray
        Sums of logarithms without censoring; shape (m, d).
    shares : ndarray
        Sums of the shares themselves; shape (m, d).
    """

    logs: np.ndarray
    counts: np.ndarray
    exact: np.ndarray
    shares: np.ndarray


@njit
def _simulate(rng, alphas, size, edges, logs, counts, exact, shares):  # type: ignore[no-untyped-def]
    m, d = alphas.shape
    g = np.empty(d)
    for i in range(m):
        for _ in range(size):
            total = 0.0
            for j in range(d):
                a = alphas[i, j]
                # The logarithm of a gamma variate of a small shape, which may be below all floats.
                y = math.log(rng.standard_gamma(a + 1.0)) - rng.standard_exponential() / a
                g[j] = y
                total += math.exp(y)
            whole, low = math.log(total) if total > 0 else g.max(), 0.0
            for j in range(d):
                v = g[j] - whole
                low = min(low, v)
                exact[i, j] += v
                shares[i, j] += math.exp(v)
                for k in range(edges.size):
                    logs[i, k, j] += max(v, edges[k])
            where = 0
            while where < edges.size and low >= edges[where]:
                where += 1
            counts[i, where] += 1


def databases(
    rng: np.random.Generator, alphas: np.ndarray, size: int, thresholds: Any = THRESHOLDS
) -> Databases:
    """Simulate a database for each row of parameters; keep what may be published of it."""
    alphas = np.atleast_2d(np.asarray(alphas, dtype=np.float64))
    m, d = alphas.shape
    edges = np.log(np.asarray(thresholds, dtype=np.float64))
    made = Databases(
        np.zeros((m, len(edges), d)),
        np.zeros((m, len(edges) + 1), dtype=np.int64),
        np.zeros((m, d)),
        np.zeros((m, d)),
    )
    _simulate(rng, alphas, size, edges, *made)
    return made


def of_table(table: np.ndarray) -> Databases:
    """Return the same of one database that is there."""
    with np.errstate(divide="ignore"):
        exact = np.log(table).sum(axis=0)[None]
    logs = [pmp.log_shares(table, threshold).sum(axis=0) for threshold in THRESHOLDS]
    counts = pmp.smallest_share_bins(table, THRESHOLDS).sum(axis=0)
    return Databases(np.array(logs)[None], counts[None], exact, table.sum(axis=0)[None])


class Published(NamedTuple):
    """The sums of logarithms that were published, with what is public of them."""

    value: np.ndarray
    scale: float
    threshold: float
    size: int

    @property
    def means(self) -> np.ndarray:
        """Return the published means."""
        return self.value / self.size


def paper_scale(parts: int, threshold: float, epsilon: float) -> float:
    """Return the scale of the paper's noise: its sensitivity is d log(1 / a)."""
    return -parts * math.log(threshold) / epsilon


def algorithm_1(rng: np.random.Generator, data: Databases, epsilon: float) -> int:
    """Choose a threshold by noisy counts (DPSS, Algorithm 1), and return which one."""
    noise = pmp.DiscreteLaplace(epsilon=SELECTION * epsilon, sensitivity=2.0)
    noisy = noise.simulate(rng, data.counts[0])
    chosen = pmp.select_threshold(noisy, THRESHOLDS, censored=CENSORED)
    return THRESHOLDS.index(chosen)


def publish(
    rng: np.random.Generator, data: Databases, which: int, size: int, epsilon: float
) -> Published:
    """Publish the sums of logarithms with the paper's noise, at a threshold."""
    threshold = THRESHOLDS[which]
    exact = data.logs[0, which]
    scale = paper_scale(len(exact), threshold, epsilon)
    return Published(exact + rng.laplace(0, scale, len(exact)), scale, threshold, size)


def best_threshold(alpha: tuple[float, ...]) -> float:
    """Return the largest threshold below which at most 1% of the records have a share.

    The probability is bounded by that of single shares, which are Beta variables; it is within a
    tenth of it where it matters.
    """
    whole = sum(alpha)
    below = [
        sum(stats.beta(a, whole - a).cdf(threshold) for a in alpha) for threshold in THRESHOLDS
    ]
    fits = [t for t, p in zip(THRESHOLDS, below, strict=True) if p <= CENSORED]
    return fits[-1] if fits else THRESHOLDS[0]
