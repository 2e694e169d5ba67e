"""The log-linear model of Ju et al., section 4, sampled by their Algorithm 1.

Each record has a class and five features of three levels; what is released is the number of
records of each (feature, class, level), 75 counts, with Laplace noise of scale 2 K / epsilon. The
records move by the library's own record sweep; given the records the parameters have Dirichlet
laws, which are drawn exactly, as in the paper. Written out here without PyMC, because a table needs
hundreds of chains of one and the same small model.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import njit

import pymc_privacy as pmp
from benchmarks.papers.inputs import CLASSES, FEATURES, LEVELS, RECORDS, naive_bayes
from pymc_privacy.algorithms import record_sweep
from pymc_privacy.algorithms.noise import noise

SHAPE = (FEATURES, CLASSES, LEVELS)
PRIOR = 2.0  # of every Dirichlet law


class Chain(NamedTuple):
    """Draws of the class probabilities, and acceptance of each sweep."""

    p: np.ndarray
    accept: np.ndarray
    accept_min: np.ndarray


def mechanism(epsilon: float) -> pmp.Laplace:
    """Return the noise: replacing a record moves one count down and one up for each feature."""
    return pmp.Laplace(epsilon=epsilon, sensitivity=2.0 * FEATURES, neighbours="replace_one")


@njit
def draw_contributions(
    rng: np.random.Generator, p: np.ndarray, tables: np.ndarray, size: int
) -> np.ndarray:
    """Draw records from the model, and return what each adds to the counts: (75, size)."""
    features, classes, levels = tables.shape
    contributions = np.zeros((features * classes * levels, size))
    for record in range(size):
        group = _draw(rng.random(), p)
        for feature in range(features):
            level = _draw(rng.random(), tables[feature, group])
            contributions[(feature * classes + group) * levels + level, record] = 1.0
    return contributions


@njit
def _draw(uniform: float, probabilities: np.ndarray) -> int:
    """Return the category that a uniform number falls into."""
    last = len(probabilities) - 1
    for category in range(last):
        uniform -= probabilities[category]
        if uniform < 0:
            return category
    return last


def draw_parameters(rng: np.random.Generator, counts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Draw class probabilities and tables given the counts of the records."""
    counts = counts.reshape(SHAPE)
    gammas = rng.standard_gamma(PRIOR + counts)
    p = rng.dirichlet(PRIOR + counts[0].sum(axis=-1))
    return p, gammas / gammas.sum(axis=-1, keepdims=True)


def sample(
    rng: np.random.Generator, released: np.ndarray, epsilon: float, *, draws: int, tune: int
) -> Chain:
    """Run Algorithm 1 from a start drawn from the prior."""
    law = mechanism(epsilon)
    releases = noise([type(law).formula], [released], [law.parameters])
    p, tables = draw_parameters(rng, np.zeros(SHAPE))
    state = record_sweep.init(draw_contributions(rng, p, tables, RECORDS))
    kept = Chain(np.empty((draws, CLASSES)), np.empty(draws), np.empty(draws))
    for step in range(-tune, draws):
        p, tables = draw_parameters(rng, state.contributions.sum(axis=1))
        proposed = draw_contributions(rng, p, tables, RECORDS)
        state, info = record_sweep.step(rng, state, proposed, noise=releases)
        if step >= 0:
            kept.p[step], kept.accept[step], kept.accept_min[step] = p, info.accept, info.accept_min
    return kept


def coverage(rng: np.random.Generator, epsilon: float, draws: int, tune: int) -> dict[str, Any]:
    """Simulate records, release their counts, fit, and see which true values are covered."""
    truth = naive_bayes()
    counts = draw_contributions(rng, truth.classes, truth.tables, RECORDS).sum(axis=1)
    released = mechanism(epsilon).simulate(rng, counts)
    chain = sample(rng, released, epsilon, draws=draws, tune=tune)
    low, high = np.quantile(chain.p, [0.05, 0.95], axis=0)
    return {
        "covered": (low <= truth.classes) & (truth.classes <= high),
        "mean": chain.p.mean(axis=0),
        "accept": chain.accept.mean(),
        "accept_min": chain.accept_min.min(),
    }
