"""All tables of counts with the same exact totals, and moves that connect them.

Cells with equal columns of B are held by the same totals; they form a class. Where the totals
determine the sum of every class (as nested totals do: state, county, tract), moves of k from
one cell to another of its class connect all tables. Elsewhere, as for the margins of a table
with two ways, vectors of the integer kernel { g : B g = 0 } are added: every one of them has a
positive probability, so that any table can be reached from any other in one move.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.optimize import Bounds, LinearConstraint, milp

from pymc_privacy.errors import ReleaseError

LARGEST_BASIS = 300
"""How many cells a table may have whose exact totals are not nested."""


@dataclass(frozen=True, eq=False)
class Fibre:
    """The moves that keep all exact totals."""

    singles: np.ndarray
    """Shape (cells, 2): each free cell, twice."""
    classes: tuple[np.ndarray, ...]
    """Cells that the same totals hold; classes of one cell are left out."""
    basis: np.ndarray
    """Shape (vectors, cells): a basis of the integer kernel, where pairs are not enough."""
    held: tuple[np.ndarray, ...] = ()
    """Classes whose sum is exact, those of one cell too."""

    def draw_pairs(self, rng: np.random.Generator) -> np.ndarray:
        """Draw disjoint pairs of cells that can exchange counts."""
        drawn = [rng.permutation(c)[: 2 * (c.size // 2)].reshape(-1, 2) for c in self.classes]
        return np.concatenate(drawn) if drawn else np.empty((0, 2), dtype=np.int64)

    def draw_directions(self, rng: np.random.Generator) -> list[np.ndarray]:
        """Draw as many vectors of the kernel as the basis has, each as often as its opposite."""
        vectors = []
        for _ in range(len(self.basis)):
            some = min(rng.geometric(0.5), len(self.basis))
            chosen = rng.choice(len(self.basis), size=some, replace=False)
            factors = rng.geometric(0.6, size=some) * rng.choice([-1, 1], size=some)
            vectors.append(factors @ self.basis[chosen])
        return vectors


def fibre_of(matrix: np.ndarray) -> Fibre:
    """Find the moves that keep B c, for a matrix B of integers that may have no rows."""
    matrix = np.asarray(matrix, dtype=np.int64)
    cells = np.arange(matrix.shape[1])
    columns, member = np.unique(matrix.T, axis=0, return_inverse=True)
    member = member.ravel()
    held = np.any(columns != 0, axis=1)
    free = cells[~held[member]]
    classes = tuple(group for k in range(len(columns)) if (group := cells[member == k]).size > 1)
    nested = not len(matrix) or np.linalg.matrix_rank(columns[held]) == held.sum()
    basis = np.empty((0, cells.size), dtype=np.int64)
    if not nested:
        if cells.size > LARGEST_BASIS:
            raise ReleaseError(
                f"Exact totals of more than {LARGEST_BASIS} cells must be nested (each pair of "
                f"them disjoint, or one within the other); got {cells.size} cells with others."
            )
        basis = integer_kernel(matrix)
    exact = tuple(cells[member == k] for k in np.flatnonzero(held))
    return Fibre(np.stack([free, free], axis=1), classes, basis, exact)


def equal_columns(matrix: np.ndarray) -> tuple[np.ndarray, ...]:
    """Return all cells in groups of equal columns."""
    _, member = np.unique(np.asarray(matrix).T, axis=0, return_inverse=True)
    member = member.ravel()
    return tuple(np.flatnonzero(member == k) for k in range(member.max() + 1))


def integer_kernel(matrix: np.ndarray) -> np.ndarray:
    """Return a basis of { g integer : B g = 0 }, as rows.

    Column operations of determinant ±1 bring B to a form with zero columns at its right end;
    the same operations on the identity leave a basis of the kernel there.
    """
    b = [[int(v) for v in row] for row in matrix]
    size = len(matrix[0])
    u = [[int(i == j) for j in range(size)] for i in range(size)]
    done = 0
    for row in b:
        while sum(row[j] != 0 for j in range(done, size)) > 1:
            pivot = min((j for j in range(done, size) if row[j]), key=lambda j: abs(row[j]))
            for j in range(done, size):
                if j != pivot and row[j]:
                    _subtract(b, u, j, pivot, row[j] // row[pivot])
        left = [j for j in range(done, size) if row[j]]
        if left:
            _swap(b, u, left[0], done)
            done += 1
    return np.array([[u[i][j] for i in range(size)] for j in range(done, size)], dtype=np.int64)


def _subtract(b: list, u: list, j: int, pivot: int, factor: int) -> None:
    for row in (*b, *u):
        row[j] -= factor * row[pivot]


def _swap(b: list, u: list, i: int, j: int) -> None:
    for row in (*b, *u):
        row[i], row[j] = row[j], row[i]


def some_table(
    matrix: np.ndarray,
    totals: np.ndarray,
    smallest: np.ndarray | float = 0.0,
    largest: np.ndarray | float = np.inf,
) -> np.ndarray:
    """Return counts with these exact totals, as even as possible, or say that there are none.

    Parameters
    ----------
    matrix, totals
        B and t, integers.
    smallest, largest
        The ends of what each count can be; infinite where there is none.
    """
    cells = matrix.shape[1]
    # Minimise z, which no count exceeds.
    lower = np.append(np.broadcast_to(smallest, cells), -np.inf)
    upper = np.append(np.broadcast_to(largest, cells), np.inf)
    constraints = [
        LinearConstraint(np.hstack([matrix, np.zeros((len(matrix), 1))]), totals, totals),
        LinearConstraint(np.hstack([np.eye(cells), -np.ones((cells, 1))]), -np.inf, 0.0),
    ]
    found = milp(
        np.append(np.zeros(cells), 1.0),
        constraints=constraints,
        integrality=np.append(np.ones(cells), 0),
        bounds=Bounds(lower, upper),
    )
    counts = None if found.x is None else np.rint(found.x[:-1]).astype(np.int64)
    if counts is None or np.any(matrix @ counts != totals):
        raise ReleaseError(
            "The exact totals must be those of some counts that their law allows, as a rule >= 0; "
            f"got {np.asarray(totals)}, which no counts have."
        )
    return counts
