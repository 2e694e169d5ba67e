"""Counts given noisy and exact totals: moves, kernels, and the posterior by enumeration."""

import numpy as np
import pytest
from scipy import sparse, special

from pymc_privacy.algorithms import lattice_walk
from pymc_privacy.algorithms.adaptation import lattice_walk as adaptation
from pymc_privacy.algorithms.numerics.integer_kernel import (
    Bounded,
    Fibre,
    equal_columns,
    fibre_of,
    integer_kernel,
    some_table,
)
from pymc_privacy.errors import ReleaseError
from tests.stochastic import assert_mean, seed_of

RATES = np.array([3.0, 5.0, 2.0, 4.0])
MATRIX = np.array([[1, 0, 0, 0], [0, 1, 0, 0], [1, 1, 0, 0], [0, 0, 1, 1], [1, 2, 1, 0]])
RELEASE = np.array([5.0, 2.0, 9.0, 4.0, 16.0])
SCALES = np.array([2.0, 2.0, 1.5, 3.0, 1.0])
NOISY = lattice_walk.stack(
    [MATRIX[:3], MATRIX[3:]], [RELEASE[:3], RELEASE[3:]], [SCALES[:3], SCALES[3:]], [True, False]
)

INVARIANTS = {
    "none": (np.empty((0, 4), dtype=int), np.empty(0, dtype=int)),
    "a total": (np.array([[1, 1, 1, 1]]), np.array([13])),
    "nested": (np.array([[1, 1, 1, 1], [1, 1, 0, 0]]), np.array([13, 7])),
    "part": (np.array([[1, 1, 1, 0]]), np.array([9])),
    "crossed": (np.array([[1, 1, 0, 0], [0, 0, 1, 1], [1, 0, 1, 0]]), np.array([7, 6, 5])),
    "weighted": (np.array([[1, 2, 3, 0]]), np.array([17])),
    "a single cell": (np.array([[0, 1, 0, 0]]), np.array([2])),
    "no cell and a total": (np.array([[0, 0, 0, 1], [1, 1, 1, 1]]), np.array([0, 9])),
    "a difference": (np.array([[1, -1, 0, 0]]), np.array([2])),
    "all": (np.eye(4, dtype=int), np.array([3, 0, 2, 1])),
}


def log_poisson(counts):
    inside = counts * np.log(RATES) - special.gammaln(counts + 1.0) - RATES
    return np.where(counts < 0, -np.inf, inside)


def tables(matrix, totals, largest=26):
    every = np.indices((largest,) * 4).reshape(4, -1).T
    return every[(every @ matrix.T == totals).all(axis=1)]


def posterior(matrix, totals, release=RELEASE):
    """Return every table with the exact totals, and its probability."""
    every = tables(matrix, totals)
    distance = abs(release - every @ MATRIX.T) / SCALES
    log_weight = log_poisson(every).sum(axis=1)
    log_weight -= (distance[:, :3] ** 2 / 2).sum(axis=1) + distance[:, 3:].sum(axis=1)
    weight = np.exp(log_weight - log_weight.max())
    return every, weight / weight.sum()


def walk(rng, matrix, totals, draws=8_000, *, fibre=None, density=log_poisson, ends=(0, np.inf)):
    start = some_table(matrix, totals, *ends)
    fibre = fibre or fibre_of(matrix)
    state = lattice_walk.init(start, NOISY, density)
    learnt = adaptation.init(4, fibre.kinds)
    counts = np.empty((draws, 4), dtype=int)
    for i in range(draws):
        state, info = lattice_walk.step(
            rng, state, learnt.walk, measurements=NOISY, fibre=fibre, density=density
        )
        if i < 500:
            learnt = adaptation.learn(learnt._replace(steps=i), info)
        counts[i] = state.counts
    np.testing.assert_array_equal(state.totals, MATRIX @ state.counts)
    np.testing.assert_array_equal(state.log_density, density(state.counts))
    return counts[500:]


def assert_posterior(counts, matrix, totals):
    every, weight = posterior(matrix, totals)
    functions = {f"c{i}": lambda c, i=i: c[:, i] for i in range(4)}
    functions |= {f"c{i} c{i + 1}": lambda c, i=i: c[:, i] * c[:, i + 1] for i in range(3)}
    for name, function in functions.items():
        expected = round(float(weight @ function(every)), 12)
        assert_mean(function(counts)[None].astype(float), expected, what=f"E {name}")


@pytest.mark.parametrize("name", INVARIANTS)
def test_the_walk_draws_from_the_posterior(name, request):
    matrix, totals = INVARIANTS[name]
    counts = walk(np.random.default_rng(seed_of(request)), matrix, totals)
    assert np.all(counts >= 0)
    assert np.all(counts @ matrix.T == totals)
    assert_posterior(counts, matrix, totals)


def log_signed(cells):
    """A law on all integers, and one between -2 and 3."""
    wide = -0.5 * ((cells - np.array([-1, 2, 0, 1])) / 2.0) ** 2
    bounded = np.where((cells >= -2) & (cells <= 3), wide, -np.inf)
    return np.where([True, True, False, False], wide, bounded)


@pytest.mark.parametrize("name", ["none", "a total", "crossed", "a difference"])
def test_signed_and_bounded_cells_are_drawn_from_their_posterior(name, request):
    matrix, totals = INVARIANTS[name][0], INVARIANTS[name][1] - 5
    every = np.indices((24,) * 4).reshape(4, -1).T - 12
    every = every[(every @ matrix.T == totals).all(axis=1)]
    distance = abs(RELEASE - every @ MATRIX.T) / SCALES
    log_weight = log_signed(every).sum(axis=1)
    log_weight -= (distance[:, :3] ** 2 / 2).sum(axis=1) + distance[:, 3:].sum(axis=1)
    weight = np.exp(log_weight - log_weight.max())
    weight /= weight.sum()
    ends = np.array([-np.inf, -np.inf, -2, -2]), np.array([np.inf, np.inf, 3, 3])
    rng = np.random.default_rng(seed_of(request))
    counts = walk(rng, matrix, totals, density=log_signed, ends=ends)
    for i in range(4):
        assert_mean(counts[None, :, i], float(weight @ every[:, i]), what=f"E c{i}")
        assert_mean(counts[None, :, i] ** 2, float(weight @ every[:, i] ** 2), what=f"E c{i}²")


def test_a_walk_that_forgets_the_law_of_the_counts_is_caught(request):
    """The mutant: noisy totals alone, with counts >= 0."""

    def flat(counts):
        return np.where(counts < 0, -np.inf, 0.0)

    matrix, totals = INVARIANTS["a total"]
    counts = walk(np.random.default_rng(seed_of(request)), matrix, totals, density=flat)
    with pytest.raises(AssertionError, match="z ="):
        assert_posterior(counts, matrix, totals)


def test_a_walk_that_leaves_some_tables_out_is_caught(request):
    """The mutant: the cell that no exact total holds never moves."""
    matrix, totals = INVARIANTS["part"]
    still = Fibre(np.empty((0, 1), dtype=int), (np.array([0, 1, 2]),), np.empty((0, 4), dtype=int))
    counts = walk(np.random.default_rng(seed_of(request)), matrix, totals, fibre=still)
    with pytest.raises(AssertionError, match="instead of"):
        assert_posterior(counts, matrix, totals)


def test_a_walk_that_proposes_upwards_more_often_is_caught(request, monkeypatch):
    """The mutant: a proposal that is not symmetric."""
    monkeypatch.setattr(
        lattice_walk,
        "_symmetric",
        lambda rng, length: np.where(rng.random(length.size) < 0.7, 1, -1),
    )
    matrix, totals = INVARIANTS["none"]
    counts = walk(np.random.default_rng(seed_of(request)), matrix, totals)
    with pytest.raises(AssertionError, match="z ="):
        assert_posterior(counts, matrix, totals)


# Moves and kernels.
def connected(matrix, totals, fibre):
    """Tell whether the moves join all tables, pairs and singles taken in steps of one."""
    every = {tuple(t) for t in tables(matrix, totals, 12)}
    steps = [np.eye(4, dtype=int)[i] for i in fibre.singles[:, 0]]
    for group in fibre.classes:
        steps += [np.eye(4, dtype=int)[i] - np.eye(4, dtype=int)[j] for i in group for j in group]
    steps += list(fibre.basis)
    reached, new = set(), [next(iter(every))]
    while new:
        table = new.pop()
        reached.add(table)
        for step in steps:
            for sign in (1, -1):
                there = tuple(np.array(table) + sign * step)
                if there in every and there not in reached:
                    reached.add(there)
                    new.append(there)
    return reached == every


@pytest.mark.parametrize(
    "name", ["a total", "nested", "part", "crossed", "a single cell", "no cell and a total"]
)
def test_the_moves_connect_all_tables_and_keep_the_totals(name):
    matrix, totals = INVARIANTS[name]
    fibre = fibre_of(matrix)
    assert connected(matrix, totals, fibre)
    assert not np.any(matrix @ fibre.basis.T)
    assert bool(len(fibre.basis)) == (name == "crossed")


@pytest.mark.parametrize("seed", range(5))
def test_the_kernel_has_all_integer_vectors_and_no_others(seed):
    rng = np.random.default_rng(seed)
    matrix = rng.integers(-2, 3, size=(2, 5))
    basis = integer_kernel(matrix)
    assert not np.any(matrix @ basis.T)
    small = np.indices((5,) * 5).reshape(5, -1).T - 2
    inside = small[~np.any(small @ matrix.T, axis=1)]
    coefficients, *_ = np.linalg.lstsq(basis.T.astype(float), inside.T.astype(float), rcond=None)
    np.testing.assert_allclose(basis.T @ coefficients, inside.T, atol=1e-8)
    np.testing.assert_allclose(coefficients, np.rint(coefficients), atol=1e-8)


def test_directions_are_drawn_as_often_as_their_opposites(request):
    fibre = fibre_of(INVARIANTS["crossed"][0])
    rng = np.random.default_rng(seed_of(request))
    drawn = np.array([v for _ in range(3000) for v in fibre.draw_directions(rng)])
    assert_mean(drawn[:, 0], 0.0, what="mean of a direction")
    assert set(np.unique(drawn[:, 0])) >= {-3, -2, -1, 1, 2, 3}


def test_a_table_to_start_from_has_the_totals():
    matrix, totals = INVARIANTS["crossed"]
    table = some_table(matrix, totals)
    assert np.all(matrix @ table == totals)
    assert np.all(table >= 0)
    held = some_table(np.array([[1, 1, 1, 1]]), np.array([13]), largest=np.array([1, 9, 2, 1]))
    assert held.sum() == 13
    assert np.all(held <= [1, 9, 2, 1])


@pytest.mark.parametrize(
    ("matrix", "totals"), [([[1, 1]], [-1]), ([[2, 2]], [3]), ([[1, 1], [1, 1]], [3, 4])]
)
def test_totals_that_no_counts_have_are_refused(matrix, totals):
    with pytest.raises(ReleaseError, match="must be those of some counts that their law"):
        some_table(np.array(matrix), np.array(totals))


def test_crossed_totals_of_many_cells_are_refused():
    rows = np.kron(np.eye(20, dtype=int), np.ones(20, dtype=int))
    columns = np.kron(np.ones(20, dtype=int), np.eye(20, dtype=int))
    with pytest.raises(ReleaseError, match=r"must be nested.*got 400 cells"):
        fibre_of(np.concatenate([rows, columns]))


def test_a_count_without_a_log_density_is_left():
    def density(counts):
        return np.where(counts > 9, np.nan, log_poisson(counts))

    matrix, rng = INVARIANTS["none"][0], np.random.default_rng(1)
    state = lattice_walk.init(np.array([11, 3, 12, 4]), NOISY, density)
    settings = lattice_walk.Settings(np.full((2, 4), 3.0))
    for _ in range(200):
        state, _ = lattice_walk.step(
            rng, state, settings, measurements=NOISY, fibre=fibre_of(matrix), density=density
        )
    assert (state.counts <= 9).all()


# Sparse totals of many cells.
def nested_rows(cells, groups, tracts):
    """Return tracts, counties of tracts, and a total that is known of one block alone."""
    rows = np.zeros((tracts + groups + 1, cells), dtype=np.int64)
    tract = np.arange(cells) * tracts // cells
    rows[tract, np.arange(cells)] = 1
    rows[tracts + tract * groups // tracts, np.arange(cells)] = 1
    rows[-1, 3] = 1
    return rows


@pytest.mark.parametrize("name", ["nested", "crossed", "none"])
def test_sparse_totals_are_those_written_out(name):
    matrix = {
        "nested": nested_rows(24, 2, 6),
        "crossed": np.array(INVARIANTS["crossed"][0]),
        "none": np.zeros((0, 5), dtype=np.int64),
    }[name]
    dense, other = fibre_of(matrix), fibre_of(sparse.coo_array(matrix))
    np.testing.assert_array_equal(dense.basis, other.basis)
    np.testing.assert_array_equal(dense.singles, other.singles)
    for ours, theirs in ((dense.classes, other.classes), (dense.held, other.held)):
        for one, two in zip(ours, theirs, strict=True):
            np.testing.assert_array_equal(one, two)
    # The order of classes is that of the sorted columns, whatever they are computed from.
    _, member = np.unique(matrix.T, axis=0, return_inverse=True)
    for k, group in enumerate(equal_columns(sparse.csr_array(matrix))):
        np.testing.assert_array_equal(group, np.flatnonzero(member.ravel() == k))
    assert bool(len(dense.basis)) == (name == "crossed")


def test_a_table_of_many_cells_has_nested_totals_and_keeps_its_bounds():
    cells, rng = 3000, np.random.default_rng(4)
    matrix = sparse.csr_array(nested_rows(cells, 5, 60))
    truth = rng.poisson(2.0, cells)
    most = np.where(np.arange(cells) % 7 == 0, truth, np.inf)
    found = some_table(matrix, matrix @ truth, 0.0, most)
    np.testing.assert_array_equal(matrix @ found, matrix @ truth)
    assert np.all((found >= 0) & (found <= most))
    assert found.max() <= truth.max()


def test_a_table_of_many_cells_that_nobody_can_have_is_refused():
    matrix = sparse.csr_array(nested_rows(1200, 2, 6))
    totals = matrix @ np.full(1200, 2)
    for change, most in ((-(10**6), np.inf), (1, np.inf), (0, 1.0)):
        wrong = totals.copy()
        wrong[-2] += change
        with pytest.raises(ReleaseError, match="which no counts have"):
            some_table(matrix, wrong, 0.0, most)


def test_many_cells_with_crossed_totals_are_refused():
    tall = sparse.csr_array(sparse.vstack([nested_rows(400, 2, 8), np.arange(400)[None] % 2]))
    with pytest.raises(ReleaseError, match="must be nested"):
        fibre_of(tall)


# Totals with bounds.
BOUNDS = {
    "a total and a part of it": (np.array([[1, 1, 1, 1], [1, 1, 0, 0]]), [9, 6], [14, 8]),
    "of one value": (np.array([[0, 1, 1, 0]]), [5], [5]),
    "a structural zero": (np.array([[0, 0, 1, 0], [0, 1, 1, 0]]), [-np.inf, 2], [0, np.inf]),
}


def bounded_walk(rng, name, invariants, *, fibre=None, draws=8_000):
    """Walk within bounds, and return the draws with the tables they may be and their weights."""
    rows, least, most = BOUNDS[name]
    matrix, totals = INVARIANTS[invariants]
    bounded = Bounded(sparse.csr_array(rows), np.array(least), np.array(most))
    noisy = lattice_walk.stack(
        [MATRIX[:3], MATRIX[3:]],
        [RELEASE[:3], RELEASE[3:]],
        [SCALES[:3], SCALES[3:]],
        [True, False],
        [bounded],
    )
    # Exchanges between cells that the first noisy totals hold both, too.
    fibre = fibre or fibre_of(matrix, [MATRIX[2:4]], bounded)
    state = lattice_walk.init(some_table(matrix, totals, bounded=bounded), noisy, log_poisson)
    learnt = adaptation.init(4, fibre.kinds)
    counts = np.empty((draws, 4), dtype=int)
    for i in range(draws):
        state, info = lattice_walk.step(
            rng, state, learnt.walk, measurements=noisy, fibre=fibre, density=log_poisson
        )
        if i < 500:
            learnt = adaptation.learn(learnt._replace(steps=i), info)
        counts[i] = state.counts
    every, weight = posterior(matrix, totals)
    sums = every @ rows.T
    weight = np.where(((sums >= least) & (sums <= most)).all(axis=1), weight, 0.0)
    return counts[500:], every, weight / weight.sum()


def assert_within(counts, every, weight):
    for i in range(4):
        mean, square = (round(float(weight @ every[:, i] ** k), 12) for k in (1, 2))
        assert_mean(counts[None, :, i].astype(float), mean, what=f"E c{i}")
        assert_mean(counts[None, :, i].astype(float) ** 2, square, what=f"E c{i}²")


@pytest.mark.parametrize(
    ("name", "invariants"),
    [(name, "none") for name in BOUNDS] + [("a total and a part of it", "a total")],
)
def test_the_walk_draws_from_the_posterior_within_bounds(name, invariants, request):
    assert_within(*bounded_walk(np.random.default_rng(seed_of(request)), name, invariants))


def test_a_walk_without_pairs_is_caught_within_bounds():
    """The mutant: cells alone, which bounds of one value do not let move."""
    fibre = fibre_of(np.zeros((0, 4), dtype=int))
    alone = Fibre(fibre.singles, (), fibre.basis)
    drawn = bounded_walk(np.random.default_rng(1), "of one value", "none", fibre=alone, draws=3000)
    with pytest.raises(AssertionError, match="instead of"):
        assert_within(*drawn)


def test_a_walk_that_forgets_a_bound_is_caught(monkeypatch):
    """The mutant: the part of the total is not looked at."""
    rows, least, most = BOUNDS["a total and a part of it"]
    monkeypatch.setitem(BOUNDS, "one", (rows, [9, -np.inf], [14, np.inf]))
    counts, _, _ = bounded_walk(np.random.default_rng(1), "one", "none", draws=3000)
    every, weight = posterior(*INVARIANTS["none"])
    sums = every @ rows.T
    weight = np.where(((sums >= least) & (sums <= most)).all(axis=1), weight, 0.0)
    with pytest.raises(AssertionError, match="z ="):
        assert_within(counts, every, weight / weight.sum())


def test_bounds_that_moves_of_one_do_not_get_round_are_refused():
    """Of these tables two have no neighbour among moves of one: they would never be left."""
    rows = np.array([[1, 1, 0, 0], [0, 1, 1, 0], [1, 0, 1, 0]])
    crossed = Bounded(sparse.csr_array(rows), np.full(3, 2.0), np.full(3, 2.0))
    with pytest.raises(ReleaseError, match=r"must be nested.*3 totals with bounds"):
        fibre_of(np.zeros((0, 4), dtype=int), bounded=crossed)
    weighted = Bounded(sparse.csr_array([[1, 2, 0, 0]]), np.array([3.0]), np.array([np.inf]))
    with pytest.raises(ReleaseError, match="counted alike"):
        fibre_of(np.zeros((0, 4), dtype=int), bounded=weighted)
    across = Bounded(sparse.csr_array([[1, 0, 1, 0]]), np.array([1.0]), np.array([5.0]))
    with pytest.raises(ReleaseError, match="must be nested"):
        fibre_of(np.array([[1, 1, 0, 0]]), bounded=across)


@pytest.mark.parametrize("seed", range(6))
def test_moves_of_one_join_all_tables_within_nested_bounds(seed):
    """By enumeration, for bounds and exact totals drawn at random."""
    rng = np.random.default_rng(seed)
    rows = np.array([[1, 1, 1, 1], [1, 1, 0, 0], [0, 0, 1, 1], [0, 0, 0, 1]])
    some = tables(np.zeros((0, 4), dtype=int), [], 5)
    centre = rows @ some[rng.integers(len(some))]
    least, most = centre - rng.integers(0, 2, 4), centre + rng.integers(0, 2, 4)
    exact = rows[:1] if seed % 2 else np.zeros((0, 4), dtype=int)
    sums = some @ rows.T
    inside = ((sums >= least) & (sums <= most)).all(axis=1)
    inside &= (some @ exact.T == centre[: len(exact)]).all(axis=1)
    every = {tuple(table) for table in some[inside]}
    fibre = fibre_of(exact, bounded=Bounded(sparse.csr_array(rows), least, most))
    eye = np.eye(4, dtype=int)
    steps = [eye[i] for i in fibre.singles[:, 0]]
    steps += [eye[i] - eye[j] for group in fibre.classes for i in group for j in group if i != j]
    reached, new = set(), [next(iter(every))]
    while new:
        table = new.pop()
        reached.add(table)
        beside = [tuple(np.array(table) + sign * step) for step in steps for sign in (1, -1)]
        new += [t for t in beside if t in every and t not in reached and t not in new]
    assert reached == every


def test_pairs_are_of_one_class_and_every_cell_has_its_turn():
    groups = (np.array([0, 3, 5]), np.array([1, 2, 4, 6]))
    fibre = Fibre(np.empty((0, 1), dtype=int), groups, np.empty((0, 7), dtype=int))
    rng, met = np.random.default_rng(1), set()
    for _ in range(200):
        pairs = fibre.draw_pairs(rng)
        assert np.unique(pairs).size == pairs.size == 6
        met |= {tuple(sorted(pair)) for pair in pairs.tolist()}
    assert met == {(i, j) for g in groups for i in g.tolist() for j in g.tolist() if i < j}


# Four cells of a table, whose margins are known well.
MARGINS = [np.array([[1, 1, 0, 0], [0, 0, 1, 1]]), np.array([[1, 0, 1, 0], [0, 1, 0, 1]])]


def margins_walk(rng, totals, fibre, *, draws=8_000):
    """Walk a table of two ways with tight margins, and return draws, tables and weights."""
    rows, release = np.concatenate(MARGINS), np.array([9.0, 5.0, 6.0, 8.0])
    noisy = lattice_walk.stack([rows], [release], [np.full(4, 0.4)], [True])
    state = lattice_walk.init(np.array([5, 4, 1, 4]), noisy, log_poisson)
    learnt, counts = adaptation.init(4, fibre.kinds), np.empty((draws, 4), dtype=int)
    for i in range(draws):
        state, info = lattice_walk.step(
            rng, state, learnt.walk, measurements=noisy, fibre=fibre, density=log_poisson
        )
        if i < 500:
            learnt = adaptation.learn(learnt._replace(steps=i), info)
        counts[i] = state.counts
    every = tables(*totals)
    log_weight = log_poisson(every).sum(axis=1)
    log_weight -= ((release - every @ rows.T) ** 2).sum(axis=1) / (2 * 0.4**2)
    weight = np.exp(log_weight - log_weight.max())
    return counts[500:], every, weight / weight.sum()


@pytest.mark.parametrize("name", ["none", "a total"])
def test_a_table_with_tight_margins_is_drawn_from_its_posterior(name, request):
    totals = {"none": INVARIANTS["none"], "a total": (np.ones((1, 4), dtype=int), np.array([14]))}
    fibre = fibre_of(totals[name][0], MARGINS)
    assert len(fibre.crossing) == 1
    drawn = margins_walk(np.random.default_rng(seed_of(request)), totals[name], fibre)
    assert_within(*drawn)


def test_fours_that_are_offered_where_they_gain_are_caught(request, monkeypatch):
    """The mutant: a proposal that is not symmetric."""
    fibre = fibre_of(INVARIANTS["none"][0], MARGINS)
    monkeypatch.setattr(lattice_walk, "_symmetric", lambda rng, length: np.ones(length.size, int))
    drawn = margins_walk(np.random.default_rng(1), INVARIANTS["none"], fibre, draws=3000)
    with pytest.raises(AssertionError, match=r"z =|instead of"):
        assert_within(*drawn)


def test_fours_keep_both_margins_and_all_exact_totals():
    shape = (5, 4, 2)
    cells = np.arange(40).reshape(shape)
    rows = np.stack([np.isin(np.arange(40), cells[i]) for i in range(5)]).astype(int)
    columns = np.stack([np.isin(np.arange(40), cells[:, j]) for j in range(4)]).astype(int)
    exact = np.stack([np.isin(np.arange(40), cells[..., k]) for k in range(2)]).astype(int)
    fibre = fibre_of(exact, [rows, columns])
    rng, met = np.random.default_rng(1), set()
    for _ in range(50):
        fours = fibre.draw_fours(rng)
        assert np.unique(fours).size == fours.size > 0
        for four in fours:
            vector = np.zeros(40, dtype=int)
            vector[four] = [3, -3, -3, 3]
            assert not (np.concatenate([rows, columns, exact]) @ vector).any()
            met |= set(four.tolist())
    assert met == set(range(40))
    # Tracts of counties are no table.
    nested = [
        np.kron(np.eye(8, dtype=int), np.ones(5, int)),
        np.kron(np.eye(2, dtype=int), np.ones(20, int)),
    ]
    assert not fibre_of(exact[:0], nested).draw_fours(rng).size
