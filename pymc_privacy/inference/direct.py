"""Records of few values that nothing ties together are summed out: no database is drawn.

The likelihood is then a function like any other (`pymc_privacy.densities.summed_out`), which is
maximised by a quasi-Newton method, and its values have no error.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from scipy.optimize import minimize

from pymc_privacy._compat import Model
from pymc_privacy.algorithms import ascent
from pymc_privacy.algorithms.ascent import Ending, Information, Settings, Step
from pymc_privacy.algorithms.numerics.differences import curvature
from pymc_privacy.algorithms.tempering import Value
from pymc_privacy.densities.summed_out import summed_out
from pymc_privacy.functions.calls import CompiledCall
from pymc_privacy.inference.climbing import ImputedProblem
from pymc_privacy.inference.problem import Climbed, Problem
from pymc_privacy.model.database import find_databases
from pymc_privacy.model.points import Point
from pymc_privacy.model.settable import with_settable_data
from pymc_privacy.model.sized_records import is_sized
from pymc_privacy.targets.ascent import AscentTarget, compile_direct, records_of


class DirectProblem(Problem):
    """The likelihood of a model whose records are summed out, and its derivatives."""

    def __init__(self, model: Model, target: AscentTarget, twin: Model, data: Any):
        super().__init__(model, twin, data, target)
        self._call = {name: CompiledCall(f) for name, f in target.program.functions.items()}

    def _log_likelihood(self, q: np.ndarray, penalised: bool) -> tuple[float, np.ndarray]:
        held = tuple(self.point[name] for name in self.target.program.held)
        value, gradient = (np.array(part) for part in self._call["direct"](q, *held))
        if penalised:
            more, slope = self._call["penalty"](q, *held)
            value, gradient = value + more, gradient + slope
        return float(value), gradient

    def value(self, q: np.ndarray, rng: np.random.Generator, error: float = 0.05) -> Value:
        """Return the log likelihood, which has no error."""
        return Value(self._log_likelihood(np.asarray(q, float), False)[0], 0.0)

    def difference(
        self, a: np.ndarray, b: np.ndarray, rng: np.random.Generator, effort: float = 1.0
    ) -> Value:
        """Return a difference of log likelihoods, which has no error."""
        return Value(self.value(a, rng).value - self.value(b, rng).value, 0.0)

    def slope(
        self,
        q: np.ndarray,
        settings: Settings,
        rng: np.random.Generator,
        penalised: bool,
    ) -> tuple[float, float]:
        """Return the score of one coordinate, which has no variance."""
        return float(self._log_likelihood(q, penalised)[1][settings.free[0]]), 0.0

    def climb(
        self,
        starts: Sequence[np.ndarray],
        rng: np.random.Generator,
        *,
        settings: Settings | None = None,
        tolerance: float,
        max_sweeps: int,
        penalised: bool = False,
        watch: Callable[[int, Step], None] = lambda start, step: None,
        wholly: bool = False,
    ) -> Climbed:
        """Maximise from several starts; those that come to the same place are one maximum."""
        settings = self.settings if settings is None else settings
        found, paths = [], []
        for k, q in enumerate(starts):
            path = [Step(q, 0, math.nan, "far")]

            def told(z: np.ndarray, k: int = k, q: np.ndarray = q, path: list = path) -> None:
                path.append(Step(_with(q, settings, z), len(path), math.nan, "direct"))
                watch(k, path[-1])

            found.append(self._maximise(q, settings, penalised, told))
            paths.append(path)
        which = ascent.together(found, lambda a, b: ascent.agree(a.q, b.q, a.information, settings))
        return Climbed(ascent.nearest(found, which), which, [end.q for end in found], paths)

    def follow(
        self, q: np.ndarray, settings: Settings, rng: np.random.Generator, *, penalised: bool
    ) -> np.ndarray:
        """Return the maximum over the coordinates that are free."""
        return self._maximise(q, settings, penalised, lambda z: None).q

    def database_point(self, q: np.ndarray, rng: np.random.Generator) -> Point:
        """Return a point of the model: nothing depends on its databases."""
        return self.point

    def _maximise(
        self, q: np.ndarray, settings: Settings, penalised: bool, told: Callable[..., None]
    ) -> Ending:
        free = settings.free

        def negative(z: np.ndarray) -> tuple[float, np.ndarray]:
            with np.errstate(all="ignore"):
                value, gradient = self._log_likelihood(_with(q, settings, z), penalised)
            if not math.isfinite(value):
                return 1e300, np.zeros(len(z))
            return -value, -gradient[free]

        bounds = list(zip(*(bound[free] for bound in settings.bounds), strict=True))
        found = minimize(
            negative, q[free], jac=True, method="L-BFGS-B", bounds=bounds, callback=told,
            options={"ftol": 1e-14, "gtol": 1e-10, "maxiter": 1000},
        )  # fmt: skip
        there = _with(q, settings, found.x)
        score = self._log_likelihood(there, penalised)[1][free]
        information = curvature(lambda z: self._log_likelihood(z, penalised)[1], there)
        here = ascent.metric(Information(information, information), settings)
        return Ending(
            q=there,
            distance=here.length(here.step(score)),
            distance_error=0.0,
            score=score,
            covariance=np.zeros((len(free),) * 2),
            information=Information(information, information),
            sweeps=0,
            error=0.0,
        )


def _with(q: np.ndarray, settings: Settings, z: np.ndarray) -> np.ndarray:
    there = q.copy()
    there[settings.free] = z
    return there


def direct_problem(model: Model) -> DirectProblem | None:
    """Return the problem of a model whose records can be summed out, or None."""
    twin, data = with_settable_data(model)
    databases = find_databases(twin, records_of(twin))
    if any(d.releases for d in databases) or (density := summed_out(twin, databases)) is None:
        return None
    return DirectProblem(model, compile_direct(twin, density), twin, data)


def make_problem(model: Model) -> Problem:
    """Compile a model, with its records summed out where that can be done."""
    if not any(is_sized(rv) for rv in model.free_RVs):
        direct = direct_problem(model)
        if direct is not None:
            return direct
    return ImputedProblem(model)
