"""Losses of generalised linear models, what bounds them, and where a perturbed loss is least."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from pymc_privacy.errors import MechanismError
from pymc_privacy.mechanisms.engines import exp

_MOST_STEPS = 200


class Bounds(NamedTuple):
    """What is known of all records: |x| <= covariates, |x · s| <= reach, |y| <= response."""

    covariates: float
    reach: float | None
    response: float | None


class Loss(NamedTuple):
    """A convex loss l(t; y) of a record, t being x · s, and its derivatives in t.

    ``largest_slope`` bounds |dl/dt| |x|, and ``largest_curvature`` bounds d²l/dt² |x|², over all
    records within the bounds; None where nothing does.
    """

    value: Callable[[Any, Any], Any]
    slope: Callable[[Any, Any], Any]
    curvature: Callable[[Any], Any]
    largest_slope: Callable[[Bounds], float | None]
    largest_curvature: Callable[[Bounds], float | None]
    responses: str


def _expit(t: Any) -> Any:
    return 1 / (1 + exp(-t))


def _linear_slope(known: Bounds) -> float | None:
    if known.reach is None or known.response is None:
        return None
    return known.covariates * (known.reach + known.response)


def _poisson_slope(known: Bounds) -> float | None:
    # -y <= exp(t) - y <= exp(t), as y is a count.
    if known.reach is None or known.response is None:
        return None
    return known.covariates * max(math.exp(min(known.reach, 700.0)), known.response)


def _poisson_curvature(known: Bounds) -> float | None:
    if known.reach is None:
        return None
    return known.covariates**2 * math.exp(min(known.reach, 700.0))


LOSSES = {
    "logistic": Loss(
        value=lambda t, y: np.logaddexp(0, t) - y * t,
        slope=lambda t, y: _expit(t) - y,
        curvature=lambda t: _expit(t) * (1 - _expit(t)),
        largest_slope=lambda known: known.covariates,
        largest_curvature=lambda known: known.covariates**2 / 4,
        responses="0 or 1",
    ),
    "linear": Loss(
        value=lambda t, y: 0.5 * (t - y) ** 2,
        slope=lambda t, y: t - y,
        curvature=lambda t: 1.0 + 0.0 * t,
        largest_slope=_linear_slope,
        largest_curvature=lambda known: known.covariates**2,
        responses="numbers",
    ),
    "poisson": Loss(
        value=lambda t, y: np.exp(t) - y * t,
        slope=lambda t, y: exp(t) - y,
        curvature=exp,
        largest_slope=_poisson_slope,
        largest_curvature=_poisson_curvature,
        responses="counts",
    ),
}


class Perturbed(NamedTuple):
    """What is minimised: losses of records, a ridge, a random linear term, within a box."""

    loss: Loss
    x: np.ndarray
    y: np.ndarray
    noise: np.ndarray
    ridge: float
    box: np.ndarray  # (2, p), infinite where nothing is constrained

    def total(self, s: np.ndarray) -> np.ndarray:
        """Return what is minimised."""
        each = self.loss.value(self._lines(s), self.y)
        return each.sum(-1) + 0.5 * self.ridge * (s * s).sum(-1) + (self.noise * s).sum(-1)

    def slope(self, s: np.ndarray) -> np.ndarray:
        """Return its gradient."""
        each = self.loss.slope(self._lines(s), self.y)
        return np.einsum("...np,...n->...p", self.x, each) + self.ridge * s + self.noise

    def hessian(self, s: np.ndarray) -> np.ndarray:
        """Return its matrix of second derivatives."""
        each = self.loss.curvature(self._lines(s))
        whole = np.einsum("...n,...np,...nq->...pq", each, self.x, self.x)
        return whole + self.ridge * np.eye(s.shape[-1])

    def _lines(self, s: np.ndarray) -> np.ndarray:
        return np.einsum("...np,...p->...n", self.x, s)


def minimum(perturbed: Perturbed) -> np.ndarray:
    """Minimise perturbed losses, by a projected Newton method with a line search, to rounding.

    The losses are strictly convex, so that each has one minimum in the box. Leading axes are
    independent.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        found = _projected_newton(perturbed)
    if found is None:
        raise MechanismError(
            "The perturbed loss must have a minimum that can be found; it was not found after "
            f"{_MOST_STEPS} steps of Newton's method, for covariates up to "
            f"{np.abs(perturbed.x).max():g}."
        )
    return found


def _projected_newton(perturbed: Perturbed) -> np.ndarray | None:
    """Return the minimum, or None where it is not reached."""
    lower, upper = perturbed.box
    s = np.clip(np.zeros(perturbed.noise.shape), lower, upper)
    now = perturbed.total(s)
    for _ in range(_MOST_STEPS):
        if not np.all(np.isfinite(now)):
            return None
        slope = perturbed.slope(s)
        # A coordinate is held where the loss falls out of the box.
        held = ((s <= lower) & (slope > 0)) | ((s >= upper) & (slope < 0))
        if np.all(held | (np.abs(slope) < 1e-10 * (1 + np.abs(perturbed.noise)))):
            return s
        step = _newton_step(perturbed.hessian(s), slope, held)
        if step is None:
            return None
        s, now = _line_search(perturbed, s, now, slope, step)
    return None


def _newton_step(hessian: np.ndarray, slope: np.ndarray, held: np.ndarray) -> np.ndarray | None:
    """Return Newton's step of the coordinates that are not held."""
    moves = ~held
    matrix = np.where(moves[..., :, None] & moves[..., None, :], hessian, np.eye(slope.shape[-1]))
    try:
        step = np.linalg.solve(matrix, np.where(moves, -slope, 0.0)[..., None])[..., 0]
    except np.linalg.LinAlgError:
        return None
    return np.where(moves, step, 0.0)


def _line_search(
    perturbed: Perturbed, s: np.ndarray, now: np.ndarray, slope: np.ndarray, step: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Halve steps, cut off at the box, until the loss falls enough."""
    lower, upper = perturbed.box
    length = np.ones(now.shape)
    for _ in range(40):
        there = np.clip(s + length[..., None] * step, lower, upper)
        then = perturbed.total(there)
        decrease = (slope * (there - s)).sum(-1)
        worse = then > now + 1e-4 * np.minimum(decrease, 0) + 1e-12 * np.abs(now)
        if not np.any(worse):
            break
        length = np.where(worse, length / 2, length)
    return there, then
