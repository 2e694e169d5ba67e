"""Courier of `pymc_privacy.algorithms.interweave` and the record sweep inside `pm.sample`."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any, ClassVar

import numpy as np

from pymc_privacy._compat import (
    StepMethodState,
    ancestors,
    dataclass_state,
)
from pymc_privacy.algorithms.adaptation import local_proposal, tuning
from pymc_privacy.algorithms.interweave import (
    TRAJECTORY_ACCEPT,
    WALK_ACCEPT,
    Info,
    Move,
    Settings,
    State,
)
from pymc_privacy.certificate.base import Comparison
from pymc_privacy.certificate.certifier import Certifier, a_step_away, after_tuning
from pymc_privacy.errors import RecordError
from pymc_privacy.model.database import find_databases
from pymc_privacy.model.marks import is_interwoven, is_record
from pymc_privacy.model.points import Point
from pymc_privacy.step_methods import effort
from pymc_privacy.step_methods.base import Courier, reals
from pymc_privacy.step_methods.latest import Latest
from pymc_privacy.step_methods.sweep import Sweep, sweep_statistics
from pymc_privacy.targets.by_address import MovesByAddress
from pymc_privacy.targets.interweave import compile_parameters


@dataclass_state
class InterweaveState(StepMethodState):
    """What a resumed chain needs besides its point."""

    tune: bool
    tune_steps: int
    noncentred_steps: int
    noncentred_accept: float
    centred: tuning.Tuning
    noncentred: tuning.Tuning
    proposal: local_proposal.LocalProposal


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
        accepted often.
    sweep_fraction : float, optional
        The part of the records that each iteration updates, if they are identically
        distributed; by default all of them, and fewer where there are very many.
    model, rng, initial_point, compile_kwargs, blocked
        As for every step method of PyMC.

    Raises
    ------
    RecordError
        If the model has no records, something mixes them, or records that depend on those given are
        left out.
    ReleaseError
        If a release of the records is not observed.
    CertificateError
        If what was compiled disagrees with the model.
    ArgumentError
        If an option is not the number or the flag that it must be.

    See Also
    --------
    RecordSweep : Moves the records alone.
    CountStates : The same for many records with few values.
    BirthDeath : The same for an unknown number of records.
    sample : Chooses the step; takes ``interweave={...}``.

    Notes
    -----
    Statistics: ``interweave_centred_accept`` and ``interweave_noncentred_accept``, the fractions
    of accepted steps, and ``interweave_leap_accept``, that of steps to where the parameters are
    likely to be, wherever they were; ``interweave_centred_scale`` and
    ``interweave_noncentred_scale``, their lengths, learnt during tuning and then kept; and those
    of the record sweep.

    References
    ----------
    - Ju, N., Awan, J., Gong, R. and Rao, V. (2022), "Data augmentation MCMC for Bayesian inference
      from privatized data", Advances in Neural Information Processing Systems 35.
    - Yu, Y. and Meng, X.-L. (2011), "To center or not to center: that is not the question. An
      ancillarity-sufficiency interweaving strategy (ASIS) for boosting MCMC efficiency", Journal of
      Computational and Graphical Statistics 20(3), 531-570.

    Examples
    --------
    >>> import pymc as pm
    >>> import pymc_privacy as pmp
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
        "interweave_centred_scale",
        "interweave_noncentred_scale",
        "record_sweep_accept",
        "record_sweep_accept_min",
    )
    _state_class = InterweaveState
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
        model: Any = None,
        rng: Any = None,
        initial_point: Point | None = None,
        compile_kwargs: dict | None = None,
        blocked: bool = True,
    ):
        model, rvs = self._choose(vars, model, rng)
        records = [rv for rv in rvs if is_record(rv)]
        parameters = [v for v, rv in zip(self.vars, rvs, strict=True) if not is_record(rv)]
        if not rvs:
            raise RecordError(
                "Interweave moves parameters together with the records behind a Privatized "
                "release; this model has none."
            )
        _check_complete(model, records)
        self.databases = find_databases(model, records)
        self._certifier = Certifier(model, [value.name for value in parameters])
        self._program = self._certifier.parameter_program(
            lambda detail, carry: compile_parameters(
                model, parameters, self.databases, compile_kwargs, detail=detail, carry=carry
            ),
            self.databases,
        )
        self._moves: Any = None
        self._reference = Latest(local_proposal.reference)
        default = effort.default_centred_steps(self._program)
        self._centred_steps = default if centred_steps is None else centred_steps
        default = effort.default_noncentred_steps(self._program)
        self._planned_steps = default if noncentred_steps is None else noncentred_steps
        self._counts_leaps = noncentred_steps is None
        self._sweeps = [
            Sweep(
                database,
                compile_kwargs,
                self._certifier,
                sweep_fraction or effort.default_fraction(database.size, self._planned_steps),
            )
            for database in self.databases
        ]
        self.setup_tuning(0)

    def setup_tuning(self, steps: int) -> None:
        """Forget what was learnt, and plan to learn for so many steps."""
        self.tune_steps = steps
        self.centred = tuning.init(self._program.size, scale=0.8)
        self.noncentred = tuning.init(self._program.size)
        self.proposal = local_proposal.init(self._program.size)
        self.noncentred_steps = self._planned_steps
        self.noncentred_accept = 0.0

    def forget(self) -> None:
        """Read data anew, and drop the contributions of another chain."""
        if self._moves is not None:
            self._moves.forget()
        for sweep in self._sweeps:
            sweep.forget()

    def stop_tuning(self) -> None:
        """Keep what was learnt, from here on, and give up a move that was never accepted."""
        if self.tune and effort.is_hopeless(self.noncentred_accept, self.tune_steps):
            self.noncentred_steps = 0
        super().stop_tuning()

    def _iterate(self, point: Point) -> dict[str, float]:
        """Make all moves of the parameters, and one sweep of each database."""
        program = self._program
        held = tuple(point[name] for name in program.held)
        records = tuple(point[name] for name in program.records)
        info = Info(math.nan, math.nan, math.nan, None)
        if program.size:
            q = program.flatten(point)
            if self.tune and tuning.at_milestone(self.centred, self.tune_steps):
                self.centred = tuning.learn_curvature(
                    self.centred,
                    program.given_records(q, held, records),
                    q,
                    has_gradient="centred" in program.gradients,
                )
            if self._moves is None:
                self._moves = MovesByAddress(program)
            state, info = self._moves(self.rng, State(q, records), held, self._settings())
            point |= program.unflatten(state.q)
            point |= dict(zip(program.records, state.records, strict=True))
            if self.tune:
                self._learn(state.q, info)
        infos = [sweep.step(self.rng, point) for sweep in self._sweeps]
        statistics = {
            "interweave_centred_accept": info.centred_accept,
            "interweave_noncentred_accept": info.noncentred_accept,
            "interweave_leap_accept": info.leap_accept,
            "interweave_centred_scale": self.centred.scale,
            "interweave_noncentred_scale": self.noncentred.scale,
        }
        return statistics | sweep_statistics(infos)

    def _compared(self, point: Point) -> Iterator[Comparison]:
        program, compiled = self._program, [sweep.compiled for sweep in self._sweeps]
        if not program.size:
            return self._certifier.compare_swept(after_tuning(point), compiled)
        there = a_step_away(program, point, self.centred.factor, self.centred.scale)
        return self._certifier.compare_swept(after_tuning(point, there), compiled, program)

    def _settings(self) -> Settings:
        leap = local_proposal.tries(self.proposal, self.noncentred, self.tune_steps)
        noise_precision = self._program.noise_precision
        return Settings(
            Move(self.centred.factor, self.centred.scale, self._centred_steps),
            Move(self.noncentred.factor, self.noncentred.scale, self.noncentred_steps),
            self._reference(self.noncentred, self.proposal, noise_precision, leap),
        )

    def _learn(self, q: np.ndarray, info: Info) -> None:
        """Adapt all moves to what has just happened."""
        gradients, refreshes = self._program.gradients, not self._program.interweaves
        target = TRAJECTORY_ACCEPT if "centred" in gradients else WALK_ACCEPT
        self.centred = tuning.rescale(self.centred, info.centred_accept, target)
        # Given u, the parameters have another covariance than in the posterior: one that
        # follows u, or that of their shifts. Drawn afresh, they have the posterior's.
        is_guided = self._program.is_guided
        walk = tuning.observe(self.noncentred, q if refreshes or is_guided else info.shift)
        target = TRAJECTORY_ACCEPT if "noncentred" in gradients else WALK_ACCEPT
        walk = tuning.rescale(walk, info.noncentred_accept, target)
        if refreshes:
            walk = tuning.bounded(walk, *effort.REFRESH_SCALES)
        if is_guided:
            walk, self.proposal = local_proposal.learn(
                walk, self.proposal, info.shift, info.leap_accept, self.tune_steps
            )
            if self._counts_leaps:
                self.noncentred_steps = local_proposal.number_of_steps(
                    self.proposal, self._planned_steps
                )
        else:
            walk = tuning.learn_factor_in_time(walk, self.tune_steps)
        if walk.iteration > self.tune_steps // 2:
            self.noncentred_accept = max(
                self.noncentred_accept, info.noncentred_accept, info.leap_accept
            )
        self.noncentred = walk


def _check_complete(model: Any, records: Sequence[Any]) -> None:
    """Refuse to carry records along without those that are drawn given them."""
    left_out = [
        rv
        for rv in model.free_RVs
        if is_record(rv) and rv not in records and set(ancestors([rv])) & set(records)
    ]
    if left_out:
        names = ", ".join(repr(rv.name) for rv in left_out)
        raise RecordError(
            "Interweave carries records along with their parameters, so it must be given all "
            f"records that depend on them; {names} would be left behind. Give them to the same "
            "Interweave, or update the records with RecordSweep and the parameters otherwise."
        )
