"""Tables of cell keys, by which statistical offices perturb counts, read from a file.

A row of the file says with which probability p a count i becomes j = i + v. Counts beyond the last
i get the noise of the last.
"""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from pymc_privacy.accounting import Neighbours
from pymc_privacy.arguments import path as file_at
from pymc_privacy.arguments import shown
from pymc_privacy.errors import MechanismError
from pymc_privacy.mechanisms.table import TableMechanism

_NEEDED = ("i", "p")
_MOST_COUNTS = 2000


def read_ptable(path: Any, *, neighbours: Neighbours | None = "add_remove") -> TableMechanism:
    r"""Return the mechanism of a table of cell keys (a ptable) from a file.

    Parameters
    ----------
    path : path_like
        Text with a header: columns i (the count), p (the probability), and j (what it becomes) or
        v (by how much it is changed), or both. Between columns are commas, semicolons, tabs or
        spaces.
    neighbours : {"add_remove", "replace_one"}, default "add_remove"
        As for `TableMechanism`. Such tables have noise of a finite reach, so that no epsilon bounds
        what a release tells.

    Returns
    -------
    TableMechanism
        For `NoisyCount`; it continues beyond the last i.

    Raises
    ------
    MechanismError
        If the file is no such table, or the probabilities of a count do not add up to 1.

    See Also
    --------
    TableMechanism : What is returned.
    NoisyCount : Counts that were perturbed.

    Notes
    -----
    Cell keys add up: the perturbations of a total and of all its parts are not independent. Use
    the parts alone, of which each has a key of its own.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> import pymc_privacy as pmp
    >>> lines = ["i,j,p", "0,0,1", "1,0,.5", "1,2,.5", "2,1,.25", "2,2,.5", "2,3,.25"]
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = Path(folder) / "ptable.csv"
    ...     _ = file.write_text("\n".join(lines))
    ...     table = pmp.read_ptable(file)
    >>> table.probabilities
    ((1.0, 0.0, 0.0, 0.0), (0.5, 0.0, 0.5, 0.0), (0.0, 0.25, 0.5, 0.25))
    """
    rows = _rows(file_at("path", path, error=MechanismError))
    i, j, p = (np.array(column) for column in zip(*map(_entry, rows), strict=True))
    largest = int(i.max())
    if sorted(set(i.tolist())) != list(range(largest + 1)) or largest > _MOST_COUNTS:
        raise MechanismError(
            f"A ptable must have every count i from 0 to its largest, at most {_MOST_COUNTS}; got "
            f"{shown(sorted(set(i.tolist())))}."
        )
    table = np.zeros((largest + 1, max(int(j.max()), 1) + 1))
    np.add.at(table, (i, j), p)
    return TableMechanism(probabilities=table, neighbours=neighbours, continues=True)


def _rows(path: Any) -> list[dict[str, str]]:
    try:
        lines = path.read_text(encoding="utf-8-sig").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise MechanismError(
            f"A ptable must be a text file that can be read; got {type(error).__name__} for "
            f"{str(path)!r}."
        ) from None
    lines = [line for line in lines if line.strip()]
    header = lines[0] if lines else ""
    mark = next((mark for mark in (";", "\t", ",") if mark in header), None)
    split = [line.split() for line in lines] if mark is None else csv.reader(lines, delimiter=mark)
    first, *rest = [[word.strip().strip('"') for word in words] for words in split] or [[]]
    if not set(_NEEDED) <= set(first) or not {"j", "v"} & set(first) or not rest:
        raise MechanismError(
            "A ptable must have the columns i, p, and j or v, under a header; got "
            f"{shown(header)} and {len(rest)} rows."
        )
    # R writes row names without a name for their column.
    extra = {len(row) - len(first) for row in rest}
    if extra == {1}:
        rest = [row[1:] for row in rest]
    elif extra != {0}:
        raise MechanismError("Every row of a ptable must have as many entries as its header.")
    decimal = (",", ".") if mark == ";" else ("", "")
    return [
        {k: v.replace(*decimal) if decimal[0] else v for k, v in zip(first, row, strict=True)}
        for row in rest
    ]


def _entry(row: Mapping[str, str]) -> tuple[int, int, float]:
    """Return i, j and p of a row."""
    try:
        i, p = _whole(row["i"]), float(row["p"])
        both: Sequence[int] = [
            *([_whole(row["j"])] if "j" in row else []),
            *([i + _whole(row["v"])] if "v" in row else []),
        ]
        fine = i >= 0 and min(both) >= 0 and len(set(both)) == 1 and 0 <= p <= 1
    except (ValueError, OverflowError):
        fine = False
    if not fine:
        raise MechanismError(
            "A row of a ptable must have integers i >= 0 and j >= 0, v = j - i, and a probability "
            f"p; got {shown(dict(row))}."
        )
    return i, both[0], p


def _whole(word: str) -> int:
    number = float(word)
    if number != int(number):
        raise ValueError(word)
    return int(number)
