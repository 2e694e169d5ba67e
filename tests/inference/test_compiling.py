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
