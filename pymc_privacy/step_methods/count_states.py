"""Courier of `pymc_privacy.algorithms.count_states` inside `pm.sample`."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any, ClassVar, NamedTuple

import numpy as np

from pymc_privacy._compat import (
    StepMethodState,
    dataclass_state,
    get_value_vars_from_user_vars,
    modelcontext,
)
from pymc_privacy.algorithms import count_states
from pymc_privacy.algorithms.adaptation import tuning
from pymc_privacy.algorithms.interweave import TRAJECTORY_ACCEPT, WALK_ACCEPT, Move
from pymc_privacy.certificate.base import Comparison, disagreements
from pymc_privacy.certificate.certifier import Certifier, a_step_away, after_tuning
from pymc_privacy.certificate.counts import compare_counts
from pymc_privacy.errors import RecordError
from pymc_privacy.functions.calls import DirectCall
from pymc_privacy.model.cells import NotCounted
from pymc_privacy.model.database import check_locality
from pymc_privacy.model.marks import is_record
from pymc_privacy.step_methods.base import Courier
from pymc_privacy.step_methods.interweave import Interweave
from pymc_privacy.targets.base import ParameterProgram
from pymc_privacy.targets.by_address import StepByAddress
from pymc_privacy.targets.count_states import (
    CountedDatabase,
    compile_counts,
    count_databases,
    counts_at,
    moves_of,
)
from pymc_privacy.targets.record_sweep import Point

MOST_WALK_STEPS = 200
FEWEST_BLOCKS, MOST_BLOCKS = 8, 200


@dataclass_state
class CountStatesState(StepMethodState):
    """What a resumed chain needs besides its point; counts follow from the point."""

    tune: bool
    tune_steps: int
    centred: tuning.Tuning
    noncentred: tuning.Tuning
    block: tuning.Tuning


class CountStates(Courier):
    """Know records of finite support by their counts, which cost the same for any number of them.

    Parameters move given the counts, then with them, then blocks of records are drawn afresh.
    Records are written back in random order, which is exact because they are exchangeable.
    Chosen by `pm.sample` for many records with few different values (see Notes), and their
    continuous parameters.

    Parameters
    ----------
    vars : list of TensorVariable, optional
        Parameters and record variables; by default all marked ones. If these cannot be known
        by counts, an :class:`~pymc_privacy.Interweave` is returned, which does the same slowly.
    centred_steps, noncentred_steps, blocks : int, optional
        Moves of the parameters given the counts, moves with them, and blocks of fresh records,
        in one iteration; 0 turns a move off. By default there are as many blocks as make up all
        records, within bounds, or few where the totals determine the counts.
    model, rng, initial_point, compile_kwargs, blocked
        As for every step method of PyMC.

    Raises
    ------
    RecordError
        If `vars` are none of the model, or left out and its records cannot be known by counts.
    ReleaseError
        If a release of the records is not observed.
    CertificateError
        If what was compiled disagrees with the model.
    ArgumentError
        If an option is not the number or the flag that it must be.

    See Also
    --------
    Interweave : The same for any records.
    sample : Chooses the step; takes ``count_states={...}``.

    Notes
    -----
    All record variables of a database must be Bernoulli, Categorical, DiscreteUniform with
    constant bounds or Binomial with a constant n, identically distributed, and seen by central
    releases only; together they may take at most 2048 different values, and there must be at
    least 500 records and four for each value.

    Statistics: ``count_states_centred_accept``, ``count_states_noncentred_accept`` and
    ``count_states_block_accept``, the fractions of accepted moves; ``count_states_centred_scale``
    and ``count_states_noncentred_scale``, their lengths, and ``count_states_block_fraction``, the
    expected fraction of all records in a large block, learnt during tuning and then kept.

    Examples
    --------
    >>> import pymc as pm
    >>> import pymc_privacy as pmp
    >>> with pm.Model():
    ...     p = pm.Beta("p", 1, 1)
    ...     x = pm.Bernoulli("x", p, shape=2000)
    ...     s = pmp.Privatized("s", x, pmp.Laplace(scale=2.0), observed=700.5)
    ...     step = pmp.CountStates()
    >>> step.vars
    [p_logodds__, x]
    """

    name = "count_states"
    stats_dtypes_shapes: ClassVar[dict] = {
        f"count_states_{name}": (np.float64, [])
        for name in (
            "centred_accept",
            "noncentred_accept",
            "block_accept",
            "centred_scale",
            "noncentred_scale",
            "block_fraction",
        )
    }
    _state_class = CountStatesState
    shown: ClassVar[dict] = {
        "count_states_block_accept": "Blocks",
        "count_states_noncentred_accept": "Moves",
    }
    machine_code = ("_step", "_arrange")

    def __new__(cls, vars: Any = None, **kwargs: Any):
        """Make way for `Interweave` where `pm.sample` asks for what counts cannot do."""
        if vars is None:
            return super().__new__(cls, **kwargs)
        try:
            made = _count(modelcontext(kwargs.get("model")), vars, kwargs.get("compile_kwargs"))
        except NotCounted:
            ours = ("centred_steps", "noncentred_steps", "blocks")
            return Interweave(vars, **{k: v for k, v in kwargs.items() if k not in ours})
        step = super().__new__(cls, vars, **kwargs)
        # Counting compiles and compares the model's graphs: once is enough.
        step._made = made
        return step

    def __getnewargs_ex__(self):
        """Let a copy be made without counting again: it is given what was counted."""
        _, kwargs = super().__getnewargs_ex__()
        return (), kwargs

    def __init__(
        self,
        vars: Any = None,
        *,
        centred_steps: int | None = None,
        noncentred_steps: int | None = None,
        blocks: int | None = None,
        model: Any = None,
        rng: Any = None,
        initial_point: Point | None = None,
        compile_kwargs: dict | None = None,
        blocked: bool = True,
    ):
        model, _ = self._choose(vars, model, rng)
        try:
            made: _Made = self.__dict__.get("_made") or _count(model, self.vars, compile_kwargs)
        except NotCounted as reason:
            raise RecordError(
                "CountStates needs many confidential records with few different values, seen by "
                f"central releases alone; but {reason}. Use Interweave."
            ) from None
        self._made = made
        self._counted, self._cells, self._program, self._certifier = made
        self.databases = [counted.database for counted in self._counted]
        self._values = [counted.cells.values() for counted in self._counted]
        self._step: Any = None
        self._arrange: Any = None
        size = self._program.size
        default = 2 if self._program.gradients else max(8, 3 * size)
        self._centred_steps = default if centred_steps is None else centred_steps
        default = min(max(32, 20 * size), MOST_WALK_STEPS)
        self._noncentred_steps = default if noncentred_steps is None else noncentred_steps
        self._blocks = blocks
        everywhere = np.ones((len(self._cells.contributions), 1))
        known = np.hstack([self._cells.contributions, everywhere])
        self._most_blocks = (
            FEWEST_BLOCKS if np.linalg.matrix_rank(known) == len(known) else MOST_BLOCKS
        )
        self.setup_tuning(0)
        self._seen: Point | None = None
        self._counts = np.empty(0, dtype=np.int64)

    def setup_tuning(self, steps: int) -> None:
        """Forget what was learnt, and plan to learn for so many steps."""
        self.tune_steps = steps
        self.centred = tuning.init(self._program.size, scale=0.8)
        self.noncentred = tuning.init(self._program.size)
        self.block = tuning.init(0, scale=0.1)

    def forget(self) -> None:
        """Read data anew, and count the records again."""
        if self._step is not None:
            self._step.forget()
        self._seen = None

    def _iterate(self, point: Point) -> dict[str, float]:
        """Count the records, carry parameters and counts through all moves, write them back."""
        program = self._program
        held = tuple(point[name] for name in program.held)
        state = count_states.State(program.flatten(point), self._counts_at(point))
        if self.tune and tuning.at_milestone(self.centred, self.tune_steps):
            density = program.functions["centred"]
            self.centred = tuning.learn_curvature(
                self.centred,
                lambda q: density(q, *held, state.counts),
                state.q,
                has_gradient="centred" in program.gradients,
            )
        state, info = self._call(state, held)
        point |= program.unflatten(state.q)
        self._write_records(point, state.counts)
        if self.tune:
            self._learn(info)
        return self._statistics(info)

    def _compared(self, point: Point) -> Iterator[Comparison]:
        check_locality(self.databases, point)
        there = a_step_away(self._program, point, self.centred.factor, self.centred.scale)
        return compare_counts(
            self._program,
            self._counted,
            self._cells,
            self._certifier.reference,
            after_tuning(point, there),
        )

    def _call(self, state: count_states.State, held: tuple):
        if self._step is None:
            self._step = StepByAddress(self._program, self._cells)
            self._arrange = DirectCall(count_states.arrange)
        settings = count_states.Settings(
            Move(self.centred.factor, self.centred.scale, self._centred_steps),
            Move(self.noncentred.factor, self.noncentred.scale, self._noncentred_steps),
            count_states.Block(self.block.scale, self._number_of_blocks()),
        )
        return self._step(self.rng, state, held, settings)

    def _number_of_blocks(self) -> int:
        """Return how many blocks to offer; a function of what was learnt during tuning."""
        if self._blocks is not None:
            return self._blocks
        return int(min(max(FEWEST_BLOCKS, 1 / self.block.scale), self._most_blocks))

    def _counts_at(self, point: Point) -> np.ndarray:
        """Compare by value: workers hand over their own copies of what was returned."""
        seen = self._seen
        if seen is not None and all(
            point[name] is value or np.array_equal(point[name], value)
            for name, value in seen.items()
        ):
            return self._counts
        return counts_at(self._counted, point)

    def _write_records(self, point: Point, counts: np.ndarray) -> None:
        """Give every record variable of a database the same random order."""
        starts = self._cells.starts
        for k, (counted, values) in enumerate(zip(self._counted, self._values, strict=True)):
            order = self._arrange(self.rng, counts[starts[k] : starts[k + 1]])
            for name, value in zip(counted.records, values, strict=True):
                point[name] = value[order]
        self._seen = {name: point[name] for name in self._program.records}
        self._counts = counts

    def _learn(self, info: count_states.Info) -> None:
        """Adapt all moves to what has just happened."""
        target = TRAJECTORY_ACCEPT if self._program.gradients else WALK_ACCEPT
        self.centred = tuning.rescale(self.centred, info.centred_accept, target)
        block = tuning.rescale(self.block, info.block_accept, count_states.BLOCK_ACCEPT)
        self.block = block._replace(log_scale=min(block.log_scale, 0.0))
        walk = tuning.observe(self.noncentred, info.shift)
        walk = tuning.rescale(walk, info.noncentred_accept, WALK_ACCEPT)
        self.noncentred = tuning.learn_factor_in_time(walk, self.tune_steps)

    def _statistics(self, info: count_states.Info) -> dict[str, float]:
        return {
            "count_states_centred_accept": info.centred_accept,
            "count_states_noncentred_accept": info.noncentred_accept,
            "count_states_block_accept": info.block_accept,
            "count_states_centred_scale": self.centred.scale,
            "count_states_noncentred_scale": self.noncentred.scale,
            "count_states_block_fraction": self.block.scale,
        }


class _Made(NamedTuple):
    """Databases written by counts, and what was compiled for them."""

    counted: list[CountedDatabase]
    cells: count_states.Cells
    program: ParameterProgram
    certifier: Certifier


def _count(model, vars: Any, compile_kwargs: dict | None) -> _Made:
    """Write the databases of some variables by counts, or raise `NotCounted`."""
    values = get_value_vars_from_user_vars(vars, model)
    rvs = [model.values_to_rvs[value] for value in values]
    records = [rv for rv in rvs if is_record(rv)]
    if not records:
        raise NotCounted("none of these variables are records")
    if len(records) == len(rvs):
        raise NotCounted("none of these variables are parameters")
    counted = count_databases(model, records)
    parameters = [v for v, rv in zip(values, rvs, strict=True) if not is_record(rv)]
    cells, certifier = moves_of(counted), Certifier(model, [v.name for v in parameters])
    program = compile_counts(model, parameters, counted, compile_kwargs)
    compared = compare_counts(program, counted, cells, certifier.reference, certifier.pairs)
    if wrong := disagreements(compared):
        logging.getLogger("pymc").warning(
            "Counts instead of records disagree with the model and are not used: %s.", wrong[0]
        )
        raise NotCounted(str(wrong[0]))
    return _Made(counted, cells, program, certifier)
