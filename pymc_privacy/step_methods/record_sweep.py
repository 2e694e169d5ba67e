"""Courier of `pymc_privacy.algorithms.record_sweep` inside `pm.sample`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar

from pymc_privacy._compat import (
    StepMethodState,
    dataclass_state,
)
from pymc_privacy.certificate.base import Comparison
from pymc_privacy.certificate.certifier import Certifier, after_tuning
from pymc_privacy.model.database import find_databases
from pymc_privacy.model.marks import is_record
from pymc_privacy.model.points import Point
from pymc_privacy.step_methods.base import Courier, reals
from pymc_privacy.step_methods.sweep import Sweep, sweep_statistics


@dataclass_state
class RecordSweepState(StepMethodState):
    """What a resumed chain needs besides its point; contributions follow from the point."""

    tune: bool


class RecordSweep(Courier):
    """Update every confidential record once, given the parameters and all releases.

    Chosen by `pm.sample` for the records of every :class:`~pymc_privacy.Privatized`.
    Records are proposed from their own model, so the step needs no tuning.

    Parameters
    ----------
    vars : list of TensorVariable, optional
        Record variables; all of the model's by default.
    model, rng, initial_point, compile_kwargs, blocked
        As for every step method of PyMC.

    Raises
    ------
    RecordError
        If the model has no records, a variable is none, or something mixes records.
    ReleaseError
        If a release of the records is not observed.
    CertificateError
        If what was compiled disagrees with the model.
    ArgumentError
        If an option is not the number or the flag that it must be.

    See Also
    --------
    Interweave : Moves records together with their parameters.
    CountStates : Knows records by their counts.
    sample : Chooses the step.
    plot_acceptance : Draw the acceptance and its bound.

    Notes
    -----
    Statistics: ``record_sweep_accept``, the fraction of records that took their proposal,
    and ``record_sweep_accept_min``, the smallest acceptance probability of the sweep, which
    is at least exp(-epsilon) when all releases together are epsilon-DP for the replacement
    of one record (Ju et al., 2022, Proposition 3.1).

    References
    ----------
    - Ju, N., Awan, J., Gong, R. and Rao, V. (2022), "Data augmentation MCMC for Bayesian inference
      from privatized data", Advances in Neural Information Processing Systems 35.

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
    default_tune_steps = 0
    stats_dtypes_shapes: ClassVar[dict] = reals(
        "record_sweep_accept",
        "record_sweep_accept_min",
    )
    _state_class = RecordSweepState
    shown: ClassVar[dict] = {"record_sweep_accept": "Records"}
    claims = staticmethod(is_record)

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
        what = "the records behind a Privatized release"
        model, rvs = self._choose_only_claimed(vars, model, rng, what)
        self.databases = find_databases(model, rvs)
        self._certifier = Certifier(model)
        self._sweeps = [
            Sweep(database, compile_kwargs, self._certifier) for database in self.databases
        ]

    def forget(self) -> None:
        """Drop the contributions of another chain."""
        for sweep in self._sweeps:
            sweep.forget()

    def _iterate(self, point: Point) -> dict[str, float]:
        return sweep_statistics([sweep.step(self.rng, point) for sweep in self._sweeps])

    def _compared(self, point: Point) -> Iterator[Comparison]:
        return self._certifier.compare_swept(
            after_tuning(point), [s.compiled for s in self._sweeps]
        )
