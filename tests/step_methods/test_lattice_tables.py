"""Tables with dims inside `pm.sample`: crossing totals, an exact one, bounds and a zero."""

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
from scipy import special, stats

import pymc_privacy as pmp
from pymc_privacy.errors import RecordError
from tests import references
from tests.step_methods.test_lattice_walk import walked
from tests.stochastic import assert_mean, seed_of

WEIGHTS = np.array([[1.0, 2.0], [1.5, 1.0]])
COORDS = {"tract": ["t1", "t2"], "race": ["a", "b"]}
CELLS, ROWS, COLUMNS = np.array([[3, 1], [4, 5]]), [5, 11], [9, 4]


def table_of(*, exact=True):
    with pm.Model(coords=COORDS) as model:
        level = pm.Normal("level", 1.0, 1.0)
        people = pm.Poisson("people", pt.exp(level) * WEIGHTS, dims=("tract", "race"))
        pmp.LinearMeasurements(
            "cells",
            people,
            pmp.Sum(over=()),
            pmp.DiscreteGaussian(scale=4.0),
            observed=CELLS,
            invariants=(pmp.Sum(over=("tract", "race")), 14) if exact else None,
            at_most=(pmp.Sum(over=()), [[np.inf, 0], [np.inf, np.inf]]),
        )
        pmp.LinearMeasurements(
            "rows",
            people,
            pmp.Sum(over="race"),
            pmp.DiscreteGaussian(scale=(1.0, 2.0)),
            observed=ROWS,
            at_least=(pmp.Sum(over="race"), [4, -np.inf]),
        )
        pmp.LinearMeasurements(
            "columns", people, pmp.Sum(over="tract"), pmp.Laplace(scale=2.0), observed=COLUMNS
        )
    return model


def law(exact, scale=4.0):
    """E level and E of each count: all tables added up, on a grid of levels."""
    tables = np.array(list(np.ndindex(30, 1, 30, 30))).reshape(-1, 2, 2)
    tables = tables[tables[:, 0].sum(axis=1) >= 4]
    if exact:
        tables = tables[tables.sum(axis=(1, 2)) == 14]
    noise = references.discrete_gaussian(CELLS - tables, scale).sum(axis=(1, 2))
    rows = np.array(ROWS) - tables.sum(axis=2)
    for k, own in enumerate((1.0, 2.0)):
        noise += references.discrete_gaussian(rows[:, k], own)
    noise -= abs(np.array(COLUMNS) - tables.sum(axis=1)).sum(axis=1) / 2.0
    noise += (tables * np.log(WEIGHTS) - special.gammaln(tables + 1.0)).sum(axis=(1, 2))
    level = np.linspace(-2.5, 4.5, 141)[:, None]
    log_weight = noise + tables.sum(axis=(1, 2)) * level - WEIGHTS.sum() * np.exp(level)
    weight = np.exp(log_weight + stats.norm.logpdf(level, 1.0, 1.0) - log_weight.max())
    weight /= weight.sum()
    counts = np.tensordot(weight.sum(axis=0), tables, axes=1)
    return float(weight.sum(axis=1) @ level[:, 0]), counts


@pytest.mark.parametrize("exact", [True, False], ids=["an exact total", "none"])
def test_a_table_follows_its_posterior(exact, request):
    drawn = walked(table_of(exact=exact), seed_of(request))
    people = drawn["people"]
    assert not people[..., 0, 1].any()
    assert np.all(people[..., 0, :].sum(axis=-1) >= 4)
    assert not exact or np.all(people.sum(axis=(2, 3)) == 14)
    level, counts = law(exact)
    assert_mean(drawn["level"], level, what="E level")
    for i, j in ((0, 0), (1, 0), (1, 1)):
        assert_mean(people[..., i, j], float(counts[i, j]), what=f"E c{i}{j}")
    # The mutant: noise that is believed more.
    with pytest.raises(AssertionError, match="z ="):
        assert_mean(people[..., 1, 0], float(law(exact, 1.5)[1][1, 0]), what="E c10")


@pytest.mark.parametrize(
    "tie",
    [
        lambda c: -0.1 * (c - c[:, ::-1]) ** 2,
        lambda c: -0.1 * c.sum(axis=1),
        lambda c: -0.1 * c * c[::-1],
        lambda c: pt.switch(pt.gt(c[0, 0], 40), -2.0, 0.0) * c[..., None] * np.ones(2),
    ],
    ids=["within a row", "the sum of a row", "within a column", "where another is large"],
)
def test_factors_that_tie_cells_of_a_table_are_refused(tie):
    model = table_of()
    with model:
        pm.Potential("tie", tie(model["people"]))
        with pytest.raises(RecordError, match=r"one term for each.*'tie'.*which mixes them"):
            pmp.LatticeWalk()


def test_counts_of_another_law_have_tables_too(request):
    """Negative binomial counts, which are not carried, with a zero and a bound."""
    with pm.Model(coords=COORDS) as model:
        people = pm.NegativeBinomial("people", mu=4.0, alpha=2.0, dims=("tract", "race"))
        pmp.LinearMeasurements(
            "cells",
            people,
            pmp.Sum(over=()),
            pmp.DiscreteGaussian(scale=3.0),
            observed=CELLS,
            at_most=(pmp.Sum(over=()), [[np.inf, 0], [3, np.inf]]),
        )
    drawn = walked(model, seed_of(request))["people"]
    values = np.arange(200)
    for (i, j), most in {(0, 0): 200, (0, 1): 0, (1, 0): 3, (1, 1): 200}.items():
        weight = stats.nbinom.pmf(values, 2.0, 2.0 / 6.0) * (values <= most)
        weight *= np.exp(references.discrete_gaussian(CELLS[i, j] - values, 3.0))
        if most:
            expected = float(weight @ values / weight.sum())
            assert_mean(drawn[..., i, j], expected, what=f"E c{i}{j}")
