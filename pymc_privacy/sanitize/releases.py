"""`release`: a noisy total that may be published, with a card that says what it is.

The order of events is the contract, here and in all functions that publish: all arguments are
checked, the plan is made of them, the records are checked to fit and become integers, the ledger is
charged, noise is drawn, and the card says what the plan said. Not protected, here or anywhere in
this package: timing, memory, logs, exceptions, files in between, and choices of bounds, models or
releases that were made after a look at the records.
"""

from __future__ import annotations

import datetime
import warnings
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from pymc_privacy.arguments import choice, generator, instance, integer
from pymc_privacy.errors import InsecureNoiseWarning, ReleaseError
from pymc_privacy.mechanisms import AdditiveMechanism
from pymc_privacy.sanitize.calibrate import Calibration, Sensitivity
from pymc_privacy.sanitize.exact_noise import ExactNoise, Noise, SimulatedNoise
from pymc_privacy.sanitize.lattice import Lattice
from pymc_privacy.sanitize.ledger import Ledger
from pymc_privacy.sanitize.opendp_noise import OpenDPNoise
from pymc_privacy.sanitize.plan import (
    ReleasePlan,
    Totals,
    charge,
    checked_date,
    checked_ledger,
    checked_size,
    plan_release,
)
from pymc_privacy.sanitize.publication import SIMULATED, Publication

SAMPLERS = ("exact", "opendp", "simulated")
_LARGEST = 2**1000  # of what is published: floats hold it


@dataclass(frozen=True)
class Release(Publication):
    """A published total: integers on a lattice, the law of their noise, and what it promises.

    Law, sensitivity and label follow from the plan; there is no field that could contradict it.

    Parameters
    ----------
    plan : ReleasePlan
    integers : tuple of int
        Total plus noise, in units of the granularity.
    size : int or None
        The number of records, where it is public: under replacement.
    published : str
        The date.
    sampler : {"exact", "opendp", "simulated"}
        Where the noise came from.

    Raises
    ------
    ReleaseError
        By the constructor, if integers, size, date or sampler do not fit the plan.

    See Also
    --------
    release : Makes one.
    read_card : Reads one from a card.
    Privatized.from_card : Puts one into a model.

    References
    ----------
    - Canonne, C. L., Kamath, G. and Steinke, T. (2020), "The discrete Gaussian for differential
      privacy", Advances in Neural Information Processing Systems 33.

    Examples
    --------
    >>> import pymc_privacy as pmp
    >>> published = pmp.release(
    ...     [0, 1, 1], bounds=(0, 1), integers=True, epsilon=1.0, neighbours="replace_one"
    ... )
    >>> published.mechanism.scale, published.label
    (1.0, 'proven')
    """

    plan: ReleasePlan
    integers: tuple[int, ...]
    size: int | None
    published: str
    sampler: str

    def __post_init__(self) -> None:
        instance("plan", self.plan, ReleasePlan, "a ReleasePlan", error=ReleaseError)
        choice("sampler", self.sampler, SAMPLERS, error=ReleaseError)
        cell = Fraction(self.lattice.granularity)
        whole = isinstance(self.integers, tuple) and all(type(i) is int for i in self.integers)
        if (
            not whole
            or len(self.integers) != len(self.lattice.bounds)
            or any(abs(i) * cell > _LARGEST for i in self.integers)
        ):
            raise ReleaseError(
                f"integers must be one int for each of the {len(self.lattice.bounds)} columns, "
                "and floats must hold what they stand for; got others."
            )
        if (self.size is None) != (self.guarantee.neighbours == "add_remove"):
            raise ReleaseError(
                "size must be given where neighbours replace a record, and must not be where they "
                f"add or remove one; got {self.size!r} with {self.guarantee.neighbours!r}."
            )
        if self.size is not None:
            integer("size", self.size, least=1, error=ReleaseError)
        checked_date(self.published)

    @property
    def lattice(self) -> Lattice:
        """Return bounds and granularity."""
        return self.plan.lattice

    @property
    def calibration(self) -> Calibration:
        """Return the noise, and what it promises."""
        return self.plan.calibration

    @property
    def value(self) -> Any:
        """Return what was published, in units of the statistic: a number, or one per column."""
        values = np.array([float(i * Fraction(self.lattice.granularity)) for i in self.integers])
        return values[0].item() if self.lattice.scalar else values

    @property
    def sensitivity(self) -> Sensitivity:
        """Return how far one record moves the totals, and whether that is proved."""
        return self.calibration.sensitivity

    @property
    def scale(self) -> float:
        """Return the scale of the noise in units of the statistic."""
        return self.plan.scale

    @property
    def mechanism(self) -> AdditiveMechanism:
        """Return the law of `value` given the total; see `ReleasePlan.mechanism`."""
        return self.plan.mechanism

    @property
    def simulated(self) -> bool:
        """Return whether the noise was seedable, so that this must not be published."""
        return self.sampler == "simulated"

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        """Return what was published, where an array is wanted."""
        return np.array(self.value, dtype=dtype)

    def _sentences(self) -> list[str]:
        law = f"discrete {self.calibration.family.title()}, scale {self.scale:g}"
        source = {
            "exact": "drawn exactly, from the operating system's entropy",
            "opendp": "drawn by OpenDP",
        }
        return [
            f"{self.name}: {self.guarantee}.",
            f"Label: {self.label}.",
            f"{self.sensitivity}",
            *[f"Assumption: {assumption}" for assumption in self.assumptions],
            f"Noise: {law}, on multiples of {self.lattice.granularity:g}, "
            f"{source.get(self.sampler, 'simulated')}.",
        ]


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
    integers: bool = False,
    size: int | None = None,
    unit: str = "one record",
    name: str = "release",
    ledger: Ledger | None = None,
    sampler: str = "exact",
) -> Release:
    """Publish the total of the contributions with noise that keeps the promise.

    There is no seed: a known seed takes the noise off again. The noise is drawn exactly, on
    integers (Canonne, Kamath & Steinke 2020), after the ledger has been charged. Lattice, scale
    and charge follow from the arguments and never from the records or their type. Under
    ``add_remove`` the number of records is not part of the result.

    Parameters
    ----------
    contributions : array_like
        What each record adds: shape (n,) or (n, d), records on axis 0. Finite; clipped and
        rounded here, each by itself.
    bounds : (float, float) or sequence of them
        Public bounds of each column, chosen without looking at the records.
    neighbours : {"replace_one", "add_remove"}
    epsilon : float, optional
        Pure privacy, Laplace noise; together with `delta` Gaussian noise.
    delta, rho : float, optional
        Approximate, or zero-concentrated privacy: Gaussian noise.
    sensitivity : float, optional
        L1 (Laplace) or L2 (Gaussian) distance that one record can move the total, where it is
        known to be less than the bounds imply. It is tagged "asserted", and the release
        "conditional".
    granularity : float, optional
        Power of two to whose multiples contributions are rounded: 1 for integers, otherwise
        about 2^-32 of the scale of the noise, and at most 2^-20 of the sensitivity.
    integers : bool
        Contributions are whole numbers, and so are the bounds: the noise is that of integers.
        Whatever is not whole is rounded. Without it integers are treated as any real number.
    size : int, optional
        The number of records, where it is public and was fixed beforehand; records that are
        more or fewer are refused.
    unit : str
        What a record is, in the guarantee.
    name : str
        Of what is released; one that you give can be charged to a ledger once.
    ledger : Ledger, optional
        Charged before any noise is drawn; an overdraft is refused.
    sampler : {"exact", "opendp"}
        The package's own sampler, or that of OpenDP, which must be installed.

    Returns
    -------
    Release

    Raises
    ------
    ReleaseError
        If contributions are not finite numbers, or not `size` many, or bounds, sensitivity,
        granularity or sampler are not what they must be.
    GuaranteeError
        If not one of epsilon, rho and (epsilon, delta) is given, neighbours are not stated, or the
        ledger is in another measure.
    BudgetError
        If the ledger cannot cover the charge; nothing was drawn.
    LedgerError
        If the ledger was charged under this name before, or its file is damaged.

    See Also
    --------
    simulate_release : Rehearse it with a seed.
    Ledger : A budget on file, from which releases draw.
    write_card : Publish what was released.
    Privatized.from_card : Put it into a model.

    References
    ----------
    - Canonne, C. L., Kamath, G. and Steinke, T. (2020), "The discrete Gaussian for differential
      privacy", Advances in Neural Information Processing Systems 33.

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
    choice("sampler", sampler, SAMPLERS[:2], error=ReleaseError)
    ledger = checked_ledger(ledger)
    plan = plan_release(
        bounds=bounds,
        neighbours=neighbours,
        epsilon=epsilon,
        delta=delta,
        rho=rho,
        sensitivity=sensitivity,
        granularity=granularity,
        integers=integers,
        unit=unit,
        name=name,
    )
    size = checked_size(size, plan.guarantee)
    noise = _source(sampler, plan)
    totals = plan.totals(contributions, size=size)
    charge(ledger, plan.guarantee, plan.name, unless="release")
    return with_noise(noise, plan, totals, sampler)


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
    integers: bool = False,
    size: int | None = None,
    unit: str = "one record",
    name: str = "release",
) -> Release:
    """Rehearse `release` with seedable noise; the result must not be published.

    It has the same law as `release` but for rounding, warns on every call, and its statement and
    its card say what it is.

    Parameters
    ----------
    rng : np.random.Generator
    contributions, bounds, neighbours, epsilon, delta, rho, sensitivity, granularity, integers
        As for `release`.
    size, unit, name
        As for `release`.

    Raises
    ------
    ReleaseError
        As for `release`, and if `rng` is not a generator.
    GuaranteeError
        As for `release`.

    See Also
    --------
    release : What may be published.
    Privatized.from_card : Put the rehearsal into a model.
    Study : Repeat it many times.

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
    generator("rng", rng, error=ReleaseError)
    plan = plan_release(
        bounds=bounds,
        neighbours=neighbours,
        epsilon=epsilon,
        delta=delta,
        rho=rho,
        sensitivity=sensitivity,
        granularity=granularity,
        integers=integers,
        unit=unit,
        name=name,
    )
    totals = plan.totals(contributions, size=checked_size(size, plan.guarantee))
    warnings.warn(SIMULATED, InsecureNoiseWarning, stacklevel=2)
    return with_noise(SimulatedNoise(rng), plan, totals, "simulated")


def _source(sampler: str, plan: ReleasePlan) -> Noise:
    """Return the noise of a plan; one draw that sees no records shows that it works."""
    if sampler == "exact":
        return ExactNoise()
    noise = OpenDPNoise(plan.calibration.scale)
    drawn(noise, plan)
    return noise


def drawn(noise: Noise, plan: ReleasePlan) -> list[int]:
    """Draw the noise of a plan, one integer for each column."""
    draw = noise.laplace if plan.calibration.family == "laplace" else noise.gaussian
    return draw(Fraction(plan.calibration.scale), len(plan.lattice.bounds))


def with_noise(noise: Noise, plan: ReleasePlan, totals: Totals, sampler: str) -> Release:
    """Add noise to totals; nothing else of the records is published."""
    noisy = [total + k for total, k in zip(totals.integers, drawn(noise, plan), strict=True)]
    return Release(
        plan=plan,
        integers=tuple(noisy),
        size=totals.size if plan.guarantee.neighbours == "replace_one" else None,
        published=datetime.date.today().isoformat(),
        sampler=sampler,
    )
