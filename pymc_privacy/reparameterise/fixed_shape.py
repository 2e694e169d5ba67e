"""Laws of a shape that does not move: u is standardised, and follows the law of that shape."""

from __future__ import annotations

from pymc_privacy._compat import SkewNormalRV
from pymc_privacy.reparameterise.base import Reparameterisation, is_random, reparameterise

SCALED = Reparameterisation(
    forward=lambda u, shape, scale: scale * u,
    inverse=lambda x, w, shape, scale: x / scale,
)


@reparameterise.register(SkewNormalRV)
def _skew_normal(op, loc, scale, shape):
    if is_random(shape):
        return None
    return Reparameterisation(
        forward=lambda u, loc, scale, shape: loc + scale * u,
        inverse=lambda x, w, loc, scale, shape: (x - loc) / scale,
    )
