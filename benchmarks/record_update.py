"""What one record update costs, everything included, against a kernel written by hand.

    python -m benchmarks.record_update [--sizes 100 1000 …] [--output FILE]

The model is the linear regression of Ju et al. (2022) and Awan et al.: two covariates and a
response per record, nine clamped contributions, Laplace noise. Each size runs in a process
of its own, so that its peak memory is its own; library and kernel take turns in that process,
and the smallest time of several blocks counts, in CPU seconds.
"""

from __future__ import annotations

import argparse
import json
import math
import platform
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numba
import numpy as np

SIZES = (100, 1_000, 10_000, 100_000, 1_000_000)
BOUND, SCALE = 5.0, 9.0
RESULTS = Path(__file__).parent / "results" / "record_update.json"


def regression(size: int):
    """Write the model for the library."""
    import pymc as pm
    import pytensor.tensor as pt

    import pymc_privacy as pmp

    with pm.Model() as model:
        beta = pm.Normal("beta", 0, 2, shape=3)
        sigma = pm.HalfNormal("sigma", 1)
        mu = pm.Normal("mu", 0, 1, shape=2)
        x = pm.Normal("x", mu, 1.0, shape=(size, 2))
        y = pm.Normal("y", beta[0] + x[:, 0] * beta[1] + x[:, 1] * beta[2], sigma, shape=size)
        a, b = (pt.clip(x[:, j], -BOUND, BOUND) / BOUND for j in range(2))
        c = pt.clip(y, -BOUND, BOUND) / BOUND
        contributions = pt.stack([a, b, a * a, a * b, b * b, c, a * c, b * c, c * c], axis=1)
        pmp.Privatized("s", contributions, pmp.Laplace(scale=SCALE), observed=release(size))
    return model


def release(size: int) -> np.ndarray:
    """Return a release near what records of the starting point would give."""
    rng = np.random.default_rng(size)
    centre = size * np.array([0, 0, 0.04, 0, 0.04, 0, 0, 0, 0.04])
    return centre + rng.laplace(scale=SCALE, size=9)


@numba.njit
def contribute(x1, x2, y, t):
    """Fill in the nine contributions of one record."""
    a = min(max(x1, -BOUND), BOUND) / BOUND
    b = min(max(x2, -BOUND), BOUND) / BOUND
    c = min(max(y, -BOUND), BOUND) / BOUND
    t[0], t[1], t[2], t[3], t[4] = a, b, a * a, a * b, b * b
    t[5], t[6], t[7], t[8] = c, a * c, b * c, c * c


@numba.njit
def sweep_by_hand(rng, x, y, beta, sigma, mu, released):
    """Do one sweep of this model and no other: the limit to compare with."""
    n, d = y.size, 9
    total, old, new = np.zeros(d), np.empty(d), np.empty(d)
    for i in range(n):
        contribute(x[i, 0], x[i, 1], y[i], old)
        for j in range(d):
            total[j] += old[j]
    now = 0.0
    for j in range(d):
        now -= abs(released[j] - total[j]) / SCALE
    accepted = 0
    for i in range(n):
        x1 = mu[0] + rng.standard_normal()
        x2 = mu[1] + rng.standard_normal()
        y1 = beta[0] + beta[1] * x1 + beta[2] * x2 + sigma * rng.standard_normal()
        contribute(x[i, 0], x[i, 1], y[i], old)
        contribute(x1, x2, y1, new)
        then = 0.0
        for j in range(d):
            then -= abs(released[j] - (total[j] - old[j] + new[j])) / SCALE
        if then >= now or math.log(rng.random()) < then - now:
            for j in range(d):
                total[j] += new[j] - old[j]
            x[i, 0], x[i, 1], y[i], now = x1, x2, y1, then
            accepted += 1
    return accepted


def block_seconds(function: Callable[[], None], repeats: int) -> float:
    """Return CPU seconds per call."""
    start = time.thread_time()
    for _ in range(repeats):
        function()
    return (time.thread_time() - start) / repeats


def measure(size: int, blocks: int = 12) -> dict[str, float]:
    """Time library and kernel alternately, and return the best block of each."""
    import pymc_privacy as pmp

    baseline = _peak_megabytes()
    model = regression(size)
    step = pmp.RecordSweep(model=model, rng=1)
    point = model.initial_point(0)
    rng = np.random.default_rng(2)
    x, y = point["x"].copy(), point["y"].copy()
    parameters = (point["beta"], math.exp(point["sigma_log__"]), point["mu"])
    accepted = []

    def library():
        nonlocal point
        point, statistics = step.step(point)
        accepted.append(statistics[0]["record_sweep_accept"])

    def by_hand():
        sweep_by_hand(rng, x, y, *parameters, release(size))

    for function in (library, by_hand):
        function()
    repeats = max(1, int(0.08 / max(block_seconds(library, 1), 1e-6)))
    pairs = [
        (block_seconds(library, repeats), block_seconds(by_hand, repeats)) for _ in range(blocks)
    ]
    ours, theirs = (min(times) for times in zip(*pairs, strict=True))
    return {
        "records": size,
        "microseconds_per_record": 1e6 * ours / size,
        "by_hand": 1e6 * theirs / size,
        "ratio": ours / theirs,
        "accept": float(np.mean(accepted)),
        "megabytes": _peak_megabytes(),
        "megabytes_for_imports": baseline,
    }


def sweeps_per_second(size: int, draws: int = 1000, tune: int = 500) -> dict[str, float]:
    """Time the sampling of `pmp.sample`, all moves included, after a first run has compiled it."""
    import pymc_privacy as pmp

    model = regression(size)
    for length in (5, draws):
        result = pmp.sample(
            length,
            model=model,
            tune=tune if length == draws else 5,
            chains=1,
            cores=1,
            random_seed=1,
            progressbar=False,
            quiet=True,
            compute_convergence_checks=False,
        )
    seconds = result["sample_stats"].attrs["sampling_time"]
    return {"records": size, "sweeps_per_second": (draws + tune) / seconds}


def _peak_megabytes() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def table(rows: list[dict[str, float]]) -> str:
    """Lay the results out as the docs show them."""
    lines = [
        "| records | µs per record update | by hand | ratio | peak memory (MB) |",
        "|---:|---:|---:|---:|---:|",
    ]
    lines += [
        f"| {r['records']:,} | {r['microseconds_per_record']:.3f} | {r['by_hand']:.3f} "
        f"| {r['ratio']:.2f} | {r['megabytes']:.0f} |"
        for r in rows
    ]
    return "\n".join(lines)


def in_a_process(task: str, size: int) -> dict[str, float]:
    """Run one measurement in an interpreter of its own."""
    code = f"import json, benchmarks.record_update as b; print(json.dumps(b.{task}({size})))"
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    return json.loads(done.stdout.splitlines()[-1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES)
    parser.add_argument("--output", type=Path, default=RESULTS)
    options = parser.parse_args()
    rows = []
    for size in options.sizes:
        rows.append(in_a_process("measure", size))
        print(f"{size:>9,} records: {rows[-1]['microseconds_per_record']:.3f} µs each", flush=True)
    whole = [in_a_process("sweeps_per_second", size) for size in options.sizes if size <= 10_000]
    print("\n" + table(rows) + "\n")
    for row in whole:
        print(f"pmp.sample, {row['records']:,} records: {row['sweeps_per_second']:.0f} sweeps/s")
    options.output.parent.mkdir(exist_ok=True)
    machine = {"python": platform.python_version(), "machine": platform.machine()}
    results = {"machine": machine, "record_update": rows, "sample": whole}
    options.output.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
