"""The score of discrete records with each of them summed out in its turn.

Let records of one law take one of few values v, with probability f_v, and contribute t_v. Given
all others and the releases, record i has probabilities p_v ∝ f_v eta(s | S - t_i + t_v). So

    E[score of record i | all others, releases] = sum_v p_v d log f_v / d theta,

which has the same mean given the releases as the score at the value that the record has, and
hardly varies where the noise is wide: no single record matters then. It is for discrete records
what the score at fixed base variates is for others.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

from pymc_privacy.algorithms.noise import JointLaw, Noise, ReleaseLaw, jit_with, log_density


def exchange(
    counts: np.ndarray,
    contributions: np.ndarray,
    log_probabilities: np.ndarray,
    slopes: np.ndarray,
    *,
    noise: Noise,
) -> np.ndarray:
    """Return the score with each record summed out, less the score at the records as they are.

    Parameters
    ----------
    counts
        How many records have each value, shape (k,).
    contributions
        What a record of each value contributes, shape (k, d).
    log_probabilities
        Of each value, shape (k,).
    slopes
        Their derivatives by the parameters, shape (k, p).
    noise
        The releases and their laws.

    Examples
    --------
    Of one fair coin, and noise that says nothing, the score is expected to be 0:

    >>> import numpy as np
    >>> from pymc_privacy.algorithms.noise import noise
    >>> from pymc_privacy.mechanisms.laplace import laplace_log_density
    >>> flat = noise([laplace_log_density], [1.0], [(1e12, 0.0)])
    >>> half, values = np.log([0.5, 0.5]), np.array([[0.0], [1.0]])
    >>> score = np.array([[-2.0], [2.0]])
    >>> exchange(np.array([0, 1]), values, half, score, noise=flat).round(6)
    array([-2.])
    """
    expected = np.empty((len(counts), len(counts)))
    _compile_odds(noise.laws)(
        noise.offsets,
        noise.release,
        noise.parameters,
        counts.astype(np.int64),
        np.ascontiguousarray(contributions),
        log_probabilities,
        expected,
    )
    here = counts > 0
    return counts[here] @ (expected[here] @ slopes - slopes[here])


@cache
def _compile_odds(laws: tuple[ReleaseLaw | JointLaw, ...]) -> Callable[..., Any]:
    """Compile the probabilities of each value of a record, for one record of each value."""
    log_eta = log_density(laws)

    @jit_with(laws)
    def odds(offsets, release, parameters, counts, contributions, log_probabilities, found):  # type: ignore[no-untyped-def]
        size, width = contributions.shape
        total, moved = np.zeros(width), np.empty(width)
        for v in range(size):
            for j in range(width):
                total[j] += counts[v] * contributions[v, j]
        for now in range(size):
            if counts[now] == 0:
                continue
            largest = -np.inf
            for v in range(size):
                for j in range(width):
                    moved[j] = total[j] - contributions[now, j] + contributions[v, j]
                found[now, v] = log_probabilities[v] + log_eta(offsets, release, moved, parameters)
                largest = max(largest, found[now, v])
            whole = 0.0
            for v in range(size):
                found[now, v] = np.exp(found[now, v] - largest)
                whole += found[now, v]
            for v in range(size):
                found[now, v] /= whole

    return odds
