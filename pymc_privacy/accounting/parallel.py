"""The weakest of several guarantees, in a measure that all of them imply."""

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from pymc_privacy.accounting.guarantees import (
    ApproximateDP,
    GaussianDP,
    Guarantee,
    PureDP,
    ZeroConcentratedDP,
    labels,
)
from pymc_privacy.accounting.renyi import RenyiDP
from pymc_privacy.accounting.tradeoff import (
    FDP,
    NormalTradeoff,
    Statements,
    furthest,
    profiles_at,
    table_up_to,
)
from pymc_privacy.errors import GuaranteeError


def weakest(guarantees: tuple[Guarantee, ...], delta: float | None) -> Guarantee:
    """Return what each of the guarantees implies.

    Examples
    --------
    >>> weakest((PureDP(1.0), ApproximateDP(0.5, 1e-6)), None)
    ApproximateDP(epsilon=1.0, delta=1e-06, neighbours=None, unit='one record')
    """
    label, kinds = labels(guarantees[0]), {type(guarantee) for guarantee in guarantees}
    every: Any = guarantees
    if delta is not None:
        epsilon = max(guarantee.to_approximate(delta).epsilon for guarantee in guarantees)
        return ApproximateDP(epsilon, delta, **label)
    if len(set(guarantees)) == 1:
        return guarantees[0]
    if kinds == {PureDP}:
        return PureDP(max(g.epsilon for g in every), **label)
    if kinds == {GaussianDP}:
        return GaussianDP(max(g.mu for g in every), **label)
    if kinds <= {PureDP, ApproximateDP}:
        failure = max(g.delta for g in every if isinstance(g, ApproximateDP))
        return ApproximateDP(max(g.epsilon for g in every), failure, **label)
    if FDP in kinds:
        return FDP(_statements(guarantees), **label)
    if ApproximateDP in kinds:
        raise GuaranteeError(
            "delta must be given where approximate guarantees meet Gaussian, zero-concentrated or "
            "Renyi ones (these have an epsilon for each delta, and one must be chosen); got None."
        )
    if RenyiDP in kinds:
        return at_each_order(guarantees, max)
    return ZeroConcentratedDP(max(g.to_zero_concentrated().rho for g in every), **label)


def at_each_order(
    guarantees: tuple[Guarantee, ...], combined: Callable[[Iterable[float]], float]
) -> RenyiDP:
    """Combine the Renyi divergences of guarantees at the orders at which all have a bound.

    Examples
    --------
    >>> at_each_order((RenyiDP([2, 4], [0.25, 0.5]), RenyiDP(4, 0.5)), sum).orders
    {2.0: 0.75, 4.0: 1.0}
    """
    stated = [g for g in guarantees if isinstance(g, RenyiDP)]
    most = min(max(g.orders) for g in stated)
    orders = sorted({order for g in stated for order in g.orders if order <= most})
    bounds = [combined([g.renyi(order) for g in guarantees]) for order in orders]
    single = len(orders) == 1 and all(not isinstance(g.alpha, tuple) for g in stated)
    values: Any = (orders[0], bounds[0]) if single else (orders, bounds)
    return RenyiDP(*values, **labels(guarantees[0]))


def simplest(guarantee: Guarantee) -> Guarantee:
    """Return the guarantee whose trade-off function this is, or itself."""
    if not isinstance(guarantee, FDP):
        return guarantee
    f = guarantee.tradeoff
    if isinstance(f, NormalTradeoff):
        return GaussianDP(f.mu, **labels(guarantee))
    if not isinstance(f, Statements) or len(f.epsilons) > 1:
        return guarantee
    if f.deltas[0] == 0:
        return PureDP(f.epsilons[0], **labels(guarantee))
    return ApproximateDP(f.epsilons[0], f.deltas[0], **labels(guarantee))


def _statements(guarantees: tuple[Guarantee, ...]) -> Statements:
    epsilons = table_up_to(max(furthest(g, 1e-18) for g in guarantees))
    deltas = np.max([profiles_at(g, epsilons) for g in guarantees], axis=0)
    return Statements(tuple(epsilons), tuple(deltas.tolist()))
