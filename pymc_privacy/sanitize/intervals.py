"""Intervals from secure releases of a bounded total: proven, as all the rest is post-processing.

* `noise_aware_interval`: the posterior given the release itself. The noise is integrated out:
  p(theta | s) = sum over totals t of p(theta | t) p(t) eta(s | t), up to a constant.
* `bootstrap_interval`: percentiles of estimates from totals that are simulated with their noise.
* `repro_interval`: values of the parameter at which such totals are not all on one side.
* `multiple_sanitization_interval`: several releases with a share of the budget each, combined.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from pymc_privacy.accounting import PureDP
from pymc_privacy.arguments import generator, instance, integer, refusal
from pymc_privacy.errors import ReleaseError
from pymc_privacy.sanitize.budget import share_of
from pymc_privacy.sanitize.calibrate import promised
from pymc_privacy.sanitize.exact_noise import ExactNoise
from pymc_privacy.sanitize.families import OWN, Family
from pymc_privacy.sanitize.families.base import FOREIGN, MOST, SimulatedFamily
from pymc_privacy.sanitize.interval import PrivateInterval, checked_prob
from pymc_privacy.sanitize.ledger import Ledger
from pymc_privacy.sanitize.methods import METHODS, MOST_RELEASES, multiple_ends, within_support
from pymc_privacy.sanitize.plan import (
    ReleasePlan,
    Totals,
    charge,
    checked_ledger,
    checked_size,
    plan_moments,
    plan_release,
)
from pymc_privacy.sanitize.releases import Release, with_noise
from pymc_privacy.sanitize.repro import repro_set
from pymc_privacy.sanitize.truncated import discrete_laplace_between, laplace_between

_ENOUGH, _FEWEST, _BATCHES = 1000, 100, 25  # draws of the posterior; and how often to try
_MOST_DRAWS = 10**7
_MOST_REPRO, _CANDIDATES = 10**5, 201  # simulated releases at each value, and values
_WIDEST = 2.0**50  # of noise that can be simulated in 64 bits


def noise_aware_interval(
    records: Any,
    family: Family,
    *,
    epsilon: float,
    prob: float = 0.95,
    draws: int = 20_000,
    size: int | None = None,
    ledger: Ledger | None = None,
    name: str | None = None,
    rng: np.random.Generator | None = None,
) -> PrivateInterval:
    """Release a total securely, and return an interval of the posterior given that release.

    The posterior is that of Bayes' rule, up to Monte Carlo error: noise is drawn from its law and
    taken off the release, the totals that this leaves are weighted by their probability under the
    prior, and the parameter is drawn given each. For models that are no `Family` write the model
    in PyMC and use `posterior_interval`.

    Parameters
    ----------
    records : array_like
    family : Family
        `Proportion`, `Rate`, `NormalMean`, `NormalVariance` or `Slope`.
    epsilon : float
        Pure privacy; neighbours replace one record.
    prob : float
    draws : int
        Of the posterior.
    size : int, optional
        The number of records, where it was fixed beforehand; others are refused.
    ledger : Ledger, optional
        Charged before any noise is drawn.
    name : str, optional
        Of the parameter; that of the family by default.
    rng : np.random.Generator, optional
        For the draws of the posterior, which see the release alone; the release has no seed.

    Returns
    -------
    PrivateInterval
        Proven, for the families of this package; with the release, which may be published along
        with it.

    Raises
    ------
    ReleaseError
        If the family is none, or the records are not such as it takes, or not `size` many.
    GuaranteeError
        If epsilon or prob is out of its range, or the ledger has other neighbours.
    BudgetError
        If the ledger cannot cover the charge; nothing was drawn.
    LedgerError
        If the ledger was charged under this name before, or its file is damaged.

    See Also
    --------
    posterior_interval : For any model, written in PyMC.
    bootstrap_interval : Another interval from the same release.
    centre_scale_interval : From a noisy mean and deviation.
    Proportion : A family.

    Examples
    --------
    >>> import pymc_privacy as pmp
    >>> interval = pmp.noise_aware_interval([0, 1, 1, 0] * 100, pmp.Proportion(), epsilon=0.5)
    >>> interval.label, interval.guarantee.epsilon
    ('proven', 0.5)
    """
    prob, rng, ledger = checked_prob(prob), checked_rng(rng), checked_ledger(ledger)
    draws = integer("draws", draws, least=1, most=_MOST_DRAWS, error=ReleaseError)
    published = published_total(records, family, epsilon, size=size, ledger=ledger, name=name)
    ends = noise_aware_ends(rng, published, family, prob, draws)
    return _labelled("noise-aware posterior", published.plan, (published,), family, ends, prob)


def bootstrap_interval(
    records: Any,
    family: Family,
    *,
    epsilon: float,
    prob: float = 0.95,
    repeats: int = 1000,
    size: int | None = None,
    ledger: Ledger | None = None,
    name: str | None = None,
    rng: np.random.Generator | None = None,
) -> PrivateInterval:
    """Release a total securely, and return a parametric bootstrap interval (Ferrando et al. 2022).

    Privacy is proven; coverage is that of a percentile interval, approximate.

    Parameters
    ----------
    records, family, epsilon, prob, size, ledger, name, rng
        As for `noise_aware_interval`.
    repeats : int
        Of the bootstrap.

    Raises
    ------
    ReleaseError
        If the family is none, or the records are not such as it takes, or not `size` many.
    GuaranteeError
        If epsilon or prob is out of its range, or the ledger has other neighbours.
    BudgetError
        If the ledger cannot cover the charge; nothing was drawn.
    LedgerError
        If the ledger was charged under this name before, or its file is damaged.

    See Also
    --------
    noise_aware_interval : The posterior given the same release.
    multiple_sanitization_interval : From several releases.

    References
    ----------
    - Ferrando, C., Wang, S. and Sheldon, D. (2022), "Parametric bootstrap for differentially
      private confidence intervals", International Conference on Artificial Intelligence and
      Statistics (AISTATS).

    Examples
    --------
    >>> import pymc_privacy as pmp
    >>> pmp.bootstrap_interval([0, 1, 1, 0] * 100, pmp.Proportion(), epsilon=0.5).label
    'proven'
    """
    prob, rng, ledger = checked_prob(prob), checked_rng(rng), checked_ledger(ledger)
    repeats = integer("repeats", repeats, least=2, most=_MOST_DRAWS, error=ReleaseError)
    published = published_total(records, family, epsilon, size=size, ledger=ledger, name=name)
    ends = bootstrap_ends(rng, published, family, prob, repeats)
    return _labelled("parametric bootstrap", published.plan, (published,), family, ends, prob)


def repro_interval(
    records: Any,
    family: Family,
    *,
    epsilon: float,
    prob: float = 0.95,
    draws: int = 999,
    size: int | None = None,
    ledger: Ledger | None = None,
    name: str | None = None,
    rng: np.random.Generator | None = None,
) -> PrivateInterval:
    """Release a total securely, and return a confidence interval that holds at each parameter.

    By repro samples: a value of the parameter is left out if the release is extreme among releases
    simulated at it, clipping and noise included. Where the model holds, it covers with probability
    prob or more for any number of records, any noise, and any parameter in the family's range,
    near its ends too, where credible intervals can fail. It is wider for that.
    Values are tried on a grid, and once more, finer, about the ends.

    Parameters
    ----------
    records, epsilon, prob, size, ledger, name, rng
        As for `noise_aware_interval`.
    family : Family
        `Proportion` or `Rate`, of which one parameter says all. For others write a simulator, and
        use `repro_set`.
    draws : int
        Simulated releases at each value.

    Raises
    ------
    ReleaseError
        If the family is neither, or the records are not such as it takes, or not `size` many.
    GuaranteeError
        If epsilon or prob is out of its range, or the ledger has other neighbours.
    BudgetError
        If the ledger cannot cover the charge; nothing was drawn.
    LedgerError
        If the ledger was charged under this name before, or its file is damaged.

    See Also
    --------
    repro_set : For any simulator, and several parameters.
    bootstrap_interval : From the same release; approximate.
    noise_aware_interval : Covers on average over a prior.

    References
    ----------
    - Awan, J. and Wang, Z. (2025), "Simulation-based, finite-sample inference for privatized
      data", Journal of the American Statistical Association 120.

    Examples
    --------
    >>> import pymc_privacy as pmp
    >>> interval = pmp.repro_interval([0, 0, 0, 1] * 10, pmp.Proportion(), epsilon=0.5)
    >>> interval.label, interval.lower < 0.25 < interval.upper
    ('proven', True)
    """
    prob, rng, ledger = checked_prob(prob), checked_rng(rng), checked_ledger(ledger)
    draws = integer("draws", draws, least=1, most=_MOST_REPRO, error=ReleaseError)
    wanted = "Proportion() or Rate(upper=...), which have one parameter (else use repro_set)"
    instance("family", family, SimulatedFamily, wanted, error=ReleaseError)
    if (draws + 1) * (1 - prob) < 1 - 1e-9:
        meaning = "or no value can be left out: (draws + 1) (1 - prob) >= 1"
        raise refusal("draws", "larger for this prob", draws, meaning=meaning, error=ReleaseError)
    assert isinstance(family, SimulatedFamily)
    family.totals_at(np.random.default_rng(0), family.support[1], 1, 1)  # or it says why not
    published = published_total(records, family, epsilon, size=size, ledger=ledger, name=name)
    ends = repro_ends(rng, published, family, prob, draws)
    return _labelled("repro samples", published.plan, (published,), family, ends, prob)


def multiple_sanitization_interval(
    records: Any,
    family: Family,
    *,
    epsilon: float,
    prob: float = 0.95,
    releases: int = 3,
    size: int | None = None,
    ledger: Ledger | None = None,
    name: str | None = None,
) -> PrivateInterval:
    """Release a total several times, and combine estimates and variances (Liu 2022).

    Each release has epsilon / M. With W the mean of the sampling variances and B the variance of
    the M estimates, the interval is Student's t with variance W + B / M and
    (M - 1) (1 + M W / B)^2 degrees of freedom. Privacy is proven by composition.

    Parameters
    ----------
    records, family, epsilon, prob, size, ledger, name
        As for `noise_aware_interval`.
    releases : int
        M.

    Raises
    ------
    ReleaseError
        If the family is none, or the records are not such as it takes, or not `size` many.
    GuaranteeError
        If epsilon or prob is out of its range, or the ledger has other neighbours.
    BudgetError
        If the ledger cannot cover the charge; nothing was drawn.
    LedgerError
        If the ledger was charged under this name before, or its file is damaged.

    See Also
    --------
    noise_aware_interval : The posterior given one release.
    bootstrap_interval : A bootstrap from one release.

    References
    ----------
    - Liu, F. (2022), "Model-based differentially private data synthesis and statistical inference
      in multiply synthetic differentially private data", Transactions on Data Privacy 15;
      arXiv:1606.08052.

    Examples
    --------
    >>> import pymc_privacy as pmp
    >>> interval = pmp.multiple_sanitization_interval(
    ...     [0, 1, 1, 0] * 100, pmp.Proportion(), epsilon=0.5
    ... )
    >>> interval.guarantee.epsilon
    0.5
    """
    prob, ledger = checked_prob(prob), checked_ledger(ledger)
    meaning = "2 or more, for their variance"
    releases = integer(
        "releases", releases, least=2, most=MOST_RELEASES, meaning=meaning, error=ReleaseError
    )
    whole = plan_total(family, epsilon, name)
    assert isinstance(whole.guarantee, PureDP)
    share = share_of(whole.guarantee, releases)
    plan = plan_total(family, share.epsilon, whole.name)
    totals = family_totals(plan, family, records, size=size)
    charge(ledger, whole.guarantee, whole.name, unless=family.name)
    published = tuple(with_noise(ExactNoise(), plan, totals, "exact") for _ in range(releases))
    ends = multiple_ends(published, family, prob)
    return _labelled("multiple sanitization", whole, published, family, ends, prob)


# ---------------------------------------------------------------- plans, and totals


def plan_total(family: Family, epsilon: float, name: str | None = None) -> ReleasePlan:
    """Return the plan for the total of a family's contributions; it has not seen the records."""
    instance("family", family, Family, "a Family, such as Proportion()", error=ReleaseError)
    name = family.name if name is None else name
    labels: dict[str, Any] = {"neighbours": "replace_one", "unit": "one record"}
    guarantee = promised(epsilon=epsilon, delta=None, rho=None, **labels)
    if type(family) in OWN and family.moments is not None:
        plan = plan_moments(family.moments, guarantee, name)
    else:
        stated = family.sensitivity
        plan = plan_release(
            bounds=family.contribution_bounds,
            epsilon=epsilon,
            integers=family.whole,
            sensitivity=None if stated is None else stated[0],
            name=name,
            **labels,
        )
    if type(family) not in OWN:
        words = FOREIGN.format(name=name, kind=type(family).__name__)
        plan = replace(plan, words=(words,))
    if plan.scale > _WIDEST:
        raise ReleaseError(
            "The scale of the noise of an interval must be at most 2^50 (sensitivity / epsilon), "
            f"or it says nothing; got {plan.scale:g}."
        )
    return plan


def family_totals(
    plan: ReleasePlan, family: Family, records: Any, *, size: int | None = None
) -> Totals:
    """Return the totals of a family's contributions: here records enter, as integers they leave."""
    size = checked_size(size, plan.guarantee)
    totals = plan.totals(family.contributions(records), size=size)
    largest = totals.size * max(abs(end) for pair in plan.lattice.bounds for end in pair)
    if totals.size < family.least or largest > MOST:
        raise ReleaseError(
            f"records must be {family.least} or more, and their total at most 2^53, which follows "
            f"from their number and the bounds; got {totals.size} records."
        )
    return totals


def published_total(
    records: Any,
    family: Family,
    epsilon: float,
    *,
    size: int | None,
    ledger: Ledger | None,
    name: str | None,
) -> Release:
    """Plan, look at the records, charge, and draw: in this order."""
    plan = plan_total(family, epsilon, name)
    totals = family_totals(plan, family, records, size=size)
    charge(ledger, plan.guarantee, plan.name, unless=family.name)
    return with_noise(ExactNoise(), plan, totals, "exact")


def checked_rng(rng: Any) -> np.random.Generator:
    """Return a generator, a new one for None."""
    return np.random.default_rng() if rng is None else generator("rng", rng, error=ReleaseError)


# ---------------------------------------------------------------- from releases to ends


def noise_aware_ends(
    rng: np.random.Generator, published: Release, family: Family, prob: float, draws: int
) -> tuple[float, float]:
    """Return quantiles of the posterior given a release.

    Totals that no records can have count for nothing, and are drawn again in part. Where hardly
    any are left, the release says nothing, and all that may be said is the range of the parameter.
    """
    batches: list[tuple[np.ndarray, np.ndarray]] = []
    found = 0
    while found < _ENOUGH and len(batches) < _BATCHES:
        batches.append(noise_aware_draws(rng, published, family, draws))
        found += int(np.isfinite(batches[-1][1]).sum())
    if found < _FEWEST:
        return family.support
    parameters, log_weights = (np.concatenate(part) for part in zip(*batches, strict=True))
    tail = (1 - prob) / 2
    lower, upper = weighted_quantiles(parameters, log_weights, (tail, 1 - tail))
    return within_support(family, lower), within_support(family, upper)


def noise_aware_draws(
    rng: np.random.Generator, published: Release, family: Family, draws: int
) -> tuple[np.ndarray, np.ndarray]:
    """Draw from the posterior given a release; return draws and log weights.

    Totals are drawn with density ∝ eta(s | t), each coordinate between n times its bounds.
    """
    size, scale = published.size, published.scale
    assert size is not None
    columns = []
    for value, (low, high) in zip(
        np.atleast_1d(published.value), published.lattice.bounds, strict=True
    ):
        if published.plan.whole:
            ends = round(size * low), round(size * high)
            columns.append(discrete_laplace_between(rng, int(value), scale, *ends, draws))
        else:
            columns.append(laplace_between(rng, value, scale, size * low, size * high, draws))
    totals = np.stack(columns, axis=1).astype(float)
    return family.posterior(rng, totals, size)


def bootstrap_ends(
    rng: np.random.Generator, published: Release, family: Family, prob: float, repeats: int
) -> tuple[float, float]:
    """Return percentiles of estimates from simulated releases."""
    assert published.size is not None
    total = np.atleast_1d(published.value)
    totals = family.resample(rng, total, published.size, repeats)
    estimates, _ = family.estimate(totals + _noise(rng, published, repeats), published.size)
    lower, upper = np.quantile(estimates, [(1 - prob) / 2, (1 + prob) / 2])
    return within_support(family, lower), within_support(family, upper)


def repro_ends(
    rng: np.random.Generator, published: Release, family: Family, prob: float, draws: int
) -> tuple[float, float]:
    """Return the ends of the values at which the release is not extreme."""
    assert published.size is not None
    assert isinstance(family, SimulatedFamily)
    size = published.size

    def simulate(rng: np.random.Generator, parameter: float, draws: int) -> np.ndarray:
        totals = family.totals_at(rng, parameter, size, draws)
        return totals + _noise(rng, published, draws)

    low, high = family.support
    for _ in range(2):
        grid = np.linspace(low, high, _CANDIDATES)
        found = repro_set(published.value, simulate, grid, prob=prob, draws=draws, rng=rng)
        if not np.any(found.accepted):
            # No value explains the release: it is of another model, and nothing is left out.
            return family.support
        low, high = found.interval()
    return within_support(family, low), within_support(family, high)


def _noise(rng: np.random.Generator, published: Release, draws: int) -> np.ndarray:
    """Draw noise of the release's own law, in units of the statistic, shape (draws, d)."""
    width = len(published.integers)
    zeros = np.zeros((draws, width), dtype=np.int64)
    with np.errstate(over="ignore"):  # of one over a scale that is next to nothing
        return published.mechanism.simulate(rng, zeros)


def weighted_quantiles(
    values: np.ndarray, log_weights: np.ndarray, quantiles: tuple[float, ...]
) -> list[float]:
    """Return quantiles of a weighted sample.

    Examples
    --------
    >>> weighted_quantiles(np.array([3.0, 1.0, 2.0]), np.array([0.0, 0.0, -np.inf]), (0.25, 0.75))
    [1.0, 3.0]
    """
    order = np.argsort(values)
    weights = np.exp(log_weights - log_weights.max())[order]
    cumulated = np.cumsum(weights)
    where = np.searchsorted(cumulated, np.array(quantiles) * cumulated[-1])
    return [float(values[order[min(k, len(order) - 1)]]) for k in where]


def _labelled(
    method: str,
    plan: ReleasePlan,
    published: tuple[Release, ...],
    family: Family,
    ends: tuple[float, float],
    prob: float,
) -> PrivateInterval:
    """Return an interval that is as proven as its plan is."""
    return PrivateInterval(
        *ends,
        prob,
        method,
        label=plan.label,  # type: ignore[arg-type]
        assumptions=(*plan.assumptions, METHODS[method].coverage[0]),
        guarantee=plan.guarantee,
        releases=published,
        name=plan.name,
        family=family if type(family) in OWN else None,
    )
