"""What tuning learns of the moves of `algorithms.lattice_walk`, and of counts carried along."""

from __future__ import annotations

import math
from collections.abc import Sequence
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
    carry: tuple[CarryShape, ...]
    """Of each block of parameters that carry counts along."""


def init(cells: int, kinds: int = 2, blocks: Sequence[int] = ()) -> Learnt:
    """Return what is known before tuning.

    ``kinds`` of moves of cells, alone and in pairs, and ``blocks``, the numbers of parameters that
    carry counts along together.
    """
    scales = np.full((kinds, cells), _FIRST_SCALE)
    return Learnt(0, lattice_walk.Settings(scales), tuple(map(first_shape, blocks)))


def first_shape(width: int) -> CarryShape:
    """Return the shape of moves before anything is known: a ball."""
    return CarryShape(_usual_length(width), 0.1 * np.eye(width), 0, no_moments(width))


def _usual_length(width: int) -> float:
    return math.log(2.4 / math.sqrt(max(width, 1)))


def learn(learnt: Learnt, info: lattice_walk.Info) -> Learnt:
    """Learn the lengths of moves from one sweep."""
    scales, gain = learnt.walk.scales.copy(), tuning.slow_gain(learnt.steps)
    for kind, cells, accepted in info.offers:
        change = gain * (accepted[:, None] - CELL_ACCEPT)
        scales[kind, cells] = np.maximum(scales[kind, cells] * np.exp(change), _LEAST_SCALE)
    return learnt._replace(walk=lattice_walk.Settings(scales))


def learn_carries(
    learnt: Learnt,
    places: Sequence[np.ndarray],
    parameters: np.ndarray,
    info: poisson_carry.Info,
) -> Learnt:
    """Learn length and shape of the moves of every block from one more draw."""
    shapes = (
        learn_carry(shape, parameters[own], accepted / offered if offered else None)
        for shape, own, offered, accepted in zip(
            learnt.carry, places, info.offered, info.accepted, strict=True
        )
    )
    return learnt._replace(carry=tuple(shapes))


def learn_carry(shape: CarryShape, parameters: np.ndarray, accept: float | None) -> CarryShape:
    """Learn length and shape of moves of a block; ``accept`` is None where it had no turn."""
    width, before = parameters.size, shape.moments
    moments = tuning.with_draw(before, parameters)
    length = shape.log_length
    if accept is not None:
        length += tuning.slow_gain(before.draws) * (accept - CARRY_ACCEPT)
    root = shape.root
    if moments.draws >= _ENOUGH * width:
        root = safe_cholesky(moments.scatter / moments.draws + 1e-10 * np.eye(width))
        # A shape that is used for the first time has the length that suits a Normal law.
        length = _usual_length(width) if moments.draws == _ENOUGH * width else length
    steps = shape.steps + 1
    return CarryShape(length, root, steps, no_moments(width) if steps in _FORGET else moments)


def carry_settings(
    shapes: Sequence[CarryShape], places: Sequence[np.ndarray], moves: int
) -> poisson_carry.Settings:
    """Return how the next moves that carry counts along are made."""
    blocks = (
        poisson_carry.Block(own, shape.factor) for shape, own in zip(shapes, places, strict=True)
    )
    return poisson_carry.Settings(tuple(blocks), moves)
