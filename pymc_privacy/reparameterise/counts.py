"""Counts: u is uniform, and x is the count whose cell of the distribution function holds it.

Given x, u is uniform inside x's cell, and w places it there. See
`pymc_privacy.algorithms.quantiles` for what is kept of u, and why.
"""

from __future__ import annotations

from pymc_privacy._compat import (
    BinomialRV,
    DiscreteUniformRV,
    GeometricRV,
    NegBinomialRV,
    PoissonRV,
)
from pymc_privacy.algorithms import quantiles
from pymc_privacy.reparameterise.base import Reparameterisation, reparameterise
from pymc_privacy.reparameterise.quantiles import elementwise


def _by_cell(count, cell) -> Reparameterisation:
    return Reparameterisation(
        forward=elementwise(count, "int64"),
        inverse=elementwise(cell, "float64"),
        needs_uniform=True,
    )


@reparameterise.register(PoissonRV)
def _poisson(op, rate):
    return _by_cell(quantiles.poisson_count, quantiles.poisson_cell)


@reparameterise.register(BinomialRV)
def _binomial(op, size, p):
    return _by_cell(quantiles.binomial_count, quantiles.binomial_cell)


@reparameterise.register(NegBinomialRV)
def _negative_binomial(op, size, p):
    return _by_cell(quantiles.negative_binomial_count, quantiles.negative_binomial_cell)


@reparameterise.register(GeometricRV)
def _geometric(op, p):
    return _by_cell(quantiles.geometric_count, quantiles.geometric_cell)


@reparameterise.register(DiscreteUniformRV)
def _uniform(op, lower, upper):
    return _by_cell(quantiles.uniform_count, quantiles.uniform_cell)
