"""The law of one Normal record, clipped and released with Laplace noise, in closed form.

With x ~ N(mu, sd²), y = clip(x, l, u) + Laplace(b), K(v) = k exp(-k |v|) / 2 and k = sd / b, in
units of sd,

    p(y) = Phi(l) K(y - l) + Phi(-u) K(y - u) + int_l^u phi(z) K(y - z) dz.

Left of y the integrand is phi(z - k) exp(k² / 2 - k y), a piece of a Normal density; right of y it
is mirrored. Beyond the interval p falls off like K: all is written relative to the nearest point of
the interval, and nothing overflows.
"""

from __future__ import annotations

import math

import numpy as np

from pymc_privacy.algorithms.machine_code.caching import compiled

_ROOT_2 = math.sqrt(2.0)
_ROOT_2_PI = math.sqrt(2.0 * math.pi)
_FAR = 11.5  # from here on the series below is right to rounding, up to here no product underflows
_SERIES = np.cumprod([1.0, *(-(2 * k - 1.0) for k in range(1, 17))])


@compiled
def _mills(z):
    """Return (1 - Phi(z)) / phi(z) for z >= 0, in a tenth of the time of a continued fraction."""
    if z < _FAR:
        return 0.5 * _ROOT_2_PI * math.erfc(z / _ROOT_2) * math.exp(0.5 * z * z)
    total, power = 0.0, 1.0 / (z * z)
    for k in range(_SERIES.size - 1, -1, -1):
        total = total * power + _SERIES[k]
    return total / z


@compiled
def _mass(z):
    """Return Phi(z)."""
    return 0.5 * math.erfc(-z / _ROOT_2)


@compiled
def _tilted(low, high, k):
    """Return int_low^high phi(z) exp(-k (high - z)) dz."""
    near, far = k - high, k - low
    if near > 0:
        # Both ends are below the middle of the piece: Mills' ratios do not underflow.
        falling = math.exp(k * (low - high) - 0.5 * low * low) * _mills(far)
        return (math.exp(-0.5 * high * high) * _mills(near) - falling) / _ROOT_2_PI
    factor = math.exp(0.5 * k * k - k * high)
    if far < 0:
        return factor * (_mass(far) - _mass(near))
    return factor * (1.0 - _mass(near) - _mass(-far))


@compiled
def log_clipped_normal(release, lower, upper, scale, mu, sd):
    """Return log p(release)."""
    low, high = (lower - mu) / sd, (upper - mu) / sd
    y, k = (release - mu) / sd, sd / scale
    nearest = min(max(y, low), high)
    total = _mass(low) * math.exp(k * (low - nearest)) + _mass(-high) * math.exp(
        k * (nearest - high)
    )
    if nearest > low:
        total += _tilted(low, nearest, k)
    if nearest < high:
        total += _tilted(-high, -nearest, k)
    return math.log(total) - k * abs(y - nearest) - math.log(2.0 * scale)


@compiled
def log_binned_normal(lower, upper, gain, total, mu, sd):
    """Return log (1 + gain P(lower < x <= upper)) - total; the ends may be infinite.

    With gain = e^epsilon - 1 and total = log(e^epsilon + k - 1) it is the probability of an answer
    of k-ary randomized response.
    """
    low, high = (lower - mu) / sd, (upper - mu) / sd
    # A difference of two small tails, and not of two numbers near 1.
    inside = _mass(-low) - _mass(-high) if low > 0 else _mass(high) - _mass(low)
    return math.log1p(gain * inside) - total


@compiled
def sum_clipped_normal(out, mu, sd, release, lower, upper, scale):
    """Add the log density of every release, of rows of parameters, to ``out``."""
    for i in range(out.size):
        for t in range(release.size):
            out[i] += log_clipped_normal(
                release[t], lower[t], upper[t], scale[t], mu[i, t], sd[i, t]
            )


@compiled
def sum_binned_normal(out, mu, sd, lower, upper, gain, total, count):
    """Add the log probability of every answer, so many times, of rows of parameters, to ``out``."""
    for i in range(out.size):
        for t in range(lower.size):
            out[i] += count[t] * log_binned_normal(
                lower[t], upper[t], gain[t], total[t], mu[i, t], sd[i, t]
            )
