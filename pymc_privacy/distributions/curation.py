"""What a curator did to contributions before adding them up, done again to those of a model."""

from __future__ import annotations

import math

import numpy as np
import pytensor.tensor as pt

from pymc_privacy._compat import TensorVariable
from pymc_privacy.errors import ReleaseError
from pymc_privacy.model.support import finite_support
from pymc_privacy.sanitize import Release
from pymc_privacy.sanitize.lattice import Lattice

# Rounding to a lattice moves a log density by at most half a cell / scale for each record. It is
# left out where that is nothing, since what is rounded has no slope.
_FINE = 2.0**-20


def as_curated(name: str, contributions: TensorVariable, release: Release) -> TensorVariable:
    """Return contributions clipped to the bounds of a card, and rounded to its lattice if coarse.

    A single number is a total, which nobody clips. On a lattice the continuous law of the noise
    is proportional to the discrete one that was drawn from, so that rounding makes it exact.
    """
    if contributions.ndim == 0:
        return contributions
    lattice = release.lattice
    _check_bounds(name, contributions, lattice)
    if contributions.dtype == "bool":
        contributions = contributions.astype("int64")
    whole = np.dtype(contributions.dtype).kind in "iu"
    ends = [(math.ceil(low), math.floor(high)) for low, high in lattice.bounds]
    # The granularity is a power of two: integers are on every lattice that is not coarser.
    if whole and lattice.granularity <= 1 and _is_within(contributions, ends):
        return contributions
    if whole and lattice.granularity == 1:
        low, high = np.array(ends, dtype=np.int64).T
        clipped = _clipped(contributions.astype("int64"), low, high, scalar=lattice.scalar)
        return clipped.astype("int64")
    low, high = np.array(lattice.bounds).T
    clipped = _clipped(contributions.astype("float64"), low, high, scalar=lattice.scalar)
    if lattice.granularity == 1:
        return pt.round(clipped, mode="half_to_even").astype("int64")
    if lattice.granularity > _FINE * release.scale:
        units = pt.round(clipped / lattice.granularity, mode="half_to_even")
        return units * lattice.granularity
    return clipped


def _check_bounds(name: str, contributions: TensorVariable, lattice: Lattice) -> None:
    shape, bounds = contributions.type.shape, np.array(lattice.bounds, dtype=np.float64)
    pairs = bounds.ndim == 2 and (len(bounds) == 1 or not lattice.scalar)
    if not (pairs and np.isfinite(bounds).all() and (bounds[:, 0] < bounds[:, 1]).all()):
        raise ReleaseError(
            f"The card of {name!r} must say to which bounds contributions were clipped, a pair "
            "(low, high) for each column, because the posterior depends on them; got "
            f"{lattice.bounds!r}."
        )
    fits = len(shape) == 1 if lattice.scalar else shape[1:] == (len(bounds),)
    if not fits:
        wanted = "(n,)" if lattice.scalar else f"(n, {len(bounds)})"
        raise ReleaseError(
            f"The contributions to {name!r} must have shape {wanted}, as those that were released, "
            f"one pair of bounds per column; got shape {shape}."
        )


def _is_within(contributions: TensorVariable, ends: list[tuple[int, int]]) -> bool:
    """Tell whether records of few values are known to stay within their bounds."""
    support = None if contributions.owner is None else finite_support(contributions)
    return support is not None and all(
        low <= support[0] and support[1] <= high for low, high in ends
    )


def _clipped(
    contributions: TensorVariable, low: np.ndarray, high: np.ndarray, *, scalar: bool
) -> TensorVariable:
    if scalar:
        return pt.clip(contributions, low[0], high[0])
    if (low == low[0]).all() and (high == high[0]).all():
        return pt.clip(contributions, low[0], high[0])
    # Column by column, each with bounds of its own.
    columns = [pt.clip(contributions[:, k], low[k], high[k]) for k in range(len(low))]
    return pt.stack(columns, axis=1)
