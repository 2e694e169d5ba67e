r"""The density of a noisy count: over the latent count, a sum with a proven end.

Poisson, binomial and negative binomial counts with Laplace or Gaussian noise are summed by
`pymc_privacy.algorithms.noisy_count`, wherever the release is. Where exponential noise is so far
below the count that all of these are on one side of it, the sum is a generating function.

Of other laws, counts c with \|y - c\| <= h are added up. Since all probabilities together are at
most 1, what is left out is at most eta(h), the density of noise at the edge. Some terms of the sum
are a lower bound of it, and h is chosen, for every value of the parameters, so that eta(h) is
at most the share ``tail`` of that bound. Hence

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
    support_point,
)
from pymc_privacy.algorithms.caching import fingerprint
from pymc_privacy.algorithms.noisy_count import compile_count_sum, compile_pivot
from pymc_privacy.distributions.records import ends_of
from pymc_privacy.mechanisms import DiscreteLaplace, Laplace, Mechanism
from pymc_privacy.mechanisms.count_windows import count_reaches, count_window
from pymc_privacy.mechanisms.tails import FURTHEST, LOG_CONCAVE

LARGEST_WINDOWS = 20_000_000
"""How many counts, over all cells, are added up at most where there is no recurrence."""
RECURRENCE_TAIL = 1e-15
"""The share of the sum that a recurrence may leave out."""
# For graphs that are evaluated once, compiling would take longer.
PLAIN = Mode(linker="py", optimizer="fast_compile")
# The counts at which a lower bound of the sum is looked for, between release and law.
_LOOKS = 16
# So many standard deviations, and counts, leave less than e^-800 on the other side.
_FAR = 40.0


def has_recurrence(count: TensorVariable, mechanism: Mechanism) -> bool:
    """Tell whether neighbouring counts have the ratio a + b / k, and the noise is simple."""
    simple = isinstance(count.owner.op, PoissonRV | BinomialRV | NegBinomialRV)
    return simple and isinstance(mechanism, LOG_CONCAVE)


class _Katz(NamedTuple):
    """The law of a count, or of n minus it: p(k) = (a + b / k) p(k - 1), up to the largest."""

    a: TensorVariable
    b: TensorVariable
    largest: TensorVariable
    flipped: TensorVariable | None
    """Where the law is that of the largest count minus the count."""

    def mirrored(self, value: TensorVariable) -> TensorVariable:
        """Return a count, or a release, as this law sees it; and back again."""
        if self.flipped is None:
            return value
        return pt.switch(self.flipped, self.largest - value, value)


def _katz(count: TensorVariable) -> tuple[_Katz, Any]:
    """Return the recurrence of a law, and log E z^c as a function of log z <= 0."""
    op, parameters = count.owner.op, count.owner.op.dist_params(count.owner)
    if isinstance(op, PoissonRV):
        [mu] = parameters
        zero = pt.zeros_like(mu, dtype="float64")
        return _Katz(zero, mu, pt.constant(FURTHEST), None), lambda z: mu * pt.expm1(z)
    n, p = parameters
    if isinstance(op, BinomialRV):
        # Failures are counted where they are fewer: odds are never more than 1.
        flipped = p > 0.5
        p = pt.switch(flipped, 1 - p, p)
        odds = p / (1 - p)
        law = _Katz(-odds, (n + 1) * odds, pt.cast(n, "int64"), flipped)
        return law, lambda z: n * pt.log1p(p * pt.expm1(z))
    q = 1 - p
    law = _Katz(q, (n - 1) * q, pt.constant(FURTHEST), None)
    return law, lambda z: -n * pt.log1p(-q / p * pt.expm1(z))


def log_density_by_recurrence(
    release: TensorVariable, count: TensorVariable, mechanism: Any, tail: float
) -> TensorVariable:
    """Sum the count out of its release, a term from its neighbour."""
    law, log_generating = _katz(count)
    seen = law.mirrored(release)
    # A plain number would become a tensor of the fewest bits that PyTensor deems enough.
    scale, log_normalizer = (np.asarray(p, dtype=np.float64) for p in mechanism.parameters)
    shared = [("float64", law.a), ("float64", law.b), ("float64", scale)]
    shared.append(("float64", log_normalizer))

    def flat(*typed):
        """Return vectors with one number for each cell."""
        cells = (pt.broadcast_to(pt.as_tensor(v).astype(d), release.shape) for d, v in typed)
        return [v.ravel() for v in cells]

    exponential = isinstance(mechanism, Laplace | DiscreteLaplace)
    far = _is_far(seen, law, mechanism) if exponential else pt.constant(False)
    # Where no sum is needed, none is made.
    last = pt.switch(far, 0, law.largest)
    y, low, high = flat(("float64", seen), ("int64", 0), ("int64", last))
    given = flat(*shared)
    pivot = CountPivot(mechanism.formula)(y, low, high, *given)
    shaped = pivot.reshape(release.shape, ndim=release.ndim)
    at = law.mirrored(shaped)
    log_pivot = pm.logp(count, at)
    # All noise that has a recurrence is quadratic on each side.
    op = CountSum(mechanism.formula, True)
    held = flat(("float64", disconnected_grad(log_pivot)))
    ratio = op(y, pivot, *held, low, high, *given)[0].reshape(release.shape, ndim=release.ndim)
    summed = log_pivot + ratio
    if not exponential:
        return summed
    # z^{-y} E z^c, with z = e^{-1 / scale}.
    log_z = _log_z(mechanism)
    peak = pt.as_tensor(mechanism.log_density(seen, seen))
    return pt.switch(far, peak - seen * log_z + log_generating(log_z), summed)


def _is_far(seen: TensorVariable, law: _Katz, mechanism: Any) -> TensorVariable:
    """Tell where a release is so far below all counts that their sum is a generating function.

    With z = e^{-1 / scale}, the sum over c > y of p(c) z^{c - y} is z^{-y} E z^c P(C > y), C with
    the law that z tilts: a z and b z for a and b, mean m = (a z + b z) / (1 - a z) and variance
    v = m / (1 - a z). Its third cumulant is positive, as is that of any law tilted further
    down, so that P(C <= y) <= exp(-(m - y)² / 2 v); counts <= y add even less to the sum.
    """
    z = pt.exp(_log_z(mechanism))
    rest = 1 - law.a * z
    mean = (law.a + law.b) * z / rest
    return mean - seen > _FAR * pt.sqrt(mean / rest) + _FAR


def _log_z(mechanism: Any) -> TensorVariable:
    return pt.as_tensor(-1 / np.asarray(mechanism.scale, dtype=np.float64))


class CountPivot(Op):
    """The count of `pymc_privacy.algorithms.noisy_count` that a sum starts from."""

    __props__ = ("formula",)

    def __init__(self, formula: Any):
        self.formula = formula

    def make_node(self, *inputs):
        """Take seven vectors of one length."""
        vector = pt.vector(dtype="int64", shape=inputs[0].type.shape)
        return Apply(self, list(inputs), [vector.type()])

    def infer_shape(self, fgraph, node, shapes):
        """Return the shape of the release."""
        return [shapes[0]]

    @property
    def function(self):
        """Return the compiled search."""
        return compile_pivot(self.formula)

    def perform(self, node, inputs, output_storage):
        """Search; the loop is compiled in every mode."""
        output_storage[0][0] = self.function(*inputs)

    def connection_pattern(self, node):
        """Let no gradient flow: the sum is the same from any count."""
        return [[False]] * 7

    def pullback(self, inputs, outputs, cotangents):
        """Return nothing, for what is not connected."""
        return [DisconnectedType()() for _ in inputs]


class CountSum(Op):
    """The sum of `pymc_privacy.algorithms.noisy_count`, with its first derivatives."""

    __props__ = ("formula", "quadratic")

    def __init__(self, formula: Any, quadratic: bool):
        self.formula = formula
        self.quadratic = quadratic

    def make_node(self, *inputs):
        """Take nine vectors of one length."""
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
        return [[k in (5, 6)] * 3 for k in range(9)]

    def pullback(self, inputs, outputs, cotangents):
        """Use the derivatives that were summed along; second ones are not provided."""
        if any(not isinstance(c.type, DisconnectedType) for c in cotangents[1:]):
            by_a, by_b = (
                grad_not_implemented(self, k, inputs[k], "a second derivative") for k in (5, 6)
            )
        else:
            by_a, by_b = cotangents[0] * outputs[1], cotangents[0] * outputs[2]
        apart = [DisconnectedType()() for _ in range(7)]
        return [*apart[:5], by_a, by_b, *apart[5:]]


@register_funcify_and_cache_key(CountPivot)
def _compile_pivot(op: CountPivot, node, **kwargs):
    function = op.function

    @numba_njit
    def pivots(release, low, high, a, b, scale, log_normalizer):
        return function(release, low, high, a, b, scale, log_normalizer)

    return pivots, f"count_pivot-{fingerprint(function)}"


@register_funcify_and_cache_key(CountSum)
def _compile_count_sum(op: CountSum, node, **kwargs):
    function = op.function

    @numba_njit
    def count_sum(release, pivot, log_pivot, low, high, a, b, scale, log_normalizer):
        return function(release, pivot, log_pivot, low, high, a, b, scale, log_normalizer)

    return count_sum, f"count_sum-{fingerprint(function)}"


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
