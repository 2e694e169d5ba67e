"""Compare what was made of a model with the model itself, before anything is drawn.

A sampler does not evaluate the model as it was written. It has programs of its own: densities by
sufficient statistics, records as functions of base variates, contributions by columns, draws in
machine code. Each has an identity with the plain model: the log density of its factors, one by
one, and the contributions, computed from the graph as PyMC wrote it, without any rewrite, by
NumPy. These identities are checked here at draws from the prior. A program that breaks one is not
used.

This is no proof. It sees points and not regions, and it does not see whether a move is
reversible: that is what the exact, Geweke and mutant tests are for.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from typing import Any, NamedTuple

import numpy as np

from pymc_privacy._compat import (
    INTERPRETED,
    Model,
    compile_graph,
)
from pymc_privacy.errors import CertificateError
from pymc_privacy.functions.plain import plain_function, spelled_out
from pymc_privacy.model.columns import float_columns
from pymc_privacy.model.factors import factors_of, log_densities
from pymc_privacy.model.marks import is_record
from pymc_privacy.model.points import Point, looked_up_in_vain
from pymc_privacy.model.releases import contributions_of, is_release
from pymc_privacy.model.rows.expressions import simplified
from pymc_privacy.model.support import finite_support

# Right models came within 4e-4 of this, wrong ones were beyond a thousand times of it.
_ABSOLUTE, _RELATIVE = 1e-6, 1e-9
# Above this many values in the records, fewer points are looked at.
MANY_VALUES = 20_000
# Where rounding is measured: at this many points on either side, that far apart.
_NEIGHBOURS, _LAST_DIGITS = 4, 1e-14
_SAFETY = 4.0  # of the largest of so few


class Comparison(NamedTuple):
    """A number, or an array, of the model, and the same of a program."""

    what: str
    expected: Any
    found: Any
    scale: float = 0.0
    """The sum of the absolute values of all that was added up for either."""
    tolerance: Any = None
    """How far apart they may be, where that is not a matter of rounding."""
    rounding: float = 0.0
    """How far off the model's own number was found to be."""

    @property
    def agrees(self) -> bool:
        """Whether the two are the same but for rounding."""
        expected, found = np.asarray(self.expected, float), np.asarray(self.found, float)
        if expected.shape != found.shape:
            return False
        most = self.tolerance
        if most is None:
            most = _ABSOLUTE + _RELATIVE * (self.scale + np.abs(_finite(expected)))
        with np.errstate(invalid="ignore"):
            near = np.abs(expected - found) <= most + self.rounding
        # Outside the support a density may be -inf or not a number: both are never accepted.
        nowhere = ~np.isfinite(expected) & ~(expected > 0) & ~np.isfinite(found) & ~(found > 0)
        return bool((near | (expected == found) | nowhere).all())

    @property
    def is_informative(self) -> bool:
        """Whether there was a number to compare."""
        expected = np.asarray(self.expected, float)
        return bool(expected.size) and bool(np.isfinite(expected).any())

    def __str__(self) -> str:
        expected, found = np.asarray(self.expected, float), np.asarray(self.found, float)
        if expected.shape != found.shape:
            return (
                f"{self.what} has shape {expected.shape} in the model and {found.shape} in what "
                "was compiled from it"
            )
        gap = np.nan_to_num(np.abs(expected - found), nan=math.inf)
        worst = np.unravel_index(np.argmax(gap), gap.shape) if gap.ndim else ()
        return (
            f"{self.what} is {expected[worst]:.6g} in the model and {found[worst]:.6g} in what "
            "was compiled from it"
        )


def _finite(values: np.ndarray) -> np.ndarray:
    return np.where(np.isfinite(values), values, 0.0)


def disagreements(comparisons: Iterable[Comparison]) -> list[Comparison]:
    """Return what does not agree; having compared nothing at all is an error.

    What is compared under one name at several points must have been a number at one of them.
    """
    comparisons = list(comparisons)
    if not any(comparison.is_informative for comparison in comparisons):
        raise CertificateError(
            "What is compiled from a model is compared with the model at draws from its prior "
            "before it is used; but the log density of this model is no number at any of them, "
            "so that nothing could be compared and nothing was drawn. Check priors and data."
        )
    return [comparison for comparison in comparisons if not comparison.agrees]


def certified[Program](
    builds: Sequence[Callable[[], Program]],
    check: Callable[[Program], Iterable[Comparison]],
    *,
    what: str,
) -> Program:
    """Return the first of several programs, from the fastest to the plainest, that agrees."""
    for build in builds:
        program = build()
        wrong = disagreements(check(program))
        if not wrong:
            return program
        logging.getLogger("pymc").warning(
            "A fast path for %s disagrees with the model and is not used: %s.", what, wrong[0]
        )
    raise CertificateError(
        f"What is compiled from a model must agree with the model, or draws would not be from its "
        f"posterior; but for {what}, {wrong[0]}. Nothing was drawn. PyTensor may have rewritten an "
        "expression into another one (it takes x // 1.0 for x): write it otherwise."
    )


@dataclass(frozen=True)
class Terms:
    """The log density of a model at a point, by factor."""

    by_name: dict[str, np.ndarray]
    shifted: Callable[[int], Terms]
    """The same, where every number of the point is some last digits larger."""

    def total(self, names: Collection[str]) -> float:
        """Return the log density of some factors; -inf where it is no number, or +inf.

        Far out an exponential overflows; nothing is accepted there.
        """
        with np.errstate(invalid="ignore"):
            total = float(np.sum([self.by_name[name].sum() for name in names], dtype=float))
        if not math.isfinite(total):
            return -math.inf
        return math.fsum(float(self.by_name[name].sum()) for name in names)

    def rows(self, names: Collection[str], size: int) -> np.ndarray:
        """Return the log density of factors that have one row per record, by record."""
        with np.errstate(invalid="ignore"):
            parts = [self.by_name[name].reshape(size, -1).sum(axis=1) for name in names]
            return np.sum(parts, axis=0) if parts else np.zeros(size)

    @property
    def scale(self) -> float:
        """Return the sum of the absolute values of all finite terms."""
        return float(sum(np.abs(_finite(term)).sum() for term in self.by_name.values()))

    def rounding(self, names: Collection[str]) -> float:
        """Return how far off the log density of factors may be, where large terms cancel within.

        It is measured: over a few last digits a density is a line, but for its rounding.
        """
        shifts = np.arange(-_NEIGHBOURS, _NEIGHBOURS + 1)
        totals = np.array([self.shifted(int(shift)).total(names) for shift in shifts])
        if not np.isfinite(totals).all():
            return 0.0
        line = np.polynomial.Polynomial.fit(shifts, totals, deg=1)
        return _SAFETY * float(np.abs(totals - line(shifts)).max())


class Reference:
    """The plain model: its log density by factor, and the contributions to its releases.

    Evaluated by NumPy from the graphs as PyMC wrote them. Where that is no number, because an
    exponential overflowed on the way, PyTensor's stable form of the same graph has the word. Data
    are read when it is called.
    """

    def __init__(self, model: Model):
        self.model = model
        self.factors = [factor.name for factor in factors_of(model)]
        self._releases = [
            f for f in factors_of(model) if is_release(f) and contributions_of(f).ndim
        ]
        self._graphs = log_densities(model, factors_of(model))
        self._terms = plain_function(model.value_vars, self._graphs)
        columns = [float_columns([contributions_of(release)]) for release in self._releases]
        self._widths = [len(group) for group in columns]
        self._columns = plain_function(
            model.value_vars,
            model.replace_rvs_by_values([column for group in columns for column in group]),
        )

    @cached_property
    def _stable_terms(self) -> Callable[..., list[np.ndarray]]:
        return plain_function(self.model.value_vars, simplified(spelled_out(self._graphs)))

    def terms(self, point: Point) -> Terms:
        """Return the log density of every factor."""
        values = self._values(point)
        with np.errstate(all="ignore"):
            found = [np.asarray(term, float) for term in self._evaluate(values)]
            if not all(np.isfinite(term).all() for term in found):
                stable = self._stable_terms(*values)
                found = [np.where(np.isfinite(a), a, b) for a, b in zip(found, stable, strict=True)]

        def shifted(shift: int) -> Terms:
            moved = {
                name: value * (1 + shift * _LAST_DIGITS) if value.dtype.kind == "f" else value
                for name, value in point.items()
            }
            return self.terms(moved)

        return Terms(dict(zip(self.factors, found, strict=True)), shifted)

    def _evaluate(self, values: list[np.ndarray]) -> list[np.ndarray]:
        try:
            try:
                return self._terms(*values)
            except (NotImplementedError, TypeError, np.exceptions.AxisError):
                # Sparse matrices are known to PyTensor's rewrites, and not to NumPy.
                self._terms = compile_graph(
                    self.model.value_vars, self._graphs, on_unused_input="ignore", mode=INTERPRETED
                )
                return self._terms(*values)
        except IndexError as error:
            raise CertificateError(looked_up_in_vain(error)) from error

    def rows(self, names: Collection[str], size: int) -> Callable[[Point], np.ndarray]:
        """Return a function of a point, what some factors say of each record, without the rest."""
        chosen = [g for n, g in zip(self.factors, self._graphs, strict=True) if n in names]
        function = plain_function(self.model.value_vars, chosen)

        def evaluate(point: Point) -> np.ndarray:
            with np.errstate(all="ignore"):
                parts = function(*self._values(point))
                total = np.sum([np.reshape(part, (size, -1)).sum(axis=1) for part in parts], axis=0)
            if np.isfinite(total).all():
                return total
            return self.terms(point).rows(names, size)

        return evaluate

    def contributions(self, point: Point, releases: Collection[str]) -> np.ndarray:
        """Return the contributions to some releases, one row for each coordinate."""
        found = iter(self._columns(*self._values(point)))
        rows = []
        for release, width in zip(self._releases, self._widths, strict=True):
            ours = [next(found) for _ in range(width)]
            rows += ours if release.name in releases else []
        return np.array(rows, dtype=float)

    def _values(self, point: Point) -> list[np.ndarray]:
        return [point[value.name] for value in self.model.value_vars]


class Pair(NamedTuple):
    """Two points with the same records, and other values of the parameters."""

    label: str
    here: Point
    there: Point


def prior_pairs(model: Model, parameters: Collection[str], draws: Iterator[Point]) -> list[Pair]:
    """Return pairs near each other and far apart, at several records, and at all their values."""
    a, b, c = islice(draws, 3)
    records = [model.rvs_to_values[rv].name for rv in model.free_RVs if is_record(rv)]
    pairs = [
        Pair("near", a, toward(a, b, parameters, 0.05)),
        Pair("at other records", b, toward(b, c, parameters, 0.3)),
    ]
    if sum(a[name].size for name in records) <= MANY_VALUES:
        pairs.append(Pair("far", a, toward(a, b, parameters, 1.0)))
    if (every := _every_value(model, a)) is not None:
        pairs.append(Pair("at every value of records", every, toward(every, b, parameters, 0.05)))
    return pairs


def beyond(pairs: Sequence[Pair], parameters: Collection[str]) -> list[Pair]:
    """Return pairs that lead beyond the prior, where a law may not have such parameters."""
    a, b = pairs[0].here, pairs[1].here
    return [Pair("far out", a, toward(a, b, parameters, share)) for share in (-4.0, 4.0)]


def parameters_of(model: Model) -> list[str]:
    """Return the values of all continuous variables that are not records."""
    return [
        model.rvs_to_values[rv].name
        for rv in model.free_RVs
        if not is_record(rv) and np.dtype(rv.dtype).kind == "f"
    ]


def toward(point: Point, other: Point, names: Collection[str], share: float) -> Point:
    """Return a point with some values moved toward those of another."""
    return point | {
        name: np.array(point[name] + share * (other[name] - point[name]), order="C")
        for name in names
    }


def _every_value(model: Model, point: Point) -> Point | None:
    """Let records of few values run through all of them, each variable slower than the last."""
    found: Point = {}
    slower = 1
    for rv in model.free_RVs:
        bounds = (
            finite_support(rv) if is_record(rv) and model.rvs_to_transforms[rv] is None else None
        )
        if bounds is None:
            continue
        low, high = bounds
        value = point[model.rvs_to_values[rv].name]
        turns = np.arange(value.size) // slower % (high - low + 1)
        found[model.rvs_to_values[rv].name] = (low + turns.reshape(value.shape)).astype(value.dtype)
        slower *= high - low + 1
    return point | found if found else None


def log_density_change(
    what: str, before: Terms, after: Terms, names: Collection[str], found: float, more: float = 0.0
) -> Comparison:
    """Compare a change of the log density of some factors with that of a program."""
    expected = after.total(names) - before.total(names) + more
    return rounded(Comparison(what, expected, found, abs(more)), before, after, names)


def rounded(
    comparison: Comparison, before: Terms, after: Terms, names: Collection[str]
) -> Comparison:
    """Allow a comparison of two log densities for their rounding, which is measured if need be."""
    comparison = comparison._replace(scale=comparison.scale + before.scale + after.scale)
    if comparison.agrees:
        return comparison
    return comparison._replace(rounding=before.rounding(names) + after.rounding(names))


def first_number(outputs: Any) -> float:
    """Return the first output of a compiled function, a log density."""
    return float(np.asarray(outputs[0]))
