"""The K-norm gradient mechanism in several dimensions: coefficients of a regression."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, reduce
from typing import Any, ClassVar, Literal

import numpy as np

from pymc_privacy.accounting import Neighbours, PureDP, ZeroConcentratedDP
from pymc_privacy.arguments import (
    choice,
    generator,
    integer,
    integers,
    neighbours,
    probability,
    reals,
)
from pymc_privacy.errors import MechanismError
from pymc_privacy.mechanisms.base import Mechanism, Shape, beside, settle_all
from pymc_privacy.mechanisms.engines import is_tensor, log_sum_exp, numeric, pick, stack, where

_MOST_CELLS = 2**20
_NORMS: dict[str, float] = {"maximum": math.inf, "euclidean": 2.0, "sum": 1.0}


class _Grid(tuple[tuple[float, float, int], ...]):
    """A box cut into equal cells: (lower, upper, cells) of each coefficient."""

    @property
    def widths(self) -> np.ndarray:
        return np.array([(upper - lower) / cells for lower, upper, cells in self])

    @property
    def counts(self) -> tuple[int, ...]:
        return tuple(cells for _, _, cells in self)

    def centres(self) -> np.ndarray:
        """Return the middles of all cells, shape (cells, p), the last coefficient fastest."""
        middles = [
            lower + (np.arange(cells) + 0.5) * (upper - lower) / cells
            for lower, upper, cells in self
        ]
        return np.stack(np.meshgrid(*middles, indexing="ij"), axis=-1).reshape(-1, len(self))

    def cell_of(self, release: Any) -> Any:
        """Return the number of the cell that each release, on the last axis, is in."""
        index = 0
        for j, (lower, upper, cells) in enumerate(self):
            inner = np.linspace(lower, upper, cells + 1)[1:-1]
            place = where(release[..., j, None] >= inner, 1, 0).sum(axis=-1)
            index = index * cells + place
        return index


@dataclass(frozen=True, kw_only=True)
class KNormGradientRegression(Mechanism):
    r"""Coefficients s are released where the gradient of a regression's loss is small.

    The K-norm gradient mechanism of Reimherr and Awan (2019) with their two examples. The gradient
    of the empirical risk is a sum over records,

    .. math:: G(s) = \sum_i (x_i \cdot s - y_i) x_i \quad\text{or}\quad
              G(s) = \sum_i (1\{y_i \le x_i \cdot s\} - \tau) x_i,

    for least squares and for the quantile of probability :math:`\tau`. A box of coefficients is
    cut into equal cells with middles :math:`s_k`. A cell is chosen with probability
    :math:`\propto \exp(-\epsilon \|G(s_k)\| / (2 D))`, and the release is uniform within it. So
    the normaliser, which depends on the records, is a finite sum, and the density is exact; how
    far it is from the law on the continuum, `log_density_error` bounds.

    Let all covariates and responses be in [-1, 1] (a column of ones is an intercept), and D bound
    the norm of the difference of two neighbours' gradients at every s in the box. Then every
    weight changes by a factor of at most exp(epsilon / 2), and so does their sum: the release is
    epsilon-DP. With S the sum over coefficients of their largest absolute values, one record's
    gradient for least squares has coordinates of at most S + 1, since
    :math:`|x \cdot s - y| \le S + 1` and :math:`|x_j| \le 1`; for quantiles, of at most
    :math:`m = \max(\tau, 1 - \tau)`. So D is that times the norm of (1, …, 1), and twice as much
    for a replacement. For least squares in the maximum norm less is needed: at :math:`x_j = \pm t`
    the coordinate j fills the interval :math:`t^2 s_j \pm t T` with
    :math:`T = \sum_{k \ne j} |s_k| + 1`; over t in [0, 1] it reaches from :math:`a + T`, with
    :math:`a = |s_j|`, down to :math:`a - T`, or to :math:`-T^2 / 4a` if :math:`T < 2a`. The length
    of that interval grows with a and T, and D is the longest, at a corner of the box.

    Parameters
    ----------
    epsilon : float
    box : sequence of pair of float
        Lower and upper end of each of p coefficients.
    cells : int or sequence of int, default 32
        Into how many cells each side of the box is cut.
    probability : float, optional
        The quantile, 0.5 for the median; least squares if left out.
    norm : {"maximum", "euclidean", "sum"}, default "maximum"
        Of the gradient; the maximum is what its authors take.
    neighbours : {"replace_one", "add_remove"}, default "replace_one"

    Raises
    ------
    MechanismError
        By the constructor, if epsilon is not > 0 and finite, box is not of pairs, there are more
        than a million cells, probability is not in (0, 1), or neighbours are not stated; and by
        `Privatized`, if contributions have another number of columns.

    See Also
    --------
    KNormGradient : One number, with an exact integral.
    ObjectivePerturbation : Coefficients that minimise a perturbed loss.
    FunctionalMechanism : The noisy coefficients of the loss.

    References
    ----------
    - Reimherr, M. and Awan, J. (2019), "KNG: the K-norm gradient mechanism", Advances in Neural
      Information Processing Systems 32.

    Examples
    --------
    >>> from pymc_privacy import KNormGradientRegression
    >>> fit = KNormGradientRegression(epsilon=1.0, box=[(-1, 1), (-1, 1)], cells=16)
    >>> fit.sensitivity
    4.0
    >>> median = KNormGradientRegression(
    ...     epsilon=1.0, box=[(-1, 1), (-1, 1)], cells=16, probability=0.5
    ... )
    >>> median.sensitivity
    1.0
    """

    discrete: ClassVar[bool] = False

    epsilon: float
    box: tuple[tuple[float, float], ...]
    cells: int | tuple[int, ...] = 32
    probability: float | None = None
    norm: Literal["maximum", "euclidean", "sum"] = "maximum"
    neighbours: Neighbours = "replace_one"

    def __post_init__(self) -> None:
        settle_all(self, "epsilon")
        said: Any = {"error": MechanismError}
        choice("norm", self.norm, tuple(_NORMS), meaning="of the gradient", **said)
        neighbours(self.neighbours, meaning="the sensitivity follows from it", **said)
        if self.probability is not None:
            chosen = probability("probability", self.probability, meaning="0.5: a median", **said)
            object.__setattr__(self, "probability", chosen)
        wanted = "pairs (lower, upper) of finite numbers with lower < upper, one per coefficient"
        box = reals("box", self.box, shapes=[("p", 2)], most=1e6, least=-1e6, wanted=wanted, **said)
        if not len(box) or not np.all(box[:, 0] < box[:, 1]):
            raise MechanismError(f"box must be {wanted}; got {self.box!r}.")
        object.__setattr__(self, "box", tuple(map(tuple, box.tolist())))
        self._settle_cells(len(box))

    def _settle_cells(self, p: int) -> None:
        said: Any = {"meaning": "of each side of the box", "least": 1, "error": MechanismError}
        array = isinstance(self.cells, np.ndarray) and self.cells.ndim > 0
        if array or isinstance(self.cells, list | tuple):
            each = integers("cells", self.cells, shapes=[(p,)], **said)
        else:
            each = np.full(p, integer("cells", self.cells, **said))
        if math.prod(map(int, each)) > _MOST_CELLS:
            raise MechanismError(
                f"cells must be at most {_MOST_CELLS} in the whole box (each is looked at in every "
                f"density); got {self.cells!r} for {p} coefficients."
            )
        object.__setattr__(self, "cells", tuple(map(int, each)))

    @property
    def _grid(self) -> _Grid:
        cells: Any = self.cells
        return _Grid((*pair, m) for pair, m in zip(self.box, cells, strict=True))

    @property
    def sensitivity(self) -> float:
        """Return D, the largest norm of the difference of two neighbours' gradients."""
        p = len(self.box)
        largest = np.abs(self.box).max(axis=1)
        twice = 2.0 if self.neighbours == "replace_one" else 1.0
        ones = float(np.linalg.norm(np.ones(p), _NORMS[self.norm]))
        if self.probability is not None:
            return twice * max(self.probability, 1 - self.probability) * ones
        reach = float(largest.sum()) + 1
        if self.norm != "maximum" or twice == 1:
            return twice * reach * ones
        return max(_spread(float(a), reach - float(a)) for a in largest)

    @property
    def guarantee(self) -> PureDP:
        """Promise epsilon; that records keep to [-1, 1] is not checked."""
        return PureDP(self.epsilon, neighbours=self.neighbours)

    @property
    def concentrated_guarantee(self) -> ZeroConcentratedDP:
        """Promise epsilon² / 8 as zCDP, since the privacy loss has a range of epsilon."""
        return ZeroConcentratedDP.from_bounded_range(self.epsilon, neighbours=self.neighbours)

    def contributions(self, x: Any, y: Any) -> Any:
        """Return what each record adds to the gradients, of arrays or tensors.

        For least squares -y x_j, then x_j x_k for j <= k, row by row: the gradient is a straight
        line in s. For a quantile, the gradient in the middle of every cell, p numbers each.

        Parameters
        ----------
        x : array_like or TensorVariable
            Covariates in [-1, 1], shape (n, p), with a column of ones if there is an intercept.
        y : array_like or TensorVariable
            Responses in [-1, 1], shape (n,).

        Examples
        --------
        >>> import numpy as np
        >>> from pymc_privacy import KNormGradientRegression
        >>> fit = KNormGradientRegression(epsilon=1.0, box=[(-1, 1)], cells=2)
        >>> fit.contributions(np.array([[0.5]]), np.array([0.2])).tolist()
        [[-0.1, 0.25]]
        >>> median = KNormGradientRegression(
        ...     epsilon=1.0, box=[(-1, 1)], cells=2, probability=0.5
        ... )
        >>> median.contributions(np.array([[0.5]]), np.array([0.2])).tolist()
        [[-0.25, 0.25]]
        """
        x, y = numeric(x), numeric(y)
        p = len(self.box)
        known = not is_tensor(x) and not is_tensor(y)
        fits = x.ndim == 2 and (is_tensor(x) or x.shape[1] == p)
        if not fits or y.ndim > 1 or (known and y.shape not in ((), x.shape[:1])):
            raise MechanismError(
                f"x must have shape (n, {p}), one column for each coefficient, and y shape (n,); "
                f"got {x.ndim} and {y.ndim} axes."
            )
        columns = [x[:, j] for j in range(p)]
        # Records beyond their bounds, which are not checked, may overflow.
        with np.errstate(over="ignore", invalid="ignore"):
            if self.probability is None:
                pairs = [columns[j] * columns[k] for j in range(p) for k in range(j, p)]
                return stack([*(-y * c for c in columns), *pairs])
            gradients = []
            for middle in self._grid.centres().tolist():
                line = sum(c * s for c, s in zip(columns, middle, strict=True))
                step = where(y <= line, 1.0, 0.0) - self.probability
                gradients += [step * c for c in columns]
            return stack(gradients)

    def log_density(self, release: Any, statistic: Any) -> Any:
        """Return the log probability of the release's cell, over its volume.

        Parameters
        ----------
        release : array_like or TensorVariable
            p coefficients on the last axis; several releases of one statistic, or one each.
        statistic : array_like or TensorVariable
            Total contributions, on the last axis.
        """
        release, statistic = numeric(release), numeric(statistic)
        p = len(self.box)
        if release.ndim == 0 or (isinstance(release, np.ndarray) and release.shape[-1] != p):
            raise MechanismError(
                f"release must be {p} coefficients, on the last axis; got {release.ndim} axes."
            )
        weights = self._log_weights(statistic)
        index = self._grid.cell_of(release)
        if isinstance(index, np.ndarray) and isinstance(weights, np.ndarray) and weights.ndim > 1:
            index, _ = np.broadcast_arrays(*beside(index, weights[..., 0]))
        volume = math.fsum(map(math.log, self._grid.widths))
        lower, upper = np.array(self.box).T
        outside = where((release < lower) | (release > upper), 1, 0).sum(axis=-1) > 0
        return where(outside, -np.inf, pick(weights, index) - log_sum_exp(weights) - volume)

    def log_density_error(self, statistic: Any) -> float:
        """Bound how far the log density is from that of the continuous law, at any s in the box.

        For least squares. From the middle of a cell with half sides h, G moves by A (s - s_k) with
        A the sum of x_i x_i', so its norm moves by at most that of |A| h. Density and normaliser
        both err.

        Parameters
        ----------
        statistic : array_like
            Total contributions.
        """
        if self.probability is not None:
            raise MechanismError(
                "log_density_error is known for least squares, because the gradient of a quantile "
                f"jumps at every record; got probability={self.probability!r}."
            )
        numbers = reals("statistic", statistic, error=MechanismError)
        self.release_shape(numbers.shape)
        p = len(self.box)
        matrix = np.zeros((p, p))
        matrix[np.triu_indices(p)] = numbers[p:]
        matrix = matrix + np.triu(matrix, 1).T
        moved = np.linalg.norm(np.abs(matrix) @ self._grid.widths / 2, _NORMS[self.norm])
        return float(self.epsilon / self.sensitivity * moved)

    def _log_weights(self, statistic: Any) -> Any:
        """Return -epsilon |G| / 2D in the middle of each cell, on the last axis."""
        if isinstance(statistic, np.ndarray):
            self.release_shape(statistic.shape[-1:])
        p = len(self.box)
        if self.probability is None:
            designs = _least_squares_design(self._grid)
            each = [statistic @ design for design in designs]
        else:
            each = [statistic[..., j::p] for j in range(p)]
        size = _norm(each, self.norm)
        return -self.epsilon / (2 * self.sensitivity) * size

    def simulate(self, rng: np.random.Generator, statistic: Any) -> np.ndarray:
        """Draw a release; seedable, in floating point, and so not to be published."""
        rng = generator("rng", rng)
        weights = self._log_weights(reals("statistic", statistic, error=MechanismError))
        cell = np.argmax(weights + rng.gumbel(size=weights.shape), axis=-1)
        middle = self._grid.centres()[cell]
        return middle + (rng.random(middle.shape) - 0.5) * self._grid.widths

    def release_shape(self, statistic: Shape) -> Shape:
        """Return (p,), for the coefficients."""
        p = len(self.box)
        width = p + p * (p + 1) // 2
        if self.probability is not None:
            width = p * math.prod(self._grid.counts)
        if len(statistic) != 1 or statistic[0] not in (None, width):
            raise MechanismError(
                f"KNormGradientRegression with {p} coefficients needs contributions of shape "
                f"(n, {width}), as mechanism.contributions returns them; got a statistic of shape "
                f"{statistic}."
            )
        return (p,)

    def local_shape(self, contributions: Shape) -> Shape:
        """Refuse: one record has no regression."""
        raise MechanismError(
            "KNormGradientRegression releases one fit to all records; got local=True."
        )

    def impossible(self, release: np.ndarray, statistic: Shape) -> str | None:
        """Say so if the release is out of the box."""
        lower, upper = np.array(self.box).T
        if np.all((release >= lower) & (release <= upper)):
            return None
        ends = ", ".join(f"[{low:g}, {high:g}]" for low, high in self.box)
        return f"be coefficients in the box {ends}"


def _spread(a: float, t: float) -> float:
    """Return how long an interval a coordinate of one record's gradient can be in."""
    return 2 * t if t >= 2 * a else a + t + t * t / (4 * a)


def _norm(coordinates: Sequence[Any], name: str) -> Any:
    """Return the norm of vectors given by their coordinates."""
    sizes = [abs(coordinate) for coordinate in coordinates]
    if name == "maximum":
        return reduce(lambda a, b: where(a > b, a, b), sizes)
    if name == "sum":
        return sum(sizes)
    return sum(size * size for size in sizes) ** 0.5


@cache
def _least_squares_design(grid: _Grid) -> tuple[np.ndarray, ...]:
    """Return matrices of which the statistic's products are the coordinates of all gradients."""
    centres = grid.centres()
    cells, p = centres.shape
    designs = np.zeros((p, p + p * (p + 1) // 2, cells))
    place = p
    for j in range(p):
        designs[j, j] = 1.0
        for k in range(j, p):
            designs[j, place] += centres[:, k]
            if k > j:
                designs[k, place] += centres[:, j]
            place += 1
    return tuple(designs)
