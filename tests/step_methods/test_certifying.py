"""The comparison at the first kept draw: once in each chain, and never in tuning."""

import cloudpickle
import numpy as np
import pymc as pm
import pytest

from pymc_privacy.errors import CertificateError
from pymc_privacy.graph.certificate import Comparison
from pymc_privacy.step_methods.certifying import Certifier

RIGHT, WRONG = Comparison("a", 1.0, 1.0), Comparison("the slope", 1.0, 2.0)
NOTHING = Comparison("a", -np.inf, -np.inf)


class Counted:
    """Comparisons, and how often they were asked for."""

    def __init__(self, *comparisons):
        self.comparisons, self.times = comparisons, 0

    def __call__(self):
        self.times += 1
        return iter(self.comparisons)


@pytest.fixture
def certifier():
    with pm.Model() as model:
        pm.Normal("mu")
    return Certifier(model)


def test_everything_is_compared_once_in_each_chain_and_not_in_tuning(certifier):
    compare = Counted(RIGHT)
    certifier.check_again(True, compare)
    assert compare.times == 0
    for _ in range(3):
        certifier.check_again(False, compare)
    assert compare.times == 1
    certifier.start_chain()
    certifier.check_again(False, compare)
    assert compare.times == 2


def test_where_nothing_could_be_compared_the_next_draw_is_looked_at(certifier):
    compare = Counted(NOTHING)
    for _ in range(3):
        certifier.check_again(False, compare)
    assert compare.times == 3


def test_a_disagreement_ends_the_chain(certifier):
    with pytest.raises(CertificateError, match=r"this chain came to, the slope is 1 .* and 2 "):
        certifier.check_again(False, Counted(RIGHT, WRONG))


def test_another_process_goes_on_where_this_one_was(certifier):
    certifier.reference  # noqa: B018
    copy = cloudpickle.loads(cloudpickle.dumps(certifier))
    compare = Counted(RIGHT)
    copy.check_again(False, compare)
    again = cloudpickle.loads(cloudpickle.dumps(copy))
    again.check_again(False, compare)
    assert compare.times == 1
    assert copy.reference.terms({"mu": np.array(0.0)}).by_name.keys() == {"mu"}
