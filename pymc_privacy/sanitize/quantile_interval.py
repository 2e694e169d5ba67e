"""`pp_interval`: an interval of two posterior quantiles by the exponential mechanism."""

from __future__ import annotations

from typing import Any

from pymc_privacy.accounting import PureDP
from pymc_privacy.sanitize.budget import share_of
from pymc_privacy.sanitize.interval import PrivateInterval, checked_prob
from pymc_privacy.sanitize.ledger import Ledger
from pymc_privacy.sanitize.methods import UNKNOWN
from pymc_privacy.sanitize.quantiles import QuantilePlan, published_quantiles


def pp_interval(
    draws: Any,
    *,
    bounds: tuple[float, float],
    epsilon: float,
    prob: float = 0.95,
    ledger: Ledger | None = None,
    name: str = "parameter",
) -> PrivateInterval:
    """Return an interval of two `pp_quantile`, half the budget each: proven, and of little use.

    Parameters
    ----------
    draws, bounds, epsilon, ledger
        As for `pp_quantile`.
    prob : float
    name : str

    Raises
    ------
    ReleaseError
        If draws are not finite numbers, one or more, or the bounds are not in order.
    GuaranteeError
        If epsilon or prob is out of its range.
    BudgetError
        If the ledger cannot cover the charge; nothing was drawn.
    LedgerError
        If the ledger was charged under this name before, or its file is damaged.

    See Also
    --------
    pp_quantile : One end of it.
    noise_aware_interval : An interval of more use.

    References
    ----------
    - Zhou, R. and Liu, F. (2025), "PRECISE: PRivacy-loss-Efficient and Consistent Inference based
      on poSterior quantilEs", arXiv:2502.00192; "Liu et al." here.

    Examples
    --------
    >>> import numpy as np
    >>> import pymc_privacy as pmp
    >>> draws = np.random.default_rng(1).beta(31, 71, size=100)
    >>> pmp.pp_interval(draws, bounds=(0, 1), epsilon=1.0).label
    'proven'
    """
    prob = checked_prob(prob)
    guarantee = PureDP(epsilon, neighbours="replace_one")
    half = share_of(guarantee, 2)
    tail = (1 - prob) / 2
    plans = [QuantilePlan("draws", q, bounds, half, name) for q in (tail, 1 - tail)]
    published = published_quantiles(plans, draws, ledger, guarantee, unless="parameter")
    return PrivateInterval(
        lower=float(published[0]),
        upper=float(published[1]),
        prob=prob,
        method="PPquantile",
        label="proven",
        assumptions=(UNKNOWN,),
        guarantee=guarantee,
        releases=tuple(published),
        name=name,
    )
