"""Legitimate models of unusual kinds sample rightly; others are refused when they are written.

References use no code of the library: parameters and records are drawn from the prior by NumPy,
and weighted by the density of all that was observed.
"""

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
from arviz_stats.base import array_stats
from scipy import special, stats

import pymc_privacy as pmp
from pymc_privacy.errors import RecordError
from pymc_privacy.model.database import find_databases
from pymc_privacy.model.marks import is_record
from tests.stochastic import Z_LIMIT, seed_of

NOISE = pmp.Laplace(scale=1.0)
SIMULATIONS = 400_000
RING = np.array([[0, 1, 0, 1], [1, 0, 1, 0], [0, 1, 0, 1], [1, 0, 1, 0]])
LEGITIMATE = {}


def legitimate(build):
    """Take a function that writes a model, and returns how to simulate it."""
    LEGITIMATE[build.__name__] = build
    return build


def noise(release, statistic):
    return -np.abs(release - statistic)


@legitimate
def truncated_counts():
    a = pm.Gamma("a", 2, 1)
    x = pm.Truncated("x", pm.Poisson.dist(a), lower=1, upper=6, shape=4)
    pmp.Privatized("s", x, NOISE, observed=9.0)

    def simulate(rng):
        a = rng.gamma(2, 1, SIMULATIONS)
        masses = stats.poisson.pmf(np.arange(1, 7), a[:, None])
        below = np.cumsum(masses / masses.sum(axis=1, keepdims=True), axis=1)[:, None, :-1]
        x = 1 + (rng.random((SIMULATIONS, 4, 1)) > below).sum(axis=2)
        return {"a": a}, noise(9.0, x.sum(axis=1))

    return simulate


@legitimate
def truncated_waiting_times():
    a = pm.Gamma("a", 4, 2)
    x = pm.Truncated("x", pm.Gamma.dist(a, 1.0), lower=0.1, upper=6, shape=3)
    pmp.Privatized("s", x, NOISE, observed=7.0)

    def simulate(rng):
        a = rng.gamma(4, 0.5, SIMULATIONS)
        low, high = special.gammainc(a, 0.1)[:, None], special.gammainc(a, 6.0)[:, None]
        x = special.gammaincinv(a[:, None], low + (high - low) * rng.random((SIMULATIONS, 3)))
        return {"a": a}, noise(7.0, x.sum(axis=1))

    return simulate


@legitimate
def records_with_draws_of_the_users_own():
    a = pm.Normal("a", 0, 1)
    x = pm.CustomDist(
        "x",
        a,
        logp=lambda value, mu: -0.5 * (value - mu) ** 2,
        random=lambda mu, rng=None, size=None: rng.normal(mu, 1, size=size),
        shape=4,
    )
    pmp.Privatized("s", x, NOISE, observed=6.0)

    def simulate(rng):
        a = rng.normal(size=SIMULATIONS)
        return {"a": a}, noise(6.0, 4 * a + 2 * rng.normal(size=SIMULATIONS))

    return simulate


@legitimate
def a_prior_that_is_only_a_density():
    a = pm.CustomDist("a", logp=lambda value: -(abs(value) ** 3))
    x = pm.Normal("x", a, 1, shape=4)
    pmp.Privatized("s", x, NOISE, observed=6.0)

    def simulate(rng):
        a = rng.normal(size=SIMULATIONS)
        tilt = -(abs(a) ** 3) + a**2 / 2
        return {"a": a}, noise(6.0, 4 * a + 2 * rng.normal(size=SIMULATIONS)) + tilt

    return simulate


@legitimate
def data_that_rule_out_much_of_the_prior():
    top = pm.Uniform("top", 0, 10)
    pm.Uniform("y", 0, top, observed=[3.2, 5.5])
    x = pm.Normal("x", top, 1, shape=4)
    pmp.Privatized("s", x, NOISE, observed=28.0)

    def simulate(rng):
        top = rng.uniform(5.5, 10, SIMULATIONS)
        total = 4 * top + 2 * rng.normal(size=SIMULATIONS)
        return {"top": top}, noise(28.0, total) - 2 * np.log(top)

    return simulate


@pytest.mark.slow
@pytest.mark.parametrize("name", LEGITIMATE)
def test_the_posterior_is_that_of_weighted_draws_from_the_prior(name, request):
    with pm.Model() as model:
        simulate = LEGITIMATE[name]()
    result = pmp.sample(
        2000,
        model=model,
        tune=600,
        chains=2,
        cores=1,
        random_seed=seed_of(request),
        quiet=True,
        compute_convergence_checks=False,
    )
    reference, logs = simulate(np.random.default_rng(seed_of(request)))
    weights = np.exp(logs - logs.max())
    weights /= weights.sum()
    for label, simulated in reference.items():
        draws = result.posterior[label].values
        for power in (1, 2):
            expected = weights @ simulated**power
            spread = np.sqrt(weights @ (simulated**power - expected) ** 2)
            effective = array_stats.ess(draws**power, chain_axis=0, draw_axis=1, method="mean")
            error = spread * np.hypot(1 / np.sqrt(effective), np.sqrt((weights**2).sum()))
            z = ((draws**power).mean() - expected) / error
            assert abs(z) < Z_LIMIT, f"E {label}^{power} is off by z = {z:.1f}"


def walk():
    return pm.AR("x", rho=[0.5], sigma=1.0, init_dist=pm.Normal.dist(), shape=5)


def field():
    return pm.CAR("x", np.zeros(4), RING, 0.5, 1.0)


def vector():
    return pm.MvNormal("x", np.zeros(5), np.eye(5))


def shares():
    return pm.Dirichlet("x", np.ones(5))


@pytest.mark.parametrize("local", [False, True])
@pytest.mark.parametrize("records", [walk, field, vector, shares])
def test_rows_that_depend_on_each_other_are_refused_for_that(records, local):
    with pm.Model():
        x = records()
        with pytest.raises(RecordError, match=r"independent given the parameters.*'x' is one draw"):
            pmp.Privatized("s", x, NOISE, local=local)


@pytest.mark.slow
def test_several_draws_of_such_a_law_are_records():
    with pm.Model() as model:
        x = pm.AR("x", rho=[0.5], sigma=1.0, init_dist=pm.Normal.dist(), shape=(4, 3))
        pmp.Privatized("s", x, NOISE, observed=[1.0, 2.0, 3.0])
    [database] = find_databases(model)
    assert database.size == 4


@pytest.mark.parametrize(
    "records",
    [
        lambda: pm.CustomDist("x", logp=lambda value: -(value**2), shape=4),
        lambda: pm.Flat("x", shape=4),
    ],
)
def test_records_without_draws_are_refused(records):
    with pm.Model():
        x = records()
        with pytest.raises(
            RecordError, match=r"law that can be drawn from.*'x', a .* without draw"
        ):
            pmp.Privatized("s", x, NOISE, observed=1.0)


def test_an_effect_without_draws_is_a_parameter():
    with pm.Model():
        effect = pm.CustomDist("effect", logp=lambda value: -(value**2), shape=4)
        x = pm.Normal("x", effect, 1, shape=4)
        pmp.Privatized("s", x, NOISE, observed=1.0)
    assert is_record(x)
    assert not is_record(effect)


def test_an_effect_of_each_record_alone_is_a_record():
    with pm.Model():
        spread = pm.HalfNormal("spread")
        effect = pm.Normal("effect", 0, spread, shape=4)
        pm.Normal("y", effect, 1, observed=[1.0, 2.0, 3.0, 4.0])
        x = pm.Normal("x", effect, 1, shape=4)
        pmp.Privatized("s", x, NOISE, observed=1.0)
    assert is_record(x)
    assert is_record(effect)


def test_what_a_shared_effect_is_computed_from_is_no_record():
    with pm.Model():
        level = pm.Normal("level", 0, 1, shape=4)
        effect = pm.Normal("effect", level, 1)
        alone = pm.Normal("alone", 0, 1, shape=4)
        pm.Potential("near", -(pt.diff(effect) ** 2).sum())
        x = pm.Normal("x", effect + alone, 1, shape=4)
        pmp.Privatized("s", x, NOISE, observed=1.0)
    assert [is_record(rv) for rv in (level, effect, alone, x)] == [False, False, True, True]
