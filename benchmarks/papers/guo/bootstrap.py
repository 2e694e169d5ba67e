"""DPBoots (Algorithm 2), as it is printed, and repaired.

As printed, noise is subtracted until exp of the means adds up to 1 at most, which the statistic
itself need not do where it is censored: at a threshold of 0.1 it may add up to more without any
noise, and hardly anything is accepted. Repaired, the bound is the one that censored means have,
1 + (d - 1) a, no mean is below log a, and the maximum of the likelihood knows of the censoring.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from benchmarks.papers.guo import design
from benchmarks.papers.guo.maximum import censored_fit, maximum_likelihood

_AT_MOST = 200_000  # tries


class Bootstrap(NamedTuple):
    """Draws of alpha, and the share of subtracted noise that was accepted."""

    alphas: np.ndarray
    accepted: float


def dpboots(
    rng: np.random.Generator,
    published: design.Published,
    draws: int = 1000,
    *,
    repaired: bool = False,
) -> Bootstrap | None:
    """Draw from the bootstrap; None where too little of the noise is accepted."""
    means, accepted = _without_noise(rng, published, draws, repaired=repaired)
    if len(means) < draws:
        return None
    fitted = censored_fit(means, published.threshold) if repaired else maximum_likelihood(means)
    made = design.databases(rng, fitted, published.size, (published.threshold,))
    if repaired:
        again = censored_fit(made.logs[:, 0] / published.size, published.threshold)
    else:
        again = maximum_likelihood(made.exact / published.size)
    return Bootstrap(again, accepted)


def _without_noise(
    rng: np.random.Generator, published: design.Published, draws: int, *, repaired: bool
) -> tuple[np.ndarray, float]:
    """Subtract noise from the published means, and keep what the statistic can be."""
    parts, a = len(published.value), published.threshold
    most = 1 + (parts - 1) * a if repaired else 1.0
    least = np.log(a) if repaired else -np.inf
    kept: list[np.ndarray] = []
    tried = 0
    while sum(map(len, kept)) < draws and tried < _AT_MOST:
        noise = rng.laplace(0, published.scale, (4 * draws, parts))
        means = (published.value - noise) / published.size
        fits = (np.exp(means).sum(axis=1) <= most) & (means >= least).all(axis=1)
        kept.append(means[fits & (means < 0).all(axis=1)])
        tried += len(means)
    found = np.concatenate(kept)
    return found[:draws], len(found) / tried


def boots(rng: np.random.Generator, exact: np.ndarray, size: int, draws: int = 1000) -> np.ndarray:
    """Draw from the parametric bootstrap of the records themselves (not private)."""
    fitted = np.repeat(maximum_likelihood(exact / size), draws, axis=0)
    return maximum_likelihood(design.databases(rng, fitted, size, ()).exact / size)
