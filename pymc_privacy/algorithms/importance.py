"""Draw parameters and base variates independently, with exact weights (leap importance sampling).

Records are x = T(q, u), where the law of u given the parameters q is p(u | q): the same for all q,
or nearly so. A draw comes from one of a few components,

    fresh:   q from a mixture m of Student laws, then u from p(u | q): a fresh database;
    leap k:  u from p(u | r_k), then q from g_k(q | u), a Student law where u says that q is likely
             to be: the frame of `algorithms.proposals.leaps` at the reference r_k.

Whichever it came from, its weight is the target over the whole mixture (Veach and Guibas, 1995),

    w = p(q) p(u | q) eta(s | S(q, u)) / [c_0 m(q) p(u | q) + sum_k c_k p(u | r_k) g_k(q | u)],

in which p(u | q) is needed up to a factor of u alone. The mean weight is the evidence p(s), without
bias. Where the noise is wide, fresh databases hit the release; where it is narrow, leaps do; and
since m has a wide part, w is bounded wherever the prior is.

What the components are is learnt from batches of draws that are used for nothing else (population
Monte Carlo, Cappé et al., 2008). Before the first batch points are needed near the posterior: each
comes from a draw of the prior by Gauss-Newton steps toward where the statistic of fresh records
meets the release, noise included.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from pymc_privacy.algorithms.machine_code.binding import Remember, bind
from pymc_privacy.algorithms.numerics.small_algebra import (
    add,
    copied,
    lower_times,
    solve_lower,
)
from pymc_privacy.algorithms.proposals import students
from pymc_privacy.algorithms.proposals.frames import Reference
from pymc_privacy.algorithms.proposals.leaps import draw_student, frame_given_base, local_frame
from pymc_privacy.algorithms.proposals.students import (
    Mixture,
    choose,
    log_diagonal,
    log_student_density,
    log_sum,
)
from pymc_privacy.algorithms.tempering import Value, effective, mean_of_logs

# Of the mixture m, this share is the prior's; of all draws, these are the least shares of fresh
# databases and of each leap.
WIDE, LEAST_FRESH, LEAST_LEAP = 0.1, 0.1, 0.05
# Slopes of the statistic are taken over this many standard deviations.
LENGTH_OF_SLOPES = 0.2
# A descent takes so many steps, none longer than this in standard deviations of the prior, and
# its last points are kept.
DESCENT_STEPS, LONGEST_STEP, KEPT_POINTS = 14, 1.5, 4
# Draws that a batch must be worth: its weights are flattened until it is.
LEAST_WORTH = 30


class Proposal(NamedTuple):
    """The components that draws come from, and what leaps are made of."""

    shares: Any
    """c: that of fresh databases, then those of leaps."""
    broad: Mixture
    """m"""
    points: Any
    """The reference of each leap."""
    lengths: Any
    """Over which slopes of the statistic are taken there."""
    precisions: Any
    noise_precision: Any
    means: Any
    """Of what is left of q once the frame has taken u into account; the factor below."""
    spreads: Any


class Data(NamedTuple):
    """What each function of a model reads besides its first arguments."""

    fresh: Any
    unweighted: Any
    released: Any
    weight: Any


class Batch(NamedTuple):
    """Some draws."""

    q: Any
    log_weights: Any
    logs: Any
    """The log density of each component at each draw, with its share."""
    residuals: Any
    """y with q = origin + L y, in the frame of each leap."""


class Estimate(NamedTuple):
    """What weights say."""

    log_evidence: Value
    effective: float
    """As many draws from the posterior would know its means as well."""


# Names of functions that a model provides; see `bind`.
def fresh(rng, q, *arguments):
    """Stand for a jitted draw of the base variates of fresh records given q."""
    raise NotImplementedError


def unweighted(q, *arguments):
    """Stand for a jitted log density of parameters and releases given base variates."""
    raise NotImplementedError


def weight(q, *arguments):
    """Stand for the jitted log density of base variates given q, up to a factor of these."""
    raise NotImplementedError


def propose(rng, proposal, draws, data):
    """Make some draws; ``data`` is a `Data`. Returns a `Batch`."""
    count, size = proposal.points.shape
    qs, log_weights = np.empty((draws, size)), np.empty(draws)
    logs, residuals = np.empty((draws, count + 1)), np.empty((draws, count, size))
    origins, factors = np.empty((count, size)), np.empty((count, size, size))
    volumes = np.empty(count)
    for k in range(count):
        volumes[k] = log_diagonal(proposal.spreads[k])
    for d in range(draws):
        chosen = choose(rng, proposal.shares)
        if chosen == 0:
            q = students.draw(rng, proposal.broad)
        else:
            q = copied(proposal.points[chosen - 1])
        fresh(rng, q, *data.fresh)
        for k in range(count):
            reference = Reference(
                proposal.points[k : k + 1],
                proposal.lengths[k],
                proposal.precisions[k],
                proposal.noise_precision,
                np.zeros(1),
                proposal.means[k],
                proposal.spreads[k],
                True,
            )
            frame = frame_given_base(reference, data.released)
            origins[k] = frame.origins[0]
            factors[k] = frame.factors[0]
        if chosen > 0:
            k = chosen - 1
            y = lower_times(proposal.spreads[k], draw_student(rng, size))
            add(y, 1.0, proposal.means[k])
            q = lower_times(factors[k], y)
            add(q, 1.0, origins[k])
        of_base = weight(q, *data.weight)[0].item()
        target = unweighted(q, *data.unweighted)[0].item() + of_base
        log_broad = students.log_density(q, proposal.broad)
        logs[d, 0] = math.log(proposal.shares[0]) + log_broad + of_base
        for k in range(count):
            y = copied(q)
            add(y, -1.0, origins[k])
            solve_lower(factors[k], y)
            residuals[d, k] = y
            t = copied(y)
            add(t, -1.0, proposal.means[k])
            solve_lower(proposal.spreads[k], t)
            volume = volumes[k] + log_diagonal(factors[k])
            logs[d, k + 1] = math.log(proposal.shares[k + 1]) + log_student_density(t) - volume
            logs[d, k + 1] += weight(proposal.points[k], *data.weight)[0].item()
        log_weight = target - log_sum(logs[d])
        # Not a number, outside of the support, is no weight.
        log_weights[d] = log_weight if log_weight > -math.inf else -math.inf
        qs[d] = q
    return qs, log_weights, logs, residuals


def compile_proposals(functions: dict[str, Any], *, remember: Remember | None = None) -> Any:
    """Compile `propose` for the jitted functions of a model by name."""
    known = {"misfit": functions["released"]}
    frame = bind(local_frame, known, label="frame", remember=remember)
    names = {name: functions[name] for name in ("fresh", "unweighted", "weight")}
    names["frame_given_base"] = frame
    return bind(propose, names, label="importance", remember=remember)


class Landscape(NamedTuple):
    """What a search for the posterior looks at."""

    fresh: Callable[[np.random.Generator, np.ndarray], Any]
    """Draws base variates given q."""
    misfit: Callable[[np.ndarray, Any], np.ndarray]
    """The statistic less the release."""
    noise_precision: np.ndarray
    prior: np.ndarray
    """Draws of the parameters from their prior."""


def descents(rng: np.random.Generator, landscape: Landscape, starts: int) -> np.ndarray:
    """Return points near the posterior, several from each of some draws of the prior.

    Each step draws records afresh, takes the statistic to be linear in q, and goes to where the
    density of Normal noise and a Normal law around the draw is largest, for a release with noise
    added once more: where the prior is Normal and all of that is exact, the point is a draw from
    the posterior. Where the prior has several modes, each of them is started from, and not left
    for the sake of another.
    """
    _, scale = centre_and_scale(landscape.prior)
    reached = [descent(rng, landscape, q, scale) for q in landscape.prior[:starts]]
    return np.concatenate(reached)


def centre_and_scale(draws: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return medians and scales of draws, whatever their tails."""
    lower, middle, upper = np.quantile(draws, [0.16, 0.5, 0.84], axis=0)
    return middle, np.maximum(0.5 * (upper - lower), 1e-6 * (1 + np.abs(middle)))


def descent(
    rng: np.random.Generator,
    landscape: Landscape,
    q: np.ndarray,
    scale: np.ndarray,
) -> np.ndarray:
    """Return the last points of one descent, one in each row."""
    noise, path, start = landscape.noise_precision, [], q
    precision = np.diag(scale**-2.0)
    lengths = 0.5 * scale
    for _ in range(DESCENT_STEPS):
        u = landscape.fresh(rng, q)
        here = landscape.misfit(q, u) + rng.standard_normal(noise.size) / np.sqrt(noise)
        slopes = np.stack(
            [(landscape.misfit(q + step, u) - landscape.misfit(q, u)) for step in np.diag(lengths)]
        )
        slopes /= lengths[:, None]
        curved = precision + slopes * noise @ slopes.T
        pull = slopes @ (noise * here) + precision @ (q - start)
        if not (np.isfinite(curved).all() and np.isfinite(pull).all()):
            break
        step = -np.linalg.solve(curved, pull)
        longest = np.max(np.abs(step) / scale) / LONGEST_STEP
        q = q + step / max(longest, 1.0)
        # Slopes are those of the neighbourhood that steps have come down to.
        lengths = np.clip(np.sqrt(np.diag(np.linalg.inv(curved))), 1e-6 * scale, 0.5 * scale)
        path.append(q)
    kept = np.array(path[-KEPT_POINTS:]).reshape(-1, len(q))
    return kept if len(path) == DESCENT_STEPS else kept[:0]


def first(points: np.ndarray, landscape: Landscape) -> Proposal:
    """Return a proposal for points that are roughly where the posterior is."""
    return _around(students.learn(points, np.ones(len(points))), landscape)


def _around(found: Mixture, landscape: Landscape) -> Proposal:
    """Return a proposal whose leaps have the components of a mixture as references."""
    count, size = found.means.shape
    return Proposal(
        least_shares(np.concatenate([[0.3], 0.7 * found.shares])),
        students.joined(found, _wide(landscape.prior), WIDE),
        found.means,
        LENGTH_OF_SLOPES * np.linalg.norm(found.factors, axis=2),
        np.linalg.inv(found.factors @ found.factors.transpose(0, 2, 1)),
        landscape.noise_precision,
        np.zeros((count, size)),
        np.stack([1.2 * np.eye(size)] * count),
    )


def _wide(prior: np.ndarray) -> Mixture:
    """Return a mixture that is wherever draws of the prior are: around each mode, and far out."""
    mean, scale = centre_and_scale(prior)
    middle = Mixture(np.ones(1), mean[None], np.diag(scale)[None])
    whole = students.joined(students.learn(prior, np.ones(len(prior))), middle, 0.5)
    return whole._replace(factors=1.2 * whole.factors)


def least_shares(shares: np.ndarray) -> np.ndarray:
    """Return shares that leave no component out."""
    least = np.full(len(shares), LEAST_LEAP)
    least[0] = LEAST_FRESH
    shares = shares / shares.sum()
    return least + (1 - least.sum()) * shares


def flattened(log_weights: np.ndarray, worth: float) -> np.ndarray:
    """Return weights that add to one, to a power at which they are worth enough draws."""
    power = 1.0
    while effective(power * log_weights) < worth and power > 0.01:
        power *= 0.7
    weights = np.exp(power * (log_weights - log_weights.max()))
    return weights / weights.sum()


def learn_where(batch: Batch, landscape: Landscape) -> Proposal:
    """Return a proposal whose references are where a batch has found the posterior."""
    weights = flattened(batch.log_weights, _worth(batch))
    kept = weights > 0
    return _around(students.learn(batch.q[kept], weights[kept]), landscape)


def learn_how(batch: Batch, proposal: Proposal) -> Proposal:
    """Return the proposal with its leaps and shares as a batch says that they should be."""
    weights = flattened(batch.log_weights, _worth(batch))
    with np.errstate(invalid="ignore"):
        logs = np.where(np.isfinite(batch.logs), batch.logs, -np.inf)
        parts = np.exp(logs - np.logaddexp.reduce(logs, axis=1)[:, None])
    parts = weights[:, None] * np.nan_to_num(parts)
    means, spreads = proposal.means.copy(), proposal.spreads.copy()
    size = means.shape[1]
    for k in range(len(means)):
        ours = parts[:, k + 1] / max(parts[:, k + 1].sum(), 1e-300)
        worth = 1 / max(np.sum(ours**2), 1e-300)
        y = batch.residuals[:, k]
        if worth < 2 * size + 2 or not np.isfinite(y[ours > 0]).all():
            continue
        y = np.where(ours[:, None] > 0, y, 0.0)
        mean = ours @ y
        covariance = (ours[:, None] * (y - mean)).T @ (y - mean)
        trust = worth / (worth + 5 * size)
        covariance = trust * covariance + (1 - trust) * np.diag(np.diag(covariance))
        means[k] = mean
        spreads[k] = np.linalg.cholesky(1.1 * covariance + 1e-2 * np.eye(size))
    return proposal._replace(shares=least_shares(parts.sum(axis=0)), means=means, spreads=spreads)


def _worth(batch: Batch) -> float:
    return max(LEAST_WORTH, 6.0 * batch.q.shape[1])


def estimate(log_weights: np.ndarray) -> Estimate:
    """Return the evidence and what the draws are worth."""
    return Estimate(mean_of_logs(log_weights), effective(log_weights))


def resampled(rng: np.random.Generator, log_weights: np.ndarray, draws: int) -> np.ndarray:
    """Return which draws to take so that all of them count alike, in random order.

    Each is taken as often as its weight says, rounded up or down at random (systematic
    resampling): none of a weight below the mean of those taken is taken twice.

    Examples
    --------
    >>> sorted(resampled(np.random.default_rng(1), np.log([1.0, 1.0, 2.0]), 4).tolist())
    [0, 1, 2, 2]
    """
    weights = np.exp(log_weights - log_weights.max())
    order = rng.permutation(len(weights))
    ends = np.cumsum(weights[order])
    places = (rng.random() + np.arange(draws)) / draws * ends[-1]
    found = np.minimum(np.searchsorted(ends, places, side="right"), len(order) - 1)
    return rng.permutation(order[found])


def effective_draws(taken: np.ndarray) -> float:
    """Return how many different draws are worth as much as these, some of which are the same.

    Examples
    --------
    >>> round(effective_draws(np.array([0, 0, 1])), 3)
    1.8
    """
    _, copies = np.unique(taken, return_counts=True)
    return float(copies.sum() ** 2 / np.sum(copies**2))
