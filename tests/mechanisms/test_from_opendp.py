"""Mechanisms read from OpenDP: their law, their guarantee, and refusals by name."""

import numpy as np
import pytest

import pymc_privacy as pmp
from pymc_privacy.errors import MechanismError
from tests.stochastic import assert_mean

dp = pytest.importorskip("opendp.prelude", reason="needs OpenDP, the extra `opendp`")
dp.enable_features("contrib", "honest-but-curious")

FLOATS = dp.vector_domain(dp.atom_domain(T=float, nan=False))
SYMMETRIC = dp.symmetric_distance()


def float_sum():
    clamped = (FLOATS, SYMMETRIC) >> dp.t.then_clamp((0.0, 10.0)) >> dp.t.then_sum()
    return clamped >> dp.m.then_laplace(scale=5.0)


def count(noise):
    integers = dp.vector_domain(dp.atom_domain(T=int))
    return (integers, SYMMETRIC) >> dp.t.then_count() >> noise


def sized_mean():
    sized = dp.vector_domain(dp.atom_domain(bounds=(0.0, 10.0)), size=100)
    return (sized, SYMMETRIC) >> dp.t.then_mean() >> dp.m.then_gaussian(scale=0.3)


def bare(make, kind, **kwargs):
    domain = dp.atom_domain(T=int) if kind is int else dp.atom_domain(T=float, nan=False)
    return make(domain, dp.absolute_distance(T=kind), **kwargs)


@pytest.mark.parametrize(
    ("measurement", "family", "scale"),
    [
        (float_sum, pmp.Laplace, 5.0),
        (lambda: count(dp.m.then_laplace(scale=1.5)), pmp.DiscreteLaplace, 1.5),
        (lambda: count(dp.m.then_gaussian(scale=7.0)), pmp.DiscreteGaussian, 7.0),
        (sized_mean, pmp.Gaussian, 0.3),
        (lambda: bare(dp.m.make_laplace, float, scale=2.0), pmp.Laplace, 2.0),
        (lambda: bare(dp.m.make_laplace, float, scale=2.0, k=-40), pmp.Laplace, 2.0),
        (
            lambda: dp.c.make_pureDP_to_zCDP(count(dp.m.then_laplace(scale=1.5))),
            pmp.DiscreteLaplace,
            1.5,
        ),
    ],
)
def test_the_family_and_the_scale_are_read(measurement, family, scale):
    mechanism = pmp.from_opendp(measurement())
    assert type(mechanism) is family
    assert mechanism.scale == scale
    assert mechanism.guarantee is None


def test_the_guarantee_is_that_of_opendp():
    for measurement, d_in, neighbours in (
        (float_sum(), 1, "add_remove"),
        (count(dp.m.then_laplace(scale=1.5)), 1, "add_remove"),
        (sized_mean(), 2, "replace_one"),
    ):
        mechanism = pmp.from_opendp(measurement, d_in=d_in)
        assert mechanism.guarantee.neighbours == neighbours
        ours = (
            mechanism.guarantee.epsilon
            if isinstance(mechanism.guarantee, pmp.PureDP)
            else mechanism.guarantee.to_zero_concentrated().rho
        )
        assert ours == pytest.approx(measurement.map(d_in), rel=1e-6)


def test_noise_alone_has_the_sensitivity_that_is_given():
    mechanism = pmp.from_opendp(bare(dp.m.make_gaussian, int, scale=2.0), d_in=3)
    assert mechanism == pmp.DiscreteGaussian(scale=2.0, sensitivity=3.0)


@pytest.mark.parametrize(
    "measurement",
    [
        bare(dp.m.make_laplace, int, scale=3.0),
        bare(dp.m.make_gaussian, int, scale=3.0),
        bare(dp.m.make_laplace, float, scale=3.0),
        bare(dp.m.make_geometric, int, scale=3.0, bounds=(0, 12)),
    ],
    ids=["integer laplace", "integer gaussian", "laplace", "bounded geometric"],
)
def test_what_opendp_releases_follows_the_law_that_was_read(measurement):
    """OpenDP draws from the operating system, so that this fails once in a million runs."""
    mechanism = pmp.from_opendp(measurement)
    draws = np.array([measurement(10) for _ in range(3000)])
    if mechanism.discrete:
        values = np.arange(-80, 101)
        if isinstance(mechanism, pmp.Clamped):
            values = np.arange(0, 13)
        p = np.exp(mechanism.log_density(values, 10))
        assert p.sum() == pytest.approx(1.0)
    else:
        values = np.linspace(-80, 100, 18001)
        p = np.exp(mechanism.log_density(values, 10.0)) * 0.01
    for edge in (7, 10, 11):
        assert_mean(draws <= edge + 1e-9, p[values <= edge].sum(), what=f"P(y <= {edge})")


def test_a_sized_database_has_no_neighbours_at_distance_one():
    with pytest.raises(MechanismError, match=r"neighbours by a replacement.*got d_in=1"):
        pmp.from_opendp(sized_mean(), d_in=1)


@pytest.mark.parametrize(
    ("measurement", "name"),
    [
        (lambda: dp.m.make_randomized_response_bool(prob=0.7), "make_randomized_response_bool"),
        (
            lambda: bare(dp.m.make_laplace, int, scale=3.0) >> (lambda y: max(y, 0)),
            "make_chain_pm",
        ),
        (lambda: bare(dp.m.make_laplace, float, scale=2.0, k=3), r"grid of 2\^3"),
        (lambda: "laplace", "got str"),
    ],
)
def test_what_cannot_be_read_is_refused_by_name(measurement, name):
    with pytest.raises(MechanismError, match=f"got.*{name}|{name}"):
        pmp.from_opendp(measurement())


# The summary, which needs no OpenDP but is OpenDP's.
SUMMARY = [
    {"column": "len", "aggregate": "Frame Length", "distribution": "Integer Laplace", "scale": 5.0},
    {"column": "hours", "aggregate": "Sum", "distribution": "Float Gaussian", "scale": 40.0},
    {"column": "key", "aggregate": None, "distribution": None, "scale": None},
]


def test_a_summary_gives_a_mechanism_for_each_noisy_column():
    mechanisms = pmp.from_opendp_summary(SUMMARY, unsigned=["len"])
    assert mechanisms == {
        "len": pmp.Clamped(mechanism=pmp.DiscreteLaplace(scale=5.0), lower=0.0),
        "hours": pmp.Gaussian(scale=40.0),
    }
    assert pmp.from_opendp_summary(SUMMARY)["len"] == pmp.DiscreteLaplace(scale=5.0)


def test_a_summary_of_opendp_itself_is_read():
    pl = pytest.importorskip("polars", reason="needs polars, which OpenDP's queries do")
    context = dp.Context.compositor(
        data=pl.LazyFrame({"hours": [1, 2, 3]}),
        privacy_unit=dp.unit_of(contributions=1),
        privacy_loss=dp.loss_of(epsilon=1.0),
        split_evenly_over=1,
    )
    frame = context.query().select(dp.len()).summarize()
    mechanisms = pmp.from_opendp_summary(frame, unsigned="all")
    [mechanism] = mechanisms.values()
    assert mechanism.mechanism == pmp.DiscreteLaplace(scale=1.0)


@pytest.mark.parametrize(
    ("frame", "options", "message"),
    [
        ([{"column": "a", "distribution": "Gumbel", "scale": 1.0}], {}, "got 'Gumbel' for 'a'"),
        ([{"column": "a"}], {}, "columns column, distribution and scale.*got list"),
        (3, {}, "columns column, distribution and scale.*got int"),
        (SUMMARY, {"unsigned": ["width"]}, "must name noisy columns.*got width"),
    ],
)
def test_another_table_is_refused(frame, options, message):
    with pytest.raises(MechanismError, match=message):
        pmp.from_opendp_summary(frame, **options)
