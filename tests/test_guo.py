"""The methods of Guo, Barrientos and Peña: what each should be on small cases, and small tables."""

import argparse
from pathlib import Path

import numpy as np
import pytest
from arviz_stats.base import array_stats
from scipy import special

from benchmarks.papers.guo import bootstrap, chains, design, methods, priors, simulation, table_2
from benchmarks.papers.guo.bank import adapted, bank, learnt
from benchmarks.papers.guo.maximum import censored_fit, censored_means, maximum_likelihood
from tests.stochastic import Z_LIMIT, assert_mean, seed_of, z_of_mean

PAGE = Path(__file__).parents[1] / "docs" / "reproduction.md"
ALPHA = np.array([[2.2, 3.3, 4.4], [0.5, 0.5, 0.5], [2.0, 20.0, 2.0]])


def published(rng, size=60, epsilon=2.0, threshold=0.1):
    """Return a release of few records, so that a chain is short."""
    data = design.of_table(rng.dirichlet(ALPHA[0], size))
    return design.publish(rng, data, design.THRESHOLDS.index(threshold), size, epsilon)


def test_databases_have_the_moments_of_their_law(request):
    rng = np.random.default_rng(seed_of(request))
    made = design.databases(rng, np.repeat(ALPHA[1:2], 4000, axis=0), 5)
    shares = rng.dirichlet(ALPHA[1], 400_000)
    for k, threshold in enumerate(design.THRESHOLDS):
        assert_mean(made.logs[:, k, 0], 5 * censored_means(ALPHA[1:2], threshold)[0, 0])
    assert_mean(made.exact[:, 1], 5 * (special.psi(0.5) - special.psi(1.5)))
    assert_mean(made.shares[:, 2], 5 / 3)
    below = (shares.min(axis=1) < 0.1).mean()
    assert np.mean(made.counts[:, :-1].sum(axis=1)) == pytest.approx(5 * below, rel=0.02)


def test_a_table_has_the_statistics_of_its_records(request):
    rng = np.random.default_rng(seed_of(request))
    table = rng.dirichlet(ALPHA[1], 30)
    data = design.of_table(table)
    assert data.logs[0, 3] == pytest.approx(np.log(np.maximum(table, 1e-3)).sum(axis=0))
    assert data.counts.sum() == 30


def test_maxima_solve_their_equations():
    means = special.psi(ALPHA) - special.psi(ALPHA.sum(axis=1, keepdims=True))
    assert maximum_likelihood(means) == pytest.approx(ALPHA, rel=1e-6)
    censored = censored_means(ALPHA, 0.1)
    assert censored_fit(censored, 0.1) == pytest.approx(ALPHA, rel=1e-4)
    # Without noise, the means of the third already add up to more than 1.
    assert np.exp(censored[2]).sum() == pytest.approx(1.054, abs=0.002)
    assert np.exp(censored[2]).sum() < 1 + 2 * 0.1


def test_the_printed_bootstrap_accepts_nothing_where_the_repaired_one_accepts_all(request):
    rng = np.random.default_rng(seed_of(request))
    data = design.of_table(rng.dirichlet(ALPHA[2], 20_000))
    which = design.THRESHOLDS.index(0.1)
    sharp = design.publish(rng, data, which, 20_000, 50.0)
    assert bootstrap.dpboots(rng, sharp, 100) is None
    repaired = bootstrap.dpboots(rng, sharp, 100, repaired=True)
    assert repaired.accepted > 0.99
    assert np.median(repaired.alphas, axis=0) == pytest.approx(ALPHA[2], rel=0.15)


@pytest.mark.slow
def test_the_chain_has_the_posterior_of_importance_sampling_and_few_records_have_not(request):
    rng = np.random.default_rng(seed_of(request))
    release, prior = published(rng), priors.p1(3)
    exact = adapted(rng, release, draws=20_000)
    expected = exact.log_mean.sum()

    def chain(**how):
        return np.stack(
            [
                np.log(
                    chains.dpremcmc(rng, release, prior, draws=12_000, burn=1000, cycles=5, **how)
                ).sum(axis=1)
                for _ in range(2)
            ]
        )

    right = chain(pseudo=60, corrected=False)
    sums = np.log(exact.alphas).sum(axis=1)
    error = np.sqrt((exact.weights**2) @ (sums - expected) ** 2)
    effective = array_stats.ess(right, chain_axis=0, draw_axis=1, method="mean")
    z = (right.mean() - expected) / np.hypot(error, right.std() / np.sqrt(effective))
    assert abs(z) < Z_LIMIT, z
    wrong = chain(pseudo=5, corrected=False)
    assert abs(z_of_mean(wrong, expected)) > 10


def test_priors_of_a_quarter_are_fitted_to_draws(request):
    rng = np.random.default_rng(seed_of(request))
    drawn = rng.gamma([2.0, 5.0, 9.0], 0.5, size=(4000, 3)) * rng.gamma(50, 0.02, size=(4000, 1))
    for prior in (priors.p3(drawn), priors.p4(drawn)):
        again = prior.draw(rng, 20_000)
        assert again.mean(axis=0) == pytest.approx(drawn.mean(axis=0), rel=0.05)
    apart = [np.corrcoef(prior.draw(rng, 20_000).T)[1, 2] for prior in (priors.p3(drawn), prior)]
    assert abs(apart[0]) < 0.05
    assert apart[1] == pytest.approx(np.corrcoef(drawn.T)[1, 2], abs=0.06)
    # The density that chains use is the one that is drawn from: E of d log p / d log alpha is 0.
    parts = (prior.shape, prior.rate, prior.scores, prior.coupling)
    points = np.log(prior.draw(rng, 2000))
    step = 1e-3 * np.eye(3)[1]
    slopes = [
        (priors.log_density(q + step, *parts) - priors.log_density(q - step, *parts)) / 2e-3
        for q in points
    ]
    assert_mean(np.array(slopes), 0.0)


def test_records_are_split_once(request):
    rng = np.random.default_rng(seed_of(request))
    table = np.arange(80.0).reshape(40, 2)
    first, second = priors.split(rng, table)
    assert (len(first), len(second)) == (10, 30)
    assert sorted(np.vstack([first, second])[:, 0]) == sorted(table[:, 0])


def test_a_bank_gives_the_posterior_that_its_release_gives_alone(request):
    rng = np.random.default_rng(seed_of(request))
    release = published(rng, size=100)
    alone = adapted(rng, release, draws=8000)
    simulated = bank(rng, learnt(rng, release, draws=1500), 100, 8000)
    found = simulated.given(release)
    errors = np.hypot(alone.log_error, found.log_error)
    assert np.all(np.abs(alone.log_mean - found.log_mean) < 5 * errors)
    assert found.effective > 500


@pytest.mark.exhaustive
def test_small_tables(tmp_path):
    options = argparse.Namespace(seed=1, output=tmp_path, replicates=1, draws=100)
    options.alphas, options.sizes, options.epsilons, options.releases = (1,), (200,), (1.5,), 2
    rows = simulation.study(options).run(progressbar=False)
    text = simulation.table(rows, options)
    assert "n = 200, epsilon = 1.5" in text
    assert "| DPABC_p5 |" in text
    options.draws = 1500
    text = table_2.table(table_2.study(options).run(progressbar=False), options)
    assert "**Means agree**" in text
    for name in table_2.NAMES:
        assert f"| {name} |" in text


def test_every_method_of_the_table_has_a_word_on_its_privacy():
    for name in table_2.NAMES:
        if name in ("Boots", "MCMC_p1") or name.startswith("fixed 0.001"):
            continue
        assert methods.METHODS[name].privacy == "proven"


@pytest.mark.parametrize("marker", ["guo simulation", "guo table 2"])
def test_the_page_has_the_tables(marker):
    page = PAGE.read_text()
    begin, end = (page.index(f"<!-- {marker}: {word} -->") for word in ("begin", "end"))
    assert "DPMCMC_p1" in page[begin:end]
