"""`PrivateInterval`: two numbers, and exactly what may be said about publishing them.

Three labels, never merged:

proven
    The guarantee follows from a proof whose conditions the code enforces itself: the interval
    comes with the releases that it was computed from, each of them proven, and they compose to it.
conditional
    It follows from a proof whose conditions somebody stated; they are listed. The releases are
    there as well.
nominal
    A paper claims it, and the claim is not true as it stands; nothing is promised.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from pymc_privacy.accounting import Guarantee
from pymc_privacy.arguments import (
    choice,
    instance,
    probability,
    real,
    refusal,
    sentences,
    shown,
    title,
)
from pymc_privacy.errors import GuaranteeError
from pymc_privacy.sanitize.budget import covers, together
from pymc_privacy.sanitize.families import Family
from pymc_privacy.sanitize.methods import METHODS, is_family_of, same_ends
from pymc_privacy.sanitize.publication import SIMULATED
from pymc_privacy.sanitize.quantiles import PrivateQuantile
from pymc_privacy.sanitize.releases import Release
from pymc_privacy.sanitize.summary_plan import SummaryRelease

Label = Literal["proven", "conditional", "nominal"]
PUBLISHED = (Release, PrivateQuantile, SummaryRelease)


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
        One of this package's.
    label : {"proven", "conditional", "nominal"}
        What kind of truth the guarantee is.
    assumptions : tuple of str
        What has to hold: for the privacy, where it is conditional, and for the coverage. Those of
        the releases are among them.
    guarantee : Guarantee or None
        What is promised; None for what is only nominal.
    claimed : Guarantee, optional
        What the paper of a nominal method claims.
    supported : Guarantee, optional
        What joint accounting supports for a nominal method.
    why : tuple of str
        Why it is only nominal.
    releases : tuple, optional
        What the interval was computed from, and may be published with it. They are the evidence
        for its guarantee; without them there is none.
    name : str
        The parameter.
    family : Family, optional
        The model of the records, where it is one of this package's.

    Raises
    ------
    GuaranteeError
        By the constructor, if label, guarantee, assumptions or ends do not follow from the releases
        and the method.

    See Also
    --------
    noise_aware_interval : Makes one from records.
    posterior_interval : Makes one from draws of PyMC.
    write_card : Publish it with its evidence.
    plot_interval : Draw it, for the curator.

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
    releases: tuple[Any, ...] = ()
    name: str = "parameter"
    family: Family | None = None

    def __post_init__(self) -> None:
        for name in ("guarantee", "claimed", "supported"):
            if getattr(self, name) is not None:
                wanted = "a guarantee, such as PureDP(1.0), or None"
                instance(name, getattr(self, name), Guarantee, wanted, error=GuaranteeError)
        for name in ("assumptions", "why"):
            sentences(name, getattr(self, name), error=GuaranteeError)
        self._check_label()
        for end in ("lower", "upper"):
            object.__setattr__(self, end, real(end, getattr(self, end), error=GuaranteeError))
        object.__setattr__(self, "prob", checked_prob(self.prob))
        title("name", self.name, error=GuaranteeError)
        instance("releases", self.releases, tuple, "a tuple of releases", error=GuaranteeError)
        for one in self.releases:
            # A class derived from one of these could say of itself what it likes.
            if type(one) not in PUBLISHED:
                wanted = "a Release, a PrivateQuantile or a SummaryRelease"
                raise refusal("A release of an interval", wanted, one, error=GuaranteeError)
        if self.guarantee is None:
            self._check_claim()
        else:
            self._check_evidence(self.guarantee)
        self._check_method()

    def _check_label(self) -> None:
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

    def _check_claim(self) -> None:
        """Refuse a nominal interval that is nominal for no reason, or claims something else."""
        if not self.releases:
            known = self.claimed is not None
        else:
            known = "nominal" in {one.label for one in self.releases}
            known = known and self.claimed == together([one.guarantee for one in self.releases])
            known = known and self.supported is None and self.why == (SIMULATED,)
        if not known:
            raise GuaranteeError(
                "A nominal interval must say what its method claims, or come with a simulated "
                f"release and claim what its releases do; got {self.claimed!r}."
            )

    def _check_evidence(self, guarantee: Guarantee) -> None:
        """Refuse a promise that the releases do not keep."""
        labels = {one.label for one in self.releases}
        if not labels or (self.label == "proven" and labels != {"proven"}):
            raise GuaranteeError(
                "A proven interval must come with the releases that it was computed from, all of "
                "them proven, and a conditional one with its releases; got "
                f"{', '.join(sorted(labels)) or 'none'}."
            )
        if "nominal" in labels:
            raise GuaranteeError("What was only simulated has no guarantee; got a nominal release.")
        parts = [one.guarantee for one in self.releases]
        if not covers(guarantee, parts):
            raise GuaranteeError(
                "The guarantee of an interval must be that of its releases together; got "
                f"{guarantee} for {'; '.join(map(str, parts))}."
            )
        if self.claimed is not None or self.supported is not None or self.why:
            raise GuaranteeError(
                "An interval with a guarantee must have no other claims beside it; got "
                f"{self.claimed!r}, {self.supported!r} and {len(self.why)} reasons."
            )

    def _check_method(self) -> None:
        """Refuse what the method does not make of its releases."""
        choice("method", self.method, tuple(METHODS), error=GuaranteeError)
        method = METHODS[self.method]
        kinds = {type(one) for one in self.releases} | {method.kind} - {None}
        if len(kinds) > 1 or not method.least <= len(self.releases) <= method.most:
            raise GuaranteeError(
                f"An interval by {self.method} must come with releases of the kind and number that "
                f"it takes; got {len(self.releases)}."
            )
        # The second sentence of a method is for what has no family.
        self._check_assumptions(method.coverage[: 2 if self.family is None else 1])
        if self.family is not None and not all(
            type(one) is Release and is_family_of(self.family, one) for one in self.releases
        ):
            raise GuaranteeError(
                "The family of an interval must be one of this package's, and that of its "
                f"releases; got {shown(self.family)}."
            )
        if method.families and self.family is None and self.label == "proven":
            raise GuaranteeError(
                f"A proven interval by {self.method} must say for which family of this package; "
                "got none."
            )
        ends = self._ends()
        if ends is not None and not same_ends((self.lower, self.upper), ends):
            raise GuaranteeError(
                f"The ends of an interval by {self.method} must be those that follow from its "
                f"releases, {ends[0]:g} and {ends[1]:g}; got {self.lower:g} and {self.upper:g}."
            )

    def _check_assumptions(self, coverage: tuple[str, ...]) -> None:
        """Refuse a list that lacks an assumption, and a label that the list does not bear out."""
        wanted = {words for one in self.releases for words in one.assumptions}
        beyond = wanted | set(self.assumptions) - set(coverage)
        if not wanted <= set(self.assumptions) or not set(coverage) & set(self.assumptions):
            raise GuaranteeError(
                "The assumptions of an interval must hold those of its releases, and what is known "
                f"of the coverage of its method; got {len(self.assumptions)} others."
            )
        if self.label == "conditional" and not beyond:
            raise GuaranteeError(
                "A conditional interval must have an assumption that its guarantee rests on; got "
                "none but on its coverage."
            )
        if self.label == "proven" and beyond:
            raise GuaranteeError(
                "A proven interval must have no assumptions but on its coverage; got "
                f"{shown(sorted(beyond)[0])}."
            )

    def _ends(self) -> tuple[float, float] | None:
        """Return the ends that follow from the releases, or None where they do not."""
        method = METHODS[self.method]
        return method.ends and method.ends(self.releases, self.family, self.prob)

    @property
    def unchecked(self) -> tuple[str, ...]:
        """Return the fields that do not follow from the releases: they are the publisher's word.

        All others are computed again when a card is read, and so are these where the method has
        nothing random about it.
        """
        if not self.releases:
            return ("lower", "upper", "prob", "claimed", "supported", "why")
        return () if self._ends() else ("lower", "upper", "prob")

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
        if unchecked := self.unchecked:
            lines.append(f"On the publisher's word: {', '.join(unchecked)}.")
        return "\n".join(lines)

    def __str__(self) -> str:
        return self.statement()


def checked_prob(prob: Any) -> float:
    """Return a probability strictly between 0 and 1."""
    meaning = "how likely the interval is to cover"
    return probability("prob", prob, meaning=meaning, error=GuaranteeError)
