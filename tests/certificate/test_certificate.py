"""The certificate: what is broken on purpose is caught, whichever program it is in.

Each twin breaks one line of the library, or brings back a fault that was once there, and is tried
on a model that reaches it. Programs are interpreted, so that breaking one costs no compilation.
"""

import logging
from contextlib import contextmanager

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
from pymc.distributions.continuous import TruncatedNormalRV
from pytensor import scalar as ps
from pytensor.tensor.random.basic import BernoulliRV, CategoricalRV, LogNormalRV, NormalRV
from scipy import special

import pymc_privacy as pmp
from pymc_privacy.certificate import base as certificate
from pymc_privacy.certificate.base import (
    Comparison,
    Reference,
    certified,
    disagreements,
    log_density_change,
)
from pymc_privacy.certificate.laws import law_gap
from pymc_privacy.densities import conditional_draws, summed_out
from pymc_privacy.densities import parameters as densities
from pymc_privacy.errors import CertificateError, RecordError
from pymc_privacy.functions import native_draws
from pymc_privacy.model.database import find_databases
from pymc_privacy.model.rows import expressions as rows
from pymc_privacy.model.rows import sufficient
from pymc_privacy.model.rows import sums as row_sums
from pymc_privacy.reparameterise import Reparameterisation, reparameterise
from pymc_privacy.targets import interweave as interweaving
from pymc_privacy.targets import record_sweep as programs
from tests.zoo import test_certificates as zoo
from tests.zoo.test_certificates import compared

SIZE = 8
LAPLACE = pmp.Laplace(scale=3.0)


def release(x):
    pmp.Privatized("s", pt.clip(x, -3, 3), LAPLACE, observed=2.0)


def normal():
    release(pm.Normal("x", pm.Normal("mu"), pm.HalfNormal("sigma"), shape=SIZE))


def student():
    release(pm.StudentT("x", nu=pm.Gamma("nu", 3, 1), mu=pm.Normal("mu"), sigma=1, shape=SIZE))


def random_walk():
    level = pm.GaussianRandomWalk("level", init_dist=pm.Normal.dist(), steps=SIZE - 1)
    release(pm.Normal("x", level, 1.0, shape=SIZE))


def counted_from_the_end():
    release(pm.Normal("x", pm.Normal("a", shape=3)[np.arange(SIZE) % 3 - 3], 1.0, shape=SIZE))


def cast():
    z = pm.Normal("z", shape=SIZE)
    release(pm.Normal("x", pt.cast(pm.Normal("a") + z, "int64") / 2, 1.0, shape=SIZE))


def truth_values():
    z = pm.Normal("z", shape=(SIZE, 3))
    release(pm.Normal("x", pm.Normal("a") * (z > 0).sum(axis=1), 1.0, shape=SIZE))


def far_from_zero():
    release(pm.Normal("x", pm.Normal("mu", 1e9, 1.0), 1.0, shape=SIZE) - 1e9)


def truncated():
    mu, sigma = pm.Normal("mu", 0, 10), pm.HalfNormal("sigma", 0.3)
    release(pm.TruncatedNormal("x", mu, sigma, lower=-1, upper=1, shape=SIZE))


def lognormal():
    release(pm.LogNormal("x", pm.Normal("mu"), pm.HalfNormal("sigma"), shape=SIZE))


def gamma():
    release(pm.Gamma("x", pm.Gamma("shape", 3, 1), pm.Gamma("rate", 2, 1), shape=SIZE))


def tilted():
    x = pm.Normal("x", pm.Normal("mu"), 1.0, shape=SIZE)
    pm.Potential("tilt", -0.1 * x**2)
    release(x)


def chain():
    x = pm.Normal("x", pm.Normal("mu"), 1.0, shape=SIZE)
    release(pm.Normal("y", pm.Normal("slope") * x, 1.0, shape=SIZE))


def no_form():
    release(pm.VonMises("x", pm.Normal("mu", 0, 0.5), 2.0, shape=SIZE))


def many_coins():
    release(pm.Bernoulli("x", pm.Beta("p", 2, 2), shape=400))


def many_categories():
    release(pm.Categorical("x", pm.Dirichlet("p", np.ones(3)), shape=1500))


def answers():
    x = pm.Categorical("x", pm.Dirichlet("p", np.ones(3)), shape=300)
    response = pmp.RandomizedResponse(epsilon=1.0, categories=3)
    pmp.Privatized("s", x, response, local=True, observed=np.arange(300) % 3)


def verdicts(write):
    with pm.Model() as model:
        write()
    return [str(comparison) for comparison in compared(model) if not comparison.agrees]


def shares_far_from_their_base():
    """At some points of the prior a base variate of some record has no density."""
    mean, precision = pm.Dirichlet("mean", np.ones(3)), pm.LogNormal("precision", 2, 1)
    x = pm.Dirichlet("x", precision * mean, shape=(400, 3))
    pmp.Privatized("s", pmp.log_shares(x, 0.1), LAPLACE, observed=[-600.0, -500.0, -400.0])


MODELS = (
    normal,
    student,
    random_walk,
    counted_from_the_end,
    cast,
    truth_values,
    far_from_zero,
    truncated,
    lognormal,
    gamma,
    tilted,
    chain,
    no_form,
    many_coins,
    many_categories,
    answers,
    pytest.param(shares_far_from_their_base, marks=pytest.mark.slow),
)


@pytest.mark.parametrize("write", MODELS, ids=lambda write: write.__name__)
def test_what_is_not_broken_agrees(write):
    assert verdicts(write) == []


def replacing(module, name, make):
    """Return a context in which a function of a module is a broken twin of itself."""

    @contextmanager
    def context(monkeypatch):
        with monkeypatch.context() as patch:
            patch.setattr(module, name, make(getattr(module, name)))
            yield

    return context


def registering(dispatcher, op, function):
    """Return a context in which an operation is dispatched to a broken twin."""

    @contextmanager
    def context(monkeypatch):
        before = dispatcher.dispatch(op)
        dispatcher.register(op)(function)
        try:
            yield
        finally:
            dispatcher.register(op)(before)

    return context


def square_without_its_last_term(op, expansion, part, exponent):
    terms = expansion.parts(part)
    return sufficient._times(terms, terms)[:-1]


def difference_as_a_sum(op, expansion, left, right):
    return [*expansion.parts(left), *expansion.parts(right)]


def a_cast_is_nothing(op, expansion, part):
    return expansion.parts(part)


def frozen_parameters(init):
    def broken(self, leaves, parameters):
        init(self, leaves, ())

    return broken


def lognormal_of_the_variance(op, mu, sigma):
    return Reparameterisation(
        forward=lambda u, mu, sigma: pt.exp(mu + sigma**2 * u),
        inverse=lambda x, w, mu, sigma: (pt.log(x) - mu) / sigma**2,
    )


def normal_that_does_not_come_back(op, mu, sigma):
    return Reparameterisation(
        forward=lambda u, mu, sigma: mu + sigma * u,
        inverse=lambda x, w, mu, sigma: (x - mu) / sigma + 0.1,
    )


def truncated_by_masses(op, mu, sigma, lower, upper):
    """Go through the distribution function, which is 0 or 1 beyond 38 standard deviations."""

    def cdf(x, mu, sigma):
        return 0.5 * pt.erfc((mu - x) / sigma / np.sqrt(2.0))

    def forward(u, mu, sigma, lower, upper):
        low, high = cdf(lower, mu, sigma), cdf(upper, mu, sigma)
        return mu + sigma * np.sqrt(2.0) * pt.erfinv(2 * (low + u * (high - low)) - 1)

    def inverse(x, w, mu, sigma, lower, upper):
        low, high = cdf(lower, mu, sigma), cdf(upper, mu, sigma)
        return (cdf(x, mu, sigma) - low) / (high - low)

    return Reparameterisation(forward=forward, inverse=inverse)


def coin_in_the_middle_of_its_cell(op, p):
    return Reparameterisation(
        forward=lambda u, p: (u < p).astype("int64"),
        inverse=lambda x, w, p: pt.where(pt.eq(x, 1), 0.5 * p, p + 0.5 * (1 - p)) + 0 * w,
        needs_uniform=True,
    )


def category_by_squares(rng, shape, p):
    following, u = pt.random.uniform(size=shape, rng=rng, return_next_rng=True)
    total = pt.cumsum(p)[:2] ** 2
    return following, pt.ge(u, total[0]).astype("int64") + pt.ge(u, total[1])


def scaled(noise_of):
    def broken(database):
        noise = noise_of(database)
        return noise._replace(parameters=2 * noise.parameters)

    return broken


def without_potentials(factors_of):
    return lambda model: [f for f in factors_of(model) if f not in model.potentials]


def times_two(function):
    return lambda *arguments, **options: 2 * function(*arguments, **options)


def forgetful(perform):
    """Leave the last record out."""

    def broken(op, node, inputs, outputs):
        columns = [part[:-1] if k < op.width else part for k, part in enumerate(inputs)]
        perform(op, node, columns, outputs)

    return broken


def shifted_misfit(function):
    def broken(*arguments):
        misfit, weights = function(*arguments)
        return misfit + 1, weights

    return broken


TWINS = {
    "a square without a term": (
        registering(sufficient.expand, ps.basic.Pow, square_without_its_last_term),
        normal,
        "given records",
    ),
    "a difference as a sum": (
        registering(sufficient.expand, ps.basic.Sub, difference_as_a_sum),
        normal,
        "given records",
    ),
    "a parameter taken for data": (
        replacing(rows.RowExpressions, "__init__", frozen_parameters),
        random_walk,
        "given records",
    ),
    "places not counted from the end": (
        replacing(rows.ps, "lt", lambda lt: lambda a, b: ps.constant(False)),
        counted_from_the_end,
        "given records",
    ),
    "a cast taken for nothing": (
        registering(sufficient.expand, ps.basic.Cast, a_cast_is_nothing),
        cast,
        "given records",
    ),
    "truth values added as such": (
        replacing(rows, "_as_type", lambda f: lambda scalar, dtype: scalar),
        truth_values,
        "given records",
    ),
    "sums far from zero": (
        replacing(sufficient, "_mean", lambda f: lambda column, size: pt.constant(0.0)),
        far_from_zero,
        "given records",
    ),
    "a loop that forgets": (
        replacing(row_sums.RowSums, "perform", forgetful),
        student,
        "given records",
    ),
    "a gradient twice as long": (
        replacing(interweaving, "gradient_of", lambda f: lambda d, p: [2 * g for g in f(d, p)]),
        normal,
        "slope",
    ),
    "half of a release": (
        replacing(densities, "release_density", times_two),
        normal,
        "given base variates",
    ),
    "a potential forgotten": (
        replacing(densities, "factors_of", without_potentials),
        tilted,
        "given base variates",
    ),
    "a weight of base variates forgotten": (
        replacing(interweaving, "weight_of_base", lambda f: lambda p, c, **o: pt.constant(0.0)),
        gamma,
        "given base variates",
    ),
    "base variates whose law moves": (
        registering(reparameterise, LogNormalRV, lognormal_of_the_variance),
        lognormal,
        "law of base variates",
    ),
    "records that do not come back": (
        registering(reparameterise, NormalRV, normal_that_does_not_come_back),
        normal,
        "put together again",
    ),
    "records far out": (
        registering(reparameterise, TruncatedNormalRV, truncated_by_masses),
        truncated,
        "put together again",
    ),
    "counts in the middle of their cell": (
        registering(reparameterise, BernoulliRV, coin_in_the_middle_of_its_cell),
        many_coins,
        "cell of u",
    ),
    "a wrong distance from the release": (
        replacing(interweaving, "misfit_of_releases", shifted_misfit),
        normal,
        "distance of a statistic",
    ),
    "refreshed records without their release": (
        replacing(interweaving, "density_of_others", lambda f: lambda m, d: 0.5 * f(m, d)),
        no_form,
        "all but the records",
    ),
    "weight ratios upside down": (
        replacing(programs, "_weight_ratio", lambda f: lambda d, r: [-w for w in f(d, r)]),
        tilted,
        "weight ratios",
    ),
    "contributions shifted": (
        replacing(programs, "float_columns", lambda f: lambda c: [t + 1e-3 for t in f(c)]),
        normal,
        "contributions",
    ),
    "a scan with another scale": (
        replacing(zoo, "noise_of", scaled),
        normal,
        "log ratio",
    ),
    "categories drawn by another law": (
        replacing(
            native_draws,
            "_DRAWS",
            lambda draws: draws | {CategoricalRV: category_by_squares},
        ),
        many_categories,
        "law of fresh records",
    ),
    "conditional draws by another law": (
        replacing(conditional_draws, "_draw", lambda f: lambda l, n: f([l[0], l[0], l[2]], n)),
        answers,
        "in each cell",
    ),
    "one value less to sum over": (
        replacing(summed_out, "_log_sum", lambda f: lambda logs: f(logs[1:])),
        answers,
        "summed out",
    ),
}


@pytest.mark.parametrize("name", TWINS)
def test_a_broken_twin_is_caught(name, monkeypatch):
    broken, write, complaint = TWINS[name]
    with broken(monkeypatch):
        wrong = verdicts(write)
    assert any(complaint in verdict for verdict in wrong), wrong


@pytest.mark.slow
def test_a_statistic_is_compared_wherever_base_variates_have_a_density(monkeypatch):
    """Shares of a wrong threshold are seen, although one pair of points has no density."""
    real = certificate.Reference.contributions

    def wrong(reference, point, releases):
        return np.maximum(real(reference, point, releases), np.log(0.2))

    monkeypatch.setattr(certificate.Reference, "contributions", wrong)
    found = verdicts(shares_far_from_their_base)
    assert any("the distance of a statistic" in verdict for verdict in found)


def numbers(*pairs):
    return [Comparison("it", expected, found) for expected, found in pairs]


def test_a_program_that_disagrees_gives_way_to_the_next_and_the_log_says_so(caplog):
    with caplog.at_level(logging.WARNING, logger="pymc"):
        found = certified(
            [lambda: 1.0, lambda: 2.0], lambda program: numbers((2.0, program)), what="this"
        )
    assert found == 2.0
    assert "A fast path for this disagrees" in caplog.text
    assert "it is 2 in the model and 1 in what was compiled from it" in caplog.text


def test_where_nothing_agrees_nothing_is_drawn():
    with pytest.raises(CertificateError, match=r"for this, it is 3 in the model and 2 .* Nothing"):
        certified([lambda: 1.0, lambda: 2.0], lambda program: numbers((3.0, program)), what="this")


@pytest.mark.parametrize("comparisons", [[], numbers((-np.inf, -np.inf), (np.nan, np.nan))])
def test_having_compared_nothing_is_an_error(comparisons):
    with pytest.raises(CertificateError, match="nothing could be compared"):
        disagreements(comparisons)


@pytest.mark.parametrize(
    ("expected", "found", "agrees"),
    [
        (1.0, 1.0 + 1e-8, True),
        (1.0, 1.001, False),
        (-np.inf, np.nan, True),
        (-np.inf, 0.0, False),
        (0.0, -np.inf, False),
        (0.0, np.nan, False),
        (np.inf, -np.inf, False),
        (np.zeros(3), np.zeros(2), False),
        (np.zeros(3), np.array([0.0, 0.0, 1.0]), False),
    ],
)
def test_numbers_agree_but_for_rounding(expected, found, agrees):
    assert Comparison("it", expected, found).agrees == agrees


def test_the_reference_is_the_models_own_density():
    with pm.Model() as model:
        chain()
    point = model.initial_point(random_seed=3)
    terms = Reference(model).terms(point)
    expected = model.compile_logp(sum=False)(point)
    names = [rv.name for rv in [*model.basic_RVs, *model.potentials]]
    assert list(terms.by_name) == names
    for found, term in zip(terms.by_name.values(), expected, strict=True):
        np.testing.assert_allclose(found, term, rtol=1e-12)


@pytest.mark.parametrize(("distance", "lost"), [(1.0, (0.0, 1e-12)), (7000.0, (1e-9, 1e-6))])
def test_the_reference_knows_its_own_rounding(distance, lost):
    # 7000 standard deviations from the bound, numbers of ten million cancel in each density.
    sigma = 3e-4
    with pm.Model() as model:
        pm.TruncatedNormal("x", pm.Normal("mu"), sigma, lower=0.0, shape=20)
    x = np.random.default_rng(1).exponential(sigma / distance, size=20)
    point = {"mu": np.array(-distance * sigma), "x_interval__": np.log(x)}
    terms = Reference(model).terms(point)
    assert lost[0] <= terms.rounding(["x"]) <= lost[1]
    # A twin that is off by much more than that is not taken for it.
    there = Reference(model).terms(point | {"mu": point["mu"] * 1.01})
    change = there.total(["x"]) - terms.total(["x"])
    assert log_density_change("", terms, there, ["x"], change + lost[1] / 2).agrees
    assert not log_density_change("", terms, there, ["x"], change + 1e-4).agrees


def test_the_reference_is_stable_where_the_plain_graph_overflows():
    with pm.Model() as model:
        release(pm.Logistic("x", pm.Normal("mu"), 1e-3, shape=SIZE))
    point = model.initial_point(random_seed=3) | {"mu": np.array(5e3)}
    assert np.isfinite(Reference(model).terms(point).by_name["x"]).all()


def test_a_look_up_beyond_a_table_is_an_error_in_a_sentence():
    with pm.Model():
        z = pm.Categorical("z", np.ones(4) / 4, shape=SIZE)
        x = pm.Normal("x", pm.Normal("a", shape=3)[z], 1.0, shape=SIZE)
        with pytest.raises(RecordError, match="looked up where there is nothing"):
            release(x)


@pytest.mark.parametrize("where", ["records", "contributions", "a potential"])
def test_a_floor_that_pytensor_forgets_is_refused(where):
    """PyTensor rewrites x // 1.0 into x, in every mode."""
    with pm.Model():
        mu = pm.Normal("mu")
        x = pm.Normal("x", mu // 1.0 if where == "records" else mu, 1.0, shape=SIZE)
        if where == "a potential":
            pm.Potential("tilt", -((mu // 1.0) ** 2))
        contributions = x // 1.0 if where == "contributions" else x
        pmp.Privatized("s", contributions, LAPLACE, observed=2.0)
        with pytest.raises(RecordError, match=r"x // 1\.0 .* pt\.floor"):
            pmp.Interweave()


@pytest.mark.slow
def test_a_step_method_falls_back_to_a_slower_path_and_draws_rightly(monkeypatch, caplog):
    broken = registering(sufficient.expand, ps.basic.Pow, square_without_its_last_term)
    with pm.Model() as model:
        normal()
        with broken(monkeypatch), caplog.at_level(logging.WARNING, logger="pymc"):
            step = pmp.Interweave()
    assert "A fast path for the parameters disagrees with the model" in caplog.text
    assert not step._program.has_statistics
    point, _ = step.step(model.initial_point(random_seed=1))
    assert np.isfinite(model.compile_logp()(point))


@pytest.mark.slow
def test_a_disagreement_where_the_chain_has_come_to_is_an_error(monkeypatch):
    with pm.Model() as model:
        normal()
        step = pmp.Interweave()
    point = model.initial_point(random_seed=1)
    step.tune = False
    step.step(point)
    step._certifier.start_chain()
    nothing = np.zeros((1, SIZE))
    monkeypatch.setattr(step._certifier.reference, "contributions", lambda p, n: nothing)
    with pytest.raises(CertificateError, match="where this chain came to"):
        step.step(point)


@pytest.mark.parametrize("law", [pm.Bernoulli, lambda *a, **k: pm.Binomial(*a, n=1, **k)])
def test_the_reference_keeps_the_digits_of_improbable_records(law):
    """Under wide priors of a logistic regression p is 1 but for its last digits."""
    with pm.Model() as model:
        slope = pm.Normal("slope", 0.0, 20.0)
        law("x", logit_p=slope * np.array([1.0, -1.0]), shape=2)
    for at in (25.0, 36.0, 300.0):
        point = {"slope": np.array(at), "x": np.array([0, 1])}
        found = Reference(model).terms(point).by_name["x"]
        np.testing.assert_allclose(found, np.repeat(-np.logaddexp(0, at), 2), rtol=1e-12)


@pytest.mark.parametrize(("logits", "agrees"), [((-12.0, -10.0), True), ((-12.0, 0.0), False)])
def test_draws_that_are_nearly_certain_have_their_law(logits, agrees):
    """What makes up for the common value is too rare to be seen in a few draws."""
    with pm.Model() as model:
        slope = pm.Normal("slope", 0.0, 20.0)
        x = pm.Bernoulli("x", logit_p=slope, shape=4)
        pmp.Privatized("s", x, pmp.Laplace(scale=1.0), observed=2.0)
    points = tuple({"slope": np.array(at), "x": np.zeros(4, np.int64)} for at in (-12.0, -10.0))
    draws = tuple(
        lambda rng, at=at: {"x": (rng.random(4) < special.expit(at)).astype(np.int64)}
        for at in logits
    )
    [database] = find_databases(model)
    assert law_gap("draws", Reference(model), database, points, draws).agrees is agrees
