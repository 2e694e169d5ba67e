"""Renyi divergences, trade-off functions and parallel releases against independent computations.

References are grids over all tests (p, q), closed forms of other measures, enumerations of
canonical pairs, quadrature, and another accountant; none of them uses a formula of the modules.
"""

import itertools
import json
import math

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.stats import laplace, norm

from pymc_privacy.accounting import (
    FDP,
    ApproximateDP,
    GaussianDP,
    PureDP,
    RenyiDP,
    ZeroConcentratedDP,
    compose,
)
from pymc_privacy.accounting.tradeoff import Statements
from pymc_privacy.errors import GuaranteeError
from pymc_privacy.sanitize import budget
from pymc_privacy.sanitize.ledger import Ledger
from pymc_privacy.sanitize.plain import from_plain, to_plain

LABELS = {"neighbours": "add_remove", "unit": "one household"}
ORDERS = [(1.01, 2.0), (1.5, 3.0), (2.0, 0.5), (8.0, 0.5), (40.0, 0.01), (300.0, 5.0)]


def normal_tradeoff(mu):
    return lambda alpha: float(norm.cdf(norm.isf(alpha) - mu))


def divergence(p, q, order):
    """Return the Renyi divergence of two laws on two points."""
    with np.errstate(divide="ignore", over="ignore"):
        first = order * np.log(p) + (1 - order) * np.log(q)
        second = order * np.log1p(-p) + (1 - order) * np.log1p(-q)
        return np.logaddexp(first, second) / (order - 1)


def strongest_tests(order, bound, both_ways):
    """Return (p, q) of tests with the smallest q that the divergence allows, by bisection."""
    p = np.concatenate([np.geomspace(1e-12, 0.5, 4000), 1 - np.geomspace(0.5, 1e-12, 4000)])
    low, high = np.log(p) - 60.0, np.log(p)
    for _ in range(80):
        middle = (low + high) / 2
        q = np.exp(middle)
        allowed = divergence(p, q, order) <= bound
        if both_ways:
            allowed &= divergence(q, p, order) <= bound
        low, high = np.where(allowed, low, middle), np.where(allowed, middle, high)
    return p, np.exp(high)


# ---------------------------------------------------------------- Renyi divergences


@pytest.mark.parametrize(("order", "bound"), ORDERS)
def test_profile_of_one_order_is_the_largest_over_all_tests(order, bound):
    one_way, both_ways = (strongest_tests(order, bound, ways) for ways in (False, True))
    guarantee = RenyiDP(order, bound)
    for epsilon in (0.0, 0.1, 1.0, 3.0):
        value = guarantee.delta(epsilon)
        reached, certain = ((p - math.exp(epsilon) * q).max() for p, q in (one_way, both_ways))
        # No test that is allowed in both directions gains more; and where the divergence in one
        # direction is what limits a test, it gains as much.
        assert certain <= value * (1 + 1e-9)
        assert value <= max(reached, 0.0) * (1 + 1e-3) + 1e-15


@pytest.mark.parametrize(("order", "bound"), ORDERS)
def test_profile_at_zero_is_attained_by_randomized_response(order, bound):
    distance = RenyiDP(order, bound).delta(0.0)
    p = (1 + distance) / 2
    assert divergence(p, 1 - p, order) == pytest.approx(bound, rel=1e-6)


@pytest.mark.parametrize(("order", "bound"), ORDERS)
@pytest.mark.parametrize("delta", [1e-12, 1e-6, 0.01])
def test_epsilon_of_one_order_is_the_smallest_and_beats_the_published_conversions(
    order, bound, delta
):
    guarantee = RenyiDP(order, bound)
    epsilon = guarantee.to_approximate(delta).epsilon
    assert guarantee.delta(epsilon) <= delta
    assert epsilon == 0 or guarantee.delta(epsilon * (1 - 1e-8)) > delta
    canonne = bound + math.log1p(-1 / order) - math.log(delta * order) / (order - 1)
    mironov = bound - math.log(delta) / (order - 1)  # Mironov (2017), Proposition 3
    assert epsilon <= max(canonne, 0.0) * (1 + 1e-9) <= max(mironov, 0.0) * (1 + 1e-8)


def test_lossless_conversion_agrees_with_its_one_dimensional_form():
    # Asoodeh et al. (2021), Theorem 3: the bound on the divergence that leaves (epsilon, delta),
    # as a minimum over the probability p of the best test.
    order, bound, delta = 5.0, 0.7, 1e-3
    epsilon = RenyiDP(order, bound).to_approximate(delta).epsilon
    p = delta + np.geomspace(1e-12, 1 - delta - 1e-9, 400_001)
    least = divergence(p, (p - delta) / math.exp(epsilon), order).min()
    assert least == pytest.approx(bound, rel=1e-7)


def test_orders_of_another_accountant_give_no_smaller_epsilon():
    rdp = pytest.importorskip("dp_accounting.rdp.rdp_privacy_accountant")
    orders = np.array([1.5, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0])
    promise = RenyiDP.of(GaussianDP(0.5), orders)
    for delta in (1e-9, 1e-5, 1e-2):
        theirs, _ = rdp.compute_epsilon(orders, 0.125 * orders, delta)
        ours = promise.to_approximate(delta).epsilon
        exact = GaussianDP(0.5).to_approximate(delta).epsilon
        assert exact < ours <= theirs * (1 + 1e-9)


def test_divergences_of_pure_dp_are_those_of_randomized_response():
    for epsilon, order in itertools.product((1e-6, 0.3, 2.0, 30.0, 900.0), (1.001, 2.0, 7.5, 1e4)):
        mpmath = pytest.importorskip("mpmath")
        with mpmath.workdps(60):
            odds, a = mpmath.exp(mpmath.mpf(epsilon)), mpmath.mpf(order)
            p, q = odds / (1 + odds), 1 / (1 + odds)
            moment = p**a * q ** (1 - a) + q**a * p ** (1 - a)
            exact = mpmath.log(moment) / (a - 1)
            value = PureDP(epsilon).renyi(order)
            assert value >= exact * (1 - mpmath.mpf(2) ** -52)
            assert value == pytest.approx(float(exact), rel=1e-12)


def test_divergences_of_normal_and_laplace_noise_are_below_their_bounds():
    def order_three(density, shift, reach):
        value, _ = quad(
            lambda x: density.pdf(x - shift) ** 3 / density.pdf(x) ** 2, -reach, reach, points=[0]
        )
        return math.log(value) / 2

    exact = order_three(norm, 0.8, 15)
    assert GaussianDP(0.8).renyi(3.0) == pytest.approx(exact, rel=1e-9)
    assert RenyiDP.of(GaussianDP(0.8), 3).epsilon == GaussianDP(0.8).renyi(3)
    assert ZeroConcentratedDP(0.32).renyi(3.0) == pytest.approx(0.96, rel=1e-12)
    assert order_three(laplace, 0.8, 40) < PureDP(0.8).renyi(3.0)


def test_an_order_in_between_is_bounded_by_monotonicity_and_convexity():
    promise = RenyiDP([2, 8], [0.3, 0.9])
    # Of the Gaussian with rho = 0.15: below its bound at all orders, never above the next one.
    gaussian = RenyiDP.of(ZeroConcentratedDP(0.15), [2, 8])
    for order in (1.2, 2.0, 3.3, 7.9, 8.0):
        assert 0.15 * order <= gaussian.renyi(order) <= max(0.3, gaussian.renyi(8.0))
    assert promise.renyi(5.0) == pytest.approx((0.5 * 0.3 + 0.5 * 7 * 0.9) / 4)
    assert promise.renyi(1.5) == pytest.approx(0.3)
    assert promise.renyi(9.0) == math.inf
    assert RenyiDP([2, 8], [0.9, 0.3]).renyi(2.0) == 0.3


def test_renyi_total_variation_is_that_of_the_lemma_and_not_tight():
    for bound in (0.01, 0.5, 4.0):
        lemma = min(math.sqrt(bound / 2), math.sqrt(1 - math.exp(-bound)))
        promise = RenyiDP(2.0, bound)
        assert promise.to_total_variation() == pytest.approx(lemma, rel=1e-12)
        tight = FDP.of(promise).to_total_variation()
        assert tight < lemma
        # By randomized response, which is pure DP, it is attained.
        response = next(e for e in np.linspace(0.001, 20, 40_000) if PureDP(e).renyi(2.0) > bound)
        assert tight == pytest.approx(math.tanh(response / 2), rel=0.02)


def test_replacement_under_renyi_covers_the_gaussian_moved_twice():
    for order, mu in ((3.0, 0.4), (16.0, 1.1)):
        promise = RenyiDP.of(GaussianDP(mu, neighbours="add_remove"), order).to_replace_one()
        assert promise.neighbours == "replace_one"
        assert promise.alpha == order / 2
        assert promise.epsilon >= GaussianDP(2 * mu).renyi(order / 2)
    with pytest.raises(GuaranteeError, match="alpha must be above 2"):
        RenyiDP(2, 0.5, neighbours="add_remove").to_replace_one()
    with pytest.raises(GuaranteeError, match="neighbours must be"):
        RenyiDP(3, 0.5).to_replace_one()


def test_renyi_composition_adds_at_each_order():
    one = RenyiDP(4, 0.25, **LABELS)
    assert compose(one, one, one) == RenyiDP(4, 0.75, **LABELS)
    both = compose(RenyiDP([2, 4], [0.5, 1.0]), RenyiDP([2, 4], [0.25, 0.5]))
    assert both == RenyiDP([2, 4], [0.75, 1.5])
    mixed = compose(RenyiDP([2, 4], [0.5, 1.0]), ZeroConcentratedDP(0.1), PureDP(0.2))
    assert mixed.renyi(4) == pytest.approx(1.4 + PureDP(0.2).renyi(4))
    # The larger order is unknown for one of them.
    assert compose(RenyiDP(2, 0.5), RenyiDP(4, 1.0)).alpha == 2.0


def test_gaussian_as_divergences_composes_to_the_same_epsilon_as_zcdp():
    orders = 1 + np.geomspace(0.5, 200, 60)
    parts = [RenyiDP.of(ZeroConcentratedDP(0.02), orders)] * 5
    renyi = compose(*parts, delta=1e-6).epsilon
    concentrated = ZeroConcentratedDP(0.1).to_approximate(1e-6).epsilon
    assert renyi == pytest.approx(concentrated, rel=5e-3)
    with_pure = compose(*parts, PureDP(0.3), delta=1e-6).epsilon
    assert renyi < with_pure <= renyi + 0.3
    failing = compose(*parts, ApproximateDP(0.1, 4e-7), delta=1e-6)
    assert failing.epsilon > renyi + 0.05
    with pytest.raises(GuaranteeError, match="delta must be given"):
        compose(*parts, ApproximateDP(0.1, 4e-7))


@pytest.mark.parametrize(
    ("arguments", "match"),
    [
        ((1.0, 0.5), "alpha must be a finite number > 1"),
        ((math.inf, 0.5), "alpha must be a finite number > 1"),
        ((2.0, 0.0), "epsilon must be a finite number > 0"),
        (([2.0, 3.0], 0.5), "two lists of the same length"),
        (([2.0, 2.0], [0.5, 0.6]), "different orders"),
        (([], []), "two lists|alpha must be"),
        (("2", 0.5), "alpha must be"),
    ],
)
def test_what_is_no_renyi_guarantee_gets_a_sentence(arguments, match):
    with pytest.raises(GuaranteeError, match=match):
        RenyiDP(*arguments)


def test_renyi_accepts_any_numbers_and_sorts_its_orders():
    assert RenyiDP(np.int64(2), np.float32(0.5)) == RenyiDP(2.0, 0.5)
    assert RenyiDP(np.array([4, 2]), (0.75, 0.5)).orders == {2.0: 0.5, 4.0: 0.75}
    assert str(RenyiDP(2, 0.5)).startswith("(2, 0.5)-RDP (Renyi)")
    for refused in (RenyiDP(2, 0.5).to_zero_concentrated, FDP.of(PureDP(1.0)).to_zero_concentrated):
        with pytest.raises(GuaranteeError, match="to imply zero-concentrated DP"):
            refused()


# ---------------------------------------------------------------- trade-off functions


@pytest.mark.parametrize(
    "guarantee",
    [
        PureDP(0.4),
        PureDP(3.0),
        ApproximateDP(1.0, 0.01),
        ApproximateDP(0.0, 0.2),
        GaussianDP(0.7),
        GaussianDP(2.5),
    ],
)
def test_pure_approximate_and_gaussian_dp_are_cases_with_the_same_conversions(guarantee):
    promise = FDP.of(guarantee)
    for delta in (0.21, 0.25, 0.3):
        expected = guarantee.to_approximate(delta).epsilon
        assert promise.to_approximate(delta).epsilon == pytest.approx(expected, rel=1e-9, abs=1e-9)
    tv = promise.to_total_variation()
    assert tv == pytest.approx(guarantee.to_total_variation(), rel=1e-12)
    assert tv == pytest.approx(1 - 2 * promise.fixed_point, rel=1e-12)
    assert promise.at(promise.fixed_point) == pytest.approx(promise.fixed_point, rel=1e-12)


def test_fixed_points_are_those_of_the_lemma():
    assert FDP.of(PureDP(1.3)).fixed_point == pytest.approx(1 / (1 + math.exp(1.3)), rel=1e-14)
    fixed = FDP.of(ApproximateDP(1.3, 0.05)).fixed_point
    assert fixed == pytest.approx(0.95 / (1 + math.exp(1.3)), rel=1e-14)
    assert FDP.of(GaussianDP(1.3)).fixed_point == pytest.approx(norm.cdf(-0.65), rel=1e-12)
    golden = FDP(lambda alpha: (1 - math.sqrt(alpha)) ** 2)
    assert golden.fixed_point == pytest.approx(0.25, abs=1e-12)
    assert golden.to_total_variation() == pytest.approx(0.5, abs=1e-12)


@pytest.mark.parametrize("mu", [0.1, 1.0, 3.0])
def test_conversions_of_a_function_bound_those_in_closed_form_and_hardly_differ(mu):
    promise, exact = FDP(normal_tradeoff(mu)), GaussianDP(mu)
    assert promise.to_total_variation() >= exact.to_total_variation() * (1 - 1e-15)
    assert promise.to_total_variation() == pytest.approx(exact.to_total_variation(), rel=1e-12)
    for epsilon in (0.0, 0.2, 1.0, 4.0):
        value = promise.delta(epsilon)
        assert value >= exact.delta(epsilon)
        assert value == pytest.approx(exact.delta(epsilon), rel=1e-8, abs=1e-14)
    assert promise.to_approximate(1e-6).epsilon == pytest.approx(
        exact.to_approximate(1e-6).epsilon, rel=1e-7
    )


def test_laplace_noise_as_a_function_is_better_than_the_worst_mechanism_of_its_epsilon():
    # T(Lap(0, 1), Lap(1, 1)) of Dong et al. (2022), Appendix A.6.
    promise = FDP(lambda alpha: float(laplace.cdf(laplace.isf(alpha) - 1.0)))
    for epsilon in (0.0, 0.3, 0.9):
        exact, _ = quad(
            lambda x, e=epsilon: max(laplace.pdf(x - 1) - math.exp(e) * laplace.pdf(x), 0.0),
            -30, 30, points=[0.0, 0.5, 1.0, (1 + epsilon) / 2], limit=200,
        )  # fmt: skip
        assert promise.delta(epsilon) == pytest.approx(exact, rel=1e-6)
        assert promise.delta(epsilon) <= PureDP(1.0).delta(epsilon)
    with pytest.raises(GuaranteeError, match="Renyi divergences"):
        promise.renyi(2.0)


def test_replacement_under_f_dp_is_the_function_of_two_steps():
    gaussian = FDP.of(GaussianDP(0.6, neighbours="add_remove")).to_replace_one()
    assert gaussian == FDP.of(GaussianDP(1.2, neighbours="replace_one"))
    function = FDP(normal_tradeoff(0.6), neighbours="add_remove").to_replace_one()
    pure = FDP.of(PureDP(0.5, neighbours="add_remove")).to_replace_one()
    for alpha in (0.0, 0.01, 0.3, 0.8, 1.0):
        assert function.at(alpha) == pytest.approx(gaussian.at(alpha), abs=1e-12)
        assert pure.at(alpha) >= FDP.of(PureDP(1.0)).at(alpha) - 1e-12


def test_a_table_of_statements_is_as_strong_as_each_and_as_their_hull():
    statements = FDP(Statements((0.0, 0.5, 2.0), (0.3, 0.2, 0.01)))
    alphas = np.linspace(0, 1, 200_001)
    misses = np.array([statements.at(alpha) for alpha in alphas[::200]])
    for epsilon in (0.0, 0.2, 0.5, 1.3, 2.0, 5.0):
        best = (1 - misses - math.exp(epsilon) * alphas[::200]).max()
        value = statements.delta(epsilon)
        assert best <= value + 1e-12
        assert value == pytest.approx(best, abs=5e-3 * math.exp(epsilon))
    with pytest.raises(GuaranteeError, match=r"at least 1 - f\(0\)"):
        statements.to_approximate(0.005)
    assert statements.delta(3.0) == pytest.approx(0.01)
    assert statements.delta(0.0) == pytest.approx(0.3)
    # The mirror image of a statement binds as well.
    assert FDP(Statements((2.0,), (0.01,))).delta(0.0) == pytest.approx(
        ApproximateDP(2.0, 0.01).to_total_variation(), rel=1e-12
    )


def test_f_dp_composition_of_gaussians_is_gaussian_and_numerically_the_same():
    exact = compose(FDP.of(GaussianDP(0.6, **LABELS)), FDP.of(GaussianDP(0.8, **LABELS)))
    assert exact == FDP.of(GaussianDP(1.0, **LABELS))
    numeric = compose(FDP(normal_tradeoff(0.6)), FDP(normal_tradeoff(0.8)))
    for alpha in (1e-6, 0.01, 0.3, 0.9):
        assert numeric.at(alpha) <= exact.at(alpha)
        assert numeric.at(alpha) == pytest.approx(exact.at(alpha), abs=1e-4)
    for delta in (1e-2, 1e-6, 1e-9):
        best = GaussianDP(1.0).to_approximate(delta).epsilon
        assert best <= numeric.to_approximate(delta).epsilon <= best * 1.001


@pytest.mark.parametrize("delta", [1e-9, 1e-5, 0.02])
def test_f_dp_composition_of_pure_dp_bounds_the_optimal_one_and_hardly_differs(delta):
    parts = [PureDP(0.1)] * 40 + [PureDP(0.7)]
    optimal = compose(*parts, delta=delta).epsilon
    table = compose(*map(FDP.of, parts))
    assert optimal <= table.to_approximate(delta).epsilon <= optimal * 1.001
    # Named as cases, they are composed without a grid.
    assert compose(*map(FDP.of, parts), delta=delta).epsilon == optimal


def test_f_dp_composition_with_failures_is_the_optimal_one():
    parts = [ApproximateDP(0.3, 1e-3)] * 6
    optimal = compose(*parts, delta=0.02).epsilon
    table = compose(*map(FDP.of, parts))
    assert optimal <= table.to_approximate(0.02).epsilon <= optimal * 1.001


@pytest.mark.slow
def test_f_dp_composition_of_laplace_noise_agrees_with_another_accountant():
    pld = pytest.importorskip("dp_accounting.pld.privacy_loss_distribution")
    f = FDP(lambda alpha: float(laplace.cdf(laplace.isf(alpha) - 0.5)))
    ours = compose(*[f] * 8, delta=1e-5).epsilon
    theirs = [
        pld.from_laplace_mechanism(
            2.0, sensitivity=1.0, pessimistic_estimate=side, value_discretization_interval=1e-4
        )
        .self_compose(8)
        .get_epsilon_for_delta(1e-5)
        for side in (False, True)
    ]
    assert theirs[0] <= ours <= theirs[1] * 1.002
    assert ours < compose(*[PureDP(0.5)] * 8, delta=1e-5).epsilon


@pytest.mark.slow
def test_f_dp_composes_with_every_other_measure():
    f = FDP(Statements((0.0, 0.5, 1.0, 1.5), (0.2, 0.05, 1e-3, 1e-6)))
    others = [PureDP(0.2), ApproximateDP(0.1, 1e-7), GaussianDP(0.3), ZeroConcentratedDP(0.01)]
    before = f.to_approximate(1e-5).epsilon
    for other in (*others, RenyiDP([2, 4, 8, 16], [0.02, 0.04, 0.08, 0.16])):
        whole = compose(f, other, delta=1e-5)
        assert before < whole.epsilon < before + other.to_approximate(5e-6).epsilon + 1
        assert compose(f, other).to_approximate(1e-5).epsilon == pytest.approx(whole.epsilon)


@pytest.mark.parametrize(
    ("function", "match"),
    [
        (lambda alpha: 1 - alpha**2, "from 0 to 1 - alpha"),
        (lambda alpha: 1 - alpha, "below 1 - alpha somewhere"),
        (lambda alpha: alpha * (1 - alpha), "not increase"),
        (lambda alpha: 0.5 * (1 - alpha**2) * (1 - alpha), "be convex"),
        (lambda alpha: math.nan, "from 0 to 1 - alpha"),
        (lambda alpha: "no", "return a number"),
        (lambda: 0.5, "return a number"),
        (0.5, "tradeoff must be"),
        (None, "tradeoff must be"),
    ],
)
def test_what_is_no_trade_off_function_gets_a_sentence(function, match):
    with pytest.raises(GuaranteeError, match=match):
        FDP(function)


# ---------------------------------------------------------------- parallel releases


def test_in_parallel_the_weakest_guarantee_is_that_of_all():
    assert compose(PureDP(0.5), PureDP(2.0), PureDP(1.0), parallel=True) == PureDP(2.0)
    assert compose(GaussianDP(3.0), GaussianDP(4.0), parallel=True) == GaussianDP(4.0)
    both = compose(ZeroConcentratedDP(0.1), PureDP(1.0), parallel=True)
    assert both == ZeroConcentratedDP(math.tanh(0.5))
    pairs = compose(ApproximateDP(0.5, 0.2), ApproximateDP(1.0, 0.1), PureDP(2.0), parallel=True)
    assert pairs == ApproximateDP(2.0, 0.2)
    orders = compose(RenyiDP([2, 4], [0.2, 1.0]), RenyiDP([2, 4], [0.3, 0.5]), parallel=True)
    assert orders == RenyiDP([2, 4], [0.3, 1.0])
    kept = compose(PureDP(1.0, **LABELS), PureDP(3.0, **LABELS), parallel=True)
    assert (kept.neighbours, kept.unit) == tuple(LABELS.values())


def test_in_parallel_with_delta_and_for_trade_off_functions():
    parts = [PureDP(1.0), GaussianDP(1.0), ZeroConcentratedDP(0.3), RenyiDP(8, 1.0)]
    worst = max(part.to_approximate(1e-5).epsilon for part in parts)
    assert compose(*parts, parallel=True, delta=1e-5) == ApproximateDP(worst, 1e-5)
    table = compose(FDP.of(PureDP(1.0)), FDP.of(GaussianDP(1.0)), parallel=True)
    for epsilon in (0.0, 0.4, 0.9, 2.0):
        worse = max(PureDP(1.0).delta(epsilon), GaussianDP(1.0).delta(epsilon))
        assert worse * (1 - 1e-12) <= table.delta(epsilon) <= worse + 1e-4
    with pytest.raises(GuaranteeError, match="delta must be given"):
        compose(ApproximateDP(1.0, 0.1), GaussianDP(1.0), parallel=True)
    with pytest.raises(GuaranteeError, match="same neighbours"):
        compose(PureDP(1.0, neighbours="add_remove"), PureDP(1.0), parallel=True)
    with pytest.raises(GuaranteeError, match="parallel must be True or False"):
        compose(PureDP(1.0), parallel="yes")


def test_two_histograms_of_disjoint_parts_leak_as_the_weaker_one_alone():
    # Two counts with two-sided geometric noise: the records of one region, and of another. All
    # neighbours (one record added to one of them) are enumerated on a window.
    noise = [
        {k: math.tanh(e / 2) * math.exp(-e * abs(k)) for k in range(-60, 61)} for e in (0.5, 1)
    ]
    worst = 0.0
    for change in ((1, 0), (0, 1)):
        for a, b in itertools.product(range(-20, 21), repeat=2):
            before = noise[0][a] * noise[1][b]
            after = noise[0][a - change[0]] * noise[1][b - change[1]]
            worst = max(worst, abs(math.log(before / after)))
    assert worst == pytest.approx(compose(PureDP(0.5), PureDP(1.0), parallel=True).epsilon)
    # A record that moves from one to the other changes both.
    moved = math.log(noise[0][0] / noise[0][1]) + math.log(noise[1][0] / noise[1][1])
    assert moved == pytest.approx(1.5)


# ---------------------------------------------------------------- on file


def test_renyi_budgets_are_kept_at_each_order_and_on_file(tmp_path):
    whole = RenyiDP([2, 8], [0.3, 1.0], neighbours="add_remove")
    part = RenyiDP([2, 8], [0.1, 0.2], neighbours="add_remove")
    assert from_plain(json.loads(json.dumps(to_plain(whole)))) == whole
    assert budget.covers(whole, [part] * 3)
    assert not budget.covers(whole, [part] * 4)
    assert budget.left(whole, [part] * 3) is None
    rest = budget.left(whole, [part])
    assert budget.covers(whole, [part, rest])
    assert rest.orders == pytest.approx({2.0: 0.2, 8.0: 0.8})
    assert budget.left(whole, []) == whole
    together = budget.together([part] * 3)
    assert all(together.orders[order] >= part.orders[order] * 3 - 1e-18 for order in (2.0, 8.0))
    ledger = Ledger(tmp_path / "ledger.jsonl", whole)
    ledger.charge(part, what="first")
    ledger.charge(ZeroConcentratedDP(0.05, neighbours="add_remove"), what="second")
    assert Ledger(tmp_path / "ledger.jsonl").spent.orders == pytest.approx({2.0: 0.2, 8.0: 0.6})
    with pytest.raises(GuaranteeError, match="divergences of all orders of the budget"):
        budget.covers(whole, [RenyiDP(2, 0.01, neighbours="add_remove")])
    with pytest.raises(GuaranteeError, match="trade-off function"):
        Ledger(tmp_path / "other.jsonl", FDP.of(PureDP(1.0, neighbours="add_remove")))
    with pytest.raises(GuaranteeError, match="to_approximate"):
        to_plain(FDP.of(PureDP(1.0)))
