"""Integrals of a density against a smooth kernel, each panel certified by its known mass.

    E[K(clip(x, l, u))] = F(l) K(l) + (1 - F(u)) K(u) + int_l^u f(x) K(x) dx

for any law with a density f and a distribution function F. The kernel is known and smooth on
panels; the density may be a thousand times narrower than a panel, or have a pole or a jump. Gauss's
rule is used where it integrates f alone to F(high) - F(low); elsewhere the panel is halved. No
knowledge of where the law is concentrated is needed. What is not checked: a rule may integrate f
rightly by chance, and f K wrongly; and derivatives of f are integrated on the panels of f.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from pymc_privacy.errors import RecordError

_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(16)
_NODES, _WEIGHTS = 0.5 * (1.0 + _NODES), 0.5 * _WEIGHTS
_TOLERANCE = 1e-11  # of the whole integral, allowed to each panel
_ROUNDING = 1e-14  # of the numbers that a mass is the difference of
_MOST_HALVINGS = 60
_MOST_PANELS = 1000  # of a row at one time, beyond those that the kernel's reach asks for
_MOST_EXPONENT = 12.0  # of the kernel's fall over a panel, for the rule to be exact to rounding


class Integrand(NamedTuple):
    """A law and a kernel: functions of which rows, and of points (rows, k)."""

    log_density: Callable[[np.ndarray, np.ndarray], np.ndarray]
    log_cdf: Callable[[np.ndarray, np.ndarray], np.ndarray]
    log_kernel: Callable[[np.ndarray, np.ndarray], np.ndarray]
    reach: np.ndarray  # of the kernel in each row: longer panels are halved
    slopes: Slopes | None = None


class Slopes(NamedTuple):
    """Derivatives in the parameters, on a last axis: of log f, and of F."""

    of_log_density: Callable[[np.ndarray, np.ndarray], np.ndarray]
    of_cdf: Callable[[np.ndarray, np.ndarray], np.ndarray]


class _Panels(NamedTuple):
    row: np.ndarray
    low: np.ndarray
    high: np.ndarray
    below: np.ndarray  # log F(low)
    upto: np.ndarray  # log F(high)
    slopes_below: np.ndarray  # of F(low), of shape (panels, parameters)
    slopes_upto: np.ndarray

    def take(self, which: np.ndarray) -> _Panels:
        return _Panels(*(one[which] for one in self))

    @property
    def middle(self) -> np.ndarray:
        return 0.5 * (self.low + self.high)

    @property
    def mass(self) -> np.ndarray:
        return _between(self.below, self.upto)

    @property
    def rounding(self) -> np.ndarray:
        """Return the size of the numbers whose difference the mass is."""
        return np.where(self.below > -0.5, -np.expm1(self.below), np.exp(self.upto))


def log_expectation(
    integrand: Integrand, lower: np.ndarray, upper: np.ndarray, peak: np.ndarray
) -> np.ndarray:
    """Return log E[K(clip(x, lower, upper))] of each row; K is largest at ``peak``, in between.

    Panels begin at the peak, where the kernel may have a kink.
    """
    return log_expectation_and_slopes(integrand._replace(slopes=None), lower, upper, peak)[0]


def log_expectation_and_slopes(
    integrand: Integrand, lower: np.ndarray, upper: np.ndarray, peak: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return the same, and its derivatives in the parameters, of shape (rows, parameters)."""
    rows = np.arange(lower.size)
    top = integrand.log_kernel(rows, peak[:, None])[:, 0]
    ends = np.column_stack([lower, peak, upper])
    heights = np.exp(integrand.log_kernel(rows, ends) - top[:, None])
    logs, slopes = integrand.log_cdf(rows, ends), _slopes_of_cdf(integrand, rows, ends)
    # The integral and its derivatives, side by side.
    total = np.empty((rows.size, 1 + slopes.shape[-1]))
    total[:, 0] = np.exp(logs[:, 0]) * heights[:, 0] - np.expm1(logs[:, 2]) * heights[:, 2]
    total[:, 1:] = slopes[:, 0] * heights[:, :1] - slopes[:, 2] * heights[:, 2:]
    known = (ends, logs, slopes)
    left, right = (
        _Panels(rows, *(one[:, k + side] for one in known for side in (0, 1))) for k in (0, 1)
    )
    panels = _joined(left, right)
    panels = panels.take(panels.high > panels.low)
    _add_panels(integrand, panels, top, total)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.log(total[:, 0]) + top, total[:, 1:] / total[:, :1]


def _slopes_of_cdf(integrand: Integrand, row: np.ndarray, points: np.ndarray) -> np.ndarray:
    if integrand.slopes is None:
        return np.empty((*points.shape, 0))
    return integrand.slopes.of_cdf(row, points)


def _add_panels(integrand: Integrand, panels: _Panels, top: np.ndarray, total: np.ndarray) -> None:
    """Add all panels of each row to ``total``, halving those not certified."""
    reaches = (panels.high - panels.low) / integrand.reach[panels.row]
    most = _MOST_PANELS * top.size + 4.0 * reaches.sum()
    for _ in range(_MOST_HALVINGS):
        if not panels.row.size:
            return
        value, done = _rule(integrand, panels, top, total[:, 0])
        np.add.at(total, panels.row[done], value[done])
        panels = _halved(integrand, panels.take(~done))
        if panels.row.size > most:
            raise RecordError(
                "The density of a record must integrate to differences of its distribution "
                "function, by which quadrature is certified; got a law whose logp and logcdf do "
                "not agree."
            )
    # What is left is as short as floats allow, and its mass is known.
    middle = integrand.log_kernel(panels.row, panels.middle[:, None])[:, 0]
    height = np.exp(middle - top[panels.row])
    np.add.at(total, panels.row, _masses(panels) * height[:, None])


def _masses(panels: _Panels) -> np.ndarray:
    """Return the masses of panels and their derivatives, side by side."""
    return np.column_stack([panels.mass, panels.slopes_upto - panels.slopes_below])


def _joined(left: _Panels, right: _Panels) -> _Panels:
    return _Panels(*map(np.concatenate, zip(left, right, strict=True)))


def _rule(
    integrand: Integrand, panels: _Panels, top: np.ndarray, total: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return the integral over each panel and its derivatives, and whether it is to be believed."""
    length, mass, row = panels.high - panels.low, panels.mass, panels.row
    points = panels.low[:, None] + length[:, None] * _NODES
    with np.errstate(over="ignore"):
        density = np.exp(integrand.log_density(row, points))
    ends = np.column_stack([panels.low, panels.middle, panels.high])
    logs = integrand.log_kernel(row, np.concatenate([points, ends], axis=1)) - top[row, None]
    kernel = np.exp(logs)
    first, middle, last = kernel[:, -3], kernel[:, -2], kernel[:, -1]
    weighted = density * (_WEIGHTS * length[:, None])
    found = weighted.sum(axis=1)
    # The mass takes the middle of the kernel, and the rule what is off it.
    off = kernel[:, :-3] - middle[:, None]
    by_mass = _masses(panels) * middle[:, None]
    by_rule = by_mass.copy()
    by_rule[:, 0] += (weighted * off).sum(axis=1)
    if integrand.slopes is not None:
        slopes = integrand.slopes.of_log_density(row, points)
        # Where there is no density, its logarithm may have no slope.
        each = np.where(weighted[..., None] > 0, weighted[..., None] * slopes, 0.0)
        by_rule[:, 1:] += np.einsum("pk,pkj->pj", off, each)
    largest = np.maximum(first, last)
    # The kernel falls towards the ends, so that this is a lower bound of the whole integral.
    least = total.copy()
    np.add.at(least, row, mass * np.minimum(first, last))
    allowed = _TOLERANCE * least[row] + _ROUNDING * panels.rounding * largest
    smooth = np.abs(logs[:, -3] - logs[:, -1]) <= _MOST_EXPONENT
    smooth &= length <= integrand.reach[row]
    certified = smooth & (np.abs(found - mass) * largest <= allowed)
    # The mass alone tells the integral, where the kernel hardly varies or the panel hardly counts.
    known = mass * np.abs(last - first) <= allowed
    return np.where(certified[:, None], by_rule, by_mass), certified | known


def _halved(integrand: Integrand, panels: _Panels) -> _Panels:
    if not panels.row.size:
        return panels
    middle = panels.middle
    upto = integrand.log_cdf(panels.row, middle[:, None])[:, 0]
    slopes = _slopes_of_cdf(integrand, panels.row, middle[:, None])[:, 0]
    left = panels._replace(high=middle, upto=upto, slopes_upto=slopes)
    return _joined(left, panels._replace(low=middle, below=upto, slopes_below=slopes))


def _between(below: np.ndarray, upto: np.ndarray) -> np.ndarray:
    """Return F(high) - F(low) of the logarithms, as a difference of the two smaller tails."""
    tails = np.expm1(below) * -1.0 + np.expm1(upto)
    masses = np.exp(upto) - np.exp(below)
    return np.maximum(np.where(below > -0.5, tails, masses), 0.0)
