"""Laplace noise of bounded reach: approximate privacy (Geng, Ding, Guo and Kumar, 2020)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numba.extending import register_jitable

from pymc_privacy.accounting import ApproximateDP, Neighbours
from pymc_privacy.arguments import generator
from pymc_privacy.errors import MechanismError
from pymc_privacy.mechanisms.base import AdditiveMechanism, real_statistic, settle_all
from pymc_privacy.mechanisms.engines import where
from pymc_privacy.mechanisms.laplace import LOG_TWO, laplace_interval


@register_jitable
def truncated_laplace_log_density(
    release: Any, statistic: Any, scale: Any, bound: Any, log_normalizer: Any
) -> Any:
    """Return -|s - t| / b - log Z within the bound, and minus infinity beyond."""
    distance = abs(release - statistic)
    return where(distance <= bound, -distance / scale - log_normalizer, -math.inf)


@register_jitable
def truncated_laplace_interval(
    lower: Any, upper: Any, statistic: Any, scale: Any, bound: Any, log_normalizer: Any
) -> Any:
    """Return log P(lower <= s < upper): that of Laplace noise, given that it is within A."""
    first, last = statistic - bound, statistic + bound
    below = where(lower < first, first, where(lower > last, last, lower))
    above = where(upper < first, first, where(upper > last, last, upper))
    empty = above <= below
    inside = laplace_interval(below, where(empty, below + scale, above), statistic, scale, 0.0)
    held = laplace_interval(first, last, statistic, scale, 0.0)
    return where(empty, -math.inf, inside - held)


@dataclass(frozen=True, kw_only=True)
class TruncatedLaplace(AdditiveMechanism):
    """The release is the statistic plus Laplace noise of scale b that never exceeds A.

    With sensitivity D, b = D / epsilon and A = b log(1 + (e^epsilon - 1) / (2 delta)), the release
    is (epsilon, delta)-DP, in any number of coordinates whose L1 distance is at most D. Where both
    of two neighbours can produce a release, their densities differ by a factor of at most
    ``e^{|d|_1 / b}`` <= e^epsilon. One of them alone can only if some coordinate j of the noise is
    within d_j of its end, which has probability (e^{d_j / b} - 1) / (2 (e^{A / b} - 1)); that is
    convex in d_j and 0 at 0, so over the coordinates it adds up to at most
    (e^epsilon - 1) / (2 (e^{A / b} - 1)) = delta.

    Parameters
    ----------
    epsilon, delta : float
        The promise; delta is in (0, 1/2).
    sensitivity : float
        D, the largest L1 distance between the statistics of neighbours; taken on trust.
    neighbours : {"replace_one", "add_remove"}, optional
        What the sensitivity was computed for.

    Raises
    ------
    MechanismError
        By the constructor, if delta is not in (0, 1/2), or epsilon or sensitivity not > 0 and
        finite.

    See Also
    --------
    Laplace : The same without a bound, for pure privacy.
    Tulap : Bounded noise for a single number.
    Gaussian : Another noise for approximate privacy.

    References
    ----------
    - Geng, Q., Ding, W., Guo, R. and Kumar, S. (2020), "Tight analysis of privacy and utility
      tradeoff in approximate differential privacy", International Conference on Artificial
      Intelligence and Statistics (AISTATS).

    Examples
    --------
    >>> from pymc_privacy import TruncatedLaplace
    >>> mechanism = TruncatedLaplace(epsilon=1.0, delta=1e-3, sensitivity=1.0)
    >>> round(mechanism.bound, 3)
    6.757
    """

    discrete: ClassVar[bool] = False
    formula = staticmethod(truncated_laplace_log_density)
    interval = staticmethod(truncated_laplace_interval)

    epsilon: float
    delta: float
    sensitivity: float
    neighbours: Neighbours | None = None

    def __post_init__(self) -> None:
        settle_all(self, "epsilon", "delta", "sensitivity")
        if self.delta >= 0.5:
            raise MechanismError(
                "delta must be below 1/2 (else the noise reaches less far than the sensitivity); "
                f"got {self.delta!r}."
            )

    @property
    def scale(self) -> float:  # type: ignore[override]
        """Return b = sensitivity / epsilon."""
        return self.sensitivity / self.epsilon

    @property
    def bound(self) -> float:
        """Return A, which the noise never exceeds."""
        # log(1 + e^a) with a = log((e^epsilon - 1) / (2 delta)), which may be no float itself.
        a = self.epsilon + math.log(-math.expm1(-self.epsilon)) - math.log(self.delta) - LOG_TWO
        return self.scale * float(np.logaddexp(0.0, a))

    @property
    def parameters(self) -> tuple[float, float, float]:
        """Return b, A and the log of 2 b (1 - e^{-A / b})."""
        held = -math.expm1(-self.bound / self.scale)
        return self.scale, self.bound, math.log(2 * self.scale * held)

    @property
    def guarantee(self) -> ApproximateDP:
        """Promise (epsilon, delta)."""
        return ApproximateDP(self.epsilon, self.delta, neighbours=self.neighbours)

    def simulate(self, rng: np.random.Generator, statistic: Any) -> np.ndarray:
        """Draw a release; seedable, in floating point, and so not to be published."""
        statistic, rng = real_statistic(statistic), generator("rng", rng)
        held = -math.expm1(-self.bound / self.scale)
        size = -self.scale * np.log1p(-held * rng.random(statistic.shape))
        return statistic + np.where(rng.random(statistic.shape) < 0.5, size, -size)
