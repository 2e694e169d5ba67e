"""The K-norm gradient mechanism in several dimensions: its grid, its sensitivity, its law."""

import itertools
import math

import numpy as np
import pytest
from scipy import special, stats

import pymc_privacy as pmp
from pymc_privacy.errors import MechanismError
from tests.stochastic import FALSE_ALARM, assert_mean, seed_of

BOX = [(-1.0, 1.5), (0.0, 0.5)]
ORDERS = {"maximum": np.inf, "euclidean": 2, "sum": 1}
RNG = np.random.default_rng(11)
X = np.column_stack([np.ones(30), RNG.uniform(-1, 1, 30)])
Y = np.clip(0.4 + 0.3 * X[:, 1] + RNG.normal(0, 0.3, 30), -1, 1)
LAWS = {
    f"{norm} {tau}": pmp.KNormGradientRegression(
        epsilon=1.4, box=BOX, cells=(6, 4), norm=norm, probability=tau
    )
    for norm, tau in [("maximum", None), ("euclidean", None), ("sum", 0.3), ("maximum", 0.3)]
}
CENTRES = np.array(
    list(itertools.product(-1 + 2.5 * (np.arange(6) + 0.5) / 6, 0.5 * (np.arange(4) + 0.5) / 4))
)


def gradients(tau, x, y, s=CENTRES):
    """Write each record's gradient anew, shape (n, places, p)."""
    line = x @ s.T
    step = line - y[:, None] if tau is None else (y[:, None] <= line) - tau
    return step[:, :, None] * x[:, None, :]


def log_cells(law, x=X, y=Y):
    """Write the log probabilities of all cells anew."""
    total = gradients(law.probability, x, y).sum(axis=0)
    size = np.linalg.norm(total, ORDERS[law.norm], axis=1)
    return special.log_softmax(-law.epsilon / (2 * law.sensitivity) * size)


@pytest.mark.parametrize("name", LAWS)
def test_cells_have_the_probabilities_of_their_gradients(name):
    law = LAWS[name]
    statistic = law.contributions(X, Y).sum(axis=0)
    volume = 2.5 / 6 * 0.5 / 4
    inside = CENTRES + np.array([0.2, -0.06])  # not quite half a cell away
    found = law.log_density(inside, statistic)
    np.testing.assert_allclose(found, log_cells(law) - math.log(volume), rtol=1e-10)
    assert np.exp(found).sum() * volume == pytest.approx(1, abs=1e-12)
    outside = law.log_density([[-1.1, 0.2], [0.0, 0.51], [1.5, 0.5]], statistic)
    assert np.isneginf(outside).tolist() == [True, True, False]


@pytest.mark.parametrize("name", LAWS)
def test_coefficients_are_drawn_from_their_density(name, request):
    law = LAWS[name]
    statistic = law.contributions(X, Y).sum(axis=0)
    rng = np.random.default_rng(seed_of(request))
    drawn = law.simulate(rng, np.broadcast_to(statistic, (30_000, statistic.size)))
    cell = np.floor((drawn[:, 0] + 1) / 2.5 * 6) * 4 + np.floor(drawn[:, 1] / 0.5 * 4)
    p = np.exp(log_cells(law))
    for k in np.argsort(p)[-6:]:
        assert_mean(cell == k, float(p[k]), what=f"P(cell {k})")
    within = (drawn[:, 0] + 1) / 2.5 * 6 % 1
    assert stats.kstest(within, stats.uniform.cdf).pvalue > FALSE_ALARM


def furthest(law, rng, tries=60_000):
    """Search for the largest norm of the difference of two records' gradients, or of one."""
    lower, upper = np.array(law.box).T
    s = np.where(
        rng.random((tries, 2)) < 0.7, rng.choice([0.0, 1.0], (tries, 2)), rng.random((tries, 2))
    )
    s = lower + s * (upper - lower)

    def one():
        corner = rng.random((tries, 1)) < 0.5
        x = np.where(corner, rng.choice([-1.0, 1.0], (tries, 2)), rng.uniform(-1, 1, (tries, 2)))
        y = rng.choice([-1.0, 1.0], tries)
        line = (x * s).sum(axis=1)
        step = line - y if law.probability is None else (y <= line) - law.probability
        return step[:, None] * x

    difference = one() - (one() if law.neighbours == "replace_one" else 0)
    return np.linalg.norm(difference, ORDERS[law.norm], axis=1).max()


@pytest.mark.parametrize("relation", ["replace_one", "add_remove"])
@pytest.mark.parametrize("norm", ORDERS)
@pytest.mark.parametrize("tau", [None, 0.3])
def test_no_neighbours_are_further_apart_than_the_sensitivity(norm, tau, relation):
    for box in (BOX, [(-0.1, 0.1), (-3.0, 2.0)]):
        law = pmp.KNormGradientRegression(
            epsilon=1.0, box=box, cells=2, norm=norm, probability=tau, neighbours=relation
        )
        found = furthest(law, np.random.default_rng(5))
        assert found <= law.sensitivity * (1 + 1e-12)
        # Attained but for least squares in the norms whose bound is the triangle inequality.
        loose = tau is None and norm != "maximum" and relation == "replace_one"
        assert found > (0.5 if loose else 0.95) * law.sensitivity


def test_the_law_on_the_continuum_is_within_its_bound():
    law = pmp.KNormGradientRegression(epsilon=1.0, box=BOX, cells=(40, 24))
    statistic = law.contributions(X, Y).sum(axis=0)
    fine = [np.linspace(low, high, 801)[:-1] + (high - low) / 1600 for low, high in BOX]
    s = np.array(list(itertools.product(*fine)))
    total = (X.T @ X @ s.T).T - X.T @ Y
    log_weight = -1.0 / (2 * law.sensitivity) * np.abs(total).max(axis=1)
    log_mass = special.logsumexp(log_weight) + math.log(2.5 * 0.5 / s.shape[0])
    error = np.abs(law.log_density(s, statistic) - (log_weight - log_mass)).max()
    bound = law.log_density_error(statistic)
    assert bound / 10 < error <= bound
    median = pmp.KNormGradientRegression(epsilon=1.0, box=BOX, cells=2, probability=0.5)
    with pytest.raises(MechanismError, match=r"least squares.*got probability=0.5"):
        median.log_density_error(np.zeros(8))


@pytest.mark.parametrize("name", LAWS)
def test_the_privacy_loss_of_a_regression_is_below_epsilon(name):
    law = LAWS[name]
    worst = 0.0
    for old, new in itertools.product(itertools.product([-1.0, 1.0], repeat=2), repeat=2):
        pair = []
        for slope, y in (old, new):
            x = np.vstack([X[:3], [[-1.0, slope]]])
            pair.append(log_cells(law, x, np.append(Y[:3], y)))
        worst = max(worst, np.abs(pair[0] - pair[1]).max())
    assert 0.1 * law.epsilon < worst <= law.epsilon
    assert law.guarantee == pmp.PureDP(1.4, neighbours="replace_one")
    assert law.concentrated_guarantee.rho == pytest.approx(1.4**2 / 8)


def test_one_coefficient_of_a_quantile_is_the_mechanism_in_one_dimension():
    """Without slopes, on a grid of records, both count records on either side."""
    edges = np.linspace(-1, 1, 9)
    line = pmp.KNormGradient.quantile(0.25, epsilon=1.0, edges=edges)
    # The gradient of an intercept alone moves by 1, and here by 2 max(tau, 1 - tau) = 1.5.
    law = pmp.KNormGradientRegression(epsilon=1.5, box=[(-1, 1)], cells=8, probability=0.25)
    records = edges[[0, 2, 2, 5, 7]]
    s = (edges[1:] + edges[:-1]) / 2
    found = law.log_density(s[:, None], law.contributions(np.ones((5, 1)), records).sum(axis=0))
    exact = line.log_density(s, line.contributions(records).sum(axis=0))
    np.testing.assert_allclose(found, exact, rtol=1e-10)


BAD = [
    ({"epsilon": 0.0, "box": BOX}, "epsilon must be a finite number > 0"),
    ({"epsilon": 1.0, "box": (-1, 1)}, "box must be pairs"),
    ({"epsilon": 1.0, "box": [(1, 1)]}, "box must be pairs"),
    ({"epsilon": 1.0, "box": []}, "box must be pairs"),
    ({"epsilon": 1.0, "box": BOX, "cells": 0}, "cells must be"),
    ({"epsilon": 1.0, "box": BOX, "cells": (3, 3, 3)}, "cells must be"),
    ({"epsilon": 1.0, "box": BOX, "cells": 2000}, "cells must be at most"),
    ({"epsilon": 1.0, "box": BOX, "probability": 1.0}, r"probability must be a number in \(0, 1\)"),
    ({"epsilon": 1.0, "box": BOX, "norm": "p"}, "norm must be"),
    ({"epsilon": 1.0, "box": BOX, "neighbours": None}, "neighbours must be"),
]


@pytest.mark.parametrize(("given", "must_hold"), BAD)
def test_what_is_no_regression_is_refused(given, must_hold):
    with pytest.raises(MechanismError, match=rf"(?s){must_hold}.*got"):
        pmp.KNormGradientRegression(**given)


def test_records_of_another_shape_are_refused():
    law = LAWS["maximum None"]
    with pytest.raises(MechanismError, match=r"x must have shape \(n, 2\)"):
        law.contributions(np.ones((5, 3)), np.zeros(5))
    with pytest.raises(MechanismError, match=r"shape \(n, 5\).*got.*\(4,\)"):
        law.log_density([0.0, 0.0], np.zeros(4))
    with pytest.raises(MechanismError, match="release must be 2 coefficients"):
        law.log_density(0.5, np.zeros(5))
