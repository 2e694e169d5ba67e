"""Normal vectors: x = mu + L z, with L the Cholesky factor of the covariance."""

from __future__ import annotations

from typing import Any

import pytensor.tensor as pt

from pymc_privacy._compat import MvNormalRV, TensorVariable
from pymc_privacy.reparameterise.base import Reparameterisation, reparameterise

_UNROLLED = 6


@reparameterise.register(MvNormalRV)
def _normal_vector(
    op: Any, mu: TensorVariable, covariance: TensorVariable
) -> Reparameterisation | None:
    while covariance.ndim > 2 and covariance.type.broadcastable[0]:
        covariance = covariance[0]
    width = covariance.type.shape[-1]
    if covariance.ndim != 2 or width is None or width > _UNROLLED:
        return None
    return Reparameterisation(forward=_forward, inverse=_inverse)


def factor_of(covariance: TensorVariable) -> list[list[TensorVariable]]:
    """Return the rows of the Cholesky factor, each up to its diagonal, as scalars.

    Written out, few coordinates cost less than one call into a library.
    """
    while covariance.ndim > 2:
        covariance = covariance[0]
    rows: list[list[TensorVariable]] = []
    for j in range(covariance.type.shape[-1]):
        row: list[TensorVariable] = []
        for k in range(j):
            known = sum((row[i] * rows[k][i] for i in range(k)), start=0.0)
            row.append((covariance[j, k] - known) / rows[k][k])
        row.append(pt.sqrt(covariance[j, j] - sum((part**2 for part in row), start=0.0)))
        rows.append(row)
    return rows


def _forward(z: TensorVariable, mu: TensorVariable, covariance: TensorVariable) -> TensorVariable:
    factor = factor_of(covariance)
    rows = [sum(part * z[..., k] for k, part in enumerate(row)) for row in factor]
    return mu + pt.stack(rows, axis=-1)


def _inverse(
    x: TensorVariable, w: TensorVariable | None, mu: TensorVariable, covariance: TensorVariable
) -> TensorVariable:
    centred = x - mu
    z: list[TensorVariable] = []
    for j, row in enumerate(factor_of(covariance)):
        known = sum((part * z[k] for k, part in enumerate(row[:-1])), start=0.0)
        z.append((centred[..., j] - known) / row[-1])
    return pt.stack(z, axis=-1)
