"""The identities between the scores of `targets.ascent` and the plain model.

The densities behind the scores are those of `targets.interweave`, and have the same identities
(`pymc_privacy.certificate.parameters`). Their gradients are compared with differences of them, and
what is taken off, the gradient of the log prior, with differences of the plain model's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np

from pymc_privacy.certificate.base import Comparison, Pair, Reference, first_number
from pymc_privacy.certificate.parameters import (
    base_of,
    best,
    compare_centred,
    compare_parameters,
)
from pymc_privacy.model.database import Database
from pymc_privacy.model.points import Point
from pymc_privacy.targets.ascent import AscentTarget, priors_of

_STEPS = (1e-4, 1e-5, 1e-6)


def compare_scores(
    target: AscentTarget,
    reference: Reference,
    pairs: Sequence[Pair],
    draws: Iterator[Point] | None = None,
) -> Iterator[Comparison]:
    """Compare all that a score is made of with the model, at pairs of points."""
    program = target.program
    databases: list[Database] = [scored.database for scored in target.databases]
    if target.has_base:
        yield from compare_parameters(program, databases, reference, pairs, draws)
    else:
        yield from compare_centred(program, databases, reference, pairs)
    yield from _prior(target, reference, pairs)
    if target.has_base:
        yield from _noncentred_slopes(target, pairs)


def _prior(
    target: AscentTarget, reference: Reference, pairs: Sequence[Pair]
) -> Iterator[Comparison]:
    program, names = target.program, [rv.name for rv in priors_of(target.model)]
    found = []
    for _, here, _ in pairs:
        q, held = program.flatten(here), tuple(here[name] for name in program.held)
        gradient = np.asarray(program.functions["prior"](q, *held)[0])

        def density(q: np.ndarray, here: Point = here) -> float:
            return reference.terms(here | program.unflatten(q)).total(names)

        found += _slopes("the slope of the log prior", density, q, gradient)
    yield from best(found)


def _noncentred_slopes(target: AscentTarget, pairs: Sequence[Pair]) -> Iterator[Comparison]:
    program = target.program
    found = []
    for _, here, _ in pairs:
        q, held = program.flatten(here), tuple(here[name] for name in program.held)
        x = tuple(here[name] for name in program.records)
        u = base_of(program, np.random.default_rng(7), q, held, x)
        function = program.functions["noncentred"]
        gradient = np.asarray(function(q, *held, *u)[1])

        def density(q: np.ndarray, given: tuple[np.ndarray, ...] = (*held, *u)) -> float:
            return first_number(program.functions["noncentred"](q, *given))

        what = "the slope of the log density given base variates"
        found += _slopes(what, density, q, gradient)
    yield from best(found)


def _slopes(
    what: str, density: Callable[[np.ndarray], float], q: np.ndarray, gradient: np.ndarray
) -> list[Comparison]:
    """Compare a gradient along one direction with differences; where it is none, with nothing."""
    if not np.isfinite(gradient).all():
        return []
    direction = np.random.default_rng(5).standard_normal(q.size)
    parts = gradient * direction
    found = []
    for step in _STEPS:
        up, down = density(q + step * direction), density(q - step * direction)
        scale = 1 + abs(up) + abs(down)
        tolerance = 1e-3 * (1 + np.abs(parts).sum()) + 1e-13 * scale / step
        if np.isfinite(up - down):
            slope = (up - down) / (2 * step)
            found.append(Comparison(what, slope, parts.sum(), tolerance=tolerance))
    return found
