"""The joint log density of all releases given the totals, as one jitable function.

Releases of one database are flattened into one vector of coordinates, and so are the totals that
they were made from, which may be more or fewer. Each release brings a *law*: the scalar formula of
a mechanism that acts on each coordinate, or a `JointLaw`, applied to all of them at once.

A release may be made group by group: then a record enters the totals of its own group alone, and
`nearby` are the coordinates that one record can change.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple

import numpy as np
from numba import njit
from numba.extending import register_jitable

from pymc_privacy.algorithms.machine_code.caching import compiled

Formula = Callable[..., Any]


class ReleaseLaw(NamedTuple):
    """A scalar formula of a release, of its statistic, and of ``parameters`` public numbers."""

    formula: Formula
    parameters: int


@dataclass(frozen=True, eq=False)
class JointLaw:
    """A release whose coordinates are not independent, or whose density is compiled elsewhere.

    ``function(release, statistic)`` takes two vectors, returns the log density, and can be
    called from jitted code.
    """

    function: Callable[..., Any]


class Noise(NamedTuple):
    """All releases of one database: their laws, and their public numbers.

    ``offsets[k]`` says where release k begins in ``release`` and ``parameters`` (a row for each
    coordinate), and where its statistic begins among the totals.
    """

    laws: tuple[ReleaseLaw | JointLaw, ...]
    offsets: np.ndarray
    release: np.ndarray
    parameters: np.ndarray
    groups: np.ndarray = np.empty((0, 0), dtype=np.int64)
    """The group of each record (n) in each release, 0 where there is one only; empty if in all."""
    nearby: np.ndarray = np.zeros((0, 2), dtype=np.int64)
    """``offsets`` among those coordinates that one record enters, where there are groups."""

    @property
    def is_grouped(self) -> bool:
        """Whether some release is made group by group."""
        return self.groups.size > 0

    @property
    def width(self) -> int:
        """Return the number of contributions of one record, to all releases."""
        return int((self.nearby if self.is_grouped else self.offsets)[-1, 1])

    def totals(self, contributions: np.ndarray) -> np.ndarray:
        """Return the totals behind all releases, from contributions (width, n)."""
        if not self.is_grouped:
            return contributions.sum(axis=1)
        totals = np.empty(self.offsets[-1, 1])
        for k, group in enumerate(self.groups):
            (first, last), (begin, end) = self.offsets[k : k + 2, 1], self.nearby[k : k + 2, 1]
            width = end - begin
            for j in range(width):
                totals[first + j : last : width] = np.bincount(
                    group, weights=contributions[begin + j], minlength=(last - first) // width
                )
        return totals

    def of_rows(self, rows: slice) -> Noise:
        """Return the same for some of the records."""
        return self._replace(groups=self.groups[:, rows]) if self.is_grouped else self


def noise(
    laws: Sequence[Formula | JointLaw],
    releases: Sequence[Any],
    parameters: Sequence[Sequence[Any]],
    widths: Sequence[int] | None = None,
    groups: Sequence[np.ndarray | None] | None = None,
) -> Noise:
    """Flatten several releases, or none, into one `Noise`.

    Parameters
    ----------
    laws
        A formula or a joint law of each release.
    releases
        Their values.
    parameters
        The further arguments of each formula, numbers or one for each coordinate.
    widths
        The number of contributions of a record to each release; by default as many as it has
        coordinates.
    groups
        The group of each record where a release is made group by group: values of such a release
        have the groups on their first axis.
    """
    if not laws:
        return Noise((), np.zeros((1, 2), dtype=np.int64), np.empty(0), np.empty((0, 2)))
    values = [np.ravel(np.asarray(value, dtype=np.float64)) for value in releases]
    rows = np.zeros((sum(map(len, values)), max(map(len, parameters))))
    first = 0
    for value, shape, given in zip(values, map(np.shape, releases), parameters, strict=True):
        last = first + len(value)
        for k, parameter in enumerate(given):
            rows[first:last, k] = np.broadcast_to(parameter, shape).ravel()
        first = last
    lengths = [len(value) for value in values]
    widths = lengths if widths is None else widths
    groups = groups or [None] * len(laws)
    is_by = [group is not None for group in groups]
    # Of a release by group there are as many totals as coordinates, of which a record enters few.
    near = _ends([w if by else n for n, w, by in zip(lengths, widths, is_by, strict=True)], widths)
    ends = _ends(lengths, [n if by else w for n, w, by in zip(lengths, widths, is_by, strict=True)])
    index = _under_each_other(groups) if any(is_by) else np.empty((0, 0), dtype=np.int64)
    return Noise(
        tuple(
            law if isinstance(law, JointLaw) else ReleaseLaw(law, len(given))
            for law, given in zip(laws, parameters, strict=True)
        ),
        ends,
        np.concatenate(values),
        rows,
        index,
        near,
    )


def _ends(*counts: Sequence[int]) -> np.ndarray:
    """Return where parts begin and end that have these numbers of coordinates, and of totals."""
    return np.concatenate([np.zeros((1, 2), dtype=np.int64), np.cumsum(counts, axis=1).T])


def _under_each_other(groups: Sequence[np.ndarray | None]) -> np.ndarray:
    size = next(len(group) for group in groups if group is not None)
    return np.array([np.zeros(size, np.int64) if g is None else g for g in groups], dtype=np.int64)


@cache
def log_density(laws: tuple[ReleaseLaw | JointLaw, ...]) -> Callable[..., float]:
    """Build ``f(offsets, release, total, parameters)``, the joint log density of all releases.

    The function unrolls the releases at compile time, so that laws of different types
    meet in one jitted call.
    """
    first = _joint(laws[0]) if isinstance(laws[0], JointLaw) else _coordinate_sum(laws[0])
    if len(laws) == 1:
        return first
    rest = log_density(laws[1:])

    @register_jitable
    def split(offsets, release, total, parameters):
        cut, below = offsets[1, 0] - offsets[0, 0], offsets[1, 1] - offsets[0, 1]
        here = first(offsets, release[:cut], total[:below], parameters[:cut])
        return here + rest(offsets[1:], release[cut:], total[below:], parameters[cut:])

    return split


def jit_with(laws: Sequence[ReleaseLaw | JointLaw]) -> Callable[..., Any]:
    """Return how code that calls these laws is jitted.

    Code compiled elsewhere cannot be found again by the disk cache.
    """
    return njit if any(isinstance(law, JointLaw) for law in laws) else compiled


def _coordinate_sum(law: ReleaseLaw) -> Callable[..., float]:
    formula = _with_row(law.formula, law.parameters)

    @register_jitable
    def coordinates(offsets, release, total, parameters):
        value = 0.0
        for j in range(release.size):
            value += formula(release[j], total[j], parameters, j)
        return value

    return coordinates


def _with_row(formula: Formula, count: int) -> Formula:
    """Return ``f(release, statistic, parameters, j)``, which takes row j as further arguments.

    Written out for the few parameters that plain noise has: a tuple of them costs a loop two
    thirds of its speed.
    """

    @register_jitable
    def two(release, statistic, p, j):
        return formula(release, statistic, p[j, 0], p[j, 1])

    @register_jitable
    def three(release, statistic, p, j):
        return formula(release, statistic, p[j, 0], p[j, 1], p[j, 2])

    @register_jitable
    def four(release, statistic, p, j):
        return formula(release, statistic, p[j, 0], p[j, 1], p[j, 2], p[j, 3])

    return {2: two, 3: three, 4: four}.get(count) or _one_by_one(formula, count)


def _one_by_one(formula: Formula, count: int) -> Formula:
    """Return the same for any number of parameters."""
    if count == 0:

        @register_jitable
        def apply(release, statistic, parameters, j, *taken):
            return formula(release, statistic, *taken)

        return apply
    rest, last = _one_by_one(formula, count - 1), count - 1

    @register_jitable
    def take(release, statistic, parameters, j, *taken):
        return rest(release, statistic, parameters, j, parameters[j, last], *taken)

    return take


def _joint(law: JointLaw) -> Callable[..., float]:
    function = law.function

    @register_jitable
    def joint(offsets, release, total, parameters):
        return function(release, total)

    return joint
