"""Every mechanism: its law adds up to one, has three engines, and is what its simulator draws."""

import dataclasses
import math
import pickle

import numpy as np
import pytensor.tensor as pt
import pytest
from numba import njit
from pytensor import function
from scipy import integrate, optimize, special, stats

import pymc_privacy as pmp
from pymc_privacy.algorithms.noise import JointLaw, log_density, noise
from pymc_privacy.mechanisms import CoordinateMechanism
from tests.stochastic import FALSE_ALARM, assert_mean, seed_of

NAN = float("nan")
BASES = {
    "laplace": pmp.Laplace(scale=1.7),
    "gaussian": pmp.Gaussian(scale=2.3),
    "tulap": pmp.Tulap(epsilon=0.8, sensitivity=2.0),
    "cut tulap": pmp.Tulap(epsilon=0.8, delta=0.03, sensitivity=1.5),
    "truncated": pmp.TruncatedLaplace(epsilon=0.7, delta=0.02, sensitivity=1.5),
}
INTEGERS = {
    "discrete laplace": pmp.DiscreteLaplace(scale=1.7),
    "narrow discrete gaussian": pmp.DiscreteGaussian(scale=1.3),
    "discrete gaussian": pmp.DiscreteGaussian(scale=6.5),
}
NOISE = BASES | INTEGERS
STATISTIC = 3


def generator(request):
    return np.random.default_rng(seed_of(request))


def in_a_loop(mechanism, releases, statistics):
    """Evaluate the law as the record sweep does, one release at a time."""
    given = noise([mechanism.formula], [0.0], [mechanism.parameters])
    law = njit(log_density(given.laws))
    return np.array(
        [
            law(given.offsets, np.array([float(r)]), np.array([float(t)]), given.parameters)
            for r, t in zip(releases, statistics, strict=True)
        ]
    )


def assert_three_engines(mechanism, releases, statistics):
    releases, statistics = np.broadcast_arrays(releases, statistics)
    on_arrays = mechanism.log_density(releases, statistics)
    # As inputs: what is constant is computed before a graph is rewritten, and rewrites can err.
    symbols = pt.dvector("release"), pt.dvector("statistic")
    compiled = function(symbols, mechanism.log_density(*symbols))
    on_tensors = compiled(releases.astype(float), statistics.astype(float))
    np.testing.assert_allclose(on_tensors, on_arrays, rtol=1e-11, atol=1e-11)
    looped = in_a_loop(mechanism, releases, statistics)
    np.testing.assert_allclose(looped, on_arrays, rtol=1e-11, atol=1e-11)


# ---------------------------------------------------------------- noise that is added


@pytest.mark.parametrize("name", BASES)
def test_a_density_integrates_to_one(name):
    mechanism = BASES[name]
    cuts = STATISTIC + 0.75 * np.arange(-60, 61) * mechanism.parameters[0]
    bound = getattr(mechanism, "bound", np.inf)
    cuts = np.unique(np.clip(cuts, STATISTIC - bound, STATISTIC + bound))
    if name.endswith("tulap"):
        # Its density jumps halfway between multiples of the sensitivity.
        jumps = STATISTIC + mechanism.sensitivity * (np.arange(-80, 80) + 0.5)
        cuts = np.unique([*cuts, *jumps[np.abs(jumps - STATISTIC) < min(bound, 120)]])
    node, weight = np.polynomial.legendre.leggauss(12)
    half, middle = np.diff(cuts) / 2, (cuts[1:] + cuts[:-1]) / 2
    density = np.exp(mechanism.log_density(middle[:, None] + half[:, None] * node, STATISTIC))
    assert (density @ weight) @ half == pytest.approx(1, abs=1e-9)


@pytest.mark.parametrize("name", NOISE)
def test_a_law_has_three_engines(name):
    releases = np.array([-40, -3, 0, 2, 3, 4, 6, 11]) + (0.0 if name in INTEGERS else 0.37)
    assert_three_engines(NOISE[name], releases, STATISTIC)


BOUNDS = [(-1e30, 1e30), (-1e30, 3), (3, 1e30), (-1e30, 7.5), (4, 6), (-9.5, -6.2), (1.2, 5.1)]
BOUNDS += [(40, 1e30), (-1e30, -40), (9.1, 9.4), (2.9, 3.1), (-120, -100)]


def probability(mechanism, lower, upper):
    """Add up, or integrate, the density over [lower, upper)."""
    lower, upper = max(lower, -300), min(upper, 300)
    if mechanism.discrete:
        k = np.arange(math.ceil(lower), math.ceil(upper))
        return float(np.exp(mechanism.log_density(k, STATISTIC)).sum())
    jumps = STATISTIC + mechanism.parameters[0] * (np.arange(-200, 200) + 0.5)
    ends = [STATISTIC + s * min(getattr(mechanism, "bound", 300), 300) for s in (-1, 0, 1)]
    cuts = np.unique([lower, upper, *ends, *jumps])
    cuts = cuts[(cuts >= lower) & (cuts <= upper)]
    node, weight = np.polynomial.legendre.leggauss(12)
    half, middle = np.diff(cuts) / 2, (cuts[1:] + cuts[:-1]) / 2
    # Strictly inside, where the density of noise with an end is not in doubt.
    density = np.exp(mechanism.log_density(middle[:, None] + half[:, None] * node, STATISTIC))
    return float((density @ weight) @ half)


@pytest.mark.parametrize(("lower", "upper"), BOUNDS)
@pytest.mark.parametrize("name", NOISE)
def test_the_probability_of_an_interval_is_the_integral_of_the_density(name, lower, upper):
    mechanism = NOISE[name]
    found = mechanism.interval(lower, upper, STATISTIC, *mechanism.parameters)
    exact = probability(mechanism, lower, upper)
    assert np.exp(found) == pytest.approx(exact, rel=1e-8, abs=1e-200)
    jitted = njit(mechanism.interval)
    parameters = [float(p) for p in mechanism.parameters]
    looped = jitted(float(lower), float(upper), float(STATISTIC), *parameters)
    np.testing.assert_allclose(looped, found, rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize("m", [1, 3, 10, 40, 200])
@pytest.mark.parametrize("sigma", [0.3, 1.0, 3.9, 4.1, 9.0, 60.0, 1000.0])
def test_tails_of_the_discrete_gaussian_law_are_sums(sigma, m):
    mechanism = pmp.DiscreteGaussian(scale=sigma)
    k = np.arange(m, m + int(50 * sigma) + 60)
    exact = special.logsumexp(mechanism.log_density(k, 0))
    found = mechanism.interval(m, 1e30, 0, *mechanism.parameters)
    assert found == pytest.approx(exact, rel=1e-10, abs=1e-10)


def test_normal_tails_are_exact_where_nothing_else_is():
    mechanism = pmp.Gaussian(scale=1.0)
    z = np.array([0.0, 1.0, 8.0, 19.9, 20.1, 35.0, 200.0])
    found = mechanism.interval(z, 1e30, 0.0, *mechanism.parameters)
    np.testing.assert_allclose(found, stats.norm.logsf(z), rtol=1e-12)


@pytest.mark.parametrize("name", ["tulap", "cut tulap", "truncated"])
def test_simulated_noise_has_the_stated_law(name, request):
    mechanism = BASES[name]
    drawn = mechanism.simulate(generator(request), np.full(40_000, float(STATISTIC)))

    def cdf(x):
        return np.exp(mechanism.interval(-1e30, x, STATISTIC, *mechanism.parameters))

    assert stats.kstest(drawn, cdf).pvalue > FALSE_ALARM


# ---------------------------------------------------------------- what they promise


def hockey_stick(mechanism, shift, epsilon):
    """Return the integral of (f(x) - e^epsilon f(x - shift))_+ over a fine grid of midpoints."""
    x = np.linspace(-60, 60, 480_001)
    middle, step = (x[1:] + x[:-1]) / 2, x[1] - x[0]
    here = np.exp(mechanism.log_density(middle, 0.0))
    there = np.exp(mechanism.log_density(middle, shift))
    return float(np.maximum(here - math.exp(epsilon) * there, 0).sum() * step)


@pytest.mark.parametrize("share", [0.2, 0.5, 0.9, 1.0])
@pytest.mark.parametrize("name", ["cut tulap", "truncated"])
def test_delta_is_what_the_noise_loses(name, share):
    mechanism = BASES[name]
    lost = hockey_stick(mechanism, share * mechanism.sensitivity, mechanism.epsilon)
    assert lost <= mechanism.delta * (1 + 1e-3)
    if share == 1.0:
        assert lost == pytest.approx(mechanism.delta, rel=2e-3)


@pytest.mark.parametrize("shift", [0.1, 1.0, 1.9, 2.0])
def test_the_privacy_loss_of_tulap_noise_is_epsilon(shift):
    mechanism = BASES["tulap"]
    x = np.linspace(-30, 30, 12_001)
    loss = np.abs(mechanism.log_density(x, 0.0) - mechanism.log_density(x, shift)).max()
    assert loss <= mechanism.epsilon * (1 + 1e-12)


def test_the_bounds_of_tulap_noise_are_quantiles():
    mechanism = BASES["cut tulap"]
    whole = pmp.Tulap(epsilon=0.8, sensitivity=1.5)
    beyond = np.exp(whole.interval(mechanism.bound, 1e30, 0.0, *whole.parameters))
    assert beyond == pytest.approx(mechanism.left_out / 2, rel=1e-12)
    assert mechanism.guarantee == pmp.ApproximateDP(0.8, 0.03)
    assert whole.guarantee == pmp.PureDP(0.8)


def test_randomized_response_promises_the_log_odds():
    for k, keep in ((2, 0.75), (4, 0.4), (3, 0.2)):
        mechanism = pmp.RandomizedResponse(keep_probability=keep, categories=k)
        table = mechanism.log_density(np.arange(k)[:, None], np.arange(k))
        np.testing.assert_allclose(np.exp(table).sum(axis=0), 1)
        worst = (table.max(axis=1) - table.min(axis=1)).max()
        assert mechanism.guarantee.epsilon == pytest.approx(worst)
        again = pmp.RandomizedResponse(epsilon=worst, categories=k)
        if keep > 1 / k:
            assert again.keep_probability == pytest.approx(keep)


@pytest.mark.parametrize("categories", [2, 5])
def test_randomized_response_is_simulated(categories, request):
    mechanism = pmp.RandomizedResponse(epsilon=1.0, categories=categories)
    truth = np.full(60_000, 1)
    drawn = mechanism.simulate(generator(request), truth)
    assert drawn.dtype == np.int64
    for k in range(categories):
        assert_mean(drawn == k, float(np.exp(mechanism.log_density(k, 1))), what=f"P({k})")


def test_randomized_response_has_three_engines():
    mechanism = pmp.RandomizedResponse(epsilon=1.0, categories=3)
    release, truth = np.divmod(np.arange(25), 5)
    assert_three_engines(mechanism, release - 1, truth - 1)
    outside = mechanism.log_density([3, -1, 0], [0, 0, 3])
    assert np.all(np.isneginf(outside))


# ---------------------------------------------------------------- the exponential mechanism

UTILITIES = np.array([4.0, 7.5, 6.0, -2.0])


def test_probabilities_of_candidates_are_normalised():
    mechanism = pmp.ExponentialMechanism(epsilon=1.0, sensitivity=1.5)
    found = np.exp(mechanism.log_density(np.arange(4), UTILITIES))
    np.testing.assert_allclose(found, special.softmax(UTILITIES / 3.0), rtol=1e-13)
    assert np.all(np.isneginf(mechanism.log_density([-1, 4], UTILITIES)))
    rows = np.array([UTILITIES, UTILITIES[::-1]])
    np.testing.assert_allclose(np.exp(mechanism.log_density([1, 1], rows)), found[[1, 2]])


def test_candidates_are_drawn_in_proportion(request):
    mechanism = pmp.ExponentialMechanism(scale=2.0)
    drawn = mechanism.simulate(generator(request), np.broadcast_to(UTILITIES, (60_000, 4)))
    for k, p in enumerate(np.exp(mechanism.log_density(np.arange(4), UTILITIES))):
        assert_mean(drawn == k, float(p), what=f"P({k})")


def test_the_privacy_loss_of_a_choice_is_epsilon():
    mechanism = pmp.ExponentialMechanism(epsilon=0.9, sensitivity=1.0, neighbours="replace_one")
    assert mechanism.scale == pytest.approx(2 / 0.9)
    assert mechanism.guarantee == pmp.PureDP(0.9, neighbours="replace_one")
    for signs in np.ndindex(2, 2, 2, 2):
        moved = UTILITIES + 2 * np.array(signs) - 1
        loss = mechanism.log_density(np.arange(4), moved)
        loss = loss - mechanism.log_density(np.arange(4), UTILITIES)
        assert np.abs(loss).max() <= 0.9 * (1 + 1e-12)


# ---------------------------------------------------------------- the K-norm gradient mechanism

RECORDS = np.array([0.1, 0.35, 0.4, 0.8, 0.95])
EDGES = np.linspace(0, 1, 9)
GRADIENTS = {
    "mean": pmp.KNormGradient.mean(epsilon=2.0, bounds=(0.0, 1.0)),
    "median": pmp.KNormGradient.quantile(0.5, epsilon=2.0, edges=EDGES),
    "upper quartile": pmp.KNormGradient.quantile(0.75, epsilon=2.0, edges=EDGES),
}


def total(mechanism, records=RECORDS):
    return mechanism.contributions(records).sum(axis=0)


@pytest.mark.parametrize("name", GRADIENTS)
def test_the_density_of_a_gradient_mechanism_is_normalised(name):
    mechanism = GRADIENTS[name]
    statistic = total(mechanism)
    points = sorted({*EDGES[1:-1], RECORDS.mean()})
    found, _ = integrate.quad(
        lambda s: math.exp(mechanism.log_density(s, statistic)), 0, 1, points=points, limit=200
    )
    assert found == pytest.approx(1, abs=1e-9)


def test_a_mean_by_its_gradient_is_a_truncated_laplace_variable():
    """Awan et al., Example 3.4."""
    mechanism, n, epsilon = GRADIENTS["mean"], RECORDS.size, 2.0
    law = stats.laplace(RECORDS.mean(), 2 / (n * epsilon))
    s = np.linspace(0, 1, 21)
    exact = law.logpdf(s) - np.log(law.cdf(1) - law.cdf(0))
    np.testing.assert_allclose(mechanism.log_density(s, total(mechanism)), exact, rtol=1e-12)
    assert np.all(np.isneginf(mechanism.log_density([-0.1, 1.1], total(mechanism))))


def test_a_median_by_its_gradient_counts_records_on_both_sides():
    mechanism = GRADIENTS["median"]
    rounded = EDGES[np.searchsorted(EDGES, RECORDS, side="right") - 1]
    s = (EDGES[1:] + EDGES[:-1]) / 2
    score = -(2.0 / 2) * np.abs([(rounded <= x).sum() - RECORDS.size / 2 for x in s])
    exact = score - special.logsumexp(score) + np.log(8)
    np.testing.assert_allclose(mechanism.log_density(s, total(mechanism)), exact, rtol=1e-12)


@pytest.mark.parametrize("name", GRADIENTS)
def test_a_gradient_mechanism_draws_from_its_density(name, request):
    mechanism = GRADIENTS[name]
    statistic = total(mechanism)
    drawn = mechanism.simulate(
        generator(request), np.broadcast_to(statistic, (40_000, statistic.size))
    )
    grid = np.linspace(0, 1, 4001)
    middle = (grid[1:] + grid[:-1]) / 2
    mass = np.exp(mechanism.log_density(middle, statistic)) / 4000
    cdf = np.concatenate([[0], np.cumsum(mass)])
    assert stats.kstest(drawn, lambda x: np.interp(x, grid, cdf)).pvalue > FALSE_ALARM


@pytest.mark.parametrize("name", GRADIENTS)
def test_the_privacy_loss_of_a_gradient_mechanism_is_epsilon(name):
    mechanism = GRADIENTS[name]
    s = np.linspace(0, 1, 101)
    worst = 0.0
    for old, new in ((0.1, 1.0), (0.95, 0.0), (0.4, 0.99)):
        moved = np.where(old == RECORDS, new, RECORDS)
        loss = mechanism.log_density(s, total(mechanism, moved))
        worst = max(worst, np.abs(loss - mechanism.log_density(s, total(mechanism))).max())
    assert 0.2 < worst <= 2.0 * (1 + 1e-12)


def test_a_gradient_of_general_form_is_integrated_cell_by_cell():
    mechanism = pmp.KNormGradient(epsilon=1.3, sensitivity=2.0, edges=(-1.0, 0.5, 2.0))
    intercepts, slopes = np.array([-2.0, 0.7]), np.array([4.0, 0.0])
    statistic = np.concatenate([intercepts, slopes])

    def unnormalised(s):
        k = int(s >= 0.5)
        return math.exp(-1.3 / 4 * abs(intercepts[k] + slopes[k] * s))

    mass, _ = integrate.quad(unnormalised, -1, 2, points=[0.5], limit=200)
    for s in (-0.9, 0.49, 0.5, 1.9, 2.0):
        exact = math.log(unnormalised(s) / mass)
        assert mechanism.log_density(s, statistic) == pytest.approx(exact, rel=1e-9)


# ---------------------------------------------------------------- objective perturbation

X = np.array([[1.0, 0.4], [1.0, -0.7], [1.0, 0.1], [1.0, 0.9]]) / 1.5
Y = np.array([1, 0, 0, 1])


def test_the_density_of_a_perturbed_fit_is_normalised():
    mechanism = pmp.ObjectivePerturbation(scale=1.5, ridge=0.8)

    def density(s):
        statistic = mechanism.contributions([s], X[:, 1:], Y).sum(axis=0)
        return math.exp(mechanism.log_density(np.array([s]), statistic))

    whole = sum(
        integrate.quad(density, a, b, limit=200)[0]
        for a, b in ((-np.inf, -1), (-1, 0), (0, 0.3), (0.3, 0.6), (0.6, 2), (2, np.inf))
    )
    assert whole == pytest.approx(1, abs=1e-6)


def test_the_jacobian_is_that_of_the_first_order_condition():
    """Change variables from noise to release, with derivatives taken numerically."""
    mechanism = pmp.ObjectivePerturbation(epsilon=2.0, bound=1.0)
    s = np.array([0.3, -0.8])

    def noise_behind(s):
        p = special.expit(X @ s)
        return -(X.T @ (p - Y)) - mechanism.ridge * s

    jacobian = np.array(
        [optimize.approx_fprime(s, lambda s, j=j: noise_behind(s)[j], 1e-7) for j in range(2)]
    )
    b = noise_behind(s)
    log_volume = math.log(2 * math.pi * mechanism.scale**2)
    exact = -np.linalg.norm(b) / mechanism.scale - log_volume
    exact += math.log(abs(np.linalg.det(jacobian)))
    statistic = mechanism.contributions(s, X, Y).sum(axis=0)
    assert statistic.shape == (5,)
    assert mechanism.log_density(s, statistic) == pytest.approx(exact, abs=1e-6)


def test_a_perturbed_fit_is_drawn_from_its_density(request):
    mechanism = pmp.ObjectivePerturbation(scale=1.5, ridge=0.8)
    records = np.column_stack([X[:, 1], Y])
    rng = generator(request)
    drawn = mechanism.simulate(rng, np.broadcast_to(records, (20_000, *records.shape)))[:, 0]
    grid = np.linspace(-60, 60, 6001)
    density = [
        math.exp(
            mechanism.log_density(
                np.array([s]), mechanism.contributions([s], X[:, 1:], Y).sum(axis=0)
            )
        )
        for s in grid
    ]
    cdf = integrate.cumulative_trapezoid(density, grid, initial=0)
    assert stats.kstest(drawn, lambda x: np.interp(x, grid, cdf)).pvalue > FALSE_ALARM


def test_the_privacy_loss_of_a_perturbed_fit_is_below_epsilon():
    mechanism = pmp.ObjectivePerturbation(epsilon=1.0, bound=1.0)
    assert mechanism.guarantee.epsilon == 1.0
    by_scale = pmp.ObjectivePerturbation(scale=mechanism.scale, ridge=mechanism.ridge, bound=1.0)
    assert by_scale.guarantee.epsilon == pytest.approx(1.0)
    worst = 0.0
    for s in np.linspace(-4, 4, 17):
        for x, y in ((1.0, 1), (-1.0, 0), (0.0, 0), (1.0, 0)):
            for other, z in ((-1.0, 1), (0.0, 1), (-1.0, 0)):
                terms = [
                    mechanism.log_density(
                        np.array([s]),
                        mechanism.contributions([s], np.array([[0.3], [u]]), np.array([1, v])).sum(
                            axis=0
                        ),
                    )
                    for u, v in ((x, y), (other, z))
                ]
                worst = max(worst, abs(float(terms[0] - terms[1])))
    assert 0.3 < worst <= 1.0


# ---------------------------------------------------------------- the functional mechanism


@pytest.mark.parametrize("logistic", [False, True])
def test_coefficients_are_those_of_the_loss(logistic):
    rng = np.random.default_rng(0)
    x, s = rng.uniform(-1, 1, (5, 3)), rng.normal(size=3)
    y = rng.integers(0, 2, 5) if logistic else rng.uniform(-1, 1, 5)
    mechanism = pmp.FunctionalMechanism(epsilon=1.0, covariates=3, logistic=logistic)
    coefficients = mechanism.contributions(x, y)
    pairs = [s[j] * s[k] for j in range(3) for k in range(j, 3)]
    terms = np.array([*([] if logistic else [1.0]), *s, *pairs])
    t = x @ s
    exact = (0.5 - y) * t + t**2 / 8 if logistic else (y - t) ** 2
    np.testing.assert_allclose(coefficients @ terms, exact, rtol=1e-12)


@pytest.mark.parametrize("logistic", [False, True])
def test_the_sensitivity_of_coefficients_is_attained(logistic):
    mechanism = pmp.FunctionalMechanism(
        epsilon=1.0, covariates=2, logistic=logistic, neighbours="add_remove"
    )
    corners = np.array(list(np.ndindex(2, 2))) * 2.0 - 1
    worst = max(
        np.abs(mechanism.contributions(np.array([x]), np.array([y]))).sum()
        for x in corners
        for y in (0, 1)
    )
    assert worst == pytest.approx(mechanism.sensitivity)
    double = dataclasses.replace(mechanism, neighbours="replace_one").sensitivity
    assert double == 2 * mechanism.sensitivity


# ---------------------------------------------------------------- post-processing

AFTERWARDS = {
    f"{name} {what}": make(mechanism)
    for name, mechanism in NOISE.items()
    for what, make in {
        "clamped": lambda m: pmp.Clamped(mechanism=m, lower=0.0, upper=5.0),
        "rounded": lambda m: pmp.Rounded(mechanism=m, to=2.0),
        "suppressed": lambda m: pmp.Suppressed(mechanism=m, below=4.0),
        "rounded, clamped, suppressed": lambda m: pmp.Suppressed(
            mechanism=pmp.Clamped(mechanism=pmp.Rounded(mechanism=m, to=2.0), lower=0.0), below=4.0
        ),
        "clamped, rounded": lambda m: pmp.Rounded(
            mechanism=pmp.Clamped(mechanism=m, lower=1.0, upper=6.0), to=4.0
        ),
    }.items()
}


@pytest.mark.parametrize("name", AFTERWARDS)
def test_what_is_published_has_the_stated_law(name, request):
    mechanism = AFTERWARDS[name]
    drawn = mechanism.simulate(generator(request), np.full(50_000, STATISTIC))
    values, counts = np.unique(drawn, return_counts=True)
    atoms = values[counts > 50]
    assert atoms.size >= 1
    for atom in atoms:
        hit = np.isnan(drawn) if np.isnan(atom) else drawn == atom
        expected = float(np.exp(mechanism.log_density(atom, STATISTIC)))
        assert_mean(hit, expected, what=f"P({atom})")


def by_cost():
    """Run all of one noise and one of all others; the laws of all are tested above, on arrays.

    The engines differ in how they translate a law of noise, and what is done to it afterwards.
    """
    kinds = len(AFTERWARDS) // len(NOISE)
    for number, name in enumerate(AFTERWARDS):
        noise, kind = divmod(number, kinds)
        left_out = noise > 0 and kind != noise % kinds
        yield pytest.param(name, marks=pytest.mark.exhaustive if left_out else ())


@pytest.mark.parametrize("name", by_cost())
def test_what_is_published_has_three_engines(name):
    mechanism = AFTERWARDS[name]
    drawn = mechanism.simulate(np.random.default_rng(1), np.full(40, STATISTIC))
    releases = np.unique(np.asarray(drawn, dtype=float))
    assert_three_engines(mechanism, releases, STATISTIC)
    assert mechanism.impossible(releases, (len(releases),)) is None


@pytest.mark.parametrize("name", ["laplace", "gaussian", "discrete laplace", "discrete gaussian"])
def test_the_far_tails_of_what_is_published_are_numbers(name):
    for mechanism in (AFTERWARDS[f"{name} rounded"], AFTERWARDS[f"{name} suppressed"]):
        far = mechanism.log_density(np.array([200.0, 400.0]), STATISTIC)
        assert np.all(np.isfinite(far))
        assert np.all(np.diff(far) < 0)


def test_post_processing_keeps_the_promise():
    noisy = pmp.Laplace(epsilon=0.5, sensitivity=2.0, neighbours="add_remove")
    for kind in (
        pmp.Clamped(mechanism=noisy, lower=0),
        pmp.Rounded(mechanism=noisy),
        pmp.Suppressed(mechanism=noisy, below=10),
    ):
        assert kind.guarantee == noisy.guarantee
        assert kind.scale == noisy.scale


# ---------------------------------------------------------------- values

EVERY = [
    *NOISE.values(),
    *AFTERWARDS.values(),
    *GRADIENTS.values(),
    pmp.RandomizedResponse(epsilon=1.0),
    pmp.TableMechanism.kuk(p_yes=0.8, p_no=0.2, cards=2),
    pmp.SetResponse.local_hashing(epsilon=1.0, categories=3),
    pmp.ExponentialMechanism(epsilon=1.0, sensitivity=1.0),
    pmp.ObjectivePerturbation(epsilon=1.0, bound=1.0),
    pmp.FunctionalMechanism(epsilon=1.0, covariates=2),
]


@pytest.mark.parametrize("mechanism", EVERY, ids=lambda m: repr(m)[:60])
def test_mechanisms_are_values(mechanism):
    again = pickle.loads(pickle.dumps(mechanism))
    assert again == mechanism
    assert hash(again) == hash(mechanism)
    assert repr(again) == repr(mechanism)
    with pytest.raises(dataclasses.FrozenInstanceError):
        mechanism.epsilon = 3.0
    if isinstance(mechanism, CoordinateMechanism):
        assert again.formula is mechanism.formula


def test_a_joint_law_may_have_another_width_than_its_release():
    @njit
    def choice(release, statistic):
        return statistic[int(release[0])] - np.log(np.exp(statistic).sum())

    given = noise(
        [pmp.Laplace.formula, JointLaw(choice)],
        [1.0, 2],
        [pmp.Laplace(scale=2.0).parameters, ()],
        [1, 3],
    )
    assert given.width == 4
    law = njit(log_density(given.laws))
    totals = np.array([0.5, 1.0, 2.0, 0.0])
    found = law(given.offsets, given.release, totals, given.parameters)
    exact = stats.laplace.logpdf(1.0, 0.5, 2.0) + special.log_softmax(totals[1:])[2]
    assert found == pytest.approx(exact)
