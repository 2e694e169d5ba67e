"""A curved ridge is learnt, straightened and bent back."""

import numpy as np
import pytest

from pymc_privacy.algorithms.adaptation import ridge


def curved_draws(rng, draws=400):
    """Draw two parameters that follow a curve of one log size."""
    log_size = rng.normal(6.0, 0.4, draws)
    z = log_size - log_size.mean()
    theta = np.stack([3 * z + 2 * z**2 - z**3, -(z**2)], axis=1)
    return np.column_stack([theta + 0.01 * rng.normal(size=(draws, 2)), log_size])


def test_the_curve_is_found_and_taken_out():
    draws = curved_draws(np.random.default_rng(1))
    found = ridge.learn(draws, sizes=1)
    np.testing.assert_allclose(found.curves[:, 0, 0], [2.0, -1.0], atol=0.05)
    np.testing.assert_allclose(found.curves[:, 0, 1], [-1.0, 0.0], atol=0.1)
    straight = ridge.straightened(draws, found)
    z = draws[:, 2] - draws[:, 2].mean()
    left = straight[:, 1] - np.polyval(np.polyfit(z, straight[:, 1], 1), z)
    assert left.std() < 0.02


def test_few_draws_show_no_curve():
    found = ridge.learn(curved_draws(np.random.default_rng(2), draws=40), sizes=1)
    assert not found.curves.any()


@pytest.mark.parametrize("beyond", [0.0, 3.0])
def test_bending_undoes_straightening(beyond):
    draws = curved_draws(np.random.default_rng(3))
    found = ridge.learn(draws, sizes=1)
    q = draws[7] + np.array([0.0, 0.0, beyond])
    straight = ridge.straightened(q[None], found)[0]
    ridge.bend(straight, found, 1.0)
    np.testing.assert_allclose(straight, q)
