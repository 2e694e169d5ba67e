"""`release`: a noisy total that may be published, with a card that says what it is.

The order of events is the contract: arguments are checked, records are checked, clipped, rounded
and added up, the ledger is charged, and only then is noise drawn. Not protected, here or anywhere
in this package: timing, memory, logs, exceptions, files in between, and choices of bounds, models
or releases that were made after a look at the records.
"""

from __future__ import annotations

import datetime
import warnings
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import numpy as np

from pymc_privacy.accounting import ApproximateDP, Guarantee, PureDP, zero_concentrated_rho
from pymc_privacy.errors import InsecureNoiseWarning, ReleaseError
from pymc_privacy.mechanisms import (
    AdditiveMechanism,
    DiscreteGaussian,
    DiscreteLaplace,
    Gaussian,
    Laplace,
)
from pymc_privacy.sanitize.calibrate import (
    Calibration,
    Sensitivity,
    calibrate,
    granularity_for,
    promised,
)
from pymc_privacy.sanitize.exact_noise import ExactNoise, Noise, SimulatedNoise
from pymc_privacy.sanitize.lattice import Lattice, checked_bounds, power_of_two
from pymc_privacy.sanitize.ledger import Ledger
from pymc_privacy.sanitize.opendp_noise import OpenDPNoise

NOT_PROTECTED = (
    "timing, memory, logs, error messages and intermediate files",
    "bounds, models or releases that were chosen after looking at the records",
)
SIMULATED = (
    "SIMULATION ONLY. This noise comes from a seedable generator: whoever knows the seed can take "
    "it off again. The output is not differentially private. Do not publish it. Use release()."
)
_SAMPLERS = {"exact": ExactNoise, "opendp": OpenDPNoise}


@dataclass(frozen=True)
class Release:
    """A published total: integers on a lattice, the law of their noise, and what it promises.

    Parameters
    ----------
    name : str
    integers : tuple of int
        Total plus noise, in units of the granularity.
    lattice : Lattice
        Bounds of the contributions, and the granularity.
    calibration : Calibration
        Family and scale of the noise in the same units, guarantee, sensitivity.
    size : int or None
        The number of records, where it is public.
    published : str
        The date.
    sampler : str
        Where the noise came from: "exact", "opendp" or "simulated".

    Examples
    --------
    >>> import pymc_privacy as pmp
    >>> published = pmp.release([0, 1, 1], bounds=(0, 1), epsilon=1.0, neighbours="replace_one")
    >>> published.mechanism.scale, published.sensitivity.status
    (1.0, 'proved')
    """

    name: str
    integers: tuple[int, ...]
    lattice: Lattice
    calibration: Calibration
    size: int | None
    published: str
    sampler: str

    @property
    def value(self) -> Any:
        """Return what was published, in units of the statistic: a number, or one per column."""
        values = np.array([float(i * Fraction(self.lattice.granularity)) for i in self.integers])
        return values[0].item() if self.lattice.scalar else values

    @property
    def guarantee(self) -> Guarantee:
        """Return what is promised to each person."""
        return self.calibration.guarantee

    @property
    def sensitivity(self) -> Sensitivity:
        """Return how far one record moves the totals, and whether that is proved."""
        return self.calibration.sensitivity

    @property
    def scale(self) -> float:
        """Return the scale of the noise in units of the statistic."""
        return self.calibration.scale * self.lattice.granularity

    @property
    def mechanism(self) -> AdditiveMechanism:
        """Return the law of `value` given the total.

        On a lattice of integers it is the discrete law that was drawn from. On a finer one it is
        the continuous law of the same scale: rounding a record to the lattice moves a log density
        by half a cell / scale, 2^-33 for the granularity that is chosen by default.
        """
        discrete = self.lattice.granularity == 1
        stated = {"sensitivity": self.sensitivity.value, "neighbours": self.guarantee.neighbours}
        if isinstance(self.guarantee, PureDP):
            pure: Any = DiscreteLaplace if discrete else Laplace
            return pure(scale=self.scale, epsilon=self.guarantee.epsilon, **stated)
        # Integer noise is not known to be Gaussian-private; rho is what was proved for it.
        kind: Any = DiscreteGaussian if discrete else Gaussian
        return kind(scale=self.scale, rho=_rho(self.guarantee), **stated)

    @property
    def simulated(self) -> bool:
        """Return whether the noise was seedable, so that this must not be published."""
        return self.sampler == "simulated"

    def statement(self) -> str:
        """Say in sentences what was published, what is promised, and what is not."""
        law = f"discrete {self.calibration.family.title()}, scale {self.scale:g}"
        source = {
            "exact": "drawn exactly, from the operating system's entropy",
            "opendp": "drawn by OpenDP",
        }
        lines = [
            f"{self.name}: {self.guarantee}.",
            f"{self.sensitivity}",
            f"Noise: {law}, on multiples of {self.lattice.granularity:g}, "
            f"{source.get(self.sampler, 'simulated')}.",
            f"Not protected: {'; '.join(NOT_PROTECTED)}.",
        ]
        return "\n".join([SIMULATED, *lines] if self.simulated else lines)

    def __str__(self) -> str:
        return self.statement()


def release(
    contributions: Any,
    *,
    bounds: Any,
    neighbours: str,
    epsilon: float | None = None,
    delta: float | None = None,
    rho: float | None = None,
    sensitivity: float | None = None,
    granularity: float | None = None,
    unit: str = "one record",
    name: str = "release",
    ledger: Ledger | None = None,
    sampler: str = "exact",
) -> Release:
    """Publish the total of the contributions with noise that keeps the promise.

    There is no seed: a known seed takes the noise off again. The noise is drawn exactly, on
    integers (Canonne, Kamath & Steinke 2020), after the ledger has been charged. Under
    ``add_remove`` the number of records is not part of the result.

    Parameters
    ----------
    contributions : array_like
        What each record adds: shape (n,) or (n, d), records on axis 0. Finite; clipped here.
    bounds : (float, float) or sequence of them
        Public bounds of each column, chosen without looking at the records.
    neighbours : {"replace_one", "add_remove"}
    epsilon : float, optional
        Pure privacy, Laplace noise; together with `delta` Gaussian noise.
    delta, rho : float, optional
        Approximate, or zero-concentrated privacy: Gaussian noise.
    sensitivity : float, optional
        L1 (Laplace) or L2 (Gaussian) distance that one record can move the total, where it is
        known to be less than the bounds imply. It is tagged "asserted".
    granularity : float, optional
        Power of two to whose multiples contributions are rounded: 1 for integers, otherwise
        about 2^-32 of the scale of the noise.
    unit : str
        What a record is, in the guarantee.
    name : str
    ledger : Ledger, optional
        Charged before any noise is drawn; an overdraft is refused.
    sampler : {"exact", "opendp"}
        The package's own sampler, or that of OpenDP, which must be installed.

    Returns
    -------
    Release

    Examples
    --------
    >>> import numpy as np
    >>> import pymc_privacy as pmp
    >>> ages = np.array([34.0, 51.5, 47.0, 130.0])
    >>> published = pmp.release(
    ...     ages, bounds=(0, 100), epsilon=0.5, neighbours="replace_one", name="total age"
    ... )
    >>> published.scale
    200.0
    >>> print(published.sensitivity)  # doctest: +ELLIPSIS
    L1 sensitivity 100, proved: Contributions are clipped to [0, 100] and rounded to ...
    """
    if sampler not in _SAMPLERS:
        raise ReleaseError(f'sampler must be "exact" or "opendp"; got {sampler!r}.')
    promise = promised(epsilon=epsilon, delta=delta, rho=rho, neighbours=neighbours, unit=unit)
    planned = planned_release(
        contributions,
        bounds,
        promise,
        name=name,
        sensitivity=sensitivity,
        granularity=granularity,
    )
    noise = _SAMPLERS[sampler]()
    if ledger is not None:
        ledger.charge(planned.guarantee, what=name)
    return with_noise(noise, planned, sampler)


def simulate_release(
    rng: np.random.Generator,
    contributions: Any,
    *,
    bounds: Any,
    neighbours: str,
    epsilon: float | None = None,
    delta: float | None = None,
    rho: float | None = None,
    sensitivity: float | None = None,
    granularity: float | None = None,
    name: str = "release",
) -> Release:
    """Rehearse `release` with seedable noise; the result must not be published.

    It has the same law as `release` but for rounding, warns on every call, and its statement and
    its card say what it is.

    Parameters
    ----------
    rng : np.random.Generator
    contributions, bounds, neighbours, epsilon, delta, rho, sensitivity, granularity, name
        As for `release`.

    Examples
    --------
    >>> import warnings
    >>> import numpy as np
    >>> import pymc_privacy as pmp
    >>> rng = np.random.default_rng(1)
    >>> with warnings.catch_warnings(action="ignore"):
    ...     rehearsal = pmp.simulate_release(
    ...         rng, [0, 1, 1], bounds=(0, 1), epsilon=1.0, neighbours="replace_one"
    ...     )
    >>> rehearsal.simulated
    True
    """
    warnings.warn(SIMULATED, InsecureNoiseWarning, stacklevel=2)
    promise = promised(
        epsilon=epsilon, delta=delta, rho=rho, neighbours=neighbours, unit="one record"
    )
    planned = planned_release(
        contributions,
        bounds,
        promise,
        name=name,
        sensitivity=sensitivity,
        granularity=granularity,
    )
    return with_noise(SimulatedNoise(rng), planned, "simulated")


def _rho(guarantee: Guarantee) -> float:
    if isinstance(guarantee, ApproximateDP):
        return zero_concentrated_rho(guarantee.epsilon, guarantee.delta)
    return guarantee.to_zero_concentrated().rho


def planned_release(
    contributions: Any,
    bounds: Any,
    promise: tuple[Guarantee, float],
    *,
    name: str,
    sensitivity: float | None = None,
    granularity: float | None = None,
    proof: str | None = None,
) -> Release:
    """Return a release that has everything but its noise: confidential until that is added.

    With `proof` the sensitivity is tagged proved: of contributions before rounding, computed by
    this package from records that it clips.
    """
    guarantee, level = promise
    assert guarantee.neighbours is not None
    array = np.asarray(contributions)
    pairs, scalar = checked_bounds(bounds)
    whole = array.dtype.kind in "iub" and all(end == round(end) for pair in pairs for end in pair)
    lattice = Lattice(pairs, 1.0, scalar)
    if granularity is not None:
        lattice = replace(lattice, granularity=power_of_two(granularity))
    elif not whole:
        pure = isinstance(guarantee, PureDP)
        cell = granularity_for(lattice, guarantee.neighbours, level, pure)
        lattice = replace(lattice, granularity=cell)
    kept_whole = whole and lattice.granularity <= 1
    calibration = calibrate(
        lattice, guarantee, level, stated=sensitivity, whole=kept_whole, proof=proof
    )
    totals = lattice.totals(array)
    replaced = guarantee.neighbours == "replace_one"
    if replaced and not len(array):
        raise ReleaseError(
            "contributions must have a row or more, because neighbours replace one record; got "
            "no records."
        )
    return Release(
        name=name,
        integers=tuple(totals),
        lattice=lattice,
        calibration=calibration,
        size=len(array) if replaced else None,
        published=datetime.date.today().isoformat(),
        sampler="none",
    )


def with_noise(noise: Noise, planned: Release, sampler: str) -> Release:
    """Add noise to a planned release."""
    draw = noise.laplace if planned.calibration.family == "laplace" else noise.gaussian
    drawn = draw(Fraction(planned.calibration.scale), len(planned.integers))
    integers = tuple(total + k for total, k in zip(planned.integers, drawn, strict=True))
    return replace(planned, integers=integers, sampler=sampler)
