"""The K-norm gradient mechanism: a parameter is released where the gradient of a loss is small."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from pymc_privacy.accounting import Neighbours, PureDP, ZeroConcentratedDP
from pymc_privacy.arguments import generator, pair, probability, reals
from pymc_privacy.errors import MechanismError
from pymc_privacy.mechanisms.base import Mechanism, Shape, settle_all
from pymc_privacy.mechanisms.cells import increasing_edges, line_at, log_line_mass
from pymc_privacy.mechanisms.engines import expm1, log, log_sum_exp, numeric, stack, where

_MEANING = "the ends of the cells on which the gradient is a straight line"


@dataclass(frozen=True, kw_only=True)
class KNormGradient(Mechanism):
    r"""The release s in [a, b] has density :math:`\propto \exp(-\epsilon |G(s)| / (2 D))`.

    :math:`G(s) = \sum_i \nabla\ell(s; x_i)` is the gradient of the empirical risk, and D its
    sensitivity (Reimherr and Awan, 2019). In one dimension every norm is the absolute value. The
    normaliser depends on the records and is computed exactly: on each cell between two
    ``edges`` the gradient must be a straight line, ``G(s) = intercept + slope * s``, for which the
    integral is known. Contributions are the intercepts, then the slopes, of each record's own
    gradient in each cell, shape (n, 2 cells); `mean` and `quantile` make them.

    Two neighbours' gradients differ by at most D at every s, so the unnormalised densities
    differ by a factor of at most exp(epsilon / 2), and so do their integrals: the release is
    epsilon-DP.

    Parameters
    ----------
    epsilon : float
    sensitivity : float
        D, the largest change of the gradient between neighbours, at any s; taken on trust.
    edges : sequence of float
        a, …, b, increasing: where the gradient may jump or bend.
    probability : float, optional
        For `contributions`: which quantile, if not the mean.
    neighbours : {"replace_one", "add_remove"}, optional
        What the sensitivity was computed for.

    Raises
    ------
    MechanismError
        By the constructor, if epsilon or sensitivity is not > 0 and finite, edges do not increase,
        or probability is not in (0, 1); and by `Privatized`, if contributions are not of shape (n,
        2 cells).

    See Also
    --------
    KNormGradientRegression : Several coefficients, by least squares or quantiles.
    ExponentialInterval : The same by a utility instead of a gradient.
    ObjectivePerturbation : Another release of a minimum, for regressions.

    References
    ----------
    - Reimherr, M. and Awan, J. (2019), "KNG: the K-norm gradient mechanism", Advances in Neural
      Information Processing Systems 32.

    Examples
    --------
    The mean of records in [0, 1]: a Laplace law around it, cut off at 0 and 1.

    >>> import numpy as np
    >>> from pymc_privacy import KNormGradient
    >>> mechanism = KNormGradient.mean(epsilon=1.0, bounds=(0.0, 1.0))
    >>> statistic = mechanism.contributions(np.array([0.2, 0.4, 0.9])).sum(axis=0)
    >>> mechanism.log_density(0.5, statistic).round(4).item()
    0.3517
    """

    discrete: ClassVar[bool] = False

    epsilon: float
    sensitivity: float
    edges: tuple[float, ...]
    probability: float | None = None
    neighbours: Neighbours | None = None

    def __post_init__(self) -> None:
        settle_all(self, "epsilon", "sensitivity")
        object.__setattr__(self, "edges", increasing_edges(self.edges, _MEANING))
        if self.probability is not None:
            why: Any = {"meaning": "0.5 for the median", "error": MechanismError}
            chosen = probability("probability", self.probability, **why)
            object.__setattr__(self, "probability", chosen)

    @classmethod
    def mean(
        cls,
        *,
        epsilon: float,
        bounds: tuple[float, float],
        neighbours: Neighbours | None = None,
    ) -> KNormGradient:
        """Release a mean: the loss of a record is (x - s)², its gradient 2 (s - x).

        With records and release in [a, b] the gradient changes by at most 2 (b - a) when a record
        is replaced, added or removed. The release is a Laplace variable around the mean, of scale
        2 (b - a) / (n epsilon), given that it is in [a, b] (Awan et al., Example 3.4).

        Parameters
        ----------
        epsilon : float
        bounds : pair of float
            a and b. That records are clipped to them is not checked.
        neighbours : {"replace_one", "add_remove"}, optional
        """
        lower, upper = pair("bounds", bounds, error=MechanismError)
        return cls(
            epsilon=epsilon,
            sensitivity=2 * (upper - lower),
            edges=(lower, upper),
            neighbours=neighbours,
        )

    @classmethod
    def quantile(
        cls,
        probability: float = 0.5,
        *,
        epsilon: float,
        edges: Sequence[float],
        neighbours: Neighbours | None = None,
    ) -> KNormGradient:
        """Release a quantile: the gradient of a record's loss is 1{x <= s} - probability.

        This jumps at every record, and a normaliser would need all of them in order. So records are
        rounded down to the edges first; then the gradient is constant on each cell, and exact.
        One record changes it by at most 1.

        Parameters
        ----------
        probability : float, default 0.5
            The median by default.
        epsilon : float
        edges : sequence of float
            What records are rounded down to, and between which ends the release lies.
        neighbours : {"replace_one", "add_remove"}, optional
        """
        return cls(
            epsilon=epsilon,
            sensitivity=1.0,
            edges=edges,  # type: ignore[arg-type]
            probability=probability,
            neighbours=neighbours,
        )

    def contributions(self, x: Any) -> Any:
        """Return each record's intercepts and slopes, shape (n, 2 cells), of an array or a tensor.

        Examples
        --------
        >>> import numpy as np
        >>> from pymc_privacy import KNormGradient
        >>> median = KNormGradient.quantile(0.5, epsilon=1.0, edges=[0.0, 1.0, 2.0])
        >>> median.contributions(np.array([0.3, 1.7])).tolist()
        [[0.5, 0.5, 0.0, 0.0], [-0.5, 0.5, 0.0, 0.0]]
        """
        x = numeric(x)
        if self.probability is None:
            if len(self.edges) > 2:
                raise MechanismError(
                    "contributions are known for a mean on one cell, or for a quantile; got "
                    f"{len(self.edges) - 1} cells and no probability. Write the intercepts and "
                    "slopes yourself."
                )
            # A column of its own counts the records, where their number is not known. Records
            # beyond their bounds, which are not checked, may overflow.
            with np.errstate(over="ignore", invalid="ignore"):
                return stack([-2.0 * x, 2.0 + 0.0 * x])
        upper = self.edges[1:]
        intercepts = [where(x < edge, 1.0, 0.0) - self.probability for edge in upper[:-1]]
        # The largest records are rounded down into the last cell.
        intercepts.append(0.0 * x + 1.0 - self.probability)
        return stack([*intercepts, *(0.0 * x for _ in upper)])

    @property
    def guarantee(self) -> PureDP:
        """Promise epsilon."""
        return PureDP(self.epsilon, neighbours=self.neighbours)

    @property
    def concentrated_guarantee(self) -> ZeroConcentratedDP:
        """Promise epsilon² / 8 as zCDP, since the privacy loss has a range of epsilon."""
        return ZeroConcentratedDP.from_bounded_range(self.epsilon, neighbours=self.neighbours)

    def log_density(self, release: Any, statistic: Any) -> Any:
        """Return ``-c |G(s)|`` less the log integral of ``exp(-c |G|)``, c = epsilon / 2D.

        Parameters
        ----------
        release : array_like or TensorVariable
            One number, or several releases of one statistic.
        statistic : array_like or TensorVariable
            The total intercepts, then slopes, on the last axis.
        """
        release, statistic = numeric(release), numeric(statistic)
        left, right, ends = self._gradient_at_edges(statistic)
        log_mass = log_sum_exp(_log_cell_mass(left, right, ends[1:] - ends[:-1]))
        value = -abs(line_at(release, ends, left, right))
        outside = (release < self.edges[0]) | (release > self.edges[-1])
        return where(outside, -math.inf, value - log_mass)

    def _gradient_at_edges(self, statistic: Any) -> tuple[Any, Any, np.ndarray]:
        """Return c G at the left and right end of every cell, and the edges."""
        cells, ends = len(self.edges) - 1, np.array(self.edges)
        if isinstance(statistic, np.ndarray):
            self.release_shape(statistic.shape[-1:])
        c = self.epsilon / (2 * self.sensitivity)
        intercept, slope = c * statistic[..., :cells], c * statistic[..., cells:]
        return intercept + slope * ends[:-1], intercept + slope * ends[1:], ends

    def simulate(self, rng: np.random.Generator, statistic: Any) -> np.ndarray:
        """Draw a release; seedable, in floating point, and so not to be published."""
        rng = generator("rng", rng)
        numbers = reals("statistic", statistic, error=MechanismError)
        left, right, ends = self._gradient_at_edges(numbers)
        log_mass = _log_cell_mass(left, right, np.diff(ends))
        cell = np.argmax(log_mass + rng.gumbel(size=log_mass.shape), axis=-1)
        at = [np.take_along_axis(g, cell[..., None], -1)[..., 0] for g in (left, right)]
        share = _draw_within(rng, *at)
        return ends[cell] + share * np.diff(ends)[cell]

    def release_shape(self, statistic: Shape) -> Shape:
        """Return (), for one number."""
        cells = len(self.edges) - 1
        if len(statistic) != 1 or statistic[0] not in (None, 2 * cells):
            raise MechanismError(
                f"KNormGradient with {cells} cells needs contributions of shape (n, {2 * cells}), "
                "intercepts and slopes (see mechanism.contributions); got a statistic of shape "
                f"{statistic}."
            )
        return ()

    def local_shape(self, contributions: Shape) -> Shape:
        """Refuse: one record has no empirical risk."""
        raise MechanismError(
            "KNormGradient releases one number, by the gradients of all records; got local=True."
        )

    def impossible(self, release: np.ndarray, statistic: Shape) -> str | None:
        """Say so if the release is out of bounds."""
        if self.edges[0] <= release <= self.edges[-1]:
            return None
        return f"be a number from {self.edges[0]:g} to {self.edges[-1]:g}, the ends of its range"


def _log_cell_mass(left: Any, right: Any, width: np.ndarray) -> Any:
    """Return the log of the integral of exp(-|g|) over cells where g runs from left to right.

    Where g keeps its sign, -|g| is a straight line. Where it does not, with a and b for |left| and
    |right|, the integral is width (2 - e^-a - e^-b) / (a + b).
    """
    a, b = abs(left), abs(right)
    kept = log_line_mass(-a, -b)
    crosses = (left < 0) & (right > 0) | (left > 0) & (right < 0)
    total = where(crosses, a + b, 1.0)
    crossed = log(where(crosses, -expm1(-a) - expm1(-b), 1.0) / total)
    return log(width) + where(crosses, crossed, kept)


def _draw_within(rng: np.random.Generator, left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """Draw a position in [0, 1] with density ∝ exp(-|g|), g running from left to right."""
    crosses, a, b = np.sign(left) * np.sign(right) < 0, np.abs(left), np.abs(right)
    zero = np.where(crosses, left / np.where(left == right, 1.0, left - right), 0.0)
    masses = -np.expm1(-a), -np.expm1(-b)
    first = rng.random(left.shape) * (masses[0] + masses[1]) < masses[0]
    # From the end of smaller |g| the density falls exponentially, at the rate of the span.
    span = np.where(crosses, np.where(first, a, b), np.abs(a - b))
    steep = span > 1e-12
    u = rng.random(left.shape)
    rate = np.where(steep, span, 1.0)
    depth = np.where(steep, -np.log1p(u * np.expm1(-rate)) / rate, u)
    outward = np.where(crosses, ~first, a <= b)
    start = np.where(crosses, zero, np.where(outward, 0.0, 1.0))
    length = np.where(crosses, np.where(first, zero, 1 - zero), 1.0)
    return start + np.where(outward, depth, -depth) * length
