"""What tuning learns of the moves of `algorithms.lattice_walk`, and of counts carried along."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from pymc_privacy.algorithms import lattice_walk
from pymc_privacy.algorithms.adaptation import tuning
from pymc_privacy.algorithms.adaptation.tuning import Moments, no_moments, safe_cholesky
from pymc_privacy.algorithms.proposals import poisson_carry

CELL_ACCEPT, CARRY_ACCEPT = 0.4, 0.25
_FIRST_SCALE, _LEAST_SCALE = 2.0, 0.1
# A shape is learnt from at least this many draws for each parameter.
_ENOUGH = 10
# What was learnt on the way to the posterior is forgotten after these numbers of steps.
_FORGET = (64, 256, 1024)


class CarryShape(NamedTuple):
    """The length and shape of moves that carry counts along."""

    log_length: float
    root: np.ndarray
    """A move is this times standard Normal variates, times its length."""
    steps: int
    moments: Moments

    @property
    def factor(self) -> np.ndarray:
        """Return shape and length in one."""
        return math.exp(self.log_length) * self.root


class Learnt(NamedTuple):
    """What tuning has learnt of one vector of counts."""

    steps: int
    walk: lattice_walk.Settings
    carry: CarryShape


def init(cells: int, parameters: int) -> Learnt:
    """Return what is known before tuning; ``parameters`` are those that carry counts along."""
    scales = np.full((2, cells), _FIRST_SCALE)
    return Learnt(0, lattice_walk.Settings(scales), first_shape(parameters))


def first_shape(width: int) -> CarryShape:
    """Return the shape of moves before anything is known: a ball."""
    return CarryShape(_usual_length(width), 0.1 * np.eye(width), 0, no_moments(width))


def _usual_length(width: int) -> float:
    return math.log(2.4 / math.sqrt(max(width, 1)))


def learn(learnt: Learnt, info: lattice_walk.Info) -> Learnt:
    """Learn the lengths of moves from one sweep."""
    scales, gain = learnt.walk.scales.copy(), tuning.slow_gain(learnt.steps)
    for own, (cells, accepted) in zip(scales, (info.single, info.pair), strict=True):
        if len(cells):
            change = gain * (accepted[:, None] - CELL_ACCEPT)
            own[cells] = np.maximum(own[cells] * np.exp(change), _LEAST_SCALE)
    return learnt._replace(walk=lattice_walk.Settings(scales))


def learn_carry(shape: CarryShape, parameters: np.ndarray, accept: float) -> CarryShape:
    """Learn length and shape of moves that carry counts along from one more draw."""
    width, before = parameters.size, shape.moments
    moments = tuning.with_draw(before, parameters)
    length = shape.log_length + tuning.slow_gain(before.draws) * (accept - CARRY_ACCEPT)
    root = shape.root
    if moments.draws >= _ENOUGH * width:
        root = safe_cholesky(moments.scatter / moments.draws + 1e-10 * np.eye(width))
        # A shape that is used for the first time has the length that suits a Normal law.
        length = _usual_length(width) if moments.draws == _ENOUGH * width else length
    steps = shape.steps + 1
    return CarryShape(length, root, steps, no_moments(width) if steps in _FORGET else moments)


def carry_settings(shape: CarryShape, moves: int) -> poisson_carry.Settings:
    """Return how the next moves that carry counts along are made."""
    return poisson_carry.Settings(shape.factor, moves)
