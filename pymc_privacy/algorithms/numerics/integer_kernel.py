"""All tables of counts with the same exact totals, and moves that connect them.

Cells with equal columns of B are held by the same totals; they form a class. Where the totals
determine the sum of every class (as nested totals do: state, county, tract), moves of k from
one cell to another of its class connect all tables. Elsewhere, as for the margins of a table
with two ways, vectors of the integer kernel { g : B g = 0 } are added: every one of them has a
positive probability, so that any table can be reached from any other in one move.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import sparse
from scipy.optimize import Bounds, LinearConstraint, milp

from pymc_privacy.errors import ReleaseError

_CHEAP = 4_000_000  # entries of a matrix that is written out
_EXACT_SEARCH = 1000  # cells, up to which an even table is searched for among all
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


def fibre_of(matrix: Any) -> Fibre:
    """Find the moves that keep B c, for a matrix B of integers, sparse or not, perhaps no rows."""
    whole = _by_columns(matrix)
    cells = np.arange(whole.shape[1])
    groups = equal_columns(whole)
    held = [group for group in groups if whole.indptr[group[0]] < whole.indptr[group[0] + 1]]
    empty = np.diff(whole.indptr) == 0
    free = cells[empty]
    # A class that no exact total holds moves by itself too.
    classes = tuple(group for group in groups if group.size > 1)
    basis = np.empty((0, cells.size), dtype=np.int64)
    if not _determines_sums(whole, held):
        if cells.size > LARGEST_BASIS:
            raise ReleaseError(
                f"Exact totals of more than {LARGEST_BASIS} cells must be nested (each pair of "
                f"them disjoint, or one within the other); got {cells.size} cells with others."
            )
        basis = integer_kernel(whole.toarray())
    return Fibre(np.stack([free, free], axis=1), classes, basis, tuple(held))


def _by_columns(matrix: Any) -> sparse.csc_array:
    if not sparse.issparse(matrix):
        matrix = np.asarray(matrix, dtype=np.int64)
    found = sparse.csc_array(matrix)
    found.sum_duplicates()
    found.eliminate_zeros()
    found.sort_indices()
    return found


def equal_columns(matrix: Any) -> tuple[np.ndarray, ...]:
    """Return all cells in groups of equal columns, as long as that is cheap in their order."""
    whole = _by_columns(matrix)
    members: dict[bytes, list[int]] = {}
    ends, rows, entries = whole.indptr, whole.indices.astype(np.int64), whole.data
    for cell in range(whole.shape[1]):
        a, b = ends[cell], ends[cell + 1]
        members.setdefault(rows[a:b].tobytes() + entries[a:b].tobytes(), []).append(cell)
    groups = [np.array(cells) for cells in members.values()]
    if len(groups) * whole.shape[0] <= _CHEAP and whole.shape[0]:
        first = whole[:, [group[0] for group in groups]].toarray()
        order = np.lexsort(first[::-1])
        groups = [groups[k] for k in order]
    return tuple(groups)


def _determines_sums(whole: sparse.csc_array, held: Sequence[np.ndarray]) -> bool:
    """Tell whether the totals determine the sum of every class that they hold.

    A total of which the sums of all classes but one are known gives that one. Nested totals are
    used up in this way, from the innermost on; what remains is looked at as a whole.
    """
    if not held:
        return True
    columns = whole[:, [group[0] for group in held]]
    if not len(_peeled(columns)[1]):
        return True
    if columns.shape[0] * columns.shape[1] > _CHEAP:
        return False
    return bool(np.linalg.matrix_rank(columns.toarray()) == columns.shape[1])


def _peeled(columns: sparse.csc_array) -> tuple[list[tuple[int, int]], list[int]]:
    """Return rows and the classes that they give, in order, and the classes that are left."""
    by_row = sparse.csr_array(columns)
    unknown = np.diff(by_row.indptr).astype(np.int64)
    left = set(range(columns.shape[1]))
    ready, order = list(np.flatnonzero(unknown == 1)), []
    while ready:
        row = int(ready.pop())
        ours = by_row.indices[by_row.indptr[row] : by_row.indptr[row + 1]]
        found = [int(k) for k in ours if k in left]
        if not found:
            continue
        order.append((row, found[0]))
        left.remove(found[0])
        touched = columns.indices[columns.indptr[found[0]] : columns.indptr[found[0] + 1]]
        unknown[touched] -= 1
        ready += [r for r in touched if unknown[r] == 1]
    return order, sorted(left)


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
    matrix: Any,
    totals: np.ndarray,
    smallest: np.ndarray | float = 0.0,
    largest: np.ndarray | float = np.inf,
) -> np.ndarray:
    """Return counts with these exact totals, as even as possible, or say that there are none.

    Parameters
    ----------
    matrix, totals
        B, sparse or not, and t, integers.
    smallest, largest
        The ends of what each count can be; infinite where there is none.
    """
    whole = _by_columns(matrix)
    lower, upper = (np.broadcast_to(end, whole.shape[1]) for end in (smallest, largest))
    counts = None
    if whole.shape[1] > _EXACT_SEARCH:
        counts = _spread(whole, np.asarray(totals), lower, upper)
    if counts is None:
        counts = _searched(whole, totals, lower, upper)
    if counts is None or np.any(whole @ counts != totals):
        raise ReleaseError(
            "The exact totals must be those of some counts that their law allows, as a rule >= 0; "
            f"got {np.asarray(totals)}, which no counts have."
        )
    return counts


def _searched(
    whole: sparse.csc_array, totals: np.ndarray, lower: np.ndarray, upper: np.ndarray
) -> np.ndarray | None:
    """Minimise z, which no count exceeds, by linear programming over integers."""
    cells = whole.shape[1]
    nothing = sparse.csc_array((whole.shape[0], 1))
    below = sparse.hstack([sparse.eye_array(cells), -np.ones((cells, 1))])
    found = milp(
        np.append(np.zeros(cells), 1.0),
        constraints=[
            LinearConstraint(sparse.csc_array(sparse.hstack([whole, nothing])), totals, totals),
            LinearConstraint(sparse.csc_array(below), -np.inf, 0.0),
        ],
        integrality=np.append(np.ones(cells), 0),
        bounds=Bounds(np.append(lower, -np.inf), np.append(upper, np.inf)),
    )
    return None if found.x is None else np.rint(found.x[:-1]).astype(np.int64)


def _spread(
    whole: sparse.csc_array, totals: np.ndarray, lower: np.ndarray, upper: np.ndarray
) -> np.ndarray | None:
    """Spread the sum of each class over its cells, or None where totals do not give the sums."""
    held = [g for g in equal_columns(whole) if whole.indptr[g[0]] < whole.indptr[g[0] + 1]]
    counts = np.where(np.isfinite(lower), lower, np.where(np.isfinite(upper), upper, 0.0))
    counts = counts.astype(np.int64)
    columns = sparse.csc_array(whole[:, [group[0] for group in held]])
    order, left = _peeled(columns) if held else ([], [])
    if left:
        return None
    by_row, remaining = sparse.csr_array(columns), np.array(totals, dtype=np.int64)
    for row, k in order:
        entries = slice(by_row.indptr[row], by_row.indptr[row + 1])
        here = by_row.data[entries][by_row.indices[entries] == k][0]
        total, rest = divmod(int(remaining[row]), int(here))
        even = _even(total, lower[held[k]], upper[held[k]])
        if rest or even is None:
            return None
        counts[held[k]] = even
        touched = slice(columns.indptr[k], columns.indptr[k + 1])
        remaining[columns.indices[touched]] -= columns.data[touched] * total
    return counts


def _even(total: int, lower: np.ndarray, upper: np.ndarray) -> np.ndarray | None:
    """Return integers between bounds with a given sum, no further apart than need be."""
    if not lower.sum() <= total <= upper.sum():
        return None

    def at(level: int) -> np.ndarray:
        return np.clip(float(level), lower, upper)

    # The sum does not decrease with the level; half way is looked for by bisection.
    low, high = -1, 1
    while at(low).sum() > total:
        low *= 2
    while at(high).sum() < total:
        high *= 2
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if at(middle).sum() <= total else (low, middle)
    counts = at(low)
    more = np.flatnonzero(at(low + 1) > counts)[: int(total - counts.sum())]
    counts[more] += 1
    return counts.astype(np.int64)
