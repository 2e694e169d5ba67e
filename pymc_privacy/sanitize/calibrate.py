"""The smallest scale on the lattice that keeps a promise, in exact arithmetic and rounded up.

A number such as epsilon = 0.1 is taken as the decimal that it prints as, so that ten of them add up
to 1 exactly, here and in the ledger. Scales are floats, not below the exact fraction: the law that
is drawn from is the law that is stated.
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
from pymc_privacy.errors import GuaranteeError, ReleaseError
from pymc_privacy.sanitize.lattice import Lattice, power_of_two

# A cell is this much finer than the noise: rounding one record moves a log density by 2^-33.
_FINER = 32


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


def promised(
    *, epsilon: Any, delta: Any, rho: Any, neighbours: Any, unit: str
) -> tuple[Guarantee, float]:
    """Return the guarantee asked for, and the epsilon (pure) or rho (otherwise) to calibrate by."""
    given = {
        name
        for name, value in (("epsilon", epsilon), ("delta", delta), ("rho", rho))
        if value is not None
    }
    if neighbours not in ("replace_one", "add_remove"):
        raise GuaranteeError(
            'neighbours must be "replace_one" (the number of records is public) or "add_remove" '
            f"(it is not), because the sensitivity depends on it; got {neighbours!r}."
        )
    labels: dict[str, Any] = {"neighbours": neighbours, "unit": unit}
    if given == {"epsilon"}:
        return PureDP(epsilon, **labels), float(epsilon)
    if given == {"rho"}:
        return ZeroConcentratedDP(rho, **labels), float(rho)
    if given == {"epsilon", "delta"}:
        approximate = ApproximateDP(epsilon, delta, **labels)
        return approximate, zero_concentrated_rho(approximate.epsilon, approximate.delta)
    raise GuaranteeError(
        "A release promises epsilon= (Laplace noise), rho= or (epsilon=, delta=) (Gaussian noise); "
        f"got {' and '.join(sorted(given)) or 'none of them'}."
    )


def laplace_scale(l1: Fraction, epsilon: float) -> float:
    """Return the smallest float that is at least l1 / epsilon."""
    wanted = l1 / exactly(epsilon)
    scale = float(wanted)
    return scale if Fraction(scale) >= wanted else math.nextafter(scale, math.inf)


def gaussian_scale(l2_squared: Fraction, rho: float) -> float:
    """Return a float sigma with sigma^2 >= l2^2 / (2 rho), the smallest up to one step."""
    wanted = l2_squared / (2 * exactly(rho))
    scale = math.sqrt(wanted)
    while Fraction(scale) ** 2 < wanted:
        scale = math.nextafter(scale, math.inf)
    return scale


def calibrate(
    lattice: Lattice,
    guarantee: Guarantee,
    level: float,
    *,
    stated: float | None = None,
    whole: bool = False,
    proof: str | None = None,
) -> Calibration:
    """Return the noise for the totals on a lattice.

    Parameters
    ----------
    lattice : Lattice
    guarantee : Guarantee
        What is to be promised; it names the neighbours.
    level : float
        Epsilon of a pure guarantee, else rho.
    stated : float, optional
        A sensitivity below the one of the bounds: taken on trust, unless there is a proof.
    whole : bool
        Contributions are integers, which the lattice does not move.
    proof : str, optional
        Why the stated sensitivity holds.
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
    if stated is not None:
        less = _in_units(lattice, neighbours, stated, pure=pure, whole=whole)
        # What is not below the proven bound needs no trust.
        if less < exact and proof is None:
            status, why = "asserted", "Stated by the curator, and not checked."
        elif less < exact:
            why = f"{proof} {why}"
        exact = less
    scale = laplace_scale(exact, level) if pure else gaussian_scale(exact, level)
    sensitivity = Sensitivity(
        value=(float(exact) if pure else math.sqrt(exact)) * lattice.granularity,
        norm="L1" if pure else "L2",
        status=status,  # type: ignore[arg-type]
        why=why,
    )
    return Calibration("laplace" if pure else "gaussian", scale, guarantee, sensitivity)


def _in_units(
    lattice: Lattice, neighbours: Neighbours, stated: float, *, pure: bool, whole: bool
) -> Fraction:
    """Return a stated sensitivity in units, L1 or squared L2, after rounding to the lattice.

    Rounding moves each coordinate of a record by half a unit at most, and a replacement has two
    records. In L2 that is sqrt(d) / 2 for each, and sqrt(d) <= (d + 1) / 2.
    """
    records = 2 if neighbours == "replace_one" else 1
    width = len(lattice.bounds)
    moved = Fraction(records * width, 2) if pure else Fraction(records * (width + 1), 4)
    units = exactly(_positive(stated)) / Fraction(lattice.granularity) + (0 if whole else moved)
    return units if pure else units**2


def granularity_for(lattice: Lattice, neighbours: Neighbours, level: float, pure: bool) -> float:
    """Return a power of two about 2^-32 of the scale that the bounds ask for."""
    spans = [
        high - low if neighbours == "replace_one" else max(abs(low), abs(high))
        for low, high in lattice.bounds
    ]
    scale = sum(spans) / level if pure else math.hypot(*spans) / math.sqrt(2 * level)
    return power_of_two(2.0 ** (math.floor(math.log2(scale)) - _FINER))


def _why(lattice: Lattice, neighbours: Neighbours) -> str:
    ends = " x ".join(f"[{low:g}, {high:g}]" for low, high in lattice.bounds)
    move = "replaced" if neighbours == "replace_one" else "added or removed"
    return (
        f"Contributions are clipped to {ends} and rounded to multiples of "
        f"{lattice.granularity:g} before they are added up as integers; one record is {move}."
    )


def _positive(value: Any) -> float:
    number = float(value) if isinstance(value, int | float) else math.nan
    if not (math.isfinite(number) and number > 0):
        raise ReleaseError(
            "sensitivity must be a finite number > 0 (how far one record can move the statistic; "
            f"leave it out to have it follow from the bounds); got {value!r}."
        )
    return number
