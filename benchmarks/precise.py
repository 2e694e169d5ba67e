"""Private posterior intervals: Table 4 of Liu et al. (PRECISE), and a study of coverage and width.

    python -m benchmarks.precise [--sizes 100 1000] [--epsilons 0.1 1] [--repeats 500]

PRECISE in its four variants, whose privacy is nominal, beside methods whose privacy is proven, on
the simulation settings of the paper. Each finished cell is kept in ``benchmarks/results``, so that
a run that was interrupted goes on where it stopped. The tables and the picture of
``docs/curator.md`` are rewritten from those results. Nothing here is published, so that all noise
is seedable.
"""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Callable, Iterable
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path
from typing import Any

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TimeRemainingColumn

from benchmarks.interval_study.pages import (
    draw,
    lowest_coverage,
    replace_between,
    study_table,
    table_4,
)
from benchmarks.interval_study.table_4 import PAPER, table_4_row
from benchmarks.interval_study.tasks import TASKS, run_cell

ROOT = Path(__file__).parent.parent
RESULTS = ROOT / "benchmarks" / "results" / "precise.json"
PAGE = ROOT / "docs" / "curator.md"
PICTURE = ROOT / "docs" / "images" / "intervals.png"
SIZES = (100, 500, 1000, 5000)
EPSILONS = (0.1, 0.5, 1.0, 2.0, 5.0, 10.0)


def stored() -> dict[str, list[dict[str, Any]]]:
    """Return the results so far."""
    return json.loads(RESULTS.read_text()) if RESULTS.exists() else {"study": [], "table_4": []}


def store(results: dict[str, list[dict[str, Any]]]) -> None:
    """Write the results in one step, so that a crash leaves the old ones or the new ones."""
    RESULTS.parent.mkdir(exist_ok=True)
    partial_file = RESULTS.with_suffix(".part")
    partial_file.write_text(json.dumps(results, indent=1) + "\n")
    os.replace(partial_file, RESULTS)


def missing(
    results: dict[str, list[dict[str, Any]]], options: argparse.Namespace
) -> Iterable[tuple[str, Callable[..., Any], tuple[Any, ...]]]:
    """List what is still to be run: kind, function, arguments."""
    seed = options.seed
    done = {(r["task"], r["size"], r["epsilon"], r["repeats"], r["seed"]) for r in results["study"]}
    for name in options.tasks:
        for size in options.sizes:
            for epsilon in options.epsilons:
                cell = (name, size, epsilon, options.repeats, seed)
                if cell not in done:
                    yield "study", run_cell, cell
    done = {(r["class"], r["epsilon"], r["runs"], r["seed"]) for r in results["table_4"]}
    for name, epsilon in PAPER:
        cell = (name, epsilon, options.runs, seed)
        if cell not in done:
            yield "table_4", table_4_row, cell


def run(options: argparse.Namespace) -> dict[str, list[dict[str, Any]]]:
    """Run what is missing on all cores, keeping every cell as soon as it is finished."""
    results = stored()
    # Long cells first, so that no core waits for the last one.
    todo = sorted(missing(results, options), key=lambda t: -(t[2][1] if t[0] == "study" else 0))
    columns = ("{task.description}", BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns) as progress, ProcessPoolExecutor(options.workers) as pool:
        bar = progress.add_task("cells", total=len(todo))
        futures = {pool.submit(function, *cell): kind for kind, function, cell in todo}
        for future in as_completed(futures):
            results[futures[future]].append(future.result())
            store(results)
            progress.advance(bar)
    return results


def study_rows(
    results: dict[str, list[dict[str, Any]]], options: argparse.Namespace
) -> list[dict[str, Any]]:
    """Return the rows of this run in order."""
    wanted = {(options.repeats, options.seed)}
    rows = [r for r in results["study"] if (r["repeats"], r["seed"]) in wanted]
    order = list(TASKS)
    rows = [r for r in rows if r["size"] in options.sizes and r["epsilon"] in options.epsilons]
    return sorted(rows, key=lambda r: (order.index(r["task"]), r["size"], r["epsilon"]))


def write_docs(
    results: dict[str, list[dict[str, Any]]], options: argparse.Namespace, page: Path = PAGE
) -> None:
    """Rewrite the tables of the page, and the picture."""
    rows = study_rows(results, options)
    fourth = [
        r for r in results["table_4"] if (r["runs"], r["seed"]) == (options.runs, options.seed)
    ]
    text = page.read_text()
    text = replace_between(text, "table 4", table_4(fourth))
    text = replace_between(text, "coverage", lowest_coverage(rows))
    text = replace_between(text, "study", study_table(rows))
    page.write_text(text)
    sizes = sorted({row["size"] for row in rows})
    draw(rows, 1000 if 1000 in sizes else sizes[-1], PICTURE)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tasks", nargs="+", choices=TASKS, default=list(TASKS))
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES)
    parser.add_argument("--epsilons", type=float, nargs="+", default=EPSILONS)
    parser.add_argument("--repeats", type=int, default=500)
    parser.add_argument("--runs", type=int, default=2000, help="of each row of Table 4")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--workers", type=int, default=os.cpu_count())
    parser.add_argument("--no-docs", action="store_true", help="leave the documentation as it is")
    options = parser.parse_args()
    results = run(options)
    rows = study_rows(results, options)
    print(lowest_coverage(rows))
    if not options.no_docs:
        write_docs(results, options)
        print(f"Wrote {PAGE} and {PICTURE}.")


if __name__ == "__main__":
    main()
