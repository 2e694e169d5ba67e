"""Whether a private size matters, and which conditions for convergence a model meets."""

import math

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest

import pymc_privacy as pmp
from benchmarks.papers import awan_rates
from pymc_privacy.errors import GuaranteeError, PlotError, RecordError


def laplace(epsilon=1.0, neighbours="add_remove"):
    return pmp.Laplace(epsilon=epsilon, sensitivity=1.0, neighbours=neighbours)


def sized(
    mechanism=None,
    size_noise=None,
    *,
    contributions=lambda x: x,
    prior=lambda: pm.DiscreteUniform("n", 1, 5000),
    released=40.0,
    capacity=None,
):
    with pm.Model() as model:
        p = pm.Beta("p", 1, 1)
        n = prior()
        x = pmp.Records("x", pm.Bernoulli.dist(p), size=n, capacity=capacity)
        pmp.Privatized("s", contributions(x), mechanism or laplace(), observed=released)
        if size_noise is not None:
            pmp.Privatized("n_dp", n, size_noise, observed=100)
    return model


def test_the_report_is_the_bound_and_the_rate():
    found = pmp.size_matters(sized(size_noise=pmp.Laplace(scale=3.0)))
    assert found.size == 100
    n = np.arange(-2000, 2001)
    weight = np.exp(-abs(n) / 3.0)
    spread = math.sqrt(weight @ n.astype(float) ** 2 / weight.sum())
    assert found.spread == pytest.approx(spread, rel=1e-9)
    assert (found.rate, found.ratio) == ("sqrt(n)", pytest.approx(spread / 10))
    within = lambda n: np.where((n >= 1) & (n <= 5000), 0.0, -np.inf)  # noqa: E731
    exact = pmp.size_gap(
        pmp.PureDP(1.0), pmp.Laplace(scale=3.0), size=100, release=100.0, log_prior=within
    )
    assert found.gap == exact
    assert "sqrt(n)" in str(found)
    assert pmp.size_matters(sized(size_noise=pmp.Laplace(scale=3.0)), size=400).ratio == (
        pytest.approx(spread / 20)
    )


def test_averages_need_less():
    law = pmp.KNormGradient.mean(epsilon=1.0, bounds=(0, 1), neighbours="add_remove")
    model = sized(
        law, pmp.DiscreteLaplace(scale=3.0), contributions=law.contributions, released=0.4
    )
    found = pmp.size_matters(model)
    assert found.rate == "n"
    assert found.ratio == pytest.approx(found.spread / 100)


@pytest.mark.parametrize(
    ("given", "missing", "said"),
    [
        ({"size_noise": None}, ("spread", "gap", "ratio"), "releases of its own"),
        (
            {"mechanism": laplace(neighbours="replace_one"), "size_noise": laplace()},
            ("gap", "guarantee"),
            "promises nothing about adding",
        ),
        (
            {"mechanism": pmp.Laplace(scale=1.0), "size_noise": laplace()},
            ("gap", "guarantee"),
            "no guarantee is stated",
        ),
        (
            {
                "prior": lambda: pm.Poisson("n", 90),
                "capacity": 300,
                "size_noise": laplace(),
            },
            ("gap",),
            "not known to be flat",
        ),
    ],
)
def test_what_is_not_known_is_said(given, missing, said):
    found = pmp.size_matters(sized(**given), size=100)
    for name in missing:
        assert getattr(found, name) is None
    assert any(said in why for why in found.why)
    assert "not known" in str(found)


def test_the_rate_of_a_mechanism_of_ones_own_is_not_known():
    law = pmp.CustomMechanism(log_density_function=lambda s, t: -abs(s - t) - math.log(2.0))
    found = pmp.size_matters(sized(law, laplace()))
    assert found.rate == found.distance == "not known"
    assert found.ratio is None


def test_a_sum_of_noisy_values_tends_in_total_variation():
    law = pmp.LocalSum(noise=pmp.Laplace(epsilon=1.0, sensitivity=1.0))
    found = pmp.size_matters(sized(law, laplace(), contributions=law.contributions))
    assert (found.rate, found.distance) == ("sqrt(n)", "total variation")
    assert found.gap is None


def test_misuse_gets_a_sentence():
    with pytest.raises(GuaranteeError, match="size="):
        pmp.size_matters(sized())
    with pm.Model() as model:
        x = pm.Bernoulli("x", 0.5, shape=3)
        pmp.Privatized("s", x, laplace(), observed=1.0)
    with pytest.raises(RecordError, match="one size; got 0"):
        pmp.size_matters(model)
    with pytest.raises(RecordError, match="0 record variables"), pm.Model():
        pmp.ergodicity()
    with pytest.raises(PlotError, match="size_matters returns"):
        pmp.plot_size_gap(3)
    with pytest.raises(PlotError, match="needs a guarantee"):
        pmp.plot_size_gap(pmp.size_matters(sized(), size=3))


def test_the_plot_shows_the_bound_of_each_scale():
    found = pmp.size_matters(sized(size_noise=pmp.Laplace(scale=3.0)))
    axis = pmp.plot_size_gap(found)
    scales, bounds = axis.lines[0].get_data()
    for k in (0, 25, 60):
        noise = pmp.Laplace(scale=float(scales[k]))
        assert bounds[k] == pmp.size_gap(found.guarantee, noise, size=100).bound
    assert np.all(np.diff(bounds) >= 0)


# ---------------------------------------------------------------- the theorems themselves


def test_the_reference_of_the_rates_is_a_convolution():
    s = np.linspace(-5, 12, 35)
    found = awan_rates.density_of_sum(s, 7, 1.3)
    chance = [math.comb(7, k) * 0.3**k * 0.7 ** (7 - k) for k in range(8)]
    exact = sum(c * np.exp(-abs(s - k) / 1.3) / 2.6 for k, c in enumerate(chance))
    np.testing.assert_allclose(found, exact, rtol=1e-12)


def test_the_distance_falls_where_the_rate_says_so_and_is_below_the_bound():
    """Theorem 3.2 by exact distances: sums need less than sqrt(n), averages less than n."""
    near, far = (awan_rates.distance("sum", n, n**0.25) for n in (64, 1024))
    assert far < 0.75 * near
    near, far = (awan_rates.distance("sum", n, n**0.75) for n in (16, 64))
    assert far > near
    near, far = (awan_rates.distance("average", n, n**0.5) for n in (64, 256))
    assert far < 0.8 * near
    noise = pmp.Laplace(scale=4.0)
    bound = pmp.size_gap(pmp.PureDP(1.0), noise, size=64).bound
    assert awan_rates.distance("sum", 64, 4.0) <= bound


# ---------------------------------------------------------------- ergodicity


def known(prior, law, mechanism=None, *, of=lambda x: x, observed=2.0):
    with pm.Model() as model:
        x = law(prior())
        pmp.Privatized("s", of(x), mechanism or laplace(neighbours=None), observed=observed)
    return model


def by_name(conditions, part):
    [found] = [c for c in conditions if part in c.name]
    return found


def bernoulli(p):
    return pm.Bernoulli("x", p, shape=5)


def test_a_bounded_coin_meets_all_that_a_model_can_say():
    found = pmp.ergodicity(known(lambda: pm.Uniform("p", 0.1, 0.9), bernoulli))
    assert found.ergodic
    # That parameters are drawn given the records is for the sampler to say.
    assert [c.holds for c in found.geometric_conditions] == [None, True, True, True]
    assert not found.geometric
    assert "is shown; a geometric rate is not shown" in str(found)


@pytest.mark.parametrize(
    ("model", "part", "holds"),
    [
        (lambda: known(lambda: pm.Beta("p", 1, 1), bernoulli), "f(x | theta) >= a", False),
        (lambda: known(lambda: pm.Uniform("p", 0, 1), bernoulli), "f(x | theta) >= a", False),
        (
            lambda: known(
                lambda: pm.Flat("m"), lambda m: pm.Bernoulli("x", pm.math.sigmoid(m), shape=5)
            ),
            "proper",
            False,
        ),
        (
            lambda: known(
                lambda: pm.HalfNormal("top"), lambda top: pm.Uniform("x", 0, top, shape=5)
            ),
            "does not depend on parameters",
            False,
        ),
        (
            lambda: known(
                lambda: pm.Normal("m"), lambda m: pm.Bernoulli("x", pt.clip(m, 0, 1), shape=5)
            ),
            "does not depend on parameters",
            None,
        ),
        (
            lambda: known(
                lambda: pm.Beta("p", 1, 1),
                bernoulli,
                pmp.TruncatedLaplace(epsilon=1.0, delta=0.1, sensitivity=1.0),
            ),
            "can have led",
            False,
        ),
        (
            lambda: known(lambda: pm.Beta("p", 1, 1), bernoulli, pmp.Gaussian(scale=1.0)),
            "can have led",
            True,
        ),
        (
            lambda: known(
                lambda: pm.Beta("p", 1, 1), bernoulli, pmp.Gaussian(mu=1.0, sensitivity=1.0)
            ),
            "epsilon-DP",
            False,
        ),
        (
            lambda: known(lambda: pm.Normal("m"), lambda m: pm.Normal("x", m, 1.0, shape=5)),
            "f(x | theta) >= a",
            False,
        ),
        (
            lambda: known(lambda: pm.Normal("m"), lambda m: pm.Normal("x", m, 1.0, shape=5)),
            "is bounded",
            True,
        ),
        (
            lambda: known(lambda: pm.HalfNormal("sd"), lambda sd: pm.Normal("x", 0, sd, shape=5)),
            "is bounded",
            None,
        ),
        (
            lambda: known(lambda: pm.Normal("m"), lambda m: pm.Moyal("x", m, 1.0, shape=5)),
            "does not depend on parameters",
            None,
        ),
    ],
)
def test_each_condition_is_read_from_the_laws(model, part, holds):
    found = pmp.ergodicity(model())
    assert by_name((*found.conditions, *found.geometric_conditions), part).holds is holds


def test_a_potential_leaves_the_prior_unknown():
    with known(lambda: pm.Beta("p", 1, 1), bernoulli) as model:
        pm.Potential("more", -model["p"])
    assert pmp.ergodicity(model).conditions[0].holds is None


def test_an_unknown_size_has_conditions_of_its_own():
    found = pmp.ergodicity(sized(size_noise=laplace()))
    assert found.theorem.startswith("Awan")
    assert found.ergodic
    assert by_name(found.geometric_conditions, "finitely").holds
    assert by_name(found.geometric_conditions, ">= a").holds is False
    endless = sized(size_noise=laplace(), prior=lambda: pm.Poisson("n", 90), capacity=300)
    found = pmp.ergodicity(endless)
    assert found.ergodic
    assert by_name(found.geometric_conditions, "finitely").holds is False
