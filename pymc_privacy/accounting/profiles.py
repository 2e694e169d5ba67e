"""Privacy profiles delta(epsilon) in floats, and root searches that end on the safe side."""

import math
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
from scipy.optimize import brentq
from scipy.special import erfcx, ndtr

TINY = math.ulp(0.0)  # the smallest positive float
ROUNDING = 2.0**-48  # relative; profiles in floats are this accurate in delta or in epsilon

_NODES, _WEIGHTS = (np.polynomial.legendre.leggauss(12) + np.array([[1.0], [0.0]])) / 2  # on [0, 1]


def gaussian_profile(epsilon: Any, mu: float) -> np.ndarray:
    """Return Phi(-a) - exp(epsilon) Phi(-b), a and b being epsilon / mu -+ mu / 2, elementwise.

    As exp(epsilon) phi(b) = phi(a), this is phi(a) (R(a) - R(b)) with Mills' ratio
    R(x) = Phi(-x) / phi(x), and nothing overflows. For mu < 1 the difference would cancel; it is
    the integral of -R'(x) = 1 - x R(x) > 0 over [a, b]. A negative argument is turned round by the
    symmetry of the pair, delta(-e) = 1 - exp(-e) + exp(-e) delta(e).
    """
    size = np.abs(epsilon)
    # From a = 40 on the value is 0 in floats; the inner bound keeps the quotient finite.
    a = np.minimum(np.minimum(size, sys.float_info.max * min(mu, 1.0)) / mu - mu / 2, 40.0)
    if mu < 1:
        x = a[..., None] + mu * _NODES
        slope = 1 - x * math.sqrt(math.pi / 2) * erfcx(x / math.sqrt(2))
        value = np.exp(-a * a / 2) / math.sqrt(2 * math.pi) * (mu * (slope @ _WEIGHTS))
    else:
        value = ndtr(-a) * (1 - erfcx((a + mu) / math.sqrt(2)) / erfcx(a / math.sqrt(2)))
    return np.where(np.less(epsilon, 0), -np.expm1(-size) + np.exp(-size) * value, value)


def concentrated_delta(rho: float, epsilon: float) -> float:
    """Return the least delta over u = alpha - 1 > 0 of Canonne et al. (2020), Corollary 13.

    log delta = u ((u + 1) rho - epsilon - log(1 + 1/u)) - log(1 + u) holds at every u and is
    convex in u; its derivative vanishes where (2 u + 1) rho - log(1 + 1/u) = epsilon.
    """
    # delta <= exp(-(epsilon - rho)^2 / (4 rho)), Bun & Steinke (2016), Proposition 1.3.
    if epsilon > rho and (epsilon - rho) / rho * (epsilon - rho) > 4 * 750:
        return TINY

    def slope(log_u: float) -> float:
        return (2 * math.exp(log_u) + 1) * rho - float(np.logaddexp(0, -log_u)) - epsilon

    low = max(-3 * rho - 1, -sys.float_info.max)
    log_u = _root(slope, low, math.log(epsilon / rho + math.sqrt(2) / math.sqrt(rho)))
    u = math.exp(log_u)
    log_delta = u * ((u + 1) * rho - epsilon - float(np.logaddexp(0, -log_u))) - math.log1p(u)
    return max(math.exp(min(log_delta, 0.0)), TINY)


def concentrated_epsilon(rho: float, delta: float) -> float:
    """Return the epsilon at which `concentrated_delta` is delta, negative if delta is large.

    Where the derivative in u vanishes, log delta = -u^2 rho - log(1 + u), which fixes u.
    """
    nats = -math.log(delta)

    def excess(log_u: float) -> float:
        u = math.exp(log_u)
        return u * rho * u + math.log1p(u) - nats

    # u^2 rho + log(1 + u) lies below u^2 rho + u and above each of its two terms.
    low = 2 * nats / (1 + math.hypot(1, 2 * math.sqrt(rho) * math.sqrt(nats)))
    high = min(math.sqrt(nats) / math.sqrt(rho), math.expm1(min(nats, 709.0)))
    u = math.exp(_root(excess, math.log(low) - 1, math.log(high) + 1))
    return (u + 1) * rho + (nats - math.log1p(u)) / u - math.log1p(1 / u)


def least_epsilon(
    profile: Callable[[float], float], delta: float, guess: Callable[[], float]
) -> float:
    """Return 0 or the guess, raised until profile(epsilon) <= delta."""
    target = delta * (1 - ROUNDING)
    if profile(0.0) <= target:
        return 0.0
    return rounded(max(guess(), delta * ROUNDING), lambda epsilon: profile(epsilon) <= target)


def rounded(value: float, holds: Callable[[float], bool], direction: int = 1) -> float:
    """Move the value up or down until it holds, and still holds when moved by the rounding."""
    step = ROUNDING
    while not holds(value):
        value, step = value * (1 + step) ** direction, 2 * step
    moved = value * (1 + ROUNDING) ** direction
    return moved if holds(moved) else rounded(moved, holds, direction)


def upwards(value: float) -> float:
    """Return more than the number that a formula of a few steps has been rounded to, and > 0."""
    return max(value * (1 + ROUNDING), TINY)


def solve(profile: Callable[[float], float], delta: float, most: float) -> float:
    """Return the epsilon in [0, most] at which the profile is delta, up to rounding."""
    return _root(lambda epsilon: log_or_least(profile(epsilon)) - math.log(delta), 0.0, most)


def rising_root(function: Callable[[float], float], low: float, high: float) -> float:
    """Return the root above low of an increasing function, looking beyond high if need be."""
    step = 1.0
    while function(high) <= 0:
        high, step = high + step, 2 * step
    return _root(function, low, high)


def _root(function: Callable[[float], float], low: float, high: float) -> float:
    return brentq(function, low, high, xtol=1e-300, rtol=1e-15, maxiter=5000)


def log_or_least(value: float) -> float:
    """Return the logarithm, or less than that of any float when the value vanished."""
    return math.log(value) if value > 0 else 2 * math.log(TINY)
