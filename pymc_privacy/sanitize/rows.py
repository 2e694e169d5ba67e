"""The door for records: each becomes floats by itself, whatever else is in the table.

NumPy gives an array the one type that holds all its entries, so that one person's answer could
change how another's is read: an integer above 2^53 beside a float is rounded, beside integers it is
not. Here every entry becomes the nearest float64 on its own, and what it becomes does not depend on
the type of the list, array or column it came in. What is missing, masked, infinite or no number is
refused: a refusal is an output that depends on the records, so decide on missing answers before.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable
from decimal import Decimal
from numbers import Real
from typing import Any

import numpy as np

from pymc_privacy.arguments import has_mask
from pymc_privacy.errors import ReleaseError

_LARGEST = sys.float_info.max
_NO_NUMBERS = (np.timedelta64, np.datetime64)  # NumPy calls the first of them an integer


def rows(what: str, records: Any, columns: int | None) -> np.ndarray:
    """Return finite floats, one row for each record.

    Parameters
    ----------
    what : str
        How messages call them; of what is in them they say nothing.
    records : array_like
        Shape (n,), or (n, columns); a table of no rows may have lost its second axis.
    columns : int or None
        None for one number per record.

    Examples
    --------
    >>> rows("records", [True, 2, 2.5], None).tolist()
    [1.0, 2.0, 2.5]
    >>> rows("records", [], 3).shape
    (0, 3)
    """
    array = _array(what, records)
    if array.shape == (0,) and columns is not None:
        array = np.empty((0, columns))
    fits = array.ndim == 1 if columns is None else array.ndim == 2 and array.shape[1] == columns
    if not fits:
        shape = "(n,)" if columns is None else f"(n, {columns})"
        raise ReleaseError(
            f"{what} must be numbers of shape {shape}, one row per record and one pair of bounds "
            f"per column; got shape {array.shape}."
        )
    return _finite(what, array)


def entries(what: str, record: Any) -> np.ndarray:
    """Return finite floats of any shape: one record, or several.

    Examples
    --------
    >>> entries("record", 2).item(), entries("record", [[True, 0.5]]).tolist()
    (2.0, [[1.0, 0.5]])
    """
    return _finite(what, _array(what, record))


def _finite(what: str, array: np.ndarray) -> np.ndarray:
    values = _floats(what, array)
    if not np.all(np.isfinite(values)):
        raise ReleaseError(
            f"{what} must be finite, because clipping would turn what is missing into a value "
            "nobody reported; got NaN or infinity. Decide on missing records first."
        )
    return values


def _array(what: str, records: Any) -> np.ndarray:
    """Return the entries, those of a list each with its own type."""
    if has_mask(records):
        raise ReleaseError(
            f"{what} must be without a mask, because what is masked was not reported and would be "
            "counted; got a masked array. Decide on missing records first."
        )
    try:
        own_types = isinstance(records, list | tuple)
        array = np.asarray(records, dtype=object if own_types else None)
    except Exception:  # a ragged list, or a class of the caller's, which can raise anything
        raise _no_numbers(what, type(records).__name__) from None
    if array.dtype.kind not in "iufbO":
        raise _no_numbers(what, array.dtype)
    return array


def _floats(what: str, array: np.ndarray) -> np.ndarray:
    if array.dtype.kind == "O":
        numbers = [_number(entry) for entry in array.ravel().tolist()]
        if None in numbers:
            raise _no_numbers(what, _type_of(array.ravel().tolist()))
        return np.array(numbers, dtype=np.float64).reshape(array.shape)
    if array.dtype.itemsize > 8 and np.all(np.isfinite(array)):
        array = np.clip(array, -_LARGEST, _LARGEST)  # what is finite stays finite
    return array.astype(np.float64)


def _number(entry: Any) -> float | None:
    """Return an entry as the nearest float, and None for what is no real number.

    An integer beyond all floats is far beyond all bounds.
    """
    if isinstance(entry, bool | np.bool_):
        return float(entry)
    if not isinstance(entry, Real | Decimal) or isinstance(entry, _NO_NUMBERS):
        return None
    try:
        number = float(entry)
    except OverflowError:
        number = -math.inf if entry < 0 else math.inf
    except Exception:  # of a class of the caller's, which can raise anything
        return None
    beyond = math.isinf(number) and not isinstance(entry, float) and not _is_infinite(entry)
    if beyond:
        return _LARGEST if number > 0 else -_LARGEST
    return number


def _is_infinite(entry: Any) -> bool:
    """Tell whether an entry is infinite itself, and not only beyond what floats hold."""
    if isinstance(entry, Decimal):
        return entry.is_infinite()
    return isinstance(entry, np.floating) and bool(np.isinf(entry))


def _type_of(entries: Iterable[Any]) -> Any:
    try:
        return np.asarray(list(entries)).dtype
    except Exception:  # of a class of the caller's, which can raise anything
        return np.dtype(object)


def _no_numbers(what: str, found: Any) -> ReleaseError:
    return ReleaseError(
        f"{what} must be an array of numbers, one row per record; got {found} values."
    )
