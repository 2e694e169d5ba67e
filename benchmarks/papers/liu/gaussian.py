"""Intervals from a total with Gaussian noise: what the paper's figures under mu-GDP compare.

The families and their posteriors are those of the package, whose own intervals have Laplace noise.
The noise here is seedable: nothing is published.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from scipy import optimize, special, stats

from pymc_privacy.sanitize import Family, NormalMean, NormalVariance, Proportion, Rate, Slope
from pymc_privacy.sanitize.intervals import weighted_quantiles
from pymc_privacy.sanitize.methods import within_support

Ends = tuple[float, float]
PROB = 0.95


def mu_of(epsilon: float, delta: float) -> float:
    """Return the mu of Gaussian privacy that implies (epsilon, delta), as Lemma 1 of the paper.

    Examples
    --------
    >>> round(mu_of(8.0, 1 / 100), 2)
    2.45
    """

    def excess(mu: float) -> float:
        first = special.log_ndtr(-epsilon / mu + mu / 2)
        second = epsilon + special.log_ndtr(-epsilon / mu - mu / 2)
        return math.exp(first) - math.exp(second) - delta

    return float(optimize.brentq(excess, 1e-3, 1e3))


def l2_sensitivity(family: Family) -> float:
    """Return how far replacing one record moves the total, in Euclidean distance.

    For (v, v²) it is 2, from v = 1 to v = -1: d² (1 + (2 - d)²) is largest at d = 2, where d is the
    distance of the two. For the regression, two such pairs and a product that moves by 2 at most.
    """
    if isinstance(family, NormalMean | NormalVariance):
        return 2.0
    if isinstance(family, Slope):
        return math.sqrt(12.0)
    assert isinstance(family, Proportion | Rate)
    low, high = family.contribution_bounds
    return high - low


def released(
    rng: np.random.Generator, family: Family, total: np.ndarray, mu: float, count: int = 1
) -> tuple[np.ndarray, float]:
    """Return noisy totals, one row each, that are mu-GDP together, and the noise's deviation."""
    sigma = l2_sensitivity(family) * math.sqrt(count) / mu
    return total + rng.normal(0, sigma, (count, len(total))), sigma


def gaussian_ends(
    rng: np.random.Generator, family: Family, records: np.ndarray, mu: float, draws: int
) -> dict[str, Ends]:
    """Return the intervals of the methods that have an analogue with Gaussian noise."""
    size = len(records)
    total = family.contributions(records).reshape(size, -1).sum(axis=0).astype(float)
    [one], sigma = released(rng, family, total, mu)
    three, _ = released(rng, family, total, mu, 3)
    return {
        "noise-aware": noise_aware(rng, family, one, sigma, size, draws),
        "bootstrap": bootstrap(rng, family, one, sigma, size),
        "multiple": multiple(family, three, size),
    }


def noise_aware(
    rng: np.random.Generator, family: Family, one: np.ndarray, sigma: float, size: int, draws: int
) -> Ends:
    """Return posterior quantiles: totals are drawn about the release, and weighted by their prior.

    A total of whole numbers is drawn from the Normal law between its ends and rounded at random, so
    that each whole number has the weight that a sum over all of them gives it up to a factor.
    """
    bounds = np.atleast_2d(np.asarray(family.contribution_bounds, dtype=float)) * size
    if family.whole:
        reach = math.ceil(9 * sigma + 1)
        centre = float(np.clip(one[0], *bounds[0]))
        low, high = (int(np.clip(round(centre + s * reach), *bounds[0])) for s in (-1, 1))
        grid = np.arange(low, high + 1)
        log_p = -((grid - one[0]) ** 2) / (2 * sigma**2)
        p = np.exp(log_p - log_p.max())
        totals = rng.choice(grid, size=(draws, 1), p=p / p.sum()).astype(float)
    else:
        ends = [(bounds[:, k] - one) / sigma for k in (0, 1)]
        totals = one + sigma * stats.truncnorm.rvs(*ends, size=(draws, len(one)), random_state=rng)
    parameters, log_weights = family.posterior(rng, totals, size)
    if np.isfinite(log_weights).sum() < 20:
        return family.support
    tail = (1 - PROB) / 2
    low_end, high_end = weighted_quantiles(parameters, log_weights, (tail, 1 - tail))
    return within_support(family, low_end), within_support(family, high_end)


def bootstrap(
    rng: np.random.Generator, family: Family, one: np.ndarray, sigma: float, size: int
) -> Ends:
    """Return percentiles of estimates from simulated releases."""
    totals = family.resample(rng, one, size, 1000)
    estimates, _ = family.estimate(totals + rng.normal(0, sigma, totals.shape), size)
    low, high = np.quantile(estimates, [(1 - PROB) / 2, (1 + PROB) / 2])
    return within_support(family, float(low)), within_support(family, float(high))


def multiple(family: Family, totals: np.ndarray, size: int) -> Ends:
    """Return the combined interval of several releases, as multiple sanitization does."""
    count = len(totals)
    estimates, variances = family.estimate(totals, size)
    within, between = variances.mean(), estimates.var(ddof=1)
    freedom: Any = (count - 1) * (1 + count * within / between) ** 2
    reach = stats.t.ppf((1 + PROB) / 2, freedom) * np.sqrt(within + between / count)
    middle = float(estimates.mean())
    return within_support(family, middle - reach), within_support(family, middle + reach)
