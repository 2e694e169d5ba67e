"""Plain `pm.sample()` returns the exact posterior whatever the mechanism: by enumeration.

Every reference writes the law of its mechanism anew, with NumPy and SciPy.
"""

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
from arviz_stats.base import array_stats
from scipy import special, stats

import pymc_privacy as pmp
from tests import references
from tests.stochastic import assert_law, assert_mean, seed_of

PRIOR = (2.0, 2.0)


@pytest.fixture
def draw(request):
    """Sample a model with nothing but defaults, and return posterior draws by name."""

    def run(model, draws=1500, by="record_sweep_accept"):
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
        assert by in result.sample_stats
        return {str(name): value.values for name, value in result.posterior.items()}

    return run


def binary(mechanism, observed, *, size, contributions=lambda x: x, local=False):
    with pm.Model() as model:
        p = pm.Beta("p", *PRIOR)
        x = pm.Bernoulli("x", p, shape=size)
        pmp.Privatized("s", contributions(x), mechanism, observed=observed, local=local)
    return model


def by_total(log_density, *, size):
    """Posterior of p where the law of the release is a function of the number of ones."""
    return references.enumerated_categorical(
        lambda counts: log_density(counts[1]), size=size, concentration=PRIOR[::-1]
    ).marginal(1)


def by_database(log_density, *, size):
    """Posterior of p where the law of the release depends on every record."""
    databases = np.array(np.meshgrid(*[[0, 1]] * size)).reshape(size, -1).T
    log_weight = np.array([log_density(x) for x in databases])
    total = databases.sum(axis=1)
    a, b = PRIOR[0] + total, PRIOR[1] + size - total
    log_w = log_weight + special.betaln(a, b)
    w = np.exp(log_w - log_w.max())
    return references.BetaMixture(a.astype(float), b.astype(float), w / w.sum())


# ---------------------------------------------------------------- local privacy

BITS = np.array([1, 1, 0, 1, 1, 1, 0])


def flips(x, y, keep):
    return float(np.where(x == y, np.log(keep), np.log(1 - keep)).sum())


def test_randomized_response(draw):
    mechanism = pmp.RandomizedResponse(epsilon=1.0)
    draws = draw(binary(mechanism, BITS, size=7, local=True))
    keep = np.e / (1 + np.e)
    exact = by_database(lambda x: flips(x, BITS, keep), size=7)
    assert_law(draws["p"], exact)
    with pytest.raises(AssertionError, match="z ="):
        assert_law(draws["p"], by_database(lambda x: flips(x, BITS, 0.95), size=7))


@pytest.mark.slow
def test_many_randomized_responses(draw):
    """Summed out, records leave the parameter to itself: a draw is nearly independent."""
    size, yes, keep = 3000, 1300, 0.65
    answers = (np.arange(size) < yes).astype(int)
    mechanism = pmp.RandomizedResponse(keep_probability=keep)
    draws = draw(binary(mechanism, answers, size=size, local=True))
    p = np.linspace(0, 1, 4001)
    q = keep * p + (1 - keep) * (1 - p)
    log_w = stats.beta.logpdf(np.clip(p, 1e-12, 1 - 1e-12), *PRIOR)
    log_w += stats.binom.logpmf(yes, size, q)
    w = np.exp(log_w - log_w.max())
    assert_law(draws["p"], references.GridPosterior((p,), w / w.sum()))
    assert array_stats.ess(draws["p"], chain_axis=0, draw_axis=1) > 0.4 * draws["p"].size
    truthful = keep * p / q @ w / w.sum()
    assert_mean(draws["x"][..., :yes].mean(axis=-1), float(truthful), what="E(x | yes)")


@pytest.mark.slow
def test_randomized_responses_with_public_covariates(draw):
    covariates, answers, keep = (
        np.array([-1.5, -0.4, 0.3, 0.9, 1.7]),
        np.array([0, 1, 0, 1, 1]),
        0.75,
    )
    with pm.Model() as model:
        theta = pm.Normal("theta", 0.5, 1.0)
        x = pm.Bernoulli("x", logit_p=theta * covariates, shape=5)
        mechanism = pmp.RandomizedResponse(keep_probability=keep)
        pmp.Privatized("y", x, mechanism, observed=answers, local=True)
    draws = draw(model)
    theta = np.linspace(-7, 8, 3001)
    p = special.expit(theta[:, None] * covariates)
    q = keep * p + (1 - keep) * (1 - p)
    log_w = stats.norm.logpdf(theta, 0.5, 1.0) + stats.bernoulli.logpmf(answers, q).sum(axis=1)
    w = np.exp(log_w - log_w.max())
    assert_law(draws["theta"], references.GridPosterior((theta,), w / w.sum()))


@pytest.mark.slow
def test_randomized_response_together_with_a_noisy_total(draw):
    """Proposals know the local release; the central one is left to accept or reject them."""
    with binary(pmp.RandomizedResponse(keep_probability=0.7), BITS, size=7, local=True) as model:
        pmp.Privatized("total", model["x"], pmp.Laplace(scale=0.8), observed=2.2)
    draws = draw(model)
    exact = by_database(
        lambda x: flips(x, BITS, 0.7) + references.laplace(2.2 - x.sum(), 0.8), size=7
    )
    assert_law(draws["p"], exact)
    assert_mean(draws["x"].sum(axis=-1) >= 5, _at_least(5, 7), what="P(S >= 5)")


def _at_least(least, size):
    databases = np.array(np.meshgrid(*[[0, 1]] * size)).reshape(size, -1).T
    total = databases.sum(axis=1)
    log_w = special.betaln(PRIOR[0] + total, PRIOR[1] + size - total)
    log_w = log_w + [flips(x, BITS, 0.7) for x in databases]
    log_w = log_w + references.laplace(2.2 - total, 0.8)
    w = np.exp(log_w - log_w.max())
    return float(w[total >= least].sum() / w.sum())


@pytest.mark.slow
def test_randomized_response_with_several_categories(draw):
    answers, keep = np.array([0, 2, 2, 1, 2]), 0.6
    with pm.Model() as model:
        p = pm.Dirichlet("p", [1.0, 2.0, 1.5])
        x = pm.Categorical("x", p, shape=5)
        mechanism = pmp.RandomizedResponse(keep_probability=keep, categories=3)
        pmp.Privatized("y", x, mechanism, observed=answers, local=True)
    draws = draw(model)
    databases = np.array(np.meshgrid(*[[0, 1, 2]] * 5)).reshape(5, -1).T
    alphas = np.array([1.0, 2.0, 1.5]) + (databases[:, :, None] == np.arange(3)).sum(axis=1)
    agree = (databases == answers).sum(axis=1)
    log_w = special.gammaln(alphas).sum(axis=1)
    log_w = log_w + agree * np.log(keep) + (5 - agree) * np.log((1 - keep) / 2)
    w = np.exp(log_w - log_w.max())
    exact = references.DirichletMixture(alphas, w / w.sum())
    for k in range(3):
        assert_law(draws["p"][..., k], exact.marginal(k), what=f"p[{k}]")


@pytest.mark.slow
def test_local_integer_noise(draw):
    draws = draw(binary(pmp.DiscreteGaussian(scale=0.7), BITS, size=7, local=True))
    exact = by_database(lambda x: references.discrete_gaussian(BITS - x, 0.7).sum(), size=7)
    assert_law(draws["p"], exact)


@pytest.mark.slow
def test_local_noise_on_real_records(draw):
    y = np.array([1.3, -0.2, 2.4, 0.8])
    with pm.Model() as model:
        mu = pm.Normal("mu", 0.0, 2.0)
        x = pm.Normal("x", mu, 1.0, shape=4)
        pmp.Privatized("y", x, pmp.Gaussian(scale=0.8), observed=y, local=True)
    draws = draw(model)
    precision = 1 / 4 + 4 / (1 + 0.8**2)
    exact = stats.norm(y.sum() / (1 + 0.8**2) / precision, precision**-0.5)

    class Law:
        mean, sd, cdf, quantile = exact.mean, exact.std, exact.cdf, exact.ppf

    assert_law(draws["mu"], Law)


# ---------------------------------------------------------------- one number, other noise


def tulap(difference, *, epsilon, delta=0.0):
    """Log density of a discrete Laplace variable plus a uniform one, cut off where delta says."""
    q = np.exp(-epsilon)
    left_out = 2 * delta * q / (1 - q + 2 * delta * q)
    k = np.rint(difference)
    # P(N > |difference|) before the cut.
    beyond = q ** np.abs(k) / (1 + q) * (q + (np.abs(k) + 0.5 - np.abs(difference)) * (1 - q))
    inside = beyond >= left_out / 2
    density = np.log((1 - q) / (1 + q)) - epsilon * np.abs(k) - np.log(1 - left_out)
    return np.where(inside, density, -np.inf)


@pytest.mark.slow
def test_several_kinds_of_noise_on_one_total(draw):
    """Truncated, staircase, rounded and clamped noise, each with a likelihood of its own."""
    model = binary(pmp.Tulap(epsilon=0.4, delta=0.05), 13.3, size=20)
    bounded = pmp.TruncatedLaplace(epsilon=0.3, delta=0.05, sensitivity=1.0)
    rounded = pmp.Rounded(mechanism=pmp.Gaussian(scale=3.0), to=5.0)
    clamped = pmp.Clamped(mechanism=pmp.Laplace(scale=3.0), lower=0.0, upper=12.0)
    with model:
        for name, mechanism, value in (
            ("bounded", bounded, 16.3),
            ("rounded", rounded, 15.0),
            ("clamped", clamped, 12.0),
        ):
            pmp.Privatized(name, model["x"], mechanism, observed=value)
    draws = draw(model, draws=3000)
    reach = np.log(1 + np.expm1(0.3) / 0.1) / 0.3

    def log_density(k):
        return (
            tulap(13.3 - k, epsilon=0.4, delta=0.05)
            + (-0.3 * abs(16.3 - k) if abs(16.3 - k) <= reach else -np.inf)
            + np.log(stats.norm.cdf(17.5, k, 3.0) - stats.norm.cdf(12.5, k, 3.0))
            + stats.laplace.logsf(12.0, k, 3.0)
        )

    assert_law(draws["p"], by_total(log_density, size=20))


# ---------------------------------------------------------------- selection

UTILITIES = {0: [1.0, 0.0, 0.4], 1: [0.0, 1.0, 0.6]}  # of a record, for three candidates


def utilities(x):
    return pt.stack([pt.switch(pt.eq(x, 1), UTILITIES[1][k], UTILITIES[0][k]) for k in range(3)]).T


def chosen(candidate, ones, *, size, scale, normalised=True):
    u = ((size - ones) * np.array(UTILITIES[0]) + ones * np.array(UTILITIES[1])) / scale
    return u[candidate] - (special.logsumexp(u) if normalised else 0.0)


@pytest.mark.slow
def test_the_exponential_mechanism(draw):
    mechanism = pmp.ExponentialMechanism(scale=1.2)
    model = binary(mechanism, 2, size=9, contributions=utilities)
    assert model["s"].type.shape == ()
    draws = draw(model)
    assert_law(draws["p"], by_total(lambda k: chosen(2, k, size=9, scale=1.2), size=9))
    broken = by_total(lambda k: chosen(2, k, size=9, scale=1.2, normalised=False), size=9)
    with pytest.raises(AssertionError, match="z ="):
        assert_law(draws["p"], broken)


def test_the_exponential_mechanism_on_counts(draw):
    mechanism = pmp.ExponentialMechanism(epsilon=0.3, sensitivity=1.0)
    model = binary(mechanism, 1, size=600, contributions=utilities)
    draws = draw(model, by="count_states_block_accept")
    scale = 2 / 0.3
    assert_law(draws["p"], by_total(lambda k: chosen(1, k, size=600, scale=scale), size=600))


# ---------------------------------------------------------------- gradients


def truncated_laplace_mean(release, mean, *, size, epsilon, normalised=True):
    scale = 2 / (size * epsilon)
    law = stats.laplace(mean, scale)
    return law.logpdf(release) - (np.log(law.cdf(1) - law.cdf(0)) if normalised else 0.0)


@pytest.mark.slow
def test_a_mean_by_its_gradient(draw):
    """Awan et al., Example 3.4, for records that are 0 or 1."""
    mechanism = pmp.KNormGradient.mean(epsilon=1.0, bounds=(0, 1))
    model = binary(mechanism, 1.0, size=12, contributions=mechanism.contributions)
    draws = draw(model, draws=3000)
    law = {"size": 12, "epsilon": 1.0}
    exact = by_total(lambda k: truncated_laplace_mean(1.0, k / 12, **law), size=12)
    assert_law(draws["p"], exact)
    broken = by_total(
        lambda k: truncated_laplace_mean(1.0, k / 12, normalised=False, **law), size=12
    )
    with pytest.raises(AssertionError, match="z ="):
        assert_law(draws["p"], broken)


@pytest.mark.slow
def test_a_median_by_its_gradient(draw):
    values, edges = np.array([0.1, 0.5, 0.8]), [0.0, 0.3, 0.7, 1.0]
    mechanism = pmp.KNormGradient.quantile(0.5, epsilon=1.5, edges=edges)
    concentration = [1.0, 1.5, 1.0]
    with pm.Model() as model:
        p = pm.Dirichlet("p", concentration)
        x = pm.Categorical("x", p, shape=7)
        place = pt.switch(pt.eq(x, 0), values[0], pt.switch(pt.eq(x, 1), values[1], values[2]))
        pmp.Privatized("s", mechanism.contributions(place), mechanism, observed=0.42)
    draws = draw(model)

    def log_density(counts):
        below = np.cumsum(counts)
        score = -1.5 / 2 * np.abs(below - 7 / 2)
        return score[1] - special.logsumexp(score, b=np.diff(edges))

    exact = references.enumerated_categorical(log_density, size=7, concentration=concentration)
    for k in range(3):
        assert_law(draws["p"][..., k], exact.marginal(k), what=f"p[{k}]")


# Records (z, y): z is -1 or 1, y is 0 or 1, and y given z is logistic with slope theta.
CELLS = np.array([(-1.0, 0), (-1.0, 1), (1.0, 0), (1.0, 1)])


def log_cells(theta):
    z, y = CELLS.T
    t = theta[:, None] * z
    return np.log(0.5) + y * t - np.logaddexp(0, t)


def regression(mechanism, contributions, observed, *, size):
    with pm.Model() as model:
        theta = pm.Normal("theta", 0.0, 1.5)
        side = pm.Bernoulli("side", 0.5, shape=size)
        z = 2.0 * side - 1.0
        y = pm.Bernoulli("y", logit_p=theta * z, shape=size)
        pmp.Privatized("s", contributions(z[:, None], y), mechanism, observed=observed)
    return model


@pytest.mark.slow
def test_objective_perturbation(draw):
    mechanism = pmp.ObjectivePerturbation(epsilon=2.0, bound=1.0)
    released = np.array([1.1])
    model = regression(
        mechanism, lambda x, y: mechanism.contributions(released, x, y), released, size=6
    )
    assert model["s"].type.shape == (1,)
    draws = draw(model)
    scale, ridge = 2.0, 1 / (4 * np.expm1(1.0))

    def log_density(counts):
        z, y = CELLS.T
        p = special.expit(z * released)
        noise = counts @ ((p - y) * z) + ridge * released[0]
        return -abs(noise) / scale + np.log(counts @ (p * (1 - p) * z**2) + ridge)

    exact = references.enumerated_on_grid(log_density, log_cells, size=6, prior=(0.0, 1.5))
    assert_law(draws["theta"], exact)


@pytest.mark.slow
def test_the_functional_mechanism(draw):
    mechanism = pmp.FunctionalMechanism(epsilon=3.0, covariates=1, logistic=True)
    released = np.array([-1.4, 0.9])
    draws = draw(regression(mechanism, mechanism.contributions, released, size=6))

    def log_density(counts):
        z, y = CELLS.T
        coefficients = counts @ np.column_stack([(0.5 - y) * z, z**2 / 8])
        return -np.abs(released - coefficients).sum() / (2 * (1 / 2 + 1 / 8) / 3.0)

    exact = references.enumerated_on_grid(log_density, log_cells, size=6, prior=(0.0, 1.5))
    assert_law(draws["theta"], exact)


# ---------------------------------------------------------------- post-processing


def suppressed_cells(value, below, scale, counts, *, at_random=False):
    """Log density of counts of which those that came out too small are missing."""
    k = np.arange(-60, 61)
    hidden = np.array(
        [special.logsumexp(references.discrete_gaussian(k, scale)[k < below - c]) for c in counts]
    )
    shown = references.discrete_gaussian(np.nan_to_num(value) - counts, scale)
    return np.where(np.isnan(value), 0.0 if at_random else hidden, shown).sum()


@pytest.mark.slow
def test_a_table_with_suppressed_cells(draw):
    value, concentration = np.array([7.0, np.nan, np.nan]), [1.0, 1.0, 1.0]
    mechanism = pmp.Suppressed(mechanism=pmp.DiscreteGaussian(scale=1.5), below=5)
    with pm.Model() as model:
        p = pm.Dirichlet("p", concentration)
        x = pm.Categorical("x", p, shape=11)
        table = pt.stack([pt.eq(x, k) for k in range(3)], axis=1).astype("int64")
        pmp.Privatized("table", table, mechanism, observed=value)
    draws = draw(model)
    law = (value, 5, 1.5)
    given = {"size": 11, "concentration": concentration}
    exact = references.enumerated_categorical(lambda c: suppressed_cells(*law, c), **given)
    for k in range(3):
        assert_law(draws["p"][..., k], exact.marginal(k), what=f"p[{k}]")
    at_random = references.enumerated_categorical(
        lambda c: suppressed_cells(*law, c, at_random=True), **given
    )
    with pytest.raises(AssertionError, match="z ="):
        assert_law(draws["p"][..., 0], at_random.marginal(0))


def test_a_suppressed_count_of_many_records(draw):
    mechanism = pmp.Suppressed(mechanism=pmp.Laplace(scale=20.0), below=100.0)
    draws = draw(binary(mechanism, np.nan, size=600), by="count_states_block_accept")
    exact = by_total(lambda k: stats.laplace.logcdf(100.0, k, 20.0), size=600)
    assert_law(draws["p"], exact)


def test_the_reference_of_tulap_noise_is_a_density():
    x = np.linspace(-60, 60, 1_200_001)
    middle = (x[1:] + x[:-1]) / 2
    for delta in (0.0, 0.05):
        mass = np.exp(tulap(middle, epsilon=0.7, delta=delta)).sum() * (x[1] - x[0])
        assert mass == pytest.approx(1, abs=1e-4)


# ---------------------------------------------------------------- sums of noisy values


def log_summed_noise(kind, scale, size, offset):
    return np.log(references.density_of_summed_noise(kind, scale, size, offset))


@pytest.mark.slow
def test_a_sum_of_noisy_values_of_known_size(draw):
    law = pmp.LocalSum(noise=pmp.Laplace(scale=1.5))
    draws = draw(binary(law, 5.3, size=20, contributions=law.contributions))
    exact = by_total(lambda k: log_summed_noise(references.laplace, 1.5, 20, 5.3 - k), size=20)
    assert_law(draws["p"], exact)
    central = by_total(lambda k: references.laplace(5.3 - k, 1.5), size=20)
    with pytest.raises(AssertionError, match="z ="):
        assert_law(draws["p"], central)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("noise", "kind"),
    [(pmp.Laplace(scale=2.0), references.laplace), (pmp.Gaussian(scale=3.0), references.gaussian)],
)
def test_a_sum_of_noisy_values_of_unknown_size(draw, noise, kind):
    """The number of records enters by the law of the noise, too: a twin without that fails."""
    law, most, released = pmp.LocalSum(noise=noise), 14, 16.0
    with pm.Model() as model:
        p = pm.Beta("p", *PRIOR)
        n = pm.DiscreteUniform("n", 3, most)
        x = pmp.Records("x", pm.Bernoulli.dist(p), size=n)
        pmp.Privatized("s", law.contributions(x), law, observed=released)
    draws = draw(model, draws=4000, by="birth_death_size")

    def exact(sizes_of_noise):
        size, total = np.array([(n, k) for n in range(3, most + 1) for k in range(n + 1)]).T
        log_w = np.array(
            [
                log_summed_noise(kind, noise.scale, sizes_of_noise(n), released - k)
                for n, k in zip(size, total, strict=True)
            ]
        )
        log_w += special.gammaln(size + 1) - special.gammaln(total + 1)
        log_w += special.betaln(PRIOR[0] + total, PRIOR[1] + size - total)
        log_w -= special.gammaln(size - total + 1)
        w = np.exp(log_w - log_w.max())
        w /= w.sum()
        a, b = PRIOR[0] + total, PRIOR[1] + size - total
        return (
            references.Integers(np.bincount(size, w, minlength=most + 1)),
            references.BetaMixture(a.astype(float), b.astype(float), w),
        )

    sizes, chances = exact(lambda n: n)
    assert_law(draws["p"], chances)
    assert_mean(draws["n"], sizes.mean(), what="E(n)")
    for most_likely in (6, 10, 12):
        assert_mean(draws["n"] <= most_likely, float(sizes.cdf(most_likely)), what="P(n <= k)")
    twin, _ = exact(lambda n: 3)
    with pytest.raises(AssertionError, match="z ="):
        assert_mean(draws["n"], twin.mean())
