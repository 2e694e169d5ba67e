"""Methods that the paper compares with and that this package does not offer, as we read them.

Written from the papers' texts, not from their code; seedable, for simulation alone.

* SYMQ (Du et al. 2020): two private quantiles of Normal records give mean and deviation; the
  interval is that of a parametric bootstrap of the same estimator.
* Deconvolution (Wang, Cheng and Awan 2022): many private bootstrap estimates with Gaussian noise,
  mu-GDP together, of which the noise is taken off by Efron's log-linear densities.
* Bag of little bootstraps (Chadha, Duchi and Kuditipudi 2024): each part of the records makes its
  own bootstrap; the width at which most parts have enough of theirs inside is found by a sparse
  vector, about a noisy mean.
* Repro samples (Awan and Wang 2025): `pymc_privacy.repro_set`, on two noisy moments.
"""

from __future__ import annotations

import math

import numpy as np
from scipy import optimize, stats

from benchmarks.papers.liu.gaussian import PROB, Ends, released
from pymc_privacy.sanitize import NormalMean, NormalVariance, repro_set

TAIL = (1 - PROB) / 2
_LOWER = 0.35  # of the two symmetric quantiles of SYMQ
BOOTSTRAPS = 500
DECONVOLVED = 2000


# ---------------------------------------------------------------- SYMQ


def noisy_quantile(
    rng: np.random.Generator, ordered: np.ndarray, q: float, bounds: Ends, epsilon: float
) -> float:
    """Draw a quantile by the exponential mechanism: one record moves a rank by one."""
    edges = np.concatenate([bounds[:1], np.clip(ordered, *bounds), bounds[1:]])
    ranks = np.arange(len(edges) - 1)
    weights = np.diff(edges) * np.exp(-epsilon / 2 * np.abs(ranks - q * len(ordered)))
    gap = np.searchsorted(np.cumsum(weights), rng.random() * weights.sum())
    gap = min(int(gap), len(weights) - 1)
    return float(rng.uniform(edges[gap], edges[gap + 1]))


def _two_quantiles(
    rng: np.random.Generator, records: np.ndarray, bounds: Ends, epsilon: float
) -> tuple[float, float]:
    ordered = np.sort(records)
    low, high = (noisy_quantile(rng, ordered, q, bounds, epsilon / 2) for q in (_LOWER, 1 - _LOWER))
    # One of either side of the middle; where noise exchanges them the deviation is hardly zero.
    deviation = max(abs(high - low) / (2 * stats.norm.ppf(1 - _LOWER)), 1e-3)
    return (low + high) / 2, deviation


def symq(rng: np.random.Generator, records: np.ndarray, bounds: Ends, epsilon: float) -> Ends:
    """Return mean ± the bootstrap's 95% distance from it."""
    mean, deviation = _two_quantiles(rng, records, bounds, epsilon)
    means = [
        _two_quantiles(rng, rng.normal(mean, deviation, len(records)), bounds, epsilon)[0]
        for _ in range(BOOTSTRAPS)
    ]
    reach = float(np.quantile(np.abs(np.array(means) - mean), PROB))
    return mean - reach, mean + reach


# ---------------------------------------------------------------- deconvolution


def deconvolution(
    rng: np.random.Generator, records: np.ndarray, family: NormalMean | NormalVariance, mu: float
) -> Ends:
    """Return quantiles of bootstrap estimates after their noise has been taken off.

    The mean moves by the range over n with one record, the variance by its square over n. B
    estimates are mu-GDP together when each has noise of sqrt((2 - 2/e) B) times that over mu.
    """
    low, high = family.bounds
    x, size = np.clip(records, low, high), len(records)
    range_ = (high - low) if isinstance(family, NormalMean) else (high - low) ** 2
    sigma = range_ / size * math.sqrt((2 - 2 / math.e) * DECONVOLVED) / mu
    estimates = np.empty(DECONVOLVED)
    together = max(1, 10**6 // size)  # to spare memory
    for first in range(0, DECONVOLVED, together):
        block = estimates[first : first + together]
        picked = x[rng.integers(size, size=(len(block), size))]
        is_mean = isinstance(family, NormalMean)
        block[:] = picked.mean(axis=1) if is_mean else picked.var(axis=1, ddof=1)
    noisy = estimates + rng.normal(0, sigma, DECONVOLVED)
    grid = np.linspace(*family.support, 400) if sigma > range_ / 50 else _grid(noisy, family)
    density = deconvolved(noisy, sigma, grid)
    cumulated = np.cumsum(density)
    ends = np.interp([TAIL, 1 - TAIL], cumulated, grid)
    return float(ends[0]), float(ends[1])


def _grid(noisy: np.ndarray, family: NormalMean | NormalVariance) -> np.ndarray:
    low, high = family.support
    reach = 3 * noisy.std()
    return np.linspace(max(low, noisy.mean() - reach), min(high, noisy.mean() + reach), 400)


def deconvolved(noisy: np.ndarray, sigma: float, grid: np.ndarray) -> np.ndarray:
    """Return probabilities on a grid that explain noisy numbers: log density quadratic to quintic.

    Efron (2016): maximum of the likelihood of exp(Q a), Q orthonormal polynomials of degree 5, less
    the length of a.
    """
    unit = np.linspace(-1, 1, len(grid))
    basis, _ = np.linalg.qr(np.vander(unit, 6, increasing=True))
    basis = basis[:, 1:] * math.sqrt(len(grid))
    edges = np.linspace(noisy.min(), noisy.max(), 101)
    counts, _ = np.histogram(noisy, edges)
    middles = (edges[1:] + edges[:-1]) / 2
    kernel = stats.norm.pdf(middles[:, None], grid[None, :], sigma)
    kernel /= max(kernel.max(), 1e-300)

    def cost(a: np.ndarray) -> tuple[float, np.ndarray]:
        log_g = basis @ a
        g = np.exp(log_g - log_g.max())
        g /= g.sum()
        mixed = kernel @ g + 1e-300
        share = counts / mixed
        slope = basis.T @ (g * (kernel.T @ share)) - counts.sum() * (basis.T @ g)
        length = math.sqrt(float(a @ a) + 1e-8)
        return -float(counts @ np.log(mixed)) + length, -slope + a / length

    found = optimize.minimize(cost, np.zeros(5), jac=True, method="L-BFGS-B")
    log_g = basis @ found.x
    g = np.exp(log_g - log_g.max())
    return g / g.sum()


# ---------------------------------------------------------------- bag of little bootstraps


def little_bootstraps(
    rng: np.random.Generator, records: np.ndarray, bounds: Ends, epsilon: float
) -> Ends | None:
    """Return a noisy mean ± the width at which half of the parts have 95% of theirs inside.

    None if the paper's number of parts is more than half the number of records.
    """
    size, half = len(records), epsilon / 2
    x = np.clip(records, *bounds)
    parts = math.floor(14 * math.log(size) / half)
    if parts < 1 or parts > size // 2:
        return None
    resamples = int(min(10_000, max(100, size**1.5 / (parts * math.log(size)))))
    roots = []
    for part in np.array_split(rng.permutation(x), parts):
        counts = rng.multinomial(size, np.full(len(part), 1 / len(part)), resamples)
        roots.append(np.abs(counts @ part / size - part.mean()))
    step = 3 / math.sqrt(size)
    furthest = math.ceil((bounds[1] - bounds[0]) / step)
    # The first width at which a part has enough inside; one record changes one part.
    enough = [math.ceil(float(np.quantile(r, PROB)) / step) for r in roots]
    reach = sparse_vector(rng, np.bincount(enough, minlength=furthest + 1), parts, half) * step
    centre = x.mean() + rng.laplace(0, (bounds[1] - bounds[0]) / size / half)
    return float(centre - reach), float(centre + reach)


def sparse_vector(rng: np.random.Generator, first: np.ndarray, parts: int, epsilon: float) -> int:
    """Return the first index by which half of the parts have enough, by AboveThreshold."""
    threshold = parts / 2 + rng.laplace(0, 2 / epsilon)
    noisy = np.cumsum(first) + rng.laplace(0, 4 / epsilon, len(first))
    above = np.flatnonzero(noisy >= threshold)
    return int(above[0]) if len(above) else len(first) - 1


# ---------------------------------------------------------------- repro samples


def repro(
    rng: np.random.Generator, records: np.ndarray, family: NormalMean | NormalVariance, mu: float
) -> Ends:
    """Return the projection of a confidence set of mean and deviation on one of the two.

    Simulated records are not clipped: at ±4 deviations that is one record of sixteen thousand.
    """
    size, half = len(records), family.half
    total = family.contributions(records).sum(axis=0)
    [one], sigma = released(rng, family, total, mu)

    def simulate(rng: np.random.Generator, parameter: np.ndarray, draws: int) -> np.ndarray:
        means = rng.normal(parameter[0], parameter[1] / math.sqrt(size), draws)
        about = parameter[1] ** 2 * rng.chisquare(size - 1, draws)
        sums = np.stack([size * means, about + size * means**2], axis=1)
        return sums + rng.normal(0, sigma, (draws, 2))

    means, deviations = _about(one, sigma, size)
    for _ in range(2):
        grid = np.array([(m, s) for m in means for s in deviations])
        found = repro_set(one, simulate, grid, prob=PROB, draws=200, rng=rng)
        if not found.accepted.any():
            return family.support
        means = np.linspace(*found.interval(0), 21)
        deviations = np.linspace(*found.interval(1), 21)
    if isinstance(family, NormalMean):
        low, high = found.interval(0)
        return family.middle + half * low, family.middle + half * high
    low, high = found.interval(1)
    return (half * low) ** 2, (half * high) ** 2


def _about(one: np.ndarray, sigma: float, size: int) -> tuple[np.ndarray, np.ndarray]:
    """Return means and deviations to try first: six standard errors about their estimates."""
    mean = float(np.clip(one[0] / size, -1, 1))
    variance = float(np.clip(one[1] / size - mean**2, 1e-3, 1))
    of_mean = math.sqrt(variance / size + (sigma / size) ** 2)
    of_variance = math.sqrt(2 * variance**2 / size + (1 + 4 * mean**2) * (sigma / size) ** 2)
    low, high = variance - 6 * of_variance, variance + 6 * of_variance
    ends = np.sqrt(np.clip([low, high], 1e-4, 1))
    means = np.linspace(max(-1, mean - 6 * of_mean), min(1, mean + 6 * of_mean), 21)
    return means, np.linspace(*ends, 21)
