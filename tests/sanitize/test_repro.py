"""Repro samples cover at each parameter: exactly where the release is continuous, else more."""

import numpy as np
import pytest

import pymc_privacy as pmp
from pymc_privacy.errors import ReleaseError
from tests.stochastic import Z_LIMIT, assert_mean, seed_of

NOISE = pmp.Laplace(epsilon=1.0, sensitivity=1.0)
PLANE = pmp.Laplace(epsilon=1.0, sensitivity=2.0)


def generator(request):
    return np.random.default_rng(seed_of(request))


def shares(rng, p, draws):
    return NOISE.simulate(rng, rng.binomial(20, p, draws))


def moments(rng, parameter, draws):
    x = np.clip(rng.normal(*parameter, size=(draws, 12)), 0, 1)
    return PLANE.simulate(rng, np.stack([x.sum(axis=1), (x**2).sum(axis=1)], axis=1))


@pytest.mark.parametrize(
    ("simulate", "truth"), [(shares, 0.001), (shares, 0.4), (moments, (0.4, 0.2))]
)
def test_the_truth_is_left_out_as_often_as_it_may_be(simulate, truth, request):
    """Of 40 depths that do not tie, the observed one is among the 2 largest once in 20 times."""
    rng = generator(request)
    kept = [
        pmp.repro_set(simulate(rng, truth, 1)[0], simulate, [truth], draws=39, rng=rng).accepted[0]
        for _ in range(4000)
    ]
    assert_mean(np.array(kept), 0.95, what="coverage")
    # The same with a simulator that forgets the noise of few records.
    if truth == 0.001:
        kept = [
            pmp.repro_set(
                simulate(rng, truth, 1)[0],
                lambda rng, p, draws: rng.binomial(20, p, draws),
                [truth],
                draws=39,
                rng=rng,
            ).accepted[0]
            for _ in range(500)
        ]
        with pytest.raises(AssertionError, match="z ="):
            assert_mean(np.array(kept), 0.95)


def test_an_interval_covers_where_a_credible_one_does_not(request):
    """A share of 0.001 among 20 records: no posterior given so noisy a total reaches so low."""
    rng = generator(request)
    covered = {pmp.repro_interval: 0, pmp.noise_aware_interval: 0}
    runs = 60
    for _ in range(runs):
        records = (rng.random(20) < 0.001).astype(int)
        for method, draws in ((pmp.repro_interval, 99), (pmp.noise_aware_interval, 2000)):
            found = method(records, pmp.Proportion(), epsilon=1.0, rng=rng, draws=draws)
            covered[method] += found.lower <= 0.001 <= found.upper
    slack = Z_LIMIT * np.sqrt(0.95 * 0.05 / runs)
    assert covered[pmp.repro_interval] / runs > 0.95 - slack
    assert covered[pmp.noise_aware_interval] / runs < 0.2


def test_rates_are_simulated_as_they_are_clipped(request):
    """Totals at a rate are those of counts that were clipped one by one."""
    rng = generator(request)
    family = pmp.Rate(upper=3)
    totals = family.totals_at(rng, 2.0, 50, 20_000)[:, 0]
    k = np.arange(60)
    pmf = np.exp(-2.0 + k * np.log(2.0) - np.cumsum(np.log(np.maximum(k, 1))))
    assert_mean(totals, 50 * float(np.minimum(k, 3) @ pmf), what="clipped total")
    found = pmp.repro_interval(rng.poisson(2.0, 400), family, epsilon=2.0, draws=199, rng=rng)
    assert found.lower < 2.0 < found.upper < 3


def test_an_interval_reaches_to_the_next_values_that_were_tried():
    found = pmp.sanitize.ReproSet(
        np.array([0.0, 1.0, 2.0, 3.0]), np.array([0.01, 0.2, 0.9, 0.05]), 0.9
    )
    assert found.accepted.tolist() == [False, True, True, False]
    assert found.interval() == (0.0, 3.0)
    nothing = pmp.sanitize.ReproSet(np.array([0.0, 1.0]), np.zeros(2), 0.9)
    assert np.isnan(nothing.interval()).all()


def test_what_cannot_be_told_is_refused():
    with pytest.raises(ReleaseError, match=r"draws must be larger for this prob.*got 18"):
        pmp.repro_set(1.0, shares, [0.5], draws=18)
    with pytest.raises(ReleaseError, match=r"Simulated releases must be.*got"):
        pmp.repro_set([1.0, 2.0], shares, [0.5], draws=39)
    with pytest.raises(ReleaseError, match=r"family must be Proportion\(\) or Rate"):
        pmp.repro_interval(np.zeros(20), pmp.NormalMean((0, 1)), epsilon=1.0)
    with pytest.raises(ReleaseError, match=r"upper=10000.*got 20000"):
        pmp.repro_interval([1, 2], pmp.Rate(upper=20_000), epsilon=1.0)
