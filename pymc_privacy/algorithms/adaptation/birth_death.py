"""What tuning learns of the moves of `algorithms.birth_death`: of parameters, sizes and jumps."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from pymc_privacy.algorithms.adaptation import (
    interweave,
    local_proposal,
    ridge_adaptation,
    tuning,
)
from pymc_privacy.algorithms.adaptation.interweave import Traits
from pymc_privacy.algorithms.adaptation.ridge_adaptation import RidgeAdaptation
from pymc_privacy.algorithms.adaptation.tuning import Tuning
from pymc_privacy.algorithms.birth_death import JUMP_ACCEPT, Settings, log_nu
from pymc_privacy.algorithms.interweave import WALK_ACCEPT, Info, Move

# For this part of tuning sizes stay where they are: parameters that do not fit the releases yet
# would drag them along, to where the way back is long.
SETTLING = 1 / 20
_SHORTEST_JUMP, _FIRST_JUMP = 0.5, 10.0


class Plan(NamedTuple):
    """How many moves of each kind an iteration makes."""

    moves: interweave.Plan
    """Of parameters and sizes, whose real coordinates stand behind the parameters."""
    capacities: tuple[int, ...]
    """The largest value of each size."""
    jumps: int
    """0 turns them off; a negative number stands for one single move."""

    @property
    def parameters(self) -> int:
        """Return the number of coordinates that are no sizes."""
        return self.moves.traits.size - len(self.capacities)


class Learnt(NamedTuple):
    """What tuning has learnt."""

    tune_steps: int
    centred: Tuning
    ridge: RidgeAdaptation
    noncentred_steps: int
    best_accept: float
    """The best acceptance of moves with the records in the later half of tuning."""
    jump_log_scale: float
    largest: tuple[int, ...]
    """The largest numbers of records met lately."""

    @property
    def jump_scale(self) -> float:
        """Return how many records are born or die at once, in the mean."""
        return math.exp(self.jump_log_scale)


def plan(
    traits: Traits,
    capacities: Sequence[int],
    *,
    centred_steps: int | None,
    noncentred_steps: int | None,
    jumps: int,
) -> Plan:
    """Return how many moves are made; None stands for as many as seem best."""
    if traits.size == len(capacities) and centred_steps is None:
        # Sizes do not move given the records.
        centred_steps = 0
    moves = interweave.plan(traits, centred_steps=centred_steps, noncentred_steps=noncentred_steps)
    return Plan(moves, tuple(capacities), jumps)


def init(plan: Plan, tune_steps: int) -> Learnt:
    """Return what is known before tuning."""
    sizes = len(plan.capacities)
    return Learnt(
        tune_steps,
        interweave.first_centred(plan.parameters),
        ridge_adaptation.init(plan.parameters, sizes),
        plan.moves.noncentred_steps,
        best_accept=0.0,
        jump_log_scale=math.log(_FIRST_JUMP),
        largest=(0,) * sizes,
    )


def settles(learnt: Learnt, plan: Plan) -> bool:
    """Tell whether sizes are still held in tuning; single moves are as published throughout."""
    return plan.jumps >= 0 and learnt.ridge.walk.iteration < SETTLING * learnt.tune_steps


def settings(learnt: Learnt, plan: Plan, holds_sizes: bool) -> Settings:
    """Return how the next step is made, without the bounds of the sizes."""
    traits, ridge = plan.moves.traits, learnt.ridge
    if holds_sizes:
        walk, reference = ridge_adaptation.held(ridge), local_proposal.unguided()
    else:
        walk = ridge.walk
        leap = local_proposal.tries(ridge.proposal, walk, learnt.tune_steps)
        reference = ridge_adaptation.reference(ridge, traits.noise_precision, leap)
    centred = tuning.padded(learnt.centred.factor, traits.size)
    return Settings(
        Move(centred, learnt.centred.scale, plan.moves.centred_steps),
        Move(walk.factor, walk.scale, learnt.noncentred_steps),
        tuple(ridge.ridge),
        (),
        reference,
    )


def learn_largest(learnt: Learnt, numbers: Sequence[int]) -> Learnt:
    """Remember the largest numbers of records."""
    return learnt._replace(largest=tuple(map(max, learnt.largest, numbers)))


def learn(
    rng: np.random.Generator,
    learnt: Learnt,
    plan: Plan,
    q: np.ndarray,
    numbers: Sequence[int],
    *,
    jump_accept: float,
    info: Info,
) -> Learnt:
    """Learn from one iteration.

    Parameters
    ----------
    rng
        Draws the real coordinates of the sizes.
    learnt, plan
    q
        Parameters and coordinates of the sizes after their move.
    numbers
        The sizes after the jumps.
    jump_accept
        The acceptance of these.
    info
        What happened to the parameters; without a shift where nothing moved with the records.
    """
    traits, tune_steps, held = plan.moves.traits, learnt.tune_steps, settles(learnt, plan)
    learnt = _learn_jumps(learnt, plan, None if held else jump_accept)
    if plan.moves.centred_steps:
        target = interweave.target_accept(traits.has_gradient)
        centred = tuning.rescale(learnt.centred, info.centred_accept, target)
        learnt = learnt._replace(centred=centred)
    seen = None
    if all(numbers) and not held:
        logs = [log_nu(rng, number) for number in numbers]
        seen = np.concatenate([q[: plan.parameters], logs])
    walk = tuning.rescale(learnt.ridge.walk, info.noncentred_accept, WALK_ACCEPT)
    if not traits.carries_records:
        walk = tuning.bounded(walk, *interweave.REFRESH_SCALES)
    if tuning.at_milestone(walk, tune_steps) and walk.iteration <= tune_steps // 2:
        learnt = learnt._replace(largest=tuple(numbers))
    learnt = interweave.learn_best(learnt, walk, info)
    ridge = ridge_adaptation.learn(
        learnt.ridge._replace(walk=walk),
        seen,
        info.shift,
        info.leap_accept,
        tune_steps,
        has_ridge=traits.carries_records,
    )
    learnt = learnt._replace(ridge=ridge)
    if traits.is_guided:
        learnt = interweave.learn_number(learnt, plan.moves, ridge.proposal)
    return learnt


def _learn_jumps(learnt: Learnt, plan: Plan, accept: float | None) -> Learnt:
    """Adapt the length of jumps, if there were any, between half a record and all of them."""
    log_scale = learnt.jump_log_scale
    if accept is not None:
        log_scale += tuning.gain(learnt.ridge.walk.iteration) * (accept - JUMP_ACCEPT)
    shortest, longest = math.log(_SHORTEST_JUMP), math.log(max(plan.capacities))
    return learnt._replace(jump_log_scale=min(max(log_scale, shortest), longest))
