"""Compile the structure of a graph; its numbers are data, and others need no other machine code.

PyTensor writes constants into the code that it generates, and keeps that code under a key to which
they belong: the same model with another prior is another program. Here constants become inputs of
the generated function, after all rewriting, so that nothing else changes; their values are stored
beside it, and given at every call.

What rewriting does to some numbers is part of the structure: to add 0 or to multiply by 1 is left
out, and two numbers that are equal are one. A model that gets or loses such a number is compiled
once more.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha256
from itertools import batched
from typing import Any, NamedTuple

import numpy as np
import pytensor.tensor as pt

from pymc_privacy._compat import (
    NUMBA,
    AdvancedSubtensor,
    Alloc,
    Apply,
    Elemwise,
    FunctionGraph,
    FusedElemwise,
    Mode,
    NumbaLinker,
    Op,
    RandomVariableWithCoreShape,
    ScalarConstant,
    ScalarType,
    TensorConstant,
    Variable,
    compile_numba_function_src,
    numba_njit,
    ps,
    register_funcify_and_cache_key,
)

_OF_NUMBERS = (Elemwise, FusedElemwise, Alloc, AdvancedSubtensor, RandomVariableWithCoreShape)
"""Operations for which any whole number is as good as another."""
# Longer ones Python builds as lists, and calls of so many arguments too.
LONGEST_TUPLE = 24


class StructureLinker(NumbaLinker):
    """PyTensor's linker to machine code, for functions whose numbers are inputs."""

    def fgraph_convert(self, fgraph: FunctionGraph, **kwargs: Any) -> Any:
        """Return the generated function, and its key."""
        order = kwargs.pop("order")
        structure = _without_numbers(fgraph, order)
        self._data = structure.data
        given: dict[str, Any] = {"order": structure.nodes, "storage_map": {}, "input_storage": None}
        graph = FunctionGraph(structure.inputs, structure.outputs, clone=False)
        return super().fgraph_convert(graph, **kwargs | given)

    def create_thunk_inputs(self, storage_map: dict[Variable, list[Any]]) -> list[Any]:
        """Return where the function finds its arguments, and its data behind them."""
        return super().create_thunk_inputs(storage_map) + [[array] for array in self._data]


BY_STRUCTURE = Mode(
    StructureLinker(), NUMBA.provided_optimizer.excluding("local_inline_composite_constants")
)
"""PyTensor's mode for machine code, with numbers as data."""


class Structure(NamedTuple):
    """A graph in order of execution, and data that it reads behind its other inputs."""

    inputs: list[Variable]
    outputs: list[Variable]
    nodes: list[Apply]
    data: list[np.ndarray]


def _without_numbers(fgraph: FunctionGraph, order: Sequence[Apply]) -> Structure:
    """Return a graph whose numbers are data: one vector of them, and arrays."""
    made: dict[Variable, Variable] = {v: v.clone() for v in fgraph.inputs}
    nodes: list[Apply] = []
    numbers: dict[Variable, float] = {}
    arrays: dict[Variable, np.ndarray] = {}
    for node in order:
        op, given = node.op, list(node.inputs)
        if hasattr(op, "with_numbers_as_inputs"):
            op, given = op.with_numbers_as_inputs(given)
        for k, variable in enumerate(given):
            if not _is_number(variable, op):
                given[k] = made.get(variable, variable)
                continue
            given[k] = stand_in = variable.type()
            if variable.type.dtype == "float64" and np.size(variable.data) == 1:
                numbers[stand_in] = variable.data.item()
            else:
                # The user may write into theirs again.
                arrays[stand_in] = np.array(variable.data, order="C")
        nodes.append(Apply(op, given, [output.clone() for output in node.outputs]))
        made.update(zip(node.outputs, nodes[-1].outputs, strict=True))
    vector = pt.dvector()
    first = _unpacked(vector, list(numbers))
    return Structure(
        [*(made[v] for v in fgraph.inputs), vector, *arrays],
        [made.get(v, v) for v in fgraph.outputs],
        first + nodes,
        [np.array(list(numbers.values())), *arrays.values()],
    )


class Unpack(Op):
    """Elements of a vector from a place on, each with its own number of dimensions.

    One of no type but its own, a scalar, has None. No array is copied.
    """

    __props__ = ("first", "dimensions")

    def __init__(self, first: int, dimensions: tuple[int | None, ...]):
        self.first, self.dimensions = first, dimensions

    def make_node(self, vector: Variable) -> Apply:
        """Take the vector."""
        outputs = [
            ps.float64() if ndim is None else pt.tensor(dtype="float64", shape=(1,) * ndim)
            for ndim in self.dimensions
        ]
        return Apply(self, [vector], outputs)

    def perform(self, node: Apply, inputs: Sequence[np.ndarray], output_storage: Any) -> None:
        """Do the same without a compiler."""
        for k, (ndim, storage) in enumerate(zip(self.dimensions, output_storage, strict=True)):
            number = inputs[0][self.first + k]
            storage[0] = number if ndim is None else np.full((1,) * ndim, number)


@register_funcify_and_cache_key(Unpack)
def _compile_unpack(op: Unpack, node: Apply, **kwargs: Any) -> tuple[Any, str]:
    parts = [
        f"v[{k}]" if ndim is None else f"v[{k}:{k + 1}].reshape({(1,) * ndim})"
        for k, ndim in enumerate(op.dimensions, op.first)
    ]
    source = f"def unpack(v):\n    return ({', '.join(parts)},)\n"
    if len(parts) == 1:
        source = f"def unpack(v):\n    return {parts[0]}\n"
    key = sha256(source.encode()).hexdigest()
    return numba_njit(compile_numba_function_src(source, "unpack", {})), key


def _unpacked(vector: Variable, numbers: list[Variable]) -> list[Apply]:
    """Return nodes whose outputs are some variables, from the elements of a vector."""
    nodes, first = [], 0
    for some in batched(numbers, LONGEST_TUPLE):
        dimensions = [None if isinstance(v.type, ScalarType) else v.type.ndim for v in some]
        nodes.append(Apply(Unpack(first, tuple(dimensions)), [vector], list(some)))
        first += len(some)
    return nodes


def _is_number(variable: Variable, op: Op) -> bool:
    """Tell whether an input of an operation is data, and not part of the structure."""
    if not isinstance(variable, TensorConstant | ScalarConstant):
        return False
    kind = np.dtype(variable.type.dtype).kind
    return kind == "f" or (kind in "iu" and isinstance(op, _OF_NUMBERS))


def numbers_taken_out(
    graph: Any, *, alike: bool = False
) -> tuple[list[Variable], list[Variable], list[float]]:
    """Return inputs and outputs of a graph of scalars with inputs for its numbers, and these.

    If ``alike``, two numbers that are equal are one.
    """
    free = graph.unfreeze()
    known: dict[float, Variable] = {}
    made: dict[Variable, Variable] = {}
    inputs, numbers = list(free.inputs), []
    for node in free.toposort():
        given = []
        for variable in node.inputs:
            if isinstance(variable, ScalarConstant) and _is_real(variable, node):
                number = float(variable.data)
                if not alike or number not in known:
                    known[number] = ps.float64()
                    inputs.append(known[number])
                    numbers.append(number)
                given.append(known[number])
            else:
                given.append(made.get(variable, variable))
        made.update(zip(node.outputs, node.op.make_node(*given).outputs, strict=True))
    return inputs, [made.get(v, v) for v in free.outputs], numbers


def _is_real(constant: ScalarConstant, node: Apply) -> bool:
    """Tell whether a constant is computed with in double precision, whatever its own type."""
    if isinstance(node.op, ps.basic.Pow) or constant.type.dtype == "bool":
        return False
    others = [v.type.dtype for v in node.inputs if v is not constant]
    return constant.type.dtype == "float64" or "float64" in others
