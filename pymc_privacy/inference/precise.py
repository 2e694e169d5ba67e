"""`precise`: PRECISE for draws in an array or in an ArviZ posterior; its privacy is nominal."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from pymc_privacy.arguments import generator
from pymc_privacy.errors import GuaranteeError
from pymc_privacy.results import posterior_draws
from pymc_privacy.sanitize import PrivateInterval, precise_interval
from pymc_privacy.sanitize.precise import check_privacy


def precise(
    draws_or_idata: Any,
    *,
    bounds: Any,
    density_bound: Any,
    samples: int,
    epsilon: float | None = None,
    mu: float | None = None,
    prob: float = 0.95,
    variant: str = "+m*",
    collapse: Any = "count",
    var_names: Any = None,
    rng: np.random.Generator | None = None,
) -> PrivateInterval | dict[str, PrivateInterval]:
    """Return the intervals of PRECISE (Liu et al.), whose privacy is only nominal.

    The method is as published: a histogram of m draws in bins of width 1 / (2 m G), noise on the
    counts, ends drawn from the bins that come closest to the quantiles. Its claim is false, and the
    result says why, and what joint accounting supports instead. Publish something else: see
    `noise_aware_interval`.

    Parameters
    ----------
    draws_or_idata : array_like, mapping or DataTree
        Draws of one parameter (one dimension), arrays by name, or a posterior.
    bounds : (float, float) or mapping
        Bounds of the parameter, or of each by name.
    density_bound : float or mapping
        G: how far the posterior density can move with one record; see
        `pymc_privacy.sanitize.density_bounds`.
    samples : int
        m: the number of draws to use.
    epsilon, mu : float, optional
        The nominal budget, one of the two. Of p parameters each gets epsilon / p or mu / sqrt(p).
    prob : float
    variant : {"+m*", "-m*", "+m", "-m"}
        "+": negative noisy counts become 0. "*": quantiles are of the noisy total, not of m.
    collapse : {"count", "proportion", None} or Collapse
        How outer bins are merged before noise is added.
    var_names : sequence of str, optional
        Parameters of a posterior; scalar ones, all by default.
    rng : np.random.Generator, optional

    Returns
    -------
    PrivateInterval or dict
        One interval for a one-dimensional array, otherwise one for each name.

    Raises
    ------
    GuaranteeError
        If not one of epsilon and mu is given, there are fewer draws than `samples`, or an argument
        is out of its range.

    See Also
    --------
    noise_aware_interval : An interval whose privacy is proven.
    joint_guarantee : What the noise really supports.
    precise_quantiles : Any quantiles by the same method.

    References
    ----------
    - Zhou, R. and Liu, F. (2025), "PRECISE: PRivacy-loss-Efficient and Consistent Inference based
      on poSterior quantilEs", arXiv:2502.00192; "Liu et al." here.

    Examples
    --------
    >>> import numpy as np
    >>> import pymc_privacy as pmp
    >>> rng = np.random.default_rng(1)
    >>> interval = pmp.precise(
    ...     rng.beta(109, 393, size=1000),
    ...     bounds=(0.03, 0.97),
    ...     density_bound=8.315,
    ...     samples=269,
    ...     epsilon=0.1,
    ...     rng=rng,
    ... )
    >>> interval.label
    'nominal'
    >>> print(interval.statement())  # doctest: +ELLIPSIS
    95% interval for parameter by PRECISE +m*: ...
    Label: nominal.
    Claimed, but NOT guaranteed: 0.1-DP (pure), neighbours: replace one record, unit: one record.
    Why: ...
    """
    rng = np.random.default_rng() if rng is None else generator("rng", rng, error=GuaranteeError)
    options: dict[str, Any] = {
        "samples": samples,
        "prob": prob,
        "variant": variant,
        "collapse": collapse,
    }
    if isinstance(draws_or_idata, np.ndarray | list | tuple):
        budget: dict[str, Any] = {"epsilon": epsilon, "mu": mu}
        limits = {"bounds": bounds, "density_bound": density_bound}
        return precise_interval(rng, draws_or_idata, **limits, **budget, **options)
    draws = posterior_draws(draws_or_idata, var_names)
    check_privacy(epsilon, mu)
    share: dict[str, Any] = {
        "epsilon": None if epsilon is None else epsilon / len(draws),
        "mu": None if mu is None else mu / math.sqrt(len(draws)),
    }
    return {
        name: precise_interval(
            rng,
            values,
            bounds=_of(bounds, name),
            density_bound=_of(density_bound, name),
            name=name,
            **share,
            **options,
        )
        for name, values in draws.items()
    }


def _of(value: Any, name: str) -> Any:
    """Return what belongs to one parameter."""
    if not isinstance(value, Mapping):
        return value
    if name not in value:
        raise GuaranteeError(
            f"bounds and density_bound must name every parameter; {name!r} is missing; got "
            f"{', '.join(map(str, value))}."
        )
    return value[name]
