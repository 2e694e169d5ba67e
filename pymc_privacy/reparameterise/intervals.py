"""Laws on an interval, by the inverse of their distribution function."""

from __future__ import annotations

import pytensor.tensor as pt

from pymc_privacy._compat import KumaraswamyRV, TriangularRV, TruncatedNormalRV
from pymc_privacy.reparameterise.base import Reparameterisation, reparameterise


@reparameterise.register(KumaraswamyRV)
def _kumaraswamy(op, a, b):
    """Use (1 - x^a)^b = exp(-u) with u exponential, which is accurate at both ends."""
    return Reparameterisation(
        forward=lambda u, a, b: (-pt.expm1(-u / b)) ** (1 / a),
        inverse=lambda x, w, a, b: -b * pt.log1p(-(x**a)),
    )


@reparameterise.register(TriangularRV)
def _triangular(op, lower, mode, upper):
    """Let u be the distribution function: a parabola on each side of the mode."""

    def forward(u, lower, mode, upper):
        width = upper - lower
        rising = lower + pt.sqrt(u * width * (mode - lower))
        falling = upper - pt.sqrt((1 - u) * width * (upper - mode))
        return pt.where(u * width < mode - lower, rising, falling)

    def inverse(x, w, lower, mode, upper):
        width = upper - lower
        rising = (x - lower) ** 2 / (width * (mode - lower))
        falling = 1 - (upper - x) ** 2 / (width * (upper - mode))
        return pt.where(x < mode, rising, falling)

    return Reparameterisation(forward=forward, inverse=inverse)


@reparameterise.register(TruncatedNormalRV)
def _truncated_normal(op, mu, sigma, lower, upper):
    """Let u be the part of the interval's mass below x, or minus the part above it.

    The smaller of the two parts is kept, so that u is uniform on (-1/2, 1/2) and accurate at
    both ends. That the interval begins within 37 sigma of mu is not checked: beyond, its mass
    is no number above zero, and x is put at the nearer bound.
    """

    def standardised(mu, sigma, lower, upper):
        a, b = (lower - mu) / sigma, (upper - mu) / sigma
        # An interval above zero is mirrored: masses below it could not be told from 1.
        mirrored = a > 0
        return mirrored, pt.where(mirrored, -b, a), pt.where(mirrored, -a, b)

    def forward(u, mu, sigma, lower, upper):
        mirrored, a, b = standardised(mu, sigma, lower, upper)
        u = pt.where(mirrored, -u, u)
        inside = _mass_between(a, b)
        below = pt.where(u >= 0, _mass_below(a) + u * inside, _mass_below(b) + u * inside)
        above = _mass_below(-b) - u * inside
        z = pt.where((u < 0) & (b > 0), -_quantile(above), _quantile(below))
        z = pt.clip(z, a, b)
        return pt.clip(mu + sigma * pt.where(mirrored, -z, z), lower, upper)

    def inverse(x, w, mu, sigma, lower, upper):
        mirrored, a, b = standardised(mu, sigma, lower, upper)
        z = (x - mu) / sigma
        z = pt.where(mirrored, -z, z)
        inside = _mass_between(a, b)
        below = _mass_between(a, z) / inside
        u = pt.where(below < 0.5, below, -_mass_between(z, b) / inside)
        return pt.where(mirrored, -u, u)

    return Reparameterisation(forward=forward, inverse=inverse)


def _mass_below(z):
    return 0.5 * pt.erfc(-z / 2**0.5)


def _mass_between(a, b):
    # Between points above zero, masses above them are the smaller and so the precise ones.
    return pt.where(a > 0, _mass_below(-a) - _mass_below(-b), _mass_below(b) - _mass_below(a))


def _quantile(mass):
    return -(2**0.5) * pt.erfcinv(2 * mass)
