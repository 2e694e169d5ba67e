"""Compiled densities of the parameters: given the records, and given what those are made of."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

import numpy as np
import pytensor.tensor as pt

from pymc_privacy._compat import (
    CACHED_SRC_FUNCTIONS,
    NullTypeGradError,
    TensorVariable,
    Variable,
    ancestors,
    compile_graph,
    graph_replace,
    join_nonshared_inputs,
)
from pymc_privacy.algorithms import interweave
from pymc_privacy.graph.calls import shared_values
from pymc_privacy.graph.database import Database, density_given_records, factors_of
from pymc_privacy.graph.generators import given_others, in_value_coordinates, with_generator
from pymc_privacy.graph.locality import Point
from pymc_privacy.reparameterise import Reparameterisation, reparameterisation_of


@dataclass(frozen=True)
class ParameterProgram:
    """Compiled functions of the flattened parameters q and of values that are held fixed.

    ``centred(q, *held, *records)`` is log p(parameters, records, …) without the releases,
    and its gradient if it has one;
    ``base(rng, q, *held, *records)`` returns the u of each record variable;
    ``noncentred(q, *held, *u)`` is log p(parameters, releases, … | u);
    ``forward(q, *held, *u)`` returns the records (value coordinates) that u stands for.
    The last three are None when some record variable has no known form x = T(parameters, u).
    """

    parameters: tuple[str, ...]
    shapes: tuple[tuple[int, ...], ...]
    held: tuple[str, ...]
    records: tuple[str, ...]
    centred: Any
    base: Any = None
    noncentred: Any = None
    forward: Any = None
    has_gradient: bool = True

    @property
    def size(self) -> int:
        """Return the number of coordinates of the parameters."""
        return sum(int(np.prod(shape)) for shape in self.shapes)

    @property
    def interweaves(self) -> bool:
        """Whether parameters can move with the records carried along."""
        return self.noncentred is not None

    def data(self) -> tuple[tuple[np.ndarray, ...], ...]:
        """Return what each function reads besides its arguments: data that can be set anew."""
        functions = [self.centred, self.base, self.noncentred, self.forward]
        given = 1 + len(self.held) + len(self.records)
        counts = [given, given + 1, given, given]
        return tuple(
            shared_values(function, count)
            for function, count in zip(functions, counts, strict=True)
            if function is not None
        )

    def flatten(self, point: Point) -> np.ndarray:
        """Return the parameters of a point as one vector."""
        return np.concatenate([np.ravel(point[name]) for name in self.parameters])

    def unflatten(self, q: np.ndarray) -> Point:
        """Return the parameters of one vector by name."""
        sizes = [int(np.prod(shape)) for shape in self.shapes]
        parts = np.split(q, np.cumsum(sizes)[:-1])
        return {
            name: part.reshape(shape)
            for name, part, shape in zip(self.parameters, parts, self.shapes, strict=True)
        }


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
        return ParameterProgram((), (), (), (), None)
    records = [rv for database in databases for rv in database.records]
    values = [model.rvs_to_values[rv] for rv in records]
    point = model.initial_point(random_seed=0)
    terms = factors_of(model)
    centred = density_given_records(model, databases, parameters)
    graphs = {"centred": [centred, *_gradient(centred, parameters)]}
    known = [(rv, reparameterisation_of(rv)) for rv in records]
    forms = {rv: form for rv, form in known if form is not None}
    u = [pt.tensor(f"u_{rv.name}", dtype="float64", shape=rv.type.shape) for rv in records]
    if records and len(forms) == len(records):
        carried = _carried_records(model, records, u, forms)
        others = model.logp(vars=[term for term in terms if term not in set(records)])
        moved = dict(zip(values, carried, strict=True))
        graphs["noncentred"] = [graph_replace(others, moved, strict=False)]
        graphs["forward"] = carried
        graphs["base"] = _bases(model, records, forms)
    everything = [graph for group in graphs.values() for graph in group]
    above = set(ancestors(everything))
    held = [v for v in model.value_vars if v in above and v not in {*parameters, *values}]

    def compiled(name: str, arguments: Sequence[Variable]) -> Any:
        if name not in graphs:
            return None
        outputs, q = join_nonshared_inputs(
            point=point, inputs=list(parameters), outputs=graphs[name], make_inputs_shared=False
        )
        rng, outputs = with_generator(outputs)
        inputs = [q, *held, *arguments]
        function = compile_graph(
            [rng, *inputs] if name == "base" else inputs,
            outputs,
            on_unused_input="ignore",
            # The moves call these functions from jitted code, whatever else the user compiles to.
            **((compile_kwargs or {}) | {"mode": "NUMBA"}),
        )
        function.trust_input = True
        return function

    return ParameterProgram(
        parameters=tuple(v.name for v in parameters),
        shapes=tuple(np.shape(point[v.name]) for v in parameters),
        held=tuple(v.name for v in held),
        records=tuple(v.name for v in values),
        centred=compiled("centred", values),
        base=compiled("base", values),
        noncentred=compiled("noncentred", u),
        forward=compiled("forward", u),
        has_gradient=len(graphs["centred"]) == 2,
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
    functions = {
        name: getattr(program, name)
        for name in ("centred", "base", "noncentred", "forward")
        if getattr(program, name) is not None
    }
    jitted = {name: function.vm.jit_fn for name, function in functions.items()}
    keys = [CACHED_SRC_FUNCTIONS.get(function.py_func) for function in jitted.values()]
    edition = inspect.getsource(interweave)

    def remember(function, label: str) -> bool:
        # Without a key for each graph two models could not be told apart.
        if None in keys:
            return False
        text = repr((label, edition, program.has_gradient, keys))
        CACHED_SRC_FUNCTIONS[function] = sha256(text.encode()).hexdigest()
        return True

    return interweave.compile_moves(has_gradient=program.has_gradient, remember=remember, **jitted)


Forms = dict[TensorVariable, Reparameterisation]


def _carried_records(
    model, records: Sequence[TensorVariable], u: Sequence[TensorVariable], forms: Forms
) -> list[TensorVariable]:
    """Return each record in value coordinates, as a function of the parameters' values and u."""
    made: dict[TensorVariable, TensorVariable] = {}
    carried = []
    for rv, base in zip(records, u, strict=True):
        natural = forms[rv].forward(base, *rv.owner.op.dist_params(rv.owner)).astype(rv.dtype)
        value = in_value_coordinates(model, rv, natural)
        # A record may be computed from records before it: these are carried as well.
        natural, value = _substituted([natural, value], made)
        made[rv] = rv.type.filter_variable(natural)
        carried.append(value)
    carried = given_others(model, carried, records)
    values = [model.rvs_to_values[rv] for rv in records]
    return [v.type.filter_variable(c) for v, c in zip(values, carried, strict=True)]


def _substituted(graphs, replacements):
    return graph_replace(list(graphs), replacements, strict=False) if replacements else graphs


def _bases(model, records: Sequence[TensorVariable], forms: Forms) -> list[TensorVariable]:
    """Return the u of each record variable, as a function of all values."""
    graphs = []
    for rv in records:
        w = None
        if forms[rv].needs_uniform:
            rng = pt.random.shared_rng(seed=None)
            _, w = pt.random.uniform(size=rv.shape, rng=rng, return_next_rng=True)
        parameters = rv.owner.op.dist_params(rv.owner)
        graphs.append(forms[rv].inverse(rv, w, *parameters).astype("float64"))
    return model.replace_rvs_by_values(graphs)
