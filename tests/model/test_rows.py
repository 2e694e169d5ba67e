"""One record's expression, summed in a loop, is the tensor's own sum; and so is its gradient."""

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest

from pymc_privacy.functions.numbers import BY_STRUCTURE
from pymc_privacy.model.rows.expressions import NotByRows, RowExpressions, simplified
from pymc_privacy.model.rows.products import BLOCK
from pymc_privacy.model.rows.sums import row_sums

SIZE = 7
X = np.random.default_rng(1).normal(size=(SIZE, 2))
THETA = np.array([0.3, 1.7, -0.4])

x, theta = pt.matrix("x", shape=(SIZE, 2)), pt.vector("theta", shape=(3,))
effects, pairs = pt.vector("effects", shape=(SIZE,)), pt.matrix("pairs", shape=(2, SIZE))
covariate = pt.constant(np.random.default_rng(2).normal(size=SIZE))
table = pt.constant(np.arange(6.0).reshape(3, 2))

BY_ROWS = {
    "a column": x[:, 0],
    "affine": theta[0] + theta[1] * x[:, 1],
    "both columns": (x - theta[:2]) ** 2,
    "a stack": pt.stack([x[:, 0] * theta[2], pt.exp(x[:, 1])], axis=1),
    "a clip": pt.clip(x[:, 0] * theta[1], -0.5, 0.5),
    "a product of matrices": x @ theta[:2],
    "a sum over coordinates": (x * theta[:2]).sum(axis=1),
    "a public covariate": covariate * theta[0] + x[:, 0],
    "a product with itself": (x[:, 0] * theta[0]) * (x[:, 0] * theta[0]) * theta[1],
    "a choice": pt.switch(x[:, 0] > 0, theta[0], theta[1]),
    "a row of a table": (table * theta[0])[(x[:, 0] > 0).astype("int64")][:, 1],
    "a row counted from the end": (table * theta[0])[(x[:, 0] > 0).astype("int64") - 3][:, 1],
    "rows counted from the end": theta[np.array([-1, -3, -2, -2, 0, 1, -1])] * x[:, 0],
    "truth values added up": (x > 0).sum(axis=1) * theta[0],
    "a product of truth values": (x > 0).astype("int64") @ pt.constant(np.array([1, 2])) * theta[1],
    "whole columns by a step": x[:, ::2] + theta[0],
    "any function of the records alone": pt.cumsum(x, axis=1)[:, 1] * theta[0],
}

NOT_BY_ROWS = {
    "a scalar": x.sum(),
    "a number for all": x[:, 0] * 0 + theta.sum(),
    "records among each other": x[:, 0] * theta[0] + (x[:, 0] * theta[1]).sum(),
    "some of the records": (x * theta[0])[1:, 0],
    "records in another order": (x * theta[0])[::-1, 0],
    "a running total of moved records": pt.cumsum(x[:, 0] * theta[0]),
    "a parameter for each record": x[:, 0] * effects,
    "a function of parameters for each record": x[:, 0] + pt.cumsum(effects),
    "a row of parameters for each record": x[:, 0] - pairs[1],
}


def _loop(tensor):
    rows = RowExpressions([x], [theta, effects, pairs])
    return row_sums([rows.of(*simplified([tensor]))], rows.columns, rows.constants)[0]


@pytest.mark.parametrize("mode", ["NUMBA", "FAST_COMPILE"])
@pytest.mark.parametrize("name", BY_ROWS)
def test_the_loop_gives_the_sum_and_its_gradient(name, mode):
    total, loop = BY_ROWS[name].sum(), _loop(BY_ROWS[name])
    (value, gradient), (looped, loop_gradient) = (
        pytensor.function(
            [x, theta],
            [graph, pt.grad(graph, theta, disconnected_inputs="ignore")],
            mode=each,
            on_unused_input="ignore",
        )(X, THETA)
        for graph, each in ((total, "FAST_COMPILE"), (loop, mode))
    )
    np.testing.assert_allclose(looped, value, rtol=1e-12)
    np.testing.assert_allclose(loop_gradient, gradient, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("name", NOT_BY_ROWS)
def test_what_is_not_a_record_at_a_time_is_refused(name):
    with pytest.raises(NotByRows):
        _loop(NOT_BY_ROWS[name])


def test_several_sums_share_one_loop():
    rows = RowExpressions([x], [theta])
    parts = [x[:, 0] * theta[0], x[:, 1], x[:, 0] * x[:, 1]]
    sums = row_sums([rows.of(part) for part in parts], rows.columns, rows.constants)
    assert len({total.owner.inputs[0] for total in sums}) == 1
    values = pytensor.function([x, theta], sums, mode="NUMBA")(X, THETA)
    expected = [(X[:, 0] * THETA[0]).sum(), X[:, 1].sum(), (X[:, 0] * X[:, 1]).sum()]
    np.testing.assert_allclose(values, expected, rtol=1e-12)


def test_an_expression_that_is_part_of_another_adds_to_the_gradient():
    part = theta[0] * x[:, 0]
    tensors = simplified([part, part * part, part * x[:, 1]])
    rows = RowExpressions([x], [theta])
    looped = sum(
        w * s
        for w, s in zip(
            (1, 2, 3),
            row_sums([rows.of(t) for t in tensors], rows.columns, rows.constants),
            strict=True,
        )
    )
    whole = sum(w * t.sum() for w, t in zip((1, 2, 3), tensors, strict=True))
    gradients = [pt.grad(cost, theta) for cost in (looped, whole)]
    found, expected = pytensor.function([x, theta], gradients, mode="NUMBA")(X, THETA)
    np.testing.assert_allclose(found, expected, rtol=1e-12)


def test_columns_of_different_lengths_are_refused():
    u, v = pt.vector("u"), pt.vector("v")
    rows = RowExpressions([u, v], [])
    [total] = row_sums([rows.of(u * v)], rows.columns, rows.constants)
    function = pytensor.function([u, v], total, mode="NUMBA")
    with pytest.raises(ValueError, match="different lengths"):
        function(np.ones(3), np.ones(4))


def test_records_read_by_strides_give_the_same():
    wide = np.random.default_rng(3).normal(size=(SIZE, 5))
    function = pytensor.function([x, theta], _loop(BY_ROWS["both columns"]), mode="NUMBA")
    strided = wide[:, 1:5:2]
    np.testing.assert_allclose(function(strided, THETA), ((strided - THETA[:2]) ** 2).sum())


def cross_products(columns, theta):
    """Return all products of two columns, one of which a parameter moves, and the columns."""
    moved = [pt.clip(columns[:, 0] * theta[0], -1, 1) / 2, *(columns[:, k] for k in range(1, 6))]
    pairs = [a * b for k, a in enumerate(moved) for b in moved[k:]]
    return moved + [0.3 * pair for pair in pairs]


@pytest.mark.parametrize("size", [0, 1, BLOCK - 1, BLOCK, 3 * BLOCK + 5])
def test_many_products_are_summed_block_by_block(size):
    z, factor = pt.matrix("z", shape=(None, 6)), pt.vector("factor", shape=(1,))
    rows = RowExpressions([z], [factor])
    tensors = simplified(cross_products(z, factor))
    sums = row_sums([rows.of(tensor) for tensor in tensors], rows.columns, rows.constants)
    products = sums[0].owner.inputs[0].owner.op.products()
    assert len(products.factors) == 7
    data = np.random.default_rng(4).normal(size=(size, 6))
    z0 = np.clip(1.7 * data[:, 0], -1, 1) / 2
    whole = np.column_stack([z0, data[:, 1:]])
    gram = whole.T @ whole
    expected = [*whole.sum(axis=0), *(0.3 * gram[np.triu_indices(6)])]
    for mode in ("NUMBA", BY_STRUCTURE):
        values = pytensor.function([z, factor], sums, mode=mode)(data, np.array([1.7]))
        np.testing.assert_allclose(values, expected, rtol=1e-11, atol=1e-11)


def test_many_products_have_their_gradient():
    z, factor = pt.matrix("z", shape=(None, 6)), pt.vector("factor", shape=(1,))
    rows = RowExpressions([z], [factor])
    tensors = simplified(cross_products(z, factor))
    sums = row_sums([rows.of(tensor) for tensor in tensors], rows.columns, rows.constants)
    weights = range(1, len(sums) + 1)
    looped = sum(w * s for w, s in zip(weights, sums, strict=True))
    whole = sum(w * t.sum() for w, t in zip(weights, tensors, strict=True))
    gradients = [pt.grad(cost, factor) for cost in (looped, whole)]
    data = np.random.default_rng(5).normal(size=(20, 6))
    found, expected = pytensor.function([z, factor], gradients, mode="NUMBA")(data, [0.6])
    np.testing.assert_allclose(found, expected, rtol=1e-11)


@pytest.mark.parametrize(
    "columns",
    [pt.imatrix("whole", shape=(None, 6)), pt.matrix("apart", shape=(None, 40))],
    ids=["integers", "no shared factors"],
)
def test_sums_that_are_no_products_of_few_factors_are_summed_as_they_are(columns):
    width = columns.type.shape[1]
    rows = RowExpressions([columns], [])
    if width == 6:
        parts = [columns[:, a] * columns[:, b] for a in range(6) for b in range(a, 6)]
    else:
        parts = [columns[:, k] * columns[:, k + 20] for k in range(20)]
    sums = row_sums([rows.of(part) for part in parts], rows.columns, rows.constants)
    assert sums[0].owner.inputs[0].owner.op.products() is None
