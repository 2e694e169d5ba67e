"""Sums of products of a few factors, such as all of Zᵀ Z, block by block.

A loop with an accumulator for each of many sums computes every product anew and runs out of
registers, and its machine code is as long as there are sums. Here the factors of a block of
records are written down first, each once; then sums of products of two of them are sums over short
rows that are still in the cache. What is compiled depends on the number of factors, not on that of
the sums.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import NamedTuple

from pymc_privacy._compat import FunctionGraph, MergeOptimizer, Variable, ancestors, ps

# From so many sums on: fewer are faster in one loop.
MANY_SUMS = 16
# Records in one block. The factors of a block are to stay in the innermost cache.
BLOCK = 128


class Products(NamedTuple):
    """Sums over the records as weights times sums of products of two factors, by their numbers."""

    inputs: list[Variable]
    factors: list[Variable]
    weights: list[Variable]
    left: list[int]
    right: list[int]
    weight: list[int]


def as_products(
    inputs: Sequence[Variable], width: int, sums: Sequence[Variable]
) -> Products | None:
    """Return products with fewer factors than there are sums, or None if there are none such.

    The first ``width`` inputs are those that differ between the records.
    """
    if len(sums) < MANY_SUMS or any(column.dtype != "float64" for column in inputs[:width]):
        return None
    columns = set(inputs[:width])
    one = ps.constant(1.0, dtype="float64")
    parts = [_product(expression, columns, one) for expression in sums]
    graph = FunctionGraph(list(inputs), [part for triple in parts for part in triple], clone=True)
    MergeOptimizer().rewrite(graph)
    weights, left, right = (graph.outputs[k::3] for k in range(3))
    factors = list(dict.fromkeys([*left, *right]))
    if 2 * len(factors) > len(sums):
        return None
    different = list(dict.fromkeys(weights))
    return Products(
        list(graph.inputs),
        _results(factors),
        _results(different),
        [factors.index(f) for f in left],
        [factors.index(f) for f in right],
        [different.index(w) for w in weights],
    )


def _product(
    expression: Variable, columns: set[Variable], one: Variable
) -> tuple[Variable, Variable, Variable]:
    """Return a weight that is the same for all records, and two factors."""
    weights: list[Variable] = []
    factors: list[Variable] = []
    for part in _multiplied(expression):
        (factors if columns & set(ancestors([part])) else weights).append(part)
    last = factors.pop() if len(factors) > 1 else one
    return _times(weights, one), _times(factors, one), last


def _times(parts: Sequence[Variable], one: Variable) -> Variable:
    return reduce(ps.mul, parts) if parts else one


def _multiplied(expression: Variable) -> list[Variable]:
    """Return what an expression is the product of."""
    node = expression.owner
    if node is not None and expression.dtype == "float64":
        if isinstance(node.op, ps.basic.Identity):
            return _multiplied(node.inputs[0])
        if isinstance(node.op, ps.basic.Sqr):
            return 2 * _multiplied(node.inputs[0])
        if isinstance(node.op, ps.basic.Mul):
            return [factor for part in node.inputs for factor in _multiplied(part)]
    return [expression if expression.dtype == "float64" else ps.cast(expression, "float64")]


def _results(scalars: Sequence[Variable]) -> list[Variable]:
    """Return scalars as results of operations, which is what a compiled expression returns."""
    return [ps.identity(scalar) if scalar.owner is None else scalar for scalar in scalars]


def source(columns: int, constants: int, products: Products) -> str:
    """Write the loops out.

    They run over slices, of which the compiler knows that no index is negative.
    """
    names = [f"c{k}" for k in range(columns)]
    scalars = [f"s{k}" for k in range(constants)]
    factors = range(len(products.factors))
    call = ", ".join([*(f"{c}_here[i]" for c in names), *scalars])
    # Weights look at no record.
    alike = ", ".join([*columns * ["0.0"], *scalars])
    lines = [
        f"def row_sums({', '.join([*names, *scalars])}):",
        *(f"    {c} = np.ascontiguousarray({c})" for c in names),
        *(f"    {s} = {s}.item()" for s in scalars),
        "    size = c0.shape[0]",
        *(
            f"    if {c}.shape[0] != size: raise ValueError('columns of different lengths')"
            for c in names[1:]
        ),
        f"    left, right = np.array({products.left}), np.array({products.right})",
        f"    weight = np.array({products.weight})",
        f"    {_tuple('w', products.weights)} = weights({alike})",
        f"    by_number = np.array([{_tuple('w', products.weights)}])",
        "    totals = np.zeros(left.size)",
        f"    written = np.empty({len(factors) * BLOCK})",
        *(f"    f{k} = written[{k * BLOCK} : {(k + 1) * BLOCK}]" for k in factors),
        f"    for first in range(0, size, {BLOCK}):",
        f"        count = min({BLOCK}, size - first)",
        *(f"        {c}_here = {c}[first : first + count]" for c in names),
        "        for i in range(count):",
        f"            {_tuple('v', products.factors)} = expressions({call})",
        *(f"            f{k}[i] = v{k}" for k in factors),
        "        for k in range(left.size):",
        f"            one = written[left[k] * {BLOCK} : left[k] * {BLOCK} + count]",
        f"            other = written[right[k] * {BLOCK} : right[k] * {BLOCK} + count]",
        "            total = 0.0",
        "            for i in range(one.size):",
        "                total += one[i] * other[i]",
        "            totals[k] += total",
        "    for k in range(left.size):",
        "        totals[k] *= by_number[weight[k]]",
        "    return totals",
    ]
    return "\n".join(lines) + "\n"


def _tuple(letter: str, parts: Sequence[Variable]) -> str:
    """Return names of what a compiled expression returns: a single result comes without a tuple."""
    return ", ".join(f"{letter}{k}" for k in range(len(parts)))
