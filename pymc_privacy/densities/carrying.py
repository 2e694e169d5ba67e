"""Record variables as functions of the parameters and of base variates, and back."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pytensor.tensor as pt

from pymc_privacy._compat import (
    Model,
    TensorVariable,
    ancestors,
    graph_replace,
    law_parameters,
)
from pymc_privacy.functions.generators import given_others, in_value_coordinates
from pymc_privacy.reparameterise import Reparameterisation, reparameterisation_of


@dataclass(frozen=True)
class CarriedRecords:
    """Each record variable as x = T(parameters, u), where u is given by columns."""

    columns: list[TensorVariable]
    """What holds u: vectors over the records, which a loop reads fastest."""
    base: list[TensorVariable]
    """The same columns as functions of parameters and records, by values."""
    natural: dict[TensorVariable, TensorVariable]
    """Each record variable as a function of parameters' values and u."""
    values: list[TensorVariable]
    """The same in the coordinates of the value variables."""
    by_value: dict[TensorVariable, TensorVariable]
    """The same by value variable."""
    fresh: list[TensorVariable]
    """The columns of records that are drawn afresh, as functions of the parameters' values."""
    base_log_weights: list[TensorVariable]
    """Log densities of u that depend on parameters, with records on the first axis."""


def carry_records(model: Model, records: Sequence[TensorVariable]) -> CarriedRecords | None:
    """Write all records by base variates, or return None where some cannot be."""
    known = [reparameterisation_of(rv) for rv in records]
    forms = [form for form in known if form is not None]
    if not records or len(forms) < len(records):
        return None
    columns, base, fresh = [], [], []
    natural: dict[TensorVariable, TensorVariable] = {}
    between = _between(model, records)
    carried: list[TensorVariable] = []
    weights: list[TensorVariable] = []
    for rv, form in zip(records, forms, strict=True):
        u, parts = _split(rv, form)
        columns += parts
        ours = _base_columns(rv, form)
        base += ours
        fresh += ours if form.draw is None or _has_children(rv, records) else _drawn(rv, form)
        parameters = law_parameters(rv)
        made = form.forward(u, *parameters).astype(rv.dtype)
        value = in_value_coordinates(model, rv, made)
        # A record may be computed from records before it: these are carried as well.
        graphs = [made, value]
        if form.log_weight is not None:
            graphs.append(form.log_weight(u, *parameters))
        replaced = natural | between
        made, value, *weight = graph_replace(graphs, replaced, strict=False) if replaced else graphs
        weights += weight
        natural[rv] = rv.type.filter_variable(made)
        carried.append(value)
    graphs = given_others(model, [*natural.values(), *carried, *weights], records)
    values = [model.rvs_to_values[rv] for rv in records]
    carried = [
        v.type.filter_variable(c) for v, c in zip(values, graphs[len(records) :], strict=False)
    ]
    return CarriedRecords(
        columns=columns,
        base=model.replace_rvs_by_values(base),
        natural=dict(zip(records, graphs, strict=False)),
        values=carried,
        by_value=dict(zip(values, carried, strict=True)),
        fresh=given_others(model, fresh, records),
        base_log_weights=graphs[2 * len(records) :],
    )


def _between(
    model: Model, records: Sequence[TensorVariable]
) -> dict[TensorVariable, TensorVariable]:
    """Return the parameters that are drawn given records, above other records, by their values.

    Such a parameter is held while the records that it was drawn from are carried along.
    """
    above, drawn = set(ancestors(records)) - set(records), set(records)
    found = [rv for rv in model.free_RVs if rv in above and drawn & set(ancestors([rv]))]
    values = model.replace_rvs_by_values(found)
    return {rv: rv.type.filter_variable(v) for rv, v in zip(found, values, strict=True)}


def _split(
    rv: TensorVariable, form: Reparameterisation
) -> tuple[TensorVariable, list[TensorVariable]]:
    """Return u in its own shape, and the variables it is put together from."""
    shape, widths = _base_shape(rv, form), _widths(rv, form)
    if widths is None:
        u = pt.tensor(f"u_{rv.name}", dtype="float64", shape=shape)
        return u, [u]
    columns: list[TensorVariable] = []

    def part(widths: tuple[int, ...]) -> TensorVariable:
        if widths:
            return pt.stack([part(widths[1:]) for _ in range(widths[0])], axis=1)
        columns.append(pt.tensor(f"u_{rv.name}_{len(columns)}", dtype="float64", shape=shape[:1]))
        return columns[-1]

    return part(widths), columns


def _base_shape(rv: TensorVariable, form: Reparameterisation) -> tuple[int | None, ...]:
    return rv.type.shape if form.base_width is None else (*rv.type.shape, form.base_width)


def _widths(rv: TensorVariable, form: Reparameterisation) -> tuple[int, ...] | None:
    """Return the dimensions of u behind the records, if all are known."""
    widths = _base_shape(rv, form)[1:]
    known = tuple(width for width in widths if width is not None)
    return known if len(known) == len(widths) else None


def _has_children(rv: TensorVariable, records: Sequence[TensorVariable]) -> bool:
    """Tell whether other records are drawn given these."""
    return any(rv in set(ancestors([other])) for other in records if other is not rv)


def _drawn(rv: TensorVariable, form: Reparameterisation) -> list[TensorVariable]:
    """Return a draw of u, in the columns that `_split` makes."""
    assert form.draw is not None
    # Of the records only the shape is used: without a draw of them in the graph.
    like = pt.zeros(tuple(rv.shape) if None in rv.type.shape else rv.type.shape)
    return _in_columns(rv, form, form.draw(like, *law_parameters(rv)).astype("float64"))


def _base_columns(rv: TensorVariable, form: Reparameterisation) -> list[TensorVariable]:
    """Return u given the record, in the columns that `_split` makes."""
    w = None
    if form.needs_uniform:
        rng = pt.random.shared_rng(seed=None)
        extra = () if form.base_width is None else (form.base_width,)
        _, w = pt.random.uniform(size=(*rv.shape, *extra), rng=rng, return_next_rng=True)
    return _in_columns(rv, form, form.inverse(rv, w, *law_parameters(rv)).astype("float64"))


def _in_columns(
    rv: TensorVariable, form: Reparameterisation, u: TensorVariable
) -> list[TensorVariable]:
    widths = _widths(rv, form)
    if widths is None:
        return [u]
    return [u[(slice(None), *index)] for index in np.ndindex(*widths)]
