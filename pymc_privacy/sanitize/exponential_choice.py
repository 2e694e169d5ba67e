"""One of many cells, drawn with probability ∝ the exponential of its score, exactly.

The bounds are cut into a fixed number of cells. Random bits are compared with decimals, to as many
digits as it takes. Scores are fractions and comparisons have error bounds, so that the proof is
about the code as it runs.
"""

from __future__ import annotations

import bisect
import itertools
from decimal import Context, Decimal, localcontext
from fractions import Fraction

import numpy as np

from pymc_privacy.sanitize.exact_noise import RandBelow

CELLS = 2**20
_EXPONENTS = 10**9  # weights below ten to the minus this count as nothing, within the error bound


def cells_of(values: np.ndarray, bounds: tuple[float, float]) -> np.ndarray:
    """Return the cell of each value, clipped to the bounds: of each by itself, and monotone.

    Examples
    --------
    >>> cells_of(np.array([-1.0, 0.5, 7.0]), (0.0, 1.0)).tolist() == [0, CELLS // 2, CELLS - 1]
    True
    """
    low, high = bounds
    inside = (np.clip(values, low, high) - low) / (high - low)
    return np.minimum(np.floor(inside * CELLS).astype(np.int64), CELLS - 1)


def middle_of(cell: int, bounds: tuple[float, float]) -> float:
    """Return the middle of a cell.

    Examples
    --------
    >>> middle_of(CELLS // 2, (-1.0, 1.0)) == 1 / CELLS
    True
    """
    low, high = bounds
    return low + (high - low) * ((cell + 0.5) / CELLS)


def select(randbelow: RandBelow, cells: np.ndarray, rank: Fraction, rate: Fraction) -> int:
    """Draw a cell with probability ∝ ``exp(-rate |values below it - rank|)``, exactly."""
    # Between the cells of two values all cells have the same number of values below them.
    ends, counts = np.unique(cells, return_counts=True)
    starts = [0, *(ends + 1).tolist()]
    lengths = np.diff([*starts, CELLS]).tolist()
    below = np.concatenate([[0], np.cumsum(counts)]).tolist()
    # What has no cells is left out: its weight is nothing, whatever its score.
    gaps = [k for k, length in enumerate(lengths) if length]
    exponents = [rate * abs(below[k] - rank) for k in gaps]
    gap = gaps[choose(randbelow, [lengths[k] for k in gaps], exponents)]
    return int(starts[gap]) + randbelow(int(lengths[gap]))


def choose(randbelow: RandBelow, lengths: list[int], exponents: list[Fraction]) -> int:
    """Draw an index with probability ∝ length exp(-exponent), exactly; all lengths are > 0.

    A uniform number is compared with the cumulated weights, in decimals with a bound on their
    error. Where that leaves the index open, number and weights are continued to more digits.
    """
    least = min(exponents)
    drawn, bits = 0, 0
    for digits in itertools.count(40, 40):
        drawn, bits = (drawn << 128) + randbelow(1 << 128), bits + 128
        with localcontext(Context(prec=digits, Emin=-_EXPONENTS, Emax=_EXPONENTS)):
            weights = [
                length * (Decimal((least - x).numerator) / (least - x).denominator).exp()
                for x, length in zip(exponents, lengths, strict=True)
            ]
            edges = list(itertools.accumulate(weights))
            point, step = Decimal(drawn) / (1 << bits), Decimal(1) / (1 << bits)
            # The exponent is right to x units of its last digit, and x exp(-x) <= 1; so each
            # weight is right to a few units of its last digit, and to a few times its length.
            error = (edges[-1] + CELLS) * len(edges) * Decimal(10) ** (3 - digits)
            first = bisect.bisect_right(edges, point * edges[-1] - error)
            last = bisect.bisect_right(edges, (point + step) * edges[-1] + error)
            if first == last < len(edges):
                return first
    raise AssertionError("unreachable")
