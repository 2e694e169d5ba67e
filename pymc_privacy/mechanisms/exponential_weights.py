"""A choice with probability ∝ exp(u / b): the scale b that a loss asks for, and what b promises.

If neighbouring databases differ by at most D in every utility, exp(u / b) changes by a factor of at
most exp(D / b), and so does the normaliser; hence epsilon = 2 D / b.
"""

from __future__ import annotations

from typing import Protocol

from pymc_privacy.accounting import Neighbours, PureDP, ZeroConcentratedDP
from pymc_privacy.arguments import shown
from pymc_privacy.errors import MechanismError
from pymc_privacy.mechanisms.base import need_sensitivity, resolve_scale, settle

_HOW = "epsilon= and sensitivity= (scale is 2 sensitivity / epsilon)"


class Weighted(Protocol):
    """A mechanism that chooses by exponential weights."""

    @property
    def scale(self) -> float:
        """Return b."""

    @property
    def epsilon(self) -> float | None:
        """Return the privacy loss, if that was given."""

    @property
    def sensitivity(self) -> float | None:
        """Return D, if that was given."""

    @property
    def neighbours(self) -> Neighbours | None:
        """Return what the sensitivity was computed for."""


def settle_scale(mechanism: Weighted, compared: str) -> None:
    """Turn what was given into b = 2 D / epsilon, and state the guarantee once to have it checked.

    Parameters
    ----------
    mechanism
        Whose fields are set, though it is frozen: its constructor calls this.
    compared : str
        What utilities belong to, in words.
    """
    settle(mechanism, "epsilon", "sensitivity")
    calibrated = None
    if mechanism.epsilon is not None:
        calibrated = 2 * need_sensitivity("epsilon", mechanism.sensitivity) / mechanism.epsilon
    scale = resolve_scale(mechanism.scale, calibrated, how=_HOW)
    if not isinstance(scale, float):
        raise MechanismError(
            f"scale must be one number, because utilities of all {compared} are compared with each "
            f"other; got {shown(mechanism.scale)}."
        )
    object.__setattr__(mechanism, "scale", scale)
    pure_guarantee(mechanism)


def pure_guarantee(mechanism: Weighted) -> PureDP | None:
    """Promise epsilon = 2 D / b, if the sensitivity is known."""
    if mechanism.sensitivity is None:
        return None
    epsilon = mechanism.epsilon or 2 * mechanism.sensitivity / mechanism.scale
    return PureDP(epsilon, neighbours=mechanism.neighbours)


def concentrated_guarantee(mechanism: Weighted) -> ZeroConcentratedDP | None:
    """Promise epsilon² / 8 as zCDP, since the privacy loss has a range of epsilon.

    That is less than what epsilon alone implies, to compose many choices by.
    """
    pure = pure_guarantee(mechanism)
    if pure is None:
        return None
    return ZeroConcentratedDP.from_bounded_range(pure.epsilon, neighbours=pure.neighbours)
