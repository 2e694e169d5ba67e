"""Linear regression of Ju et al., section 5: two confidential covariates, nine noisy moments.

The coefficients have unknown values; means, covariances and the error's variance are taken as
known, as in the paper. The model is compiled once: in units of its own scale the noise is the same
for every epsilon, so that the unit and the release are data, which are set anew for each replicate.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pymc as pm
import pytensor.tensor as pt

import pymc_privacy as pmp
from benchmarks.papers.inputs import regression

BOUND, VARIANCE, PRIOR_SD = 10.0, 2.0, 2.0
# The paper's p² + 3p + 3 for p = 2. It is enough: each of three variables moves (v, v²) by at most
# 9/4, and each of three products by at most 2, which makes 12.75.
SENSITIVITY = 13.0


def moments(a: Any, b: Any, c: Any) -> list[Any]:
    """Return x'y, y'y and x'x without its constant, of one record; arrays or tensors."""
    return [c, a * c, b * c, c * c, a, b, a * a, a * b, b * b]


def clamp(values: Any) -> Any:
    """Clamp to the public bounds and scale to [-1, 1]; works on arrays and on tensors."""
    return values.clip(-BOUND, BOUND) / BOUND


def mechanism(epsilon: float) -> pmp.Laplace:
    """Return the paper's noise."""
    return pmp.Laplace(epsilon=epsilon, sensitivity=SENSITIVITY, neighbours="replace_one")


def statistic() -> np.ndarray:
    """Return the nine sums of the confidential database."""
    data = regression()
    return statistic_of(data.covariates, data.response)


def statistic_of(covariates: np.ndarray, response: np.ndarray) -> np.ndarray:
    """Return the nine sums of any database."""
    parts = moments(*(clamp(v) for v in (*covariates.T, response)))
    return np.array([part.sum() for part in parts])


def confidential_mean() -> np.ndarray:
    """Return the posterior mean of the coefficients given the records themselves."""
    data = regression()
    x = np.column_stack([np.ones(len(data.response)), data.covariates])
    precision = x.T @ x / VARIANCE + np.eye(3) / PRIOR_SD**2
    return np.linalg.solve(precision, x.T @ data.response / VARIANCE)


def model(size: int | None = None) -> pm.Model:
    """Write the model of the records and of their release, both divided by the scale.

    There are as many records as in the database, if ``size`` does not say otherwise.
    """
    data = regression()
    size = size or len(data.response)
    with pm.Model() as written:
        beta = pm.Normal("beta", 0, PRIOR_SD, shape=3)
        x = pm.Normal("x", data.mean, 1.0, shape=(size, 2))
        mean = beta[0] + x[:, 0] * beta[1] + x[:, 1] * beta[2]
        y = pm.Normal("y", mean, np.sqrt(VARIANCE), shape=size)
        contributions = pt.stack(moments(*(clamp(v) for v in (x[:, 0], x[:, 1], y))), axis=1)
        scale, released = pm.Data("scale", 1.0), pm.Data("released", statistic())
        noise = pmp.Laplace(scale=1.0)
        pmp.Privatized("moments", contributions / scale, noise, observed=released)
    return written


def publish(written: pm.Model, rng: np.random.Generator, sums: np.ndarray, epsilon: float) -> None:
    """Release nine sums, and set the data of the model to that."""
    law = mechanism(epsilon)
    released = law.simulate(rng, sums)
    pm.set_data({"scale": law.scale, "released": released / law.scale}, model=written)


@cache
def compiled() -> tuple[pm.Model, list]:
    """Return the model and its step method, made once in each process."""
    written = model()
    return written, [pmp.Interweave(model=written)]


def posterior_mean(
    rng: np.random.Generator, epsilon: float, draws: int, tune: int
) -> dict[str, Any]:
    """Release the fixed database once more, fit, and return the posterior mean."""
    beta, accept = fit(rng, statistic(), epsilon, draws=draws, tune=tune)
    return {"mean": beta.mean(axis=0), "sd": beta.std(axis=0), **accept}


def fit(
    rng: np.random.Generator, sums: np.ndarray, epsilon: float, *, draws: int, tune: int
) -> tuple[np.ndarray, dict[str, float]]:
    """Release nine sums, and return draws of the coefficients, and what was accepted."""
    written, step = compiled()
    publish(written, rng, sums, epsilon)
    result = pm.sample(
        draws,
        tune=tune,
        chains=1,
        cores=1,
        step=step,
        model=written,
        var_names=["beta"],
        initvals={"beta": "prior", "x": "prior", "y": "prior"},
        random_seed=rng,
        progressbar=False,
        quiet=True,
        compute_convergence_checks=False,
    )
    swept = result["sample_stats"]
    return result["posterior"]["beta"].values[0], {
        "accept": swept["record_sweep_accept"].values.mean(),
        "accept_min": swept["record_sweep_accept_min"].values.min(),
    }
