"""Repro samples: confidence sets that hold at each parameter, from a release and a simulator.

A candidate value of the parameters stays in the set if the release is not extreme among releases
simulated at it (Xie and Wang 2022; Awan and Wang 2025 for privacy). At the true value, the release
and R simulated ones are exchangeable, and so are their depths, if depth treats all R + 1 alike. So
the p-value (1 + the number at least as far out) / (R + 1) is at most alpha with probability at most
alpha, whatever R, the size of the records and the noise are: no limit theorem is used.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from pymc_privacy.arguments import function, generator, integer, reals, refusal
from pymc_privacy.errors import ReleaseError
from pymc_privacy.sanitize.interval import checked_prob

Simulator = Callable[[np.random.Generator, Any, int], Any]
"""``simulate(rng, parameter, draws)`` returns releases, shape (draws,) or (draws, d)."""

_MOST_DRAWS = 10**6


@dataclass(frozen=True)
class ReproSet:
    """The candidates that a release does not refute.

    Parameters
    ----------
    candidates : ndarray
        Shape (m,) or (m, k).
    p_values : ndarray
        Of each candidate.
    prob : float
        The probability that the set holds the true parameter, if it is a candidate.

    See Also
    --------
    repro_set : Makes one.
    """

    candidates: np.ndarray
    p_values: np.ndarray
    prob: float

    @property
    def accepted(self) -> np.ndarray:
        """Return which candidates are in the set."""
        return self.p_values > 1 - self.prob

    def interval(self, column: int = 0) -> tuple[float, float]:
        """Return an interval of one parameter that holds all candidates of the set.

        It reaches out to the next values that have been tried, and there is nothing beyond the
        first and the last. Empty sets give (nan, nan).
        """
        values = self.candidates if self.candidates.ndim == 1 else self.candidates[:, column]
        inside = values[self.accepted]
        if not inside.size:
            return float("nan"), float("nan")
        low, high = inside.min(), inside.max()
        below, above = values[values < low], values[values > high]
        return (
            float(below.max() if below.size else low),
            float(above.min() if above.size else high),
        )


def repro_set(
    observed: Any,
    simulate: Simulator,
    candidates: Any,
    *,
    prob: float = 0.95,
    draws: int = 999,
    rng: np.random.Generator | None = None,
) -> ReproSet:
    """Return the candidates at which a release is not extreme among simulated ones.

    If the true parameters are a candidate, the set holds them with probability prob or more,
    *at each value of them*, where credible intervals cover on average over the prior, and
    bootstrap intervals for many records. It is post-processing, and costs no privacy. Releases are
    compared by their distance from the middle of all of them, the observed one included, in units
    of their covariance.

    Not checked: that ``simulate`` is the law of the release. Nothing is said of values between
    candidates; let them lie closer than the interval's ends need to be told.

    Parameters
    ----------
    observed : array_like
        The release, one number or a vector.
    simulate : callable
        ``simulate(rng, parameter, draws)`` returns that many releases, noise included. A candidate
        is given as a float, or as a vector of k parameters.
    candidates : array_like
        Parameters to try, shape (m,) or (m, k).
    prob : float
    draws : int, default 999
        R, at each candidate; the same generator state is used at all of them.
    rng : np.random.Generator, optional

    Returns
    -------
    ReproSet

    Raises
    ------
    ReleaseError
        If an argument is none such, or the simulator returns another shape.
    GuaranteeError
        If prob is not in (0, 1).

    See Also
    --------
    repro_interval : The same for a `Proportion` or a `Rate`, with the release.
    bootstrap_interval : Faster, and approximate.

    References
    ----------
    - Xie, M. and Wang, P. (2022), "Repro samples method for finite- and large-sample inferences",
      arXiv:2206.06421.
    - Awan, J. and Wang, Z. (2025), "Simulation-based, finite-sample inference for privatized
      data", Journal of the American Statistical Association 120.

    Examples
    --------
    A mean of 50 records in [0, 1], of unknown spread, from noisy sums of x and x²:

    >>> import numpy as np
    >>> import pymc_privacy as pmp
    >>> noise = pmp.Laplace(epsilon=1.0, sensitivity=2.0)
    >>> def simulate(rng, parameter, draws):
    ...     x = np.clip(rng.normal(*parameter, size=(draws, 50)), 0, 1)
    ...     return noise.simulate(rng, np.stack([x.sum(axis=1), (x**2).sum(axis=1)], axis=1))
    >>> grid = [(mean, sd) for mean in np.linspace(0.1, 0.9, 17) for sd in (0.1, 0.2, 0.3)]
    >>> found = pmp.repro_set(
    ...     [24.0, 14.0], simulate, grid, draws=199, rng=np.random.default_rng(1)
    ... )
    >>> low, high = found.interval(0)
    >>> low < 0.48 < high
    True
    """
    said: Any = {"error": ReleaseError}
    prob = checked_prob(prob)
    function("simulate", simulate, **said)
    draws = integer("draws", draws, least=1, most=_MOST_DRAWS, **said)
    if (draws + 1) * (1 - prob) < 1 - 1e-9:
        meaning = "or no candidate can be refuted: (draws + 1) (1 - prob) >= 1"
        raise refusal("draws", "larger for this prob", draws, meaning=meaning, **said)
    rng = np.random.default_rng() if rng is None else generator("rng", rng, **said)
    release = reals("observed", observed, shapes=[(), ("d",)], **said).reshape(-1)
    tried = reals("candidates", candidates, shapes=[("m",), ("m", "k")], **said)
    if not tried.size or not release.size:
        raise refusal("candidates", "one value or more, for a release", candidates, **said)
    seed = int(rng.integers(2**63))
    p_values = np.array(
        [_p_value(release, simulate, candidate, draws, seed) for candidate in tried]
    )
    return ReproSet(tried, p_values, prob)


def _p_value(
    release: np.ndarray, simulate: Simulator, candidate: Any, draws: int, seed: int
) -> float:
    parameter = float(candidate) if np.ndim(candidate) == 0 else candidate.copy()
    drawn = reals(
        "Simulated releases",
        simulate(np.random.default_rng(seed), parameter, draws),
        shapes=[(draws,), (draws, release.size)],
        error=ReleaseError,
    )
    if drawn.size != draws * release.size:
        shape = (draws, release.size)
        raise refusal("Simulated releases", f"of shape {shape}", drawn, error=ReleaseError)
    pool = np.vstack([release, drawn.reshape(draws, -1)])
    centred = pool - pool.mean(axis=0)
    scale = np.abs(centred).max(axis=0)
    centred = centred / np.where(scale > 0, scale, 1.0)
    covariance = centred.T @ centred / len(pool)
    # A coordinate that never varies counts for nothing.
    depth = np.einsum("ij,jk,ik->i", centred, np.linalg.pinv(covariance), centred)
    # What differs by rounding alone is the same release.
    return float((depth >= depth[0] * (1 - 1e-9)).mean())
