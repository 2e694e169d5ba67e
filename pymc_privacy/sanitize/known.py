"""Totals by their names: a reader of a card finds the sensitivity, and believes no number on it."""

from __future__ import annotations

from typing import Any

from pymc_privacy.sanitize.moments import MOMENTS, KnownTotal
from pymc_privacy.sanitize.shares import shares_total


def known_total(name: Any, neighbours: Any) -> KnownTotal | None:
    """Return the total of a name, if its sensitivity was proved for these neighbours.

    Examples
    --------
    >>> known_total("(v, v^2)", "replace_one").l1 > 2
    True
    >>> known_total("(v, v^2)", "add_remove") is None
    True
    """
    if not isinstance(name, str) or neighbours is None:
        return None
    known: KnownTotal | None = MOMENTS.get(name) or shares_total(name, neighbours)
    return known if known is not None and known.neighbours == neighbours else None
