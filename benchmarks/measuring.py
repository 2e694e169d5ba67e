"""How fast: sampling against the clock, and how figures are written."""

from __future__ import annotations

import time
import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
import pymc as pm
from arviz_stats.base import array_stats

QUIET = {
    "cores": 1,
    "progressbar": False,
    "quiet": True,
    "compute_convergence_checks": False,
}


def timed_sample(draws: int, *, tune: int, **options: Any) -> tuple[Any, float]:
    """Sample without a word; return the posterior and the CPU seconds of the whole call."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        start = time.process_time()
        result = pm.sample(draws, tune=tune, **QUIET, **options)
    return result["posterior"], time.process_time() - start


def timed_draws(draws: int, *, tune: int, **options: Any) -> tuple[Any, float]:
    """As `timed_sample`, with the CPU seconds of the draws alone, when tuning is over."""
    began: dict[int, float] = {}
    ended: dict[int, float] = {}

    def watch(trace, draw):
        if draw.tuning or draw.chain not in began:
            began[draw.chain] = time.process_time()
        ended[draw.chain] = time.process_time()

    posterior, _ = timed_sample(draws, tune=tune, callback=watch, **options)
    return posterior, sum(ended[chain] - began[chain] for chain in began)


def timed_when_compiled(draws: int, *, tune: int, **options: Any) -> tuple[Any, float]:
    """Sample once to compile, once to measure; as `timed_sample`."""
    timed_sample(5, tune=5, **options)
    return timed_sample(draws, tune=tune, **options)


def effective(draws: np.ndarray) -> float:
    """Return the bulk effective size of draws with axes (chain, draw)."""
    return float(array_stats.ess(draws, chain_axis=0, draw_axis=1))


def worst_effective(posterior, names: Sequence[str]) -> float:
    """Return the smallest bulk effective size over all coordinates of some parameters."""
    values = [posterior[name].values for name in names]
    flat = [value.reshape(*value.shape[:2], -1) for value in values]
    return min(effective(value[..., k]) for value in flat for k in range(value.shape[-1]))


def figures(value: float, number: int) -> str:
    """Write a number rounded to so many figures, and no large one as a power of ten."""
    return f"{float(f'{value:.{number}g}'):.9g}"


def two_figures(value: float) -> str:
    """Write a number rounded to two figures."""
    return figures(value, 2)
