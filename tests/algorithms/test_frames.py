"""Coordinates around a ridge: one to one, with the volume that they say, and frames that fit."""

import numpy as np
import pytest
from numba import njit

from pymc_privacy.algorithms.machine_code.binding import bind
from pymc_privacy.algorithms.proposals import frames, leaps
from tests.stochastic import Z_LIMIT, seed_of, z_of_mean

# Two parameters and the log of a size; at the middle knot, other origins and factors.
FRAME = frames.Frame(
    np.array([-1.0, 0.0, 1.5]),
    np.array([5.0, 6.0, 8.0]),
    np.array([[0.0, 1.0], [0.5, 0.0], [3.0, -1.0]]),
    np.array([[[1.0, 0], [0.3, 2]], [[2.0, 0], [-0.5, 1]], [[0.5, 0], [0.1, 1.5]]]),
    np.array([0.2, -0.1, 0.3]),
    np.array([[1.2, 0, 0], [0.1, 0.8, 0], [-0.4, 0.2, 1.1]]),
)
SINGLE = frames.single_frame(np.array([1.0, -1.0]), np.array([[1.1, 0.0], [0.2, 1.6]]))


@pytest.fixture
def rng(request):
    return np.random.default_rng(seed_of(request))


@pytest.mark.parametrize(("frame", "size"), [(FRAME, 3), (SINGLE, 2)], ids=["ridge", "single"])
def test_coordinates_are_one_to_one(rng, frame, size):
    for t in rng.normal(0, 2, size=(200, size)):
        q, _ = frames.place(t, frame)
        np.testing.assert_allclose(frames.coordinates(q, frame), t, atol=1e-9)
    # The other way round: everywhere there is a t.
    for q in rng.normal(6, 5, size=(200, size)):
        np.testing.assert_allclose(frames.place(frames.coordinates(q, frame), frame)[0], q)


def test_the_volume_is_that_of_the_slopes(rng):
    found = []
    for t in rng.normal(0, 1.5, size=(100, 3)):
        steps = 1e-6 * np.eye(3)
        slopes = [
            (frames.place(t + s, FRAME)[0] - frames.place(t - s, FRAME)[0]) / 2e-6 for s in steps
        ]
        found.append(np.linalg.slogdet(slopes)[1] - frames.place(t, FRAME)[1])
    # Up to the constant volume of the spread.
    np.testing.assert_allclose(found, np.log(np.diag(FRAME[5])).sum(), atol=1e-6)


def test_at_a_knot_the_frame_is_the_one_given():
    for k in range(3):
        y = np.array([0.7, -0.4, FRAME[0][k]])
        q, _ = frames.place(np.linalg.solve(FRAME[5], y - FRAME[4]), FRAME)
        np.testing.assert_allclose(q[:2], FRAME[2][k] + FRAME[3][k] @ y[:2])
        assert q[2] == pytest.approx(FRAME[1][k])


# A ridge that no frame follows exactly: parameters around a curve of z.
@njit
def ridge(q, shift):
    z = q[2] - 6
    a, b = q[0] - z * z / 2, (q[1] + z) * np.exp(-0.3 * z)
    return (np.array(-0.5 * (a * a + b * b + z * z) - 0.3 * z),)


def on_the_ridge(rng):
    z = rng.normal()
    return np.array([z * z / 2 + rng.normal(), -z + np.exp(0.3 * z) * rng.normal(), 6 + z])


def after_moves(rng, leap, replicates=15_000, **names):
    """Start at exact draws, make each kind of step, and return how far the law has moved."""
    move = bind(leaps.guided_walk, {"log_density": ridge} | names, label="test")
    ends = [move(rng, on_the_ridge(rng), FRAME, 0.8, 8, leap, (0.0,))[0] for _ in range(replicates)]
    a, b, z = np.array(ends).T
    z = z - 6
    rest = (b + z) * np.exp(-0.3 * z)
    standard = (a - z * z / 2, rest, z)
    return max(
        max(abs(z_of_mean(v, 0)), abs(z_of_mean(v * v, 1)), abs(z_of_mean(v > 1, 0.158655)))
        for v in standard
    )


@pytest.mark.parametrize("leap", [True, False], ids=["leaps", "walk"])
def test_moves_along_a_ridge_leave_their_law_invariant(rng, leap):
    z = after_moves(rng, leap)
    assert z < Z_LIMIT, f"z = {z:.1f}"


@pytest.mark.parametrize("leap", [True, False], ids=["leaps", "walk"])
def test_moves_that_forget_the_volume_are_noticed(rng, leap):
    flat = njit(lambda t, frame: (frames.place(t, frame)[0], 0.0))
    z = after_moves(rng, leap, place=flat)
    assert z > Z_LIMIT, f"z = {z:.1f}"
