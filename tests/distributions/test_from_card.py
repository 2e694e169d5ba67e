"""`Privatized.from_card` does to contributions what the curator did, forgotten or not."""

from dataclasses import replace

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest

import pymc_privacy as pmp
from pymc_privacy.errors import ReleaseError
from pymc_privacy.model.releases import contributions_of
from tests import references
from tests.references import Release
from tests.short_runs import SHORT
from tests.stochastic import assert_law, seed_of, z_of_mean

SIZE, SIGMA, PRIOR = 60, 3.0, (0.0, 2.0)
REPLACE = {"neighbours": "replace_one", "epsilon": 1.0}


def published(contributions, value=None, **options):
    """Return a release of the curator's, with a value that is known beforehand."""
    card = pmp.release(contributions, **(REPLACE | options))
    if value is None:
        return card
    units = np.rint(np.atleast_1d(value) / card.lattice.granularity)
    return replace(card, integers=tuple(int(unit) for unit in units))


def posterior_of_mu(card, *, contributions, seed):
    with pm.Model() as model:
        mu = pm.Normal("mu", *PRIOR)
        x = pm.Normal("x", mu, SIGMA, shape=SIZE)
        pmp.Privatized.from_card("s", contributions(x), card)
    result = pmp.sample(model=model, **(SHORT | {"draws": 1500, "tune": 400, "random_seed": seed}))
    return result.posterior["mu"].values


@pytest.mark.slow
def test_a_forgotten_clip_changes_nothing(request):
    """Of records with mean 1 and sd 3, clipped to [-1, 1], the total is about 0.25 of each."""
    expected_total = 14.9
    card = published(np.zeros(SIZE), expected_total, bounds=(-1, 1))
    exact = references.clamped_normal(
        [Release(references.laplace, 2.0, expected_total)],
        size=SIZE,
        bound=1.0,
        sigma=SIGMA,
        prior=PRIOR,
    )
    assert exact.mean() == pytest.approx(1.0, abs=0.1)
    draws = posterior_of_mu(card, contributions=lambda x: x, seed=seed_of(request))
    assert_law(draws, exact)
    # What was taken for the total of records that nobody had clipped.
    unclipped = references.normal_given_total(
        expected_total, size=SIZE, sigma=SIGMA, prior=PRIOR
    ).mean()
    assert abs(z_of_mean(draws, unclipped)) > 20


def curated(card, values, **model_of_records):
    """Return the total that a model computes from records of such values."""
    with pm.Model():
        law = pm.Normal if np.asarray(values).dtype.kind == "f" else pm.Poisson
        x = law("x", 1.0, shape=np.shape(values))
        transform = model_of_records.get("transform", lambda x: x)
        release = pmp.Privatized.from_card("s", transform(x), card)
    graph = contributions_of(release)
    rows = graph.eval({x: values}, mode="FAST_COMPILE")
    return rows.sum(axis=0)


REALS = np.array([-7.3, -0.4, 0.6, 1.2, 2.5, 3.5, 99.0])
COUNTS = np.array([0, 1, 2, 3, 5, 8, 90])
PAIRS = np.stack([REALS, REALS[::-1]], axis=1)


@pytest.mark.parametrize(
    ("values", "options"),
    [
        (REALS, {"bounds": (-2, 3)}),
        (REALS, {"bounds": (-0.5, 2.25)}),
        (REALS, {"bounds": (-2, 3), "granularity": 1}),
        (REALS, {"bounds": (-2.5, 3.5), "granularity": 1}),
        (REALS, {"bounds": (-2, 3), "granularity": 0.5}),
        (REALS, {"bounds": (-2, 3), "granularity": 4}),
        (PAIRS, {"bounds": [(-2, 3), (-2, 3)]}),
        (PAIRS, {"bounds": [(-2, 3), (0, 50)]}),
        (PAIRS, {"bounds": [(-2, 3), (0, 50)], "granularity": 1}),
        (COUNTS, {"bounds": (0, 6)}),
        (COUNTS, {"bounds": (0.5, 6.5)}),
        (COUNTS, {"bounds": (0, 6), "granularity": 0.25}),
        (np.stack([COUNTS, COUNTS], axis=1), {"bounds": [(0, 6), (2, 4)]}),
    ],
)
def test_a_model_adds_up_what_the_curator_did(values, options):
    card = published(values, **options)
    totals = np.array(card.lattice.totals(values)) * card.lattice.granularity
    # A fine lattice is left out: half a cell for each record is less than this.
    tolerance = {"abs": len(values) * 2.0**-21 * card.scale}
    assert curated(card, values) == pytest.approx(
        totals if values.ndim > 1 else totals[0], **tolerance
    )


def test_truth_values_count_as_zero_and_one():
    card = published(np.array([True, False, True]), bounds=(0, 1))
    assert curated(card, np.array([0, 3, 9]), transform=lambda x: x > 2) == 2


def test_records_that_cannot_leave_the_bounds_stay_as_they_are():
    card = published(np.array([0, 1, 1, 1]), bounds=(0, 1))
    with pm.Model():
        x = pm.Bernoulli("x", 0.5, shape=4)
        assert contributions_of(pmp.Privatized.from_card("yes", x, card)) is x
    with pm.Model():
        x = pm.Binomial("x", 5, 0.5, shape=4)
        assert contributions_of(pmp.Privatized.from_card("yes", x, card)) is not x


def test_a_total_is_not_clipped():
    card = published(np.ones(5, dtype=int), 7, bounds=(0, 1), neighbours="add_remove")
    with pm.Model():
        n = pm.DiscreteUniform("n", 0, 20)
        assert contributions_of(pmp.Privatized.from_card("n_dp", n, card)) is n


def test_a_public_number_of_records_is_not_random():
    card = published(np.zeros(4), bounds=(0, 1))
    with pm.Model():
        n = pm.DiscreteUniform("n", 1, 4)
        x = pmp.Records("x", pm.Normal.dist(0, 1), size=n, capacity=4)
        with pytest.raises(ReleaseError, match="which is public; got a random number"):
            pmp.Privatized.from_card("s", x, card)
    card = published(np.zeros(4), bounds=(0, 1), neighbours="add_remove")
    with pm.Model():
        n = pm.DiscreteUniform("n", 1, 4)
        x = pmp.Records("x", pm.Normal.dist(0, 1), size=n, capacity=4)
        pmp.Privatized.from_card("s", x, card)


@pytest.mark.parametrize("width", [None, 2])
def test_contributions_of_another_width_are_refused(width):
    bounds, values = ((0, 1), np.zeros(4)) if width else ([(0, 1)] * 3, np.zeros((4, 3)))
    card = published(values, bounds=bounds)
    with pm.Model():
        x = pm.Normal("x", 0, 1, shape=4)
        contributions = pt.stack([x, x**2], axis=1) if width else x
        with pytest.raises(ReleaseError, match="one pair of bounds per column; got shape"):
            pmp.Privatized.from_card("s", contributions, card)


@pytest.mark.parametrize("bounds", [(), ((0.0, np.nan),), ((3.0, 1.0),), ((0.0, 1.0), (0.0, 1.0))])
def test_a_card_without_usable_bounds_is_refused(bounds):
    lattice = published(np.zeros(4), bounds=(0, 1)).lattice
    with pytest.raises(ReleaseError, match="bounds"):
        replace(lattice, bounds=bounds)
