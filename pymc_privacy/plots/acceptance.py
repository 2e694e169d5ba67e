"""Acceptance of records against the bound that privacy sets."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from pymc_privacy.arguments import positive, reals, refusal
from pymc_privacy.errors import PlotError
from pymc_privacy.plots.canvas import BLUE, ORANGE, axis_for, group_of, tidy

AVERAGE, SMALLEST = "record_sweep_accept", "record_sweep_accept_min"


def plot_acceptance(runs: Mapping[float, Any], *, axis: Any = None) -> Any:
    """Draw how often records took their proposals, and the bound exp(-epsilon) below it.

    No proposal is accepted with a smaller probability than exp(-epsilon) (Ju, Awan, Gong and Rao
    2022, Proposition 3.1). The bound holds for pure epsilon-DP under replacement of a record, for
    all releases of the records together; that epsilon is this one is not checked.

    Parameters
    ----------
    runs : mapping of float to DataTree
        Posteriors by the epsilon of all their releases; or a list of them for each epsilon, of
        which an entry may also be a pair: the average and the smallest acceptance probability.
    axis : matplotlib Axes, optional

    Returns
    -------
    matplotlib Axes

    Raises
    ------
    PlotError
        If runs are not by epsilon > 0 or lack the statistics of a record sweep, or Matplotlib is
        not installed.

    See Also
    --------
    RecordSweep : Keeps these statistics.
    az.plot_trace : Draw the chains.

    References
    ----------
    - Ju, N., Awan, J., Gong, R. and Rao, V. (2022), "Data augmentation MCMC for Bayesian inference
      from privatized data", Advances in Neural Information Processing Systems 35.

    Examples
    --------
    >>> import pymc as pm
    >>> import pymc_privacy as pmp
    >>> with pm.Model():
    ...     mu = pm.Normal("mu", 0, 1)
    ...     x = pm.Normal("x", mu, 1.0, shape=50)
    ...     noise = pmp.Laplace(epsilon=1.0, sensitivity=6.0)
    ...     s = pmp.Privatized("s", x.clip(-3, 3), noise, observed=20.0)
    ...     idata = pmp.sample(100, tune=100, chains=2, random_seed=1, quiet=True)
    >>> axis = pmp.plot_acceptance({1.0: idata})
    >>> [text.get_text() for text in axis.get_legend().get_texts()]
    ['exp(-epsilon), the bound', 'average of all records', 'smallest ever met']
    """
    if not isinstance(runs, Mapping):
        raise refusal("runs", "a mapping of epsilons to posteriors", runs, error=PlotError)
    why: Any = {"meaning": "runs are by epsilon > 0", "error": PlotError}
    epsilons = [positive("The key of a run", e, **why) for e in runs]
    points = [
        (e, *pair) for e, run in zip(epsilons, runs.values(), strict=True) for pair in _pairs(run)
    ]
    if not points:
        raise PlotError("runs must be by epsilon > 0, and at least one; got none.")
    if not 1e-100 < min(epsilons) <= max(epsilons) < 1e100:
        raise PlotError("Epsilons of runs must be from 1e-100 to 1e100 to be drawn.")
    axis = axis_for(axis)
    by, average, smallest = np.array(points).T
    low, high = by.min(), by.max()
    grid = np.geomspace(low / 1.5, high * 1.5, 200)
    axis.plot(grid, np.exp(-grid), color="black", lw=1.2, label="exp(-epsilon), the bound")
    axis.plot(by, average, "o", color=BLUE, alpha=0.6, ms=5, label="average of all records")
    axis.plot(by, smallest, "s", color=ORANGE, alpha=0.6, ms=5, label="smallest ever met")
    axis.set(xlabel="epsilon", ylabel="acceptance probability", ylim=(0, 1.05))
    if high / low > 5:
        axis.set_xscale("log")
    tidy(axis, heights=True)
    axis.legend(frameon=False)
    return axis


def _pairs(run: Any) -> list[tuple[float, float]]:
    """Return (average, smallest) of each chain of each run."""
    if isinstance(run, list):
        return [pair for entry in run for pair in _pairs(entry)]
    if isinstance(run, tuple | np.ndarray):
        pair = reals("acceptance", run, shapes=[(2,)], least=0, most=1, error=PlotError)
        return [(float(pair[0]), float(pair[1]))]
    statistics = group_of(run, "sample_stats")
    if AVERAGE not in statistics or SMALLEST not in statistics:
        raise PlotError(
            "The acceptance of records is known where they are moved one by one; got a run whose "
            f"sample_stats have no {AVERAGE}, as of records that are known by their counts."
        )
    average = statistics[AVERAGE].mean("draw").values
    smallest = statistics[SMALLEST].min("draw").values
    return [(float(a), float(s)) for a, s in zip(average, smallest, strict=True)]
