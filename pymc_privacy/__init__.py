"""Exact Bayesian inference from differentially private releases, inside PyMC."""

from pymc_privacy.accounting import (
    ApproximateDP,
    GaussianDP,
    PureDP,
    ZeroConcentratedDP,
    compose,
)
from pymc_privacy.distributions.privatized import Privatized
from pymc_privacy.inference.sample import sample
from pymc_privacy.mechanisms import (
    CustomMechanism,
    DiscreteGaussian,
    DiscreteLaplace,
    Gaussian,
    Laplace,
)
from pymc_privacy.step_methods import Interweave, RecordSweep, register_step_methods

__version__ = "0.1.0.dev0"

__all__ = [
    "ApproximateDP",
    "CustomMechanism",
    "DiscreteGaussian",
    "DiscreteLaplace",
    "Gaussian",
    "GaussianDP",
    "Interweave",
    "Laplace",
    "Privatized",
    "PureDP",
    "RecordSweep",
    "ZeroConcentratedDP",
    "compose",
    "sample",
]

register_step_methods()
