"""Compile a template whose global names stand for jitted functions that a model provides.

A closure over such functions could not be found again in the compiler's disk cache, since
they are other objects in every process; a global name can, under the fingerprint of all that
the template calls.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Mapping
from typing import Any

from numba import njit

Remember = Callable[[Callable[..., Any], str], bool]


def bind(
    template: Callable[..., Any],
    functions: Mapping[str, Any],
    *,
    label: str,
    remember: Remember | None = None,
) -> Callable[..., Any]:
    """Return the template, jitted, with some of its global names replaced.

    Parameters
    ----------
    template : function
        A module-level function.
    functions : mapping
        The jitted functions that its global names stand for.
    label : str
        What tells this use of the template from others for the same model.
    remember : callable, optional
        Told of the new function and its label; returns whether the disk cache will find it
        again.
    """
    unknown = set(functions) - set(template.__code__.co_names)
    if unknown:
        raise ValueError(f"{template.__name__} does not use {', '.join(sorted(unknown))}.")
    bound = types.FunctionType(
        template.__code__, {**template.__globals__, **functions}, template.__name__
    )
    cached = remember is not None and remember(bound, label)
    # A proposal where something is divided by zero is no error: it is refused.
    return njit(cache=cached, error_model="numpy")(bound)
