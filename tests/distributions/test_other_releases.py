"""Releases that are not a noisy total: their shapes, their values, and what is refused."""

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
from scipy import stats

import pymc_privacy as pmp
from pymc_privacy.errors import MechanismError, RecordError, ReleaseError

SIZE = 6
CHOICE = pmp.ExponentialMechanism(scale=2.0)
MEAN = pmp.KNormGradient.mean(epsilon=1.0, bounds=(0.0, 1.0))
FIT = pmp.ObjectivePerturbation(epsilon=1.0, bound=2.0)
SLOPES = np.array([0.4, -0.3])
BITS = pmp.RandomizedResponse(epsilon=1.0)
ANSWERS = pmp.RandomizedResponse(epsilon=1.0, categories=3)
HIDDEN = pmp.Suppressed(mechanism=pmp.DiscreteLaplace(scale=2.0), below=3)


def one_hot(x):
    return pt.stack([pt.eq(x, k) for k in range(3)], axis=1).astype("int64")


def chosen(observed=None):
    group = pm.Categorical("x", [0.2, 0.3, 0.5], shape=SIZE)
    return pmp.Privatized("s", one_hot(group), CHOICE, observed=observed)


def averaged(observed=None):
    x = pm.Uniform("x", shape=SIZE)
    return pmp.Privatized("s", MEAN.contributions(x), MEAN, observed=observed)


def fitted(observed=SLOPES):
    z = pm.Uniform("x", -1, 1, shape=SIZE)
    y = pm.Bernoulli("y", logit_p=z, shape=SIZE)
    x = pt.stack([pt.ones(SIZE), z], axis=1)
    return pmp.Privatized("s", FIT.contributions(SLOPES, x, y), FIT, observed=observed)


def answered(observed=None):
    return pmp.Privatized(
        "s", pm.Bernoulli("x", 0.4, shape=SIZE), BITS, observed=observed, local=True
    )


def counted(observed=None):
    group = pm.Categorical("x", [0.2, 0.3, 0.5], shape=SIZE)
    return pmp.Privatized("s", one_hot(group), HIDDEN, observed=observed)


SHAPES = [(chosen, (), "int64"), (averaged, (), "float64"), (answered, (SIZE,), "int64")]
SHAPES += [(counted, (3,), "float64")]


@pytest.mark.parametrize("mode", ["FAST_COMPILE", "NUMBA"])
@pytest.mark.parametrize(("write", "shape", "dtype"), SHAPES)
def test_releases_are_drawn_in_their_own_shape_and_type(write, shape, dtype, mode):
    with pm.Model():
        release = write()
    assert release.type.shape == shape
    assert release.dtype == dtype
    drawn = pm.draw(release, draws=3, random_seed=1, mode=mode)
    assert drawn.shape == (3, *shape)
    assert drawn.dtype == dtype


def test_a_perturbed_fit_has_one_coordinate_per_coefficient():
    with pm.Model() as model:
        assert fitted().type.shape == (2,)
    point = model.initial_point(0)
    assert np.isfinite(model.compile_logp()(point))
    with pytest.raises(MechanismError, match="needs the records themselves"):
        pm.draw(model["s"], mode="FAST_COMPILE")


@pytest.mark.parametrize(
    ("write", "observed", "must_hold"),
    [
        (chosen, 3, "be an integer from 0 to 2"),
        (chosen, 1.5, "be an integer from 0 to 2"),
        (chosen, -1, "be an integer from 0 to 2"),
        (chosen, [1, 0, 0], r"have shape \(\)"),
        (averaged, 1.2, "be a number from 0 to 1"),
        (averaged, np.nan, "be a number from 0 to 1"),
        (fitted, [0.1], r"have shape \(2,\)"),
        (fitted, [0.1, np.inf], "be finite"),
        (answered, [0, 1, 2, 0, 0, 0], "be integers from 0 to 1"),
        (answered, [0, 1, 0.5, 0, 0, 0], "be integers from 0 to 1"),
        (answered, [0, 1, np.nan, 0, 0, 0], "be integers from 0 to 1"),
        (answered, [0, 1], r"have shape \(6,\)"),
        (counted, [4, 2, np.nan], "be at least 3, or nan"),
        (counted, [4, 5.5, np.nan], "be integers"),
        (counted, [4, np.inf, np.nan], "be finite"),
    ],
)
def test_an_impossible_release_is_refused(write, observed, must_hold):
    with pm.Model(), pytest.raises(ReleaseError, match=f"The release 's' must {must_hold}.*got"):
        write(observed)


@pytest.mark.parametrize(
    ("mechanism", "observed", "must_hold"),
    [
        (pmp.Clamped(mechanism=pmp.Laplace(scale=1.0), lower=0), -0.1, "be between its bounds 0"),
        (pmp.Clamped(mechanism=pmp.Laplace(scale=1.0), lower=0), np.nan, "be finite"),
        (pmp.Rounded(mechanism=pmp.Laplace(scale=1.0), to=5), 12.0, "be a multiple of 5"),
        (pmp.Rounded(mechanism=pmp.Laplace(scale=1.0), to=5), np.nan, "be finite"),
    ],
)
def test_what_cannot_come_out_of_post_processing_is_refused(mechanism, observed, must_hold):
    with pm.Model():
        x = pm.Normal("x", shape=SIZE)
        with pytest.raises(ReleaseError, match=f"The release 's' must {must_hold}.*got"):
            pmp.Privatized("s", x, mechanism, observed=observed)


@pytest.mark.parametrize(
    ("contributions", "mechanism", "local", "error", "must_hold"),
    [
        (lambda x: x, ANSWERS, False, MechanismError, "Say local=True"),
        (lambda x: x, CHOICE, False, MechanismError, r"contributions of shape \(n, K\)"),
        (one_hot, CHOICE, True, MechanismError, "chooses once.*local=True"),
        (lambda x: x, MEAN, False, MechanismError, r"contributions of shape \(n, 2\)"),
        (one_hot, MEAN, False, MechanismError, r"contributions of shape \(n, 2\)"),
        (one_hot, FIT, False, MechanismError, r"p \+ p \(p \+ 1\) / 2 contributions.*got 3"),
        (one_hot, pmp.Tulap(epsilon=1.0), False, MechanismError, "for a single number"),
        (one_hot, pmp.Tulap(epsilon=1.0), True, MechanismError, "for a single number"),
        (
            one_hot,
            pmp.FunctionalMechanism(epsilon=1.0, covariates=2),
            False,
            MechanismError,
            r"shape \(n, 6\)",
        ),
        (lambda x: x, BITS, True, RecordError, "from 0 to 1.*values from 0 to 2"),
    ],
)
def test_contributions_of_another_form_are_refused(
    contributions, mechanism, local, error, must_hold
):
    with pm.Model():
        x = pm.Categorical("x", [0.2, 0.3, 0.5], shape=SIZE)
        with pytest.raises(error, match=f"(?s){must_hold}"):
            pmp.Privatized("s", contributions(x), mechanism, local=local)


def test_what_was_suppressed_is_not_imputed():
    with pm.Model() as model:
        counted([np.nan, 4, np.nan])
    assert [rv.name for rv in model.free_RVs] == ["x"]
    found = model.compile_logp(vars=[model["s"]])({"x": np.array([0, 1, 1, 2, 2, 2])})
    hidden = [stats.dlaplace.logcdf(2 - c, 0.5) for c in (1, 3)]
    assert found == pytest.approx(sum(hidden) + stats.dlaplace.logpmf(4 - 2, 0.5))


def test_data_with_suppressed_entries_can_be_set_anew():
    """Data must be numbers, so that minus infinity stands for what was suppressed."""
    with pm.Model() as model:
        table = pm.Data("table", np.array([4.0, -np.inf, 5.0]))
        counted(table)
        density = model.compile_logp(vars=[model["s"]], mode="FAST_COMPILE")
        point = {"x": np.array([0, 1, 1, 2, 2, 2])}
        first = density(point)
        pm.set_data({"table": [4.0, -np.inf, -np.inf]})
        second = density(point)
        moved, _ = pmp.RecordSweep(rng=1).step(point)
        pm.set_data({"table": [4.0, 2.0, -np.inf]})
        with pytest.raises(ReleaseError, match="be at least 3"):
            pmp.RecordSweep()
    hidden = stats.dlaplace.logcdf(2 - 3, 0.5)
    assert second - first == pytest.approx(hidden - stats.dlaplace.logpmf(5 - 3, 0.5))
    assert set(np.unique(moved["x"])) <= {0, 1, 2}


def test_prior_predictive_draws_of_a_choice():
    with pm.Model():
        chosen(1)
        before = pm.sample_prior_predictive(20, random_seed=1)
    assert set(np.unique(before.prior_predictive["s"])) <= {0, 1, 2}
