"""Records and their parameters carry a mark in the graph, where every model transform keeps it.

A step method is chosen by looking at one random variable and nothing else, so the
mark is on the variable's operation: an instance of a subclass made for the purpose.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

from pymc_privacy._compat import TensorVariable, Variable, _support_point


class Mark:
    """The operation is marked; both fields are set on the classes made by `mark`."""

    _base: type
    _mark: type


class RecordMixin(Mark):
    """The operation draws confidential records, one per row."""


class Interwoven(Mark):
    """The operation draws parameters that can move together with their records."""


class InterwovenRecord(RecordMixin, Interwoven):
    """The operation draws records that can be carried along by their parameters."""


class Counted(Interwoven):
    """The operation draws parameters of records that may be known by counts alone."""


class CountedRecord(InterwovenRecord, Counted):
    """The operation draws records of finite support, so many that counts may do."""


class Sized(Mark):
    """The operation draws a random number of records, or parameters that move with them."""


class SizedRecord(RecordMixin, Sized):
    """The operation draws records of a random number."""


@cache
def _marked_class(base: type, mark: type) -> type:
    name = f"{mark.__name__.removesuffix('Mixin')}{base.__name__}"
    return type(name, (mark, base), {"__reduce__": _reduce, "_mark": mark, "_base": base})


def _instance(base: type, mark: type, state: dict) -> Any:
    op: Any = object.__new__(_marked_class(base, mark))
    op.__dict__.update(state)
    return op


def _reduce(op: Any) -> tuple[Callable[..., Any], tuple[type, type, dict]]:
    # The class is made at run time, so a copy in another process has to make it again.
    return _instance, (op._base, op._mark, op.__dict__)


def mark(variable: TensorVariable, kind: type[Mark] = RecordMixin) -> None:
    """Mark a random variable, in place; a mark of another kind is replaced."""
    node = variable.owner
    base = node.op._base if isinstance(node.op, Mark) else type(node.op)
    if not (isinstance(node.op, Mark) and node.op._mark is kind):
        node.op = _instance(base, kind, node.op.__dict__)


def unmark(variable: TensorVariable) -> None:
    """Take a mark off again, in place."""
    op = variable.owner.op
    if isinstance(op, Mark):
        plain: Any = object.__new__(op._base)
        plain.__dict__.update(op.__dict__)
        variable.owner.op = plain


def is_marked(variable: TensorVariable) -> bool:
    """Tell whether the variable was found to be records."""
    return variable.owner is not None and isinstance(variable.owner.op, RecordMixin)


def is_interwoven(variable: TensorVariable) -> bool:
    """Tell whether the variable is among parameters and records that can move together."""
    return variable.owner is not None and isinstance(variable.owner.op, Interwoven)


def is_counted(variable: TensorVariable) -> bool:
    """Tell whether the variable is among parameters and records that counts may do for."""
    return variable.owner is not None and isinstance(variable.owner.op, Counted)


def moves_with_size(variable: TensorVariable) -> bool:
    """Tell whether the variable is a random number of records, or moves together with one."""
    return variable.owner is not None and isinstance(variable.owner.op, Sized)


@_support_point.register(RecordMixin)
def _records_start_at_a_draw(
    op: RecordMixin, rv: TensorVariable, *inputs: Variable
) -> TensorVariable:
    # Rows that all sit at the same point make the density of a scale parameter
    # unbounded, so records start at a draw given where the parameters start.
    return rv
