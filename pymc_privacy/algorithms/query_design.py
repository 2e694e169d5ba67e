"""Which query tells most of the parameters: Fisher information of a release, and its maximum.

All information comes from the distribution function of a record and its slopes. Of the answer to a
binned query it is sum_j dP_j dP_j' / P_j over the answers; of a clipped record with Laplace noise,

    p(y) = K(y - u) + int_l^u F(x) K'(y - x) dx,

and the score is constant outside of [l, u], so that the information is an integral over it and two
atoms. If records are m + c z, queries with ends m + c a have information F(a) / c² on (m, c): the
best a is found once (Yıldırım 2024, Theorem 3; it takes a score that is homogeneous in F, as all
those here are). For other laws candidates lie at quantiles of the law at drawn parameters. What is
chosen affects how much is learned and never whether the posterior is right.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import cache
from typing import NamedTuple

import numpy as np
from scipy import optimize, stats

from pymc_privacy.errors import DesignWarning

SCORES = ("first", "trace", "harmonic", "a_optimal", "d_optimal")
_CELLS = 800  # of an interval, for integrals to five digits
_FEW_CELLS = 48  # where many intervals are compared
_MOST_BINS = 40
_FURTHEST = 4.5  # of the ends of an interval from the middle, in units of c
_GRID = 46  # candidates for each end
_DEGENERATE = 10.0  # times what the harmonic score takes the variance for
_TINY = 1e-300


class Family(NamedTuple):
    """A law of z, of which records m + c z have theirs."""

    law: object
    symmetric: bool

    def slopes(self, z: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return F(z), and its derivatives in m and c at (0, 1), on a last axis."""
        cdf, density = self.law.cdf(z), self.law.pdf(z)  # type: ignore[attr-defined]
        return cdf, np.stack([-density, -z * density], axis=-1)


FAMILIES = {
    "normal": Family(stats.norm, True),
    "laplace": Family(stats.laplace, True),
    "logistic": Family(stats.logistic, True),
    "cauchy": Family(stats.cauchy, True),
    "gumbel": Family(stats.gumbel_r, False),
}


def score_of(information: np.ndarray, score: str, memory: np.ndarray | None = None) -> np.ndarray:
    """Return how good information matrices are, of shape (..., d, d); larger is better.

    Parameters
    ----------
    information
        Of one more release.
    score : {"first", "trace", "harmonic", "a_optimal", "d_optimal"}
        The information on the first parameter, on all, 1 / sum of 1 / F_ii, 1 / trace of the
        inverse, and the determinant.
    memory
        The precision that there is already, for the last two.
    """
    if score == "first":
        return information[..., 0, 0]
    diagonal = np.diagonal(information, axis1=-2, axis2=-1)
    if score == "trace":
        return diagonal.sum(axis=-1)
    if score == "harmonic":
        return 1.0 / np.sum(1.0 / np.maximum(diagonal, _TINY), axis=-1)
    total = information if memory is None else information + memory
    if score == "d_optimal":
        return np.linalg.slogdet(total)[1]
    return 1.0 / np.maximum(_trace_of_inverse(total), _TINY)


def _trace_of_inverse(matrices: np.ndarray) -> np.ndarray:
    """Return the trace of the inverse, infinity where there is none."""
    if matrices.shape[-1] == 2:
        a, b, c = matrices[..., 0, 0], matrices[..., 1, 1], matrices[..., 0, 1]
        determinant = a * b - c * c
        singular = determinant <= 1e-14 * a * b
        return np.where(singular, np.inf, (a + b) / np.where(singular, 1.0, determinant))
    values = np.linalg.eigvalsh(matrices)
    singular = values[..., 0] <= 1e-14 * values[..., -1]
    return np.where(singular, np.inf, np.sum(1.0 / np.where(values > 0, values, 1.0), axis=-1))


# -- information of an answer, from a distribution function and its slopes ------------------------


def binned_information(cdf: np.ndarray, slopes: np.ndarray, epsilon: float) -> np.ndarray:
    """Return the information of an answer of k-ary randomized response.

    ``cdf`` has the distribution function at the edges on its last axis, ``slopes`` its derivatives
    in the parameters on one axis more.
    """
    zero = np.zeros_like(cdf[..., :1])
    inside = np.diff(cdf, axis=-1, prepend=zero, append=zero + 1.0)
    nothing = np.zeros_like(slopes[..., :1, :])
    change = np.diff(slopes, axis=-2, prepend=nothing, append=nothing)
    gain, bins = np.expm1(epsilon), inside.shape[-1]
    total = gain + bins
    weight = gain**2 / (1.0 + gain * inside) / total
    return np.einsum("...j,...ja,...jb->...ab", weight, change, change)


@cache
def _kernels(epsilon: float, cells: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return what a clipped release is made of, on [0, 1] with noise of scale 1 / epsilon.

    The density at the ends of cells is ``last`` + F(middles) ``steps``: over a cell K' integrates
    to a difference of K. And how ends of cells are weighed, the tails with the first and the last.
    """
    ends = np.linspace(0.0, 1.0, cells + 1)
    kernel = 0.5 * epsilon * np.exp(-epsilon * np.abs(ends[:, None] - ends))
    weights = np.full(cells + 1, 1.0 / cells)
    weights[[0, -1]] = 0.5 / cells + 1.0 / epsilon
    # Of the middle of each cell, on all ends.
    return kernel[:, -1], (kernel[:, :-1] - kernel[:, 1:]).T, weights


def clipped_information(
    slopes_at: Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]],
    lower: np.ndarray,
    upper: np.ndarray,
    epsilon: float,
    cells: int = _CELLS,
) -> np.ndarray:
    """Return the information of a clipped record with Laplace noise, for each interval.

    ``slopes_at`` returns the distribution function and its derivatives at points, as `Family` does.
    """
    last, steps, weights = _kernels(epsilon, cells)
    middles = (np.arange(cells) + 0.5) / cells
    cdf, slopes = slopes_at(lower[:, None] + (upper - lower)[:, None] * middles)
    density = last + cdf @ steps
    change = np.einsum("qxa,xy->qya", slopes, steps)
    return np.einsum("qy,qya,qyb->qab", weights / density, change, change)


# -- location and scale: once and for all ----------------------------------------------------------


@cache
def best_clip(
    family: str, epsilon: float, score: str, free: tuple[int, ...] = (0, 1)
) -> tuple[float, float]:
    """Return the best ends (a, b) of an interval, in units of location and scale.

    Parameters
    ----------
    family : str
        A name in `FAMILIES`.
    epsilon, score
    free : tuple of int
        Which of location (0) and scale (1) are unknown.

    Examples
    --------
    >>> low, high = best_clip("normal", 5.0, "first")
    >>> round(low, 2), round(high, 2)
    (-0.73, 0.73)
    """
    lower, upper, table = clip_table(family, epsilon, free)
    scores = score_of(table, score)
    # Where several are as good, the one around the middle.
    tied = np.flatnonzero(scores >= scores.max() * (1 - 1e-6))
    best = tied[np.argmin(np.abs(lower[tied] + upper[tied]))]

    def loss(ends: np.ndarray) -> float:
        if not ends[0] < ends[1]:
            return np.inf
        made = clipped_information(FAMILIES[family].slopes, ends[:1], ends[1:], epsilon)
        return -float(score_of(_among(made, free), score)[0])

    start = np.array([lower[best], upper[best]])
    simplex = start + 0.08 * np.array([[0.0, 0.0], [-1.0, 0.0], [0.0, 1.0]])
    options = {"initial_simplex": simplex, "xatol": 1e-5, "fatol": 1e-13}
    found = optimize.minimize(loss, start, method="Nelder-Mead", options=options)
    low, high = map(float, found.x)
    if score == "harmonic":
        _warn_if_degenerate(family, low, high, epsilon)
    return low, high


def _warn_if_degenerate(family: str, low: float, high: float, epsilon: float) -> None:
    ends = np.array([low]), np.array([high])
    [made] = clipped_information(FAMILIES[family].slopes, *ends, epsilon)
    believed = float(np.sum(1.0 / np.diagonal(made)))
    true = float(_trace_of_inverse(made))
    if true > _DEGENERATE * believed:
        warnings.warn(
            "The harmonic score takes 1 / F_ii for the variances of the parameters, which are the "
            f"diagonal of the inverse of F; at epsilon {epsilon:g} its best interval ({low:.2f}, "
            f"{high:.2f}) has {true:.4g} of them and not {believed:.4g}: location and scale will "
            'hardly be told apart. score="a_optimal" is what it was meant to be.',
            DesignWarning,
            stacklevel=4,
        )


@cache
def clip_table(
    family: str, epsilon: float, free: tuple[int, ...] = (0, 1)
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return many intervals, in units of location and scale, and what each tells of the unknown."""
    places = _FURTHEST * np.sinh(2 * np.linspace(-1, 1, _GRID)) / np.sinh(2)
    lower, upper = (places[k] for k in np.triu_indices(_GRID, 1))
    made = clipped_information(FAMILIES[family].slopes, lower, upper, epsilon, _FEW_CELLS)
    return lower, upper, _among(made, free)


@cache
def best_bins(
    family: str, epsilon: float, score: str, free: tuple[int, ...] = (0, 1)
) -> tuple[float, ...]:
    """Return the best edges, evenly spaced, in units of location and scale.

    Their number grows as long as the score does.

    Examples
    --------
    >>> [round(edge, 1) for edge in best_bins("normal", 1.0, "a_optimal")]
    [-0.7, 0.7]
    """
    found: tuple[float, ...] = (0.0,)
    best, worse = -np.inf, 0
    for edges in range(1, _MOST_BINS):
        value, candidate = _best_spacing(family, epsilon, score, free, edges)
        if value > best:
            best, found, worse = value, candidate, 0
        elif (worse := worse + 1) == 3:
            break
    return found


def _best_spacing(
    family: str, epsilon: float, score: str, free: tuple[int, ...], edges: int
) -> tuple[float, tuple[float, ...]]:
    places = np.arange(edges) - 0.5 * (edges - 1)

    def loss(middle: float, spacing: float) -> float:
        cdf, slopes = FAMILIES[family].slopes(middle + abs(spacing) * places)
        made = binned_information(cdf, slopes, epsilon)
        return -float(score_of(_among(made, free), score))

    symmetric = FAMILIES[family].symmetric and not (edges == 1 and free == (1,))
    widest = 4.0 / max(1, edges - 1)
    starts = [(0.0, widest * part) for part in ((0.3, 0.6, 0.9) if edges < 4 else (0.8,))]
    if edges < 4 or not symmetric:
        # One edge in the middle, of a symmetric law, tells nothing of its scale.
        starts += [(side, widest * 0.5) for side in (-1.0, 1.0)]
    solved = [
        optimize.minimize(lambda q: loss(*q), start, method="Nelder-Mead", options={"xatol": 1e-4})
        for start in starts
    ]
    best = min(solved, key=lambda one: one.fun)
    middle, spacing = best.x[0], abs(best.x[1])
    if symmetric and loss(0.0, spacing) <= best.fun * (1 - 1e-9) + 1e-15:
        middle = 0.0
    return -float(best.fun), tuple(float(edge) for edge in middle + spacing * places)


def _among(information: np.ndarray, free: tuple[int, ...]) -> np.ndarray:
    return information[..., free, :][..., free]


def remembering_clip(
    family: str, epsilon: float, score: str, memory: np.ndarray, free: tuple[int, ...] = (0, 1)
) -> tuple[float, float]:
    """Return the interval whose answer adds most to a precision, in units of location and scale."""
    lower, upper, table = clip_table(family, epsilon, free)
    best = int(np.argmax(score_of(table, score, _among(memory, free))))
    return float(lower[best]), float(upper[best])


# -- any law: candidates at its quantiles ----------------------------------------------------------


class DrawnLaw(NamedTuple):
    """The law of a record at drawn parameters: F and its slopes, and what is known of those."""

    slopes_at: Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]]
    covariance: np.ndarray  # of the parameters, given all releases so far
    discrete: bool


def _standard(information: np.ndarray, law: DrawnLaw) -> np.ndarray:
    """Return information in units of the standard deviations that parameters have."""
    root = np.linalg.cholesky(law.covariance)
    return np.einsum("ia,...ij,jb->...ab", root, information, root)


def _quality(information: np.ndarray, law: DrawnLaw, score: str) -> np.ndarray:
    """Return the score of one more release; optimal ones remember what is known already."""
    made = _standard(information, law) if score != "first" else information
    return score_of(made, score, np.eye(made.shape[-1]) if score.endswith("optimal") else None)


_LEVELS = np.array([0.01, 0.05, 0.15, 0.3, 0.45, 0.55, 0.7, 0.85, 0.95, 0.99])


def search_clip(law: DrawnLaw, quantile: Callable, epsilon: float, score: str) -> tuple:
    """Return the best interval between quantiles of the drawn law."""
    places = np.unique(np.rint(quantile(_LEVELS)) if law.discrete else quantile(_LEVELS))
    if places.size < 2:
        places = np.array([places[0] - 0.5, places[0] + 0.5])
    lower, upper = (places[k] for k in np.triu_indices(places.size, 1))
    made = clipped_information(law.slopes_at, lower, upper, epsilon, _FEW_CELLS)
    best = int(np.argmax(_quality(made, law, score)))
    return float(lower[best]), float(upper[best])


def search_bins(law: DrawnLaw, quantile: Callable, epsilon: float, score: str) -> tuple:
    """Return the best edges, at quantiles of the drawn law that are evenly spaced for a Normal one.

    Candidates differ in number, spacing and shift.
    """
    plans = _bin_plans(epsilon)
    everywhere = np.unique(np.concatenate(plans))
    at = quantile(stats.norm.cdf(everywhere))
    if law.discrete:
        at = np.ceil(at)
    cdf, slopes = law.slopes_at((at - 1.0 if law.discrete else at)[None])
    best, found = -np.inf, (float(at[0]),)
    for plan in plans:
        edges, first = np.unique(at[np.searchsorted(everywhere, plan)], return_index=True)
        chosen = np.searchsorted(everywhere, plan)[first]
        made = binned_information(cdf[0, chosen], slopes[0, chosen], epsilon)
        value = float(_quality(made, law, score))
        if value > best:
            best, found = value, tuple(edges.tolist())
    return found


@cache
def _bin_plans(epsilon: float) -> list[np.ndarray]:
    """Return candidates for edges, in units of a standard Normal law."""
    counts = {1, 2, 3, len(best_bins("normal", epsilon, "a_optimal"))}
    plans = []
    for edges in sorted(counts):
        places = np.arange(edges) - 0.5 * (edges - 1)
        for spacing in (0.4, 0.7, 1.1, 1.6) if edges > 1 else (0.0,):
            plans += [
                np.round(shift + spacing * places, 9) for shift in (-1.2, -0.5, 0.0, 0.5, 1.2)
            ]
    return [plan for plan in plans if np.abs(plan).max() < _FURTHEST]
