"""A family says what its records contribute, how far one can move the total, and what follows.

Totals have shape (J, d): J totals at a time, because every method looks at many. A family is fixed
before anybody looks at the records: its bounds are public.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

import numpy as np

from pymc_privacy.arguments import pair, positive, reals, refusal
from pymc_privacy.errors import ReleaseError
from pymc_privacy.sanitize.moments import Moments
from pymc_privacy.sanitize.rows import rows

LEAST = 8  # records of a Normal model, so that all moments that are used exist
_FURTHEST = 2.0**200  # of bounds: fourth powers of records stay within floats
MOST = 2**53  # of a total: posteriors count in floats
FOREIGN = (
    "What a record contributes to {name}, and how far one can move the total, is the word of the "
    "author of {kind}, and not checked."
)


@dataclass(frozen=True)
class SummaryBounds:
    """How far one record can move mean and standard deviation of a posterior: public numbers.

    Parameters
    ----------
    centre_sensitivity, spread_sensitivity : float
        Suprema over all pairs of neighbours.
    largest_centre : float
        The largest distance of the mean from the lower end of the parameter's range.
    largest_spread : float
        The largest standard deviation that any records could give.
    """

    centre_sensitivity: float
    spread_sensitivity: float
    largest_centre: float
    largest_spread: float

    def __post_init__(self) -> None:
        meaning = "there is no default, because the guarantee rests on it"
        for name in self.__dataclass_fields__:
            value = positive(name, getattr(self, name), meaning=meaning, error=ReleaseError)
            object.__setattr__(self, name, value)


class Family(ABC):
    """A model of records whose statistic is a total of bounded contributions."""

    name: str
    whole: bool = False
    """Whether contributions are integers."""
    moments: Moments | None = None
    """What is contributed, where its sensitivity is known to be less than that of the bounds."""
    least: int = 1
    """How many records it takes."""

    @property
    @abstractmethod
    def contribution_bounds(self) -> Any:
        """Return public bounds of the contributions, one pair or one for each column."""

    @property
    @abstractmethod
    def sensitivity(self) -> tuple[float, str] | None:
        """Return an L1 sensitivity below that of the bounds with its proof, or None.

        It is taken on trust: only the proofs of this package make an interval "proven".
        """

    @property
    @abstractmethod
    def support(self) -> tuple[float, float]:
        """Return the range of the parameter."""

    @abstractmethod
    def contributions(self, records: Any) -> np.ndarray:
        """Return what each record adds, clipped; of a record by itself, not of the others."""

    @abstractmethod
    def posterior(
        self, rng: np.random.Generator, totals: np.ndarray, size: int
    ) -> tuple[np.ndarray, np.ndarray]:
        """Draw the parameter given each total; return draws and the log marginal of the totals.

        The second is the log of p(total) under the prior, minus infinity for totals that no
        records can have.
        """

    @abstractmethod
    def estimate(self, totals: np.ndarray, size: int) -> tuple[np.ndarray, np.ndarray]:
        """Return an estimate of the parameter for each total, and its sampling variance."""

    @abstractmethod
    def resample(
        self, rng: np.random.Generator, total: np.ndarray, size: int, repeats: int
    ) -> np.ndarray:
        """Draw totals of records from the model fitted to one total."""


class SummarisedFamily(Family):
    """A family whose posterior has moments that one record cannot move far."""

    @abstractmethod
    def summary_bounds(self, size: int) -> SummaryBounds:
        """Return how far one record can move the moments of the posterior."""

    @abstractmethod
    def summary_totals(self, records: Any) -> tuple[int, ...]:
        """Return the records as the integers that the moments of the posterior follow from."""

    @abstractmethod
    def summary(self, totals: tuple[int, ...], size: int) -> tuple[float, float]:
        """Return the posterior's mean above the lower end of its range, and standard deviation."""


class SimulatedFamily(SummarisedFamily):
    """A family of one parameter, which is all there is to know to simulate its totals."""

    @abstractmethod
    def totals_at(
        self, rng: np.random.Generator, parameter: float, size: int, draws: int
    ) -> np.ndarray:
        """Draw totals of clipped records at a parameter, shape (draws, 1)."""


def numbers(records: Any, columns: int | None = None, least: int = 1) -> np.ndarray:
    """Return records as finite floats, of shape (n,) or (n, columns)."""
    array = rows("records", records, columns)
    if len(array) < least:
        raise ReleaseError(
            f"records must be {least} or more, for their statistics to say anything; got "
            f"{len(array)}."
        )
    return array


def checked_pair(name: str, bounds: Any) -> tuple[float, float]:
    """Return (low, high), finite and in this order."""
    meaning = "chosen without looking at the records"
    low, high = pair(name, bounds, meaning=meaning, error=ReleaseError)
    if max(-low, high, 1 / (high - low)) > _FURTHEST:
        wanted = "numbers of at most 2^200 that are 2^-200 or more apart"
        raise refusal(name, wanted, bounds, meaning=meaning, error=ReleaseError)
    return low, high


def checked_prior(prior: Any, meaning: str, *, zero_rate: bool = False) -> tuple[float, float]:
    """Return the two parameters of a prior, both > 0, or the second at least 0."""
    wanted: dict[str, Any] = {"shapes": [(2,)], "meaning": meaning, "error": ReleaseError}
    first, second = reals("prior", prior, least=0.0, most=float(MOST), **wanted)
    if first <= 0 or (second <= 0 and not zero_rate):
        reals("prior", prior, above=0.0, **wanted)
    return float(first), float(second)
