"""How the starts of a fit came to its maximum."""

from __future__ import annotations

from typing import Any

import numpy as np

from pymc_privacy.arguments import names as checked_names
from pymc_privacy.errors import PlotError
from pymc_privacy.plots.canvas import GREY, OTHERS, axes_for, tidy


def plot_ascent(fit: Any, *, var_names: Any = None, axes: Any = None) -> np.ndarray:
    """Draw parameters, and the distance that is left, against sweeps, for all starts.

    Parameters
    ----------
    fit : LikelihoodFit
        From `maximum_likelihood`.
    var_names : str or sequence of str, optional
        Parameters; all of them by default. Those with bounds are drawn without them, as they are
        climbed: a logarithm, a log odds.
    axes : array of matplotlib Axes, optional
        One for each coordinate, and one for the distance.

    Returns
    -------
    array of matplotlib Axes

    Raises
    ------
    PlotError
        If `fit` is no fit, has no such parameter, or Matplotlib is not installed.

    See Also
    --------
    maximum_likelihood : Makes the fit.
    plot_profile : Draw the likelihood about its maximum.

    Examples
    --------
    >>> import pymc as pm
    >>> import pymc_privacy as pmp
    >>> with pm.Model():
    ...     mu = pm.Normal("mu", 0, 3)
    ...     x = pm.Normal("x", mu, 1, shape=50)
    ...     s = pmp.Privatized("s", x, pmp.Laplace(scale=4.0), observed=30.0)
    ...     fit = pmp.maximum_likelihood(starts=2, random_seed=1, progressbar=False)
    >>> [axis.get_ylabel() for axis in pmp.plot_ascent(fit)]
    ['mu', 'distance (standard errors)']
    """
    if not hasattr(fit, "path"):
        raise PlotError(f"fit must come from maximum_likelihood; got {type(fit).__name__}.")
    owners = fit.fitting.problem.owners
    wanted = owners if var_names is None else checked_names("var_names", var_names, error=PlotError)
    strangers = [name for name in wanted if name not in owners]
    if strangers:
        raise PlotError(
            f"var_names must be among {', '.join(dict.fromkeys(owners))}; got "
            f"{', '.join(strangers)}."
        )
    places = [k for k, owner in enumerate(owners) if owner in wanted]
    axes = axes_for(len(places) + 1, axes)
    transformed = fit.fitting.problem.is_transformed
    for number, path in enumerate(fit.path):
        colour = OTHERS[number % len(OTHERS)]
        sweeps = [step.sweeps for step in path]
        for axis, k in zip(axes, places, strict=False):
            axis.plot(sweeps, [step.q[k] for step in path], color=colour, lw=1.2)
        told = [step for step in path if step.distance > 0]
        if told:
            far = [step.distance for step in told]
            label = f"start {number + 1}"
            axes[-1].plot([s.sweeps for s in told], far, color=colour, lw=0.8, label=label)
    for axis, k in zip(axes, places, strict=False):
        axis.axhline(fit.q[k], color=GREY, lw=1, ls="--")
        name = fit.coordinates[k]
        axis.set(xlabel="sweeps", ylabel=f"{name} (without bounds)" if transformed[k] else name)
        tidy(axis, heights=True)
    axes[-1].set(xlabel="sweeps", ylabel="distance (standard errors)")
    if axes[-1].lines:
        axes[-1].set_yscale("log")
        axes[-1].legend(frameon=False)
    tidy(axes[-1], heights=True)
    return axes
