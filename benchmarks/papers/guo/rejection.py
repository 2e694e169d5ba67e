"""DPABC: the tenth of the simulated releases that are nearest to the published one."""

from __future__ import annotations

import numpy as np

from benchmarks.papers.guo import design

ACCEPTED = 0.1


def dpabc(rng: np.random.Generator, published: design.Published, alphas: np.ndarray) -> np.ndarray:
    """Return the tenth of draws from a prior whose releases are nearest, by Euclidean distance.

    Every draw simulates a database and noise; the tolerance is whatever lets a tenth pass.
    """
    made = design.databases(rng, np.clip(alphas, 1e-3, 1e4), published.size, (published.threshold,))
    noisy = made.logs[:, 0] + rng.laplace(0, published.scale, made.exact.shape)
    apart = ((noisy - published.value) ** 2).sum(axis=1)
    return alphas[np.argsort(apart)[: max(1, round(ACCEPTED * len(alphas)))]]
