"""Guarantees, their conversions and their composition against independent computations.

References are enumerations of the canonical pairs, quadrature of hockey-stick divergences and
grids over Renyi orders; none of them uses a formula of the module.
"""

import itertools
import math
from decimal import Decimal, localcontext
from fractions import Fraction

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.stats import norm

from pymc_privacy.accounting import (
    ApproximateDP,
    GaussianDP,
    Guarantee,
    PureDP,
    ZeroConcentratedDP,
    compose,
    composition,
    gaussian_scale,
    profiles,
    zero_concentrated_rho,
)
from pymc_privacy.errors import GuaranteeError, PrivacyError

ROUNDING = 1e-12  # relative; what double precision leaves of a well conditioned formula
QUADRATURE = 1e-11  # relative; what is asked of the reference integrals


@pytest.fixture(autouse=True)
def fifty_digits():
    """Enumerate in decimals of fifty digits."""
    with localcontext(prec=50):
        yield


def canonical_pair(epsilon, delta=0.0):
    """Return the outcomes (p, q) of which all (epsilon, delta) pairs are post-processings."""
    odds, shown = Decimal(epsilon).exp(), Decimal(delta)
    truth, lie = (1 - shown) * odds / (1 + odds), (1 - shown) / (1 + odds)
    failures = [(shown, Decimal(0)), (Decimal(0), shown)] if shown else []
    return [*failures, (truth, lie), (lie, truth)]


def product_pair(pairs):
    """List the outcomes of independent pairs of finite laws."""
    for chosen in itertools.product(*pairs):
        yield math.prod(p for p, _ in chosen), math.prod(q for _, q in chosen)


def hockey_stick(pairs, epsilon):
    """Sum max(0, p - exp(epsilon) q) over all outcomes, in fifty digits."""
    odds = Decimal(epsilon).exp()
    return sum(max(Decimal(0), p - odds * q) for p, q in product_pair(pairs))


def normal_hockey_stick(mu, epsilon):
    """Integrate max(0, p - exp(epsilon) q) for p = N(mu, 1), q = N(0, 1).

    The integrand is p (1 - exp(epsilon - mu x + mu^2 / 2)), positive from x = start on.
    """
    start = epsilon / mu + mu / 2

    def integrand(x):
        density = math.exp(-((x - mu) ** 2) / 2) / math.sqrt(2 * math.pi)
        return density * -math.expm1(mu * (start - x))

    stop = max(start, mu) + 14
    # The scale 1 / mu of the second factor and the bulk of p must not be stepped over.
    inside = [x for x in (start + 1, mu, mu + 3, start + 1 / mu) if start < x < stop]
    edges = [start, *sorted(inside), stop]
    pieces = [
        quad(integrand, low, high, epsabs=0, epsrel=QUADRATURE / 10, limit=200)[0]
        for low, high in itertools.pairwise(edges)
    ]
    return math.fsum(pieces)


def assert_just_holds(epsilon, delta, profile):
    """Check that the profile is at most delta at epsilon, and above delta a little before it."""
    assert profile(epsilon) <= delta
    assert epsilon == 0 or profile(epsilon * (1 - 1e-8)) > delta


# ---------------------------------------------------------------- profiles


@pytest.mark.parametrize("mu", [1e-9, 1e-3, 0.3, 0.999999, 1.0, 2.5, 8.0])
@pytest.mark.parametrize("where", [0.0, 0.2, 1.0, 3.0, 6.0])
def test_gaussian_profile_is_the_hockey_stick_divergence_of_two_normals(mu, where):
    epsilon = where * mu + (mu * mu / 2 if where else 0.0)
    assert GaussianDP(mu).delta(epsilon) == pytest.approx(
        normal_hockey_stick(mu, epsilon), rel=QUADRATURE
    )


@pytest.mark.parametrize("mu", [0.2, 0.9, 1.1, 4.0])
@pytest.mark.parametrize("epsilon", [-3.0, -0.4, -1e-7])
def test_gaussian_profile_at_negative_arguments_is_the_same_integral(mu, epsilon):
    # The composition with randomized response evaluates the profile at epsilon - L < 0.
    value = float(profiles.gaussian_profile(epsilon, mu))
    assert value == pytest.approx(normal_hockey_stick(mu, epsilon), rel=QUADRATURE)


def test_gaussian_profile_has_no_seam_between_its_two_formulas():
    below, above = math.nextafter(1.0, 0.0), 1.0
    for epsilon in (0.0, 0.5, 3.0, 12.0):
        assert GaussianDP(below).delta(epsilon) == pytest.approx(
            GaussianDP(above).delta(epsilon), rel=ROUNDING
        )


@pytest.mark.parametrize("epsilon", [0.01, 1.0, 5.0])
@pytest.mark.parametrize("at", [0.0, 0.3, 0.9, 1.0, 1.5])
def test_pure_profile_is_that_of_randomized_response(epsilon, at):
    expected = float(hockey_stick([canonical_pair(epsilon)], at * epsilon))
    assert PureDP(epsilon).delta(at * epsilon) == pytest.approx(expected, rel=ROUNDING)


@pytest.mark.parametrize("rho", [1e-6, 0.05, 0.3125, 2.56, 40.0])
@pytest.mark.parametrize("deviations", [0.0, 0.5, 2.0, 6.0])
def test_concentrated_profile_is_the_minimum_over_renyi_orders(rho, deviations):
    epsilon = rho + deviations * math.sqrt(2 * rho)
    u = np.exp(np.linspace(math.log(1e-6), math.log(1e6), 400_001))
    log_delta = u * ((u + 1) * rho - epsilon) + u * np.log(u) - (u + 1) * np.log1p(u)
    delta = ZeroConcentratedDP(rho).delta(epsilon)
    on_grid = math.exp(log_delta.min())
    # The minimum is below every grid point; the grid, of step h in log u, is at most
    # curvature * h^2 / 8 above the minimum.
    assert delta <= on_grid * (1 + 1e-9)
    assert delta >= on_grid * (1 - 1e-6)


@pytest.mark.parametrize("mu", [0.05, 0.7, 3.0])
def test_concentrated_profile_lies_above_the_gaussian_one_that_it_bounds(mu):
    gaussian, concentrated = GaussianDP(mu), GaussianDP(mu).to_zero_concentrated()
    for epsilon in np.linspace(0, 8 * mu + mu * mu, 30):
        assert gaussian.delta(epsilon) < concentrated.delta(epsilon)


@pytest.mark.parametrize("guarantee", [PureDP(2.0), ZeroConcentratedDP(0.4), GaussianDP(0.9)])
def test_profiles_decrease(guarantee):
    values = [guarantee.delta(epsilon) for epsilon in np.linspace(0, 6, 200)]
    assert all(b < a or a == b == 0 for a, b in itertools.pairwise(values))


def test_profiles_that_never_vanish_are_never_reported_as_zero():
    assert GaussianDP(0.1).delta(1e6) == math.ulp(0.0)
    assert GaussianDP(1e-300).delta(1e300) == math.ulp(0.0)
    assert ZeroConcentratedDP(0.1).delta(1e6) == math.ulp(0.0)
    assert PureDP(1.0).delta(1.0) == PureDP(1.0).delta(1e4) == 0.0


# ---------------------------------------------------------------- to_approximate


def test_published_figures():
    assert compose(*[GaussianDP(0.25)] * 10).to_approximate(1e-6).epsilon == pytest.approx(
        3.747218, abs=5e-7
    )
    assert ZeroConcentratedDP(0.3125).to_approximate(1e-6).epsilon == pytest.approx(
        4.010281, abs=5e-7
    )
    # Balle & Wang (2018): the analytic Gaussian mechanism at epsilon = 1, delta = 1e-5.
    assert gaussian_scale(1.0, 1e-5, 1.0) == pytest.approx(3.7306, abs=5e-5)


@pytest.mark.parametrize(("rho", "epsilon"), [(2.56, 17.14), (0.07, 2.47)])
def test_census_figures_agree_as_published_that_is_rounded_to_two_decimals(rho, epsilon):
    # 2020 redistricting data, persons and housing units, delta = 1e-10. Both numbers of a pair
    # are rounded, so the curve must pass through the square of half-width 0.005 around them.
    assert ZeroConcentratedDP(rho - 0.005).to_approximate(1e-10).epsilon <= epsilon + 0.005
    assert ZeroConcentratedDP(rho + 0.005).to_approximate(1e-10).epsilon >= epsilon - 0.005


@pytest.mark.parametrize("mu", [1e-100, 1e-9, 0.01, 0.8, 1.0, 5.0, 1e4, 1e60])
@pytest.mark.parametrize("delta", [1e-300, 1e-30, 1e-6, 0.3, 0.99])
def test_gaussian_epsilon_is_the_smallest_and_on_the_safe_side(mu, delta):
    guarantee = GaussianDP(mu)
    epsilon = guarantee.to_approximate(delta).epsilon
    assert guarantee.delta(epsilon) <= delta
    if epsilon == 0:
        assert guarantee.to_total_variation() <= delta
    else:
        assert guarantee.delta(epsilon * (1 - 1e-9)) > delta


@pytest.mark.parametrize("mu", [1e-9, 0.01, 0.8, 1.0, 1.01, 5.0, 1e4])
@pytest.mark.parametrize("delta", [1e-200, 1e-30, 1e-6, 0.3, 0.38, 0.7])
def test_gaussian_epsilon_and_scale_are_safe_in_sixty_digits(mu, delta):
    mpmath = pytest.importorskip("mpmath")
    epsilon = GaussianDP(mu).to_approximate(delta).epsilon
    scale = gaussian_scale(max(epsilon, mu), delta, 1.0)
    with mpmath.workdps(60):
        for m, e in ((mpmath.mpf(mu), epsilon), (1 / mpmath.mpf(scale), max(epsilon, mu))):
            profile = mpmath.ncdf(m / 2 - e / m) - mpmath.exp(e) * mpmath.ncdf(-m / 2 - e / m)
            assert profile <= delta


@pytest.mark.parametrize("rho", [1e-200, 1e-9, 0.01, 1.0, 30.0, 1e9, 1e100])
@pytest.mark.parametrize("delta", [1e-300, 1e-30, 1e-6, 0.3, 0.99])
def test_concentrated_epsilon_is_the_smallest_and_on_the_safe_side(rho, delta):
    guarantee = ZeroConcentratedDP(rho)
    epsilon = guarantee.to_approximate(delta).epsilon
    assert guarantee.delta(epsilon) <= delta
    assert epsilon == 0 or guarantee.delta(epsilon * (1 - 1e-9)) > delta


@pytest.mark.parametrize("rho", [0.001, 0.3125, 2.56, 20.0])
@pytest.mark.parametrize("delta", [1e-12, 1e-6, 1e-2])
def test_concentrated_epsilon_is_the_minimum_over_renyi_orders(rho, delta):
    order = 1 + np.exp(np.linspace(-8, 8, 400_001))
    epsilons = order * rho + np.log1p(-1 / order) - np.log(delta * order) / (order - 1)
    epsilon = ZeroConcentratedDP(rho).to_approximate(delta).epsilon
    assert epsilon <= epsilons.min() * (1 + ROUNDING)
    assert epsilon == pytest.approx(epsilons.min(), rel=1e-8)
    assert epsilon < rho + 2 * math.sqrt(rho * math.log(1 / delta))


@pytest.mark.parametrize("epsilon", [1e-6, 0.2, 1.0, 8.0, 36.0, 600.0, 1e300])
@pytest.mark.parametrize("delta", [0.0, 1e-12, 1e-4, 0.2, 0.9])
def test_pure_epsilon_is_the_smallest_and_on_the_safe_side(epsilon, delta):
    guarantee = PureDP(epsilon)
    smaller = guarantee.to_approximate(delta).epsilon
    assert guarantee.delta(smaller) <= delta
    assert smaller <= epsilon
    if delta == 0:
        assert smaller == epsilon
    assert smaller == 0 or guarantee.delta(smaller * (1 - 1e-9)) > delta


@pytest.mark.parametrize("start", [(1.0, 1e-6), (3.0, 0.01), (0.0, 0.2), (1.0, 0.0)])
@pytest.mark.parametrize("delta", [0.25, 0.4])
def test_approximate_epsilon_follows_the_canonical_pair(start, delta):
    epsilon = ApproximateDP(*start).to_approximate(delta).epsilon
    assert_just_holds(epsilon, delta, lambda e: hockey_stick([canonical_pair(*start)], e))


@pytest.mark.parametrize("value", [1e-3, 1.0, 36.0, 600.0])
def test_a_delta_next_to_one_still_has_an_epsilon(value):
    delta = math.nextafter(1, 0)
    for guarantee in (PureDP(value), GaussianDP(value), ZeroConcentratedDP(value)):
        assert guarantee.delta(guarantee.to_approximate(delta).epsilon) <= delta


@pytest.mark.parametrize("value", [1e-3, 1.0, 50.0])
def test_the_smallest_positive_delta_still_has_an_epsilon(value):
    delta = math.ulp(0.0)
    for guarantee in (GaussianDP(value), ZeroConcentratedDP(value)):
        epsilon = guarantee.to_approximate(delta).epsilon
        assert epsilon > guarantee.to_approximate(1e-300).epsilon
        assert guarantee.delta(epsilon) == delta
    assert GaussianDP(1 / gaussian_scale(value, delta, 1.0)).delta(value) == delta


def test_approximate_at_its_own_delta_is_unchanged():
    guarantee = ApproximateDP(0.7, 1e-6, neighbours="replace_one", unit="one person")
    assert guarantee.to_approximate(1e-6) == guarantee


@pytest.mark.parametrize(
    "guarantee", [PureDP(2.0), ApproximateDP(2.0, 1e-9), ZeroConcentratedDP(0.4), GaussianDP(0.9)]
)
def test_epsilon_decreases_in_delta(guarantee):
    epsilons = [guarantee.to_approximate(10.0**k).epsilon for k in range(-8, 0)]
    assert all(b < a for a, b in itertools.pairwise(epsilons))


# ---------------------------------------------------------------- calibration


@pytest.mark.parametrize("epsilon", [1e-12, 1e-3, 0.5, 4.0, 1e3, 1e8])
@pytest.mark.parametrize("delta", [1e-300, 1e-12, 1e-5, 0.4, 0.95])
@pytest.mark.parametrize("sensitivity", [1.0, 3e7])
def test_gaussian_scale_is_the_smallest_and_on_the_safe_side(epsilon, delta, sensitivity):
    scale = gaussian_scale(epsilon, delta, sensitivity)
    assert GaussianDP(sensitivity / scale).delta(epsilon) <= delta
    assert GaussianDP(sensitivity / (scale * (1 - 1e-9))).delta(epsilon) > delta


@pytest.mark.parametrize("epsilon", [1e-12, 1e-3, 0.5, 4.0, 1e3, 1e8])
@pytest.mark.parametrize("delta", [1e-300, 1e-12, 1e-5, 0.4, 0.95])
def test_zero_concentrated_rho_is_the_largest_and_on_the_safe_side(epsilon, delta):
    rho = zero_concentrated_rho(epsilon, delta)
    assert ZeroConcentratedDP(rho).to_approximate(delta).epsilon <= epsilon
    assert ZeroConcentratedDP(rho * (1 + 1e-9)).to_approximate(delta).epsilon > epsilon


# ---------------------------------------------------------------- zCDP and total variation


@pytest.mark.parametrize("epsilon", [0.01, 0.5, 1.0, 3.0, 8.0])
def test_pure_implies_zcdp_at_all_renyi_orders_and_no_smaller_rho(epsilon):
    rho = PureDP(epsilon).to_zero_concentrated().rho
    (truth, lie), _ = canonical_pair(epsilon)
    for u in map(Decimal, np.geomspace(1e-6, 1e4, 200)):
        moments = [p * ((p / q).ln() * u).exp() for p, q in canonical_pair(epsilon)]
        assert sum(moments).ln() / u <= (1 + u) * Decimal(rho) * Decimal(1 + 1e-15)
    relative_entropy = (truth - lie) * (truth / lie).ln()  # the limit at order 1
    assert rho == pytest.approx(float(relative_entropy), rel=1e-15)
    assert rho < epsilon**2 / 2


def test_gaussian_implies_zcdp_with_the_renyi_divergence_of_two_normals():
    mu, order = 0.8, 3.5
    integral, _ = quad(
        lambda x: math.exp(order * norm.logpdf(x, mu) + (1 - order) * norm.logpdf(x)), -12, 18
    )
    divergence = math.log(integral) / (order - 1)
    assert GaussianDP(mu).to_zero_concentrated().rho * order == pytest.approx(divergence, rel=1e-9)


def test_conversions_to_zcdp_that_round_to_zero_stay_positive():
    assert PureDP(1e-200).to_zero_concentrated().rho > 0
    assert GaussianDP(1e-200).to_zero_concentrated().rho > 0


def test_approximate_without_delta_converts_as_pure():
    assert ApproximateDP(1.0, 0.0).to_zero_concentrated() == PureDP(1.0).to_zero_concentrated()


@pytest.mark.parametrize("epsilon", [0.01, 1.0, 6.0])
@pytest.mark.parametrize("delta", [0.0, 1e-6, 0.3])
def test_total_variation_is_that_of_the_canonical_pair(epsilon, delta):
    expected = float(sum(abs(p - q) for p, q in canonical_pair(epsilon, delta)) / 2)
    assert ApproximateDP(epsilon, delta).to_total_variation() == pytest.approx(expected, rel=1e-12)
    lemma = (2 * delta + math.expm1(epsilon)) / (math.exp(epsilon) + 1)
    assert expected == pytest.approx(lemma, rel=1e-12)
    if delta == 0:
        assert PureDP(epsilon).to_total_variation() == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("mu", [1e-3, 0.5, 1.0, 6.0])
def test_total_variation_is_that_of_two_normals(mu):
    # The densities cross at mu / 2.
    integral, _ = quad(
        lambda x: norm.pdf(x - mu) * -math.expm1(mu * (mu / 2 - x)), mu / 2, mu / 2 + 20, epsabs=0
    )
    assert GaussianDP(mu).to_total_variation() == pytest.approx(integral, rel=1e-9)


@pytest.mark.parametrize("rho", [1e-6, 0.1, 1.5937, 4.0, 30.0])
def test_concentrated_total_variation_bounds_its_gaussian_and_its_pure_member(rho):
    bound = ZeroConcentratedDP(rho).to_total_variation()
    assert bound == pytest.approx(min(math.sqrt(rho / 2), math.sqrt(1 - math.exp(-rho))), rel=1e-9)
    assert GaussianDP(math.sqrt(2 * rho)).to_total_variation() <= bound <= 1
    epsilon = next(e for e in np.geomspace(1e-4, 100, 5000) if e * math.tanh(e / 2) > rho * 0.99)
    assert PureDP(epsilon).to_zero_concentrated().rho <= rho * 1.01
    assert PureDP(epsilon).to_total_variation() <= bound * 1.01


# ---------------------------------------------------------------- neighbours


@pytest.mark.parametrize(
    ("guarantee", "expected"),
    [
        (PureDP(0.5, neighbours="add_remove"), PureDP(1.0, neighbours="replace_one")),
        (
            ZeroConcentratedDP(0.5, neighbours="add_remove", unit="one person"),
            ZeroConcentratedDP(2.0, neighbours="replace_one", unit="one person"),
        ),
        (GaussianDP(0.5, neighbours="add_remove"), GaussianDP(1.0, neighbours="replace_one")),
        (
            ApproximateDP(0.5, 0.0, neighbours="add_remove"),
            ApproximateDP(1.0, 0.0, neighbours="replace_one"),
        ),
    ],
)
def test_a_replacement_is_a_removal_and_an_addition(guarantee, expected):
    assert guarantee.to_replace_one() == expected
    assert expected.to_replace_one() is expected


def test_replacement_under_approximate_dp_covers_noise_moved_twice():
    mu, epsilon = 0.7, 1.3
    delta = GaussianDP(mu).delta(epsilon)
    moved = ApproximateDP(epsilon, delta, neighbours="add_remove").to_replace_one()
    assert moved.epsilon == 2 * epsilon
    assert moved.delta == pytest.approx((1 + math.exp(epsilon)) * delta, rel=ROUNDING)
    assert delta < normal_hockey_stick(2 * mu, 2 * epsilon) <= moved.delta


# ---------------------------------------------------------------- composition


def test_composition_within_one_measure_is_exact():
    assert compose(PureDP(0.25), PureDP(1.0), PureDP(0.5)) == PureDP(1.75)
    assert compose(ZeroConcentratedDP(0.25), ZeroConcentratedDP(1.0)) == ZeroConcentratedDP(1.25)
    assert compose(GaussianDP(3.0), GaussianDP(4.0)) == GaussianDP(5.0)
    assert compose(GaussianDP(3e-200), GaussianDP(4e-200)).mu == pytest.approx(5e-200, rel=1e-15)
    assert compose(ApproximateDP(0.5, 0.25), ApproximateDP(1.0, 0.5)) == ApproximateDP(1.5, 0.75)
    assert compose(ApproximateDP(0.5, 0.25), PureDP(1.0)) == ApproximateDP(1.5, 0.25)


def test_composition_of_one_guarantee_is_that_guarantee():
    for guarantee in (PureDP(0.3), ApproximateDP(1.0, 0.1), ZeroConcentratedDP(1.0), GaussianDP(2)):
        assert compose(guarantee) == guarantee


def test_mixed_measures_without_delta_are_summed_as_zcdp():
    mixed = compose(PureDP(1.0), ZeroConcentratedDP(0.25), GaussianDP(1.0))
    assert mixed.rho == pytest.approx(math.tanh(0.5) + 0.25 + 0.5, rel=1e-15)


def test_composition_keeps_neighbours_and_unit():
    labels = {"neighbours": "add_remove", "unit": "one household"}
    mixed = [PureDP(1.0, **labels), GaussianDP(1.0, **labels)]
    for composed in (compose(*mixed), compose(*mixed, delta=1e-6), compose(mixed[0])):
        assert (composed.neighbours, composed.unit) == ("add_remove", "one household")


@pytest.mark.parametrize(
    "epsilons",
    [[0.3] * 7, [1.0] * 4, [2.5] * 3, [0.1, 0.2, 0.7, 0.7], [0.05, 3.0, 0.6, 0.61, 0.62], [1.0]],
)
@pytest.mark.parametrize("delta", [1e-12, 1e-4, 0.05, 0.3])
def test_pure_composition_is_optimal_by_enumeration(epsilons, delta):
    epsilon = compose(*map(PureDP, epsilons), delta=delta).epsilon
    pairs = [canonical_pair(e) for e in epsilons]
    assert_just_holds(epsilon, delta, lambda e: hockey_stick(pairs, e))


@pytest.mark.parametrize(
    "members",
    [[(0.3, 0.01)] * 5, [(1.0, 1e-3), (0.5, 1e-2), (0.5, 0.0)], [(0.0, 0.02), (0.8, 0.01)]],
)
@pytest.mark.parametrize("delta", [0.06, 0.2])
def test_approximate_composition_is_optimal_by_enumeration(members, delta):
    epsilon = compose(*(ApproximateDP(*member) for member in members), delta=delta).epsilon
    pairs = [canonical_pair(*member) for member in members]
    assert_just_holds(epsilon, delta, lambda e: hockey_stick(pairs, e))


@pytest.mark.parametrize(("epsilons", "mu"), [([0.4, 0.4, 1.0], 0.6), ([0.2] * 5, 1.7)])
@pytest.mark.parametrize("delta", [1e-7, 1e-2])
def test_pure_with_gaussian_composition_is_optimal_by_enumeration(epsilons, mu, delta):
    def profile(epsilon):
        outcomes = product_pair([canonical_pair(e) for e in epsilons])
        return math.fsum(
            float(p) * normal_hockey_stick(mu, epsilon - float((p / q).ln())) for p, q in outcomes
        )

    epsilon = compose(*map(PureDP, epsilons), GaussianDP(mu), delta=delta).epsilon
    assert profile(epsilon) <= delta * (1 + QUADRATURE)
    assert profile(epsilon * (1 - 1e-8)) > delta


@pytest.mark.parametrize("k", [2, 9, 300])
def test_homogeneous_composition_passes_through_the_points_of_the_theorem(k):
    # Kairouz, Oh & Viswanath, Theorem 3.3: ((k - 2 i) epsilon, delta_i), in exact arithmetic.
    odds = Fraction(11, 10)
    epsilon = math.log(1.1)
    for i in range(1, min(k // 2, 40)):
        delta = (
            sum(math.comb(k, j) * (odds ** (k - j) - odds ** (k - 2 * i + j)) for j in range(i))
            / (1 + odds) ** k
        )
        composed = compose(*[PureDP(epsilon)] * k, delta=float(delta))
        assert composed.epsilon == pytest.approx((k - 2 * i) * epsilon, rel=1e-10)


def test_homogeneous_approximate_composition_passes_through_the_points_of_the_theorem():
    k, failure, odds = 6, Fraction(1, 1000), Fraction(3, 2)
    for i in (1, 2):
        inner = (
            sum(math.comb(k, j) * (odds ** (k - j) - odds ** (k - 2 * i + j)) for j in range(i))
            / (1 + odds) ** k
        )
        delta = float(1 - (1 - failure) ** k * (1 - inner))
        composed = compose(*[ApproximateDP(math.log(1.5), 1e-3)] * k, delta=delta)
        assert composed.epsilon == pytest.approx((k - 2 * i) * math.log(1.5), rel=1e-10)


def test_optimal_composition_beats_both_other_routes():
    guarantees = [PureDP(0.1)] * 200
    rho = ZeroConcentratedDP(200 * 0.1 * math.tanh(0.05))
    epsilon = compose(*guarantees, delta=1e-6).epsilon
    assert epsilon < rho.to_approximate(1e-6).epsilon < 20


def test_too_many_outcomes_leave_the_other_two_routes(monkeypatch):
    many = [PureDP(0.01 * k) for k in range(1, 16)]
    basic = math.fsum(guarantee.epsilon for guarantee in many)
    concentrated = compose(*(g.to_zero_concentrated() for g in many)).to_approximate(0.01).epsilon
    assert concentrated < basic
    assert compose(*many, delta=0.01).epsilon == pytest.approx(concentrated, rel=ROUNDING)
    assert compose(*many, delta=1e-12).epsilon == pytest.approx(basic, rel=ROUNDING)
    monkeypatch.setattr(composition, "_MOST_OUTCOMES", 2**15)
    assert compose(*many, delta=0.01).epsilon < concentrated


def test_large_pure_epsilons_are_added_rather_than_concentrated():
    small = ZeroConcentratedDP(0.01)
    expected = 20 + small.to_approximate(1e-6).epsilon
    assert compose(PureDP(20.0), small, delta=1e-6).epsilon == pytest.approx(expected, rel=ROUNDING)


def test_failures_are_paid_first_and_what_is_left_is_used():
    left = 1 - (1 - 1e-5) / (1 - 4e-6)
    mixed = compose(ApproximateDP(0.2, 4e-6), ZeroConcentratedDP(0.1), GaussianDP(0.3), delta=1e-5)
    rho = 0.2 * math.tanh(0.1) + 0.1 + 0.3**2 / 2
    added = 0.2 + ZeroConcentratedDP(0.1 + 0.3**2 / 2).to_approximate(left).epsilon
    summed = ZeroConcentratedDP(rho).to_approximate(left).epsilon
    assert mixed.epsilon == pytest.approx(min(added, summed), rel=1e-9)
    assert mixed.delta == 1e-5


def test_the_sum_of_the_deltas_is_always_enough_for_approximate_guarantees():
    for failure in (0.1, 1e-9, 1e-17, 1e-300):
        composed = compose(*[ApproximateDP(0.5, failure)] * 3, delta=3 * failure)
        assert composed.epsilon <= 1.5


def test_gaussians_alone_compose_to_their_exact_conversion():
    composed = compose(GaussianDP(0.6), GaussianDP(0.8), delta=1e-6)
    expected = GaussianDP(1.0).to_approximate(1e-6).epsilon
    assert composed.epsilon == pytest.approx(expected, rel=ROUNDING)


def test_another_release_never_costs_nothing_and_order_does_not_matter():
    releases = [PureDP(0.3), GaussianDP(0.5), ApproximateDP(0.2, 1e-7), ZeroConcentratedDP(0.02)]
    epsilons = [compose(*releases[:k], delta=1e-6).epsilon for k in range(1, 5)]
    assert all(a < b for a, b in itertools.pairwise(epsilons))
    for order in itertools.permutations(releases):
        assert compose(*order, delta=1e-6).epsilon == pytest.approx(epsilons[-1], rel=ROUNDING)


# ---------------------------------------------------------------- another accountant


def bracket(make, count, delta):
    """Return the optimistic and the pessimistic epsilon of a privacy loss distribution."""
    return [
        make(pessimistic).self_compose(count).get_epsilon_for_delta(delta)
        for pessimistic in (False, True)
    ]


def test_gaussian_composition_lies_in_the_bracket_of_dp_accounting():
    pld = pytest.importorskip("dp_accounting.pld.privacy_loss_distribution")
    # The sensitivity is explicit, so that no neighbour relation rescales it.
    low, high = bracket(
        lambda pessimistic: pld.from_gaussian_mechanism(
            4.0, sensitivity=1.0, pessimistic_estimate=pessimistic
        ),
        10,
        1e-6,
    )
    epsilon = compose(*[GaussianDP(0.25)] * 10, delta=1e-6).epsilon
    assert low <= epsilon <= high
    assert high - low < 1e-3


def test_pure_composition_lies_in_the_bracket_of_dp_accounting():
    pld = pytest.importorskip("dp_accounting.pld.privacy_loss_distribution")
    lie = 2 / (1 + math.exp(0.25))
    low, high = bracket(
        lambda pessimistic: pld.from_randomized_response(
            lie, 2, pessimistic_estimate=pessimistic, value_discretization_interval=1e-5
        ),
        30,
        1e-5,
    )
    epsilon = compose(*[PureDP(0.25)] * 30, delta=1e-5).epsilon
    assert low <= epsilon <= high
    assert high - low < 1e-3


def test_mixed_composition_bounds_laplace_with_gaussian_noise_of_dp_accounting():
    pld = pytest.importorskip("dp_accounting.pld.privacy_loss_distribution")
    laplace = pld.from_laplace_mechanism(10.0, sensitivity=1.0, pessimistic_estimate=False)
    gaussian = pld.from_gaussian_mechanism(4.0, sensitivity=1.0, pessimistic_estimate=False)
    exact = laplace.self_compose(5).compose(gaussian.self_compose(5)).get_epsilon_for_delta(1e-6)
    guarantees = [*[PureDP(0.1)] * 5, *[GaussianDP(0.25)] * 5]
    # Laplace noise is a little better than the worst mechanism of its epsilon.
    assert exact <= compose(*guarantees, delta=1e-6).epsilon < exact * 1.01
    assert compose(*guarantees).to_approximate(1e-6).epsilon > exact * 1.05


def test_concentrated_epsilon_is_the_limit_of_renyi_orders_of_dp_accounting():
    rdp = pytest.importorskip("dp_accounting.rdp.rdp_privacy_accountant")
    orders = np.arange(1.01, 30, 0.001)
    theirs, _ = rdp.compute_epsilon(orders, 0.3125 * orders, 1e-6)
    ours = ZeroConcentratedDP(0.3125).to_approximate(1e-6).epsilon
    assert ours <= theirs
    assert ours == pytest.approx(theirs, rel=1e-7)


# ---------------------------------------------------------------- the door


@pytest.mark.parametrize(
    ("guarantee", "text"),
    [
        (
            PureDP(1.0, neighbours="replace_one"),
            "1-DP (pure), neighbours: replace one record, unit: one record",
        ),
        (
            ApproximateDP(0.5, 1e-6, neighbours="add_remove", unit="one person"),
            "(0.5, 1e-06)-DP (approximate), neighbours: add or remove one record, unit: one person",
        ),
        (
            ZeroConcentratedDP(2.56),
            "2.56-zCDP (zero-concentrated), neighbours: not stated, unit: one record",
        ),
        (GaussianDP(3), "3-GDP (Gaussian), neighbours: not stated, unit: one record"),
    ],
)
def test_a_guarantee_reads_as_a_sentence(guarantee, text):
    assert str(guarantee) == text


def test_values_may_be_named_and_any_real_number():
    assert PureDP(epsilon=np.float32(0.5)) == PureDP(Fraction(1, 2)) == PureDP(0.5)
    assert ApproximateDP(epsilon=1, delta=0.5) == ApproximateDP(np.int64(1), 0.5)
    assert type(PureDP(1).epsilon) is float
    assert ApproximateDP(0, 0.5).epsilon == 0


def test_labels_are_keyword_only_and_values_frozen():
    with pytest.raises(TypeError):
        PureDP(1.0, "replace_one")
    with pytest.raises(AttributeError):
        PureDP(1.0).epsilon = 2.0
    with pytest.raises(TypeError):
        Guarantee()


@pytest.mark.parametrize("bad", [0, -1.0, math.inf, math.nan, "1", None, True, 10**400, [1.0]])
@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (PureDP, r"epsilon must be a finite number > 0 \(the largest log-ratio"),
        (lambda bad: ApproximateDP(bad, 0.0), "epsilon must be a finite number > 0"),
        (ZeroConcentratedDP, r"rho must be a finite number > 0 \(the Renyi divergence"),
        (GaussianDP, r"mu must be a finite number > 0 \(sensitivity / scale"),
        (lambda bad: gaussian_scale(bad, 0.1, 1.0), "epsilon must be a finite number > 0"),
        (lambda bad: gaussian_scale(1.0, 0.1, bad), "sensitivity must be a finite number > 0"),
        (lambda bad: zero_concentrated_rho(bad, 0.1), "epsilon must be a finite number > 0"),
    ],
)
def test_values_that_state_no_guarantee_are_refused(make, sentence, bad):
    with pytest.raises(GuaranteeError, match=sentence + ".*; got ") as caught:
        make(bad)
    assert str(caught.value).endswith(f"got {bad!r}.")
    assert isinstance(caught.value, PrivacyError)


@pytest.mark.parametrize("bad", [1.0, -1e-9, math.nan, math.inf, "0.1", None, False])
@pytest.mark.parametrize(
    "make",
    [
        lambda bad: ApproximateDP(1.0, bad),
        PureDP(1.0).to_approximate,
        ApproximateDP(1.0, 0.1).to_approximate,
    ],
)
def test_a_delta_outside_zero_to_one_is_refused(make, bad):
    with pytest.raises(GuaranteeError, match=r"delta must be a number in \[0, 1\) .*; got "):
        make(bad)


@pytest.mark.parametrize("bad", [0.0, 1.0, -1e-9, math.nan, "0.1"])
@pytest.mark.parametrize(
    "make",
    [
        GaussianDP(1.0).to_approximate,
        ZeroConcentratedDP(1.0).to_approximate,
        lambda bad: gaussian_scale(1.0, bad, 1.0),
        lambda bad: zero_concentrated_rho(1.0, bad),
        lambda bad: compose(PureDP(1.0), delta=bad),
    ],
)
def test_a_delta_that_gives_no_finite_epsilon_is_refused(make, bad):
    with pytest.raises(GuaranteeError, match=r"delta must be a number in \(0, 1\) .*; got "):
        make(bad)


@pytest.mark.parametrize("guarantee", [PureDP(1.0), ZeroConcentratedDP(1.0), GaussianDP(1.0)])
def test_a_profile_is_asked_at_epsilons_from_zero_on(guarantee):
    with pytest.raises(GuaranteeError, match=r"epsilon must be a finite number >= 0 .*; got -0\.1"):
        guarantee.delta(-0.1)


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (
            lambda: PureDP(1.0, neighbours="bounded"),
            "neighbours must be \"replace_one\".*'bounded'",
        ),
        (lambda: GaussianDP(1.0, unit=""), "unit must be a phrase such as 'one record'.*got ''"),
        (lambda: GaussianDP(1.0, unit=3), "unit must be a phrase such as 'one record'.*got 3"),
        (lambda: PureDP(1.0).to_replace_one(), 'neighbours must be "add_remove" or.*got None'),
        (
            lambda: ApproximateDP(3.0, 0.2, neighbours="add_remove").to_replace_one(),
            r"delta must be a number in \[0, 1\).*got 4\.2",
        ),
        (
            lambda: ApproximateDP(1e4, 1e-9, neighbours="add_remove").to_replace_one(),
            r"delta must be a number in \[0, 1\)",
        ),
        (
            lambda: ApproximateDP(1.0, 0.1).to_zero_concentrated(),
            "delta must be 0 to imply zero-concentrated DP.*got 0.1",
        ),
        (
            lambda: ApproximateDP(1.0, 0.1).to_approximate(0.05),
            r"delta must be at least 0\.1 .*failures\); got 0\.05",
        ),
        (lambda: GaussianDP(1e200).to_zero_concentrated(), "rho must be a finite number.*got inf"),
        (lambda: GaussianDP(1e160).to_approximate(0.1), "epsilon must be a finite number.*got inf"),
        (lambda: gaussian_scale(1e-9, 1e-9, 1e305), "scale must be a finite number.*got inf"),
        (lambda: zero_concentrated_rho(1e-200, 1e-300), "rho must be a finite number > 0.*got 0.0"),
        (lambda: compose(), "compose must be given a guarantee or more.*got none"),
        (lambda: compose(delta=0.1), "compose must be given a guarantee or more.*got none"),
        (lambda: compose(PureDP(1.0), 0.5), "compose must be given guarantees such as.*got 0.5"),
        (lambda: compose([PureDP(1.0)]), r"compose must be given guarantees such as.*got \[Pure"),
        (lambda: compose(None), r"of a mechanism pass its \.guarantee.*got None"),
        (
            lambda: compose(PureDP(1.0, neighbours="add_remove"), PureDP(1.0)),
            "same neighbours .state neighbours= on each.*got None and add_remove",
        ),
        (
            lambda: compose(
                PureDP(1.0, neighbours="add_remove"), PureDP(1.0, neighbours="replace_one")
            ),
            r"to_replace_one\(\)\); got add_remove and replace_one",
        ),
        (
            lambda: compose(PureDP(1.0, unit="one person"), PureDP(1.0)),
            "same unit .*got 'one person' and 'one record'",
        ),
        (
            lambda: compose(ApproximateDP(1.0, 0.5), ApproximateDP(1.0, 0.5)),
            r"delta must be a number in \[0, 1\).*got 1\.0",
        ),
        (
            lambda: compose(ApproximateDP(1.0, 0.1), GaussianDP(1.0)),
            "delta must be given where approximate guarantees meet.*got None",
        ),
        (
            lambda: compose(ApproximateDP(1.0, 0.1), ZeroConcentratedDP(1.0), PureDP(1.0)),
            "delta must be given where approximate guarantees meet.*got None",
        ),
        (
            lambda: compose(ApproximateDP(1.0, 0.1), GaussianDP(1.0), delta=0.1),
            r"delta must be above 0\.1 .*failures\); got 0\.1",
        ),
        (
            lambda: compose(ApproximateDP(1.0, 0.1), PureDP(1.0), delta=0.05),
            r"delta must be at least 0\.1 .*failures\); got 0\.05",
        ),
    ],
)
def test_what_cannot_be_stated_truthfully_gets_a_sentence(call, sentence):
    with pytest.raises(GuaranteeError, match=sentence):
        call()
