"""Courier of `pymc_privacy.algorithms.lattice_walk` inside `pm.sample`."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, ClassVar, Unpack

import numpy as np

from pymc_privacy._compat import TensorVariable
from pymc_privacy.algorithms import lattice_walk
from pymc_privacy.algorithms.adaptation import lattice_walk as adaptation
from pymc_privacy.algorithms.proposals import poisson_carry
from pymc_privacy.certificate.base import Comparison, certified
from pymc_privacy.certificate.certifier import Certifier, after_tuning, half_a_step
from pymc_privacy.certificate.counts import compare_lattice
from pymc_privacy.model.points import Point
from pymc_privacy.step_methods.base import Common, Courier, reals
from pymc_privacy.targets.lattice_walk import LatticeTarget, check_cells, lattice_target


class LatticeWalk(Courier):
    """Update latent counts, given noisy totals of them and keeping all exact ones.

    Chosen by `pm.sample` for the counts of every :class:`~pymc_privacy.LinearMeasurements`. Cells
    move alone where no exact total holds them, and exchange counts with cells that the same totals
    hold, exact or noisy. Where exact totals cross (the margins of a table with two ways), vectors
    of their integer kernel are added, so that all tables can be reached. Poisson counts move with
    their parameters too; and all at once, as far as totals are nested, drawn given all else.

    Parameters
    ----------
    vars : list of TensorVariable, optional
        Counts; all of the model's by default.
    sweeps : int, default 10
        How often every cell is moved, alone and in a pair, in one draw.
    carries : int, default 20
        How often parameters are moved with the counts carried along, in one draw.
    %(arguments)s

    Raises
    ------
    RecordError
        If the model has no such counts, a variable is none, or something mixes them.
    %(refusals)s

    See Also
    --------
    LinearMeasurements : What the counts are measured by.
    pm.sample : Chooses the step; takes ``lattice_walk={...}``.

    Notes
    -----
    Statistics: ``lattice_walk_accept``, ``lattice_walk_pair_accept``,
    ``lattice_walk_direction_accept`` and ``lattice_walk_carry_accept``, the fractions of accepted
    moves, and ``lattice_walk_drawn``, of the cells drawn at once; nan where there are none.

    %(examples)s
    >>> with pm.Model() as model:
    ...     c = pm.Poisson("c", 4.0, shape=3)
    ...     y = pmp.LinearMeasurements(
    ...         "y",
    ...         c,
    ...         [[1, 1, 0], [0, 1, 1]],
    ...         pmp.DiscreteGaussian(scale=2.0),
    ...         observed=[9, 7],
    ...         invariants=([[1, 1, 1]], [12]),
    ...     )
    ...     idata = pm.sample(100, tune=100, chains=1, random_seed=1, progressbar=False, quiet=True)
    >>> set(idata.posterior["c"].sum("c_dim_0").values.ravel().tolist())
    {12}
    """

    name = "lattice_walk"
    stats_dtypes_shapes: ClassVar[dict] = {
        "tune": (np.bool_, []),
        **reals(
            "lattice_walk_accept",
            "lattice_walk_pair_accept",
            "lattice_walk_direction_accept",
            "lattice_walk_carry_accept",
            "lattice_walk_drawn",
        ),
    }
    shown: ClassVar[dict] = {"lattice_walk_accept": "Counts"}

    def __init__(
        self,
        vars: Any = None,
        *,
        sweeps: int = 10,
        carries: int = 20,
        **common: Unpack[Common],
    ):
        what = "the counts behind LinearMeasurements"
        model, rvs = self._choose_only_claimed(vars, common, what)
        self._sweeps, self._carries = sweeps, carries
        self._model, self._rvs = model, rvs
        self._certifier = Certifier(model)
        self._lattices = [self._certified(rv, common.get("compile_kwargs")) for rv in rvs]
        self._compile(model)

    def _certified(self, rv: TensorVariable, compile_kwargs: dict | None) -> LatticeTarget:
        """Compile the moves of counts, and refuse to go on where they disagree with the model."""
        reference, pairs = self._certifier.reference, self._certifier.pairs
        lattice = lattice_target(self._model, rv, compile_kwargs, carries=self._carries > 0)
        return certified(
            [lambda: lattice],
            lambda made: compare_lattice(made, reference, pairs),
            what=f"the counts {rv.name!r}",
        )

    def _first(self, tune_steps: int) -> tuple[adaptation.Learnt, ...]:
        return tuple(adaptation.init(*lattice.sizes) for lattice in self._lattices)

    def _iterate(self, point: Point) -> dict[str, Any]:
        """Carry counts along with their parameters, draw many at once, and make sweeps."""
        found, learnt = [], []
        for lattice, known in zip(self._lattices, self.learnt, strict=True):
            known, carried = self._carry(lattice, known, point)
            drawn = lattice.draw(self.rng, point)
            known, swept = self._sweep(lattice, known, point)
            learnt.append(known._replace(steps=known.steps + 1))
            found.append((*swept, carried, drawn))
        self.learnt = tuple(learnt)
        names = list(self.stats_dtypes_shapes)[1:]
        return {
            "tune": self.tune,
            **dict(zip(names, map(float, np.mean(found, axis=0)), strict=True)),
        }

    def _carry(
        self, lattice: LatticeTarget, learnt: adaptation.Learnt, point: Point
    ) -> tuple[adaptation.Learnt, float]:
        """Move the parameters of one vector of counts with the counts, in the point."""
        program = lattice.carry
        if program is None:
            return learnt, math.nan
        state, info = poisson_carry.step(
            self.rng,
            poisson_carry.init(program.layout.flatten(point), lattice.read(point), lattice.noisy),
            adaptation.carry_settings(learnt.carry, program.blocks, self._carries),
            measurements=lattice.noisy,
            groupings=program.groupings,
            program=program.at(point),
            sees_counts=program.sees_counts,
        )
        point |= program.layout.unflatten(state.parameters)
        lattice.write(point, state.counts)
        if self.tune:
            learnt = adaptation.learn_carries(learnt, program.blocks, state.parameters, info)
        return learnt, info.accept

    def _sweep(
        self, lattice: LatticeTarget, learnt: adaptation.Learnt, point: Point
    ) -> tuple[adaptation.Learnt, tuple[float, float, float]]:
        """Make some sweeps of one vector of counts, in the point."""
        density, infos = lattice.density_at(point), []
        state = lattice_walk.init(lattice.read(point), lattice.noisy, density)
        for _ in range(self._sweeps):
            state, info = lattice_walk.step(
                self.rng,
                state,
                learnt.walk,
                measurements=lattice.noisy,
                fibre=lattice.fibre,
                density=density,
            )
            infos.append(info)
            if self.tune:
                learnt = adaptation.learn(learnt, info)
        lattice.write(point, state.counts)
        return learnt, lattice_walk.accepted(infos)

    def _compared(self, point: Point) -> Iterator[Comparison]:
        for rv, lattice, learnt in zip(self._rvs, self._lattices, self.learnt, strict=True):
            check_cells(self._model, rv, point)
            pairs, program = after_tuning(point), lattice.carry
            if program is not None:
                layout, [shape, *_], [places, *_] = program.layout, learnt.carry, program.blocks
                there = layout.flatten(point)
                there[places] = half_a_step(there[places], shape.root, math.exp(shape.log_length))
                pairs = after_tuning(point, point | layout.unflatten(there))
            yield from compare_lattice(lattice, self._certifier.reference, pairs)
