"""Effective draws of chains of compositions, in all cells of alpha, size and epsilon.

    python -m benchmarks.compositions [--draws 300] [--docs]

The cells are those of the simulation study of Guo, Barrientos and Peña, with their prior, their
noise and the threshold that is best for each alpha. Means of log alpha are compared with importance
sampling over fresh databases, which uses nothing of the sampler, where that has enough draws.
"""

from __future__ import annotations

import argparse
import time
from typing import Any

import numpy as np
import pymc as pm
from arviz_stats.base import array_stats

import pymc_privacy as pmp
from benchmarks.measuring import QUIET
from benchmarks.papers.guo import design
from benchmarks.papers.guo.bank import adapted
from benchmarks.papers.inputs import ROOT
from benchmarks.papers.pages import Row, command, markdown, remarks

ENOUGH = 200
PAGE = ROOT / "docs" / "performance.md"


def cell(
    rng: np.random.Generator, alpha: int, size: int, epsilon: float, draws: int, tune: int
) -> dict[str, Any]:
    """Publish, fit, and compare with importance sampling."""
    truth = design.ALPHAS[alpha]
    threshold = design.best_threshold(truth)
    data = np.random.default_rng(0).dirichlet(truth, size)
    scale = design.paper_scale(len(truth), threshold, (1 - design.SELECTION) * epsilon)
    exact = pmp.log_shares(data, threshold).sum(axis=0)
    released = exact + np.random.default_rng(1).laplace(0, scale, len(truth))
    with pm.Model() as model:
        parameters = pm.Gamma("alpha", 1, design.RATE, shape=len(truth))
        x = pm.Dirichlet("x", parameters, shape=(size, len(truth)))
        logs = pmp.log_shares(x, threshold)
        pmp.Privatized("logs", logs, pmp.Laplace(scale=scale), observed=released)
    began = time.process_time()
    result = pmp.sample(draws, tune=tune, chains=4, model=model, random_seed=rng, **QUIET)
    seconds = time.process_time() - began
    values = np.log(result["posterior"]["alpha"].values)
    effective = [array_stats.ess(v, chain_axis=0, draw_axis=1) for v in np.moveaxis(values, -1, 0)]
    hats = [array_stats.rhat(v, chain_axis=0, draw_axis=1) for v in np.moveaxis(values, -1, 0)]
    published = design.Published(released, scale, threshold, size)
    reference = adapted(rng, published, draws=6000 if size == 1000 else 2000)
    errors = np.hypot(values.std(axis=(0, 1)) / np.sqrt(effective), reference.log_error)
    apart = np.abs(values.mean(axis=(0, 1)) - reference.log_mean) / errors
    return {
        "threshold": threshold,
        "per_draw": min(effective) / values[..., 0].size,
        "r_hat": max(hats),
        "seconds_in_all": seconds,
        "log_mean": values.mean(axis=(0, 1)),
        "reference": reference.log_mean,
        "reference_effective": reference.effective,
        "z": float(apart.max()),
    }


def study(options: argparse.Namespace) -> pmp.Study:
    """Return the study: one release of each cell."""
    grid = [
        {"alpha": alpha, "size": size, "epsilon": epsilon, "draws": options.draws}
        | {"tune": options.tune}
        for size in design.SIZES
        for epsilon in design.EPSILONS
        for alpha in design.ALPHAS
    ]
    path = options.output / "compositions.jsonl"
    return pmp.Study(cell, grid, replicates=options.replicates, seed=options.seed, path=path)


def table(rows: list[Row], options: argparse.Namespace) -> str:
    """Lay out effective draws per draw, r_hat, and the distance from importance sampling."""
    good = [row for row in rows if row["error"] is None]
    lines = []
    for row in good:
        known = row["reference_effective"] >= ENOUGH
        lines.append(
            [
                f"{design.ALPHAS[row['alpha']]}",
                row["size"],
                f"{row['epsilon']:g}",
                f"{row['threshold']:g}",
                f"{row['per_draw']:.2f}",
                f"{row['r_hat']:.3f}",
                f"{row['z']:.1f}" if known else "-",
            ]
        )
    header = ["alpha", "n", "epsilon", "threshold", "effective per draw", "r_hat", "errors apart"]
    few = sum(row["per_draw"] < 0.3 for row in good)
    unmixed = sum(row["r_hat"] >= 1.01 for row in good)
    compared = [row["z"] for row in good if row["reference_effective"] >= ENOUGH]
    caption = (
        f"Four chains of {options.draws} draws after {options.tune} in each of {len(good)} cells; "
        "the worst parameter. The last column is how many Monte Carlo errors means of log alpha "
        f"are from those by importance sampling, where that has {ENOUGH} effective draws or more."
        f"{remarks(rows)}"
    )
    verdict = (
        f"**{len(good) - few} of {len(good)} cells** have 0.3 effective draws per draw or more, "
        f"{len(good) - unmixed} an r_hat below 1.01. In the {len(compared)} cells that can be "
        f"compared, means are at most {max(compared, default=0):.1f} errors apart."
    )
    return "\n\n".join([caption, markdown(header, lines), verdict])


if __name__ == "__main__":
    command(
        __doc__.splitlines()[0],
        study,
        table,
        "compositions",
        replicates=1,
        page=PAGE,
        draws=300,
        tune=500,
    )
