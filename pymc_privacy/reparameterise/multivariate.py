"""Normal vectors: x = mu + L z, with L the Cholesky factor of the covariance."""

from __future__ import annotations

import pytensor.tensor as pt

from pymc_privacy._compat import MvNormalRV
from pymc_privacy.reparameterise.base import Reparameterisation, reparameterise

_UNROLLED = 6


@reparameterise.register(MvNormalRV)
def _normal_vector(op, mu, covariance):
    while covariance.ndim > 2 and covariance.type.broadcastable[0]:
        covariance = covariance[0]
    width = covariance.type.shape[-1]
    if covariance.ndim != 2 or width is None or width > _UNROLLED:
        return None
    return Reparameterisation(forward=_forward, inverse=_inverse)


def _factor(covariance):
    while covariance.ndim > 2:
        covariance = covariance[0]
    return pt.linalg.cholesky(covariance), covariance.type.shape[-1]


def _forward(z, mu, covariance):
    factor, width = _factor(covariance)
    rows = [sum(factor[j, k] * z[..., k] for k in range(j + 1)) for j in range(width)]
    return mu + pt.stack(rows, axis=-1)


def _inverse(x, w, mu, covariance):
    factor, width = _factor(covariance)
    centred = x - mu
    z = []
    for j in range(width):
        known = sum((factor[j, k] * z[k] for k in range(j)), start=0.0)
        z.append((centred[..., j] - known) / factor[j, j])
    return pt.stack(z, axis=-1)
