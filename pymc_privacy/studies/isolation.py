"""Replicates in processes that may be lost: none can take another down, or run for ever.

A process that ends without an outcome, or is still busy at its time limit and is killed for it,
makes its replicate a row with an error, like any other failure; another process takes its place.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from multiprocessing.connection import Connection, wait
from typing import Any, NamedTuple

from pymc_privacy.errors import StudyError
from pymc_privacy.studies.replicates import Outcome, Replicate, failure, run_replicate

_READY = "ready"


class Workers(NamedTuple):
    """How many processes at a time, of which kind, and for how many seconds a replicate, if any."""

    number: int
    context: Any
    time_limit: float | None = None


class _Worker(NamedTuple):
    """A process, and what it is busy with since when; nothing while it starts."""

    process: Any
    replicate: Replicate | None = None
    since: float = 0.0

    def is_late(self, limit: float | None) -> bool:
        return bool(limit and self.replicate) and time.monotonic() - self.since > (limit or 0.0)

    def failed(self, why: str) -> Outcome:
        assert self.replicate is not None
        seconds = time.monotonic() - self.since
        return failure(self.replicate, StudyError(why), seconds=seconds)


def run_isolated(
    function: Callable[..., Mapping],
    todo: Iterable[Replicate],
    seed: int,
    workers: Workers,
    finish: Callable[[Outcome], None],
) -> int:
    """Run replicates in processes of which each may be lost, and return how many were."""
    waiting, lost = deque(todo), 0
    running: dict[Connection, _Worker] = {}
    try:
        while waiting or running:
            while len(running) < min(workers.number, len(waiting)):
                connection, worker = _start(function, seed, workers.context)
                running[connection] = worker
            for ready in wait(list(running), _patience(running.values(), workers.time_limit)):
                assert isinstance(ready, Connection)
                lost += _listen(ready, running, waiting, finish)
            for late in [c for c, w in running.items() if w.is_late(workers.time_limit)]:
                worker = running.pop(late)
                _end(late, worker)
                finish(
                    worker.failed(
                        "A replicate must be done within the time limit of "
                        f"{workers.time_limit:g} seconds; this one was not, and was stopped."
                    )
                )
    finally:
        for connection, worker in running.items():
            _end(connection, worker)
    return lost


def _start(function: Callable[..., Mapping], seed: int, context: Any) -> tuple[Connection, _Worker]:
    ours, theirs = context.Pipe()
    process = context.Process(target=_work, args=(theirs, function, seed), daemon=True)
    try:
        process.start()
    except Exception as error:
        raise StudyError(
            "The function must be one that can be sent to another process, so not a lambda; it "
            f"was not ({type(error).__name__}: {error})."
        ) from error
    # Else the end of the process would not be the end of what it writes to.
    theirs.close()
    return ours, _Worker(process)


def _work(connection: Connection, function: Callable[..., Mapping], seed: int) -> None:
    connection.send(_READY)
    while (replicate := connection.recv()) is not None:
        connection.send(run_replicate(function, replicate, seed))


def _listen(
    connection: Connection,
    running: dict[Connection, _Worker],
    waiting: deque[Replicate],
    finish: Callable[[Outcome], None],
) -> bool:
    """Take what a process has to say, and give it the next replicate; tell whether it was lost."""
    worker = running[connection]
    try:
        message = connection.recv()
    except (EOFError, OSError):
        del running[connection]
        _end(connection, worker)
        if worker.replicate is None:
            raise StudyError(
                "The function must be one that other processes can import; one of them ended "
                f"before its first replicate, with exit code {worker.process.exitcode}."
            ) from None
        finish(
            worker.failed(
                "A replicate must leave its process alive; this one ended it, with exit code "
                f"{worker.process.exitcode}."
            )
        )
        return True
    if message != _READY:
        finish(message)
    if waiting:
        running[connection] = worker._replace(replicate=waiting.popleft(), since=time.monotonic())
        connection.send(running[connection].replicate)
    else:
        del running[connection]
        _end(connection, worker)
    return False


def _patience(running: Iterable[_Worker], limit: float | None) -> float | None:
    """Return how long to wait for a message until the first limit is reached."""
    since = [worker.since for worker in running if worker.replicate is not None]
    if limit is None or not since:
        return None
    return max(0.0, min(since) + limit - time.monotonic()) + 0.001


def _end(connection: Connection, worker: _Worker) -> None:
    """End a process that has nothing more to say."""
    worker.process.kill()
    worker.process.join()
    connection.close()
