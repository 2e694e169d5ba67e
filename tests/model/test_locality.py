"""Records are found where rows are local, and refused in a sentence where they are not."""

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest
from pytensor.graph.basic import Apply

import pymc_privacy as pmp
from pymc_privacy.errors import RecordError
from pymc_privacy.model.database import check_locality, find_databases
from pymc_privacy.model.locality import find_records, parents
from pymc_privacy.model.points import points_near_the_start, prior_points

LAPLACE = pmp.Laplace(scale=2.0)


# Each writes a model that must be refused.
def centred():
    x = pm.Normal("x", shape=6)
    return x - x.mean()


def relative_to_the_first():
    x = pm.Normal("x", shape=6)
    return x - x[0]


def relative_to_the_last():
    x = pm.Normal("x", shape=7)
    return x - x[-1]


def within_pairs():
    x = pm.Normal("x", shape=4)
    partner = x[np.array([1, 0, 3, 2])]
    return x - partner


def within_mirrored_pairs():
    x = pm.Normal("x", shape=4)
    return x * x[::-1]


def sorted_rows():
    return pt.sort(pm.Normal("x", shape=6))


def coins_relative_to_their_share():
    x = pm.Bernoulli("x", 0.5, shape=6)
    return x - x.mean()


def rare_coins_relative_to_the_first():
    x = pm.Bernoulli("x", 0.1, shape=6)
    return x - x[0]


def columns_centred():
    x = pm.MvNormal("x", np.zeros(2), np.eye(2), shape=(6, 2))
    return x - x.mean(axis=0)


def second_variable_sees_all_rows():
    x = pm.Normal("x", shape=6)
    y = pm.Normal("y", x.mean(), 1, shape=6)
    return x + y


def the_largest_written_into_the_first_row():
    x = pm.Normal("x", shape=6)
    return pt.set_subtensor(x[0], pt.maximum(x.max(), 50.0) - 50.0)


def nothing_when_one_is_far_out():
    x = pm.Normal("x", shape=6)
    return pt.switch(pt.any(x > 40), 0.0, x)


def outliers_dropped():
    x = pm.Normal("x", shape=6)
    return pt.switch(abs(x - x.mean()) > 3 * x.std(), 0.0, x)


class Shift(pytensor.graph.op.Op):
    """An operation that nobody knows: rows are mixed where the largest is above a limit."""

    __props__ = ("limit",)

    def __init__(self, limit):
        self.limit = limit

    def make_node(self, x):
        return Apply(self, [x], [x.type()])

    def perform(self, node, inputs, outputs):
        outputs[0][0] = inputs[0] + np.maximum(inputs[0].max() - self.limit, 0.0)


def unreadable_and_mixed_far_out():
    return Shift(1000.0)(pm.Normal("x", shape=6))


def unreadable_and_mixed_at_some_parameters():
    mu = pm.Normal("mu", 0, 10)
    return Shift(12.0)(pm.Normal("x", mu, 0.1, shape=6))


class Gate(Shift):
    """An operation that nobody knows: rows above a limit are replaced by the first one."""

    def perform(self, node, inputs, outputs):
        outputs[0][0] = np.where(inputs[0] > self.limit, inputs[0][0], inputs[0])


def unreadable_and_mixed_where_a_row_is_far_out_itself():
    return Gate(9.0)(pm.Normal("x", shape=6))


class Slit(Shift):
    """An operation that nobody knows: rows at the limit are replaced by the first one."""

    def perform(self, node, inputs, outputs):
        there = abs(inputs[0] - self.limit) < 1e-6
        outputs[0][0] = np.where(there, inputs[0][0], inputs[0])


def test_records_are_looked_at_where_a_chain_has_come_to():
    """Here rows are mixed in a place that is neither likely nor far out."""
    with pm.Model() as model:
        x = pm.Uniform("x", 0, 1, shape=6, default_transform=None)
        pmp.Privatized("release", Slit(1.0)(x), LAPLACE, observed=1.0)
    databases = find_databases(model, [x])
    check_locality(databases, {"x": np.full(6, 0.5)})
    with pytest.raises(RecordError, match="'x' must be local"):
        check_locality(databases, {"x": np.array([0.5, 0.5, 0.5, 0.5, 0.5, 1 - 1e-9])})


def at_a_place_that_another_record_says():
    g = pm.Normal("g", shape=6)
    return pm.Normal("x", shape=6)[pt.arange(6) - pt.cast(g > 6, "int64") * np.arange(6)]


@pytest.mark.parametrize(
    "write",
    [
        unreadable_and_mixed_where_a_row_is_far_out_itself,
        at_a_place_that_another_record_says,
        the_largest_written_into_the_first_row,
        nothing_when_one_is_far_out,
        outliers_dropped,
        unreadable_and_mixed_far_out,
        unreadable_and_mixed_at_some_parameters,
        centred,
        relative_to_the_first,
        relative_to_the_last,
        within_pairs,
        within_mirrored_pairs,
        sorted_rows,
        coins_relative_to_their_share,
        rare_coins_relative_to_the_first,
        columns_centred,
        second_variable_sees_all_rows,
    ],
    ids=lambda write: write.__name__,
)
@pytest.mark.parametrize("local", [False, True], ids=["central", "local"])
def test_records_whose_rows_are_mixed_are_refused_by_name(write, local):
    with (
        pm.Model(),
        pytest.raises(RecordError, match=r"The records 'x' must be local.* several records enter"),
    ):
        pmp.Privatized("release", write(), LAPLACE, local=local)


@pytest.mark.parametrize("size", [2, 3, 5, 8])
def test_the_refusal_does_not_depend_on_which_row_is_special(size):
    for special in range(size):
        with pm.Model():
            x = pm.Normal("x", shape=size)
            with pytest.raises(RecordError, match="'x' must be local"):
                pmp.Privatized("release", x - x[special], LAPLACE)


def test_a_refused_release_leaves_no_trace_in_the_model():
    with pm.Model() as model:
        x = pm.Normal("x", shape=6)
        with pytest.raises(RecordError):
            pmp.Privatized("release", x - x.mean(), LAPLACE, observed=1.0)
        pmp.Privatized("release", x, LAPLACE, observed=1.0)
    assert [rv.name for rv in model.observed_RVs] == ["release"]


@pytest.mark.parametrize(
    "contributions",
    [lambda x, mu: x - mu, lambda x, mu: mu * x, lambda x, mu: pt.stack([x, x + mu], axis=1)],
    ids=["shifted", "scaled", "one column"],
)
def test_a_statistic_that_depends_on_a_parameter_is_refused_by_name(contributions):
    with pm.Model():
        mu = pm.Normal("mu")
        x = pm.Normal("x", mu, 1, shape=6)
        with pytest.raises(
            RecordError,
            match=r"contributions to 'release' must be computed from records alone.*on 'mu'",
        ):
            pmp.Privatized("release", contributions(x, mu), LAPLACE, observed=1.0)


def test_a_statistic_that_depends_on_a_transformed_parameter_is_refused_by_name():
    with pm.Model():
        mu = pm.Normal("mu")
        bound = pm.Deterministic("bound", pt.exp(mu))
        x = pm.Normal("x", mu, 1, shape=6)
        with pytest.raises(RecordError, match=r"from records alone.*on 'mu'"):
            pmp.Privatized("release", pt.clip(x, -bound, bound), LAPLACE, observed=1.0)


@pytest.mark.parametrize(
    "reduce", [pt.sum, pt.mean, pt.max, lambda x: x[0]], ids=["sum", "mean", "max", "first"]
)
def test_a_sum_taken_too_early_is_refused(reduce):
    with pm.Model():
        x = pm.Normal("x", shape=6)
        with pytest.raises(
            RecordError,
            match=r"one row per record.*single number computed from 'x' of shape \(6,\)",
        ):
            pmp.Privatized("release", reduce(x), LAPLACE, observed=1.0)


def test_a_stack_of_sums_is_refused():
    with pm.Model():
        x = pm.Normal("x", shape=6)
        with pytest.raises(
            RecordError, match=r"one row per record.*length 2 computed from 'x' of shape \(6,\)"
        ):
            pmp.Privatized("release", pt.stack([x.sum(), (x**2).sum()]), LAPLACE)


def test_records_laid_along_the_wrong_axis_are_refused():
    with pm.Model():
        x = pm.Normal("x", shape=6)
        with pytest.raises(RecordError, match=r"one row per record.*length 2 computed from 'x'"):
            pmp.Privatized("release", pt.stack([x, x**2], axis=0), LAPLACE)


def test_contributions_of_three_dimensions_are_refused():
    with pm.Model():
        x = pm.Normal("x", shape=(6, 2, 2))
        with pytest.raises(RecordError, match=r"shape \(n,\) or \(n, d\).*got 3 dimensions"):
            pmp.Privatized("release", x, LAPLACE)


def random_walk():
    start = pm.Normal.dist(0, 1)
    return pm.GaussianRandomWalk("x", mu=0, sigma=1, init_dist=start, steps=5)


def one_draw_of_a_multivariate_normal():
    return pm.MvNormal("x", np.zeros(6), np.eye(6))


@pytest.mark.parametrize("write", [random_walk, one_draw_of_a_multivariate_normal])
def test_rows_that_are_not_independent_are_refused_by_name(write):
    with pm.Model():
        x = write()
        with pytest.raises(
            RecordError, match=r"must be independent.*all of 'x' is one draw of .*depend on each"
        ):
            pmp.Privatized("release", x, LAPLACE, observed=1.0)


def test_rows_tied_by_a_random_walk_behind_them_are_not_records():
    with pm.Model() as model:
        level = pm.GaussianRandomWalk("level", init_dist=pm.Normal.dist(), steps=5)
        x = pm.Normal("x", level, 1, shape=6)
        assert find_records("release", x, model) == [x]


def test_an_observed_record_variable_is_refused_by_name():
    with pm.Model():
        x = pm.Normal("x", observed=np.zeros(6))
        with pytest.raises(
            RecordError, match=r"behind 'release' must be latent.*got 'x' with observed data"
        ):
            pmp.Privatized("release", x, LAPLACE, observed=1.0)


def test_an_observed_variable_among_the_contributions_is_a_public_number():
    with pm.Model() as model:
        z = pm.Normal("z", observed=np.arange(6.0))
        x = pm.Normal("x", shape=6)
        assert find_records("release", x * z, model) == [x]


@pytest.mark.parametrize("shape", [0, (0, 2)])
def test_an_empty_database_is_refused(shape):
    with pm.Model():
        x = pm.Normal("x", shape=shape)
        with pytest.raises(
            RecordError, match=r"'release' must come from at least one record.*empty database"
        ):
            pmp.Privatized("release", x, LAPLACE)


def test_contributions_without_a_random_variable_are_refused():
    with (
        pm.Model(),
        pytest.raises(RecordError, match=r"computed from variables.*no random variable at all"),
    ):
        pmp.Privatized("release", np.arange(6.0), LAPLACE, observed=1.0)


def test_parents_stop_at_the_nearest_random_variables():
    with pm.Model() as model:
        mu = pm.Normal("mu")
        x = pm.Normal("x", mu, 1, shape=6)
        y = pm.Normal("y", x, 1)
    assert parents(y, model) == [y]
    assert parents(2 * x + 1, model) == [x]
    assert parents(x + mu, model) == [mu, x]


def test_points_have_the_types_of_the_model():
    with pm.Model() as model:
        pm.Normal("a")
        pm.Normal("x", shape=6, dtype="float32")
    for point in [next(prior_points(model)), *points_near_the_start(model)]:
        assert {name: value.dtype.name for name, value in point.items()} == {
            "a": "float64",
            "x": "float32",
        }
