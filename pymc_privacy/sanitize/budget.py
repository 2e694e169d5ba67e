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
    RenyiDP,
    ZeroConcentratedDP,
    compose,
)
from pymc_privacy.accounting.guarantees import labels
from pymc_privacy.arguments import shown
from pymc_privacy.errors import GuaranteeError
from pymc_privacy.sanitize.calibrate import exactly


def check_budget(budget: Any) -> None:
    """Refuse a budget against which charges could not be compared."""
    measures = PureDP | ApproximateDP | ZeroConcentratedDP | GaussianDP | RenyiDP
    if not isinstance(budget, measures):
        raise GuaranteeError(
            "A budget must be a guarantee in numbers that add up, such as PureDP(1.0, "
            f"neighbours='replace_one') (what a trade-off function implies is to be had by its "
            f"to_approximate); got {shown(budget)}."
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

    if isinstance(whole, RenyiDP):
        sums = [sum(map(exactly, bounds)) for bounds in zip(*map(_bounds, parts), strict=True)]
        most = [
            _at_least(value, wanted) for value, wanted in zip(_bounds(whole), sums, strict=True)
        ]
        return replace(whole, epsilon=tuple(most) if isinstance(whole.alpha, tuple) else most[0])

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
    spent, granted = _amounts(budget, charges), _amounts(budget, [budget])
    return all(amount <= most for amount, most in zip(spent, granted, strict=True))


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

    if isinstance(budget, RenyiDP):
        return _left_at_each_order(budget, charges)
    if isinstance(budget, ApproximateDP):
        value = _largest(covered, budget.epsilon)
    else:
        whole = _amounts(budget, [budget])[0]
        rest = max(whole - _amounts(budget, charges)[0], Fraction(0))
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


def _left_at_each_order(budget: RenyiDP, charges: list[Guarantee]) -> RenyiDP | None:
    whole, spent = _amounts(budget, [budget]), _amounts(budget, charges)
    rest = [math.nextafter(float(a - b), 0.0) for a, b in zip(whole, spent, strict=True)]
    if not charges or min(rest) <= 0:
        return None if charges else budget
    return replace(budget, epsilon=tuple(rest) if isinstance(budget.alpha, tuple) else rest[0])


def _amounts(budget: Guarantee, charges: list[Guarantee]) -> list[Fraction]:
    """Return the sum of epsilons, of rhos, or of squared mus; for Renyi, of each order."""
    converted: list[Any] = [_converted(budget, charge) for charge in charges]
    if isinstance(budget, PureDP):
        return [sum((exactly(c.epsilon) for c in converted), Fraction(0))]
    if isinstance(budget, ZeroConcentratedDP):
        return [sum((exactly(c.rho) for c in converted), Fraction(0))]
    if isinstance(budget, RenyiDP):
        zero = [Fraction(0)] * len(budget.orders)
        bounds = zip(zero, *(map(exactly, _bounds(c)) for c in converted), strict=True)
        return [sum(at_one, Fraction(0)) for at_one in bounds]
    return [sum((exactly(c.mu) ** 2 for c in converted), Fraction(0))]


def _bounds(guarantee: Any) -> list[float]:
    return list(guarantee.orders.values())


def _at_least(value: float, wanted: Fraction | int) -> float:
    while exactly(value) < wanted:
        value = math.nextafter(value, math.inf)
    return value


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
    if isinstance(budget, RenyiDP):
        bounds = [charge.renyi(order) for order in budget.orders]
        if not all(map(math.isfinite, bounds)):
            raise GuaranteeError(
                "A charge must bound the divergences of all orders of the budget (what it says "
                f"nothing about may be infinite); the budget is {budget}; got {charge}."
            )
        return RenyiDP(tuple(budget.orders), tuple(bounds), **labels(charge))
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
