"""Courier of `pymc_privacy.algorithms.count_states` inside `pm.sample`."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any, ClassVar, Unpack

from pymc_privacy._compat import get_value_vars_from_user_vars, modelcontext
from pymc_privacy.algorithms import count_states
from pymc_privacy.algorithms.adaptation import count_states as adaptation
from pymc_privacy.algorithms.adaptation.interweave import learn_curvature
from pymc_privacy.certificate.base import Comparison
from pymc_privacy.certificate.certifier import a_step_away, after_tuning
from pymc_privacy.certificate.counts import certified_counts, compare_counts
from pymc_privacy.errors import RecordError
from pymc_privacy.functions.calls import DirectCall
from pymc_privacy.model.cells import NotCounted
from pymc_privacy.model.database import check_locality
from pymc_privacy.model.points import Point
from pymc_privacy.step_methods.base import Common, Courier, reals
from pymc_privacy.step_methods.interweave import Interweave
from pymc_privacy.targets.by_address import StepByAddress
from pymc_privacy.targets.count_states import CountTarget


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
    %(arguments)s

    Raises
    ------
    RecordError
        If `vars` are none of the model, or left out and its records cannot be known by counts.
    %(unobserved)s
    %(refusals)s

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

    %(examples)s
    >>> with pm.Model():
    ...     p = pm.Beta("p", 1, 1)
    ...     x = pm.Bernoulli("x", p, shape=2000)
    ...     s = pmp.Privatized("s", x, pmp.Laplace(scale=2.0), observed=700.5)
    ...     step = pmp.CountStates()
    >>> step.vars
    [p_logodds__, x]
    """

    name = "count_states"
    stats_dtypes_shapes: ClassVar[dict] = reals(
        "count_states_centred_accept",
        "count_states_noncentred_accept",
        "count_states_block_accept",
        "count_states_centred_scale",
        "count_states_noncentred_scale",
        "count_states_block_fraction",
    )
    shown: ClassVar[dict] = {
        "count_states_block_accept": "Blocks",
        "count_states_noncentred_accept": "Moves",
    }
    machine_code = ("_step", "_arrange")
    _target: CountTarget

    def __new__(cls, vars: Any = None, **kwargs: Any) -> Any:
        """Make way for `Interweave` where `pm.sample` asks for what counts cannot do."""
        if vars is None:
            return super().__new__(cls, **kwargs)
        try:
            model = modelcontext(kwargs.get("model"))
            values = get_value_vars_from_user_vars(vars, model)
            made = certified_counts(model, values, kwargs.get("compile_kwargs"))
        except NotCounted:
            ours = ("centred_steps", "noncentred_steps", "blocks")
            return Interweave(vars, **{k: v for k, v in kwargs.items() if k not in ours})
        step = super().__new__(cls, vars, **kwargs)
        # Counting compiles and compares the model's graphs: once is enough.
        step._made = made
        return step

    def __getnewargs_ex__(self) -> tuple[tuple, dict]:
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
        **common: Unpack[Common],
    ):
        model, _ = self._choose(vars, common)
        try:
            self._made = self.__dict__.get("_made") or certified_counts(
                model, self.vars, common.get("compile_kwargs")
            )
        except NotCounted as reason:
            raise RecordError(
                "CountStates needs many confidential records with few different values, seen by "
                f"central releases alone; but {reason}. Use Interweave."
            ) from None
        self._target, self._certifier = self._made
        self.databases = [counted.database for counted in self._target.counted]
        self._plan = adaptation.plan(
            self._target.program.traits,
            self._target.cells,
            centred_steps=centred_steps,
            noncentred_steps=noncentred_steps,
            blocks=blocks,
        )
        self._step: StepByAddress | None = None
        self._arrange: Any = None
        self._compile(model)

    def _first(self, tune_steps: int) -> adaptation.Learnt:
        return adaptation.init(self._plan, tune_steps)

    def forget(self) -> None:
        """Read data anew, and count the records again."""
        if self._step is not None:
            self._step.forget()
        self._target.forget()

    def _iterate(self, point: Point) -> dict[str, float]:
        """Count the records, carry parameters and counts through all moves, write them back."""
        target, program, plan = self._target, self._target.program, self._plan
        held, counts = program.held_at(point), target.counts_at(point)
        state = count_states.State(program.flatten(point), counts)
        if self.tune:
            density = program.functions["centred"]
            self.learnt = learn_curvature(
                self.learnt, plan.traits, state.q, lambda: lambda q: density(q, *held, counts)
            )
        if self._step is None:
            self._step = StepByAddress(program, target.cells)
            self._arrange = DirectCall(count_states.arrange)
        state, info = self._step(self.rng, state, held, adaptation.settings(self.learnt, plan))
        point |= program.unflatten(state.q)
        target.write(point, state.counts, partial(self._arrange, self.rng))
        if self.tune:
            self.learnt = adaptation.learn(self.learnt, plan, info)
        return {
            "count_states_centred_accept": info.centred_accept,
            "count_states_noncentred_accept": info.noncentred_accept,
            "count_states_block_accept": info.block_accept,
            "count_states_centred_scale": self.learnt.centred.scale,
            "count_states_noncentred_scale": self.learnt.noncentred.scale,
            "count_states_block_fraction": self.learnt.block.scale,
        }

    def _compared(self, point: Point) -> Iterator[Comparison]:
        check_locality(self.databases, point)
        there = a_step_away(self._target.program, point, self.learnt.centred)
        return compare_counts(self._target, self._certifier.reference, after_tuning(point, there))
