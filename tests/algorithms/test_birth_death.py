"""Jumps and single moves of the size on their own: exact law, ends of the support, mutants."""

import math

import numpy as np
import pytest
from numba.extending import register_jitable
from scipy import stats

import pymc_privacy as pmp
from pymc_privacy.algorithms import birth_death
from pymc_privacy.algorithms.noise import noise
from tests import references
from tests.stochastic import Z_LIMIT, assert_law, seed_of, z_of_mean

CHANCE, CAPACITY, RELEASE, SCALE = 0.4, 14, 2.3, 1.5


@pytest.fixture
def rng(request):
    return np.random.default_rng(seed_of(request))


def given_noise():
    mechanism = pmp.Laplace(scale=SCALE)
    return noise([type(mechanism).formula], [RELEASE], [mechanism.parameters])


def log_prior(least):
    """Return a prior that is neither flat nor monotone, from ``least`` to the capacity."""
    sizes = np.arange(CAPACITY + 1)
    return np.where(sizes >= least, stats.nbinom.logpmf(sizes, 2.0, 0.3), -np.inf)


def exact(least):
    """Return P(n | release) for Bernoulli records, by enumeration of n and their sum."""
    prior, sizes = log_prior(least), np.arange(CAPACITY + 1)
    likelihood = [
        np.dot(
            stats.binom.pmf(np.arange(n + 1), n, CHANCE),
            np.exp(references.laplace(RELEASE - np.arange(n + 1), SCALE)),
        )
        for n in sizes
    ]
    weights = np.exp(prior) * likelihood
    return references.Integers(weights / weights.sum())


def worst_z(draws, least):
    """Return how far the distribution of the size is from the exact one, at every size."""
    law = exact(least)
    return max(abs(z_of_mean(draws <= n, law.cdf(n))) for n in range(max(least, 1), 9))


def fresh(rng, rows):
    return (rng.random((1, rows)) < CHANCE).astype(float)


def jumped_sizes(rng, least, *, rounds=20_000, mutate=lambda size, jumps: jumps):
    """Return the size after each round of a few jumps; all records are then drawn afresh.

    Given the size alone a draw of all records is kept with the probability of a sweep's block
    update, so that the pair (size, records) has the posterior as its law.
    """
    given, table = given_noise(), log_prior(least)
    size, records = 3, fresh(rng, 3)
    sizes = np.empty(rounds)
    for k in range(rounds):
        proposal = fresh(rng, size)
        ratio = references.laplace(RELEASE - proposal.sum(), SCALE)
        ratio = ratio - references.laplace(RELEASE - records.sum(), SCALE)
        if np.log(rng.random()) < ratio:
            records = proposal
        jumps = mutate(size, birth_death.draw_jumps(rng, 3, 2.0))
        room = min(CAPACITY - size, int(jumps.clip(min=0).sum()))
        rows = np.concatenate([records, fresh(rng, room)], axis=1)
        size, _ = birth_death.jump(
            rng, rows, size, jumps, noise=given, log_size=table, first=0, capacity=CAPACITY
        )
        records = rows[:, :size]
        sizes[k] = size
    return sizes[None]


@pytest.mark.parametrize("least", [0, 1])
def test_jumps_keep_the_exact_law(rng, least):
    assert worst_z(jumped_sizes(rng, least), least) < Z_LIMIT


def test_a_direction_that_is_forced_at_the_end_is_noticed(rng):
    def mutate(size, jumps):
        return abs(jumps) if size <= 1 else jumps

    assert worst_z(jumped_sizes(rng, 1, mutate=mutate), 1) > Z_LIMIT


def single_sizes(rng, *, rounds=40_000):
    given, table = given_noise(), log_prior(1)
    size, records = 3, fresh(rng, 3)
    sizes = np.empty(rounds)
    for k in range(rounds):
        proposal = fresh(rng, size)
        ratio = references.laplace(RELEASE - proposal.sum(), SCALE)
        ratio = ratio - references.laplace(RELEASE - records.sum(), SCALE)
        if np.log(rng.random()) < ratio:
            records = proposal
        rows = np.concatenate([records, fresh(rng, 1)], axis=1)
        new, gone, _ = birth_death.single(
            rng, rows, size, noise=given, log_size=table, first=0, capacity=CAPACITY
        )
        if gone >= 0:
            rows[:, gone] = rows[:, size - 1]
        size, records = new, rows[:, :new]
        sizes[k] = size
    return sizes[None]


def test_single_moves_keep_the_exact_law(rng):
    assert worst_z(single_sizes(rng), 1) < Z_LIMIT


@pytest.mark.parametrize(
    "wrong",
    [lambda size, new, least: 0.0, lambda size, new, least: -_log_of_way_back(size, new, least)],
    ids=["left out", "upside down"],
)
def test_a_wrong_ratio_at_the_least_size_is_noticed(rng, monkeypatch, wrong):
    monkeypatch.setattr(birth_death, "log_of_way_back", wrong)
    assert worst_z(single_sizes(rng), 1) > Z_LIMIT


_log_of_way_back = birth_death.log_of_way_back


def test_swapped_densities_are_noticed(rng, monkeypatch):
    compiled = birth_death._compile_density
    monkeypatch.setattr(
        birth_death,
        "_compile_density",
        lambda laws: lambda *arguments: -compiled(laws)(*arguments),
    )
    assert worst_z(single_sizes(rng), 1) > Z_LIMIT


def test_what_needs_more_room_is_refused_and_counted(rng):
    rows = fresh(rng, CAPACITY)
    jumps = np.array([5, -20, 5])
    size, info = birth_death.jump(
        rng,
        rows,
        CAPACITY - 2,
        jumps,
        noise=given_noise(),
        log_size=log_prior(0),
        first=0,
        capacity=CAPACITY,
    )
    assert (size, info.hits, info.births, info.deaths) == (CAPACITY - 2, 2, 0, 0)


def test_jumps_without_any_release_follow_the_prior(rng):
    table, nothing = log_prior(0), noise([], [], [])
    size, sizes = 3, []
    for _ in range(20_000):
        jumps = birth_death.draw_jumps(rng, 3, 2.0)
        size, _ = birth_death.jump(
            rng,
            np.empty((0, CAPACITY)),
            size,
            jumps,
            noise=nothing,
            log_size=table,
            first=0,
            capacity=CAPACITY,
        )
        sizes.append(size)
    weights = np.exp(table)
    assert_law(np.array(sizes, dtype=float)[None], references.Integers(weights / weights.sum()))


@register_jitable
def no_number_above_four(release, statistic, scale, log_normalizer):
    return math.nan if statistic > 4 else -abs(release - statistic) / scale


@pytest.mark.parametrize("single", [False, True], ids=["jumps", "single"])
def test_a_size_without_a_log_density_is_left(single, rng):
    given = noise([no_number_above_four], [RELEASE], [pmp.Laplace(scale=SCALE).parameters])
    rows, size = np.ones((1, CAPACITY)), 5
    common = {"noise": given, "log_size": log_prior(0), "first": 0, "capacity": CAPACITY}
    for _ in range(50):
        if single:
            size, *_ = birth_death.single(rng, rows, size, **common)
        else:
            jumps = birth_death.draw_jumps(rng, 3, 2.0)
            size, _ = birth_death.jump(rng, rows, size, jumps, **common)
    assert size <= 4


def now_and_then_infinite(rng, rows):
    """Draw records that overflow now and then, though their contributions do not show it."""
    x = rng.standard_normal(rows)
    x[rng.random(rows) < 0.3] = np.inf
    return birth_death.Records([x], np.clip(x, 0, 1)[None])


@pytest.mark.parametrize("jumps", [8, -1], ids=["jumps", "single"])
def test_a_fresh_record_that_is_no_number_is_refused(jumps):
    given = noise([pmp.Laplace.formula], [3.0], [pmp.Laplace(scale=2.0).parameters])
    rng, state = np.random.default_rng(1), birth_death.Records([np.zeros(6)], np.zeros((1, 6)))
    births = moved = 0
    for _ in range(100):
        state, info = birth_death.step(
            rng,
            state,
            draw=now_and_then_infinite,
            noise=given,
            log_size=lambda first, last: np.where(np.arange(first, last + 1) > 0, 0.0, -np.inf),
            capacity=12,
            scale=3.0,
            jumps=jumps,
        )
        births, moved = births + info.jumped.births, moved + info.swept.accepted.sum()
        assert np.isfinite(state.arrays[0]).all()
    assert births
    assert moved


@pytest.mark.parametrize("some", [False, True])
def test_births_and_deaths_are_in_balance(some):
    logs, total, expected = log_prior(0), 0.0, np.zeros(3)
    sizes = np.arange(CAPACITY + 1)
    for n in sizes:
        for ones in range(n + 1):
            weight = np.exp(logs[n] + references.laplace(RELEASE - ones, SCALE))
            weight *= stats.binom.pmf(ones, n, CHANCE)
            total += weight
            records = np.repeat([[0.0, 1.0]], [n - ones, ones], axis=1)
            # One of the records may die, or any of them.
            dying = [(1.0, records)]
            if some and n:
                dying = [((n - ones) / n, np.zeros((1, 1))), (ones / n, np.ones((1, 1)))]
            for born, chance in ((0.0, 1 - CHANCE), (1.0, CHANCE)):
                for share, those in dying:
                    expected += (weight * chance * share) * birth_death.balance(
                        records, np.full((1, 1), born), dying=those, noise=given_noise(),
                        log_size=logs,
                    )  # fmt: skip
    assert np.abs(expected / total).max() < 1e-9
