"""What is learnt of a ridge in tuning: its curve, its far end, and what leaps leave."""

import numpy as np
import pytest

from pymc_privacy.algorithms import trail, tuning
from tests.stochastic import seed_of

TUNE = 400


@pytest.fixture
def rng(request):
    return np.random.default_rng(seed_of(request))


def draw(rng):
    """Return one parameter and the log of a size, on a curved ridge."""
    log = rng.normal(7, 0.5)
    return np.array([(log - 7) ** 2 + rng.normal(0, 0.05), log])


def learnt(rng, steps, bends=True):
    found = trail.init(1, 1)
    for _ in range(steps):
        found = found._replace(walk=tuning.rescale(found.walk, 0.4, 0.4))
        found = trail.learn(found, draw(rng), rng.normal(size=2), 0.3, TUNE, bends=bends)
    return found


def test_a_curved_ridge_becomes_straight(rng):
    found = learnt(rng, 3 * TUNE // 4 + 1)
    assert found.ridge.curves[0, 0, 0] == pytest.approx(1, abs=0.1)
    # Left is the spread about the curve, a fifteenth of the spread along it.
    assert np.linalg.norm(found.walk.factor[0]) < 0.1
    assert learnt(rng, 3 * TUNE // 4 + 1, bends=False).walk.factor[0, 0] > 0.2


def test_the_far_end_is_where_sizes_are_large(rng):
    assert learnt(rng, TUNE // 2 + 1).far[1] > 7.6


def test_the_last_quarter_of_tuning_keeps_the_ridge_and_learns_what_it_leaves(rng):
    before = learnt(rng, 3 * TUNE // 4 + 1)
    after = before
    for _ in range(TUNE // 4 - 1):
        after = after._replace(walk=tuning.rescale(after.walk, 0.4, 0.4))
        # A residual that is wider than a standard normal one, and not centred.
        known = after.guide.residual
        t = np.linalg.solve(known.factor, rng.normal(1, 3, size=2) - known.centre)
        after = trail.learn(after, draw(rng), t, 0.3, TUNE, bends=True)
    assert after.ridge is before.ridge
    assert after.far is before.far
    np.testing.assert_array_equal(after.walk.factor, before.walk.factor)
    assert 2 < np.linalg.norm(after.guide.residual.factor[0]) < 4
    np.testing.assert_allclose(after.guide.residual.centre, 1, atol=1.2)
    assert after.guide.accept == pytest.approx(0.3, abs=0.05)


def test_where_nothing_moved_nothing_is_learnt():
    found = trail.init(1, 1)
    same = trail.learn(found, None, None, np.nan, TUNE, bends=True)
    assert len(same.seen) == 0
    assert not len(same.walk.centre)
    assert same.guide.accept == 0


def test_without_weights_nothing_guides(rng):
    found = learnt(rng, TUNE // 2)
    *near, far = trail.local(found, np.empty(0), leap=True)
    assert not len(near[0])
    assert not len(far)
    *near, far = trail.local(found, np.ones(3), leap=True)
    np.testing.assert_array_equal(near[0], found.walk.centre)
    np.testing.assert_array_equal(far, found.far)
