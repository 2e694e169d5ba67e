"""Loops in place of array expressions give what these would."""

import numpy as np
import pytest

from pymc_privacy.algorithms.numerics import small_algebra
from tests.stochastic import seed_of


@pytest.fixture
def rng(request):
    return np.random.default_rng(seed_of(request))


@pytest.mark.parametrize("size", [1, 2, 5])
def test_triangular_products_and_solutions(size, rng):
    factor = np.tril(rng.standard_normal((size, size))) + 3 * np.eye(size)
    v = rng.standard_normal(size)
    np.testing.assert_allclose(small_algebra.lower_times(factor, v), factor @ v)
    np.testing.assert_allclose(small_algebra.times_lower(v, factor), factor.T @ v)
    solved = small_algebra.copied(v)
    small_algebra.solve_lower(factor, solved)
    np.testing.assert_allclose(factor @ solved, v)


def test_numbers_beyond_the_size_of_a_factor_are_left_alone():
    factor, v = np.array([[2.0, 9.0], [1.0, 4.0]]), np.array([6.0, 11.0, 5.0])
    np.testing.assert_array_equal(small_algebra.lower_times(factor, v), [12.0, 50.0])
    small_algebra.solve_lower(factor, v)
    np.testing.assert_array_equal(v, [3.0, 2.0, 5.0])


def test_vectors(rng):
    v, w = rng.standard_normal((2, 4))
    changed = small_algebra.copied(v)
    assert small_algebra.are_equal(changed, v)
    small_algebra.add(changed, -0.5, w)
    np.testing.assert_allclose(changed, v - 0.5 * w)
    small_algebra.multiply(changed, 3.0)
    np.testing.assert_allclose(changed, 3 * v - 1.5 * w)
    assert not small_algebra.are_equal(changed, v)
    assert small_algebra.sum_of_squares(w) == pytest.approx(w @ w)


@pytest.mark.parametrize("odd", [np.nan, np.inf, -np.inf])
def test_what_is_not_finite(odd):
    assert small_algebra.are_finite(np.array([1.0, -1e308]))
    assert not small_algebra.are_finite(np.array([1.0, odd]))
    assert not small_algebra.are_equal(np.array([np.nan]), np.array([np.nan]))


@pytest.mark.parametrize("size", [1, 2, 5, 30])
def test_the_factor_of_an_inverse(size, rng):
    root = rng.standard_normal((size, size)) + 3 * np.eye(size)
    matrix = root @ root.T
    factor = small_algebra.factor_of_inverse(matrix)
    np.testing.assert_array_equal(factor, np.tril(factor))
    assert (np.diag(factor) > 0).all()
    np.testing.assert_allclose(factor @ factor.T @ matrix, np.eye(size), atol=1e-9)


@pytest.mark.parametrize(
    "matrix",
    [
        np.ones((2, 2)),
        np.diag([1.0, 0.0]),
        -np.eye(3),
        np.full((2, 2), np.nan),
        np.diag([1.0, np.inf]),
        np.full((1, 1), np.inf),
    ],
)
def test_what_is_not_positive_definite_and_finite_has_no_factor(matrix):
    assert np.isnan(small_algebra.factor_of_inverse(matrix)).all()
