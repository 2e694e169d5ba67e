"""Courier of `pymc_privacy.algorithms.record_sweep` inside `pm.sample`."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from rich.progress import TextColumn
from rich.table import Column

from pymc_privacy._compat import (
    BlockedStep,
    Competence,
    StepMethodState,
    dataclass_state,
    get_random_generator,
    get_value_vars_from_user_vars,
    modelcontext,
)
from pymc_privacy.algorithms import record_sweep
from pymc_privacy.algorithms.noise import Noise
from pymc_privacy.distributions.marking import is_marked
from pymc_privacy.errors import RecordError
from pymc_privacy.graph.database import Database, find_databases
from pymc_privacy.graph.laws import noise_of
from pymc_privacy.graph.programs import Point, compile_records


@dataclass_state
class RecordSweepState(StepMethodState):
    """What a resumed chain needs besides its point; contributions follow from the point."""

    tune: bool


class RecordSweep(BlockedStep):
    """Update every confidential record once, given the parameters and all releases.

    Chosen by `pm.sample` for the records of every :class:`~pymc_privacy.Privatized`.
    Records are proposed from their own model, so the step needs no tuning.

    Parameters
    ----------
    vars : list of TensorVariable, optional
        Record variables; all of the model's by default.
    model, rng, initial_point, compile_kwargs, blocked
        As for every step method of PyMC.

    Notes
    -----
    Statistics: ``record_sweep_accept``, the fraction of records that took their proposal,
    and ``record_sweep_accept_min``, the smallest acceptance probability of the sweep, which
    is at least exp(-epsilon) when all releases together are epsilon-DP for the replacement
    of one record (Ju et al., 2022, Proposition 3.1).

    Examples
    --------
    >>> import pymc as pm
    >>> import pymc_privacy as pmp
    >>> with pm.Model():
    ...     p = pm.Beta("p", 1, 1)
    ...     x = pm.Bernoulli("x", p, shape=20)
    ...     s = pmp.Privatized("s", x, pmp.Laplace(scale=2.0), observed=7.5)
    ...     step = pmp.RecordSweep()
    >>> step.vars
    [x]
    """

    name = "record_sweep"
    default_blocked = True
    default_tune_steps = 0
    stats_dtypes_shapes: ClassVar[dict] = {
        "record_sweep_accept": (np.float64, []),
        "record_sweep_accept_min": (np.float64, []),
    }
    _state_class = RecordSweepState

    def __init__(
        self,
        vars: Any = None,
        *,
        model: Any = None,
        rng: Any = None,
        initial_point: Point | None = None,
        compile_kwargs: dict | None = None,
        blocked: bool = True,
    ):
        model = modelcontext(model)
        records = [rv for rv in model.free_RVs if is_marked(rv)] if vars is None else vars
        self.vars = get_value_vars_from_user_vars(records, model)
        self.rng = get_random_generator(rng)
        self.tune = True
        rvs = [model.values_to_rvs[value] for value in self.vars]
        strangers = [rv.name for rv in rvs if not is_marked(rv)]
        if strangers or not rvs:
            raise RecordError(
                "RecordSweep updates the records behind a Privatized release; got "
                f"{', '.join(map(repr, strangers)) or 'a model without any'}."
            )
        self.databases = find_databases(model, rvs)
        self._sweeps = [_Sweep(database, compile_kwargs) for database in self.databases]

    def setup_chain(self, rng, tune, draws):
        """Take the chain's generator, and forget the contributions of another chain."""
        super().setup_chain(rng, tune, draws)
        for sweep in self._sweeps:
            sweep.forget()

    def step(self, point: Point) -> tuple[Point, list[dict[str, float]]]:
        """Carry the point through one sweep of each database."""
        # Draws are recorded by position, so keys keep their order.
        point = point.copy()
        infos = [sweep.step(self.rng, point) for sweep in self._sweeps]
        records = sum(info.accepted.size for info in infos)
        accepted = sum(info.accept * info.accepted.size for info in infos)
        return point, [
            {
                "record_sweep_accept": accepted / records,
                "record_sweep_accept_min": min(info.accept_min for info in infos),
            }
        ]

    @staticmethod
    def competence(var, has_grad):
        """Claim record variables, and nothing else."""
        return Competence.IDEAL if is_marked(var) else Competence.INCOMPATIBLE

    @staticmethod
    def _progressbar_config(n_chains=1):
        column = TextColumn(
            "{task.fields[record_sweep_accept]:0.2f}",
            table_column=Column("Records accepted", ratio=1),
        )
        return [column], {"record_sweep_accept": [0.0] * n_chains}

    @staticmethod
    def _make_progressbar_update_functions():
        return (lambda stats: {"record_sweep_accept": stats["record_sweep_accept"]},)


class _Sweep:
    """The compiled programs of one database, and the contributions of its current records."""

    def __init__(self, database: Database, compile_kwargs: dict | None):
        self._database = database
        self._program = compile_records(database, compile_kwargs)
        self._proposed = np.empty((self._program.width, database.size))
        self._noise: Noise | None = None
        self.forget()

    def forget(self) -> None:
        self._seen: Point | None = None
        self._state = record_sweep.State(np.empty((0, 0)))

    def __getstate__(self):
        # Compiled laws belong to one process; another makes its own.
        return self.__dict__ | {"_noise": None}

    def step(self, rng: np.random.Generator, point: Point) -> record_sweep.Info:
        """Sweep the records of a point, writing new arrays into its entries."""
        program = self._program
        if self._noise is None:
            self._noise = noise_of(self._database)
        if not self._remembers(point):
            self._state = record_sweep.init(program.contributions_at(point))
        fresh, ratio = program.draw_from(rng, point, self._proposed)
        self._state, info = record_sweep.step(
            rng, self._state, self._proposed, noise=self._noise, log_weight_ratio=ratio
        )
        for name, proposal in zip(program.records, fresh, strict=True):
            point[name] = _where(info.accepted, proposal, point[name])
        self._seen = {name: point[name] for name in program.records}
        return info

    def _remembers(self, point: Point) -> bool:
        """Compare by value: workers hand over their own copies of what was returned."""
        return (
            self._program.contributions_are_kept
            and self._seen is not None
            and all(np.array_equal(point[name], value) for name, value in self._seen.items())
        )


def _where(accepted: np.ndarray, proposal: np.ndarray, current: np.ndarray) -> np.ndarray:
    rows = accepted.reshape(-1, *(1,) * (current.ndim - 1))
    return np.where(rows, proposal, current)
