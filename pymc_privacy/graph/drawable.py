"""Which laws of a model can be drawn from."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from pymc_privacy._compat import make_initial_point_fn


def can_be_drawn(model, starts: Mapping[Any, Any]) -> bool:
    """Tell whether all variables that are to start at a draw from their prior have draws.

    Parameters
    ----------
    model : pm.Model
    starts
        As the ``initvals`` of PyMC; "prior" stands for a draw.
    """
    try:
        make_initial_point_fn(model=model, overrides=dict(starts))(0)
    except NotImplementedError:
        return False
    except (ValueError, ArithmeticError):
        # Parameters that the law does not allow, which other draws do not have.
        return True
    return True


def not_drawable(model, fixed: Mapping[Any, Any], names: Iterable[str]) -> set[str]:
    """Return the variables whose law has no draws, given where the others start."""
    names = list(names)
    if can_be_drawn(model, {**fixed, **dict.fromkeys(names, "prior")}):
        return set()
    return {name for name in names if not can_be_drawn(model, {**fixed, name: "prior"})}
