"""Data that are not numbers are refused before anything is compiled, and named."""

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest

import pymc_privacy as pmp
from pymc_privacy.errors import RecordError
from pymc_privacy.model.database import find_databases

HOLE = np.array([1.0, np.nan, 2.0, 3.0])
ENDLESS = np.array([1.0, 2.0, np.inf, 3.0])
WHOLE = np.array([1.0, 0.5, 2.0, 3.0])
NOISE = pmp.Laplace(scale=1.0)


def release(contributions):
    return pmp.Privatized("s", contributions, NOISE, observed=3.0)


def slope(covariate):
    b = pm.Normal("b", 0, 1)
    release(pm.Normal("x", b * covariate, 1, shape=4))


def rate(covariate):
    b = pm.Normal("b", 0, 1)
    release(pm.Poisson("x", pt.exp(b * covariate), shape=4))


def weights(covariate):
    release(pm.Normal("x", 0, 1, shape=4) * covariate)


def by_matrix(covariate):
    b = pm.Normal("b", 0, 1, shape=2)
    design = np.stack([np.ones(4), covariate], axis=1)
    release(pm.Bernoulli("x", pm.math.sigmoid(design @ b), shape=4))


def effects_of_groups(covariate):
    level = pm.Normal("level", covariate, 1)
    release(pm.Normal("x", level[np.array([0, 1, 2, 3, 0, 1])], 1, shape=6))


def scales(covariate):
    release(pm.Normal("x", 0, covariate, shape=4))


USES = [slope, rate, weights, effects_of_groups, scales]


@pytest.mark.parametrize(
    ("write", "data"),
    # An infinite log odds is a probability of 0 or 1, which is a number.
    [(by_matrix, HOLE), *((write, data) for write in USES for data in (HOLE, ENDLESS))],
)
def test_constants_are_refused_when_the_model_is_written(write, data):
    with pm.Model(), pytest.raises(RecordError, match=r"finite numbers .*a constant of shape \(4"):
        write(data)
    with pm.Model():
        write(WHOLE)


@pytest.mark.parametrize("write", [slope, weights, scales])
def test_data_containers_are_named(write):
    with pm.Model(), pytest.raises(RecordError, match=r"'z' of shape \(4,\), which is inf at \(2,"):
        write(pm.Data("z", ENDLESS))


@pytest.mark.parametrize("write", [slope, rate, weights, scales])
@pytest.mark.parametrize("data", [HOLE, ENDLESS], ids=["nan", "inf"])
def test_data_that_are_set_anew_are_looked_at_again(write, data):
    with pm.Model(coords={"person": range(4)}) as model:
        write(pm.Data("z", WHOLE, dims="person"))
        pm.set_data({"z": data})
    for door in (find_databases, lambda model: pmp.sample(model=model)):
        with pytest.raises(RecordError, match=r"is computed from 'z' of shape \(4,\), which is"):
            door(model)


def test_data_of_variables_that_are_no_records_are_looked_at():
    with pm.Model() as model:
        b = pm.Normal("b", 0, 1)
        release(pm.Normal("x", b, 1, shape=4))
        outcome = pm.Data("outcome", WHOLE)
        pm.Normal("y", b, 1, observed=outcome)
        pm.Potential("tilt", (b * pm.Data("z", WHOLE)).sum())
        find_databases(model)
        pm.set_data({"outcome": HOLE})
        with pytest.raises(RecordError, match=r"density of 'y' is nan, .* 'outcome'"):
            pmp.sample()
        pm.set_data({"outcome": WHOLE, "z": HOLE})
        with pytest.raises(RecordError, match=r"density of 'tilt' is nan, .* 'z'"):
            pmp.sample()


def test_what_a_model_masks_is_not_refused():
    known = np.isfinite(HOLE)
    with pm.Model() as model:
        b, missing = pm.Normal("b", 0, 1), pm.Normal("missing", 0, 1)
        z = pm.Data("z", WHOLE)
        x = pm.Normal("x", b * pt.switch(known, z, missing), 1, shape=4)
        release(pt.switch(known, x * np.where(known, 1.0, np.inf), x))
        pm.set_data({"z": HOLE})
    find_databases(model)


def test_bounds_may_be_infinite():
    with pm.Model() as model:
        b = pm.TruncatedNormal("b", 0, 1, lower=0, upper=np.inf)
        x = pm.TruncatedNormal("x", b, 1, lower=-np.inf, upper=np.array([2.0, 3.0, 4.0, 5.0]))
        pm.Potential("side", pt.switch(b > 5, -np.inf, 0.0))
        release(pt.clip(x, -np.inf, 3.0))
    find_databases(model)


def test_contributions_that_some_records_do_not_have_are_refused():
    with pm.Model() as model:
        release(pt.log(pm.Normal("x", 0, 1, shape=20)))
    with pytest.raises(
        RecordError, match=r"finite numbers for all records .* of 20 contribute nan"
    ):
        find_databases(model)
    with pm.Model() as model:
        release(pt.clip(pt.log(pm.Bernoulli("x", 0.5, shape=20)), -3, 0))
    find_databases(model)


def test_minibatches_are_refused():
    with pm.Model() as model:
        b = pm.Normal("b", 0, 1)
        pm.Normal("y", b, 1, observed=pm.Minibatch(np.arange(20.0), batch_size=5), total_size=20)
        release(pm.Normal("x", b, 1, shape=4))
    for door in (find_databases, lambda model: pmp.sample(model=model)):
        with pytest.raises(RecordError, match="observed values of 'y' must stay the same"):
            door(model)


def test_single_precision_is_refused():
    with (
        pytensor.config.change_flags(floatX="float32"),
        pm.Model(),
        pytest.raises(RecordError, match=r"floatX must be 'float64'.*got 'float32'"),
    ):
        release(pm.Normal("x", 0, 1, shape=4))
    with pm.Model() as model:
        release(pm.Normal("x", 0, 1, shape=4))
    with (
        pytensor.config.change_flags(floatX="float32"),
        pytest.raises(RecordError, match="floatX must be"),
    ):
        pmp.sample(model=model)
