"""The paper's simulated experiment: 1000 users of N(50, 10), who are asked in several ways.

    python -m benchmarks.papers.yildirim.simulated [--replicates 30] [--docs]

An interrupted run goes on where it stopped.
"""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np

import pymc_privacy as pmp
from benchmarks.papers.pages import Row, command, grouped, markdown, remarks
from benchmarks.papers.yildirim.streams import SIMULATED, learn

EPSILONS = (1.0, 2.0, 5.0, 10.0)
METHODS = ("printed interval", "exact interval", "bins for mu", "bins for both", "fixed ±10 sd")


def replicate(
    rng: np.random.Generator, epsilon: float, method: str, users: int, draws: int
) -> dict[str, float]:
    """Return what one stream learns."""
    return learn(rng, method, epsilon, SIMULATED, users=users, draws=draws)


def study(options: argparse.Namespace) -> pmp.Study:
    """Return the study behind the table."""
    grid: dict[str, Any] = {
        "epsilon": options.epsilons,
        "method": METHODS,
        "users": [options.users],
        "draws": [options.draws],
    }
    return pmp.Study(
        replicate,
        grid,
        replicates=options.replicates,
        seed=options.seed,
        path=options.output / "yildirim_simulated.jsonl",
    )


def rmse(values: Any, truth: float) -> float:
    """Return the root of the mean squared error."""
    return float(np.sqrt(np.mean((np.asarray(values) - truth) ** 2)))


def table(rows: list[Row], options: argparse.Namespace) -> str:
    """Lay out errors and posterior standard deviations of each way to ask."""
    lines, ratios = [], []
    replicates = 0
    for epsilon, group in grouped(rows, "epsilon").items():
        by_method = grouped(group, "method")
        cells, spreads = [], {}
        for method in METHODS:
            runs = by_method.get(method, [])
            replicates = max(replicates, len(runs))
            if not runs:
                cells.append("")
                continue
            spreads[method] = np.mean([run["mu_sd"] for run in runs])
            error = rmse([run["mu"] for run in runs], SIMULATED[0])
            other = rmse([run["sigma"] for run in runs], SIMULATED[1])
            spread = np.mean([run["sigma_sd"] for run in runs])
            cells.append(f"{error:.2f} ({spreads[method]:.2f}); {other:.2f} ({spread:.2f})")
        lines.append([f"{epsilon:g}", *cells])
        if {"exact interval", "fixed ±10 sd"} <= spreads.keys():
            ratios.append((epsilon, spreads["fixed ±10 sd"] / spreads["exact interval"]))
    caption = (
        "Root mean squared error of the posterior mean (mean posterior sd) of mu; of sigma. "
        f"{replicates} streams of {options.users} users for each cell, {options.draws} particles."
        f"{remarks(rows)}"
    )
    worst = min((ratio for _, ratio in ratios), default=np.nan)
    shown = ", ".join(f"{ratio:.1f} at epsilon {epsilon:g}" for epsilon, ratio in ratios)
    verdict = (
        f"**{'Agrees' if worst > 1.5 else 'Differs'}** with the paper's claim that adaptive "
        "intervals beat a fixed one, which its figures show and no number states: the posterior sd "
        f"of mu under the fixed interval is that under the exact one times {shown}."
    )
    return "\n\n".join([caption, markdown(["epsilon", *METHODS], lines), verdict])


if __name__ == "__main__":
    command(
        __doc__.splitlines()[0],
        study,
        table,
        "yildirim simulated",
        replicates=30,
        epsilons=EPSILONS,
        users=1000,
        draws=500,
    )
