"""A guarantee is a measure, its value, a neighbour relation and a unit; here none gets stronger.

Each conversion holds in the direction in which it is named, rests on the result cited beside it,
and keeps neighbours and unit. A root search ends on the side that claims less privacy: the profile
evaluated at the returned value is at most the delta asked for. Two facts carry most of the file.

* Any (epsilon, delta)-indistinguishable pair of laws is a post-processing of one canonical pair:
  with probability delta the data set is shown, otherwise a bit of randomized response with odds
  exp(epsilon) (Kairouz, Oh & Viswanath 2015; Murtagh & Vadhan 2016, Lemma 3.2).
* The canonical pair of mu-GDP is N(0, 1) and N(mu, 1) (Dong, Roth & Su 2022).

Renyi divergences of chosen orders are in `renyi.py`, trade-off functions in `tradeoff.py`.
"Lemma A.8" is that of Awan et al. on an unknown sample size.
"""

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, field, replace
from typing import Any

from scipy.special import ndtri

from pymc_privacy.accounting.profiles import (
    TINY,
    concentrated_delta,
    concentrated_epsilon,
    gaussian_profile,
    least_epsilon,
    log_or_least,
    solve,
    upwards,
)
from pymc_privacy.arguments import Neighbours, neighbours, probability, real, title
from pymc_privacy.errors import GuaranteeError

_RELATIONS = {
    "replace_one": "replace one record",
    "add_remove": "add or remove one record",
    None: "not stated",
}
_MEANINGS = {
    "epsilon": "the largest log-ratio of probabilities under two neighbours",
    "delta": "the probability allowed to escape the bound epsilon",
    "rho": "the Renyi divergence per unit of order",
    "alpha": "the order of the Renyi divergence",
    "mu": "sensitivity / scale of the Gaussian noise that leaks as much",
    "sensitivity": "how far one record can move the statistic",
    "scale": "the standard deviation of the noise",
}


class Guarantee(ABC):
    """Neighbouring data sets cannot be told apart from a release beyond a stated measure."""

    neighbours: Neighbours | None
    unit: str

    @abstractmethod
    def renyi(self, alpha: float) -> float:
        """Bound the Renyi divergence of order alpha > 1 between releases of neighbours."""

    @abstractmethod
    def to_approximate(self, delta: float) -> "ApproximateDP":
        """Imply (epsilon, delta)-DP with the smallest epsilon known."""

    @abstractmethod
    def to_zero_concentrated(self) -> "ZeroConcentratedDP":
        """Imply rho-zCDP with the smallest rho known."""

    @abstractmethod
    def to_total_variation(self) -> float:
        """Bound the total variation between releases of neighbours, that is imply (0, value)-DP."""

    @abstractmethod
    def to_replace_one(self) -> "Guarantee":
        """Imply a guarantee for replacing one record, a removal followed by an addition."""

    @abstractmethod
    def _measure(self) -> str: ...

    def __str__(self) -> str:
        return f"{self._measure()}, neighbours: {_RELATIONS[self.neighbours]}, unit: {self.unit}"


@dataclass(frozen=True)
class PureDP(Guarantee):
    """No event is more than exp(epsilon) times likelier under one of two neighbours.

    Parameters
    ----------
    epsilon : float
        The largest log-ratio of probabilities, > 0.
    neighbours : {"replace_one", "add_remove"}, optional
        Which data sets are neighbours; None says that nobody has stated it.
    unit : str
        What a "record" of the neighbour relation is.

    Raises
    ------
    GuaranteeError
        By the constructor, if epsilon is not > 0 and finite, or neighbours or unit are no such
        labels.

    See Also
    --------
    ApproximateDP : A small probability may escape the bound.
    ZeroConcentratedDP : Adds up more slowly over many releases.
    compose : What several releases promise together.

    References
    ----------
    - Dwork, C., McSherry, F., Nissim, K. and Smith, A. (2006), "Calibrating noise to sensitivity in
      private data analysis", Theory of Cryptography Conference (TCC).

    Examples
    --------
    >>> print(PureDP(1, neighbours="replace_one"))
    1-DP (pure), neighbours: replace one record, unit: one record
    >>> round(PureDP(1.0).to_zero_concentrated().rho, 6)
    0.462117
    """

    epsilon: float
    neighbours: Neighbours | None = field(default=None, kw_only=True)
    unit: str = field(default="one record", kw_only=True)

    def __post_init__(self) -> None:
        settle(self, epsilon=checked("epsilon", self.epsilon))

    def delta(self, epsilon: float) -> float:
        """Bound the profile by that of randomized response, which attains it.

        With e for the argument, (exp(epsilon) - exp(e)) / (1 + exp(epsilon)), and 0 for e above.
        """
        above = checked("epsilon", epsilon, zero=True) - self.epsilon
        return (0.0 - math.expm1(min(above, 0.0))) / (1 + math.exp(-self.epsilon))

    def renyi(self, alpha: float) -> float:
        """Bound it by that of randomized response, which attains it; tight (Steinke 2024).

        It is log(cosh((alpha - 1/2) epsilon) / cosh(epsilon / 2)) / (alpha - 1).
        """
        alpha = checked("alpha", alpha)
        half = self.epsilon / 2
        if alpha * half > 300:
            # cosh(x) = exp(x) (1 + exp(-2 x)) / 2, and the larger one is exp(x) / 2 in floats.
            grown = 2 * (alpha - 1) * half - math.log1p(math.exp(-2 * half))
        else:
            product = math.sinh(alpha * half) * math.sinh((alpha - 1) * half)
            grown = math.log1p(2 * product / math.cosh(half))
        return min(upwards(grown / (alpha - 1)), self.epsilon)

    def to_approximate(self, delta: float) -> "ApproximateDP":
        """Imply (e, delta)-DP with exp(e) = exp(epsilon) - delta (1 + exp(epsilon)), tight.

        This solves the profile of randomized response for e >= 0; at delta = 0, e is epsilon.
        """
        delta = checked("delta", delta, zero=True)
        # Where the profile at 0 is above delta, this is above -1 but for rounding.
        change = max(-delta * (1 + math.exp(-self.epsilon)), math.nextafter(-1, 0))
        epsilon = least_epsilon(self.delta, delta, lambda: self.epsilon + math.log1p(change))
        return ApproximateDP(min(epsilon, self.epsilon), delta, **labels(self))

    def to_zero_concentrated(self) -> "ZeroConcentratedDP":
        """Imply zCDP with rho = epsilon tanh(epsilon / 2), which randomized response attains.

        With b = alpha - 1/2 and g(s) = log cosh(epsilon sqrt(s)), the Renyi divergence of
        randomized response obeys D_alpha / alpha = (g(b^2) - g(1/4)) / (b^2 - 1/4). As tanh(x) / x
        decreases, g is concave, and this slope is at most g'(1/4) = epsilon tanh(epsilon / 2). All
        other pairs are post-processings (Steinke 2024, "Tight RDP & zCDP Bounds from Pure DP").
        It is less than the epsilon^2 / 2 of Bun & Steinke (2016), Proposition 1.4.
        """
        rho = max(self.epsilon * math.tanh(self.epsilon / 2), TINY)
        return ZeroConcentratedDP(rho, **labels(self))

    def to_total_variation(self) -> float:
        """Bound it by (exp(epsilon) - 1) / (exp(epsilon) + 1); Lemma A.8 (2), tight."""
        return math.tanh(self.epsilon / 2)

    def to_replace_one(self) -> "PureDP":
        """Imply 2 epsilon for a replacement: the log-ratios of its two steps add."""
        return replaced(self, epsilon=2 * self.epsilon)

    def _measure(self) -> str:
        return f"{plain(self.epsilon)}-DP (pure)"


@dataclass(frozen=True)
class ApproximateDP(Guarantee):
    """Probabilities under neighbours obey p <= exp(epsilon) q + delta for every event.

    Parameters
    ----------
    epsilon : float
        The log-ratio allowed, > 0; it may be 0 where delta > 0, which then bounds total variation.
    delta : float
        The probability allowed to escape that bound, in [0, 1).
    neighbours, unit
        As in `PureDP`.

    Raises
    ------
    GuaranteeError
        By the constructor, if delta is not in [0, 1), epsilon not > 0 (or 0 with delta > 0), or
        neighbours or unit are no such labels.

    See Also
    --------
    PureDP : The same with delta = 0.
    compose : What several releases promise together.

    References
    ----------
    - Dwork, C., Kenthapadi, K., McSherry, F., Mironov, I. and Naor, M. (2006), "Our data,
      ourselves: privacy via distributed noise generation", EUROCRYPT.

    Examples
    --------
    >>> print(ApproximateDP(1.5, 1e-6, unit="one household"))
    (1.5, 1e-06)-DP (approximate), neighbours: not stated, unit: one household
    """

    epsilon: float
    delta: float
    neighbours: Neighbours | None = field(default=None, kw_only=True)
    unit: str = field(default="one record", kw_only=True)

    def __post_init__(self) -> None:
        delta = checked("delta", self.delta, zero=True)
        # (0, 0)-DP would say that the release does not depend on the records.
        settle(self, epsilon=checked("epsilon", self.epsilon, zero=delta > 0), delta=delta)

    def renyi(self, alpha: float) -> float:
        """Bound it when delta = 0, and never otherwise: it may be infinite."""
        if self.delta > 0:
            raise GuaranteeError(
                "delta must be 0 to imply a Renyi divergence (else an event may be possible under "
                f"one neighbour only); got {self.delta!r}."
            )
        return PureDP(self.epsilon).renyi(alpha)

    def to_approximate(self, delta: float) -> "ApproximateDP":
        """Trade a larger delta for a smaller epsilon along the profile of the canonical pair.

        That profile is self.delta + (1 - self.delta) times the one of `PureDP`.
        """
        delta = checked("delta", delta, zero=True)
        left = left_after([self.delta], delta)
        epsilon = PureDP(self.epsilon).to_approximate(left).epsilon if self.epsilon else 0.0
        return ApproximateDP(epsilon, delta, **labels(self))

    def to_zero_concentrated(self) -> "ZeroConcentratedDP":
        """Imply zCDP when delta = 0, and never otherwise: a Renyi divergence may be infinite."""
        if self.delta > 0:
            raise GuaranteeError(
                "delta must be 0 to imply zero-concentrated DP (else an event may be possible "
                f"under one neighbour only); got {self.delta!r}."
            )
        return PureDP(self.epsilon, **labels(self)).to_zero_concentrated()

    def to_total_variation(self) -> float:
        """Bound it by (2 delta + exp(epsilon) - 1) / (exp(epsilon) + 1); Lemma A.8 (3), tight."""
        return self.delta + (1 - self.delta) * math.tanh(self.epsilon / 2)

    def to_replace_one(self) -> "ApproximateDP":
        """Imply (2 epsilon, (1 + exp(epsilon)) delta): p <= e^eps (e^eps q + delta) + delta."""
        grown = math.exp(min(self.epsilon + log_or_least(self.delta), 700.0)) if self.delta else 0.0
        return replaced(self, epsilon=2 * self.epsilon, delta=self.delta + grown)

    def _measure(self) -> str:
        return f"({plain(self.epsilon)}, {plain(self.delta)})-DP (approximate)"


@dataclass(frozen=True)
class ZeroConcentratedDP(Guarantee):
    """The Renyi divergence of order alpha between neighbours is at most rho alpha, all alpha > 1.

    Parameters
    ----------
    rho : float
        Renyi divergence per unit of order, > 0 (Bun & Steinke 2016, Definition 1.1).
    neighbours, unit
        As in `PureDP`.

    Raises
    ------
    GuaranteeError
        By the constructor, if rho is not > 0 and finite, or neighbours or unit are no such labels.

    See Also
    --------
    GaussianDP : Says more about Gaussian noise on the reals.
    DiscreteGaussian : Noise that has such a guarantee.
    compose : What several releases promise together.

    References
    ----------
    - Bun, M. and Steinke, T. (2016), "Concentrated differential privacy: simplifications,
      extensions, and lower bounds", Theory of Cryptography Conference (TCC).
    - Canonne, C. L., Kamath, G. and Steinke, T. (2020), "The discrete Gaussian for differential
      privacy", Advances in Neural Information Processing Systems 33.
    - Cesar, M. and Rogers, R. (2021), "Bounding, concentrating, and truncating: unifying privacy
      loss composition for data analytics", Algorithmic Learning Theory (ALT).

    Examples
    --------
    >>> round(ZeroConcentratedDP(0.3125).to_approximate(1e-6).epsilon, 6)
    4.010281
    """

    rho: float
    neighbours: Neighbours | None = field(default=None, kw_only=True)
    unit: str = field(default="one record", kw_only=True)

    def __post_init__(self) -> None:
        settle(self, rho=checked("rho", self.rho))

    @classmethod
    def from_bounded_range(
        cls,
        epsilon: float,
        *,
        neighbours: Neighbours | None = None,
        unit: str = "one record",
    ) -> "ZeroConcentratedDP":
        """Imply rho = epsilon² / 8 from a privacy loss whose *range* is at most epsilon.

        So it is for the exponential mechanism of epsilon, whose log-ratio of two neighbours,
        (u - u') / b plus a constant, lies in an interval of length epsilon. Proof: under the
        second law let K(t) be the cumulant function of the loss, so that the Renyi divergence of
        order alpha is K(alpha) / (alpha - 1), and K(0) = K(1) = 0. Its second derivative is a
        variance within that interval, at most epsilon² / 4 (Popoviciu). Hence
        epsilon² t (t - 1) / 8 - K(t) is convex, vanishes at 0 and 1, and is >= 0 for t > 1
        (Cesar and Rogers 2021). From epsilon = 8 on, what pure DP implies is less, and taken.

        Parameters
        ----------
        epsilon : float
            The largest difference of two log-ratios of densities, for one pair of neighbours.
        neighbours, unit
            As in `PureDP`.

        Examples
        --------
        >>> ZeroConcentratedDP.from_bounded_range(1.0).rho
        0.125
        """
        epsilon = checked("epsilon", epsilon)
        # Such a loss has both signs, or is 0, as densities have one total: it is epsilon-DP, too.
        rho = min(epsilon * epsilon / 8, PureDP(epsilon).to_zero_concentrated().rho)
        return cls(max(rho, TINY), neighbours=neighbours, unit=unit)

    def delta(self, epsilon: float) -> float:
        """Bound the profile by the best Renyi order; Canonne, Kamath & Steinke (2020), Cor. 13."""
        return concentrated_delta(self.rho, checked("epsilon", epsilon, zero=True))

    def renyi(self, alpha: float) -> float:
        """Bound it by rho alpha, the definition."""
        return upwards(self.rho * checked("alpha", alpha))

    def to_approximate(self, delta: float) -> "ApproximateDP":
        """Imply (epsilon, delta)-DP by the best Renyi order; Canonne et al. (2020), Cor. 13."""
        delta = checked("delta", delta)
        guess = concentrated_epsilon(self.rho, delta)
        epsilon = least_epsilon(self.delta, delta, lambda: guess)
        return ApproximateDP(epsilon, delta, **labels(self))

    def to_zero_concentrated(self) -> "ZeroConcentratedDP":
        """Imply itself."""
        return self

    def to_total_variation(self) -> float:
        """Bound it by min(sqrt(rho / 2), sqrt(1 - exp(-rho))); Lemma A.8 (5).

        Relative entropy is at most rho; then Pinsker, and Bretagnolle and Huber. Not tight.
        """
        return min(math.sqrt(self.rho / 2), math.sqrt(-math.expm1(-self.rho)))

    def to_replace_one(self) -> "ZeroConcentratedDP":
        """Imply 4 rho for a replacement; Bun & Steinke (2016), Proposition 1.9 with k = 2."""
        return replaced(self, rho=4 * self.rho)

    def _measure(self) -> str:
        return f"{plain(self.rho)}-zCDP (zero-concentrated)"


@dataclass(frozen=True)
class GaussianDP(Guarantee):
    """Neighbours are at least as hard to tell apart as N(0, 1) and N(mu, 1).

    Parameters
    ----------
    mu : float
        The distance of the two means, > 0; sensitivity / scale for Gaussian noise.
    neighbours, unit
        As in `PureDP`.

    Raises
    ------
    GuaranteeError
        By the constructor, if mu is not > 0 and finite, or neighbours or unit are no such labels.

    See Also
    --------
    Gaussian : Noise that has such a guarantee.
    ZeroConcentratedDP : What it implies, with rho = mu² / 2.
    compose : What several releases promise together.

    References
    ----------
    - Dong, J., Roth, A. and Su, W. J. (2022), "Gaussian differential privacy", Journal of the Royal
      Statistical Society, Series B 84(1), 3-37.
    - Balle, B. and Wang, Y.-X. (2018), "Improving the Gaussian mechanism for differential privacy:
      analytical calibration and optimal denoising", International Conference on Machine Learning
      (ICML).

    Examples
    --------
    >>> from pymc_privacy.accounting import GaussianDP, compose
    >>> round(compose(*[GaussianDP(0.25)] * 10).to_approximate(1e-6).epsilon, 6)
    3.747218
    """

    mu: float
    neighbours: Neighbours | None = field(default=None, kw_only=True)
    unit: str = field(default="one record", kw_only=True)

    def __post_init__(self) -> None:
        settle(self, mu=checked("mu", self.mu))

    def delta(self, epsilon: float) -> float:
        """Equal the profile of the Gaussian mechanism; Balle & Wang (2018), Theorem 8.

        With e for the argument, Phi(mu/2 - e/mu) - exp(e) Phi(-mu/2 - e/mu), which at all e >= 0
        is equivalent to mu-GDP (Dong, Roth & Su 2022, Corollary 2.13). Never 0: what is smaller
        than the smallest positive float is reported as that.
        """
        value = gaussian_profile(checked("epsilon", epsilon, zero=True), self.mu)
        return max(float(value), TINY)

    def renyi(self, alpha: float) -> float:
        """Equal that of N(0, 1) and N(mu, 1), alpha mu^2 / 2."""
        return upwards(self.mu * self.mu / 2 * checked("alpha", alpha))

    def to_approximate(self, delta: float) -> "ApproximateDP":
        """Imply (epsilon, delta)-DP with the smallest epsilon there is, from the exact profile."""
        delta = checked("delta", delta)
        # delta(e) <= Phi(mu/2 - e/mu): the root lies below the e at which this is delta.
        most = checked("epsilon", 2 * self.mu * max(self.mu / 2 - float(ndtri(delta)), self.mu))
        epsilon = least_epsilon(self.delta, delta, lambda: solve(self.delta, delta, most))
        return ApproximateDP(epsilon, delta, **labels(self))

    def to_zero_concentrated(self) -> "ZeroConcentratedDP":
        """Imply zCDP with rho = mu^2 / 2, tight; Dong, Roth & Su (2022), Corollary B.6."""
        return ZeroConcentratedDP(max(self.mu * self.mu / 2, TINY), **labels(self))

    def to_total_variation(self) -> float:
        """Bound it by 2 Phi(mu / 2) - 1; Lemma A.8 (4), tight."""
        return math.erf(self.mu / math.sqrt(8))

    def to_replace_one(self) -> "GaussianDP":
        """Imply 2 mu for a replacement; Dong, Roth & Su (2022), Theorem 2.14 with k = 2."""
        return replaced(self, mu=2 * self.mu)

    def _measure(self) -> str:
        return f"{plain(self.mu)}-GDP (Gaussian)"


def replaced(guarantee: Any, **values: float) -> Any:
    """Return the guarantee with the values of a replacement, or as it is if it is of one."""
    if guarantee.neighbours is None:
        raise GuaranteeError(
            'neighbours must be "add_remove" or "replace_one" (what a replacement costs depends '
            "on it); got None."
        )
    if guarantee.neighbours == "replace_one":
        return guarantee
    return replace(guarantee, neighbours="replace_one", **values)


def plain(value: float) -> str:
    """Return a number as people write it."""
    return repr(value).removesuffix(".0")


def settle(guarantee: Guarantee, **values: float) -> None:
    """Store the checked values as floats, and check the labels."""
    for name, value in values.items():
        object.__setattr__(guarantee, name, value)
    neighbours(guarantee.neighbours, optional=True, error=GuaranteeError)
    said: Any = {"meaning": "what neighbours differ in", "error": GuaranteeError}
    title("unit", guarantee.unit, wanted="a phrase such as 'one record'", **said)


def checked(name: str, value: Any, zero: bool = False) -> float:
    """Return value as a finite float > 0 (or >= 0), < 1 if it is a delta, > 1 if an alpha."""
    said: Any = {"meaning": _MEANINGS[name], "error": GuaranteeError}
    if name == "alpha":
        return real(name, value, above=1.0, **said)
    if name == "delta":
        return probability(name, value, zero=zero, **said)
    limit: Any = {"least": 0.0} if zero else {"above": 0.0}
    return real(name, value, **limit, **said)


def left_after(failures: list[float], delta: float, needed: bool = False) -> float:
    """Solve 1 - delta = (1 - left) prod(1 - failures) for left >= 0, or > 0 where needed."""
    log_safe = math.fsum(math.log1p(-failure) for failure in failures)
    left = -math.expm1(math.log1p(-delta) - log_safe)
    if left <= 0 and (needed or math.fsum(failures) > delta):
        raise GuaranteeError(
            f"delta must be {'above' if needed else 'at least'} {-math.expm1(log_safe)!r} (what "
            f"the approximate guarantees already grant to failures); got {delta!r}."
        )
    return max(left, 0.0)


def labels(guarantee: Guarantee) -> dict[str, Any]:
    """Return what every measure carries along: neighbours and unit."""
    return {"neighbours": guarantee.neighbours, "unit": guarantee.unit}
