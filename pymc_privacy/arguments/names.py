"""Names, choices, paths, functions and generators: of the class they must be, and nothing else."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, Literal, cast

import numpy as np

from pymc_privacy.arguments.sentences import refusal
from pymc_privacy.errors import ArgumentError, PrivacyError

Neighbours = Literal["replace_one", "add_remove"]
_MOST = 100_000  # names, of something that may have no end


def text(
    name: str,
    value: Any,
    *,
    meaning: str = "",
    wanted: str = "a line of text, not empty",
    error: type[PrivacyError] = ArgumentError,
) -> str:
    """Return a string of one printable line that says something."""
    if not isinstance(value, str) or not value.strip() or not value.isprintable():
        raise refusal(name, wanted, value, meaning=meaning, error=error)
    return str(value)


def title(
    name: str,
    value: Any,
    *,
    meaning: str = "",
    wanted: str = "a line of text, not empty, without white space at its ends",
    error: type[PrivacyError] = ArgumentError,
) -> str:
    """Return a line of text without white space at its ends: what looks the same is the same.

    Examples
    --------
    >>> title("name", "yes ")
    Traceback (most recent call last):
    pymc_privacy.errors.ArgumentError: name must be a line of text, not empty, without white space \
at its ends; got 'yes '.
    """
    line = text(name, value, meaning=meaning, wanted=wanted, error=error)
    if line != line.strip():
        raise refusal(name, wanted, value, meaning=meaning, error=error)
    return line


def sentences(
    name: str, value: Any, *, error: type[PrivacyError] = ArgumentError
) -> tuple[str, ...]:
    """Return a tuple of lines of text, none of them empty; the tuple may be."""
    if not isinstance(value, tuple):
        raise refusal(name, "a tuple of sentences", value, error=error)
    return tuple(text(name, line, wanted="a tuple of sentences", error=error) for line in value)


def names(
    name: str, value: Any, *, meaning: str = "", error: type[PrivacyError] = ArgumentError
) -> list[str]:
    """Return a list of names, of one name or of several.

    Examples
    --------
    >>> names("var_names", "mu"), names("var_names", ("mu", "sigma"))
    (['mu'], ['mu', 'sigma'])
    """
    try:
        if isinstance(value, Mapping):
            raise TypeError
        given = [value] if isinstance(value, str) else list(islice(value, _MOST))
    except Exception:  # of a class of the caller's, which can raise anything
        given = [None]
    if not all(isinstance(one, str) and one.isprintable() for one in given):
        raise refusal(name, "a name, or a list of names", value, meaning=meaning, error=error)
    return [str(one) for one in given]


def choice(
    name: str,
    value: Any,
    options: Sequence[str | None],
    *,
    meaning: str = "",
    error: type[PrivacyError] = ArgumentError,
) -> Any:
    """Return one of a few words, or None where that is among them.

    Examples
    --------
    >>> choice("sampler", "magic", ("exact", "opendp"))
    Traceback (most recent call last):
    pymc_privacy.errors.ArgumentError: sampler must be "exact" or "opendp"; got 'magic'.
    """
    if (value is None or isinstance(value, str)) and value in options:
        return value
    words = ["None" if option is None else f'"{option}"' for option in options]
    wanted = " or ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)
    raise refusal(name, wanted, value, meaning=meaning, error=error)


def neighbours(
    value: Any,
    *,
    optional: bool = False,
    meaning: str = "which data sets must look alike",
    error: type[PrivacyError] = ArgumentError,
) -> Any:
    """Return a neighbour relation, or None where it may be left unsaid."""
    options: tuple[str | None, ...] = ("replace_one", "add_remove")
    return choice(
        "neighbours",
        value,
        (*options, None) if optional else options,
        meaning=meaning,
        error=error,
    )


def path(
    name: str, value: Any, *, meaning: str = "", error: type[PrivacyError] = ArgumentError
) -> Path:
    """Return a path; that there is such a file is not checked."""
    try:
        given = os.fspath(value)
    except TypeError:
        given = None
    if not isinstance(given, str) or not given.strip() or not given.isprintable():
        raise refusal(name, "a path, a str or a pathlib.Path", value, meaning=meaning, error=error)
    return Path(given)


def generator(
    name: str, value: Any, *, meaning: str = "", error: type[PrivacyError] = ArgumentError
) -> np.random.Generator:
    """Return a generator of NumPy; a seed is none."""
    if not isinstance(value, np.random.Generator):
        wanted = "a np.random.Generator, such as np.random.default_rng(1)"
        raise refusal(name, wanted, value, meaning=meaning, error=error)
    return value


def function(
    name: str, value: Any, *, meaning: str = "", error: type[PrivacyError] = ArgumentError
) -> Callable[..., Any]:
    """Return something that can be called; that it takes the arguments is not checked."""
    if not callable(value):
        raise refusal(name, "a function", value, meaning=meaning, error=error)
    return cast(Callable[..., Any], value)


def instance(
    name: str,
    value: Any,
    kind: type | tuple[type, ...],
    wanted: str,
    *,
    meaning: str = "",
    error: type[PrivacyError] = ArgumentError,
) -> Any:
    """Return an object of a class; `wanted` is how the message calls one."""
    if not isinstance(value, kind):
        raise refusal(name, wanted, value, meaning=meaning, error=error)
    return value
