"""Awan et al. (2024), Proposition 5.1: the smallest acceptances, beside their bounds.

Seconds: nothing is random. Every database of up to a few yes-or-no records, every single birth,
death and change of a record, and releases from far below to far above what they can be: the
acceptance of each move by the densities of the mechanisms, with the proposals of the algorithm.
"""

from __future__ import annotations

import math
from itertools import product

import numpy as np

import pymc_privacy as pmp
from benchmarks.papers.pages import exact_command, markdown
from pymc_privacy.algorithms.birth_death import log_of_way_back

BUDGETS = ((0.1, 0.1), (1.0, 0.1), (0.5, 1.0), (2.0, 3.0))
MOST = 12
RELEASES = np.linspace(-30, 45, 151)


def smallest(epsilon_s: float, epsilon_n: float) -> tuple[float, float, float]:
    """Return the smallest acceptance of births and deaths, of births at n = 1, of a record."""
    counting = pmp.Laplace(epsilon=epsilon_s, sensitivity=1.0, neighbours="add_remove")
    sizing = pmp.Laplace(epsilon=epsilon_n, sensitivity=1.0, neighbours="add_remove")
    s = np.array([counting.log_density(RELEASES, float(k)) for k in range(MOST + 2)])
    n_dp = np.array([sizing.log_density(RELEASES, float(n)) for n in range(MOST + 2)])
    moves, least, record = math.inf, math.inf, math.inf
    for size, yes in product(range(1, MOST + 1), range(MOST + 1)):
        if yes > size:
            continue
        for k in {yes - 1, yes + 1} & set(range(size + 1)):
            record = min(record, float((s[k] - s[yes]).min()))
        for new, k in ((size + 1, yes), (size + 1, yes + 1), (size - 1, yes), (size - 1, yes - 1)):
            if new < 1 or not 0 <= k <= new:
                continue
            # The two releases are independent, so that each has its own worst value.
            ratio = log_of_way_back(size, new, 1)
            ratio += float((s[k] - s[yes]).min() + (n_dp[new] - n_dp[size]).min())
            if size == 1:
                least = min(least, ratio)
            else:
                moves = min(moves, ratio)
    return math.exp(moves), math.exp(least), math.exp(record)


def table() -> str:
    """Lay out what was met and what is proved."""
    lines, held, attained = [], True, True
    for epsilon_s, epsilon_n in BUDGETS:
        bound = math.exp(-(epsilon_s + epsilon_n))
        bounds = (bound, bound / 2, math.exp(-2 * epsilon_s))
        met = smallest(epsilon_s, epsilon_n)
        held &= all(m >= b * (1 - 1e-9) for m, b in zip(met, bounds, strict=True))
        attained &= all(math.isclose(met[k], bounds[k], rel_tol=1e-9) for k in (0, 1))
        cells = [f"{m:.4g} ({b:.4g})" for m, b in zip(met, bounds, strict=True)]
        lines.append([f"{epsilon_s:g}, {epsilon_n:g}", *cells])
    header = [
        "epsilon_s, epsilon_N",
        "births and deaths (exp(-(epsilon_s + epsilon_N)))",
        "births at n = 1 (half of it)",
        "a record (exp(-2 epsilon_s))",
    ]
    verdict = (
        f"**{'Agrees' if held else 'Differs'}**: no acceptance is below its bound, in brackets. "
        + ("Those of the size are attained; " if attained else "")
        + "that of a record is attained only where changing one moves the release twice as far as "
        "adding one, which an answer of yes or no does not. No Monte Carlo error."
    )
    return "\n\n".join([markdown(header, lines), verdict])


if __name__ == "__main__":
    exact_command(__doc__.splitlines()[0], table, "awan proposition 5.1")
