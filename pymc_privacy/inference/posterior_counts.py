"""The latent counts behind noisy counts, and how much of their sums can have been left out."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import pymc as pm
import pytensor.tensor as pt

from pymc_privacy._compat import INTERPRETED, graph_replace, modelcontext
from pymc_privacy.arguments import refusal
from pymc_privacy.distributions.count_recurrence import RECURRENCE_TAIL
from pymc_privacy.distributions.count_sums import (
    LARGEST_WINDOWS,
    cells_of,
    window,
    window_length,
)
from pymc_privacy.distributions.noisy_count import count_of, is_noisy_count
from pymc_privacy.errors import MechanismError, RecordError
from pymc_privacy.model.locality import parents


def posterior_counts(idata: Any, *, model: Any = None, random_seed: Any = None) -> Any:
    """Draw the counts behind every `NoisyCount` from their exact posterior.

    One draw of the counts for each draw of the parameters: a count c given parameters and
    release y has probability proportional to p(c) eta(y - c).

    Parameters
    ----------
    idata : xarray.DataTree
        As from `pm.sample`. Every variable that the counts depend on must be in it; records are
        with ``pmp.sample(keep_records=True)``.
    model : pm.Model, optional
        The model on the context stack by default.
    random_seed : int or sequence of int, optional

    Returns
    -------
    xarray.Dataset
        A variable for each noisy count, under its name.

    Raises
    ------
    RecordError
        If the model has no noisy counts, or the draws lack a variable that the counts depend on.
    MechanismError
        If there are too many possible counts to be weighed.

    See Also
    --------
    NoisyCount : What the counts were summed out of.
    window_error : What is left out of the sums.
    pm.sample_posterior_predictive : Draw releases instead of counts.

    Examples
    --------
    >>> import pymc as pm
    >>> import pymc_privacy as pmp
    >>> with pm.Model():
    ...     rate = pm.Gamma("rate", 2.0, 0.1)
    ...     y = pmp.NoisyCount(
    ...         "y", pm.Poisson.dist(rate), pmp.Laplace(scale=2.0), observed=[9.3, -1.8]
    ...     )
    ...     idata = pm.sample(200, tune=200, chains=1, random_seed=1, progressbar=False, quiet=True)
    ...     counts = pmp.posterior_counts(idata, random_seed=2)
    >>> counts["y"].dims, bool((counts["y"] >= 0).all())
    (('chain', 'draw', 'y_dim_0'), True)
    """
    model = modelcontext(model)
    releases = _noisy_counts(model)
    _check_draws(idata)
    names = {f"{release.name}::count": release for release in releases}
    given = _stand_ins(idata, model, releases)
    # Beside the model on the context stack, and not inside of it.
    with pm.Model(coords=model.coords, model=None) as drawing:
        # Every variable that a count depends on comes from the draws: it could not be drawn here.
        for rv in given:
            shape = idata["posterior"][rv.name].shape[2:]
            given[rv] = pm.Flat(rv.name, shape=shape).astype(rv.dtype)
        for name, release in names.items():
            counts = _draw_counts(model, release, given)
            pm.Deterministic(name, counts, dims=model.named_vars_to_dims.get(release.name))
    drawn = pm.sample_posterior_predictive(
        idata, model=drawing, var_names=list(names), random_seed=random_seed, progressbar=False
    )
    found = drawn["posterior_predictive"].to_dataset()
    for name, release in names.items():
        _check_all_drawn(found[name].values, release.name)
    # Axes without a name of their own are named after the variable.
    own = {d: d.replace("::count", "") for d in found.dims if "::" in d}
    return found.rename({name: release.name for name, release in names.items()} | own)


def _stand_ins(idata: Any, model: pm.Model, releases: list) -> dict[Any, Any]:
    """Return the free variables that the counts depend on, which must be among the draws."""
    laws = [count_of(release) for release in releases]
    needed = list(dict.fromkeys(p for law in laws for p in parents(law, model)))
    needed = [rv for rv in needed if rv in model.free_RVs]
    missing = [rv.name for rv in needed if rv.name not in idata["posterior"]]
    if missing:
        raise RecordError(
            f"The draws must have all variables that the counts depend on; {', '.join(missing)} "
            "is missing. Records are kept by pmp.sample(keep_records=True)."
        )
    return dict.fromkeys(needed)


def _draw_counts(model: pm.Model, release: Any, given: dict[Any, Any]) -> Any:
    """Return a draw of the counts behind a release, -1 where they are too many to be weighed."""
    op, count = release.owner.op, count_of(release)
    _check_memory(release.name, count, op)
    low, terms, enough = window(model.rvs_to_values[release], count, op.mechanism, op.tail)
    index = pm.Categorical.dist(logit_p=pt.moveaxis(terms, 0, -1))
    observed = {rv: model.rvs_to_values[rv] for rv in parents(count, model) if rv not in given}
    replaced = {rv: rv.type.filter_variable(v) for rv, v in (given | observed).items()}
    return graph_replace(pt.switch(enough, low + index, -1), replaced, strict=False)


def _check_all_drawn(counts: np.ndarray, name: str) -> None:
    if np.any(counts < 0):
        raise MechanismError(
            f"The counts behind {name!r} must have at most {LARGEST_WINDOWS} possible values, over "
            "all cells, to be drawn; at some draws of the parameters the release is so far from "
            "all plausible counts that there are more."
        )


def window_error(idata: Any = None, *, model: Any = None) -> float:
    """Bound the total variation between the sampled and the exact posterior.

    Of the density L_j of cell j at most a share t_j is left out, at every value of the parameters:
    ``tail`` where counts are evaluated one by one, rounding where there is a recurrence. So the
    density of the exact posterior is between 1 and prod_j 1 / (1 - t_j) times the sampled one
    before both are normalised, and

        total variation <= prod_j 1 / (1 - t_j) - 1.

    Parameters
    ----------
    idata : xarray.DataTree, optional
        Not needed: the bound holds whatever was drawn.
    model : pm.Model, optional
        The model on the context stack by default.

    Returns
    -------
    float

    Raises
    ------
    RecordError
        If the model has no noisy counts.

    See Also
    --------
    NoisyCount : Takes ``tail``, which the bound follows from.
    posterior_counts : Draw the counts.

    Examples
    --------
    >>> import pymc as pm
    >>> import pymc_privacy as pmp
    >>> with pm.Model():
    ...     rate = pm.Gamma("rate", 2.0, 0.1)
    ...     y = pmp.NoisyCount(
    ...         "y", pm.Poisson.dist(rate), pmp.Laplace(scale=2.0), observed=[9.3, -1.8]
    ...     )
    ...     error = pmp.window_error()
    >>> error < 1e-9
    True
    """
    log_share = 0.0
    for release in _noisy_counts(modelcontext(model)):
        op = release.owner.op
        left_out = RECURRENCE_TAIL if op.recurrence else op.tail
        log_share += math.prod(release.shape.eval(mode=INTERPRETED)) * math.log1p(-left_out)
    return math.expm1(-log_share)


def _check_draws(idata: Any) -> None:
    groups = getattr(idata, "children", None)
    if not isinstance(groups, Mapping) or "posterior" not in groups:
        wanted = "a DataTree with a group `posterior`, as from pm.sample"
        raise refusal("idata", wanted, idata, error=RecordError)


def _noisy_counts(model: pm.Model) -> list:
    releases = [rv for rv in model.observed_RVs if is_noisy_count(rv)]
    if not releases:
        raise RecordError(
            "Counts are drawn for the NoisyCount releases of a model; got a model without any."
        )
    return releases


def _check_memory(name: str, count: Any, op: Any) -> None:
    cells, length = cells_of(count), window_length(count, op.mechanism, op.tail)
    if cells * length > LARGEST_WINDOWS:
        raise MechanismError(
            f"The counts behind {name!r} must have at most {LARGEST_WINDOWS} possible values "
            f"within the noise's reach, over all cells, to be drawn; got {cells} times {length}. "
            "A larger tail= of NoisyCount makes the windows smaller."
        )
