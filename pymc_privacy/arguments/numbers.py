"""Numbers and arrays of numbers: real, finite, in range, of a shape that is allowed."""

from __future__ import annotations

import math
from collections.abc import Sequence
from numbers import Integral, Real
from typing import Any

import numpy as np

from pymc_privacy.arguments.sentences import refusal
from pymc_privacy.errors import ArgumentError, PrivacyError

Shape = tuple[int | str, ...]
"""Lengths of the axes; a letter stands for any length, as in ``("n", 2)``."""

_DEEPEST = 8  # lists within lists
_DURATIONS = (np.timedelta64, np.datetime64)  # NumPy calls the first of them an integer
_FLAGS = (bool, np.bool_)


def real(
    name: str,
    value: Any,
    *,
    meaning: str = "",
    above: float | None = None,
    least: float | None = None,
    below: float | None = None,
    most: float | None = None,
    error: type[PrivacyError] = ArgumentError,
) -> float:
    """Return a finite float within the range, whose ends are `above` < or `least` <= and so on.

    Examples
    --------
    >>> real("scale", 2, above=0)
    2.0
    >>> real("scale", "2", above=0)
    Traceback (most recent call last):
    pymc_privacy.errors.ArgumentError: scale must be a finite number > 0; got '2'.
    """
    number = _float(value)
    if not math.isfinite(number) or not _within(number, above, least, below, most):
        wanted = "a finite number" + _range(above, least, below, most)
        raise refusal(name, wanted, value, meaning=meaning, error=error)
    return number


def positive(
    name: str, value: Any, *, meaning: str = "", error: type[PrivacyError] = ArgumentError
) -> float:
    """Return a finite float > 0."""
    return real(name, value, meaning=meaning, above=0.0, error=error)


def probability(
    name: str,
    value: Any,
    *,
    meaning: str = "",
    zero: bool = False,
    error: type[PrivacyError] = ArgumentError,
) -> float:
    """Return a float in (0, 1), or with `zero` in [0, 1).

    Examples
    --------
    >>> probability("prob", 95)
    Traceback (most recent call last):
    pymc_privacy.errors.ArgumentError: prob must be a number in (0, 1); got 95.
    """
    number = _float(value)
    if not (0 < number < 1 or (zero and number == 0)):
        wanted = "a number in [0, 1)" if zero else "a number in (0, 1)"
        raise refusal(name, wanted, value, meaning=meaning, error=error)
    return number


def integer(
    name: str,
    value: Any,
    *,
    meaning: str = "",
    least: int | None = None,
    most: int | None = None,
    error: type[PrivacyError] = ArgumentError,
) -> int:
    """Return an int of 64 bits within the range; a float is none, even without a fraction.

    Examples
    --------
    >>> integer("draws", 1e3, least=1)
    Traceback (most recent call last):
    pymc_privacy.errors.ArgumentError: draws must be an integer >= 1; got 1000.0.
    """
    plain = value.item() if _is_number_array(value) and value.ndim == 0 else value
    if not isinstance(plain, Integral) or isinstance(plain, (*_FLAGS, *_DURATIONS)):
        plain = None
    short = plain is not None and -(2**63) <= plain < 2**63
    if not short or not _within(plain, None, least, None, most):
        kind = "an integer" if short or plain is None else "an integer of 64 bits"
        wanted = kind + _range(None, least, None, most)
        raise refusal(name, wanted, value, meaning=meaning, error=error)
    return int(plain)


def flag(
    name: str, value: Any, *, meaning: str = "", error: type[PrivacyError] = ArgumentError
) -> bool:
    """Return True or False; a number or a word is neither."""
    if not isinstance(value, _FLAGS):
        raise refusal(name, "True or False", value, meaning=meaning, error=error)
    return bool(value)


def reals(
    name: str,
    value: Any,
    *,
    meaning: str = "",
    shapes: Sequence[Shape] | None = None,
    above: float | None = None,
    least: float | None = None,
    below: float | None = None,
    most: float | None = None,
    finite: bool = True,
    flags: bool = False,
    confidential: bool = False,
    wanted: str = "",
    error: type[PrivacyError] = ArgumentError,
) -> np.ndarray:
    """Return an array of floats of one of the shapes, every entry within the range.

    Parameters
    ----------
    name, value, meaning, above, least, below, most, error
        As for `real`.
    shapes : sequence of tuple, optional
        All that are allowed; any by default.
    finite : bool
        False lets NaN and infinities through.
    flags : bool
        True takes an array of True and False as ones and zeros.
    confidential : bool
        True says of a refused array its type and shape, and none of its entries.
    wanted : str
        How the message calls such an array, where its own words are too clumsy.

    Examples
    --------
    >>> reals("scale", [1, 2.5], shapes=[(), ("d",)], above=0)
    array([1. , 2.5])
    >>> reals("records", ["a"], shapes=[("n",)], confidential=True)
    Traceback (most recent call last):
    pymc_privacy.errors.ArgumentError: records must be finite numbers of shape (n,); got list of \
length 1.
    """
    array = _array(value, flags=flags)
    if array is not None:
        array = array.astype(np.float64)
        inside = _within(array, above, least, below, most) & (not finite or np.isfinite(array))
        if _fits(array.shape, shapes) and np.all(inside):
            return array
    plain = f"{'finite ' if finite else ''}numbers{_range(above, least, below, most)}"
    wanted = wanted or plain + _of_shape(shapes)
    raise refusal(name, wanted, value, meaning=meaning, confidential=confidential, error=error)


def numbers(
    name: str,
    value: Any,
    *,
    meaning: str = "",
    confidential: bool = False,
    error: type[PrivacyError] = ArgumentError,
) -> np.ndarray:
    """Return an array of integers, floats, or of True and False, in the type that it has.

    Examples
    --------
    >>> numbers("statistic", [1, 2]).dtype.kind, numbers("statistic", [1, 2.5]).dtype.kind
    ('i', 'f')
    """
    array = _array(value, flags=True)
    if array is None:
        raise refusal(
            name, "numbers", value, meaning=meaning, confidential=confidential, error=error
        )
    return array


def integers(
    name: str,
    value: Any,
    *,
    meaning: str = "",
    shapes: Sequence[Shape] | None = None,
    least: int | None = None,
    most: int | None = None,
    flags: bool = False,
    confidential: bool = False,
    wanted: str = "",
    error: type[PrivacyError] = ArgumentError,
) -> np.ndarray:
    """Return an array of int64 of one of the shapes; floats pass if they have no fraction.

    Examples
    --------
    >>> integers("counts", [3.0, 4.0], shapes=[("d",)])
    array([3, 4])
    >>> integers("counts", [3.5])
    Traceback (most recent call last):
    pymc_privacy.errors.ArgumentError: counts must be integers; got [3.5].
    """
    array = _array(value, flags=flags)
    if array is not None and array.dtype.kind == "b":
        array = array.astype(np.int64)
    if array is not None and _fits(array.shape, shapes):
        # Beyond these, not every float is a number of int64.
        fits = (
            np.isfinite(array) & (array == np.rint(array)) & (array < 2**63) & (array >= -(2**63))
        )
        if np.all(fits):
            array = array.astype(np.int64)
            if np.all(_within(array, None, least, None, most)):
                return array
    wanted = wanted or "integers" + _range(None, least, None, most) + _of_shape(shapes)
    raise refusal(name, wanted, value, meaning=meaning, confidential=confidential, error=error)


def pair(
    name: str, value: Any, *, meaning: str = "", error: type[PrivacyError] = ArgumentError
) -> tuple[float, float]:
    """Return (low, high), finite and low < high.

    Examples
    --------
    >>> pair("bounds", (1, 0))
    Traceback (most recent call last):
    pymc_privacy.errors.ArgumentError: bounds must be a pair (low, high) of finite numbers with \
low < high, a finite distance apart; got (1, 0).
    """
    array = _array(value)
    if array is None or array.shape != (2,) or not np.all(np.isfinite(array)):
        ends = None
    else:
        ends = float(array[0]), float(array[1])
    if ends is None or not ends[0] < ends[1] or not math.isfinite(ends[1] - ends[0]):
        wanted = "a pair (low, high) of finite numbers with low < high, a finite distance apart"
        raise refusal(name, wanted, value, meaning=meaning, error=error)
    return ends


def _float(value: Any) -> float:
    """Return a real number as a float, and NaN for anything else."""
    if _is_number_array(value) and value.ndim == 0:
        value = value.item()
    if not _is_real(type(value)):
        return math.nan
    try:
        return float(value)
    except (OverflowError, TypeError, ValueError):
        return math.nan


def _is_real(kind: type) -> bool:
    return issubclass(kind, Real) and not issubclass(kind, (*_FLAGS, *_DURATIONS))


def _is_number_array(value: Any) -> bool:
    return (
        isinstance(value, np.ndarray)
        and not isinstance(value, np.ma.MaskedArray)
        and value.dtype.kind in "iuf"
    )


def _array(value: Any, *, flags: bool = False) -> np.ndarray | None:
    """Return an array of numbers, or None where something in it is not one.

    A list is looked at entry by entry, since NumPy would make a number of a True among numbers.
    """
    if has_mask(value):
        return None
    try:
        if isinstance(value, list | tuple):
            entries = np.asarray(value, dtype=object)
            kinds = set(map(type, entries.ravel().tolist()))
            only_flags = flags and bool(kinds) and all(issubclass(k, _FLAGS) for k in kinds)
            if not only_flags and not all(map(_is_real, kinds)):
                return None
            array = np.asarray(entries, dtype=np.float64) if not only_flags else entries
            return array.astype(bool) if only_flags else _integral_or(array, entries, kinds)
        array = np.asarray(value)
    except Exception:  # of a class of the caller's, which can raise anything
        return None
    if array.dtype.kind == "O" and array.ndim == 0 and _is_real(type(value)):
        array = np.asarray(_float(value))  # a fraction, or an int beyond 64 bits
    return array if array.dtype.kind in ("iufb" if flags else "iuf") else None


def _integral_or(array: np.ndarray, entries: np.ndarray, kinds: set[type]) -> np.ndarray:
    """Keep integers of 64 bits exact; the floats are right for all else."""
    if kinds and all(issubclass(kind, Integral) for kind in kinds):
        try:
            return entries.astype(np.int64)
        except OverflowError:
            return array
    return array


def has_mask(value: Any, depth: int = _DEEPEST) -> bool:
    """Tell whether a value is a masked array, or a list with one somewhere in it."""
    if isinstance(value, np.ma.MaskedArray):
        return True
    if not isinstance(value, list | tuple) or not depth:
        return False
    return any(
        has_mask(part, depth - 1)
        for part in value
        if isinstance(part, list | tuple | np.ma.MaskedArray)
    )


def _within(number: Any, above: Any, least: Any, below: Any, most: Any) -> Any:
    inside: Any = True
    if above is not None:
        inside = inside & (number > above)
    if least is not None:
        inside = inside & (number >= least)
    if below is not None:
        inside = inside & (number < below)
    if most is not None:
        inside = inside & (number <= most)
    return inside


def _range(above: Any, least: Any, below: Any, most: Any) -> str:
    ends = [(">", above), (">=", least), ("<", below), ("<=", most)]
    said = " and ".join(f"{sign} {end:g}" for sign, end in ends if end is not None)
    return f" {said}" if said else ""


def _fits(shape: tuple[int, ...], shapes: Sequence[Shape] | None) -> bool:
    if shapes is None:
        return True
    return any(
        len(wanted) == len(shape)
        and all(isinstance(w, str) or w == length for w, length in zip(wanted, shape, strict=True))
        for wanted in shapes
    )


def _of_shape(shapes: Sequence[Shape] | None) -> str:
    if shapes is None:
        return ""
    named = [f"({', '.join(map(str, s))}{',' if len(s) == 1 else ''})" for s in shapes]
    return f" of shape {' or '.join(named)}"
