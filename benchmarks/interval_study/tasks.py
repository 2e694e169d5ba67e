"""The simulation settings of Liu et al., and every method on one data set of each."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from scipy import stats

from pymc_privacy.accounting import PureDP
from pymc_privacy.sanitize import (
    Family,
    NormalMean,
    NormalVariance,
    Proportion,
    Rate,
    Slope,
    density_bounds,
    intervals,
    precise_quantiles,
)
from pymc_privacy.sanitize.exact_noise import SimulatedNoise
from pymc_privacy.sanitize.families import SummarisedFamily
from pymc_privacy.sanitize.precise import VARIANTS
from pymc_privacy.sanitize.releases import with_noise
from pymc_privacy.sanitize.summary_plan import plan_summary

TAILS = (0.025, 0.975)
DRAWS = 10_000  # of the noise-aware posterior
PROVEN = ("noise-aware", "bootstrap", "multiple", "centre-scale", "PPquantile")
METHODS = ("no privacy", *VARIANTS, *PROVEN)
# PPquantile is private, but no interval of it is meant to cover anything.
MEANT_TO_COVER = tuple(method for method in PROVEN if method != "PPquantile")
LEAST_COVERAGE = 0.93

Ends = tuple[float, float]


@dataclass(frozen=True)
class Task:
    """Records of one kind, their posterior without privacy, and what each method is told."""

    family: Family
    truth: float
    simulate: Callable[[np.random.Generator, int], np.ndarray]
    posterior: Callable[[np.ndarray], Any]
    bounds: Ends  # of the parameter, for PRECISE
    density_bound: float


def _regression(rng: np.random.Generator, size: int) -> np.ndarray:
    z = rng.normal(size=size)
    return np.stack([z, 1 + 0.5 * z + 0.25 * rng.normal(size=size)], axis=1)


def _beta(x: np.ndarray) -> Any:
    return stats.beta(1 + x.sum(), 1 + len(x) - x.sum())


def _student(x: np.ndarray) -> Any:
    return stats.t(len(x) - 1, x.mean(), x.std(ddof=1) / np.sqrt(len(x)))


def _inverse_gamma(x: np.ndarray) -> Any:
    return stats.invgamma((len(x) - 1) / 2, scale=(len(x) - 1) * x.var(ddof=1) / 2)


def _gamma(x: np.ndarray) -> Any:
    return stats.gamma(0.1 + x.sum(), scale=1 / (0.1 + len(x)))


def _slope(records: np.ndarray) -> Any:
    fit = stats.linregress(*records.T)
    return stats.t(len(records) - 2, fit.slope, fit.stderr)


TASKS = {
    "proportion": Task(
        family=Proportion(),
        truth=0.3,
        simulate=lambda rng, size: (rng.random(size) < 0.3).astype(int),
        posterior=_beta,
        bounds=(0.03, 0.97),
        density_bound=density_bounds.bernoulli((0.03, 0.97)),
    ),
    "Poisson rate": Task(
        family=Rate(25),
        truth=10.0,
        simulate=lambda rng, size: rng.poisson(10, size),
        posterior=_gamma,
        bounds=(3.0, 35.0),
        density_bound=density_bounds.poisson((3, 35), (0, 35)),
    ),
    "Normal mean": Task(
        family=NormalMean((-4, 4)),
        truth=0.0,
        simulate=lambda rng, size: rng.normal(size=size),
        posterior=_student,
        bounds=(-5.0, 5.0),
        density_bound=density_bounds.normal_mean(5, 0.25),
    ),
    "Normal variance": Task(
        family=NormalVariance((-4, 4)),
        truth=1.0,
        simulate=lambda rng, size: rng.normal(size=size),
        posterior=_inverse_gamma,
        bounds=(0.25, 25.0),
        density_bound=density_bounds.normal_variance(5, 0.25),
    ),
    "slope": Task(
        family=Slope((-4, 4), (-2, 4), bounds=(-5, 5)),
        truth=0.5,
        simulate=_regression,
        posterior=_slope,
        bounds=(-5.0, 5.0),
        density_bound=density_bounds.slope(10, 0.25),
    ),
}


# ---------------------------------------------------------------- every method on one data set


def proven_ends(
    rng: np.random.Generator, family: Family, records: np.ndarray, epsilon: float
) -> dict[str, Ends]:
    """Return the intervals of all proven methods, with simulated noise."""
    noise = SimulatedNoise(rng)
    plan, third = (intervals.plan_total(family, share, "x") for share in (epsilon, epsilon / 3))
    published = with_noise(noise, plan, intervals.family_totals(plan, family, records), "simulated")
    totals = intervals.family_totals(third, family, records)
    parts = [with_noise(noise, third, totals, "simulated") for _ in range(3)]
    ends = {
        "noise-aware": intervals.noise_aware_ends(rng, published, family, 0.95, DRAWS),
        "bootstrap": intervals.bootstrap_ends(rng, published, family, 0.95, 1000),
        "multiple": intervals.multiple_ends(parts, family, 0.95),
    }
    if isinstance(family, SummarisedFamily):
        guarantee = PureDP(epsilon, neighbours="replace_one")
        summary = plan_summary(family, len(records), guarantee, "x")
        cells = summary.cells(*family.summary(family.summary_totals(records), len(records)))
        ends["centre-scale"] = summary.ends(summary.drawn(noise, cells), 0.95)
    return ends


def simulated_pp_quantile(
    rng: np.random.Generator, draws: np.ndarray, q: float, bounds: Ends, epsilon: float
) -> float:
    """Draw from the law of `pp_quantile` in floats."""
    edges = np.concatenate([bounds[:1], np.sort(np.clip(draws, *bounds)), bounds[1:]])
    ranks, target = np.arange(len(edges) - 1), np.ceil(q * len(draws))
    weights = np.diff(edges) * np.exp(-epsilon * np.abs(ranks - target) / (2 * (len(draws) + 1)))
    gap = rng.choice(len(weights), p=weights / weights.sum())
    return float(rng.uniform(edges[gap], edges[gap + 1]))


def all_ends(rng: np.random.Generator, task: Task, size: int, epsilon: float) -> dict[str, Ends]:
    """Simulate records, and return the interval of every method."""
    records = task.simulate(rng, size)
    posterior = task.posterior(records)
    samples = size // 2
    draws = posterior.rvs(samples, random_state=rng)
    limits = {"bounds": task.bounds, "density_bound": task.density_bound, "samples": samples}
    quantiles = partial(precise_quantiles, rng, draws, TAILS, epsilon=epsilon, **limits)
    pp = [simulated_pp_quantile(rng, draws, q, task.bounds, epsilon / 2) for q in TAILS]
    return {
        "no privacy": tuple(posterior.ppf(TAILS)),
        **{variant: tuple(quantiles(variant=variant)) for variant in VARIANTS},
        **proven_ends(rng, task.family, records, epsilon),
        "PPquantile": (pp[0], pp[1]),
    }


def run_cell(name: str, size: int, epsilon: float, repeats: int, seed: int) -> dict[str, Any]:
    """Return coverage and mean width of every method in one setting."""
    return _measure(all_ends, name, size, epsilon, repeats, seed)


def check_cell(name: str, size: int, epsilon: float, repeats: int, seed: int) -> dict[str, Any]:
    """Return the same of the proven methods alone, on other data sets than `run_cell`."""
    return _measure(_proven_of_new_records, name, size, epsilon, repeats, seed, "again")


def _proven_of_new_records(
    rng: np.random.Generator, task: Task, size: int, epsilon: float
) -> dict[str, Ends]:
    return proven_ends(rng, task.family, task.simulate(rng, size), epsilon)


def _measure(
    method_ends: Callable[[np.random.Generator, Task, int, float], dict[str, Ends]],
    name: str,
    size: int,
    epsilon: float,
    repeats: int,
    seed: int,
    *again: str,
) -> dict[str, Any]:
    task = TASKS[name]
    key = zlib.crc32(" ".join([name, str(size), str(epsilon), *again]).encode())
    rng = np.random.default_rng([seed, key])
    ends: dict[str, list[Ends]] = {}
    for _ in range(repeats):
        for method, pair in method_ends(rng, task, size, epsilon).items():
            ends.setdefault(method, []).append(pair)
    row: dict[str, Any] = {"task": name, "size": size, "epsilon": epsilon, "repeats": repeats}
    row["seed"] = seed
    for method, pairs in ends.items():
        low, high = np.array(pairs).T
        covered = (low <= task.truth) & (task.truth <= high)
        row[method] = [float(covered.mean()), float(np.abs(high - low).mean())]
    return row
