"""Posteriors given a number or a fit that was chosen privately are those of an enumeration."""

import itertools

import numpy as np
import pytensor.tensor as pt
import pytest
from scipy import special, stats

import pymc_privacy as pmp
from tests import references
from tests.step_methods.test_exact_mechanisms import (
    CELLS,
    binary,
    by_total,
    draw,  # noqa: F401 (a fixture)
    log_cells,
    regression,
)
from tests.stochastic import assert_law

SIDES, ANSWERS = CELLS.T


# ---------------------------------------------------------------- a number from an interval

EDGES = np.array([0.0, 0.3, 0.6, 1.0])


def density_on_interval(s, ones, *, size, scale, normalised=True):
    """Write -sum (x - s)², straight between the edges, and its integral anew."""
    u = -(ones * (1 - EDGES) ** 2 + (size - ones) * EDGES**2) / scale
    grid = np.linspace(0, 1, 20_001)
    middle = (grid[1:] + grid[:-1]) / 2
    log_mass = special.logsumexp(np.interp(middle, EDGES, u)) - np.log(20_000)
    return np.interp(s, EDGES, u) - (log_mass if normalised else 0.0)


@pytest.mark.slow
def test_a_number_chosen_from_an_interval(draw):  # noqa: F811
    law = pmp.ExponentialInterval(edges=EDGES, scale=0.7, between="linear")
    model = binary(
        law,
        0.8,
        size=10,
        contributions=lambda x: law.contributions(x, lambda x, s: -((x - s) ** 2)),
    )
    assert model["s"].type.shape == ()
    draws = draw(model, draws=2500)
    given = {"size": 10, "scale": 0.7}
    assert_law(draws["p"], by_total(lambda k: density_on_interval(0.8, k, **given), size=10))
    broken = by_total(lambda k: density_on_interval(0.8, k, normalised=False, **given), size=10)
    with pytest.raises(AssertionError, match="z ="):
        assert_law(draws["p"], broken)


# ---------------------------------------------------------------- coefficients by their gradient

BOX = [(-1.0, 1.0), (-0.5, 1.0)]
CENTRES = np.array(list(itertools.product((-0.5, 0.5), (-0.25, 0.25, 0.75))))


def log_cell(law, counts, cell, *, normalised=True):
    x = np.column_stack([np.ones(4), SIDES])
    line = x @ CENTRES.T
    tau = law.probability
    step = line - ANSWERS[:, None] if tau is None else (ANSWERS[:, None] <= line) - tau
    gradient = np.einsum("c,cm,cp->mp", counts, step, x)
    score = -law.epsilon / 2 / law.sensitivity * np.abs(gradient).max(axis=1)
    return score[cell] - (special.logsumexp(score) if normalised else 0.0)


@pytest.mark.slow
@pytest.mark.parametrize("tau", [None, 0.4], ids=["least squares", "quantile"])
def test_coefficients_of_a_small_gradient(draw, tau):  # noqa: F811
    law = pmp.KNormGradientRegression(epsilon=9.0, box=BOX, cells=(2, 3), probability=tau)
    released = np.array([0.3, 0.9])
    model = regression(
        law,
        lambda x, y: law.contributions(pt.concatenate([pt.ones((6, 1)), x], axis=1), y),
        released,
        size=6,
    )
    assert model["s"].type.shape == (2,)
    draws = draw(model, draws=2500)
    given = {"size": 6, "prior": (0.0, 1.5)}
    exact = references.enumerated_on_grid(lambda c: log_cell(law, c, 5), log_cells, **given)
    assert_law(draws["theta"], exact)
    # Another cell's probability is another likelihood.
    other = references.enumerated_on_grid(lambda c: log_cell(law, c, 0), log_cells, **given)
    with pytest.raises(AssertionError, match="z ="):
        assert_law(draws["theta"], other)


# ---------------------------------------------------------------- minima of perturbed losses

SLOPES = {
    "logistic": (lambda t: special.expit(t), lambda t: special.expit(t) * special.expit(-t)),
    "linear": (lambda t: t, np.ones_like),
    "poisson": (np.exp, np.exp),
}


def log_fit(law, s, counts, *, atom):
    mean, curvature = SLOPES[law.loss]
    slope = counts @ ((mean(s * SIDES) - ANSWERS) * SIDES) + law.ridge * s
    if atom:
        return stats.norm.logcdf(-slope, scale=law.scale)
    hessian = counts @ (curvature(s * SIDES) * SIDES**2) + law.ridge
    return stats.norm.logpdf(slope, scale=law.scale) + np.log(hessian)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("loss", "s"),
    [
        ("linear", 0.4),
        ("logistic", 1.5),
        pytest.param("logistic", 1.1, marks=pytest.mark.exhaustive),
        pytest.param("poisson", 0.4, marks=pytest.mark.exhaustive),
    ],
)
def test_coefficients_of_a_perturbed_loss(draw, loss, s):  # noqa: F811
    """At the end of its box, a coefficient stands for much noise."""
    law = pmp.ObjectivePerturbation(
        scale=1.5, ridge=0.4, noise="gaussian", loss=loss, box=[(-1.5, 1.5)]
    )
    released = np.array([s])
    model = regression(law, lambda x, y: law.contributions(released, x, y), released, size=6)
    draws = draw(model, draws=2500)
    given = {"size": 6, "prior": (0.0, 1.5)}
    exact = references.enumerated_on_grid(
        lambda c: log_fit(law, s, c, atom=s == 1.5), log_cells, **given
    )
    assert_law(draws["theta"], exact)
    if s == 1.5:
        broken = references.enumerated_on_grid(
            lambda c: log_fit(law, s, c, atom=False), log_cells, **given
        )
        with pytest.raises(AssertionError, match="z ="):
            assert_law(draws["theta"], broken)
