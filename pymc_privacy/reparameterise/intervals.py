"""Laws on an interval, by the inverse of their distribution function."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import pytensor.tensor as pt

from pymc_privacy._compat import KumaraswamyRV, TriangularRV, TruncatedNormalRV, UniformRV, ps
from pymc_privacy.algorithms import truncated_normal
from pymc_privacy.reparameterise.base import Reparameterisation, reparameterise
from pymc_privacy.reparameterise.quantiles import elementwise
from pymc_privacy.reparameterise.tails import log_above, log_below, signed

# Coordinates that reach to infinity end at a bound, so records are kept strictly between theirs.
inside = elementwise(
    truncated_normal.strictly_between, "float64", slopes=lambda inputs, output: [1.0, 0.0, 0.0]
)
# Below, exp(v) is a log1p to the last digit.
_TINY_LOG = -37.0


@reparameterise.register(UniformRV)
def _uniform(op, lower, upper):
    return Reparameterisation(
        forward=lambda u, lower, upper: inside(lower + (upper - lower) * u, lower, upper),
        inverse=lambda x, w, lower, upper: (x - lower) / (upper - lower),
    )


@reparameterise.register(KumaraswamyRV)
def _kumaraswamy(op, a, b):
    """Use (1 - x^a)^b = exp(-exp(u)), with exp(u) exponential: u is accurate at both ends."""

    def forward(u, a, b):
        v = u - pt.log(b)
        # log x^a = log(1 - exp(-exp(v)))
        log_power = pt.where(v < _TINY_LOG, v, pt.log1mexp(-pt.exp(pt.maximum(v, _TINY_LOG))))
        return inside(pt.exp(log_power / a), 0.0, 1.0)

    def inverse(x, w, a, b):
        log_power = a * pt.log(x)
        log_rest = pt.log1mexp(pt.maximum(log_power, _TINY_LOG))
        u = pt.log(b) + pt.where(log_power < _TINY_LOG, log_power, pt.log(-log_rest))
        return pt.minimum(u, truncated_normal.FARTHEST)

    return Reparameterisation(forward=forward, inverse=inverse)


@reparameterise.register(TriangularRV)
def _triangular(op, lower, mode, upper):
    """Use a parabola on each side of the mode for the tails."""

    def forward(u, lower, mode, upper):
        width = upper - lower
        below, above = pt.exp(log_below(u)), pt.exp(log_above(u))
        rising = lower + pt.sqrt(below * width * (mode - lower))
        falling = upper - pt.sqrt(above * width * (upper - mode))
        return inside(pt.where(below * width < mode - lower, rising, falling), lower, upper)

    def inverse(x, w, lower, mode, upper):
        width = upper - lower
        # On the other side of the mode the parabola is not the tail, nor need it be a number.
        left = (pt.minimum(x, mode) - lower) ** 2 / (width * pt.maximum(mode - lower, tiny))
        right = (upper - pt.maximum(x, mode)) ** 2 / (width * pt.maximum(upper - mode, tiny))
        return pt.where(
            x < mode,
            signed(pt.log(left), pt.log1p(-left)),
            signed(pt.log1p(-right), pt.log(right)),
        )

    tiny = math.ulp(0.0)
    return Reparameterisation(forward=forward, inverse=inverse)


@reparameterise.register(TruncatedNormalRV)
def _truncated_normal(op, mu, sigma, lower, upper):
    """Let u be the log of the tail that x cuts off, with a sign: see the algorithm's file."""
    base = elementwise(truncated_normal.to_base, "float64")
    return Reparameterisation(
        forward=elementwise(truncated_normal.from_base, "float64", slopes=_slopes),
        inverse=lambda x, w, *parameters: base(x, *parameters),
    )


def _slopes(inputs: Sequence[Any], x: Any) -> list[Any]:
    """Return dx by u, mu, sigma and the bounds, which keep F(x) where it is.

    With z, a and b standardised, phi(z) dz = (1 - F) phi(a) da + F phi(b) db.
    """
    u, mu, sigma, lower, upper = inputs
    z = (x - mu) / sigma

    def weight(bound, tail):
        at = (bound - mu) / sigma
        finite = ps.lt(abs(bound), math.inf)
        share = tail * ps.exp((z - at) * (z + at) / 2)
        return ps.switch(finite, share, 0.0), ps.switch(finite, share * at, 0.0)

    part = 0.5 * ps.exp(-abs(u))
    above = ps.switch(ps.lt(u, 0), 1 - part, part)
    by_lower, lower_at = weight(lower, above)
    by_upper, upper_at = weight(upper, 1 - above)
    nothing = u * 0.0
    return [nothing, 1 - by_lower - by_upper, z - lower_at - upper_at, by_lower, by_upper]
