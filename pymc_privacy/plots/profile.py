"""A profile of the likelihood of releases."""

from __future__ import annotations

from typing import Any

from scipy.stats import chi2

from pymc_privacy.arguments import probability
from pymc_privacy.errors import PlotError
from pymc_privacy.plots.canvas import BLUE, GREY, axis_for, tidy


def plot_profile(profile: Any, *, ci_prob: float = 0.95, axis: Any = None) -> Any:
    """Draw a profile log likelihood below its maximum, with its Monte Carlo error.

    Parameters
    ----------
    profile : Profile
        From the method ``profile`` of a fit.
    ci_prob : float, default 0.95
        For the height above which values are in a profile interval.
    axis : matplotlib Axes, optional

    Returns
    -------
    matplotlib Axes

    Raises
    ------
    PlotError
        If `profile` is none, or Matplotlib is not installed.

    See Also
    --------
    maximum_likelihood : Makes the fit that has profiles.
    plot_ascent : Draw how the maximum was found.

    Examples
    --------
    >>> import pymc as pm
    >>> import pymc_privacy as pmp
    >>> with pm.Model():
    ...     mu = pm.Normal("mu", 0, 3)
    ...     x = pm.Normal("x", mu, 1, shape=50)
    ...     s = pmp.Privatized("s", x, pmp.Laplace(scale=4.0), observed=30.0)
    ...     fit = pmp.maximum_likelihood(starts=2, random_seed=1, progressbar=False)
    >>> axis = pmp.plot_profile(fit.profile("mu"))
    >>> axis.get_xlabel()
    'mu'
    """
    if not hasattr(profile, "log_likelihood") or not hasattr(profile, "grid"):
        raise PlotError(
            "profile must come from the method `profile` of a fit of maximum_likelihood; got "
            f"{type(profile).__name__}."
        )
    ci_prob = probability("ci_prob", ci_prob, error=PlotError)
    axis = axis_for(axis)
    height = profile.log_likelihood - profile.maximum
    axis.fill_between(
        profile.grid,
        height - 2 * profile.error,
        height + 2 * profile.error,
        color=BLUE,
        alpha=0.2,
        lw=0,
        label="± 2 Monte Carlo errors",
    )
    axis.plot(profile.grid, height, color=BLUE, lw=2, marker="o", ms=3)
    axis.axvline(profile.estimate, color=GREY, lw=1, ls="--", label="maximum")
    fall = -float(chi2.ppf(ci_prob, 1)) / 2
    axis.axhline(fall, color=GREY, lw=1, ls=":", label=f"{ci_prob:.0%}, large samples")
    axis.set(xlabel=profile.name, ylabel="profile log likelihood, less its maximum")
    tidy(axis, heights=True)
    axis.legend(frameon=False)
    return axis
