"""Quantiles by the exponential mechanism: `pp_quantile` of a posterior, `private_quantile` of data.

The bounds are cut into a fixed number of cells. A cell is drawn with probability ∝ the exponential
of its score, exactly: by comparing random bits with decimals, to as many digits as it takes. Output
and comparisons are integers and decimals with error bounds, so that the proof is about the code as
it runs.
"""

from __future__ import annotations

import bisect
import itertools
import math
from decimal import Decimal, localcontext
from fractions import Fraction
from typing import Any

import numpy as np

from pymc_privacy.accounting import Neighbours, PureDP
from pymc_privacy.errors import GuaranteeError, ReleaseError
from pymc_privacy.sanitize.calibrate import exactly
from pymc_privacy.sanitize.exact_noise import ExactNoise, RandBelow
from pymc_privacy.sanitize.interval import PrivateInterval, checked_prob
from pymc_privacy.sanitize.lattice import checked_bounds
from pymc_privacy.sanitize.ledger import Ledger

_CELLS = 2**20


def pp_quantile(
    draws: Any,
    quantile: float,
    *,
    bounds: tuple[float, float],
    epsilon: float,
    ledger: Ledger | None = None,
) -> float:
    """Return a posterior quantile by the exponential mechanism: PPquantile (Liu et al., Alg. 3).

    It is epsilon-DP whatever the draws are: a point with j of the m draws below it has a weight of
    ``exp(-epsilon |j - k| / (2 (m + 1)))``, which lies in [exp(-epsilon / 2), 1], against a uniform
    law that depends on no data. For the same reason it is nearly uniform on the bounds, and of no
    use where epsilon is small.

    Parameters
    ----------
    draws : array_like
        Of one parameter.
    quantile : float
        In (0, 1); k is the rank of this quantile among the draws.
    bounds : (float, float)
        Fixed before looking at the data.
    epsilon : float
    ledger : Ledger, optional

    Examples
    --------
    >>> import numpy as np
    >>> import pymc_privacy as pmp
    >>> draws = np.random.default_rng(1).beta(31, 71, size=100)
    >>> 0 < pmp.pp_quantile(draws, 0.5, bounds=(0, 1), epsilon=1.0) < 1
    True
    """
    values, pair = _sorted(draws, "draws"), _pair(bounds)
    q, exact = _checked_quantile(quantile), exactly(PureDP(epsilon).epsilon)
    _charge(ledger, epsilon, "replace_one", "pp_quantile")
    return _posterior_quantile(ExactNoise().randbelow, values, q, pair, exact)


def private_quantile(
    records: Any,
    quantile: float,
    *,
    bounds: tuple[float, float],
    epsilon: float,
    neighbours: Neighbours,
    ledger: Ledger | None = None,
) -> float:
    """Return a quantile of the records themselves: PrivateQuantile (Smith 2011), epsilon-DP.

    A point with i of the n records below it has a weight of ``exp(-epsilon |i - q n| / 2)``.
    Replacing a record moves i by 1 at most, adding one moves i - q n by 1 at most: the exponential
    mechanism (McSherry & Talwar 2007) with a score of sensitivity 1.

    Parameters
    ----------
    records : array_like
        One number for each record; clipped to the bounds.
    quantile : float
        In (0, 1).
    bounds : (float, float)
        Fixed before looking at the data.
    epsilon : float
    neighbours : {"replace_one", "add_remove"}
    ledger : Ledger, optional

    Examples
    --------
    >>> import numpy as np
    >>> import pymc_privacy as pmp
    >>> incomes = np.random.default_rng(1).normal(50, 10, size=2000)
    >>> median = pmp.private_quantile(
    ...     incomes, 0.5, bounds=(0, 200), epsilon=1.0, neighbours="replace_one"
    ... )
    >>> 45 < median < 55
    True
    """
    values = _sorted(records, "records")
    rank = exactly(_checked_quantile(quantile)) * len(values)
    rate = exactly(PureDP(epsilon, neighbours=neighbours).epsilon) / 2
    _charge(ledger, epsilon, neighbours, "private_quantile")
    return _select(ExactNoise().randbelow, values, rank, rate, _pair(bounds))


def pp_interval(
    draws: Any,
    *,
    bounds: tuple[float, float],
    epsilon: float,
    prob: float = 0.95,
    ledger: Ledger | None = None,
    name: str = "parameter",
) -> PrivateInterval:
    """Return an interval of two `pp_quantile`, half the budget each: proven, and of little use.

    Parameters
    ----------
    draws, bounds, epsilon, ledger
        As for `pp_quantile`.
    prob : float
    name : str

    Examples
    --------
    >>> import numpy as np
    >>> import pymc_privacy as pmp
    >>> draws = np.random.default_rng(1).beta(31, 71, size=100)
    >>> pmp.pp_interval(draws, bounds=(0, 1), epsilon=1.0).label
    'proven'
    """
    tail = (1 - checked_prob(prob)) / 2
    values, pair = _sorted(draws, "draws"), _pair(bounds)
    guarantee = PureDP(epsilon, neighbours="replace_one")
    half = exactly(guarantee.epsilon) / 2
    if ledger is not None:
        ledger.charge(guarantee, what=name)
    below = ExactNoise().randbelow
    ends = [_posterior_quantile(below, values, q, pair, half) for q in (tail, 1 - tail)]
    return PrivateInterval(
        lower=ends[0],
        upper=ends[1],
        prob=prob,
        method="PPquantile",
        label="proven",
        assumptions=("Coverage: none is known; the two ends are nearly uniform on the bounds.",),
        guarantee=guarantee,
        name=name,
    )


def _posterior_quantile(
    randbelow: RandBelow,
    values: np.ndarray,
    quantile: float,
    bounds: tuple[float, float],
    epsilon: Fraction,
) -> float:
    """Return the quantile of sorted draws after Algorithm 3."""
    rank = math.ceil(exactly(quantile) * len(values))
    return _select(randbelow, values, Fraction(rank), epsilon / (2 * (len(values) + 1)), bounds)


def _select(
    randbelow: RandBelow,
    values: np.ndarray,
    rank: Fraction,
    rate: Fraction,
    bounds: tuple[float, float],
) -> float:
    """Draw a cell with probability ∝ exp(-rate |values below it - rank|), exactly."""
    low, high = bounds
    inside = (np.clip(values, low, high) - low) / (high - low)
    cells = np.minimum(np.floor(inside * _CELLS).astype(np.int64), _CELLS - 1)
    # Between the cells of two values all cells have the same number of values below them.
    ends, counts = np.unique(cells, return_counts=True)
    lengths = np.diff([-1, *ends.tolist(), _CELLS - 1])
    below = np.concatenate([[0], np.cumsum(counts)])
    gap = _choose(randbelow, lengths.tolist(), [rate * abs(int(i) - rank) for i in below])
    cell = int([0, *(ends + 1).tolist()][gap]) + randbelow(int(lengths[gap]))
    return low + (high - low) * (cell + 0.5) / _CELLS


def _choose(randbelow: RandBelow, lengths: list[int], exponents: list[Fraction]) -> int:
    """Draw an index with probability ∝ length exp(-exponent), exactly.

    A uniform number is compared with the cumulated weights, in decimals with a bound on their
    error. Where that leaves the index open, number and weights are continued to more digits.
    """
    least = min(x for x, length in zip(exponents, lengths, strict=True) if length)
    drawn, bits = 0, 0
    for digits in itertools.count(40, 40):
        drawn, bits = (drawn << 128) + randbelow(1 << 128), bits + 128
        with localcontext(prec=digits, Emin=-(10**9), Emax=10**9):
            weights = [
                length * (Decimal((least - x).numerator) / (least - x).denominator).exp()
                for x, length in zip(exponents, lengths, strict=True)
            ]
            edges = list(itertools.accumulate(weights))
            point, step = Decimal(drawn) / (1 << bits), Decimal(1) / (1 << bits)
            # The exponent is right to x units of its last digit, and x exp(-x) <= 1; so each
            # weight is right to a few units of its last digit, and to a few times its length.
            error = (edges[-1] + _CELLS) * len(edges) * Decimal(10) ** (3 - digits)
            first = bisect.bisect_right(edges, point * edges[-1] - error)
            last = bisect.bisect_right(edges, (point + step) * edges[-1] + error)
            if first == last < len(edges):
                return first
    raise AssertionError("unreachable")


def _sorted(values: Any, what: str) -> np.ndarray:
    array = np.sort(np.asarray(values, dtype=np.float64).ravel())
    if not array.size or not np.all(np.isfinite(array)):
        raise ReleaseError(
            f"{what} must be finite numbers, one or more; got {array.size} values, or NaN or "
            "infinity among them."
        )
    return array


def _pair(bounds: Any) -> tuple[float, float]:
    [pair], _ = checked_bounds(bounds)
    return pair


def _checked_quantile(quantile: float) -> float:
    if not (isinstance(quantile, int | float) and 0 < quantile < 1):
        raise GuaranteeError(f"quantile must be a number in (0, 1); got {quantile!r}.")
    return float(quantile)


def _charge(ledger: Ledger | None, epsilon: float, neighbours: Neighbours, what: str) -> None:
    if ledger is not None:
        ledger.charge(PureDP(epsilon, neighbours=neighbours), what=what)
