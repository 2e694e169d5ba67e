"""`pmp.sample`: the same posterior as `pm.sample`, with better manners."""

import warnings
from functools import partial

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
import xarray as xr
from arviz_stats import rhat

import pymc_privacy as pmp
from pymc_privacy.errors import (
    ComparisonWarning,
    MixingWarning,
    RecordError,
    ReleaseError,
    SamplingError,
)
from pymc_privacy.model.assignment import MOST_PARAMETERS, assign_records
from pymc_privacy.model.marks import is_record
from pymc_privacy.model.releases import released_contributions
from pymc_privacy.results import attach_privacy
from tests import references
from tests.references import Release
from tests.short_runs import SHORT
from tests.stochastic import assert_law, assert_mean, seed_of


def survey(size=20):
    with pm.Model() as model:
        p = pm.Beta("p", 2, 2)
        pm.Deterministic("odds", p / (1 - p))
        x = pm.Bernoulli("x", p, shape=size)
        mechanism = pmp.Laplace(epsilon=0.5, sensitivity=1.0, neighbours="replace_one")
        pmp.Privatized("yes", x, mechanism, observed=14.4)
    return model


def waiting_times(size=20):
    """So many parameters are left to NUTS."""
    with pm.Model() as model:
        effects = pm.Normal("effects", shape=MOST_PARAMETERS + 1)
        x = pm.Gamma("x", pt.exp(0.1 * effects.sum()), 1.0, shape=size)
        pmp.Privatized("total", pt.minimum(x, 9), pmp.Laplace(scale=2.0), observed=31.0)
    return model


def quick(model, **kwargs):
    return pmp.sample(model=model, **(SHORT | kwargs))


def test_the_posterior_is_exact(request):
    result = quick(survey(), draws=1500, tune=400, random_seed=seed_of(request))
    exact = references.bernoulli([Release(references.laplace, 2.0, 14.4)], size=20, prior=(2, 2))
    assert_law(result.posterior["p"].values, exact)


def test_records_are_stored_only_on_request():
    assert set(quick(survey()).posterior.data_vars) == {"p", "odds"}
    assert quick(survey(), keep_records=True).posterior["x"].shape == (2, 40, 20)
    assert set(quick(survey(), var_names=["p"]).posterior.data_vars) == {"p"}


def test_records_move_before_parameters(caplog):
    caplog.set_level("INFO", logger="pymc")
    quick(waiting_times(), quiet=False)
    assert caplog.text.index(">RecordSweep: [x]") < caplog.text.index(">NUTS: [effects]")


def test_records_that_can_be_carried_along_move_with_their_parameters(caplog):
    caplog.set_level("INFO", logger="pymc")
    quick(survey(), quiet=False)
    assert "Interweave: [p, x]" in caplog.text
    assert "Moves: parameters given records (accepted" in caplog.text
    assert "records one by one (accepted" in caplog.text


def test_chains_start_apart():
    """Chains that start at one point agree with each other before they have moved."""
    first = quick(survey(), draws=4, tune=0, chains=4).posterior["p"].values[:, 0]
    assert np.ptp(first) > 0.01


def test_an_improper_prior_starts_where_pymc_starts_it():
    with pm.Model() as model:
        mu = pm.Flat("mu")
        x = pm.Normal("x", mu, 1.0, shape=30)
        pmp.Privatized("s", pt.clip(x, -9, 9), pmp.Laplace(scale=1.0), observed=12.0)
    assert quick(model).posterior["mu"].shape == (2, 40)


def test_the_privacy_group_says_what_was_released():
    result = quick(survey())
    privacy = result["privacy"]
    assert privacy["release"].values.tolist() == ["yes"]
    assert "epsilon=0.5" in privacy["mechanism"].item()
    assert privacy["guarantee"].item() == str(pmp.PureDP(0.5, neighbours="replace_one"))
    assert privacy.attrs["records"] == '["x"]'


def test_the_privacy_group_adds_up_what_several_releases_promise():
    half, whole = pmp.PureDP(0.5, neighbours="replace_one"), pmp.GaussianDP(1.0)
    laws = {
        "yes": pmp.Laplace(epsilon=0.5, sensitivity=1.0, neighbours="replace_one"),
        "again": pmp.DiscreteLaplace(epsilon=0.25, sensitivity=1.0, neighbours="replace_one"),
    }
    tree = xr.DataTree()
    with pm.Model() as model:
        x = pm.Bernoulli("x", 0.5, shape=3)
        for name, law in laws.items():
            pmp.Privatized(name, x, law, observed=2)
    attach_privacy(tree, model)
    assert tree["privacy"]["guarantee"].item().startswith("0.75-DP (pure)")
    assert tree["privacy"]["guarantee_of_each"].sel(release="yes").item() == str(half)
    with model:
        pmp.Privatized("third", x, pmp.Gaussian(mu=1.0, sensitivity=1.0), observed=2.0)
    attach_privacy(tree, model)
    assert "must have the same neighbours" in tree["privacy"]["guarantee"].item()
    assert tree["privacy"]["guarantee_of_each"].values[2] == str(whole)
    with model:
        pmp.Privatized("fourth", x, pmp.Laplace(scale=1.0), observed=2.0)
    attach_privacy(tree, model)
    assert tree["privacy"]["guarantee"].item() == "not stated"


def test_the_result_survives_a_file(tmp_path):
    result = quick(survey())
    result.to_netcdf(tmp_path / "result.nc", engine="h5netcdf")
    with xr.open_datatree(tmp_path / "result.nc", engine="h5netcdf") as back:
        assert back["privacy"]["guarantee"].item() == result["privacy"]["guarantee"].item()
        np.testing.assert_array_equal(back["posterior"]["p"], result["posterior"]["p"])


def test_the_parameters_density_leaves_out_what_is_constant_given_the_records():
    from pymc_privacy.inference.sample import _parameter_density

    model = survey()
    step = pmp.RecordSweep(model=model)
    p = model.rvs_to_values[model["p"]]
    density = _parameter_density(model, step.databases, [p], {})
    whole = model.logp_dlogp_function([p], ravel_inputs=True)
    gaps = []
    for value in (-1.0, 0.0, 2.0):
        point = model.initial_point(1) | {p.name: np.array(value)}
        for function in (density, whole):
            function.set_extra_values(point)
        short, long = (f._pytensor_function(np.array([value])) for f in (density, whole))
        np.testing.assert_allclose(short[1], long[1], rtol=1e-12)
        gaps.append(long[0] - short[0])
    np.testing.assert_allclose(gaps, gaps[0])
    assert gaps[0] != 0


@pytest.mark.slow
def test_a_release_that_moves_with_a_parameter_stays_in_its_density():
    from pymc_privacy.inference.sample import _parameter_density

    with pm.Model() as model:
        theta = pm.Gamma("theta", 4, 2)
        x = pm.Uniform("x", 0, theta, shape=3)
        pmp.Privatized("s", x, pmp.Laplace(scale=0.1), observed=2.5)
    theta = model.rvs_to_values[model["theta"]]
    step = pmp.RecordSweep(model=model)
    density = _parameter_density(model, step.databases, [theta], {})
    whole = model.logp_dlogp_function([theta], ravel_inputs=True)
    point = model.initial_point(1)
    for function in (density, whole):
        function.set_extra_values(point)
    short, long = (f._pytensor_function(np.array([0.7])) for f in (density, whole))
    np.testing.assert_allclose(short[0], long[0])
    np.testing.assert_allclose(short[1], long[1])


def test_options_of_nuts_are_kept():
    result = quick(waiting_times(), nuts={"max_treedepth": 1}, target_accept=0.95)
    assert result.sample_stats["tree_depth"].max() <= 1


def test_steps_of_the_users_own_are_kept(caplog):
    caplog.set_level("INFO", logger="pymc")
    model = survey()
    with model:
        steps = [pm.Metropolis([model["p"]]), pmp.RecordSweep()]
    quick(model, step=steps, quiet=False)
    assert ">Metropolis: [p]" in caplog.text


def test_discrete_parameters_are_left_to_pymc():
    with pm.Model() as model:
        group = pm.Categorical("group", [0.3, 0.3, 0.4])
        x = pm.Normal("x", pt.as_tensor([-1.0, 0.0, 1.0])[group], 1.0, shape=6)
        pmp.Privatized("s", x, pmp.Laplace(scale=1.0), observed=3.0)
    assert quick(model).posterior["group"].shape == (2, 40)


@pytest.mark.slow
def test_chains_that_have_not_mixed_are_called_so():
    """Much noise over many records: the sweep alone crawls, and the user must be told."""
    with pm.Model() as model:
        mu = pm.Normal("mu", 0.0, 10.0)
        x = pm.Normal("x", mu, 1.0, shape=3000)
        pmp.Privatized("s", pt.clip(x, -50, 50), pmp.Laplace(scale=1e5), observed=0.0)
        steps = [pmp.RecordSweep(), pm.NUTS([mu])]
    with pytest.warns(MixingWarning, match=r"r_hat of mu.*raise draws="):
        quick(model, step=steps, compute_convergence_checks=True, draws=100, chains=4)


def test_chains_that_have_mixed_are_left_in_peace():
    with warnings.catch_warnings():
        warnings.simplefilter("error", MixingWarning)
        quick(survey(), compute_convergence_checks=True, draws=600, tune=200)


def test_records_that_are_stored_are_not_held_against_the_parameters(caplog):
    """Nearly exact, so that no record is accepted, and the parameter is known all the same."""
    with pm.Model() as model:
        mu = pm.Normal("mu", 0.0, 1.0)
        x = pm.Normal("x", mu, 1.0, shape=40)
        pmp.Privatized("s", pt.clip(x, -5, 5), pmp.Laplace(scale=1e-3), observed=3.0)
    options = {"keep_records": True, "compute_convergence_checks": True, "quiet": False}
    with caplog.at_level("INFO", logger="pymc"), warnings.catch_warnings():
        warnings.simplefilter("error", MixingWarning)
        result = quick(model, draws=400, tune=400, chains=4, **options)
    assert float(rhat(result.posterior.dataset)["x"].max()) > 1.01
    assert "rhat" not in caplog.text
    assert "Moves: " in caplog.text


def test_a_model_of_records_alone_has_nothing_to_check():
    with pm.Model() as model:
        x = pm.Bernoulli("x", 0.3, shape=10)
        pmp.Privatized("s", x, pmp.Laplace(scale=1.0), observed=3.0)
    result = quick(model, keep_records=True, compute_convergence_checks=True)
    assert result.posterior["x"].shape == (2, 40, 10)


def test_a_model_without_a_release_is_refused():
    with pm.Model() as model:
        pm.Normal("mu")
    with pytest.raises(RecordError, match=r"needs a model with a Privatized release.*pm\.sample"):
        pmp.sample(model=model)


def test_a_scalar_release_needs_no_records():
    with pm.Model() as model:
        count = pm.Binomial("count", 30, 0.4)
        pmp.Privatized("s", count, pmp.DiscreteLaplace(scale=2.0), observed=15)
    assert quick(model).posterior["count"].shape == (2, 40)


def test_the_density_of_a_release_given_imputed_records_compares_no_models():
    wanted = {"idata_kwargs": {"log_likelihood": True}}
    with pytest.raises(ReleaseError, match=r"needs stored records.*x would not be.*does not apply"):
        quick(survey(), **wanted)
    with pytest.warns(ComparisonWarning, match="az.loo, az.compare. does not apply to a release"):
        result = quick(survey(), keep_records=True, **wanted)
    assert result["log_likelihood"]["yes"].shape[:2] == (2, 40)


@pytest.mark.parametrize("late", [False, True])
def test_effects_that_the_model_looks_at_elsewhere_are_parameters(request, late):
    """Exact by hand: effects, records, outcomes and noise are Normal together."""
    person = np.array([0, 0, 1, 2, 3, 3])
    outcomes = np.array([1.0, 1.4, 0.2, -0.3, 1.1, 0.6])

    def observe(effect):
        pm.Normal("y", effect[person], 1.0, observed=outcomes)

    with pm.Model() as model:
        effect = pm.Normal("effect", 0, 1, shape=4)
        if not late:
            observe(effect)
        x = pm.Normal("x", effect, 1.0, shape=4)
        pmp.Privatized("s", x, pmp.Gaussian(scale=1.0), observed=6.0)
        if late:
            observe(effect)
            with pytest.raises(RecordError, match=r"one entry per record, sample with pymc_priv"):
                pmp.RecordSweep()
            assign_records(model, [], released_contributions(model))
        step = [pmp.RecordSweep([x]), pm.NUTS([effect])]
    assert not is_record(effect)
    assert is_record(x)
    result = quick(model, step=step, draws=2000, tune=500, chains=1, random_seed=seed_of(request))
    design = np.vstack([np.eye(4)[person], np.ones(4)])
    variance = np.append(np.ones(6), 4 + 1.0)
    precision = np.eye(4) + design.T @ (design / variance[:, None])
    exact = np.linalg.solve(precision, design.T @ (np.append(outcomes, 6.0) / variance))
    for k in range(4):
        assert_mean(result.posterior["effect"].values[..., k], exact[k], what=f"effect {k}")


@pytest.mark.parametrize("after", [3, 14], ids=["in tuning", "later"])
def test_stopping_returns_the_draws_so_far_or_says_that_there_are_none(after, monkeypatch):
    """As `pm.sample` does, but for the sentence."""
    steps, whole = iter(range(1000)), pmp.Interweave.step

    def step(self, point):
        if next(steps) == after:
            raise KeyboardInterrupt
        return whole(self, point)

    monkeypatch.setattr(pmp.Interweave, "step", step)
    with pm.Model():
        mu = pm.Normal("mu", 0, 3)
        x = pm.Normal("x", mu, 1, shape=5)
        pmp.Privatized("s", x, pmp.Laplace(scale=2.0), observed=1.0)
        run = partial(
            pmp.sample,
            10,
            tune=10,
            chains=1,
            cores=1,
            progressbar=False,
            random_seed=1,
            compute_convergence_checks=False,
        )
        if after < 10:
            with pytest.raises(SamplingError, match="stopped before the first draw after tuning"):
                run()
        else:
            assert run().posterior.sizes["draw"] == after - 10


def test_records_are_stored_where_there_is_nothing_else():
    with pm.Model():
        x = pm.Bernoulli("x", 0.3, shape=5)
        pmp.Privatized("s", x, pmp.Laplace(scale=1.0), observed=2.0)
        result = pmp.sample(
            20, tune=5, chains=1, random_seed=1, progressbar=False, compute_convergence_checks=False
        )
    assert result["posterior"]["x"].shape == (1, 20, 5)
