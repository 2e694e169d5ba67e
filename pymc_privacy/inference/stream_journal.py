"""The folder of a stream: every release on disk before it is used, and clouds to go on from.

A release cannot be asked for again. Each is one line, appended with a sync before the particles
hear of it; a torn last line belongs to a release that update() has not returned for, and is cut
off. Particles are written anew, beside the old ones and then in their place, whenever they were
moved. What was drawn at a release depends on the seed and on how many came before, and on nothing
else: the particles on file and the lines after them make the same stream again, bit for bit.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np

from pymc_privacy.errors import StreamError
from pymc_privacy.studies.journal import Writer, locked, sync_folder


class StreamJournal:
    """What one stream has on disk.

    Parameters
    ----------
    folder : Path
        Made if it is not there.
    """

    def __init__(self, folder: Path):
        self.folder = folder
        self._lines, self._cloud = folder / "releases.jsonl", folder / "particles.npz"
        self._stack = ExitStack()
        self._writer: Writer | None = None

    def open(self) -> tuple[dict[str, Any] | None, list[dict[str, Any]]]:
        """Lock the folder, cut off a torn line, and return the first line and all others."""
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            refusal = StreamError(
                f"One stream at a time may write to a folder; {self.folder} is in use by another."
            )
            self._stack.enter_context(locked(self._lines, self._descriptor, refusal))
            descriptor = self._descriptor(self._lines, os.O_APPEND)
            self._stack.callback(os.close, descriptor)
            text = self._lines.read_bytes()
            os.ftruncate(descriptor, text.rfind(b"\n") + 1)
        except OSError as error:
            raise StreamError(
                "path must be a folder that can be read and written, in which a stream keeps what "
                f"was released; got {self.folder} ({error.strerror})."
            ) from None
        self._writer = Writer(descriptor)
        lines = [self._parsed(line) for line in text.split(b"\n")[:-1]]
        return (lines[0], lines[1:]) if lines else (None, [])

    def append(self, lines: Sequence[Mapping[str, Any]]) -> None:
        """Write lines, and wait until they are on disk.

        Where that fails, what is on disk is known only by reading it again.
        """
        if self._writer is None:
            raise StreamError(
                f"The stream in {self.folder} must be opened again, because it was closed, or "
                "because what was released could not be written there; its size then says how many "
                "releases are kept."
            )
        writer, self._writer = self._writer, None
        try:
            writer.append("\n".join(map(json.dumps, lines)))
        except OSError as error:
            raise StreamError(
                f"What is released must be written to {self.folder} before it is used; that failed "
                f"({error.strerror}). Open the stream again: its size says how many are kept."
            ) from None
        self._writer = writer

    def begin(self, identity: Mapping[str, Any]) -> None:
        """Write the first line, by which the stream is known again."""
        self.append([identity])
        sync_folder(self.folder)

    def keep(self, arrays: Mapping[str, np.ndarray]) -> None:
        """Put particles in the place of those before, all or nothing."""
        fresh = self.folder / "particles.part"
        try:
            with open(fresh, "wb") as file:
                np.savez(file, **arrays)  # type: ignore[arg-type]
                file.flush()
                os.fsync(file.fileno())
            os.replace(fresh, self._cloud)
            sync_folder(self.folder)
        except OSError as error:
            raise StreamError(
                f"Particles could not be written to {self.folder} ({error.strerror}). No release "
                "is lost: they are computed again from what was released."
            ) from None

    def kept(self) -> dict[str, np.ndarray] | None:
        """Return the particles on file, or None."""
        try:
            with np.load(self._cloud) as arrays:
                return dict(arrays)
        except FileNotFoundError:
            return None
        except Exception:
            raise StreamError(
                f"{self._cloud} must be as a stream has written it; got something else. Without "
                "it the stream is computed again from its releases: move it away."
            ) from None

    def close(self) -> None:
        """Give up the lock."""
        self._writer = None
        self._stack.close()

    def _descriptor(self, path: Any, flags: int = 0) -> int:
        return os.open(path, os.O_RDWR | os.O_CREAT | flags, 0o644)

    def _parsed(self, line: bytes) -> dict[str, Any]:
        try:
            found = json.loads(line)
        except ValueError:
            found = None
        if not isinstance(found, dict):
            raise StreamError(
                f"Every finished line of {self._lines} must be as a stream has written it; got one "
                "that is not. Mend that line: what follows it was released, too."
            )
        return found
