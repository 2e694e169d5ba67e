"""Non-centred forms of record distributions, one family per file."""

from pymc_privacy.reparameterise import (  # noqa: F401  (importing a family registers it)
    counts,
    discrete,
    fixed_shape,
    intervals,
    location_scale,
    mixtures,
    multivariate,
    powers,
    shapes,
    students,
    two_sided,
)
from pymc_privacy.reparameterise.base import (
    Reparameterisation,
    reparameterisation_of,
    reparameterise,
)
from pymc_privacy.reparameterise.movable import movable_parameters

__all__ = ["Reparameterisation", "movable_parameters", "reparameterisation_of", "reparameterise"]
