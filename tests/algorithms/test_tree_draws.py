"""Counts that are drawn at once, against enumeration and sum-product that uses nothing of ours."""

import numpy as np
import pytest
from scipy import special

from pymc_privacy.algorithms import lattice_walk
from pymc_privacy.algorithms.numerics.integer_kernel import some_table
from pymc_privacy.algorithms.proposals import tree_draws
from tests import references_tree
from tests.algorithms.test_lattice_tree import RATES, assert_means, county, enumerated
from tests.stochastic import assert_mean, seed_of

ALL = [np.arange(4)]


def small(second_scale=1.2):
    """The noise and the exact total that `enumerated` has, but for one bound."""
    rows = np.array([[1, 1, 0, 0], [0, 0, 1, 1]])
    return lattice_walk.stack(
        [np.eye(4, dtype=int), rows[:1], rows[1:]],
        [np.array([3, -1, 5, 2]), 4.0, 6.0],
        [2.0, 1.5, second_scale],
        [True, True, False],
        [(rows[:1], 3.0, 6.0)],
    )


def drawn_often(rng, noisy, exact, groups, start, rates, draws):
    trees = tree_draws.trees_of(noisy, exact, groups)
    counts, kept = start, np.empty((draws, len(start)), dtype=int)
    for i in range(draws):
        counts, info = tree_draws.step(rng, counts, trees, measurements=noisy, rates=rates)
        kept[i] = counts
    return kept, info


@pytest.mark.parametrize("groups", [ALL, [np.array([0, 2]), np.array([1, 2, 3])]])
def test_draws_have_the_law_of_enumeration(groups, request):
    tables, weight, _ = enumerated()
    rng = np.random.default_rng(seed_of(request))
    start, exact = np.array([2, 2, 3, 2]), np.ones((1, 4), dtype=int)
    drawn, info = drawn_often(rng, small(), exact, groups, start, RATES, 8000)
    assert info.fraction == 1.0
    assert (drawn.sum(axis=1) == 9).all()
    for i in range(4):
        assert_mean(drawn[None, :, i], float(weight @ tables[:, i]), what=f"E c{i}")
    both = tables[:, 0] * tables[:, 3]
    assert_mean((drawn[:, 0] * drawn[:, 3])[None], float(weight @ both), what="E c0 c3")


def test_draws_that_believe_a_total_less_are_caught():
    """The mutant."""
    tables, weight, _ = enumerated()
    start, exact = np.array([2, 2, 3, 2]), np.ones((1, 4), dtype=int)
    rng = np.random.default_rng(1)
    drawn, _ = drawn_often(rng, small(12.0), exact, ALL, start, RATES, 8000)
    with pytest.raises(AssertionError, match="z ="):
        assert_mean(drawn[None, :, 2], float(weight @ tables[:, 2]), what="E c2")


def test_a_county_has_the_means_of_sum_product_and_each_draw_is_new(request):
    root, rates, noisy, _, bounded, exact, total = county(np.random.default_rng(12))
    most = np.where(rates > 0, np.inf, 0.0)
    start = some_table(exact, np.array([total]), 0.0, most, bounded)
    rng = np.random.default_rng(seed_of(request))
    drawn, _ = drawn_often(rng, noisy, exact, [np.arange(rates.size)], start, rates, 4000)
    assert_means(drawn, references_tree.means(root))
    largest = drawn[:, np.argmax(rates)].astype(float)
    assert_mean((largest[1:] - largest.mean()) * (largest[:-1] - largest.mean()), 0.0)


@pytest.mark.parametrize("checked", [True, False])
def test_the_law_stays_whatever_weights_are_left_out(checked, request, monkeypatch):
    """From draws of the law, one step by windows that are far too small; unchecked they show."""
    tables, weight, _ = enumerated()
    rng = np.random.default_rng(seed_of(request))
    noisy, starts = small(), tables[rng.choice(len(tables), p=weight, size=1500)]
    # Compiled code has the constant that it was compiled with.
    for name in ("_draw", "_leaf", "_sum", "_trimmed", "_downwards"):
        monkeypatch.setattr(tree_draws, name, getattr(tree_draws, name).py_func)
    monkeypatch.setattr(tree_draws, "_TRIM", 0.2)
    [trees] = tree_draws.trees_of(noisy, np.ones((1, 4), dtype=int), ALL)
    moved = starts.copy()
    for counts in moved:
        if not checked:
            # As if they had been in the window: the most likely table always is.
            counts[:] = tables[np.argmax(weight)]
        tree_draws._draw(rng, counts, noisy.totals(counts), RATES, trees, noisy)
    mean = weight @ tables
    spread, expected = (((t - mean) ** 2).sum(axis=1) for t in (moved, tables))
    if checked:
        assert_mean(spread, float(weight @ expected), what="E |c - E c|^2")
        assert 0.1 < np.mean((moved != starts).any(axis=1)) < 0.9
    else:
        with pytest.raises(AssertionError, match="z ="):
            assert_mean(spread, float(weight @ expected), what="E |c - E c|^2")


def test_cells_whose_totals_cross_are_no_tree():
    crossed = np.array([[1, 1, 0], [0, 1, 1]])
    noisy = lattice_walk.stack([crossed], [np.zeros(2)], [1.0], [True])
    none = np.zeros((0, 3), dtype=int)
    assert not tree_draws.trees_of(noisy, none, [np.arange(3)])
    assert len(tree_draws.trees_of(noisy, none, [np.array([0, 2]), np.array([1])])) == 2
    # Two of one cell and one of another are no sum of theirs; where all are known nothing moves.
    uneven = lattice_walk.stack([np.array([[2, 1, 0]])], [np.zeros(1)], [1.0], [True])
    assert not tree_draws.trees_of(uneven, none, [np.arange(3)])
    assert not tree_draws.trees_of(noisy, np.eye(3, dtype=int), [np.array([0, 2])])


def test_counts_far_from_where_they_could_be_drawn_are_left(request):
    noisy = lattice_walk.stack([np.eye(2, dtype=int)], [np.array([0.0, 3.0])], [0.5], [True])
    exact = np.ones((1, 2), dtype=int)
    [trees] = tree_draws.trees_of(noisy, exact, [np.arange(2)])
    counts, info = tree_draws.step(
        np.random.default_rng(1),
        np.array([400, 3]),
        [trees],
        measurements=noisy,
        rates=np.array([1.0, 1.0]),
    )
    assert counts.tolist() == [400, 3]
    assert info.fraction == 0.0


@pytest.mark.parametrize("rate", [1e12, np.inf, np.nan])
def test_rates_that_no_count_is_near_are_left_without_delay(rate):
    """Of a cell that nothing measures, as a chain may meet it on its way to the posterior."""
    noisy = lattice_walk.stack([np.array([[0, 1]])], [np.array([3.0])], [2.0], [True])
    none = np.zeros((0, 2), dtype=int)
    [trees] = tree_draws.trees_of(noisy, none, [np.arange(2)])
    rng, rates = np.random.default_rng(1), np.array([rate, 2.0])
    counts, info = tree_draws.step(rng, np.array([5, 3]), [trees], measurements=noisy, rates=rates)
    assert counts[0] == 5
    assert info.fraction == 0.5


def test_large_counts_with_unequal_entries_follow_their_law(request):
    """A total that counts both cells twice, and Laplace noise: all tables added up."""
    noisy = lattice_walk.stack([np.array([[2, 2]])], [np.array([210.0])], [3.0], [False])
    rates = np.array([60.0, 30.0])
    first, second = np.meshgrid(np.arange(160), np.arange(120), indexing="ij")
    log_weight = special.xlogy(first, rates[0]) - special.gammaln(first + 1.0)
    log_weight += special.xlogy(second, rates[1]) - special.gammaln(second + 1.0)
    log_weight -= abs(210.0 - 2 * (first + second)) / 3.0
    weight = np.exp(log_weight - special.logsumexp(log_weight))
    rng = np.random.default_rng(seed_of(request))
    none = np.zeros((0, 2), dtype=int)
    drawn, _ = drawn_often(rng, noisy, none, [np.arange(2)], np.array([50, 50]), rates, 6000)
    assert_mean(drawn[:, 0], float((weight * first).sum()), what="E c0")
    assert_mean(drawn.sum(axis=1) ** 2, float((weight * (first + second) ** 2).sum()))
