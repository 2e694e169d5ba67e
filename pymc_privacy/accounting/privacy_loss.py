"""Composition of any guarantees by the law of their privacy loss, on a grid.

A profile is replaced by the least one above it whose loss has values on the grid only: between
neighbouring points it is linear in exp(epsilon) (Doroshenko et al. 2022, Section 4). Losses of
independent releases add, so that their laws are convolved. Everything that is cut off counts as a
failure, and so does what is lost to rounding.
"""

import math
from collections import Counter
from typing import NamedTuple

import numpy as np

from pymc_privacy.accounting.guarantees import Guarantee
from pymc_privacy.accounting.profiles import upwards
from pymc_privacy.accounting.tradeoff import Statements, furthest, profiles_at

_STEPS = 2**12  # grid points up to where the losses of all releases together reach
_STATEMENTS = 2**11  # of the result
_TAIL = 1e-18  # probability of what is cut off, each time
_ROUNDING = 2.0**-30  # relative, above that of differences of profiles on the grid


class Loss(NamedTuple):
    """Probabilities of the losses (first + i) step, and of a failure."""

    masses: np.ndarray
    first: int
    failure: float


def composed(guarantees: list[Guarantee]) -> Statements:
    """Return what guarantees promise together, as statements (epsilon, delta)."""
    counted = Counter(guarantees)
    reaches = {g: furthest(g, _TAIL) for g in counted}
    step = math.sqrt(math.fsum(n * reaches[g] ** 2 for g, n in counted.items())) / _STEPS
    whole = Loss(np.ones(1), 0, 0.0)
    for guarantee, times in counted.items():
        whole = _added(whole, _repeated(_loss(guarantee, reaches[guarantee], step), times))
    return _statements(whole, step)


def _loss(guarantee: Guarantee, reach: float, step: float) -> Loss:
    """Return the law of the loss whose profile passes through that of a guarantee on the grid.

    At i > 0 its probability is (d[i-1] - d[i]) / (1 - exp(-h)) - (d[i] - d[i+1]) / (exp(h) - 1),
    and as the pair is symmetric, that of -i is exp(-i h) times as large.
    """
    last = max(math.ceil(reach / step), 1)
    delta = profiles_at(guarantee, [i * step for i in range(last + 1)])
    fall = np.append(-np.diff(delta), 0.0)
    positive = np.maximum(fall[:-1] / -math.expm1(-step) - fall[1:] / math.expm1(step), 0.0)
    negative = positive * np.exp(-step * np.arange(1, last + 1))
    zero = max(1 - delta[-1] - positive.sum() - negative.sum(), 0.0)
    return Loss(np.concatenate([negative[::-1], [zero], positive]), -last, float(delta[-1]))


def _added(one: Loss, other: Loss) -> Loss:
    masses = np.convolve(one.masses, other.masses)
    first = one.first + other.first
    failure = one.failure + other.failure - one.failure * other.failure
    above = np.cumsum(masses[::-1])[::-1]
    keep = max(int(np.searchsorted(-above, -_TAIL)), 1)
    failure += float(masses[keep:].sum())
    # A larger loss is a weaker promise: small ones may be moved up.
    low = int(np.searchsorted(np.cumsum(masses[:keep]), _TAIL))
    low = min(low, keep - 1)
    kept = masses[low:keep].copy()
    kept[0] += masses[:low].sum()
    return Loss(kept, first + low, min(failure, 1.0))


def _repeated(loss: Loss, times: int) -> Loss:
    """Return the law of a sum of equal losses, by repeated doubling."""
    half = loss if times == 1 else _repeated(loss, times // 2)
    if times == 1:
        return loss
    doubled = _added(half, half)
    return _added(doubled, loss) if times % 2 else doubled


def _statements(loss: Loss, step: float) -> Statements:
    """Return delta(e) = failure + sum P(l) (1 - exp(e - l)) over l > e, at grid points e >= 0."""
    skipped = max(-loss.first, 0)
    masses = np.concatenate([np.zeros(max(loss.first, 0)), loss.masses[skipped:]])
    if not len(masses):
        masses = np.zeros(1)
    deltas = np.empty(len(masses))
    above = total = 0.0
    for i in range(len(masses) - 1, -1, -1):
        deltas[i] = total
        # Masses above i - 1, each times exp(e - l) of its distance from i - 1.
        near = (masses[i] + above) * math.exp(-step)
        total += (masses[i] + above) * -math.expm1(-step)
        above = near
    deltas = np.minimum((deltas + loss.failure) * (1 + _ROUNDING), math.nextafter(1, 0))
    kept = np.unique(np.linspace(0, len(deltas) - 1, _STATEMENTS).astype(int))
    return Statements(
        tuple(upwards(step * i) if i else 0.0 for i in kept.tolist()), tuple(deltas[kept].tolist())
    )
