"""Derivatives by central differences, of functions that are known by their values alone."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

_STEP = 1e-4
# Of the largest eigenvalue, the least that a curvature is taken to have.
_LEAST = 1e-9

Function = Callable[[np.ndarray], np.ndarray]


def derivatives(function: Function, q: np.ndarray) -> np.ndarray:
    """Return the derivatives of some numbers, shape (numbers, coordinates).

    Examples
    --------
    >>> derivatives(lambda q: np.array([q[0] * q[1], q[1] ** 2]), np.array([2.0, 3.0])).round(6)
    array([[3., 2.],
           [0., 6.]])
    """
    columns = []
    for step in np.diag(_STEP * (1 + np.abs(q))):
        # A function may write its result into the same memory each time.
        up, down = (np.array(function(q + side * step)) for side in (1, -1))
        columns.append((up - down) / (2 * step.sum()))
    return np.array(columns).T


def curvature(gradient: Function, q: np.ndarray) -> np.ndarray:
    """Return minus the second derivatives, made positive definite where they are not.

    Examples
    --------
    >>> float(curvature(lambda q: -3 * q, np.array([1.0])).round(6).item())
    3.0
    """
    matrix = -np.nan_to_num(derivatives(gradient, q))
    values, axes = np.linalg.eigh((matrix + matrix.T) / 2)
    least = _LEAST * max(float(np.abs(values).max(initial=0.0)), 1e-12)
    return (axes * np.maximum(values, least)) @ axes.T
