"""Gamma, inverse gamma, beta and Dirichlet records whose shape moves.

All are made of gamma variates of scale one, g_j of shape a_j: a beta or Dirichlet record is their
shares, and given the record their sum is a gamma variate of shape sum a_j that is independent of
it. `gamma_of` and `base_of` carry each.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import pytensor.tensor as pt

from pymc_privacy._compat import (
    BetaRV,
    DirichletRV,
    GammaRV,
    InvGammaRV,
    TensorVariable,
)
from pymc_privacy.reparameterise.base import SCALED, Reparameterisation, is_random, reparameterise

# Gamma variates of scale one, whose shape moves.
#
# The inverse of the incomplete gamma function would cost too much for every record, so T is close
# to it only, by the cube root of Wilson and Hilferty (1931). For g of shape a,
#
#     G = b c³,  c = 1 - 1 / (9 b) + u / (3 sqrt(b)),  b = a + 1,    g = G exp(-e / a).
#
# Of shape b >= 1 the approximation is a good one; G times the power 1 / a of a uniform has shape a
# exactly, so that e is exponential, and given g, G - g is exponential too. The law of u is nearly
# standard normal, and what it still knows of the shape enters as a weight: the move is exact.


# Smaller variates would be zero in floating point: their shares no numbers, their density none.
_LEAST_LOG = -650.0
# Above, terms as large as the shape would cancel, and what is left of them be accepted.
_LARGE = 1e4


def _root(u: TensorVariable, shape: TensorVariable) -> TensorVariable:
    """Return c; the last axis of u holds u and e."""
    return 1 - 1 / (9 * (shape + 1)) + u[..., 0] / (3 * pt.sqrt(shape + 1))


def gamma_of(u: TensorVariable, shape: TensorVariable) -> TensorVariable:
    """Return g of a shape."""
    return (shape + 1) * _cubed(_root(u, shape)) * pt.exp(-u[..., 1] / shape)


def _cubed(c: TensorVariable) -> TensorVariable:
    """Return c³ by products: a power would cost more than all the rest."""
    return c * c * c


def base_of(g: TensorVariable, w: TensorVariable, shape: TensorVariable) -> list[TensorVariable]:
    """Return u and e given g, drawn by a uniform."""
    g = pt.maximum(g, math.exp(_LEAST_LOG))
    whole = g - pt.log1p(-w)
    return [_root_of(whole, shape), shape * pt.log(whole / g)]


def _root_of(whole: TensorVariable, shape: TensorVariable) -> TensorVariable:
    """Return u given G."""
    return 3 * pt.sqrt(shape + 1) * ((whole / (shape + 1)) ** (1 / 3) - 1 + 1 / (9 * (shape + 1)))


def draw_base(like: TensorVariable, shape: TensorVariable) -> TensorVariable:
    """Draw u and e, as the last axis: G and e are independent, so that no g is needed."""
    b = shape + 1 + pt.zeros_like(like)
    draws = [
        pt.random.gamma(b, scale=1.0, rng=pt.random.shared_rng(seed=None), return_next_rng=True),
        pt.random.exponential(
            pt.ones_like(b), rng=pt.random.shared_rng(seed=None), return_next_rng=True
        ),
    ]
    (_, whole), (_, e) = draws
    # Not so far out that g itself would be no number.
    e = pt.minimum(e, shape * (pt.log(whole) - _LEAST_LOG))
    return pt.stack([_root_of(whole, shape), e], axis=-1)


def log_weight_of(u: TensorVariable, shape: TensorVariable) -> TensorVariable:
    """Return the log density of u, by that of G, and no weight where no number can stand for g."""
    b, c = shape + 1, _root(u, shape)
    log_c = pt.log(c)
    density = (3 * shape + 2) * log_c - b * _cubed(c)
    density += (shape + 0.5) * pt.log(b) - pt.gammaln(b)
    density = pt.switch(b < _LARGE, density, _log_weight_far_out(u, b))
    # Not a number, without such a G, is not larger than anything.
    log_gamma = pt.log(b) + 3 * log_c - u[..., 1] / shape
    return pt.switch(log_gamma > _LEAST_LOG, density, -float("inf"))


def _log_weight_far_out(u: TensorVariable, b: TensorVariable) -> TensorVariable:
    """Return the log density of u where b is large, and terms as large as b log b would cancel.

    With c = 1 + d and Stirling's series it is
    b (3 log c + 1 - c³) - log c - log(2 pi) / 2 - 1 / (12 b), in which 3 log c + 1 - c³
    = 3 (log(1 + d) - d) - 3 d² - d³.
    """
    d = u[..., 0] / (3 * pt.sqrt(b)) - 1 / (9 * b)
    series = -d * d * (1 / 2 - d * (1 / 3 - d * (1 / 4 - d * (1 / 5 - d * (1 / 6 - d / 7)))))
    gap = pt.switch(abs(d) < 1e-3, series, pt.log1p(d) - d)
    exponent = b * (3 * gap - 3 * d * d - d * d * d)
    return exponent - pt.log1p(d) - 0.5 * math.log(2 * math.pi) - 1 / (12 * b)


_MOST_SHARES = 12


@reparameterise.register(GammaRV)
@reparameterise.register(InvGammaRV)
def _shape_and_scale(op: Any, shape: TensorVariable, scale: TensorVariable) -> Reparameterisation:
    inverted = isinstance(op, InvGammaRV)
    if not is_random(shape):
        return SCALED

    def forward(u: TensorVariable, shape: TensorVariable, scale: TensorVariable) -> TensorVariable:
        return scale / gamma_of(u, shape) if inverted else scale * gamma_of(u, shape)

    def inverse(
        x: TensorVariable, w: TensorVariable, shape: TensorVariable, scale: TensorVariable
    ) -> TensorVariable:
        g = scale / x if inverted else x / scale
        return pt.stack(base_of(g, w[..., 0], shape), axis=-1)

    return Reparameterisation(
        forward=forward,
        inverse=inverse,
        needs_uniform=True,
        base_width=2,
        log_weight=lambda u, shape, scale: log_weight_of(u, shape),
        draw=lambda like, shape, scale: draw_base(like, shape),
    )


@reparameterise.register(BetaRV)
def _beta(op: Any, a: TensorVariable, b: TensorVariable) -> Reparameterisation | None:
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
        draw=lambda like, a, b: pt.concatenate(
            [draw_base(like, _float(a)), draw_base(like, _float(b))], axis=-1
        ),
    )


def _float(shape: TensorVariable) -> TensorVariable:
    """Return a shape with room for more than small whole numbers."""
    return pt.cast(shape, "float64")


def _pair(u: TensorVariable) -> list[TensorVariable]:
    return [u[..., :2], u[..., 2:]]


@reparameterise.register(DirichletRV)
def _dirichlet(op: Any, shapes: TensorVariable) -> Reparameterisation | None:
    width = shapes.type.shape[-1]
    if not is_random(shapes) or width is None or width > _MOST_SHARES:
        return None

    def parts(u: TensorVariable) -> list[TensorVariable]:
        return [u[..., j, :] for j in range(width)]

    def each(shapes: TensorVariable) -> list[TensorVariable]:
        return [shapes[..., j] for j in range(width)]

    return Reparameterisation(
        forward=lambda u, shapes: pt.stack(_shares(parts(u), each(shapes)), axis=-1),
        inverse=lambda x, w, shapes: pt.stack(
            _base_of_shares([x[..., j] for j in range(width)], parts(w), each(shapes)), axis=-2
        ),
        needs_uniform=True,
        base_width=2,
        log_weight=lambda u, shapes: _log_weight_of_shares(parts(u), each(shapes)),
        draw=lambda like, shapes: pt.stack(
            [draw_base(like[..., j], shape) for j, shape in enumerate(each(shapes))], axis=-2
        ),
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
