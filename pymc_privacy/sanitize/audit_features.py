"""What the events of an audit may be about: numbers computed from an output.

By the lemma of Neyman and Pearson no event tells two laws apart better than one about their
likelihood ratio. Where the law is known, that is a feature. Where it is not, a ratio is learned:
column by column, added up as if they were independent, and in cells of all columns together. The
last bits of a float are a feature of their own: noise x added to a statistic t in floating point
lies on the grid of t + x, which is coarser where t is large (Mironov 2012).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from pymc_privacy.mechanisms.base import CoordinateMechanism, Mechanism
from pymc_privacy.mechanisms.exponential import ExponentialMechanism
from pymc_privacy.mechanisms.exponential_interval import ExponentialInterval
from pymc_privacy.mechanisms.gradient_regression import KNormGradientRegression
from pymc_privacy.mechanisms.k_norm_gradient import KNormGradient

_CHOICES = (ExponentialMechanism, ExponentialInterval, KNormGradient, KNormGradientRegression)

_CELLS = 256  # of all columns together
_WIDEST = 4  # columns for which cells are not hopelessly many
_BEYOND = 1.7e308  # stands for what is not finite


class Feature(NamedTuple):
    """A number of each output."""

    name: str
    function: Callable[[np.ndarray], np.ndarray]

    def of(self, outputs: np.ndarray) -> np.ndarray:
        """Return the feature of outputs (draws, k); what is not finite is far away."""
        values = np.asarray(self.function(outputs), dtype=np.float64)
        return np.nan_to_num(values, nan=-_BEYOND, posinf=_BEYOND, neginf=-0.99 * _BEYOND)


def features_of(
    training: list[np.ndarray],
    law: Mechanism | None,
    statistics: tuple[Any, Any],
    bins: int,
    low_bits: bool,
) -> list[Feature]:
    """Return all features there are of outputs (draws, k), for training on both data sets."""
    width = training[0].shape[1]
    found = [Feature(f"column {j}", lambda o, j=j: o[:, j]) for j in range(width)]  # type: ignore
    if width == 2:
        found.append(Feature("sum of the columns", lambda o: o[:, 0] * 0.5 + o[:, 1] * 0.5))
        found.append(Feature("difference of the columns", lambda o: o[:, 1] * 0.5 - o[:, 0] * 0.5))
    if width > 1:
        found += _joint(training, bins)
    if low_bits and training[0].dtype.kind == "f":
        found += [
            Feature(f"lowest bit of column {j}", lambda o, j=j: lowest_bit(o[:, j]))  # type: ignore
            for j in range(width)
        ]
        if width > 1:
            found.append(Feature("lowest bit of all", lambda o: lowest_bit(o).min(axis=1)))
    if isinstance(law, (CoordinateMechanism, *_CHOICES)):
        found.append(_likelihood_ratio(law, statistics))
    return found


def lowest_bit(values: np.ndarray) -> np.ndarray:
    """Return the exponent of the largest power of two that divides each float.

    Examples
    --------
    >>> lowest_bit(np.array([1.0, 6.0, 0.75])).tolist()
    [0.0, 1.0, -2.0]
    """
    known = np.isfinite(values) & (values != 0)
    fraction, exponent = np.frexp(np.where(known, np.asarray(values, dtype=np.float64), 1.0))
    mantissa = np.ldexp(fraction, 53).astype(np.int64)
    zeros = np.log2((mantissa & -mantissa).astype(np.float64))
    return np.where(known, exponent - 53 + zeros, 2000.0)


def _likelihood_ratio(law: Mechanism, statistics: tuple[Any, Any]) -> Feature:
    first, second = (np.asarray(statistic) for statistic in statistics)
    # A choice has a shape of its own.
    shape = law.release_shape(first.shape) if isinstance(law, _CHOICES) else first.shape

    def ratio(outputs: np.ndarray) -> np.ndarray:
        released = outputs.reshape(len(outputs), *shape)
        with np.errstate(invalid="ignore"):  # impossible under both
            each = law.log_density(released, first) - law.log_density(released, second)
        # Rounded, or the last digits would tell what the lowest bits of the outputs do.
        return np.round(np.asarray(each).reshape(len(outputs), -1).sum(axis=1), 9)

    return Feature("likelihood ratio", ratio)


def _joint(parts: list[np.ndarray], bins: int) -> list[Feature]:
    """Learn the likelihood ratio of each column, and of cells of all of them."""
    pool = np.concatenate(parts)
    columns = range(pool.shape[1])
    edges = [edges_of(_finite(pool[:, j]), bins) for j in columns]
    ratios = [
        _log_ratios([bins_of(_finite(part[:, j]), edges[j]) for part in parts], len(edges[j]) + 1)
        for j in columns
    ]

    def score(outputs: np.ndarray) -> np.ndarray:
        each = [ratios[j][bins_of(_finite(outputs[:, j]), edges[j])] for j in columns]
        return np.sum(each, axis=0)

    found = [Feature("score of all columns", score)]
    if len(columns) > _WIDEST:
        return found
    coarse = int(_CELLS ** (1 / len(columns)))
    cuts = [
        np.unique(np.quantile(_finite(pool[:, j]), np.linspace(0, 1, coarse + 1)[1:-1]))
        for j in columns
    ]

    def cell(outputs: np.ndarray) -> np.ndarray:
        index = np.zeros(len(outputs), dtype=np.int64)
        for j in columns:
            index = index * coarse + bins_of(_finite(outputs[:, j]), cuts[j])
        return index

    values = _log_ratios([cell(part) for part in parts], coarse ** len(columns))
    return [*found, Feature("cell of all columns", lambda outputs: values[cell(outputs)])]


def _log_ratios(parts: list[np.ndarray], length: int) -> np.ndarray:
    """Return the log ratio of the frequencies of each bin in two samples."""
    counts = [np.bincount(part, minlength=length) for part in parts]
    return np.log(counts[0] + 0.5) - np.log(counts[1] + 0.5)


def _finite(values: np.ndarray) -> np.ndarray:
    return Feature("", lambda o: o).of(values)


def edges_of(pool: np.ndarray, bins: int) -> np.ndarray:
    """Cut at all values where they are few, else at quantiles."""
    distinct = np.unique(pool)
    if len(distinct) <= 4 * bins:
        return distinct[1:]
    return np.unique(np.quantile(pool, np.linspace(0, 1, bins + 1)[1:-1]))


def bins_of(values: np.ndarray, edges: np.ndarray) -> np.ndarray:
    """Return the number of edges that are not above each value."""
    return np.searchsorted(edges, values, side="right")
