"""Effective draws per sweep and per second: our moves, and the algorithm of the papers.

    python -m benchmarks.mixing [--beds …] [--epsilons …] [--output FILE] [--docs]

Each bed is one simulated release. "Ours" is `Interweave`, which `pm.sample` chooses by itself;
"sweep and NUTS" is Algorithm 1 of Ju et al. (2022) with NUTS for the parameters; "nutpie" is NUTS
on parameters and standardised records together, where it is installed. The worst parameter
counts. Seconds are CPU seconds of the whole `pm.sample` after compilation, tuning left out in
proportion, and all samplers run in one process, one after the other. An effective size below
about a hundred is itself unreliable: such a chain has not converged. Each finished line is kept, so
that a run that was interrupted goes on where it stopped.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pymc as pm
import pytensor.tensor as pt

import pymc_privacy as pmp
from benchmarks.measuring import timed_when_compiled, two_figures, worst_effective
from benchmarks.papers import naive_bayes
from benchmarks.papers.inputs import CLASSES, FEATURES, LEVELS
from benchmarks.papers.pages import write
from pymc_privacy.model.columns import column_sums
from pymc_privacy.model.marks import is_record

EPSILONS = (0.01, 0.1, 1.0, 10.0)
RESULTS = Path(__file__).parent / "results" / "mixing.json"
DOCS = Path(__file__).parents[1] / "docs" / "performance.md"


def _gaussian_release(epsilon: float, size: int):
    rng = np.random.default_rng(0)
    records = np.clip(rng.normal(0.5, 1.5, size=size), -5, 5)
    mechanism = pmp.Laplace(epsilon=epsilon, sensitivity=35.0)
    return mechanism, mechanism.simulate(rng, np.array([records.sum(), (records**2).sum()]))


def gaussian_bed(epsilon: float, size: int = 1000) -> pm.Model:
    """Mean and standard deviation of clamped Normal records, from two noisy moments."""
    mechanism, released = _gaussian_release(epsilon, size)
    with pm.Model() as model:
        mu = pm.Normal("mu", 0, 3)
        sigma = pm.HalfNormal("sigma", 2)
        x = pm.Normal("x", mu, sigma, shape=size)
        clipped = pt.clip(x, -5, 5)
        pmp.Privatized("s", pt.stack([clipped, clipped**2], axis=1), mechanism, observed=released)
    return model


def _moments(a, b, c):
    return [a, b, a * a, a * b, b * b, c, a * c, b * c, c * c]


def _regression_release(epsilon: float, size: int):
    """Simulate section 6.1 of Awan et al.: clamped to [-5, 5], scaled to [-1, 1], Delta = 9."""
    rng = np.random.default_rng(0)
    covariates = rng.normal([1, -1], 1, size=(size, 2))
    response = covariates @ [-1.0, 1.0] + rng.normal(size=size)
    clamped = [np.clip(v, -5, 5) / 5 for v in (*covariates.T, response)]
    mechanism = pmp.Laplace(epsilon=epsilon, sensitivity=9.0)
    return mechanism, mechanism.simulate(rng, np.array([m.sum() for m in _moments(*clamped)]))


def _regression_priors():
    """Write the priors of that section; the precision matrix is Wishart by Bartlett's theorem."""
    tau = pm.Gamma("tau", 1, 1)
    beta = pm.Normal("beta", 0, 1 / pt.sqrt(tau), shape=3)
    mu = pm.Normal("mu", 0, 1, shape=2)
    squares = pm.ChiSquared("squares", nu=np.array([2.0, 1.0]), shape=2)
    below = pm.Normal("below", 0, 1)
    # With Phi = A Aᵀ, the covariance is B Bᵀ for B the inverse of Aᵀ.
    first, second = 1 / pt.sqrt(squares[0]), 1 / pt.sqrt(squares[1])
    return beta, tau, mu, (first, -below * first * second, second)


def _regression_contributions(x0, x1, y):
    return pt.stack(_moments(*(pt.clip(v, -5, 5) / 5 for v in (x0, x1, y))), axis=1)


def regression_bed(epsilon: float, size: int = 1000) -> pm.Model:
    """Linear regression on two confidential covariates, from nine noisy moments."""
    mechanism, released = _regression_release(epsilon, size)
    with pm.Model() as model:
        beta, tau, mu, (b00, b01, b11) = _regression_priors()
        factor = pt.stack([pt.stack([b00, b01]), pt.stack([0.0, b11])])
        x = pm.MvNormal("x", mu, cov=factor @ factor.T, shape=(size, 2))
        mean = beta[0] + x[:, 0] * beta[1] + x[:, 1] * beta[2]
        y = pm.Normal("y", mean, 1 / pt.sqrt(tau), shape=size)
        contributions = _regression_contributions(x[:, 0], x[:, 1], y)
        pmp.Privatized("s", contributions, mechanism, observed=released)
    return model


def noncentred_regression(epsilon: float, size: int = 1000) -> pm.Model:
    """Write the same model with standardised records, for NUTS on everything."""
    mechanism, released = _regression_release(epsilon, size)
    with pm.Model() as model:
        beta, tau, mu, (b00, b01, b11) = _regression_priors()
        z = pm.Normal("z", shape=(size, 2))
        e = pm.Normal("e", shape=size)
        x0, x1 = mu[0] + b00 * z[:, 0] + b01 * z[:, 1], mu[1] + b11 * z[:, 1]
        y = beta[0] + x0 * beta[1] + x1 * beta[2] + e / pt.sqrt(tau)
        _potential(mechanism, released, _regression_contributions(x0, x1, y))
    return model


def _potential(mechanism, released: np.ndarray, contributions) -> None:
    """Write the density of a release whose contributions depend on parameters."""
    pm.Potential("s", mechanism.log_density(released, column_sums(contributions)).sum())


def small_regression_bed(epsilon: float) -> pm.Model:
    """Write the regression with a hundred records."""
    return regression_bed(epsilon, 100)


def noncentred_small_regression(epsilon: float) -> pm.Model:
    """Write the same with standardised records."""
    return noncentred_regression(epsilon, 100)


def noncentred_gaussian(epsilon: float, size: int = 1000) -> pm.Model:
    """Write the Gaussian bed with standardised records."""
    mechanism, released = _gaussian_release(epsilon, size)
    with pm.Model() as model:
        mu = pm.Normal("mu", 0, 3)
        sigma = pm.HalfNormal("sigma", 2)
        clipped = pt.clip(mu + sigma * pm.Normal("z", shape=size), -5, 5)
        _potential(mechanism, released, pt.stack([clipped, clipped**2], axis=1))
    return model


def naive_bayes_bed(epsilon: float, size: int = 100) -> pm.Model:
    """Section 4 of Ju et al.: five classes, five features of three levels, all counts noisy."""
    rng = np.random.default_rng(0)
    p = rng.dirichlet(np.full(CLASSES, 2.0))
    tables = rng.dirichlet(np.full(LEVELS, 2.0), size=(FEATURES, CLASSES))
    group = rng.choice(CLASSES, size=size, p=p)
    cells = [[rng.choice(LEVELS, p=tables[k, g]) for g in group] for k in range(FEATURES)]
    counts = [
        ((group == i) & (np.array(cells[k]) == j)).sum()
        for k in range(FEATURES)
        for i in range(CLASSES)
        for j in range(LEVELS)
    ]
    released = naive_bayes.mechanism(epsilon).simulate(rng, np.array(counts, dtype=float))
    return naive_bayes_model(released, epsilon, size)


def naive_bayes_model(released: np.ndarray, epsilon: float, size: int) -> pm.Model:
    """Write that model for a release of its counts, by feature, class and level."""
    with pm.Model() as model:
        p = pm.Dirichlet("p", np.full(CLASSES, naive_bayes.PRIOR))
        tables = pm.Dirichlet("tables", np.full(naive_bayes.SHAPE, naive_bayes.PRIOR))
        group = pm.Categorical("group", p, shape=size)
        parts = []
        for k in range(FEATURES):
            feature = pm.Categorical(f"feature_{k}", tables[k][group], shape=size)
            parts += [
                pt.eq(group, i) & pt.eq(feature, j) for i in range(CLASSES) for j in range(LEVELS)
            ]
        contributions = pt.stack([part.astype("float64") for part in parts], axis=1)
        mechanism = naive_bayes.mechanism(epsilon)
        pmp.Privatized("counts", contributions, mechanism, observed=released)
    return model


def dirichlet_bed(epsilon: float, size: int = 5000) -> pm.Model:
    """Compositions of three parts, from noisy sums of clamped logarithms (Awan et al., 6.2)."""
    rng = np.random.default_rng(0)
    least = 1 / 1440
    records = rng.dirichlet([6.0, 3.0, 12.0], size=size)
    mechanism = pmp.Laplace(epsilon=epsilon, sensitivity=-3 * np.log(least))
    released = mechanism.simulate(rng, np.log(np.clip(records, least, 1)).sum(axis=0))
    with pm.Model() as model:
        alpha = pm.Gamma("alpha", 1, 0.1, shape=3)
        x = pm.Dirichlet("x", alpha, shape=(size, 3))
        logs = pt.stack([pt.log(pt.clip(x[:, k], least, 1)) for k in range(3)], axis=1)
        pmp.Privatized("s", logs, mechanism, observed=released)
    return model


def covariates_bed(epsilon: float, covariates: int = 10, size: int = 10_000) -> pm.Model:
    """Linear regression on many confidential covariates, from products of any two columns."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(size, covariates))
    y = x @ rng.normal(0, 0.5, size=covariates) + rng.normal(size=size)
    released_of = _products([*x.T, y])
    # Every column lies in [-1, 1], so that a record changes each sum by 2 at most.
    mechanism = pmp.Laplace(epsilon=epsilon, sensitivity=2.0 * len(released_of))
    released = mechanism.simulate(rng, np.array([np.sum(p) for p in released_of]))
    with pm.Model() as model:
        beta = pm.Normal("beta", 0, 1, shape=covariates)
        sigma = pm.HalfNormal("sigma", 1)
        x = pm.Normal("x", 0, 1, shape=(size, covariates))
        y = pm.Normal("y", x @ beta, sigma, shape=size)
        products = _products([*(x[:, k] for k in range(covariates)), y])
        pmp.Privatized("s", pt.stack(products, axis=1), mechanism, observed=released)
    return model


def _products(columns: Sequence) -> list:
    """Return all products of two of some columns, clamped to [-5, 5] and scaled, and of 1."""
    clip = np.clip if isinstance(columns[0], np.ndarray) else pt.clip
    scaled = [clip(column, -5, 5) / 5 for column in columns]
    pairs = [a * b for k, a in enumerate(scaled) for b in scaled[k:]]
    return [*scaled, *pairs]


def hierarchy_bed(epsilon: float, groups: int = 50, each: int = 20) -> pm.Model:
    """Effects of groups, from a noisy total of each."""
    rng = np.random.default_rng(0)
    group = rng.permutation(np.repeat(np.arange(groups), each))
    records = np.clip(rng.normal(rng.normal(0.5, 1.0, groups)[group], 1.0), -5, 5)
    mechanism = pmp.Laplace(epsilon=epsilon, sensitivity=10.0)
    released = mechanism.simulate(rng, np.bincount(group, weights=records, minlength=groups))
    with pm.Model() as model:
        mu = pm.Normal("mu", 0, 3)
        tau = pm.HalfNormal("tau", 1)
        theta = pm.Normal("theta", mu, tau, shape=groups)
        x = pm.Normal("x", theta[group], 1, shape=group.size)
        pmp.Privatized("s", pt.clip(x, -5, 5), mechanism, by=group, observed=released)
    return model


def many_groups_bed(epsilon: float) -> pm.Model:
    """Write the same with a thousand groups."""
    return hierarchy_bed(epsilon, 1000)


class Bed(NamedTuple):
    """A model by epsilon, and the same with standardised records where there are such."""

    model: Callable[[float], pm.Model]
    noncentred: Callable[[float], pm.Model] | None = None


BEDS = {
    "Gaussian, n = 1000": Bed(gaussian_bed, noncentred_gaussian),
    "regression, n = 1000": Bed(regression_bed, noncentred_regression),
    "regression, n = 100": Bed(small_regression_bed, noncentred_small_regression),
    "naive Bayes, n = 100": Bed(naive_bayes_bed),
    "Dirichlet, n = 5000": Bed(dirichlet_bed),
    "ten covariates, n = 10,000": Bed(covariates_bed),
    "50 groups, n = 1000": Bed(hierarchy_bed),
    "1000 groups, n = 20,000": Bed(many_groups_bed),
}


def parameters_of(model: pm.Model) -> list:
    """Return the free variables that are not records, standardised or not."""
    return [rv for rv in model.free_RVs if not is_record(rv) and rv.name not in ("z", "e")]


def measure(
    model: pm.Model, *, step: Sequence, draws: int, tune: int, chains: int = 2
) -> dict[str, float]:
    """Return the rates of a list of step methods."""
    names = [rv.name for rv in parameters_of(model)]
    posterior, seconds = timed_when_compiled(
        draws, tune=tune, chains=chains, model=model, step=step, random_seed=1, var_names=names
    )
    seconds *= draws / (draws + tune)
    return _rates(worst_effective(posterior, names), chains * draws, seconds)


def measure_nutpie(model: pm.Model, *, draws: int, tune: int, chains: int = 2) -> dict[str, float]:
    """Run NUTS on parameters and standardised records together."""
    import nutpie

    names = [rv.name for rv in parameters_of(model)]
    compiled = nutpie.compile_pymc_model(model)
    options = {"chains": chains, "cores": 1, "seed": 1, "progress_bar": False}
    nutpie.sample(compiled, draws=5, tune=5, **options)
    start = time.process_time()
    result = nutpie.sample(compiled, draws=draws, tune=tune, **options)
    seconds = (time.process_time() - start) * draws / (draws + tune)
    return _rates(worst_effective(result["posterior"], names), chains * draws, seconds)


def _rates(effective: float, draws: int, seconds: float) -> dict[str, float]:
    return {"per_sweep": effective / draws, "per_second": effective / seconds}


def papers_steps(model: pm.Model) -> list:
    """Return the record sweep, and NUTS for the parameters given the records."""
    records = [rv for rv in model.free_RVs if is_record(rv)]
    return [
        pmp.RecordSweep(records, model=model),
        pm.NUTS(parameters_of(model), model=model),
    ]


def run(name: str, epsilon: float, *, draws: int, tune: int) -> dict:
    """Measure all samplers that apply to one bed."""
    bed = BEDS[name]
    model = bed.model(epsilon)
    length = {"draws": draws, "tune": tune}
    # The others are slower by far, and a rate needs fewer draws than a posterior.
    baseline = {"draws": draws // 4, "tune": tune // 2}
    row = {
        "bed": name,
        "epsilon": epsilon,
        "length": length,
        "baseline": baseline,
        "ours": measure(model, step=[pmp.Interweave(model=model)], **length),
        "papers": measure(model, step=papers_steps(model), **baseline),
    }
    if bed.noncentred is not None and find_spec("nutpie"):
        row["nutpie"] = measure_nutpie(bed.noncentred(epsilon), **baseline)
    return row


def table(rows: list[dict]) -> str:
    """Lay the results out as the docs show them."""
    lengths = {(r["length"]["draws"], r["length"]["tune"]) for r in rows}
    shorter = {(r["baseline"]["draws"], r["baseline"]["tune"]) for r in rows}
    lines = [
        f"Two chains each: ours of {_said(lengths)}, the others of {_said(shorter)}.",
        "",
        "| model | epsilon | ours: per sweep | per second | sweep and NUTS: per sweep | per second "
        "| nutpie: per draw | per second | ours / nutpie |",
        "|---|---:|---:|---:|---:|---:|---:|---:|---:|",
    ]
    order = list(BEDS)
    for row in sorted(rows, key=lambda row: (order.index(row["bed"]), row["epsilon"])):
        cells = [row["bed"], f"{row['epsilon']:g}"]
        for sampler in ("ours", "papers", "nutpie"):
            rates = row.get(sampler)
            cells += map(two_figures, rates.values()) if rates else ["", ""]
        ours, nutpie = row["ours"]["per_second"], row.get("nutpie")
        cells.append(two_figures(ours / nutpie["per_second"]) if nutpie else "")
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _said(lengths: set[tuple[int, int]]) -> str:
    return " or ".join(f"{draws} draws after {tune} of tuning" for draws, tune in sorted(lengths))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--beds", nargs="+", choices=BEDS, default=list(BEDS))
    parser.add_argument("--epsilons", type=float, nargs="+", default=EPSILONS)
    parser.add_argument("--draws", type=int, default=2000)
    parser.add_argument("--tune", type=int, default=1000)
    parser.add_argument("--output", type=Path, default=RESULTS)
    parser.add_argument("--docs", action="store_true", help="write the table into the docs too")
    parser.add_argument("--afresh", action="store_true", help="measure these lines again")
    options = parser.parse_args()
    rows = _stored(options.output) if options.output.exists() else []
    wanted = [(bed, epsilon) for bed in options.beds for epsilon in options.epsilons]
    if options.afresh:
        rows = [row for row in rows if _line(row) not in wanted]
    done = [_line(row) for row in rows]
    for bed, epsilon in wanted:
        if (bed, epsilon) not in done:
            rows.append(run(bed, epsilon, draws=options.draws, tune=options.tune))
            print(table(rows[-1:]).splitlines()[-1], flush=True)
            options.output.parent.mkdir(exist_ok=True)
            options.output.write_text(json.dumps(rows, indent=1) + "\n")
    if options.docs:
        write("mixing", table(rows), DOCS)
    print("\n" + table(rows))


def _line(row: dict) -> tuple[str, float]:
    return row["bed"], row["epsilon"]


def _stored(path: Path) -> list[dict]:
    return json.loads(path.read_text())


if __name__ == "__main__":
    main()
