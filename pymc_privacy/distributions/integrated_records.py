"""The law of a clipped, noised record of any law with a distribution function, by quadrature.

The record is integrated out of its release by `algorithms.numerics.certified_quadrature`, with the
derivatives in the parameters of its law. Density, distribution function and their derivatives are
PyMC's and PyTensor's.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, NamedTuple

import numba
import numpy as np
import pymc as pm
import pytensor.tensor as pt

from pymc_privacy._compat import (
    Apply,
    DisconnectedType,
    Op,
    RandomVariable,
    TensorVariable,
    Variable,
    compile_graph,
    grad_not_implemented,
    numba_njit,
    register_funcify_and_cache_key,
)
from pymc_privacy.algorithms.numerics.certified_quadrature import (
    Slopes,
    log_expectation_and_slopes,
)
from pymc_privacy.algorithms.release_law import noisy_integrand
from pymc_privacy.distributions.clipped_records import Clipped
from pymc_privacy.mechanisms import Gaussian, Laplace
from pymc_privacy.model.factors import in_double

_PUBLIC = 5  # inputs before the parameters: releases, ends, scales, normalizers


class LawGraphs(NamedTuple):
    """Log density and distribution function of a law at points, and their derivatives."""

    inputs: list[TensorVariable]  # points, then parameters
    log_density: TensorVariable
    log_cdf: TensorVariable
    density_slopes: list[TensorVariable]
    cdf_slopes: list[TensorVariable]


@cache
def law_graphs(law: RandomVariable, count: int) -> LawGraphs:
    """Write what is needed of a law, for vectors of points and of each of its parameters.

    Raises NotImplementedError, or what PyTensor raises, if one of the four is not known.
    """
    at = pt.vector("at", dtype="float64")
    parameters = [pt.vector(dtype="float64") for _ in range(count)]
    record = law.make_node(pt.random.shared_rng(seed=None), None, *parameters).outputs[1]
    logs = in_double([pm.logp(record, at), pm.logcdf(record, at)], [])
    sums = [logs[0].sum(), pt.exp(logs[1]).sum()]
    slopes = [pt.grad(one, parameters, disconnected_inputs="ignore") for one in sums]
    return LawGraphs([at, *parameters], *logs, *slopes)


@cache
def _compiled(law: RandomVariable, count: int, name: str) -> Callable[..., list[np.ndarray]]:
    """Compile one part of `LawGraphs`, when it is first needed."""
    graphs = law_graphs(law, count)
    wanted = getattr(graphs, name)
    outputs = wanted if isinstance(wanted, list) else [wanted]
    return compile_graph(graphs.inputs, outputs, on_unused_input="ignore")


class _Noisy(NamedTuple):
    """Releases with the parameters of their noise."""

    release: np.ndarray
    scale: np.ndarray
    normalizer: np.ndarray


class IntegratedRecord(Op):
    """Log densities of releases, and their derivatives in the parameters of the records' law.

    Of vectors: releases, both ends, scales and log normalizers of the noise, and the parameters of
    the law, each with one number for all releases or one for each.
    """

    __props__ = ("law", "noise")

    def __init__(self, law: RandomVariable, noise: type[Laplace | Gaussian]):
        self.law, self.noise = law, noise

    def make_node(self, *inputs: Variable) -> Apply:
        """Take what is public, and parameters."""
        release = inputs[0]
        slopes = pt.matrix(dtype="float64", shape=(len(inputs) - _PUBLIC, release.type.shape[0]))
        return Apply(self, list(inputs), [release.type(), slopes])

    def infer_shape(self, fgraph: Any, node: Apply, shapes: Sequence[Any]) -> list[Any]:
        """Return the shape of the releases, and one row of them for each parameter."""
        return [shapes[0], (len(shapes) - _PUBLIC, *shapes[0])]

    def perform(
        self, node: Apply, inputs: Sequence[np.ndarray], output_storage: Sequence[list[Any]]
    ) -> None:
        """Integrate."""
        for storage, value in zip(output_storage, self.integrated(*inputs), strict=True):
            storage[0] = value

    def integrated(self, release: np.ndarray, *given: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return log densities, and their derivatives in one row for each parameter."""
        lower, upper, scale = given[:3]
        nearest = np.clip(release, lower, upper)
        # Of what is beyond an end a Laplace kernel keeps a factor, which no parameter enters.
        at, beyond = release, 0.0
        if self.noise is Laplace:
            at, beyond = nearest, np.abs(release - nearest) / scale
        if max(one.size for one in given) > 1:
            logs, slopes = self._of_rows(at, *given)
        else:
            different, place = np.unique(at, return_inverse=True)
            logs, slopes = self._of_rows(different, *given)
            logs, slopes = logs[place], slopes[:, place]
        return logs - beyond, np.ascontiguousarray(slopes)

    def _of_rows(
        self,
        release: np.ndarray,
        lower: np.ndarray,
        upper: np.ndarray,
        scale: np.ndarray,
        normalizer: np.ndarray,
        *parameters: np.ndarray,
    ) -> tuple[np.ndarray, np.ndarray]:
        count = len(parameters)
        columns = [np.broadcast_to(one, release.shape) for one in (lower, upper, scale, normalizer)]
        each = [np.broadcast_to(one, release.shape) for one in parameters]

        def evaluated(name: str) -> Callable[[np.ndarray, np.ndarray], np.ndarray]:
            function = _compiled(self.law, count, name)

            def at(row: np.ndarray, points: np.ndarray) -> np.ndarray:
                rows = np.repeat(row, points.shape[1])
                found = function(points.ravel(), *(one[rows] for one in each))
                if name.endswith("slopes"):
                    return np.nan_to_num(np.stack(found, axis=-1)).reshape(*points.shape, count)
                return found[0].reshape(points.shape)

            return at

        log_density, log_cdf, *slopes_of = map(evaluated, LawGraphs._fields[1:])
        with np.errstate(all="ignore"):
            noisy = _Noisy(release, columns[2], columns[3])
            integrand = noisy_integrand(self.noise, noisy, log_density, log_cdf)
            integrand = integrand._replace(slopes=Slopes(slopes_of[0], slopes_of[1]))
            nearest = np.clip(release, columns[0], columns[1])
            logs, slopes = log_expectation_and_slopes(integrand, columns[0], columns[1], nearest)
        impossible = ~np.isfinite(logs)
        return np.where(impossible, -np.inf, logs), np.where(impossible[:, None], 0.0, slopes).T

    def connection_pattern(self, node: Apply) -> list[list[bool]]:
        """Let gradients flow to all inputs; those that are not known are refused there."""
        return [[True] * 2 for _ in node.inputs]

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
        if not isinstance(cotangents[1].type, DisconnectedType):
            return unknown
        slopes = [cotangents[0] * outputs[1][k] for k in range(len(inputs) - _PUBLIC)]
        return [
            *unknown[:_PUBLIC],
            *(
                slope.sum(keepdims=True) if one.type.shape == (1,) else slope
                for slope, one in zip(slopes, inputs[_PUBLIC:], strict=True)
            ),
        ]


@register_funcify_and_cache_key(IntegratedRecord)
def _compile(op: IntegratedRecord, node: Apply, **kwargs: Any) -> tuple[Any, None]:
    """Integrate outside of machine code: programs of the law's own are compiled there."""
    vector, matrix = numba.float64[::1], numba.float64[:, ::1]

    def integrated(release: np.ndarray, *given: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return op.integrated(np.asarray(release), *map(np.asarray, given))

    @numba_njit
    def of_all(release, *given):  # type: ignore[no-untyped-def]
        with numba.objmode(logs=vector, slopes=matrix):
            logs, slopes = integrated(release, *given)
        return logs, slopes

    return of_all, None


def log_density_by_quadrature(
    release: TensorVariable, clipped: Clipped, mechanism: Any
) -> TensorVariable:
    """Return the log density of each release of records of any law."""
    node = clipped.record.owner
    noise = map(pt.constant, map(np.float64, mechanism.parameters))
    given = [clipped.lower, clipped.upper, *noise, *node.op.dist_params(node)]
    rows = [_as_row(one, release) for one in given]
    op = IntegratedRecord(node.op, type(mechanism))
    return op(release.astype("float64"), *rows)[0]


def _as_row(value: TensorVariable, release: TensorVariable) -> TensorVariable:
    """Return a vector of one number for all, or of one for each release."""
    value = pt.as_tensor(value).astype("float64")
    if value.type.broadcastable in ((), (True,)):
        return value.reshape((1,))
    return pt.broadcast_to(value, (release.shape[0],))
