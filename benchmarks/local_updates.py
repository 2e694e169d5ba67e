"""What one update of a record with a local release costs, against a kernel written by hand.

    python -m benchmarks.local_updates [--size 1000000] [--output FILE]

Records are conditionally independent given the parameters, so a sweep is one pass over them. For
each model, library and kernel take turns in one process, single thread, and the smallest time of
several blocks counts, in CPU seconds. The kernels do the same update for this model and no other:
they draw binary records given their randomized responses, categorical ones likewise, and offer
Normal records with Laplace noise a proposal from their law.
"""

from __future__ import annotations

import argparse
import json
import math
import platform
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numba
import numpy as np

RESULTS = Path(__file__).parent / "results" / "local_updates.json"
SIZE, EPSILON, CATEGORIES = 1_000_000, 1.0, 5


def binary(size: int):
    """Write randomized response of yes-or-no records."""
    import pymc as pm

    import pymc_privacy as pmp

    rng = np.random.default_rng(size)
    mechanism = pmp.RandomizedResponse(epsilon=EPSILON)
    answers = mechanism.simulate(rng, (rng.random(size) < 0.3).astype(np.int64))
    with pm.Model() as model:
        p = pm.Beta("p", 1, 1)
        x = pm.Bernoulli("x", p, shape=size)
        pmp.Privatized("y", x, mechanism, observed=answers, local=True)
    return model, answers


@numba.njit
def binary_by_hand(rng, x, y, p):
    """Draw every record given its response."""
    keep = 1 / (1 + math.exp(-EPSILON))
    given = np.empty(2)
    for v in range(2):
        yes = p * (keep if v == 1 else 1 - keep)
        no = (1 - p) * (keep if v == 0 else 1 - keep)
        given[v] = yes / (yes + no)
    for i in range(x.size):
        x[i] = rng.random() < given[y[i]]


def categorical(size: int):
    """Write randomized response of records with five categories."""
    import pymc as pm

    import pymc_privacy as pmp

    rng = np.random.default_rng(size)
    mechanism = pmp.RandomizedResponse(epsilon=EPSILON, categories=CATEGORIES)
    answers = mechanism.simulate(rng, rng.integers(0, CATEGORIES, size))
    with pm.Model() as model:
        p = pm.Dirichlet("p", np.ones(CATEGORIES))
        x = pm.Categorical("x", p, shape=size)
        pmp.Privatized("y", x, mechanism, observed=answers, local=True)
    return model, answers


@numba.njit
def categorical_by_hand(rng, x, y, p):
    """Draw every record given its response."""
    k = CATEGORIES
    other = 1 / (math.exp(EPSILON) + k - 1)
    keep = math.exp(EPSILON) * other
    below = np.empty((k, k))
    for v in range(k):
        total = 0.0
        for c in range(k):
            total += p * (keep if v == c else other)
            below[v, c] = total
        below[v] /= total
    for i in range(x.size):
        u, cell = rng.random(), 0
        while cell < k - 1 and u >= below[y[i], cell]:
            cell += 1
        x[i] = cell


def normal(size: int):
    """Write Normal records, each released with Laplace noise."""
    import pymc as pm

    import pymc_privacy as pmp

    rng = np.random.default_rng(size)
    mechanism = pmp.Laplace(scale=1.0)
    answers = mechanism.simulate(rng, rng.normal(0.3, 1.0, size))
    with pm.Model() as model:
        mu = pm.Normal("mu", 0, 1)
        x = pm.Normal("x", mu, 1.0, shape=size)
        pmp.Privatized("y", x, mechanism, observed=answers, local=True)
    return model, answers


@numba.njit
def normal_by_hand(rng, x, y, mu):
    """Offer every record a proposal from its law."""
    for i in range(x.size):
        proposal = mu + rng.standard_normal()
        ratio = abs(y[i] - x[i]) - abs(y[i] - proposal)
        if ratio + rng.standard_exponential() >= 0:
            x[i] = proposal


CASES: dict[str, tuple[Callable[[int], Any], Any, float]] = {
    "randomized response, yes or no": (binary, binary_by_hand, 0.5),
    "randomized response, 5 categories": (categorical, categorical_by_hand, 1 / CATEGORIES),
    "Laplace noise on Normal records": (normal, normal_by_hand, 0.0),
}


def seconds(function: Callable[[], None]) -> float:
    """Return the CPU seconds of one call."""
    start = time.thread_time()
    function()
    return time.thread_time() - start


def measure(name: str, size: int, blocks: int = 12) -> dict[str, Any]:
    """Time library and kernel alternately, and return the best block of each."""
    import pymc_privacy as pmp

    write, kernel, parameter = CASES[name]
    model, answers = write(size)
    step = pmp.RecordSweep(model=model, rng=1)
    point = model.initial_point(0)
    x, rng = point["x"].copy(), np.random.default_rng(2)

    def library():
        nonlocal point
        point, _ = step.step(point)

    def by_hand():
        kernel(rng, x, answers, parameter)

    for function in (library, by_hand):
        function()
    pairs = [(seconds(library), seconds(by_hand)) for _ in range(blocks)]
    ours, theirs = (min(times) for times in zip(*pairs, strict=True))
    return {
        "model": name,
        "records": size,
        "nanoseconds_per_record": 1e9 * ours / size,
        "million_updates_per_second": size / ours / 1e6,
        "by_hand": 1e9 * theirs / size,
        "ratio": ours / theirs,
    }


def table(rows: list[dict[str, Any]]) -> str:
    """Lay the results out as the docs show them."""
    lines = [
        "| model | records | ns per record update | million updates per second | by hand (ns) "
        "| ratio |",
        "|---|---:|---:|---:|---:|---:|",
    ]
    lines += [
        f"| {r['model']} | {r['records']:,} | {r['nanoseconds_per_record']:.1f} "
        f"| {r['million_updates_per_second']:.1f} | {r['by_hand']:.1f} | {r['ratio']:.1f} |"
        for r in rows
    ]
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--size", type=int, default=SIZE)
    parser.add_argument("--output", type=Path, default=RESULTS)
    options = parser.parse_args()
    rows = []
    for name in CASES:
        rows.append(measure(name, options.size))
        print(f"{name}: {rows[-1]['million_updates_per_second']:.1f} million/s", flush=True)
    print("\n" + table(rows))
    options.output.parent.mkdir(exist_ok=True)
    machine = {"python": platform.python_version(), "machine": platform.machine()}
    results = {"machine": machine, "local_updates": rows}
    options.output.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
