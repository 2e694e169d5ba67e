"""Centre and scale of a posterior, released with noise: for any posterior with known sensitivities.

Posterior mean and standard deviation, each divided by its sensitivity over its share of epsilon,
are rounded to a lattice and get discrete Laplace noise of scale 1: their L1 sensitivity is then the
sum of the shares. The interval is wide enough for an upper bound of the standard deviation and for
the noise of the mean together.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from scipy.optimize import brentq
from scipy.special import log_ndtr

from pymc_privacy.accounting import PureDP
from pymc_privacy.errors import ReleaseError
from pymc_privacy.sanitize.calibrate import exactly, laplace_scale
from pymc_privacy.sanitize.exact_noise import ExactNoise, Noise
from pymc_privacy.sanitize.families import Family, Summary
from pymc_privacy.sanitize.interval import Label, PrivateInterval, checked_prob
from pymc_privacy.sanitize.ledger import Ledger

_CELL = 2.0**-32  # of the noise scale
_FLOATS = 2.0**-45  # relative; means and deviations in floats are this accurate, and more
_SHARE = 0.6  # of epsilon, for the centre
_SAFE = 1 + 2.0**-20


def centre_scale_interval(
    records: Any,
    family: Family,
    *,
    epsilon: float,
    prob: float = 0.95,
    ledger: Ledger | None = None,
    name: str | None = None,
) -> PrivateInterval:
    """Release mean and standard deviation of a posterior whose sensitivities are known exactly.

    Parameters
    ----------
    records : array_like
    family : Family
        `Proportion`, `Rate`, `NormalMean` or `NormalVariance`; the posterior of a slope has no
        bounded sensitivity.
    epsilon : float
        Pure privacy; neighbours replace one record.
    prob : float
    ledger : Ledger, optional
    name : str, optional

    Returns
    -------
    PrivateInterval
        Proven; conservative.

    Examples
    --------
    >>> import pymc_privacy as pmp
    >>> interval = pmp.centre_scale_interval([0, 1, 1, 0] * 100, pmp.Proportion(), epsilon=1.0)
    >>> interval.label, 0.3 < interval.lower < interval.upper < 0.7
    ('proven', True)
    """
    summary = family.summary(records)
    if summary is None:
        raise ReleaseError(
            "The posterior must have a bounded sensitivity for its mean to be released; that of a "
            f"{family.name} has none. Use noise_aware_interval."
        )
    options: dict[str, Any] = {"epsilon": epsilon, "prob": prob, "ledger": ledger}
    options["name"] = name or family.name
    return _interval(summary, family.support, label="proven", assumptions=(), **options)


def summary_interval(
    draws: Any,
    *,
    centre_sensitivity: float,
    spread_sensitivity: float,
    largest_spread: float,
    bounds: tuple[float, float],
    epsilon: float,
    prob: float = 0.95,
    ledger: Ledger | None = None,
    name: str = "parameter",
) -> PrivateInterval:
    """Release mean and standard deviation of draws whose sensitivities somebody states.

    Parameters
    ----------
    draws : array_like
        Of one parameter of any posterior; values beyond the bounds are clipped.
    centre_sensitivity, spread_sensitivity : float
        Suprema over all pairs of neighbours of how far mean and standard deviation of the draws
        can move; there is no default. Draws are random themselves: the Monte Carlo error of both
        data sets is part of the sensitivity.
    largest_spread : float
        The largest standard deviation that any records could give.
    bounds : (float, float)
        Of the parameter.
    epsilon, prob, ledger, name
        As for `centre_scale_interval`.

    Returns
    -------
    PrivateInterval
        Conditional on the sensitivities.

    Examples
    --------
    >>> import numpy as np
    >>> import pymc_privacy as pmp
    >>> draws = np.random.default_rng(1).beta(109, 393, size=4000)
    >>> interval = pmp.summary_interval(
    ...     draws,
    ...     centre_sensitivity=0.003,
    ...     spread_sensitivity=0.002,
    ...     largest_spread=0.03,
    ...     bounds=(0, 1),
    ...     epsilon=1.0,
    ... )
    >>> interval.label
    'conditional'
    """
    values = np.clip(np.asarray(draws, dtype=np.float64).ravel(), *bounds)
    if values.size < 2 or not np.all(np.isfinite(values)):
        raise ReleaseError(f"draws must be two finite numbers or more; got {values.size}, or NaN.")
    numbers = (centre_sensitivity, spread_sensitivity, largest_spread)
    if not all(math.isfinite(x) and x > 0 for x in numbers):
        raise ReleaseError(
            "Sensitivities and the largest spread must be finite numbers > 0, and there is no "
            f"default, because the guarantee rests on them; got {numbers}."
        )
    summary = Summary(float(values.mean()), float(values.std()), *numbers)
    assumptions = (
        f"No neighbour moves the mean of the draws by more than {centre_sensitivity:g}, nor their "
        f"standard deviation by more than {spread_sensitivity:g}, Monte Carlo error included.",
    )
    options: dict[str, Any] = {"epsilon": epsilon, "prob": prob, "ledger": ledger, "name": name}
    low, high = float(bounds[0]), float(bounds[1])
    return _interval(summary, (low, high), label="conditional", assumptions=assumptions, **options)


def _interval(
    summary: Summary,
    support: tuple[float, float],
    *,
    label: Label,
    assumptions: tuple[str, ...],
    epsilon: float,
    prob: float,
    ledger: Ledger | None,
    name: str,
) -> PrivateInterval:
    guarantee = PureDP(epsilon, neighbours="replace_one")
    plan = Plan(summary, support, guarantee.epsilon)
    prob = checked_prob(prob)
    if ledger is not None:
        ledger.charge(guarantee, what=name)
    centre, spread = plan.published(ExactNoise(), 1)[0]
    lower, upper = plan.ends(float(centre), float(spread), prob)
    coverage = "Coverage: the posterior is nearly Normal, and its bounds clip hardly any record."
    return PrivateInterval(
        lower=lower,
        upper=upper,
        prob=prob,
        method="centre and scale",
        label=label,
        assumptions=(*assumptions, coverage),
        guarantee=guarantee,
        name=name,
    )


@dataclass(frozen=True)
class Plan:
    """How mean and standard deviation are published, and what interval follows.

    Parameters
    ----------
    summary : Summary
    support : (float, float)
        Of the parameter, and so of its mean.
    epsilon : float
    """

    summary: Summary
    support: tuple[float, float]
    epsilon: float

    @property
    def steps(self) -> tuple[float, float]:
        """Return how far noise of scale 1 moves centre and spread: sensitivity / share.

        Sensitivities are computed in floats; they are taken a little larger than they come out.
        """
        shares = _SHARE * self.epsilon / _SAFE, (1 - _SHARE) * self.epsilon / _SAFE
        summary = self.summary
        return summary.centre_sensitivity / shares[0], summary.spread_sensitivity / shares[1]

    @property
    def scale(self) -> float:
        """Return the scale of the noise, in cells, rounded up.

        One record moves the two numbers by epsilon together, and by two cells when they are
        rounded. What floats get wrong is bounded by the largest values there can be.
        """
        largest = max(abs(end) for end in self.support) / self.steps[0]
        largest += self.summary.largest_spread / self.steps[1]
        wrong = math.ceil(2 * largest * _FLOATS / _CELL) + 2
        moved = exactly(self.epsilon) * (1 + Fraction(_FLOATS)) / Fraction(_CELL) + 2 + wrong
        return laplace_scale(moved, self.epsilon)

    def published(self, noise: Noise, draws: int) -> np.ndarray:
        """Return noisy centre and spread, that many times, shape (draws, 2)."""
        values = self.summary.centre / self.steps[0], self.summary.spread / self.steps[1]
        cells = np.array([round(value / _CELL) for value in values], dtype=np.int64)
        drawn = np.reshape(noise.laplace(Fraction(self.scale), 2 * draws), (draws, 2))
        return (cells + drawn) * _CELL * np.array(self.steps)

    def ends(self, centre: float, spread: float, prob: float) -> tuple[float, float]:
        """Return the interval that follows from noisy centre and spread.

        The spread exceeds its upper bound with a tenth of the error, which leaves nine tenths for
        the rest.
        """
        error = 1 - prob
        noise = [self.scale * _CELL * step for step in self.steps]
        upper = spread + noise[1] * math.log(1 / (2 * error / 10))
        upper = min(max(upper, 0.0), self.summary.largest_spread)
        reach = _reach(upper, noise[0], 0.9 * error)
        low, high = self.support
        return float(np.clip(centre - reach, low, high)), float(np.clip(centre + reach, low, high))


def _reach(sd: float, scale: float, error: float) -> float:
    """Return w with P(|Normal(0, sd) + Laplace(scale)| > w) = error."""

    def excess(w: float) -> float:
        return 2 * normal_laplace_tail(w, sd, scale) - error

    return float(brentq(excess, 0.0, 40 * sd + scale * math.log(1 / error) * 3))


def normal_laplace_tail(w: float, sd: float, scale: float) -> float:
    """Return P(Normal(0, sd) + Laplace(scale) > w), w >= 0.

    With r = sd / scale and z = w / sd it is
    Phi(-z) + exp(r^2/2 - w/scale) Phi(z - r) / 2 - exp(r^2/2 + w/scale) Phi(-z - r) / 2.

    Examples
    --------
    >>> normal_laplace_tail(0.0, 1.0, 2.0)
    0.5
    """
    if sd <= 1e-9 * scale:
        return 0.5 * math.exp(-w / scale)
    r, z = sd / scale, w / sd
    first = math.exp(log_ndtr(-z))
    second = math.exp(r * r / 2 - w / scale + log_ndtr(z - r))
    third = math.exp(r * r / 2 + w / scale + log_ndtr(-z - r))
    return first + (second - third) / 2
