"""Exact posteriors of the parameters of two shares, given what was published of one or two records.

Shares of two parts are Beta variables, and everything that is published of them depends on one
number. It is put in cells, of which laws of the records give the probability, so that the marginal
likelihood is a sum over cells of one record or of two. NumPy and SciPy only, as in
`tests.references`.
"""

from collections.abc import Callable, Sequence

import numpy as np
from scipy import special

from tests.references import GridPosterior, _on_grid, half_line, real_line

# Cells on the logit scale, with edges at the logits of 0.1 and 0.9; all beyond 10 is one cell.
_EDGE = np.log(9.0)
STEP = _EDGE / 48
CELLS = 218


def _cells() -> tuple[np.ndarray, np.ndarray]:
    """Return the edges of the cells between 0 and 1, and the share in the middle of each."""
    logits = np.arange(-CELLS, CELLS + 1) * STEP
    middle = np.concatenate([[logits[0] - 5], (logits[1:] + logits[:-1]) / 2, [logits[-1] + 5]])
    return special.expit(logits), special.expit(middle)


def shares() -> np.ndarray:
    """Return two shares, one row for each cell."""
    first = _cells()[1]
    return np.stack([first, special.expit(-special.logit(first))], axis=1)


def masses(alpha: np.ndarray, beta: np.ndarray) -> np.ndarray:
    """Return the probability of each cell under Beta laws, on a last axis."""
    below = special.betainc(alpha[..., None], beta[..., None], _cells()[0])
    padded = np.concatenate([np.zeros((*alpha.shape, 1)), below, np.ones((*alpha.shape, 1))], -1)
    return np.diff(padded, axis=-1)


LogNoise = Callable[[np.ndarray], np.ndarray]
"""From statistics, on a last axis, to the log density of what was published."""


def _terms(contributions: Sequence[np.ndarray], noises: Sequence[LogNoise], records: int):
    """Return the density of all releases given the cells of one record or of two."""
    total = 0.0
    for rows, noise in zip(contributions, noises, strict=True):
        sums = rows if records == 1 else rows[:, None, :] + rows[None, :, :]
        total = total + noise(sums)
    return np.exp(total)


def gamma_shares(
    contributions: Sequence[np.ndarray],
    noises: Sequence[LogNoise],
    *,
    sizes: Sequence[int] = (2,),
    prior_mean: float = 10.0,
    points: int = 61,
) -> GridPosterior:
    """Posterior of both parameters, exponential with a mean; a size is uniform on `sizes`."""
    given = {size: _terms(contributions, noises, size) for size in sizes}

    def log_density(alpha, beta):
        mass = masses(alpha, beta)
        likelihood = sum(_likelihood(terms, mass) for terms in given.values())
        return np.log(likelihood) - (alpha + beta) / prior_mean

    axis = (half_line(prior_mean, 30 * prior_mean), points)
    return _on_grid(log_density, axis, axis)


def log_evidence(
    posterior: GridPosterior,
    contributions: Sequence[np.ndarray],
    noises: Sequence[LogNoise],
    *,
    size: int = 2,
) -> float:
    """Return the log density of the releases: 1 over the posterior mean of 1 / likelihood."""
    terms = _terms(contributions, noises, size)
    inverse = posterior.expectation(lambda a, b: 1 / _likelihood(terms, masses(a, b)))
    return -float(np.log(inverse))


def probability_of_size(
    size: int,
    posterior: GridPosterior,
    contributions: Sequence[np.ndarray],
    noises: Sequence[LogNoise],
    *,
    sizes: Sequence[int],
) -> float:
    """Return the posterior probability of a number of records, of those that are as likely."""
    given = {one: _terms(contributions, noises, one) for one in sizes}

    def share(alpha, beta):
        mass = masses(alpha, beta)
        each = {one: _likelihood(terms, mass) for one, terms in given.items()}
        return each[size] / sum(each.values())

    return posterior.expectation(share)


def _likelihood(terms: np.ndarray, mass: np.ndarray) -> np.ndarray:
    """Sum the density of the releases over the cells of one record, or of two."""
    after = mass @ terms
    return after if terms.ndim == 1 else (after * mass).sum(-1)


def regression_shares(
    contributions: Sequence[np.ndarray],
    noises: Sequence[LogNoise],
    *,
    covariates: tuple[float, float],
    precision: float,
    prior: tuple[float, float],
    points: int = 401,
) -> GridPosterior:
    """Posterior of theta: the mean share of record i is expit(theta z_i); theta ~ Normal(m, s).

    Contributions are those of each record, which may depend on its covariate, in two arrays.
    """
    first, second = contributions
    sums = first[:, None, :] + second[None, :, :]
    given = np.exp(sum(noise(sums) for noise in noises))

    def log_density(theta):
        one, other = (special.expit(theta * z) for z in covariates)
        left = masses(precision * one, precision * (1 - one))
        right = masses(precision * other, precision * (1 - other))
        likelihood = np.einsum("ti,ij,tj->t", left, given, right)
        return np.log(likelihood) - (theta - prior[0]) ** 2 / (2 * prior[1] ** 2)

    return _on_grid(log_density, (real_line(*prior), points))
