"""Maximum likelihood by expectation and maximisation, for comparison with an ascent.

*EM* (Awan et al., 2024, section 5.2): in each round databases are drawn given the releases and the
present parameters, and the mean of their log densities is maximised. A round covers the share
I_observed / I_complete of the way, which under privacy may be a thousandth.

*SAEM* (Delyon, Lavielle and Moulines, 1999): the sums that the density depends on are averaged over
all rounds, with gains that decrease.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple, Protocol

import numpy as np

from pymc_privacy.algorithms.ascent import GAIN, Settings, Step

ROUND_SWEEPS = 100
SAEM_SWEEPS, SAEM_BURN = 5, 100
NEWTON_STEPS = 6


class Complete(NamedTuple):
    """The density of complete records given a few databases, as a function of the parameters."""

    gradient: Callable[[np.ndarray], np.ndarray]
    information: Callable[[np.ndarray], np.ndarray]


class Databases(Protocol):
    """Where databases come from, given parameters and releases."""

    def complete(self, q: np.ndarray, sweeps: int) -> Complete:
        """Return the mean log density of several databases."""

    def blended(self, q: np.ndarray, sweeps: int, gain: float) -> Complete:
        """Return the same of all databases so far, the last ones with a weight."""


def maximised(complete: Complete, q: np.ndarray, settings: Settings) -> np.ndarray:
    """Return where the mean log density of complete records is largest, by Newton steps."""
    free = settings.free
    for _ in range(NEWTON_STEPS):
        gradient = complete.gradient(q)[free]
        information = complete.information(q)[np.ix_(free, free)]
        step = np.linalg.lstsq(information, gradient, rcond=1e-12)[0]
        step /= max(1.0, float(np.max(np.abs(step) / settings.scale[free], initial=0.0)))
        q = q.copy()
        q[free] += step
        q = np.clip(q, *settings.bounds)
        if np.abs(step).max(initial=0.0) < 1e-9:
            break
    return q


def em(source: Databases, q: np.ndarray, settings: Settings, most: int) -> Iterator[Step]:
    """Yield each round of EM."""
    for k in range(max(1, most // ROUND_SWEEPS)):
        q = maximised(source.complete(q, ROUND_SWEEPS), q, settings)
        yield Step(q, (k + 1) * ROUND_SWEEPS, float("nan"), "em")


def saem(source: Databases, q: np.ndarray, settings: Settings, most: int) -> Iterator[Step]:
    """Yield each step of SAEM; the last one is the mean of the later half."""
    path = []
    steps = max(2, most // SAEM_SWEEPS)
    for k in range(steps):
        gain = 1.0 if k < SAEM_BURN else (k - SAEM_BURN + 1) ** GAIN
        q = maximised(source.blended(q, SAEM_SWEEPS, gain), q, settings)
        path.append(q)
        yield Step(q, (k + 1) * SAEM_SWEEPS, float("nan"), "saem")
    yield Step(np.mean(path[steps // 2 :], axis=0), steps * SAEM_SWEEPS, float("nan"), "saem")
