"""Contributions come apart into one vector per coordinate, and add up to the statistic."""

import numpy as np
import pytensor.tensor as pt
import pytest

from pymc_privacy.errors import RecordError
from pymc_privacy.model.columns import column_sums, columns

X = pt.dvector("x")
ROWS = np.array([[1.0, -2.0], [0.5, 3.0], [4.0, 0.25]])


def test_a_stack_is_taken_apart_without_building_the_matrix():
    square = X**2
    assert columns(pt.stack([X, square], axis=1)) == [X, square]


def test_a_vector_is_its_own_column():
    assert columns(X) == [X]


@pytest.mark.parametrize(
    "contributions",
    [
        pt.as_tensor(ROWS),
        pt.stack([ROWS[:, 0], ROWS[:, 1]], axis=1),
        pt.concatenate([ROWS[:, :1], ROWS[:, 1:]], axis=1),
    ],
    ids=["matrix", "stack", "concatenation"],
)
def test_columns_and_their_sums_are_those_of_the_matrix(contributions):
    found = [column.eval(mode="FAST_COMPILE") for column in columns(contributions)]
    np.testing.assert_array_equal(found, ROWS.T)
    total = column_sums(contributions).eval(mode="FAST_COMPILE")
    np.testing.assert_allclose(total, ROWS.sum(axis=0), rtol=1e-15)


def test_an_unknown_number_of_columns_is_refused():
    with pytest.raises(
        RecordError, match=r"number of columns.*must be known.*shape \(None, None\).*specify_shape"
    ):
        columns(pt.dmatrix("contributions"))
