"""Shares of a whole: what a record contributes, how far one can move the totals, and the threshold.

Of a record x of d shares that add up to 1, Guo, Barrientos and Peña publish the logarithms of
max(x_j, a), and count in which of some intervals its smallest share is. The sensitivity of the
first that is proved here is smaller than theirs: shares that are large in one record add up to 1 at
most, so that they cannot all have gone from a to 1.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from pymc_privacy.accounting import Neighbours
from pymc_privacy.arguments import integer, neighbours, probability, reals, refusal
from pymc_privacy.errors import ArgumentError, PrivacyError, ReleaseError
from pymc_privacy.mechanisms.engines import is_tensor, log, smallest, stack, where
from pymc_privacy.sanitize.calibrate import exactly

# Shares are divided by their sum, and logarithms taken, in floats: each is wrong by far less.
ROUNDING = 2.0**-40
_MOST_PARTS = 2**16
_MOST_THRESHOLDS = 100  # their digits are in the name of what is counted
_NEAR = 1e-6  # of a sum of shares to 1


def log_share_sensitivity(
    parts: int, threshold: float, *, neighbours: Neighbours = "replace_one"
) -> float:
    r"""Return the exact L1 sensitivity of sums of censored log shares.

    Replacing one record moves :math:`\sum_i \log\max(x_i, a)` by at most

    .. math:: \max_{k + l \le d} \; k \log\frac{1}{k a} + l \log\frac{1}{l a}

    in L1, a term with k = 0 or l = 0 being 0. Where k shares grow, those of the new record add up
    to 1 at most, so that their logarithms add up to at most -k log k, while before each was log a
    or more; the same holds for l shares that shrink. It is attained by records that are uniform on
    k shares, and on l other ones. For d = 2 it is d log(1 / a), the bound of Guo et al.; for more
    shares it is less.

    Adding or removing a record moves it by (d - 1) log(1 / a) + log(1 / max(a, 1 - (d - 1) a)):
    the logarithm is concave, so that all shares but one are at most a where the most is lost.

    Parameters
    ----------
    parts : int
        How many shares a record has, two or more.
    threshold : float
        a, in (0, 1): shares below it count as a.
    neighbours : {"replace_one", "add_remove"}

    Returns
    -------
    float

    Raises
    ------
    ArgumentError
        If one of these is not what it must be.

    See Also
    --------
    release_composition : Publish the sums with such noise.
    log_shares : What is summed.

    References
    ----------
    - Guo, Q., Barrientos, A. F. and Peña, V., "Differentially private inference for compositional
      data".

    Examples
    --------
    Of what d log(1 / a) says, for three shares and for five:

    >>> import math
    >>> import pymc_privacy as pmp
    >>> round(pmp.log_share_sensitivity(3, 0.1) / (3 * math.log(10)), 3)
    0.799
    >>> round(pmp.log_share_sensitivity(5, 0.1) / (5 * math.log(10)), 3)
    0.593
    """
    d = checked_parts(parts)
    a = checked_threshold(threshold)
    if _checked_neighbours(neighbours) == "add_remove":
        return -(d - 1) * math.log(a) - math.log(max(a, 1 - (d - 1) * a))
    k = np.arange(d + 1)
    gained = -k * np.log(np.maximum(k, 1) * a)
    # The most that k shares or fewer can gain, and d - k shares or fewer can lose.
    best = np.maximum.accumulate(gained)
    return float(np.max(best + best[::-1]))


def log_shares(x: Any, threshold: float) -> Any:
    """Return log max(x, threshold), of arrays and of tensors.

    Parameters
    ----------
    x : array_like or tensor
        Shares, records on axis 0.
    threshold : float
        In (0, 1).

    Returns
    -------
    ndarray or tensor
        Of the shape of `x`.

    Raises
    ------
    ArgumentError
        If the threshold is not in (0, 1), or `x` is no table of finite numbers.

    See Also
    --------
    log_share_sensitivity : How far one record moves their sums.
    smallest_share_bins : What a threshold is chosen by.
    PrivatizedComposition : Puts both into a model.

    Examples
    --------
    >>> import pymc_privacy as pmp
    >>> pmp.log_shares([[1.0, 0.0], [0.5, 0.5]], 0.1).round(3).tolist()
    [[0.0, -2.303], [-0.693, -0.693]]
    """
    a, x = checked_threshold(threshold), _shares(x)
    # The logarithm of what is censored is never computed: it may be that of zero.
    return log(where(x > a, x, a))


def smallest_share_bins(x: Any, thresholds: Sequence[float]) -> Any:
    """Return, for each record, a one in the bin that its smallest share is in, and zeros.

    Bin m holds what is at least threshold m - 1 and below threshold m; the first begins at 0, and
    the last ends at 1.

    Parameters
    ----------
    x : array_like or tensor
        Shares of shape (n, d), records on axis 0.
    thresholds : sequence of float
        In (0, 1), increasing; 100 at most.

    Returns
    -------
    ndarray or tensor
        Integers of shape (n, len(thresholds) + 1).

    Raises
    ------
    ArgumentError
        If thresholds are not in (0, 1) and increasing, or `x` is no table of finite numbers.

    See Also
    --------
    select_threshold : What their noisy sums are for.
    log_shares : What is published with the threshold.

    Examples
    --------
    >>> import pymc_privacy as pmp
    >>> pmp.smallest_share_bins([[0.6, 0.4], [0.999, 0.001]], [0.01, 0.1]).tolist()
    [[0, 0, 1], [1, 0, 0]]
    """
    edges, x = checked_thresholds(thresholds), _shares(x)
    low = smallest(x)
    below = [where(low < edge, 1, 0) for edge in edges]
    between = [high - less for less, high in itertools.pairwise(below)]
    bins = stack([below[0], *between, 1 - below[-1]])
    return bins.astype("int64")


def select_threshold(
    noisy_counts: Any, thresholds: Sequence[float], *, censored: float = 0.01
) -> float:
    """Return the largest threshold below which at most a share of the records have a part.

    That share is estimated from noisy counts, negative ones taken for 0: of the cumulated counts
    over their total, the last that is at most `censored` says which threshold it is, and the first
    threshold is taken where none is. Where the total is 0, nothing is known to be censored. This is
    Algorithm 1 of Guo et al., with max(s, 0) where min(s, 0) is printed. It sees nothing but what
    was published, and so costs no privacy.

    Parameters
    ----------
    noisy_counts : array_like or Release
        Of `smallest_share_bins`, one more than thresholds.
    thresholds : sequence of float
        In (0, 1), increasing; 100 at most.
    censored : float
        In (0, 1).

    Returns
    -------
    float
        One of the thresholds.

    Raises
    ------
    ArgumentError
        If thresholds are not in (0, 1) and increasing, counts are not one more, or `censored` is
        not in (0, 1).

    See Also
    --------
    release_composition : Chooses a threshold and publishes with it.
    smallest_share_bins : What is counted.

    References
    ----------
    - Guo, Q., Barrientos, A. F. and Peña, V., "Differentially private inference for compositional
      data".

    Examples
    --------
    >>> import pymc_privacy as pmp
    >>> pmp.select_threshold([-2, 3, 40, 959], [0.001, 0.01, 0.1])
    0.01
    """
    edges = checked_thresholds(thresholds)
    wanted = probability("censored", censored, meaning="the share that may be censored")
    counts = reals(
        "noisy_counts",
        noisy_counts,
        shapes=[(len(edges) + 1,)],
        meaning="one more than thresholds, from the smallest shares to the largest",
    )
    exact = [max(Fraction(count), Fraction(0)) for count in counts.tolist()]
    most, reached, chosen = exactly(wanted) * sum(exact), Fraction(0), edges[0]
    for count, edge in zip(exact, edges, strict=False):
        reached += count
        if reached <= most:
            chosen = edge
    return chosen


# ---------------------------------------------------------------- totals of which more is known


@dataclass(frozen=True)
class LogShares:
    """Sums of censored log shares, as a total whose sensitivity is known."""

    parts: int
    threshold: float
    neighbours: Neighbours
    whole = False

    @property
    def name(self) -> str:
        """Return what is contributed."""
        return f"log max(x, {self.threshold!r}) of {self.parts} shares"

    @property
    def bounds(self) -> tuple[tuple[float, float], ...]:
        """Return the bounds of each contribution."""
        return ((math.log(self.threshold), 0.0),) * self.parts

    @property
    def l1(self) -> Fraction:
        """Return the L1 sensitivity, with what floats may get wrong."""
        exact = log_share_sensitivity(self.parts, self.threshold, neighbours=self.neighbours)
        return Fraction(exact * (1 + ROUNDING) + 2 * self.parts * ROUNDING)

    @property
    def proof(self) -> str:
        """Return the argument."""
        if self.neighbours == "add_remove":
            return (
                "Shares add up to 1, so that the largest is at least 1 - (d - 1) a where the "
                "others are at most a: (d - 1) log(1 / a) + log(1 / max(a, 1 - (d - 1) a))."
            )
        return (
            "Shares that grow add up to 1 at most, so that k of them gain at most "
            "k log(1 / (k a)), and l that shrink lose at most l log(1 / (l a)), with k + l at most "
            "the number of shares."
        )

    def of(self, shares: np.ndarray) -> np.ndarray:
        """Return what records contribute, one row each."""
        return np.asarray(log_shares(shares, self.threshold))

    def are(self, contributions: np.ndarray) -> bool:
        """Tell whether contributions are such, by all that the proof takes from them."""
        low = self.bounds[0][0]
        inside = np.all((contributions >= low) & (contributions <= 0))
        above = contributions > low
        shares = np.exp(contributions)
        most = np.where(above, shares, 0.0).sum(axis=1)
        # What is censored was at most the threshold.
        least = np.where(above, shares, self.threshold).sum(axis=1)
        return bool(inside and np.all((most <= 1 + ROUNDING / 2) & (least >= 1 - ROUNDING / 2)))


@dataclass(frozen=True)
class ShareBins:
    """Counts of smallest shares in bins, as a total whose sensitivity is known."""

    parts: int
    thresholds: tuple[float, ...]
    neighbours: Neighbours
    whole = True

    @property
    def name(self) -> str:
        """Return what is contributed."""
        edges = ", ".join(map(repr, self.thresholds))
        return f"smallest of {self.parts} shares in bins that end at {edges}, 1"

    @property
    def bounds(self) -> tuple[tuple[float, float], ...]:
        """Return the bounds of each contribution."""
        return ((0.0, 1.0),) * (len(self.thresholds) + 1)

    @property
    def l1(self) -> Fraction:
        """Return the L1 sensitivity: a record is in one bin."""
        return Fraction(2 if self.neighbours == "replace_one" else 1)

    @property
    def proof(self) -> str:
        """Return the argument."""
        return "Every record is counted in one bin."

    def of(self, shares: np.ndarray) -> np.ndarray:
        """Return what records contribute, one row each."""
        return np.asarray(smallest_share_bins(shares, self.thresholds), dtype=np.float64)

    def are(self, contributions: np.ndarray) -> bool:
        """Tell whether each row is a one and zeros."""
        flags = np.all((contributions == 0) | (contributions == 1))
        return bool(flags and np.all(contributions.sum(axis=1) == 1))


@dataclass(frozen=True)
class Shares:
    """Sums of the shares themselves, as a total whose sensitivity is known."""

    parts: int
    neighbours: Neighbours
    whole = False

    @property
    def name(self) -> str:
        """Return what is contributed."""
        return f"{self.parts} shares"

    @property
    def bounds(self) -> tuple[tuple[float, float], ...]:
        """Return the bounds of each contribution."""
        return ((0.0, 1.0),) * self.parts

    @property
    def l1(self) -> Fraction:
        """Return the L1 sensitivity, with what floats may get wrong."""
        exact = 2 if self.neighbours == "replace_one" else 1
        return Fraction(exact + 2 * self.parts * ROUNDING)

    @property
    def proof(self) -> str:
        """Return the argument."""
        return "Shares are not negative and add up to 1 in each record."

    def of(self, shares: np.ndarray) -> np.ndarray:
        """Return what records contribute, one row each."""
        return shares

    def are(self, contributions: np.ndarray) -> bool:
        """Tell whether rows are shares."""
        inside = np.all((contributions >= 0) & (contributions <= 1))
        return bool(inside and np.all(contributions.sum(axis=1) <= 1 + ROUNDING / 2))


_LOGS = re.compile(r"log max\(x, ([0-9.e+-]{1,30})\) of ([0-9]{1,5}) shares")
_BINS = re.compile(r"smallest of ([0-9]{1,5}) shares in bins that end at ([0-9.e+, -]{1,3000}), 1")
_SHARES = re.compile(r"([0-9]{1,5}) shares")


def shares_total(name: str, relation: Neighbours) -> LogShares | ShareBins | Shares | None:
    """Return the total of a name, or None; its public numbers are in the name.

    Examples
    --------
    >>> total = LogShares(3, 0.01, "replace_one")
    >>> shares_total(total.name, "replace_one") == total
    True
    """
    found: Any = None
    try:
        if match := _LOGS.fullmatch(name):
            found = LogShares(
                checked_parts(int(match[2])), checked_threshold(float(match[1])), relation
            )
        elif match := _BINS.fullmatch(name):
            edges = checked_thresholds([float(edge) for edge in match[2].split(", ")])
            found = ShareBins(checked_parts(int(match[1])), edges, relation)
        elif match := _SHARES.fullmatch(name):
            found = Shares(checked_parts(int(match[1])), relation)
    except ValueError:
        return None
    return found if found is not None and found.name == name else None


# ---------------------------------------------------------------- arguments


def checked_threshold(value: Any, error: type[PrivacyError] = ArgumentError) -> float:
    """Return a threshold, a number in (0, 1)."""
    meaning = "shares below it count as if they were as large; public, and chosen before"
    return probability("threshold", value, meaning=meaning, error=error)


def checked_thresholds(values: Any, error: type[PrivacyError] = ArgumentError) -> tuple[float, ...]:
    """Return thresholds, increasing in (0, 1)."""
    try:
        edges = reals("thresholds", values, shapes=[("m",)], above=0.0, below=1.0, error=error)
    except error:
        edges = np.empty(0)
    if not 0 < edges.size <= _MOST_THRESHOLDS or np.any(np.diff(edges) <= 0):
        wanted = f"numbers in (0, 1), 1 to {_MOST_THRESHOLDS}, each larger than the one before"
        meaning = "among which a threshold is chosen; public, and fixed before"
        raise refusal("thresholds", wanted, values, meaning=meaning, error=error)
    return tuple(edges.tolist())


def checked_parts(value: Any, error: type[PrivacyError] = ArgumentError) -> int:
    """Return how many shares a record has, two or more, and no more than a release has columns."""
    meaning = "how many shares a record has"
    return integer("parts", value, least=2, most=_MOST_PARTS, meaning=meaning, error=error)


def _checked_neighbours(value: Any) -> Neighbours:
    meaning = "whether the number of records is public"
    return neighbours(value, meaning=meaning)


def _shares(x: Any) -> Any:
    """Return tensors as they are, and all else as an array of finite numbers."""
    if not is_tensor(x):
        return reals("x", x, shapes=[("n", "d")], confidential=True)
    if x.ndim != 2:
        # The smallest entry of a vector would be that of several records.
        raise ArgumentError(f"x must be shares of shape (n, d); got a tensor of {x.ndim} axes.")
    return x


def whole_shares(table: np.ndarray) -> np.ndarray:
    """Return shares that add up to 1 in floats, row by row, or refuse rows that do not."""
    if np.any(table < 0):
        raise ReleaseError(
            "shares must not be negative, because they are parts of a whole; got some that are."
        )
    # What is above 1 is refused, and its sums are beyond all floats at times.
    sums = np.minimum(table, 2.0).sum(axis=1, keepdims=True)
    if np.any(np.abs(sums - 1) > _NEAR):
        raise ReleaseError(
            f"shares must add up to 1 in each row, up to {_NEAR:g}, because the sensitivity was "
            "proved for parts of a whole; got rows that do not. Divide each by its own sum first."
        )
    return np.asarray(table / sums)
