"""Figure 2 of Ju et al. (2022), in numbers: posterior means of the coefficients against epsilon.

    python -m benchmarks.papers.ju_figure_2 [--replicates 100] [--docs]

The confidential database is held fixed. For each epsilon it is released many times, and the
posterior mean of each release is one point of the figure. The figure prints no numbers; what it
is said to show can be put to a test, and is.
"""

from __future__ import annotations

import argparse
import itertools

import numpy as np

import pymc_privacy as pmp
from benchmarks.papers import linear_regression
from benchmarks.papers.inputs import ROOT, regression
from benchmarks.papers.ju_figure_1 import draw
from benchmarks.papers.pages import Row, command, grouped, markdown, mean_and_error, remarks

EPSILONS = (0.1, 0.3, 1.0, 3.0, 10.0)
PICTURE = ROOT / "docs" / "images" / "ju-figure-2.png"


def study(options: argparse.Namespace) -> pmp.Study:
    """Return the study behind the figure."""
    grid = {"epsilon": options.epsilons, "draws": [options.draws], "tune": [options.tune]}
    return pmp.Study(
        linear_regression.posterior_mean,
        grid,
        replicates=options.replicates,
        seed=options.seed,
        path=options.output / "ju_figure_2.jsonl",
    )


def table(rows: list[Row], options: argparse.Namespace) -> str:
    """Lay out mean and spread of the posterior means, and whether they do what the paper says."""
    confidential = linear_regression.confidential_mean()
    lines, distances, bounded = [], [], True
    for epsilon, group in grouped(rows, "epsilon").items():
        means = np.array([row["mean"] for row in group])
        cells = []
        for column in means.T:
            mean, error = mean_and_error(column)
            cells.append(f"{mean:.2f} ± {error:.2f} ({column.std():.2f})")
        distance, error = mean_and_error(np.sqrt(((means - confidential) ** 2).sum(axis=1)))
        distances.append((distance, error))
        lowest = min(row["accept_min"] for row in group)
        bounded &= lowest >= np.exp(-epsilon) * (1 - 1e-9)
        accept = np.mean([row["accept"] for row in group])
        count = f"{len(group)}"
        numbers = [f"{distance:.2f} ± {error:.2f}", f"{accept:.3f}", count]
        lines.append([f"{epsilon:g}", *cells, *numbers])
    lines.append(["records", *(f"{value:.2f}" for value in confidential), "0", "", ""])
    falls = [
        (far[0] - near[0]) / np.hypot(far[1], near[1])
        for far, near in itertools.pairwise(distances)
    ]
    # The prior mean of the coefficients is 0.
    start = float(np.linalg.norm(confidential))
    toward_prior = abs(distances[0][0] - start) < 0.15 * start
    agrees = all(z > -3 for z in falls) and falls[-1] > 3 and toward_prior
    if getattr(options, "docs", False):
        draw(rows, confidential, 0.0, "beta ", PICTURE)
    caption = (
        "Posterior mean of each coefficient, averaged over releases ± Monte Carlo error (standard "
        f"deviation over releases; paper: 100 of them), {options.draws} draws after "
        f"{options.tune}; data {regression().source}.{remarks(rows)}"
    )
    header = ["epsilon", "beta 0", "beta 1", "beta 2", "distance from the last line"]
    header += ["accepted", "releases"]
    verdict = (
        f"**{'Agrees' if agrees else 'Differs'}** with what the paper says of its figure: with "
        "little epsilon the means lie at the prior's (at distance "
        f"{start:.2f} from the last line), with more they come closer to those given the records. "
        "From one epsilon to the next the distance falls by z = "
        f"{', '.join(f'{z:.1f}' for z in falls)} standard errors. The bound on the acceptance "
        f"{'holds in every sweep' if bounded else 'IS BROKEN'}."
    )
    return "\n\n".join([caption, markdown(header, lines), verdict])


if __name__ == "__main__":
    command(
        __doc__.splitlines()[0],
        study,
        table,
        "ju figure 2",
        replicates=100,
        epsilons=EPSILONS,
        draws=2000,
        tune=1000,
    )
