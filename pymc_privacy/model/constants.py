"""The constants of a graph, which are arrays of whoever wrote the model.

PyTensor keeps the array it is given, and a model may be derived from in several steps: what was
written into an array between two of them would be in one and not in the other.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pymc_privacy._compat import Constant, HasInnerGraph, Variable, ancestors


def hold_fast(graphs: Sequence[Variable]) -> None:
    """Give the constants of graphs copies of their arrays, once: what comes later is not seen.

    Examples
    --------
    >>> import numpy as np
    >>> import pytensor.tensor as pt
    >>> array = np.ones(2)
    >>> graph = 2 * pt.as_tensor(array)
    >>> hold_fast([graph])
    >>> array[:] = 5.0
    >>> graph.eval(mode="FAST_COMPILE")
    array([2., 2.])
    """
    for variable in ancestors(graphs):
        if isinstance(variable, Constant):
            _hold(variable)
        elif variable.owner is not None and isinstance(variable.owner.op, HasInnerGraph):
            hold_fast(variable.owner.op.inner_outputs)


def _hold(constant: Any) -> None:
    # Numbers cannot be written into; arrays, dense or sparse, can be copied.
    if getattr(constant.data, "ndim", 0) and not getattr(constant.tag, "is_held", False):
        constant.data = constant.data.copy()
        constant.tag.is_held = True
