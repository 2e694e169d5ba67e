"""A copy of a model whose observed values can be set anew, without another compilation."""

from __future__ import annotations

import numpy as np

from pymc_privacy._compat import Model, SharedVariable, clone_model, shared

Settable = dict[str, SharedVariable]


def with_settable_data(model: Model) -> tuple[Model, Settable]:
    """Return a copy of a model, and what holds the value of each observed variable by name.

    Whatever is compiled from the copy reads these values when it is called. Other data of the
    model are those of the moment.

    Examples
    --------
    >>> import pymc as pm
    >>> with pm.Model() as model:
    ...     y = pm.Normal("y", 0, 1, observed=2.0)
    >>> twin, data = with_settable_data(model)
    >>> data["y"].set_value(3.0)
    >>> float(twin.rvs_to_values[twin["y"]].eval()), float(model.rvs_to_values[y].eval())
    (3.0, 2.0)
    """
    given = dict(model.rvs_to_initial_values)
    try:
        # A model with initial values cannot be copied; a copy has no need of them.
        model.rvs_to_initial_values.update(dict.fromkeys(given))
        twin = clone_model(model)
    finally:
        model.rvs_to_initial_values.update(given)
    data: Settable = {}
    for rv in twin.observed_RVs:
        value = twin.rvs_to_values[rv]
        now = np.asarray(value.eval(mode="FAST_COMPILE"))
        data[rv.name] = holder = shared(now, name=f"{rv.name}_observed", shape=now.shape)
        twin.values_to_rvs.pop(value, None)
        twin.rvs_to_values[rv] = holder
        twin.values_to_rvs[holder] = rv
    return twin, data
