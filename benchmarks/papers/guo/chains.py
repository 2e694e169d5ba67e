"""The chains of the paper: DPMCMC, DPreMCMC with either ratio of the records, and DPapprox.

Given records (or sums), parameters move by univariate slice sampling on log alpha, in cycles.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba import njit

from benchmarks.papers.guo import design
from benchmarks.papers.guo.priors import GammaPrior, log_density


@njit
def _target(q, sums, size, prior):  # type: ignore[no-untyped-def]
    """Return the log density of log alpha given sums of logarithms of so many records."""
    total, whole = 0.0, 0.0
    for j in range(q.size):
        alpha = math.exp(q[j])
        whole += alpha
        total += alpha * sums[j] - size * math.lgamma(alpha)
    return total + size * math.lgamma(whole) + log_density(q, *prior)


@njit
def _slice(rng, q, sums, size, prior, cycles):  # type: ignore[no-untyped-def]
    """Move log alpha by slice sampling, coordinate by coordinate (Neal 2003)."""
    now = _target(q, sums, size, prior)
    for _ in range(cycles):
        for j in range(q.size):
            level, here = now - rng.standard_exponential(), q[j]
            low = here - rng.random()
            high = low + 1.0
            for _out in range(20):
                q[j] = low
                if _target(q, sums, size, prior) < level:
                    break
                low -= 1.0
            for _out in range(20):
                q[j] = high
                if _target(q, sums, size, prior) < level:
                    break
                high += 1.0
            while True:
                q[j] = low + (high - low) * rng.random()
                now = _target(q, sums, size, prior)
                if now >= level and abs(q[j]) < 8.9:
                    break
                if q[j] < here:
                    low = q[j]
                else:
                    high = q[j]


@njit
def _record(rng, alpha, out):  # type: ignore[no-untyped-def]
    """Draw logarithms of Dirichlet shares."""
    total = 0.0
    for j in range(alpha.size):
        out[j] = math.log(rng.standard_gamma(alpha[j] + 1.0))
        out[j] -= rng.standard_exponential() / alpha[j]
        total += math.exp(out[j])
    whole = math.log(total) if total > 0 else out.max()
    for j in range(alpha.size):
        out[j] -= whole


@njit
def _records_chain(  # type: ignore[no-untyped-def]
    rng, q, value, scale, edge, records, count, power, prior, cycles, kept
):
    """Alternate parameters given records, and records one by one (Ju et al., equation 5).

    Each record counts `count` times in the likelihood of the parameters. With `power` its ratio has
    the likelihood to the power of count - 1, which that asks for; without, it is that of Ju et al.
    """
    n, d = records.shape
    fresh, totals, sums = np.empty(d), np.zeros(d), np.empty(d)
    for it in range(len(kept)):
        sums[:] = 0.0
        for i in range(n):
            for j in range(d):
                sums[j] += count * records[i, j]
        _slice(rng, q, sums, n * count, prior, cycles)
        alpha = np.exp(q)
        totals[:] = 0.0
        for i in range(n):
            for j in range(d):
                totals[j] += count * max(records[i, j], edge)
        for i in range(n):
            _record(rng, alpha, fresh)
            ratio = 0.0
            for j in range(d):
                moved = count * (max(fresh[j], edge) - max(records[i, j], edge))
                ratio += abs(totals[j] - value[j]) - abs(totals[j] + moved - value[j])
            ratio /= scale
            if power:
                for j in range(d):
                    ratio += (count - 1) * (alpha[j] - 1) * (fresh[j] - records[i, j])
            if -rng.standard_exponential() < ratio:
                for j in range(d):
                    totals[j] += count * (max(fresh[j], edge) - max(records[i, j], edge))
                    records[i, j] = fresh[j]
        kept[it] = q


def _started(rng: np.random.Generator, prior: GammaPrior, records: int) -> tuple[Any, Any]:
    """Return parameters from the prior, within reason, and records that fit them."""
    alpha = np.clip(prior.draw(rng, 1)[0], 0.3, 50.0)
    return np.log(alpha), np.log(np.maximum(rng.dirichlet(alpha, records), 1e-12))


def _parts(prior: GammaPrior) -> tuple[np.ndarray, ...]:
    return prior.shape, prior.rate, prior.scores, prior.coupling


def dpmcmc(
    rng: np.random.Generator,
    published: design.Published,
    prior: GammaPrior,
    *,
    draws: int,
    burn: int,
    cycles: int = 30,
) -> np.ndarray:
    """Return alpha by the chain of the paper, whose target is the exact posterior."""
    return dpremcmc(
        rng,
        published,
        prior,
        pseudo=published.size,
        draws=draws,
        burn=burn,
        cycles=cycles,
        corrected=False,
    )


def dpremcmc(
    rng: np.random.Generator,
    published: design.Published,
    prior: GammaPrior,
    *,
    pseudo: int,
    draws: int,
    burn: int,
    cycles: int = 30,
    corrected: bool,
) -> np.ndarray:
    """Return alpha by the chain with few pseudo-records, each of which counts n / pseudo times.

    `corrected` gives their ratio the power that equation (5) of the paper asks for; otherwise it is
    that of Ju et al., which leaves something else invariant.
    """
    q, records = _started(rng, prior, pseudo)
    kept = np.empty((draws + burn, len(q)))
    _records_chain(
        rng,
        q,
        np.asarray(published.value, dtype=np.float64),
        published.scale,
        math.log(published.threshold),
        records,
        published.size / pseudo,
        corrected,
        _parts(prior),
        cycles,
        kept,
    )
    return np.exp(kept[burn:])


@njit
def _digamma(x):  # type: ignore[no-untyped-def]
    """Return psi and its derivative, by recurrence and asymptotic series."""
    first, second = 0.0, 0.0
    while x < 12.0:
        first -= 1 / x
        second += 1 / (x * x)
        x += 1.0
    v = 1 / (x * x)
    first += math.log(x) - 0.5 / x - v * (1 / 12 - v * (1 / 120 - v / 252))
    second += 1 / x + 0.5 * v + v / x * (1 / 6 - v * (1 / 30 - v * (1 / 42 - v / 30)))
    return first, second


@njit
def _approximate_chain(rng, q, value, scale, size, prior, cycles, kept):  # type: ignore[no-untyped-def]
    d = q.size
    spread, sums = np.full(d, 2 * scale * scale), value.copy()
    mean, cov = np.empty(d), np.empty((d, d))
    for it in range(len(kept)):
        alpha = np.exp(q)
        whole = _digamma(alpha.sum())
        for j in range(d):
            own = _digamma(alpha[j])
            mean[j] = size * (own[0] - whole[0])
            for k in range(d):
                cov[j, k] = -size * whole[1]
            cov[j, j] += size * own[1]
        precision = np.linalg.inv(cov)
        # S | alpha, spread: the Normal law of the sums times Normal noise of these variances.
        joined = np.linalg.inv(precision + np.diag(1 / spread))
        joined = (joined + joined.T) / 2
        middle = joined @ (precision @ mean + value / spread)
        sums = middle + np.linalg.cholesky(joined) @ rng.standard_normal(d)
        for j in range(d):
            if sums[j] >= 0:  # no records have such
                sums[j] = -1e-3
            # 1 / spread is inverse Gaussian (Park and Casella 2008).
            spread[j] = 1 / rng.wald(1 / (scale * max(abs(value[j] - sums[j]), 1e-9)), scale**-2)
        _slice(rng, q, sums, size, prior, cycles)
        kept[it] = q


def dpapprox(
    rng: np.random.Generator,
    published: design.Published,
    prior: GammaPrior,
    *,
    draws: int,
    burn: int,
    cycles: int = 30,
) -> np.ndarray:
    """Return alpha by the chain of Bernstein and Sheldon (2018), with a Normal law of the sums.

    Its two conditionals, of sums given alpha by the Normal law and of alpha given sums by the
    Dirichlet one, belong to no joint law; and censoring is left out.
    """
    q, _ = _started(rng, prior, 1)
    kept = np.empty((draws + burn, len(q)))
    _approximate_chain(
        rng,
        q,
        np.asarray(published.value, dtype=np.float64),
        published.scale,
        float(published.size),
        _parts(prior),
        cycles,
        kept,
    )
    return np.exp(kept[burn:])


def mcmc(
    rng: np.random.Generator, sums: np.ndarray, size: int, prior: GammaPrior, *, draws: int
) -> np.ndarray:
    """Return alpha given the records themselves (not private): MCMC_p1 of the paper."""
    alpha = np.clip(prior.draw(rng, 1)[0], 0.3, 50.0)
    kept, q = np.empty((draws, len(alpha))), np.log(alpha)
    for k in range(-20, draws):
        _slice(rng, q, np.asarray(sums, dtype=np.float64), float(size), _parts(prior), 20)
        kept[max(k, 0)] = q
    return np.exp(kept)
