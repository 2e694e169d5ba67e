"""Walk to parameters that make about what was published: a start for an ascent of a likelihood.

Far from a maximum a likelihood of releases falls like its noise, in straight lines, and its score
says little more than a direction. The distance of the releases from the means of the totals says
how far it is: its weighted square is minimised by damped least squares (Levenberg, 1944;
Marquardt, 1963). Nothing is estimated here; where this ends, an ascent begins.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from pymc_privacy.algorithms.ascent import Settings

STEPS = 40
# Damping, in units of the scales of the parameters, and by how much it changes.
FIRST, FACTOR, MOST = 1.0, 8.0, 1e12
# Less than this in half a squared distance is no progress.
PROGRESS = 0.02
# The way back is halved at most so often.
MOST_HALVED = 6
# A coordinate that the totals know no better than this many times its scale has been lost.
LOST = 1.0


class Gap(NamedTuple):
    """How far releases are from what a model makes at some parameters."""

    distance: np.ndarray
    """The releases less the means of the totals, shape (d,)."""
    covariance: np.ndarray
    """Of the releases, shape (d, d)."""

    @property
    def misfit(self) -> float:
        """Minus the log density of the releases, if they were Normal, but for a constant."""
        found = self.squared(np.linalg.pinv(self.covariance, hermitian=True))
        found += 0.5 * float(np.linalg.slogdet(self.covariance)[1])
        return found if np.isfinite(found) else np.inf

    def squared(self, precision: np.ndarray) -> float:
        """Return half of the weighted square; infinite where there are no numbers."""
        found = 0.5 * float(self.distance @ precision @ self.distance)
        return found if np.isfinite(found) else np.inf


def approach(
    gap: Callable[[np.ndarray], Gap],
    slopes: Callable[[np.ndarray], np.ndarray],
    q: np.ndarray,
    settings: Settings,
    *,
    enough: float = 0.0,
) -> np.ndarray:
    """Return parameters whose totals are nearer to the releases, or q.

    A coordinate that has gone to where the totals do not see it, on a way on which others were
    wrong, is put back, and the way is gone once more from there.

    Parameters
    ----------
    gap
        The distance at any parameters; the same numbers whenever it is asked.
    slopes
        The derivatives of the means of the totals, shape (d, p).
    q
        Where to begin.
    settings
        Which coordinates move, and what counts as far.
    enough
        Stop where half the squared distance is less than so many times the number of releases.

    Examples
    --------
    The release 8 of the sum of five records, of mean q each:

    >>> one = Settings(np.array([0]), np.array([1.0]), (np.array([-9.0]), np.array([9.0])))
    >>> found = approach(lambda q: Gap(8.0 - 5 * q, np.eye(1)), lambda q: np.full((1, 1), 5.0),
    ...                  np.zeros(1), one)
    >>> found.round(2)
    array([1.6])
    """
    found = _walk(gap, slopes, q, settings, enough)
    lost = _lost(gap(found), slopes(found), settings)
    lost = lost[np.abs(found - q)[lost] > settings.scale[lost]]
    if not len(lost):
        return found
    found[lost] = q[lost]
    return _seen(gap, slopes, _walk(gap, slopes, found, settings, enough), q, settings)


def _seen(
    gap: Callable[[np.ndarray], Gap],
    slopes: Callable[[np.ndarray], np.ndarray],
    found: np.ndarray,
    q: np.ndarray,
    settings: Settings,
) -> np.ndarray:
    """Bring lost coordinates back so far toward q that the totals see them.

    Where they do not, neither does the likelihood, and an ascent would stay where it begins.
    """
    for _ in range(MOST_HALVED):
        lost = _lost(gap(found), slopes(found), settings)
        lost = lost[np.abs(found - q)[lost] > settings.scale[lost]]
        if not len(lost):
            break
        found[lost] = (found[lost] + q[lost]) / 2
    return found


def _lost(here: Gap, slopes: np.ndarray, settings: Settings) -> np.ndarray:
    """Return the coordinates that the totals hardly see."""
    precision = np.linalg.pinv(here.covariance, hermitian=True)
    known = np.einsum("dp,de,ep->p", slopes, precision, slopes)
    return settings.free[known[settings.free] * (LOST * settings.scale[settings.free]) ** 2 < 1]


def _walk(
    gap: Callable[[np.ndarray], Gap],
    slopes: Callable[[np.ndarray], np.ndarray],
    q: np.ndarray,
    settings: Settings,
    enough: float,
) -> np.ndarray:
    """Return a copy of q, taken nearer by damped least squares."""
    free, damping, q = settings.free, FIRST, np.array(q)
    here = gap(q)
    for _ in range(STEPS):
        precision = np.linalg.pinv(here.covariance, hermitian=True)
        now = here.squared(precision)
        if not np.isfinite(now) or now <= enough * len(here.distance):
            return q
        rows = slopes(q)[:, free]
        there, then = q, here
        while damping < MOST:
            there = _stepped(q, here, rows, precision, damping, settings)
            then = gap(there)
            if then.squared(precision) < now:
                break
            damping *= FACTOR
        else:
            return q
        damping = max(damping / FACTOR, 1e-6)
        q, here = there, then
        if now - then.squared(precision) < PROGRESS:
            return q
    return q


def _stepped(
    q: np.ndarray,
    here: Gap,
    rows: np.ndarray,
    precision: np.ndarray,
    damping: float,
    settings: Settings,
) -> np.ndarray:
    """Return q after a step of damped least squares, no longer than the scales say."""
    free, scale = settings.free, settings.scale[settings.free]
    information = rows.T @ precision @ rows + np.diag(damping / scale**2)
    step = np.linalg.solve(information, rows.T @ precision @ here.distance)
    step /= max(1.0, float(np.max(np.abs(step) / scale, initial=0.0)))
    there = q.copy()
    there[free] += step
    return np.clip(there, *settings.bounds)
