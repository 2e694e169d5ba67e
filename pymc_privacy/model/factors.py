"""The factors of a model and their log densities, asked of PyMC once, in double precision.

PyMC derives all densities of a model at every call. And some of its constants it computes in
single precision: by `pt.sqrt(2.0)`, the log density of a truncated normal z standard deviations
from its bound is off by 1.7e-8 z², and no longer that of its draws.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

import pytensor.tensor as pt

from pymc_privacy._compat import (
    Apply,
    CAReduce,
    Constant,
    Elemwise,
    Model,
    TensorVariable,
    Variable,
    ancestors,
    config,
    toposort,
    variadic_add,
)
from pymc_privacy.model.constants import hold_fast
from pymc_privacy.model.kept import KeptPerModel

Densities = dict[TensorVariable, TensorVariable]

_SINGLE = ("float16", "float32")

_kept: dict[bool, KeptPerModel[Densities]] = {True: KeptPerModel(), False: KeptPerModel()}


def factors_of(model: Model) -> list[TensorVariable]:
    """Return everything that has a log density: random variables and potentials."""
    return [*model.basic_RVs, *model.potentials]


def log_densities(
    model: Model, factors: Sequence[TensorVariable], *, jacobian: bool = True
) -> list[TensorVariable]:
    """Return the log density of each factor, by values; graphs that others may hold too."""
    if not factors:
        return []
    everything = factors_of(model)
    parts = [*everything, *model.rvs_to_values.values(), *model.rvs_to_transforms.values()]

    def derive() -> Densities:
        hold_fast(everything)
        terms = model.logp(vars=everything, sum=False, jacobian=jacobian)
        # And what PyMC has found in functions of the user's.
        hold_fast(terms)
        return dict(zip(everything, in_double(terms, everything), strict=True))

    known = _kept[jacobian].get(model, parts, derive)
    return [known[factor] for factor in factors]


def densities_that_see(
    model: Model, value: TensorVariable, *, without: Collection[TensorVariable]
) -> Densities:
    """Return the log densities that depend on a value variable, but for those of some factors.

    By values: where a transform depends on it, it moves another variable, and with that whatever
    depends on it.
    """
    others = [factor for factor in factors_of(model) if factor not in without]
    terms = zip(others, log_densities(model, others), strict=True)
    return {factor: term for factor, term in terms if value in set(ancestors([term]))}


def joint_log_density(model: Model, factors: Sequence[TensorVariable]) -> TensorVariable:
    """Return the log density of some factors together, by values."""
    if not factors:
        return pt.constant(0.0)
    terms = log_densities(model, factors)
    return variadic_add(*(pt.as_tensor(t, allow_xtensor_conversion=True).sum() for t in terms))


def by_row(term: TensorVariable) -> TensorVariable:
    """Return what a density says of each record, one number."""
    return term if term.ndim == 1 else term.reshape((term.shape[0], -1)).sum(axis=1)


def in_double(graphs: Sequence[TensorVariable], written: Sequence[Variable]) -> list:
    """Compute what is constant in graphs in double precision, but for what the user wrote.

    Draws of the model are computed from the latter too, and must have the same constants.

    Examples
    --------
    >>> import pytensor.tensor as pt
    >>> root = pt.sqrt(2.0)
    >>> print(root.dtype, in_double([root], [])[0].dtype, in_double([root], [root])[0].dtype)
    float32 float64 float32
    """
    if config.floatX != "float64":
        return list(graphs)
    own = {_signature(v) for v in ancestors(written) if _is_single(v)}
    wide: dict[Variable, Variable] = {}
    for node in toposort(graphs):
        first = node.outputs[0]
        if _is_single(first) and _signature(first) not in own:
            values = [pt.constant(value.data, dtype="float64") for value in node.inputs]
            wide[first] = node.op(*values)
        elif any(value in wide for value in node.inputs):
            rebuilt = _rebuilt(node, [wide.get(value, value) for value in node.inputs])
            wide.update(zip(node.outputs, rebuilt, strict=True))
    return [wide.get(graph, graph) for graph in graphs]


def _rebuilt(node: Apply, inputs: list[Variable]) -> list[Variable]:
    """Apply an operation to inputs of other types, from which follows that of its outputs."""
    if not (isinstance(node.op, CAReduce) and node.outputs[0].type.dtype in _SINGLE):
        return node.clone_with_new_inputs(inputs, strict=False).outputs
    # The sum over the last axis of a number, which PyMC asks for where there is no axis, is taken
    # out by PyTensor as long as the type of the number is that of the sum.
    if inputs[0].type.ndim == 0:
        return inputs
    # A sum has a type of its own.
    return [node.op.clone(dtype=None, acc_dtype=None)(*inputs)]


def _is_single(variable: Variable) -> bool:
    """Return whether a variable is computed from constants in less than double precision."""
    node = variable.owner
    return (
        node is not None
        and isinstance(node.op, Elemwise)
        and variable.type.dtype in _SINGLE
        and all(isinstance(value, Constant) for value in node.inputs)
    )


def _signature(variable: Variable) -> tuple:
    return variable.owner.op, *(value.signature() for value in variable.owner.inputs)
