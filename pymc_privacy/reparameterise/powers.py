"""Families that are powers of one standard variable, an exponential one or a function of it."""

from __future__ import annotations

import math

import pytensor.tensor as pt

from pymc_privacy._compat import ParetoRV, WeibullBetaRV
from pymc_privacy.reparameterise.base import Reparameterisation, reparameterise
from pymc_privacy.reparameterise.intervals import inside


@reparameterise.register(WeibullBetaRV)
def _weibull(op, alpha, beta):
    """Let u be the log of an exponential variate: a power of x / beta may be no number."""
    return Reparameterisation(
        forward=lambda u, alpha, beta: beta * pt.exp(u / alpha),
        inverse=lambda x, w, alpha, beta: alpha * pt.log(x / beta),
    )


@reparameterise.register(ParetoRV)
def _pareto(op, alpha, least):
    """Let u be exponential."""
    return Reparameterisation(
        forward=lambda u, alpha, m: inside(m + m * pt.expm1(u / alpha), m, math.inf),
        inverse=lambda x, w, alpha, m: alpha * pt.log1p((x - m) / m),
    )
