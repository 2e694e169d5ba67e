"""Densities on an interval that are the exponential of a straight line on each of its cells.

A cell lies between two neighbouring edges; its line is given by the values at its two ends. Lines
of neighbouring cells need not meet. Integrals are known, so that a normaliser that depends on
records is exact.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from pymc_privacy.arguments import reals, refusal, shown
from pymc_privacy.errors import MechanismError
from pymc_privacy.mechanisms.engines import expm1, log, where

_FAR = 1e50  # the ends of the range are multiplied by slopes


def increasing_edges(value: Any, meaning: str) -> tuple[float, ...]:
    """Return two or more finite numbers that increase, in hashable form."""
    said: Any = {
        "wanted": f"two or more finite numbers, {meaning}",
        "error": MechanismError,
    }
    edges = reals("edges", value, shapes=[("k",)], most=_FAR, least=-_FAR, **said)
    if edges.size < 2:
        raise refusal("edges", value=value, **said)
    if not np.all(np.diff(edges) > 0):
        raise MechanismError(f"edges must increase; got {shown(value)}.")
    return tuple(edges.tolist())


def line_at(release: Any, edges: np.ndarray, left: Any, right: Any) -> Any:
    """Return the value, at the release, of the line of its cell; cells own their lower edge.

    Beyond the range the value is 0, and means nothing. One statistic and any releases, or as many
    of both.
    """
    at = release[..., None]
    lower, upper = edges[:-1], edges[1:]
    # The last cell owns the end of the range, too.
    below = np.where(np.arange(lower.size) == lower.size - 1, np.inf, upper)
    here = (at >= lower) & (at < below)
    # A release that is far away, or not finite, is in no cell.
    with np.errstate(over="ignore", invalid="ignore"):
        line = left + (at - lower) / (upper - lower) * (right - left)
    return where(here, line, 0.0).sum(axis=-1)


def log_line_mass(left: Any, right: Any) -> Any:
    """Return the log of the mean of exp(line) over a cell where it runs from left to right.

    With m the larger end and d the distance of the two, it is m + log((1 - exp(-d)) / d).
    """
    most, span = where(left > right, left, right), abs(left - right)
    flat = span < 1e-300
    span = where(flat, 1.0, span)
    return most + log(where(flat, 1.0, -expm1(-span) / span))


def draw_on_line(rng: np.random.Generator, left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """Draw a position in [0, 1] with density ∝ exp(line), the line running from left to right."""
    span = np.abs(left - right)
    steep = span > 1e-12
    rate = np.where(steep, span, 1.0)
    u = rng.random(np.shape(left))
    # From the end of the larger value the density falls exponentially.
    depth = np.where(steep, -np.log1p(u * np.expm1(-rate)) / rate, u)
    return np.where(left >= right, depth, 1 - depth)
