"""Functions of a model's parameters, compiled so that jitted moves can call them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import pytensor.tensor as pt

from pymc_privacy._compat import (
    CACHED_SRC_FUNCTIONS,
    In,
    Model,
    NullTypeGradError,
    TensorVariable,
    Variable,
    ancestors,
    compile_graph,
    join_nonshared_inputs,
)
from pymc_privacy.algorithms.adaptation.interweave import Traits
from pymc_privacy.algorithms.machine_code.binding import Remember
from pymc_privacy.algorithms.machine_code.caching import fingerprint
from pymc_privacy.functions.calls import shared_values
from pymc_privacy.functions.generators import with_generator
from pymc_privacy.functions.numbers import BY_STRUCTURE
from pymc_privacy.model.points import Layout, Point

MOST_GUIDED = 60
# Functions whose first output is a log density.
_DENSITIES = (
    "centred",
    "noncentred",
    "others",
    "refresh",
    "law",
    "noise",
    "weight",
    "unweighted",
)


@dataclass(frozen=True)
class ParameterProgram:
    """Compiled functions by name, and how a point is read into their arguments.

    Most are functions of the flattened parameters q and of values that are held fixed.
    """

    parameters: tuple[str, ...]
    shapes: tuple[tuple[int, ...], ...]
    held: tuple[str, ...]
    records: tuple[str, ...]
    functions: dict[str, Any]
    given: dict[str, int]
    """The number of arguments of each function."""
    gradients: frozenset[str] = frozenset()
    """Which densities return their gradient too."""
    noise_precision: np.ndarray = field(default_factory=lambda: np.empty(0))
    """1 / scale² of the noise on each coordinate of ``released``."""
    has_statistics: bool = False
    """Whether the centred density does without the records themselves."""
    sums_out: bool = False
    """Whether all densities are those of the parameters alone, records being summed out."""
    integrates: bool = False
    """Whether that takes an integral for each record."""

    @cached_property
    def layout(self) -> Layout:
        """Return how the parameters of a point are written as one vector."""
        return Layout(self.parameters, self.shapes)

    @property
    def size(self) -> int:
        """Return the number of coordinates of the parameters."""
        return self.layout.size

    @property
    def interweaves(self) -> bool:
        """Whether parameters can move with the records carried along."""
        return "noncentred" in self.functions

    @property
    def is_guided(self) -> bool:
        """Whether moves with the records can follow what these are made of.

        With very many parameters the slopes of the statistic would cost more than they gain.
        """
        return len(self.noise_precision) > 0 and self.size <= MOST_GUIDED

    @property
    def traits(self) -> Traits:
        """Return what these functions allow the moves to do."""
        return Traits(
            self.size,
            has_gradient="centred" in self.gradients,
            has_noncentred_gradient="noncentred" in self.gradients,
            has_statistics=self.has_statistics,
            carries_records=self.interweaves,
            noise_precision=self.noise_precision if self.is_guided else np.empty(0),
            sums_out=self.sums_out,
            integrates=self.integrates,
        )

    def data(self) -> dict[str, tuple[np.ndarray, ...]]:
        """Return what each function reads besides its arguments: data that can be set anew."""
        return {
            name: shared_values(function, self.given[name])
            for name, function in self.functions.items()
        }

    def given_records(
        self, q: np.ndarray, held: tuple, records: tuple
    ) -> Callable[[np.ndarray], Any]:
        """Return the centred density as a function of the parameters, near q."""
        [statistics] = self.functions["statistics"](q, *held, *records)
        return lambda q: self.functions["centred"](q, *held, *records, statistics)

    def held_at(self, point: Point) -> tuple[np.ndarray, ...]:
        """Return the values of a point that are held fixed."""
        return tuple(point[name] for name in self.held)

    def flatten(self, point: Point) -> np.ndarray:
        """Return the parameters of a point as one vector."""
        return self.layout.flatten(point)

    def unflatten(self, q: np.ndarray) -> Point:
        """Return the parameters of one vector by name."""
        return self.layout.unflatten(q)


class Graph(NamedTuple):
    """What a function returns, and its arguments behind q and the held values."""

    outputs: Sequence[TensorVariable]
    arguments: Sequence[Variable] = ()


def compile_program(
    model: Model,
    parameters: Sequence[Variable],
    records: Sequence[Variable],
    graphs: Mapping[str, Graph],
    compile_kwargs: dict | None = None,
    *,
    point: Point,
    drawing: Collection[str] = (),
    alone: Collection[str] = (),
    mode: Any = BY_STRUCTURE,
) -> ParameterProgram:
    """Compile graphs of value variables into functions (q, *held, *arguments).

    Parameters
    ----------
    model : pm.Model
    parameters, records
        Value variables: those flattened into q, and those given among the arguments.
    graphs
        Each function by its name.
    compile_kwargs
        For every function, but for the mode.
    point
        Any point of the model, for the shapes.
    drawing
        Functions that draw; a generator is their first argument.
    alone
        Functions of their arguments only.
    mode
        Moves call the functions from jitted code, whatever else the user compiles to; another
        mode will do for looking at them.
    """
    above = set(ancestors([graph for group in graphs.values() for graph in group.outputs]))
    held = [v for v in model.value_vars if v in above and v not in {*parameters, *records}]
    functions, given = {}, {}
    for name, (outputs, arguments) in graphs.items():
        inputs = list(arguments)
        if name in _DENSITIES:
            outputs = [never_infinite(outputs[0]), *outputs[1:]]
        if name not in alone:
            outputs, q = join_nonshared_inputs(
                point=point, inputs=list(parameters), outputs=outputs, make_inputs_shared=False
            )
            inputs = [q, *held, *inputs]
        rng, outputs = with_generator(outputs)
        if name in drawing:
            # Without leave to change it a copy would be drawn from, and the walk
            # that follows would draw the same numbers again.
            inputs = [In(rng, mutable=True), *inputs]
        functions[name] = compile_graph(
            inputs,
            outputs,
            on_unused_input="ignore",
            accept_inplace=True,
            **((compile_kwargs or {}) | {"mode": mode}),
        )
        functions[name].trust_input = True
        given[name] = len(inputs)
    return ParameterProgram(
        parameters=tuple(v.name for v in parameters),
        shapes=tuple(np.shape(point[v.name]) for v in parameters),
        held=tuple(v.name for v in held),
        records=tuple(v.name for v in records),
        functions=functions,
        given=given,
        gradients=frozenset(
            name
            for name in ("centred", "noncentred")
            if name in graphs and len(graphs[name].outputs) == 2
        ),
    )


def never_infinite(log_density: TensorVariable) -> TensorVariable:
    """Return log densities, not a number where they are +inf: an overflow, far out.

    A move accepts nothing that is not a number; from +inf it would never come back.
    """
    return pt.switch(pt.eq(log_density, np.inf), np.nan, log_density)


def gradient_of(density: TensorVariable, parameters: Sequence[Variable]) -> list[TensorVariable]:
    """Return the gradient as one vector, or nothing where a term has none."""
    try:
        gradients = pt.grad(density, list(parameters), disconnected_inputs="ignore")
    except (NotImplementedError, NullTypeGradError):
        return []
    return [pt.concatenate([gradient.ravel() for gradient in gradients])]


def jitted_functions(program: ParameterProgram) -> tuple[dict[str, Any], Remember]:
    """Return what jitted code calls, and how code bound to it is found again on disk."""
    jitted = {name: function.vm.jit_fn for name, function in program.functions.items()}
    keys = {function: CACHED_SRC_FUNCTIONS.get(function.py_func) for function in jitted.values()}

    def remember(function: Callable[..., Any], label: str) -> bool:
        # Without a key for each graph two models could not be told apart.
        if None in keys.values():
            return False
        CACHED_SRC_FUNCTIONS[function] = fingerprint(function, keys.get)
        return True

    return jitted, remember
