"""How many moves of each kind one iteration makes, and which are given up after tuning."""

from __future__ import annotations

from pymc_privacy.targets.base import ParameterProgram

MANY_RECORDS = 10_000
STEPS_PER_SWEEP = 250
MOST_STEPS = 200
# A fresh draw of the records is often refused however near the parameters stay.
REFRESH_SCALES = (0.3, 2.4)
_LEAST_ACCEPT = 1e-3
_SHORT_TUNING = 100


def default_centred_steps(program: ParameterProgram) -> int:
    """Return how many moves given the records one iteration makes: more where they cost little."""
    if "centred" not in program.gradients:
        return max(8, 3 * program.size)
    return 4 if program.has_statistics else 2


def default_noncentred_steps(program: ParameterProgram) -> int:
    """Return how many moves with the records one iteration makes."""
    if not program.interweaves:
        # Each draws all records anew, as the sweep does.
        return 3
    return 4 if "noncentred" in program.gradients else min(max(32, 20 * program.size), MOST_STEPS)


def default_fraction(size: int, noncentred_steps: int) -> float:
    """Return the part of the records to sweep: about as much work as the other moves.

    A step of the walk reads every record in a fraction of the time that the sweep takes to
    draw one; with few steps and many records a whole sweep would take nearly all the time.
    """
    if size < MANY_RECORDS:
        return 1.0
    return min(1.0, max(noncentred_steps, 1) / STEPS_PER_SWEEP)


def is_hopeless(best_accept: float, tune_steps: int) -> bool:
    """Tell whether a move was hardly ever accepted, in tuning that was long enough to say so."""
    return tune_steps > _SHORT_TUNING and best_accept < _LEAST_ACCEPT
