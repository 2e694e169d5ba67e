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
from fractions import Fraction
from typing import Any

import numpy as np

from pymc_privacy.accounting import Neighbours
from pymc_privacy.errors import ReleaseError

_LARGEST = 2**62  # of an integer that arrays hold


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

    def units(self, value: Any) -> np.ndarray:
        """Round to the nearest multiple of the granularity, and return which multiple it is.

        Division by a power of two is exact, so that the only rounding is the one meant.
        """
        exponent = math.frexp(self.granularity)[1] - 1
        with np.errstate(over="ignore"):  # `ends` refuses what overflows
            return np.rint(np.ldexp(np.asarray(value, dtype=np.float64), -exponent))

    @property
    def ends(self) -> list[tuple[int, int]]:
        """Return the bounds in units."""
        units = [(float(self.units(low)), float(self.units(high))) for low, high in self.bounds]
        if not np.all(np.isfinite(units)):
            raise ReleaseError(
                "bounds must be numbers of cells that floats can hold (the granularity is too fine "
                f"for them); got granularity {self.granularity!r}."
            )
        return [(int(low), int(high)) for low, high in units]

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
        array = self._checked(contributions)
        low, high = np.array(self.bounds).T
        largest = max(max(abs(a), abs(b)) for a, b in self.ends) * max(array.shape[0], 1)
        # Integer input is clipped as integers: above 2^53 floats would not hold it.
        if array.dtype.kind in "iu" and self.granularity == 1:
            held = np.iinfo(array.dtype)
            columns = [
                np.clip(column, max(math.ceil(a), held.min), min(math.floor(b), held.max))
                for column, (a, b) in zip(array.T, self.bounds, strict=True)
            ]
        else:
            columns = list(self.units(np.clip(array.astype(np.float64), low, high)).T)
        if largest < _LARGEST:
            return [int(column.astype(np.int64).sum()) for column in columns]
        return [sum(int(value) for value in column) for column in columns]

    def _checked(self, contributions: Any) -> np.ndarray:
        """Return contributions of shape (n, d), all finite."""
        array = np.asarray(contributions)
        if array.dtype.kind not in "iufb":
            raise ReleaseError(
                "contributions must be an array of numbers, one row per record; got "
                f"{array.dtype} values."
            )
        wanted = 1 if self.scalar else 2
        if array.ndim != wanted or (not self.scalar and array.shape[1] != len(self.bounds)):
            shape = "(n,)" if self.scalar else f"(n, {len(self.bounds)})"
            raise ReleaseError(
                f"contributions must have shape {shape}, one row per record and one pair of "
                f"bounds per column; got shape {array.shape}."
            )
        if array.dtype.kind == "f" and not np.all(np.isfinite(array)):
            raise ReleaseError(
                "contributions must be finite, because clipping would turn what is missing into "
                "a value nobody reported; got NaN or infinity. Decide on missing records first."
            )
        if array.dtype.kind == "b":
            array = array.astype(np.int64)
        return array[:, None] if self.scalar else array


def checked_bounds(bounds: Any) -> tuple[tuple[tuple[float, float], ...], bool]:
    """Return one (low, high) per coordinate, and whether a single pair was given."""
    try:
        array = np.asarray(bounds, dtype=np.float64)
    except (TypeError, ValueError):
        array = np.empty(0)
    fits = array.shape == (2,) or (array.ndim == 2 and array.shape[1] == 2 and len(array) > 0)
    if not fits or not np.all(np.isfinite(array)) or not np.all(array[..., 0] < array[..., 1]):
        raise ReleaseError(
            "bounds must be a pair (low, high) of finite numbers with low < high, or one such pair "
            "per column; they are public, and chosen without looking at the records; got "
            f"{bounds!r}."
        )
    pairs = np.atleast_2d(array)
    return tuple((float(low), float(high)) for low, high in pairs), array.ndim == 1


def power_of_two(value: Any) -> float:
    """Return a granularity, which must be a power of two."""
    number = float(value) if isinstance(value, int | float | np.number | Fraction) else math.nan
    if not (math.isfinite(number) and number > 0 and math.frexp(number)[0] == 0.5):
        raise ReleaseError(
            "granularity must be a power of two, such as 1 or 2**-20 (so that records are divided "
            f"by it without rounding); got {value!r}."
        )
    return number
