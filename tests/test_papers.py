"""The papers' experiments run in small, and the page shows what they gave in large."""

import argparse
import re
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

import pymc_privacy as pmp
from benchmarks import peers, unknown_size
from benchmarks.papers import (
    awan_figure_1,
    awan_lemma_a4,
    awan_lemma_a8,
    awan_proposition_5_1,
    inputs,
    ju_comparators,
    ju_expected_acceptance,
    ju_figure_1,
    ju_figure_2,
    ju_regression_coverage,
    ju_table_1,
    naive_bayes,
    pages,
)
from benchmarks.papers import linear_regression as regression
from benchmarks.papers.yildirim import calibration, comparators, incomes, simulated
from tests.stochastic import assert_mean, seed_of

PAGE = Path(__file__).parents[1] / "docs" / "reproduction.md"


def options(tmp_path, **more):
    return argparse.Namespace(seed=1, output=tmp_path, **more)


# ---------------------------------------------------------------- Ju et al., Table 1


def test_contributions_are_counts_of_one_cell_for_each_feature(request):
    rng = np.random.default_rng(seed_of(request))
    truth = inputs.naive_bayes()
    drawn = naive_bayes.draw_contributions(rng, truth.classes, truth.tables, 20_000)
    cells = drawn.reshape(*naive_bayes.SHAPE, -1)
    assert (cells.sum(axis=(1, 2)) == 1).all()
    assert (cells.sum(axis=2) == cells[:1].sum(axis=2)).all(), "one class for all features"
    for group in range(inputs.CLASSES):
        member = cells[0, group].sum(axis=0)
        assert_mean(member, truth.classes[group], what=f"class {group}")
        for feature in range(inputs.FEATURES):
            assert_mean(
                cells[feature, group, 0][member == 1],
                truth.tables[feature, group, 0],
                what=f"level of feature {feature} in class {group}",
            )


def test_without_information_the_chain_stays_with_the_prior(request):
    rng = np.random.default_rng(seed_of(request))
    chain = naive_bayes.sample(rng, np.zeros(75), 1e-6, draws=3000, tune=200)
    assert_mean(chain.p[None, :, 3], 0.2, what="prior mean")
    assert_mean(chain.p[None, :, 3] ** 2, 0.2**2 + 0.2 * 0.8 / 11, what="prior second moment")
    assert chain.accept.min() > 0.99


def test_without_noise_the_chain_finds_the_posterior_given_the_records(request):
    rng = np.random.default_rng(seed_of(request))
    truth = inputs.naive_bayes()
    records = naive_bayes.draw_contributions(rng, truth.classes, truth.tables, inputs.RECORDS)
    counts = records.sum(axis=1)
    chain = naive_bayes.sample(rng, counts, 40.0, draws=4000, tune=2000)
    members = counts.reshape(naive_bayes.SHAPE)[0].sum(axis=-1)
    exact = (2 + members) / (10 + inputs.RECORDS)
    # The noise is a quarter of a record: nearly, not exactly, the counts themselves.
    assert chain.p.mean(axis=0) == pytest.approx(exact, abs=0.03)


def test_a_small_table_1(tmp_path):
    chosen = options(tmp_path, replicates=2, epsilons=(1.0,), draws=200, tune=100)
    rows = ju_table_1.study(chosen).run(progressbar=False)
    text = ju_table_1.table(rows, chosen)
    assert "over 2 databases for each epsilon, 200 draws after 100" in text
    assert "**Agrees.**" in text
    assert "holds in every sweep" in text
    assert ju_table_1.table(ju_table_1.study(chosen).rows(), chosen) == text


def rows_of_coverage(coverage, accept_min=0.5, replicates=100):
    covered = np.arange(replicates)[:, None] < np.round(np.array(coverage) * replicates)
    return [
        {"epsilon": 1.0, "covered": row.tolist(), "accept": 0.9, "accept_min": accept_min}
        | {"seconds": 1.0, "error": None}
        for row in covered
    ]


def test_the_verdict_on_table_1_can_be_either(tmp_path):
    chosen = options(tmp_path, draws=1, tune=1)
    same = ju_table_1.table(rows_of_coverage(ju_table_1.PAPER[1.0]), chosen)
    assert "**Agrees.**" in same
    other = list(ju_table_1.PAPER[1.0])
    other[3] = 0.6
    assert "**Differs.**" in ju_table_1.table(rows_of_coverage(other), chosen)
    below = ju_table_1.table(rows_of_coverage(ju_table_1.PAPER[1.0], accept_min=0.3), chosen)
    assert "IS BROKEN" in below


# ---------------------------------------------------------------- Ju et al., Figure 2


def test_the_sensitivity_is_enough_and_not_by_much():
    grid = np.array(np.meshgrid(*[np.linspace(-10, 10, 9)] * 3)).reshape(3, -1)
    every = np.array(regression.moments(*map(regression.clamp, grid)))
    farthest = max(np.abs(every - every[:, [k]]).sum(axis=0).max() for k in range(every.shape[1]))
    assert farthest == pytest.approx(9.375)
    # What is proved: pairs (v, v²) move by at most 9/4, products by at most 2.
    assert farthest <= 3 * 9 / 4 + 3 * 2 <= regression.SENSITIVITY
    assert regression.mechanism(1.0).guarantee.epsilon == 1.0


def rows_of_means(shares, accept_min=0.95):
    rng = np.random.default_rng(1)
    goal = regression.confidential_mean()
    return [
        {"epsilon": epsilon, "mean": (share * goal + rng.normal(0, 0.1, 3)).tolist()}
        | {"accept": 0.9, "accept_min": accept_min, "seconds": 1.0, "error": None}
        for epsilon, share in shares.items()
        for _ in range(20)
    ]


def test_the_verdict_on_figure_2_can_be_either(tmp_path):
    chosen = options(tmp_path, draws=1, tune=1)
    toward = ju_figure_2.table(rows_of_means({0.1: 0.0, 1.0: 0.5, 10.0: 0.9}), chosen)
    assert "**Agrees**" in toward
    for shares in ({0.1: 0.9, 1.0: 0.5, 10.0: 0.0}, {0.1: 0.9, 1.0: 0.9, 10.0: 0.9}):
        assert "**Differs**" in ju_figure_2.table(rows_of_means(shares), chosen)
    broken = rows_of_means({0.1: 0.0, 1.0: 0.5, 10.0: 0.9}, accept_min=0.1)
    assert "IS BROKEN" in ju_figure_2.table(broken, chosen)


@pytest.mark.exhaustive
def test_a_small_figure_2(tmp_path):
    chosen = options(tmp_path, replicates=2, epsilons=(0.1, 10.0), draws=150, tune=150)
    rows = ju_figure_2.study(chosen).run(progressbar=False)
    assert [row["error"] for row in rows] == [None] * 4
    means = {row["epsilon"]: row["mean"] for row in rows}
    assert abs(means[10.0][1]) > abs(means[0.1][1]), "the second release must have been read"
    assert re.search(r"\| 0\.9\d\d \| 2 \|", ju_figure_2.table(rows, chosen))


def rows_of_intervals(shares, accept_min):
    return [
        {"epsilon": epsilon, "covered": [int(k < 100 * share)] * 3, "width": [1.0, 2.0, 3.0]}
        | {"accept": 0.9, "accept_min": accept_min, "seconds": 1.0, "error": None}
        for epsilon, share in shares.items()
        for k in range(100)
    ]


def test_the_verdict_on_coverage_can_be_either(tmp_path):
    chosen = options(tmp_path, draws=1, tune=1)
    good = ju_regression_coverage.table(rows_of_intervals({1.0: 0.88}, 0.4), chosen)
    assert "No coverage is below" in good
    assert "**holds**" in good
    bad = ju_regression_coverage.table(rows_of_intervals({0.1: 0.5, 1.0: 0.9}, 0.4), chosen)
    assert "at epsilon = 0.1:" in bad
    assert "**IS BROKEN**" in bad, "0.4 is less than exp(-0.1)"


def test_tables_are_made_again_from_what_is_recorded(tmp_path, monkeypatch):
    monkeypatch.setattr(pages, "RECORDED", tmp_path)
    rows = [row | {"draws": 7, "tune": 3} for row in rows_of_intervals({1.0: 0.9}, 0.4)]
    failed = rows[0] | {"error": "none"}
    pages.record("of_coverage", [*rows, failed])
    page = tmp_path / "page.md"
    page.write_text("<!-- of coverage: begin -->\n<!-- of coverage: end -->\n")
    monkeypatch.setattr("sys.argv", ["x", "--recorded", "--docs"])
    table, of = ju_regression_coverage.table, "of coverage"
    pages.command("x", None, table, of, replicates=1, page=page, draws=500, tune=500)
    chosen = options(tmp_path, draws=7, tune=3)
    assert table(rows, chosen) in page.read_text()
    assert "7 draws after 3" in page.read_text()


# ---------------------------------------------------------------- acceptances


def test_smallest_acceptances_are_as_proved_and_a_missing_half_is_seen(monkeypatch):
    bound = np.exp(-1.5)
    moves, least, record = awan_proposition_5_1.smallest(1.0, 0.5)
    assert (moves, least) == (pytest.approx(bound), pytest.approx(bound / 2))
    assert record == pytest.approx(np.exp(-1.0)), "which is more than exp(-2)"
    assert "**Agrees**" in awan_proposition_5_1.table()
    monkeypatch.setattr(awan_proposition_5_1, "log_of_way_back", lambda *sizes: -0.1)
    assert "**Differs**" in awan_proposition_5_1.table()


def test_average_acceptances_are_above_their_bound_and_a_false_bound_is_seen(monkeypatch):
    assert "**Holds**" in ju_expected_acceptance.table()
    larger = pmp.expected_acceptance(pmp.PureDP(1.0)) * 1.001
    monkeypatch.setattr(pmp, "expected_acceptance", lambda guarantee: larger)
    assert "**BROKEN**" in ju_expected_acceptance.table()


# ---------------------------------------------------------------- Awan et al., Figure 1


def test_time_use_is_as_described_or_a_stand_in_of_the_same_shape(monkeypatch):
    stand_in_folder = Path("/nonexistent")
    for data in (inputs.time_use(), None):
        if data is None:
            monkeypatch.setattr(inputs, "DATA", stand_in_folder)
            data = inputs.time_use()
            assert data.source == "simulated stand-in"
        assert data.shares.shape == (6656, 3)
        assert data.shares.sum(axis=1) == pytest.approx(1, abs=1e-6)
        assert data.shares.min() >= awan_figure_1.LEAST * 0.99
    assert inputs.naive_bayes().source == "features simulated"
    assert inputs.regression().source == "simulated stand-in"


def rows_of_spreads(spreads, effective=400.0):
    return [
        {"epsilon_s": 1.0, "epsilon_n": n, "sd": [sd] * 3, "n_sd": 1.0, "effective": effective}
        | {"seconds": 1.0, "error": None}
        for n, sd in spreads.items()
    ]


def test_the_verdict_on_figure_1_can_be_any(tmp_path):
    chosen = options(
        tmp_path, size=50, replicates=1, epsilons=(1.0,), size_epsilons=(0.1, 10.0), draws=1, tune=1
    )
    falling = {0.0: 1.0, 0.1: 2.0, 10.0: 1.01}
    assert "**agrees**" in awan_figure_1.table(rows_of_spreads(falling), chosen)
    rising = {0.0: 1.0, 0.1: 1.0, 10.0: 2.0}
    assert "**differs**" in awan_figure_1.table(rows_of_spreads(rising), chosen)
    short = awan_figure_1.table(rows_of_spreads(falling, effective=20.0), chosen)
    assert "**not decided**" in short


@pytest.mark.exhaustive
def test_a_small_figure_1(tmp_path):
    chosen = options(
        tmp_path, size=30, replicates=1, epsilons=(1.0,), size_epsilons=(1.0,), draws=40, tune=40
    )
    rows = awan_figure_1.study(chosen).run(progressbar=False)
    assert [row["error"] for row in rows] == [None] * 2
    assert "n_sd" in rows[1]
    assert "30 respondents" in awan_figure_1.table(rows, chosen)


# ---------------------------------------------------------------- other software


def row_of_peers(name, effective, records):
    length = {"draws": 10, "tune": 5, "chains": 2}
    return {"input": name, "origin": peers.SAME, "length": length, "steps": ["Interweave"]} | {
        "seconds": 2.0,
        "effective": effective,
        "records": records,
    }


def test_the_table_beside_other_software_hides_neither_slowness_nor_doubt():
    slow = row_of_peers("randomized response, n = 100", {"p": 108.0}, 12_345.0)
    doubtful = row_of_peers("unknown size, epsilon_N = 1", {"beta": 18.2, "n": 136.0}, None)
    text = peers.table([doubtful, slow])
    assert text.startswith("Ours: 2 chains of 10 draws after 5 of tuning.\n\n| input |")
    header, rule, *lines = text.splitlines()[2:]
    assert len({line.count("|") for line in (header, rule, *lines)}) == 1
    assert lines == [
        "| randomized response, n = 100 | the same | dapper 1.1.0 | p | 110 | 54 | 0.5 "
        "| 140,000 | 12,000 |",
        "| unknown size, epsilon_N = 1 | the same | script of Awan et al. | beta | 0.0091 "
        "| 9.1 (18 in all) | 1000 | 3,800 |  |",
        "| unknown size, epsilon_N = 1 | the same | script of Awan et al. | n | 0.34 | 68 | 200 "
        "| 3,800 |  |",
    ]


def test_every_figure_of_others_has_an_input_and_a_parameter_of_ours():
    assert {peer.name for peer in peers.PEERS} == set(peers.INPUTS)
    assert all(peer.parameter in peers.INPUTS[peer.name].parameters for peer in peers.PEERS)


# ---------------------------------------------------------------- Ju et al., Figure 1a, comparators


def test_a_small_figure_1a(tmp_path, monkeypatch):
    monkeypatch.setattr(ju_figure_1, "PICTURE", tmp_path / "picture.png")
    chosen = options(tmp_path, replicates=3, epsilons=(0.1, 10.0), draws=300, tune=200, docs=True)
    rows = ju_figure_1.study(chosen).run(progressbar=False)
    text = ju_figure_1.table(rows, chosen)
    assert "of 3 releases of one database" in text
    assert "**Agrees**" in text
    assert (tmp_path / "picture.png").stat().st_size > 5000
    far = [row | {"mean": (np.array(row["mean"]) + 0.2).tolist()} for row in rows]
    assert "**Differs**" in ju_figure_1.table(far, chosen)


@pytest.mark.parametrize("scale", [0.1, 1.0, 10.0])
def test_samplers_beside_ours_are_compared_with_a_posterior_that_is_exact(scale, request):
    released, p = 33.3, np.linspace(0, 1, 4001)
    yes = np.arange(ju_comparators.SIZE + 1)
    chance = stats.binom.pmf(yes, ju_comparators.SIZE, p[:, None])
    w = chance @ np.exp(-abs(released - yes) / scale)
    w[[0, -1]] /= 2  # the trapezoidal rule
    w /= w.sum()
    mean = w @ p
    expected = mean, np.sqrt(w @ p**2 - mean**2)
    assert ju_comparators.exact(released, scale) == pytest.approx(expected, rel=1e-5)
    rng = np.random.default_rng(seed_of(request))
    found, accepted = ju_comparators.exact_abc(rng, released, scale, 3000)
    assert_mean(found, mean, what="exact ABC")
    assert_mean((found - mean) ** 2, expected[1] ** 2, what="exact ABC, variance")
    assert 0 < accepted < 1
    gibbs = ju_comparators.bernstein_sheldon(rng, released, scale, 4000)
    # Its Normal law of a sum of a hundred is no other law, but not the same.
    assert gibbs.mean() == pytest.approx(mean, abs=0.5 * expected[1])


def test_the_distance_of_noisy_sums_falls_and_of_others_does_not(monkeypatch):
    monkeypatch.setattr(awan_lemma_a4, "SIZES", (1, 4, 30))
    assert "**Agrees**" in awan_lemma_a4.table()
    monkeypatch.setattr(awan_lemma_a4, "local", awan_lemma_a4.central)
    assert "**Differs**" in awan_lemma_a4.table()


# ---------------------------------------------------------------- the page


def test_a_table_is_written_between_its_markers(tmp_path):
    page = tmp_path / "page.md"
    page.write_text(PAGE.read_text())
    pages.write("ju table 1", "| new |", page)
    text = page.read_text()
    assert "<!-- ju table 1: begin -->\n\n| new |\n\n<!-- ju table 1: end -->" in text
    assert "<!-- awan figure 1: begin -->" in text


def test_failed_replicates_are_told():
    row = {"seconds": 60.0, "error": None}
    assert pages.remarks([row, row]) == " The replicates took 2 minutes by the clock."
    assert "1 of 2 replicates failed: E: x" in pages.remarks([row, row | {"error": "E: x"}])


def test_the_page_shows_all_epsilons_and_a_verdict_for_each_table():
    text = PAGE.read_text()
    assert re.search(r"\*\*agrees\*\* at epsilon_s", text)
    for marker in ("ju table 1", "ju figure 1a", "ju figure 2"):
        [table] = re.findall(rf"<!-- {marker}: begin -->(.*?)<!-- {marker}: end -->", text, re.S)
        assert re.search(r"\*\*Agrees", table), marker
        for epsilon in ju_table_1.EPSILONS:
            assert f"\n| {epsilon:g} |" in table


def test_the_p_of_a_difference_is_that_of_welch():
    rng = np.random.default_rng(3)
    printed, ours = rng.normal(0, 1, unknown_size.RELEASES), rng.normal(0.8, 2, 4)
    error, spread = (pages.mean_and_error(v)[1] for v in (printed, ours))
    p = unknown_size.p_of_difference(ours.mean() - printed.mean(), error, spread, len(ours))
    assert p == pytest.approx(stats.ttest_ind(ours, printed, equal_var=False).pvalue)


@pytest.mark.exhaustive
def test_awan_table_1_in_small(tmp_path, monkeypatch):
    """One release, for one column: the others differ in the density and in the step method."""
    monkeypatch.setattr(unknown_size, "EPSILONS_S", (1.0,))
    monkeypatch.setattr(unknown_size, "EPSILONS_N", (0.001,))
    sampler = "published, the right density"
    chosen = options(tmp_path, samplers=(sampler,), sweeps=40, replicates=1, trajectories=4)
    [row] = rows = unknown_size.study(chosen).run(progressbar=False)
    assert row["error"] is None
    assert {*unknown_size.QUANTITIES} < {*row}
    text = unknown_size.table(rows, chosen)
    assert "| 1 | 0.001 | E N | 1217.46 (76.632) |  | " in text
    assert "40 sweeps" in text


def test_awan_table_1_counts_what_differs():
    def rows(shift, sampler="ours", wavering=0.0):
        return [
            {"sampler": sampler, "epsilon_s": s, "epsilon_n": n, "release": release}
            | {"error": None, "seconds": 1.0, "draws": 1500, "rhat": 1.0}
            | {"effective": {"beta1": 77.0}}
            | {
                name: column[0][k] + (shift * way + noise) * (column[1][k] or 1e-3)
                for name, column in unknown_size.PRINTED[s].items()
            }
            for s in unknown_size.EPSILONS_S
            for k, n in enumerate(unknown_size.EPSILONS_N)
            for release, noise in enumerate(np.linspace(-1, 1, 20))
            for way in [1 + wavering * (-1) ** release]
        ]

    chosen = argparse.Namespace(sweeps=10_000, trajectories=20)
    same, other = (unknown_size.table(rows(shift), chosen) for shift in (0.0, 9.0))
    assert "(d) differs from (a) with p < 0.003 in 0 of 48 cells of beta and tau" in same
    assert "(d) differs from (a) with p < 0.003 in 48 of 48 cells of beta and tau" in other
    assert "at epsilon_s = 0.1 and 1: (d) 77 and 77." in same
    # A shift that is small against the spread over releases shows when they are compared in pairs.
    shifted = rows(0.1, "published, the right density", wavering=0.5)
    text = unknown_size.table(rows(0.0) + shifted, chosen)
    assert "(c) differs from (a) with p < 0.003 in 0 of 48 cells of beta and tau" in text
    assert "(c) differs from (d) with p < 0.003 in 48 of 48 cells of beta and tau" in text


def test_the_lemma_on_total_variation_is_on_the_page_as_computed():
    text = awan_lemma_a8.table()
    assert "**Agrees**" in text
    assert text in PAGE.read_text()


# ---------------------------------------------------------------- Yıldırım, online estimation


@pytest.mark.exhaustive
def test_the_latent_sampler_finds_the_posterior_of_its_own_answers():
    """Rejuvenated particles of records, beside the posterior with the records integrated out."""
    rng = np.random.default_rng(3)
    found = [
        comparators.replicate(rng, method, 10.0, users=60, draws=300, steps=1000)
        for method in comparators.METHODS[:2]
    ]
    assert max(abs(one[k]) for one in found for k in ("mu_off", "sigma_off")) < 0.6


def test_the_tables_of_online_estimation_say_what_was_run(tmp_path):
    rng = np.random.default_rng(1)
    rows = []
    for method in simulated.METHODS:
        for epsilon in (1.0, 10.0):
            got = simulated.replicate(rng, epsilon, method, users=20, draws=40)
            rows.append({"epsilon": epsilon, "method": method, "error": None, "seconds": 1.0} | got)
    text = simulated.table(rows, options(tmp_path, users=20, draws=40))
    assert "1 streams of 20 users" in text
    assert "**Agrees" in text or "**Differs" in text


def test_calibration_of_a_few_runs_is_laid_out(tmp_path):
    rng = np.random.default_rng(1)
    rows = [
        {"case": case, "error": None, "seconds": 1.0}
        | calibration.replicate(rng, case, users=3, draws=40)
        for case in calibration.CASES
    ]
    assert all(0 <= row[name] <= calibration.DRAWS for row in rows for name in ("mu", "sigma"))
    assert "ranks" in calibration.table(rows, options(tmp_path, users=3, draws=40))


def test_the_printed_pairs_lie_on_a_line():
    """Mean and scale of the adaptive runs of Table 1: what the harmonic score leads to."""
    mu, sigma = incomes.PUBLISHED["SMC-adaptive"]
    assert np.corrcoef(mu, sigma)[0, 1] < -0.95
