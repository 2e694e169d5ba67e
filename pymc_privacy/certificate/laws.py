"""Whether draws of records have the law that the model gives them, found out from few of them."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from scipy.special import digamma

from pymc_privacy.certificate.base import Comparison, Reference
from pymc_privacy.model.database import Database
from pymc_privacy.model.points import Point

# Rows that are looked at, the most draws of all records, and standard errors allowed.
_ROWS, _MOST_DRAWS, _ERRORS = 4000, 32, 6.0
# What should have happened so often does not happen at all once in a million times.
_NEVER_SEEN = 14.0

Draw = Callable[[np.random.Generator], Point]


def law_gap(
    what: str,
    reference: Reference,
    database: Database,
    points: tuple[Point, Point],
    draws: tuple[Draw, Draw],
) -> Comparison:
    """Compare draws of records at two values of the parameters with their two laws f and g.

    For every pair of densities E_f[g / (f + g)] = E_g[f / (f + g)], and both means are of
    numbers between 0 and 1. What is returned is the difference, in standard errors.
    """
    rng = np.random.default_rng(41)
    rows = reference.rows([rv.name for rv in database.records], database.size)
    number = min(_MOST_DRAWS, math.ceil(_ROWS / database.size))
    gaps = []
    for child in rng.spawn(number):
        shares = []
        for draw, one in zip(draws, child.spawn(2), strict=True):
            x = draw(one)
            logs = [rows(point | x) for point in points]
            with np.errstate(all="ignore"):
                shares.append(np.nan_to_num(logs[1] - logs[0], nan=0.0))
        with np.errstate(over="ignore"):
            gaps.append(1 / (1 + np.exp(-shares[0])) - 1 / (1 + np.exp(shares[1])))
    gap = np.concatenate(gaps)
    # Where one value is nearly certain, what balances the two means is too rare to be drawn.
    error = max(gap.std() / math.sqrt(gap.size), _NEVER_SEEN / _ERRORS / gap.size)
    return Comparison(f"{what}, in standard errors", 0.0, gap.mean() / error, tolerance=_ERRORS)


def mean_log_range(number: int) -> float:
    """Return the mean of the log of the range of some uniform numbers."""
    return float(digamma(number - 1) - digamma(number + 1))
