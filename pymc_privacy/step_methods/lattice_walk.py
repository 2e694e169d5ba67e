"""Courier of `pymc_privacy.algorithms.lattice_walk` inside `pm.sample`."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, ClassVar

import numpy as np

from pymc_privacy._compat import (
    StepMethodState,
    dataclass_state,
)
from pymc_privacy.algorithms import lattice_walk
from pymc_privacy.algorithms.proposals import poisson_carry
from pymc_privacy.certificate.base import Comparison, certified
from pymc_privacy.certificate.certifier import Certifier, after_tuning, half_a_step
from pymc_privacy.certificate.counts import Lattice, compare_lattice
from pymc_privacy.distributions.linear_measurements import (
    exact_totals,
    is_exact,
    measurements_of,
)
from pymc_privacy.step_methods.base import Courier, reals
from pymc_privacy.targets.lattice_walk import (
    carry_program,
    check_cells,
    compile_cell_density,
    fibre,
    noisy_totals,
)
from pymc_privacy.targets.record_sweep import Point


@dataclass_state
class LatticeWalkState(StepMethodState):
    """What a resumed chain needs besides its point."""

    tune: bool
    steps: int
    scales: list[np.ndarray]
    shapes: list[poisson_carry.Shape]


class LatticeWalk(Courier):
    """Update latent counts, given noisy totals of them and keeping all exact ones.

    Chosen by `pm.sample` for the counts of every :class:`~pymc_privacy.LinearMeasurements`. Cells
    move alone where no exact total holds them, and exchange counts with cells that are held by
    the same totals. Where exact totals cross (the margins of a table with two ways), vectors of
    the integer kernel of the totals are added too, so that all tables can be reached. Poisson
    counts also move together with their parameters, up to 50 of them, which matters where there
    is much noise.

    Parameters
    ----------
    vars : list of TensorVariable, optional
        Counts; all of the model's by default.
    sweeps : int, default 10
        How often every cell is moved, alone and in a pair, in one draw.
    carries : int, default 20
        How often parameters are moved with the counts carried along, in one draw.
    model, rng, initial_point, compile_kwargs, blocked
        As for every step method of PyMC.

    Raises
    ------
    RecordError
        If the model has no such counts, a variable is none, or something mixes them.
    CertificateError
        If what was compiled disagrees with the model.
    ArgumentError
        If an option is not the number or the flag that it must be.

    See Also
    --------
    LinearMeasurements : What the counts are measured by.
    pm.sample : Chooses the step; takes ``lattice_walk={...}``.

    Notes
    -----
    Statistics: ``lattice_walk_accept``, ``lattice_walk_pair_accept`` and
    ``lattice_walk_direction_accept``, the fractions of moves of each kind that were accepted, and
    ``lattice_walk_carry_accept``, that of parameters with counts; nan where there are none.

    Examples
    --------
    >>> import pymc as pm
    >>> import pymc_privacy as pmp
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
        ),
    }
    _state_class = LatticeWalkState
    shown: ClassVar[dict] = {"lattice_walk_accept": "Counts"}

    def __init__(
        self,
        vars: Any = None,
        *,
        sweeps: int = 10,
        carries: int = 20,
        model: Any = None,
        rng: Any = None,
        initial_point: Point | None = None,
        compile_kwargs: dict | None = None,
        blocked: bool = True,
    ):
        what = "the counts behind LinearMeasurements"
        model, rvs = self._choose_only_claimed(vars, model, rng, what)
        self._sweeps, self._carries = sweeps, carries
        self._model, self._rvs = model, rvs
        self._certifier = Certifier(model)
        self._lattices = [self._certified(rv, compile_kwargs) for rv in rvs]
        self.setup_tuning(0)

    def _certified(self, rv, compile_kwargs: dict | None) -> Lattice:
        """Compile the moves of counts, and refuse to go on where they disagree with the model."""
        model, certifier, moves = self._model, self._certifier, fibre(self._model, rv)
        lattice = Lattice(
            model.rvs_to_values[rv].name,
            noisy_totals(model, rv),
            moves,
            compile_cell_density(model, rv, compile_kwargs),
            carry_program(model, rv, moves, compile_kwargs) if self._carries else None,
            exact_totals(model, rv)[0],
            [m.name for m in measurements_of(model, rv) if is_exact(m)],
        )
        return certified(
            [lambda: lattice],
            lambda made: compare_lattice(made, certifier.reference, certifier.pairs),
            what=f"the counts {rv.name!r}",
        )

    def setup_tuning(self, steps: int) -> None:
        """Forget what was learnt."""
        self.steps = 0
        self.scales = [np.full((2, t.noisy.starts.size - 1), 2.0) for t in self._lattices]
        widths = [t.carry.width if t.carry else 0 for t in self._lattices]
        self.shapes = [poisson_carry.first_shape(width) for width in widths]

    def _iterate(self, point: Point) -> dict[str, Any]:
        """Make some sweeps of each vector of counts."""
        rate = lattice_walk.adaptation_rate(self.steps) if self.tune else 0.0
        infos, carried = [], []
        for k, (scales, lattice) in enumerate(zip(self.scales, self._lattices, strict=True)):
            carried.append(self._carry(k, point))
            cells = _CellDensity(lattice.density, point)
            state = lattice_walk.init(point[lattice.name], lattice.noisy, cells)
            state, info = lattice_walk.step(
                self.rng,
                state,
                measurements=lattice.noisy,
                fibre=lattice.fibre,
                density=cells,
                scales=scales,
                sweeps=self._sweeps,
                rate=rate,
            )
            point[lattice.name] = state.counts.astype(point[lattice.name].dtype)
            infos.append(info)
        self.steps += 1
        means = [float(np.mean(kind)) for kind in [*zip(*infos, strict=True), carried]]
        names = list(self.stats_dtypes_shapes)[1:]
        return {"tune": self.tune, **dict(zip(names, means, strict=True))}

    def _compared(self, point: Point) -> Iterator[Comparison]:
        for rv, lattice, shape in zip(self._rvs, self._lattices, self.shapes, strict=True):
            check_cells(self._model, rv, point)
            pairs, program = after_tuning(point), lattice.carry
            if program is not None:
                length = math.exp(shape.log_length)
                there = half_a_step(program.vector(point), shape.root, length)
                pairs = after_tuning(point, point | program.split(point, there))
            yield from compare_lattice(lattice, self._certifier.reference, pairs)

    def _carry(self, k: int, point: Point) -> float:
        """Move the parameters of one vector of counts with the counts, in the point."""
        lattice = self._lattices[k]
        name, noisy, program = lattice.name, lattice.noisy, lattice.carry
        if program is None:
            return math.nan
        counts = np.array(point[name], dtype=np.int64)
        state, parameters, accepted = poisson_carry.step(
            self.rng,
            lattice_walk.State(counts, noisy.totals(counts), np.empty(0)),
            program.vector(point),
            measurements=noisy,
            groupings=program.groupings,
            program=program.at(point),
            shape=self.shapes[k],
            moves=self._carries,
            sees_counts=program.sees_counts,
        )
        point |= program.split(point, parameters)
        point[name] = state.counts.astype(point[name].dtype)
        if self.tune:
            self.shapes[k] = self.shapes[k].learn(parameters, accepted)
        return accepted


class _CellDensity:
    """The log density of each count, with all else held at a point."""

    def __init__(self, density: Any, point: Point):
        self._density, self._point = density, point

    def __call__(self, counts: np.ndarray) -> np.ndarray:
        return self._density(self._point, counts)
