"""Step methods for `pm.sample`, and their registration."""

from pymc_privacy._compat import STEP_METHODS
from pymc_privacy.step_methods.birth_death import BirthDeath
from pymc_privacy.step_methods.count_states import CountStates
from pymc_privacy.step_methods.interweave import Interweave
from pymc_privacy.step_methods.lattice_walk import LatticeWalk
from pymc_privacy.step_methods.record_sweep import RecordSweep

__all__ = [
    "BirthDeath",
    "CountStates",
    "Interweave",
    "LatticeWalk",
    "RecordSweep",
    "register_step_methods",
]


def register_step_methods() -> None:
    """Let `pm.sample` choose our step methods by itself; calling it again changes nothing."""
    ours = (BirthDeath, CountStates, Interweave, LatticeWalk, RecordSweep)
    # Of methods that are equally competent the first is taken, and PyMC has an ideal
    # one for binary variables.
    STEP_METHODS[:] = [*ours, *(method for method in STEP_METHODS if method not in ours)]
