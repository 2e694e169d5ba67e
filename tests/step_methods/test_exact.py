"""Plain `pm.sample()` returns the exact private posterior: every family, every mechanism."""

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
from scipy import special, stats

import pymc_privacy as pmp
from tests import references
from tests.references import Release
from tests.stochastic import assert_law, assert_mean, seed_of

MECHANISMS = {
    "laplace": (pmp.Laplace, references.laplace, 0.4),
    "gaussian": (pmp.Gaussian, references.gaussian, 0.4),
    "discrete_laplace": (pmp.DiscreteLaplace, references.discrete_laplace, 0),
    "discrete_gaussian": (pmp.DiscreteGaussian, references.discrete_gaussian, 0),
}
CONTINUOUS = ["laplace", "gaussian"]


@pytest.fixture
def draw(request):
    """Sample a model with nothing but defaults, and return posterior draws by name."""

    def run(model, draws=1500):
        with model:
            result = pm.sample(
                draws,
                tune=400,
                chains=2,
                cores=1,
                random_seed=seed_of(request),
                progressbar=False,
                quiet=True,
                compute_convergence_checks=False,
            )
        assert "record_sweep_accept" in result.sample_stats
        return {str(name): value.values for name, value in result.posterior.items()}

    return run


def bernoulli_model(mechanisms_and_values, size=20, prior=(2.0, 2.0)):
    with pm.Model() as model:
        p = pm.Beta("p", *prior)
        x = pm.Bernoulli("x", p, shape=size)
        for k, (mechanism, value) in enumerate(mechanisms_and_values):
            pmp.Privatized(f"s{k}", x, mechanism, observed=value)
    return model


@pytest.mark.parametrize("kind", MECHANISMS)
def test_bernoulli(kind, draw):
    mechanism, noise, shift = MECHANISMS[kind]
    value = 14 + shift
    draws = draw(bernoulli_model([(mechanism(scale=2.0), value)]))
    exact = references.bernoulli([Release(noise, 2.0, value)], size=20, prior=(2.0, 2.0))
    assert_law(draws["p"], exact)


@pytest.mark.slow
def test_several_releases_of_one_database(draw):
    released = [(pmp.Laplace(scale=3.0), 4.2), (pmp.DiscreteGaussian(scale=2.0), 8)]
    draws = draw(bernoulli_model(released))
    exact = references.bernoulli(
        [Release(references.laplace, 3.0, 4.2), Release(references.discrete_gaussian, 2.0, 8)],
        size=20,
        prior=(2.0, 2.0),
    )
    assert_law(draws["p"], exact)


@pytest.mark.parametrize(
    "kind",
    [
        pytest.param("laplace", marks=pytest.mark.slow),
        *(pytest.param(k, marks=pytest.mark.exhaustive) for k in list(MECHANISMS)[1:]),
    ],
)
def test_categorical_with_one_scale_per_cell(kind, draw):
    mechanism, noise, shift = MECHANISMS[kind]
    scale, value = [1.0, 2.0, 1.5], np.array([6, 1, 4]) + shift
    with pm.Model() as model:
        p = pm.Dirichlet("p", [1.0, 2.0, 1.5])
        x = pm.Categorical("x", p, shape=10)
        cells = pt.stack([pt.eq(x, k).astype("int64") for k in range(3)], axis=1)
        pmp.Privatized("cells", cells, mechanism(scale=scale), observed=value)
    draws = draw(model)
    exact = references.categorical(
        [Release(noise, scale, value)], size=10, concentration=[1.0, 2.0, 1.5]
    )
    for k in range(3):
        assert_law(draws["p"][..., k], exact.marginal(k), what=f"p[{k}]")


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["laplace", "discrete_gaussian"])
def test_capped_poisson(kind, draw):
    mechanism, noise, shift = MECHANISMS[kind]
    with pm.Model() as model:
        rate = pm.Gamma("rate", 3.0, 1.5)
        x = pm.Poisson("x", rate, shape=8)
        pmp.Privatized("total", pt.minimum(x, 4), mechanism(scale=3.0), observed=17 + shift)
    draws = draw(model)
    exact = references.capped_poisson(
        [Release(noise, 3.0, 17 + shift)], size=8, cap=4, prior=(3.0, 1.5)
    )
    assert_law(draws["rate"], exact)


@pytest.mark.parametrize("kind", CONTINUOUS)
def test_clamped_normal(kind, draw):
    mechanism, noise, _ = MECHANISMS[kind]
    with pm.Model() as model:
        mu = pm.Normal("mu", 0.5, 1.5)
        x = pm.Normal("x", mu, 1.2, shape=10)
        pmp.Privatized("total", pt.clip(x, -2, 2), mechanism(scale=3.0), observed=9.1)
    draws = draw(model)
    exact = references.clamped_normal(
        [Release(noise, 3.0, 9.1)], size=10, bound=2.0, sigma=1.2, prior=(0.5, 1.5)
    )
    assert_law(draws["mu"], exact)


@pytest.mark.slow
def test_clamped_normal_with_unknown_spread(draw):
    with pm.Model() as model:
        mu = pm.Normal("mu", 0.0, 1.5)
        sigma = pm.HalfNormal("sigma", 1.0)
        x = pm.Normal("x", mu, sigma, shape=4)
        pmp.Privatized("total", pt.clip(x, -2, 2), pmp.Laplace(scale=1.5), observed=3.1)
    # Records that happen to lie close together hold sigma near zero for long: the
    # effective size can be estimated only from a run that is much longer than that.
    draws = draw(model, draws=20_000)
    exact = references.clamped_normal_unknown_sigma(
        [Release(references.laplace, 1.5, 3.1)],
        size=4,
        bound=2.0,
        sigma_scale=1.0,
        prior=(0.0, 1.5),
    )
    assert_law(draws["mu"], exact.marginal(0), what="mu")
    assert_law(draws["sigma"], exact.marginal(1), what="sigma")


@pytest.mark.slow
def test_x_then_y_given_x(draw):
    value, scale = [0.9, -0.4], [0.8, 1.1]
    with pm.Model() as model:
        theta = pm.Normal("theta", 0.5, 1.0)
        x = pm.Normal("x", theta, 1.0, shape=1)
        y = pm.Normal("y", 0.7 * x, 0.9, shape=1)
        a, b = pt.clip(x, -2, 2), pt.clip(y, -2, 2)
        contributions = pt.stack([a, a * b], axis=1)
        pmp.Privatized("s", contributions, pmp.Laplace(scale=scale), observed=value)
    draws = draw(model)
    exact = references.chained_normal(
        Release(references.laplace, scale, value), bound=2.0, slope=0.7, tau=0.9, prior=(0.5, 1.0)
    )
    assert_law(draws["theta"], exact)


@pytest.mark.slow
def test_independent_records_with_public_covariates(draw):
    covariates = np.array([-1.5, -0.5, 0.0, 0.3, 0.8, 1.6])
    with pm.Model() as model:
        theta = pm.Normal("theta", 0.0, 1.5)
        x = pm.Bernoulli("x", logit_p=theta + covariates, shape=6)
        pmp.Privatized("s", x, pmp.Laplace(scale=1.0), observed=4.6)
    draws = draw(model)
    exact = references.covariate_bernoulli(
        [Release(references.laplace, 1.0, 4.6)], covariates=covariates, prior=(0.0, 1.5)
    )
    assert_law(draws["theta"], exact)


@pytest.mark.slow
def test_another_observed_variable_of_each_record_enters_the_ratio(draw):
    """A noisy copy of each answer is public too: x_i given y_i is Bernoulli by Bayes' rule."""
    size, flip = 6, 0.25
    y = np.array([1, 1, 0, 1, 0, 0])
    with pm.Model() as model:
        p = pm.Beta("p", 2.0, 2.0)
        x = pm.Bernoulli("x", p, shape=size)
        pm.Bernoulli("y", pt.where(pt.eq(x, 1), 1 - flip, flip), observed=y)
        pmp.Privatized("s", x, pmp.Laplace(scale=1.5), observed=5.2)
    draws = draw(model)
    databases = np.array(np.meshgrid(*[[0, 1]] * size)).reshape(size, -1).T
    total = databases.sum(axis=1)
    agree = (databases == y).sum(axis=1)
    log_weight = agree * np.log(1 - flip) + (size - agree) * np.log(flip)
    log_weight += references.laplace(5.2 - total, 1.5)
    mixture = _beta_mixture(total, size, log_weight, prior=(2.0, 2.0))
    assert_law(draws["p"], mixture)


def _beta_mixture(total, size, log_weight, prior):
    a, b = prior[0] + total, prior[1] + size - total
    log_w = log_weight + special.betaln(a, b)
    w = np.exp(log_w - log_w.max())
    return references.BetaMixture(a.astype(float), b.astype(float), w / w.sum())


@pytest.mark.slow
def test_a_local_release_of_each_record(draw):
    size = 6
    y = np.array([0.9, 1.6, -0.7, 0.2, 1.1, 0.4])
    with pm.Model() as model:
        p = pm.Beta("p", 2.0, 2.0)
        x = pm.Bernoulli("x", p, shape=size)
        pmp.Privatized("y", x, pmp.Laplace(scale=0.7), local=True, observed=y)
    draws = draw(model)
    databases = np.array(np.meshgrid(*[[0, 1]] * size)).reshape(size, -1).T
    log_weight = references.laplace(y - databases, 0.7).sum(axis=1)
    assert_law(draws["p"], _beta_mixture(databases.sum(axis=1), size, log_weight, (2.0, 2.0)))


def test_a_mechanism_of_the_users_own(draw):
    def log_density(release, statistic):
        return -abs(release - statistic) / 2.0 - pt.log(4.0)

    own = pmp.CustomMechanism(
        log_density_function=log_density, simulator=lambda rng, t: rng.laplace(t, 2.0)
    )
    draws = draw(bernoulli_model([(own, 14.4)]))
    exact = references.bernoulli(
        [Release(references.laplace, 2.0, 14.4)], size=20, prior=(2.0, 2.0)
    )
    assert_law(draws["p"], exact)


@pytest.mark.slow
def test_records_whose_transform_moves_with_a_parameter(draw):
    """With x = theta * u the parameter carries the records along, and the releases with them."""
    with pm.Model() as model:
        theta = pm.Gamma("theta", 4.0, 2.0)
        x = pm.Uniform("x", 0.0, theta, shape=1)
        pmp.Privatized("s", x, pmp.Gaussian(scale=0.5), observed=2.5)
    draws = draw(model, draws=4000)
    grid = np.linspace(1e-3, 14.0, 4001)
    inside = stats.norm.cdf(2.5 / 0.5) - stats.norm.cdf((2.5 - grid) / 0.5)
    weight = stats.gamma.pdf(grid, 4.0, scale=0.5) * inside / grid
    exact = references.GridPosterior((grid,), weight / weight.sum())
    assert_law(draws["theta"], exact)


@pytest.mark.slow
def test_two_databases_of_one_parameter(draw):
    with pm.Model() as model:
        p = pm.Beta("p", 2.0, 2.0)
        x = pm.Bernoulli("x", p, shape=7)
        y = pm.Bernoulli("y", p, shape=5)
        pmp.Privatized("sx", x, pmp.Laplace(scale=1.0), observed=5.3)
        pmp.Privatized("sy", y, pmp.Laplace(scale=1.5), observed=1.2)
    draws = draw(model)
    a, b = np.meshgrid(np.arange(8), np.arange(6), indexing="ij")
    a, b = a.ravel(), b.ravel()
    log_weight = np.log(special.binom(7, a) * special.binom(5, b))
    log_weight += references.laplace(5.3 - a, 1.0) + references.laplace(1.2 - b, 1.5)
    assert_law(draws["p"], _beta_mixture(a + b, 12, log_weight, (2.0, 2.0)))


def test_the_imputed_records_follow_their_own_posterior(draw):
    draws = draw(bernoulli_model([(pmp.Laplace(scale=2.0), 14.4)]))
    k = np.arange(21)
    log_p = stats.betabinom.logpmf(k, 20, 2.0, 2.0) + references.laplace(14.4 - k, 2.0)
    p = np.exp(log_p - log_p.max())
    p /= p.sum()
    total = draws["x"].sum(axis=-1)
    assert_mean(total, float(p @ k), what="E S")
    assert_mean(total**2, float(p @ k**2), what="E S²")


def test_the_exact_test_fails_for_a_model_with_other_noise(draw):
    """The mutant: what a wrong scale in the model would look like."""
    draws = draw(bernoulli_model([(pmp.Laplace(scale=4.0), 14.4)]))
    exact = references.bernoulli([Release(references.laplace, 2.0, 14.4)], size=20, prior=(2, 2))
    with pytest.raises(AssertionError, match="z ="):
        assert_law(draws["p"], exact)
