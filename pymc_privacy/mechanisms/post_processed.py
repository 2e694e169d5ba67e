"""What became of a release after its noise was added: clamped, rounded, suppressed.

Post-processing costs no privacy, but it changes the law of what is published. Each wrapper here
is a non-decreasing map, so that what is published is known to come from an interval, whose
probability the mechanism inside gives.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from numba.extending import register_jitable

from pymc_privacy.accounting import Guarantee
from pymc_privacy.arguments import real, refusal, shown
from pymc_privacy.errors import MechanismError
from pymc_privacy.mechanisms.base import (
    UNBOUNDED,
    AdditiveMechanism,
    CoordinateMechanism,
    Scale,
    Shape,
    beside,
    measured,
)
from pymc_privacy.mechanisms.engines import ceil, where

Formula = Callable[..., Any]
_FURTHEST = 1e-5 * UNBOUNDED


class PostProcessed(CoordinateMechanism):
    """A mechanism, and what was done to its release."""

    mechanism: AdditiveMechanism | PostProcessed

    @property
    @abstractmethod
    def laws(self) -> tuple[Formula, Formula]:
        """Return formula and interval, made from those of the mechanism inside."""

    @property
    @abstractmethod
    def step(self) -> float:
        """Return the distance between possible releases, 0 if there is none."""

    @property
    def formula(self) -> Formula:  # type: ignore[override]
        """Return the log density of one coordinate."""
        return self.laws[0]

    @property
    def interval(self) -> Formula:
        """Return the log probability of an interval, of one coordinate."""
        return self.laws[1]

    @property
    def scale(self) -> Scale:
        """Return that of the mechanism inside."""
        return self.mechanism.scale

    @property
    def discrete(self) -> bool:  # type: ignore[override]
        """Return whether the statistic must be integers."""
        return self.mechanism.discrete

    @property
    def guarantee(self) -> Guarantee | None:
        """Promise what the mechanism inside does: post-processing costs nothing."""
        return self.mechanism.guarantee

    def log_density(self, release: Any, statistic: Any) -> Any:
        """Return the log density or probability of each coordinate of what was published."""
        with np.errstate(over="ignore", invalid="ignore"):
            return self.formula(*beside(release, statistic, *self.parameters))

    def release_shape(self, statistic: Shape) -> Shape:
        """Return that of the mechanism inside."""
        return self.mechanism.release_shape(statistic)

    def local_shape(self, contributions: Shape) -> Shape:
        """Return that of the mechanism inside."""
        return self.mechanism.local_shape(contributions)


def _check_inside(mechanism: Any, what: str) -> None:
    """Refuse to post-process what is no noisy number."""
    if isinstance(mechanism, Suppressed):
        raise MechanismError(
            f"Suppression must come last, because nothing is left to be {what}; got {mechanism!r}."
        )
    if not isinstance(mechanism, PostProcessed | AdditiveMechanism) or not hasattr(
        mechanism, "interval"
    ):
        raise MechanismError(
            "The first argument must be a mechanism that adds noise, such as Laplace(scale=1.0), "
            f"because the probability of an interval is needed; got {shown(mechanism)}."
        )
    if np.max(mechanism.scale) > _FURTHEST:
        raise MechanismError(
            f"scale must be at most {_FURTHEST:g} of noise that is {what} (further away is as good "
            f"as infinitely far); got {shown(mechanism)}."
        )


def _near(name: str, value: Any) -> float:
    """Return a number that is nearer than what stands for infinity."""
    number = real(name, value, error=MechanismError)
    if abs(number) > _FURTHEST:
        raise refusal(name, f"at most {_FURTHEST:g} in size", value, error=MechanismError)
    return number


def _step(mechanism: AdditiveMechanism | PostProcessed) -> float:
    return mechanism.step if isinstance(mechanism, PostProcessed) else float(mechanism.discrete)


def _on_grid(value: np.ndarray | float, step: float) -> Any:
    """Tell whether values are multiples of the step, up to rounding; all are of a step of 0."""
    if step == 0:
        return np.full(np.shape(value), True)
    return np.abs(np.asarray(value) / step - np.rint(np.asarray(value) / step)) < 1e-6


@cache
def clamped_laws(formula: Formula, interval: Formula) -> tuple[Formula, Formula]:
    """Return the laws of min(max(s, lower), upper): an atom at each end."""

    @register_jitable
    def clamped(
        release: Any, statistic: Any, lower: Any, upper: Any, half_step: Any, *inside: Any
    ) -> Any:
        below = interval(-UNBOUNDED, lower + half_step, statistic, *inside)
        above = interval(upper - half_step, UNBOUNDED, statistic, *inside)
        between = formula(release, statistic, *inside)
        return where(release <= lower, below, where(release >= upper, above, between))

    @register_jitable
    def clamped_interval(
        low: Any, high: Any, statistic: Any, lower: Any, upper: Any, half_step: Any, *inside: Any
    ) -> Any:
        low = where(low <= lower, -UNBOUNDED, where(low > upper, UNBOUNDED, low))
        high = where(high <= lower, -UNBOUNDED, where(high > upper, UNBOUNDED, high))
        return interval(low, high, statistic, *inside)

    return clamped, clamped_interval


@dataclass(frozen=True, kw_only=True)
class Clamped(PostProcessed):
    """A noisy release that was out of bounds was moved to the nearest bound.

    A release at a bound says that the noisy value was there or beyond.

    Parameters
    ----------
    mechanism : AdditiveMechanism or PostProcessed
        What was added before.
    lower, upper : float, optional
        The bounds, at least one; integers where the noise is.

    Raises
    ------
    MechanismError
        By the constructor, if the mechanism inside adds no noise or is `Suppressed`, or if there is
        no bound, the bounds are not in order, or one is not a possible release.

    See Also
    --------
    Rounded : A release that was rounded.
    Suppressed : A release that was left out where it was small.

    Examples
    --------
    Counts that must not be negative:

    >>> import numpy as np
    >>> from pymc_privacy import Clamped, Laplace
    >>> counts = Clamped(mechanism=Laplace(scale=2.0), lower=0.0)
    >>> np.exp(counts.log_density(0.0, [0.0, 3.0])).round(4).tolist()
    [0.5, 0.1116]
    """

    mechanism: AdditiveMechanism | PostProcessed
    lower: float | None = None
    upper: float | None = None

    def __post_init__(self) -> None:
        _check_inside(self.mechanism, "clamped")
        if self.lower is None and self.upper is None:
            raise MechanismError("A clamped release needs lower=, upper=, or both; got neither.")
        for name in ("lower", "upper"):
            if getattr(self, name) is not None:
                object.__setattr__(self, name, _near(name, getattr(self, name)))
                if not _on_grid(getattr(self, name), _step(self.mechanism)):
                    raise MechanismError(
                        f"{name} must be a multiple of {_step(self.mechanism):g}, as releases are; "
                        f"got {getattr(self, name)!r}."
                    )
        if self.lower is not None and self.upper is not None and self.lower >= self.upper:
            raise MechanismError(
                f"lower must be less than upper; got {self.lower!r} and {self.upper!r}."
            )

    @property
    def laws(self) -> tuple[Formula, Formula]:
        """Return formula and interval."""
        return clamped_laws(self.mechanism.formula, self.mechanism.interval)

    @property
    def step(self) -> float:
        """Return that of the mechanism inside."""
        return _step(self.mechanism)

    @property
    def parameters(self) -> tuple[Any, ...]:
        """Return the bounds, half a step, and the parameters inside."""
        lower = -UNBOUNDED if self.lower is None else self.lower
        upper = UNBOUNDED if self.upper is None else self.upper
        return lower, upper, self.step / 2, *self.mechanism.parameters

    @property
    def release_dtype(self) -> str:
        """Return that of the mechanism inside."""
        return self.mechanism.release_dtype

    def simulate(self, rng: np.random.Generator, statistic: Any) -> np.ndarray:
        """Draw a release and clamp it; not to be published."""
        return np.clip(self.mechanism.simulate(rng, statistic), self.lower, self.upper)

    def impossible(self, release: np.ndarray, statistic: Shape) -> str | None:
        """Say so if a release is out of bounds."""
        lower, upper, *_ = self.parameters
        if np.any((release < lower) | (release > upper)):
            return f"be between its bounds {self.lower} and {self.upper}"
        return self.mechanism.impossible(release, statistic)


@cache
def rounded_laws(interval: Formula) -> tuple[Formula, Formula]:
    """Return the laws of g floor(s / g + 1/2): every multiple of g has an interval of its own."""

    @register_jitable
    def rounded(release: Any, statistic: Any, to: Any, *inside: Any) -> Any:
        return interval(release - 0.5 * to, release + 0.5 * to, statistic, *inside)

    @register_jitable
    def rounded_interval(low: Any, high: Any, statistic: Any, to: Any, *inside: Any) -> Any:
        first, last = to * (ceil(low / to) - 0.5), to * (ceil(high / to) - 0.5)
        return interval(first, last, statistic, *inside)

    return rounded, rounded_interval


@dataclass(frozen=True, kw_only=True)
class Rounded(PostProcessed):
    """A noisy release was rounded to a multiple of a number, halves upwards.

    What was published has a probability, that of the interval which is rounded to it.

    Parameters
    ----------
    mechanism : AdditiveMechanism or PostProcessed
        What was added before.
    to : float, default 1
        The distance between two possible releases.

    Raises
    ------
    MechanismError
        By the constructor, if the mechanism inside adds no noise or is `Suppressed`, or if `to` is
        not > 0 and finite.

    See Also
    --------
    Clamped : A release that was moved to its bounds.
    Suppressed : A release that was left out where it was small.

    Examples
    --------
    >>> import numpy as np
    >>> from pymc_privacy import Laplace, Rounded
    >>> whole = Rounded(mechanism=Laplace(scale=1.0))
    >>> float(np.exp(whole.log_density(np.arange(-50, 51), 0.3)).sum().round(12))
    1.0
    """

    mechanism: AdditiveMechanism | PostProcessed
    to: float = 1.0

    def __post_init__(self) -> None:
        _check_inside(self.mechanism, "rounded")
        to = measured("to", self.to, "what was rounded to")
        object.__setattr__(self, "to", _near("to", to))

    @property
    def laws(self) -> tuple[Formula, Formula]:
        """Return formula and interval."""
        return rounded_laws(self.mechanism.interval)

    @property
    def step(self) -> float:
        """Return what was rounded to."""
        return self.to

    @property
    def parameters(self) -> tuple[Any, ...]:
        """Return what was rounded to, and the parameters inside."""
        return self.to, *self.mechanism.parameters

    @property
    def release_dtype(self) -> str:
        """Return integers where the noise is, and what was rounded to."""
        return self.mechanism.release_dtype if self.to == round(self.to) else "floatX"

    def simulate(self, rng: np.random.Generator, statistic: Any) -> np.ndarray:
        """Draw a release and round it; not to be published."""
        drawn = self.mechanism.simulate(rng, statistic)
        return np.asarray(self.to * np.floor(drawn / self.to + 0.5), dtype=np.float64)

    def impossible(self, release: np.ndarray, statistic: Shape) -> str | None:
        """Say so if a release is not a multiple."""
        if not np.all(np.isfinite(release)):
            return "be finite"
        if not np.all(_on_grid(release, self.to)):
            return f"be a multiple of {self.to:g}, which it was rounded to"
        return None


@cache
def suppressed_laws(formula: Formula, interval: Formula) -> tuple[Formula, Formula]:
    """Return the law of s where it is large enough; else all that is known is that it was not."""

    @register_jitable
    def suppressed(release: Any, statistic: Any, below: Any, half_step: Any, *inside: Any) -> Any:
        hidden = interval(-UNBOUNDED, below - half_step, statistic, *inside)
        shown = release >= below
        return where(shown, formula(where(shown, release, below), statistic, *inside), hidden)

    return suppressed, interval


@dataclass(frozen=True, kw_only=True)
class Suppressed(PostProcessed):
    """A noisy release below a threshold was not published, and is nan here.

    It is missing for a reason: that it was small. Coordinates that were published follow their
    own law; for each other one, the noisy value is known to be below the threshold.

    Parameters
    ----------
    mechanism : AdditiveMechanism or PostProcessed
        What was added before.
    below : float
        The threshold: what is less was suppressed.

    Raises
    ------
    MechanismError
        By the constructor, if the mechanism inside adds no noise or is `Suppressed`, or if `below`
        is not a finite number.

    See Also
    --------
    Clamped : A release that was moved to its bounds.
    Rounded : A release that was rounded.
    NoisyCount : Counts of which small ones were suppressed.

    Examples
    --------
    >>> import numpy as np
    >>> from pymc_privacy import Laplace, Suppressed
    >>> counts = Suppressed(mechanism=Laplace(scale=5.0), below=10.0)
    >>> np.exp(counts.log_density([np.nan, 14.0], [4.0, 14.0])).round(4).tolist()
    [0.8494, 0.1]
    """

    mechanism: AdditiveMechanism | PostProcessed
    below: float

    def __post_init__(self) -> None:
        _check_inside(self.mechanism, "suppressed")
        object.__setattr__(self, "below", _near("below", self.below))

    @property
    def laws(self) -> tuple[Formula, Formula]:
        """Return the formula; what was suppressed is in no interval, so there is no second."""
        return suppressed_laws(self.mechanism.formula, self.mechanism.interval)

    @property
    def step(self) -> float:
        """Return that of the mechanism inside."""
        return _step(self.mechanism)

    @property
    def parameters(self) -> tuple[Any, ...]:
        """Return the threshold, half a step where it is itself possible, and what is inside."""
        half = self.step / 2 if _on_grid(self.below, self.step) else 0.0
        return self.below, half, *self.mechanism.parameters

    @property
    def release_dtype(self) -> str:
        """Return real numbers: no integer is missing."""
        return "floatX"

    def simulate(self, rng: np.random.Generator, statistic: Any) -> np.ndarray:
        """Draw a release and put nan for what is too small; not to be published."""
        drawn = self.mechanism.simulate(rng, statistic)
        return np.where(drawn >= self.below, drawn, np.nan)

    def impossible(self, release: np.ndarray, statistic: Shape) -> str | None:
        """Say so if a release should have been suppressed."""
        shown = release[~(np.isnan(release) | np.isneginf(release))]
        if np.any(shown < self.below):
            return f"be at least {self.below:g}, or nan where it was suppressed"
        return self.mechanism.impossible(shown, statistic)
