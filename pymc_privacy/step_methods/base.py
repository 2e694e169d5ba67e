"""What all step methods do alike: choose variables, compile, start chains, check, carry."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar, TypedDict

import numpy as np
from rich.progress import TextColumn
from rich.table import Column

from pymc_privacy._compat import (
    BlockedStep,
    Competence,
    Model,
    StepMethodState,
    TensorVariable,
    dataclass_state,
    get_random_generator,
    get_value_vars_from_user_vars,
    modelcontext,
)
from pymc_privacy.certificate.base import Comparison
from pymc_privacy.certificate.certifier import Certifier
from pymc_privacy.errors import RecordError
from pymc_privacy.model.marks import sampler_of
from pymc_privacy.model.points import Layout, Point, layout_of, refuse_other_shapes
from pymc_privacy.model.start import start_of

# What several docstrings say alike; each names it as %(...)s.
_SAID_ALIKE = {
    "arguments": """\
model, rng, initial_point, compile_kwargs, blocked
    As for every step method of PyMC.""",
    "refusals": """\
CertificateError
    If what was compiled disagrees with the model.
ArgumentError
    If an option is not the number or the flag that it must be.""",
    "unobserved": """\
ReleaseError
    If a release of the records is not observed.""",
    "ju2022": """\
- Ju, N., Awan, J., Gong, R. and Rao, V. (2022), "Data augmentation MCMC for Bayesian inference
  from privatized data", Advances in Neural Information Processing Systems 35.""",
    "examples": """\
Examples
--------
>>> import pymc as pm
>>> import pymc_privacy as pmp""",
}


class Common(TypedDict, total=False):
    """Arguments of every step method, all by name."""

    model: Any
    rng: Any
    initial_point: Point | None
    compile_kwargs: dict | None
    blocked: bool


_DEFAULTS = dict.fromkeys(Common.__annotations__) | {"blocked": True}


@dataclass_state
class CourierState(StepMethodState):
    """What a resumed chain needs besides its point."""

    tune: bool
    learnt: Any
    """What tuning has learnt, as in `algorithms.adaptation`; None where there is nothing to."""
    beyond: Any
    """Records for which a point has no rows; None where there are none."""


def reals(*names: str) -> dict[str, tuple[type, list]]:
    """Return the types of statistics that are one real number each."""
    return {name: (np.float64, []) for name in names}


class Courier(BlockedStep):
    """Carries points between `pm.sample` and a kernel of `pymc_privacy.algorithms`.

    A step method says which variables it claims, what to compare with the model, what one
    iteration does to a point, and what is known before tuning.
    """

    default_blocked = True
    default_tune_steps = 1000
    machine_code: ClassVar[tuple[str, ...]] = ()
    """Attributes that belong to one process: another makes its own."""
    shown: ClassVar[Mapping[str, str]] = {}
    """Statistics in the progress bar, and the titles of their columns."""
    _state_class = CourierState
    _certifier: Certifier
    _plan: Any = None
    _layout: Layout
    tune: bool
    learnt: Any = None
    beyond: Any = None
    sampling_state: Any
    __signature__: inspect.Signature

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if cls.__doc__ is not None:
            cls.__doc__ = inspect.cleandoc(cls.__doc__)
            for name, text in _SAID_ALIKE.items():
                cls.__doc__ = cls.__doc__.replace(f"%({name})s", text)
        # PyMC makes step methods by a __new__ of its own, which hides their arguments; and those
        # that all have in common are written once.
        itself, *own = inspect.signature(cls.__init__).parameters.values()
        own = [p for p in own if p.name not in {"common", *_DEFAULTS}]
        own += [
            inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default)
            for name, default in _DEFAULTS.items()
        ]
        cls.__signature__ = inspect.Signature(own)
        cls.__init__.__signature__ = inspect.Signature([itself, *own])  # type: ignore[attr-defined]

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

    def _first(self, tune_steps: int) -> Any:
        """Return what is known before tuning."""
        return None

    def _stop(self) -> None:
        """Give up what tuning has found to be of no use."""

    def _choose(self, vars: Any, common: Common) -> tuple[Model, list[TensorVariable]]:
        """Take what to move, by default all that is claimed; return the model and its variables."""
        if unknown := common.keys() - _DEFAULTS.keys():
            raise TypeError(f"{type(self).__name__} has no argument {min(unknown)!r}.")
        model = modelcontext(common.get("model"))
        chosen = [rv for rv in model.free_RVs if self.claims(rv)] if vars is None else vars
        self.vars = get_value_vars_from_user_vars(chosen, model)
        self.rng = get_random_generator(common.get("rng"))
        self.tune = True
        self._layout = layout_of(start_of(model), [value.name for value in self.vars])
        return model, [model.values_to_rvs[value] for value in self.vars]

    def _choose_only_claimed(
        self, vars: Any, common: Common, what: str
    ) -> tuple[Model, list[TensorVariable]]:
        """Do the same, and refuse variables that are not claimed; ``what`` says which ones are."""
        model, rvs = self._choose(vars, common)
        strangers = ", ".join(repr(rv.name) for rv in rvs if not self.claims(rv))
        if strangers or not rvs:
            raise RecordError(
                f"{type(self).__name__} updates {what}; got {strangers or 'a model without any'}."
            )
        return model, rvs

    def _compile(self, model: Model) -> None:
        """Make machine code, by one iteration from where PyMC starts a model, which is forgotten.

        No number of the generator is spent: chains are what they would be without it.
        """
        rng, self.rng = self.rng, np.random.default_rng(0)
        self.setup_tuning(0)
        self._iterate(start_of(model))
        self.rng = rng
        self.setup_tuning(0)
        self.forget()

    def __getstate__(self) -> dict:
        return self.__dict__ | dict.fromkeys(self.machine_code)

    def setup_tuning(self, steps: int) -> None:
        """Forget what was learnt, and plan to learn for ``steps`` iterations."""
        self.learnt = self._first(steps)

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
        if self.tune:
            self._stop()
        self.tune = False

    def step(self, point: Point) -> tuple[Point, list[dict[str, Any]]]:
        """Carry a point through one iteration."""
        # Draws are recorded by position, so keys keep their order.
        point = point.copy()
        refuse_other_shapes(self._layout, point, type(self).__name__)
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
