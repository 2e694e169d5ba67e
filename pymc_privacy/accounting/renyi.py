"""Renyi divergences of chosen orders between neighbours, and all that follows from them.

What any test can tell apart is told apart by its two outcomes, so that pairs of laws on two points
say what a bound on a divergence allows (Asoodeh et al. 2021, Theorem 1). "Lemma A.8" is that of
Awan et al. on an unknown sample size.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, cast

import numpy as np
from scipy.optimize import brentq, minimize_scalar

from pymc_privacy.accounting.guarantees import (
    ApproximateDP,
    Guarantee,
    PureDP,
    ZeroConcentratedDP,
    checked,
    labels,
    plain,
    replaced,
    settle,
)
from pymc_privacy.accounting.profiles import (
    TINY,
    least_epsilon,
    rising_root,
    solve,
    upwards,
)
from pymc_privacy.arguments import Neighbours, reals, shown
from pymc_privacy.errors import GuaranteeError


@dataclass(frozen=True)
class RenyiDP(Guarantee):
    """The Renyi divergence of order alpha between neighbours is at most epsilon.

    With several orders, each has its epsilon, and all of them hold at once.

    Parameters
    ----------
    alpha : float or sequence of float
        The order of the divergence, or orders, > 1 (Mironov 2017, Definition 4).
    epsilon : float or sequence of float
        Its bound at each of them, > 0.
    neighbours, unit
        As in `PureDP`.

    Raises
    ------
    GuaranteeError
        By the constructor, if alpha is not > 1, epsilon not > 0 and finite, there is not one
        epsilon for each order, or neighbours or unit are no such labels.

    See Also
    --------
    ZeroConcentratedDP : Holds at all orders, with epsilon = rho alpha.
    FDP : A whole trade-off function.
    compose : What several releases promise together; here epsilons add at each order.

    References
    ----------
    - Mironov, I. (2017), "Renyi differential privacy", IEEE Computer Security Foundations Symposium
      (CSF).
    - Canonne, C. L., Kamath, G. and Steinke, T. (2020), "The discrete Gaussian for differential
      privacy", Advances in Neural Information Processing Systems 33.
    - Asoodeh, S., Liao, J., Calmon, F. P., Kosut, O. and Sankar, L. (2021), "Three variants of
      differential privacy: lossless conversion and applications", IEEE Journal on Selected Areas
      in Information Theory 2(1).
    - Awan, J., Barrientos, A. F. and Ju, N. (2024), "Statistical inference for privatized data with
      unknown sample size", arXiv:2406.06231.

    Examples
    --------
    >>> print(RenyiDP(8, 0.5))
    (8, 0.5)-RDP (Renyi), neighbours: not stated, unit: one record
    >>> gaussian = RenyiDP.of(ZeroConcentratedDP(0.125), alpha=[2, 8, 32])
    >>> round(gaussian.to_approximate(1e-6).epsilon, 2)
    2.54
    """

    alpha: float | tuple[float, ...]
    epsilon: float | tuple[float, ...]
    neighbours: Neighbours | None = field(default=None, kw_only=True)
    unit: str = field(default="one record", kw_only=True)

    def __post_init__(self) -> None:
        alphas, epsilons = (_listed(n, getattr(self, n)) for n in ("alpha", "epsilon"))
        if len(alphas) != len(epsilons) or len(set(alphas)) < len(alphas) or not alphas:
            raise GuaranteeError(
                "alpha and epsilon must be two numbers, or two lists of the same length with "
                "different orders (each order of the divergence has one bound); got "
                f"alpha={shown(self.alpha)} and epsilon={shown(self.epsilon)}."
            )
        pairs = sorted(zip(alphas, epsilons, strict=True))
        whole: Any = [tuple(values) for values in zip(*pairs, strict=True)]
        single = not _several(self.alpha) and not _several(self.epsilon)
        alpha, epsilon = (values[0] for values in whole) if single else whole
        settle(self, alpha=alpha, epsilon=epsilon)

    @classmethod
    def of(cls, guarantee: Guarantee, alpha: float | Sequence[float]) -> "RenyiDP":
        """Imply the bounds of these orders by another guarantee; tight for pure and Gaussian DP."""
        if not isinstance(guarantee, Guarantee):
            raise GuaranteeError(
                "RenyiDP.of must be given a guarantee, such as PureDP(1.0); got "
                f"{shown(guarantee)}."
            )
        orders = _listed("alpha", alpha)
        bounds = tuple(guarantee.renyi(order) for order in orders)
        if not _several(alpha):
            return cls(orders[0], bounds[0], **labels(guarantee))
        return cls(orders, bounds, **labels(guarantee))

    @property
    def orders(self) -> dict[float, float]:
        """The bound on the divergence by its order."""
        if isinstance(self.alpha, tuple):
            return dict(zip(self.alpha, cast(tuple[float, ...], self.epsilon), strict=True))
        return {self.alpha: cast(float, self.epsilon)}

    def renyi(self, alpha: float) -> float:
        """Bound the divergence of another order, infinite above the largest one that is known.

        Divergences D of order a increase in a, and (a - 1) D is convex in it, 0 at a = 1 (van Erven
        & Harremoes 2014, Theorem 3 and Corollary 2).
        """
        alpha = checked("alpha", alpha)
        known = self.orders
        if alpha in known:
            return min(value for order, value in known.items() if order >= alpha)
        larger = [order for order in known if order > alpha]
        if not larger:
            return math.inf
        above = min(larger)
        below = max((order for order in known if order < alpha), default=1.0)
        share = (alpha - below) / (above - below)
        ends = (below - 1) * known.get(below, 0.0), (above - 1) * known[above]
        between = ((1 - share) * ends[0] + share * ends[1]) / (alpha - 1)
        return min(upwards(between), *(known[order] for order in larger))

    def delta(self, epsilon: float) -> float:
        """Bound the profile by the best order, without loss for that order.

        The order is chosen by Canonne et al. (2020), Proposition 12.
        """
        epsilon = checked("epsilon", epsilon, zero=True)
        order, bound = min(self.orders.items(), key=lambda pair: _log_delta(pair, epsilon))
        return min(_lossless_delta(order, bound, epsilon), self._distance)

    def to_approximate(self, delta: float) -> ApproximateDP:
        """Imply (epsilon, delta)-DP by the best order; Asoodeh et al. (2021), Theorem 3."""
        delta = checked("delta", delta)

        def epsilon_of(pair: tuple[float, float]) -> float:
            return (_log_delta(pair, 0.0) - math.log(delta)) / (pair[0] - 1)

        best = min(self.orders.items(), key=epsilon_of)
        alone = RenyiDP(*best)
        most = max(epsilon_of(best), delta)
        while alone.delta(most) > delta:
            most *= 2
        epsilon = least_epsilon(alone.delta, delta, lambda: solve(alone.delta, delta, most))
        return ApproximateDP(epsilon, delta, **labels(self))

    def to_zero_concentrated(self) -> ZeroConcentratedDP:
        """Imply no zCDP, which bounds divergences of all orders."""
        raise GuaranteeError(
            "A guarantee must bound Renyi divergences of all orders to imply zero-concentrated DP "
            f"(a large order may be unbounded); got {self}."
        )

    def to_total_variation(self) -> float:
        """Bound it by min(sqrt(epsilon / 2), sqrt(1 - exp(-epsilon))); Lemma A.8 (6).

        As a divergence of order > 1 bounds relative entropy. Not tight: see `FDP.of`.
        """
        least = min(self.orders.values())
        return min(math.sqrt(least / 2), math.sqrt(-math.expm1(-least)))

    def to_replace_one(self) -> "RenyiDP":
        """Imply divergences of half the orders for a replacement, of those that stay above 1.

        By Mironov (2017), Corollary 4: of order a / 2 at most (a - 1) / (a - 2) times that of order
        a, plus that of order a - 1.
        """
        if self.neighbours != "add_remove":
            return cast(RenyiDP, replaced(self))
        halved = {
            order / 2: upwards((order - 1) / (order - 2) * bound + self.renyi(order - 1))
            for order, bound in self.orders.items()
            if order > 2
        }
        if not halved:
            raise GuaranteeError(
                "alpha must be above 2 to say what replacing a record costs (its two steps take "
                f"half of the order); got {self}."
            )
        values: Any = (tuple(halved), tuple(halved.values()))
        alpha, epsilon = values if isinstance(self.alpha, tuple) else (v[0] for v in values)
        return replace(self, alpha=alpha, epsilon=epsilon, neighbours="replace_one")

    @cached_property
    def _distance(self) -> float:
        """Return the largest total variation that the orders allow, attained by pure DP.

        The tests that a bound on a convex divergence allows are convex and symmetric in
        (p, q) -> (1 - q, 1 - p), so that p - q is largest where q = 1 - p, the law of randomized
        response.
        """
        return min(_distance_of(*pair) for pair in self.orders.items())

    def _measure(self) -> str:
        pairs = [f"({plain(order)}, {plain(bound)})" for order, bound in self.orders.items()]
        few = pairs if len(pairs) <= 3 else [pairs[0], "...", pairs[-1]]
        return f"{', '.join(few)}-RDP (Renyi)"


def _several(value: Any) -> bool:
    return isinstance(value, list | tuple) or (isinstance(value, np.ndarray) and value.ndim > 0)


def _listed(name: str, value: Any) -> tuple[float, ...]:
    """Return one number or several as a tuple of floats within their range."""
    if not _several(value):
        return (checked(name, value),)
    said: Any = {"meaning": "one for each order of the divergence", "error": GuaranteeError}
    return tuple(
        checked(name, v) for v in reals(name, value, shapes=[("orders",)], **said).tolist()
    )


def _log_delta(pair: tuple[float, float], epsilon: float) -> float:
    """Return log delta of Canonne et al. (2020), Proposition 12, at one order."""
    order, bound = pair
    return (order - 1) * (bound - epsilon + math.log1p(-1 / order)) - math.log(order)


def _lossless_delta(order: float, bound: float, epsilon: float) -> float:
    """Return the largest hockey-stick divergence that one order allows, from above.

    With L = dP/dQ, it is the largest E(L - s)+ under E(L) = 1 and E(L^a) <= m, where s =
    exp(epsilon) and m = exp((a - 1) bound). Wherever c0 + c1 l + c2 l^a >= (l - s)+ for all l >= 0,
    c0 + c1 + c2 m is a bound. The curve that touches 0 at l = v s and l - s at l = x s does, where
    g(x) = g(v), g(x) = x^(a - 1) ((a - 1) x - a). The least bound over v is attained by laws on
    these two values; v = 0 gives the one of Canonne et al. (2020). From exp(bound) = s a / (a - 1)
    on, the curve need not be flat at l = 0, and 1 - s exp(-bound) is the least.
    """
    if bound - epsilon >= -math.log1p(-1 / order):
        return -math.expm1(epsilon - bound) * (1 + _SLACK)

    def log_bound(v: float) -> float:
        x = _touching(order, v)
        log_m, log_s = (order - 1) * bound, epsilon
        # v^(a - 1) ((a - 1) v - a / s) s^a / m, which is what v > 0 adds to m.
        lower = 0.0
        if v > 0:
            log_size = order * (math.log(v) + log_s) - log_m
            size = math.exp(log_size) if log_size < 700 else math.inf
            lower = size * ((order - 1) - order * math.exp(-log_s) / v)
        ratio = -math.expm1((order - 1) * (math.log(v) - math.log(x))) if v > 0 else 1.0
        if not -1 < lower < math.inf or ratio <= 0:
            return math.inf
        scale = log_m - math.log(order) - (order - 1) * (math.log(x) + log_s)
        return scale + math.log1p(lower) - math.log(ratio)

    # The smaller value of L is below its mean 1.
    found = minimize_scalar(
        log_bound, bounds=(0.0, math.exp(-epsilon)), method="bounded", options={"xatol": 1e-12}
    )
    log_delta = min(float(found.fun), log_bound(0.0), 0.0)
    return max(math.exp(log_delta) * (1 + _SLACK), TINY)


_SLACK = 2.0**-40  # relative, above the rounding of the formula in `_lossless_delta`


def _touching(order: float, v: float) -> float:
    """Solve g(x) = g(v) for x in [1, a / (a - 1)], v in [0, 1)."""
    high = order / (order - 1)
    if v <= 0:
        return high

    def g(x: float) -> float:
        return math.exp((order - 1) * math.log(x)) * ((order - 1) * x - order)

    goal = g(v)
    if g(1.0) >= goal:
        return 1.0
    return float(brentq(lambda x: g(x) - goal, 1.0, high, xtol=1e-16, rtol=1e-15))


def _distance_of(order: float, bound: float) -> float:
    """Return tanh(e / 2) for the epsilon e of the randomized response with that divergence."""

    def excess(log_e: float) -> float:
        return math.log(PureDP(math.exp(log_e)).renyi(order)) - math.log(bound)

    # The divergence is at most e, and that of order 1, e tanh(e / 2), at most the divergence.
    low = math.log(bound) - 1
    e = math.exp(rising_root(excess, low, low + 3))
    return min(math.tanh(e / 2) * (1 + _SLACK), 1.0)
