"""What can be said of everything that is published by a plan: promise, label, and a statement."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

from pymc_privacy.accounting import Guarantee

NOT_PROTECTED = (
    "timing, memory, logs, error messages and intermediate files",
    "bounds, models or releases that were chosen after looking at the records",
)
SIMULATED = (
    "SIMULATION ONLY. This noise comes from a seedable generator: whoever knows the seed can take "
    "it off again. The output is not differentially private. Do not publish it. Use release()."
)


class Publication(ABC):
    """Something published by a plan, of which name, promise and label follow."""

    plan: Any
    """Has a name, a guarantee and assumptions, and has seen no records."""

    @property
    @abstractmethod
    def simulated(self) -> bool:
        """Return whether the noise was seedable, so that this must not be published."""

    @abstractmethod
    def _sentences(self) -> list[str]:
        """Say what was published, and what is promised."""

    @property
    def name(self) -> str:
        """Return what was released."""
        return str(self.plan.name)

    @property
    def guarantee(self) -> Guarantee:
        """Return what is promised to each person."""
        found: Guarantee = self.plan.guarantee
        return found

    @property
    def assumptions(self) -> tuple[str, ...]:
        """Return what the guarantee rests on and nobody has checked."""
        return tuple(self.plan.assumptions)

    @property
    def label(self) -> str:
        """Return "proven", "conditional" (something was only stated) or "nominal" (simulated)."""
        if self.simulated:
            return "nominal"
        return "conditional" if self.assumptions else "proven"

    def statement(self) -> str:
        """Say in sentences what was published, what is promised, and what is not."""
        lines = [*self._sentences(), f"Not protected: {'; '.join(NOT_PROTECTED)}."]
        return "\n".join([SIMULATED, *lines] if self.simulated else lines)

    def __str__(self) -> str:
        return self.statement()
