"""The release against its posterior predictive."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from pymc_privacy.arguments import names as checked_names
from pymc_privacy.arguments import probability
from pymc_privacy.errors import PlotError
from pymc_privacy.inference.replicates import AS_GIVEN, FITTED, REDRAWN, replicates
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
# A release is far out where fewer replicates than this are as far out on either side.
FAR_OUT = 0.0025
_LABELS = {
    REDRAWN: "replicates, records redrawn",
    FITTED: "replicates, records as fitted to the release",
    AS_GIVEN: "replicates, as given",
}


def plot_release(
    dt: Any,
    *,
    var_names: str | Iterable[str] | None = None,
    records: str = REDRAWN,
    model: Any = None,
    random_seed: Any = None,
    ci_prob: float = 0.95,
    axes: Any = None,
) -> np.ndarray:
    """Draw each released number over what the fitted model would have released.

    A release far out in its own predictive law speaks against the model of the records, the
    mechanism or the prior. Each panel says how much of the law lies below the release and, where
    that is next to all or nothing, how many standard deviations out the release is; the legend
    says whose records the replicates have.

    Parameters
    ----------
    dt : DataTree
        From `sample`. Replicates are drawn here, if it has no group ``posterior_predictive``
        whose records are as asked for.
    var_names : str or sequence of str, optional
        Releases; all of them by default.
    records : {"redrawn", "fitted"}
        Whether the records behind a replicate are drawn afresh, given the parameters, or are the
        imputed ones. These were fitted to the release, so that it looks likely whatever the model.
    model : pm.Model, optional
        The model on the context stack by default; needed to draw replicates.
    random_seed : int or np.random.Generator, optional
        Of the replicates.
    ci_prob : float, default 0.95
        Of the intervals, where there are more than twelve numbers and all share one panel.
    axes : matplotlib Axes, optional

    Returns
    -------
    array of matplotlib Axes

    Raises
    ------
    PlotError
        If there are neither replicates nor a model to draw them, fitted records were not kept, axes
        do not fit, or Matplotlib is not installed.

    See Also
    --------
    plot_records : Draw imputed records.
    plot_posteriors : Draw the parameters.
    pm.sample_posterior_predictive : Draws the replicates.

    Examples
    --------
    >>> import pymc as pm
    >>> import pymc_privacy as pmp
    >>> with pm.Model():
    ...     p = pm.Beta("p", 1, 1)
    ...     x = pm.Bernoulli("x", p, shape=50)
    ...     s = pmp.Privatized("s", x, pmp.Laplace(epsilon=0.5, sensitivity=1.0), observed=31.4)
    ...     idata = pmp.sample(200, tune=200, chains=2, random_seed=1, quiet=True)
    ...     [axis] = pmp.plot_release(idata, random_seed=1)
    >>> axis.get_xlabel()
    's'
    """
    ci_prob = probability("ci_prob", ci_prob, error=PlotError)
    observed = group_of(dt, "observed_data")
    names = None if var_names is None else checked_names("var_names", var_names, error=PlotError)
    predictive, kind = replicates(dt, names, records=records, model=model, random_seed=random_seed)
    laws: dict[str, np.ndarray] = {}
    values: dict[str, float] = {}
    if names is None:
        # Records that were drawn on the way stand beside the releases.
        names = [name for name in chosen(predictive, None) if name in observed] or None
    for name in chosen(predictive, names):
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
        _draw_together(axis, laws, values, ci_prob, _LABELS[kind])
        return np.array([axis])
    axes = axes_for(len(laws), axes)
    for axis, (name, draws) in zip(axes, laws.items(), strict=True):
        shown = draws[np.isfinite(draws)]
        if shown.size:
            draw_law(axis, shown, colour=BLUE, label=_LABELS[kind])
        if np.isfinite(values[name]):
            axis.axvline(values[name], color=ORANGE, lw=2, label="release")
        axis.set_xlabel(name)
        _judge(axis, draws, values[name])
        tidy(axis)
    axes[0].legend(frameon=False, fontsize="small")
    return axes


def _judge(axis: Any, draws: np.ndarray, value: float) -> None:
    """Write above a panel where the release is among its replicates."""
    # What was suppressed is below all that was not.
    draws, value = _suppressed_last(draws), float(_suppressed_last(value))
    below, same = (draws < value).mean(), (draws == value).mean()
    verdict = f"{below + same / 2:.0%} below the release"
    far = max(below, 1 - below - same) >= 1 - FAR_OUT
    if far and np.isfinite(value) and np.isfinite(draws).all() and draws.std() > 0:
        away = (value - draws.mean()) / draws.std()
        side = "above" if away > 0 else "below"
        verdict += f"\nfar out: {abs(away):.1f} standard deviations {side}"
    elif far:
        verdict += "\nfar out"
    axis.set_title(verdict, fontsize="medium", color=ORANGE if far else "black")


def _suppressed_last(numbers: Any) -> np.ndarray:
    return np.where(np.isnan(numbers), -np.inf, numbers)


def _draw_together(
    axis: Any, laws: dict[str, np.ndarray], values: dict[str, float], ci_prob: float, law: str
) -> None:
    """Draw all numbers side by side, in standard deviations from their predictive mean."""
    centre = np.array([draws.mean() for draws in laws.values()])
    scale = np.array([draws.std() or 1.0 for draws in laws.values()])
    ends = np.array([interval_of(draws, ci_prob) for draws in laws.values()])
    low, high = (ends - centre[:, None]).T / scale
    where = np.arange(len(laws))
    label = f"{ci_prob:.0%} of the {law}"
    width = min(3.0, max(0.5, 150 / len(laws)))
    axis.vlines(where, low, high, color=BLUE, alpha=0.5, lw=width, label=label)
    released = (np.array(list(values.values())) - centre) / scale
    axis.plot(where, released, "o", color=ORANGE, ms=4, label="release")
    outside = int(((released < low) | (released > high)).sum())
    axis.set(xlabel="number", ylabel="standard deviations from the mean")
    axis.set_title(
        f"{outside} of {len(laws)} outside, {round(len(laws) * (1 - ci_prob), 1):g} expected\n"
        f"farthest out: {np.nanmax(abs(released)):.1f} standard deviations",
        fontsize="medium",
    )
    tidy(axis, heights=True)
    bottom, top = axis.get_ylim()
    axis.set_ylim(bottom, top + 0.2 * (top - bottom))
    axis.legend(frameon=False, fontsize="small", loc="upper center", ncols=2)
