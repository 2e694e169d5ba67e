"""The posterior of the number of records, and whether it matters that it is private."""

from __future__ import annotations

from typing import Any

import numpy as np

from pymc_privacy.arguments import probability, real, refusal
from pymc_privacy.errors import GuaranteeError, PlotError
from pymc_privacy.mechanisms.unknown_size import size_gap
from pymc_privacy.model.size_matters import SizeMatters
from pymc_privacy.plots.canvas import (
    BLUE,
    GREEN,
    ORANGE,
    axis_for,
    chosen,
    group_of,
    interval_of,
    scalars,
    tidy,
)

_FAR = 1e100  # beyond which an axis has no ticks


def plot_size(
    dt: Any,
    *,
    var_names: str = "n",
    release: str | float | None = None,
    truth: float | None = None,
    ci_prob: float = 0.95,
    axis: Any = None,
) -> Any:
    """Draw the posterior of the number of records, beside its noisy release.

    Parameters
    ----------
    dt : DataTree
    var_names : str, default "n"
        The size, a discrete variable of the posterior.
    release : str or float, optional
        The noisy size that was published: its name among the observed data, or its value.
    truth : float, optional
        The true number, where it is known.
    ci_prob : float, default 0.95
    axis : matplotlib Axes, optional

    Returns
    -------
    matplotlib Axes

    Raises
    ------
    PlotError
        If `var_names` is not one number of the posterior, the release is not among the observed
        data, or Matplotlib is not installed.

    See Also
    --------
    Records : Records of an unknown number.
    size_gap : Whether an unknown size matters.

    Examples
    --------
    >>> import numpy as np
    >>> import arviz as az
    >>> import pymc_privacy as pmp
    >>> draws = np.random.default_rng(1).integers(960, 1040, size=(2, 500))
    >>> idata = az.from_dict({"posterior": {"n": draws}, "observed_data": {"n_dp": 1003.2}})
    >>> axis = pmp.plot_size(idata, release="n_dp", truth=1000)
    >>> [text.get_text() for text in axis.get_legend().get_texts()]
    ['95% interval', 'release', 'truth']
    """
    found = scalars(group_of(dt, "posterior"), var_names)
    if len(found) != 1:
        raise PlotError(f"var_names must be one number, the size; got {', '.join(found)}.")
    [(name, draws)] = found.items()
    ci_prob = probability("ci_prob", ci_prob, error=PlotError)
    if isinstance(release, str):
        release = _released(group_of(dt, "observed_data"), release)
    elif release is not None:
        release = real("release", release, least=-_FAR, most=_FAR, error=PlotError)
    if truth is not None:
        truth = real("truth", truth, least=-_FAR, most=_FAR, error=PlotError)
    axis = axis_for(axis)
    span = int(np.ptp(draws))
    # Wide posteriors are binned, with the same number of integers in every bin.
    width = max(1, -(-span // 60))
    edges = np.arange(draws.min() - 0.5, draws.max() + 0.5 + width, width)
    heights, _ = np.histogram(draws, bins=edges)
    axis.bar(edges[:-1], heights / len(draws), width=width, align="edge", color=BLUE, alpha=0.5)
    low, high = interval_of(draws, ci_prob)
    axis.axvspan(low, high, color=BLUE, alpha=0.08, lw=0, label=f"{ci_prob:.0%} interval")
    if release is not None:
        axis.axvline(release, color=ORANGE, lw=2, label="release")
    if truth is not None:
        axis.axvline(truth, color="black", lw=1.2, ls="--", label="truth")
    axis.set(xlabel=f"{name}, number of records")
    tidy(axis)
    axis.legend(frameon=False)
    return axis


def _released(observed: Any, name: str) -> float:
    """Return the observed number of a name."""
    [found] = chosen(observed, name)
    return real("release", observed[found].values, error=PlotError)


def plot_size_gap(found: SizeMatters, *, axis: Any = None) -> Any:
    """Draw how far a private size can be from a known one, against the noise on the size.

    Parameters
    ----------
    found : SizeMatters
        From `size_matters`, with a guarantee and with noise on the size.
    axis : matplotlib Axes, optional

    Returns
    -------
    matplotlib Axes

    Raises
    ------
    PlotError
        If `found` is something else, or has neither a guarantee nor noise on the size; or if
        Matplotlib is not installed.

    See Also
    --------
    size_matters : What is drawn.
    size_gap : The bound.

    Examples
    --------
    >>> import pymc as pm
    >>> import pymc_privacy as pmp
    >>> noise = pmp.Laplace(epsilon=1.0, sensitivity=1.0, neighbours="add_remove")
    >>> with pm.Model() as model:
    ...     p = pm.Beta("p", 1, 1)
    ...     n = pm.DiscreteUniform("n", 1, 500)
    ...     x = pmp.Records("x", pm.Bernoulli.dist(p), size=n)
    ...     yes = pmp.Privatized("yes", x, noise, observed=37.2)
    ...     n_dp = pmp.Privatized("n_dp", n, pmp.Laplace(scale=5.0), observed=101.9)
    >>> axis = pmp.plot_size_gap(pmp.size_matters(model))
    >>> axis.get_xlabel()
    'scale of the noise on the number of records'
    """
    if not isinstance(found, SizeMatters):
        raise refusal("found", "what size_matters returns", found, error=PlotError)
    if found.guarantee is None or found.mechanism is None:
        raise PlotError(
            "The bound needs a guarantee of the releases for adding or removing a record, and "
            f"noise on the size; got {found.guarantee} and {found.mechanism}."
        )
    axis = axis_for(axis)
    scale = float(found.mechanism.scale)  # type: ignore[attr-defined]
    scales = np.geomspace(scale / 100, scale * 30, 61)
    bounds = []
    for one in scales:
        try:
            noise = type(found.mechanism)(scale=float(one))  # type: ignore[call-arg]
            bounds.append(size_gap(found.guarantee, noise, size=found.size).bound)  # type: ignore[arg-type]
        except GuaranteeError:
            bounds.append(1.0)  # what reaches too far to be summed says nothing
    axis.plot(scales, bounds, color=BLUE, label="bound on the total variation")
    if found.ratio is not None:
        axis.plot(
            scales, found.ratio * scales / scale, color=GREEN, label=f"spread of n / {found.rate}"
        )
    axis.axvline(scale, color=ORANGE, lw=1.5, label="noise on the size")
    axis.set(
        xscale="log",
        xlabel="scale of the noise on the number of records",
        ylim=(0, 1.05),
        title=f"{found.size} records",
    )
    tidy(axis)
    axis.legend(frameon=False)
    return axis
