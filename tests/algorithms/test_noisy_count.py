"""The recurrence over counts against the sum written out, with its derivatives and its ends."""

import numpy as np
import pytest
from numba.extending import register_jitable
from scipy import special, stats

import pymc_privacy as pmp
from pymc_privacy.algorithms.numerics.noisy_count import compile_count_sum, compile_pivot

FAMILIES = [pmp.Laplace, pmp.Gaussian, pmp.DiscreteLaplace, pmp.DiscreteGaussian]


def poisson(mu):
    return 0.0, mu, stats.poisson(mu), None


def binomial(n, p):
    odds = p / (1 - p)
    return -odds, (n + 1) * odds, stats.binom(n, p), n


def negative_binomial(n, p):
    return 1 - p, (n - 1) * (1 - p), stats.nbinom(n, p), None


LAWS = [
    poisson(0.01),
    poisson(4.0),
    poisson(300.0),
    binomial(12, 0.3),
    binomial(40, 0.97),
    negative_binomial(0.2, 0.05),
    negative_binomial(3.5, 0.4),
]


def summed(law, mechanism, release, *, function=None, a=None, b=None, reach=4000, pivot=None):
    """Return log sum_c p(c) eta(y - c), from the recurrence, and its derivatives by a and b."""
    own_a, own_b, frozen, largest = law
    top = reach if largest is None else largest
    arguments = [float(release), own_a if a is None else a, own_b if b is None else b]
    y, a, b = (np.array([value]) for value in arguments)
    scale, normalizer = (np.array([float(p)]) for p in mechanism.parameters)
    low, high = np.array([0]), np.array([top])
    if pivot is None:
        found = compile_pivot(mechanism.formula)(y, low, high, a, b, scale, normalizer)
    else:
        found = np.array([pivot])
    log_pivot = frozen.logpmf(found)
    function = function or compile_count_sum(mechanism.formula, quadratic=True)
    value, by_a, by_b = function(y, found, log_pivot, low, high, a, b, scale, normalizer)
    return value[0] + log_pivot[0], by_a[0], by_b[0]


def written_out(law, mechanism, release):
    counts = np.arange(4001)
    with np.errstate(divide="ignore"):
        terms = law[2].logpmf(counts) + mechanism.log_density(release, counts)
    return special.logsumexp(terms)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("law", LAWS, ids=range(len(LAWS)))
def test_the_sum_is_that_over_all_counts(family, law):
    for scale in (0.3, 2.0, 60.0):
        mechanism = family(scale=scale)
        # Near the count, far above it, and below zero.
        for release in (0, 3, 11, 130, -9):
            y = release if mechanism.discrete else release + 0.37
            value, _, _ = summed(law, mechanism, y)
            assert value == pytest.approx(written_out(law, mechanism, y), rel=1e-11, abs=1e-10)


@pytest.mark.parametrize("law", LAWS, ids=range(len(LAWS)))
def test_the_derivatives_are_those_of_the_sum(law):
    mechanism = pmp.Gaussian(scale=5.0)
    a, b, _, largest = law
    at = 6.4 if largest is None else min(6.4, largest - 0.6)
    _, by_a, by_b = summed(law, mechanism, at)
    h = 1e-6 * max(abs(b), 1e-3)
    for derivative, low, high in (
        (by_a, {"a": a - h}, {"a": a + h}),
        (by_b, {"b": b - h}, {"b": b + h}),
    ):
        difference = summed(law, mechanism, at, **high)[0] - summed(law, mechanism, at, **low)[0]
        assert derivative == pytest.approx(difference / (2 * h), rel=2e-4, abs=1e-6)


def test_nothing_overflows_where_release_and_rate_are_far_apart():
    value, _, by_b = summed(poisson(2.0), pmp.Laplace(scale=500.0), 3900.0)
    assert value == pytest.approx(written_out(poisson(2.0), pmp.Laplace(scale=500.0), 3900.0))
    assert np.isfinite(by_b)
    value, _, _ = summed(poisson(3000.0), pmp.Laplace(scale=500.0), -200.0)
    assert value == pytest.approx(written_out(poisson(3000.0), pmp.Laplace(scale=500.0), -200.0))


def test_a_parameter_that_is_not_a_number_is_not_hidden():
    value, by_a, _ = summed(poisson(2.0), pmp.Laplace(scale=1.0), 3.0, b=np.nan)
    assert np.isnan(value)
    assert np.isnan(by_a)


def test_a_sum_that_stops_too_early_is_caught():
    """The mutant: an end at a thousandth."""
    law, mechanism = poisson(40.0), pmp.Laplace(scale=20.0)
    early = compile_count_sum(mechanism.formula, quadratic=True, negligible=1e-3)
    right, wrong = (
        summed(law, mechanism, 33.5, function=function)[0] for function in (None, early)
    )
    exact = written_out(law, mechanism, 33.5)
    assert right == pytest.approx(exact, rel=1e-11)
    assert wrong != pytest.approx(exact, rel=1e-6)


def test_a_sum_that_takes_other_noise_for_quadratic_is_caught():
    """The mutant: the noise's ratio is carried on where it does not follow from its neighbour."""

    @register_jitable
    def cauchy(release, statistic, scale, log_normalizer):
        return -np.log1p(((release - statistic) / scale) ** 2) - log_normalizer

    class Cauchy(pmp.Laplace):
        formula = staticmethod(cauchy)

    law, mechanism = poisson(40.0), Cauchy(scale=3.0)
    exact = written_out(law, mechanism, 12.5)
    honest = compile_count_sum(cauchy, quadratic=False)
    assert summed(law, mechanism, 12.5, function=honest)[0] == pytest.approx(exact, rel=1e-11)
    assert summed(law, mechanism, 12.5)[0] != pytest.approx(exact, rel=1e-6)
