"""The labels of groups, to which records belong publicly: text or integers, which are published."""

from __future__ import annotations

from numbers import Integral
from typing import Any

import numpy as np

from pymc_privacy.arguments import has_mask, title
from pymc_privacy.errors import ReleaseError

MOST_GROUPS = 1000


def group_label(label: Any) -> str | None:
    """Return a label of a group as text, or None for what is no text and no integer.

    Examples
    --------
    >>> group_label("f"), group_label(2), group_label(float("nan"))
    ('f', '2', None)
    """
    if not isinstance(label, str | bool | np.bool_ | Integral) or isinstance(label, np.timedelta64):
        return None
    try:
        return str(label)
    except ValueError:  # an integer of more digits than Python writes
        return None


def _listed(by: Any) -> list[Any] | None:
    """Return the entries of a list, an array of one axis or a column, and None of anything else."""
    if isinstance(by, list | tuple):
        return list(by)
    try:
        if isinstance(by, np.ndarray):
            return None if has_mask(by) or by.ndim != 1 else list(by.tolist())
        return list(by.to_list())
    except Exception:  # of a class of the caller's, which can raise anything
        return None


def by_group(table: np.ndarray, by: Any) -> tuple[tuple[str, np.ndarray], ...]:
    """Return the rows of each group, in the order of their names."""
    given = _listed(by)
    if given is None or len(given) != len(table):
        raise ReleaseError(
            "by must be the groups of the records, one label for each; got "
            f"{'no list' if given is None else f'{len(given)} labels for {len(table)} records'}."
        )
    labels = [group_label(label) or "" for label in given]
    kinds = {(isinstance(one, str), isinstance(one, bool | np.bool_)) for one in given}
    if not all(labels) or len(kinds) > 1:
        raise ReleaseError(
            "by must be labels, all of them text, or all integers, because what is missing or is "
            "rounded names no group, and 1 and '1' would be published as one; got others."
        )
    groups = sorted(set(labels))
    if not 0 < len(groups) <= MOST_GROUPS:
        raise ReleaseError(f"by must name 1 to {MOST_GROUPS} groups; got {len(groups)}.")
    where = np.array(labels)
    return tuple(
        (title("by", group, meaning="a label", error=ReleaseError), table[where == group])
        for group in groups
    )
