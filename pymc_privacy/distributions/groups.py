"""Releases by group: which total each record enters, which must be public and fixed."""

from __future__ import annotations

from typing import Any

import numpy as np

from pymc_privacy._compat import Constant, Model, TensorVariable, Variable, ancestors
from pymc_privacy.arguments import integers, shown
from pymc_privacy.errors import MechanismError, RecordError, ReleaseError
from pymc_privacy.mechanisms import AdditiveMechanism, Mechanism, PostProcessed
from pymc_privacy.model.group_sizes import number_of_groups as length_of
from pymc_privacy.model.locality import number_of_rows
from pymc_privacy.model.releases import release_numbers
from pymc_privacy.model.sized_records import is_sized


def group_of_each_record(
    name: str, by: Any, contributions: TensorVariable, mechanism: Mechanism, model: Model
) -> np.ndarray:
    """Return the group of each record as integers from 0, or refuse it in a sentence."""
    if contributions.ndim == 0 or any(map(is_sized, ancestors([contributions]))):
        what = "a single number" if contributions.ndim == 0 else "those of an unknown number"
        raise RecordError(
            f"by= needs records of a known number, because it says of each which total of {name!r} "
            f"it enters; got contributions of {what}."
        )
    if not isinstance(mechanism, AdditiveMechanism | PostProcessed):
        raise MechanismError(
            f"A mechanism must add noise to each number alone to be used by group; that of "
            f"{name!r} is {mechanism!r}. Write one release for each group."
        )
    if isinstance(by, Constant):
        by = by.data
    if isinstance(by, Variable):
        raise ReleaseError(
            f"by= must be an array of public numbers, one for each record of {name!r}, because "
            f"groups that depend on records, or on data that can change, make another release; got "
            f"{by}. For groups that are confidential, release a column for each."
        )
    said: Any = {
        "meaning": "the group of each record, counted from 0; for labels see numpy.unique with "
        "return_inverse=True, or pandas.factorize",
        "shapes": [("n",)],
        "error": ReleaseError,
    }
    group = integers("by", by, **said)
    size = number_of_rows(contributions, model)
    if len(group) != size or group.min(initial=0) < 0:
        raise ReleaseError(
            f"by= must have the number of a group, 0 or more, for each of the {size} records of "
            f"{name!r}; got {shown(by)}."
        )
    return group.astype(np.int64)


def number_of_groups(
    name: str, group: np.ndarray, observed: Any, dims: Any, model: Model, contributions: Any
) -> int:
    """Return how many groups there are: of some there may be no record."""
    named = [dims] if isinstance(dims, str) else list(dims or ())
    groups = int(group.max(initial=0)) + 1
    shape = () if observed is None else release_numbers(name, observed).shape
    known = shape[0] if len(shape) == contributions.ndim else None
    if known is None and named and named[0] in model.coords and model.coords[named[0]] is not None:
        known = len(model.coords[named[0]])
    if known is None:
        return groups
    if groups > known:
        raise ReleaseError(
            f"by= must number the {known} groups of the release {name!r} from 0 to {known - 1}; "
            f"got {groups - 1}."
        )
    return known


def check_numbers(
    name: str,
    numbers: tuple[TensorVariable, np.ndarray],
    by: np.ndarray | None = None,
    groups: int | None = None,
) -> None:
    """Refuse a release of records of groups that is not one total for each of these groups."""
    size, group = numbers
    known = length_of(size)
    if by is None or not np.array_equal(by, group) or groups != known:
        raise ReleaseError(
            f"The release {name!r} must have one total for each group of its records, because "
            f"{size.name!r} says how many there are in each: give it by= as the records have it, "
            f"and as many groups as {size.name!r} has numbers, {known}; got "
            f"{'no by=' if by is None else f'other groups, {groups} of them'}."
        )
