"""The assembled sampler: Geweke's check for each family, mutants, chains, and frozen tuning."""

import os
import subprocess
import sys

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
from arviz_stats.base import array_stats
from scipy import stats

import pymc_privacy as pmp
from pymc_privacy.algorithms import record_sweep
from pymc_privacy.densities import carrying
from pymc_privacy.densities import parameters as densities
from pymc_privacy.errors import ArgumentError, RecordError
from pymc_privacy.model.assignment import MOST_PARAMETERS
from pymc_privacy.model.marks import is_interwoven, is_record
from pymc_privacy.reparameterise import Reparameterisation
from pymc_privacy.targets import interweave as interweaving
from tests.geweke import alternate, build, largest_z, natural
from tests.short_runs import SHORT
from tests.stochastic import FALSE_ALARM, Z_LIMIT, assert_mean, seed_of

SIZE = 6


def normal_then_normal():
    """Two record variables, one computed from the other, clamped, two coordinates."""
    theta = pm.Normal("theta", 0.5, 1.0)
    spread = pm.LogNormal("spread", 0.0, 0.5)
    x = pm.Normal("x", theta, spread, shape=SIZE)
    y = pm.Normal("y", 0.6 * x, 0.8, shape=SIZE)
    t = pt.stack([pt.clip(x, -2, 2), pt.clip(x * y, -3, 3)], axis=1)
    return t, pmp.Laplace(scale=2.0), {"theta": stats.norm(0.5), "spread": stats.lognorm(0.5)}


def slope_of_pairs():
    """A parameter that enters through the second record variable alone."""
    slope = pm.Normal("slope", 0.0, 1.0)
    x = pm.Normal("x", 0.0, 1.0, shape=SIZE)
    y = pm.Normal("y", slope * x, 0.5, shape=SIZE)
    t = pt.stack([pt.clip(x, -2, 2) ** 2, pt.clip(x * y, -3, 3)], axis=1)
    return t, pmp.Laplace(scale=2.0), {"slope": stats.norm()}


def exponential_under_a_transform():
    rate = pm.Gamma("rate", 3.0, 2.0)
    x = pm.Exponential("x", rate, shape=SIZE)
    return pt.clip(x, 0, 3), pmp.Gaussian(scale=1.0), {"rate": stats.gamma(3.0, scale=0.5)}


def bernoulli():
    p = pm.Beta("p", 2.0, 3.0)
    x = pm.Bernoulli("x", p, shape=SIZE)
    return x, pmp.DiscreteLaplace(scale=1.0), {"p": stats.beta(2.0, 3.0)}


def categorical():
    p = pm.Beta("p", 2.0, 3.0)
    x = pm.Categorical("x", pt.stack([p, (1 - p) / 2, (1 - p) / 2]), shape=SIZE)
    t = pt.stack([pt.eq(x, k).astype("int64") for k in range(3)], axis=1)
    return t, pmp.DiscreteGaussian(scale=1.0), {"p": stats.beta(2.0, 3.0)}


def uniform_with_a_moving_bound():
    theta = pm.Gamma("theta", 4.0, 2.0)
    x = pm.Uniform("x", 0.0, theta, shape=SIZE)
    return x, pmp.Laplace(scale=1.5), {"theta": stats.gamma(4.0, scale=0.5)}


def normal_vector():
    theta = pm.Normal("theta", 0.0, 1.0)
    covariance = pt.stack([[1.0, 0.3], [0.3, 1.0]]) * pt.exp(0.5 * theta)
    x = pm.MvNormal("x", pt.stack([theta, -theta]), covariance, shape=(SIZE, 2))
    t = pt.stack([pt.clip(x[:, 0], -2, 2), pt.clip(x[:, 0] * x[:, 1], -2, 2)], axis=1)
    return t, pmp.Laplace(scale=2.0), {"theta": stats.norm()}


def without_a_form():
    """No form x = T(parameters, u) is known: records are drawn afresh with their parameter."""
    shape = pm.Gamma("shape", 4.0, 2.0)
    x = pm.VonMises("x", mu=0.0, kappa=shape, shape=SIZE)
    return abs(x), pmp.Laplace(scale=2.0), {"shape": stats.gamma(4.0, scale=0.5)}


def many_parameters():
    """More than a random walk moves well: trajectories with and without the records."""
    theta = pm.Normal("theta", 0.3, 1.0)
    effects = pm.Normal("effects", 0.0, 1.0, shape=24)
    x = pm.Normal("x", theta + 0.3 * effects.sum(), 1.0, shape=SIZE)
    return pt.clip(x, -3, 3), pmp.Laplace(scale=2.0), {"theta": stats.norm(0.3)}


FAMILIES = [
    without_a_form,
    many_parameters,
    normal_then_normal,
    exponential_under_a_transform,
    bernoulli,
    categorical,
    uniform_with_a_moving_bound,
    normal_vector,
]


def geweke(family, seed, rounds=4000, *, follow=False, **options):
    """Return the parameters' chains and their priors.

    With ``follow`` the base variates guide the moves, as they do once a reference has been learnt.
    """
    model, mechanism, priors = build(family)
    step = pmp.Interweave(model=model, rng=seed, **options)
    step.stop_tuning()
    size = step._program.size
    wide = 0.8 * np.eye(size)
    learnt, centre = step.learnt, np.zeros(size if follow else 0)
    step.learnt = learnt._replace(
        centred=learnt.centred._replace(factor=0.5 * wide),
        noncentred=learnt.noncentred._replace(factor=wide, centre=centre),
        proposal=learnt.proposal._replace(accept=1.0),
    )
    [target] = step._targets

    def total_at(point):
        target.forget()
        return target.program.contributions_at(point).sum(axis=1)

    draws = alternate(model, mechanism, priors, step, total_at=total_at, seed=seed, rounds=rounds)
    return draws, priors


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES, ids=lambda f: f.__name__)
def test_geweke_parameters_keep_their_prior(family, request):
    z = largest_z(*geweke(family, seed_of(request)))
    assert z < Z_LIMIT, f"z = {z:.1f}"


@pytest.mark.parametrize("family", FAMILIES, ids=lambda f: f.__name__)
def test_each_family_is_chosen_by_itself(family):
    model, _, priors = build(family)
    assert all(is_interwoven(model[name]) for name in [*priors, "x"])


@pytest.mark.slow
@pytest.mark.parametrize("family", [slope_of_pairs, bernoulli], ids=lambda f: f.__name__)
def test_geweke_with_a_part_of_the_records_at_a_time(family, request):
    z = largest_z(*geweke(family, seed_of(request), sweep_fraction=0.5))
    assert z < Z_LIMIT, f"z = {z:.1f}"


@pytest.mark.slow
def test_a_part_that_forgets_the_rest_is_noticed(request, monkeypatch):
    """The release is about all records, whichever of them are being updated."""
    whole = record_sweep.step

    def part_alone(rng, state, proposed, *, rows, **kwargs):
        part = record_sweep.State(state.contributions[:, rows].copy())
        return state, whole(rng, part, proposed, **kwargs)[1]

    monkeypatch.setattr(record_sweep, "step", part_alone)
    z = largest_z(*geweke(normal_then_normal, seed_of(request), sweep_fraction=0.5))
    assert z > Z_LIMIT, f"z = {z:.1f}"


@pytest.mark.parametrize("fraction", [0.0, -0.1, 1.5, np.nan])
def test_a_part_of_the_records_must_be_one(fraction):
    with pytest.raises(ArgumentError, match="sweep_fraction must be a finite number"):
        pmp.Interweave(model=build(bernoulli)[0], sweep_fraction=fraction)


FOLLOWED = [normal_then_normal, normal_vector, exponential_under_a_transform, categorical]


@pytest.mark.slow
@pytest.mark.parametrize("family", FOLLOWED, ids=lambda f: f.__name__)
def test_geweke_with_moves_that_follow_the_base_variates(family, request):
    z = largest_z(*geweke(family, seed_of(request), follow=True))
    assert z < Z_LIMIT, f"z = {z:.1f}"


@pytest.mark.slow
def test_a_missing_jacobian_is_noticed(request, monkeypatch):
    """The density of a transformed parameter must be that of the coordinates it walks in."""
    whole = pm.Model.logp
    monkeypatch.setattr(
        pm.Model,
        "logp",
        lambda self, vars=None, jacobian=True, sum=True: whole(
            self, vars=vars, jacobian=False, sum=sum
        ),
    )
    z = largest_z(*geweke(exponential_under_a_transform, seed_of(request)))
    assert z > Z_LIMIT, f"z = {z:.1f}"


@pytest.mark.slow
@pytest.mark.usefixtures("the_certificate_is_blind")
def test_a_uniform_from_the_wrong_cell_is_noticed(request, monkeypatch):
    broken = Reparameterisation(
        forward=lambda u, p: (u < p).astype("int64"),
        inverse=lambda x, w, p: pt.where(pt.eq(x, 1), w * p * 0.5, p + w * (1 - p)),
        needs_uniform=True,
    )
    monkeypatch.setattr(carrying, "reparameterisation_of", lambda rv: broken)
    z = largest_z(*geweke(bernoulli, seed_of(request)))
    assert z > Z_LIMIT, f"z = {z:.1f}"


@pytest.mark.slow
@pytest.mark.usefixtures("the_certificate_is_blind")
def test_a_joint_refresh_without_its_jacobian_is_noticed(request, monkeypatch):
    monkeypatch.setattr(
        densities,
        "density_of_others",
        lambda model, databases: model.logp(vars=[model["shape"], model["s"]], jacobian=False),
    )
    monkeypatch.setattr(interweaving, "density_of_others", densities.density_of_others)
    z = largest_z(*geweke(without_a_form, seed_of(request)))
    assert z > Z_LIMIT, f"z = {z:.1f}"


@pytest.mark.parametrize("family", [bernoulli, without_a_form], ids=lambda f: f.__name__)
def test_draws_of_the_moves_use_the_generator_up(family):
    """A copy of it would give the walk that follows the same numbers again."""
    program = pmp.Interweave(model=build(family)[0])._program
    name = "base" if program.interweaves else "refresh"
    rng = np.random.default_rng(1)
    point = build(family)[0].initial_point(1)
    records = [point[r] for r in program.records] if program.interweaves else []
    first, second = [program.functions[name](rng, program.flatten(point), *records) for _ in "ab"]
    assert not np.array_equal(first[-1], second[-1])


SIMULATED = [normal_then_normal, bernoulli, without_a_form]


@pytest.mark.slow
@pytest.mark.parametrize("family", SIMULATED, ids=lambda f: f.__name__)
def test_simulation_based_calibration(family, request):
    """Ranks of prior draws among posterior draws, tuning included, are uniform."""
    model, _, priors = build(family)
    step = pmp.Interweave(model=model)
    values_at = natural(model, list(priors))
    rng = np.random.default_rng(seed_of(request))
    draw = pm.compile([], [model[name] for name in (*priors, "s")], random_seed=seed_of(request))
    kept, thin, bins = 19, 8, 10
    ranks = []
    for _ in range(200):
        *truth, release = draw()
        model["data"].set_value(np.asarray(release, dtype=model["data"].dtype))
        step.setup_chain(rng.spawn(1)[0], 150, kept * thin)
        point = model.initial_point(int(rng.integers(2**31)))
        posterior = []
        for k in range(150 + kept * thin):
            if k == 150:
                step.stop_tuning()
            point, _ = step.step(point)
            if k >= 150 and k % thin == 0:
                posterior.append(values_at(point))
        ranks.append((np.array(posterior) < np.array(truth)).sum(axis=0))
    for name, rank in zip(priors, np.array(ranks).T, strict=True):
        counts = np.bincount(rank * bins // (kept + 1), minlength=bins)
        p = stats.chisquare(counts).pvalue
        assert p > FALSE_ALARM, f"{name}: p = {p:.2g}, ranks {counts}"


def sample(model, **kwargs):
    with model:
        return pm.sample(**(SHORT | kwargs))


def regression(size=40, epsilon=1.0):
    rng = np.random.default_rng(0)
    with pm.Model() as model:
        slope = pm.Normal("slope", 0.0, 1.0)
        sigma = pm.HalfNormal("sigma", 1.0)
        x = pm.Normal("x", 0.0, 1.0, shape=size)
        y = pm.Normal("y", slope * x, sigma, shape=size)
        a, b = pt.clip(x, -3, 3), pt.clip(y, -3, 3)
        mechanism = pmp.Laplace(epsilon=epsilon, sensitivity=36.0)
        released = mechanism.simulate(rng, np.array([size, 0.7 * size, 1.5 * size]))
        pmp.Privatized("s", pt.stack([a * a, a * b, b * b], axis=1), mechanism, observed=released)
    return model


def moves_after_tuning(result):
    names = ("interweave_centred_scale", "interweave_noncentred_scale")
    return any(np.ptp(result.sample_stats[name].values, axis=1).max() > 0 for name in names)


@pytest.mark.slow
def test_adaptation_left_on_is_noticed(monkeypatch):
    monkeypatch.setattr(pmp.Interweave, "stop_tuning", lambda self: None)
    assert moves_after_tuning(sample(regression(), draws=80, tune=50))


def test_nothing_is_learnt_after_tuning():
    """A scale that still moved would be a kernel that remembers its past."""
    assert not moves_after_tuning(sample(regression(), draws=80, tune=50))
    warm = sample(regression(), draws=5, tune=50, discard_tuned_samples=False)
    assert np.ptp(warm["warmup_sample_stats"]["interweave_noncentred_scale"].values) > 0


@pytest.mark.slow
def test_forked_chains_draw_the_same():
    model = regression()
    here, there = sample(model), sample(model, cores=2, mp_ctx="fork")
    for name in ("x", "y", "slope", "sigma"):
        np.testing.assert_array_equal(here.posterior[name], there.posterior[name])


@pytest.mark.slow
def test_spawned_chains_draw_the_same_up_to_rounding():
    """Sums may be rounded otherwise in code that another process compiled for itself.

    Trajectories make such a difference grow without end, so the chains are short.
    """
    model = regression()
    few = {"tune": 5, "draws": 5}
    here, there = sample(model, **few), sample(model, **few, cores=2, mp_ctx="spawn")
    for name in ("x", "y", "slope", "sigma"):
        np.testing.assert_allclose(
            here.posterior[name], there.posterior[name], rtol=1e-6, atol=1e-9
        )


def test_a_resumed_step_continues_to_the_bit():
    model = regression()
    step = pmp.Interweave(model=model, rng=5)
    step.setup_chain(np.random.default_rng(1), 40, 10)
    point = model.initial_point(1)
    for _ in range(30):
        point, _ = step.step(point)
    state, start = step.sampling_state, {name: value.copy() for name, value in point.items()}
    onward = step.step(point)[0]
    fresh = pmp.Interweave(model=model, rng=99)
    fresh.sampling_state = state
    again = fresh.step(start)[0]
    for name, value in onward.items():
        np.testing.assert_array_equal(again[name], value)


@pytest.mark.parametrize("method", [pmp.Interweave, pmp.RecordSweep])
def test_a_release_set_anew_is_seen_by_every_move(method):
    """With almost no noise, the sweep must pull the records to the release of its chain."""

    def family():
        x = pm.Normal("x", pm.Normal("theta", 0.0, 1.0), 1.0, shape=30)
        return pt.clip(x, -3, 3), pmp.Laplace(scale=0.1), {}

    model = build(family)[0]
    step = method(
        [v for v in model.free_RVs if method is pmp.Interweave or v.name == "x"], model=model
    )
    for value in (-20.0, 25.0):
        model["data"].set_value(value)
        step.setup_chain(np.random.default_rng(1), 0, 0)
        point = model.initial_point(1)
        for _ in range(100):
            point, _ = step.step(point)
        assert np.clip(point["x"], -3, 3).sum() == pytest.approx(value, abs=2)


def test_moves_can_be_turned_off():
    model = regression()
    step = pmp.Interweave(model=model, centred_steps=0, noncentred_steps=0, rng=1)
    point = model.initial_point(1)
    new, [statistics] = step.step(point)
    np.testing.assert_array_equal(new["slope"], point["slope"])
    assert not np.array_equal(new["x"], point["x"]), "the records still move"
    assert statistics["interweave_centred_accept"] == 0


def test_observed_parameters_leave_only_the_sweep():
    model = pm.observe(regression(), {"slope": 0.5, "sigma": 1.0})
    result = sample(model)
    assert "slope" not in result.posterior
    assert np.isnan(result.sample_stats["interweave_centred_accept"]).all()
    assert (result.sample_stats["record_sweep_accept"] > 0).all()


def test_very_many_parameters_are_left_to_nuts(caplog):
    caplog.set_level("INFO", logger="pymc")
    with pm.Model() as model:
        beta = pm.Normal("beta", shape=MOST_PARAMETERS + 1)
        x = pm.Normal("x", beta.sum(), 1.0, shape=10)
        pmp.Privatized("s", x, pmp.Laplace(scale=1.0), observed=0.0)
    sample(model, quiet=False)
    assert ">NUTS: [beta]" in caplog.text
    assert ">RecordSweep: [x]" in caplog.text


def test_a_later_release_of_other_records_takes_the_mark_off():
    with pm.Model() as model:
        rate = pm.Gamma("rate", 2, 1)
        x = pm.Exponential("x", rate, shape=5)
        pmp.Privatized("sx", pt.clip(x, 0, 5), pmp.Laplace(scale=1.0), observed=3.0)
        assert is_interwoven(rate)
        effects = pm.Normal("effects", shape=MOST_PARAMETERS)
        y = pm.Normal("y", rate + effects.sum(), 1.0, shape=4)
        pmp.Privatized("sy", pt.clip(y, 0, 5), pmp.Laplace(scale=1.0), observed=3.0)
    assert not is_interwoven(model["rate"])
    assert not is_interwoven(model["x"])


@pytest.mark.slow
def test_a_move_that_is_never_accepted_is_given_up():
    """Little noise over many records: a fresh database never fits the release."""
    with pm.Model() as model:
        skew = pm.Normal("skew")
        x = pm.SkewNormal("x", mu=0.0, sigma=1.0, alpha=skew, shape=400)
        pmp.Privatized("s", pt.clip(x, -9, 9), pmp.Laplace(scale=1e-6), observed=80.0)
    step = pmp.Interweave(model=model)
    assert step.learnt.noncentred_steps > 0
    result = sample(model, step=step, tune=200, draws=5, chains=1)
    assert step.learnt.noncentred_steps == 0
    assert (result.sample_stats["interweave_noncentred_accept"] == 0).all()


@pytest.mark.slow
@pytest.mark.parametrize("epsilon", [0.01, 0.1, 1.0, 10.0])
def test_every_sweep_is_nearly_an_independent_draw(epsilon, request):
    """Not a timing: effective draws per sweep, which the sweep alone has at 0.0004 to 0.9."""
    rng = np.random.default_rng(0)
    records = np.clip(rng.normal(0.5, 1.5, size=1000), -5, 5)
    mechanism = pmp.Laplace(epsilon=epsilon, sensitivity=35.0)
    released = mechanism.simulate(rng, np.array([records.sum(), (records**2).sum()]))
    with pm.Model() as model:
        mu = pm.Normal("mu", 0, 3)
        sigma = pm.HalfNormal("sigma", 2)
        x = pm.Normal("x", mu, sigma, shape=1000)
        clipped = pt.clip(x, -5, 5)
        pmp.Privatized("s", pt.stack([clipped, clipped**2], axis=1), mechanism, observed=released)
    result = sample(model, draws=1500, tune=1000, random_seed=seed_of(request))
    for name in ("mu", "sigma"):
        effective = array_stats.ess(result.posterior[name].values, chain_axis=0, draw_axis=1)
        assert effective / 3000 > 0.5, f"{name}: {effective / 3000:.2f} per sweep"


def records_below_records(law):
    with pm.Model() as model:
        mu = pm.HalfNormal("mu", 1)
        x = pm.Exponential("x", mu, shape=5)
        y = law(x)
        pmp.Privatized("s", pt.stack([x, y], axis=1), pmp.Laplace(scale=1.0), observed=[1.0, 2.0])
    return model


def test_records_are_not_carried_without_those_drawn_given_them():
    model = records_below_records(lambda x: pm.Normal("y", x, 1, shape=5))
    with pytest.raises(RecordError, match="'y' would be left behind"):
        pmp.Interweave([model["mu"], model["x"]], model=model)


def test_nothing_is_held_in_coordinates_that_move_with_the_records():
    """The value that is held is a share of (0, x)."""
    model = records_below_records(lambda x: pm.Uniform("y", 0, x, shape=5))
    with pytest.raises(RecordError, match=r"'y' must be updated in the same step .* 'x'"):
        pmp.RecordSweep([model["x"]], model=model)
    assert pmp.RecordSweep([model["y"]], model=model).vars
    assert pmp.RecordSweep(model=model).vars


def test_a_parameter_may_stand_between_records():
    """Persons have effects that are drawn given those of others: held while these are carried."""
    other = np.array([1, 0, 3, 2])
    with pm.Model() as model:
        first = pm.Normal("first", 0.0, 1.0, shape=4)
        second = pm.Normal("second", 2.0 * first, 1.0, shape=4)
        x = pm.Normal("x", second[other] + first, 1.5, shape=4)
        pmp.Privatized("s", pt.clip(x, -3, 3), pmp.Laplace(scale=1.0), observed=2.0)
    assert [is_record(rv) for rv in (first, second, x)] == [True, False, True]
    carried = carrying.carry_records(model, [first, x])
    point = dict(zip(model.value_vars, np.random.default_rng(2).normal(size=(3, 4)), strict=True))
    u = pm.compile(model.value_vars, carried.base, on_unused_input="ignore")(*point.values())
    inputs = [*carried.columns, *model.value_vars]
    forward = pm.compile(inputs, carried.natural[x], on_unused_input="ignore")
    moved = forward(u[0] + 0.3, u[1], *point.values())
    np.testing.assert_allclose(moved, point[model.rvs_to_values[x]] + 0.3)


def test_a_record_below_may_have_a_step_of_its_own(request):
    """Held in coordinates of its own: Geweke's check of three steps in turn."""
    with pm.Model() as model:
        mu = pm.Normal("mu", 0.5, 1)
        x = pm.Normal("x", mu, 1, shape=3)
        y = pm.Normal("y", x, 1, shape=3)
        data = pm.Data("data", 0.0)
        pmp.Privatized("s", x * y, pmp.Laplace(scale=1.0), observed=data)
    seed = seed_of(request)
    steps = [pmp.RecordSweep([v], model=model, rng=seed + k) for k, v in enumerate((x, y))]
    rng, point, draws = np.random.default_rng(seed), model.initial_point(seed), []
    for _ in range(6000):
        total = (point["x"] * point["y"]).sum()
        data.set_value(total + rng.laplace())
        for step in steps:
            step.forget()
            point, _ = step.step(point)
        # mu given x, exactly.
        mean = (0.5 + point["x"].sum()) / 4
        point = point | {"mu": np.asarray(rng.normal(mean, 0.5))}
        draws.append([point["mu"], point["mu"] ** 2, point["y"].sum()])
    for column, expected in zip(np.array(draws).T, (0.5, 1.25, 1.5), strict=True):
        assert_mean(column[None], expected)


IN_ANOTHER_PROCESS = """
import hashlib
import pymc as pm
from tests.short_runs import SHORT
from tests.step_methods.test_interweave import regression
with regression():
    drawn = pm.sample(**SHORT | {"draws": 20, "tune": 30}).posterior
print(*(hashlib.sha256(drawn[n].values.tobytes()).hexdigest() for n in sorted(drawn.data_vars)))
"""


@pytest.mark.slow
def test_the_same_seed_draws_the_same_to_the_bit_in_other_processes(tmp_path):
    """Whatever the order of sets and the addresses of objects; what a model becomes is not shared.

    The moves are: they are the same for all models.
    """
    drawn = []
    for seed in "12":
        flags = f"base_compiledir={tmp_path / seed}"
        environment = {"PYTHONHASHSEED": seed, "PYTENSOR_FLAGS": flags}
        run = subprocess.run(
            [sys.executable, "-c", IN_ANOTHER_PROCESS],
            capture_output=True,
            text=True,
            check=True,
            env=os.environ | environment,
        )
        drawn.append(run.stdout.splitlines()[-1])
    assert drawn[0] == drawn[1]
    assert len(drawn[0].split()) == 4
