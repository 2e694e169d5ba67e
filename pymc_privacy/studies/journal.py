"""The file of a study: one line for each finished replicate, on disk before the next is taken.

Lines are only ever appended, each with one write and a sync. A process that dies in the middle of
a line leaves a torn one, which is cut off by the next run: its replicate is unfinished, and is run
again. The lock keeps a second run away, and ends with the process that holds it.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pymc_privacy.errors import StudyError

# Locks of POSIX belong to a process, so that the workers it forks do not hold them when it is
# killed; what they do not do is to keep two threads of one process apart.
_OPEN: set[Path] = set()


class Journal:
    """The lines of one study, and what study they belong to."""

    def __init__(self, path: Path, identity: dict[str, Any]):
        self.path = path
        self.identity = identity

    def read(self) -> dict[str, dict[str, Any]]:
        """Return the last complete line of each replicate by its key."""
        try:
            if self.path.exists() and not self.path.is_file():
                raise OSError(0, "not an ordinary file")
            text = self.path.read_bytes()
        except FileNotFoundError:
            return {}
        except OSError as error:
            raise self._unusable(error) from None
        first, *lines = self._complete(text) or [self.identity]
        if first != self.identity:
            raise StudyError(
                f"The results of a study must be kept apart from those of others; {self.path} "
                f"holds {_named(first)}; got {_named(self.identity)}. Choose another path."
            )
        if not all(map(_is_line, lines)):
            raise StudyError(
                f"Every finished line of {self.path} must be one that a study has written; got "
                "one that is not. Choose another path, or mend that line."
            )
        return {line["key"]: line for line in lines}

    @contextmanager
    def writing(self) -> Iterator[Writer]:
        """Lock the file, cut off a torn line, and hand out what appends to it."""
        refusal = StudyError(
            f"One run at a time may write the results of a study; {self.path} is in use by another."
        )
        with locked(self.path, self._open, refusal):
            self.read()
            descriptor = self._open(self.path, os.O_APPEND)
            try:
                text = self.path.read_bytes()
                os.ftruncate(descriptor, text.rfind(b"\n") + 1)
                writer = Writer(descriptor)
                if b"\n" not in text:
                    writer.append(json.dumps(self.identity))
                    sync_folder(self.path.parent)
                yield writer
            finally:
                os.close(descriptor)

    def _open(self, path: Any, flags: int = 0) -> int:
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            return os.open(path, os.O_RDWR | os.O_CREAT | flags, 0o644)
        except OSError as error:
            raise self._unusable(error) from None

    def _unusable(self, error: OSError) -> StudyError:
        return StudyError(
            "The results of a study must go to a file that can be read and written, in a folder "
            f"that can be written; got {self.path} ({error.strerror})."
        )

    def _complete(self, text: bytes) -> list[dict[str, Any]]:
        """Return all lines that were written to their end."""
        try:
            return [json.loads(line) for line in text.split(b"\n")[:-1]]
        except (ValueError, RecursionError) as error:
            raise StudyError(
                f"Every finished line of {self.path} must be JSON, as a study has written it; "
                f"got one that is not ({error}). Choose another path, or mend that line."
            ) from None


class Writer:
    """Append lines, each on disk before the call returns."""

    def __init__(self, descriptor: int):
        self._descriptor = descriptor

    def append(self, line: str) -> None:
        """Write one line and wait until it is on disk."""
        data = line.encode() + b"\n"
        while data:
            data = data[os.write(self._descriptor, data) :]
        os.fsync(self._descriptor)


@contextmanager
def locked(path: Path, opened: Callable[[str], int], refusal: Exception) -> Iterator[None]:
    """Hold a lock beside the file; without fcntl, as on Windows, only within this process."""
    key = path.resolve()
    if key in _OPEN:
        raise refusal
    # Closing any descriptor of a file drops its POSIX locks, and the results are read while they
    # are written: hence a file of its own.
    descriptor = opened(f"{path}.lock")
    _OPEN.add(key)
    try:
        try:
            import fcntl

            fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except ImportError:
            pass
        except OSError:
            raise refusal from None
        yield
    finally:
        os.close(descriptor)
        _OPEN.discard(key)


def sync_folder(folder: Path) -> None:
    """Make the name of a new file as durable as its content, where the system can."""
    try:
        descriptor = os.open(folder, os.O_RDONLY)
    except OSError:
        return
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _named(identity: Any) -> str:
    if not isinstance(identity, dict):
        return "no study"
    return f"{identity.get('study', 'no study')} with seed {identity.get('seed')}"


def _is_line(line: Any) -> bool:
    """Return whether a line is the outcome of a replicate."""
    return (
        isinstance(line, dict)
        and isinstance(line.get("key"), str)
        and isinstance(line.get("seconds"), int | float)
        and isinstance(line.get("result", {}), dict)
        and ("result" in line) != ("error" in line)
    )
