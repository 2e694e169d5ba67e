"""Which parameters of a model can move together with their records."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from pymc_privacy._compat import TensorVariable, ancestors
from pymc_privacy.model.start import start_of

MOST_PARAMETERS = 200


def movable_parameters(model, records: Sequence[TensorVariable]) -> list[TensorVariable]:
    """Return the continuous parameters of records, or nothing when there are too many.

    All moves share one covariance, which many draws are needed to learn.
    """
    above = set(ancestors(records))
    found = [
        rv
        for rv in model.free_RVs
        if rv in above and rv not in set(records) and np.dtype(rv.dtype).kind == "f"
    ]
    point = start_of(model)
    size = sum(point[model.rvs_to_values[rv].name].size for rv in found)
    return found if size <= MOST_PARAMETERS else []
