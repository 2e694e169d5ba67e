"""What the papers' experiments start from: the authors' numbers where present, else stand-ins.

The data are not part of this repository. They are looked for in ``../shared/data`` beside it, and
a stand-in of the same shape is simulated where they are missing; tables say which was used.
"""

from __future__ import annotations

import csv
from pathlib import Path
from typing import NamedTuple

import numpy as np

ROOT = Path(__file__).parents[2]
DATA = ROOT.parent / "shared" / "data"

# Ju et al., section 4. The probabilities of the classes are printed to three digits; the others
# are those of the authors' code.
CLASSES, FEATURES, LEVELS, RECORDS = 5, 5, 3, 100
CLASS_PROBABILITIES = np.array(
    [0.097855234189977, 0.148105534731165, 0.144714248176633, 0.446280850998588, 0.163044131903636]
)


class NaiveBayes(NamedTuple):
    """True probabilities: of classes, and of levels by feature and class."""

    classes: np.ndarray
    tables: np.ndarray
    source: str


class Regression(NamedTuple):
    """A confidential database, and the parameters it was drawn with."""

    covariates: np.ndarray
    response: np.ndarray
    beta: np.ndarray
    mean: np.ndarray
    source: str


class TimeUse(NamedTuple):
    """Shares of the day: personal care, eating and drinking, everything else."""

    shares: np.ndarray
    source: str


def naive_bayes() -> NaiveBayes:
    """Return the truth of Ju et al., Table 1."""
    path = DATA / "ju" / "loglinear_n100.csv"
    classes = CLASS_PROBABILITIES / CLASS_PROBABILITIES.sum()
    if not path.exists():
        rng = np.random.default_rng(4)
        tables = rng.dirichlet(np.full(LEVELS, 2.0), size=(FEATURES, CLASSES))
        return NaiveBayes(classes, tables, "features simulated")
    tables = np.empty((FEATURES, CLASSES, LEVELS))
    for row in _rows(path):
        where = (int(row["k"]) - 1, int(row["i"]) - 1, int(row["j"]) - 1)
        tables[where] = float(row["p_ijk_true"])
    return NaiveBayes(classes, tables / tables.sum(axis=-1, keepdims=True), "as published")


def confidential_counts() -> np.ndarray | None:
    """Return the counts of the one database of Ju et al., Figure 1, where it is present."""
    path = DATA / "ju" / "loglinear_n100.csv"
    return np.array([float(row["n_ijk"]) for row in _rows(path)]) if path.exists() else None


def regression() -> Regression:
    """Return the database behind Figure 2 of Ju et al."""
    beta = np.array([-1.794970722626304, -2.889002800554838, -0.662027156709289])
    mean = np.array([0.900141986388868, -1.173345772552491])
    path = DATA / "ju" / "linreg_n100_confidential.csv"
    if path.exists():
        rows = [[float(row[name]) for name in ("x1", "x2", "y")] for row in _rows(path)]
        values = np.array(rows)
        return Regression(values[:, :2], values[:, 2], beta, mean, "as published")
    rng = np.random.default_rng(5)
    covariates = rng.normal(mean, 1.0, size=(100, 2))
    response = beta[0] + covariates @ beta[1:] + rng.normal(0, np.sqrt(2.0), 100)
    return Regression(covariates, response, beta, mean, "simulated stand-in")


def time_use() -> TimeUse:
    """Return the shares of the American Time Use Survey 2019 that Awan et al. analyse."""
    paths = [DATA / "atus" / f"{who}.csv" for who in ("female", "male")]
    if all(path.exists() for path in paths):
        # The header has no name for the first column, which numbers the rows.
        parts = [np.loadtxt(path, delimiter=",", skiprows=1)[:, 1:] for path in paths]
        return TimeUse(np.concatenate(parts), "American Time Use Survey 2019")
    rng = np.random.default_rng(6)
    shares = rng.dirichlet([6.0, 1.0, 8.5], size=6656)
    minutes = np.maximum(shares, 1 / 1440)
    return TimeUse(minutes / minutes.sum(axis=1, keepdims=True), "simulated stand-in")


def _rows(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))
