"""Noise laws, one family per file."""

from pymc_privacy.mechanisms.base import AdditiveMechanism, Mechanism
from pymc_privacy.mechanisms.custom import CustomMechanism
from pymc_privacy.mechanisms.gaussian import DiscreteGaussian, Gaussian
from pymc_privacy.mechanisms.laplace import DiscreteLaplace, Laplace

__all__ = [
    "AdditiveMechanism",
    "CustomMechanism",
    "DiscreteGaussian",
    "DiscreteLaplace",
    "Gaussian",
    "Laplace",
    "Mechanism",
]
