"""What is learnt of a ridge in tuning: its curve, where to look at it, and what leaps leave."""

import numpy as np
import pytest

from pymc_privacy.algorithms.adaptation import ridge_adaptation as adaptation
from pymc_privacy.algorithms.adaptation import tuning
from tests.stochastic import seed_of

TUNE = 400


@pytest.fixture
def rng(request):
    return np.random.default_rng(seed_of(request))


def draw(rng):
    """Return one parameter and the log of a size, on a curved ridge."""
    log = rng.normal(7, 0.5)
    return np.array([(log - 7) ** 2 + rng.normal(0, 0.05), log])


def learnt(rng, steps, has_ridge=True):
    found = adaptation.init(1, 1)
    for _ in range(steps):
        found = found._replace(walk=tuning.rescale(found.walk, 0.4, 0.4))
        found = adaptation.learn(
            found, draw(rng), rng.normal(size=2), 0.3, TUNE, has_ridge=has_ridge
        )
    return found


def test_a_curved_ridge_becomes_straight(rng):
    found = learnt(rng, 3 * TUNE // 4 + 1)
    assert found.ridge.curves[0, 0, 0] == pytest.approx(1, abs=0.1)
    # Left is the spread about the curve, a fifteenth of the spread along it.
    assert np.linalg.norm(found.walk.factor[0]) < 0.1
    assert learnt(rng, 3 * TUNE // 4 + 1, has_ridge=False).walk.factor[0, 0] > 0.2


def test_knots_are_where_the_sizes_are(rng):
    found = learnt(rng, TUNE // 2 + 1)
    np.testing.assert_allclose(found.knots, 7 + 0.5 * adaptation.SCORES, atol=0.4)


def test_knots_are_apart_even_where_a_size_never_moved(rng):
    found = adaptation.init(1, 1)
    for _ in range(TUNE // 2 + 1):
        found = found._replace(walk=tuning.rescale(found.walk, 0.4, 0.4))
        point = np.array([rng.normal(), 7.0])
        found = adaptation.learn(found, point, rng.normal(size=2), 0.3, TUNE, has_ridge=True)
    assert np.all(np.diff(found.knots) > 0)


def test_the_last_quarter_of_tuning_keeps_the_ridge_and_learns_what_it_leaves(rng):
    before = learnt(rng, 3 * TUNE // 4 + 1)
    after = before
    for _ in range(TUNE // 4 - 1):
        after = after._replace(walk=tuning.rescale(after.walk, 0.4, 0.4))
        # A residual that is wider than a standard normal one, and not centred.
        known = after.proposal.residual
        t = np.linalg.solve(known.factor, rng.normal(1, 3, size=2) - known.centre)
        after = adaptation.learn(after, draw(rng), t, 0.3, TUNE, has_ridge=True)
    assert after.ridge is before.ridge
    assert after.knots is before.knots
    np.testing.assert_array_equal(after.walk.factor, before.walk.factor)
    assert 2 < np.linalg.norm(after.proposal.residual.factor[0]) < 4
    np.testing.assert_allclose(after.proposal.residual.centre, 1, atol=1.2)
    assert after.proposal.accept == pytest.approx(0.3, abs=0.05)


def test_steps_that_are_always_accepted_stay_of_a_length_that_says_something(rng):
    """Drifts become fresh draws; their scale would grow for as long as tuning lasts."""
    found = adaptation.init(1, 1)
    for _ in range(TUNE):
        found = found._replace(walk=tuning.rescale(found.walk, 1.0, 0.4))
        found = adaptation.learn(found, draw(rng), rng.normal(size=2), 1.0, TUNE, has_ridge=True)
    assert 10 < found.walk.scale < 50


def test_where_nothing_moved_nothing_is_learnt():
    found = adaptation.init(1, 1)
    same = adaptation.learn(found, None, None, np.nan, TUNE, has_ridge=True)
    assert len(same.seen) == 0
    assert not len(same.walk.centre)
    assert same.proposal.accept == 0


def test_without_weights_nothing_guides(rng):
    found = learnt(rng, TUNE // 2)
    assert not len(adaptation.reference(found, np.empty(0), leap=True).points)
    assert not len(adaptation.reference(adaptation.init(1, 1), np.ones(3), leap=True).points)


def test_references_are_on_the_straight_ridge(rng):
    found = learnt(rng, TUNE // 2)
    reference = adaptation.reference(found, np.ones(3), leap=True)
    np.testing.assert_array_equal(reference.points[:, 1], found.knots)
    # The law of the parameter given the size.
    covariance = found.walk.factor @ found.walk.factor.T
    np.testing.assert_allclose(
        reference.points[:, 0],
        found.walk.centre[0]
        + covariance[0, 1] / covariance[1, 1] * (found.knots - found.walk.centre[1]),
    )
    given = covariance[0, 0] - covariance[0, 1] ** 2 / covariance[1, 1]
    np.testing.assert_allclose(reference.precision, [[1 / given]])
    assert (len(reference.scores), reference.leaps) == (len(reference.points), True)
