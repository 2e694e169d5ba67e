"""Records and their parameters carry a mark in the graph, where every model transform keeps it.

A step method is chosen by looking at one random variable and nothing else, so the
mark is on the variable's operation: an instance of a subclass made for the purpose. It has a role,
and the name of the step method, which is decided in `model.assignment`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

from pymc_privacy._compat import TensorVariable, Variable, _support_point


class Mark:
    """The operation has a role in the model, and a step method that moves what it draws."""

    sampler: str
    """The name of the step method."""
    _base: type
    _role: type


class Record(Mark):
    """The operation draws confidential records, one per row."""


class Parameter(Mark):
    """The operation draws parameters that move together with records, or a number of records."""


@cache
def _marked_class(base: type, role: type, sampler: str) -> type:
    own = {"__reduce__": _reduce, "sampler": sampler, "_role": role, "_base": base}
    return type(f"{role.__name__}{base.__name__}", (role, base), own)


def _instance(base: type, role: type, sampler: str, state: dict) -> Any:
    op: Any = object.__new__(_marked_class(base, role, sampler))
    op.__dict__.update(state)
    return op


def _reduce(op: Any) -> tuple[Callable[..., Any], tuple[type, type, str, dict]]:
    # The class is made at run time, so a copy in another process has to make it again.
    return _instance, (op._base, op._role, op.sampler, op.__dict__)


def mark(variable: TensorVariable, role: type[Mark], sampler: str) -> None:
    """Mark a random variable, in place; another mark is replaced."""
    op = variable.owner.op
    base = op._base if isinstance(op, Mark) else type(op)
    if not (isinstance(op, Mark) and (op._role, op.sampler) == (role, sampler)):
        variable.owner.op = _instance(base, role, sampler, op.__dict__)


def unmark(variable: TensorVariable) -> None:
    """Take a mark off again, in place."""
    op = variable.owner.op
    if isinstance(op, Mark):
        plain: Any = object.__new__(op._base)
        plain.__dict__.update(op.__dict__)
        variable.owner.op = plain


def law_class(variable: TensorVariable) -> type:
    """Return the class of the operation without its mark."""
    op = variable.owner.op
    return op._base if isinstance(op, Mark) else type(op)


def sampler_of(variable: TensorVariable) -> str | None:
    """Return the name of the step method that a variable is left to, if it is one of ours."""
    op = None if variable.owner is None else variable.owner.op
    return op.sampler if isinstance(op, Mark) else None


def is_record(variable: TensorVariable) -> bool:
    """Tell whether the variable was found to be records."""
    return variable.owner is not None and isinstance(variable.owner.op, Record)


def is_interwoven(variable: TensorVariable) -> bool:
    """Tell whether the variable is among parameters and records that can move together.

    Counts may do for some of them.
    """
    return sampler_of(variable) in ("interweave", "count_states")


@_support_point.register(Record)
def _records_start_at_a_draw(op: Record, rv: TensorVariable, *inputs: Variable) -> TensorVariable:
    # Rows that all sit at the same point make the density of a scale parameter
    # unbounded, so records start at a draw given where the parameters start.
    return rv
