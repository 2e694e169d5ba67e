"""`capacity_for`: how many rows to hold for records whose number is known by a noisy release."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from pymc_privacy.arguments import probability, real, refusal, shown
from pymc_privacy.errors import MechanismError, ReleaseError
from pymc_privacy.mechanisms.base import AdditiveMechanism
from pymc_privacy.mechanisms.tails import FURTHEST, log_tail_bound, smallest_integer

_TERMS = 100_000


def capacity_for(release: Any, mechanism: AdditiveMechanism, *, tail: float = 1e-6) -> int:
    """Return a capacity that the number of records exceeds with probability at most ``tail``.

    Two statements hold at once. Before anything is published: noise that hides more records
    than that from this release has probability at most ``tail``. Given the release: so has a
    larger number of records, under a flat prior on 1, 2, … and with no other release. A prior
    that favours large numbers, or other releases, may need more.

    Parameters
    ----------
    release : float
        The noisy number of records.
    mechanism : AdditiveMechanism
        The law of its noise, with one scale.
    tail : float, default 1e-6

    Returns
    -------
    int

    Examples
    --------
    >>> import pymc_privacy as pmp
    >>> pmp.capacity_for(1012.3, pmp.Laplace(epsilon=0.1, sensitivity=1.0))
    1151
    """
    released = _checked(release, mechanism, tail)
    first = max(1, math.ceil(released))
    # The probabilities under the flat prior are proportional to these; a part of their sum is
    # a lower bound on it, and the first statement needs no more than 1.
    sizes = np.arange(first, first + _TERMS)
    held = min(1.0, float(np.exp(mechanism.log_density(released, sizes)).sum()))
    if held == 0:
        raise ReleaseError(
            "The noisy number of records must lie within reach of a positive number of them; "
            f"got {release!r}, with noise of scale {mechanism.scale}."
        )
    allowed = math.log(tail) + math.log(held)

    def enough(size):
        # More than `size` records: the noise has taken off at least size + 1 - released.
        return log_tail_bound(mechanism, np.maximum(size + 1 - released, 1)) <= allowed

    return int(smallest_integer(enough, np.asarray(float(first))))


def _checked(release: Any, mechanism: Any, tail: float) -> float:
    if not isinstance(mechanism, AdditiveMechanism) or np.ndim(mechanism.scale):
        raise MechanismError(
            "A capacity needs a mechanism that adds noise of one scale to the number of records, "
            f"such as Laplace(epsilon=0.1, sensitivity=1.0); got {shown(mechanism)}."
        )
    why = "the probability of more records than the capacity"
    probability("tail", tail, meaning=why, error=MechanismError)
    said: Any = {"meaning": f"as {type(mechanism).__name__} gives it", "error": ReleaseError}
    name = "The noisy number of records"
    released = real(name, release, **said)
    if abs(released) > FURTHEST:
        raise refusal(name, f"at most {FURTHEST}", release, **said)
    if mechanism.discrete and released != round(released):
        raise refusal(name, "an integer", release, **said)
    return released
