"""Regression when the number of records is secret: Table 1 of Awan et al., and how fast.

    python -m benchmarks.unknown_size rates [--docs]
    python -m benchmarks.unknown_size table [--replicates 12] [--workers 2] [--docs]

``rates`` measures effective draws per CPU second of our default sampler after compilation and
tuning, for the number of records and for the worst parameter.

``table`` sets four columns side by side: (a) the printed table; (b) the published algorithm with
the density that the published code evaluates, in which the exact number of records enters through
a Laplace term and one statistic does not enter at all; (c) the published algorithm with the density
of the release, as many sweeps as in the paper; (d) our default sampler with that density. All
three see the same releases. In (b) and (c) the parameters given the records move by several
Hamiltonian trajectories in each sweep, where the paper has a conjugate draw.
"""

from __future__ import annotations

import argparse
import time
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from arviz_stats.base import array_stats
from scipy import stats

import pymc_privacy as pmp
from benchmarks.measuring import (
    QUIET,
    effective,
    figures,
    timed_draws,
    timed_sample,
    two_figures,
    worst_effective,
)
from benchmarks.mixing import _moments, _regression_priors
from benchmarks.papers.pages import Row, command, markdown, mean_and_error, remarks, write

PAGE = Path(__file__).parents[1] / "docs" / "unknown-size.md"
SIZE, CAPACITY, SENSITIVITY = 1000, 12_000, 9.0
EPSILONS_S = (0.1, 1.0)
EPSILONS_N = (0.001, 0.01, 0.1, 1.0, 10.0, np.inf)
# Public in effect, and yet a noise that a density can be written for; as in the published code.
_PUBLIC = 1e7
_NINTH = 4
"""The statistic that the published code leaves out: the sum of the squares of x2."""

RELEASES = 100  # behind each printed number
DRAWS, LONGEST = 1500, 24_000  # of each of our chains, at first and at most
CONVERGED = 1.01
SURPRISE = 0.003  # what three standard errors are in a long series

# Table 1 as printed, with the standard errors of Table 3; one list over epsilon_N each.
PRINTED = {
    0.1: {
        "E beta1": ([-0.568, -0.507, -0.540, -0.551, -0.457, -0.523],
                    [0.079, 0.062, 0.057, 0.048, 0.060, 0.048]),
        "Var beta1": ([5.559, 1.024, 1.053, 0.942, 0.936, 0.879],
                      [3.593, 0.109, 0.137, 0.100, 0.102, 0.094]),
        "E tau": ([1.052, 1.057, 1.025, 1.042, 1.026, 1.052],
                  [0.045, 0.043, 0.039, 0.039, 0.040, 0.039]),
        "Var tau": ([0.633, 0.623, 0.531, 0.548, 0.535, 0.544],
                    [0.042, 0.048, 0.036, 0.042, 0.037, 0.032]),
        "E N": ([1116.219, 987.717, 998.707, 999.874, 1000.000, 1000.000],
                [101.040, 13.060, 1.351, 0.140, 0.002, 0.000]),
        "Var N": ([1005.443, 762.425, 145.776, 1.924, 0.005, 0.000],
                  [96.843, 47.688, 9.806, 0.027, 0.002, 0.000]),
    },
    1.0: {
        "E beta1": ([-0.921, -0.942, -0.952, -0.946, -0.947, -0.956],
                    [0.027, 0.030, 0.028, 0.029, 0.028, 0.028]),
        "Var beta1": ([0.205, 0.190, 0.198, 0.196, 0.197, 0.195],
                      [0.014, 0.010, 0.011, 0.011, 0.012, 0.011]),
        "E tau": ([1.234, 1.095, 1.107, 1.081, 1.090, 1.093],
                  [0.043, 0.030, 0.030, 0.029, 0.030, 0.031]),
        "Var tau": ([0.351, 0.291, 0.296, 0.274, 0.286, 0.293],
                    [0.021, 0.017, 0.018, 0.015, 0.016, 0.017]),
        "E N": ([1217.458, 1000.015, 999.109, 999.871, 1000.000, 1000.000],
                [76.632, 1.328, 0.627, 0.129, 0.002, 0.000]),
        "Var N": ([4051.367, 258.795, 66.134, 1.665, 0.005, 0.000],
                  [372.407, 44.712, 4.963, 0.023, 0.002, 0.000]),
    },
}  # fmt: skip

QUANTITIES = tuple(PRINTED[1.0])
SAMPLERS = {
    "published, its density": "b",
    "published, the right density": "c",
    "ours": "d",
}


def simulate(rng: np.random.Generator) -> np.ndarray:
    """Return the nine statistics of a new database, clamped and scaled as in the paper."""
    covariates = rng.normal([1, -1], 1, size=(SIZE, 2))
    response = covariates @ [-1.0, 1.0] + rng.normal(size=SIZE)
    clamped = [np.clip(v, -5, 5) / 5 for v in (*covariates.T, response)]
    return np.array([moment.sum() for moment in _moments(*clamped)])


@cache
def regression(leak: bool) -> pm.Model:
    """Write the model of section 6.1; epsilons and releases are data, so one model does for all.

    Statistics are released times epsilon, so that the scale of the noise is the sensitivity.
    """
    with pm.Model() as model:
        epsilon_s = pm.Data("epsilon_s", 1.0)
        epsilon_n = pm.Data("epsilon_n", 1.0)
        beta, tau, mu, (b00, b01, b11) = _regression_priors()
        n = pm.DiscreteUniform("n", 1, CAPACITY)
        factor = pt.stack([pt.stack([b00, b01]), pt.stack([0.0, b11])])
        x = pmp.Records("x", pm.MvNormal.dist(mu, cov=factor @ factor.T), size=n)
        mean = beta[0] + x[:, 0] * beta[1] + x[:, 1] * beta[2]
        y = pmp.Records("y", pm.Normal.dist(mean, 1 / pt.sqrt(tau)), size=n)
        parts = _moments(*(pt.clip(v, -5, 5) / 5 for v in (x[:, 0], x[:, 1], y)))
        if leak:
            del parts[_NINTH]
            exact = pm.Data("exact_size", float(SIZE))
            pmp.Privatized("leak", epsilon_s * n, pmp.Laplace(scale=SENSITIVITY), observed=exact)
        released = pm.Data("released", np.zeros(len(parts)))
        contributions = pt.stack([epsilon_s * part for part in parts], axis=1)
        pmp.Privatized("s", contributions, pmp.Laplace(scale=SENSITIVITY), observed=released)
        noisy = pm.Data("noisy_size", float(SIZE))
        pmp.Privatized("n_dp", epsilon_n * n, pmp.Laplace(scale=1.0), observed=noisy)
    return model


def publish(
    model: pm.Model, statistics: np.ndarray, noisy_size: float, epsilon_s: float, epsilon_n: float
) -> None:
    """Set the releases of a model, already noisy."""
    data = {"epsilon_s": epsilon_s, "epsilon_n": epsilon_n, "noisy_size": epsilon_n * noisy_size}
    if "exact_size" in model.named_vars:
        statistics = np.delete(statistics, _NINTH)
        data["exact_size"] = epsilon_s * SIZE
    pm.set_data(data | {"released": epsilon_s * statistics}, model=model)


@cache
def step_of(sampler: str, trajectories: int | None = None) -> Any:
    """Return the step method of a column, compiled for its model."""
    with regression(sampler == "published, its density"):
        if sampler == "ours":
            return pmp.BirthDeath()
        return pmp.BirthDeath(single=True, noncentred_steps=0, centred_steps=trajectories)


def replicate(
    rng: np.random.Generator,
    sampler: str,
    epsilon_s: float,
    epsilon_n: float,
    sweeps: int,
    release: int,
    trajectories: int | None = None,
) -> dict:
    """Fit one release; return what the table averages.

    ``release`` is the seed of database and noise, so that all columns see the same, and all
    epsilons the same noise but for its scale. ``trajectories`` are those of a published sweep.
    """
    epsilon_n = min(epsilon_n, _PUBLIC)
    office = np.random.default_rng(release)
    noise = pmp.Laplace(epsilon=epsilon_s, sensitivity=SENSITIVITY)
    statistics = noise.simulate(office, simulate(office))
    noisy_size = float(pmp.Laplace(epsilon=epsilon_n, sensitivity=1.0).simulate(office, SIZE))
    model = regression(sampler == "published, its density")
    publish(model, statistics, noisy_size, epsilon_s, epsilon_n)
    start = int(np.clip(np.ceil(noisy_size), 2, CAPACITY))
    if epsilon_n == _PUBLIC:
        start = SIZE
    began = time.process_time()
    if sampler == "ours":
        step = step_of(sampler)
        length, draws = DRAWS, chains_of(rng, step, model, start, draws=DRAWS, tune=1000, chains=4)
        while worst_rhat(draws) > CONVERGED and length < LONGEST:
            length *= 2
            draws = chains_of(rng, step, model, start, draws=length, tune=1000, chains=4)
        found: dict[str, Any] = {"rhat": worst_rhat(draws), "draws": length}
    else:
        # The published chains are single ones, of which the first half is dropped.
        step, half = step_of(sampler, trajectories), sweeps // 2
        found, draws = {}, chains_of(rng, step, model, start, draws=half, tune=half, chains=1)
    for name, values in draws.items():
        found |= {f"E {name}": values.mean(), f"Var {name}": values.var()}
    found["effective"] = {name: effective(v) for name, v in draws.items() if v.std() > 0}
    found["cpu"] = time.process_time() - began
    return found


def chains_of(
    rng: np.random.Generator, step: Any, model: pm.Model, start: int, **lengths: int
) -> dict[str, np.ndarray]:
    """Sample a model with its present releases; return draws by name, (chain, draw)."""
    result = pm.sample(
        **lengths,
        model=model,
        step=step,
        initvals={"n": start},
        random_seed=int(rng.integers(2**31)),
        var_names=["beta", "tau", "n"],
        **QUIET,
    )
    posterior = result["posterior"].to_dataset()
    return {
        "beta1": posterior["beta"].values[..., 1],
        "tau": posterior["tau"].values,
        "N": posterior["n"].values.astype(float),
    }


def worst_rhat(draws: dict[str, np.ndarray]) -> float:
    """Return the largest r_hat of whatever moves."""
    moving = [values for values in draws.values() if values.std() > 0]
    return max(float(array_stats.rhat(v, chain_axis=0, draw_axis=1)) for v in moving)


def study(options: argparse.Namespace) -> pmp.Study:
    """Return the study behind the table: a release is a setting, common to all columns."""
    grid = [
        {"release": release, "sampler": sampler, "epsilon_s": epsilon_s, "epsilon_n": epsilon_n}
        | ({} if sampler == "ours" else {"trajectories": options.trajectories})
        | {"sweeps": options.sweeps}
        for release in range(options.replicates)
        for sampler in options.samplers
        for epsilon_s in EPSILONS_S
        for epsilon_n in EPSILONS_N
    ]
    return pmp.Study(
        replicate, grid, replicates=1, seed=options.seed, path=options.output / "awan_table_1.jsonl"
    )


def table(rows: list[Row], options: argparse.Namespace) -> str:
    """Lay out the four columns for every cell, and what follows from them."""
    cells: dict[tuple, dict[int, Row]] = {}
    for row in rows:
        if row["error"] is None:
            cell = (row["sampler"], row["epsilon_s"], row["epsilon_n"])
            cells.setdefault(cell, {})[row["release"]] = row
    lines: list[list[str]] = []
    printed, paired = Differences(), Differences()
    for epsilon_s in EPSILONS_S:
        for k, epsilon_n in enumerate(EPSILONS_N):
            groups = {name: cells.get((name, epsilon_s, epsilon_n), {}) for name in SAMPLERS}
            for quantity in QUANTITIES:
                value, error = (column[k] for column in PRINTED[epsilon_s][quantity])
                line = [f"{epsilon_s:g}", f"{epsilon_n:g}", quantity, f"{value:g} ({error:g})"]
                for sampler, letter in SAMPLERS.items():
                    values = {r: row[quantity] for r, row in groups[sampler].items()}
                    if not values:
                        line.append("")
                        continue
                    mean, spread = mean_and_error([*values.values()])
                    line.append(f"{figures(mean, 4)} ({figures(spread, 2)})")
                    if len(values) > 1 and np.hypot(error, spread) > 0:
                        p = p_of_difference(mean - value, error, spread, len(values))
                        printed.add(f"({letter}) differs from (a)", quantity, p)
                    ours = groups["ours"]
                    both = [r for r in values if r in ours and sampler != "ours"]
                    apart = np.array([values[r] - ours[r][quantity] for r in both])
                    if len(both) > 1 and apart.any():
                        p = float(stats.ttest_1samp(apart, 0.0).pvalue)
                        paired.add(f"({letter}) differs from (d)", quantity, p)
                lines.append(line)
    header = ["epsilon_s", "epsilon_N", "posterior", "(a) printed", "(b)", "(c)", "(d) ours"]
    parts = [_caption(rows, cells, options), markdown(header, lines), printed.text()]
    if paired.found:
        parts.append("Release by release (paired, which is sharper): " + paired.text())
    parts.append(_worth(cells))
    return "\n\n".join(parts)


def _caption(rows: list[Row], cells: dict, options: argparse.Namespace) -> str:
    counts = {len(group) for group in cells.values()}
    ours = [row for row in rows if row["error"] is None and row["sampler"] == "ours"]
    text = (
        f"Means over {min(counts)}"
        + (f" to {max(counts)}" if len(counts) > 1 else "")
        + " releases of new databases, the same for (b), (c) and (d); in brackets their Monte "
        f"Carlo standard errors. (b) and (c): {options.sweeps} sweeps with "
        f"{options.trajectories} trajectories each, the first half dropped."
    )
    if ours:
        longer = sum(row["draws"] > DRAWS for row in ours)
        text += (
            f" (d): four chains of {DRAWS} draws after 1000, in {longer} of {len(ours)} fits of "
            f"twice as many or more, until r_hat <= {CONVERGED}; the largest r_hat of any fit is "
            f"{max(row['rhat'] for row in ours):.3f}."
        )
    return text + remarks(rows)


def _worth(cells: dict) -> str:
    """Say how many independent draws the chains of each column are worth."""
    columns = []
    for sampler, letter in SAMPLERS.items():
        medians = [
            np.median(
                [
                    row["effective"]["beta1"]
                    for (name, s, _), group in cells.items()
                    if (name, s) == (sampler, epsilon_s)
                    for row in group.values()
                ]
                or [np.nan]
            )
            for epsilon_s in EPSILONS_S
        ]
        if np.isfinite(medians).all():
            columns.append(f"({letter}) {' and '.join(figures(m, 2) for m in medians)}")
    epsilons = " and ".join(f"{e:g}" for e in EPSILONS_S)
    return f"Effective draws of beta1 in a fit (median), at epsilon_s = {epsilons}: " + (
        "; ".join(columns) + "."
    )


class Differences:
    """Count the cells of beta and tau, and those of N, in which two columns differ."""

    def __init__(self):
        self.found: dict[str, list[tuple[str, float]]] = {}

    def add(self, what: str, quantity: str, p: float) -> None:
        """Note the p of one cell."""
        self.found.setdefault(what, []).append((quantity, p))

    def text(self) -> str:
        """Say in how many cells the p is small."""
        sentences = []
        for what, found in self.found.items():
            of_size = [p for name, p in found if name.endswith(" N")]
            of_rest = [p for name, p in found if not name.endswith(" N")]
            sentences.append(
                f"{what} with p < {SURPRISE:g} in {sum(p < SURPRISE for p in of_rest)} of "
                f"{len(of_rest)} cells of beta and tau, and in "
                f"{sum(p < SURPRISE for p in of_size)} of {len(of_size)} of N."
            )
        return " ".join(sentences)


def p_of_difference(difference: float, printed: float, ours: float, releases: int) -> float:
    """Return Welch's p: both errors are estimates, and that of few releases is a poor one."""
    variance = printed**2 + ours**2
    degrees = variance**2 / (printed**4 / (RELEASES - 1) + ours**4 / (releases - 1))
    return float(2 * stats.t.sf(abs(difference) / np.sqrt(variance), degrees))


def rates(options: argparse.Namespace) -> str:
    """Measure our default sampler at one release for each epsilon_N."""
    rng = np.random.default_rng(0)
    noise = pmp.Laplace(epsilon=1.0, sensitivity=SENSITIVITY)
    statistics = noise.simulate(rng, simulate(rng))
    model, step = regression(False), step_of("ours")
    names = ["tau", "beta", "mu", "squares", "below", "n"]
    common = {
        "model": model,
        "step": step,
        "chains": 2,
        "initvals": {"n": SIZE},
        "var_names": names,
    }
    publish(model, statistics, SIZE, 1.0, 0.1)
    timed_sample(5, tune=5, random_seed=1, **common)
    lines = []
    for epsilon_n in (0.001, 0.01, 0.1):
        publish(model, statistics, SIZE, 1.0, epsilon_n)
        found = []
        for seed in range(options.seeds):
            posterior, seconds = timed_draws(
                options.draws, tune=options.tune, random_seed=seed, **common
            )
            sizes = {name: worst_effective(posterior, [name]) for name in names}
            found.append(
                (
                    sizes["n"] / (2 * options.draws),
                    sizes["n"] / seconds,
                    min(sizes.values()) / seconds,
                    1e3 * seconds / (2 * options.draws),
                )
            )
        medians = np.median(found, axis=0)
        lines.append([f"{epsilon_n:g}", *map(two_figures, medians)])
        print(lines[-1], flush=True)
    header = [
        "epsilon_N",
        "effective draws of N per iteration",
        "per second",
        "worst parameter per second",
        "milliseconds per iteration",
    ]
    caption = (
        f"Medians of {options.seeds} runs of two chains of {options.draws} draws after "
        f"{options.tune}; CPU seconds of the draws, without tuning."
    )
    return f"{caption}\n\n" + markdown(header, lines)


def main() -> None:
    import sys

    if sys.argv[1:2] == ["rates"]:
        parser = argparse.ArgumentParser(description="Effective draws per second.")
        parser.add_argument("rates")
        parser.add_argument("--draws", type=int, default=2000)
        parser.add_argument("--tune", type=int, default=1000)
        parser.add_argument("--seeds", type=int, default=7)
        parser.add_argument("--docs", action="store_true", help="write into the docs too")
        options = parser.parse_args()
        text = rates(options)
        print(text)
        if options.docs:
            write("unknown size", text, PAGE)
        return
    if sys.argv[1:2] == ["table"]:
        del sys.argv[1]
    command(
        __doc__.splitlines()[0],
        study,
        table,
        "awan table 1",
        replicates=12,
        samplers=tuple(SAMPLERS),
        sweeps=10_000,
        trajectories=20,
    )


if __name__ == "__main__":
    main()
