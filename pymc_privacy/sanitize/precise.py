"""PRECISE (Liu et al.): posterior quantiles from a noisy histogram of draws; nominal privacy only.

Implemented as published, because people will meet it; labelled as what it is, because its epsilon
is not true. Three faults, each by itself enough:

* Theorem 3 bounds one bin by h G and takes 2 h G for the L1 norm over all bins. All m draws can
  change bins with one record: the counts have sensitivity 2 m, not 1.
* The count rule of collapsing looks at the draws and gets no noise. The interval is in effect the
  range of the raw draws.
* G0 is the limit of one pair of posteriors, not a supremum over data sets.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np

from pymc_privacy.accounting import GaussianDP, Guarantee, PureDP
from pymc_privacy.arguments import (
    generator,
    integer,
    kind_of,
    pair,
    positive,
    real,
    reals,
    refusal,
    title,
)
from pymc_privacy.errors import GuaranteeError
from pymc_privacy.sanitize.calibrate import exactly
from pymc_privacy.sanitize.histogram import Collapse, collapse_rule, p3_histogram
from pymc_privacy.sanitize.interval import PrivateInterval, checked_prob
from pymc_privacy.sanitize.methods import INDEPENDENT, VARIANTS

Variant = Literal["+m*", "-m*", "+m", "-m"]


def precise_interval(
    rng: np.random.Generator,
    draws: Any,
    *,
    bounds: tuple[float, float],
    density_bound: float,
    samples: int,
    epsilon: float | None = None,
    mu: float | None = None,
    prob: float = 0.95,
    variant: Variant = "+m*",
    collapse: Any = "count",
    name: str = "parameter",
) -> PrivateInterval:
    """Return the interval of Algorithm 2, with the label "nominal".

    Parameters are those of `pymc_privacy.precise`, which see.

    Examples
    --------
    >>> rng = np.random.default_rng(1)
    >>> interval = precise_interval(
    ...     rng, rng.beta(31, 71, 50), bounds=(0, 1), density_bound=8.3, samples=50, epsilon=1.0
    ... )
    >>> interval.label
    'nominal'
    """
    prob = checked_prob(prob)
    title("name", name, error=GuaranteeError)
    tail = (1 - prob) / 2
    options = {"epsilon": epsilon, "mu": mu, "collapse": collapse, "variant": variant}
    lower, upper = precise_quantiles(
        rng,
        draws,
        (tail, 1 - tail),
        bounds=bounds,
        density_bound=density_bound,
        samples=samples,
        **options,
    )
    rule = collapse_rule(collapse)
    claimed: Guarantee
    if epsilon is not None:
        claimed = PureDP(epsilon, neighbours="replace_one")
    else:
        claimed = GaussianDP(mu, neighbours="replace_one")  # type: ignore[arg-type]
    supported = joint_guarantee(
        samples, epsilon=epsilon, mu=mu, total_variation=_most(density_bound, bounds)
    )
    return PrivateInterval(
        lower=lower,
        upper=upper,
        prob=prob,
        method=f"PRECISE {variant}",
        label="nominal",
        assumptions=(INDEPENDENT,),
        guarantee=None,
        claimed=claimed,
        supported=supported if rule.fixed else None,
        why=_reasons(samples, supported, rule),
        name=name,
    )


def precise_quantiles(
    rng: np.random.Generator,
    draws: Any,
    quantiles: Sequence[float],
    *,
    bounds: tuple[float, float],
    density_bound: float,
    samples: int,
    epsilon: float | None = None,
    mu: float | None = None,
    variant: Variant = "+m*",
    collapse: Any = "count",
) -> list[float]:
    """Return quantiles of one P3 histogram; their privacy is nominal, as that of the interval.

    Parameters
    ----------
    rng : np.random.Generator
    draws : array_like
        At least `samples` draws of one parameter.
    quantiles : sequence of float
        Any number of them: all are read off one noisy histogram.
    bounds, density_bound, samples, epsilon, mu, variant, collapse
        As for `pymc_privacy.precise`.

    Raises
    ------
    GuaranteeError
        If not one of epsilon and mu is given, there are fewer draws than `samples`, or an argument
        is out of its range.

    See Also
    --------
    precise : Intervals by this method, with a label.
    joint_guarantee : What the noise really supports.
    private_quantile : A quantile whose privacy is proven.

    References
    ----------
    - Zhou, R. and Liu, F. (2025), "PRECISE: PRivacy-loss-Efficient and Consistent Inference based
      on poSterior quantilEs", arXiv:2502.00192; "Liu et al." here.

    Examples
    --------
    >>> rng = np.random.default_rng(1)
    >>> [median] = precise_quantiles(
    ...     rng, rng.beta(31, 71, 50), [0.5], bounds=(0, 1), density_bound=8.3, samples=50, mu=5.0
    ... )
    >>> 0 < median < 1
    True
    """
    check_privacy(epsilon, mu)
    low, high = _check_bounds(bounds)
    samples = _check_samples(samples)
    bin_width = 1 / (2 * samples * _check_density(density_bound))
    if not isinstance(variant, str) or variant not in VARIANTS:
        wanted = f"one of {', '.join(VARIANTS)}"
        raise refusal("variant", wanted, variant, error=GuaranteeError)
    generator("rng", rng, error=GuaranteeError)
    points = reals("quantiles", quantiles, shapes=[("k",)], least=0, most=1, error=GuaranteeError)
    if not points.size:
        raise refusal("quantiles", "one or more", quantiles, error=GuaranteeError)
    histogram = p3_histogram(
        rng,
        thinned(draws, samples),
        bounds=(low, high),
        bin_width=bin_width,
        epsilon=epsilon,
        mu=mu,
        collapse=collapse_rule(collapse),
        nonnegative=variant.startswith("+"),
    )
    total = float(histogram.counts.sum()) if variant.endswith("*") else float(samples)
    return [histogram.quantile(rng, q, total=total) for q in points.tolist()]


def joint_guarantee(
    samples: int,
    *,
    epsilon: float | None = None,
    mu: float | None = None,
    total_variation: float = 1.0,
) -> Guarantee:
    """Return what noise of scale 1 / epsilon, or 1 / mu, on counts of draws really supports.

    Bins must not depend on the data. For pure privacy, epsilon' = m log(1 + TV (exp(2 epsilon) -
    1)): exchanging one draw changes two counts by one, hence the density of the noisy counts by at
    most exp(2 epsilon); exchanging the law of one independent draw for one at distance TV changes
    it by at most 1 + TV (exp(2 epsilon) - 1); and there are m of them. With TV = 1 it is
    2 m epsilon and holds for draws of any law. For Gaussian noise the counts move by sqrt(2) m at
    most, hence mu' = sqrt(2) m mu (trade-off functions are convex in the pair of laws).

    Parameters
    ----------
    samples : int
        The number of draws, m.
    epsilon, mu : float, optional
        One of the two: 1 / the scale of the noise.
    total_variation : float
        The largest between posteriors of neighbours, > 0; 1 if nothing is known.

    Raises
    ------
    GuaranteeError
        If not one of epsilon and mu is given, `samples` is not >= 1, total_variation is not in (0,
        1], or the result is no float.

    See Also
    --------
    precise : The method that this is about.
    compose : What several releases promise together.

    Examples
    --------
    >>> joint_guarantee(269, epsilon=0.1).epsilon
    53.8
    >>> round(joint_guarantee(269, epsilon=0.1, total_variation=0.0802).epsilon, 1)
    4.7
    """
    check_privacy(epsilon, mu)
    samples = _check_samples(samples)
    meaning = "with none the draws would not depend on the data"
    total_variation = real(
        "total_variation", total_variation, above=0, most=1, meaning=meaning, error=GuaranteeError
    )
    if mu is not None:
        return GaussianDP(math.sqrt(2) * samples * mu, neighbours="replace_one")
    assert epsilon is not None
    joint = 2 * samples * exactly(epsilon)
    if joint > sys.float_info.max:
        raise GuaranteeError(
            "What joint accounting supports must be a number that floats hold, 2 m epsilon; got "
            f"m = {samples} and epsilon = {epsilon!r}."
        )
    most = float(joint)
    if total_variation >= 1 or epsilon > 300:
        return PureDP(most, neighbours="replace_one")
    mixed = samples * math.log1p(total_variation * math.expm1(2 * epsilon))
    return PureDP(min(mixed, most), neighbours="replace_one")


def thinned(draws: Any, samples: int) -> np.ndarray:
    """Return that many of the draws, at equal distances in their order."""
    try:
        array = reals("draws", draws, shapes=[("m",)], error=GuaranteeError)
    except GuaranteeError:
        raise GuaranteeError(
            "draws must be a one-dimensional array of finite numbers, of one parameter; got "
            f"{_shape_of(draws)}."
        ) from None
    if array.size < samples:
        raise GuaranteeError(
            f"draws must be at least samples = {samples} (the m of the method, which no draw may "
            f"serve twice); got {array.size}."
        )
    return array[np.linspace(0, array.size - 1, samples).round().astype(int)]


def _shape_of(draws: Any) -> str:
    plain = isinstance(draws, np.ndarray) and not isinstance(draws, np.ma.MaskedArray)
    return f"shape {draws.shape}" if plain else kind_of(draws)


def _most(density_bound: float, bounds: tuple[float, float]) -> float:
    """Bound total variation by half the integral of density_bound over the bounds, and by 1."""
    return min(1.0, density_bound * (bounds[1] - bounds[0]) / 2)


def _reasons(samples: int, supported: Guarantee, rule: Collapse) -> tuple[str, ...]:
    reasons = [
        "The proof takes the sensitivity of one bin for that of the whole histogram: one record "
        f"can move all {samples} draws to other bins.",
        "The density bound is a large-sample limit at one parameter, not a supremum over data "
        "sets.",
    ]
    if rule.fixed:
        reasons.append(f"Joint accounting of the draws and this noise supports {supported}.")
    else:
        reasons += [
            "Collapsing by counts reads off where the draws end, and no noise hides that.",
            f"With fixed bins, joint accounting of the draws and this noise supports {supported}; "
            "with bins collapsed by counts it supports nothing.",
        ]
    reasons.append("Noise and quantiles are in floating point and from a seedable generator.")
    return tuple(reasons)


def check_privacy(epsilon: float | None, mu: float | None) -> None:
    """Refuse both budgets, or neither, or one that is none."""
    if (epsilon is None) == (mu is None):
        raise GuaranteeError(
            "One of epsilon= (Laplace noise) and mu= (Gaussian noise) must be given; got "
            f"{'neither' if epsilon is None else 'both'}."
        )
    # Constructing a guarantee checks the number and gives the sentence.
    PureDP(epsilon) if epsilon is not None else GaussianDP(mu)  # type: ignore[arg-type]


def _check_bounds(bounds: Any) -> tuple[float, float]:
    return pair("bounds", bounds, meaning="fixed before looking at the data", error=GuaranteeError)


def _check_samples(samples: Any) -> int:
    meaning = "the number m of posterior draws"
    return integer("samples", samples, least=1, meaning=meaning, error=GuaranteeError)


def _check_density(density_bound: Any) -> float:
    meaning = "the G of the method, how far the posterior density can move with one record"
    return positive("density_bound", density_bound, meaning=meaning, error=GuaranteeError)
