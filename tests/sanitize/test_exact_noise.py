"""Exact noise has its law: against probabilities computed with other formulas."""

import math
import random
import secrets
from fractions import Fraction

import numpy as np
import pytest
from scipy import stats

from pymc_privacy.sanitize.exact_noise import (
    ExactNoise,
    SimulatedNoise,
    bernoulli_exp,
    discrete_gaussian,
    discrete_laplace,
)
from tests import references
from tests.stochastic import FALSE_ALARM, assert_mean, seed_of

DRAWS = 20_000
SAMPLERS = {
    "laplace": (lambda below, scale: discrete_laplace(below, scale), references.discrete_laplace),
    "gaussian": (
        lambda below, scale: discrete_gaussian(below, scale**2),
        references.discrete_gaussian,
    ),
}


def seeded_below(request):
    """Return a uniform integer below n that belongs to one test."""
    return random.Random(seed_of(request)).randrange


def assert_frequencies(draws, log_probability):
    """Chi-square over all integers that are expected five times or more."""
    values = np.arange(-400, 401)
    expected = np.exp(log_probability(values)) * len(draws)
    common = expected >= 5
    counts = np.array([np.sum(draws == value) for value in values[common]])
    observed = np.append(counts, len(draws) - counts.sum())
    wanted = np.append(expected[common], len(draws) - expected[common].sum())
    if wanted[-1] < 5:
        observed, wanted = observed[:-1], wanted[:-1] * observed[:-1].sum() / wanted[:-1].sum()
    statistic = np.sum((observed - wanted) ** 2 / wanted)
    tail = stats.chi2.sf(statistic, len(wanted) - 1)
    assert tail > FALSE_ALARM, f"chi-square {statistic:.1f} on {len(wanted) - 1}, tail {tail:.1e}"


@pytest.mark.parametrize("scale", [Fraction(1, 3), Fraction(1), Fraction(7, 3), Fraction(12.7)])
@pytest.mark.parametrize("kind", SAMPLERS)
def test_exact_noise_has_the_stated_law(kind, scale, request):
    sampler, law = SAMPLERS[kind]
    below = seeded_below(request)
    draws = np.array([sampler(below, scale) for _ in range(DRAWS)])
    assert_frequencies(draws, lambda k: law(k, float(scale)))


@pytest.mark.parametrize("kind", SAMPLERS)
def test_a_sampler_with_a_scale_ten_percent_off_is_noticed(kind, request):
    sampler, law = SAMPLERS[kind]
    below = seeded_below(request)
    draws = np.array([sampler(below, Fraction(33, 10)) for _ in range(DRAWS)])
    with pytest.raises(AssertionError, match="chi-square"):
        assert_frequencies(draws, lambda k: law(k, 3.0))


@pytest.mark.parametrize("exponent", [(0, 1), (1, 7), (1, 1), (5, 2)])
def test_exponential_coins_are_exact(exponent, request):
    below = seeded_below(request)
    heads = np.array([bernoulli_exp(below, *exponent) for _ in range(DRAWS)], dtype=float)
    assert_mean(heads, math.exp(-exponent[0] / exponent[1]))


def test_probabilities_follow_from_integers_alone():
    # Whatever the randomness says, only integers are asked for and compared.
    asked = []

    def below(n):
        asked.append(n)
        return secrets.randbelow(n)

    for sampler, _ in SAMPLERS.values():
        assert isinstance(sampler(below, Fraction(10**40, 3)), int)
    assert asked
    assert all(isinstance(n, int) for n in asked)


def test_release_noise_comes_from_the_operating_system():
    assert ExactNoise().randbelow is secrets.randbelow


def test_the_noise_of_a_release_is_large_enough_at_lattice_scales(request):
    # A scale as releases of real numbers have it: integers of ten digits.
    scale = 2.0**33
    draws = np.array(ExactNoise(seeded_below(request)).laplace(Fraction(scale), DRAWS), dtype=float)
    assert_mean(np.abs(draws) / scale, 1.0, what="mean of |noise| / scale")
    assert_mean((draws / scale) ** 2, 2.0, what="variance")


@pytest.mark.parametrize("kind", ["laplace", "gaussian"])
def test_simulated_noise_has_the_same_law(kind, request):
    noise = SimulatedNoise(np.random.default_rng(seed_of(request)))
    draws = np.array(getattr(noise, kind)(Fraction(7, 3), DRAWS))
    assert_frequencies(draws, lambda k: SAMPLERS[kind][1](k, 7 / 3))
