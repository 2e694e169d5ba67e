"""What is read from a graph about its rows is so, and what mixes rows is never read as local."""

import numpy as np
import pytensor.tensor as pt
import pytest
from pytensor.compile.mode import Mode

from pymc_privacy.model.alignment import Aligned, Mixed, alignment

SIZE = 5
x = pt.vector("x", shape=(SIZE,))
table = pt.matrix("table", shape=(SIZE, 3))
place = pt.lvector("place", shape=(SIZE,))
LEAVES = [x, table, place]
parameters = pt.matrix("parameters", shape=(4, 3))
other = pt.matrix("other", shape=(SIZE, 3))
factor = pt.matrix("factor", shape=(3, 3))
covariate = pt.constant(np.arange(float(SIZE)))

ALIKE = {
    "each alone": pt.exp(x) + parameters[0, 0],
    "two variables": x + table[:, 1],
    "a stack": pt.stack([x, x**2], axis=1),
    "a product": table @ parameters.T,
    "a vector product": pt.dot(table, parameters[0]),
    "a sum over coordinates": table.sum(axis=1),
    "a running total of coordinates": pt.cumsum(table, axis=1),
    "shares": pt.special.softmax(table, axis=1),
    "a log of sums": pt.logsumexp(table, axis=1),
    "a look-up": parameters[place],
    "a look-up of a coordinate": parameters[place, 1],
    "chosen columns": table[:, [0, 2]],
    "all rows by name": x[:SIZE],
    "laid out by rows": table.reshape((SIZE, -1)),
    "one column written": pt.set_subtensor(table[:, 0], x),
    "into zeros": pt.set_subtensor(pt.zeros((SIZE, 3))[:, 0], x),
    "solved for each": pt.linalg.solve_triangular(factor, table.T, lower=True, b_ndim=2).T,
    "sorted coordinates": pt.sort(table, axis=1),
}
APART = {
    "a covariate": x * covariate,
    "a row overwritten": pt.set_subtensor(x[0], 3.0),
    "its own row of a table": other[np.arange(SIZE), place],
    "its own row of records": table[pt.arange(SIZE), place],
}
MIXED = {
    "a mean": x - x.mean(),
    "any": pt.switch(pt.any(x > 4), 0.0, x),
    "the largest in row 0": pt.set_subtensor(x[0], x.max()),
    "outliers": pt.switch(abs(x - x.mean()) > 3 * x.std(), 0.0, x),
    "backwards": x[::-1],
    "some": x[: SIZE - 1],
    "one": x + x[2],
    "differences": pt.diff(x),
    "a running total": pt.cumsum(table, axis=0),
    "shares of all": pt.special.softmax(table, axis=0),
    "among each other": table.T @ table,
    "summed by a product": covariate @ table,
    "joined": pt.concatenate([x, x]),
    "written where records say": pt.set_subtensor(x[pt.switch(x > 30, 0, np.arange(SIZE))], x),
    "outer": pt.outer(x, x),
    "a column of pairs": (x[:, None] - x[None, :])[:, 0],
    "sorted": pt.sort(x),
    "at a place that records say": x[pt.arange(SIZE) - place],
    "in another row": pt.set_subtensor(table[0], x[:3]),
}


def rows_that_move(graph, changed):
    """Return the rows of a graph that move when some rows of all leaves do."""
    rng = np.random.default_rng(1)
    given = {
        x: rng.normal(size=SIZE),
        table: rng.normal(size=(SIZE, 3)),
        place: rng.integers(0, 3, SIZE),
        parameters: rng.normal(size=(4, 3)),
        other: rng.normal(size=(SIZE, 3)),
        factor: np.eye(3) + np.tril(rng.normal(size=(3, 3))) ** 2,
    }
    after = {v: np.array(value) for v, value in given.items()}
    for leaf in LEAVES:
        after[leaf][changed] = (after[leaf][changed] + 1) % 3
    mode = Mode(linker="py", optimizer="fast_compile")
    a, b = (graph.eval(point, mode=mode, on_unused_input="ignore") for point in (given, after))
    return {i for i in range(SIZE) if not np.allclose(a[i], b[i])}


@pytest.mark.parametrize("name", [*ALIKE, *APART])
def test_rows_that_are_read_as_local_move_with_their_own_record_alone(name):
    graph = (ALIKE | APART)[name]
    state = alignment(graph, LEAVES)
    assert isinstance(state, Aligned)
    assert state.axis == 0
    for row in range(SIZE):
        assert rows_that_move(graph, [row]) <= {row}


@pytest.mark.parametrize("name", [*ALIKE, *APART])
def test_rows_are_alike_where_nothing_tells_them_apart(name):
    assert alignment((ALIKE | APART)[name], LEAVES).alike == (name in ALIKE)


@pytest.mark.parametrize("name", MIXED)
def test_mixed_rows_are_read_as_such(name):
    assert isinstance(alignment(MIXED[name], LEAVES), Mixed)


@pytest.mark.parametrize(
    "graph",
    [pt.repeat(x, 2), table.reshape((3, SIZE)), pt.extra_ops.to_one_hot(place, 3)],
)
def test_what_is_not_known_is_not_called_local(graph):
    state = alignment(graph, LEAVES)
    assert state is not None
    assert not isinstance(state, Aligned)


@pytest.mark.parametrize("graph", [x.shape[0] * parameters, pt.ones(table.shape) * other])
def test_a_shape_is_no_record(graph):
    assert alignment(graph, LEAVES) is None
