"""`NoisyRecord`: a clipped, noised record is observed, and integrated out exactly."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pymc as pm
import pytensor.tensor as pt

from pymc_privacy._compat import (
    Distribution,
    NormalRV,
    RandomVariable,
    TensorVariable,
    Variable,
    _logprob,
    _support_point,
    change_dist_size,
    check_new_name,
    modelcontext,
    support_point,
)
from pymc_privacy.arguments import reals, shown
from pymc_privacy.distributions.clipped_records import (
    clipped_record,
    log_density_in_closed_form,
)
from pymc_privacy.distributions.integrated_records import law_graphs, log_density_by_quadrature
from pymc_privacy.errors import MechanismError, RecordError, ReleaseError
from pymc_privacy.mechanisms import Gaussian, Laplace
from pymc_privacy.model.releases import PrivatizedRV, check_release


class NoisyRecordRV(PrivatizedRV):
    """The release of each record, drawn by the mechanism from a record that is drawn before it."""

    name = "noisy_record"
    _print_name = ("NoisyRecord", "\\operatorname{NoisyRecord}")


@_logprob.register(NoisyRecordRV)
def _noisy_record_logprob(
    op: NoisyRecordRV,
    values: Sequence[TensorVariable],
    rng: Variable,
    size: Variable,
    contributions: TensorVariable,
    **kwargs: Any,
) -> TensorVariable:
    [release] = values
    clipped = clipped_record(contributions)
    assert clipped is not None  # as `dist` has made it
    node = clipped.record.owner
    if not isinstance(node.op, NormalRV):
        return log_density_by_quadrature(release, clipped, op.mechanism)
    mu, sd = node.op.dist_params(node)
    return log_density_in_closed_form(release, clipped, op.mechanism, mu, sd)


@_support_point.register(NoisyRecordRV)
def _noisy_record_support_point(
    op: NoisyRecordRV,
    rv: TensorVariable,
    rng: Variable,
    size: Variable,
    contributions: TensorVariable,
) -> TensorVariable:
    clipped = clipped_record(contributions)
    assert clipped is not None
    return pt.clip(support_point(clipped.record), clipped.lower, clipped.upper).astype(rv.dtype)


class NoisyRecord(Distribution):
    r"""Clipped, noised records are observed; the records are integrated out, not sampled.

    Each user publishes :math:`y = \min(\max(x, l), u) + \text{noise}`, with a record x of any law
    and Laplace or Gaussian noise. The density

    .. math:: F(l) K(y - l) + (1 - F(u)) K(y - u) + \int_l^u f(x) K(y - x) dx

    and its gradient are known in closed form for Normal records, and by certified quadrature for
    others, so that NUTS samples the parameters alone.

    Parameters
    ----------
    name : str
    dist : TensorVariable
        The law of the records, unnamed: ``pm.Normal.dist(mu, sigma)``, or another law of real
        numbers of PyMC's own with a log density and a log cdf. One law for all is given the length
        of the release; parameters may differ from user to user.
    mechanism : Laplace or Gaussian
        Its scale may differ from user to user.
    lower, upper : float or array_like, optional
        The ends of the interval to which records are clipped, one for all or one for each. By
        default records are not clipped, which only Normal ones need not be.
    observed : array_like, optional
        The releases, one number for each record.
    dims : str or sequence of str, optional

    Raises
    ------
    RecordError
        If `dist` is not the unnamed law of independent real numbers, or one without a log cdf or
        without derivatives.
    MechanismError
        If the noise is neither Laplace nor Gaussian.
    ReleaseError
        If the release is no vector of numbers, or an end of an interval is not below the other, or
        is infinite though the law is not Normal.

    See Also
    --------
    Privatized : With ``local=True``, for named records: the same law, where it is fast.
    online : The same law for users who come one by one.
    NoisyCount : Counts that are summed out.

    Notes
    -----
    The density agrees with adaptive quadrature to 1e-7, for Normal records to 1e-10, for records
    from 1e-4 to 1e4 times as wide as the interval. Where users have one law and were asked alike,
    releases outside of the interval cost next to nothing. `Privatized` integrates Normal records
    out, too, and imputes all others.

    References
    ----------
    - Yıldırım, S. (2024), "Differentially private online Bayesian estimation with adaptive
      truncation", Turkish Journal of Electrical Engineering and Computer Sciences 32.

    Examples
    --------
    >>> import pymc as pm
    >>> import pymc_privacy as pmp
    >>> with pm.Model() as model:
    ...     mu = pm.Normal("mu", 0, 10)
    ...     y = pmp.NoisyRecord(
    ...         "y",
    ...         pm.Normal.dist(mu, 2.0),
    ...         pmp.Laplace(epsilon=1.0, sensitivity=10.0),
    ...         lower=-5,
    ...         upper=5,
    ...         observed=[3.1, -12.4, 7.7],
    ...     )
    >>> model.free_RVs, y.type.shape
    ([mu], (3,))
    """

    rv_type = NoisyRecordRV

    def __new__(
        cls,
        name: str,
        dist: TensorVariable,
        mechanism: Any,
        *,
        lower: Any = -np.inf,
        upper: Any = np.inf,
        observed: Any = None,
        dims: Any = None,
    ) -> TensorVariable:
        """Add the releases to the model on the context stack."""
        model = modelcontext(None)
        check_new_name(name, model, ReleaseError)
        _check_record(name, dist, model)
        _check_mechanism(mechanism)
        if observed is not None:
            observed = _checked_release(name, observed, dist, mechanism)
        return super().__new__(
            cls, name, dist, mechanism, lower=lower, upper=upper, observed=observed, dims=dims
        )

    @classmethod
    def dist(
        cls,
        dist: TensorVariable,
        mechanism: Any,
        *,
        lower: Any = -np.inf,
        upper: Any = np.inf,
        shape: Any = None,
        **kwargs: Any,
    ) -> TensorVariable:
        """Make an unnamed release; a shape gives every user a record."""
        _check_mechanism(mechanism)
        ends = _checked_ends(lower, upper)
        shapes = [np.shape(mechanism.scale), *map(np.shape, ends)]
        shapes += [dist.type.shape, () if shape is None else np.atleast_1d(shape)]
        lengths = {one[-1] for one in shapes if len(one) and one[-1] not in (None, 1)}
        if len([one for one in lengths if isinstance(one, int | np.integer)]) > 1:
            raise ReleaseError(
                "Releases, scales and ends of intervals must be one for all records, or one for "
                f"each; got shapes {', '.join(str(tuple(one)) for one in shapes)}."
            )
        if shape is None:
            shape = _common(*shapes)
        record = change_dist_size(dist, shape) if shape is not None else dist
        bounded = [np.isfinite(end) for end in ends]
        if not (isinstance(dist.owner.op, NormalRV) or all(map(np.all, bounded))):
            raise ReleaseError(
                "lower and upper must be finite, because only Normal records are integrated out in "
                f"closed form, and others between the two; got lower={shown(lower)} and "
                f"upper={shown(upper)}."
            )
        contributions = pt.clip(record, *ends) if any(map(np.any, bounded)) else record
        if clipped_record(contributions) is None:
            raise RecordError(
                "Noisy records must be a vector, one number for each user; got records of shape "
                f"{record.type.shape}."
            )
        op = NoisyRecordRV(
            mechanism=mechanism, local=True, signature="(n)->(n)", dtype=mechanism.release_dtype
        )
        rng = kwargs.pop("rng", None) or pt.random.shared_rng(seed=None)
        _, release = op(contributions, rng=rng, return_next_rng=True, **kwargs)
        return release


def _check_mechanism(mechanism: Any) -> None:
    if type(mechanism) not in (Laplace, Gaussian):
        raise MechanismError(
            "The mechanism of noisy records must be Laplace or Gaussian noise, with which "
            f"records are integrated out; got {shown(mechanism)}."
        )


def _check_record(name: str, record: Any, model: pm.Model) -> None:
    """Refuse what is not the law of independent real numbers that are nobody else's."""
    unnamed = isinstance(record, TensorVariable) and record.owner is not None
    if not unnamed or record in model.basic_RVs or not hasattr(record.owner.op, "ndim_supp"):
        raise RecordError(
            f"The records behind {name!r} must be given by their law, such as "
            f"pm.Normal.dist(mu, sigma), because they are integrated out of the model; got "
            f"{shown(record)}."
        )
    if not isinstance(record.owner.op, NormalRV):
        _check_integrable(name, record)


def _check_integrable(name: str, record: TensorVariable) -> None:
    """Refuse laws of which quadrature does not know all that it needs."""
    op = record.owner.op
    wanted = (
        f"The records behind {name!r} must be real numbers of a law of PyMC's own with a log "
        "density, a log cdf, and derivatives of both, by which they are integrated out"
    )
    other = (
        "Others are imputed by Privatized(..., local=True), or integrated out by online(); noisy "
        "counts are NoisyCount."
    )
    if not isinstance(op, RandomVariable) or op.ndim_supp or np.dtype(record.dtype).kind != "f":
        raise RecordError(f"{wanted}; got {op}. {other}")
    try:
        law_graphs(op, len(op.dist_params(record.owner)))
    except Exception as error:  # whatever PyMC or PyTensor says of what they do not know
        raise RecordError(f"{wanted}; got {op} ({shown(str(error))}). {other}") from None


def _checked_ends(lower: Any, upper: Any) -> tuple[np.ndarray, np.ndarray]:
    said: Any = {"meaning": "an end of the interval", "error": ReleaseError, "finite": False}
    ends = tuple(
        reals(name, end, shapes=[(), ("n",)], **said)
        for name, end in (("lower", lower), ("upper", upper))
    )
    if not np.all(ends[0] < ends[1]):
        raise ReleaseError(
            "lower must be below upper (records are clipped to what is between them); got "
            f"lower={shown(lower)} and upper={shown(upper)}."
        )
    return ends  # type: ignore[return-value]


def _checked_release(name: str, observed: Any, record: TensorVariable, mechanism: Any) -> Any:
    try:
        shape = observed.type.shape if isinstance(observed, Variable) else np.shape(observed)
    except Exception:  # a ragged list, say, which is refused below as no array of numbers
        shape = ()
    others = (record.type.shape, np.shape(mechanism.scale))
    # Of data that can be set anew the length may not be known.
    if len(shape) != 1 or len(_lengths(shape, *others)) > 1:
        raise ReleaseError(
            f"The release {name!r} must have one number for each record, a vector to which records "
            f"of shape {record.type.shape} and scales of shape {np.shape(mechanism.scale)} can be "
            f"broadcast; got observed of shape {shape}."
        )
    return check_release(
        name, observed, pt.tensor(shape=shape, dtype="float64"), mechanism, local=True
    )


def _common(*shapes: tuple[int | None, ...]) -> tuple[int | None, ...] | None:
    """Return the length that all vectors have, if they have one that is known."""
    lengths = _lengths(*shapes)
    return (lengths.pop(),) if len(lengths) == 1 else None


def _lengths(*shapes: tuple[int | None, ...]) -> set[int]:
    """Return the lengths of vectors that are known, but for those that are one for all."""
    found = (length for shape in shapes for length in shape[-1:])
    return {length for length in found if length not in (None, 1)}
