"""What holds around every test."""

import gc

import numpy as np
import pytensor
import pytest

from pymc_privacy.certificate.base import Comparison

# Where each node of a graph was written takes a sixth of the time of all graphs here.
pytensor.config.traceback__limit = 0
# Compiled models stay for the whole run: looking through them again and again takes a tenth of it.
gc.set_threshold(200_000, 50, 100)


@pytest.fixture(autouse=True)
def global_random_state_is_left_alone():
    """Randomness is an argument: nothing may draw from NumPy's global generator."""
    before = np.random.get_state()  # noqa: NPY002
    yield
    after = np.random.get_state()  # noqa: NPY002
    assert all(np.array_equal(b, a) for b, a in zip(before, after, strict=True)), (
        "the test moved the global random state of NumPy; pass an rng or a random_seed"
    )


@pytest.fixture
def the_certificate_is_blind(monkeypatch):
    """Let broken twins through, to measure whether anything else would notice them."""
    monkeypatch.setattr(Comparison, "agrees", True)
