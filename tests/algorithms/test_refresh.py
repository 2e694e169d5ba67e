"""Fresh databases from a mixture: exact, invariant, and a broken twin; and inside `Interweave`."""

import math

import numpy as np
import pymc as pm
import pytest

import pymc_privacy as pmp
from pymc_privacy.algorithms import refresh
from pymc_privacy.algorithms.adaptation import refresh as adaptation
from pymc_privacy.algorithms.proposals import students
from pymc_privacy.algorithms.proposals.students import Mixture
from tests import references
from tests.stochastic import Z_LIMIT, assert_law, assert_mean, seed_of, z_of_mean

MIXTURE = Mixture(np.array([0.8, 0.2]), np.array([[2.0], [-1.0]]), np.array([[[0.7]], [[1.5]]]))
SIZE, NOISE, RELEASE = 3, 1.5, 5.0


def log_others(q, total, release):
    """Prior N(0, 1), and a total with Gaussian noise."""
    return -0.5 * (q[0] ** 2 + ((release - total) / NOISE) ** 2)


def offer_of(rng, release):
    def offer(q):
        x = q[0] + rng.standard_normal(SIZE)
        return refresh.State(q, log_others(q, x.sum(), release), x)

    return offer


def chain(rng, mixture, *, steps=3000, told=lambda q: 0.0):
    """Draws of q; ``told`` is added to the density that a move sees."""
    plain = offer_of(rng, RELEASE)

    def offer(q):
        state = plain(q)
        return state._replace(log_density=state.log_density + told(q))

    state, draws = offer(np.zeros(1)), []
    for _ in range(steps):
        state, _ = refresh.step(rng, state, mixture=mixture, offers=2, offer=offer)
        draws.append(state.q[0])
    return np.array(draws)[None]


# q and the total are Normal together.
VARIANCE = SIZE**2 + SIZE + NOISE**2
MEAN, SD = SIZE * RELEASE / VARIANCE, math.sqrt(1 - SIZE**2 / VARIANCE)


def test_fresh_databases_leave_the_posterior_as_it_is(request):
    draws = chain(np.random.default_rng(seed_of(request)), MIXTURE)
    assert_mean(draws, MEAN)
    assert_mean((draws - MEAN) ** 2, SD**2)


def test_without_the_density_of_the_mixture_they_do_not(request):
    """Mutant: the ratio forgets where offers come from."""
    rng = np.random.default_rng(seed_of(request))
    draws = chain(rng, MIXTURE, told=lambda q: students.log_density(q, MIXTURE))
    assert abs(z_of_mean(draws, MEAN)) > Z_LIMIT


def test_given_new_releases_parameters_keep_their_prior(request):
    """Geweke: draw the release given the records, move, and look at the parameters."""
    rng = np.random.default_rng(seed_of(request))
    q = rng.standard_normal(1)
    x = q[0] + rng.standard_normal(SIZE)
    draws = []
    for _ in range(4000):
        release = x.sum() + NOISE * rng.standard_normal()
        state = refresh.State(q, log_others(q, x.sum(), release), x)
        state, _ = refresh.step(rng, state, mixture=MIXTURE, offers=3, offer=offer_of(rng, release))
        q, x = state.q, state.records
        draws.append(q[0])
    draws = np.array(draws)[None]
    assert_mean(draws, 0.0)
    assert_mean(draws**2, 1.0)


def test_a_mixture_integrates_to_one_and_is_learnt(request):
    rng = np.random.default_rng(seed_of(request))
    grid = np.linspace(-300, 300, 600_001)
    density = np.exp([students.log_density(np.array([q]), MIXTURE) for q in grid[::20]])
    assert math.isclose(density.sum() * (grid[20] - grid[0]), 1.0, rel_tol=1e-3)
    points = np.array([students.draw(rng, MIXTURE) for _ in range(3000)])
    inside = np.abs(points) < 30
    assert_mean((points[:, 0] > 0).astype(float), float(density[grid[::20] > 0].sum() * 0.02))
    found = students.learn(points[inside[:, 0]], np.ones(inside.sum()))
    fits = [np.mean([students.log_density(p, m) for p in points]) for m in (found, MIXTURE)]
    assert fits[0] > fits[1] - 0.02


@pytest.mark.slow
def test_inside_a_chain_draws_are_exact(monkeypatch, request):
    """Offers are made although leaps would do, and are learnt in tuning."""
    monkeypatch.setattr(adaptation, "ENOUGH_LEAPS", 2.0)
    monkeypatch.setattr(adaptation, "MOST", 6)
    with pm.Model() as model:
        p = pm.Beta("p", 2, 5)
        x = pm.Bernoulli("x", p, shape=40)
        pmp.Privatized("s", x, pmp.Laplace(scale=6.0), observed=21.3)
    result = pmp.sample(
        600,
        model=model,
        tune=300,
        chains=2,
        cores=1,
        random_seed=seed_of(request),
        interweave={"centred_steps": 0, "noncentred_steps": 0},
        progressbar=False,
        quiet=True,
    )
    release = references.Release(references.laplace, 6.0, 21.3)
    reference = references.bernoulli([release], size=40, prior=(2, 5))
    assert_law(result.posterior["p"].values, reference)
    assert float(result.sample_stats["interweave_refresh_accept"].mean()) > 0.2


def test_where_leaps_do_no_databases_are_offered():
    assert not adaptation.begins(250, 1000, 0.5)
    assert adaptation.begins(250, 1000, 0.05)
    assert not adaptation.begins(20, 80, 0.05)
    assert not adaptation.begins(251, 1000, 0.05)
    assert adaptation.settle(adaptation.Refreshing(MIXTURE)).mixture is None
    numbers = [adaptation.number_of_offers(adaptation.Refreshing(accept=a)) for a in (0, 0.25, 1)]
    assert numbers == [adaptation.MOST, 16, adaptation.FEWEST]
    assert adaptation.settle(adaptation.Refreshing(MIXTURE, accept=0.3)).mixture is MIXTURE
