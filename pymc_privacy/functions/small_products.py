"""Products of small matrices, written out.

A call into BLAS for two rows and two columns takes longer than the product itself, and its machine
code, which is emitted anew for every function that has one, many times longer than all the rest.
"""

from __future__ import annotations

from pymc_privacy._compat import Dot, FunctionGraph, Variable

MOST_MULTIPLICATIONS = 64
# Sums of integers have another type than their products, and truth values are not added up.
_KINDS = ("float32", "float64")


def write_out_products(graph: FunctionGraph) -> None:
    """Replace, in place, products of matrices whose shapes are known to be small by sums."""
    for node in list(graph.toposort()):
        [old, *_] = node.outputs
        is_product = isinstance(getattr(node.op, "core_op", node.op), Dot)
        if is_product and old.dtype in _KINDS and _is_small(*node.inputs):
            left, right = node.inputs
            terms = left[..., :, :, None] * right[..., None, :, :]
            product = terms.sum(axis=-2, dtype=old.dtype)
            graph.replace(old, old.type.filter_variable(product), import_missing=True)


def _is_small(left: Variable, right: Variable) -> bool:
    (rows, inner), (_, columns) = left.type.shape[-2:], right.type.shape[-2:]
    inner = right.type.shape[-2] if inner is None else inner
    if None in (rows, inner, columns):
        return False
    return rows * inner * columns <= MOST_MULTIPLICATIONS
