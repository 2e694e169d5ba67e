"""Maximum likelihood of Dirichlet parameters, by means of logarithms, censored or not."""

from __future__ import annotations

import numpy as np
from scipy import special

_SMALLEST, _LARGEST = 1e-3, 1e4


def maximum_likelihood(means: np.ndarray, steps: int = 60) -> np.ndarray:
    """Return alpha with psi(alpha_j) - psi(sum alpha) = v_j, for each row v of mean logarithms.

    Newton's method on log alpha, with the step cut back; kept within 1e-3 and 1e4.
    """
    v = np.atleast_2d(means)
    shares = np.exp(v)
    gap = np.maximum(1 - shares.sum(axis=1), 1e-9)
    precision = (v.shape[1] - 1) / (2 * gap)
    q = np.log(np.maximum(shares / shares.sum(axis=1, keepdims=True) * precision[:, None], 1e-2))
    for _ in range(steps):
        step = _newton(q, v)
        size = np.abs(step).max(axis=1, keepdims=True)
        step *= np.minimum(1, 1 / np.maximum(size, 1e-300))
        better = _log_likelihood(q + step, v) >= _log_likelihood(q, v) - 1e-12
        q = np.where(better[:, None], q + step, q + step / 4)
        q = np.clip(q, np.log(_SMALLEST), np.log(_LARGEST))
        if size.max() < 1e-9:
            break
    return np.exp(q)


def _log_likelihood(q: np.ndarray, v: np.ndarray) -> np.ndarray:
    alpha = np.exp(q)
    terms = alpha * v - special.gammaln(alpha)
    return np.asarray(terms.sum(axis=1) + special.gammaln(alpha.sum(axis=1)))


def _newton(q: np.ndarray, v: np.ndarray) -> np.ndarray:
    """Return the Newton step, with eigenvalues of the curvature made negative."""
    alpha = np.exp(q)
    whole, eye = alpha.sum(axis=1), np.eye(q.shape[1])
    slope = alpha * (v - special.psi(alpha) + special.psi(whole)[:, None])
    curvature = (slope - alpha**2 * special.polygamma(1, alpha))[:, :, None] * eye
    curvature += alpha[:, :, None] * alpha[:, None, :] * special.polygamma(1, whole)[:, None, None]
    values, vectors = np.linalg.eigh(curvature)
    inverse = 1 / np.maximum(np.abs(values), 1e-8)
    return np.asarray(np.einsum("mij,mj,mkj,mk->mi", vectors, inverse, vectors, slope))


_NODES, _MASSES = special.roots_legendre(20)


def censored_means(alpha: np.ndarray, threshold: float) -> np.ndarray:
    """Return E log max(x_j, a) = log a + integral of P(x_j > e^u) over u from log a to 0."""
    low = np.log(threshold)
    u = low + (1 + _NODES) / 2 * -low
    rest = alpha.sum(axis=1, keepdims=True) - alpha
    above = 1 - special.betainc(alpha[..., None], rest[..., None], np.exp(u))
    return np.asarray(low - low / 2 * (above @ _MASSES))


def censored_fit(means: np.ndarray, threshold: float, steps: int = 40) -> np.ndarray:
    """Return alpha with E log max(x_j, a) = v_j, for each row v, as nearly as one can.

    Gauss and Newton's method on log alpha, damped. There may be a second solution, of small alpha,
    whose records are at the corners; the start is where records are not.
    """
    v = np.atleast_2d(means)
    shares = np.exp(v)
    precision = (v.shape[1] - 1) / (2 * np.maximum(1 - shares.sum(axis=1), 1e-9))
    shares /= shares.sum(axis=1, keepdims=True)
    q = np.log(np.maximum(shares * np.clip(precision, 1, 30)[:, None], 0.05))
    damping = np.full(len(v), 1e-2)
    misfit = censored_means(np.exp(q), threshold) - v
    for _ in range(steps):
        slopes = np.stack(
            [
                (censored_means(np.exp(q + 1e-4 * unit), threshold) - v - misfit) / 1e-4
                for unit in np.eye(v.shape[1])
            ],
            axis=2,
        )
        normal = np.einsum("mki,mkj->mij", slopes, slopes)
        normal = normal + damping[:, None, None] * np.eye(v.shape[1]) * 1e-2
        step = -np.linalg.solve(normal, np.einsum("mki,mk->mi", slopes, misfit)[..., None])[..., 0]
        step *= np.minimum(1, 1 / np.maximum(np.abs(step).max(axis=1, keepdims=True), 1e-300))
        there = np.clip(q + step, np.log(_SMALLEST), np.log(_LARGEST))
        then = censored_means(np.exp(there), threshold) - v
        better = (then**2).sum(axis=1) < (misfit**2).sum(axis=1)
        q[better], misfit[better] = there[better], then[better]
        damping = np.where(better, damping / 4, damping * 6)
        if np.abs(step).max() < 1e-7:
            break
    return np.exp(q)
