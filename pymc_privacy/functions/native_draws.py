"""Draws for which there is no machine code, or slow code, written as functions of other draws."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytensor.tensor as pt

from pymc_privacy._compat import (
    CategoricalRV,
    FunctionGraph,
    SkewNormalRV,
    StudentTRV,
    TensorVariable,
    TruncatedNormalRV,
    Variable,
)
from pymc_privacy.reparameterise import reparameterise

Draw = Callable[..., tuple[Variable, Variable] | None]
MOST_CATEGORIES = 32
# Squares of records of this root are still numbers.
_LEAST_GAMMA = 1e-280


def write_out_draws(graph: FunctionGraph) -> None:
    """Replace, in place, what would call back into Python for every draw; laws stay the same."""
    for node in list(graph.toposort()):
        draw = next((f for op, f in _DRAWS.items() if isinstance(node.op, op)), None)
        if draw is not None:
            rng, size, *parameters = node.inputs
            shape = node.op._infer_shape(size, parameters)
            written = draw(rng, shape, *parameters)
            if written is None:
                continue
            following, value = written
            state, old = node.outputs
            fresh = old.type.filter_variable(value.astype(old.dtype))
            graph.replace_all([(old, fresh), (state, following)], import_missing=True)


def _truncated_normal(
    rng: Variable, shape: Sequence[Variable], *parameters: TensorVariable
) -> tuple[Variable, Variable]:
    """Draw u, which follows a standard Laplace law, and carry it to the parameters."""
    following, u = pt.random.laplace(0.0, 1.0, size=shape, rng=rng, return_next_rng=True)
    form = reparameterise.dispatch(TruncatedNormalRV)(None, *parameters)
    assert form is not None  # this law has a form, whatever its parameters are
    return following, form.forward(u, *parameters)


def _skew_normal(
    rng: Variable,
    shape: Sequence[Variable],
    mu: TensorVariable,
    sigma: TensorVariable,
    alpha: TensorVariable,
) -> tuple[Variable, Variable]:
    """Use (alpha |z| + y) / sqrt(1 + alpha²) with z and y standard Normal (Azzalini, 1986)."""
    following, z = pt.random.normal(size=shape, rng=rng, return_next_rng=True)
    following, y = pt.random.normal(size=shape, rng=following, return_next_rng=True)
    return following, mu + sigma * (alpha * abs(z) + y) / pt.sqrt(1 + alpha**2)


def _student(
    rng: Variable,
    shape: Sequence[Variable],
    df: TensorVariable,
    loc: TensorVariable,
    scale: TensorVariable,
) -> tuple[Variable, Variable]:
    """Divide by a root that is never zero: jitted code would raise an error there."""
    following, z = pt.random.normal(size=shape, rng=rng, return_next_rng=True)
    following, g = pt.random.gamma(
        df / 2, scale=1.0, size=shape, rng=following, return_next_rng=True
    )
    return following, loc + scale * z * pt.sqrt(df / 2 / pt.maximum(g, _LEAST_GAMMA))


def _category(
    rng: Variable, shape: Sequence[Variable], p: TensorVariable
) -> tuple[Variable, Variable] | None:
    """Count the cumulative probabilities that a uniform number exceeds; the last one gets the rest.

    Several times faster than to look it up, if there are not too many.
    """
    categories = p.type.shape[-1]
    if categories is None or categories > MOST_CATEGORIES:
        return None
    following, u = pt.random.uniform(size=shape, rng=rng, return_next_rng=True)
    cell, total = pt.zeros(shape, dtype="int64"), pt.constant(0.0)
    for k in range(categories - 1):
        total = total + p[..., k]
        cell = cell + pt.ge(u, total)
    return following, cell


_DRAWS: dict[type, Draw] = {
    CategoricalRV: _category,
    TruncatedNormalRV: _truncated_normal,
    SkewNormalRV: _skew_normal,
    StudentTRV: _student,
}
