"""Gamma, inverse gamma, beta and Dirichlet records whose shape moves.

All are made of gamma variates of scale one, g_j of shape a_j: a beta or Dirichlet record is their
shares, and given the record their sum is a gamma variate of shape sum a_j that is independent of
it. `gamma_variates` carries each.
"""

from __future__ import annotations

from collections.abc import Sequence

import pytensor.tensor as pt

from pymc_privacy._compat import (
    BetaRV,
    DirichletRV,
    GammaRV,
    InvGammaRV,
    TensorVariable,
)
from pymc_privacy.reparameterise.base import Reparameterisation, is_random, reparameterise
from pymc_privacy.reparameterise.fixed_shape import SCALED
from pymc_privacy.reparameterise.gamma_variates import base_of, gamma_of, log_weight_of

_MOST_SHARES = 12


@reparameterise.register(GammaRV)
@reparameterise.register(InvGammaRV)
def _shape_and_scale(op, shape, scale):
    inverted = isinstance(op, InvGammaRV)
    if not is_random(shape):
        return SCALED

    def forward(u, shape, scale):
        return scale / gamma_of(u, shape) if inverted else scale * gamma_of(u, shape)

    def inverse(x, w, shape, scale):
        g = scale / x if inverted else x / scale
        return pt.stack(base_of(g, w[..., 0], shape), axis=-1)

    return Reparameterisation(
        forward=forward,
        inverse=inverse,
        needs_uniform=True,
        base_width=2,
        log_weight=lambda u, shape, scale: log_weight_of(u, shape),
    )


@reparameterise.register(BetaRV)
def _beta(op, a, b):
    if not (is_random(a) or is_random(b)):
        return None
    return Reparameterisation(
        forward=lambda u, a, b: _shares(_pair(u), [_float(a), _float(b)])[0],
        inverse=lambda x, w, a, b: pt.concatenate(
            _base_of_shares([x, 1 - x], _pair(w), [_float(a), _float(b)]), axis=-1
        ),
        needs_uniform=True,
        base_width=4,
        log_weight=lambda u, a, b: _log_weight_of_shares(_pair(u), [_float(a), _float(b)]),
    )


def _float(shape: TensorVariable) -> TensorVariable:
    """Return a shape with room for more than small whole numbers."""
    return pt.cast(shape, "float64")


def _pair(u: TensorVariable) -> list[TensorVariable]:
    return [u[..., :2], u[..., 2:]]


@reparameterise.register(DirichletRV)
def _dirichlet(op, shapes):
    width = shapes.type.shape[-1]
    if not is_random(shapes) or width is None or width > _MOST_SHARES:
        return None

    def parts(u):
        return [u[..., j, :] for j in range(width)]

    def each(shapes):
        return [shapes[..., j] for j in range(width)]

    return Reparameterisation(
        forward=lambda u, shapes: pt.stack(_shares(parts(u), each(shapes)), axis=-1),
        inverse=lambda x, w, shapes: pt.stack(
            _base_of_shares([x[..., j] for j in range(width)], parts(w), each(shapes)), axis=-2
        ),
        needs_uniform=True,
        base_width=2,
        log_weight=lambda u, shapes: _log_weight_of_shares(parts(u), each(shapes)),
    )


def _shares(
    columns: Sequence[TensorVariable], shapes: Sequence[TensorVariable]
) -> list[TensorVariable]:
    gammas = [gamma_of(u, shape) for u, shape in zip(columns, shapes, strict=True)]
    total = sum(gammas[1:], start=gammas[0])
    return [g / total for g in gammas]


def _base_of_shares(
    shares: Sequence[TensorVariable],
    uniforms: Sequence[TensorVariable],
    shapes: Sequence[TensorVariable],
) -> list[TensorVariable]:
    """Return u and e of each share, after a draw of the sum that they are shares of."""
    whole = sum(shapes[1:], start=shapes[0])
    rng = pt.random.shared_rng(seed=None)
    _, total = pt.random.gamma(
        whole + pt.zeros_like(shares[0]), scale=1.0, rng=rng, return_next_rng=True
    )
    return [
        pt.stack(base_of(share * total, w[..., 0], shape), axis=-1)
        for share, w, shape in zip(shares, uniforms, shapes, strict=True)
    ]


def _log_weight_of_shares(
    columns: Sequence[TensorVariable], shapes: Sequence[TensorVariable]
) -> TensorVariable:
    weights = [log_weight_of(u, shape) for u, shape in zip(columns, shapes, strict=True)]
    return sum(weights[1:], start=weights[0])
