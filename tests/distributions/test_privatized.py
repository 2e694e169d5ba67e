"""A release has the shape, the density and the labels that its records and mechanism imply."""

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
from scipy import optimize, stats

import pymc_privacy as pmp
from pymc_privacy.errors import ReleaseError
from pymc_privacy.model.marks import is_record
from tests import references

ROUNDING = 1e-10  # relative, between two formulas of the same density
VALUES = np.array([-1.3, 0.2, 2.4, 0.9, -0.1])
COUNTS = np.array([3, 0, 1, 4, 2])
LAPLACE = pmp.Laplace(scale=2.0)


def discrete_laplace(release, total, scale):
    return stats.dlaplace.logpmf(release - total, 1 / np.asarray(scale))


def discrete_gaussian(release, total, scale):
    return references.discrete_gaussian(release - total, scale)


CONTINUOUS = [(pmp.Laplace, stats.laplace.logpdf), (pmp.Gaussian, stats.norm.logpdf)]
DISCRETE = [(pmp.DiscreteLaplace, discrete_laplace), (pmp.DiscreteGaussian, discrete_gaussian)]
SCALES = [(1.7, 1.7), ([0.6, 3.0], [0.6, 3.0])]
each_scale = pytest.mark.parametrize(("given", "scale"), SCALES, ids=["one scale", "vector scale"])


def two_columns(records):
    return pt.stack([records, records**2], axis=1)


def release_density(model, name="release"):
    return model.compile_logp(vars=[model[name]])


# Shapes.
@pytest.mark.parametrize(
    ("contributions", "local", "shape"),
    [
        (lambda x: x, False, ()),
        (two_columns, False, (2,)),
        (lambda x: two_columns(x)[:, :1], False, (1,)),
        (lambda x: x, True, (5,)),
        (two_columns, True, (5, 2)),
    ],
    ids=["vector", "matrix", "one column", "local vector", "local matrix"],
)
@pytest.mark.parametrize("mode", ["FAST_COMPILE", "NUMBA"])
def test_the_shape_of_a_release_follows_from_its_contributions(contributions, local, shape, mode):
    with pm.Model():
        x = pm.Normal("x", shape=5)
        release = pmp.Privatized("release", contributions(x), LAPLACE, local=local)
    assert release.type.shape == shape
    assert pm.draw(release, random_seed=1, mode=mode).shape == shape


@pytest.mark.parametrize(
    ("contributions", "scale"),
    [(lambda x: x, [1e-3, 1.0, 1e3, 1e6, 1e9]), (two_columns, [1e-3, 1e6])],
    ids=["one per record", "one per column"],
)
@pytest.mark.parametrize("mode", ["FAST_COMPILE", "NUMBA"])
def test_each_coordinate_of_a_local_release_is_drawn_at_its_own_scale(contributions, scale, mode):
    statistic = contributions(pt.as_tensor(VALUES)).eval(mode="FAST_COMPILE")
    release = pmp.Privatized.dist(statistic, pmp.Laplace(scale=scale), local=True)
    noise = np.abs(pm.draw(release, random_seed=1, mode=mode) - statistic)
    # |noise| / scale is standard exponential: out of these bounds with probability 1.5e-7.
    assert np.all((noise > 1e-7 * np.array(scale)) & (noise < 17 * np.array(scale)))


@pytest.mark.parametrize("mechanism", [LAPLACE, pmp.DiscreteGaussian(scale=2.0)])
def test_compiled_draws_are_those_of_the_simulator(mechanism):
    release = pmp.Privatized.dist(COUNTS, mechanism)
    slow, fast = (
        pm.draw(release, draws=3, random_seed=1, mode=mode) for mode in ("FAST_COMPILE", "NUMBA")
    )
    np.testing.assert_array_equal(slow, fast)
    assert len(set(slow)) == 3


class Shift:
    """A simulator that looks like every other of its kind, as functions at one address do."""

    def __init__(self, shift):
        self.shift = shift

    def __call__(self, rng, statistic):
        return statistic + self.shift

    def __repr__(self):
        return "Shift()"


def test_every_custom_mechanism_draws_with_its_own_simulator():
    def log_density(release, statistic):
        return -abs(release - statistic)

    for shift in (0.0, 100.0):
        mechanism = pmp.CustomMechanism(log_density_function=log_density, simulator=Shift(shift))
        release = pmp.Privatized.dist(COUNTS, mechanism)
        assert pm.draw(release, mode="NUMBA") == COUNTS.sum() + shift


def test_a_scalar_is_released_as_it_is_and_has_no_records():
    with pm.Model() as model:
        size = pm.Poisson("size", 10)
        release = pmp.Privatized("release", size, LAPLACE, observed=11.5)
    assert release.type.shape == ()
    assert not is_record(size)
    found = release_density(model)({"size": np.array(8)})
    assert found == pytest.approx(stats.laplace.logpdf(11.5, 8, 2.0), rel=ROUNDING)


# Densities.
@pytest.mark.parametrize(("mechanism", "logpdf"), CONTINUOUS)
@each_scale
def test_continuous_densities_are_those_of_scipy(mechanism, logpdf, given, scale):
    observed = np.array([1.5, 12.0])
    with pm.Model() as model:
        x = pm.Normal("x", shape=5)
        pmp.Privatized("release", two_columns(x), mechanism(scale=given), observed=observed)
    expected = logpdf(observed, [VALUES.sum(), (VALUES**2).sum()], scale).sum()
    assert release_density(model)({"x": VALUES}) == pytest.approx(expected, rel=ROUNDING)


@pytest.mark.parametrize(("mechanism", "logpmf"), DISCRETE)
@each_scale
def test_discrete_densities_are_those_of_scipy(mechanism, logpmf, given, scale):
    observed = np.array([11, 27])
    with pm.Model() as model:
        x = pm.Poisson("x", 2.0, shape=5)
        pmp.Privatized("release", two_columns(x), mechanism(scale=given), observed=observed)
    expected = logpmf(observed, np.array([COUNTS.sum(), (COUNTS**2).sum()]), scale).sum()
    assert release_density(model)({"x": COUNTS}) == pytest.approx(expected, rel=ROUNDING)


@pytest.mark.parametrize(("mechanism", "logpdf"), CONTINUOUS)
def test_a_local_density_has_one_term_per_record(mechanism, logpdf):
    observed = np.arange(5.0)
    with pm.Model() as model:
        x = pm.Normal("x", shape=5)
        release = pmp.Privatized("release", x, mechanism(scale=0.8), local=True, observed=observed)
    [terms] = model.replace_rvs_by_values(model.logp(vars=[release], sum=False))
    found = terms.eval({model.rvs_to_values[x]: VALUES})
    np.testing.assert_allclose(found, logpdf(observed, VALUES, 0.8), rtol=ROUNDING)


def test_a_vector_of_scales_belongs_to_the_columns_of_a_local_release():
    with pm.Model() as model:
        x = pm.Normal("x", shape=5)
        pmp.Privatized(
            "release",
            two_columns(x),
            pmp.Gaussian(scale=[0.5, 4.0]),
            local=True,
            observed=np.zeros((5, 2)),
        )
    expected = stats.norm.logpdf(0, np.column_stack([VALUES, VALUES**2]), [0.5, 4.0]).sum()
    assert release_density(model)({"x": VALUES}) == pytest.approx(expected, rel=ROUNDING)


@pytest.mark.parametrize("local", [False, True], ids=["central", "local"])
@pytest.mark.parametrize("mechanism", [LAPLACE, pmp.DiscreteLaplace(scale=2.0)])
def test_yes_or_no_contributions_count_as_one_or_zero(mechanism, local):
    observed = np.arange(5) if local else 4
    with pm.Model() as model:
        x = pm.Normal("x", shape=5)
        pmp.Privatized("release", x > 0, mechanism, local=local, observed=observed)
    statistic = (VALUES > 0).astype(int) if local else (VALUES > 0).sum()
    expected = mechanism.log_density(observed, statistic).sum()
    assert release_density(model)({"x": VALUES}) == pytest.approx(expected, rel=ROUNDING)
    release = pm.draw(model["release"], random_seed=1, mode="FAST_COMPILE")
    assert release.shape == observed.shape if local else release.shape == ()


def test_pm_logp_of_an_unnamed_release_is_the_mechanisms_density():
    release = pmp.Privatized.dist(VALUES, LAPLACE)
    found = pm.logp(release, 3.0).eval()
    assert found == pytest.approx(stats.laplace.logpdf(3.0, VALUES.sum(), 2.0), rel=ROUNDING)


def test_the_density_of_a_custom_mechanism_is_the_users():
    def log_density(release, statistic):
        return -(abs(release - statistic) ** 1.5)

    with pm.Model() as model:
        x = pm.Normal("x", shape=5)
        mechanism = pmp.CustomMechanism(log_density_function=log_density)
        pmp.Privatized("release", two_columns(x), mechanism, observed=[1.0, 2.0])
    offset = np.array([1.0, 2.0]) - [VALUES.sum(), (VALUES**2).sum()]
    expected = -(np.abs(offset) ** 1.5).sum()
    assert release_density(model)({"x": VALUES}) == pytest.approx(expected, rel=ROUNDING)


@pytest.mark.parametrize("mechanism", [pmp.Laplace, pmp.Gaussian])
def test_gradients_are_those_of_finite_differences(mechanism):
    with pm.Model() as model:
        mu = pm.Normal("mu")
        x = pm.Normal("x", mu, 1.0, shape=5)
        release = mechanism(scale=[1.0, 2.0])
        pmp.Privatized("release", two_columns(x), release, observed=[1.5, 12.0])
    density, gradient = model.compile_logp(), model.compile_dlogp()
    point = np.array([0.3, *VALUES])

    def at(values):
        return {"mu": np.asarray(values[0]), "x": values[1:]}

    found = gradient(at(point))
    assert np.all(np.isfinite(found))
    # Forward differences err by h |f''| / 2 plus rounding / h, below 1e-6 where f'' < 20.
    expected = optimize.approx_fprime(point, lambda values: density(at(values)), 1.5e-8)
    np.testing.assert_allclose(found, expected, atol=1e-6)


# Labels and data.
def test_a_release_carries_its_coordinate():
    with pm.Model(coords={"moment": ["sum", "squares"]}) as model:
        x = pm.Normal("x", shape=5)
        pmp.Privatized("release", two_columns(x), LAPLACE, observed=[1.0, 2.0], dims="moment")
        prior = pm.sample_prior_predictive(3, random_seed=1)
    assert model.named_vars_to_dims["release"] == ("moment",)
    for group in (prior["observed_data"], prior["prior_predictive"]):
        assert group["release"].coords["moment"].values.tolist() == ["sum", "squares"]


def test_a_local_release_shares_the_dimension_of_its_records():
    with pm.Model(coords={"person": list("abcde")}):
        x = pm.Normal("x", dims="person")
        pmp.Privatized("release", x, LAPLACE, local=True, observed=VALUES, dims="person")
        prior = pm.sample_prior_predictive(3, random_seed=1)
    assert is_record(x)
    for group in (prior["observed_data"], prior["prior_predictive"]):
        assert group["release"].coords["person"].values.tolist() == list("abcde")


def test_columns_may_be_known_by_their_dimension_alone():
    with pm.Model(coords={"person": list("abcde"), "column": ["left", "right"]}) as model:
        x = pm.Normal("x", pm.Normal("mu", dims="column"), 1, dims=("person", "column"))
        release = pmp.Privatized("release", x, LAPLACE, observed=[1.0, 2.0], dims="column")
        with pytest.raises(ReleaseError, match=r"must have shape \(2,\).*got observed of shape"):
            pmp.Privatized("other", x, LAPLACE, observed=[1.0, 2.0, 3.0])
    assert is_record(x)
    assert release.type.shape == (2,)
    found = release_density(model)({"x": np.ones((5, 2)), "mu": np.zeros(2)})
    assert found == pytest.approx(stats.laplace.logpdf([1.0, 2.0], 5.0, 2.0).sum(), rel=ROUNDING)


def test_an_observed_pm_data_can_be_set_later():
    with pm.Model() as model:
        published = pm.Data("published", [1.0, 2.0])
        x = pm.Normal("x", shape=5)
        pmp.Privatized("release", two_columns(x), LAPLACE, observed=published)
        density = release_density(model)
        for value in ([1.0, 2.0], [-3.0, 9.5]):
            pm.set_data({"published": value})
            expected = stats.laplace.logpdf(value, [VALUES.sum(), (VALUES**2).sum()], 2.0).sum()
            assert density({"x": VALUES}) == pytest.approx(expected, rel=ROUNDING)


def test_an_integer_pm_data_can_be_set_later():
    with pm.Model() as model:
        published = pm.Data("published", 3)
        x = pm.Poisson("x", 2.0, shape=5)
        pmp.Privatized("release", x, pmp.DiscreteLaplace(scale=2.0), observed=published)
        density = release_density(model)
        for value in (3, 14):
            pm.set_data({"published": value})
            expected = discrete_laplace(value, COUNTS.sum(), 2.0)
            assert density({"x": COUNTS}) == pytest.approx(expected, rel=ROUNDING)


# Which variables are records.
def one_release(x):
    pmp.Privatized("release", x, LAPLACE, observed=1.0)


def iid():
    mu, sigma = pm.Normal("mu"), pm.HalfNormal("sigma")
    one_release(pm.Normal("x", mu, sigma, shape=5))
    return {"x"}


def several_releases_of_one_database():
    x = pm.Normal("x", pm.Normal("mu"), 1, shape=5)
    pmp.Privatized("total", x, LAPLACE, observed=1.0)
    pmp.Privatized("squares", x**2, pmp.Gaussian(scale=3.0), observed=7.0)
    pmp.Privatized("each", x, pmp.Laplace(scale=9.0), local=True, observed=np.zeros(5))
    return {"x"}


def records_of_several_variables():
    slope = pm.Normal("slope")
    x = pm.Normal("x", shape=5)
    y = pm.Normal("y", slope * x, 1, shape=5)
    pmp.Privatized("release", pt.stack([x * x, x * y], axis=1), LAPLACE, observed=[5.0, 3.0])
    return {"x", "y"}


def only_the_last_of_several_variables_is_released():
    x = pm.Normal("x", shape=5)
    one_release(pm.Bernoulli("y", logit_p=pm.Normal("slope") * x, shape=5))
    return {"x", "y"}


def public_covariates():
    z = pm.Data("z", np.linspace(-1, 1, 5))
    one_release(pm.Normal("x", pm.Normal("slope") * z, 1, shape=5))
    return {"x"}


def public_groups():
    effect = pm.Normal("effect", shape=2)
    one_release(pm.Normal("x", effect[np.array([0, 0, 1, 1, 1])], 1))
    return {"x"}


def bernoulli():
    one_release(pm.Bernoulli("x", pm.Beta("p", 1, 1), shape=5))
    return {"x"}


def categorical():
    x = pm.Categorical("x", pm.Dirichlet("p", np.ones(3)), shape=5)
    one_hot = pt.eq(x[:, None], np.arange(3)).astype("int64")
    pmp.Privatized("release", one_hot, pmp.DiscreteLaplace(scale=2.0), observed=[2, 1, 2])
    return {"x"}


def mixture():
    weights = pm.Dirichlet("weights", np.ones(2))
    one_release(pm.NormalMixture("x", weights, [-1.0, 1.0], [0.5, 0.5], shape=5))
    return {"x"}


def mixture_with_labels():
    label = pm.Bernoulli("label", pm.Beta("p", 1, 1), shape=5)
    centre = pm.Normal("centre", shape=2)
    one_release(pm.Normal("x", centre[label], 1))
    return {"label", "x"}


def multivariate_normal():
    x = pm.MvNormal("x", pm.Normal("mu", shape=2), np.eye(2), shape=(5, 2))
    pmp.Privatized("release", x, LAPLACE, observed=[1.0, 2.0])
    return {"x"}


def dirichlet():
    x = pm.Dirichlet("x", pm.HalfNormal("concentration", shape=3), shape=(5, 3))
    pmp.Privatized("release", x[:, :2], LAPLACE, observed=[1.0, 2.0])
    return {"x"}


def truncated():
    law = pm.Normal.dist(pm.Normal("mu"), 1)
    one_release(pm.Truncated("x", law, lower=-1, upper=1, shape=5))
    return {"x"}


def a_parameter_vector_as_long_as_the_database():
    design = np.vander(np.linspace(-1, 1, 5), 5)
    one_release(pm.Normal("x", pt.dot(design, pm.Normal("slopes", shape=5)), 1, shape=5))
    return {"x"}


def a_parameter_vector_hidden_by_a_zero_start():
    # The slopes do not matter at all where their common factor starts.
    design = np.vander(np.linspace(-1, 1, 5), 5)
    slopes = pm.Normal("factor") * pm.Normal("slopes", shape=5)
    one_release(pm.Normal("x", pt.dot(design, slopes), 1, shape=5))
    return {"x"}


def a_parameter_vector_shared_by_reversed_rows():
    effect = pm.Normal("effect", shape=5)
    one_release(pm.Normal("x", effect + effect[::-1], 1, shape=5))
    return {"x"}


def a_latent_variable_that_feeds_the_record_row_by_row():
    latent = pm.Normal("latent", pm.Normal("mu"), 1, shape=5)
    one_release(pm.Poisson("x", pt.exp(latent), shape=5))
    return {"latent", "x"}


def a_transform_that_depends_on_a_parameter():
    one_release(pm.Uniform("x", 0, pm.HalfNormal("theta"), shape=5))
    return {"x"}


def symbolic_sizes():
    with_rows = pm.Data("z", np.linspace(-1, 1, 5))
    one_release(pm.Normal("x", pm.Normal("slope") * with_rows, 1, shape=with_rows.shape[0]))
    return {"x"}


def a_single_record():
    one_release(pm.Normal("x", pm.Normal("mu"), 1, shape=1))
    return {"x"}


@pytest.mark.parametrize(
    "write",
    [
        iid,
        several_releases_of_one_database,
        records_of_several_variables,
        only_the_last_of_several_variables_is_released,
        public_covariates,
        public_groups,
        bernoulli,
        categorical,
        mixture,
        mixture_with_labels,
        multivariate_normal,
        dirichlet,
        truncated,
        a_parameter_vector_as_long_as_the_database,
        a_parameter_vector_hidden_by_a_zero_start,
        a_parameter_vector_shared_by_reversed_rows,
        a_latent_variable_that_feeds_the_record_row_by_row,
        a_transform_that_depends_on_a_parameter,
        symbolic_sizes,
        a_single_record,
    ],
    ids=lambda write: write.__name__,
)
def test_records_are_marked_and_parameters_are_not(write):
    with pm.Model() as model:
        expected = write()
    assert {rv.name for rv in model.basic_RVs if is_record(rv)} == expected
    density = model.compile_logp(mode="FAST_COMPILE")
    assert np.isfinite(density(model.initial_point(random_seed=1)))


def test_a_mark_changes_neither_density_nor_draws():
    def build(*, released):
        with pm.Model() as model:
            x = pm.Gamma("x", 2.0, pm.HalfNormal("rate"), shape=5)
            if released:
                pmp.Privatized("release", x, LAPLACE, observed=1.0)
        return model, x

    plain, marked = build(released=False), build(released=True)
    point = plain[0].initial_point(random_seed=1)
    densities = [model.compile_logp(vars=model.free_RVs)(point) for model, _ in (plain, marked)]
    assert densities[0] == densities[1]
    draws = [pm.draw(x, random_seed=1) for _, x in (plain, marked)]
    np.testing.assert_array_equal(*draws)


def test_records_start_at_a_draw_and_not_all_at_one_point():
    with pm.Model() as model:
        one_release(pm.Normal("x", shape=5))
    assert len(set(model.initial_point(random_seed=1)["x"])) == 5
