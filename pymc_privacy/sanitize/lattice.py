"""Records on an integer lattice: clipped, rounded one by one, and added up without an error.

Floating-point sums have a larger sensitivity than the formula says, because rounding depends on
every other record. Here each clipped contribution is rounded to a multiple of the granularity g, a
power of two, and the multiples are added as integers. Rounding is monotone: what lies between low
and high is mapped between their images, so that the sensitivity in units of g is an integer, and
exact.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from pymc_privacy.accounting import Neighbours
from pymc_privacy.arguments import flag, reals, refusal
from pymc_privacy.errors import ReleaseError
from pymc_privacy.sanitize.rows import rows

_LARGEST = 2**62  # of an integer that arrays hold
FURTHEST = 2.0**500  # of a bound, and of a scale: totals and noise stay far within floats
_MOST_COLUMNS = 2**16


@dataclass(frozen=True)
class Lattice:
    """The multiples of ``granularity`` between public bounds, one pair for each coordinate.

    Parameters
    ----------
    bounds : tuple of (float, float)
        To which the contributions of each coordinate are clipped.
    granularity : float
        A power of two.
    scalar : bool
        Whether contributions have shape (n,) rather than (n, d).

    Examples
    --------
    >>> lattice = Lattice(bounds=((0.0, 1.0),), granularity=0.25, scalar=True)
    >>> lattice.totals(np.array([0.3, 0.9, 7.0]))
    [9]
    >>> lattice.l1("replace_one"), lattice.l1("add_remove")
    (4, 4)
    """

    bounds: tuple[tuple[float, float], ...]
    granularity: float
    scalar: bool

    def __post_init__(self) -> None:
        pairs, _ = checked_bounds(self.bounds)
        if flag("scalar", self.scalar, error=ReleaseError) and len(pairs) != 1:
            raise refusal("bounds", "one pair for one column", self.bounds, error=ReleaseError)
        object.__setattr__(self, "bounds", pairs)
        object.__setattr__(self, "granularity", power_of_two(self.granularity))
        self._check_ends()

    def units(self, value: Any) -> np.ndarray:
        """Round to the nearest multiple of the granularity, and return which multiple it is.

        Division by a power of two is exact, so that the only rounding is the one meant.
        """
        exponent = math.frexp(self.granularity)[1] - 1
        with np.errstate(over="ignore"):  # `_check_ends` refuses what overflows
            return np.rint(np.ldexp(np.asarray(value, dtype=np.float64), -exponent))

    def _check_ends(self) -> None:
        if not np.all(np.abs(self.units(self.bounds)) <= FURTHEST):
            raise ReleaseError(
                "bounds must be at most 2^500 cells from zero, or the granularity is too fine for "
                "them; by default it follows from epsilon, which may be too large; got granularity "
                f"{self.granularity!r}."
            )

    @property
    def ends(self) -> list[tuple[int, int]]:
        """Return the bounds in units."""
        return [(int(low), int(high)) for low, high in self.units(self.bounds).tolist()]

    def ranges(self, neighbours: Neighbours) -> list[int]:
        """Return how far one record can move each coordinate, in units.

        Replacing a record moves it by high - low; adding one, by the larger of |low| and |high|.
        """
        if neighbours == "replace_one":
            return [high - low for low, high in self.ends]
        return [max(abs(low), abs(high)) for low, high in self.ends]

    def l1(self, neighbours: Neighbours) -> int:
        """Return the L1 sensitivity of the totals in units, exactly."""
        return sum(self.ranges(neighbours))

    def l2_squared(self, neighbours: Neighbours) -> int:
        """Return the square of the L2 sensitivity of the totals in units, exactly."""
        return sum(r * r for r in self.ranges(neighbours))

    def totals(self, contributions: Any) -> list[int]:
        """Clip, round and add up; the sums are integers and exact."""
        array = self.rows(contributions)
        low, high = np.array(self.bounds).T
        columns = self.units(np.clip(array, low, high)).T
        largest = max(max(abs(a), abs(b)) for a, b in self.ends) * max(array.shape[0], 1)
        if largest < _LARGEST:
            return [int(column.astype(np.int64).sum()) for column in columns]
        return [sum(map(int, column.tolist())) for column in columns]

    def rows(self, contributions: Any) -> np.ndarray:
        """Return contributions of shape (n, d), all finite."""
        array = rows("contributions", contributions, None if self.scalar else len(self.bounds))
        return array[:, None] if self.scalar else array


def checked_bounds(bounds: Any) -> tuple[tuple[tuple[float, float], ...], bool]:
    """Return one (low, high) per coordinate, and whether a single pair was given."""
    wanted = "a pair (low, high) of finite numbers with low < high, or one such pair per column"
    meaning = "they are public, and chosen without looking at the records"
    try:
        array = reals("bounds", bounds, shapes=[(2,), ("d", 2)], error=ReleaseError)
    except ReleaseError:
        array = np.empty((0, 2))
    pairs = np.atleast_2d(array)
    if not 0 < len(pairs) <= _MOST_COLUMNS or not np.all(pairs[:, 0] < pairs[:, 1]):
        raise refusal("bounds", wanted, bounds, meaning=meaning, error=ReleaseError)
    if np.abs(pairs).max() > FURTHEST:
        raise refusal("bounds", "numbers of at most 2^500", bounds, error=ReleaseError)
    return tuple((float(low), float(high)) for low, high in pairs), array.ndim == 1


def power_of_two(value: Any) -> float:
    """Return a granularity, which must be a power of two."""
    try:
        number = float(reals("granularity", value, shapes=[()], above=0.0, error=ReleaseError))
    except ReleaseError:
        number = math.nan
    if math.frexp(number)[0] != 0.5:
        raise refusal(
            "granularity",
            "a power of two, such as 1 or 2**-20",
            value,
            meaning="so that records are divided by it without rounding",
            error=ReleaseError,
        )
    return number
