"""Records of few values are drawn given all that is known of each alone, without rejection."""

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest

import pymc_privacy as pmp
from pymc_privacy.densities.conditional_draws import conditional_draws
from pymc_privacy.model.database import find_databases
from tests.stochastic import assert_mean, seed_of

SIZE = 20_000


def swept(model, request):
    """Sweep the records once, from a start that is as good as any."""
    step = pmp.RecordSweep(model=model, rng=seed_of(request))
    point, [statistics] = step.step(model.initial_point(0))
    return point, statistics


def test_binary_records_given_their_answers(request):
    answers = np.arange(SIZE) % 2
    with pm.Model() as model:
        x = pm.Bernoulli("x", 0.3, shape=SIZE)
        mechanism = pmp.RandomizedResponse(keep_probability=0.8)
        pmp.Privatized("y", x, mechanism, observed=answers, local=True)
    point, statistics = swept(model, request)
    assert statistics == {"record_sweep_accept": 1.0, "record_sweep_accept_min": 1.0}
    assert point["x"].dtype == np.int64
    for answer, weight in ((0, 0.2), (1, 0.8)):
        expected = 0.3 * weight / (0.3 * weight + 0.7 * (1 - weight))
        assert_mean(point["x"][answers == answer] == 1, expected, what=f"P(1 | {answer})")


def test_chained_records_given_two_factors_of_each(request):
    """A category, a coin that depends on it, a local release of this and an observation of both."""
    p, heads = np.array([0.2, 0.5, 0.3]), np.array([0.1, 0.5, 0.8])
    with pm.Model() as model:
        x = pm.Categorical("x", p, shape=SIZE)
        z = pm.Bernoulli("z", pt.constant(heads)[x], shape=SIZE)
        mechanism = pmp.RandomizedResponse(keep_probability=0.7)
        pmp.Privatized("y", z, mechanism, observed=np.ones(SIZE), local=True)
        pm.Normal("w", x + 2.0 * z, 1.5, observed=np.full(SIZE, 1.7))
    point, statistics = swept(model, request)
    assert statistics["record_sweep_accept"] == 1.0
    cells = np.array([(k, c) for k in range(3) for c in range(2)])
    k, c = cells.T
    weight = p[k] * np.where(c == 1, heads[k], 1 - heads[k]) * np.where(c == 1, 0.7, 0.3)
    weight *= np.exp(-0.5 * ((1.7 - k - 2 * c) / 1.5) ** 2)
    for (a, b), expected in zip(cells, weight / weight.sum(), strict=True):
        hit = (point["x"] == a) & (point["z"] == b)
        assert_mean(hit, float(expected), what=f"P({a}, {b})")


def test_each_record_has_probabilities_of_its_own(request):
    covariates = np.where(np.arange(SIZE) % 2, 1.0, -1.0)
    with pm.Model() as model:
        x = pm.Bernoulli("x", logit_p=covariates, shape=SIZE)
        pmp.Privatized("y", x, pmp.Laplace(scale=1.0), observed=np.zeros(SIZE), local=True)
    point, _ = swept(model, request)
    for covariate in (-1.0, 1.0):
        odds = np.exp(covariate) * np.exp(-1.0)
        given = point["x"][covariates == covariate]
        assert_mean(given, odds / (1 + odds), what=f"P(1 | {covariate})")


@pytest.mark.parametrize("kind", ["no weights", "many values", "real values"])
def test_other_records_are_offered_proposals(kind):
    with pm.Model() as model:
        if kind == "no weights":
            pmp.Privatized("s", pm.Bernoulli("x", 0.3, shape=9), pmp.Laplace(scale=1.0), observed=4)
        else:
            many = kind == "many values"
            x = pm.Poisson("x", 3.0, shape=9) if many else pm.Gumbel("x", 0, 1, shape=9)
            local = {"observed": np.ones(9), "local": True}
            pmp.Privatized("s", x, pmp.Laplace(scale=1.0), **local)
    [database] = find_databases(model)
    assert conditional_draws(database) is None
