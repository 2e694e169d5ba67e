"""The law of an answer, the record integrated out, against quadrature and sums of SciPy's."""

import itertools
import math

import numpy as np
import pytest
from scipy import integrate, stats

import pymc_privacy as pmp
from pymc_privacy.algorithms.numerics.clipped_normal import log_binned_normal, log_clipped_normal
from pymc_privacy.algorithms.release_law import Answer, Answers, log_likelihood
from tests.stochastic import seed_of

QUANTILES = [1e-12, 1e-6, 1e-3, 0.1, 0.5, 0.9, 1 - 1e-3, 1 - 1e-6, 1 - 1e-12]


class SciPyLaw:
    """Records of a SciPy family, whose points are location and scale."""

    def __init__(self, family, *, closed=False):
        self.family, self.closed = family, closed
        self.discrete = hasattr(family, "pmf")

    def log_density(self, points, users, values):
        return (self.family.logpmf if self.discrete else self.family.logpdf)(
            values, *self._both(points)
        )

    def log_cdf(self, points, users, values):
        return self.family.logcdf(values, *self._both(points))

    def _both(self, points):
        return (points[:, :1],) if self.discrete else (points[:, :1], points[:, 1:])

    def normal(self, points, users):
        return (points[:, 0], points[:, 1]) if self.closed else None


def kernel_of(mechanism):
    """Return the density of the noise, by SciPy."""
    law = stats.laplace if isinstance(mechanism, pmp.Laplace) else stats.norm
    return law(scale=mechanism.scale).pdf


def by_quad(law, query, y):
    """Integrate piece by piece between quantiles of the record's law and where the kernel bends."""
    kernel, low, high = kernel_of(query.mechanism), query.lower, query.upper
    scale = query.mechanism.scale
    bends = [y, *(y + k * scale for k in (-8, -3, -1, 1, 3, 8))]
    cuts = [*bends, *law.ppf(QUANTILES), *law.support()]
    ends = sorted({low, high, *(float(cut) for cut in cuts if low < cut < high)})
    pieces = [
        integrate.quad(lambda x: law.pdf(x) * kernel(y - x), a, b, epsabs=0, epsrel=1e-12)[0]
        for a, b in itertools.pairwise(ends)
    ]
    return math.log(law.cdf(low) * kernel(y - low) + law.sf(high) * kernel(y - high) + sum(pieces))


def likelihood(law, point, query, release):
    answers = Answers(law.discrete, [Answer(query, release)])
    return log_likelihood(law, np.array([point]), answers)[0]


def random_case(rng, gaussian):
    """Records from 1e-4 to 1e4 times as wide as the interval, and anywhere around it."""
    lower, width = rng.normal(), 10 ** rng.uniform(-2, 2)
    scale = width * 10 ** rng.uniform(-4, 4)
    location = lower + width * rng.uniform(-0.5, 1.5)
    epsilon = 10 ** rng.uniform(-1, 1)
    noise = pmp.Gaussian(scale=width / epsilon) if gaussian else pmp.Laplace(scale=width / epsilon)
    query = pmp.ClippedQuery(lower=lower, upper=lower + width, mechanism=noise)
    y = rng.uniform(query.lower, query.upper) + 2 * noise.scale * rng.normal()
    return location, scale, query, y


CONTINUOUS = {
    "normal": stats.norm,
    "exponential": stats.expon,
    "cauchy": stats.cauchy,
    "uniform": stats.uniform,
}


@pytest.mark.filterwarnings("ignore::scipy.integrate.IntegrationWarning")
@pytest.mark.parametrize("gaussian", [False, True], ids=["laplace", "gaussian"])
@pytest.mark.parametrize("name", CONTINUOUS)
def test_the_law_of_a_clipped_record(name, gaussian, request):
    rng = np.random.default_rng(seed_of(request))
    law = SciPyLaw(CONTINUOUS[name])
    for _ in range(40):
        location, scale, query, y = random_case(rng, gaussian)
        wanted = by_quad(CONTINUOUS[name](location, scale), query, y)
        found = likelihood(law, (location, scale), query, y)
        assert found == pytest.approx(wanted, abs=1e-7, rel=0), (location, scale, query, y)


def test_a_density_with_a_pole():
    """Records z² of a Normal z; the reference is integrated over z, where there is no pole."""
    query = pmp.ClippedQuery(lower=-0.5, upper=1.5, epsilon=3.0)
    kernel = kernel_of(query.mechanism)
    for y in (-1.0, 0.0, 0.3, 2.0):
        bends = sorted({0.0, math.sqrt(max(y, 0.0)), math.sqrt(1.5)} - {math.sqrt(2.0)})
        inside = sum(
            integrate.quad(
                lambda z, y=y: 2 * stats.norm.pdf(z) * kernel(y - z * z), a, b, epsrel=1e-12
            )[0]
            for a, b in itertools.pairwise(bends)
        )
        wanted = math.log(inside + 2 * stats.norm.sf(math.sqrt(1.5)) * kernel(y - 1.5))
        law = SciPyLaw(stats.norm)
        law.log_density = lambda points, users, values: stats.chi2.logpdf(values, 1)
        law.log_cdf = lambda points, users, values: stats.chi2.logcdf(values, 1)
        found = likelihood(law, (0.0, 1.0), query, y)
        assert found == pytest.approx(wanted, abs=1e-7, rel=0)


@pytest.mark.filterwarnings("ignore::scipy.integrate.IntegrationWarning")
def test_the_closed_form_of_normal_records(request):
    rng = np.random.default_rng(seed_of(request))
    law = SciPyLaw(stats.norm, closed=True)
    for _ in range(120):
        location, scale, query, y = random_case(rng, gaussian=False)
        found = likelihood(law, (location, scale), query, y)
        wanted = by_quad(stats.norm(location, scale), query, y)
        assert found == pytest.approx(wanted, abs=1e-10, rel=0), (location, scale, query, y)


@pytest.mark.parametrize("sd", [1e-4, 1.0, 1e4])
def test_it_is_the_law_of_something(sd):
    """The closed form integrates to one, and the tails beyond the interval are the noise's."""
    low, high, b = -1.0, 1.0, 0.7
    inside = integrate.quad(
        lambda y: math.exp(log_clipped_normal(y, low, high, b, 0.2, sd)),
        low,
        high,
        points=[0.2 + k * sd for k in (-8, -3, 0, 3, 8) if sd < 0.1] or [0.2],
        epsabs=1e-12,
        limit=400,
    )[0]
    ends = [b * math.exp(log_clipped_normal(end, low, high, b, 0.2, sd)) for end in (low, high)]
    assert inside + sum(ends) == pytest.approx(1.0, abs=1e-8)
    far = log_clipped_normal(high + 500 * b, low, high, b, 0.2, sd)
    assert far == pytest.approx(log_clipped_normal(high, low, high, b, 0.2, sd) - 500, rel=1e-12)


@pytest.mark.parametrize("name", ["normal", "cauchy"])
def test_the_law_of_a_binned_record(name, request):
    rng = np.random.default_rng(seed_of(request))
    for closed in (True, False) if name == "normal" else (False,):
        law = SciPyLaw(CONTINUOUS[name], closed=closed)
        query = pmp.BinnedQuery(edges=[-1.0, 0.3, 2.0], epsilon=1.7)
        location, scale = rng.normal(), math.exp(rng.normal())
        cdf = [0.0, *CONTINUOUS[name](location, scale).cdf(query.edges), 1.0]
        truth = np.diff(cdf)
        keep = math.exp(1.7) / (math.exp(1.7) + 3)
        wanted = np.log(keep * truth + (1 - keep) / 3 * (1 - truth))
        found = [likelihood(law, (location, scale), query, k) for k in range(4)]
        np.testing.assert_allclose(found, wanted, atol=1e-12)


def test_bins_far_out_keep_their_digits():
    """A bin 30 sd away has probability 0, and not the difference of two numbers near one."""
    assert log_binned_normal(30.0, 31.0, 1.7, 0.0, 0.0, 1.0) == pytest.approx(
        1.7 * (stats.norm.sf(30) - stats.norm.sf(31)), rel=1e-10
    )


@pytest.mark.parametrize("ends", [(1, 6), (0.5, 6.5), (-3, 2), (4, 50)])
@pytest.mark.parametrize("noise", ["laplace", "whole", "gaussian"])
def test_the_law_of_a_clipped_count(ends, noise):
    if noise == "whole" and ends[0] % 1:
        pytest.skip("Integer noise is for bounds that are whole.")
    mechanism = {
        "laplace": pmp.Laplace(scale=3.0),
        "whole": pmp.DiscreteLaplace(scale=3.0),
        "gaussian": pmp.Gaussian(scale=2.0),
    }[noise]
    query = pmp.ClippedQuery(lower=ends[0], upper=ends[1], mechanism=mechanism)
    counts = np.arange(400)
    clipped = np.clip(counts, *ends)
    for y in (-2, 3, 9):
        terms = stats.poisson(3.3).logpmf(counts) + mechanism.log_density(y, clipped)
        wanted = np.logaddexp.reduce(terms)
        assert likelihood(SciPyLaw(stats.poisson), (3.3,), query, y) == pytest.approx(wanted)


def test_the_law_of_a_binned_count():
    query = pmp.BinnedQuery(edges=[1, 2.5, 4], epsilon=1.0)
    counts = np.arange(200)
    bins = query.contribution(counts)
    truth = np.bincount(bins, stats.poisson(2.2).pmf(counts), minlength=4)
    keep = math.e / (math.e + 3)
    for answer in range(4):
        wanted = math.log(keep * truth[answer] + (1 - keep) / 3 * (1 - truth[answer]))
        assert likelihood(SciPyLaw(stats.poisson), (2.2,), query, answer) == pytest.approx(wanted)


def test_answers_are_independent_and_equal_ones_are_counted(request):
    """Any number of answers, of both kinds, in any order: the sum of single ones."""
    rng = np.random.default_rng(seed_of(request))
    law, points = (
        SciPyLaw(stats.norm),
        np.column_stack([rng.normal(size=50), np.exp(rng.normal(size=50))]),
    )
    bins = [pmp.BinnedQuery(edges=[0.0, e], epsilon=1.0) for e in (1.0, 2.0)]
    clips = [pmp.ClippedQuery(lower=-1, upper=u, epsilon=1.0) for u in (1.0, 2.0)]
    noisy = pmp.ClippedQuery(lower=-1, upper=1, mechanism=pmp.Gaussian(scale=1.0))
    given = [Answer(bins[k % 2], k % 3) for k in range(400)]
    given += [Answer(clips[k % 2], rng.normal()) for k in range(200)] + [Answer(noisy, 0.3)]
    order = rng.permutation(len(given))
    together = log_likelihood(law, points, Answers(False, [given[k] for k in order]))
    alone = sum(log_likelihood(law, points, Answers(False, [one])) for one in given)
    np.testing.assert_allclose(together, alone, rtol=1e-10)
    assert Answers(False, given).size == len(given)


def test_epsilon_bounds_what_one_answer_can_tell(request):
    """Of any two parameters, however far apart, the log ratio is at most epsilon."""
    rng = np.random.default_rng(seed_of(request))
    points = np.column_stack([100 * rng.normal(size=400), np.exp(3 * rng.normal(size=400))])
    for query, release in [
        (pmp.BinnedQuery(edges=[-1.0, 4.0], epsilon=1.0), 1),
        (pmp.ClippedQuery(lower=-1, upper=1, epsilon=1.0), 0.4),
        (pmp.ClippedQuery(lower=-1, upper=1, epsilon=1.0), 77.0),
    ]:
        logs = log_likelihood(
            SciPyLaw(stats.norm, closed=True), points, Answers(False, [Answer(query, release)])
        )
        assert np.ptp(logs) <= 1.0 + 1e-9
        weights = np.exp(logs)
        assert weights.sum() ** 2 / np.sum(weights**2) / 400 >= 1 / math.cosh(0.5) ** 2
