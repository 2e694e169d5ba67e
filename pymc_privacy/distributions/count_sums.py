r"""The density of a noisy count: over the latent count, a sum with a proven end.

Of a law without a recurrence (`pymc_privacy.distributions.count_recurrence`), counts c with
\|y - c\| <= h are added up. Since all probabilities together are at most 1, what is left out is
at most eta(h), the density of noise at the edge. Some terms of the sum are a lower bound of it,
and h is chosen, for every value of the parameters, so that eta(h) is at most the share ``tail``
of that bound. Hence

    (1 - tail) L <= L_window <= L,

and for m cells the posterior under windowed sums is within (1 - tail)^-m - 1 of the exact one in
total variation, whatever the releases are.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
import pymc as pm
import pytensor.tensor as pt

from pymc_privacy._compat import (
    TensorVariable,
    change_dist_size,
    disconnected_grad,
    support_point,
)
from pymc_privacy.mechanisms import Mechanism
from pymc_privacy.mechanisms.count_windows import count_reaches, count_window
from pymc_privacy.mechanisms.tails import FURTHEST
from pymc_privacy.model.support import largest

LARGEST_WINDOWS = 20_000_000
"""How many counts, over all cells, are added up at most where there is no recurrence."""
# The counts at which a lower bound of the sum is looked for, between release and law.
_LOOKS = 16


def cells_of(count: TensorVariable) -> int:
    """Return how many cells a law is known to be for."""
    return math.prod(length for length in count.type.shape if length is not None)


def window_length(count: TensorVariable, mechanism: Mechanism, tail: float) -> int:
    """Return how many neighbouring counts hold all that are within the noise's reach."""
    length, most = count_window(mechanism, math.log(tail)).length, largest(count)
    return length if most is None else min(length, int(np.max(most)) + 1)


class Window(NamedTuple):
    """Neighbouring counts of each cell, and whether others can be left out."""

    low: TensorVariable
    """The smallest count."""
    terms: TensorVariable
    """log p(c) eta(y | c), counts along a leading axis."""
    enough: TensorVariable
    """Whether the counts that are not among them add at most the share ``tail``."""


def window(
    release: TensorVariable, count: TensorVariable, mechanism: Mechanism, tail: float
) -> Window:
    """Return all counts that matter, as far as they fit into memory."""
    reaches, most = count_reaches(mechanism), largest(count)
    # A release that was suppressed stands as minus infinity, which is no integer.
    nearest = pt.floor(pt.maximum(release, 0)).astype("int64")
    looks = _log_terms(_looks(nearest, count), release, count, mechanism)
    needed = math.log(tail) + disconnected_grad(looks).max(axis=0)
    levels, *scales = reaches.half.shape
    shape = (levels, *(1,) * (release.ndim - len(scales)), *scales)
    halves, left_out = reaches.half.reshape(shape), reaches.log_left_out.reshape(shape)
    short = pt.gt(left_out[:-1], needed[None])
    half = halves[0] + pt.switch(short, np.diff(halves, axis=0), 0).sum(axis=0)
    suppressed = release <= reaches.threshold
    low = pt.switch(suppressed, 0, pt.maximum(nearest - half, 0))
    wanted = pt.switch(suppressed, math.ceil(max(reaches.threshold, 0.0)), nearest) + half
    high = wanted
    if most is not None:
        low, high = pt.minimum(low, most), pt.minimum(high, most)
    # One cell that nothing fits must not make the arrays of all too long.
    high = pt.minimum(high, low + max(LARGEST_WINDOWS // cells_of(count), 1) - 1)
    length = (high - low).max() + 1
    counts = low[None] + pt.arange(length).reshape((-1, *(1,) * release.ndim))
    terms = _log_terms(counts, release, count, mechanism)
    last = counts[-1]
    up = pt.ge(last, wanted) if most is None else pt.ge(last, pt.minimum(wanted, most))
    enough = up & pt.le(left_out[-1], needed)
    if most is not None:
        enough |= pt.eq(low, 0) & pt.ge(last, most)
    return Window(low, terms, enough)


def _looks(nearest: TensorVariable, count: TensorVariable) -> TensorVariable:
    """Return some counts between release and law, along a leading axis."""
    try:
        middle = support_point(count).astype("float64")
    except NotImplementedError:
        middle = nearest.astype("float64")
    middle = pt.clip(pt.switch(pt.isnan(middle), 0.0, middle), 0.0, float(FURTHEST))
    steps = np.linspace(0.0, 1.0, _LOOKS).reshape(-1, *(1,) * nearest.ndim)
    return pt.floor(nearest + steps * (middle - nearest)).astype("int64")


def _log_terms(
    counts: TensorVariable, release: TensorVariable, count: TensorVariable, mechanism: Mechanism
) -> TensorVariable:
    """Return log p(c) eta(y | c) of counts along a leading axis."""
    most = largest(count)
    # Beyond the largest count densities may not exist; what is put in their place is left out.
    inside = counts if most is None else pt.minimum(counts, most)
    law = change_dist_size(count, counts.shape[0], expand=True)
    terms = pm.logp(law, inside.astype(count.dtype))
    terms += mechanism.log_density(release[None], counts)
    return terms if most is None else pt.switch(counts > most, -np.inf, terms)


def log_density_by_window(
    release: TensorVariable, count: TensorVariable, mechanism: Any, tail: float
) -> TensorVariable:
    """Sum the count out of its release, for any law of the count.

    -inf where so many counts as are wanted do not fit into memory: no chain goes there, and none
    can start there.
    """
    _, terms, enough = window(release, count, mechanism, tail)
    peak = terms.max(axis=0)
    peak = disconnected_grad(pt.switch(pt.isinf(peak), 0.0, peak))
    summed = peak + pt.log(pt.exp(terms - peak[None]).sum(axis=0))
    return pt.switch(enough, summed, -np.inf)
