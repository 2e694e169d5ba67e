"""Normal records that are known by a clipped, noised value alone: integrated out, and drawn.

Given the parameters, such a record has with its release a density that is known in closed form,
with slopes, and given its release a law that is drawn from directly (`distributions` of the same
name). So parameters move by themselves, as where records of few values are summed out.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pytensor.tensor as pt

from pymc_privacy._compat import INTERPRETED, TensorVariable, ancestors
from pymc_privacy.distributions.clipped_records import (
    Clipped,
    clipped_record,
    closed_noise,
    log_density_in_closed_form,
    records_in_closed_form,
)
from pymc_privacy.model.database import Database
from pymc_privacy.model.releases import PrivatizedRV, contributions_of

# With so many records and noise so narrow, in units of the interval, imputing them is faster
# (`benchmarks/noisy_records.py`): parameters and records tell each other little of each other.
many_records = 3000
_NARROW = 0.4


class Answered(NamedTuple):
    """Records and their releases, in terms of the values of a model's variables."""

    value: TensorVariable
    release: TensorVariable
    clipped: Clipped
    mechanism: Any
    mu: TensorVariable
    sd: TensorVariable


def answered_records(database: Database) -> Answered | None:
    """Return Normal records with one local release each, clipped and noised.

    None for others, and where these are so many and the noise so narrow that imputing is faster.
    """
    model = database.model
    if database.releases or len(database.records) != 1 or len(database.record_factors) != 1:
        return None
    [record], [release] = database.records, database.record_factors
    op = release.owner.op if release.owner is not None else None
    if type(op) is not PrivatizedRV or not op.local:
        return None
    clipped = clipped_record(contributions_of(release))
    if clipped is None or clipped.record is not record:
        return None
    noise = closed_noise(record, op.mechanism)
    if noise is None or model.rvs_to_transforms[record] is not None:
        return None
    if set(model.basic_RVs) & set(ancestors([clipped.lower, clipped.upper])):
        return None
    if database.size > many_records and _is_narrow(clipped, op.mechanism):
        return None
    mu, sd = model.replace_rvs_by_values(list(record.owner.op.dist_params(record.owner)))
    values = model.rvs_to_values
    return Answered(values[record], values[release], clipped, op.mechanism, mu, sd)


def _is_narrow(clipped: Clipped, mechanism: Any) -> bool:
    """Tell whether the noise is narrow, on average over records."""
    lower, upper = (end.eval(mode=INTERPRETED) for end in (clipped.lower, clipped.upper))
    return bool(np.mean(mechanism.scale / (upper - lower)) < _NARROW)


def answered_density(answered: Answered) -> TensorVariable:
    """Return the log density of all releases, given the parameters."""
    _, release, clipped, mechanism, mu, sd = answered
    return log_density_in_closed_form(release, clipped, mechanism, mu, sd).sum()


def answered_draws(answered: Answered) -> TensorVariable:
    """Return draws of all records, given parameters and releases."""
    value, release, clipped, mechanism, mu, sd = answered
    rng = pt.random.shared_rng(seed=None)
    drawn = records_in_closed_form(rng, release, clipped, mechanism, mu, sd)
    return value.type.filter_variable(drawn.astype(np.dtype(value.dtype)))
