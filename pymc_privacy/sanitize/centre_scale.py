"""Intervals from centre and scale of a posterior: for any posterior with known sensitivities.

`centre_scale_interval` knows them for four families; `summary_interval` takes them on trust.
"""

from __future__ import annotations

import datetime
from typing import Any

import numpy as np

from pymc_privacy.accounting import PureDP
from pymc_privacy.arguments import instance, pair
from pymc_privacy.errors import ReleaseError
from pymc_privacy.sanitize.exact_noise import ExactNoise
from pymc_privacy.sanitize.families import Family, SummarisedFamily, SummaryBounds
from pymc_privacy.sanitize.interval import PrivateInterval, checked_prob
from pymc_privacy.sanitize.ledger import Ledger
from pymc_privacy.sanitize.methods import NEARLY_NORMAL
from pymc_privacy.sanitize.plan import charge, checked_ledger, checked_size
from pymc_privacy.sanitize.quantiles import checked_draws
from pymc_privacy.sanitize.rows import rows
from pymc_privacy.sanitize.summary_plan import SummaryPlan, SummaryRelease, plan_summary


def centre_scale_interval(
    records: Any,
    family: Family,
    *,
    epsilon: float,
    prob: float = 0.95,
    size: int | None = None,
    ledger: Ledger | None = None,
    name: str | None = None,
) -> PrivateInterval:
    """Release mean and standard deviation of a posterior whose sensitivities are known exactly.

    Parameters
    ----------
    records : array_like
    family : Family
        `Proportion`, `Rate`, `NormalMean` or `NormalVariance`; the posterior of a slope has no
        bounded sensitivity.
    epsilon : float
        Pure privacy; neighbours replace one record.
    prob : float
    size : int, optional
        The number of records, where it was fixed beforehand; others are refused.
    ledger : Ledger, optional
    name : str, optional

    Returns
    -------
    PrivateInterval
        Proven; conservative.

    Raises
    ------
    ReleaseError
        If the family has no bounded sensitivity, or the records are not such as it takes, or not
        `size` many.
    GuaranteeError
        If epsilon or prob is out of its range, or the ledger has other neighbours.
    BudgetError
        If the ledger cannot cover the charge; nothing was drawn.
    LedgerError
        If the ledger was charged under this name before, or its file is damaged.

    See Also
    --------
    summary_interval : The same for any posterior, with stated sensitivities.
    noise_aware_interval : The posterior given a noisy total.

    Examples
    --------
    >>> import pymc_privacy as pmp
    >>> interval = pmp.centre_scale_interval([0, 1, 1, 0] * 100, pmp.Proportion(), epsilon=1.0)
    >>> interval.label, 0.3 < interval.lower < interval.upper < 0.7
    ('proven', True)
    """
    prob, ledger = checked_prob(prob), checked_ledger(ledger)
    instance("family", family, Family, "a Family, such as Proportion()", error=ReleaseError)
    if not isinstance(family, SummarisedFamily):
        raise ReleaseError(
            "The posterior must have a bounded sensitivity for its mean to be released; that of a "
            f"{family.name} has none. Use noise_aware_interval."
        )
    guarantee = PureDP(epsilon, neighbours="replace_one")
    declared = checked_size(size, guarantee)
    # Of the records only their number is looked at before the plan; replacement makes it public.
    number = _number_of(records) if declared is None else declared
    plan = plan_summary(family, number, guarantee, family.name if name is None else name)
    _check_number(records, number)
    totals = family.summary_totals(records)
    cells = plan.cells(*family.summary(totals, number))
    return _interval(plan, cells, prob=prob, ledger=ledger, unless=family.name)


def _number_of(records: Any) -> int:
    return len(rows("records", records, None))


def _check_number(records: Any, declared: int) -> None:
    if _number_of(records) != declared:
        raise ReleaseError(
            f"records must be the {declared} that were declared with size=; got "
            f"{_number_of(records)}."
        )


def summary_interval(
    draws: Any,
    *,
    centre_sensitivity: float,
    spread_sensitivity: float,
    largest_spread: float,
    bounds: tuple[float, float],
    epsilon: float,
    prob: float = 0.95,
    ledger: Ledger | None = None,
    name: str = "parameter",
) -> PrivateInterval:
    """Release mean and standard deviation of draws whose sensitivities somebody states.

    Parameters
    ----------
    draws : array_like
        Of one parameter of any posterior; values beyond the bounds are clipped.
    centre_sensitivity, spread_sensitivity : float
        Suprema over all pairs of neighbours of how far mean and standard deviation of the draws
        can move; there is no default. Draws are random themselves: the Monte Carlo error of both
        data sets is part of the sensitivity.
    largest_spread : float
        The largest standard deviation that any records could give.
    bounds : (float, float)
        Of the parameter.
    epsilon, prob, ledger, name
        As for `centre_scale_interval`.

    Returns
    -------
    PrivateInterval
        Conditional on the sensitivities.

    Raises
    ------
    ReleaseError
        If a sensitivity or the largest spread is not > 0 and finite, bounds are not in order, or
        there are fewer than two draws.
    GuaranteeError
        If epsilon or prob is out of its range, or the ledger has other neighbours.
    BudgetError
        If the ledger cannot cover the charge; nothing was drawn.
    LedgerError
        If the ledger was charged under this name before, or its file is damaged.

    See Also
    --------
    centre_scale_interval : The same with proven sensitivities.
    posterior_interval : An interval that needs no sensitivity of a posterior.

    Examples
    --------
    >>> import numpy as np
    >>> import pymc_privacy as pmp
    >>> draws = np.random.default_rng(1).beta(109, 393, size=4000)
    >>> interval = pmp.summary_interval(
    ...     draws,
    ...     centre_sensitivity=0.003,
    ...     spread_sensitivity=0.002,
    ...     largest_spread=0.03,
    ...     bounds=(0, 1),
    ...     epsilon=1.0,
    ... )
    >>> interval.label
    'conditional'
    """
    prob, ledger = checked_prob(prob), checked_ledger(ledger)
    low, high = pair("bounds", bounds, meaning="of the parameter", error=ReleaseError)
    stated = SummaryBounds(centre_sensitivity, spread_sensitivity, high - low, largest_spread)
    guarantee = PureDP(epsilon, neighbours="replace_one")
    plan = SummaryPlan(name, guarantee, (low, high), stated)
    values = checked_draws(draws)
    if values.size < 2:
        raise ReleaseError(f"draws must be two finite numbers or more; got {values.size}.")
    inside = (np.clip(values, low, high) - low) / (high - low)
    width = high - low
    cells = plan.cells(width * float(inside.mean()), width * float(inside.std()))
    return _interval(plan, cells, prob=prob, ledger=ledger, unless="parameter")


def _interval(
    plan: SummaryPlan,
    cells: tuple[int, int],
    *,
    prob: float,
    ledger: Ledger | None,
    unless: str,
) -> PrivateInterval:
    """Charge the ledger, draw, and return what follows from the draw alone."""
    charge(ledger, plan.guarantee, plan.name, unless=unless)
    noisy = plan.drawn(ExactNoise(), cells)
    lower, upper = plan.ends(noisy, prob)
    return PrivateInterval(
        lower=lower,
        upper=upper,
        prob=prob,
        method="centre and scale",
        label=plan.label,  # type: ignore[arg-type]
        assumptions=(*plan.assumptions, NEARLY_NORMAL),
        guarantee=plan.guarantee,
        releases=(SummaryRelease(plan, noisy, datetime.date.today().isoformat()),),
        name=plan.name,
    )
