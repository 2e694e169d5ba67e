"""A change of structure leaves every draw alone; one that does not writes them anew, and says why.

Machines round differently, and chains carry that on: agreement is asked for to six digits, which
forty iterations do not use up.
"""

import numpy as np
import pytest

from tests.golden import stored
from tests.golden.models import MODELS, draws_of


def test_each_model_has_its_draws():
    assert list(stored()) == list(MODELS)


@pytest.mark.slow
@pytest.mark.parametrize("name", MODELS)
def test_draws_stay_what_they_are(name):
    draws, expected = draws_of(name), stored()[name]
    assert draws.keys() == expected.keys()
    for variable, numbers in expected.items():
        np.testing.assert_allclose(draws[variable], numbers, rtol=1e-6, err_msg=variable)


@pytest.mark.slow
def test_another_seed_would_be_noticed():
    draws, expected = draws_of("coins", seed=2), stored()["coins"]
    assert not np.allclose(draws["p"], expected["p"], rtol=1e-2)
