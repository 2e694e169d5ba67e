"""What is computed from a model once, for as long as the model consists of the same parts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any
from weakref import WeakKeyDictionary

from pymc_privacy._compat import Model


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
        """Return the value for a model, computed anew where any of its parts is another object."""
        known = self._known.get(model)
        if known is None or not _are_the_same(known[0], parts):
            known = self._known[model] = (parts, compute())
        return known[1]


def _are_the_same(parts: Sequence[Any], others: Sequence[Any]) -> bool:
    return len(parts) == len(others) and all(a is b for a, b in zip(parts, others, strict=True))
