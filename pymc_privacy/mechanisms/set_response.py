r"""Releases that are sets of categories: what protocols of local privacy send.

In all of them a set S has a probability that depends on its size, and on whether the truth is
in it. The law is known by two numbers for each size s: log P(S | truth in S) and
log P(S | truth not in S), with

    sum_s binom(k - 1, s - 1) P(s, in) + binom(k - 1, s) P(s, out) = 1.

A set is an integer: bit v says whether category v is in it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from scipy import special

from pymc_privacy.accounting import Neighbours, PureDP
from pymc_privacy.arguments import (
    generator,
    integer,
    integers,
    neighbours,
    real,
    reals,
    refusal,
)
from pymc_privacy.errors import MechanismError
from pymc_privacy.mechanisms.base import Mechanism, Shape, beside
from pymc_privacy.mechanisms.engines import ceil, equal, pick, where

_MOST_CATEGORIES = 52  # a set is then a float without loss
_ROUNDING = 1e-9
_LARGEST_LOSS = 500.0  # beyond, probabilities are no floats


@dataclass(frozen=True, kw_only=True)
class SetResponse(Mechanism):
    """The release is a set of categories, which favours sets that have the truth in them.

    For ``Privatized(..., local=True)`` on records with values 0, …, k - 1. A set is released as an
    integer whose bit v says whether category v is in it; :meth:`encode` makes it from rows of
    bits. The protocols of local privacy are constructors: :meth:`symmetric_unary_encoding`,
    :meth:`optimised_unary_encoding`, :meth:`subset_selection` and :meth:`local_hashing`.

    Parameters
    ----------
    log_inside, log_outside : sequence of float
        For each size 0, …, k of a set, the log probability of one set of this size that has the
        truth in it, or that does not; ``-inf`` where there is none.
    neighbours : {"replace_one"}, default "replace_one"
        Another answer of the same person.

    Raises
    ------
    MechanismError
        By the constructor, if the two are not of one length from 3 to 53, or all sets together
        have not the probability 1.

    See Also
    --------
    TableMechanism : Any law of few releases.
    RandomizedResponse : One category is released.

    References
    ----------
    - Wang, T., Blocki, J., Li, N. and Jha, S. (2017), "Locally differentially private protocols for
      frequency estimation", USENIX Security.
    - Ye, M. and Barg, A. (2018), "Optimal schemes for discrete distribution estimation under
      locally differential privacy", IEEE Transactions on Information Theory 64(8).

    Examples
    --------
    >>> import pymc_privacy as pmp
    >>> protocol = pmp.SetResponse.optimised_unary_encoding(epsilon=1.0, categories=4)
    >>> round(protocol.epsilon, 6), protocol.encode([[1, 0, 0, 1], [0, 1, 0, 0]]).tolist()
    (1.0, [9, 2])
    """

    discrete: ClassVar[bool] = True

    log_inside: Any
    log_outside: Any
    neighbours: Neighbours | None = "replace_one"

    def __post_init__(self) -> None:
        neighbours(self.neighbours, optional=True, error=MechanismError)
        if self.neighbours == "add_remove":
            raise MechanismError(
                'neighbours must be "replace_one" or None (the number of answers is public, so '
                "that a record which is added or removed shows); got 'add_remove'."
            )
        said: Any = {"shapes": [("k + 1",)], "most": 0, "finite": False, "error": MechanismError}
        inside = reals("log_inside", self.log_inside, **said)
        outside = reals("log_outside", self.log_outside, **said)
        if not 3 <= inside.size <= _MOST_CATEGORIES + 1 or inside.shape != outside.shape:
            raise MechanismError(
                "log_inside and log_outside must both have a number for each size from 0 to k, "
                f"with k from 2 to {_MOST_CATEGORIES}; got {inside.size} and {outside.size}."
            )
        _check_law(inside, outside)
        object.__setattr__(self, "log_inside", tuple(inside.tolist()))
        object.__setattr__(self, "log_outside", tuple(outside.tolist()))

    @property
    def categories(self) -> int:
        """Return k."""
        return len(self.log_inside) - 1

    @property
    def epsilon(self) -> float:
        """Return the privacy loss of one release, perhaps infinite."""
        # The empty set and the whole have the truth on one side only.
        inside, outside = (np.array(x[1:-1]) for x in (self.log_inside, self.log_outside))
        some = np.isfinite(inside) | np.isfinite(outside)
        return float(np.abs(inside[some] - outside[some]).max(initial=0.0))

    @property
    def guarantee(self) -> PureDP | None:
        """Promise epsilon to each record, if it is finite."""
        epsilon = self.epsilon
        return PureDP(epsilon, neighbours=self.neighbours) if 0 < epsilon < math.inf else None

    def encode(self, bits: Any) -> np.ndarray:
        """Return sets as integers, from rows of k bits.

        Of local hashing, the set of a report (value, seed) has the categories whose hash under
        that seed is the value: ``encode(hashes == values[:, None])``.

        Parameters
        ----------
        bits : array_like
            Of shape (n, k), or (k,) for one record.
        """
        k = self.categories
        said: Any = {"least": 0, "most": 1, "flags": True, "error": MechanismError}
        found = integers("bits", bits, shapes=[(k,), ("n", k)], **said)
        return np.asarray(found @ (1 << np.arange(k, dtype=np.int64)))

    def log_density(self, release: Any, statistic: Any) -> Any:
        """Return the log probability of each record's set."""
        release, statistic = beside(release, statistic)
        k = self.categories
        powers = 2 ** np.arange(k, dtype=np.int64)
        # What is known of the set alone is apart from the truth: it is computed once.
        sent = (release >= 0) & (release < 2**k) & equal(ceil(release), release)
        chosen = where(sent, release, 0)
        size = ((chosen[..., None] // powers) % 2).sum(axis=-1)
        known = sent & (statistic >= 0) & (statistic < k) & equal(ceil(statistic), statistic)
        inside = (chosen // pick(powers, where(known, statistic, 0))) % 2
        law = np.concatenate([self.log_outside, self.log_inside])
        entry = pick(law, inside * (k + 1) + size)
        return where(known, entry, -math.inf)

    def simulate(self, rng: np.random.Generator, statistic: Any) -> np.ndarray:
        """Draw a set for every entry; seedable, and so not to be published."""
        rng, k = generator("rng", rng), self.categories
        said: Any = {"wanted": f"one of 0, …, {k - 1}", "error": MechanismError}
        truth = integers("Every record", statistic, least=0, most=k - 1, flags=True, **said)
        sizes = np.arange(k + 1)
        law = np.concatenate(
            [
                np.exp(self.log_outside) * special.comb(k - 1, sizes),
                np.exp(self.log_inside) * special.comb(k - 1, sizes - 1),
            ]
        )
        drawn = rng.choice(2 * (k + 1), size=truth.shape, p=law / law.sum())
        inside, size = np.divmod(drawn, k + 1)
        # The categories with the smallest numbers are taken; the truth is first, or last.
        order = rng.random((*truth.shape, k))
        np.put_along_axis(order, truth[..., None], 1.5 - 2.0 * inside[..., None], axis=-1)
        rank = order.argsort(axis=-1).argsort(axis=-1)
        return np.asarray((rank < size[..., None]) @ (1 << np.arange(k, dtype=np.int64)))

    def release_shape(self, statistic: Shape) -> Shape:
        """Refuse totals: each record sends a set."""
        raise MechanismError(
            "SetResponse is applied to each record, not to their total; got a central release. "
            "Say local=True."
        )

    def local_shape(self, contributions: Shape) -> Shape:
        """Return the shape of the sets: one number each."""
        return contributions

    def impossible(self, release: np.ndarray, statistic: Shape) -> str | None:
        """Say so if some release is not a set that can be sent."""
        k = self.categories
        if not np.all((release >= 0) & (release < 2.0**k) & (release == np.rint(release))):
            return f"be sets as integers from 0 to 2^{k} - 1; encode() makes them from rows of bits"
        bits = (release.astype(np.int64)[..., None] >> np.arange(k)) & 1
        sendable = np.isfinite(self.log_inside) | np.isfinite(self.log_outside)
        if not sendable[bits.sum(axis=-1)].all():
            return "be sets of a size that the protocol sends"
        return None

    @classmethod
    def symmetric_unary_encoding(cls, *, epsilon: float, categories: int) -> SetResponse:
        """Turn over each of k bits, of which the truth's is 1, with the same probability.

        Parameters
        ----------
        epsilon : float
            Of one record: bits are kept with the odds e^(epsilon / 2).
        categories : int
            k.

        Examples
        --------
        >>> import pymc_privacy as pmp
        >>> pmp.SetResponse.symmetric_unary_encoding(epsilon=2.0, categories=3).epsilon
        2.0
        """
        epsilon = _epsilon(epsilon)
        keep = special.expit(epsilon / 2)
        return cls._unary(keep, special.expit(-epsilon / 2), categories)

    @classmethod
    def optimised_unary_encoding(cls, *, epsilon: float, categories: int) -> SetResponse:
        """Make the truth's bit 1 with probability 1/2, each other one with 1 / (e^epsilon + 1).

        Parameters
        ----------
        epsilon : float
            Of one record.
        categories : int
            k.

        Examples
        --------
        >>> import pymc_privacy as pmp
        >>> pmp.SetResponse.optimised_unary_encoding(epsilon=2.0, categories=3).categories
        3
        """
        epsilon = _epsilon(epsilon)
        return cls._unary(0.5, special.expit(-epsilon), categories)

    @classmethod
    def _unary(cls, p: float, q: float, categories: Any) -> SetResponse:
        """Each bit is 1 with probability p for the truth, q for others."""
        k = _categories(categories)
        s = np.arange(k + 1)
        inside = math.log(p) + (s - 1) * math.log(q) + (k - s) * math.log1p(-q)
        outside = math.log1p(-p) + s * math.log(q) + (k - s - 1) * math.log1p(-q)
        inside[0], outside[k] = -math.inf, -math.inf
        return cls(log_inside=inside, log_outside=outside)

    @classmethod
    def subset_selection(
        cls, *, epsilon: float, categories: int, size: int | None = None
    ) -> SetResponse:
        """Send a set of fixed size, e^epsilon times as likely if the truth is in it.

        Parameters
        ----------
        epsilon : float
            Of one record.
        categories : int
            k.
        size : int, optional
            k / (e^epsilon + 1) rounded, but at least 1, by default.

        Examples
        --------
        >>> import pymc_privacy as pmp
        >>> protocol = pmp.SetResponse.subset_selection(epsilon=1.0, categories=8)
        >>> round(protocol.epsilon, 6)
        1.0
        """
        epsilon, k = _epsilon(epsilon), _categories(categories)
        best = max(1, round(k / (math.exp(epsilon) + 1)))
        said: Any = {"least": 1, "most": k - 1, "error": MechanismError}
        s = best if size is None else integer("size", size, **said)
        # s e^epsilon + k - s, in logs.
        whole = np.logaddexp(math.log(s) + epsilon, math.log(k - s))
        inside, outside = np.full(k + 1, -math.inf), np.full(k + 1, -math.inf)
        inside[s] = math.log(s) + epsilon - whole - math.log(math.comb(k - 1, s - 1))
        outside[s] = math.log(k - s) - whole - math.log(math.comb(k - 1, s))
        return cls(log_inside=inside, log_outside=outside)

    @classmethod
    def local_hashing(
        cls, *, epsilon: float, categories: int, hashes: int | None = None
    ) -> SetResponse:
        """Send the hash of the truth by randomized response, with a hash function of one's own.

        The report (value, seed) is known as the set of all categories that this seed hashes to the
        value. That hashes are even and independent is assumed of the hash function.

        Parameters
        ----------
        epsilon : float
            Of one record.
        categories : int
            k.
        hashes : int, optional
            The number g of different hashes; e^epsilon + 1 rounded, but at least 2, by default.

        Examples
        --------
        >>> import numpy as np
        >>> import pymc_privacy as pmp
        >>> protocol = pmp.SetResponse.local_hashing(epsilon=1.0, categories=3)
        >>> hashes, values = np.array([[0, 1, 1], [3, 0, 2]]), np.array([1, 2])
        >>> protocol.encode(hashes == values[:, None]).tolist()
        [6, 4]
        """
        epsilon, k = _epsilon(epsilon), _categories(categories)
        best = max(2, round(math.exp(min(epsilon, 20.0)) + 1))
        said: Any = {"least": 2, "most": 2**40, "error": MechanismError}
        g = best if hashes is None else integer("hashes", hashes, **said)
        s = np.arange(k + 1)
        of_set = math.log(g) - s * math.log(g) + (k - s) * math.log1p(-1 / g)
        whole = np.logaddexp(epsilon, math.log(g - 1))
        inside, outside = of_set + epsilon - whole, of_set - whole
        inside[0], outside[k] = -math.inf, -math.inf
        return cls(log_inside=inside, log_outside=outside)


def _epsilon(epsilon: Any) -> float:
    said: Any = {"meaning": "the privacy loss", "above": 0, "most": _LARGEST_LOSS}
    return real("epsilon", epsilon, error=MechanismError, **said)


def _categories(categories: Any) -> int:
    said: Any = {"meaning": "k, the number of possible answers", "error": MechanismError}
    return integer("categories", categories, least=2, most=_MOST_CATEGORIES, **said)


def _check_law(inside: np.ndarray, outside: np.ndarray) -> None:
    k = inside.size - 1
    s = np.arange(k + 1)
    total = np.exp(inside) @ special.comb(k - 1, s - 1) + np.exp(outside) @ special.comb(k - 1, s)
    if not abs(total - 1) <= _ROUNDING:
        wanted = "such that all sets together have the probability 1 for each truth"
        raise refusal("log_inside and log_outside", wanted, float(total), error=MechanismError)
    if np.array_equal(inside[1:-1], outside[1:-1]):
        raise MechanismError(
            "log_inside and log_outside must differ for some size from 1 to k - 1, because a set "
            "tells nothing otherwise; got the same."
        )
