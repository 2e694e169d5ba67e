"""Gaussian noise on the reals and on the integers: concentrated and approximate privacy."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numba.extending import register_jitable

from pymc_privacy.accounting import (
    ApproximateDP,
    GaussianDP,
    Guarantee,
    Neighbours,
    ZeroConcentratedDP,
    gaussian_scale,
    zero_concentrated_rho,
)
from pymc_privacy.arguments import generator
from pymc_privacy.errors import MechanismError
from pymc_privacy.mechanisms.base import (
    AdditiveMechanism,
    Scale,
    integer_statistic,
    need_sensitivity,
    real_statistic,
    resolve_scale,
    settle,
)
from pymc_privacy.mechanisms.engines import ceil, exp, log1p, log_normal_tail, where
from pymc_privacy.mechanisms.integer_tails import discrete_gaussian_tail

_NUMBERS = ("rho", "mu", "epsilon", "delta", "sensitivity")
_HOW = "one of rho=, mu= or (epsilon=, delta=) together with sensitivity="


@register_jitable
def gaussian_log_density(release: Any, statistic: Any, scale: Any, log_normalizer: Any) -> Any:
    """Return -(s - t)^2 / (2 sigma^2) - log Z, with Z over the reals or over the integers."""
    z = (release - statistic) / scale
    return -0.5 * z * z - log_normalizer


@register_jitable
def gaussian_interval(
    lower: Any, upper: Any, statistic: Any, scale: Any, log_normalizer: Any
) -> Any:
    """Return log P(lower <= s < upper) for s = t + Normal noise, exact in both tails.

    With the interval mirrored so that its middle is not below t, its probability is Q(l) - Q(u) if
    l >= 0, and 1 - Q(-l) - Q(u) if t is inside, Q the upper tail.
    """
    below, above = (lower - statistic) / scale, (upper - statistic) / scale
    mirrored = below + above < 0
    l, u = where(mirrored, -above, below), where(mirrored, -below, above)
    outer, inner = log_normal_tail(u), log_normal_tail(abs(l))
    outside = inner + log1p(-exp(outer - inner))
    inside = log1p(-exp(inner) - exp(outer))
    return where(l >= 0, outside, inside)


@register_jitable
def discrete_gaussian_interval(
    lower: Any, upper: Any, statistic: Any, scale: Any, log_normalizer: Any
) -> Any:
    """Return log P(lower <= s < upper) for s = t + discrete Gaussian noise, exact in both tails.

    The integers a..b of the interval are mirrored as for `gaussian_interval`; then P is
    P(k >= a) - P(k > b) if a >= 1, and 1 - P(k > -a) - P(k > b) if t is inside.
    """
    below, above = ceil(lower) - statistic, ceil(upper) - 1 - statistic
    mirrored = below + above < 0
    a, b = where(mirrored, -above, below), where(mirrored, -below, above)
    empty, off = b < a, a >= 1
    outer = discrete_gaussian_tail(where(b < 0, 1.0, b + 1), scale, log_normalizer)
    inner = discrete_gaussian_tail(where(off, a, 1 - a), scale, log_normalizer)
    outside = inner + log1p(-exp(outer - inner))
    inside = log1p(-exp(inner) - exp(outer))
    return where(empty, -math.inf, where(off, outside, inside))


def _calibrations(mechanism: Gaussian | DiscreteGaussian) -> dict[str, float]:
    """Return the privacy parameters that were given, which must be of one kind."""
    given = {name: getattr(mechanism, name) for name in _NUMBERS if name != "sensitivity"}
    given = {name: value for name, value in given.items() if value is not None}
    if set(given) not in ({"rho"}, {"mu"}, {"epsilon", "delta"}, set()):
        came = " and ".join(f"{name}=" for name in given)
        raise MechanismError(f"Gaussian noise is calibrated by {_HOW}; got {came}.")
    return given


def _concentrated_scale(rho: float, sensitivity: float | None) -> float:
    return need_sensitivity("rho", sensitivity) / math.sqrt(2 * rho)


def _settle(mechanism: Gaussian | DiscreteGaussian, calibrated: float | None) -> None:
    """Turn what was given into a scale, and state the guarantee once to have it checked."""
    scale = resolve_scale(mechanism.scale, calibrated, how=_HOW)
    object.__setattr__(mechanism, "scale", scale)
    mechanism.guarantee  # noqa: B018


@dataclass(frozen=True, kw_only=True)
class Gaussian(AdditiveMechanism):
    """The release is the statistic plus Normal noise of standard deviation sigma.

    Parameters
    ----------
    scale : float or sequence of float, optional
        The standard deviation; a sequence gives each coordinate its own.
    rho : float, optional
        Zero-concentrated privacy: sigma = sensitivity / sqrt(2 rho).
    mu : float, optional
        Gaussian privacy: sigma = sensitivity / mu.
    epsilon, delta : float, optional
        Approximate privacy: the smallest sigma that suffices (Balle and Wang, 2018).
    sensitivity : float, optional
        The largest L2 distance between the statistics of two neighbouring databases.
        It is taken on trust.
    neighbours : {"replace_one", "add_remove"}, optional
        What the sensitivity was computed for.

    Raises
    ------
    MechanismError
        By the constructor, if not one of scale, rho, mu and (epsilon, delta) is given, or scale and
        the others disagree, if sensitivity is missing where it is needed, or if a number is not > 0
        and finite.
    GuaranteeError
        By the constructor, if delta is not below 1.

    See Also
    --------
    DiscreteGaussian : The same on the integers.
    Laplace : For pure privacy.
    GaussianDP : What it promises if mu is given, or scale and sensitivity.

    References
    ----------
    - Balle, B. and Wang, Y.-X. (2018), "Improving the Gaussian mechanism for differential privacy:
      analytical calibration and optimal denoising", International Conference on Machine Learning
      (ICML).
    - Bun, M. and Steinke, T. (2016), "Concentrated differential privacy: simplifications,
      extensions, and lower bounds", Theory of Cryptography Conference (TCC).
    - Dong, J., Roth, A. and Su, W. J. (2022), "Gaussian differential privacy", Journal of the Royal
      Statistical Society, Series B 84(1), 3-37.

    Examples
    --------
    >>> from pymc_privacy import Gaussian
    >>> Gaussian(rho=0.5, sensitivity=3.0).scale
    3.0
    >>> round(Gaussian(epsilon=1.0, delta=1e-6, sensitivity=1.0).scale, 4)
    4.2247
    """

    discrete: ClassVar[bool] = False
    formula = staticmethod(gaussian_log_density)
    interval = staticmethod(gaussian_interval)

    scale: Scale = None  # type: ignore[assignment]
    rho: float | None = None
    mu: float | None = None
    epsilon: float | None = None
    delta: float | None = None
    sensitivity: float | None = None
    neighbours: Neighbours | None = None

    def __post_init__(self) -> None:
        settle(self, *_NUMBERS)
        _settle(self, self._calibrated())

    def _calibrated(self) -> float | None:
        match _calibrations(self):
            case {"rho": rho}:
                return _concentrated_scale(rho, self.sensitivity)
            case {"mu": mu}:
                return need_sensitivity("mu", self.sensitivity) / mu
            case {"epsilon": epsilon, "delta": delta}:
                sensitivity = need_sensitivity("epsilon", self.sensitivity)
                return gaussian_scale(epsilon, delta, sensitivity)
        return None

    @property
    def parameters(self) -> tuple[Any, Any]:
        """Return sigma and log(sigma sqrt(2 pi))."""
        scale = np.asarray(self.scale)
        return scale, np.log(scale * math.sqrt(2 * math.pi))

    @property
    def guarantee(self) -> Guarantee | None:
        """Promise what the noise was calibrated for; mu-GDP when only scale is given."""
        match _calibrations(self):
            case {"rho": rho}:
                return ZeroConcentratedDP(rho, neighbours=self.neighbours)
            case {"mu": mu}:
                return GaussianDP(mu, neighbours=self.neighbours)
            case {"epsilon": epsilon, "delta": delta}:
                return ApproximateDP(epsilon, delta, neighbours=self.neighbours)
        if self.sensitivity is None:
            return None
        return GaussianDP(self.sensitivity / float(np.min(self.scale)), neighbours=self.neighbours)

    def simulate(self, rng: np.random.Generator, statistic: Any) -> np.ndarray:
        """Draw a release; seedable, in floating point, and so not to be published."""
        statistic = real_statistic(statistic, self.scale)
        return np.asarray(generator("rng", rng).normal(statistic, self.scale))


@dataclass(frozen=True, kw_only=True)
class DiscreteGaussian(AdditiveMechanism):
    """The release is an integer statistic plus noise k with probability ∝ exp(-k² / 2 sigma²).

    Its guarantee is zero-concentrated, rho = sensitivity² / (2 sigma²), in any number of
    coordinates (Canonne, Kamath and Steinke, 2020, Theorem 14). ``mu=`` sets
    sigma = sensitivity / mu as for `Gaussian`, but promises only rho = mu² / 2, since the
    integer noise is not known to be mu-GDP; ``(epsilon=, delta=)`` is calibrated through rho.
    Other parameters as for `Gaussian`.

    Raises
    ------
    MechanismError
        By the constructor, as for `Gaussian`.
    GuaranteeError
        By the constructor, if delta is not below 1.

    See Also
    --------
    Gaussian : The same on the reals.
    DiscreteLaplace : For pure privacy, on the integers.
    discrete_gaussian_scale : Sigma from a published variance.

    References
    ----------
    - Canonne, C. L., Kamath, G. and Steinke, T. (2020), "The discrete Gaussian for differential
      privacy", Advances in Neural Information Processing Systems 33.

    Examples
    --------
    >>> from pymc_privacy import DiscreteGaussian
    >>> mechanism = DiscreteGaussian(rho=0.125, sensitivity=1.0)
    >>> mechanism.scale
    2.0
    """

    discrete: ClassVar[bool] = True
    formula = staticmethod(gaussian_log_density)
    interval = staticmethod(discrete_gaussian_interval)

    scale: Scale = None  # type: ignore[assignment]
    rho: float | None = None
    mu: float | None = None
    epsilon: float | None = None
    delta: float | None = None
    sensitivity: float | None = None
    neighbours: Neighbours | None = None

    def __post_init__(self) -> None:
        settle(self, *_NUMBERS)
        rho = self._calibrated_rho()
        _settle(self, None if rho is None else _concentrated_scale(rho, self.sensitivity))

    def _calibrated_rho(self) -> float | None:
        match _calibrations(self):
            case {"rho": rho}:
                return rho
            case {"mu": mu}:
                return mu * mu / 2
            case {"epsilon": epsilon, "delta": delta}:
                return zero_concentrated_rho(epsilon, delta)
        return None

    @property
    def parameters(self) -> tuple[Any, Any]:
        """Return sigma and the log of sum_k exp(-k² / 2 sigma²)."""
        scale = np.asarray(self.scale)
        return scale, np.log(_theta_sum(scale))

    @property
    def guarantee(self) -> Guarantee | None:
        """Promise zero-concentrated privacy, or the (epsilon, delta) it was calibrated for."""
        if self.sensitivity is None:
            return None
        if self.epsilon is not None and self.delta is not None:
            return ApproximateDP(self.epsilon, self.delta, neighbours=self.neighbours)
        rho = self._calibrated_rho() or (self.sensitivity / float(np.min(self.scale))) ** 2 / 2
        return ZeroConcentratedDP(rho, neighbours=self.neighbours)

    def simulate(self, rng: np.random.Generator, statistic: Any) -> np.ndarray:
        """Draw a release by rejection from discrete Laplace noise; not to be published."""
        statistic, rng = integer_statistic(statistic, self.scale), generator("rng", rng)
        shape = statistic.shape
        sigma = np.broadcast_to(np.asarray(self.scale), shape).ravel()
        noise = np.empty(sigma.size, dtype=np.int64)
        todo = np.arange(sigma.size)
        while todo.size:
            proposal, accepted = _propose_discrete_gaussian(rng, sigma[todo])
            noise[todo[accepted]] = proposal[accepted]
            todo = todo[~accepted]
        return statistic + noise.reshape(shape)


def _propose_discrete_gaussian(
    rng: np.random.Generator, sigma: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Propose y from P(y) ∝ exp(-|y| / t) and accept with exp(-(|y| - sigma²/t)² / 2 sigma²).

    The product is ∝ exp(-y² / 2 sigma²) for every t > 0; t = floor(sigma) + 1 keeps the
    acceptance rate away from zero (Canonne, Kamath and Steinke, 2020, Algorithm 3).
    """
    t = np.floor(sigma) + 1
    stop = -np.expm1(-1 / t)
    y = rng.geometric(stop) - rng.geometric(stop)
    exponent = -((np.abs(y) - sigma**2 / t) ** 2) / (2 * sigma**2)
    return y, rng.random(sigma.size) < np.exp(exponent)


def _theta_sum(scale: np.ndarray) -> np.ndarray:
    """Return sum_k exp(-k² / 2 sigma²) to machine precision.

    Below sigma = 1 the terms themselves fall fast; above, those of the Poisson-summed
    series sigma sqrt(2 pi) sum_m exp(-2 pi² sigma² m²) do. Nine terms leave less than 1e-17.
    """
    m = np.arange(1, 10)
    sigma = np.asarray(scale)[..., None]
    direct = 1 + 2 * np.exp(-(m**2) / (2 * np.minimum(sigma, 1) ** 2)).sum(-1)
    dual = 1 + 2 * np.exp(-2 * (math.pi * np.maximum(sigma, 1) * m) ** 2).sum(-1)
    return np.where(sigma[..., 0] < 1, direct, sigma[..., 0] * math.sqrt(2 * math.pi) * dual)
