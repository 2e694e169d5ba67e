"""Table 2 of Guo, Barrientos and Peña: time use of women and men, and a test of equal means.

    python -m benchmarks.papers.guo.table_2 [--replicates 40] [--docs]

Epsilon is 0.5 for each sex, who is of which being public. A hypothesis says that two mean shares
differ by 0.01 at most. Exact posteriors come from one bank of simulated databases for each sex.
"""

from __future__ import annotations

import argparse
from functools import cache
from typing import Any

import numpy as np

import pymc_privacy as pmp
from benchmarks.papers.guo import bootstrap, chains, design, methods, priors
from benchmarks.papers.guo.bank import Bank, Weighted, bank, equally, learnt, together
from benchmarks.papers.guo.maximum import maximum_likelihood
from benchmarks.papers.inputs import DATA, time_use
from benchmarks.papers.pages import Row, command, markdown, mean_and_error, remarks

EPSILON = 0.5
NEAR = 0.01
ACTIVITIES = ("care", "eating", "other")
SEXES = ("female", "male")
FIXED = design.THRESHOLDS.index(1e-3)
DRAWS = 400
# Of two means that agree: 0.002, and what printing three digits takes off.
ROUNDED = 5e-4
DISTANCE = 0.002 + ROUNDED
# What DPBoots should reject at most, by an interval of level 0.05 that misses the hypothesis.
RIGHTLY = (0.2, 0.05, 0.2)
# Means of women and of men, the share of rejections, and the mean probability of the hypothesis.
PRINTED: dict[str, tuple[str, str, str]] = {
    "Boots": ("0.411, 0.392; 1", "0.0507, 0.0508; 0", "0.538, 0.557; 1"),
    "DPBoots": ("0.411, 0.391; 1", "0.0513, 0.0518; 1", "0.538, 0.557; 1"),
    "MCMC_p1": ("0.411, 0.392; 1; 1e-5", "0.0508, 0.0510; 0; 1", "0.538, 0.557; 1; 1e-5"),
    "DPMCMC_p1": ("0.411, 0.391; 1; 0.162", "0.0510, 0.0516; 0; 0.879", "0.538, 0.557; 1; 0.199"),
    "DPreMCMC_p1, n/5": (
        "0.411, 0.391; 1; 0.099",
        "0.0476, 0.0475; 0; 0.904",
        "0.541, 0.561; 1; 0.138",
    ),
    "DPABC_p4": (
        "0.410, 0.391; 1; 0.240",
        "0.0512, 0.0517; 0.05; 0.675",
        "0.538, 0.557; 1; 0.238",
    ),
    "DPABC_p5": (
        "0.410, 0.391; 1; 0.241",
        "0.0527, 0.0535; 0.03; 0.738",
        "0.537, 0.556; 1; 0.249",
    ),
}
NAMES = (
    *("Boots", "MCMC_p1", "DPBoots", "DPBoots, repaired", "DPMCMC_p1", "counts and logs"),
    *("fixed 0.001", "fixed 0.001, exact sensitivity", "DPreMCMC_p1, n/5", "DPABC_p1"),
    *("DPABC_p2", "DPABC_p3", "DPABC_p4", "DPABC_p5", "DPapprox_p1", "DPapprox_p3"),
    *("DPapprox_p4", "sums of shares"),
)


@cache
def respondents() -> tuple[np.ndarray, np.ndarray]:
    """Return the shares of women and of men."""
    shares = time_use().shares
    path = DATA / "atus" / "female.csv"
    women = len(np.loadtxt(path, delimiter=",", skiprows=1)) if path.exists() else len(shares) // 2
    return shares[:women], shares[women:]


@cache
def _bank(sex: int, draws: int) -> Bank:
    """Simulate databases near all posteriors given a release of this sex, whatever its noise."""
    rng = np.random.default_rng([2019, sex])
    table = respondents()[sex]
    data, size = design.of_table(table), len(table)
    mixtures = []
    for which in (FIXED, FIXED - 2):
        scale = 1.5 * design.paper_scale(3, design.THRESHOLDS[which], 0.75 * EPSILON)
        typical = design.Published(data.logs[0, which], scale, design.THRESHOLDS[which], size)
        mixtures.append(learnt(rng, typical, draws=800, rounds=5))
    return bank(rng, together(mixtures), size, draws)


def _of_sex(rng: np.random.Generator, sex: int, draws: int) -> dict[str, Weighted | None]:
    """Return draws of alpha by every method, of one sex."""
    table = respondents()[sex]
    data, size, simulated = design.of_table(table), len(table), _bank(sex, draws)
    noise = pmp.DiscreteLaplace(epsilon=design.SELECTION * EPSILON, sensitivity=2.0)
    noisy = noise.simulate(rng, data.counts[0])
    chosen = pmp.select_threshold(noisy, design.THRESHOLDS, censored=design.CENSORED)
    which, rest = design.THRESHOLDS.index(chosen), (1 - design.SELECTION) * EPSILON
    logs = design.publish(rng, data, which, size, rest)
    fixed = design.publish(rng, data, FIXED, size, EPSILON)
    scale = pmp.log_share_sensitivity(3, fixed.threshold) / EPSILON
    sharper = data.logs[0, FIXED] + rng.laplace(0, scale, 3)
    means = data.shares[0] + rng.laplace(0, 2 / EPSILON, 3)
    made: dict[str, Weighted | None] = {
        "Boots": equally(bootstrap.boots(rng, data.exact, size, DRAWS)),
        "MCMC_p1": equally(chains.mcmc(rng, data.exact[0], size, priors.p1(3), draws=DRAWS)),
        "DPMCMC_p1": simulated.given(logs),
        "counts and logs": simulated.given(logs, simulated.of_counts(noisy, float(noise.scale))),
        "fixed 0.001": simulated.given(fixed),
        "fixed 0.001, exact sensitivity": simulated.given(
            fixed._replace(value=sharper, scale=scale)
        ),
        "sums of shares": simulated.given_shares(means, 2 / EPSILON),
    }
    made |= methods.of_whole(rng, logs, DRAWS, five=False)
    parts = priors.split(rng, table)
    split = [design.publish(rng, design.of_table(p), which, len(p), rest) for p in parts]
    return made | methods.of_parts(rng, split[0], split[1], DRAWS)


def run(rng: np.random.Generator, draws: int) -> dict[str, Any]:
    """Return mean shares of both sexes and the probability of each hypothesis, by method."""
    made = [_of_sex(rng, sex, draws) for sex in range(2)]
    found: dict[str, Any] = {}
    for name in NAMES:
        both = [one.get(name) for one in made]
        if any(one is None for one in both):
            found[name] = None
            continue
        shares = []
        for one in both:
            assert one is not None
            chosen = rng.choice(len(one.alphas), 4000, p=one.weights)
            shares.append(one.alphas[chosen] / one.alphas[chosen].sum(axis=1, keepdims=True))
        apart = shares[1] - shares[0]
        low, high = np.quantile(apart, (0.025, 0.975), axis=0)
        found[name] = {
            "means": [one.mean(axis=0).tolist() for one in shares],
            "null": (np.abs(apart) <= NEAR).mean(axis=0).tolist(),
            "outside": ((low < -NEAR) | (high > NEAR)).tolist(),
            "misses": ((high < -NEAR) | (low > NEAR)).tolist(),
            "effective": min(one.effective for one in both if one is not None),
        }
    return {"found": found}


def study(options: argparse.Namespace) -> pmp.Study:
    """Return the study: one release for each sex, again and again."""
    path = options.output / "guo_table_2.jsonl"
    grid = [{"draws": options.draws}]
    return pmp.Study(run, grid, replicates=options.replicates, seed=options.seed, path=path)


def _average(good: list[Row], name: str, what: str) -> np.ndarray:
    rows = [row["found"][name][what] for row in good if row["found"][name] is not None]
    return np.asarray(rows, dtype=float).mean(axis=0)


def table(rows: list[Row], options: argparse.Namespace) -> str:
    """Lay out means, rejections and probabilities beside the printed ones."""
    good = [row for row in rows if row["error"] is None]
    lines = []
    for name in NAMES:
        known = [row for row in good if row["found"][name] is not None]
        if not known:
            lines.append([name, *["no draws"] * 3, "0"])
            continue
        means, null = _average(known, name, "means"), _average(known, name, "null")
        rejected = (
            np.mean([np.array(row["found"][name]["null"]) < 0.5 for row in known], axis=0)
            if "oots" not in name
            else _average(known, name, "misses")
        )
        cells = []
        for k in range(3):
            text = f"{means[0][k]:.3g}, {means[1][k]:.3g}; {rejected[k]:.2f}"
            text += "" if "oots" in name else f"; {null[k]:.2g}"
            printed = PRINTED.get(name)
            cells.append(f"{text} ({printed[k]})" if printed else text)
        effective = np.median([row["found"][name]["effective"] for row in known])
        lines.append([name, *cells, f"{effective:.0f}"])
    sizes = [len(one) for one in respondents()]
    fitted = [maximum_likelihood(design.of_table(one).exact / len(one))[0] for one in respondents()]
    whole = [f"{share:.4f}" for one in fitted for share in one / one.sum()]
    caption = (
        f"Mean share of women, of men; share of {len(good)} releases by which the hypothesis is "
        "rejected (posterior probability below 0.5; of bootstraps, a 95% interval that misses "
        "[-0.01, 0.01]); mean probability of the hypothesis. In brackets as printed, over 100 "
        f"releases. {sizes[0]} women and {sizes[1]} men of {time_use().source}; the maximum of the "
        f"likelihood has means {', '.join(whole)}. The last column is the median number of "
        f"effective draws.{remarks(rows)}"
    )
    header = ["method", *ACTIVITIES, "draws"]
    return "\n\n".join([caption, markdown(header, lines), _verdict(good)])


def _verdict(good: list[Row]) -> str:
    """Compare means, decisions and probabilities with the printed ones."""
    near, far = [], []
    for name, printed in PRINTED.items():
        means = [row["found"][name]["means"] for row in good if row["found"][name] is not None]
        if len(means) < 2:
            continue
        said = [[float(part.split(",")[0]) for part in printed]]
        said += [[float(part.split(",")[1].split(";")[0]) for part in printed]]
        apart = np.abs(np.mean(means, axis=0) - said)
        chance = apart / np.hypot(np.std(means, axis=0, ddof=1) / np.sqrt(len(means)), ROUNDED)
        if apart.max() <= DISTANCE:
            near.append(name)
        else:
            far.append(f"{name} (by {apart.max():.4f}; {chance.max():.1f} Monte Carlo errors)")
    null = [row["found"]["DPMCMC_p1"]["null"][0] for row in good]
    mean, error = mean_and_error(null)
    return (
        f"**Means agree**, all six within {DISTANCE:g}, for {', '.join(near) or 'no method'}"
        f"{'; **differ** for ' + '; '.join(far) if far else ''}. {_of_bootstraps(good)} The exact "
        f"probability of the first hypothesis is {mean:.2f} ± {error:.2f} (0.162)."
    )


def _of_bootstraps(good: list[Row]) -> str:
    """Put the two rules by which an interval may decide beside the printed decisions."""
    known = [row for row in good if row["found"]["DPBoots"] is not None]
    outside, misses = (_average(known, "DPBoots", rule) for rule in ("outside", "misses"))
    as_printed = bool(np.all(outside.round(2) == 1))
    by_level = bool(np.all(misses <= RIGHTLY))
    return (
        f"DPBoots rejects {', '.join(f'{x:.2f}' for x in outside)} of the hypotheses if an "
        "interval that is not inside [-0.01, 0.01] rejects, which "
        f"{'is' if as_printed else '**is not**'} the printed 1, 1, 1; and "
        f"{', '.join(f'{x:.2f}' for x in misses)} if one that misses it does, which "
        f"{'is' if by_level else '**is not**'} at most {', '.join(f'{x:g}' for x in RIGHTLY)}, as "
        "was expected."
    )


if __name__ == "__main__":
    command(
        __doc__.splitlines()[0],
        study,
        table,
        "guo table 2",
        replicates=40,
        draws=20_000,
    )
