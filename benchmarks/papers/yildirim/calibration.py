"""Calibration of the whole adaptive loop, and of one with noise that is too small.

    python -m benchmarks.papers.yildirim.calibration [--replicates 400] [--seed 20] [--docs]

Parameters are drawn from the prior, 40 users from the law with these, and each is asked by a query
that was chosen after the answers before. Ranks of the true parameters among draws of the posterior
must be uniform (Talts et al., 2018). "Published noise" has scale b / sqrt(2), as in the author's
code. Whoever changes a level below must run the study again with another seed.
"""

from __future__ import annotations

import argparse
import math
from functools import cache
from typing import Any

import numpy as np
import pymc as pm
from scipy import stats

import pymc_privacy as pmp
from benchmarks.papers.pages import Row, command, grouped, markdown, remarks

DRAWS = 19
BROKEN = "wide interval, published noise"
CASES = ("binned", "clipped", "wide interval", BROKEN)
FAMILY = 0.01  # false alarms of a whole table: six tails share them
LEVEL = FAMILY / (2 * (len(CASES) - 1))
NOTICED = 1e-6  # below it the twin is found out, as in the tests


@cache
def model() -> pm.Model:
    """Return a model with a proper prior that can be drawn from."""
    with pm.Model() as made:
        mu = pm.Normal("mu", 0, 5)
        pm.Normal("x", mu, pm.HalfNormal("sigma", 3))
    return made


def _wide(rng: np.random.Generator, drawn: dict[str, Any]) -> pmp.Query:
    m, c = float(drawn["mu"]), 3 * float(drawn["sigma"])
    return pmp.ClippedQuery(lower=m - c, upper=m + c, epsilon=5.0)


def replicate(rng: np.random.Generator, case: str, users: int, draws: int) -> dict[str, float]:
    """Return the ranks of the true parameters."""
    truth = {"mu": rng.normal(0, 5), "sigma": abs(rng.normal(0, 3))}
    seed = int(rng.integers(2**31))
    queries: Any = _wide if case.startswith("wide") else case
    made = model()
    stream = pmp.online(
        made["x"], epsilon=5.0, draws=draws, queries=queries, random_seed=seed, model=made
    )
    size = 1 / math.sqrt(2) if case == BROKEN else 1.0
    for record in rng.normal(truth["mu"], truth["sigma"], users):
        query = stream.query()
        answer = query.simulate(rng, record)
        if size < 1:
            contribution = query.contribution(record)
            answer = contribution + size * (answer - contribution)
        stream.update(query, answer)
    posterior = stream.result().posterior
    chosen = rng.choice(draws, DRAWS, replace=False)
    return {k: int((posterior[k].values[0, chosen] < v).sum()) for k, v in truth.items()}


def study(options: argparse.Namespace) -> pmp.Study:
    """Return the study behind the table."""
    grid = {"case": CASES, "users": [options.users], "draws": [options.draws]}
    return pmp.Study(
        replicate,
        grid,
        replicates=options.replicates,
        seed=options.seed,
        path=options.output / "yildirim_calibration.jsonl",
    )


def tail(ranks: Any) -> float:
    """Return the tail of chi-square that ranks 0, ..., 19 are uniform, in ten bins."""
    return float(stats.chisquare(np.bincount(np.asarray(ranks) // 2, minlength=10)).pvalue)


def table(rows: list[Row], options: argparse.Namespace) -> str:
    """Lay out the tails of both parameters in each case."""
    lines, right = [], True
    groups = grouped(rows, "case")
    for case in CASES:
        runs = groups.get(case, [])
        if not runs:
            continue
        tails = [tail([run[name] for run in runs]) for name in ("mu", "sigma")]
        right &= min(tails) < NOTICED if case == BROKEN else min(tails) > LEVEL
        lines.append([case, *(f"{one:.2g}" for one in tails), len(runs)])
    caption = (
        f"Tails of chi-square that the ranks of the true parameters are uniform, {options.users} "
        f"users at epsilon 5, {options.draws} particles, seed {options.seed}. Ranks pass where "
        f"both tails are above {LEVEL:.2g}, by which one right table in a hundred fails; the twin "
        f"is noticed below {NOTICED:g}. Both were set before this seed was run.{remarks(rows)}"
    )
    verdict = "Calibrated, and the broken twin is noticed." if right else "NOT AS IT SHOULD BE."
    header = ["queries", "mu", "sigma", "runs"]
    return "\n\n".join([caption, markdown(header, lines), f"**{verdict}**"])


if __name__ == "__main__":
    command(
        __doc__.splitlines()[0],
        study,
        table,
        "yildirim calibration",
        replicates=400,
        users=40,
        draws=200,
    )
