"""What all step methods do alike: choose variables, start chains, check, count acceptances."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

import numpy as np
from rich.progress import TextColumn
from rich.table import Column

from pymc_privacy._compat import (
    BlockedStep,
    Competence,
    TensorVariable,
    get_random_generator,
    get_value_vars_from_user_vars,
    modelcontext,
)
from pymc_privacy.certificate.base import Comparison
from pymc_privacy.certificate.certifier import Certifier
from pymc_privacy.errors import RecordError
from pymc_privacy.model.marks import sampler_of
from pymc_privacy.model.points import Point


def reals(*names: str) -> dict[str, tuple[type, list]]:
    """Return the types of statistics that are one real number each."""
    return {name: (np.float64, []) for name in names}


class Courier(BlockedStep):
    """Carries points between `pm.sample` and a kernel of `pymc_privacy.algorithms`.

    A step method says which variables it claims, what to compare with the model, and what one
    iteration does to a point.
    """

    default_blocked = True
    default_tune_steps = 1000
    machine_code: ClassVar[tuple[str, ...]] = ()
    """Attributes that belong to one process: another makes its own."""
    shown: ClassVar[Mapping[str, str]] = {}
    """Statistics in the progress bar, and the titles of their columns."""
    _certifier: Certifier
    tune: bool
    sampling_state: Any
    __signature__: inspect.Signature

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        # PyMC makes step methods by a __new__ of its own, which hides their arguments.
        signature = inspect.signature(cls.__init__)
        own = list(signature.parameters.values())[1:]
        cls.__signature__ = signature.replace(parameters=own)

    @classmethod
    def claims(cls, variable: TensorVariable) -> bool:
        """Tell whether this step method can move a variable, if it is asked to by name."""
        return sampler_of(variable) == cls.name

    def _compared(self, point: Point) -> Iterator[Comparison]:
        """Compare what was compiled with the model where a chain has come to."""
        raise NotImplementedError

    def _iterate(self, point: Point) -> dict[str, Any]:
        """Move a point, in place, and return the statistics of the move."""
        raise NotImplementedError

    def _choose(self, vars: Any, model: Any, rng: Any) -> tuple[Any, list[TensorVariable]]:
        """Take what to move, by default all that is claimed; return the model and its variables."""
        model = modelcontext(model)
        chosen = [rv for rv in model.free_RVs if self.claims(rv)] if vars is None else vars
        self.vars = get_value_vars_from_user_vars(chosen, model)
        self.rng = get_random_generator(rng)
        self.tune = True
        return model, [model.values_to_rvs[value] for value in self.vars]

    def _choose_only_claimed(
        self, vars: Any, model: Any, rng: Any, what: str
    ) -> tuple[Any, list[TensorVariable]]:
        """Do the same, and refuse variables that are not claimed; ``what`` says which ones are."""
        model, rvs = self._choose(vars, model, rng)
        strangers = ", ".join(repr(rv.name) for rv in rvs if not self.claims(rv))
        if strangers or not rvs:
            raise RecordError(
                f"{type(self).__name__} updates {what}; got {strangers or 'a model without any'}."
            )
        return model, rvs

    def __getstate__(self) -> dict:
        return self.__dict__ | dict.fromkeys(self.machine_code)

    def compile(self, point: Point) -> None:
        """Make one iteration and forget it: chains then share what was compiled."""
        state = self.sampling_state
        self.step(point)
        self.sampling_state = state
        self.forget()

    def setup_tuning(self, steps: int) -> None:
        """Forget what was learnt, and plan to learn for so many steps."""

    def forget(self) -> None:
        """Drop what was read from the point and the data of another chain."""

    def setup_chain(self, rng: np.random.Generator, tune: int, draws: int) -> None:
        """Take the chain's generator and its plan."""
        super().setup_chain(rng, tune, draws)
        self.setup_tuning(tune)
        self.tune = bool(tune)
        self._certifier.start_chain()
        self.forget()

    def stop_tuning(self) -> None:
        """Keep what was learnt, from here on."""
        self.tune = False

    def step(self, point: Point) -> tuple[Point, list[dict[str, Any]]]:
        """Carry a point through one iteration."""
        # Draws are recorded by position, so keys keep their order.
        point = point.copy()
        self._certifier.check_again(self.tune, lambda: self._compared(point))
        return point, [self._iterate(point)]

    @classmethod
    def competence(cls, var: TensorVariable, has_grad: bool) -> Competence:
        """Take what is marked for this step method, and nothing else."""
        return Competence.IDEAL if sampler_of(var) == cls.name else Competence.INCOMPATIBLE

    @classmethod
    def _progressbar_config(cls, n_chains: int = 1) -> tuple[list[TextColumn], dict]:
        columns = [
            TextColumn(f"{{task.fields[{name}]:0.2f}}", table_column=Column(title, ratio=1))
            for name, title in cls.shown.items()
        ]
        return columns, {name: [0.0] * n_chains for name in cls.shown}

    @classmethod
    def _make_progressbar_update_functions(cls) -> tuple[Any, ...]:
        return (lambda stats: {name: stats[name] for name in cls.shown},)
