"""Parameters that can leave the domain of their records' laws are not moved with the records."""

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest

import pymc_privacy as pmp
from pymc_privacy.model.marks import is_interwoven, is_record
from tests.short_runs import SHORT
from tests.stochastic import assert_mean, seed_of

NOISE = pmp.Laplace(scale=1.0)
COVARIATE = np.array([-1.0, 0.0, 0.5, 2.0])


def probability():
    return pm.Bernoulli("x", pm.Normal("p", 0.5, 1.0), shape=4)


def near_one():
    return pm.Bernoulli("x", pm.Normal("p", 0.95, 0.03), shape=4)


def spread():
    return pm.Normal("x", 0.0, pm.Normal("sigma", 1.0, 1.0), shape=4)


def line():
    return pm.Poisson("x", 2.0 + pm.Normal("slope", 0.0, 1.0) * COVARIATE, shape=4)


def crossed_bounds():
    return pm.Uniform("x", pm.Normal("low", 0, 1), pm.Normal("high", 1, 1), shape=4)


@pytest.mark.parametrize("records", [probability, near_one, spread, line, crossed_bounds])
def test_they_are_left_to_nuts(records):
    with pm.Model() as model:
        x = records()
        pmp.Privatized("s", x, NOISE, observed=3.0)
    assert is_record(x)
    assert not any(map(is_interwoven, model.free_RVs))


def moments():
    return pm.Normal("x", pm.Normal("mu", 0, 3), pm.HalfNormal("sigma", 2), shape=4)


def log_odds():
    slope = pm.Normal("slope", 0, 2)
    return pm.Bernoulli("x", pm.math.sigmoid(slope * COVARIATE), shape=4)


def log_rate():
    return pm.Poisson("x", pt.exp(pm.Normal("slope", 0, 2) * COVARIATE), shape=4)


def shape_and_rate():
    return pm.Gamma("x", pm.Gamma("a", 2, 1), pm.HalfCauchy("b", 1), shape=4)


def shares():
    return pm.Categorical("x", pm.Dirichlet("p", np.ones(3)), shape=4)


def pairs():
    deviations = pm.Exponential.dist(1.0, shape=2)
    factor, _, _ = pm.LKJCholeskyCov("factor", n=2, eta=2, sd_dist=deviations)
    return pm.MvNormal("x", np.zeros(2), chol=factor, shape=(4, 2))[:, 0]


# PyMC's own start of a correlation matrix asks for a library that this machine may not have.
@pytest.mark.filterwarnings("ignore:PyTensor could not link to a BLAS")
@pytest.mark.parametrize("records", [moments, log_odds, log_rate, shape_and_rate, shares, pairs])
def test_others_carry_their_records_along(records):
    with pm.Model() as model:
        x = records()
        pmp.Privatized("s", x, NOISE, observed=3.0)
    assert all(map(is_interwoven, model.free_RVs))


@pytest.mark.slow
@pytest.mark.parametrize("records", [probability, spread])
def test_the_posterior_stays_within_the_domain(records, request):
    """Beside weighted draws from the prior."""
    rng = np.random.default_rng(seed_of(request))
    with pm.Model() as model:
        x = records()
        pmp.Privatized("s", x**2, NOISE, observed=3.0)
    result = pmp.sample(
        model=model,
        **SHORT | {"draws": 4000, "tune": 1000, "random_seed": seed_of(request)},
    )
    if records is probability:
        theta = rng.normal(0.5, 1.0, 2_000_000)
        theta = theta[(theta >= 0) & (theta <= 1)]
        total = rng.binomial(4, theta)
        draws = result.posterior["p"].values
        assert draws.max() <= 1
    else:
        theta = rng.normal(1.0, 1.0, 2_000_000)
        theta = theta[theta > 0]
        total = theta**2 * rng.chisquare(4, len(theta))
        draws = result.posterior["sigma"].values
    assert draws.min() >= 0
    weights = np.exp(-abs(total - 3.0))
    assert_mean(draws, float(weights @ theta / weights.sum()))
