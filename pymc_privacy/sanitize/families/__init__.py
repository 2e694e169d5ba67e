"""Families of records with a bounded statistic, one file each."""

from pymc_privacy.sanitize.families.base import Family, SummarisedFamily, SummaryBounds
from pymc_privacy.sanitize.families.counts import Proportion, Rate
from pymc_privacy.sanitize.families.normal import NormalMean, NormalVariance
from pymc_privacy.sanitize.families.slope import Slope

OWN = (Proportion, Rate, NormalMean, NormalVariance, Slope)
"""Families whose sensitivities are proved here; a class of anybody else is taken on trust."""

__all__ = [
    "OWN",
    "Family",
    "NormalMean",
    "NormalVariance",
    "Proportion",
    "Rate",
    "Slope",
    "SummarisedFamily",
    "SummaryBounds",
]
