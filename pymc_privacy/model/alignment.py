"""Read from a graph that each of its rows is computed from one record alone, and how.

Going from the records down, every tensor is one of these: it does not depend on the records; it
has them along one axis, so that its slice i there is a function of record i and of nothing else
that differs between databases; its rows are mixed; or an operation was met that is not known
here. The second is a proof, at every value of the records and of the parameters. The last is
not an answer, and has to be found out by trying (`pymc_privacy.model.locality`).
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from functools import singledispatch
from typing import Any

import numpy as np

from pymc_privacy._compat import (
    AdvancedIncSubtensor,
    AdvancedSubtensor,
    Alloc,
    Apply,
    ARange,
    ArgSortOp,
    Blockwise,
    CAReduce,
    CheckParameterValue,
    Constant,
    CumOp,
    DimShuffle,
    Dot,
    Elemwise,
    IncSubtensor,
    Join,
    OpFromGraph,
    Reshape,
    Shape,
    Shape_i,
    SolveBase,
    SortOp,
    SpecifyShape,
    Split,
    Subtensor,
    Variable,
    indices_from_subtensor,
    toposort,
)


@dataclass(frozen=True)
class Aligned:
    """Slice i along the axis is a function of record i alone."""

    axis: int
    alike: bool
    """Whether it is known to be the same function for every i."""


@dataclass(frozen=True)
class Mixed:
    """Rows are computed from several records."""

    reason: str


@dataclass(frozen=True)
class Unknown:
    """An operation is not known here, or not in the way it is used."""

    reason: str


State = Aligned | Mixed | Unknown | None
"""None for what does not depend on the records."""


def alignment(graph: Variable, leaves: Collection[Variable]) -> State:
    """Tell how a graph depends on leaves, which have the records on their first axis."""
    known: dict[Variable, State] = {leaf: Aligned(0, alike=True) for leaf in leaves}
    return _states([graph], known)[0]


def _states(graphs: Sequence[Variable], known: dict[Variable, State]) -> list[State]:
    for node in toposort(graphs, blockers=list(known)):
        found = _through(node, [known.get(part) for part in node.inputs])
        for output, state in zip(node.outputs, found, strict=True):
            known.setdefault(output, state)
    return [known.get(graph) for graph in graphs]


def _through(node: Apply, states: list[State]) -> list[State]:
    if all(state is None for state in states) or isinstance(node.op, Shape | Shape_i):
        return [None] * len(node.outputs)
    if isinstance(node.op, OpFromGraph):
        return _inside(node, states)
    if isinstance(node.op, CheckParameterValue) and states[0] is not None:
        # Where a condition fails for one record, the density of all records is zero: it is the
        # product of theirs, and which of its factors is zero does not matter.
        return [states[0]]
    for kind in (Mixed, Unknown):
        if stuck := [state for state in states if isinstance(state, kind)]:
            return [stuck[0]] * len(node.outputs)
    return [_rule(node.op, node, states)] * len(node.outputs)


def _inside(node: Apply, states: list[State]) -> list[State]:
    known = dict(zip(node.op.inner_inputs, states, strict=True))
    return _states(node.op.inner_outputs, known)


@singledispatch
def _rule(op: Any, node: Apply, states: list[Any]) -> State:
    return Unknown(f"{op} is not known to keep records apart")


@_rule.register
def _elementwise(op: Elemwise, node: Apply, states: list[Any]) -> State:
    return _together(states, node.inputs)


def _together(states: Sequence[Any], parts: Sequence[Variable], offsets: Any = None) -> State:
    """Combine tensors element by element; ``offsets`` are their first axes in the result."""
    offsets = [0] * len(parts) if offsets is None else offsets
    axes = {s.axis + o for s, o in zip(states, offsets, strict=True) if s is not None}
    if len(axes) > 1:
        return Mixed("records are paired with each other")
    [axis] = axes
    alike = all(
        _is_uniform(part, axis - offset) if state is None else state.alike
        for state, part, offset in zip(states, parts, offsets, strict=True)
    )
    return Aligned(axis, alike)


def _is_uniform(part: Variable, axis: int) -> bool:
    """Tell whether a tensor that no record enters is known to be the same all along an axis."""
    if axis < 0 or part.type.ndim <= axis or part.type.broadcastable[axis]:
        return True
    if isinstance(part, Constant):
        data = part.data
        if not isinstance(data, np.ndarray):
            return False
        return bool((data == np.take(data, [0], axis=axis)).all()) if data.size else True
    if part.owner is not None and isinstance(part.owner.op, Alloc):
        value = part.owner.inputs[0]
        return _is_uniform(value, axis - (part.type.ndim - value.type.ndim))
    if part.owner is not None and isinstance(part.owner.op, Elemwise):
        return all(_is_uniform(above, axis) for above in part.owner.inputs)
    return False


@_rule.register
def _shuffled(op: DimShuffle, node: Apply, states: list[Any]) -> State:
    [state] = states
    if state.axis not in op.new_order:
        return Unknown("the axis of the records is dropped")
    return replace(state, axis=op.new_order.index(state.axis))


@_rule.register(SpecifyShape)
def _same(op: Any, node: Apply, states: list[Any]) -> State:
    return _first_only(states)


@_rule.register
def _filled(op: Alloc, node: Apply, states: list[Any]) -> State:
    state = _first_only(states)
    if not isinstance(state, Aligned):
        return state
    return replace(state, axis=state.axis + node.outputs[0].type.ndim - node.inputs[0].type.ndim)


def _first_only(states: Sequence[Any]) -> State:
    """Return the state of the first argument, if no other depends on the records."""
    first, *others = states
    if first is None or any(others):
        return Unknown("a shape or a place is computed from the records")
    return first


@_rule.register
def _reshaped(op: Reshape, node: Apply, states: list[Any]) -> State:
    state = _first_only(states)
    before, after = node.inputs[0].type.shape[:1], node.outputs[0].type.shape[:1]
    if not isinstance(state, Aligned) or state.axis or None in before or before != after:
        return Unknown("the records are laid out anew")
    return state


@_rule.register
def _reduced(op: CAReduce, node: Apply, states: list[Any]) -> State:
    [state] = states
    axes = range(node.inputs[0].type.ndim) if op.axis is None else op.axis
    return _without(state, axes, f"{op} is taken over the records")


def _without(state: Aligned, axes: Collection[int], complaint: str) -> State:
    if state.axis in axes:
        return Mixed(complaint)
    return replace(state, axis=state.axis - sum(axis < state.axis for axis in axes))


@_rule.register(CumOp)
@_rule.register(SortOp)
@_rule.register(ArgSortOp)
def _in_order(op: Any, node: Apply, states: list[Any]) -> State:
    [state] = states
    return Mixed(f"{op} runs over the records") if state.axis == op.axis else state


@_rule.register
def _joined(op: Join, node: Apply, states: list[Any]) -> State:
    state = _together(states, node.inputs)
    if isinstance(state, Aligned) and state.axis == op.axis:
        return Mixed("records are joined")
    return state


@_rule.register
def _split(op: Split, node: Apply, states: list[Any]) -> State:
    state = _first_only(states)
    if isinstance(state, Aligned) and state.axis == op.axis:
        return Mixed("records are split")
    return state


@_rule.register
def _product(op: Dot, node: Apply, states: list[Any]) -> State:
    return _matrix_product(states, [part.type.ndim for part in node.inputs])


def _matrix_product(states: Sequence[Any], dimensions: Sequence[int]) -> State:
    left, right = states
    if left is not None and right is not None:
        return Mixed("records are multiplied with records")
    if left is not None:
        return left if left.axis == dimensions[0] - 2 else Mixed("records are summed by a product")
    return right if right.axis == dimensions[1] - 1 else Mixed("records are summed by a product")


@_rule.register
def _blockwise(op: Blockwise, node: Apply, states: list[Any]) -> State:
    batch = op.batch_ndim(node)
    if all(state is None or state.axis < batch for state in states):
        return _together(states, [_batch_only(p, batch) for p in node.inputs])
    if isinstance(op.core_op, Dot):
        return _matrix_product(states, [part.type.ndim for part in node.inputs])
    matrix, columns = (*states, None)[:2]
    if isinstance(op.core_op, SolveBase) and matrix is None and op.core_op.b_ndim == 2:
        # Each column of the right side is solved for on its own.
        if columns.axis == node.inputs[1].type.ndim - 1:
            return columns
        return Mixed("records are mixed by a matrix")
    return Unknown(f"{op.core_op} is not known to keep records apart")


def _batch_only(part: Variable, batch: int) -> Variable:
    """Return something with the batch dimensions of a tensor, to look at these alone."""
    return part[(..., *(0,) * (part.type.ndim - batch))] if part.type.ndim > batch else part


@_rule.register
def _taken(op: Subtensor, node: Apply, states: list[Any]) -> State:
    state = _first_only(states)
    if not isinstance(state, Aligned):
        return state
    part = node.inputs[0]
    chosen = _all_indices(part, node.inputs[1:], op.idx_list)
    if not _is_everything(chosen[state.axis], part.type.shape[state.axis]):
        return Mixed("only some records are taken, or in another order")
    dropped = [k for k, index in enumerate(chosen) if not isinstance(index, slice)]
    return _without(state, dropped, "")


def _all_indices(part: Variable, inputs: Sequence[Variable], idx_list: Any) -> list[Any]:
    """Return one index for each dimension."""
    chosen = list(indices_from_subtensor(inputs, idx_list))
    return chosen + [slice(None)] * (part.type.ndim - len(chosen))


def _is_everything(index: Any, length: int | None) -> bool:
    """Tell whether an index is known to keep a dimension as it is."""
    if not isinstance(index, slice):
        return False
    start, stop, step = (_number(bound) for bound in (index.start, index.stop, index.step))
    to_the_end = stop is None or (length is not None and _is_least(stop, length))
    return start in (None, 0) and step in (None, 1) and to_the_end


def _is_least(stop: Any, length: int) -> bool:
    return isinstance(stop, int) and stop >= length


def _number(bound: Any) -> Any:
    """Return a bound of a slice, as a number if it is one."""
    return int(bound.data) if isinstance(bound, Constant) and bound.data is not None else bound


@_rule.register
def _looked_up(op: AdvancedSubtensor, node: Apply, states: list[Any]) -> State:
    table, indices = node.inputs[0], node.inputs[1:]
    of = dict(zip(indices, states[1:], strict=True))
    chosen = _all_indices(table, indices, op.idx_list)
    places = [k for k, index in enumerate(chosen) if not isinstance(index, slice)]
    by_place = [chosen[k] for k in places]
    slices = [v for c in chosen if isinstance(c, slice) for v in (c.start, c.stop, c.step)]
    if places != list(range(places[0], places[-1] + 1)) or any(of.get(v) for v in slices):
        return Unknown("a table is looked up in dimensions that are not side by side")
    if any(index.type.dtype == "bool" for index in by_place):
        return Unknown("rows are chosen by a condition")
    width = max(index.type.ndim for index in by_place)
    parts, found, offsets = [], [], []
    for index in by_place:
        parts.append(index)
        found.append(of[index])
        offsets.append(places[0] + width - index.type.ndim)
    if states[0] is not None:
        if of.get(chosen[states[0].axis]) is not None:
            return Mixed("records are looked up at places that records say")
        whole = _table_axis(table, states[0], chosen, places, width)
        if not isinstance(whole, Aligned):
            return whole
        parts, found, offsets = [*parts, table], [*found, whole], [*offsets, 0]
    return _together(found, parts, offsets)


def _table_axis(
    table: Variable, state: Aligned, chosen: Sequence[Any], places: Sequence[int], width: int
) -> State:
    """Return where the rows of a table go that has the records along one of its dimensions."""
    index = chosen[state.axis]
    if state.axis not in places:
        if not _is_everything(index, table.type.shape[state.axis]):
            return Mixed("only some records are taken, or in another order")
        after = state.axis > places[-1]
        return replace(state, axis=state.axis + (width - len(places) if after else 0))
    axis = _counted_along(index, table.type.shape[state.axis])
    if axis is None:
        return Unknown("records are looked up by their place")
    return replace(state, axis=places[0] + width - index.type.ndim + axis)


def _counted_along(index: Variable, length: int | None) -> int | None:
    """Return the axis along which an index is 0, 1, …, length - 1, and constant along others."""
    long = [k for k, flat in enumerate(index.type.broadcastable) if not flat]
    if len(long) != 1 or length is None or index.type.shape[long[0]] != length:
        return None
    source = index
    while source.owner is not None and isinstance(source.owner.op, DimShuffle):
        [source] = source.owner.inputs
    if isinstance(source, Constant):
        return long[0] if (np.ravel(source.data) == np.arange(length)).all() else None
    if source.owner is not None and isinstance(source.owner.op, ARange):
        start, _, step = (_number(bound) for bound in source.owner.inputs)
        return long[0] if start == 0 and step == 1 else None
    return None


@_rule.register
def _written(op: IncSubtensor, node: Apply, states: list[Any]) -> State:
    """Let some elements be overwritten, or added to."""
    (target, value, *inputs), (before, new, *others) = node.inputs, states
    if any(others):
        return Unknown("a place is computed from the records")
    if new is None:
        # Whichever rows are written into, what is written knows no record.
        return replace(before, alike=False)
    chosen = _all_indices(target, inputs, op.idx_list)
    kept = [k for k, index in enumerate(chosen) if isinstance(index, slice)]
    place = new.axis + len(kept) - value.type.ndim
    axis = kept[place]
    if not _is_everything(chosen[axis], target.type.shape[axis]):
        return Mixed("records are written into other rows")
    return _together([before, replace(new, axis=axis)], [target, target])


@_rule.register
def _written_at(op: AdvancedIncSubtensor, node: Apply, states: list[Any]) -> State:
    """Let elements be written at places that are listed."""
    (target, _, *inputs), (_, new, *places) = node.inputs, states
    chosen = enumerate(_all_indices(target, inputs, op.idx_list))
    own = [
        index
        for axis, index in chosen
        if not isinstance(index, slice)
        and _counted_along(index, target.type.shape[axis]) is not None
    ]
    if new is not None and any(places) and not own:
        # However rare that is, a record is then found in the row of another.
        return Mixed("records are written at places that records say")
    return Unknown("elements are written at places that are listed")
