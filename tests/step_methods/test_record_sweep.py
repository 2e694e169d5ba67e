"""The courier: chosen by `pm.sample`, the same in every kind of chain, resumable, harmless."""

import cloudpickle
import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest

import pymc_privacy as pmp
from pymc_privacy.model.assignment import MOST_PARAMETERS
from pymc_privacy.model.database import find_databases
from pymc_privacy.targets.record_sweep import rows_of
from tests.short_runs import SHORT
from tests.stochastic import assert_mean, seed_of


def regression(size=12):
    """Two variables per record, two releases of different mechanisms, a public covariate.

    There are so many parameters that they are left to NUTS.
    """
    with pm.Model() as model:
        slope = pm.Normal("slope", 0.0, 1.0, shape=MOST_PARAMETERS)
        sigma = pm.HalfNormal("sigma", 1.0)
        x = pm.Normal("x", np.linspace(-1, 1, size), 1.0, shape=size)
        y = pm.Gamma("y", mu=pt.exp(slope[0] * x), sigma=sigma, shape=size)
        a, b = pt.clip(x, -2, 2), pt.clip(y, 0, 3)
        pmp.Privatized("sum", pt.stack([a, a * b], axis=1), pmp.Laplace(scale=2.0), observed=[1, 4])
        pmp.Privatized("high", (y > 1).astype("int64"), pmp.DiscreteGaussian(scale=2.0), observed=6)
    return model


def sample(model, **kwargs):
    with model:
        return pm.sample(**(SHORT | kwargs))


@pytest.mark.slow
def test_records_get_the_sweep_and_parameters_get_nuts(caplog):
    caplog.set_level("INFO", logger="pymc")
    result = sample(regression(), quiet=False)
    assert ">RecordSweep: [x, y]" in caplog.text
    assert ">NUTS: [slope, sigma]" in caplog.text
    statistics = result.sample_stats
    assert statistics["record_sweep_accept"].shape == (2, 40)
    accept, smallest = statistics["record_sweep_accept"], statistics["record_sweep_accept_min"]
    assert bool(((accept > 0) & (accept <= 1)).all())
    assert bool(((smallest >= 0) & (smallest <= 1)).all())


def test_binary_records_get_the_sweep_too(caplog):
    """PyMC has an ideal method for binary variables as well; ours must win."""
    caplog.set_level("INFO", logger="pymc")
    with pm.Model() as model:
        x = pm.Bernoulli("x", 0.4, shape=8)
        pmp.Privatized("s", x, pmp.Laplace(scale=1.0), observed=3.0)
    sample(model, quiet=False)
    assert "RecordSweep: [x]" in caplog.text


def test_a_seed_fixes_the_draws():
    model = regression()
    first, again, other = sample(model), sample(model), sample(model, random_seed=12)
    np.testing.assert_array_equal(first.posterior["x"], again.posterior["x"])
    np.testing.assert_array_equal(first.posterior["slope"], again.posterior["slope"])
    assert not np.array_equal(first.posterior["x"], other.posterior["x"])


@pytest.mark.slow
def test_forked_chains_draw_the_same():
    model = regression()
    here, there = sample(model), sample(model, cores=2, mp_ctx="fork")
    for name in ("x", "y", "slope", "sigma"):
        np.testing.assert_array_equal(here.posterior[name], there.posterior[name])


@pytest.mark.slow
@pytest.mark.parametrize("context", ["spawn", "forkserver"])
def test_chains_of_new_processes_draw_the_same_up_to_rounding(context):
    """Sums may be rounded otherwise in code that another process compiled for itself.

    Trajectories of NUTS make such a difference grow without end, so the chains are short.
    """
    model = regression()
    few = {"tune": 5, "draws": 5}
    here, there = sample(model, **few), sample(model, **few, cores=2, mp_ctx=context)
    for name in ("x", "y", "slope", "sigma"):
        np.testing.assert_allclose(
            here.posterior[name], there.posterior[name], rtol=1e-6, atol=1e-9
        )


def test_a_resumed_step_continues_to_the_bit():
    model = regression()
    step = pmp.RecordSweep(model=model, rng=5)
    point = model.initial_point(1)
    for _ in range(3):
        point, _ = step.step(point)
    state, start = step.sampling_state, {name: value.copy() for name, value in point.items()}
    onward = [step.step(point)[0]["x"]]
    fresh = pmp.RecordSweep(model=model, rng=99)
    fresh.sampling_state = state
    np.testing.assert_array_equal(fresh.step(start)[0]["x"], onward[0])


def test_a_step_neither_changes_its_point_nor_its_order():
    model = regression()
    step = pmp.RecordSweep(model=model, rng=5)
    point = model.initial_point(1)
    kept = {name: value.copy() for name, value in point.items()}
    for value in point.values():
        value.flags.writeable = False
    new, _ = step.step(point)
    newer, _ = step.step(new)
    assert list(newer) == list(new) == list(point)
    for name, value in kept.items():
        np.testing.assert_array_equal(point[name], value)
    assert not np.array_equal(new["x"], kept["x"])


def test_contributions_are_recomputed_when_records_were_changed_by_others():
    """A remembered total that no longer fits would accept by the wrong ratio."""
    with pm.Model() as model:
        x = pm.Bernoulli("x", 0.5, shape=30)
        pmp.Privatized("s", x, pmp.Laplace(scale=0.05), observed=30.0)
    step = pmp.RecordSweep(model=model, rng=5)
    point, _ = step.step({"x": np.ones(30, dtype=np.int64)})
    assert point["x"].sum() == 30, "leaving the release would cost a factor exp(-20)"
    point, statistics = step.step({"x": np.zeros(30, dtype=np.int64)})
    assert statistics[0]["record_sweep_accept"] > 0.9, "towards the release all moves are accepted"


def test_a_pickled_step_goes_on_alike():
    model = regression()
    step = pmp.RecordSweep(model=model, rng=5)
    point, _ = step.step(model.initial_point(1))
    copy = cloudpickle.loads(cloudpickle.dumps(step))
    np.testing.assert_array_equal(step.step(point)[0]["x"], copy.step(point)[0]["x"])


def test_a_custom_mechanism_survives_pickling():
    own = pmp.CustomMechanism(log_density_function=lambda s, t: -pt.abs(s - t) / 2)
    with pm.Model() as model:
        x = pm.Normal("x", 0, 1, shape=5)
        pmp.Privatized("s", x, own, observed=1.0)
    step = pmp.RecordSweep(model=model, rng=5)
    point, _ = step.step(model.initial_point(1))
    copy = cloudpickle.loads(cloudpickle.dumps(step))
    np.testing.assert_array_equal(step.step(point)[0]["x"], copy.step(point)[0]["x"])


def test_the_progress_bar_has_a_column():
    columns, statistics = pmp.RecordSweep._progressbar_config(n_chains=3)
    assert columns[0].get_table_column().header == "Records"
    assert statistics == {"record_sweep_accept": [0.0] * 3}
    [update] = pmp.RecordSweep._make_progressbar_update_functions()
    assert update({"record_sweep_accept": 0.5}) == {"record_sweep_accept": 0.5}
    sample(regression(), progressbar=True)


def test_options_of_the_step_reach_it_by_name():
    with pytest.raises(TypeError, match="no_such_option"):
        sample(regression(), record_sweep={"no_such_option": 1})


def test_multivariate_rows_are_drawn_with_their_covariance(request):
    """The covariance is factorised once; the law of the rows must not notice."""
    size = 40_000
    covariance = np.array([[2.0, -0.6, 0.3], [-0.6, 1.0, 0.2], [0.3, 0.2, 0.5]])
    with pm.Model() as model:
        mean = pm.Normal("mean", 0, 1, shape=3)
        x = pm.MvNormal("x", mean, covariance, shape=(size, 3))
        pmp.Privatized("s", x[:, 0], pmp.Laplace(scale=1e9), observed=0.0)
    step = pmp.RecordSweep(model=model, rng=seed_of(request))
    point = model.initial_point(1) | {"mean": np.array([1.0, -2.0, 0.5])}
    rows = step.step(point)[0]["x"]
    for j in range(3):
        assert_mean(rows[:, j], point["mean"][j], what=f"mean {j}")
        for k in range(j, 3):
            product = (rows[:, j] - point["mean"][j]) * (rows[:, k] - point["mean"][k])
            assert_mean(product, covariance[j, k], what=f"covariance {j}, {k}")


@pytest.mark.slow
def test_a_wide_multivariate_row_takes_the_other_path(request):
    width, size = 10, 30_000
    with pm.Model() as model:
        x = pm.MvNormal("x", np.zeros(width), np.eye(width) + 0.5, shape=(size, width))
        pmp.Privatized("s", x[:, 0], pmp.Laplace(scale=1e9), observed=0.0)
    step = pmp.RecordSweep(model=model, rng=seed_of(request))
    rows = step.step(model.initial_point(1))[0]["x"]
    assert_mean(rows[:, 2] ** 2, 1.5, what="variance")
    assert_mean(rows[:, 2] * rows[:, 7], 0.5, what="covariance")


def test_mixture_records_are_drawn_from_their_mixture(request):
    size = 40_000
    with pm.Model() as model:
        w = pm.Dirichlet("w", np.ones(2))
        x = pm.NormalMixture("x", w, mu=[-1.0, 3.0], sigma=[0.5, 1.0], shape=size)
        pmp.Privatized("s", pt.clip(x, -5, 5), pmp.Laplace(scale=1e9), observed=0.0)
    step = pmp.RecordSweep(model=model, rng=seed_of(request))
    point = model.initial_point(1)
    rows = step.step(point)[0]["x"]
    assert_mean(rows, 0.5 * (-1.0) + 0.5 * 3.0, what="mean of an even mixture")


ONES = np.ones(20)


@pytest.mark.parametrize(
    ("law", "weigh", "rows"),
    [
        (lambda mu: pm.Normal("x", mu, 1.0, shape=20), lambda x: x, 5),
        (lambda mu: pm.Normal("x", mu * ONES, 1.0, shape=20), lambda x: x, None),
        (lambda mu: pm.Normal("x", mu + pt.zeros(20), 1.0, shape=20), lambda x: x, None),
        (lambda mu: pm.Normal("x", mu * pm.Data("ones", ONES), shape=20), lambda x: x, None),
        (lambda mu: pm.Normal("x", pt.stack([mu])[[0] * 20], 1.0, shape=20), lambda x: x, None),
        (lambda mu: pm.Normal("x", mu, 1.0, shape=20), lambda x: x * ONES, None),
    ],
)
def test_some_records_are_drawn_alone_unless_something_is_written_for_each(law, weigh, rows):
    """Also where it is the same for all of them, as a column of ones is."""
    with pm.Model() as model:
        x = law(pm.Normal("mu", 0, 1))
        pmp.Privatized("s", weigh(x), pmp.Gaussian(scale=3.0), observed=5.0)
    [database] = find_databases(model)
    assert database.exchangeable
    assert rows_of(database, 0.25) == rows
