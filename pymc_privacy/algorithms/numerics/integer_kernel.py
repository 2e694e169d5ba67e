"""All tables of counts with the same exact totals, and moves that connect them.

Cells with equal columns of B are held by the same totals; they form a class. Where the totals
determine the sum of every class (as nested totals do: state, county, tract), moves of k from
one cell to another of its class connect all tables. Elsewhere, as for the margins of a table
with two ways, vectors of the integer kernel { g : B g = 0 } are added: every one of them has a
positive probability, so that any table can be reached from any other in one move.

Totals may also have bounds. Where these and the sums of the classes are nested, the tables are an
M-natural-convex set (Murota 2003, Discrete Convex Analysis, section 4.7): moves of one, alone and
in pairs of a class, connect them all.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations, pairwise
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse
from scipy.optimize import Bounds, LinearConstraint, milp

from pymc_privacy.algorithms.machine_code.caching import compiled
from pymc_privacy.errors import ReleaseError

_CHEAP = 4_000_000  # entries of a matrix that is written out
_EXACT_SEARCH = 1000  # cells, up to which an even table is searched for among all
_TABLE = 4  # places for each cell, up to which two ways to divide them are a table's
LARGEST_BASIS = 300
"""How many cells a table may have whose exact totals are not nested."""


class Bounded(NamedTuple):
    """Totals that are at least and at most something, a row of the matrix for each."""

    matrix: sparse.csr_array
    least: np.ndarray
    most: np.ndarray


class Crossing(NamedTuple):
    """Two ways to divide cells that cross as the dims of a table do."""

    rows: np.ndarray
    """The class of each cell in the one."""
    columns: np.ndarray
    """And in the other."""
    row_groups: tuple[np.ndarray, ...]
    """Rows that the same exact totals hold."""
    column_groups: tuple[np.ndarray, ...]


@dataclass(frozen=True, eq=False)
class Fibre:
    """The moves that keep all exact totals."""

    singles: np.ndarray
    """Shape (cells, 1): each free cell."""
    classes: tuple[np.ndarray, ...]
    """Cells that the same totals hold; classes of one cell are left out."""
    basis: np.ndarray
    """Shape (vectors, cells): a basis of the integer kernel, where pairs are not enough."""
    held: tuple[np.ndarray, ...] = ()
    """Classes whose sum is exact, those of one cell too."""
    finer: tuple[tuple[np.ndarray, ...], ...] = ()
    """The classes divided further, in several ways: by totals that are known well, say."""
    crossing: tuple[Crossing, ...] = ()
    """Two ways that cross."""

    @property
    def kinds(self) -> int:
        """Return how many kinds of moves there are: alone, in pairs of each way, in fours."""
        return 2 + len(self.finer) + (len(self.crossing) > 0)

    @cached_property
    def _pairings(self) -> tuple[tuple[np.ndarray, np.ndarray], ...]:
        return tuple(_joined(classes) for classes in (self.classes, *self.finer))

    def draw_pairs(self, rng: np.random.Generator, way: int = 0) -> np.ndarray:
        """Draw disjoint pairs of cells that can exchange counts, of classes or of finer ones."""
        return _pairs(rng, *self._pairings[way])

    def draw_fours(self, rng: np.random.Generator) -> np.ndarray:
        """Draw disjoint cells of two rows and two columns, where totals of both are known.

        If the first gains and the second loses k, and the other two the other way round, no total
        of a row or of a column changes, nor does any exact total.
        """
        if not self.crossing:
            return np.empty((0, 4), dtype=np.int64)
        rows, columns, *held = self.crossing[int(rng.integers(len(self.crossing)))]
        table = np.full((rows.max() + 1, columns.max() + 1), -1)
        # Of several cells in one place, any.
        order = rng.permutation(rows.size)
        table[rows[order], columns[order]] = order
        first, second = (_pairs(rng, *_joined(groups)) for groups in held)
        fours = table[first[:, None, :, None], second[None, :, None, :]].reshape(-1, 4)
        return fours[(fours >= 0).all(axis=1)]

    def draw_directions(self, rng: np.random.Generator) -> list[np.ndarray]:
        """Draw as many vectors of the kernel as the basis has, each as often as its opposite."""
        vectors = []
        for _ in range(len(self.basis)):
            some = min(rng.geometric(0.5), len(self.basis))
            chosen = rng.choice(len(self.basis), size=some, replace=False)
            factors = rng.geometric(0.6, size=some) * rng.choice([-1, 1], size=some)
            vectors.append(factors @ self.basis[chosen])
        return vectors


def _joined(classes: Sequence[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """Return classes one after the other, and where they start."""
    starts = np.cumsum([0, *(group.size for group in classes)], dtype=np.int64)
    return np.concatenate([np.empty(0, dtype=np.int64), *classes]), starts


@compiled
def _pairs(rng, cells, starts):
    """Shuffle every class, and pair its cells in that order; one may be left over."""
    order = cells.copy()
    size = 0
    pairs = np.empty((cells.size // 2, 2), dtype=np.int64)
    for k in range(starts.size - 1):
        first, last = starts[k], starts[k + 1]
        for i in range(last - 1, first, -1):
            j = first + int(rng.random() * (i - first + 1))
            order[i], order[j] = order[j], order[i]
        for i in range(first, last - 1, 2):
            pairs[size, 0], pairs[size, 1] = order[i], order[i + 1]
            size += 1
    return pairs[:size]


def fibre_of(matrix: Any, known: Sequence[Any] = (), bounded: Bounded | None = None) -> Fibre:
    """Find the moves that keep B c, for a matrix B of integers, sparse or not, perhaps no rows.

    Of the matrices ``known`` each divides the classes further: cells are exchanged that its totals
    hold too.
    """
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
    if bounded is not None and bounded.matrix.shape[0]:
        _check_bounds(bounded, held, crossed=len(basis) > 0)
    several = [sparse.vstack([whole, sparse.csr_array(rows)], format="csc") for rows in known]
    ways = [equal_columns(matrix) for matrix in several]
    return Fibre(
        free[:, None], classes, basis, tuple(held), _finer(ways, classes), _crossing(ways, groups)
    )


def _finer(
    divided: Sequence[tuple[np.ndarray, ...]], classes: tuple[np.ndarray, ...]
) -> tuple[tuple[np.ndarray, ...], ...]:
    """Return the different ways in which totals that are known divide the classes."""
    ways = [classes]
    for groups in divided:
        way = tuple(group for group in groups if group.size > 1)
        if way and not any(_same(way, other) for other in ways):
            ways.append(way)
    return tuple(ways[1:])


def _crossing(
    ways: Sequence[tuple[np.ndarray, ...]], classes: Sequence[np.ndarray]
) -> tuple[Crossing, ...]:
    """Return all two ways that divide the classes and cross."""
    found = []
    for two in combinations(ways, 2):
        cells = sum(group.size for group in classes)
        if min(map(len, two)) > 1 and len(two[0]) * len(two[1]) <= _TABLE * cells:
            exact = _member(classes, cells)
            # All cells of a row are in one class.
            rows, columns = (_grouped(exact[[group[0] for group in way]]) for way in two)
            one, other = (_member(way, cells) for way in two)
            found.append(Crossing(one, other, rows, columns))
    return tuple(found)


def _grouped(labels: np.ndarray) -> tuple[np.ndarray, ...]:
    """Return the places of each label."""
    order = np.argsort(labels, kind="stable")
    return tuple(np.split(order, np.flatnonzero(np.diff(labels[order])) + 1))


def _member(groups: Sequence[np.ndarray], cells: int) -> np.ndarray:
    member = np.empty(cells, dtype=np.int64)
    for k, group in enumerate(groups):
        member[group] = k
    return member


def _same(one: tuple[np.ndarray, ...], other: tuple[np.ndarray, ...]) -> bool:
    if len(one) != len(other):
        return False
    return {group.tobytes() for group in one} == {group.tobytes() for group in other}


def _check_bounds(bounded: Bounded, held: Sequence[np.ndarray], *, crossed: bool) -> None:
    """Refuse bounds that moves of one, alone and in pairs, might not get round."""
    matrix = bounded.matrix
    rows = [slice(a, b) for a, b in pairwise(matrix.indptr)]
    once = all(np.unique(matrix.data[row]).size <= 1 for row in rows)
    # What has one value only is added to a bound, and is none of the cells that it moves.
    moves = np.ones(matrix.shape[1], dtype=np.bool_)
    moves[[group[0] for group in held if group.size == 1]] = False
    bounds = [matrix.indices[row] for row in rows]
    sets = [*held, *(cells[moves[cells]] for cells in bounds)]
    if crossed or not once or not are_nested(sets, matrix.shape[1]):
        raise ReleaseError(
            "Totals with bounds must be nested with each other and with all exact totals (each "
            "pair of them disjoint, or one within the other, and every count in them counted "
            "alike), because otherwise moves might not reach all tables; got "
            f"{matrix.shape[0]} totals with bounds that are not."
        )


def are_nested(sets: Sequence[np.ndarray], cells: int) -> bool:
    """Tell whether of any two sets of cells one is within the other, or they are disjoint.

    Examples
    --------
    >>> import numpy as np
    >>> pair, three, other = np.array([0, 1]), np.array([0, 1, 2]), np.array([1, 2])
    >>> are_nested([pair, three], 4), are_nested([pair, three, other], 4)
    (True, False)
    """
    # From the smallest on: whatever a set meets of those before must be within it.
    outermost, sizes = np.full(cells, -1), list[int]()
    for k, members in enumerate(sorted(sets, key=len)):
        met, shared = np.unique(outermost[members], return_counts=True)
        if any(own >= 0 and n < sizes[own] for own, n in zip(met, shared, strict=True)):
            return False
        outermost[members] = k
        sizes.append(len(members))
    return True


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
    bounded: Bounded | None = None,
) -> np.ndarray:
    """Return counts with these exact totals, as even as possible, or say that there are none.

    With bounds of other totals, they are as near to these as can be.

    Parameters
    ----------
    matrix, totals
        B, sparse or not, and t, integers.
    smallest, largest
        The ends of what each count can be; infinite where there is none.
    bounded
        Totals with bounds.
    """
    whole = _by_columns(matrix)
    lower, upper = (np.broadcast_to(end, whole.shape[1]) for end in (smallest, largest))
    counts = None
    if whole.shape[1] > _EXACT_SEARCH:
        counts = _spread(whole, np.asarray(totals), lower, upper)
    if counts is None:
        counts = _searched(whole, totals, lower, upper)
    if counts is not None and bounded is not None and bounded.matrix.shape[0]:
        counts = _within(whole, totals, lower, upper, bounded, counts)
    if counts is None or np.any(whole @ counts != totals):
        got = f"totals {np.asarray(totals)}" if np.size(totals) else "bounds"
        raise ReleaseError(
            "Exact totals and bounds must be those of some counts that their law allows, as a rule "
            f">= 0, with all totals within all bounds; got {got}, which no counts have."
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


def _within(
    whole: sparse.csc_array,
    totals: np.ndarray,
    lower: np.ndarray,
    upper: np.ndarray,
    bounded: Bounded,
    near: np.ndarray,
) -> np.ndarray | None:
    """Return counts within bounds whose distances from some counts have the least sum."""
    cells = whole.shape[1]
    eye = sparse.eye_array(cells)
    nothing = [sparse.csc_array((rows, cells)) for rows in (whole.shape[0], bounded.least.size)]
    rows = [
        LinearConstraint(sparse.csc_array(sparse.hstack([whole, nothing[0]])), totals, totals),
        LinearConstraint(
            sparse.csc_array(sparse.hstack([bounded.matrix, nothing[1]])),
            bounded.least,
            bounded.most,
        ),
        LinearConstraint(sparse.csc_array(sparse.hstack([eye, -eye])), -np.inf, near),
        LinearConstraint(sparse.csc_array(sparse.hstack([eye, eye])), near, np.inf),
    ]
    ends = Bounds(np.append(lower, np.zeros(cells)), np.append(upper, np.full(cells, np.inf)))
    costs = np.repeat([0.0, 1.0], cells)
    # Nested totals have whole numbers at the corners, where a linear program ends.
    for whole_numbers in (0, 1):
        integrality = np.append(np.full(cells, whole_numbers), np.zeros(cells))
        found = milp(costs, constraints=rows, integrality=integrality, bounds=ends)
        if found.x is None:
            return None
        counts = np.rint(found.x[:cells])
        sums = bounded.matrix @ counts
        kept = np.all((sums >= bounded.least) & (sums <= bounded.most))
        if kept and np.all(whole @ counts == totals):
            return counts.astype(np.int64)
    return None


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
