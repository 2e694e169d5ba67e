"""A law with another rate on either side: u is the log of the tail that x cuts off, with a sign."""

from __future__ import annotations

import pytensor.tensor as pt

from pymc_privacy._compat import AsymmetricLaplaceRV
from pymc_privacy.reparameterise.base import Reparameterisation, reparameterise
from pymc_privacy.reparameterise.tails import log_above, log_below, signed


@reparameterise.register(AsymmetricLaplaceRV)
def _asymmetric_laplace(op, b, kappa, mu):
    """Use log P(X < x) = log c + (x - mu) b / kappa below mu, with c = kappa² / (1 + kappa²).

    Above mu, log P(X > x) = log(1 - c) - (x - mu) b kappa.
    """

    def logs_at_mode(kappa):
        odds = 2 * pt.log(kappa)
        return -pt.softplus(-odds), -pt.softplus(odds)

    def forward(u, b, kappa, mu):
        left, right = logs_at_mode(kappa)
        below, above = log_below(u), log_above(u)
        shift = pt.where(below < left, (below - left) * kappa, (right - above) / kappa)
        return mu + shift / b

    def inverse(x, w, b, kappa, mu):
        left, right = logs_at_mode(kappa)
        shift = (x - mu) * b
        below = left + pt.minimum(shift, 0) / kappa
        above = right - pt.maximum(shift, 0) * kappa
        return signed(
            pt.where(shift < 0, below, pt.log1mexp(above)),
            pt.where(shift < 0, pt.log1mexp(below), above),
        )

    return Reparameterisation(forward=forward, inverse=inverse)
