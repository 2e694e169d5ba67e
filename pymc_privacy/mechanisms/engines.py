"""What formulas need beyond operators: one name for arrays, for tensors and in jitted code.

A formula that is written with these runs in all three. Arrays are served by NumPy and SciPy, and
scalars in jitted code by the same names; an engine for tensors is registered by whoever has
tensors, so that nothing here knows them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numba import types
from numba.extending import overload, register_jitable
from scipy import special

from pymc_privacy.arguments import numbers
from pymc_privacy.errors import MechanismError


def _pick(x: np.ndarray, index: np.ndarray) -> np.ndarray:
    index = np.asarray(index).astype(np.int64)
    return x[index] if x.ndim == 1 else np.take_along_axis(x, index[..., None], axis=-1)[..., 0]


_ARRAYS: dict[str, Callable[..., Any]] = {
    "exp": np.exp,
    "log": np.log,
    "log1p": np.log1p,
    "expm1": np.expm1,
    "ceil": np.ceil,
    "erfc": special.erfc,
    "equal": np.equal,
    "where": np.where,
    "log_sum_exp": lambda x: special.logsumexp(x, axis=-1),
    "pick": _pick,
    "log_determinant": lambda matrix: np.linalg.slogdet(matrix)[1],
    "smallest": lambda x: np.min(x, axis=-1),
    "stack": lambda parts: np.stack(np.broadcast_arrays(*parts), axis=-1),
}
_TENSORS: dict[str, Callable[..., Any]] = {}


def register_tensors(functions: dict[str, Callable[..., Any]]) -> None:
    """Say how these functions are called on tensors; calling it again changes nothing."""
    missing = set(_ARRAYS) - set(functions)
    if missing:
        raise ValueError(f"An engine needs {', '.join(sorted(missing))} too.")
    _TENSORS.update(functions)


def is_tensor(value: Any) -> bool:
    """Tell whether a value is symbolic."""
    return hasattr(value, "owner")


def numeric(value: Any) -> Any:
    """Leave tensors alone and make everything else an array of numbers, or refuse it."""
    if is_tensor(value):
        return value
    return numbers("release and statistic", value, error=MechanismError)


def _call(name: str, *values: Any) -> Any:
    if any(map(is_tensor, values)):
        return _TENSORS[name](*values)
    # Both sides of a choice are computed, and one of them may be out of its domain.
    with np.errstate(all="ignore"):
        return _ARRAYS[name](*values)


def exp(x: Any) -> Any:
    """Return e to the power of x."""
    return _call("exp", x)


def log(x: Any) -> Any:
    """Return the natural logarithm."""
    return _call("log", x)


def log1p(x: Any) -> Any:
    """Return log(1 + x)."""
    return _call("log1p", x)


def expm1(x: Any) -> Any:
    """Return exp(x) - 1."""
    return _call("expm1", x)


def ceil(x: Any) -> Any:
    """Return the smallest integer that is not below x."""
    return _call("ceil", x)


def erfc(x: Any) -> Any:
    """Return the complementary error function."""
    return _call("erfc", x)


def equal(a: Any, b: Any) -> Any:
    """Tell where a and b are the same."""
    return _call("equal", a, b)


def where(condition: Any, yes: Any, no: Any) -> Any:
    """Choose elementwise; both sides are computed."""
    return _call("where", condition, yes, no)


def log_sum_exp(x: Any) -> Any:
    """Return log sum_k exp(x_k) over the last axis."""
    return _call("log_sum_exp", x)


def pick(x: Any, index: Any) -> Any:
    """Return entries of the last axis of x: one, several of a vector, or one of each row."""
    return _call("pick", x, index)


def smallest(x: Any) -> Any:
    """Return the smallest entry along the last axis."""
    return _call("smallest", x)


def log_determinant(matrix: Any) -> Any:
    """Return the logarithm of the absolute determinant of the last two axes."""
    return _call("log_determinant", matrix)


def stack(parts: Sequence[Any]) -> Any:
    """Put tensors or arrays side by side, on a new last axis."""
    if any(map(is_tensor, parts)):
        return _TENSORS["stack"](parts)
    return _ARRAYS["stack"](parts)


@overload(exp)
def _jitted_exp(x):
    return lambda x: np.exp(x)


@overload(log)
def _jitted_log(x):
    return lambda x: np.log(x)


@overload(log1p)
def _jitted_log1p(x):
    return lambda x: np.log1p(x)


@overload(expm1)
def _jitted_expm1(x):
    return lambda x: np.expm1(x)


@overload(ceil)
def _jitted_ceil(x):
    return lambda x: np.ceil(x)


@overload(erfc)
def _jitted_erfc(x):
    return lambda x: math.erfc(x)


@overload(equal)
def _jitted_equal(a, b):
    return lambda a, b: a == b


@overload(where)
def _jitted_where(condition, yes, no):
    if isinstance(condition, types.Boolean):
        return lambda condition, yes, no: yes if condition else no
    return None


_SQRT_HALF = math.sqrt(0.5)
_HALF_LOG_TWO_PI = 0.5 * math.log(2 * math.pi)


@register_jitable
def log_normal_tail(z: Any) -> Any:
    """Return log P(N > z) for a standard Normal N, to 13 digits in both tails.

    Beyond z = 20, where the error function falls below all numbers soon, Q(z) = phi(z) / z times
    the asymptotic series 1 - 1/z² + 3/z⁴ - 15/z⁶ + …, whose ninth term is below 1e-15 there.
    """
    far = where(z > 20.0, z, 20.0)
    near = where(z > 20.0, 20.0, z)
    v = 1.0 / (far * far)
    series = 1 - v * (
        1 - 3 * v * (1 - 5 * v * (1 - 7 * v * (1 - 9 * v * (1 - 11 * v * (1 - 13 * v)))))
    )
    tail = -0.5 * far * far - log(far) - _HALF_LOG_TWO_PI + log(series)
    return where(z > 20.0, tail, log(0.5 * erfc(near * _SQRT_HALF)))
