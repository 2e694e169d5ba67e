"""Every bad input gets a sentence: what must hold and what came, before any sampling starts."""

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest

import pymc_privacy as pmp
from pymc_privacy.errors import MechanismError, PrivacyError, RecordError, ReleaseError

LAPLACE = pmp.Laplace(scale=2.0)
SIZE = 5


def refused(error, must_hold, came):
    """Expect one of our errors, whose message has both halves in this order."""
    assert issubclass(error, PrivacyError)
    return pytest.raises(error, match=rf"(?s){must_hold}.*got {came}")


def release(contributions, mechanism=LAPLACE, **kwargs):
    return pmp.Privatized("release", contributions, mechanism, **kwargs)


def real_records():
    return pm.Normal("x", shape=SIZE)


def two_columns(x):
    return pt.stack([x, x**2], axis=1)


# The observed release.
@pytest.mark.parametrize(
    ("contributions", "local", "observed", "expected"),
    [
        (lambda x: x, False, [1.0], r"\(\)"),
        (lambda x: x, False, np.zeros(SIZE), r"\(\)"),
        (two_columns, False, 1.0, r"\(2,\)"),
        (two_columns, False, [1.0, 2.0, 3.0], r"\(2,\)"),
        (two_columns, False, [[1.0, 2.0]], r"\(2,\)"),
        (lambda x: x, True, 1.0, r"\(5,\)"),
        (lambda x: x, True, np.zeros(SIZE - 1), r"\(5,\)"),
        (two_columns, True, np.zeros((2, SIZE)), r"\(5, 2\)"),
    ],
)
def test_a_release_of_the_wrong_shape_is_refused(contributions, local, observed, expected):
    shape = str(np.shape(observed)).replace("(", r"\(").replace(")", r"\)")
    with (
        pm.Model(),
        refused(
            ReleaseError, f"'release' must have shape {expected}", f"observed of shape {shape}"
        ),
    ):
        release(contributions(real_records()), local=local, observed=observed)


def test_a_release_of_each_record_is_told_of_local():
    with pm.Model(), refused(ReleaseError, r"shape \(\)", r".*say local=True\."):
        release(real_records(), observed=np.zeros(SIZE))


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_a_release_that_is_not_finite_is_refused(value):
    with pm.Model(), refused(ReleaseError, "'release' must be finite", rf".*{abs(value)}"):
        release(two_columns(real_records()), observed=[1.0, value])


@pytest.mark.parametrize(
    ("observed", "came"),
    [("many", "'many'"), ({"a": 1}, "{'a': 1}"), ([1.0, [2.0]], r"\[1.0, \[2.0")],
)
def test_a_release_that_is_not_a_number_is_refused(observed, came):
    with pm.Model(), refused(ReleaseError, "'release' must be a number, or an array", came):
        release(real_records(), observed=observed)


def test_a_release_with_a_masked_entry_is_refused():
    half = np.ma.masked_array([1.0, 2.0], mask=[False, True])
    with pm.Model(), refused(ReleaseError, "'release' must be finite", r"\[ ?1\. *nan\]"):
        release(two_columns(real_records()), observed=half)


@pytest.mark.parametrize("mechanism", [pmp.DiscreteLaplace, pmp.DiscreteGaussian])
def test_an_integer_mechanism_refuses_a_release_between_integers(mechanism):
    with (
        pm.Model(),
        refused(ReleaseError, f"'release' must be integers.*{mechanism.__name__}", r"2\.5"),
    ):
        release(pm.Bernoulli("x", 0.5, shape=SIZE), mechanism(scale=1.0), observed=2.5)


@pytest.mark.parametrize("mechanism", [pmp.DiscreteLaplace, pmp.DiscreteGaussian])
def test_an_integer_mechanism_refuses_real_contributions(mechanism):
    with (
        pm.Model(),
        refused(RecordError, f"'release' must be integers.*{mechanism.__name__}", "float64 values"),
    ):
        release(real_records(), mechanism(scale=1.0), observed=2)


# Data that is set after the model was written.
def model_with_data(value, contributions, mechanism=LAPLACE, **kwargs):
    with pm.Model() as model:
        published = pm.Data("published", value)
        x = pm.Bernoulli("x", 0.5, shape=SIZE)
        release(contributions(x), mechanism, observed=published, **kwargs)
    return model


@pytest.mark.parametrize("value", [np.nan, np.inf])
@pytest.mark.parametrize("local", [False, True], ids=["central", "local"])
def test_data_set_to_something_not_finite_is_refused_before_sampling(value, local):
    start = np.ones(SIZE) if local else 1.0
    model = model_with_data(start, lambda x: x, local=local)
    with model:
        pm.set_data({"published": value * start})
        with refused(ReleaseError, "'release' must be finite", f".*{value}"):
            pmp.RecordSweep()
        with refused(ReleaseError, "'release' must be finite", f".*{value}"):
            pmp.sample(1, tune=0, chains=1, progressbar=False)


def test_data_set_to_another_length_is_refused_before_sampling():
    model = model_with_data([1.0, 2.0], two_columns)
    with model:
        pm.set_data({"published": [1.0, 2.0, 3.0]})
        with refused(ReleaseError, r"'release' must have shape \(2,\)", r".*\(3,\)"):
            pmp.RecordSweep()


@pytest.mark.parametrize("value", [1.0, [1.0, 2.0, 3.0]])
def test_data_of_the_wrong_shape_is_refused_at_once(value):
    with refused(ReleaseError, r"'release' must have shape \(2,\)", r"observed of shape"):
        model_with_data(value, two_columns)


def test_data_between_integers_is_refused_at_once():
    with refused(ReleaseError, "'release' must be integers", r"2\.5"):
        model_with_data(2.5, lambda x: x, pmp.DiscreteLaplace(scale=1.0))


def test_data_set_between_integers_is_refused_before_sampling():
    with model_with_data(2.0, lambda x: x, pmp.DiscreteLaplace(scale=1.0)):
        pm.set_data({"published": 2.5})
        with refused(ReleaseError, "'release' must be integers", r"2\.5"):
            pmp.RecordSweep()


# Mechanisms.
ALL = [pmp.Laplace, pmp.Gaussian, pmp.DiscreteLaplace, pmp.DiscreteGaussian]
each_bad_number = pytest.mark.parametrize("value", [-1.0, 0.0, np.nan, np.inf, "much"])


@pytest.mark.parametrize("mechanism", ALL)
@pytest.mark.parametrize(
    ("scale", "came"),
    [
        (-1.0, r"-1\.0"),
        (0.0, r"0\.0"),
        (np.nan, "nan"),
        (np.inf, "inf"),
        ("wide", "'wide'"),
        ([1.0, -2.0], r"\[1\.0, -2\.0\]"),
        ([], r"\[\]"),
        ([[1.0]], r"\[\[1\.0\]\]"),
    ],
)
def test_a_scale_must_be_finite_and_positive(mechanism, scale, came):
    with refused(MechanismError, "scale must be a finite number > 0", came):
        mechanism(scale=scale)


LOSSES = [
    (pmp.Laplace, "epsilon", {}),
    (pmp.DiscreteLaplace, "epsilon", {}),
    (pmp.Gaussian, "rho", {}),
    (pmp.Gaussian, "mu", {}),
    (pmp.Gaussian, "epsilon", {"delta": 1e-6}),
    (pmp.Gaussian, "delta", {"epsilon": 1.0}),
    (pmp.DiscreteGaussian, "rho", {}),
    (pmp.DiscreteGaussian, "mu", {}),
    (pmp.DiscreteGaussian, "epsilon", {"delta": 1e-6}),
    (pmp.DiscreteGaussian, "delta", {"epsilon": 1.0}),
]
each_loss = pytest.mark.parametrize(("mechanism", "name", "others"), LOSSES)


@each_loss
@each_bad_number
def test_a_privacy_parameter_must_be_finite_and_positive(mechanism, name, others, value):
    with refused(MechanismError, f"{name} must be a finite number > 0", repr(value)):
        mechanism(**{name: value}, **others, sensitivity=1.0)


@each_loss
def test_a_privacy_parameter_needs_a_sensitivity(mechanism, name, others):
    with refused(MechanismError, "needs sensitivity=", "no sensitivity"):
        mechanism(**{name: 0.5}, **others)


@each_loss
@each_bad_number
def test_a_sensitivity_must_be_finite_and_positive(mechanism, name, others, value):
    with refused(MechanismError, "sensitivity must be a finite number > 0", repr(value)):
        mechanism(**{name: 0.5}, **others, sensitivity=value)


@pytest.mark.parametrize("mechanism", ALL)
@each_bad_number
def test_a_sensitivity_beside_a_scale_must_be_finite_and_positive(mechanism, value):
    with refused(MechanismError, "sensitivity must be a finite number > 0", repr(value)):
        mechanism(scale=1.0, sensitivity=value)


@pytest.mark.parametrize("value", [1.0, 1.5])
@pytest.mark.parametrize("mechanism", [pmp.Gaussian, pmp.DiscreteGaussian])
def test_a_delta_must_be_below_one(mechanism, value):
    with pytest.raises(PrivacyError, match=rf"delta must be a number in \(0, 1\).*got {value}"):
        mechanism(epsilon=1.0, delta=value, sensitivity=1.0)


@pytest.mark.parametrize("mechanism", ALL)
def test_a_mechanism_needs_a_scale_or_a_privacy_parameter(mechanism):
    for given in ({}, {"sensitivity": 1.0}):
        with refused(MechanismError, "needs scale=, or", "neither"):
            mechanism(**given)


@each_loss
def test_a_scale_and_a_privacy_parameter_must_agree(mechanism, name, others):
    loss = {name: 0.5, **others, "sensitivity": 2.0}
    with refused(MechanismError, "must describe the same noise", r"scale=1000\.0.*others give"):
        mechanism(scale=1000.0, **loss)
    agreeing = mechanism(scale=mechanism(**loss).scale, **loss)
    assert agreeing.scale == mechanism(**loss).scale


@pytest.mark.parametrize("mechanism", [pmp.Gaussian, pmp.DiscreteGaussian])
@pytest.mark.parametrize(
    "given",
    [{"rho": 1.0, "mu": 1.0}, {"epsilon": 1.0}, {"delta": 1e-6}, {"rho": 1.0, "epsilon": 1.0}],
)
def test_privacy_parameters_of_two_kinds_are_refused(mechanism, given):
    with refused(
        MechanismError, r"calibrated by one of rho=, mu= or", " and ".join(f"{n}=" for n in given)
    ):
        mechanism(**given, sensitivity=1.0)


@pytest.mark.parametrize("mechanism", ALL)
def test_neighbours_must_be_one_of_two_relations(mechanism):
    with pytest.raises(PrivacyError, match=r"(?s)neighbours.*replace_one.*add_remove.*'friends'"):
        mechanism(scale=1.0, sensitivity=1.0, neighbours="friends")


@pytest.mark.parametrize(
    ("contributions", "local", "scale", "shape"),
    [
        (two_columns, False, [1.0, 2.0, 3.0], r"\(2,\)"),
        (two_columns, False, [1.0], r"\(2,\)"),
        (lambda x: x, False, [1.0], r"\(\)"),
        (two_columns, True, [1.0, 2.0, 3.0], r"\(5, 2\)"),
        (lambda x: x, True, [1.0, 2.0], r"\(5,\)"),
    ],
)
@pytest.mark.parametrize("mechanism", [pmp.Laplace, pmp.Gaussian])
def test_a_vector_of_scales_of_the_wrong_length_is_refused(
    contributions, local, scale, shape, mechanism
):
    with (
        pm.Model(),
        refused(
            MechanismError,
            "one entry per coordinate of the release",
            f"{len(scale)} scales for a release of shape {shape}",
        ),
    ):
        release(contributions(real_records()), mechanism(scale=scale), local=local)


@pytest.mark.parametrize("mechanism", ["laplace", 1.0, None, pmp.Laplace])
@pytest.mark.parametrize("observed", [None, 1.0])
def test_an_argument_that_is_not_a_mechanism_is_refused(mechanism, observed):
    with pm.Model(), refused(MechanismError, "must be a mechanism, such as Laplace", ".*"):
        release(real_records(), mechanism, observed=observed)


def test_an_integer_mechanism_simulates_from_integers_only():
    for mechanism in (pmp.DiscreteLaplace(scale=1.0), pmp.DiscreteGaussian(scale=1.0)):
        with refused(MechanismError, "statistic must be integers", r"0\.5"):
            mechanism.simulate(np.random.default_rng(1), 0.5)


def test_a_custom_mechanism_without_a_simulator_says_so():
    mechanism = pmp.CustomMechanism(log_density_function=lambda s, t: -abs(s - t))
    with pytest.raises(MechanismError, match=r"needs a simulator.*pass simulator="):
        mechanism.simulate(np.random.default_rng(1), 0.5)


# Sampling.
def model_without_a_release():
    with pm.Model() as model:
        pm.Normal("x", pm.Normal("mu"), 1, shape=SIZE)
    return model


def test_the_record_sweep_needs_records():
    with model_without_a_release(), refused(RecordError, "records behind a Privatized", "a model"):
        pmp.RecordSweep()


def test_the_record_sweep_refuses_other_variables_by_name():
    with pm.Model():
        mu = pm.Normal("mu")
        x = pm.Normal("x", mu, 1, shape=SIZE)
        release(x, observed=1.0)
        with refused(RecordError, "records behind a Privatized", "'mu'"):
            pmp.RecordSweep([mu, x])


def test_sample_needs_a_release():
    with refused(RecordError, "needs a model with a Privatized release", "a model without"):
        pmp.sample(1, model=model_without_a_release())
