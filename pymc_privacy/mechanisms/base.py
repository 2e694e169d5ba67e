"""A mechanism is a known law of the release given the statistic, and what that law promises."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np

from pymc_privacy.accounting import Guarantee
from pymc_privacy.arguments import integers, neighbours, positive, reals, refusal, shown
from pymc_privacy.errors import MechanismError
from pymc_privacy.mechanisms.engines import is_tensor, numeric

Scale = float | tuple[float, ...]
Shape = tuple[int | None, ...]
# Further away than any release, and still a number that can be squared.
UNBOUNDED = 1e30
# Within these, the squares and quotients of a mechanism's numbers are floats.
SMALLEST, LARGEST = 1e-100, 1e100
_WIDEST = 2.0**50  # of integer noise: beyond 2^62 it is with probability exp(-2^12)
_LARGEST = 2**62  # of a statistic that such noise is added to


class Mechanism(ABC):
    """The law of a release given the statistic it was computed from.

    Mechanisms are values: two with the same parameters are equal, and none can be changed.
    """

    discrete: ClassVar[bool]
    """Whether the statistic must be integers; the release is then integers too."""

    @property
    @abstractmethod
    def guarantee(self) -> Guarantee | None:
        """What is promised to each person, or None when only a scale is known."""

    @abstractmethod
    def log_density(self, release: Any, statistic: Any) -> Any:
        """Evaluate the log density of the release, on arrays or on tensors."""

    @abstractmethod
    def simulate(self, rng: np.random.Generator, statistic: Any) -> np.ndarray:
        """Draw a release from a seedable generator: for simulation, never for publishing.

        Who knows the seed takes the noise off again; and noise that is added in floating point
        shows the statistic in its lowest bits, as an `audit` with ``low_bits=True`` finds. There is
        no warning, because simulating is what models, studies and audits do all the time; what is
        made to look like a publication, `simulate_release`, warns on every call.
        """

    @property
    def release_dtype(self) -> str:
        """Return the type of a release: ``"int64"`` or ``"floatX"``."""
        return "int64" if self.discrete else "floatX"

    def release_shape(self, statistic: Shape) -> Shape:
        """Return the shape of the release from that of the statistic; None is an unknown length.

        Of a statistic that the mechanism cannot act on, it says so.
        """
        return statistic

    def local_shape(self, contributions: Shape) -> Shape:
        """Return the shape of a release that is made record by record."""
        return self.release_shape(contributions)

    def impossible(self, release: np.ndarray, statistic: Shape) -> str | None:
        """Say what a release must be, if this is none; None if all is well.

        ``statistic`` is the shape of the statistic; that the release fits it was seen before.
        """
        if not np.all(np.isfinite(release)):
            return "be finite"
        if self.discrete and np.any(release != np.rint(release)):
            return f"be integers, because {type(self).__name__} makes integers of integers"
        return None


class CoordinateMechanism(Mechanism):
    """Each coordinate of the release depends on the same coordinate of the statistic alone.

    A concrete class gives one scalar formula; it is evaluated elementwise on
    arrays, symbolically on tensors, and compiled into the record sweep.
    """

    formula: Callable[..., Any]
    """``formula(release, statistic, *parameters)`` of one coordinate, jitable."""

    @property
    @abstractmethod
    def parameters(self) -> tuple[Any, ...]:
        """Return the formula's further arguments, each a number or one per coordinate."""


class AdditiveMechanism(CoordinateMechanism):
    """Noise of its own is added to each coordinate of the statistic."""

    scale: Scale
    """How far the noise reaches; a sequence gives each coordinate its own."""

    interval: ClassVar[Callable[..., Any]]
    """``interval(lower, upper, statistic, *parameters)``, the log of P(lower <= release < upper).

    One coordinate, jitable; a bound that does not bound is ±`UNBOUNDED`. What becomes of a
    release afterwards (see `Clamped`) is known through it.
    """

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
        release, statistic, *parameters = beside(release, statistic, *self.parameters)
        # A value that is far away, or not finite, has density zero or none.
        with np.errstate(over="ignore", invalid="ignore"):
            value = self.formula(release, statistic, *parameters)
            return value - _off_lattice(release - statistic) if self.discrete else value


def _off_lattice(offset: Any) -> Any:
    """Return 0 where the offset is an integer and infinity elsewhere, by operators alone."""
    fraction = abs(offset) % 1
    with np.errstate(divide="ignore"):
        return fraction / (1 - (fraction > 0))


MEANINGS = {
    "epsilon": "the privacy loss",
    "delta": "the probability allowed to escape the bound epsilon",
    "rho": "the Renyi divergence per unit of order",
    "mu": "sensitivity / scale of Gaussian noise",
    "sensitivity": "how far one record can move the statistic",
}


def settle(mechanism: Any, *names: str) -> None:
    """Store public numbers as floats > 0, what was left out as None; check the neighbours."""
    for name in names:
        value = getattr(mechanism, name)
        if value is not None:
            object.__setattr__(mechanism, name, measured(name, value, MEANINGS[name]))
    neighbours(mechanism.neighbours, optional=True, error=MechanismError)


def measured(name: str, value: Any, meaning: str) -> float:
    """Return a float > 0 that a law can be computed with; a delta may be as small as it likes."""
    number = positive(name, value, meaning=meaning, error=MechanismError)
    if not SMALLEST <= number <= LARGEST and name != "delta":
        wanted = f"a number from {SMALLEST:g} to {LARGEST:g}, to be computed with"
        raise refusal(name, wanted, value, meaning=meaning, error=MechanismError)
    return number


def settle_all(mechanism: Any, *names: str) -> None:
    """Store public numbers of which none may be left out, and check the neighbours."""
    for name in names:
        if getattr(mechanism, name) is None:
            raise refusal(
                name, "a finite number > 0", None, meaning=MEANINGS[name], error=MechanismError
            )
    settle(mechanism, *names)


def positive_scale(value: Any) -> Scale:
    """Return a scale, or one scale per coordinate, in hashable form."""
    said: Any = {
        "meaning": "how far the noise reaches",
        "wanted": "a finite number > 0, or a vector of them",
        "error": MechanismError,
    }
    scale = reals("scale", value, shapes=[(), ("d",)], above=0, **said)
    if scale.size == 0:
        raise refusal("scale", value=value, **said)
    for one in scale.ravel()[(scale.ravel() < SMALLEST) | (scale.ravel() > LARGEST)]:
        measured("scale", one, said["meaning"])
    return scale.item() if scale.ndim == 0 else tuple(scale.tolist())


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
        return positive_scale(calibrated)
    scale = positive_scale(given)
    if calibrated is not None and not np.allclose(scale, calibrated, rtol=1e-9, atol=0.0):
        raise MechanismError(
            f"scale= and {how} must describe the same noise; got scale={shown(given)}, "
            f"while the others give {calibrated!r}. Leave one of the two out."
        )
    return scale


def need_sensitivity(name: str, sensitivity: float | None) -> float:
    """Return the sensitivity, settled before, that a privacy parameter is calibrated with."""
    if sensitivity is None:
        raise MechanismError(
            f"{name}= needs sensitivity= (how far one record can move the statistic), "
            "because the noise is calibrated to it; got no sensitivity. "
            "If you know the noise itself, give scale= instead."
        )
    return sensitivity


def real_statistic(statistic: Any, scale: Scale = 1.0) -> np.ndarray:
    """Return the statistic as floats, of the shape that it has beside a vector of scales."""
    said: Any = {"meaning": "what noise is added to", "error": MechanismError}
    array = reals("statistic", statistic, flags=True, **said)
    return np.broadcast_to(array, _beside(array.shape, np.shape(scale)))


def integer_statistic(statistic: Any, scale: Scale = 1.0) -> np.ndarray:
    """Return the statistic as integers; an integer mechanism is defined on nothing else."""
    if np.max(scale) > _WIDEST:
        raise MechanismError(
            f"scale must be at most {_WIDEST:g} to draw noise that fits into 64 bits; got {scale}."
        )
    said: Any = {"meaning": "because the noise is an integer", "error": MechanismError}
    array = integers("statistic", statistic, flags=True, **said)
    if np.any(np.abs(array) > _LARGEST):
        raise refusal("statistic", f"integers of at most {_LARGEST}", statistic, **said)
    return np.broadcast_to(array, _beside(array.shape, np.shape(scale)))


def _beside(*shapes: tuple[int, ...]) -> tuple[int, ...]:
    """Return the shape that arrays have together, or refuse them."""
    try:
        return np.broadcast_shapes(*shapes)
    except ValueError:
        raise MechanismError(
            "release, statistic and scale must have shapes that go together; got "
            f"{' and '.join(map(str, shapes))}."
        ) from None


def beside(*values: Any) -> tuple[Any, ...]:
    """Return numbers as arrays that go together; tensors are left alone."""
    arrays = tuple(map(numeric, values))
    _beside(*(array.shape for array in arrays if not is_tensor(array)))
    return arrays
