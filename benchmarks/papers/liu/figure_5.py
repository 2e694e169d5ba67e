"""Figure 5 of Liu et al. (PRECISE): numerical G(n) beside its limit and its bound.

    python -m benchmarks.papers.liu.figure_5 [--docs]

As the paper has it: for simulated data sets of n records, the largest distance of the posterior
densities of neighbours, averaged over data sets; the limit G0 at the true parameter; and the bound
of its Table 2. A neighbour here has one record replaced by either of the public ends of a record,
so that the numerical value is the largest over 2 n neighbours. About a minute.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from scipy import stats

from benchmarks.papers.inputs import ROOT
from benchmarks.papers.liu.figures import PAGE
from benchmarks.papers.pages import exact_command, markdown, mean_and_error
from pymc_privacy.sanitize import density_bounds

PICTURE = ROOT / "docs" / "images" / "liu-figure-5.png"
SIZES = (20, 50, 100, 500, 1000, 5000, 10_000)
RUNS = 20
_GRID = 4001


class Case(NamedTuple):
    """A parameter: its records, its posterior from their sums, its limit and its bound."""

    name: str
    simulate: Callable[[np.random.Generator, int], np.ndarray]
    ends: tuple[float, float]
    posterior: Callable[[int, float, float], Any]
    limit: float
    bound: float


def _normal_mean(size: int, total: float, squares: float) -> Any:
    mean = total / size
    about = max(squares - size * mean**2, 1e-12)
    return stats.t(size - 1, mean, np.sqrt(about / (size - 1) / size))


def _normal_variance(size: int, total: float, squares: float) -> Any:
    about = max(squares - total**2 / size, 1e-12)
    return stats.invgamma((size - 1) / 2, scale=about / 2)


CASES = (
    *(
        Case(
            f"proportion {p:g}",
            lambda rng, n, p=p: (rng.random(n) < p).astype(float),
            (0.0, 1.0),
            lambda n, t, _: stats.beta(1 + t, 1 + n - t),
            density_bounds.limit(1.0, 1 / (p * (1 - p))),
            density_bounds.bernoulli((0.03, 0.97)),
        )
        for p in (0.1, 0.3, 0.5)
    ),
    *(
        Case(
            f"Poisson rate {rate:g}",
            lambda rng, n, rate=rate: np.clip(rng.poisson(rate, n), 0, 35).astype(float),
            (0.0, 35.0),
            lambda n, t, _: stats.gamma(0.1 + t, scale=1 / (0.1 + n)),
            density_bounds.limit(35.0, 1 / rate),
            density_bounds.poisson((3, 35), (0, 35)),
        )
        for rate in (5.0, 10.0)
    ),
    Case(
        "Normal mean, sd 1",
        lambda rng, n: np.clip(rng.normal(size=n), -5, 5),
        (-5.0, 5.0),
        _normal_mean,
        density_bounds.limit(10.0, 1.0),
        density_bounds.normal_mean(5, 0.25),
    ),
    Case(
        "Normal variance 1",
        lambda rng, n: np.clip(rng.normal(size=n), -5, 5),
        (-5.0, 5.0),
        _normal_variance,
        density_bounds.limit(25.0, 0.5),
        density_bounds.normal_variance(5, 0.25),
    ),
)


def numerical(case: Case, records: np.ndarray) -> float:
    """Return G over the neighbours whose replaced record is an extreme or a middle one.

    What a neighbour's posterior depends on is monotone in the record that goes, so that the
    largest distance is at one of these.
    """
    size, total, squares = len(records), records.sum(), (records**2).sum()
    going = (records.min(), records.max(), records[np.argmin(np.abs(records))])
    sums = {(total - old + new, squares - old**2 + new**2) for old in going for new in case.ends}
    here = case.posterior(size, total, squares)
    laws = [here, *(case.posterior(size, *pair) for pair in sums)]
    low = min(law.ppf(1e-9) for law in laws)
    high = max(law.ppf(1 - 1e-9) for law in laws)
    pairs = [((total, squares), pair) for pair in sums]
    return density_bounds.numerical(
        lambda theta, pair: case.posterior(size, *pair).logpdf(theta),
        pairs,
        np.linspace(low, high, _GRID),
    )


def figures() -> dict[str, list[tuple[float, float]]]:
    """Return mean and Monte Carlo error of the numerical G of each case and size."""
    found = {}
    for case in CASES:
        rng = np.random.default_rng(5)
        found[case.name] = [
            mean_and_error([numerical(case, case.simulate(rng, n)) for _ in range(RUNS)])
            for n in SIZES
        ]
    return found


def draw(found: dict[str, list[tuple[float, float]]]) -> None:
    """Draw the numerical values, their limits (dashed), and the bounds (dotted)."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    kinds = ["proportion", "Poisson rate", "Normal mean", "Normal variance"]
    drawing, axes = plt.subplots(1, len(kinds), figsize=(11, 2.6), layout="constrained")
    for axis, kind in zip(axes, kinds, strict=True):
        for k, case in enumerate(c for c in CASES if c.name.startswith(kind)):
            [line] = axis.plot(SIZES, [m for m, _ in found[case.name]], ".-", label=case.name)
            axis.axhline(case.limit, color=line.get_color(), ls="--", lw=0.8)
            axis.axhline(case.bound, color="black", ls=":", lw=0.8, label=None if k else "bound")
        axis.set(xscale="log", yscale="log", xlabel="n", title=kind)
        axis.legend(frameon=False, fontsize=7)
        axis.spines[["top", "right"]].set_visible(False)
    axes[0].set_ylabel("G(n)")
    drawing.savefig(PICTURE, dpi=80)
    plt.close(drawing)


def table() -> str:
    """Lay out numerical values beside limit and bound; say whether they converge."""
    found, lines, worst = figures(), [], 0.0
    beyond = []
    for case in CASES:
        values = found[case.name]
        ratio = values[-1][0] / case.limit
        worst = max(worst, abs(ratio - 1))
        cells = [f"{mean:.3g} ± {error:.1g}" for mean, error in values]
        lines.append([case.name, *cells, f"{case.limit:.3g}", f"{case.bound:.3g}"])
        beyond += [f"{case.name} at n = {n}" for n, (m, _) in zip(SIZES, values, strict=True)
                   if m > case.bound]  # fmt: skip
    draw(found)
    verdict = (
        f"**{'Agrees' if worst < 0.1 else 'Differs'}**: at n = {SIZES[-1]} the furthest numerical "
        f"value is {100 * worst:.0f}% from its limit. The figure prints no numbers. "
        + (
            f"Above the bound, which is no bound at finite n: {', '.join(beyond)}."
            if beyond
            else "None is above its bound."
        )
    )
    header = ["parameter", *(f"n = {n}" for n in SIZES), "limit G0", "bound"]
    caption = f"Mean of {RUNS} data sets ± Monte Carlo error."
    return "\n\n".join([caption, markdown(header, lines), verdict])


if __name__ == "__main__":
    exact_command(__doc__.splitlines()[0], table, "liu figure 5", PAGE)
