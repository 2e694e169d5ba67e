"""Releases by group: their shape, their law, and the posterior against enumeration."""

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
from scipy import stats

import pymc_privacy as pmp
from pymc_privacy.algorithms import record_sweep
from pymc_privacy.algorithms.noise import log_density, noise
from pymc_privacy.densities.noise import noise_of
from pymc_privacy.model.database import find_databases
from tests import references
from tests.references import Release
from tests.stochastic import Z_LIMIT, assert_law, assert_mean, seed_of, z_of_mean

# Unsorted; nobody is in the second group, and the last one has a single record.
GROUP = np.array([2, 0, 0, 2, 3, 0, 2, 0])
RELEASED = np.array([3.1, -0.7, 1.2, 1.4])
NOISE = pmp.Laplace(scale=0.8)
CHANCE = 0.4


@pytest.fixture
def rng(request):
    return np.random.default_rng(seed_of(request))


def sampled(model, seed, draws=1500):
    with model:
        return pmp.sample(
            draws,
            tune=400,
            chains=2,
            cores=1,
            random_seed=seed,
            progressbar=False,
            quiet=True,
            compute_convergence_checks=False,
        ).posterior


def counts(p, size, release):
    """Return the law of a noisy count given its release."""
    k = np.arange(size + 1)
    weights = stats.binom.pmf(k, size, p) * np.exp(-np.abs(release - k) / 0.8)
    return weights / weights.sum()


def grouped_noise(groups=GROUP):
    return noise([type(NOISE).formula], [RELEASED], [NOISE.parameters], [1], [groups])


def totals_after_sweeps(rng, given, groups=GROUP, sweeps=12_000):
    def propose():
        return (rng.random((1, GROUP.size)) < CHANCE).astype(float)

    state, totals = record_sweep.init(propose()), np.empty((sweeps, RELEASED.size))
    for k in range(sweeps):
        state, _ = record_sweep.step(rng, state, propose(), noise=given)
        totals[k] = given.totals(state.contributions)
    return totals


def test_the_sweep_draws_each_group_given_its_release(rng):
    totals = totals_after_sweeps(rng, grouped_noise())
    assert (totals[:, 1] == 0).all()
    for group in (0, 2, 3):
        law = counts(CHANCE, int((group == GROUP).sum()), RELEASED[group])
        for k in range(law.size - 1):
            assert_mean(totals[None, :, group] <= k, law[: k + 1].sum(), what=f"S[{group}] <= {k}")


def test_a_sweep_that_takes_another_group_for_its_own_is_caught(rng):
    shifted = grouped_noise()
    wrong = shifted._replace(release=np.roll(shifted.release, 1))
    totals = totals_after_sweeps(rng, wrong)
    law = counts(CHANCE, int((GROUP == 0).sum()), RELEASED[0])
    assert abs(z_of_mean(totals[None, :, 0], float(law @ np.arange(law.size)))) > Z_LIMIT


def test_what_a_record_can_change_is_all_that_changes(rng):
    """Compare the scan's ratio with the change of all terms, of three releases at once."""
    size, group, other = 9, rng.integers(0, 4, 9), rng.integers(0, 3, 9)
    scales = (pmp.Laplace(scale=(1.0, 2.0)), pmp.Gaussian(scale=1.5), pmp.Laplace(scale=0.5))
    given = noise(
        [type(m).formula for m in scales],
        [rng.normal(size=(4, 2)), 1.0, rng.normal(size=3)],
        [m.parameters for m in scales],
        [2, 1, 1],
        [group, None, other],
    )
    current, proposed = rng.normal(size=(2, 4, size))
    joint = log_density(given.laws)
    arguments = given.offsets, given.release
    before = joint(*arguments, given.totals(current), given.parameters)
    for i in range(size):
        there, one = current.copy(), slice(i, i + 1)
        there[:, i] = proposed[:, i]
        expected = joint(*arguments, given.totals(there), given.parameters) - before
        accepted, total = np.empty(1, dtype=bool), given.totals(current)
        # Either way, since the scan tells the ratio of what is less likely.
        for a, b, sign in ((current, there, 1), (there, current, -1)):
            total = given.totals(a)
            _, least = record_sweep.scan(
                given.of_rows(one),
                a[:, one].copy(),
                total,
                b[:, one].copy(),
                np.zeros(1),
                np.full(1, np.inf),
                accepted,
            )
            assert least == pytest.approx(min(0.0, sign * expected), abs=1e-12)
            np.testing.assert_allclose(total, given.totals(b))


@pytest.mark.slow
def test_posterior_of_shares_against_enumeration(request):
    """Given no hyperparameter groups are independent, and each is a noisy count of its own."""
    with pm.Model() as model:
        p = pm.Beta("p", 2.0, 2.0, shape=4)
        x = pm.Bernoulli("x", p[GROUP], shape=8)
        pmp.Privatized("s", x, NOISE, by=GROUP, observed=RELEASED)
    draws = sampled(model, seed_of(request))["p"].values
    for group in range(4):
        size = int((group == GROUP).sum())
        if size:
            exact = references.bernoulli(
                [Release(references.laplace, 0.8, RELEASED[group])], size=size, prior=(2.0, 2.0)
            )
            assert_law(draws[..., group], exact, what=f"p[{group}]")
        else:
            assert_mean(draws[..., group], 0.5, what="p of a group without records")


def hierarchy(group, released, total=None, groups=None):
    with pm.Model(coords={"region": range(groups or len(released))}) as model:
        mu = pm.Normal("mu", 0, 1)
        theta = pm.Normal("theta", mu, 0.7, dims="region")
        x = pm.Normal("x", theta[group], 1.0, shape=len(group))
        pmp.Privatized("s", x, pmp.Gaussian(scale=0.9), by=group, observed=released, dims="region")
        if total is not None:
            pmp.Privatized("all", x, pmp.Gaussian(scale=0.5), observed=total)
    return model


def linear_reference(group, released, total):
    """Everything is Normal: condition (mu, theta) on linear releases of them, by matrices."""
    groups, n = len(released), len(group)
    belongs = (np.arange(groups)[:, None] == group).astype(float)
    prior = np.block(
        [[np.ones((1, 1)), np.ones((1, groups))],
         [np.ones((groups, 1)), np.ones((groups, groups)) + 0.49 * np.eye(groups)]]
    )  # fmt: skip
    rows, covariance = [*belongs], [0.81] * groups
    if total is not None:
        rows, covariance = [*rows, np.ones(n)], [*covariance, 0.25]
    rows = np.array(rows)
    design = np.column_stack([np.zeros(len(rows)), rows @ belongs.T])
    marginal = design @ prior @ design.T + rows @ rows.T + np.diag(covariance)
    gain = prior @ design.T @ np.linalg.inv(marginal)
    value = np.append(released, [] if total is None else [total])
    return gain @ value, np.sqrt(np.diag(prior - gain @ design @ prior))


@pytest.mark.parametrize(
    ("released", "total"),
    [
        ([2.0, 1.0, -3.0, 4.0], None),
        pytest.param([2.0, 1.0, -3.0, 4.0], 6.0, marks=pytest.mark.slow),
        pytest.param([1.5], None, marks=pytest.mark.slow),
    ],
    ids=["four groups", "and a total", "one group"],
)
def test_hierarchy_against_linear_algebra(released, total, request):
    group = GROUP if len(released) > 1 else np.zeros(5, dtype=int)
    draws = sampled(hierarchy(group, released, total), seed_of(request))
    mean, sd = linear_reference(group, np.array(released), total)
    every = [draws["mu"].values, *np.moveaxis(draws["theta"].values, -1, 0)]
    for k, each in enumerate(every):
        assert_law(each, stats_norm(mean[k], sd[k]), what=f"parameter {k}")


class stats_norm:
    """A Normal law in the form that `assert_law` reads."""

    def __init__(self, mean, sd):
        self._law = stats.norm(mean, sd)

    def mean(self):
        return self._law.mean()

    def sd(self):
        return self._law.std()

    def quantile(self, p):
        return self._law.ppf(p)

    def cdf(self, x):
        return self._law.cdf(x)


def test_many_records_of_few_values_are_not_counted_over_groups(request):
    group = np.arange(600) % 2
    with pm.Model() as model:
        p = pm.Beta("p", 1, 1)
        x = pm.Bernoulli("x", p, shape=600)
        pmp.Privatized("s", x, pmp.Laplace(scale=5.0), by=group, observed=[90.0, 210.0])
    draws = sampled(model, seed_of(request), 800)["p"].values
    # The sum of both releases is what tells of p, and nearly all.
    assert abs(draws.mean() - 0.5) < 0.05
    [database] = find_databases(model)
    assert not database.exchangeable
    assert noise_of(database).groups.shape == (1, 600)


def test_the_prior_predictive_is_by_group():
    with pm.Model() as model:
        x = pm.Bernoulli("x", 1.0, shape=8)
        release = pmp.Privatized("s", x, pmp.DiscreteLaplace(scale=1e-3), by=GROUP)
    assert release.type.shape == (4,)
    np.testing.assert_array_equal(pm.draw(release, random_seed=1), [4, 0, 3, 1])
    with model:
        drawn = pm.sample_prior_predictive(5, random_seed=1).prior["s"]
    assert (drawn.values == [4, 0, 3, 1]).all()


@pytest.mark.parametrize("rows", [2, None])
def test_a_matrix_of_contributions_gives_a_matrix(rows):
    with pm.Model(coords={"region": list("abcde"), "sum": ["x", "square"]}) as model:
        x = pm.Normal("x", shape=8)
        columns = pt.stack([x, x**2], axis=1)
        release = pmp.Privatized(
            "s", columns, pmp.Laplace(scale=[1.0, 2.0]), by=GROUP, dims=("region", "sum")
        )
    assert release.type.shape == (5, 2)
    value = model.compile_logp(vars=[release])
    here = {"x": np.arange(8.0), "s": np.zeros((5, 2))}
    sums = [
        [np.arange(8.0)[k == GROUP].sum(), (np.arange(8.0)[k == GROUP] ** 2).sum()]
        for k in range(5)
    ]
    expected = stats.laplace.logpdf(np.array(sums), scale=[1.0, 2.0]).sum()
    assert value(here) == pytest.approx(expected)


def with_bits(**kwargs):
    with pm.Model(coords={"region": ["north", "south"]}):
        x = pm.Bernoulli("x", 0.5, shape=4)
        return pmp.Privatized("s", x, kwargs.pop("mechanism", NOISE), **kwargs)


@pytest.mark.parametrize(
    "by",
    [
        ["north", "south", "north", "south"],
        [0.5, 1, 0, 1],
        [0, 1, 0],
        [[0, 1, 0, 1]],
        [-1, 0, 1, 0],
        [0, 1, np.nan, 0],
        0,
        [],
        {"a": 1},
        ...,
    ],
    ids=str,
)
def test_what_numbers_no_groups_is_refused(by):
    with pytest.raises(pmp.errors.PrivacyError, match="by"):
        with_bits(by=by)


def test_a_group_beyond_the_release_is_refused():
    with pytest.raises(pmp.errors.ReleaseError, match="from 0 to 1"):
        with_bits(by=[0, 1, 2, 0], observed=[1.0, 2.0])
    with pytest.raises(pmp.errors.ReleaseError, match="from 0 to 1"):
        with_bits(by=[0, 1, 2, 0], dims="region")
    with pytest.raises(pmp.errors.ReleaseError, match="must have shape"):
        with_bits(by=[0, 1, 1, 0], observed=1.0)


def test_by_and_local_do_not_go_together():
    with pytest.raises(pmp.errors.ReleaseError, match="local=True"):
        with_bits(by=[0, 1, 1, 0], local=True)


def test_a_mechanism_of_all_coordinates_is_refused():
    with pytest.raises(pmp.errors.MechanismError, match="each number alone"):
        with_bits(by=[0, 1, 1, 0], mechanism=pmp.RandomizedResponse(epsilon=1.0))


def test_groups_that_depend_on_records_are_refused():
    with pm.Model():
        x = pm.Bernoulli("x", 0.5, shape=4)
        with pytest.raises(pmp.errors.ReleaseError, match="public"):
            pmp.Privatized("s", x, NOISE, by=x)
        with pytest.raises(pmp.errors.ReleaseError, match="public"):
            pmp.Privatized("s", x, NOISE, by=pm.Data("g", [0, 1, 0, 1]))


def test_groups_of_an_unknown_number_of_records_are_refused():
    with pm.Model():
        n = pm.DiscreteUniform("n", 1, 4)
        x = pmp.Records("x", pm.Normal.dist(), size=n)
        with pytest.raises(pmp.errors.RecordError, match="known number"):
            pmp.Privatized("s", x, NOISE, by=[0, 1, 0, 1])
        with pytest.raises(pmp.errors.RecordError, match="known number"):
            pmp.Privatized("number", n, NOISE, by=[0])


def test_maximum_likelihood_says_that_it_does_not_climb_groups():
    with pytest.raises(pmp.errors.ReleaseError, match="by group"):
        pmp.maximum_likelihood(model=hierarchy(GROUP, [0.0, 1.0, 2.0, 3.0]))
