"""A model in which each database has just as many rows as there are records.

A model holds records of an unknown number in arrays of a fixed capacity, because PyMC keeps
the shapes of a point. What a step method computes should not cost more for rows that do not
exist: here the arrays have as many rows as the size says, and nothing is masked.
"""

from __future__ import annotations

from collections.abc import Mapping

from pymc_privacy._compat import Model, TensorVariable, change_dist_size
from pymc_privacy.errors import RecordError
from pymc_privacy.model.marks import Record, mark
from pymc_privacy.model.other_lengths import with_rows_of_draws
from pymc_privacy.model.releases import contributions_of, is_release
from pymc_privacy.model.sized_records import ExistingRows, is_sized, law_of, size_of


def with_exact_length(model: Model) -> Model:
    """Return the model with arrays of records that are as long as their size.

    Variables keep their names, and all but the records keep their value variables. Data are
    shared, and can still be set.
    """
    import pymc as pm

    twin = pm.Model(model=None)
    new: dict[TensorVariable, TensorVariable] = {}
    for rv in model.basic_RVs:
        variable = _rebuilt(rv, new)
        variable.name = rv.name
        new[rv] = variable
        value = model.rvs_to_values[rv]
        transform = model.rvs_to_transforms[rv]
        if rv in model.free_RVs:
            twin.free_RVs.append(variable)
            twin.set_initval(variable, initval=None)
        else:
            twin.observed_RVs.append(variable)
        twin.create_value_var(
            variable,
            transform=transform,
            default_transform=None,
            value_var=None if is_sized(rv) else value,
        )
        twin.add_named_variable(variable)
        if is_sized(rv):
            mark(variable, Record, "record_sweep")
    for potential in model.potentials:
        variable = _replaced(potential, new)
        variable.name = potential.name
        twin.potentials.append(variable)
        twin.add_named_variable(variable)
    return twin


def _rebuilt(rv: TensorVariable, new: Mapping[TensorVariable, TensorVariable]) -> TensorVariable:
    """Return a random variable as a function of the new ones before it."""
    if is_sized(rv):
        law, size = law_of(rv), new[size_of(rv)]
        batch = law.ndim - law.owner.op.ndim_supp
        rows = _replaced(law, new)
        return change_dist_size(rows, (size, *(rows.shape[k] for k in range(1, batch))))
    if is_release(rv):
        contributions = contributions_of(rv)
        if contributions.owner is not None and isinstance(contributions.owner.op, ExistingRows):
            existing = _replaced(contributions.owner.inputs[0], new)
            return _replaced(rv, {**new, contributions: existing})
    return _replaced(rv, new)


def _replaced(
    graph: TensorVariable, new: Mapping[TensorVariable, TensorVariable]
) -> TensorVariable:
    """Return a graph of the new variables, whose lengths may differ from the old ones'."""
    try:
        [rebuilt] = with_rows_of_draws([graph], new)
        return rebuilt
    except (TypeError, ValueError) as error:
        raise RecordError(
            f"{graph.name or 'A contribution'!r} must be computed from its records for any number "
            "of them; it was written for just as many as the capacity. Use the shape of the "
            f"records instead of numbers. ({error})"
        ) from error
