"""What must hold of the records and contributions behind a release, checked when it is written."""

from __future__ import annotations

from typing import Any

import numpy as np

from pymc_privacy._compat import Model, TensorVariable, Variable, ancestors
from pymc_privacy.errors import RecordError
from pymc_privacy.mechanisms import (
    Mechanism,
    RandomizedResponse,
    SetResponse,
    TableMechanism,
)
from pymc_privacy.model.drawable import can_be_drawn
from pymc_privacy.model.finite import refuse_data_that_are_not_numbers
from pymc_privacy.model.locality import parents
from pymc_privacy.model.support import finite_support


def check_data_behind(name: str, contributions: TensorVariable, model: Model) -> None:
    """Refuse data that are not numbers, in the contributions or in the laws behind them."""
    above = set(ancestors([contributions]))
    behind = [rv for rv in model.free_RVs if rv in above]
    refuse_data_that_are_not_numbers(
        model, {f"the contributions to {name!r}": contributions}, behind
    )


def refuse_dependent_rows(name: str, contributions: TensorVariable, model: Model) -> None:
    """Refuse a single draw of many numbers as a database: its rows depend on each other."""
    for rv in parents(contributions, model):
        one_draw = 0 < rv.ndim == rv.owner.op.ndim_supp
        rows = rv.type.shape[:1] in ((None,), contributions.type.shape[:1])
        if rv in model.free_RVs and contributions.ndim and one_draw and rows:
            raise RecordError(
                f"The records behind {name!r} must be independent given the parameters, so that "
                f"they can be updated one by one; but all of {rv.name!r} is one draw of "
                f"{type(rv.owner.op).__name__.removesuffix('RV')}, whose rows depend on each "
                "other. Where several numbers belong to one record, give each record a row; where "
                "records have a common cause, let it be a parameter of theirs."
            )


def check_draws(name: str, contributions: TensorVariable, model: Model) -> None:
    """Refuse records that have a density but no draws."""
    for rv in parents(contributions, model):
        if rv in model.free_RVs and rv.ndim and not can_be_drawn(model, rv):
            raise RecordError(
                f"The records behind {name!r} must have a law that can be drawn from, because "
                f"records are proposed from it; got {rv.name!r}, a "
                f"{type(rv.owner.op).__name__.removesuffix('RV')} without draws. Give a CustomDist "
                "random= or dist=."
            )


def check_integers(name: str, contributions: TensorVariable, mechanism: Mechanism) -> None:
    """Refuse fractions where noise is whole."""
    if mechanism.discrete and np.dtype(contributions.dtype).kind not in "iub":
        raise RecordError(
            f"The contributions to {name!r} must be integers, because {type(mechanism).__name__} "
            f"adds integer noise; got {contributions.dtype} values. If they are whole numbers, "
            "say so with .astype('int64')."
        )


def check_categories(
    name: str, contributions: TensorVariable, mechanism: Mechanism, *, local: bool
) -> None:
    """Refuse records that are known to have other values than there are categories."""
    if not isinstance(mechanism, RandomizedResponse | SetResponse | TableMechanism) or not local:
        return
    support = finite_support(contributions) if contributions.owner is not None else None
    known = mechanism.categories
    if support is None or known is None:
        return
    if support[0] < 0 or support[1] >= known:
        table = isinstance(mechanism, TableMechanism)
        hint = "Give a row for each." if table else "Give categories=."
        raise RecordError(
            f"The contributions to {name!r} must be from 0 to {known - 1}, because "
            f"there are {known} categories; got {contributions.name!r} with values "
            f"from {support[0]} to {support[1]}. {hint}"
        )


def start_at_possible_truths(
    contributions: TensorVariable, observed: Any, mechanism: Mechanism, model: Model
) -> None:
    """Let records start where they can have been released, if a release rules some truths out.

    Of thousands of records a draw from the prior always has some that cannot.
    """
    if not isinstance(mechanism, TableMechanism | SetResponse) or np.isfinite(mechanism.epsilon):
        return
    truths, own = mechanism.categories, contributions in model.free_RVs
    if truths is None or not own or isinstance(observed, Variable):
        return
    if model.rvs_to_initial_values.get(contributions) is None:
        logs = mechanism.log_density(np.asarray(observed), np.arange(truths).reshape(-1, 1))
        start = logs.argmax(axis=0).astype(contributions.dtype)
        model.rvs_to_initial_values[contributions] = start
