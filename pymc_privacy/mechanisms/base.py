"""A mechanism is a known law of the release given the statistic, and what that law promises."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np

from pymc_privacy.accounting import Guarantee
from pymc_privacy.errors import MechanismError

Scale = float | tuple[float, ...]


class Mechanism(ABC):
    """The law of a release given the statistic it was computed from.

    Mechanisms are values: two with the same parameters are equal, and none can be changed.
    """

    discrete: ClassVar[bool]
    """Whether statistic and release are integers."""

    @property
    @abstractmethod
    def guarantee(self) -> Guarantee | None:
        """What is promised to each person, or None when only a scale is known."""

    @abstractmethod
    def log_density(self, release: Any, statistic: Any) -> Any:
        """Evaluate the log density of the release, on arrays or on tensors."""

    @abstractmethod
    def simulate(self, rng: np.random.Generator, statistic: Any) -> np.ndarray:
        """Draw a release from a seedable generator: for simulation, never for publishing."""


class AdditiveMechanism(Mechanism):
    """Noise of its own is added to each coordinate of the statistic.

    A concrete class gives one scalar formula; it is evaluated elementwise on
    arrays, symbolically on tensors, and compiled into the record sweep.
    """

    formula: ClassVar[Callable[..., Any]]
    """``formula(release, statistic, scale, log_normalizer)``, one coordinate, jitable."""

    @property
    @abstractmethod
    def parameters(self) -> tuple[Any, Any]:
        """Return the formula's last two arguments: scale and log normalizer, per coordinate."""

    def log_density(self, release: Any, statistic: Any) -> Any:
        """Return the log density of each coordinate; their sum is that of the release.

        Parameters
        ----------
        release, statistic : array_like or TensorVariable
            Broadcast against each other and against a vector scale.

        Examples
        --------
        >>> from pymc_privacy import Laplace
        >>> Laplace(scale=2.0).log_density([1.0, 5.0], 1.0).round(4).tolist()
        [-1.3863, -3.3863]
        """
        release, statistic = _numeric(release), _numeric(statistic)
        value = type(self).formula(release, statistic, *self.parameters)
        return value - _off_lattice(release - statistic) if self.discrete else value


def _numeric(value: Any) -> Any:
    """Leave tensors alone and make everything else an array."""
    return value if hasattr(value, "owner") else np.asarray(value)


def _off_lattice(offset: Any) -> Any:
    """Return 0 where the offset is an integer and infinity elsewhere, by operators alone."""
    fraction = abs(offset) % 1
    with np.errstate(divide="ignore"):
        return fraction / (1 - (fraction > 0))


def positive(name: str, value: Any, meaning: str) -> float:
    """Return a finite number > 0 as a float, or refuse it in a sentence."""
    return _positive_array(name, value, meaning, ndim=0).item()


def positive_scale(value: Any, meaning: str) -> Scale:
    """Return a scale, or one scale per coordinate, in hashable form."""
    scale = _positive_array("scale", value, meaning, ndim=1)
    return scale.item() if scale.ndim == 0 else tuple(scale.tolist())


def _positive_array(name: str, value: Any, meaning: str, *, ndim: int) -> np.ndarray:
    kind = "a finite number > 0" if ndim == 0 else "a finite number > 0, or a vector of them"
    try:
        array = np.asarray(value, dtype=np.float64)
    except (TypeError, ValueError):
        array = np.asarray(math.nan)
    if array.ndim > ndim or array.size == 0 or not np.all(np.isfinite(array) & (array > 0)):
        raise MechanismError(f"{name} must be {kind} ({meaning}); got {value!r}.")
    return array


def resolve_scale(given: Scale | None, calibrated: float | None, *, how: str) -> Scale:
    """Return the scale that was given or calibrated, and insist that they agree if both.

    Parameters
    ----------
    given
        The ``scale=`` argument.
    calibrated
        The scale that follows from the privacy parameters, when those were given.
    how
        The other way to say it, for the message: ``"epsilon= and sensitivity="``.
    """
    if given is None and calibrated is None:
        raise MechanismError(f"A mechanism needs scale=, or {how}; got neither.")
    if given is None:
        return positive_scale(calibrated, how)
    scale = positive_scale(given, how)
    if calibrated is not None and not np.allclose(scale, calibrated, rtol=1e-9, atol=0.0):
        raise MechanismError(
            f"scale= and {how} must describe the same noise; got scale={given!r}, "
            f"while the others give {calibrated!r}. Leave one of the two out."
        )
    return scale


def need_sensitivity(name: str, sensitivity: float | None) -> float:
    """Return the sensitivity a privacy parameter has to be calibrated with."""
    if sensitivity is None:
        raise MechanismError(
            f"{name}= needs sensitivity= (how far one record can move the statistic), "
            "because the noise is calibrated to it; got no sensitivity. "
            "If you know the noise itself, give scale= instead."
        )
    return positive("sensitivity", sensitivity, "how far one record can move the statistic")


def integer_statistic(statistic: Any) -> np.ndarray:
    """Return the statistic as integers; an integer mechanism is defined on nothing else."""
    array = np.asarray(statistic)
    if not np.all(np.isfinite(array)) or np.any(array != np.rint(array)):
        raise MechanismError(
            "An integer mechanism needs an integer statistic, because its noise is an integer; "
            f"got {statistic!r}."
        )
    return array.astype(np.int64)
