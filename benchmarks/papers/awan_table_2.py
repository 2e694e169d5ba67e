"""Table 2 of Awan et al.: maximum likelihood of a regression, by four columns.

    python -m benchmarks.papers.awan_table_2 [--replicates 8] [--epsilons 1] [--docs]

(a) the printed table; (b) the published algorithm with the density that the published code
evaluates; (c) the published algorithm with the density of the release; (d) `maximum_likelihood`.
(b), (c) and (d) see the same releases of new databases, with epsilon_s = 1; each estimate is judged
by the log likelihood of what was released, by common random numbers.
"""

from __future__ import annotations

import argparse
import math
import time
from functools import cache
from typing import Any

import numpy as np
import pymc as pm
import pytensor.tensor as pt

import pymc_privacy as pmp
from benchmarks.measuring import figures
from benchmarks.papers import published_em
from benchmarks.papers.pages import Row, command, grouped, markdown, remarks
from benchmarks.papers.published_em import CLAMP, SENSITIVITY, STATISTICS, Parameters, Release
from pymc_privacy.inference.direct import make_problem
from pymc_privacy.inference.fitting import Fitting

SIZE, CAPACITY, EPSILON_S = 1000, 4000, 1.0
TRUTH = Parameters(np.array([0.0, -1.0, 1.0]), 1.0, np.array([1.0, -1.0]), np.eye(2))
# Means and, over 100 releases of one database, standard deviations.
PRINTED = {
    0.01: [(-0.192, 0.433), (-0.914, 0.408), (0.847, 0.390), (1.01, 0.426)],
    0.1: [(-0.111, 0.374), (-0.968, 0.345), (0.871, 0.365), (1.14, 0.562)],
    1.0: [(-0.115, 0.369), (-0.952, 0.338), (0.883, 0.387), (1.17, 0.664)],
    10.0: [(-0.131, 0.435), (-0.941, 0.352), (0.875, 0.465), (1.15, 0.571)],
}
NAMES = ("beta0", "beta1", "beta2", "tau")
PUBLISHED = {"b": True, "c": False}


def statistics(records: Any) -> list[Any]:
    """Return the nine statistics of each record; arrays or tensors."""
    a, b, c = (records[k].clip(-CLAMP, CLAMP) / CLAMP for k in range(3))
    return [c, a * c, b * c, c * c, a, b, a * a, a * b, b * b]


def model(epsilon_n: float) -> pm.Model:
    """Write the regression; the covariance of the covariates is known, as in the published code."""
    with pm.Model() as written:
        beta = pm.Normal("beta", 0, 3, shape=3)
        tau = pm.Gamma("tau", 1, 1)
        mean = pm.Normal("mean", 0, 3, shape=2)
        n = pm.DiscreteUniform("n", 1, CAPACITY)
        x = pmp.Records("x", pm.MvNormal.dist(mean, cov=np.eye(2)), size=n)
        line = beta[0] + x[:, 0] * beta[1] + x[:, 1] * beta[2]
        y = pmp.Records("y", pm.Normal.dist(line, 1 / pt.sqrt(tau)), size=n)
        sums = pt.stack(statistics([x[:, 0], x[:, 1], y]), axis=1)
        noise = pmp.Laplace(epsilon=EPSILON_S, sensitivity=SENSITIVITY)
        pmp.Privatized("s", sums, noise, observed=np.zeros(STATISTICS))
        counting = pmp.Laplace(epsilon=epsilon_n, sensitivity=1.0)
        pmp.Privatized("n_dp", n, counting, observed=float(SIZE))
    return written


@cache
def compiled(epsilon_n: float) -> Fitting:
    """Return what fits the model, compiled once in each process."""
    return Fitting(make_problem(model(epsilon_n)), "score", False, 0.05, 50_000)


def published(rng: np.random.Generator, epsilon_n: float) -> Release:
    """Draw a database and release it."""
    x = rng.normal(TRUTH.mean, 1.0, size=(SIZE, 2))
    y = TRUTH.beta[0] + x @ TRUTH.beta[1:] + rng.normal(size=SIZE)
    sums = np.array([part.sum() for part in statistics([*x.T, y])])
    sums += rng.laplace(0, SENSITIVITY / EPSILON_S, STATISTICS)
    noisy = SIZE + rng.laplace(0, 1 / epsilon_n)
    return Release(sums, float(noisy), EPSILON_S, epsilon_n, float(SIZE), False)


def replicate(rng: np.random.Generator, epsilon_n: float, rounds: int) -> dict[str, Any]:
    """Release a database, and estimate its parameters by three columns."""
    release = published(rng, epsilon_n)
    fitting = compiled(epsilon_n)
    problem = fitting.problem
    problem.observe({"s": release.sums, "n_dp": np.array(release.size)})
    found: dict[str, Any] = {}
    ends = {"truth": _coordinates(problem, TRUTH)}
    for column, leak in PUBLISHED.items():
        began = time.process_time()
        theta = published_em.estimate(rng, release._replace(leak=leak), rounds=rounds)
        found[f"seconds {column}"] = time.process_time() - began
        found[column] = [*theta.beta.tolist(), float(theta.tau)]
        ends[column] = _coordinates(problem, theta)
    began = time.process_time()
    draws = [_coordinates(problem, _scattered(rng)) for _ in range(2)]
    fit = fitting.run(draws, rng, lambda start, step: None)
    found["seconds d"] = time.process_time() - began
    tau = float(fit.estimate["tau"])
    found["d"] = [*fit.estimate["beta"].values.tolist(), tau if math.isfinite(tau) else 1e300]
    found |= {"at boundary": [*fit.at_boundary], "unidentified": [*fit.unidentified]}
    found["log likelihood"] = fit.log_likelihood
    for name, q in ends.items():
        gain = problem.difference(fit.q, q, rng)
        found[f"gain {name}"], found[f"error {name}"] = gain.value, gain.error
    return found


def _scattered(rng: np.random.Generator) -> Parameters:
    return Parameters(rng.normal(0, 3, 3), float(rng.gamma(1.0)), rng.normal(0, 3, 2), np.eye(2))


def _coordinates(problem: Any, theta: Parameters) -> np.ndarray:
    natural = {"beta": theta.beta, "tau": np.array(theta.tau), "mean": theta.mean}
    return problem.values(natural)


def study(options: argparse.Namespace) -> pmp.Study:
    """Return the study behind the table."""
    grid = {"epsilon_n": list(options.epsilons), "rounds": [options.rounds]}
    return pmp.Study(
        replicate,
        grid,
        replicates=options.replicates,
        seed=options.seed,
        path=options.output / "awan_table_2.jsonl",
    )


def table(rows: list[Row], options: argparse.Namespace) -> str:
    """Lay out four columns, and what the estimates are worth."""
    lines, worth = [], []
    for epsilon_n, group in sorted(grouped(rows, "epsilon_n").items()):
        for k, name in enumerate(NAMES):
            mean, deviation = PRINTED[epsilon_n][k]
            line = [f"{epsilon_n:g}", name, f"{mean:g} ({deviation:g})"]
            for column in (*PUBLISHED, "d"):
                line.append(_middle([row[column][k] for row in group]))
            lines.append(line)
        worth.append(_worth(epsilon_n, group))
    header = ["epsilon_N", "", "(a) printed: mean (sd)", "(b)", "(c)", "(d) ours"]
    good = [row for row in rows if row["error"] is None]
    count = len(good) // max(len(worth), 1)
    caption = (
        f"Medians over {count} releases of new databases for each epsilon_N, the same for (b), (c) "
        "and (d), and in brackets half of the middle 68%: a mean need not exist. "
        f"(b) and (c): {options.rounds} rounds of {published_em.SWEEPS} sweeps." + remarks(rows)
    )
    return "\n\n".join([caption, markdown(header, lines), *worth])


def _middle(values: list[float]) -> str:
    """Return the median, and half the distance between the quantiles of one standard deviation."""
    low, median, high = np.quantile(values, (0.16, 0.5, 0.84))
    spread = (high - low) / 2
    shown = [figures(v, 3) if abs(v) < 1e6 else "infinite" for v in (median, spread)]
    return f"{shown[0]} ({shown[1]})"


def _worth(epsilon_n: float, group: list[Row]) -> str:
    """Say how the log likelihoods of the estimates compare, release by release."""
    boundary = sum(bool(row["at boundary"]) for row in group)
    parts = [
        f"**epsilon_N = {epsilon_n:g}.** Ours is at the boundary (tau without bound) on {boundary} "
        f"of {len(group)} releases."
    ]
    for name in (*PUBLISHED, "truth"):
        gains = np.array([row[f"gain {name}"] for row in group])
        errors = np.array([row[f"error {name}"] for row in group])
        what = "the true parameter" if name == "truth" else f"({name})"
        parts.append(
            f"Its log likelihood is above that of {what} by {np.median(gains):.2f} (median; "
            f"{gains.min():.2f} to {gains.max():.2f}), and lower by more than twice the Monte "
            f"Carlo error on {int(np.sum(gains < -2 * errors))}."
        )
    seconds = [np.median([row[f"seconds {name}"] for row in group]) for name in (*PUBLISHED, "d")]
    parts.append(
        "CPU seconds of an estimate (median), once compiled: "
        + ", ".join(
            f"({name}) {figures(s, 2)}" for name, s in zip((*PUBLISHED, "d"), seconds, strict=True)
        )
        + "."
    )
    return " ".join(parts)


if __name__ == "__main__":
    command(
        __doc__ or "", study, table, "awan table 2", replicates=8, epsilons=(1.0,),
        rounds=published_em.ROUNDS,
    )  # fmt: skip
