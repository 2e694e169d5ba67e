"""The methods of intervals: which releases each takes, and what may be said of its ends.

What is computed from releases is as private as they are, whatever the method. Some ends follow from
the releases, and are computed again when a card is read: two quantiles are the ends, centre and
scale determine them, and so do several totals where the family is one of this package. Other
methods draw at random. Nobody can tell from a card whether its ends are those that came out, and it
says that they are the publisher's word.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from scipy.stats import t as student

from pymc_privacy.errors import GuaranteeError
from pymc_privacy.sanitize.families import OWN, Family
from pymc_privacy.sanitize.lattice import checked_bounds
from pymc_privacy.sanitize.quantiles import PrivateQuantile
from pymc_privacy.sanitize.releases import Release
from pymc_privacy.sanitize.summary_plan import SummaryRelease

MOST_RELEASES = 1000
VARIANTS = ("+m*", "-m*", "+m", "-m")  # of PRECISE
PRIOR_AVERAGE = (
    "Coverage is an average over parameters drawn from the prior, where the model holds and its "
    "bounds clip hardly any record. At one parameter it may be anything: near the ends of the "
    "range it can be 0, as for a share of 0.001 and 20 records."
)
OF_CHAINS = (
    "Coverage is an average over parameters drawn from the prior, where the model holds and the "
    "chains have mixed. At one parameter it may be anything, and near the ends of its range even 0."
)
EACH_VALUE = (
    "Coverage is at least prob at each parameter within the range, where the model holds, up to "
    "the grid of values that were tried."
)
APPROXIMATE = (
    "Coverage is approximate, for many records, where the model holds and its bounds clip hardly "
    "any record. With few records, or near the ends of the range, it can be far lower, even 0."
)
NEARLY_NORMAL = (
    "Coverage is an average over parameters drawn from the prior, where the model holds, the "
    "posterior is nearly Normal, and bounds clip hardly any record. At one parameter it may be "
    "anything, and near the ends of the range far lower."
)
UNKNOWN = "Coverage: none is known; the two ends are nearly uniform on the bounds."
INDEPENDENT = "Draws come from the exact posterior, independently."

Ends = Callable[[Any, Family | None, float], "tuple[float, float] | None"]
"""Of releases, family and prob; None where the ends do not follow from these."""


class Method(NamedTuple):
    """What an interval is computed from, and what may be said of it.

    Parameters
    ----------
    coverage : tuple of str
        Sentences, one of which is among its assumptions.
    kind : type or None
        Of its releases; None where it has none, and no guarantee.
    least, most : int
        How many releases it takes.
    families : bool
        Whether it is known for families of this package alone.
    ends : callable, optional
        How the ends follow from the releases.
    """

    coverage: tuple[str, ...]
    kind: type | None
    least: int
    most: int
    families: bool = False
    ends: Ends | None = None


def multiple_ends(published: Sequence[Release], family: Family, prob: float) -> tuple[float, float]:
    """Return the combined interval of several releases."""
    count, size = len(published), published[0].size
    assert size is not None
    totals = np.array([np.atleast_1d(one.value) for one in published])
    estimates, variances = family.estimate(totals, size)
    within, between = variances.mean(), estimates.var(ddof=1)
    variance = within + between / count
    with np.errstate(over="ignore"):  # beside what hardly varies freedom has no end
        freedom = np.inf if between == 0 else (count - 1) * (1 + count * within / between) ** 2
    reach = student.ppf((1 + prob) / 2, freedom) * np.sqrt(variance)
    middle = float(estimates.mean())
    return within_support(family, middle - reach), within_support(family, middle + reach)


def within_support(family: Family, end: float) -> float:
    """Return an end within the range of the parameter."""
    low, high = family.support
    return float(np.clip(end, low, high))


def _ends_of_totals(releases: Any, family: Family | None, prob: float) -> Any:
    if len({(one.plan, one.size) for one in releases}) > 1:
        raise GuaranteeError("Several totals must be of the same records by one plan; got others.")
    return None if family is None else multiple_ends(releases, family, prob)


def _ends_of_summary(releases: Any, family: Family | None, prob: float) -> Any:
    [summary] = releases
    return summary.plan.ends(summary.integers, prob)


def _ends_of_quantiles(releases: Any, family: Family | None, prob: float) -> Any:
    low, high = releases
    tail = (1 - prob) / 2
    wanted = [replace(low.plan, of="draws", quantile=q) for q in (tail, 1 - tail)]
    if [low.plan, high.plan] != wanted:
        raise GuaranteeError(
            "The quantiles of an interval must be of the same draws, and leave half of 1 - prob on "
            f"each side; got {low.plan.quantile:g} and {high.plan.quantile:g} for prob {prob:g}."
        )
    return float(low), float(high)


METHODS = {
    "noise-aware posterior": Method((PRIOR_AVERAGE, OF_CHAINS), Release, 1, MOST_RELEASES),
    "parametric bootstrap": Method((APPROXIMATE,), Release, 1, 1, families=True),
    "repro samples": Method((EACH_VALUE,), Release, 1, 1, families=True),
    "multiple sanitization": Method(
        (APPROXIMATE,), Release, 2, MOST_RELEASES, families=True, ends=_ends_of_totals
    ),
    "centre and scale": Method((NEARLY_NORMAL,), SummaryRelease, 1, 1, ends=_ends_of_summary),
    "PPquantile": Method((UNKNOWN,), PrivateQuantile, 2, 2, ends=_ends_of_quantiles),
    **{f"PRECISE {variant}": Method((INDEPENDENT,), None, 0, 0) for variant in VARIANTS},
}


def is_family_of(family: Any, release: Release) -> bool:
    """Tell whether a family is one of this package, and a release one of its totals."""
    if type(family) not in OWN:
        return False
    moments = None if family.moments is None else family.moments.name
    plan, lattice = release.plan, release.lattice
    return (
        (lattice.bounds, lattice.scalar) == checked_bounds(family.contribution_bounds)
        and (plan.whole, plan.moments, plan.stated) == (family.whole, moments, None)
        and release.size is not None
        and release.size >= family.least
    )


def same_ends(given: tuple[float, float], found: tuple[float, float]) -> bool:
    """Tell whether ends are the same, up to what versions of numerical libraries may differ in.

    Examples
    --------
    >>> same_ends((0.2, 0.3), (0.2, 0.3)), same_ends((0.2, 0.3), (0.2, 0.301))
    (True, False)
    """
    slack = 2.0**-30 * abs(found[1] - found[0])
    pairs = zip(given, found, strict=True)
    return all(math.isclose(a, b, rel_tol=2.0**-50, abs_tol=slack) for a, b in pairs)
