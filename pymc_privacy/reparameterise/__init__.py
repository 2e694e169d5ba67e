"""Non-centred forms of record distributions, by kind of law."""

from pymc_privacy.reparameterise import (  # noqa: F401  (importing a family registers it)
    continuous,
    discrete,
    gamma,
    mixture,
    multivariate,
)
from pymc_privacy.reparameterise.base import (
    Reparameterisation,
    reparameterisation_of,
    reparameterise,
)

__all__ = ["Reparameterisation", "reparameterisation_of", "reparameterise"]
