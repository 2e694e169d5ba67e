"""Discrete records: u is uniform, and x is the cell of the distribution function it falls in.

Given x, u is uniform inside x's cell; w places it there.
"""

from __future__ import annotations

import pytensor.tensor as pt

from pymc_privacy._compat import BernoulliRV, CategoricalRV, GeometricRV
from pymc_privacy.reparameterise.base import Reparameterisation, reparameterise


@reparameterise.register(BernoulliRV)
def _bernoulli(op, p):
    return Reparameterisation(
        forward=lambda u, p: (u < p).astype("int64"),
        inverse=lambda x, w, p: pt.where(pt.eq(x, 1), w * p, p + w * (1 - p)),
        needs_uniform=True,
    )


@reparameterise.register(GeometricRV)
def _geometric(op, p):
    """Use P(X > k) = (1 - p)^k: with u = P(X > x - 1) falling to P(X > x)."""
    return Reparameterisation(
        forward=lambda u, p: pt.maximum(pt.ceil(pt.log(u) / pt.log1p(-p)), 1).astype("int64"),
        inverse=lambda x, w, p: (1 - p) ** (x - 1) * (1 - w * p),
        needs_uniform=True,
    )


@reparameterise.register(CategoricalRV)
def _categorical(op, p):
    cells = p.type.shape[-1]
    if cells is None:
        return None

    def forward(u, p):
        upper = pt.cumsum(p, axis=-1)
        return sum((u > upper[..., k]).astype("int64") for k in range(cells - 1))

    def inverse(x, w, p):
        upper = pt.cumsum(p, axis=-1)
        mass = sum(pt.eq(x, k) * p[..., k] for k in range(cells))
        above = sum(pt.eq(x, k) * upper[..., k] for k in range(cells))
        return above - (1 - w) * mass

    return Reparameterisation(forward=forward, inverse=inverse, needs_uniform=True)
