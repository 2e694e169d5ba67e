"""Values of the likelihood of releases: unbiased Monte Carlo over databases, with an error.

L(q) is the mean, over databases drawn from the model, of the density of the releases. A plain
mean will do where the noise is not much narrower than the law of the statistic; elsewhere powers
of the density lead to it in steps (`pymc_privacy.algorithms.tempering`). Two values are compared by
the same random numbers, or by the integral of the score along the way from one to the other.
"""

from __future__ import annotations

import math

import numpy as np

from pymc_privacy.algorithms.ascent import combine
from pymc_privacy.algorithms.birth_death import log_noise
from pymc_privacy.algorithms.tempering import (
    Value,
    can_be_tempered,
    effective,
    mean_of_logs,
    stepping_stones,
    tempered,
)
from pymc_privacy.functions.calls import CompiledCall
from pymc_privacy.inference.imputation import Imputation
from pymc_privacy.inference.sweeping import Records
from pymc_privacy.model.points import Point
from pymc_privacy.targets.ascent import AscentTarget

FEW, MANY = 500, 20_000
# Fewer draws of equal weight than this say nothing about their own error.
LEAST_EFFECTIVE = 100
STONE_SWEEPS = 200
# How many times wider than its noise a proposal of the size takes a release to be.
_WIDER = 2.0
# Where the score is looked at on the way between two parameters, and for how long.
_NODES, _NODE_SWEEPS, _LEAST_SWEEPS = 6, 200, 30


class Likelihood:
    """The likelihood of a model's releases, of parameters in value coordinates."""

    def __init__(self, target: AscentTarget, point: Point):
        self._target, self._point = target, dict(point)
        self._apart = CompiledCall(target.program.functions["apart"])

    def value(self, q: np.ndarray, rng: np.random.Generator, *, error: float = 0.05) -> Value:
        """Return the log likelihood, with about as large an error as asked for."""
        parts = [self._of(records, q, rng, error) for records in self._records(q)]
        return Value(
            self._constant(q) + math.fsum(part.value for part in parts),
            math.sqrt(math.fsum(part.error**2 for part in parts)),
        )

    def _constant(self, q: np.ndarray) -> float:
        """Return the log density of whatever neither records nor sizes enter."""
        held = tuple(self._point[name] for name in self._target.program.held)
        return float(self._apart(np.asarray(q, float), *held)[0])

    def _records(self, q: np.ndarray) -> list[Records]:
        point = self._point | self._target.program.unflatten(np.asarray(q, float))
        records = [Records(scored) for scored in self._target.databases]
        for one in records:
            one.point = dict(point)
        return records

    def _of(self, records: Records, q: np.ndarray, rng: np.random.Generator, error: float) -> Value:
        """Return the log likelihood of one database."""
        if records.weight is not None and not records.noise.laws:
            return _by_rows(records, rng, error)
        logs = np.empty(0)
        while len(logs) < MANY:
            more = draws_of_logs(records, rng, max(len(logs), FEW))
            logs = np.concatenate([logs, more])
            found = mean_of_logs(logs)
            enough = effective(logs) >= LEAST_EFFECTIVE
            if enough and found.error <= error:
                return found
            # One in a hundred draws is enough to go on with; fewer are not.
            if len(logs) >= 4 * FEW and effective(logs) < 0.01 * len(logs):
                break
        if enough or not can_be_tempered(records.noise) or records.weight is not None:
            return found
        return _by_steps(records, rng)

    def difference(
        self, a: np.ndarray, b: np.ndarray, rng: np.random.Generator, effort: float = 1.0
    ) -> Value:
        """Return log L(a) - log L(b) by common random numbers, or by the score between them."""
        draws = max(LEAST_EFFECTIVE, round(2 * FEW * effort))
        if any(one.weight is not None for one in self._records(a)):
            return self._along(a, b, rng, effort)
        seeds = rng.integers(2**63, size=len(self._target.databases))
        total, variance = self._constant(a) - self._constant(b), 0.0
        for k, seed in enumerate(seeds):
            logs = [
                draws_of_logs(self._records(q)[k], np.random.default_rng(seed), draws)
                for q in (a, b)
            ]
            if min(map(effective, logs)) < LEAST_EFFECTIVE:
                return self._along(a, b, rng, effort)
            values = [mean_of_logs(one).value for one in logs]
            weights = [np.exp(one - value) for one, value in zip(logs, values, strict=True)]
            total += values[0] - values[1]
            variance += float(np.var(weights[0] - weights[1])) / draws
        return Value(total, math.sqrt(variance))

    def _along(
        self, a: np.ndarray, b: np.ndarray, rng: np.random.Generator, effort: float
    ) -> Value:
        """Integrate the score from b to a."""
        nodes, weights = np.polynomial.legendre.leggauss(_NODES)
        source = Imputation(self._target, rng, self._point)
        sweeps = max(_LEAST_SWEEPS, round(_NODE_SWEEPS * effort))
        slopes, variances = np.empty(_NODES), np.empty(_NODES)
        for k, node in enumerate((1 + nodes) / 2):
            q = b + node * (a - b)
            source.scores(q, 10)
            found = combine(source.scores(q, sweeps))
            slopes[k] = found.score @ (a - b)
            variances[k] = max(float((a - b) @ found.covariance @ (a - b)), 0.0)
        total = float(weights @ slopes) / 2
        # What a polynomial of lower degree leaves out says how well so few nodes know the integral.
        plain = np.polynomial.legendre.legfit(nodes, slopes, _NODES // 2)[0]
        return Value(total, math.hypot(math.sqrt(weights**2 @ variances) / 2, total - plain))


def draws_of_logs(records: Records, rng: np.random.Generator, draws: int) -> np.ndarray:
    """Draw databases given parameters; return the log of the density of all that is known of each.

    Its mean is unbiased for the likelihood. Where records have weights of their own, several
    candidates are drawn for each, and one is chosen in proportion to its weight.
    """
    point = records.point
    logs = np.empty(draws)
    if records.size is not None:
        sizes, extra = _sizes(records, rng, draws)
        for k in range(draws):
            _, contributions = records.draw(rng, point, int(sizes[k]))
            logs[k] = extra[k] + log_noise(records.noise, contributions.sum(axis=1))
        return logs
    for k in range(draws):
        if records.weight is None:
            _, contributions = records.draw(rng, point, records.capacity)
            extra_log = 0.0
        else:
            contributions, extra_log = _chosen(records, rng)
        logs[k] = extra_log + log_noise(records.noise, contributions.sum(axis=1))
    return logs


def _sizes(records: Records, rng: np.random.Generator, draws: int) -> tuple[np.ndarray, np.ndarray]:
    """Draw sizes near those that fit the releases, and return the log weight of each."""
    logs = records.log_sizes(records.point)
    fits = _fit_of_sizes(records, rng)
    guess = np.exp(logs + fits - np.max(logs + fits))
    plain = np.exp(logs - logs.max())
    proposal = 0.9 * guess / guess.sum() + 0.1 * plain / plain.sum()
    sizes = rng.choice(len(proposal), size=draws, p=proposal / proposal.sum())
    return sizes, logs[sizes] - np.log(proposal[sizes])


def _fit_of_sizes(records: Records, rng: np.random.Generator) -> np.ndarray:
    """Return, for each size, roughly the log density of the releases."""
    numbers = np.arange(records.capacity + 1)
    width = records.program.width
    if not records.has_additive_noise or not width:
        return np.zeros(len(numbers))
    _, sample = records.draw(rng, records.point, 400)
    mean, spread = sample.mean(axis=1), np.atleast_2d(np.cov(sample))
    noise = np.diag([_WIDER * scale**2 for _, scale in records.mechanisms])
    release = records.noise.release[:width]
    fits = np.empty(len(numbers))
    # Between a few sizes the covariance hardly changes; the mean does.
    for some in np.array_split(numbers, min(40, len(numbers))):
        covariance = noise + np.median(some) * spread
        gap = release[:, None] - np.outer(mean, some)
        fits[some] = -0.5 * (gap * np.linalg.solve(covariance, gap)).sum(axis=0)
        fits[some] -= 0.5 * np.linalg.slogdet(covariance)[1]
    return fits


def _chosen(records: Records, rng: np.random.Generator, candidates: int = 32) -> tuple:
    """Return the contributions of records chosen among candidates, and the log of mean weights."""
    weights, columns = [], []
    for _ in range(candidates):
        fresh, contributions = records.draw(rng, records.point, records.capacity)
        weights.append(records.log_weights(fresh))
        columns.append(contributions)
    logs = np.array(weights)
    # The largest of the sum of logs and exponential noise of Gumbel is a draw in proportion.
    chosen = np.argmax(logs + rng.gumbel(size=logs.shape), axis=0)
    picked = np.array(columns)[chosen, :, np.arange(logs.shape[1])].T
    peak = logs.max(axis=0)
    means = peak + np.log(np.mean(np.exp(logs - peak), axis=0))
    return picked, float(means.sum())


def _by_rows(records: Records, rng: np.random.Generator, error: float) -> Value:
    """Return the log likelihood of records that nothing ties together: a mean for each."""
    sums = squares = np.zeros(records.capacity)
    peak: np.ndarray | None = None
    for count in range(1, MANY + 1):
        fresh, _ = records.draw(rng, records.point, records.capacity)
        logs = records.log_weights(fresh)
        if peak is None:
            peak = logs
        weights = np.exp(np.clip(logs - peak, -700, 700))
        sums, squares = sums + weights, squares + weights**2
        if count % FEW == 0:
            means = sums / count
            relative = np.maximum(squares / count - means**2, 0) / means**2 / count
            # To second order: the log of a mean is too small by half of its relative variance.
            found = Value(
                float((peak + np.log(means) + relative / 2).sum()), math.sqrt(relative.sum())
            )
            if found.error <= error:
                break
    return found


def _by_steps(records: Records, rng: np.random.Generator) -> Value:
    """Return the log likelihood of one database by powers of the density of its releases."""
    plain, point = records.noise, dict(records.point)
    base = 0.0
    if records.size is not None:
        logs = records.log_sizes(point)
        base = float(logs.max() + np.log(np.exp(logs - logs.max()).sum()))
    records.start(rng, point)

    def draw(power: float) -> np.ndarray:
        records.noise = tempered(plain, power)
        found = np.empty(STONE_SWEEPS)
        for k in range(-5, STONE_SWEEPS):
            records.sweep(rng, point)
            if k >= 0:
                found[k] = log_noise(plain, records.contributions.sum(axis=1))
        return found

    found = stepping_stones(draw)
    return Value(base + found.value, found.error)
