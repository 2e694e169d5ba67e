"""What a step method compares with the plain model: before the first draw, and after tuning."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from functools import cached_property
from itertools import chain
from typing import Any

import numpy as np

from pymc_privacy.algorithms.noise import Noise
from pymc_privacy.errors import CertificateError
from pymc_privacy.graph.certificate import (
    Comparison,
    Pair,
    Reference,
    certified,
    parameters_of,
    prior_pairs,
)
from pymc_privacy.graph.certified_parameters import compare_parameters
from pymc_privacy.graph.certified_records import compare_records
from pymc_privacy.graph.database import Database, check_locality
from pymc_privacy.graph.densities import Detail
from pymc_privacy.graph.parameter_program import ParameterProgram
from pymc_privacy.graph.points import Point, prior_points
from pymc_privacy.graph.programs import RecordProgram

# From the fastest to the plainest.
LEVELS = (
    (Detail.STATISTICS, True),
    (Detail.ROWS, True),
    (Detail.WHOLE, True),
    (Detail.WHOLE, False),
)


class Certifier:
    """The plain model beside what a step method makes of it.

    Parameters
    ----------
    model
    parameters
        The values that move, by name; by default all continuous ones that are not records.
    """

    def __init__(self, model: Any, parameters: Collection[str] | None = None):
        self._model = model
        self._parameters = parameters_of(model) if parameters is None else list(parameters)

    def __getstate__(self) -> dict:
        # Another process evaluates the model by functions of its own.
        return {"_model": self._model, "_parameters": self._parameters}

    @cached_property
    def reference(self) -> Reference:
        """The plain model."""
        return Reference(self._model)

    @cached_property
    def _draws(self) -> Iterator[Point]:
        return prior_points(self._model, seed=11)

    @cached_property
    def pairs(self) -> list[Pair]:
        """Return points of the prior, two by two."""
        return prior_pairs(self._model, self._parameters, self._draws)

    def parameter_program(
        self,
        build: Callable[[Detail, bool], ParameterProgram],
        databases: Sequence[Database],
    ) -> ParameterProgram:
        """Return the fastest program for the parameters that agrees with the model."""
        if not self._parameters:
            return build(*LEVELS[0])
        return certified(
            [lambda level=level: build(*level) for level in LEVELS],  # type: ignore[misc]
            lambda program: compare_parameters(
                program, databases, self.reference, self.pairs, self._draws
            ),
            what="the parameters",
        )

    def record_program(
        self,
        build: Callable[[bool], RecordProgram],
        database: Database,
        noise: Noise,
        rows: int | None,
    ) -> RecordProgram:
        """Return the fastest program for the records of a database that agrees with the model."""
        names = " and ".join(repr(rv.name) for rv in database.records)
        return certified(
            [lambda: build(False), lambda: build(True)],
            lambda program: compare_records(
                program, database, noise, self.reference, self.pairs, rows=rows
            ),
            what=f"the records {names}",
        )

    def check_again(
        self,
        point: Point,
        there: Point,
        program: ParameterProgram | None,
        sweeps: Sequence[tuple[RecordProgram, Database, Noise, int | None]],
    ) -> bool:
        """Compare everything once more where the chain has come to; tell whether that was possible.

        ``there`` is the point with its parameters moved by about a step.
        """
        pairs = [Pair("after tuning", point, there)]
        databases = [database for _, database, _, _ in sweeps]
        check_locality(databases, point)
        parts = [
            compare_records(p, d, noise, self.reference, pairs, rows=rows, laws=False)
            for p, d, noise, rows in sweeps
        ]
        if program is not None:
            parts.append(compare_parameters(program, databases, self.reference, pairs))
        comparisons = list(chain.from_iterable(parts))
        for comparison in comparisons:
            if not comparison.agrees:
                raise _disagreement(comparison)
        return any(comparison.is_informative for comparison in comparisons)


def _disagreement(comparison: Comparison) -> CertificateError:
    return CertificateError(
        "What is compiled from a model must agree with the model wherever the chain goes; it did "
        f"at draws from the prior, but where this chain came to, {comparison}. Its draws are not "
        "from the posterior, and none is returned."
    )


def a_step_away(program: ParameterProgram, point: Point, factor: np.ndarray, scale: float) -> Point:
    """Return a point with its parameters moved by half a step, in a fixed direction."""
    q = program.flatten(point)
    direction = np.random.default_rng(17).standard_normal(q.size)
    return point | program.unflatten(q + 0.5 * scale * (factor @ direction))
