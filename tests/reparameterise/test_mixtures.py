"""Mixtures: a label and a base variate for each component, drawn given the record."""

from typing import Any, NamedTuple

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
from pytensor.compile.mode import Mode
from scipy import stats

from pymc_privacy.reparameterise import reparameterisation_of
from tests.stochastic import FALSE_ALARM, assert_mean, seed_of

SIZE = 20_000
PLAIN = Mode(linker="py", optimizer="fast_compile")
HERE, THERE = (0.3, 0.5, 1.0), (0.7, 1.5, 0.6)


def normals(p, m, s):
    """One law with an axis of components."""
    return pm.NormalMixture.dist(pt.stack([p, 1 - p]), pt.stack([m, m + 2]), s, shape=SIZE)


def normal_and_student(p, m, s):
    """Laws of two families, with base variates of two laws."""
    laws = [pm.Normal.dist(m, s), pm.StudentT.dist(nu=3, mu=m + 2, sigma=s)]
    return pm.Mixture.dist(pt.stack([p, 1 - p]), laws, shape=SIZE)


def three_of_one_and_two(p, m, s):
    """Rows have weights of their own, a few patterns repeated."""
    patterns = pt.stack([pt.stack([p, (1 - p) / 2, (1 - p) / 2]), pt.stack([p / 2, p / 2, 1 - p])])
    weights = patterns[np.arange(SIZE) % 2]
    return pm.NormalMixture.dist(weights, pt.stack([m, m + 2, m - 3]), s, shape=SIZE)


def poissons(p, m, s):
    return pm.Mixture.dist(pt.stack([p, 1 - p]), pm.Poisson.dist(pt.stack([m, 5 * m])), shape=SIZE)


def zero_inflated(p, m, s):
    return pm.ZeroInflatedPoisson.dist(p, m, shape=SIZE)


def of_two(first, second):
    return lambda x, p, m, s: p * first(x, m, s) + (1 - p) * second(x, m, s)


def normal(shift):
    return lambda x, m, s: stats.norm.cdf(x, m + shift, s)


def three(x, p, m, s):
    weights = np.array([p + p / 2, (1 - p) / 2 + p / 2, (1 - p) / 2 + 1 - p]) / 2
    return sum(w * normal(d)(x, m, s) for w, d in zip(weights, (0, 2, -3), strict=True))


class Case(NamedTuple):
    make: Any
    exact: Any


CONTINUOUS = [
    Case(normals, of_two(normal(0), normal(2))),
    Case(normal_and_student, of_two(normal(0), lambda x, m, s: stats.t.cdf(x, 3, m + 2, scale=s))),
    Case(three_of_one_and_two, three),
]
DISCRETE = [
    Case(
        poissons,
        of_two(
            lambda x, m, s: stats.poisson.cdf(x, m), lambda x, m, s: stats.poisson.cdf(x, 5 * m)
        ),
    ),
    Case(zero_inflated, of_two(lambda x, m, s: stats.poisson.cdf(x, m), lambda x, m, s: x >= 0)),
]
named = {"ids": lambda case: case.make.__name__}


class Carried:
    """A mixture with symbolic parameters, to be drawn at some and carried to others."""

    def __init__(self, make, seed):
        self.parameters = [pt.dscalar(name) for name in "pms"]
        self.variable = make(*self.parameters)
        form = reparameterisation_of(self.variable)
        assert form.needs_uniform
        self.width = form.base_width
        value, w, u = self.variable.type("value"), pt.matrix("w"), pt.matrix("u")
        arguments = self.variable.owner.op.dist_params(self.variable.owner)
        options = {"mode": PLAIN, "on_unused_input": "ignore", "random_seed": seed}
        self.inverse = pm.compile(
            [value, w, *self.parameters], form.inverse(value, w, *arguments), **options
        )
        self.forward = pm.compile([u, *self.parameters], form.forward(u, *arguments), **options)

    def draw(self, rng, at):
        given = list(zip(self.parameters, map(np.float64, at), strict=True))
        seed = int(rng.integers(2**32))
        options = {"mode": PLAIN, "givens": given, "on_unused_input": "ignore"}
        return pm.draw(self.variable, random_seed=seed, **options)

    def base(self, rng, x, at):
        return self.inverse(x, rng.random((SIZE, self.width)), *at)


def carry(case, rng):
    """Return records, where they come back to, where they arrive, and u at both parameters."""
    carried = Carried(case.make, int(rng.integers(2**32)))
    x = carried.draw(rng, HERE)
    base = carried.base(rng, x, HERE)
    other = carried.base(rng, carried.draw(rng, THERE), THERE)
    assert base.shape == (SIZE, carried.width)
    return x, carried.forward(base, *HERE), carried.forward(base, *THERE), base, other


def assert_same_law(base, other):
    """Compare all columns, and their products with the first: that is, their dependence."""
    for u, v in zip(base.T, other.T, strict=True):
        assert stats.ks_2samp(u, v).pvalue > FALSE_ALARM
        first, second = base[:, 0] < 0.5, other[:, 0] < 0.5
        assert stats.ks_2samp(u[first], v[second]).pvalue > FALSE_ALARM


@pytest.fixture
def rng(request):
    return np.random.default_rng(seed_of(request))


@pytest.mark.parametrize("case", CONTINUOUS, **named)
def test_continuous_mixtures(case, rng):
    x, back, arrived, base, other = carry(case, rng)
    np.testing.assert_allclose(back, x, rtol=1e-9)
    assert_same_law(base, other)
    assert stats.kstest(base[:, 0], "uniform").pvalue > FALSE_ALARM
    assert stats.kstest(arrived, lambda t: case.exact(t, *THERE)).pvalue > FALSE_ALARM
    assert stats.kstest(x, lambda t: case.exact(t, *THERE)).pvalue < FALSE_ALARM


@pytest.mark.parametrize("case", DISCRETE, **named)
def test_discrete_mixtures(case, rng):
    x, back, arrived, base, other = carry(case, rng)
    np.testing.assert_array_equal(back, x)
    assert_same_law(base, other)
    for k in range(6):
        assert_mean(arrived <= k, float(case.exact(k, *THERE)), what=f"P(x <= {k})")


def test_a_component_that_did_not_make_the_record_is_drawn_afresh(rng):
    """Its base variate would otherwise be a second look at the same record."""
    carried = Carried(normals, int(rng.integers(2**32)))
    x = carried.draw(rng, HERE)
    once, again = carried.base(rng, x, HERE), carried.base(rng, x, HERE)
    first = (once[:, 0] < HERE[0]) & (again[:, 0] < HERE[0])
    np.testing.assert_array_equal(once[first, 1], again[first, 1])
    product = once[first, 2] * again[first, 2]
    assert_mean(product, 0.0, what="correlation of two draws of what did not matter")


@pytest.mark.parametrize(
    "variable",
    [
        pm.Mixture.dist(
            [0.4, 0.6], [pm.Normal.dist(0, 1), pm.Gamma.dist(pm.Gamma.dist(1, 1), 1)], shape=5
        ),
        pm.Mixture.dist(
            [0.4, 0.6], pm.Dirichlet.dist(pm.Gamma.dist(1, 1, shape=(2, 3))), shape=(5, 3)
        ),
        pm.HurdlePoisson.dist(pm.Beta.dist(1, 1), 2.0, shape=5),
    ],
    ids=["one component has no form", "components are vectors", "a hurdle"],
)
def test_other_mixtures_are_left_alone(variable):
    assert reparameterisation_of(variable) is None
