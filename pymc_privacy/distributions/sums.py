"""`Sum`: which totals of a table of counts are meant, by its dims."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from scipy import sparse

from pymc_privacy.arguments import refusal, shown
from pymc_privacy.errors import ReleaseError

Dim = str | int


class Rows(NamedTuple):
    """The matrix of some totals, and their shape; rows are in the order of C."""

    matrix: sparse.csr_array
    shape: tuple[int, ...]
    dims: tuple[str, ...] | None = None
    """Of the release, where every axis is one of the counts."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Sum:
    """Totals of a table of counts over some of its dims, and within groups of others.

    Dims of the table that are not named stay as they are: with ``over="race"`` a table of tracts
    by races has one total for each tract.

    Parameters
    ----------
    over : str, int or sequence of them, optional
        Dims that are summed over, by their names or by their numbers. All of them give one number;
        ``over=()`` means every count by itself.
    within : dict, optional
        For a dim, the group of each of its coordinates, a label or an integer: counts are summed
        within groups. The groups are in the order of the coordinates that the model has for the dim
        of the release, which integers that are none of them count from 0; without any, in sorted
        order.

    Raises
    ------
    ReleaseError
        If neither is given, a dim is named twice, or groups are not labels of one kind without
        missing ones.

    See Also
    --------
    LinearMeasurements : Takes it in the place of a matrix.

    Examples
    --------
    Tracts by two ages, in two counties. What was published are totals of the tracts, and each
    county's two ages:

    >>> import numpy as np
    >>> import pymc as pm
    >>> import pymc_privacy as pmp
    >>> county = ["a", "a", "b"]
    >>> coords = {"tract": ["t1", "t2", "t3"], "age": ["child", "adult"], "county": ["a", "b"]}
    >>> with pm.Model(coords=coords) as model:
    ...     people = pm.Poisson("people", 40.0, dims=("tract", "age"))
    ...     noise = pmp.DiscreteGaussian(scale=3.0)
    ...     tract = pmp.LinearMeasurements(
    ...         "tract_total", people, pmp.Sum(over="age"), noise, observed=[70, 85, 93]
    ...     )
    ...     ages = pmp.LinearMeasurements(
    ...         "county_age",
    ...         people,
    ...         pmp.Sum(within={"tract": county}),
    ...         noise,
    ...         observed=[[75, 82], [31, 60]],
    ...         dims=("county", "age"),
    ...     )
    >>> tract.eval().shape, ages.eval().shape
    ((3,), (2, 2))
    """

    over: Dim | Sequence[Dim] | None = None
    within: Mapping[Dim, Any] | None = None

    def __post_init__(self) -> None:
        """Check the names and the groups."""
        if self.over is None and not self.within:
            raise ReleaseError(
                "A Sum must say which dims it is over, or within which groups of a dim; over=() "
                "means every count by itself. Got neither."
            )
        if self.within is not None and not isinstance(self.within, Mapping):
            wanted = "a dictionary of dims and the groups of their coordinates"
            raise refusal("within", wanted, self.within, error=ReleaseError)
        named = [*_several(self.over), *(self.within or {})]
        if not all(_is_dim(dim) for dim in named):
            wanted = "names or numbers of dims"
            raise refusal("over and within", wanted, named, error=ReleaseError)
        groups = {dim: _labels(dim, labels) for dim, labels in (self.within or {}).items()}
        object.__setattr__(self, "over", _several(self.over))
        object.__setattr__(self, "within", groups)

    def rows(
        self,
        shape: Sequence[int],
        names: Sequence[str | None],
        coords: Sequence[Sequence[Hashable] | None] | None = None,
    ) -> Rows:
        """Return the matrix of the totals of a table with these lengths and names of its dims.

        ``coords`` are those of the dims of the release, where it has some.
        """
        assert isinstance(self.over, tuple)
        assert self.within is not None
        over = [_axis(dim, names) for dim in self.over]
        within = {_axis(dim, names): labels for dim, labels in self.within.items()}
        if len({*over, *within}) < len(over) + len(within):
            raise ReleaseError(
                f"A Sum must name each dim once; got over={self.over!r} and within "
                f"{', '.join(map(repr, self.within))}."
            )
        matrix = sparse.csr_array(np.ones((1, 1), dtype=np.int64))
        lengths: list[int] = []
        for axis, length in enumerate(shape):
            if axis in over:
                factor = sparse.csr_array(np.ones((1, length), dtype=np.int64))
            elif axis in within:
                own = coords[len(lengths)] if coords and len(lengths) < len(coords) else None
                factor = _members(names[axis] or axis, within[axis], length, own)
            else:
                factor = sparse.eye_array(length, dtype=np.int64, format="csr")
            if axis not in over:
                lengths.append(factor.shape[0])
            matrix = sparse.csr_array(sparse.kron(matrix, factor, format="csr"))
        kept = [name for axis, name in enumerate(names) if axis not in over]
        dims = None if within or None in kept or not kept else tuple(map(str, kept))
        return Rows(matrix, tuple(lengths), dims)


def _several(dims: Any) -> tuple[Any, ...]:
    if dims is None:
        return ()
    return tuple(dims) if isinstance(dims, list | tuple) else (dims,)


def _is_dim(dim: Any) -> bool:
    return isinstance(dim, str | int) and not isinstance(dim, bool)


def _axis(dim: Dim, names: Sequence[str | None]) -> int:
    if isinstance(dim, int) and -len(names) <= dim < len(names):
        return dim % len(names)
    if dim not in names:
        known = [name if name is not None else str(k) for k, name in enumerate(names)]
        raise ReleaseError(
            f"A Sum must name dims of the counts, which are {', '.join(known)}; got {dim!r}."
        )
    return list(names).index(str(dim))


def _labels(dim: Dim, labels: Any) -> np.ndarray:
    """Return the groups of the coordinates of a dim: one kind of label, none missing."""
    array: Any = None
    if not isinstance(labels, str | bytes | Mapping) and np.ndim(labels) == 1:
        array = np.array(list(labels), dtype=object)
    missing = array is None or not array.size or pd.isna(array).any()
    kinds = set() if missing else {_kind(label) for label in array}
    if len(kinds) != 1 or None in kinds:
        wanted = "one label for each coordinate, all words or all integers, none missing"
        raise refusal(f"The groups within {dim!r}", wanted, labels, error=ReleaseError)
    return array


def _kind(label: Any) -> type | None:
    if isinstance(label, str):
        return str
    return int if isinstance(label, int | np.integer) and not isinstance(label, bool) else None


def _members(
    dim: Any, labels: np.ndarray, length: int, coords: Sequence[Hashable] | None
) -> sparse.csr_array:
    """Return a row for each group, with a one for each of its coordinates."""
    if labels.size != length:
        raise ReleaseError(
            f"The groups within {dim!r} must be one for each of its {length} coordinates; got "
            f"{labels.size}."
        )
    if coords is None:
        order, member = np.unique(labels, return_inverse=True)
        size = order.size
    else:
        place: dict[Any, int] = {label: k for k, label in enumerate(coords)}
        size = len(place)
        if not set(labels) & set(place):
            # Integers that are no coordinates count them.
            place = dict(zip(range(size), range(size), strict=True))
        if unknown := set(labels) - set(place):
            raise ReleaseError(
                f"The groups within {dim!r} must be coordinates of the dim of the release, which "
                f"are {shown(list(coords))}; got {shown(sorted(unknown))}."
            )
        member = np.array([place[label] for label in labels])
    ones = np.ones(length, dtype=np.int64)
    return sparse.csr_array((ones, (member, np.arange(length))), (size, length))
