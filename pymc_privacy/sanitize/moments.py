"""Totals of moments: their coordinates move together, by less than their bounds say.

Records on [-1, 1] contribute their first and second moments. A reader of a card finds the
sensitivity by the name of the statistic, and believes no number on the card.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

# Contributions are computed in floats; their errors are far below this share of the sensitivity.
ROUNDING = Fraction(1, 2**40)


@dataclass(frozen=True)
class Moments:
    """What a record contributes, and how far replacing one moves the total, in L1."""

    name: str
    bounds: tuple[tuple[float, float], ...]
    l1: Fraction
    proof: str


NORMAL = Moments(
    name="(v, v^2)",
    bounds=((-1.0, 1.0), (0.0, 1.0)),
    l1=Fraction(9, 4) * (1 + ROUNDING),
    proof=(
        "|v - v'| + |v^2 - v'^2| = d (1 + |v + v'|) with d = |v - v'| and |v + v'| <= 2 - d, "
        "hence at most d (3 - d) <= 9/4."
    ),
)
REGRESSION = Moments(
    name="(v, v^2, t, v t, t^2)",
    bounds=((-1.0, 1.0), (0.0, 1.0), (-1.0, 1.0), (-1.0, 1.0), (0.0, 1.0)),
    l1=Fraction(13, 2) * (1 + ROUNDING),
    proof=(
        "|v - v'| + |v^2 - v'^2| <= 9/4, as d (1 + |v + v'|) <= d (3 - d) with d = |v - v'|; "
        "the same for t; and |v t - v' t'| <= 2."
    ),
)
MOMENTS = {moments.name: moments for moments in (NORMAL, REGRESSION)}
