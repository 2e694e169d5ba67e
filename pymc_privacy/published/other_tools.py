"""Releases of other tools: the report of DP Wizard, and entries of a registry of deployments.

Neither states the scale of its noise. A report gives an accuracy and a confidence for each
histogram, from which the scale follows; an entry gives the loss of all that was published, of which
one release is a part that it does not name.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from scipy.optimize import brentq

from pymc_privacy.arguments import choice, instance, positive, real, refusal, shown
from pymc_privacy.arguments import path as file_at
from pymc_privacy.errors import ArgumentError, ReleaseError
from pymc_privacy.mechanisms import DiscreteGaussian, DiscreteLaplace, Gaussian, Laplace
from pymc_privacy.mechanisms.base import AdditiveMechanism
from pymc_privacy.mechanisms.post_processed import Clamped

MOST = 2**53  # of a count: reports are read as floats

_NOISE: dict[str, Any] = {
    "Laplace": Laplace,
    "DiscreteLaplace": DiscreteLaplace,
    "Gaussian": Gaussian,
    "DiscreteGaussian": DiscreteGaussian,
}


class WizardHistogram(NamedTuple):
    """A histogram of noisy counts, as DP Wizard has published it."""

    bins: tuple[str, ...]
    counts: np.ndarray
    mechanism: Clamped
    """Discrete Laplace noise; OpenDP moves counts up to 0 where they were negative."""


def read_dp_wizard(report: Any) -> dict[str, WizardHistogram]:
    """Return the histograms of a report of DP Wizard, with the noise that their accuracy tells.

    Parameters
    ----------
    report : path_like or dict
        The report as CSV; or as a dictionary, such as that of the report's YAML.

    Returns
    -------
    dict
        By the name of the output: bins, counts and mechanism.

    Raises
    ------
    ReleaseError
        If it is no report, an output has no accuracy and confidence (means and medians have none,
        and the scale of their noise cannot be had), or they belong to no scale.

    See Also
    --------
    from_opendp_summary : Where the scale is there.
    NoisyCount : Counts of a histogram in a model.

    Notes
    -----
    An accuracy a and a confidence 1 - alpha belong to the scale b with
    a = 1 + b log(2 / (alpha (exp(1 / b) + 1))), OpenDP's formula for discrete Laplace noise. Bins
    that are missing in the report may have been left out because they were small.

    Examples
    --------
    >>> import pymc_privacy as pmp
    >>> ages = {"(0, 50]": 31, "(50, 100]": 12}
    >>> output = {"histogram": ages, "accuracy": 9.4457, "confidence": 0.95}
    >>> found = pmp.read_dp_wizard({"inputs": {"epsilon": 1.0}, "outputs": {"age": output}})
    >>> found["age"].bins, round(found["age"].mechanism.scale, 3)
    (('(0, 50]', '(50, 100]'), 3.0)
    """
    outputs = _outputs(report)
    return {name: _histogram(name, output) for name, output in outputs.items()}


def _outputs(report: Any) -> dict[str, Mapping[str, Any]]:
    """Return what a report says of each of its outputs."""
    outputs: Any = None
    if isinstance(report, Mapping):
        outputs = report.get("outputs")
    else:
        outputs = _unflattened(file_at("report", report, error=ReleaseError))
    fine = isinstance(outputs, Mapping) and len(outputs) > 0
    if not fine or not all(isinstance(output, Mapping) for output in outputs.values()):
        raise ReleaseError(
            "report must be one of DP Wizard, with outputs that have names; got "
            f"{shown(outputs if isinstance(report, Mapping) else str(report))}."
        )
    return {str(name): output for name, output in outputs.items()}


def _unflattened(path: Any) -> dict[str, dict[str, Any]]:
    """Return the outputs of a CSV of lines such as `outputs: age: histogram: (0, 50],31`."""
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            lines = [line for line in csv.reader(file) if line]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise ReleaseError(
            "report must be a CSV file that can be read; got "
            f"{type(error).__name__} for {str(path)!r}."
        ) from None
    outputs: dict[str, dict[str, Any]] = {}
    for key, *values in lines:
        start, _, rest = key.partition(": ")
        # Names may have colons: what stands last is the entry.
        name, histogram, bin_ = rest.rpartition(": histogram: ")
        if not histogram:
            name, _, entry = rest.rpartition(": ")
        if start != "outputs" or not name or len(values) != 1:
            continue
        output = outputs.setdefault(name, {})
        if histogram:
            output.setdefault("histogram", {})[bin_] = _read(values[0])
        else:
            output[entry] = _read(values[0])
    return outputs


def _read(text: str) -> float | str:
    """Return the number of a cell, or its text."""
    try:
        return float(text)
    except ValueError:
        return text


def _histogram(name: str, output: Mapping[str, Any]) -> WizardHistogram:
    histogram, accuracy, confidence = map(output.get, ("histogram", "accuracy", "confidence"))
    if not isinstance(histogram, Mapping) or accuracy is None or confidence is None:
        raise ReleaseError(
            f"The output {name!r} must be a histogram with an accuracy and a confidence, from "
            "which the scale of its noise follows; got "
            f"{', '.join(map(str, output)) or 'nothing'}, "
            "and no scale can be had."
        )
    alpha = 1 - _number(name, "confidence", confidence)
    if not 0 < alpha < 1:
        raise refusal(f"The confidence of {name!r}", "in (0, 1)", confidence, error=ReleaseError)
    scale = _scale(name, _number(name, "accuracy", accuracy), alpha)
    counts = [_number(name, f"count of {bin_}", value) for bin_, value in histogram.items()]
    if any(not 0 <= count <= MOST or count != int(count) for count in counts):
        wanted = f"integers from 0 to {MOST}"
        raise refusal(f"The counts of {name!r}", wanted, counts, error=ReleaseError)
    noise = Clamped(mechanism=DiscreteLaplace(scale=scale), lower=0.0)
    return WizardHistogram(tuple(map(str, histogram)), np.array(counts, dtype=np.int64), noise)


def _number(name: str, what: str, value: Any) -> float:
    try:
        return real(what, value)
    except ArgumentError:
        raise refusal(f"The {what} of {name!r}", "a number", value, error=ReleaseError) from None


def _scale(name: str, accuracy: float, alpha: float) -> float:
    """Return the scale of discrete Laplace noise that is beyond accuracy with probability alpha."""

    def above(log_scale: float) -> float:
        scale = math.exp(log_scale)
        # log(exp(1 / scale) + 1), however small the scale is.
        log_term = math.log(2) - math.log(alpha) - np.logaddexp(1 / scale, 0.0)
        return float(scale * log_term) + 1 - accuracy

    low, high = math.log(1e-3), math.log(1e12)
    if not above(low) < 0 < above(high):
        raise ReleaseError(
            f"The accuracy of {name!r} must be one that some noise has with confidence "
            f"{1 - alpha:g}; got {accuracy!r}, and no scale can be had."
        )
    return math.exp(brentq(above, low, high, xtol=1e-15, rtol=1e-15))


def from_registry_entry(
    entry: Any,
    *,
    noise: str,
    sensitivity: float | None = None,
    share: float | None = None,
) -> AdditiveMechanism:
    """Return the mechanism of one release of a deployment whose whole loss a registry states.

    An entry has no scale: it says what all releases together lose. What is missing you must know.

    Parameters
    ----------
    entry : dict
        Of OpenDP's registry of deployments: its YAML as a dictionary.
    noise : {"Laplace", "DiscreteLaplace", "Gaussian", "DiscreteGaussian"}
        The entry's prose on mechanisms says which.
    sensitivity : float
        Of the release: in L1 for Laplace noise, and in L2 for Gaussian.
    share : float
        The part of the entry's loss that the release has, in (0, 1].

    Raises
    ------
    ReleaseError
        If the entry states no loss that determines this noise, which is epsilon for Laplace and rho
        for Gaussian, or sensitivity or share are missing, without which no scale can be had.

    See Also
    --------
    registry_entry : Write an entry about a release of this package.
    read_card : Read what this package wrote about a release; the scale is in it.

    Examples
    --------
    >>> import pymc_privacy as pmp
    >>> entry = {"deployment": {"privacy_loss": {"privacy_parameters": {"rho": 2.0}}}}
    >>> pmp.from_registry_entry(entry, noise="DiscreteGaussian", sensitivity=1.0, share=0.25).scale
    1.0
    """
    instance("entry", entry, Mapping, "a dictionary", error=ReleaseError)
    kind = _NOISE[choice("noise", noise, tuple(_NOISE), error=ReleaseError)]
    loss = _loss(entry)
    name = "epsilon" if "Laplace" in noise else "rho"
    delta = loss.get("delta")
    pure = delta is None or (isinstance(delta, int | float) and delta == 0)
    if name not in loss or not pure:
        raise ReleaseError(
            f"An entry must state {name} alone to determine {noise} noise; got "
            f"{', '.join(f'{k}: {shown(v)}' for k, v in loss.items()) or 'no privacy parameters'}, "
            "and no scale can be had."
        )
    if sensitivity is None or share is None:
        raise ReleaseError(
            f"The scale of one release must follow from its sensitivity and its share of the "
            f"{name} of all that was published; an entry has neither, so that without both from "
            f"you no scale can be had; got sensitivity={shown(sensitivity)}, share={shown(share)}."
        )
    total = positive(name, loss[name], error=ReleaseError)
    part = positive("share", share, error=ReleaseError)
    if part > 1:
        raise refusal("share", "a number in (0, 1]", share, error=ReleaseError)
    return kind(
        **{name: part * total},
        sensitivity=positive("sensitivity", sensitivity, error=ReleaseError),
    )


def _loss(entry: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the privacy parameters of an entry."""
    found: Any = entry
    for key in ("deployment", "privacy_loss", "privacy_parameters"):
        found = found.get(key) if isinstance(found, Mapping) else None
    if not isinstance(found, Mapping):
        raise ReleaseError(
            "An entry must have deployment, privacy_loss, privacy_parameters within each other; "
            f"got {', '.join(map(str, entry)) or 'nothing'}, and no scale can be had."
        )
    return found
