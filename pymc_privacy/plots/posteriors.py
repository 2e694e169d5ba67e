"""The same parameters from several angles: naive, privatized, prior, confidential."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import cycle
from typing import Any

import numpy as np

from pymc_privacy.arguments import probability, reals, refusal
from pymc_privacy.errors import PlotError
from pymc_privacy.plots.canvas import (
    COLOURS,
    OTHERS,
    axes_for,
    coordinates,
    draw_law,
    group_of,
    interval_of,
    scalars,
    tidy,
)


def plot_posteriors(
    posteriors: Any,
    *,
    var_names: str | Iterable[str] | None = None,
    truth: Mapping[str, Any] | None = None,
    ci_prob: float = 0.95,
    axes: Any = None,
) -> np.ndarray:
    """Draw posteriors of the same parameters over each other, with their intervals below.

    Parameters
    ----------
    posteriors : DataTree or mapping of str to DataTree
        By label. A tree without a group ``posterior`` is drawn from its ``prior``. The labels
        ``privatized``, ``naive``, ``confidential`` and ``prior`` have colours of their own.
    var_names : str or sequence of str, optional
        All variables that the trees have in common by default.
    truth : mapping of str to float or array, optional
        True values by variable, where they are known.
    ci_prob : float, default 0.95
        Of the equal-tailed intervals.
    axes : matplotlib Axes, optional
        One for each coordinate of each variable.

    Returns
    -------
    array of matplotlib Axes

    Raises
    ------
    PlotError
        If there are no draws of the variables, axes do not fit, or Matplotlib is not installed.

    See Also
    --------
    plot_release : Compare the release with its predictive law.
    plot_records : Draw imputed records.
    az.plot_forest : Intervals of many variables.

    Examples
    --------
    >>> import pymc as pm
    >>> import pymc_privacy as pmp
    >>> with pm.Model() as model:
    ...     p = pm.Beta("p", 1, 1)
    ...     x = pm.Bernoulli("x", p, shape=50)
    ...     s = pmp.Privatized("s", x, pmp.Laplace(epsilon=0.5, sensitivity=1.0), observed=31.4)
    ...     idata = pmp.sample(200, tune=200, chains=2, random_seed=1, quiet=True)
    ...     prior = pm.sample_prior_predictive(500, var_names=["p"], random_seed=1)
    >>> [axis] = pmp.plot_posteriors({"privatized": idata, "prior": prior}, truth={"p": 0.6})
    >>> axis.get_xlabel(), [text.get_text() for text in axis.get_legend().get_texts()]
    ('p', ['privatized', 'prior', 'truth'])
    """
    # A tree is a mapping, too.
    trees = {"posterior": posteriors} if hasattr(posteriors, "children") else posteriors
    if not isinstance(trees, Mapping):
        wanted = "a DataTree, or a mapping of labels to them"
        raise refusal("posteriors", wanted, posteriors, error=PlotError)
    ci_prob = probability("ci_prob", ci_prob, error=PlotError)
    laws = _common(trees, var_names)
    true_values = {} if truth is None else _true_values(truth)
    first = next(iter(laws.values()))
    axes = axes_for(len(first), axes)
    taken = {COLOURS[label] for label in laws if label in COLOURS}
    spare = cycle(colour for colour in OTHERS if colour not in taken)
    colours = {label: COLOURS[label] if label in COLOURS else next(spare) for label in laws}
    for axis, name in zip(axes, first, strict=True):
        for label, law in laws.items():
            line = {"ls": ":"} if label == "prior" else {}
            draw_law(axis, law[name], colour=colours[label], label=label, **line)
        _look_closely(axis, [law[name] for label, law in laws.items() if label != "prior"])
        _draw_intervals(axis, [(c, laws[label][name]) for label, c in colours.items()], ci_prob)
        if name in true_values:
            axis.axvline(true_values[name], color="black", lw=1.2, ls="--", label="truth")
        axis.set_xlabel(name)
        tidy(axis)
    if len(trees) > 1 or true_values:
        axes[0].legend(frameon=False)
    return axes


def _common(trees: Mapping[str, Any], var_names: Any) -> dict[str, dict[str, np.ndarray]]:
    """Return the draws by label and coordinate, of what all trees have."""
    if not trees:
        raise PlotError("posteriors must be a DataTree, or at least one by its label; got none.")
    datasets = {label: group_of(tree, "posterior", "prior") for label, tree in trees.items()}
    if var_names is None:
        first, *others = datasets.values()
        var_names = [n for n in first.data_vars if all(n in other for other in others)]
    return {str(label): scalars(dataset, var_names) for label, dataset in datasets.items()}


def _true_values(truth: Mapping[str, Any]) -> dict[str, float]:
    if not isinstance(truth, Mapping):
        raise refusal("truth", "a mapping of names to values", truth, error=PlotError)
    found: dict[str, np.ndarray] = {}
    for name, value in truth.items():
        found |= coordinates(str(name), reals(f"truth of {name}", value, error=PlotError)[None])
    return {name: float(value[0]) for name, value in found.items()}


def _look_closely(axis: Any, draws: list[np.ndarray]) -> None:
    """Do not let a wide prior squeeze the rest: show one width of the rest on either side of it."""
    if draws and np.ptp(np.concatenate(draws)) > 0:
        low, high = np.quantile(np.concatenate(draws), [0.0005, 0.9995])
        left, right = axis.get_xlim()
        axis.set_xlim(max(left, 2 * low - high), min(right, 2 * high - low))


def _draw_intervals(axis: Any, laws: list[tuple[str, np.ndarray]], ci_prob: float) -> None:
    """Draw bars below the curves by colour, in units of the height of the axes."""
    step = 0.05
    top = axis.get_ylim()[1]
    share = step * (len(laws) + 1)
    axis.set_ylim(-top * share / (1 - share), top)
    for row, (colour, draws) in enumerate(laws):
        axis.plot(
            interval_of(draws, ci_prob),
            [share - step * (row + 1)] * 2,
            transform=axis.get_xaxis_transform(),
            color=colour,
            lw=4,
            solid_capstyle="butt",
        )
