"""From a database's mechanisms to the pure half's `Noise`."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytensor.tensor as pt
from numba import njit

from pymc_privacy._compat import compile_graph
from pymc_privacy.algorithms.noise import Formula, JointLaw, Noise, noise
from pymc_privacy.mechanisms import CoordinateMechanism, Mechanism
from pymc_privacy.model.columns import columns
from pymc_privacy.model.database import Database
from pymc_privacy.model.releases import contributions_of, groups_of


def noise_of(database: Database) -> Noise:
    """Collect the laws, values and parameters of all central releases of a database."""
    releases = database.observed
    laws: list[Formula | JointLaw] = []
    parameters: list[tuple[Any, ...]] = []
    widths, groups = [], []
    for variable, mechanism, release in zip(
        database.releases, database.mechanisms, releases, strict=True
    ):
        contributions = contributions_of(variable)
        widths.append(len(columns(contributions)))
        groups.append(groups_of(variable))
        if isinstance(mechanism, CoordinateMechanism):
            laws.append(mechanism.formula)
            parameters.append(mechanism.parameters)
        else:
            shape = (widths[-1],) if contributions.ndim == 2 else ()
            laws.append(_compiled_law(mechanism, np.shape(release), shape))
            parameters.append(())
    return noise(laws, releases, parameters, widths, groups)


def with_current_values(noise: Noise, database: Database) -> Noise:
    """Return the same laws with the releases as they are now: data can be set anew."""
    if not noise.laws:
        return noise
    values = [np.ravel(value) for value in database.observed]
    return noise._replace(release=np.concatenate(values, dtype=np.float64))


def _compiled_law(
    mechanism: Mechanism, release_shape: tuple[int, ...], statistic_shape: tuple[int, ...]
) -> JointLaw:
    """Compile a log density that is known only symbolically, to be called from jitted code."""
    release, statistic = (
        pt.tensor(name, dtype="float64", shape=shape or (1,))
        for name, shape in (("release", release_shape), ("statistic", statistic_shape))
    )
    arguments = (
        release if release_shape else release[0],
        statistic if statistic_shape else statistic[0],
    )
    value = pt.as_tensor(mechanism.log_density(*arguments)).sum()
    compiled: Any = compile_graph([release, statistic], value.astype("float64"), mode="NUMBA")
    log_density = compiled.vm.jit_fn

    @njit
    def function(release, statistic):  # type: ignore[no-untyped-def]
        return log_density(release, statistic)[0].item()

    return JointLaw(function)
