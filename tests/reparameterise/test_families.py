"""x = T(parameters, u): there and back again, and the law after the parameters have moved."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
from pytensor import function
from pytensor.compile.mode import Mode
from pytensor.graph.replace import clone_replace
from scipy import stats

from pymc_privacy.reparameterise import Reparameterisation, reparameterisation_of, reparameterise
from pymc_privacy.reparameterise.gamma import log_weight_of
from tests.stochastic import FALSE_ALARM, assert_mean, seed_of

SIZE = 20_000
PLAIN = Mode(linker="py", optimizer="fast_compile")


def of(family, **fixed):
    """Return the family with some parameters fixed, by position of the others."""

    def make(*parameters, **kwargs):
        return family.dist(**fixed, **dict(zip(MOVING[family], parameters, strict=True)), **kwargs)

    return make


MOVING = {
    pm.StudentT: ("mu", "sigma"),
    pm.Gamma: ("beta",),
    pm.InverseGamma: ("beta",),
    pm.HalfStudentT: ("sigma",),
    pm.SkewNormal: ("mu", "sigma"),
    pm.TruncatedNormal: ("mu", "sigma", "lower", "upper"),
    pm.AsymmetricLaplace: ("kappa", "mu", "b"),
    pm.Binomial: ("p",),
    pm.NegativeBinomial: ("mu", "alpha"),
}


class Family(NamedTuple):
    """A law, two of its parameters, and SciPy's distribution of those parameters."""

    make: Any
    here: tuple
    there: tuple
    exact: Callable[..., Any]


def kumaraswamy(a, b):
    return SimpleNamespace(cdf=lambda x: 1 - (1 - x**a) ** b)


def absolute_student(nu, sigma):
    law = stats.t(nu, scale=sigma)
    return SimpleNamespace(cdf=lambda x: 2 * law.cdf(x) - 1, ppf=lambda q: law.ppf((1 + q) / 2))


def truncated_normal(mu, sigma, lower, upper):
    return stats.truncnorm((lower - mu) / sigma, (upper - mu) / sigma, mu, sigma)


CONTINUOUS = {
    "Normal": Family(pm.Normal, (0.5, 2.0), (-1.0, 0.7), stats.norm),
    "Laplace": Family(pm.Laplace, (0.5, 2.0), (-1.0, 0.7), stats.laplace),
    "Logistic": Family(pm.Logistic, (0.5, 2.0), (-1.0, 0.7), stats.logistic),
    "Cauchy": Family(pm.Cauchy, (0.5, 2.0), (-1.0, 0.7), stats.cauchy),
    "Gumbel": Family(pm.Gumbel, (0.5, 2.0), (-1.0, 0.7), stats.gumbel_r),
    "Moyal": Family(pm.Moyal, (0.5, 2.0), (-1.0, 0.7), stats.moyal),
    "LogNormal": Family(
        pm.LogNormal, (0.5, 0.8), (-1.0, 0.3), lambda m, s: stats.lognorm(s, scale=np.exp(m))
    ),
    "HalfNormal": Family(pm.HalfNormal, (2.0,), (0.7,), lambda s: stats.halfnorm(scale=s)),
    "HalfCauchy": Family(pm.HalfCauchy, (2.0,), (0.7,), lambda s: stats.halfcauchy(scale=s)),
    "Exponential": Family(pm.Exponential, (2.0,), (0.7,), lambda r: stats.expon(scale=1 / r)),
    "Uniform": Family(
        pm.Uniform, (-1.0, 2.0), (0.5, 9.0), lambda low, high: stats.uniform(low, high - low)
    ),
    "Weibull": Family(
        pm.Weibull, (1.5, 2.0), (0.8, 3.0), lambda a, b: stats.weibull_min(a, scale=b)
    ),
    "Pareto": Family(pm.Pareto, (3.0, 1.0), (1.5, 2.0), lambda a, m: stats.pareto(a, scale=m)),
    "Kumaraswamy": Family(pm.Kumaraswamy, (2.0, 3.0), (0.6, 1.5), kumaraswamy),
    "Triangular": Family(
        lambda *args, **kw: pm.Triangular.dist(*args, **kw),
        (0.0, 3.0, 1.0),
        (-1.0, 2.0, 1.5),
        lambda low, high, c: stats.triang((c - low) / (high - low), low, high - low),
    ),
    "TruncatedNormal": Family(
        of(pm.TruncatedNormal), (0.5, 2.0, -1.0, 2.0), (-1.0, 0.7, -2.0, 1.0), truncated_normal
    ),
    "TruncatedNormal far from its mean": Family(
        of(pm.TruncatedNormal), (-5.0, 1.0, 4.0, np.inf), (20.0, 2.0, -1.0, 2.0), truncated_normal
    ),
    "TruncatedNormal on one side": Family(
        of(pm.TruncatedNormal), (0.0, 1.0, -0.5, np.inf), (1.0, 2.0, -np.inf, 3.0), truncated_normal
    ),
    "AsymmetricLaplace": Family(
        of(pm.AsymmetricLaplace),
        (0.5, 1.0, 2.0),
        (2.0, 0.0, 0.7),
        lambda kappa, mu, b: stats.laplace_asymmetric(kappa, mu, 1 / b),
    ),
    "StudentT with fixed nu": Family(
        of(pm.StudentT, nu=4), (0.5, 2.0), (-1.0, 0.7), lambda m, s: stats.t(4, m, s)
    ),
    "SkewNormal with fixed alpha": Family(
        of(pm.SkewNormal, alpha=3), (0.5, 2.0), (-1.0, 0.7), lambda m, s: stats.skewnorm(3, m, s)
    ),
    "HalfStudentT with fixed nu": Family(
        of(pm.HalfStudentT, nu=3), (2.0,), (0.7,), lambda s: absolute_student(3, s)
    ),
    "Gamma with fixed alpha": Family(
        of(pm.Gamma, alpha=2.5), (2.0,), (0.7,), lambda b: stats.gamma(2.5, scale=1 / b)
    ),
    "InverseGamma with fixed alpha": Family(
        of(pm.InverseGamma, alpha=2.5), (2.0,), (0.7,), lambda b: stats.invgamma(2.5, scale=b)
    ),
}
DISCRETE = {
    "Bernoulli": Family(pm.Bernoulli, (0.3,), (0.8,), stats.bernoulli),
    "Geometric": Family(pm.Geometric, (0.3,), (0.6,), stats.geom),
    "Poisson": Family(pm.Poisson, (3.0,), (5.5,), stats.poisson),
    "Poisson of many": Family(pm.Poisson, (300.0,), (330.0,), stats.poisson),
    "Binomial": Family(of(pm.Binomial, n=12), (0.3,), (0.8,), lambda p: stats.binom(12, p)),
    "NegativeBinomial": Family(
        of(pm.NegativeBinomial),
        (4.0, 2.0),
        (9.0, 0.7),
        lambda mu, alpha: stats.nbinom(alpha, alpha / (alpha + mu)),
    ),
    "DiscreteUniform": Family(
        pm.DiscreteUniform, (0.0, 6.0), (-2.0, 7.0), lambda a, b: stats.randint(a, b + 1)
    ),
}


class Carried:
    """A family with symbolic parameters, to be drawn at some and carried to others."""

    def __init__(self, family: Family, size: int = SIZE):
        self.parameters = [pt.dscalar() for _ in family.here]
        make = getattr(family.make, "dist", family.make)
        self.variable = make(*self.parameters, shape=size)
        form = reparameterisation_of(self.variable)
        assert form is not None
        value, w, u = self.variable.type("value"), pt.vector("w"), pt.vector("u")
        arguments = self.variable.owner.op.dist_params(self.variable.owner)
        options = {"mode": PLAIN, "on_unused_input": "ignore"}
        self._inverse = function(
            [value, w, *self.parameters], form.inverse(value, w, *arguments), **options
        )
        self._forward = function([u, *self.parameters], form.forward(u, *arguments), **options)
        self._density = None
        self._value, self._options = value, options

    def draw(self, rng, at):
        given = list(zip(self.parameters, map(np.float64, at), strict=True))
        seed = int(rng.integers(2**32))
        return pm.draw(self.variable, random_seed=seed, mode=PLAIN, givens=given)

    def base(self, rng, x, at):
        return self._inverse(x, rng.random(len(x)), *at)

    def forward(self, u, at):
        return self._forward(u, *at)

    def log_density(self, x, at):
        if self._density is None:
            density = pm.logp(self.variable, self._value)
            inputs = [self._value, *self.parameters]
            self._density = function(inputs, density, **self._options)
        return self._density(x, *at)


@pytest.fixture
def rng(request):
    return np.random.default_rng(seed_of(request))


@pytest.mark.parametrize("name", CONTINUOUS)
def test_continuous_records_come_back_and_arrive_with_the_law_of_their_new_parameters(name, rng):
    _, here, there, exact = family = CONTINUOUS[name]
    carried = Carried(family)
    x = carried.draw(rng, here)
    base = carried.base(rng, x, here)
    np.testing.assert_allclose(carried.forward(base, here), x, rtol=1e-9)
    assert stats.kstest(carried.forward(base, there), exact(*there).cdf).pvalue > FALSE_ALARM
    assert stats.kstest(x, exact(*there).cdf).pvalue < FALSE_ALARM, "the parameters are far apart"
    other = carried.base(rng, carried.draw(rng, there), there)
    assert stats.ks_2samp(base, other).pvalue > FALSE_ALARM, "u knows its parameters"


@pytest.mark.parametrize("name", DISCRETE)
def test_discrete_records_come_back_and_arrive_with_the_law_of_their_new_parameters(name, rng):
    _, here, there, exact = family = DISCRETE[name]
    carried = Carried(family)
    x = carried.draw(rng, here)
    base = carried.base(rng, x, here)
    np.testing.assert_array_equal(carried.forward(base, here), x)
    # A uniform may be written by its logarithm, and its upper half by the distance from 1.
    uniform = np.exp(-base) if name == "Geometric" else np.where(base < 0, 1 + base, base)
    assert stats.kstest(uniform, "uniform").pvalue > FALSE_ALARM
    other = carried.base(rng, carried.draw(rng, there), there)
    assert stats.ks_2samp(base, other).pvalue > FALSE_ALARM, "u knows its parameters"
    arrived, law = carried.forward(base, there), exact(*there)
    for k in np.unique(law.ppf([0.1, 0.3, 0.5, 0.7, 0.9])):
        assert_mean(arrived <= k, float(law.cdf(k)), what=f"P(x <= {k})")


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


def of_moving_shape(name):
    """Return a law with two random parameters, SciPy's law of its first number, and these."""
    a, b = pm.Gamma.dist(1, 1), pm.Gamma.dist(1, 1)
    families = {
        "Gamma": (pm.Gamma.dist(a, 1 / b, shape=SIZE), lambda a, b: stats.gamma(a, scale=b)),
        "InverseGamma": (
            pm.InverseGamma.dist(a, b, shape=SIZE),
            lambda a, b: stats.invgamma(a, scale=b),
        ),
        "ChiSquared": (pm.ChiSquared.dist(a, shape=SIZE), lambda a, b: stats.chi2(a)),
        "Beta": (pm.Beta.dist(a, b, shape=SIZE), stats.beta),
        "StudentT": (
            pm.StudentT.dist(nu=a, mu=0.0, sigma=b, shape=SIZE),
            lambda a, b: stats.t(a, scale=b),
        ),
        "HalfStudentT": (pm.HalfStudentT.dist(nu=a, sigma=b, shape=SIZE), absolute_student),
        # One share is a beta variate.
        "Dirichlet": (
            pm.Dirichlet.dist(pt.stack([a, b, pt.constant(0.7)]), shape=(SIZE, 3)),
            lambda a, b: stats.beta(a, b + 0.7),
        ),
    }
    return *families[name], (a, b)


SHAPES = ["Gamma", "InverseGamma", "ChiSquared", "Beta", "Dirichlet", "StudentT", "HalfStudentT"]


@pytest.mark.parametrize("name", SHAPES)
@pytest.mark.parametrize(
    ("here", "there"),
    [((2.5, 1.3), (2.7, 1.2)), ((0.4, 0.6), (0.45, 0.55)), ((30.0, 8.0), (32.0, 7.0))],
    ids=["moderate", "small", "large"],
)
def test_records_of_a_moving_shape_arrive_with_a_weight(name, here, there, rng):
    """Weighted by the law of u at the new parameters, records have the law of these."""
    variable, exact, parameters = of_moving_shape(name)
    form = reparameterisation_of(variable)
    arguments = variable.owner.op.dist_params(variable.owner)
    size = (*variable.type.shape, form.base_width)
    value, w = variable.type("value"), pt.tensor("w", dtype="float64", shape=size)
    u = pt.tensor("u", dtype="float64", shape=size)

    def given(graph, values):
        constants = [pt.constant(np.float64(v)) for v in values]
        return clone_replace(graph, dict(zip(parameters, constants, strict=True)))

    def at(graph, inputs, values):
        return function(inputs, given(graph, values), mode=PLAIN, on_unused_input="ignore")

    x = pm.draw(given(variable, here), random_seed=int(rng.integers(2**32)), mode=PLAIN)
    inverse, forward = form.inverse(value, w, *arguments), form.forward(u, *arguments)
    base = at(inverse, [value, w], here)(x, rng.random(size))
    np.testing.assert_allclose(at(forward, [u], here)(base), x, rtol=1e-6, atol=1e-12)
    log_weight = form.log_weight(u, *arguments)
    change = at(log_weight, [u], there)(base) - at(log_weight, [u], here)(base)
    weights = np.exp(change)
    assert_mean(weights, 1.0, what="the mean weight")
    arrived = at(forward, [u], there)(base)
    arrived = arrived[:, 0] if arrived.ndim > 1 else arrived
    law = exact(*there)
    for q in (0.1, 0.3, 0.5, 0.7, 0.9):
        assert_mean(weights * (arrived <= law.ppf(q)), q, what=f"P(x <= {law.ppf(q):.3g})")
    assert stats.kstest(arrived, exact(*here).cdf).pvalue < 0.01, "the parameters are far apart"
    # Hardly anything is left in u: the weights are close to one.
    assert weights.std() < 0.05


@pytest.mark.parametrize(
    "variable",
    [
        pm.Dirichlet.dist(pm.Gamma.dist(1, 1, shape=13), shape=(5, 13)),
        pm.Wald.dist(pm.Gamma.dist(1, 1), 1.0, shape=5),
        pm.VonMises.dist(0.0, pm.Gamma.dist(1, 1), shape=5),
        pm.SkewNormal.dist(mu=0, sigma=1, alpha=pm.Gamma.dist(1, 1), shape=5),
    ],
    ids=lambda variable: variable.owner.op.name,
)
def test_what_has_no_cheap_form_is_left_alone(variable):
    assert reparameterisation_of(variable) is None


@pytest.mark.parametrize(
    "variable",
    [
        pm.Dirichlet.dist([1.0, 2.0, 3.0], shape=(5, 3)),
        pm.Beta.dist(2.0, 3.0, shape=5),
        pm.VonMises.dist(0.0, 1.0, shape=5),
        pm.BetaBinomial.dist(2.0, 3.0, 10, shape=5),
    ],
    ids=lambda variable: variable.owner.op.name,
)
def test_a_law_without_random_parameters_stays_where_it_is(variable, rng):
    form = reparameterisation_of(variable)
    x = pm.draw(variable, random_seed=int(rng.integers(2**32)), mode=PLAIN)
    arguments = variable.owner.op.dist_params(variable.owner)
    assert form.inverse(x, None, *arguments) is x
    assert form.forward(x, *arguments) is x


def test_counts_have_no_slope():
    """A gradient with respect to the parameters is zero, and not an error."""
    u, rate = pt.vector("u"), pt.scalar("rate")
    variable = pm.Poisson.dist(rate, shape=3)
    count = reparameterisation_of(variable).forward(u, rate)
    slope = pt.grad(count.sum().astype("float64"), rate)
    assert slope.eval({u: np.array([0.1, -0.2, 0.3]), rate: 2.0}, on_unused_input="ignore") == 0


def test_a_family_of_the_users_own_is_one_function():
    variable = pm.Wald.dist(mu=pm.Gamma.dist(1, 1), lam=1.0)
    assert reparameterisation_of(variable) is None
    family = type(variable.owner.op)
    try:
        form = Reparameterisation(forward=lambda u, *p: u, inverse=lambda x, w, *p: x)
        reparameterise.register(family)(lambda op, *parameters: form)
        assert reparameterisation_of(variable) is form
    finally:
        reparameterise.register(family)(lambda op, *parameters: None)


@pytest.mark.parametrize("name", ["Gamma", "Beta", "Dirichlet", "StudentT"])
def test_variates_too_small_for_a_number_have_no_weight(name):
    """A share of nothing would be not a number, which a clip might take for one."""
    variable, _, parameters = of_moving_shape(name)
    form = reparameterisation_of(variable)
    arguments = variable.owner.op.dist_params(variable.owner)
    u = np.ones((*variable.type.shape, form.base_width))
    weight = form.log_weight(pt.constant(u), *arguments)
    for shape, finite in ((2.0, True), (1e-3, False)):
        given = dict.fromkeys(parameters, pt.constant(np.float64(shape)))
        found = clone_replace(weight, given).eval(mode=PLAIN)
        assert np.all(np.isfinite(found)) == finite
        assert finite or np.all(found == -np.inf)


def wide(rng, low=-5, high=5):
    return 10.0 ** rng.uniform(low, high)


def anywhere(rng):
    return rng.normal() * wide(rng, -1, 4)


EXTREME = {
    "Normal": lambda rng: (anywhere(rng), wide(rng)),
    "Gumbel": lambda rng: (anywhere(rng), wide(rng)),
    "Cauchy": lambda rng: (anywhere(rng), wide(rng)),
    "LogNormal": lambda rng: (20 * rng.normal(), wide(rng, -3, 1)),
    "Exponential": lambda rng: (wide(rng, -20, 20),),
    "Uniform": lambda rng: (low := anywhere(rng), low + wide(rng)),
    "Weibull": lambda rng: (wide(rng, -2, 4), wide(rng)),
    "Pareto": lambda rng: (wide(rng, -1, 6), wide(rng)),
    "Kumaraswamy": lambda rng: (wide(rng, -2, 3), wide(rng, -2, 3)),
    "Triangular": lambda rng: (low := anywhere(rng), low + 2, low + rng.choice([0, 1e-9, 1, 2])),
    "TruncatedNormal": lambda rng: (anywhere(rng), wide(rng), 0.0, wide(rng, -2, 3)),
    "AsymmetricLaplace": lambda rng: (wide(rng, -3, 3), anywhere(rng), wide(rng)),
    "Bernoulli": lambda rng: (1 / (1 + np.exp(10 * rng.normal())),),
    "Geometric": lambda rng: (1 / (1 + np.exp(5 * rng.normal())),),
    "Poisson": lambda rng: (wide(rng, -10, 4),),
    "NegativeBinomial": lambda rng: (wide(rng, -4, 4), wide(rng, -2, 4)),
}


@pytest.mark.parametrize("name", EXTREME)
def test_records_come_back_at_extreme_draws_of_the_prior(name, rng):
    """Also those that were drawn at other parameters, where they are as improbable as may be."""
    family = (CONTINUOUS | DISCRETE)[name]
    carried = Carried(family, size=30)
    compared = 0
    for _ in range(60):
        here, there = EXTREME[name](rng), EXTREME[name](rng)
        x = carried.draw(rng, here)
        for at in (here, there):
            logp = carried.log_density(x, at)
            possible = np.isfinite(logp) & np.isfinite(x)
            base = carried.base(rng, np.where(possible, x, x[np.argmax(possible)]), at)
            if not possible.any():
                continue
            compared += possible.sum()
            assert np.all(np.isfinite(base))
            back = carried.forward(base, at)
            if np.dtype(x.dtype).kind == "i":
                np.testing.assert_array_equal(back[possible], x[possible])
            else:
                # A record is known to the digits of what it is a sum of.
                scale = abs(x) + np.max(np.abs([v for v in at if np.isfinite(v)]))
                assert np.all(abs(back - x)[possible] <= 1e-9 * scale[possible])
    assert compared > 60 * len(x)


def weight_of_a_gamma(shape, u):
    weights = log_weight_of(
        pt.constant(np.stack([u, np.ones_like(u)], axis=-1)), pt.constant(np.float64(shape))
    )
    return weights.eval(mode=PLAIN)


def test_the_weight_of_a_gamma_variate_does_not_cancel_far_out():
    """A shape that a heavy-tailed prior allows must not win by rounding: u is nearly Normal."""
    u = np.linspace(-4, 4, 9)
    for exponent in (8, 16, 40, 150, 300):
        found = weight_of_a_gamma(10.0**exponent, u)
        np.testing.assert_allclose(found, stats.norm.logpdf(u), atol=3e-3)
    # And the two ways of writing it meet.
    below, above = weight_of_a_gamma(9_998.999, u), weight_of_a_gamma(9_999.001, u)
    np.testing.assert_allclose(below, above, atol=1e-7)
