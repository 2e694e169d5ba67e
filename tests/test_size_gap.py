"""The bound of Theorem 4.1 against total variations that are added up in full."""

import math

import numpy as np
import pytest
from scipy import stats

import pymc_privacy as pmp
from pymc_privacy.errors import GuaranteeError, MechanismError
from tests import references

SIZES = np.arange(1, 80)
SUMS = np.arange(-150, 260)


def law_of_release(p, epsilon):
    """p(s | theta, n) for s = sum of n Bernoulli(p) + discrete Laplace noise: (sizes, sums)."""
    noise = np.exp(references.discrete_laplace(SUMS[:, None] - np.arange(81), 1 / epsilon))
    return stats.binom.pmf(np.arange(81), SIZES[:, None], p) @ noise.T


def size_posterior(mechanism, release, log_prior=None):
    log_weight = mechanism.log_density(release, SIZES)
    if log_prior is not None:
        log_weight = log_weight + log_prior(SIZES)
    weight = np.exp(log_weight - log_weight.max())
    return weight / weight.sum()


def total_variation(epsilon, mechanism, size, release, log_prior=None, p=0.7):
    laws = law_of_release(p, epsilon)
    mixed = size_posterior(mechanism, release, log_prior) @ laws
    return 0.5 * abs(laws[size - 1] - mixed).sum()


@pytest.mark.parametrize("epsilon", [0.2, 1.0, 3.0])
@pytest.mark.parametrize(
    "mechanism",
    [pmp.Laplace(scale=0.5), pmp.DiscreteLaplace(scale=2.0), pmp.Gaussian(scale=1.5)],
    ids=lambda m: type(m).__name__,
)
@pytest.mark.parametrize("size", [1, 2, 30])
def test_the_bound_holds(epsilon, mechanism, size):
    gap = pmp.size_gap(pmp.PureDP(epsilon), mechanism, size=size)
    exact = total_variation(epsilon, mechanism, size, size)
    assert exact <= gap.bound
    expected = size_posterior(mechanism, size) @ abs(SIZES - size)
    assert gap.expected_difference == pytest.approx(expected, rel=1e-6)
    assert gap.expected_difference >= expected * (1 - 1e-9)
    # The published bound, which is for every size, is never better.
    everywhere = pmp.size_gap(pmp.PureDP(epsilon), mechanism)
    assert gap.expected_difference <= everywhere.expected_difference
    assert gap.bound <= everywhere.bound + 1e-12


def test_the_bound_is_nearly_attained_so_that_a_smaller_one_is_wrong():
    """All records are 1 and n is 1 or 2: then the bound is the total variation but for e^-14."""
    mechanism, epsilon = pmp.Laplace(epsilon=7.0, sensitivity=1.0), 1.0
    gap = pmp.size_gap(pmp.PureDP(epsilon), mechanism, size=1)
    exact = total_variation(epsilon, mechanism, 1, 1, p=1.0)
    assert 0.99 * gap.bound < exact <= gap.bound


def test_it_bounds_the_joint_law_with_the_parameters():
    grid = np.linspace(0.01, 0.99, 25)
    mechanism, epsilon, size = pmp.Laplace(scale=0.6), 1.0, 8
    exact = np.mean([total_variation(epsilon, mechanism, size, size, p=p) for p in grid])
    assert exact <= pmp.size_gap(pmp.PureDP(epsilon), mechanism, size=size).bound


def test_a_release_other_than_the_size_and_a_prior_are_taken_in():
    mechanism, epsilon = pmp.Laplace(scale=1.3), 0.8

    def log_prior(n):
        return -0.2 * n

    gap = pmp.size_gap(pmp.PureDP(epsilon), mechanism, size=20, release=24.4, log_prior=log_prior)
    weight = size_posterior(mechanism, 24.4, log_prior)
    assert gap.expected_difference == pytest.approx(weight @ abs(SIZES - 20), rel=1e-6)
    assert total_variation(epsilon, mechanism, 20, 24.4, log_prior) <= gap.bound
    flat = pmp.size_gap(pmp.PureDP(epsilon), mechanism, size=20, release=24.4)
    assert flat.expected_difference > gap.expected_difference


@pytest.mark.parametrize(
    ("guarantee", "delta"),
    [
        (pmp.PureDP(1.0), (math.e - 1) / (math.e + 1)),
        (pmp.ApproximateDP(1.0, 0.1), (0.2 + math.e - 1) / (math.e + 1)),
        (pmp.GaussianDP(1.0), 2 * stats.norm.cdf(0.5) - 1),
        (pmp.ZeroConcentratedDP(0.5), min(math.sqrt(0.25), math.sqrt(1 - math.exp(-0.5)))),
        (pmp.Laplace(epsilon=1.0, sensitivity=1.0), (math.e - 1) / (math.e + 1)),
    ],
)
def test_every_guarantee_is_converted_by_lemma_a8(guarantee, delta):
    gap = pmp.size_gap(guarantee, pmp.Gaussian(scale=0.05), size=10)
    assert gap.total_variation == pytest.approx(delta)


@pytest.mark.parametrize("size", [1, 5, 200])
@pytest.mark.parametrize("scale", [0.1, 1.0, 30.0])
def test_lemma_4_2(size, scale):
    for mechanism in (pmp.Laplace(scale=scale), pmp.Gaussian(scale=scale)):
        n = np.arange(1, int(size + 60 * scale) + 60)
        log_weight = mechanism.log_density(size, n)
        weight = np.exp(log_weight - log_weight.max())
        expected = weight @ abs(n - size) / weight.sum()
        assert expected <= pmp.size_gap(pmp.PureDP(1.0), mechanism).expected_difference


def test_it_never_says_more_than_that_two_laws_differ_entirely():
    assert pmp.size_gap(pmp.PureDP(5.0), pmp.Laplace(scale=100.0)).bound == 1.0


def test_a_guarantee_for_replacing_records_says_nothing_about_their_number():
    with pytest.raises(GuaranteeError, match=r"adding or removing one record.*got 1-DP"):
        pmp.size_gap(pmp.PureDP(1.0, neighbours="replace_one"), pmp.Laplace(scale=1.0))


@pytest.mark.parametrize("guarantee", [None, 1.0, pmp.Laplace(scale=1.0)])
def test_a_release_without_a_guarantee_is_refused(guarantee):
    with pytest.raises(GuaranteeError, match=r"must come with a guarantee.*got"):
        pmp.size_gap(guarantee, pmp.Laplace(scale=1.0))


@pytest.mark.parametrize("size", [0, -1, 2.5, True])
def test_a_size_is_a_positive_integer(size):
    with pytest.raises(GuaranteeError, match="size must be an integer >= 1; got"):
        pmp.size_gap(pmp.PureDP(1.0), pmp.Laplace(scale=1.0), size=size)


def test_what_cannot_be_bounded_is_refused():
    promise = pmp.PureDP(1.0)
    with pytest.raises(GuaranteeError, match=r"size= .*must be given.*got None"):
        pmp.size_gap(promise, pmp.Laplace(scale=1.0), release=12.0)
    with pytest.raises(GuaranteeError, match=r"reach over at most.*Leave size= out"):
        pmp.size_gap(promise, pmp.Laplace(scale=1e6), size=1000)
    with pytest.raises(MechanismError, match=r"Gaussian noise of one scale.*got"):
        pmp.size_gap(promise, pmp.Laplace(scale=(1.0, 2.0)))
    with pytest.raises(GuaranteeError, match=r"possible under the prior.*around 10"):
        pmp.size_gap(
            promise,
            pmp.Laplace(scale=1.0),
            size=10,
            log_prior=lambda n: np.full(n.shape, -np.inf),
        )
