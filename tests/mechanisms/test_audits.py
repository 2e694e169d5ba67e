"""Every simulator honours its promise on worst-case neighbours, and a broken one is caught.

Laplace and Gaussian noise, and the curator's releases, are audited in tests/sanitize/test_audit.py.
"""

import dataclasses

import numpy as np
import pytest

import pymc_privacy as pmp
from pymc_privacy.sanitize import audit, repeated
from tests.stochastic import seed_of

SHORT = 0.8  # a sensitivity that is 20% short
EPSILON = 1.0


def generator(request):
    return np.random.default_rng(seed_of(request))


def longer(mechanism):
    """Return the mechanism as it would be with a sensitivity that is 20% short."""
    return dataclasses.replace(mechanism, sensitivity=SHORT * mechanism.sensitivity)


# The statistics of two neighbours that differ as much as the sensitivity allows.
TIGHT = {
    "tulap": (pmp.Tulap(epsilon=EPSILON, sensitivity=2.0), 5.0, 7.0),
    "cut tulap": (pmp.Tulap(epsilon=EPSILON, delta=0.01, sensitivity=2.0), 5.0, 7.0),
    "truncated Laplace": (
        pmp.TruncatedLaplace(epsilon=EPSILON, delta=0.01, sensitivity=2.0),
        5.0,
        7.0,
    ),
    "rounded Laplace": (
        pmp.Rounded(mechanism=pmp.Laplace(epsilon=EPSILON, sensitivity=10.0)),
        20.0,
        30.0,
    ),
    # The utility of a rare candidate rises by 1, that of a frequent one falls by 1.
    "exponential": (
        pmp.ExponentialMechanism(epsilon=EPSILON, sensitivity=1.0),
        np.array([0.0, 6.0]),
        np.array([1.0, 5.0]),
    ),
}


def with_sensitivity(mechanism):
    if isinstance(mechanism, pmp.Rounded):
        return dataclasses.replace(mechanism, mechanism=_recalibrated(mechanism.mechanism))
    if isinstance(mechanism, pmp.ExponentialMechanism):
        return _recalibrated(mechanism)
    return longer(mechanism)


def _recalibrated(mechanism):
    return type(mechanism)(epsilon=EPSILON, sensitivity=SHORT * mechanism.sensitivity)


@pytest.mark.parametrize("name", TIGHT)
def test_a_simulator_keeps_its_promise(name, request):
    mechanism, *pair = TIGHT[name]
    delta = getattr(mechanism.guarantee, "delta", 0.0)
    delta = delta if isinstance(delta, float) else 0.0
    found = audit(generator(request), repeated(mechanism), *pair, draws=800_000, delta=delta)
    assert mechanism.guarantee.epsilon == EPSILON
    assert 0.6 * EPSILON < found.epsilon <= EPSILON


@pytest.mark.parametrize("name", TIGHT)
def test_a_sensitivity_twenty_percent_short_is_caught(name, request):
    mechanism, *pair = TIGHT[name]
    delta = getattr(mechanism, "delta", 0.0)
    broken = with_sensitivity(mechanism)
    found = audit(generator(request), repeated(broken), *pair, draws=800_000, delta=delta)
    assert found.epsilon > EPSILON


@pytest.mark.parametrize("categories", [2, 6])
def test_randomized_response_keeps_its_promise(categories, request):
    def answers(epsilon):
        mechanism = pmp.RandomizedResponse(epsilon=epsilon, categories=categories)
        return repeated(mechanism)

    found = audit(generator(request), answers(EPSILON), 0, 1)
    assert 0.9 < found.epsilon <= EPSILON
    broken = audit(generator(request), answers(EPSILON / SHORT), 0, 1)
    assert broken.epsilon > EPSILON


MEAN = pmp.KNormGradient.mean(epsilon=EPSILON, bounds=(0.0, 1.0))
MEDIAN = pmp.KNormGradient.quantile(0.5, epsilon=EPSILON, edges=np.linspace(0, 1, 17))


@pytest.mark.parametrize("mechanism", [MEAN, MEDIAN], ids=["mean", "median"])
def test_a_gradient_mechanism_keeps_its_promise(mechanism, request):
    """It leaks about half of epsilon here, since numerator and normaliser cannot both be worst."""
    records = [np.array([0.0, 0.2, 0.5, 0.5, 0.8, x]) for x in (0.0, 1.0)]
    pair = [mechanism.contributions(x).sum(axis=0) for x in records]
    found = audit(generator(request), repeated(mechanism), *pair)
    assert 0.25 * EPSILON < found.epsilon <= EPSILON
    broken = dataclasses.replace(mechanism, sensitivity=0.3 * mechanism.sensitivity)
    assert audit(generator(request), repeated(broken), *pair).epsilon > EPSILON


def test_the_functional_mechanism_keeps_its_promise(request):
    mechanism = pmp.FunctionalMechanism(epsilon=EPSILON, covariates=1)
    pair = [
        mechanism.contributions(np.array([[x]]), np.array([1.0])).sum(axis=0) for x in (-1.0, 1.0)
    ]
    found = audit(generator(request), repeated(mechanism), *pair)
    assert 0.4 * EPSILON < found.epsilon <= EPSILON


def test_objective_perturbation_keeps_its_promise(request):
    """The whole simulator, optimiser included; it leaks less than what is proven."""
    records = [np.array([[0.5, 1.0], [1.0, y]]) for y in (1.0, 0.0)]
    mechanism = pmp.ObjectivePerturbation(epsilon=EPSILON, bound=1.0)
    found = audit(generator(request), repeated(mechanism), *records, draws=60_000)
    assert 0.1 * EPSILON < found.epsilon <= EPSILON
    broken = pmp.ObjectivePerturbation(scale=mechanism.scale / 5, ridge=mechanism.ridge)
    found = audit(generator(request), repeated(broken), *records, draws=60_000)
    assert found.epsilon > EPSILON


def test_a_number_from_an_interval_keeps_its_promise(request):
    """The utility of the rare half rises by 1, that of the other falls by 1."""
    pair = np.array([0.0, 6.0]), np.array([1.0, 5.0])

    def leaked(sensitivity):
        law = pmp.ExponentialInterval(
            edges=[0.0, 1.0, 2.0], epsilon=EPSILON, sensitivity=sensitivity
        )
        return audit(generator(request), repeated(law), *pair, draws=400_000).epsilon

    assert 0.6 * EPSILON < leaked(1.0) <= EPSILON < leaked(SHORT)


# Neighbours: what they share, and a record of each.
LEAST_SQUARES = [[1, 1, 0.5], [1, -1, 0.5], [1, 0.5, -0.5], [1, -0.5, -0.5], [1, 0, 0]]
FITS = [(None, LEAST_SQUARES, [1, 1, 1], [1, -1, -1]), (0.5, [[1, 1, 0.5]], [1, 1, 1], [1, 1, -1])]


@pytest.mark.parametrize(("probability", "common", "one", "other"), FITS)
def test_a_gradient_regression_keeps_its_promise(probability, common, one, other, request):
    """It leaks a part of epsilon, and more than epsilon where there is four times as much."""

    def leaked(epsilon):
        law = pmp.KNormGradientRegression(
            epsilon=epsilon, box=[(-1, 1), (-1, 1)], cells=6, probability=probability
        )
        records = [np.array([*common, last], dtype=float) for last in (one, other)]
        pair = [law.contributions(r[:, :2], r[:, 2]).sum(axis=0) for r in records]
        return audit(generator(request), repeated(law), *pair, draws=100_000).epsilon

    assert 0.1 * EPSILON < leaked(EPSILON) <= EPSILON < leaked(4 * EPSILON)


@pytest.mark.parametrize("loss", ["logistic", "linear", "poisson"])
def test_objective_perturbation_with_gaussian_noise_keeps_its_promise(loss, request):
    """The whole simulator, optimiser and box included; it leaks less than what is proven."""
    law = pmp.ObjectivePerturbation(
        epsilon=EPSILON, delta=1e-3, bound=1.0, loss=loss, response=1.0, box=[(-1, 1)], share=0.9
    )
    records = [np.array([[0.5, 1.0], [1.0, y]]) for y in (1.0, 0.0)]
    given = {"draws": 60_000, "delta": 1e-3}
    assert audit(generator(request), repeated(law), *records, **given).epsilon <= EPSILON
    broken = pmp.ObjectivePerturbation(
        scale=law.scale / 20, ridge=law.ridge, loss=loss, noise="gaussian", box=law.box
    )
    assert audit(generator(request), repeated(broken), *records, **given).epsilon > EPSILON
