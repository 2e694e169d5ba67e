"""Exact Bayesian inference from differentially private releases, inside PyMC."""

from pymc_privacy.accounting import (
    ApproximateDP,
    GaussianDP,
    PureDP,
    ZeroConcentratedDP,
    compose,
)
from pymc_privacy.distributions.privatized import Privatized
from pymc_privacy.inference.intervals import posterior_interval
from pymc_privacy.inference.precise import precise
from pymc_privacy.inference.sample import sample
from pymc_privacy.mechanisms import (
    CustomMechanism,
    DiscreteGaussian,
    DiscreteLaplace,
    Gaussian,
    Laplace,
)
from pymc_privacy.plots import plot_interval
from pymc_privacy.sanitize import (
    Ledger,
    NormalMean,
    NormalVariance,
    PrivateInterval,
    Proportion,
    Rate,
    Release,
    Slope,
    audit,
    bootstrap_interval,
    centre_scale_interval,
    joint_guarantee,
    multiple_sanitization_interval,
    noise_aware_interval,
    pp_interval,
    pp_quantile,
    precise_quantiles,
    private_quantile,
    read_card,
    registry_entry,
    release,
    release_card,
    simulate_release,
    summary_interval,
    write_card,
)
from pymc_privacy.step_methods import (
    CountStates,
    Interweave,
    RecordSweep,
    register_step_methods,
)

__version__ = "0.1.0.dev0"

__all__ = [
    "ApproximateDP",
    "CountStates",
    "CustomMechanism",
    "DiscreteGaussian",
    "DiscreteLaplace",
    "Gaussian",
    "GaussianDP",
    "Interweave",
    "Laplace",
    "Ledger",
    "NormalMean",
    "NormalVariance",
    "PrivateInterval",
    "Privatized",
    "Proportion",
    "PureDP",
    "Rate",
    "RecordSweep",
    "Release",
    "Slope",
    "ZeroConcentratedDP",
    "audit",
    "bootstrap_interval",
    "centre_scale_interval",
    "compose",
    "joint_guarantee",
    "multiple_sanitization_interval",
    "noise_aware_interval",
    "plot_interval",
    "posterior_interval",
    "pp_interval",
    "pp_quantile",
    "precise",
    "precise_quantiles",
    "private_quantile",
    "read_card",
    "registry_entry",
    "release",
    "release_card",
    "sample",
    "simulate_release",
    "summary_interval",
    "write_card",
]

register_step_methods()
