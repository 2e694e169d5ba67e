"""Products of small matrices that are written out are the same numbers, of the same type."""

import numpy as np
import pytensor.tensor as pt
import pytest

from pymc_privacy._compat import INTERPRETED, Dot, FunctionGraph, compile_graph
from pymc_privacy.functions.small_products import write_out_products

SHAPES = [((2, 3), (3, 2)), ((3,), (3, 2)), ((2, 3), (3,)), ((3,), (3,)), ((1, 3), (3, 1))]
SHAPES += [((4, 2, 3), (3, 2)), ((4, 2, 3), (4, 3, 2)), ((1, 2, 3), (4, 3, 2))]


def is_product(node):
    return isinstance(getattr(node.op, "core_op", node.op), Dot)


def written_out(outputs):
    graph = FunctionGraph(outputs=outputs, clone=True, copy_inputs=False)
    write_out_products(graph)
    return graph


@pytest.mark.parametrize(
    "kinds", [("float64", "float64"), ("float32", "float64"), ("int8", "int16")]
)
@pytest.mark.parametrize("shapes", SHAPES, ids=str)
def test_the_numbers_are_the_same(shapes, kinds):
    rng = np.random.default_rng(1)
    matrices = [pt.tensor(shape=s, dtype=k) for s, k in zip(shapes, kinds, strict=True)]
    values = [
        np.asarray(9 * rng.normal(size=s)).astype(k) for s, k in zip(shapes, kinds, strict=True)
    ]
    product = pt.matmul(*matrices)
    graph = written_out([product])
    [found] = graph.outputs
    assert found.type.dtype == product.type.dtype
    assert any(map(is_product, graph.apply_nodes)) == (kinds[0] == "int8")
    function = compile_graph(matrices, graph.outputs, mode=INTERPRETED)
    [result] = function(*values)
    np.testing.assert_allclose(result, np.matmul(*values), rtol=1e-5)


@pytest.mark.parametrize("shapes", [((20, 20), (20, 20)), ((None, 3), (3, 2))])
def test_others_are_left_alone(shapes):
    matrices = [pt.tensor(shape=s, dtype="float64") for s in shapes]
    assert any(map(is_product, written_out([pt.matmul(*matrices)]).apply_nodes))


def test_a_slope_is_the_same():
    matrix = pt.tensor("matrix", shape=(2, 2), dtype="float64")
    slope = pt.grad(pt.matmul(matrix, matrix.T).sum(), matrix)
    graph = written_out([slope])
    assert not any(map(is_product, graph.apply_nodes))
    value = np.array([[1.0, 2.0], [3.0, 5.0]])
    [found] = compile_graph([matrix], graph.outputs, mode=INTERPRETED)(value)
    np.testing.assert_allclose(found, 2 * value.sum(axis=0) * np.ones((2, 1)))
