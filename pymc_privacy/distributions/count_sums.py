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
    INTERPRETED,
    BernoulliRV,
    BetaBinomialRV,
    BinomialRV,
    CategoricalRV,
    Constant,
    DiscreteUniformRV,
    GeometricRV,
    PoissonRV,
    TensorVariable,
    TruncatedRV,
    Variable,
    change_dist_size,
    disconnected_grad,
    graph_inputs,
    support_point,
)
from pymc_privacy.distributions.records import ends_of
from pymc_privacy.mechanisms import Mechanism
from pymc_privacy.mechanisms.count_windows import count_reaches, count_window
from pymc_privacy.mechanisms.tails import FURTHEST

LARGEST_WINDOWS = 20_000_000
"""How many counts, over all cells, are added up at most where there is no recurrence."""
# The counts at which a lower bound of the sum is looked for, between release and law.
_LOOKS = 16


def ends_of_counts(count: TensorVariable) -> tuple[np.ndarray, np.ndarray]:
    """Return the least and the largest value that each count can take, as far as constants say.

    The least is 0 and the largest infinite where nothing is known.
    """
    op = count.owner.op
    lower: Any = None
    upper: Any = largest_count(count)
    match op:
        case GeometricRV():
            lower = np.asarray(1)
        case DiscreteUniformRV() | TruncatedRV():
            lower, upper = (_constant(end) for end in ends_of(count))
        case PoissonRV():
            # Nobody is in a cell without a rate.
            rate = _constant(op.dist_params(count.owner)[0])
            upper = None if rate is None else np.where(rate > 0, np.inf, 0.0)
    ends = (0 if lower is None else np.ceil(lower), np.inf if upper is None else np.floor(upper))
    least, most = (np.broadcast_to(end, count.type.shape) for end in ends)
    return least, most


def largest_count(count: TensorVariable) -> np.ndarray | None:
    """Return the largest value that a count can take, where the model says it as a constant."""
    op = count.owner.op
    match op:
        case BernoulliRV():
            return np.asarray(1)
        case BinomialRV() | BetaBinomialRV():
            return _integer(op.dist_params(count.owner)[0])
        case DiscreteUniformRV():
            return _integer(op.dist_params(count.owner)[1])
        case CategoricalRV():
            categories = op.dist_params(count.owner)[0].type.shape[-1]
            return None if categories is None else np.asarray(categories - 1)
    return None


def _constant(variable: Variable) -> np.ndarray | None:
    if all(isinstance(v, Constant) for v in graph_inputs([variable])):
        return np.asarray(variable.eval(mode=INTERPRETED))
    return None


def _integer(variable: Variable) -> np.ndarray | None:
    value = _constant(variable)
    return None if value is None else value.astype(np.int64)


def cells_of(count: TensorVariable) -> int:
    """Return how many cells a law is known to be for."""
    return math.prod(length for length in count.type.shape if length is not None)


def window_length(count: TensorVariable, mechanism: Mechanism, tail: float) -> int:
    """Return how many neighbouring counts hold all that are within the noise's reach."""
    length, largest = count_window(mechanism, math.log(tail)).length, largest_count(count)
    return length if largest is None else min(length, int(np.max(largest)) + 1)


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
    reaches, largest = count_reaches(mechanism), largest_count(count)
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
    if largest is not None:
        low, high = pt.minimum(low, largest), pt.minimum(high, largest)
    # One cell that nothing fits must not make the arrays of all too long.
    high = pt.minimum(high, low + max(LARGEST_WINDOWS // cells_of(count), 1) - 1)
    length = (high - low).max() + 1
    counts = low[None] + pt.arange(length).reshape((-1, *(1,) * release.ndim))
    terms = _log_terms(counts, release, count, mechanism)
    last = counts[-1]
    up = pt.ge(last, wanted) if largest is None else pt.ge(last, pt.minimum(wanted, largest))
    enough = up & pt.le(left_out[-1], needed)
    if largest is not None:
        enough |= pt.eq(low, 0) & pt.ge(last, largest)
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
    largest = largest_count(count)
    # Beyond the largest count densities may not exist; what is put in their place is left out.
    inside = counts if largest is None else pt.minimum(counts, largest)
    law = change_dist_size(count, counts.shape[0], expand=True)
    terms = pm.logp(law, inside.astype(count.dtype))
    terms += mechanism.log_density(release[None], counts)
    return terms if largest is None else pt.switch(counts > largest, -np.inf, terms)


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
