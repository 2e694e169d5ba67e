"""Families whose shape must not move: u is standardised, and follows the law of that shape.

A moving shape would need the inverse of a distribution function for every record, which costs
more than it gains.
"""

from __future__ import annotations

from pymc_privacy._compat import (
    HalfStudentTRV,
    SkewNormalRV,
    StudentTRV,
)
from pymc_privacy.reparameterise.base import Reparameterisation, is_random, reparameterise


@reparameterise.register(StudentTRV)
def _student(op, df, loc, scale):
    if is_random(df):
        return None
    return Reparameterisation(
        forward=lambda u, df, loc, scale: loc + scale * u,
        inverse=lambda x, w, df, loc, scale: (x - loc) / scale,
    )


@reparameterise.register(SkewNormalRV)
def _skew_normal(op, loc, scale, shape):
    if is_random(shape):
        return None
    return Reparameterisation(
        forward=lambda u, loc, scale, shape: loc + scale * u,
        inverse=lambda x, w, loc, scale, shape: (x - loc) / scale,
    )


@reparameterise.register(HalfStudentTRV)
def _half_student(op, df, scale):
    if is_random(df):
        return None
    return Reparameterisation(
        forward=lambda u, df, scale: scale * u,
        inverse=lambda x, w, df, scale: x / scale,
    )
