r"""The density of a noisy count: over the latent count, a sum with a proven end.

Only counts c with \|y - c\| <= h are sure to be added up, h the reach of the noise. The rest is

    L - L_window = sum_{|y - c| > h} p(c) eta(y - c) = L P(|noise| > h | y),

so that the posterior under the windowed sum is the exact one given that no noise was larger than
h. Hence their total variation is at most P(some ``|noise|`` > h | releases); on average over
releases from the model, at most the sum over cells of the tail P(``|noise|`` > h). For given
parameters the rest is at most eta(h), whatever the law of the count.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pymc as pm
import pytensor.tensor as pt

from pymc_privacy._compat import (
    Apply,
    BernoulliRV,
    BetaBinomialRV,
    BinomialRV,
    CategoricalRV,
    Constant,
    DisconnectedType,
    DiscreteUniformRV,
    GeometricRV,
    Mode,
    NegBinomialRV,
    Op,
    PoissonRV,
    TensorVariable,
    TruncatedRV,
    Variable,
    change_dist_size,
    disconnected_grad,
    grad_not_implemented,
    graph_inputs,
    numba_njit,
    register_funcify_and_cache_key,
)
from pymc_privacy.algorithms.noise import fingerprint
from pymc_privacy.algorithms.noisy_count import compile_count_sum
from pymc_privacy.distributions.records import ends_of
from pymc_privacy.mechanisms import Mechanism
from pymc_privacy.mechanisms.count_windows import count_window
from pymc_privacy.mechanisms.tails import LOG_CONCAVE, reach

# For graphs that are evaluated once, compiling would take longer.
PLAIN = Mode(linker="py", optimizer="fast_compile")
# A rate of 0, or a probability of 0 or 1, that came from rounding is moved by less than a
# density can show, to where ratios of probabilities exist.
_SMALLEST = 1e-100
_LARGEST_SHARE = 1 - 2.0**-53


def has_recurrence(count: TensorVariable, mechanism: Mechanism) -> bool:
    """Tell whether neighbouring counts have the ratio a + b / k, and the noise is simple."""
    simple = isinstance(count.owner.op, PoissonRV | BinomialRV | NegBinomialRV)
    return simple and isinstance(mechanism, LOG_CONCAVE)


def _recurrence(count: TensorVariable) -> tuple[Any, Any, Any]:
    """Return a, b, and the largest count or None."""
    op, parameters = count.owner.op, count.owner.op.dist_params(count.owner)
    if isinstance(op, PoissonRV):
        [mu] = parameters
        return pt.zeros_like(mu, dtype="float64"), pt.maximum(mu, _SMALLEST), None
    n, p = parameters
    if isinstance(op, BinomialRV):
        p = pt.clip(p, _SMALLEST, _LARGEST_SHARE)
        odds = p / (1 - p)
        return -odds, (n + 1) * odds, n
    q = pt.maximum(1 - p, _SMALLEST)
    return q, (n - 1) * q, None


def log_density_by_recurrence(
    release: TensorVariable, count: TensorVariable, mechanism: Any, tail: float
) -> TensorVariable:
    """Sum the count out of its release, a term from its neighbour."""
    a, b, largest = _recurrence(count)
    h = reach(mechanism, tail)
    nearest = pt.floor(release).astype("int64")
    # For a real release, the counts within h are those from floor(y) - h + 1 to floor(y) + h.
    low, high = pt.maximum(nearest - h, 0), pt.maximum(nearest + h, 0)
    if largest is not None:
        largest = pt.cast(largest, "int64")
        low, high = pt.minimum(low, largest), pt.minimum(high, largest)
    pivot = pt.clip(nearest, low, high)
    arguments = [release, pivot, low, high, a, b, *mechanism.parameters]
    dtypes = ["float64", *["int64"] * 3, *["float64"] * 4]
    flat = [
        pt.broadcast_to(pt.as_tensor(v).astype(dtype), release.shape).ravel()
        for v, dtype in zip(arguments, dtypes, strict=True)
    ]
    # All noise that has a recurrence is quadratic on each side.
    op = CountSum(mechanism.formula, True)
    ratio = op(*flat)[0].reshape(release.shape, ndim=release.ndim)
    return pm.logp(count, pivot) + ratio


class CountSum(Op):
    """The sum of `pymc_privacy.algorithms.noisy_count`, with its first derivatives."""

    __props__ = ("formula", "quadratic")

    def __init__(self, formula: Any, quadratic: bool):
        self.formula = formula
        self.quadratic = quadratic

    def make_node(self, *inputs):
        """Take eight vectors of one length."""
        vector = pt.vector(dtype="float64", shape=inputs[0].type.shape)
        return Apply(self, list(inputs), [vector.type() for _ in range(3)])

    def infer_shape(self, fgraph, node, shapes):
        """Return the shape of the release, three times."""
        return [shapes[0]] * 3

    @property
    def function(self):
        """Return the compiled sum."""
        return compile_count_sum(self.formula, quadratic=self.quadratic)

    def perform(self, node, inputs, output_storage):
        """Sum; the loop is compiled in every mode."""
        for storage, value in zip(output_storage, self.function(*inputs), strict=True):
            storage[0] = value

    def connection_pattern(self, node):
        """Let gradients flow to a and b alone."""
        return [[k in (4, 5)] * 3 for k in range(8)]

    def pullback(self, inputs, outputs, cotangents):
        """Use the derivatives that were summed along; second ones are not provided."""
        if any(not isinstance(c.type, DisconnectedType) for c in cotangents[1:]):
            by_a, by_b = (
                grad_not_implemented(self, k, inputs[k], "a second derivative") for k in (4, 5)
            )
        else:
            by_a, by_b = cotangents[0] * outputs[1], cotangents[0] * outputs[2]
        apart = [DisconnectedType()() for _ in range(6)]
        return [*apart[:4], by_a, by_b, *apart[4:]]


@register_funcify_and_cache_key(CountSum)
def _compile_count_sum(op: CountSum, node, **kwargs):
    function = op.function

    @numba_njit
    def count_sum(release, pivot, low, high, a, b, scale, log_normalizer):
        return function(release, pivot, low, high, a, b, scale, log_normalizer)

    name = f"{op.formula.__module__}.{op.formula.__qualname__}"
    return count_sum, f"count_sum-1-{name}-{fingerprint(op.formula)}-{op.quadratic}"


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
    return np.broadcast_arrays(*(np.broadcast_to(end, count.type.shape) for end in ends))


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
        return np.asarray(variable.eval(mode=PLAIN))
    return None


def _integer(variable: Variable) -> np.ndarray | None:
    value = _constant(variable)
    return None if value is None else value.astype(np.int64)


def window_length(count: TensorVariable, mechanism: Mechanism, tail: float) -> int:
    """Return how many neighbouring counts hold all that are within the noise's reach."""
    length, largest = count_window(mechanism, tail).length, largest_count(count)
    return length if largest is None else min(length, int(np.max(largest)) + 1)


def window(
    release: TensorVariable, count: TensorVariable, mechanism: Mechanism, tail: float
) -> tuple[TensorVariable, TensorVariable]:
    """Return the smallest count of each window, and log p(c) eta(y | c) along a leading axis."""
    half, threshold, _ = count_window(mechanism, tail)
    length, largest = window_length(count, mechanism, tail), largest_count(count)
    # A release that was suppressed stands as minus infinity, which is no integer.
    low = pt.maximum(pt.floor(pt.maximum(release, 0)).astype("int64") - half, 0)
    low = pt.switch(release <= threshold, 0, low)
    if largest is not None:
        low = pt.minimum(low, np.maximum(largest - length + 1, 0))
    counts = low[None] + np.arange(length).reshape(-1, *(1,) * release.ndim)
    # Beyond the largest count densities may not exist; what is put in their place is left out.
    inside = counts if largest is None else pt.minimum(counts, largest)
    log_count = pm.logp(change_dist_size(count, length, expand=True), inside.astype(count.dtype))
    terms = log_count + mechanism.log_density(release[None], counts)
    return low, terms if largest is None else pt.switch(counts > largest, -np.inf, terms)


def log_density_by_window(
    release: TensorVariable, count: TensorVariable, mechanism: Any, tail: float
) -> TensorVariable:
    """Sum the count out of its release, for any law of the count."""
    _, terms = window(release, count, mechanism, tail)
    peak = terms.max(axis=0)
    peak = disconnected_grad(pt.switch(pt.isinf(peak), 0.0, peak))
    return peak + pt.log(pt.exp(terms - peak[None]).sum(axis=0))
