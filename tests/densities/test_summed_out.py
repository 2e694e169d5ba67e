"""Records that are summed out leave the density of the parameters and of what is known of them."""

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
from scipy import special, stats

import pymc_privacy as pmp
from pymc_privacy._compat import Constant, ancestors
from pymc_privacy.densities.summed_out import summed_out
from pymc_privacy.model.database import find_databases
from pymc_privacy.targets.interweave import compile_parameters

SIZE, KEEP = 60, 0.7
ANSWERS = np.arange(SIZE) % 3
AT = 0.4


def categories():
    """Write three categories with one free parameter, released by randomized response."""
    with pm.Model() as model:
        t = pm.Normal("t")
        p = pt.stack([0.2 * pt.sigmoid(t), 0.2 * pt.sigmoid(-t), pt.constant(0.8)])
        x = pm.Categorical("x", p, shape=SIZE)
        mechanism = pmp.RandomizedResponse(keep_probability=KEEP, categories=3)
        pmp.Privatized("y", x, mechanism, observed=ANSWERS, local=True)
    return model


def exact(t):
    s = special.expit(t)
    p = np.array([0.2 * s, 0.2 * (1 - s), 0.8])
    q = KEEP * p + (1 - KEEP) / 2 * (1 - p)
    return stats.norm.logpdf(t) + np.log(q[ANSWERS]).sum()


def density_of(model):
    graph = summed_out(model, find_databases(model))
    return graph, pm.compile(model.value_vars, graph, on_unused_input="ignore", mode="FAST_COMPILE")


def at(model, **values):
    return [
        np.asarray(values.get(v.name, model.initial_point(0)[v.name])) for v in model.value_vars
    ]


def longest(graph):
    """Return the largest number of elements of a constant behind a graph."""
    return max(np.size(v.data) for v in ancestors([graph]) if isinstance(v, Constant))


def test_equal_answers_are_counted():
    model = categories()
    graph, density = density_of(model)
    assert density(*at(model, t=AT)) == pytest.approx(exact(AT))
    assert longest(graph) <= 3


def test_data_that_can_be_set_anew_is_read_anew():
    with pm.Model() as model:
        t = pm.Normal("t")
        x = pm.Bernoulli("x", logit_p=t, shape=4)
        mechanism = pmp.RandomizedResponse(keep_probability=KEEP)
        data = pm.Data("data", np.array([0, 1, 1, 1]))
        pmp.Privatized("y", x, mechanism, observed=data, local=True)
    _, density = density_of(model)
    q = KEEP * special.expit(AT) + (1 - KEEP) * special.expit(-AT)
    found = []
    for ones in (3, 1):
        with model:
            pm.set_data({"data": (np.arange(4) < ones).astype(int)})
        found.append(density(*at(model, t=AT)) - stats.norm.logpdf(AT))
        assert found[-1] == pytest.approx(ones * np.log(q) + (4 - ones) * np.log(1 - q))


def test_records_that_differ_in_their_law_are_not_counted_as_equal():
    covariates = np.linspace(-2, 2, SIZE)
    with pm.Model() as model:
        t = pm.Normal("t")
        x = pm.Bernoulli("x", logit_p=t * covariates, shape=SIZE)
        mechanism = pmp.RandomizedResponse(keep_probability=KEEP)
        pmp.Privatized("y", x, mechanism, observed=ANSWERS % 2, local=True)
    _, density = density_of(model)
    p = special.expit(AT * covariates)
    q = KEEP * p + (1 - KEEP) * (1 - p)
    expected = stats.norm.logpdf(AT) + stats.bernoulli.logpmf(ANSWERS % 2, q).sum()
    assert density(*at(model, t=AT)) == pytest.approx(expected)


def test_a_record_that_nothing_allows_makes_the_whole_impossible():
    with pm.Model() as model:
        p = pm.Uniform("p")
        x = pm.Bernoulli("x", p, shape=3)
        pm.Potential("never", pt.switch(pt.eq(x, 1), -np.inf, -np.inf))
        pmp.Privatized("y", x, pmp.Laplace(scale=1.0), observed=np.zeros(3), local=True)
    _, density = density_of(model)
    assert density(*at(model)) == -np.inf


def test_a_central_release_keeps_the_records():
    with categories() as model:
        pmp.Privatized("total", model["x"], pmp.Laplace(scale=1.0), observed=70.0)
    assert summed_out(model, find_databases(model)) is None


@pytest.mark.slow
def test_no_density_of_the_parameters_reads_the_records():
    model = categories()
    parameters = [model.rvs_to_values[model["t"]]]
    program = compile_parameters(model, parameters, find_databases(model))
    assert not program.interweaves
    q, rng = np.array([AT]), np.random.default_rng(1)
    records = [np.zeros(SIZE, dtype=np.int64), np.full(SIZE, 2)]
    for x in records:
        assert program.functions["others"](q, x)[0] == pytest.approx(exact(AT))
        assert program.functions["centred"](q, x, np.zeros(0))[0] == pytest.approx(exact(AT))
    density, fresh = program.functions["refresh"](rng, q)
    assert density == pytest.approx(exact(AT))
    assert set(np.unique(fresh)) <= {0, 1, 2}
