"""Audits: the auditor itself, every mechanism, and the violation of PRECISE."""

import itertools
import random
from fractions import Fraction

import numpy as np
import pytest
from scipy import stats

import pymc_privacy as pmp
from pymc_privacy.errors import GuaranteeError
from pymc_privacy.sanitize import (
    audit,
    density_bounds,
    p3_histogram,
    releases,
    repeated,
)
from pymc_privacy.sanitize.audit import Audit
from pymc_privacy.sanitize.exact_noise import ExactNoise, SimulatedNoise
from pymc_privacy.sanitize.exponential_choice import cells_of, choose, middle_of, select
from pymc_privacy.sanitize.precise import VARIANTS
from pymc_privacy.sanitize.quantiles import QuantilePlan
from tests.stochastic import FALSE_ALARM, assert_mean, seed_of

FRACTION = 0.8  # a sensitivity that is 20% short


def generator(request):
    return np.random.default_rng(seed_of(request))


# ---------------------------------------------------------------- the auditor


def test_on_equal_data_nothing_is_found(request):
    found = audit(generator(request), repeated(pmp.Laplace(scale=1.0)), 3.0, 3.0)
    assert found.epsilon <= 0
    assert found.mu <= 0


def test_the_bounds_are_those_of_clopper_and_pearson(request):
    # A coin: probability 0.2 of a one on the first data set, 0.1 on the second.
    outcomes = {}

    def coin(rng, probability, draws):
        outcomes[probability] = rng.random(draws) < probability
        return outcomes[probability].astype(float)

    draws = 20_000
    found = audit(generator(request), coin, 0.2, 0.1, draws=draws)
    ones = [int(outcomes[p][draws // 2 :].sum()) for p in (0.2, 0.1)]
    law = {"alternative": "two-sided", "p": 0.5}
    exact = [
        stats.binomtest(k, draws // 2, **law).proportion_ci(1 - FALSE_ALARM, "exact") for k in ones
    ]
    assert found.likelier == pytest.approx(exact[0].low, rel=1e-9)
    assert found.rarer == pytest.approx(exact[1].high, rel=1e-9)
    assert found.epsilon <= np.log(2)


def test_the_bound_is_about_the_half_that_did_not_choose(request):
    # Noise alone: the training half finds an event by chance, the other half must not confirm it.
    rng = generator(request)
    alarms = [
        audit(rng, lambda r, _, n: r.normal(size=(n, 6)), 0, 0, draws=2000, false_alarm=0.05)
        for _ in range(100)
    ]
    # At most 5% of false alarms: 100 audits have 18 or more with a probability below 1e-6.
    assert sum(a.epsilon > 0 for a in alarms) < stats.binom.isf(FALSE_ALARM, 100, 0.05)


def test_an_event_that_delta_allows_is_no_violation():
    found = Audit(likelier=0.1, rarer=0.01, delta=0.2, feature=0, false_alarm=1e-6)
    assert found.epsilon == -np.inf


def test_a_delta_that_allows_everything_leaves_nothing_to_find(request):
    found = audit(generator(request), repeated(pmp.Laplace(scale=1.0)), 0.0, 0.1, delta=0.999)
    assert found.epsilon < 0


def test_too_few_draws_are_refused():
    with pytest.raises(GuaranteeError, match=r"1000 draws or more.*got 10"):
        audit(np.random.default_rng(0), repeated(pmp.Laplace(scale=1.0)), 0, 1, draws=10)


def test_several_columns_are_looked_at_together(request):
    # Each column leaks a third of epsilon, and all of them leak it.
    three = pmp.Laplace(epsilon=1.0, sensitivity=3.0)
    pair = np.zeros(3), np.ones(3)

    def unknown(rng, statistic, draws):
        return np.round(repeated(three)(rng, statistic, draws), 6)

    # All below 0 has probability 1/8: the bounds on 100,000 draws leave 0.89 of 1.
    found = audit(generator(request), unknown, *pair)
    assert 0.8 < found.epsilon <= 1.0
    known = audit(generator(request), three, *pair)
    assert known.feature == "likelihood ratio"
    assert 0.8 < known.epsilon <= 1.0


def test_columns_that_depend_on_each_other_are_looked_at_together(request):
    # Both columns are coins; they agree with probability 0.8, or differ.
    def coins(rng, agree, draws):
        first = rng.integers(0, 2, draws)
        return np.stack([first, first ^ (rng.random(draws) >= agree)], axis=1)

    found = audit(generator(request), coins, 0.8, 0.2)
    assert 0.9 * np.log(4) < found.epsilon <= np.log(4)


@pytest.mark.parametrize("columns", [1, 3])
def test_the_lowest_bits_of_float_noise_tell_the_statistic(columns, request):
    def naive(rng, statistic, draws):
        return statistic + rng.laplace(scale=columns, size=(draws, columns))

    found = audit(generator(request), naive, 0.0, 1.0)
    assert found.epsilon > 5.0
    assert "lowest bit" in found.feature
    plain = audit(generator(request), naive, 0.0, 1.0, low_bits=False)
    assert plain.epsilon <= 1.0
    # What is promised about a mechanism is its law; its simulator is not for publishing.
    mechanism = pmp.Laplace(epsilon=1.0, sensitivity=1.0)
    assert audit(generator(request), mechanism, 0.0, 1.0).epsilon <= 1.0
    assert audit(generator(request), mechanism, 0.0, 1.0, low_bits=True).epsilon > 5.0


def test_outputs_that_are_not_finite_are_outcomes_like_others(request):
    def broken(rng, probability, draws):
        return np.where(rng.random(draws) < probability, np.nan, np.inf)

    found = audit(generator(request), broken, 0.2, 0.1)
    assert 0.8 * np.log(2) < found.epsilon <= np.log(2)


def test_what_was_learned_by_chance_is_not_confirmed(request):
    # Many features of few draws, all of them noise: at most 5% of false alarms.
    rng = generator(request)
    noise = pmp.Laplace(scale=(1.0, 2.0, 3.0))
    alarms = [audit(rng, noise, [0] * 3, [0] * 3, draws=2000, false_alarm=0.05) for _ in range(60)]
    assert sum(a.epsilon > 0 for a in alarms) < stats.binom.isf(FALSE_ALARM, 60, 0.05)


# ---------------------------------------------------------------- every mechanism

PURE = [pmp.Laplace, pmp.DiscreteLaplace]
GAUSSIAN = [pmp.Gaussian, pmp.DiscreteGaussian]


@pytest.mark.parametrize("epsilon", [0.2, 1.0, 3.0])
@pytest.mark.parametrize("kind", PURE)
def test_pure_mechanisms_stay_below_their_epsilon(kind, epsilon, request):
    mechanism = kind(epsilon=epsilon, sensitivity=10.0)
    found = audit(generator(request), repeated(mechanism), 0, 10)
    assert 0.5 * epsilon < found.epsilon <= epsilon


@pytest.mark.parametrize("kind", PURE)
def test_a_sensitivity_twenty_percent_short_is_caught(kind, request):
    mechanism = kind(epsilon=1.0, sensitivity=FRACTION * 10.0)
    found = audit(generator(request), repeated(mechanism), 0, 10)
    assert found.epsilon > 1.0


@pytest.mark.parametrize("kind", GAUSSIAN)
def test_gaussian_mechanisms_stay_below_their_profile(kind, request):
    promise = pmp.ZeroConcentratedDP(0.5)
    delta = promise.delta(1.0)
    mechanism = kind(rho=0.5, sensitivity=10.0)
    assert audit(generator(request), repeated(mechanism), 0, 10, delta=delta).epsilon <= 1.0
    # Of continuous noise more is known: it is 1-GDP, and tightly so.
    tight = audit(generator(request), repeated(mechanism), 0, 10, delta=pmp.GaussianDP(1).delta(1))
    assert 0.8 < tight.epsilon <= 1.0
    assert 0.9 < tight.mu <= 1.0


@pytest.mark.parametrize("kind", GAUSSIAN)
def test_gaussian_noise_twenty_percent_short_is_caught(kind, request):
    mechanism = kind(rho=0.5, sensitivity=FRACTION * 10.0)
    delta = pmp.GaussianDP(1.0).delta(1.0)
    found = audit(generator(request), repeated(mechanism), 0, 10, delta=delta)
    assert found.epsilon > 1.0
    assert found.mu > 1.0


# ---------------------------------------------------------------- releases


def released(noise_of, sensitivity=None):
    """Return the whole path of a release, from records to published values, many times."""

    def many(rng, records, draws):
        plan = releases.plan_release(
            bounds=[(0, 1), (-1, 1)],
            epsilon=1.0,
            neighbours="replace_one",
            sensitivity=sensitivity,
        )
        scale = Fraction(plan.calibration.scale)
        drawn = np.reshape(noise_of(rng).laplace(scale, 2 * draws), (draws, 2))
        return plan.lattice.granularity * (np.array(plan.totals(records).integers) + drawn)

    return many


def along_the_worst_direction(outputs):
    """Return both columns, and the sum of the two log ratios that tell the neighbours apart."""
    low, high = np.array([9.0, -0.5]), np.array([10.0, 1.5])
    ratio = np.abs(outputs - low) - np.abs(outputs - high)
    return [*outputs.T, ratio.sum(axis=1)]


ROWS = np.array([[0.9, 0.0]] * 10)
WORST = [np.vstack([ROWS, corner]) for corner in ([0.0, -0.5], [1.0, 1.5])]


def test_a_release_stays_below_its_epsilon_on_worst_case_neighbours(request):
    # From one corner of the bounds to the other; 1.5 is clipped to 1.
    found = audit(
        generator(request), released(SimulatedNoise), *WORST, features=along_the_worst_direction
    )
    assert 0.4 < found.epsilon <= 1.0


def test_the_published_path_itself_stays_below_its_epsilon(request):
    # Exact noise from the operating system; fewer draws, because each takes its time.
    found = audit(
        generator(request),
        released(lambda rng: ExactNoise()),
        *WORST,
        draws=12_000,
        features=along_the_worst_direction,
    )
    assert 0.2 < found.epsilon <= 1.0


def test_a_wrong_assertion_about_the_sensitivity_is_caught(request):
    corners = [np.vstack([ROWS, corner]) for corner in ([0.0, -1.0], [1.0, 1.0])]
    found = audit(
        generator(request),
        released(SimulatedNoise, sensitivity=1.5),
        *corners,
        features=along_the_worst_direction,
    )
    assert found.epsilon > 1.0


# ---------------------------------------------------------------- quantiles


def below(rng):
    return random.Random(int(rng.integers(2**62))).randrange


@pytest.mark.slow
def test_quantiles_by_the_exponential_mechanism_stay_below_their_epsilon(request):
    rng = generator(request)

    def posterior(rng, draws_of_posterior, draws):
        guarantee = pmp.PureDP(2.0, neighbours="replace_one")
        plan = QuantilePlan("draws", 0.95, (0.0, 1.0), guarantee, "x")
        source, cells = below(rng), plan.cells(draws_of_posterior)
        return np.array([plan.drawn(source, cells) for _ in range(draws)])

    # The posterior may change altogether.
    found = audit(rng, posterior, np.full(20, 0.1), np.full(20, 0.9), draws=10_000)
    assert 0.1 < found.epsilon <= 2.0

    def of_records(rng, records, draws):
        source, cells = below(rng), cells_of(np.array(records), (0.0, 1.0))
        return np.array([select(source, cells, Fraction(3), Fraction(1)) for _ in range(draws)])

    found = audit(rng, of_records, [0.3] * 3 + [0.7] * 3, [0.3] * 4 + [0.7] * 2, draws=10_000)
    assert 0.1 < found.epsilon <= 2.0


def test_a_cell_is_drawn_with_the_stated_probability(request):
    # Three values: gaps of 30, 40, 20 and 10 percent of the cells, ranks 0 to 3, target 1.
    source, bounds = below(generator(request)), (0.0, 1.0)
    cells = cells_of(np.array([0.3, 0.7, 0.9]), bounds)
    drawn = [select(source, cells, Fraction(1), Fraction(1, 2)) for _ in range(5000)]
    draws = np.array([middle_of(cell, bounds) for cell in drawn])
    weights = np.array([0.3, 0.4, 0.2, 0.1]) * np.exp(-np.array([1, 0, 1, 2]) / 2)
    for k, (low, high) in enumerate(itertools.pairwise([0, 0.3, 0.7, 0.9, 1])):
        assert_mean((draws > low) & (draws < high), weights[k] / weights.sum(), what=f"gap {k}")


def test_bits_are_continued_until_the_choice_is_settled():
    # Two equal weights, and bits that are exactly on the edge as far as the first draw tells.
    bits = iter([1 << 127, 1 << 127, 0])
    assert choose(lambda n: next(bits), [1, 1], [Fraction(1, 3), Fraction(1, 3)]) == 1
    assert next(bits) == 0


def test_quantiles_of_data_are_near_the_truth(request):
    records = generator(request).normal(50, 10, size=1000)
    options = {"bounds": (0, 200), "epsilon": 1.0, "neighbours": "replace_one"}
    for q in (0.1, 0.5, 0.9):
        found = pmp.private_quantile(records, q, **options)
        # Ranks are off by more than 2 log(1000 * 200 / 10) / epsilon once in a thousand runs.
        low, high = np.quantile(records, [q - 0.05, q + 0.05])
        assert low < found < high


@pytest.mark.parametrize("values", [[1.0] * 5, [0.0] * 5, [0.9999999] * 5, [-3.0, 7.0]])
@pytest.mark.parametrize("q", [0.01, 0.99])
def test_quantiles_of_records_at_the_ends_are_found_in_time(values, q):
    options = {"bounds": (0.0, 1.0), "epsilon": 5.0, "neighbours": "replace_one"}
    assert 0 < pmp.private_quantile(values, q, **options) < 1
    assert 0 < pmp.pp_quantile(values, q, bounds=(0.0, 1.0), epsilon=5.0) < 1


def test_quantiles_refuse_bad_input(tmp_path):
    good = {"bounds": (0, 1), "epsilon": 1.0}
    with pytest.raises(GuaranteeError, match=r"quantile must be a number in \(0, 1\)"):
        pmp.pp_quantile([0.5], 1.0, **good)
    with pytest.raises(pmp.errors.ReleaseError, match="draws must be finite"):
        pmp.pp_quantile([np.nan], 0.5, **good)
    with pytest.raises(pmp.errors.ReleaseError, match="records must be finite"):
        pmp.private_quantile([], 0.5, neighbours="replace_one", **good)
    ledger = pmp.Ledger(tmp_path / "ledger", pmp.PureDP(1.0, neighbours="replace_one"))
    pmp.pp_interval([0.5], ledger=ledger, **good)
    with pytest.raises(pmp.errors.BudgetError):
        pmp.pp_quantile([0.5], 0.5, ledger=ledger, **good)


# ---------------------------------------------------------------- PRECISE


def precise_ends(size, samples, **options):
    """Return PRECISE's interval of a proportion as a function of the number of successes."""
    limits = {"bounds": (0.03, 0.97), "density_bound": density_bounds.bernoulli((0.03, 0.97))}
    ends = (0.025, 0.975)

    def many(rng, successes, draws):
        posteriors = rng.beta(1 + successes, 1 + size - successes, (draws, samples))
        options_ = {"samples": samples, **limits, **options}
        return np.array([pmp.precise_quantiles(rng, p, ends, **options_) for p in posteriors])

    return many


@pytest.mark.parametrize("variant", VARIANTS)
def test_precise_is_not_as_private_as_it_claims(variant, request):
    # Twenty records, one of them changed from 0 to 1; nominal epsilon 0.1.
    ends = precise_ends(20, 50, epsilon=0.1, variant=variant)
    found = audit(generator(request), ends, 6, 7, draws=6000)
    assert found.epsilon > 0.1


def test_neither_is_the_histogram_without_collapsing(request):
    # Theorem 5 by itself: the whole histogram, the exact G of these very neighbours.
    size, nominal, edges = 100, 1.0, np.linspace(0.2, 0.8, 121)
    laws = {k: stats.beta(1 + k, 1 + size - k) for k in (50, 51)}
    fine = np.linspace(0.2, 0.8, 10_001)
    largest = np.abs(laws[50].pdf(fine) - laws[51].pdf(fine)).max()
    width = edges[1] - edges[0]
    samples = int(1 / (2 * width * largest))
    assert 2 * samples * width * largest <= 1
    masses = {k: np.diff(law.cdf(edges)) for k, law in laws.items()}
    # The best linear statistic: differences over variances, Poisson and Laplace.
    weights = (masses[50] - masses[51]) / (samples * masses[50] + 2 / nominal**2)
    options = {"bounds": (0.2, 0.8), "bin_width": width, "epsilon": nominal, "nonnegative": False}

    def many(rng, successes, draws):
        posteriors = laws[successes].rvs((draws, samples), random_state=rng)
        return np.array([weights @ p3_histogram(rng, p, **options).counts for p in posteriors])

    found = audit(generator(request), many, 50, 51, draws=20_000)
    assert found.epsilon > nominal
    # What joint accounting supports is true, if useless.
    assert found.epsilon < pmp.joint_guarantee(samples, epsilon=nominal).epsilon


@pytest.mark.slow
def test_precise_exceeds_its_epsilon_on_the_papers_own_example(request):
    # Adult: 108 of 500, nominal 0.1.
    ends = precise_ends(500, 269, epsilon=0.1)
    found = audit(generator(request), ends, 108, 109, draws=40_000)
    assert found.epsilon > 0.2


def test_precise_is_not_gaussian_private_either(request):
    found = audit(generator(request), precise_ends(20, 50, mu=0.1), 6, 7, draws=6000)
    assert found.mu > 0.2
