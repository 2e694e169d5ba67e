"""One database of unknown size: what its sweep and its jumps refuse."""

import numpy as np
import pytest

import pymc_privacy as pmp
from pymc_privacy.algorithms.noise import noise
from pymc_privacy.step_methods.resizing import Resizing


class NowAndThenInfinite:
    """Draws of records that overflow now and then, though their contributions do not show it."""

    width, records = 1, ("x",)

    def draw_from(self, rng, point, contributions):
        x = rng.standard_normal(contributions.shape[1])
        x[rng.random(x.size) < 0.3] = np.inf
        contributions[0] = np.clip(x, 0, 1)
        return [x], None

    def contributions_at(self, point):
        return np.clip(point["x"], 0, 1)[None]


@pytest.mark.parametrize("jumps", [8, -1], ids=["jumps", "single"])
def test_a_fresh_record_that_is_no_number_is_refused(jumps):
    resizing = object.__new__(Resizing)
    resizing.size, resizing.capacity, resizing.records = "n", 12, ("x",)
    resizing._program, resizing._inputs = NowAndThenInfinite(), ()
    resizing._log_size = lambda sizes: [np.where(sizes > 0, 0.0, -np.inf)]
    resizing.forget()
    resizing._noise = noise([pmp.Laplace.formula], [3.0], [pmp.Laplace(scale=2.0).parameters])
    rng, point = np.random.default_rng(1), {"n": np.array(6), "x": np.zeros(12)}
    births = moved = 0
    for _ in range(100):
        before = [point["x"][: point["n"]]]
        info = resizing.step(rng, point, before, 3.0, jumps)
        births, moved = births + info.jumped.births, moved + info.swept.accepted.sum()
        assert np.isfinite(point["x"][: point["n"]]).all()
    assert births
    assert moved
