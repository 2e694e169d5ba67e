"""The bound on the noise's tail holds, is close, and a weaker one is caught."""

import numpy as np
import pytest
from scipy import stats

import pymc_privacy as pmp
from pymc_privacy.errors import MechanismError
from pymc_privacy.mechanisms.tails import log_tail_bound, reach
from tests import references

FAMILIES = [pmp.Laplace, pmp.Gaussian, pmp.DiscreteLaplace, pmp.DiscreteGaussian]
SCALES = [0.3, 1.0, 7.5, 120.0]


def tail_of(mechanism, distance):
    """P(noise >= distance), from SciPy or by adding up."""
    scale = mechanism.scale
    if isinstance(mechanism, pmp.Laplace):
        return stats.laplace.sf(distance, scale=scale)
    if isinstance(mechanism, pmp.Gaussian):
        return stats.norm.sf(distance, scale=scale)
    laplace = isinstance(mechanism, pmp.DiscreteLaplace)
    law = references.discrete_laplace if laplace else references.discrete_gaussian
    beyond = np.arange(np.ceil(distance), np.ceil(distance) + 60 * scale + 60)
    return np.exp(law(beyond, scale)).sum()


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("scale", SCALES)
def test_the_bound_holds_and_is_close(family, scale):
    mechanism = family(scale=scale)
    for distance in np.unique(np.ceil(scale * np.array([0.2, 1, 3, 6]))):
        bound, exact = np.exp(log_tail_bound(mechanism, distance)), tail_of(mechanism, distance)
        assert bound >= exact * (1 - 1e-12)
        if scale > 1 and distance >= 3 * scale:
            assert bound < 2 * exact


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("tail", [1e-3, 1e-12])
def test_noise_is_within_reach_but_for_the_tail(family, scale, tail):
    mechanism = family(scale=scale)
    h = int(reach(mechanism, tail))
    beyond = 1 if mechanism.discrete else 0
    assert 2 * tail_of(mechanism, h + beyond) <= tail
    # Not by a wasteful margin: a tenth of it is out of reach.
    nearer = int(np.floor(h - 1 - 0.1 * scale))
    if nearer >= 1:
        assert 2 * tail_of(mechanism, nearer + beyond) > tail / 10


def test_each_coordinate_has_its_own_reach():
    scales = (0.5, 3.0, 40.0)
    together = reach(pmp.DiscreteGaussian(scale=scales), 1e-9)
    assert together.tolist() == [int(reach(pmp.DiscreteGaussian(scale=s), 1e-9)) for s in scales]


def test_noise_wider_than_floating_point_can_count_is_refused():
    with pytest.raises(MechanismError, match=r"floating point.*got a wider one"):
        reach(pmp.Laplace(scale=1e17), 1e-12)
