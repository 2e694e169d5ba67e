"""`audit`: a certified lower bound on the epsilon of anything that can be run many times.

Outputs on two neighbouring data sets are split in half. One half chooses an event: a set of bins of
one feature, in the order of their likelihood ratio. The other half, which had no say in the choice,
bounds the probability of the event under both data sets after Clopper and Pearson. If the mechanism
were (epsilon, delta)-DP, the bound would exceed epsilon with at most the stated probability.
A low bound proves nothing: another event, or other neighbours, might have done better.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import betaincinv, ndtri

from pymc_privacy.errors import GuaranteeError
from pymc_privacy.mechanisms import Mechanism

Repeated = Callable[[np.random.Generator, Any, int], np.ndarray]
"""``mechanism(rng, records, draws)`` returns that many outputs, shape (draws,) or (draws, k)."""


@dataclass(frozen=True)
class Audit:
    """What an audit found.

    Parameters
    ----------
    likelier, rarer : float
        Certified: the event has at least, and at most, this probability on the two data sets.
    delta : float
        The delta at which epsilon is bounded.
    feature : int
        Which feature of the outputs the event was about.
    false_alarm : float
        The probability that a bound is wrong.
    """

    likelier: float
    rarer: float
    delta: float
    feature: int
    false_alarm: float

    @property
    def epsilon(self) -> float:
        """Bound epsilon from below: p <= exp(epsilon) q + delta for the event."""
        return float(_log_ratio(np.asarray(self.likelier), np.asarray(self.rarer), self.delta))

    @property
    def mu(self) -> float:
        """Bound the mu of Gaussian privacy from below: Phi^-1(p) <= Phi^-1(q) + mu."""
        return float(ndtri(self.likelier) - ndtri(self.rarer))


def audit(
    rng: np.random.Generator,
    mechanism: Repeated,
    records: Any,
    neighbour: Any,
    *,
    draws: int = 200_000,
    delta: float = 0.0,
    false_alarm: float = 1e-6,
    bins: int = 64,
    features: Callable[[np.ndarray], Sequence[np.ndarray]] | None = None,
) -> Audit:
    """Return a certified lower bound on the epsilon of a mechanism.

    Parameters
    ----------
    rng : np.random.Generator
    mechanism : callable
        ``mechanism(rng, records, draws)`` returns outputs of shape (draws,) or (draws, k).
    records, neighbour
        Two neighbouring data sets, as the mechanism takes them.
    draws : int
        On each data set. To notice a sensitivity that is 20% short takes about 200,000.
    delta : float
        Bound epsilon at this delta.
    false_alarm : float
        Probability that the bound exceeds the true epsilon.
    bins : int
        Into which each feature is cut.
    features : callable, optional
        Maps outputs to the features that events may be about; by default every column, and of
        two columns (the ends of an interval) also the middle and the width.

    Returns
    -------
    Audit

    Examples
    --------
    >>> import numpy as np
    >>> import pymc_privacy as pmp
    >>> noise = pmp.DiscreteLaplace(epsilon=1.0, sensitivity=1.0)
    >>> rng = np.random.default_rng(1)
    >>> found = pmp.audit(rng, pmp.sanitize.repeated(noise), 30, 31)
    >>> bool(0.9 < found.epsilon <= 1.0)
    True
    """
    if draws < 1000:
        raise GuaranteeError(f"An audit needs 1000 draws or more to bound anything; got {draws}.")
    outputs = [np.asarray(mechanism(rng, data, draws)) for data in (records, neighbour)]
    values = [list((features or _columns)(output)) for output in outputs]
    half = draws // 2
    candidates = [
        (
            *_best_event(pair[first][:half], pair[1 - first][:half], bins, delta, false_alarm),
            k,
            first,
        )
        for k, pair in enumerate(zip(*values, strict=True))
        for first in (0, 1)
    ]
    _, edges, event, feature, first = max(candidates, key=lambda candidate: candidate[0])
    # One event was chosen, in one direction: nothing is to be corrected for.
    hits = [_hits(values[k][feature][half:], edges, event) for k in (first, 1 - first)]
    low, high = _clopper_pearson(np.array(hits[0]), np.array(hits[1]), draws - half, false_alarm)
    return Audit(float(low), float(high), delta, feature, false_alarm)


def repeated(mechanism: Mechanism) -> Repeated:
    """Return a mechanism's simulator in the form that `audit` takes; "records" is the statistic.

    Examples
    --------
    >>> from pymc_privacy import Laplace
    >>> repeated(Laplace(scale=1.0))(np.random.default_rng(1), [5.0, 6.0], 3).shape
    (3, 2)
    """

    def simulate(rng: np.random.Generator, statistic: Any, draws: int) -> np.ndarray:
        statistic = np.asarray(statistic)
        return mechanism.simulate(rng, np.broadcast_to(statistic, (draws, *statistic.shape)))

    return simulate


def _columns(outputs: np.ndarray) -> list[np.ndarray]:
    """Return every column, and of two columns also their sum and difference."""
    columns = list(outputs.reshape(len(outputs), -1).T)
    if len(columns) == 2:
        columns += [columns[0] + columns[1], columns[1] - columns[0]]
    return columns


def _best_event(
    likelier: np.ndarray, rarer: np.ndarray, bins: int, delta: float, false_alarm: float
) -> tuple[float, np.ndarray, np.ndarray]:
    """Return the score, the bin edges, and which bins the best event consists of."""
    edges = _edges(np.concatenate([likelier, rarer]), bins)
    counts = [
        np.bincount(_bins(part, edges), minlength=len(edges) + 1) for part in (likelier, rarer)
    ]
    order = np.argsort(np.log(counts[1] + 0.5) - np.log(counts[0] + 0.5), kind="stable")
    hits = [np.cumsum(count[order]) for count in counts]
    low, high = _clopper_pearson(hits[0], hits[1], len(likelier), false_alarm)
    scores = _log_ratio(low, high, delta)
    best = int(np.argmax(scores))
    event = np.zeros(len(edges) + 1, dtype=bool)
    event[order[: best + 1]] = True
    return float(scores[best]), edges, event


def _edges(pool: np.ndarray, bins: int) -> np.ndarray:
    """Cut between all values where they are few, else at quantiles."""
    distinct = np.unique(pool)
    if len(distinct) <= 4 * bins:
        return (distinct[:-1] + distinct[1:]) / 2
    return np.unique(np.quantile(pool, np.linspace(0, 1, bins + 1)[1:-1]))


def _bins(values: np.ndarray, edges: np.ndarray) -> np.ndarray:
    return np.searchsorted(edges, values, side="right")


def _hits(values: np.ndarray, edges: np.ndarray, event: np.ndarray) -> int:
    return int(event[_bins(values, edges)].sum())


def _clopper_pearson(
    many: np.ndarray, few: np.ndarray, draws: int, false_alarm: float
) -> tuple[np.ndarray, np.ndarray]:
    """Bound two binomial probabilities, from below and from above, each with half the error."""
    tail = false_alarm / 2
    low = np.where(many > 0, betaincinv(np.maximum(many, 1), draws - many + 1, tail), 0.0)
    rest = np.maximum(draws - few, 1)
    high = np.where(few < draws, betaincinv(few + 1, rest, 1 - tail), 1.0)
    return low, high


def _log_ratio(likelier: np.ndarray, rarer: np.ndarray, delta: float) -> np.ndarray:
    """Return log((p - delta) / q), or minus infinity where p does not exceed delta."""
    above = np.maximum(likelier - delta, 0.0)
    with np.errstate(divide="ignore"):
        return np.log(above) - np.log(rarer)
