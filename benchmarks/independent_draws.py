"""Effective draws for a CPU second: independent draws beside chains of the same compositions.

    python -m benchmarks.independent_draws [--docs]

Both are compiled first, and seconds are CPU seconds of everything after that: a chain's with its
tuning, `importance_sample`'s with its search and its pilots; and of the draws alone.
"""

from __future__ import annotations

import argparse
import time
import warnings
from typing import Any

import numpy as np
import pymc as pm

import pymc_privacy as pmp
from benchmarks.compositions import PAGE, model_of
from benchmarks.measuring import effective, figures, timed_draws
from benchmarks.papers.guo import design
from benchmarks.papers.pages import Row, command, markdown, remarks
from pymc_privacy.errors import WeightWarning

CELLS = (
    *((3, 1000, 0.25), (3, 1000, 1.5), (3, 1000, 10.0), (1, 1000, 1.5), (5, 1000, 0.5)),
    *((2, 1000, 0.25), (3, 5000, 1.5)),
)
WORTH = 3.0


def cell(
    rng: np.random.Generator, alpha: int, size: int, epsilon: float, draws: int, chain_draws: int
) -> dict[str, Any]:
    """Draw both ways from one posterior."""
    model, _ = model_of(alpha, size, epsilon)
    seeds = rng.integers(2**31, size=3).tolist()
    with model:
        step = pmp.Interweave()
        options = {"step": step, "chains": 4, "random_seed": seeds[0]}
        began = time.process_time()
        posterior, alone = timed_draws(chain_draws, tune=chain_draws, **options)
        whole = time.process_time() - began
    chain = np.log(posterior["alpha"].values)
    worth = [effective(values) for values in np.moveaxis(chain, -1, 0)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", WeightWarning)
        # The first call compiles; of two more the difference is that of the draws alone.
        (_, _), (weighed, seconds), (more, longer) = (
            _weighed(model, number, seeds[1]) for number in (10, draws, 3 * draws)
        )
    logs = np.log(more["posterior"]["alpha"].values[0])
    found, found_more = (result.attrs["effective_proposals"] for result in (weighed, more))
    errors = np.hypot(
        chain.std(axis=(0, 1)) / np.sqrt(worth),
        logs.std(axis=0) / np.sqrt(more.attrs["effective_draws"]),
    )
    apart = np.abs(chain.mean(axis=(0, 1)) - logs.mean(axis=0)) / errors
    return {
        "chain_whole": min(worth) / whole,
        "chain_alone": min(worth) / alone,
        "independent_whole": found / seconds,
        "independent_alone": (found_more - found) / (longer - seconds),
        "per_proposal": found_more / more.attrs["proposals"],
        "pareto_k": more.attrs["pareto_k"],
        "z": float(apart.max()),
    }


def _weighed(model: pm.Model, draws: int, seed: int) -> tuple[Any, float]:
    """Draw independently; return also the CPU seconds of it."""
    began = time.process_time()
    result = pmp.importance_sample(draws, model=model, random_seed=seed, progressbar=False)
    return result, time.process_time() - began


def study(options: argparse.Namespace) -> pmp.Study:
    """Return the study: one release of each cell."""
    grid = [
        {"alpha": alpha, "size": size, "epsilon": epsilon, "draws": options.draws}
        | {"chain_draws": options.chain_draws}
        for alpha, size, epsilon in CELLS
    ]
    path = options.output / "independent_draws.jsonl"
    return pmp.Study(cell, grid, replicates=options.replicates, seed=options.seed, path=path)


def table(rows: list[Row], options: argparse.Namespace) -> str:
    """Lay out rates, and their ratios."""
    good = [row for row in rows if row["error"] is None]
    lines, ratios = [], []
    for row in good:
        ratio = [row[f"independent_{of}"] / row[f"chain_{of}"] for of in ("whole", "alone")]
        ratios.append(ratio)
        lines.append(
            [
                f"{design.ALPHAS[row['alpha']]}",
                row["size"],
                f"{row['epsilon']:g}",
                *(
                    f"{figures(row[f'{how}_whole'], 2)} ({figures(row[f'{how}_alone'], 2)})"
                    for how in ("chain", "independent")
                ),
                f"{ratio[0]:.1f} ({ratio[1]:.1f})",
                f"{row['per_proposal']:.2f}",
                f"{row['pareto_k']:.2f}",
                f"{row['z']:.1f}",
            ]
        )
    header = [
        *("alpha", "n", "epsilon", "chains", "independent", "ratio", "effective per proposal"),
        *("Pareto k", "errors apart"),
    ]
    caption = (
        f"Effective draws for a CPU second, all of it after compilation: four chains of "
        f"{options.chain_draws} draws after as many for tuning, and {options.draws} independent "
        "draws with their search and their pilots; in brackets those of the draws alone. The last "
        f"column is how many Monte Carlo errors means of log alpha are apart.{remarks(rows)}"
    )
    enough = [sum(ratio[k] >= WORTH for ratio in ratios) for k in range(2)]
    verdict = (
        f"**{enough[0]} of {len(good)} cells** have {WORTH:g} times the chain's effective draws "
        f"for a CPU second or more, counting everything, and {enough[1]} counting the draws alone."
    )
    return "\n\n".join([caption, markdown(header, lines), verdict])


if __name__ == "__main__":
    command(
        __doc__.splitlines()[0],
        study,
        table,
        "independent draws",
        replicates=1,
        page=PAGE,
        draws=4000,
        chain_draws=400,
    )
