"""One replicate: its setting, its own seed, and the line of JSON that it becomes.

A line is written where the replicate ran, so that a result that cannot be written is found there,
and is a failure of this replicate like any other.
"""

from __future__ import annotations

import hashlib
import json
import time
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from pymc_privacy.arguments import shown
from pymc_privacy.errors import StudyError

RESERVED = ("replicate", "seconds", "error", "traceback")


class Replicate(NamedTuple):
    """One cell of a study: a setting of the grid, and which of its repetitions."""

    setting: Mapping[str, Any]
    number: int

    @property
    def key(self) -> str:
        """Return what identifies it on file: equal numbers give equal keys, 1 and 1.0 too."""
        return json.dumps([_plain(self.setting, whole=True), self.number], sort_keys=True)

    def generator(self, seed: int) -> np.random.Generator:
        """Return a generator that depends on the seed and on this cell, and on nothing else.

        A larger grid or more replicates leave the generators of all others as they are.
        """
        digest = hashlib.sha256(self.key.encode()).digest()
        words = [int.from_bytes(digest[k : k + 4], "little") for k in range(0, len(digest), 4)]
        return np.random.default_rng(np.random.SeedSequence([seed, *words]))


class Outcome(NamedTuple):
    """What a replicate became: its line of the file, and whether that is an error."""

    line: str
    failed: bool = False


def run_replicate(
    function: Callable[..., Mapping],
    replicate: Replicate,
    seed: int,
    ticket: str = "",
    started: str = "",
) -> Outcome:
    """Run one replicate; an exception becomes a line with its error.

    A ticket makes two calls differ, for executors that answer equal calls from memory. It is left
    as a file in the folder `started`, if there is one, for whoever must know after a crash.
    """
    if started:
        (Path(started) / ticket).touch()
    start = time.perf_counter()
    try:
        result = function(replicate.generator(seed), **replicate.setting)
        seconds = time.perf_counter() - start
        _check_names(result, replicate)
        line = {"key": replicate.key, "seconds": seconds, "result": _plain(result)}
        return Outcome(json.dumps(line))
    except KeyboardInterrupt:
        raise  # by whoever runs the study
    except BaseException as error:
        return failure(replicate, error, seconds=time.perf_counter() - start)


def failure(replicate: Replicate, error: BaseException, *, seconds: float = 0.0) -> Outcome:
    """Return the line of a replicate that came to nothing, with where its error came from."""
    line = {
        "key": replicate.key,
        "seconds": seconds,
        "error": f"{type(error).__name__}: {_message(error)}",
        "traceback": _traceback(error),
    }
    return Outcome(json.dumps(line), failed=True)


def _message(error: BaseException) -> str:
    try:
        return str(error)
    except Exception:
        return "(an error whose message cannot be printed)"


def _traceback(error: BaseException) -> str:
    try:
        return "".join(traceback.format_exception(error))
    except Exception:
        return "".join(traceback.format_tb(error.__traceback__))


def _check_names(result: Any, replicate: Replicate) -> None:
    if not isinstance(result, Mapping):
        raise StudyError(
            f"A replicate must return a mapping of names to results; got {type(result).__name__}."
        )
    odd = [name for name in result if not isinstance(name, str)]
    if odd:
        raise StudyError(f"The names of results must be strings; got {shown(odd[0])}.")
    clash = set(result) & {*RESERVED, *replicate.setting}
    if clash:
        raise StudyError(
            f"Results must have names of their own, apart from {', '.join(RESERVED)} and from "
            f"those of the settings; got {', '.join(sorted(clash))}."
        )


def _plain(value: Any, *, whole: bool = False) -> Any:
    """Return mappings, sequences, arrays and numbers as JSON has them.

    With ``whole``, floats without a fraction become integers.
    """
    if isinstance(value, Mapping):
        named = {str(name): _plain(part, whole=whole) for name, part in value.items()}
        if len(named) < len(value):
            raise StudyError(
                "Names must differ when they are written as strings, or one would take the place "
                f"of another; got {shown(list(value))}."
            )
        return named
    if isinstance(value, list | tuple):
        return [_plain(part, whole=whole) for part in value]
    if isinstance(value, np.ndarray):
        return _plain(value.tolist(), whole=whole)
    if isinstance(value, np.generic):
        value = value.item()
    return int(value) if whole and isinstance(value, float) and value.is_integer() else value
