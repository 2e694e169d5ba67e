"""Evaluate graphs as they are written, node by node: nothing is compiled, and nothing rewritten."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pytensor.tensor as pt

from pymc_privacy._compat import (
    Apply,
    CheckParameterValue,
    Constant,
    DimShuffle,
    Elemwise,
    FunctionGraph,
    OpFromGraph,
    TensorVariable,
    Variable,
    inline_ofg_node,
    interpret,
    ps,
)

_INDIRECT = (OpFromGraph, CheckParameterValue)


def plain_function(
    inputs: Sequence[Variable], outputs: Sequence[TensorVariable]
) -> Callable[..., list[np.ndarray]]:
    """Compile nothing and rewrite nothing: evaluate graphs node by node with NumPy."""
    return interpret(list(inputs), spelled_out(list(outputs)))


def spelled_out(graphs: list[TensorVariable]) -> list[TensorVariable]:
    """Replace graphs within graphs, which would be compiled, and checks, which would raise."""
    graph = FunctionGraph(outputs=graphs, clone=True, copy_inputs=False)
    while nodes := [n for n in graph.toposort() if isinstance(n.op, _INDIRECT)]:
        for node in nodes:
            pairs = zip(node.outputs, _written(node), strict=True)
            graph.replace_all(
                [(old, old.type.filter_variable(new)) for old, new in pairs], import_missing=True
            )
    _keep_digits(graph)
    return list(graph.outputs)


def _keep_digits(graph: FunctionGraph) -> None:
    """Write 1 - p as the probability of the other side, where p is one by a logit.

    Of 1 - p itself few digits are left where p is nearly 1, and no shift of last digits shows it.
    """
    for node in graph.toposort():
        logit = _logit_of_complement(node)
        if logit is not None:
            other = pt.sigmoid(-logit)
            new = pt.log(other) if isinstance(node.op.scalar_op, ps.basic.Log1p) else other
            [old] = node.outputs
            graph.replace(old, old.type.filter_variable(new), import_missing=True)


def _logit_of_complement(node: Apply) -> TensorVariable | None:
    """Return x where a node is 1 - sigmoid(x), or the logarithm of that."""
    kind = getattr(node.op, "scalar_op", None) if isinstance(node.op, Elemwise) else None
    if isinstance(kind, ps.basic.Sub) and _is_one(node.inputs[0]):
        return _logit(node.inputs[1])
    above = node.inputs[0].owner if isinstance(kind, ps.basic.Log1p) else None
    if above is not None and isinstance(getattr(above.op, "scalar_op", None), ps.basic.Neg):
        return _logit(above.inputs[0])
    return None


def _is_one(variable: TensorVariable) -> bool:
    while variable.owner is not None and isinstance(variable.owner.op, DimShuffle):
        [variable] = variable.owner.inputs
    return isinstance(variable, Constant) and bool(np.all(variable.data == 1))


def _logit(probability: TensorVariable) -> TensorVariable | None:
    """Return x of sigmoid(x), in whatever dimensions that is used."""
    node = probability.owner
    if node is not None and isinstance(node.op, DimShuffle):
        inside = _logit(node.inputs[0])
        return None if inside is None else node.op(inside)
    if node is not None and isinstance(getattr(node.op, "scalar_op", None), ps.math.Sigmoid):
        return node.inputs[0]
    return None


def _written(node: Apply) -> list[TensorVariable]:
    if isinstance(node.op, OpFromGraph):
        return inline_ofg_node(node)
    value, *conditions = node.inputs
    holds = pt.all([pt.all(pt.as_tensor(condition)) for condition in conditions])
    return [pt.switch(holds, value, -np.inf)]
