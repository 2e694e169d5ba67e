"""A model with a release in it is a PyMC model: every tool of PyMC works on it."""

import cloudpickle
import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
from arviz_base import from_dict
from pymc.model.transform.optimization import freeze_dims_and_data
from pymc.model_graph import model_to_mermaid
from scipy import stats

import pymc_privacy as pmp
from pymc_privacy.model.marks import is_record
from tests import references
from tests.stochastic import assert_law, assert_mean, seed_of

SIZE = 6
SCALE = 0.01
MECHANISM = pmp.Laplace(scale=[SCALE, 2 * SCALE])
OBSERVED = [2.5, 9.0]
PEOPLE = [f"person {i}" for i in range(SIZE)]
POINT = {"mu": np.array(0.4), "x": np.array([-1.3, 0.2, 2.4, 0.9, -0.1, 0.7])}
QUIET = {"progressbar": False, "compute_convergence_checks": False}


def statistic(x):
    return np.stack([x.sum(axis=-1), (x**2).sum(axis=-1)], axis=-1)


def build(*, observed=OBSERVED):
    with pm.Model(coords={"person": PEOPLE, "moment": ["sum", "squares"]}) as model:
        mu = pm.Normal("mu", 0, 2)
        x = pm.Normal("x", mu, 1, dims="person")
        t = pt.stack([x, x**2], axis=1)
        pmp.Privatized("moments", t, MECHANISM, observed=observed, dims="moment")
    return model


def marked(model):
    return [rv.name for rv in model.basic_RVs if is_record(rv)]


def log_density(model, point=POINT):
    return model.compile_logp(mode="FAST_COMPILE")(point)


EXPECTED = (
    stats.norm.logpdf(POINT["mu"], 0, 2)
    + stats.norm.logpdf(POINT["x"], POINT["mu"], 1).sum()
    + stats.laplace.logpdf(OBSERVED, statistic(POINT["x"]), MECHANISM.scale).sum()
)


def trace(**variables):
    """One chain of draws, stored as `pm.sample` stores them."""
    posterior = {name: np.asarray(values)[None] for name, values in variables.items()}
    return from_dict({"posterior": posterior}, coords={"person": PEOPLE}, dims={"x": ["person"]})


@pytest.fixture(scope="module")
def stored():
    rng = np.random.default_rng(1)
    return {"mu": rng.normal(0, 2, 20), "x": rng.normal(0, 1, (20, SIZE))}


# Predictions.
def test_prior_predictive_draws_are_the_statistic_plus_the_mechanisms_noise(request):
    prior = pm.sample_prior_predictive(200, model=build(), random_seed=seed_of(request))
    release = prior["prior_predictive"]["moments"].values[0]
    noise = release - statistic(prior["prior"]["x"].values[0])
    for column, scale in zip(noise.T, MECHANISM.scale, strict=True):
        assert_mean(np.abs(column), scale, what="mean absolute noise")
        assert_mean(np.sign(column), 0.0, what="sign of the noise")


def test_an_unobserved_release_is_drawn_with_the_prior():
    prior = pm.sample_prior_predictive(3, model=build(observed=None), random_seed=1)
    assert prior["prior"]["moments"].shape == (1, 3, 2)


def test_stored_records_are_released_again(stored):
    predictive = pm.sample_posterior_predictive(
        trace(**stored), model=build(), random_seed=1, progressbar=False
    )
    release = predictive["posterior_predictive"]["moments"].values[0]
    # Laplace noise exceeds 20 scales with probability 2e-9.
    assert np.abs(release - statistic(stored["x"])).max() < 20 * max(MECHANISM.scale)
    assert "x" not in predictive["posterior_predictive"]


def test_without_stored_records_a_fresh_database_is_released(stored):
    predictive = pm.sample_posterior_predictive(
        trace(mu=stored["mu"]), model=build(), random_seed=1, progressbar=False
    )
    release = predictive["posterior_predictive"]["moments"].values[0]
    assert np.abs(release - statistic(stored["x"])).min() > SCALE
    # Given mu, the sum is Normal(SIZE mu, SIZE); the noise adds next to nothing.
    z = (release[:, 0] - SIZE * stored["mu"]) / np.sqrt(SIZE + 2 * SCALE**2)
    assert_mean(z, 0.0)
    assert_mean(z**2, 1.0)


def test_the_log_likelihood_is_the_mechanisms_density_at_the_stored_records(stored):
    found = pm.compute_log_likelihood(
        trace(**stored), model=build(), extend_inferencedata=False, progressbar=False
    )
    expected = MECHANISM.log_density(OBSERVED, statistic(stored["x"])).sum(axis=-1)
    np.testing.assert_allclose(np.ravel(found["moments"]), expected, rtol=1e-10)


def test_the_log_likelihood_of_a_local_release_has_a_term_per_record(stored):
    published = np.linspace(-1, 1, SIZE)
    with pm.Model(coords={"person": PEOPLE}) as model:
        x = pm.Normal("x", pm.Normal("mu"), 1, dims="person")
        mechanism = pmp.Laplace(scale=0.5)
        pmp.Privatized("y", x, mechanism, local=True, observed=published, dims="person")
    found = pm.compute_log_likelihood(
        trace(**stored), model=model, extend_inferencedata=False, progressbar=False
    )
    assert found["y"].dims == ("chain", "draw", "person")
    expected = mechanism.log_density(published, stored["x"])
    np.testing.assert_allclose(found["y"].values[0], expected, rtol=1e-10)


# Transformed models.
def test_an_intervention_on_a_parameter_keeps_the_records():
    model = pm.do(build(), {"mu": 3.0})
    assert marked(model) == ["x"]
    point = {"x": POINT["x"]}
    expected = (
        stats.norm.logpdf(POINT["x"], 3.0, 1).sum()
        + stats.laplace.logpdf(OBSERVED, statistic(POINT["x"]), MECHANISM.scale).sum()
    )
    assert log_density(model, point) == pytest.approx(expected, rel=1e-10)


def test_an_intervention_on_the_records_publishes_them():
    model = pm.do(build(observed=None), {"x": POINT["x"]})
    assert marked(model) == []
    release = pm.draw(model["moments"], random_seed=1, mode="FAST_COMPILE")
    assert np.abs(release - statistic(POINT["x"])).max() < 20 * max(MECHANISM.scale)


def test_a_release_observed_later_is_as_good_as_one_observed_at_once():
    model = pm.observe(build(observed=None), {"moments": OBSERVED})
    assert marked(model) == ["x"]
    assert log_density(model) == pytest.approx(EXPECTED, rel=1e-10)
    result = pm.sample(10, tune=10, chains=1, model=model, random_seed=1, **QUIET)
    assert result["sample_stats"]["record_sweep_accept"].shape == (1, 10)
    moved = np.ptp(result["posterior"]["x"].values[0], axis=0)
    assert np.any(moved > 0)


@pytest.mark.parametrize("transform", [pm.Model.copy, freeze_dims_and_data, cloudpickle.loads])
def test_copies_have_the_same_density_and_the_same_records(transform):
    model = build()
    source = cloudpickle.dumps(model) if transform is cloudpickle.loads else model
    copied = transform(source)
    assert copied is not model
    assert marked(copied) == ["x"]
    assert log_density(copied) == pytest.approx(EXPECTED, rel=1e-10)
    assert copied["moments"].owner.op.mechanism == MECHANISM


def test_a_fully_frozen_model_has_the_same_density_and_the_same_records():
    optimization = pytest.importorskip("pymc.model.transform.optimization")
    if not hasattr(optimization, "freeze_model"):
        pytest.skip("this PyMC has no freeze_model")
    frozen = optimization.freeze_model(build())
    assert marked(frozen) == ["x"]
    assert log_density(frozen) == pytest.approx(EXPECTED, rel=1e-10)


def test_marks_of_a_pickled_mixture_survive():
    with pm.Model() as model:
        weights = pm.Dirichlet("weights", np.ones(2))
        x = pm.NormalMixture("x", weights, [-1.0, 1.0], [0.5, 0.5], shape=SIZE)
        pmp.Privatized("total", x, pmp.Laplace(scale=1.0), observed=1.0)
    copied = cloudpickle.loads(cloudpickle.dumps(model))
    assert marked(copied) == ["x"]
    point = model.initial_point(random_seed=1)
    assert log_density(copied, point) == pytest.approx(log_density(model, point), rel=1e-12)


@pytest.mark.parametrize("used", [False, True], ids=["fresh", "after a step"])
def test_a_pickled_step_continues_as_the_original(used):
    model = build()
    step = pmp.RecordSweep(model=model, rng=1)
    point = model.initial_point(random_seed=1)
    if used:
        point, _ = step.step(point)
    copied = cloudpickle.loads(cloudpickle.dumps(step))
    for ours, theirs in zip(step.step(point), copied.step(point), strict=True):
        if isinstance(ours, dict):
            np.testing.assert_array_equal(ours["x"], theirs["x"])
        else:
            assert ours == theirs


def test_a_step_reads_data_that_is_set_between_sweeps():
    with pm.Model(coords={"person": PEOPLE}):
        z = pm.Data("z", np.zeros(SIZE), dims="person")
        x = pm.Normal("x", z, 0.001, dims="person")
        # Noise this wide accepts every proposal.
        pmp.Privatized("total", x, pmp.Laplace(scale=1e9), observed=1.0)
        step = pmp.RecordSweep(rng=1)
        point = {"x": np.zeros(SIZE)}
        for value in (0.0, 1.0, 2.0):
            pm.set_data({"z": np.full(SIZE, value)})
            point, _ = step.step(point)
            # A standard Normal exceeds 7 with probability 3e-12.
            assert np.abs(point["x"] - value).max() < 7 * 0.001


# Pictures.
def test_graphviz_draws_the_way_from_records_to_release():
    pytest.importorskip("graphviz")
    source = pm.model_to_graphviz(build()).source
    assert "mu -> x" in source
    assert "x -> moments" in source
    assert "Privatized" in source


def test_mermaid_draws_the_way_from_records_to_release():
    source = model_to_mermaid(build())
    assert "mu --> x" in source
    assert "x --> moments" in source
    assert "Privatized" in source


def test_a_model_prints_its_releases():
    model = build()
    assert "moments ~ Privatized(f(x))" in model.str_repr()
    assert "x ~ Normal(mu, 1)" in model.str_repr()
    latex = model.str_repr(formatting="latex")
    assert r"\text{moments} &\sim & \operatorname{Privatized}(f(\text{x}))" in latex


# Other samplers on the very same model.
def clamped():
    with pm.Model() as model:
        x = pm.Normal("x", pm.Normal("mu", 0.5, 1.5), 1.2, shape=SIZE)
        pmp.Privatized("total", pt.clip(x, -2, 2), pmp.Laplace(scale=1.5), observed=4.1)
    return model


def exact():
    release = references.Release(references.laplace, 1.5, 4.1)
    return references.clamped_normal([release], size=SIZE, bound=2.0, sigma=1.2, prior=(0.5, 1.5))


def test_nuts_takes_over_all_variables_when_asked():
    model = clamped()
    with model:
        result = pm.sample(
            10, tune=10, chains=1, step=pm.NUTS(model.free_RVs), random_seed=1, **QUIET
        )
    assert "record_sweep_accept" not in result["sample_stats"]
    assert result["posterior"]["x"].shape == (1, 10, SIZE)
    assert np.ptp(result["posterior"]["x"].values) > 0


@pytest.mark.slow
@pytest.mark.parametrize("steps", ["ours", "NUTS"])
def test_nuts_and_the_record_sweep_have_the_same_posterior(steps, request):
    model = clamped()
    with model:
        chosen = {} if steps == "ours" else {"step": pm.NUTS(model.free_RVs)}
        result = pm.sample(
            2000, tune=500, chains=2, cores=1, random_seed=seed_of(request), **chosen, **QUIET
        )
    assert_law(result["posterior"]["mu"].values, exact(), what="mu")


def test_nutpie_samples_the_same_model():
    nutpie = pytest.importorskip("nutpie")
    compiled = nutpie.compile_pymc_model(clamped())
    result = nutpie.sample(
        compiled, draws=10, tune=50, chains=1, seed=1, progress_bar=False, cores=1
    )
    assert result["posterior"]["x"].shape == (1, 10, SIZE)
    assert np.ptp(result["posterior"]["x"].values) > 0
