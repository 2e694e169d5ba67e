"""Acceptances never fall below what releases promise, reach it, and do where it is false.

Proposition 3.1 of Ju et al. (2022) and Proposition 5.1 of Awan et al. (2024).
"""

import math

import numpy as np
import pymc as pm
import pytest

import pymc_privacy as pmp
from pymc_privacy.algorithms import birth_death
from pymc_privacy.algorithms.noise import noise
from pymc_privacy.errors import PlotError
from tests.stochastic import seed_of

EPSILON_S, EPSILON_N = 0.7, 0.3
ROUNDING = 1e-9


def laplace(epsilon, neighbours="add_remove", sensitivity=1.0):
    return pmp.Laplace(epsilon=epsilon, sensitivity=sensitivity, neighbours=neighbours)


def coins(*, most=40, value=1.0, released=(-5.0, 30.0), neighbours="add_remove"):
    """Coins of unknown number; heads are worth `value`, which the mechanism takes to be 1."""
    with pm.Model() as model:
        p = pm.Beta("p", 1, 1)
        n = pm.DiscreteUniform("n", 1, most)
        x = pmp.Records("x", pm.Bernoulli.dist(p), size=n)
        pmp.Privatized("s", value * x, laplace(EPSILON_S, neighbours), observed=released[0])
        pmp.Privatized("n_dp", n, laplace(EPSILON_N, neighbours), observed=released[1])
    return model


def single_run(model, request, **arguments):
    with model:
        return pmp.sample(
            tune=50,
            chains=1,
            random_seed=seed_of(request),
            birth_death={"single": True, "noncentred_steps": 0},
            compute_convergence_checks=False,
            quiet=True,
            **arguments,
        )


def test_single_moves_report_the_acceptance_that_the_formula_gives(request):
    # Every record counts 1, the release is far below and the noisy size far below as well: a birth
    # is as unlikely as it can be, and a death is always accepted.
    rng = np.random.default_rng(seed_of(request))
    law = pmp.Laplace(scale=1 / EPSILON_S)
    given = noise([type(law).formula], [-50.0], [law.parameters])
    sizes = np.arange(30)
    log_size = np.where(sizes >= 1, -EPSILON_N * abs(sizes + 50.0), -np.inf)
    bound = math.exp(-(EPSILON_S + EPSILON_N))
    seen = {1: [], 5: []}
    for size, met in seen.items():
        for _ in range(40):
            rows = np.ones((1, size + 1))
            _, _, info = birth_death.single(
                rng, rows, size, noise=given, log_size=log_size, first=0, capacity=29
            )
            met.append((info.accept_min, info.least_accept_min))
    below, least = np.array(seen[1]).T
    assert np.isnan(below).all()
    assert least == pytest.approx(bound / 2, rel=1e-12)
    middle, none = np.array(seen[5]).T
    assert np.isnan(none).all()
    assert sorted(set(middle.round(12))) == pytest.approx([bound, 1.0], rel=1e-11)


@pytest.fixture(scope="module")
def run(request):
    return single_run(coins(), request, draws=1500)


def test_births_deaths_and_records_are_accepted_as_often_as_promised(run):
    bounds = pmp.acceptance_bounds(coins())
    assert bounds.record == pytest.approx(math.exp(-2 * EPSILON_S))
    assert bounds.birth_death == pytest.approx(math.exp(-EPSILON_S - EPSILON_N))
    assert bounds.least == bounds.birth_death / 2
    assert bounds.why == ()
    smallest = run.sample_stats.min()
    assert float(smallest["record_sweep_accept_min"]) >= bounds.record * (1 - ROUNDING)
    met = float(smallest["birth_death_accept_min"])
    assert bounds.birth_death * (1 - ROUNDING) <= met < 1


def test_a_birth_at_the_least_size_is_accepted_half_as_often(request):
    model = coins(most=3, released=(-5.0, -5.0))
    sampled = single_run(model, request, draws=400)
    bounds = pmp.acceptance_bounds(model)
    least = float(sampled.sample_stats["birth_death_least_accept_min"].min())
    others = float(sampled.sample_stats["birth_death_accept_min"].min())
    assert least == pytest.approx(bounds.least, rel=1e-9)
    assert others == pytest.approx(bounds.birth_death, rel=1e-9)


@pytest.mark.slow
def test_a_false_sensitivity_is_seen_in_the_acceptance(request):
    model = coins(most=3, value=3.0, released=(-5.0, -5.0))
    sampled = single_run(model, request, draws=400)
    bounds = pmp.acceptance_bounds(model)
    assert float(sampled.sample_stats["birth_death_accept_min"].min()) < bounds.birth_death * 0.5
    assert float(sampled.sample_stats["record_sweep_accept_min"].min()) < bounds.record * 0.99


def known(mechanism, *, local=False, potential=False):
    with pm.Model() as model:
        p = pm.Beta("p", 1, 1)
        x = pm.Bernoulli("x", p, shape=6)
        pmp.Privatized("s", x, mechanism, local=local, observed=np.zeros(6) if local else 2.0)
        if potential:
            pm.Potential("more", -x.sum())
    return model


def test_bounds_follow_the_neighbours_and_the_measure():
    def bound(*arguments, **more):
        return pmp.acceptance_bounds(known(*arguments, **more))

    assert bound(laplace(1.0, "replace_one")).record == pytest.approx(math.exp(-1))
    assert bound(laplace(1.0, "add_remove")).record == pytest.approx(math.exp(-2))
    unstated = bound(laplace(1.0, None))
    assert unstated.record == pytest.approx(math.exp(-1))
    assert "taken to be replace_one" in unstated.why[0]
    assert bound(pmp.RandomizedResponse(epsilon=0.5), local=True).record == pytest.approx(
        math.exp(-0.5)
    )
    gaussian = bound(pmp.Gaussian(rho=0.5, sensitivity=1.0))
    assert gaussian.record is None
    assert "not known to be pure DP" in gaussian.why[0]
    assert bound(pmp.Laplace(scale=1.0)).record is None
    seen = bound(laplace(1.0), potential=True)
    assert (seen.record, seen.why) == (None, ("records are seen by more as well",))
    refused = pmp.acceptance_bounds(coins(neighbours="replace_one"))
    assert refused.birth_death is None
    assert refused.record == pytest.approx(math.exp(-EPSILON_S))


def test_without_a_flat_prior_or_a_release_there_is_no_bound():
    with pm.Model() as model:
        n = pm.Poisson("n", 20.0)
        x = pmp.Records("x", pm.Bernoulli.dist(0.5), size=n, capacity=60)
        pmp.Privatized("n_dp", n, laplace(1.0), observed=20.0)
        assert pmp.acceptance_bounds().why == ("no release sees a record",)
        pmp.Privatized("s", x, laplace(1.0), observed=20.0)
    bounds = pmp.acceptance_bounds(model)
    assert bounds.birth_death is None
    assert bounds.record == pytest.approx(math.exp(-2))
    assert "prior of the size is not flat" in bounds.why[0]


def test_the_plot_reads_the_bounds_from_the_posterior_or_the_model(run):
    axis = pmp.plot_acceptance(run)
    labels = [text.get_text() for text in axis.get_legend().get_texts()]
    assert labels[:3] == [
        "the bound that is promised",
        "average of all records",
        "smallest ever met",
    ]
    assert "births and deaths, smallest ever met" in labels
    points = dict(zip(labels, axis.lines, strict=True))
    assert points["smallest ever met"].get_xdata() == pytest.approx([2 * EPSILON_S])
    assert points[labels[3]].get_xdata() == pytest.approx([EPSILON_S + EPSILON_N])
    grid, bound = axis.lines[0].get_data()
    assert bound == pytest.approx(np.exp(-grid))
    both = pmp.plot_acceptance([run, run], model=coins())
    assert len(both.lines[1].get_xdata()) == 2
    with pytest.raises(PlotError, match="not known to be pure DP"):
        pmp.plot_acceptance(run, model=known(pmp.Gaussian(rho=0.5, sensitivity=1.0)))
    with pytest.raises(PlotError, match="a posterior, a list of them, or a mapping"):
        pmp.plot_acceptance(0.5)
    del run["privacy"].attrs["acceptance_bounds"]
    with pytest.raises(PlotError, match="must know the bounds"):
        pmp.plot_acceptance(run)
