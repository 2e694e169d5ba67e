"""CPU seconds until 400 effective draws, compilation included: what a user waits.

    python -m benchmarks.waiting [--beds …] [--epsilons …] [--samplers …] [--output FILE] [--docs]

The beds are those of `benchmarks.mixing`. Each figure is one process, whose compilers know nothing
of the model: what is compiled once for all models, the moves, is kept between processes. Seconds
are those of writing and compiling the model, of tuning, and of as many draws as 400 effective ones
of the worst parameter take at the rate of the run. "nutpie" is NUTS on parameters and records
together, on the model as it is and with standardised records. Where a run has less than a hundred
effective draws, or an r_hat of 1.01 or more, it has not converged, and its figure is too low: it
has a star. Each finished figure is kept, so that a run that was interrupted goes on where it
stopped.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pymc as pm
from arviz_stats.base import array_stats

import pymc_privacy as pmp
from benchmarks.measuring import timed_sample, two_figures, worst_effective
from benchmarks.mixing import BEDS, DOCS, EPSILONS, papers_steps, parameters_of
from benchmarks.papers.pages import markdown, write

RESULTS = Path(__file__).parent / "results" / "waiting.json"
WANTED, CONVERGED, RHAT = 400.0, 100.0, 1.01
CHAINS = 2
SAMPLERS = ("ours", "sweep and NUTS", "nutpie", "nutpie, standardised")
# Slow beyond measure, so that they get a quarter of the draws.
_SHORTER = ("sweep and NUTS",)

Run = Callable[[int, int], tuple[Any, float]]
"""From draws and steps of tuning to a posterior and its CPU seconds."""


def applies(sampler: str, bed: str) -> bool:
    """Tell whether a sampler can be run on a bed: NUTS moves no discrete records."""
    if not sampler.startswith("nutpie"):
        return True
    standardised = BEDS[bed].noncentred is not None
    return find_spec("nutpie") is not None and standardised


def prepared(sampler: str, bed: str, epsilon: float) -> tuple[pm.Model, Run]:
    """Write a model, and return it with what runs a sampler on it."""
    standardised = BEDS[bed].noncentred if sampler.endswith("standardised") else None
    model = (standardised or BEDS[bed].model)(epsilon)
    if sampler.startswith("nutpie"):
        return model, _nutpie(model)
    step: Any = [pmp.Interweave(model=model)] if sampler == "ours" else papers_steps(model)
    names = [rv.name for rv in parameters_of(model)]

    def run(draws: int, tune: int) -> tuple[Any, float]:
        options = {"model": model, "step": step, "chains": CHAINS, "random_seed": 1}
        return timed_sample(draws, tune=tune, var_names=names, **options)

    return model, run


def _nutpie(model: pm.Model) -> Run:
    import nutpie

    compiled = nutpie.compile_pymc_model(model)

    def run(draws: int, tune: int) -> tuple[Any, float]:
        options = {"chains": CHAINS, "cores": 1, "seed": 1, "progress_bar": False}
        start = time.process_time()
        result = nutpie.sample(compiled, draws=draws, tune=tune, **options)
        return result["posterior"], time.process_time() - start

    return run


def measure(sampler: str, bed: str, epsilon: float, *, draws: int, tune: int) -> dict[str, float]:
    """Return the seconds of each part, and how many draws were effective, in this process."""
    start = time.process_time()
    model, run = prepared(sampler, bed, epsilon)
    run(5, 5)
    compiling = time.process_time() - start
    posterior, seconds = run(draws, tune)
    names = [rv.name for rv in parameters_of(model)]
    return {
        "compiling": compiling,
        "tuning": seconds * tune / (draws + tune),
        "drawing": seconds * draws / (draws + tune),
        "effective": worst_effective(posterior, names),
        "rhat": _worst_rhat(posterior, names),
        "draws": CHAINS * draws,
    }


def _worst_rhat(posterior: Any, names: list[str]) -> float:
    values = [posterior[name].values for name in names]
    flat = [value.reshape(*value.shape[:2], -1) for value in values]
    found = [
        array_stats.rhat(value[..., k], chain_axis=0, draw_axis=1)
        for value in flat
        for k in range(value.shape[-1])
    ]
    return float(np.max(found))


def until_wanted(found: dict[str, float]) -> float:
    """Return the seconds until 400 effective draws."""
    rate = found["effective"] / found["drawing"]
    return found["compiling"] + found["tuning"] + WANTED / rate


def in_a_process(task: dict[str, Any]) -> dict[str, float]:
    """Measure in a new process, whose compilers do not know the model."""
    with tempfile.TemporaryDirectory() as cache:
        environment = os.environ | {"PYTENSOR_FLAGS": f"base_compiledir={cache}"}
        command = [sys.executable, "-W", "ignore", "-m", "benchmarks.waiting", "--one"]
        done = subprocess.run(
            [*command, json.dumps(task)],
            env=environment,
            capture_output=True,
            text=True,
            check=True,
        )
    return json.loads(done.stdout.splitlines()[-1])


def table(rows: list[dict[str, Any]]) -> str:
    """Lay the results out as the docs show them."""
    found = {(r["bed"], r["epsilon"], r["sampler"]): r["found"] for r in rows}
    order = list(BEDS)
    lines = sorted({key[:2] for key in found}, key=lambda line: (order.index(line[0]), line[1]))
    cells = []
    for bed, epsilon in lines:
        cell: list[Any] = [bed, f"{epsilon:g}"]
        per_sampler = {s: found.get((bed, epsilon, s)) for s in SAMPLERS}
        cell += [_said(one) for one in per_sampler.values()]
        others = [until_wanted(f) for s, f in per_sampler.items() if f and s != "ours"]
        ours = per_sampler["ours"]
        cell.append(two_figures(min(others) / until_wanted(ours)) if ours and others else "")
        cells.append(cell)
    lengths = sorted({(r["draws"], r["tune"]) for r in rows if r["sampler"] == "ours"})
    runs = " or ".join(f"{draws} draws after {tune} of tuning" for draws, tune in lengths)
    head = ["model", "epsilon", *SAMPLERS, "best other / ours"]
    return f"Two chains each of {runs}.\n\n{markdown(head, cells)}"


def _said(found: dict[str, float] | None) -> str:
    """Write the seconds, and of these what compilation took."""
    if found is None:
        return ""
    converged = found["effective"] >= CONVERGED and found["rhat"] < RHAT
    seconds, compiling = two_figures(until_wanted(found)), two_figures(found["compiling"])
    return f"{seconds}{'' if converged else '*'} ({compiling})"


def main() -> None:
    """Measure what is missing, print, and write into the docs if asked to."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--beds", nargs="+", choices=BEDS, default=list(BEDS))
    parser.add_argument("--epsilons", type=float, nargs="+", default=EPSILONS)
    parser.add_argument("--samplers", nargs="+", choices=SAMPLERS, default=list(SAMPLERS))
    parser.add_argument("--draws", type=int, default=2000)
    parser.add_argument("--tune", type=int, default=1000)
    parser.add_argument("--output", type=Path, default=RESULTS)
    parser.add_argument("--docs", action="store_true", help="write the table into the docs too")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        print(json.dumps(measure(**json.loads(options.one))))
        return
    rows = json.loads(options.output.read_text()) if options.output.exists() else []
    done = {(r["bed"], r["epsilon"], r["sampler"]) for r in rows}
    for bed in options.beds:
        for epsilon in options.epsilons:
            for sampler in options.samplers:
                if (bed, epsilon, sampler) in done or not applies(sampler, bed):
                    continue
                part = 4 if sampler in _SHORTER else 1
                length = {"draws": options.draws // part, "tune": options.tune // part}
                task = {"sampler": sampler, "bed": bed, "epsilon": epsilon, **length}
                rows.append({**task, "found": in_a_process(task)})
                print(task, _said(rows[-1]["found"]), flush=True)
                options.output.parent.mkdir(exist_ok=True)
                options.output.write_text(json.dumps(rows, indent=1) + "\n")
    if options.docs:
        write("waiting", table(rows), DOCS)
    print("\n" + table(rows))


if __name__ == "__main__":
    main()
