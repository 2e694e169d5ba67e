"""Noisy and exact totals inside `pm.sample`: the posterior of counts and parameters, exactly."""

import cloudpickle
import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
from pytensor.compile.mode import Mode
from scipy import sparse, special, stats

import pymc_privacy as pmp
from pymc_privacy.algorithms import lattice_walk
from pymc_privacy.algorithms.proposals import poisson_carry
from pymc_privacy.errors import MechanismError, RecordError, ReleaseError
from pymc_privacy.targets.lattice_walk import compile_cell_density
from tests import references
from tests.geweke import largest_z, successive
from tests.short_runs import SHORT
from tests.stochastic import Z_LIMIT, assert_law, assert_mean, seed_of

PLAIN = {"mode": Mode(linker="py", optimizer="fast_compile")}
MATRIX = np.array([[1, 0, 0], [0, 1, 0], [0, 0, 1], [1, 1, 0]])
BLOCKS, TRACT = [4, 9, -1], [11]
TOTAL, SHAPE, RATE = 17, 2.0, 0.2
SEEN, SHARE = np.array([2, 3, 1]), 0.4
TABLES = np.array([t for t in np.ndindex(18, 18, 18) if sum(t) == TOTAL])


def model_of():
    """Blocks, a tract and an exact total; and a sample of each block, a factor of its own."""
    with pm.Model() as model:
        rate = pm.Gamma("rate", SHAPE, RATE, shape=2)
        count = pm.Poisson("count", pt.stack([rate[0], rate[0], rate[1]]))
        pmp.LinearMeasurements(
            "blocks",
            count,
            MATRIX[:3],
            pmp.DiscreteGaussian(scale=(3.0, 3.0, 3.0)),
            observed=BLOCKS,
            invariants=([[1, 1, 1]], [TOTAL]),
        )
        pmp.LinearMeasurements(
            "tract", count, MATRIX[3:], pmp.DiscreteLaplace(scale=1.5), observed=TRACT
        )
        pm.Binomial("seen", count, SHARE, observed=SEEN)
    return model


def weights(tract_scale=1.5):
    """The probability of each table: the rates are integrated out, Gamma against Poisson."""
    log_weight = references.discrete_gaussian(np.array(BLOCKS) - TABLES, 3.0).sum(axis=1)
    tract = TRACT[0] - TABLES[:, :2].sum(axis=1)
    log_weight = log_weight + references.discrete_laplace(tract, tract_scale)
    with np.errstate(divide="ignore"):
        log_weight = log_weight + stats.binom.logpmf(SEEN, TABLES, SHARE).sum(axis=1)
    for counts, cells in ((TABLES[:, :2].sum(axis=1), 2), (TABLES[:, 2], 1)):
        log_weight = log_weight + special.gammaln(SHAPE + counts)
        log_weight = log_weight - (SHAPE + counts) * np.log(RATE + cells)
    log_weight = log_weight - special.gammaln(TABLES + 1).sum(axis=1)
    weight = np.exp(log_weight - log_weight.max())
    return weight / weight.sum()


def rate_law():
    """p(rate of the first two blocks | all): a mixture of Gammas, on a grid."""
    grid = np.linspace(1e-3, 25.0, 4001)
    shape = SHAPE + TABLES[:, :2].sum(axis=1)
    density = sum(
        w * stats.gamma.pdf(grid, a, scale=1 / (RATE + 2))
        for a, w in zip(*np.unique(shape, return_inverse=True), strict=False)
        for w in [weights()[shape == a].sum()]
    )
    return references.GridPosterior((grid,), density / density.sum())


@pytest.fixture(scope="module")
def draws():
    with model_of():
        idata = pm.sample(
            1000, tune=300, chains=2, cores=1, random_seed=3, progressbar=False, quiet=True
        )
    return idata


@pytest.mark.slow
def test_plain_pm_sample_picks_the_walk_and_keeps_the_exact_total(draws):
    counts = draws["posterior"]["count"].values
    assert np.all(counts.sum(axis=-1) == TOTAL)
    assert np.all(counts >= SEEN)
    accept = draws["sample_stats"]["lattice_walk_pair_accept"].values
    assert 0.1 < accept.mean() < 0.8
    assert np.isnan(draws["sample_stats"]["lattice_walk_accept"].values).all()
    carried = draws["sample_stats"]["lattice_walk_carry_accept"].values
    assert 0.05 < carried.mean() < 0.8


def test_the_counts_follow_their_posterior(draws):
    counts, weight = draws["posterior"]["count"].values, weights()
    for i in range(3):
        assert_mean(counts[..., i], float(weight @ TABLES[:, i]), what=f"E c{i}")
        assert_mean(counts[..., i] ** 2, float(weight @ TABLES[:, i] ** 2), what=f"E c{i}²")
    product = TABLES[:, 0] * TABLES[:, 1]
    assert_mean(counts[..., 0] * counts[..., 1], float(weight @ product), what="E c0 c1")


def test_the_parameters_follow_theirs(draws):
    assert_law(draws["posterior"]["rate"].values[..., 0], rate_law())


def test_the_exact_test_fails_for_another_scale(draws):
    """The mutant: one noisy total would be believed less."""
    counts = draws["posterior"]["count"].values
    with pytest.raises(AssertionError, match="z ="):
        assert_mean(counts[..., 2], float(weights(15.0) @ TABLES[:, 2]))


def test_predictive_draws_are_totals_plus_noise(request):
    with pm.Model():
        count = pm.Poisson("count", np.array([3.0, 5.0, 2.0]))
        pmp.LinearMeasurements(
            "y",
            count,
            MATRIX,
            pmp.DiscreteGaussian(scale=2.0),
            observed=[1, 2, 3, 4],
            invariants=([[1, 1, 1]], [6]),
        )
        prior = pm.sample_prior_predictive(4000, random_seed=seed_of(request))
    counts = prior["prior"]["count"].values[0]
    noise = prior["prior_predictive"]["y"].values[0] - counts @ MATRIX.T
    assert_mean(noise.ravel(), 0.0, what="mean of the noise")
    assert_mean(noise.ravel() ** 2, float(pmp.discrete_gaussian_variance(2.0)), what="variance")
    exact = prior["prior_predictive"]["y_invariants"].values[0]
    np.testing.assert_array_equal(exact[:, 0], counts.sum(axis=1))


def test_the_density_is_that_of_noise_and_exact_totals():
    with pm.Model() as model:
        count = pm.Poisson("count", np.array([3.0, 5.0, 2.0]))
        pmp.LinearMeasurements(
            "y",
            count,
            MATRIX,
            pmp.DiscreteGaussian(scale=2.0),
            observed=[1, 2, 3, 4],
            invariants=([[1, 1, 1]], [6]),
        )
    density = model.compile_logp(vars=model.observed_RVs, **PLAIN)
    table = np.array([2, 3, 1])
    expected = references.discrete_gaussian(np.array([1, 2, 3, 4]) - MATRIX @ table, 2.0).sum()
    assert density({"count": table}) == pytest.approx(expected)
    assert density({"count": table + np.eye(3, dtype=int)[0]}) == -np.inf
    assert model.initial_point()["count"].sum() == 6


def test_pmp_sample_starts_at_the_exact_totals_and_lists_what_was_published():
    with model_of():
        idata = pmp.sample(**SHORT)
    assert np.all(idata["posterior"]["count"].values.sum(axis=-1) == TOTAL)
    listed = idata["privacy"]["release"].values.tolist()
    assert listed == ["blocks", "blocks_invariants", "tract"]


def test_a_chain_can_be_taken_to_another_process_and_goes_on_as_it_was():
    with model_of() as model:
        step = pmp.LatticeWalk(rng=np.random.default_rng(1))
    step.setup_chain(np.random.default_rng(2), 10, 10)
    point = model.initial_point()
    for _ in range(5):
        point, _ = step.step(point)
    copy = cloudpickle.loads(cloudpickle.dumps(step))
    copy.sampling_state = step.sampling_state
    first, second = step.step(point)[0], copy.step(point)[0]
    np.testing.assert_array_equal(first["count"], second["count"])


def test_counts_of_another_law_are_not_carried():
    with pm.Model():
        share = pm.Beta("share", 1, 1)
        count = pm.Binomial("count", 9, share, shape=3)
        measure(count)
        step = pmp.LatticeWalk()
    step.setup_chain(np.random.default_rng(2), 10, 10)
    _, [stats] = step.step({"share_logodds__": np.array(0.0), "count": np.array([1, 2, 3])})
    assert np.isnan(stats["lattice_walk_carry_accept"])
    assert np.isnan(stats["lattice_walk_drawn"])
    assert 0 < stats["lattice_walk_accept"] <= 1


def test_crossed_margins_are_sampled_too():
    """A table of two ways with both margins exact has one degree of freedom."""
    with pm.Model():
        count = pm.Poisson("count", 3.0, shape=4)
        pmp.LinearMeasurements(
            "y",
            count,
            np.eye(4, dtype=int),
            pmp.DiscreteGaussian(scale=2.0),
            observed=[5, 1, 0, 6],
            invariants=([[1, 1, 0, 0], [0, 0, 1, 1], [1, 0, 1, 0]], [7, 6, 5]),
        )
        idata = pm.sample(**SHORT)
    counts = idata["posterior"]["count"].values
    assert np.all(counts[..., 0] + counts[..., 1] == 7)
    assert np.all(counts[..., 0] + counts[..., 2] == 5)
    assert len(np.unique(counts[..., 0])) > 2


# Bad inputs.
def measure(counts, matrix=None, mechanism=None, observed=(1, 2, 3), **kwargs):
    matrix = np.eye(3, dtype=int) if matrix is None else matrix
    mechanism = mechanism or pmp.DiscreteGaussian(scale=1.0)
    return pmp.LinearMeasurements("y", counts, matrix, mechanism, observed=observed, **kwargs)


def test_counts_must_be_a_table_of_the_model():
    with pm.Model():
        for wrong in (
            pm.Poisson.dist(3.0, shape=3),
            pm.Poisson("one", 3.0),
            "counts",
        ):
            with pytest.raises(RecordError, match=r"must be a table of the model.*got"):
                measure(wrong)
        with pytest.raises(RecordError, match="must be integers; got float64"):
            measure(pm.Normal("real", shape=3))
        with pytest.raises(RecordError, match=r"independent given their parameters.*invariant"):
            measure(pm.Multinomial("m", 5, np.full(3, 1 / 3)))


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"matrix": np.eye(2)}, ReleaseError, r"3 counts; got shape \(2, 2\)"),
        ({"matrix": np.eye(3) / 2}, ReleaseError, "must be integers, a row for each total"),
        ({"matrix": "totals"}, ReleaseError, "from str"),
        ({"observed": [1, 2]}, ReleaseError, r"must have shape \(3,\)"),
        ({"observed": [1, 2, 2.5]}, ReleaseError, "be integers"),
        ({"mechanism": pmp.RandomizedResponse(epsilon=1.0)}, MechanismError, "noise; got Random"),
        (
            {"mechanism": pmp.DiscreteGaussian(scale=(1.0, 2.0))},
            MechanismError,
            "one for each of the 3 totals; got 2 scales",
        ),
        ({"invariants": ([[1, 1, 1]], [-4])}, ReleaseError, "which no counts have"),
        ({"invariants": ([[1, 1]], [4])}, ReleaseError, "'y_invariants' must be integers, a row"),
        ({"invariants": ([[1, 1, 1]], [4.5])}, ReleaseError, "'y_invariants' must be integers"),
    ],
)
def test_measurements_that_make_no_sense_are_refused(options, error, message):
    with pm.Model(), pytest.raises(error, match=f"(?s){message}"):
        measure(pm.Poisson("c", 3.0, shape=3), **options)


def test_data_and_records_are_refused():
    with pm.Model():
        count = pm.Poisson("c", 3.0, shape=3)
        with pytest.raises(ReleaseError, match="must be plain numbers"):
            measure(count, observed=pm.Data("published", [1, 2, 3]))
        pmp.Privatized("total", count, pmp.Laplace(scale=1.0), observed=9.0)
        with pytest.raises(RecordError, match="must not be records of a Privatized"):
            measure(count)


# At the edges, by enumeration.
def walked(model, seed, *, draws=3000, tune=400):
    """Return the chains of a walk that moves the parameters too."""
    with model:
        step = pmp.LatticeWalk(sweeps=2, carries=6)
    step.setup_chain(np.random.default_rng(seed), tune, draws)
    point, drawn = model.initial_point(random_seed=1), []
    for i in range(tune + draws):
        if i == tune:
            step.stop_tuning()
        point, _ = step.step(point)
        drawn.append(point)
    return {name: np.array([p[name] for p in drawn[tune:]])[None] for name in point}


def level_law(exact_rows, exact_totals, release, scale=2.0, most=40):
    """E level and E of each count for rates exp(level) (1, 2, 1), all tables added up."""
    tables = np.array(list(np.ndindex(most, most, most)))
    tables = tables[(tables @ np.transpose(exact_rows) == exact_totals).all(axis=1)]
    noise = references.discrete_gaussian(np.array(release) - tables, scale).sum(axis=1)
    noise -= special.gammaln(tables + 1.0).sum(axis=1)
    total, level = tables.sum(axis=1), np.linspace(-4, 6, 401)
    log_weight = noise + tables @ np.log([1.0, 2.0, 1.0])
    log_weight = log_weight + total * level[:, None] - 4 * np.exp(level)[:, None]
    log_weight = log_weight + stats.norm.logpdf(level, 1.0, 1.0)[:, None]
    weight = np.exp(log_weight - log_weight.max())
    weight /= weight.sum()
    return float(weight.sum(axis=1) @ level), weight.sum(axis=0) @ tables


@pytest.mark.parametrize(
    ("rows", "totals"),
    [([[1, 0, 0]], [0]), ([[0, 1, 0], [1, 1, 1]], [3, 9])],
    ids=["a structural zero", "a known block"],
)
def test_an_exact_total_of_a_single_cell_is_kept_by_every_move(rows, totals, request):
    with pm.Model() as model:
        level = pm.Normal("level", 1.0, 1.0)
        count = pm.Poisson("count", pt.exp(level) * np.array([1.0, 2.0, 1.0]))
        noise = pmp.DiscreteGaussian(scale=2.0)
        measure(count, mechanism=noise, observed=[1, 5, 4], invariants=(rows, totals))
    drawn = walked(model, seed_of(request))
    counts = drawn["count"]
    assert np.all(counts @ np.transpose(rows) == totals)
    level_mean, count_means = level_law(rows, totals, [1, 5, 4])
    assert_mean(drawn["level"], level_mean, what="E level")
    for i in range(3):
        if counts[..., i].std():
            assert_mean(counts[..., i], float(count_means[i]), what=f"E c{i}")
        else:
            assert counts[0, 0, i] == pytest.approx(count_means[i])


def test_nuts_goes_on_from_a_structural_zero():
    with pm.Model():
        level = pm.Normal("level", 1.0, 1.0)
        count = pm.Poisson("count", pt.exp(level) * np.array([1.0, 2.0, 1.0]))
        measure(count, invariants=([[1, 0, 0]], [0]))
        drawn = pm.sample(**SHORT)["posterior"]
    assert not drawn["count"].values[..., 0].any()
    assert len(np.unique(drawn["level"])) > 10


def test_rates_of_zero_are_part_of_the_posterior(request):
    """Below 0 the parameter has no rate at all; the noise says that there may be nobody."""
    with pm.Model() as model:
        theta = pm.Normal("theta", 0.0, 1.0)
        count = pm.Poisson("count", pt.maximum(theta, 0.0) * np.array([1.0, 2.0]))
        pmp.LinearMeasurements(
            "y", count, np.eye(2, dtype=int), pmp.Gaussian(scale=1.5), observed=[0.4, -1.1]
        )
    drawn = walked(model, seed_of(request))
    tables, grid = np.array(list(np.ndindex(25, 25))), np.linspace(-7, 7, 2801)
    noise = np.exp(references.gaussian(np.array([0.4, -1.1]) - tables, 1.5).sum(axis=1))
    rates = np.maximum(grid, 0.0)[:, None, None] * np.array([1.0, 2.0])
    log_p = special.xlogy(tables, rates) - rates - special.gammaln(tables + 1.0)
    weight = np.exp(-0.5 * grid**2) * (np.exp(log_p.sum(axis=2)) @ noise)
    weight /= weight.sum()
    below = weight[grid < 0].sum() + weight[grid == 0].sum() / 2
    assert_mean(drawn["theta"] < 0, below, what="P(theta < 0)")
    assert_mean(drawn["theta"], float(weight @ grid), what="E theta")


def test_signed_cells_with_crossed_totals_are_drawn_from_their_posterior(request):
    with pm.Model() as model:
        cell = pm.DiscreteUniform("cell", -4, 5, shape=4)
        pmp.LinearMeasurements(
            "y",
            cell,
            np.eye(4, dtype=int),
            pmp.DiscreteGaussian(scale=2.0),
            observed=[-3, 1, 0, -2],
            invariants=([[1, 1, 0, 0], [0, 0, 1, 1], [1, 0, 1, 0]], [-2, 1, -1]),
        )
    drawn = walked(model, seed_of(request))
    tables = np.array(list(np.ndindex(10, 10, 10, 10))) - 4
    rows = np.array([[1, 1, 0, 0], [0, 0, 1, 1], [1, 0, 1, 0]])
    tables = tables[(tables @ rows.T == [-2, 1, -1]).all(axis=1)]
    weight = np.exp(
        references.discrete_gaussian(np.array([-3, 1, 0, -2]) - tables, 2.0).sum(axis=1)
    )
    first = float(weight @ tables[:, 0] / weight.sum())
    assert_mean(drawn["cell"][..., 0], first, what="E c0")


def test_a_table_starts_where_its_law_allows_it():
    with pm.Model() as model:
        count = pm.Poisson("count", np.array([0.0, 3.0, 4.0]))
        measure(count, invariants=([[1, 1, 1]], [11]))
        bounded = pm.DiscreteUniform("bounded", 3, 9, shape=3)
        pmp.LinearMeasurements(
            "z",
            bounded,
            np.eye(3, dtype=int),
            pmp.Gaussian(scale=1.0),
            observed=[3.0, 4, 5],
            invariants=([[1, 1, 1], [1, 0, 0]], [20, 3]),
        )
    assert np.isfinite(model.compile_logp(**PLAIN)(model.initial_point()))


@pytest.mark.parametrize(
    "tie",
    [
        lambda c: -0.5 * (c - c[::-1]) ** 2,
        lambda c: -0.1 * (c - pt.roll(c, 1)) ** 2,
        lambda c: pt.switch(pt.gt(c[2], 8), -2.0, 0.0) * c,
        lambda c: -0.01 * c * c.sum(),
    ],
    ids=["mirrored", "neighbours", "where another is large", "the sum"],
)
def test_factors_that_tie_cells_to_each_other_are_refused(tie):
    with pm.Model():
        count = pm.Poisson("c", 5.0, shape=3)
        measure(count)
        pm.Potential("tie", tie(count))
        with pytest.raises(RecordError, match=r"one term for each.*got 'tie'.*which mixes them"):
            pmp.LatticeWalk()


def test_a_factor_whose_variable_moves_with_the_counts_is_refused_or_seen():
    """A transform that depends on the counts moves the variable, and what depends on that."""
    with pm.Model() as model:
        count = pm.Poisson("c", 5.0, shape=3)
        measure(count)
        share = pm.Uniform("share", 0.0, count + 1.0)
        pm.Normal("seen", share, 1.0, observed=[0.3, 2.0, 1.0])
        density = compile_cell_density(model, model["c"], PLAIN)
        pm.Normal("tied", share.sum(), 1.0, observed=2.0)
        with pytest.raises(RecordError, match=r"one term for each.*got 'tied'.*which mixes them"):
            pmp.LatticeWalk()
    here = model.initial_point() | {"share_interval__": np.array([0.3, -0.2, 1.0])}
    there = here | {"c": here["c"] + [0, 2, 0]}
    change = density(there, there["c"]) - density(here, here["c"])
    assert change[[0, 2]] == pytest.approx(0.0)

    def log_density_of(count):
        # That of the share in its own coordinate does not depend on the count.
        share = (count + 1) * special.expit(-0.2)
        return stats.poisson(5).logpmf(count) + stats.norm(share).logpdf(2.0)

    assert change[1] == pytest.approx(log_density_of(there["c"][1]) - log_density_of(here["c"][1]))


def test_a_factor_may_have_several_numbers_for_each_count():
    with pm.Model() as model:
        count = pm.Poisson("c", 5.0, shape=2)
        pmp.LinearMeasurements("y", count, [[1, 1]], pmp.Laplace(scale=1.0), observed=[9.0])
        pm.Normal("seen", count[:, None], 1.0, observed=[[4.0, 5.0], [6.0, 4.5]])
        density = compile_cell_density(model, model["c"], PLAIN)
    point = {"c": np.array([3, 6])}
    expected = stats.poisson.logpmf([3, 6], 5.0)
    expected += stats.norm.logpdf([[1.0, 2.0], [0.0, -1.5]]).sum(axis=1)
    np.testing.assert_allclose(density(point, point["c"]), expected)


def test_what_mixes_the_counts_is_refused():
    with pm.Model():
        count = pm.Poisson("c", 3.0, shape=3)
        measure(count)
        pm.Normal("mean", count.mean(), 1.0, observed=2.0)
        with pytest.raises(RecordError, match=r"one term for each.*got 'mean'.*which mixes them"):
            pmp.LatticeWalk()


def test_the_walk_is_for_counts_with_measurements():
    with pm.Model():
        count = pm.Poisson("c", 3.0, shape=3)
        with pytest.raises(RecordError, match="got a model without any"):
            pmp.LatticeWalk()
        with pytest.raises(RecordError, match="got 'c'"):
            pmp.LatticeWalk([count])


# Geweke's check: with noisy totals drawn anew before each step, the rate keeps its law given the
# exact totals, which no move changes.
WEIGHTS, NOISY_ROWS = np.array([1.0, 2.0, 0.5, 1.5]), np.array([[1, 1, 0, 0], [0, 1, 1, 1]])


def rate_of_counts(exact):
    """Return a model of counts with one rate, and the law that the rate must keep."""
    with pm.Model() as model:
        rate = pm.Gamma("rate", 3.0, 1.5)
        count = pm.Poisson("count", rate * WEIGHTS)
        pmp.LinearMeasurements(
            "y",
            count,
            NOISY_ROWS,
            pmp.DiscreteGaussian(scale=1.5),
            observed=[4, 6],
            invariants=([[1, 1, 1, 1]], [9]) if exact else None,
        )
        pmp.LinearMeasurements("z", count, np.eye(4), pmp.Laplace(scale=2.0), observed=[2.0] * 4)
    if exact:
        return model, {"rate": stats.gamma(3.0 + 9, scale=1 / (1.5 + WEIGHTS.sum()))}
    return model, {"rate": stats.gamma(3.0, scale=1 / 1.5)}


def geweke(seed, *, exact, rounds=4000):
    """Return how far the rate is from its law."""
    model, priors = rate_of_counts(exact)
    with model:
        step = pmp.LatticeWalk(sweeps=2, carries=4, rng=seed, compile_kwargs=PLAIN)
    step.stop_tuning()
    # As it is compiled, for the totals of the model, the walk agrees with the model.
    step.step(model.initial_point(seed))
    [lattice] = step._lattices

    def publish(rng, point):
        gaussian, rest = np.split(lattice.noisy.totals(np.asarray(point["count"])), [2])
        drawn = [
            pmp.DiscreteGaussian(scale=1.5).simulate(rng, np.rint(gaussian).astype(int)),
            pmp.Laplace(scale=2.0).simulate(rng, rest),
        ]
        noisy = lattice.noisy._replace(release=np.concatenate(drawn).astype(float))
        step._lattices = [lattice._replace(noisy=noisy)]

    draws = successive(model, priors, step, publish=publish, seed=seed, rounds=rounds)
    return largest_z(draws, priors)


@pytest.mark.slow
@pytest.mark.parametrize("exact", [False, True], ids=["noisy totals", "an exact total"])
def test_geweke_the_rate_keeps_its_law(exact, request):
    z = geweke(seed_of(request), exact=exact)
    assert z < Z_LIMIT, f"z = {z:.1f}"


def sums_without_a_law(monkeypatch):
    monkeypatch.setattr(poisson_carry, "log_sums", lambda *_: 0.0)


def more_often_up_than_down(monkeypatch):
    def lopsided(rng, length):
        size = np.ceil(rng.standard_exponential(length.size) * length).astype(np.int64)
        return np.where(rng.random(length.size) < 0.8, size, -size)

    monkeypatch.setattr(lattice_walk, "_symmetric", lopsided)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("exact", "break_it"),
    [
        (True, sums_without_a_law),
        (False, more_often_up_than_down),
    ],
)
def test_geweke_notices_a_broken_move(exact, break_it, request, monkeypatch):
    """None of these changes a density, so that the certificate sees nothing."""
    break_it(monkeypatch)
    z = geweke(seed_of(request), exact=exact)
    assert z > Z_LIMIT, f"z = {z:.1f}"


def test_sparse_and_dense_rows_give_the_same_draws():
    rows = np.array([[1, 1, 0, 0], [0, 0, 1, 1]])
    drawn = []
    for write in (np.asarray, sparse.csr_array, sparse.coo_array):
        with pm.Model() as model:
            count = pm.Poisson("count", 3.0, shape=4)
            pmp.LinearMeasurements(
                "y",
                count,
                write(np.eye(4, dtype=int)),
                pmp.DiscreteGaussian(scale=2.0),
                observed=[5, 1, 0, 6],
                invariants=(write(rows), [7, 5]),
            )
            step = pmp.LatticeWalk(compile_kwargs=PLAIN)
        step.setup_chain(np.random.default_rng(3), 5, 5)
        point = model.initial_point()
        for _ in range(5):
            point, _ = step.step(point)
        drawn.append(point["count"])
    np.testing.assert_array_equal(drawn[0], drawn[1])
    np.testing.assert_array_equal(drawn[0], drawn[2])


def test_a_wide_sparse_matrix_has_the_density_of_one_written_out():
    rng = np.random.default_rng(6)
    matrix = sparse.random_array((40, 300), density=0.05, rng=rng, dtype=np.float64)
    matrix = sparse.csr_array(matrix * 10).astype(int)
    table, noise = rng.poisson(3.0, 300), pmp.DiscreteGaussian(scale=2.0)
    release = noise.simulate(rng, matrix @ table)
    with pm.Model() as model:
        count = pm.Poisson("count", 3.0, shape=300)
        pmp.LinearMeasurements("y", count, matrix, noise, observed=release)
        pmp.LinearMeasurements(
            "z", count, sparse.eye_array(300, dtype=int), noise, observed=table + 1
        )
    density = model.compile_logp(vars=model.observed_RVs, **PLAIN)({"count": table})
    expected = references.discrete_gaussian(release - matrix.toarray() @ table, 2.0).sum()
    expected += 300 * references.discrete_gaussian(np.array([1]), 2.0)[0]
    assert density == pytest.approx(expected)


@pytest.mark.parametrize(
    "matrix", [sparse.eye_array(2), sparse.eye_array(3) / 2], ids=["narrow", "fractions"]
)
def test_sparse_rows_that_make_no_sense_are_refused(matrix):
    with pm.Model(), pytest.raises(ReleaseError, match=r"must be integers, a row for each total"):
        measure(pm.Poisson("c", 3.0, shape=3), matrix)


@pytest.mark.parametrize("carries", [0, 20])
def test_nested_counts_are_drawn_at_once_where_nothing_else_sees_them(carries):
    """With parameters that carry them, and without; a sample of the counts is too much."""

    def walk(*, sampled):
        with pm.Model():
            rate = pm.Gamma("rate", 4.0, 1.0)
            count = pm.Poisson("count", rate, shape=3)
            measure(count)
            if sampled:
                pm.Binomial("seen", count, 0.5, observed=np.array([1, 0, 2]))
            step = pmp.LatticeWalk(sweeps=1, carries=carries)
        step.setup_chain(np.random.default_rng(2), 10, 10)
        point = {"rate_log__": np.array(1.5), "count": np.array([2, 2, 3])}
        return step.step(point)

    _, [stats] = walk(sampled=False)
    assert stats["lattice_walk_drawn"] == 1.0
    _, [stats] = walk(sampled=True)
    assert np.isnan(stats["lattice_walk_drawn"])
