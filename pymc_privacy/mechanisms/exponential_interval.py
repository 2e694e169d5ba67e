"""The exponential mechanism over an interval: a number is released, useful ones likelier."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np

from pymc_privacy.accounting import Neighbours, PureDP, ZeroConcentratedDP
from pymc_privacy.arguments import choice, function, generator, integer, real, reals
from pymc_privacy.errors import MechanismError
from pymc_privacy.mechanisms.base import Mechanism, Shape, beside
from pymc_privacy.mechanisms.cells import draw_on_line, increasing_edges, line_at, log_line_mass
from pymc_privacy.mechanisms.engines import log_sum_exp, numeric, stack, where
from pymc_privacy.mechanisms.exponential_weights import (
    concentrated_guarantee,
    pure_guarantee,
    settle_scale,
)

_MEANING = "the ends of the cells on which the utility is a constant or a straight line"


@dataclass(frozen=True, kw_only=True)
class ExponentialInterval(Mechanism):
    r"""The release s in [a, b] has density :math:`\propto \exp(u(s) / b)`, u a total utility.

    The utility is a sum over records, :math:`u(s) = \sum_i u(s; x_i)` (McSherry and Talwar, 2007).
    Its normaliser depends on the records, and is exact because u is a constant on each cell
    between two ``edges`` (contributions of shape (n, K), one column for each of K cells), or runs
    in a straight line from edge to edge (shape (n, K + 1), one column for each edge).

    A smooth utility is replaced, *in the mechanism*, by its straight-line interpolation between
    the edges. This changes no promise: if one record changes u by at most D at every edge, it
    changes the interpolation, an average of two edges, by at most D at every s. Then
    exp(u(s) / b) changes by a factor of at most exp(D / b), and so does its integral, hence
    epsilon = 2 D / b. How far the law is from that of the smooth utility itself,
    `log_density_error` bounds.

    Parameters
    ----------
    edges : sequence of float
        a, …, b, increasing.
    scale : float, optional
        b, the utility that makes a number e times likelier.
    epsilon : float, optional
        The privacy loss; then b = 2 sensitivity / epsilon.
    sensitivity : float, optional
        D, the largest change of the utility between neighbours, at any s; taken on trust.
    between : {"constant", "linear"}, default "constant"
        What the utility is between two edges.
    neighbours : {"replace_one", "add_remove"}, optional
        What the sensitivity was computed for.

    Raises
    ------
    MechanismError
        By the constructor, if scale and epsilon are both left out or disagree, if epsilon comes
        without sensitivity, if scale is not one number, or edges do not increase; and by
        `Privatized`, if contributions have another number of columns.

    See Also
    --------
    ExponentialMechanism : A choice from finitely many candidates.
    KNormGradient : A choice from an interval, by the gradient of a loss.
    private_quantile : Publish a quantile by this mechanism.

    References
    ----------
    - McSherry, F. and Talwar, K. (2007), "Mechanism design via differential privacy", IEEE
      Symposium on Foundations of Computer Science (FOCS).

    Examples
    --------
    A mean of records in [0, 1] by the utility -(x - s)², which one record changes by at most 1:

    >>> import numpy as np
    >>> from pymc_privacy import ExponentialInterval
    >>> mechanism = ExponentialInterval(
    ...     edges=np.linspace(0, 1, 33), epsilon=1.0, sensitivity=1.0, between="linear"
    ... )
    >>> x = np.array([0.2, 0.4, 0.9])
    >>> statistic = mechanism.contributions(x, lambda x, s: -((x - s) ** 2)).sum(axis=0)
    >>> mechanism.log_density(0.5, statistic).round(4).item()
    0.1191
    >>> mechanism.log_density_error(3, curvature=2.0)
    0.000732421875
    """

    discrete: ClassVar[bool] = False

    edges: tuple[float, ...]
    scale: float = None  # type: ignore[assignment]
    epsilon: float | None = None
    sensitivity: float | None = None
    between: Literal["constant", "linear"] = "constant"
    neighbours: Neighbours | None = None

    def __post_init__(self) -> None:
        choice("between", self.between, ("constant", "linear"), error=MechanismError)
        object.__setattr__(self, "edges", increasing_edges(self.edges, _MEANING))
        settle_scale(self, "numbers")

    @property
    def guarantee(self) -> PureDP | None:
        """Promise epsilon = 2 sensitivity / scale."""
        return pure_guarantee(self)

    @property
    def concentrated_guarantee(self) -> ZeroConcentratedDP | None:
        """Promise epsilon² / 8 as zCDP, since the privacy loss has a range of epsilon."""
        return concentrated_guarantee(self)

    @property
    def nodes(self) -> np.ndarray:
        """Return where a utility is evaluated: the middles of the cells, or the edges."""
        edges = np.array(self.edges)
        return edges if self.between == "linear" else (edges[1:] + edges[:-1]) / 2

    def contributions(self, x: Any, utility: Callable[[Any, float], Any]) -> Any:
        """Return each record's utilities at the `nodes`, shape (n, nodes).

        Parameters
        ----------
        x : array_like or TensorVariable
            Records, shape (n,) or (n, d).
        utility : callable
            ``utility(x, s)`` of all records and of one number, shape (n,).

        Examples
        --------
        >>> from pymc_privacy import ExponentialInterval
        >>> mechanism = ExponentialInterval(edges=[0.0, 1.0, 2.0], scale=1.0)
        >>> mechanism.contributions([0.5, 2.0], lambda x, s: -abs(x - s)).tolist()
        [[-0.0, -1.0], [-1.5, -0.5]]
        """
        function("utility", utility, error=MechanismError)
        x = numeric(x)
        return stack([utility(x, float(s)) for s in self.nodes])

    def log_density(self, release: Any, statistic: Any) -> Any:
        """Return u(s) / b less the log integral of exp(u / b).

        Parameters
        ----------
        release : array_like or TensorVariable
            One number, or several releases of one statistic.
        statistic : array_like or TensorVariable
            The total utility at each of the `nodes`, on the last axis.
        """
        release, statistic = numeric(release), numeric(statistic)
        left, right = self._ends(statistic)
        if isinstance(release, np.ndarray) and isinstance(left, np.ndarray) and left.ndim > 1:
            release, _ = np.broadcast_arrays(*beside(release, left[..., 0]))
        edges = np.array(self.edges)
        value = line_at(release, edges, left, right)
        log_mass = log_sum_exp(log_line_mass(left, right) + np.log(np.diff(edges)))
        outside = (release < edges[0]) | (release > edges[-1])
        return where(outside, -np.inf, value - log_mass)

    def log_density_error(
        self, size: int, *, slope: float | None = None, curvature: float | None = None
    ) -> float:
        """Bound how far the log density is from that of a smooth utility, at any s.

        On a cell of width w, the straight line between the ends of a function whose second
        derivative is at most M differs from it by at most M w² / 8; and a function of slope at
        most L differs from its value in the middle by at most L w / 2. Release and normaliser
        both err, so the bound is twice that, over the scale.

        Parameters
        ----------
        size : int
            The number of records.
        slope : float, optional
            L, the largest slope of one record's utility; for ``between="constant"``.
        curvature : float, optional
            M, the largest second derivative of one record's utility; for ``between="linear"``.
        """
        said: Any = {"error": MechanismError}
        size = integer("size", size, meaning="the number of records", least=1, **said)
        name, given = ("curvature", curvature) if self.between == "linear" else ("slope", slope)
        meaning = f"the largest {name} of one record's utility, for between={self.between!r}"
        bound = real(name, given, meaning=meaning, least=0.0, **said)
        width = float(np.diff(self.edges).max())
        reach = width * width / 8 if self.between == "linear" else width / 2
        return 2 * size * bound * reach / self.scale

    def _ends(self, statistic: Any) -> tuple[Any, Any]:
        """Return u / b at the left and right end of every cell."""
        if isinstance(statistic, np.ndarray):
            self.release_shape(statistic.shape[-1:])
        utility = statistic / self.scale
        if self.between == "constant":
            return utility, utility
        return utility[..., :-1], utility[..., 1:]

    def simulate(self, rng: np.random.Generator, statistic: Any) -> np.ndarray:
        """Draw a release; seedable, in floating point, and so not to be published."""
        rng = generator("rng", rng)
        said: Any = {"meaning": "the total utility at each node", "error": MechanismError}
        left, right = self._ends(reals("statistic", statistic, **said))
        edges = np.array(self.edges)
        log_mass = log_line_mass(left, right) + np.log(np.diff(edges))
        cell = np.argmax(log_mass + rng.gumbel(size=log_mass.shape), axis=-1)
        ends = [np.take_along_axis(u, cell[..., None], -1)[..., 0] for u in (left, right)]
        return edges[cell] + draw_on_line(rng, *ends) * np.diff(edges)[cell]

    def release_shape(self, statistic: Shape) -> Shape:
        """Return (), for one number."""
        width = len(self.edges) - (self.between == "constant")
        if len(statistic) != 1 or statistic[0] not in (None, width):
            places = "edges" if self.between == "linear" else "cells"
            raise MechanismError(
                f"ExponentialInterval with {width} {places} needs contributions of shape "
                f"(n, {width}), the utility of each record there (see mechanism.contributions); "
                f"got a statistic of shape {statistic}."
            )
        return ()

    def local_shape(self, contributions: Shape) -> Shape:
        """Refuse: the utility is that of all records."""
        raise MechanismError(
            "ExponentialInterval releases one number, by the total utility of all records; got "
            "local=True."
        )

    def impossible(self, release: np.ndarray, statistic: Shape) -> str | None:
        """Say so if the release is out of bounds."""
        if self.edges[0] <= release <= self.edges[-1]:
            return None
        return f"be a number from {self.edges[0]:g} to {self.edges[-1]:g}, the ends of its range"
