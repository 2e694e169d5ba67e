"""A model made ready to be climbed: compiled once, for any values of its releases."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from pymc_privacy._compat import (
    INTERPRETED,
    FlatRV,
    HalfFlatRV,
    Model,
    TensorVariable,
    ancestors,
    compile_graph,
    graph_replace,
)
from pymc_privacy.algorithms import ascent
from pymc_privacy.algorithms.ascent import Ending, Settings, Step
from pymc_privacy.algorithms.tempering import Value
from pymc_privacy.certificate.ascent import compare_scores
from pymc_privacy.certificate.base import Reference, certified, prior_pairs
from pymc_privacy.certificate.certifier import LEVELS
from pymc_privacy.errors import CertificateError
from pymc_privacy.functions.generators import given_others, in_value_coordinates, with_generator
from pymc_privacy.inference.imputation import Imputation
from pymc_privacy.inference.likelihood import Likelihood
from pymc_privacy.model.points import Point, prior_points
from pymc_privacy.model.settable import with_settable_data
from pymc_privacy.model.sized_records import sizes_of
from pymc_privacy.model.start import start_of
from pymc_privacy.targets.ascent import (
    AscentTarget,
    compile_ascent,
    find_scored_databases,
    parameters_of,
)

# Draws from the prior, for the scale of each coordinate.
PRIOR_DRAWS = 24
# In coordinates without bounds, so far beyond the start numbers are still numbers.
FURTHEST = 25.0
# Of a coordinate that is the logarithm of something.
WIDEST = 3.0
# By so many standard errors two scores may differ by chance, in all of a fit.
DISAGREEMENT = 7.0

Data = dict[str, np.ndarray]


class Climbed(NamedTuple):
    """Where ascents from several starts have come to."""

    ends: list[Ending]
    """A different maximum each."""
    which: list[int]
    """The maximum that each start has come to."""
    own: list[np.ndarray]
    """Where each start has come to by itself."""
    paths: list[list[Step]]


class Problem:
    """The likelihood of a model, its scores and its values, compiled."""

    def __init__(self, model: Model):
        self.user_model = model
        self.twin, self.data = with_settable_data(model)
        exact, found = find_scored_databases(self.twin)
        self.target = _certified(self.twin, exact, found)
        self.point: Point = dict(start_of(exact))
        self.likelihood = Likelihood(self.target, self.point)
        self.has_sizes = bool(sizes_of(self.twin))

    @property
    def size(self) -> int:
        """The number of coordinates."""
        return self.target.program.size

    @cached_property
    def variables(self) -> list[TensorVariable]:
        """The parameters, in the order of the coordinates."""
        return parameters_of(self.target.model)

    @cached_property
    def coordinates(self) -> list[str]:
        """A name of each coordinate, that of a variable and its place in it."""
        names = []
        program = self.target.program
        for rv, shape in zip(self.variables, program.shapes, strict=True):
            places = [f"[{', '.join(map(str, place))}]" for place in np.ndindex(*shape)]
            names += [f"{rv.name}{place}" if shape else rv.name for place in places]
        return names

    @cached_property
    def owners(self) -> list[str]:
        """The name of the variable that each coordinate belongs to."""
        shapes = self.target.program.shapes
        return [
            rv.name
            for rv, shape in zip(self.variables, shapes, strict=True)
            for _ in range(math.prod(shape))
        ]

    @cached_property
    def is_transformed(self) -> np.ndarray:
        """Which coordinates stand for something with bounds."""
        transforms = self.target.model.rvs_to_transforms
        bounded = {rv.name for rv in self.variables if transforms[rv] is not None}
        return np.array([name in bounded for name in self.owners])

    def natural(self, q: np.ndarray) -> Data:
        """Return the parameters as they were written, by name."""
        parts = self.target.program.unflatten(np.asarray(q, float))
        with np.errstate(all="ignore"):
            found = self.target.natural(*parts.values())
        names = [rv.name for rv in self.variables]
        return {name: np.asarray(value) for name, value in zip(names, found, strict=True)}

    @cached_property
    def _to_values(self) -> Callable[..., list[np.ndarray]]:
        model = self.target.model
        symbols = [rv.type(rv.name) for rv in self.variables]
        graphs = [in_value_coordinates(model, rv) for rv in self.variables]
        replaced = graph_replace(
            graphs, dict(zip(self.variables, symbols, strict=True)), strict=False
        )
        return compile_graph(symbols, replaced, on_unused_input="ignore", mode=INTERPRETED)

    def values(self, natural: Data) -> np.ndarray:
        """Return the coordinates of parameters as they were written."""
        given = [
            np.asarray(natural[rv.name], dtype=rv.dtype).reshape(np.shape(natural[rv.name]))
            for rv in self.variables
        ]
        return np.concatenate([np.ravel(value) for value in self._to_values(*given)])

    @cached_property
    def settings(self) -> Settings:
        """How far steps may go, from the spread of the prior, which says nothing else."""
        program = self.target.program
        draws = prior_points(self.twin, seed=3)
        drawn = np.array([program.flatten(next(draws)) for _ in range(PRIOR_DRAWS)])
        start = program.flatten(self.point)
        scale = np.maximum(drawn.std(axis=0), 0.1)
        flat = {rv.name for rv in self.variables if isinstance(rv.owner.op, FlatRV | HalfFlatRV)}
        unknown = np.array([name in flat for name in self.owners])
        scale[unknown] = 10 * (1 + np.abs(start[unknown]))
        transformed = self.is_transformed
        scale[transformed] = np.clip(scale[transformed], 0.5, WIDEST)
        reach = np.where(transformed, FURTHEST, np.inf)
        return Settings(np.arange(len(start)), scale, (start - reach, start + reach))

    def source(self, rng: np.random.Generator, *, penalised: bool = False) -> Imputation:
        """Return a chain over databases."""
        source = Imputation(self.target, rng, self.point, penalised=penalised)
        source.read_releases()
        return source

    def observed(self) -> Data:
        """Return the present value of each observed variable."""
        return {name: np.array(holder.get_value()) for name, holder in self.data.items()}

    def observe(self, data: Data) -> None:
        """Set other values of observed variables."""
        for name, value in data.items():
            self.data[name].set_value(np.asarray(value, dtype=self.data[name].type.dtype))

    @cached_property
    def _simulator(self) -> Callable[..., list[np.ndarray]]:
        model = self.twin
        held = [model.rvs_to_values[rv] for rv in parameters_of(model)]
        sizes = [model.rvs_to_values[size] for size in self._kept_sizes]
        drawn = [rv for rv in model.basic_RVs if model.rvs_to_values[rv] not in {*held, *sizes}]
        graphs = given_others(model, model.observed_RVs, drawn)
        rng, graphs = with_generator(graphs, write_out=False)
        return compile_graph(
            [rng, *held, *sizes], graphs, on_unused_input="ignore", mode=INTERPRETED
        )

    @cached_property
    def _kept_sizes(self) -> list[TensorVariable]:
        """Sizes whose law has no parameter: it stands for what was not known about the number."""
        parameters = set(parameters_of(self.twin))
        return [size for size in sizes_of(self.twin) if not set(ancestors([size])) & parameters]

    def simulate(self, q: np.ndarray, rng: np.random.Generator) -> Data:
        """Draw all observed variables from the model and its mechanisms.

        A number of records whose law has no parameter is drawn given the releases, and others
        from their law.
        """
        sizes: list[np.ndarray] = []
        if self._kept_sizes:
            source = self.source(rng)
            source.scores(q, 30)
            sizes = [source.point[self.twin.rvs_to_values[n].name] for n in self._kept_sizes]
        parts = self.target.program.unflatten(np.asarray(q, float))
        names = [self.twin.rvs_to_values[rv].name for rv in parameters_of(self.twin)]
        found = self._simulator(rng, *(parts[name] for name in names), *sizes)
        return {
            rv.name: np.array(value)
            for rv, value in zip(self.twin.observed_RVs, found, strict=True)
        }

    def value(self, q: np.ndarray, rng: np.random.Generator, error: float = 0.05) -> Value:
        """Return the log likelihood and its error."""
        return self.likelihood.value(q, rng, error=error)

    def difference(self, a: np.ndarray, b: np.ndarray, rng: np.random.Generator) -> Value:
        """Return a difference of log likelihoods and its error."""
        return self.likelihood.difference(a, b, rng)

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
    ) -> Climbed:
        """Climb from several starts; those that come to the same place go on together."""
        settings = self.settings if settings is None else settings
        sources = [self.source(child, penalised=penalised) for child in rng.spawn(len(starts))]
        paths: list[list[Step]] = []
        for k, (source, q) in enumerate(zip(sources, starts, strict=True)):
            path = [Step(q, 0, math.nan, "far")]
            for step in ascent.far(source, q, settings, max_sweeps // (2 * len(starts))):
                path.append(step)
                watch(k, step)
            paths.append(path)
        groups = _groups([path[-1].q for path in paths], sources, settings)
        spent = sum(path[-1].sweeps for path in paths)
        ends, own, which = [], [path[-1].q for path in paths], [0] * len(starts)
        for k, group in enumerate(groups):
            budget = (max_sweeps - spent) // len(groups)
            climb = _Near([sources[j] for j in group], [paths[j] for j in group], settings)
            ends.append(climb.run(tolerance, budget, lambda j, s, g=group: watch(g[j], s)))  # type: ignore[misc]
            for j, q in zip(group, climb.own(), strict=True):
                own[j], which[j] = q, k
        ends, which = _merged(ends, which, settings)
        worst = max(end.disagreement for end in ends)
        if worst > DISAGREEMENT:
            raise CertificateError(
                "The two scores of a likelihood must have the same mean, whatever the model; here "
                f"they differ by {worst:.1f} standard errors. The values that records can take may "
                "depend on the parameters, or a derivative be wrong; nothing is returned."
            )
        return Climbed(ends, which, own, paths)


def _groups(
    ends: Sequence[np.ndarray], sources: Sequence[Imputation], settings: Settings
) -> list[list[int]]:
    """Put starts together that have come to the same place."""
    groups: list[list[int]] = []
    for k, q in enumerate(ends):
        information = sources[k].information()
        for group in groups:
            if ascent.agree(q, ends[group[0]], information, settings):
                group.append(k)
                break
        else:
            groups.append([k])
    return groups


def _merged(
    ends: list[Ending], which: list[int], settings: Settings
) -> tuple[list[Ending], list[int]]:
    """Take ends that turn out to be one place, by their errors, for one."""
    kept: list[Ending] = []
    place = []
    for end in ends:
        here = ascent.metric(end.information, settings)
        for k, other in enumerate(kept):
            far = here.length((end.q - other.q)[settings.free])
            error = math.hypot(end.error, other.error) * math.sqrt(len(settings.free))
            close = ascent.are_close(end.q, other.q, settings)
            if close and far < 0.3 + 4 * error:
                place.append(k)
                kept[k] = min(end, other, key=lambda one: one.distance)
                break
        else:
            place.append(len(kept))
            kept.append(end)
    return kept, [place[k] for k in which]


class _Near:
    """The last two phases of an ascent, by several walks that are near the same maximum."""

    def __init__(self, sources: list[Imputation], paths: list[list[Step]], settings: Settings):
        self._sources, self._paths, self._settings = sources, paths, settings
        self._walks: list[list[tuple[Step, np.ndarray]]] = [[] for _ in sources]
        self._ends = [path[-1].q for path in paths]
        self._spent = [path[-1].sweeps for path in paths]

    def run(self, tolerance: float, budget: int, watch: Callable[[int, Step], None]) -> Ending:
        """Walk, and look how far it is, until that is near enough or the budget is spent."""
        settings, spent = self._settings, 0
        steps = max(20, settings.near_steps // len(self._sources))
        while True:
            spent += self._walk(steps, watch)
            found = ascent.average(self._walks, self._sources[0].information(), settings)
            more = found.error / (tolerance / 3)
            left = budget - spent - settings.check_sweeps
            # An error falls with the root of the number of draws.
            wanted = math.ceil(sum(map(len, self._walks)) * (min(more, 3.0) ** 2 - 1))
            if more > 1 and left > 10 * ascent.NEAR_SWEEPS:
                most = left // (ascent.NEAR_SWEEPS * len(self._sources))
                steps = max(5, min(wanted // len(self._sources) + 1, most))
                continue
            end = ascent.check(self._sources[0], found.q, settings)
            spent += end.sweeps
            end = replace(end, error=found.error)
            is_there = end.distance <= max(tolerance, 2 * end.distance_error)
            left = budget - spent - settings.check_sweeps
            if is_there or left < 4 * steps * ascent.NEAR_SWEEPS:
                return replace(end, sweeps=spent)
            # The average remembers where it came from: begin again from there.
            self._ends = [found.q for _ in self._ends]
            self._walks = [[] for _ in self._walks]

    def _walk(self, steps: int, watch: Callable[[int, Step], None]) -> int:
        spent = 0
        settings = replace(self._settings, near_steps=steps)
        for k, source in enumerate(self._sources):
            first, before = len(self._walks[k]), self._spent[k]
            for step, score in ascent.near(source, self._ends[k], settings, first):
                self._walks[k].append((step, score))
                told = replace(step, sweeps=before + step.sweeps)
                self._paths[k].append(told)
                watch(k, told)
            self._ends[k] = self._walks[k][-1][0].q
            self._spent[k] = before + step.sweeps
            spent += step.sweeps
        return spent

    def own(self) -> list[np.ndarray]:
        """Return the average of each walk."""
        kept = [walk[len(walk) // 3 :] for walk in self._walks]
        ends = zip(kept, self._ends, strict=True)
        return [np.mean([s.q for s, _ in walk], axis=0) if walk else q for walk, q in ends]


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
