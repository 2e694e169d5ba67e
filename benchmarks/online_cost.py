"""What a stream costs for each particle and record, and how that grows: CPU time, one thread.

    python -m benchmarks.online_cost [--docs] [--particles 300 1000]

Asking, answering and taking in 6000 users at epsilon 1, without a folder. What was measured before
is kept, with the load of the machine, which makes CPU time longer, too; the verdict is by what was
measured under the least load.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from functools import cache
from typing import NamedTuple

import numpy as np
import pymc as pm

import pymc_privacy as pmp
from benchmarks.interval_study.pages import replace_between
from benchmarks.papers.inputs import ROOT
from benchmarks.papers.pages import markdown
from benchmarks.papers.yildirim.streams import SIMULATED, model, queries_of

PAGE = ROOT / "docs" / "performance.md"
MEASURED = ROOT / "benchmarks" / "results" / "online_cost.jsonl"
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


class Cost(NamedTuple):
    """One measurement."""

    queries: str
    particles: int
    load: float  # processes that wanted to run, on average over a minute
    each: float  # microseconds
    growth: float  # CPU of all users, by that of the first half


def measure(method: str, particles: int) -> Cost:
    """Return what a stream costs."""
    half, whole = seconds(method, particles)
    load = os.getloadavg()[0]
    return Cost(method, particles, load, 1e6 * whole / USERS / particles, whole / half)


def table(costs: list[Cost]) -> str:
    """Lay out the cost of each way to ask, and the verdict for each number of particles."""
    header = ["queries, particles", "load", "µs per particle-record", "CPU of 6000 / of 3000"]
    cells = [
        [f"{c.queries}, {c.particles}", f"{c.load:.0f}", f"{c.each:.2f}", f"{c.growth:.2f}"]
        for c in costs
    ]
    caption = (
        f"CPU time of asking, answering and taking in {USERS} users at epsilon {EPSILON:g}, for "
        f"each particle and record, on one of {os.cpu_count()} cores under the load shown."
    )
    verdicts = []
    for particles in sorted({cost.particles for cost in costs}):
        quietest: dict[str, Cost] = {}
        for cost in sorted(costs, key=lambda cost: -cost.load):
            if cost.particles == particles and cost.queries in METHODS:
                quietest[cost.queries] = cost
        most = max(cost.each for cost in quietest.values())
        growth = max(cost.growth for cost in quietest.values())
        right = "Within" if most <= MOST and growth < GROWTH else "NOT within"
        verdicts.append(
            f"**{right}** {MOST:g} µs and {GROWTH:g} times the cost for twice the users, of "
            f"{particles} particles for Normal records: at most {most:.2f} µs, {growth:.2f} times."
        )
    return "\n\n".join([caption, markdown(header, cells), " ".join(verdicts)])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--docs", action="store_true", help="write the table into the docs too")
    parser.add_argument("--particles", type=int, nargs="*", default=[300, 1000])
    options = parser.parse_args()
    MEASURED.parent.mkdir(parents=True, exist_ok=True)
    for particles in options.particles:
        for method in (*METHODS, "bins for counts"):
            seconds(method, particles, 30)  # compiled before the clock runs
            with MEASURED.open("a") as file:
                file.write(json.dumps(measure(method, particles)) + "\n")
    text = table([Cost(*json.loads(line)) for line in MEASURED.read_text().splitlines()])
    print(text)
    if options.docs:
        PAGE.write_text(replace_between(PAGE.read_text(), MARKER, text))


if __name__ == "__main__":
    main()
