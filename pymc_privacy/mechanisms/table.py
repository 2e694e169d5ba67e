"""A mechanism that is given as a table of probabilities: each release, for each truth."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, ClassVar

import numpy as np

from pymc_privacy.accounting import Neighbours, PureDP
from pymc_privacy.arguments import (
    flag,
    generator,
    integer,
    integers,
    neighbours,
    probability,
    reals,
    refusal,
)
from pymc_privacy.errors import ArgumentError, MechanismError
from pymc_privacy.mechanisms.base import Mechanism, Shape, beside
from pymc_privacy.mechanisms.engines import ceil, equal, pick, where

# Rounded probabilities of a file may add up to a little more or less than 1.
_ROUNDING = 1e-6
_MOST_ENTRIES = 10**7


@dataclass(frozen=True, kw_only=True, repr=False)
class TableMechanism(Mechanism):
    """The release r of a truth t has the probability in row t and column r of a table.

    For ``Privatized(..., local=True)`` on records with values 0, …, k - 1, such as answers of a
    survey; for :class:`NoisyCount` of counts that are perturbed by a table; and for a single count.

    Parameters
    ----------
    probabilities : array_like
        P(release | truth), of shape (truths, releases): each row adds up to 1.
    neighbours : {"replace_one", "add_remove"}, default "replace_one"
        Which truths must not be told apart: any two, as of a person with another answer; or with
        "add_remove" those next to each other, as counts that differ by one person.
    continues : bool, default False
        A truth beyond the last row has its noise: P(r | t) = P(r - t + T | T) with T the last row.
        Tables of cell keys are such.

    Raises
    ------
    MechanismError
        By the constructor, if there are less than two rows, a row is no law, or all rows are the
        same, so that a release tells nothing.

    See Also
    --------
    read_ptable : A table of cell keys from a file.
    SetResponse : Releases that are sets of categories, which would be too many for a table.
    RandomizedResponse : The truth, or one of the others evenly.
    NoisyCount : Counts that were released through a table.

    Notes
    -----
    ``epsilon`` is the largest log ratio of the probabilities of one release under two truths; it
    is infinite where some release rules out a truth, and then nothing is promised. What the
    releases say of the shares of all truths is in the ``rank`` of the table, which is the number of
    truths if the shares are identified, and in its ``condition_number``: by how much noise can be
    amplified when shares of releases are turned into shares of truths.

    A count beyond the last row, without ``continues``, has no release: its density is zero.

    References
    ----------
    - Warner, S. L. (1965), "Randomized response: a survey technique for eliminating evasive answer
      bias", Journal of the American Statistical Association 60(309), 63-69.
    - Heck, D. W. and Moshagen, M. (2018), "RRreg: an R package for correlation and regression
      analyses of randomized response data", Journal of Statistical Software 85(2).

    Examples
    --------
    Three answers, of which the last is embarrassing:

    >>> import pymc_privacy as pmp
    >>> table = pmp.TableMechanism(
    ...     probabilities=[[0.8, 0.1, 0.1], [0.1, 0.8, 0.1], [0.2, 0.2, 0.6]]
    ... )
    >>> round(table.epsilon, 4), table.rank, round(table.condition_number, 4)
    (2.0794, 3, 2.0529)
    """

    discrete: ClassVar[bool] = True

    probabilities: Any
    neighbours: Neighbours | None = "replace_one"
    continues: bool = False

    def __post_init__(self) -> None:
        neighbours(self.neighbours, optional=True, error=MechanismError)
        object.__setattr__(self, "continues", flag("continues", self.continues))
        table = _checked(self.probabilities)
        object.__setattr__(self, "probabilities", tuple(map(tuple, table.tolist())))

    @property
    def table(self) -> np.ndarray:
        """Return the probabilities as an array, truths in rows."""
        return np.array(self.probabilities)

    @property
    def categories(self) -> int | None:
        """Return the number of truths; None if any number continues the table."""
        return None if self.continues else len(self.probabilities)

    @property
    def epsilon(self) -> float:
        """Return the privacy loss of one release, perhaps infinite."""
        if self.continues:
            # Noise of finite reach ends elsewhere for another count.
            return math.inf
        with np.errstate(divide="ignore", invalid="ignore"):
            logs = np.log(self.table[:, self.table.any(axis=0)])
            if self.neighbours == "add_remove":
                steps = np.abs(np.diff(logs, axis=0))
                # No release of either of two neighbours is no difference between them.
                steps[np.isneginf(logs[1:]) & np.isneginf(logs[:-1])] = 0.0
                return float(steps.max())
            return float((logs.max(axis=0) - logs.min(axis=0)).max())

    @property
    def rank(self) -> int:
        """Return the number of truths whose shares the releases identify."""
        return int(np.linalg.matrix_rank(self.table))

    @property
    def condition_number(self) -> float:
        """Return the largest over the smallest singular value; infinite for too small a rank."""
        if self.rank < len(self.probabilities):
            return math.inf
        values = np.linalg.svd(self.table, compute_uv=False)
        return float(values[0] / values[-1])

    def __repr__(self) -> str:
        digest = sha256(self.table.tobytes()).hexdigest()[:16]
        rows, columns = self.table.shape
        return (
            f"TableMechanism({rows} truths x {columns} releases, epsilon={self.epsilon:.4g}, "
            f"rank={self.rank}, condition_number={self.condition_number:.4g}, "
            f"neighbours={self.neighbours!r}, continues={self.continues}, {digest})"
        )

    @property
    def guarantee(self) -> PureDP | None:
        """Promise epsilon to each release, if it is finite."""
        epsilon = self.epsilon
        return PureDP(epsilon, neighbours=self.neighbours) if 0 < epsilon < math.inf else None

    def log_density(self, release: Any, statistic: Any) -> Any:
        """Return the log probability of each release, minus infinity for what is not in the table.

        Parameters
        ----------
        release, statistic : array_like or TensorVariable
            Integers that broadcast against each other.
        """
        release, statistic = beside(release, statistic)
        table = self.table
        rows, columns = table.shape
        whole = equal(ceil(release), release) & equal(ceil(statistic), statistic)
        if self.continues:
            beyond = where(statistic >= rows, statistic - (rows - 1), 0)
            release, statistic = release - beyond, statistic - beyond
        inside = (statistic >= 0) & (statistic < rows) & (release >= 0) & (release < columns)
        known = inside & whole
        with np.errstate(divide="ignore"):
            logs = np.log(table.ravel())
        row, column = where(known, statistic, 0), where(known, release, 0)
        entry = pick(logs, row * columns + column)
        return where(known, entry, -math.inf)

    def simulate(self, rng: np.random.Generator, statistic: Any) -> np.ndarray:
        """Draw a release for every entry; seedable, and so not to be published."""
        rng = generator("rng", rng)
        last = len(self.probabilities) - 1
        most = None if self.continues else last
        wanted = "an integer >= 0" if self.continues else f"one of 0, …, {last}, the table's rows"
        said: Any = {"wanted": wanted, "error": MechanismError}
        truth = integers("Every truth", statistic, least=0, most=most, flags=True, **said)
        row = np.minimum(truth, last)
        ends = np.cumsum(self.table, axis=1)
        uniform = rng.random(truth.shape) * ends[row, -1]
        # The first end that is beyond the number; a column of no probability is none.
        drawn = (uniform[..., None] >= ends[row]).sum(axis=-1)
        return np.asarray(drawn + truth - row)

    def impossible(self, release: np.ndarray, statistic: Shape) -> str | None:
        """Say so if some release is not a column, or one that no truth gives."""
        columns = np.shape(self.probabilities)[1]
        if not np.all((release >= 0) & (release == np.rint(release)) & np.isfinite(release)):
            return "be integers >= 0, columns of the table"
        if self.continues:
            return None
        if np.any(release >= columns):
            return f"be integers from 0 to {columns - 1}, columns of the table"
        if not self.table.any(axis=0)[release.astype(np.int64)].all():
            return "be columns of the table that some truth gives a probability"
        return None

    @classmethod
    def forced_response(
        cls, *, forced: Sequence[float], neighbours: Neighbours | None = "replace_one"
    ) -> TableMechanism:
        """Tell some by chance which answer to give; all others tell the truth.

        Parameters
        ----------
        forced : sequence of float
            The probability to be told each of the answers 0, …, k - 1; together less than 1.
        neighbours
            As for the class.

        Examples
        --------
        Two dice: a sum of 2, 3 or 4 means "yes", 11 or 12 means "no".

        >>> import pymc_privacy as pmp
        >>> dice = pmp.TableMechanism.forced_response(forced=[3 / 36, 6 / 36])
        >>> dice.table.round(4).tolist()
        [[0.8333, 0.1667], [0.0833, 0.9167]]
        """
        told = reals("forced", forced, shapes=[("k",)], least=0, error=MechanismError)
        if told.size < 2 or told.sum() >= 1:
            wanted = "two probabilities or more that add up to less than 1"
            raise refusal("forced", wanted, forced, error=MechanismError)
        truthful = (1 - told.sum()) * np.eye(told.size)
        return cls(probabilities=truthful + told, neighbours=neighbours)

    @classmethod
    def unrelated_question(
        cls,
        *,
        p: float,
        prevalence: float | Sequence[float],
        neighbours: Neighbours | None = "replace_one",
    ) -> TableMechanism:
        """Ask the question with probability p, and else one about something harmless.

        Parameters
        ----------
        p : float
            The probability that the sensitive question is asked.
        prevalence : float or sequence of float
            The known share of "yes", or of each answer, to the harmless question.
        neighbours
            As for the class.

        Examples
        --------
        >>> import pymc_privacy as pmp
        >>> design = pmp.TableMechanism.unrelated_question(p=0.7, prevalence=0.25)
        >>> design.table.round(3).tolist()
        [[0.925, 0.075], [0.225, 0.775]]
        """
        p = _share("p", p)
        said: Any = {"least": 0, "most": 1, "error": MechanismError}
        shares = reals("prevalence", prevalence, shapes=[(), ("k",)], **said)
        law = np.array([1 - shares, shares]) if shares.ndim == 0 else shares
        if law.size < 2 or abs(law.sum() - 1) > _ROUNDING:
            wanted = "a number in [0, 1], or the shares of all answers, which add up to 1"
            raise refusal("prevalence", wanted, prevalence, error=MechanismError)
        return cls(probabilities=p * np.eye(law.size) + (1 - p) * law, neighbours=neighbours)

    @classmethod
    def crosswise(
        cls, *, p: float, neighbours: Neighbours | None = "replace_one"
    ) -> TableMechanism:
        """Release 1 if a sensitive and a harmless question have the same answer.

        Parameters
        ----------
        p : float
            The known share of "yes" to the harmless question, not 1/2.
        neighbours
            As for the class.

        Examples
        --------
        >>> import pymc_privacy as pmp
        >>> pmp.TableMechanism.crosswise(p=0.25).probabilities
        ((0.25, 0.75), (0.75, 0.25))
        """
        p = _share("p", p)
        return cls(probabilities=[[p, 1 - p], [1 - p, p]], neighbours=neighbours)

    @classmethod
    def triangular(
        cls, *, p: float, neighbours: Neighbours | None = "replace_one"
    ) -> TableMechanism:
        """Release 1 if the sensitive question, or a harmless one, or both are answered "yes".

        A release of 0 rules out the sensitive "yes", so that no epsilon bounds the loss.

        Parameters
        ----------
        p : float
            The known share of "yes" to the harmless question.
        neighbours
            As for the class.

        Examples
        --------
        >>> import pymc_privacy as pmp
        >>> pmp.TableMechanism.triangular(p=0.25).probabilities
        ((0.75, 0.25), (0.0, 1.0))
        """
        p = _share("p", p)
        return cls(probabilities=[[1 - p, p], [0, 1]], neighbours=neighbours)

    @classmethod
    def mangat(cls, *, p: float, neighbours: Neighbours | None = "replace_one") -> TableMechanism:
        """Let all with a "yes" say so; others say "no" with probability p, and else "yes".

        Parameters
        ----------
        p : float
            The probability of a true "no".
        neighbours
            As for the class.

        Examples
        --------
        >>> import pymc_privacy as pmp
        >>> pmp.TableMechanism.mangat(p=0.75).probabilities
        ((0.75, 0.25), (0.0, 1.0))
        """
        p = _share("p", p)
        return cls(probabilities=[[p, 1 - p], [0, 1]], neighbours=neighbours)

    @classmethod
    def kuk(
        cls,
        *,
        p_yes: float,
        p_no: float,
        cards: int = 1,
        neighbours: Neighbours | None = "replace_one",
    ) -> TableMechanism:
        """Release the number of red cards out of several, of a deck that the truth chooses.

        Parameters
        ----------
        p_yes, p_no : float
            The shares of red cards in the decks of "yes" and of "no".
        cards : int, default 1
            How many are drawn, each put back before the next.
        neighbours
            As for the class.

        Examples
        --------
        >>> import pymc_privacy as pmp
        >>> design = pmp.TableMechanism.kuk(p_yes=0.8, p_no=0.2, cards=2)
        >>> design.table.round(2).tolist()
        [[0.64, 0.32, 0.04], [0.04, 0.32, 0.64]]
        """
        cards = integer("cards", cards, least=1, most=1000, error=MechanismError)
        red = np.array([_share("p_no", p_no), _share("p_yes", p_yes)])[:, None]
        k = np.arange(cards + 1)
        ways = np.array([float(math.comb(cards, int(j))) for j in k])
        return cls(probabilities=ways * red**k * (1 - red) ** (cards - k), neighbours=neighbours)


def _share(name: str, value: Any) -> float:
    return probability(name, value, error=MechanismError)


def _checked(probabilities: Any) -> np.ndarray:
    """Return a table of laws in rows, which are not all the same."""
    wanted = "a table of probabilities, a row for each truth and a column for each release"
    try:
        table = reals("probabilities", probabilities, shapes=[("k", "m")], least=0, most=1)
    except ArgumentError:
        raise refusal("probabilities", wanted, probabilities, error=MechanismError) from None
    rows, columns = table.shape
    if rows < 2 or columns < 2 or table.size > _MOST_ENTRIES:
        raise MechanismError(
            "probabilities must have two rows and two columns at least, since there is nothing to "
            f"tell apart elsewhere, and {_MOST_ENTRIES} entries at most; got shape {table.shape}."
        )
    sums = table.sum(axis=1)
    if np.any(np.abs(sums - 1) > _ROUNDING):
        columns_are_laws = np.all(np.abs(table.sum(axis=0) - 1) <= _ROUNDING)
        hint = " Its columns add up to 1: give its transpose." if columns_are_laws else ""
        worst = int(np.argmax(np.abs(sums - 1)))
        raise MechanismError(
            "Each row of probabilities must add up to 1, because some release is made of each "
            f"truth; got {sums[worst]:.9g} in row {worst}.{hint}"
        )
    if np.all(table == table[0]):
        raise MechanismError(
            "Some two rows of probabilities must differ, because a release tells nothing "
            f"otherwise; got {rows} times the same."
        )
    # Rows that add up to 1 but for the last digit stay as they were given.
    exact = np.abs(sums - 1) < 1e-12
    return np.where(exact[:, None], table, table / sums[:, None])
