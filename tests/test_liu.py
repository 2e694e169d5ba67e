"""The study of Liu et al. in small: its comparators against what is exact, and both verdicts."""

import argparse

import numpy as np
import pytest
from scipy import optimize, stats

from benchmarks.papers import pages
from benchmarks.papers.liu import comparators, figure_5, figures, gaussian, study, times
from pymc_privacy.sanitize import NormalMean, NormalVariance, Proportion, Rate, Slope
from tests.stochastic import assert_mean, seed_of


def generator(request):
    return np.random.default_rng(seed_of(request))


# ---------------------------------------------------------------- Gaussian noise


@pytest.mark.parametrize(("size", "printed"), zip(times.SIZES, times.PRINTED_MU, strict=True))
def test_mu_is_that_of_the_last_footnote_of_table_3(size, printed):
    assert round(gaussian.mu_of(8.0, 1 / size), 2) == printed


@pytest.mark.parametrize(
    ("family", "dimensions"), [(NormalMean((-4, 4)), 1), (Slope((-4, 4), (-2, 4), (-5, 5)), 2)]
)
def test_the_euclidean_sensitivity_is_that_of_the_furthest_pair(family, dimensions):
    """Looked for among pairs of records; that of the slope is a bound."""

    def distance(pair):
        both = family.contributions(np.repeat(pair.reshape(2, -1), 8, axis=0).squeeze())
        return -float(np.linalg.norm(both[0] - both[-1]))

    ends = [(-4.0, 4.0), (-2.0, 4.0)][:dimensions] * 2
    found = optimize.differential_evolution(distance, ends, seed=1, maxiter=60, polish=False)
    assert -found.fun <= gaussian.l2_sensitivity(family) * (1 + 1e-9)
    if dimensions == 1:
        assert -found.fun == pytest.approx(2.0, rel=1e-3)


def test_a_posterior_with_gaussian_noise_is_that_of_a_sum_over_all_totals(request):
    size, sigma, released = 60, 7.0, 21.3
    drawn = gaussian.noise_aware(
        generator(request), Proportion(), np.array([released]), sigma, size, 400_000
    )
    k, grid = np.arange(size + 1), np.linspace(0, 1, 4001)
    weights = stats.norm.pdf(released, k, sigma)
    density = sum(
        w * stats.betabinom.pmf(c, size, 1, 1) * stats.beta.pdf(grid, 1 + c, 1 + size - c)
        for c, w in zip(k, weights, strict=True)
    )
    cumulated = np.cumsum(density) / density.sum()
    exact = np.interp([0.025, 0.975], cumulated, grid)
    assert drawn == pytest.approx(tuple(exact), abs=0.004)
    # A posterior that takes the release for the total is another.
    wrong = stats.beta(1 + released, 1 + size - released).ppf([0.025, 0.975])
    assert abs(drawn[1] - wrong[1]) > 0.02


@pytest.mark.parametrize("family", [NormalMean((-4, 4)), NormalVariance((-4, 4)), Rate(25)])
def test_intervals_with_gaussian_noise_cover(family, request):
    rng = generator(request)
    truth = {NormalMean: 0.0, NormalVariance: 1.0, Rate: 10.0}[type(family)]
    inside = []
    for _ in range(150):
        records = rng.poisson(10, 200) if isinstance(family, Rate) else rng.normal(size=200)
        made = gaussian.gaussian_ends(rng, family, records, 1.0, 1500)
        inside.append([low <= truth <= high for low, high in made.values()])
    shares = np.mean(inside, axis=0)
    assert (shares > 0.95 - 4 * np.sqrt(0.95 * 0.05 / 150)).all(), shares


# ---------------------------------------------------------------- comparators


def test_a_noisy_quantile_is_private_and_near_for_much_epsilon(request):
    """Two lists that differ in one record: no gap is e^epsilon times as probable."""
    rng, epsilon = generator(request), 0.7
    one, other = np.array([0.1, 0.3, 0.4, 0.8]), np.array([0.1, 0.3, 0.4, 0.41])
    edges = np.sort(np.concatenate([one, other[3:], [0.0, 1.0]]))
    counts = [
        np.histogram(
            [
                comparators.noisy_quantile(rng, np.sort(x), 0.5, (0, 1), epsilon)
                for _ in range(8000)
            ],
            edges,
        )[0]
        for x in (one, other)
    ]
    ratio = np.abs(np.log(counts[0] / counts[1]))
    error = np.sqrt(1 / counts[0] + 1 / counts[1])
    assert (ratio < epsilon + 5 * error).all()
    near = comparators.noisy_quantile(rng, np.linspace(0, 1, 1001), 0.35, (0, 1), 1000.0)
    assert near == pytest.approx(0.35, abs=0.02)


def test_deconvolution_takes_the_noise_off(request):
    rng, grid = generator(request), np.linspace(-6, 6, 400)
    noisy = rng.normal(1, 0.8, 20_000) + rng.normal(0, 1.0, 20_000)
    density = comparators.deconvolved(noisy, 1.0, grid)
    mean = float(density @ grid)
    assert mean == pytest.approx(1.0, abs=0.05)
    spread = np.sqrt(float(density @ (grid - mean) ** 2))
    assert spread == pytest.approx(0.8, abs=0.08), "and not the 1.28 of what is noisy"


def test_a_sparse_vector_stops_where_half_of_the_parts_do(request):
    rng = generator(request)
    first = np.bincount([2, 3, 3, 5, 5, 6, 7, 7], minlength=10)
    found = [comparators.sparse_vector(rng, first, 8, 1000.0) for _ in range(200)]
    assert set(found) <= {4, 5}


@pytest.mark.parametrize("epsilon", [1.0, 50.0])
def test_little_bootstraps_need_two_records_in_each_part(epsilon, request):
    rng = generator(request)
    found = comparators.little_bootstraps(rng, rng.normal(size=100), (-4, 4), epsilon)
    assert (found is None) == (epsilon == 1.0)
    assert found is None or found[1] - found[0] < 1.5


@pytest.mark.slow
def test_repro_samples_cover_both_parameters(request):
    rng, inside = generator(request), []
    for _ in range(15):
        x = rng.normal(size=200)
        low, high = comparators.repro(rng, x, NormalMean((-4, 4)), 1.0)
        least, most = comparators.repro(rng, x, NormalVariance((-4, 4)), 1.0)
        inside += [low <= 0 <= high, least <= 1 <= most]
    assert np.mean(inside) > 0.8


@pytest.mark.slow
def test_symq_covers(request):
    rng = generator(request)
    made = [comparators.symq(rng, rng.normal(size=150), (-4, 4), 2.0) for _ in range(40)]
    assert_mean(np.array([low <= 0 <= high for low, high in made]), 0.95, what="coverage of SYMQ")


# ---------------------------------------------------------------- the pages


def sums_of(covered, error, width=1.0):
    """Return sums for one task in which +m* covers so often, with errors that go like n^error."""
    sums = {}
    for kind, losses in figures.LOSSES.items():
        for size in study.SIZES:
            for loss in losses:
                row = {
                    method: np.array([100, 95, 100 * width, 100, 100 * size**-1.0])
                    for method in study.METHODS
                }
                row["+m*"] = np.array([100, 100 * covered, 100 * width, 100, 100 * size**error])
                sums["proportion", size, kind, loss] = row
    return sums


def test_claims_can_be_true_and_false():
    good, bad = (figures.coverages(sums_of(share, -1.0))[0] for share in (0.95, 0.8))
    assert (good[3], good[-1]) == ("66", "**agrees**")
    assert bad[-1] == "**differs**"
    assert "0.80" in bad[4]
    narrow, wide = (figures.widths(sums_of(0.95, -1.0, width=w))[1] for w in (1.0, 2.0))
    assert [row[1:3] for row in (narrow, wide)] == [["0", "0"], ["0", "0"]]
    sums = sums_of(0.95, -1.0)
    for methods in sums.values():
        methods["bootstrap"] = methods["bootstrap"] * [1, 1, 0.5, 1, 1]
    assert [row[-1] for row in figures.widths(sums)[1:7:5]] == ["**differs**", "**agrees**"]
    assert "**Agrees.**" in figures.consistency(sums_of(0.95, -1.0))
    assert "**Refuted**" in figures.consistency(sums_of(0.95, 0.1))


@pytest.mark.slow
def test_a_small_study_is_recorded_and_read_again(tmp_path, monkeypatch):
    monkeypatch.setattr(study, "BATCH", 2)
    monkeypatch.setattr(study, "FEW", 1)
    few = [s for s in study.settings() if s["size"] == 100 and s["loss"] in (0.5, 5.0)]
    monkeypatch.setattr(study, "settings", lambda: few)
    monkeypatch.setattr(pages, "RECORDED", tmp_path)
    chosen = argparse.Namespace(replicates=1, seed=1, output=tmp_path)
    rows = study.study(chosen).run(progressbar=False)
    assert [row["error"] for row in rows] == [None] * len(few)
    pages.record("x", rows)
    here, there = figures.summed(rows), figures.summed(pages.read_recorded("x"))
    assert figures.verdicts(here) == figures.verdicts(there)
    for figure in figures.FIGURES:
        assert figures.table(here, figure) == figures.table(there, figure)
        assert "| 100 | 5 |" in figures.table(here, figure)


def test_numerical_distances_of_figure_5_are_near_their_limit(request):
    """With the formula of the limit written anew."""
    rng = generator(request)
    case = next(c for c in figure_5.CASES if c.name == "proportion 0.3")
    found = figure_5.numerical(case, case.simulate(rng, 20_000))
    assert found == pytest.approx(1 / (np.sqrt(2 * np.e * np.pi) * 0.21), rel=0.03)
