"""Releases as variables of a model: their law, their contributions and their published values."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numba
import numpy as np
import pytensor.tensor as pt

from pymc_privacy._compat import (
    Apply,
    Cast,
    Model,
    RandomVariable,
    TensorVariable,
    Variable,
    _logprob,
    _support_point,
    numba_core_rv_funcify,
    numba_njit,
)
from pymc_privacy.arguments import reals
from pymc_privacy.errors import ReleaseError
from pymc_privacy.mechanisms import CoordinateMechanism, Mechanism
from pymc_privacy.model.columns import column_sums, group_sums


class PrivatizedRV(RandomVariable):
    """The release, drawn by the mechanism from the sum of the contributions over records.

    With ``groups``, a number of them, the sum is taken in each; the group of each record is a
    second parameter.
    """

    name = "privatized"
    _print_name = ("Privatized", "\\operatorname{Privatized}")
    __props__ = (*RandomVariable.__props__, "mechanism", "local", "groups")

    def __init__(
        self, *, mechanism: Mechanism, local: bool, groups: int | None = None, **props: Any
    ):
        self.mechanism = mechanism
        self.local = local
        self.groups = groups
        super().__init__(**props)

    def rng_fn(
        self, rng: np.random.Generator, *parameters: np.ndarray, size: Any = None
    ) -> np.ndarray:
        """Draw a release; seedable, and so for simulation only."""
        statistic = self.total(*parameters)
        return np.asarray(self.mechanism.simulate(rng, statistic)).astype(self.dtype)

    def total(self, contributions: np.ndarray, *group: Any) -> np.ndarray:
        """Return what the mechanism adds its noise to, for numbers; more arguments are ignored."""
        if self.groups is None:
            return contributions.sum(axis=0) if self.sums else contributions
        # As for a sum, truth values are counted.
        dtype = np.result_type(contributions.dtype, np.int64)
        total = np.zeros((self.groups, *contributions.shape[1:]), dtype)
        np.add.at(total, group[0], contributions)
        return total

    @property
    def sums(self) -> bool:
        """Whether the mechanism sees the total over records, rather than each value."""
        return not self.local and self.ndims_params[0] > 0

    def statistic(self, contributions: TensorVariable, *group: TensorVariable) -> TensorVariable:
        """Return what the mechanism adds its noise to."""
        if self.groups is not None:
            return group_sums(contributions, group[0], self.groups)
        return column_sums(contributions) if self.sums else contributions


@_logprob.register(PrivatizedRV)
def _privatized_logprob(
    op: PrivatizedRV,
    values: Sequence[TensorVariable],
    rng: Variable,
    size: Variable,
    *parameters: TensorVariable,
    **kwargs: Any,
) -> TensorVariable:
    [release] = values
    log_density = op.mechanism.log_density(release, op.statistic(*parameters))
    return log_density.sum() if op.sums and log_density.ndim else log_density


@_support_point.register(PrivatizedRV)
def _privatized_support_point(
    op: PrivatizedRV,
    rv: TensorVariable,
    rng: Variable,
    size: Variable,
    *parameters: TensorVariable,
) -> TensorVariable:
    statistic = op.statistic(*parameters)
    if rv.type.shape != statistic.type.shape:
        return pt.zeros(rv.shape, dtype=rv.dtype)
    return statistic.astype(rv.dtype)


@numba_core_rv_funcify.register(PrivatizedRV)
def _privatized_numba(op: PrivatizedRV, node: Apply) -> tuple[Any, int | None]:
    """Draw through the mechanism's own simulator, so that its law is written once."""
    dtype, ndim = node.outputs[1].type.numpy_dtype, op.ndim_supp
    returned = numba.types.Array(numba.from_dtype(dtype), ndim, "C")

    def simulate(rng: np.random.Generator, *parameters: np.ndarray) -> np.ndarray:
        # Exactly the declared rank and layout, which the machine code does not look at again.
        return np.asarray(op.rng_fn(rng, *map(np.asarray, parameters)), order="C")

    @numba_njit
    def draw(rng, contributions):  # type: ignore[no-untyped-def]
        with numba.objmode(release=returned):
            release = simulate(rng, contributions)
        return release

    @numba_njit
    def draw_by_group(rng, contributions, group):  # type: ignore[no-untyped-def]
        with numba.objmode(release=returned):
            release = simulate(rng, contributions, group)
        return release

    # A disk cache finds compiled code by the mechanism's repr, which shows a user's own
    # functions by their address only. The number is the edition of this function.
    chosen = draw if op.groups is None else draw_by_group
    return chosen, 2 if isinstance(op.mechanism, CoordinateMechanism) else None


def is_release(variable: TensorVariable) -> bool:
    """Tell whether a variable is a `Privatized` release."""
    return variable.owner is not None and isinstance(variable.owner.op, PrivatizedRV)


def contributions_of(release: TensorVariable) -> TensorVariable:
    """Return the contributions a release was made from."""
    return release.owner.op.dist_params(release.owner)[0]


def groups_of(release: TensorVariable) -> np.ndarray | None:
    """Return the group of each record, if a release is made group by group."""
    _, *group = release.owner.op.dist_params(release.owner)
    return group[0].data if group else None


def release_density(
    model: Model, release: TensorVariable, statistic: TensorVariable
) -> TensorVariable:
    """Return the log density of a published value, given the statistic behind it."""
    mechanism, value = release.owner.op.mechanism, model.rvs_to_values[release]
    return pt.as_tensor(mechanism.log_density(value, statistic)).sum()


def observed_value(model: Model, release: TensorVariable) -> np.ndarray:
    """Return the published value, checked again because data can be set after the fact."""
    value, op = model.rvs_to_values[release], release.owner.op
    # A cast to the release's integer type would hide fractions.
    if value.owner is not None and isinstance(getattr(value.owner.op, "scalar_op", None), Cast):
        [value] = value.owner.inputs
    value = value.eval(mode="FAST_COMPILE")
    return check_release(
        release.name,
        value,
        contributions_of(release),
        op.mechanism,
        local=op.local,
        groups=op.groups,
    )


def released_contributions(model: Model) -> list[TensorVariable]:
    """Return what records contribute to each release of a model."""
    return [contributions_of(rv) for rv in model.basic_RVs if type(rv.owner.op) is PrivatizedRV]


def release_shape(
    contributions: TensorVariable, mechanism: Mechanism, *, local: bool, groups: int | None = None
) -> tuple[int | None, ...]:
    """Return the static shape of the release."""
    shape = contributions.type.shape
    if groups is not None:
        return (groups, *shape[1:])
    return mechanism.local_shape(shape) if local else mechanism.release_shape(shape[1:])


def check_release(
    name: str,
    observed: Any,
    contributions: TensorVariable,
    mechanism: Mechanism,
    *,
    local: bool,
    groups: int | None = None,
) -> Any:
    """Return the observed release, which must be one the mechanism can produce."""
    value = release_numbers(name, observed)
    expected = release_shape(contributions, mechanism, local=local, groups=groups)
    fits = len(expected) == value.ndim and all(
        e in (None, v) for e, v in zip(expected, value.shape, strict=True)
    )
    if not fits:
        shape = contributions.type.shape
        if local:
            why, hint = "each record is released on its own", ""
        elif groups is not None:
            why, hint = f"there are {groups} groups, which come first", ""
        else:
            why = "records are on axis 0"
            hint = " If each record was released on its own, say local=True."
        raise ReleaseError(
            f"The release {name!r} must have shape {expected}, because the contributions have "
            f"shape {shape} and {why}; got observed of shape {value.shape}."
            f"{hint if value.shape == shape else ''}"
        )
    shape = contributions.type.shape
    must = mechanism.impossible(value, shape[1:] if groups is None and not local else expected)
    if must is not None:
        raise ReleaseError(f"The release {name!r} must {must}; got {value}.")
    return observed if isinstance(observed, Variable) else value


def release_numbers(name: str, observed: Any) -> np.ndarray:
    """Return the present value of a release; an entry that is masked is missing, not a number."""
    if isinstance(observed, Variable):
        observed = observed.eval(mode="FAST_COMPILE")
    if np.ma.is_masked(observed) and np.ma.getdata(observed).dtype.kind in "iuf":
        return np.ma.asarray(observed, dtype=np.float64).filled(np.nan)
    said: Any = {"wanted": "a number, or an array of numbers", "error": ReleaseError}
    # Answers may come as an array of True and False; a total does not.
    several = isinstance(observed, list | tuple) or getattr(observed, "ndim", 0) > 0
    return reals(f"The release {name!r}", observed, finite=False, flags=several, **said)
