"""Noise laws, one family per file."""

from pymc_privacy.mechanisms.base import AdditiveMechanism, CoordinateMechanism, Mechanism
from pymc_privacy.mechanisms.custom import CustomMechanism
from pymc_privacy.mechanisms.exponential import ExponentialMechanism
from pymc_privacy.mechanisms.exponential_interval import ExponentialInterval
from pymc_privacy.mechanisms.functional import FunctionalMechanism
from pymc_privacy.mechanisms.gaussian import DiscreteGaussian, Gaussian
from pymc_privacy.mechanisms.gradient_regression import KNormGradientRegression
from pymc_privacy.mechanisms.k_norm_gradient import KNormGradient
from pymc_privacy.mechanisms.laplace import DiscreteLaplace, Laplace
from pymc_privacy.mechanisms.local_sum import LocalSum
from pymc_privacy.mechanisms.objective_perturbation import ObjectivePerturbation
from pymc_privacy.mechanisms.post_processed import Clamped, PostProcessed, Rounded, Suppressed
from pymc_privacy.mechanisms.randomized_response import RandomizedResponse
from pymc_privacy.mechanisms.set_response import SetResponse
from pymc_privacy.mechanisms.table import TableMechanism
from pymc_privacy.mechanisms.truncated_laplace import TruncatedLaplace
from pymc_privacy.mechanisms.tulap import Tulap

__all__ = [
    "AdditiveMechanism",
    "Clamped",
    "CoordinateMechanism",
    "CustomMechanism",
    "DiscreteGaussian",
    "DiscreteLaplace",
    "ExponentialInterval",
    "ExponentialMechanism",
    "FunctionalMechanism",
    "Gaussian",
    "KNormGradient",
    "KNormGradientRegression",
    "Laplace",
    "LocalSum",
    "Mechanism",
    "ObjectivePerturbation",
    "PostProcessed",
    "RandomizedResponse",
    "Rounded",
    "SetResponse",
    "Suppressed",
    "TableMechanism",
    "TruncatedLaplace",
    "Tulap",
]
