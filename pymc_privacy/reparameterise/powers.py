"""Families that are powers of one standard variable: u is exponential."""

from __future__ import annotations

import pytensor.tensor as pt

from pymc_privacy._compat import ParetoRV, WeibullBetaRV
from pymc_privacy.reparameterise.base import Reparameterisation, reparameterise


@reparameterise.register(WeibullBetaRV)
def _weibull(op, alpha, beta):
    return Reparameterisation(
        forward=lambda u, alpha, beta: beta * u ** (1 / alpha),
        inverse=lambda x, w, alpha, beta: (x / beta) ** alpha,
    )


@reparameterise.register(ParetoRV)
def _pareto(op, alpha, least):
    return Reparameterisation(
        forward=lambda u, alpha, least: least * pt.exp(u / alpha),
        inverse=lambda x, w, alpha, least: alpha * pt.log(x / least),
    )
