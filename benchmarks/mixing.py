"""Effective draws per sweep and per second: our moves, and the algorithm of the papers.

    python -m benchmarks.mixing [--beds …] [--epsilons …] [--output FILE]

Each bed is one simulated release. "Interwoven" is what `pm.sample` chooses by itself; "sweep and
NUTS" is Algorithm 1 of Ju et al. (2022) with NUTS for the parameters. The worst parameter
counts. Seconds are CPU seconds of the whole `pm.sample` after compilation, tuning left out in
proportion, and both samplers run in one process, one after the other.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from pathlib import Path

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from arviz_stats.base import array_stats

import pymc_privacy as pmp

EPSILONS = (0.01, 0.1, 1.0, 10.0)
RESULTS = Path(__file__).parent / "results" / "mixing.json"


def gaussian_bed(epsilon: float, size: int = 1000) -> pm.Model:
    """Mean and standard deviation of clamped Normal records, from two noisy moments."""
    rng = np.random.default_rng(0)
    records = np.clip(rng.normal(0.5, 1.5, size=size), -5, 5)
    mechanism = pmp.Laplace(epsilon=epsilon, sensitivity=35.0)
    released = mechanism.simulate(rng, np.array([records.sum(), (records**2).sum()]))
    with pm.Model() as model:
        mu = pm.Normal("mu", 0, 3)
        sigma = pm.HalfNormal("sigma", 2)
        x = pm.Normal("x", mu, sigma, shape=size)
        clipped = pt.clip(x, -5, 5)
        pmp.Privatized("s", pt.stack([clipped, clipped**2], axis=1), mechanism, observed=released)
    return model


def regression_bed(epsilon: float, size: int = 1000) -> pm.Model:
    """Linear regression on two confidential covariates, from nine noisy moments."""

    def moments(a, b, c):
        return [a, b, a * a, a * b, b * b, c, a * c, b * c, c * c]

    rng = np.random.default_rng(0)
    covariates = rng.normal([1, -1], 1, size=(size, 2))
    response = covariates @ [-1.0, 1.0] + rng.normal(size=size)
    clamped = [np.clip(v, -5, 5) / 5 for v in (*covariates.T, response)]
    mechanism = pmp.Laplace(epsilon=epsilon, sensitivity=15.0)
    released = mechanism.simulate(rng, np.array([m.sum() for m in moments(*clamped)]))
    with pm.Model() as model:
        beta = pm.Normal("beta", 0, 2, shape=3)
        tau = pm.Gamma("tau", 2, 2)
        mu = pm.Normal("mu", 0, 1, shape=2)
        phi = pm.Gamma("phi", 2, 2, shape=2)
        x = pm.Normal("x", mu, 1 / pt.sqrt(phi), shape=(size, 2))
        mean = beta[0] + x[:, 0] * beta[1] + x[:, 1] * beta[2]
        y = pm.Normal("y", mean, 1 / pt.sqrt(tau), shape=size)
        parts = [pt.clip(v, -5, 5) / 5 for v in (x[:, 0], x[:, 1], y)]
        pmp.Privatized("s", pt.stack(moments(*parts), axis=1), mechanism, observed=released)
    return model


BEDS = {"gaussian": gaussian_bed, "regression": regression_bed}


def worst_effective(posterior) -> float:
    """Return the smallest bulk effective size over all parameters."""
    return min(
        float(array_stats.ess(value[..., k].squeeze(), chain_axis=0, draw_axis=1))
        for value in (v.values.reshape(*v.shape[:2], -1) for v in posterior.data_vars.values())
        for k in range(value.shape[-1])
    )


def measure(model: pm.Model, *, step=None, draws: int = 2000, tune: int = 1000) -> dict[str, float]:
    """Sample once to compile, once to measure."""
    names = [rv.name for rv in model.free_RVs if rv.name not in ("x", "y")]
    options = {
        "model": model,
        "chains": 2,
        "cores": 1,
        "step": step,
        "random_seed": 1,
        "progressbar": False,
        "quiet": True,
        "compute_convergence_checks": False,
        "var_names": names,
    }
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        pm.sample(5, tune=5, **options)
        start = time.process_time()
        result = pm.sample(draws, tune=tune, **options)
    seconds = (time.process_time() - start) * draws / (draws + tune)
    effective = worst_effective(result["posterior"])
    return {"per_sweep": effective / (2 * draws), "per_second": effective / seconds}


def papers_steps(model: pm.Model) -> list:
    """Return the record sweep, and NUTS for the parameters given the records."""
    records = [model[name] for name in ("x", "y") if name in model.named_vars]
    parameters = [rv for rv in model.free_RVs if rv not in records]
    return [
        pmp.RecordSweep(records, model=model),
        pm.NUTS(parameters, model=model),
    ]


def table(rows: list[dict]) -> str:
    """Lay the results out as the docs show them."""
    lines = [
        "| model | epsilon | interwoven: per sweep | per second | sweep and NUTS: per sweep "
        "| per second |",
        "|---|---:|---:|---:|---:|---:|",
    ]
    lines += [
        f"| {r['bed']} | {r['epsilon']:g} | {r['interwoven']['per_sweep']:.2f} "
        f"| {r['interwoven']['per_second']:.0f} | {r['papers']['per_sweep']:.4f} "
        f"| {r['papers']['per_second']:.2g} |"
        for r in rows
    ]
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--beds", nargs="+", choices=BEDS, default=list(BEDS))
    parser.add_argument("--epsilons", type=float, nargs="+", default=EPSILONS)
    parser.add_argument("--output", type=Path, default=RESULTS)
    options = parser.parse_args()
    rows = []
    for bed in options.beds:
        for epsilon in options.epsilons:
            model = BEDS[bed](epsilon)
            rows.append(
                {
                    "bed": bed,
                    "epsilon": epsilon,
                    "interwoven": measure(model),
                    "papers": measure(model, step=papers_steps(model)),
                }
            )
            print(table(rows[-1:]).splitlines()[-1], flush=True)
    print("\n" + table(rows))
    options.output.parent.mkdir(exist_ok=True)
    options.output.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
