"""Simulation-based calibration of compositions: ranks of the truth among draws given its release.

    python -m benchmarks.calibration [--replicates 500] [--docs]

Parameters are drawn from their prior, records given them, releases given the records, by the
library; where the posterior is right, the truth has each rank among its draws as often as any other
(Talts et al., 2018). A model is compiled once for each threshold, and its releases are set anew.
Of each model there is a twin that is wrong on purpose.
"""

from __future__ import annotations

import argparse
import warnings
from functools import cache
from typing import Any

import numpy as np
import pymc as pm
from scipy import stats

import pymc_privacy as pmp
from benchmarks.measuring import QUIET
from benchmarks.papers.inputs import ROOT
from benchmarks.papers.pages import Row, command, markdown, remarks
from pymc_privacy.errors import InsecureNoiseWarning
from pymc_privacy.model.settable import with_settable_data

PAGE = ROOT / "docs" / "exactness.md"
SIZE, PARTS, EPSILON = 20, 2, 2.0
THRESHOLDS = (0.01, 0.1)
TUNE, DRAWS, EVERY = 100, 150, 10
LEAST_P = 1e-3
TOO_SMALL = 4
KINDS = {
    "fixed": "fixed threshold",
    "fixed, twin": "the same, twin: noise of a quarter of the scale",
    "chosen": "chosen threshold, counts and logarithms",
    "chosen, twin": "the same, twin: noise of a quarter of the scale",
}


def published(rng: np.random.Generator, shares: np.ndarray, kind: str) -> Any:
    """Release a table as a curator would, without what makes the noise secure."""
    how = (
        {"threshold": THRESHOLDS[-1]}
        if kind.startswith("fixed")
        else {"thresholds": list(THRESHOLDS), "censored": 0.1, "selection": 0.5}
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", InsecureNoiseWarning)
        return pmp.simulate_composition(
            rng, shares, epsilon=EPSILON, neighbours="replace_one", name="day", **how
        )


class _Fit:
    """A model of releases of one kind, compiled, with values that can be set."""

    def __init__(self, kind: str, first: Any):
        with pm.Model() as model:
            alpha = pm.Gamma("alpha", 1, 0.1, shape=PARTS)
            x = pm.Dirichlet("x", alpha, shape=(SIZE, PARTS))
            if kind.endswith("twin"):
                self._wrong(x, first)
            else:
                pmp.PrivatizedComposition("day", x, first)
        self.model, self.data = with_settable_data(model)
        with self.model:
            self.step = pmp.Interweave()

    @staticmethod
    def _wrong(x: Any, first: Any) -> None:
        """Write the releases of a composition as if less noise had been added to them."""
        noise = pmp.Laplace(scale=first.logs.scale / TOO_SMALL)
        logs = pmp.log_shares(x, first.threshold)
        pmp.Privatized("day", logs, noise, observed=first.logs.value)
        if first.counts is not None:
            bins = pmp.smallest_share_bins(x, THRESHOLDS)
            noise = pmp.DiscreteLaplace(scale=first.counts.scale / TOO_SMALL)
            pmp.Privatized("day_counts", bins, noise, observed=first.counts.value)

    def ranks(self, rng: np.random.Generator, release: Any, truth: np.ndarray) -> np.ndarray:
        """Return the rank of each parameter among draws given another release."""
        values = {"day": release.logs.value}
        if "day_counts" in self.data:
            values["day_counts"] = release.counts.value
        for name, value in values.items():
            self.data[name].set_value(np.asarray(value, dtype=self.data[name].type.dtype))
        with self.model:
            result = pm.sample(
                DRAWS,
                tune=TUNE,
                chains=1,
                step=self.step,
                random_seed=int(rng.integers(2**31)),
                **QUIET,
            )
        draws = result["posterior"]["alpha"].values[0, EVERY - 1 :: EVERY]
        return (draws < truth).sum(axis=0)


@cache
def _fit(kind: str, threshold: float) -> _Fit:
    """Compile the model of a threshold; what its first releases are does not matter."""
    seeds = np.random.default_rng(7)
    while True:
        shares = seeds.dirichlet([1.0, 1.0 + 40 * seeds.random()], SIZE)
        first = published(seeds, shares, kind)
        if first.threshold == threshold:
            return _Fit(kind, first)


def replicate(rng: np.random.Generator, kind: str) -> dict[str, Any]:
    """Publish a database drawn from the prior, fit it, and rank the truth."""
    truth = rng.gamma(1.0, 10.0, PARTS)
    release = published(rng, rng.dirichlet(truth, SIZE), kind)
    ranks = _fit(kind, release.threshold).ranks(rng, release, truth)
    return {"threshold": release.threshold, "ranks": ranks.tolist()}


def study(options: argparse.Namespace) -> pmp.Study:
    """Return the study."""
    path = options.output / "calibration.jsonl"
    grid = {"kind": list(KINDS)}
    return pmp.Study(replicate, grid, replicates=options.replicates, seed=options.seed, path=path)


def p_value(ranks: np.ndarray) -> float:
    """Return the probability of ranks less even than these, if all are as likely."""
    counts = np.bincount(ranks, minlength=DRAWS // EVERY + 1)
    return float(stats.chisquare(counts).pvalue)


def table(rows: list[Row], options: argparse.Namespace) -> str:
    """Lay out p-values, and say which models pass."""
    lines, passed = [], {}
    for kind, words in KINDS.items():
        good = [row for row in rows if row["error"] is None and row["kind"] == kind]
        if not good:
            continue
        found = [p_value(ranks) for ranks in np.array([row["ranks"] for row in good]).T]
        passed[kind] = min(found) > LEAST_P
        lines.append([words, len(good), *(f"{p:.2g}" for p in found)])
    right = [kind for kind in passed if "twin" not in kind]
    seen = [kind for kind in passed if "twin" in kind and not passed[kind]]
    caption = (
        f"{SIZE} records of {PARTS} shares, epsilon {EPSILON:g}, prior Gamma(1, 0.1); "
        f"{DRAWS // EVERY} draws of each posterior, every {EVERY}th of {DRAWS} after {TUNE}. "
        f"Chi-square over all {DRAWS // EVERY + 1} ranks.{remarks(rows)}"
    )
    header = ["model", "releases", *(f"p, alpha {k + 1}" for k in range(PARTS))]
    verdict = (
        f"**{sum(passed[kind] for kind in right)} of {len(right)}** right models pass (p > "
        f"{LEAST_P:g}), and {len(seen)} of {len(passed) - len(right)} twins that are wrong on "
        "purpose are found out."
    )
    return "\n\n".join([caption, markdown(header, lines), verdict])


if __name__ == "__main__":
    command(__doc__.splitlines()[0], study, table, "calibration", replicates=500, page=PAGE)
