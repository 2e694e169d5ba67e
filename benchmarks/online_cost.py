"""What a stream costs for each particle and record, and how that grows: CPU time, one thread.

    python -m benchmarks.online_cost [--docs] [--particles 300 1000]

Asking, answering and taking in 6000 users at epsilon 1; nothing is written to disk.
"""

from __future__ import annotations

import argparse
import time
from functools import cache

import numpy as np
import pymc as pm

import pymc_privacy as pmp
from benchmarks.interval_study.pages import replace_between
from benchmarks.papers.inputs import ROOT
from benchmarks.papers.pages import markdown
from benchmarks.papers.yildirim.streams import SIMULATED, model, queries_of

PAGE = ROOT / "docs" / "performance.md"
MARKER = "online cost"
USERS, EPSILON = 6000, 1.0
METHODS = ("exact interval", "intervals with memory", "bins for both")
MOST, GROWTH = 2.0, 2.5  # microseconds, and times the half: what a stream may cost


@cache
def counts() -> pm.Model:
    """Return a model of records that are no location-scale family: queries are searched for."""
    with pm.Model() as made:
        pm.Poisson("x", pm.Gamma("rate", 2, 0.1))
    return made


def seconds(method: str, particles: int, users: int = USERS) -> tuple[float, float]:
    """Return the CPU seconds of the first half of all users, and of all."""
    rng, half = np.random.default_rng(3), 0.0
    made, given, records = counts(), {}, rng.poisson(20.0, users).astype(float)
    if method in METHODS:
        made, given = model(), queries_of(method, EPSILON, SIMULATED)
        records = rng.normal(*SIMULATED, users)
    stream = pmp.online(
        made["x"], epsilon=EPSILON, draws=particles, random_seed=5, model=made, **given
    )
    began = time.process_time()
    for count, record in enumerate(records):
        if count == users // 2:
            half = time.process_time() - began
        query = stream.query()
        stream.update(query, query.simulate(rng, record))
    return half, time.process_time() - began


def table(rows: list[tuple[str, int, float, float]]) -> str:
    """Lay out the cost of each way to ask, and the verdict."""
    header = ["queries", "particles", "µs per particle-record", "CPU of 6000 / of 3000"]
    cells = [[name, n, f"{each:.2f}", f"{growth:.2f}"] for name, n, each, growth in rows]
    normal = [row for row in rows if row[0] in METHODS]
    most, growth = max(row[2] for row in normal), max(row[3] for row in normal)
    right = most <= MOST and growth < GROWTH
    verdict = (
        f"**{'Within' if right else 'NOT WITHIN'}** {MOST:g} µs for each particle and record of "
        f"Normal users, and less than {GROWTH:g} times the cost for twice the users: at most "
        f"{most:.2f} µs and {growth:.2f} times."
    )
    caption = (
        f"CPU time of asking, answering and taking in {USERS} users at epsilon {EPSILON:g}, for "
        "each particle and record, on one thread of a machine that others were using as well."
    )
    return "\n\n".join([caption, markdown(header, cells), verdict])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--docs", action="store_true", help="write the table into the docs too")
    parser.add_argument("--particles", type=int, nargs="+", default=[300, 1000])
    options = parser.parse_args()
    rows = []
    for method in (*METHODS, "bins for counts"):
        seconds(method, options.particles[0], 30)  # compiled before the clock runs
        for particles in options.particles:
            half, whole = seconds(method, particles)
            rows.append((method, particles, 1e6 * whole / USERS / particles, whole / half))
            print(*rows[-1], flush=True)
    text = table(rows)
    print(text)
    if options.docs:
        PAGE.write_text(replace_between(PAGE.read_text(), MARKER, text))


if __name__ == "__main__":
    main()
