"""A law with another rate on either side: u is the tail that x cuts off, with a sign."""

from __future__ import annotations

import pytensor.tensor as pt

from pymc_privacy._compat import AsymmetricLaplaceRV
from pymc_privacy.reparameterise.base import Reparameterisation, reparameterise


@reparameterise.register(AsymmetricLaplaceRV)
def _asymmetric_laplace(op, b, kappa, mu):
    """Use P(X < x) = c exp((x - mu) b / kappa) below mu, with c = kappa² / (1 + kappa²).

    Above mu, P(X > x) = (1 - c) exp(-(x - mu) b kappa). The smaller tail is kept, with a minus
    sign if it is the upper one: u is uniform on (-1/2, 1/2), and accurate far out.
    """

    def forward(u, b, kappa, mu):
        odds = kappa**2
        below, above = pt.where(u >= 0, u, 1 + u), pt.where(u >= 0, 1 - u, -u)
        left = kappa / b * pt.log(below * (1 + odds) / odds)
        right = -pt.log(above * (1 + odds)) / (kappa * b)
        return mu + pt.where(below * (1 + odds) < odds, left, right)

    def inverse(x, w, b, kappa, mu):
        odds, shift = kappa**2, (x - mu) * b
        left = odds / (1 + odds) * pt.exp(pt.minimum(shift, 0) / kappa)
        right = pt.exp(-pt.maximum(shift, 0) * kappa) / (1 + odds)
        below, above = pt.where(shift < 0, left, 1 - right), pt.where(shift < 0, 1 - left, right)
        return pt.where(below < 0.5, below, -above)

    return Reparameterisation(forward=forward, inverse=inverse)
