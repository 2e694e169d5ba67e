"""Whether parameters can leave the domain of the laws of their records.

A prior may allow more than a law does: a Normal prior of a probability, a line for a rate. The
model's density is then zero outside, by the law of the records. A move that carries records along
does not look at that law: parameters that leave its domain are moved otherwise, and where that can
be asked at little cost, the density of every such move is zero outside as well.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np

from pymc_privacy._compat import (
    AS_WRITTEN,
    CheckParameterValue,
    Model,
    TensorVariable,
    Variable,
    ancestors,
    compile_graph,
)
from pymc_privacy.model.drawable import drawing_where_possible
from pymc_privacy.model.factors import log_densities
from pymc_privacy.model.start import start_of

_DRAWS = 32
# Conditions on larger tensors are not part of every move: they would cost as much as it does.
_CHEAP = 64
# Draws are stretched by these factors, in coordinates without bounds: what lies beyond has next
# to no prior probability.
_STRETCHES = (1.0, 4.0)


def may_leave_domain(model: Model, records: Sequence[TensorVariable]) -> bool:
    """Tell whether a law of the records does not allow some values of its parameters.

    Looked for at stretched draws from the prior. Whether a matrix is a covariance is not asked.
    """
    conditions = _conditions(model, records)
    if not conditions:
        return False
    holds = compile_graph(model.value_vars, conditions, on_unused_input="ignore", mode=AS_WRITTEN)
    above = set(ancestors(conditions))
    variables = [rv for rv in model.free_RVs if model.rvs_to_values[rv] in above]
    centre = start_of(model)
    try:
        with np.errstate(all="ignore"):
            return not all(
                np.all(value)
                for point in _stretched(model, variables, centre)
                for value in holds(*point.values())
            )
    except (ValueError, ArithmeticError):
        # A law that refuses to be drawn from has parameters that it does not allow.
        return True


def cheap_conditions(model: Model, records: Sequence[TensorVariable]) -> list[Variable]:
    """Return what the densities of records ask of few parameters, by values."""
    return [
        condition
        for condition in _conditions(model, records)
        if all(_is_small(variable) for variable in ancestors([condition]))
    ]


def _is_small(variable: Variable) -> bool:
    shape = getattr(variable.type, "shape", ())
    return None not in shape and math.prod(shape) <= _CHEAP


def _conditions(model: Model, records: Sequence[TensorVariable]) -> list[Variable]:
    """Return what the densities of records ask of random parameters."""
    values = set(model.value_vars)
    found = []
    for density in log_densities(model, records, jacobian=False):
        for variable in ancestors([density]):
            if variable.owner is None or not isinstance(variable.owner.op, CheckParameterValue):
                continue
            for condition in variable.owner.inputs[1:]:
                above = set(ancestors([condition]))
                if above & values and not any(map(_is_linear_algebra, above)):
                    found.append(condition)
    return list(dict.fromkeys(found))


def _is_linear_algebra(variable: Variable) -> bool:
    op = getattr(variable.owner, "op", None)
    return type(getattr(op, "core_op", op)).__module__.startswith("pytensor.tensor.linalg")


def _stretched(
    model: Model, variables: Sequence[TensorVariable], centre: dict[str, np.ndarray]
) -> Iterator[dict[str, np.ndarray]]:
    """Yield points around the start of the model, most of them far out."""
    draw = drawing_where_possible(model, variables)
    for seed in range(_DRAWS):
        drawn = draw(seed)
        for stretch in _STRETCHES:
            yield {
                name: value + stretch * (drawn[name] - value)
                if np.asarray(value).dtype.kind == "f"
                else np.asarray(drawn[name])
                for name, value in centre.items()
            }
