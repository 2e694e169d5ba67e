"""A family says what its records contribute, how far one can move the total, and what follows.

Totals have shape (J, d): J totals at a time, because every method looks at many. A family is fixed
before anybody looks at the records: its bounds are public.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

import numpy as np

from pymc_privacy.errors import ReleaseError

# Contributions are computed in floats; their errors are far below this share of the sensitivity.
ROUNDING = 2.0**-40
LEAST = 8  # records of a Normal model, so that all moments that are used exist


@dataclass(frozen=True)
class Summary:
    """Mean and standard deviation of a posterior, and how far one record can move each.

    Parameters
    ----------
    centre, spread : float
        Of the posterior given the records: confidential.
    centre_sensitivity, spread_sensitivity : float
        Suprema over all pairs of neighbours: public.
    largest_spread : float
        The largest standard deviation that any records could give: public.
    """

    centre: float
    spread: float
    centre_sensitivity: float
    spread_sensitivity: float
    largest_spread: float


class Family(ABC):
    """A model of records whose statistic is a total of bounded contributions."""

    name: str

    @property
    @abstractmethod
    def contribution_bounds(self) -> Any:
        """Return public bounds of the contributions, one pair or one for each column."""

    @property
    @abstractmethod
    def sensitivity(self) -> tuple[float, str] | None:
        """Return an L1 sensitivity below that of the bounds with its proof, or None."""

    @property
    @abstractmethod
    def support(self) -> tuple[float, float]:
        """Return the range of the parameter."""

    @abstractmethod
    def contributions(self, records: Any) -> np.ndarray:
        """Return what each record adds, clipped."""

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

    @abstractmethod
    def summary(self, records: Any) -> Summary | None:
        """Return the closed form of the posterior, or None where its sensitivity is not bounded."""


def numbers(records: Any, columns: int = 1) -> np.ndarray:
    """Return records as finite floats, of shape (n,) or (n, columns)."""
    array = np.asarray(records)
    shape = "(n,)" if columns == 1 else f"(n, {columns})"
    fits = array.ndim == 1 if columns == 1 else array.ndim == 2 and array.shape[1] == columns
    if array.dtype.kind not in "iufb" or not fits or not len(array):
        raise ReleaseError(
            f"records must be numbers of shape {shape}, with a row or more; got {array.dtype} of "
            f"shape {array.shape}."
        )
    if not np.all(np.isfinite(array)):
        raise ReleaseError(
            "records must be finite, because clipping would turn what is missing into a value "
            "nobody reported; got NaN or infinity."
        )
    return array.astype(np.float64)


def checked_pair(name: str, bounds: Any) -> tuple[float, float]:
    """Return (low, high), finite and in this order."""
    pair = np.asarray(bounds, dtype=np.float64)
    if pair.shape != (2,) or not np.all(np.isfinite(pair)) or not pair[0] < pair[1]:
        raise ReleaseError(
            f"{name} must be a pair (low, high) of finite numbers with low < high, chosen without "
            f"looking at the records; got {bounds!r}."
        )
    return float(pair[0]), float(pair[1])
