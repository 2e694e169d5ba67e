"""Numbers beside published ones: Monte Carlo errors, verdicts, and their place in the docs."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

import pymc_privacy as pmp
from benchmarks.interval_study.pages import replace_between
from benchmarks.papers.inputs import ROOT

RESULTS = ROOT / "benchmarks" / "results" / "papers"
RECORDED = ROOT / "benchmarks" / "recorded"
PAGE = ROOT / "docs" / "reproduction.md"
Row = dict[str, Any]


def markdown(header: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    """Lay out a table; the first column is text, the others are numbers."""
    lines = [" | ".join(map(str, row)) for row in (header, *rows)]
    lines.insert(1, "|".join(["---", *["---:"] * (len(header) - 1)]))
    return "\n".join(f"| {line} |" for line in lines)


def mean_and_error(values: Sequence[float]) -> tuple[float, float]:
    """Return the mean over replicates, and its Monte Carlo standard error."""
    array = np.asarray(values, dtype=float)
    error = array.std(ddof=1) / np.sqrt(len(array)) if len(array) > 1 else np.nan
    return float(array.mean()), float(error)


def grouped(rows: Sequence[Row], name: str) -> dict[Any, list[Row]]:
    """Return the rows that succeeded by the value of one setting."""
    groups: dict[Any, list[Row]] = {}
    for row in rows:
        if row["error"] is None:
            groups.setdefault(row[name], []).append(row)
    return groups


def remarks(rows: Sequence[Row]) -> str:
    """Say how long the replicates took, and how many failed, if any did."""
    failed = [row for row in rows if row["error"] is not None]
    minutes = sum(row["seconds"] for row in rows) / 60
    text = f" The replicates took {minutes:.0f} minutes by the clock."
    if failed:
        text += f" {len(failed)} of {len(rows)} replicates failed: {failed[0]['error']}"
    return text


def record(name: str, rows: Sequence[Row]) -> None:
    """Keep what succeeded in a file of the repository, from which tables are made again.

    Settings and results, to six digits, one line of JSON for each replicate.
    """
    RECORDED.mkdir(exist_ok=True)
    lines = [json.dumps(_short({k: v for k, v in row.items() if k != "error"})) for row in rows]
    kept = [line for line, row in zip(lines, rows, strict=True) if row["error"] is None]
    (RECORDED / f"{name}.jsonl").write_text("\n".join(kept) + "\n")


def read_recorded(name: str) -> list[Row]:
    """Return the rows that `record` kept."""
    lines = (RECORDED / f"{name}.jsonl").read_text().splitlines()
    return [json.loads(line) | {"error": None} for line in lines]


def _short(value: Any) -> Any:
    if isinstance(value, dict):
        return {k: _short(v) for k, v in value.items()}
    if isinstance(value, list | tuple | np.ndarray):
        return [_short(v) for v in value]
    if isinstance(value, float | np.floating):
        return float(f"{value:.6g}")
    return value.item() if isinstance(value, np.generic) else value


def write(marker: str, text: str, page: Path = PAGE) -> None:
    """Put a table in its place on the page."""
    page.write_text(replace_between(page.read_text(), marker, text))


def command(
    description: str,
    study: Callable[[argparse.Namespace], pmp.Study],
    table: Callable[[list[Row], argparse.Namespace], str],
    marker: str,
    *,
    replicates: int,
    page: Path = PAGE,
    **options: Any,
) -> None:
    """Run a study from the command line, print its table, and write it into the docs."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--replicates", type=int, default=replicates)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--workers", type=int, default=1, help="processes; 1 is this one")
    parser.add_argument("--output", type=Path, default=RESULTS)
    parser.add_argument("--docs", action="store_true", help="write the table into the docs too")
    parser.add_argument("--stored", action="store_true", help="run nothing: what is there")
    parser.add_argument("--recorded", action="store_true", help="run nothing: from what is on file")
    for name, default in options.items():
        many = {"nargs": "+"} if isinstance(default, tuple) else {}
        kind = type(default[0]) if isinstance(default, tuple) else type(default)
        parser.add_argument(f"--{name}", type=kind, default=default, **many)
    chosen = parser.parse_args()
    name = marker.replace(" ", "_")
    if chosen.recorded:
        rows = read_recorded(name)
        # Captions say what was run, whatever the options of this call are.
        for option, default in options.items():
            if not isinstance(default, tuple) and option in rows[0]:
                setattr(chosen, option, rows[0][option])
        text = table(rows, chosen)
        print(text)
        if chosen.docs:
            write(marker, text, page)
        return
    experiment = study(chosen)
    if chosen.stored:
        rows = experiment.rows()
    elif chosen.workers > 1:
        with ProcessPoolExecutor(chosen.workers) as executor:
            rows = experiment.run(executor)
    else:
        rows = experiment.run()
    text = table(rows, chosen)
    print(text)
    if chosen.docs:
        record(name, rows)
        write(marker, text, page)


def exact_command(
    description: str, table: Callable[[], str], marker: str, page: Path = PAGE
) -> None:
    """Print a table that needs no study, and write it into the docs if that is asked for."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--docs", action="store_true", help="write the table into the docs too")
    chosen = parser.parse_args()
    text = table()
    print(text)
    if chosen.docs:
        write(marker, text, page)
