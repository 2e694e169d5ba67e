"""Pictures, with Matplotlib where it is installed.

As in ArviZ, a plot takes a `DataTree` first, chooses by ``var_names`` and ``ci_prob``, and returns
what it has drawn on: Matplotlib axes, to which anything can be added.
"""

from pymc_privacy.plots.acceptance import plot_acceptance
from pymc_privacy.plots.ascent import plot_ascent
from pymc_privacy.plots.composition import plot_shares, plot_threshold
from pymc_privacy.plots.interval import plot_interval
from pymc_privacy.plots.posteriors import plot_posteriors
from pymc_privacy.plots.profile import plot_profile
from pymc_privacy.plots.records import plot_records
from pymc_privacy.plots.release import plot_release
from pymc_privacy.plots.size import plot_size, plot_size_gap

__all__ = [
    "plot_acceptance",
    "plot_ascent",
    "plot_interval",
    "plot_posteriors",
    "plot_profile",
    "plot_records",
    "plot_release",
    "plot_shares",
    "plot_size",
    "plot_size_gap",
    "plot_threshold",
]
