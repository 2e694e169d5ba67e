"""Records of unknown number: the exact posterior, Geweke's check, mutants, and manners."""

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
from scipy import stats

import pymc_privacy as pmp
from pymc_privacy.algorithms.birth_death import bounds_of_size
from pymc_privacy.densities import carrying
from pymc_privacy.errors import CapacityError, CapacityWarning, RecordError
from pymc_privacy.model.releases import is_release
from pymc_privacy.reparameterise import Reparameterisation
from pymc_privacy.targets import birth_death as targets
from tests import references
from tests.references import Release
from tests.short_runs import SHORT
from tests.stochastic import Z_LIMIT, assert_law, assert_mean, seed_of, z_of_mean

RATE = (4.0, 0.8)
CAPACITY = 60
SCALES = {"s": 1.5, "n_dp": 2.0}


def coins(releases=("s", "n_dp")):
    """Coins of a random number whose prior has a parameter; the releases are data."""
    with pm.Model() as model:
        p = pm.Beta("p", 2, 2)
        rate = pm.Gamma("rate", *RATE)
        n = pm.Poisson("n", rate)
        x = pmp.Records("x", pm.Bernoulli.dist(p), size=n, capacity=CAPACITY)
        for name, statistic in (("s", x), ("n_dp", n)):
            if name in releases:
                data = pm.Data(f"{name}_data", 3.0)
                mechanism = pmp.Laplace(scale=SCALES[name])
                pmp.Privatized(name, statistic, mechanism, observed=data)
    return model


def exact(s, n_dp=None):
    """Return the posterior of n and of p; without its parameter n is negative binomial."""
    sizes = np.arange(CAPACITY + 1)
    prior = stats.nbinom.logpmf(sizes, RATE[0], RATE[1] / (1 + RATE[1]))
    if n_dp is not None:
        prior = prior + references.laplace(n_dp - sizes, SCALES["n_dp"])
    return references.bernoulli_of_unknown_size(
        [Release(references.laplace, SCALES["s"], s)], prior, prior=(2.0, 2.0)
    )


@pytest.fixture(scope="module")
def coin_model():
    return coins()


@pytest.fixture(scope="module")
def coin_step(coin_model):
    """Compile once; every chain starts from its own tuning."""
    with coin_model:
        return pmp.BirthDeath()


def run(model, step, seed, *, draws=2500, tune=500, **options):
    with model:
        result = pm.sample(
            draws,
            tune=tune,
            step=step,
            chains=2,
            cores=1,
            random_seed=seed,
            progressbar=False,
            quiet=True,
            compute_convergence_checks=False,
            **options,
        )
    return {str(name): value.values for name, value in result.posterior.items()}, result


@pytest.mark.slow
@pytest.mark.parametrize(("s", "n_dp"), [(3.2, 9.0), (0.3, 0.4), (7.5, 4.0)])
def test_coins_of_unknown_number(coin_model, coin_step, request, s, n_dp):
    pm.set_data({"s_data": s, "n_dp_data": n_dp}, model=coin_model)
    draws, result = run(coin_model, coin_step, seed_of(request))
    sizes, chances = exact(s, n_dp)
    assert_law(draws["n"], sizes, what="n")
    assert_law(draws["p"], chances, what="p")
    # Given n, rate ~ Gamma(a + n, b + 1).
    assert_mean(draws["rate"], (RATE[0] + sizes.mean()) / (RATE[1] + 1), what="rate")
    assert (result.sample_stats["birth_death_capacity_hits"] == 0).all()


@pytest.mark.slow
def test_coins_of_a_number_with_a_flat_prior(request):
    """The releases put the size near one, and then near the other end."""
    least, most = 1, 9
    with pm.Model() as model:
        p = pm.Beta("p", 2, 2)
        n = pm.DiscreteUniform("n", least, most)
        x = pmp.Records("x", pm.Bernoulli.dist(p), size=n)
        pmp.Privatized("s", x, pmp.Laplace(scale=1.5), observed=pm.Data("s_data", 0.0))
        n_dp = pm.Data("n_dp_data", 0)
        pmp.Privatized("n_dp", n, pmp.DiscreteLaplace(scale=2.0), observed=n_dp)
    with model:
        step = pmp.BirthDeath()
    for s, n_dp in ((0.2, 0), (6.1, 10)):
        pm.set_data({"s_data": s, "n_dp_data": n_dp}, model=model)
        draws, _ = run(model, step, seed_of(request))
        sizes = np.arange(most + 1)
        prior = np.where(sizes < least, -np.inf, references.laplace(n_dp - sizes, 2.0))
        exactly = references.bernoulli_of_unknown_size(
            [Release(references.laplace, 1.5, s)], prior, prior=(2.0, 2.0)
        )
        assert_law(draws["n"], exactly[0], what=f"n at {s}")
        assert_law(draws["p"], exactly[1], what=f"p at {s}")


@pytest.mark.slow
def test_single_moves_as_published(coin_model, request):
    pm.set_data({"s_data": 3.2, "n_dp_data": 9.0}, model=coin_model)
    with coin_model:
        step = pmp.BirthDeath(single=True, noncentred_steps=0)
    draws, result = run(coin_model, step, seed_of(request), draws=8000)
    # The published algorithm knows no empty database; this prior does.
    sizes, chances = exact(3.2, 9.0)
    assert_law(draws["n"], sizes, what="n")
    assert_law(draws["p"], chances, what="p")
    moved = result.sample_stats["birth_death_births"] + result.sample_stats["birth_death_deaths"]
    assert set(np.unique(moved)) == {0, 1}


@pytest.mark.slow
def test_single_moves_enter_and_leave_the_empty_database(coin_model, request):
    pm.set_data({"s_data": -0.5, "n_dp_data": -1.0}, model=coin_model)
    with coin_model:
        step = pmp.BirthDeath(single=True, noncentred_steps=0)
    draws, _ = run(coin_model, step, seed_of(request), draws=8000)
    sizes, _ = exact(-0.5, -1.0)
    assert sizes.weights[0] > 0.05
    assert_mean(draws["n"] == 0, float(sizes.weights[0]), what="P(n = 0)")
    assert_law(draws["n"], sizes, what="n")


def everything():
    """A size that a parameter's prior depends on, and databases of known number beside it."""
    with pm.Model() as model:
        n = pm.DiscreteUniform("n", 0, 6)
        theta = pm.Normal("theta", 0.4 * (n - 3), 1.0)
        share = pm.Beta("share", 2, 2)
        x = pmp.Records("x", pm.Bernoulli.dist(logit_p=theta), size=n)
        z = pm.Bernoulli("z", logit_p=theta, shape=3)
        w = pm.Bernoulli("w", share, shape=4)
        for name, records, observed in (("s", x, 2.5), ("r", z, 2.2), ("v", w, 3.4)):
            pmp.Privatized(name, records, pmp.Laplace(scale=1.0), observed=observed)
    return model


def everything_exactly():
    """P(n), E theta and E share, all records added up."""

    def likelihood(release, size, chance):
        counts = np.arange(size + 1)
        noise = np.exp(references.laplace(release - counts, 1.0))
        return stats.binom.pmf(counts, size, np.asarray(chance)[:, None]) @ noise

    theta, share = np.linspace(-7, 7, 1401), np.linspace(0.0005, 0.9995, 1000)
    p = 1 / (1 + np.exp(-theta))
    joint = np.array(
        [
            stats.norm.pdf(theta, 0.4 * (n - 3), 1.0)
            * likelihood(2.5, n, p)
            * likelihood(2.2, 3, p)
            for n in range(7)
        ]
    )
    joint /= joint.sum()
    own = stats.beta.pdf(share, 2, 2) * likelihood(3.4, 4, share)
    return joint.sum(axis=1), float(joint.sum(axis=0) @ theta), float(own @ share / own.sum())


@pytest.mark.slow
def test_a_prior_given_the_size_beside_databases_of_known_number(request):
    draws, _ = run(everything(), None, seed_of(request))
    weights, theta, share = everything_exactly()
    assert_law(draws["n"], references.Integers(weights), what="n")
    assert_mean(draws["n"] == 0, float(weights[0]), what="P(n = 0)")
    assert_mean(draws["theta"], theta, what="E theta")
    assert_mean(draws["share"], share, what="E share")


def test_a_parameter_that_a_transform_ties_to_the_size_is_refused():
    with pm.Model():
        n = pm.DiscreteUniform("n", 1, 6)
        mu = pm.Uniform("mu", 0.0, n)
        x = pmp.Records("x", pm.Normal.dist(mu, 1.0), size=n)
        pmp.Privatized("s", x, pmp.Laplace(scale=1.0), observed=2.5)
        with pytest.raises(RecordError, match=r"depends on 'n'.*default_transform=None"):
            pmp.BirthDeath()


def test_a_law_that_depends_on_another_size_is_refused():
    with pm.Model():
        n, m = pm.DiscreteUniform("n", 1, 6), pm.DiscreteUniform("m", 1, 6)
        x = pmp.Records("x", pm.Normal.dist(0.0, 1.0), size=n)
        y = pmp.Records("y", pm.Normal.dist(n, 1.0), size=m)
        pmp.Privatized("s", x, pmp.Laplace(scale=1.0), observed=2.5)
        pmp.Privatized("t", y, pmp.Laplace(scale=1.0), observed=2.5)
        with pytest.raises(RecordError, match=r"'y' must not depend on how many.*on 'n'"):
            pmp.BirthDeath()


def test_records_of_unknown_number_are_not_left_to_two_steps():
    model, _ = two_groups()
    with model, pytest.raises(RecordError, match="'x_b' is left out"):
        pmp.BirthDeath([model["p"], model["n_a"], model["x_a"]])


@pytest.mark.slow
def test_single_moves_do_not_cross_a_gap_and_say_so():
    with pm.Model():
        n = pm.Categorical("n", np.array([0.3, 0.3, 0.0, 0.4]))
        x = pmp.Records("x", pm.Bernoulli.dist(0.5), size=n)
        pmp.Privatized("s", x, pmp.Laplace(scale=1.0), observed=1.5)
        with pytest.raises(RecordError, match="without gaps"):
            pmp.BirthDeath(single=True)


@pytest.mark.slow
def test_without_a_release_of_the_size(request):
    model = coins(["s"])
    draws, _ = run(model, None, seed_of(request))
    sizes, chances = exact(3.0)
    assert_law(draws["n"], sizes, what="n")
    assert_law(draws["p"], chances, what="p")


@pytest.mark.slow
def test_clamped_normal_of_unknown_number(request):
    with pm.Model() as model:
        mu = pm.Normal("mu", 0.5, 1.5)
        n = pm.DiscreteUniform("n", 1, 14)
        x = pmp.Records("x", pm.Normal.dist(mu, 1.2), size=n)
        pmp.Privatized("total", pt.clip(x, -2, 2), pmp.Laplace(scale=3.0), observed=9.1)
        pmp.Privatized("n_dp", n, pmp.Gaussian(scale=3.0), observed=8.2)
    draws, _ = run(model, None, seed_of(request))
    prior = references.gaussian(8.2 - np.arange(1, 15), 3.0)
    sizes, means = references.clamped_normal_of_unknown_size(
        [Release(references.laplace, 3.0, 9.1)], prior, bound=2.0, sigma=1.2, prior=(0.5, 1.5)
    )
    assert_law(draws["n"], sizes, what="n")
    assert_law(draws["mu"], means, what="mu")


def alternate(model, step, seed, *, watched, rounds, tuned=()):
    """Publish anew, step, and so on; return the chain of each watched variable."""
    step.setup_chain(np.random.default_rng(seed), 0, rounds)
    step.learnt = step.learnt._replace(**dict(tuned))
    rng = np.random.default_rng(seed + 1)
    releases = [rv for rv in model.observed_RVs if is_release(rv)]
    statistics = model.compile_fn(
        model.replace_rvs_by_values(
            [rv.owner.op.statistic(rv.owner.op.dist_params(rv.owner)[0]) for rv in releases]
        ),
        inputs=model.value_vars,
        on_unused_input="ignore",
    )
    natural = model.compile_fn(
        model.replace_rvs_by_values([model[name] for name in watched]),
        inputs=model.value_vars,
        on_unused_input="ignore",
    )
    point, draws = model.initial_point(seed), []
    for _ in range(rounds):
        for rv, statistic in zip(releases, statistics(point), strict=True):
            drawn = rv.owner.op.mechanism.simulate(rng, statistic)
            model[f"{rv.name}_data"].set_value(np.asarray(drawn, dtype=float))
        step.forget()
        point, _ = step.step(point)
        draws.append([float(v) for v in natural(point)])
    return {name: np.array(draws)[None, :, k] for k, name in enumerate(watched)}


def largest_z(draws, laws):
    scores = []
    for name, law in laws.items():
        scores.append(z_of_mean(draws[name], law.mean()))
        points = [law.ppf(q) for q in (0.2, 0.5, 0.8)]
        scores += [z_of_mean(draws[name] <= v, law.cdf(v)) for v in points]
    return max(abs(z) for z in scores)


COIN_LAWS = {
    "p": stats.beta(2, 2),
    "rate": stats.gamma(RATE[0], scale=1 / RATE[1]),
    "n": stats.nbinom(RATE[0], RATE[1] / (1 + RATE[1])),
}
# As if tuning had met as many records, and learnt a bent ridge to walk along.
TUNED = {"largest": (25,)}


def bent(step):
    """Return what tuning might have left: a ridge, knots on it, and leaps that are worth it."""
    size = step._target.program.size
    rng = np.random.default_rng(5)
    found = step.learnt.ridge
    curves = rng.normal(0, 0.1, size=found.ridge.curves.shape)
    ridge = found.ridge._replace(centres=np.array([1.5]), reach=np.array([1.0]), curves=curves)
    centre, knots = np.append(np.zeros(size - 1), 1.5), np.array([0.8, 1.4, 2.0, 2.3])
    walk = found.walk._replace(factor=0.5 * np.eye(size), centre=centre)
    proposal = found.proposal._replace(accept=0.5)
    return TUNED | {"ridge": found._replace(walk=walk, ridge=ridge, knots=knots, proposal=proposal)}


def test_prior_is_kept(coin_model, coin_step, request):
    draws = alternate(
        coin_model,
        coin_step,
        seed_of(request),
        watched=COIN_LAWS,
        rounds=4000,
        tuned=bent(coin_step),
    )
    assert largest_z(draws, COIN_LAWS) < Z_LIMIT


def test_a_few_records_are_kept_apart_from_many(coin_model, coin_step, request):
    """Tuning may have met fewer records than there are: two lengths of arrays are then in use."""
    draws = alternate(
        coin_model,
        coin_step,
        seed_of(request),
        watched=COIN_LAWS,
        rounds=4000,
        tuned={"largest": (-30,)},
    )
    assert largest_z(draws, COIN_LAWS) < Z_LIMIT


def without_the_factor_of_nu(self, density):
    inside = pt.all([pt.ge(n, 1) for n in self.numbers])
    return pt.switch(inside, density, -np.inf)


@pytest.mark.slow
@pytest.mark.usefixtures("the_certificate_is_blind")
def test_a_missing_jacobian_is_noticed(monkeypatch, request):
    monkeypatch.setattr(targets.SizeCoordinates, "density", without_the_factor_of_nu)
    model = coins()
    with model:
        step = pmp.BirthDeath()
    draws = alternate(model, step, seed_of(request), watched=COIN_LAWS, rounds=16_000, tuned=TUNED)
    assert largest_z(draws, COIN_LAWS) > Z_LIMIT


@pytest.mark.slow
@pytest.mark.usefixtures("the_certificate_is_blind")
def test_a_dropped_release_of_the_size_is_noticed(monkeypatch, request):
    # Geweke's check would not do: without that release the step is right for another model.
    real = targets.densities_that_see

    def but_one(*args, **kwargs):
        return {f: term for f, term in real(*args, **kwargs).items() if f.name != "n_dp"}

    monkeypatch.setattr(targets, "densities_that_see", but_one)
    model = coins()
    pm.set_data({"s_data": 3.2, "n_dp_data": 14.0}, model=model)
    with model:
        step = pmp.BirthDeath()
    draws, _ = run(model, step, seed_of(request))
    sizes, _ = exact(3.2, 14.0)
    assert abs(z_of_mean(draws["n"], sizes.mean())) > Z_LIMIT


def pairs():
    """Records of two variables, one given the other."""
    with pm.Model() as model:
        slope = pm.Normal("slope", 0, 1)
        n = pm.DiscreteUniform("n", 0, 9)
        x = pmp.Records("x", pm.Normal.dist(0.5, 1), size=n)
        y = pmp.Records("y", pm.Normal.dist(slope * x, 0.5), size=n)
        t = pt.stack([pt.clip(x, -2, 2), pt.clip(x * y, -2, 2)], axis=1)
        data = pm.Data("s_data", np.zeros(2))
        pmp.Privatized("s", t, pmp.Laplace(scale=1.5), observed=data)
    return model, {"slope": stats.norm(0, 1), "n": stats.randint(0, 10)}


def gammas():
    """Records whose base variates have a weight, and not of the rows that exist alone."""
    return of_shape(lambda shape: pm.Gamma.dist(shape, 1.0))


def without_a_form():
    """Records without a form x = T(theta, u): all are drawn afresh with their parameters."""
    return of_shape(lambda shape: pm.VonMises.dist(mu=0.0, kappa=shape))


def of_shape(law):
    with pm.Model() as model:
        shape = pm.Gamma("shape", 3, 2)
        n = pm.DiscreteUniform("n", 1, 9)
        x = pmp.Records("x", law(shape), size=n)
        data = pm.Data("s_data", 0.0)
        pmp.Privatized("s", pt.clip(x, 0, 4), pmp.Laplace(scale=1.5), observed=data)
    return model, {"shape": stats.gamma(3, scale=0.5), "n": stats.randint(1, 10)}


def two_groups():
    """Two groups of unknown numbers that share a parameter."""
    with pm.Model() as model:
        p = pm.Beta("p", 2, 3)
        for name, most in (("a", 6), ("b", 8)):
            n = pm.DiscreteUniform(f"n_{name}", 1, most)
            x = pmp.Records(f"x_{name}", pm.Bernoulli.dist(p), size=n)
            data = pm.Data(f"s_{name}_data", 0.0)
            pmp.Privatized(f"s_{name}", x, pmp.Laplace(scale=1.0), observed=data)
    return model, {"p": stats.beta(2, 3), "n_a": stats.randint(1, 7), "n_b": stats.randint(1, 9)}


@pytest.mark.parametrize(
    "family",
    [
        pytest.param(pairs, marks=pytest.mark.slow),
        *(pytest.param(f, marks=pytest.mark.exhaustive) for f in (gammas, without_a_form)),
        pytest.param(two_groups, marks=pytest.mark.exhaustive),
    ],
)
def test_prior_is_kept_in_other_models(family, request):
    assert z_in_another_model(family, seed_of(request)) < Z_LIMIT


def z_in_another_model(family, seed):
    model, laws = family()
    with model:
        step = pmp.BirthDeath()
    tuned = {"largest": (5,) * len(step.databases)}
    draws = alternate(model, step, seed, watched=laws, rounds=4000, tuned=tuned)
    return largest_z(draws, laws)


@pytest.fixture
def crude_gammas(monkeypatch):
    """Carry gamma records by their scale alone, so that the weight has all to say of the shape."""
    crude = Reparameterisation(
        forward=lambda u, shape, scale: scale * u,
        inverse=lambda x, w, shape, scale: x / scale,
        log_weight=lambda u, shape, scale: (shape - 1) * pt.log(u) - u - pt.gammaln(shape),
    )
    monkeypatch.setattr(carrying, "reparameterisation_of", lambda rv: crude)


@pytest.mark.slow
def test_a_crude_form_with_its_weight_keeps_the_prior(crude_gammas, request):
    assert z_in_another_model(gammas, seed_of(request)) < Z_LIMIT


@pytest.mark.slow
@pytest.mark.usefixtures("the_certificate_is_blind")
def test_a_weight_of_the_rows_that_exist_alone_is_noticed(crude_gammas, request, monkeypatch):
    """Rows that do not exist are drawn given the parameters, and held while these move."""
    written = targets.SizeCoordinates.written

    def of_those_that_exist(self, graphs, others, **options):
        if others and not any(new.owner for new in others.values()):
            others = {old: self.first_rows(new, 0) for old, new in others.items()}
        return written(self, graphs, others, **options)

    whole = targets.weight_of_base
    monkeypatch.setattr(targets, "weight_of_base", lambda *a, **k: _marked(whole(*a, **k)))
    monkeypatch.setattr(
        targets.SizeCoordinates,
        "written",
        lambda self, graphs, others, **options: (
            of_those_that_exist if any(graph.name == "weight" for graph in graphs) else written
        )(self, graphs, others, **options),
    )
    assert z_in_another_model(gammas, seed_of(request)) > Z_LIMIT


def _marked(graph):
    graph.name = "weight"
    return graph


@pytest.mark.slow
def test_without_a_capacity_the_posterior_is_that_of_a_prior_without_an_end(request):
    """The releases pull the size far into the tail of its prior."""
    with pm.Model():
        p = pm.Beta("p", 2, 2)
        n = pm.Poisson("n", 30)
        x = pmp.Records("x", pm.Bernoulli.dist(p), size=n)
        pmp.Privatized("s", x, pmp.Laplace(scale=1.5), observed=20.0)
        pmp.Privatized("n_dp", n, pmp.Laplace(scale=1.0), observed=90.0)
        drawn = pmp.sample(
            3000, tune=500, chains=2, cores=1, random_seed=seed_of(request), quiet=True,
            compute_convergence_checks=False,
        )  # fmt: skip
    assert (drawn.sample_stats["birth_death_capacity_hits"] == 0).all()

    def enumerated(most):
        sizes = np.arange(most + 1)
        prior = stats.poisson.logpmf(sizes, 30) + references.laplace(90.0 - sizes, 1.0)
        return references.bernoulli_of_unknown_size(
            [Release(references.laplace, 1.5, 20.0)], prior, prior=(2.0, 2.0)
        )

    sizes, chances = enumerated(400)
    assert_law(drawn.posterior["n"].values, sizes)
    assert_law(drawn.posterior["p"].values, chances)
    cut_off, _ = enumerated(55)
    with pytest.raises(AssertionError, match="z ="):
        assert_law(drawn.posterior["n"].values, cut_off)


def open_coins():
    """Coins of a number whose prior has no end and an unknown mean; most of it is below 30."""
    with pm.Model() as model:
        p = pm.Beta("p", 2, 2)
        rate = pm.Gamma("rate", 1.0, 0.2)
        n = pm.Poisson("n", rate)
        x = pmp.Records("x", pm.Bernoulli.dist(p), size=n)
        pmp.Privatized("s", x, pmp.Laplace(scale=0.6), observed=61.7)
        pmp.Privatized("n_dp", n, pmp.Laplace(scale=5.0), observed=150.3)
    return model


@pytest.fixture(scope="module")
def open_model():
    return open_coins()


@pytest.fixture(scope="module")
def open_step(open_model):
    with open_model:
        return pmp.BirthDeath()


def exact_of_open_coins(most):
    sizes = np.arange(most + 1)
    prior = stats.nbinom.logpmf(sizes, 1.0, 0.2 / 1.2) + references.laplace(150.3 - sizes, 5.0)
    return references.bernoulli_of_unknown_size(
        [Release(references.laplace, 0.6, 61.7)], prior, prior=(2.0, 2.0)
    )


def draws_without_a_capacity(model, step, seed, **options):
    with model:
        return pmp.sample(
            2500, tune=1000, chains=2, cores=1, random_seed=seed, quiet=True, step=[step],
            compute_convergence_checks=False, **options,
        )  # fmt: skip


@pytest.mark.slow
def test_records_are_as_many_as_they_are_where_nobody_said_how_many(open_model, open_step, request):
    """A third of the mass is beyond the arrays of the model (Remark 5.5 of Awan et al.)."""
    drawn = draws_without_a_capacity(open_model, open_step, seed_of(request))
    rows = open_model["x"].type.shape[0]
    assert (drawn.sample_stats["birth_death_capacity_hits"] == 0).all()
    assert float((drawn.posterior["n"] > rows).mean()) > 0.2

    sizes, chances = exact_of_open_coins(500)
    assert_law(drawn.posterior["n"].values, sizes)
    assert_law(drawn.posterior["p"].values, chances)
    cut_off, _ = exact_of_open_coins(rows)
    with pytest.raises(AssertionError, match="z ="):
        assert_law(drawn.posterior["n"].values, cut_off)


@pytest.mark.slow
def test_records_beyond_the_arrays_that_are_forgotten_are_noticed(
    open_model, open_step, request, monkeypatch
):
    """An iteration that begins with what the point has room for: more are born than die."""

    def of_the_point(self, point):
        return min(int(point[self.size]), self.rows)

    monkeypatch.setattr(targets.SizeTarget, "number", of_the_point)
    drawn = draws_without_a_capacity(open_model, open_step, seed_of(request))
    sizes, _ = exact_of_open_coins(500)
    with pytest.raises(AssertionError, match="z ="):
        assert_law(drawn.posterior["n"].values, sizes)


def test_records_without_room_are_kept_beside_the_point(open_model, open_step):
    [size] = open_step._target.sizes
    point, rng = open_model.initial_point(3), np.random.default_rng(3)
    records = [rng.integers(0, 2, size.rows + 7).astype(point["x"].dtype)]
    open_step.make_room([open_model["x"]])
    size.write(point, records)
    assert point["x"].shape == (size.rows,)
    assert size.number(point) == size.rows + 7
    np.testing.assert_array_equal(size.records_of(point)[0], records[0])
    filled = size.filled_up(rng, point, size.rows + 20)[0]
    np.testing.assert_array_equal(filled[: size.rows + 7], records[0])
    assert len(filled) == size.rows + 20
    open_step.beyond = open_step._target.beyond
    saved = open_step.sampling_state
    size.write(point, [records[0][:5]])
    assert size.number(point) == 5
    open_step.sampling_state = saved
    open_step._target.recall(open_step.beyond)
    np.testing.assert_array_equal(size.beyond[0], records[0][size.rows :])
    open_step.forget()
    open_step.make_room([])
    assert size.capacity == size.rows


def test_there_is_no_room_where_somebody_else_reads_the_records(open_model, open_step):
    [size] = open_step._target.sizes
    run = {"chains": 1, "cores": 1, "random_seed": 1, "quiet": True, "step": [open_step]}
    run |= {"compute_convergence_checks": False, "progressbar": False}
    with open_model:
        with pytest.raises(CapacityError, match="larger capacity"):
            pmp.sample(60, tune=400, keep_records=True, **run)
        assert not size.grows
        pmp.sample(2, tune=2, **run)
        assert size.grows
        with pytest.raises(RecordError, match="capacity= to 'x'"):
            pmp.maximum_likelihood(model=open_model)


@pytest.mark.parametrize("number", [1, 949, 951, 10**5, 10**7])
def test_parts_of_sizes_without_an_end_are_the_same_from_all_sizes(number):
    """The bounds are those of a partition, so that a way there is a way back."""
    parts = {
        bounds_of_size(np.random.default_rng(5), other, 600, 2**40)
        for other in (number, number + 1, 3 * number)
    }
    for least, most in parts:
        for end in (least, most):
            assert bounds_of_size(np.random.default_rng(5), end, 600, 2**40) == (least, most)
    assert any(least <= number <= most for least, most in parts)


def test_a_capacity_that_is_too_small_is_an_error(coin_model, coin_step, monkeypatch):
    pm.set_data({"s_data": 20.0, "n_dp_data": 55.0}, model=coin_model)
    options = {"chains": 1, "random_seed": 1, "progressbar": False, "quiet": True}
    checks = {"compute_convergence_checks": False}
    with coin_model, pytest.raises(CapacityError, match="larger capacity") as refused:
        pmp.sample(400, tune=200, step=coin_step, **options, **checks)
    assert refused.value.result.posterior.sizes["draw"] == 400
    monkeypatch.setattr("pymc_privacy.results.OFTEN", 1.0)
    with coin_model, pytest.warns(CapacityWarning, match="want of room"):
        pmp.sample(400, tune=200, step=coin_step, **options, **checks)


def test_chosen_by_itself_and_records_are_kept_on_demand(coin_model, coin_step):
    pm.set_data({"s_data": 3.2, "n_dp_data": 9.0}, model=coin_model)
    assert all(pmp.BirthDeath.competence(coin_model[v], True) == 3 for v in ("p", "rate", "n", "x"))
    with coin_model:
        result = pmp.sample(
            200,
            tune=200,
            step=coin_step,
            keep_records=True,
            chains=1,
            random_seed=3,
            progressbar=False,
            quiet=True,
            compute_convergence_checks=False,
        )
    kept = np.isfinite(result.posterior["x"].values).sum(axis=-1)
    np.testing.assert_array_equal(kept, result.posterior["n"].values)


def test_a_chain_goes_on_from_its_saved_state(coin_model, coin_step):
    pm.set_data({"s_data": 3.2, "n_dp_data": 9.0}, model=coin_model)
    coin_step.setup_chain(np.random.default_rng(8), 60, 0)
    point = coin_model.initial_point(8)
    for _ in range(40):
        point, _ = coin_step.step(point)
    state, here = coin_step.sampling_state, point
    ends = []
    for _ in range(2):
        coin_step.sampling_state = state
        point = {name: value.copy() for name, value in here.items()}
        for _ in range(30):
            point, _ = coin_step.step(point)
        ends.append(point)
        coin_step.setup_chain(np.random.default_rng(9), 0, 0)
    for name in ("p_logodds__", "rate_log__", "n", "x"):
        np.testing.assert_array_equal(ends[0][name], ends[1][name])


@pytest.mark.slow
@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_chains_in_other_processes(coin_model, method):
    pm.set_data({"s_data": 3.2, "n_dp_data": 9.0}, model=coin_model)
    options = {"tune": 100, "chains": 2, "random_seed": 4, "progressbar": False, "quiet": True}
    checks = {"compute_convergence_checks": False}
    with coin_model:
        here = pm.sample(100, cores=1, **options, **checks)
        there = pm.sample(100, cores=2, mp_ctx=method, **options, **checks)
    np.testing.assert_allclose(here.posterior["p"], there.posterior["p"], rtol=1e-6)
    np.testing.assert_array_equal(here.posterior["n"], there.posterior["n"])


@pytest.mark.parametrize(("number", "below"), [(100, 1.0), (3000, 0.125), (9000, 0.0)])
def test_sizes_beyond_those_met_in_tuning_have_a_way_back(number, below, request):
    """Of the bounds 950 and 7600 the far one is used in an eighth of all iterations."""
    rng, found = np.random.default_rng(seed_of(request)), []
    for _ in range(2000):
        least, most = bounds_of_size(rng, number, 600, 10_000)
        assert least <= number <= most
        assert (least, most) in {(1, 950), (1, 7600), (951, 7600), (7601, 10_000)}
        found.append(least == 1)
    assert_mean(np.array(found), below, what="how often small sizes can be reached")


def test_a_move_has_room_for_the_largest_size_that_it_may_lead_to(coin_model, coin_step):
    rng, point = np.random.default_rng(3), coin_model.initial_point(8) | {"n": np.array(4)}
    [array], [least, most] = coin_step._target.reserve(rng, point, [2], draw=True)
    assert least == 1
    assert most == len(array) > 50
    np.testing.assert_array_equal(array[:4], point["x"][:4])
    [array], _ = coin_step._target.reserve(rng, point, [2], draw=False)
    assert len(array) == 4


@pytest.mark.parametrize("single", [False, True], ids=["jumps", "as published"])
def test_sizes_stay_while_the_parameters_settle(coin_model, single):
    pm.set_data({"s_data": 3.2, "n_dp_data": 9.0}, model=coin_model)
    sizes = []
    with coin_model:
        pm.sample(
            **SHORT | {"tune": 200, "chains": 1},
            step=pmp.BirthDeath(single=single),
            initvals={"n": 12},
            callback=lambda trace, draw: sizes.append(int(draw.point["n"])),
        )
    assert (set(sizes[:10]) == {12}) != single
    assert len(set(sizes[10:])) > 3
