"""Courier of `pymc_privacy.algorithms.birth_death` inside `pm.sample`."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, ClassVar

import numpy as np

from pymc_privacy._compat import (
    SamplerWarning,
    StepMethodState,
    dataclass_state,
)
from pymc_privacy.algorithms import birth_death
from pymc_privacy.algorithms.adaptation import local_proposal, ridge_adaptation, tuning
from pymc_privacy.algorithms.birth_death import JUMP_ACCEPT
from pymc_privacy.algorithms.interweave import (
    TRAJECTORY_ACCEPT,
    WALK_ACCEPT,
    Info,
    Move,
    State,
    data_of,
)
from pymc_privacy.certificate.base import Comparison, certified
from pymc_privacy.certificate.certifier import LEVELS, Certifier, a_step_away, after_tuning
from pymc_privacy.certificate.counts import compare_sized
from pymc_privacy.errors import RecordError
from pymc_privacy.functions.calls import DirectCall
from pymc_privacy.model.database import check_locality
from pymc_privacy.model.marks import is_record
from pymc_privacy.model.sized_records import is_sized
from pymc_privacy.step_methods import effort
from pymc_privacy.step_methods.base import Courier, reals
from pymc_privacy.step_methods.latest import Latest
from pymc_privacy.step_methods.resizing import Resizing, no_room, with_reserve
from pymc_privacy.step_methods.sweep import sweep_statistics
from pymc_privacy.targets.birth_death import (
    compile_sized_parameters,
    find_sized_databases,
    jitted_sized_moves,
    log_name,
    log_nu,
    size_at,
)
from pymc_privacy.targets.record_sweep import Point

JUMPS = 8
# For this part of tuning sizes stay where they are: parameters that do not fit the releases yet
# would drag them along, to where the way back is long.
SETTLING = 1 / 20


@dataclass_state
class BirthDeathState(StepMethodState):
    """What a resumed chain needs besides its point."""

    tune: bool
    tune_steps: int
    noncentred_steps: int
    noncentred_accept: float
    centred: tuning.Tuning
    ridge: ridge_adaptation.RidgeAdaptation
    jump_log_scale: float
    largest: tuple[int, ...]


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
    model, rng, initial_point, compile_kwargs, blocked
        As for every step method of PyMC.

    Raises
    ------
    RecordError
        If the model has no `Records`, some of them or their size are left out, or they are not
        exchangeable or seen by more than releases.
    ReleaseError
        If a release of the records is not observed.
    CertificateError
        If what was compiled disagrees with the model.
    ArgumentError
        If an option is not the number or the flag that it must be.

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
    refused for want of room; ``birth_death_centred_accept``, ``birth_death_noncentred_accept``,
    ``birth_death_leap_accept`` and ``birth_death_noncentred_scale``, as for :class:`Interweave`;
    and those of the record sweep.

    References
    ----------
    - Awan, J., Barrientos, A. F. and Ju, N. (2024), "Statistical inference for privatized data with
      unknown sample size", arXiv:2406.06231.
    - Ju, N., Awan, J., Gong, R. and Rao, V. (2022), "Data augmentation MCMC for Bayesian inference
      from privatized data", Advances in Neural Information Processing Systems 35.

    Examples
    --------
    >>> import pymc as pm
    >>> import pymc_privacy as pmp
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
        **reals(
            "birth_death_jump_accept",
            "birth_death_jump_scale",
        ),
        "birth_death_capacity_hits": (np.int64, []),
        **reals(
            "birth_death_centred_accept",
            "birth_death_noncentred_accept",
            "birth_death_leap_accept",
            "birth_death_noncentred_scale",
            "record_sweep_accept",
            "record_sweep_accept_min",
        ),
        "warning": (SamplerWarning, None),
    }
    _state_class = BirthDeathState
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
        model: Any = None,
        rng: Any = None,
        initial_point: Point | None = None,
        compile_kwargs: dict | None = None,
        blocked: bool = True,
    ):
        model, rvs = self._choose(vars, model, rng)
        records = [rv for rv in rvs if is_sized(rv)]
        if not records:
            raise RecordError(
                "BirthDeath moves Records together with their number; this model has none."
            )
        twin, databases = find_sized_databases(model, records)
        self.databases = [d.database for d in databases]
        sizes = {d.size for d in databases}
        parameters = [
            value
            for value, rv in zip(self.vars, rvs, strict=True)
            if not is_record(rv) and value.name not in sizes
        ]
        missing = sizes - {value.name for value in self.vars}
        if missing:
            raise RecordError(
                f"BirthDeath must be given the size of its records too; {', '.join(missing)} is "
                "missing from vars."
            )
        self._sized = databases
        certifier = self._certifier = Certifier(model, [value.name for value in parameters])
        self._program = certified(
            [
                lambda level=level: compile_sized_parameters(  # type: ignore[misc]
                    twin, parameters, databases, compile_kwargs, detail=level[0], carry=level[1]
                )
                for level in LEVELS
            ],
            lambda made: compare_sized(made, databases, certifier.reference, certifier.pairs),
            what="parameters and sizes",
        )
        self._resizings = [Resizing(d, compile_kwargs) for d in databases]
        for resizing in self._resizings:
            resizing.certify(certifier)
        self._moves: Any = None
        self._reference = Latest(ridge_adaptation.reference)
        precision = self._program.noise_precision
        self._noise_precision = precision if self._program.is_guided else np.empty(0)
        self._parameters = self._program.size - len(databases)
        default = effort.default_centred_steps(self._program) if self._parameters else 0
        self._centred_steps = default if centred_steps is None else centred_steps
        default = effort.default_noncentred_steps(self._program)
        self._planned_steps = default if noncentred_steps is None else noncentred_steps
        self._counts_leaps = noncentred_steps is None
        self._jumps = -1 if single else jumps
        self._warned = False
        self.setup_tuning(0)

    def setup_tuning(self, steps: int) -> None:
        """Forget what was learnt, and plan to learn for so many steps."""
        self.tune_steps = steps
        self.centred = tuning.init(self._parameters, scale=0.8)
        self.ridge = ridge_adaptation.init(self._parameters, len(self._resizings))
        self.noncentred_steps = self._planned_steps
        self.noncentred_accept = 0.0
        self.jump_log_scale = math.log(10.0)
        self.largest = (0,) * len(self._resizings)

    def forget(self) -> None:
        """Read data anew, and warn again."""
        self._warned = False
        for resizing in self._resizings:
            resizing.forget()

    def stop_tuning(self) -> None:
        """Keep what was learnt, from here on, and give up a move that was never accepted."""
        if self.tune and effort.is_hopeless(self.noncentred_accept, self.tune_steps):
            self.noncentred_steps = 0
        super().stop_tuning()

    def _iterate(self, point: Point) -> dict[str, Any]:
        """Move parameters and sizes, sweep all records, and let some be born or die."""
        numbers = [resizing.number(point) for resizing in self._resizings]
        if self.tune:
            self.largest = tuple(map(max, self.largest, numbers))
        records, moves = self._move_parameters(point, numbers)
        scale = math.exp(self.jump_log_scale)
        jumps = 0 if self._settles() else self._jumps
        infos = [
            resizing.step(self.rng, point, ours, scale, jumps)
            for resizing, ours in zip(self._resizings, records, strict=True)
        ]
        accept = float(np.mean([info.jumped.accept for info in infos]))
        statistics = {
            "birth_death_size": sum(r.number(point) for r in self._resizings),
            "birth_death_births": sum(info.jumped.births for info in infos),
            "birth_death_deaths": sum(info.jumped.deaths for info in infos),
            "birth_death_jump_accept": accept,
            "birth_death_jump_scale": scale,
            "birth_death_capacity_hits": sum(info.jumped.hits for info in infos),
            "birth_death_centred_accept": moves.centred_accept,
            "birth_death_noncentred_accept": moves.noncentred_accept,
            "birth_death_leap_accept": moves.leap_accept,
            "birth_death_noncentred_scale": self.ridge.walk.scale,
        }
        statistics["warning"] = self._warn(statistics["birth_death_capacity_hits"])
        if self.tune:
            self._learn(point, accept, moves)
        swept = [info.swept for info in infos if info.swept is not None]
        return statistics | sweep_statistics(swept)

    def _compared(self, point: Point) -> Iterator[Comparison]:
        scale, rng = math.exp(self.jump_log_scale), np.random.default_rng(17)
        numbers = [resizing.two_sizes(point, scale) for resizing in self._resizings]
        for resizing in self._resizings:
            # What is left in rows that do not exist need not be possible any more.
            point = resizing.with_all_rows(rng, point)
        check_locality([whole for d in self._sized for whole in d.whole], point)
        logs = {log_name(r.size): np.zeros(()) for r in self._resizings}
        factor = tuning.padded(self.centred.factor, self._program.size)
        there = a_step_away(self._program, point | logs, factor, self.centred.scale)
        pairs, reference = after_tuning(point, there), self._certifier.reference
        yield from compare_sized(self._program, self._sized, reference, pairs, numbers)
        for resizing, both in zip(self._resizings, numbers, strict=True):
            yield from resizing.compared(reference, pairs, both)

    def _settles(self) -> bool:
        """Tell whether sizes are still held; single moves are as published, from the start."""
        return (
            self.tune
            and self._jumps >= 0
            and self.ridge.walk.iteration < SETTLING * self.tune_steps
        )

    def _warn(self, hits: int) -> SamplerWarning | None:
        """Say once in each chain that there was no room."""
        if self.tune or self._warned or not hits:
            return None
        self._warned = True
        return no_room(self._resizings)

    def _move_parameters(self, point: Point, numbers: list[int]) -> tuple[list, Info]:
        """Move parameters and sizes in a point; return the records that then exist.

        And what happened, without a shift where nothing moved with the records.
        """
        program = self._program
        held = tuple(point[name] for name in program.held)
        # No logarithm has a size of zero: then only the parameters move.
        steps = self.noncentred_steps if all(numbers) else 0
        arrays, bounds = with_reserve(
            self.rng,
            point,
            self._resizings,
            numbers,
            self.largest,
            draw=bool(steps) and program.interweaves,
        )
        logs = {
            log_name(r.size): np.asarray(log_nu(self.rng, number))
            for r, number in zip(self._resizings, numbers, strict=True)
        }
        q = program.flatten(point | logs)
        if self.tune and self._parameters and tuning.at_milestone(self.centred, self.tune_steps):
            self.centred = tuning.learn_curvature(
                self.centred,
                program.given_records(q, held, arrays),
                q,
                has_gradient="centred" in program.gradients,
            )
        if self._moves is None:
            self._moves = DirectCall(jitted_sized_moves(program))
        walk = self.ridge.walk
        if self._settles():
            walk, reference = ridge_adaptation.held(self.ridge), local_proposal.unguided()
        else:
            leap = local_proposal.tries(self.ridge.proposal, walk, self.tune_steps)
            reference = self._reference(self.ridge, self._noise_precision, leap)
        centred = tuning.padded(self.centred.factor, program.size)
        settings = birth_death.Settings(
            Move(centred, self.centred.scale, self._centred_steps),
            Move(walk.factor, walk.scale, steps),
            tuple(self.ridge.ridge),
            bounds,
            reference,
        )
        data = data_of(program.data())
        (q, arrays), info = self._moves(self.rng, State(q, arrays), held, settings, data)
        moved = program.unflatten(q)
        point |= {name: moved[name] for name in program.parameters if name in point}
        found, first = [], 0
        for resizing in self._resizings:
            number = size_at(float(moved[log_name(resizing.size)]))
            point[resizing.size] = np.asarray(number, dtype=point[resizing.size].dtype)
            last = first + len(resizing.records)
            found.append([array[:number] for array in arrays[first:last]])
            first = last
        self._q = q
        if not self._centred_steps:
            info = info._replace(centred_accept=math.nan)
        return found, info if steps else info._replace(shift=None)

    def _learn(self, point: Point, jump_accept: float, moves: Info) -> None:
        """Adapt all moves to what has just happened."""
        iteration = self.ridge.walk.iteration
        if not self._settles():
            self.jump_log_scale += tuning.gain(iteration) * (jump_accept - JUMP_ACCEPT)
        most = max(resizing.capacity for resizing in self._resizings)
        self.jump_log_scale = min(max(self.jump_log_scale, math.log(0.5)), math.log(most))
        gradients, bends = self._program.gradients, self._program.interweaves
        target = TRAJECTORY_ACCEPT if "centred" in gradients else WALK_ACCEPT
        if self._centred_steps:
            self.centred = tuning.rescale(self.centred, moves.centred_accept, target)
        numbers = [resizing.number(point) for resizing in self._resizings]
        q = None
        if all(numbers) and not self._settles():
            logs = [log_nu(self.rng, number) for number in numbers]
            q = np.concatenate([self._q[: self._parameters], logs])
        walk = tuning.rescale(self.ridge.walk, moves.noncentred_accept, WALK_ACCEPT)
        if not bends:
            walk = tuning.bounded(walk, *effort.REFRESH_SCALES)
        if tuning.at_milestone(walk, self.tune_steps) and walk.iteration <= self.tune_steps // 2:
            self.largest = tuple(numbers)
        if walk.iteration > self.tune_steps // 2:
            self.noncentred_accept = max(
                self.noncentred_accept, moves.noncentred_accept, moves.leap_accept
            )
        learnt = self.ridge._replace(walk=walk)
        self.ridge = ridge_adaptation.learn(
            learnt, q, moves.shift, moves.leap_accept, self.tune_steps, bends=bends
        )
        if self._counts_leaps and self._program.is_guided:
            planned = self._planned_steps
            self.noncentred_steps = local_proposal.number_of_steps(self.ridge.proposal, planned)
