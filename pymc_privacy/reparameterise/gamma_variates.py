"""Gamma variates of scale one, whose shape moves.

The inverse of the incomplete gamma function would cost too much for every record, so T is close to
it only, by the cube root of Wilson and Hilferty (1931). For g of shape a,

    G = b c³,  c = 1 - 1 / (9 b) + u / (3 sqrt(b)),  b = a + 1,    g = G exp(-e / a).

Of shape b >= 1 the approximation is a good one; G times the power 1 / a of a uniform has shape a
exactly, so that e is exponential, and given g, G - g is exponential too. The law of u is nearly
standard normal, and what it still knows of the shape enters as a weight: with it the move is exact.
"""

from __future__ import annotations

import math

import pytensor.tensor as pt

from pymc_privacy._compat import TensorVariable

# Smaller variates would be zero in floating point: their shares no numbers, their density none.
_LEAST_LOG = -650.0


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
    u = 3 * pt.sqrt(shape + 1) * ((whole / (shape + 1)) ** (1 / 3) - 1 + 1 / (9 * (shape + 1)))
    return [u, shape * pt.log(whole / g)]


def log_weight_of(u: TensorVariable, shape: TensorVariable) -> TensorVariable:
    """Return the log density of u, by that of G, and no weight where no number can stand for g."""
    b, c = shape + 1, _root(u, shape)
    log_c = pt.log(c)
    density = (3 * shape + 2) * log_c - b * _cubed(c)
    density += (shape + 0.5) * pt.log(b) - pt.gammaln(b)
    # Not a number, without such a G, is not larger than anything.
    log_gamma = pt.log(b) + 3 * log_c - u[..., 1] / shape
    return pt.switch(log_gamma > _LEAST_LOG, density, -float("inf"))
