"""A sum of locally noised values: its density by Fourier inversion, and its simulator."""

import math

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from scipy import stats

import pymc_privacy as pmp
from pymc_privacy.errors import MechanismError
from tests import references
from tests.stochastic import FALSE_ALARM, seed_of

NOISES = {
    "laplace": (pmp.Laplace(scale=1.5), references.laplace),
    "gaussian": (pmp.Gaussian(scale=0.7), references.gaussian),
}


@pytest.mark.parametrize("kind", NOISES)
@pytest.mark.parametrize("size", [3, 8, 16, 17, 18, 40, 1000, 100_000])
def test_the_density_is_the_inverse_of_an_nth_power(kind, size):
    noise, family = NOISES[kind]
    law = pmp.LocalSum(noise=noise)
    sd = noise.scale * math.sqrt(2 * size if kind == "laplace" else size)
    z = np.array([0.0, 1e-6, 0.3, 1.0, 2.5, 4.0]) * sd
    found = np.exp(law.log_density(2.0 + z, np.tile([2.0, size], (6, 1))))
    exact = [references.density_of_summed_noise(family, noise.scale, size, x) for x in z]
    np.testing.assert_allclose(found, exact, rtol=2e-8)


@pytest.mark.parametrize("z", [0.0, 0.1, 3.0, 700.0, 1e5])
def test_few_records_have_a_density_that_is_known(z):
    law = pmp.LocalSum(noise=pmp.Laplace(scale=2.0))
    polynomials = {1: 1 / 2, 2: (1 + z) / 4, 3: (3 + 3 * z + z**2) / 16}
    for size, polynomial in polynomials.items():
        found = law.log_density(-2.0 * z + 5, [5.0, size])
        assert found == pytest.approx(math.log(polynomial) - z - math.log(2.0), rel=1e-12)
    assert pmp.Laplace(scale=2.0).log_density(z, 0.0) == law.log_density(z, [0.0, 1])


def test_both_forms_of_the_density_meet_where_one_takes_over():
    """By f_{n+1} = (1 - 1/2n) f_n + z² / (4 n (n - 1)) f_{n-1}, which K fulfils for all n."""
    law = pmp.LocalSum(noise=pmp.Laplace(scale=1.0))
    z = np.concatenate([[0.0], np.geomspace(1e-8, 3000, 200)])
    for n in (5, 14, 15, 16, 17, 18, 50, 3000):
        before, here, after = (
            law.log_density(z, np.stack([0 * z, 0 * z + n + k], axis=1)) for k in (-1, 0, 1)
        )
        ratio = (1 - 1 / (2 * n)) * np.exp(here - after)
        ratio += z**2 / (4 * n * (n - 1)) * np.exp(before - after)
        np.testing.assert_allclose(ratio, 1, atol=2e-9)


def test_far_away_the_density_is_small_and_a_number():
    law = pmp.LocalSum(noise=pmp.Laplace(scale=1.0))
    for size in (1, 2, 16, 17, 1e9):
        near, far = law.log_density(np.array([1e12, 1e30]), np.tile([0.0, size], (2, 1)))
        assert np.isfinite(near)
        assert np.isfinite(far)
        assert near > far
    assert law.log_density(0.0, [0.0, 0]) == -np.inf
    assert law.log_density(1.0, [1.0, 0]) == -np.inf


@pytest.mark.parametrize("kind", NOISES)
@pytest.mark.parametrize("size", [1, 4, 60])
def test_sums_are_drawn_from_their_density(kind, size, request):
    law = pmp.LocalSum(noise=NOISES[kind][0])
    rng = np.random.default_rng(seed_of(request))
    drawn = law.simulate(rng, np.tile([1.0, size], (40_000, 1)))
    one_by_one = law.noise.simulate(rng, np.zeros((40_000, size))).sum(axis=1) + 1.0
    assert stats.ks_2samp(drawn, one_by_one).pvalue > FALSE_ALARM
    if size > 1:
        assert stats.ks_2samp(drawn, one_by_one * 0.8 + 0.2).pvalue < FALSE_ALARM


@pytest.mark.parametrize("kind", NOISES)
def test_arrays_and_tensors_have_the_same_density_and_its_slope(kind):
    law = pmp.LocalSum(noise=NOISES[kind][0])
    statistic = pt.vector("statistic", shape=(2,))
    density = law.log_density(pt.constant(4.0), statistic)
    both = pytensor.function([statistic], [density, pt.grad(density, statistic)[0]], mode="NUMBA")
    for size in (1.0, 5.0, 16.0, 17.0, 300.0):
        value, slope = both(np.array([1.0, size]))
        assert value == pytest.approx(float(law.log_density(4.0, [1.0, size])), rel=1e-12)
        ends = [float(law.log_density(4.0, [1.0 + h, size])) for h in (-1e-5, 1e-5)]
        assert slope == pytest.approx((ends[1] - ends[0]) / 2e-5, rel=1e-5)
    assert np.all(np.isfinite(both(np.array([4.0, 5.0]))))


def test_several_values_have_scales_of_their_own():
    law = pmp.LocalSum(noise=pmp.Gaussian(scale=(1.0, 3.0)))
    values = np.array([[1.0, 2.0], [0.5, 0.0], [0.0, 1.0], [1.0, 1.0]])
    total = law.contributions(values).sum(axis=0)
    assert total.tolist() == [2.5, 4.0, 4.0]
    expected = stats.norm.logpdf([3.0, 0.0], [2.5, 4.0], [2.0, 6.0])
    np.testing.assert_allclose(law.log_density([3.0, 0.0], total), expected)
    assert law.simulate(np.random.default_rng(0), total).shape == (2,)
    with pytest.raises(MechanismError, match="2 scales for 1 values"):
        law.log_density(1.0, [2.5, 4.0])


def test_what_is_promised_is_what_each_record_is_promised():
    law = pmp.LocalSum(noise=pmp.Laplace(epsilon=0.5, sensitivity=3.0))
    assert law.guarantee == pmp.PureDP(0.5, neighbours="replace_one")
    assert pmp.LocalSum(noise=pmp.Gaussian(scale=1.0)).guarantee is None
    assert pmp.LocalSum(noise=pmp.Gaussian(mu=1.0, sensitivity=1.0)).guarantee == pmp.GaussianDP(
        1.0, neighbours="replace_one"
    )


def test_a_record_more_can_be_told_in_the_tail():
    """Why nothing is promised about adding or removing a record."""
    for noise, _ in NOISES.values():
        law = pmp.LocalSum(noise=noise)
        losses = [
            float(law.log_density(s, [0.0, 6]) - law.log_density(s, [0.0, 5]))
            for s in (10.0, 100.0, 1e4)
        ]
        assert losses[0] < losses[1] < losses[2]
        assert losses[2] > 5


@pytest.mark.parametrize("size", [1, 2, 7, 30])
def test_replacing_a_value_costs_at_most_epsilon(size):
    law = pmp.LocalSum(noise=pmp.Laplace(epsilon=0.8, sensitivity=1.0))
    s = np.linspace(-200, 200, 4001)
    here, there = (law.log_density(s, np.tile([t, size], (4001, 1))) for t in (0.0, 1.0))
    worst = np.abs(here - there).max()
    assert worst <= 0.8 * (1 + 1e-9)
    assert worst > 0.8 * (0.9 if size < 10 else 0.5)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (pmp.DiscreteLaplace(scale=1.0), "must be Laplace or Gaussian"),
        (1.0, "must be Laplace or Gaussian"),
        (
            pmp.Laplace(epsilon=1.0, sensitivity=1.0, neighbours="add_remove"),
            "hides what a value is",
        ),
    ],
)
def test_noise_without_a_known_sum_is_refused(given, message):
    with pytest.raises(MechanismError, match=message):
        pmp.LocalSum(noise=given)


def test_misuse_gets_a_sentence():
    law = pmp.LocalSum(noise=pmp.Laplace(scale=1.0))
    with pytest.raises(MechanismError, match="values of each record and a one"):
        law.release_shape(())
    with pytest.raises(MechanismError, match="values of each record and a one"):
        law.release_shape((1,))
    with pytest.raises(MechanismError, match="local=True"):
        law.local_shape((5, 2))
    with pytest.raises(MechanismError, match="behind them a number of records"):
        law.simulate(np.random.default_rng(0), [1.0, 2.5])
    with pytest.raises(MechanismError, match="one row for each record"):
        law.contributions(3.0)
