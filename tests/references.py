"""Exact posteriors given noisy releases of sums: the truth that samplers must match.

Parameters theta ~ prior; records x_1..x_n, n known, independent given theta; their
contributions add up to S = sum_i t(x_i); releases s_j = S + noise_j. Each reference is

    p(theta | s) ∝ p(theta) E[prod_j eta_j(s_j - S) | theta],

the marginal likelihood of Ju et al. (2022), eq. (3), where the expectation over
databases is an enumeration, a convolution or a quadrature, never a simulation.
NumPy and SciPy only: nothing is shared with the library, noise laws included.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy import fft, integrate, interpolate, optimize, special, stats


# Noise laws: log-density of a difference release - statistic, -inf where impossible.
def laplace(difference: ArrayLike, scale: ArrayLike) -> np.ndarray:
    """Log of exp(-|u| / b) / 2b."""
    return -np.abs(difference) / scale - np.log(2 * np.asarray(scale))


def gaussian(difference: ArrayLike, scale: ArrayLike) -> np.ndarray:
    """Log of exp(-u² / 2 sigma²) / sqrt(2 pi sigma²)."""
    ratio = np.asarray(difference) / scale
    return -(ratio**2) / 2 - np.log(np.sqrt(2 * np.pi) * np.asarray(scale))


def discrete_laplace(difference: ArrayLike, scale: ArrayLike) -> np.ndarray:
    """Log of exp(-|k| / b) / sum_j exp(-|j| / b) over the integers."""
    return _on_integers(lambda k, b: -np.abs(k) / b, difference, scale, reach=40)


def discrete_gaussian(difference: ArrayLike, scale: ArrayLike) -> np.ndarray:
    """Log of exp(-k² / 2 sigma²) / sum_j exp(-j² / 2 sigma²) over the integers."""
    return _on_integers(lambda k, b: -((k / b) ** 2) / 2, difference, scale, reach=10)


def _on_integers(kernel, difference, scale, *, reach):
    """Normalise a log-kernel by its sum over |j| <= reach * scale + 1; it is < e^-40 beyond."""
    difference, scale = np.asarray(difference), np.asarray(scale, dtype=float)
    furthest = int(np.ceil(reach * scale.max())) + 1
    integers = np.arange(-furthest, furthest + 1)
    log_total = special.logsumexp(kernel(integers, scale[..., None]), axis=-1)
    is_integer = difference == np.round(difference)
    return np.where(is_integer, kernel(difference, scale) - log_total, -np.inf)


class Release(NamedTuple):
    """One published value: statistic + noise of this law and scale, coordinate by coordinate."""

    noise: Callable[..., np.ndarray]
    scale: ArrayLike
    value: ArrayLike


def log_noise(releases: Sequence[Release], statistic: np.ndarray) -> np.ndarray:
    """Log of prod_j eta_j(s_j - S) at every scalar S: independent releases of one statistic."""
    terms = [release.noise(release.value - statistic, release.scale) for release in releases]
    return np.sum(terms, axis=0)


# What a reference returns.
@dataclass(frozen=True)
class GridPosterior:
    """A posterior as probability weights on a grid of one or more parameters.

    Each grid must be a smooth increasing function of its index, and the weights
    must vanish at its ends: the trapezoid rule is then accurate beyond all
    orders of the step. `_on_grid` builds it so. Moments, distribution function
    and quantiles are those of one parameter; `marginal` selects it from several.
    """

    grids: tuple[np.ndarray, ...]
    weights: np.ndarray

    def expectation(self, function: Callable[..., np.ndarray]) -> float:
        """Sum of w * function(*parameters) over the grid."""
        return float(np.sum(self.weights * function(*np.meshgrid(*self.grids, indexing="ij"))))

    def marginal(self, axis: int) -> "GridPosterior":
        others = tuple(other for other in range(self.weights.ndim) if other != axis)
        return GridPosterior((self.grids[axis],), self.weights.sum(axis=others))

    def mean(self) -> float:
        return self.expectation(lambda parameter: parameter)

    def sd(self) -> float:
        mean = self.mean()
        return self.expectation(lambda parameter: (parameter - mean) ** 2) ** 0.5

    def cdf(self, values: ArrayLike) -> np.ndarray:
        """Interpolate the distribution function with its slopes, the densities."""
        (grid,) = self.grids
        index = np.arange(grid.size)
        at_nodes = interpolate.CubicSpline(index, self.weights).antiderivative()(index)
        densities = self.weights / interpolate.CubicSpline(index, grid)(index, 1)
        curve = interpolate.CubicHermiteSpline(grid, at_nodes, densities)
        return np.clip(curve(np.clip(values, grid[0], grid[-1])), 0.0, 1.0)

    def quantile(self, q: ArrayLike) -> np.ndarray:
        (grid,) = self.grids
        return _invert(self.cdf, q, grid[0], grid[-1])


@dataclass(frozen=True)
class BetaMixture:
    """The law sum_k w_k Beta(a_k, b_k): moments and distribution function in closed form."""

    a: np.ndarray
    b: np.ndarray
    weights: np.ndarray

    def expectation(self, function: Callable[[np.ndarray], np.ndarray]) -> float:
        """Sum over components by Gauss-Jacobi: exact for polynomials of degree < 128."""
        total = 0.0
        for a, b, weight in zip(self.a, self.b, self.weights, strict=True):
            node, mass = special.roots_jacobi(64, b - 1, a - 1)
            total += weight * np.dot(mass, function((1 + node) / 2)) / mass.sum()
        return float(total)

    def mean(self) -> float:
        return float(np.dot(self.weights, self.a / (self.a + self.b)))

    def sd(self) -> float:
        size = self.a + self.b
        second_moment = np.dot(self.weights, self.a * (self.a + 1) / (size * (size + 1)))
        return float(second_moment - self.mean() ** 2) ** 0.5

    def cdf(self, values: ArrayLike) -> np.ndarray:
        inside = np.clip(values, 0.0, 1.0)
        return special.betainc(self.a, self.b, inside[..., None]) @ self.weights

    def quantile(self, q: ArrayLike) -> np.ndarray:
        return _invert(self.cdf, q, 0.0, 1.0)


@dataclass(frozen=True)
class DirichletMixture:
    """The law sum_m w_m Dirichlet(alpha_m): moments and margins in closed form."""

    alphas: np.ndarray
    weights: np.ndarray

    def mean(self) -> np.ndarray:
        return self.weights @ (self.alphas / self.alphas.sum(axis=1, keepdims=True))

    def covariance(self) -> np.ndarray:
        """From E[p_i p_j] = alpha_i (alpha_j + 1{i = j}) / (A (A + 1)), A the sum of alpha."""
        alphas, total = self.alphas, self.alphas.sum(axis=1)
        raised = alphas[:, None, :] + np.eye(alphas.shape[1])
        second_moments = alphas[:, :, None] * raised / (total * (total + 1))[:, None, None]
        return np.tensordot(self.weights, second_moments, 1) - np.outer(self.mean(), self.mean())

    def sd(self) -> np.ndarray:
        return np.sqrt(np.diag(self.covariance()))

    def marginal(self, axis: int) -> BetaMixture:
        """The law of one probability: Beta(alpha_k, A - alpha_k) in each component."""
        a = self.alphas[:, axis]
        return BetaMixture(a, self.alphas.sum(axis=1) - a, self.weights)


def _invert(cdf, q, lower, upper):
    """Solve cdf(value) = q; the cdf must be 0 at lower and 1 at upper."""
    find = np.vectorize(lambda p: optimize.brentq(lambda value: cdf(value) - p, lower, upper))
    return find(q)


def _peak(log_values):
    peak = np.max(log_values)
    if not np.isfinite(peak):
        raise ValueError("A release must be reachable from some database; this one has density 0.")
    return peak


def _normalised(log_weights):
    weights = np.exp(log_weights - _peak(log_weights))
    return weights / weights.sum()


def _refuse_discrete(releases):
    if any(release.noise in (discrete_laplace, discrete_gaussian) for release in releases):
        raise ValueError("The noise must be continuous, because the statistic is; it is discrete.")


# Grids: a coordinate u is uniform, and the parameter is a smooth increasing function of it.
class Coordinate(NamedTuple):
    lower: float
    upper: float
    transform: Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]]  # u -> theta, log dtheta/du


def real_line(mean: float, sd: float) -> Coordinate:
    """theta = u, over 7.5 prior standard deviations: a Normal has density e^-28 there."""
    return Coordinate(mean - 7.5 * sd, mean + 7.5 * sd, lambda u: (u, np.zeros_like(u)))


def half_line(scale: float, largest: float) -> Coordinate:
    """theta = scale * exp(u - exp(-u)), so a density that is finite at 0 still vanishes in u."""

    def transform(u):
        theta = scale * np.exp(u - np.exp(-u))
        return theta, np.log(theta) + np.log1p(np.exp(-u))

    return Coordinate(-4.0, np.log(largest / scale) + 1.0, transform)


def _on_grid(log_density, *axes: tuple[Coordinate, int]) -> GridPosterior:
    """Weigh a coarse grid over the whole prior, then a fine one over the posterior's bulk.

    Each axis is a coordinate and its number of points.
    """

    def weigh(bounds, points):
        nodes = [np.linspace(*pair, number) for pair, number in zip(bounds, points, strict=True)]
        pairs = [axis.transform(u) for (axis, _), u in zip(axes, nodes, strict=True)]
        grids = tuple(theta for theta, _ in pairs)
        log_volume = reduce(np.add.outer, [log_slope for _, log_slope in pairs])
        log_weights = log_density(*np.meshgrid(*grids, indexing="ij")) + log_volume
        return nodes, GridPosterior(grids, _normalised(log_weights))

    whole = [(axis.lower, axis.upper) for axis, _ in axes]
    nodes, coarse = weigh(whole, [points // 4 + 1 for _, points in axes])
    bulk = [_bulk(u, coarse.marginal(axis).weights) for axis, u in enumerate(nodes)]
    return weigh(bulk, [points for _, points in axes])[1]


def _bulk(nodes, weights, threshold=1e-10):
    """Find the shortest interval outside which every weight is negligible."""
    held = np.flatnonzero(weights > threshold * weights.max())
    if held[0] == 0 or held[-1] == nodes.size - 1:
        raise ValueError(
            "The posterior must lie within the bulk of the prior; it reaches its edge."
        )
    return nodes[held[0] - 1], nodes[held[-1] + 1]


def log_mean_over_sums(pmf: np.ndarray, size: int, log_values: np.ndarray) -> np.ndarray:
    """Log of E f(S), S the sum of `size` independent draws from each row of a lattice pmf.

    The pmf of S is the inverse transform of P^n, with log f given at its
    size * (columns - 1) + 1 points. Rounding is about 1e-13 of the largest f; a
    mean that never rises well above it is refused.
    """
    length, peak = log_values.size, _peak(log_values)
    padded = fft.next_fast_len(length, real=True)
    rows = max(1, 2**18 // padded)
    means = [
        fft.irfft(fft.rfft(pmf[i : i + rows], padded) ** size, padded)[:, :length]
        @ np.exp(log_values - peak)
        for i in range(0, len(pmf), rows)
    ]
    mean = np.maximum(np.concatenate(means), 0.0)
    if mean.max() < 1e-6:
        raise ValueError(
            "Some point of the grid must make the release likely; it is too far from all of them "
            f"(its mean density is {mean.max():.1e} of the largest)."
        )
    with np.errstate(divide="ignore"):
        return np.log(mean) + peak


# References.
def bernoulli(
    releases: Sequence[Release], *, size: int, prior: tuple[float, float] = (1.0, 1.0)
) -> BetaMixture:
    """Posterior of p: x_i ~ Bernoulli(p), p ~ Beta(a, b), t(x) = x; any noise.

    A mixture of Beta(a + k, b + n - k) with weights BetaBinomial(k; n, a, b) eta(s - k).
    """
    a, b = prior
    total = np.arange(size + 1)
    log_choose = -special.betaln(total + 1, size - total + 1)
    log_marginal = log_choose + special.betaln(a + total, b + size - total)
    return BetaMixture(
        a + total, b + size - total, _normalised(log_marginal + log_noise(releases, total))
    )


def categorical(
    releases: Sequence[Release], *, size: int, concentration: ArrayLike
) -> DirichletMixture:
    """Posterior of p: x_i ~ Categorical(p), p ~ Dirichlet(alpha), t(x) = one-hot; any noise.

    A mixture of Dirichlet(alpha + c) over every vector of counts c of sum n, with
    weights DirichletMultinomial(c) prod_k eta(s_k - c_k). A release of fewer
    values than categories is of the first counts.
    """
    alpha = np.asarray(concentration, dtype=float)
    ranges = np.indices((size + 1,) * alpha.size).reshape(alpha.size, -1).T
    counts = ranges[ranges.sum(axis=1) == size]
    log_weights = (special.gammaln(alpha + counts) - special.gammaln(counts + 1)).sum(axis=1)
    for noise, scale, value in releases:
        released = counts[:, : np.size(value)]
        log_weights = log_weights + noise(value - released, scale).sum(axis=1)
    return DirichletMixture(alpha + counts, _normalised(log_weights))


def capped_poisson_log_likelihood(
    releases: Sequence[Release], rates: np.ndarray, *, size: int, cap: int
) -> np.ndarray:
    """log p(s | rate) for x_i ~ Poisson(rate), t(x) = min(x, cap); any noise."""
    pmf = stats.poisson.pmf(np.arange(cap + 1), rates[:, None])
    pmf[:, cap] = stats.poisson.sf(cap - 1, rates)
    return log_mean_over_sums(pmf, size, log_noise(releases, np.arange(size * cap + 1)))


def capped_poisson(
    releases: Sequence[Release],
    *,
    size: int,
    cap: int,
    prior: tuple[float, float] = (1.0, 1.0),
    points: int = 401,
) -> GridPosterior:
    """Posterior of the rate of capped Poisson records; rate ~ Gamma(shape a, rate b)."""
    law = stats.gamma(prior[0], scale=1 / prior[1])

    def log_density(rates):
        likelihood = capped_poisson_log_likelihood(releases, rates, size=size, cap=cap)
        return law.logpdf(rates) + likelihood

    return _on_grid(log_density, (half_line(law.mean(), law.isf(1e-13)), points))


def clamped_normal_pmf(
    mu: np.ndarray, sigma: np.ndarray, *, bound: float, cells: int
) -> np.ndarray:
    """Law of clip(x, -c, c), x ~ Normal(mu, sigma), projected on c * (2 j / cells - 1).

    Node j weighs E[hat_j(clip(x))] with hat functions of width h = 2c / cells, so
    E g is replaced by E of g's linear interpolant: mass, mean and the atoms at
    ±c are kept, and the variance grows by at most h² / 4. With D(y) = E(y - x)_+,
    the weights are differences of (D(y_{j+1}) - D(y_j)) / h, the mean of the
    distribution function over a cell.
    """
    nodes = np.linspace(-bound, bound, cells + 1)
    z = (nodes - mu[:, None]) / sigma[:, None]
    integrated = sigma[:, None] * (np.exp(-(z**2) / 2) / np.sqrt(2 * np.pi) + z * special.ndtr(z))
    mean_cdf = np.diff(integrated, axis=1) * cells / (2 * bound)
    return np.diff(mean_cdf, axis=1, prepend=0.0, append=1.0)


def clamped_normal_log_likelihood(
    releases: Sequence[Release],
    mu: ArrayLike,
    sigma: ArrayLike,
    *,
    size: int,
    bound: float,
    cells: int,
) -> np.ndarray:
    """log p(s | mu, sigma) for x_i ~ Normal(mu, sigma), t(x) = clip(x, -c, c).

    Continuous noise only. The error is O(h²), h = 2c / cells, once h is small
    before the noise scale; the tests double h.
    """
    _refuse_discrete(releases)
    if any(np.asarray(release.scale) < 8 * (2 * bound / cells) for release in releases):
        raise ValueError(f"The noise scale must span 8 cells of the lattice; {cells=} is too few.")
    mu, sigma = np.broadcast_arrays(np.asarray(mu, float), np.asarray(sigma, float))
    pmf = clamped_normal_pmf(mu.ravel(), sigma.ravel(), bound=bound, cells=cells)
    totals = size * np.linspace(-bound, bound, size * cells + 1)
    return log_mean_over_sums(pmf, size, log_noise(releases, totals)).reshape(mu.shape)


def clamped_normal(
    releases: Sequence[Release],
    *,
    size: int,
    bound: float,
    sigma: float,
    prior: tuple[float, float],
    points: int = 401,
    cells: int = 1024,
) -> GridPosterior:
    """Posterior of mu of clamped Normal records, sigma known; mu ~ Normal(m0, s0)."""

    def log_density(mu):
        likelihood = clamped_normal_log_likelihood(
            releases, mu, sigma, size=size, bound=bound, cells=cells
        )
        return gaussian(mu - prior[0], prior[1]) + likelihood

    return _on_grid(log_density, (real_line(*prior), points))


def clamped_normal_unknown_sigma(
    releases: Sequence[Release],
    *,
    size: int,
    bound: float,
    sigma_scale: float,
    prior: tuple[float, float],
    points: tuple[int, int] = (401, 81),
    cells: int = 256,
) -> GridPosterior:
    """Posterior of (mu, sigma): as `clamped_normal`, with sigma ~ HalfNormal(sigma_scale).

    As sigma falls to 0 Laplace noise leaves a cusp in mu, which asks for a fine grid of mu.
    """

    def log_density(mu, sigma):
        likelihood = clamped_normal_log_likelihood(
            releases, mu, sigma, size=size, bound=bound, cells=cells
        )
        return gaussian(mu - prior[0], prior[1]) + gaussian(sigma, sigma_scale) + likelihood

    spread = half_line(sigma_scale, 7.5 * sigma_scale)
    return _on_grid(log_density, (real_line(*prior), points[0]), (spread, points[1]))


def chained_normal_log_likelihood(
    release: Release, theta: np.ndarray, *, bound: float, slope: float, tau: float, order: int = 24
) -> np.ndarray:
    """log p(s | theta), one record: x ~ Normal(theta, 1), y | x ~ Normal(slope * x, tau).

    Contributions (clip(x), clip(x) clip(y)), clipped to ±c; noise per coordinate.
    Gauss-Legendre between the points where the integrand has a kink: x, y = ±c,
    clip(x) = s_1, and clip(x) clip(y) = s_2, which x reaches at ±s_2 / c. Scales
    and tau must not be tiny before c: the pieces have `order` nodes in x, and
    4 * order in y.
    """
    _refuse_discrete([release])
    first, second = np.asarray(release.value, dtype=float)
    scale_1, scale_2 = np.broadcast_to(release.scale, 2)
    kinks = [-bound, bound, first, second / bound, -second / bound]
    breaks = np.unique([*np.linspace(theta.min() - 8, theta.max() + 8, 33), *kinks])
    x, x_mass = (part.ravel() for part in _panels(breaks[:-1], breaks[1:], order))
    clipped = np.clip(x, -bound, bound)

    def log_term(y):  # y has shape (..., x)
        return release.noise(second - clipped * y, scale_2)

    split = np.clip(second / clipped, -bound, bound)
    total = np.exp(log_term(bound)) * special.ndtr((slope * x - bound) / tau)
    total = total + np.exp(log_term(-bound)) * special.ndtr((-bound - slope * x) / tau)
    for lower, upper in ((-bound, split), (split, bound)):
        y, y_mass = _panels(lower + 0 * split, upper + 0 * split, 4 * order)
        total = total + np.sum(np.exp(log_term(y) + gaussian(y - slope * x, tau)) * y_mass, axis=0)
    of_x = total * np.exp(release.noise(first - clipped, scale_1)) * x_mass
    return np.log(np.exp(gaussian(theta[:, None] - x, 1.0)) @ of_x)


def _panels(lower, upper, order):
    """Gauss-Legendre nodes and weights of every interval [lower, upper]; axis 0 is the node."""
    node, mass = np.polynomial.legendre.leggauss(order)
    half = (upper - lower) / 2
    return np.outer(node, half) + (upper + lower) / 2, np.outer(mass, half)


def chained_normal(
    release: Release,
    *,
    bound: float,
    slope: float,
    tau: float,
    prior: tuple[float, float],
    points: int = 401,
) -> GridPosterior:
    """Posterior of theta given one noisy record (x, y); theta ~ Normal(m0, s0)."""

    def log_density(theta):
        likelihood = chained_normal_log_likelihood(
            release, theta, bound=bound, slope=slope, tau=tau
        )
        return gaussian(theta - prior[0], prior[1]) + likelihood

    return _on_grid(log_density, (real_line(*prior), points))


def covariate_bernoulli(
    releases: Sequence[Release],
    *,
    covariates: ArrayLike,
    prior: tuple[float, float],
    points: int = 401,
) -> GridPosterior:
    """Posterior of theta: x_i ~ Bernoulli(expit(theta + z_i)), z public, t(x) = x; any noise.

    S is Poisson-binomial, its pmf a product of n two-point laws; theta ~ Normal(m0, s0).
    """
    offsets = np.asarray(covariates, dtype=float)
    noise = log_noise(releases, np.arange(offsets.size + 1))

    def log_density(theta):
        pmf = np.ones((theta.size, 1))
        for probability in special.expit(theta + offsets[:, None])[..., None]:
            padded = np.pad(pmf, ((0, 0), (1, 1)))
            pmf = padded[:, 1:] * (1 - probability) + padded[:, :-1] * probability
        return gaussian(theta - prior[0], prior[1]) + special.logsumexp(noise, b=pmf, axis=1)

    return _on_grid(log_density, (real_line(*prior), points))


# Any mechanism, by enumeration of all databases: log eta(s | x) is a function of their counts.
def every_count(size: int, cells: int) -> np.ndarray:
    """Every vector of counts of `size` records in so many cells, one per row."""
    ranges = np.indices((size + 1,) * (cells - 1)).reshape(cells - 1, -1).T
    held = ranges[ranges.sum(axis=1) <= size]
    return np.column_stack([held, size - held.sum(axis=1)])


def enumerated_categorical(
    log_density: Callable[[np.ndarray], float], *, size: int, concentration: ArrayLike
) -> DirichletMixture:
    """Posterior of p: x_i ~ Categorical(p), p ~ Dirichlet(alpha); log eta(s | counts) is given."""
    alpha = np.asarray(concentration, dtype=float)
    counts = every_count(size, alpha.size)
    log_weights = (special.gammaln(alpha + counts) - special.gammaln(counts + 1)).sum(axis=1)
    log_weights = log_weights + [float(log_density(c)) for c in counts]
    return DirichletMixture(alpha + counts, _normalised(log_weights))


def enumerated_on_grid(
    log_density: Callable[[np.ndarray], float],
    log_cells: Callable[[np.ndarray], np.ndarray],
    *,
    size: int,
    prior: tuple[float, float],
    points: int = 401,
) -> GridPosterior:
    """Posterior of theta ~ Normal(m0, s0): x_i falls into cell k with probability exp(log_cells).

    log_cells maps theta of shape (g,) to (g, cells); log eta(s | counts) is given.
    """
    cells = log_cells(np.zeros(1)).shape[1]
    counts = every_count(size, cells)
    log_ways = special.gammaln(size + 1) - special.gammaln(counts + 1).sum(axis=1)
    log_eta = log_ways + [float(log_density(c)) for c in counts]

    def log_posterior(theta):
        likelihood = special.logsumexp(log_cells(theta) @ counts.T + log_eta, axis=1)
        return gaussian(theta - prior[0], prior[1]) + likelihood

    return _on_grid(log_posterior, (real_line(*prior), points))


# Limits of the references as the noise vanishes and no record is capped or clamped.
def beta_given_total(total: float, *, size: int, prior: tuple[float, float]):
    """p | S for Bernoulli records: Beta(a + S, b + n - S)."""
    return stats.beta(prior[0] + total, prior[1] + size - total)


def dirichlet_given_counts(counts: ArrayLike, *, concentration: ArrayLike):
    """p | S for categorical records: Dirichlet(alpha + S)."""
    return stats.dirichlet(np.add(counts, concentration))


def gamma_given_total(total: float, *, size: int, prior: tuple[float, float]):
    """rate | S for Poisson records: Gamma(a + S, b + n)."""
    return stats.gamma(prior[0] + total, scale=1 / (prior[1] + size))


def normal_given_total(
    total: float, *, size: int, sigma: float, prior: tuple[float, float], noise_sd: float = 0.0
):
    """mu | s for Normal records and Gaussian noise, s ~ Normal(n mu, sqrt(n sigma² + noise²))."""
    precision = prior[1] ** -2 + size**2 / (size * sigma**2 + noise_sd**2)
    shift = prior[0] * prior[1] ** -2 + size * total / (size * sigma**2 + noise_sd**2)
    return stats.norm(shift / precision, precision**-0.5)


# Records of unknown number.
@dataclass(frozen=True)
class Integers:
    """A law on 0, 1, 2, …, given by its probabilities."""

    weights: np.ndarray

    @property
    def values(self) -> np.ndarray:
        return np.arange(self.weights.size)

    def mean(self) -> float:
        return float(np.dot(self.weights, self.values))

    def sd(self) -> float:
        return float(np.dot(self.weights, (self.values - self.mean()) ** 2) ** 0.5)

    def cdf(self, values: ArrayLike) -> np.ndarray:
        reached = np.searchsorted(self.values, np.asarray(values), side="right")
        return np.concatenate([[0.0], np.cumsum(self.weights)])[reached]

    def quantile(self, q: ArrayLike) -> np.ndarray:
        return np.searchsorted(np.cumsum(self.weights), q)


def bernoulli_of_unknown_size(
    releases: Sequence[Release], log_prior: np.ndarray, *, prior: tuple[float, float] = (1.0, 1.0)
) -> tuple[Integers, BetaMixture]:
    """Posterior of n and of p: as `bernoulli`, with n given by the log of its prior on 0, 1, ….

    The prior may include the density of a release of n itself.
    """
    a, b = prior
    sizes, totals = np.meshgrid(np.arange(log_prior.size), np.arange(log_prior.size), indexing="ij")
    possible = totals <= sizes
    n, k = sizes[possible], totals[possible]
    log_marginal = -special.betaln(k + 1, n - k + 1) - np.log(n + 1)
    log_marginal += special.betaln(a + k, b + n - k) - special.betaln(a, b)
    weights = _normalised(log_marginal + log_noise(releases, k) + log_prior[n])
    return (
        Integers(np.bincount(n, weights, minlength=log_prior.size)),
        BetaMixture(a + k, b + n - k, weights),
    )


def clamped_normal_of_unknown_size(
    releases: Sequence[Release],
    log_prior: np.ndarray,
    *,
    bound: float,
    sigma: float,
    prior: tuple[float, float],
    points: int = 401,
    cells: int = 256,
) -> tuple[Integers, GridPosterior]:
    """Posterior of n and of mu: as `clamped_normal`, with n from the log of its prior on 1, 2, …"""

    def by_size(mu):
        return np.stack(
            [
                log_chance
                + gaussian(mu - prior[0], prior[1])
                + clamped_normal_log_likelihood(
                    releases, mu, sigma, size=n, bound=bound, cells=cells
                )
                for n, log_chance in enumerate(log_prior, start=1)
            ]
        )

    posterior = _on_grid(
        lambda mu: special.logsumexp(by_size(mu), axis=0), (real_line(*prior), points)
    )
    sizes = _normalised(special.logsumexp(by_size(posterior.grids[0]), axis=1))
    return Integers(np.concatenate([[0.0], sizes])), posterior


# Likelihoods of parameters, for maximum likelihood: the same expectations, without a prior.
def noise_characteristic(noise, scale, t):
    """The characteristic function of continuous noise."""
    if noise is laplace:
        return 1 / (1 + (scale * t) ** 2)
    return np.exp(-((scale * t) ** 2) / 2)


def density_of_summed_noise(noise, scale: float, size: int, offset: float) -> float:
    """Density of the sum of `size` independent noises: the inverse of a power."""
    sd = scale * np.sqrt(size * (2 if noise is laplace else 1))
    # Beyond, the integral of (b t)^(-2 size) is below 1e-12, of three noises and more.
    reach = (3000 if size < 6 else 60) / sd
    t = np.linspace(0, reach, 400_001)
    value = noise_characteristic(noise, scale, t) ** float(size) * np.cos(t * offset)
    return float(integrate.simpson(value, x=t) / np.pi)


def bernoulli_log_likelihood(p: float, size: int, release: Release) -> float:
    """Log of sum_k Binomial(k; n, p) eta(s - k), by enumeration."""
    count = np.arange(size + 1)
    log_mass = stats.binom.logpmf(count, size, p)
    return float(special.logsumexp(log_mass + release.noise(release.value - count, release.scale)))


def over_sizes(log_sizes: np.ndarray, sizes: np.ndarray, log_likelihood: Callable) -> float:
    """Log of sum_n p(n) L_n, for the log of p(n) and of all that is known of n."""
    return float(
        special.logsumexp([w + log_likelihood(n) for w, n in zip(log_sizes, sizes, strict=True)])
    )


def law_on_nodes(law, lower: float, upper: float, nodes: int = 200):
    """A law that is clamped to an interval as nodes and masses, with its atoms at both ends."""
    low, high = max(lower, law.ppf(1e-16)), min(upper, law.isf(1e-16))
    unit, weight = np.polynomial.legendre.leggauss(nodes)
    inside = low + (high - low) * (1 + unit) / 2
    masses = law.pdf(inside) * weight * (high - low) / 2
    points = np.concatenate([[lower], inside, [upper]])
    return points, np.concatenate([[law.cdf(lower)], masses, [law.sf(upper)]])


def sum_log_likelihood(law, bounds, size: int, release: Release, nodes: int = 4096) -> float:
    """Log density of clamped sum + noise, by inverting its characteristic function."""
    points, masses = law_on_nodes(law, *bounds)
    spread = np.sqrt(size * (masses @ points**2 - (masses @ points) ** 2))
    reach = 9 / max(spread, 1e-9)
    t = np.linspace(-reach, reach, nodes)
    one = np.exp(1j * np.outer(t, points)) @ masses
    value = one**size * noise_characteristic(release.noise, release.scale, t)
    integrand = (value * np.exp(-1j * t * release.value)).real
    return float(np.log(np.trapezoid(integrand, t) / (2 * np.pi)))


def moments_log_likelihood(law, bounds, size: int, release: Release, nodes: int = 96) -> float:
    """Log density of clamped (sum, sum of squares) + noise, by the same in two dimensions."""
    points, masses = law_on_nodes(law, *bounds, nodes=160)
    both = np.stack([points, points**2])
    covariance = size * np.cov(both, aweights=masses, ddof=0)
    axes = np.linalg.cholesky(np.linalg.inv(covariance))
    u = np.linspace(-8, 8, nodes)
    z = np.stack(np.meshgrid(u, u, indexing="ij")).reshape(2, -1)
    t = axes @ z
    one = np.exp(1j * t.T @ both) @ masses
    value = one**size
    for coordinate in t:
        value = value * noise_characteristic(release.noise, release.scale, coordinate)
    integrand = (value * np.exp(-1j * (np.asarray(release.value) @ t))).real
    area = (u[1] - u[0]) ** 2 * abs(np.linalg.det(axes))
    return float(np.log(integrand.sum() * area / (2 * np.pi) ** 2))


def maximum(log_likelihood: Callable, start: ArrayLike) -> tuple[np.ndarray, np.ndarray]:
    """The maximum of a function of a vector, and standard errors by its curvature there."""
    found = optimize.minimize(
        lambda q: -log_likelihood(*q), np.atleast_1d(start), method="Nelder-Mead",
        options={"xatol": 1e-6, "fatol": 1e-9},
    )  # fmt: skip
    at, step = found.x, 1e-2
    size = len(at)
    hessian = np.empty((size, size))
    units = step * np.eye(size)
    for i in range(size):
        for j in range(size):
            corners = [
                sign * log_likelihood(*(at + a * units[i] + b * units[j]))
                for a, b, sign in ((1, 1, 1), (1, -1, -1), (-1, 1, -1), (-1, -1, 1))
            ]
            hessian[i, j] = -sum(corners) / (4 * step**2)
    return at, np.sqrt(np.diag(np.linalg.inv(hessian)))
