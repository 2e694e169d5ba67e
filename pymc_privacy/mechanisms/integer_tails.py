"""Tails of the discrete Gaussian law, which have no closed form, to 11 digits of themselves."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba.extending import overload, register_jitable

from pymc_privacy.mechanisms.engines import exp, is_tensor, log, log_normal_tail, where

_HALF_LOG_TWO_PI = 0.5 * math.log(2 * math.pi)
# Where neighbouring terms differ less, and sigma is larger, their sum is an integral.
_STEEP, _NARROW = 0.5, 4.0
_TERMS = 80


@register_jitable
def discrete_gaussian_tail(m: Any, scale: Any, log_normalizer: Any) -> Any:
    """Return log P(k >= m) for P(k) = exp(-k² / 2 sigma² - log Z), m >= 1.

    Terms that fall fast are added up, relative to the first: the sum of
    exp(-(2 m j + j²) / 2 sigma²) over j >= 0, of which 80 terms leave less than 1e-16 where
    m / sigma² > 0.5 or sigma < 4. Elsewhere the sum is an integral, up to the corrections of Euler
    and Maclaurin for the midpoint rule, with a = m - 1/2 and z = a / sigma:

        sum_{k >= m} f(k) = int_a f - sum_j B_2j(1/2) / (2j)! f^(2j-1)(a),

    where f^(n) = (-1)^n He_n(z) f / sigma^n. Five corrections leave less than 1e-11 of the sum.
    """
    steep = (m > _STEEP * scale * scale) | (scale < _NARROW)
    direct = -0.5 * (m / scale) ** 2 + log(falling_sum(m, scale))
    z, h = where(steep, 1.0, (m - 0.5) / scale), 1.0 / scale
    mills = exp(log_normal_tail(z) + 0.5 * z * z + _HALF_LOG_TWO_PI)
    v, w = z * z, h * h
    third, fifth = v - 3, v * v - 10 * v + 15
    seventh = v * v * v - 21 * v * v + 105 * v - 105
    ninth = v * v * v * v - 36 * v * v * v + 378 * v * v - 1260 * v + 945
    corrections = -1 / 24 + w * (
        7 / 5760 * third
        - w * (31 / 967680 * fifth - w * (127 / 154828800 * seventh - w * 73 / 3503554560 * ninth))
    )
    smooth = -0.5 * v + log(scale * (mills + w * z * corrections))
    return where(steep, direct, smooth) - log_normalizer


def falling_sum(m: Any, scale: Any) -> Any:
    """Return the sum of exp(-(2 m j + j²) / 2 sigma²) over j = 0, 1, …, cut off at 80 terms."""
    j = np.arange(_TERMS, dtype=np.float64)
    rate = 0.5 / (scale * scale)
    m = m[..., None] if is_tensor(m) else np.asarray(m)[..., None]
    rate = rate[..., None] if np.ndim(rate) or is_tensor(rate) else rate
    return exp(-(2 * m * j + j * j) * rate).sum(axis=-1)


@overload(falling_sum)
def _jitted_falling_sum(m, scale):
    def added(m, scale):
        rate = 0.5 / (scale * scale)
        total = 0.0
        for j in range(_TERMS):
            term = math.exp(-(2 * m * j + j * j) * rate)
            total += term
            if term < 1e-17:
                break
        return total

    return added
