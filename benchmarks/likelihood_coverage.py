"""How often bootstrap intervals of maximum likelihood hold the truth.

    python -m benchmarks.likelihood_coverage [--replicates 500] [--docs]

Each replicate draws records and a release of them, fits the release, refits as many releases that
are simulated from the fit, and looks whether the interval holds the parameter that the records
were drawn with. Maxima are in the interior. Two models: answers that were randomised one by one,
whose records are summed out, so that a refit takes milliseconds; and a noisy count, whose databases
are drawn.
"""

from __future__ import annotations

import argparse
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pymc as pm

import pymc_privacy as pmp
from benchmarks.papers.pages import Row, command, grouped, markdown, mean_and_error, remarks
from pymc_privacy.inference.direct import make_problem
from pymc_privacy.inference.maximum_likelihood import Fitting

PAGE = Path(__file__).parents[1] / "docs" / "without-a-prior.md"
SIZE, TRUTH, NOMINAL = 400, 0.3, 0.95
MODELS = ("randomised answers", "noisy count")


def model(kind: str) -> pm.Model:
    """Write a model; what it observes is set anew for each replicate."""
    with pm.Model() as written:
        p = pm.Beta("p", 1, 1)
        x = pm.Bernoulli("x", p, shape=SIZE)
        if kind == MODELS[0]:
            law = pmp.RandomizedResponse(epsilon=1.0)
            answers = np.arange(SIZE) % 2
            pmp.Privatized("released", x, law, local=True, observed=answers)
        else:
            pmp.Privatized("released", x, pmp.Laplace(scale=10.0), observed=0.4 * SIZE)
    return written


@cache
def compiled(kind: str) -> Fitting:
    """Return what fits a model, compiled once in each process."""
    return Fitting(make_problem(model(kind)), "score", False, 0.05, 50_000)


def replicate(rng: np.random.Generator, kind: str, refits: int) -> dict[str, Any]:
    """Draw and release records, and return the interval."""
    fitting = compiled(kind)
    problem = fitting.problem
    truth = problem.values({"p": np.array(TRUTH)})
    problem.observe(problem.simulate(truth, rng))
    fit = fitting.run([truth], rng, lambda start, step: None)
    fit.bootstrap(refits, random_seed=int(rng.integers(2**31)))
    interval = fit.interval(NOMINAL)["p"].values
    return {
        "estimate": float(fit.estimate["p"]),
        "lower": float(interval[0]),
        "upper": float(interval[1]),
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
    """Lay out how often the truth was held, for each model."""
    lines = []
    for kind, group in grouped(rows, "kind").items():
        held = [float(row["lower"] <= TRUTH <= row["upper"]) for row in group]
        coverage, error = mean_and_error(held)
        width = np.mean([row["upper"] - row["lower"] for row in group])
        inside = np.mean([row["interior"] for row in group])
        lines.append(
            [
                kind,
                str(len(group)),
                f"{coverage:.3f} ± {error:.3f}",
                f"{width:.3f}",
                f"{inside:.0%}",
            ]
        )
    header = ["release", "replicates", "held the truth", "mean width", "interior maxima"]
    caption = (
        f"Bootstrap intervals of nominal {NOMINAL:.0%}, from {options.refits} refits each; {SIZE} "
        f"records, of which a share of {TRUTH:g} is expected to be 1." + remarks(rows)
    )
    return caption + "\n\n" + markdown(header, lines)


if __name__ == "__main__":
    command(
        __doc__ or "", study, table, "bootstrap coverage", replicates=500, page=PAGE,
        models=MODELS[:1], refits=200,
    )  # fmt: skip
