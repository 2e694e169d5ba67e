"""A finished model says which factors see its records, and is refused if one mixes rows."""

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest

import pymc_privacy as pmp
from pymc_privacy.errors import RecordError, ReleaseError
from pymc_privacy.model.database import find_databases
from pymc_privacy.targets.record_sweep import compile_records

LAPLACE = pmp.Laplace(scale=2.0)
SIZE = 6


def names(variables):
    return [rv.name for rv in variables]


def two_columns(x):
    return pt.stack([x, x**2], axis=1)


def normal_records(name="x", mu=0.0):
    """Records with one central release."""
    x = pm.Normal(name, mu, 1, shape=SIZE)
    pmp.Privatized(f"release of {name}", x, LAPLACE, observed=1.0)
    return x


def test_a_database_lists_records_releases_and_size():
    with pm.Model() as model:
        x = pm.Normal("x", pm.Normal("mu"), 1, shape=SIZE)
        y = pm.Bernoulli("y", logit_p=x, shape=SIZE)
        pmp.Privatized("total", pt.stack([x, x * y], axis=1), LAPLACE, observed=[1.0, 2.0])
        pmp.Privatized("count", y, pmp.DiscreteLaplace(scale=1.5), observed=3)
        pmp.Privatized("each", y, pmp.Laplace(scale=4.0), local=True, observed=np.zeros(SIZE))
    [database] = find_databases(model)
    assert names(database.records) == ["x", "y"]
    assert names(database.releases) == ["total", "count"]
    assert names(database.record_factors) == ["each"]
    assert database.mechanisms == [LAPLACE, pmp.DiscreteLaplace(scale=1.5)]
    assert [value.tolist() for value in database.observed] == [[1.0, 2.0], 3.0]
    assert [t.type.shape for t in database.contributions] == [(SIZE, 2), (SIZE,)]
    assert database.size == SIZE


def test_two_separate_databases_are_two():
    with pm.Model() as model:
        mu = pm.Normal("mu")
        normal_records("x", mu)
        normal_records("y", mu)
    first, second = find_databases(model)
    assert (names(first.records), names(first.releases)) == (["x"], ["release of x"])
    assert (names(second.records), names(second.releases)) == (["y"], ["release of y"])


def test_databases_of_different_sizes_are_two():
    with pm.Model() as model:
        for name, size in (("x", 4), ("y", 9)):
            x = pm.Normal(name, shape=size)
            pmp.Privatized(f"release of {name}", x, LAPLACE, observed=1.0)
    assert [database.size for database in find_databases(model)] == [4, 9]


def test_the_size_follows_data_that_is_set_later():
    with pm.Model() as model:
        z = pm.Data("z", np.zeros(4))
        x = pm.Normal("x", pm.Normal("slope") * z, 1, shape=z.shape[0])
        pmp.Privatized("release", two_columns(x), LAPLACE, observed=[1.0, 2.0])
        for size in (4, 9):
            pm.set_data({"z": np.linspace(-1, 1, size)})
            assert [database.size for database in find_databases(model)] == [size]


def test_variables_tied_by_one_release_are_one_database():
    with pm.Model() as model:
        x, y = normal_records("x"), normal_records("y")
        pmp.Privatized("product", x * y, LAPLACE, observed=1.0)
    [database] = find_databases(model)
    assert names(database.records) == ["x", "y"]
    assert names(database.releases) == ["release of x", "release of y", "product"]


def test_variables_tied_by_a_weight_are_one_database():
    with pm.Model() as model:
        x, y = normal_records("x"), normal_records("y")
        pm.Potential("close", -((x - y) ** 2))
    [database] = find_databases(model)
    assert names(database.record_factors) == ["close"]


def test_a_record_left_out_is_held_fixed():
    with pm.Model() as model:
        x = pm.Normal("x", shape=SIZE)
        y = pm.Normal("y", x, 1, shape=SIZE)
        pmp.Privatized("release", x * y, LAPLACE, observed=1.0)
    [database] = find_databases(model, [x])
    assert names(database.records) == ["x"]
    # The density of y given x is then one of the factors that see x.
    assert names(database.record_factors) == ["y"]


# Other factors that see the records.
def observed_row_by_row(x):
    pm.Normal("other", x, 1, observed=np.zeros(SIZE))


def latent_row_by_row(x):
    pm.Normal("other", x, 1)


def observed_vector_per_row(x):
    pm.Normal("other", x[:, None], 1, observed=np.zeros((SIZE, 3)))


def potential_row_by_row(x):
    pm.Potential("other", -(x**2))


each_row_wise_factor = pytest.mark.parametrize(
    "factor",
    [observed_row_by_row, latent_row_by_row, observed_vector_per_row, potential_row_by_row],
)


@each_row_wise_factor
def test_a_factor_that_sees_records_row_by_row_is_a_weight(factor):
    with pm.Model() as model:
        factor(normal_records())
    [database] = find_databases(model)
    assert names(database.record_factors) == ["other"]


def density_at(model, name, point):
    return model.compile_logp(vars=[model[name]], mode="FAST_COMPILE")(point)


@each_row_wise_factor
def test_the_weight_ratio_is_that_of_the_densities(factor):
    with pm.Model() as model:
        factor(normal_records())
    [database] = find_databases(model)
    program = compile_records(database, {"mode": "FAST_COMPILE"})
    point = model.initial_point(random_seed=1)
    [fresh], ratio = program.draw_from(
        np.random.default_rng(1), point, np.empty((program.width, SIZE))
    )
    assert ratio.shape == (SIZE,)
    for i in range(SIZE):
        moved = point["x"].copy()
        moved[i] = fresh[i]
        then = density_at(model, "other", point | {"x": moved})
        now = density_at(model, "other", point)
        assert ratio[i] == pytest.approx(then - now, rel=1e-9)


def observed_mean(x):
    pm.Normal("other", x.mean(), 1, observed=0.0)


def latent_mean(x):
    pm.Normal("other", x.mean(), 1)


def observed_centred_rows(x):
    pm.Normal("other", x - x.mean(), 1, observed=np.zeros(SIZE))


def observed_one_row(x):
    pm.Normal("other", x[0], 1, observed=0.0)


def scalar_potential(x):
    pm.Potential("other", -((x.sum() - 1) ** 2))


def summed_potential(x):
    pm.Potential("other", -(x**2).sum())


@pytest.mark.parametrize(
    "factor",
    [
        observed_mean,
        latent_mean,
        observed_centred_rows,
        observed_one_row,
        scalar_potential,
        summed_potential,
    ],
)
def test_a_factor_that_mixes_rows_is_refused_by_name(factor):
    with pm.Model() as model:
        factor(normal_records())
    with pytest.raises(RecordError, match=r"The records 'x' must be local.*'other'"):
        find_databases(model)


def test_a_factor_written_after_the_release_is_seen_by_the_sampler():
    with pm.Model():
        x = normal_records()
        pm.Normal("other", x.mean(), 1, observed=0.0)
        with pytest.raises(RecordError, match="'other'"):
            pm.sample(1, tune=0, chains=1, progressbar=False)


# Exchangeability.
def identical():
    return pm.Normal("x", pm.Normal("mu"), pm.HalfNormal("sigma"), shape=SIZE)


def identical_with_a_latent_variable():
    return pm.Poisson("x", pt.exp(pm.Normal("latent", shape=SIZE)), shape=SIZE)


def public_covariate():
    return pm.Normal("x", pm.Normal("slope") * np.linspace(-1, 1, SIZE), 1, shape=SIZE)


def public_groups():
    return pm.Normal("x", pm.Normal("effect", shape=2)[np.array([0, 0, 0, 1, 1, 1])], 1)


def one_special_record():
    return pm.Normal("x", 0, np.array([1.0] * (SIZE - 1) + [2.0]), shape=SIZE)


def covariate_of_coins():
    return pm.Bernoulli("x", logit_p=pm.Normal("slope") * np.linspace(-1, 1, SIZE), shape=SIZE)


@pytest.mark.parametrize(
    ("write", "exchangeable"),
    [
        (identical, True),
        (identical_with_a_latent_variable, True),
        (public_covariate, False),
        (public_groups, False),
        (one_special_record, False),
        (covariate_of_coins, False),
    ],
)
def test_records_are_exchangeable_unless_public_values_tell_them_apart(write, exchangeable):
    with pm.Model() as model:
        pmp.Privatized("release", write(), LAPLACE, observed=1.0)
    assert find_databases(model)[0].exchangeable is exchangeable


@pytest.mark.parametrize("size", [2, 3, 4, 5])
def test_a_few_records_can_be_told_apart(size):
    with pm.Model() as model:
        x = pm.Normal("x", np.arange(size), 1, shape=size)
        pmp.Privatized("release", x, LAPLACE, observed=1.0)
    assert not find_databases(model)[0].exchangeable


@pytest.mark.parametrize(("weights", "exchangeable"), [(1.0, True), (np.arange(6.0), False)])
def test_public_weights_in_the_statistic_tell_records_apart(weights, exchangeable):
    with pm.Model() as model:
        x = pm.Normal("x", shape=SIZE)
        pmp.Privatized("release", weights * x, LAPLACE, observed=1.0)
    assert find_databases(model)[0].exchangeable is exchangeable


def test_a_local_release_tells_records_apart():
    with pm.Model() as model:
        x = pm.Normal("x", shape=SIZE)
        pmp.Privatized("release", x, LAPLACE, local=True, observed=np.arange(6.0))
    assert not find_databases(model)[0].exchangeable


# Releases.
@pytest.mark.parametrize("local", [False, True])
def test_an_unobserved_release_is_refused_when_sampling(local):
    with pm.Model() as model:
        x = pm.Normal("x", shape=SIZE)
        pmp.Privatized("release", x, LAPLACE, local=local)
    with pytest.raises(ReleaseError, match=r"'release' must be observed.*'x'.*observed="):
        find_databases(model)
    with pytest.raises(ReleaseError, match=r"'release' must be observed"):
        pm.sample(1, tune=0, chains=1, model=model, progressbar=False)


def contributions_are_kept(model):
    [database] = find_databases(model)
    return compile_records(database, {"mode": "FAST_COMPILE"}).contributions_are_kept


def test_a_transform_that_depends_on_a_parameter_moves_the_records():
    with pm.Model() as model:
        theta = pm.HalfNormal("theta")
        x = pm.Uniform("x", 0, theta, shape=SIZE)
        pmp.Privatized("release", x, LAPLACE, observed=1.0)
    [database] = find_databases(model)
    assert not contributions_are_kept(model)
    assert database.constant_releases([model.rvs_to_values[theta]]) == []


def test_releases_are_constant_for_the_parameters_otherwise():
    with pm.Model() as model:
        rate = pm.HalfNormal("rate")
        x = pm.Exponential("x", rate, shape=SIZE)
        pmp.Privatized("release", x, LAPLACE, observed=1.0)
    [database] = find_databases(model)
    assert contributions_are_kept(model)
    assert names(database.constant_releases([model.rvs_to_values[rate]])) == ["release"]


def test_only_the_release_of_the_moving_record_varies_with_the_parameter():
    with pm.Model() as model:
        theta = pm.HalfNormal("theta")
        x = pm.Uniform("x", 0, theta, shape=SIZE)
        y = pm.Normal("y", x, 1, shape=SIZE)
        pmp.Privatized("moves", x, LAPLACE, observed=1.0)
        pmp.Privatized("stays", y, LAPLACE, observed=1.0)
    [database] = find_databases(model)
    assert names(database.constant_releases([model.rvs_to_values[theta]])) == ["stays"]
