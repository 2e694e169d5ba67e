"""x = T(parameters, u): there and back again, and the law after the parameters have moved."""

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
from pytensor.compile.mode import Mode
from scipy import stats

from pymc_privacy.reparameterise import Reparameterisation, reparameterisation_of, reparameterise
from tests.stochastic import FALSE_ALARM, assert_mean, seed_of

SIZE = 20_000
PLAIN = Mode(linker="py", optimizer="fast_compile")

CONTINUOUS = {
    "Normal": (pm.Normal, (0.5, 2.0), (-1.0, 0.7)),
    "Laplace": (pm.Laplace, (0.5, 2.0), (-1.0, 0.7)),
    "Logistic": (pm.Logistic, (0.5, 2.0), (-1.0, 0.7)),
    "Cauchy": (pm.Cauchy, (0.5, 2.0), (-1.0, 0.7)),
    "Gumbel": (pm.Gumbel, (0.5, 2.0), (-1.0, 0.7)),
    "Moyal": (pm.Moyal, (0.5, 2.0), (-1.0, 0.7)),
    "LogNormal": (pm.LogNormal, (0.5, 0.8), (-1.0, 0.3)),
    "HalfNormal": (pm.HalfNormal, (2.0,), (0.7,)),
    "HalfCauchy": (pm.HalfCauchy, (2.0,), (0.7,)),
    "Exponential": (pm.Exponential, (2.0,), (0.7,)),
    "Uniform": (pm.Uniform, (-1.0, 2.0), (0.5, 9.0)),
    "Weibull": (pm.Weibull, (1.5, 2.0), (0.8, 3.0)),
    "Pareto": (pm.Pareto, (3.0, 1.0), (1.5, 2.0)),
    "StudentT with fixed nu": (
        lambda *args, **kw: pm.StudentT.dist(nu=4, mu=args[0], sigma=args[1], **kw),
        (0.5, 2.0),
        (-1.0, 0.7),
    ),
    "Gamma with fixed alpha": (
        lambda *args, **kw: pm.Gamma.dist(alpha=2.5, beta=args[0], **kw),
        (2.0,),
        (0.7,),
    ),
}
DISCRETE = {
    "Bernoulli": (pm.Bernoulli, (0.3,), (0.8,)),
    "Geometric": (pm.Geometric, (0.3,), (0.6,)),
}


def written(family, values):
    """Return the law with symbolic parameters, and its form."""
    parameters = [pt.dscalar() for _ in values]
    make = getattr(family, "dist", family)
    variable = make(*parameters, shape=SIZE)
    return parameters, variable, reparameterisation_of(variable)


def drawn(variable, parameters, values, seed):
    given = list(zip(parameters, map(np.float64, values), strict=True))
    return pm.draw(variable, random_seed=seed, mode=PLAIN, givens=given)


def carry(rng, family, here, there):
    """Draw x at one parameter, and carry it to another; return x, and where it arrives."""
    parameters, variable, form = written(family, here)
    assert form is not None
    seed = int(rng.integers(2**32))
    x = pm.draw(
        variable,
        random_seed=seed,
        mode=PLAIN,
        givens=list(zip(parameters, map(np.float64, here), strict=True)),
    )
    value, w, u = pt.vector("value", dtype=x.dtype), pt.vector("w"), pt.vector("u")
    arguments = variable.owner.op.dist_params(variable.owner)
    inverse = form.inverse(value, w, *arguments)
    forward = form.forward(u, *arguments)
    given = {p: np.float64(v) for p, v in zip(parameters, here, strict=True)}
    uniform = rng.random(SIZE)
    base = inverse.eval({value: x, w: uniform, **given}, on_unused_input="ignore")
    back = forward.eval({u: base, **given})
    moved = {p: np.float64(v) for p, v in zip(parameters, there, strict=True)}
    return x, base, back, forward.eval({u: base, **moved})


@pytest.fixture
def rng(request):
    return np.random.default_rng(seed_of(request))


@pytest.mark.parametrize("name", CONTINUOUS)
def test_continuous_records_come_back_and_arrive_with_the_law_of_their_new_parameters(name, rng):
    family, here, there = CONTINUOUS[name]
    x, _, back, arrived = carry(rng, family, here, there)
    np.testing.assert_allclose(back, x, rtol=1e-9)
    parameters, variable, _ = written(family, there)
    seed = int(rng.integers(2**32))
    fresh = pm.draw(
        variable,
        random_seed=seed,
        mode=PLAIN,
        givens=list(zip(parameters, map(np.float64, there), strict=True)),
    )
    assert stats.ks_2samp(arrived, fresh).pvalue > FALSE_ALARM
    assert stats.ks_2samp(x, fresh).pvalue < FALSE_ALARM, "the two parameters are far enough apart"


@pytest.mark.parametrize("name", DISCRETE)
def test_discrete_records_come_back_and_arrive_with_the_law_of_their_new_parameters(name, rng):
    family, here, there = DISCRETE[name]
    x, base, back, arrived = carry(rng, family, here, there)
    np.testing.assert_array_equal(back, x)
    assert stats.kstest(base, "uniform").pvalue > FALSE_ALARM
    law = {"Bernoulli": stats.bernoulli, "Geometric": stats.geom}[name](*there)
    for k in range(1, 4):
        assert_mean(arrived <= k - 1, float(law.cdf(k - 1)), what=f"P(x <= {k - 1})")


def test_categorical_records(rng):
    here, there = np.array([0.2, 0.5, 0.3]), np.array([0.6, 0.1, 0.3])
    p = pt.vector("p", shape=(3,))
    variable = pm.Categorical.dist(p, shape=SIZE)
    form = reparameterisation_of(variable)
    x = rng.choice(3, p=here, size=SIZE)
    value, w, u = pt.lvector("value"), pt.vector("w"), pt.vector("u")
    arguments = variable.owner.op.dist_params(variable.owner)
    base = form.inverse(value, w, *arguments).eval({value: x, w: rng.random(SIZE), p: here})
    forward = form.forward(u, *arguments)
    np.testing.assert_array_equal(forward.eval({u: base, p: here}), x)
    assert stats.kstest(base, "uniform").pvalue > FALSE_ALARM
    arrived = forward.eval({u: base, p: there})
    for k in range(3):
        assert_mean(arrived == k, there[k], what=f"P(x = {k})")


def test_normal_vectors(rng):
    def at(values):
        return {mean: values[0], covariance: values[1]}

    mean, covariance = pt.vector("mean", shape=(2,)), pt.matrix("covariance", shape=(2, 2))
    variable = pm.MvNormal.dist(mean, covariance, shape=(SIZE, 2))
    form = reparameterisation_of(variable)
    here = (np.array([1.0, -1.0]), np.array([[2.0, 0.5], [0.5, 1.0]]))
    there = (np.array([0.0, 3.0]), np.array([[1.0, -0.8], [-0.8, 2.0]]))
    x = rng.multivariate_normal(*here, size=SIZE)
    value, u = pt.matrix("value"), pt.matrix("u")
    arguments = variable.owner.op.dist_params(variable.owner)
    base = form.inverse(value, None, *arguments).eval({value: x, **at(here)})
    forward = form.forward(u, *arguments)
    np.testing.assert_allclose(forward.eval({u: base, **at(here)}), x, rtol=1e-9, atol=1e-9)
    arrived = forward.eval({u: base, **at(there)})
    for j in range(2):
        assert_mean(arrived[:, j], there[0][j], what=f"mean {j}")
        for k in range(2):
            product = (arrived[:, j] - there[0][j]) * (arrived[:, k] - there[0][k])
            assert_mean(product, there[1][j, k], what=f"covariance {j}, {k}")


@pytest.mark.parametrize(
    "variable",
    [
        pm.Poisson.dist(pm.Gamma.dist(1, 1), shape=5),
        pm.Beta.dist(pm.Gamma.dist(1, 1), 1.0, shape=5),
        pm.Gamma.dist(pm.Gamma.dist(1, 1), 1.0, shape=5),
        pm.StudentT.dist(nu=pm.Gamma.dist(1, 1), mu=0, sigma=1, shape=5),
    ],
    ids=["Poisson", "Beta", "Gamma of random shape", "StudentT of random nu"],
)
def test_what_has_no_cheap_form_is_left_alone(variable):
    assert reparameterisation_of(variable) is None


def test_a_family_of_the_users_own_is_one_function():
    from pytensor.tensor.random.basic import TriangularRV

    variable = pm.Triangular.dist(lower=0.0, upper=1.0, c=0.5)
    assert reparameterisation_of(variable) is None
    try:
        form = Reparameterisation(forward=lambda u, *p: u, inverse=lambda x, w, *p: x)
        reparameterise.register(TriangularRV)(lambda op, *parameters: form)
        assert reparameterisation_of(variable) is form
    finally:
        reparameterise.register(TriangularRV)(lambda op, *parameters: None)
