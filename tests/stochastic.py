"""Assertions about random draws: a reference, a z-score, and one budget for false alarms."""

import zlib

import numpy as np
from arviz_stats.base import array_stats
from scipy import stats

FALSE_ALARM = 1e-6
Z_LIMIT = stats.norm.isf(FALSE_ALARM / 2)


def seed_of(request) -> int:
    """Return a seed that belongs to one test and to no other."""
    return zlib.crc32(request.node.nodeid.encode())


def z_of_mean(draws: np.ndarray, expected: float) -> float:
    """Return (mean - expected) / its Monte Carlo standard error.

    One axis: independent draws. Two axes (chain, draw): a Markov chain, whose error is
    sd / sqrt(effective draws).
    """
    draws = np.asarray(draws, dtype=float)
    effective = draws.size
    if draws.ndim == 2:
        effective = array_stats.ess(draws, chain_axis=0, draw_axis=1, method="mean")
    error = draws.std() / np.sqrt(effective)
    difference = draws.mean() - expected
    # Draws that never vary carry no error: they are right or wrong for certain.
    return difference / error if error > 0 else float(np.inf * difference) if difference else 0.0


def assert_mean(draws: np.ndarray, expected: float, *, what: str = "mean") -> None:
    """Fail when the mean of the draws is not the expected one."""
    z = z_of_mean(draws, expected)
    assert abs(z) < Z_LIMIT, f"{what}: {np.mean(draws):.5g} instead of {expected:.5g}, z = {z:.1f}"


def assert_law(draws: np.ndarray, reference, *, what: str = "law") -> None:
    """Fail when the draws do not follow a reference with mean, sd, cdf and quantile."""
    mean, sd = reference.mean(), reference.sd()
    assert_mean(draws, mean, what=f"{what}: mean")
    assert_mean((draws - mean) ** 2, sd**2, what=f"{what}: variance")
    for probability in (0.1, 0.5, 0.9):
        point = float(reference.quantile(probability))
        expected = float(reference.cdf(np.asarray(point)))
        assert_mean(draws <= point, expected, what=f"{what}: P(parameter <= {point:.4g})")
