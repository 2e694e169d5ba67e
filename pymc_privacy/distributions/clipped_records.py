"""The law of a clipped, noised record, from graph to machine code and back.

The record is integrated out of its release: for a Normal record in closed form, by
`algorithms.numerics.clipped_normal`, with its slopes. Two numbers, uniform and Laplace, are made
into a record given its release.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import pytensor.tensor as pt

from pymc_privacy._compat import (
    Apply,
    Clip,
    DisconnectedType,
    Elemwise,
    NormalRV,
    Op,
    RandomVariable,
    ScalarMaximum,
    ScalarMinimum,
    TensorVariable,
    Variable,
    ancestors,
    grad_not_implemented,
    numba_njit,
    register_funcify_and_cache_key,
)
from pymc_privacy.algorithms.machine_code.caching import fingerprint
from pymc_privacy.algorithms.numerics import clipped_normal
from pymc_privacy.mechanisms import Gaussian, Laplace, Mechanism

_SLOPES: dict[tuple[str, bool], Callable[..., Any]] = {
    ("laplace", False): clipped_normal.laplace_slopes_of_all,
    ("gaussian", False): clipped_normal.gaussian_slopes_of_all,
    ("laplace", True): clipped_normal.laplace_slopes_of_equal,
    ("gaussian", True): clipped_normal.gaussian_slopes_of_equal,
}
_RECORDS: dict[str, Callable[..., Any]] = {
    "laplace": clipped_normal.laplace_record_of_all,
    "gaussian": clipped_normal.gaussian_record_of_all,
}
_NOISE: dict[type, str] = {Laplace: "laplace", Gaussian: "gaussian"}


class Clipped(NamedTuple):
    """A vector of records between two ends, which may be infinite."""

    record: TensorVariable
    lower: TensorVariable
    upper: TensorVariable


def clipped_record(contributions: TensorVariable) -> Clipped | None:
    """Return of which record contributions are the clipped values, or the values themselves.

    None where they are anything else, or the ends are random.
    """
    node, ends = contributions.owner, (pt.constant(-np.inf), pt.constant(np.inf))
    record = contributions
    if node is not None and _is(Clip, node.op):
        record, *found = node.inputs
        # PyMC puts the record itself for an end that there is not.
        low, high = (none if end is record else end for end, none in zip(found, ends, strict=True))
        ends = (low, high)
    # As which PyTensor writes an interval with one end.
    elif node is not None and _is((ScalarMaximum, ScalarMinimum), node.op):
        record, end = node.inputs if _is_drawn(node.inputs[0]) else node.inputs[::-1]
        ends = (end, ends[1]) if _is(ScalarMaximum, node.op) else (ends[0], end)
    node = record.owner
    if node is None or not isinstance(node.op, RandomVariable) or record.ndim != 1:
        return None
    if np.dtype(record.dtype).kind != "f" or node.op.ndim_supp > 0:
        return None
    if any(v.owner and isinstance(v.owner.op, RandomVariable) for v in ancestors(ends)):
        return None
    return Clipped(record, *(_as_rows(end) for end in ends))


def _is(kind: Any, op: Any) -> bool:
    return isinstance(op, Elemwise) and isinstance(op.scalar_op, kind)


def _is_drawn(variable: Variable) -> bool:
    return variable.owner is not None and isinstance(variable.owner.op, RandomVariable)


def _as_rows(end: TensorVariable) -> TensorVariable:
    return end.astype("float64")


def closed_noise(record: TensorVariable, mechanism: Mechanism) -> str | None:
    """Return the noise under which the law of a release is known in closed form, if it is."""
    if not isinstance(record.owner.op, NormalRV):
        return None
    return _NOISE.get(type(mechanism))


def log_density_in_closed_form(
    release: TensorVariable,
    clipped: Clipped,
    mechanism: Any,
    mu: TensorVariable,
    sd: TensorVariable,
) -> TensorVariable:
    """Return the log density of each release of Normal records."""
    noise = _NOISE[type(mechanism)]
    scale = _scale(mechanism)
    each = [clipped.lower, clipped.upper, scale, mu, sd]
    if all(one.type.broadcastable in ((), (True,)) for one in each):
        given = [one.astype("float64").reshape((1,)) for one in each]
        return ClippedNormal(noise, equal=True)(release.astype("float64"), *given)[0]
    op = ClippedNormal(noise, equal=False)
    return op(*_flat(release, clipped, mechanism, mu, sd, release.shape[0]))[0]


def _scale(mechanism: Any) -> TensorVariable:
    # A plain number would become a tensor of the fewest bits that PyTensor deems enough.
    return pt.constant(np.asarray(mechanism.scale, dtype=np.float64))


def records_in_closed_form(
    rng: Variable,
    release: TensorVariable,
    clipped: Clipped,
    mechanism: Any,
    mu: TensorVariable,
    sd: TensorVariable,
) -> TensorVariable:
    """Return draws of Normal records given their releases."""
    size = release.shape[0]
    following, choice = pt.random.uniform(size=(size,), rng=rng, return_next_rng=True)
    _, place = pt.random.laplace(0.0, 1.0, size=(size,), rng=following, return_next_rng=True)
    op = ClippedNormalDraw(str(_NOISE[type(mechanism)]))
    return op(choice, place, *_flat(release, clipped, mechanism, mu, sd, size))


def _flat(
    release: TensorVariable,
    clipped: Clipped,
    mechanism: Any,
    mu: TensorVariable,
    sd: TensorVariable,
    size: TensorVariable,
) -> list[TensorVariable]:
    """Return vectors with one number for each record."""
    each = (release, clipped.lower, clipped.upper, _scale(mechanism), mu, sd)
    return [pt.broadcast_to(one.astype("float64"), (size,)) for one in each]


class ClippedNormal(Op):
    """Log densities of releases, and their derivatives in mu and sd.

    Of vectors: releases, both ends, scales of the noise, mu and sd. All but releases have length 1
    if queries and laws are ``equal``.
    """

    __props__ = ("noise", "equal")

    def __init__(self, noise: str, *, equal: bool):
        self.noise, self.equal = noise, equal

    def make_node(self, *inputs: Variable) -> Apply:
        """Take six vectors."""
        vector = pt.vector(dtype="float64", shape=inputs[0].type.shape)
        return Apply(self, list(inputs), [vector.type() for _ in range(3)])

    def infer_shape(self, fgraph: Any, node: Apply, shapes: Sequence[Any]) -> list[Any]:
        """Return the shape of the releases, three times."""
        return [shapes[0]] * 3

    def perform(
        self, node: Apply, inputs: Sequence[np.ndarray], output_storage: Sequence[list[Any]]
    ) -> None:
        """Evaluate; the loop is compiled in every mode."""
        found = self.function(*map(np.ascontiguousarray, inputs))
        for storage, value in zip(output_storage, found, strict=True):
            storage[0] = value

    @property
    def function(self) -> Any:
        """Return the compiled loop."""
        return _SLOPES[self.noise, self.equal]

    def connection_pattern(self, node: Apply) -> list[list[bool]]:
        """Let gradients flow to all inputs; those that are not known are refused there."""
        return [[True] * 3 for _ in node.inputs]

    def pullback(
        self,
        inputs: Sequence[Variable],
        outputs: Sequence[Variable],
        cotangents: Sequence[Variable],
    ) -> list[Variable]:
        """Use the derivatives that come with the value; second ones are not provided."""
        unknown = [
            grad_not_implemented(self, k, one, "of a release or a query")
            for k, one in enumerate(inputs)
        ]
        if any(not isinstance(c.type, DisconnectedType) for c in cotangents[1:]):
            return unknown
        slopes = [cotangents[0] * outputs[1], cotangents[0] * outputs[2]]
        if self.equal:
            slopes = [slope.sum(keepdims=True) for slope in slopes]
        return [*unknown[:4], *slopes]


class ClippedNormalDraw(Op):
    """Records given their releases, made of a uniform and a Laplace number each."""

    __props__ = ("noise",)

    def __init__(self, noise: str):
        self.noise = noise

    def make_node(self, *inputs: Variable) -> Apply:
        """Take eight vectors."""
        vector = pt.vector(dtype="float64", shape=inputs[2].type.shape)
        return Apply(self, list(inputs), [vector.type()])

    def infer_shape(self, fgraph: Any, node: Apply, shapes: Sequence[Any]) -> list[Any]:
        """Return the shape of the releases."""
        return [shapes[2]]

    def perform(
        self, node: Apply, inputs: Sequence[np.ndarray], output_storage: Sequence[list[Any]]
    ) -> None:
        """Evaluate; the loop is compiled in every mode."""
        output_storage[0][0] = _RECORDS[self.noise](*map(np.ascontiguousarray, inputs))


@register_funcify_and_cache_key(ClippedNormal)
def _compile_density(op: ClippedNormal, node: Apply, **kwargs: Any) -> tuple[Any, str]:
    function = op.function

    @numba_njit
    def slopes(release, lower, upper, scale, mu, sd):  # type: ignore[no-untyped-def]
        return function(release, lower, upper, scale, mu, sd)

    return slopes, f"clipped_normal-{fingerprint(function)}"


@register_funcify_and_cache_key(ClippedNormalDraw)
def _compile_draw(op: ClippedNormalDraw, node: Apply, **kwargs: Any) -> tuple[Any, str]:
    function = _RECORDS[op.noise]

    @numba_njit
    def records(choice, place, release, lower, upper, scale, mu, sd):  # type: ignore[no-untyped-def]
        return function(choice, place, release, lower, upper, scale, mu, sd)

    return records, f"clipped_normal_draw-{fingerprint(function)}"
