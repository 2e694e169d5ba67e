"""A statistic that was published as it is, or bounded: about neither is anything promised."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

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
        return _never(abs(numeric(release) - numeric(statistic)) > 0)

    def simulate(self, rng: np.random.Generator, statistic: Any) -> np.ndarray:
        """Return the statistic."""
        return integer_statistic(statistic)


@dataclass(frozen=True, kw_only=True)
class Bound(Mechanism):
    """The release is a number that the statistic does not fall below, or does not exceed."""

    side: Literal["at_least", "at_most"]
    discrete: ClassVar[bool] = True

    @property
    def guarantee(self) -> None:
        """Promise nothing."""
        return None

    def log_density(self, release: Any, statistic: Any) -> Any:
        """Return 0 within the bound and minus infinity elsewhere."""
        over = numeric(statistic) - numeric(release)
        return _never(over < 0 if self.side == "at_least" else over > 0)

    def simulate(self, rng: np.random.Generator, statistic: Any) -> np.ndarray:
        """Return the narrowest bound there is."""
        return integer_statistic(statistic)


def _never(outside: Any) -> Any:
    """Return minus infinity where something holds, and else 0, by operators alone."""
    outside = 1.0 * outside
    with np.errstate(divide="ignore"):
        return -outside / (1 - outside)
