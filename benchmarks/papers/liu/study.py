"""Coverage, width and error of every method in every setting of the paper's simulations.

Six sizes with seven epsilons, and with four mu; five tasks. A replicate is a batch of data sets,
so that what is kept on file are sums. Methods that cost more are run on the first data sets of a
batch, and up to a size.
"""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np

import pymc_privacy as pmp
from benchmarks.interval_study import tasks
from benchmarks.interval_study.tasks import TAILS, TASKS, Ends, Task
from benchmarks.papers.liu import comparators
from benchmarks.papers.liu.gaussian import PROB, gaussian_ends, mu_of
from pymc_privacy.sanitize import (
    NormalMean,
    NormalVariance,
    Proportion,
    Rate,
    intervals,
    precise_quantiles,
)
from pymc_privacy.sanitize.exact_noise import SimulatedNoise
from pymc_privacy.sanitize.precise import VARIANTS
from pymc_privacy.sanitize.releases import with_noise

SIZES = (100, 500, 1000, 5000, 10_000, 50_000)
EPSILONS = (0.1, 0.5, 1.0, 2.0, 5.0, 10.0, 50.0)
MUS = (0.1, 0.5, 1.0, 5.0)
BATCH = 25
FEW = 5  # of a batch, for methods that cost more
LARGEST = 1000  # the largest size for them
_MOST_BINS = 9_999_999
_DRAWS = 4000  # of the noise-aware posterior

Made = dict[str, Ends | None]


def settings() -> list[dict[str, Any]]:
    """Return all settings, the small ones first."""
    return [
        {"task": task, "size": size, "kind": kind, "loss": loss}
        for size in SIZES
        for task in TASKS
        for kind, losses in (("epsilon", EPSILONS), ("mu", MUS))
        for loss in losses
    ]


def batch(rng: np.random.Generator, task: str, size: int, kind: str, loss: float) -> dict[str, Any]:
    """Run a batch of data sets; return sums for each method.

    They are: data sets, covered ones, widths, squared widths, and squared distances of the ends
    from those of the posterior given the records, in its standard deviations.
    """
    chosen, sums = TASKS[task], {}
    for k in range(BATCH):
        records = chosen.simulate(rng, size)
        posterior = chosen.posterior(records)
        exact, deviation = posterior.ppf(TAILS), float(posterior.std())
        made = quick(rng, chosen, records, posterior, kind, loss)
        if k < FEW and size <= LARGEST:
            made |= slow(rng, chosen, records, kind, loss)
        for method, ends in made.items():
            if ends is not None:
                row = np.array([1, *_measured(ends, chosen.truth, exact, deviation)])
                sums[method] = sums.get(method, 0) + row
    return {method: [float(f"{v:.5g}") for v in row] for method, row in sums.items()}


def _measured(ends: Ends, truth: float, exact: np.ndarray, deviation: float) -> list[float]:
    low, high = ends
    width = abs(high - low)
    error = ((low - exact[0]) ** 2 + (high - exact[1]) ** 2) / 2 / deviation**2
    return [low <= truth <= high, width, width**2, error]


def samples_of(task: Task, size: int) -> int:
    """Return m = n / 2, or as many as the package's limit on the number of bins allows."""
    low, high = task.bounds
    return min(size // 2, int(_MOST_BINS / (2 * task.density_bound * (high - low))))


def quick(
    rng: np.random.Generator,
    task: Task,
    records: np.ndarray,
    posterior: Any,
    kind: str,
    loss: float,
) -> Made:
    """Return the intervals of PRECISE, and of methods that take milliseconds."""
    samples = samples_of(task, len(records))
    draws = posterior.rvs(samples, random_state=rng)
    limits = {"bounds": task.bounds, "density_bound": task.density_bound, "samples": samples}
    made: Made = {"no privacy": tuple(posterior.ppf(TAILS))}
    for variant in VARIANTS:
        ends = precise_quantiles(rng, draws, TAILS, variant=variant, **{kind: loss}, **limits)
        made[variant] = (ends[0], ends[1])
    if kind == "mu":
        return made | gaussian_ends(rng, task.family, records, loss, _DRAWS)
    made |= tasks.proven_ends(rng, task.family, records, loss)
    ends = [tasks.simulated_pp_quantile(rng, draws, q, task.bounds, loss / 2) for q in TAILS]
    return made | {"PPquantile": (ends[0], ends[1])}


def slow(rng: np.random.Generator, task: Task, records: np.ndarray, kind: str, loss: float) -> Made:
    """Return the intervals of methods that cost more, where they exist."""
    family, made = task.family, {}
    mu = loss if kind == "mu" else mu_of(loss, 1 / len(records))
    if isinstance(family, NormalMean | NormalVariance):
        made["deconvolution"] = comparators.deconvolution(rng, records, family, mu)
        made["repro"] = comparators.repro(rng, records, family, mu)
    if kind == "mu":
        return made
    if isinstance(family, NormalMean):
        made["SYMQ"] = comparators.symq(rng, records, family.bounds, loss)
    bounds = {NormalMean: (-4.0, 4.0), Proportion: (0.0, 1.0), Rate: (0.0, 25.0)}.get(type(family))
    if bounds is not None:
        made["little bootstraps"] = comparators.little_bootstraps(rng, records, bounds, loss)
    if isinstance(family, Proportion | Rate):
        plan = intervals.plan_total(family, loss, "x")
        totals = intervals.family_totals(plan, family, records)
        release = with_noise(SimulatedNoise(rng), plan, totals, "simulated")
        made["repro"] = intervals.repro_ends(rng, release, family, PROB, 199)
    return made


def study(options: argparse.Namespace) -> pmp.Study:
    """Return the study behind all figures."""
    return pmp.Study(
        batch,
        settings(),
        replicates=options.replicates,
        seed=options.seed,
        path=options.output / "liu_intervals.jsonl",
    )


METHODS: tuple[str, ...] = (
    "no privacy",
    *VARIANTS,
    "noise-aware",
    "bootstrap",
    "multiple",
    "centre-scale",
    "PPquantile",
    "repro",
    "deconvolution",
    "SYMQ",
    "little bootstraps",
)
