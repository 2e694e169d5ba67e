"""Truncated-uniform-Laplace noise: the canonical noise of (epsilon, delta)-privacy."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numba.extending import register_jitable

from pymc_privacy.accounting import ApproximateDP, Guarantee, Neighbours, PureDP
from pymc_privacy.arguments import generator, probability
from pymc_privacy.errors import MechanismError
from pymc_privacy.mechanisms.base import (
    MEANINGS,
    AdditiveMechanism,
    Shape,
    real_statistic,
    settle_all,
)
from pymc_privacy.mechanisms.engines import ceil, exp, log, where


@register_jitable
def tulap_log_density(
    release: Any, statistic: Any, width: Any, epsilon: Any, bound: Any, log_normalizer: Any
) -> Any:
    """Return -epsilon |round((s - t) / D)| - log Z within the bound, and minus infinity beyond."""
    distance = abs(release - statistic)
    steps = ceil(distance / width - 0.5)
    return where(distance <= bound, -epsilon * steps - log_normalizer, -math.inf)


@register_jitable
def tulap_above(x: Any, epsilon: Any) -> Any:
    """Return P(N > x), x >= 0, for untruncated Tulap noise N of width 1.

    N = K + U with K discrete Laplace and U uniform on [-1/2, 1/2]. With x = k + r, k the nearest
    integer: P(K > k) + (1/2 - r) P(K = k) = q^k (q + (1/2 - r) (1 - q)) / (1 + q).
    """
    k = ceil(x - 0.5)
    q = exp(-epsilon)
    return exp(-epsilon * k) * (q + (0.5 - (x - k)) * (1 - q)) / (1 + q)


@register_jitable
def tulap_interval(
    lower: Any,
    upper: Any,
    statistic: Any,
    width: Any,
    epsilon: Any,
    bound: Any,
    log_normalizer: Any,
) -> Any:
    """Return log P(lower <= s < upper): the noise is Tulap noise, given that |N| <= bound."""
    below = where(lower - statistic < -bound, -bound, lower - statistic)
    above = where(upper - statistic > bound, bound, upper - statistic)
    mirrored = below + above < 0
    l, u = where(mirrored, -above, below) / width, where(mirrored, -below, above) / width
    near = tulap_above(abs(l), epsilon)
    far = tulap_above(where(u < 0, 0.0, u), epsilon)
    inside = where(l >= 0, near - far, 1 - near - far)
    edge = bound / width
    held = 1 - 2 * tulap_above(edge, epsilon)
    return where(u > l, log(where(u > l, inside, 1.0)) - log(held), -math.inf)


@dataclass(frozen=True, kw_only=True)
class Tulap(AdditiveMechanism):
    """The release is the statistic plus D times truncated-uniform-Laplace noise N.

    N is a discrete Laplace variable of ratio q = e^-epsilon plus a uniform one on [-1/2, 1/2],
    and with delta > 0 it is cut off at ±A, so that a fraction
    f = 2 delta q / (1 - q + 2 delta q) of its mass is left out (Awan and Slavković, 2018). It is
    the canonical noise of (epsilon, delta)-privacy (Awan and Vadhan, 2023).

    A shift by at most 1 changes ``|round(N)|`` by at most 1, so that wherever both of two
    neighbours can produce a release, their densities differ by a factor of at most e^epsilon. One
    of them alone can with probability P(N > A - 1) at most. As P(N > x - 1) = P(N > x) / q for
    x >= 1/2, this is (f / 2) (1 / q - 1) / (1 - f) = delta.

    It is for a single number: moving several coordinates by a little each can cost epsilon each,
    because ``|round(N)|`` jumps. Release several statistics one by one.

    Parameters
    ----------
    epsilon : float
    delta : float, default 0
    sensitivity : float, default 1
        D, how far one record can move the statistic; taken on trust.
    neighbours : {"replace_one", "add_remove"}, optional
        What the sensitivity was computed for.

    Raises
    ------
    MechanismError
        By the constructor, if epsilon or sensitivity is not > 0 and finite, or delta not in [0, 1);
        and by `Privatized`, if the statistic is not a single number.

    See Also
    --------
    DiscreteLaplace : The noise inside, for integers.
    TruncatedLaplace : Noise of bounded reach, for vectors too.
    Laplace : For pure privacy and vectors.

    References
    ----------
    - Awan, J. and Slavković, A. (2018), "Differentially private uniformly most powerful tests for
      binomial data", Advances in Neural Information Processing Systems 31.
    - Awan, J. and Vadhan, S. (2023), "Canonical noise distributions and private hypothesis tests",
      Annals of Statistics 51(2), 547-572.

    Examples
    --------
    >>> from pymc_privacy import Tulap
    >>> print(Tulap(epsilon=1.0).guarantee)
    1-DP (pure), neighbours: not stated, unit: one record
    >>> round(Tulap(epsilon=1.0, delta=0.01).bound, 4)
    4.4023
    """

    discrete: ClassVar[bool] = False
    formula = staticmethod(tulap_log_density)
    interval = staticmethod(tulap_interval)

    epsilon: float
    delta: float = 0.0
    sensitivity: float = 1.0
    neighbours: Neighbours | None = None

    def __post_init__(self) -> None:
        settle_all(self, "epsilon", "sensitivity")
        said: Any = {"meaning": MEANINGS["delta"], "error": MechanismError}
        object.__setattr__(self, "delta", probability("delta", self.delta, zero=True, **said))

    @property
    def scale(self) -> float:  # type: ignore[override]
        """Return the scale of the Laplace noise that promises the same epsilon."""
        return self.sensitivity / self.epsilon

    @property
    def left_out(self) -> float:
        """Return f, the fraction of the mass that is cut off."""
        q = math.exp(-self.epsilon)
        return 2 * self.delta * q / (-math.expm1(-self.epsilon) + 2 * self.delta * q)

    @property
    def bound(self) -> float:
        """Return how far the noise reaches: the upper f / 2 quantile, or beyond all numbers."""
        q, lost = math.exp(-self.epsilon), -math.expm1(-self.epsilon)
        if self.delta * q * (1 + q) == 0:
            return math.inf
        # P(N > k - 1/2) = q^k / (1 + q): the last k where it is still above the tail f / 2, and
        # from there on P(N > x) falls in proportion to x. With 1 - q small, 1 / (f (1 + q) / 2)
        # is 1 + (1 - q) (1 + delta q) / (delta q (1 + q)), from which nothing cancels.
        depth = math.log1p(lost * (1 + self.delta * q) / (self.delta * q * (1 + q)))
        k = max(math.floor(depth / self.epsilon), 0)
        return self.sensitivity * (k - 0.5 - math.expm1(k * self.epsilon - depth) / lost)

    @property
    def parameters(self) -> tuple[float, float, float, float]:
        """Return D, epsilon, the bound and the log of the normaliser."""
        q, lost = math.exp(-self.epsilon), -math.expm1(-self.epsilon)
        # log (1 - f) - log (1 - q), in which a small 1 - q cancels.
        held = -math.log(lost + 2 * self.delta * q)
        log_normalizer = math.log(self.sensitivity) + math.log1p(q) + held
        return self.sensitivity, self.epsilon, min(self.bound, 1e30), log_normalizer

    @property
    def guarantee(self) -> Guarantee:
        """Promise epsilon, or epsilon and delta."""
        if self.delta == 0:
            return PureDP(self.epsilon, neighbours=self.neighbours)
        return ApproximateDP(self.epsilon, self.delta, neighbours=self.neighbours)

    def simulate(self, rng: np.random.Generator, statistic: Any) -> np.ndarray:
        """Draw a release; seedable, in floating point, and so not to be published."""
        statistic, rng = real_statistic(statistic), generator("rng", rng)
        noise = np.empty(statistic.size)
        todo = np.arange(noise.size)
        while todo.size:
            noise[todo], taken = self._propose(rng, todo.size)
            todo = todo[~taken]
        return statistic + noise.reshape(statistic.shape)

    def _propose(self, rng: np.random.Generator, count: int) -> tuple[np.ndarray, np.ndarray]:
        """Propose noise without its bound, or evenly within it where few of that would be taken."""
        if self.epsilon * self.bound < self.sensitivity:
            noise = self.bound * (2 * rng.random(count) - 1)
            steps = np.ceil(np.abs(noise) / self.sensitivity - 0.5)
            return noise, rng.random(count) < np.exp(-self.epsilon * steps)
        stop = -math.expm1(-self.epsilon)
        draw = rng.geometric(stop, count).astype(float) - rng.geometric(stop, count)
        noise = self.sensitivity * (draw + rng.random(count) - 0.5)
        return noise, np.abs(noise) <= self.bound

    def release_shape(self, statistic: Shape) -> Shape:
        """Return (), for a single number."""
        if statistic:
            raise MechanismError(
                "Tulap noise keeps its promise for a single number, because small moves of several "
                f"coordinates cost epsilon each; got a statistic of shape {statistic}. Release "
                "the columns one by one, or use Laplace."
            )
        return ()

    def local_shape(self, contributions: Shape) -> Shape:
        """Return the shape of one number per record."""
        if len(contributions) > 1:
            self.release_shape(contributions[1:])
        return contributions
