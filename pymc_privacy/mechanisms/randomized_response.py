"""Randomized response: each record tells the truth, or one of the other answers, by chance."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numba.extending import register_jitable

from pymc_privacy.accounting import Neighbours, PureDP
from pymc_privacy.arguments import generator, integer, integers, real, refusal
from pymc_privacy.errors import MechanismError
from pymc_privacy.mechanisms.base import CoordinateMechanism, Shape, beside, settle
from pymc_privacy.mechanisms.engines import equal, where

_MOST = 2**31  # answers: all differ as floats, and as integers of any machine


@register_jitable
def randomized_response_log_density(
    release: Any, statistic: Any, log_keep: Any, log_other: Any, categories: Any
) -> Any:
    """Return log p if the release is the truth, log (1 - p) / (k - 1) if it is another answer.

    What is not one of the k answers has no law, and density zero.
    """
    known = (statistic >= 0) & (statistic < categories) & (release >= 0) & (release < categories)
    return where(known, where(equal(release, statistic), log_keep, log_other), -math.inf)


@dataclass(frozen=True, kw_only=True)
class RandomizedResponse(CoordinateMechanism):
    """The release is the true answer with probability p, else one of the k - 1 others, evenly.

    For ``Privatized(..., local=True)`` on records with values 0, …, k - 1: Bernoulli ones, or
    categorical ones with ``categories=k`` (Warner, 1965; Kairouz, Bonawitz and Ramage, 2016).

    The largest ratio of the probabilities of one release under two truths is p (k - 1) / (1 - p),
    or its inverse. So the release of each record is epsilon-DP with
    epsilon = ``|log(p (k - 1) / (1 - p))|``, whatever the others release; and p = e^epsilon /
    (e^epsilon + k - 1).

    Parameters
    ----------
    epsilon : float, optional
        The privacy loss of each record.
    keep_probability : float, optional
        p, the probability that the release is the truth. Where a coin decides whether to answer
        truly or at random, a random answer that happens to be true counts.
    categories : int, default 2
        k, the number of possible answers.
    neighbours : {"replace_one"}, default "replace_one"
        Another answer of the same person. The number of answers is public.

    Raises
    ------
    MechanismError
        By the constructor, if not one of epsilon and keep_probability is given, if a release would
        tell all or nothing, or if neighbours are "add_remove"; and by `Privatized`, without
        ``local=True``.

    See Also
    --------
    Privatized : Takes it with ``local=True``.
    ExponentialMechanism : One choice by the total of all records.

    References
    ----------
    - Warner, S. L. (1965), "Randomized response: a survey technique for eliminating evasive answer
      bias", Journal of the American Statistical Association 60(309), 63-69.
    - Kairouz, P., Bonawitz, K. and Ramage, D. (2016), "Discrete distribution estimation under local
      privacy", International Conference on Machine Learning (ICML).

    Examples
    --------
    >>> from pymc_privacy import RandomizedResponse
    >>> round(RandomizedResponse(keep_probability=0.75).guarantee.epsilon, 4)
    1.0986
    >>> round(RandomizedResponse(epsilon=1.0, categories=4).keep_probability, 4)
    0.4754
    """

    discrete: ClassVar[bool] = True
    formula = staticmethod(randomized_response_log_density)

    epsilon: float | None = None
    keep_probability: float = None  # type: ignore[assignment]
    categories: int = 2
    neighbours: Neighbours | None = "replace_one"

    def __post_init__(self) -> None:
        said: Any = {"meaning": "the number of possible answers", "error": MechanismError}
        k = integer("categories", self.categories, least=2, **said)
        if k > _MOST:
            raise refusal("categories", f"an integer from 2 to {_MOST}", k, **said)
        object.__setattr__(self, "categories", k)
        settle(self, "epsilon")
        if self.neighbours == "add_remove":
            raise MechanismError(
                'neighbours must be "replace_one" or None (the number of answers is public, so '
                "that a record which is added or removed shows); got 'add_remove'."
            )
        if (self.epsilon is None) == (self.keep_probability is None):
            raise MechanismError(
                "Randomized response needs epsilon= or keep_probability=, one of the two, because "
                f"each follows from the other; got {'neither' if self.epsilon is None else 'both'}."
            )
        if self.epsilon is not None:
            odds = math.exp(-self.epsilon)
            object.__setattr__(self, "keep_probability", 1 / (1 + (k - 1) * odds))
        keep = real("keep_probability", self.keep_probability, above=0, error=MechanismError)
        if keep >= 1 or math.isclose(keep, 1 / k, rel_tol=1e-12):
            raise MechanismError(
                "keep_probability must be a number in (0, 1) other than 1 / categories (then a "
                f"release would tell everything, or nothing); got {self.keep_probability!r}."
            )
        object.__setattr__(self, "keep_probability", keep)

    @property
    def parameters(self) -> tuple[float, float, float]:
        """Return log p, log (1 - p) / (k - 1), and k."""
        other = math.log1p(-self.keep_probability) - math.log(self.categories - 1)
        return math.log(self.keep_probability), other, float(self.categories)

    @property
    def guarantee(self) -> PureDP:
        """Promise epsilon to each record."""
        keep, other, _ = self.parameters
        epsilon = abs(keep - other) if self.epsilon is None else self.epsilon
        return PureDP(epsilon, neighbours=self.neighbours)

    def log_density(self, release: Any, statistic: Any) -> Any:
        """Return the log probability of each record's release."""
        release, statistic = beside(release, statistic)
        return self.formula(release, statistic, *self.parameters)

    def simulate(self, rng: np.random.Generator, statistic: Any) -> np.ndarray:
        """Draw a release for every entry; seedable, and so not to be published."""
        rng = generator("rng", rng)
        last = self.categories - 1
        said: Any = {"wanted": f"one of 0, …, {last}", "error": MechanismError}
        truth = integers("Every record", statistic, least=0, most=last, flags=True, **said)
        lies = rng.random(truth.shape) >= self.keep_probability
        # A shift by 1, …, k - 1 reaches each of the other answers once.
        shift = rng.integers(1, self.categories, truth.shape)
        return np.asarray(np.where(lies, (truth + shift) % self.categories, truth))

    def release_shape(self, statistic: Shape) -> Shape:
        """Return (), for a single answer; a total is no answer."""
        raise MechanismError(
            "RandomizedResponse is applied to each record, not to their total; "
            "got a central release. Say local=True."
        )

    def local_shape(self, contributions: Shape) -> Shape:
        """Return the shape of the answers."""
        return contributions

    def impossible(self, release: np.ndarray, statistic: Shape) -> str | None:
        """Say so if some release is not one of the categories."""
        if np.all(np.isin(release, np.arange(self.categories))):
            return None
        return f"be integers from 0 to {self.categories - 1}, one of the categories"
