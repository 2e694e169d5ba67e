"""Courier of `pymc_privacy.algorithms.interweave` and the record sweep inside `pm.sample`."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, ClassVar, Unpack

from pymc_privacy.algorithms.adaptation import interweave as adaptation
from pymc_privacy.algorithms.adaptation.memo import Memo
from pymc_privacy.algorithms.interweave import Info, State
from pymc_privacy.certificate.base import Comparison
from pymc_privacy.certificate.certifier import Certifier, a_step_away, after_tuning
from pymc_privacy.errors import RecordError
from pymc_privacy.model.database import find_databases, refuse_left_behind
from pymc_privacy.model.group_effects import apart
from pymc_privacy.model.marks import is_interwoven, is_record
from pymc_privacy.model.points import Point
from pymc_privacy.step_methods.base import Common, Courier, reals
from pymc_privacy.step_methods.record_sweep import sweep, sweep_statistics
from pymc_privacy.targets.by_address import MovesByAddress
from pymc_privacy.targets.group_effects import as_databases
from pymc_privacy.targets.group_sizes import sizes_that_move
from pymc_privacy.targets.interweave import compile_parameters
from pymc_privacy.targets.refresh import FreshDatabases


class Interweave(Courier):
    """Move parameters given the records, then with the records, then the records themselves.

    Given many records the parameters are nearly fixed, and given the parameters the records
    are; moving both at once is what lets a chain forget where it was. Chosen by `pm.sample` for
    records and their continuous parameters. Records that can be written as x = T(parameters, u)
    are carried along with u held fixed; others are drawn afresh with their parameters, a move
    that is given up after tuning where it was never accepted.

    Parameters
    ----------
    vars : list of TensorVariable, optional
        Parameters and record variables; by default all marked ones.
    centred_steps, noncentred_steps : int, optional
        Moves of the parameters given the records, and with them, in one iteration; 0 turns a
        move off. By default fewer of the latter are made where tuning finds that leaps are
        accepted often, or that they are not and more do not pay.
    sweep_fraction : float, optional
        The part of the records that each iteration updates, if they are identically
        distributed; by default all of them, and fewer where there are very many.
    %(arguments)s

    Raises
    ------
    RecordError
        If the model has no records, something mixes them, or records that depend on those given are
        left out.
    %(unobserved)s
    %(refusals)s

    See Also
    --------
    RecordSweep : Moves the records alone.
    CountStates : The same for many records with few values.
    BirthDeath : The same for an unknown number of records.
    sample : Chooses the step; takes ``interweave={...}``.

    Notes
    -----
    Statistics: ``interweave_centred_accept`` and ``interweave_noncentred_accept``, the fractions
    of accepted steps; ``interweave_leap_accept``, that of steps to where parameters are likely to
    be; ``interweave_group_accept``, that of leaps of effects of groups, and
    ``interweave_refresh_accept``, that of fresh databases, with parameters from a mixture that was
    learnt, nan where there are none; lengths of steps, ``interweave_centred_scale`` and
    ``interweave_noncentred_scale``; and those of the record sweep.

    References
    ----------
    %(ju2022)s
    - Yu, Y. and Meng, X.-L. (2011), "To center or not to center: that is not the question. An
      ancillarity-sufficiency interweaving strategy (ASIS) for boosting MCMC efficiency", Journal of
      Computational and Graphical Statistics 20(3), 531-570.

    %(examples)s
    >>> with pm.Model():
    ...     mu = pm.Normal("mu", 0, 3)
    ...     x = pm.Normal("x", mu, 1, shape=20)
    ...     s = pmp.Privatized("s", x, pmp.Laplace(scale=2.0), observed=7.5)
    ...     step = pmp.Interweave()
    >>> step.vars
    [mu, x]
    """

    name = "interweave"
    stats_dtypes_shapes: ClassVar[dict] = reals(
        "interweave_centred_accept",
        "interweave_noncentred_accept",
        "interweave_leap_accept",
        "interweave_refresh_accept",
        "interweave_group_accept",
        "interweave_centred_scale",
        "interweave_noncentred_scale",
        "record_sweep_accept",
        "record_sweep_accept_min",
    )
    shown: ClassVar[dict] = {
        "record_sweep_accept": "Records",
        "interweave_noncentred_accept": "Moves",
    }
    machine_code = ("_moves",)
    claims = staticmethod(is_interwoven)

    def __init__(
        self,
        vars: Any = None,
        *,
        centred_steps: int | None = None,
        noncentred_steps: int | None = None,
        sweep_fraction: float | None = None,
        **common: Unpack[Common],
    ):
        model, rvs = self._choose(vars, common)
        compile_kwargs = common.get("compile_kwargs")
        records = [rv for rv in rvs if is_record(rv)]
        parameters = [v for v, rv in zip(self.vars, rvs, strict=True) if not is_record(rv)]
        if not rvs:
            raise RecordError(
                "Interweave moves parameters with records behind a release; this model has none."
            )
        refuse_left_behind(model, records)
        databases = self.databases = find_databases(model, records)
        sizes, parameters = sizes_that_move(model, databases, parameters)
        effects, parameters = apart(model, records, parameters)
        together = [*as_databases(model, effects), *databases]
        self._certifier = Certifier(model, [value.name for value in parameters])
        self._program = self._certifier.parameter_program(
            lambda detail, carry: compile_parameters(
                model, parameters, together, compile_kwargs, detail=detail, carry=carry
            ),
            together,
        )
        self._effects = self._certifier.effect_target(effects, databases, compile_kwargs)
        self._sizes = self._certifier.size_programs(sizes, databases, compile_kwargs)
        self._plan = adaptation.plan(
            self._program.traits, centred_steps=centred_steps, noncentred_steps=noncentred_steps
        )
        self._settings = Memo(adaptation.settings)
        self._moves: MovesByAddress | None = None
        self.leaves_records = False  # where nobody looks at them, and parameters move without
        steps = self._plan.noncentred_steps
        shares = [sweep_fraction or adaptation.default_fraction(d.size, steps) for d in databases]
        self._targets = self._certifier.swept_with(self._program, databases, compile_kwargs, shares)
        self._fresh = FreshDatabases(model, self._program, self._targets)
        self._compile(model)

    def _first(self, tune_steps: int) -> adaptation.Learnt:
        return adaptation.init(self._plan, tune_steps)

    def forget(self) -> None:
        """Read data anew, and drop the contributions of another chain."""
        if self._moves is not None:
            self._moves.forget()
        for target in self._targets:
            target.forget()

    def _stop(self) -> None:
        self.learnt = adaptation.settle(self.learnt, self._plan)

    def _iterate(self, point: Point) -> dict[str, float]:
        """Make all moves of the parameters, and one sweep of each database."""
        info = Info(math.nan, math.nan, math.nan, None)
        self.learnt, refreshed = self._fresh.iterate(self.rng, point, self.learnt, self.tune)
        if self._program.size:
            info = self._move_parameters(point)
        by_group = self._effects.move(self.rng, point)
        for _, program in self._sizes:
            program.move(self.rng, point)
        swept = () if self.leaves_records and self._program.integrates else self._targets
        infos = [sweep(self.rng, point, target) for target in swept]
        return sweep_statistics(infos) | {
            "interweave_centred_accept": info.centred_accept,
            "interweave_noncentred_accept": info.noncentred_accept,
            "interweave_leap_accept": info.leap_accept,
            "interweave_refresh_accept": refreshed,
            "interweave_group_accept": by_group,
            "interweave_centred_scale": self.learnt.centred.scale,
            "interweave_noncentred_scale": self.learnt.noncentred.scale,
        }

    def _move_parameters(self, point: Point) -> Info:
        program, plan = self._program, self._plan
        q, held = program.flatten(point), program.held_at(point)
        records = tuple(point[name] for name in program.records)
        if self.tune:
            self.learnt = adaptation.learn_curvature(
                self.learnt, plan.traits, q, lambda: program.given_records(q, held, records)
            )
        if self._moves is None:
            self._moves = MovesByAddress(program)
        settings = self._settings(self.learnt, plan)
        state, info = self._moves(self.rng, State(q, records), held, settings)
        point |= program.unflatten(state.q)
        point |= dict(zip(program.records, state.records, strict=True))
        if self.tune:
            self.learnt = adaptation.learn(self.learnt, plan, state.q, info)
        return info

    def _compared(self, point: Point) -> Iterator[Comparison]:
        certifier, program = self._certifier, self._program
        pairs = after_tuning(point, a_step_away(program, point, self.learnt.centred))
        return certifier.compare_swept(pairs, self._targets, program, self._effects, self._sizes)
