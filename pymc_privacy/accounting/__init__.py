"""Privacy guarantees: what they say, what they imply, and what several say together."""

from pymc_privacy.accounting.acceptance import expected_acceptance
from pymc_privacy.accounting.calibration import gaussian_scale, zero_concentrated_rho
from pymc_privacy.accounting.composition import compose
from pymc_privacy.accounting.guarantees import (
    ApproximateDP,
    GaussianDP,
    Guarantee,
    Neighbours,
    PureDP,
    ZeroConcentratedDP,
)
from pymc_privacy.accounting.renyi import RenyiDP
from pymc_privacy.accounting.tradeoff import FDP

__all__ = [
    "FDP",
    "ApproximateDP",
    "GaussianDP",
    "Guarantee",
    "Neighbours",
    "PureDP",
    "RenyiDP",
    "ZeroConcentratedDP",
    "compose",
    "expected_acceptance",
    "gaussian_scale",
    "zero_concentrated_rho",
]
