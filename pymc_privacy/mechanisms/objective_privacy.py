r"""What objective perturbation with Gaussian noise promises.

The release s minimises :math:`L(s; Z) + \frac{\gamma}{2} |s|^2 + b \cdot s` over a box, with b
Normal of variance :math:`\sigma^2` in each of p coordinates. Where s is inside, the gradient
vanishes; at an end of the box it is balanced by a multiplier kappa_j of the right sign. So
b = -grad L(s; Z) - gamma s - kappa, and b <-> (s, kappa) is one to one but for a set of
probability zero, with the Jacobian det(H + gamma I) of the coordinates inside. Let Z' be a
neighbour, and reveal kappa beside s, which can only tell more. At one (s, kappa) the log ratio of
the two densities has two parts.

* Determinants. Hessians differ by one term w x x' each, with w |x|² <= lambda, and all eigenvalues
  are at least gamma: the log ratio is at most log(1 + lambda / gamma).
* Noise. b' = b + v, where v is the difference of the two records' gradients at s, so the log ratio
  is (2 b·v + |v|²) / (2 sigma²). Of a generalised linear model each gradient is a number times x,
  and so v is in the span of x and x', a plane that does not depend on s. With chi the length of
  b's projection on it over sigma, it is at most mu chi + mu² / 2, where mu = max |v| / sigma.

chi² is chi-square with 2 degrees of freedom, or 1 if only one record differs or p = 1. As
delta(epsilon) = E (1 - exp(epsilon - loss))_+ increases with the loss, it is bounded by the same
expectation of this bound. With e = epsilon - log(1 + lambda / gamma) and t = e / mu - mu / 2 >= 0
it is 2 (Phi(-t) - exp(e) Phi(-t - mu)) for one degree of freedom, and, integrated by parts,
sqrt(2 pi) mu exp(e) Phi(-t - mu) for two. The loss's sign plays no part: it may depend on s.

(After Chaudhuri et al. 2011; Kifer et al. 2012, whose Theorem 2 has larger noise; and Redberg et
al. 2023, who bound the same pair. The argument above is complete without them.)
"""

from __future__ import annotations

import math

from scipy.special import log_ndtr

from pymc_privacy.accounting.profiles import ROUNDING, gaussian_profile, rounded


def log_normal_below(z: float) -> float:
    """Return log Phi(z)."""
    return float(log_ndtr(z))


def failure(epsilon: float, mu: float, planar: bool) -> float:
    """Return the delta of an epsilon that is left after the determinants, which may be negative."""
    t = epsilon / mu - mu / 2
    if planar:
        least = max(t, 0.0)
        tail = epsilon + log_normal_below(-least - mu) + math.log(mu) + 0.5 * math.log(2 * math.pi)
        # Below t = 0 the bound of the loss exceeds epsilon whatever chi is.
        start = -math.expm1(epsilon - mu * mu / 2) if t < 0 else 0.0
        return min(start + math.exp(min(tail, 0.0)), 1.0)
    if t >= 0:
        return min(2 * float(gaussian_profile(epsilon, mu)), 1.0)
    return 1 - 2 * math.exp(min(epsilon + log_normal_below(-mu), 0.0))


def largest_mu(epsilon: float, delta: float, planar: bool) -> float:
    """Return the largest mu whose failure is at most delta, rounded down."""
    low, high = 0.0, 1.0
    while failure(epsilon, high, planar) <= delta:
        low, high = high, 2 * high
    for _ in range(200):
        middle = (low + high) / 2
        if failure(epsilon, middle, planar) <= delta:
            low = middle
        else:
            high = middle
    return rounded(low, lambda mu: failure(epsilon, mu, planar) <= delta * (1 - ROUNDING), -1)


def least_epsilon(mu: float, delta: float, planar: bool) -> float:
    """Return the smallest epsilon >= 0 whose failure is at most delta, rounded up."""
    target = delta * (1 - ROUNDING)
    if failure(0.0, mu, planar) <= target:
        return 0.0
    low, high = 0.0, 1.0
    while failure(high, mu, planar) > target:
        low, high = high, 2 * high
    for _ in range(200):
        middle = (low + high) / 2
        if failure(middle, mu, planar) > target:
            low = middle
        else:
            high = middle
    return rounded(high, lambda epsilon: failure(epsilon, mu, planar) <= target)
