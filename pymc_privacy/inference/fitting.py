"""One way to fit a problem: climb from several starts, and say what was found."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from pymc_privacy.algorithms import ascent, expectation
from pymc_privacy.algorithms.ascent import Ending, Settings, Step
from pymc_privacy.algorithms.tempering import Value
from pymc_privacy.inference.climbing import ImputedProblem
from pymc_privacy.inference.completing import Completion
from pymc_privacy.inference.likelihood_fit import LikelihoodFit, Maximum, Start
from pymc_privacy.inference.problem import Climbed, Problem
from pymc_privacy.results import labelled

# How far a parameter is pushed to see whether the likelihood falls, in its scale: at first, and
# where it has no bounds of computation, at most.
PUSH, FURTHEST = 6.0, 24.0
# Where, up to there, it is looked for a fall.
WITHIN_POINTS = 3
# The share of the way to where numbers can no longer be computed with.
WITHIN = 0.8
# Less than this is no fall of a log likelihood, and more than that one is seen with less effort.
LEVEL, DEEP, GLANCE = 0.05, 1.0, 0.15
# What is known no better than this is not taken to be level for that.
UNSURE = 0.25

Watch = Callable[[int, Step], None]


class Pushed(NamedTuple):
    """Parameters that the releases leave open."""

    q: np.ndarray
    inside: np.ndarray
    """Where they were before."""
    at_boundary: tuple[str, ...]
    unidentified: tuple[str, ...]
    fixed: np.ndarray
    """Coordinates that are as far out as they go."""
    loose: np.ndarray
    """Coordinates along which the likelihood is level, one way or both."""


class Fitting:
    """One way to fit a problem: to its releases, or to others."""

    def __init__(
        self, problem: Problem, method: str, penalised: bool, tolerance: float, max_sweeps: int
    ):
        self.problem, self.method, self.penalised = problem, method, penalised
        self.tolerance, self.max_sweeps = tolerance, max_sweeps

    def run(
        self, starts: Sequence[np.ndarray], rng: np.random.Generator, watch: Watch
    ) -> LikelihoodFit:
        """Climb from all starts, look at what was found, and say so."""
        begun = time.perf_counter()
        problem = self.problem
        climbed = self.climb(starts, rng, watch)
        ends = [(end, self._value(end.q, rng)) for end in climbed.ends]
        best = self._best(ends, rng)
        pushed = self._pushed(ends[best][0], rng)
        end, value = ends[best]
        spent = sum(path[-1].sweeps for path in climbed.paths)
        if len(pushed.fixed) or end.is_rough:
            end, value = self._further(pushed, watch, rng)
            ends[best] = end, value
            spent += end.sweeps
        settings = ascent.without(problem.settings, pushed.fixed)
        natural = self.natural(end.q, pushed)
        climbed, ends, level = self._joined(climbed, ends, best, pushed, rng)
        return LikelihoodFit(
            estimate=labelled(problem.user_model, natural),
            log_likelihood=value.value,
            log_likelihood_error=value.error,
            converged=self._is_converged(end),
            distance=end.distance,
            distance_error=end.distance_error,
            at_boundary=pushed.at_boundary,
            unidentified=pushed.unidentified,
            level=level,
            starts=self._told(starts, climbed, [v for _, v in ends]),
            maxima=tuple(
                Maximum(problem.natural(e.q), v.value, v.error, e.distance) for e, v in ends
            ),
            information=end.information.sampling,
            coordinates=tuple(problem.coordinates),
            method=self.method,
            penalty="prior" if self.penalised else None,
            sweeps=spent,
            seconds=time.perf_counter() - begun,
            path=tuple(tuple(path) for path in climbed.paths),
            q=end.q,
            settings=settings,
            fitting=self,
        )

    def natural(self, q: np.ndarray, pushed: Pushed) -> dict[str, np.ndarray]:
        """Return parameters as they were written, those at a boundary on it."""
        there = q.copy()
        # Coordinates of a common constraint cannot go to infinity one by one.
        alone = [k for k in pushed.fixed if self._name(k) == self.problem.coordinates[k]]
        furthest = np.where(self.problem.is_transformed[alone], 1000.0, np.inf)
        there[alone] = np.sign(pushed.q[alone] - pushed.inside[alone]) * furthest
        found, inside = self.problem.natural(there), self.problem.natural(q)
        found = {
            name: np.array(inside[name] if np.isnan(value).any() else value, dtype=float)
            for name, value in found.items()
        }
        for name in pushed.unidentified:
            owner, _, place = name.partition("[")
            index = tuple(map(int, place.rstrip("]").split(", "))) if place else ...
            found[owner][index] = np.nan
        return found

    def climb(
        self,
        starts: Sequence[np.ndarray],
        rng: np.random.Generator,
        watch: Watch = lambda start, step: None,
        settings: Settings | None = None,
        wholly: bool = False,
    ) -> Climbed:
        """Climb by the method of the fit."""
        settings = self.problem.settings if settings is None else settings
        if self.method == "score" or not self.problem.target.databases:
            return self.problem.climb(
                starts,
                rng,
                settings=settings,
                tolerance=self.tolerance,
                max_sweeps=self.max_sweeps,
                penalised=self.penalised,
                watch=watch,
                wholly=wholly,
            )
        return self._by_expectation(starts, rng, watch, settings)

    def _by_expectation(
        self,
        starts: Sequence[np.ndarray],
        rng: np.random.Generator,
        watch: Watch,
        settings: Settings,
    ) -> Climbed:
        steps = {"em": expectation.em, "saem": expectation.saem}[self.method]
        ends, paths = [], []
        share = max(
            self.max_sweeps // len(starts) - settings.check_sweeps, expectation.ROUND_SWEEPS
        )
        assert isinstance(self.problem, ImputedProblem)  # others are maximised directly
        for k, q in enumerate(starts):
            source = self.problem.source(rng.spawn(1)[0], penalised=self.penalised)
            path = [Step(q, 0, math.nan, self.method)]
            for step in steps(Completion(source), q, settings, share):
                path.append(step)
                watch(k, step)
            paths.append(path)
            ends.append(ascent.check(source, path[-1].q, settings))
        return Climbed(ends, list(range(len(starts))), [end.q for end in ends], paths)

    def _value(self, q: np.ndarray, rng: np.random.Generator) -> Value:
        return self.problem.value(q, rng)

    def _best(self, ends: Sequence[tuple[Ending, Value]], rng: np.random.Generator) -> int:
        """Return which maximum is the highest, by common random numbers if it is close."""
        best = int(np.argmax([value.value for _, value in ends]))
        for k, (end, value) in enumerate(ends):
            near = ends[best][1].value - value.value
            if k != best and near < 3 * math.hypot(value.error, ends[best][1].error):
                found = self.problem.difference(end.q, ends[best][0].q, rng)
                best = k if found.value > 2 * found.error else best
        return best

    def _is_converged(self, end: Ending) -> bool:
        return end.distance <= max(self.tolerance, 2 * end.distance_error)

    def _pushed(self, end: Ending, rng: np.random.Generator) -> Pushed:
        """Look for parameters that can be pushed outward without a fall of the likelihood."""
        settings = self.problem.settings
        out = np.array(end.q)
        boundary: list[str] = []
        unidentified: list[str] = []
        fixed: list[int] = []
        loose: list[int] = []
        if self.penalised or not (self.method == "score" or self._is_converged(end)):
            return Pushed(out, end.q, (), (), *(np.array([], dtype=int) for _ in range(2)))
        for k in map(int, ascent.weak(end.information, settings)):
            along, name = self._along(end, k), self._name(k)
            levels = {
                side: self._pushed_along(out, along, k, side, fixed, rng) for side in (1.0, -1.0)
            }
            open_ends = [side for side, there in levels.items() if there is not None]
            loose += [k] if open_ends else []
            if len(open_ends) == 2 or any(
                self._is_level_within(out, along, k, -side, fixed, rng) for side in open_ends
            ):
                unidentified.append(name)
            elif open_ends:
                boundary.append(name)
                fixed.append(k)
                out = np.array(levels[open_ends[0]])
        return Pushed(
            out,
            end.q,
            tuple(dict.fromkeys(boundary)),
            tuple(dict.fromkeys(unidentified)),
            np.array(fixed, dtype=int),
            np.array(loose, dtype=int),
        )

    def _name(self, k: int) -> str:
        """Return the name of a coordinate as the user knows it."""
        problem = self.problem
        owner = problem.owners[k]
        shape = np.shape(problem.natural(problem.target.program.flatten(problem.point))[owner])
        same = math.prod(shape) == problem.owners.count(owner)
        return problem.coordinates[k] if same else owner

    def _pushed_along(
        self,
        q: np.ndarray,
        along: np.ndarray,
        k: int,
        side: float,
        fixed: list[int],
        rng: np.random.Generator,
    ) -> np.ndarray | None:
        """Push one coordinate outward, let the others follow; None if the likelihood falls.

        It may not fall nearby, nor as far out as can be computed.
        """
        settings, out = self.problem.settings, q
        end = settings.bounds[int(side > 0)][k]
        # Others may have to follow as far, and must not be stopped by bounds of their own.
        furthest = q[k] + WITHIN * (end - q[k])
        if not math.isfinite(end):
            furthest = q[k] + side * FURTHEST * settings.scale[k]
        near = np.clip(q[k] + side * PUSH * settings.scale[k], *sorted((q[k], furthest)))
        for value in (furthest, near):
            there = self._followed(q, along, k, float(value), fixed, rng)
            if there is None:
                return None
            out = there if value == furthest else out
        return out

    def _is_level_within(
        self,
        q: np.ndarray,
        along: np.ndarray,
        k: int,
        side: float,
        fixed: list[int],
        rng: np.random.Generator,
    ) -> bool:
        """Tell whether the likelihood is level one way, as far as a coordinate can be expected.

        Toward a bound it always gets level in the end, as that of a scale toward zero. What has a
        maximum there is known to be small: the likelihood falls the other way, before it comes to
        values that nobody expects.
        """
        settings = self.problem.settings
        furthest = self.problem.centre[k] + side * PUSH * settings.scale[k]
        if side * (furthest - q[k]) <= 0:
            return True
        values = np.linspace(q[k], furthest, WITHIN_POINTS + 1)[:0:-1]
        return all(
            self._followed(q, along, k, float(value), fixed, rng) is not None for value in values
        )

    def _followed(
        self,
        q: np.ndarray,
        along: np.ndarray,
        k: int,
        value: float,
        fixed: list[int],
        rng: np.random.Generator,
    ) -> np.ndarray | None:
        """Set one coordinate, and let the others follow; None if the likelihood falls."""
        settings = self.problem.settings
        others = ascent.without(settings, np.array([*fixed, k]))
        there = np.clip(q + (value - q[k]) * along, *settings.bounds)
        there[fixed] = q[fixed]
        if self._is_level(there, q, rng):
            return there
        if not len(others.free):
            return None
        there = self.problem.follow(there, others, rng, penalised=self.penalised)
        return there if self._is_level(there, q, rng) else None

    def _along(self, end: Ending, k: int) -> np.ndarray:
        """Return how coordinates of one variable move with one: some can only go together."""
        problem, settings = self.problem, self.problem.settings
        sampling = ascent.metric(end.information, settings).sampling
        column = np.linalg.pinv(sampling, hermitian=True)[:, list(settings.free).index(k)]
        along = np.zeros(len(end.q))
        along[settings.free] = column / column[list(settings.free).index(k)]
        along[[owner != problem.owners[k] for owner in problem.owners]] = 0.0
        return along

    def _is_level(self, a: np.ndarray, b: np.ndarray, rng: np.random.Generator) -> bool:
        """Tell whether the likelihood at a is no lower than at b, as far as can be seen."""
        # A deep fall is seen at a glance, and so is a rise.
        glance = self.problem.difference(a, b, rng, effort=GLANCE)
        if glance.value < -DEEP - 6 * glance.error:
            return False
        if glance.value - 3 * glance.error >= -LEVEL:
            return True
        found = self.problem.difference(a, b, rng)
        return found.value >= -LEVEL - 2 * min(found.error, UNSURE)

    def _joined(
        self,
        climbed: Climbed,
        ends: list[tuple[Ending, Value]],
        best: int,
        pushed: Pushed,
        rng: np.random.Generator,
    ) -> tuple[Climbed, list[tuple[Ending, Value]], tuple[str, ...]]:
        """Take ends on one level stretch for one maximum; return also what is level there."""
        top, loose = ends[best][0].q, set(pushed.loose)
        stays: list[int] = []
        level: set[int] = set()
        for j, (end, _) in enumerate(ends):
            apart = self._apart(end.q, top)
            if j == best or not self._is_level(end.q, top, rng):
                stays.append(j)
            elif not apart <= loose:
                if self._is_level((end.q + top) / 2, top, rng):
                    level |= apart - loose
                else:
                    stays.append(j)
        weak = set(ascent.weak(ends[best][0].information, self.problem.settings)) - loose
        for j, q in zip(climbed.which, climbed.own, strict=True):
            apart = self._apart(q, top) & weak
            if j == best and apart and self._is_level(q, top, rng):
                level |= apart
        place = {j: stays.index(j if j in stays else best) for j in range(len(ends))}
        kept = [ends[j] for j in stays]
        names = dict.fromkeys(self._name(k) for k in sorted(level))
        return (
            climbed._replace(
                ends=[end for end, _ in kept], which=[place[j] for j in climbed.which]
            ),
            kept,
            tuple(
                name for name in names if name not in (*pushed.at_boundary, *pushed.unidentified)
            ),
        )

    def _apart(self, a: np.ndarray, b: np.ndarray) -> set[int]:
        """Return the coordinates in which two ends are different places."""
        reach = ascent.TOGETHER_IN_SCALE * self.problem.settings.scale
        return set(np.flatnonzero(np.abs(a - b) > reach).tolist())

    def _further(
        self, pushed: Pushed, watch: Watch, rng: np.random.Generator
    ) -> tuple[Ending, Value]:
        """Return the maximum over all but what is level."""
        settings = ascent.without(self.problem.settings, pushed.loose)
        if not len(settings.free):
            end = ascent.Ending(
                pushed.q, 0.0, 0.0, np.empty(0), np.empty((0, 0)),
                ascent.Information(*(np.zeros((len(pushed.q),) * 2) for _ in range(2))), 0, 0.0,
            )  # fmt: skip
            return end, self._value(pushed.q, rng)
        end = self.climb([pushed.q], rng, watch, settings, wholly=True).ends[0]
        return end, self._value(end.q, rng)

    def _told(
        self, starts: Sequence[np.ndarray], climbed: Climbed, values: Sequence[Value]
    ) -> tuple[Start, ...]:
        problem = self.problem
        return tuple(
            Start(
                initial=problem.natural(q),
                estimate=problem.natural(own),
                maximum=which,
                log_likelihood=values[which].value,
                distance=climbed.ends[which].distance,
                sweeps=path[-1].sweeps,
            )
            for q, own, which, path in zip(
                starts, climbed.own, climbed.which, climbed.paths, strict=True
            )
        )
