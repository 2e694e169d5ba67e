"""What all plots share: axes, colours, and draws of one coordinate at a time."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from scipy.stats import gaussian_kde

from pymc_privacy.arguments import names as checked_names
from pymc_privacy.arguments import probability, refusal
from pymc_privacy.errors import PlotError

# Colours of Okabe and Ito, which colour-blind readers can tell apart.
BLUE, ORANGE, GREEN, PINK, YELLOW = "#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00"
GREY, PALE = "#666666", "#BBBBBB"
COLOURS = {"confidential": GREY, "naive": ORANGE, "privatized": BLUE, "prior": PALE}
OTHERS = (BLUE, ORANGE, GREEN, PINK, YELLOW, GREY)


def new_axes(panels: int = 1, *, width: float = 3.6, height: float = 3.2) -> np.ndarray:
    """Return fresh axes in rows of at most four, in a figure that a notebook shows by itself."""
    try:
        import matplotlib.pyplot as plt
    except ImportError:
        raise PlotError(
            "A plot needs Matplotlib, which is not installed; install pymc-privacy[plots]."
        ) from None
    columns = min(panels, 4)
    rows = -(-panels // columns)
    size = (max(width * columns, 6.0), height * rows)
    _, axes = plt.subplots(rows, columns, figsize=size, layout="constrained", squeeze=False)
    for spare in axes.ravel()[panels:]:
        spare.set_visible(False)
    return axes.ravel()[:panels]


def axes_for(panels: int, axes: Any) -> np.ndarray:
    """Return the axes that came, if there are as many as needed; new ones by default."""
    if axes is None:
        return new_axes(panels)
    try:
        given = np.atleast_1d(np.asarray(axes, dtype=object)).ravel()
    except Exception:  # of a class of the caller's, which can raise anything
        given = np.array([None])
    for one in given:
        checked_axis(one, "axes")
    if len(given) != panels:
        raise PlotError(f"axes must be one for each of {panels} panels; got {len(given)}.")
    return given


def axis_for(axis: Any) -> Any:
    """Return the axes that came, or new ones by default."""
    return new_axes()[0] if axis is None else checked_axis(axis, "axis")


def checked_axis(axis: Any, name: str) -> Any:
    """Return axes of Matplotlib, which can be drawn on."""
    if not (hasattr(axis, "axvline") and hasattr(axis, "get_xaxis_transform")):
        raise refusal(name, "axes of Matplotlib", axis, error=PlotError)
    return axis


def group_of(tree: Any, *names: str) -> Any:
    """Return the first of some groups that a tree has."""
    groups = getattr(tree, "children", {})
    groups = groups if isinstance(groups, Mapping) else {}
    for name in names:
        if name in groups:
            return tree[name].dataset
    raise PlotError(
        f"This plot needs a DataTree with a group {' or '.join(f'`{n}`' for n in names)}; got "
        f"{', '.join(groups) or type(tree).__name__}."
    )


def chosen(dataset: Any, var_names: str | Iterable[str] | None) -> list[str]:
    """Return names of variables, all of them by default."""
    present = [str(name) for name in dataset.data_vars]
    names = present if var_names is None else checked_names("var_names", var_names, error=PlotError)
    missing = [name for name in names if name not in present]
    if missing or not names:
        raise PlotError(
            f"var_names must be among {', '.join(present) or 'none'}; got "
            f"{', '.join(missing) or 'none'}."
        )
    return names


def draws_of(variable: Any) -> np.ndarray:
    """Return an array of (draws, …), chains joined."""
    if not {"chain", "draw"} <= set(variable.dims) or variable.dtype.kind not in "iufb":
        raise PlotError(
            f"Draws must be numbers by chain and draw; got {variable.name} of type "
            f"{variable.dtype} by {', '.join(map(str, variable.dims)) or 'nothing'}."
        )
    if variable.sizes["chain"] * variable.sizes["draw"] == 0:
        raise PlotError(f"There must be a draw or more; got none of {variable.name}.")
    values = variable.transpose("chain", "draw", ...).values
    return values.reshape(-1, *values.shape[2:])


def coordinates(name: str, values: np.ndarray) -> dict[str, np.ndarray]:
    """Return the draws of each coordinate under its name, as ArviZ writes it."""
    shape = values.shape[1:]
    return {
        name if not shape else f"{name}[{', '.join(map(str, where))}]": values[
            (slice(None), *where)
        ]
        for where in np.ndindex(*shape)
    }


def scalars(dataset: Any, var_names: str | Iterable[str] | None) -> dict[str, np.ndarray]:
    """Return the draws of all coordinates of some variables."""
    found: dict[str, np.ndarray] = {}
    for name in chosen(dataset, var_names):
        found |= coordinates(name, draws_of(dataset[name]))
    return found


def interval_of(draws: np.ndarray, ci_prob: float) -> tuple[float, float]:
    """Return the equal-tailed interval."""
    ci_prob = probability("ci_prob", ci_prob, error=PlotError)
    low, high = np.quantile(draws, [(1 - ci_prob) / 2, (1 + ci_prob) / 2])
    return float(low), float(high)


def draw_law(axis: Any, draws: np.ndarray, *, colour: str, label: str | None, **style: Any) -> None:
    """Draw a smooth density, or bars of probabilities for draws that are integers."""
    if np.issubdtype(draws.dtype, np.integer) and np.ptp(draws) < 200:
        values, counts = np.unique(draws, return_counts=True)
        axis.bar(values, counts / len(draws), color=colour, alpha=0.5, label=label, width=0.9)
        return
    draws = np.asarray(draws, dtype=float)
    if np.ptp(draws) == 0:
        axis.axvline(draws[0], color=colour, label=label)
        return
    low, high = np.quantile(draws, [0.0005, 0.9995])
    grid = np.linspace(low, high, 300)
    density = gaussian_kde(draws, bw_method=0.25)(grid)
    axis.fill_between(grid, density, color=colour, alpha=0.12, lw=0)
    axis.plot(grid, density, **{"color": colour, "lw": 2, "label": label} | style)


def tidy(axis: Any, *, heights: bool = False) -> None:
    """Take off what carries no information."""
    axis.spines[["top", "right"]].set_visible(False)
    if not heights:
        axis.spines["left"].set_visible(False)
        axis.set_yticks([])
