"""Families closed under shift and stretch, and their images under exp: u is standardised."""

from __future__ import annotations

import pytensor.tensor as pt

from pymc_privacy._compat import (
    CauchyRV,
    ExponentialRV,
    GammaRV,
    GumbelRV,
    HalfCauchyRV,
    HalfNormalRV,
    LaplaceRV,
    LogisticRV,
    LogNormalRV,
    MoyalRV,
    NormalRV,
    StudentTRV,
    UniformRV,
)
from pymc_privacy.reparameterise.base import Reparameterisation, is_random, reparameterise


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


@reparameterise.register(UniformRV)
def _interval(op, lower, upper):
    return Reparameterisation(
        forward=lambda u, lower, upper: lower + (upper - lower) * u,
        inverse=lambda x, w, lower, upper: (x - lower) / (upper - lower),
    )


@reparameterise.register(StudentTRV)
def _student(op, df, loc, scale):
    # The standardised draw follows a t law whose degrees of freedom must not move.
    if is_random(df):
        return None
    return Reparameterisation(
        forward=lambda u, df, loc, scale: loc + scale * u,
        inverse=lambda x, w, df, loc, scale: (x - loc) / scale,
    )


@reparameterise.register(GammaRV)
def _gamma_of_fixed_shape(op, shape, scale):
    # A moving shape would need the inverse of the incomplete gamma function for every
    # record, which costs more than it gains.
    if is_random(shape):
        return None
    return Reparameterisation(
        forward=lambda u, shape, scale: scale * u,
        inverse=lambda x, w, shape, scale: x / scale,
    )
