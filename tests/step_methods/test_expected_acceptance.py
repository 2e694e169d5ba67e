"""Average acceptance of records is at least what privacy says, and what an integral says."""

import math

import numpy as np
import pymc as pm
import pytest
from scipy import integrate, stats

import pymc_privacy as pmp
from pymc_privacy.errors import GuaranteeError
from tests import geweke
from tests.stochastic import assert_mean, seed_of

PAIRS = {
    # Densities of a release under two neighbours that are as far apart as their promise allows.
    "pure": (pmp.PureDP(1.3), stats.laplace(0, 1 / 1.3).pdf, stats.laplace(1, 1 / 1.3).pdf),
    "Gaussian": (pmp.GaussianDP(0.8), stats.norm(0, 1).pdf, stats.norm(0.8, 1).pdf),
    "concentrated": (pmp.ZeroConcentratedDP(0.32), stats.norm(0, 1).pdf, stats.norm(0.8, 1).pdf),
}


@pytest.mark.parametrize("name", PAIRS)
def test_the_average_over_releases_is_at_least_the_bound(name):
    promise, here, there = PAIRS[name]
    exact = integrate.quad(lambda s: min(here(s), there(s)), -30, 30, points=[0, 0.4, 0.5, 1])[0]
    bound = pmp.expected_acceptance(promise)
    assert bound <= exact * (1 + 1e-9)
    if name == "Gaussian":
        assert bound == pytest.approx(exact, rel=1e-8)


def test_randomized_response_attains_the_bound_for_pure_privacy():
    keep = 1 / (1 + math.exp(-1.3))
    assert pmp.expected_acceptance(pmp.PureDP(1.3)) == pytest.approx(2 * (1 - keep), rel=1e-12)


def test_several_releases_are_at_least_as_far_apart_as_one():
    one = pmp.GaussianDP(0.6)
    both = pmp.expected_acceptance(one, one)
    assert both == pytest.approx(2 * stats.norm.cdf(-0.6 / math.sqrt(2)), rel=1e-12)
    mixed = pmp.expected_acceptance(one, pmp.ApproximateDP(0.5, 0.01))
    assert 0 < mixed < pmp.expected_acceptance(one)
    removed = pmp.GaussianDP(0.6, neighbours="add_remove")
    assert pmp.expected_acceptance(removed) == pmp.expected_acceptance(pmp.GaussianDP(1.2))


def test_no_single_release_has_a_bound_under_gaussian_privacy():
    """One record that is 1 with probability p: the acceptance given s tends to p."""
    p, s = 0.01, 12.0
    one, zero = stats.norm.pdf(s, 1), stats.norm.pdf(s, 0)
    both = p**2 * one + (1 - p) ** 2 * zero + 2 * p * (1 - p) * min(one, zero)
    given = both / (p * one + (1 - p) * zero)
    assert given < 0.02 < pmp.expected_acceptance(pmp.GaussianDP(1.0))


def test_what_is_no_guarantee_has_no_bound():
    with pytest.raises(GuaranteeError, match=r"must be such as PureDP.*got 1\.0"):
        pmp.expected_acceptance(1.0)
    with pytest.raises(GuaranteeError, match=r"got none"):
        pmp.expected_acceptance()


@pytest.mark.slow
def test_the_sampler_accepts_as_often_as_the_integral_says(request):
    """Releases, records and the parameter follow the model, and so the average is known exactly.

    A proposal differs from the record with probability E 2 p (1 - p), and is then accepted with
    probability 2 Phi(-mu / 2), which is the bound.
    """

    def family():
        p = pm.Beta("p", 2.0, 2.0)
        return pm.Bernoulli("x", p, shape=4), pmp.Gaussian(scale=1.0), {"p": stats.beta(2, 2)}

    model, mechanism, _ = geweke.build(family)
    with model:
        step = pmp.RecordSweep([model["x"]], rng=seed_of(request))
    rng = np.random.default_rng(seed_of(request))
    accepted = []
    for _ in range(4000):
        p = rng.beta(2, 2)
        x = (rng.random(4) < p).astype(np.int64)
        # An exact draw of the model, and so of the chain that has converged.
        geweke.release(model, mechanism, rng, np.array([float(x.sum())]))
        point = {"p_logodds__": np.asarray(np.log(p / (1 - p))), "x": x}
        step.forget()
        accepted.append(step.step(point)[1][0]["record_sweep_accept"])
    differs = 2 * 4 / (4 * 5)
    bound = pmp.expected_acceptance(pmp.GaussianDP(1.0))
    assert_mean(np.array(accepted), 1 - differs * (1 - bound), what="acceptance")
