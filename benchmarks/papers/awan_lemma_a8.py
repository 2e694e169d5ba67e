"""Awan et al. (2024), Lemma A.8: total variation by every measure, beside the formula as printed.

A few seconds: nothing is random.
"""

from __future__ import annotations

import math

from scipy.stats import norm

import pymc_privacy as pmp
from benchmarks.papers.pages import exact_command, markdown
from pymc_privacy.accounting import Guarantee


def rows() -> list[tuple[str, Guarantee, float]]:
    """Return each part of the lemma, a guarantee, and what the formula as printed gives."""
    epsilon, delta, mu, rho = 1.0, 0.05, 1.0, 0.5
    odds = math.exp(epsilon)
    divergence = min(math.sqrt(rho / 2), math.sqrt(1 - math.exp(-rho)))
    # The fixed point of (1 - sqrt(alpha))^2, where sqrt(c) = 1 / 2.
    root = pmp.FDP(lambda alpha: (1 - math.sqrt(alpha)) ** 2)
    return [
        ("1: f(alpha) = (1 - sqrt(alpha))², c = 1/4", root, 1 - 2 * 0.25),
        ("2: epsilon = 1", pmp.PureDP(epsilon), (odds - 1) / (odds + 1)),
        (
            "3: epsilon = 1, delta = 0.05",
            pmp.ApproximateDP(epsilon, delta),
            (2 * delta + odds - 1) / (odds + 1),
        ),
        ("4: mu = 1", pmp.GaussianDP(mu), 2 * float(norm.cdf(mu / 2)) - 1),
        ("5: rho = 0.5", pmp.ZeroConcentratedDP(rho), divergence),
        ("6: alpha = 2, epsilon = 0.5", pmp.RenyiDP(2.0, rho), divergence),
    ]


def table() -> str:
    """Lay out printed and computed bounds, and what the implied trade-off function gives."""
    lines, agrees = [], True
    for name, guarantee, printed in rows():
        ours = guarantee.to_total_variation()
        implied = pmp.FDP.of(guarantee).to_total_variation()
        agrees &= math.isclose(ours, printed, rel_tol=1e-9)
        agrees &= implied <= ours * (1 + 1e-9)
        lines.append([name, f"{printed:.6f}", f"{ours:.6f}", f"{implied:.6f}"])
    header = ["part of the lemma", "printed formula", "`to_total_variation`", "by `FDP.of`"]
    verdict = (
        f"**{'Agrees' if agrees else 'Differs'}** to nine digits; no Monte Carlo error. The last "
        "column is 1 - 2 c with the fixed point c of the trade-off function that the guarantee "
        "implies: parts 1 to 4 are tight, and part 6 is not."
    )
    return "\n\n".join([markdown(header, lines), verdict])


if __name__ == "__main__":
    exact_command(__doc__.splitlines()[0], table, "awan lemma a8")
