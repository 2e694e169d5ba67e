"""Shares of a whole: where their means may be, and how a threshold was chosen."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from pymc_privacy.arguments import instance, names, reals, text
from pymc_privacy.errors import PlotError
from pymc_privacy.plots.canvas import (
    BLUE,
    GREY,
    ORANGE,
    OTHERS,
    PALE,
    axes_for,
    axis_for,
    chosen,
    draws_of,
    group_of,
    tidy,
)
from pymc_privacy.sanitize import CompositionRelease

_MOST = 1000  # points of one cloud
_MOST_PARTS = 50  # each pair of neighbours has a panel
_HEIGHT = np.sqrt(3) / 2


def plot_shares(
    dt: Any,
    *,
    var_names: str = "alpha",
    labels: Sequence[str] | None = None,
    truth: Any = None,
    axes: Any = None,
) -> Any:
    """Draw where mean shares may be: in a triangle if there are three, else in pairs.

    Parameters
    ----------
    dt : DataTree, array_like, or mapping of them by name
        A posterior with parameters of a Dirichlet law, or draws of these of shape (n, d). Only
        their proportions are drawn.
    var_names : str, default "alpha"
        Of the parameters, in a posterior.
    labels : sequence of str, optional
        What the shares are called.
    truth : array_like, optional
        Parameters, or mean shares, to be marked.
    axes : matplotlib Axes, optional
        One for a triangle; else one for each neighbouring pair of shares.

    Returns
    -------
    matplotlib Axes or ndarray of them

    Raises
    ------
    PlotError
        If draws are not positive numbers of 2 to 50 shares, of as many in each, or Matplotlib is
        not installed.

    See Also
    --------
    PrivatizedComposition : The model that these are of.
    plot_threshold : How a threshold was chosen.

    Examples
    --------
    >>> import numpy as np
    >>> import pymc_privacy as pmp
    >>> rng = np.random.default_rng(1)
    >>> clouds = {"sharp": rng.gamma(200.0, size=(500, 3)), "wide": rng.gamma(20.0, size=(500, 3))}
    >>> axis = pmp.plot_shares(clouds, labels=["care", "eating", "other"], truth=[1, 1, 1])
    >>> [text.get_text() for text in axis.get_legend().get_texts()]
    ['sharp', 'wide', 'truth']
    """
    # A tree is a mapping, too: of its groups.
    named = isinstance(dt, Mapping) and not hasattr(dt, "children")
    clouds = {
        _cloud_label(label) if named else "": _proportions("dt", one, var_names)
        for label, one in (dt.items() if named else [("", dt)])
    }
    widths = {cloud.shape[1] for cloud in clouds.values()}
    if len(widths) != 1:
        raise PlotError(
            f"dt must have draws of as many shares in each; got {sorted(widths) or 'none'}."
        )
    [parts] = widths
    if parts > _MOST_PARTS:
        raise PlotError(f"dt must have draws of {_MOST_PARTS} shares at most; got {parts}.")
    called = _labels(labels, parts)
    where = None if truth is None else _shares_of(np.atleast_2d(_numbers("truth", truth)))
    if where is not None and where.shape != (1, parts):
        raise PlotError(f"truth must be {parts} positive numbers; got shape {where.shape}.")
    panels = axes_for(1 if parts == 3 else parts - 1, axes)
    for panel, axis in enumerate(panels):
        project = _in_triangle if parts == 3 else _pair(panel)
        for colour, (label, cloud) in zip(_colours(), clouds.items(), strict=False):
            step = max(1, len(cloud) // _MOST)
            style = {"s": 6, "alpha": 0.35, "lw": 0, "zorder": 2 - len(axis.collections) / 100}
            axis.scatter(*project(cloud[::step]), color=colour, label=label, **style)
        if where is not None:
            axis.scatter(*project(where), marker="+", s=120, color="black", label="truth", zorder=5)
        if parts == 3:
            _triangle(axis, called)
        else:
            axis.set(xlabel=called[panel], ylabel=called[panel + 1])
            tidy(axis, heights=True)
    if where is not None or "" not in clouds:
        beside = {"loc": "upper left", "bbox_to_anchor": (1.0, 1.0)} if parts == 3 else {}
        drawn = panels[0].legend(frameon=False, markerscale=2, **beside)
        for handle in drawn.legend_handles:
            handle.set_alpha(1.0)
    return panels[0] if len(panels) == 1 else panels


def plot_threshold(published: CompositionRelease, *, axis: Any = None) -> Any:
    """Draw how a threshold was chosen: the noisy share of records that each would censor.

    Parameters
    ----------
    published : CompositionRelease
        With noisy counts.
    axis : matplotlib Axes, optional

    Returns
    -------
    matplotlib Axes

    Raises
    ------
    PlotError
        If it has no noisy counts, because its threshold was fixed, or Matplotlib is not installed.

    See Also
    --------
    select_threshold : The rule.
    release_composition : Chooses a threshold.

    Examples
    --------
    >>> import numpy as np
    >>> import pymc_privacy as pmp
    >>> shares = np.random.default_rng(1).dirichlet([2, 3, 4], size=500)
    >>> published = pmp.release_composition(
    ...     shares, epsilon=2.0, thresholds=[0.001, 0.01, 0.1], neighbours="replace_one"
    ... )
    >>> axis = pmp.plot_threshold(published)
    >>> axis.get_xlabel()
    'threshold'
    """
    kind = CompositionRelease
    wanted = "a CompositionRelease with noisy counts"
    published = instance("published", published, kind, wanted, error=PlotError)
    thresholds, counts = published.plan.thresholds, published.counts
    if thresholds is None or counts is None:
        raise PlotError(f"published must be {wanted}; got one with a threshold that was fixed.")
    noisy = np.maximum(np.asarray(counts, dtype=float), 0)
    censored = np.cumsum(noisy)[:-1] / max(noisy.sum(), 1.0)
    axis = axis_for(axis)
    places = np.arange(len(thresholds))
    colours = [BLUE if t == published.threshold else PALE for t in thresholds]
    axis.bar(places, censored, color=colours)
    axis.axhline(published.plan.censored, color=ORANGE, lw=1.5)
    line, beside = published.plan.censored, axis.get_yaxis_transform()
    axis.text(1.01, line, f"{line:g}", color=ORANGE, va="center", transform=beside)
    axis.set_xticks(places, [f"{t:g}" for t in thresholds])
    axis.set(xlabel="threshold", ylabel="noisy share of records below it")
    top = max(4 * published.plan.censored, float(np.min(censored)))
    axis.set_ylim(0, min(top, 1.0))
    axis.set_title(f"chosen: {published.threshold:g}", color=BLUE)
    tidy(axis, heights=True)
    return axis


def _proportions(what: str, one: Any, var_names: str) -> np.ndarray:
    """Return mean shares, one row for each draw."""
    if not hasattr(one, "children"):
        return _shares_of(_numbers(what, one))
    dataset = group_of(one, "posterior", "prior")
    [name] = chosen(dataset, text("var_names", var_names, error=PlotError))
    return _shares_of(_numbers(what, draws_of(dataset[name])))


def _shares_of(values: np.ndarray) -> np.ndarray:
    """Return positive numbers as proportions, row by row."""
    if values.ndim != 2 or values.shape[1] < 2 or not len(values) or not np.all(values > 0):
        raise PlotError(
            "Draws must be positive parameters of two shares or more, of shape (n, d); got shape "
            f"{values.shape}."
        )
    # Sums of large numbers may be beyond floats.
    scaled = values / values.max(axis=1, keepdims=True)
    return np.asarray(scaled / scaled.sum(axis=1, keepdims=True))


def _numbers(what: str, values: Any) -> np.ndarray:
    wanted = "finite numbers of shape (d,) or (n, d)"
    return reals(what, values, shapes=[("d",), ("n", "d")], wanted=wanted, error=PlotError)


def _cloud_label(label: Any) -> str:
    """Return what draws are called in a legend, from which Matplotlib leaves out some names."""
    line = text("A label of draws", label, error=PlotError)
    if line.startswith("_"):
        raise PlotError(f"A label of draws must not begin with an underscore; got {line!r}.")
    return line


def _labels(labels: Any, parts: int) -> list[str]:
    called = [f"share {k + 1}" for k in range(parts)]
    if labels is not None:
        called = names("labels", labels, error=PlotError)
    if len(called) != parts:
        raise PlotError(f"labels must be {parts}, one for each share; got {len(called)}.")
    return called


def _colours() -> list[str]:
    return list(OTHERS) * 10


def _in_triangle(shares: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return where shares are between corners at the left, at the right and at the top."""
    return shares[:, 1] + shares[:, 2] / 2, shares[:, 2] * _HEIGHT


def _pair(panel: int) -> Any:
    return lambda shares: (shares[:, panel], shares[:, panel + 1])


def _triangle(axis: Any, called: list[str]) -> None:
    """Draw the sides, the corners' names, and lines of equal shares."""
    corners = np.eye(3)
    axis.plot(*_in_triangle(corners[[0, 1, 2, 0]]), color=GREY, lw=1)
    for share in np.arange(0.1, 1.0, 0.1):
        for j in range(3):
            ends = np.zeros((2, 3))
            ends[:, j] = share
            ends[0, (j + 1) % 3] = ends[1, (j + 2) % 3] = 1 - share
            axis.plot(*_in_triangle(ends), color=PALE, lw=0.5, zorder=0)
    for k, (x, y) in enumerate(zip(*_in_triangle(corners), strict=True)):
        align = ("right", "left", "center")[k]
        axis.text(x, y, f" {called[k]} ", ha=align, va="bottom" if k == 2 else "center")
    axis.set_aspect("equal")
    axis.set_axis_off()
