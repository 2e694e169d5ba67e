"""The information of an answer, and the queries that have most of it."""

import itertools

import numpy as np
import pytest
from scipy import integrate, stats

from pymc_privacy.algorithms.query_design import (
    FAMILIES,
    DrawnLaw,
    best_bins,
    best_clip,
    binned_information,
    clipped_information,
    remembering_clip,
    score_of,
    search_bins,
    search_clip,
)
from pymc_privacy.errors import DesignWarning

NORMAL = FAMILIES["normal"]
# Yıldırım's first score, computed exactly: the ends of the interval and its information on mu.
EXACT = {
    1.0: (0.0700, 0.10887),
    2.0: (0.2225, 0.28600),
    5.0: (0.7275, 0.61222),
    10.0: (1.2250, 0.80441),
}


def information_of(low, high, epsilon):
    return clipped_information(NORMAL.slopes, np.array([low]), np.array([high]), epsilon)[0]


@pytest.mark.parametrize("epsilon", EXACT)
def test_the_optima_of_the_paper(epsilon):
    end, information = EXACT[epsilon]
    low, high = best_clip("normal", epsilon, "first")
    assert high == pytest.approx(end, abs=2.5e-3)
    assert low == pytest.approx(-end, abs=2.5e-3)
    assert information_of(low, high, epsilon)[0, 0] == pytest.approx(information, abs=2e-5)


def test_information_of_a_clipped_record_by_quadrature():
    """Differences of the log density of the release, squared and integrated."""
    low, high, b, step = -0.5, 1.2, 1.7 / 3.0, 1e-4

    def density(y, mu, sd):
        kernel = stats.laplace(scale=b).pdf
        law = stats.norm(mu, sd)
        at = sorted({low, high, min(max(y, low), high)})
        inside = sum(
            integrate.quad(lambda x: law.pdf(x) * kernel(y - x), p, q)[0]
            for p, q in itertools.pairwise(at)
        )
        return law.cdf(low) * kernel(y - low) + law.sf(high) * kernel(y - high) + inside

    def slopes(y):
        by_mu = (density(y, step, 1) - density(y, -step, 1)) / (2 * step)
        by_sd = (density(y, 0, 1 + step) - density(y, 0, 1 - step)) / (2 * step)
        return np.array([by_mu, by_sd])

    nodes, weights = np.polynomial.legendre.leggauss(24)
    ys = low + (high - low) * (nodes + 1) / 2
    total = sum(
        w * (high - low) / 2 * np.outer(s, s) / density(y, 0, 1)
        for y, w, s in ((y, w, slopes(y)) for y, w in zip(ys, weights, strict=True))
    )
    for end in (low, high):
        s = slopes(end)
        total = total + b * np.outer(s, s) / density(end, 0, 1)
    np.testing.assert_allclose(information_of(low, high, 3.0), total, atol=2e-5)


def test_information_of_a_binned_record():
    edges, epsilon = np.array([-0.4, 0.9]), 1.3
    keep = np.exp(epsilon) / (np.exp(epsilon) + 2)

    def answers(theta):
        truth = np.diff([0.0, *stats.norm(*theta).cdf(edges), 1.0])
        return keep * truth + (1 - keep) / 2 * (1 - truth)

    step = 1e-5
    slopes = np.array(
        [
            (answers((step, 1)) - answers((-step, 1))) / (2 * step),
            (answers((0, 1 + step)) - answers((0, 1 - step))) / (2 * step),
        ]
    )
    wanted = (slopes / answers((0, 1))) @ slopes.T
    np.testing.assert_allclose(
        binned_information(*NORMAL.slopes(edges), epsilon), wanted, atol=1e-9
    )


def test_bins_tell_more_than_clips():
    """By how much, at epsilon 1 and 5, from an independent search over mechanisms."""
    for epsilon, mean, both in ((1.0, 0.1359, 0.0475), (5.0, 0.854, 0.524)):
        for score, wanted in (("first", mean), ("a_optimal", both)):
            edges = np.array(best_bins("normal", epsilon, score))
            found = score_of(binned_information(*NORMAL.slopes(edges), epsilon), score)
            assert found == pytest.approx(wanted, abs=6e-4)
            low, high = best_clip("normal", epsilon, score)
            assert found > 1.2 * score_of(information_of(low, high, epsilon), score)


@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_has_a_query_that_tells_location_and_scale(family):
    for epsilon in (0.3, 3.0):
        edges = np.array(best_bins(family, epsilon, "a_optimal"))
        assert np.all(np.diff(edges) > 0)
        made = binned_information(*FAMILIES[family].slopes(edges), epsilon)
        assert np.linalg.cond(made) < 100


def test_the_harmonic_score_says_that_it_does_not_identify():
    best_clip.cache_clear()
    with pytest.warns(DesignWarning, match="hardly be told apart"):
        low, high = best_clip("normal", 1.0, "harmonic")
    assert high < 0 or low > 0, "nearly a question of one bit, to one side"
    made = information_of(low, high, 1.0)
    assert np.trace(np.linalg.inv(made)) > 1000 * np.sum(1 / np.diag(made))


@pytest.mark.filterwarnings("error")
def test_the_harmonic_score_is_quiet_where_it_is_right():
    best_clip.cache_clear()
    low, high = best_clip("normal", 5.0, "harmonic")
    assert low == pytest.approx(-high, abs=1e-3)


def test_memory_asks_for_what_is_not_known():
    """Who knows the location well asks for the scale, which takes a wider interval."""
    known = np.diag([1e4, 1.0])
    low, high = remembering_clip("normal", 2.0, "a_optimal", known)
    scale_of = information_of(low, high, 2.0)[1, 1]
    low, high = remembering_clip("normal", 2.0, "a_optimal", known[::-1, ::-1])
    assert scale_of > 2 * information_of(low, high, 2.0)[1, 1]


def gamma_law(shape=3.0, rate=1.0):
    """Two parameters and no location or scale; slopes by differences."""
    step = 1e-4

    def slopes_at(values):
        up = [
            stats.gamma(shape + step, scale=1 / rate),
            stats.gamma(shape, scale=1 / (rate + step)),
        ]
        down = [
            stats.gamma(shape - step, scale=1 / rate),
            stats.gamma(shape, scale=1 / (rate - step)),
        ]
        slopes = [
            (u.cdf(values) - d.cdf(values)) / (2 * step) for u, d in zip(up, down, strict=True)
        ]
        return stats.gamma(shape, scale=1 / rate).cdf(values), np.stack(slopes, axis=-1)

    return DrawnLaw(slopes_at, np.diag([0.5, 0.1]), False), stats.gamma(shape, scale=1 / rate).ppf


@pytest.mark.parametrize("score", ["a_optimal", "d_optimal", "first", "trace", "harmonic"])
def test_a_search_for_any_other_law(score):
    law, quantile = gamma_law()
    low, high = search_clip(law, quantile, 2.0, score)
    assert 0 < low < high < quantile(0.999)
    edges = np.array(search_bins(law, quantile, 2.0, score))
    assert np.all(np.diff(edges) > 0)
    assert np.all((edges > 0) & (edges < quantile(0.9999)))


def test_counts_get_edges_that_are_whole():
    step = 1e-4

    def slopes_at(values):
        up, down = (stats.poisson(2.5 + s).cdf(values) for s in (step, -step))
        return stats.poisson(2.5).cdf(values), ((up - down) / (2 * step))[..., None]

    law = DrawnLaw(slopes_at, np.array([[0.3]]), True)
    edges = search_bins(law, stats.poisson(2.5).ppf, 1.0, "a_optimal")
    assert all(edge == int(edge) for edge in edges)
    low, high = search_clip(law, stats.poisson(2.5).ppf, 1.0, "a_optimal")
    assert low == int(low) < high == int(high)
