"""Table 1 of the paper, simulated from the Normal law that was fitted to its incomes.

    python -m benchmarks.papers.yildirim.incomes [--replicates 5] [--docs]

The incomes are not to be had, and the paper prints neither epsilon nor prior: epsilon is 1, at
which the spread of its MCMC is what it should be, and the prior that of the simulated experiment.
"""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np

import pymc_privacy as pmp
from benchmarks.papers.pages import Row, command, grouped, markdown, remarks
from benchmarks.papers.yildirim.simulated import rmse
from benchmarks.papers.yildirim.streams import INCOMES, learn

USERS = 3982
METHODS = ("harmonic interval", "intervals with memory", "bins for both", "fixed ±5 sd")
PUBLISHED = {
    "SMC-adaptive": (
        (50.3756, 55.0282, 53.5980, 46.6303, 48.3601),
        (13.6397, 9.0344, 10.2802, 20.5239, 15.7926),
    ),
    "SMC-nonadaptive": (
        (51.8790, 535.2168, 48.4388, 51.8498, 51.4870),
        (4.8232, 1.6814, 2.6478, 2.0033, 2.4522),
    ),
    "MCMC": (
        (49.6149, 46.7601, 49.3032, 51.6290, 53.4291),
        (2.1333, 1.6139, 1.4627, 3.6181, 1.6269),
    ),
}


def replicate(
    rng: np.random.Generator, method: str, epsilon: float, users: int, draws: int
) -> dict[str, float]:
    """Return what one stream learns."""
    return learn(rng, method, epsilon, INCOMES, users=users, draws=draws)


def study(options: argparse.Namespace) -> pmp.Study:
    """Return the study behind the table."""
    grid: dict[str, Any] = {
        "method": METHODS,
        "epsilon": [options.epsilon],
        "users": [options.users],
        "draws": [options.draws],
    }
    return pmp.Study(
        replicate,
        grid,
        replicates=options.replicates,
        seed=options.seed,
        path=options.output / "yildirim_incomes.jsonl",
    )


def table(rows: list[Row], options: argparse.Namespace) -> str:
    """Lay out our streams beside the published runs."""
    lines = []
    for name, columns in PUBLISHED.items():
        errors = [f"{rmse(c, t):.2f}" for c, t in zip(columns, INCOMES, strict=True)]
        correlation = f"{np.corrcoef(*columns)[0, 1]:.2f}, of the runs"
        lines.append([f"{name}, as printed", errors[0], "", errors[1], "", correlation])
    groups = grouped(rows, "method")
    for method in METHODS:
        runs = groups.get(method, [])
        if runs:
            got = {
                name: np.array([run[name] for run in runs]) for name in runs[0] if name in _SHOWN
            }
            lines.append(
                [
                    method,
                    f"{rmse(got['mu'], INCOMES[0]):.2f}",
                    f"{got['mu_sd'].mean():.2f}",
                    f"{rmse(got['sigma'], INCOMES[1]):.2f}",
                    f"{got['sigma_sd'].mean():.2f}",
                    f"{got['correlation'].mean():.2f}",
                ]
            )
    header = ["queries", "mu: rmse", "sd", "sigma: rmse", "sd", "correlation"]
    count = max(map(len, groups.values()), default=0)
    caption = (
        f"Root mean squared errors from mu = {INCOMES[0]} and sigma = {INCOMES[1]}: five runs as "
        f"printed, and {count} of ours for each way to ask {options.users} users, simulated, at "
        f"epsilon {options.epsilon:g} with {options.draws} particles.{remarks(rows)}"
    )
    return "\n\n".join([caption, markdown(header, lines), _verdict(groups)])


_SHOWN = ("mu", "mu_sd", "sigma", "sigma_sd", "correlation")


def _verdict(groups: dict[Any, list[Row]]) -> str:
    """Compare what the harmonic score and bins make of the correlation and of sigma."""
    if not {"harmonic interval", "bins for both"} <= groups.keys():
        return "**Unfinished.**"
    tied = np.mean([abs(run["correlation"]) for run in groups["harmonic interval"]])
    free = np.mean([abs(run["correlation"]) for run in groups["bins for both"]])
    agrees = tied > 0.7 > 0.3 > free
    return (
        f"**{'Agrees' if agrees else 'Differs'}** with the reading that the harmonic score does "
        "not tell mu from sigma at this epsilon: the posterior correlation has size "
        f"{tied:.2f} under it and {free:.2f} with bins; the five printed pairs lie on a line, too. "
        "One printed mean, 535, is no posterior mean of such data."
    )


if __name__ == "__main__":
    command(
        __doc__.splitlines()[0],
        study,
        table,
        "yildirim incomes",
        replicates=5,
        epsilon=1.0,
        users=USERS,
        draws=500,
    )
