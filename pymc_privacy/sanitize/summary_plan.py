"""The plan for centre and scale of a posterior, and what is published: two noisy integers.

Posterior mean and standard deviation, each divided by its sensitivity over its share of epsilon,
are rounded to a lattice and get discrete Laplace noise of scale 1: their L1 sensitivity is then the
sum of the shares. The interval is wide enough for an upper bound of the standard deviation and for
the noise of the mean together.
"""

from __future__ import annotations

import math
import sys
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from scipy.optimize import brentq
from scipy.special import log_ndtr

from pymc_privacy.accounting import PureDP
from pymc_privacy.arguments import choice, instance, integer, pair, shown, title
from pymc_privacy.errors import ReleaseError
from pymc_privacy.sanitize.calibrate import exactly, laplace_scale
from pymc_privacy.sanitize.exact_noise import Noise
from pymc_privacy.sanitize.families import OWN, SummarisedFamily, SummaryBounds
from pymc_privacy.sanitize.families.base import FOREIGN, MOST
from pymc_privacy.sanitize.plan import checked_date, checked_name

_CELL = 2.0**-32  # of the noise scale
_FLOATS = 2.0**-45  # relative; means and deviations in floats are this accurate, and more
_SHARE = 0.6  # of epsilon, for the centre
_SAFE = 1 + 2.0**-20
_WIDEST = 2.0**400  # of what is published, and of noise
STATED = (
    "No neighbour moves the mean of the draws by more than {centre:g}, nor their standard "
    "deviation by more than {spread:g}, Monte Carlo error included, and none exceeds {largest:g}: "
    "stated by the curator, and not checked."
)


@dataclass(frozen=True)
class SummaryPlan:
    """How mean and standard deviation are published, and what interval follows: public alone.

    Parameters
    ----------
    name : str
    guarantee : PureDP
        Under replacement.
    support : (float, float)
        Of the parameter, and so of its mean.
    bounds : SummaryBounds
        How far one record can move the two.
    family : SummarisedFamily, optional
        Whose bounds they are; None where somebody states them.
    size : int, optional
        The number of records, which those bounds depend on, and which is public.
    author : str, optional
        The class whose author states them; without one the curator does.
    """

    name: str
    guarantee: PureDP
    support: tuple[float, float]
    bounds: SummaryBounds
    family: SummarisedFamily | None = None
    size: int | None = None
    author: str | None = None

    def __post_init__(self) -> None:
        checked_name(self.name)
        meaning = "of the parameter"
        object.__setattr__(
            self, "support", pair("bounds", self.support, meaning=meaning, error=ReleaseError)
        )
        instance("guarantee", self.guarantee, PureDP, "a PureDP", error=ReleaseError)
        if self.guarantee.neighbours != "replace_one":
            raise ReleaseError(
                'A summary must be released under neighbours="replace_one", for which it is '
                f"calibrated; got {self.guarantee.neighbours!r}."
            )
        instance("bounds", self.bounds, SummaryBounds, "a SummaryBounds", error=ReleaseError)
        if self.author is not None:
            title("author", self.author, error=ReleaseError)
        if not (self.size is None if self.family is None else self._is_known):
            raise ReleaseError(
                "A summary must have the bounds of its family and size, or neither and somebody "
                f"who states them; got {self.bounds} with {shown(self.family)}."
            )
        numbers = (*self.steps, self.largest, self.scale, *map(abs, self.support))
        if not all(0 <= number <= _WIDEST for number in numbers) or min(self.steps) <= 0:
            raise ReleaseError(
                "Sensitivities over epsilon, and the largest values over those, must be numbers of "
                f"at most 2^400, for the noise to be drawn; got epsilon {self.guarantee.epsilon!r} "
                f"and {self.bounds}."
            )

    @property
    def _is_known(self) -> bool:
        """Tell whether the bounds are those that were proved for the family."""
        family: Any = self.family
        if not is_summarised(family) or self.author is not None:
            return False
        size = integer("size", self.size, least=family.least, error=ReleaseError)
        return self.bounds == family.summary_bounds(size) and self.support == family.support

    @property
    def label(self) -> str:
        """Return "proven", or "conditional" where somebody states the bounds."""
        return "conditional" if self.assumptions else "proven"

    @property
    def assumptions(self) -> tuple[str, ...]:
        """Return what the guarantee rests on and nobody has checked: it follows from the plan."""
        if self.family is not None:
            return ()
        if self.author is not None:
            return (FOREIGN.format(name=self.name, kind=self.author),)
        bounds = self.bounds
        return (
            STATED.format(
                centre=bounds.centre_sensitivity,
                spread=bounds.spread_sensitivity,
                largest=bounds.largest_spread,
            ),
        )

    @property
    def steps(self) -> tuple[float, float]:
        """Return how far noise of scale 1 moves centre and spread: sensitivity / share.

        Sensitivities are computed in floats; they are taken a little larger than they come out.
        """
        epsilon, bounds = self.guarantee.epsilon, self.bounds
        centre = bounds.centre_sensitivity / epsilon * (_SAFE / _SHARE)
        return centre, bounds.spread_sensitivity / epsilon * (_SAFE / (1 - _SHARE))

    @property
    def largest(self) -> float:
        """Return the sum of the largest centre and the largest spread, in steps."""
        bounds, steps = self.bounds, self.steps
        return _over(bounds.largest_centre, steps[0]) + _over(bounds.largest_spread, steps[1])

    @property
    def scale(self) -> float:
        """Return the scale of the noise, in cells, rounded up.

        One record moves the two numbers by epsilon together, and by two cells when they are
        rounded. What floats get wrong is bounded by the largest values there can be.
        """
        wrong = math.ceil(min(2 * self.largest, _WIDEST) * _FLOATS / _CELL) + 2
        epsilon = self.guarantee.epsilon
        moved = exactly(epsilon) * (1 + Fraction(_FLOATS)) / Fraction(_CELL) + 2 + wrong
        return laplace_scale(moved, epsilon)

    def cells(self, centre: float, spread: float) -> tuple[int, int]:
        """Return the two numbers in cells, within what they can be."""
        bounds = self.bounds
        inside = min(max(centre, 0.0), bounds.largest_centre), min(spread, bounds.largest_spread)
        first, second = (
            round(Fraction(value) / Fraction(step) / Fraction(_CELL))
            for value, step in zip(inside, self.steps, strict=True)
        )
        return first, second

    def drawn(self, noise: Noise, cells: tuple[int, int]) -> tuple[int, int]:
        """Add noise."""
        first, second = noise.laplace(Fraction(self.scale), 2)
        return cells[0] + first, cells[1] + second

    def values(self, noisy: tuple[int, int]) -> tuple[float, float]:
        """Return noisy centre and spread, in units of the parameter."""
        centre, spread = (
            float(k * Fraction(_CELL) * Fraction(step))
            for k, step in zip(noisy, self.steps, strict=True)
        )
        return self.support[0] + centre, spread

    def ends(self, noisy: tuple[int, int], prob: float) -> tuple[float, float]:
        """Return the interval that follows from noisy centre and spread.

        The spread exceeds its upper bound with a tenth of the error, which leaves nine tenths for
        the rest.
        """
        centre, spread = self.values(noisy)
        error = 1 - prob
        noise = [self.scale * _CELL * step for step in self.steps]
        upper = spread + noise[1] * math.log(1 / (2 * error / 10))
        upper = min(max(upper, 0.0), self.bounds.largest_spread)
        reach = _reach(upper, noise[0], 0.9 * error)
        low, high = self.support
        return float(np.clip(centre - reach, low, high)), float(np.clip(centre + reach, low, high))


@dataclass(frozen=True)
class SummaryRelease:
    """Published centre and spread of a posterior.

    Parameters
    ----------
    plan : SummaryPlan
    integers : (int, int)
        Centre and spread with noise, in cells.
    published : str
        The date.
    sampler : {"exact", "simulated"}
    """

    plan: SummaryPlan
    integers: tuple[int, int]
    published: str
    sampler: str = "exact"

    def __post_init__(self) -> None:
        instance("plan", self.plan, SummaryPlan, "a SummaryPlan", error=ReleaseError)
        choice("sampler", self.sampler, ("exact", "simulated"), error=ReleaseError)
        checked_date(self.published)
        fits = isinstance(self.integers, tuple) and len(self.integers) == 2
        if not fits or not all(type(i) is int and abs(i) < 2**900 for i in self.integers):
            raise ReleaseError("integers must be two ints of at most 900 bits; got others.")

    @property
    def name(self) -> str:
        """Return whose summary it is."""
        return self.plan.name

    @property
    def label(self) -> str:
        """Return "proven", "conditional" (bounds were stated) or "nominal" (simulated)."""
        return "nominal" if self.sampler == "simulated" else self.plan.label

    @property
    def assumptions(self) -> tuple[str, ...]:
        """Return what the guarantee rests on and nobody has checked."""
        return self.plan.assumptions

    @property
    def guarantee(self) -> PureDP:
        """Return what is promised to each person."""
        return self.plan.guarantee

    @property
    def value(self) -> tuple[float, float]:
        """Return centre and spread, with their noise."""
        return self.plan.values(self.integers)


def plan_summary(family: SummarisedFamily, size: int, guarantee: PureDP, name: str) -> SummaryPlan:
    """Return the plan for centre and scale of a family's posterior, given the number of records."""
    size = integer("size", size, least=0, error=ReleaseError)
    largest = size * max(abs(end) for end in np.ravel(family.contribution_bounds))
    if size < family.least or largest > MOST:
        raise ReleaseError(
            f"records must be {family.least} or more, and their total at most 2^53, which follows "
            f"from their number and the bounds; got {size} records."
        )
    options: dict[str, Any] = {"bounds": family.summary_bounds(size), "support": family.support}
    if is_summarised(family):
        return SummaryPlan(name, guarantee, family=family, size=size, **options)
    return SummaryPlan(name, guarantee, author=type(family).__name__, **options)


def is_summarised(family: Any) -> bool:
    """Tell whether a family is one of this package whose posterior has bounded moments."""
    return type(family) in OWN and isinstance(family, SummarisedFamily)


def _over(largest: float, step: float) -> float:
    """Return a quotient, and infinity where floats hold none."""
    return largest / step if step > largest / _WIDEST else math.inf


def _reach(sd: float, scale: float, error: float) -> float:
    """Return w with P(|Normal(0, sd) + Laplace(scale)| > w) = error."""

    def excess(w: float) -> float:
        return 2 * normal_laplace_tail(w, sd, scale) - error

    most = 40 * sd + scale * math.log(1 / error) * 3
    # To the last digits of any number, however small the scale of the parameter is.
    return float(brentq(excess, 0.0, most, xtol=sys.float_info.min, maxiter=1000))


def normal_laplace_tail(w: float, sd: float, scale: float) -> float:
    """Return P(Normal(0, sd) + Laplace(scale) > w), w >= 0.

    With r = sd / scale and z = w / sd it is
    Phi(-z) + exp(r^2/2 - w/scale) Phi(z - r) / 2 - exp(r^2/2 + w/scale) Phi(-z - r) / 2.

    Examples
    --------
    >>> normal_laplace_tail(0.0, 1.0, 2.0)
    0.5
    """
    if sd <= 1e-9 * scale:
        return 0.5 * math.exp(-w / scale)
    if sd >= 1e5 * scale:  # beside such a deviation the noise of the mean is nothing
        return math.exp(log_ndtr(-w / sd))
    r, z = sd / scale, w / sd
    first = math.exp(log_ndtr(-z))
    second = math.exp(r * r / 2 - w / scale + log_ndtr(z - r))
    third = math.exp(r * r / 2 + w / scale + log_ndtr(-z - r))
    return first + (second - third) / 2
