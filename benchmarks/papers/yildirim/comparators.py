"""The published samplers, beside the posterior of the very answers that they were given.

    python -m benchmarks.papers.yildirim.comparators [--replicates 5] [--docs]

Each is run as published, but with noise of the stated scale and from draws of the prior; its
answers are then taken in by `pmp.online`, where the records are integrated out.
"""

from __future__ import annotations

import argparse
import math
import time
from typing import Any

import numpy as np

import pymc_privacy as pmp
from benchmarks.papers.pages import Row, command, grouped, markdown, remarks
from benchmarks.papers.yildirim import latent
from benchmarks.papers.yildirim.streams import PRINTED, SIMULATED, model

METHODS = ("latent SMC, adaptive", "latent SMC, ±10 sd", "MCMC, ±10 sd")
LAST = 5  # the last fifth of the chain is averaged


def replicate(
    rng: np.random.Generator, method: str, epsilon: float, users: int, draws: int, steps: int
) -> dict[str, float]:
    """Return what a sampler found, what is exact, and the CPU time of both."""
    records = rng.normal(*SIMULATED, users)
    fixed = tuple(SIMULATED[0] + side * 10 * SIMULATED[1] for side in (-1, 1))
    began = time.process_time()
    if method.startswith("MCMC"):
        lower, upper = (np.full(users, end) for end in fixed)
        scale = (upper - lower) / epsilon
        releases = np.clip(records, lower, upper) + rng.laplace(scale=scale)
        kept = latent.averaged_acceptance(rng, releases, *fixed, scale[0], steps)
        found = kept[-(steps // LAST) :]
    else:
        adaptive = method.endswith("adaptive")
        cloud, ends, releases = _stream(rng, records, epsilon, draws, None if adaptive else fixed)
        lower, upper = ends
        found = np.column_stack([cloud.mu, cloud.variance])
    seconds = time.process_time() - began
    queries = [
        pmp.ClippedQuery(lower=low, upper=high, epsilon=epsilon)
        for low, high in zip(lower, upper, strict=True)
    ]
    made, began = model(), time.process_time()
    exact = pmp.online(made["x"], epsilon=epsilon, draws=1000, random_seed=1, model=made)
    exact.update(queries, releases)
    posterior = exact.result().posterior
    mu, sigma = (posterior[name].values.ravel() for name in ("mu", "sigma"))
    root = np.sqrt(found[:, 1])
    return {
        "mu": float(found[:, 0].mean()),
        "sigma": float(root.mean()),
        "mu_off": float((found[:, 0].mean() - mu.mean()) / mu.std()),
        "sigma_off": float((root.mean() - sigma.mean()) / sigma.std()),
        "cpu": seconds,
        "exact_cpu": time.process_time() - began,
    }


def _stream(
    rng: np.random.Generator, records: np.ndarray, epsilon: float, draws: int, fixed: Any
) -> tuple[latent.Cloud, np.ndarray, np.ndarray]:
    """Ask users one by one, by the latent sampler's own particles."""
    users = len(records)
    cloud = latent.start(rng, draws, users)
    ends, releases = np.empty((2, users)), np.empty(users)
    scale = np.empty(users)
    for t, record in enumerate(records):
        i = int(rng.integers(draws))
        half = PRINTED[epsilon] * math.sqrt(cloud.variance[i])
        ends[:, t] = fixed or (cloud.mu[i] - half, cloud.mu[i] + half)
        scale[t] = (ends[1, t] - ends[0, t]) / epsilon
        releases[t] = np.clip(record, *ends[:, t]) + rng.laplace(scale=scale[t])
        latent.step(rng, cloud, t, releases, *ends, scale)
    return cloud, ends, releases


def study(options: argparse.Namespace) -> pmp.Study:
    """Return the study behind the table."""
    grid: dict[str, Any] = {
        "method": METHODS,
        "epsilon": options.epsilons,
        "users": [options.users],
        "draws": [options.draws],
        "steps": [options.steps],
    }
    return pmp.Study(
        replicate,
        grid,
        replicates=options.replicates,
        seed=options.seed,
        path=options.output / "yildirim_comparators.jsonl",
    )


def table(rows: list[Row], options: argparse.Namespace) -> str:
    """Lay out how far each sampler is from the posterior, and what it costs."""
    lines, worst = [], 0.0
    for epsilon, group in grouped(rows, "epsilon").items():
        for method, runs in grouped(group, "method").items():
            off = {k: [run[k] for run in runs] for k in ("mu_off", "sigma_off")}
            furthest = [max(np.abs(values)) for values in off.values()]
            worst = max(worst, *furthest)
            cost = [np.median([run[k] for run in runs]) for k in ("cpu", "exact_cpu")]
            lines.append(
                [
                    f"{method}, epsilon {epsilon:g}",
                    *(
                        f"{np.mean(values):.2f} ({max(np.abs(values)):.2f})"
                        for values in off.values()
                    ),
                    *(f"{one:.1f}" for one in cost),
                    len(runs),
                ]
            )
    header = ["sampler", "mu", "sigma", "its CPU s", "ours", "runs"]
    caption = (
        "Posterior mean of a published sampler minus the exact one of the same answers, in "
        "posterior standard deviations: the mean of the runs (the furthest). "
        f"{options.users} users, {options.draws} latent particles, {options.steps} steps of MCMC."
        f"{remarks(rows)}"
    )
    verdict = (
        f"The furthest of all is {worst:.1f} posterior standard deviations off. The latent "
        "samplers' cost for each release grows with the number of releases before it."
    )
    return "\n\n".join([caption, markdown(header, lines), verdict])


if __name__ == "__main__":
    command(
        __doc__.splitlines()[0],
        study,
        table,
        "yildirim comparators",
        replicates=5,
        epsilons=(1.0, 10.0),
        users=300,
        draws=300,
        steps=5000,
    )
