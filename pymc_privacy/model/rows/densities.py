"""Log densities of records that PyMC writes with matrices, written out by coordinates."""

from __future__ import annotations

import math
from functools import singledispatch
from typing import Any

import pytensor.tensor as pt

from pymc_privacy._compat import CategoricalRV, Model, MvNormalRV, TensorVariable, law_parameters
from pymc_privacy.model.marks import is_record
from pymc_privacy.model.rows.expressions import MOST_UNROLLED
from pymc_privacy.reparameterise import reparameterisation_of
from pymc_privacy.reparameterise.multivariate import factor_of


def row_density(model: Model, factor: TensorVariable) -> TensorVariable | None:
    """Return the log density of records, one number each, where PyMC's own is not elementwise.

    Parameters outside their domain are not looked for: a model is checked where it starts.
    """
    if not is_record(factor) or model.rvs_to_transforms[factor] is not None:
        return None
    written = _row_density(factor.owner.op, factor, *law_parameters(factor))
    return None if written is None else model.replace_rvs_by_values([written])[0]


@singledispatch
def _row_density(
    op: Any, record: TensorVariable, *parameters: TensorVariable
) -> TensorVariable | None:
    return None


@_row_density.register(MvNormalRV)
def _normal_vector(
    op: Any, record: TensorVariable, mu: TensorVariable, covariance: TensorVariable
) -> TensorVariable | None:
    """With z = L⁻¹ (x - mu), return -|z|² / 2 - log det L - (d / 2) log 2 pi."""
    form = reparameterisation_of(record)
    if form is None or record.ndim != 2:
        return None
    z = form.inverse(record, None, mu, covariance)
    factor = factor_of(covariance)
    log_det = sum(pt.log(row[-1]) for row in factor)
    return -0.5 * (z**2).sum(axis=-1) - log_det - 0.5 * len(factor) * math.log(2 * math.pi)


@_row_density.register(CategoricalRV)
def _category(op: Any, record: TensorVariable, p: TensorVariable) -> TensorVariable | None:
    cells = p.type.shape[-1]
    if cells is None or cells > MOST_UNROLLED or record.ndim > 2:
        return None
    density = pt.constant(-math.inf)
    for k in range(cells):
        density = pt.switch(pt.eq(record, k), pt.log(p[..., k]), density)
    return density
