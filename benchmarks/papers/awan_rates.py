"""Awan et al. (2024), Theorem 3.2: how precise a noisy size must be, by exact distances.

    python -m benchmarks.papers.awan_rates [--docs]

Example 3.4 with records that are 1 with probability 0.3 and epsilon = 1: a sum with Laplace noise
(a = 1), and the K-norm gradient mechanism for their mean (a = 0). The size is released with Laplace
noise whose scale is a power of n. Nothing is random: laws are mixtures of binomials, and the
distances are those of Kolmogorov and Smirnov. (In total variation averages of integers do not tend
to each other, since those of different numbers lie on different lattices: Lemma A.4, part 3.)
"""

from __future__ import annotations

import math

import numpy as np
from scipy.integrate import cumulative_trapezoid
from scipy.signal import lfilter
from scipy.stats import binom

from benchmarks.papers.pages import exact_command, markdown

P = 0.3
POWERS = (0.25, 0.5, 0.75)
SIZES = (64, 256, 1024)
SCALE = {"sum": 1.0, "average": 2.0}


def density_of_sum(s: np.ndarray, size: int, scale: float) -> np.ndarray:
    """Return the density of Binomial(n, 0.3) + Laplace noise, in time n + len(s)."""
    chance = binom.pmf(np.arange(size + 1), size, P)
    fall = math.exp(-1 / scale)
    below = lfilter([1.0], [1.0, -fall], chance)
    above = lfilter([1.0], [1.0, -fall], chance[::-1])[::-1]
    left = np.clip(np.floor(s).astype(int), -1, size)
    right = left + 1
    found = np.where(left >= 0, below[left] * np.exp(-(s - left) / scale), 0.0)
    far = np.maximum(right - s, 0.0)
    found += np.where(right <= size, above[np.minimum(right, size)] * np.exp(-far / scale), 0.0)
    return found / (2 * scale)


def density(kind: str, s: np.ndarray, size: int) -> np.ndarray:
    """Return the density of a release: of a sum, or of something near the mean."""
    if kind == "sum":
        return density_of_sum(s, size, SCALE[kind])
    # exp(-(epsilon n / 2) |mean - s|) on [0, 1], normalised for each mean.
    ones = np.arange(size + 1)
    rate = size / SCALE[kind]
    mean = ones / size
    mass = (2 - np.exp(-rate * mean) - np.exp(-rate * (1 - mean))) / rate
    weight = binom.pmf(ones, size, P) / mass
    kept = weight > 1e-13
    return np.exp(-rate * abs(s[:, None] - mean[kept])) @ weight[kept]


def distance(kind: str, size: int, scale: float) -> float:
    """Return the Kolmogorov-Smirnov distance of the laws given n and given n_dp = n.

    It is over all intervals, as in the paper: the range of the difference of two cdfs.
    """
    reach = math.ceil(18 * scale)
    sizes = np.arange(max(1, size - reach), size + reach + 1)
    weight = np.exp(-abs(sizes - size) / scale)
    weight /= weight.sum()
    if kind == "sum":
        s = np.arange(-30.0, sizes[-1] * P + 12 * math.sqrt(sizes[-1] * P) + 30, 0.25)
    else:
        s = np.linspace(0, 1, 6001)
    mixture = np.zeros_like(s)
    for n, w in zip(sizes, weight, strict=True):
        if w > 1e-9:
            mixture += w * density(kind, s, int(n))
    between = cumulative_trapezoid(mixture - density(kind, s, size), s, initial=0.0)
    return float(np.ptp(between))


def table(sizes: tuple[int, ...] = SIZES) -> str:
    """Lay out the distances, and whether they fall where the theorem says that they must."""
    lines, falls = [], {}
    for kind in SCALE:
        for power in POWERS:
            found = [distance(kind, n, n**power) for n in sizes]
            falls[kind, power] = found[-1] < 0.67 * found[0]
            promised = power < (0.5 if kind == "sum" else 1.0)
            lines.append(
                [
                    f"{kind}, scale n^{power:g}",
                    *(f"{value:.4f}" for value in found),
                    "tends to 0" if promised else "not said",
                ]
            )
    must = [falls[kind, p] for kind in SCALE for p in POWERS if p < (0.5 if kind == "sum" else 1.0)]
    wide = falls["sum", 0.5] or falls["sum", 0.75]
    header = ["release and noise on the size", *(f"n = {n}" for n in sizes), "Theorem 3.2"]
    verdict = (
        f"**{'Agrees' if all(must) else 'Differs'}**: wherever the theorem says that the distance "
        "tends to 0, it falls by a third or more. It prints no numbers. Sums with noise of sqrt(n) "
        f"or more on the size {'fall as well' if wide else 'do not fall'}. "
        "No Monte Carlo error."
    )
    return "\n\n".join([markdown(header, lines), verdict])


if __name__ == "__main__":
    exact_command(__doc__.splitlines()[0], table, "awan rates")
