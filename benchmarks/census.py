"""Coverage of census-style noisy totals: analysed with their noise, and taken at face value.

    python -m benchmarks.census [--replicates 200] [--workers 2] [--draws 600] [--docs]

A county of tracts of blocks. Parameters are drawn from their prior, counts from the parameters;
blocks and tracts are published with discrete Gaussian noise of known variances, the county's
total exactly. Then 90 % intervals of all parameters cover the truth in 90 % of replicates, on
average over the prior, if and only if the posterior is right and chains are long enough: two of
them, whose effective draws and r-hat are kept. The share of draws below the truth is then uniform,
which is tested too. The naive analysis takes the noisy blocks as counts, negative ones as zero.
"""

from __future__ import annotations

import argparse
import logging
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from arviz_stats.base import array_stats
from scipy import stats

import pymc_privacy as pmp
from benchmarks.measuring import effective, timed_sample
from benchmarks.papers.pages import Row, command, mean_and_error, remarks

TRACTS, BLOCKS = 6, 12
BLOCK_VARIANCE, TRACT_VARIANCE = 25.0, 4.0
NAMES = ("level", "slope", "spread")
LEVEL = 0.9
CHAINS, TUNE, NAIVE_DRAWS = 2, 300, 300
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


class Fit(NamedTuple):
    """Draws of all chains together, by name, and how well these have mixed."""

    draws: dict[str, np.ndarray]
    effective: float
    """The smallest number of effective draws of a parameter."""
    r_hat: float


def fit(model: pm.Model, seed: int, draws: int, *, chains: int) -> Fit:
    posterior, _ = timed_sample(draws, tune=TUNE, model=model, chains=chains, random_seed=seed)
    names = [*NAMES, *(["count"] if "count" in posterior else [])]
    values = {name: posterior[name].values for name in names}
    return Fit(
        {name: value.reshape(-1, *value.shape[2:]) for name, value in values.items()},
        min(effective(values[name]) for name in NAMES),
        max(float(array_stats.rhat(values[name], chain_axis=0, draw_axis=1)) for name in NAMES),
    )


def interval(draws: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    return tuple(np.quantile(draws, [(1 - LEVEL) / 2, (1 + LEVEL) / 2], axis=0))


def replicate(rng: np.random.Generator, draws: int) -> dict[str, Any]:
    """Return for each analysis and parameter whether it covers, the width, and the error."""
    logging.getLogger("pymc").setLevel(logging.ERROR)
    county = simulate(rng)
    row: dict[str, Any] = {}
    for name, model, length, chains in (
        ("exact", exact_model(county), draws, CHAINS),
        ("naive", naive_model(county), NAIVE_DRAWS, 1),
    ):
        found = fit(model, int(rng.integers(2**31)), length, chains=chains)
        drawn, row[name] = found.draws, {}
        for parameter in NAMES:
            low, high = interval(drawn[parameter])
            truth = county.truth[parameter]
            error = drawn[parameter].mean() - truth
            row[name][parameter] = [float(low <= truth <= high), high - low, error]
            row[name][f"{parameter} below"] = float(np.mean(drawn[parameter] < truth))
        row[name] |= {"effective": found.effective, "r_hat": found.r_hat}
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
    mixed = [(row["exact"]["effective"], row["exact"]["r_hat"]) for row in done]
    below = np.array([[row["exact"][f"{name} below"] for name in NAMES] for row in done]).T
    uniform = ", ".join(f"{stats.kstest(u, 'uniform').pvalue:.2f}" for u in below)
    note = (
        f"{len(done)} simulated counties; ± is one standard error. Chains with the noise have "
        f"{min(m[0] for m in mixed):.0f} effective draws of a parameter or more, half of them "
        f"{np.median([m[0] for m in mixed]):.0f} or more; r-hat is at most "
        f"{max(m[1] for m in mixed):.3f}. The share of draws below the truth is tested to be "
        f"uniform (Kolmogorov and Smirnov): p = {uniform} for {', '.join(NAMES)}.{remarks(rows)}"
    )
    return "\n".join(lines) + "\n\n" + note


def main() -> None:
    command(__doc__.splitlines()[0], study, table, "census", replicates=200, page=DOCS, draws=600)


if __name__ == "__main__":
    main()
