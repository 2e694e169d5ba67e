"""Families of records with a bounded statistic, one file each."""

from pymc_privacy.sanitize.families.base import Family, SummarisedFamily, SummaryBounds
from pymc_privacy.sanitize.families.counts import Proportion, Rate
from pymc_privacy.sanitize.families.normal import NormalMean, NormalVariance
from pymc_privacy.sanitize.families.slope import Slope

__all__ = [
    "Family",
    "NormalMean",
    "NormalVariance",
    "Proportion",
    "Rate",
    "Slope",
    "SummarisedFamily",
    "SummaryBounds",
]
