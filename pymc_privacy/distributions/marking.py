"""Record variables carry their mark in the graph, where every model transform keeps it.

A step method is chosen by looking at one random variable and nothing else, so the
mark is on the variable's operation: an instance of a subclass made for the purpose.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from pymc_privacy._compat import TensorVariable, _support_point


class RecordMixin:
    """The operation draws confidential records, one per row."""


@cache
def _marked_class(base: type) -> type:
    return type(f"Record{base.__name__}", (RecordMixin, base), {"__reduce__": _reduce})


def _instance(base: type, state: dict):
    op: Any = object.__new__(_marked_class(base))
    op.__dict__.update(state)
    return op


def _reduce(op):
    # The class is made at run time, so a copy in another process has to make it again.
    return _instance, (type(op).__mro__[2], op.__dict__)


def mark(variable: TensorVariable) -> None:
    """Mark a random variable as records, in place; twice is as good as once."""
    node = variable.owner
    if not isinstance(node.op, RecordMixin):
        node.op = _instance(type(node.op), node.op.__dict__)


def is_marked(variable: TensorVariable) -> bool:
    """Tell whether the variable was found to be records."""
    return variable.owner is not None and isinstance(variable.owner.op, RecordMixin)


@_support_point.register(RecordMixin)
def _records_start_at_a_draw(op, rv, *inputs):
    # Rows that all sit at the same point make the density of a scale parameter
    # unbounded, so records start at a draw given where the parameters start.
    return rv
