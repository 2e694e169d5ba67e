"""CPU seconds before the first draw: cold, called again, and with each number of a model changed.

    python -m benchmarks.first_draw [--beds …] [--docs]

Every line is one process of its own, and all lines of one bed share one cache, which is empty at
first. Seconds are CPU seconds from the first line of the model to the end of ten iterations; the
import of packages is left out. Beside it, plain PyMC samples the same model, records among the
variables, by NUTS in the same way: with an empty cache of its own, and called again. Machines
differ; ratios between lines of one run are what counts.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pymc as pm
import pytensor.tensor as pt

import pymc_privacy as pmp
from benchmarks.measuring import QUIET, two_figures
from benchmarks.papers.pages import markdown, write

DOCS = Path(__file__).parents[1] / "docs" / "performance.md"
ITERATIONS = 5  # of tuning, and kept


class Numbers(NamedTuple):
    """Everything in a model that is a number, and may be another one tomorrow."""

    release: float = 0.0
    """Added to every published value."""
    epsilon: float = 1.0
    prior: float = 3.0
    size: int = 200
    covariate: int = 0
    """The seed of the public covariate."""


CHANGES = {
    "another release": Numbers(release=0.7),
    "another epsilon": Numbers(epsilon=1.3),
    "another prior": Numbers(prior=2.5),
    "another number of records": Numbers(size=230),
    "another covariate": Numbers(covariate=1),
}


def quickstart(numbers: Numbers, *, plain: bool) -> None:
    """Mean and standard deviation of clamped Normal records: the model of the README."""
    mu, sigma = pm.Normal("mu", 0, numbers.prior), pm.HalfNormal("sigma", 2)
    x = pm.Normal("x", mu, sigma, shape=numbers.size)
    clipped = pt.clip(x, -5, 5)
    release(numbers, [clipped, clipped**2], 35.0, [100.0, 450.0], plain=plain)


def regression(numbers: Numbers, *, plain: bool) -> None:
    """Linear regression on two confidential covariates, from nine noisy moments."""
    beta = pm.Normal("beta", 0, numbers.prior, shape=3)
    mu, sigma = pm.Normal("mu", 0, 1, shape=2), pm.HalfNormal("sigma", 1)
    a = pm.Normal("a", mu[0], 1, shape=numbers.size)
    b = pm.Normal("b", mu[1], 1, shape=numbers.size)
    y = pm.Normal("y", beta[0] + beta[1] * a + beta[2] * b, sigma, shape=numbers.size)
    a, b, y = (pt.clip(v, -5, 5) / 5 for v in (a, b, y))
    moments = [a, b, a * a, a * b, b * b, y, a * y, b * y, y * y]
    published = [10.0, -8.0, 9.0, 1.0, 8.0, -20.0, -9.0, 8.0, 30.0]
    release(numbers, moments, 9.0, published, plain=plain)


def public_covariate(numbers: Numbers, *, plain: bool) -> None:
    """Regression on one covariate that everybody knows."""
    z = np.random.default_rng(numbers.covariate).normal(size=numbers.size)
    slope, sigma = pm.Normal("slope", 0, numbers.prior), pm.HalfNormal("sigma", 1)
    y = pt.clip(pm.Normal("y", slope * z, sigma, shape=numbers.size), -5, 5)
    release(numbers, [y, y * z, y**2], 40.0, [3.0, 150.0, 300.0], plain=plain)


BEDS: dict[str, Callable[..., None]] = {
    "quickstart": quickstart,
    "regression, nine sums": regression,
    "public covariate": public_covariate,
}


def release(
    numbers: Numbers, moments: list, sensitivity: float, published: list[float], *, plain: bool
) -> None:
    """Add the release, as `Privatized` or, for plain PyMC, as observed noise around the sums."""
    observed = np.array(published) + numbers.release
    mechanism = pmp.Laplace(epsilon=numbers.epsilon, sensitivity=sensitivity)
    if plain:
        total = pt.stack([moment.sum() for moment in moments])
        pm.Laplace("s", total, mechanism.scale, observed=observed)
    else:
        pmp.Privatized("s", pt.stack(moments, axis=1), mechanism, observed=observed)


def measure(bed: str, numbers: Numbers, *, plain: bool) -> float:
    """Return the CPU seconds of writing a model and sampling it for a few iterations."""
    start = time.process_time()
    with pm.Model():
        BEDS[bed](numbers, plain=plain)
        sample = pm.sample if plain else pmp.sample
        sample(ITERATIONS, tune=ITERATIONS, chains=1, random_seed=1, **QUIET)
    return time.process_time() - start


def in_a_process(cache: Path, bed: str, numbers: Numbers, *, plain: bool) -> float:
    """Return the same of a new process, whose compilers know what is in a cache."""
    environment = os.environ | {
        "PYTENSOR_FLAGS": f"base_compiledir={cache / 'pytensor'}",
        "NUMBA_CACHE_DIR": str(cache / "numba"),
    }
    said = json.dumps({"bed": bed, "numbers": numbers._asdict(), "plain": plain})
    command = [sys.executable, "-W", "ignore", "-m", "benchmarks.first_draw", "--one", said]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    return float(done.stdout.split()[-1])


def measure_bed(bed: str) -> dict[str, float]:
    """Return the seconds of every line of a bed."""
    found = {}
    with tempfile.TemporaryDirectory() as ours, tempfile.TemporaryDirectory() as theirs:
        for name, numbers in {"cold": Numbers(), "same again": Numbers(), **CHANGES}.items():
            found[name] = in_a_process(Path(ours), bed, numbers, plain=False)
        for name in ("NUTS, cold", "NUTS, same again"):
            found[name] = in_a_process(Path(theirs), bed, Numbers(), plain=True)
    return found


def table(found: dict[str, dict[str, float]]) -> str:
    """Lay out all lines: seconds, and how often "same again" each of them is."""
    rows = []
    for name in next(iter(found.values())):
        row: list[Any] = [name]
        for lines in found.values():
            ratio = lines[name] / lines["same again"]
            row.append(f"{two_figures(lines[name])} ({two_figures(ratio)})")
        rows.append(row)
    return markdown(["CPU seconds (times same again)", *found], rows)


def main() -> None:
    """Measure, print, and write into the docs if asked to."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--beds", nargs="+", default=list(BEDS), choices=list(BEDS))
    parser.add_argument("--docs", action="store_true", help="write the table into the docs")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        said = json.loads(options.one)
        print(measure(said["bed"], Numbers(**said["numbers"]), plain=said["plain"]))
        return
    found = {}
    for bed in options.beds:
        found[bed] = measure_bed(bed)
        print(bed, {name: round(seconds, 1) for name, seconds in found[bed].items()}, flush=True)
    print(table(found))
    if options.docs:
        write("first draw", table(found), DOCS)


if __name__ == "__main__":
    main()
