"""Climb the likelihood of databases that have to be drawn."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from pymc_privacy._compat import Model
from pymc_privacy.algorithms import ascent
from pymc_privacy.algorithms.ascent import Average, Ending, Settings, Step
from pymc_privacy.algorithms.tempering import Value
from pymc_privacy.certificate.ascent import compare_scores
from pymc_privacy.certificate.base import Reference, certified, prior_pairs
from pymc_privacy.certificate.certifier import LEVELS
from pymc_privacy.errors import CertificateError
from pymc_privacy.inference.imputation import Imputation
from pymc_privacy.inference.likelihood import Likelihood
from pymc_privacy.inference.nearby import brought_near
from pymc_privacy.inference.problem import Climbed, Problem
from pymc_privacy.model.points import Point, prior_points
from pymc_privacy.model.settable import with_settable_data
from pymc_privacy.targets.ascent import (
    AscentTarget,
    compile_ascent,
    find_scored_databases,
    parameters_of,
)

# By so many standard errors two scores may differ by chance, in all of a fit.
DISAGREEMENT = 7.0
# How many times further a maximum may be that is only looked for roughly.
ROUGHLY = 6.0
# From so many draws of the prior it is tried to come near, where a start does not.
OTHER_STARTS = 4
# For the way of some parameters after another one that is pushed.
FOLLOWING_SWEEPS = 600


class ImputedProblem(Problem):
    """A likelihood over databases, its scores and its values."""

    def __init__(self, model: Model):
        twin, data = with_settable_data(model)
        exact, found = find_scored_databases(twin)
        super().__init__(model, twin, data, _certified(twin, exact, found))
        self.likelihood = Likelihood(self.target, self.point)

    def source(self, rng: np.random.Generator, *, penalised: bool = False) -> Imputation:
        """Return a chain over databases."""
        source = Imputation(self.target, rng, self.point, penalised=penalised)
        source.read_releases()
        return source

    def database_point(self, q: np.ndarray, rng: np.random.Generator) -> Point:
        """Return a point with databases given parameters and releases."""
        source = self.source(rng)
        source.scores(q, 30)
        return source.point

    def value(self, q: np.ndarray, rng: np.random.Generator, error: float = 0.05) -> Value:
        """Return the log likelihood and its error."""
        return self.likelihood.value(q, rng, error=error)

    def difference(
        self, a: np.ndarray, b: np.ndarray, rng: np.random.Generator, effort: float = 1.0
    ) -> Value:
        """Return a difference of log likelihoods and its error, by so much of the usual effort."""
        return self.likelihood.difference(a, b, rng, effort)

    def slope(
        self,
        q: np.ndarray,
        settings: Settings,
        rng: np.random.Generator,
        penalised: bool,
        sweeps: int = 400,
    ) -> tuple[float, float]:
        """Return the score of one coordinate, and its variance."""
        source = self.source(rng.spawn(1)[0], penalised=penalised)
        source.scores(q, ascent.NEAR_SWEEPS)
        [k] = settings.free
        found = ascent.combine(source.scores(q, sweeps))
        return float(found.score[k]), float(found.covariance[k, k])

    def climb(
        self,
        starts: Sequence[np.ndarray],
        rng: np.random.Generator,
        *,
        settings: Settings | None = None,
        tolerance: float,
        max_sweeps: int,
        penalised: bool = False,
        watch: Callable[[int, Step], None] = lambda start, step: None,
        wholly: bool = False,
    ) -> Climbed:
        """Climb from several starts; those that come to the same place go on together.

        On a level stretch they stop roughly, if not told to climb it ``wholly``.
        """
        settings = self.settings if settings is None else settings
        walks = []
        for k, (q, child) in enumerate(zip(starts, rng.spawn(len(starts)), strict=True)):
            source = self.source(child, penalised=penalised)
            most = max_sweeps // (2 * len(starts))
            path = self._far(source, q, settings, most, lambda s, k=k: watch(k, s), k == 0)  # type: ignore[misc]
            walks.append(_Walk(source, path, k))
        groups = _groups(walks, settings)
        spent = sum(walk.path[-1].sweeps for walk in walks)
        ends: list[Ending] = []
        which = [0] * len(starts)
        while groups:
            group, budget = groups.pop(0), (max_sweeps - spent) // (1 + len(groups))
            end, parted = _Near(group, settings, wholly).run(tolerance, budget, watch)
            spent += end.sweeps
            for walk in group:
                which[walk.number] = len(ends)
            ends.append(end)
            groups += [[walk] for walk in parted]
        ends, which = _merged(ends, which, settings)
        worst = max(end.disagreement for end in ends)
        if worst > DISAGREEMENT:
            raise CertificateError(
                "The two scores of a likelihood must have the same mean, whatever the model; here "
                f"they differ by {worst:.1f} standard errors. The values that records can take may "
                "depend on the parameters, or a derivative be wrong; nothing is returned."
            )
        return Climbed(ends, which, [walk.own() for walk in walks], [walk.path for walk in walks])

    def _far(
        self,
        source: Imputation,
        q: np.ndarray,
        settings: Settings,
        most: int,
        watch: Callable[[Step], None] = lambda step: None,
        wholly: bool = True,
    ) -> list[Step]:
        """Return the way to near a maximum."""
        path = [Step(q, 0, math.nan, "far")]
        others = source.rng.permutation(self.drawn)[:OTHER_STARTS]
        begun = brought_near(source, q, settings, others, wholly=wholly)
        for step in ascent.far(source, begun, settings, most):
            path.append(step)
            watch(step)
        return path

    def follow(
        self, q: np.ndarray, settings: Settings, rng: np.random.Generator, *, penalised: bool
    ) -> np.ndarray:
        """Return the maximum over the coordinates that are free, roughly."""
        source = self.source(rng.spawn(1)[0], penalised=penalised)
        return self._far(source, q, settings, FOLLOWING_SWEEPS)[-1].q


def _groups(walks: Sequence[_Walk], settings: Settings) -> list[list[_Walk]]:
    """Put starts together that have come to the same place."""

    def agree(walk: _Walk, other: _Walk) -> bool:
        return ascent.agree(walk.end, other.end, walk.source.information(), settings)

    places = ascent.together(walks, agree)
    return [
        [walk for walk, own in zip(walks, places, strict=True) if own == place]
        for place in range(1 + max(places))
    ]


def _merged(
    ends: list[Ending], which: list[int], settings: Settings
) -> tuple[list[Ending], list[int]]:
    """Take ends that turn out to be one place, by their errors, for one."""

    def are_one(end: Ending, other: Ending) -> bool:
        pair = (Average(end.q, end.error), Average(other.q, other.error))
        return ascent.are_one(*pair, end.information, settings)

    places = ascent.together(ends, are_one)
    return ascent.nearest(ends, places), [places[k] for k in which]


class _Walk:
    """One start on its last way, near a maximum."""

    def __init__(self, source: Imputation, path: list[Step], number: int):
        self.source, self.path, self.number = source, path, number
        self.steps: list[tuple[Step, np.ndarray]] = []
        self.end = path[-1].q

    def go(self, settings: Settings, watch: Callable[[int, Step], None]) -> int:
        """Take so many steps as the settings say; return the number of sweeps."""
        before, spent = self.path[-1].sweeps, 0
        for step, score in ascent.near(self.source, self.end, settings, len(self.steps)):
            self.steps.append((step, score))
            self.path.append(replace(step, sweeps=before + step.sweeps))
            watch(self.number, self.path[-1])
            spent = step.sweeps
        self.end = self.path[-1].q
        return spent

    def begin_again(self, q: np.ndarray) -> None:
        """Forget all steps, and go on from another point."""
        self.steps, self.end = [], q

    def own(self) -> np.ndarray:
        """Return where this start has come to by itself."""
        kept = self.steps[ascent.forgotten(self.steps) :]
        return np.mean([step.q for step, _ in kept], axis=0) if kept else self.end


class _Near:
    """The last two phases of an ascent, by several walks that are near the same maximum.

    Where next to nothing is known of a parameter, one of them goes on alone, and only roughly:
    places on a level stretch have no mean that would be a maximum.
    """

    def __init__(self, walks: list[_Walk], settings: Settings, wholly: bool):
        self._is_rough = not wholly and bool(
            len(ascent.weak(walks[0].source.information(), settings))
        )
        self._walks = walks[:1] if self._is_rough else walks
        self._settings = roughly(settings) if self._is_rough else settings

    def run(
        self, tolerance: float, budget: int, watch: Callable[[int, Step], None]
    ) -> tuple[Ending, list[_Walk]]:
        """Walk, and look how far it is, until that is near enough or the budget is spent.

        Walks that turn out to be in another place than the first one are left out, and returned.
        """
        settings, spent = self._settings, 0
        tolerance *= ROUGHLY if self._is_rough else 1.0
        parted: list[_Walk] = []
        steps = max(20, settings.near_steps // len(self._walks))
        while True:
            several = replace(settings, near_steps=steps)
            spent += sum(walk.go(several, watch) for walk in self._walks)
            parted += self._part()
            found = self._average(self._walks)
            more = found.error / (tolerance / 3)
            left = budget - spent - settings.check_sweeps
            # An error falls with the root of the number of draws.
            taken = sum(len(walk.steps) for walk in self._walks)
            wanted = math.ceil(taken * (min(more, 3.0) ** 2 - 1))
            if more > 1 and left > 10 * ascent.NEAR_SWEEPS:
                most = left // (ascent.NEAR_SWEEPS * len(self._walks))
                steps = max(5, min(wanted // len(self._walks) + 1, most))
                continue
            end = ascent.check(self._walks[0].source, found.q, settings)
            spent += end.sweeps
            end = replace(end, error=found.error, sweeps=spent, is_rough=self._is_rough)
            is_there = end.distance <= max(tolerance, 2 * end.distance_error)
            left = budget - spent - settings.check_sweeps
            if is_there or left < 4 * steps * ascent.NEAR_SWEEPS:
                return end, parted
            # The average remembers where it came from: begin again from there.
            for walk in self._walks:
                walk.begin_again(found.q)

    def _average(self, walks: list[_Walk]) -> Average:
        information = walks[0].source.information()
        return ascent.average([walk.steps for walk in walks], information, self._settings)

    def _part(self) -> list[_Walk]:
        """Leave out the walks that are elsewhere than the first one."""
        information = self._walks[0].source.information()
        first = self._average(self._walks[:1])
        parted = [
            walk
            for walk in self._walks[1:]
            if not ascent.are_one(first, self._average([walk]), information, self._settings)
        ]
        self._walks = [walk for walk in self._walks if walk not in parted]
        return parted


def roughly(settings: Settings) -> Settings:
    """Return settings of an ascent that need not come as near."""
    return replace(settings, near_steps=20, check_sweeps=150)


def _certified(whole: Model, exact: Model, found: Sequence[Any]) -> AscentTarget:
    """Return the fastest scores that agree with the model of exact length."""
    # In draws of the whole model all rows exist, so that they are points of the other as well.
    draws = prior_points(whole, seed=11)
    names = [exact.rvs_to_values[rv].name for rv in parameters_of(exact)]
    pairs = prior_pairs(whole, names, draws)
    reference = Reference(exact)
    return certified(
        [
            lambda level=level: compile_ascent(  # type: ignore[misc]
                exact, found, detail=level[0], carry=level[1]
            )
            for level in LEVELS
        ],
        lambda target: compare_scores(target, reference, pairs, draws),
        what="the scores of the likelihood",
    )
