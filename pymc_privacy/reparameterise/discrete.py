"""Discrete records: u is uniform, and x is the cell of the distribution function it falls in.

Given x, u is uniform inside x's cell; w places it there.
"""

from __future__ import annotations

import math

import numpy as np
import pytensor.tensor as pt

from pymc_privacy._compat import BernoulliRV, CategoricalRV
from pymc_privacy.reparameterise.base import Reparameterisation, reparameterise

_SMALLEST = np.float64(math.ulp(0.0))


@reparameterise.register(BernoulliRV)
def _bernoulli(op, p):
    return Reparameterisation(
        forward=lambda u, p: (u < p).astype("int64"),
        inverse=lambda x, w, p: pt.where(pt.eq(x, 1), w * p, p + w * (1 - p)),
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
        below = sum(pt.eq(x, k) * upper[..., k - 1] for k in range(1, cells))
        # Beyond the edge of the cell, by one float at least.
        return pt.clip(above - (1 - w) * mass, below * (1 + 2**-52) + _SMALLEST, above)

    return Reparameterisation(forward=forward, inverse=inverse, needs_uniform=True)
