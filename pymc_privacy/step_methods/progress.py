"""Acceptance rates in the progress bar of `pm.sample`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.progress import TextColumn
from rich.table import Column


def progress_columns(titles: Mapping[str, str], chains: int) -> tuple[list[TextColumn], dict]:
    """Return one column for each statistic, under its title, and what they show at first."""
    columns = [
        TextColumn(f"{{task.fields[{name}]:0.2f}}", table_column=Column(title, ratio=1))
        for name, title in titles.items()
    ]
    return columns, {name: [0.0] * chains for name in titles}


def progress_updates(titles: Mapping[str, str]) -> tuple[Any, ...]:
    """Return the function from a draw's statistics to those that are shown."""
    return (lambda stats: {name: stats[name] for name in titles},)
