"""The least and the greatest value of a discrete law, as far as the model says them in numbers."""

from __future__ import annotations

from functools import singledispatch
from typing import Any

import numpy as np

from pymc_privacy._compat import (
    INTERPRETED,
    BernoulliRV,
    BetaBinomialRV,
    BinomialRV,
    CategoricalRV,
    Constant,
    DiscreteUniformRV,
    GeometricRV,
    NegBinomialRV,
    PoissonRV,
    TensorVariable,
    TruncatedRV,
    Variable,
    graph_inputs,
    law_parameters,
)

Ends = tuple[Any, Any]
"""Arrays that broadcast against a variable, or None where an end is not known."""


def support(rv: TensorVariable) -> tuple[np.ndarray, np.ndarray]:
    """Return both ends of each entry: 0 and infinity where nothing is known.

    Examples
    --------
    >>> import numpy as np
    >>> import pymc as pm
    >>> support(pm.Binomial.dist([3, 5], 0.5))
    (array(0.), array([3., 5.]))
    >>> support(pm.Poisson.dist([2.0, 0.0]))
    (array(0.), array([inf,  0.]))
    """
    least, most = _ends(rv.owner.op, *law_parameters(rv))
    return _number(least, 0.0), _number(most, np.inf)


def possible(rv: TensorVariable) -> tuple[np.ndarray, np.ndarray]:
    """Return both ends of each entry: infinite where nothing is known.

    Examples
    --------
    >>> import pymc as pm
    >>> possible(pm.Normal.dist())
    (array(-inf), array(inf))
    """
    least, most = _ends(rv.owner.op, *law_parameters(rv))
    return _number(least, -np.inf), _number(most, np.inf)


def finite_support(rv: TensorVariable) -> tuple[int, int] | None:
    """Return both ends, if they are known, finite and the same for all entries.

    Examples
    --------
    >>> import pymc as pm
    >>> finite_support(pm.BetaBinomial.dist(1.0, 1.0, n=7)), finite_support(pm.Poisson.dist(3.0))
    ((0, 7), None)
    """
    ends = [np.unique(_number(end, np.inf)) for end in _ends(rv.owner.op, *law_parameters(rv))]
    if any(end.size != 1 or not np.isfinite(end[0]) for end in ends):
        return None
    least, most = ends
    return int(least[0]), int(most[0])


def largest(rv: TensorVariable) -> np.ndarray | None:
    """Return the greatest value of each entry, if all are finite."""
    most = support(rv)[1]
    return most.astype(np.int64) if np.isfinite(most).all() else None


@singledispatch
def _ends(op: Any, *parameters: TensorVariable) -> Ends:
    return None, None


@_ends.register(BernoulliRV)
def _bernoulli(op: Any, p: TensorVariable) -> Ends:
    return 0, 1


@_ends.register(BinomialRV)
@_ends.register(BetaBinomialRV)
def _binomial(op: Any, n: TensorVariable, *parameters: TensorVariable) -> Ends:
    return 0, _constant(n)


@_ends.register(CategoricalRV)
def _categorical(op: Any, p: TensorVariable) -> Ends:
    categories = p.type.shape[-1]
    return 0, None if categories is None else categories - 1


@_ends.register(GeometricRV)
def _geometric(op: Any, p: TensorVariable) -> Ends:
    return 1, None


@_ends.register(NegBinomialRV)
def _negative_binomial(op: Any, *parameters: TensorVariable) -> Ends:
    return 0, None


@_ends.register(PoissonRV)
def _poisson(op: Any, rate: TensorVariable) -> Ends:
    # Nobody is counted where there is no rate.
    rate = _constant(rate)
    return 0, None if rate is None else np.where(rate > 0, np.inf, 0.0)


@_ends.register(DiscreteUniformRV)
def _discrete_uniform(op: Any, lower: TensorVariable, upper: TensorVariable) -> Ends:
    return _whole(lower, np.ceil), _whole(upper, np.floor)


@_ends.register(TruncatedRV)
def _truncated(op: Any, *parameters: TensorVariable) -> Ends:
    """Return the narrower of a law's own ends and the last two parameters, if those are known."""
    *others, lower, upper = parameters
    law = op.base_rv_op
    least, most = _ends(law, *others[-len(law.ndims_params) :])
    between = _discrete_uniform(op, lower, upper)
    return _narrower(least, between[0], np.maximum), _narrower(most, between[1], np.minimum)


def _narrower(own: Any, end: Any, narrow: Any) -> Any:
    if end is None or (own is None and not np.isfinite(end).all()):
        return None
    return end if own is None else narrow(own, end)


def _whole(end: Variable, rounded: Any) -> np.ndarray | None:
    value = _constant(end)
    return None if value is None else rounded(value)


def _number(end: Any, unknown: float) -> np.ndarray:
    return np.asarray(unknown if end is None else end, dtype=float)


def _constant(variable: Variable) -> np.ndarray | None:
    if all(isinstance(part, Constant) for part in graph_inputs([variable])):
        return np.asarray(variable.eval(mode=INTERPRETED))
    return None
