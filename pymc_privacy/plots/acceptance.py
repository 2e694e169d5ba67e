"""Acceptance of records, births and deaths against the bounds that privacy sets."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from pymc_privacy.arguments import positive, reals, refusal
from pymc_privacy.errors import PlotError
from pymc_privacy.model.acceptance_bounds import AcceptanceBounds, acceptance_bounds
from pymc_privacy.plots.canvas import BLUE, GREEN, ORANGE, PINK, axis_for, group_of, tidy

AVERAGE, SMALLEST = "record_sweep_accept", "record_sweep_accept_min"
# Smallest acceptances of moves of the size, the bound of each, and what the legend calls them.
MOVES = (
    ("birth_death_accept_min", "birth_death", "births and deaths, smallest ever met"),
    ("birth_death_least_accept_min", "least", "births at the least size, smallest ever met"),
)


class _Point(NamedTuple):
    loss: float
    """Minus the logarithm of the bound."""
    height: float
    label: str


def plot_acceptance(runs: Any, *, model: Any = None, axis: Any = None) -> Any:
    """Draw how often records took their proposals, and below it the bound that privacy sets.

    Where replacing a record is epsilon-DP, no proposal is accepted with a smaller probability than
    exp(-epsilon) (Ju, Awan, Gong and Rao 2022, Proposition 3.1); where adding and removing one is,
    than exp(-2 epsilon), and no single birth or death with a smaller one than exp(-(epsilon_s +
    epsilon_n)), or half of it at the least size (Awan, Barrientos and Ju 2024, Proposition 5.1).
    Posteriors of `sample` know these bounds from the guarantees of their releases. What there is no
    bound for is left out.

    Parameters
    ----------
    runs : DataTree, list of DataTree, or mapping of float to DataTree
        One posterior or several; or posteriors by the epsilon of all their releases, as a number
        that is not checked, for which the bound is exp(-epsilon). In a mapping, an entry may also
        be a list, and have pairs for posteriors: average and smallest acceptance probability.
    model : pm.Model, optional
        Where the bounds are read from; by default the posterior knows them. Not with a mapping.
    axis : matplotlib Axes, optional

    Returns
    -------
    matplotlib Axes

    Raises
    ------
    PlotError
        If runs are none of these, no bound follows from the guarantees, runs lack the statistics of
        a record sweep, or Matplotlib is not installed.

    See Also
    --------
    acceptance_bounds : The bounds alone.
    RecordSweep : Keeps these statistics.
    BirthDeath : Keeps those of births and deaths, with ``single=True``.
    az.plot_trace : Draw the chains.

    References
    ----------
    - Ju, N., Awan, J., Gong, R. and Rao, V. (2022), "Data augmentation MCMC for Bayesian inference
      from privatized data", Advances in Neural Information Processing Systems 35.
    - Awan, J., Barrientos, A. F. and Ju, N. (2024), "Statistical inference for privatized data with
      unknown sample size", arXiv:2406.06231.

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
    >>> axis = pmp.plot_acceptance(idata)
    >>> [text.get_text() for text in axis.get_legend().get_texts()]
    ['the bound that is promised', 'average of all records', 'smallest ever met']
    """
    named = isinstance(runs, Mapping) and not hasattr(runs, "children")
    points = _by_epsilon(runs) if named else _by_promise(_several(runs), model)
    axis = axis_for(axis)
    losses = [point.loss for point in points]
    low, high = min(losses), max(losses)
    grid = np.geomspace(low / 1.5, high * 1.5, 200)
    bound = "exp(-epsilon), the bound" if named else "the bound that is promised"
    axis.plot(grid, np.exp(-grid), color="black", lw=1.2, label=bound)
    for label, (marker, colour) in _LOOKS.items():
        drawn = [point for point in points if point.label == label]
        if drawn:
            x, y, _ = zip(*drawn, strict=True)
            axis.plot(x, y, marker, color=colour, alpha=0.6, ms=5, label=label)
    axis.set(xlabel="epsilon" if named else "minus the logarithm of the bound")
    axis.set(ylabel="acceptance probability", ylim=(0, 1.05))
    if high / low > 5:
        axis.set_xscale("log")
    tidy(axis, heights=True)
    axis.legend(frameon=False)
    return axis


_LOOKS = {
    "average of all records": ("o", BLUE),
    "smallest ever met": ("s", ORANGE),
    MOVES[0][2]: ("^", GREEN),
    MOVES[1][2]: ("v", PINK),
}


def _by_epsilon(runs: Mapping[float, Any]) -> list[_Point]:
    """Return the points of runs that come with a number."""
    why: Any = {"meaning": "runs are by epsilon > 0", "error": PlotError}
    epsilons = [positive("The key of a run", e, **why) for e in runs]
    points = [
        point
        for e, run in zip(epsilons, runs.values(), strict=True)
        for pair in _pairs(run)
        for point in _both(e, pair)
    ]
    if not points:
        raise PlotError("runs must be by epsilon > 0, and at least one; got none.")
    if not 1e-100 < min(epsilons) <= max(epsilons) < 1e100:
        raise PlotError("Epsilons of runs must be from 1e-100 to 1e100 to be drawn.")
    return points


def _by_promise(runs: list[Any], model: Any) -> list[_Point]:
    """Return the points of runs whose releases say what the bounds are."""
    points: list[_Point] = []
    why: list[str] = []
    for run in runs:
        bounds = acceptance_bounds(model) if model is not None else _known_bounds(run)
        why += bounds.why
        if bounds.record is not None:
            loss = -math.log(bounds.record)
            points += [point for pair in _pairs(run) for point in _both(loss, pair)]
        statistics = group_of(run, "sample_stats")
        for name, bound, label in MOVES:
            value = getattr(bounds, bound)
            met = statistics[name].min("draw").values if name in statistics else np.empty(0)
            for smallest in met[np.isfinite(met)] if value is not None else []:
                points.append(_Point(-math.log(value), float(smallest), label))
    if not points:
        raise PlotError(
            "Some bound on the acceptance must follow from the guarantees of the releases, as from "
            f"pure DP, to be drawn; got none: {'; '.join(dict.fromkeys(why)) or 'no run'}."
        )
    return points


def _several(runs: Any) -> list[Any]:
    runs = list(runs) if isinstance(runs, list | tuple) else [runs]
    if not runs or not all(hasattr(run, "children") for run in runs):
        wanted = "a posterior, a list of them, or a mapping of epsilons to posteriors"
        raise refusal("runs", wanted, runs, error=PlotError)
    return runs


def _known_bounds(run: Any) -> AcceptanceBounds:
    attributes = run["privacy"].attrs if "privacy" in run.children else {}
    if "acceptance_bounds" not in attributes:
        raise PlotError(
            "A posterior must know the bounds on its acceptance, as those of pmp.sample do (or say "
            "model= for them to be read from, or give runs by their epsilon); got one that does "
            "not."
        )
    known = json.loads(attributes["acceptance_bounds"])
    return AcceptanceBounds(**known | {"why": tuple(known["why"])})


def _both(loss: float, pair: tuple[float, float]) -> list[_Point]:
    return [
        _Point(loss, pair[0], "average of all records"),
        _Point(loss, pair[1], "smallest ever met"),
    ]


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
