"""The plain model's integral over each record that is known by a clipped, noised value alone.

Gauss's rule on panels: where these begin and end is taken from what is compiled, and everything
that is integrated from the model. Panels that are badly chosen make the two disagree.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from pymc_privacy._compat import Model
from pymc_privacy.certificate.base import Reference, plain_function
from pymc_privacy.densities.clipped_records import Answered, answered_records
from pymc_privacy.mechanisms import Laplace
from pymc_privacy.model.database import Database
from pymc_privacy.model.points import Point

_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(14)
_NODES, _LOG_WEIGHTS = 0.5 * (1.0 + _NODES), np.log(0.5 * _WEIGHTS)
# Ends of panels, in units of the record's law and of the noise.
_OF_LAW = (-14.0, -9.0, -5.5, -2.5, 0.0, 2.5, 5.5, 9.0, 14.0)
_OF_NOISE = (-34.0, -14.0, -6.0, -2.0, 2.0, 6.0, 14.0, 34.0)


class Panels(NamedTuple):
    """Panels of each record, along a leading axis, and the log of the integral over each."""

    ends: np.ndarray
    logs: np.ndarray

    @property
    def whole(self) -> np.ndarray:
        """Return the log of the integral of each record."""
        return np.logaddexp.reduce(self.logs, axis=0)

    def of(self, records: np.ndarray) -> np.ndarray:
        """Return in which panel each record is, as the number of the panel."""
        return (records >= self.ends[1:-1]).sum(axis=0)


def panels_of(reference: Reference, database: Database, point: Point) -> Panels | None:
    """Integrate f w of each record over panels, by the model; None where no record is real."""
    answered = answered_records(database)
    if answered is None:
        return None
    ends = _ends(reference.model, answered, point)
    names = [rv.name for rv in (*database.records, *database.record_factors)]
    rows = reference.rows(names, database.size)
    value = reference.model.rvs_to_values[database.records[0]].name
    logs = []
    with np.errstate(divide="ignore"):
        for low, high in itertools.pairwise(ends):
            at = [rows(point | {value: low + (high - low) * node}) for node in _NODES]
            part = np.logaddexp.reduce(np.array(at) + _LOG_WEIGHTS[:, None], axis=0)
            logs.append(part + np.log(high - low))
    return Panels(ends, np.array(logs))


def _ends(model: Model, answered: Answered, point: Point) -> np.ndarray:
    """Return the ends of panels, sorted, of shape (panels + 1, records)."""
    clipped = answered.clipped
    graphs = [answered.release, clipped.lower, clipped.upper, answered.mu, answered.sd]
    found = plain_function(model.value_vars, graphs)(*(point[v.name] for v in model.value_vars))
    size = len(point[str(answered.value.name)])
    y, lower, upper, mu, sd = (np.broadcast_to(np.asarray(one, float), size) for one in found)
    scale = np.broadcast_to(answered.mechanism.scale, size)
    everywhere = list(_around(mu, sd, _OF_LAW))
    # Where the record's law and the noise meet, if not at either.
    if isinstance(answered.mechanism, Laplace):
        shift = sd * np.minimum(sd / scale, 1e6)
        meeting = [*_around(mu - shift, sd, _OF_LAW), *_around(mu + shift, sd, _OF_LAW)]
    else:
        gain = sd**2 / (sd**2 + scale**2)
        meeting = list(_around(mu + (y - mu) * gain, scale * np.sqrt(gain), _OF_LAW))
    meeting += [y, *_around(y, scale, _OF_NOISE)]
    inside = [np.clip(one, lower, upper) for one in meeting]
    bounds = [np.where(np.isfinite(end), end, mu) for end in (lower, upper)]
    return np.sort(np.array([*everywhere, *inside, *bounds]), axis=0)


def _around(middle: np.ndarray, unit: np.ndarray, places: tuple[float, ...]) -> Iterator:
    return (middle + place * unit for place in places)
