"""The latent counts behind noisy counts, and how much their windows can have left out."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import pymc as pm
import pytensor.tensor as pt

from pymc_privacy._compat import clone_model, modelcontext
from pymc_privacy.arguments import refusal
from pymc_privacy.distributions.count_sums import window, window_length
from pymc_privacy.distributions.noisy_count import LARGEST_WINDOWS, count_of, is_noisy_count
from pymc_privacy.errors import MechanismError, RecordError
from pymc_privacy.mechanisms.count_windows import count_window


def posterior_counts(idata: Any, *, model: Any = None, random_seed: Any = None) -> Any:
    """Draw the counts behind every `NoisyCount` from their exact posterior.

    One draw of the counts for each draw of the parameters: a count c given parameters and
    release y has probability proportional to p(c) eta(y - c).

    Parameters
    ----------
    idata : xarray.DataTree
        As from `pm.sample`.
    model : pm.Model, optional
        The model on the context stack by default.
    random_seed : int or sequence of int, optional

    Returns
    -------
    xarray.Dataset
        A variable for each noisy count, under its name.

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
    _check_draws(idata)
    _noisy_counts(model)
    model = clone_model(model)
    names = {}
    with model:
        for release in _noisy_counts(model):
            op, count = release.owner.op, count_of(release)
            _check_memory(release.name, count, op)
            value = model.rvs_to_values[release]
            low, terms = window(value, count, op.mechanism, op.tail)
            index = pm.Categorical.dist(logit_p=pt.moveaxis(terms, 0, -1))
            latent = pm.Deterministic(
                f"{release.name}::count",
                low + index,
                dims=model.named_vars_to_dims.get(release.name),
            )
            names[latent.name] = release.name
        drawn = pm.sample_posterior_predictive(
            idata, var_names=list(names), random_seed=random_seed, progressbar=False
        )
    found = drawn["posterior_predictive"].to_dataset()
    # Axes without a name of their own are named after the variable.
    return found.rename(names | {d: d.replace("::count", "") for d in found.dims if "::" in d})


def window_error(idata: Any, *, model: Any = None) -> float:
    """Bound the total variation between the sampled and the exact posterior.

    Let h be the reach of the noise that `NoisyCount` sums over, and L_j the windowed likelihood of
    cell j. What was left out of L_j is at most eta_j(h), so the exact posterior has a density of
    at most exp(sum_j eta_j(h) / L_j) times the sampled one before both are normalised, and

        total variation <= E exp(sum_j eta_j(h) / L_j) - 1,

    the expectation over the sampled posterior, which is replaced by the mean over draws. Where
    a draw's exponential is above 2, it is taken as 2.

    Parameters
    ----------
    idata : xarray.DataTree
        As from `pm.sample`.
    model : pm.Model, optional
        The model on the context stack by default.

    Returns
    -------
    float

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
    ...     error = pmp.window_error(idata)
    >>> error < 1e-9
    True
    """
    model = modelcontext(model)
    _check_draws(idata)
    releases = _noisy_counts(model)
    densities = pm.compute_log_likelihood(
        idata,
        var_names=[release.name for release in releases],
        model=model,
        extend_inferencedata=False,
        progressbar=False,
    )
    left_out: Any = 0.0
    for release in releases:
        op = release.owner.op
        log_density = densities[release.name].values
        ratio = np.exp(count_window(op.mechanism, op.tail).log_left_out - log_density)
        left_out = left_out + ratio.reshape(*ratio.shape[:2], -1).sum(axis=-1)
    return float(np.mean(np.expm1(np.minimum(left_out, math.log(2)))))


def _check_draws(idata: Any) -> None:
    groups = getattr(idata, "children", None)
    if not isinstance(groups, Mapping) or "posterior" not in groups:
        wanted = "a DataTree with a group `posterior`, as from pm.sample"
        raise refusal("idata", wanted, idata, error=RecordError)


def _noisy_counts(model) -> list:
    releases = [rv for rv in model.observed_RVs if is_noisy_count(rv)]
    if not releases:
        raise RecordError(
            "Counts are drawn for the NoisyCount releases of a model; got a model without any."
        )
    return releases


def _check_memory(name: str, count: Any, op: Any) -> None:
    cells = int(np.prod([length for length in count.type.shape if length is not None], initial=1))
    length = window_length(count, op.mechanism, op.tail)
    if cells * length > LARGEST_WINDOWS:
        raise MechanismError(
            f"The counts behind {name!r} must have at most {LARGEST_WINDOWS} possible values "
            f"within the noise's reach, over all cells, to be drawn; got {cells} times {length}. "
            "A larger tail= of NoisyCount makes the windows smaller."
        )
