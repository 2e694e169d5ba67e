"""Effects of groups: parameters with one entry per group, each of which sees its group alone.

Where records are released by group, and a record sees of the effects only that of its own group,
the effects are independent of each other given all other parameters: with their records, or with
what these are made of. This is read from the graph.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from pymc_privacy._compat import (
    AdvancedSubtensor,
    Apply,
    Constant,
    Model,
    NormalRV,
    TensorVariable,
    Variable,
    ancestors,
    graph_replace,
    indices_from_subtensor,
    toposort,
)
from pymc_privacy.model.alignment import Aligned, alignment
from pymc_privacy.model.factors import factors_of, log_densities
from pymc_privacy.model.releases import contributions_of, groups_of, is_release
from pymc_privacy.model.start import start_of


@dataclass(frozen=True, eq=False)
class GroupEffects:
    """Effects of one grouping of the records."""

    effects: tuple[TensorVariable, ...]
    group: np.ndarray
    """The group of each record."""
    number: int
    """How many groups there are."""
    by_record: frozenset[TensorVariable]
    """Factors with an entry for each record. Others that see an effect have one for each group."""


def group_effects(model: Model, records: Sequence[TensorVariable]) -> GroupEffects | None:
    """Return the effects behind records that are released by one grouping, or None."""
    releases = [
        release
        for release in model.basic_RVs
        if is_release(release)
        and release.owner.op.sums
        and set(records) & set(ancestors([contributions_of(release)], blockers=records))
    ]
    groups = [group for release in releases if (group := groups_of(release)) is not None]
    numbers = {release.owner.op.groups for release in releases}
    if not groups or len(numbers) > 1 or not all(np.array_equal(g, groups[0]) for g in groups):
        return None
    [number], group = numbers, groups[0]
    start = start_of(model)
    values = [model.rvs_to_values[rv] for rv in records]
    if any(len(start[value.name]) != group.size for value in values):
        return None
    # Of one group nothing is independent; and what has one row is any vector's, broadcast.
    if number < 2:
        return None
    factors = [f for f in factors_of(model) if f not in set(releases)]
    # What a release adds up is computed from records alone.
    seen, found = set(ancestors(log_densities(model, releases))), {}
    above = set(ancestors(records))
    for rv in model.free_RVs:
        value, kinds = model.rvs_to_values[rv], {}
        if rv in set(records) or start[value.name].shape != (number,) or not _is_plain(model, rv):
            continue
        for factor, term in zip(factors, log_densities(model, factors), strict=True):
            if value in set(ancestors([term])):
                kinds[factor] = _kind(term, value, values, group)
        # An effect that nothing looks up by group is none of theirs.
        if kinds and None not in kinds.values() and value not in seen and rv in above:
            found[rv] = kinds
    by_record = {f for kinds in found.values() for f, kind in kinds.items() if kind == "record"}
    # Rows of a factor are those of records, or those of groups, even if there are as many.
    effects = [rv for rv, kinds in found.items() if all(_is(kinds, f) for f in by_record)]
    return GroupEffects(tuple(effects), group, number, frozenset(by_record)) if effects else None


def _is(kinds: Mapping[TensorVariable, str | None], factor: TensorVariable) -> bool:
    """Tell whether a factor has a part for each record, or does not see the effect."""
    return kinds.get(factor, "record") == "record"


def apart(
    model: Model, records: Sequence[TensorVariable], parameters: Sequence[Variable]
) -> tuple[GroupEffects | None, list[Variable]]:
    """Return effects of groups, if all that there are move, and the other parameters.

    Parameters are given, and returned, as value variables.
    """
    effects = group_effects(model, records)
    own = set() if effects is None else {model.rvs_to_values[rv] for rv in effects.effects}
    if not own <= set(parameters):
        return None, list(parameters)
    return effects, [value for value in parameters if value not in own]


def _is_plain(model: Model, rv: TensorVariable) -> bool:
    """Tell whether an effect is Normal, which says where it is expected."""
    return isinstance(rv.owner.op, NormalRV) and model.rvs_to_transforms[rv] is None


def _kind(
    term: TensorVariable, value: TensorVariable, records: Sequence[TensorVariable], group: Any
) -> str | None:
    """Tell whether a density has one part for each group, or for each record, and which sees what.

    None if it is not known to have either.
    """
    if not set(records) & set(ancestors([term])):
        state = alignment(term, [value])
        if isinstance(state, Aligned) and state.axis == 0 and term.ndim > 0:
            return "group"
    looked_up = {
        node.outputs[0]: node.outputs[0].type()
        for node in toposort([term])
        if _looks_up(node, value, group)
    }
    if not looked_up:
        return None
    [alone] = graph_replace([term], looked_up, strict=False)
    above = set(ancestors([alone]))
    if value in above:
        return None
    leaves = [leaf for leaf in [*looked_up.values(), *records] if leaf in above]
    state = alignment(alone, leaves)
    return "record" if isinstance(state, Aligned) and state.axis == 0 else None


def _looks_up(node: Apply, value: Variable, group: np.ndarray) -> bool:
    """Tell whether an operation gives each record the entry of its group."""
    if not isinstance(node.op, AdvancedSubtensor):
        return False
    table, *inputs = node.inputs
    state = alignment(table, [value])
    if not (isinstance(state, Aligned) and state.axis == 0):
        return False
    first, *others = indices_from_subtensor(inputs, node.op.idx_list)
    return (
        isinstance(first, Constant)
        and all(isinstance(other, slice) and other == slice(None) for other in others)
        and np.array_equal(first.data, group)
    )
