"""Exact posteriors of many releases from one bank of simulated databases, by importance sampling.

The law of the noise is the weight of a simulated database: with it nothing has to be tolerated, as
it must be in approximate Bayesian computation. Parameters come from a mixture of Student laws.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy import special, stats

from benchmarks.papers.guo import design

FREEDOM = 5.0
_LOG_LIMITS = (np.log(1e-3), np.log(1e5))


class Mixture(NamedTuple):
    """Student laws of log alpha, with weights."""

    weights: np.ndarray
    laws: list

    def draw(self, rng: np.random.Generator, draws: int) -> np.ndarray:
        """Draw log alpha."""
        which = rng.choice(len(self.laws), draws, p=self.weights)
        drawn = np.empty((draws, self.laws[0].dim))
        for k, law in enumerate(self.laws):
            mask = which == k
            if mask.any():
                sample = law.rvs(int(mask.sum()), random_state=rng)
                drawn[mask] = np.reshape(sample, (int(mask.sum()), law.dim))
        return np.clip(drawn, *_LOG_LIMITS)

    def log_density(self, points: np.ndarray) -> np.ndarray:
        """Return the log density of the mixture."""
        terms = np.reshape([law.logpdf(points) for law in self.laws], (len(self.laws), -1))
        return np.asarray(special.logsumexp(terms, b=self.weights[:, None], axis=0))


class Weighted(NamedTuple):
    """Weighted draws of alpha given one release."""

    alphas: np.ndarray
    weights: np.ndarray
    log_mean: np.ndarray
    log_error: np.ndarray
    effective: float
    log_weights: np.ndarray

    def mean(self) -> np.ndarray:
        """Return the posterior mean of alpha."""
        return np.asarray(self.weights @ self.alphas)

    def interval(self, values: np.ndarray, prob: float = 0.95) -> tuple[np.ndarray, np.ndarray]:
        """Return equal-tailed intervals of functions of alpha, one for each column."""
        ends = []
        for tail in ((1 - prob) / 2, (1 + prob) / 2):
            columns = []
            for column in values.T:
                order = np.argsort(column)
                reached = np.searchsorted(np.cumsum(self.weights[order]), tail)
                columns.append(column[order[min(int(reached), len(order) - 1)]])
            ends.append(np.array(columns))
        return ends[0], ends[1]


def equally(alphas: np.ndarray) -> Weighted:
    """Return draws that all count the same."""
    return weighed(np.log(alphas), np.zeros(len(alphas)))


def log_prior(log_alpha: np.ndarray) -> np.ndarray:
    """Return the log density of log alpha under p1."""
    return (log_alpha - design.RATE * np.exp(log_alpha)).sum(axis=1)


def wide(parts: int) -> Mixture:
    """Return a law that covers the prior."""
    law = stats.multivariate_t(np.full(parts, 1.0), 1.5 * np.eye(parts), FREEDOM)
    return Mixture(np.ones(1), [law])


def weighed(log_alpha: np.ndarray, log_weights: np.ndarray) -> Weighted:
    """Return draws with normalised weights, their mean on the log scale and its error."""
    weights = np.exp(log_weights - log_weights.max())
    weights /= weights.sum()
    mean = weights @ log_alpha
    error = np.sqrt((weights**2) @ (log_alpha - mean) ** 2)
    effective = float(1 / (weights**2).sum())
    return Weighted(np.exp(log_alpha), weights, mean, error, effective, log_weights)


def _laplace(published: design.Published, logs: np.ndarray) -> np.ndarray:
    return -np.abs(logs - published.value).sum(axis=1) / published.scale


def adapted(
    rng: np.random.Generator, published: design.Published, *, draws: int, rounds: int = 5
) -> Weighted:
    """Return draws given one release, from a mixture that is learnt in rounds."""
    return _round(rng, published, learnt(rng, published, draws=draws // 3, rounds=rounds), draws)


def learnt(
    rng: np.random.Generator, published: design.Published, *, draws: int, rounds: int = 5
) -> Mixture:
    """Return a mixture that is near the posterior given one release."""
    mixture = wide(len(published.value))
    defence = mixture.laws[0]
    for _ in range(rounds):
        found = _round(rng, published, mixture, draws)
        mixture = _fitted(rng, np.log(found.alphas), found.log_weights, defence)
    return mixture


def _round(
    rng: np.random.Generator, published: design.Published, mixture: Mixture, draws: int
) -> Weighted:
    log_alpha = mixture.draw(rng, draws)
    made = design.databases(rng, np.exp(log_alpha), published.size, (published.threshold,))
    density = log_prior(log_alpha) - mixture.log_density(log_alpha)
    return weighed(log_alpha, density + _laplace(published, made.logs[:, 0]))


def _fitted(
    rng: np.random.Generator, log_alpha: np.ndarray, log_weights: np.ndarray, defence: object
) -> Mixture:
    """Fit three Student laws to weighted draws, tempered until enough of them count."""
    parts, power = log_alpha.shape[1], 1.0
    while True:
        found = weighed(log_alpha, power * log_weights)
        if found.effective > 20 * parts or power < 0.01:
            break
        power *= 0.8
    points = log_alpha[rng.choice(len(log_alpha), 2000, p=found.weights)]
    points = points + 0.02 * rng.standard_normal(points.shape)
    thirds = np.array_split(np.argsort(points.sum(axis=1)), 3)
    laws = [
        stats.multivariate_t(
            points[part].mean(axis=0), 1.3 * np.cov(points[part].T) + 1e-3 * np.eye(parts), FREEDOM
        )
        for part in thirds
    ]
    whole = stats.multivariate_t(
        points.mean(axis=0), 1.2 * np.cov(points.T) + 1e-3 * np.eye(parts), FREEDOM
    )
    weights = np.array([0.18, 0.18, 0.18, 0.4, 0.06])
    return Mixture(weights, [*laws, whole, defence])


class Bank(NamedTuple):
    """Simulated databases, with the log ratio of prior and proposal of their parameters."""

    log_alpha: np.ndarray
    log_ratio: np.ndarray
    data: design.Databases
    size: int

    def given(self, published: design.Published, log_density: np.ndarray | float = 0.0) -> Weighted:
        """Return the exact posterior given sums of logarithms, and what else has a log density."""
        logs = self.data.logs[:, design.THRESHOLDS.index(published.threshold)]
        return weighed(self.log_alpha, self.log_ratio + log_density + _laplace(published, logs))

    def given_shares(self, value: np.ndarray, scale: float) -> Weighted:
        """Return the exact posterior given sums of the shares themselves."""
        misfit = np.abs(self.data.shares - value).sum(axis=1) / scale
        return weighed(self.log_alpha, self.log_ratio - misfit)

    def of_counts(self, noisy: np.ndarray, scale: float) -> np.ndarray:
        """Return the log density of noisy counts, up to a constant."""
        return np.asarray(-np.abs(self.data.counts - noisy).sum(axis=1) / scale)


def bank(rng: np.random.Generator, mixture: Mixture, size: int, draws: int) -> Bank:
    """Simulate a database for each draw of a mixture."""
    log_alpha = mixture.draw(rng, draws)
    data = design.databases(rng, np.exp(log_alpha), size)
    return Bank(log_alpha, log_prior(log_alpha) - mixture.log_density(log_alpha), data, size)


def together(mixtures: list[Mixture]) -> Mixture:
    """Return a mixture of mixtures, each as likely."""
    weights = np.concatenate([mixture.weights for mixture in mixtures]) / len(mixtures)
    return Mixture(weights, [law for mixture in mixtures for law in mixture.laws])
