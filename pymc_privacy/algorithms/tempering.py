"""Noise to a power between 0 and 1, and the mean of it, step by step.

With L_b the mean over databases of eta(s | S)^b, L_0 = 1 and L_1 is the likelihood. Each ratio
L_b' / L_b is the mean of eta^(b' - b) over databases that are drawn in proportion to eta^b (Xie et
al., 2011, "stepping stones"): of many small steps none has weights that degenerate.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache
from typing import NamedTuple

import numpy as np
from numba.extending import register_jitable
from scipy.optimize import brentq
from scipy.special import logsumexp

from pymc_privacy.algorithms.noise import JointLaw, Noise, ReleaseLaw

# Of the draws of a step, this share must count for the next one.
LEAST_SHARE = 0.5
MOST_STEPS = 200
# A chain goes on until it is worth so many independent draws, or is so many times as long. One that
# hardly moves, worth less than the last of these, does not know its error.
LEAST_INDEPENDENT, LONGEST, TOO_FEW = 20, 20, 10


class Value(NamedTuple):
    """A log likelihood, and its Monte Carlo error."""

    value: float
    error: float


@cache
def _tempered(law: ReleaseLaw) -> ReleaseLaw:
    formula = law.formula

    @register_jitable
    def warm(release, statistic, power, *parameters):  # type: ignore[no-untyped-def]
        return power * formula(release, statistic, *parameters)

    return ReleaseLaw(warm, law.parameters + 1)


def can_be_tempered(noise: Noise) -> bool:
    """Tell whether all laws are known by coordinate."""
    return not any(isinstance(law, JointLaw) for law in noise.laws)


def tempered(noise: Noise, power: float) -> Noise:
    """Return noise whose log density is that of another one times a power."""
    laws = tuple(_tempered(law) for law in noise.laws if isinstance(law, ReleaseLaw))
    column = np.full((len(noise.release), 1), float(power))
    return noise._replace(laws=laws, parameters=np.hstack([column, noise.parameters]))


def mean_of_logs(logs: np.ndarray) -> Value:
    """Return the log of the mean of exp(logs), and its error.

    Examples
    --------
    >>> found = mean_of_logs(np.log([1.0, 3.0]))
    >>> round(float(np.exp(found.value)), 9), round(found.error, 9)
    (2.0, 0.5)
    """
    value = float(logsumexp(logs) - math.log(len(logs)))
    if not math.isfinite(value):
        return Value(-math.inf, math.inf)
    weights = np.exp(logs - value)
    return Value(value, float(weights.std(ddof=1) / math.sqrt(len(logs))))


def correlation_time(values: np.ndarray) -> float:
    """Return how many draws of a chain are worth one, by its first positive autocorrelations.

    Sums of neighbouring pairs are taken until one is not positive (Geyer, 1992). A chain that has
    not moved is one draw.

    Examples
    --------
    >>> round(correlation_time(np.repeat([1.0, 1.0, 4.0], 5)), 9)
    4.2
    """
    apart = values - values.mean()
    draws = len(apart)
    spectrum = np.abs(np.fft.rfft(apart, 2 * draws)) ** 2
    covariances = np.fft.irfft(spectrum)[: draws // 2 * 2]
    if not covariances[0] > 0:
        return float(draws)
    pairs = covariances.reshape(-1, 2).sum(axis=1) / covariances[0]
    first = int(np.argmax(pairs <= 0)) if (pairs <= 0).any() else len(pairs)
    return float(np.clip(2 * pairs[:first].sum() - 1, 1.0, draws))


def effective(logs: np.ndarray) -> float:
    """Return how many draws of equal weight are as good as these."""
    if not np.isfinite(logs).any():
        return 0.0
    return float(np.exp(2 * logsumexp(logs) - logsumexp(2 * logs)))


def stepping_stones(draw: Callable[[float], np.ndarray]) -> Value:
    """Return the log of L_1, from draws of log eta in proportion to eta^b for any power b.

    The draws may be those of a chain, which goes on when it is asked for the same power again.
    Where it hardly moves the error is infinite.
    """
    power = total = variance = 0.0
    for _ in range(MOST_STEPS):
        logs = draw(power)
        shortest = len(logs)
        while True:
            following = _next(power, logs)
            found = mean_of_logs((following - power) * logs)
            time = correlation_time(np.exp((following - power) * logs - found.value))
            if len(logs) / time >= LEAST_INDEPENDENT or len(logs) >= LONGEST * shortest:
                break
            logs = np.concatenate([logs, draw(power)])
        total, variance = total + found.value, variance + found.error**2 * time
        if found.error and len(logs) / time < TOO_FEW:
            variance = math.inf
        power = following
        if power >= 1:
            return Value(total, math.sqrt(variance))
    return Value(total, math.inf)


def _next(power: float, logs: np.ndarray) -> float:
    """Return the largest power for which enough of the draws count."""

    def share(step: float) -> float:
        return effective(step * logs) / len(logs) - LEAST_SHARE

    if share(1 - power) >= 0:
        return 1.0
    lowest = 1e-12
    return power + (brentq(share, lowest, 1 - power) if share(lowest) > 0 else lowest)
