"""Random graphs as functions of one generator, and of the values of all other variables."""

from __future__ import annotations

from collections.abc import Sequence

import pytensor.tensor as pt

from pymc_privacy._compat import (
    FunctionGraph,
    Model,
    MvNormalRV,
    RandomGeneratorType,
    SharedVariable,
    TensorVariable,
    Variable,
    collect_default_updates,
    random_generator_type,
    replace_rvs_by_values,
)
from pymc_privacy.functions.native_draws import write_out_draws
from pymc_privacy.functions.small_products import write_out_products


def in_value_coordinates(
    model: Model, variable: TensorVariable, value: TensorVariable | None = None
) -> TensorVariable:
    """Return the variable, or a value of it, in the coordinates of its value variable."""
    value = variable if value is None else value
    transform = model.rvs_to_transforms[variable]
    return value if transform is None else transform.forward(value, *variable.owner.inputs)


def given_others(
    model: Model, graphs: Sequence[TensorVariable], drawn: Sequence[TensorVariable]
) -> list[TensorVariable]:
    """Replace every random variable but those drawn by its value: a parameter or a datum."""
    others = [rv for rv in model.basic_RVs if rv not in set(drawn)]
    return replace_rvs_by_values(
        list(graphs),
        rvs_to_values={rv: model.rvs_to_values[rv] for rv in others},
        rvs_to_transforms={rv: model.rvs_to_transforms[rv] for rv in others},
    )


def with_generator(
    outputs: Sequence[TensorVariable], *, write_out: bool = True
) -> tuple[Variable, list[TensorVariable]]:
    """Thread one generator, an input, through all random variables of a graph.

    With ``write_out``, draws are written as functions of simpler draws, and products of small
    matrices as sums, where that is faster.

    Returns
    -------
    rng, outputs
        The generator variable and the outputs as functions of it. Each random variable
        consumes the state that its predecessor left.
    """
    graph = FunctionGraph(outputs=list(outputs), clone=True, copy_inputs=False)
    if write_out:
        _factorise_once(graph)
        write_out_draws(graph)
        write_out_products(graph)
    rng = random_generator_type("rng")
    state: Variable = rng
    for shared in _generators_in_order(graph):
        following = collect_default_updates(graph.outputs)[shared]
        graph.replace(shared, state, import_missing=True)
        state = following
    return rng, list(graph.outputs)


def _generators_in_order(graph: FunctionGraph) -> list[SharedVariable]:
    inputs = (variable for node in graph.toposort() for variable in node.inputs)
    generators = dict.fromkeys(
        v
        for v in inputs
        if isinstance(v, SharedVariable) and isinstance(v.type, RandomGeneratorType)
    )
    return list(generators)


def _factorise_once(graph: FunctionGraph) -> None:
    """Draw Normal rows that share a covariance as mu + z Lᵀ, with L computed once."""
    for node in list(graph.toposort()):
        if isinstance(node.op, MvNormalRV):
            rng, size, mu, covariance = node.inputs
            shape = node.op._infer_shape(size, (mu, covariance))
            while covariance.ndim > 2 and covariance.type.broadcastable[0]:
                covariance = covariance[0]
            if covariance.ndim == 2:
                state, draw = node.outputs
                following, rows = _normal_rows(rng, shape, pt.linalg.cholesky(covariance))
                fresh = draw.type.filter_variable(mu + rows)
                graph.replace_all([(draw, fresh), (state, following)], import_missing=True)


def _normal_rows(
    rng: Variable, shape: Sequence[Variable], factor: TensorVariable
) -> tuple[Variable, TensorVariable]:
    following, z = pt.random.normal(size=shape, rng=rng, return_next_rng=True)
    width = factor.type.shape[-1]
    if width is None or width > 8:
        return following, z @ factor.T
    # For few coordinates, multiply-adds beat a call into BLAS.
    return following, pt.stack([(z * factor[j]).sum(axis=-1) for j in range(width)], axis=-1)
