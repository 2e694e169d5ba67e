"""The values a discrete law can take are known once, and to everyone alike."""

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest

from pymc_privacy.model.support import finite_support, largest, support

POISSON = pm.Poisson.dist(2.0)


@pytest.mark.parametrize(
    ("make", "ends"),
    [
        (lambda: pm.Bernoulli.dist(0.3), (0, 1)),
        (lambda: pm.Categorical.dist(pt.vector(shape=(4,))), (0, 3)),
        (lambda: pm.Categorical.dist(pm.Dirichlet.dist(np.ones(3))), (0, 2)),
        (lambda: pm.Categorical.dist(pt.vector()), None),
        (lambda: pm.DiscreteUniform.dist(-2, 5), (-2, 5)),
        (lambda: pm.DiscreteUniform.dist(pt.lscalar(), 5), None),
        (lambda: pm.DiscreteUniform.dist(0, pt.lscalar()), None),
        (lambda: pm.Binomial.dist(7, 0.2), (0, 7)),
        (lambda: pm.Binomial.dist([7, 8], 0.2), None),
        (lambda: pm.Binomial.dist(pt.lscalar(), 0.2), None),
        (lambda: pm.BetaBinomial.dist(1.0, 2.0, n=7), (0, 7)),
        (lambda: POISSON, None),
        (lambda: pm.Truncated.dist(POISSON, 0, 9), (0, 9)),
        (lambda: pm.Truncated.dist(POISSON, upper=9), (0, 9)),
        (lambda: pm.Truncated.dist(POISSON, upper=pt.lscalar()), None),
        (lambda: pm.Truncated.dist(pm.Binomial.dist(7, 0.2), lower=2), (2, 7)),
        (lambda: pm.Truncated.dist(pm.Geometric.dist(0.2), upper=9), (1, 9)),
        (lambda: pm.Truncated.dist(pm.NegativeBinomial.dist(2.0, 2.0), upper=9), (0, 9)),
        (lambda: pm.Truncated.dist(pm.DiscreteWeibull.dist(0.5, 2.0), upper=9), None),
        (lambda: pm.Normal.dist(), None),
    ],
)
def test_ends_that_are_the_same_for_all(make, ends):
    assert finite_support(make()) == ends


def test_ends_entry_by_entry():
    least, most = support(pm.Poisson.dist([2.0, 0.0]))
    np.testing.assert_array_equal(least, 0)
    np.testing.assert_array_equal(most, [np.inf, 0])
    assert largest(POISSON) is None
    np.testing.assert_array_equal(largest(pm.Binomial.dist([7, 8], 0.2)), [7, 8])
    least, most = support(pm.Truncated.dist(POISSON, lower=[1, 3]))
    np.testing.assert_array_equal(least, [1, 3])
    assert np.isinf(most).all()


@pytest.mark.parametrize(
    "law",
    [
        lambda: pm.Binomial.dist(3, 0.5, size=2000),
        lambda: pm.BetaBinomial.dist(1.0, 1.0, n=3, size=2000),
        lambda: pm.Truncated.dist(pm.Poisson.dist(2.0), 1, 4, size=2000),
        lambda: pm.DiscreteUniform.dist(-1, 2, size=2000),
        lambda: pm.Categorical.dist([0.3, 0.3, 0.4], size=2000),
    ],
)
def test_draws_reach_both_ends_and_go_no_further(law):
    draws = pm.draw(law(), random_seed=1)
    assert (draws.min(), draws.max()) == finite_support(law())
