"""Figure 1a of Ju et al. (2022): posterior means of the class probabilities against epsilon.

    python -m benchmarks.papers.ju_figure_1 [--replicates 100] [--docs]

One database is drawn from the true parameters and held fixed. For each epsilon it is released many
times; the posterior mean of each release is one point. The figure prints no numbers; what it is
said to show is put to a test: means lie at the prior's for small epsilon, and at those given the
records for large epsilon. With ``--docs`` the picture is drawn too. A run goes on where it stopped.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np

import pymc_privacy as pmp
from benchmarks.papers import naive_bayes
from benchmarks.papers.inputs import CLASSES, RECORDS, ROOT
from benchmarks.papers.inputs import naive_bayes as truth
from benchmarks.papers.pages import Row, command, grouped, markdown, mean_and_error, remarks

EPSILONS = (0.1, 0.3, 1.0, 3.0, 10.0)
DATABASE = 2022  # the seed of the database that is held fixed
PRIOR_MEAN = 1 / CLASSES
PICTURE = ROOT / "docs" / "images" / "ju-figure-1a.png"
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00")


def counts() -> np.ndarray:
    """Return the counts of the database that is held fixed."""
    given, rng = truth(), np.random.default_rng(DATABASE)
    return naive_bayes.draw_contributions(rng, given.classes, given.tables, RECORDS).sum(axis=1)


def confidential_mean() -> np.ndarray:
    """Return the posterior means of the class probabilities given the records themselves."""
    members = counts().reshape(naive_bayes.SHAPE)[0].sum(axis=-1)
    return (naive_bayes.PRIOR + members) / (naive_bayes.PRIOR * CLASSES + RECORDS)


def posterior_mean(
    rng: np.random.Generator, epsilon: float, draws: int, tune: int
) -> dict[str, Any]:
    """Release the counts once, fit, and return the posterior means."""
    released = naive_bayes.mechanism(epsilon).simulate(rng, counts())
    chain = naive_bayes.sample(rng, released, epsilon, draws=draws, tune=tune)
    return {"mean": chain.p.mean(axis=0), "accept_min": chain.accept_min.min()}


def study(options: argparse.Namespace) -> pmp.Study:
    """Return the study behind the figure."""
    grid = {"epsilon": options.epsilons, "draws": [options.draws], "tune": [options.tune]}
    return pmp.Study(
        posterior_mean,
        grid,
        replicates=options.replicates,
        seed=options.seed,
        path=options.output / "ju_figure_1.jsonl",
    )


def draw(rows: list[Row], known: np.ndarray, prior: float, name: str, picture: Path) -> None:
    """Draw the points, the means given the records (solid), and the prior's (dashed)."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axis = plt.subplots(figsize=(7, 3.6), layout="constrained")
    groups = grouped(rows, "epsilon")
    for k, (colour, value) in enumerate(zip(COLOURS, known, strict=False)):
        for place, group in enumerate(groups.values()):
            means = np.array([row["mean"][k] for row in group])
            x = place + (k - (len(known) - 1) / 2) * 0.15 + np.linspace(-0.05, 0.05, len(means))
            axis.plot(x, means, ".", ms=3, color=colour, label=None if place else f"{name}{k}")
        axis.axhline(value, color=colour, lw=1)
    axis.axhline(prior, color="#666666", lw=1, ls="--")
    axis.set_xticks(range(len(groups)), [f"{epsilon:g}" for epsilon in groups])
    axis.set(xlabel="epsilon", ylabel="posterior mean")
    figure.legend(loc="outside upper center", frameon=False, ncols=CLASSES, markerscale=3)
    figure.savefig(picture, dpi=110)
    plt.close(figure)


def table(rows: list[Row], options: argparse.Namespace) -> str:
    """Lay out mean and spread of the posterior means, and whether they do what the paper says."""
    known = confidential_mean()
    start = float(np.linalg.norm(PRIOR_MEAN - known))
    groups = grouped(rows, "epsilon")
    lines, distances, bounded = [], [], True
    for epsilon, group in groups.items():
        means = np.array([row["mean"] for row in group])
        cells = []
        for column in means.T:
            mean, error = mean_and_error(column)
            cells.append(f"{mean:.3f} ± {error:.3f} ({column.std():.3f})")
        distances.append(mean_and_error(np.linalg.norm(means - known, axis=1)))
        bounded &= min(row["accept_min"] for row in group) >= np.exp(-epsilon) * (1 - 1e-9)
        distance, error = distances[-1]
        lines.append([f"{epsilon:g}", *cells, f"{distance:.3f} ± {error:.3f}"])
    lines.append(["records", *(f"{value:.3f}" for value in known), "0"])
    (first, first_error), (last, last_error) = distances[0], distances[-1]
    agrees = abs(first - start) < 0.15 * start and first - last > 3 * np.hypot(
        first_error, last_error
    )
    if options.docs:
        draw(rows, known, PRIOR_MEAN, "p ", PICTURE)
    caption = (
        "Posterior mean of each class probability, averaged over releases ± Monte Carlo error "
        f"(standard deviation over releases), of {max(map(len, groups.values()))} releases of one "
        f"database for each epsilon (paper: 100), {options.draws} draws after {options.tune}; "
        f"parameters {truth().source}.{remarks(rows)}"
    )
    header = ["epsilon", *(f"p{k + 1}" for k in range(CLASSES)), "distance from the last line"]
    verdict = (
        f"**{'Agrees' if agrees else 'Differs'}** with what the paper says of its figure: with "
        f"little epsilon the means lie at the prior's (at distance {start:.3f} from the last "
        "line), with much they come near those given the records. The bound on the acceptance "
        f"{'holds in every sweep' if bounded else 'IS BROKEN'}."
    )
    return "\n\n".join([caption, markdown(header, lines), verdict])


if __name__ == "__main__":
    command(
        __doc__.splitlines()[0],
        study,
        table,
        "ju figure 1a",
        replicates=100,
        epsilons=EPSILONS,
        draws=5000,
        tune=5000,
    )
