"""Student's t: x = loc + scale z / sqrt(h), h = g / (df / 2), with z Normal and g gamma of df / 2.

Given t = (x - loc) / scale, h is a gamma variate of shape (df + 1) / 2 and rate (df + t²) / 2. With
the degrees of freedom fixed, u is t itself.
"""

from __future__ import annotations

import pytensor.tensor as pt

from pymc_privacy._compat import HalfStudentTRV, StudentTRV, TensorVariable
from pymc_privacy.reparameterise.base import Reparameterisation, is_random, reparameterise
from pymc_privacy.reparameterise.fixed_shape import SCALED
from pymc_privacy.reparameterise.gamma_variates import base_of, gamma_of, log_weight_of


@reparameterise.register(StudentTRV)
def _student(op, df, loc, scale):
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
def _half_student(op, df, scale):
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
