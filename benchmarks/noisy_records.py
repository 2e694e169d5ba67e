"""Clipped, noised records: imputed, summed out by `pmp.sample`, or summed out under NUTS.

    python -m benchmarks.noisy_records [--docs] [--others]

Normal records, which are summed out in closed form; with ``--others`` records of other laws, which
`pmp.sample` imputes and NUTS integrates out by quadrature.

Each way samples the same releases in one process, one chain of 1000 draws after 1000 of tuning, on
one thread. CPU seconds without compilation, divided into the effective draws of the parameter that
has fewest. Records that are multiplied by one are not recognised, and so imputed.
"""

from __future__ import annotations

import argparse
import logging
import time
from typing import Any

import arviz as az
import numpy as np
import pymc as pm
import pytensor.tensor as pt

import pymc_privacy as pmp
from benchmarks.interval_study.pages import replace_between
from benchmarks.papers.inputs import ROOT
from benchmarks.papers.pages import markdown
from pymc_privacy.densities import clipped_records

PAGE = ROOT / "docs" / "performance.md"
MARKER, OTHERS = "noisy records", "other noisy records"
ENDS = (-2.0, 4.0)
WAYS = ("imputed", "summed out", "NUTS")
DRAWS = 1000
LAWS: dict[str, tuple[tuple[float, ...], Any, Any]] = {
    "exponential": ((2.0,), pm.Exponential, lambda rng, n: rng.exponential(0.5, n)),
    "gamma": ((3.0, 2.0), pm.Gamma, lambda rng, n: rng.gamma(3.0, 0.5, n)),
}
"""Parameters, the distribution, and draws of records that are clipped to [0, 4]."""


def releases(noise: str, epsilon: float, size: int) -> tuple[pmp.Laplace | pmp.Gaussian, Any]:
    """Return a mechanism, and what users of N(1, 2²) published by it."""
    rng = np.random.default_rng([size, int(10 * epsilon)])
    width = ENDS[1] - ENDS[0]
    mechanism: pmp.Laplace | pmp.Gaussian
    if noise == "Laplace":
        mechanism = pmp.Laplace(epsilon=epsilon, sensitivity=width)
    else:
        mechanism = pmp.Gaussian(scale=width / epsilon)
    return mechanism, mechanism.simulate(rng, np.clip(rng.normal(1.0, 2.0, size), *ENDS))


def model_of(way: str, mechanism: Any, observed: np.ndarray) -> pm.Model:
    """Return the model as each way takes it."""
    with pm.Model() as model:
        mu, sigma = pm.Normal("mu", 0, 10), pm.HalfNormal("sigma", 5)
        if way == "NUTS":
            law = pm.Normal.dist(mu, sigma)
            pmp.NoisyRecord("y", law, mechanism, lower=ENDS[0], upper=ENDS[1], observed=observed)
            return model
        x = pm.Normal("x", mu, sigma, shape=len(observed))
        clipped = pt.clip(x, *ENDS)
        if way == "imputed":
            clipped = clipped * 1.0
        pmp.Privatized("y", clipped, mechanism, local=True, observed=observed)
    return model


def other_model(way: str, law: str, mechanism: Any, observed: np.ndarray) -> pm.Model:
    """Return a model of records of another law, with log-normal priors around the truth."""
    truth, kind, _ = LAWS[law]
    with pm.Model() as model:
        given = [pm.LogNormal(f"p{k}", np.log(one), 1.0) for k, one in enumerate(truth)]
        if way == "NUTS":
            pmp.NoisyRecord("y", kind.dist(*given), mechanism, lower=0, upper=4, observed=observed)
        else:
            x = kind("x", *given, shape=len(observed))
            pmp.Privatized("y", pt.clip(x, 0, 4), mechanism, local=True, observed=observed)
    return model


def measure(way: str, model: pm.Model) -> dict[str, float]:
    """Return effective draws per CPU second, and mean and sd of the first parameter."""
    quiet: dict[str, Any] = {"chains": 1, "progressbar": False, "random_seed": 1, "quiet": True}
    with model:
        # Compiled before the clock runs.
        step: Any = pm.NUTS() if way == "NUTS" else pmp.Interweave()
        began = time.process_time()
        draw = pm.sample if way == "NUTS" else pmp.sample
        result = draw(DRAWS, tune=DRAWS, step=step, compute_convergence_checks=False, **quiet)
        seconds = time.process_time() - began
    posterior = result.posterior
    names = [name for name in posterior.data_vars if posterior[name].ndim == 2]
    effective = az.ess(posterior.dataset, var_names=names)
    fewest = min(float(effective[name]) for name in names)
    mean, sd = float(posterior[names[0]].mean()), float(posterior[names[0]].std())
    return {"effective": fewest, "per_second": fewest / seconds, "mean": mean, "sd": sd}


def table(rows: list[list[Any]], header: list[str]) -> str:
    """Lay the rates out."""
    return (
        "Effective draws of the worst parameter per CPU second (of 1000 draws, how many are "
        f"effective).\n\n{markdown(header, rows)}"
    )


def others(options: argparse.Namespace) -> str:
    """Measure records of other laws, clipped to [0, 4], with Laplace noise."""
    rows = []
    for law, (_, _, draw) in LAWS.items():
        for epsilon in options.epsilons:
            for size in options.sizes:
                rng = np.random.default_rng([size, int(10 * epsilon)])
                mechanism = pmp.Laplace(epsilon=epsilon, sensitivity=4.0)
                observed = mechanism.simulate(rng, np.clip(draw(rng, size), 0, 4))
                ways = ("imputed", "NUTS")
                found = [measure(way, other_model(way, law, mechanism, observed)) for way in ways]
                cells = [f"{one['per_second']:.0f} ({one['effective']:.0f})" for one in found]
                ratio = found[1]["per_second"] / found[0]["per_second"]
                rows.append([f"{law}, {epsilon:g}, {size}", *cells, f"{ratio:.1f}"])
                print(*rows[-1], [round(one["mean"], 2) for one in found], sep="  ", flush=True)
    return table(rows, ["law, epsilon, users", "imputed", "NUTS", "NUTS / imputed"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--docs", action="store_true", help="write the table into the docs too")
    parser.add_argument("--sizes", type=int, nargs="+", default=[100, 1000, 10_000])
    parser.add_argument("--epsilons", type=float, nargs="+", default=[0.5, 1.0, 4.0])
    parser.add_argument("--others", action="store_true", help="records that are not Normal")
    options = parser.parse_args()
    logging.getLogger("pymc").setLevel(logging.ERROR)
    text = others(options) if options.others else normal(options)
    if options.docs:
        marker = OTHERS if options.others else MARKER
        PAGE.write_text(replace_between(PAGE.read_text(), marker, text))


def normal(options: argparse.Namespace) -> str:
    """Measure Normal records, with both kinds of noise."""
    # Summed out also where imputing is known to be faster.
    clipped_records.many_records = max(options.sizes)
    rows = []
    for noise in ("Laplace", "Gaussian"):
        for epsilon in options.epsilons:
            for size in options.sizes:
                given = releases(noise, epsilon, size)
                found = [measure(way, model_of(way, *given)) for way in WAYS]
                rates = [one["per_second"] for one in found]
                cells = [f"{one['per_second']:.0f} ({one['effective']:.0f})" for one in found]
                ratios = [f"{rate / rates[0]:.1f}" for rate in rates[1:]]
                rows.append([f"{noise}, {epsilon:g}, {size}", *cells, *ratios])
                print(*rows[-1], [round(one["mean"], 2) for one in found], sep="  ", flush=True)
    header = ["noise, epsilon, users", *WAYS, "summed out / imputed", "NUTS / imputed"]
    return table(rows, header)


if __name__ == "__main__":
    main()
