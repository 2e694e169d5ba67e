"""`read_nmf`: the noisy measurement files of the 2020 census as a tidy frame."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from pymc_privacy.arguments import integer, names, refusal, shown
from pymc_privacy.arguments import path as folder_at
from pymc_privacy.errors import ReleaseError
from pymc_privacy.mechanisms.discrete_variance import discrete_gaussian_scale
from pymc_privacy.published.nmf_files import (
    KNOWN,
    LEVELS,
    NOISY,
    VALUES,
    folder_of,
    level_name,
    parts_of,
    read_rows,
    state_names,
)

_KINDS = {"=": "exact", "==": "exact", ">=": "at_least", "<=": "at_most"}
# Published tables, made consistent by an optimisation: not the truth.
_POST_PROCESSED = "pl94"
_PARENT_CODES = 3  # digits of a part of a state


def read_nmf(
    path: Any,
    *,
    level: str,
    queries: Sequence[str] | None = None,
    states: Sequence[str] | None = None,
    totals: Mapping[str, int] | None = None,
) -> pd.DataFrame:
    """Return noisy measurements of the 2020 census, a row for each cell of each query.

    Of the redistricting data (PL 94-171) and the demographic and housing characteristics (DHC), as
    downloaded. The extra ``parquet`` is needed.

    Parameters
    ----------
    path : path_like
        The folder of one product, such as ``US_Person_PL_PROD``, or one that has it.
    level : str
        US, State, County, Tract, Block_Group, Block, or a level of DHC between.
    queries : sequence of str, optional
        Names without their endings ``_dpq`` and ``_con``, such as ``["total", "hispanic *
        cenrace"]``; of noisy queries and of constraints. All by default.
    states : sequence of str, optional
        By their codes: both parts of each, as ``"50"``, or one of them, as ``"150"``.
    totals : dict, optional
        Exact totals of states, which are public and not in the files, at level State. That of
        ``"50"`` is of both parts together, which must be there; ``"050"`` is of this part alone,
        for states that have no other.

    Returns
    -------
    pandas.DataFrame
        Columns level, geocode, geoid, parent, aian, query; one for each axis of the tables, with
        the index of the cell, missing where the query sums over the axis; recode, where categories
        of an axis were put together under another name; value; scale, the sigma of the discrete
        Gaussian noise, 0 of what has none; kind: noisy, exact, at_least or at_most.

    Raises
    ------
    ReleaseError
        If there is no such folder, level, query or state, a file has other columns, a total is of
        one part only, or the post-processed tables among the constraints are asked for.

    See Also
    --------
    simulate_nmf : Write files in this format, of an invented state.
    LinearMeasurements : What the frame is for.
    discrete_gaussian_scale : Sigma from a variance.

    Notes
    -----
    The variance in the files is that of discrete Gaussian noise, and not sigma squared. The
    constraints ``pl94_con`` of DHC hold the tables that were published before, which were
    made consistent and are not the truth: they are left out. What is read follows descriptions and
    source code of the Bureau and of two programs that read the files; no original was at hand.

    ``geoid`` is given where the geocode has it: of states two digits, of blocks the last 16. Others
    were numbered anew for the census. ``parent`` is the geocode one level up, where the files of
    that level are in the same folder. A state's total row has both parts in its geocode, as in
    ``"050+150"``.

    Examples
    --------
    The examples need pyarrow:

    >>> import tempfile
    >>> import numpy as np
    >>> import pymc_privacy as pmp
    >>> try:
    ...     import pyarrow
    ... except ImportError:
    ...     columns = ["kind", "scale", "value"]
    ... else:
    ...     with tempfile.TemporaryDirectory() as folder:
    ...         _ = pmp.simulate_nmf(np.random.default_rng(1), folder, counties=1, tracts=2)
    ...         frame = pmp.read_nmf(folder, level="Tract", queries=["total"])
    ...     columns = sorted(frame.columns[-3:])
    >>> columns
    ['kind', 'scale', 'value']
    """
    folder = folder_at("path", path, error=ReleaseError)
    level, chosen = level_name(level), state_names(states)
    wanted = None if queries is None else [_plain(q) for q in names("queries", queries)]
    tables = folder_of(folder, level)
    rows = [
        (known, row)
        for known, name in ((False, NOISY), (True, KNOWN))
        for row in read_rows(parts_of(tables / name, chosen))
    ]
    if not rows:
        raise ReleaseError(
            f"The folder {tables.name} must have measurements of the states that are asked for; "
            f"got none of {shown(states)}."
        )
    _check_columns(rows[0][1])
    there = {_plain(row["query_name"]) for _, row in rows}
    _check_queries(wanted, there)
    rows = [(k, r) for k, r in rows if wanted is None or _plain(r["query_name"]) in wanted]
    rows = [(k, r) for k, r in rows if not _is_post_processed(k, r["query_name"])]
    axes = [name for name in rows[0][1] if name not in VALUES] if rows else []
    frame = pd.concat([_of_row(level, known, row, axes) for known, row in rows], ignore_index=True)
    frame.loc[frame["kind"] == "noisy", "scale"] = _scales(frame[frame["kind"] == "noisy"])
    frame.insert(3, "parent", _parents(frame["geocode"], tables, level, chosen))
    if totals is not None:
        frame = pd.concat([frame, _total_rows(frame, level, totals, axes)], ignore_index=True)
    return frame.astype(dict.fromkeys(axes, "Int64"))


def _plain(query: str) -> str:
    """Return the name of a query without what files write behind it."""
    return query.strip().removesuffix("_dpq").removesuffix("_con")


def _is_post_processed(known: bool, query: str) -> bool:
    return known and _plain(query).lower().startswith(_POST_PROCESSED)


def _check_columns(row: Mapping[str, Any]) -> None:
    missing = [name for name in VALUES[:-1] if name not in row]
    if missing:
        raise ReleaseError(
            f"A noisy measurement file must have the columns {', '.join(VALUES[:-1])}; "
            f"{', '.join(missing)} is missing in one with {', '.join(row)}."
        )


def _check_queries(wanted: Sequence[str] | None, there: set[str]) -> None:
    for query in wanted or ():
        if _is_post_processed(True, query):
            raise ReleaseError(
                f"queries must not have {query!r}: these are the tables that were published after "
                "an optimisation had made them consistent, and not exact counts."
            )
    unknown = [query for query in wanted or () if query not in there]
    if unknown:
        raise ReleaseError(
            f"queries must be among those of the level, {', '.join(sorted(there))}; got "
            f"{', '.join(map(repr, unknown))}."
        )


def _of_row(level: str, known: bool, row: Mapping[str, Any], axes: Sequence[str]) -> pd.DataFrame:
    """Return the cells of one unit's query."""
    shape, values = tuple(row["query_shape"]), np.asarray(row["value"])
    geocode, query = row["geocode"], row["query_name"]
    if len(shape) != len(axes) or values.size != np.prod(shape):
        raise ReleaseError(
            f"A query must have a value for each cell of its shape, an axis for each of "
            f"{', '.join(axes)}; got {values.size} values of shape {shape} for {query!r} of "
            f"{geocode!r}."
        )
    sign = row.get("sign") if known else None
    if known and sign not in _KINDS:
        raise refusal(f"The sign of {query!r}", "one of =, >= and <=", sign, error=ReleaseError)
    found: dict[str, Any] = {
        "level": level,
        "geocode": geocode,
        "geoid": _geoid(level, geocode),
        "aian": geocode.startswith("1"),
        "query": _plain(query),
    }
    cells = np.indices(shape).reshape(len(shape), -1)
    recodes = []
    for axis, cell in zip(axes, cells, strict=True):
        name = row[axis]
        found[axis] = pd.array([pd.NA] * values.size if name == "*" else cell, dtype="Int64")
        if name not in ("*", axis, "detailed"):
            recodes.append(f"{axis}={name}")
    found["recode"] = ", ".join(recodes)
    found["value"] = values
    # The variance for now.
    found["scale"] = 0.0 if known else float(row["variance"])
    found["kind"] = _KINDS[sign] if sign is not None else "noisy"
    return pd.DataFrame(found)


def _scales(noisy: pd.DataFrame) -> np.ndarray:
    """Return sigma from the variances that stand in the place of scales."""
    variances, member = np.unique(noisy["scale"].to_numpy(np.float64), return_inverse=True)
    if np.any(~(variances > 0)):
        raise refusal("variance", "a number > 0", float(variances.min()), error=ReleaseError)
    return np.array([float(discrete_gaussian_scale(v)) for v in variances])[member]


def _geoid(level: str, geocode: str) -> str | None:
    if level == "State":
        return geocode[-2:]
    return geocode[-16:] if level == "Block" else None


def _parents(
    geocodes: pd.Series, tables: Any, level: str, states: Sequence[str] | None
) -> list[str | None]:
    """Return the geocode one level up of each unit, from the files of the nearest level above."""
    for above in reversed(LEVELS[1 : LEVELS.index(level)] if level != "US" else ()):
        files = parts_of(tables.parent / f"{above}.parquet" / NOISY, states)
        if files:
            known = {row["geocode"] for row in read_rows(files, ["geocode"])}
            return [_prefix(code, known) for code in geocodes]
    return [None] * len(geocodes)


def _prefix(geocode: str, known: set[str]) -> str | None:
    shorter: Iterator[str] = (geocode[:k] for k in range(len(geocode) - 1, 0, -1))
    return next((code for code in shorter if code in known), None)


def _total_rows(
    frame: pd.DataFrame, level: str, totals: Mapping[str, int], axes: Sequence[str]
) -> pd.DataFrame:
    """Return exact totals of states, each of both parts or of the one that is named."""
    if not isinstance(totals, Mapping) or level != "State":
        wanted = 'a dictionary of states and their totals, with level="State"'
        raise refusal("totals", wanted, totals, error=ReleaseError)
    codes, rows = set(frame["geocode"]), []
    for state, total in totals.items():
        value = integer(f"The total of {shown(state)}", total, least=0, error=ReleaseError)
        parts = [state] if len(str(state)) == _PARENT_CODES else [f"0{state}", f"1{state}"]
        if missing := [part for part in parts if part not in codes]:
            raise ReleaseError(
                f"The total of {shown(state)} must be of parts that were read, because it is that "
                f"of both together; {', '.join(missing)} is missing. Of a state without AIAN areas "
                f"give the total of {parts[0]!r}."
            )
        rows.append(
            {
                "level": level,
                "geocode": "+".join(parts),
                "geoid": str(state)[-2:],
                "parent": None,
                "aian": len(parts) == 1 and str(state).startswith("1"),
                "query": "total",
                **dict.fromkeys(axes, pd.NA),
                "recode": "",
                "value": value,
                "scale": 0.0,
                "kind": "exact",
            }
        )
    return pd.DataFrame(rows, columns=frame.columns)
