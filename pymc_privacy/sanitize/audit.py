"""`audit`: a certified lower bound on the epsilon of anything that can be run many times.

Outputs on two neighbouring data sets are split in three. A quarter learns features that events may
be about, and puts the bins of each feature in the order of their likelihood ratio. Another quarter
chooses an event: how many bins of which feature. The other half, which had no say in the choice,
bounds the probability of the event under both data sets after Clopper and Pearson. If the mechanism
were (epsilon, delta)-DP, the bound would exceed epsilon with at most the stated probability. A low
bound proves nothing: another event, or other neighbours, might have done better.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from scipy.special import betaincinv, ndtri

from pymc_privacy.arguments import (
    flag,
    function,
    generator,
    integer,
    numbers,
    probability,
    refusal,
    shown,
)
from pymc_privacy.errors import GuaranteeError, PrivacyError
from pymc_privacy.mechanisms import Mechanism
from pymc_privacy.sanitize.audit_features import Feature, bins_of, edges_of, features_of

Repeated = Callable[[np.random.Generator, Any, int], np.ndarray]
"""``mechanism(rng, records, draws)`` returns that many outputs, shape (draws,) or (draws, k)."""

_FEWEST, _MOST = 1000, 10**9  # draws
_MOST_FEATURES = 1000


@dataclass(frozen=True)
class Audit:
    """What an audit found.

    Parameters
    ----------
    likelier, rarer : float
        Certified: the event has at least, and at most, this probability on the two data sets.
    delta : float
        The delta at which epsilon is bounded.
    feature : str
        Which feature of the outputs the event was about.
    false_alarm : float
        The probability that a bound is wrong.
    """

    likelier: float
    rarer: float
    delta: float
    feature: str
    false_alarm: float

    @property
    def epsilon(self) -> float:
        """Bound epsilon from below: p <= exp(epsilon) q + delta for the event."""
        return float(_log_ratio(np.asarray(self.likelier), np.asarray(self.rarer), self.delta))

    @property
    def mu(self) -> float:
        """Bound the mu of Gaussian privacy from below: Phi^-1(p) <= Phi^-1(q) + mu."""
        return float(ndtri(self.likelier) - ndtri(self.rarer))


class _Settings(NamedTuple):
    """What the search for an event goes by."""

    bins: int
    delta: float
    false_alarm: float


class _Event(NamedTuple):
    """A set of bins of one feature, and on which of the two data sets it is likelier."""

    score: float
    feature: Feature
    edges: np.ndarray
    members: np.ndarray
    first: int

    def hits(self, outputs: np.ndarray) -> int:
        return int(self.members[bins_of(self.feature.of(outputs), self.edges)].sum())


def audit(
    rng: np.random.Generator,
    mechanism: Repeated | Mechanism,
    records: Any,
    neighbour: Any,
    *,
    draws: int = 200_000,
    delta: float = 0.0,
    false_alarm: float = 1e-6,
    bins: int = 64,
    features: Callable[[np.ndarray], Sequence[np.ndarray]] | None = None,
    low_bits: bool | None = None,
) -> Audit:
    """Return a certified lower bound on the epsilon of a mechanism.

    Parameters
    ----------
    rng : np.random.Generator
    mechanism : callable or Mechanism
        ``mechanism(rng, records, draws)`` returns outputs of shape (draws,) or (draws, k). Of a
        `Mechanism` the simulator is run, "records" is the statistic, and events are about the
        likelihood ratio, too, which no other feature can beat.
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
        Maps outputs to the features that events may be about. By default: every column; of two
        columns (the ends of an interval) also the middle and the width; of several columns a
        score and cells of all together, learned from draws that are not used again; and the
        lowest bit of floats.
    low_bits : bool, optional
        Whether events may be about the lowest bits of floats, which tell the statistic behind
        noise that was added in floating point (Mironov 2012). By default they are, except for a
        `Mechanism`, whose simulator is not for publishing, and whose law is what is audited.

    Returns
    -------
    Audit

    Raises
    ------
    GuaranteeError
        If there are too few draws, an argument is out of its range, or mechanism or features do not
        return what they must.
    MechanismError
        If a `Mechanism` cannot be simulated on these data.
    ArgumentError
        If `low_bits` is not True or False.

    See Also
    --------
    release : Noise without telltale bits.
    PureDP : What an audit puts to the test.

    References
    ----------
    - Mironov, I. (2012), "On significance of the least significant bits for differential privacy",
      ACM Conference on Computer and Communications Security (CCS).

    Examples
    --------
    >>> import numpy as np
    >>> import pymc_privacy as pmp
    >>> noise = pmp.DiscreteLaplace(epsilon=1.0, sensitivity=1.0)
    >>> found = pmp.audit(np.random.default_rng(1), noise, 30, 31)
    >>> bool(0.9 < found.epsilon <= 1.0)
    True

    Noise that is added in floating point gives the statistic away:

    >>> def naive(rng, statistic, draws):
    ...     return statistic + rng.laplace(size=draws)
    >>> bool(pmp.audit(np.random.default_rng(1), naive, 0.0, 1.0).epsilon > 5)
    True
    """
    rng, run = generator("rng", rng, error=GuaranteeError), _runner(mechanism)
    draws = integer("draws", draws, error=GuaranteeError)
    if not _FEWEST <= draws <= _MOST:
        raise GuaranteeError(
            f"An audit needs {_FEWEST} draws or more to bound anything, and at most {_MOST}; got "
            f"{draws}."
        )
    delta = probability("delta", delta, zero=True, error=GuaranteeError)
    false_alarm = probability("false_alarm", false_alarm, error=GuaranteeError)
    bins = integer("bins", bins, least=2, most=2**20, error=GuaranteeError)
    if features is not None:
        function("features", features, error=GuaranteeError)
    law = getattr(run, "mechanism", None)
    seen = law is None if low_bits is None else flag("low_bits", low_bits)
    outputs = [_outputs(run, rng, data, draws) for data in (records, neighbour)]
    if outputs[0].shape != outputs[1].shape:
        raise GuaranteeError(
            "Outputs on both data sets must have the same shape (one that tells them apart needs "
            f"no audit); got {outputs[0].shape} and {outputs[1].shape}."
        )
    settings = _Settings(bins, delta, false_alarm)
    # The first quarter learns, the second chooses, and the second half confirms.
    quarter, half = draws // 4, draws // 2
    learning = [output[:quarter] for output in outputs]
    choosing = [output[quarter:half] for output in outputs]
    if features is None:
        choices = features_of(learning, law, (records, neighbour), bins, seen)
    else:
        choices = _given(features, learning[0])
    events = [
        _best_event(feature, learning, choosing, settings, first)
        for feature in choices
        for first in (0, 1)
    ]
    best = max(events, key=lambda event: event.score)
    # One event was chosen, in one direction: nothing is to be corrected for.
    hits = [best.hits(outputs[k][half:]) for k in (best.first, 1 - best.first)]
    low, high = _clopper_pearson(np.array(hits[0]), np.array(hits[1]), draws - half, false_alarm)
    return Audit(float(low), float(high), delta, best.feature.name, false_alarm)


def repeated(mechanism: Mechanism) -> Repeated:
    """Return a mechanism's simulator in the form that `audit` takes; "records" is the statistic.

    Examples
    --------
    >>> from pymc_privacy import Laplace
    >>> repeated(Laplace(scale=1.0))(np.random.default_rng(1), [5.0, 6.0], 3).shape
    (3, 2)
    """

    def simulate(rng: np.random.Generator, statistic: Any, draws: int) -> np.ndarray:
        statistic = numbers("statistic", statistic, error=GuaranteeError)
        return mechanism.simulate(rng, np.broadcast_to(statistic, (draws, *statistic.shape)))

    simulate.mechanism = mechanism  # type: ignore[attr-defined]
    return simulate


def _runner(mechanism: Any) -> Repeated:
    if isinstance(mechanism, Mechanism):
        return repeated(mechanism)
    if not callable(mechanism):
        wanted = "a function (rng, records, draws), or a mechanism such as Laplace(scale=1.0)"
        raise refusal("mechanism", wanted, mechanism, error=GuaranteeError)
    return mechanism


def _outputs(run: Repeated, rng: np.random.Generator, data: Any, draws: int) -> np.ndarray:
    """Run the mechanism, and return its outputs as (draws, k)."""
    try:
        found = run(rng, data, draws)
    except PrivacyError:
        raise
    except Exception as error:
        raise GuaranteeError(
            "A mechanism must take (rng, records, draws) and return that many outputs; it failed "
            f"with {type(error).__name__}."
        ) from error
    array = numbers("outputs", found, error=GuaranteeError)
    if array.ndim == 0 or len(array) != draws or array.size == 0:
        raise GuaranteeError(
            f"A mechanism must return {draws} outputs, one in each row; got shape {array.shape}."
        )
    return array.reshape(draws, -1)


def _given(features: Callable[[np.ndarray], Any], example: np.ndarray) -> list[Feature]:
    """Return the features of the caller's own function."""
    count = len(_computed(features, example))

    def part(outputs: np.ndarray, k: int) -> np.ndarray:
        found = _computed(features, outputs)
        if len(found) != count:
            raise GuaranteeError(
                f"features must return as many arrays each time; got {count} and {len(found)}."
            )
        return found[k]

    return [
        Feature(f"feature {k}", lambda outputs, k=k: part(outputs, k))  # type: ignore[misc]
        for k in range(count)
    ]


def _computed(features: Callable[[np.ndarray], Any], outputs: np.ndarray) -> list[np.ndarray]:
    """Call the caller's own function, and return one array of numbers for each feature."""
    try:
        given = features(outputs[:, 0] if outputs.shape[1] == 1 else outputs)
        found = list(itertools.islice(given, _MOST_FEATURES + 1))
    except Exception as error:
        raise GuaranteeError(
            "features must take outputs and return a list of arrays; it failed with "
            f"{type(error).__name__}."
        ) from error
    if not 0 < len(found) <= _MOST_FEATURES:
        raise GuaranteeError(
            f"features must return 1 to {_MOST_FEATURES} arrays; got {'more' if found else 'none'}."
        )
    arrays = [numbers("features", one, error=GuaranteeError) for one in found]
    if any(array.shape != (len(outputs),) for array in arrays):
        raise GuaranteeError(
            "features must return arrays of one number for each output; got shapes "
            f"{shown([array.shape for array in arrays])}."
        )
    return arrays


def _best_event(
    feature: Feature,
    learning: list[np.ndarray],
    choosing: list[np.ndarray],
    settings: _Settings,
    first: int,
) -> _Event:
    """Return the best event about a feature: bins in an order that was learned from other draws."""
    pair = (first, 1 - first)
    known = [feature.of(learning[k]) for k in pair]
    edges = edges_of(np.concatenate(known), settings.bins)
    counts = [np.bincount(bins_of(part, edges), minlength=len(edges) + 1) for part in known]
    order = np.argsort(np.log(counts[1] + 0.5) - np.log(counts[0] + 0.5), kind="stable")
    fresh = [bins_of(feature.of(choosing[k]), edges) for k in pair]
    hits = [np.cumsum(np.bincount(part, minlength=len(edges) + 1)[order]) for part in fresh]
    low, high = _clopper_pearson(hits[0], hits[1], len(fresh[0]), settings.false_alarm)
    scores = _log_ratio(low, high, settings.delta)
    best = int(np.argmax(scores))
    members = np.zeros(len(edges) + 1, dtype=bool)
    members[order[: best + 1]] = True
    return _Event(float(scores[best]), feature, edges, members, first)


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
