"""How an argument is refused: what must hold, what it means, what came."""

from __future__ import annotations

from typing import Any

import numpy as np

from pymc_privacy.errors import ArgumentError, PrivacyError

_LONGEST = 500  # characters of what came, in a message


def refusal(
    name: str,
    wanted: str,
    value: Any,
    *,
    meaning: str = "",
    confidential: bool = False,
    error: type[PrivacyError] = ArgumentError,
) -> PrivacyError:
    """Return the error: what must hold, what it means, what came."""
    why = f" ({meaning})" if meaning else ""
    came = kind_of(value) if confidential else shown(value)
    return error(f"{name} must be {wanted}{why}; got {came}.")


def shown(value: Any) -> str:
    """Return what an argument looks like, in one line of bounded length, whatever its class does.

    Examples
    --------
    >>> shown("a" * 1000)[-20:]
    "aaaaaaaaaaaaaaaa...'"
    """
    try:
        came = " ".join(repr(value).split())
    except Exception:
        return f"an object of class {type(value).__name__}"
    return came if len(came) <= _LONGEST else f"{came[: _LONGEST - 4]}...{came[-1]}"


def kind_of(value: Any) -> str:
    """Return the type and the length or shape of an argument, and nothing of what is in it."""
    if isinstance(value, np.ndarray):
        mask = "masked " if isinstance(value, np.ma.MaskedArray) else ""
        return f"{mask}{value.dtype} of shape {value.shape}"
    length = f" of length {len(value)}" if isinstance(value, list | tuple | str) else ""
    return f"{type(value).__name__}{length}"
