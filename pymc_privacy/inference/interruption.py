"""What is said when sampling was stopped before there was anything to return."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from pymc_privacy.errors import SamplingError

_NOTHING_DRAWN = "Not enough samples to build a trace."


@contextmanager
def stopped_in_a_sentence() -> Iterator[None]:
    """Say so where `pm.sample` was interrupted in tuning: it raises a bare ValueError then.

    Interrupted later, it returns the draws that it has.
    """
    try:
        yield
    except ValueError as error:
        if str(error) != _NOTHING_DRAWN:
            raise
        raise SamplingError(
            "Sampling was stopped before the first draw after tuning, and draws of tuning do not "
            "follow the posterior, so there is nothing to return. Stopped later, it returns the "
            "draws so far; tune= says how long tuning takes."
        ) from error
