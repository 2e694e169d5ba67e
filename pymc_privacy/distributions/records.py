"""`Records`: confidential records whose number is not known."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytensor.tensor as pt

from pymc_privacy._compat import (
    AS_WRITTEN,
    Distribution,
    Model,
    RandomVariable,
    SymbolicRandomVariable,
    TensorVariable,
    _logprob_helper,
    ancestors,
    change_dist_size,
    check_new_name,
    modelcontext,
)
from pymc_privacy.arguments import integer, refusal, shown
from pymc_privacy.distributions.records_by_group import by_group, check_by
from pymc_privacy.errors import RecordError
from pymc_privacy.model.marks import Parameter, Record, mark
from pymc_privacy.model.prior_tail import reach_of_prior, rows_for_draws
from pymc_privacy.model.sized_records import OpenRecordsRV, RecordsRV, is_sized, size_of
from pymc_privacy.model.support import largest, support


class Records(Distribution):
    """Records of an unknown number: rows below ``size`` exist, and the others count nowhere.

    Under unbounded differential privacy the number of records is itself secret. It is a
    discrete random variable of the model here, and `pm.sample` moves it together with the
    records by :class:`~pymc_privacy.BirthDeath`.

    Parameters
    ----------
    name : str
    dist : TensorVariable
        The law of one record, made with ``.dist()``: ``pm.Normal.dist(mu, sigma)``. It may be
        computed from other `Records` of the same size, row by row.
    size : TensorVariable
        A discrete random variable of the model: one number, or with ``by`` one for each group.
    capacity : int, optional
        More records than this are ruled out, as if the prior of the size ended here. By default
        the upper bound of the size's prior; where a Poisson, negative binomial or geometric prior
        of known parameters has none, twice what it exceeds with probability 1e-40. Where the prior
        has no end and unknown parameters, nothing is ruled out: `sample` makes room for as many
        records as are met (Remark 5.5 of Awan et al.), and the arrays of the model, which other
        functions draw into, have twice as many rows as the largest of 2000 sizes from the prior.
    dims : str or sequence of str, optional
        The first names the rows.
    by : array_like of int, optional
        The public group of each row, counted from 0, where the size is a vector: of the rows of
        group g the first ``size[g]`` exist. There are as many rows of a group as it may have
        records, where the prior of its size must end. Such records are released by the same groups.

    Raises
    ------
    RecordError
        If the law is named or none, if the size is not a latent discrete variable of the model or
        may be negative, or if no capacity is known or it is too small.

    See Also
    --------
    capacity_for : A capacity from a noisy size.
    BirthDeath : The step that moves them.
    size_gap : Whether an unknown size matters.
    plot_size : Draw the posterior of the size.

    References
    ----------
    - Awan, J., Barrientos, A. F. and Ju, N. (2024), "Statistical inference for privatized data with
      unknown sample size", arXiv:2406.06231.

    Examples
    --------
    >>> import pymc as pm
    >>> import pymc_privacy as pmp
    >>> with pm.Model() as model:
    ...     p = pm.Beta("p", 1, 1)
    ...     n = pm.DiscreteUniform("n", 1, 200)
    ...     x = pmp.Records("x", pm.Bernoulli.dist(p), size=n)
    ...     yes = pmp.Privatized(
    ...         "yes", x, pmp.Laplace(epsilon=1.0, sensitivity=1.0), observed=37.2
    ...     )
    ...     n_dp = pmp.Privatized(
    ...         "n_dp", n, pmp.Laplace(epsilon=1.0, sensitivity=1.0), observed=101.9
    ...     )
    >>> x.type.shape
    (200,)

    Two regions, each with an unknown number of people, at most forty:

    >>> import numpy as np
    >>> region = np.repeat([0, 1], 40)
    >>> with pm.Model() as model:
    ...     p = pm.Beta("p", 1, 1, shape=2)
    ...     n = pm.DiscreteUniform("n", 1, 40, shape=2)
    ...     x = pmp.Records("x", pm.Bernoulli.dist(p[region]), size=n, by=region)
    ...     noise = pmp.Laplace(epsilon=1.0, sensitivity=1.0)
    ...     yes = pmp.Privatized("yes", x, noise, by=region, observed=[7.2, 21.9])
    ...     n_dp = pmp.Privatized("n_dp", n, noise, local=True, observed=[20.3, 31.4])
    >>> yes.type.shape
    (2,)
    """

    rv_type = RecordsRV

    def __new__(
        cls,
        name: str,
        dist: Any,
        *,
        size: Any,
        capacity: int | None = None,
        dims: Any = None,
        by: Any = None,
    ) -> TensorVariable:
        """Add the records to the model on the context stack."""
        model = modelcontext(None)
        check_new_name(name, model, RecordError)
        dims = (dims,) if isinstance(dims, str) else dims
        _check_law(name, dist)
        check_by(name, size, by, capacity)
        if by is not None:
            return by_group(name, dist, size, by, dims, model)
        size = _check_size(name, size, dist, model)
        op = RecordsRV
        if capacity is None:
            capacity, op = _capacity(name, size, dims, model)
        rows = _with_rows(name, dist, size, _check_capacity(name, capacity, size))
        records = op.rv_op(rows, size)
        records = model.register_rv(
            records, name, dims=dims, default_transform=None, transform=None
        )
        mark(records, Record, "birth_death")
        mark(size, Parameter, "birth_death")
        return records

    @classmethod
    def dist(cls, *args: Any, **kwargs: Any) -> TensorVariable:
        """Refuse: the number of records is shared with the model's other variables."""
        raise RecordError("Records belong to a model, because their number does; they need a name.")


def _check_law(name: str, dist: Any) -> None:
    op = getattr(getattr(dist, "owner", None), "op", None)
    if not isinstance(op, RandomVariable | SymbolicRandomVariable):
        raise RecordError(
            f"The law of {name!r} must be an unnamed distribution, such as "
            f"pm.Normal.dist(mu, sigma), because a record is drawn from it; got {shown(dist)}."
        )
    if dist.name is not None:
        raise RecordError(
            f"The law of {name!r} must be unnamed, because the records are the variable; "
            f"got {dist.name!r}. Write pm.Normal.dist(...) for pm.Normal(name, ...)."
        )


def _check_size(name: str, size: Any, dist: TensorVariable, model: Model) -> TensorVariable:
    if not isinstance(size, TensorVariable):
        wanted = "a discrete random variable of the model"
        raise refusal(f"The size of {name!r}", wanted, size, error=RecordError)
    if size in model.observed_RVs:
        raise RecordError(
            f"The size of {name!r} must be latent; got {size.name!r}, which is observed. If the "
            "number of records is public, give the records that shape."
        )
    if size not in model.free_RVs or size.ndim or np.dtype(size.dtype).kind not in "iu":
        raise RecordError(
            f"The size of {name!r} must be a discrete random variable of the model, a single "
            f"number such as pm.DiscreteUniform('n', 1, 1000), because its prior is needed; "
            f"got {size!r}. If the number of records is public, give the records that shape."
        )
    # A parameter may depend on the size: given that parameter, records do not.
    if size in set(ancestors([dist], blockers=model.basic_RVs)):
        raise RecordError(
            f"The law of a record of {name!r} must not depend on how many there are, because "
            f"records come and go one by one; it depends on {size.name!r}."
        )
    if support(size)[0] < 0 or _may_be(size, -1):
        raise RecordError(
            f"The size of {name!r} must not be negative, because it is a number of records; but "
            f"the prior of {size.name!r} allows it. Let it begin at 0, or at 1: pm.Truncated cuts "
            "a law off."
        )
    return size


def _may_be(size: TensorVariable, number: int) -> bool:
    """Tell whether the prior of a size allows a number, at draws of its own parameters."""
    density = _logprob_helper(size, pt.constant(np.array(number, dtype=size.dtype)))
    try:
        return bool(np.isfinite(density.eval(mode=AS_WRITTEN)))
    except (ArithmeticError, AssertionError, NotImplementedError, ValueError):
        # Where its parameters cannot be drawn, or have no such law, nothing is known.
        return False


def _with_rows(
    name: str, dist: TensorVariable, size: TensorVariable, capacity: int
) -> TensorVariable:
    """Return the law with one row per possible record."""
    above = [rv for rv in ancestors([dist]) if is_sized(rv)]
    for rv in above:
        if size_of(rv) is not size or rv.type.shape[0] != capacity:
            raise RecordError(
                f"Records computed from others must have their size and capacity: {name!r} has "
                f"{size.name!r} and {capacity}, and {rv.name!r} has {size_of(rv).name!r} and "
                f"{rv.type.shape[0]}."
            )
    batch = dist.ndim - dist.owner.op.ndim_supp
    if not above:
        return change_dist_size(dist, (capacity,), expand=True)
    if batch == 0 or dist.type.shape[0] not in (None, capacity):
        raise RecordError(
            f"Records computed from others must have one row for each of them; {name!r} has "
            f"shape {dist.type.shape} and capacity {capacity}."
        )
    return change_dist_size(dist, (capacity, *(dist.shape[k] for k in range(1, batch))))


def _check_capacity(name: str, capacity: Any, size: TensorVariable) -> int:
    said: Any = {"meaning": "the largest number of records considered", "error": RecordError}
    capacity = integer(f"The capacity of {name!r}", capacity, least=1, **said)
    least = int(support(size)[0])
    if capacity < least:
        raise RecordError(
            f"The capacity of {name!r} must have room for the smallest size that the prior of "
            f"{size.name!r} allows, {least}; got {capacity}."
        )
    return int(capacity)


def _capacity(
    name: str, size: TensorVariable, dims: Any, model: Model
) -> tuple[int, type[RecordsRV]]:
    """Return the length of the rows' dimension, or how far the prior reaches."""
    if dims and dims[0] in model.dim_lengths:
        return int(model.dim_lengths[dims[0]].eval()), RecordsRV
    bound = largest(size)
    if bound is not None:
        return int(bound), RecordsRV
    reach = reach_of_prior(size)
    if reach is None:
        rows = rows_for_draws(size)
        if rows is not None:
            return rows, OpenRecordsRV
        raise RecordError(
            f"The size prior of {name!r} has no upper bound that is known, and draws from it reach "
            "too far for arrays to be made or cannot be made, so capacity= must say "
            "how many records to consider at most: enough that more are out of the question. "
            "pmp.capacity_for(release, mechanism) finds it from a noisy size; got no capacity."
        )
    # Twice as far, so that jumps from where the prior ends have room.
    return max(1, 2 * reach), RecordsRV
