"""What is computed from a model once, for as long as the model consists of the same parts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from hashlib import sha256
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
from scipy.sparse import issparse

from pymc_privacy._compat import Model, RandomGeneratorType, SharedVariable, Variable, graph_inputs


class KeptPerModel[T]:
    """A value for each model that is still in use.

    Examples
    --------
    >>> import pymc as pm
    >>> kept = KeptPerModel()
    >>> model = pm.Model()
    >>> kept.get(model, ["a part"], lambda: 1), kept.get(model, ["a part"], lambda: 2)
    (1, 1)
    >>> kept.get(model, ["another"], lambda: 3)
    3
    """

    def __init__(self) -> None:
        self._known: WeakKeyDictionary[Model, tuple[Sequence[Any], T]] = WeakKeyDictionary()

    def get(self, model: Model, parts: Sequence[Any], compute: Callable[[], T]) -> T:
        """Return the value for a model, computed anew where any of its parts is another object.

        Strings are the same where they are equal.
        """
        known = self._known.get(model)
        if known is None or not _are_the_same(known[0], parts):
            known = self._known[model] = (parts, compute())
        return known[1]


class KeptOnce[T]:
    """A value for the parts it was made of last; who takes it has it alone.

    It may hold on to its model, since there is only one of it.

    Examples
    --------
    >>> kept, part = KeptOnce(), object()
    >>> kept.keep([part], 1)
    >>> kept.take([object()]), kept.take([part]), kept.take([part])
    (None, 1, None)
    """

    def __init__(self) -> None:
        self._known: tuple[Sequence[Any], T] | None = None

    def keep(self, parts: Sequence[Any], value: T) -> None:
        """Put a value back, or a new one in its place; of no parts at all nothing is kept."""
        self._known = (parts, value) if parts else None

    def take(self, parts: Sequence[Any]) -> T | None:
        """Return the value, which is no longer kept then, or None where a part is another."""
        known = self._known
        if known is None or not _are_the_same(known[0], parts):
            return None
        self._known = None
        return known[1]


def data_behind(graphs: Iterable[Any]) -> list[np.ndarray]:
    """Return the present arrays of all data that graphs are computed from."""
    given = [graph for graph in graphs if isinstance(graph, Variable)]
    return [
        variable.get_value(borrow=True)
        for variable in graph_inputs(given)
        if isinstance(variable, SharedVariable)
        and not isinstance(variable.type, RandomGeneratorType)
    ]


def digest_of_data(graphs: Iterable[Any]) -> str:
    """Return what changes with any number in the data behind graphs, written in place too."""
    digest = sha256()
    found: list[Any] = list(data_behind(graphs))
    for data in found:
        for array in (data.data, data.indices, data.indptr) if issparse(data) else (data,):
            digest.update(f"{array.dtype} {array.shape}".encode())
            digest.update(np.ascontiguousarray(array).data)
    return digest.hexdigest()


def _are_the_same(parts: Sequence[Any], others: Sequence[Any]) -> bool:
    return len(parts) == len(others) and all(
        a is b or (isinstance(a, str) and a == b) for a, b in zip(parts, others, strict=True)
    )
