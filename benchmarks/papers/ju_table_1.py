"""Table 1 of Ju et al. (2022): coverage of 90% intervals; and the acceptance rates of Figure 1b.

    python -m benchmarks.papers.ju_table_1 [--replicates 100] [--workers 2] [--docs]

For each epsilon so many databases are drawn from the true parameters, each is released once, and
one chain is run for each release. An interrupted run goes on where it stopped.
"""

from __future__ import annotations

import argparse
from functools import cache

import numpy as np
from scipy import stats

import pymc_privacy as pmp
from benchmarks.papers import naive_bayes
from benchmarks.papers.inputs import CLASS_PROBABILITIES
from benchmarks.papers.inputs import naive_bayes as truth
from benchmarks.papers.pages import Row, command, grouped, markdown, remarks

EPSILONS = (0.1, 0.3, 1.0, 3.0, 10.0)
PAPER_REPLICATES = 100
PAPER = {
    0.1: (1, 1, 1, 0.36, 1),
    0.3: (0.97, 1, 1, 0.59, 1),
    1.0: (0.94, 0.99, 0.97, 0.83, 0.98),
    3.0: (0.95, 0.91, 0.97, 0.89, 0.93),
    10.0: (0.92, 0.88, 0.94, 0.92, 0.9),
}
FALSE_ALARM = 0.01  # of the whole table


def study(options: argparse.Namespace) -> pmp.Study:
    """Return the study behind the table."""
    grid = {"epsilon": options.epsilons, "draws": [options.draws], "tune": [options.tune]}
    return pmp.Study(
        naive_bayes.coverage,
        grid,
        replicates=options.replicates,
        seed=options.seed,
        path=options.output / "ju_table_1.jsonl",
    )


@cache
def p_value(ours: int, replicates: int, theirs: int) -> float:
    """Return how likely two coverages are so far apart when they are equal (Fisher's test)."""
    missed = [[ours, replicates - ours], [theirs, PAPER_REPLICATES - theirs]]
    return float(stats.fisher_exact(missed).pvalue)


def table(rows: list[Row], options: argparse.Namespace) -> str:
    """Lay out coverage beside the paper's, acceptance beside its bound, and a verdict on both."""
    groups = grouped(rows, "epsilon")
    lines, rates, smallest = [], [], 1.0
    for epsilon, group in groups.items():
        covered = np.array([row["covered"] for row in group])
        cells = []
        for column, published in zip(covered.T, PAPER[epsilon], strict=True):
            theirs = round(published * PAPER_REPLICATES)
            smallest = min(smallest, p_value(int(column.sum()), len(column), theirs))
            error = np.sqrt(column.mean() * (1 - column.mean()) / len(column))
            cells.append(f"{column.mean():.2f} ± {error:.2f} ({published:g})")
        lines.append([f"{epsilon:g}", *cells])
        average = np.mean([row["accept"] for row in group])
        rates.append((epsilon, average, min(row["accept_min"] for row in group), np.exp(-epsilon)))
    header = ["epsilon", *(f"p{k + 1} = {p:.3f}" for k, p in enumerate(CLASS_PROBABILITIES))]
    tests = len(lines) * len(CLASS_PROBABILITIES)
    agrees = smallest * tests > FALSE_ALARM
    bounded = all(lowest >= bound * (1 - 1e-9) for _, _, lowest, bound in rates)
    caption = (
        f"Coverage of 90% intervals ± Monte Carlo error (paper: {PAPER_REPLICATES} replicates) "
        f"over {max(map(len, groups.values()))} databases for each epsilon, {options.draws} draws "
        f"after {options.tune} of each chain; parameters {truth().source}.{remarks(rows)}"
    )
    verdict = (
        f"**{'Agrees' if agrees else 'Differs'}.** The smallest of {tests} p-values of Fisher's "
        f"exact test is {smallest:.3f}. The bound exp(-epsilon) of Proposition 3.1 "
        f"{'holds in every sweep' if bounded else 'IS BROKEN'}:"
    )
    acceptance = markdown(
        ["epsilon", "accepted on average", "smallest probability", "bound"],
        [[f"{epsilon:g}", *(f"{rate:.3g}" for rate in three)] for epsilon, *three in rates],
    )
    return "\n\n".join([caption, markdown(header, lines), verdict, acceptance])


if __name__ == "__main__":
    command(
        __doc__.splitlines()[0],
        study,
        table,
        "ju table 1",
        replicates=PAPER_REPLICATES,
        epsilons=EPSILONS,
        draws=5000,
        tune=5000,
    )
