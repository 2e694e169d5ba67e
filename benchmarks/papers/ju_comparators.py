"""Samplers that Ju et al. (2022) name, beside ours and the exact posterior.

    python -m benchmarks.papers.ju_comparators [--replicates 5] [--docs]

A hundred answers of yes or no, their number released with Laplace noise, and a flat prior of the
probability of yes:

- *exact ABC* (Gong 2022): parameters and records are drawn from the model and accepted with the
  density of the release, over its largest value. Independent and exact draws, few of them.
- *Bernstein and Sheldon* (2018): Gibbs moves of the sufficient statistic, whose law is taken to be
  Normal, with Laplace noise as Normal noise of exponential variance.
- *ours*: what `pmp.sample` does.
"""

from __future__ import annotations

import argparse
import time
from typing import Any

import numpy as np
import pymc as pm
from arviz_stats.base import array_stats
from scipy import special

import pymc_privacy as pmp
from benchmarks.papers.pages import Row, command, grouped, markdown, mean_and_error, remarks

SIZE = 100
TRUTH = 0.3
EPSILONS = (0.1, 1.0, 10.0)
METHODS = ("exact ABC", "Bernstein and Sheldon", "ours")


def exact(released: float, scale: float) -> tuple[float, float]:
    """Return posterior mean and standard deviation, by summing over the number of yes."""
    yes = np.arange(SIZE + 1)
    log_w = -abs(released - yes) / scale  # under a flat prior all numbers are as likely
    w = np.exp(log_w - special.logsumexp(log_w))
    a, b = 1.0 + yes, 1.0 + SIZE - yes
    mean = a / (a + b)
    second = mean * (a + 1) / (a + b + 1)
    first = float(w @ mean)
    return first, float(np.sqrt(w @ second - first**2))


def exact_abc(
    rng: np.random.Generator, released: float, scale: float, draws: int
) -> tuple[np.ndarray, float]:
    """Return accepted parameters, and the share of proposals that were accepted."""
    kept: list[np.ndarray] = []
    tried = found = 0
    while found < draws:
        p = rng.uniform(size=50_000)
        yes = rng.binomial(SIZE, p)
        # The density of the release is at most that at no noise.
        accepted = p[rng.uniform(size=len(p)) < np.exp(-abs(released - yes) / scale)]
        kept.append(accepted)
        tried, found = tried + len(p), found + len(accepted)
    return np.concatenate(kept), found / tried


def bernstein_sheldon(
    rng: np.random.Generator, released: float, scale: float, draws: int
) -> np.ndarray:
    """Return draws of the Gibbs sampler with a Normal law of the sufficient statistic."""
    p, variance = 0.5, 2 * scale**2
    found = np.empty(draws)
    for step in range(-1000, draws):
        own = SIZE * p * (1 - p)
        precision = 1 / own + 1 / variance
        mean = (SIZE * p / own + released / variance) / precision
        yes = float(np.clip(rng.normal(mean, precision**-0.5), 0, SIZE))
        p = float(np.clip(rng.beta(1 + yes, 1 + SIZE - yes), 1e-9, 1 - 1e-9))
        # Laplace noise is Normal of exponential variance, whose inverse is inverse Gaussian.
        distance = max(abs(released - yes), 1e-9)
        variance = 1 / rng.wald(1 / (scale * distance), 1 / scale**2)
        if step >= 0:
            found[step] = p
    return found


def ours(rng: np.random.Generator, released: float, scale: float, draws: int) -> np.ndarray:
    """Return draws of `pmp.sample`; all replicates share what is compiled."""
    with pm.Model():
        p = pm.Beta("p", 1, 1)
        x = pm.Bernoulli("x", p, shape=SIZE)
        pmp.Privatized("s", x, pmp.Laplace(scale=scale), observed=released)
        drawn = pmp.sample(
            draws, tune=500, chains=1, cores=1, random_seed=int(rng.integers(2**31)),
            quiet=True, progressbar=False, compute_convergence_checks=False,
        )  # fmt: skip
    return drawn.posterior["p"].values[0]


def compare(rng: np.random.Generator, epsilon: float, draws: int) -> dict[str, Any]:
    """Release a database once, and run all samplers on the release."""
    scale = 1 / epsilon
    released = float(rng.binomial(SIZE, TRUTH) + rng.laplace(scale=scale))
    mean, sd = exact(released, scale)
    row: dict[str, Any] = {}
    accepted = np.nan
    for method in METHODS:
        start = time.process_time()
        if method == "exact ABC":
            found, accepted = exact_abc(rng, released, scale, draws)
            effective = float(len(found))
        else:
            sampler = bernstein_sheldon if method.startswith("Bern") else ours
            found = sampler(rng, released, scale, draws)
            effective = float(array_stats.ess(found[None], chain_axis=0, draw_axis=1))
        row[method] = {
            "bias": (found.mean() - mean) / sd,
            "spread": found.std() / sd,
            "error": 1 / np.sqrt(effective),
            "rate": effective / (time.process_time() - start),
            "effective": effective / len(found),
        }
    return row | {"accepted": accepted}


def study(options: argparse.Namespace) -> pmp.Study:
    """Return the study behind the table."""
    return pmp.Study(
        compare,
        {"epsilon": options.epsilons, "draws": [options.draws]},
        replicates=options.replicates,
        seed=options.seed,
        path=options.output / "ju_comparators.jsonl",
    )


def table(rows: list[Row], options: argparse.Namespace) -> str:
    """Lay out bias and spread of every sampler, with errors, and its effective draws."""
    lines, furthest = [], dict.fromkeys(METHODS, 0.0)
    accepted = []
    for epsilon, group in grouped(rows, "epsilon").items():
        accepted.append(f"{np.mean([row['accepted'] for row in group]):.2g} at epsilon {epsilon:g}")
        for method in METHODS:
            own = [row[method] for row in group]
            bias, _ = mean_and_error([one["bias"] for one in own])
            # The bias of each release has the Monte Carlo error of its own draws.
            error = float(np.sqrt(np.mean([one["error"] ** 2 for one in own]) / len(own)))
            z = [abs(one["bias"]) / one["error"] for one in own]
            furthest[method] = max(furthest[method], *z)
            spread = np.mean([one["spread"] for one in own])
            lines.append(
                [
                    f"{epsilon:g}, {method}",
                    f"{bias:.3f} ± {error:.3f}",
                    f"{spread:.3f}",
                    f"{np.median([one['effective'] for one in own]):.2f}",
                    f"{np.median([one['rate'] for one in own]):.0f}",
                ]
            )
    header = [
        "epsilon, sampler",
        "bias, in posterior sd",
        "its sd over the exact one",
        "effective draws per draw",
        "effective draws per CPU second",
    ]
    caption = (
        f"Posterior mean of the probability of yes less the exact one, over "
        f"{max(map(len, grouped(rows, 'epsilon').values()))} releases of {SIZE} answers; at least "
        f"{options.draws} draws of each. CPU seconds include tuning and what is compiled, which is "
        f"kept from one release to the next.{remarks(rows)}"
    )
    count = sum(map(len, grouped(rows, "epsilon").values()))
    limit = 4.0  # of the largest of so many z-scores
    right = [method for method in METHODS if furthest[method] < limit]
    verdict = (
        f"**{'Agrees' if {'exact ABC', 'ours'} <= set(right) else 'Differs'}** with the exact "
        f"posterior. Over {count} fits each, no mean is further than {limit:g} Monte Carlo errors "
        f"from the exact one of: {', '.join(right) or 'none'}. The largest z-scores are "
        f"{', '.join(f'{furthest[m]:.1f} ({m})' for m in METHODS)}. Exact ABC accepts "
        f"{', '.join(accepted)}; that falls by a power with every further coordinate."
    )
    return "\n\n".join([caption, markdown(header, lines), verdict])


if __name__ == "__main__":
    command(
        __doc__.splitlines()[0],
        study,
        table,
        "ju comparators",
        replicates=10,
        epsilons=EPSILONS,
        draws=3000,
    )
