"""Releases simulated from a fitted model, and what fits to them say: intervals and tests."""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Mapping
from concurrent.futures import Executor
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import cloudpickle
import numpy as np

from pymc_privacy.errors import ArgumentError, StudyError
from pymc_privacy.inference.direct import make_problem
from pymc_privacy.inference.problem import Problem
from pymc_privacy.results import labelled_draws
from pymc_privacy.studies import Study

# A refit is as near to its maximum as its own sampling error makes worthwhile.
NEAR_STEPS, CHECK_SWEEPS, TOLERANCE, MOST_SWEEPS = 20, 50, 0.3, 3000


class _Worker:
    """Simulate and refit, in any process; each makes its own machine code."""

    def __init__(self, fit: Any):
        # The name of what is run, for the file of the study; that of the class finds the class.
        self.__qualname__ = "bootstrap"
        self._problem, self._penalised = fit.fitting.problem, fit.fitting.penalised
        self._q, self._free = np.array(fit.q), np.array(fit.settings.free)
        self._written: bytes = b""

    def __getstate__(self) -> dict[str, Any]:
        written = self._written or cloudpickle.dumps(self._problem.user_model)
        return self.__dict__ | {"_problem": None, "_written": written}

    def __call__(self, rng: np.random.Generator) -> Mapping[str, Any]:
        if self._problem is None:
            self._problem = _made_before(self._written)
        problem = self._problem
        ours = problem.observed()
        try:
            problem.observe(problem.simulate(self._q, rng))
            q = refit(problem, self._q, self._free, rng, penalised=self._penalised)
        finally:
            problem.observe(ours)
        return {"q": q.tolist()}


_made: dict[str, Problem] = {}


def _made_before(written: bytes) -> Problem:
    """Return the compiled problem of a model, compiled once in each process."""
    key = hashlib.sha256(written).hexdigest()
    if key not in _made:
        _made[key] = make_problem(cloudpickle.loads(written))
    return _made[key]


def refit(
    problem: Problem,
    q: np.ndarray,
    free: np.ndarray,
    rng: np.random.Generator,
    *,
    penalised: bool,
) -> np.ndarray:
    """Return the maximum for the present releases, from where another one was."""
    quick = replace(problem.settings, free=free, near_steps=NEAR_STEPS, check_sweeps=CHECK_SWEEPS)
    climbed = problem.climb(
        [q],
        rng,
        settings=quick,
        tolerance=TOLERANCE,
        max_sweeps=MOST_SWEEPS,
        penalised=penalised,
    )
    return climbed.ends[0].q


def bootstrap(
    fit: Any,
    replicates: int,
    *,
    executor: Executor | None,
    seed: int,
    path: Any,
    progressbar: bool,
) -> np.ndarray:
    """Return the estimates from simulated releases, in coordinates, one per row."""
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder) / "bootstrap.jsonl" if path is None else path
        study = Study(_Worker(fit), {}, replicates=replicates, seed=seed, path=place)
        rows = study.run(executor, progressbar=progressbar)
    found = [row["q"] for row in rows if row["error"] is None]
    if len(found) < max(2, replicates // 2):
        errors = {row["error"] for row in rows if row["error"] is not None}
        raise StudyError(
            f"A bootstrap needs replicates that can be fitted; {len(rows) - len(found)} of "
            f"{len(rows)} could not: {'; '.join(sorted(map(str, errors))[:3])}"
        )
    return np.array(found)


def labelled_replicates(fit: Any, found: np.ndarray) -> Any:
    """Return estimates on the natural scale, by name, with a dimension ``replicate``."""
    problem = fit.fitting.problem
    natural = [problem.natural(q) for q in found]
    stacked = {name: np.stack([one[name] for one in natural]) for name in natural[0]}
    return labelled_draws(problem.user_model, stacked, "replicate")


def percentiles(
    fit: Any, found: np.ndarray, prob: float
) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Return the percentiles of the replicates of each number, on the natural scale.

    They hold the truth as often as they should wherever some scale exists on which estimates have
    a symmetric law about it (Efron, 1982); it need not be known. Noise of a mechanism is symmetric.
    Of R replicates the order statistic (R + 1) p is taken, which one more of them is below with
    probability p; those of other definitions lie further inside.
    """
    problem = fit.fitting.problem
    natural = [problem.natural(q) for q in found]
    tails = [(1 - prob) / 2, (1 + prob) / 2]
    ends = {}
    for name in natural[0]:
        draws = np.stack([one[name] for one in natural])
        low, high = np.quantile(draws, tails, axis=0, method="weibull")
        ends[name] = (low, high)
    return ends


class LikelihoodRatio(NamedTuple):
    """A test of one fit against another one that is a special case of it."""

    statistic: float
    """Twice the difference of the log likelihoods."""
    statistic_error: float
    p_value: float
    p_value_error: float
    replicates: np.ndarray
    """The statistic for releases simulated from the null fit."""


def likelihood_ratio(
    fit: Any, null_fit: Any, *, replicates: int = 100, random_seed: int = 0
) -> LikelihoodRatio:
    """Test whether releases can be explained by a special case of a model.

    The statistic is twice the difference of two log likelihoods. Its law is found by simulating
    releases from the null fit, and fitting both models to each of them: a release is one
    observation, so that a chi-square law is not to be taken for granted. That the null model is a
    special case of the other is not checked.

    Parameters
    ----------
    fit, null_fit : LikelihoodFit
        Of two models with the same releases; that of the special case second.
    replicates : int, default 100
    random_seed : int, default 0

    Returns
    -------
    LikelihoodRatio
        With ``statistic``, ``p_value``, and the Monte Carlo errors of both.

    Raises
    ------
    ArgumentError
        If the fits are not of the same releases.

    See Also
    --------
    maximum_likelihood : Makes the fits.

    References
    ----------
    - Davison, A. C. and Hinkley, D. V. (1997), "Bootstrap methods and their application",
      Cambridge University Press, section 4.2.

    Examples
    --------
    Is a coin fair?

    >>> import pymc as pm
    >>> import pymc_privacy as pmp
    >>> def coin(lower):
    ...     with pm.Model() as model:
    ...         p = pm.Uniform("p", lower, 1)
    ...         x = pm.Bernoulli("x", p, shape=100)
    ...         pmp.Privatized("s", x, pmp.Laplace(scale=2.0), observed=30.0)
    ...     return pmp.maximum_likelihood(model, random_seed=1, progressbar=False)
    >>> test = pmp.likelihood_ratio(coin(0.0), coin(0.5), replicates=19)
    >>> test.p_value <= 0.1
    True
    """
    fits = (fit, null_fit)
    if not all(hasattr(one, "fitting") for one in fits):
        raise ArgumentError("fit and null_fit must be results of maximum_likelihood.")
    data = [one.fitting.problem.observed() for one in fits]
    same = data[0].keys() == data[1].keys() and all(
        np.array_equal(data[0][name], data[1][name]) for name in data[0]
    )
    if not same:
        raise ArgumentError(
            "Two fits can be compared by their likelihoods only if both are of the same releases; "
            f"got {', '.join(data[0])} and {', '.join(data[1])}, with values that differ."
        )
    statistic = 2 * (fit.log_likelihood - null_fit.log_likelihood)
    error = 2 * float(np.hypot(fit.log_likelihood_error, null_fit.log_likelihood_error))
    draws = [
        _simulated_statistic(fit, null_fit, rng)
        for rng in np.random.default_rng(random_seed).spawn(replicates)
    ]
    found = np.array(draws)
    p_value = float((1 + np.sum(found >= statistic)) / (1 + replicates))
    return LikelihoodRatio(
        statistic,
        error,
        p_value,
        float(np.sqrt(p_value * (1 - p_value) / replicates)),
        found,
    )


def _simulated_statistic(fit: Any, null_fit: Any, rng: np.random.Generator) -> float:
    problems = [one.fitting.problem for one in (fit, null_fit)]
    before = [problem.observed() for problem in problems]
    try:
        simulated = problems[1].simulate(null_fit.q, rng)
        for problem in problems:
            problem.observe(simulated)
        null = _refitted(null_fit, {}, rng)
        # What explains the release best in the special case is a start for the other one.
        whole = _refitted(fit, problems[1].natural(null), rng)
        values = [
            problem.value(q, rng, 0.1).value
            for problem, q in zip(problems, (whole, null), strict=True)
        ]
    finally:
        for problem, data in zip(problems, before, strict=True):
            problem.observe(data)
    return 2 * (values[0] - values[1])


def _refitted(
    one: Any, elsewhere: Mapping[str, np.ndarray], rng: np.random.Generator
) -> np.ndarray:
    """Return the maximum for the present releases, from where it was and from elsewhere.

    Where it was at the boundary, that of other releases need not be: all coordinates move, and one
    start is where the model has its parameters.
    """
    problem = one.fitting.problem
    starts = [one.q]
    if len(one.settings.free) < problem.size:
        starts.append(problem.centre)
    inside = problem.natural(problem.centre)
    shared = {
        name: value
        for name, value in elsewhere.items()
        if name in inside and np.shape(value) == np.shape(inside[name])
    }
    if shared:
        with np.errstate(all="ignore"):
            there = problem.values(problem.natural(one.q) | shared)
        starts += [np.clip(there, *problem.settings.bounds)] if np.isfinite(there).all() else []
    free, penalised = problem.settings.free, one.fitting.penalised
    best, *others = (refit(problem, q, free, rng, penalised=penalised) for q in starts)
    for q in others:
        gain = problem.difference(q, best, rng)
        best = q if gain.value > 2 * gain.error else best
    return best
