"""Does it matter that the number of records is private? Awan et al. (2024), sections 3 and 4."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from pymc_privacy._compat import Model, TensorVariable, modelcontext
from pymc_privacy.accounting import Guarantee, compose
from pymc_privacy.arguments import integer
from pymc_privacy.errors import GuaranteeError, MechanismError, PrivacyError, RecordError
from pymc_privacy.mechanisms import (
    AdditiveMechanism,
    ExponentialInterval,
    KNormGradient,
    KNormGradientRegression,
    LocalSum,
    Mechanism,
    ObjectivePerturbation,
    Tulap,
)
from pymc_privacy.mechanisms.unknown_size import SizeGap, size_gap
from pymc_privacy.model.acceptance_bounds import releases_of_records
from pymc_privacy.model.marks import is_record
from pymc_privacy.model.releases import contributions_of, observed_value
from pymc_privacy.model.sized_records import is_sized, size_of
from pymc_privacy.model.support import finite_support

# What is near the average over records, whatever their number: a = 0 in A1.
_AVERAGES = (
    ExponentialInterval,
    KNormGradient,
    KNormGradientRegression,
    ObjectivePerturbation,
)


@dataclass(frozen=True)
class SizeMatters:
    """How far a private number of records is from a known one, for one model.

    Parameters
    ----------
    size : int
        n_0, the number that would be taken as known.
    spread : float or None
        The standard deviation of n given its noisy release, under a flat prior.
    rate : str
        What the spread must be small beside, as the number of records grows, for the answers to
        become the same (Awan et al., A2 of Theorem 3.2): "sqrt(n)", "n", or "not known".
    ratio : float or None
        The spread over that, at this size.
    distance : str
        In which sense they become the same: "total variation", "Kolmogorov-Smirnov" or "not known".
    gap : SizeGap or None
        Theorem 4.1 at this size: a bound, not a rate.
    guarantee : Guarantee or None
        What the releases of the records promise together.
    mechanism : Mechanism or None
        The noise on the size.
    why : tuple of str
        What was taken for granted, and why something is not known.

    See Also
    --------
    size_matters : Reads it from a model.
    plot_size_gap : Draws the bound against the noise on the size.

    Examples
    --------
    >>> found = SizeMatters(1000, 14.1, "sqrt(n)", 0.45, "total variation", None, None, None, ())
    >>> print(found)
    n = 1000 is known up to a standard deviation of 14.1.
    Rate (Theorem 3.2): 0.45 of sqrt(n); this must tend to 0 as n grows, in total variation.
    Bound (Theorem 4.1): not known.
    """

    size: int
    spread: float | None
    rate: str
    ratio: float | None
    distance: str
    gap: SizeGap | None
    guarantee: Guarantee | None
    mechanism: Mechanism | None
    why: tuple[str, ...]

    def __str__(self) -> str:
        known = "not at all" if self.spread is None else "up to a standard deviation of "
        known += "" if self.spread is None else f"{self.spread:.3g}"
        rate = "not known."
        if self.ratio is not None:
            rate = f"{self.ratio:.2g} of {self.rate}; this must tend to 0 as n grows"
            rate += "." if self.distance == "not known" else f", in {self.distance}."
        bound = "not known."
        if self.gap is not None:
            bound = f"total variation at most {self.gap.bound:.2g}"
            bound += ", which says nothing." if self.gap.bound >= 1 else "."
        lines = [
            f"n = {self.size} is known {known}.",
            f"Rate (Theorem 3.2): {rate}",
            f"Bound (Theorem 4.1): {bound}",
            *(f"  {said}" for said in self.why),
        ]
        return "\n".join(lines)


def size_matters(model: Model | None = None, *, size: int | None = None) -> SizeMatters:
    """Say whether it matters that the number of records is private, before anything is sampled.

    Two answers of Awan et al. (2024). A rate: as n grows, the laws of the release given n and given
    a noisy n become the same if n is known up to less than sqrt(n), for sums with noise of a fixed
    scale, or up to less than n, for mechanisms that release something like an average (section
    3.1). It needs a central limit theorem for the release, which is not checked. And a bound at
    this very n: `size_gap` (section 4.1), which needs a guarantee for adding or removing a record,
    and a flat prior for n.

    Parameters
    ----------
    model : pm.Model, optional
        The model on the context stack by default, with `Records` of one size.
    size : int, optional
        The number that would be taken as known; by default the noisy one, rounded.

    Returns
    -------
    SizeMatters

    Raises
    ------
    RecordError
        If the model has no `Records`, or several sizes.
    ReleaseError
        If the size was not released and `size` is left out.

    See Also
    --------
    size_gap : The bound for a guarantee and a mechanism.
    plot_size_gap : Draw the bound against the noise on the size.
    ergodicity : Which conditions for convergence a model meets.

    References
    ----------
    - Awan, J., Barrientos, A. F. and Ju, N. (2024), "Statistical inference for privatized data with
      unknown sample size", arXiv:2406.06231.

    Examples
    --------
    >>> import pymc as pm
    >>> import pymc_privacy as pmp
    >>> with pm.Model() as model:
    ...     mu = pm.Normal("mu", 0, 1)
    ...     n = pm.DiscreteUniform("n", 1, 2000)
    ...     x = pmp.Records("x", pm.Normal.dist(mu, 1), size=n)
    ...     noise = pmp.Laplace(epsilon=1.0, sensitivity=3.0, neighbours="add_remove")
    ...     total = pmp.Privatized("total", x.clip(-3, 3), noise, observed=512.3)
    ...     n_dp = pmp.Privatized("n_dp", n, pmp.Laplace(scale=0.2), observed=1000.0)
    >>> found = pmp.size_matters(model)
    >>> found.rate, round(found.ratio, 4), round(found.gap.bound, 4)
    ('sqrt(n)', 0.0037, 0.0062)
    """
    model = modelcontext(model)
    sizes = {size_of(rv) for rv in model.free_RVs if is_record(rv) and is_sized(rv)}
    if len(sizes) != 1:
        raise RecordError(
            "Whether a private size matters is asked for a model with Records of one size; got "
            f"{len(sizes)} sizes."
        )
    [number] = sizes
    why: list[str] = []
    seen, other = releases_of_records(model)
    noisy, mechanism = _released_size(number, other, model, why)
    if size is None:
        if noisy is None:
            raise GuaranteeError(
                "size= (the number of records that would be taken as known) must be given where "
                f"{number.name!r} has no single noisy release; got None."
            )
        size = max(1, round(noisy))
    size = integer("size", size, least=1, error=GuaranteeError)
    rate, distance = _rate([rv.owner.op.mechanism for rv in seen], why)
    spread = None if mechanism is None else _spread(mechanism)
    beside = {"sqrt(n)": math.sqrt(size), "n": float(size)}.get(rate)
    ratio = None if spread is None or beside is None else spread / beside
    guarantee = _joint(seen, why)
    gap = None
    if guarantee is not None and mechanism is not None:
        gap = _gap(guarantee, mechanism, number, size, noisy, why)
    return SizeMatters(
        size, spread, rate, ratio, distance, gap, guarantee, mechanism, tuple(dict.fromkeys(why))
    )


def _released_size(
    number: TensorVariable, releases: Sequence[TensorVariable], model: Model, why: list[str]
) -> tuple[float | None, Mechanism | None]:
    """Return the noisy size and its noise, if there is one release of the size itself."""
    own = [rv for rv in releases if _is_of(contributions_of(rv), number)]
    if len(own) != 1:
        why.append(f"{number.name} has {len(own)} releases of its own, and one was looked for")
        return None, None
    [release] = own
    mechanism = release.owner.op.mechanism
    if not isinstance(mechanism, AdditiveMechanism) or np.ndim(mechanism.scale):
        why.append(f"the noise on {number.name} is not additive")
        return None, None
    return float(observed_value(model, release)), mechanism


def _is_of(contributions: TensorVariable, number: TensorVariable) -> bool:
    """Tell whether what was released is the number itself, or a cast of it."""
    if contributions is number:
        return True
    node = contributions.owner
    return (
        node is not None
        and len(node.inputs) == 1
        and node.inputs[0] is number
        and (type(getattr(node.op, "scalar_op", None)).__name__ in ("Cast", "Identity"))
    )


def _rate(mechanisms: Sequence[Mechanism], why: list[str]) -> tuple[str, str]:
    """Return what the spread must be small beside, and the distance that then tends to 0."""
    sums = [isinstance(m, AdditiveMechanism | LocalSum) for m in mechanisms]
    averages = [isinstance(m, _AVERAGES) for m in mechanisms]
    if not mechanisms or not all(a or b for a, b in zip(sums, averages, strict=True)):
        why.append("the rate is known for sums with noise, and for averages")
        return "not known", "not known"
    why.append("a central limit theorem for the release is taken for granted")
    # Several releases together need the stricter rate.
    rate = "sqrt(n)" if any(sums) else "n"
    if all(isinstance(m, LocalSum) for m in mechanisms):
        return rate, "total variation"
    if all(isinstance(m, Tulap) for m in mechanisms):
        why.append("contributions are taken to be integers")
        return rate, "total variation"
    if all(m.discrete for m in mechanisms):
        return rate, "Kolmogorov-Smirnov"
    why.append("in total variation too, if contributions are partly continuous (Lemma A.4)")
    return rate, "Kolmogorov-Smirnov"


def _spread(mechanism: Any) -> float | None:
    """Return the standard deviation of n given its release, far from n = 1, under a flat prior."""
    reach = int(60 * float(mechanism.scale)) + 60
    if reach > 10_000_000:
        return None
    n = np.arange(-reach, reach + 1)
    weight = np.exp(np.asarray(mechanism.log_density(0 if mechanism.discrete else 0.0, n)))
    return float(np.sqrt(weight @ n.astype(float) ** 2 / weight.sum()))


def _joint(releases: Sequence[TensorVariable], why: list[str]) -> Guarantee | None:
    """Return what the releases of the records promise together for adding or removing one."""
    promises = []
    for release in releases:
        promise = release.owner.op.mechanism.guarantee
        if promise is None or promise.neighbours == "replace_one":
            why.append(
                f"{release.name} promises nothing about adding or removing a record "
                f"({promise or 'no guarantee is stated'})"
            )
            return None
        if promise.neighbours is None:
            why.append(f"neighbours of {release.name} taken to be add_remove, as of the model")
        promises.append(promise)
    try:
        return compose(*promises)
    except GuaranteeError as error:
        why.append(f"the releases are not composed: {error}")
        return None


def _gap(
    guarantee: Guarantee,
    mechanism: Any,
    number: TensorVariable,
    size: int,
    noisy: float | None,
    why: list[str],
) -> SizeGap | None:
    ends = finite_support(number) if "DiscreteUniform" in type(number.owner.op).__name__ else None
    if ends is None or not max(ends[0], 1) <= size <= ends[1]:
        why.append(
            f"the prior of {number.name} is not known to be flat around {size}; pmp.size_gap takes "
            "its log density, log_prior="
        )
        return None
    if ends[0] < 1:
        why.append("that there are no records at all is left out of the bound")

    def log_prior(n: np.ndarray) -> np.ndarray:
        return np.where((n >= ends[0]) & (n <= ends[1]), 0.0, -np.inf)

    try:
        return size_gap(guarantee, mechanism, size=size, release=noisy, log_prior=log_prior)
    except PrivacyError as error:
        if not isinstance(error, MechanismError | GuaranteeError):
            raise
        why.append(str(error))
        return None
