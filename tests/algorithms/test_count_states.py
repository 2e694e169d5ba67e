"""Counts on their own: laws by enumeration, invariance of a known posterior, broken twins."""

from itertools import product

import numpy as np
import pytest
from numba import njit
from scipy import integrate, stats

from pymc_privacy.algorithms import count_states
from pymc_privacy.algorithms.count_states import Block
from pymc_privacy.algorithms.interweave import Move
from pymc_privacy.algorithms.machine_code.binding import bind
from tests.stochastic import Z_LIMIT, assert_mean, seed_of, z_of_mean

HERE = np.array([0.2, 0.5, 0.3])
THERE = np.array([0.35, 0.25, 0.4])
WHOLE = np.array([0, 3])


@pytest.fixture
def rng(request):
    return np.random.default_rng(seed_of(request))


# Exact laws of counts when each record moves on its own.
def tables(size, cells):
    return [c for c in product(range(size + 1), repeat=cells) if sum(c) == size]


def after(counts, kernel):
    """Enumerate the law of the counts after each record has moved by a kernel (j, k)."""
    law = {(0,) * len(counts): 1.0}
    for j, number in enumerate(counts):
        for _ in range(number):
            further: dict[tuple, float] = {}
            for c, probability in law.items():
                for k, move in enumerate(kernel[j]):
                    key = tuple(n + (i == k) for i, n in enumerate(c))
                    further[key] = further.get(key, 0.0) + probability * move
            law = further
    return law


def maximal_coupling(p, q):
    """Return the kernel from p to q that moves as few records as can be."""
    kernel = np.diag(np.minimum(1.0, q / p))
    leaving, arriving = np.maximum(1 - q / p, 0), np.maximum(q - p, 0)
    return kernel + np.outer(leaving, arriving / arriving.sum())


@pytest.mark.parametrize(
    ("p", "q"),
    [
        (HERE, THERE),
        (np.array([0.2, 0.8]), np.array([0.7, 0.3])),
        (HERE, np.array([0.2, 0.7, 0.1])),
    ],
)
def test_the_coupling_is_in_detailed_balance(p, q):
    """Multinomial(c; p) K(c -> c*) = Multinomial(c*; q) K*(c* -> c), for all tables."""
    size = 4
    forward, backward = maximal_coupling(p, q), maximal_coupling(q, p)
    np.testing.assert_allclose(p @ forward, q)
    states = tables(size, len(p))
    there = {c: after(c, forward) for c in states}
    back = {c: after(c, backward) for c in states}
    for c, d in product(states, states):
        left = stats.multinomial.pmf(c, size, p) * there[c].get(d, 0.0)
        right = stats.multinomial.pmf(d, size, q) * back[d].get(c, 0.0)
        assert left == pytest.approx(right, abs=1e-14)


def largest_z(draw, exact, replicates=40_000):
    """Compare the frequencies of tables; those below 1 %, too rare for a z-score, as one."""
    draws = np.array([draw() for _ in range(replicates)])
    common = {counts: p for counts, p in exact.items() if p > 0.01}
    happened = {counts: (draws == counts).all(axis=1) for counts in common}
    scores = [z_of_mean(happened[counts], p) for counts, p in common.items()]
    rare = ~np.any(list(happened.values()), axis=0)
    scores.append(z_of_mean(rare, 1 - sum(common.values())))
    return max(map(abs, scores))


COUNTS = np.array([1, 3, 2])


def test_records_move_by_the_coupling(rng):
    exact = after(COUNTS, maximal_coupling(HERE, THERE))
    z = largest_z(lambda: count_states.couple(rng, COUNTS, HERE, THERE, WHOLE), exact)
    assert z < Z_LIMIT, f"z = {z:.1f}"


def test_another_thinning_is_noticed(rng):
    # The second cell loses half of its records; let it lose a third.
    wrong = np.diag([1.0, 2 / 3, 1.0]) + np.outer([0, 1 / 3, 0], [0.6, 0.0, 0.4])
    exact = after(COUNTS, wrong)
    z = largest_z(lambda: count_states.couple(rng, COUNTS, HERE, THERE, WHOLE), exact)
    assert z > Z_LIMIT, f"z = {z:.1f}"


def test_blocks_are_drawn_afresh(rng):
    exact = after(COUNTS, 0.3 * np.outer(np.ones(3), HERE) + 0.7 * np.eye(3))
    z = largest_z(lambda: count_states.redraw(rng, COUNTS, HERE, WHOLE, 0.3), exact)
    assert z < Z_LIMIT, f"z = {z:.1f}"


def test_databases_do_not_mix(rng):
    counts, starts = np.array([5, 2, 1, 4, 3]), np.array([0, 2, 5])
    here = np.array([0.4, 0.6, *HERE])
    there = np.array([0.9, 0.1, *THERE])
    moved = count_states.couple(rng, counts, here, there, starts)
    drawn = count_states.redraw(rng, counts, there, starts, 0.5)
    for new in (moved, drawn):
        np.testing.assert_array_equal(np.add.reduceat(new, starts[:-1]), [7, 8])


def test_equal_probabilities_move_nobody(rng):
    moved = count_states.couple(rng, COUNTS, HERE, HERE, WHOLE)
    np.testing.assert_array_equal(moved, COUNTS)
    nearly = HERE * (1 - 1e-16)
    assert count_states.couple(rng, COUNTS, HERE, nearly, WHOLE).sum() == COUNTS.sum()


def test_a_cell_of_no_probability_is_left_and_never_entered(rng):
    nowhere = np.array([0.5, 0.5, 0.0])
    for _ in range(50):
        moved = count_states.couple(rng, COUNTS, HERE, nowhere, WHOLE)
        assert moved[2] == 0
        assert moved.sum() == COUNTS.sum()
        assert count_states.redraw(rng, COUNTS, nowhere, WHOLE, 1.0)[2] == 0


@pytest.mark.parametrize("records", [50, 10**5, 10**9])
def test_any_number_of_records_is_scattered(records, rng):
    def draw():
        counts = np.zeros(3, dtype=np.int64)
        count_states.scatter(rng, records, 7 * HERE, counts)
        return counts

    draws = np.array([draw() for _ in range(20_000)])
    assert (draws.sum(axis=1) == records).all()
    sd = np.sqrt(records * HERE * (1 - HERE))
    for k in range(3):
        scores = (draws[:, k] - records * HERE[k]) / sd[k]
        assert_mean(scores, 0.0, what=f"mean of cell {k}")
        assert_mean(scores**2, 1.0, what=f"variance of cell {k}")
    scores = (draws[:, 0] - records * HERE[0]) * (draws[:, 1] - records * HERE[1])
    assert_mean(scores / records, -HERE[0] * HERE[1], what="covariance")


def test_every_order_is_equally_likely(rng):
    draws = np.array([count_states.arrange(rng, np.array([2, 1, 1])) for _ in range(40_000)])
    orders = {tuple(draw) for draw in draws}
    assert len(orders) == 12
    for order in orders:
        assert_mean((draws == order).all(axis=1), 1 / 12, what=f"{order}")


# A posterior with one parameter: p = 1 / (1 + exp(-q)) uniform, n records, Laplace noise.
SIZE, SCALE = 40, 3.0
CELLS = count_states.CellTable(np.array([[0.0], [1.0]]), np.array([0, 2]))


@njit
def log_prior(q):
    return -q - 2 * np.log1p(np.exp(-q))


@njit
def law(q):
    p = 1 / (1 + np.exp(-q[0]))
    return np.array(log_prior(q[0])), np.array([1 - p, p])


@njit
def law_without_jacobian(q):
    return np.array(0.0), law(q)[1]


@njit
def noise(totals, release):
    return (np.array(-np.abs(release[0] - totals[0]) / SCALE),)


@njit
def given_counts(q, counts):
    p = 1 / (1 + np.exp(-q[0]))
    value = log_prior(q[0]) + counts[0] * np.log1p(-p) + counts[1] * np.log(p)
    return np.array(value), np.array([1 - 2 * p + counts[1] - counts.sum() * p])


@njit
def given_counts_twice(q, counts):
    return given_counts(q, 2 * counts)


@njit
def couple_half(rng, counts, here, there, starts):
    """Let half of the records of each losing cell go, whatever it loses."""
    moved = counts.copy()
    for k in range(2):
        if there[k] < here[k]:
            moved[k] = rng.binomial(counts[k], 0.5)
            moved[1 - k] += counts[k] - moved[k]
    return moved


def invariance(rng, move, replicates=10_000):
    """Start at exact draws of everything, move, and return the largest z of known moments.

    ``move(rng, q, counts, data)`` returns parameters and counts.
    """
    p = rng.random(replicates)
    total = rng.binomial(SIZE, p)
    release = total + rng.laplace(scale=SCALE, size=replicates)
    ends = []
    for q, k, s in zip(np.log(p / (1 - p)), total, release, strict=True):
        state = np.array([q]), np.array([SIZE - k, k])
        for _ in range(2):
            state = move(rng, *state, (np.array([s]),))
        ends.append((state[0][0], state[1][1], s))
    q, total, release = np.array(ends).T
    p = 1 / (1 + np.exp(-q))
    difference = (release - total) / SCALE
    moments = [
        (p, 0.5),
        (p**2, 1 / 3),
        (p <= 0.1, 0.1),
        (p <= 0.9, 0.9),
        (total / SIZE, 0.5),
        (p * total / SIZE, 1 / 3),
        ((total - SIZE * p) ** 2 / SIZE, 1 / 6),
        (difference, 0.0),
        (abs(difference), 1.0),
        (difference**2, 2.0),
        (p * difference, 0.0),
        (p * abs(difference), 0.5),
    ]
    return max(abs(z_of_mean(draws, exact)) for draws, exact in moments)


def walk_of(**functions):
    functions = {"law": law, "log_noise": noise} | functions
    bound = bind(count_states.counted_walk, functions, label="test")
    move = Move(np.eye(1), 1.0, 4)
    return lambda rng, q, counts, data: bound(rng, q, counts, CELLS, move, (), data)[:2]


def blocks_of(fraction):
    bound = bind(count_states.redrawn_blocks, {"log_noise": noise}, label="test")

    def move(rng, q, counts, data):
        return q, bound(rng, counts, CELLS, law(q)[1], Block(fraction, 4), data)[0]

    return move


def test_the_walk_leaves_the_posterior_invariant(rng):
    z = invariance(rng, walk_of())
    assert z < Z_LIMIT, f"z = {z:.1f}"


@pytest.mark.parametrize(
    "mutant", [{"law": law_without_jacobian}, {"couple": couple_half}], ids=["jacobian", "thinning"]
)
def test_a_broken_walk_is_noticed(mutant, rng):
    z = invariance(rng, walk_of(**mutant))
    assert z > Z_LIMIT, f"z = {z:.1f}"


@pytest.mark.parametrize("fraction", [0.05, 1.0])
def test_blocks_leave_the_posterior_invariant(fraction, rng):
    z = invariance(rng, blocks_of(fraction))
    assert z < Z_LIMIT, f"z = {z:.1f}"


def step_of(centred):
    compiled = count_states.compile_step(
        centred=centred, law=law, noise=noise, has_gradient=True, remember=None
    )
    settings = count_states.Settings(
        Move(np.eye(1), 0.4, 2), Move(np.eye(1), 1.0, 4), Block(0.2, 4)
    )

    def move(rng, q, counts, data):
        state, data = count_states.State(q, counts), count_states.Data((), (), data)
        return compiled(rng, state, CELLS, (), settings, data)[0]

    return move


@pytest.mark.slow
def test_all_moves_together_leave_the_posterior_invariant(rng):
    z = invariance(rng, step_of(given_counts))
    assert z < Z_LIMIT, f"z = {z:.1f}"


@pytest.mark.slow
def test_counts_that_are_added_twice_are_noticed(rng):
    z = invariance(rng, step_of(given_counts_twice))
    assert z > Z_LIMIT, f"z = {z:.1f}"


def test_outside_the_support_nothing_moves(rng):
    @njit
    def nowhere(q):
        return np.array(-np.inf if q[0] != 0.5 else 0.0), np.array([np.nan, np.nan])

    start, counts = np.array([0.5]), np.array([3, 4])
    q, moved = walk_of(law=nowhere)(rng, start, counts, (np.array([3.0]),))
    np.testing.assert_array_equal(q, start)
    np.testing.assert_array_equal(moved, counts)


@njit
def law_within_two(q):
    """No number for the density, nor for the probabilities, beyond 2."""
    if abs(q[0]) > 2:
        return np.array(np.nan), np.array([np.nan, 0.5])
    return law(q)


@njit
def noise_below_nine(totals, release):
    return (np.array(np.nan if totals[0] > 9 else -np.abs(release[0] - totals[0]) / SCALE),)


def test_a_walk_leaves_where_the_density_is_no_number(rng):
    walk = walk_of(law=law_within_two)
    q, counts = np.array([2.5]), np.array([SIZE - 3, 3])
    for _ in range(100):
        q, counts = walk(rng, q, counts, (np.array([3.0]),))
        assert counts.sum() == SIZE
    assert abs(q[0]) <= 2


def test_blocks_leave_where_the_noise_is_no_number(rng):
    bound = bind(count_states.redrawn_blocks, {"log_noise": noise_below_nine}, label="test")
    counts, few = np.array([SIZE - 11, 11]), np.array([0.9, 0.1])
    for _ in range(100):
        counts, _ = bound(rng, counts, CELLS, few, Block(0.5, 4), (np.array([3.0]),))
    assert counts.sum() == SIZE
    assert counts[1] <= 9


@pytest.mark.parametrize("probabilities", [[np.nan, np.nan], [0.3, np.nan], [0.0, 0.0]])
def test_nobody_is_lost_where_there_is_nothing_to_draw_from(probabilities, rng):
    counts, starts = np.array([3, 4]), np.array([0, 2])
    nothing, there = np.array(probabilities), np.array([0.4, 0.6])
    np.testing.assert_array_equal(count_states.redraw(rng, counts, nothing, starts, 1.0), counts)
    for pair in ((nothing, there), (there, nothing)):
        assert count_states.couple(rng, counts, *pair, starts).sum() == counts.sum()


def test_the_stand_in_densities_are_what_they_say():
    """The references above rest on them."""
    total = integrate.quad(lambda q: np.exp(log_prior(q)), -40, 40)[0]
    assert total == pytest.approx(1)
    q, counts = np.array([0.3]), np.array([7, 2])
    slope = (given_counts(q + 1e-6, counts)[0] - given_counts(q - 1e-6, counts)[0]) / 2e-6
    assert given_counts(q, counts)[1][0] == pytest.approx(float(slope), rel=1e-6)
