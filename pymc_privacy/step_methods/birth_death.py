"""Courier of `pymc_privacy.algorithms.birth_death` inside `pm.sample`."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator
from typing import Any, ClassVar, Unpack

import numpy as np

from pymc_privacy._compat import SamplerWarning, TensorVariable, WarningType
from pymc_privacy.algorithms import birth_death
from pymc_privacy.algorithms.adaptation import birth_death as adaptation
from pymc_privacy.algorithms.adaptation.interweave import give_up, learn_curvature
from pymc_privacy.algorithms.adaptation.memo import Memo
from pymc_privacy.algorithms.interweave import Info, State
from pymc_privacy.certificate.base import Comparison, certified
from pymc_privacy.certificate.certifier import LEVELS, Certifier
from pymc_privacy.certificate.counts import certified_size, compare_sized, compare_tuned
from pymc_privacy.errors import RecordError
from pymc_privacy.model.marks import is_record
from pymc_privacy.model.points import Point
from pymc_privacy.model.sized_records import is_sized
from pymc_privacy.step_methods.base import Common, Courier, reals
from pymc_privacy.step_methods.record_sweep import sweep_statistics
from pymc_privacy.targets.birth_death import (
    SizedTarget,
    SizeTarget,
    compile_sized_parameters,
    find_sized_databases,
    moves_of,
)

JUMPS = 8


class BirthDeath(Courier):
    """Move the number of records, the records and their parameters together.

    Chosen by `pm.sample` for `Records`, their size and their continuous parameters. In each
    iteration parameters and sizes move with the records carried along, then the parameters
    given the records; each record is offered a fresh draw; then many records at once are
    offered to be born or to die.

    Acceptance says nothing about convergence here: single births and deaths are accepted
    nearly always while the size hardly moves. Look at r_hat and the effective draws of the size.

    Parameters
    ----------
    vars : list of TensorVariable, optional
        Parameters, sizes and records; by default all marked ones.
    centred_steps, noncentred_steps : int, optional
        Moves of the parameters given the records, and of parameters and sizes with them, in one
        iteration; 0 turns a move off. By default fewer of the latter are made where tuning finds
        that leaps are accepted often.
    jumps : int, default 8
        Proposals to change the size, of a length that is learnt in tuning.
    single : bool, default False
        Propose one birth or death instead of jumps, as Algorithm 1 of Awan et al. does; for
        comparison. Where the prior allows an empty database, so do these.
    %(arguments)s

    Raises
    ------
    RecordError
        If the model has no `Records`, some of them or their size are left out, or they are not
        exchangeable or seen by more than releases.
    %(unobserved)s
    %(refusals)s

    See Also
    --------
    Records : Records of an unknown number.
    Interweave : The same for a known number.
    sample : Chooses the step; takes ``birth_death={...}``.

    Notes
    -----
    Statistics: ``birth_death_size``, the sum of all sizes; ``birth_death_births``,
    ``birth_death_deaths`` and ``birth_death_jump_accept``, the accepted proposals of either kind
    and the fraction of all; ``birth_death_jump_scale``; ``birth_death_capacity_hits``, proposals
    refused for want of room; ``birth_death_accept_min``, the smallest acceptance of single moves,
    and ``birth_death_least_accept_min`` that of births at the least size, which `plot_acceptance`
    compares with their bounds; ``birth_death_centred_accept``, ``birth_death_noncentred_accept``,
    ``birth_death_leap_accept`` and ``birth_death_noncentred_scale``, as for :class:`Interweave`;
    and those of the record sweep.

    References
    ----------
    - Awan, J., Barrientos, A. F. and Ju, N. (2024), "Statistical inference for privatized data with
      unknown sample size", arXiv:2406.06231.
    %(ju2022)s

    %(examples)s
    >>> with pm.Model():
    ...     p = pm.Beta("p", 1, 1)
    ...     n = pm.DiscreteUniform("n", 1, 50)
    ...     x = pmp.Records("x", pm.Bernoulli.dist(p), size=n)
    ...     s = pmp.Privatized("s", x, pmp.Laplace(scale=2.0), observed=7.5)
    ...     step = pmp.BirthDeath()
    >>> step.vars
    [p_logodds__, n, x]
    """

    name = "birth_death"
    stats_dtypes_shapes: ClassVar[dict] = {
        "birth_death_size": (np.int64, []),
        "birth_death_births": (np.int64, []),
        "birth_death_deaths": (np.int64, []),
        **reals("birth_death_jump_accept", "birth_death_jump_scale"),
        "birth_death_capacity_hits": (np.int64, []),
        **reals(
            "birth_death_accept_min",
            "birth_death_least_accept_min",
            "birth_death_centred_accept",
            "birth_death_noncentred_accept",
            "birth_death_leap_accept",
            "birth_death_noncentred_scale",
            "record_sweep_accept",
            "record_sweep_accept_min",
        ),
        "warning": (SamplerWarning, None),
    }
    shown: ClassVar[dict] = {"birth_death_size": "Size", "birth_death_jump_accept": "Jumps"}
    machine_code = ("_moves",)

    def __init__(
        self,
        vars: Any = None,
        *,
        centred_steps: int | None = None,
        noncentred_steps: int | None = None,
        jumps: int = JUMPS,
        single: bool = False,
        **common: Unpack[Common],
    ):
        model, rvs = self._choose(vars, common)
        compile_kwargs = common.get("compile_kwargs")
        records = [rv for rv in rvs if is_sized(rv)]
        if not records:
            raise RecordError(
                "BirthDeath moves Records together with their number; this model has none."
            )
        twin, databases = find_sized_databases(model, records)
        sizes = {d.size for d in databases}
        if missing := sizes - {value.name for value in self.vars}:
            raise RecordError(
                f"BirthDeath must be given the size of its records too; {', '.join(missing)} is "
                "missing from vars."
            )
        parameters = [
            value
            for value, rv in zip(self.vars, rvs, strict=True)
            if not is_record(rv) and value.name not in sizes
        ]
        self._sized, self.databases = databases, [d.database for d in databases]
        certifier = self._certifier = Certifier(model, [value.name for value in parameters])
        program = certified(
            [
                lambda level=level: compile_sized_parameters(  # type: ignore[misc]
                    twin, parameters, databases, compile_kwargs, detail=level[0], carry=level[1]
                )
                for level in LEVELS
            ],
            lambda made: compare_sized(made, databases, certifier.reference, certifier.pairs),
            what="parameters and sizes",
        )
        sized = [certified_size(SizeTarget(d, compile_kwargs), certifier) for d in databases]
        self._target = SizedTarget(program, tuple(sized))
        self._plan = adaptation.plan(
            program.traits,
            [size.capacity for size in sized],
            centred_steps=centred_steps,
            noncentred_steps=noncentred_steps,
            jumps=-1 if single else jumps,
        )
        self._settings = Memo(adaptation.settings)
        self._moves: Any = None
        self._warned = False
        self._compile(model)

    def make_room(self, records: Collection[TensorVariable]) -> None:
        """Keep by itself those of these records, which nobody else reads, that have no rows."""
        self._target.make_room({str(rv.name) for rv in records})

    def _first(self, tune_steps: int) -> adaptation.Learnt:
        return adaptation.init(self._plan, tune_steps)

    def forget(self) -> None:
        """Read data anew, and warn again."""
        self._warned, self.beyond = False, None
        if self._moves is not None:
            self._moves.forget()
        for size in self._target.sizes:
            size.forget()

    def _stop(self) -> None:
        self.learnt = give_up(self.learnt)

    def _iterate(self, point: Point) -> dict[str, Any]:
        """Move parameters and sizes, sweep all records, and let some be born or die."""
        self._target.recall(self.beyond)
        holds = self.tune and adaptation.settles(self.learnt, self._plan)
        if self.tune:
            self.learnt = adaptation.learn_largest(self.learnt, self._target.numbers(point))
        q, records, moves = self._move_parameters(point, holds)
        jumps, scale = 0 if holds else self._plan.jumps, self.learnt.jump_scale
        infos = [
            self._resize(point, size, ours, jumps)
            for size, ours in zip(self._target.sizes, records, strict=True)
        ]
        accept = float(np.mean([info.jumped.accept for info in infos]))
        numbers, self.beyond = self._target.numbers(point), self._target.beyond
        statistics = {
            "birth_death_size": sum(numbers),
            "birth_death_births": sum(info.jumped.births for info in infos),
            "birth_death_deaths": sum(info.jumped.deaths for info in infos),
            "birth_death_jump_accept": accept,
            "birth_death_jump_scale": scale,
            "birth_death_capacity_hits": sum(info.jumped.hits for info in infos),
            **birth_death.smallest_met(infos),
            "birth_death_centred_accept": moves.centred_accept,
            "birth_death_noncentred_accept": moves.noncentred_accept,
            "birth_death_leap_accept": moves.leap_accept,
            "birth_death_noncentred_scale": self.learnt.ridge.walk.scale,
        }
        statistics["warning"] = self._warn(statistics["birth_death_capacity_hits"])
        if self.tune:
            self.learnt = adaptation.learn(
                self.rng, self.learnt, self._plan, q, numbers, jump_accept=accept, info=moves
            )
        return statistics | sweep_statistics([i.swept for i in infos if i.swept is not None])

    def _move_parameters(
        self, point: Point, holds_sizes: bool
    ) -> tuple[np.ndarray, list[list[np.ndarray]], Info]:
        """Move parameters and sizes in a point; return them, and the records that then exist.

        And what happened, without a shift where nothing moved with the records.
        """
        target, program, plan = self._target, self._target.program, self._plan
        # No logarithm has a size of zero: then only the parameters move.
        carries = self.learnt.noncentred_steps > 0 and all(target.numbers(point))
        arrays, bounds = target.reserve(
            self.rng, point, self.learnt.largest, draw=carries and program.interweaves
        )
        q, held = target.flatten(self.rng, point), program.held_at(point)
        if self.tune and plan.parameters:
            self.learnt = learn_curvature(
                self.learnt, plan.moves.traits, q, lambda: program.given_records(q, held, arrays)
            )
        if self._moves is None:
            self._moves = moves_of(program)
        settings = self._settings(self.learnt, plan, holds_sizes)
        if not carries:
            settings = settings._replace(noncentred=settings.noncentred._replace(steps=0))
        state, info = self._moves(self.rng, State(q, arrays), held, settings, bounds)
        if not plan.moves.centred_steps:
            info = info._replace(centred_accept=math.nan)
        records = target.write(point, state.q, state.records)
        return state.q, records, info if carries else info._replace(shift=None)

    def _resize(
        self, point: Point, size: SizeTarget, records: list[np.ndarray], jumps: int
    ) -> birth_death.SizeInfo:
        """Sweep the records of one database in a point, and let some be born or die."""
        if jumps < 0:
            size.refuse_gaps(point)
        state, info = birth_death.step(
            self.rng,
            size.existing(point, records),
            draw=lambda rng, rows: size.draw(rng, point, rows),
            noise=size.noise,
            log_size=lambda first, last: size.log_sizes(point, first, last),
            capacity=size.capacity,
            scale=self.learnt.jump_scale,
            jumps=jumps,
        )
        size.write(point, state.arrays)
        if size.is_open_ended(point):
            return info
        return info._replace(jumped=info.jumped._replace(hits=0))

    def _compared(self, point: Point) -> Iterator[Comparison]:
        jump, centred = self.learnt.jump_scale, self.learnt.centred
        target, reference = self._target, self._certifier.reference
        return compare_tuned(target, self._sized, reference, point, jump, centred)

    def _warn(self, hits: int) -> SamplerWarning | None:
        """Say once in each chain that there was no room for as many records as were proposed."""
        if self.tune or self._warned or not hits:
            return None
        self._warned = True
        sizes = ", ".join(f"{s.size!r} beyond {s.capacity}" for s in self._target.sizes)
        return SamplerWarning(
            WarningType.BAD_PARAMS,
            f"A proposal was refused for want of room: capacity= does not allow {sizes}, though "
            "the prior does. See the statistic birth_death_capacity_hits.",
            "warn",
        )
