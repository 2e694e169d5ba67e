"""Numbers of records of public groups: a vector of them, and which rows of a group exist.

Rows are arranged in groups, as many in each as there may be records at most. Of group g the first
n_g rows exist. The others are independent draws of the same law that nobody has looked at: they
belong to the space that is sampled, and enter no release. A density of such rows is that of the
records that exist, and of draws that integrate to one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytensor.tensor as pt

from pymc_privacy._compat import (
    AS_WRITTEN,
    Model,
    OpFromGraph,
    TensorVariable,
    ancestors,
    graph_replace,
)
from pymc_privacy.errors import RecordError
from pymc_privacy.model.columns import columns
from pymc_privacy.model.releases import contributions_of, groups_of, is_release

_ROWS, _NUMBERS = "are_rows_of_groups", "counts_rows_of_groups"


class OfGroups(OpFromGraph):
    """Records, with the numbers of them that exist beside: it changes no value."""

    group: np.ndarray


class ExistInGroups(OpFromGraph):
    """Numbers of records to which rows exist."""


@dataclass(frozen=True, eq=False)
class GroupSizes:
    """A vector of numbers of records, and the group of each row."""

    size: TensorVariable
    group: np.ndarray

    @property
    def rank(self) -> np.ndarray:
        """How many rows of its group are before each row."""
        return rank_in_group(self.group)

    @property
    def capacity(self) -> np.ndarray:
        """The number of rows of each group."""
        return np.bincount(self.group, minlength=number_of_groups(self.size))


def number_of_groups(size: TensorVariable) -> int:
    """Return how many numbers there are; a dim has its length beside the graph."""
    return size.type.shape[0] or int(size.shape[0].eval(mode=AS_WRITTEN))


def rank_in_group(group: np.ndarray) -> np.ndarray:
    """Return how many rows of its group are before each row.

    Examples
    --------
    >>> rank_in_group(np.array([0, 1, 0, 0, 1]))
    array([0, 0, 1, 2, 1])
    """
    order = np.argsort(group, kind="stable")
    first = np.searchsorted(group[order], group[order])
    rank = np.empty(len(group), dtype=np.int64)
    rank[order] = np.arange(len(group)) - first
    return rank


def of_groups(records: TensorVariable, size: TensorVariable, group: np.ndarray) -> TensorVariable:
    """Return records with their numbers beside, and remember of both what they are."""
    setattr(records.owner.op, _ROWS, True)
    setattr(size.owner.op, _NUMBERS, True)
    rows, number = records.type(), size.type()
    view = OfGroups([rows, number], [rows.copy()], inline=True, on_unused_input="ignore")
    view.group = group
    return view(records, size)


def counts_groups(variable: TensorVariable) -> bool:
    """Tell whether a random variable is a vector of numbers of records."""
    return variable.owner is not None and getattr(variable.owner.op, _NUMBERS, False)


def are_rows_of_groups(variable: TensorVariable) -> bool:
    """Tell whether a random variable has rows of groups, not all of which exist."""
    return variable.owner is not None and getattr(variable.owner.op, _ROWS, False)


def plain_rows(
    graph: TensorVariable, model: Model
) -> tuple[TensorVariable, tuple[TensorVariable, np.ndarray] | None]:
    """Return a graph of the records themselves, and their numbers and groups, if they have some."""
    above = list(ancestors([graph], blockers=model.basic_RVs))
    views = {v for v in above if v.owner is not None and isinstance(v.owner.op, OfGroups)}
    plain = {view: view.owner.inputs[0] for view in views}
    sizes = {view.owner.inputs[1] for view in views}
    groups = [view.owner.op.group for view in views]
    bare = {rv for rv in above if rv in model.basic_RVs and are_rows_of_groups(rv)}
    if bare - set(plain.values()):
        raise RecordError(
            f"Records of groups must be used as Records returned them, because that says how many "
            f"exist; {', '.join(sorted(repr(rv.name) for rv in bare))} was looked up in the model."
        )
    if not views:
        return graph, None
    if len(sizes) > 1 or not all(np.array_equal(g, groups[0]) for g in groups):
        raise RecordError(
            "Records that are used together must be of the same groups and have the same numbers; "
            f"got numbers {', '.join(sorted(repr(size.name) for size in sizes))}."
        )
    [replaced] = graph_replace([graph], plain, strict=False)
    return replaced, (sizes.pop(), groups[0])


def only_existing(
    contributions: TensorVariable, size: TensorVariable, group: np.ndarray
) -> TensorVariable:
    """Return contributions, with zeros for rows that do not exist."""
    number = size.type()
    there = pt.constant(rank_in_group(group)) < number[pt.constant(group)]
    exist = ExistInGroups([number], [there], inline=True)(size)
    parts = [
        pt.where(exist, column, np.zeros((), dtype=column.dtype))
        for column in columns(contributions)
    ]
    return parts[0] if contributions.ndim == 1 else pt.stack(parts, axis=1)


def existence(graphs: Any) -> list[TensorVariable]:
    """Return what says in some graphs which rows exist."""
    above = ancestors(graphs)
    return [v for v in above if v.owner is not None and isinstance(v.owner.op, ExistInGroups)]


def group_sizes(model: Model) -> list[GroupSizes]:
    """Return all vectors of numbers of records behind the releases of a model."""
    found: dict[TensorVariable, GroupSizes] = {}
    for release in (rv for rv in model.basic_RVs if is_release(rv)):
        group = groups_of(release)
        for exist in existence([contributions_of(release)]):
            [size] = exist.owner.inputs
            assert group is not None  # such records are released by group alone
            found[size] = GroupSizes(size, group)
    return list(found.values())


def rows_of_groups(model: Model) -> dict[TensorVariable, GroupSizes]:
    """Return records of groups that some release sees, and their numbers."""
    found: dict[TensorVariable, GroupSizes] = {}
    for sizes in group_sizes(model):
        for release in (rv for rv in model.basic_RVs if is_release(rv)):
            graph = contributions_of(release)
            if sizes.size in {exist.owner.inputs[0] for exist in existence([graph])}:
                above = ancestors([graph])
                found |= {rv: sizes for rv in above if are_rows_of_groups(rv)}
    return found
