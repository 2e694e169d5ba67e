"""The density of a noisy count by the recurrence of its law, from graph to machine code and back.

The sum is that of `algorithms.numerics.noisy_count`, for Poisson, binomial and negative
binomial counts. Where exponential noise is so far below the count that all of these are on one
side of it, the sum is a generating function.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import pymc as pm
import pytensor.tensor as pt

from pymc_privacy._compat import (
    Apply,
    BinomialRV,
    DisconnectedType,
    NegBinomialRV,
    Op,
    PoissonRV,
    TensorVariable,
    Variable,
    disconnected_grad,
    grad_not_implemented,
    numba_njit,
    register_funcify_and_cache_key,
)
from pymc_privacy.algorithms.machine_code.caching import fingerprint
from pymc_privacy.algorithms.numerics.noisy_count import compile_count_sum, compile_pivot
from pymc_privacy.mechanisms import DiscreteLaplace, Laplace, Mechanism
from pymc_privacy.mechanisms.tails import FURTHEST, LOG_CONCAVE

RECURRENCE_TAIL = 1e-15
"""The share of the sum that a recurrence may leave out."""
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

    def flat(*typed: tuple[str, Any]) -> list[TensorVariable]:
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
    """The count of `algorithms.numerics.noisy_count` that a sum starts from."""

    __props__ = ("formula",)

    def __init__(self, formula: Any):
        self.formula = formula

    def make_node(self, *inputs: Variable) -> Apply:
        """Take seven vectors of one length."""
        vector = pt.vector(dtype="int64", shape=inputs[0].type.shape)
        return Apply(self, list(inputs), [vector.type()])

    def infer_shape(self, fgraph: Any, node: Apply, shapes: Sequence[Any]) -> list[Any]:
        """Return the shape of the release."""
        return [shapes[0]]

    @property
    def function(self) -> Any:
        """Return the compiled search."""
        return compile_pivot(self.formula)

    def perform(
        self, node: Apply, inputs: Sequence[np.ndarray], output_storage: Sequence[list[Any]]
    ) -> None:
        """Search; the loop is compiled in every mode."""
        output_storage[0][0] = self.function(*inputs)

    def connection_pattern(self, node: Apply) -> list[list[bool]]:
        """Let no gradient flow: the sum is the same from any count."""
        return [[False]] * 7

    def pullback(
        self,
        inputs: Sequence[Variable],
        outputs: Sequence[Variable],
        cotangents: Sequence[Variable],
    ) -> list[Variable]:
        """Return nothing, for what is not connected."""
        return [DisconnectedType()() for _ in inputs]


class CountSum(Op):
    """The sum of `algorithms.numerics.noisy_count`, with its first derivatives."""

    __props__ = ("formula", "quadratic")

    def __init__(self, formula: Any, quadratic: bool):
        self.formula = formula
        self.quadratic = quadratic

    def make_node(self, *inputs: Variable) -> Apply:
        """Take nine vectors of one length."""
        vector = pt.vector(dtype="float64", shape=inputs[0].type.shape)
        return Apply(self, list(inputs), [vector.type() for _ in range(3)])

    def infer_shape(self, fgraph: Any, node: Apply, shapes: Sequence[Any]) -> list[Any]:
        """Return the shape of the release, three times."""
        return [shapes[0]] * 3

    @property
    def function(self) -> Any:
        """Return the compiled sum."""
        return compile_count_sum(self.formula, quadratic=self.quadratic)

    def perform(
        self, node: Apply, inputs: Sequence[np.ndarray], output_storage: Sequence[list[Any]]
    ) -> None:
        """Sum; the loop is compiled in every mode."""
        for storage, value in zip(output_storage, self.function(*inputs), strict=True):
            storage[0] = value

    def connection_pattern(self, node: Apply) -> list[list[bool]]:
        """Let gradients flow to a and b alone."""
        return [[k in (5, 6)] * 3 for k in range(9)]

    def pullback(
        self,
        inputs: Sequence[Variable],
        outputs: Sequence[Variable],
        cotangents: Sequence[Variable],
    ) -> list[Variable]:
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
def _compile_pivot(op: CountPivot, node: Apply, **kwargs: Any) -> tuple[Any, str]:
    function = op.function

    @numba_njit
    def pivots(release, low, high, a, b, scale, log_normalizer):  # type: ignore[no-untyped-def]
        return function(release, low, high, a, b, scale, log_normalizer)

    return pivots, f"count_pivot-{fingerprint(function)}"


@register_funcify_and_cache_key(CountSum)
def _compile_count_sum(op: CountSum, node: Apply, **kwargs: Any) -> tuple[Any, str]:
    function = op.function

    @numba_njit
    def count_sum(  # type: ignore[no-untyped-def]
        release, pivot, log_pivot, low, high, a, b, scale, log_normalizer
    ):
        return function(release, pivot, log_pivot, low, high, a, b, scale, log_normalizer)

    return count_sum, f"count_sum-{fingerprint(function)}"
