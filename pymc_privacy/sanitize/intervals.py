"""Intervals from secure releases of a bounded total: proven, as all the rest is post-processing.

* `noise_aware_interval`: the posterior given the release itself. The noise is integrated out:
  p(theta | s) = sum over totals t of p(theta | t) p(t) eta(s | t), up to a constant.
* `bootstrap_interval`: percentiles of estimates from totals that are simulated with their noise.
* `multiple_sanitization_interval`: several releases with a share of the budget each, combined.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from scipy.stats import t as student

from pymc_privacy.accounting import PureDP
from pymc_privacy.errors import ReleaseError
from pymc_privacy.sanitize.exact_noise import ExactNoise
from pymc_privacy.sanitize.families import Family
from pymc_privacy.sanitize.interval import PrivateInterval, checked_prob
from pymc_privacy.sanitize.ledger import Ledger
from pymc_privacy.sanitize.releases import Release, planned_release, promised, with_noise
from pymc_privacy.sanitize.truncated import discrete_laplace_between, laplace_between

_ENOUGH, _FEWEST, _BATCHES = 1000, 100, 25  # draws of the posterior; and how often to try
NOT_CLIPPED = "Coverage: the model holds and its bounds clip hardly any record."


def noise_aware_interval(
    records: Any,
    family: Family,
    *,
    epsilon: float,
    prob: float = 0.95,
    draws: int = 20_000,
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
    ledger : Ledger, optional
        Charged before any noise is drawn.
    name : str, optional
        Of the parameter; that of the family by default.
    rng : np.random.Generator, optional
        For the draws of the posterior, which see the release alone; the release has no seed.

    Returns
    -------
    PrivateInterval
        Proven; with the release, which may be published along with it.

    Examples
    --------
    >>> import pymc_privacy as pmp
    >>> interval = pmp.noise_aware_interval([0, 1, 1, 0] * 100, pmp.Proportion(), epsilon=0.5)
    >>> interval.label, interval.guarantee.epsilon
    ('proven', 0.5)
    """
    name = name or family.name
    published = _released(records, family, epsilon, ledger, name)
    rng = np.random.default_rng(rng)
    lower, upper = noise_aware_ends(rng, published, family, checked_prob(prob), draws)
    return _proven(lower, upper, prob, "noise-aware posterior", published, name)


def bootstrap_interval(
    records: Any,
    family: Family,
    *,
    epsilon: float,
    prob: float = 0.95,
    repeats: int = 1000,
    ledger: Ledger | None = None,
    name: str | None = None,
    rng: np.random.Generator | None = None,
) -> PrivateInterval:
    """Release a total securely, and return a parametric bootstrap interval (Ferrando et al. 2022).

    Privacy is proven; coverage is that of a percentile interval, approximate.

    Parameters
    ----------
    records, family, epsilon, prob, ledger, name, rng
        As for `noise_aware_interval`.
    repeats : int
        Of the bootstrap.

    Examples
    --------
    >>> import pymc_privacy as pmp
    >>> pmp.bootstrap_interval([0, 1, 1, 0] * 100, pmp.Proportion(), epsilon=0.5).label
    'proven'
    """
    name = name or family.name
    published = _released(records, family, epsilon, ledger, name)
    rng = np.random.default_rng(rng)
    lower, upper = bootstrap_ends(rng, published, family, checked_prob(prob), repeats)
    return _proven(lower, upper, prob, "parametric bootstrap", published, name)


def multiple_sanitization_interval(
    records: Any,
    family: Family,
    *,
    epsilon: float,
    prob: float = 0.95,
    releases: int = 3,
    ledger: Ledger | None = None,
    name: str | None = None,
) -> PrivateInterval:
    """Release a total several times, and combine estimates and variances (Liu 2022).

    Each release has epsilon / M. With W the mean of the sampling variances and B the variance of
    the M estimates, the interval is Student's t with variance W + B / M and
    (M - 1) (1 + M W / B)^2 degrees of freedom. Privacy is proven by composition.

    Parameters
    ----------
    records, family, epsilon, prob, ledger, name
        As for `noise_aware_interval`.
    releases : int
        M.

    Examples
    --------
    >>> import pymc_privacy as pmp
    >>> interval = pmp.multiple_sanitization_interval(
    ...     [0, 1, 1, 0] * 100, pmp.Proportion(), epsilon=0.5
    ... )
    >>> interval.guarantee.epsilon
    0.5
    """
    if releases < 2:
        raise ReleaseError(f"releases must be 2 or more, for their variance; got {releases!r}.")
    name, prob = name or family.name, checked_prob(prob)
    guarantee = PureDP(epsilon, neighbours="replace_one")
    # Rounded down, so that the shares do not add up to more than the whole.
    plan = planned(records, family, math.nextafter(epsilon / releases, 0.0), name)
    if ledger is not None:
        ledger.charge(guarantee, what=name)
    published = [with_noise(ExactNoise(), plan, "exact") for _ in range(releases)]
    lower, upper = multiple_ends(published, family, prob)
    return PrivateInterval(
        lower=lower,
        upper=upper,
        prob=prob,
        method="multiple sanitization",
        label="proven",
        assumptions=(NOT_CLIPPED,),
        guarantee=guarantee,
        name=name,
    )


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
    return _within(family, lower), _within(family, upper)


def noise_aware_draws(
    rng: np.random.Generator, published: Release, family: Family, draws: int
) -> tuple[np.ndarray, np.ndarray]:
    """Draw from the posterior given a release; return draws and log weights.

    Totals are drawn with density ∝ eta(s | t), each coordinate between n times its bounds.
    """
    size, scale = published.size, published.scale
    assert size is not None
    whole = published.mechanism.discrete
    columns = []
    for value, (low, high) in zip(
        np.atleast_1d(published.value), published.lattice.bounds, strict=True
    ):
        if whole:
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
    return _within(family, lower), _within(family, upper)


def multiple_ends(published: list[Release], family: Family, prob: float) -> tuple[float, float]:
    """Return the combined interval of several releases."""
    count, size = len(published), published[0].size
    assert size is not None
    totals = np.array([np.atleast_1d(one.value) for one in published])
    estimates, variances = family.estimate(totals, size)
    within, between = variances.mean(), estimates.var(ddof=1)
    variance = within + between / count
    freedom = np.inf if between == 0 else (count - 1) * (1 + count * within / between) ** 2
    reach = student.ppf((1 + prob) / 2, freedom) * np.sqrt(variance)
    middle = float(estimates.mean())
    return _within(family, middle - reach), _within(family, middle + reach)


def planned(records: Any, family: Family, epsilon: float, name: str) -> Release:
    """Return the release of a family's total before its noise: confidential."""
    promise = promised(
        epsilon=epsilon, delta=None, rho=None, neighbours="replace_one", unit="one record"
    )
    sensitivity, proof = family.sensitivity or (None, None)
    return planned_release(
        family.contributions(records),
        family.contribution_bounds,
        promise,
        name=name,
        sensitivity=sensitivity,
        proof=proof,
    )


def _released(
    records: Any, family: Family, epsilon: float, ledger: Ledger | None, name: str
) -> Release:
    plan = planned(records, family, epsilon, name)
    if ledger is not None:
        ledger.charge(plan.guarantee, what=name)
    return with_noise(ExactNoise(), plan, "exact")


def _noise(rng: np.random.Generator, published: Release, draws: int) -> np.ndarray:
    """Draw noise of the release's own law, in units of the statistic, shape (draws, d)."""
    width = len(published.integers)
    zeros = np.zeros((draws, width), dtype=np.int64)
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


def _within(family: Family, end: float) -> float:
    low, high = family.support
    return float(np.clip(end, low, high))


def _proven(
    lower: float, upper: float, prob: float, method: str, published: Release, name: str
) -> PrivateInterval:
    return PrivateInterval(
        lower=lower,
        upper=upper,
        prob=prob,
        method=method,
        label="proven",
        assumptions=(NOT_CLIPPED,),
        guarantee=published.guarantee,
        release=published,
        name=name,
    )
