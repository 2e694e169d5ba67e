"""f-differential privacy: what the error of the first kind leaves for that of the second.

A trade-off function f is given as a function, or as statements (epsilon, delta), each of which
bounds it from below by a line and its mirror image (Dong, Roth & Su 2022, Proposition 2.12).
"Lemma A.8" is that of Awan et al. on an unknown sample size.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, cast

import numpy as np
from scipy.special import ndtr, ndtri

from pymc_privacy.accounting.guarantees import (
    ApproximateDP,
    GaussianDP,
    Guarantee,
    PureDP,
    ZeroConcentratedDP,
    checked,
    labels,
    replaced,
    settle,
)
from pymc_privacy.accounting.profiles import TINY, least_epsilon, solve
from pymc_privacy.arguments import Neighbours, function, shown
from pymc_privacy.errors import GuaranteeError

_GRID = np.concatenate([[0.0], np.geomspace(1e-9, 1e-2, 40), np.linspace(0.02, 1.0, 99)])
_CRUMBS = 1e-9  # by how much values of a user's function may miss its shape, by rounding
_ULPS = 8 * math.ulp(1.0)  # absolute rounding of a user's function, near 1
_POINTS = 2**12  # at which a function is looked at to bound it everywhere
_TABLE = 2**10  # statements by which a guarantee without a trade-off function is written down
_FURTHEST = 700.0  # an epsilon whose exponential is still a float


@dataclass(frozen=True)
class Statements:
    """The largest trade-off function below which no (epsilon, delta) of a list allows to go.

    The epsilons increase from 0 on or later, the deltas do not increase. One of them alone is the
    trade-off function of (epsilon, delta)-DP.
    """

    epsilons: tuple[float, ...]
    deltas: tuple[float, ...]

    def __call__(self, alpha: float) -> float:
        """Return max(0, 1 - delta - exp(epsilon) alpha, exp(-epsilon) (1 - delta - alpha))."""
        epsilons, left = np.array(self.epsilons), 1 - np.array(self.deltas)
        steep = left - np.exp(epsilons) * alpha
        flat = np.exp(-epsilons) * (left - alpha)
        return max(float(steep.max()), float(flat.max()), 0.0)

    def delta(self, epsilon: float) -> float:
        """Interpolate, linearly in exp(epsilon), the least convex function below all statements."""
        e, d = self._corners
        if epsilon >= e[-1]:
            return float(d[-1])
        after = int(np.searchsorted(e, epsilon, side="right"))
        low, high = e[after - 1], e[after]
        share = math.expm1(epsilon - low) / math.expm1(high - low)
        return float(d[after - 1] + (d[after] - d[after - 1]) * share)

    def fixed_point(self) -> float:
        """Return the largest of the fixed points (1 - delta) / (1 + exp(epsilon))."""
        left = 1 - np.array(self.deltas)
        return float((left / (1 + np.exp(self.epsilons))).max())

    @cached_property
    def _corners(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the lower convex hull, in (exp(epsilon), delta), from epsilon = 0 on.

        The mirror image of a statement is the same one: delta(-e) = 1 - exp(-e) (1 - delta(e)). By
        this symmetry the hull has its value at 0 from the first statement on both sides.
        """
        e, d = np.array(self.epsilons), np.array(self.deltas)
        mirrored = 1 - np.exp(-e) * (1 - d)
        points = sorted([*zip(-e, mirrored, strict=True), *zip(e, d, strict=True)])
        hull: list[tuple[float, float]] = []
        for point in points:
            if hull and point[0] == hull[-1][0]:
                hull[-1] = point
                continue
            while len(hull) > 1 and not _turns_up(hull[-2], hull[-1], point):
                hull.pop()
            hull.append(point)
        corners = np.array(hull)
        if corners[0, 0] < 0:
            zero = np.searchsorted(corners[:, 0], 0.0)
            if corners[zero, 0] > 0:
                # The hull crosses 0 on a segment between a statement and its image.
                (low, first), (high, last) = corners[zero - 1], corners[zero]
                share = math.expm1(-low) / math.expm1(high - low)
                corners = np.insert(corners, zero, (0.0, first + (last - first) * share), axis=0)
            corners = corners[zero:]
        return corners[:, 0], corners[:, 1]


def _turns_up(a: tuple[float, float], b: tuple[float, float], c: tuple[float, float]) -> bool:
    """Tell whether b lies below the line from a to c, in (exp(epsilon), delta)."""
    before = (a[1] - b[1]) / -math.expm1(a[0] - b[0])
    after = (b[1] - c[1]) / math.expm1(c[0] - b[0])
    return before > after


@dataclass(frozen=True)
class NormalTradeoff:
    """The trade-off function Phi(Phi^-1(1 - alpha) - mu) of N(0, 1) and N(mu, 1)."""

    mu: float

    def __call__(self, alpha: float) -> float:
        """Return the error of the second kind."""
        return float(ndtr(-ndtri(alpha) - self.mu))

    def delta(self, epsilon: float) -> float:
        """Return the profile of the two laws."""
        return GaussianDP(self.mu).delta(epsilon)

    def fixed_point(self) -> float:
        """Return Phi(-mu / 2)."""
        return float(ndtr(-self.mu / 2))


@dataclass(frozen=True)
class FDP(Guarantee):
    """Who tells neighbours apart with a false-alarm rate alpha misses with probability >= f(alpha).

    Parameters
    ----------
    tradeoff : callable
        f, from a float in [0, 1] to one in [0, 1]: convex, decreasing, at most 1 - alpha. Looked at
        on a grid; elsewhere it is taken on trust, as is that it holds. `FDP.of` makes one from any
        other guarantee.
    neighbours, unit
        As in `PureDP`.

    Raises
    ------
    GuaranteeError
        By the constructor, if the function is not one, has not this shape on a grid, is 1 - alpha
        (the release would not depend on the records), or neighbours or unit are no such labels.

    See Also
    --------
    GaussianDP : The trade-off function of two Normal laws.
    RenyiDP : Bounds divergences of chosen orders.
    compose : What several releases promise together.

    References
    ----------
    - Dong, J., Roth, A. and Su, W. J. (2022), "Gaussian differential privacy", Journal of the Royal
      Statistical Society, Series B 84(1), 3-37.
    - Awan, J., Barrientos, A. F. and Ju, N. (2024), "Statistical inference for privatized data with
      unknown sample size", arXiv:2406.06231.

    Examples
    --------
    >>> promise = FDP(lambda alpha: (1 - alpha) ** 2 if alpha < 1 else 0.0)
    >>> round(promise.fixed_point, 6), round(promise.to_total_variation(), 6)
    (0.381966, 0.236068)
    >>> round(FDP.of(GaussianDP(1.0)).to_approximate(1e-6).epsilon, 6)
    4.886554
    """

    tradeoff: Callable[[float], float]
    neighbours: Neighbours | None = field(default=None, kw_only=True)
    unit: str = field(default="one record", kw_only=True)

    def __post_init__(self) -> None:
        function("tradeoff", self.tradeoff, error=GuaranteeError)
        settle(self)
        if not isinstance(self.tradeoff, Statements | NormalTradeoff):
            _check_shape(self.tradeoff)

    @classmethod
    def of(cls, guarantee: Guarantee) -> "FDP":
        """Imply f-DP; the same promise for pure, approximate and Gaussian DP.

        Of Renyi divergences, and of zero-concentrated DP, a table of (epsilon, delta).
        """
        if isinstance(guarantee, cls):
            return guarantee
        if isinstance(guarantee, GaussianDP):
            return cls(NormalTradeoff(guarantee.mu), **labels(guarantee))
        if isinstance(guarantee, PureDP):
            return cls(Statements((guarantee.epsilon,), (0.0,)), **labels(guarantee))
        if isinstance(guarantee, ApproximateDP):
            whole = Statements((guarantee.epsilon,), (guarantee.delta,))
            return cls(whole, **labels(guarantee))
        if not isinstance(guarantee, Guarantee):
            raise GuaranteeError(
                f"FDP.of must be given a guarantee, such as PureDP(1.0); got {shown(guarantee)}."
            )
        return cls(tabulated(guarantee), **labels(guarantee))

    @cached_property
    def fixed_point(self) -> float:
        """The c with f(c) = c, from below."""
        if isinstance(self.tradeoff, Statements | NormalTradeoff):
            return self.tradeoff.fixed_point()
        low, high = 0.0, 0.5
        while high - low > 1e-16 * high:
            middle = (low + high) / 2
            if middle in (low, high):
                break
            low, high = (middle, high) if self.at(middle) > middle + _ULPS else (low, middle)
        return low

    def at(self, alpha: float) -> float:
        """Return f(alpha), the least probability of a miss."""
        return float(self.tradeoff(alpha))

    def delta(self, epsilon: float) -> float:
        """Bound the profile sup(1 - f(alpha) - exp(epsilon) alpha); Dong et al., Proposition 2.12.

        The same is true of the inverse of f, and the smaller one of the two is returned.
        """
        epsilon = checked("epsilon", epsilon, zero=True)
        if isinstance(self.tradeoff, Statements | NormalTradeoff):
            return self.tradeoff.delta(epsilon)
        return min(_steepest(self.at, epsilon), self.to_total_variation())

    def renyi(self, alpha: float) -> float:
        """Imply no bound on a Renyi divergence, except where f is that of two Normal laws."""
        if isinstance(self.tradeoff, NormalTradeoff):
            return GaussianDP(self.tradeoff.mu).renyi(alpha)
        raise GuaranteeError(
            "The trade-off function must be that of Gaussian DP to imply Renyi divergences (of "
            f"another one they may be unbounded); got {self}."
        )

    def to_approximate(self, delta: float) -> ApproximateDP:
        """Imply (epsilon, delta)-DP with the smallest epsilon of the profile."""
        delta = checked("delta", delta, zero=isinstance(self.tradeoff, Statements))
        most = 1.0
        while self.delta(most) > delta:
            if most > _FURTHEST:
                raise GuaranteeError(
                    "delta must be at least 1 - f(0) (the probability of an event that one "
                    f"neighbour alone makes possible), which is about {self.delta(most):g}; got "
                    f"{delta!r}."
                )
            most *= 2
        guess = (lambda: solve(self.delta, delta, most)) if delta else (lambda: most)
        epsilon = least_epsilon(self.delta, delta, guess)
        return ApproximateDP(epsilon, delta, **labels(self))

    def to_zero_concentrated(self) -> ZeroConcentratedDP:
        """Imply zCDP where f is that of two Normal laws, and never otherwise."""
        if isinstance(self.tradeoff, NormalTradeoff):
            return GaussianDP(self.tradeoff.mu, **labels(self)).to_zero_concentrated()
        raise GuaranteeError(
            "The trade-off function must be that of Gaussian DP to imply zero-concentrated DP (of "
            f"another one Renyi divergences may be unbounded); got {self}."
        )

    def to_total_variation(self) -> float:
        """Bound it by 1 - 2 c with the fixed point c of f; Lemma A.8 (1), tight."""
        if isinstance(self.tradeoff, NormalTradeoff):
            return GaussianDP(self.tradeoff.mu).to_total_variation()
        return min(1 - 2 * self.fixed_point + _ULPS, 1.0)

    def to_replace_one(self) -> "FDP":
        """Imply f(1 - f(alpha)) for a replacement; Dong, Roth & Su (2022), Theorem 2.14, k = 2."""
        if self.neighbours != "add_remove":
            return cast(FDP, replaced(self))
        if isinstance(self.tradeoff, NormalTradeoff):
            twice: Callable[[float], float] = NormalTradeoff(2 * self.tradeoff.mu)
        else:
            twice = Twice(self.tradeoff)
        return replace(self, tradeoff=twice, neighbours="replace_one")

    def _measure(self) -> str:
        return f"f-DP (trade-off function with fixed point {self.fixed_point:.4g})"


@dataclass(frozen=True)
class Twice:
    """The trade-off function f(1 - f(alpha)) of two steps."""

    tradeoff: Callable[[float], float]

    def __call__(self, alpha: float) -> float:
        """Return the error of the second kind."""
        return float(self.tradeoff(1 - float(self.tradeoff(alpha))))


def tabulated(guarantee: Guarantee) -> Statements:
    """Return statements that a guarantee implies, close enough to stand for it.

    Not as strong: its own epsilon at a delta may be a little smaller.
    """
    epsilons = table_up_to(furthest(guarantee, 1e-18))
    deltas = np.minimum(profiles_at(guarantee, epsilons), guarantee.to_total_variation())
    return Statements(tuple(epsilons), tuple(deltas.tolist()))


def table_up_to(reach: float) -> list[float]:
    """Return the epsilons of a table, closer to each other near 0."""
    return list((reach * np.linspace(0.0, 1.0, _TABLE) ** 2).tolist())


def profile(guarantee: Guarantee, epsilon: float) -> float:
    """Return the delta of any guarantee at an epsilon >= 0."""
    if isinstance(guarantee, ApproximateDP):
        return Statements((guarantee.epsilon,), (guarantee.delta,)).delta(epsilon)
    return float(cast(Any, guarantee).delta(epsilon))


def profiles_at(guarantee: Guarantee, epsilons: Sequence[float]) -> np.ndarray:
    """Return the deltas of a guarantee at many epsilons, a little above where f is a function."""
    f = guarantee.tradeoff if isinstance(guarantee, FDP) else None
    if f is None or isinstance(f, Statements | NormalTradeoff):
        return np.array([profile(guarantee, epsilon) for epsilon in epsilons])
    alphas, misses = _corners_below(f)
    most = guarantee.to_total_variation()
    found = [(1 - misses - math.exp(min(e, _FURTHEST)) * alphas).max() for e in epsilons]
    return np.clip(np.array(found) + _ULPS, TINY, most)


def _corners_below(f: Callable[[float], float]) -> tuple[np.ndarray, np.ndarray]:
    """Return points, the lower hull of which lies below a convex f.

    Between two points of a grid f lies above the chords of the intervals on both sides, extended to
    where they meet; and as it decreases, above its next value.
    """
    x = np.concatenate([[0.0], np.geomspace(1e-18, 1.0, _POINTS)])
    y = np.array([float(f(float(alpha))) for alpha in x])
    slopes = np.diff(y) / np.diff(x)
    corners, heights = x[:-1].copy(), y[1:].copy()
    before, after = slopes[:-2], slopes[2:]
    start, stop = x[1:-2], x[2:-1]
    with np.errstate(divide="ignore", invalid="ignore"):
        meet = (y[2:-1] - y[1:-2] + before * start - after * stop) / (before - after)
    # Beyond its interval they meet by rounding only.
    good, meet = np.flatnonzero(before < after), np.clip(meet, start, stop)
    corners[1 + good] = meet[good]
    from_left = y[1:-2][good] + before[good] * (meet - start)[good]
    from_right = y[2:-1][good] + after[good] * (meet - stop)[good]
    heights[1 + good] = np.minimum(from_left, from_right)
    # Where both chords are one line up to rounding, f is this line, and its ends are corners.
    apart = np.abs(before - after) * (stop - start)
    straight = np.flatnonzero(apart <= 8 * _ULPS)
    corners[1 + straight] = start[straight]
    heights[1 + straight] = y[1:-2][straight] - apart[straight]
    corners, heights = np.concatenate([corners, x]), np.concatenate([heights, y])
    return corners, heights


def furthest(guarantee: Guarantee, tail: float) -> float:
    """Return an epsilon beyond which the profile falls by no more than `tail`.

    Of a function by no more than its rounding, if that is larger.
    """
    if isinstance(guarantee, FDP) and not isinstance(
        guarantee.tradeoff, Statements | NormalTradeoff
    ):
        tail = max(tail, 4 * _ULPS)
    reach, end = _FURTHEST, profile(guarantee, _FURTHEST)
    while reach > 2.0**-20 and profile(guarantee, reach / 2) - end <= tail:
        reach /= 2
    return reach


def _steepest(f: Callable[[float], float], epsilon: float) -> float:
    """Bound the largest 1 - f(alpha) - exp(epsilon) alpha from above, f being convex.

    A search narrows down where it is; a concave function between two points lies below its chords
    outside of them.
    """
    slope = math.exp(min(epsilon, _FURTHEST))

    def gain(alpha: np.ndarray) -> np.ndarray:
        return np.array([1 - f(float(a)) for a in alpha]) - slope * alpha

    # Beyond 1 / slope the gain is negative.
    grid = np.concatenate([[0.0], np.geomspace(1e-18, 1.0, 60)]) * min(1.0, 1.0 / slope)
    for _ in range(12):
        values = gain(grid)
        top = int(values.argmax())
        low, high = max(top - 2, 0), min(top + 2, len(grid) - 1)
        bound = _above(grid, values, top)
        if bound - values[top] <= 1e-15 * bound:
            break
        grid = np.linspace(grid[low], grid[high], 33)
    return float(min(max(bound + _ULPS, TINY), 1.0))


def _above(x: np.ndarray, y: np.ndarray, top: int) -> float:
    """Bound a concave function next to its largest known value by its chords, extended."""
    last = len(x) - 1
    slopes = np.diff(y) / np.diff(x)
    # Right of the top lies the chord from its left, or left of the next point the one beyond it.
    right = left = y[top]
    if 0 < top < last:
        right = y[top] + slopes[top - 1] * (x[top + 1] - x[top])
        left = y[top] - slopes[top] * (x[top] - x[top - 1])
    elif top == 0:
        right = y[1] - slopes[1] * (x[1] - x[0])
    else:
        left = y[last - 1] + slopes[last - 2] * (x[last] - x[last - 1])
    return float(max(left, right, y[top]))


def _check_shape(f: Callable[[float], float]) -> None:
    """Refuse what is not convex, decreasing and at most 1 - alpha on a grid."""
    try:
        values = np.array([float(f(float(alpha))) for alpha in _GRID])
    except (TypeError, ValueError, ArithmeticError) as error:
        raise GuaranteeError(
            "tradeoff must return a number for a number in [0, 1] (the least probability of a miss "
            f"for a false-alarm rate); got {type(error).__name__}: {error}."
        ) from error
    slopes = np.diff(values) / np.diff(_GRID)
    # An error of `_CRUMBS` in a value is one of this size in a slope.
    crumbs = _CRUMBS / np.diff(_GRID)
    wrong = [
        (~(values >= 0) | ~(values <= 1 - _GRID + _CRUMBS), "be from 0 to 1 - alpha"),
        (slopes > crumbs, "not increase"),
        (np.diff(slopes) < -crumbs[1:] - crumbs[:-1], "be convex"),
        (np.full(1, bool(np.all(values >= 1 - _GRID))), "be below 1 - alpha somewhere"),
    ]
    for where, what in wrong:
        if where.any():
            at = float(_GRID[int(where.argmax())])
            raise GuaranteeError(
                f"tradeoff must {what} (it is a least probability of a miss, of the best test at "
                f"each false-alarm rate alpha); got {float(f(at))!r} at alpha = {at:g}."
            )
