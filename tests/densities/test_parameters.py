"""The density of parameters given the records: by statistics, by a loop, and as PyMC has it."""

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
from pytensor.compile.mode import Mode

import pymc_privacy as pmp
from pymc_privacy.densities.carrying import carry_records
from pymc_privacy.densities.parameters import (
    Detail,
    density_given_base,
    density_given_records,
    statistics_given_base,
)
from pymc_privacy.model.database import find_databases
from pymc_privacy.targets.interweave import compile_parameters

SIZE = 12


def release(contributions):
    pmp.Privatized("s", contributions, pmp.Laplace(scale=1.0), observed=0.5)


def normal():
    mu, sigma = pm.Normal("mu"), pm.HalfNormal("sigma")
    release(pm.Normal("x", mu, sigma, shape=SIZE))


def regression():
    beta, sigma = pm.Normal("beta", shape=2), pm.HalfNormal("sigma")
    x = pm.Normal("x", beta[0], 1.0, shape=SIZE)
    release(pm.Normal("y", beta[0] + beta[1] * x, sigma, shape=SIZE))


def regression_by_matrices():
    beta = pm.Normal("beta", shape=2)
    x = pm.Normal("x", beta, 1.0, shape=(SIZE, 2))
    release(pm.Normal("y", x @ beta, 1.0, shape=SIZE))


def covariates():
    beta = pm.Normal("beta", shape=2)
    data = pm.Data("data", np.random.default_rng(1).normal(size=SIZE))
    release(pm.Normal("y", beta[0] + beta[1] * data, 1.0, shape=SIZE))


def normal_vector():
    mu = pm.Normal("mu", shape=2)
    scale = pm.HalfNormal("scale")
    covariance = scale * pt.as_tensor([[1.0, 0.3], [0.3, 2.0]])
    x = pm.MvNormal("x", mu, covariance, shape=(SIZE, 2))
    release(x[:, 0] + x[:, 1])


def bernoulli():
    release(pm.Bernoulli("x", pm.Beta("p", 2, 2), shape=SIZE))


def categorical():
    p = pm.Dirichlet("p", [1.0, 2.0, 3.0])
    release(pm.Categorical("x", p, shape=SIZE))


def naive_bayes():
    p = pm.Dirichlet("p", [1.0, 2.0])
    tables = pm.Dirichlet("tables", np.ones((2, 3)))
    group = pm.Categorical("group", p, shape=SIZE)
    release(group + pm.Categorical("x", tables[group], shape=SIZE))


def poisson():
    release(pm.Poisson("x", pm.Gamma("rate", 2, 1), shape=SIZE))


def gamma():
    release(pm.Gamma("x", pm.Gamma("shape", 2, 1), pm.Gamma("rate", 2, 1), shape=SIZE))


def beta():
    release(pm.Beta("x", pm.Gamma("a", 2, 1), pm.Gamma("b", 2, 1), shape=SIZE))


def dirichlet():
    x = pm.Dirichlet("x", pm.Gamma("a", 2, 1, shape=3), shape=(SIZE, 3))
    release(x[:, 0])


def lognormal():
    release(pm.LogNormal("x", pm.Normal("mu"), pm.HalfNormal("sigma"), shape=SIZE))


def exponential():
    release(pm.Exponential("x", pm.Gamma("rate", 2, 1), shape=SIZE))


def student():
    release(pm.StudentT("x", nu=4, mu=pm.Normal("mu"), sigma=2.0, shape=SIZE))


def laplace():
    release(pm.Laplace("x", pm.Normal("mu"), pm.HalfNormal("b"), shape=SIZE))


def logistic_regression():
    beta = pm.Normal("beta")
    x = pm.Normal("x", shape=SIZE)
    release(pm.Bernoulli("y", logit_p=beta * x, shape=SIZE))


def many_categories():
    p = pm.Dirichlet("p", np.ones(40))
    release((pm.Categorical("x", p**2 / (p**2).sum(), shape=SIZE) > 20).astype("float64"))


def groups():
    effects = pm.Normal("effects", shape=3)
    where = np.arange(SIZE) % 3
    release(pm.Normal("x", effects[where], 1.0, shape=SIZE))


def several_covariates():
    x = pm.Normal("x", 0.5, 1.0, shape=(SIZE, 4))
    y = pm.Normal("y", x @ pm.Normal("beta", shape=4), pm.HalfNormal("sigma"), shape=SIZE)
    release(x.sum(axis=1) * y)


SUFFICIENT = [
    normal,
    several_covariates,
    regression,
    regression_by_matrices,
    covariates,
    normal_vector,
    bernoulli,
    categorical,
    naive_bayes,
    poisson,
    gamma,
    beta,
    dirichlet,
    lognormal,
    exponential,
    groups,
]


def counted_from_the_end():
    groups = np.arange(SIZE) % 3 - 3
    release(pm.Normal("x", pm.Normal("mu", shape=3)[groups], 1.0, shape=SIZE))


def looked_up_from_the_end():
    z = pm.Categorical("z", np.array([0.2, 0.5, 0.3]), shape=SIZE)
    release(pm.Normal("x", pm.Normal("mu", shape=3)[z - 1], 1.0, shape=SIZE))


def far_from_zero():
    # Beside a spread of one, squares of these have no digits left.
    release(pm.Normal("x", pm.Normal("mu", 1e9, 1.0), pm.HalfNormal("sigma"), shape=SIZE))


def random_walk():
    level = pm.GaussianRandomWalk("level", init_dist=pm.Normal.dist(), steps=SIZE - 1)
    release(pm.Normal("x", level, 1.0, shape=SIZE))


def cast_to_integers():
    z = pm.Normal("z", shape=SIZE)
    release(pm.Normal("x", pt.cast(2 * pm.Normal("a") + z, "int64"), 1.0, shape=SIZE))


SUFFICIENT += [counted_from_the_end, looked_up_from_the_end, far_from_zero]
GENERAL = [
    student,
    laplace,
    logistic_regression,
    many_categories,
    random_walk,
    cast_to_integers,
]


def build(write):
    with pm.Model() as model:
        write()
    return model, find_databases(model)


def parameters_of(model, databases):
    records = {rv for database in databases for rv in database.records}
    return [model.rvs_to_values[rv] for rv in model.free_RVs if rv not in records]


@pytest.mark.parametrize("detail", Detail)
@pytest.mark.parametrize("write", [*SUFFICIENT, *GENERAL], ids=lambda f: f.__name__)
def test_the_density_is_that_of_the_model(write, detail):
    model, databases = build(write)
    parameters = parameters_of(model, databases)
    ours = density_given_records(model, databases, parameters, detail=detail)
    theirs = model.logp(vars=model.free_RVs)
    inputs = model.value_vars
    options = {"on_unused_input": "ignore", "mode": Mode("py", "fast_compile")}
    statistics = pm.compile(inputs, ours.statistics, **options)
    functions = [
        pm.compile([*inputs, ours.totals], [density, *pt.grad(density, parameters)], **options)
        for density in (ours.density, theirs)
    ]
    start = model.initial_point(random_seed=1)
    values = [start[v.name] for v in inputs]
    totals = statistics(*values)
    rng = np.random.default_rng(2)
    for _ in range(3):
        # The totals are those of the records, which stay where they are.
        for k, value in enumerate(inputs):
            if value in parameters:
                values[k] = start[value.name] + rng.normal(0, 0.5, size=np.shape(values[k]))
        found, expected = [f(*values, totals) for f in functions]
        for part, reference in zip(found, expected, strict=True):
            np.testing.assert_allclose(part, reference, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("write", SUFFICIENT, ids=lambda f: f.__name__)
def test_sufficient_statistics_replace_the_records(write):
    model, databases = build(write)
    parameters = parameters_of(model, databases)
    density = density_given_records(model, databases, parameters).density
    records = {model.rvs_to_values[rv] for rv in databases[0].records}
    assert not records & set(pm.pytensorf.inputvars([density]))


def test_twenty_covariates_have_sufficient_statistics():
    """231 of them; a graph is written, and none is compiled."""
    with pm.Model() as model:
        x = pm.Normal("x", shape=(SIZE, 20))
        y = pm.Normal("y", x @ pm.Normal("beta", shape=20), pm.HalfNormal("sigma"), shape=SIZE)
        release(y)
    databases = find_databases(model)
    density = density_given_records(model, databases, parameters_of(model, databases)).density
    records = {model.rvs_to_values[rv] for rv in databases[0].records}
    assert not records & set(pm.pytensorf.inputvars([density]))


@pytest.mark.parametrize("write", GENERAL, ids=lambda f: f.__name__)
def test_records_without_sufficient_statistics_are_read(write):
    model, databases = build(write)
    parameters = parameters_of(model, databases)
    density = density_given_records(model, databases, parameters).density
    records = {model.rvs_to_values[rv] for rv in databases[0].records}
    assert records <= set(pm.pytensorf.inputvars([density]))


def test_densities_follow_data_that_is_set_anew():
    model, databases = build(covariates)
    program = compile_parameters(model, parameters_of(model, databases), databases)
    assert program.interweaves
    point = model.initial_point(random_seed=1)
    records = tuple(point[name] for name in program.records)
    q = program.flatten(point)
    for seed in (1, 5):
        with model:
            pm.set_data({"data": np.random.default_rng(seed).normal(size=SIZE)})
        expected = model.compile_logp(vars=model.free_RVs)(point)
        assert program.given_records(q, (), records)(q)[0] == pytest.approx(
            float(expected), rel=1e-12
        )


def test_the_density_given_base_variates_has_its_gradient():
    """By central differences, for records that are clamped and multiplied with each other."""
    with pm.Model() as model:
        beta, sigma = pm.Normal("beta", shape=2), pm.HalfNormal("sigma")
        x = pm.Normal("x", beta[0], sigma, shape=SIZE)
        y = pm.Normal("y", beta[1] * x, 1.0, shape=SIZE)
        a, b = pt.clip(x, -3, 3), pt.clip(y, -3, 3)
        t = pt.stack([a, a * a, a * b, b * b], axis=1)
        pmp.Privatized("s", t, pmp.Gaussian(scale=1.0), observed=np.arange(4.0))
    databases = find_databases(model)
    parameters = parameters_of(model, databases)
    carried = carry_records(model, [model["x"], model["y"]])
    statistics = statistics_given_base(model, databases, parameters, carried)
    density = density_given_base(model, databases, parameters, carried, statistics)
    inputs = [*parameters, *carried.columns]
    function = pm.compile(inputs, [density, *pt.grad(density, parameters)])
    rng = np.random.default_rng(1)
    q, u = [rng.normal(size=2), np.array(0.3)], list(rng.normal(size=(2, SIZE)))
    _, by_beta, by_sigma = function(*q, *u)
    for k in range(3):
        shift = 1e-5 * np.eye(3)[k]
        ends = [
            function(q[0] + sign * shift[:2], q[1] + sign * shift[2], *u)[0] for sign in (1, -1)
        ]
        found = [*by_beta, by_sigma][k]
        assert found == pytest.approx((ends[0] - ends[1]) / 2e-5, rel=1e-5, abs=1e-5)
