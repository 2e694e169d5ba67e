"""Totals of moments: their coordinates move together, by less than their bounds say.

Records on [-1, 1] contribute their first and second moments. A reader of a card finds the
sensitivity by the name of the statistic, and believes no number on the card. The proofs are about
products of the same numbers; other contributions have no such sensitivity, and are told apart.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Protocol

import numpy as np

from pymc_privacy.accounting import Neighbours

# Contributions are computed in floats; their errors are far below this share of the sensitivity.
ROUNDING = Fraction(1, 2**40)


class KnownTotal(Protocol):
    """A total whose L1 sensitivity is known to be less than its bounds say, and why."""

    @property
    def name(self) -> str:
        """Return what is contributed; it determines everything else."""

    @property
    def bounds(self) -> tuple[tuple[float, float], ...]:
        """Return the bounds of each contribution."""

    @property
    def neighbours(self) -> Neighbours:
        """Return what the sensitivity was proved for."""

    @property
    def whole(self) -> bool:
        """Return whether contributions are integers."""

    @property
    def l1(self) -> Fraction:
        """Return the L1 sensitivity, with what floats may get wrong."""

    @property
    def proof(self) -> str:
        """Return the argument in one sentence."""

    def are(self, contributions: np.ndarray) -> bool:
        """Tell whether contributions are what the proof is about."""


@dataclass(frozen=True)
class Moments:
    """What a record contributes, and how far replacing one moves the total, in L1.

    Parameters
    ----------
    name : str
    products : tuple of tuple of int
        Of which of the record's numbers each contribution is the product.
    bounds : tuple of (float, float)
    l1 : Fraction
    proof : str
    """

    name: str
    products: tuple[tuple[int, ...], ...]
    bounds: tuple[tuple[float, float], ...]
    l1: Fraction
    proof: str
    neighbours: Neighbours = "replace_one"
    whole: bool = False

    def of(self, values: np.ndarray) -> np.ndarray:
        """Return the contributions of records on [-1, 1], one row each.

        Examples
        --------
        >>> NORMAL.of(np.array([[0.5], [-1.0]])).tolist()
        [[0.5, 0.25], [-1.0, 1.0]]
        """
        return np.stack([values[:, factors].prod(axis=1) for factors in self.products], axis=1)

    def are(self, contributions: np.ndarray) -> bool:
        """Tell whether contributions are the moments of records on [-1, 1], to the last bit.

        Examples
        --------
        >>> NORMAL.are(np.array([[0.5, 0.25]])), NORMAL.are(np.array([[-1.0, 0.0]]))
        (True, False)
        """
        first = [k for k, factors in enumerate(self.products) if len(factors) == 1]
        values = np.clip(contributions[:, first], -1.0, 1.0)
        return bool(np.array_equal(self.of(values), contributions))


NORMAL = Moments(
    name="(v, v^2)",
    products=((0,), (0, 0)),
    bounds=((-1.0, 1.0), (0.0, 1.0)),
    l1=Fraction(9, 4) * (1 + ROUNDING),
    proof=(
        "|v - v'| + |v^2 - v'^2| = d (1 + |v + v'|) with d = |v - v'| and |v + v'| <= 2 - d, "
        "hence at most d (3 - d) <= 9/4."
    ),
)
REGRESSION = Moments(
    name="(v, v^2, t, v t, t^2)",
    products=((0,), (0, 0), (1,), (0, 1), (1, 1)),
    bounds=((-1.0, 1.0), (0.0, 1.0), (-1.0, 1.0), (-1.0, 1.0), (0.0, 1.0)),
    l1=Fraction(13, 2) * (1 + ROUNDING),
    proof=(
        "|v - v'| + |v^2 - v'^2| <= 9/4, as d (1 + |v + v'|) <= d (3 - d) with d = |v - v'|; "
        "the same for t; and |v t - v' t'| <= 2."
    ),
)
MOMENTS = {moments.name: moments for moments in (NORMAL, REGRESSION)}
