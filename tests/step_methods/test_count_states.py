"""Counts inside `pm.sample`: exact posteriors, Geweke's check, mutants, what is chosen when."""

import cloudpickle
import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
from scipy import special, stats

import pymc_privacy as pmp
from pymc_privacy.errors import RecordError
from pymc_privacy.model import cells
from pymc_privacy.model.cells import NotCounted
from pymc_privacy.model.marks import is_interwoven, sampler_of
from pymc_privacy.step_methods import CountStates
from pymc_privacy.step_methods import count_states as module
from pymc_privacy.targets import count_states as counting
from pymc_privacy.targets.count_states import count_databases
from tests import references
from tests.geweke import alternate, build, largest_z
from tests.references import Release
from tests.short_runs import SHORT
from tests.stochastic import Z_LIMIT, assert_law, assert_mean, seed_of, z_of_mean


def bernoulli_model(size=1000, scale=10.0, value=312.4):
    with pm.Model() as model:
        p = pm.Beta("p", 2.0, 3.0)
        x = pm.Bernoulli("x", p, shape=size)
        pmp.Privatized("s", x, pmp.Laplace(scale=scale), observed=value)
    return model


def one_hot(x, cells):
    return pt.stack([pt.eq(x, k).astype("int64") for k in range(cells)], axis=1)


def sample(model, **kwargs):
    with model:
        return pm.sample(**(SHORT | kwargs))


# Exact posteriors, with nothing but defaults.
@pytest.mark.parametrize(
    "scale",
    [
        10.0,
        *(pytest.param(b, marks=pytest.mark.slow) for b in (0.3, 100.0)),
    ],
)
@pytest.mark.parametrize("run", [pm.sample, pytest.param(pmp.sample, marks=pytest.mark.slow)])
def test_bernoulli(run, scale, request):
    model = bernoulli_model(scale=scale)
    with model:
        result = run(draws=1500, **OPTIONS, random_seed=seed_of(request))
    assert "count_states_block_accept" in result.sample_stats
    exact = references.bernoulli(
        [Release(references.laplace, scale, 312.4)], size=1000, prior=(2.0, 3.0)
    )
    assert_law(result.posterior["p"].values, exact)


OPTIONS = {
    "tune": 500,
    "chains": 2,
    "cores": 1,
    "progressbar": False,
    "quiet": True,
    "compute_convergence_checks": False,
}


def categorical_posterior(size, alpha, scale, value):
    """The mixture of `references.categorical` for three cells, whose last count is the rest."""
    first, second = np.indices((size + 1, size + 1)).reshape(2, -1)
    inside = first + second <= size
    counts = np.stack([first, second, size - first - second], axis=1)[inside]
    log_weights = (special.gammaln(alpha + counts) - special.gammaln(counts + 1)).sum(axis=1)
    log_weights += references.laplace(value - counts, scale).sum(axis=1)
    weights = np.exp(log_weights - log_weights.max())
    kept = weights > 1e-16 * weights.sum()
    return references.DirichletMixture((alpha + counts)[kept], weights[kept] / weights.sum())


def test_the_categorical_reference_agrees_with_the_enumeration_of_all_tables():
    alpha, scale, value = np.array([1.0, 2.0, 1.5]), np.array([1.0, 2.0, 1.5]), [6.4, 1.4, 4.4]
    ours = categorical_posterior(10, alpha, scale, np.array(value))
    theirs = references.categorical(
        [Release(references.laplace, scale, value)], size=10, concentration=alpha
    )
    np.testing.assert_allclose(ours.mean(), theirs.mean(), rtol=1e-12)
    np.testing.assert_allclose(ours.sd(), theirs.sd(), rtol=1e-10)


@pytest.mark.slow
@pytest.mark.parametrize("scale", [2.0, 30.0])
def test_categorical(scale, request):
    size, alpha, value = 600, np.array([1.0, 2.0, 1.5]), np.array([301.0, 95.5, 190.2])
    with pm.Model() as model:
        p = pm.Dirichlet("p", alpha)
        x = pm.Categorical("x", p, shape=size)
        pmp.Privatized("s", one_hot(x, 3), pmp.Laplace(scale=scale), observed=value)
    result = sample(model, draws=2000, **OPTIONS, random_seed=seed_of(request))
    assert "count_states_block_accept" in result.sample_stats
    exact = categorical_posterior(size, alpha, scale, value)
    for k in range(3):
        assert_law(result.posterior["p"].values[..., k], exact.marginal(k), what=f"p[{k}]")


@pytest.mark.slow
def test_two_databases_of_one_parameter(request):
    with pm.Model() as model:
        p = pm.Beta("p", 2.0, 2.0)
        x = pm.Bernoulli("x", p, shape=700)
        y = pm.Bernoulli("y", p, shape=500)
        pmp.Privatized("sx", x, pmp.Laplace(scale=20.0), observed=250.3)
        pmp.Privatized("sy", y, pmp.DiscreteGaussian(scale=5.0), observed=160)
    result = sample(model, draws=2000, **OPTIONS, random_seed=seed_of(request))
    assert "count_states_block_accept" in result.sample_stats
    a, b = np.indices((701, 501)).reshape(2, -1)
    log_w = special.gammaln([701, 501]).sum() - special.gammaln(
        np.stack([a + 1, 701 - a, b + 1, 501 - b])
    ).sum(axis=0)
    log_w += references.laplace(250.3 - a, 20.0) + references.discrete_gaussian(160 - b, 5.0)
    log_w += special.betaln(2 + a + b, 2 + 1200 - a - b)
    w = np.bincount(a + b, np.exp(log_w - log_w.max()), minlength=1201)
    k = np.arange(1201)
    assert_law(
        result.posterior["p"].values, references.BetaMixture(2.0 + k, 1202.0 - k, w / w.sum())
    )


# Geweke's check, with so few records that the prior is wide beside the data.
SIZE = 6


@pytest.fixture
def few_records_do(monkeypatch):
    monkeypatch.setattr(cells, "LEAST_RECORDS", 1)
    monkeypatch.setattr(counting, "LEAST_RECORDS", 1)
    monkeypatch.setattr(counting, "RECORDS_PER_CELL", 0)


def bernoulli():
    p = pm.Beta("p", 2.0, 3.0)
    x = pm.Bernoulli("x", p, shape=SIZE)
    return x, pmp.DiscreteLaplace(scale=1.0), {"p": stats.beta(2.0, 3.0)}


def categorical():
    p = pm.Beta("p", 2.0, 3.0)
    x = pm.Categorical("x", pt.stack([p, (1 - p) / 2, (1 - p) / 2]), shape=SIZE)
    return one_hot(x, 3), pmp.DiscreteGaussian(scale=1.0), {"p": stats.beta(2.0, 3.0)}


def binomial_pairs():
    """Two coordinates in one variable, clamped, with a parameter above the parameter."""
    above = pm.Normal("above", 0.0, 1.0)
    q = pm.Normal("q", 0.5 * above, 1.0)
    x = pm.Binomial("x", 3, pm.math.invlogit(q), shape=(SIZE, 2))
    t = pt.stack([pt.minimum(x[:, 0], 2), x[:, 0] * x[:, 1]], axis=1).astype("float64")
    return t, pmp.Laplace(scale=2.0), {"above": stats.norm(), "q": stats.norm(0, 1.25**0.5)}


def chain_of_three():
    p = pm.Beta("p", 2.0, 2.0)
    rate = pm.Uniform("rate", 0.2, 1.0)
    u = pm.DiscreteUniform("u", 1, 3, shape=SIZE)
    group = pm.Bernoulli("group", p, shape=SIZE)
    table = pt.stack([pt.stack([rate, 1 - rate]), pt.stack([0.3, 0.7])])
    x = pm.Categorical("x", table[group], shape=SIZE)
    y = pm.Bernoulli("y", rate / u, shape=SIZE)
    t = pt.stack([group + x, u * y, x * y], axis=1)
    return t, pmp.Gaussian(scale=1.5), {"p": stats.beta(2, 2), "rate": stats.uniform(0.2, 0.8)}


FAMILIES = [bernoulli, categorical, binomial_pairs, chain_of_three]


def geweke(family, seed, rounds=6000, **options):
    """Return how far the parameters are from their priors."""
    model, mechanism, priors = build(family)
    step = CountStates(model=model, rng=seed, **options)
    step.stop_tuning()
    wide, learnt = 0.8 * np.eye(step._target.program.size), step.learnt
    step.learnt = learnt._replace(
        centred=learnt.centred._replace(factor=0.5 * wide),
        noncentred=learnt.noncentred._replace(factor=wide),
        block=learnt.block._replace(log_scale=np.log(0.3)),
    )
    [counted] = step._target.counted

    def total_at(point):
        return counted.contributions[counted.cells_at(point)].sum(axis=0)

    draws = alternate(model, mechanism, priors, step, total_at=total_at, seed=seed, rounds=rounds)
    return largest_z(draws, priors)


@pytest.mark.slow
@pytest.mark.usefixtures("few_records_do")
@pytest.mark.parametrize("family", FAMILIES)
def test_geweke_parameters_keep_their_prior(family, request):
    z = geweke(family, seed_of(request))
    assert z < Z_LIMIT, f"z = {z:.1f}"


@pytest.mark.slow
@pytest.mark.usefixtures("few_records_do")
def test_a_missing_jacobian_is_noticed(request, monkeypatch):
    whole = pm.Model.logp

    def without(self, vars=None, jacobian=True, sum=True):
        return whole(self, vars=vars, jacobian=False, sum=sum)

    monkeypatch.setattr(pm.Model, "logp", without)
    z = geweke(bernoulli, seed_of(request))
    assert z > Z_LIMIT, f"z = {z:.1f}"


@pytest.mark.slow
@pytest.mark.usefixtures("few_records_do", "the_certificate_is_blind")
def test_counts_that_are_added_twice_are_noticed(request, monkeypatch):
    prior = counting._prior

    def with_counts(model, parameters, counted, *further):
        """Let the cells have a say of their own in the density of the parameters."""
        return prior(model, parameters, counted) + counted[0].log_probabilities.sum()

    monkeypatch.setattr(counting, "_prior", with_counts)
    z = geweke(bernoulli, seed_of(request))
    assert z > Z_LIMIT, f"z = {z:.1f}"


# Two samplers of one posterior.
def naive_bayes(size=1000, classes=3, features=2, levels=3, epsilon=0.3, seed=0):
    rng = np.random.default_rng(seed)
    share = rng.dirichlet(2 * np.ones(classes))
    tables = rng.dirichlet(np.ones(levels), size=(features, classes))
    truth = rng.choice(classes, size=size, p=share)
    counts = np.zeros((features, classes, levels))
    for i in truth:
        for k in range(features):
            counts[k, i, rng.choice(levels, p=tables[k, i])] += 1
    mechanism = pmp.Laplace(epsilon=epsilon, sensitivity=2.0 * features)
    with pm.Model() as model:
        p = pm.Dirichlet("p", 2 * np.ones(classes))
        group = pm.Categorical("group", p, shape=size)
        columns = []
        for k in range(features):
            table = pm.Dirichlet(f"table{k}", np.ones(levels), shape=(classes, levels))
            x = pm.Categorical(f"x{k}", table[group], shape=size)
            columns += [
                pt.eq(group, i) * pt.eq(x, j) for i in range(classes) for j in range(levels)
            ]
        released = mechanism.simulate(rng, counts.ravel())
        pmp.Privatized("s", pt.stack(columns, axis=1), mechanism, observed=released)
    return model


@pytest.mark.exhaustive
def test_counts_and_records_agree_on_naive_bayes(request):
    model = naive_bayes(size=500)
    options = OPTIONS | {
        "draws": 2000,
        "random_seed": seed_of(request),
        "var_names": ["p", "table0", "table1"],
    }
    by_counts = sample(model, **options)
    assert "count_states_block_accept" in by_counts.sample_stats
    with model:
        by_records = pm.sample(step=pmp.Interweave(), **options)
    assert "record_sweep_accept" in by_records.sample_stats
    for name in options["var_names"]:
        a = by_counts.posterior[name].values.reshape(2, 2000, -1)
        b = by_records.posterior[name].values.reshape(2, 2000, -1)
        for k in range(a.shape[2]):
            for f in (lambda v: v, lambda v: v**2):
                z = _z_of_difference(f(a[..., k]), f(b[..., k]))
                assert abs(z) < Z_LIMIT, f"{name}[{k}]: z = {z:.1f}"


def _z_of_difference(a, b):
    """Return the difference of two chains' means, in units of its error."""
    # A mean that is 1 off has a z-score of 1 / error.
    errors = [1 / z_of_mean(draws, draws.mean() - 1) for draws in (a, b)]
    return (a.mean() - b.mean()) / np.hypot(*errors)


# What is written back.
@pytest.fixture(scope="module")
def pair():
    """A model of two record variables, and a step for it."""
    with pm.Model() as model:
        p = pm.Beta("p", 2.0, 2.0)
        a = pm.Bernoulli("a", p, shape=500)
        b = pm.Bernoulli("b", 0.2 + 0.6 * a, shape=500)
        pmp.Privatized(
            "s", pt.stack([a, a * b], axis=1), pmp.Laplace(scale=5.0), observed=[240.0, 190.0]
        )
    return model


@pytest.mark.slow
def test_records_have_their_counts_and_a_random_order(pair, request):
    step = CountStates(model=pair, rng=seed_of(request))
    step.setup_chain(np.random.default_rng(seed_of(request)), 100, 0)
    point = pair.initial_point(1)
    first, neighbours, both = [], [], []
    for _ in range(1500):
        point, _ = step.step(point)
        cell = 2 * point["a"] + point["b"]
        counts = np.bincount(cell, minlength=4)
        np.testing.assert_array_equal(counts, step._target.counts_at(point))
        share = counts / 500
        first.append((cell[7] == 3) - share[3])
        neighbours.append((cell[3] == 3) * (cell[4] == 3) - share[3] * (counts[3] - 1) / 499)
        both.append(point["a"][11] * point["b"][11] - share[3])
    for what, draws in {"one": first, "neighbours": neighbours, "both": both}.items():
        assert_mean(np.array(draws), 0.0, what=what)
    assert point["a"].dtype == pair.initial_point(1)["a"].dtype


def test_a_resumed_step_continues_to_the_bit(pair):
    step = CountStates(model=pair, rng=5)
    step.setup_chain(np.random.default_rng(1), 40, 10)
    point = pair.initial_point(1)
    for _ in range(30):
        point, _ = step.step(point)
    state, start = step.sampling_state, {name: value.copy() for name, value in point.items()}
    onward = step.step(point)[0]
    fresh = CountStates(model=pair, rng=99)
    fresh.sampling_state = state
    again = fresh.step(start)[0]
    for name, value in onward.items():
        np.testing.assert_array_equal(again[name], value)


def test_nothing_is_learnt_after_tuning(pair):
    result = sample(pair, draws=30, tune=50, discard_tuned_samples=False)
    for name in ("centred_scale", "noncentred_scale", "block_fraction"):
        frozen = result.sample_stats[f"count_states_{name}"].values
        learning = result["warmup_sample_stats"][f"count_states_{name}"].values
        assert np.ptp(frozen, axis=1).max() == 0
        assert np.ptp(learning) > 0


def test_moves_can_be_turned_off(pair):
    point = pair.initial_point(1)
    still = CountStates(model=pair, centred_steps=0, noncentred_steps=0, blocks=0, rng=1)
    new, [statistics] = still.step(point)
    np.testing.assert_array_equal(new["p_logodds__"], point["p_logodds__"])
    for name in ("a", "b"):
        np.testing.assert_array_equal(np.bincount(new[name]), np.bincount(point[name]))
    assert statistics["count_states_block_accept"] == 0


def test_records_are_counted_once(pair, monkeypatch):
    """Neither in making the step nor for a copy of it in another process is it done again."""
    calls = []
    count = module.certified_counts
    monkeypatch.setattr(
        module, "certified_counts", lambda *args: calls.append(args) or count(*args)
    )
    step = CountStates(pair.free_RVs, model=pair, rng=1)
    copy = cloudpickle.loads(cloudpickle.dumps(step))
    assert len(calls) == 1
    here, there = step.step(pair.initial_point(1))[0], copy.step(pair.initial_point(1))[0]
    np.testing.assert_array_equal(here["a"], there["a"])


@pytest.mark.slow
@pytest.mark.parametrize("context", ["fork", "spawn"])
def test_chains_side_by_side_draw_the_same(context, pair):
    here, there = sample(pair), sample(pair, cores=2, mp_ctx=context)
    for name in ("p", "a", "b"):
        np.testing.assert_allclose(
            here.posterior[name], there.posterior[name], rtol=0 if context == "fork" else 1e-9
        )


# What is chosen when.
def test_many_records_of_few_values_are_counted(caplog):
    caplog.set_level("INFO", logger="pymc")
    sample(bernoulli_model(), quiet=False, draws=5, tune=5)
    assert "CountStates: [p, x]" in caplog.text


def test_few_records_are_not():
    model = bernoulli_model(size=400, value=100.0)
    assert is_interwoven(model["x"])
    assert sampler_of(model["x"]) != "count_states"


@pytest.mark.slow
@pytest.mark.parametrize("method", [pmp.Interweave, pmp.RecordSweep])
def test_other_steps_can_be_asked_for_by_hand(method):
    """What a record sweep leaves over, the parameters, is not for counts either."""
    with bernoulli_model():
        result = pm.sample(step=method(), **SHORT)
    assert "record_sweep_accept" in result.sample_stats
    assert "interweave_centred_accept" in result.sample_stats
    assert "count_states_block_accept" not in result.sample_stats


def observed_child(x, p):
    pm.Normal("child", x, 1.0, observed=np.zeros(600))


def potential_of_records(x, p):
    pm.Potential("potential", -0.1 * x)


def local_release(x, p):
    pmp.Privatized("local", x, pmp.Laplace(scale=1.0), local=True, observed=np.zeros(600))


@pytest.mark.parametrize("later", [observed_child, potential_of_records, local_release])
def test_what_sees_single_records_rules_counts_out(later):
    """Even where it is written after the release, when the mark is on the records already."""
    with pm.Model() as model:
        p = pm.Beta("p", 2.0, 2.0)
        x = pm.Bernoulli("x", p, shape=600)
        pmp.Privatized("s", x, pmp.Laplace(scale=3.0), observed=200.0)
        later(x, p)
        assert isinstance(CountStates([p, x]), pmp.Interweave)
        with pytest.raises(RecordError, match="something else than a central release"):
            CountStates()
    assert sampler_of(model["x"]) == "count_states"


def covariates(size):
    theta = pm.Normal("theta")
    return pm.Bernoulli("x", logit_p=theta + np.linspace(-1, 1, size), shape=size)


def too_many_cells(size):
    p = pm.Beta("p", 2, 2)
    return pm.Binomial("x", 15, p, shape=(size, 3))[:, 0]


def too_few_records(size):
    p = pm.Beta("p", 2, 2)
    return pm.Binomial("x", 400, p, shape=size)


def unknown_support(size):
    p = pm.Beta("p", 2, 2)
    n = pm.Poisson("n", 5)
    return pm.Binomial("x", n, p, shape=size)


@pytest.mark.parametrize(
    ("records", "why"),
    [
        (covariates, "identically"),
        (too_many_cells, "4096 cells"),
        (too_few_records, "600 records in 401 cells"),
        (unknown_support, "not known"),
    ],
)
def test_why_counts_do_not_do(records, why):
    with pm.Model() as model:
        pmp.Privatized("s", records(600), pmp.Laplace(scale=3.0), observed=200.0)
    with pytest.raises(NotCounted, match=why):
        count_databases(model, [model["x"]])


def test_contributions_that_can_be_set_anew_are_not_counted():
    with pm.Model() as model:
        p = pm.Beta("p", 2, 2)
        x = pm.Binomial("x", 5, p, shape=600)
        most = pm.Data("most", 3)
        pmp.Privatized("s", pt.minimum(x, most), pmp.Laplace(scale=3.0), observed=200.0)
    with pytest.raises(NotCounted, match="set anew"):
        count_databases(model, [model["x"]])


def test_parameters_alone_are_moved_by_records():
    model = bernoulli_model()
    with model:
        assert isinstance(CountStates([model["p"]]), pmp.Interweave)
        assert isinstance(CountStates([model["x"]]), pmp.Interweave)


def test_a_model_without_records_is_refused():
    with pm.Model():
        pm.Normal("z")
        with pytest.raises(RecordError, match="none of these variables are records"):
            CountStates()


def test_cells_are_numbered():
    with pm.Model():
        u = pm.DiscreteUniform("u", -1, 1, shape=10)
        v = pm.Bernoulli("v", 0.5, shape=(10, 2))
    found = cells.find_cells([u, v])
    assert found.size == 12
    values = found.values()
    np.testing.assert_array_equal(found.cells_of(values), np.arange(12))
    assert len({(int(a), *map(int, b)) for a, b in zip(*values, strict=True)}) == 12


def test_probabilities_of_cells_are_those_of_the_model():
    model = naive_bayes()
    [counted] = count_databases(
        model,
        [rv for rv in model.free_RVs if sampler_of(rv) == "count_states" and rv.dtype == "int64"],
    )
    assert counted.cells.size == 27
    rng = np.random.default_rng(1)
    point = {
        name: v + rng.normal(size=v.shape) if v.dtype.kind == "f" else v
        for name, v in model.initial_point(1).items()
    }
    by_record = sum(model.logp(vars=list(counted.cells.records), sum=False))
    function = model.compile_fn([by_record, counted.log_probabilities], mode="FAST_COMPILE")
    by_record, by_cell = function(point)
    np.testing.assert_allclose(by_cell[counted.cells_at(point)], by_record)
    assert np.exp(by_cell).sum() == pytest.approx(1)
