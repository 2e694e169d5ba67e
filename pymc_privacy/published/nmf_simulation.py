"""Files in the format of the 2020 noisy measurement files, of a state that does not exist."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from pymc_privacy.arguments import flag, generator, integer, refusal
from pymc_privacy.arguments import path as folder_at
from pymc_privacy.errors import ReleaseError
from pymc_privacy.mechanisms.discrete_variance import discrete_gaussian_variance
from pymc_privacy.mechanisms.gaussian import DiscreteGaussian
from pymc_privacy.published.nmf_files import KNOWN, NOISY, parquet

AXES, SHAPE = ("hhgq", "votingage", "hispanic", "cenrace"), (8, 2, 2, 63)
# rho of the production run, its share for each level, and the shares of a level's queries.
_RHO = (542 / 339) ** 2
_LEVEL = {"State": 1440 / 4099, "County": 447 / 4099, "Tract": 687 / 4099}
_QUERIES: Mapping[str, Mapping[str, float]] = {
    "State": {"total": 3773 / 4097, "detailed": 230 / 4097},
    "County": {"total": 3126 / 4097, "detailed": 754 / 4097},
    "Tract": {
        "total": 1567 / 4102,
        "hispanic * cenrace": 1933 / 4102,
        "votingage * hispanic * cenrace": 67 / 4102,
        "hhgq": 5 / 4102,
        "detailed": 241 / 2051,
    },
}
_DIGITS = {"State": 3, "County": 8, "Tract": 11}
_MOST_PEOPLE = 99_999  # in one building


def simulate_nmf(
    rng: np.random.Generator,
    path: Any,
    *,
    counties: int = 3,
    tracts: int = 4,
    people: int = 3000,
    state: str = "50",
    aian: bool = False,
) -> dict[str, np.ndarray]:
    """Write noisy measurement files of an invented state, and return its true tables.

    For practice and tests: levels State, County and Tract of the persons' redistricting data, with
    the noise of the production run, and constraints. No real person or place is in them.

    Parameters
    ----------
    rng : numpy.random.Generator
    path : path_like
        A folder, in which ``US_Person_PL_PROD`` is made.
    counties, tracts : int
        How many, and how many of the second in each of the first.
    people : int, default 3000
        Of a tract, on average.
    state : str, default "50"
    aian : bool, default False
        Whether the state has a second part.

    Returns
    -------
    dict
        The true counts of each tract by its geocode, of shape (8, 2, 2, 63): kind of housing,
        voting age, Hispanic origin, race.

    Raises
    ------
    ReleaseError
        If a number or the state's code is not what it must be, or pyarrow is not installed.

    See Also
    --------
    read_nmf : Reads them.

    Examples
    --------
    >>> import tempfile
    >>> import numpy as np
    >>> import pymc_privacy as pmp
    >>> try:
    ...     import pyarrow
    ... except ImportError:
    ...     shapes = {(8, 2, 2, 63)}
    ... else:
    ...     with tempfile.TemporaryDirectory() as folder:
    ...         truth = pmp.simulate_nmf(np.random.default_rng(1), folder, counties=1, tracts=2)
    ...     shapes = {table.shape for table in truth.values()}
    >>> shapes
    {(8, 2, 2, 63)}
    """
    rng = generator("rng", rng)
    said: Any = {"least": 1, "error": ReleaseError}
    counties = integer("counties", counties, most=9999, **said)
    tracts = integer("tracts", tracts, most=999, **said)
    people = integer("people", people, most=10**6, **said)
    if not isinstance(state, str) or len(state) != 2 or not state.isdigit():
        raise refusal("state", "two digits, such as '50'", state, error=ReleaseError)
    root = folder_at("path", path, error=ReleaseError) / "US_Person_PL_PROD"
    parts = ["0", "1"] if flag("aian", aian, error=ReleaseError) else ["0"]
    parquet()
    truth: dict[str, np.ndarray] = {}
    for part in parts:
        ours = _people(rng, f"{part}{state}", counties, tracts, people)
        for level, digits in _DIGITS.items():
            units = _added_up(ours, digits)
            here = root / f"{level}.parquet"
            _write(here / NOISY / f"State={part}{state}", _noisy(rng, level, units))
            _write(here / KNOWN / f"State={part}{state}", _known(ours, units))
        truth |= ours
    return truth


def _people(
    rng: np.random.Generator, part: str, counties: int, tracts: int, people: int
) -> dict[str, np.ndarray]:
    """Return invented tables of tracts: most live in households, some in two kinds of others."""
    shares = np.zeros(SHAPE)
    shares[0] = rng.dirichlet(np.full(252, 0.05)).reshape(SHAPE[1:])
    shares[5, 1] = 0.02 * shares[0, 1]
    shares[3, 1] = 0.005 * shares[0, 1]
    return {
        f"{part}1{c:04d}{t:03d}": rng.poisson(people * rng.gamma(8.0, 1 / 8) * shares)
        for c in range(1, counties + 1)
        for t in range(1, tracts + 1)
    }


def _added_up(tables: Mapping[str, np.ndarray], digits: int) -> dict[str, np.ndarray]:
    found: dict[str, np.ndarray] = {}
    for geocode, table in tables.items():
        found[geocode[:digits]] = found.get(geocode[:digits], np.zeros(SHAPE, int)) + table
    return found


def _noisy(rng: np.random.Generator, level: str, units: Mapping[str, np.ndarray]) -> dict:
    columns: dict[str, list] = {n: [] for n in ("geocode", "query_name", *AXES)}
    columns |= {n: [] for n in ("query_shape", "value", "variance")}
    for geocode, table in units.items():
        for query, share in _QUERIES[level].items():
            scale = (_RHO * _LEVEL[level] * share) ** -0.5
            kept = [query == "detailed" or axis in query.split(" * ") for axis in AXES]
            summed = table.sum(axis=tuple(k for k, keep in enumerate(kept) if not keep)).ravel()
            noisy = DiscreteGaussian(scale=scale).simulate(rng, summed)
            columns["geocode"].append(geocode)
            columns["query_name"].append(f"{query}_dpq")
            for axis, keep in zip(AXES, kept, strict=True):
                shown = "detailed" if query == "detailed" else axis
                columns[axis].append(shown if keep else "*")
            shape = [n if keep else 1 for n, keep in zip(SHAPE, kept, strict=True)]
            columns["query_shape"].append(shape)
            columns["value"].append(noisy.tolist())
            columns["variance"].append(float(discrete_gaussian_variance(scale)))
    return columns


def _known(tracts: Mapping[str, np.ndarray], units: Mapping[str, np.ndarray]) -> dict:
    """Return bounds by the number of buildings, and that nobody below voting age is in nursing."""
    # Who lives in a household may be nobody; of each other kind there is a building, or none.
    buildings = {g: 1 * (t.sum(axis=(1, 2, 3)) > 0) for g, t in tracts.items()}
    columns: dict[str, list] = {n: [] for n in ("geocode", "query_name", "sign", *AXES)}
    columns |= {n: [] for n in ("query_shape", "value", "variance")}

    def add(geocode: str, query: str, sign: str, spec: list[str], value: Any) -> None:
        shape = [8, 1, 1, 1] if len(value) > 1 else [1, 1, 1, 1]
        row = (geocode, query, sign, *spec, shape, np.asarray(value).tolist(), 0.0)
        for column, entry in zip(columns.values(), row, strict=True):
            column.append(entry)

    for geocode, table in units.items():
        there = sum(n for code, n in buildings.items() if code.startswith(geocode))
        least = np.where(np.arange(8) == 0, 0, there)
        most = np.where(np.arange(8) == 0, _MOST_PEOPLE * (table.sum() // 2 + 1), 0)
        most = most + least * _MOST_PEOPLE
        by_kind = ["hhgq", "*", "*", "*"]
        add(geocode, "hhgq_total_lb_con", ">=", by_kind, least)
        add(geocode, "hhgq_total_ub_con", "<=", by_kind, most)
        nursing = ["gqNursingTotal", "nonvoting", "*", "*"]
        add(geocode, "nurse_nva_0_con", "=", nursing, [0])
    return columns


def _write(folder: Path, columns: dict) -> None:
    arrow, _ = parquet()
    table = arrow.table(columns)
    place = table.schema.get_field_index("variance")
    variance = arrow.array(columns["variance"], arrow.float32())
    folder.mkdir(parents=True, exist_ok=True)
    whole = table.set_column(place, "variance", variance)
    arrow.parquet.write_table(whole, folder / "part-00000.parquet")
