"""Where PyMC starts a model."""

from __future__ import annotations

import numpy as np

from pymc_privacy._compat import Model
from pymc_privacy.model.kept import KeptPerModel, data_behind

_starts: KeptPerModel[dict[str, np.ndarray]] = KeptPerModel()


def start_of(model: Model) -> dict[str, np.ndarray]:
    """Return where PyMC starts a model, without jitter.

    PyMC compiles a function for it at every call. Here that is done again only where the model
    has other variables or other data.
    """
    given = model.rvs_to_initial_values.values()
    data = data_behind([*model.basic_RVs, *given])
    parts = [*model.basic_RVs, *model.value_vars, *given, *data]
    start = _starts.get(model, parts, lambda: model.initial_point(random_seed=0))
    return {name: np.array(value) for name, value in start.items()}
