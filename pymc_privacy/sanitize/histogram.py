"""The P3 histogram of Liu et al. (PRECISE), Algorithm 1, in both its versions.

This is a faithful implementation of a method whose privacy claim does not hold; `precise` says why.
What the paper leaves open was settled by what reproduces its Table 4: count thresholds default to
0, that is, from the first to the last bin that is not empty; a tail of no bins makes no bin.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, Protocol

import numpy as np

from pymc_privacy.arguments import flag, generator, integer, pair, positive, real, reals, refusal
from pymc_privacy.errors import GuaranteeError

_MOST_BINS = 10**7
_SMALLEST = 1e-300  # of epsilon and mu: one over it is a number


class Collapse(Protocol):
    """A rule that merges the outer bins before noise is added."""

    fixed: ClassVar[bool]
    """Whether the rule is blind to the counts."""

    def kept(self, where: np.ndarray, bins: int) -> tuple[int, int]:
        """Return the first and the last bin that are not merged, given the bin of each draw."""


@dataclass(frozen=True)
class CountCollapse:
    """Merge the outer bins up to the first, and from the last, whose count exceeds a threshold.

    Examples
    --------
    >>> CountCollapse().kept(np.array([4, 2, 2]), bins=6)
    (2, 4)
    """

    lower: int = 0
    upper: int = 0
    fixed: ClassVar[bool] = False

    def __post_init__(self) -> None:
        for name in ("lower", "upper"):
            integer(name, getattr(self, name), least=0, meaning="a count", error=GuaranteeError)

    def kept(self, where: np.ndarray, bins: int) -> tuple[int, int]:
        """Return the range of bins above the thresholds; all of them where there is none."""
        occupied, counts = np.unique(where, return_counts=True)
        above_lower, above_upper = occupied[counts > self.lower], occupied[counts > self.upper]
        if not above_lower.size or not above_upper.size:
            return 0, bins - 1
        return int(above_lower[0]), int(above_upper[-1])


@dataclass(frozen=True)
class ProportionCollapse:
    """Merge a fixed share of the bins at each end, whatever their counts.

    Examples
    --------
    >>> ProportionCollapse(lower=0.02, upper=0.03).kept(np.array([50]), bins=100)
    (2, 96)
    """

    lower: float = 0.02
    upper: float = 0.02
    fixed: ClassVar[bool] = True

    def __post_init__(self) -> None:
        meaning = "a share of the bins, less than half"
        for name in ("lower", "upper"):
            limits: dict[str, float] = {"least": 0.0, "below": 0.5}
            real(name, getattr(self, name), meaning=meaning, error=GuaranteeError, **limits)

    def kept(self, where: np.ndarray, bins: int) -> tuple[int, int]:
        """Return bins b with lower < b / B <= 1 - upper, b counting from 1."""
        first = math.floor(round(self.lower * bins, 9))
        last = math.floor(round((1 - self.upper) * bins, 9)) - 1
        return min(first, max(last, 0)), max(last, 0)


@dataclass(frozen=True)
class NoCollapse:
    """Merge nothing."""

    fixed: ClassVar[bool] = True

    def kept(self, where: np.ndarray, bins: int) -> tuple[int, int]:
        """Return all bins."""
        return 0, bins - 1


_RULES: dict[str | None, Collapse] = {
    "count": CountCollapse(),
    "proportion": ProportionCollapse(),
    None: NoCollapse(),
}


def collapse_rule(collapse: object) -> Collapse:
    """Return the rule of a name, or the rule itself."""
    if isinstance(collapse, CountCollapse | ProportionCollapse | NoCollapse):
        return collapse
    if collapse is None or (isinstance(collapse, str) and collapse in _RULES):
        return _RULES[collapse]
    raise refusal(
        "collapse",
        '"count", "proportion", None, or one of CountCollapse and ProportionCollapse with '
        "thresholds of their own",
        collapse,
        error=GuaranteeError,
    )


@dataclass(frozen=True)
class P3Histogram:
    """Noisy counts of posterior draws in bins, of which the outer ones may be merged.

    Parameters
    ----------
    edges : ndarray
        Of the bins, one more than counts.
    counts : ndarray
        With noise.
    samples : int
        The number of draws that were counted.
    """

    edges: np.ndarray
    counts: np.ndarray
    samples: int

    def quantile(self, rng: np.random.Generator, q: float, *, total: float) -> float:
        """Return a private quantile after Algorithm 2: uniform in the bin that comes closest.

        Below the median counts are added up from the left until they are closest to q total, above
        it from the right until they are closest to (1 - q) total. Ties go to the smaller index.
        """
        q = real("q", q, least=0, most=1, error=GuaranteeError)
        total = real("total", total, error=GuaranteeError)
        generator("rng", rng, error=GuaranteeError)
        if q <= 0.5:
            cumulated, target = np.cumsum(self.counts), q * total
        else:
            cumulated, target = np.cumsum(self.counts[::-1])[::-1], (1 - q) * total
        chosen = int(np.argmin(np.abs(cumulated - target)))
        return float(rng.uniform(self.edges[chosen], self.edges[chosen + 1]))


def p3_histogram(
    rng: np.random.Generator,
    draws: np.ndarray,
    *,
    bounds: tuple[float, float],
    bin_width: float,
    epsilon: float | None = None,
    mu: float | None = None,
    collapse: Collapse | None = None,
    nonnegative: bool = True,
) -> P3Histogram:
    """Count draws in bins, merge the outer ones, and add noise of scale 1 / epsilon or 1 / mu.

    The scale takes the sensitivity of the counts for 1 (Theorem 3 of the paper), which is false:
    the theorem bounds one bin and drops the sum over all of them. Draws beyond the bounds are
    counted in the outermost bins.

    Parameters
    ----------
    rng : np.random.Generator
    draws : ndarray
        Of the posterior, one dimension.
    bounds : (float, float)
    bin_width : float
        The last bin ends at the upper bound and may be narrower.
    epsilon, mu : float, optional
        Laplace noise, or Gaussian noise; one of the two.
    collapse : Collapse, optional
        `NoCollapse` by default.
    nonnegative : bool
        The "+" version: negative noisy counts become 0.

    Examples
    --------
    >>> rng = np.random.default_rng(1)
    >>> histogram = p3_histogram(
    ...     rng, rng.beta(5, 5, size=100), bounds=(0, 1), bin_width=0.125, epsilon=1.0
    ... )
    >>> len(histogram.counts)
    8
    """
    generator("rng", rng, error=GuaranteeError)
    draws = reals("draws", draws, shapes=[("m",)], confidential=True, error=GuaranteeError)
    low, high = pair("bounds", bounds, error=GuaranteeError)
    width = positive("bin_width", bin_width, error=GuaranteeError)
    scale = _scale(epsilon, mu)
    nonnegative = flag("nonnegative", nonnegative, error=GuaranteeError)
    collapse = collapse_rule(collapse)
    if not (high - low) / width <= _MOST_BINS:
        raise GuaranteeError(
            f"The bounds must hold at most {_MOST_BINS} bins; got {(high - low) / width:g}."
        )
    bins = max(1, math.ceil((high - low) / width - 1e-9))
    where = np.clip(np.floor((draws - low) / width), 0, bins - 1).astype(np.int64)
    first, last = collapse.kept(where, bins)
    # A tail of no bins makes no bin: there would be nothing to draw from.
    left, right = int(first > 0), int(last < bins - 1)
    merged = np.clip(where - first + left, 0, last - first + left + right)
    counts = np.bincount(merged, minlength=last - first + 1 + left + right)
    edges = low + width * np.arange(first, last + 1 + right)
    edges = np.concatenate([[low] * left, edges, [high]])
    if epsilon is not None:
        noisy = counts + rng.laplace(0, scale, len(counts))
    else:
        noisy = counts + rng.normal(0, scale, len(counts))
    noisy = np.maximum(noisy, 0.0) if nonnegative else noisy
    return P3Histogram(edges, noisy, len(draws))


def _scale(epsilon: float | None, mu: float | None) -> float:
    """Return 1 / epsilon or 1 / mu, of which one is given."""
    if (epsilon is None) == (mu is None):
        raise GuaranteeError(
            "One of epsilon= (Laplace noise) and mu= (Gaussian noise) must be given; got "
            f"{'neither' if epsilon is None else 'both'}."
        )
    name, value = ("epsilon", epsilon) if mu is None else ("mu", mu)
    return 1 / real(name, value, least=_SMALLEST, error=GuaranteeError)
