"""What tuning learns of the moves of `algorithms.interweave`: their shapes, lengths and numbers.

A `Plan` is fixed before the first step. What has been `Learnt` changes while a chain is tuned, and
never after; the settings of a step follow from both.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from pymc_privacy.algorithms.adaptation import effort, local_proposal, refresh, tuning
from pymc_privacy.algorithms.adaptation.effort import Effort
from pymc_privacy.algorithms.adaptation.local_proposal import LocalProposal
from pymc_privacy.algorithms.adaptation.refresh import Refreshing
from pymc_privacy.algorithms.adaptation.tuning import Tuning
from pymc_privacy.algorithms.interweave import (
    LONGEST_TRAJECTORY,
    TRAJECTORY_ACCEPT,
    WALK_ACCEPT,
    Info,
    Move,
    Settings,
)

MANY_RECORDS = 10_000
STEPS_PER_SWEEP = 250
MOST_STEPS = 200
MARGINAL_STEPS = 8
# Where a density costs more than to draw the records.
INTEGRAL_STEPS = 2
# A fresh draw of the records is often refused however near the parameters stay.
REFRESH_SCALES = (0.3, 2.4)
_FIRST_TRAJECTORY = 0.8
_LEAST_ACCEPT = 1e-3
_SHORT_TUNING = 100


class Traits(NamedTuple):
    """What the functions of a model allow the moves to do."""

    size: int
    """The number of coordinates that move."""
    has_gradient: bool
    """Whether the density given the records has its gradient."""
    has_noncentred_gradient: bool
    has_statistics: bool
    """Whether the density given the records does without the records themselves."""
    carries_records: bool
    """Whether records are carried along with their parameters, or else drawn afresh."""
    noise_precision: np.ndarray
    """1 / scale² of the noise; empty where nothing guides the moves with the records."""
    sums_out: bool = False
    """Whether densities are those of the parameters alone, records being summed out."""
    integrates: bool = False
    """Whether that takes an integral for each record."""

    @property
    def is_marginal(self) -> bool:
        """Tell whether trajectories of the parameters alone do, without the records."""
        return self.sums_out and self.has_gradient

    @property
    def is_guided(self) -> bool:
        """Tell whether moves with the records follow what these are made of."""
        return len(self.noise_precision) > 0


class Plan(NamedTuple):
    """How many moves an iteration makes, if tuning does not find that fewer will do."""

    traits: Traits
    centred_steps: int
    noncentred_steps: int
    counts_leaps: bool
    """Whether fewer moves are made where leaps are accepted often."""


class Learnt(NamedTuple):
    """What tuning has learnt."""

    tune_steps: int
    """For how many steps tuning lasts."""
    centred: Tuning
    noncentred: Tuning
    proposal: LocalProposal
    noncentred_steps: int
    best_accept: float
    """The best acceptance of moves with the records in the later half of tuning."""
    refreshing: Refreshing = Refreshing()
    """What is known of fresh databases, where these are offered."""
    effort: Effort | None = None
    """What was tried to find the number of moves with the records, if it was."""


def plan(traits: Traits, *, centred_steps: int | None, noncentred_steps: int | None) -> Plan:
    """Return how many moves are made; None stands for as many as seem best."""
    return Plan(
        traits,
        default_centred_steps(traits) if centred_steps is None else centred_steps,
        default_noncentred_steps(traits) if noncentred_steps is None else noncentred_steps,
        counts_leaps=noncentred_steps is None,
    )


def default_centred_steps(traits: Traits) -> int:
    """Return how many moves given the records one iteration makes: more where they cost little."""
    if not traits.has_gradient:
        return max(8, 3 * traits.size)
    if traits.is_marginal:
        return INTEGRAL_STEPS if traits.integrates else MARGINAL_STEPS
    return 4 if traits.has_statistics else 2


def default_noncentred_steps(traits: Traits) -> int:
    """Return how many moves with the records one iteration makes."""
    if traits.is_marginal:
        return 0
    if not traits.carries_records:
        # Each draws all records anew, as the sweep does.
        return 3
    return 4 if traits.has_noncentred_gradient else walk_steps(traits.size)


def walk_steps(size: int) -> int:
    """Return how many steps a random walk of ``size`` coordinates makes."""
    return min(max(32, 20 * size), MOST_STEPS)


def default_fraction(size: int, noncentred_steps: int) -> float:
    """Return the part of the records to sweep: about as much work as the other moves.

    A step of the walk reads every record in a fraction of the time that the sweep takes to
    draw one; with few steps and many records a whole sweep would take nearly all the time.
    """
    if size < MANY_RECORDS:
        return 1.0
    return min(1.0, max(noncentred_steps, 1) / STEPS_PER_SWEEP)


def init(plan: Plan, tune_steps: int) -> Learnt:
    """Return what is known before tuning."""
    size = plan.traits.size
    return Learnt(
        tune_steps,
        first_centred(size),
        tuning.init(size),
        local_proposal.init(size),
        plan.noncentred_steps,
        best_accept=0.0,
    )


def first_centred(size: int) -> Tuning:
    """Return the moves given the records before tuning."""
    return tuning.init(size, scale=_FIRST_TRAJECTORY)


def target_accept(has_gradient: bool) -> float:
    """Return which acceptance is best for trajectories, or for walks."""
    return TRAJECTORY_ACCEPT if has_gradient else WALK_ACCEPT


def settings(learnt: Learnt, plan: Plan) -> Settings:
    """Return how the next step is made."""
    leap = local_proposal.tries(learnt.proposal, learnt.noncentred, learnt.tune_steps)
    precision = plan.traits.noise_precision
    return Settings(
        Move(learnt.centred.factor, learnt.centred.scale, plan.centred_steps),
        Move(learnt.noncentred.factor, learnt.noncentred.scale, learnt.noncentred_steps),
        local_proposal.reference(learnt.noncentred, learnt.proposal, precision, leap),
    )


def learn_curvature(
    learnt: Any, traits: Traits, q: np.ndarray, density: Callable[[], Callable[..., Any]]
) -> Any:
    """Take the shape of moves given the records from their density near q, from time to time.

    ``learnt`` is of any sampler with such moves; ``density()`` returns the function to look at.
    """
    if not tuning.at_milestone(learnt.centred, learnt.tune_steps):
        return learnt
    # Far out in a tail, as of a share near 0, a curvature says nothing of the whole law.
    if traits.is_marginal and learnt.centred.iteration >= learnt.tune_steps // 4:
        return learnt
    shaped = tuning.learn_curvature(learnt.centred, density(), q, has_gradient=traits.has_gradient)
    return learnt._replace(centred=shaped)


def learn(learnt: Learnt, plan: Plan, q: np.ndarray, info: Info) -> Learnt:
    """Learn from one step, which ended at q."""
    traits, tune_steps, steps = plan.traits, learnt.tune_steps, learnt.noncentred_steps
    target = target_accept(traits.has_gradient)
    centred = tuning.rescale(learnt.centred, info.centred_accept, target)
    if traits.is_marginal:
        centred = tuning.learn_factor_in_time(tuning.observe(centred, q), tune_steps)
    # Given u, the parameters have another covariance than in the posterior: one that
    # follows u, or that of their shifts. Drawn afresh, they have the posterior's.
    sees_draws = traits.is_guided or not traits.carries_records
    walk = tuning.observe(learnt.noncentred, q if sees_draws else info.shift)
    target = target_accept(traits.has_noncentred_gradient)
    walk = tuning.rescale(walk, info.noncentred_accept, target)
    if not traits.carries_records:
        walk = tuning.bounded(walk, *REFRESH_SCALES)
    learnt = learnt._replace(centred=centred)
    if traits.is_guided:
        walk, proposal = local_proposal.learn(
            walk, learnt.proposal, info.shift, info.leap_accept, tune_steps
        )
        learnt = learn_number(learnt._replace(proposal=proposal), plan, proposal)
        learnt = _try_number(learnt, plan, walk, q, steps)
    else:
        walk = tuning.learn_factor_in_time(walk, tune_steps)
    return learn_best(learnt, walk, info)._replace(noncentred=walk)


def learn_number(learnt: Any, plan: Plan, proposal: LocalProposal) -> Any:
    """Make as many moves with the records as leaps need, unless the number was given."""
    if not plan.counts_leaps:
        return learnt
    number = local_proposal.number_of_steps(proposal, plan.noncentred_steps)
    return learnt._replace(noncentred_steps=number)


def _try_number(learnt: Learnt, plan: Plan, walk: Tuning, q: np.ndarray, steps: int) -> Learnt:
    """Make few moves with the records in every other iteration, where leaps are not accepted.

    ``steps`` is the number of them in the iteration that ended at q.
    """
    tried = effort.is_tried(walk.iteration, learnt.tune_steps, plan.noncentred_steps)
    if not (plan.counts_leaps and tried) or local_proposal.leaps(learnt.proposal):
        return learnt._replace(effort=None)
    known = effort.observe(learnt.effort or effort.init(plan.traits.size), q, steps)
    number = effort.FEW if walk.iteration % 2 else plan.noncentred_steps
    return learnt._replace(effort=known, noncentred_steps=number)


def _settle_number(learnt: Learnt, plan: Plan) -> Learnt:
    """Keep the number of moves with the records that was found to pay, if it was tried."""
    if learnt.effort is None:
        return learnt
    traits = plan.traits
    others = effort.ONCE + traits.size + 1
    # A gradient costs about two densities.
    others += plan.centred_steps * (2 * LONGEST_TRAJECTORY if traits.has_gradient else 1)
    variance = np.square(learnt.noncentred.factor).sum(axis=1)
    number = effort.number(learnt.effort, variance, plan.noncentred_steps, others)
    return learnt._replace(noncentred_steps=number, effort=None)


def learn_best(learnt: Any, walk: Tuning, info: Info) -> Any:
    """Remember the best acceptance of moves with the records in the later half of tuning."""
    if walk.iteration <= learnt.tune_steps // 2:
        return learnt
    best = max(learnt.best_accept, info.noncentred_accept, info.leap_accept)
    return learnt._replace(best_accept=best)


def give_up(learnt: Any) -> Any:
    """Give up moves with the records that were hardly ever accepted, after a long tuning."""
    if learnt.tune_steps > _SHORT_TUNING and learnt.best_accept < _LEAST_ACCEPT:
        return learnt._replace(noncentred_steps=0)
    return learnt


def settle(learnt: Learnt, plan: Plan) -> Learnt:
    """Keep what was learnt, but for what was hardly ever accepted: that is given up."""
    learnt = give_up(_settle_number(learnt, plan))
    return learnt._replace(refreshing=refresh.settle(learnt.refreshing))
