"""The exponential mechanism: one of finitely many candidates is released, good ones likelier."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from pymc_privacy.accounting import Neighbours, PureDP, ZeroConcentratedDP
from pymc_privacy.arguments import generator, reals
from pymc_privacy.errors import MechanismError
from pymc_privacy.mechanisms.base import Mechanism, Shape, beside
from pymc_privacy.mechanisms.engines import log_sum_exp, numeric, pick, where
from pymc_privacy.mechanisms.exponential_weights import (
    concentrated_guarantee,
    pure_guarantee,
    settle_scale,
)


@dataclass(frozen=True, kw_only=True)
class ExponentialMechanism(Mechanism):
    """The release is the index j of a candidate, with probability ∝ exp(u_j / b).

    The utility u_j of candidate j is a sum over records: contributions of shape (n, K) have each
    record's utilities of all K candidates, and the release is a single number, an index from 0
    to K - 1. Probabilities are normalised exactly over the candidates, since their normaliser
    depends on the records (McSherry and Talwar, 2007).

    If neighbouring databases differ by at most D in every utility, exp(u_j / b) changes by a factor
    of at most exp(D / b), and so does the normaliser; hence epsilon = 2 D / b.

    Parameters
    ----------
    scale : float, optional
        b, the utility that makes a candidate e times likelier.
    epsilon : float, optional
        The privacy loss; then b = 2 sensitivity / epsilon.
    sensitivity : float, optional
        D, the largest change of any utility between neighbours; taken on trust.
    neighbours : {"replace_one", "add_remove"}, optional
        What the sensitivity was computed for.

    Raises
    ------
    MechanismError
        By the constructor, if scale and epsilon are both left out or disagree, if epsilon comes
        without sensitivity, or if scale is not one number; and by `Privatized`, if contributions
        are not of shape (n, K).

    See Also
    --------
    ExponentialInterval : A choice from an interval.
    KNormGradient : A choice from an interval, by a gradient.
    RandomizedResponse : A choice that each record makes by itself.
    private_quantile : Publish a quantile by this mechanism.

    References
    ----------
    - McSherry, F. and Talwar, K. (2007), "Mechanism design via differential privacy", IEEE
      Symposium on Foundations of Computer Science (FOCS).

    Examples
    --------
    >>> import numpy as np
    >>> from pymc_privacy import ExponentialMechanism
    >>> mechanism = ExponentialMechanism(epsilon=1.0, sensitivity=1.0)
    >>> np.exp(mechanism.log_density([0, 1, 2], [10.0, 12.0, 9.0])).round(3).tolist()
    [0.231, 0.629, 0.14]
    """

    discrete: ClassVar[bool] = False

    scale: float = None  # type: ignore[assignment]
    epsilon: float | None = None
    sensitivity: float | None = None
    neighbours: Neighbours | None = None

    def __post_init__(self) -> None:
        settle_scale(self, "candidates")

    @property
    def guarantee(self) -> PureDP | None:
        """Promise epsilon = 2 sensitivity / scale."""
        return pure_guarantee(self)

    @property
    def concentrated_guarantee(self) -> ZeroConcentratedDP | None:
        """Promise epsilon² / 8 as zCDP, since the privacy loss has a range of epsilon.

        That is less than what epsilon alone implies, to compose many choices by.
        """
        return concentrated_guarantee(self)

    def log_density(self, release: Any, statistic: Any) -> Any:
        """Return u_j / b - log sum_k exp(u_k / b) for the released index j.

        Parameters
        ----------
        release : array_like or TensorVariable
            One index, or several releases of the same utilities.
        statistic : array_like or TensorVariable
            The total utility of each candidate, on the last axis.
        """
        release, utility = numeric(release), _utilities(numeric(statistic)) / self.scale
        if isinstance(release, np.ndarray) and isinstance(utility, np.ndarray) and utility.ndim > 1:
            release, _ = np.broadcast_arrays(*beside(release, utility[..., 0]))
        inside = (release >= 0) & (release < utility.shape[-1])
        chosen = pick(utility, where(inside, release, 0))
        return where(inside, chosen - log_sum_exp(utility), -np.inf)

    def simulate(self, rng: np.random.Generator, statistic: Any) -> np.ndarray:
        """Draw an index; seedable, in floating point, and so not to be published."""
        rng = generator("rng", rng)
        said: Any = {"meaning": "the total utility of each candidate", "error": MechanismError}
        utility = _utilities(reals("statistic", statistic, **said)) / self.scale
        # The largest of u_k + Gumbel noise is candidate k with probability ∝ exp(u_k).
        return np.asarray(np.argmax(utility + rng.gumbel(size=utility.shape), axis=-1))

    @property
    def release_dtype(self) -> str:
        """Return the type of an index."""
        return "int64"

    def release_shape(self, statistic: Shape) -> Shape:
        """Return (), for one index out of K utilities."""
        if len(statistic) != 1:
            raise MechanismError(
                "ExponentialMechanism needs contributions of shape (n, K), the utility of each of "
                f"K candidates for each record; got a statistic of shape {statistic}."
            )
        return ()

    def local_shape(self, contributions: Shape) -> Shape:
        """Refuse: a local choice among categories is randomized response."""
        raise MechanismError(
            "ExponentialMechanism chooses once, by the total utility of all records; got "
            "local=True. Where every record chooses by itself, see RandomizedResponse."
        )

    def impossible(self, release: np.ndarray, statistic: Shape) -> str | None:
        """Say so if the release is not the index of a candidate."""
        [width] = statistic
        inside = release == np.rint(release) and 0 <= release < (width or np.inf)
        last = "K - 1" if width is None else width - 1
        return None if inside else f"be an integer from 0 to {last}, a candidate's index"


def _utilities(statistic: Any) -> Any:
    """Return utilities that are there: one candidate or more, on the last axis."""
    if statistic.ndim == 0 or (isinstance(statistic, np.ndarray) and statistic.shape[-1] == 0):
        raise MechanismError(
            "statistic must have the utility of one candidate or more on its last axis; got shape "
            f"{statistic.shape if isinstance(statistic, np.ndarray) else ()}."
        )
    return statistic
