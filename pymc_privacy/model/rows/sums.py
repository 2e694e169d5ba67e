"""Sum expressions of one record over all records, in one loop that allocates nothing.

PyTensor's own loops fill an array per coordinate, or read arrays by strides; a plain loop
over contiguous columns is turned into vector instructions, and is several times faster.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import reduce
from hashlib import sha256
from typing import Any

import numpy as np
import pytensor.tensor as pt

from pymc_privacy._compat import (
    Apply,
    Cast,
    Composite,
    DisconnectedType,
    Op,
    TensorVariable,
    Variable,
    compile_numba_function_src,
    grad,
    graph_inputs,
    numba_funcify_and_cache_key,
    numba_njit,
    ps,
    register_funcify_and_cache_key,
)
from pymc_privacy.functions.numbers import numbers_taken_out
from pymc_privacy.model.rows.expressions import NotByRows
from pymc_privacy.model.rows.products import MANY_SUMS, Products, as_products
from pymc_privacy.model.rows.products import source as source_of_products


class RowSums(Op):
    """Sums over i of scalar expressions of (columns[i], constants), as one vector.

    Its derivative by a constant is the sum of the expressions' derivatives; by a column it
    is not provided.
    """

    __props__ = ("composite", "width")

    def __init__(self, inputs: Sequence[Variable], outputs: Sequence[Variable], width: int):
        self.composite = Composite(list(inputs), list(outputs))
        self.width = width
        self._scalars = (tuple(inputs), tuple(outputs))

    def make_node(self, *inputs: Variable) -> Apply:
        """Take the columns first, then the constants."""
        return Apply(
            self, list(inputs), [pt.vector(dtype="float64", shape=(len(self._scalars[1]),))]
        )

    def infer_shape(self, fgraph: Any, node: Apply, shapes: Sequence[Any]) -> list[Any]:
        """Return the number of expressions."""
        return [(pt.constant(len(self._scalars[1])),)]

    def with_numbers_as_inputs(self, inputs: list[Variable]) -> tuple[RowSums, list[Variable]]:
        """Return the same sums with numbers of the expressions as constants behind the others."""
        # Many sums share factors, and the numbers in them.
        alike = len(self._scalars[1]) >= MANY_SUMS
        scalars, expressions, numbers = numbers_taken_out(self.composite.fgraph, alike=alike)
        op = RowSums(scalars, expressions, self.width)
        return op, [*inputs, *(pt.constant(number, dtype="float64") for number in numbers)]

    def products(self) -> Products | None:
        """Return the sums as those of products of a few factors, if that is how they are summed."""
        inner = self.composite.fgraph.unfreeze()
        return as_products(inner.inputs, self.width, inner.outputs)

    def perform(
        self, node: Apply, inputs: Sequence[np.ndarray], output_storage: Sequence[list[Any]]
    ) -> None:
        """Sum without a compiler, for the modes that have none."""
        columns, constants = inputs[: self.width], inputs[self.width :]
        # What is no number outside the support is none in compiled code either, and no warning.
        with np.errstate(all="ignore"):
            values = [self.composite.impl(*row, *constants) for row in zip(*columns, strict=True)]
        shape = (len(values), len(self._scalars[1]))
        output_storage[0][0] = np.array(values, dtype=np.float64).reshape(shape).sum(axis=0)

    def connection_pattern(self, node: Apply) -> list[list[bool]]:
        """Let gradients flow to the constants alone."""
        return [[k >= self.width] for k in range(len(node.inputs))]

    def pullback(
        self,
        inputs: Sequence[Variable],
        outputs: Sequence[Variable],
        cotangents: Sequence[Variable],
    ) -> list[Variable]:
        """Sum the derivatives of the expressions by each constant, in one more loop."""
        scalars, expressions = self._scalars
        constants = scalars[self.width :]
        weights = [expression.type() for expression in expressions]
        # Of one sum: an expression may be part of another, whose share must be added to its own.
        weighted = [w * expression for w, expression in zip(weights, expressions, strict=True)]
        derivatives = grad(
            None,
            wrt=list(constants),
            known_grads={reduce(ps.add, weighted): ps.constant(1.0)},
            disconnected_inputs="ignore",
            return_disconnected="zero",
        )
        derivatives = [_as_float(derivative) for derivative in derivatives]
        op = RowSums([*scalars, *weights], derivatives, self.width)
        totals = op(*inputs, *(cotangents[0][k] for k in range(len(weights))))
        return [
            *(DisconnectedType()() for _ in range(self.width)),
            *(totals[k] for k in range(len(constants))),
        ]


def row_sums(
    expressions: Sequence[Any],
    columns: Mapping[Any, TensorVariable],
    constants: Mapping[Any, TensorVariable],
) -> list[TensorVariable]:
    """Return the sum over the records of each expression; one of them must depend on a record.

    Columns and constants are given by the scalars that stand for them, as in `RowExpressions`.
    """
    outputs = [_as_float(expression) for expression in expressions]
    used = set(graph_inputs(outputs))
    ours = [scalar for scalar in columns if scalar in used]
    fixed = [scalar for scalar in constants if scalar in used]
    if not ours:
        raise NotByRows("nothing differs between the records")
    op = RowSums([*ours, *fixed], outputs, len(ours))
    totals = op(*(columns[s] for s in ours), *(constants[s] for s in fixed))
    return [totals[k] for k in range(len(outputs))]


def _as_float(scalar: Any) -> Any:
    """Return an expression of type float64, never an input itself, which has no expression."""
    if scalar.dtype != "float64":
        return Cast(ps.float64)(scalar)
    return ps.identity(scalar) if scalar.owner is None else scalar


@register_funcify_and_cache_key(RowSums)
def _compile_row_sums(op: RowSums, node: Apply, **kwargs: Any) -> tuple[Any, str | None]:
    constants = len(node.inputs) - op.width
    inner, products = op.composite.fgraph, op.products()
    if products is None:
        composites = {"expressions": op.composite}
        source = _loop_source(op.width, constants, len(op._scalars[1]))
    else:
        composites = {
            "expressions": Composite(products.inputs, products.factors),
            "weights": Composite(products.inputs, products.weights),
        }
        source = source_of_products(op.width, constants, products)
    scope: dict[str, Any] = {"np": np, "ValueError": ValueError}
    keys = []
    for name, composite in composites.items():
        scalar_node = composite.make_node(*(scalar.type() for scalar in inner.inputs))
        scope[name], key = numba_funcify_and_cache_key(composite, node=scalar_node, **kwargs)
        keys.append(key)
    function = numba_njit(compile_numba_function_src(source, "row_sums", scope))
    if None in keys:
        return function, None
    return function, sha256(str((RowSums, op.width, source, *keys)).encode()).hexdigest()


def _loop_source(columns: int, constants: int, outputs: int) -> str:
    """Write the loop out: one accumulator per expression lets it be vectorised."""
    names = [f"c{k}" for k in range(columns)]
    scalars = [f"s{k}" for k in range(constants)]
    values = [f"v{k}" for k in range(outputs)]
    contiguous = [f"    {c} = np.ascontiguousarray({c})" for c in names]
    unpacked = [f"    {s} = {s}.item()" for s in scalars]
    checks = [
        f"    if {c}.shape[0] != size: raise ValueError('columns of different lengths')"
        for c in names[1:]
    ]
    call = ", ".join([*(f"{c}[i]" for c in names), *scalars])
    lines = [
        f"def row_sums({', '.join([*names, *scalars])}):",
        *contiguous,
        *unpacked,
        "    size = c0.shape[0]",
        *checks,
        *(f"    t{k} = 0.0" for k in range(outputs)),
        "    for i in range(size):",
        f"        {', '.join(values)} = expressions({call})",
        *(f"        t{k} += v{k}" for k in range(outputs)),
        f"    return np.array([{', '.join(f't{k}' for k in range(outputs))}])",
    ]
    return "\n".join(lines) + "\n"
