"""Moves of the effects of groups: exact laws, invariance, and twins that are broken."""

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
from scipy import stats

import pymc_privacy as pmp
from pymc_privacy.algorithms import group_effects
from pymc_privacy.algorithms.group_effects import Law
from pymc_privacy.errors import CertificateError
from pymc_privacy.model import group_effects as found_in
from pymc_privacy.model.database import find_databases
from pymc_privacy.model.start import start_of
from pymc_privacy.targets import group_effects as target_of
from tests.stochastic import Z_LIMIT, assert_mean, seed_of, z_of_mean

GROUPS = 3000


@pytest.fixture
def rng(request):
    return np.random.default_rng(seed_of(request))


class Kinked:
    """The law of t ~ Normal(1, 2) given s = 3 t + Laplace noise, by a fine grid."""

    release, noise, slope = 2.0, 1.5, 3.0
    prior = Law(np.full(GROUPS, 1.0), np.full(GROUPS, 2.0))

    def __init__(self):
        t = np.linspace(-20, 20, 400_001)
        weights = np.exp(self.log_density(t))
        self.t, self.weights = t, weights / weights.sum()

    def log_density(self, t):
        return stats.norm.logpdf(t, 1.0, 2.0) - np.abs(self.release - self.slope * t) / self.noise

    def misfit(self, t):
        return (self.slope * t - self.release)[:, None]

    def draw(self, rng):
        return rng.choice(self.t, GROUPS, p=self.weights)

    def mean(self, of):
        return float(self.weights @ of(self.t))


MOMENTS = {
    "t": lambda t: t,
    "t²": np.square,
    "below": lambda t: t <= 0.3,
    "beyond": lambda t: t > 2.0,
}


def moved(rng, effects, log_density, law, **options):
    """Make a step from an array of effects."""
    state, info = group_effects.step(
        rng, group_effects.State(effects), log_density=log_density, law=law, **options
    )
    return state.effects, info.accept


@pytest.mark.parametrize("how", ["parabolas", "linear", "heavy"])
@pytest.mark.parametrize("from_far_away", [False, True])
def test_moves_lead_to_the_law_and_leave_it(how, from_far_away, rng):
    exact = Kinked()
    if how == "parabolas":
        law = group_effects.parabolas(exact.log_density, exact.prior)
    else:
        precision = np.full((GROUPS, 1), 1.5**-2)
        law = group_effects.linear(exact.misfit, precision, exact.prior, heavy=how == "heavy")
    t = np.full(GROUPS, 9.0) if from_far_away else exact.draw(rng)
    for _ in range(30 if from_far_away else 2):
        t, accept = moved(rng, t, exact.log_density, law, leaps=2, steps=(1.0, 0.25))
    assert 0.1 < accept < 1
    for name, of in MOMENTS.items():
        assert_mean(of(t), exact.mean(of), what=name)


def test_a_release_that_is_far_away_pulls_as_laplace_noise_does():
    """With slope 3 and scale 1.5, the mode is 2 prior variances of 1 away, not at the release."""
    prior = Law(np.zeros(1), np.ones(1))
    law = group_effects.linear(
        lambda t: (3 * t - 300.0)[:, None], np.full((1, 1), 1.5**-2), prior, heavy=True
    )
    assert law.centre[0] == pytest.approx(2.0, abs=0.05)


def test_leaps_without_their_ratio_are_caught(rng, monkeypatch):
    exact = Kinked()
    monkeypatch.setattr(group_effects, "_log_student", np.zeros_like)
    t = exact.draw(rng)
    wide = Law(np.full(GROUPS, 1.0), np.full(GROUPS, 0.4))
    for _ in range(4):
        t, _ = moved(rng, t, exact.log_density, wide, leaps=2)
    assert max(abs(z_of_mean(of(t), exact.mean(of))) for of in MOMENTS.values()) > Z_LIMIT


def test_a_law_that_looked_at_the_effects_is_caught(rng):
    exact = Kinked()
    t = exact.draw(rng)
    for _ in range(4):
        seen = Law(0.5 * t, np.full(GROUPS, 0.5))
        t, _ = moved(rng, t, exact.log_density, seen, leaps=1)
    assert max(abs(z_of_mean(of(t), exact.mean(of))) for of in MOMENTS.values()) > Z_LIMIT


def test_groups_that_may_not_move_stay(rng):
    exact, movable = Kinked(), np.arange(GROUPS) % 2 == 0
    t = exact.draw(rng)
    now, _ = moved(rng, t, exact.log_density, exact.prior, leaps=2, steps=(1.0,), movable=movable)
    assert (now[~movable] == t[~movable]).all()
    assert (now[movable] != t[movable]).mean() > 0.3


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_densities_that_are_no_numbers_lead_nowhere(value, rng):
    def log_density(t):
        return np.where(t > 1.5, value, -0.5 * t**2)

    prior = Law(np.zeros(5), np.ones(5))
    law = group_effects.parabolas(log_density, prior)
    assert np.isfinite(law.centre).all()
    assert (law.width > 0).all()
    if value < 0 or np.isnan(value):
        t, _ = moved(rng, np.zeros(5), log_density, law, leaps=9)
        assert (t <= 1.5).all()


# A model with its parameters fixed: each group is a replicate of the same law.

NUMBER, SIZES = 400, (0, 1, 2, 5)
GROUP = np.random.default_rng(3).permutation(np.repeat(np.arange(NUMBER), np.resize(SIZES, NUMBER)))


def bernoulli(theta):
    return pm.Bernoulli("x", logit_p=theta[GROUP], shape=GROUP.size)


def normal(theta):
    return pm.Normal("x", 0.5 + 2 * theta[GROUP], 1.3, shape=GROUP.size)


def gamma(theta):
    return pm.Gamma("x", 2.0, pt.exp(theta)[GROUP], shape=GROUP.size)


def written(law):
    with pm.Model() as model:
        theta = pm.Normal("theta", 0.4, 0.8, shape=NUMBER)
        x = law(theta)
        released = pm.Data("released", np.ones(NUMBER))
        clipped = pt.clip(x, -3, 3)
        pmp.Privatized("s", clipped, pmp.Laplace(scale=1.5), by=GROUP, observed=released)
    return model


def simulated(model, rng):
    """Draw effects, records and releases together."""
    theta = rng.normal(0.4, 0.8, NUMBER)
    [x] = pm.draw([pm.do(model, {"theta": theta})["x"]], random_seed=rng)
    statistic = np.bincount(GROUP, np.clip(x, -3, 3), minlength=NUMBER)
    return theta, x, statistic + rng.laplace(scale=1.5, size=NUMBER)


def target_for(model):
    databases = find_databases(model)
    effects = found_in.group_effects(model, [model["x"]])
    program = target_of.compile_effects(model, effects, databases)
    precision = target_of.noise_precision_of(effects, databases)
    return target_of.EffectTarget(effects, program, precision)


def functionals(theta, x, statistic, noise):
    return {
        "theta": theta,
        "theta²": theta**2,
        "theta times noise": theta * noise,
        "theta times total": theta * statistic,
        "total": statistic,
        "total²": statistic**2,
    }


def differences(model, rng, *, rounds=12):
    """Return changes of functionals by moves from the joint law, whose means are 0."""
    target, changes = target_for(model), []
    shape = start_of(model)
    for _ in range(rounds):
        theta, x, released = simulated(model, rng)
        model.set_data("released", released)
        name = model.rvs_to_values[model["x"]].name
        value = np.log(x) if name.endswith("log__") else x
        point = shape | {"theta": theta, name: np.asarray(value, dtype=shape[name].dtype)}
        parts = []
        for _ in range(2):
            held = point[name]
            x = np.exp(held) if name.endswith("log__") else held
            total = np.bincount(GROUP, np.clip(x, -3, 3), minlength=NUMBER)
            parts.append(functionals(point["theta"], x, total, released - total))
            target.move(rng, point)
        changes.append({k: parts[1][k] - parts[0][k] for k in parts[0]})
    return {k: np.concatenate([c[k] for c in changes]) for k in changes[0]}


@pytest.mark.parametrize(
    "law",
    [normal, bernoulli, pytest.param(gamma, marks=pytest.mark.slow)],
    ids=lambda f: f.__name__,
)
def test_effects_and_records_keep_their_joint_law(law, rng):
    for what, change in differences(written(law), rng).items():
        assert change.std() > 0
        assert_mean(change, 0.0, what=what)


def test_effects_of_which_one_depends_on_the_other_keep_their_joint_law(rng):
    """A law that is found from where the first effect was would tell of the second."""
    groups = 30_000
    group = rng.permutation(np.repeat(np.arange(groups), np.resize((0, 1, 2, 2), groups)))
    with pm.Model() as model:
        first = pm.Normal("first", 0, 1, shape=groups)
        second = pm.Normal("second", 2 * first, 1.0, shape=groups)
        x = pm.Normal("x", 3 * second[group] + 0 * first[group], 1.0, shape=group.size)
        released = pm.Data("released", np.ones(groups))
        clipped = pt.clip(x, -1, 1)
        pmp.Privatized("s", clipped, pmp.Laplace(scale=0.2), by=group, observed=released)
    target, changes = target_for(model), []
    for _ in range(4):
        a = rng.normal(size=groups)
        b = 2 * a + rng.normal(size=groups)
        x = 3 * b[group] + rng.normal(size=group.size)
        total = np.bincount(group, np.clip(x, -1, 1), minlength=groups)
        model.set_data("released", total + rng.laplace(scale=0.2, size=groups))
        point = start_of(model) | {"first": a, "second": b, "x": x}
        before = b * total
        for _ in range(2):
            target.move(rng, point)
        total = np.bincount(group, np.clip(point["x"], -1, 1), minlength=groups)
        changes.append(point["second"] * total - before)
    assert_mean(np.concatenate(changes), 0.0, what="second effect times total")


def test_records_that_stay_behind_are_caught(rng, monkeypatch):
    monkeypatch.setattr(target_of, "_are_numbers", lambda records: np.ones(GROUP.size, bool))
    move = target_of.EffectTarget._move_one

    def without_records(self, rng, point, q, k, prior, held):
        kept = {name: point[name] for name in self.program.records}
        info = move(self, rng, point, q, k, prior, held)
        point |= kept
        return info

    monkeypatch.setattr(target_of.EffectTarget, "_move_one", without_records)
    found = differences(written(normal), rng)
    assert max(abs(z_of_mean(change, 0.0)) for change in found.values()) > Z_LIMIT


def test_a_group_that_is_taken_for_another_is_not_certified(monkeypatch):
    """The law of a group would look at the records of its neighbour."""
    plain = target_of._grouped
    monkeypatch.setattr(
        target_of, "_grouped", lambda rows, effects: pt.roll(plain(rows, effects), 1, axis=0)
    )
    group = np.arange(12) % 4
    with pm.Model():
        mu = pm.Normal("mu")
        theta = pm.Normal("theta", mu, 1.0, shape=4)
        x = pm.Normal("x", theta[group], 1.0, shape=12)
        pmp.Privatized("s", x, pmp.Laplace(scale=1.0), by=group, observed=[1.0, 2.0, 3.0, 4.0])
        with pytest.raises(CertificateError, match="effects of groups"):
            pmp.Interweave()


def found(write, group=None):
    group = np.arange(12) % 4 if group is None else group
    with pm.Model() as model:
        write(group)
    effects = found_in.group_effects(model, [model["x"]])
    return () if effects is None else tuple(rv.name for rv in effects.effects)


def released(x, group):
    pmp.Privatized("s", x, pmp.Laplace(scale=1.0), by=group, observed=np.zeros(4))


def test_several_effects_are_found():
    def write(group):
        a = pm.Normal("a", pm.Normal("mu"), 1.0, shape=4)
        b = pm.Normal("b", 0.5 * a, 1.0, shape=4)
        slope = b * 2.0
        x = pm.Normal("x", a[group] + slope[group] * np.arange(12.0), 1.0, shape=12)
        released(x, group)

    assert found(write) == ("a", "b")


def test_noncentred_effects_are_found():
    def write(group):
        z = pm.Normal("z", shape=4)
        theta = pm.Normal("mu") + pm.HalfNormal("tau") * z
        released(pm.Normal("x", theta[group], 1.0, shape=12), group)

    assert found(write) == ("z",)


def test_rows_of_as_many_groups_as_records_are_those_of_one_or_the_other():
    """Row i of the outcomes belongs to record i, and sees the second effect of group i."""

    def write(group):
        a, b = (pm.Normal(name, shape=4) for name in "ab")
        pm.Normal("y", a[group] + b, 1.0, observed=[3.0, -1.0, 2.0, 0.0])
        released(pm.Normal("x", a[group] + b[group], 1.0, shape=4), group)

    assert found(write, np.array([1, 2, 0, 3])) == ("a",)


def test_one_group_has_no_effect_of_its_own():
    """Outcomes broadcast what has one row."""

    def write(group):
        theta = pm.Normal("theta", shape=1)
        pm.Normal("y", theta, 1.0, observed=[3.0, -1.0, 2.0])
        x = pm.Normal("x", theta[group], 1.0, shape=4)
        pmp.Privatized("s", x, pmp.Laplace(scale=1.0), by=group, observed=[1.0])

    assert found(write, np.zeros(4, dtype=int)) == ()


def one_prior_for_all(group):
    theta = pm.Normal("theta", shape=4)
    pm.Potential("sum to zero", -((theta.sum()) ** 2))
    released(pm.Normal("x", theta[group], 1.0, shape=12), group)


def another_grouping(group):
    theta = pm.Normal("theta", shape=4)
    released(pm.Normal("x", theta[np.roll(group, 1)], 1.0, shape=12), group)


def a_total_too(group):
    theta = pm.Normal("theta", shape=4)
    x = pm.Normal("x", theta[group], 1.0, shape=12)
    released(x, group)
    pmp.Privatized("all", x, pmp.Laplace(scale=1.0), observed=3.0)


def their_mean_as_well(group):
    theta = pm.Normal("theta", shape=4)
    released(pm.Normal("x", theta[group] + theta.mean(), 1.0, shape=12), group)


def in_a_chain(group):
    theta = pm.GaussianRandomWalk("theta", init_dist=pm.Normal.dist(), shape=4)
    released(pm.Normal("x", theta[group], 1.0, shape=12), group)


def backwards(group):
    theta = pm.Normal("theta", shape=4)
    released(pm.Normal("x", theta[::-1][group], 1.0, shape=12), group)


def with_shares(group):
    theta = pm.Beta("theta", 1, 1, shape=4)
    released(pm.Normal("x", theta[group], 1.0, shape=12), group)


@pytest.mark.parametrize(
    "write",
    [
        one_prior_for_all,
        another_grouping,
        a_total_too,
        their_mean_as_well,
        in_a_chain,
        backwards,
        with_shares,
    ],
    ids=lambda f: f.__name__,
)
def test_what_groups_share_is_no_effect(write):
    assert found(write) == ()


def test_outcomes_of_groups_and_of_records_may_be_known_as_well():
    def write(group):
        theta = pm.Normal("theta", shape=4)
        x = pm.Normal("x", theta[group], 1.0, shape=12)
        released(x, group)
        pm.Normal("of groups", theta, 1.0, observed=np.zeros(4))
        pm.Normal("of records", x + theta[group], 1.0, observed=np.zeros(12))

    assert found(write) == ("theta",)
