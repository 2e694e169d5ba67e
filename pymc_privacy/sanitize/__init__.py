"""The curator's side: releases that may be published, budgets, intervals, and their audits."""

from pymc_privacy.sanitize import density_bounds
from pymc_privacy.sanitize.audit import Audit, audit, repeated
from pymc_privacy.sanitize.calibrate import Sensitivity
from pymc_privacy.sanitize.card import release_card, write_card
from pymc_privacy.sanitize.card_reading import read_card
from pymc_privacy.sanitize.centre_scale import centre_scale_interval, summary_interval
from pymc_privacy.sanitize.composition_plan import CompositionPlan
from pymc_privacy.sanitize.compositions import (
    CompositionRelease,
    GroupedComposition,
    release_composition,
    simulate_composition,
)
from pymc_privacy.sanitize.families import (
    Family,
    NormalMean,
    NormalVariance,
    Proportion,
    Rate,
    Slope,
)
from pymc_privacy.sanitize.histogram import (
    CountCollapse,
    NoCollapse,
    P3Histogram,
    ProportionCollapse,
    p3_histogram,
)
from pymc_privacy.sanitize.interval import PrivateInterval
from pymc_privacy.sanitize.intervals import (
    bootstrap_interval,
    multiple_sanitization_interval,
    noise_aware_interval,
    repro_interval,
)
from pymc_privacy.sanitize.ledger import Charge, Ledger
from pymc_privacy.sanitize.plan import ReleasePlan, plan_release
from pymc_privacy.sanitize.precise import joint_guarantee, precise_interval, precise_quantiles
from pymc_privacy.sanitize.quantile_interval import pp_interval
from pymc_privacy.sanitize.quantiles import (
    PrivateQuantile,
    pp_quantile,
    private_quantile,
)
from pymc_privacy.sanitize.registry import registry_entry, to_yaml
from pymc_privacy.sanitize.releases import Release, release, simulate_release
from pymc_privacy.sanitize.repro import ReproSet, repro_set
from pymc_privacy.sanitize.shares import (
    log_share_sensitivity,
    log_shares,
    select_threshold,
    smallest_share_bins,
)

__all__ = [
    "Audit",
    "Charge",
    "CompositionPlan",
    "CompositionRelease",
    "CountCollapse",
    "Family",
    "GroupedComposition",
    "Ledger",
    "NoCollapse",
    "NormalMean",
    "NormalVariance",
    "P3Histogram",
    "PrivateInterval",
    "PrivateQuantile",
    "Proportion",
    "ProportionCollapse",
    "Rate",
    "Release",
    "ReleasePlan",
    "ReproSet",
    "Sensitivity",
    "Slope",
    "audit",
    "bootstrap_interval",
    "centre_scale_interval",
    "density_bounds",
    "joint_guarantee",
    "log_share_sensitivity",
    "log_shares",
    "multiple_sanitization_interval",
    "noise_aware_interval",
    "p3_histogram",
    "plan_release",
    "pp_interval",
    "pp_quantile",
    "precise_interval",
    "precise_quantiles",
    "private_quantile",
    "read_card",
    "registry_entry",
    "release",
    "release_card",
    "release_composition",
    "repeated",
    "repro_interval",
    "repro_set",
    "select_threshold",
    "simulate_composition",
    "simulate_release",
    "smallest_share_bins",
    "summary_interval",
    "to_yaml",
    "write_card",
]
