"""`Records` whose numbers are a vector, one for each public group."""

from __future__ import annotations

from typing import Any

import numpy as np

from pymc_privacy._compat import (
    Constant,
    Model,
    TensorVariable,
    Variable,
    ancestors,
    change_dist_size,
)
from pymc_privacy.arguments import integers, shown
from pymc_privacy.errors import RecordError
from pymc_privacy.model.group_sizes import number_of_groups, of_groups, plain_rows
from pymc_privacy.model.marks import Parameter, Record, mark
from pymc_privacy.model.support import possible


def check_by(name: str, size: Any, by: Any, capacity: Any) -> None:
    """Refuse a vector of numbers without groups, and public numbers, in a sentence."""
    public = not isinstance(size, Variable) or isinstance(size, Constant)
    if public and (by is not None or isinstance(size, list | tuple | np.ndarray)):
        raise RecordError(
            f"The size of {name!r} must be a random variable of the model; got public numbers. "
            "Records of public groups need no size: give them a shape, the sum of the numbers, and "
            "the release the group of each record, by=np.repeat(np.arange(len(numbers)), numbers)."
        )
    if by is None and isinstance(size, TensorVariable) and size.ndim == 1:
        raise RecordError(
            f"The size of {name!r} must be one number, or else by= must say of which group each "
            f"row is, as it does for the release; got {size!r} of shape {size.type.shape} and no "
            "by=. With at most 40 records in each of 8 groups, by=np.repeat(np.arange(8), 40)."
        )
    if by is not None and capacity is not None:
        raise RecordError(
            f"With by= the capacity of each group of {name!r} is its number of rows; got "
            f"capacity={shown(capacity)} too. Leave it out."
        )


def by_group(
    name: str, dist: TensorVariable, size: TensorVariable, by: Any, dims: Any, model: Model
) -> TensorVariable:
    """Add records of groups to a model."""
    dist, numbers = plain_rows(dist, model)
    _check_size(name, size, dist, model)
    said: Any = {
        "meaning": "the group of each row, counted from 0",
        "shapes": [("rows",)],
        "error": RecordError,
    }
    group = integers("by", by, **said).astype(np.int64)
    _check_room(name, size, group)
    if numbers is not None and (numbers[0] is not size or not np.array_equal(numbers[1], group)):
        raise RecordError(
            f"Records computed from others must have their size and groups; {name!r} has other "
            f"ones than those it is computed from, which have {numbers[0].name!r}."
        )
    rows = _with_rows(name, dist, len(group))
    records = model.register_rv(rows, name, dims=dims)
    mark(records, Record, "interweave")
    mark(size, Parameter, "interweave")
    return of_groups(records, size, group)


def _check_size(name: str, size: Any, dist: TensorVariable, model: Model) -> None:
    whole = isinstance(size, TensorVariable) and np.dtype(size.dtype).kind in "iu"
    if size not in model.free_RVs or not whole or size.ndim != 1 or size.owner.op.ndim_supp:
        raise RecordError(
            f"With by= the size of {name!r} must be a latent discrete random variable of the "
            "model, a vector with an independent number for each group, such as "
            f"pm.DiscreteUniform('n', 1, 40, shape=8); got {shown(size)}."
        )
    if size in set(ancestors([dist], blockers=model.basic_RVs)):
        raise RecordError(
            f"The law of a record of {name!r} must not depend on how many there are; it depends "
            f"on {size.name!r}."
        )


def _check_room(name: str, size: TensorVariable, group: np.ndarray) -> None:
    """Refuse groups with fewer rows than the prior of their number allows."""
    groups = number_of_groups(size)
    if not group.size or group.min() < 0 or group.max() >= groups:
        raise RecordError(
            f"by= must number the {groups} groups of {name!r} from 0 to {groups - 1}; got "
            f"{shown(group)}."
        )
    rows = np.bincount(group, minlength=groups)
    least, most = (np.broadcast_to(end, groups) for end in possible(size))
    if (least < 0).any():
        raise RecordError(
            f"The size of {name!r} must not be negative, because it is a number of records; but "
            f"the prior of {size.name!r} is not known to begin at 0 or more. pm.Truncated cuts a "
            "law off."
        )
    if (most > rows).any():
        first = int(np.argmax(most > rows))
        end = f"{most[first]:.0f}" if np.isfinite(most[first]) else "no end that is known"
        raise RecordError(
            f"by= must have as many rows of each group as {size.name!r} may have records there, "
            f"because rows are what can exist; group {first} of {name!r} has {rows[first]}, and "
            f"its prior ends at {end}. Give it more rows, or cut the prior off with pm.Truncated."
        )


def _with_rows(name: str, dist: TensorVariable, rows: int) -> TensorVariable:
    """Return the law with a row for each possible record."""
    batch = dist.ndim - dist.owner.op.ndim_supp
    if batch == 0:
        return change_dist_size(dist, (rows,), expand=True)
    if dist.type.shape[0] != rows:
        raise RecordError(
            f"The law of {name!r} must be that of one record, or have a row for each of by=, "
            f"{rows}; got shape {dist.type.shape}. Parameters of groups are looked up by row: "
            "pm.Normal.dist(theta[group], 1)."
        )
    return dist
