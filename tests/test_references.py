"""The references are right: each agrees with simulation, enumeration and limits.

Simulation draws parameters from the prior and records from the model, and weighs
them by the noise density: for every g, E[eta(s - S) (g(theta) - E(g | s))] = 0. This
is a sum of independent terms, so its z-score has a known law, and no posterior,
grid or convolution enters it.
"""

import ast
import itertools
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import integrate, special, stats

from tests import references
from tests.references import Release, discrete_gaussian, discrete_laplace, gaussian, laplace

FALSE_ALARM = 1e-6  # probability that a right reference fails one assertion
LARGEST_Z = stats.norm.isf(FALSE_ALARM / 2)
BUDGET = 1e-4  # discretisation error a reference may have, in posterior standard deviations
ROUNDING = 1e-10  # relative error of formulas without discretisation, evaluated in another order
DRAWS = 200_000


# Simulated databases: (rng, draws) -> parameters (draws, d), statistics (draws, ...).
def bernoulli_records(rng, draws):
    p = rng.beta(2.0, 3.0, draws)
    return p[:, None], (rng.random((draws, 8)) < p[:, None]).sum(axis=1)


def categorical_records(rng, draws):
    p = rng.dirichlet([1.0, 2.0, 0.5], draws)
    label = (rng.random((draws, 6, 1)) > np.cumsum(p, axis=1)[:, None, :2]).sum(axis=2)
    return p, (label[..., None] == np.arange(3)).sum(axis=1)


def poisson_records(rng, draws):
    rate = rng.gamma(3.0, 1 / 1.5, draws)
    return rate[:, None], np.minimum(rng.poisson(rate[:, None], (draws, 5)), 4).sum(axis=1)


def normal_records(rng, draws):
    mu = rng.normal(0.5, 1.5, draws)
    x = rng.normal(mu[:, None], 1.2, (draws, 6))
    return mu[:, None], np.clip(x, -2, 2).sum(axis=1)


def normal_records_unknown_sigma(rng, draws):
    mu, sigma = rng.normal(0.5, 1.5, draws), np.abs(rng.normal(0, 1.2, draws))
    x = rng.normal(mu[:, None], sigma[:, None], (draws, 4))
    return np.stack([mu, sigma], axis=1), np.clip(x, -2, 2).sum(axis=1)


def chained_records(rng, draws):
    theta = rng.normal(0.3, 1.5, draws)
    x = rng.normal(theta, 1.0)
    x, y = np.clip(x, -2, 2), np.clip(rng.normal(0.8 * x, 0.7), -2, 2)
    return theta[:, None], np.stack([x, x * y], axis=1)


COVARIATES = np.array([-1.0, -0.3, 0.0, 0.4, 1.1, 2.0])


def covariate_records(rng, draws):
    theta = rng.normal(-0.5, 1.5, draws)
    p = special.expit(theta[:, None] + COVARIATES)
    return theta[:, None], (rng.random(p.shape) < p).sum(axis=1)


# References with the settings of the simulated databases.
def bernoulli_posterior(releases):
    return [references.bernoulli(releases, size=8, prior=(2.0, 3.0))]


def categorical_posterior(releases):
    mixture = references.categorical(releases, size=6, concentration=[1.0, 2.0, 0.5])
    return [mixture.marginal(axis) for axis in range(3)]


def poisson_posterior(releases, **grid):
    return [references.capped_poisson(releases, size=5, cap=4, prior=(3.0, 1.5), **grid)]


def normal_posterior(releases, **grid):
    settings = {"size": 6, "bound": 2.0, "sigma": 1.2, "prior": (0.5, 1.5)}
    return [references.clamped_normal(releases, **settings, **grid)]


def normal_posterior_unknown_sigma(releases, **grid):
    settings = {"size": 4, "bound": 2.0, "sigma_scale": 1.2, "prior": (0.5, 1.5)}
    joint = references.clamped_normal_unknown_sigma(releases, **settings, **grid)
    return [joint.marginal(axis) for axis in range(2)]


def chained_posterior(releases, **grid):
    settings = {"bound": 2.0, "slope": 0.8, "tau": 0.7, "prior": (0.3, 1.5)}
    return [references.chained_normal(releases[0], **settings, **grid)]


def covariate_posterior(releases, **grid):
    settings = {"covariates": COVARIATES, "prior": (-0.5, 1.5)}
    return [references.covariate_bernoulli(releases, **settings, **grid)]


@dataclass(frozen=True, eq=False)
class Case:
    name: str
    posterior: Callable[..., list[Any]]
    records: Callable[..., tuple[np.ndarray, np.ndarray]]
    releases: list[Release]

    @cached_property
    def reference(self) -> list[Any]:
        return self.posterior(self.releases)

    @property
    def coarse(self) -> dict[str, Any]:
        """Half the default points of the grid, where there is one."""
        if self.posterior in (bernoulli_posterior, categorical_posterior):
            return {}
        return {"points": (201, 41) if self.posterior is normal_posterior_unknown_sigma else 201}


BERNOULLI = (bernoulli_posterior, bernoulli_records)
CATEGORICAL = (categorical_posterior, categorical_records)
POISSON = (poisson_posterior, poisson_records)
NORMAL = (normal_posterior, normal_records)
UNKNOWN_SIGMA = (normal_posterior_unknown_sigma, normal_records_unknown_sigma)
CHAINED = (chained_posterior, chained_records)
COVARIATE = (covariate_posterior, covariate_records)

CASES = [
    Case("bernoulli-laplace", *BERNOULLI, [Release(laplace, 1.5, 6.3)]),
    Case("bernoulli-gaussian", *BERNOULLI, [Release(gaussian, 1.5, -0.7)]),
    Case("bernoulli-discrete-laplace", *BERNOULLI, [Release(discrete_laplace, 1.5, 6)]),
    Case("bernoulli-discrete-gaussian", *BERNOULLI, [Release(discrete_gaussian, 1.5, 9)]),
    Case(
        "bernoulli-two-releases",
        *BERNOULLI,
        [Release(laplace, 2.0, 6.3), Release(discrete_gaussian, 1.5, 4)],
    ),
    Case("categorical-laplace", *CATEGORICAL, [Release(laplace, 1.5, [1.4, 4.2, 0.1])]),
    Case("categorical-first-columns", *CATEGORICAL, [Release(discrete_gaussian, 1.5, [1, 4])]),
    Case(
        "categorical-two-releases",
        *CATEGORICAL,
        [Release(gaussian, [1.5, 2.0, 2.5], [1.4, 4.2, 0.1]), Release(discrete_laplace, 2.0, [3])],
    ),
    Case("poisson-laplace", *POISSON, [Release(laplace, 2.0, 12.6)]),
    Case("poisson-discrete-gaussian", *POISSON, [Release(discrete_gaussian, 2.0, 18)]),
    Case("normal-laplace", *NORMAL, [Release(laplace, 1.5, 4.1)]),
    Case("normal-gaussian", *NORMAL, [Release(gaussian, 1.5, 11.0)]),
    Case("normal-two-releases", *NORMAL, [Release(laplace, 2.0, 4.1), Release(gaussian, 2.0, 1.0)]),
    Case("unknown-sigma-laplace", *UNKNOWN_SIGMA, [Release(laplace, 1.5, 3.1)]),
    Case("unknown-sigma-gaussian", *UNKNOWN_SIGMA, [Release(gaussian, 1.5, 1.0)]),
    Case("chained-laplace", *CHAINED, [Release(laplace, [0.8, 1.2], [0.9, 1.7])]),
    Case("chained-negative", *CHAINED, [Release(laplace, [0.8, 1.2], [2.4, -0.8])]),
    Case("covariate-laplace", *COVARIATE, [Release(laplace, 1.0, 4.2)]),
    Case("covariate-discrete-laplace", *COVARIATE, [Release(discrete_laplace, 1.0, 1)]),
]
GRID_CASES = [c for c in CASES if c.coarse]
LATTICE_CASES = [
    c for c in CASES if c.posterior in (normal_posterior, normal_posterior_unknown_sigma)
]
each_case = pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
each_grid_case = pytest.mark.parametrize("case", GRID_CASES, ids=lambda case: case.name)


def noise_density(releases, statistics):
    """Multiply the noise densities over releases and over the coordinates each releases."""
    log_density = np.zeros(len(statistics))
    for noise, scale, value in releases:
        released = statistics.reshape(len(statistics), -1)[:, : np.size(value)]
        log_density += noise(np.atleast_1d(value) - released, scale).sum(axis=1)
    return np.exp(log_density)


def z_scores(posterior, parameter, density):
    """z of E[eta (g(theta) - E(g | s))] = 0 for g = theta, its square and two indicators."""
    mean, sd = posterior.mean(), posterior.sd()
    errors = [parameter - mean, (parameter - mean) ** 2 - sd**2]
    for value in (mean - sd / 2, mean + sd):
        errors.append((parameter <= value) - posterior.cdf(value))
    terms = np.stack(errors) * density
    return terms.mean(axis=1) / (terms.std(axis=1, ddof=1) / np.sqrt(density.size))


def simulated_z(case, posteriors, seed):
    parameters, statistics = case.records(np.random.default_rng(seed), DRAWS)
    density = noise_density(case.releases, statistics)
    pairs = zip(posteriors, parameters.T, strict=True)
    return np.stack([z_scores(posterior, parameter, density) for posterior, parameter in pairs])


def shifted(releases, by):
    return [Release(noise, scale, np.add(value, by)) for noise, scale, value in releases]


@each_case
def test_agrees_with_weighted_simulation_of_databases(case):
    z = simulated_z(case, case.reference, seed=20240501)
    assert np.abs(z).max() < LARGEST_Z, f"z = {z}"


@each_case
def test_simulation_tells_a_wrong_release_apart(case):
    z = simulated_z(case, case.posterior(shifted(case.releases, 1), **case.coarse), seed=20240501)
    assert np.abs(z).max() > LARGEST_Z, f"z = {z}"


@each_case
def test_quantile_inverts_cdf(case):
    levels = np.array([0.01, 0.3, 0.5, 0.99])
    for posterior in case.reference:
        # brentq stops within 2e-12 of the root; densities here are below 1e3.
        np.testing.assert_allclose(posterior.cdf(posterior.quantile(levels)), levels, atol=1e-8)


def discrepancy(posterior, other):
    """Largest difference of mean, sd (in standard deviations) and distribution function."""
    values = other.mean() + other.sd() * np.linspace(-2, 2, 9)
    return max(
        abs(posterior.mean() - other.mean()) / other.sd(),
        abs(posterior.sd() - other.sd()) / other.sd(),
        np.abs(posterior.cdf(values) - other.cdf(values)).max(),
    )


def assert_close(posteriors, others):
    for posterior, other in zip(posteriors, others, strict=True):
        found = discrepancy(posterior, other)
        assert found < BUDGET, f"discrepancy {found:.1e} in standard deviations"


# Twice the step of the default, in the grid or in the lattice, must already be within
# budget; the errors fall at least as h², so those of the default are a quarter or less.
@each_grid_case
def test_doubling_the_grid_step_changes_nothing(case):
    assert_close(case.posterior(case.releases, **case.coarse), case.reference)


@pytest.mark.parametrize("case", LATTICE_CASES, ids=lambda case: case.name)
def test_doubling_the_lattice_step_changes_nothing(case):
    cells = 128 if case.posterior is normal_posterior_unknown_sigma else 512
    assert_close(case.posterior(case.releases, cells=cells), case.reference)


def test_lattice_error_is_of_second_order():
    release, settings = [Release(gaussian, 1.5, 4.1)], {"size": 6, "bound": 2.0}
    finest, fine, coarse = (
        references.clamped_normal_log_likelihood(release, 0.4, 1.2, cells=cells, **settings)
        for cells in (4096, 64, 32)
    )
    # The next term is of order (h / scale)² < 1 % relative to the first, at h = 1 / 8.
    assert (coarse - finest) / (fine - finest) == pytest.approx(4.0, rel=0.01)


# Enumeration and adaptive quadrature of every database.
def moments(density, lower, upper):
    """Mean and sd of an unnormalised density, by adaptive quadrature."""
    power = [integrate.quad(lambda t, k=k: t**k * density(t), lower, upper)[0] for k in range(3)]
    mean = power[1] / power[0]
    return mean, (power[2] / power[0] - mean**2) ** 0.5


@pytest.mark.parametrize("noise", [laplace, gaussian, discrete_laplace, discrete_gaussian])
def test_bernoulli_enumerates_every_database(noise):
    def density(p):
        total = 0.0
        for database in itertools.product([0, 1], repeat=3):
            chance = np.prod([p if x else 1 - p for x in database])
            total += chance * np.exp(noise(2 - sum(database), 1.3))
        return total * stats.beta.pdf(p, 2.0, 3.0)

    found = references.bernoulli([Release(noise, 1.3, 2)], size=3, prior=(2.0, 3.0))
    expected = moments(density, 0.0, 1.0)
    assert (found.mean(), found.sd()) == pytest.approx(expected, rel=ROUNDING)


def test_categorical_enumerates_every_database():
    alpha, release = np.array([1.0, 2.0, 0.5]), Release(laplace, [1.0, 2.0, 1.5], [1.2, 2.3, -0.4])
    total, mean, products = 0.0, np.zeros(3), np.zeros((3, 3))
    for database in itertools.product(range(3), repeat=4):
        urn, chance = alpha.copy(), 1.0  # draws from Polya's urn have the records' marginal law
        for label in database:
            chance *= urn[label] / urn.sum()
            urn[label] += 1
        counts = np.bincount(database, minlength=3)
        weight = chance * np.exp(laplace(release.value - counts, np.array(release.scale)).sum())
        law = stats.dirichlet(urn)
        total += weight
        mean += weight * law.mean()
        products += weight * (law.cov() + np.outer(law.mean(), law.mean()))
    found = references.categorical([release], size=4, concentration=alpha)
    covariance = products / total - np.outer(mean, mean) / total**2
    np.testing.assert_allclose(found.mean(), mean / total, rtol=ROUNDING)
    np.testing.assert_allclose(found.covariance(), covariance, rtol=ROUNDING)
    np.testing.assert_allclose(found.sd(), np.sqrt(np.diag(covariance)), rtol=ROUNDING)


def test_capped_poisson_enumerates_every_database():
    rates, release = np.array([0.3, 2.0, 6.0]), Release(laplace, 1.5, 7.2)
    pmf = stats.poisson.pmf(np.arange(4), rates[:, None])
    pmf = np.column_stack([pmf, 1 - pmf.sum(axis=1)])
    expected = sum(
        np.prod(pmf[:, database], axis=1) * np.exp(laplace(7.2 - sum(database), 1.5))
        for database in itertools.product(range(5), repeat=3)
    )
    found = references.capped_poisson_log_likelihood([release], rates, size=3, cap=4)
    np.testing.assert_allclose(np.exp(found), expected, rtol=ROUNDING)


def mean_over_clamped(function, mu, sigma, bound, kinks=()):
    """E of function(clip(x)), x ~ Normal(mu, sigma): two atoms and an adaptive quadrature."""
    atoms = function(-bound) * stats.norm.cdf(-bound, mu, sigma)
    atoms += function(bound) * stats.norm.sf(bound, mu, sigma)
    breaks = [kink for kink in kinks if -bound < kink < bound] or None
    between = integrate.quad(
        lambda x: function(x) * np.exp(-(((x - mu) / sigma) ** 2) / 2), -bound, bound, points=breaks
    )[0]
    return atoms + between / (sigma * np.sqrt(2 * np.pi))


@pytest.mark.parametrize("noise", [laplace, gaussian])
@pytest.mark.parametrize(("mu", "sigma"), [(0.4, 1.2), (-1.9, 0.3), (3.0, 1.0)])
def test_clamped_normal_integrates_every_database(noise, mu, sigma):
    bound, scale, value = 2.0, 1.5, 1.3

    def one(rest):
        return mean_over_clamped(
            lambda x: np.exp(noise(value - rest - x, scale)), mu, sigma, bound, [value - rest]
        )

    two = mean_over_clamped(one, mu, sigma, bound, [value - bound, value + bound])
    for size, expected in ((1, one(0.0)), (2, two)):
        found = references.clamped_normal_log_likelihood(
            [Release(noise, scale, value)], mu, sigma, size=size, bound=bound, cells=1024
        )
        # n times the error of linear interpolation: h² / 8 times sup|eta''| off the cusp, and
        # h² / 8 times the jump of eta' at the cusp times the largest density of a record.
        curvature, jump = np.exp(noise(0, scale)) * np.array([scale**-2, 2 / scale])
        bound_on_error = size * (1 / 256) ** 2 / 8 * (curvature + jump * 0.4 / sigma)
        assert np.exp(found) == pytest.approx(expected, rel=0, abs=bound_on_error)


@pytest.mark.parametrize("value", [(0.9, 1.7), (2.4, -0.8), (-0.5, 0.0)])
@pytest.mark.parametrize("theta", [-1.0, 0.3, 2.5])
def test_chained_normal_integrates_every_record(value, theta):
    bound, slope, tau, (scale_1, scale_2) = 2.0, 0.8, 0.7, (0.8, 1.2)

    def given_x(x):
        clipped = np.clip(x, -bound, bound)
        kinks = [] if clipped == 0 else [value[1] / clipped]
        inner = mean_over_clamped(
            lambda y: np.exp(laplace(value[1] - clipped * y, scale_2)),
            slope * x,
            tau,
            bound,
            kinks,
        )
        return (
            np.exp(-((x - theta) ** 2) / 2) * np.exp(laplace(value[0] - clipped, scale_1)) * inner
        )

    kinks = [-bound, bound, value[0], value[1] / bound, -value[1] / bound]
    breaks = np.unique([theta - 8, *kinks, theta + 8])
    integral = sum(integrate.quad(given_x, *pair)[0] for pair in itertools.pairwise(breaks))
    expected = integral / np.sqrt(2 * np.pi)
    found = references.chained_normal_log_likelihood(
        Release(laplace, (scale_1, scale_2), value),
        np.array([theta]),
        bound=bound,
        slope=slope,
        tau=tau,
    )
    # quad promises 1.5e-8 for each of six pieces in x, and as much for the integral in y.
    assert np.exp(found[0]) == pytest.approx(expected, rel=0, abs=7 * 1.5e-8)


def test_covariate_bernoulli_enumerates_every_database():
    covariates, release = np.array([-1.0, 0.2, 1.5]), Release(laplace, 1.0, 2.2)

    def density(theta):
        p, total = special.expit(theta + covariates), 0.0
        for database in itertools.product([0, 1], repeat=3):
            x = np.array(database)
            total += np.prod(np.where(x, p, 1 - p)) * np.exp(laplace(2.2 - x.sum(), 1.0))
        return total * stats.norm.pdf(theta, 0.5, 1.2)

    found = references.covariate_bernoulli([release], covariates=covariates, prior=(0.5, 1.2))
    expected = moments(density, -10.0, 11.0)
    # quad promises 1.5e-8 relative or absolute for each of three moments; p(s) > 0.1.
    assert (found.mean(), found.sd()) == pytest.approx(expected, rel=0, abs=1e-6)


# Limits.
PRIORS = [
    (*BERNOULLI, [stats.beta(2.0, 3.0)]),
    (*CATEGORICAL, [stats.beta(1.0, 2.5), stats.beta(2.0, 1.5), stats.beta(0.5, 3.0)]),
    (*POISSON, [stats.gamma(3.0, scale=1 / 1.5)]),
    (*NORMAL, [stats.norm(0.5, 1.5)]),
    (*UNKNOWN_SIGMA, [stats.norm(0.5, 1.5), stats.halfnorm(0, 1.2)]),
    (*CHAINED, [stats.norm(0.3, 1.5)]),
    (*COVARIATE, [stats.norm(-0.5, 1.5)]),
]


class Law:
    """A SciPy law under the names of a posterior."""

    def __init__(self, law):
        self.mean, self.sd, self.cdf = law.mean, law.std, law.cdf


@pytest.mark.parametrize(
    ("posterior", "records", "priors"), PRIORS, ids=lambda p: getattr(p, "__name__", "")
)
def test_infinite_scale_leaves_the_prior(posterior, records, priors):
    value = [1.0, 1.0] if posterior in (categorical_posterior, chained_posterior) else 1.0
    assert_close(posterior([Release(laplace, 1e9, value)]), [Law(prior) for prior in priors])


@pytest.mark.parametrize("noise", [laplace, gaussian, discrete_laplace, discrete_gaussian])
def test_vanishing_scale_leaves_the_conjugate_posterior(noise):
    beta = references.bernoulli([Release(noise, 0.01, 5)], size=8, prior=(2.0, 3.0))
    gamma = references.capped_poisson([Release(noise, 0.01, 9)], size=5, cap=60, prior=(3.0, 1.5))
    assert_close(
        [beta, gamma],
        [
            Law(references.beta_given_total(5, size=8, prior=(2.0, 3.0))),
            Law(references.gamma_given_total(9, size=5, prior=(3.0, 1.5))),
        ],
    )
    dirichlet = references.categorical(
        [Release(noise, 0.01, [1, 3, 2])], size=6, concentration=[1.0, 2.0, 0.5]
    )
    exact = references.dirichlet_given_counts([1, 3, 2], concentration=[1.0, 2.0, 0.5])
    np.testing.assert_allclose(dirichlet.mean(), exact.mean(), rtol=ROUNDING)
    np.testing.assert_allclose(dirichlet.covariance(), exact.cov(), rtol=ROUNDING)


@pytest.mark.parametrize("scale", [0.05, 0.5, 5.0])
def test_unclamped_normal_is_conjugate_at_every_gaussian_scale(scale):
    settings = {"size": 3, "sigma": 1.0, "prior": (0.5, 1.0)}
    release = [Release(gaussian, scale, 2.7)]
    found = references.clamped_normal(release, bound=9.0, cells=4096, **settings)
    exact = references.normal_given_total(2.7, noise_sd=scale, **settings)
    assert_close([found], [Law(exact)])


def test_releases_of_one_statistic_multiply():
    # Two Gaussian releases are one of their mean, at 1 / sqrt(2) of the scale.
    twice = normal_posterior([Release(gaussian, 2.0, 3.0), Release(gaussian, 2.0, 5.0)])
    once = normal_posterior([Release(gaussian, np.sqrt(2.0), 4.0)])
    assert discrepancy(twice[0], once[0]) < ROUNDING


# Parts.
@pytest.mark.parametrize("scale", [0.3, 1.0, 7.5])
def test_noise_laws_match_independent_formulas(scale):
    u, k = np.linspace(-5, 5, 11) + 0.3, np.arange(-6, 7)
    # Poisson summation: sum_k exp(-k² / 2 s²) = s sqrt(2 pi) sum_m exp(-2 pi² s² m²).
    waves = np.exp(-2 * (np.pi * scale * np.arange(-9, 10)) ** 2)
    log_total = np.log(scale * np.sqrt(2 * np.pi) * waves.sum())
    for found, expected in (
        (laplace(u, scale), stats.laplace.logpdf(u, 0, scale)),
        (gaussian(u, scale), stats.norm.logpdf(u, 0, scale)),
        (discrete_laplace(k, scale), stats.dlaplace.logpmf(k, 1 / scale)),
        (discrete_gaussian(k, scale), -(k**2) / (2 * scale**2) - log_total),
    ):
        np.testing.assert_allclose(found, expected, rtol=ROUNDING)


@pytest.mark.parametrize("noise", [discrete_laplace, discrete_gaussian])
def test_discrete_noise_takes_scales_by_coordinate_and_integers_only(noise):
    by_coordinate = noise(np.array([2, -1]), [0.5, 3.0])
    np.testing.assert_allclose(by_coordinate, [noise(2, 0.5), noise(-1, 3.0)], rtol=ROUNDING)
    assert noise(0.5, 1.0) == -np.inf


def test_expectations_agree_with_moments():
    beta = bernoulli_posterior([Release(laplace, 1.5, 6.3)])[0]
    assert beta.expectation(lambda p: p) == pytest.approx(beta.mean(), rel=ROUNDING)
    spread = beta.expectation(lambda p: (p - beta.mean()) ** 2) ** 0.5
    assert spread == pytest.approx(beta.sd(), rel=ROUNDING)
    joint = references.clamped_normal_unknown_sigma(
        [Release(laplace, 1.5, 3.1)],
        size=4,
        bound=2.0,
        sigma_scale=1.2,
        prior=(0.5, 1.5),
        points=(51, 31),
    )
    total = joint.expectation(lambda mu, sigma: 2 * mu + sigma)
    margins = [joint.marginal(axis).mean() for axis in range(2)]
    assert total == pytest.approx(2 * margins[0] + margins[1], rel=ROUNDING)


@pytest.mark.parametrize("posterior", [bernoulli_posterior, poisson_posterior])
def test_unreachable_releases_are_refused(posterior):
    with pytest.raises(ValueError, match="reachable"):
        posterior([Release(discrete_laplace, 1.0, 0.5)])


def test_releases_far_from_every_sum_are_refused():
    with pytest.raises(ValueError, match="too far"):
        references.clamped_normal(
            [Release(gaussian, 0.2, 30.0)], size=10, bound=9.0, sigma=0.1, prior=(0.0, 0.1)
        )


def test_posteriors_beyond_the_prior_are_refused():
    with pytest.raises(ValueError, match="bulk of the prior"):
        references.clamped_normal(
            [Release(gaussian, 1.0, 70.0)], size=10, bound=9.0, sigma=1.0, prior=(0.0, 1.0)
        )


def test_discrete_noise_on_continuous_records_is_refused():
    for posterior, value in ((normal_posterior, 1), (chained_posterior, [1, 1])):
        with pytest.raises(ValueError, match="continuous"):
            posterior([Release(discrete_laplace, 1.0, value)])


def test_a_lattice_coarser_than_the_noise_is_refused():
    with pytest.raises(ValueError, match="cells"):
        normal_posterior([Release(laplace, 1.5, 4.1)], cells=16)


def test_references_share_nothing_with_the_library():
    tree = ast.parse(Path(references.__file__).read_text(encoding="utf-8"))
    modules = {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    modules |= {
        a.name for node in ast.walk(tree) if isinstance(node, ast.Import) for a in node.names
    }
    standard = {"collections.abc", "dataclasses", "functools", "typing"}
    assert {module.split(".")[0] for module in modules - standard} == {"numpy", "scipy"}


def test_unknown_size_that_is_certain_is_a_known_one():
    releases = [references.Release(references.laplace, 1.5, 3.2)]
    certain = np.where(np.arange(12) == 8, 0.0, -np.inf)
    sizes, chances = references.bernoulli_of_unknown_size(releases, certain, prior=(2.0, 3.0))
    known = references.bernoulli(releases, size=8, prior=(2.0, 3.0))
    assert sizes.mean() == pytest.approx(8)
    assert (chances.mean(), chances.sd()) == pytest.approx((known.mean(), known.sd()))
    releases = [references.Release(references.laplace, 3.0, 5.1)]
    options = {"bound": 2.0, "sigma": 1.2, "prior": (0.5, 1.5), "cells": 256}
    sizes, means = references.clamped_normal_of_unknown_size(releases, certain[1:], **options)
    known = references.clamped_normal(releases, size=8, **options)
    assert sizes.mean() == pytest.approx(8)
    assert (means.mean(), means.sd()) == pytest.approx((known.mean(), known.sd()))


def test_unknown_size_of_a_flat_prior_weighs_sizes_by_their_likelihood():
    releases = [references.Release(references.laplace, 1.5, 3.2)]
    sizes, _ = references.bernoulli_of_unknown_size(releases, np.zeros(9), prior=(2.0, 3.0))
    likelihood = [
        sum(
            stats.betabinom.pmf(k, n, 2, 3) * np.exp(references.laplace(3.2 - k, 1.5))
            for k in range(n + 1)
        )
        for n in range(9)
    ]
    np.testing.assert_allclose(sizes.weights, np.array(likelihood) / np.sum(likelihood))
