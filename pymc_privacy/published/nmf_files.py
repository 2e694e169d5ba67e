"""The folders and columns of the noisy measurement files of the 2020 census.

``{level}.parquet/DPQuery`` has a row for each unit and query, with all its noisy cells in C order;
``{level}.parquet/Constraint`` has what is known exactly, or as a bound. Both are split by state, of
which each has two parts: the geocodes of one begin with 0, those of its American Indian, Alaska
Native and Native Hawaiian areas (AIAN) with 1.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from pymc_privacy.arguments import choice, refusal
from pymc_privacy.errors import ReleaseError

LEVELS = (
    *("US", "State", "County", "Prim", "Tract_Subset_Group", "Tract_Subset", "Tract"),
    *("Block_Group", "Block"),
)
NOISY, KNOWN = "DPQuery", "Constraint"
VALUES = ("geocode", "query_name", "query_shape", "value", "variance", "sign")
"""Every column but the axes of the tables."""


def parquet() -> tuple[ModuleType, ModuleType]:
    """Return pyarrow and its datasets, or say how to get them."""
    try:
        import pyarrow
        import pyarrow.dataset
        import pyarrow.parquet
    except ImportError:
        raise ReleaseError(
            "Noisy measurement files need pyarrow to be read or written, the extra `parquet`: "
            "pip install 'pymc-privacy[parquet]'; it is not installed."
        ) from None
    return pyarrow, pyarrow.dataset


def level_name(level: Any) -> str:
    """Return a level as the folders spell it."""
    spelled = {name.lower(): name for name in LEVELS}
    if isinstance(level, str):
        level = spelled.get(level.strip().lower().replace(" ", "_"), level)
    return choice("level", level, LEVELS, error=ReleaseError)


def folder_of(path: Path, level: str) -> Path:
    """Return the folder of a level, in a product's folder or in one that has one product."""
    if not path.is_dir():
        raise ReleaseError(
            "path must be the folder of a product, such as US_Person_PL_PROD, that was downloaded "
            f"as it is; got {str(path)!r}, which is no folder."
        )
    name = f"{level}.parquet"
    found = [path / name] if (path / name).is_dir() else sorted(path.glob(f"*/{name}"))
    if len(found) != 1:
        there = sorted(p.name for p in path.iterdir())[:20]
        raise ReleaseError(
            f"The folder {str(path)!r} must have one folder {name}, itself or in one product; got "
            f"{len(found)} of them, and {', '.join(there) or 'nothing'}."
        )
    return found[0]


def parts_of(folder: Path, states: Sequence[str] | None) -> list[Path]:
    """Return the files of a table, of both parts of each state that is asked for."""
    if not folder.is_dir():
        return []
    split = {p.name.removeprefix("State="): p for p in folder.glob("State=*") if p.is_dir()}
    if not split:
        return sorted(folder.rglob("*.parquet"))
    wanted = split if states is None else [s for s in split if s in states or s[-2:] in states]
    return [file for s in sorted(wanted) for file in sorted(split[s].rglob("*.parquet"))]


def state_names(states: Any) -> list[str] | None:
    """Return states as two digits, or three with that of a part."""
    if states is None:
        return None
    wanted = 'a list of states by their codes, such as ["50"], or of their parts, such as "050"'
    several = [states] if isinstance(states, str | int) else states
    several = several.tolist() if isinstance(several, np.ndarray) else several
    listed = isinstance(several, list | tuple | set)
    named: list[Any] = [f"{s:02d}" if type(s) is int else s for s in several] if listed else []
    fine = all(isinstance(s, str) and s.isdigit() and len(s) in (2, 3) for s in named)
    if not fine or not named:
        raise refusal("states", wanted, states, error=ReleaseError)
    return named


def read_rows(files: Sequence[Path], columns: Sequence[str] | None = None) -> list[dict[str, Any]]:
    """Return the rows of some files."""
    _, dataset = parquet()
    if not files:
        return []
    try:
        table = dataset.dataset([str(f) for f in files], format="parquet")
        return table.to_table(columns=columns).to_pylist()
    except (OSError, KeyError, ValueError, TypeError) as error:
        raise ReleaseError(
            "A noisy measurement file must be parquet with the columns of the 2020 census; reading "
            f"{str(files[0].parent)!r} failed at {type(error).__name__}: {str(error)[:200]}."
        ) from None
