"""The joint log density of all releases given the totals, as one jitable function.

Releases of one database are flattened into one vector of coordinates, and so are the totals that
they were made from, which may be more or fewer. Each release brings a *law*: the scalar formula of
a mechanism that acts on each coordinate, or a `JointLaw`, applied to all of them at once.
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

    @property
    def width(self) -> int:
        """Return the number of totals behind all releases."""
        return int(self.offsets[-1, 1])


def noise(
    laws: Sequence[Formula | JointLaw],
    releases: Sequence[Any],
    parameters: Sequence[Sequence[Any]],
    widths: Sequence[int] | None = None,
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
        The number of totals behind each release; by default as many as it has coordinates.
    """
    if not laws:
        return Noise((), np.zeros((1, 2), dtype=np.int64), np.empty(0), np.empty((0, 2)))
    values = [np.ravel(np.asarray(value, dtype=np.float64)) for value in releases]
    rows = np.zeros((sum(map(len, values)), max(map(len, parameters))))
    first = 0
    for value, given in zip(values, parameters, strict=True):
        last = first + len(value)
        for k, parameter in enumerate(given):
            rows[first:last, k] = parameter
        first = last
    lengths = [len(value) for value in values]
    ends = np.cumsum([lengths, lengths if widths is None else widths], axis=1).T
    return Noise(
        tuple(
            law if isinstance(law, JointLaw) else ReleaseLaw(law, len(given))
            for law, given in zip(laws, parameters, strict=True)
        ),
        np.concatenate([np.zeros((1, 2), dtype=np.int64), ends]),
        np.concatenate(values),
        rows,
    )


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
