"""The density of complete records given databases: what EM and SAEM maximise in each round."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from pymc_privacy.algorithms.expectation import Complete
from pymc_privacy.algorithms.numerics.differences import curvature
from pymc_privacy.inference.imputation import Imputation

# Of the databases of a round, at most this many are kept whole.
MOST_KEPT = 100


class Kept(NamedTuple):
    """What the density of one database reads besides the parameters, and its weight."""

    arguments: tuple[np.ndarray, ...]
    weight: float


class Completion:
    """Databases given parameters and releases, and the log density of all of them together."""

    def __init__(self, source: Imputation):
        self._source = source
        self._past: list[Kept] = []

    def complete(self, q: np.ndarray, sweeps: int) -> Complete:
        """Return the mean log density of several databases."""
        kept = [Kept(arguments, 1 / sweeps) for arguments in self._drawn(q, sweeps)]
        return self._of(kept)

    def blended(self, q: np.ndarray, sweeps: int, gain: float) -> Complete:
        """Return the same of all databases so far, the last ones with a weight."""
        fresh = [Kept(arguments, gain / sweeps) for arguments in self._drawn(q, sweeps)]
        past = [kept._replace(weight=(1 - gain) * kept.weight) for kept in self._past]
        self._past = self._merged([kept for kept in past if kept.weight > 1e-6] + fresh)
        return self._of(self._past)

    def _drawn(self, q: np.ndarray, sweeps: int) -> list[tuple[np.ndarray, ...]]:
        self._source.move(q)
        found = []
        for _ in range(sweeps):
            self._source.sweep()
            found.append(self._source.arguments())
        return found

    def _merged(self, kept: list[Kept]) -> list[Kept]:
        """Add up databases that differ in sums only, which enter linearly."""
        if self._source.has_sizes or not self._source.program.has_statistics:
            return kept[-MOST_KEPT:]
        total = sum(one.weight for one in kept)
        sums = np.sum([one.weight * one.arguments[-1] for one in kept], axis=0) / total
        return [Kept((*kept[-1].arguments[:-1], sums), total)]

    def _of(self, kept: Sequence[Kept]) -> Complete:
        total = sum(one.weight for one in kept)

        def gradient(q: np.ndarray) -> np.ndarray:
            parts = [one.weight * self._source.complete_score(q, one.arguments) for one in kept]
            return np.sum(parts, axis=0) / total

        def information(q: np.ndarray) -> np.ndarray:
            last = kept[-1].arguments
            return curvature(lambda there: self._source.complete_score(there, last), q)

        return Complete(gradient, information)
