"""A model made ready for maximum likelihood: its coordinates, and data that can be set anew."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
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
from pymc_privacy.algorithms.ascent import Ending, Settings, Step
from pymc_privacy.algorithms.tempering import Value
from pymc_privacy.functions.generators import given_others, in_value_coordinates, with_generator
from pymc_privacy.model.points import Point, prior_points
from pymc_privacy.model.sized_records import sizes_of
from pymc_privacy.model.start import start_of
from pymc_privacy.targets.ascent import AscentTarget, parameters_of

# Draws from the prior, for the scale of each coordinate.
PRIOR_DRAWS = 24
# In coordinates without bounds, so far beyond the start numbers are still numbers.
FURTHEST = 25.0
# Of a coordinate that is the logarithm of something.
WIDEST = 3.0

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


class Problem(ABC):
    """The likelihood of a model, compiled once, for any values of its releases.

    Parameters
    ----------
    model
        As the user has it.
    twin, data
        A copy of it, and what holds the values of its observed variables.
    target
        What was compiled.
    """

    def __init__(self, model: Model, twin: Model, data: Any, target: AscentTarget):
        self.user_model, self.twin, self.data, self.target = model, twin, data, target
        self.point: Point = dict(start_of(target.model))

    @abstractmethod
    def value(self, q: np.ndarray, rng: np.random.Generator, error: float = 0.05) -> Value:
        """Return the log likelihood and its error."""

    @abstractmethod
    def difference(
        self, a: np.ndarray, b: np.ndarray, rng: np.random.Generator, effort: float = 1.0
    ) -> Value:
        """Return a difference of log likelihoods and its error, by so much of the usual effort."""

    @abstractmethod
    def slope(
        self, q: np.ndarray, settings: Settings, rng: np.random.Generator, penalised: bool
    ) -> tuple[float, float]:
        """Return the score of one coordinate, and its variance."""

    @abstractmethod
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
        """Climb from several starts; those that come to the same place are one maximum.

        On a level stretch they may stop roughly, if not told to climb it ``wholly``.
        """

    @abstractmethod
    def follow(
        self, q: np.ndarray, settings: Settings, rng: np.random.Generator, *, penalised: bool
    ) -> np.ndarray:
        """Return the maximum over the coordinates that are free, roughly."""

    @abstractmethod
    def database_point(self, q: np.ndarray, rng: np.random.Generator) -> Point:
        """Return a point with databases given parameters and releases."""

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
    def centre(self) -> np.ndarray:
        """Where the model has the parameters to begin with."""
        return self.target.program.flatten(self.point)

    @cached_property
    def drawn(self) -> np.ndarray:
        """Some draws from the prior, one per row."""
        draws = prior_points(self.twin, seed=3)
        return np.array([self.target.program.flatten(next(draws)) for _ in range(PRIOR_DRAWS)])

    @cached_property
    def settings(self) -> Settings:
        """How far steps may go, from the spread of the prior, which says nothing else."""
        start = self.centre
        scale = np.maximum(self.drawn.std(axis=0), 0.1)
        flat = {rv.name for rv in self.variables if isinstance(rv.owner.op, FlatRV | HalfFlatRV)}
        unknown = np.array([name in flat for name in self.owners])
        scale[unknown] = 10 * (1 + np.abs(start[unknown]))
        transformed = self.is_transformed
        scale[transformed] = np.clip(scale[transformed], 0.5, WIDEST)
        reach = np.where(transformed, FURTHEST, np.inf)
        return Settings(np.arange(len(start)), scale, (start - reach, start + reach))

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
            point = self.database_point(q, rng)
            sizes = [point[self.twin.rvs_to_values[n].name] for n in self._kept_sizes]
        parts = self.target.program.unflatten(np.asarray(q, float))
        names = [self.twin.rvs_to_values[rv].name for rv in parameters_of(self.twin)]
        # What is compiled without in-place updates leaves its generator where it was.
        [child] = rng.spawn(1)
        found = self._simulator(child, *(parts[name] for name in names), *sizes)
        return {
            rv.name: np.array(value)
            for rv, value in zip(self.twin.observed_RVs, found, strict=True)
        }
