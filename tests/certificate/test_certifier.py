"""The comparison at the first kept draw, once in each chain; and what a step may move."""

import cloudpickle
import numpy as np
import pymc as pm
import pytest

import pymc_privacy as pmp
from pymc_privacy._compat import INTERPRETED
from pymc_privacy.certificate.base import Comparison
from pymc_privacy.certificate.certifier import Certifier
from pymc_privacy.errors import CertificateError

PLAIN = {"mode": INTERPRETED}
RIGHT, WRONG = Comparison("a", 1.0, 1.0), Comparison("the slope", 1.0, 2.0)
NOTHING = Comparison("a", -np.inf, -np.inf)


class Counted:
    """Comparisons, and how often they were asked for."""

    def __init__(self, *comparisons):
        self.comparisons, self.times = comparisons, 0

    def __call__(self):
        self.times += 1
        return iter(self.comparisons)


@pytest.fixture
def certifier():
    with pm.Model() as model:
        pm.Normal("mu")
    return Certifier(model)


def test_everything_is_compared_once_in_each_chain_and_not_in_tuning(certifier):
    compare = Counted(RIGHT)
    certifier.check_again(True, compare)
    assert compare.times == 0
    for _ in range(3):
        certifier.check_again(False, compare)
    assert compare.times == 1
    certifier.start_chain()
    certifier.check_again(False, compare)
    assert compare.times == 2


def test_where_nothing_could_be_compared_the_next_draw_is_looked_at(certifier):
    compare = Counted(NOTHING)
    for _ in range(3):
        certifier.check_again(False, compare)
    assert compare.times == 3


def test_a_disagreement_ends_the_chain(certifier):
    with pytest.raises(CertificateError, match=r"this chain came to, the slope is 1 .* and 2 "):
        certifier.check_again(False, Counted(RIGHT, WRONG))


def test_another_process_goes_on_where_this_one_was(certifier):
    certifier.reference  # noqa: B018
    copy = cloudpickle.loads(cloudpickle.dumps(certifier))
    compare = Counted(RIGHT)
    copy.check_again(False, compare)
    again = cloudpickle.loads(cloudpickle.dumps(copy))
    again.check_again(False, compare)
    assert compare.times == 1
    assert copy.reference.terms({"mu": np.array(0.0)}).by_name.keys() == {"mu"}


# What a step method was not given stays where it is, to the last bit.
def normal():
    mu, sigma = pm.Normal("mu"), pm.HalfNormal("sigma")
    x = pm.Normal("x", mu, sigma, shape=6)
    pmp.Privatized("s", x, pmp.Laplace(scale=1.0), observed=2.0)


def coins():
    above = pm.Gamma("above", 2, 1)
    p = pm.Beta("p", 2, above)
    x = pm.Bernoulli("x", p, shape=600)
    pmp.Privatized("s", x, pmp.Laplace(scale=5.0), observed=250.0)


def of_unknown_number():
    above = pm.Normal("above")
    mu, n = pm.Normal("mu", above, 1), pm.DiscreteUniform("n", 1, 9)
    x = pmp.Records("x", pm.Normal.dist(mu, 1.0), size=n)
    pmp.Privatized("s", x, pmp.Laplace(scale=1.0), observed=2.0)


def table():
    level = pm.Normal("level", 1.0, 0.5)
    for name in ("count", "other"):
        count = pm.Poisson(name, pm.math.exp(level), shape=3)
        noise = pmp.Laplace(scale=2.0)
        pmp.LinearMeasurements(f"{name}_y", count, np.eye(3), noise, observed=[2.0, 3.0, 4.0])


def moved(write, method, names, **options):
    """Return which values a few steps have moved, and those that the step was given."""
    with pm.Model() as model:
        write()
    step = method([model[name] for name in names], model=model, rng=1, **options)
    start = model.initial_point(random_seed=1)
    kept, point = {name: value.copy() for name, value in start.items()}, start
    for _ in range(5):
        point, _ = step.step(point)
    assert list(point) == list(kept)
    assert all(np.array_equal(start[name], value) for name, value in kept.items())
    changed = {name for name, value in kept.items() if not np.array_equal(point[name], value)}
    return changed, {value.name for value in step.vars}


@pytest.mark.parametrize(
    ("write", "method", "names", "options"),
    [
        (normal, pmp.RecordSweep, ["x"], {"compile_kwargs": PLAIN}),
        (table, pmp.LatticeWalk, ["count"], {"carries": 0, "compile_kwargs": PLAIN}),
        pytest.param(normal, pmp.Interweave, ["mu", "x"], {}, marks=pytest.mark.slow),
        pytest.param(coins, pmp.CountStates, ["p", "x"], {}, marks=pytest.mark.slow),
        pytest.param(
            of_unknown_number, pmp.BirthDeath, ["mu", "n", "x"], {}, marks=pytest.mark.slow
        ),
    ],
)
def test_what_a_step_was_not_given_stays_where_it_is(write, method, names, options):
    changed, given = moved(write, method, names, **options)
    assert changed == given


def test_parameters_that_are_carried_are_seen_to_move():
    """Without this the test above could not fail: a carry moves what the walk was not given."""
    changed, given = moved(table, pmp.LatticeWalk, ["count"], compile_kwargs=PLAIN)
    assert changed - given == {"level"}
