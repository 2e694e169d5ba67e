"""Figure 1 of Awan et al., in numbers: a Dirichlet model of time use, with the size known or not.

    python -m benchmarks.papers.awan_figure_1 [--size 0] [--replicates 1] [--docs]

The sums of clamped logarithms are released with epsilon_s, and, when the number of respondents is
not public, this number with epsilon_n. ``--size`` takes so many respondents at random, 0 all of
them. The figure prints no numbers; what it is said to show is put to a test.
"""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np
import pymc as pm
import pytensor.tensor as pt

import pymc_privacy as pmp
from benchmarks.measuring import QUIET, worst_effective
from benchmarks.papers.inputs import TimeUse, time_use
from benchmarks.papers.pages import Row, command, markdown, mean_and_error, remarks

LEAST = 1 / 1440  # a minute, the smallest share in the data
SENSITIVITY = -3 * np.log(LEAST)  # of adding or removing a respondent, and of replacing one
ENOUGH = 100
BOUNDED = 0.0  # stands for a public size where epsilon_n is asked for


def respondents(size: int) -> TimeUse:
    """Return all respondents, or a part of them that does not depend on the replicate."""
    everyone = time_use()
    if not size:
        return everyone
    chosen = np.random.default_rng(2019).choice(len(everyone.shares), size, replace=False)
    return TimeUse(everyone.shares[chosen], everyone.source)


def logarithms(shares: Any) -> Any:
    """Return clamped logarithms, on arrays and on tensors."""
    return (np if isinstance(shares, np.ndarray) else pt).log(shares.clip(LEAST, 1))


def model(released: np.ndarray, epsilon_s: float, size: Any, epsilon_n: float) -> pm.Model:
    """Write the model; with a positive epsilon_n, ``size`` is a noisy size."""
    with pm.Model() as written:
        alpha = pm.Gamma("alpha", 1, 0.1, shape=3)
        if epsilon_n == BOUNDED:
            x = pm.Dirichlet("x", alpha, shape=(size, 3))
        else:
            # Far beyond what the noise can explain: 20 scales are 2e-9 of its mass.
            most = int(size + 20 / epsilon_n) + 1
            n = pm.DiscreteUniform("n", 1, most)
            x = pmp.Records("x", pm.Dirichlet.dist(alpha), size=n, capacity=most)
            counting = pmp.Laplace(epsilon=epsilon_n, sensitivity=1.0, neighbours="add_remove")
            pmp.Privatized("n_dp", n, counting, observed=size)
        noise = pmp.Laplace(epsilon=epsilon_s, sensitivity=SENSITIVITY)
        pmp.Privatized("logs", logarithms(x), noise, observed=released)
    return written


def posterior_spread(
    rng: np.random.Generator, epsilon_s: float, epsilon_n: float, size: int, draws: int, tune: int
) -> dict[str, Any]:
    """Release, fit, and return the standard deviations of the parameters."""
    shares = respondents(size).shares
    # The sums are released once for each epsilon_s, as in the paper; the size each time anew.
    once = np.random.default_rng([2019, int(1000 * epsilon_s)])
    noise = pmp.Laplace(epsilon=epsilon_s, sensitivity=SENSITIVITY)
    released = noise.simulate(once, logarithms(shares).sum(axis=0))
    known: Any = len(shares)
    if epsilon_n != BOUNDED:
        known = float(pmp.Laplace(scale=1 / epsilon_n).simulate(rng, float(len(shares))))
    written = model(released, epsilon_s, known, epsilon_n)
    # With half as many records there is another mode, all shares of one kind at the clamp: e^-30
    # of the mass, which a chain from the middle of the prior would not leave.
    start = {} if epsilon_n == BOUNDED else {"n": max(1, round(known))}
    options = {"chains": 1, "random_seed": rng, "initvals": start, **QUIET}
    result = pmp.sample(draws, tune=tune, model=written, **options)
    posterior = result["posterior"]
    alpha = posterior["alpha"].values[0]
    effective = worst_effective(posterior, ["alpha"])
    found = {"mean": alpha.mean(axis=0), "sd": alpha.std(axis=0), "effective": effective}
    if "n" in posterior:
        found |= {"n_mean": posterior["n"].values.mean(), "n_sd": posterior["n"].values.std()}
    return found


def study(options: argparse.Namespace) -> pmp.Study:
    """Return the study: the size public once, and noisy in several ways."""
    fixed = {"size": options.size, "draws": options.draws, "tune": options.tune}
    grid = [
        {"epsilon_s": s, "epsilon_n": n, **fixed}
        for s in options.epsilons
        for n in (BOUNDED, *options.size_epsilons)
    ]
    path = options.output / "awan_figure_1.jsonl"
    replicates, seed = options.replicates, options.seed
    return pmp.Study(posterior_spread, grid, replicates=replicates, seed=seed, path=path)


def table(rows: list[Row], options: argparse.Namespace) -> str:
    """Lay out posterior standard deviations, the size known and unknown."""
    good = [row for row in rows if row["error"] is None]
    lines, spreads, effective = [], {}, {}
    for s in options.epsilons:
        for n in (BOUNDED, *options.size_epsilons):
            group = [row for row in good if (row["epsilon_s"], row["epsilon_n"]) == (s, n)]
            if not group:
                continue
            cells = []
            for k in range(3):
                mean, error = mean_and_error([row["sd"][k] for row in group])
                if len(group) == 1:
                    # About as for independent draws of a Normal law.
                    error = mean / np.sqrt(2 * group[0]["effective"])
                cells.append(f"{mean:.3f} ± {error:.3f}")
            spreads[s, n] = np.mean([row["sd"] for row in group], axis=0)
            size = f"{np.mean([row['n_sd'] for row in group]):.2f}" if n != BOUNDED else "0"
            label = "public" if n == BOUNDED else f"{n:g}"
            effective[s, n] = min(row["effective"] for row in group)
            lines.append([f"{s:g}", label, *cells, size, f"{effective[s, n]:.0f}"])
    parameters = [f"sd of alpha {k + 1}" for k in range(3)]
    header = ["epsilon_s", "epsilon_n", *parameters, "sd of n", "effective draws"]
    data = respondents(options.size)
    over = f"over {options.replicates} noisy sizes" if options.replicates > 1 else "of one chain"
    caption = (
        f"Posterior standard deviations (± Monte Carlo error {over}), {len(data.shares)} "
        f"respondents of {data.source}, {options.draws} draws after {options.tune}."
        f"{remarks(rows)}"
    )
    return "\n\n".join([caption, markdown(header, lines), _verdict(spreads, effective, options)])


def _verdict(
    spreads: dict[tuple[float, float], np.ndarray],
    effective: dict[tuple[float, float], float],
    options: argparse.Namespace,
) -> str:
    """Compare with what the paper says of its figure, where the chains are long enough."""
    most, least = max(options.size_epsilons), min(options.size_epsilons)
    words = []
    for s in options.epsilons:
        draws = min(effective.get((s, n), 0.0) for n in (BOUNDED, least, most))
        if draws < ENOUGH:
            words.append(f"**not decided** at epsilon_s = {s:g}, with {draws:.0f} effective draws")
            continue
        # The relative error of a standard deviation is about 1 / sqrt(2 draws); two are compared.
        error = 3 / np.sqrt(draws)
        near = np.abs(spreads[s, most] / spreads[s, BOUNDED] - 1) < error
        falls = spreads[s, least] > (1 - error) * spreads[s, most]
        held = "agrees" if (near & falls).all() else "differs"
        words.append(f"**{held}** at epsilon_s = {s:g}")
    return (
        "The paper says of its figure that the standard deviations fall with epsilon_n towards "
        f"those with a public size: {'; '.join(words)}. (A standard deviation needs {ENOUGH} "
        "effective draws; `--draws` gives more.)"
    )


if __name__ == "__main__":
    command(
        __doc__.splitlines()[0],
        study,
        table,
        "awan figure 1",
        replicates=1,
        epsilons=(1.0, 10.0),
        size_epsilons=(0.01, 0.1, 1.0, 10.0),
        size=0,
        draws=1000,
        tune=600,
    )
