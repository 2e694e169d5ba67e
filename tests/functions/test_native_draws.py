"""Draws that are written out have the law of those they stand for, and need no Python."""

import numpy as np
import pymc as pm
import pytest
from pytensor import function
from scipy import stats

from pymc_privacy._compat import CategoricalRV, FunctionGraph
from pymc_privacy.functions.generators import with_generator
from tests.stochastic import FALSE_ALARM, seed_of

CASES = {
    "TruncatedNormal": (
        lambda: pm.TruncatedNormal.dist(1.0, 2.0, lower=0.0, upper=5.0, shape=20_000),
        stats.truncnorm(-0.5, 2.0, 1.0, 2.0),
    ),
    "TruncatedNormal far out": (
        lambda: pm.TruncatedNormal.dist(0.0, 1.0, lower=8.0, shape=20_000),
        stats.truncnorm(8.0, np.inf),
    ),
    "TruncatedNormal between bounds far away": (
        lambda: pm.TruncatedNormal.dist(0.0, 1.0, lower=30.0, upper=31.0, shape=20_000),
        stats.truncnorm(30.0, 31.0),
    ),
    "TruncatedNormal of a large scale": (
        lambda: pm.TruncatedNormal.dist(3.0, 1e6, lower=0.0, upper=1.0, shape=20_000),
        stats.uniform(),
    ),
    "SkewNormal, a half": (
        lambda: pm.SkewNormal.dist(mu=1.0, sigma=2.0, alpha=1e6, shape=20_000),
        stats.halfnorm(1.0, 2.0),
    ),
    "StudentT of many degrees of freedom": (
        lambda: pm.StudentT.dist(nu=1e9, mu=1.0, sigma=2.0, shape=20_000),
        stats.norm(1.0, 2.0),
    ),
    "SkewNormal": (
        lambda: pm.SkewNormal.dist(mu=1.0, sigma=2.0, alpha=-3.0, shape=20_000),
        stats.skewnorm(-3.0, 1.0, 2.0),
    ),
    "StudentT": (
        lambda: pm.StudentT.dist(nu=1.5, mu=1.0, sigma=2.0, shape=20_000),
        stats.t(1.5, 1.0, 2.0),
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_the_law_is_the_same(name, request):
    make, exact = CASES[name]
    rng, [draw] = with_generator([make()])
    compiled = function([rng], draw, mode="NUMBA")
    values = compiled(np.random.default_rng(seed_of(request)))
    assert stats.kstest(values, exact.cdf).pvalue > FALSE_ALARM


def test_tails_of_hardly_any_degree_of_freedom_are_numbers():
    """Proposed in tuning, they would otherwise end a run with a division by zero."""
    rng, [draw] = with_generator([pm.StudentT.dist(nu=1e-4, mu=0.0, sigma=1.0, shape=1000)])
    values = function([rng], draw, mode="NUMBA")(np.random.default_rng(1))
    assert np.all(np.isfinite(values**2))
    assert np.abs(values).max() > 1e100


@pytest.mark.parametrize("per_record", [False, True])
def test_categories_are_drawn_in_proportion(per_record, request):
    p = np.array([0.1, 0.0, 0.6, 0.3])
    law = pm.Categorical.dist(np.tile(p, (20_000, 1)) if per_record else p, shape=20_000)
    rng, [draw] = with_generator([law])
    assert not any(
        isinstance(node.op, CategoricalRV) for node in FunctionGraph(outputs=[draw]).apply_nodes
    )
    values = function([rng], draw, mode="NUMBA")(np.random.default_rng(seed_of(request)))
    assert values.dtype == np.int64
    counts = np.bincount(values, minlength=4)
    assert counts[1] == 0
    seen = p > 0
    assert stats.chisquare(counts[seen], 20_000 * p[seen]).pvalue > FALSE_ALARM
