"""Guided moves on their own: invariance of known laws, what may guide them, and broken twins."""

import numpy as np
import pytest
from numba import njit
from scipy import stats

from pymc_privacy.algorithms.adaptation import local_proposal, tuning
from pymc_privacy.algorithms.machine_code.binding import bind
from pymc_privacy.algorithms.proposals import leaps
from pymc_privacy.algorithms.proposals.frames import Reference, place, single_frame
from tests.algorithms.test_interweave import COVARIANCE, MEAN, largest_z, normal
from tests.stochastic import Z_LIMIT, seed_of, z_of_mean

FRAME = single_frame(np.array([1.0, -1.0]), np.array([[1.1, 0.0], [0.2, 1.6]]))


@pytest.fixture
def rng(request):
    return np.random.default_rng(seed_of(request))


def walk_of(log_density, **names):
    """Return the walk for a density, with proposals of which some names stand for others."""
    proposals = {}
    for name in ("propose_leap", "propose_drift", "propose_single"):
        template = getattr(leaps, name).py_func
        known = {key: names[key] for key in set(names) & set(template.__code__.co_names)}
        proposals[name] = bind(template, known, label="test")
    return bind(leaps.guided_walk, {"log_density": log_density} | proposals, label="test")


def after_leaps(rng, replicates=8000, steps=4, **names):
    """Start at exact draws, make each kind of step, and return where they are."""
    move = walk_of(normal, **names)
    start = rng.multivariate_normal(MEAN + 0.5, COVARIANCE, size=replicates)
    return np.array([move(rng, q, FRAME, 0.8, steps, True, (0.5,))[0] for q in start])


def test_leaps_leave_their_law_invariant(rng):
    z = largest_z(after_leaps(rng))
    assert z < Z_LIMIT, f"z = {z:.1f}"


def test_leaps_without_the_ratio_of_proposals_are_noticed(rng):
    flat = njit(lambda t, degrees: 0.0)
    z = largest_z(after_leaps(rng, log_student=flat))
    assert z > Z_LIMIT, f"z = {z:.1f}"


def test_leaps_that_believe_in_another_law_are_noticed(rng):
    thin = njit(lambda t, degrees: -0.5 * (t * t).sum())
    z = largest_z(after_leaps(rng, log_student=thin))
    assert z > Z_LIMIT, f"z = {z:.1f}"


def test_singles_that_believe_in_the_law_of_leaps_are_noticed(rng):
    lighter = njit(lambda t, degrees: leaps.log_student(t, 5.0))
    z = largest_z(after_leaps(rng, replicates=40_000, log_student=lighter))
    assert z > Z_LIMIT, f"z = {z:.1f}"


def test_the_coordinates_are_those_of_the_parameters(rng):
    move = bind(leaps.guided_walk, {"log_density": normal}, label="test")
    for steps in (0, 1, 2, 7):
        q, t, walked, leapt = move(rng, MEAN, FRAME, 0.8, steps, True, (0.0,))
        np.testing.assert_allclose(place(t, FRAME)[0], q)
        assert 0 <= walked <= 1
        assert 0 <= leapt <= 1
    *_, leapt = move(rng, MEAN, FRAME, 0.8, 9, False, (0.0,))
    assert leapt == 0


@njit
def student(q, shift):
    return (np.array(leaps.log_student(q, leaps.DEGREES_OF_FREEDOM)),)


def student_chain(rng, rounds=16_000, **names):
    """Return how far a leap and a drift after it are from the law that both are made for."""
    move = walk_of(student, **names)
    frame = single_frame(np.zeros(2), np.eye(2))
    q, draws = np.zeros(2), []
    for _ in range(rounds):
        q, _, drifted, leapt = move(rng, q, frame, 1.0, 2, True, (0.0,))
        assert drifted == pytest.approx(1)
        assert leapt == pytest.approx(1)
        draws.append((q * q).sum() / 2)
    law = stats.f(2, leaps.DEGREES_OF_FREEDOM)
    return max(abs(z_of_mean(np.array(draws) <= law.ppf(p), p)) for p in (0.1, 0.5, 0.9))


def test_leaps_and_drifts_follow_students_law(rng):
    """Where it is the target, every one of them is accepted."""
    z = student_chain(rng)
    assert z < Z_LIMIT, f"z = {z:.1f}"


def test_a_drift_that_forgets_the_radius_is_noticed(rng):
    """With w drawn from its own law, not given t, a drift is not reversible for Student's."""

    @njit
    def weight(rng, t, degrees):
        return 2 * rng.standard_gamma(degrees / 2) / degrees

    z = student_chain(rng, student_weight=weight)
    assert z > Z_LIMIT, f"z = {z:.1f}"


@njit
def standard_normal(q, w):
    return (np.array(-0.5 * (q * q).sum()),)


@njit
def exponential_misfit(q, w):
    return (np.exp(0.7 * q),)


def chain(rng, follow, rounds=30_000):
    """Walk one parameter, shaped by the slopes at a reference: a fixed one, or where it is."""
    frame = bind(leaps.local_frame, {"misfit": exponential_misfit}, label="test")
    move = bind(leaps.guided_walk, {"log_density": standard_normal}, label="test")
    one, none, eye = np.ones(1), np.zeros(1), np.eye(1)
    q, draws = none, []
    for _ in range(rounds):
        reference = q if follow else none
        given = Reference(reference[None], 0.01 * one, eye, 3 * one, none, none, eye, False)
        found = frame(given, (0.0,))
        q = move(rng, q, found, 2.4, 1, False, (0.0,))[0]
        draws.append(q[0])
    return max(abs(z_of_mean(np.array(d)[None], e)) for d, e in ((draws, 0), (np.square(draws), 1)))


def test_a_frame_of_the_base_variates_keeps_the_walk_symmetric(rng):
    z = chain(rng, follow=False)
    assert z < Z_LIMIT, f"z = {z:.1f}"


def test_a_frame_that_follows_the_parameters_is_noticed(rng):
    """Steps that are longer here than there are not taken back as often."""
    z = chain(rng, follow=True)
    assert z > Z_LIMIT, f"z = {z:.1f}"


def test_the_frame_of_a_linear_statistic_is_its_exact_posterior():
    """With Normal noise, and the prior in place of the precision, nothing is left to learn."""
    slopes, released = np.array([[1.0, 0.5], [0.0, 2.0], [1.0, -1.0]]), np.array([0.3, -1.0, 2.0])

    @njit
    def misfit(q, w):
        return (slopes @ q - released,)

    frame = bind(leaps.local_frame, {"misfit": misfit}, label="test")
    precision, weights = np.array([[2.0, 0.3], [0.3, 1.0]]), np.array([1.0, 4.0, 0.5])
    points, lengths = np.array([[0.4, -0.2], [1.0, 5.0]]), np.full(2, 0.1)
    scores, mean, spread = np.array([-1.0, 1.0]), np.array([0.1, 0.3]), np.diag([2.0, 3.0])
    given = Reference(points, lengths, precision, weights, scores, mean, spread, leaps=False)
    found = frame(given, (0.0,))
    posterior = np.linalg.inv(precision + slopes.T @ np.diag(weights) @ slopes)
    centres = [
        posterior @ (precision @ point + slopes.T @ (weights * released)) for point in points
    ]
    for k in range(2):
        np.testing.assert_allclose(found.origins[k], centres[k])
        np.testing.assert_allclose(found.factors[k] @ found.factors[k].T, posterior)
        assert found.factors[k][0, 1] == 0
    np.testing.assert_array_equal(found.knots, points[:, 1])
    for kept in ("scores", "mean", "spread"):
        np.testing.assert_array_equal(getattr(found, kept), getattr(given, kept))


def test_beyond_the_precision_a_coordinate_stays_where_it_is():
    @njit
    def misfit(q, w):
        return (np.array([q[0] + q[1] - 3]),)

    frame = bind(leaps.local_frame, {"misfit": misfit}, label="test")
    one, points = np.ones(1), np.array([[0.0, 0.0], [0.0, 2.0]])
    given = (np.ones(2), np.eye(1), one, np.array([0.0, 1.0]), np.zeros(2), np.eye(2), False)
    found = frame(Reference(points, *given), (0.0,))
    np.testing.assert_allclose(found.origins, [[1.5], [0.5]])
    np.testing.assert_array_equal(found.knots, [0, 2])


def test_slopes_beyond_all_measure_are_no_guide():
    @njit
    def misfit(q, w):
        return (np.array([np.inf]),)

    frame = bind(leaps.local_frame, {"misfit": misfit}, label="test")
    one = np.ones(1)
    given = (2 * one[None], one, 4 * np.eye(1), one, 0 * one, 0 * one, np.eye(1), False)
    found = frame(Reference(*given), (0.0,))
    assert (found.origins[0, 0], found.factors[0, 0, 0]) == (2, 0.5)


@njit
def far_too_steep(q, slope):
    return (np.array([slope * (q[0] + q[1])]),)


@pytest.mark.parametrize("slope", [1e20, np.nan, np.inf])
def test_information_without_an_inverse_is_no_guide(slope):
    frame = bind(leaps.local_frame, {"misfit": far_too_steep}, label="test")
    one, point = np.ones(2), np.array([[2.0, -1.0]])
    precision = np.array([[4.0, 1.0], [1.0, 2.0]])
    given = (point, one, precision, np.ones(1), np.zeros(1), 0 * one, np.eye(2), False)
    found = frame(Reference(*given), (slope,))
    np.testing.assert_array_equal(found.origins, point)
    np.testing.assert_allclose(found.factors[0] @ found.factors[0].T, np.linalg.inv(precision))


def learning(rng, rounds, tune_steps):
    """Learn from independent draws of a Normal law, with the identity in place of slopes."""
    walk, proposal = tuning.init(2), local_proposal.init(2)
    for _ in range(rounds):
        draw = rng.multivariate_normal(MEAN, COVARIANCE)
        t = np.linalg.solve(proposal.residual.factor, draw - proposal.residual.centre)
        walk = tuning.rescale(tuning.observe(walk, draw), 0.38, 0.38)
        walk, proposal = local_proposal.learn(walk, proposal, t, 0.25, tune_steps)
    return walk, proposal


def test_the_law_is_learnt_first_and_then_what_it_leaves(rng):
    walk, proposal = learning(rng, 799, 800)
    np.testing.assert_allclose(walk.centre, MEAN, atol=0.5)
    np.testing.assert_allclose(walk.factor @ walk.factor.T, COVARIANCE, atol=0.8)
    residual = proposal.residual
    np.testing.assert_allclose(residual.centre, MEAN, atol=0.5)
    np.testing.assert_allclose(residual.factor @ residual.factor.T, COVARIANCE, atol=0.8)
    assert proposal.accept == pytest.approx(0.25, abs=0.01)
    assert local_proposal.leaps(proposal)


def test_another_law_has_other_residuals(rng):
    """At a milestone of the first half what was left of the old law is forgotten."""
    _, proposal = learning(rng, 400, 800)
    assert proposal.residual.iteration == 0
    np.testing.assert_array_equal(proposal.residual.factor, np.eye(2))
    assert proposal.accept > 0.2


@pytest.mark.parametrize(
    ("accept", "steps"), [(0.0, 180), (0.019, 180), (0.1, 100), (0.2, 50), (0.9, 20)]
)
def test_leaps_that_are_accepted_save_steps(accept, steps):
    proposal = local_proposal.init(9)._replace(accept=accept)
    assert local_proposal.number_of_steps(proposal, 180) == steps
    assert local_proposal.leaps(proposal) == (steps < 180)


def test_without_a_centre_nothing_guides():
    found = local_proposal.reference(tuning.init(3), local_proposal.init(3), np.ones(2), leap=True)
    assert not any(map(np.size, found._replace(leaps=())))
    assert not found.leaps
