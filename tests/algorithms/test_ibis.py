"""The sequential kernel: exact on a conjugate model in any order; and what would break it."""

import numpy as np
import pytest
from scipy import stats

from pymc_privacy.algorithms import ibis
from tests.stochastic import Z_LIMIT, seed_of

SD = 2.0  # of what is observed, given a mean with prior N(0, 3²)
PRIOR = stats.norm(0, 3)


def run(seed, data, particles=400, *, step=ibis.step):
    """Return the state after all data, of a Normal mean that has a conjugate posterior."""
    rng = np.random.default_rng(seed)
    start = PRIOR.rvs((particles, 1), random_state=rng)
    state = ibis.init(start, PRIOR.logpdf(start[:, 0]))
    infos = []
    for k, one in enumerate(data):
        target = ibis.Target(
            before=lambda q, k=k: (
                PRIOR.logpdf(q[:, 0]) + stats.norm(q[:, :1], SD).logpdf(data[:k]).sum(axis=1)
            ),
            release=lambda q, one=one: stats.norm(q[:, 0], SD).logpdf(one),
        )
        state, info = step(rng, state, target)
        infos.append(info)
    return state, infos


def exact(data):
    """Return posterior mean and sd, and the log evidence."""
    precision = 1 / 9 + len(data) / SD**2
    covariance = SD**2 * np.eye(len(data)) + 9.0
    evidence = stats.multivariate_normal(np.zeros(len(data)), covariance).logpdf(data)
    return data.sum() / SD**2 / precision, precision**-0.5, evidence


def z_scores(states, data):
    """Return z of the mean, the second moment and the evidence, among independent clouds."""
    mean, sd, evidence = exact(data)
    scores = []
    for found, wanted in [
        ([ibis.mean_of(s)[0] for s in states], mean),
        ([ibis.weights_of(s) @ (s.particles[:, 0] - mean) ** 2 for s in states], sd**2),
        ([np.exp(s.log_evidence - evidence) for s in states], 1.0),
    ]:
        scores.append((np.mean(found) - wanted) / (np.std(found, ddof=1) / np.sqrt(len(found))))
    return np.array(scores)


CLOUDS = 30
# Of t with 29 degrees of freedom, as rare as a Normal z at the limit of the suite.
T_LIMIT = stats.t.isf(stats.norm.sf(Z_LIMIT), CLOUDS - 1)


@pytest.fixture(scope="module")
def data():
    return np.random.default_rng(8).normal(1.5, SD, 40)


@pytest.mark.parametrize("order", ["as they came", "backwards"])
def test_the_posterior_and_the_evidence_are_exact(data, order, request):
    given = data if order == "as they came" else data[::-1]
    states = [run((seed_of(request), k), given)[0] for k in range(CLOUDS)]
    z = z_scores(states, data)
    assert np.all(np.abs(z) < T_LIMIT), z
    assert all(state.size == len(data) for state in states)


def test_proposals_without_their_ratio_are_noticed(data, request, monkeypatch):
    """A mutant: independent proposals, accepted as if they were symmetric."""
    right = ibis._propose
    monkeypatch.setattr(ibis, "_propose", lambda *given: (right(*given)[0], 0.0))
    states = [run((seed_of(request), k), data)[0] for k in range(CLOUDS)]
    assert np.abs(z_scores(states, data)).max() > T_LIMIT


def test_what_is_known_of_a_state_is_true(data):
    state, infos = run(1, data)
    logs = PRIOR.logpdf(state.particles[:, 0]) + stats.norm(state.particles, SD).logpdf(data).sum(
        axis=1
    )
    np.testing.assert_allclose(state.log_posterior, logs)
    assert state.log_evidence == pytest.approx(sum(info.log_increment for info in infos))
    assert all(info.ess >= 200 - 1e-6 for info in infos)
    assert all((info.moves == 0) == (info.parts == 1) for info in infos)
    assert sum(info.moves > 0 for info in infos) < 10, "moves get rare"


def test_a_release_that_rules_out_nearly_everything_is_taken_in_by_parts():
    """One datum, a hundred times as sharp as the prior, and far from where it is likely."""
    rng = np.random.default_rng(4)
    states = []
    for _ in range(CLOUDS):
        start = PRIOR.rvs((400, 1), random_state=rng)
        state = ibis.init(start, PRIOR.logpdf(start[:, 0]))
        target = ibis.Target(
            before=lambda q: PRIOR.logpdf(q[:, 0]),
            release=lambda q: stats.norm(q[:, 0], 0.03).logpdf(7.0),
        )
        state, info = ibis.step(rng, state, target)
        assert info.parts > 3
        states.append(state)
    precision = 1 / 9 + 1 / 0.03**2
    means = [ibis.mean_of(s)[0] for s in states]
    wanted = 7.0 / 0.03**2 / precision
    assert abs(np.mean(means) - wanted) < T_LIMIT * np.std(means, ddof=1) / np.sqrt(CLOUDS)
    evidence = stats.norm(0, np.hypot(3, 0.03)).logpdf(7.0)
    ratios = np.exp([s.log_evidence - evidence for s in states])
    assert abs(ratios.mean() - 1) < T_LIMIT * ratios.std(ddof=1) / np.sqrt(CLOUDS)


def test_parameters_that_are_impossible_are_left(request):
    """Most of the prior has no law at all: a density of zero, and no endless loop."""
    rng = np.random.default_rng(seed_of(request))
    start = PRIOR.rvs((400, 1), random_state=rng)
    state = ibis.init(start, PRIOR.logpdf(start[:, 0]))
    target = ibis.Target(
        before=lambda q: PRIOR.logpdf(q[:, 0]),
        release=lambda q: np.where(q[:, 0] > 4, 0.0, -np.inf),
    )
    state, _ = ibis.step(rng, state, target)
    kept = state.particles[ibis.weights_of(state) > 0]
    assert kept.min() > 4
    truncated = stats.truncnorm(4 / 3, np.inf, scale=3)
    assert abs(ibis.mean_of(state)[0] - truncated.mean()) < 6 * truncated.std() / np.sqrt(100)


def test_resampling_is_unbiased_and_even():
    rng = np.random.default_rng(2)
    weights = np.array([0.5, 0.1, 0.4])
    counts = [np.bincount(ibis.resample(rng, weights, 10), minlength=3) for _ in range(200)]
    assert np.array_equal(np.unique(counts, axis=0), [[5, 1, 4]])
    assert ibis.resample(rng, np.array([0.0, 1.0]), 3).tolist() == [1, 1, 1]
