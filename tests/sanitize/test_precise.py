"""PRECISE as published: its algorithm, its Table 4, and the label that it carries."""

import math

import arviz as az
import numpy as np
import pytest
from scipy import stats

import pymc_privacy as pmp
from pymc_privacy.errors import GuaranteeError
from pymc_privacy.sanitize import (
    CountCollapse,
    NoCollapse,
    ProportionCollapse,
    density_bounds,
    p3_histogram,
)
from pymc_privacy.sanitize.histogram import P3Histogram
from pymc_privacy.sanitize.precise import VARIANTS, precise_interval, thinned
from tests.stochastic import Z_LIMIT, assert_mean, seed_of

ADULT = {"bounds": (0.03, 0.97), "density_bound": density_bounds.bernoulli((0.03, 0.97))}
QUIET = 1e9  # an epsilon at which the noise is nothing


# ---------------------------------------------------------------- the histogram


def counted(draws, collapse, **kwargs):
    rng = np.random.default_rng(0)
    options = {"bounds": (0.0, 1.0), "bin_width": 0.1, "epsilon": QUIET, **kwargs}
    return p3_histogram(rng, np.asarray(draws), collapse=collapse, **options)


def test_draws_are_counted_and_those_outside_go_to_the_ends():
    histogram = counted([-3.0, 0.05, 0.25, 0.29, 0.95, 7.0], NoCollapse())
    np.testing.assert_allclose(histogram.counts, [2, 0, 2, 0, 0, 0, 0, 0, 0, 2], atol=1e-6)
    np.testing.assert_allclose(histogram.edges, np.linspace(0, 1, 11))


def test_collapsing_by_counts_keeps_from_the_first_to_the_last_bin_that_is_not_empty():
    histogram = counted([0.25, 0.55, 0.58], CountCollapse())
    np.testing.assert_allclose(histogram.edges, [0, 0.2, 0.3, 0.4, 0.5, 0.6, 1.0])
    np.testing.assert_allclose(histogram.counts, [0, 1, 0, 0, 2, 0], atol=1e-6)
    higher = counted([0.25, 0.55, 0.58], CountCollapse(lower=1, upper=1))
    np.testing.assert_allclose(higher.edges, [0, 0.5, 0.6, 1.0])
    np.testing.assert_allclose(higher.counts, [1, 2, 0], atol=1e-6)
    nothing = counted([0.25, 0.55], CountCollapse(lower=5))
    assert len(nothing.counts) == 10


def test_a_tail_of_no_bins_makes_no_bin():
    histogram = counted([0.05, 0.95], CountCollapse())
    assert len(histogram.counts) == 10
    one_sided = counted([0.05, 0.15], CountCollapse())
    np.testing.assert_allclose(one_sided.edges, [0, 0.1, 0.2, 1.0])


def test_collapsing_by_proportion_follows_the_example_of_the_paper():
    # 2% and 3% of 100 bins: two on the left and three on the right, whatever the counts.
    for draws in ([0.5], [0.001], [0.999]):
        histogram = counted(draws, ProportionCollapse(0.02, 0.03), bin_width=0.01)
        assert len(histogram.counts) == 95 + 2
        np.testing.assert_allclose(histogram.edges[[1, -2]], [0.02, 0.97])


def test_the_last_bin_ends_at_the_bound():
    histogram = counted([0.99], NoCollapse(), bin_width=0.3)
    np.testing.assert_allclose(histogram.edges, [0, 0.3, 0.6, 0.9, 1.0])
    np.testing.assert_allclose(histogram.counts, [0, 0, 0, 1], atol=1e-6)


@pytest.mark.parametrize(("budget", "sd"), [({"epsilon": 0.5}, math.sqrt(8)), ({"mu": 0.5}, 2.0)])
def test_noise_has_the_scale_of_a_sensitivity_of_one(budget, sd, request):
    rng = np.random.default_rng(seed_of(request))
    options = {"bounds": (0, 1), "bin_width": 1e-4, "nonnegative": False, **budget}
    counts = p3_histogram(rng, np.empty(0), **options).counts
    assert_mean(counts, 0.0)
    assert_mean(counts**2, sd**2, what="variance")
    clipped = p3_histogram(rng, np.empty(0), **options | {"nonnegative": True}).counts
    assert clipped.min() == 0


# ---------------------------------------------------------------- the quantiles


def test_quantiles_are_found_from_both_ends():
    histogram = P3Histogram(np.arange(6.0), np.array([1.0, 2.0, 3.0, 2.0, 1.0]), 9)
    rng = np.random.default_rng(0)
    for q, bin_ in ((0.1, 0), (0.3, 1), (0.7, 3), (0.9, 4)):
        value = histogram.quantile(rng, q, total=9)
        assert bin_ <= value <= bin_ + 1
    # Ties go to the smaller index: |1 - 2| = |3 - 2| at both ends.
    assert 0 <= histogram.quantile(rng, 2 / 9, total=9) < 1
    assert 3 <= histogram.quantile(rng, 7 / 9, total=9) < 4


@pytest.mark.parametrize("variant", VARIANTS)
def test_without_noise_the_interval_is_that_of_the_draws(variant, request):
    rng = np.random.default_rng(seed_of(request))
    draws = rng.beta(31, 71, size=4000)
    options = {"density_bound": 8.3, "samples": 4000, "epsilon": QUIET, "variant": variant}
    interval = precise_interval(rng, draws, bounds=(0, 1), **options)
    width = 1 / (2 * 4000 * 8.3)
    # The closest bin, and a point within it: a draw and two bins away at most.
    expected = np.quantile(draws, [0.025, 0.975], method="inverted_cdf")
    np.testing.assert_allclose([interval.lower, interval.upper], expected, atol=20 * width)


def test_one_histogram_gives_any_number_of_quantiles(request):
    rng = np.random.default_rng(seed_of(request))
    draws = rng.beta(31, 71, size=2000)
    wanted = [0.1, 0.5, 0.9]
    options = {"bounds": (0, 1), "density_bound": 8.3, "samples": 2000, "mu": QUIET}
    found = pmp.precise_quantiles(rng, draws, wanted, **options)
    np.testing.assert_allclose(found, np.quantile(draws, wanted), atol=0.005)


def test_thinning_uses_no_draw_twice():
    kept = thinned(np.arange(1000.0), 269)
    assert len(np.unique(kept)) == 269
    assert (kept[0], kept[-1]) == (0, 999)
    np.testing.assert_array_equal(thinned(np.arange(5.0), 5), np.arange(5))


# ---------------------------------------------------------------- the paper's numbers

PAPER = {  # Table 4 (a): mean width of 100 runs, in percent
    0.1: {"+m*": 9.87, "-m*": 10.41, "+m": 25.04, "-m": 9.58},
    0.5: {"+m*": 9.82, "-m*": 7.54, "+m": 10.85, "-m": 7.76},
}


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("epsilon", PAPER)
def test_table_4_of_the_paper_is_reproduced(epsilon, variant, request):
    # 108 of 500 records of the Adult data earn more than 50K: the sufficient statistic.
    rng = np.random.default_rng(seed_of(request))
    runs, options = 1500, {"samples": 269, "epsilon": epsilon, "variant": variant, **ADULT}
    widths = np.array(
        [precise_interval(rng, rng.beta(109, 393, 269), **options).width for _ in range(runs)]
    )
    # The paper's figure is the mean of 100 runs of the same spread.
    error = widths.std() * math.sqrt(1 / 100 + 1 / runs)
    z = (100 * widths.mean() - PAPER[epsilon][variant]) / (100 * error)
    assert abs(z) < Z_LIMIT, f"{100 * widths.mean():.2f} ({100 * widths.std():.2f}), z = {z:.1f}"


def test_density_bounds_are_those_of_table_2():
    assert density_bounds.bernoulli((0.03, 0.97)) == pytest.approx(8.315, abs=5e-4)
    assert density_bounds.poisson((3, 35), (0, 35)) == pytest.approx(2.823, abs=5e-4)
    assert density_bounds.normal_mean(5, 0.25) == pytest.approx(9.679, abs=5e-4)
    assert density_bounds.normal_variance(5, 0.25) == pytest.approx(12.10, abs=5e-3)
    assert density_bounds.slope(10, 0.25) == pytest.approx(38.7, abs=0.05)
    for wrong in ((0.0, 0.5), (0.5, 1.0), (0.7, 0.3)):
        with pytest.raises(GuaranteeError, match="bounds of a proportion"):
            density_bounds.bernoulli(wrong)
    with pytest.raises(GuaranteeError, match="smallest_sd must be"):
        density_bounds.normal_mean(5, 0.0)
    for beyond in (
        lambda: density_bounds.normal_variance(1e308, 1.0),
        lambda: density_bounds.normal_variance(1.0, 1e-320),
        lambda: density_bounds.normal_mean(1e308, 1e-300),
        lambda: density_bounds.slope(1e308, 1e-300),
    ):
        with pytest.raises(GuaranteeError, match="must be a finite number"):
            beyond()


def change_of_density(size, successes):
    """Return the largest distance of the posterior densities of two neighbours."""
    p = np.linspace(0, 1, 200_001)
    laws = [stats.beta(1 + k, 1 + size - k) for k in (successes, successes + 1)]
    return np.abs(laws[0].pdf(p) - laws[1].pdf(p)).max()


def test_the_limit_is_approached_but_is_no_supremum():
    pointwise = density_bounds.limit(1.0, 1 / (0.3 * 0.7))
    assert change_of_density(5000, 1500) == pytest.approx(pointwise, rel=0.02)
    # Within the declared range of p, and at its end: both beyond the "upper bound".
    assert change_of_density(500, 15) > density_bounds.bernoulli((0.03, 0.97))
    assert change_of_density(500, 0) == pytest.approx(501, rel=1e-3)


# ---------------------------------------------------------------- what is said about it


def test_the_result_is_nominal_and_says_why():
    rng = np.random.default_rng(0)
    draws = rng.beta(109, 393, 269)
    interval = pmp.precise(draws, samples=269, epsilon=0.1, rng=rng, **ADULT)
    assert (interval.label, interval.guarantee) == ("nominal", None)
    assert interval.claimed == pmp.PureDP(0.1, neighbours="replace_one")
    text = interval.statement()
    for phrase in ("nominal", "NOT guaranteed", "no noise hides that", "53.8", "supports nothing"):
        assert phrase in text
    assert interval.supported is None


@pytest.mark.parametrize("collapse", ["proportion", None, ProportionCollapse(0.1, 0.1)])
def test_with_fixed_bins_joint_accounting_supports_something(collapse):
    rng = np.random.default_rng(0)
    draws = rng.beta(109, 393, 269)
    options = {"samples": 269, "rng": rng, "collapse": collapse, **ADULT}
    pure = pmp.precise(draws, epsilon=0.1, **options)
    assert pure.label == "nominal"
    assert pure.supported.epsilon == pytest.approx(2 * 269 * 0.1)
    gaussian = pmp.precise(draws, mu=0.1, **options)
    assert gaussian.claimed == pmp.GaussianDP(0.1, neighbours="replace_one")
    assert gaussian.supported.mu == pytest.approx(math.sqrt(2) * 269 * 0.1)
    assert f"{2 * 269 * 0.1:.1f}" in pure.statement()


@pytest.mark.parametrize("samples", [1, 2, 5])
def test_joint_accounting_is_attained(samples):
    # Two bins; all draws in the first, or each with probability TV in the second. Far out the
    # ratio of the densities of the noisy counts is the bound itself.
    epsilon, distance, far = 0.3, 0.2, np.array([-50.0, 50.0])

    def density(probability):
        k = np.arange(samples + 1)
        noise = stats.laplace(scale=1 / epsilon)
        parts = noise.logpdf(far[0] - (samples - k)) + noise.logpdf(far[1] - k)
        return np.sum(stats.binom.pmf(k, samples, probability) * np.exp(parts))

    bound = pmp.joint_guarantee(samples, epsilon=epsilon, total_variation=distance).epsilon
    assert np.log(density(distance) / density(0.0)) == pytest.approx(bound, rel=1e-12)


def test_at_an_epsilon_of_nothing_the_interval_still_covers(request):
    # The decisive check: under epsilon = 1e-6 and n = 500 no output may tell p = 0.3 from 0.7.
    rng = np.random.default_rng(seed_of(request))
    covered, excluded = [], []
    for _ in range(400):
        k = rng.binomial(500, 0.3)
        draws = rng.beta(1 + k, 501 - k, 269)
        interval = precise_interval(rng, draws, samples=269, epsilon=1e-6, **ADULT)
        covered.append(interval.lower <= 0.3 <= interval.upper)
        excluded.append(interval.upper < 0.7)
    assert np.mean(covered) > 0.95
    assert np.mean(excluded) > 0.99


# ---------------------------------------------------------------- arguments


def test_several_parameters_share_the_budget():
    rng = np.random.default_rng(0)
    draws = {"a": rng.beta(3, 5, 500), "b": rng.beta(5, 3, 500), "c": rng.beta(2, 2, 500)}
    limits = {"bounds": dict.fromkeys(draws, (0.0, 1.0)), "density_bound": 8.0, "samples": 100}
    pure = pmp.precise(draws, epsilon=0.3, rng=rng, **limits)
    assert list(pure) == ["a", "b", "c"]
    assert [r.claimed.epsilon for r in pure.values()] == pytest.approx([0.1] * 3)
    assert pmp.compose(*[r.claimed for r in pure.values()]).epsilon == pytest.approx(0.3)
    gaussian = pmp.precise(draws, mu=0.3, rng=rng, var_names=["a", "c"], **limits)
    assert list(gaussian) == ["a", "c"]
    assert pmp.compose(*[r.claimed for r in gaussian.values()]).mu == pytest.approx(0.3)


def test_a_posterior_of_arviz_is_read():
    rng = np.random.default_rng(0)
    p = rng.beta(109, 393, size=(4, 250))
    idata = az.from_dict({"posterior": {"p": p, "many": rng.normal(size=(4, 250, 3))}})
    options = {"samples": 1000, "epsilon": 1.0, **ADULT}
    found = pmp.precise(idata, rng=np.random.default_rng(5), **options)
    assert list(found) == ["p"]
    assert found["p"].name == "p"
    again = pmp.precise(p.ravel(), rng=np.random.default_rng(5), **options)
    assert (found["p"].lower, found["p"].upper) == (again.lower, again.upper)
    with pytest.raises(GuaranteeError, match=r"var_names must be scalar parameters.*got many"):
        pmp.precise(idata, var_names=["many"], **options)
    with pytest.raises(GuaranteeError, match="group `posterior`"):
        pmp.precise(az.from_dict({"prior": {"p": p}}), **options)


@pytest.mark.parametrize(
    ("change", "must_hold"),
    [
        ({"epsilon": None}, r"One of epsilon=.*got neither"),
        ({"mu": 1.0}, r"One of epsilon=.*got both"),
        ({"epsilon": -0.1}, r"epsilon must be a finite number > 0.*got -0\.1"),
        ({"prob": 1.0}, r"prob must be a number in \(0, 1\).*got 1\.0"),
        ({"variant": "m"}, r"variant must be one of.*got 'm'"),
        ({"collapse": "some"}, r"collapse must be.*got 'some'"),
        ({"bounds": (1, 0)}, r"bounds must be a pair.*got \(1, 0\)"),
        ({"density_bound": 0.0}, r"density_bound must be.*got 0\.0"),
        ({"samples": 0}, r"samples must be an integer >= 1.*got 0"),
        ({"samples": 1000}, r"draws must be at least samples = 1000.*got 300"),
    ],
)
def test_bad_arguments_get_a_sentence(change, must_hold):
    rng = np.random.default_rng(0)
    good = {"samples": 100, "epsilon": 1.0, "rng": rng, **ADULT}
    with pytest.raises(GuaranteeError, match=must_hold):
        pmp.precise(rng.beta(3, 5, 300), **{**good, **change})


def test_bad_draws_get_a_sentence():
    options = {"samples": 2, "epsilon": 1.0, **ADULT}
    with pytest.raises(GuaranteeError, match=r"one-dimensional array.*got shape \(2, 2\)"):
        pmp.precise(np.ones((2, 2)), **options)
    with pytest.raises(GuaranteeError, match="finite numbers"):
        pmp.precise(np.array([0.1, np.nan]), **options)
    with pytest.raises(GuaranteeError, match="got float"):
        pmp.precise(3.0, **options)
    with pytest.raises(GuaranteeError, match="'b' is missing"):
        pmp.precise({"b": np.ones(3)}, **{**options, "bounds": {"a": (0, 1)}})


def test_a_label_cannot_be_given_what_it_does_not_mean():
    good = {"lower": 0.0, "upper": 1.0, "prob": 0.95, "method": "m", "assumptions": ()}
    promise = pmp.PureDP(1.0)
    for label, extra in (
        ("proven", {"guarantee": None}),
        ("conditional", {"guarantee": promise}),
        ("nominal", {"guarantee": promise, "why": ("because",)}),
        ("nominal", {"guarantee": None}),
        ("guaranteed", {"guarantee": promise}),
    ):
        with pytest.raises(GuaranteeError, match="A proven interval has a guarantee"):
            pmp.PrivateInterval(label=label, **good, **extra)
