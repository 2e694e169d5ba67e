"""Laws on the line and on intervals: u is standardised, or found by a distribution function."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import pytensor.tensor as pt

from pymc_privacy._compat import (
    AsymmetricLaplaceRV,
    CauchyRV,
    ExponentialRV,
    GumbelRV,
    HalfCauchyRV,
    HalfNormalRV,
    HalfStudentTRV,
    KumaraswamyRV,
    LaplaceRV,
    LogisticRV,
    LogNormalRV,
    MoyalRV,
    NormalRV,
    ParetoRV,
    SkewNormalRV,
    StudentTRV,
    TensorVariable,
    TriangularRV,
    TruncatedNormalRV,
    UniformRV,
    WeibullBetaRV,
    ps,
)
from pymc_privacy.algorithms.numerics import truncated_normal
from pymc_privacy.reparameterise.base import SCALED, Reparameterisation, is_random, reparameterise
from pymc_privacy.reparameterise.gamma import base_of, gamma_of, log_weight_of
from pymc_privacy.reparameterise.quantiles import elementwise
from pymc_privacy.reparameterise.tails import log_above, log_below, signed

# Families closed under shift and stretch, and their images under exp: u is standardised.


@reparameterise.register(NormalRV)
@reparameterise.register(LaplaceRV)
@reparameterise.register(LogisticRV)
@reparameterise.register(CauchyRV)
@reparameterise.register(GumbelRV)
@reparameterise.register(MoyalRV)
@reparameterise.register(HalfNormalRV)
def _location_scale(op: Any, loc: TensorVariable, scale: TensorVariable) -> Reparameterisation:
    return Reparameterisation(
        forward=lambda u, loc, scale: loc + scale * u,
        inverse=lambda x, w, loc, scale: (x - loc) / scale,
    )


@reparameterise.register(ExponentialRV)
@reparameterise.register(HalfCauchyRV)
def _scale(op: Any, scale: TensorVariable) -> Reparameterisation:
    return Reparameterisation(
        forward=lambda u, scale: scale * u,
        inverse=lambda x, w, scale: x / scale,
    )


@reparameterise.register(LogNormalRV)
def _log_location_scale(op: Any, mu: TensorVariable, sigma: TensorVariable) -> Reparameterisation:
    return Reparameterisation(
        forward=lambda u, mu, sigma: pt.exp(mu + sigma * u),
        inverse=lambda x, w, mu, sigma: (pt.log(x) - mu) / sigma,
    )


# Families that are powers of one standard variable, an exponential one or a function of it.


@reparameterise.register(WeibullBetaRV)
def _weibull(op: Any, alpha: TensorVariable, beta: TensorVariable) -> Reparameterisation:
    """Let u be the log of an exponential variate: a power of x / beta may be no number."""
    return Reparameterisation(
        forward=lambda u, alpha, beta: beta * pt.exp(u / alpha),
        inverse=lambda x, w, alpha, beta: alpha * pt.log(x / beta),
    )


@reparameterise.register(ParetoRV)
def _pareto(op: Any, alpha: TensorVariable, least: TensorVariable) -> Reparameterisation:
    """Let u be exponential."""
    return Reparameterisation(
        forward=lambda u, alpha, m: inside(m + m * pt.expm1(u / alpha), m, math.inf),
        inverse=lambda x, w, alpha, m: alpha * pt.log1p((x - m) / m),
    )


# Laws of a shape that does not move: u is standardised, and follows the law of that shape.


@reparameterise.register(SkewNormalRV)
def _skew_normal(
    op: Any, loc: TensorVariable, scale: TensorVariable, shape: TensorVariable
) -> Reparameterisation | None:
    if is_random(shape):
        return None
    return Reparameterisation(
        forward=lambda u, loc, scale, shape: loc + scale * u,
        inverse=lambda x, w, loc, scale, shape: (x - loc) / scale,
    )


# Student's t: x = loc + scale z / sqrt(h), h = g / (df / 2), with z Normal and g gamma of df / 2.
#
# Given t = (x - loc) / scale, h is a gamma variate of shape (df + 1) / 2 and rate (df + t²) / 2.
# With the degrees of freedom fixed, u is t itself.


@reparameterise.register(StudentTRV)
def _student(
    op: Any, df: TensorVariable, loc: TensorVariable, scale: TensorVariable
) -> Reparameterisation:
    if is_random(df):
        return Reparameterisation(
            forward=lambda u, df, loc, scale: loc + scale * _standard(u, df),
            inverse=lambda x, w, df, loc, scale: _base_of_standard((x - loc) / scale, w, df),
            needs_uniform=True,
            base_width=3,
            log_weight=lambda u, df, loc, scale: log_weight_of(u[..., 1:], _half(df)),
        )
    return Reparameterisation(
        forward=lambda u, df, loc, scale: loc + scale * u,
        inverse=lambda x, w, df, loc, scale: (x - loc) / scale,
    )


@reparameterise.register(HalfStudentTRV)
def _half_student(op: Any, df: TensorVariable, scale: TensorVariable) -> Reparameterisation:
    if not is_random(df):
        return SCALED
    # The same, with z the absolute value of a Normal variate.
    return Reparameterisation(
        forward=lambda u, df, scale: scale * _standard(u, df),
        inverse=lambda x, w, df, scale: _base_of_standard(x / scale, w, df),
        needs_uniform=True,
        base_width=3,
        log_weight=lambda u, df, scale: log_weight_of(u[..., 1:], _half(df)),
    )


def _half(df: TensorVariable) -> TensorVariable:
    return pt.cast(df, "float64") / 2


def _standard(u: TensorVariable, df: TensorVariable) -> TensorVariable:
    return u[..., 0] * pt.sqrt(_half(df) / gamma_of(u[..., 1:], _half(df)))


def _base_of_standard(t: TensorVariable, w: TensorVariable, df: TensorVariable) -> TensorVariable:
    """Return z, u and e of t, after a draw of h."""
    rng = pt.random.shared_rng(seed=None)
    _, h = pt.random.gamma(
        _half(df) + 0.5 + pt.zeros_like(t), scale=2 / (df + t**2), rng=rng, return_next_rng=True
    )
    return pt.stack([t * pt.sqrt(h), *base_of(_half(df) * h, w[..., 0], _half(df))], axis=-1)


# A law with another rate on either side: u is the log of the tail that x cuts off, with a sign.


@reparameterise.register(AsymmetricLaplaceRV)
def _asymmetric_laplace(
    op: Any, b: TensorVariable, kappa: TensorVariable, mu: TensorVariable
) -> Reparameterisation:
    """Use log P(X < x) = log c + (x - mu) b / kappa below mu, with c = kappa² / (1 + kappa²).

    Above mu, log P(X > x) = log(1 - c) - (x - mu) b kappa.
    """

    def logs_at_mode(kappa: TensorVariable) -> tuple[TensorVariable, TensorVariable]:
        odds = 2 * pt.log(kappa)
        return -pt.softplus(-odds), -pt.softplus(odds)

    def forward(
        u: TensorVariable, b: TensorVariable, kappa: TensorVariable, mu: TensorVariable
    ) -> TensorVariable:
        left, right = logs_at_mode(kappa)
        below, above = log_below(u), log_above(u)
        shift = pt.where(below < left, (below - left) * kappa, (right - above) / kappa)
        return mu + shift / b

    def inverse(
        x: TensorVariable,
        w: TensorVariable,
        b: TensorVariable,
        kappa: TensorVariable,
        mu: TensorVariable,
    ) -> TensorVariable:
        left, right = logs_at_mode(kappa)
        shift = (x - mu) * b
        below = left + pt.minimum(shift, 0) / kappa
        above = right - pt.maximum(shift, 0) * kappa
        return signed(
            pt.where(shift < 0, below, pt.log1mexp(above)),
            pt.where(shift < 0, pt.log1mexp(below), above),
        )

    return Reparameterisation(forward=forward, inverse=inverse)


# Laws on an interval, by the inverse of their distribution function.


# Coordinates that reach to infinity end at a bound, so records are kept strictly between theirs.
inside = elementwise(
    truncated_normal.strictly_between, "float64", slopes=lambda inputs, output: [1.0, 0.0, 0.0]
)
# Below, exp(v) is a log1p to the last digit.
_TINY_LOG = -37.0


@reparameterise.register(UniformRV)
def _uniform(op: Any, lower: TensorVariable, upper: TensorVariable) -> Reparameterisation:
    return Reparameterisation(
        forward=lambda u, lower, upper: inside(lower + (upper - lower) * u, lower, upper),
        inverse=lambda x, w, lower, upper: (x - lower) / (upper - lower),
    )


@reparameterise.register(KumaraswamyRV)
def _kumaraswamy(op: Any, a: TensorVariable, b: TensorVariable) -> Reparameterisation:
    """Use (1 - x^a)^b = exp(-exp(u)), with exp(u) exponential: u is accurate at both ends."""

    def forward(u: TensorVariable, a: TensorVariable, b: TensorVariable) -> TensorVariable:
        v = u - pt.log(b)
        # log x^a = log(1 - exp(-exp(v)))
        log_power = pt.where(v < _TINY_LOG, v, pt.log1mexp(-pt.exp(pt.maximum(v, _TINY_LOG))))
        return inside(pt.exp(log_power / a), 0.0, 1.0)

    def inverse(
        x: TensorVariable, w: TensorVariable, a: TensorVariable, b: TensorVariable
    ) -> TensorVariable:
        log_power = a * pt.log(x)
        log_rest = pt.log1mexp(pt.maximum(log_power, _TINY_LOG))
        u = pt.log(b) + pt.where(log_power < _TINY_LOG, log_power, pt.log(-log_rest))
        return pt.minimum(u, truncated_normal.FARTHEST)

    return Reparameterisation(forward=forward, inverse=inverse)


@reparameterise.register(TriangularRV)
def _triangular(
    op: Any, lower: TensorVariable, mode: TensorVariable, upper: TensorVariable
) -> Reparameterisation:
    """Use a parabola on each side of the mode for the tails."""

    def forward(
        u: TensorVariable, lower: TensorVariable, mode: TensorVariable, upper: TensorVariable
    ) -> TensorVariable:
        width = upper - lower
        below, above = pt.exp(log_below(u)), pt.exp(log_above(u))
        rising = lower + pt.sqrt(below * width * (mode - lower))
        falling = upper - pt.sqrt(above * width * (upper - mode))
        return inside(pt.where(below * width < mode - lower, rising, falling), lower, upper)

    def inverse(
        x: TensorVariable,
        w: TensorVariable,
        lower: TensorVariable,
        mode: TensorVariable,
        upper: TensorVariable,
    ) -> TensorVariable:
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
def _truncated_normal(
    op: Any, mu: TensorVariable, sigma: TensorVariable, lower: TensorVariable, upper: TensorVariable
) -> Reparameterisation:
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

    def weight(bound: Any, tail: Any) -> tuple[Any, Any]:
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
