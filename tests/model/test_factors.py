"""Log densities are PyMC's, asked once, and computed in double precision."""

import gc
import weakref

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest
from scipy import stats

from pymc_privacy.model.factors import factors_of, in_double, joint_log_density, log_densities


def truncated(mu, sigma, at):
    with pm.Model() as model:
        pm.TruncatedNormal("x", pm.Normal("mu"), sigma, lower=0.0, upper=10.0)
    return model, {"mu": mu, "x_interval__": np.log(at / (10.0 - at))}


@pytest.mark.parametrize("distance", [0.5, 30.0, 600.0])
def test_a_density_far_from_its_bound_is_exact(distance):
    sigma, at = 0.02, 1e-5
    mu = -distance * sigma
    model, point = truncated(mu, sigma, at)
    [term] = log_densities(model, [model["x"]], jacobian=False)
    found = model.compile_fn(term, inputs=model.value_vars)(point)
    # Both factors by exp(-z² / 2) cancel: what is left is a difference of squares.
    z, bound = (at - mu) / sigma, -mu / sigma
    scaled = -0.5 * (z**2 - bound**2) - np.log(sigma) - 0.5 * np.log(2 * np.pi)
    tail = stats.norm.logsf(bound) + 0.5 * bound**2
    np.testing.assert_allclose(found, scaled - tail, rtol=1e-9)


def test_single_precision_would_be_noticed():
    model, point = truncated(-12.0, 0.02, 1e-5)
    [ours] = log_densities(model, [model["x"]], jacobian=False)
    [theirs] = model.logp(vars=[model["x"]], jacobian=False, sum=False)
    ours, theirs = model.compile_fn([ours, theirs], inputs=model.value_vars)(point)
    assert abs(ours - theirs) > 1e-3


@pytest.mark.slow
def test_densities_are_those_of_pymc():
    with pm.Model() as model:
        mu = pm.Normal("mu")
        x = pm.Gamma("x", 2.0, pt.exp(mu), shape=3)
        pm.Potential("tie", -(x**2))
        pm.Poisson("y", x, observed=[1, 2, 3])
    point = model.initial_point()
    for jacobian in (True, False):
        ours = log_densities(model, factors_of(model), jacobian=jacobian)
        theirs = model.logp(vars=factors_of(model), jacobian=jacobian, sum=False)
        found = model.compile_fn([*ours, *theirs], inputs=model.value_vars)(point)
        for one, other in zip(found[: len(ours)], found[len(ours) :], strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-12)
    some = [model["x"], model["tie"]]
    pair = [joint_log_density(model, some), model.logp(vars=some)]
    np.testing.assert_allclose(*model.compile_fn(pair, inputs=model.value_vars)(point))
    assert joint_log_density(model, []).eval() == 0.0


def test_a_model_is_asked_once_until_it_changes(monkeypatch):
    calls = []
    asked = pm.Model.logp

    def logp(self, *args, **kwargs):
        calls.append(kwargs["jacobian"])
        return asked(self, *args, **kwargs)

    monkeypatch.setattr(pm.Model, "logp", logp)
    with pm.Model() as model:
        x = pm.Normal("x")
        for _ in range(3):
            log_densities(model, [x])
        assert calls == [True]
        log_densities(model, [x], jacobian=False)
        assert calls == [True, False]
        y = pm.Normal("y", x)
        [before] = log_densities(model, [y])
        assert calls == [True, False, True]
    other = pm.observe(model, {"y": 1.0})
    assert log_densities(other, [other["y"]]) != [before]
    assert log_densities(model, [y]) == [before]


@pytest.mark.slow
def test_a_model_that_is_gone_is_forgotten():
    def used():
        with pm.Model() as model:
            log_densities(model, [pm.Normal("x")])
        return weakref.ref(model)

    gone = used()
    gc.collect()
    assert gone() is None


def test_what_a_user_wrote_stays_as_it_is():
    root = pt.sqrt(2.0)
    x = pt.dscalar()
    [kept] = in_double([x * root], [root])
    [wide] = in_double([x * root + pt.log(3)], [root])
    kept, wide = pytensor.function([x], [kept, wide])(1.0)
    assert kept == np.sqrt(np.float32(2.0))
    np.testing.assert_allclose(wide, kept + np.log(3.0), rtol=1e-15)


def test_sums_of_constants_are_in_double_precision_too():
    x = pt.dscalar()
    logs = pt.log(np.array([2.0, 3.0], dtype="float32"))
    [total] = in_double([x + logs.sum()], [])
    assert total.eval({x: 0.0}) == np.log(2.0) + np.log(3.0)


@pytest.mark.slow
def test_a_sum_over_no_axis_at_all_stays_a_number():
    # The density of a CAR whose precision is a number has such a sum.
    with pm.Model() as model:
        a = pm.CAR("a", np.zeros(3), W=np.ones((3, 3)) - np.eye(3), alpha=0.5, tau=2.0)
    [density] = log_densities(model, [a])
    point = np.array([0.3, -1.0, 0.5])
    precision = 2.0 * (np.diag(np.full(3, 2.0)) - 0.5 * (np.ones((3, 3)) - np.eye(3)))
    value = pytensor.function(model.value_vars, density)
    difference = value(point) - value(np.zeros(3))
    np.testing.assert_allclose(difference, -0.5 * point @ precision @ point, rtol=1e-14)
