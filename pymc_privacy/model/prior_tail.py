"""How far the prior of a size reaches, if it has no end: by the ratio of its probabilities.

Or, where its parameters are unknown, how many rows are enough for draws from it.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytensor.tensor as pt

from pymc_privacy._compat import (
    AS_WRITTEN,
    Constant,
    GeometricRV,
    NegBinomialRV,
    PoissonRV,
    TensorVariable,
    TruncatedRV,
    _logprob_helper,
    graph_inputs,
    law_parameters,
)
from pymc_privacy.model.marks import law_class

# What a release can only outweigh by log densities that differ by ninety. If one does, proposals
# are refused for want of room, and counted.
LOG_TAIL = -40 * math.log(10)
FURTHEST = 2**21  # rows, of which arrays are made
LEAST_ROWS, MOST_ROWS = 20, 2**17  # where draws say how many
_DRAWS, _SEED = 2000, 1  # the same model has arrays of the same length
# The ratio p(n + 1) / p(n) of these laws falls with n, but for the second, where it may also rise
# to its limit; then all ratios from n on are at most the limit.
_KNOWN = (PoissonRV, NegBinomialRV, GeometricRV)


def reach_of_prior(size: TensorVariable) -> int | None:
    """Return a number that a size exceeds with a prior probability of at most 1e-40.

    With p(n + 1) / p(n) <= r < 1 for all n > c, P(n > c) <= p(c + 1) / (1 - r). None where the law
    is not known to have such ratios, has parameters of its own, or reaches too far.

    Examples
    --------
    >>> import pymc as pm
    >>> reach_of_prior(pm.Poisson.dist(5.0)), reach_of_prior(pm.DiscreteUniform.dist(0, 3))
    (58, None)
    """
    if not _is_known(size):
        return None
    n = np.arange(min(1024, FURTHEST))
    while True:
        found = _reach(size, n)
        if found is not None:
            return found
        if len(n) >= FURTHEST:
            return None
        n = np.arange(min(8 * len(n), FURTHEST))


def rows_for_draws(size: TensorVariable) -> int | None:
    """Return twice the largest of many draws of a size from the prior, parameters included.

    It depends on the prior alone, and says how long arrays of records are; what is beyond is not
    ruled out by it. None where the prior cannot be drawn from, or draws reach too far.

    Examples
    --------
    >>> import pymc as pm
    >>> 20 < rows_for_draws(pm.Poisson.dist(pm.Gamma.dist(4, 1))) < 60
    True
    """
    import pymc as pm

    try:
        drawn = pm.draw(size, _DRAWS, random_seed=_SEED)
    except (NotImplementedError, ArithmeticError, ValueError):
        return None
    most = 2 * int(np.max(drawn))
    return max(most, LEAST_ROWS) if most <= MOST_ROWS else None


def _is_known(size: TensorVariable) -> bool:
    law: Any = law_class(size)
    if issubclass(law, TruncatedRV):
        law = type(size.owner.op.base_rv_op)
    fixed = all(isinstance(v, Constant) for v in graph_inputs(law_parameters(size)))
    return fixed and issubclass(law, _KNOWN)


def _reach(size: TensorVariable, n: np.ndarray) -> int | None:
    """Look for it among some sizes, of which the last two are where ratios are taken."""
    value = pt.constant(n.astype(size.dtype))
    log_p = np.asarray(_logprob_helper(size, value).eval(mode=AS_WRITTEN), dtype=float)
    if log_p.shape != n.shape or not np.isfinite(log_p[-1]):
        # Beyond some n all probabilities are too small for a float: no more is to be found there.
        last = int(np.flatnonzero(np.isfinite(log_p))[-1]) if np.isfinite(log_p).any() else -1
        if last < 2 or log_p.shape != n.shape:
            return None
        log_p = log_p[: last + 1]
    with np.errstate(invalid="ignore"):
        log_ratio = np.diff(log_p)
    # From n on, no ratio is larger than the larger of that at n and the last one that is seen:
    # they fall, or rise to a limit that is nearly reached; a tenth of the way to 1 is to spare.
    worst = np.maximum(log_ratio[1:], log_ratio[-1]) * 0.9
    with np.errstate(invalid="ignore", divide="ignore"):
        log_bound = log_p[1:-1] - np.log(-np.expm1(np.minimum(worst, 0.0)))
    enough = np.flatnonzero((worst < 0) & (log_bound <= LOG_TAIL))
    return int(enough[0]) if len(enough) else None
