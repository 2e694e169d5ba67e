"""Expressions that PyTensor is known to compile into something else are refused by name."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from pymc_privacy._compat import Constant, Elemwise, Model, TensorVariable, Variable, ancestors, ps
from pymc_privacy.errors import RecordError


def refuse_forgotten_floors(graphs: Mapping[str, list[Variable]], model: Model) -> None:
    """Refuse x // 1.0, which PyTensor rewrites into x, also where x is not whole.

    Moves that are compiled differently would have different targets. ``graphs`` are what is
    looked at, by what it is called in a sentence.
    """
    for label, group in graphs.items():
        own = set(group)
        blockers = [rv for rv in model.basic_RVs if rv not in own]
        if any(_is_forgotten(variable) for variable in ancestors(group, blockers=blockers)):
            raise RecordError(
                f"A number must not be rounded down by x // 1.0 in {label}, because PyTensor "
                "takes that for x itself when it compiles; write pt.floor(x)."
            )


def _is_forgotten(variable: TensorVariable) -> bool:
    node = variable.owner
    if node is None or not isinstance(node.op, Elemwise):
        return False
    if not isinstance(node.op.scalar_op, ps.basic.IntDiv):
        return False
    divisor = node.inputs[1]
    while divisor.owner is not None and len(divisor.owner.inputs) == 1:
        [divisor] = divisor.owner.inputs
    is_one = isinstance(divisor, Constant) and bool(np.all(divisor.data == 1))
    return is_one and np.dtype(variable.dtype).kind == "f"
