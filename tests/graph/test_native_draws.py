"""Draws that are written out have the law of those they stand for, and need no Python."""

import numpy as np
import pymc as pm
import pytest
from pytensor import function
from scipy import stats

from pymc_privacy.graph.generators import with_generator
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
    "SkewNormal": (
        lambda: pm.SkewNormal.dist(mu=1.0, sigma=2.0, alpha=-3.0, shape=20_000),
        stats.skewnorm(-3.0, 1.0, 2.0),
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_the_law_is_the_same(name, request):
    make, exact = CASES[name]
    rng, [draw] = with_generator([make()])
    compiled = function([rng], draw, mode="NUMBA")
    values = compiled(np.random.default_rng(seed_of(request)))
    assert stats.kstest(values, exact.cdf).pvalue > FALSE_ALARM
