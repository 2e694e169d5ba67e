"""One tiny model of each structure, and a short chain of it."""

import warnings

import numpy as np
import pymc as pm
import pytensor.tensor as pt

import pymc_privacy as pmp

MODELS = {}
ITERATIONS = 20  # of tuning, and kept


def model(write):
    MODELS[write.__name__] = write
    return write


def with_square(x):
    return pt.stack([x, x**2], axis=1)


@model
def coins():
    p = pm.Beta("p", 2, 2)
    x = pm.Bernoulli("x", p, shape=10)
    pmp.Privatized("s", x, pmp.Laplace(scale=2.0), observed=6.0)


@model
def normals():
    mu, sigma = pm.Normal("mu"), pm.HalfNormal("sigma")
    x = pm.Normal("x", mu, sigma, shape=10)
    pmp.Privatized("s", with_square(x), pmp.Gaussian(scale=1.0), observed=[3.0, 14.0])


@model
def groups():
    group = np.array([0, 2, 1, 0, 2, 2, 0, 2, 1, 2])
    mu = pm.Normal("mu")
    theta = pm.Normal("theta", mu, 1.0, shape=3)
    x = pm.Normal("x", theta[group], 1.0, shape=10)
    pmp.Privatized("s", x, pmp.Laplace(scale=2.0), by=group, observed=[3.0, -1.0, 2.0])


@model
def regression():
    mu, slope = pm.Normal("mu"), pm.Normal("slope", 0, 2, shape=2)
    sigma = pm.HalfNormal("sigma")
    x = pm.Normal("x", mu, 1.0, shape=10)
    y = pm.Normal("y", slope[0] + slope[1] * x, sigma, shape=10)
    sums = pt.stack([x.clip(-3, 3), (x * y).clip(-9, 9), (y**2).clip(0, 9)], axis=1)
    pmp.Privatized("s", sums, pmp.Laplace(scale=3.0), observed=[1.0, 4.0, 12.0])


@model
def vectors():
    mu = pm.Normal("mu", shape=2)
    covariance = np.array([[1.0, 0.3], [0.3, 2.0]])
    x = pm.MvNormal("x", mu, covariance, shape=(8, 2))
    pmp.Privatized("s", x, pmp.Gaussian(scale=1.0), observed=[3.0, -2.0])


@model
def categories():
    p = pm.Dirichlet("p", np.ones(3))
    x = pm.Categorical("x", p, shape=12)
    hot = pt.stack([pt.eq(x, k) for k in range(3)], axis=1)
    pmp.Privatized("s", hot, pmp.DiscreteLaplace(scale=2.0), observed=[5, 2, 6])


@model
def gammas():
    alpha, beta = pm.Gamma("alpha", 2, 1), pm.Gamma("beta", 2, 1)
    x = pm.Gamma("x", alpha, beta, shape=10)
    pmp.Privatized("s", x.clip(0, 10), pmp.Laplace(scale=2.0), observed=12.0)


@model
def mixture():
    mu = pm.Normal("mu", [-2.0, 2.0], 1.0, shape=2)
    x = pm.NormalMixture("x", w=[0.4, 0.6], mu=mu, sigma=0.5, shape=10)
    pmp.Privatized("s", with_square(x), pmp.Gaussian(scale=2.0), observed=[3.0, 40.0])


@model
def no_form():
    mu = pm.Normal("mu")
    x = pm.VonMises("x", mu, 2.0, shape=8)
    pmp.Privatized("s", x, pmp.Laplace(scale=1.0), observed=2.0)


@model
def local_answers():
    p = pm.Beta("p", 2, 2)
    x = pm.Bernoulli("x", p, shape=10)
    answers = np.array([0, 1, 1, 0, 1, 1, 0, 1, 0, 1])
    pmp.Privatized("s", x, pmp.RandomizedResponse(epsilon=1.0), local=True, observed=answers)


@model
def local_noise():
    mu = pm.Normal("mu")
    x = pm.Normal("x", mu, 1.0, shape=6)
    answers = np.array([0.3, -1.0, 2.0, 1.0, 0.0, 4.0])
    pmp.Privatized("s", x, pmp.Laplace(scale=1.0), local=True, observed=answers)


@model
def counted():
    p, q = pm.Beta("p", 2, 2), pm.Beta("q", 2, 2, shape=2)
    x = pm.Bernoulli("x", p, shape=4000)
    y = pm.Bernoulli("y", q[x], shape=4000)
    sums = pt.stack([x, y, x * y], axis=1)
    pmp.Privatized("s", sums, pmp.Laplace(scale=3.0), observed=[2100.0, 1500.0, 900.0])


@model
def two_databases():
    mu = pm.Normal("mu")
    x = pm.Normal("x", mu, 1.0, shape=5)
    y = pm.Poisson("y", pt.exp(mu), shape=7)
    pmp.Privatized("s", x, pmp.Gaussian(scale=1.0), observed=2.0)
    pmp.Privatized("t", y, pmp.DiscreteGaussian(scale=2.0), observed=9)


@model
def many_parameters():
    mu = pm.Normal("mu", shape=40)
    sigma = pm.HalfNormal("sigma")
    x = pm.Normal("x", mu, sigma, shape=40)
    pmp.Privatized("s", x, pmp.Gaussian(scale=1.0), observed=10.0)


@model
def discrete_parameter():
    k = pm.Poisson("k", 3.0)
    x = pm.Normal("x", k, 1.0, shape=8)
    pmp.Privatized("s", x, pmp.Gaussian(scale=1.0), observed=10.0)


@model
def unknown_size():
    mu = pm.Normal("mu")
    n = pm.Poisson("n", 8.0)
    x = pmp.Records("x", pm.Normal.dist(mu, 1.0), size=n, capacity=40)
    pmp.Privatized("s", x, pmp.Laplace(scale=1.0), observed=6.0)
    pmp.Privatized("n_dp", n, pmp.Laplace(scale=1.0), observed=9.0)


@model
def measured_counts():
    rate = pm.Gamma("rate", 2.0, 0.3, shape=2)
    count = pm.Poisson("count", pt.stack([rate[0], rate[0], rate[1]]))
    pmp.LinearMeasurements(
        "blocks",
        count,
        np.eye(3, dtype=int),
        pmp.DiscreteGaussian(scale=3.0),
        observed=[4, 7, 3],
        invariants=([[1, 1, 1]], [15]),
    )


@model
def noisy_counts():
    rate = pm.Gamma("rate", 2.0, 0.3)
    pmp.NoisyCount("y", pm.Poisson.dist(rate), pmp.DiscreteLaplace(scale=2.0), observed=[4, 9, -1])


def draws_of(name, seed=1):
    """Return, for every variable of a short chain, its mean, its mean square and its last mean."""
    with pm.Model(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # chains this short do not converge
        MODELS[name]()
        result = pmp.sample(
            ITERATIONS,
            tune=ITERATIONS,
            chains=1,
            cores=1,
            random_seed=seed,
            progressbar=False,
            keep_records=True,
        )
    posterior = result["posterior"].dataset
    draws = {key: np.asarray(posterior[key].values[0], float) for key in posterior.data_vars}
    return {
        str(key): [float(np.nanmean(x)), float(np.nanmean(x**2)), float(np.nanmean(x[-1]))]
        for key, x in sorted(draws.items())
    }
