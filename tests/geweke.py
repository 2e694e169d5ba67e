"""Geweke's check of a step method: parameters keep their prior if and only if it is right.

Draw a release given the records, move parameters and records given the release, and so on. The
release is drawn exactly, so the parameters keep following their prior if the step leaves their
posterior given any release invariant, and in general only then.
"""

from collections.abc import Callable, Mapping

import numpy as np
import pymc as pm

import pymc_privacy as pmp
from tests.stochastic import z_of_mean

Draws = dict[str, np.ndarray]


def build(family: Callable) -> tuple:
    """Write a model with a release that can be set anew; return it, its noise and its priors.

    ``family``, called inside the model, returns contributions, mechanism, and the prior law of
    each parameter to be watched by its name.
    """
    with pm.Model() as model:
        contributions, mechanism, priors = family()
        shape = () if contributions.ndim == 1 else (contributions.type.shape[1],)
        dtype = np.int64 if mechanism.discrete else np.float64
        data = pm.Data("data", np.zeros(shape, dtype=dtype))
        pmp.Privatized("s", contributions, mechanism, observed=data)
    return model, mechanism, priors


def natural(model, names) -> Callable:
    """Return the function from a point to the values of some scalar parameters."""
    function = model.compile_fn(
        model.replace_rvs_by_values([model[name] for name in names]),
        inputs=model.value_vars,
        on_unused_input="ignore",
    )
    return lambda point: [float(v) for v in function(point)]


def release(model, mechanism, rng, total: np.ndarray) -> None:
    """Publish a statistic, given as a vector, anew."""
    statistic = total if model["data"].ndim else total[0]
    # Sums of integers in floating point.
    drawn = mechanism.simulate(rng, np.rint(statistic) if mechanism.discrete else statistic)
    model["data"].set_value(np.asarray(drawn, dtype=model["data"].dtype))


def alternate(model, mechanism, priors, step, *, total_at, seed: int, rounds: int) -> Draws:
    """Alternate releases and steps; return each parameter's chain, with axes (chain, draw).

    ``total_at`` returns the statistic of the records of a point, as a vector; it is called before
    every step.
    """

    def publish(rng, point):
        release(model, mechanism, rng, total_at(point))

    return successive(model, priors, step, publish=publish, seed=seed, rounds=rounds)


def successive(model, priors, step, *, publish: Callable, seed: int, rounds: int) -> Draws:
    """Publish anew what is known of a point, by ``publish(rng, point)``, then step; and so on."""
    rng = np.random.default_rng(seed + 1)
    values_at = natural(model, list(priors))
    point = model.initial_point(seed)
    draws = []
    for _ in range(rounds):
        publish(rng, point)
        point, _ = step.step(point)
        draws.append(values_at(point))
    values = np.array(draws)
    return {name: values[None, :, k] for k, name in enumerate(priors)}


def largest_z(draws: Draws, priors: Mapping) -> float:
    """Return how far means and quantiles of the draws are from those of the priors."""
    scores = []
    for name, law in priors.items():
        scores.append(z_of_mean(draws[name], law.mean()))
        scores += [z_of_mean(draws[name] <= law.ppf(q), q) for q in (0.2, 0.5, 0.8)]
    return max(abs(z) for z in scores)
