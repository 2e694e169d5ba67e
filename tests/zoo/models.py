"""Models by composition: where a parameter comes from, law, contributions, mechanism, and more.

Each part is one function or one line, and every new line becomes part of several models. A
source returns real numbers, one for all records or one for each; a law makes records of them;
``shift`` is another real parameter, for whatever else a law needs.
"""

from dataclasses import dataclass
from itertools import cycle, islice

import numpy as np
import pymc as pm
import pytensor.tensor as pt

import pymc_privacy as pmp

SIZE = 6
GROUPS = np.array([0, 1, 2, 0, 1, 2])
COVARIATE = np.linspace(-1.2, 1.4, SIZE)
DESIGN = np.column_stack([np.ones(SIZE), COVARIATE, np.cos(np.arange(SIZE))])


# Where the parameters of the records come from.
def scalar():
    return pm.Normal("a")


def vector_by_index():
    return pm.Normal("a", shape=3)[GROUPS]


def negative_index():
    return pm.Normal("a", shape=3)[np.array([-1, -2, -3, -3, -1, -2])]


def mixed_index():
    return pm.Normal("a", shape=4)[np.array([0, -1, 2, -3, 1, -2])]


def rows_of_a_table():
    return pm.Normal("a", shape=(3, 2))[GROUPS, np.array([0, 1, 1, 0, 0, 1])]


def matrix_product():
    return DESIGN @ pm.Normal("a", shape=3)


def linear():
    return pm.Normal("a") + pm.Normal("b") * COVARIATE


def public_data():
    return pm.Normal("a") + pm.Normal("b") * pm.Data("covariate", COVARIATE)


def random_walk():
    return pm.GaussianRandomWalk("a", sigma=0.5, init_dist=pm.Normal.dist(), steps=SIZE - 1)


def random_walk_of_unknown_pace():
    pace = pm.HalfNormal("pace")
    return pm.GaussianRandomWalk("a", sigma=pace, init_dist=pm.Normal.dist(), steps=SIZE - 1)


def autoregression():
    return pm.AR("a", [0.6], sigma=0.5, init_dist=pm.Normal.dist(), steps=SIZE - 1)


def normal_vector():
    return pm.MvNormal("a", np.zeros(SIZE), np.eye(SIZE) + 0.3)


def student_vector():
    return pm.MvStudentT("a", nu=5, mu=np.zeros(SIZE), scale=np.eye(SIZE) + 0.3)


def neighbours():
    ring = np.roll(np.eye(SIZE), 1, axis=1)
    return pm.CAR("a", mu=np.zeros(SIZE), W=ring + ring.T, alpha=0.5, tau=1.0)


def matrix_normal():
    return pm.MatrixNormal("a", mu=np.zeros((2, SIZE)), rowcov=np.eye(2), colcov=np.eye(SIZE))[0]


def rows_beside_each_other():
    return pm.Normal("a", shape=(2, SIZE))[1]


def columns_beside_each_other():
    return pm.Normal("a", shape=(SIZE, 2)).sum(axis=1)


def gaussian_process():
    covariance = pm.gp.cov.ExpQuad(1, ls=pm.Gamma("a", 5, 5))
    return pm.gp.Latent(cov_func=covariance).prior("process", COVARIATE[:, None])


def hierarchy():
    centre, spread = pm.Normal("a"), pm.HalfNormal("spread")
    return pm.Normal("effects", centre, spread, shape=3)[GROUPS]


def standardised_hierarchy():
    centre, spread = pm.Normal("a"), pm.HalfNormal("spread")
    return centre + spread * pm.Normal("effects", shape=3)[GROUPS]


def effect_of_each_record():
    return pm.Normal("a", pm.Normal("centre"), 0.7, shape=SIZE)


def simplex():
    return 2 * pm.Dirichlet("a", np.array([1.0, 2.0, 3.0]))[GROUPS] - 0.5


def ordered():
    start = np.array([-1.0, 0.0, 1.0])
    transform = pm.distributions.transforms.ordered
    return pm.Normal("a", start, 1.0, transform=transform, initval=start)[GROUPS]


def correlated():
    factor, _, _ = pm.LKJCholeskyCov(
        "a", n=3, eta=2.0, sd_dist=pm.HalfNormal.dist(1.0, shape=3), compute_corr=True
    )
    return (factor @ pm.Normal("effects", shape=3))[GROUPS]


def zero_sum():
    return pm.Normal("a") + pm.ZeroSumNormal("effects", 1.0, shape=3)[GROUPS]


def another_record():
    z = pm.Normal("z", pm.Normal("a"), 1.0, shape=SIZE)
    return pm.Normal("b") * z


def a_record_that_looks_up():
    z = pm.Categorical("z", np.array([0.2, 0.5, 0.3]), shape=SIZE)
    return pm.Normal("a", shape=3)[z]


def a_record_that_looks_up_from_the_end():
    z = pm.Categorical("z", np.array([0.2, 0.3, 0.1, 0.4]), shape=SIZE)
    return pm.Normal("a", shape=4)[z - 2]


def a_record_that_chooses():
    z = pm.Bernoulli("z", pm.Beta("q", 2, 2), shape=SIZE)
    return pt.switch(z, pm.Normal("a"), pm.Normal("b"))


def rounded():
    return pt.floor(2 * pm.Normal("a") + COVARIATE) / 2


def cast_to_integers():
    z = pm.Normal("z", shape=SIZE)
    return pt.cast(2 * (pm.Normal("a") + z), "int64") / 4


def truth_values_added_up():
    z = pm.Normal("z", shape=(SIZE, 3))
    return pm.Normal("a") * (z > 0).sum(axis=1)


def a_choice_of_the_parameters():
    a = pm.Normal("a")
    return pt.switch(a > 0, a, -3.0 * a) * COVARIATE


def a_power_of_a_parameter():
    return pm.HalfNormal("a") ** 1.5 - COVARIATE**2


def a_flat_prior():
    return pm.Flat("a", initval=0.2) + 0 * COVARIATE


def a_prior_without_draws():
    return pm.CustomDist("a", logp=lambda value: -0.5 * value**2)


def a_discrete_parameter():
    return pm.Normal("a") + 0.3 * pm.Poisson("held", 2.0)


def far_from_zero():
    return 1e6 * pm.Normal("a")


SOURCES = [
    scalar,
    vector_by_index,
    negative_index,
    mixed_index,
    rows_of_a_table,
    matrix_product,
    linear,
    public_data,
    random_walk,
    random_walk_of_unknown_pace,
    autoregression,
    normal_vector,
    student_vector,
    neighbours,
    matrix_normal,
    rows_beside_each_other,
    columns_beside_each_other,
    gaussian_process,
    hierarchy,
    standardised_hierarchy,
    effect_of_each_record,
    simplex,
    ordered,
    correlated,
    zero_sum,
    another_record,
    a_record_that_looks_up,
    a_record_that_looks_up_from_the_end,
    a_record_that_chooses,
    rounded,
    cast_to_integers,
    truth_values_added_up,
    a_choice_of_the_parameters,
    a_power_of_a_parameter,
    a_flat_prior,
    a_prior_without_draws,
    a_discrete_parameter,
    far_from_zero,
]


def positive(a):
    """A positive number that is never far from one."""
    return pt.exp(pt.clip(a, -2, 2))


def share(a):
    return 0.05 + 0.9 * pm.math.sigmoid(a)


def shares(a):
    """Three shares, for all records or for each."""
    scores = pt.stack([pt.zeros_like(a), a, -0.5 * a], axis=-1)
    return pm.math.softmax(scores, axis=-1)


# Laws of real and positive records, and of integers.
REAL = {
    "Normal": lambda a: pm.Normal("x", a, 1.3, shape=SIZE),
    "Normal of unknown scale": lambda a: pm.Normal("x", a, pm.HalfNormal("scale"), shape=SIZE),
    "Normal, scale from the source": lambda a: pm.Normal("x", 0.4, positive(a), shape=SIZE),
    "StudentT": lambda a: pm.StudentT("x", nu=4.0, mu=a, sigma=1.1, shape=SIZE),
    "StudentT of unknown degrees": lambda a: pm.StudentT(
        "x", nu=pm.Gamma("nu", 3, 1), mu=a, sigma=1.1, shape=SIZE
    ),
    "Laplace": lambda a: pm.Laplace("x", a, 0.8, shape=SIZE),
    "Logistic": lambda a: pm.Logistic("x", a, 0.6, shape=SIZE),
    "Cauchy": lambda a: pm.Cauchy("x", a, 0.3, shape=SIZE),
    "Gumbel": lambda a: pm.Gumbel("x", a, 0.7, shape=SIZE),
    "SkewNormal": lambda a: pm.SkewNormal("x", mu=a, sigma=1.0, alpha=2.0, shape=SIZE),
    "Moyal": lambda a: pm.Moyal("x", a, 1.0, shape=SIZE),
    "ExGaussian": lambda a: pm.ExGaussian("x", mu=a, sigma=0.5, nu=1.0, shape=SIZE),
    "AsymmetricLaplace": lambda a: pm.AsymmetricLaplace("x", kappa=1.4, mu=a, b=1.1, shape=SIZE),
    "Uniform": lambda a: pm.Uniform("x", a - 1, a + 2, shape=SIZE),
    "Triangular": lambda a: pm.Triangular("x", lower=a - 1, c=a, upper=a + 1, shape=SIZE),
    "TruncatedNormal": lambda a: pm.TruncatedNormal("x", a, 0.7, lower=-1, upper=3, shape=SIZE),
    "TruncatedNormal, one side": lambda a: pm.TruncatedNormal("x", a, 0.7, lower=0, shape=SIZE),
    "NormalMixture": lambda a: pm.NormalMixture(
        "x",
        w=pm.Dirichlet("w", np.ones(2)),
        mu=pt.stack([a, a + 2], axis=-1),
        sigma=0.7,
        shape=SIZE,
    ),
    "Censored": lambda a: pm.Censored(
        "x", pm.Normal.dist(a, 1.0), lower=-1.0, upper=2.0, shape=SIZE
    ),
    "VonMises": lambda a: pm.VonMises("x", mu=pt.clip(a, -3, 3), kappa=2.0, shape=SIZE),
    "LogNormal": lambda a: pm.LogNormal("x", pt.clip(a, -3, 3), 0.6, shape=SIZE),
    "Exponential": lambda a: pm.Exponential("x", positive(a), shape=SIZE),
    "HalfNormal": lambda a: pm.HalfNormal("x", positive(a), shape=SIZE),
    "HalfCauchy": lambda a: pm.HalfCauchy("x", positive(a), shape=SIZE),
    "Gamma": lambda a: pm.Gamma("x", alpha=1 + positive(a), beta=1.3, shape=SIZE),
    "Gamma of known shape": lambda a: pm.Gamma("x", alpha=2.0, beta=positive(a), shape=SIZE),
    "InverseGamma": lambda a: pm.InverseGamma("x", alpha=2 + positive(a), beta=1.0, shape=SIZE),
    "Weibull": lambda a: pm.Weibull("x", alpha=1 + positive(a), beta=1.2, shape=SIZE),
    "Pareto": lambda a: pm.Pareto("x", alpha=2 + positive(a), m=1.0, shape=SIZE),
    "Wald": lambda a: pm.Wald("x", mu=positive(a), lam=1.5, shape=SIZE),
    "Rice": lambda a: pm.Rice("x", nu=positive(a), sigma=0.8, shape=SIZE),
    "Truncated Gamma": lambda a: pm.Truncated(
        "x", pm.Gamma.dist(2.0, positive(a)), lower=0.2, upper=4.0, shape=SIZE
    ),
    "Beta": lambda a: pm.Beta("x", alpha=1 + positive(a), beta=1.5, shape=SIZE),
    "Kumaraswamy": lambda a: pm.Kumaraswamy("x", a=1 + positive(a), b=1.5, shape=SIZE),
    "a function of a Normal": lambda a: pm.CustomDist(
        "x", a, dist=lambda a, size: pt.exp(pm.Normal.dist(a / 3, 0.5, size=size)), shape=SIZE
    ),
}
INTEGER = {
    "Bernoulli": lambda a: pm.Bernoulli("x", share(a), shape=SIZE),
    "Bernoulli by logits": lambda a: pm.Bernoulli("x", logit_p=a, shape=SIZE),
    "Categorical": lambda a: pm.Categorical("x", shares(a), shape=SIZE),
    "OrderedLogistic": lambda a: pm.OrderedLogistic(
        "x", eta=a, cutpoints=np.array([-1.0, 0.5]), compute_p=False, shape=SIZE
    ),
    "Poisson": lambda a: pm.Poisson("x", positive(a), shape=SIZE),
    "Binomial": lambda a: pm.Binomial("x", 5, share(a), shape=SIZE),
    "NegativeBinomial": lambda a: pm.NegativeBinomial("x", mu=positive(a), alpha=2.0, shape=SIZE),
    "Geometric": lambda a: pm.Geometric("x", share(a), shape=SIZE),
    "BetaBinomial": lambda a: pm.BetaBinomial("x", 1.0, positive(a), 5, shape=SIZE),
    "ZeroInflatedPoisson": lambda a: pm.ZeroInflatedPoisson("x", 0.7, positive(a), shape=SIZE),
    "Truncated Poisson": lambda a: pm.Truncated(
        "x", pm.Poisson.dist(positive(a)), lower=1, upper=9, shape=SIZE
    ),
    "DiscreteWeibull": lambda a: pm.DiscreteWeibull("x", q=share(a), beta=1.2, shape=SIZE),
}
VECTOR = {
    "MvNormal": lambda a: pm.MvNormal(
        "x", pt.stack([a, 0.5 * a], axis=-1), np.array([[1.0, 0.4], [0.4, 0.8]]), shape=(SIZE, 2)
    ),
    "MvNormal of unknown covariance": lambda a: pm.MvNormal(
        "x",
        np.zeros(2),
        pt.diag(pt.stack([positive(pt.mean(a)), pm.HalfNormal("scale") + 0.1])),
        shape=(SIZE, 2),
    ),
    "two columns": lambda a: pm.Normal(
        "x", pt.stack([a, -a], axis=-1), np.array([1.0, 2.0]), shape=(SIZE, 2)
    ),
    "Dirichlet": lambda a: pm.Dirichlet(
        "x", 0.5 + pt.stack([positive(a), positive(-a), pt.ones_like(a)], axis=-1), shape=(SIZE, 3)
    ),
    "Multinomial": lambda a: pm.Multinomial("x", 4, shares(a), shape=(SIZE, 3)),
}

# What each record contributes, of real numbers, integers and vectors.
OF_REAL = {
    "as it is": lambda x: x,
    "clipped": lambda x: pt.clip(x, -2.0, 2.0),
    "two moments": lambda x: pt.stack([pt.clip(x, -2, 2), pt.clip(x, -2, 2) ** 2], axis=1),
    "an indicator": lambda x: (x > 0.5).astype("float64"),
    "a histogram": lambda x: pt.stack([x < 0, (x >= 0) & (x < 1), x >= 1], axis=1).astype("int64"),
    "a log": lambda x: pt.log1p(abs(x)),
    "weighted": lambda x: pt.clip(x, -2, 2) * COVARIATE,
    "by a matrix": lambda x: pt.clip(x, -2, 2)[:, None] * DESIGN,
    "rounded down": lambda x: pt.floor(pt.clip(x, -3, 3)),
    "written into zeros": lambda x: pt.set_subtensor(pt.zeros((SIZE, 2))[:, 1], pt.clip(x, -1, 1)),
}
OF_INTEGERS = {
    "as it is": lambda x: x,
    "one-hot": lambda x: pt.eq(x[:, None], np.arange(3)).astype("int64"),
    "looked up": lambda x: pt.constant(np.array([0.0, 1.5, -0.5]))[pt.clip(x, 0, 2)],
    "looked up from the end": lambda x: pt.constant(np.array([2, 0, 1]))[pt.clip(x, 0, 2) - 3],
    "at most two": lambda x: pt.minimum(x, 2),
    "squared": lambda x: pt.minimum(x, 5) ** 2,
}
OF_VECTORS = {
    "as it is": lambda x: x,
    "a column": lambda x: x[:, 1],
    "a sum": lambda x: x.sum(axis=1),
    "products": lambda x: pt.stack([x[:, 0] * x[:, 1], x[:, 0] ** 2], axis=1),
    "the largest": lambda x: x.max(axis=1),
    "by a matrix": lambda x: x @ np.ones((x.type.shape[1], 2)),
}

MECHANISMS = {
    "Laplace": pmp.Laplace(scale=3.0),
    "Gaussian": pmp.Gaussian(scale=3.0),
    "Laplace rounded": pmp.Rounded(mechanism=pmp.Laplace(scale=3.0), to=1.0),
    "a law of one's own": pmp.CustomMechanism(
        log_density_function=lambda release, statistic: -pt.log1p(((release - statistic) / 3) ** 2)
    ),
}
OF_COUNTS = MECHANISMS | {
    "DiscreteLaplace": pmp.DiscreteLaplace(scale=3.0),
    "DiscreteGaussian": pmp.DiscreteGaussian(scale=3.0),
}


# What else a model says.
def nothing(x):
    return None


def a_parameter():
    """Return one that is not a record."""
    return next(rv for rv in pm.modelcontext(None).free_RVs if rv.name not in "xz")


def a_potential_of_a_parameter(x):
    pm.Potential("tilt", -0.1 * a_parameter().sum() ** 2)


def a_potential_of_each_record(x):
    pm.Potential("tilt", -0.05 * (x if x.ndim == 1 else x.sum(axis=1)) ** 2)


def an_outcome_of_each_record(x):
    level = x if x.ndim == 1 else x.sum(axis=1)
    pm.Normal("outcome", 0.3 * level, 2.0, observed=np.linspace(-1, 1, SIZE))


def observed_data_of_a_parameter(x):
    pm.Normal("data", pt.sum(a_parameter()) / 3, 2.0, observed=np.array([0.3, -0.8]))


def another_release(x):
    pmp.Privatized("again", pt.clip(x, -1, 1), pmp.Laplace(scale=5.0), observed=_start(x, 0.7))


def a_release_of_each_record(x):
    level = x if x.ndim == 1 else x[:, 0]
    pmp.Privatized(
        "answers",
        level.astype("float64"),
        pmp.Laplace(scale=4.0),
        local=True,
        observed=np.linspace(-2, 3, SIZE),
    )


def another_database(x):
    y = pm.Normal("y", pt.sum(a_parameter()), 1.0, shape=4)
    pmp.Privatized("of y", y, pmp.Gaussian(scale=2.0), observed=0.4)


MORE = [
    nothing,
    a_potential_of_a_parameter,
    a_potential_of_each_record,
    an_outcome_of_each_record,
    observed_data_of_a_parameter,
    another_release,
    a_release_of_each_record,
    another_database,
]


def _start(x, value):
    return value if x.ndim == 1 else np.full(x.type.shape[1], value)


@dataclass(frozen=True)
class Recipe:
    """One model, by the names of its parts."""

    source: object
    law: str
    contributions: str
    mechanism: str
    more: object

    @property
    def parts(self):
        """The names of all parts."""
        parts = (self.source.__name__, self.law, self.contributions, self.mechanism)
        return (*parts, self.more.__name__)

    @property
    def name(self):
        return ", ".join(self.parts)

    def build(self):
        """Write the model."""
        laws = REAL | INTEGER | VECTOR
        table = OF_REAL if self.law in REAL else OF_INTEGERS if self.law in INTEGER else OF_VECTORS
        with pm.Model() as model:
            x = laws[self.law](self.source())
            contributions = table[self.contributions](x)
            shape = () if contributions.ndim == 1 else (contributions.type.shape[1],)
            pmp.Privatized(
                "release", contributions, OF_COUNTS[self.mechanism], observed=np.full(shape, 2.0)
            )
            self.more(x)
        return model


def _recipes(laws, contributions, mechanisms, number, offset):
    """Go through all parts at once, each at its own pace, so that all of them meet."""
    lists = [SOURCES, list(laws), list(contributions), list(mechanisms), MORE]
    # The lengths have common factors: a shift after each round lets every pair meet in time.
    wheels = [cycle(part[offset % len(part) :] + part[: offset % len(part)]) for part in lists]
    for k in range(number):
        yield Recipe(*(next(wheel) for wheel in wheels))
        if k % 7 == 6:
            next(wheels[3])
        if k % 11 == 10:
            next(wheels[4])
        if k % len(SOURCES) == len(SOURCES) - 1:
            next(wheels[1])
            next(wheels[2])


def recipes():
    """Return all models of the zoo: at least 200, with each part in several of them."""
    found = [
        *_recipes(REAL, OF_REAL, MECHANISMS, 130, 0),
        *_recipes(INTEGER, OF_INTEGERS, OF_COUNTS, 60, 5),
        *_recipes(VECTOR, OF_VECTORS, MECHANISMS, 30, 11),
    ]
    whole = {"as it is", "one-hot", "a histogram", "at most two", "squared", "rounded down"}
    return [r for r in islice(found, None) if r.mechanism in MECHANISMS or r.contributions in whole]
