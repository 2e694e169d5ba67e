"""`Records`: rows that do not exist count nowhere, in densities, draws and releases."""

import cloudpickle
import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
from scipy import stats

import pymc_privacy as pmp
from pymc_privacy.errors import RecordError, ReleaseError
from pymc_privacy.model.exact_length import with_exact_length
from pymc_privacy.model.sized_records import is_open
from pymc_privacy.results import blank_absent_records

CAPACITY = 12


def regression():
    with pm.Model() as model:
        slope = pm.Normal("slope", 0, 2)
        scale = pm.HalfNormal("scale", 2)
        n = pm.Poisson("n", 6)
        x = pmp.Records("x", pm.Exponential.dist(scale=scale), size=n, capacity=CAPACITY)
        y = pmp.Records("y", pm.Normal.dist(slope * x, 0.5), size=n, capacity=CAPACITY)
        t = pt.stack([pt.clip(x, 0, 3), pt.clip(x * y, -3, 3)], axis=1)
        pmp.Privatized("s", t, pmp.Laplace(scale=2.0), observed=[3.0, 4.0])
        pmp.Privatized("n_dp", n, pmp.DiscreteLaplace(scale=2.0), observed=7)
    return model


@pytest.fixture(scope="module")
def model():
    return regression()


def point_with(model, size):
    return model.initial_point(random_seed=1) | {"n": np.asarray(size)}


@pytest.mark.parametrize("size", [0, 1, 5, CAPACITY])
def test_only_rows_that_exist_have_a_density(model, size):
    point = point_with(model, size)
    found = model.point_logps(point, round_vals=12)
    x, y, scale = point["x"][:size], point["y"][:size], np.exp(point["scale_log__"])
    assert found["x"] == pytest.approx(stats.expon.logpdf(x, scale=scale).sum())
    assert found["y"] == pytest.approx(stats.norm.logpdf(y, point["slope"] * x, 0.5).sum())
    statistic = np.array([np.clip(x, 0, 3).sum(), np.clip(x * y, -3, 3).sum()])
    released = stats.laplace.logpdf([3.0, 4.0], statistic, 2.0).sum()
    assert found["s"] == pytest.approx(released)


@pytest.mark.slow
def test_no_transform_and_no_gradient_of_rows_that_do_not_exist(model):
    assert model.rvs_to_transforms[model["x"]] is None
    slopes = model.compile_dlogp(model["x"])(point_with(model, 5))
    assert np.all(slopes[:5] != 0)
    assert np.all(slopes[5:] == 0)


def test_whole_contributions_of_real_records_have_no_slope():
    with pm.Model() as counted:
        mu = pm.Normal("mu")
        n = pm.DiscreteUniform("n", 0, 6)
        x = pmp.Records("x", pm.Normal.dist(mu, 1), size=n)
        pmp.Privatized("s", (x > 0).astype("int64"), pmp.DiscreteLaplace(scale=2.0), observed=3)
    point = counted.initial_point(random_seed=1) | {"n": np.asarray(4)}
    slopes = counted.compile_dlogp([counted["mu"], counted["x"]])(point)
    offsets = point["x"][:4] - point["mu"]
    expected = [offsets.sum() - point["mu"], *-offsets, 0, 0]
    np.testing.assert_allclose(slopes, expected, atol=1e-12)


@pytest.mark.parametrize("size", [0, 3, CAPACITY])
def test_the_model_of_exact_length_has_the_same_densities(model, size):
    twin = with_exact_length(model)
    point = point_with(model, size)
    cut = {name: v[:size] if name in ("x", "y") else v for name, v in point.items()}
    whole, short = (m.point_logps(p, round_vals=12) for m, p in ((model, point), (twin, cut)))
    assert whole == pytest.approx(short)


def test_prior_predictive_releases_count_the_records_that_exist(model):
    with model:
        drawn = pm.sample_prior_predictive(2000, random_seed=2)
    prior, released = drawn["prior"].to_dataset(), drawn["prior_predictive"].to_dataset()
    sizes, x = prior["n"].values[0], prior["x"].values[0]
    there = np.arange(CAPACITY) < sizes[:, None]
    totals = np.where(there, np.clip(x, 0, 3), 0).sum(axis=1)
    noise = released["s"].values[0, :, 0] - totals
    assert stats.kstest(noise, stats.laplace(scale=2.0).cdf).pvalue > 1e-6
    everything = released["s"].values[0, :, 0] - np.clip(x, 0, 3).sum(axis=1)
    assert stats.kstest(everything, stats.laplace(scale=2.0).cdf).pvalue < 1e-6
    blank_absent_records(drawn, model)
    kept = drawn["prior"].to_dataset()["x"].values[0]
    np.testing.assert_array_equal(np.isfinite(kept).sum(axis=1), np.minimum(sizes, CAPACITY))


def test_a_model_survives_pickling_and_copying(model):
    for other in (
        cloudpickle.loads(cloudpickle.dumps(model)),
        pm.do(model, {"slope": 0.5}),
        pm.model.transform.optimization.freeze_dims_and_data(model),
    ):
        assert type(other["x"].owner.op).__name__ == type(model["x"].owner.op).__name__
        assert isinstance(other.compile_logp()(other.initial_point(random_seed=3)), np.ndarray)


def test_dims_give_the_capacity():
    with pm.Model(coords={"person": range(9)}) as model:
        n = pm.Poisson("n", 4)
        x = pmp.Records("x", pm.Normal.dist(), size=n, dims="person")
    assert x.type.shape == (9,)
    assert model.named_vars_to_dims["x"] == ("person",)


@pytest.mark.parametrize(
    ("prior", "capacity"),
    [
        (lambda: pm.DiscreteUniform("n", 1, 30), 30),
        (lambda: pm.Binomial("n", 25, 0.5), 25),
        (lambda: pm.Categorical("n", np.full(8, 1 / 8)), 7),
        (lambda: pm.Truncated("n", pm.Poisson.dist(5), upper=20), 20),
        (lambda: pm.Truncated("n", pm.NegativeBinomial.dist(mu=10, alpha=2), upper=20), 20),
        (lambda: pm.Truncated("n", pm.DiscreteWeibull.dist(0.9, 1.0), upper=20), 20),
    ],
    ids=["uniform", "binomial", "categorical", "truncated", "negative binomial", "weibull"],
)
def test_the_prior_gives_the_capacity(prior, capacity):
    with pm.Model():
        x = pmp.Records("x", pm.Normal.dist(), size=prior())
    assert x.type.shape == (capacity,)


@pytest.mark.parametrize(
    ("prior", "law"),
    [
        (lambda: pm.Poisson("n", 0.01), stats.poisson(0.01)),
        (lambda: pm.Poisson("n", 90), stats.poisson(90)),
        (lambda: pm.Poisson("n", 4000), stats.poisson(4000)),
        (lambda: pm.Geometric("n", 0.01), stats.geom(0.01)),
        (lambda: pm.NegativeBinomial("n", mu=300, alpha=0.2), stats.nbinom(0.2, 0.2 / 300.2)),
        (lambda: pm.NegativeBinomial("n", mu=300, alpha=5), stats.nbinom(5, 5 / 305)),
        (lambda: pm.Truncated("n", pm.Poisson.dist(6), lower=1), stats.poisson(6)),
    ],
)
def test_a_prior_without_an_end_gives_a_capacity_that_is_hardly_exceeded(prior, law):
    with pm.Model():
        x = pmp.Records("x", pm.Normal.dist(), size=prior())
    capacity = x.type.shape[0] // 2
    beyond = np.exp(law.logpmf(np.arange(capacity + 1, capacity + 200_000))).sum()
    assert beyond <= 1e-40 * 1.01
    # And of the right order: a twentieth less would be exceeded with more than that.
    fewer = int(capacity * 0.95) - 1
    assert np.exp(law.logpmf(np.arange(fewer, capacity + 1))).sum() > 1e-40


def test_a_prior_of_unknown_parameters_rules_nothing_out():
    with pm.Model():
        n = pm.Poisson("n", pm.Gamma("rate", 4, 0.1))
        x = pmp.Records("x", pm.Normal.dist(), size=n)
        y = pmp.Records("y", pm.Normal.dist(x), size=n)
        z = pmp.Records("z", pm.Normal.dist(), size=n, capacity=x.type.shape[0])
    rows = x.type.shape[0] // 2
    assert stats.nbinom.sf(rows, 4, 0.1 / 1.1) < 0.01 < stats.nbinom.sf(rows // 2, 4, 0.1 / 1.1)
    assert [is_open(rv) for rv in (x, y, z)] == [True, True, False]


def test_vectors_as_records():
    with pm.Model():
        n = pm.DiscreteUniform("n", 1, 6)
        x = pmp.Records("x", pm.MvNormal.dist(np.zeros(3), np.eye(3)), size=n)
        z = pmp.Records("z", pm.Normal.dist(np.zeros(2)), size=n)
    assert (x.type.shape, z.type.shape) == ((6, 3), (6, 2))


def refuse(message, build, error=RecordError):
    with pm.Model(), pytest.raises(error, match=message):
        build()


def test_bad_input():
    normal = pm.Normal.dist
    flat = pm.DiscreteUniform
    refuse(
        "no upper bound",
        lambda: pmp.Records("x", normal(), size=pm.Poisson("n", pm.LogNormal("rate", 0, 20))),
    )
    refuse("no upper bound", lambda: pmp.Records("x", normal(), size=pm.Geometric("n", 1e-7)))
    refuse("discrete random variable", lambda: pmp.Records("x", normal(), size=20))
    refuse("discrete random variable", lambda: pmp.Records("x", normal(), size=pm.Gamma("n", 1, 1)))
    refuse(
        "is observed",
        lambda: pmp.Records("x", normal(), size=pm.Poisson("n", 5, observed=4), capacity=9),
    )
    refuse("unnamed distribution", lambda: pmp.Records("x", 3.0, size=flat("n", 1, 9)))
    refuse(
        "must be unnamed",
        lambda: pmp.Records("x", pm.Normal("a", 0, 1), size=flat("n", 1, 9)),
    )
    refuse("integer >= 1", lambda: pmp.Records("x", normal(), size=flat("n", 1, 9), capacity=0))
    refuse(
        "smallest size that the prior of 'n' allows, 5; got 4",
        lambda: pmp.Records("x", normal(), size=flat("n", 5, 9), capacity=4),
    )
    refuse("must not be negative", lambda: pmp.Records("x", normal(), size=flat("n", -2, 9)))

    def law_of_ones_own():
        n = pm.CustomDist("n", logp=lambda n: -abs(n), dtype="int64")
        pmp.Records("x", normal(), size=n, capacity=9)

    refuse("must not be negative", law_of_ones_own)
    refuse(
        "must not depend on how many",
        lambda: pmp.Records("x", normal(n := flat("n", 1, 9), 1), size=n),
    )

    def other_size():
        n, m = flat("n", 1, 9), flat("m", 1, 9)
        x = pmp.Records("x", normal(), size=n)
        pmp.Records("y", normal(x), size=m)

    refuse("must have their size", other_size)

    def local():
        x = pmp.Records("x", normal(), size=flat("n", 1, 9))
        pmp.Privatized("s", x, pmp.Laplace(scale=1.0), local=True, observed=np.zeros(9))

    refuse("tell how many", local, ReleaseError)

    def potential():
        x = pmp.Records("x", normal(), size=flat("n", 1, 9))
        pmp.Privatized("s", x, pmp.Laplace(scale=1.0), observed=1.0)
        pm.Potential("extra", -(x**2))
        pmp.BirthDeath()

    refuse("only sums may be known", potential)
