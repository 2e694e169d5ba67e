"""G(n) of PRECISE, numerically: exact where it is known, and in the limit that Theorem 2 names."""

import numpy as np
import pytest
from scipy import stats

from pymc_privacy.errors import GuaranteeError
from pymc_privacy.sanitize import density_bounds

GRID = np.linspace(0, 1, 40_001)


def share(p, counts):
    ones, size = counts
    return stats.beta.logpdf(p, 1 + ones, 1 + size - ones)


@pytest.mark.parametrize("size", [20, 100])
def test_the_distance_is_exact_at_the_end_of_the_range(size):
    found = density_bounds.numerical(share, [((0, size), (1, size))], GRID)
    assert found == pytest.approx(size + 1, rel=1e-6)


def test_the_distance_tends_to_its_limit():
    """Figure 5 of Liu et al.: G(n) approaches G0 = 1 / (sqrt(2 e pi) p (1 - p))."""
    limit = density_bounds.limit(1.0, 1 / 0.21)
    sizes = (50, 500, 5000)
    errors = [
        abs(density_bounds.numerical(share, [((0.3 * n, n), (0.3 * n + 1, n))], GRID) / limit - 1)
        for n in sizes
    ]
    assert errors[0] > errors[1] > errors[2]
    assert errors[2] < 0.02


def test_what_is_no_density_is_refused():
    with pytest.raises(GuaranteeError, match="grid must be three or more"):
        density_bounds.numerical(share, [((0, 1), (1, 1))], [0.0, 1.0])
    with pytest.raises(GuaranteeError, match="pairs must be one pair"):
        density_bounds.numerical(share, [], GRID)
    with pytest.raises(GuaranteeError, match="log_density must be a log density"):
        density_bounds.numerical(lambda p, x: 0.0, [((0, 1), (1, 1))], GRID)
