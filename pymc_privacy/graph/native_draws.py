"""Draws for which there is no machine code, written as functions of draws for which there is."""

from __future__ import annotations

from collections.abc import Callable

import pytensor.tensor as pt

from pymc_privacy._compat import FunctionGraph, SkewNormalRV, TruncatedNormalRV, Variable
from pymc_privacy.reparameterise import reparameterise

Draw = Callable[..., tuple[Variable, Variable]]


def write_out_draws(graph: FunctionGraph) -> None:
    """Replace, in place, what would call back into Python for every draw; laws stay the same."""
    for node in list(graph.toposort()):
        draw = next((f for op, f in _DRAWS.items() if isinstance(node.op, op)), None)
        if draw is not None:
            rng, size, *parameters = node.inputs
            shape = node.op._infer_shape(size, parameters)
            following, value = draw(rng, shape, *parameters)
            state, old = node.outputs
            fresh = old.type.filter_variable(value.astype(old.dtype))
            graph.replace_all([(old, fresh), (state, following)], import_missing=True)


def _truncated_normal(rng, shape, *parameters):
    """Draw u, which is uniform on (-1/2, 1/2), and carry it to the parameters."""
    following, u = pt.random.uniform(-0.5, 0.5, size=shape, rng=rng, return_next_rng=True)
    form = reparameterise.dispatch(TruncatedNormalRV)(None, *parameters)
    return following, form.forward(u, *parameters)


def _skew_normal(rng, shape, mu, sigma, alpha):
    """Use (alpha |z| + y) / sqrt(1 + alpha²) with z and y standard Normal (Azzalini, 1986)."""
    following, z = pt.random.normal(size=shape, rng=rng, return_next_rng=True)
    following, y = pt.random.normal(size=shape, rng=following, return_next_rng=True)
    return following, mu + sigma * (alpha * abs(z) + y) / pt.sqrt(1 + alpha**2)


_DRAWS: dict[type, Draw] = {TruncatedNormalRV: _truncated_normal, SkewNormalRV: _skew_normal}
