"""Coverage of census-style noisy totals: analysed with their noise, and taken at face value.

    python -m benchmarks.census [--replicates 200] [--workers 2] [--docs]

A county of tracts of blocks. Parameters are drawn from their prior, counts from the parameters;
blocks and tracts are published with discrete Gaussian noise of known variances, the county's
total exactly. Then 90 % intervals of all parameters cover the truth in 90 % of replicates, on
average over the prior, if and only if the posterior is right. The naive analysis takes the noisy
blocks as counts, negative ones as zero.
"""

from __future__ import annotations

import argparse
import logging
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pymc as pm
import pytensor.tensor as pt

import pymc_privacy as pmp
from benchmarks.measuring import timed_sample
from benchmarks.papers.pages import Row, command, mean_and_error, remarks

TRACTS, BLOCKS = 6, 12
BLOCK_VARIANCE, TRACT_VARIANCE = 25.0, 4.0
NAMES = ("level", "slope", "spread")
LEVEL = 0.9
DOCS = Path(__file__).parents[1] / "docs" / "census.md"


class County(NamedTuple):
    """What was published, what is public anyway, and the truth behind it."""

    covariate: np.ndarray
    blocks: np.ndarray
    tracts: np.ndarray
    total: int
    counts: np.ndarray
    truth: dict[str, float]


def tract_matrix() -> np.ndarray:
    return np.kron(np.eye(TRACTS, dtype=int), np.ones(BLOCKS, dtype=int))


def noise(variance: float) -> pmp.DiscreteGaussian:
    """Convert the variance, which is published, and which is not sigma squared."""
    return pmp.DiscreteGaussian(scale=float(pmp.discrete_gaussian_scale(variance)))


def simulate(rng: np.random.Generator) -> County:
    level, slope = rng.normal(1.0, 0.5), rng.normal(0.0, 0.5)
    spread = abs(rng.normal(0.0, 0.5))
    effect = np.repeat(rng.normal(0.0, spread, TRACTS), BLOCKS)
    covariate = rng.normal(size=TRACTS * BLOCKS)
    counts = rng.poisson(np.exp(level + slope * covariate + effect))
    return County(
        covariate,
        noise(BLOCK_VARIANCE).simulate(rng, counts),
        noise(TRACT_VARIANCE).simulate(rng, tract_matrix() @ counts),
        int(counts.sum()),
        counts,
        dict(zip(NAMES, (level, slope, spread), strict=True)),
    )


def rates(county: County):
    level = pm.Normal("level", 1.0, 0.5)
    slope = pm.Normal("slope", 0.0, 0.5)
    spread = pm.HalfNormal("spread", 0.5)
    effect = pm.Normal("effect", 0.0, 1.0, shape=TRACTS)
    return pt.exp(level + slope * county.covariate + spread * pt.repeat(effect, BLOCKS))


def exact_model(county: County) -> pm.Model:
    with pm.Model() as model:
        count = pm.Poisson("count", rates(county))
        pmp.LinearMeasurements(
            "block",
            count,
            np.eye(count.type.shape[0], dtype=int),
            noise(BLOCK_VARIANCE),
            observed=county.blocks,
            invariants=(np.ones((1, TRACTS * BLOCKS), dtype=int), [county.total]),
        )
        pmp.LinearMeasurements(
            "tract", count, tract_matrix(), noise(TRACT_VARIANCE), observed=county.tracts
        )
    return model


def naive_model(county: County) -> pm.Model:
    with pm.Model() as model:
        pm.Poisson("block", rates(county), observed=np.maximum(county.blocks, 0))
    return model


def fit(model: pm.Model, seed: int, draws: int) -> dict[str, np.ndarray]:
    posterior, _ = timed_sample(draws, tune=draws, model=model, chains=1, random_seed=seed)
    names = [*NAMES, *(["count"] if "count" in posterior else [])]
    return {name: posterior[name].values.reshape(-1, *posterior[name].shape[2:]) for name in names}


def interval(draws: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    return tuple(np.quantile(draws, [(1 - LEVEL) / 2, (1 + LEVEL) / 2], axis=0))


def replicate(rng: np.random.Generator, draws: int) -> dict[str, Any]:
    """Return for each analysis and parameter whether it covers, the width, and the error."""
    logging.getLogger("pymc").setLevel(logging.ERROR)
    county = simulate(rng)
    row: dict[str, Any] = {}
    for name, model in (("exact", exact_model(county)), ("naive", naive_model(county))):
        drawn, row[name] = fit(model, int(rng.integers(2**31)), draws), {}
        for parameter in NAMES:
            low, high = interval(drawn[parameter])
            truth = county.truth[parameter]
            error = drawn[parameter].mean() - truth
            row[name][parameter] = [float(low <= truth <= high), high - low, error]
        if name == "exact":
            low, high = interval(drawn["count"])
            covered = (low <= county.counts) & (county.counts <= high)
            error = drawn["count"].mean(axis=0) - county.counts
            row[name]["counts"] = [covered.mean(), (high - low).mean(), np.sqrt((error**2).mean())]
        else:
            # Counts at face value have no interval.
            error = np.maximum(county.blocks, 0) - county.counts
            row[name]["counts"] = [np.sqrt((error**2).mean())]
    return row


def study(options: argparse.Namespace) -> pmp.Study:
    """Return the study behind the table."""
    return pmp.Study(
        replicate,
        {"draws": [options.draws]},
        replicates=options.replicates,
        seed=options.seed,
        path=options.output / "census.jsonl",
    )


def table(rows: list[Row], options: argparse.Namespace) -> str:
    """Lay the results out as the docs show them."""
    done = [row for row in rows if row["error"] is None]
    lines = [
        "| | with the noise: coverage of 90 % intervals | width | error (rms) "
        "| at face value: coverage | width | error (rms) |",
        "|---|---:|---:|---:|---:|---:|---:|",
    ]
    for parameter in (*NAMES, "counts"):
        cells = [parameter if parameter != "counts" else "counts of the blocks"]
        for analysis in ("exact", "naive"):
            *covering, errors = np.array([row[analysis][parameter] for row in done]).T
            error = f"{np.sqrt((errors**2).mean()):.2f}"
            if not covering:
                cells += ["", "", error]
                continue
            # Blocks of one county are not independent; parameters of different counties are.
            covered, spread = mean_and_error(covering[0])
            cells += [f"{covered:.2f} ± {spread:.2f}", f"{covering[1].mean():.2f}", error]
        lines.append("| " + " | ".join(cells) + " |")
    note = f"{len(done)} simulated counties; ± is one standard error.{remarks(rows)}"
    return "\n".join(lines) + "\n\n" + note


def main() -> None:
    command(__doc__.splitlines()[0], study, table, "census", replicates=200, page=DOCS, draws=400)


if __name__ == "__main__":
    main()
