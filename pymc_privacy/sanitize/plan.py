"""The plan of a release: everything but its numbers, made before anybody looks at the records.

Bounds, lattice, scale, sensitivity, charge and card come from public arguments alone; no function
here that makes a plan takes records. They enter one function, `ReleasePlan.totals`, and leave it
as integers. So whatever a reader sees of the plan is the same for all neighbours, and the numbers
themselves go through the noise.
"""

from __future__ import annotations

import datetime
import re
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

from pymc_privacy.accounting import Guarantee, PureDP
from pymc_privacy.arguments import flag, instance, integer, refusal, sentences, shown, title
from pymc_privacy.errors import ReleaseError
from pymc_privacy.mechanisms import (
    AdditiveMechanism,
    DiscreteGaussian,
    DiscreteLaplace,
    Gaussian,
    Laplace,
)
from pymc_privacy.sanitize.calibrate import (
    Calibration,
    calibrate,
    checked_sensitivity,
    granularity_for,
    level_of,
    promised,
)
from pymc_privacy.sanitize.known import known_total
from pymc_privacy.sanitize.lattice import Lattice, checked_bounds, power_of_two
from pymc_privacy.sanitize.ledger import Ledger
from pymc_privacy.sanitize.moments import KnownTotal


class Totals(NamedTuple):
    """What is left of the records: integers, confidential until noise is added."""

    integers: tuple[int, ...]
    size: int


@dataclass(frozen=True)
class ReleasePlan:
    """How a total will be published, and what that promises; it has not seen the records.

    Parameters
    ----------
    name : str
    lattice : Lattice
        Bounds of the contributions, and the granularity.
    guarantee : Guarantee
        What is promised, and what the ledger is charged.
    whole : bool
        Whether contributions were declared to be integers.
    stated : float, optional
        A sensitivity that the curator states.
    moments : str, optional
        The name of what is contributed, as of moments or of shares, where its sensitivity is
        known; other contributions are refused.
    words : tuple of str
        What else is taken on trust.

    Examples
    --------
    >>> from pymc_privacy.sanitize import plan_release
    >>> plan = plan_release(bounds=(0, 1), integers=True, epsilon=0.5, neighbours="replace_one")
    >>> plan.calibration.scale, plan.label
    (2.0, 'proven')
    """

    name: str
    lattice: Lattice
    guarantee: Guarantee
    whole: bool = False
    stated: float | None = None
    moments: str | None = None
    words: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        checked_name(self.name)
        instance("lattice", self.lattice, Lattice, "a Lattice", error=ReleaseError)
        instance("guarantee", self.guarantee, Guarantee, "a guarantee", error=ReleaseError)
        sentences("words", self.words, error=ReleaseError)
        whole = flag("whole", self.whole, meaning="contributions are whole", error=ReleaseError)
        object.__setattr__(self, "whole", whole)
        level_of(self.guarantee)
        if self.stated is not None:
            object.__setattr__(self, "stated", checked_sensitivity(self.stated))
        if self.guarantee.neighbours is None:
            raise ReleaseError("A release must state its neighbours; got None.")
        if self.whole and self.lattice.granularity != 1:
            raise ReleaseError(
                "The granularity of integers must be 1; got "
                f"{self.lattice.granularity!r} with integers=True. Leave one of the two out."
            )
        if self.moments is not None:
            self._check_moments()
        # What cannot be computed with could be published, and read by nobody.
        self.mechanism  # noqa: B018

    @cached_property
    def known(self) -> KnownTotal | None:
        """Return what is known of the total, by its name."""
        return known_total(self.moments, self.guarantee.neighbours)

    def _check_moments(self) -> None:
        known = self.known
        if (
            known is None
            or self.lattice.bounds != known.bounds
            or self.lattice.scalar
            or self.whole != known.whole
            or self.stated is not None
            or not isinstance(self.guarantee, PureDP)
        ):
            raise ReleaseError(
                "moments must be the name of a total whose sensitivity was proved for these "
                "neighbours, with its bounds and pure privacy; got "
                f"{shown(self.moments)} with bounds {shown(self.lattice.bounds)}."
            )

    @cached_property
    def calibration(self) -> Calibration:
        """Return the noise, computed from the other fields: it cannot contradict them."""
        return calibrate(
            self.lattice,
            self.guarantee,
            whole=self.whole,
            stated=self.stated,
            known=self.known,
        )

    @property
    def scale(self) -> float:
        """Return the scale of the noise in units of the statistic."""
        return self.calibration.scale * self.lattice.granularity

    @cached_property
    def mechanism(self) -> AdditiveMechanism:
        """Return the law of what is published given the total.

        On a lattice of integers it is the discrete law that is drawn from. On a finer one it is
        the continuous law of the same scale: rounding a record to the lattice moves a log density
        by half a cell / scale, 2^-33 for the granularity that is chosen by default.
        """
        discrete = self.lattice.granularity == 1
        stated: dict[str, Any] = {
            "scale": self.scale,
            "sensitivity": self.calibration.sensitivity.value,
            "neighbours": self.guarantee.neighbours,
        }
        if isinstance(self.guarantee, PureDP):
            pure: Any = DiscreteLaplace if discrete else Laplace
            return pure(epsilon=self.guarantee.epsilon, **stated)
        # Integer noise is not known to be Gaussian-private; rho is what was proved for it.
        kind: Any = DiscreteGaussian if discrete else Gaussian
        return kind(rho=level_of(self.guarantee), **stated)

    @property
    def label(self) -> str:
        """Return "proven", or "conditional" where something was only stated."""
        return "conditional" if self.assumptions else "proven"

    @property
    def assumptions(self) -> tuple[str, ...]:
        """Return what the guarantee rests on and nobody has checked."""
        sensitivity = self.calibration.sensitivity
        if sensitivity.status == "proved":
            return self.words
        kind = "whole-numbered contributions" if self.whole else "contributions"
        return (
            *self.words,
            f"No neighbour moves the total of the {kind} by more than {self.stated!r} "
            f"({sensitivity.norm}): stated by the curator, and not checked.",
        )

    def totals(self, contributions: Any, *, size: int | None = None) -> Totals:
        """Clip, round and add up the contributions: here records enter, as integers they leave.

        Parameters
        ----------
        contributions : array_like
        size : int, optional
            The number of records, where it was declared.
        """
        rows = self.lattice.rows(contributions)
        replaced = self.guarantee.neighbours == "replace_one"
        if replaced and not len(rows):
            raise ReleaseError(
                "contributions must have a row or more, because neighbours replace one record; got "
                "no records."
            )
        if size is not None and len(rows) != size:
            raise ReleaseError(
                f"contributions must have one row for each of the {size} records that were "
                f"declared with size=; got {len(rows)}."
            )
        if self.known is not None and not self.known.are(rows):
            raise ReleaseError(
                f"contributions must be {self.moments} of records within their bounds, for which "
                "the sensitivity of this plan was proved; got others."
            )
        integers = self.lattice.totals(rows[:, 0] if self.lattice.scalar else rows)
        return Totals(tuple(integers), len(rows))


def plan_release(
    *,
    bounds: Any,
    neighbours: str,
    epsilon: float | None = None,
    delta: float | None = None,
    rho: float | None = None,
    sensitivity: float | None = None,
    granularity: float | None = None,
    integers: bool = False,
    unit: str = "one record",
    name: str = "release",
) -> ReleasePlan:
    """Return the plan of a release, from public arguments alone.

    Parameters are those of `release`, which makes the very same plan. It can be made, checked
    and shown to anybody before there are records.

    Examples
    --------
    >>> from pymc_privacy.sanitize import plan_release
    >>> plan = plan_release(bounds=(0, 100), epsilon=0.5, neighbours="replace_one")
    >>> plan.calibration.scale * plan.lattice.granularity
    200.0
    """
    guarantee = promised(epsilon=epsilon, delta=delta, rho=rho, neighbours=neighbours, unit=unit)
    pairs, scalar = checked_bounds(bounds)
    stated = None if sensitivity is None else checked_sensitivity(sensitivity)
    whole = flag("integers", integers, meaning="contributions are whole", error=ReleaseError)
    cell = power_of_two(granularity) if granularity is not None else None
    if whole and any(end != round(end) for pair in pairs for end in pair):
        raise ReleaseError(
            "bounds of integers must be whole numbers, or clipping would move what it lets pass; "
            f"got {bounds!r} with integers=True."
        )
    if cell is None:
        cell = 1.0 if whole else granularity_for(pairs, guarantee, stated)
    return ReleasePlan(name, Lattice(pairs, cell, scalar), guarantee, whole=whole, stated=stated)


def plan_moments(
    known: KnownTotal, guarantee: Guarantee, name: str, words: tuple[str, ...] = ()
) -> ReleasePlan:
    """Return the plan of a release of moments or shares, which this package computes itself."""
    cell = 1.0 if known.whole else granularity_for(known.bounds, guarantee, None)
    lattice = Lattice(known.bounds, cell, scalar=False)
    return ReleasePlan(name, lattice, guarantee, whole=known.whole, moments=known.name, words=words)


def checked_size(size: Any, guarantee: Guarantee) -> int | None:
    """Return a declared number of records, which is public under replacement only."""
    if size is None:
        return None
    if guarantee.neighbours != "replace_one":
        raise ReleaseError(
            'size= must be left out with neighbours="add_remove", under which the number of '
            f"records is confidential; got {size!r}."
        )
    return integer("size", size, least=1, meaning="the number of records", error=ReleaseError)


def checked_ledger(ledger: Any) -> Ledger | None:
    """Return None, or a ledger."""
    if ledger is not None:
        instance("ledger", ledger, Ledger, "a Ledger", error=ReleaseError)
    return ledger


def checked_name(name: Any) -> str:
    """Return the name of what is published."""
    return title("name", name, meaning="of what is published", error=ReleaseError)


def charge(ledger: Ledger | None, guarantee: Guarantee, name: str, *, unless: str) -> None:
    """Charge a ledger, if there is one, for a name that it has not seen.

    Only the name that stands where none was given may come again: a card under the same name
    would take the place of the one before.
    """
    if ledger is not None:
        ledger.charge(guarantee, what=name, unique=name != unless)


def checked_date(date: Any) -> str:
    """Return a day as it is written on a card, 2026-01-31."""
    written = isinstance(date, str) and re.fullmatch(r"[0-9]{4}-[0-9]{2}-[0-9]{2}", date)
    try:
        return datetime.date.fromisoformat(date).isoformat() if written else _no_date(date)
    except ValueError:
        return _no_date(date)


def _no_date(date: Any) -> str:
    raise refusal("published", "a date such as 2026-01-31", date, error=ReleaseError)
