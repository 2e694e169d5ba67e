"""Families closed under shift and stretch, and their images under exp: u is standardised."""

from __future__ import annotations

import pytensor.tensor as pt

from pymc_privacy._compat import (
    CauchyRV,
    ExponentialRV,
    GumbelRV,
    HalfCauchyRV,
    HalfNormalRV,
    LaplaceRV,
    LogisticRV,
    LogNormalRV,
    MoyalRV,
    NormalRV,
)
from pymc_privacy.reparameterise.base import Reparameterisation, reparameterise


@reparameterise.register(NormalRV)
@reparameterise.register(LaplaceRV)
@reparameterise.register(LogisticRV)
@reparameterise.register(CauchyRV)
@reparameterise.register(GumbelRV)
@reparameterise.register(MoyalRV)
@reparameterise.register(HalfNormalRV)
def _location_scale(op, loc, scale):
    return Reparameterisation(
        forward=lambda u, loc, scale: loc + scale * u,
        inverse=lambda x, w, loc, scale: (x - loc) / scale,
    )


@reparameterise.register(ExponentialRV)
@reparameterise.register(HalfCauchyRV)
def _scale(op, scale):
    return Reparameterisation(
        forward=lambda u, scale: scale * u,
        inverse=lambda x, w, scale: x / scale,
    )


@reparameterise.register(LogNormalRV)
def _log_location_scale(op, mu, sigma):
    return Reparameterisation(
        forward=lambda u, mu, sigma: pt.exp(mu + sigma * u),
        inverse=lambda x, w, mu, sigma: (pt.log(x) - mu) / sigma,
    )
