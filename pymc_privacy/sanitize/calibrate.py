"""The smallest scale on the lattice that keeps a promise, in exact arithmetic and rounded up.

Nothing here has seen a record: a calibration is made of the lattice and the promise, which are
public, and so is the sensitivity that somebody states. A number such as epsilon = 0.1 is taken
as the decimal that it prints as, so that ten of them add up to 1 exactly, here and in the ledger.
Scales are floats, not below the exact fraction: the law that is drawn from is the law that is
stated.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Literal

from pymc_privacy.accounting import (
    ApproximateDP,
    Guarantee,
    Neighbours,
    PureDP,
    ZeroConcentratedDP,
    zero_concentrated_rho,
)
from pymc_privacy.arguments import neighbours as checked_neighbours
from pymc_privacy.arguments import positive, title
from pymc_privacy.errors import GuaranteeError, ReleaseError
from pymc_privacy.sanitize.lattice import FURTHEST, Lattice, power_of_two
from pymc_privacy.sanitize.moments import KnownTotal

# A cell is this much finer than the noise: rounding one record moves a log density by 2^-33.
_FINER = 32
# And this much finer than the sensitivity, or under wide noise all records would be one point.
_TOLD_APART = 20
_SHOWN = 8  # pairs of bounds, in a sentence


def exactly(value: float) -> Fraction:
    """Return the decimal number that a float prints as.

    Examples
    --------
    >>> sum([exactly(0.1)] * 10) == 1
    True
    """
    return Fraction(repr(float(value)))


@dataclass(frozen=True)
class Sensitivity:
    """How far one record can move a statistic, and who says so.

    Parameters
    ----------
    value : float
        In units of the statistic.
    norm : {"L1", "L2"}
    status : {"proved", "asserted"}
        Proved: it follows from bounds to which the code itself clips. Asserted: taken on trust.
    why : str
        The argument in one sentence.

    Examples
    --------
    >>> print(Sensitivity(value=1.0, norm="L1", status="proved", why="Records are 0 or 1."))
    L1 sensitivity 1, proved: Records are 0 or 1.
    """

    value: float
    norm: Literal["L1", "L2"]
    status: Literal["proved", "asserted"]
    why: str

    def __str__(self) -> str:
        return f"{self.norm} sensitivity {self.value:g}, {self.status}: {self.why}"


@dataclass(frozen=True)
class Calibration:
    """Which integer noise is added, and what it promises; made of public numbers alone."""

    family: Literal["laplace", "gaussian"]
    scale: float  # in units of the granularity
    guarantee: Guarantee
    sensitivity: Sensitivity


def promised(*, epsilon: Any, delta: Any, rho: Any, neighbours: Any, unit: Any) -> Guarantee:
    """Return the guarantee asked for."""
    given = {
        name
        for name, value in (("epsilon", epsilon), ("delta", delta), ("rho", rho))
        if value is not None
    }
    meaning = "whether the number of records is public; the sensitivity depends on it"
    labels: dict[str, Any] = {
        "neighbours": checked_neighbours(neighbours, meaning=meaning, error=GuaranteeError),
        "unit": title("unit", unit, meaning="what a record is", error=GuaranteeError),
    }
    if given == {"epsilon"}:
        return PureDP(epsilon, **labels)
    if given == {"rho"}:
        return ZeroConcentratedDP(rho, **labels)
    if given == {"epsilon", "delta"}:
        approximate = ApproximateDP(epsilon, delta, **labels)
        if approximate.delta > 0:
            return approximate
    raise GuaranteeError(
        "A release promises epsilon= (Laplace noise), rho= or (epsilon=, delta=) with delta > 0 "
        f"(Gaussian noise); got {' and '.join(sorted(given)) or 'none of them'}."
    )


def level_of(guarantee: Guarantee) -> float:
    """Return the epsilon (pure) or the rho (otherwise) to calibrate by."""
    if isinstance(guarantee, PureDP):
        return guarantee.epsilon
    if isinstance(guarantee, ZeroConcentratedDP):
        return guarantee.rho
    if isinstance(guarantee, ApproximateDP) and guarantee.delta > 0:
        return zero_concentrated_rho(guarantee.epsilon, guarantee.delta)
    raise GuaranteeError(
        "The guarantee of a release must be PureDP, ZeroConcentratedDP or ApproximateDP with "
        f"delta > 0, for which integer noise is calibrated; got {guarantee!r}."
    )


def laplace_scale(l1: Fraction, epsilon: float) -> float:
    """Return the smallest float that is at least l1 / epsilon."""
    return _at_least(l1 / exactly(epsilon))


def gaussian_scale(l2_squared: Fraction, rho: float) -> float:
    """Return a float sigma with sigma^2 >= l2^2 / (2 rho), the smallest up to one step."""
    wanted = l2_squared / (2 * exactly(rho))
    # The integer root of wanted 4^k, over 2^k, is below the root by a relative 2^-60 at most.
    k = max(0, 64 - (wanted.numerator.bit_length() - wanted.denominator.bit_length()) // 2)
    scale = _at_least(Fraction(math.isqrt(math.floor(wanted * 4**k)), 2**k))
    while Fraction(scale) ** 2 < wanted:
        scale = math.nextafter(scale, math.inf)
    return scale


def _at_least(wanted: Fraction) -> float:
    """Return the smallest float that is not below a fraction."""
    try:
        number = float(wanted)
    except OverflowError:
        number = math.inf
    if number > FURTHEST:
        raise ReleaseError(
            "The scale of the noise must be at most 2^500 cells (sensitivity / epsilon, in units "
            "of the granularity); got more: epsilon (or rho) is too small, or the granularity too "
            "fine."
        )
    return number if Fraction(number) >= wanted else math.nextafter(number, math.inf)


def calibrate(
    lattice: Lattice,
    guarantee: Guarantee,
    *,
    whole: bool = False,
    stated: float | None = None,
    known: KnownTotal | None = None,
) -> Calibration:
    """Return the noise for the totals on a lattice.

    Parameters
    ----------
    lattice : Lattice
    guarantee : Guarantee
        What is to be promised; it names the neighbours.
    whole : bool
        Contributions were declared to be integers, which the lattice does not move.
    stated : float, optional
        A sensitivity that is taken on trust, where it is below the one of the bounds.
    known : KnownTotal, optional
        What is contributed, where its sensitivity is known.
    """
    pure, neighbours = isinstance(guarantee, PureDP), guarantee.neighbours
    assert neighbours is not None
    exact = Fraction(lattice.l1(neighbours) if pure else lattice.l2_squared(neighbours))
    if exact == 0:
        raise ReleaseError(
            "granularity must be finer than the bounds are apart, or every record is rounded to "
            f"the same point; got granularity {lattice.granularity!r}."
        )
    status, why = "proved", _why(lattice, neighbours)
    if known is not None:
        proved = _rounded_l1(lattice, neighbours, known.l1, whole=known.whole)
        exact, why = (proved, f"{known.proof} {why}") if proved < exact else (exact, why)
    elif stated is not None:
        trusted = _stated(lattice, neighbours, stated, pure=pure, whole=whole)
        # What is not below the proven bound needs no trust.
        if trusted < exact:
            status, why = "asserted", f"Stated by the curator, and not checked. {why}"
        exact = trusted
    scale = (laplace_scale if pure else gaussian_scale)(exact, level_of(guarantee))
    units = float(exact) if pure else math.isqrt(math.floor(exact * 4**64)) / 2**64
    sensitivity = Sensitivity(
        value=units * lattice.granularity,
        norm="L1" if pure else "L2",
        status=status,  # type: ignore[arg-type]
        why=why,
    )
    return Calibration("laplace" if pure else "gaussian", scale, guarantee, sensitivity)


def _stated(
    lattice: Lattice, neighbours: Neighbours, stated: float, *, pure: bool, whole: bool
) -> Fraction:
    """Return a stated sensitivity in units, L1 or squared L2, after rounding to the lattice.

    Below one unit it would say that no record counts: integers that move, move by one or more.
    """
    number = exactly(checked_sensitivity(stated))
    if number < Fraction(lattice.granularity):
        raise ReleaseError(
            "sensitivity must be one step of the lattice or more, or noise on the lattice hides "
            f"nothing of a record that counts; the granularity is {lattice.granularity!r}; got "
            f"{stated!r}."
        )
    if pure:
        return _rounded_l1(lattice, neighbours, number, whole=whole)
    # Rounding moves a record by sqrt(d) / 2 units at most, and sqrt(d) <= (d + 1) / 2.
    moved = Fraction(_records(neighbours) * (len(lattice.bounds) + 1), 4)
    return (number / Fraction(lattice.granularity) + (0 if whole else moved)) ** 2


def _rounded_l1(lattice: Lattice, neighbours: Neighbours, l1: Fraction, *, whole: bool) -> Fraction:
    """Return an L1 sensitivity in units, after rounding to the lattice.

    Rounding moves each coordinate of a record by half a unit at most.
    """
    moved = Fraction(_records(neighbours) * len(lattice.bounds), 2)
    return l1 / Fraction(lattice.granularity) + (0 if whole else moved)


def _records(neighbours: Neighbours) -> int:
    """Return how many records tell two neighbours apart: a replacement has two."""
    return 2 if neighbours == "replace_one" else 1


def granularity_for(
    bounds: tuple[tuple[float, float], ...], guarantee: Guarantee, stated: float | None
) -> float:
    """Return a power of two about 2^-32 of the scale that bounds or stated sensitivity ask for.

    It is at most 2^-20 of that sensitivity, however wide the noise is.
    """
    replaced, level = guarantee.neighbours == "replace_one", level_of(guarantee)
    spans = [high - low if replaced else max(abs(low), abs(high)) for low, high in bounds]
    pure = isinstance(guarantee, PureDP)
    reach = math.fsum(spans) if pure else math.hypot(*spans)
    reach = reach if stated is None else min(reach, checked_sensitivity(stated))
    # Of each factor by itself, since the quotient may be no float.
    exponent = math.log2(reach) - (math.log2(level) if pure else (1 + math.log2(level)) / 2)
    finest = min(math.floor(exponent) - _FINER, math.floor(math.log2(reach)) - _TOLD_APART)
    try:
        return power_of_two(2.0**finest)
    except (OverflowError, ReleaseError):
        raise ReleaseError(
            "The scale of the noise must be a number that floats hold (it is the sensitivity of "
            f"the bounds over epsilon); got one of about 2^{math.floor(exponent)}."
        ) from None


def _why(lattice: Lattice, neighbours: Neighbours) -> str:
    shown = lattice.bounds[:_SHOWN]
    ends = " x ".join(f"[{low:g}, {high:g}]" for low, high in shown)
    ends += f" x ... ({len(lattice.bounds)} columns)" if len(lattice.bounds) > _SHOWN else ""
    move = "replaced" if neighbours == "replace_one" else "added or removed"
    return (
        f"Contributions are clipped to {ends} and rounded to multiples of "
        f"{lattice.granularity:g} before they are added up as integers; one record is {move}."
    )


def checked_sensitivity(value: Any) -> float:
    """Return a sensitivity, a finite number > 0."""
    meaning = (
        "how far one record can move the statistic; leave it out to have it follow from the bounds"
    )
    return positive("sensitivity", value, meaning=meaning, error=ReleaseError)
