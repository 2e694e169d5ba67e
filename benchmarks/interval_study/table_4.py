"""Table 4 of Liu et al.: what the paper prints, and the same runs with every method.

The two data sets are not part of this package, and not needed: the posteriors depend on counts that
the paper prints, 108 of 500 (its 21.60%), and 1655, 295 and 176 of 2126.
"""

from __future__ import annotations

import zlib
from typing import Any

import numpy as np

from benchmarks.interval_study.tasks import TAILS, proven_ends
from pymc_privacy.sanitize import Proportion, density_bounds, precise_quantiles
from pymc_privacy.sanitize.precise import VARIANTS

# Mean width (standard deviation) of 100 runs, in percent, in the order of the variants.
PRINTED = {
    ("Adult", 0.1): ((9.87, 1.02), (10.41, 12.50), (25.04, 18.95), (9.58, 10.58)),
    ("Adult", 0.5): ((9.82, 1.06), (7.54, 2.02), (10.85, 3.73), (7.76, 2.03)),
    ("Normal", 0.1): ((11.1, 9.7), (6.1, 6.8), (20.3, 11.5), (7.5, 8.4)),
    ("Suspect", 0.1): ((4.6, 0.4), (5.5, 12.0), (18.0, 23.0), (7.3, 16.0)),
    ("Pathologic", 0.1): ((3.7, 0.3), (5.9, 14.4), (12.9, 19.8), (5.0, 9.6)),
    ("Normal", 0.5): ((5.2, 0.5), (4.8, 4.3), (5.6, 2.1), (4.1, 1.2)),
    ("Suspect", 0.5): ((4.6, 0.3), (3.3, 0.8), (5.2, 3.2), (3.5, 0.9)),
    ("Pathologic", 0.5): ((3.6, 0.3), (2.7, 0.7), (3.9, 0.7), (2.8, 0.7)),
}
PAPER = {row: dict(zip(VARIANTS, widths, strict=True)) for row, widths in PRINTED.items()}
# Class: successes, records, lower bound of p, posterior draws, share of epsilon.
CLASSES = {
    "Adult": (108, 500, 0.03, 269, 1.0),
    "Normal": (1655, 2126, 0.5, 1033, 1 / 3),
    "Suspect": (295, 2126, 0.05, 1033, 1 / 3),
    "Pathologic": (176, 2126, 0.02, 1033, 1 / 3),
}
TABLE_4 = (*VARIANTS, "noise-aware", "bootstrap", "multiple", "centre-scale")


def table_4_row(name: str, epsilon: float, runs: int, seed: int) -> dict[str, Any]:
    """Return mean and standard deviation of the widths in one row of Table 4, in percent."""
    successes, size, low, samples, share = CLASSES[name]
    rng = np.random.default_rng([seed, zlib.crc32(f"{name} {epsilon}".encode())])
    upper = 0.97 if name == "Adult" else 1.0
    limits = {"bounds": (low, upper), "density_bound": density_bounds.limit(1, 1 / (low - low**2))}
    options = {"samples": samples, "epsilon": epsilon * share, **limits}
    # A class against the others: the marginal of Dirichlet(1, 1, 1) is Beta(1, 2).
    others = 1 if name == "Adult" else 2
    records = (np.arange(size) < successes).astype(int)
    widths: dict[str, list[float]] = {method: [] for method in TABLE_4}
    for _ in range(runs):
        draws = rng.beta(1 + successes, others + size - successes, samples)
        ends = {v: precise_quantiles(rng, draws, TAILS, variant=v, **options) for v in VARIANTS}
        ends |= proven_ends(rng, Proportion(), records, epsilon * share)  # type: ignore[arg-type]
        for method in TABLE_4:
            widths[method].append(100 * abs(ends[method][1] - ends[method][0]))
    row: dict[str, Any] = {"class": name, "epsilon": epsilon, "runs": runs, "seed": seed}
    return row | {m: [float(np.mean(w)), float(np.std(w))] for m, w in widths.items()}
