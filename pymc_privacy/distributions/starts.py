"""Where a chain starts a number of records that is not known."""

from __future__ import annotations

import pytensor.tensor as pt

from pymc_privacy._compat import Model, TensorVariable
from pymc_privacy.distributions.privatized import Privatized
from pymc_privacy.model.releases import PrivatizedRV
from pymc_privacy.model.sized_records import sizes_of
from pymc_privacy.model.support import support


def starts_of_sizes(model: Model) -> dict[str, TensorVariable]:
    """Return a random start for each size that has a release of its own: noise around that.

    The prior of a size is often flat over many more records than there are, and a chain that
    starts in the middle of it takes long to come down.
    """
    found = {}
    for size, capacity in sizes_of(model).items():
        for release in model.observed_RVs:
            op = release.owner.op
            if isinstance(op, PrivatizedRV) and op.dist_params(release.owner)[0] is size:
                value = model.rvs_to_values[release]
                near = Privatized.dist(pt.as_tensor(value), op.mechanism)
                start = pt.clip(
                    pt.round(near.astype("float64")), max(1, int(support(size)[0])), capacity
                )
                found[size.name] = start.astype(size.dtype)
    return found
