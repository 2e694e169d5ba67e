"""Laplace noise on the reals and on the integers: pure privacy (Dwork et al., 2006)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numba.extending import register_jitable

from pymc_privacy.accounting import Neighbours, PureDP
from pymc_privacy.arguments import generator
from pymc_privacy.mechanisms.base import (
    AdditiveMechanism,
    Scale,
    integer_statistic,
    need_sensitivity,
    real_statistic,
    resolve_scale,
    settle,
)
from pymc_privacy.mechanisms.engines import ceil, exp, expm1, log, log1p, where

LOG_TWO = math.log(2)
_HOW = "epsilon= and sensitivity= (scale is sensitivity / epsilon)"


@register_jitable
def laplace_log_density(release: Any, statistic: Any, scale: Any, log_normalizer: Any) -> Any:
    """Return -|s - t| / b - log Z, where Z normalizes over the reals or over the integers."""
    return -abs(release - statistic) / scale - log_normalizer


@register_jitable
def laplace_interval(
    lower: Any, upper: Any, statistic: Any, scale: Any, log_normalizer: Any
) -> Any:
    """Return log P(lower <= s < upper) for s = t + Laplace noise, exact in both tails.

    With the interval mirrored so that its middle is not below t, in units of b, its probability is
    (e^{-l} - e^{-u}) / 2 if l >= 0, and 1 - (e^l + e^{-u}) / 2 if t is inside.
    """
    below, above = (lower - statistic) / scale, (upper - statistic) / scale
    mirrored = below + above < 0
    l, u = where(mirrored, -above, below), where(mirrored, -below, above)
    outside = -l + log(-expm1(l - u)) - LOG_TWO
    inside = log1p(-0.5 * (exp(where(l < 0, l, 0.0)) + exp(-u)))
    return where(l >= 0, outside, inside)


@register_jitable
def discrete_laplace_interval(
    lower: Any, upper: Any, statistic: Any, scale: Any, log_normalizer: Any
) -> Any:
    """Return log P(lower <= s < upper) for s = t + discrete Laplace noise, exact in both tails.

    Of noise k with q = e^{-1/b}, P(k >= a) = q^a / (1 + q) for a >= 1. The integers of the
    interval are mirrored as for `laplace_interval`.
    """
    below, above = ceil(lower) - statistic, ceil(upper) - 1 - statistic
    mirrored = below + above < 0
    a, b = where(mirrored, -above, below), where(mirrored, -below, above)
    log_half = -log1p(exp(-1 / scale))
    outside = -a / scale + log(-expm1((a - b - 1) / scale)) + log_half
    beyond = exp((where(a < 1, a, 1.0) - 1) / scale) + exp(-(b + 1) / scale)
    inside = log1p(-beyond * exp(log_half))
    return where(b < a, -math.inf, where(a >= 1, outside, inside))


def _settle(mechanism: Laplace | DiscreteLaplace) -> None:
    """Turn what was given into a scale, and state the guarantee once to have it checked."""
    settle(mechanism, "epsilon", "sensitivity")
    calibrated = None
    if mechanism.epsilon is not None:
        calibrated = need_sensitivity("epsilon", mechanism.sensitivity) / mechanism.epsilon
    scale = resolve_scale(mechanism.scale, calibrated, how=_HOW)
    object.__setattr__(mechanism, "scale", scale)
    _laplace_guarantee(mechanism)


def _laplace_guarantee(mechanism: Laplace | DiscreteLaplace) -> PureDP | None:
    """Bound the log ratio by sum_j |D_j| / b_j <= sensitivity / min_j b_j."""
    if mechanism.sensitivity is None:
        return None
    epsilon = mechanism.epsilon or mechanism.sensitivity / float(np.min(mechanism.scale))
    return PureDP(epsilon, neighbours=mechanism.neighbours)


@dataclass(frozen=True, kw_only=True)
class Laplace(AdditiveMechanism):
    """The release is the statistic plus Laplace noise of scale b in each coordinate.

    Give ``scale=``, or ``epsilon=`` with ``sensitivity=``; then b is sensitivity / epsilon.

    Parameters
    ----------
    scale : float or sequence of float, optional
        Laplace's b; a sequence gives each coordinate its own.
    epsilon : float, optional
        The privacy loss of the whole release.
    sensitivity : float, optional
        The largest L1 distance between the statistics of two neighbouring databases.
        It is taken on trust.
    neighbours : {"replace_one", "add_remove"}, optional
        What the sensitivity was computed for.

    Raises
    ------
    MechanismError
        By the constructor, if scale and epsilon are both left out or disagree, if epsilon comes
        without sensitivity, or if a number is not > 0 and finite.

    See Also
    --------
    DiscreteLaplace : The same on the integers.
    TruncatedLaplace : Noise of bounded reach, for approximate privacy.
    Gaussian : For concentrated and approximate privacy.
    release : Publish a total with such noise, drawn exactly.

    References
    ----------
    - Dwork, C., McSherry, F., Nissim, K. and Smith, A. (2006), "Calibrating noise to sensitivity in
      private data analysis", Theory of Cryptography Conference (TCC).

    Examples
    --------
    >>> from pymc_privacy import Laplace
    >>> mechanism = Laplace(epsilon=0.5, sensitivity=10.0)
    >>> mechanism.scale
    20.0
    >>> print(mechanism.guarantee)
    0.5-DP (pure), neighbours: not stated, unit: one record
    """

    discrete: ClassVar[bool] = False
    formula = staticmethod(laplace_log_density)
    interval = staticmethod(laplace_interval)

    scale: Scale = None  # type: ignore[assignment]
    epsilon: float | None = None
    sensitivity: float | None = None
    neighbours: Neighbours | None = None

    def __post_init__(self) -> None:
        _settle(self)

    @property
    def parameters(self) -> tuple[Any, Any]:
        """Return b and log(2 b)."""
        scale = np.asarray(self.scale)
        return scale, np.log(2 * scale)

    @property
    def guarantee(self) -> PureDP | None:
        """Promise epsilon = sensitivity / scale; the smallest scale counts."""
        return _laplace_guarantee(self)

    def simulate(self, rng: np.random.Generator, statistic: Any) -> np.ndarray:
        """Draw a release; seedable, in floating point, and so not to be published."""
        statistic = real_statistic(statistic, self.scale)
        return np.asarray(generator("rng", rng).laplace(statistic, self.scale))


@dataclass(frozen=True, kw_only=True)
class DiscreteLaplace(AdditiveMechanism):
    """The release is an integer statistic plus noise k with probability ∝ ``exp(-|k| / b)``.

    Also known as the geometric mechanism (Ghosh et al., 2009). Parameters as for `Laplace`.

    Raises
    ------
    MechanismError
        By the constructor, as for `Laplace`.

    See Also
    --------
    Laplace : The same on the reals.
    DiscreteGaussian : For concentrated privacy, on the integers.
    NoisyCount : Counts that such noise was added to.

    References
    ----------
    - Ghosh, A., Roughgarden, T. and Sundararajan, M. (2012), "Universally utility-maximizing
      privacy mechanisms", SIAM Journal on Computing 41(6), 1673-1693; first at STOC 2009.

    Examples
    --------
    >>> from pymc_privacy import DiscreteLaplace
    >>> DiscreteLaplace(epsilon=1.0, sensitivity=1.0).log_density(3, 3).round(4).item()
    -0.7719
    """

    discrete: ClassVar[bool] = True
    formula = staticmethod(laplace_log_density)
    interval = staticmethod(discrete_laplace_interval)

    scale: Scale = None  # type: ignore[assignment]
    epsilon: float | None = None
    sensitivity: float | None = None
    neighbours: Neighbours | None = None

    def __post_init__(self) -> None:
        _settle(self)

    @property
    def parameters(self) -> tuple[Any, Any]:
        """Return b and the log of sum_k exp(-|k| / b) = coth(1 / 2b)."""
        scale = np.asarray(self.scale)
        return scale, -np.log(np.tanh(0.5 / scale))

    @property
    def guarantee(self) -> PureDP | None:
        """Promise epsilon = sensitivity / scale; the smallest scale counts."""
        return _laplace_guarantee(self)

    def simulate(self, rng: np.random.Generator, statistic: Any) -> np.ndarray:
        """Draw a release as the difference of two geometric variables; not to be published."""
        statistic, rng = integer_statistic(statistic, self.scale), generator("rng", rng)
        stop = -np.expm1(-1 / np.asarray(self.scale))
        shape = statistic.shape
        return statistic + rng.geometric(stop, shape) - rng.geometric(stop, shape)
