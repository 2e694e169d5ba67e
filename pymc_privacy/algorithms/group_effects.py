"""Leave the posterior of effects of groups and of their records invariant, group by group.

Given all else, groups are independent: the law of effects t is a product, of factors

    p(t_g) prod f(x_i | t_g)       given the records,
    p(t_g) eta(s_g | S_g(t_g, u))  given the base variates u, records being carried along.

One proposal is made for all groups at once, and each group takes it or not. *Leaps* draw from
Student's law around where a parabola through the log density, or the statistic made linear, has its
mode; *steps* walk at random, as long as that law is wide. What they are made of is found from the
prior of t, the records or u, and the releases, all of which the moves hold: never from t.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

DEGREES_OF_FREEDOM = 5.0
# What a parabola may say is no wider, and no further away, than so many prior widths.
_WIDEST, _FURTHEST = 2.0, 10.0
_ROUNDS, _HEAVY_ROUNDS = 2, 4

Densities = Callable[[np.ndarray], np.ndarray]
"""From effects (g) to the log density of each group."""


class Law(NamedTuple):
    """Where the effect of each group is expected, and how far from there."""

    centre: np.ndarray
    width: np.ndarray


class State(NamedTuple):
    """One effect for each group."""

    effects: np.ndarray


class Info(NamedTuple):
    """The fraction of leaps that were accepted."""

    accept: float


def parabolas(log_density: Densities, prior: Law) -> Law:
    """Return the law of which the log density is nearly a parabola in each group."""
    law = prior
    for _ in range(_ROUNDS):
        below, here, above = (log_density(law.centre + k * law.width) for k in (-1.0, 0.0, 1.0))
        with np.errstate(all="ignore"):
            slope = (above - below) / (2 * law.width)
            curvature = (2 * here - above - below) / law.width**2
        law = _newton(law, slope, curvature, prior)
    return law


def linear(
    misfit: Callable[[np.ndarray], np.ndarray],
    noise_precision: np.ndarray,
    prior: Law,
    *,
    heavy: bool = False,
) -> Law:
    """Return the law that follows if statistics were linear and their noise Normal.

    ``misfit`` returns the statistics less the releases, a row (d) for each group. With ``heavy``,
    a release pulls no more from far away than from one scale of its noise, as Laplace noise does.
    """
    law = prior
    for _ in range(_HEAVY_ROUNDS if heavy else _ROUNDS):
        here, there = misfit(law.centre), misfit(law.centre + law.width)
        with np.errstate(all="ignore"):
            slopes, weight = (there - here) / law.width[:, None], noise_precision
            if heavy:
                weight = weight / np.maximum(1.0, np.abs(here) * np.sqrt(weight))
            pull = (slopes * weight * here).sum(axis=1)
            curvature = (slopes**2 * weight).sum(axis=1) + prior.width**-2
            slope = -pull - (law.centre - prior.centre) / prior.width**2
        law = _newton(law, slope, curvature, prior)
    return law


def _newton(law: Law, slope: np.ndarray, curvature: np.ndarray, prior: Law) -> Law:
    """Go to where a parabola has its mode; where there is none, stay near the prior."""
    least = (_WIDEST * prior.width) ** -2
    known = np.isfinite(slope) & np.isfinite(curvature)
    curvature = np.where(known, np.maximum(curvature, least), prior.width**-2)
    with np.errstate(all="ignore"):
        centre = np.where(known, law.centre + slope / curvature, prior.centre)
    far = _FURTHEST * prior.width
    return Law(np.clip(centre, prior.centre - far, prior.centre + far), curvature**-0.5)


def _log_student(t: np.ndarray) -> np.ndarray:
    return -0.5 * (DEGREES_OF_FREEDOM + 1) * np.log1p(t**2 / DEGREES_OF_FREEDOM)


def step(
    rng: np.random.Generator,
    state: State,
    *,
    log_density: Densities,
    law: Law,
    leaps: int,
    steps: tuple[float, ...] = (),
    movable: np.ndarray | bool = True,
) -> tuple[State, Info]:
    """Offer leaps to all groups, and after each of them a step of one of the lengths.

    Parameters
    ----------
    rng
    state
    log_density
    law
        Must have been found without looking at the effects.
    leaps
        How many.
    steps
        In units of the law's width.
    movable
        Groups that may move; which these are may not depend on the effects.
    """
    effects = state.effects
    now, accepted = _number_or_never(log_density(effects)), 0.0
    for k in range(leaps):
        leap = law.centre + law.width * rng.standard_t(DEGREES_OF_FREEDOM, effects.size)
        back, there = ((t - law.centre) / law.width for t in (effects, leap))
        ratio = _log_student(back) - _log_student(there)
        effects, now, share = _offered(rng, effects, now, leap, log_density, ratio, movable)
        accepted += share / leaps
        if k < len(steps):
            near = effects + steps[k] * law.width * rng.standard_normal(effects.size)
            effects, now, _ = _offered(rng, effects, now, near, log_density, 0.0, movable)
    return State(effects), Info(accepted)


def _offered(
    rng: np.random.Generator,
    effects: np.ndarray,
    now: np.ndarray,
    proposal: np.ndarray,
    log_density: Densities,
    log_ratio: np.ndarray | float,
    movable: np.ndarray | bool,
) -> tuple[np.ndarray, np.ndarray, float]:
    """Let each group take its proposal, or not."""
    then = log_density(proposal)
    slack = rng.standard_exponential(effects.size)
    # What is not a number is never accepted.
    with np.errstate(invalid="ignore"):
        taken = (then + log_ratio + slack >= now) & movable
    return np.where(taken, proposal, effects), np.where(taken, then, now), float(taken.mean())


def _number_or_never(log_density: np.ndarray) -> np.ndarray:
    return np.where(np.isnan(log_density), -np.inf, log_density)
