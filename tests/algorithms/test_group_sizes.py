"""Numbers of records of public groups: exact posteriors, Geweke's check, and broken twins."""

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
from scipy import special, stats

import pymc_privacy as pmp
from pymc_privacy.algorithms import group_sizes
from pymc_privacy.errors import CertificateError, RecordError, ReleaseError
from pymc_privacy.model.group_sizes import GroupSizes, rank_in_group
from pymc_privacy.targets.group_sizes import SizesProgram
from tests.geweke import largest_z
from tests.stochastic import Z_LIMIT, assert_mean, seed_of, z_of_mean

MOST = 5
# Not in order, and of different lengths.
REGION = np.array([1, 0, 0, 2, 1, 0, 2, 1, 0, 1, 2, 0, 1])
ROWS = np.array([5, 5, 3])
TOTALS, NUMBERS = np.array([1.3, 3.8, 0.4]), np.array([2.2, 5.9, 1.4])
NOISE, NUMBER_NOISE = pmp.Laplace(scale=0.7), pmp.Laplace(scale=1.5)
CHANCE = 0.4


@pytest.fixture
def rng(request):
    return np.random.default_rng(seed_of(request))


def of_numbers(family, total_noise, number_noise):
    """Write a model of records of three regions; ``family`` returns the law of a record."""
    with pm.Model() as model:
        law = family()
        n = pm.DiscreteUniform("n", 0, ROWS, shape=3)
        x = pmp.Records("x", law, size=n, by=REGION)
        totals, numbers = pm.Data("totals", TOTALS), pm.Data("numbers", NUMBERS)
        pmp.Privatized("s", x, total_noise, by=REGION, observed=totals)
        pmp.Privatized("n_dp", n, number_noise, local=True, observed=numbers)
    return model


def coins():
    return of_numbers(lambda: pm.Bernoulli.dist(CHANCE), NOISE, NUMBER_NOISE)


def chain(step, model, names, rng, draws, tune=100):
    """Return draws of some variables, with axes (chain, draw, …)."""
    point = model.initial_point()
    step.setup_chain(rng, tune, draws)
    kept = {name: [] for name in names}
    for k in range(tune + draws):
        if k == tune:
            step.stop_tuning()
        point, _ = step.step(point)
        if k >= tune:
            for name in names:
                kept[name].append(point[name])
    return {name: np.array(values)[None] for name, values in kept.items()}


def break_table(step, monkeypatch):
    """Draw one record more than the sum is made of, and do not look at it."""
    right = SizesProgram.log_weights
    monkeypatch.setattr(SizesProgram, "log_weights", lambda *a: np.roll(right(*a), 1, axis=0))
    monkeypatch.setattr(type(step._certifier), "check_again", lambda *a: None)


def law_of_coins(group, chance=CHANCE):
    """Return the weight of each number of one region, by enumeration; last axis: chances."""
    n, yes = np.arange(ROWS[group] + 1)[:, None, None], np.arange(ROWS[group] + 1)[:, None]
    weights = stats.binom.pmf(yes, n, np.asarray(chance)) * stats.laplace.pdf(
        TOTALS[group] - yes, scale=0.7
    )
    return weights.sum(axis=1) * stats.laplace.pdf(NUMBERS[group] - n[:, 0], scale=1.5)


def worst_z(draws, group, law):
    """Return how far frequencies of one region's numbers are from their law."""
    below = np.cumsum(law.ravel() / law.sum())
    watched = np.flatnonzero((below > 0.02) & (below < 0.98))
    assert watched.size
    return max(abs(z_of_mean(draws["n"][..., group] <= k, below[k])) for k in watched)


def test_numbers_are_drawn_from_their_weights(rng):
    with np.errstate(divide="ignore"):
        weights = np.log([[0.2, 0.0, 0.5], [0.3, 0.0, 0.5], [0.5, 0.0, 0.0]])
    weights[2, 2] = np.nan
    state = group_sizes.State(np.array([1, 2, 0]))
    drawn = np.array([group_sizes.step(rng, state, weights)[0].sizes for _ in range(20_000)])
    assert_mean(drawn[:, 0] == 0, 0.2)
    assert_mean(drawn[:, 0] == 2, 0.5)
    assert (drawn[:, 1] == 2).all(), "without any weight a number stays"
    assert_mean(drawn[:, 2] == 0, 0.5)
    assert drawn[:, 2].max() == 1, "what is no number has no weight"


def test_ranks_count_rows_of_the_same_group():
    expected = [(REGION[:i] == g).sum() for i, g in enumerate(REGION)]
    np.testing.assert_array_equal(rank_in_group(REGION), expected)


@pytest.fixture(scope="module")
def of_coins():
    model = coins()
    return model, pmp.Interweave(model=model)


def test_numbers_follow_their_exact_posterior(of_coins, rng):
    draws = chain(of_coins[1], of_coins[0], ["n", "x"], rng, 8000)
    for group in range(3):
        assert worst_z(draws, group, law_of_coins(group)) < Z_LIMIT


def test_a_twin_that_counts_one_record_more_is_found_out(of_coins, rng, monkeypatch):
    break_table(of_coins[1], monkeypatch)
    draws = chain(of_coins[1], of_coins[0], ["n"], rng, 2000)
    assert max(worst_z(draws, g, law_of_coins(g)) for g in range(3)) > 2 * Z_LIMIT


def test_a_table_that_disagrees_with_the_model_is_not_used(monkeypatch):
    model, right = coins(), GroupSizes.rank.fget
    # A record counts one number too late.
    monkeypatch.setattr(GroupSizes, "rank", property(lambda s: np.minimum(right(s) + 1, 4)))
    with pytest.raises(CertificateError, match="the numbers 'n'"):
        pmp.Interweave(model=model)


@pytest.mark.slow
def test_effects_of_groups_and_numbers_follow_their_exact_posterior(rng):
    gauss, wider = pmp.Gaussian(scale=1.0), pmp.Gaussian(scale=2.0)

    def family():
        theta = pm.Normal("theta", 0, 1, shape=3)
        return pm.Normal.dist(theta[REGION], 1)

    model = of_numbers(family, gauss, wider)
    draws = chain(pmp.Interweave(model=model), model, ["n", "theta"], rng, 6000)
    for g in range(3):
        n = np.arange(ROWS[g] + 1)
        # A sum of n records, with its noise, has mean 0 and this variance.
        variance = n**2 + n + 1
        law = stats.norm.pdf(TOTALS[g], 0, np.sqrt(variance)) * stats.norm.pdf(NUMBERS[g], n, 2)
        assert worst_z(draws, g, law) < Z_LIMIT
        effect = np.average(n * TOTALS[g] / variance, weights=law)
        assert_mean(draws["theta"][..., g], effect, what="an effect")


@pytest.fixture(scope="module")
def of_chances():
    model = of_numbers(lambda: pm.Bernoulli.dist(pm.Beta("p", 2, 3)), NOISE, NUMBER_NOISE)
    return model, pmp.Interweave(model=model)


@pytest.mark.slow
def test_numbers_and_parameters_follow_their_exact_posterior(of_chances, rng):
    draws = chain(of_chances[1], of_chances[0], ["n", "p_logodds__"], rng, 6000, tune=600)
    p = np.linspace(0, 1, 2001)[1:-1]
    tables = [law_of_coins(g, p) for g in range(3)]
    given = np.prod([table.sum(axis=0) for table in tables], axis=0) * stats.beta.pdf(p, 2, 3)
    assert_mean(special.expit(draws["p_logodds__"]), np.average(p, weights=given))
    for g, table in enumerate(tables):
        law = (table / table.sum(axis=0) * given).sum(axis=1)
        assert worst_z(draws, g, law) < Z_LIMIT


@pytest.mark.slow
@pytest.mark.parametrize("broken", [False, True])
def test_geweke(of_chances, broken, rng, monkeypatch):
    model, step = of_chances
    if broken:
        break_table(step, monkeypatch)
    step.setup_chain(rng, 0, 1)
    point, kept = model.initial_point(3), []
    for _ in range(3000):
        exist = rank_in_group(REGION) < point["n"][REGION]
        totals = np.bincount(REGION, weights=point["x"] * exist, minlength=3)
        model["totals"].set_value(NOISE.simulate(rng, totals))
        model["numbers"].set_value(NUMBER_NOISE.simulate(rng, point["n"].astype(float)))
        step.forget()
        point, _ = step.step(point)
        kept.append([special.expit(point["p_logodds__"]), *point["n"]])
    kept = np.array(kept)
    laws = {"p": stats.beta(2, 3)} | {f"n{g}": stats.randint(0, ROWS[g] + 1) for g in range(3)}
    draws = {name: kept[None, :, k] for k, name in enumerate(laws)}
    scores = [
        z_of_mean(draws[f"n{g}"] <= k, (k + 1) / (ROWS[g] + 1)) for g in range(3) for k in (0, 1)
    ]
    worst = max(largest_z({"p": draws["p"]}, {"p": laws["p"]}), *map(abs, scores))
    assert (worst > Z_LIMIT) if broken else (worst < Z_LIMIT)


def test_rows_that_do_not_exist_are_blank_and_in_no_release():
    with coins():
        kept = pmp.sample(
            20, tune=10, chains=1, cores=1, keep_records=True, progressbar=False, quiet=True,
            compute_convergence_checks=False,
        ).posterior  # fmt: skip
    exist = rank_in_group(REGION) < kept["n"].values[..., REGION]
    np.testing.assert_array_equal(np.isfinite(kept["x"].values), exist)


def test_what_cannot_be_is_refused_in_a_sentence():
    def written(law=None, size=None, by=REGION, release={}):  # noqa: B006
        with pm.Model() as model:
            n = pm.DiscreteUniform("n", 0, ROWS, shape=3) if size is None else size()
            law = pm.Bernoulli.dist(CHANCE) if law is None else law(n)
            x = pmp.Records("x", law, size=n, by=by)
            pmp.Privatized("s", x, NOISE, **({"by": REGION, "observed": TOTALS} | release))
        return model

    for said, options in {
        "public numbers": {"size": lambda: np.array([4, 5, 3])},
        "by= must say": {"by": None},
        "has 3, and its prior ends at 5": {"size": lambda: pm.DiscreteUniform("n", 0, 5, shape=3)},
        "no end that is known": {"size": lambda: pm.Poisson("n", 2, shape=3)},
        "an independent number": {"size": lambda: pm.Multinomial("n", 5, np.ones(3) / 3)},
        "must not be negative": {"size": lambda: pm.DiscreteUniform("n", -1, ROWS, shape=3)},
        "must not depend": {"law": lambda n: pm.Normal.dist(n[REGION], 1)},
        "have a row for each": {"law": lambda n: pm.Normal.dist(np.zeros(4), 1)},
        "from 0 to 2": {"by": REGION + 1},
    }.items():
        with pytest.raises(RecordError, match=said):
            written(**options)
    for release in ({"by": None, "observed": 5.0}, {"by": np.roll(REGION, 1)}):
        with pytest.raises(ReleaseError, match="one total for each group"):
            written(release=release)
    model = written()
    with model, pytest.raises(RecordError, match="as Records returned them"):
        pmp.Privatized("t", model["x"], NOISE, by=REGION, observed=TOTALS)


def test_what_ties_numbers_or_sees_absent_rows_is_refused():
    model = coins()
    with model:
        pm.Potential("tied", -((model["n"].sum() - 9) ** 2))
    with pytest.raises(RecordError, match="independent given all else"):
        pmp.Interweave(model=model)
    model = coins()
    with model:
        pm.Potential("seen", pt.log1p(model["x"].astype("float64")))
    with pytest.raises(RecordError, match="rows that do not exist"):
        pmp.Interweave(model=model)
