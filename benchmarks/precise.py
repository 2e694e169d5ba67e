"""Private posterior intervals: Table 4 of Liu et al. (PRECISE), and a study of coverage and width.

    python -m benchmarks.precise [--sizes 100 1000] [--epsilons 0.1 1] [--repeats 500]

PRECISE in its four variants, whose privacy is nominal, beside methods whose privacy is proven, on
the simulation settings of the paper. Each finished cell is kept in ``benchmarks/results``, so that
a run that was interrupted goes on where it stopped. The lowest of many coverages is below the truth
by chance alone: where a proven method came out below 0.93, it is run again on more and other data
sets. The tables and the picture of
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
    below_target,
    draw,
    lowest_coverage,
    replace_between,
    study_table,
    table_4,
)
from benchmarks.interval_study.table_4 import PAPER, table_4_row
from benchmarks.interval_study.tasks import MEANT_TO_COVER, TASKS, check_cell, run_cell

ROOT = Path(__file__).parent.parent
RESULTS = ROOT / "benchmarks" / "results" / "precise.json"
PAGE = ROOT / "docs" / "curator.md"
PICTURE = ROOT / "docs" / "images" / "intervals.png"
SIZES = (100, 500, 1000, 5000)
EPSILONS = (0.1, 0.5, 1.0, 2.0, 5.0, 10.0)


def stored() -> dict[str, list[dict[str, Any]]]:
    """Return the results so far."""
    found = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    return {"study": [], "checks": [], "table_4": []} | found


def store(results: dict[str, list[dict[str, Any]]]) -> None:
    """Write the results in one step, so that a crash leaves the old ones or the new ones."""
    RESULTS.parent.mkdir(exist_ok=True)
    partial_file = RESULTS.with_suffix(".part")
    partial_file.write_text(json.dumps(results, indent=1) + "\n")
    os.replace(partial_file, RESULTS)


def _cell(row: dict[str, Any]) -> tuple[Any, ...]:
    return tuple(row[key] for key in ("task", "size", "epsilon", "repeats", "seed"))


def missing(
    results: dict[str, list[dict[str, Any]]], options: argparse.Namespace
) -> Iterable[tuple[str, Callable[..., Any], tuple[Any, ...]]]:
    """List what is still to be run: kind, function, arguments."""
    seed = options.seed
    done = {_cell(r) for r in results["study"]}
    for name in options.tasks:
        for size in options.sizes:
            for epsilon in options.epsilons:
                cell = (name, size, epsilon, options.repeats, seed)
                if cell not in done:
                    yield "study", run_cell, cell
    done = {_cell(r) for r in results["checks"]}
    rows = study_rows(results, options)
    for row in {_cell(r): r for m in MEANT_TO_COVER for r in below_target(rows, m)}.values():
        cell = (*_cell(row)[:3], options.checks, seed)
        if cell not in done:
            yield "checks", check_cell, cell
    done = {(r["class"], r["epsilon"], r["runs"], r["seed"]) for r in results["table_4"]}
    for name, epsilon in PAPER:
        cell = (name, epsilon, options.runs, seed)
        if cell not in done:
            yield "table_4", table_4_row, cell


def run(options: argparse.Namespace) -> dict[str, list[dict[str, Any]]]:
    """Run what is missing on all cores, keeping every cell as soon as it is finished."""
    results = stored()
    columns = ("{task.description}", BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns) as progress, ProcessPoolExecutor(options.workers) as pool:
        # What is to be checked is known when the study is done.
        for stage in ("cells", "checks"):
            # Long cells first, so that no core waits for the last one.
            todo = sorted(
                missing(results, options), key=lambda t: 0 if t[0] == "table_4" else -t[2][1]
            )
            bar = progress.add_task(stage, total=len(todo))
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


def check_rows(
    results: dict[str, list[dict[str, Any]]], options: argparse.Namespace
) -> list[dict[str, Any]]:
    """Return what was run again for this run."""
    wanted = (options.checks, options.seed)
    return [r for r in results["checks"] if (r["repeats"], r["seed"]) == wanted]


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
    text = replace_between(text, "coverage", lowest_coverage(rows, check_rows(results, options)))
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
    parser.add_argument("--checks", type=int, default=4000, help="repeats where coverage was low")
    parser.add_argument("--runs", type=int, default=2000, help="of each row of Table 4")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--workers", type=int, default=os.cpu_count())
    parser.add_argument("--no-docs", action="store_true", help="leave the documentation as it is")
    options = parser.parse_args()
    results = run(options)
    rows = study_rows(results, options)
    print(lowest_coverage(rows, check_rows(results, options)))
    if not options.no_docs:
        write_docs(results, options)
        print(f"Wrote {PAGE} and {PICTURE}.")


if __name__ == "__main__":
    main()
