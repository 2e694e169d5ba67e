"""Quantiles by the exponential mechanism: `pp_quantile` of a posterior, `private_quantile` of data.

The plan is made of public arguments alone. Records become the cells that they lie in, which are
integers, and one cell is drawn; its middle is what is published.
"""

from __future__ import annotations

import datetime
import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Literal

import numpy as np

from pymc_privacy.accounting import Neighbours, PureDP
from pymc_privacy.arguments import (
    Shape,
    choice,
    instance,
    integer,
    neighbours,
    pair,
    probability,
    reals,
)
from pymc_privacy.errors import GuaranteeError, ReleaseError
from pymc_privacy.sanitize.calibrate import exactly
from pymc_privacy.sanitize.exact_noise import ExactNoise, RandBelow
from pymc_privacy.sanitize.exponential_choice import CELLS, cells_of, middle_of, select
from pymc_privacy.sanitize.ledger import Ledger
from pymc_privacy.sanitize.plan import charge, checked_date, checked_ledger, checked_name
from pymc_privacy.sanitize.publication import NOT_PROTECTED
from pymc_privacy.sanitize.rows import rows


@dataclass(frozen=True)
class QuantilePlan:
    """How a quantile will be published, and what that promises; it has not seen the records.

    Parameters
    ----------
    of : {"records", "draws"}
        Of the records themselves, or of draws of a posterior.
    quantile : float
    bounds : (float, float)
    guarantee : PureDP
    name : str
    """

    of: Literal["records", "draws"]
    quantile: float
    bounds: tuple[float, float]
    guarantee: PureDP
    name: str

    def __post_init__(self) -> None:
        choice("of", self.of, ("records", "draws"), error=ReleaseError)
        quantile = probability("quantile", self.quantile, error=GuaranteeError)
        meaning = "fixed before looking at the data"
        bounds = pair("bounds", self.bounds, meaning=meaning, error=ReleaseError)
        object.__setattr__(self, "quantile", quantile)
        object.__setattr__(self, "bounds", bounds)
        checked_name(self.name)
        if not isinstance(self.guarantee, PureDP):
            raise GuaranteeError(f"A quantile must promise PureDP; got {self.guarantee!r}.")
        neighbours(self.guarantee.neighbours, error=GuaranteeError)

    def cells(self, values: Any) -> np.ndarray:
        """Return the cells of records or draws: here they enter, as integers they leave."""
        array = checked_draws(values) if self.of == "draws" else rows("records", values, None)
        if not array.size and (self.of == "draws" or self.guarantee.neighbours == "replace_one"):
            raise ReleaseError(f"{self.of} must be finite numbers, one or more; got 0 values.")
        return cells_of(array, self.bounds)

    def drawn(self, randbelow: RandBelow, cells: np.ndarray) -> int:
        """Draw the cell to publish.

        Of records, i - q n moves by 1 at most. Of m draws, exponents lie in [0, epsilon / 2],
        whatever the draws are.
        """
        q, epsilon = exactly(self.quantile), exactly(self.guarantee.epsilon)
        if self.of == "records":
            return select(randbelow, cells, q * len(cells), epsilon / 2)
        rank = Fraction(math.ceil(q * len(cells)))
        return select(randbelow, cells, rank, epsilon / (2 * (len(cells) + 1)))


class PrivateQuantile(float):
    """A published quantile: a float that knows what it promises, and can be written as a card.

    Parameters
    ----------
    plan : QuantilePlan
    cell : int
        Which of the cells between the bounds was drawn; the value is its middle.
    published : str
        The date.

    Examples
    --------
    >>> import pymc_privacy as pmp
    >>> median = pmp.private_quantile(
    ...     [3.0, 4.0, 9.0], 0.5, bounds=(0, 10), epsilon=1.0, neighbours="replace_one"
    ... )
    >>> 0 < median < 10, median.label, median.guarantee.epsilon
    (True, 'proven', 1.0)
    """

    plan: QuantilePlan
    cell: int
    published: str

    def __new__(cls, plan: QuantilePlan, cell: int, published: str) -> PrivateQuantile:
        """Return the middle of the cell."""
        instance("plan", plan, QuantilePlan, "a QuantilePlan", error=ReleaseError)
        where = integer("cell", cell, least=0, most=CELLS - 1, error=ReleaseError)
        self = super().__new__(cls, middle_of(where, plan.bounds))
        self.plan, self.cell, self.published = plan, where, checked_date(published)
        return self

    def __getnewargs__(self) -> tuple[QuantilePlan, int, str]:  # type: ignore[override]
        """Return what a copy is made of."""
        return self.plan, self.cell, self.published

    @property
    def name(self) -> str:
        """Return what was released."""
        return self.plan.name

    @property
    def label(self) -> str:
        """Return "proven": the code enforces all that the proof needs."""
        return "proven"

    @property
    def assumptions(self) -> tuple[str, ...]:
        """Return nothing, on which the guarantee rests."""
        return ()

    @property
    def guarantee(self) -> PureDP:
        """Return what is promised to each person."""
        return self.plan.guarantee

    def statement(self) -> str:
        """Say in sentences what was published, what is promised, and what is not."""
        low, high = self.plan.bounds
        return "\n".join(
            [
                f"{self.name}: {self.guarantee}.",
                f"Label: {self.label}.",
                f"The {self.plan.quantile:g} quantile of the {self.plan.of}, by the exponential "
                f"mechanism on {CELLS} cells of [{low:g}, {high:g}]: {float(self):.6g}.",
                f"Not protected: {'; '.join(NOT_PROTECTED)}.",
            ]
        )


def pp_quantile(
    draws: Any,
    quantile: float,
    *,
    bounds: tuple[float, float],
    epsilon: float,
    ledger: Ledger | None = None,
    name: str = "pp_quantile",
) -> PrivateQuantile:
    """Return a posterior quantile by the exponential mechanism: PPquantile (Liu et al., Alg. 3).

    It is epsilon-DP whatever the draws are: a point with j of the m draws below it has a weight of
    ``exp(-epsilon |j - k| / (2 (m + 1)))``, which lies in [exp(-epsilon / 2), 1], against a uniform
    law that depends on no data. For the same reason it is nearly uniform on the bounds, and of no
    use where epsilon is small.

    Parameters
    ----------
    draws : array_like
        Of one parameter.
    quantile : float
        In (0, 1); k is the rank of this quantile among the draws.
    bounds : (float, float)
        Fixed before looking at the data.
    epsilon : float
    ledger : Ledger, optional
    name : str

    Returns
    -------
    PrivateQuantile
        A float with a guarantee, a statement and a card.

    Raises
    ------
    ReleaseError
        If draws are not finite numbers, one or more, or the bounds are not in order.
    GuaranteeError
        If quantile is not in (0, 1), or epsilon not > 0 and finite.
    BudgetError
        If the ledger cannot cover the charge; nothing was drawn.
    LedgerError
        If the ledger was charged under this name before, or its file is damaged.

    See Also
    --------
    private_quantile : A quantile of the records.
    pp_interval : An interval of two of them.
    noise_aware_interval : An interval of more use.

    References
    ----------
    - Zhou, R. and Liu, F. (2025), "PRECISE: PRivacy-loss-Efficient and Consistent Inference based
      on poSterior quantilEs", arXiv:2502.00192; "Liu et al." here.
    - McSherry, F. and Talwar, K. (2007), "Mechanism design via differential privacy", IEEE
      Symposium on Foundations of Computer Science (FOCS).

    Examples
    --------
    >>> import numpy as np
    >>> import pymc_privacy as pmp
    >>> draws = np.random.default_rng(1).beta(31, 71, size=100)
    >>> 0 < pmp.pp_quantile(draws, 0.5, bounds=(0, 1), epsilon=1.0) < 1
    True
    """
    guarantee = PureDP(epsilon, neighbours="replace_one")
    plan = QuantilePlan("draws", quantile, bounds, guarantee, name)
    [published] = published_quantiles([plan], draws, ledger, guarantee, unless="pp_quantile")
    return published


def private_quantile(
    records: Any,
    quantile: float,
    *,
    bounds: tuple[float, float],
    epsilon: float,
    neighbours: Neighbours,
    ledger: Ledger | None = None,
    name: str = "private_quantile",
) -> PrivateQuantile:
    """Return a quantile of the records themselves: PrivateQuantile (Smith 2011), epsilon-DP.

    A point with i of the n records below it has a weight of ``exp(-epsilon |i - q n| / 2)``.
    Replacing a record moves i by 1 at most, adding one moves i - q n by 1 at most: the exponential
    mechanism (McSherry & Talwar 2007) with a score of sensitivity 1.

    Parameters
    ----------
    records : array_like
        One number for each record, shape (n,); clipped to the bounds.
    quantile : float
        In (0, 1).
    bounds : (float, float)
        Fixed before looking at the data.
    epsilon : float
    neighbours : {"replace_one", "add_remove"}
    ledger : Ledger, optional
    name : str

    Returns
    -------
    PrivateQuantile
        A float with a guarantee, a statement and a card.

    Raises
    ------
    ReleaseError
        If records are not finite numbers, one or more, or the bounds are not in order.
    GuaranteeError
        If quantile is not in (0, 1), epsilon not > 0 and finite, or neighbours are not stated.
    BudgetError
        If the ledger cannot cover the charge; nothing was drawn.
    LedgerError
        If the ledger was charged under this name before, or its file is damaged.

    See Also
    --------
    pp_quantile : A quantile of posterior draws.
    KNormGradient : A law for quantiles that a model can take.
    release : Publish a total.

    References
    ----------
    - Smith, A. (2011), "Privacy-preserving statistical estimation with optimal convergence rates",
      ACM Symposium on Theory of Computing (STOC).
    - McSherry, F. and Talwar, K. (2007), "Mechanism design via differential privacy", IEEE
      Symposium on Foundations of Computer Science (FOCS).

    Examples
    --------
    >>> import numpy as np
    >>> import pymc_privacy as pmp
    >>> incomes = np.random.default_rng(1).normal(50, 10, size=2000)
    >>> median = pmp.private_quantile(
    ...     incomes, 0.5, bounds=(0, 200), epsilon=1.0, neighbours="replace_one"
    ... )
    >>> 45 < median < 55
    True
    """
    guarantee = PureDP(epsilon, neighbours=neighbours)
    plan = QuantilePlan("records", quantile, bounds, guarantee, name)
    [published] = published_quantiles([plan], records, ledger, guarantee, unless="private_quantile")
    return published


def checked_draws(draws: Any) -> np.ndarray:
    """Return draws of one parameter, of one chain or of several, in one row."""
    shapes: list[Shape] = [("m",), ("chains", "m")]
    return reals("draws", draws, shapes=shapes, confidential=True, error=ReleaseError).ravel()


def published_quantiles(
    plans: list[QuantilePlan],
    values: Any,
    ledger: Ledger | None,
    guarantee: PureDP,
    *,
    unless: str,
) -> list[PrivateQuantile]:
    """Let records become integers, charge the ledger once, and draw a cell for each plan."""
    ledger = checked_ledger(ledger)
    cells = plans[0].cells(values)
    charge(ledger, guarantee, plans[0].name, unless=unless)
    today = datetime.date.today().isoformat()
    below = ExactNoise().randbelow
    return [PrivateQuantile(plan, plan.drawn(below, cells), today) for plan in plans]
