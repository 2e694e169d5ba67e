"""How often bootstrap intervals of maximum likelihood hold the truth.

    python -m benchmarks.likelihood_coverage [--replicates 500] [--docs]

Each replicate draws records and a release of them, fits the release, refits as many releases that
are simulated from the fit, and looks whether the interval holds each parameter that the records
were drawn with. Maxima are in the interior. Two models: answers that were randomised one by one,
whose records are summed out, so that a refit takes milliseconds; and noisy sums of clamped Normal
records and of their squares, whose databases are drawn.
"""

from __future__ import annotations

import argparse
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pymc as pm
import pytensor.tensor as pt

import pymc_privacy as pmp
from benchmarks.papers.pages import Row, command, grouped, markdown, mean_and_error, remarks
from pymc_privacy.inference.direct import make_problem
from pymc_privacy.inference.fitting import Fitting

PAGE = Path(__file__).parents[1] / "docs" / "without-a-prior.md"
SIZE, NOMINAL = 200, 0.95
TRUTHS = {
    "randomised answers": {"p": 0.3},
    "noisy moments": {"mu": 0.4, "sd": 1.0},
}
MODELS = tuple(TRUTHS)


def model(kind: str) -> pm.Model:
    """Write a model; what it observes is set anew for each replicate."""
    with pm.Model() as written:
        if kind == MODELS[0]:
            p = pm.Beta("p", 1, 1)
            x = pm.Bernoulli("x", p, shape=SIZE)
            law = pmp.RandomizedResponse(epsilon=1.0)
            answers = np.arange(SIZE) % 2
            pmp.Privatized("released", x, law, local=True, observed=answers)
        else:
            mu, sd = pm.Normal("mu", 0, 3), pm.HalfNormal("sd", 3)
            x = pm.Normal("x", mu, sd, shape=SIZE).clip(-3, 3)
            sums = pt.stack([x, x**2], axis=1)
            pmp.Privatized("released", sums, pmp.Laplace(scale=10.0), observed=[80.0, 230.0])
    return written


@cache
def compiled(kind: str) -> Fitting:
    """Return what fits a model, compiled once in each process."""
    return Fitting(make_problem(model(kind)), "score", False, 0.05, 50_000)


def replicate(rng: np.random.Generator, kind: str, refits: int) -> dict[str, Any]:
    """Draw and release records, and return the intervals."""
    fitting = compiled(kind)
    problem = fitting.problem
    truth = problem.values({name: np.array(value) for name, value in TRUTHS[kind].items()})
    problem.observe(problem.simulate(truth, rng))
    fit = fitting.run([truth], rng, lambda start, step: None)
    fit.bootstrap(refits, random_seed=int(rng.integers(2**31)))
    intervals = fit.interval(NOMINAL)
    return {
        "estimate": {name: float(fit.estimate[name]) for name in TRUTHS[kind]},
        "ends": {name: intervals[name].values.tolist() for name in TRUTHS[kind]},
        "interior": not (fit.at_boundary or fit.unidentified),
    }


def study(options: argparse.Namespace) -> pmp.Study:
    """Return the study behind the table."""
    grid = {"kind": list(options.models), "refits": [options.refits]}
    return pmp.Study(
        replicate,
        grid,
        replicates=options.replicates,
        seed=options.seed,
        path=options.output / "likelihood_coverage.jsonl",
    )


def table(rows: list[Row], options: argparse.Namespace) -> str:
    """Lay out how often the truth was held, for each parameter."""
    lines = [
        _line(kind, name, group)
        for kind, group in grouped(rows, "kind").items()
        for name in TRUTHS[kind]
    ]
    header = ["release", "", "replicates", "held the truth", "mean width", "interior maxima"]
    caption = (
        f"Bootstrap intervals of nominal {NOMINAL:.0%}, from {options.refits} refits each; {SIZE} "
        "records. Replicates whose maximum is at the boundary are left out." + remarks(rows)
    )
    return caption + "\n\n" + markdown(header, lines)


def _line(kind: str, name: str, rows: list[Row]) -> list[str]:
    inside = [row for row in rows if row["interior"]]
    ends = np.array([row["ends"][name] for row in inside])
    held = (ends[:, 0] <= TRUTHS[kind][name]) & (TRUTHS[kind][name] <= ends[:, 1])
    coverage, error = mean_and_error(held.tolist())
    width = float(np.mean(ends[:, 1] - ends[:, 0]))
    return [
        kind, name, str(len(inside)), f"{coverage:.3f} ± {error:.3f}", f"{width:.3f}",
        f"{len(inside) / len(rows):.0%}",
    ]  # fmt: skip


if __name__ == "__main__":
    command(
        __doc__ or "", study, table, "bootstrap coverage", replicates=500, page=PAGE,
        models=MODELS, refits=39,
    )  # fmt: skip
