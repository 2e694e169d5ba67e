"""How many moves with the records pay, found by trying both numbers in turn."""

import numpy as np
import pytest

from pymc_privacy.algorithms.adaptation import effort
from pymc_privacy.algorithms.adaptation import interweave as learns
from pymc_privacy.algorithms.interweave import Info
from tests.stochastic import seed_of

PLANNED, ITERATIONS = 200, 4000


@pytest.fixture
def rng(request):
    return np.random.default_rng(seed_of(request))


def tried(rng, forgets):
    """Run a chain whose two kinds of iteration forget so much, and return what is known."""
    q, known = rng.standard_normal(3), effort.init(3)
    for k in range(ITERATIONS):
        steps = effort.FEW if k % 2 else PLANNED
        keep = 1 - forgets[k % 2]
        q = keep * q + np.sqrt(1 - keep**2) * rng.standard_normal(3)
        known = effort.observe(known, q, steps)
    return known


@pytest.mark.parametrize(
    ("forgets", "others", "expected"),
    [
        ((0.5, 0.5), 100.0, effort.FEW),  # the moves do nothing
        ((0.9, 0.1), 100.0, PLANNED),  # waits 1.2 and 19, and costs 300 and 104
        ((0.6, 0.5), 100.0, effort.FEW),  # waits 2.3 and 3
        ((0.9, 0.4), 2000.0, PLANNED),  # what is saved is little of the whole
    ],
)
def test_the_number_is_that_of_cheaper_independent_draws(rng, forgets, others, expected):
    known = tried(rng, forgets)
    waits = [(2 - f) / f for f in forgets]
    costs = [PLANNED + others, effort.FEW + others]
    assert (waits[1] * costs[1] < waits[0] * costs[0]) == (expected == effort.FEW)
    assert effort.number(known, np.ones(3), PLANNED, others) == expected


def test_what_was_not_tried_or_did_not_move_changes_nothing():
    known = effort.init(2)
    assert effort.number(known, np.ones(2), PLANNED, 10.0) == PLANNED
    for k in range(10):
        known = effort.observe(known, np.zeros(2), effort.FEW if k % 2 else PLANNED)
    assert effort.number(known, np.ones(2), PLANNED, 10.0) == PLANNED


@pytest.mark.parametrize(
    ("leap_accept", "given", "expected"),
    [(0.0, None, {effort.FEW}), (0.0, 60, {60}), (0.9, None, {20})],
)
def test_few_moves_are_tried_at_the_end_of_tuning_where_leaps_fail(
    rng, leap_accept, given, expected
):
    traits = learns.Traits(3, True, False, True, True, np.ones(2))
    plan = learns.plan(traits, centred_steps=None, noncentred_steps=given)
    learnt, seen = learns.init(plan, 400), []
    for _ in range(400):
        seen.append(learnt.noncentred_steps)
        # Each iteration draws the parameters anew, whatever the moves with the records do.
        q = rng.standard_normal(3)
        learnt = learns.learn(learnt, plan, q, Info(0.8, 0.3, leap_accept, q))
    if not leap_accept and given is None:
        assert set(seen[-20:]) == {effort.FEW, plan.noncentred_steps}
    assert {learns.settle(learnt, plan).noncentred_steps} == expected
