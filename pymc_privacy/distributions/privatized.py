"""`Privatized`: a release whose law given the records is a privacy mechanism."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytensor.tensor as pt

from pymc_privacy._compat import (
    Distribution,
    TensorVariable,
    Variable,
    ancestors,
    check_new_name,
    modelcontext,
)
from pymc_privacy.arguments import flag, shown
from pymc_privacy.distributions.curation import as_curated
from pymc_privacy.distributions.groups import (
    check_numbers,
    group_of_each_record,
    number_of_groups,
)
from pymc_privacy.distributions.record_checks import (
    check_categories,
    check_data_behind,
    check_draws,
    check_integers,
    refuse_dependent_rows,
    start_at_possible_truths,
)
from pymc_privacy.distributions.tensor_engine import register_tensor_engine
from pymc_privacy.errors import MechanismError, RecordError, ReleaseError
from pymc_privacy.mechanisms import (
    Mechanism,
    Suppressed,
)
from pymc_privacy.model.assignment import assign_records
from pymc_privacy.model.finite import refuse_single_precision
from pymc_privacy.model.group_sizes import counts_groups, only_existing, plain_rows
from pymc_privacy.model.locality import find_records, with_known_width
from pymc_privacy.model.releases import (
    PrivatizedRV,
    check_release,
    release_shape,
    released_contributions,
)
from pymc_privacy.model.sized_records import existing_rows, is_sized, size_of
from pymc_privacy.sanitize import Release, read_card

register_tensor_engine()

_CENTRAL = ("()->()", "(n)->()", "(n,d)->(d)")
# One call of the simulator draws for all records, so that a vector of scales finds its axis.
_LOCAL = ("()->()", "(n)->(n)", "(n,d)->(n,d)")


class Privatized(Distribution):
    r"""A release is observed; the records behind it are not.

    The release s has the law :math:`\eta(s \mid \sum_i t(x_i))` of its mechanism, where
    :math:`t(x_i)` are the contributions of record i. The record variables that the
    contributions are computed from are found by themselves, and `pm.sample` updates them with
    :class:`~pymc_privacy.Interweave`, or :class:`~pymc_privacy.RecordSweep` where they cannot
    move together with their parameters.

    Parameters
    ----------
    name : str
    contributions : tensor_like
        Shape (n,) or (n, d), records on axis 0, where row i depends on record i alone and on
        no parameter. A scalar is released as it is.
    mechanism : Mechanism
    observed : array_like, optional
        The release: shape () or (d,), or that of the contributions when ``local``. Some mechanisms
        release something else than a noisy total; their docstrings say of which shape. What a
        `Suppressed` mechanism left out is nan (minus infinity in `pm.Data`, which takes no nan),
        and stands as minus infinity in the model's data, since it is not missing at random.
    local : bool, default False
        The mechanism acts on each record instead of their sum.
    by : array_like of int, optional
        The public group of each record, counted from 0. Contributions are added up within groups,
        and the release has the groups on its first axis: shape (groups,) or (groups, d). A group
        may have no records. However many groups there are, a record costs the same.
    dims : str or sequence of str, optional

    Raises
    ------
    RecordError
        If the contributions are not real numbers of shape (n,) or (n, d), mix records, are
        fractions where noise is whole, or if records cannot be drawn.
    ReleaseError
        If the observed release has another shape, or the mechanism cannot have produced it.
    MechanismError
        If the mechanism is none, or does not act on such contributions.

    See Also
    --------
    Privatized.from_card : The same from the card of a release.
    sample : Draw from the posterior.
    Records : Records of an unknown number.
    NoisyCount : Counts that are summed out instead of imputed.

    References
    ----------
    - Ju, N., Awan, J., Gong, R. and Rao, V. (2022), "Data augmentation MCMC for Bayesian inference
      from privatized data", Advances in Neural Information Processing Systems 35.

    Examples
    --------
    >>> import pymc as pm
    >>> import pymc_privacy as pmp
    >>> with pm.Model() as model:
    ...     p = pm.Beta("p", 1, 1)
    ...     answer = pm.Bernoulli("answer", p, shape=100)
    ...     yes = pmp.Privatized(
    ...         "yes", answer, pmp.Laplace(epsilon=1.0, sensitivity=1.0), observed=37.2
    ...     )
    >>> model.observed_RVs
    [yes]
    """

    rv_type = PrivatizedRV

    def __new__(
        cls,
        name: str,
        contributions: Any,
        mechanism: Mechanism,
        *,
        observed: Any = None,
        local: bool = False,
        by: Any = None,
        dims: Any = None,
    ) -> TensorVariable:
        """Add the release to the model on the context stack, and mark its records."""
        model = modelcontext(None)
        refuse_single_precision()
        check_new_name(name, model, ReleaseError)
        local = flag("local", local, error=ReleaseError)
        _check_mechanism(mechanism)
        contributions = _as_contributions(name, contributions)
        contributions, numbers = plain_rows(contributions, model)
        check_data_behind(name, contributions, model)
        contributions = with_known_width(contributions, model)
        refuse_dependent_rows(name, contributions, model)
        check_draws(name, contributions, model)
        # Numbers of records are no records, and may be released like them.
        records = [rv for rv in find_records(name, contributions, model) if not counts_groups(rv)]
        grouping: dict[str, Any] = {}
        if by is not None:
            if local:
                raise ReleaseError(
                    f"A local release has no totals; give {name!r} either by= or local=True."
                )
            by = group_of_each_record(name, by, contributions, mechanism, model)
            groups = number_of_groups(name, by, observed, dims, model, contributions)
            grouping = {"by": by, "groups": groups}
        if numbers is not None:
            check_numbers(name, numbers, **grouping)
        if observed is not None:
            observed = check_release(
                name,
                observed,
                contributions,
                mechanism,
                local=local,
                groups=grouping.get("groups"),
            )
            observed = _with_suppressed(observed, mechanism)
        check_integers(name, contributions, mechanism)
        check_categories(name, contributions, mechanism, local=local)
        contributions = _of_existing_records(name, contributions, records, local=local)
        if numbers is not None:
            contributions = only_existing(contributions, *numbers)
        release = super().__new__(
            cls,
            name,
            contributions,
            mechanism,
            observed=observed,
            local=local,
            dims=dims,
            **grouping,
        )
        assign_records(model, records, released_contributions(model))
        if local and observed is not None:
            start_at_possible_truths(contributions, observed, mechanism, model)
        return release

    @classmethod
    def from_card(
        cls, name: str, contributions: Any, card: Any, *, dims: Any = None
    ) -> TensorVariable:
        """Add a published release to the model on the context stack.

        The law of the noise and the published values come from the card. The contributions are
        clipped to its bounds here, as the curator clipped them, and rounded to its lattice where
        that is coarse; all else that was done to them is to be written in the model.

        Parameters
        ----------
        name : str
        contributions : tensor_like
            As for `Privatized`; with as many records as the card says, where it says so.
        card : Release, path_like or dict
            A release, or its card as a file or as a dictionary.
        dims : str or sequence of str, optional

        Examples
        --------
        >>> import pymc as pm
        >>> import pymc_privacy as pmp
        >>> published = pmp.release(
        ...     [0, 1, 1, 0], bounds=(0, 1), epsilon=1.0, neighbours="replace_one"
        ... )
        >>> with pm.Model() as model:
        ...     p = pm.Beta("p", 1, 1)
        ...     answer = pm.Bernoulli("answer", p, shape=4)
        ...     yes = pmp.Privatized.from_card("yes", answer, published)
        >>> yes.owner.op.mechanism == published.mechanism
        True
        """
        release = card if isinstance(card, Release) else read_card(card)
        contributions = _as_contributions(name, contributions)
        rows: Any = contributions.type.shape[0] if contributions.ndim else None
        if any(map(is_sized, ancestors([contributions]))):
            rows = "a random number of them"
        if release.size is not None and rows not in (None, release.size):
            raise ReleaseError(
                f"The contributions to {name!r} must have as many records as were released, "
                f"{release.size}, which is public; got {rows}."
            )
        contributions = with_known_width(contributions, modelcontext(None))
        contributions = as_curated(name, contributions, release)
        return cls(name, contributions, release.mechanism, observed=release.value, dims=dims)

    @classmethod
    def dist(
        cls,
        contributions: Any,
        mechanism: Mechanism,
        *,
        local: bool = False,
        by: Any = None,
        groups: int | None = None,
        **kwargs: Any,
    ) -> TensorVariable:
        """Make an unnamed release; its shape follows from the contributions.

        With ``by``, the group of each record, there are ``groups``, by default up to the last one
        that has a record.
        """
        _check_mechanism(mechanism)
        kwargs.pop("shape", None)
        contributions = _as_contributions("release", contributions)
        parameters = [contributions]
        if by is not None:
            parameters.append(pt.constant(np.asarray(by, dtype=np.int64)))
            groups = groups or int(np.max(by, initial=0)) + 1
        _check_scale(contributions, mechanism, local=local, groups=groups)
        op = PrivatizedRV(
            mechanism=mechanism,
            local=local,
            groups=groups,
            signature=_signature(contributions, mechanism, local=local, groups=groups),
            dtype=mechanism.release_dtype,
        )
        rng = kwargs.pop("rng", None) or pt.random.shared_rng(seed=None)
        _, release = op(*parameters, rng=rng, return_next_rng=True, **kwargs)
        return release


def _check_mechanism(mechanism: Any) -> None:
    if not isinstance(mechanism, Mechanism):
        raise MechanismError(
            "The third argument must be a mechanism, such as Laplace(epsilon=1.0, "
            f"sensitivity=1.0), because its law is the likelihood; got {shown(mechanism)}."
        )


def _of_existing_records(
    name: str, contributions: TensorVariable, records: list[TensorVariable], *, local: bool
) -> TensorVariable:
    """Let only records count that exist, where their number is random."""
    sizes = {size_of(rv) for rv in records if is_sized(rv)}
    if not sizes:
        return contributions
    if len(sizes) > 1 or not all(map(is_sized, records)):
        raise RecordError(
            f"The contributions to {name!r} must come from records of one number; "
            f"got {', '.join(repr(rv.name) for rv in records)}."
        )
    if local:
        raise ReleaseError(
            f"A local release has one value per record, so that {name!r} would tell how many "
            "there are; give the records a known shape instead of Records."
        )
    return existing_rows(contributions, sizes.pop())


def _as_contributions(name: str, contributions: Any) -> TensorVariable:
    try:
        contributions = pt.as_tensor(contributions)
        real = np.dtype(contributions.dtype).kind in "iufb"
    except Exception:  # of a class of the caller's, which can raise anything
        real = False
    if not real:
        raise RecordError(
            f"The contributions to {name!r} must be a tensor or an array of real numbers; got "
            f"{shown(contributions)}."
        )
    if contributions.ndim > 2:
        raise RecordError(
            f"The contributions to {name!r} must have shape (n,) or (n, d), one row per record; "
            f"got {contributions.ndim} dimensions."
        )
    return contributions


def _signature(
    contributions: TensorVariable, mechanism: Mechanism, *, local: bool, groups: int | None
) -> str:
    """Say how the shape of the release follows from that of the contributions."""
    if groups is not None:
        columns, rest = ("(n,d)", ",d") if contributions.ndim == 2 else ("(n)", "")
        return f"{columns},(n)->({groups}{rest})"
    shape = release_shape(contributions, mechanism, local=local)
    if local or shape == contributions.type.shape[1:]:
        return (_LOCAL if local else _CENTRAL)[contributions.ndim]
    return f"(n,d)->({','.join(map(str, shape))})"


def _check_scale(
    contributions: TensorVariable, mechanism: Mechanism, *, local: bool, groups: int | None
) -> None:
    scale = np.shape(getattr(mechanism, "scale", 0.0))
    shape = release_shape(contributions, mechanism, local=local, groups=groups)
    if scale and (not shape or shape[-1] not in (None, *scale)):
        raise MechanismError(
            "A vector of scales must have one entry per coordinate of the release; "
            f"got {scale[0]} scales for a release of shape {shape}."
        )


def _with_suppressed(observed: Any, mechanism: Mechanism) -> Any:
    """Put minus infinity for what was suppressed: PyMC would impute what is not a number."""
    if isinstance(observed, Variable) or not isinstance(mechanism, Suppressed):
        return observed
    return np.where(np.isnan(observed), -np.inf, observed)
