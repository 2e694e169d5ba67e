"""Whether anything mixes the cells of a table, which rows alone do not tell."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import islice

import numpy as np

from pymc_privacy._compat import AS_WRITTEN, Model, TensorVariable, compile_graph
from pymc_privacy.model.points import Point, prior_points

_POINTS, _TRIALS = 2, 6
# How far a cell is moved: a little, and to where something else may hold.
_LENGTHS = (1, -1, 3, 10, 100)


def mixed_cells(
    model: Model, point: Point, counts: TensorVariable, graphs: Mapping[str, TensorVariable]
) -> list[str]:
    """Return the labels of graphs that have not one term for each cell of a table.

    Some cells are changed at several points: what a graph says of the others must be the same.
    """
    value = model.rvs_to_values[counts]
    names = [v.name for v in model.value_vars]
    evaluate = compile_graph(
        model.value_vars, list(graphs.values()), on_unused_input="ignore", mode=AS_WRITTEN
    )
    mixed: set[str] = set()
    rng = np.random.default_rng(0)
    for here in [point, *islice(prior_points(model, seed=1), _POINTS)]:
        before = _terms(evaluate, here, names)
        shape = here[value.name].shape
        for _ in range(_TRIALS):
            chosen = rng.random(shape) < rng.uniform(0.1, 0.9)
            moves = np.where(chosen, rng.choice(_LENGTHS, size=shape), 0)
            there = dict(here)
            there[value.name] = (here[value.name] + moves).astype(here[value.name].dtype)
            after = _terms(evaluate, there, names)
            mixed |= {
                label
                for label, one, other in zip(graphs, before, after, strict=True)
                if not _is_kept(one, other, ~chosen)
            }
    return [label for label in graphs if label in mixed]


def _terms(evaluate, point: Point, names: list[str]) -> list[np.ndarray]:  # type: ignore[no-untyped-def]
    with np.errstate(all="ignore"):
        return [np.asarray(term) for term in evaluate(*(point[name] for name in names))]


def _is_kept(before: np.ndarray, after: np.ndarray, cells: np.ndarray) -> bool:
    """Tell whether a term has one number or more for each cell, and those of some are kept."""
    if before.shape[: cells.ndim] != cells.shape:
        return False
    return np.array_equal(before[cells], after[cells], equal_nan=True)
