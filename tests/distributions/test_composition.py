"""`PrivatizedComposition`: the helpers on tensors, what is refused, and exact posteriors."""

from dataclasses import replace

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest

import pymc_privacy as pmp
from pymc_privacy.errors import ArgumentError, InsecureNoiseWarning, RecordError, ReleaseError
from pymc_privacy.model.releases import contributions_of
from tests import references, references_shares
from tests.nonsense import NOTHING
from tests.short_runs import SHORT
from tests.stochastic import Z_LIMIT, assert_law, assert_mean, seed_of, z_of_mean

REPLACE = {"neighbours": "replace_one"}
ADD = {"neighbours": "add_remove"}
EDGES = (0.01, 0.1)


def simulated(shares, **options):
    with pytest.warns(InsecureNoiseWarning):
        return pmp.simulate_composition(np.random.default_rng(1), shares, **options)


def with_values(published, *values):
    """Return the same releases with other numbers in them, known beforehand."""
    made = []
    for release, value in zip(published.releases, values, strict=True):
        units = np.rint(np.asarray(value) / release.lattice.granularity)
        made.append(replace(release, integers=tuple(int(unit) for unit in units)))
    return replace(published, releases=tuple(made))


# ---------------------------------------------------------------- helpers on tensors


def test_helpers_are_the_same_on_tensors(request):
    rng = np.random.default_rng(seed_of(request))
    table = np.vstack([rng.dirichlet([0.3, 1, 2], 50), [[0.0, 1.0, 0.0], [0.1, 0.1, 0.8]]])
    x = pt.dmatrix("x")
    logs, bins = pmp.log_shares(x, 0.1), pmp.smallest_share_bins(x, EDGES)
    found = [graph.eval({x: table}, mode="FAST_COMPILE") for graph in (logs, bins)]
    assert found[0] == pytest.approx(pmp.log_shares(table, 0.1), rel=1e-14)
    assert found[1].tolist() == pmp.smallest_share_bins(table, EDGES).tolist()
    assert found[1].dtype.kind == "i"
    # A share of zero has a slope, which is none.
    slope = pt.grad(logs.sum(), x).eval({x: table}, mode="FAST_COMPILE")
    assert slope == pytest.approx(np.where(table > 0.1, 1 / np.maximum(table, 0.1), 0.0))


@pytest.mark.parametrize("x", [pt.dvector(), pt.dtensor3(), pt.dscalar()])
def test_tensors_must_be_tables_as_arrays_must(x):
    for call in (lambda: pmp.log_shares(x, 0.1), lambda: pmp.smallest_share_bins(x, EDGES)):
        with pytest.raises(ArgumentError, match=r"shape \(n, d\); got a tensor of . axes"):
            call()


def test_the_log_density_is_that_of_two_laws_of_noise(request):
    rng = np.random.default_rng(seed_of(request))
    table = rng.dirichlet([1, 2, 3], 20)
    published = simulated(table, epsilon=1.0, thresholds=EDGES, means=0.2, **REPLACE)
    with pm.Model() as model:
        x = pm.Dirichlet("x", np.ones(3), shape=(20, 3))
        made = pmp.PrivatizedComposition("day", x, published)
    assert [rv.name for rv in made] == ["day_counts", "day", "day_shares"]
    assert model.observed_RVs == list(made)
    density = model.compile_logp(vars=list(made), sum=False)
    point = {name: np.asarray(v) for name, v in model.initial_point().items()}
    [free] = model.value_vars
    point[free.name] = model.rvs_to_transforms[x].forward(pt.constant(table)).eval()
    a, counts = published.threshold, published.counts.value
    low = table.min(axis=1)
    bins = np.array([(low < 0.01).sum(), ((low >= 0.01) & (low < 0.1)).sum(), (low >= 0.1).sum()])
    sums = np.log(np.maximum(table, a)).sum(axis=0)
    expected = [
        references.discrete_laplace(counts - bins, published.counts.scale).sum(),
        references.laplace(published.logs.value - sums, published.logs.scale).sum(),
        references.laplace(
            published.shares.value - table.sum(axis=0), published.shares.scale
        ).sum(),
    ]
    found = [float(np.sum(part)) for part in density(point)]
    assert found == pytest.approx(expected, rel=1e-6)


def test_what_is_clamped_at_zero_says_as_much():
    """P(0 | c) of clamped counts is proportional to P(-k | c) of any negative one."""
    noise = pmp.DiscreteLaplace(scale=3.0)
    clamped = pmp.Clamped(mechanism=noise, lower=0)
    counts = np.arange(30)
    whole = clamped.log_density(np.zeros(30), counts) - noise.log_density(np.full(30, -4), counts)
    assert whole == pytest.approx(np.full(30, whole[0]))


# ---------------------------------------------------------------- what is refused


@pytest.fixture(scope="module")
def day():
    table = np.random.default_rng(2).dirichlet([1, 2, 3], 20)
    return simulated(table, epsilon=1.0, threshold=0.1, **REPLACE)


@pytest.fixture(scope="module")
def groups():
    table = np.random.default_rng(2).dirichlet([1, 2, 3], 20)
    return simulated(table, epsilon=1.0, threshold=0.1, by=[1, 2] * 10, **REPLACE)


def test_one_release_has_the_name_itself_and_cards_are_read(day, groups, tmp_path):
    path = tmp_path / "card.json"
    pmp.write_card(day, path)
    with pm.Model():
        x = pm.Dirichlet("x", np.ones(3), shape=(20, 3))
        read = [pmp.PrivatizedComposition(f"s{k}", x, day_) for k, day_ in enumerate((day, path))]
        assert [rv.name for rv in read] == ["s0", "s1"]
        y = pm.Dirichlet("y", np.ones(3), shape=(10, 3))
        of_group = pmp.PrivatizedComposition("t", y, groups, group=2)
        assert of_group.owner.op.mechanism == groups["2"].logs.mechanism
        assert pmp.PrivatizedComposition("u", y, groups["2"]).name == "u"
    assert contributions_of(of_group).type.shape == (10, 3)


@pytest.mark.parametrize(
    ("make", "error", "match"),
    [
        (lambda x, d, g: ("s", x[:, :2], d), RecordError, r"shape \(n, 3\)"),
        (lambda x, d, g: ("s", x[:10], d), ReleaseError, "as many records as were released, 20"),
        (lambda x, d, g: ("s", x[:, 0], d), RecordError, r"shape \(n, 3\)"),
        (lambda x, d, g: ("s", "x", d), RecordError, r"shape \(n, 3\)"),
        (lambda x, d, g: ("s", x, g), ReleaseError, "group= must say whose"),
        (lambda x, d, g: ("s", x, d.logs), ReleaseError, "what release_composition returned"),
        (lambda x, d, g: (" ", x, d), ReleaseError, "name must be"),
        (lambda x, d, g: ("x", x, d), ReleaseError, "name"),
    ],
)
def test_what_does_not_fit_is_refused(make, error, match, day, groups):
    with pm.Model():
        x = pm.Dirichlet("x", np.ones(3), shape=(20, 3))
        with pytest.raises(error, match=match):
            pmp.PrivatizedComposition(*make(x, day, groups))
        with pytest.raises(ReleaseError, match="group must be left out"):
            pmp.PrivatizedComposition("s", x, day, group="m")


@pytest.mark.parametrize("value", NOTHING)
def test_nonsense_is_refused_in_a_sentence(value, day):
    with pm.Model():
        x = pm.Dirichlet("x", np.ones(3), shape=(20, 3))
        with pytest.raises(ReleaseError):
            pmp.PrivatizedComposition("s", x, value)
        with pytest.raises((RecordError, ReleaseError)):
            pmp.PrivatizedComposition("s", value, day)
        with pytest.raises(ReleaseError):
            pmp.PrivatizedComposition(value, x, day)
    with pytest.raises(ArgumentError):
        pmp.log_shares(value, 0.1)


# ---------------------------------------------------------------- exact posteriors

PAIR = [[0.3, 0.7], [0.6, 0.4]]
RUN = SHORT | {"draws": 2500, "tune": 600}


def laplace(value, scale):
    return lambda sums: references.laplace(value - sums, scale).sum(axis=-1)


def integers(value, scale):
    return lambda sums: references.discrete_laplace(value - sums, scale).sum(axis=-1)


def censored(a):
    return np.log(np.maximum(references_shares.shares(), a))


def bins(edges):
    low = references_shares.shares().min(axis=1)
    which = np.searchsorted(edges, low, side="right")
    return np.eye(len(edges) + 1)[which]


def draws_of(family, published, seed):
    with pm.Model() as model:
        x = family()
        pmp.PrivatizedComposition("s", x, published)
    posterior = pmp.sample(model=model, **(RUN | {"random_seed": seed})).posterior
    return {name: posterior[name].values for name in posterior.data_vars}


def two_parts(shape=(2, 2)):
    alpha = pm.Gamma("alpha", 1, 0.1, shape=2)
    return pm.Dirichlet("x", alpha, shape=shape)


@pytest.mark.exhaustive
def test_one_release_has_its_exact_posterior(request):
    published = with_values(
        simulated(PAIR, epsilon=4.0, threshold=0.1, **REPLACE), np.array([-1.2, -1.7])
    )
    noise = laplace(published.logs.value, published.logs.scale)
    exact = references_shares.gamma_shares([censored(0.1)], [noise])
    draws = draws_of(two_parts, published, seed_of(request))["alpha"]
    for axis in range(2):
        assert_law(draws[..., axis], exact.marginal(axis))


def both_published():
    """Return counts and logarithms of two records, and what is exact of them."""
    published = with_values(
        simulated(PAIR, epsilon=6.0, thresholds=EDGES, selection=0.5, **REPLACE),
        np.array([0, 1, -1]),
        np.array([-1.5, -2.2]),
    )
    # The counts choose: of (0, 1, 0), everything is below 0.1, and nothing below 0.01.
    assert published.threshold == 0.01
    parts = (published.counts, published.logs)
    noises = [
        law(np.asarray(part.value), part.scale)
        for law, part in zip((integers, laplace), parts, strict=True)
    ]
    return published, [bins(EDGES), censored(0.01)], noises


@pytest.mark.slow
def test_counts_and_logarithms_have_their_exact_posterior_together(request):
    published, contributions, noises = both_published()
    exact = references_shares.gamma_shares(contributions, noises)
    draws = draws_of(two_parts, published, seed_of(request))["alpha"]
    for axis in range(2):
        assert_law(draws[..., axis], exact.marginal(axis))
    # Without the counts, as if the threshold had been fixed, it is another posterior.
    without = references_shares.gamma_shares(contributions[1:], noises[1:])
    assert abs(z_of_mean(np.log(draws.sum(-1)), _mean_log_sum(without))) > 10
    assert_mean(np.log(draws.sum(-1)), _mean_log_sum(exact), what="log precision")


@pytest.mark.slow
def test_independent_draws_have_the_same_posterior_and_the_exact_evidence(request):
    published, contributions, noises = both_published()
    exact = references_shares.gamma_shares(contributions, noises)
    with pm.Model() as model:
        pmp.PrivatizedComposition("s", two_parts(), published)
    seed = seed_of(request)
    result = pmp.importance_sample(4000, model=model, random_seed=seed, progressbar=False)
    evidence = references_shares.log_evidence(exact, contributions, noises)
    z = (result.attrs["log_evidence"] - evidence) / result.attrs["log_evidence_error"]
    assert abs(z) < Z_LIMIT, z
    without = references_shares.gamma_shares(contributions[1:], noises[1:])
    logs = np.log(result.posterior["alpha"].values.sum(-1))
    error = logs.std() / np.sqrt(result.attrs["effective_draws"])
    assert abs(logs.mean() - _mean_log_sum(exact)) < Z_LIMIT * error
    assert abs(logs.mean() - _mean_log_sum(without)) > 10 * error


def _mean_log_sum(posterior):
    return posterior.expectation(lambda a, b: np.log(a + b))


@pytest.mark.slow
def test_an_unknown_number_of_records_has_its_exact_posterior(request):
    published = with_values(
        simulated(PAIR, epsilon=3.0, threshold=0.1, **ADD), np.array([-1.2, -1.9])
    )
    assert published.size is None
    noise = laplace(published.logs.value, published.logs.scale)
    exact = references_shares.gamma_shares([censored(0.1)], [noise], sizes=(1, 2))

    def family():
        n = pm.DiscreteUniform("n", 1, 2)
        alpha = pm.Gamma("alpha", 1, 0.1, shape=2)
        return pmp.Records("x", pm.Dirichlet.dist(alpha), size=n)

    draws = draws_of(family, published, seed_of(request))
    for axis in range(2):
        assert_law(draws["alpha"][..., axis], exact.marginal(axis))
    two = references_shares.probability_of_size(2, exact, [censored(0.1)], [noise], sizes=(1, 2))
    assert 0.1 < two < 0.9
    assert_mean(draws["n"] == 2, two, what="P(n = 2)")


@pytest.mark.slow
def test_a_regression_on_public_covariates_has_its_exact_posterior(request):
    """Each record's logarithms times its covariate: what a slope is learnt from."""
    z, precision, prior = (-1.0, 2.0), 4.0, (0.0, 1.5)
    most = max(map(abs, z)) * pmp.log_share_sensitivity(2, 0.1)
    bound = max(map(abs, z)) * np.log(10)
    contributions = np.array(z)[:, None] * pmp.log_shares(PAIR, 0.1)
    with pytest.warns(InsecureNoiseWarning):
        card = pmp.simulate_release(
            np.random.default_rng(1),
            contributions,
            bounds=[(-bound, bound)] * 2,
            sensitivity=most,
            epsilon=8.0,
            **REPLACE,
        )
    noise = laplace(np.asarray(card.value), card.scale)
    exact = references_shares.regression_shares(
        [z[0] * censored(0.1), z[1] * censored(0.1)],
        [noise],
        covariates=z,
        precision=precision,
        prior=prior,
    )
    with pm.Model() as model:
        theta = pm.Normal("theta", *prior)
        mean = pm.math.invlogit(theta * np.array(z))
        x = pm.Dirichlet("x", precision * pt.stack([mean, 1 - mean], axis=1), shape=(2, 2))
        pmp.Privatized.from_card("s", np.array(z)[:, None] * pmp.log_shares(x, 0.1), card)
    run = RUN | {"random_seed": seed_of(request)}
    assert_law(pmp.sample(model=model, **run).posterior["theta"].values, exact)
