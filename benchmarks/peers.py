"""Our sampler on the inputs on which other software was measured: effective draws per second.

    python -m benchmarks.peers [--inputs …] [--draws 1000] [--output FILE] [--docs]

The others are dapper and the scripts of Ju et al. (2022) and of Awan et al. Their figures are
constants, see `PEERS`; only ours are measured here, with the step method that `pm.sample` chooses
by itself. Seconds are CPU seconds of the whole `pm.sample` after compilation, tuning left out in
proportion. Each finished input is kept, so that a run that was interrupted goes on where it
stopped.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pymc as pm

import pymc_privacy as pmp
from benchmarks import unknown_size
from benchmarks.measuring import timed_when_compiled, two_figures, worst_effective
from benchmarks.mixing import DOCS, naive_bayes_model
from benchmarks.papers import awan_figure_1, inputs, linear_regression, naive_bayes
from benchmarks.papers.pages import write
from pymc_privacy._compat import assign_step_methods

RESULTS = Path(__file__).parent / "results" / "peers.json"
# An effective size below this is itself unreliable.
ENOUGH = 100
SAME, NEW_NOISE, SIMULATED = "the same", "noise drawn anew", "simulated alike"


def regression(size: int) -> tuple[pm.Model, str]:
    """Write section 5 of Ju et al. with epsilon = 10: only the coefficients are unknown."""
    data, rng = inputs.regression(), np.random.default_rng(size)
    covariates, response = data.covariates, data.response
    origin = NEW_NOISE if data.source == "as published" else SIMULATED
    if size != len(response):
        origin = SIMULATED
        covariates = rng.normal(data.mean, 1.0, size=(size, 2))
        error = rng.normal(0, np.sqrt(linear_regression.VARIANCE), size)
        response = data.beta[0] + covariates @ data.beta[1:] + error
    model = linear_regression.model(size)
    sums = linear_regression.statistic_of(covariates, response)
    linear_regression.publish(model, rng, sums, 10.0)
    return model, origin


def randomized_response(size: int, yes: int) -> tuple[pm.Model, str]:
    """Write answers that are kept with probability 3/4; only how many say yes matters."""
    answers = (np.arange(size) < yes).astype(np.int64)
    with pm.Model() as model:
        p = pm.Beta("p", 1, 1)
        x = pm.Bernoulli("x", p, shape=size)
        mechanism = pmp.RandomizedResponse(epsilon=np.log(3))
        pmp.Privatized("answers", x, mechanism, observed=answers, local=True)
    return model, SAME


def noisy_count(size: int, released: float) -> tuple[pm.Model, str]:
    """Write a count of yes-or-no records with Laplace noise of scale 1."""
    with pm.Model() as model:
        p = pm.Beta("p", 1, 1)
        x = pm.Bernoulli("x", p, shape=size)
        pmp.Privatized("count", x, pmp.Laplace(scale=1.0), observed=released)
    return model, SAME


def log_linear(epsilon: float) -> tuple[pm.Model, str]:
    """Write section 4 of Ju et al.: a class and five features, whose counts are noisy."""
    released, origin = _noisy_counts(epsilon)
    return naive_bayes_model(released, epsilon, inputs.RECORDS), origin


def _noisy_counts(epsilon: float) -> tuple[np.ndarray, str]:
    """Return the release on which the script was measured, or a simulated one."""
    path = inputs.DATA / "ju" / "loglinear_n100.csv"
    if path.exists():
        table = np.genfromtxt(path, delimiter=",", names=True, deletechars="")
        return table[f"m_eps{epsilon:g}"], SAME
    rng, truth = np.random.default_rng(0), inputs.naive_bayes()
    records = naive_bayes.draw_contributions(rng, truth.classes, truth.tables, inputs.RECORDS)
    return naive_bayes.mechanism(epsilon).simulate(rng, records.sum(axis=1)), SIMULATED


def time_use() -> tuple[pm.Model, str]:
    """Write section 6.2 of Awan et al. with a public size and epsilon = 1."""
    data, rng = inputs.time_use(), np.random.default_rng(0)
    mechanism = pmp.Laplace(epsilon=1.0, sensitivity=awan_figure_1.SENSITIVITY)
    released = mechanism.simulate(rng, awan_figure_1.logarithms(data.shares).sum(axis=0))
    model = awan_figure_1.model(released, 1.0, len(data.shares), awan_figure_1.BOUNDED)
    return model, SIMULATED if data.source == "simulated stand-in" else NEW_NOISE


def unknown_number(epsilon_n: float) -> tuple[pm.Model, str]:
    """Write section 6.1 of Awan et al. with epsilon_s = 1 and a noisy number of records."""
    rng = np.random.default_rng(0)
    noise = pmp.Laplace(epsilon=1.0, sensitivity=unknown_size.SENSITIVITY)
    released = noise.simulate(rng, unknown_size.simulate(rng))
    model = unknown_size.regression(False)
    # The noise that the script was given, up to its scale.
    noisy_size = unknown_size.SIZE - 0.633 / epsilon_n
    unknown_size.publish(model, released, noisy_size, 1.0, epsilon_n)
    return model, SIMULATED


class Input(NamedTuple):
    """A model with its release, the number of records, and the parameters that count."""

    write: Callable[[], tuple[pm.Model, str]]
    size: int
    parameters: tuple[str, ...]


# The releases of randomized response and of the count are those with the exact posterior means
# that were found beside dapper's: 0.36276, 0.34431 and 0.30461.
INPUTS = {
    "regression, n = 100, epsilon = 10": Input(partial(regression, 100), 100, ("beta",)),
    "regression, n = 1000, epsilon = 10": Input(partial(regression, 1000), 1000, ("beta",)),
    "randomized response, n = 100": Input(partial(randomized_response, 100, 43), 100, ("p",)),
    "randomized response, n = 1000": Input(partial(randomized_response, 1000, 422), 1000, ("p",)),
    "noisy count, n = 1000": Input(partial(noisy_count, 1000, 304.23), 1000, ("p",)),
    "log-linear, n = 100, epsilon = 10": Input(partial(log_linear, 10.0), 100, ("p",)),
    "log-linear, n = 100, epsilon = 1": Input(partial(log_linear, 1.0), 100, ("p",)),
    "unknown size, epsilon_N = 1": Input(partial(unknown_number, 1.0), 1000, ("beta", "n")),
    "unknown size, epsilon_N = 0.01": Input(partial(unknown_number, 0.01), 1000, ("beta", "n")),
    "time use, n = 6656, epsilon = 1": Input(time_use, 6656, ("alpha",)),
}


class Peer(NamedTuple):
    """What another program reached on an input: effective draws and records per CPU second.

    ``effective`` is the effective size behind a rate, or None where sweeps per second were
    multiplied by the effective draws per sweep of a chain of at least 60 000 sweeps.
    """

    software: str
    name: str
    parameter: str
    per_second: float
    records: float
    effective: float | None = None


# Measured once, with R 4.2.2 on a two-core machine of the same kind, one process, one thread. This
# script does not measure them again, because R is not among the dependencies.
_PLAIN, _TUNED = "dapper 1.1.0, as in its paper", "dapper 1.1.0, callbacks made faster"
_JU, _AWAN = "script of Ju et al.", "script of Awan et al."
# The same sweeps per second, times the effective draws per sweep with the right acceptance ratio.
_JU_RIGHT = "script of Ju et al., one index put right"
PEERS = (
    Peer(_PLAIN, "regression, n = 100, epsilon = 10", "beta", 0.46, 10_900),
    Peer(_TUNED, "regression, n = 100, epsilon = 10", "beta", 3.3, 78_300),
    Peer(_JU, "regression, n = 100, epsilon = 10", "beta", 0.22, 5_220),
    Peer(_PLAIN, "regression, n = 1000, epsilon = 10", "beta", 0.14, 10_900),
    Peer(_TUNED, "regression, n = 1000, epsilon = 10", "beta", 1.13, 85_800),
    Peer(_JU, "regression, n = 1000, epsilon = 10", "beta", 0.071, 5_390),
    Peer("dapper 1.1.0", "randomized response, n = 100", "p", 108, 137_000, 562),
    Peer("dapper 1.1.0", "randomized response, n = 1000", "p", 14.4, 144_000, 335),
    Peer("dapper 1.1.0", "noisy count, n = 1000", "p", 167, 177_000, 2668),
    Peer(_JU, "log-linear, n = 100, epsilon = 10", "p", 14.7, 2_950),
    Peer(_JU_RIGHT, "log-linear, n = 100, epsilon = 10", "p", 22.5, 2_950),
    Peer(_JU, "log-linear, n = 100, epsilon = 1", "p", 3.4, 2_540),
    Peer(_JU_RIGHT, "log-linear, n = 100, epsilon = 1", "p", 3.1, 2_540),
    Peer(_AWAN, "unknown size, epsilon_N = 1", "beta", 0.0091, 3_820),
    Peer(_AWAN, "unknown size, epsilon_N = 1", "n", 0.34, 3_820),
    Peer(_AWAN, "unknown size, epsilon_N = 0.01", "beta", 0.0089, 3_900),
    Peer(_AWAN, "unknown size, epsilon_N = 0.01", "n", 0.0041, 3_900),
    Peer(_AWAN, "time use, n = 6656, epsilon = 1", "alpha", 0.09, 464_000, 1.3),
)


def default_steps(model: pm.Model) -> list:
    """Return the step methods that `pm.sample` chooses by itself, to be compiled once."""
    _, chosen = assign_step_methods(model)
    return [method(variables, model=model) for method, variables in chosen.items()]


def run(name: str, *, draws: int, tune: int, chains: int = 2) -> dict[str, Any]:
    """Measure one input."""
    chosen = INPUTS[name]
    model, origin = chosen.write()
    steps = default_steps(model)
    posterior, seconds = timed_when_compiled(
        draws,
        tune=tune,
        chains=chains,
        model=model,
        step=steps,
        initvals={"n": chosen.size} if "n" in chosen.parameters else None,
        random_seed=1,
        var_names=list(chosen.parameters),
    )
    seconds *= draws / (draws + tune)
    size = float(posterior["n"].mean()) if "n" in chosen.parameters else chosen.size
    # Counts of equal records move without a look at any single one.
    sweeps = not any(isinstance(step, pmp.CountStates) for step in steps)
    return {
        "input": name,
        "origin": origin,
        "length": {"draws": draws, "tune": tune, "chains": chains},
        "steps": [type(step).__name__ for step in steps],
        "seconds": seconds,
        "effective": {key: worst_effective(posterior, [key]) for key in chosen.parameters},
        "records": size * chains * draws / seconds if sweeps else None,
    }


def table(rows: list[dict[str, Any]]) -> str:
    """Lay out theirs and ours for all inputs that were measured."""
    measured = {row["input"]: row for row in rows}
    lines = [
        f"Ours: {_lengths(rows)}.",
        "",
        "| input | release | software | of | theirs: per second | ours: per second "
        "| ours / theirs | theirs: records per second | ours: records per second |",
        "|---|---|---|---|---:|---:|---:|---:|---:|",
    ]
    for peer in PEERS:
        if peer.name in measured:
            lines.append("| " + " | ".join(_cells(peer, measured[peer.name])) + " |")
    return "\n".join(lines)


def _cells(peer: Peer, row: dict[str, Any]) -> list[str]:
    effective = row["effective"][peer.parameter]
    ours = effective / row["seconds"]
    swept = row["records"]
    return [
        peer.name,
        row["origin"],
        peer.software,
        peer.parameter,
        _rate(peer.per_second, peer.effective),
        _rate(ours, effective),
        two_figures(ours / peer.per_second),
        f"{float(two_figures(peer.records)):,.0f}",
        "" if swept is None else f"{float(two_figures(swept)):,.0f}",
    ]


def _rate(per_second: float, effective: float | None) -> str:
    """Write a rate, and behind it an effective size that is too small to trust."""
    doubtful = effective is not None and effective < ENOUGH
    return two_figures(per_second) + (f" ({two_figures(effective)} in all)" if doubtful else "")


def _lengths(rows: list[dict[str, Any]]) -> str:
    lengths = sorted({tuple(row["length"].values()) for row in rows})
    return " or ".join(
        f"{chains} chains of {draws} draws after {tune} of tuning"
        for draws, tune, chains in lengths
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--inputs", nargs="+", choices=INPUTS, default=list(INPUTS))
    parser.add_argument("--draws", type=int, default=1000)
    parser.add_argument("--tune", type=int, default=1000)
    parser.add_argument("--output", type=Path, default=RESULTS)
    parser.add_argument("--docs", action="store_true", help="write the table into the docs too")
    parser.add_argument("--afresh", action="store_true", help="measure these inputs again")
    options = parser.parse_args()
    rows = json.loads(options.output.read_text()) if options.output.exists() else []
    if options.afresh:
        rows = [row for row in rows if row["input"] not in options.inputs]
    done = {row["input"] for row in rows}
    for name in options.inputs:
        if name not in done:
            rows.append(run(name, draws=options.draws, tune=options.tune))
            print(*table(rows[-1:]).splitlines()[4:], sep="\n", flush=True)
            options.output.parent.mkdir(exist_ok=True)
            options.output.write_text(json.dumps(rows, indent=1) + "\n")
    if options.docs:
        write("peers", table(rows), DOCS)
    print("\n" + table(rows))


if __name__ == "__main__":
    main()
