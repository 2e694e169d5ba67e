"""Stepping stones by chains that hardly move: their errors say how wrong they are."""

import numpy as np
import pytest

from pymc_privacy.algorithms.tempering import stepping_stones
from tests.stochastic import seed_of

# The log of the mean of exp(-k x^2 / 2) for a standard Normal x is -log(1 + k) / 2.
NARROW = 1000.0
REPEATS = 20


def sticky(rng, moving):
    x = 0.0

    def draw(power):
        nonlocal x
        logs = np.empty(200)
        for k in range(len(logs)):
            if rng.random() < moving:
                x = rng.standard_normal() / np.sqrt(1 + power * NARROW)
            logs[k] = -NARROW * x**2 / 2
        return logs

    return draw


@pytest.mark.parametrize("moving", [1.0, 0.1])
def test_errors_are_those_of_a_chain(moving, request):
    rng = np.random.default_rng(seed_of(request))
    found = [stepping_stones(sticky(rng, moving)) for _ in range(REPEATS)]
    z = [(one.value + np.log1p(NARROW) / 2) / one.error for one in found]
    # As if its draws were independent, a chain that moves once in ten draws has z of about 4.
    assert 0.4 < np.sqrt(np.mean(np.square(z))) < 2.2


def test_a_chain_that_hardly_moves_does_not_know_its_error(request):
    rng = np.random.default_rng(seed_of(request))
    found = [stepping_stones(sticky(rng, 0.001)) for _ in range(5)]
    assert sum(np.isinf(one.error) for one in found) >= 3
