"""What a step method compares with the plain model: before the first draw, and after tuning."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from functools import cached_property

import numpy as np

from pymc_privacy._compat import Model
from pymc_privacy.algorithms.adaptation.tuning import Tuning, padded
from pymc_privacy.certificate.base import (
    Comparison,
    Pair,
    Reference,
    certified,
    parameters_of,
    prior_pairs,
)
from pymc_privacy.certificate.group_effects import compare_effects
from pymc_privacy.certificate.group_sizes import compare_sizes
from pymc_privacy.certificate.parameters import compare_parameters
from pymc_privacy.certificate.records import compare_records
from pymc_privacy.densities.noise import noise_of
from pymc_privacy.densities.parameters import Detail
from pymc_privacy.errors import CertificateError
from pymc_privacy.model.database import Database, check_locality
from pymc_privacy.model.group_effects import GroupEffects
from pymc_privacy.model.group_sizes import GroupSizes
from pymc_privacy.model.points import Point, prior_points
from pymc_privacy.targets.base import ParameterProgram
from pymc_privacy.targets.group_effects import (
    EffectTarget,
    NoEffects,
    as_databases,
    compile_effects,
    noise_precision_of,
)
from pymc_privacy.targets.group_sizes import SizesProgram, compile_sizes
from pymc_privacy.targets.record_sweep import (
    RecordProgram,
    RecordTarget,
    compile_records,
    rows_of,
)

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

    def __init__(self, model: Model, parameters: Collection[str] | None = None):
        self._model = model
        self._parameters = parameters_of(model) if parameters is None else list(parameters)
        self._is_certified = False

    def __getstate__(self) -> dict:
        # Another process evaluates the model by functions of its own.
        ours = ("_model", "_parameters", "_is_certified")
        return {name: self.__dict__[name] for name in ours}

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

    def effect_target(
        self,
        effects: GroupEffects | None,
        databases: Sequence[Database],
        compile_kwargs: dict | None,
    ) -> EffectTarget | NoEffects:
        """Return the moves of effects of groups, compared with the model."""
        if effects is None:
            return NoEffects()
        program = certified(
            [lambda: compile_effects(self._model, effects, databases, compile_kwargs)],
            lambda program: compare_effects(
                program, effects, databases, self.reference, self.pairs
            ),
            what="the effects of groups",
        )
        return EffectTarget(effects, program, noise_precision_of(effects, databases))

    def size_programs(
        self,
        sizes: Sequence[GroupSizes],
        databases: Sequence[Database],
        compile_kwargs: dict | None,
    ) -> list[tuple[GroupSizes, SizesProgram]]:
        """Return numbers of records of groups with their draws, compared with the model."""
        programs = [
            certified(
                [lambda s=s: compile_sizes(self._model, s, databases, compile_kwargs)],  # type: ignore[misc]
                lambda program, s=s: compare_sizes(  # type: ignore[misc]
                    program, s, self.reference, self.pairs
                ),
                what=f"the numbers {s.size.name!r}",
            )
            for s in sizes
        ]
        return list(zip(sizes, programs, strict=True))

    def record_target(
        self, database: Database, compile_kwargs: dict | None, fraction: float = 1.0
    ) -> RecordTarget:
        """Return the fastest program for the records of a database that agrees with the model.

        ``fraction`` is the part of the records that a sweep updates, where they are exchangeable.
        """
        names = " and ".join(repr(rv.name) for rv in database.records)
        noise, rows = noise_of(database), rows_of(database, fraction)

        def build(plain: bool) -> RecordProgram:
            return compile_records(database, compile_kwargs, rows=rows, plain=plain)

        program = certified(
            [lambda: build(False), lambda: build(True)],
            lambda program: compare_records(
                program, database, noise, self.reference, self.pairs, rows=rows
            ),
            what=f"the records {names}",
        )
        return RecordTarget(database, program, noise, rows)

    def swept_with(
        self,
        program: ParameterProgram,
        databases: Sequence[Database],
        compile_kwargs: dict | None,
        shares: Sequence[float],
    ) -> list[RecordTarget]:
        """Return the targets of all databases, whose parameters move by a program."""
        targets = [
            self.record_target(database, compile_kwargs, share)
            for database, share in zip(databases, shares, strict=True)
        ]
        # What moves without its records must leave them to draws that look at all that is known.
        if program.sums_out and not all(target.program.is_conditional for target in targets):
            raise CertificateError(
                "Where records are summed out they must be drawn given all that is known of them; "
                "what draws them so disagrees with the model."
            )
        return targets

    def start_chain(self) -> None:
        """Plan to compare everything once more, where the next chain comes to."""
        self._is_certified = False

    def check_again(self, tune: bool, compare: Callable[[], Iterable[Comparison]]) -> None:
        """Compare everything once more at the first kept draw of a chain where that is possible."""
        if tune or self._is_certified:
            return
        comparisons = list(compare())
        for comparison in comparisons:
            if not comparison.agrees:
                raise _disagreement(comparison)
        self._is_certified = any(comparison.is_informative for comparison in comparisons)

    def compare_swept(
        self,
        pairs: Sequence[Pair],
        targets: Sequence[RecordTarget],
        program: ParameterProgram | None = None,
        moved_by_group: EffectTarget | NoEffects | None = None,
        sizes: Sequence[tuple[GroupSizes, SizesProgram]] = (),
    ) -> Iterator[Comparison]:
        """Compare sweeps of records, and moves of their parameters, where a chain has come to."""
        for numbers, draws in sizes:
            yield from compare_sizes(draws, numbers, self.reference, pairs)
        databases = [target.database for target in targets]
        carried: list[Database] = []
        if isinstance(moved_by_group, EffectTarget):
            own, effects = moved_by_group.program, moved_by_group.effects
            carried = as_databases(self._model, effects)
            yield from compare_effects(own, effects, databases, self.reference, pairs)
        check_locality(databases, pairs[0].here)
        for t in targets:
            yield from compare_records(
                t.program, t.database, t.noise, self.reference, pairs, rows=t.rows, laws=False
            )
        if program is not None and program.size:
            yield from compare_parameters(program, [*carried, *databases], self.reference, pairs)


def _disagreement(comparison: Comparison) -> CertificateError:
    return CertificateError(
        "What is compiled from a model must agree with the model wherever the chain goes; it did "
        f"at draws from the prior, but where this chain came to, {comparison}. Its draws are not "
        "from the posterior, and none is returned."
    )


def after_tuning(point: Point, there: Point | None = None) -> list[Pair]:
    """Return where a chain has come to, and that point with its parameters moved, as pairs."""
    return [Pair("after tuning", point, point if there is None else there)]


def a_step_away(program: ParameterProgram, point: Point, tuning: Tuning) -> Point:
    """Return a point with its parameters moved by half a step, in a fixed direction."""
    factor = padded(tuning.factor, program.size)
    return point | program.unflatten(half_a_step(program.flatten(point), factor, tuning.scale))


def half_a_step(q: np.ndarray, factor: np.ndarray, scale: float) -> np.ndarray:
    """Return parameters moved by half a step, in a fixed direction."""
    direction = np.random.default_rng(17).standard_normal(q.size)
    return q + 0.5 * scale * (factor @ direction)
