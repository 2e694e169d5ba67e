"""The plan of a composition: how epsilon is divided, and what each part of it will publish.

Like every plan it is made of public arguments alone. A threshold that is chosen is chosen by noisy
counts, so that the plan of what is published with it follows from what was published before.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from typing import Any

from pymc_privacy.accounting import PureDP
from pymc_privacy.arguments import flag, instance, probability, real
from pymc_privacy.errors import ReleaseError
from pymc_privacy.sanitize.calibrate import exactly
from pymc_privacy.sanitize.plan import ReleasePlan, checked_name, plan_moments
from pymc_privacy.sanitize.shares import (
    LogShares,
    ShareBins,
    Shares,
    checked_parts,
    checked_threshold,
    checked_thresholds,
    select_threshold,
)

MEMBERSHIP = (
    "Membership in the groups is public: who belongs to which was fixed without looking at the "
    "shares, and neighbours have the same; stated by the curator, and not checked."
)


@dataclass(frozen=True)
class Budget:
    """How epsilon is divided among what is published; the parts add up to it at most, exactly."""

    counts: float
    logs: float
    means: float


@dataclass(frozen=True)
class CompositionPlan:
    """How sums over shares will be published, and what that promises; it has seen no records.

    Parameters
    ----------
    name : str
    parts : int
        How many shares a record has.
    guarantee : PureDP
        Of all that is published together.
    threshold : float, optional
        Below which shares are censored; or
    thresholds : tuple of float
        among which one is chosen by noisy counts.
    censored : float
        The share of records that may be censored, where a threshold is chosen.
    selection : float
        The share of epsilon that choosing takes.
    means : float
        The share of epsilon that sums of the shares themselves take, first.
    grouped : bool
        Whether records are in groups, to which they belong publicly.

    Examples
    --------
    >>> from pymc_privacy import PureDP
    >>> promise = PureDP(0.5, neighbours="replace_one")
    >>> CompositionPlan("time", 3, promise, thresholds=(0.01, 0.1)).budget
    Budget(counts=0.125, logs=0.375, means=0.0)
    """

    name: str
    parts: int
    guarantee: PureDP
    threshold: float | None = None
    thresholds: tuple[float, ...] | None = None
    censored: float = 0.01
    selection: float = 0.25
    means: float = 0.0
    grouped: bool = False

    def __post_init__(self) -> None:
        checked_name(self.name)
        checked_parts(self.parts, ReleaseError)
        instance("guarantee", self.guarantee, PureDP, "a PureDP", error=ReleaseError)
        numbers: dict[str, Any] = {
            "means": real("means", self.means, least=0, most=1, error=ReleaseError),
            "censored": probability("censored", self.censored, error=ReleaseError),
            "selection": probability("selection", self.selection, error=ReleaseError),
            "grouped": flag("grouped", self.grouped, error=ReleaseError),
        }
        if self.threshold is not None:
            numbers["threshold"] = checked_threshold(self.threshold, ReleaseError)
        if self.thresholds is not None:
            numbers["thresholds"] = checked_thresholds(self.thresholds, ReleaseError)
        for key, value in numbers.items():
            object.__setattr__(self, key, value)
        self._check_thresholds()
        # Whatever can be refused of a part is refused before there are records.
        for part in self._possible:
            part.calibration  # noqa: B018

    def _check_thresholds(self) -> None:
        both = {"threshold=": self.threshold, "thresholds=": self.thresholds}
        given = [key for key, value in both.items() if value is not None]
        wanted = "neither" if self.means == 1 else "one"
        if len(given) != (0 if self.means == 1 else 1):
            raise ReleaseError(
                "One of threshold= (public, chosen before) and thresholds= (one of which is chosen "
                "privately) must be given for logarithms of shares, and neither where means=1 "
                f"spends all of epsilon on the shares themselves; {wanted} is wanted here, got "
                f"{' and '.join(given) or 'none'}."
            )

    @property
    def budget(self) -> Budget:
        """Return the epsilon of each part, compared as decimals."""
        epsilon = exactly(self.guarantee.epsilon)
        means = at_most(epsilon * exactly(self.means))
        rest = epsilon - exactly(means)
        counts = at_most(rest * exactly(self.selection)) if self.thresholds else 0.0
        logs = 0.0 if self.means == 1 else at_most(rest - exactly(counts))
        return Budget(counts=counts, logs=logs, means=means)

    @cached_property
    def counts(self) -> ReleasePlan | None:
        """Return the plan of the counts that a threshold is chosen by, if one is."""
        if not self.thresholds:
            return None
        total = ShareBins(self.parts, self.thresholds, self._neighbours)
        return self._part(total, self.budget.counts, "counts")

    def logs(self, threshold: float) -> ReleasePlan:
        """Return the plan of the sums of logarithms with a threshold."""
        total = LogShares(self.parts, threshold, self._neighbours)
        return self._part(total, self.budget.logs, "logs")

    @cached_property
    def shares(self) -> ReleasePlan | None:
        """Return the plan of the sums of shares, if they are published."""
        if not self.means:
            return None
        total = Shares(self.parts, self._neighbours)
        return self._part(total, self.budget.means, "shares")

    def chosen(self, counts: Any) -> float | None:
        """Return the threshold, by noisy counts where it was not fixed; None without logarithms."""
        if not self.thresholds:
            return self.threshold
        return select_threshold(counts, self.thresholds, censored=self.censored)

    @property
    def assumptions(self) -> tuple[str, ...]:
        """Return what the guarantee rests on and nobody has checked."""
        return (MEMBERSHIP,) if self.grouped else ()

    @property
    def _neighbours(self) -> Any:
        return self.guarantee.neighbours

    @property
    def _possible(self) -> list[ReleasePlan]:
        """Return the plans of all parts, for all thresholds."""
        among = self.thresholds or ((self.threshold,) if self.threshold else ())
        parts = [self.counts, self.shares, *(self.logs(threshold) for threshold in among)]
        return [part for part in parts if part is not None]

    def _part(self, total: Any, epsilon: float, what: str) -> ReleasePlan:
        if not epsilon > 0:
            raise ReleaseError(
                "Every part of a composition must have an epsilon > 0 that floats hold; got none "
                f"for the {what} of epsilon {self.guarantee.epsilon!r}."
            )
        guarantee = replace(self.guarantee, epsilon=epsilon)
        return plan_moments(total, guarantee, f"{self.name}: {what}", self.assumptions)


def at_most(wanted: Fraction) -> float:
    """Return the float nearest to a fraction whose decimals are not above it.

    Examples
    --------
    >>> at_most(Fraction(3, 40)), at_most(Fraction(1, 3)) <= 1 / 3
    (0.075, True)
    """
    number = float(wanted)
    while exactly(number) > wanted:
        number = math.nextafter(number, 0.0)
    return number
