"""Straighten a curved ridge, so that a random walk can go along it.

A sum of n contributions of about m(theta) each is the same for many records that contribute
little and for few that contribute much: the posterior of parameters and log n is a ridge along
which theta is a curved function of log n. Its curve is learnt in tuning as a cubic of each log
size; a walk then proposes in coordinates phi = theta - g(log n), where the ridge is straight. The
linear part of the cubic is left to the covariance. A shear has Jacobian 1, and g is fixed, so
the walk stays symmetric.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from pymc_privacy.algorithms.machine_code.caching import compiled

# As many draws as this for each coefficient, or the curve is noise.
DRAWS_PER_COEFFICIENT = 20


class Ridge(NamedTuple):
    """The curve g: a quadratic and a cubic coefficient for each parameter and each size."""

    centres: np.ndarray
    """Where the curve is zero, one number per size."""
    reach: np.ndarray
    """How far from there the curve goes on; beyond, it is constant."""
    curves: np.ndarray
    """Shape (parameters, sizes, 2)."""


def straight(parameters: int, sizes: int) -> Ridge:
    """Return no curve at all."""
    return Ridge(np.zeros(sizes), np.zeros(sizes), np.zeros((parameters, sizes, 2)))


def learn(draws: np.ndarray, sizes: int) -> Ridge:
    """Fit the curve to draws of parameters and, behind them, the logs of sizes."""
    parameters = draws.shape[1] - sizes
    if len(draws) < DRAWS_PER_COEFFICIENT * (1 + 3 * sizes):
        return straight(parameters, sizes)
    theta, logs = draws[:, :parameters], draws[:, parameters:]
    centres = logs.mean(axis=0)
    z = logs - centres
    spread = np.where(z.std(axis=0) > 0, z.std(axis=0), 1.0)
    z = z / spread
    design = np.concatenate([np.ones((len(z), 1)), z, z**2, z**3], axis=1)
    fitted, *_ = np.linalg.lstsq(design, theta, rcond=None)
    square, cube = fitted[1 + sizes : 1 + 2 * sizes], fitted[1 + 2 * sizes :]
    curves = np.stack([square.T / spread**2, cube.T / spread**3], axis=-1)
    return Ridge(centres, abs(logs - centres).max(axis=0), np.ascontiguousarray(curves))


def straightened(draws: np.ndarray, ridge: Ridge) -> np.ndarray:
    """Return draws in the coordinates where the ridge is straight."""
    parameters = len(ridge.curves)
    z = np.clip(draws[:, parameters:] - ridge.centres, -ridge.reach, ridge.reach)
    powers = np.stack([z**2, z**3], axis=-1)
    bent = np.einsum("skp,ikp->si", powers, ridge.curves)
    return np.concatenate([draws[:, :parameters] - bent, draws[:, parameters:]], axis=1)


@compiled
def bend(q, ridge, sign):
    """Add the curve at the sizes of q to its parameters, or subtract it, in place."""
    centres, reach, curves = ridge
    parameters = q.size - centres.size
    for k in range(centres.size):
        z = min(max(q[parameters + k] - centres[k], -reach[k]), reach[k])
        for i in range(parameters):
            q[i] += sign * z * z * (curves[i, k, 0] + z * curves[i, k, 1])
