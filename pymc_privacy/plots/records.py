"""The imputed database: what the records could have been."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from pymc_privacy.arguments import integer, reals, refusal, text
from pymc_privacy.errors import PlotError
from pymc_privacy.plots.canvas import BLUE, axes_for, chosen, draws_of, group_of, tidy


def plot_records(
    dt: Any,
    var_names: str | Iterable[str],
    *,
    databases: int = 50,
    size: str | None = None,
    confidential: Mapping[str, Any] | None = None,
    axes: Any = None,
) -> np.ndarray:
    """Draw imputed databases over each other: one thin line for each, and their average.

    Where the lines agree, the release, the model and the prior say what the records were like;
    they never say what a single record was.

    Parameters
    ----------
    dt : DataTree
        From `sample` with ``keep_records=True``.
    var_names : str or sequence of str
        Record variables; a record of several numbers has one panel for each.
    databases : int, default 50
        How many draws to show, equally spaced.
    size : str, optional
        The variable that holds the number of records, when that is unknown: rows beyond it do
        not exist, and are left out. So are rows that are ``nan``, as `sample` stores them.
    confidential : mapping of str to array, optional
        The true records by variable, where they are known.
    axes : matplotlib Axes, optional

    Returns
    -------
    array of matplotlib Axes

    Raises
    ------
    PlotError
        If the records were not kept or have more than two axes, axes do not fit, or Matplotlib is
        not installed.

    See Also
    --------
    sample : Keeps the records with ``keep_records=True``.
    plot_release : Compare the release with its predictive law.

    Examples
    --------
    >>> import pymc as pm
    >>> import pymc_privacy as pmp
    >>> with pm.Model():
    ...     mu = pm.Normal("mu", 0, 1)
    ...     x = pm.Normal("x", mu, 1.0, shape=50)
    ...     noise = pmp.Laplace(epsilon=1.0, sensitivity=6.0)
    ...     s = pmp.Privatized("s", x.clip(-3, 3), noise, observed=20.0)
    ...     idata = pmp.sample(
    ...         100, tune=100, chains=2, random_seed=1, quiet=True, keep_records=True,
    ...         compute_convergence_checks=False,
    ...     )
    >>> [axis] = pmp.plot_records(idata, "x", databases=20)
    >>> len(axis.lines)
    21
    """
    posterior = group_of(dt, "posterior")
    try:
        names = chosen(posterior, var_names)
    except PlotError as error:
        raise PlotError(
            f"{error} Records are stored by `sample` with keep_records=True alone."
        ) from None
    databases = integer("databases", databases, least=1, error=PlotError)
    truths = {} if confidential is None else _truths(confidential)
    panels = {
        key: (rows, truths.get(name))
        for name in names
        for key, rows in _columns(name, draws_of(posterior[name])).items()
    }
    sizes = None
    if size is not None:
        [size] = chosen(posterior, text("size", size, error=PlotError))
        sizes = draws_of(posterior[size])
        if sizes.ndim != 1 or sizes.dtype.kind not in "iu":
            raise PlotError(f"size must be one integer of the posterior; got {size}.")
    axes = axes_for(len(panels), axes)
    for axis, (label, (rows, truth)) in zip(axes, panels.items(), strict=True):
        picked = np.unique(np.linspace(0, len(rows) - 1, min(databases, len(rows))).astype(int))
        shown = [rows[k] if sizes is None else rows[k, : int(sizes[k])] for k in picked]
        if truth is not None and truth.ndim == 2:
            truth = truth[:, int(label.split("[")[1].rstrip("]"))]
        _draw_databases(axis, shown, truth)
        axis.set_xlabel(label)
        tidy(axis)
    axes[0].legend(frameon=False, fontsize="small")
    return axes


def _truths(confidential: Any) -> dict[str, np.ndarray]:
    if not isinstance(confidential, Mapping):
        wanted = "a mapping of names to records"
        raise refusal("confidential", wanted, confidential, confidential=True, error=PlotError)
    said: Any = {"flags": True, "confidential": True, "error": PlotError}
    return {
        str(name): reals(f"records of {name}", records, shapes=[("n",), ("n", "d")], **said)
        for name, records in confidential.items()
    }


def _columns(name: str, values: np.ndarray) -> dict[str, np.ndarray]:
    """Return the records of each number of a record, (draws, records)."""
    if values.ndim == 2:
        return {name: values}
    if values.ndim == 3:
        return {f"{name}[{k}]": values[..., k] for k in range(values.shape[-1])}
    raise PlotError(
        f"Records must be numbers or vectors, one row each; got {name} of shape {values.shape[1:]}."
    )


def _draw_databases(axis: Any, shown: list[np.ndarray], truth: np.ndarray | None) -> None:
    shown = [records[~np.isnan(records)] for records in shown]
    together = np.concatenate(shown)
    if not len(together):
        raise PlotError("Databases to show must have at least one record; got empty ones.")
    # Integers beside rows that are nan come as floats.
    discrete = bool(np.all(together == np.rint(together)))
    if discrete:
        edges = np.arange(together.min() - 0.5, together.max() + 1)
        axis.xaxis.get_major_locator().set_params(integer=True)
    else:
        edges = np.histogram_bin_edges(together, bins=min(60, 10 + len(shown[0]) // 10))
    # An empty bin at either end, so that the outermost ones are seen in full.
    edges = np.array([2 * edges[0] - edges[1], *edges, 2 * edges[-1] - edges[-2]])

    def shares(records: np.ndarray) -> np.ndarray:
        counts, _ = np.histogram(records, bins=edges)
        return counts / max(len(records), 1)

    heights = np.array([shares(records) for records in shown])
    centres = (edges[:-1] + edges[1:]) / 2
    line = {"drawstyle": "steps-mid", "color": BLUE}
    for row in heights:
        axis.plot(centres, row, lw=0.5, alpha=0.25, **line)
    axis.plot(centres, heights.mean(axis=0), lw=2, label="imputed records", **line)
    axis.set_ylim(bottom=0)
    if truth is not None:
        axis.plot(
            centres,
            shares(truth),
            color="black",
            ls="--",
            lw=1.2,
            label="confidential",
            drawstyle="steps-mid",
        )
