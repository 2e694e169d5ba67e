"""Awan et al. (2024), Lemma A.4: which noisy sums tend to a Normal law in total variation.

    python -m benchmarks.papers.awan_lemma_a4 [--docs]

A few seconds: nothing is random. Records are 1 with probability 0.3, and else 0. The law of each
release is a mixture over the number of ones; its distance from the Normal law with the same mean
and variance is an integral of one dimension.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable

import numpy as np
from scipy.stats import binom, norm

import pymc_privacy as pmp
from benchmarks.papers.pages import exact_command, markdown

SIZES = (1, 2, 4, 10, 100, 1000)
P = 0.3
NOISE = pmp.Laplace(scale=1.0)
LOCAL = pmp.LocalSum(noise=NOISE)
Density = Callable[[np.ndarray, int], np.ndarray]


def local(offset: np.ndarray, size: int) -> np.ndarray:
    """Return the density of all noise, where each record added its own."""
    size_beside = np.full_like(offset, size)
    return np.exp(LOCAL.log_density(offset, np.stack([0 * offset, size_beside], axis=-1)))


def central(offset: np.ndarray, size: int) -> np.ndarray:
    """Return the density of noise that was added once."""
    return np.exp(NOISE.log_density(offset, 0.0))


def distance(density: Density, size: int, variance: float, points: int = 400) -> float:
    """Return the total variation between the law of a release and the Normal of its moments."""
    mean, sd = size * P, math.sqrt(size * P * (1 - P) + variance)
    ones = np.arange(size + 1)
    weight = binom.pmf(ones, size, P)
    ones, weight = ones[weight > 1e-14], weight[weight > 1e-14]
    step = 1 / points  # so that kinks, at integers, are nodes
    ends = math.floor(mean - 14 * sd), math.ceil(mean + 14 * sd)
    s = np.linspace(*ends, round((ends[1] - ends[0]) / step) + 1)
    law = np.zeros_like(s)
    for k, w in zip(ones, weight, strict=True):
        law += w * density(s - k, size)
    return float(np.trapezoid(np.abs(law - norm.pdf(s, mean, sd)), s) / 2)


def table() -> str:
    """Lay out the distances by number of records, and whether they fall as the lemma says."""
    lines, ours, once = [], [], []
    for size in SIZES:
        points = 400 if size < 100 else 20
        ours.append(distance(local, size, 2.0 * size, points))
        once.append(distance(central, size, 2.0, points))
        lines.append([size, f"{ours[-1]:.5f}", f"{once[-1]:.5f}"])
    falls = all(b < a for a, b in itertools.pairwise(ours))
    rate = math.log(ours[-2] / ours[-1]) / math.log(SIZES[-1] / SIZES[-2])
    agrees = falls and ours[-1] < 0.01 and rate > 0.4
    header = ["records", "noise of each record's own (part 2)", "noise added once"]
    verdict = (
        f"**{'Agrees' if agrees else 'Differs'}**: the lemma says of part 2 that the distance "
        f"tends to 0, and prints no number. From {SIZES[-2]} to {SIZES[-1]} records it falls like "
        f"n to the power -{rate:.2f}. No Monte Carlo error. Noise that was added once to integers, "
        "of a fixed scale and without the uniform part of `Tulap`, is no case of the lemma: its "
        "distance need not fall."
    )
    return "\n\n".join([markdown(header, lines), verdict])


if __name__ == "__main__":
    exact_command(__doc__.splitlines()[0], table, "awan lemma a4")
