"""Effective draws of chains of compositions, in all cells of alpha, size and epsilon.

    python -m benchmarks.compositions [--draws 400 250] [--docs]

The cells are those of the simulation study of Guo, Barrientos and Peña, with their prior, their
noise and the threshold that is best for each alpha. Means of log alpha are compared with importance
sampling over fresh databases, which uses nothing of the library's samplers, where that has enough
draws, and with `importance_sample` where it has not.
"""

from __future__ import annotations

import argparse
import time
from typing import Any, NamedTuple

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
# Four thousand effective draws, to compare closely; and where r_hat can be 1.01 by chance.
LONGER = {(3, 1000, 0.25): 1300, (4, 5000, 0.25): 800}
PAGE = ROOT / "docs" / "performance.md"


def model_of(alpha: int, size: int, epsilon: float) -> tuple[pm.Model, design.Published]:
    """Publish a database, and write the paper's model of it."""
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
    return model, design.Published(released, scale, threshold, size)


def cell(
    rng: np.random.Generator,
    alpha: int,
    size: int,
    epsilon: float,
    draws: int,
    tune: int,
    weighed: int,
) -> dict[str, Any]:
    """Publish, fit, and compare with importance sampling."""
    model, published = model_of(alpha, size, epsilon)
    began = time.process_time()
    result = pmp.sample(draws, tune=tune, chains=4, model=model, random_seed=rng, **QUIET)
    seconds = time.process_time() - began
    values = np.log(result["posterior"]["alpha"].values)
    effective = [array_stats.ess(v, chain_axis=0, draw_axis=1) for v in np.moveaxis(values, -1, 0)]
    hats = [array_stats.rhat(v, chain_axis=0, draw_axis=1) for v in np.moveaxis(values, -1, 0)]
    reference = _reference(rng, model, published, weighed)
    errors = np.hypot(values.std(axis=(0, 1)) / np.sqrt(effective), reference.error)
    apart = np.abs(values.mean(axis=(0, 1)) - reference.mean) / errors
    return {
        "threshold": published.threshold,
        "per_draw": min(effective) / values[..., 0].size,
        "r_hat": max(hats),
        "seconds_in_all": seconds,
        "log_mean": values.mean(axis=(0, 1)),
        "reference": reference.mean,
        "reference_is": reference.name,
        "reference_effective": reference.effective,
        "z": float(apart.max()),
    }


class Reference(NamedTuple):
    """Means of log alpha by importance sampling, and their errors."""

    name: str
    mean: np.ndarray
    error: np.ndarray
    effective: float


def _reference(
    rng: np.random.Generator, model: pm.Model, published: design.Published, weighed: int
) -> Reference:
    """Weigh fresh databases, or, if asked to, draw by the library where these seldom hit."""
    fresh = adapted(rng, published, draws=6000 if published.size == 1000 else 2000)
    if fresh.effective >= ENOUGH or not weighed:
        return Reference("fresh", fresh.log_mean, fresh.log_error, fresh.effective)
    seed = int(rng.integers(2**31))
    drawn = pmp.importance_sample(weighed, model=model, random_seed=seed, progressbar=False)
    logs = np.log(drawn["posterior"]["alpha"].values[0])
    effective = float(drawn.attrs["effective_draws"])
    return Reference("library", logs.mean(0), logs.std(0) / np.sqrt(effective), effective)


def study(options: argparse.Namespace) -> pmp.Study:
    """Return the study: one release of each cell."""
    grid = [
        {"alpha": alpha, "size": size, "epsilon": epsilon, "draws": draws, "tune": draws}
        | {"weighed": weighed}
        for size, usual, weighed in zip(design.SIZES, options.draws, options.weighed, strict=True)
        for epsilon in design.EPSILONS
        for alpha in design.ALPHAS
        for draws in [LONGER.get((alpha, size, epsilon), usual)]
    ]
    path = options.output / "compositions.jsonl"
    return pmp.Study(cell, grid, replicates=options.replicates, seed=options.seed, path=path)


def table(rows: list[Row], options: argparse.Namespace) -> str:
    """Lay out effective draws per draw, r_hat, and the distance from importance sampling."""
    good = [row for row in rows if row["error"] is None]
    lines = []
    for row in good:
        known = row["reference_effective"] >= ENOUGH
        by = "" if row.get("reference_is", "fresh") == "fresh" else "*"
        lines.append(
            [
                f"{design.ALPHAS[row['alpha']]}",
                row["size"],
                f"{row['epsilon']:g}",
                f"{row['threshold']:g}",
                4 * row["draws"],
                f"{row['per_draw']:.2f}",
                f"{row['r_hat']:.3f}",
                f"{row['z']:.1f}{by}" if known else "-",
            ]
        )
    header = ["alpha", "n", "epsilon", "threshold", "draws"]
    header += ["effective per draw", "r_hat", "errors apart"]
    few = sum(row["per_draw"] < 0.3 for row in good)
    unmixed = sum(row["r_hat"] >= 1.01 for row in good)
    compared = [row["z"] for row in good if row["reference_effective"] >= ENOUGH]
    caption = (
        f"Four chains in each of {len(good)} cells, after as many draws for tuning; the worst "
        "parameter. The last column is how many Monte Carlo errors "
        "means of log alpha are from those by importance sampling: over fresh databases, or, where "
        f"that has less than {ENOUGH} effective draws, by `importance_sample` (*); a dash where "
        f"neither has as many, or only the first was run.{remarks(rows)}"
    )
    verdict = (
        f"**{len(good) - few} of {len(good)} cells** have 0.3 effective draws per draw or more, "
        f"{len(good) - unmixed} an r_hat below 1.01. In the {len(compared)} cells that can be "
        f"compared, means are at most {max(compared, default=0):.1f} errors apart."
    )
    left = len(study(options).settings) - len(rows)
    if left:
        verdict += f" {left} more cells of the study have not been run."
    return "\n\n".join([caption, markdown(header, lines), verdict])


if __name__ == "__main__":
    command(
        __doc__.splitlines()[0],
        study,
        table,
        "compositions",
        replicates=1,
        page=PAGE,
        draws=(400, 250),
        weighed=(2000, 0),
    )
