"""A thousand noisy counts in a hierarchical model: counts summed out, or sampled as well.

    python -m benchmarks.noisy_counts [--cells N] [--epsilons …] [--output FILE] [--docs]

Cells in groups, with a covariate and an effect of each cell; Poisson counts, released with discrete
Laplace noise. "Summed out" is `NoisyCount` with NUTS; "imputed" has the counts as latent
variables of the same model, moved by `LatticeWalk` given the rates (10 sweeps a draw), and NUTS for
the rest. Both are exact. Seconds are CPU seconds of `pm.sample` in one process after everything was
compiled once, tuning included; effective draws are those of the worst of four parameters.
"""

from __future__ import annotations

import argparse
import json
import logging
from pathlib import Path

import numpy as np
import pymc as pm
import pytensor.tensor as pt

import pymc_privacy as pmp
from benchmarks.measuring import timed_when_compiled, worst_effective
from benchmarks.papers.pages import write

EPSILONS = (1.0, 0.1)
GROUPS = 20
NAMES = ("level", "slope", "between", "within")
RESULTS = Path(__file__).parent / "results" / "noisy_counts.json"
DOCS = Path(__file__).parents[1] / "docs" / "noisy-counts.md"


def release(cells: int, epsilon: float):
    rng = np.random.default_rng(1)
    covariate, group = rng.normal(size=cells), rng.integers(0, GROUPS, size=cells)
    log_rate = rng.normal(2.5, 0.4, GROUPS)[group] + 0.5 * covariate + rng.normal(0, 0.3, cells)
    mechanism = pmp.DiscreteLaplace(epsilon=epsilon, sensitivity=1.0)
    return covariate, group, mechanism, mechanism.simulate(rng, rng.poisson(np.exp(log_rate)))


def rates(covariate, group):
    level = pm.Normal("level", 0, 3)
    slope = pm.Normal("slope", 0, 1)
    between, within = pm.HalfNormal("between", 1), pm.HalfNormal("within", 1)
    effect = pm.Normal("effect", level, between, shape=GROUPS)
    residual = pm.Normal("residual", 0, 1, shape=len(group))
    return pt.exp(effect[group] + slope * covariate + within * residual)


def summed_out(cells: int, epsilon: float) -> pm.Model:
    covariate, group, mechanism, published = release(cells, epsilon)
    with pm.Model() as model:
        law = pm.Poisson.dist(rates(covariate, group))
        pmp.NoisyCount("y", law, mechanism, observed=published)
    return model


def imputed(cells: int, epsilon: float) -> pm.Model:
    covariate, group, mechanism, published = release(cells, epsilon)
    with pm.Model() as model:
        count = pm.Poisson("count", rates(covariate, group))
        pmp.LinearMeasurements("y", count, np.eye(cells, dtype=int), mechanism, observed=published)
    return model


def measure(model: pm.Model, *, draws: int, tune: int, chains: int) -> dict[str, float]:
    """Return CPU seconds, tuning included, and effective draws."""
    posterior, seconds = timed_when_compiled(
        draws, tune=tune, chains=chains, model=model, random_seed=1, var_names=list(NAMES)
    )
    effective = worst_effective(posterior, NAMES)
    return {"seconds": seconds, "effective": effective, "per_second": effective / seconds}


def table(rows: list[dict]) -> str:
    """Lay the results out as the docs show them."""
    lines = [
        "| cells | epsilon | summed out: CPU seconds | effective draws | per second "
        "| imputed: CPU seconds | effective draws | per second | ratio |",
        "|---:|---:|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for row in rows:
        cells = [f"{row['cells']}", f"{row['epsilon']:g}"]
        for way in ("summed_out", "imputed"):
            found = row[way]
            cells += [f"{found[key]:.3g}" for key in ("seconds", "effective", "per_second")]
        ratio = row["summed_out"]["per_second"] / row["imputed"]["per_second"]
        lines.append("| " + " | ".join([*cells, f"{ratio:.3g}"]) + " |")
    first = rows[0]
    note = f"{first['chains']} chains of {first['draws']} draws after {first['tune']} for tuning."
    return "\n".join(lines) + "\n\n" + note


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cells", type=int, default=1000)
    parser.add_argument("--epsilons", type=float, nargs="+", default=EPSILONS)
    parser.add_argument("--draws", type=int, default=1000)
    parser.add_argument("--tune", type=int, default=1000)
    parser.add_argument("--chains", type=int, default=2)
    parser.add_argument("--output", type=Path, default=RESULTS)
    parser.add_argument("--docs", action="store_true", help="write the table into the docs too")
    parser.add_argument("--report", action="store_true", help="only lay out what was saved")
    options = parser.parse_args()
    logging.getLogger("pymc").setLevel(logging.ERROR)
    length = {"draws": options.draws, "tune": options.tune, "chains": options.chains}
    rows = json.loads(options.output.read_text()) if options.report else []
    for epsilon in () if options.report else options.epsilons:
        rows.append(
            {
                "cells": options.cells,
                "epsilon": epsilon,
                **length,
                "summed_out": measure(summed_out(options.cells, epsilon), **length),
                "imputed": measure(imputed(options.cells, epsilon), **length),
            }
        )
        print(table(rows[-1:]).splitlines()[2], flush=True)
        options.output.parent.mkdir(exist_ok=True)
        options.output.write_text(json.dumps(rows, indent=1) + "\n")
    print("\n" + table(rows))
    if options.docs:
        write("noisy counts", table(rows), DOCS)


if __name__ == "__main__":
    main()
