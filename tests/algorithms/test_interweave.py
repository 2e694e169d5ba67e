"""The parameter moves on their own: invariance of a known law, and broken twins."""

import numpy as np
import pytest
from numba import njit

from pymc_privacy.algorithms import interweave
from pymc_privacy.algorithms.adaptation import local_proposal, tuning
from pymc_privacy.algorithms.interweave import Move
from pymc_privacy.algorithms.machine_code.binding import bind
from pymc_privacy.algorithms.proposals import leaps
from tests.stochastic import Z_LIMIT, assert_mean, seed_of, z_of_mean

MEAN = np.array([1.0, -2.0])
COVARIANCE = np.array([[1.0, 0.6], [0.6, 2.0]])
PRECISION = np.linalg.inv(COVARIANCE)


@njit
def normal(q, shift):
    """Return log density and gradient of a Normal law, in the form of a compiled graph."""
    centred = q - MEAN - shift
    slope = -(PRECISION @ centred)
    return np.array(0.5 * (centred * slope).sum()), slope


@njit
def normal_with_a_wrong_slope(q, shift):
    value, slope = normal(q, shift)
    return np.array(1.3 * value.item()), slope


@pytest.fixture
def rng(request):
    return np.random.default_rng(seed_of(request))


def after_moves(rng, template, density, factor, scale, replicates=8000):
    """Start at exact draws, move each a few times, and return where they are."""
    move = bind(template, {"log_density": density}, label="test")
    start = rng.multivariate_normal(MEAN + 0.5, COVARIANCE, size=replicates)
    return np.array([move(rng, q, Move(factor, scale, 4), (0.5,))[0] for q in start])


def largest_z(draws):
    scores = [z_of_mean(draws[:, j], MEAN[j] + 0.5) for j in range(2)]
    centred = draws - MEAN - 0.5
    pairs = [(0, 0), (0, 1), (1, 1)]
    scores += [z_of_mean(centred[:, j] * centred[:, k], COVARIANCE[j, k]) for j, k in pairs]
    return max(abs(z) for z in scores)


@pytest.mark.parametrize("scale", [0.4, 1.1])
@pytest.mark.parametrize("template", [interweave.walk, interweave.trajectory])
def test_a_move_leaves_its_law_invariant(template, scale, rng):
    factor = np.array([[1.0, 0.0], [-0.3, 0.8]])
    z = largest_z(after_moves(rng, template, normal, factor, scale))
    assert z < Z_LIMIT, f"z = {z:.1f}"


@pytest.mark.parametrize("template", [interweave.walk, interweave.trajectory])
def test_another_law_is_noticed(template, rng):
    factor = np.linalg.cholesky(COVARIANCE)
    z = largest_z(after_moves(rng, template, normal_with_a_wrong_slope, factor, 0.9))
    assert z > Z_LIMIT, f"z = {z:.1f}"


@pytest.mark.parametrize("template", [interweave.walk, interweave.trajectory])
def test_no_steps_change_nothing(template, rng):
    move = bind(template, {"log_density": normal}, label="test")
    q, accept = move(rng, MEAN, Move(np.eye(2), 1.0, 0), (0.0,))
    np.testing.assert_array_equal(q, MEAN)
    assert accept == 0


@pytest.mark.parametrize("template", [interweave.walk, interweave.trajectory])
def test_outside_the_support_is_never_entered(template, rng):
    @njit
    def half_normal(q, shift):
        value = -0.5 * q[0] * q[0] if q[0] > 0 else np.nan
        return np.array(value), -q

    move = bind(template, {"log_density": half_normal}, label="test")
    q = np.array([0.5])
    for _ in range(300):
        q, _ = move(rng, q, Move(np.eye(1), 1.5, 3), (0.0,))
        assert q[0] > 0


@pytest.mark.parametrize("template", [interweave.walk, interweave.trajectory])
def test_a_start_that_is_no_number_is_left(template, rng):
    @njit
    def within_two(q, shift):
        return np.array(-0.5 * q[0] * q[0] if abs(q[0]) < 2 else np.nan), -q

    move = bind(template, {"log_density": within_two}, label="test")
    q, _ = move(rng, np.array([2.5]), Move(np.eye(1), 0.5, 100), (0.0,))
    assert abs(q[0]) < 2


# Two records x = q u, of which the density sees the first, in the form of compiled graphs.
# ``how`` says in which way they are broken, so that they are compiled once.
RIGHT, NEVER, NO_NUMBER_THERE, NO_NUMBER_HERE, ANOTHER = range(5)


@njit
def totals(q, x):
    return (np.zeros(0),)


@njit
def flat_given_records(q, x, totals):
    return (np.array(-0.5 * (q * q).sum()),)


@njit
def base(rng, q, x, how):
    u = x / q[0]
    if how[0] == NO_NUMBER_HERE:
        u[1] = np.nan
    if how[0] == ANOTHER:
        u[1] = 0.0
    return (u,)


@njit
def given_base(q, u, how):
    if how[0] == NEVER and q[0] != 2.0:
        return (np.array(-np.inf),)
    return (np.array(-0.5 * (q * q).sum() - 0.5 * (q[0] * u[0] - 1.0) ** 2),)


@njit
def rounded_forward(q, u, how):
    x = q[0] * u * (1 + 1e-12)
    if how[0] == NO_NUMBER_THERE and q[0] != 2.0:
        x[1] = np.nan
    return (x,)


@njit
def misfit(q, u):
    return (np.array([q[0] * u[0] - 1.0]),)


@njit
def others(q, x):
    return (np.array(-0.5 * (q * q).sum()),)


@njit
def fresh_without_number(rng, q):
    return np.array(0.0), np.array([rng.standard_normal(), np.nan])


GRAPHS = {
    "statistics": totals,
    "centred": flat_given_records,
    "base": base,
    "noncentred": given_base,
    "forward": rounded_forward,
    "released": misfit,
}
X = np.array([1.0, 1 / 3])


@pytest.fixture(scope="module", params=[interweave, leaps], ids=["interweave", "leaps"])
def moves(request):
    return request.param.compile_moves(GRAPHS, gradients=())


def moved(moves, rng, how, steps=50):
    """Return parameters and records after one iteration without moves given the records."""
    told = (np.array([how]),)
    data = interweave.CarriedData((), (), told, told, told, ())
    move = Move(np.eye(1), 0.5, 0)
    settings = interweave.Settings(move, move._replace(steps=steps), local_proposal.unguided())
    state = interweave.State(np.array([2.0]), (X,))
    (q, (x,)), _ = moves(rng, state, (), settings, data)
    return q, x


def test_what_was_accepted_is_carried(moves, rng):
    q, x = moved(moves, rng, RIGHT)
    assert q != 2
    np.testing.assert_allclose(x, X * q / 2, rtol=1e-11)


def test_what_was_not_accepted_is_not_written(moves, rng):
    """Not even the same records again, which would be rounded a little more every time."""
    for q, x in (moved(moves, rng, RIGHT, steps=0), moved(moves, rng, NEVER)):
        assert q == 2
        np.testing.assert_array_equal(x, X)


def test_a_record_that_is_no_number_is_not_written(moves, rng):
    """The density does not see it."""
    q, x = moved(moves, rng, NO_NUMBER_THERE)
    assert q == 2
    np.testing.assert_array_equal(x, X)


@pytest.mark.parametrize("how", [NO_NUMBER_HERE, ANOTHER])
def test_base_variates_that_stand_for_other_records_move_nothing(moves, how, rng):
    """Their density is not that of the records."""
    q, x = moved(moves, rng, how)
    assert q == 2
    np.testing.assert_array_equal(x, X)


def test_a_fresh_record_that_is_no_number_is_refused(rng):
    graphs = {
        "statistics": totals,
        "centred": flat_given_records,
        "others": others,
        "refresh": fresh_without_number,
    }
    moves = interweave.compile_moves(graphs, gradients=())
    move = Move(np.eye(1), 0.5, 0)
    settings = interweave.Settings(move, move._replace(steps=20), local_proposal.unguided())
    data = interweave.RefreshedData((), (), (), ())
    (q, (x,)), _ = moves(rng, interweave.State(np.ones(1), (X,)), (), settings, data)
    assert q == 1
    np.testing.assert_array_equal(x, X)


@pytest.mark.parametrize(
    ("records", "again", "same"),
    [
        ([0.3, 5.0], [0.3 + 1e-12, 5.0], True),
        ([0.3, 5.0], [0.4, 5.0], False),
        ([0.3, 5.0], [np.nan, 5.0], False),
        ([3, 5000], [3, 5000], True),
        ([3, 5000], [4, 5000], False),
        ([0.0, 0.0], [0.0, 0.0], True),
    ],
)
def test_which_records_have_come_back(records, again, same):
    pair = (np.array(records),), (np.array(again),)
    assert interweave.came_back(*pair) == same


def test_of_what_stood_still_nothing_is_learnt():
    state = tuning.init(2)
    for _ in range(20):
        state = tuning.observe(state, np.array([1.0, 2.0]))
    assert tuning.learn_factor(state, forget=False) is state


def test_a_start_without_density_is_left(rng):
    """What is not a number at the start would otherwise refuse every proposal."""
    holed = njit(lambda q, shift: (np.array(np.nan if abs(q[0]) < 1e-9 else -0.5 * q[0] ** 2),))
    move = bind(interweave.walk, {"log_density": holed}, label="test")
    assert move(rng, np.zeros(1), Move(np.eye(1), 1.0, 1), (0.0,))[0] != 0


def test_acceptance_is_a_probability():
    assert interweave.acceptance(0.3) == 1
    assert interweave.acceptance(-1.0) == pytest.approx(np.exp(-1))
    assert interweave.acceptance(np.nan) == 0
    assert interweave.acceptance(-np.inf) == 0


def test_binding_a_name_that_is_not_used_is_refused():
    with pytest.raises(ValueError, match="walk does not use no_such_name"):
        bind(interweave.walk, {"no_such_name": normal}, label="test")


def test_curvature_of_a_normal_law_is_its_covariance():
    lengths = np.array([0.1, 0.2])
    slopes = [
        lambda q: normal(q, 0.0)[1],
        tuning.numerical_gradient(lambda q: float(normal(q, 0.0)[0]), lengths),
    ]
    for slope in slopes:
        factor = tuning.curvature_factor(slope, np.array([3.0, 1.0]), lengths)
        np.testing.assert_allclose(factor @ factor.T, COVARIANCE, rtol=1e-6)
        assert factor[0, 1] == 0


def test_curvature_that_is_not_concave_is_refused():
    saddle = tuning.curvature_factor(lambda q: q * [2.0, -2.0], np.zeros(2), np.ones(2))
    nowhere = tuning.curvature_factor(lambda q: q * np.nan, np.zeros(2), np.ones(2))
    assert saddle is None
    assert nowhere is None


def test_the_factor_is_learnt_from_draws(rng):
    state = tuning.init(2)
    for q in rng.multivariate_normal(MEAN, COVARIANCE, size=20_000):
        state = tuning.observe(state, q)
    np.testing.assert_allclose(state.moments.mean, MEAN, atol=0.06)
    learnt = tuning.learn_factor(state, forget=True)
    np.testing.assert_allclose(learnt.factor @ learnt.factor.T, COVARIANCE, atol=0.12)
    assert learnt.moments.draws == 0
    few = tuning.learn_factor(tuning.observe(tuning.init(2), MEAN), forget=False)
    np.testing.assert_array_equal(few.factor, tuning.init(2).factor)


def test_the_scale_finds_its_acceptance(rng):
    """An acceptance that falls with the scale is brought to its target."""
    state = tuning.init(3)
    for _ in range(4000):
        state = tuning.rescale(state, float(rng.random() < np.exp(-state.scale)), 0.38)
    assert np.exp(-state.scale) == pytest.approx(0.38, abs=0.05)


def test_a_factor_that_is_nearly_singular_stays_usable():
    factor = tuning.safe_cholesky(np.array([[1.0, 1.0], [1.0, 1.0]]))
    assert np.all(np.isfinite(factor))
    np.testing.assert_allclose(factor @ factor.T, np.ones((2, 2)), atol=1e-4)
    assert abs(np.prod(np.diag(factor))) > 0


def test_draws_of_the_walk_are_independent_enough(rng):
    """A check that the moves move: many walks of few steps forget their start."""
    move = bind(interweave.trajectory, {"log_density": normal}, label="test")
    q = np.array([8.0, 8.0])
    draws = []
    for _ in range(3000):
        q, _ = move(rng, q, Move(np.linalg.cholesky(COVARIANCE), 0.9, 2), (0.0,))
        draws.append(q)
    assert_mean(np.array(draws)[None, 20:, 0], MEAN[0])
