"""Objective perturbation with Gaussian noise: law, faces of the box, and what it promises."""

import math

import numpy as np
import pytest
from scipy import integrate, optimize, special, stats

import pymc_privacy as pmp
from pymc_privacy.errors import MechanismError
from pymc_privacy.mechanisms.objective_privacy import failure
from tests.stochastic import FALSE_ALARM, assert_mean, seed_of

X = np.array([[1.0, 0.4], [1.0, -0.7], [1.0, 0.1], [1.0, 0.9]]) / 1.5
RESPONSES = {
    "logistic": np.array([1, 0, 0, 1]),
    "linear": np.array([0.5, -0.8, 0.1, 0.9]),
    "poisson": np.array([2, 0, 1, 3]),
}
LOSSES = {
    "logistic": (lambda t, y: special.expit(t) - y, lambda t: special.expit(t) * special.expit(-t)),
    "linear": (lambda t, y: t - y, np.ones_like),
    "poisson": (lambda t, y: np.exp(t) - y, np.exp),
}
SIGMA, RIDGE = 1.2, 0.7


def law_of(loss, box=None, **given):
    return pmp.ObjectivePerturbation(
        scale=SIGMA, ridge=RIDGE, loss=loss, box=box, noise="gaussian", **given
    )


def density(law, s, x, y):
    statistic = law.contributions(s, x, y).sum(axis=0)
    return math.exp(law.log_density(np.asarray(s, dtype=float), statistic))


# ---------------------------------------------------------------- the law


@pytest.mark.parametrize("loss", LOSSES)
def test_the_jacobian_is_that_of_the_first_order_condition(loss):
    """Change variables from noise to release, with derivatives taken numerically."""
    s, y = np.array([0.3, -0.8]), RESPONSES[loss]
    slope, _ = LOSSES[loss]

    def noise_behind(s):
        return -X.T @ slope(X @ s, y) - RIDGE * s

    jacobian = np.array(
        [optimize.approx_fprime(s, lambda s, j=j: noise_behind(s)[j], 1e-7) for j in range(2)]
    )
    exact = stats.norm.pdf(noise_behind(s), scale=SIGMA).prod() * abs(np.linalg.det(jacobian))
    assert density(law_of(loss), s, X, y) == pytest.approx(exact, rel=1e-5)


@pytest.mark.parametrize("loss", LOSSES)
def test_density_and_faces_add_up_to_one(loss):
    """Inside, four sides, four corners: each has its own part of the probability."""
    box = [(-0.4, 0.3), (-0.2, 0.9)]
    law, y = law_of(loss, box), RESPONSES[loss]
    node, weight = np.polynomial.legendre.leggauss(20)
    places = [low + (high - low) * (node + 1) / 2 for low, high in box]
    weights = [weight * (high - low) / 2 for low, high in box]
    inside = sum(
        weights[0][i] * weights[1][j] * density(law, [a, b], X, y)
        for i, a in enumerate(places[0])
        for j, b in enumerate(places[1])
    )
    sides = sum(
        weights[0][i] * density(law, [a, end], X, y)
        for i, a in enumerate(places[0])
        for end in box[1]
    ) + sum(
        weights[1][j] * density(law, [end, b], X, y)
        for j, b in enumerate(places[1])
        for end in box[0]
    )
    corners = sum(density(law, [a, b], X, y) for a in box[0] for b in box[1])
    assert min(inside, sides, corners) > 0.02
    assert inside + sides + corners == pytest.approx(1, abs=1e-9)
    assert density(law, [0.0, 1.0], X, y) == 0


@pytest.mark.parametrize("loss", LOSSES)
def test_fits_are_drawn_from_their_density(loss, request):
    """One coefficient in a box: both ends have mass, between them is a density."""
    box, y = [(-0.3, 0.8)], RESPONSES[loss]
    law = law_of(loss, box)
    records = np.column_stack([X[:, 1], y])
    rng = np.random.default_rng(seed_of(request))
    drawn = law.simulate(rng, np.broadcast_to(records, (20_000, *records.shape)))[:, 0]
    for end in box[0]:
        exact = density(law, [end], X[:, 1:], y)
        assert exact > 0.02
        assert_mean(drawn == end, exact, what=f"P(s = {end})")
    grid = np.linspace(*box[0], 401)[1:-1]
    cdf = integrate.cumulative_trapezoid(
        [density(law, [s], X[:, 1:], y) for s in grid], grid, initial=0
    )
    between = drawn[(drawn > box[0][0]) & (drawn < box[0][1])]
    assert stats.kstest(between, lambda x: np.interp(x, grid, cdf / cdf[-1])).pvalue > FALSE_ALARM


@pytest.mark.parametrize("loss", LOSSES)
def test_a_fit_is_the_constrained_minimum(loss):
    """The same noise, and an optimiser that shares nothing with ours."""
    box, y = [(-0.4, 0.3), (-0.2, 0.9)], RESPONSES[loss]
    law = law_of(loss, box)
    records = np.column_stack([X, y])
    drawn = law.simulate(np.random.default_rng(4), np.broadcast_to(records, (12, 4, 3)))
    noise = np.random.default_rng(4).normal(0.0, SIGMA, size=(12, 2))
    values = {
        "logistic": lambda t: np.logaddexp(0, t) - y * t,
        "linear": lambda t: (t - y) ** 2 / 2,
        "poisson": lambda t: np.exp(t) - y * t,
    }
    for s, b in zip(drawn, noise, strict=True):
        exact = optimize.minimize(
            lambda s, b=b: values[loss](X @ s).sum() + RIDGE / 2 * s @ s + b @ s,
            np.zeros(2),
            bounds=box,
            method="L-BFGS-B",
            options={"ftol": 1e-14, "gtol": 1e-10},
        )
        np.testing.assert_allclose(s, exact.x, atol=1e-5)


# ---------------------------------------------------------------- the promise


@pytest.mark.parametrize("epsilon", [0.0, 0.3, 1.0, 4.0])
@pytest.mark.parametrize("mu", [0.05, 0.4, 2.5])
@pytest.mark.parametrize("planar", [False, True])
def test_the_failure_is_the_expectation_of_its_bound(epsilon, mu, planar):
    """E (1 - exp(epsilon - mu chi - mu²/2))_+, integrated anew."""
    law = stats.rayleigh if planar else stats.halfnorm

    def excess(r):
        return max(0.0, -math.expm1(epsilon - mu * r - mu * mu / 2)) * law.pdf(r)

    start = max(0.0, epsilon / mu - mu / 2)
    exact = integrate.quad(excess, start, start + 40, limit=500, epsabs=1e-300)[0]
    assert failure(epsilon, mu, planar) == pytest.approx(exact, rel=1e-6, abs=1e-60)


GRID = np.linspace(-31, 31, 24_801)


def hockey_stick(law, epsilon, pair):
    """Integrate (f - e^epsilon f')_+ for one coefficient, the ends of the box included."""
    laws = []
    for x, y in pair:
        slope, curvature = LOSSES[law.loss]
        line = GRID[:, None] * x[:, 0]
        noise = (slope(line, y) * x[:, 0]).sum(axis=1) + law.ridge * GRID
        hessian = (curvature(line) * x[:, 0] ** 2).sum(axis=1) + law.ridge
        density = stats.norm.pdf(noise, scale=law.scale) * hessian
        ends = []
        if law.box is not None:
            low, high = law.box[0]
            density = np.where((low < GRID) & (high > GRID), density, 0)
            at = [np.interp(end, GRID, noise) / law.scale for end in (low, high)]
            ends = [stats.norm.cdf(at[0]), stats.norm.cdf(-at[1])]
        laws.append((density, np.array(ends)))
    (f, e), (g, h) = laws
    step = GRID[1] - GRID[0]
    inside = np.maximum(f - math.exp(epsilon) * g, 0).sum() * step
    return inside + np.maximum(e - math.exp(epsilon) * h, 0).sum()


PROMISES = {
    "logistic": pmp.ObjectivePerturbation(epsilon=1.0, delta=0.01, bound=1.0, box=[(-30, 30)]),
    "linear": pmp.ObjectivePerturbation(
        epsilon=1.0, delta=0.01, bound=1.0, loss="linear", response=1.0, box=[(-1, 1)]
    ),
    "poisson": pmp.ObjectivePerturbation(
        epsilon=1.0, delta=0.01, bound=1.0, loss="poisson", response=3.0, box=[(-1, 1)]
    ),
}
EXTREMES = {"logistic": [0, 1], "linear": [-1.0, 1.0], "poisson": [0, 3]}


def largest_loss(law, epsilon):
    """Search pairs of neighbours that share two records for the largest delta."""
    low, high = EXTREMES[law.loss]
    common = np.array([[0.3], [-0.8]]), np.array([high, low])
    options = [(x, y) for x in (-1.0, 0.0, 1.0) for y in (low, high)]
    sets = [(np.vstack([common[0], [[x]]]), np.append(common[1], y)) for x, y in options]
    return max(hockey_stick(law, epsilon, (one, other)) for one in sets for other in sets)


@pytest.mark.parametrize("name", PROMISES)
def test_no_pair_of_records_loses_more_than_delta(name):
    """Nor does any epsilon; and noise an eighth as large breaks the promise."""
    law = PROMISES[name]
    assert law.guarantee == pmp.ApproximateDP(1.0, 0.01, neighbours="replace_one")
    assert 0.0099 < law.failure(1.0) <= 0.01
    for epsilon in (0.0, 0.1, 0.3, 1.0):
        assert largest_loss(law, epsilon) <= law.failure(epsilon)
    assert largest_loss(law, 0.0) > 0.02
    short = pmp.ObjectivePerturbation(
        scale=law.scale / 8, ridge=law.ridge, noise="gaussian", loss=law.loss, box=law.box
    )
    assert largest_loss(short, 1.0) > 0.01


@pytest.mark.parametrize("relation", ["replace_one", "add_remove"])
def test_scale_and_ridge_promise_what_they_were_calibrated_for(relation):
    given = {"delta": 1e-6, "bound": 1.3, "neighbours": relation}
    law = pmp.ObjectivePerturbation(epsilon=1.7, share=0.6, **given)
    again = pmp.ObjectivePerturbation(scale=law.scale, ridge=law.ridge, **given)
    assert again.guarantee.epsilon == pytest.approx(1.7, rel=1e-9)
    assert again.guarantee.delta == 1e-6
    more = pmp.ObjectivePerturbation(epsilon=1.7, share=0.6, ridge=10.0, **given)
    assert more.failure(1.7) < 1e-6


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 4.0])
@pytest.mark.parametrize("delta", [1e-3, 1e-8])
def test_less_noise_is_needed_than_by_the_theorem_of_kifer_et_al(epsilon, delta):
    """Their Theorem 2 has sigma = zeta sqrt(8 log(2 / delta) + 4 epsilon) / epsilon."""
    law = pmp.ObjectivePerturbation(
        epsilon=epsilon, delta=delta, bound=1.0, neighbours="add_remove"
    )
    assert law.scale < math.sqrt(8 * math.log(2 / delta) + 4 * epsilon) / epsilon


BAD = [
    ({"epsilon": 1.0, "bound": 1.0, "loss": "linear", "delta": 0.1}, "needs box= and response="),
    ({"epsilon": 1.0, "bound": 1.0, "loss": "poisson", "delta": 0.1}, "needs box="),
    ({"epsilon": 1.0, "bound": 1.0, "noise": "gaussian"}, "needs delta="),
    ({"epsilon": 1.0, "bound": 1.0, "noise": "laplace", "delta": 0.1}, "takes delta="),
    ({"epsilon": 1.0, "bound": 1.0, "box": [(-1, 1)]}, "takes box="),
    ({"scale": 1.0, "ridge": 1.0, "noise": "laplace", "loss": "linear"}, "logistic regression"),
    ({"scale": 1.0, "ridge": 1.0, "delta": 1.5}, "delta must be"),
    ({"scale": 1.0, "ridge": 1.0, "delta": 0.1, "box": (-1, 1)}, "box must be pairs"),
    ({"scale": 1.0, "ridge": 1.0, "delta": 0.1, "box": [(1, -1)]}, "box must be pairs"),
    ({"scale": 1.0, "ridge": 1.0, "loss": "probit"}, "loss must be"),
    ({"scale": 1.0, "ridge": 1.0, "loss": "linear", "response": 0.0}, "response must be"),
    ({"scale": 1.0, "ridge": 1.0, "noise": "cauchy"}, "noise must be"),
]


@pytest.mark.parametrize(("given", "must_hold"), BAD)
def test_what_is_no_perturbed_fit_is_refused(given, must_hold):
    with pytest.raises(MechanismError, match=rf"(?s){must_hold}.*got"):
        pmp.ObjectivePerturbation(**given)


def test_records_beyond_their_bounds_are_refused():
    rng = np.random.default_rng(0)
    law = PROMISES["linear"]
    with pytest.raises(MechanismError, match="bound must hold for all records"):
        law.simulate(rng, np.array([[1.1, 0.0]]))
    with pytest.raises(MechanismError, match="response must hold for all records"):
        law.simulate(rng, np.array([[1.0, -1.2]]))
    with pytest.raises(MechanismError, match="last column counts"):
        PROMISES["poisson"].simulate(rng, np.array([[1.0, 0.5]]))
    with pytest.raises(MechanismError, match="box must have a pair for each coefficient"):
        law.log_density(np.zeros(2), np.zeros(5))


def test_without_bounds_nothing_is_promised():
    assert law_of("poisson").guarantee is None
    assert law_of("linear", bound=1.0, delta=0.1).guarantee is None
    assert law_of("logistic", bound=1.0).guarantee is None
    assert law_of("logistic", bound=1.0, delta=0.1).guarantee.delta == 0.1
