"""The least noise that keeps a promise: calibration by exact profiles, on the safe side."""

import math
import sys

from scipy.special import erfinv

from pymc_privacy.accounting.guarantees import ZeroConcentratedDP, checked
from pymc_privacy.accounting.profiles import (
    ROUNDING,
    concentrated_epsilon,
    gaussian_profile,
    log_or_least,
    rising_root,
    rounded,
)
from pymc_privacy.errors import GuaranteeError

_SMALLEST, _LARGEST = 1e-300, 1e100  # epsilons that root searches can deal with


def _within_floats(epsilon: float) -> float:
    """Return an epsilon that noise can be calibrated to."""
    epsilon = checked("epsilon", epsilon)
    if not _SMALLEST <= epsilon <= _LARGEST:
        raise GuaranteeError(
            f"epsilon must be a number from {_SMALLEST:g} to {_LARGEST:g} (noise cannot be "
            f"calibrated to others in floating point); got {epsilon!r}."
        )
    return epsilon


def gaussian_scale(epsilon: float, delta: float, sensitivity: float) -> float:
    """Return the smallest scale of Gaussian noise that is (epsilon, delta)-DP.

    The exact profile is solved for mu = sensitivity / scale, the analytic Gaussian mechanism of
    Balle & Wang (2018). Not checked: that `sensitivity` bounds the Euclidean distance between the
    statistics of neighbours.

    Examples
    --------
    >>> round(gaussian_scale(1.0, 1e-5, sensitivity=1.0), 4)
    3.7306
    """
    epsilon, delta = _within_floats(epsilon), checked("delta", delta)
    sensitivity = checked("sensitivity", sensitivity)

    def excess(log_mu: float) -> float:
        return log_or_least(float(gaussian_profile(epsilon, math.exp(log_mu)))) - math.log(delta)

    # At mu = sqrt(8) erfinv(delta) total variation is delta, and the profile at epsilon is less.
    low = math.log(erfinv(delta))
    mu = math.exp(rising_root(excess, low, max(math.log(2 * epsilon) / 2, low + 2)))
    target = delta * (1 - ROUNDING)
    return rounded(
        checked("scale", sensitivity / mu),
        lambda scale: float(gaussian_profile(epsilon, sensitivity / scale)) <= target,
    )


def zero_concentrated_rho(epsilon: float, delta: float) -> float:
    """Return the largest rho such that rho-zCDP implies (epsilon, delta)-DP.

    It inverts `ZeroConcentratedDP.to_approximate`, and so calibrates noise whose exact profile is
    not at hand, such as the discrete Gaussian.

    Examples
    --------
    >>> rho = zero_concentrated_rho(1.0, 1e-5)
    >>> round(rho, 5), ZeroConcentratedDP(rho).to_approximate(1e-5).epsilon <= 1.0
    (0.03056, True)
    """
    epsilon, delta = _within_floats(epsilon), checked("delta", delta)

    def excess(log_rho: float) -> float:
        return concentrated_epsilon(math.exp(log_rho), delta) - epsilon

    # At this rho, rho + 2 sqrt(rho log(1/delta)) = epsilon; the best order asks for less than
    # that (Bun & Steinke 2016, Proposition 1.3).
    nats = -math.log(delta)
    low = 2 * math.log(epsilon / (math.sqrt(nats + epsilon) + math.sqrt(nats))) - 1
    low = max(low, math.log(sys.float_info.min))
    rho = math.exp(rising_root(excess, low, low + 2)) if excess(low) < 0 else 0.0
    return rounded(
        checked("rho", rho),
        lambda rho: ZeroConcentratedDP(rho).to_approximate(delta).epsilon <= epsilon,
        direction=-1,
    )
