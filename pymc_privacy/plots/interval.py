"""A private interval over the posterior that it protects."""

from __future__ import annotations

from typing import Any

import numpy as np

from pymc_privacy.arguments import instance, reals
from pymc_privacy.errors import PlotError
from pymc_privacy.plots.canvas import BLUE, GREEN, ORANGE, PALE, axis_for, tidy
from pymc_privacy.results import posterior_draws
from pymc_privacy.sanitize import PrivateInterval

_FAR = 1e100  # beyond which an axis has no ticks
_COLOURS = {"proven": BLUE, "conditional": GREEN, "nominal": ORANGE}


def plot_interval(interval: PrivateInterval, draws_or_idata: Any, *, axis: Any = None) -> Any:
    """Draw a private interval over the posterior that it protects: for the curator's eyes only.

    The curve shows the posterior given the records, which is confidential. The picture says so.

    Parameters
    ----------
    interval : PrivateInterval
    draws_or_idata : array_like or DataTree
        The posterior given the records: draws, or a posterior with a variable of that name.
    axis : matplotlib Axes, optional

    Returns
    -------
    matplotlib Axes

    Raises
    ------
    PlotError
        If `interval` is no interval, there are no finite draws, or Matplotlib is not installed.
    GuaranteeError
        If the posterior has no scalar variable of this name.

    See Also
    --------
    PrivateInterval : What it draws.
    plot_posteriors : Draw posteriors over each other.

    Examples
    --------
    >>> import numpy as np
    >>> import pymc_privacy as pmp
    >>> answers = [0, 1, 1, 0] * 100
    >>> interval = pmp.noise_aware_interval(answers, pmp.Proportion(), epsilon=0.5)
    >>> confidential = np.random.default_rng(1).beta(201, 201, size=4000)
    >>> axis = pmp.plot_interval(interval, confidential)
    >>> axis.get_title()
    'CONFIDENTIAL: shows the posterior given the records'
    """
    kind = PrivateInterval
    interval = instance("interval", interval, kind, "a PrivateInterval", error=PlotError)
    if isinstance(draws_or_idata, np.ndarray | list | tuple):
        said: Any = {"least": -_FAR, "most": _FAR, "confidential": True, "error": PlotError}
        shapes = [("n",), ("chains", "n")]
        draws = reals("draws", draws_or_idata, shapes=shapes, **said).ravel()
    else:
        draws = posterior_draws(draws_or_idata, [interval.name])[interval.name]
    if not draws.size:
        raise PlotError("There must be a draw or more; got none.")
    axis = axis_for(axis)
    colour = _COLOURS[interval.label]
    axis.hist(draws, bins="fd", density=True, color=PALE, label="posterior given the records")
    ends = sorted((interval.lower, interval.upper))
    label = f"{interval.prob:.0%} by {interval.method} ({interval.label})"
    axis.axvspan(*ends, color=colour, alpha=0.2, lw=0, label=label)
    for end in ends:
        axis.axvline(end, color=colour, lw=2)
    axis.set(xlabel=interval.name)
    axis.set_title("CONFIDENTIAL: shows the posterior given the records")
    tidy(axis)
    axis.set_ylim(0, 1.35 * axis.get_ylim()[1])
    axis.legend(frameon=False, loc="upper right")
    return axis
