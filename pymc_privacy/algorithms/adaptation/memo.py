"""What was last computed, for as long as nothing it depends on has changed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


class Memo:
    """A function that remembers its value until it is given other objects.

    Equal objects count as others: telling arrays apart would cost more than it saves.
    """

    def __init__(self, function: Callable[..., Any]):
        self._function = function
        self._given: tuple | None = None
        self._value: Any = None

    def __call__(self, *given: Any) -> Any:
        """Return the function's value."""
        if self._given is None or any(a is not b for a, b in zip(self._given, given, strict=True)):
            self._given, self._value = given, self._function(*given)
        return self._value
