"""The capacity is exceeded as seldom as it says, before and after the release, and not wasted."""

import numpy as np
import pytest

import pymc_privacy as pmp
from pymc_privacy.errors import MechanismError, ReleaseError
from tests.mechanisms.test_tails import tail_of

CASES = [
    (pmp.Laplace(epsilon=0.1, sensitivity=1.0), 1012.3),
    (pmp.Laplace(scale=1000.0), -480.2),
    (pmp.Gaussian(scale=25.0), 40.7),
    (pmp.Gaussian(scale=3.0), -2.5),
    (pmp.DiscreteLaplace(scale=20.0), 3),
    (pmp.DiscreteGaussian(scale=0.4), 17),
]


def flat_posterior_tail(mechanism, release, size):
    """P(n > size | release) under a flat prior on 1, 2, …, by enumeration."""
    n = np.arange(1, int(size + 80 * mechanism.scale) + 80)
    log_weight = mechanism.log_density(release, n)
    weight = np.exp(log_weight - log_weight.max())
    return weight[n > size].sum() / weight.sum()


@pytest.mark.parametrize(("mechanism", "release"), CASES, ids=lambda v: repr(v)[:40])
@pytest.mark.parametrize("tail", [1e-2, 1e-6])
def test_more_records_are_as_unlikely_as_asked_for(mechanism, release, tail):
    capacity = pmp.capacity_for(release, mechanism, tail=tail)
    assert tail_of(mechanism, capacity + 1 - release) <= tail
    assert flat_posterior_tail(mechanism, release, capacity) <= tail


@pytest.mark.parametrize(("mechanism", "release"), CASES, ids=lambda v: repr(v)[:40])
@pytest.mark.parametrize("tail", [1e-2, 1e-6])
def test_a_smaller_capacity_would_not_do(mechanism, release, tail):
    """The twin that is a scale too small must break one of the two statements."""
    smaller = pmp.capacity_for(release, mechanism, tail=tail) - 1 - int(mechanism.scale)
    before = tail_of(mechanism, smaller + 1 - release)
    after = flat_posterior_tail(mechanism, release, smaller)
    assert max(before, after) > tail


def test_there_is_room_for_one_record_at_least():
    assert pmp.capacity_for(-3.0, pmp.Laplace(scale=0.2)) >= 1


@pytest.mark.parametrize("mechanism", [None, pmp.Laplace(scale=(1.0, 2.0)), "laplace"])
def test_a_capacity_needs_noise_of_one_scale(mechanism):
    with pytest.raises(MechanismError, match=r"adds noise of one scale.*got"):
        pmp.capacity_for(10.0, mechanism)


@pytest.mark.parametrize("tail", [0, 1, -0.1, np.nan, "small"])
def test_a_tail_is_a_probability(tail):
    with pytest.raises(MechanismError, match=r"tail must be a number in \(0, 1\).*got"):
        pmp.capacity_for(10.0, pmp.Laplace(scale=1.0), tail=tail)


@pytest.mark.parametrize("release", [np.nan, np.inf, "ten", [1.0, 2.0]])
def test_a_release_of_the_size_is_a_number(release):
    with pytest.raises(ReleaseError, match=r"must be a finite number.*got"):
        pmp.capacity_for(release, pmp.Laplace(scale=1.0))
    with pytest.raises(ReleaseError, match=r"must be an integer.*got 2.5"):
        pmp.capacity_for(2.5, pmp.DiscreteLaplace(scale=1.0))


def test_a_release_that_no_size_can_explain_is_refused():
    with pytest.raises(ReleaseError, match=r"within reach of a positive number.*got -1000"):
        pmp.capacity_for(-1000, pmp.DiscreteGaussian(scale=1.0))
