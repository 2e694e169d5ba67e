"""Replicated experiments: a grid of settings, many replicates, any executor, nothing lost."""

from pymc_privacy.studies.study import Study

__all__ = ["Study"]
