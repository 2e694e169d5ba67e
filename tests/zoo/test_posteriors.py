"""Models of the zoo, sampled, beside a reference that uses no code of the library.

Parameters and records are drawn from the prior by NumPy, many times, and weighted by the density
of everything that was observed. Draws of the library must have the same means and squares.
"""

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
from arviz_stats.base import array_stats
from scipy import stats

import pymc_privacy as pmp
from tests.stochastic import Z_LIMIT

SIMULATIONS = 400_000
COVARIATE = np.array([-1.0, 0.0, 0.5, 2.0])


CASES = {}


def case(build):
    """Take a function that writes a model and returns how to simulate it.

    The simulation returns named quantities, and the logs of their weights.
    """
    CASES[build.__name__] = build
    return build


def gauss(release, statistic, scale):
    return -0.5 * ((release - statistic) / scale) ** 2


def laplace(release, statistic, scale):
    return -np.abs(release - statistic) / scale


def release_sum(contributions, release, scale=1.0):
    pmp.Privatized("s", contributions, pmp.Gaussian(scale=scale), observed=release)


@case
def normal_vector_behind_records():
    f = pm.MvNormal("f", np.zeros(4), np.eye(4))
    release_sum(pm.Normal("x", f, 1, shape=4), 6.0)

    def simulate(rng, number):
        f = rng.normal(size=(number, 4))
        x = f + rng.normal(size=f.shape)
        return {"f": f}, gauss(6.0, x.sum(axis=1), 1.0)

    return simulate


@case
def random_walk_with_local_releases():
    f = pm.GaussianRandomWalk("f", sigma=0.7, init_dist=pm.Normal.dist(), steps=3)
    x = pm.Normal("x", f, 0.5, shape=4)
    answers = np.array([1.0, 2.0, -1.0, 3.0])
    pmp.Privatized("s", x, pmp.Laplace(scale=1.0), local=True, observed=answers)

    def simulate(rng, number):
        steps = rng.normal(size=(number, 4)) * np.array([1.0, 0.7, 0.7, 0.7])
        f = np.cumsum(steps, axis=1)
        x = f + 0.5 * rng.normal(size=f.shape)
        return {"f": f}, laplace(answers, x, 1.0).sum(axis=1)

    return simulate


@case
def autoregression_behind_counts():
    f = pm.AR("f", [0.6], sigma=0.5, init_dist=pm.Normal.dist(), steps=3)
    x = pm.Poisson("x", pt.exp(f), shape=4)
    pmp.Privatized("s", x, pmp.Laplace(scale=1.0), observed=11.0)

    def simulate(rng, number):
        f = np.empty((number, 4))
        f[:, 0] = rng.normal(size=number)
        for k in range(1, 4):
            f[:, k] = 0.6 * f[:, k - 1] + 0.5 * rng.normal(size=number)
        x = rng.poisson(np.exp(f)).sum(axis=1)
        return {"f": f}, laplace(11.0, x, 1.0)

    return simulate


@case
def gaussian_process_behind_records():
    covariance = pm.gp.cov.ExpQuad(1, ls=1.0)
    f = pm.gp.Latent(cov_func=covariance).prior("f", COVARIATE[:, None])
    x = pm.Normal("x", f, 0.5, shape=4)
    pmp.Privatized(
        "s", pt.stack([x, x * COVARIATE], axis=1), pmp.Gaussian(scale=1.0), observed=[2.0, 4.0]
    )

    def simulate(rng, number):
        gram = np.exp(-0.5 * (COVARIATE[:, None] - COVARIATE) ** 2) + 1e-6 * np.eye(4)
        f = rng.normal(size=(number, 4)) @ np.linalg.cholesky(gram).T
        x = f + 0.5 * rng.normal(size=f.shape)
        weight = gauss(2.0, x.sum(axis=1), 1.0) + gauss(4.0, x @ COVARIATE, 1.0)
        return {"f": f}, weight

    return simulate


@case
def one_of_two_rows():
    f = pm.Normal("f", shape=(2, 4))
    release_sum(pm.Normal("x", f[1], 1.0, shape=4), 5.0)

    def simulate(rng, number):
        f = rng.normal(size=(number, 2, 4))
        x = f[:, 1] + rng.normal(size=(number, 4))
        return {"f": f}, gauss(5.0, x.sum(axis=1), 1.0)

    return simulate


@case
def places_counted_from_the_end():
    a = pm.Normal("a", shape=3)
    release_sum(pm.Normal("x", a[np.array([-2, -2, -1, -3])], 1.0, shape=4), 6.0)

    def simulate(rng, number):
        a = rng.normal(size=(number, 3))
        x = a[:, [1, 1, 2, 0]] + rng.normal(size=(number, 4))
        return {"a": a}, gauss(6.0, x.sum(axis=1), 1.0)

    return simulate


@case
def records_that_look_up_from_the_end():
    a = pm.Normal("a", shape=4)
    z = pm.Categorical("z", np.array([0.1, 0.2, 0.3, 0.4]), shape=3)
    x = pm.Normal("x", a[z - 2], 0.5, shape=3)
    pmp.Privatized("s", pt.stack([x, z], axis=1), pmp.Laplace(scale=1.0), observed=[4.0, 6.0])

    def simulate(rng, number):
        a = rng.normal(size=(number, 4))
        z = rng.choice(4, size=(number, 3), p=[0.1, 0.2, 0.3, 0.4])
        x = np.take_along_axis(a, (z - 2) % 4, axis=1) + 0.5 * rng.normal(size=z.shape)
        weight = laplace(4.0, x.sum(axis=1), 1.0) + laplace(6.0, z.sum(axis=1), 1.0)
        return {"a": a}, weight

    return simulate


@case
def a_mix_cast_to_integers():
    a = pm.Normal("a")
    z = pm.Normal("z", shape=4)
    x = pm.Normal("x", pt.cast(2 * (a + z), "int64"), 0.5, shape=4)
    pmp.Privatized("s", pt.stack([x, z], axis=1), pmp.Gaussian(scale=1.0), observed=[6.0, 1.0])

    def simulate(rng, number):
        a, z = rng.normal(size=number), rng.normal(size=(number, 4))
        x = np.trunc(2 * (a[:, None] + z)) + 0.5 * rng.normal(size=z.shape)
        weight = gauss(6.0, x.sum(axis=1), 1.0) + gauss(1.0, z.sum(axis=1), 1.0)
        return {"a": a}, weight

    return simulate


@case
def truth_values_of_records_added_up():
    a = pm.Normal("a")
    z = pm.Normal("z", shape=(3, 3))
    x = pm.Normal("x", a * (z > 0).sum(axis=1), 1.0, shape=3)
    pmp.Privatized("s", x + 0 * z.sum(axis=1), pmp.Gaussian(scale=1.0), observed=5.0)

    def simulate(rng, number):
        a, z = rng.normal(size=number), rng.normal(size=(number, 3, 3))
        x = a[:, None] * (z > 0).sum(axis=2) + rng.normal(size=(number, 3))
        return {"a": a}, gauss(5.0, x.sum(axis=1), 1.0)

    return simulate


@case
def far_from_zero_with_a_wide_prior():
    mu, sigma = pm.Normal("mu", 1.7e9, 1e3), pm.HalfNormal("sigma", 10.0)
    x = pm.Normal("x", mu, sigma, shape=4)
    pmp.Privatized("s", x - 1.7e9, pmp.Gaussian(scale=500.0), observed=3000.0)

    def simulate(rng, number):
        mu, sigma = 1e3 * rng.normal(size=number), 10 * np.abs(rng.normal(size=number))
        x = mu[:, None] + sigma[:, None] * rng.normal(size=(number, 4))
        return {"mu": 1.7e9 + mu, "sigma": sigma}, gauss(3000.0, x.sum(axis=1), 500.0)

    return simulate


@case
def truncated_far_from_the_mean():
    mu = pm.Normal("mu", 0, 10)
    x = pm.TruncatedNormal("x", mu, 0.3, lower=0, upper=10, shape=4)
    release_sum(x, 12.0, 3.0)

    def simulate(rng, number):
        mu = 10 * rng.normal(size=number)
        low, high = (0 - mu) / 0.3, (10 - mu) / 0.3
        u = rng.random((number, 4))
        x = _truncated(u, mu[:, None], 0.3, low[:, None], high[:, None])
        return {"mu": mu}, gauss(12.0, x.sum(axis=1), 3.0)

    return simulate


def _truncated(u, mu, sigma, low, high):
    """Invert the distribution function on whichever side its masses are not rounded."""
    flip = low > 0
    a, b = np.where(flip, -high, low), np.where(flip, -low, high)
    log_a, log_b = stats.norm.logcdf(a), stats.norm.logcdf(b)
    log_mass = log_b + np.log1p(-np.exp(log_a - log_b))
    log_p = np.logaddexp(log_a, np.log(u) + log_mass)
    z = _normal_quantile(log_p)
    z = np.clip(z, a, b)
    return mu + sigma * np.where(flip, -z, z)


def _normal_quantile(log_p):
    """Solve log Phi(z) = log p by Newton's method, which converges from the left tail's formula."""
    z = np.where(log_p < -20, -np.sqrt(np.maximum(-2 * log_p, 1.0)), stats.norm.ppf(np.exp(log_p)))
    z = np.where(np.isfinite(z), z, -8.0)
    for _ in range(12):
        log_cdf = stats.norm.logcdf(z)
        slope = np.exp(stats.norm.logpdf(z) - log_cdf)
        z = z - np.where(log_p < -20, (log_cdf - log_p) / slope, 0.0)
    return z


@case
def hierarchy_of_groups():
    centre, spread = pm.Normal("centre"), pm.HalfNormal("spread")
    effects = pm.Normal("effects", centre, spread, shape=2)
    x = pm.Normal("x", effects[np.array([0, 0, 1, 1])], 1.0, shape=4)
    groups = np.array([[1.0, 0], [1, 0], [0, 1], [0, 1]])
    pmp.Privatized("s", x[:, None] * groups, pmp.Laplace(scale=1.0), observed=[4.0, -1.0])

    def simulate(rng, number):
        centre, spread = rng.normal(size=number), np.abs(rng.normal(size=number))
        effects = centre[:, None] + spread[:, None] * rng.normal(size=(number, 2))
        totals = 2 * effects + np.sqrt(2) * rng.normal(size=(number, 2))
        weight = laplace(np.array([4.0, -1.0]), totals, 1.0).sum(axis=1)
        return {"centre": centre, "spread": spread, "effects": effects}, weight

    return simulate


@case
def shares_behind_categories():
    p = pm.Dirichlet("p", np.array([1.0, 2.0, 1.0]))
    x = pm.Categorical("x", p, shape=5)
    counts = pt.eq(x[:, None], np.arange(3)).astype("int64")
    pmp.Privatized("s", counts, pmp.DiscreteLaplace(scale=1.0), observed=np.array([4, 0, 2]))

    def simulate(rng, number):
        p = rng.dirichlet([1.0, 2.0, 1.0], size=number)
        x = (rng.random((number, 5, 1)) > np.cumsum(p, axis=1)[:, None, :2]).sum(axis=2)
        counts = (x[:, :, None] == np.arange(3)).sum(axis=1)
        return {"p": p}, laplace(np.array([4, 0, 2]), counts, 1.0).sum(axis=1)

    return simulate


@case
def effects_of_each_record():
    centre = pm.Normal("centre")
    f = pm.Normal("f", centre, 0.8, shape=4)
    x = pm.Bernoulli("x", logit_p=f, shape=4)
    answers = np.array([1, 1, 1, 0])
    pmp.Privatized("s", x, pmp.RandomizedResponse(epsilon=1.0), local=True, observed=answers)

    def simulate(rng, number):
        centre = rng.normal(size=number)
        f = centre[:, None] + 0.8 * rng.normal(size=(number, 4))
        x = rng.random((number, 4)) < 1 / (1 + np.exp(-f))
        keep = np.e / (1 + np.e)
        return {"centre": centre}, np.log(np.where(x == answers, keep, 1 - keep)).sum(axis=1)

    return simulate


@case
def potential_of_each_record():
    mu = pm.Normal("mu")
    x = pm.Normal("x", mu, 1.0, shape=4)
    pm.Potential("tilt", -0.2 * (x - 1) ** 4)
    pmp.Privatized("s", x, pmp.Laplace(scale=1.0), observed=5.0)

    def simulate(rng, number):
        mu = rng.normal(size=number)
        x = mu[:, None] + rng.normal(size=(number, 4))
        weight = laplace(5.0, x.sum(axis=1), 1.0) - 0.2 * ((x - 1) ** 4).sum(axis=1)
        return {"mu": mu}, weight

    return simulate


@case
def outcome_of_each_record():
    mu, slope = pm.Normal("mu"), pm.Normal("slope")
    x = pm.Normal("x", mu, 1.0, shape=4)
    outcomes = np.array([0.5, -1.0, 2.0, 1.0])
    pm.Normal("y", slope * x, 1.0, observed=outcomes)
    pmp.Privatized("s", x, pmp.Gaussian(scale=1.0), observed=4.0)

    def simulate(rng, number):
        mu, slope = rng.normal(size=(2, number))
        x = mu[:, None] + rng.normal(size=(number, 4))
        weight = gauss(4.0, x.sum(axis=1), 1.0)
        weight = weight + gauss(outcomes, slope[:, None] * x, 1.0).sum(axis=1)
        return {"mu": mu, "slope": slope}, weight

    return simulate


@case
def two_databases_of_one_parameter():
    mu = pm.Normal("mu")
    x = pm.Normal("x", mu, 1.0, shape=3)
    y = pm.Poisson("y", pt.exp(mu), shape=2)
    pmp.Privatized("s", x, pmp.Laplace(scale=1.0), observed=3.0)
    pmp.Privatized("t", y, pmp.DiscreteGaussian(scale=1.0), observed=4)

    def simulate(rng, number):
        mu = rng.normal(size=number)
        x = mu[:, None] + rng.normal(size=(number, 3))
        y = rng.poisson(np.exp(mu)[:, None], size=(number, 2)).sum(axis=1)
        return {"mu": mu}, laplace(3.0, x.sum(axis=1), 1.0) + gauss(4, y, 1.0)

    return simulate


@case
def gamma_records_of_unknown_shape():
    shape = pm.Gamma("shape", 3.0, 1.0)
    x = pm.Gamma("x", alpha=shape, beta=1.0, shape=4)
    pmp.Privatized("s", pt.minimum(x, 5.0), pmp.Laplace(scale=2.0), observed=6.0)

    def simulate(rng, number):
        shape = rng.gamma(3.0, size=number)
        x = np.minimum(rng.gamma(shape[:, None], size=(number, 4)), 5.0)
        return {"shape": shape}, laplace(6.0, x.sum(axis=1), 2.0)

    return simulate


@case
def mixture_of_two_normals():
    w, mu = pm.Dirichlet("w", np.ones(2)), pm.Normal("mu", np.array([-1.0, 2.0]), 1.0, shape=2)
    x = pm.NormalMixture("x", w=w, mu=mu, sigma=0.5, shape=4)
    t = pt.stack([x, (x > 0).astype("float64")], axis=1)
    pmp.Privatized("s", t, pmp.Laplace(scale=1.0), observed=[3.0, 2.0])

    def simulate(rng, number):
        w = rng.dirichlet(np.ones(2), size=number)
        mu = np.array([-1.0, 2.0]) + rng.normal(size=(number, 2))
        second = rng.random((number, 4)) > w[:, :1]
        x = np.where(second, mu[:, 1:], mu[:, :1]) + 0.5 * rng.normal(size=(number, 4))
        weight = laplace(3.0, x.sum(axis=1), 1.0) + laplace(2.0, (x > 0).sum(axis=1), 1.0)
        return {"w": w, "mu": mu}, weight

    return simulate


@case
def regression_on_public_covariates():
    beta = pm.Normal("beta", shape=2)
    design = np.column_stack([np.ones(4), COVARIATE])
    y = pm.Normal("y", design @ beta, 1.0, shape=4)
    t = pt.clip(y, -3, 3)[:, None] * design
    pmp.Privatized("s", t, pmp.Laplace(scale=1.0), observed=[3.0, 4.0])

    def simulate(rng, number):
        beta = rng.normal(size=(number, 2))
        y = np.clip(beta @ design.T + rng.normal(size=(number, 4)), -3, 3)
        return {"beta": beta}, laplace(np.array([3.0, 4.0]), y @ design, 1.0).sum(axis=1)

    return simulate


@case
def vectors_of_unknown_covariance():
    scale, mu = pm.HalfNormal("scale"), pm.Normal("mu", shape=2)
    covariance = scale**2 * pt.as_tensor([[1.0, 0.5], [0.5, 1.0]])
    x = pm.MvNormal("x", mu, covariance, shape=(4, 2))
    t = pt.stack([x[:, 0], x[:, 1], x[:, 0] * x[:, 1]], axis=1)
    pmp.Privatized("s", t, pmp.Laplace(scale=1.0), observed=[2.0, -1.0, 3.0])

    def simulate(rng, number):
        scale, mu = np.abs(rng.normal(size=number)), rng.normal(size=(number, 2))
        factor = np.linalg.cholesky(np.array([[1.0, 0.5], [0.5, 1.0]]))
        noise = rng.normal(size=(number, 4, 2)) @ factor.T
        x = mu[:, None] + scale[:, None, None] * noise
        totals = np.column_stack([x.sum(axis=1), (x[..., 0] * x[..., 1]).sum(axis=1)])
        weight = laplace(np.array([2.0, -1.0, 3.0]), totals, 1.0).sum(axis=1)
        return {"scale": scale, "mu": mu}, weight

    return simulate


@case
def records_of_unknown_number():
    mu, n = pm.Normal("mu"), pm.DiscreteUniform("n", 1, 6)
    x = pmp.Records("x", pm.Normal.dist(mu, 1.0), size=n, capacity=6)
    pmp.Privatized("s", x, pmp.Laplace(scale=1.0), observed=5.0)

    def simulate(rng, number):
        mu, n = rng.normal(size=number), rng.integers(1, 7, size=number)
        x = mu[:, None] + rng.normal(size=(number, 6))
        total = np.where(np.arange(6) < n[:, None], x, 0.0).sum(axis=1)
        return {"mu": mu, "n": n}, laplace(5.0, total, 1.0)

    return simulate


@case
def ordered_levels():
    start = np.array([-1.0, 1.0])
    ordered = pm.distributions.transforms.ordered
    level = pm.Normal("level", start, 1.0, transform=ordered, initval=start)
    x = pm.Normal("x", level[np.array([0, 1, 0, 1])], 1.0, shape=4)
    release_sum(x, 4.0)

    def simulate(rng, number):
        # An ordering transform keeps the part of the prior where levels rise.
        level = start + rng.normal(size=(number, 2))
        x = level[:, [0, 1, 0, 1]] + rng.normal(size=(number, 4))
        weight = gauss(4.0, x.sum(axis=1), 1.0)
        return {"level": level}, np.where(level[:, 0] < level[:, 1], weight, -np.inf)

    return simulate


@case
def a_discrete_parameter_beside():
    mu, k = pm.Normal("mu"), pm.Poisson("k", 1.5)
    release_sum(pm.Normal("x", mu + 0.5 * k, 1.0, shape=4), 7.0)

    def simulate(rng, number):
        mu, k = rng.normal(size=number), rng.poisson(1.5, size=number)
        x = mu + 0.5 * k
        total = 4 * x + 2 * rng.normal(size=number)
        return {"mu": mu, "k": k}, gauss(7.0, total, 1.0)

    return simulate


def worst_z(draws, reference, weights):
    """Return the largest z of the mean and of the square, over all entries."""
    worst = 0.0
    shift, scale = np.average(reference, axis=0, weights=weights), reference.std(axis=0)
    for power in (1, 2):
        ours, theirs = ((draws - shift) / scale) ** power, ((reference - shift) / scale) ** power
        expected = np.average(theirs, axis=0, weights=weights)
        spread = np.sqrt((weights[:, None] ** 2 * (theirs - expected) ** 2).sum(axis=0))
        for j in range(ours.shape[2]):
            effective = array_stats.ess(ours[..., j], chain_axis=0, draw_axis=1, method="mean")
            error = np.hypot(ours[..., j].std() / np.sqrt(effective), spread[j])
            worst = max(worst, abs(ours[..., j].mean() - expected[j]) / error)
    return worst


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=pytest.mark.exhaustive if k % 4 else pytest.mark.slow)
        for k, name in enumerate(CASES)
    ],
)
def test_draws_have_the_law_of_the_weighted_prior(name):
    with pm.Model():
        simulate = CASES[name]()
        idata = pmp.sample(
            1500,
            tune=800,
            chains=2,
            cores=1,
            random_seed=7,
            progressbar=False,
            quiet=True,
            compute_convergence_checks=False,
        )
    quantities, log_weights = simulate(np.random.default_rng(3), SIMULATIONS)
    weights = np.exp(log_weights - log_weights.max())
    weights /= weights.sum()
    # A reference that rests on few simulations would be none.
    assert 1 / (weights**2).sum() > 2000
    for quantity, reference in quantities.items():
        draws = idata.posterior[quantity].to_numpy()
        draws = draws.reshape(*draws.shape[:2], -1)
        z = worst_z(draws, reference.reshape(len(reference), -1).astype(float), weights)
        assert z < Z_LIMIT, f"{quantity}: z = {z:.1f}"
