"""The release against its posterior predictive."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from pymc_privacy.arguments import probability
from pymc_privacy.errors import PlotError
from pymc_privacy.plots.canvas import (
    BLUE,
    ORANGE,
    axes_for,
    chosen,
    coordinates,
    draw_law,
    draws_of,
    group_of,
    interval_of,
    tidy,
)

PANELS = 12


def plot_release(
    dt: Any,
    *,
    var_names: str | Iterable[str] | None = None,
    ci_prob: float = 0.95,
    axes: Any = None,
) -> np.ndarray:
    """Draw each released number over what the fitted model would have released.

    A release far out in its own predictive law speaks against the model of the records, the
    mechanism or the prior. Each panel says how much of the law lies below the release.

    Parameters
    ----------
    dt : DataTree
        With the groups ``posterior_predictive``, from `pm.sample_posterior_predictive` after
        `sample` with ``keep_records=True``, and ``observed_data``.
    var_names : str or sequence of str, optional
        Releases; all of them by default.
    ci_prob : float, default 0.95
        Of the intervals, where there are more than twelve numbers and all share one panel.
    axes : matplotlib Axes, optional

    Returns
    -------
    array of matplotlib Axes

    Examples
    --------
    >>> import pymc as pm
    >>> import pymc_privacy as pmp
    >>> with pm.Model():
    ...     p = pm.Beta("p", 1, 1)
    ...     x = pm.Bernoulli("x", p, shape=50)
    ...     s = pmp.Privatized("s", x, pmp.Laplace(epsilon=0.5, sensitivity=1.0), observed=31.4)
    ...     idata = pmp.sample(
    ...         200, tune=200, chains=2, random_seed=1, quiet=True, keep_records=True
    ...     )
    ...     idata.update(
    ...         pm.sample_posterior_predictive(idata, random_seed=1, progressbar=False)
    ...     )
    >>> [axis] = pmp.plot_release(idata)
    >>> axis.get_xlabel()
    's'
    """
    ci_prob = probability("ci_prob", ci_prob, error=PlotError)
    predictive, observed = group_of(dt, "posterior_predictive"), group_of(dt, "observed_data")
    laws: dict[str, np.ndarray] = {}
    values: dict[str, float] = {}
    for name in chosen(predictive, var_names):
        if name not in observed:
            raise PlotError(
                f"A release is compared with its observed value; got {name}, which the group "
                "`observed_data` does not have."
            )
        laws |= coordinates(name, draws_of(predictive[name]))
        seen = coordinates(name, observed[name].values[None])
        values |= {key: float(value[0]) for key, value in seen.items()}
    if len(laws) > PANELS:
        [axis] = axes_for(1, axes)
        _draw_together(axis, laws, values, ci_prob)
        return np.array([axis])
    axes = axes_for(len(laws), axes)
    for axis, (name, draws) in zip(axes, laws.items(), strict=True):
        draw_law(axis, draws, colour=BLUE, label="posterior predictive")
        axis.axvline(values[name], color=ORANGE, lw=2, label="release")
        below = (draws < values[name]).mean() + (draws == values[name]).mean() / 2
        axis.set_xlabel(name)
        axis.set_title(f"{below:.0%} below the release", fontsize="medium")
        tidy(axis)
    axes[0].legend(frameon=False, fontsize="small")
    return axes


def _draw_together(
    axis: Any, laws: dict[str, np.ndarray], values: dict[str, float], ci_prob: float
) -> None:
    """Draw all numbers side by side, in standard deviations from their predictive mean."""
    centre = np.array([draws.mean() for draws in laws.values()])
    scale = np.array([draws.std() or 1.0 for draws in laws.values()])
    ends = np.array([interval_of(draws, ci_prob) for draws in laws.values()])
    low, high = (ends - centre[:, None]).T / scale
    where = np.arange(len(laws))
    label = f"{ci_prob:.0%} of the posterior predictive"
    width = min(3.0, max(0.5, 150 / len(laws)))
    axis.vlines(where, low, high, color=BLUE, alpha=0.5, lw=width, label=label)
    released = (np.array(list(values.values())) - centre) / scale
    axis.plot(where, released, "o", color=ORANGE, ms=4, label="release")
    outside = int(((released < low) | (released > high)).sum())
    axis.set(xlabel="number", ylabel="standard deviations from the mean")
    axis.set_title(f"{outside} of {len(laws)} outside", fontsize="medium")
    tidy(axis, heights=True)
    bottom, top = axis.get_ylim()
    axis.set_ylim(bottom, top + 0.2 * (top - bottom))
    axis.legend(frameon=False, fontsize="small", loc="upper center", ncols=2)
