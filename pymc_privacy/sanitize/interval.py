"""`PrivateInterval`: two numbers, and exactly what may be said about publishing them.

Three labels, never merged:

proven
    The guarantee follows from a proof whose conditions the code enforces itself: the interval
    comes with the releases that it was computed from, each of them proven, and they compose to it.
conditional
    It follows from a proof whose conditions somebody stated; they are listed.
nominal
    A paper claims it, and the claim is not true as it stands; nothing is promised.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal, Protocol, runtime_checkable

from pymc_privacy.accounting import Guarantee, PureDP, compose
from pymc_privacy.arguments import instance, probability, real, refusal, text
from pymc_privacy.errors import GuaranteeError
from pymc_privacy.sanitize.budget import covers
from pymc_privacy.sanitize.calibrate import exactly

Label = Literal["proven", "conditional", "nominal"]
PRIOR_AVERAGE = (
    "Coverage is an average over parameters drawn from the prior, where the model holds and its "
    "bounds clip hardly any record. At one parameter it may be anything: near the ends of the "
    "range it can be 0, as for a share of 0.001 and 20 records."
)
FOREIGN = (
    "What a record contributes to {name}, and how far one can move the total, is the word of the "
    "author of {kind}, and not checked."
)


@runtime_checkable
class Published(Protocol):
    """What an interval was computed from, with the evidence for what it promises."""

    @property
    def label(self) -> str:
        """Return "proven", "conditional" or "nominal"."""

    @property
    def assumptions(self) -> tuple[str, ...]:
        """Return what the guarantee rests on and nobody has checked."""

    @property
    def guarantee(self) -> Guarantee:
        """Return what is promised."""


@dataclass(frozen=True)
class PrivateInterval:
    """An interval, its label, and what is promised to the people behind it.

    Parameters
    ----------
    lower, upper : float
        The ends. Methods that add noise to each end may return them in the wrong order.
    prob : float
        The probability that the interval aims at.
    method : str
    label : {"proven", "conditional", "nominal"}
        What kind of truth the guarantee is.
    assumptions : tuple of str
        What has to hold: for the privacy, where it is conditional, and for the coverage.
    guarantee : Guarantee or None
        What is promised; None for what is only nominal.
    claimed : Guarantee, optional
        What the paper of a nominal method claims.
    supported : Guarantee, optional
        What joint accounting supports for a nominal method.
    why : tuple of str
        Why it is only nominal.
    releases : tuple, optional
        What the interval was computed from, and may be published with it; a proven interval has
        them, since they are its proof.
    name : str
        The parameter.

    Examples
    --------
    >>> import numpy as np
    >>> import pymc_privacy as pmp
    >>> draws = np.random.default_rng(1).beta(109, 393, size=269)
    >>> interval = pmp.precise(
    ...     draws, bounds=(0.03, 0.97), density_bound=8.315, samples=269, epsilon=0.1
    ... )
    >>> interval.label, interval.guarantee
    ('nominal', None)
    """

    lower: float
    upper: float
    prob: float
    method: str
    label: Label
    assumptions: tuple[str, ...]
    guarantee: Guarantee | None
    claimed: Guarantee | None = None
    supported: Guarantee | None = None
    why: tuple[str, ...] = ()
    releases: tuple[Published, ...] = ()
    name: str = "parameter"

    def __post_init__(self) -> None:
        for name in ("guarantee", "claimed", "supported"):
            if getattr(self, name) is not None:
                wanted = "a guarantee, such as PureDP(1.0), or None"
                instance(name, getattr(self, name), Guarantee, wanted, error=GuaranteeError)
        for name in ("assumptions", "why"):
            words = getattr(self, name)
            if not isinstance(words, tuple) or not all(isinstance(word, str) for word in words):
                raise refusal(name, "a tuple of sentences", words, error=GuaranteeError)
        instance("label", self.label, str, "a label", error=GuaranteeError)
        if self.label == "nominal":
            honest = self.guarantee is None and bool(self.why)
        elif self.label == "conditional":
            honest = self.guarantee is not None and bool(self.assumptions)
        else:
            honest = self.label == "proven" and self.guarantee is not None
        if not honest:
            raise GuaranteeError(
                "A proven interval has a guarantee, a conditional one also has assumptions, and a "
                f"nominal one has reasons and no guarantee; got {self.label!r} with guarantee "
                f"{self.guarantee!r}."
            )
        for end in ("lower", "upper"):
            object.__setattr__(self, end, real(end, getattr(self, end), error=GuaranteeError))
        prob = probability("prob", self.prob, error=GuaranteeError)
        object.__setattr__(self, "prob", prob)
        for word in ("method", "name"):
            text(word, getattr(self, word), error=GuaranteeError)
        if self.guarantee is not None:
            self._check_evidence(self.guarantee)

    def _check_evidence(self, guarantee: Guarantee) -> None:
        """Refuse a promise that the releases do not keep."""
        instance("releases", self.releases, tuple, "a tuple of releases", error=GuaranteeError)
        for one in self.releases:
            instance("A release", one, Published, "what was published", error=GuaranteeError)
        labels = {one.label for one in self.releases}
        if self.label == "proven" and labels != {"proven"}:
            raise GuaranteeError(
                "A proven interval must come with the releases that it was computed from, all of "
                f"them proven; got {', '.join(sorted(labels)) or 'none'}."
            )
        if "nominal" in labels:
            raise GuaranteeError("What was only simulated has no guarantee; got a nominal release.")
        parts = [one.guarantee for one in self.releases]
        if parts and not covers(guarantee, parts) and compose(*parts) != guarantee:
            raise GuaranteeError(
                "The guarantee of an interval must be that of its releases together; got "
                f"{guarantee} for {'; '.join(map(str, parts))}."
            )

    @property
    def release(self) -> Any:
        """Return the release that the interval was computed from, if it is one only."""
        return self.releases[0] if len(self.releases) == 1 else None

    @property
    def width(self) -> float:
        """Return the distance of the two ends."""
        return abs(self.upper - self.lower)

    def statement(self) -> str:
        """Say in sentences what the interval is, and what is promised."""
        lines = [
            f"{self.prob:.0%} interval for {self.name} by {self.method}: "
            f"{self.lower:.6g} to {self.upper:.6g}.",
            f"Label: {self.label}.",
        ]
        if self.label == "nominal":
            lines.append(f"Claimed, but NOT guaranteed: {self.claimed}.")
            lines += [f"Why: {reason}" for reason in self.why]
        else:
            lines.append(f"Guarantee: {self.guarantee}.")
        lines += [f"Assumption: {assumption}" for assumption in self.assumptions]
        return "\n".join(lines)

    def __str__(self) -> str:
        return self.statement()


def checked_prob(prob: Any) -> float:
    """Return a probability strictly between 0 and 1."""
    meaning = "how likely the interval is to cover"
    return probability("prob", prob, meaning=meaning, error=GuaranteeError)


def share_of(guarantee: PureDP, parts: int) -> PureDP:
    """Return one of several equal parts of a pure guarantee, which together are at most all of it.

    Examples
    --------
    >>> share_of(PureDP(1.0, neighbours="replace_one"), 2).epsilon
    0.5
    """
    share = guarantee.epsilon / parts
    while parts * exactly(share) > exactly(guarantee.epsilon):
        share = math.nextafter(share, 0.0)
    return PureDP(share, neighbours=guarantee.neighbours, unit=guarantee.unit)
