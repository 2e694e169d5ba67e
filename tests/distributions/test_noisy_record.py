"""Clipped, noised Normal records, integrated out: laws, slopes, posteriors, draws, refusals."""

import itertools
import math

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest
from scipy import integrate, special, stats

import pymc_privacy as pmp
from pymc_privacy._compat import NUTS
from pymc_privacy.algorithms.numerics import clipped_normal
from pymc_privacy.densities import clipped_records
from pymc_privacy.densities.summed_out import summed_out
from pymc_privacy.errors import MechanismError, PrivacyError, RecordError, ReleaseError
from pymc_privacy.model.database import find_databases
from tests.geweke import largest_z, successive
from tests.short_runs import SHORT
from tests.stochastic import Z_LIMIT, assert_law, assert_mean, seed_of

NOISES = {"laplace": pmp.Laplace, "gaussian": pmp.Gaussian}
each_noise = pytest.mark.parametrize("noise", NOISES)
INF = math.inf


def kernel(noise, scale):
    return (stats.laplace if noise == "laplace" else stats.norm)(scale=scale).pdf


def by_quad(noise, y, low, high, scale, mu, sd):
    """Integrate over the record between where its law and the noise bend."""
    law, density = stats.norm(mu, sd), kernel(noise, scale)
    cuts = [*(mu + k * sd for k in (-9, -4, -1, 0, 1, 4, 9))]
    cuts += [*(y + k * scale for k in (-8, -3, -1, 0, 1, 3, 8))]
    inside = [max(low, mu - 38 * sd), min(high, mu + 38 * sd)]
    ends = sorted({*inside, *(c for c in cuts if inside[0] < c < inside[1])})
    total = law.cdf(low) * density(y - low) if low > -INF else 0.0
    total += law.sf(high) * density(y - high) if high < INF else 0.0
    for a, b in itertools.pairwise(ends):
        part, _ = integrate.quad(
            lambda x: law.pdf(x) * density(y - x), a, b, epsabs=0, epsrel=1e-12
        )
        total += part if b > a else 0.0
    return math.log(total)


def cases(rng, count):
    """Records from 1e-4 to 1e4 times as wide as the interval, one end of which may be missing."""
    for k in range(count):
        low, width = rng.normal(), 10 ** rng.uniform(-2, 2)
        sd = width * 10 ** rng.uniform(-4, 4)
        mu, scale = low + width * rng.uniform(-0.5, 1.5), width * 10 ** rng.uniform(-1, 1)
        y = low + width * rng.uniform() + 2 * scale * rng.normal()
        ends = (-INF if k % 5 == 0 else low), (INF if k % 7 == 0 else low + width)
        yield y, *ends, scale, mu, sd


def compiled(noise, lower, upper, scale, size):
    """Compile the density of a vector of releases, and its slopes."""
    mu, sd = pt.dvector("mu"), pt.dvector("sd")
    law = pm.Normal.dist(mu, sd) if size is None else pm.Normal.dist(mu[0], sd[0])
    given = NOISES[noise](scale=scale)
    shape = None if size is None else (size,)
    y = pt.dvector("y")
    release = pmp.NoisyRecord.dist(law, given, lower=lower, upper=upper, shape=shape)
    logs = pm.logp(release, pt.specify_shape(y, release.type.shape))
    return pytensor.function([y, mu, sd], [logs, *pytensor.grad(logs.sum(), [mu, sd])])


@pytest.mark.filterwarnings("ignore::scipy.integrate.IntegrationWarning")
@each_noise
def test_density_and_slopes_against_quadrature(noise, request):
    """One query for each, and the same query for all: both loops."""
    rows = np.array([*cases(np.random.default_rng(seed_of(request)), 60)])
    y, low, high, scale, mu, sd = rows.T
    wanted = [by_quad(noise, *row) for row in rows]
    function = compiled(noise, low, high, scale, None)
    logs, by_mu, by_sd = function(y, mu, sd)
    np.testing.assert_allclose(logs, wanted, rtol=0, atol=1e-9)
    step = 1e-4 * sd
    for slope, part in ((by_mu, (1, 0)), (by_sd, (0, 1))):
        up, down, further, back = (
            function(y, mu + k * part[0] * step, sd + k * part[1] * step)[0] for k in (1, -1, 2, -2)
        )
        numerical = (8 * (up - down) - (further - back)) / 12e-4
        np.testing.assert_allclose(slope * sd, numerical, rtol=0, atol=1e-6)
    for k in range(2):
        several = np.array([y[k], low[k] + 0.1 * scale[k], y[k] - 9 * scale[k]])
        together = compiled(noise, low[k], high[k], scale[k], 3)(several, mu[[k]], sd[[k]])
        alone = (
            clipped_normal.laplace_slopes if noise == "laplace" else clipped_normal.gaussian_slopes
        )
        each = np.array([alone(one, *rows[k, 1:]) for one in several])
        np.testing.assert_allclose(together[0], each[:, 0], rtol=1e-12)
        np.testing.assert_allclose(together[1:], each[:, 1:].sum(axis=0)[:, None], rtol=1e-10)


@each_noise
def test_far_out_densities_are_numbers(noise):
    """Where everything underflows the logs do not, and what is no law has none."""
    slopes = clipped_normal.laplace_slopes if noise == "laplace" else clipped_normal.gaussian_slopes
    if noise == "laplace":
        # exp(k²/2 - k (y - mu) / sd) of the exponential of a Normal number.
        found = slopes(0.3, -INF, INF, 1.0, 1e5, 0.5)
        np.testing.assert_allclose(found, [0.125 - (1e5 - 0.3) - math.log(2), -1.0, 0.5])
    else:
        found = slopes(0.3, -INF, INF, 1.0, 1e5, 0.5)[0]
        assert found == pytest.approx(stats.norm(1e5, math.sqrt(1.25)).logpdf(0.3))
    for mu, sd in ((0.0, 0.0), (0.0, -1.0), (math.nan, 1.0), (0.0, math.nan), (INF, 1.0)):
        assert slopes(0.3, -1.0, 1.0, 1.0, mu, sd) == (-INF, 0.0, 0.0)


DRAWS = [  # release, ends, scale of the noise, mu, sd
    (0.5, -1.0, 1.0, 0.7, 0.2, 1.0),
    (3.0, -1.0, 1.0, 0.7, 0.2, 1.0),
    (0.5, -INF, INF, 0.7, 0.2, 1.0),
    (-2.0, -0.1, 0.1, 0.2, 0.2, 1.0),
    (1.0, -5.0, 5.0, 3.0, 0.0, 0.3),
    (1.0, -5.0, INF, 0.3, 0.0, 3.0),
    (9.0, -5.0, 5.0, 1.0, 0.0, 1.0),
]


def record_law(noise, y, low, high, scale, mu, sd):
    """Return the distribution function of a record given its release, on a fine grid."""
    x = np.linspace(mu - 9 * sd, mu + 9 * sd, 400_001)
    weights = stats.norm(mu, sd).pdf(x) * kernel(noise, scale)(y - np.clip(x, low, high))
    cdf = np.cumsum(weights)
    return lambda values: np.interp(values, x, cdf / cdf[-1])


@each_noise
@pytest.mark.parametrize("given", DRAWS)
def test_records_given_their_releases(noise, given, request):
    draw = clipped_normal.laplace_record if noise == "laplace" else clipped_normal.gaussian_record
    rng = np.random.default_rng(seed_of(request))
    drawn = [draw(rng.random(), rng.laplace(), *given) for _ in range(20_000)]
    assert stats.kstest(drawn, record_law(noise, *given)).pvalue > 1e-6


# -- records of other laws, by quadrature ----------------------------------------------------------

LAWS = {  # of two parameters: PyMC's, and SciPy's
    "gamma": (lambda a, b: pm.Gamma.dist(a, b), lambda a, b: stats.gamma(a, scale=1 / b)),
    "exponential": (lambda a, b: pm.Exponential.dist(a), lambda a, b: stats.expon(scale=1 / a)),
    "laplace": (pm.Laplace.dist, stats.laplace),
    "lognormal": (pm.LogNormal.dist, lambda a, b: stats.lognorm(b, scale=math.exp(a))),
    "uniform": (
        lambda a, b: pm.Uniform.dist(a, a + b),
        lambda a, b: stats.uniform(a, b),
    ),
    "beta": (pm.Beta.dist, stats.beta),
    "student": (
        lambda a, b: pm.StudentT.dist(nu=b, mu=a, sigma=b),
        lambda a, b: stats.t(b, a, b),
    ),
}
SLOW_LAWS = dict.fromkeys(("laplace", "lognormal", "uniform", "beta", "student"), pytest.mark.slow)
LEVELS = (1e-12, 1e-8, 1e-4, 0.01, 0.1, 0.3, 0.7, 0.9, 0.99, 1 - 1e-4, 1 - 1e-8)


def by_quad_of(law, noise, y, low, high, scale):
    """Integrate over the record, by parts: a density may be infinite, its cdf is at most one."""
    density = kernel(noise, scale)
    slope = {
        "laplace": lambda t: -np.sign(t) / scale * density(t),
        "gaussian": lambda t: -t / scale**2 * density(t),
    }[noise]
    cuts = [*law.ppf(LEVELS), *law.support(), *(y + k * scale for k in (-8, -3, -1, 0, 1, 3, 8))]
    ends = sorted({low, high, *(float(c) for c in cuts if low < c < high)})
    inside = [
        integrate.quad(lambda x: law.cdf(x) * slope(y - x), a, b, epsabs=0, epsrel=1e-12)[0]
        for a, b in itertools.pairwise(ends)
    ]
    return math.log(density(y - high) + sum(inside))


@pytest.mark.filterwarnings("ignore::scipy.integrate.IntegrationWarning")
@pytest.mark.parametrize("name", [pytest.param(n, marks=SLOW_LAWS.get(n, ())) for n in LAWS])
def test_other_laws_against_quadrature(name, request):
    """Density and gradient: one law for all users, a law for each, and both kinds of noise."""
    rng = np.random.default_rng(seed_of(request))
    law, reference = LAWS[name]
    a, b = np.exp(0.6 * rng.normal(size=(2, 6)))
    y = np.array([-2.5, 0.05, 0.4, 0.9, 1.8, 6.0])
    low, high = 0.1, 1.7
    p, q, release = pt.dvector("p"), pt.dvector("q"), pt.specify_shape(pt.dvector("y"), 6)
    for noise, given in NOISES.items():
        for alike in (True, False):
            made = law(p[0], q[0]) if alike else law(p, q)
            ends = {"lower": low, "upper": high} if alike else {"lower": [low] * 6, "upper": high}
            rv = pmp.NoisyRecord.dist(made, given(scale=0.7), shape=(6,), **ends)
            logs = pm.logp(rv, release)
            gradient = pytensor.grad(logs.sum(), [p, q], disconnected_inputs="ignore")
            function = pytensor.function([release.owner.inputs[0], p, q], [logs, *gradient])
            found, *slopes = function(y, a, b)
            at = [(a[0], b[0]) if alike else pair for pair in zip(a, b, strict=True)] * 6
            wanted = [by_quad_of(reference(*at[t]), noise, y[t], low, high, 0.7) for t in range(6)]
            np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-7)
            for k, slope in enumerate(slopes):
                step = np.zeros((2, 6))
                step[k, 0] = 1e-4
                moved = [function(y, *(np.array([a, b]) + s * step))[0].sum() for s in (1, -1)]
                assert slope[0] == pytest.approx((moved[0] - moved[1]) / 2e-4, abs=2e-5)


@pytest.mark.filterwarnings("ignore::scipy.integrate.IntegrationWarning")
def test_records_of_all_widths_are_integrated(request):
    """From 1e-4 to 1e4 times as wide as the interval, with a gradient that is finite."""
    mean = pt.dvector("mean")
    law = pm.Exponential.dist(1 / mean[0])
    y = np.array([-0.3, 0.2, 0.31, 0.9, 2.0])
    for noise, given in NOISES.items():
        release = pmp.NoisyRecord.dist(law, given(scale=0.4), lower=0.3, upper=1.0, shape=(5,))
        logs = pm.logp(release, y)
        function = pytensor.function([mean], [logs, pytensor.grad(logs.sum(), mean)])
        for width in 10.0 ** np.arange(-4, 5):
            found, slope = function([0.7 * width])
            expon = stats.expon(scale=0.7 * width)
            wanted = [by_quad_of(expon, noise, one, 0.3, 1.0, 0.4) for one in y]
            np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-7)
            assert np.isfinite(slope).all()


def of_exponentials(logs, y, high, scale):
    """Return what `by_quad_of` does for all logs of means and all y, under Laplace noise."""
    nodes, weights = np.polynomial.legendre.leggauss(200)
    density, cut = kernel("laplace", scale), np.clip(y, 0, high)[:, None]
    total = density(y - high)
    for low, up in ((0.0, cut), (cut, high)):
        x = (low + up) / 2 + (up - low) / 2 * nodes
        t = y[:, None] - x
        slope = -np.sign(t) / scale * density(t) * weights * (up - low) / 2
        total = total - (np.expm1(-x * np.exp(-logs)[:, None, None]) * slope).sum(axis=-1)
    return np.log(total)


@pytest.mark.slow
def test_posterior_of_another_law_against_a_grid(request):
    """The rate of exponential records under NUTS; with smaller noise the reference disagrees."""
    rng = np.random.default_rng(seed_of(request))
    mechanism = pmp.Laplace(scale=1.0)
    y = mechanism.simulate(rng, np.clip(rng.exponential(1.5, 40), 0, 2))
    with pm.Model():
        law = pm.Exponential.dist(1 / pm.LogNormal("mean", 0, 1))
        pmp.NoisyRecord("y", law, mechanism, lower=0, upper=2, observed=y)
        posterior = pm.sample(
            2000, tune=500, chains=2, cores=1, random_seed=1, progressbar=False
        ).posterior
    logs = np.linspace(-4, 5, 600)
    by_hand = by_quad_of(stats.expon(scale=math.exp(logs[7])), "laplace", y[3], 0.0, 2.0, 1.0)
    assert of_exponentials(logs[7:8], y[3:4], 2.0, 1.0)[0, 0] == pytest.approx(by_hand, abs=1e-9)

    def law_of(scale):
        total = stats.norm.logpdf(logs) + of_exponentials(logs, y, 2.0, scale).sum(axis=1)
        return Tabulated(logs, np.exp(total - special.logsumexp(total)))

    drawn = np.log(posterior["mean"].values)
    assert_law(drawn, law_of(1.0), what="mean")
    with pytest.raises(AssertionError):
        assert_law(drawn, law_of(0.5), what="mean")


# -- posteriors against a grid ---------------------------------------------------------------------

ENDS = (-1.0, 2.0)
SCALES = {"laplace": 1.5, "gaussian": 1.2}


def released(noise, size=30):
    rng = np.random.default_rng(7)
    mechanism = NOISES[noise](scale=SCALES[noise])
    return mechanism, mechanism.simulate(rng, np.clip(rng.normal(0.8, 1.3, size), *ENDS))


class Grid:
    """The posterior of mu and log sigma on a grid, made with none of the library."""

    def __init__(self, noise, y, size=1.0):
        self.mu, log_sd = np.linspace(-6, 7, 141), np.linspace(-4, 2.5, 121)
        m, s = np.meshgrid(self.mu, np.exp(log_sd), indexing="ij")
        logs = stats.norm(0, 2).logpdf(m) + stats.halfnorm(0, 2).logpdf(s) + log_sd
        x, w = np.polynomial.legendre.leggauss(60)
        density = kernel(noise, SCALES[noise] * size)
        low, high = ENDS
        for one in y:
            cuts = sorted({low, high, min(max(one, low), high)})
            total = stats.norm.cdf(low, m, s) * density(one - low)
            total += stats.norm.sf(high, m, s) * density(one - high)
            for a, b in itertools.pairwise(cuts):
                # Panels of a narrow law are too long for the rule, and masses are known.
                ends = np.linspace(a, b, 9)
                for left, right in itertools.pairwise(ends):
                    at = left + (right - left) * (1 + x) / 2
                    f = stats.norm.pdf(at[:, None, None], m, s)
                    part = np.tensordot(w * density(one - at), f, 1) * (right - left) / 2
                    total += part
            logs += np.log(total)
        self.weights = np.exp(logs - special.logsumexp(logs))
        self.m, self.s = m, s

    def law(self, name):
        values = self.mu if name == "mu" else self.s[0]
        return Tabulated(values, self.weights.sum(axis=1 if name == "mu" else 0))


class Tabulated:
    def __init__(self, values, weights):
        self.values, self.weights = values, weights

    def mean(self):
        return self.values @ self.weights

    def sd(self):
        return math.sqrt((self.values - self.mean()) ** 2 @ self.weights)

    def cdf(self, at):
        # The middle of each cell has half of its mass below.
        return np.interp(at, self.values, np.cumsum(self.weights) - 0.5 * self.weights)

    def quantile(self, level):
        return np.interp(level, np.cumsum(self.weights) - 0.5 * self.weights, self.values)


def written(noise, mechanism, y, kind):
    with pm.Model() as model:
        mu, sigma = pm.Normal("mu", 0, 2), pm.HalfNormal("sigma", 2)
        if kind == "distribution":
            law = pm.Normal.dist(mu, sigma)
            pmp.NoisyRecord("y", law, mechanism, lower=ENDS[0], upper=ENDS[1], observed=y)
        else:
            x = pm.Normal("x", mu, sigma, shape=len(y))
            pmp.Privatized("y", pt.clip(x, *ENDS), mechanism, local=True, observed=y)
    return model


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["distribution", "privatized", "privatized, kept"])
@each_noise
def test_posterior_against_a_grid(noise, kind, request):
    mechanism, y = released(noise)
    with written(noise, mechanism, y, kind):
        draw = pm.sample if kind == "distribution" else pmp.sample
        more = {"keep_records": True} if kind.endswith("kept") else {}
        posterior = draw(
            2500,
            tune=800,
            chains=2,
            random_seed=seed_of(request),
            progressbar=False,
            cores=1,
            **more,
        ).posterior
    grid = Grid(noise, y)
    for name in ("mu", "sigma"):
        assert_law(posterior[name].values, grid.law(name), what=name)
    broken = Grid(noise, y, size=1 / math.sqrt(2))
    with pytest.raises(AssertionError):
        assert_law(posterior["sigma"].values, broken.law("sigma"), what="sigma")
    if more:
        # Of one record: its mean given parameters, and its product with mu, over the grid.
        t = 3
        x = np.linspace(-12, 14, 2601)
        kept = kernel(noise, SCALES[noise])(y[t] - np.clip(x, *ENDS))
        f = stats.norm.pdf(x[:, None], grid.m.ravel(), grid.s.ravel())
        means = ((x * kept) @ f / (kept @ f)).reshape(grid.m.shape)
        wanted = np.sum(means * grid.weights), np.sum(means * grid.m * grid.weights)
        found = posterior["x"].values[..., t]
        assert_mean(found, wanted[0], what="a record")
        assert_mean(found * posterior["mu"].values, wanted[1], what="a record times mu")


# -- the step that sums them out -------------------------------------------------------------------


def anew(noise, *, write=lambda x: pt.clip(x, *ENDS), size=12):
    with pm.Model() as model:
        mu, sigma = pm.Normal("mu", 0, 1), pm.LogNormal("sigma", 0, 0.5)
        x = pm.Normal("x", mu, sigma, shape=size)
        data = pm.Data("data", np.zeros(size))
        mechanism = NOISES[noise](scale=SCALES[noise])
        pmp.Privatized("y", write(x), mechanism, local=True, observed=data)
    return model, mechanism


PRIORS = {"mu": stats.norm(0, 1), "sigma": stats.lognorm(0.5)}


def geweke(noise, seed, rounds=4000):
    model, mechanism = anew(noise)
    step = pmp.Interweave(model=model, rng=seed)
    assert step._program.sums_out

    def publish(rng, point):
        model["data"].set_value(mechanism.simulate(rng, np.clip(point["x"], *ENDS)))
        step.forget()

    return largest_z(
        successive(model, PRIORS, step, publish=publish, seed=seed, rounds=rounds), PRIORS
    )


@pytest.mark.slow
@each_noise
def test_geweke_parameters_keep_their_prior(noise, request):
    assert geweke(noise, seed_of(request)) < Z_LIMIT


def smaller(function):
    """Return a twin that takes the noise for smaller than it is."""

    def twin(release, clipped, mechanism, mu, sd):
        return function(release, clipped, type(mechanism)(scale=mechanism.scale / 2**0.5), mu, sd)

    return twin


@pytest.mark.slow
def test_geweke_sees_noise_that_is_too_small(monkeypatch, request):
    twin = smaller(clipped_records.log_density_in_closed_form)
    monkeypatch.setattr(clipped_records, "log_density_in_closed_form", twin)
    monkeypatch.setattr("pymc_privacy.certificate.base.Comparison.agrees", True)
    assert geweke("laplace", seed_of(request)) > Z_LIMIT


@pytest.mark.slow
def test_a_density_that_disagrees_with_the_model_gives_way(monkeypatch, caplog):
    twin = smaller(clipped_records.log_density_in_closed_form)
    monkeypatch.setattr(clipped_records, "log_density_in_closed_form", twin)
    step = pmp.Interweave(model=anew("laplace")[0], rng=1)
    assert not step._program.sums_out
    assert "summed out" in caplog.text


@pytest.mark.slow
def test_draws_that_disagree_with_the_model_are_noticed(monkeypatch, caplog):
    def twin(rng, release, clipped, mechanism, mu, sd):
        return pt.random.normal(mu, sd, size=(release.shape[0],), rng=rng)

    monkeypatch.setattr(clipped_records, "records_in_closed_form", twin)
    with pytest.raises(pmp.errors.CertificateError, match="drawn given all"):
        pmp.Interweave(model=anew("laplace", size=400)[0], rng=1)
    assert "in each cell" in caplog.text


@pytest.mark.parametrize("kept", [True, False])
def test_records_are_drawn_where_somebody_looks_at_them(kept):
    with anew("laplace")[0] as model:
        if kept:
            pm.Deterministic("largest", model["x"].max())
        result = pmp.sample(**SHORT)
    drawn = np.isfinite(result.sample_stats["record_sweep_accept"].values).all()
    assert drawn == kept


def test_records_are_drawn_where_another_step_moves_a_parameter_of_theirs():
    """A discrete parameter is drawn given the records: as they were at the start, it would stay."""
    with pm.Model():
        shifted, mu = pm.Bernoulli("shifted", 0.5), pm.Normal("mu")
        x = pm.Normal("x", mu + 2 * shifted, 1.0, shape=5)
        given = {"local": True, "observed": [2.5, 1.0, 3.2, -0.5, 1.7]}
        pmp.Privatized("y", pt.clip(x, -2, 3), pmp.Laplace(scale=0.7), **given)
        step = pmp.Interweave()
        result = pmp.sample(step=step, **SHORT)
        assert np.isfinite(result.sample_stats["record_sweep_accept"].values).all()
    assert not step.leaves_records


NOT_SUMMED = {
    "something else than clipped": lambda x: 2 * pt.clip(x, -1, 1),
    "a smooth function": pt.tanh,
}


@pytest.mark.parametrize("name", NOT_SUMMED)
def test_what_is_not_summed_out(name):
    model, _ = anew("laplace", write=NOT_SUMMED[name])
    assert summed_out(model, find_databases(model)) is None


def test_records_that_something_else_is_known_of_are_not_summed_out():
    model, mechanism = anew("laplace")
    with model:
        pm.Normal("seen", model["x"], 1, observed=np.zeros(12))
    assert summed_out(model, find_databases(model)) is None
    model, mechanism = anew("laplace")
    with model:
        pmp.Privatized("total", model["x"], mechanism, observed=3.0)
    assert summed_out(model, find_databases(model)) is None


def test_many_records_with_little_noise_are_imputed(monkeypatch):
    monkeypatch.setattr(clipped_records, "many_records", 10)
    wide, narrow = anew("laplace")[0], anew("laplace", write=lambda x: pt.clip(x, -30, 30))[0]
    assert summed_out(wide, find_databases(wide)) is not None
    assert summed_out(narrow, find_databases(narrow)) is None


@pytest.mark.parametrize(
    "write",
    [lambda x: x, lambda x: pt.clip(x, np.linspace(-3, -1, 12), INF)],
    ids=["as is", "rows"],
)
def test_intervals_of_all_kinds_are_summed_out(write):
    model, _ = anew("gaussian", write=write)
    assert pmp.Interweave(model=model, rng=1)._program.sums_out


@pytest.mark.slow
def test_the_likelihood_is_maximised_without_imputation():
    mechanism, y = released("laplace", 200)
    with pm.Model():
        mu, sigma = pm.Normal("mu", 0, 2), pm.HalfNormal("sigma", 2)
        x = pm.Normal("x", mu, sigma, shape=len(y))
        pmp.Privatized("y", pt.clip(x, *ENDS), mechanism, local=True, observed=y)
        found = pmp.maximum_likelihood(random_seed=1, progressbar=False)

    def loss(q):
        return -sum(
            clipped_normal.laplace_slopes(one, *ENDS, SCALES["laplace"], q[0], math.exp(q[1]))[0]
            for one in y
        )

    from scipy.optimize import minimize

    best = minimize(loss, [0.5, 0.0], method="Nelder-Mead", options={"xatol": 1e-6}).x
    assert float(found.estimate["mu"]) == pytest.approx(best[0], abs=1e-3)
    assert float(found.estimate["sigma"]) == pytest.approx(math.exp(best[1]), abs=1e-3)
    assert float(found.log_likelihood) == pytest.approx(-loss(best), abs=1e-4)


# -- the distribution in a model -------------------------------------------------------------------


def test_releases_may_be_data_that_are_set_anew_and_those_of_one_user():
    """Another number of releases, with covariates: each has the density that is known of it."""
    with pm.Model() as model:
        mu, sd = pm.Normal("mu"), 1.3
        doses, y = pm.Data("doses", [0.5]), pm.Data("y", [0.2])
        law = pm.Normal.dist(mu + doses, sd)
        pmp.NoisyRecord("all", law, NOISES["laplace"](scale=0.7), lower=-1, upper=1, observed=y)
        alone = NOISES["gaussian"](scale=0.7)
        pmp.NoisyRecord("one", pm.Normal.dist(mu, sd), alone, upper=1, observed=[0.2])
    densities = model.compile_logp(vars=[model["all"], model["one"]], sum=False)
    wanted = by_quad("gaussian", 0.2, -INF, 1, 0.7, 0.4, sd)
    for given in ([0.5], [0.5, -1.0, 2.0]):
        releases = np.linspace(0.2, 3.0, len(given))
        with model:
            pm.set_data({"doses": given, "y": releases})
        found, one = densities({"mu": 0.4})
        each = [
            by_quad("laplace", r, -1, 1, 0.7, 0.4 + d, sd)
            for r, d in zip(releases, given, strict=True)
        ]
        np.testing.assert_allclose(found, each, atol=1e-9)
        np.testing.assert_allclose(one, [wanted], atol=1e-9)


def test_it_is_a_distribution_like_others():
    mechanism, y = released("laplace")
    with written("laplace", mechanism, y, "distribution") as model:
        assert model.free_RVs == [model["mu"], model["sigma"]]
        prior = pm.sample_prior_predictive(500, random_seed=1)
        result = pm.sample(step=NUTS(), **SHORT)
        predicted = pm.sample_posterior_predictive(result, random_seed=1, progressbar=False)
        assert pmp.sample(**SHORT).privacy["local"].item()
    assert predicted.posterior_predictive["y"].shape[-1] == len(y)
    # Half of the noise is on each side of a record that is between the ends.
    share = np.mean(
        (prior.prior_predictive["y"] > ENDS[0]) & (prior.prior_predictive["y"] < ENDS[1])
    )
    assert 0.2 < share < 0.7
    assert pm.draw(model["y"], random_seed=1).tolist() != y.tolist()


@pytest.mark.parametrize("ends", [{"lower": -1.0}, {"upper": 0.5}])
@each_noise
def test_intervals_with_one_end(noise, ends):
    y = np.array([-3.0, 0.2, 4.0])
    with pm.Model() as model:
        given = NOISES[noise](scale=0.8)
        pmp.NoisyRecord("y", pm.Normal.dist(0.1, 1.3), given, observed=y, **ends)
    both = {"lower": -INF, "upper": INF} | ends
    wanted = sum(by_quad(noise, one, *both.values(), 0.8, 0.1, 1.3) for one in y)
    assert model.compile_logp()({}) == pytest.approx(wanted, abs=1e-9)


LAW = pm.Normal.dist(0.0, 1.0)
REFUSED = {
    "a law of counts": ({"dist": pm.Poisson.dist(3.0)}, RecordError),
    "a law without a cdf": ({"dist": pm.SkewNormal.dist(mu=0, sigma=1, alpha=1)}, RecordError),
    "a law of parts": ({"dist": pm.Weibull.dist(2.0, 1.0)}, RecordError),
    "a law of vectors": ({"dist": pm.Dirichlet.dist(np.ones(3))}, RecordError),
    "no interval for a law that is not Normal": ({"dist": pm.Gamma.dist(2.0, 1.0)}, ReleaseError),
    "a number": ({"dist": 3.0}, RecordError),
    "whole noise": ({"mechanism": pmp.DiscreteLaplace(scale=1.0)}, MechanismError),
    "no mechanism": ({"mechanism": 1.0}, MechanismError),
    "ends in the wrong order": ({"lower": 2.0, "upper": 1.0}, ReleaseError),
    "an end that is none": ({"lower": np.nan}, ReleaseError),
    "a matrix": ({"observed": np.zeros((2, 2))}, ReleaseError),
    "a number for many": ({"observed": 3.0}, ReleaseError),
    "a release that is none": ({"observed": [1.0, np.nan]}, ReleaseError),
    "lengths that differ": ({"observed": np.zeros(3), "lower": np.zeros(2)}, PrivacyError),
    "ragged lists": ({"observed": [[1.0], [2.0, 3.0]]}, ReleaseError),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_refused(name):
    given, error = REFUSED[name]
    arguments = {"dist": LAW, "mechanism": pmp.Laplace(scale=1.0), "observed": [1.0, 2.0]} | given
    with pm.Model(), pytest.raises(error):
        pmp.NoisyRecord("y", **arguments)
