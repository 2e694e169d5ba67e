"""Table 3 of Liu et al. (PRECISE): how long one interval of a Normal mean takes at epsilon = 8.

    python -m benchmarks.papers.liu.times [--docs]

CPU seconds of this machine, the fastest of a few runs; the paper's are of another one, in another
language, so that only their ratios are compared. About two minutes.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.interval_study.tasks import TAILS, TASKS
from benchmarks.papers.liu import comparators
from benchmarks.papers.liu.figures import PAGE
from benchmarks.papers.liu.gaussian import mu_of
from benchmarks.papers.liu.study import samples_of
from benchmarks.papers.pages import exact_command, markdown
from pymc_privacy.sanitize import intervals, precise_quantiles
from pymc_privacy.sanitize.exact_noise import SimulatedNoise
from pymc_privacy.sanitize.releases import with_noise

SIZES = (100, 5000, 50_000)
EPSILON = 8.0
# As printed, in seconds, and the mu of their last footnote.
PRINTED = {
    "PRECISE": (0.03, 0.05, 0.05),
    "multiple": (0.01, 0.01, 0.01),
    "bootstrap": (0.10, 0.31, 2.02),
    "deconvolution": (4.75, 10.22, 75.6),
    "repro": (8.50, 86.4, 1044.6),
    "little bootstraps": (0.04, 14.19, 486.6),
}
PRINTED_MU = (2.45, 1.91, 1.71)


def methods(rng: np.random.Generator, size: int) -> dict[str, Callable[[], Any]]:
    """Return what makes one interval by each method, from records in memory."""
    task = TASKS["Normal mean"]
    family: Any = task.family
    records = task.simulate(rng, size)
    posterior, samples = task.posterior(records), samples_of(task, size)
    limits = {"bounds": task.bounds, "density_bound": task.density_bound, "samples": samples}
    mu = mu_of(EPSILON, 1 / size)

    def published(epsilon: float) -> Any:
        plan = intervals.plan_total(family, epsilon, "x")
        totals = intervals.family_totals(plan, family, records)
        return with_noise(SimulatedNoise(rng), plan, totals, "simulated")

    def precise() -> Any:
        draws = posterior.rvs(samples, random_state=rng)
        return precise_quantiles(rng, draws, TAILS, variant="+m*", epsilon=EPSILON, **limits)

    def multiple() -> Any:
        return intervals.multiple_ends([published(EPSILON / 3) for _ in range(3)], family, 0.95)

    return {
        "PRECISE": precise,
        "multiple": multiple,
        "bootstrap": lambda: intervals.bootstrap_ends(rng, published(EPSILON), family, 0.95, 500),
        "noise-aware": lambda: intervals.noise_aware_ends(
            rng, published(EPSILON), family, 0.95, 4000
        ),
        "deconvolution": lambda: comparators.deconvolution(rng, records, family, mu),
        "repro": lambda: comparators.repro(rng, records, family, mu),
        "little bootstraps": lambda: comparators.little_bootstraps(
            rng, records, family.bounds, EPSILON
        ),
    }


def seconds(run: Callable[[], Any]) -> float:
    """Return the CPU seconds of the fastest of three runs, of one run if that is long."""
    taken: list[float] = []
    while len(taken) < 3 and sum(taken) < 1:
        began = time.process_time()
        run()
        taken.append(time.process_time() - began)
    return min(taken)


def table() -> str:
    """Lay out ours beside the printed ones."""
    ours: dict[str, list[float]] = {}
    for size in SIZES:
        for name, run in methods(np.random.default_rng(3), size).items():
            ours.setdefault(name, []).append(seconds(run))
    lines = []
    for name, values in ours.items():
        printed = PRINTED.get(name)
        cells = [
            f"{value:.2g}" + ("" if printed is None else f" ({printed[k]:g})")
            for k, value in enumerate(values)
        ]
        lines.append([name, *cells])
    mus = [mu_of(EPSILON, 1 / size) for size in SIZES]
    same = [f"{mu:.2f}" for mu in mus] == [f"{mu:.2f}" for mu in PRINTED_MU]
    slow = ("deconvolution", "little bootstraps")
    grows = all(ours[name][-1] > 5 * ours[name][0] for name in slow)
    quick = all(ours[name][-1] < 1 for name in ("PRECISE", "multiple", "bootstrap"))
    verdict = (
        f"**{'Agrees' if same else 'Differs'}**: mu of (8, 1 / n) by Lemma 1 is "
        f"{', '.join(f'{mu:.2f}' for mu in mus)} (printed {', '.join(map(str, PRINTED_MU))}). "
        f"**{'Agrees' if grows and quick else 'Differs'}** that PRECISE, multiple sanitization and "
        "the bootstrap are fast and that deconvolution and little bootstraps grow with n; repro "
        "samples do not here, because two noisy moments are simulated by their laws and not "
        "record by record."
    )
    header = ["CPU seconds (printed)", *(f"n = {size}" for size in SIZES)]
    return "\n\n".join([markdown(header, lines), verdict])


if __name__ == "__main__":
    exact_command(__doc__.splitlines()[0], table, "liu table 3", PAGE)
