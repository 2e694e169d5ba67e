"""`PrivateInterval`: two numbers, and exactly what may be said about publishing them.

Three labels, never merged:

proven
    The guarantee follows from a proof whose conditions the code enforces itself.
conditional
    It follows from a proof whose conditions somebody stated; they are listed.
nominal
    A paper claims it, and the claim is not true as it stands; nothing is promised.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from pymc_privacy.accounting import Guarantee
from pymc_privacy.errors import GuaranteeError
from pymc_privacy.sanitize.releases import Release

Label = Literal["proven", "conditional", "nominal"]


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
    release : Release, optional
        The release that the interval was computed from, to be published with it.
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
    release: Release | None = None
    name: str = "parameter"

    def __post_init__(self) -> None:
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


def checked_prob(prob: float) -> float:
    """Return a probability strictly between 0 and 1."""
    if not (isinstance(prob, int | float) and 0 < prob < 1):
        raise GuaranteeError(
            f"prob must be a number in (0, 1) (how likely the interval is to cover); got {prob!r}."
        )
    return float(prob)
