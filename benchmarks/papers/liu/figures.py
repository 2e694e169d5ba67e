"""Figures 2 to 4 and S.2 to S.6 of Liu et al. (PRECISE): one table and one picture for each.

    python -m benchmarks.papers.liu.figures [--replicates 4] [--docs] [--recorded]

330 settings: six sizes with seven epsilons and four mu, in five tasks; batches of data sets, kept
as they finish. With ``--docs`` the tables, the pictures and the verdicts on the paper's sentences
are written into ``docs/interval-study.md``; with ``--recorded`` from the sums in
``benchmarks/recorded``, in seconds, without running anything.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from scipy import stats

from benchmarks.papers.inputs import ROOT
from benchmarks.papers.liu.study import (
    BATCH,
    EPSILONS,
    FEW,
    LARGEST,
    METHODS,
    MUS,
    SIZES,
    study,
)
from benchmarks.papers.pages import RESULTS, Row, markdown, read_recorded, record, remarks, write

PAGE = ROOT / "docs" / "interval-study.md"
IMAGES = ROOT / "docs" / "images"
RECORDED = "liu_intervals"
LOSSES: dict[str, tuple[float, ...]] = {"epsilon": EPSILONS, "mu": MUS}
Sums = dict[tuple[str, int, str, float], dict[str, np.ndarray]]


class Figure(NamedTuple):
    """A figure of the paper: its name, its tasks, and what is said of the privacy."""

    name: str
    tasks: tuple[str, ...]
    kind: str

    @property
    def marker(self) -> str:
        """Return the marker of its place on the page."""
        return f"liu {self.name.lower()}"

    @property
    def picture(self) -> Path:
        """Return the file of its picture."""
        return IMAGES / f"liu-{self.name.lower().replace(' ', '-').replace('.', '')}.png"


FIGURES = (
    Figure("Figure 2", ("Normal mean", "Normal variance"), "epsilon"),
    Figure("Figure 3", ("Poisson rate", "proportion"), "epsilon"),
    Figure("Figure 4", ("slope",), "epsilon"),
    Figure("Figure S.2", ("Normal mean",), "mu"),
    Figure("Figure S.3", ("Normal variance",), "mu"),
    Figure("Figure S.4", ("Poisson rate",), "mu"),
    Figure("Figure S.5", ("proportion",), "mu"),
    Figure("Figure S.6", ("slope",), "mu"),
)
STYLE = {
    "+m*": ("#D55E00", "--", "o"),
    "-m*": ("#E69F00", "--", "s"),
    "+m": ("#CC79A7", "--", "^"),
    "-m": ("#999999", "--", "v"),
    "noise-aware": ("#0072B2", "-", "o"),
    "bootstrap": ("#009E73", "-", "s"),
    "multiple": ("#56B4E9", "-", "^"),
    "centre-scale": ("#000000", "-", "v"),
    "repro": ("#7F3C8D", "-", "D"),
    "deconvolution": ("#8B4513", ":", "x"),
    "SYMQ": ("#B8860B", ":", "+"),
    "little bootstraps": ("#DC143C", ":", "*"),
}


def summed(rows: list[Row]) -> Sums:
    """Return the sums over batches, by setting and method."""
    sums: Sums = {}
    for row in rows:
        if row["error"] is None:
            setting = (row["task"], row["size"], row["kind"], row["loss"])
            into = sums.setdefault(setting, {})
            for method in METHODS:
                if row.get(method) is not None:
                    into[method] = into.get(method, 0) + np.array(row[method], dtype=float)
    return sums


def coverage(sums: np.ndarray) -> float:
    """Return the share of data sets whose interval holds the truth."""
    return float(sums[1] / sums[0])


def width(sums: np.ndarray) -> float:
    """Return the mean width."""
    return float(sums[2] / sums[0])


def error(sums: np.ndarray) -> float:
    """Return the mean squared distance of the ends, in posterior variances."""
    return float(sums[4] / sums[0])


def table(sums: Sums, figure: Figure) -> str:
    """Lay out coverage and mean width of every method, one row per setting."""
    parts = []
    for task in figure.tasks:
        having = [
            m
            for m in METHODS
            if any(m in found for key, found in sums.items() if key[::2] == (task, figure.kind))
        ]
        rows = []
        for size in SIZES:
            for loss in LOSSES[figure.kind]:
                found = sums.get((task, size, figure.kind, loss))
                if found is None:
                    continue
                cells = [
                    f"{coverage(found[m]):.2f} / {width(found[m]):.3g}" if m in found else ""
                    for m in having
                ]
                rows.append([f"{size}", f"{loss:g}", *cells])
        parts.append(f"*{task}*\n\n" + markdown(["n", figure.kind, *having], rows))
    return "\n\n".join(parts)


def draw(sums: Sums, figure: Figure) -> None:
    """Draw coverage, and width relative to no privacy, against the loss, one column per size."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt
    from PIL import Image

    count = 2 * len(figure.tasks)
    drawing, axes = plt.subplots(
        count, len(SIZES), figsize=(11, 1.9 * count + 0.8), sharex=True, sharey="row",
        squeeze=False, layout="constrained",
    )  # fmt: skip
    for k, task in enumerate(figure.tasks):
        for column, size in enumerate(SIZES):
            _draw_one(axes[2 * k : 2 * k + 2, column], sums, figure, task, size)
        axes[2 * k, 0].set_ylabel(f"{task}\ncoverage", fontsize=8)
        axes[2 * k + 1, 0].set_ylabel("width, relative", fontsize=8)
    for axis in axes[-1]:
        axis.set_xlabel(figure.kind, fontsize=8)
    for axis, size in zip(axes[0], SIZES, strict=True):
        axis.set_title(f"n = {size}", fontsize=9)
    shown: dict[str, Any] = {}
    for axis in axes.flat:
        lines, labels = axis.get_legend_handles_labels()
        shown |= dict(zip(labels, lines, strict=True))
    drawing.legend(
        shown.values(), shown.keys(), loc="outside lower center", ncols=6, frameon=False, fontsize=8
    )
    drawing.savefig(figure.picture, dpi=75)
    plt.close(drawing)
    # 256 colours make a smaller file.
    Image.open(figure.picture).convert("RGB").quantize(256).save(figure.picture, optimize=True)


def _draw_one(axes: Any, sums: Sums, figure: Figure, task: str, size: int) -> None:
    for method, (colour, line, mark) in STYLE.items():
        points = [
            (loss, coverage(found[method]), width(found[method]) / width(found["no privacy"]))
            for loss in LOSSES[figure.kind]
            if method in (found := sums.get((task, size, figure.kind, loss), {}))
        ]
        if points:
            x, covered, wide = zip(*points, strict=True)
            style = {"color": colour, "ls": line, "marker": mark, "ms": 3, "lw": 1}
            axes[0].plot(x, covered, label=method, **style)
            axes[1].plot(x, wide, **style)
    axes[0].axhline(0.95, color="black", lw=0.6)
    axes[1].axhline(1, color="black", lw=0.6)
    axes[0].set(xscale="log", ylim=(0.4, 1.02))
    axes[1].set(yscale="log")
    for axis in axes:
        axis.spines[["top", "right"]].set_visible(False)
        axis.tick_params(labelsize=7)


# ---------------------------------------------------------------- what the paper says


def slope_of(points: list[tuple[int, float]]) -> tuple[float, float]:
    """Return the slope of log error in log n by least squares, and its standard error."""
    x, y = np.log(np.array(points, dtype=float)).T
    x = x - x.mean()
    slope = float(x @ y / (x @ x))
    residual = y - y.mean() - slope * x
    return slope, float(np.sqrt(residual @ residual / max(len(x) - 2, 1) / (x @ x)))


def consistency(sums: Sums) -> str:
    """Say how fast the ends come nearer to those of the posterior, beside Theorem 6."""
    rows = []
    for kind, losses in LOSSES.items():
        for task in dict.fromkeys(key[0] for key in sums):
            cells = []
            for method in ("+m*", "+m", "-m*", "noise-aware", "bootstrap"):
                text = []
                for loss in (1.0, losses[-1]):
                    points = [
                        (size, error(found[method]))
                        for size in SIZES
                        if method in (found := sums.get((task, size, kind, loss), {}))
                    ]
                    if len(points) < 3:
                        continue
                    slope, deviation = slope_of(points)
                    text.append(f"{slope:.2f} ± {deviation:.2f} ({points[-1][1]:.2g})")
                cells.append("; ".join(text))
            rows.append([task, f"{kind} = 1; {losses[-1]:g}", *cells])
    header = ["task", "loss", "+m*", "+m", "-m*", "noise-aware", "bootstrap"]
    bad = [row[0] for row in rows if not _falls(row[2])]
    return "\n\n".join(
        [
            "Exponent of n in the mean squared distance of the two ends from those of the "
            "posterior given the records, in posterior variances, ± standard error of a straight "
            f"line through the logarithms at n = {SIZES[0]} to {SIZES[-1]} (in brackets the "
            "distance at the largest n).",
            markdown(header, rows),
            "Theorem 6 has a mean squared error of order 1 / (m n) for m of order n and a fixed "
            "epsilon, which is of order 1 / m in posterior variances: an exponent of -1. "
            + (
                f"**Refuted** for +m\\* with bins collapsed by counts, in {len(bad)} of "
                f"{len(rows)} rows: the exponent at the first loss is not below -0.5 by three "
                "standard errors. The theorem assumes that what is collapsed has a mass of "
                "1 / (2m), which the rule that gives the paper's Table 4 does not have: its ends "
                "are near those of the range of the draws, which grows beside the posterior's "
                "deviation."
                if bad
                else "**Agrees.**"
            ),
        ]
    )


def _falls(cell: str) -> bool:
    if not cell:
        return True
    slope, deviation = cell.split(" (")[0].split(" ± ")
    return float(slope) + 3 * float(deviation) < -0.5


NOMINAL = 0.95
SURPRISE = 0.003  # what three standard errors are in a long series


def _all(size: int, loss: float) -> bool:
    return True


def _little(size: int, loss: float) -> bool:
    return size * loss < 500


def _small(size: int, loss: float) -> bool:
    return loss <= 2


# What the paper says of coverage: of a method, that it is nominal, where.
COVERAGES: tuple[tuple[str, str, bool, Callable[[int, float], bool]], ...] = (
    ("nominal in all settings", "+m*", True, _all),
    ("nominal in all settings", "+m", True, _all),
    ("below it where n epsilon < 500", "-m*", False, _little),
    ("below it where n epsilon < 500", "-m", False, _little),
    ("nominal", "multiple", True, _all),
    ("nominal", "bootstrap", True, _all),
    ("nominal", "deconvolution", True, _all),
    ("nominal", "repro", True, _all),
    ("below it where n or epsilon is small", "little bootstraps", False, _small),
)
# And of widths: which method is narrower than which.
WIDTHS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("+m*", ("noise-aware",)),
    ("+m*", ("bootstrap",)),
    ("+m*", ("multiple",)),
    ("+m*", ("deconvolution",)),
    ("+m*", ("repro",)),
    ("repro", ("bootstrap",)),
    ("bootstrap", ("multiple",)),
    ("multiple", ("deconvolution",)),
)


def coverages(sums: Sums) -> list[list[str]]:
    """Return, for each sentence, coverage over all its settings, the lowest, and a verdict."""
    rows = []
    for words, method, nominal, chosen in COVERAGES:
        found = [
            (methods[method][1], methods[method][0], f"{task}, n = {size}, {kind} = {loss:g}")
            for (task, size, kind, loss), methods in sums.items()
            if method in methods and chosen(size, loss)
        ]
        if not found:
            continue
        inside, count = sum(f[0] for f in found), sum(f[1] for f in found)
        share = inside / count
        # Data sets of different settings are independent.
        error = np.sqrt(max(share * (1 - share), NOMINAL * (1 - NOMINAL)) / count)
        tails = [stats.binom.cdf(f[0], f[1], NOMINAL) for f in found]
        lowest = found[int(np.argmin(tails))]
        single = min(tails) < SURPRISE / len(found)
        below = share < NOMINAL - 3 * error or single
        held = below != nominal
        if not nominal:
            held = bool(share < NOMINAL - 3 * error)
        where = f"{lowest[0] / lowest[1]:.2f}: {lowest[2]} (p = {min(tails):.1g})"
        verdict = "**agrees**" if held else "**differs**"
        cells = (method, words, f"{share:.3f} ± {error:.3f}", f"{len(found)}", where, verdict)
        rows.append(list(cells))
    return rows


def widths(sums: Sums) -> list[list[str]]:
    """Return, for each pair of methods, how often the one is narrower, and the extremes."""
    rows = []
    for one, others in WIDTHS:
        ratios = [
            (width(methods[one]) / width(methods[other]), f"{task}, n = {n}, {kind} = {loss:g}")
            for (task, n, kind, loss), methods in sums.items()
            for other in others
            if one in methods and other in methods
        ]
        if not ratios:
            continue
        # By a hundredth or less, widths are the same but for Monte Carlo errors.
        narrower = sum(ratio < 0.99 for ratio, _ in ratios)
        wider = sum(ratio > 1.01 for ratio, _ in ratios)
        verdict = "**agrees**" if not wider else "**differs**" if wider > narrower else "mostly"
        ends = [f"{ratio:.2g} ({where})" for ratio, where in (min(ratios), max(ratios))]
        rows.append([f"{one} before {others[0]}", f"{narrower}", f"{wider}", *ends, verdict])
    return rows


def verdicts(sums: Sums) -> str:
    """Lay out the paper's sentences beside what was found."""
    first = ["method", "the paper says of its coverage", "ours", "settings", "lowest", "verdict"]
    second = ["order of widths in the paper", "narrower in", "wider in", "least ratio", "largest"]
    legend = (
        "A coverage is nominal if over all settings it is not below 0.95 by three Monte Carlo "
        f"errors (±), and in no setting with an exact binomial p below {SURPRISE} over their "
        "number. What is narrower *mostly* is wider in some settings, and in fewer."
    )
    return "\n\n".join(
        [
            markdown(first, coverages(sums)),
            markdown([*second, "verdict"], widths(sums)),
            legend,
        ]
    )


def caption(sums: Sums, rows: list[Row]) -> str:
    """Say what was run."""
    counts = [int(m["no privacy"][0]) // BATCH for m in sums.values()]
    batches = min(counts)
    missing = len(SIZES) * 5 * sum(map(len, LOSSES.values())) - len(sums)
    return (
        f"Coverage / mean width of 95% intervals over {batches * BATCH} data sets or more for each "
        f"of {len(sums)} settings ({missing} missing), and over {batches * FEW} for repro samples, "
        f"deconvolution, SYMQ and little bootstraps, which are run up to n = {LARGEST}; the "
        f"standard error of a coverage of 0.95 is {np.sqrt(0.0475 / batches / BATCH):.3f} and "
        f"{np.sqrt(0.0475 / batches / FEW):.3f}. The paper's figures print no numbers; its "
        "simulations have 1000 data sets. An empty cell is a method that does not exist there."
        f"{remarks(rows)}"
    )


def write_page(rows: list[Row]) -> None:
    """Write all tables and pictures."""
    sums = summed(rows)
    write("liu caption", caption(sums, rows), PAGE)
    write("liu claims", verdicts(sums), PAGE)
    write("liu consistency", consistency(sums), PAGE)
    for figure in FIGURES:
        write(figure.marker, table(sums, figure), PAGE)
        draw(sums, figure)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--replicates", type=int, default=4, help="batches of each setting")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--output", type=Path, default=RESULTS)
    parser.add_argument("--docs", action="store_true", help="write the page and its pictures")
    parser.add_argument("--recorded", action="store_true", help="from the sums on file alone")
    chosen = parser.parse_args()
    if chosen.recorded:
        rows = read_recorded(RECORDED)
    else:
        rows = study(chosen).run()
        record(RECORDED, rows)
    print(verdicts(summed(rows)))
    if chosen.docs:
        write_page(rows)


if __name__ == "__main__":
    main()
