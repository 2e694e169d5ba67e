"""Compiled densities of the parameters: given the records, and given what those are made of."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from hashlib import sha256
from typing import Any

import numpy as np
import pytensor.tensor as pt

from pymc_privacy._compat import (
    CACHED_SRC_FUNCTIONS,
    In,
    NullTypeGradError,
    TensorVariable,
    Variable,
    ancestors,
    compile_graph,
    join_nonshared_inputs,
)
from pymc_privacy.algorithms import interweave
from pymc_privacy.graph.calls import shared_values
from pymc_privacy.graph.carrying import carry_records
from pymc_privacy.graph.database import Database
from pymc_privacy.graph.densities import (
    density_given_base,
    density_given_records,
    density_of_others,
    fresh_records,
    statistics_given_base,
)
from pymc_privacy.graph.generators import with_generator
from pymc_privacy.graph.locality import Point
from pymc_privacy.mechanisms import AdditiveMechanism

# Beyond, trajectories with gradients beat a random walk whose steps cost a third.
FEW_PARAMETERS = 20


@dataclass(frozen=True)
class ParameterProgram:
    """Compiled functions of the flattened parameters q and of values that are held fixed.

    ``statistics(q, *held, *records)`` returns one vector, of sums over the records that no
    parameter enters;
    ``centred(q, *held, *records, statistics)`` is log p(parameters, records, …) without the
    releases, and its gradient if it has one;
    ``base(rng, q, *held, *records)`` returns the u of the records, by columns;
    ``noncentred(q, *held, *u)`` is log p(parameters, releases, … | u);
    ``forward(q, *held, *u)`` returns the records (value coordinates) that u stands for;
    ``released(q, *held, *u)`` returns the statistic behind all releases, if their noise is
    additive, and else an empty vector.
    Instead of the last four, where some record has no known form x = T(parameters, u):
    ``others(q, *held, *records)`` is the log density of all but the records;
    ``refresh(rng, q, *held)`` draws all records given q, and returns that density and them.
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
    weights: np.ndarray = field(default_factory=lambda: np.empty(0))
    """1 / scale² of the noise on each coordinate of ``released``."""
    has_statistics: bool = False
    """Whether the centred density does without the records themselves."""

    @cached_property
    def size(self) -> int:
        """Return the number of coordinates of the parameters."""
        return sum(math.prod(shape) for shape in self.shapes)

    @property
    def interweaves(self) -> bool:
        """Whether parameters can move with the records carried along."""
        return "noncentred" in self.functions

    def data(self) -> tuple[tuple[np.ndarray, ...], ...]:
        """Return what each function reads besides its arguments: data that can be set anew."""
        return tuple(
            shared_values(function, self.given[name]) for name, function in self.functions.items()
        )

    def given_records(self, held: tuple, records: tuple) -> Callable[[np.ndarray], Any]:
        """Return the centred density as a function of the parameters alone."""
        q = np.zeros(self.size)
        [statistics] = self.functions["statistics"](q, *held, *records)
        return lambda q: self.functions["centred"](q, *held, *records, statistics)

    def flatten(self, point: Point) -> np.ndarray:
        """Return the parameters of a point as one vector."""
        return np.concatenate([np.ravel(point[name]) for name in self.parameters])

    def unflatten(self, q: np.ndarray) -> Point:
        """Return the parameters of one vector by name."""
        parts, first = {}, 0
        for name, shape in zip(self.parameters, self.shapes, strict=True):
            last = first + math.prod(shape)
            parts[name] = q[first:last].reshape(shape)
            first = last
        return parts


def compile_parameters(
    model,
    parameters: Sequence[Variable],
    databases: Sequence[Database],
    compile_kwargs: dict | None = None,
) -> ParameterProgram:
    """Compile the densities of some parameters of a model, given as value variables.

    Without parameters there is nothing to move, and nothing is compiled.
    """
    if not parameters:
        return ParameterProgram((), (), (), (), {}, {})
    records = [rv for database in databases for rv in database.records]
    values = [model.rvs_to_values[rv] for rv in records]
    given_records = density_given_records(model, databases, parameters)
    gradient = _gradient(given_records.density, parameters)
    graphs = {
        "statistics": [given_records.statistics],
        "centred": [given_records.density, *gradient],
    }
    arguments = {"statistics": values, "centred": [*values, given_records.totals]}
    if carried := carry_records(model, records):
        density = density_given_base(model, databases, parameters, carried)
        many = size_of(model, parameters) > FEW_PARAMETERS and is_smooth(records)
        graphs["base"] = carried.base
        graphs["noncentred"] = [density, *(_gradient(density, parameters) if many else [])]
        graphs["forward"] = carried.values
        totals, weights = _released(model, databases, parameters, carried)
        graphs["released"] = [totals]
        arguments |= dict.fromkeys(("noncentred", "forward", "released"), carried.columns)
        arguments["base"] = values
    else:
        graphs["others"] = [density_of_others(model, databases)]
        graphs["refresh"] = fresh_records(model, databases)
        arguments |= {"others": values, "refresh": []}
        weights = np.empty(0)
    program = _compiled(model, parameters, values, graphs, arguments, compile_kwargs)
    reads = set(ancestors([given_records.density])) & set(values)
    return replace(program, weights=weights, has_statistics=not reads)


def _released(model, databases, parameters, carried) -> tuple[TensorVariable, np.ndarray]:
    """Return the statistic behind all releases as one vector, and 1 / scale² of its noise."""
    found = statistics_given_base(model, databases, parameters, carried)
    mechanisms = [release.owner.op.mechanism for release in found]
    if not found or not all(isinstance(m, AdditiveMechanism) for m in mechanisms):
        return pt.zeros(0), np.empty(0)
    parts = [pt.atleast_1d(statistic) for statistic in found.values()]
    scales = [
        np.broadcast_to(m.scale, part.type.shape) for m, part in zip(mechanisms, parts, strict=True)
    ]
    return pt.concatenate(parts), 1 / np.concatenate(scales) ** 2


def size_of(model, parameters: Sequence[Variable]) -> int:
    """Return the number of coordinates of some values."""
    point = model.initial_point(random_seed=0)
    return sum(np.size(point[value.name]) for value in parameters)


def is_smooth(records: Sequence[TensorVariable]) -> bool:
    """Tell whether records that are carried along move smoothly: integers do not."""
    return all(np.dtype(rv.dtype).kind == "f" for rv in records)


def _compiled(model, parameters, values, graphs, arguments, compile_kwargs) -> ParameterProgram:
    point = model.initial_point(random_seed=0)
    above = set(ancestors([graph for group in graphs.values() for graph in group]))
    held = [v for v in model.value_vars if v in above and v not in {*parameters, *values}]
    functions, given = {}, {}
    for name, outputs in graphs.items():
        outputs, q = join_nonshared_inputs(
            point=point, inputs=list(parameters), outputs=outputs, make_inputs_shared=False
        )
        rng, outputs = with_generator(outputs)
        inputs = [q, *held, *arguments[name]]
        if name in ("base", "refresh"):
            # Without leave to change it a copy would be drawn from, and the walk
            # that follows would draw the same numbers again.
            inputs = [In(rng, mutable=True), *inputs]
        functions[name] = compile_graph(
            inputs,
            outputs,
            on_unused_input="ignore",
            accept_inplace=True,
            # The moves call these functions from jitted code, whatever else the user compiles to.
            **((compile_kwargs or {}) | {"mode": "NUMBA"}),
        )
        functions[name].trust_input = True
        given[name] = len(inputs)
    return ParameterProgram(
        parameters=tuple(v.name for v in parameters),
        shapes=tuple(np.shape(point[v.name]) for v in parameters),
        held=tuple(v.name for v in held),
        records=tuple(v.name for v in values),
        functions=functions,
        given=given,
        gradients=frozenset(
            name for name in ("centred", "noncentred") if len(graphs.get(name, ())) == 2
        ),
    )


def _gradient(density: TensorVariable, parameters: Sequence[Variable]) -> list[TensorVariable]:
    """Return the gradient as one vector, or nothing where a term has none."""
    try:
        gradients = pt.grad(density, list(parameters), disconnected_inputs="ignore")
    except (NotImplementedError, NullTypeGradError):
        return []
    return [pt.concatenate([gradient.ravel() for gradient in gradients])]


def jitted_moves(program: ParameterProgram) -> Any:
    """Compile the parameter moves of a program into a single jitted call."""
    jitted = {name: function.vm.jit_fn for name, function in program.functions.items()}
    keys = [CACHED_SRC_FUNCTIONS.get(function.py_func) for function in jitted.values()]
    edition = inspect.getsource(interweave)

    def remember(function, label: str) -> bool:
        # Without a key for each graph two models could not be told apart.
        if None in keys:
            return False
        text = repr((label, edition, sorted(program.gradients), keys))
        CACHED_SRC_FUNCTIONS[function] = sha256(text.encode()).hexdigest()
        return True

    return interweave.compile_moves(jitted, gradients=program.gradients, remember=remember)
