"""Whether a budget covers a list of charges, in exact arithmetic where the measure is additive."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from dataclasses import fields, replace
from fractions import Fraction
from typing import Any

from pymc_privacy.accounting import (
    ApproximateDP,
    GaussianDP,
    Guarantee,
    PureDP,
    ZeroConcentratedDP,
    compose,
)
from pymc_privacy.accounting.guarantees import labels
from pymc_privacy.arguments import shown
from pymc_privacy.errors import GuaranteeError
from pymc_privacy.sanitize.calibrate import exactly


def check_budget(budget: Any) -> None:
    """Refuse a budget against which charges could not be compared."""
    if not isinstance(budget, PureDP | ApproximateDP | ZeroConcentratedDP | GaussianDP):
        raise GuaranteeError(
            f"A budget must be a guarantee such as PureDP(1.0, neighbours='replace_one'); got "
            f"{shown(budget)}."
        )
    if budget.neighbours is None:
        raise GuaranteeError(
            'A budget must state neighbours= "replace_one" or "add_remove" (charges for different '
            "relations do not add up); got None."
        )
    if isinstance(budget, ApproximateDP) and budget.delta == 0:
        raise GuaranteeError("An approximate budget must have delta > 0 (else use PureDP); got 0.")


def total(budget: Guarantee, charges: list[Guarantee]) -> Guarantee:
    """Return what the charges promise together, in the measure of the budget.

    Examples
    --------
    >>> total(ZeroConcentratedDP(1.0), [ZeroConcentratedDP(0.25), GaussianDP(0.5)]).rho
    0.375
    """
    if isinstance(budget, ApproximateDP):
        return compose(*charges, delta=budget.delta)
    return together([_converted(budget, charge) for charge in charges])


def together(guarantees: list[Guarantee]) -> Guarantee:
    """Return what guarantees promise together, rounded up where no float is their sum as decimals.

    Examples
    --------
    >>> compose(PureDP(0.1), PureDP(0.7)).epsilon, together([PureDP(0.1), PureDP(0.7)]).epsilon
    (0.7999999999999999, 0.8)
    """
    whole: Any = compose(*guarantees)
    pairs = isinstance(whole, ApproximateDP)
    parts = [_pair(one) if pairs else _converted(whole, one) for one in guarantees]
    power = 2 if isinstance(whole, GaussianDP) else 1

    def rounded_up(name: str) -> float:
        value = getattr(whole, name)
        wanted = sum(exactly(getattr(part, name)) ** power for part in parts)
        while exactly(value) ** power < wanted:
            value = math.nextafter(value, math.inf)
        return value

    values = [f.name for f in fields(whole) if f.name not in ("neighbours", "unit")]
    return replace(whole, **{name: rounded_up(name) for name in values})


def covers(budget: Guarantee, charges: list[Guarantee]) -> bool:
    """Return whether the budget covers all charges; numbers are compared as decimals, exactly.

    Examples
    --------
    >>> tenth, one = PureDP(0.1), PureDP(1.0)
    >>> covers(one, [tenth] * 10), covers(one, [tenth] * 11)
    (True, False)
    """
    for charge in charges:
        _check_labels(budget, charge)
    if isinstance(budget, ApproximateDP):
        return _covers_approximate(budget, charges)
    return _amount(budget, charges) <= _amount(budget, [budget])


def can_be_charged(budget: Any, charge: Guarantee) -> bool:
    """Return whether a charge is of a kind that the budget can cover, however large it is.

    Examples
    --------
    >>> can_be_charged(PureDP(1.0), PureDP(9.0)), can_be_charged(PureDP(1.0), GaussianDP(0.1))
    (True, False)
    """
    try:
        _check_labels(budget, charge)
        return isinstance(budget, ApproximateDP) or bool(_converted(budget, charge))
    except GuaranteeError:
        return False


def left(budget: Guarantee, charges: list[Guarantee]) -> Guarantee | None:
    """Return the largest charge that is still covered, or None; a pure one if that is a choice.

    Examples
    --------
    >>> left(PureDP(1.0), [PureDP(0.1)] * 9)
    PureDP(epsilon=0.1, neighbours=None, unit='one record')
    """
    kind = PureDP if isinstance(budget, ApproximateDP) else type(budget)

    def covered(value: float) -> bool:
        return covers(budget, [*charges, kind(value, **labels(budget))])  # type: ignore[call-arg]

    if isinstance(budget, ApproximateDP):
        value = _largest(covered, budget.epsilon)
    else:
        whole = _amount(budget, [budget])
        rest = max(whole - _amount(budget, charges), Fraction(0))
        # Squares of mu may be beyond floats, their shares are not.
        squared = isinstance(budget, GaussianDP)
        value = budget.mu * math.sqrt(rest / whole) if squared else float(rest)  # type: ignore
        # The nearest float may be above the fraction, by its last digits.
        for _ in range(4):
            value = value if value <= 0 or covered(value) else math.nextafter(value, 0.0)
    return kind(value, **labels(budget)) if value > 0 and covered(value) else None  # type: ignore


def share_of(guarantee: PureDP, parts: int) -> PureDP:
    """Return one of several equal parts of a pure guarantee, which together are at most all of it.

    Examples
    --------
    >>> share_of(PureDP(1.0, neighbours="replace_one"), 2).epsilon
    0.5
    """
    share = guarantee.epsilon / parts
    while parts * exactly(share) > exactly(guarantee.epsilon):
        share = math.nextafter(share, 0.0)
    return PureDP(share, **labels(guarantee))


def _largest(holds: Callable[[float], bool], guess: float) -> float:
    """Return the largest float at which a condition holds, up to rounding, by bisection."""
    low, high = 0.0, guess
    while holds(high):
        low, high = high, 2 * high
    while high - low > 1e-12 * high and high > sys.float_info.min:
        middle = (low + high) / 2
        low, high = (middle, high) if holds(middle) else (low, middle)
    return low


def _amount(budget: Guarantee, charges: list[Guarantee]) -> Fraction:
    """Return the sum of epsilons, of rhos, or of squared mus."""
    converted: list[Any] = [_converted(budget, charge) for charge in charges]
    if isinstance(budget, PureDP):
        return sum((exactly(c.epsilon) for c in converted), Fraction(0))
    if isinstance(budget, ZeroConcentratedDP):
        return sum((exactly(c.rho) for c in converted), Fraction(0))
    return sum((exactly(c.mu) ** 2 for c in converted), Fraction(0))


def _covers_approximate(budget: ApproximateDP, charges: list[Guarantee]) -> bool:
    """Compare plain sums, which are exact, and then the best composition that is known."""
    if all(isinstance(charge, PureDP | ApproximateDP) for charge in charges):
        pairs = [_pair(charge) for charge in charges]
        epsilon = sum(exactly(pair.epsilon) for pair in pairs)
        delta = sum(exactly(pair.delta) for pair in pairs)
        if epsilon <= exactly(budget.epsilon) and delta <= exactly(budget.delta):
            return True
    try:
        composed = compose(*charges, delta=budget.delta)
    except GuaranteeError:
        return False  # their failures alone are likelier than the delta of the budget
    assert isinstance(composed, ApproximateDP)
    return composed.epsilon <= budget.epsilon


def _pair(charge: Any) -> ApproximateDP:
    return ApproximateDP(charge.epsilon, 0.0) if isinstance(charge, PureDP) else charge


def _converted(budget: Guarantee, charge: Guarantee) -> Guarantee:
    """Return what a charge implies in the measure of the budget, or refuse it."""
    if type(charge) is type(budget):
        return charge
    if isinstance(budget, ZeroConcentratedDP) and isinstance(charge, PureDP | GaussianDP):
        return charge.to_zero_concentrated()
    raise GuaranteeError(
        f"A charge must be in the measure of the budget, or imply it; the budget is {budget}; got "
        f"{charge}."
    )


def _check_labels(budget: Guarantee, charge: Guarantee) -> None:
    if (charge.neighbours, charge.unit) != (budget.neighbours, budget.unit):
        raise GuaranteeError(
            "A charge must have the neighbours and the unit of the budget, "
            f"{budget.neighbours} and {budget.unit!r}; got {charge.neighbours} and {charge.unit!r}."
        )
