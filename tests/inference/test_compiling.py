"""`sample` compiles before chains start, and says so."""

import logging

import numpy as np
import pymc as pm
import pytest

import pymc_privacy as pmp
from pymc_privacy.model.start import start_of


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


def test_compiling_leaves_no_trace():
    model = coins()
    chains = []
    for ahead in (True, False):
        step = pmp.Interweave(model=model, rng=3)
        if ahead:
            before = repr(step.sampling_state)
            step.compile(start_of(model))
            assert repr(step.sampling_state) == before
        step.setup_chain(np.random.default_rng(4), 10, 10)
        point = start_of(model)
        for _ in range(10):
            point, _ = step.step(point)
        chains.append(point)
    np.testing.assert_array_equal(chains[0]["p_logodds__"], chains[1]["p_logodds__"])
    np.testing.assert_array_equal(chains[0]["x"], chains[1]["x"])


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
