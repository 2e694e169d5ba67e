"""A statistic that was published as it is: an invariant, about which nothing is promised."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from pymc_privacy.mechanisms.base import Mechanism, integer_statistic
from pymc_privacy.mechanisms.engines import numeric


@dataclass(frozen=True, kw_only=True)
class Exact(Mechanism):
    """The release is the statistic."""

    discrete: ClassVar[bool] = True

    @property
    def guarantee(self) -> None:
        """Promise nothing."""
        return None

    def log_density(self, release: Any, statistic: Any) -> Any:
        """Return 0 where they agree and minus infinity elsewhere, by operators alone."""
        differs = 1.0 * (abs(numeric(release) - numeric(statistic)) > 0)
        with np.errstate(divide="ignore"):
            return -differs / (1 - differs)

    def simulate(self, rng: np.random.Generator, statistic: Any) -> np.ndarray:
        """Return the statistic."""
        return integer_statistic(statistic)
