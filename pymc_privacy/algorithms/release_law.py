"""The probability of answers to queries given parameters: the record is integrated out.

Of a binned query with k bins and P the probability of the bin that was answered, it is
(1 + (e^epsilon - 1) P) / (e^epsilon + k - 1). Of a clipped query with noise of density K it is

    p(y) = F(l) K(y - l) + (1 - F(u)) K(y - u) + int_l^u f(x) K(y - x) dx,

in closed form for Normal records with Laplace or Gaussian noise, by sums for discrete records, and
otherwise by quadrature that the distribution function certifies. Answers are independent given the
parameters, however queries were chosen from earlier answers (Yıldırım 2024, Proposition 1).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np

from pymc_privacy.algorithms.numerics.certified_quadrature import Integrand, log_expectation
from pymc_privacy.algorithms.numerics.clipped_normal import (
    sum_binned_normal,
    sum_clipped_normal,
    sum_clipped_normal_gaussian,
)
from pymc_privacy.mechanisms import Gaussian, Laplace
from pymc_privacy.sanitize.queries import BinnedQuery, Query

_ROWS = 8192  # that are computed at a time: what they need fits into a cache
_CLOSED: dict[type, Callable[..., None]] = {
    Laplace: sum_clipped_normal,
    Gaussian: sum_clipped_normal_gaussian,
}
_GAUSSIAN_REACH = 4.0  # standard deviations that a rule of quadrature integrates to rounding


class RecordLaw(Protocol):
    """The law of one record, for rows of parameters and of what is known of users.

    Points have shape (rows, d), users (rows, c), and values (rows, k) where the law is evaluated.
    """

    discrete: bool

    def log_density(self, points: np.ndarray, users: np.ndarray, values: np.ndarray) -> np.ndarray:
        """Return the log density, of shape (rows, k)."""

    def log_cdf(self, points: np.ndarray, users: np.ndarray, values: np.ndarray) -> np.ndarray:
        """Return the log of P(x <= value), of shape (rows, k)."""

    def normal(self, points: np.ndarray, users: np.ndarray) -> tuple[np.ndarray, np.ndarray] | None:
        """Return mean and standard deviation of each row, or None where records are not Normal."""


class Answer(NamedTuple):
    """One release, of which query, and what was known of the user."""

    query: Query
    release: float
    user: tuple[float, ...] = ()


class _Bins(NamedTuple):
    """Answers to binned queries: P(lower < x <= upper) of each, and how many are the same."""

    lower: np.ndarray
    upper: np.ndarray
    gain: np.ndarray
    total: np.ndarray
    copies: np.ndarray
    users: np.ndarray


class _Clips(NamedTuple):
    """Answers to clipped queries with one family of noise."""

    release: np.ndarray
    lower: np.ndarray
    upper: np.ndarray
    scale: np.ndarray
    normalizer: np.ndarray
    users: np.ndarray


class Answers:
    """All answers so far; equal answers to equal binned queries are counted."""

    def __init__(self, discrete: bool, answers: Sequence[Answer] = ()):
        self._discrete = discrete
        self._bins: dict[tuple[Any, ...], int] = {}
        self._clips: dict[type, list[tuple[Any, ...]]] = {}
        self._tables: tuple[_Bins | None, dict[type, _Clips]] | None = None
        self.size = 0
        for answer in answers:
            self.add(answer)

    def add(self, answer: Answer) -> None:
        """Take in one answer."""
        self.size += 1
        self._tables = None
        if isinstance(answer.query, BinnedQuery):
            row = self._bin(answer.query, int(answer.release))
            key = (*row, answer.user)
            self._bins[key] = self._bins.get(key, 0) + 1
            return
        query: Any = answer.query
        scale, normalizer = query.mechanism.parameters
        row = (answer.release, query.lower, query.upper, float(scale), float(normalizer))
        self._clips.setdefault(type(query.mechanism), []).append((*row, answer.user))

    def _bin(self, query: BinnedQuery, answer: int) -> tuple[float, ...]:
        edges = (-math.inf, *query.edges, math.inf)
        lower, upper = edges[answer], edges[answer + 1]
        if self._discrete:
            # x < edge, of integers, is x <= the integer before it.
            lower, upper = np.ceil(lower) - 1, np.ceil(upper) - 1
        gain = math.expm1(query.epsilon)
        return lower, upper, gain, math.log(gain + query.categories)

    def tables(self) -> tuple[_Bins | None, dict[type, _Clips]]:
        """Return all answers in arrays."""
        if self._tables is None:
            bins = None
            if self._bins:
                *columns, users = zip(*self._bins, strict=True)
                counts = np.array([*self._bins.values()], dtype=float)
                bins = _Bins(*map(np.array, columns), counts, np.array(users, dtype=float))  # type: ignore[call-arg]
            clips = {}
            for law, rows in self._clips.items():
                *columns, users = zip(*rows, strict=True)
                clips[law] = _Clips(*map(np.array, columns), np.array(users, dtype=float))  # type: ignore[call-arg]
            self._tables = bins, clips
        return self._tables


def log_likelihood(law: RecordLaw, points: np.ndarray, answers: Answers) -> np.ndarray:
    """Return the log probability of all answers, for each row of parameters."""
    total = np.zeros(len(points))
    bins, clips = answers.tables()
    with np.errstate(divide="ignore", invalid="ignore", over="ignore", under="ignore"):
        if bins is not None:
            _add_bins(total, law, points, bins)
        for noise, table in clips.items():
            _add_clips(total, law, points, table, noise)
    # Parameters that no law has are as good as impossible.
    return np.where(np.isnan(total), -np.inf, total)


def _add_bins(total: np.ndarray, law: RecordLaw, points: np.ndarray, bins: _Bins) -> None:
    for part, rows, users in _parts(points, bins):
        normal = _normal(law, points, rows, users, part)
        if normal is not None:
            count: Any = part.copies
            sum_binned_normal(total, *normal, part.lower, part.upper, part.gain, part.total, count)
            continue
        ends = np.column_stack([part.lower, part.upper])
        ends = np.repeat(ends, len(points), axis=0)
        finite = np.isfinite(ends)
        cdf = np.exp(law.log_cdf(rows, users, np.where(finite, ends, 0.0)))
        cdf = np.where(finite, cdf, ends > 0)
        inside = (cdf[:, 1] - cdf[:, 0]).reshape(-1, len(points))
        each = np.log1p(part.gain[:, None] * inside) - part.total[:, None]
        total += part.copies @ each


def _add_clips(
    total: np.ndarray, law: RecordLaw, points: np.ndarray, clips: _Clips, noise: type
) -> None:
    if law.discrete:
        _add_sums(total, law, points, clips, noise)
        return
    for part, rows, users in _parts(points, clips):
        normal = _normal(law, points, rows, users, part) if noise in _CLOSED else None
        if normal is not None:
            _CLOSED[noise](total, *normal, part.release, part.lower, part.upper, part.scale)
            continue
        every = _Clips(*(np.repeat(column, len(points), axis=0) for column in part))
        logs = _by_quadrature(law, rows, users, every, noise)
        total += logs.reshape(-1, len(points)).sum(axis=0)


def _by_quadrature(
    law: RecordLaw, points: np.ndarray, users: np.ndarray, clips: _Clips, noise: type
) -> np.ndarray:
    """Return log p(y) of each row."""
    integrand = noisy_integrand(
        noise,
        clips,
        lambda row, values: law.log_density(points[row], users[row], values),
        lambda row, values: law.log_cdf(points[row], users[row], values),
    )
    nearest = np.clip(clips.release, clips.lower, clips.upper)
    return log_expectation(integrand, clips.lower, clips.upper, nearest)


def noisy_integrand(
    noise: type,
    clips: Any,
    log_density: Callable[[np.ndarray, np.ndarray], np.ndarray],
    log_cdf: Callable[[np.ndarray, np.ndarray], np.ndarray],
) -> Integrand:
    """Return the integral over a record whose noisy value was released, one in each row.

    ``clips`` has a release, a scale and a normalizer for each row. The law is given by functions of
    which rows, and of points of shape (rows, k).
    """
    formula: Callable[..., Any] = noise.formula  # type: ignore[attr-defined]

    def log_kernel(row: np.ndarray, values: np.ndarray) -> np.ndarray:
        y, scale, normalizer = (
            one[row, None] for one in (clips.release, clips.scale, clips.normalizer)
        )
        return formula(y, values, scale, normalizer)

    infinite = np.full(clips.scale.shape, np.inf)
    reach = _GAUSSIAN_REACH * clips.scale if noise is Gaussian else infinite
    return Integrand(log_density, log_cdf, log_kernel, reach)


def _add_sums(
    total: np.ndarray, law: RecordLaw, points: np.ndarray, clips: _Clips, noise: type
) -> None:
    """Sum over the integers between the ends: exact."""
    formula: Callable[..., Any] = noise.formula  # type: ignore[attr-defined]
    for y, lower, upper, scale, normalizer, user in zip(*clips, strict=True):
        users = np.broadcast_to(user, (len(points), len(user)))
        inside = np.arange(math.floor(lower) + 1, math.ceil(upper), dtype=float)
        ends = np.array([math.floor(lower), math.ceil(upper) - 1.0])
        cdf = law.log_cdf(points, users, np.broadcast_to(ends, (len(points), 2)))
        values = np.broadcast_to(inside, (len(points), inside.size))
        logs = [cdf[:, :1], law.log_density(points, users, values), np.log(-np.expm1(cdf[:, 1:]))]
        where = np.concatenate([[lower], inside, [upper]])
        terms = np.concatenate(logs, axis=1) + formula(y, where, scale, normalizer)
        total += np.logaddexp.reduce(terms, axis=1)


def _parts(points: np.ndarray, table: Any) -> Iterator[tuple[Any, np.ndarray, np.ndarray]]:
    """Yield some answers at a time, with a row of points and users for each, points inside."""
    step = max(1, _ROWS // len(points))
    for start in range(0, len(table[0]), step):
        part = type(table)(*(column[start : start + step] for column in table))
        rows = np.tile(points, (len(part[0]), 1))
        yield part, rows, np.repeat(part.users, len(points), axis=0)


def _normal(
    law: RecordLaw, points: np.ndarray, rows: np.ndarray, users: np.ndarray, part: Any
) -> tuple[np.ndarray, np.ndarray] | None:
    """Return means and standard deviations of shape (points, answers), if records are Normal."""
    shape = (len(part[0]), len(points))
    if users.shape[1] == 0:
        found = law.normal(points, users[: len(points)])
        return found and tuple(np.broadcast_to(one, shape).T for one in found)  # type: ignore
    found = law.normal(rows, users)
    return found and tuple(one.reshape(shape).T for one in found)  # type: ignore
