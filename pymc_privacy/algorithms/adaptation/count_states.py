"""What tuning learns of the moves of `algorithms.count_states`."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from pymc_privacy.algorithms.adaptation import tuning
from pymc_privacy.algorithms.adaptation.interweave import (
    Traits,
    default_centred_steps,
    first_centred,
    target_accept,
    walk_steps,
)
from pymc_privacy.algorithms.adaptation.tuning import Tuning
from pymc_privacy.algorithms.count_states import BLOCK_ACCEPT, Block, CellTable, Info, Settings
from pymc_privacy.algorithms.interweave import WALK_ACCEPT, Move

FEWEST_BLOCKS, MOST_BLOCKS = 8, 200
_FIRST_BLOCK = 0.1


class Plan(NamedTuple):
    """How many moves of each kind an iteration makes."""

    traits: Traits
    centred_steps: int
    noncentred_steps: int
    blocks: int | None
    """None for as many as make up all records, within bounds."""
    most_blocks: int


class Learnt(NamedTuple):
    """What tuning has learnt."""

    tune_steps: int
    centred: Tuning
    noncentred: Tuning
    block: Tuning


def plan(
    traits: Traits,
    cells: CellTable,
    *,
    centred_steps: int | None,
    noncentred_steps: int | None,
    blocks: int | None,
) -> Plan:
    """Return how many moves are made; None stands for as many as seem best."""
    everywhere = np.ones((len(cells.contributions), 1))
    known = np.hstack([cells.contributions, everywhere])
    determined = np.linalg.matrix_rank(known) == len(known)
    return Plan(
        traits,
        default_centred_steps(traits) if centred_steps is None else centred_steps,
        walk_steps(traits.size) if noncentred_steps is None else noncentred_steps,
        blocks,
        # Counts that the totals determine are found by few blocks.
        FEWEST_BLOCKS if determined else MOST_BLOCKS,
    )


def init(plan: Plan, tune_steps: int) -> Learnt:
    """Return what is known before tuning."""
    size = plan.traits.size
    return Learnt(
        tune_steps, first_centred(size), tuning.init(size), tuning.init(0, scale=_FIRST_BLOCK)
    )


def settings(learnt: Learnt, plan: Plan) -> Settings:
    """Return how the next step is made."""
    fraction, blocks = learnt.block.scale, plan.blocks
    if blocks is None:
        blocks = int(min(max(FEWEST_BLOCKS, 1 / fraction), plan.most_blocks))
    return Settings(
        Move(learnt.centred.factor, learnt.centred.scale, plan.centred_steps),
        Move(learnt.noncentred.factor, learnt.noncentred.scale, plan.noncentred_steps),
        Block(fraction, blocks),
    )


def learn(learnt: Learnt, plan: Plan, info: Info) -> Learnt:
    """Learn from one step."""
    target = target_accept(plan.traits.has_gradient)
    block = tuning.rescale(learnt.block, info.block_accept, BLOCK_ACCEPT)
    walk = tuning.observe(learnt.noncentred, info.shift)
    walk = tuning.rescale(walk, info.noncentred_accept, WALK_ACCEPT)
    return learnt._replace(
        centred=tuning.rescale(learnt.centred, info.centred_accept, target),
        noncentred=tuning.learn_factor_in_time(walk, learnt.tune_steps),
        block=block._replace(log_scale=min(block.log_scale, 0.0)),
    )
