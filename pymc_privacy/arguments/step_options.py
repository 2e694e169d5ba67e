"""The options of step methods, which `pm.sample` hands on by name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pymc_privacy.arguments.numbers import flag, integer, real

_COUNTS = {
    "centred_steps": 0,
    "noncentred_steps": 0,
    "jumps": 0,
    "blocks": 0,
    "sweeps": 1,
    "carries": 0,
}
_FLAGS = ("single", "blocked")


def check_step_options(options: Mapping[str, Any]) -> None:
    """Refuse options that are no numbers of steps, no share, and no flags.

    Examples
    --------
    >>> check_step_options({"jumps": 2.5})
    Traceback (most recent call last):
    pymc_privacy.errors.ArgumentError: jumps must be an integer >= 0; got 2.5.
    """
    for name, least in _COUNTS.items():
        if options.get(name) is not None:
            integer(name, options[name], least=least)
    if options.get("sweep_fraction") is not None:
        why = "the part of the records that one iteration updates"
        real("sweep_fraction", options["sweep_fraction"], above=0, most=1, meaning=why)
    for name in _FLAGS:
        if options.get(name) is not None:
            flag(name, options[name])
