"""Discrete records: u is uniform, and x is the cell of the distribution function it falls in.

Given x, u is uniform inside x's cell; w places it there.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytensor.tensor as pt

from pymc_privacy._compat import (
    BernoulliRV,
    BinomialRV,
    CategoricalRV,
    DiscreteUniformRV,
    GeometricRV,
    NegBinomialRV,
    PoissonRV,
    TensorVariable,
)
from pymc_privacy.algorithms.numerics import quantiles
from pymc_privacy.reparameterise.base import Reparameterisation, reparameterise
from pymc_privacy.reparameterise.quantiles import elementwise

_SMALLEST = np.float64(math.ulp(0.0))


@reparameterise.register(BernoulliRV)
def _bernoulli(op: Any, p: TensorVariable) -> Reparameterisation:
    return Reparameterisation(
        forward=lambda u, p: (u < p).astype("int64"),
        inverse=lambda x, w, p: pt.where(pt.eq(x, 1), w * p, p + w * (1 - p)),
        needs_uniform=True,
    )


@reparameterise.register(CategoricalRV)
def _categorical(op: Any, p: TensorVariable) -> Reparameterisation | None:
    cells = p.type.shape[-1]
    if cells is None:
        return None

    def forward(u: TensorVariable, p: TensorVariable) -> TensorVariable:
        upper = pt.cumsum(p, axis=-1)
        return sum((u > upper[..., k]).astype("int64") for k in range(cells - 1))

    def inverse(x: TensorVariable, w: TensorVariable, p: TensorVariable) -> TensorVariable:
        upper = pt.cumsum(p, axis=-1)
        mass = sum(pt.eq(x, k) * p[..., k] for k in range(cells))
        above = sum(pt.eq(x, k) * upper[..., k] for k in range(cells))
        below = sum(pt.eq(x, k) * upper[..., k - 1] for k in range(1, cells))
        # Beyond the edge of the cell, by one float at least.
        return pt.clip(above - (1 - w) * mass, below * (1 + 2**-52) + _SMALLEST, above)

    return Reparameterisation(forward=forward, inverse=inverse, needs_uniform=True)


# Counts: u is uniform, and x is the count whose cell of the distribution function holds it.
#
# Given x, u is uniform inside x's cell, and w places it there. See
# `pymc_privacy.algorithms.numerics.quantiles` for what is kept of u, and why.


def _by_cell(count: Any, cell: Any) -> Reparameterisation:
    return Reparameterisation(
        forward=elementwise(count, "int64"),
        inverse=elementwise(cell, "float64"),
        needs_uniform=True,
    )


@reparameterise.register(PoissonRV)
def _poisson(op: Any, rate: TensorVariable) -> Reparameterisation:
    return _by_cell(quantiles.poisson_count, quantiles.poisson_cell)


@reparameterise.register(BinomialRV)
def _binomial(op: Any, size: TensorVariable, p: TensorVariable) -> Reparameterisation:
    return _by_cell(quantiles.binomial_count, quantiles.binomial_cell)


@reparameterise.register(NegBinomialRV)
def _negative_binomial(op: Any, size: TensorVariable, p: TensorVariable) -> Reparameterisation:
    return _by_cell(quantiles.negative_binomial_count, quantiles.negative_binomial_cell)


@reparameterise.register(GeometricRV)
def _geometric(op: Any, p: TensorVariable) -> Reparameterisation:
    return _by_cell(quantiles.geometric_count, quantiles.geometric_cell)


@reparameterise.register(DiscreteUniformRV)
def _uniform(op: Any, lower: TensorVariable, upper: TensorVariable) -> Reparameterisation:
    return _by_cell(quantiles.uniform_count, quantiles.uniform_cell)
