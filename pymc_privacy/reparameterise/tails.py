"""The coordinate u = log 2 F(x), or -log 2 (1 - F(x)): a standard Laplace variate.

Whichever tail x cuts off, its logarithm is a float of full accuracy, however small the tail is; and
the sign, which tells the two tails apart, is not lost with it, as that of a tail that has become
zero would be.
"""

from __future__ import annotations

import math

import pytensor.tensor as pt

from pymc_privacy._compat import TensorVariable
from pymc_privacy.algorithms.numerics.truncated_normal import FARTHEST

_LOG_2 = math.log(2.0)


def signed(log_below: TensorVariable, log_above: TensorVariable) -> TensorVariable:
    """Return u, given the logs of both tails; the smaller one must be accurate."""
    u = pt.where(log_below < log_above, log_below + _LOG_2, -log_above - _LOG_2)
    return pt.clip(u, -FARTHEST, FARTHEST)


def log_below(u: TensorVariable) -> TensorVariable:
    """Return log F."""
    return pt.where(u < 0, u - _LOG_2, pt.log1p(-0.5 * pt.exp(-abs(u))))


def log_above(u: TensorVariable) -> TensorVariable:
    """Return log(1 - F)."""
    return log_below(-u)
