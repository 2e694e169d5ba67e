"""Chains start at draws from the prior, wherever there are any and the model allows them."""

import numpy as np
import pymc as pm
import pytest
from pymc.exceptions import SamplingError
from scipy import stats

import pymc_privacy as pmp
from pymc_privacy.inference.starting import starting_points
from pymc_privacy.model.start import start_of

NOISE = pmp.Laplace(scale=1.0)
NEIGHBOURS = np.array([[0, 1, 0, 1], [1, 0, 1, 0], [0, 1, 0, 1], [1, 0, 1, 0]])


def starts(model, initvals=None, chains=4, **kwargs):
    return starting_points(model, initvals, chains=chains, random_seed=1, **kwargs)


def four_normal(mu):
    x = pm.Normal("x", mu, 1.0, shape=4)
    pmp.Privatized("s", x, NOISE, observed=0.0)


def test_a_start_of_the_users_own_is_kept():
    with pm.Model() as model:
        four_normal(pm.Normal("mu", 0.0, 1.0))
    assert [start["mu"] for start in starts(model, {"mu": 4.0})] == [4.0] * 4
    first, second = starts(model, [{"mu": 4.0}, None], chains=2)
    assert first["mu"] == 4.0
    assert second["mu"] != 4.0


def test_a_start_of_a_variable_with_a_longer_name_is_not_mistaken():
    with pm.Model() as model:
        four_normal(pm.HalfNormal("mu") + pm.Normal("mu_group"))
    assert len({float(s["mu"]) for s in starts(model, {"mu_group": 4.0})}) == 4
    assert {float(s["mu"]) for s in starts(model, {"mu_log__": np.float64(0.5)})} == {np.exp(0.5)}


def test_a_size_starts_around_its_own_release():
    """Its prior may allow many times as many records."""
    with pm.Model() as model:
        p = pm.Beta("p", 1, 1)
        n = pm.DiscreteUniform("n", 1, 500)
        x = pmp.Records("x", pm.Bernoulli.dist(p), size=n)
        pmp.Privatized("s", x, NOISE, observed=30.0)
        pmp.Privatized("n_dp", n, pmp.DiscreteLaplace(scale=2.0), observed=93)
    sizes = np.array([start["n"] for start in starts(model, chains=50)])
    assert np.ptp(sizes) > 3
    assert abs(sizes - 93).max() < 40
    assert starts(model, {"n": 7})[0]["n"] == 7


def test_starts_are_draws_from_the_prior():
    with pm.Model() as model:
        four_normal(pm.Normal("mu", 3.0, 2.0))
    draws = [float(start["mu"]) for start in starts(model, chains=300)]
    assert stats.kstest(draws, stats.norm(3.0, 2.0).cdf).pvalue > 1e-6


def only_a_density():
    return pm.CustomDist("a", 0.0, logp=lambda value, mu: -0.5 * (value - mu) ** 2)


def neighbours():
    return pm.ICAR("a", W=NEIGHBOURS)


def flat():
    return pm.Flat("a")


@pytest.mark.parametrize("prior", [only_a_density, neighbours, flat])
def test_priors_without_draws_start_where_pymc_does_and_the_log_says_so(prior, caplog):
    caplog.set_level("INFO", logger="pymc")
    with pm.Model() as model:
        a, b = prior(), pm.Normal("b", 0, 1)
        four_normal(a + b)
    found = starts(model)
    own = model.initial_point(random_seed=0)["a"]
    assert all(np.array_equal(start["a"], own) for start in found)
    assert len({float(start["b"]) for start in found}) == 4
    assert "A start was not drawn for a, whose prior cannot be drawn from" in caplog.text
    assert caplog.text.count("A start was not drawn") == 1
    caplog.clear()
    starts(model, quiet=True)
    assert not caplog.text


def test_what_hangs_on_a_prior_without_draws_is_drawn():
    with pm.Model() as model:
        four_normal(pm.Normal("b", only_a_density(), 1))
    found = starts(model)
    assert len({float(start["b"]) for start in found}) == 4
    assert len({float(start["a"]) for start in found}) == 1


def test_draws_that_the_data_rule_out_are_drawn_again():
    with pm.Model() as model:
        top = pm.Uniform("top", 0, 10)
        pm.Uniform("y", 0, top, observed=[3.2, 5.5])
        four_normal(top)
    found = [float(start["top"]) for start in starts(model, chains=30)]
    assert min(found) > 5.5
    assert np.ptp(found) > 2


def test_draws_outside_the_support_of_the_records_are_drawn_again():
    with pm.Model() as model:
        p = pm.Normal("p", 0.5, 1.0)
        x = pm.Bernoulli("x", p, shape=5)
        pmp.Privatized("s", x, NOISE, observed=3.0)
    found = [float(start["p"]) for start in starts(model, chains=30)]
    assert min(found) > 0
    assert max(found) < 1


def test_where_no_draw_will_do_pymc_starts_or_says_why_not(caplog):
    caplog.set_level("INFO", logger="pymc")
    with pm.Model() as model:
        a = pm.Normal("a", 0, 1, initval=50.0)
        pm.Potential("far", pm.math.switch(a > 40, 0.0, -np.inf))
        four_normal(a)
    assert {float(start["a"]) for start in starts(model)} == {50.0}
    assert "None of 100 draws from the prior is possible" in caplog.text
    with pm.Model() as model:
        a = pm.Normal("a", 0, 1)
        pm.Potential("far", pm.math.switch(a > 40, 0.0, -np.inf))
        four_normal(a)
    with pytest.raises(SamplingError, match="far"):
        starts(model)


def test_a_start_is_remembered_until_data_or_variables_change(monkeypatch):
    with pm.Model() as model:
        width = pm.Data("width", np.ones(3))
        pm.Normal("x", 0, width)
    asked = []
    ask = pm.Model.initial_point

    def counted(self, *args, **kwargs):
        asked.append(self)
        return ask(self, *args, **kwargs)

    monkeypatch.setattr(pm.Model, "initial_point", counted)
    start_of(model)["x"][:] = 7.0
    np.testing.assert_array_equal(start_of(model)["x"], np.zeros(3))
    assert len(asked) == 1
    with model:
        pm.set_data({"width": np.ones(5)})
        assert start_of(model)["x"].shape == (5,)
        pm.Normal("y")
        assert set(start_of(model)) == {"x", "y"}
    assert len(asked) == 3


def test_data_behind_a_start_of_the_users_own_are_read_again():
    with pm.Model() as model:
        first = pm.Data("first", [1.0, 2.0])
        pm.Normal("x", shape=2, initval=first)
        np.testing.assert_array_equal(start_of(model)["x"], [1.0, 2.0])
        pm.set_data({"first": [5.0, 6.0]})
        np.testing.assert_array_equal(start_of(model)["x"], [5.0, 6.0])
