"""The identities between the program of `targets.importance` and the plain model.

Those of base variates are in `pymc_privacy.certificate.parameters`. Weights need more than changes
of densities: with L the log density of all factors but the records',

    unweighted(q, u)                  = L(q, T(q, u)), constants and all,
    weight(q', u) - weight(q, u)      = the change of the log density of u,
    forward(q, fresh(q))              has the law of the records given q.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from pymc_privacy.certificate.base import (
    Comparison,
    Pair,
    Reference,
    first_number,
    rounded,
    toward,
)
from pymc_privacy.certificate.laws import law_gap
from pymc_privacy.certificate.parameters import compare_given_base, log_weight
from pymc_privacy.densities.carrying import CarriedRecords, carry_records
from pymc_privacy.model.database import Database
from pymc_privacy.model.points import Point
from pymc_privacy.targets.base import ParameterProgram


def compare_importance(
    program: ParameterProgram,
    databases: Sequence[Database],
    reference: Reference,
    pairs: Sequence[Pair],
    draws: Iterator[Point] | None = None,
) -> Iterator[Comparison]:
    """Compare all that a weight is made of with the model, at pairs of points."""
    records = [rv for database in databases for rv in database.records]
    carried = carry_records(reference.model, records)
    assert carried is not None
    yield from compare_given_base(_joined(program), databases, reference, pairs, draws)
    names = {rv.name for rv in records}
    others = [name for name in reference.factors if name not in names]
    for pair in pairs:
        yield from _weights(program, reference, pair, carried, others)
    here = pairs[0].here
    there = toward(here, pairs[1].here, program.parameters, 0.3)
    for database in databases:
        ours = {reference.model.rvs_to_values[rv].name for rv in database.records}
        yield law_gap(
            "the law of records made of fresh base variates",
            reference,
            database,
            (here, there),
            (
                lambda rng, ours=ours: _made(program, rng, here, ours),  # type: ignore[misc]
                lambda rng, ours=ours: _made(program, rng, there, ours),  # type: ignore[misc]
            ),
        )


def _joined(program: ParameterProgram) -> ParameterProgram:
    """Return a program with the density that moves of a chain would have."""
    parts = [program.functions[name] for name in ("unweighted", "weight")]

    def noncentred(q: np.ndarray, *arguments: np.ndarray) -> list[float]:
        return [sum(first_number(part(q, *arguments)) for part in parts)]

    return replace(program, functions=program.functions | {"noncentred": noncentred})


def _made(
    program: ParameterProgram, rng: np.random.Generator, point: Point, names: set[str]
) -> Point:
    """Return records of fresh base variates at a point."""
    q, held = program.flatten(point), program.held_at(point)
    u = [np.array(part) for part in program.functions["fresh"](rng, q, *held)]
    made = program.functions["forward"](q, *held, *u)
    found = zip(program.records, made, strict=True)
    return {name: np.array(part) for name, part in found if name in names}


def _weights(
    program: ParameterProgram,
    reference: Reference,
    pair: Pair,
    carried: CarriedRecords,
    others: Sequence[str],
) -> Iterator[Comparison]:
    """Compare the density behind a weight, and that of base variates, at a pair of points."""
    label, here, there = pair
    weight = log_weight(reference.model, carried)
    held = program.held_at(here)
    q, r = program.flatten(here), program.flatten(there)
    u = [np.array(c) for c in program.functions["fresh"](np.random.default_rng(23), q, *held)]
    at = [first_number(program.functions["weight"](v, *held, *u)) for v in (q, r)]
    expected = [weight(point, u) for point in (here, there)]
    scale = sum(abs(value) for value in expected if math.isfinite(value))
    what = f"the change of the log density of base variates ({label})"
    yield Comparison(what, expected[1] - expected[0], at[1] - at[0], scale)
    made = program.functions["forward"](q, *held, *u)
    point = here | {n: np.array(x) for n, x in zip(program.records, made, strict=True)}
    terms = reference.terms(point)
    found = first_number(program.functions["unweighted"](q, *held, *u))
    what = f"the log density of parameters and releases given base variates ({label})"
    comparison = Comparison(what, terms.total(others), found)
    yield rounded(comparison, terms, terms, others)
