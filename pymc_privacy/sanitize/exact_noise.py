"""Integer noise whose probabilities are exact: Canonne, Kamath & Steinke (2020), Algorithms 1-3.

Every decision is a comparison of integers, so that no rounding is there to leak through. Randomness
is a function ``randbelow(n)``, uniform on {0, ..., n - 1}. For a release it is `secrets.randbelow`,
which asks the operating system each time: there is no seed to know and no buffer that a forked
process could repeat. Running times depend on the noise; timing is not protected.
"""

from __future__ import annotations

import math
import secrets
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Protocol

import numpy as np

from pymc_privacy.mechanisms import DiscreteGaussian, DiscreteLaplace

RandBelow = Callable[[int], int]
_WIDEST = 2**50  # of a scale, for noise that 64 bits hold


class Noise(Protocol):
    """A source of integer noise, on whatever randomness."""

    def laplace(self, scale: Fraction, count: int) -> list[int]:
        """Draw integers k with probability ∝ ``exp(-|k| / scale)``."""

    def gaussian(self, scale: Fraction, count: int) -> list[int]:
        """Draw integers k with probability ∝ ``exp(-k^2 / (2 scale^2))``."""


@dataclass(frozen=True)
class ExactNoise:
    """Noise for publishing: exact, from the operating system's entropy, without a seed."""

    randbelow: RandBelow = secrets.randbelow

    def laplace(self, scale: Fraction, count: int) -> list[int]:
        """Draw exact discrete Laplace noise."""
        return [discrete_laplace(self.randbelow, scale) for _ in range(count)]

    def gaussian(self, scale: Fraction, count: int) -> list[int]:
        """Draw exact discrete Gaussian noise."""
        return [discrete_gaussian(self.randbelow, scale * scale) for _ in range(count)]


@dataclass(frozen=True)
class SimulatedNoise:
    """Noise for studies and audits: the mechanisms' own seedable simulators, never to publish.

    Where their 64 bits would saturate, the exact samplers are run on seedable bits instead.
    """

    rng: np.random.Generator

    def laplace(self, scale: Fraction, count: int) -> list[int]:
        """Draw from `DiscreteLaplace.simulate`."""
        if scale > _WIDEST:
            return ExactNoise(self._below).laplace(scale, count)
        zeros = np.zeros(count, dtype=np.int64)
        return DiscreteLaplace(scale=float(scale)).simulate(self.rng, zeros).tolist()

    def gaussian(self, scale: Fraction, count: int) -> list[int]:
        """Draw from `DiscreteGaussian.simulate`."""
        if scale > _WIDEST:
            return ExactNoise(self._below).gaussian(scale, count)
        zeros = np.zeros(count, dtype=np.int64)
        return DiscreteGaussian(scale=float(scale)).simulate(self.rng, zeros).tolist()

    def _below(self, n: int) -> int:
        """Draw an integer below n by rejection from whole bytes."""
        bits = n.bit_length()
        while True:
            drawn = int.from_bytes(self.rng.bytes(bits // 8 + 1)) >> (8 - bits % 8)
            if drawn < n:
                return drawn


def discrete_laplace(randbelow: RandBelow, scale: Fraction) -> int:
    """Draw k with probability ∝ ``exp(-|k| / scale)``, exactly.

    With scale = t / s, x = u + t v is geometric with ratio exp(-1 / t) when u on {0, ..., t - 1}
    has weights exp(-u / t) and v is geometric with ratio exp(-1); x // s then has ratio
    exp(-1 / scale). A sign is added, and minus zero is refused so that zero counts once.
    """
    t, s = scale.numerator, scale.denominator
    while True:
        u = randbelow(t)
        if not _bernoulli_exp_fraction(randbelow, u, t):
            continue
        v = 0
        while _bernoulli_exp_fraction(randbelow, 1, 1):
            v += 1
        size = (u + t * v) // s
        negative = randbelow(2) == 1
        if not (negative and size == 0):
            return -size if negative else size


def discrete_gaussian(randbelow: RandBelow, variance: Fraction) -> int:
    """Draw k with probability ∝ ``exp(-k^2 / (2 variance))``, exactly, by rejection.

    A discrete Laplace y of scale t is accepted with exp(-(|y| - variance / t)^2 / (2 variance));
    the product is ∝ exp(-y^2 / (2 variance)) for every t > 0.
    """
    t = math.isqrt(math.floor(variance)) + 1
    n, d = variance.numerator, variance.denominator
    while True:
        y = discrete_laplace(randbelow, Fraction(t))
        if bernoulli_exp(randbelow, (abs(y) * t * d - n) ** 2, 2 * n * d * t * t):
            return y


def bernoulli_exp(randbelow: RandBelow, numerator: int, denominator: int) -> bool:
    """Return True with probability exp(-numerator / denominator), exactly."""
    whole, rest = divmod(numerator, denominator)
    return all(_bernoulli_exp_fraction(randbelow, 1, 1) for _ in range(whole)) and (
        _bernoulli_exp_fraction(randbelow, rest, denominator)
    )


def _bernoulli_exp_fraction(randbelow: RandBelow, numerator: int, denominator: int) -> bool:
    """Return True with probability exp(-g), g = numerator / denominator in [0, 1].

    K counts the successes in a row of Bernoulli(g / 1), Bernoulli(g / 2), ...;
    P(K >= k) = g^k / k!, so that K is even with probability exp(-g).
    """
    k = 1
    while randbelow(denominator * k) < numerator:
        k += 1
    return k % 2 == 1
