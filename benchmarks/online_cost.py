"""What a stream costs for each particle and record, and how that grows: CPU time, one thread.

    python -m benchmarks.online_cost

Asking, answering and taking in, by 300 particles at epsilon 1; nothing is written to disk.
"""

from __future__ import annotations

import time

import numpy as np

import pymc_privacy as pmp
from benchmarks.papers.yildirim.streams import SIMULATED, model, queries_of

PARTICLES, USERS, EPSILON = 300, 6000, 1.0


def seconds(method: str, users: int = USERS) -> tuple[float, float]:
    """Return the CPU seconds of the first half of all users, and of all."""
    rng, made, half = np.random.default_rng(3), model(), 0.0
    given = queries_of(method, EPSILON, SIMULATED)
    stream = pmp.online(
        made["x"], epsilon=EPSILON, draws=PARTICLES, random_seed=5, model=made, **given
    )
    began = time.process_time()
    for count, record in enumerate(rng.normal(*SIMULATED, users)):
        if count == users // 2:
            half = time.process_time() - began
        query = stream.query()
        stream.update(query, query.simulate(rng, record))
    return half, time.process_time() - began


if __name__ == "__main__":
    for method in ("exact interval", "intervals with memory", "bins for both"):
        seconds(method, 30)  # compiled before the clock runs
        half, whole = seconds(method)
        each = 1e6 * whole / USERS / PARTICLES
        print(f"{method}: {each:.2f} us per particle-record, {whole / half:.2f} times the half")
