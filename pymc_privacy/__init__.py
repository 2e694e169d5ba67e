"""Exact Bayesian inference from differentially private releases, inside PyMC."""

from pymc_privacy.accounting import (
    ApproximateDP,
    GaussianDP,
    PureDP,
    ZeroConcentratedDP,
    compose,
)
from pymc_privacy.distributions.linear_measurements import LinearMeasurements
from pymc_privacy.distributions.noisy_count import NoisyCount
from pymc_privacy.distributions.privatized import Privatized
from pymc_privacy.distributions.records import Records
from pymc_privacy.inference.intervals import posterior_interval
from pymc_privacy.inference.maximum_likelihood import maximum_likelihood
from pymc_privacy.inference.posterior_counts import posterior_counts, window_error
from pymc_privacy.inference.precise import precise
from pymc_privacy.inference.resampling import likelihood_ratio
from pymc_privacy.inference.sample import sample
from pymc_privacy.mechanisms import (
    Clamped,
    CustomMechanism,
    DiscreteGaussian,
    DiscreteLaplace,
    ExponentialMechanism,
    FunctionalMechanism,
    Gaussian,
    KNormGradient,
    Laplace,
    ObjectivePerturbation,
    RandomizedResponse,
    Rounded,
    Suppressed,
    TruncatedLaplace,
    Tulap,
)
from pymc_privacy.mechanisms.discrete_variance import (
    discrete_gaussian_scale,
    discrete_gaussian_variance,
)
from pymc_privacy.mechanisms.from_opendp import from_opendp, from_opendp_summary
from pymc_privacy.mechanisms.unknown_size import SizeGap, capacity_for, size_gap
from pymc_privacy.plots import (
    plot_acceptance,
    plot_ascent,
    plot_interval,
    plot_posteriors,
    plot_profile,
    plot_records,
    plot_release,
    plot_size,
)
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
    BirthDeath,
    CountStates,
    Interweave,
    LatticeWalk,
    RecordSweep,
    register_step_methods,
)
from pymc_privacy.studies import Study

__version__ = "0.1.0.dev0"

__all__ = [
    "ApproximateDP",
    "BirthDeath",
    "Clamped",
    "CountStates",
    "CustomMechanism",
    "DiscreteGaussian",
    "DiscreteLaplace",
    "ExponentialMechanism",
    "FunctionalMechanism",
    "Gaussian",
    "GaussianDP",
    "Interweave",
    "KNormGradient",
    "Laplace",
    "LatticeWalk",
    "Ledger",
    "LinearMeasurements",
    "NoisyCount",
    "NormalMean",
    "NormalVariance",
    "ObjectivePerturbation",
    "PrivateInterval",
    "Privatized",
    "Proportion",
    "PureDP",
    "RandomizedResponse",
    "Rate",
    "RecordSweep",
    "Records",
    "Release",
    "Rounded",
    "SizeGap",
    "Slope",
    "Study",
    "Suppressed",
    "TruncatedLaplace",
    "Tulap",
    "ZeroConcentratedDP",
    "audit",
    "bootstrap_interval",
    "capacity_for",
    "centre_scale_interval",
    "compose",
    "discrete_gaussian_scale",
    "discrete_gaussian_variance",
    "from_opendp",
    "from_opendp_summary",
    "joint_guarantee",
    "likelihood_ratio",
    "maximum_likelihood",
    "multiple_sanitization_interval",
    "noise_aware_interval",
    "plot_acceptance",
    "plot_ascent",
    "plot_interval",
    "plot_posteriors",
    "plot_profile",
    "plot_records",
    "plot_release",
    "plot_size",
    "posterior_counts",
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
    "size_gap",
    "summary_interval",
    "window_error",
    "write_card",
]

register_step_methods()
