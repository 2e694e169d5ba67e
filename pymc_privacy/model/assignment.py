"""Which step method a variable is left to, as marks on records and parameters."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from pymc_privacy._compat import Model, TensorVariable, TruncatedRV, ancestors
from pymc_privacy.model.cells import may_be_counted
from pymc_privacy.model.domains import may_leave_domain
from pymc_privacy.model.effects import shared_effects
from pymc_privacy.model.group_effects import group_effects
from pymc_privacy.model.group_sizes import counts_groups
from pymc_privacy.model.marks import Parameter, Record, is_record, mark, sampler_of, unmark
from pymc_privacy.model.sized_records import is_sized, sizes_of
from pymc_privacy.model.start import start_of

MOST_PARAMETERS = 200
# Step methods that move parameters together with their records.
_WITH_RECORDS = ("interweave", "count_states", "birth_death")


def assign_records(
    model: Model, records: Sequence[TensorVariable], contributions: Sequence[TensorVariable]
) -> None:
    """Mark new records, and with them all that came before: the parameters may be shared.

    Parameters
    ----------
    model : pm.Model
    records
        What was found behind a release; nothing, to look at a finished model again.
    contributions
        Those of all releases of the model.
    """
    together = [rv for rv in model.free_RVs if rv in records or is_record(rv)]
    effects = shared_effects(model, together, contributions)
    for rv in effects:
        unmark(rv)
    together = [rv for rv in together if rv not in effects]
    by_group = [rv for rv in model.free_RVs if counts_groups(rv)]
    fixed = {*together, *sizes_of(model), *by_group}
    for rv in model.free_RVs:
        if rv not in fixed and sampler_of(rv) in _WITH_RECORDS:
            unmark(rv)
    sized = [rv for rv in together if is_sized(rv)]
    taken = _carrying(model, sized) if sized else []
    for rv in taken:
        mark(rv, Parameter, "birth_death")
    known = [rv for rv in together if not is_sized(rv)]
    parameters = _carrying(model, known) if known else []
    # A parameter of both moves with the records of unknown number, which need it more.
    parameters = [rv for rv in parameters if rv not in taken]
    counted = bool(parameters) and not taken and all(map(may_be_counted, known))
    sampler = "count_states" if counted and not by_group else "interweave"
    for rv in known:
        mark(rv, Record, sampler if parameters or by_group else "record_sweep")
    for rv in parameters:
        mark(rv, Parameter, sampler)


def _carrying(model: Model, records: Sequence[TensorVariable]) -> list[TensorVariable]:
    """Return the parameters that may carry their records along: none that can leave their domain.

    The others are left to the sampler that looks at all densities of the model, NUTS. So are those
    of laws that are truncated by rejection: far out, where moves may look, that never ends.
    """
    found = _movable_parameters(model, records)
    rejected = any(isinstance(rv.owner.op, TruncatedRV) for rv in records)
    return [] if found and (rejected or may_leave_domain(model, records)) else found


def _movable_parameters(model: Model, records: Sequence[TensorVariable]) -> list[TensorVariable]:
    """Return the continuous parameters of records, or nothing when there are too many.

    All moves share one covariance, which many draws are needed to learn.
    """
    above = set(ancestors(records))
    found = [
        rv
        for rv in model.free_RVs
        if rv in above and rv not in set(records) and np.dtype(rv.dtype).kind == "f"
    ]
    point, known = start_of(model), group_effects(model, records)
    # Effects of groups move one by one, however many there are.
    effects = () if known is None else known.effects
    size = sum(point[model.rvs_to_values[rv].name].size for rv in found if rv not in effects)
    return found if size <= MOST_PARAMETERS else []
