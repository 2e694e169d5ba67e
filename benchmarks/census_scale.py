"""Noisy totals of many counts: what the set-up costs, and a draw.

    python -m benchmarks.census_scale [--cells 1008 10008 100008] [--draws 100] [--docs]

Blocks in tracts in counties: blocks and tracts are noisy, counties exact; a slope, a level and an
effect of every tract. Memory is the growth of the process while the model is written and its walk
compiled, at its largest; seconds are those of the processor. Each size has a process of its own.
"""

from __future__ import annotations

import argparse
import json
import logging
import resource
import subprocess
import sys
import time

import numpy as np
import pymc as pm
import pytensor.tensor as pt

import pymc_privacy as pmp
from benchmarks.census import DOCS
from benchmarks.measuring import effective, timed_draws
from benchmarks.papers.pages import write

BLOCKS, TRACTS = 12, 12  # of a tract, of a county
MOST_DRAWN = 10_000  # counts, up to which some draws are measured too


def megabytes() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def county_model(cells: int) -> pm.Model:
    """Write the model of blocks in tracts of 12, in counties of 12 tracts."""
    rng = np.random.default_rng(1)
    tract = np.arange(cells) // BLOCKS
    county = tract // TRACTS
    covariate, effect = rng.normal(size=cells), rng.normal(0, 0.3, tract[-1] + 1)
    people = rng.poisson(np.exp(1 + 0.5 * covariate + effect[tract]))
    in_tract, in_county = (np.bincount(group, people).astype(int) for group in (tract, county))
    blocks, tracts = pmp.DiscreteGaussian(scale=5.0), pmp.DiscreteGaussian(scale=2.0)
    with pm.Model() as model:
        level, slope = pm.Normal("level", 1, 1), pm.Normal("slope", 0, 1)
        spread = pm.HalfNormal("spread", 0.5)
        own = pm.Normal("effect", 0, 1, shape=effect.size)
        rate = pt.exp(level + slope * covariate + spread * own[tract])
        count = pm.Poisson("people", rate, shape=cells)
        pmp.LinearMeasurements(
            "blocks",
            count,
            pmp.Sum(over=()),
            blocks,
            observed=blocks.simulate(rng, people),
            invariants=(pmp.Sum(within={0: county}), in_county),
        )
        pmp.LinearMeasurements(
            "tracts",
            count,
            pmp.Sum(within={0: tract}),
            tracts,
            observed=tracts.simulate(rng, in_tract),
        )
    return model


def measured(cells: int, draws: int) -> dict[str, float]:
    """Return seconds and megabytes of the set-up, and what draws cost and are worth."""
    logging.getLogger("pymc").setLevel(logging.ERROR)
    county_model(BLOCKS * TRACTS)
    memory, start = megabytes(), time.process_time()
    model = county_model(cells)
    found = {"write": time.process_time() - start, "write MB": megabytes() - memory}
    memory, start = megabytes(), time.process_time()
    with model:
        pmp.LatticeWalk()
    found |= {"compile": time.process_time() - start, "compile MB": megabytes() - memory}
    if draws:
        posterior, seconds = timed_draws(draws, tune=draws, model=model, chains=1, random_seed=1)
        found["draw"] = 1000 * seconds / draws
        found["slope"] = effective(posterior["slope"].values) / seconds
    return found


def table(rows: list[tuple[int, dict[str, float]]]) -> str:
    """Lay the results out as the docs show them."""
    lines = [
        "| counts | model, s | MB | walk compiled and compared, s | MB | ms a draw |",
        "|---:|---:|---:|---:|---:|---:|",
    ]
    for cells, row in rows:
        draw = f"{row['draw']:.0f}" if "draw" in row else ""
        lines.append(
            f"| {cells:,} | {row['write']:.2f} | {row['write MB']:.0f} | {row['compile']:.1f} "
            f"| {row['compile MB']:.0f} | {draw} |"
        )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cells", type=int, nargs="+", default=[1008, 5040, 100_080])
    parser.add_argument("--draws", type=int, default=50)
    parser.add_argument("--one", action="store_true", help="print one size as JSON")
    parser.add_argument("--docs", action="store_true", help="write the table into the docs too")
    chosen = parser.parse_args()
    if chosen.one:
        print(json.dumps(measured(chosen.cells[0], chosen.draws)))
        return
    rows = []
    for cells in chosen.cells:
        command = [sys.executable, "-m", "benchmarks.census_scale", "--one"]
        draws = chosen.draws if cells <= MOST_DRAWN else 0
        command += ["--cells", str(cells), "--draws", str(draws)]
        out = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        rows.append((cells, json.loads(out.splitlines()[-1])))
        print(rows[-1], flush=True)
    text = table(rows)
    print(text)
    if chosen.docs:
        write("census-scale", text, DOCS)


if __name__ == "__main__":
    main()
