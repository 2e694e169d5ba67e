"""Step methods compile when they are made, before chains start, and `sample` says so."""

import logging

import numpy as np
import pymc as pm
import pytest

import pymc_privacy as pmp
from pymc_privacy.errors import RecordError
from pymc_privacy.model.start import start_of
from pymc_privacy.step_methods.base import Courier


def coins():
    with pm.Model() as model:
        p = pm.Beta("p", 2, 2)
        pmp.Privatized("s", pm.Bernoulli("x", p, shape=10), pmp.Laplace(scale=2.0), observed=6.0)
    return model


@pytest.mark.parametrize("quiet", [False, True])
def test_sample_says_that_it_compiles_and_for_how_long(quiet, caplog):
    with coins(), caplog.at_level(logging.INFO, logger="pymc"):
        pmp.sample(
            5,
            tune=5,
            chains=1,
            random_seed=1,
            progressbar=False,
            quiet=quiet,
            compute_convergence_checks=False,
        )
    said = [record.getMessage() for record in caplog.records]
    assert any(line.startswith("Compiling the model") for line in said) is not quiet
    assert any(line.startswith("Compiled in ") for line in said) is not quiet


def many_coins():
    with pm.Model() as model:
        p = pm.Beta("p", 2, 2)
        x = pm.Bernoulli("x", p, shape=600)
        pmp.Privatized("s", x, pmp.Laplace(scale=9.0), observed=400.0)
    return model


def some_coins():
    with pm.Model() as model:
        p, n = pm.Beta("p", 2, 2), pm.DiscreteUniform("n", 1, 20)
        x = pmp.Records("x", pm.Bernoulli.dist(p), size=n)
        pmp.Privatized("s", x, pmp.Laplace(scale=2.0), observed=6.0)
    return model


@pytest.mark.parametrize(
    ("method", "build"),
    [
        (pmp.Interweave, coins),
        (pmp.RecordSweep, coins),
        (pmp.CountStates, many_coins),
        (pmp.BirthDeath, some_coins),
    ],
)
def test_a_step_method_compiles_when_it_is_made_and_leaves_no_trace(method, build, monkeypatch):
    model = build()
    step = method(model=model, rng=3)
    assert all(getattr(step, name) is not None for name in step.machine_code)
    monkeypatch.setattr(Courier, "_compile", lambda self, model: self.setup_tuning(0))
    twin, chains = method(model=model, rng=3), []
    assert all(getattr(twin, name) is None for name in twin.machine_code)
    assert repr(twin.sampling_state) == repr(step.sampling_state)
    for made in (step, twin):
        made.setup_chain(np.random.default_rng(4), 10, 10)
        point = start_of(model)
        for _ in range(10):
            point, _ = made.step(point)
        chains.append(point)
    for name, value in chains[0].items():
        np.testing.assert_array_equal(value, chains[1][name])


def sampled(model, **options):
    settings = {"chains": 1, "random_seed": 5, "progressbar": False, "keep_records": True}
    settings |= {"compute_convergence_checks": False}
    with model:
        return pmp.sample(20, tune=20, **(settings | options))["posterior"].dataset


@pytest.fixture
def made(monkeypatch):
    """Count how often a step method is made."""
    found, init = [], pmp.Interweave.__init__

    def counted(self, *args, **kwargs):
        found.append(self)
        init(self, *args, **kwargs)

    monkeypatch.setattr(pmp.Interweave, "__init__", counted)
    return found


def test_a_model_that_is_sampled_again_is_not_compiled_again(made):
    model = coins()
    first, second = sampled(model), sampled(model)
    assert len(made) == 1
    for name in ("p", "x"):
        np.testing.assert_array_equal(first[name].values, second[name].values)
    # Another seed, other draws: nothing but machine code is left of the first chain.
    assert not np.array_equal(sampled(model, random_seed=6)["p"].values, first["p"].values)


@pytest.mark.slow
def test_another_model_other_data_or_other_options_are(made):
    with pm.Model() as model:
        release = pm.Data("release", 6.0)
        x = pm.Bernoulli("x", pm.Beta("p", 2, 2), shape=10)
        pmp.Privatized("s", x, pmp.Laplace(scale=0.1), observed=release)
    high = sampled(model)["x"].values.mean()
    with model:
        pm.set_data({"release": 1.0})
    low = sampled(model)["x"].values.mean()
    assert len(made) == 2
    np.testing.assert_allclose([high, low], [0.6, 0.1], atol=0.05)
    sampled(model, interweave={"noncentred_steps": 3})
    assert len(made) == 3
    sampled(model)
    sampled(coins())
    sampled(model)
    assert len(made) == 6
    with model:
        pm.Potential("tilt", pm.math.log(model["p"]))
    sampled(model)
    assert len(made) == 7


@pytest.mark.parametrize("before", [False, True])
def test_what_is_written_into_an_array_after_the_model_is_not_seen(before, made):
    """PyTensor's constants are the user's own arrays, and what is derived from them is kept."""
    exposure, draws = np.ones(6), []
    for changes in (False, True):
        with pm.Model() as model:
            x = pm.Normal("x", pm.Normal("mu", 0, 1) * exposure, 1, shape=6)
            pmp.Privatized("s", x, pmp.Gaussian(scale=0.1), observed=6.0)
        if changes and not before:
            sampled(model)
        if changes:
            exposure[:] = -1.0
        draws.append(sampled(model))
    for name in ("mu", "x"):
        np.testing.assert_array_equal(draws[0][name].values, draws[1][name].values)


@pytest.mark.slow
def test_data_that_were_written_in_place_are_compiled_anew(made):
    with pm.Model() as model:
        exposure = pm.Data("exposure", np.ones(6))
        x = pm.Normal("x", pm.Normal("mu", 0, 1) * exposure, 1, shape=6)
        pmp.Privatized("s", x, pmp.Gaussian(scale=0.1), observed=6.0)
    first = sampled(model)
    exposure.get_value(borrow=True)[:] = -1.0
    second = sampled(model)
    assert len(made) == 2
    assert first["mu"].values.mean() > 0 > second["mu"].values.mean()


def test_a_step_of_ones_own_says_that_it_was_made_for_other_records():
    with pm.Model() as model:
        exposure = pm.Data("exposure", np.ones(4))
        x = pm.Normal("x", pm.Normal("mu", 0, 1) * exposure, 1, shape=exposure.shape[0])
        pmp.Privatized("s", x, pmp.Gaussian(scale=1.0), observed=6.0)
        step = pmp.Interweave()
        pm.set_data({"exposure": np.ones(6)})
    with pytest.raises(RecordError, match=r"'x' must have the shape \(4,\)"):
        sampled(model, step=step)
