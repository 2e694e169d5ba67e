"""`capacity_for` and `size_gap`: what a noisy number of records says of that number.

`size_gap` bounds how much it can matter that the number of records is itself private. Awan et al.
on an unknown sample size, Theorem 4.1: let a release s promise that adding or removing a record
moves its law by at most delta in total variation. Then

    TV(p(s | theta, n = n0), p(s | theta, n_dp)) <= E[min(1, delta |n - n0|)],

the expectation over n given its own release n_dp. (The theorem is stated for n_dp = n0 and
without the minimum; its proof, through Lemma A.9, gives both for free.) The same bounds the
joint laws of s and theta under a proper prior, and so how far apart the two posteriors can be
on average.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, cast

import numpy as np

from pymc_privacy.accounting.guarantees import Guarantee
from pymc_privacy.arguments import function, integer, probability, real, refusal, shown
from pymc_privacy.errors import GuaranteeError, MechanismError, ReleaseError
from pymc_privacy.mechanisms.base import AdditiveMechanism, Mechanism
from pymc_privacy.mechanisms.laplace import DiscreteLaplace, Laplace
from pymc_privacy.mechanisms.tails import (
    FURTHEST,
    LOG_CONCAVE,
    log_tail_bound,
    reach,
    smallest_integer,
)

_TERMS = 10_000_000
_SUMMED = 100_000  # sizes, of which a part of a sum is made
_TAIL = 1e-12


@dataclass(frozen=True)
class SizeGap:
    """A bound on the distance between the answers with a known and with a private size.

    Parameters
    ----------
    bound : float
        At most this is the total variation between the laws of the release (and, under a
        proper prior, of release and parameters) with n known and with n private.
    expected_difference : float
        A bound on the expected distance of n from the size that is taken as known.
    total_variation : float
        What one record changes in the release: its (0, delta)-DP, by Lemma A.8.

    Raises
    ------
    GuaranteeError
        By the constructor, if a number is negative or not finite.

    See Also
    --------
    size_gap : Computes it.

    References
    ----------
    - Awan, J., Barrientos, A. F. and Ju, N. (2024), "Statistical inference for privatized data with
      unknown sample size", arXiv:2406.06231.

    Examples
    --------
    >>> import pymc_privacy as pmp
    >>> gap = pmp.size_gap(pmp.PureDP(1.0), pmp.Laplace(epsilon=5.0, sensitivity=1.0))
    >>> gap.total_variation == pmp.PureDP(1.0).to_total_variation()
    True
    """

    bound: float
    expected_difference: float
    total_variation: float

    def __post_init__(self) -> None:
        for name in ("bound", "expected_difference", "total_variation"):
            number = real(name, getattr(self, name), least=0, error=GuaranteeError)
            object.__setattr__(self, name, number)


def size_gap(
    guarantee: Guarantee | Mechanism,
    size_mechanism: AdditiveMechanism,
    *,
    size: int | None = None,
    release: float | None = None,
    log_prior: Callable[[np.ndarray], Any] | None = None,
) -> SizeGap:
    """Bound how far the answer can be from that for a known number of records.

    Parameters
    ----------
    guarantee : Guarantee or Mechanism
        What is promised about the release for adding or removing one record; several releases
        are first put together by `compose`.
    size_mechanism : AdditiveMechanism
        The noise on the number of records: Laplace or Gaussian, discrete or not.
    size : int, optional
        The number of records that would be taken as known. When it is left out, the bound of
        Lemma 4.2 holds for every size, if the release of the size is that very number.
    release : float, optional
        The noisy number of records; ``size`` by default.
    log_prior : callable, optional
        The log prior of n on an array of integers >= 1, up to a constant. It must be bounded
        by its value at ``size`` plus log 2 outside the reach of the noise, which is not
        checked. Flat by default.

    Returns
    -------
    SizeGap

    Raises
    ------
    GuaranteeError
        If there is no guarantee or it is for replacing a record, if `release` or `log_prior` comes
        without `size`, or if the noise reaches too far to be summed.
    MechanismError
        If the noise on the size is not Laplace or Gaussian of one scale.

    See Also
    --------
    capacity_for : How many records to consider at most.
    Records : Records of an unknown number, in a model.
    compose : What several releases promise together.

    References
    ----------
    - Awan, J., Barrientos, A. F. and Ju, N. (2024), "Statistical inference for privatized data with
      unknown sample size", arXiv:2406.06231.

    Examples
    --------
    A release with epsilon 1, and a size with epsilon 0.1 or 10:

    >>> import pymc_privacy as pmp
    >>> promise = pmp.PureDP(1.0, neighbours="add_remove")
    >>> noise = [pmp.Laplace(epsilon=e, sensitivity=1.0) for e in (0.1, 10.0)]
    >>> [round(pmp.size_gap(promise, m, size=1000).bound, 5) for m in noise]
    [0.89521, 4e-05]
    """
    delta = _total_variation(guarantee)
    if not isinstance(size_mechanism, LOG_CONCAVE) or np.ndim(size_mechanism.scale):
        raise MechanismError(
            "The size must have been released with Laplace or Gaussian noise of one scale, such as "
            f"Laplace(epsilon=0.1, sensitivity=1.0); got {shown(size_mechanism)}."
        )
    if size is None:
        if release is not None or log_prior is not None:
            raise GuaranteeError(
                "size= (the number of records that would be taken as known) must be given with "
                "release= or log_prior=, because the bound depends on it; got None."
            )
        expected = _for_every_size(size_mechanism)
        return SizeGap(min(1.0, delta * expected), expected, delta)
    size = integer("size", size, least=1, error=GuaranteeError)
    if size > FURTHEST:
        raise refusal("size", f"an integer from 1 to {FURTHEST}", size, error=GuaranteeError)
    if release is not None:
        release = real("release", release, error=GuaranteeError)
    if log_prior is not None:
        function("log_prior", log_prior, error=GuaranteeError)
    return _for_one_size(delta, size_mechanism, size, release, log_prior)


def _total_variation(guarantee: Any) -> float:
    promised = guarantee.guarantee if isinstance(guarantee, Mechanism) else guarantee
    if not isinstance(promised, Guarantee):
        raise GuaranteeError(
            "The release must come with a guarantee, such as PureDP(1.0), because the bound is "
            f"about what one record can change in it; got {shown(guarantee)}."
        )
    if promised.neighbours == "replace_one":
        raise GuaranteeError(
            "The guarantee must be for adding or removing one record, because two sizes are "
            f"compared and nothing is promised about that otherwise; got {promised}."
        )
    return promised.to_total_variation()


def _for_every_size(mechanism: AdditiveMechanism) -> float:
    """Bound E|n - n0| for every n0 = n_dp under a flat prior: Lemma 4.2."""
    if isinstance(mechanism, Laplace | DiscreteLaplace):
        return 2 / math.expm1(1 / cast(float, mechanism.scale))
    return 2 * cast(float, mechanism.scale)


def _for_one_size(
    delta: float,
    mechanism: AdditiveMechanism,
    size: int,
    release: float | None,
    log_prior: Callable[[np.ndarray], Any] | None,
) -> SizeGap:
    """Sum over n within the noise's reach, and bound the rest by its tail.

    Left out is n outside [low, high], of noise at least h away from both n_dp and n0. There
    the prior is at most twice its value at n0, so that the share of what is left out is at
    most R = 4 P(noise >= h) / sum of what is kept, in the same units; and its part of
    E|n - n0| at most R times (1 + h + 1 / (1 - q)), for a tail that falls by q per unit.
    """
    released = float(size if release is None else release)
    h = int(reach(mechanism, _TAIL)) + math.ceil(abs(released - size))
    if 2 * h > _TERMS:
        raise GuaranteeError(
            f"The noise on the size must reach over at most {_TERMS // 2} records, to be summed; "
            f"got {h}. Leave size= out for a bound that holds for every size."
        )
    n = np.arange(max(1, size - h), size + h + 1)
    log_weight = np.asarray(mechanism.log_density(released, n), dtype=np.float64)
    log_units = 0.0
    if log_prior is not None:
        log_weight = log_weight + np.asarray(log_prior(n), dtype=np.float64)
        log_units = float(np.asarray(log_prior(np.array([size]))).item())
    peak = log_weight.max()
    if not np.isfinite(peak):
        raise GuaranteeError(
            "Some size within reach of the noise must be possible under the prior; got a "
            f"log_prior that is not finite around {size}."
        )
    weight = np.exp(log_weight - peak)
    total, distance = weight.sum(), abs(n - size)
    away = max(1.0, h + 1 - abs(released - size))
    fall = float(mechanism.log_density(away, 0.0) - mechanism.log_density(away - 1, 0.0))
    left_out = 4 * math.exp(float(log_tail_bound(mechanism, away)) + log_units - peak) / total
    expected = float(weight @ distance / total) + left_out * (1 + h - 1 / math.expm1(fall))
    bound = float(weight @ np.minimum(1.0, delta * distance) / total) + left_out
    return SizeGap(float(min(1.0, bound)), float(expected), delta)


def capacity_for(release: Any, mechanism: AdditiveMechanism, *, tail: float = 1e-6) -> int:
    """Return a capacity that the number of records exceeds with probability at most ``tail``.

    Two statements hold at once. Before anything is published: noise that hides more records
    than that from this release has probability at most ``tail``. Given the release: so has a
    larger number of records, under a flat prior on 1, 2, … and with no other release. A prior
    that favours large numbers, or other releases, may need more.

    Parameters
    ----------
    release : float
        The noisy number of records.
    mechanism : AdditiveMechanism
        The law of its noise, with one scale.
    tail : float, default 1e-6

    Returns
    -------
    int

    Raises
    ------
    MechanismError
        If the mechanism does not add noise of one scale, or `tail` is not in (0, 1).
    ReleaseError
        If the release is not one of this mechanism, or no positive number of records is within its
        reach.

    See Also
    --------
    Records : What takes a capacity.
    size_gap : Whether an unknown size matters.

    Examples
    --------
    >>> import pymc_privacy as pmp
    >>> pmp.capacity_for(1012.3, pmp.Laplace(epsilon=0.1, sensitivity=1.0))
    1151
    """
    released = _checked(release, mechanism, tail)
    first = max(1, math.ceil(released))
    # The probabilities under the flat prior are proportional to these; a part of their sum is
    # a lower bound on it, and the first statement needs no more than 1.
    sizes = np.arange(first, first + _SUMMED)
    held = min(1.0, float(np.exp(mechanism.log_density(released, sizes)).sum()))
    if held == 0:
        raise ReleaseError(
            "The noisy number of records must lie within reach of a positive number of them; "
            f"got {release!r}, with noise of scale {mechanism.scale}."
        )
    allowed = math.log(tail) + math.log(held)

    def enough(size: np.ndarray) -> np.ndarray:
        # More than `size` records: the noise has taken off at least size + 1 - released.
        return log_tail_bound(mechanism, np.maximum(size + 1 - released, 1)) <= allowed

    return int(smallest_integer(enough, np.asarray(float(first))))


def _checked(release: Any, mechanism: Any, tail: float) -> float:
    if not isinstance(mechanism, AdditiveMechanism) or np.ndim(mechanism.scale):
        raise MechanismError(
            "A capacity needs a mechanism that adds noise of one scale to the number of records, "
            f"such as Laplace(epsilon=0.1, sensitivity=1.0); got {shown(mechanism)}."
        )
    why = "the probability of more records than the capacity"
    probability("tail", tail, meaning=why, error=MechanismError)
    said: Any = {"meaning": f"as {type(mechanism).__name__} gives it", "error": ReleaseError}
    name = "The noisy number of records"
    released = real(name, release, **said)
    if abs(released) > FURTHEST:
        raise refusal(name, f"at most {FURTHEST}", release, **said)
    if mechanism.discrete and released != round(released):
        raise refusal(name, "an integer", release, **said)
    return released
