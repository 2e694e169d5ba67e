"""Tables and picture of the study, as the documentation shows them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.interval_study.table_4 import PAPER, TABLE_4
from benchmarks.interval_study.tasks import LEAST_COVERAGE, METHODS, PROVEN


def study_table(rows: list[dict[str, Any]]) -> str:
    """Lay out coverage / mean width, one row per setting."""
    repeats = rows[0]["repeats"]
    lines = [
        f"Coverage / mean width over {repeats} data sets; the standard error of a coverage is at "
        f"most {np.sqrt(0.25 / repeats):.3f}, and {np.sqrt(0.95 * 0.05 / repeats):.3f} at 0.95.",
        "",
        "| task | n | epsilon | " + " | ".join(METHODS) + " |",
        "|---|---:|---:|" + "---:|" * len(METHODS),
    ]
    for row in rows:
        cells = [f"{row[m][0]:.3f} / {row[m][1]:.3g}" if m in row else "none" for m in METHODS]
        lines.append(
            f"| {row['task']} | {row['size']} | {row['epsilon']:g} | {' | '.join(cells)} |"
        )
    return "\n".join(lines)


def lowest_coverage(rows: list[dict[str, Any]], checks: list[dict[str, Any]]) -> str:
    """Say in a table where each method covers least, and what new data sets say there."""
    again = {_setting(check): check for check in checks}
    repeats = {check["repeats"] for check in checks}
    title = f"on {min(repeats)} new data sets" if repeats else "on new data sets"
    lines = [
        f"| method | privacy | lowest coverage | where | settings below {LEAST_COVERAGE} "
        f"| lowest of these {title} |",
        "|---|---|---:|---|---:|---:|",
    ]
    for method in METHODS[1:]:
        having = [row for row in rows if method in row]
        worst = min(having, key=lambda row: row[method][0])
        where = f"{worst['task']}, n = {worst['size']}, epsilon = {worst['epsilon']:g}"
        below = below_target(having, method)
        found = [again.get(_setting(row), {}).get(method) for row in below]
        checked = f"{min(share for share, _ in filter(None, found)):.3f}" if any(found) else ""
        privacy = "proven" if method in PROVEN else "nominal"
        share = f"{len(below)} of {len(having)}"
        cells = (method, privacy, f"{worst[method][0]:.3f}", where, share, checked)
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def below_target(rows: list[dict[str, Any]], method: str) -> list[dict[str, Any]]:
    """Return the settings in which a method covered less than it should."""
    return [row for row in rows if method in row and row[method][0] < LEAST_COVERAGE]


def _setting(row: dict[str, Any]) -> tuple[str, int, float]:
    return row["task"], row["size"], row["epsilon"]


def table_4(rows: list[dict[str, Any]]) -> str:
    """Lay out Table 4: ours, and the paper's in brackets below it."""
    runs = rows[0]["runs"]
    lines = [
        f"Mean width (standard deviation) in percent over {runs} runs; z compares with the paper's "
        "mean of 100 runs, where our own spread gives the standard error.",
        "",
        "| epsilon | class | " + " | ".join(TABLE_4) + " |",
        "|---:|---|" + "---:|" * len(TABLE_4),
    ]
    order = list(PAPER)
    for row in sorted(rows, key=lambda r: order.index((r["class"], r["epsilon"]))):
        paper = PAPER[(row["class"], row["epsilon"])]
        cells = []
        for method in TABLE_4:
            mean, sd = row[method]
            text = f"{mean:.2f} ({sd:.2f})"
            if method in paper:
                z = (mean - paper[method][0]) / (sd * np.sqrt(1 / 100 + 1 / runs))
                text += f"; paper {paper[method][0]:g} ({paper[method][1]:g}), z = {z:.1f}"
            cells.append(text)
        lines.append(f"| {row['epsilon']:g} | {row['class']} | {' | '.join(cells)} |")
    return "\n".join(lines)


def replace_between(text: str, marker: str, content: str) -> str:
    """Put content between two markers of a page."""
    pattern = rf"(<!-- {marker}: begin -->\n).*?(<!-- {marker}: end -->)"
    new, count = re.subn(pattern, lambda m: f"{m[1]}\n{content}\n\n{m[2]}", text, flags=re.DOTALL)
    if count != 1:
        raise ValueError(f"The page must have the markers of {marker!r} once; got {count}.")
    return new


SHOWN = {
    "+m*": ("PRECISE +m* (nominal)", "#D55E00", "--"),
    "noise-aware": ("noise-aware posterior", "#0072B2", "-"),
    "bootstrap": ("parametric bootstrap", "#009E73", "-"),
    "multiple": ("multiple sanitization", "#CC79A7", "-"),
    "centre-scale": ("centre and scale", "#E69F00", "-"),
}


def draw(rows: list[dict[str, Any]], size: int, output: Path) -> None:
    """Draw coverage, and width relative to no privacy, against epsilon."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    names = list(dict.fromkeys(row["task"] for row in rows))
    layout: dict[str, Any] = {"sharex": True, "sharey": "row", "squeeze": False}
    figure, axes = plt.subplots(
        2, len(names), figsize=(2.6 * len(names), 5), layout="constrained", **layout
    )
    for column, name in zip(axes.T, names, strict=True):
        chosen = [row for row in rows if row["task"] == name and row["size"] == size]
        for method, (label, colour, line) in SHOWN.items():
            having = [row for row in chosen if method in row]
            epsilons = [row["epsilon"] for row in having]
            style = {"color": colour, "ls": line, "marker": "o", "ms": 3.5, "label": label}
            column[0].plot(epsilons, [row[method][0] for row in having], **style)
            ratios = [row[method][1] / row["no privacy"][1] for row in having]
            column[1].plot(epsilons, ratios, **style)
        column[0].axhline(0.95, color="black", lw=0.8)
        column[1].axhline(1, color="black", lw=0.8)
        column[0].set_title(name, fontsize=10)
        column[0].set(ylim=(0.8, 1.01), xscale="log")
        column[1].set(yscale="log", xlabel="epsilon")
        for axis in column:
            axis.spines[["top", "right"]].set_visible(False)
    axes[0][0].set_ylabel("coverage")
    axes[1][0].set_ylabel("width, relative")
    handles, labels = axes[0][0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=3, frameon=False)
    figure.suptitle(f"95% intervals from {size} records; width relative to no privacy")
    figure.savefig(output, dpi=100)
    plt.close(figure)
