"""Algebra of short vectors and small triangular matrices, one number after the other.

Compilers spend most of their time on what an array expression could be: shapes that differ, errors
and their messages, memory in between. Moves are compiled before the first draw of all, so they call
these loops instead; at the sizes of parameters no array expression is faster.
"""

from __future__ import annotations

import math

import numpy as np

from pymc_privacy.algorithms.machine_code.caching import compiled


@compiled
def copied(vector):
    """Return a vector of the same numbers."""
    copy = np.empty(vector.size)
    for i in range(vector.size):
        copy[i] = vector[i]
    return copy


@compiled
def add(vector, length, direction):
    """Add a multiple of one vector to another, in place."""
    for i in range(vector.size):
        vector[i] += length * direction[i]


@compiled
def multiply(vector, length):
    """Multiply a vector by a number, in place."""
    for i in range(vector.size):
        vector[i] *= length


@compiled
def sum_of_squares(vector):
    """Return |v|²."""
    total = 0.0
    for i in range(vector.size):
        total += vector[i] * vector[i]
    return total


@compiled
def are_equal(first, second):
    """Tell whether two vectors of one length have the same numbers."""
    for i in range(first.size):
        if first[i] != second[i]:
            return False
    return True


@compiled
def are_finite(vector):
    """Tell whether all numbers of a vector are finite."""
    for i in range(vector.size):
        if not math.isfinite(vector[i]):
            return False
    return True


@compiled
def lower_times(factor, vector):
    """Return L v for a lower-triangular L; numbers of v beyond its size are left out."""
    product = np.empty(len(factor))
    for i in range(product.size):
        product[i] = 0.0
        for j in range(i + 1):
            product[i] += factor[i, j] * vector[j]
    return product


@compiled
def times_lower(vector, factor):
    """Return Lᵀ v for a lower-triangular L."""
    product = np.empty(vector.size)
    for i in range(vector.size):
        product[i] = 0.0
        for j in range(i + 1):
            product[j] += factor[i, j] * vector[i]
    return product


@compiled
def solve_lower(factor, vector):
    """Replace v by L⁻¹ v for a lower-triangular L; numbers beyond its size stay as they are."""
    for i in range(len(factor)):
        for j in range(i):
            vector[i] -= factor[i, j] * vector[j]
        vector[i] /= factor[i, i]


@compiled
def factor_of_inverse(matrix):
    """Return the lower-triangular L with L Lᵀ = A⁻¹; no numbers where there is none.

    With A = R Rᵀ and R upper-triangular, L is the inverse of Rᵀ. Nor are there numbers where A is
    positive, but beyond all floats.
    """
    size = len(matrix)
    lower, factor = np.empty((size, size)), np.empty((size, size))
    for i in range(size):
        for j in range(size):
            lower[i, j], factor[i, j] = 0.0, math.nan
    for j in range(size - 1, -1, -1):
        for i in range(j, -1, -1):
            rest = matrix[i, j]
            for k in range(j + 1, size):
                rest -= lower[k, i] * lower[k, j]
            if i < j:
                lower[j, i] = rest / lower[j, j]
            elif 0.0 < rest < math.inf:
                lower[j, j] = math.sqrt(rest)
            else:
                return factor
    for j in range(size):
        for i in range(size):
            factor[i, j] = 1.0 if i == j else 0.0
            for k in range(i):
                factor[i, j] -= lower[i, k] * factor[k, j]
            factor[i, j] /= lower[i, i]
    return factor
