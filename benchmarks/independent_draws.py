"""Effective draws for a CPU second: independent draws beside chains, in all cells of compositions.

    python -m benchmarks.independent_draws [--cells 2 1000 0.25 3 5000 1.5] [--docs]

Both are compiled first, and seconds are CPU seconds of everything after that: a chain's with its
tuning, `importance_sample`'s with its search, its pilots and its second look. Cells are alpha, size
and epsilon, in threes; those that are left out are those of `benchmarks.compositions`, all of them.
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
from benchmarks.measuring import effective, figures, timed_sample
from benchmarks.papers.guo import design
from benchmarks.papers.pages import Row, command, markdown, remarks
from pymc_privacy.algorithms import importance
from pymc_privacy.errors import WeightWarning
from pymc_privacy.inference.importance_sample import check_model
from pymc_privacy.inference.weighing import weighing_of

# Chains, draws of each after as many for tuning, and independent draws, by size.
DRAWS = {1000: (4, 400, 4000), 5000: (4, 250, 2000)}
WORTH = 3.0
CLOSE = 4.0  # errors between means that agree


def cell(
    rng: np.random.Generator,
    alpha: int,
    size: int,
    epsilon: float,
    chains: int,
    chain_draws: int,
    draws: int,
) -> dict[str, Any]:
    """Draw both ways from one posterior."""
    model, _ = model_of(alpha, size, epsilon)
    seeds = rng.integers(2**31, size=2).tolist()
    with model:
        step = pmp.Interweave()
        options = {"step": step, "chains": chains, "random_seed": seeds[0]}
        posterior, chain_seconds = timed_sample(chain_draws, tune=chain_draws, **options)
    chain = np.log(posterior["alpha"].values)
    worth = [effective(values) for values in np.moveaxis(chain, -1, 0)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", WeightWarning)
        with weighing_of(model, check_model(model)) as weighing:
            # What is compiled, by a draw too, is kept for the next call.
            landscape = weighing.landscape(seed=1)
            weighing.draw(rng, importance.first(landscape.prior, landscape), 1)
        weighed, seconds = _weighed(model, draws, seeds[1])
    logs = np.log(weighed["posterior"]["alpha"].values[0])
    errors = np.hypot(
        chain.std(axis=(0, 1)) / np.sqrt(worth),
        logs.std(axis=0) / np.sqrt(weighed.attrs["effective_draws"]),
    )
    apart = np.abs(chain.mean(axis=(0, 1)) - logs.mean(axis=0)) / errors
    return {
        "chain": min(worth) / chain_seconds,
        "independent": weighed.attrs["effective_proposals"] / seconds,
        "per_proposal": weighed.attrs["effective_proposals"] / weighed.attrs["proposals"],
        "pareto_k": weighed.attrs["pareto_k"],
        "z": float(apart.max()),
    }


def _weighed(model: pm.Model, draws: int, seed: int) -> tuple[Any, float]:
    """Draw independently; return also the CPU seconds of it."""
    began = time.process_time()
    result = pmp.importance_sample(draws, model=model, random_seed=seed, progressbar=False)
    return result, time.process_time() - began


def study(options: argparse.Namespace) -> pmp.Study:
    """Return the study: one release of each cell."""
    given = np.reshape(options.cells, (-1, 3)).tolist()
    cells = [(int(alpha), int(size), epsilon) for alpha, size, epsilon in given]
    names = ("alpha", "size", "epsilon", "chains", "chain_draws", "draws")
    grid = [dict(zip(names, (*one, *DRAWS[one[1]]), strict=True)) for one in cells]
    path = options.output / "independent_draws.jsonl"
    return pmp.Study(cell, grid, replicates=options.replicates, seed=options.seed, path=path)


def table(rows: list[Row], options: argparse.Namespace) -> str:
    """Lay out rates, their ratio, and how far means are apart."""
    good = [row for row in rows if row["error"] is None]
    good.sort(key=lambda row: (row["size"], row["epsilon"], row["alpha"]))
    lines = [
        [
            f"{design.ALPHAS[row['alpha']]}",
            row["size"],
            f"{row['epsilon']:g}",
            figures(row["chain"], 2),
            figures(row["independent"], 2),
            f"{row['independent'] / row['chain']:.1f}",
            f"{row['per_proposal']:.2f}",
            f"{row['pareto_k']:.2f}",
            f"{row['z']:.1f}",
        ]
        for row in good
    ]
    header = [
        *("alpha", "n", "epsilon", "chains", "independent", "ratio", "effective per proposal"),
        *("Pareto k", "errors apart"),
    ]
    many = "; ".join(
        f"{draws} of each of {chains} chains and {independent} independent ones where n = {size}"
        for size, (chains, draws, independent) in DRAWS.items()
    )
    caption = (
        "Effective draws for a CPU second, all of it after compilation: chains with as many draws "
        f"for tuning, independent ones with their search and pilots; {many}. The last column is "
        f"how many Monte Carlo errors means of log alpha are apart.{remarks(rows)}"
    )
    return "\n\n".join([caption, markdown(header, lines), _verdict(good)])


def _verdict(good: list[Row]) -> str:
    ratios = [row["independent"] / row["chain"] for row in good]
    enough, close = (sum(ratio >= WORTH for ratio in ratios), sum(row["z"] < CLOSE for row in good))
    few = [
        f"{design.ALPHAS[row['alpha']]}, n = {row['size']}, epsilon = {row['epsilon']:g} "
        f"({ratio:.1f})"
        for row, ratio in zip(good, ratios, strict=True)
        if ratio < WORTH
    ]
    return (
        f"**{enough} of {len(good)} cells** have {WORTH:g} times the chain's effective draws for a "
        f"CPU second or more{'; not ' + '; '.join(few) if few else ''}. In {close} of {len(good)} "
        f"means agree, within {CLOSE:g} errors."
    )


CELLS = tuple(
    number
    for size in design.SIZES
    for epsilon in design.EPSILONS
    for alpha in design.ALPHAS
    for number in (float(alpha), float(size), epsilon)
)

if __name__ == "__main__":
    command(
        __doc__.splitlines()[0],
        study,
        table,
        "independent draws",
        replicates=1,
        page=PAGE,
        cells=CELLS,
    )
