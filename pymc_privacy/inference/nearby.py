"""How far the releases of a model are from what it makes on average: for a start of an ascent.

A few databases are drawn once, by their base variates, and taken along to any parameters; records
of few values need not be drawn.
"""

from __future__ import annotations

import numpy as np

from pymc_privacy.algorithms.approach import Gap, approach
from pymc_privacy.algorithms.ascent import Settings
from pymc_privacy.algorithms.numerics.differences import derivatives
from pymc_privacy.inference.imputation import Imputation, blocks_of, noise_variance
from pymc_privacy.inference.sweeping import Records

DATABASES = 4
# Where the releases are nearer than this, in standard deviations, the likelihood takes over.
WITHIN = 2.0


class Nearby:
    """The mean totals of a model at any parameters, by the same random numbers."""

    def __init__(self, source: Imputation, q: np.ndarray):
        self._source = source
        self._drawn = []
        for _ in range(DATABASES if source.has_base else 1):
            source.start(q)
            self._drawn.append(source.base())
        self._release = np.concatenate([source.published(records) for records in source.records])

    def gap(self, q: np.ndarray) -> Gap:
        """Return the distance of the releases from the means of the totals, and its covariance."""
        spread = self._spread(q)
        columns = [pair for records in self._source.records for pair in records.mechanisms]
        deviation = np.sqrt(np.maximum(np.diag(spread), 0.0))
        noise = [
            noise_variance(pair, 0.0, v, False) for pair, v in zip(columns, deviation, strict=True)
        ]
        return Gap(self._release - self._totals(q), np.diag(noise) + spread)

    def slopes(self, q: np.ndarray) -> np.ndarray:
        """Return the derivatives of the means of the totals."""
        return derivatives(self._totals, q)

    def _totals(self, q: np.ndarray) -> np.ndarray:
        if not self._source.has_base:
            return np.concatenate([mean for mean, _ in self._source.moments_of_values(q)])
        return np.mean(
            [self._source.totals(q, (*self._source.held(), *u)) for u in self._drawn], axis=0
        )

    def _spread(self, q: np.ndarray) -> np.ndarray:
        source = self._source
        if source.has_base:
            source.carry(q, self._drawn[0])
            found = [_own_spread(records) for records in source.records]
        else:
            found = [spread for _, spread in source.moments_of_values(q)]
        for records in source.records:
            records.totals = records.contributions.sum(axis=1)
        return blocks_of(found) + source.size_spread()


def _own_spread(records: Records) -> np.ndarray:
    """Return the covariance of the totals of so many records."""
    width, number = records.contributions.shape
    if number < 2 or not width:
        return np.zeros((width, width))
    return number * np.atleast_2d(np.cov(records.contributions))


def brought_near(
    source: Imputation, q: np.ndarray, settings: Settings, others: np.ndarray, *, wholly: bool
) -> np.ndarray:
    """Return where an ascent should begin: as near as that can be seen, or near enough.

    Where a way ends far from the releases, as it does where all records are clamped, it is gone
    once more from some of the ``others``, one per row, and the best end is returned. Where totals
    have no slopes, or noise is not added to them, an ascent begins where it was to begin.
    """
    if not source.knows_totals:
        return q
    nearby = Nearby(source, q)
    near = WITHIN**2 / 2
    best, least = q, np.inf
    for start in (q, *_along(q, others, settings)):
        with np.errstate(all="ignore"):
            found = approach(
                nearby.gap, nearby.slopes, start, settings, enough=0.0 if wholly else near
            )
            gap = nearby.gap(found)
        if np.isfinite(found).all() and gap.misfit < least:
            best, least = found, gap.misfit
        precision = np.linalg.pinv(gap.covariance, hermitian=True)
        if gap.squared(precision) <= near * len(gap.distance):
            break
    return best


def _along(q: np.ndarray, others: np.ndarray, settings: Settings) -> np.ndarray:
    """Return other starts, in which the coordinates that do not move are those of q."""
    starts = np.tile(q, (len(others), 1))
    starts[:, settings.free] = others[:, settings.free]
    return starts
