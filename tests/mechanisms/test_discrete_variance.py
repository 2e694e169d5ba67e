"""The published variance of a census row becomes the scale of its noise, and back."""

import numpy as np
import pytest

import pymc_privacy as pmp
from pymc_privacy.errors import MechanismError
from tests import references


@pytest.mark.parametrize("scale", [0.2, 0.4893, 0.7, 1.0, 3.0, 4.99, 5.01, 40.0])
def test_the_variance_is_that_of_the_law(scale):
    k = np.arange(-2000, 2001)
    exact = (np.exp(references.discrete_gaussian(k, scale)) * k**2).sum()
    assert pmp.discrete_gaussian_variance(scale) == pytest.approx(exact, rel=1e-10)


def test_the_scale_has_the_variance():
    variances = np.array([[1e-5, 0.01, 0.2], [1.0, 24.9, 2500.0]])
    scales = pmp.discrete_gaussian_scale(variances)
    assert scales.shape == (2, 3)
    np.testing.assert_allclose(pmp.discrete_gaussian_variance(scales), variances, rtol=1e-9)


def test_below_one_the_root_of_the_variance_is_the_wrong_scale():
    """The mistake this exists for: 0.2 is the variance of scale 0.489, not 0.447."""
    assert pmp.discrete_gaussian_scale(0.2) == pytest.approx(0.4893, abs=1e-4)
    assert pmp.discrete_gaussian_variance(np.sqrt(0.2)) < 0.9 * 0.2


@pytest.mark.parametrize("value", [0.0, -1.0, np.nan, np.inf, "one"])
def test_a_variance_is_positive(value):
    with pytest.raises(MechanismError, match=r"variance must be finite and > 0.*got"):
        pmp.discrete_gaussian_scale(value)
    with pytest.raises(MechanismError, match=r"scale must be finite and > 0.*got"):
        pmp.discrete_gaussian_variance(value)
