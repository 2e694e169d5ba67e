"""Courier of `pymc_privacy.algorithms.record_sweep` inside `pm.sample`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, ClassVar, Unpack

import numpy as np

from pymc_privacy.algorithms import record_sweep
from pymc_privacy.certificate.base import Comparison
from pymc_privacy.certificate.certifier import Certifier, after_tuning
from pymc_privacy.model.database import find_databases
from pymc_privacy.model.marks import is_record
from pymc_privacy.model.points import Point
from pymc_privacy.step_methods.base import Common, Courier, reals
from pymc_privacy.targets.record_sweep import RecordTarget


class RecordSweep(Courier):
    """Update every confidential record once, given the parameters and all releases.

    Chosen by `pm.sample` for the records of every :class:`~pymc_privacy.Privatized`.
    Records are proposed from their own model, so the step needs no tuning.

    Parameters
    ----------
    vars : list of TensorVariable, optional
        Record variables; all of the model's by default.
    %(arguments)s

    Raises
    ------
    RecordError
        If the model has no records, a variable is none, or something mixes records.
    %(unobserved)s
    %(refusals)s

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
    %(ju2022)s

    %(examples)s
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
    shown: ClassVar[dict] = {"record_sweep_accept": "Records"}
    claims = staticmethod(is_record)

    def __init__(self, vars: Any = None, **common: Unpack[Common]):
        what = "the records behind a Privatized release"
        model, rvs = self._choose_only_claimed(vars, common, what)
        self.databases = find_databases(model, rvs)
        self._certifier = Certifier(model)
        self._targets = [
            self._certifier.record_target(database, common.get("compile_kwargs"))
            for database in self.databases
        ]
        self._compile(model)

    def forget(self) -> None:
        """Drop the contributions of another chain."""
        for target in self._targets:
            target.forget()

    def _iterate(self, point: Point) -> dict[str, float]:
        return sweep_statistics([sweep(self.rng, point, target) for target in self._targets])

    def _compared(self, point: Point) -> Iterator[Comparison]:
        return self._certifier.compare_swept(after_tuning(point), self._targets)


def sweep(rng: np.random.Generator, point: Point, target: RecordTarget) -> record_sweep.Info:
    """Sweep the records of one database, writing new arrays into the entries of a point."""
    state = target.state_at(point)
    rows, fresh, ratio = target.draw(rng, point)
    state, info = record_sweep.step(
        rng, state, target.proposed, noise=target.noise, log_weight_ratio=ratio, rows=rows
    )
    target.write(point, state, info, fresh, rows)
    return info


def sweep_statistics(infos: Sequence[record_sweep.Info]) -> dict[str, float]:
    """Summarise the sweeps of several databases, or of none."""
    accept, smallest = record_sweep.summary(infos)
    return {"record_sweep_accept": accept, "record_sweep_accept_min": smallest}
