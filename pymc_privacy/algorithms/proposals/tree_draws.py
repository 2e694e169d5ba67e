"""Draw many Poisson counts at once from their law given all else, by sum-product on a tree.

Let S be cells of which the totals, as far as they are in S, are nested: of any two sets of cells
one is within the other, or they are disjoint. They are the nodes of trees whose leaves are the
cells. Given the rates m and all other counts, the sum s of a node has the weight

    w(s) = f(s) sum_{a + b = s} w_left(a) w_right(b),    w(s) = f(s) m^s / s!  at a leaf,

f being the noise and the bounds of the totals that hold just these cells, and an indicator of the
present sum where it is exact. Upwards all weights are computed, downwards every sum is divided
between its parts: the draw is from the conditional law, with nothing to reject.

Weights below 1e-20 of a node's largest are left out. What is drawn is then the law restricted to a
window W, which depends on what is held alone: a proposal from it is accepted with probability 1 if
the counts are in W now, and refused if they are not, so that the law stays invariant whatever W is.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse

from pymc_privacy.algorithms.lattice_walk import Measurements, log_eta
from pymc_privacy.algorithms.machine_code.caching import compiled

_TRIM = 1e-20
# Products in a tree, for each of its cells, and values of a cell: beyond these, cells are left
# to other moves.
_MOST_WORK, _MOST_FOR_EACH, _MOST_WIDE = 2e7, 5e3, 5000


class Trees(NamedTuple):
    """Cells and the totals that hold several of them; leaves are the first nodes."""

    cells: np.ndarray
    """The cell of each leaf."""
    children: np.ndarray
    """Shape (other nodes, 2): what a node is the sum of, nodes of smaller numbers."""
    starts: np.ndarray
    """Node u has the totals at ``starts[u]:starts[u + 1]`` of the next two."""
    rows: np.ndarray
    entries: np.ndarray
    exact: np.ndarray
    """Whether the sum of a node is known."""


class Info(NamedTuple):
    """What happened in one step."""

    drawn: np.ndarray
    """For each of the trees, the fraction of its cells that were drawn."""

    @property
    def fraction(self) -> float:
        """Return the fraction of the cells that were drawn."""
        return float(self.drawn.mean()) if self.drawn.size else np.nan


def trees_of(
    measurements: Measurements, exact: Any, groups: Sequence[np.ndarray]
) -> tuple[Trees, ...]:
    """Return the trees of groups of cells, of those alone in which totals are nested.

    Parameters
    ----------
    measurements
        Noisy totals and those with bounds.
    exact
        The matrix of the exact totals.
    groups
        Of cells, each to be drawn at once.
    """
    shape = (measurements.release.size, measurements.starts.size - 1)
    noisy = sparse.csc_array(
        (measurements.entries, measurements.rows, measurements.starts), shape=shape
    )
    whole = sparse.csc_array(sparse.vstack([noisy, sparse.csr_array(exact)], format="csc"))
    found = (_tree(whole, shape[0], np.asarray(group)) for group in groups)
    return tuple(tree for tree in found if tree is not None)


def _tree(whole: sparse.csc_array, noisy: int, cells: np.ndarray) -> Trees | None:
    """Return the trees of some cells, or None if totals cross in them, or leave nothing to draw."""
    own = sparse.csr_array(whole[:, cells])
    sizes = np.diff(own.indptr)
    alone = np.flatnonzero(sizes == 1)
    places = own.indptr[alone]
    # The totals of each node: of leaves first.
    factors = list(zip(own.indices[places], alone, own.data[places], strict=True))
    top, node_size = np.arange(cells.size), [1] * cells.size
    children: list[tuple[int, int]] = []
    for row in np.argsort(sizes, kind="stable")[np.count_nonzero(sizes <= 1) :]:
        place = slice(own.indptr[row], own.indptr[row + 1])
        members, entries = own.indices[place], own.data[place]
        parts = np.unique(top[members]).tolist()
        if np.any(entries != entries[0]) or sum(node_size[k] for k in parts) != members.size:
            return None
        while len(parts) > 1:
            pairs = list(zip(parts[:-1:2], parts[1::2], strict=False))
            made = range(len(node_size), len(node_size) + len(pairs))
            children += pairs
            node_size += [node_size[one] + node_size[other] for one, other in pairs]
            parts = [*made, *parts[2 * len(pairs) :]]
        top[members] = parts[0]
        factors.append((parts[0], row, entries[0]))
    exact = np.zeros(len(node_size), dtype=np.bool_)
    exact[[node for node, row, _ in factors if row >= noisy]] = True
    if exact[: cells.size].all():
        return None
    kept = sorted(factor for factor in factors if factor[1] < noisy)
    nodes = np.array([node for node, _, _ in kept], dtype=np.int64)
    return Trees(
        cells.astype(np.int64),
        np.array(children, dtype=np.int64).reshape(-1, 2),
        np.searchsorted(nodes, np.arange(len(node_size) + 1)).astype(np.int64),
        np.array([row for _, row, _ in kept], dtype=np.int64),
        np.array([entry for *_, entry in kept], dtype=np.float64),
        exact,
    )


def step(
    rng: np.random.Generator,
    counts: np.ndarray,
    trees: Sequence[Trees],
    *,
    measurements: Measurements,
    rates: np.ndarray,
) -> tuple[np.ndarray, Info]:
    """Draw the cells of all trees, one tree after the other, and return the counts."""
    counts, drawn = np.array(counts, dtype=np.int64), np.zeros(len(trees))
    totals = measurements.totals(counts)
    for k, tree in enumerate(trees):
        drawn[k] = _draw(rng, counts, totals, rates, tree, measurements)
    return counts, Info(drawn)


@compiled
def _draw(rng, counts, totals, rates, tree, noisy):
    """Draw the cells of a tree, keep totals running, and return the fraction that was drawn."""
    leaves, nodes = tree.cells.size, tree.exact.size
    now = _sums(counts, tree)
    # What a node can be: weights[at[u]:at[u + 1]], the first of them for lowest[u].
    at, lowest = np.zeros(nodes + 1, dtype=np.int64), np.zeros(nodes, dtype=np.int64)
    usable, weights = np.ones(nodes, dtype=np.bool_), np.empty(64 * nodes)
    work, most_work = np.zeros(nodes), _MOST_WORK + _MOST_FOR_EACH * leaves
    for u in range(nodes):
        if u < leaves:
            own, lowest[u] = _leaf(u, now[u], rates[tree.cells[u]], totals, tree, noisy)
        else:
            left, right = tree.children[u - leaves]
            one, other = weights[at[left] : at[left + 1]], weights[at[right] : at[right + 1]]
            work[u] = work[left] + work[right] + one.size * other.size
            usable[u] = usable[left] and usable[right] and work[u] < most_work
            if not usable[u]:
                at[u + 1] = at[u]
                continue
            begin = lowest[left] + lowest[right]
            own, lowest[u] = _sum(u, now[u], one, other, begin, totals, tree, noisy)
        at[u + 1] = at[u] + own.size
        usable[u] = lowest[u] <= now[u] < lowest[u] + own.size
        if at[u + 1] > weights.size:
            more = np.empty(2 * at[u + 1])
            more[: at[u]] = weights[: at[u]]
            weights = more
        weights[at[u] : at[u + 1]] = own
    drawn = _downwards(rng, now, at, lowest, weights, usable, tree)
    for u in range(leaves):
        cell, move = tree.cells[u], now[u] - counts[tree.cells[u]]
        counts[cell] += move
        for e in range(noisy.starts[cell], noisy.starts[cell + 1]):
            totals[noisy.rows[e]] += noisy.entries[e] * move
    return drawn / leaves


@compiled
def _sums(counts, tree):
    """Return the present sum of every node."""
    leaves, now = tree.cells.size, np.empty(tree.exact.size, dtype=np.int64)
    for u in range(now.size):
        if u < leaves:
            now[u] = counts[tree.cells[u]]
        else:
            now[u] = now[tree.children[u - leaves, 0]] + now[tree.children[u - leaves, 1]]
    return now


@compiled
def _downwards(rng, value, at, lowest, weights, usable, tree):
    """Draw the sums of all usable trees, and return how many leaves they have."""
    leaves, drawn = tree.cells.size, 0
    is_root = np.ones(value.size, dtype=np.bool_)
    for u in range(leaves, value.size):
        for child in tree.children[u - leaves]:
            is_root[child] = False
    for u in range(value.size - 1, -1, -1):
        if usable[u] and is_root[u]:
            value[u] = lowest[u] + _choose(rng, weights[at[u] : at[u + 1]])
        if u < leaves:
            drawn += usable[u]
            continue
        left, right = tree.children[u - leaves]
        if usable[u]:
            one, other = weights[at[left] : at[left + 1]], weights[at[right] : at[right + 1]]
            total = value[u] - lowest[left] - lowest[right]
            value[left] = lowest[left] + _divide(rng, one, other, total)
            value[right] = value[u] - value[left]
        else:
            # The totals above are part of the law of what is below.
            usable[left], usable[right] = False, False
    return drawn


@compiled
def _log_known(u, move, totals, tree, noisy):
    """Return the log density of a node's noisy totals when its sum has moved."""
    value = 0.0
    for e in range(tree.starts[u], tree.starts[u + 1]):
        r = tree.rows[e]
        total = totals[r] + tree.entries[e] * move
        if total < noisy.least[r] or total > noisy.most[r]:
            return -np.inf
        value += log_eta(r, total, noisy.release, noisy.scale, noisy.gaussian)
    return value


@compiled
def _log_leaf(u, count, now, log_rate, totals, tree, noisy):
    value = count * log_rate - math.lgamma(count + 1.0)
    return value + _log_known(u, count - now, totals, tree, noisy)


@compiled
def _leaf(u, now, rate, totals, tree, noisy):
    """Return the weights of a count, and the first of those that are not left out."""
    if tree.exact[u]:
        return np.ones(1), now
    if rate == 0.0:
        return np.ones(1), 0
    if not 0.0 < rate < np.inf:
        return np.empty(0), 0
    log_rate, log_trim = math.log(rate), math.log(_TRIM)
    # The weights have one peak. Where all windows end must not depend on where one starts to climb:
    # so that is looked for first.
    top, best = now, _log_leaf(u, now, now, log_rate, totals, tree, noisy)
    for direction in (1, -1):
        for _ in range(_MOST_WIDE):
            count = top + direction
            here = _log_leaf(u, count, now, log_rate, totals, tree, noisy) if count >= 0 else best
            if not here > best:
                break
            top, best = count, here
        else:
            return np.empty(0), 0
    values, below = [best], [best]
    for direction, found in ((1, values), (-1, below)):
        count = top + direction
        while count >= 0 and len(found) < _MOST_WIDE:
            here = _log_leaf(u, count, now, log_rate, totals, tree, noisy)
            if not here > best + log_trim:
                break
            found.append(here)
            count += direction
    begin, size = top - len(below) + 1, len(values) + len(below) - 1
    if size >= _MOST_WIDE:
        return np.empty(0), 0
    weights = np.empty(size)
    for k in range(len(below)):
        weights[top - begin - k] = math.exp(below[k] - best)
    for k in range(len(values)):
        weights[top - begin + k] = math.exp(values[k] - best)
    return weights, begin


@compiled
def _sum(u, now, one, other, begin, totals, tree, noisy):
    """Return the weights of what two nodes add up to, and the first of those."""
    size = one.size + other.size - 1
    first, last = (now - begin, now - begin) if tree.exact[u] else (0, size - 1)
    if first < 0 or last >= size:
        return np.empty(0), begin
    found, logs = np.zeros(last - first + 1), np.empty(last - first + 1)
    for k in range(first, last + 1):
        for i in range(max(0, k - other.size + 1), min(one.size - 1, k) + 1):
            found[k - first] += one[i] * other[k - i]
        logs[k - first] = _log_known(u, begin + k - now, totals, tree, noisy)
    top = logs.max()
    if not top > -np.inf:
        return np.empty(0), begin
    return _trimmed(found * np.exp(logs - top), begin + first)


@compiled
def _trimmed(found, begin):
    """Leave weights out that are small beside the largest."""
    top = found.max()
    if not top > 0.0:
        return np.empty(0), begin
    first, last = 0, found.size - 1
    while found[first] < _TRIM * top:
        first += 1
    while found[last] < _TRIM * top:
        last -= 1
    return found[first : last + 1] / top, begin + first


@compiled
def _choose(rng, weights):
    """Draw a place with a probability in proportion to its weight."""
    left = rng.random() * weights.sum()
    for k in range(weights.size - 1):
        left -= weights[k]
        if left < 0.0:
            return k
    return weights.size - 1


@compiled
def _divide(rng, one, other, total):
    """Draw the place of the first of two parts whose places add up to a total."""
    first, last = max(0, total - other.size + 1), min(one.size - 1, total)
    whole = 0.0
    for i in range(first, last + 1):
        whole += one[i] * other[total - i]
    left = rng.random() * whole
    for i in range(first, last):
        left -= one[i] * other[total - i]
        if left < 0.0:
            return i
    return last
