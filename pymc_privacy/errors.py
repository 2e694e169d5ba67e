"""Every error raised on purpose by this package is a `PrivacyError`, and a `ValueError`.

A message says what must hold, what that means, and what came.
"""

from typing import Any


class PrivacyError(ValueError):
    """The base of all errors raised on purpose by this package."""


class ArgumentError(PrivacyError):
    """An argument is not the number, name or choice that it must be."""


class MechanismError(PrivacyError):
    """A mechanism was given parameters that describe no noise law."""


class GuaranteeError(PrivacyError):
    """A privacy guarantee was asked for that cannot be stated truthfully."""


class ReleaseError(PrivacyError):
    """An observed release cannot have come from its mechanism and contributions."""


class RecordError(PrivacyError):
    """The record variables of a model are not such that they can be updated one by one."""


class CertificateError(PrivacyError):
    """What was compiled from a model does not agree with the model; nothing was drawn."""


class BudgetError(PrivacyError):
    """A release would spend more than the budget has left; nothing was drawn."""


class LedgerError(PrivacyError):
    """A ledger file is not the unbroken record that it must be."""


class StudyError(PrivacyError):
    """A study was asked for something that it could not resume or repeat."""


class StreamError(PrivacyError):
    """A stream of releases was asked for, or given, what does not belong to it."""


class SamplingError(PrivacyError):
    """Sampling ended before there was a draw to return."""


class PlotError(PrivacyError):
    """A plot was asked for that the result does not have the draws for."""


class MixingWarning(UserWarning):
    """The chains have not forgotten where they started; the draws are not yet the posterior."""


class WeightWarning(UserWarning):
    """A few weights decide, or a part of the posterior may have been missed."""


class ComparisonWarning(UserWarning):
    """What was asked for can be computed, but compares no models."""


class DesignWarning(UserWarning):
    """Queries can be asked by such a rule, but will not tell what is to be estimated."""


class InsecureNoiseWarning(UserWarning):
    """Noise came from a seedable generator; what was made with it must not be published."""


class CapacityError(PrivacyError):
    """There was no room for as many records as the posterior wants; ``result`` has the draws."""

    def __init__(self, message: str, result: Any = None):
        super().__init__(message)
        self.result = result


class CapacityWarning(UserWarning):
    """Some proposals wanted more records than there was room for."""
