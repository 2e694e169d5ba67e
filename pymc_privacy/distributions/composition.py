"""`PrivatizedComposition`: what was published of shares, as releases of a model's records."""

from __future__ import annotations

import os
from typing import Any

import pytensor.tensor as pt

from pymc_privacy._compat import TensorVariable
from pymc_privacy.arguments import shown, title
from pymc_privacy.distributions.privatized import Privatized
from pymc_privacy.errors import RecordError, ReleaseError
from pymc_privacy.sanitize import (
    CompositionRelease,
    GroupedComposition,
    Release,
    log_shares,
    read_card,
    smallest_share_bins,
)
from pymc_privacy.sanitize.group_labels import group_label


def PrivatizedComposition(name: str, x: Any, published: Any, *, group: Any = None) -> Any:
    r"""Add what was published of shares to the model on the context stack.

    The records are shares: rows of a `pm.Dirichlet`, or of anything else that adds up to 1, as
    softmax of Normal variables. Censoring at the threshold is part of the model, so that it costs
    no bias. Where the threshold was chosen privately, the counts that it was chosen by are
    observed, too: the threshold is theirs, and follows from them, so that
    :math:`p(\text{counts}, \text{logs} \mid x)` is the product of two laws of noise.

    Parameters
    ----------
    name : str
        Of the sums of logarithms; the counts are called ``name_counts``, and sums of shares
        ``name_shares``, unless they are all there is.
    x : tensor_like
        Shares of shape (n, d), records on axis 0, as many as were released; or `Records`, where
        neighbours add or remove a record.
    published : CompositionRelease, GroupedComposition, path_like or dict
        What `release_composition` returned, or its card.
    group : str, optional
        Whose shares these are, where several groups were published.

    Returns
    -------
    TensorVariable or tuple of TensorVariable
        One release, or those of counts, logarithms and shares that there are, in this order.

    Raises
    ------
    ReleaseError
        If it is not what was published of a composition, or of records of another number.
    RecordError
        If records do not have as many shares as were released, or are none.

    See Also
    --------
    release_composition : What is published.
    Privatized : A release of any other kind, and what all releases are.
    sample : Draw from the posterior.

    References
    ----------
    - Guo, Q., Barrientos, A. F. and Peña, V., "Differentially private inference for compositional
      data".

    Examples
    --------
    >>> import numpy as np
    >>> import pymc as pm
    >>> import pymc_privacy as pmp
    >>> shares = np.random.default_rng(1).dirichlet([2.0, 3.0, 4.0], size=50)
    >>> published = pmp.release_composition(
    ...     shares, epsilon=1.0, threshold=0.1, neighbours="replace_one"
    ... )
    >>> with pm.Model() as model:
    ...     mean = pm.Dirichlet("mean", np.ones(3))
    ...     precision = pm.LogNormal("precision", 2, 1)
    ...     x = pm.Dirichlet("x", precision * mean, shape=(published.size, 3))
    ...     logs = pmp.PrivatizedComposition("logs", x, published)
    >>> model.observed_RVs
    [logs]
    """
    title("name", name, meaning="of the release", error=ReleaseError)
    one = _composition(published, group)
    shares = _shares(name, x, one.parts)
    parts: list[tuple[str, Any, Release]] = []
    if one.counts is not None:
        bins = smallest_share_bins(shares, one.plan.thresholds or ())
        parts.append((f"{name}_counts", bins, one.counts))
    if one.logs is not None and one.threshold is not None:
        parts.append((name, log_shares(shares, one.threshold), one.logs))
    if one.shares is not None:
        alone = len(one.releases) == 1
        parts.append((name if alone else f"{name}_shares", shares, one.shares))
    made = tuple(Privatized.from_card(*part) for part in parts)
    return made[0] if len(made) == 1 else made


def _composition(published: Any, group: Any) -> CompositionRelease:
    """Return what was published of one group, or of all records."""
    found = published
    if isinstance(published, str | os.PathLike | dict):
        found = read_card(published)
    if isinstance(found, GroupedComposition):
        if group is None:
            raise ReleaseError(
                "group= must say whose shares these are, because several groups were published: "
                f"{', '.join(map(repr, found.names))}; got none."
            )
        return found[group]
    if not isinstance(found, CompositionRelease):
        raise ReleaseError(
            "published must be what release_composition returned, or its card; got "
            f"{'a' if found is published else 'the card of a'} {type(found).__name__}."
        )
    if group is not None and (found.group is None or group_label(group) != found.group):
        wanted = "left out" if found.group is None else repr(found.group)
        raise ReleaseError(
            f"group must be {wanted}, because no others were published; got {shown(group)}."
        )
    return found


def _shares(name: str, x: Any, parts: int) -> TensorVariable:
    """Return shares as a tensor of as many columns as were released."""
    try:
        shares = pt.as_tensor(x)
        shape = shares.type.shape
    except Exception:  # of a class of the caller's, which can raise anything
        shape = ()
    if len(shape) != 2 or shape[1] not in (None, parts):
        raise RecordError(
            f"The records of {name!r} must be shares of shape (n, {parts}), one row per record and "
            f"as many columns as were released; got {shown(x) if not shape else f'shape {shape}'}."
        )
    return shares
