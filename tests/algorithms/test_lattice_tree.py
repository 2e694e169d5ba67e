"""Counts of a geography against sum-product on its tree, which itself is checked by enumeration."""

import numpy as np
import pytest
from scipy import sparse, special

from pymc_privacy.algorithms import lattice_walk
from pymc_privacy.algorithms.adaptation import lattice_walk as adaptation
from pymc_privacy.algorithms.numerics.integer_kernel import Bounded, fibre_of, some_table
from tests import references_tree
from tests.references_tree import Node
from tests.stochastic import assert_mean, seed_of


def gaussian(release, scale, size):
    return -0.5 * ((release - np.arange(size)) / scale) ** 2


def between(least, most, size):
    totals = np.arange(size)
    return np.where((totals >= least) & (totals <= most), 0.0, -np.inf)


RATES = np.array([2.0, 0.7, 3.0, 1.2])


def small():
    """Two tracts of two blocks: a bound, noise at every level, an exact total."""
    size = 30
    blocks = [
        Node(gaussian(y, 2.0, size), rate) for y, rate in zip([3, -1, 5, 2], RATES, strict=True)
    ]
    first = Node(gaussian(4.0, 1.5, size) + between(3, 6, size), children=tuple(blocks[:2]))
    second = Node(-abs(6.0 - np.arange(size)) / 1.2, children=tuple(blocks[2:]))
    return Node(between(9, 9, size), children=(first, second))


def enumerated():
    tables = np.array([t for t in np.ndindex(10, 10, 10, 10) if sum(t) == 9])
    log_weight = (special.xlogy(tables, RATES) - RATES - special.gammaln(tables + 1.0)).sum(axis=1)
    log_weight -= (((np.array([3, -1, 5, 2]) - tables) / 2.0) ** 2).sum(axis=1) / 2
    sums = tables[:, :2].sum(axis=1)
    log_weight -= ((4 - sums) / 1.5) ** 2 / 2 + abs(6 - (9 - sums)) / 1.2
    log_weight[(sums < 3) | (sums > 6)] = -np.inf
    log_z = special.logsumexp(log_weight)
    return tables, np.exp(log_weight - log_z), log_z


def test_the_tree_is_right_by_enumeration(request):
    tables, weight, log_z = enumerated()
    assert references_tree.log_likelihood(small()) == pytest.approx(log_z, abs=1e-12)
    np.testing.assert_allclose(references_tree.means(small()), weight @ tables, atol=1e-12)
    rng = np.random.default_rng(seed_of(request))
    drawn = np.array([references_tree.draw(rng, small()) for _ in range(1500)])
    for i in range(4):
        assert_mean(drawn[:, i], float(weight @ tables[:, i]), what=f"E c{i}")
    assert_mean(drawn[:, 0] * drawn[:, 1], float(weight @ (tables[:, 0] * tables[:, 1])))


TRACTS, BLOCKS, SIZE = 4, 6, 90


def county(rng, *, tract_scale=1.5):
    """A county of tracts of blocks: its tree, and the same for the walk."""
    rates = rng.gamma(2.0, 1.0, (TRACTS, BLOCKS))
    # Some blocks are empty for sure, and one tract is.
    rates[0, :3], rates[3] = 0.0, 0.0
    counts = rng.poisson(rates)
    noisy_blocks = counts + np.rint(rng.normal(0, 3.0, counts.shape))
    noisy_tracts = counts.sum(axis=1) + np.rint(rng.normal(0, 1.5, TRACTS))
    least, most = (
        counts.sum(axis=1) - np.array([0, 2, 1, 0]),
        counts.sum(axis=1) + np.array([1, 1, 4, 0]),
    )
    total = int(counts.sum())
    tracts = []
    for t in range(TRACTS):
        blocks = (Node(gaussian(noisy_blocks[t, b], 3.0, SIZE), rates[t, b]) for b in range(BLOCKS))
        own = gaussian(noisy_tracts[t], 1.5, SIZE) + between(least[t], most[t], SIZE)
        tracts.append(Node(own, children=tuple(blocks)))
    root = Node(between(total, total, SIZE), children=tuple(tracts))
    rows = np.kron(np.eye(TRACTS, dtype=int), np.ones(BLOCKS, dtype=int))
    bounded = Bounded(sparse.csr_array(rows), least.astype(float), most.astype(float))
    noisy = lattice_walk.stack(
        [np.eye(rates.size, dtype=int), rows],
        [noisy_blocks.ravel(), noisy_tracts],
        [3.0, tract_scale],
        [True, True],
        [bounded],
    )
    exact = np.ones((1, rates.size), dtype=int)
    return root, rates.ravel(), noisy, rows, bounded, exact, total


def walked(rng, known, draws):
    _, rates, noisy, rows, bounded, exact, total = known

    def density(counts):
        people = np.maximum(counts, 0)
        inside = special.xlogy(people, rates) - special.gammaln(people + 1.0)
        return np.where((counts < 0) | ((rates == 0) & (counts > 0)), -np.inf, inside)

    fibre = fibre_of(exact, [rows], bounded)
    most = np.where(rates > 0, np.inf, 0.0)
    start = some_table(exact, np.array([total]), 0.0, most, bounded)
    state, learnt = lattice_walk.init(start, noisy, density), adaptation.init(24, fibre.kinds)
    drawn = np.empty((draws, rates.size))
    for i in range(draws + 500):
        state, info = lattice_walk.step(
            rng, state, learnt.walk, measurements=noisy, fibre=fibre, density=density
        )
        if i < 500:
            learnt = adaptation.learn(learnt._replace(steps=i), info)
        else:
            drawn[i - 500] = state.counts
    return drawn


def assert_means(drawn, expected):
    for i, mean in enumerate(expected):
        if drawn[:, i].std() or mean > 1e-9:
            assert_mean(drawn[None, :, i], float(mean), what=f"E c{i}")
        else:
            assert not drawn[:, i].any()


@pytest.mark.parametrize("number", range(2))
def test_the_walk_of_a_county_has_the_means_of_the_tree(number, request):
    known = county(np.random.default_rng(number + 10))
    drawn = walked(np.random.default_rng(seed_of(request)), known, 6000)
    assert_means(drawn, references_tree.means(known[0]))


def test_a_walk_that_believes_the_tracts_less_is_caught():
    """The mutant."""
    known = county(np.random.default_rng(10), tract_scale=15.0)
    drawn = walked(np.random.default_rng(1), known, 6000)
    with pytest.raises(AssertionError, match="z ="):
        assert_means(drawn, references_tree.means(known[0]))
