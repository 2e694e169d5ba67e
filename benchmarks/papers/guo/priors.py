"""The priors p1 to p5 of the paper; the last four come from a release of a quarter of the records.

Records are split at random, without a look at them, so that each is in one of two releases and the
budget is spent once. p2 and p5 can only be drawn from; p1, p3 and p4 have densities.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit
from scipy import special, stats

from benchmarks.papers.guo import design

_GRID = np.linspace(-9.0, 9.0, 721)  # of log alpha
QUARTER = 0.25


class GammaPrior(NamedTuple):
    """Gamma margins, independent (p1, p3) or joined by a Gaussian copula (p4).

    Parameters
    ----------
    shape, rate : ndarray
    scores : ndarray
        Normal scores of each margin on a grid of log alpha.
    coupling : ndarray
        The inverse of the correlation of the scores, less the identity.
    correlation : ndarray
    """

    shape: np.ndarray
    rate: np.ndarray
    scores: np.ndarray
    coupling: np.ndarray
    correlation: np.ndarray

    def draw(self, rng: np.random.Generator, draws: int) -> np.ndarray:
        """Draw alpha."""
        normal = rng.multivariate_normal(np.zeros(len(self.shape)), self.correlation, size=draws)
        return np.asarray(special.gammaincinv(self.shape, special.ndtr(normal)) / self.rate)


def gamma_prior(
    shape: np.ndarray, rate: np.ndarray, correlation: np.ndarray | None = None
) -> GammaPrior:
    """Return the prior with these margins."""
    correlation = np.eye(len(shape)) if correlation is None else correlation
    alpha = np.exp(_GRID)[None, :]
    # From whichever tail is smaller.
    low = special.gammainc(shape[:, None], rate[:, None] * alpha)
    high = special.gammaincc(shape[:, None], rate[:, None] * alpha)
    scores = np.where(low < high, special.ndtri(low), -special.ndtri(high))
    coupling = np.linalg.inv(correlation) - np.eye(len(shape))
    return GammaPrior(shape, rate, np.clip(scores, -8, 8), coupling, correlation)


def p1(parts: int) -> GammaPrior:
    """Return independent exponential laws of mean 10."""
    return gamma_prior(np.ones(parts), np.full(parts, design.RATE))


def p3(draws: np.ndarray) -> GammaPrior:
    """Return independent gamma laws, fitted to draws from p2."""
    fits = [_gamma_fit(column) for column in draws.T]
    return gamma_prior(np.array([f[0] for f in fits]), np.array([f[1] for f in fits]))


def p4(draws: np.ndarray) -> GammaPrior:
    """Return the same margins with a Gaussian copula, by the correlation of Normal scores."""
    margins = p3(draws)
    below = stats.gamma(margins.shape, scale=1 / margins.rate).cdf(draws)
    scores = special.ndtri(np.clip(below, 1e-9, 1 - 1e-9))
    correlation = np.corrcoef(scores.T)
    # Near to singular where the ridge is sharp.
    correlation = 0.995 * correlation + 0.005 * np.eye(len(correlation))
    return gamma_prior(margins.shape, margins.rate, correlation)


def _gamma_fit(values: np.ndarray) -> tuple[float, float]:
    """Return shape and rate of the largest likelihood."""
    gap = np.log(values.mean()) - np.log(values).mean()
    shape = (3 - gap + np.sqrt((gap - 3) ** 2 + 24 * gap)) / (12 * gap)
    for _ in range(20):
        slope = np.log(shape) - special.psi(shape) - gap
        shape = 1 / (1 / shape + slope / (shape**2 * (1 / shape - special.polygamma(1, shape))))
    return float(shape), float(shape / values.mean())


@njit
def log_density(q, shape, rate, scores, coupling):  # type: ignore[no-untyped-def]
    """Return the log density of log alpha, up to a constant."""
    total, at = 0.0, np.empty(q.size)
    for j in range(q.size):
        total += shape[j] * q[j] - rate[j] * np.exp(q[j])
        place = min(max((q[j] + 9.0) / 0.025, 0.0), 719.999)
        k = int(place)
        at[j] = scores[j, k] + (place - k) * (scores[j, k + 1] - scores[j, k])
    for i in range(q.size):
        for j in range(q.size):
            total -= 0.5 * at[i] * coupling[i, j] * at[j]
    return total


def split(rng: np.random.Generator, table: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Split records at random, a quarter and three."""
    order = rng.permutation(len(table))
    first = round(QUARTER * len(table))
    return table[order[:first]], table[order[first:]]
