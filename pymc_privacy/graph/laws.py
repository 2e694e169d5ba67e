"""From a database's mechanisms to the pure half's `Noise`."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytensor.tensor as pt
from numba import njit

from pymc_privacy._compat import compile_graph
from pymc_privacy.algorithms.noise import JointLaw, Law, Noise, noise
from pymc_privacy.graph.database import Database
from pymc_privacy.mechanisms import AdditiveMechanism, Mechanism


def noise_of(database: Database) -> Noise:
    """Collect the laws, values and parameters of all central releases of a database."""
    releases = database.observed
    laws: list[Law | JointLaw] = []
    parameters = []
    for mechanism, release in zip(database.mechanisms, releases, strict=True):
        if isinstance(mechanism, AdditiveMechanism):
            laws.append(type(mechanism).formula)
            parameters.append(mechanism.parameters)
        else:
            laws.append(_compiled_law(mechanism, np.shape(release)))
            parameters.append((0.0, 0.0))
    return noise(laws, releases, parameters)


def _compiled_law(mechanism: Mechanism, shape: tuple[int, ...]) -> JointLaw:
    """Compile a log density that is known only symbolically, to be called from jitted code."""
    release, statistic = pt.vector("release"), pt.vector("statistic")
    arguments = (release, statistic) if shape else (release[0], statistic[0])
    value = pt.as_tensor(mechanism.log_density(*arguments)).sum()
    compiled: Any = compile_graph([release, statistic], value.astype("float64"), mode="NUMBA")
    log_density = compiled.vm.jit_fn

    @njit
    def function(release, statistic):
        return log_density(release, statistic)[0].item()

    return JointLaw(function)
