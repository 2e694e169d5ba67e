"""Streams of the paper's two experiments, by our sampler: who is asked what, and what is learned.

The prior is the paper's: mu ~ N(0, 10^4), sigma^2 ~ IG(1, 1).
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pymc as pm

import pymc_privacy as pmp

SIMULATED = (50.0, np.sqrt(10.0))
INCOMES = (51.78, 17.57)  # what was fitted to the incomes, which are not to be had
PRINTED = {1.0: 0.06, 2.0: 0.12, 5.0: 0.54, 10.0: 0.96}
"""Half the width of the intervals that the paper prints, in units of sigma."""


@cache
def model() -> pm.Model:
    """Return the model of both experiments."""
    with pm.Model() as made:
        mu = pm.Normal("mu", 0, 100)
        variance = pm.InverseGamma("variance", 1, 1)
        sigma = pm.Deterministic("sigma", pm.math.sqrt(variance))
        pm.Normal("x", mu, sigma)
    return made


def queries_of(method: str, epsilon: float, truth: tuple[float, float]) -> dict[str, Any]:
    """Return the arguments of `pmp.online` that ask as a method does."""
    mean, sd = truth
    if method == "printed interval":
        half = PRINTED[epsilon]

        def rule(rng: np.random.Generator, drawn: dict[str, Any]) -> pmp.Query:
            m, c = float(drawn["mu"]), max(float(drawn["sigma"]), 1e-6)
            return pmp.ClippedQuery(lower=m - half * c, upper=m + half * c, epsilon=epsilon)

        return {"queries": rule}
    if method.startswith("fixed"):
        half = float(method.split("±")[1].split()[0]) * sd
        fixed = pmp.ClippedQuery(lower=mean - half, upper=mean + half, epsilon=epsilon)
        return {"queries": lambda rng, drawn: fixed}
    kind, score = {
        "exact interval": ("clipped", "first"),
        "bins for mu": ("binned", "first"),
        "bins for both": ("binned", "a_optimal"),
        "harmonic interval": ("clipped", "harmonic"),
        "intervals with memory": ("clipped", "a_optimal"),
    }[method]
    return {"queries": kind, "score": score}


def learn(
    rng: np.random.Generator,
    method: str,
    epsilon: float,
    truth: tuple[float, float],
    *,
    users: int,
    draws: int,
) -> dict[str, float]:
    """Return posterior means and standard deviations of one stream."""
    arguments = queries_of(method, epsilon, truth)
    made = model()
    stream = pmp.online(
        made["x"],
        epsilon=epsilon,
        draws=draws,
        random_seed=int(rng.integers(2**31)),
        model=made,
        **arguments,
    )
    for record in rng.normal(*truth, users):
        query = stream.query()
        stream.update(query, query.simulate(rng, record))
    posterior = stream.result().posterior
    both = np.corrcoef(*(posterior[name].values.ravel() for name in ("mu", "sigma")))[0, 1]
    return {
        "mu": float(posterior["mu"].mean()),
        "mu_sd": float(posterior["mu"].std()),
        "sigma": float(posterior["sigma"].mean()),
        "sigma_sd": float(posterior["sigma"].std()),
        "correlation": float(both),
    }
