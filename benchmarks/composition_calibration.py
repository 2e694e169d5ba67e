"""Simulation-based calibration of compositions: a fixed threshold, and one chosen by counts.

    python -m benchmarks.composition_calibration [--releases 500] [--docs]

Parameters from the prior, records, a release: the rank of each parameter among its posterior draws
is uniform. Chains start at another draw from the prior. Where a threshold is chosen, counts and
logarithms are both in the model, and there is a model for each threshold. Models are compiled once.
"""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np
import pymc as pm
from scipy import stats

import pymc_privacy as pmp
from benchmarks.papers.inputs import ROOT
from benchmarks.papers.pages import Row, command, markdown, remarks

PAGE = ROOT / "docs" / "exactness.md"
SIZE, PARTS, EPSILON, THRESHOLDS, FIXED = 80, 3, 2.0, (0.001, 0.05), 0.1
PRIOR = (2.0, 0.5)  # shape and rate of gamma laws
BURN, KEPT, THIN = 60, 49, 2


def written(threshold: float, *, counts: bool) -> pm.Model:
    """Write the model of one threshold, with data that can be set anew."""
    share = 0.75 if counts else 1.0
    scale = pmp.log_share_sensitivity(PARTS, threshold) / (share * EPSILON)
    with pm.Model() as model:
        alpha = pm.Gamma("alpha", *PRIOR, shape=PARTS)
        x = pm.Dirichlet("x", alpha, shape=(SIZE, PARTS))
        logs = pm.Data("logs_data", np.zeros(PARTS))
        pmp.Privatized(
            "logs", pmp.log_shares(x, threshold), pmp.Laplace(scale=scale), observed=logs
        )
        if counts:
            noise = pmp.DiscreteLaplace(epsilon=0.25 * EPSILON, sensitivity=2.0)
            data = pm.Data("counts_data", np.zeros(len(THRESHOLDS) + 1, dtype=np.int64))
            bins = pmp.smallest_share_bins(x, THRESHOLDS)
            pmp.Privatized("counts", bins, noise, observed=data)
    return model


class Chain:
    """A model and its sampler, tuned on releases of its own prior."""

    def __init__(self, threshold: float, *, counts: bool, rng: np.random.Generator):
        self.threshold, self.counts, self.rng = threshold, counts, rng
        self.model = written(threshold, counts=counts)
        self.step = pmp.Interweave(model=self.model, rng=rng.spawn(1)[0])
        point = self.started()
        for k in range(400):
            if k % 20 == 0:
                self.publish(*simulated(self.rng, counts=counts)[1:])
            point, _ = self.step.step(point)
        self.step.stop_tuning()

    def publish(self, logs: dict[float, np.ndarray], counts: np.ndarray | None) -> None:
        """Set what was published."""
        self.model["logs_data"].set_value(logs[self.threshold])
        if counts is not None:
            self.model["counts_data"].set_value(counts)

    def started(self) -> dict[str, np.ndarray]:
        """Return parameters from the prior, with records that fit them."""
        alpha = self.rng.gamma(PRIOR[0], 1 / PRIOR[1], PARTS)
        records = self.rng.dirichlet(alpha, SIZE)
        # The transforms of PyMC: logarithms; those of shares about their mean, without the last.
        logs = np.log(np.maximum(records, 1e-300))
        centred = logs - logs.mean(axis=1, keepdims=True)
        values = {"alpha": np.log(alpha), "x": centred[:, :-1]}
        return {
            self.model.rvs_to_values[self.model[name]].name: value for name, value in values.items()
        }

    def ranks(self, truth: np.ndarray) -> list[int]:
        """Return how many posterior draws of each parameter are below the truth."""
        point, below = self.started(), np.zeros(PARTS + 1, dtype=int)
        [name] = [name for name in point if name.startswith("alpha")]
        for k in range(BURN + KEPT * THIN):
            point, _ = self.step.step(point)
            if k >= BURN and (k - BURN) % THIN == THIN - 1:
                alpha = np.exp(point[name])
                below += np.append(alpha < truth, alpha.sum() < truth.sum())
        return below.tolist()


def simulated(
    rng: np.random.Generator, *, counts: bool
) -> tuple[np.ndarray, dict[float, np.ndarray], np.ndarray | None]:
    """Return parameters, and what would be published with each threshold."""
    truth = rng.gamma(PRIOR[0], 1 / PRIOR[1], PARTS)
    table = rng.dirichlet(truth, SIZE)
    share = 0.75 if counts else 1.0
    logs = {}
    for threshold in THRESHOLDS if counts else (FIXED,):
        scale = pmp.log_share_sensitivity(PARTS, threshold) / (share * EPSILON)
        exact = pmp.log_shares(table, threshold).sum(axis=0)
        logs[threshold] = exact + rng.laplace(0, scale, PARTS)
    if not counts:
        return truth, logs, None
    noise = pmp.DiscreteLaplace(epsilon=0.25 * EPSILON, sensitivity=2.0)
    exact = pmp.smallest_share_bins(table, THRESHOLDS).sum(axis=0)
    return truth, logs, noise.simulate(rng, exact)


def calibrate(rng: np.random.Generator, chosen: bool, releases: int) -> dict[str, Any]:
    """Return ranks of the parameters and of their sum, one list for each release."""
    thresholds = THRESHOLDS if chosen else (FIXED,)
    models = {t: Chain(t, counts=chosen, rng=rng) for t in thresholds}
    ranks, used = [], []
    for _ in range(releases):
        truth, logs, counts = simulated(rng, counts=chosen)
        threshold = FIXED
        if counts is not None:
            threshold = pmp.select_threshold(counts, THRESHOLDS, censored=0.05)
        models[threshold].publish(logs, counts)
        ranks.append(models[threshold].ranks(truth))
        used.append(threshold)
    return {"ranks": ranks, "thresholds": used}


def p_values(ranks: np.ndarray) -> list[float]:
    """Return the chi-square p-value of ten bins of each column."""
    bins = ranks * 10 // (KEPT + 1)
    counts = [np.bincount(column, minlength=10) for column in bins.T]
    return [float(stats.chisquare(count).pvalue) for count in counts]


def study(options: argparse.Namespace) -> pmp.Study:
    """Return the study of both cases."""
    grid = [{"chosen": chosen, "releases": options.releases} for chosen in (False, True)]
    path = options.output / "composition_calibration.jsonl"
    replicates, seed = options.replicates, options.seed
    return pmp.Study(calibrate, grid, replicates=replicates, seed=seed, path=path)


def table(rows: list[Row], options: argparse.Namespace) -> str:
    """Lay out p-values of uniform ranks."""
    lines, worst = [], 1.0
    for row in (row for row in rows if row["error"] is None):
        values = p_values(np.array(row["ranks"]))
        worst = min(worst, *values)
        shares = [np.mean(np.array(row["thresholds"]) == t) for t in THRESHOLDS]
        how = "fixed at 0.1"
        if row["chosen"]:
            how = "chosen: " + ", ".join(
                f"{t:g} in {s:.0%}" for t, s in zip(THRESHOLDS, shares, strict=True)
            )
        lines.append([how, len(row["ranks"]), *[f"{p:.3f}" for p in values]])
    header = ["threshold", "releases", "alpha 1", "alpha 2", "alpha 3", "sum"]
    caption = (
        f"P-values (chi-square, ten bins) of ranks of the truth among {KEPT} posterior draws, "
        f"{SIZE} records of {PARTS} shares, epsilon {EPSILON:g}.{remarks(rows)}"
    )
    verdict = "**Calibrated**" if worst > 0.001 else "**Not calibrated**"
    return "\n\n".join(
        [caption, markdown(header, lines), f"{verdict}: the smallest is {worst:.3f}."]
    )


if __name__ == "__main__":
    command(
        __doc__.splitlines()[0],
        study,
        table,
        "composition calibration",
        replicates=1,
        page=PAGE,
        releases=500,
    )
