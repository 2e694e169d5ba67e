"""A noisy release of a survey, read as if it were exact and read as what it is.

A thousand people were asked how many hours of unpaid care they do in a week. Nobody outside
the office sees their answers: what is published is the sum and the sum of squares of the
answers, clipped to 0-40 hours, plus Laplace noise. Three posteriors of the mean and the standard
deviation are compared: one that takes the noisy sums at face value, one that knows the mechanism,
and the one that the confidential answers themselves would give.

    python examples/survey.py [--seed SEED] [--output demo.png]
"""

from __future__ import annotations

import argparse
from pathlib import Path

import arviz as az
import matplotlib as mpl
import numpy as np
import pandas as pd
import pymc as pm
import pytensor.tensor as pt
import xarray as xr
from matplotlib import pyplot as plt
from rich import box
from rich.console import Console
from rich.table import Table
from scipy.stats import gaussian_kde

import pymc_privacy as pmp

# Any seed will do: over many of them the naive 95% intervals miss the true standard deviation
# more than every second time and the true mean every third time, instead of one in twenty.
SEED = 42
SIZE = 1000
TRUTH = {"mu": 18.0, "sigma": 9.0}
LABELS = {"mu": "mean, hours a week", "sigma": "standard deviation, hours a week"}

# With answers recoded to [-1, 1], replacing one record moves (sum, sum of squares) by at most
# 2.25 in L1 distance: from (1, 1) to (-1/2, 1/4).
MECHANISM = pmp.Laplace(epsilon=0.1, sensitivity=2.25, neighbours="replace_one")

# Colours of Okabe and Ito, which colour-blind readers can tell apart.
COLOURS = {"confidential": "#666666", "naive": "#D55E00", "privatized": "#0072B2"}
LEGEND = {
    "confidential": "confidential answers (nobody outside sees this)",
    "naive": "naive: the release taken as exact",
    "privatized": "privatized: the release with its mechanism",
}


def recode(hours):
    """Clip hours to 0-40 and map them to [-1, 1]; works on arrays and on tensors."""
    return (hours.clip(0, 40) - 20) / 20


def publish(rng: np.random.Generator, hours: np.ndarray) -> np.ndarray:
    """Return the noisy sums. A real office would draw the noise from a secure source."""
    answers = recode(hours)
    return MECHANISM.simulate(rng, [answers.sum(), (answers**2).sum()])


def priors():
    """Add the parameters to the model on the context stack."""
    return pm.Normal("mu", 20, 10), pm.Gamma("sigma", mu=10, sigma=5)


def fit_confidential(hours: np.ndarray, seed: int) -> xr.DataTree:
    """Return the posterior given the answers, which an analyst does not have."""
    with pm.Model():
        mu, sigma = priors()
        pm.Normal("hours", mu, sigma, observed=hours)
        return pm.sample(random_seed=seed, chains=4, nuts_sampler="pymc", quiet=True)


def fit_naive(release: np.ndarray, seed: int) -> xr.DataTree:
    """Return the posterior that takes the release for exact sufficient statistics."""
    total, squares = release
    with pm.Model():
        mu, sigma = priors()
        mean, spread = (mu - 20) / 20, sigma / 20
        residual = squares - 2 * mean * total + SIZE * mean**2
        pm.Potential("normal", -SIZE * pt.log(spread) - residual / (2 * spread**2))
        return pm.sample(random_seed=seed, chains=4, nuts_sampler="pymc", quiet=True)


def fit_privatized(release: np.ndarray, seed: int, **kwargs) -> xr.DataTree:
    """Return the posterior given the release: the model says how it came about."""
    with pm.Model():
        mu, sigma = priors()
        hours = pm.Normal("hours", mu, sigma, shape=SIZE)  # latent: nobody outside saw them
        answers = recode(hours)
        contributions = pt.stack([answers, answers**2], axis=1)
        pmp.Privatized("release", contributions, MECHANISM, observed=release)
        return pmp.sample(2000, chains=4, random_seed=seed, **kwargs)


def summarise(posteriors: dict[str, xr.DataTree]) -> pd.DataFrame:
    """Return the ArviZ summaries under each other, with the truth beside them."""
    tables = {
        name: az.summary(posterior, ci_prob=0.95, ci_kind="eti", round_to="none")
        for name, posterior in posteriors.items()
    }
    summary = pd.concat(tables, names=["posterior", "parameter"]).astype(float)
    summary["truth"] = summary.index.get_level_values("parameter").map(TRUTH)
    summary["covered"] = summary["truth"].between(summary["eti95_lb"], summary["eti95_ub"])
    return summary


def show(summary: pd.DataFrame) -> None:
    """Print the table, and in a sentence what it shows."""
    table = Table(title="Hours of unpaid care in a week", box=box.HORIZONTALS, padding=(0, 1, 0, 0))
    columns = (
        "",
        "truth",
        "posterior",
        "mean",
        "sd",
        "2.5%",
        "97.5%",
        "truth\ninside",
        "ess\nbulk",
    )
    for column in (*columns, "r_hat"):
        justify = "left" if column in ("", "posterior") else "right"
        table.add_column(column, justify=justify, no_wrap=True, vertical="bottom")
    for parameter, truth in TRUTH.items():
        for name in COLOURS:
            row = summary.loc[(name, parameter)]
            table.add_row(
                *((parameter, f"{truth:.1f}") if name == "confidential" else ("", "")),
                name,
                f"{row['mean']:.2f}",
                f"{row['sd']:.2f}",
                f"{row['eti95_lb']:.2f}",
                f"{row['eti95_ub']:.2f}",
                "yes" if row["covered"] else "[bold]no[/bold]",
                f"{row['ess_bulk']:.0f}",
                f"{row['r_hat']:.3f}",
            )
        table.add_section()
    console = Console()
    console.print(table)
    console.print(
        f"The naive 95% intervals contain {_covered(summary, 'naive')}; "
        f"the privatized ones contain {_covered(summary, 'privatized')}.",
        soft_wrap=True,
    )


def _covered(summary: pd.DataFrame, name: str) -> str:
    inside = [parameter for parameter in TRUTH if summary.loc[(name, parameter), "covered"]]
    if not inside:
        return "neither true value"
    return "both true values" if len(inside) == 2 else f"the true {inside[0]} only"


def draw(posteriors: dict[str, xr.DataTree], summary: pd.DataFrame, output: Path) -> None:
    """Write a picture of the three posteriors, with their 95% intervals below."""
    mpl.use("Agg")
    figure, axes = plt.subplots(1, len(TRUTH), figsize=(9, 4.2), layout="constrained")
    for axis, (parameter, truth) in zip(axes, TRUTH.items(), strict=True):
        for row, (name, colour) in enumerate(COLOURS.items()):
            values = posteriors[name].posterior[parameter].values.ravel()
            grid = np.linspace(*np.quantile(values, [0.0005, 0.9995]), 300)
            density = gaussian_kde(values, bw_method=0.25)(grid)
            axis.fill_between(grid, density, color=colour, alpha=0.12, lw=0)
            axis.plot(grid, density, color=colour, lw=2, label=LEGEND[name])
            interval = summary.loc[(name, parameter), ["eti95_lb", "eti95_ub"]]
            # In units of the axes' height, below the curves.
            axis.plot(
                interval,
                [0.15 - 0.05 * row] * 2,
                transform=axis.get_xaxis_transform(),
                color=colour,
                lw=4,
                solid_capstyle="butt",
            )
        axis.set_ylim(bottom=-0.25 * axis.get_ylim()[1])
        axis.axvline(truth, color="black", lw=1.2, ls="--", label="truth")
        axis.set_xlabel(LABELS[parameter])
        axis.set_yticks([])
        axis.spines[["left", "top", "right"]].set_visible(False)
    handles, labels = axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=2, frameon=False)
    figure.suptitle("A noisy release, read as exact and read as noisy (bars: 95% intervals)")
    figure.savefig(output, dpi=120)


def main() -> None:
    """Simulate the survey, fit the three models, and show them."""
    parser = argparse.ArgumentParser(description="Compare posteriors from a noisy release.")
    parser.add_argument("--seed", type=int, default=SEED)
    parser.add_argument("--output", type=Path, default=Path("demo.png"))
    options = parser.parse_args()

    rng = np.random.default_rng(options.seed)
    hours = rng.normal(TRUTH["mu"], TRUTH["sigma"], SIZE)
    release = publish(rng, hours)
    print(f"The release: {release.round(1).tolist()}, under {MECHANISM.guarantee}.")
    posteriors = {
        "confidential": fit_confidential(hours, options.seed),
        "naive": fit_naive(release, options.seed),
        "privatized": fit_privatized(release, options.seed),
    }
    summary = summarise(posteriors)
    show(summary)
    draw(posteriors, summary, options.output)
    print(f"Wrote {options.output}.")


if __name__ == "__main__":
    main()
