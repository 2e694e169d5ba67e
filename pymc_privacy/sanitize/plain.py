"""Guarantees as plain dictionaries, for cards and ledgers, and back."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from pymc_privacy.accounting import (
    ApproximateDP,
    GaussianDP,
    Guarantee,
    PureDP,
    RenyiDP,
    ZeroConcentratedDP,
)
from pymc_privacy.errors import GuaranteeError

_KINDS: dict[str, Any] = {
    "pure": PureDP,
    "approximate": ApproximateDP,
    "zero_concentrated": ZeroConcentratedDP,
    "gaussian": GaussianDP,
    "renyi": RenyiDP,
}


def to_plain(guarantee: Guarantee) -> dict[str, Any]:
    """Return measure, values, neighbours and unit.

    Examples
    --------
    >>> to_plain(PureDP(0.5, neighbours="replace_one"))["measure"]
    'pure'
    """
    for measure, kind in _KINDS.items():
        if isinstance(guarantee, kind):
            return {"measure": measure, **asdict(guarantee)}
    raise GuaranteeError(
        "A guarantee must be one of PureDP, ApproximateDP, ZeroConcentratedDP, GaussianDP or "
        "RenyiDP (of a mechanism pass its .guarantee, of an FDP what it implies by "
        f"to_approximate) to be written down in numbers; got {guarantee!r}."
    )


def from_plain(plain: dict[str, Any]) -> Guarantee:
    """Return the guarantee that `to_plain` wrote down.

    Examples
    --------
    >>> from_plain({"measure": "pure", "epsilon": 0.5, "neighbours": None, "unit": "one record"})
    PureDP(epsilon=0.5, neighbours=None, unit='one record')
    """
    values = dict(plain)
    measure = values.pop("measure", None)
    if measure not in _KINDS:
        raise GuaranteeError(
            f"The measure of a guarantee must be one of {', '.join(_KINDS)}; got {measure!r}."
        )
    return _KINDS[measure](**values)
